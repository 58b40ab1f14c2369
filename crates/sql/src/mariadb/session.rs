//! A session of the server, and the steps of XA on it.
//!
//! The driver's connection is used without its pool, which resets sessions: a reset of a session that holds a prepared branch makes its
//! XA COMMIT a lie. Without the pool the driver sends COM_RESET_CONNECTION and COM_CHANGE_USER only when told to, which nobody does.
//!
//! ```text
//!  connect -> id -> registered -> lock evk:HASH:ID   held until the server has torn the session down, branches included
//! ```
//!
//! Invariants
//!   1. A session that has its lock is registered: the lock of an identifier that is registered is not that of an earlier session. A server
//!      that restarts gives identifiers again: the younger session stays registered when the older one is dropped.
//!   2. A session whose answer did not come, or was not understood, is asked nothing more.
//!
//! Out of scope: who has which session (`pool`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, Value, from_row_opt};

use super::statement;
use super::xid::Xid;
use crate::error::AddressError::{self, Conflict, HasTls, Malformed};
use crate::error::StartError;
use crate::tls::{Tls, is_loopback, refuse_in_address};
use crate::{Answered, DatabaseOptions, Statement};
use txn::resource::Unready;

/// What all sessions of a database have in common.
pub(super) struct Server {
    /// How the next session is opened.
    login: Mutex<(Opts, Tls)>,
    /// Told apart from those of other nodes and databases by this, in hexadecimal.
    mark: String,
    /// Identifiers of the sessions that are here, and how many have each.
    live: Mutex<HashMap<u64, usize>>,
    pub(super) connect_timeout: Duration,
    pub(super) statement_timeout: Duration,
}

/// A session.
pub(super) struct Session {
    conn: Conn,
    pub(super) id: u64,
    server: Arc<Server>,
    /// Nothing was left in it that the next branch would meet.
    pub(super) is_clean: bool,
    /// An answer is outstanding, or was not understood: the next would be taken for it.
    is_behind: bool,
    /// `LAST_INSERT_ID()` may tell of the branch before.
    has_insert_id: bool,
}

/// Why a step came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server said no, and its session goes on.
    Refused(u16, String),
    /// Nobody knows what became of it; the session is not to be used again.
    Lost(String),
}

impl Server {
    /// The server that `options` lead to.
    ///
    /// # Errors
    /// [`StartError`].
    pub(super) fn new(options: &DatabaseOptions) -> Result<Self, StartError> {
        let DatabaseOptions { name, node, connect_timeout, statement_timeout, .. } = options;
        let login = Mutex::new(Self::login(options)?);
        let mark = format!("{:016x}", fnv(format!("{node} {name}").as_bytes()));
        let (connect_timeout, statement_timeout) = (*connect_timeout, *statement_timeout);
        Ok(Self { login, mark, live: Mutex::default(), connect_timeout, statement_timeout })
    }

    /// Opens sessions as `options` say from now on.
    ///
    /// # Errors
    /// [`StartError`]; nothing has changed then.
    pub(super) fn renew(&self, options: &DatabaseOptions) -> Result<(), StartError> {
        let login = Self::login(options)?;
        *self.login.lock().unwrap_or_else(PoisonError::into_inner) = login;
        Ok(())
    }

    fn login(options: &DatabaseOptions) -> Result<(Opts, Tls), StartError> {
        let DatabaseOptions { name, url, tls, .. } = options;
        let no = |why: AddressError| StartError::Address {
            name: name.clone(),
            system: "MariaDB",
            form: FORM,
            why,
        };
        let opts = address(url).map_err(no)?;
        let is_here = opts.socket().is_some() || is_loopback(opts.ip_or_hostname());
        let tls = Tls::new(tls, is_here).map_err(|why| StartError::Tls { name: name.clone(), why })?;
        if opts.socket().is_some() {
            tls.refuse_socket().map_err(no)?;
        }
        if !tls.is_on() && opts.socket().is_none() && (opts.enable_cleartext_plugin() || !opts.secure_auth())
        {
            return Err(no(Conflict("it lets the server have the password in plain text, or as good as that (enable_cleartext_plugin, secure_auth), \
                           over a connection without TLS"
                .to_owned())));
        }
        let secret = tls.mariadb(opts.ip_or_hostname());
        let opts = OptsBuilder::from_opts(opts)
            .ssl_opts(secret)
            // The socket that a server names is one of its own machine, which may be another.
            .prefer_socket(Some(false))
            .tcp_keepalive(Some(KEEPALIVE))
            // Else the server says how much it may send at once.
            .max_allowed_packet(Some(PACKET_BYTES_MAX))
            .wait_timeout(Some(0));
        Ok((opts.into(), tls))
    }

