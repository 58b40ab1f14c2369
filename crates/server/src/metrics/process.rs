//! What the system says of this process and machine; 0 where it does not say.

/// The process as the kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Processor time in programs, in seconds.
    pub cpu_user_s: f64,
    /// Processor time in the kernel, in seconds.
    pub cpu_system_s: f64,
    /// Memory that is in RAM.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files, sockets included.
    pub files_open: u64,
    /// So many files may be open.
    pub files_max: u64,
}

impl ProcessFigures {
    /// Reads them.
    pub(crate) fn read() -> Self {
        let text = text_of("/proc/self/stat");
        // The name of the process is in parentheses and may hold spaces: count from behind it.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0);
        ProcessFigures {
            cpu_user_s: number(11) as f64 / TICKS_PER_SECOND,
            cpu_system_s: number(12) as f64 / TICKS_PER_SECOND,
            resident_bytes: resident_bytes(),
            threads: number(17),
            files_open: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
            files_max: files_max(),
        }
    }
}

/// Memory of the process that is in RAM; 0 where the system does not tell.
#[must_use]
pub fn resident_bytes() -> u64 {
    let pages = text_of("/proc/self/statm").split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// Memory of the machine.
pub(crate) fn machine_bytes() -> u64 {
    let kilobytes = text_of("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn files_max() -> u64 {
    let text = text_of("/proc/self/limits");
    let soft = text.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel, not of the data that a simulation owns")]
fn text_of(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Pages of the kernels we run on.
const PAGE_BYTES: u64 = 4_096;
/// `sysconf(_SC_CLK_TCK)` of every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_files() {
        let figures = ProcessFigures::read();
        assert!(figures.resident_bytes > 0 && figures.threads > 0 && figures.files_open > 2, "{figures:?}");
        assert!(
            figures.files_max >= figures.files_open && machine_bytes() > figures.resident_bytes,
            "{figures:?}"
        );
    }
}
