//! `evenkeel serve`: from settings to a running server, and to its end.
//!
//! ```text
//!  exposure, files, memory -> listen -> open the store -> protocol -> reactor -> greeting, RUNNING, systemd
//!       -> wait for: signal | SHUTDOWN | failed journal or event loop
//!       -> asked:  stop accepting, send what is released (bounded), close the store, exit 0
//!          failed: exit 1 at once; connections close without a reply, because nobody knows the outcome
//! ```
//!
//! Everything that stops a start is one line on standard error and a status that is not 0.

use crate::exposure::{refuse_exposure, warn_of_exposure};
use crate::failure::Failure;
use crate::running::{Running, keeps_files};
use crate::watching::Watched;
use crate::{greeting, logging, machine, notify, reload, secure, supervising, watching};
use clock::{Clock, SystemClock};
use console::Console;
use reactor::{Handle, Listeners, Reactor};
use server::settings::{Config, SettingError, Settings};
use server::{EvenkeelProtocol, ServerOptions, ShutdownKind, Transactions, TransactionsOptions, UserFile};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use store::Store;

/// Why a running server ends.
#[derive(Debug)]
enum End {
    /// A signal, by its name.
    Signal(&'static str),
    /// The command SHUTDOWN.
    Command(ShutdownKind),
    /// Nothing more becomes durable, or a part works no more.
    Failed(String),
    /// The folder is gone, and with it what was written since.
    FolderGone(String),
    /// SIGHUP, which ends nothing.
    Reload,
}

impl End {
    /// What ends the server when the command SHUTDOWN, or a part that works no more, does.
    fn of(kind: ShutdownKind) -> Self {
        match kind {
            ShutdownKind::Failed(what) => Self::Failed(what.to_owned()),
            kind => Self::Command(kind),
        }
    }

    /// Why it is a failure, if it is one.
    fn failure(&self) -> Option<Failure> {
        let text = match self {
            Self::Failed(why) => format!(
                "stopped: {why}. Nothing acknowledged is lost; writes without an answer may or may not be there"
            ),
            Self::FolderGone(why) => format!(
                "stopped: {why}. Writes acknowledged since then went to files without a name, and may be lost"
            ),
            _ => return None,
        };
        Some(Failure::Data(text))
    }
}

/// Runs a server until it is asked to end.
///
/// # Errors
/// One line that says why it did not start, or why it stopped.
pub(crate) fn run(settings: Settings, file: Option<PathBuf>) -> Result<(), Failure> {
    crate::allocator::share_heaps(heaps(&settings));
    logging::start(&settings);
    #[cfg(debug_assertions)]
    crate::steps::obey();
    end_on_panic();
    warn_of_exposure(&settings);
    look_at_folder(&settings)?;
    let config = Arc::new(Config::new(with_files_that_fit(settings)?, file));
    let (settings, (ends, ended)) = (config.current(), mpsc::channel());
    watch_signals(ends.clone())?;
    let tls = secure::options(&settings)?;

    // Before the folder is touched: a second server that was started by mistake leaves nothing behind.
    let listeners = Listeners::open(&reactor_options(&settings, tls.clone()))
        .map_err(|error| Failure::Place(listen_error(&error, &settings)))?;
    let watched = Arc::new(Watched::default());
    let console = watching::start(&settings, watching::listen(&settings)?, &watched)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let hooks = Hooks { protocol: Arc::default(), ends: ends.clone() };
    let store = Store::open(store_options(&settings, &clock, hooks.for_store())).map_err(Failure::from)?;
    let transactions = Transactions::open(TransactionsOptions {
        store: Arc::clone(&store),
        settings: &settings,
        clock: Arc::clone(&clock),
        vfs: Arc::new(vfs::RealDisk),
    })?;
    let supervisor = supervising::new(&settings, &clock)?;
    let protocol = EvenkeelProtocol::new(ServerOptions {
        store: Arc::clone(&store),
        supervisor: supervisor.clone(),
        transactions: Some(Arc::clone(&transactions)),
        users: users_of(&settings)?,
        settings: Arc::clone(&config),
        clock: Arc::clone(&clock),
        version: env!("CARGO_PKG_VERSION"),
        shutdown: Box::new(move |kind| drop(ends.send(End::of(kind)))),
    });
    protocol.recover().map_err(Failure::from)?;
    let _ = hooks.protocol.set(Arc::clone(&protocol));
    // Transactions of an earlier start go on since they were opened: what became durable for them meanwhile was told to nobody.
    protocol.on_advance();
    watched.serves(&protocol);
    let handle = Reactor::start_on(listeners, reactor_options(&settings, tls), Arc::clone(&protocol), clock)
        .map_err(|error| Failure::System(error.to_string()))?;
    act_on_changes(&config, &handle, &store);
    let running = Running::this_process(&handle, settings.unixsocket.as_deref());
    supervising::start(supervisor.as_deref(), &running)?;
    note_running(&running, &settings);
    greeting::print(&settings, &running, &handle, &store);
    let report = || {
        fit_connections(&config.current(), &handle, &store);
        // Sums up what connections keep, also while nobody grows.
        handle.set_budget(&client_budget(&config.current(), Some(&*store)));
    };
    let reloading = reload::Reloading::new(&config, &transactions, &handle);
    let end = wait_for_end(&ended, &report, &|| reloading.begin())?;
    watched.stops();
    reloading.end();
    if end.failure().is_none() {
        supervising::stop(supervisor.as_deref());
    }
    let parts = Parts { handle, console, protocol: &protocol, transactions: &transactions, store: &store };
    stop(&end, &ended, parts, &settings)
}

/// Waits for a reason to end; meanwhile calls `report` now and then, and `reload` when asked.
fn wait_for_end(ended: &Receiver<End>, report: &dyn Fn(), reload: &dyn Fn()) -> Result<End, Failure> {
    loop {
        match ended.recv_timeout(REPORTED) {
            Ok(End::Reload) => reload(),
            Ok(end) => return Ok(end),
            Err(RecvTimeoutError::Timeout) => report(),
            // The protocol holds a sender as long as it lives, so there is always an end to come.
            Err(RecvTimeoutError::Disconnected) => {
                let text = "every part that could end the server is gone";
                return Err(Failure::System(text.to_owned()));
            }
        }
    }
}

/// How many threads allocate much.
fn heaps(settings: &Settings) -> usize {
    let is_threaded = settings.connector == server::settings::Connector::Threads;
    if is_threaded { 2 } else { settings.loops_resolved() }
}

/// What is to be stopped, in this order.
struct Parts<'a> {
    handle: Handle<EvenkeelProtocol>,
    console: Option<Console>,
    protocol: &'a EvenkeelProtocol,
    transactions: &'a Transactions,
    store: &'a Store,
}

