//! What the machine grants this process, and who runs it: memory, open files, the user.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of memory that this process may use: the machine's, or less if its control group says so.
///
/// `None` when nothing can be read, which is no Linux.
pub(crate) fn memory_granted_bytes() -> Option<u64> {
    let total = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total_of_meminfo);
    total.into_iter().chain(control_group_limits()).min()
}

/// Raises the limit of open files as far as allowed; returns how many connections fit, `spare` files left for others.
///
/// It is raised beyond what is needed now: each segment is an open file, and the data grows.
pub(crate) fn raise_open_files(wanted: usize, spare: usize) -> usize {
    let files = u64::try_from(wanted.saturating_add(spare)).unwrap_or(u64::MAX).max(FILES_MAX);
    match reactor::raise_descriptor_limit(files) {
        Ok(granted) => GRANTED.store(usize::try_from(granted).unwrap_or(usize::MAX), Ordering::Relaxed),
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
    connections_that_fit(wanted, spare)
}

/// How many of `wanted` connections fit beside `spare` files, by the limit as it was last raised: whoever lowers it from outside
/// while the server runs means it.
pub(crate) fn connections_that_fit(wanted: usize, spare: usize) -> usize {
    GRANTED.load(Ordering::Relaxed).saturating_sub(spare).min(wanted)
}

/// Files that `dir` holds; 0 if it is not there yet.
pub(crate) fn files_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// The user whose rights this process has.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Open files that the system granted when it was last asked: as many as one likes, unless it answered.
static GRANTED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Open files that systems allow without being asked twice: segments of 64 TB.
const FILES_MAX: u64 = 1 << 20;

/// Limits of this process's control group and of all above it, version 2 and version 1.
fn control_group_limits() -> Vec<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            other if other.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let own = Path::new(root).join(group.trim_start_matches('/'));
        for folder in own.ancestors().take_while(|folder| folder.starts_with(root)) {
            let limit = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
            limits.extend(limit.trim().parse::<u64>());
        }
    }
    limits
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_meminfo() {
        assert_eq!(total_of_meminfo("MemTotal:       16316412 kB\nMemFree: 1 kB\n"), Some(16_316_412 * 1024));
        assert_eq!(total_of_meminfo("nothing"), None);
    }

    #[test]
    fn this_machine_grants_something() {
        assert!(memory_granted_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(raise_open_files(16, 16) == 16);
    }
}
