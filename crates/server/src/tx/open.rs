//! From settings to a running coordinator: its name, its decision log, its resources.
//!
//! ```text
//!  DIR/txn/name        this server's name in databases, where the settings give none
//!  DIR/txn/decisions   the decision log; it holds the name, too
//! ```
//!
//! A server without databases, that never had any, decides nothing that others depend on: it keeps no log, and makes no folder.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use clock::Clock;
use sql::mariadb::MariaDb;
use sql::postgres::Postgres;
use sql::{Database, DatabaseOptions, Drivers};
use store::Store;
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::file::FileLog;
use txn::decision_log::journal::JournalLog;
use txn::decision_log::volatile::Volatile;
use txn::decision_log::{DecisionLog, Opened, first_epoch};
use txn::id::NodeName;
use txn::protocol::Timing;
use txn::resource::Resource;
use txn::shared_lane::{LaneHost, LaneThread, SharedLane};
use vfs::{OpenOptions, Vfs};

use super::error::TransactionsError::{self, Folder, Setting, System};
use super::keys::Keys;
use super::{Named, Shared, State, Transactions};
use crate::settings::{Durability, Engine, ResourceKind, ResourceSettings, Settings, TxnLog};

/// What transactions are made from.
pub struct TransactionsOptions<'a> {
    /// The keys.
    pub store: Arc<Store>,
    /// The settings in force.
    pub settings: &'a Settings,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The disk.
    pub vfs: Arc<dyn Vfs>,
}

impl std::fmt::Debug for TransactionsOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionsOptions").finish_non_exhaustive()
    }
}

impl Transactions {
    /// Opens the decision log, and starts: what was decided before is carried out, what was not is rolled back.
    ///
    /// Databases that do not answer are no error: they are asked again and again, and say so when a branch is enlisted.
    ///
    /// # Errors
    /// What is wrong with the settings, the folder, or the log; one line.
    pub fn open(options: TransactionsOptions<'_>) -> Result<Arc<Self>, TransactionsError> {
        Self::open_over(options, open_databases)
    }

    /// Uses the passwords and certificates of `resources` for sessions of databases that are opened from now on.
    ///
    /// # Errors
    /// What is wrong with those of one of them, by its name; that one stays as it was.
    pub fn renew(&self, resources: &[ResourceSettings]) -> Result<(), TransactionsError> {
        for named in &self.databases {
            let Some(resource) = resources.iter().find(|it| *it.name == *named.name) else { continue };
            let renewed = named.database.renew(&options_of(resource, &self.node));
            renewed.map_err(|error| Setting(format!("resource.{}: {error}", named.name)))?;
        }
        Ok(())
    }

