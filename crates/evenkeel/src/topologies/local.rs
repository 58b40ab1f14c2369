//! `evenkeel topology run FILE --local`: runs a definition in this process until a signal, or for a time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flux::Definition;
use worker::{Ended, Options, Running};

use super::text::{counted, row, table};
use crate::failure::Failure;

/// Runs `definition`, which was read from `file`.
///
/// # Errors
/// One line: it cannot be started, or was not finished when its time for that was over.
pub(super) fn run(
    definition: &Definition,
    file: &Path,
    threads: usize,
    length: Option<Duration>,
) -> Result<(), Failure> {
    let program = super::code::program(definition, &definition.plan.topology().name, &folder(file))?;
    crate::logging::start(&server::settings::Settings::default());
    processes::adopt_orphans(processes::Orphans::Unmarked)
        .map_err(|error| Failure::System(format!("cannot watch what components leave behind: {error}")))?;
    let end = signals()?;
    let options = Options { store: super::code::store(definition)?, ..Options::with_threads(threads) };
    let running = Running::start(&program, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    tracing::info!(topology = definition.plan.topology().name, "the topology runs; Ctrl-C ends it");
    // Either way it is the end.
    let _ = match length {
        Some(length) => end.recv_timeout(length).map_err(drop),
        None => end.recv().map_err(drop),
    };
    let grace = definition.plan.settings().message_timeout;
    tracing::info!(?grace, "the topology ends when all that is under way is finished");
    let ended = running.kill(grace);
    let left = shell::wait_for_children(CHILDREN_GRACE);
    crate::output::say(std::io::stdout(), &figures(&ended));
    judge(&ended, left)
}

fn judge(ended: &Ended, children: usize) -> Result<(), Failure> {
    if children > 0 {
        return Err(Failure::System(format!("{children} children could not be ended")));
    }
    if !ended.is_finished {
        let pending = ended.stats.components.iter().filter(|it| it.is_spout);
        let tuples = counted(pending.map(|it| it.pending).sum(), "tuple");
        return Err(Failure::System(format!(
            "{tuples} were not finished within topology.message.timeout.secs"
        )));
    }
    Ok(())
}

/// Where components run: `resources` beside the file, as in a jar of Storm's, or else beside the file itself.
pub(super) fn folder(file: &Path) -> PathBuf {
    let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let resources = beside.join("resources");
    if resources.is_dir() { resources } else { beside.to_owned() }
}

/// Something comes when a signal does. The second signal ends the process at once; its children see their input end.
fn signals() -> Result<Receiver<()>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let system = |error: std::io::Error| Failure::System(format!("cannot watch for signals: {error}"));
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(system)?;
    let (sender, receiver) = channel();
    let watch = move || {
        for (count, _) in signals.forever().enumerate() {
            if count > 0 {
                crate::output::say(std::io::stderr(), "evenkeel: a signal again: ending at once\n");
                std::process::exit(1);
            }
            let _ = sender.send(());
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(watch);
    thread.map_err(system).map(|_| receiver)
}

/// What the topology has done.
fn figures(ended: &Ended) -> String {
    let head = ["component", "emitted", "executed", "acked", "failed", "pending", "faults", "last error"];
    let mut rows = vec![row(head)];
    for it in &ended.stats.components {
        let numbers = [it.emitted, it.executed, it.acked, it.failed, it.pending, it.faults];
        let numbers = numbers.map(|number| number.to_string());
        let error = it.last_error.as_deref().unwrap_or_default();
        let mut cells = vec![it.id.clone()];
        cells.extend(numbers);
        cells.push(error.lines().next().unwrap_or_default().to_owned());
        rows.push(cells);
    }
    table(&rows)
}

/// More than a child has to end by itself.
const CHILDREN_GRACE: Duration = Duration::from_secs(5);