fn stop(end: &End, ended: &Receiver<End>, parts: Parts<'_>, settings: &Settings) -> Result<(), Failure> {
    let Parts { handle, protocol, console, store, transactions } = parts;
    if let Some(why) = end.failure() {
        return Err(why);
    }
    match end {
        End::Command(kind) => tracing::info!("SHUTDOWN ({kind:?}): stopping"),
        End::Signal(name) => tracing::info!("{name}: stopping"),
        End::Failed(_) | End::FolderGone(_) | End::Reload => unreachable!("a failure, and what ends nothing"),
    }
    notify::stopping();
    bound_the_stop();
    handle.shutdown();
    if !ends_within(LOOPS_END_MAX, move || handle.join()) {
        tracing::warn!(
            "a command still runs after {} s: the server ends without it, and it is not acknowledged",
            LOOPS_END_MAX.as_secs()
        );
    }
    if let Some(console) = console {
        console.stop();
    }
    protocol.close();
    transactions.close();
    store.close();
    // The journal may have failed on the way out: then the last writes are not on disk, and the status must say so.
    if let Some(why) = ended.try_iter().find_map(|end| end.failure()) {
        return Err(why);
    }
    if keeps_files(settings) {
        Running::remove(&settings.dir);
        tracing::info!("stopped; everything acknowledged is kept");
    } else {
        tracing::info!("stopped; nothing is kept with engine {}", settings.engine);
    }
    Ok(())
}

/// Whether `work`, on a thread of its own, ends within `limit`; the thread is left alone otherwise.
fn ends_within(limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (end, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        work();
        let _ = end.send(());
    });
    match thread {
        Ok(_) => ended.recv_timeout(limit).is_ok(),
        Err(error) => {
            tracing::warn!(%error, "no thread to wait for the loops");
            false
        }
    }
}