    /// As [`Transactions::open`], over databases that are made by `open_databases`.
    pub(crate) fn open_over(
        options: TransactionsOptions<'_>,
        open_databases: impl FnOnce(&Settings, &NodeName) -> Result<Databases, TransactionsError>,
    ) -> Result<Arc<Self>, TransactionsError> {
        let TransactionsOptions { store, settings, clock, vfs } = options;
        let dir = settings.dir.join(FOLDER);
        let keeps = settings.engine == Engine::Log;
        if let (false, Some(resource)) = (keeps, settings.resources.first()) {
            return Err(Setting(format!(
                "resource.{}: databases take part with engine = log only: {} keeps no decisions",
                resource.name, settings.engine
            )));
        }
        if let (false, Some(resource)) =
            (settings.durability == Durability::Always, settings.resources.first())
        {
            return Err(Setting(format!(
                "resource.{}: databases take part with durability = always only: keys that are prepared must survive what \
                 the databases survive",
                resource.name
            )));
        }
        let has_log = keeps && (!settings.resources.is_empty() || vfs.list(&dir).is_ok());
        let node = node_name(settings, has_log.then_some((&*vfs, &*dir)))?;
        let (log, started) = open_log(settings, &node, has_log.then_some(dir), &vfs, &clock)?;
        let keys = Keys::new(store, node.clone());
        keys.tell_foreign();
        let (databases, drivers) = open_databases(settings, &node)?;
        let mut resources: Vec<Arc<dyn Resource>> = vec![Arc::clone(&keys) as Arc<dyn Resource>];
        resources.extend(databases.iter().map(|named| Arc::clone(&named.database) as Arc<dyn Resource>));
        let (epoch, starts_until) = (started.epoch, clock.now() + settings.txn_start_wait);
        let coordinator = Coordinator::start(
            clock,
            log,
            &started,
            resources,
            Options {
                node: node.clone(),
                timing: Timing { keep: settings.txn_keep, ..Timing::default() },
                transactions_max: settings.txn_transactions_max as u64,
                recovery_interval: settings.txn_recovery_interval,
                safety_interval: settings.txn_safety_interval,
            },
        )
        .map_err(|error| System(error.to_string()))?;
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), keys, peers: OnceLock::new() });
        let hears = Arc::clone(&shared);
        let told = move |tx, outcome| hears.told(tx, outcome);
        let host: Arc<dyn LaneHost> = match &drivers {
            Some(drivers) => Arc::clone(drivers) as _,
            None => Arc::new(LaneThread::default()),
        };
        let lane = SharedLane::open(host, &coordinator, told)
            .map_err(|error| System(format!("no thread for transactions: {error}")))?;
        let log = if has_log { settings.txn_log.to_string() } else { "none".to_owned() };
        Ok(Arc::new(Self {
            node,
            epoch,
            log,
            databases,
            lane,
            coordinator,
            _drivers: drivers,
            shared,
            starts_until,
        }))
    }
}

type Log = Arc<dyn DecisionLog>;

fn open_log(
    settings: &Settings,
    node: &NodeName,
    dir: Option<PathBuf>,
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
) -> Result<(Log, Started), TransactionsError> {
    fn opened<L: DecisionLog + 'static>(log: Opened<L>) -> (Log, Started) {
        (log.log, Started { epoch: log.epoch, born: log.born, records: log.records })
    }
    let Some(dir) = dir else {
        // Identifiers must differ from those of the start before: the clock, in seconds, does.
        let epoch = first_epoch(&**clock);
        // What is prepared all the same is of a server that had a log.
        return Ok(opened(Opened { born: epoch, ..Volatile::open(node, epoch) }));
    };
    let dir = dir.join(DECISIONS);
    refuse_another_log(settings, &**vfs, &dir)?;
    let log = match settings.txn_log {
        TxnLog::Journal => {
            let options = journal::Options {
                segment_size_bytes: SEGMENT_BYTES,
                reserve_segments: 1,
                ..journal::Options::default()
            };
            JournalLog::open(Arc::clone(vfs), Arc::clone(clock), &dir, node, options).map(opened)
        }
        TxnLog::File => {
            FileLog::open(Arc::clone(vfs), &**clock, &dir, node, txn::decision_log::file::Options::default())
                .map(opened)
        }
    };
    log.map_err(|error| {
        Folder(format!("the decisions of transactions in {} (txn.log, txn.node): {error}", dir.display()))
    })
}

