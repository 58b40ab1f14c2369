//! What the settings `topologies.*` ask for: worker processes of this binary, watched by `supervisor`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use server::settings::{Settings, User, WorkerTransport};
use supervisor::{Account, Bounds, Limits, Options, Supervisor};
use topology::definition::Transport;

use crate::failure::Failure;
use crate::running::{Running, keeps_files};

/// What will run topologies; none without `topologies.dir`.
///
/// # Errors
/// One line: the folder is not there, or the system has no descriptor left.
pub(crate) fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Option<Arc<Supervisor>>, Failure> {
    let Some(dir) = &settings.topologies_dir else { return Ok(None) };
    let dir = canonical(dir)?;
    let options = Options {
        // The file that runs, also after another one has taken its name.
        program: PathBuf::from("/proc/self/exe"),
        arguments: vec!["worker".to_owned()],
        mark: mark(settings),
        dir,
        topologies_max: settings.topologies_count_max,
        tasks_max: settings.topologies_tasks_max,
        workers_max: settings.topologies_workers_max,
        http_hosts: settings.topologies_http_hosts.iter().map(|host| host.0.clone()).collect(),
        transport: transport(settings, HAS_ZEROMQ)?,
        has_zeromq: HAS_ZEROMQ,
        limits: limits(settings)?,
        clock: Arc::clone(clock),
    };
    let supervisor = Supervisor::new(options);
    supervisor.map(|supervisor| Some(Arc::new(supervisor))).map_err(|error| system(&error))
}

/// Runs the topologies that are known; their components reach this server as `running` says.
///
/// # Errors
/// One line: the system grants no thread.
pub(crate) fn start(supervisor: Option<&Supervisor>, running: &Running) -> Result<(), Failure> {
    let Some(supervisor) = supervisor else { return Ok(()) };
    // What a worker leaves behind that was killed. Process 1 of a container is the parent of what others start there, too.
    if std::process::id() != 1 {
        processes::adopt_orphans(processes::Orphans::All).map_err(|error| system(&error))?;
    }
    supervisor.start(running.tcp.map(|address| address.to_string())).map_err(|error| system(&error))
}

/// Ends all workers, before clients are sent away: components may be clients.
pub(crate) fn stop(supervisor: Option<&Supervisor>) {
    let Some(supervisor) = supervisor else { return };
    let count = supervisor.reports().len();
    if count > 0 {
        tracing::info!(count, "stopping topologies");
    }
    supervisor.stop(STOP_WAIT);
}

fn transport(settings: &Settings, has_zeromq: bool) -> Result<Transport, Failure> {
    match settings.topologies_transport {
        WorkerTransport::Tcp => Ok(Transport::Tcp),
        WorkerTransport::ZeroMq if has_zeromq => Ok(Transport::ZeroMq),
        WorkerTransport::ZeroMq => Err(Failure::Usage(
            "topologies.transport = zeromq: this build has none; build evenkeel with `--features zeromq`, or use tcp"
                .to_owned(),
        )),
    }
}

fn limits(settings: &Settings) -> Result<Limits, Failure> {
    let bytes = settings.topologies_worker_memory_max.0;
    if (1..WORKER_BYTES_MIN).contains(&bytes) {
        return Err(Failure::Usage(format!(
            "topologies.worker_memory_max = {bytes} B: a worker needs at least {WORKER_BYTES_MIN} B (0: no limit)"
        )));
    }
    let account = settings.topologies_worker_user.as_ref().map(|User(user)| {
        let account = Account::find(user).and_then(|account| Account::check_rights().map(|()| account));
        let account = account.map_err(|error| error.to_string());
        let closed = account.and_then(|account| check_closed(settings, &account).map(|()| account));
        closed.map_err(|error| Failure::Usage(format!("topologies.worker_user = {user}: {error}")))
    });
    Ok(Limits {
        account: account.transpose()?,
        bounds: Bounds {
            memory_bytes_max: (bytes > 0).then_some(bytes),
            nice: settings.topologies_worker_nice,
        },
    })
}

/// Whether the data is closed to the user of workers.
fn check_closed(settings: &Settings, account: &Account) -> Result<(), String> {
    let dir = &settings.dir;
    let Some(folder) = dir.metadata().ok().filter(|_| keeps_files(settings)) else { return Ok(()) };
    let of_group = folder.gid() == account.gid && folder.mode() & 0o050 != 0;
    if folder.uid() == account.uid || of_group || folder.mode() & 0o005 != 0 {
        let mode = folder.mode() & 0o777;
        return Err(format!(
            "it could read the data in {} (mode {mode:o}): chmod 700 this folder",
            dir.display()
        ));
    }
    Ok(())
}

fn canonical(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::Usage(format!("topologies.dir = {}: {error}", dir.display()));
    let path = dir.canonicalize().map_err(failed)?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(Failure::Usage(format!("topologies.dir = {}: no folder", dir.display())))
    }
}

/// What workers of this server have in their environment: the same after a restart, as only one server may use a folder at a time.
fn mark(settings: &Settings) -> String {
    let folder = settings.dir.metadata().ok().filter(|_| keeps_files(settings));
    match folder {
        Some(folder) => format!("{:x}.{:x}", folder.dev(), folder.ino()),
        None => format!("pid{}", std::process::id()),
    }
}

fn system(error: &std::io::Error) -> Failure {
    Failure::System(format!("cannot run topologies (topologies.dir): {error}"))
}

/// What is under way at a stop may take so long. Tuples of sources that keep theirs are read again.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// A worker without components has 20 MiB and stacks of some threads.
const WORKER_BYTES_MIN: u64 = 64 << 20;
/// Whether this build has the transport zeromq.
const HAS_ZEROMQ: bool = cfg!(feature = "zeromq");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_zeromq_is_refused_by_a_build_without_it() {
        let settings = Settings { topologies_transport: WorkerTransport::ZeroMq, ..Settings::default() };
        assert_eq!(transport(&settings, true).ok(), Some(Transport::ZeroMq));
        let Err(Failure::Usage(text)) = transport(&settings, false) else { panic!("it is refused") };
        assert!(text.starts_with("topologies.transport = zeromq: this build has none"), "{text}");
    }
}