/// A panic in one thread is a bug whose reach nobody knows: better no server than half of one. What was
/// acknowledged is on disk.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Ends the process if a stop takes longer than its parts allow: a disk that hangs must not hold up a reboot.
fn bound_the_stop() {
    let bounded = std::thread::Builder::new().name("stop-bound".to_owned()).spawn(|| {
        std::thread::park_timeout(STOP_MAX);
        let text = format!("evenkeel: the stop took longer than {} s; ending at once\n", STOP_MAX.as_secs());
        crate::output::say(std::io::stderr(), &text);
        std::process::exit(1);
    });
    if let Err(error) = bounded {
        tracing::warn!(%error, "no thread to bound the stop");
    }
}

/// Callbacks of the store; the protocol that they wake comes later than the store.
struct Hooks {
    protocol: Arc<OnceLock<Arc<EvenkeelProtocol>>>,
    ends: Sender<End>,
}

impl Hooks {
    fn for_store(&self) -> store::Hooks {
        let (advanced, credited) = (Arc::clone(&self.protocol), Arc::clone(&self.protocol));
        let (unlocked, changed) = (Arc::clone(&self.protocol), Arc::clone(&self.protocol));
        let ends = Mutex::new(self.ends.clone());
        store::Hooks {
            on_advance: Arc::new(move || {
                if let Some(protocol) = advanced.get() {
                    protocol.on_advance();
                }
            }),
            on_credits: Arc::new(move || {
                if let Some(protocol) = credited.get() {
                    protocol.on_credits();
                }
            }),
            on_unlock: Arc::new(move || {
                if let Some(protocol) = unlocked.get() {
                    protocol.on_unlock();
                }
            }),
            on_changed_waited: Arc::new(move || {
                if let Some(protocol) = changed.get() {
                    protocol.on_changed_waited();
                }
            }),
            on_failure: Arc::new(move |error| {
                let ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
                let text = error.to_string();
                let _ = ends.send(match error {
                    store::StoreError::FolderGone(_) => End::FolderGone(text),
                    _ => End::Failed(text),
                });
            }),
        }
    }
}

fn store_options(settings: &Settings, clock: &Arc<dyn Clock>, hooks: store::Hooks) -> store::Options {
    use server::settings::{Backend, Durability, Engine};
    store::Options {
        engine: match settings.engine {
            Engine::Log => store::EngineKind::Log,
            Engine::Memory => store::EngineKind::Memory,
            Engine::Noop => store::EngineKind::Noop,
        },
        durability: match settings.durability {
            Durability::Always => store::Durability::Always,
            Durability::Interval(interval) => store::Durability::Interval(interval),
            Durability::Never => store::Durability::Never,
        },
        databases: settings.databases,
        memory_limit_bytes: memory_limit_bytes(settings),
        eviction: eviction(settings),
        disk_limit_bytes: settings.store_disk_limit.0,
        leaf_bytes: settings.store_leaf_size.0,
        value_bytes_max: settings.value_max.0,
        transaction_bytes_max: settings.transaction_max.0,
        space_ratio_max_percent: settings.store_space_ratio_max.into(),
        clock: Arc::clone(clock),
        dir: settings.dir.clone(),
        journal: journal::Options {
            segment_size_bytes: settings.journal_segment_size.0,
            buffer_bytes_max: settings.journal_buffer_max.0,
            backend: match settings.journal_backend {
                // Falls back to `buffered` by itself where the kernel has no ring for us, and says why.
                Backend::Uring => journal::BackendKind::Uring,
                Backend::Direct => journal::BackendKind::Direct,
                Backend::Auto | Backend::Buffered => journal::BackendKind::Buffered,
            },
            ..journal::Options::default()
        },
        // for tests, in builds with debug assertions alone
        is_always_cold: cfg!(debug_assertions) && std::env::var_os("EVENKEEL_ALWAYS_COLD").is_some(),
        resident_bytes: server::metrics::resident_bytes,
        never_evicted: server::is_of_a_topology,
        hooks,
        ..store::Options::default()
    }
}

fn reactor_options(settings: &Settings, tls: Option<reactor::TlsOptions>) -> reactor::Options {
    let addresses = |port: u16| {
        let bind = if port == 0 { &[] } else { settings.bind.as_slice() };
        bind.iter().map(|address| SocketAddr::new(*address, port)).collect()
    };
    reactor::Options {
        connector: match settings.connector {
            server::settings::Connector::Epoll => reactor::Connector::Epoll,
            // Falls back to epoll by itself where the kernel has no ring for us, and says why.
            server::settings::Connector::Uring => reactor::Connector::Uring,
            server::settings::Connector::Threads => reactor::Connector::Threads,
        },
        loops: settings.loops_resolved(),
        adapts_loops: settings.loops == 0,
        tcp: addresses(settings.port),
        tls_tcp: addresses(settings.tls_port),
        tls,
        unix: settings.unixsocket.clone(),
        connections_max: settings.connections_max,
        limits: reactor_limits(settings),
        assignment: match settings.assignment {
            server::settings::Assignment::LeastLoaded => reactor::Assignment::LeastLoaded,
            server::settings::Assignment::RoundRobin => reactor::Assignment::RoundRobin,
            server::settings::Assignment::ByHost => reactor::Assignment::ByHost,
        },
        balance: balance(settings),
        budget: client_budget(settings, None),
        ..reactor::Options::default()
    }
}