/// Decisions of the other kind of log would not be read.
fn refuse_another_log(settings: &Settings, vfs: &dyn Vfs, dir: &Path) -> Result<(), TransactionsError> {
    let (theirs, its) = match settings.txn_log {
        TxnLog::Journal => (TxnLog::File, "NODE"),
        TxnLog::File => (TxnLog::Journal, "MANIFEST"),
    };
    match vfs.list(dir) {
        Ok(names) if names.iter().any(|name| name.starts_with(its)) => Err(Setting(format!(
            "txn.log = {}: the decisions in {} are kept as {theirs}, from the first start on: set it to that",
            settings.txn_log,
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// What the settings say, what the folder says, or a new one, which the folder keeps.
fn node_name(settings: &Settings, folder: Option<(&dyn Vfs, &Path)>) -> Result<NodeName, TransactionsError> {
    let failed =
        |error: io::Error| Folder(format!("the name of this server for transactions (txn.node): {error}"));
    if let Some(node) = &settings.txn_node.0 {
        return Ok(node.clone());
    }
    if let Some((vfs, dir)) = folder
        && let Some(text) = read_name(vfs, dir).map_err(failed)?
    {
        let wrong = |error| Folder(format!("{}: {error}", dir.join(NAME).display()));
        return NodeName::new(text.trim()).map_err(wrong);
    }
    let random = RandomState::new().build_hasher().finish();
    let node = NodeName::new(&format!("n{random:016x}")).map_err(|error| System(error.to_string()))?;
    if let Some((vfs, dir)) = folder {
        write_name(vfs, dir, node.as_str()).map_err(failed)?;
    }
    Ok(node)
}

fn read_name(vfs: &dyn Vfs, dir: &Path) -> io::Result<Option<String>> {
    let file = match vfs.open(&dir.join(NAME), OpenOptions::default()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = [0; NAME_BYTES_MAX];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(Some(String::from_utf8_lossy(&bytes[..len]).into_owned()))
}

fn write_name(vfs: &dyn Vfs, dir: &Path, name: &str) -> io::Result<()> {
    vfs.create_dir_all(dir)?;
    let (temporary, path) = (dir.join("name.tmp"), dir.join(NAME));
    match vfs.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file =
        vfs.open(&temporary, OpenOptions { write: true, create_new: true, ..OpenOptions::default() })?;
    let mut done = 0;
    while done < name.len() {
        match file.write_at(&name.as_bytes()[done..], done as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => done += written,
        }
    }
    file.sync_data()?;
    vfs.rename(&temporary, &path)?;
    vfs.sync_dir(dir)?;
    dir.parent().map_or(Ok(()), |above| vfs.sync_dir(above))
}

fn options_of(resource: &ResourceSettings, node: &NodeName) -> DatabaseOptions {
    DatabaseOptions {
        name: resource.name.clone(),
        url: resource.url.clone(),
        tls: resource.tls.clone(),
        node: node.clone(),
        sessions_max: resource.sessions_max,
        auth: resource.auth,
        connect_timeout: resource.connect_timeout,
        statement_timeout: resource.statement_timeout,
    }
}

/// The databases, and where their drivers run, if they have any.
pub(crate) type Databases = (Vec<Named>, Option<Arc<Drivers>>);

fn open_databases(settings: &Settings, node: &NodeName) -> Result<Databases, TransactionsError> {
    if settings.resources.is_empty() {
        return Ok((Vec::new(), None));
    }
    let drivers = Drivers::start().map_err(|error| System(format!("no thread for databases: {error}")))?;
    let open = |resource: &ResourceSettings| {
        let options = options_of(resource, node);
        let database = match resource.kind {
            ResourceKind::Postgres => Postgres::start(&options, &drivers)
                .map(|it| it as Arc<dyn Database>)
                .map_err(|error| error.to_string()),
            ResourceKind::MariaDb => MariaDb::start(options, &drivers)
                .map(|it| it as Arc<dyn Database>)
                .map_err(|error| error.to_string()),
        };
        let database = database.map_err(|error| Setting(format!("resource.{}: {error}", resource.name)))?;
        Ok(Named { name: resource.name.as_str().into(), kind: resource.kind, database })
    };
    let databases = settings.resources.iter().map(open).collect::<Result<Vec<_>, TransactionsError>>()?;
    Ok((databases, Some(drivers)))
}

const FOLDER: &str = "txn";
const DECISIONS: &str = "decisions";
const NAME: &str = "name";
/// More than a name has, so that one that is too long is seen to be.
const NAME_BYTES_MAX: usize = 128;
/// Decisions are some hundred bytes each, and go when all have carried them out.
const SEGMENT_BYTES: u64 = 16 << 20;