    /// A connection that holds no lock: for questions, never for branches.
    ///
    /// # Errors
    /// What happened, and what that means for whoever wants a branch.
    pub(super) async fn connect(&self) -> Result<Conn, (Trouble, Unready)> {
        let later = |trouble: Trouble| {
            let unready = Unready::Retry(trouble.text().to_owned());
            (trouble, unready)
        };
        within(self.connect_timeout, async { Ok(self.dial().await) }).await.map_err(later)?
    }

    /// As [`Self::connect`], however long it takes. A login that is refused, or TLS that is not had, is a matter of settings.
    async fn dial(&self) -> Result<Conn, (Trouble, Unready)> {
        let (opts, tls) = self.login.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Conn::new(opts).await.map_err(|error| match (Trouble::of(&error), tls.advice(&error)) {
            (Trouble::Lost(why), Some(advice)) => {
                let text = format!("{why}; {advice}");
                (Trouble::Lost(text.clone()), Unready::Setting(text))
            }
            (trouble, _) => {
                let text = trouble.text().to_owned();
                let is_refused = LOGIN_REFUSED.iter().any(|code| trouble.is(*code));
                let unready = if is_refused { Unready::Setting(text) } else { Unready::Retry(text) };
                (trouble, unready)
            }
        })
    }

    /// Name of the lock by which session `id` is known to live; a name without it is a prefix of all.
    pub(super) fn lock(&self, id: impl std::fmt::Display) -> String {
        format!("evk:{}:{id}", self.mark)
    }

    /// Whether a session of this identifier lives in this process.
    pub(super) fn has(&self, id: u64) -> bool {
        self.live().contains_key(&id)
    }

    fn register(&self, id: u64) {
        *self.live().entry(id).or_default() += 1;
    }

    fn forget(&self, id: u64) {
        if let Entry::Occupied(mut count) = self.live().entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<u64, usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Connects.
    pub(super) async fn open(server: &Arc<Server>) -> Result<Self, Trouble> {
        within(server.connect_timeout, Self::connect(server)).await?
    }

    async fn connect(server: &Arc<Server>) -> mysql_async::Result<Result<Self, Trouble>> {
        let mut conn = match server.dial().await {
            Ok(conn) => conn,
            Err((trouble, _)) => return Ok(Err(trouble)),
        };
        let lost = |what: &str| Ok(Err(Trouble::Lost(what.to_owned())));
        let Some(id) = first::<u64>(&mut conn, "SELECT CONNECTION_ID()").await? else {
            return lost("the server gave no connection identifier");
        };
        server.register(id);
        let mut session = Self {
            conn,
            id,
            server: Arc::clone(server),
            is_clean: true,
            is_behind: false,
            has_insert_id: false,
        };
        let lock = format!("SELECT GET_LOCK('{}', 0)", server.lock(id));
        match first::<Option<u8>>(&mut session.conn, &lock).await?.flatten() {
            Some(1) => Ok(Ok(session)),
            _ => lost("somebody else holds a lock that is ours"),
        }
    }

    /// Begins a branch, in which nothing is known of the one before.
    pub(super) async fn start(&mut self, xid: &Xid) -> Result<(), Trouble> {
        if std::mem::take(&mut self.has_insert_id) {
            return self.step(&format!("DO LAST_INSERT_ID(0); XA START {xid}")).await;
        }
        self.step(&format!("XA START {xid}")).await
    }

    /// Runs one or more commands of the protocol; the first that is refused ends it.
    pub(super) async fn step(&mut self, commands: &str) -> Result<(), Trouble> {
        self.ask(async |conn| Ok(conn.query_drop(commands).await?)).await.map_err(Wrong::into_trouble)
    }

    /// How many rows this session has inserted, changed or deleted since it began, temporary tables included.
    pub(super) async fn writes(&mut self) -> Result<u64, Trouble> {
        let count = self.ask(async |conn| Ok(first::<Option<f64>>(conn, WRITES).await?)).await;
        let count = count.map_err(Wrong::into_trouble)?.flatten();
        count.map(|count| count as u64).ok_or_else(|| Trouble::Lost("the server counts nothing".to_owned()))
    }

    /// Runs a statement of an application.
    ///
    /// # Errors
    /// [`Wrong`].
    pub(super) async fn run(&mut self, statement: Statement) -> Result<Answered, Wrong> {
        // `LAST_INSERT_ID(x)` sets it, too.
        self.has_insert_id |= statement::names_insert_id(&statement.text);
        let (answered, insert_id) = self.ask(async |conn| run(conn, statement).await).await?;
        self.has_insert_id |= insert_id.is_some_and(|id| id > 0);
        Ok(answered)
    }

    /// Asks something, and waits for the answer so long and no longer. A session whose answer did not come is asked nothing more: what comes
    /// late would be taken for the next answer.
    async fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&mut Conn) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        if self.is_behind {
            return Err(Wrong::Trouble(Trouble::Lost(
                "an earlier answer of its session is outstanding".to_owned(),
            )));
        }
        // Also if nobody waits any longer.
        self.is_behind = true;
        let limit = self.server.statement_timeout;
        let answer = tokio::time::timeout(limit, question(&mut self.conn)).await;
        let answer = answer.unwrap_or_else(|_| Err(Wrong::Trouble(Trouble::Lost(late(limit)))));
        self.is_behind = matches!(answer, Err(Wrong::Trouble(Trouble::Lost(_))));
        answer
    }
}