fn balance(settings: &Settings) -> reactor::Balance {
    use server::settings::{BalanceBy, Every};
    reactor::Balance {
        interval: match settings.balance_interval {
            Every::Off => None,
            Every::Time(interval) => Some(interval),
        },
        by: match settings.balance_by {
            BalanceBy::Time => reactor::By::Time,
            BalanceBy::Bytes => reactor::By::Bytes,
            BalanceBy::Events => reactor::By::Events,
        },
        threshold_percent: settings.balance_threshold,
    }
}

fn reactor_limits(settings: &Settings) -> reactor::Limits {
    reactor::Limits {
        input_bytes_max: settings.connections_input_max.bytes(),
        output_bytes_max: settings.connections_output_max.bytes(),
        held_bytes_max: settings.connections_held_max.bytes(),
        ..reactor::Limits::default()
    }
}

/// Has CONFIG SET reach the parts that keep their own copy of a setting.
fn act_on_changes(config: &Config, handle: &Handle<EvenkeelProtocol>, store: &Arc<Store>) {
    let (handle, store) = (handle.clone(), Arc::clone(store));
    config.on_change(move |former, new| {
        let loses_password = former.requirepass.reveal().is_some() && new.requirepass.reveal().is_none();
        if loses_password || former.tls_client_certificates != new.tls_client_certificates {
            // It would be the password of the user default, whatever the file of users says.
            let acl_file = if loses_password { None } else { new.acl_file.clone() };
            let open = Settings { acl_file, ..new.clone() };
            refuse_exposure(&open).map_err(|failure| SettingError::Conflict(failure.to_string()))?;
            warn_of_exposure(&open);
        }
        if new.connections_max > former.connections_max {
            let fits = machine::raise_open_files(new.connections_max, files_spare(files_open(&store)));
            if fits < new.connections_max {
                let why = format!("the limit of open files allows {fits} connections");
                return Err(SettingError::Value(why));
            }
        }
        if former.tls_set_count != new.tls_set_count
            && let Some(tls) = secure::options(new)?
        {
            handle.set_tls(tls);
        }
        fit_connections(new, &handle, &store);
        handle.set_limits(&reactor_limits(new));
        store.set_memory_limit(memory_limit_bytes(new));
        store.set_eviction(eviction(new));
        store.set_disk_limit(new.store_disk_limit.0);
        handle.set_budget(&client_budget(new, Some(&*store)));
        handle.set_balance(balance(new));
        Ok(())
    });
}

/// The users of acl.file.
fn users_of(settings: &Settings) -> Result<Option<UserFile>, Failure> {
    let read = |path| UserFile::read(path, server::commands(), settings.acl_all_channels);
    let users = settings.acl_file.as_deref().map(read).transpose();
    users.map_err(|error| Failure::Usage(format!("acl.file: {error}")))
}

/// What all connections together may hold. It is a part of the limit of memory; where values cannot leave memory, they go first.
fn client_budget(settings: &Settings, store: Option<&Store>) -> reactor::BudgetLimits {
    let limit = memory_limit_bytes(settings);
    let granted = if limit == 0 { machine::memory_granted_bytes().unwrap_or(u64::MAX) } else { limit };
    let asked = settings.connections_memory_max.0;
    let kept_bytes_max = if asked == 0 { granted / 8 * 3 } else { asked.min(granted / 4 * 3) };
    let data_bytes = store
        .filter(|store| {
            limit != 0 && !store.can_drop_values() && store.eviction() == store::Eviction::NoEviction
        })
        .map_or(0, |store| store.memory().index_bytes);
    let kept_bytes_max =
        kept_bytes_max.min(granted.saturating_sub(data_bytes + granted / 16)).max(granted / 16);
    reactor::BudgetLimits {
        kept_bytes_max,
        strangers_bytes_max: settings.connections_unauthenticated_max.0.min(kept_bytes_max / 4),
        room_wait_max: settings.connections_room_wait_max,
    }
}

/// Which keys go, as the store takes it.
fn eviction(settings: &Settings) -> store::Eviction {
    use server::settings::Policy;
    match settings.memory_policy {
        Policy::NoEviction => store::Eviction::NoEviction,
        Policy::AllKeysLru => store::Eviction::AllKeysLru,
        Policy::AllKeysLfu => store::Eviction::AllKeysLfu,
        Policy::AllKeysRandom => store::Eviction::AllKeysRandom,
        Policy::VolatileLru => store::Eviction::VolatileLru,
        Policy::VolatileLfu => store::Eviction::VolatileLfu,
        Policy::VolatileRandom => store::Eviction::VolatileRandom,
        Policy::VolatileTtl => store::Eviction::VolatileTtl,
    }
}

/// The memory limit as the store takes it: 0 is none.
fn memory_limit_bytes(settings: &Settings) -> u64 {
    settings.memory_limit_resolved(machine::memory_granted_bytes()).unwrap_or(0)
}

/// Refuses a folder that is none, or that another user made: who owns it may put links and files there that are not what they seem; warns of one that has files of others.
/// One of root's is trusted.
fn look_at_folder(settings: &Settings) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let dir = settings.dir.display();
    let Ok(there) = std::fs::metadata(&settings.dir) else { return Ok(()) };
    if !keeps_files(settings) {
        return Ok(());
    }
    if !there.is_dir() {
        return Err(Failure::Place(format!("dir = {dir} is a file, not a folder")));
    }
    let (owner, own) = (there.uid(), machine::user());
    if owner != own && owner != 0 {
        return Err(Failure::Place(format!(
            "dir = {dir} belongs to another user (id {owner}; this process runs as {own}): run the server as that user, or \
             give it the folder with `chown -R {own} {dir}`"
        )));
    }
    warn_of_other_files(&settings.dir);
    Ok(())
}

/// Warns of a folder that has files, and none of this server's: who took it for data would miss that.
fn warn_of_other_files(dir: &Path) {
    let is_ours = [journal::MANIFEST_NAME, journal::LOCK_NAME].iter().any(|name| dir.join(name).exists());
    if is_ours {
        return;
    }
    if let Some(name) = OF_REDIS.iter().find(|name| dir.join(name).exists()) {
        tracing::warn!(
            "dir = {} holds {name} of Redis, which is not read: this server begins without keys; docs/manual/redis.md says how \
             to copy them",
            dir.display()
        );
        return;
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // hidden files and this one are in the root of a volume
    if let Some(name) = names.find(|name| !name.starts_with('.') && name != "lost+found") {
        tracing::warn!(
            "dir = {} holds {name} and no data of a server: this one begins without keys",
            dir.display()
        );
    }
}

/// Files in which Redis keeps data.
const OF_REDIS: [&str; 3] = ["dump.rdb", "appendonlydir", "appendonly.aof"];

/// Lowers connections.max to what the limit of open files allows.
///
/// # Errors
/// There is room for nearly no connection.
fn with_files_that_fit(mut settings: Settings) -> Result<Settings, Failure> {
    let spare = files_spare(machine::files_in(&settings.dir));
    let fits = machine::raise_open_files(settings.connections_max, spare);
    let least = settings.connections_max.min(CONNECTIONS_LEAST);
    if fits < least {
        return Err(Failure::System(format!(
            "the limit of open files (ulimit -n) leaves room for {fits} connections: it must be at least {}, and {} for \
             connections.max = {}",
            spare + least,
            spare + settings.connections_max,
            settings.connections_max
        )));
    }
    if fits < settings.connections_max {
        tracing::warn!(
            "connections.max lowered from {} to {fits}: the limit of open files (ulimit -n) allows no more",
            settings.connections_max
        );
        settings.connections_max = fits;
    }
    Ok(settings)
}

/// Lets in as many connections as fit beside the files that the data has by now; those that are there stay.
fn fit_connections(settings: &Settings, handle: &Handle<EvenkeelProtocol>, store: &Store) {
    let files = files_open(store);
    let fits = machine::connections_that_fit(settings.connections_max, files_spare(files)).max(1);
    let before = handle.connections_max();
    handle.set_connections_max(fits);
    if fits < before && fits < settings.connections_max {
        tracing::warn!(
            "connections.max lowered from {before} to {fits}: the data has {files} files by now, and the limit of open files \
             (ulimit -n) allows no more"
        );
    }
}

/// Files that the data has open.
fn files_open(store: &Store) -> usize {
    let Some(journal) = store.journal_counters() else { return 0 };
    let sealed = journal.segments_sealed + journal.segments_footed + journal.segments_trimmed;
    usize::try_from(journal.segments_open + sealed + journal.files_ready).unwrap_or(usize::MAX)
}

/// Files to leave beside connections when the data has `files`: it may double before they are counted again.
fn files_spare(files: usize) -> usize {
    FILES_SPARE.max(FILES_BESIDE_DATA + 2 * files.next_multiple_of(FILES_STEP))
}

fn listen_error(error: &reactor::StartError, settings: &Settings) -> String {
    use std::io::ErrorKind;
    let reactor::StartError::Listen { address, source } = error else { return error.to_string() };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => None,
        ErrorKind::AddrNotAvailable => {
            Some("this machine has no such address: `ip address` lists those it has")
        }
        ErrorKind::InvalidInput => {
            Some("use an address of this machine; a link-local one (fe80::) is not enough by itself")
        }
        ErrorKind::PermissionDenied => Some(
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE; a unix socket needs write access to its folder",
        ),
        _ => return error.to_string(),
    };
    if let Some(advice) = advice {
        return format!("{error}: {advice}");
    }
    if settings.unixsocket.as_ref().is_some_and(|path| path.display().to_string() == *address) {
        return format!(
            "cannot listen on {address}: a server does, or the file is no socket; stop it, remove it or choose another \
             path with --unixsocket"
        );
    }
    format!(
        "cannot listen on {address}: something else does (another server?); stop it or choose another port with \
         --port, now {}",
        settings.port
    )
}