impl std::fmt::Debug for Server {
    /// Without the address, which has a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("mark", &self.mark).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.forget(self.id);
    }
}

/// Why a statement has no result.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It was not run.
    NotRun(String),
    /// It was, or may have been.
    Trouble(Trouble),
}

impl Wrong {
    fn into_trouble(self) -> Trouble {
        match self {
            Self::NotRun(why) => Trouble::Lost(why),
            Self::Trouble(trouble) => trouble,
        }
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Trouble(Trouble::of(&error))
    }
}

/// Runs a statement; its result, and the identifier that it gave to a row that it inserted.
async fn run(conn: &mut Conn, statement: Statement) -> Result<(Answered, Option<u64>), Wrong> {
    let prepared = conn.prep(statement.text).await?;
    let (wants, has) = (usize::from(prepared.num_params()), statement.parameters.len());
    if wants != has {
        return Err(Wrong::NotRun(format!("the statement has {wants} parameters, and {has} were given")));
    }
    let mut result = conn.exec_iter(prepared, statement::params(statement.parameters)).await?;
    let has_rows = !result.columns_ref().is_empty();
    let (mut rows, mut size) = (Vec::new(), 0);
    while has_rows && let Some(row) = result.next().await? {
        let (texts, bytes) = statement::texts(row);
        size += bytes;
        if size > RESULT_BYTES_MAX {
            let text = format!(
                "its result has more than {RESULT_BYTES_MAX} B, the most that are taken: use LIMIT, or read long values in parts"
            );
            return Err(Wrong::Trouble(Trouble::Lost(text)));
        }
        rows.push(texts);
    }
    let (changed, insert_id) = (result.affected_rows(), result.last_insert_id());
    // A procedure may return more: what it returned first is its result.
    result.drop_result().await?;
    Ok((if has_rows { Answered::Rows(rows) } else { Answered::Changed(changed) }, insert_id))
}

impl Trouble {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Server(server) if !DYING.contains(&server.code) => {
                Self::Refused(server.code, format!("{} ({})", server.message, server.code))
            }
            Error::Server(server) => Self::Lost(format!("{} ({})", server.message, server.code)),
            Error::Io(error) => Self::Lost(of_connection(&error.to_string())),
            other => Self::Lost(other.to_string()),
        }
    }

    pub(super) fn text(&self) -> &str {
        let (Self::Refused(_, text) | Self::Lost(text)) = self;
        text
    }

    /// Whether the server answered with this error.
    pub(super) fn is(&self, code: u16) -> bool {
        matches!(self, Self::Refused(it, _) if *it == code)
    }
}