fn note_running(running: &Running, settings: &Settings) {
    if !keeps_files(settings) {
        return;
    }
    if let Err(error) = running.write(&settings.dir) {
        tracing::warn!(%error, "could not write RUNNING: `evenkeel backup` will not find this server");
    }
}

/// Turns signals into an end, SIGHUP into a reload. The second one that ends it does so at once: somebody is in a hurry. A shell
/// that runs a script's command in the background ignores SIGINT; whoever sends that by hand means it.
fn watch_signals(ends: Sender<End>) -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Failure::System(format!("cannot watch for signals: {error}")))?;
    let watch = move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                let _ = ends.send(End::Reload);
                continue;
            }
            let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
            if std::mem::replace(&mut is_ending, true) {
                crate::output::say(std::io::stderr(), &format!("evenkeel: {name} again: ending at once\n"));
                std::process::exit(1);
            }
            let _ = ends.send(End::Signal(name));
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(watch);
    thread.map(drop).map_err(|error| Failure::System(format!("cannot start the thread for signals: {error}")))
}

/// With room for fewer connections the server does not start.
const CONNECTIONS_LEAST: usize = 16;
/// Files left beside connections, at least: sockets, pollers, segments.
const FILES_SPARE: usize = 256;
/// Of these, what is no file of the data's.
const FILES_BESIDE_DATA: usize = 64;
/// The data's files are rounded up to this, so that not each new segment is a line in the log.
const FILES_STEP: usize = 16;

/// How often buffers are added up and the data's files counted: what they grow by in between counts neither against memory.limit
/// nor against connections.max.
const REPORTED: Duration = Duration::from_millis(250);

/// Longest wait for loops: they send what is due for 10 s, and a command that runs is not broken off.
const LOOPS_END_MAX: Duration = Duration::from_secs(12);
/// Longest time from the request to stop to the end of the process.
const STOP_MAX: Duration = Duration::from_secs(20);
const _: () = assert!(LOOPS_END_MAX.as_secs() < STOP_MAX.as_secs());

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that ran for long held up the stop, which then ended with status 1 and without a seal.
    #[test]
    fn a_stop_does_not_wait_for_ever_for_what_still_runs() {
        let (go, gone) = mpsc::channel::<()>();
        assert!(!ends_within(Duration::from_millis(1), move || {
            let _ = gone.recv();
        }));
        drop(go);
        assert!(ends_within(STOP_MAX, || {}));
    }

    /// CONFIG SET once left as many as an empty folder needs, however many segments there were.
    #[test]
    fn files_are_left_for_twice_the_data() {
        assert_eq!(files_spare(0), FILES_SPARE);
        assert_eq!(files_spare(FILES_SPARE - 1), FILES_BESIDE_DATA + 2 * FILES_SPARE);
    }
}