/// What is told of trouble with a connection. The driver calls its own limit by the name that a setting of the server has.
fn of_connection(trouble: &str) -> String {
    if trouble.contains("larger than max_allowed_packet") {
        return format!(
            "a packet of its answer has more than {PACKET_BYTES_MAX} B, the most that are taken: read long values in parts"
        );
    }
    trouble.to_owned()
}

/// All rows of an answer. A row that is not what was asked for is an error.
pub(super) async fn all<T: FromRow>(conn: &mut Conn, question: &str) -> mysql_async::Result<Vec<T>> {
    let mut result = conn.query_iter(question).await?;
    let (mut all, mut size_bytes) = (Vec::new(), 0);
    while let Some(row) = result.next().await? {
        size_bytes += row_bytes(&row);
        if size_bytes > RESULT_BYTES_MAX {
            let text = format!("it answered with more than {RESULT_BYTES_MAX} B, the most that are taken");
            return Err(Error::Other(text.into()));
        }
        all.push(from_row_opt::<T>(row).map_err(|error| Error::Other(error.into()))?);
    }
    result.drop_result().await?;
    Ok(all)
}

/// What a row takes in memory, about.
fn row_bytes(row: &Row) -> usize {
    let value = |at| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    (0..row.len()).map(|at| VALUE_BYTES + value(at)).sum()
}

/// The first row of an answer.
pub(super) async fn first<T: FromRow>(conn: &mut Conn, question: &str) -> mysql_async::Result<Option<T>> {
    Ok(all::<T>(conn, question).await?.into_iter().next())
}

/// Waits for an answer, so long and no longer.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = mysql_async::Result<T>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error| Trouble::of(&error)),
        Err(_) => Err(Trouble::Lost(late(limit))),
    }
}

fn late(limit: Duration) -> String {
    format!("no answer within {limit:?}")
}

/// Where `url` leads.
///
/// # Errors
/// It leads nowhere, or says how to get there: the driver's words for TLS have no place in it.
fn address(url: &str) -> Result<Opts, AddressError> {
    refuse_in_address(url)?;
    // Rest of the address may hold a password: it is not shown.
    let rest = url.strip_prefix("mariadb://").or_else(|| url.strip_prefix("mysql://"));
    let neither = || Malformed("it begins with neither mysql:// nor mariadb://".to_owned());
    let rest = rest.ok_or_else(neither)?;
    let opts = Opts::from_url(&format!("mysql://{rest}")).map_err(|error| Malformed(error.to_string()))?;
    match opts.ssl_opts() {
        Some(_) => Err(HasTls("require_ssl".to_owned())),
        None => Ok(opts),
    }
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What an address looks like.
const FORM: &str = "mysql://USER:PASSWORD@HOST:PORT/DATABASE";
/// XAER_NOTA: the identifier is unknown, or a session holds it.
pub(super) const NOTA: u16 = 1397;
/// XAER_RMFAIL: not in this state.
pub(super) const RMFAIL: u16 = 1399;
/// XA_RBROLLBACK: it was rolled back.
pub(super) const RBROLLBACK: u16 = 1402;
/// XA_RBTIMEOUT, XA_RBDEADLOCK: the same.
pub(super) const RBTIMEOUT: u16 = 1613;
/// See above.
pub(super) const RBDEADLOCK: u16 = 1614;
/// There is no such session.
pub(super) const NO_SUCH_THREAD: u16 = 1094;

/// Errors of a session that ends: shutdown, trouble of the network, interrupted, killed.
const DYING: [u16; 9] = [1053, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927];
/// No such user or database, or not with this password: ER_DBACCESS_DENIED, ER_ACCESS_DENIED, ER_BAD_DB, ER_ACCESS_DENIED_NO_PASSWORD.
const LOGIN_REFUSED: [u16; 4] = [1044, 1045, 1049, 1698];
const WRITES: &str = "SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS \
     WHERE VARIABLE_NAME IN ('HANDLER_WRITE', 'HANDLER_UPDATE', 'HANDLER_DELETE')";
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Most bytes that a server sends at once, or is sent: a statement with its parameters, a row.
const PACKET_BYTES_MAX: usize = 64 << 20;
/// What a value takes beside its bytes.
const VALUE_BYTES: usize = 32;
/// Largest result of a statement, in memory.
pub(super) const RESULT_BYTES_MAX: usize = 16 << 20;
