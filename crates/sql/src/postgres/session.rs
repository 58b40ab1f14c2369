//! A connection to PostgreSQL, and every statement of the protocol.
//!
//! Invariants
//!   1. A session that was let go clean has no transaction, no lock, no temporary table and no setting of what ran in it.
//!   2. What makes a branch durable runs with `synchronous_commit` on, as the role that connected, and without the server's
//!      time-out: a server that gives up waiting for its standby says that the commit was made.
//!   3. What is not in a transaction that was begun here writes nothing: it would be read-only.
//!   4. Every wait ends.
//!
//! ```text
//!  BEGIN READ WRITE; SET LOCAL statement_timeout -.- both are sent before either is answered
//!  the first statement ---------------------------'
//!  SET CONSTRAINTS ALL IMMEDIATE; RESET ALL; EXECUTE evenkeel_settle; PREPARE TRANSACTION
//!                                                                          one message: the first that fails ends it
//! ```
//!
//! **Tags.** PostgreSQL answers `PREPARE TRANSACTION` and `COMMIT` in a transaction that has failed with the tag `ROLLBACK` and no error, and the
//! driver tells no tags. So statements of the same message go in front that fail in a transaction that has failed: then the server skips
//! the rest of the message, and says why. And a vote is given only for the tag `PREPARE TRANSACTION` (`tags`), or, where that was not seen,
//! if the server lists what was prepared. Nothing of an application's runs in between, as its deferred triggers were fired by the first
//! of them.
//!
//! Names of the catalogue are written out: a branch may have set `search_path`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::Stream;
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Config, Error, RowStream, SimpleQueryMessage};

use super::failure::{Failure, text};
use super::gate::Proof;
use super::guard::quote;
use super::tags::{Heard, Tap};
use super::value::{Raw, Text, decode, is_known};
use crate::tls::Tls;
use crate::{Answered, Statement};
use txn::resource::Unready;

/// A connection.
pub(super) struct Session {
    client: Client,
    connection: AbortHandle,
    /// To tell the server to stop something.
    tap: Tap,
    /// What the server said, where it is heard.
    heard: Arc<Heard>,
    /// It is being closed, so its end is no failure.
    closes: Arc<AtomicBool>,
    facts: Facts,
    limit: Duration,
    /// Statements of applications that the server has parsed, by their texts.
    parsed: Mutex<HashMap<String, tokio_postgres::Statement>>,
}

/// What a server says of itself.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) backend: Backend,
    /// Changes when the server starts again, also if only its processes did after one of them crashed.
    pub(super) incarnation: String,
    /// What `synchronous_commit` is to be.
    sync: String,
    /// The number of its database.
    database: String,
    /// Its transactions only read, unless they say otherwise: somebody wants that, and ours do not say otherwise.
    is_read_only: bool,
    /// Whether branches can be prepared there; if not, why.
    pub(super) ready: Result<(), Unready>,
}

/// A process of the server, never the same one twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backend {
    pid: String,
    started: String,
}

/// How a statement of an application ended that gave no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// It was not run: its transaction is as it was.
    NotRun(String),
    /// The server said no: its transaction only rolls back.
    Failed(String),
    /// Nobody reads what the connection says any more.
    Lost(String),
}

/// What a commit in one phase came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Committed {
    Yes,
    No(String),
    /// The connection broke; the transaction had this number.
    Unknown(String, Option<String>),
}

impl Session {
    /// Connects. `on_end` is dropped when the connection has ended; it is told first whether that was a failure.
    pub(super) async fn open(
        config: &Config,
        tls: &Tls,
        proof: Proof,
        limit: Duration,
        on_end: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Self, Unready> {
        let heard = Arc::default();
        let tap = Tap::new(tls.postgres(), proof, Arc::clone(&heard));
        let connected = config.connect(tap.clone()).await;
        let (client, connection) = connected.map_err(|error| unreached(&error, tls))?;
        let closes = Arc::new(AtomicBool::new(false));
        let is_asked = Arc::clone(&closes);
        let task = tokio::spawn(async move {
            let ended = connection.await;
            on_end(ended.is_err() || !is_asked.load(Ordering::Relaxed));
        });
        let mut session = Self {
            client,
            connection: task.abort_handle(),
            tap,
            heard,
            closes,
            facts: Facts::default(),
            limit,
            parsed: Mutex::default(),
        };
        let looked = look(&session.client).await;
        session.facts = looked.map_err(|failure| Unready::Retry(session.why(failure.text())))?;
        let named = session.client.batch_execute(&session.naming()).await;
        named.map_err(|error| Unready::Retry(session.why(text(&error))))?;
        Ok(session)
    }

    /// What the server says of itself now.
    pub(super) async fn look_again(&self) -> Result<Facts, Failure> {
        self.within(self.limit, look(&self.client)).await
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn connection(&self) -> &AbortHandle {
        &self.connection
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Ends it in order: nothing is under way.
    pub(super) fn close(self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Breaks it off, and has the server stop what is under way.
    pub(super) fn abandon(self) {
        tokio::spawn(cancel(self.client.cancel_token(), self.tap.clone(), self.limit));
    }

    /// Has the server stop what is under way; returns when it was told.
    pub(super) async fn cancel(&self) {
        cancel(self.client.cancel_token(), self.tap.clone(), self.limit).await;
    }

    /// Begins a transaction whose statements last at most the limit, and runs its first statement, which is sent right behind. If the
    /// first of the two fails, the second has written nothing.
    pub(super) async fn begin(
        &self,
        statement: &Statement,
    ) -> (Result<(), Failure>, Result<Answered, Unanswered>) {
        let limit_ms = self.limit.as_millis().clamp(1, i32::MAX as u128);
        let mode = if self.facts.is_read_only { "" } else { " READ WRITE" };
        let begin = format!("BEGIN{mode}; SET LOCAL statement_timeout TO {limit_ms}");
        tokio::join!(biased; self.execute(&begin), self.run(statement))
    }

    /// Runs a statement of an application.
    pub(super) async fn run(&self, statement: &Statement) -> Result<Answered, Unanswered> {
        // The server's own limit comes first: then the connection can be used again.
        let most = self.limit + LATE;
        let late = |_| Err(Unanswered::Lost(format!("no answer within {} ms", most.as_millis())));
        let answered = tokio::time::timeout(most, self.try_run(statement)).await.unwrap_or_else(late);
        answered.map_err(|unanswered| match unanswered {
            Unanswered::Lost(why) => Unanswered::Lost(self.why(why)),
            other => other,
        })
    }

    /// What was refused of what the server sent, which ended the connection.
    pub(super) fn refused(&self) -> Option<String> {
        self.heard.refused.get().map(ToString::to_string)
    }

    /// Why the connection is lost, of which the driver says `why`.
    fn why(&self, why: String) -> String {
        self.refused().unwrap_or(why)
    }

    async fn try_run(&self, statement: &Statement) -> Result<Answered, Unanswered> {
        let (prepared, was_known) = self.parsed(&statement.text).await?;
        let (given, wanted) = (statement.parameters.len(), prepared.params().len());
        if given != wanted {
            return Err(Unanswered::NotRun(format!("{given} parameters for a statement that has {wanted}")));
        }
        if let Some(column) = prepared.columns().iter().find(|column| !is_known(column.type_())) {
            let (name, kind) = (column.name(), column.type_());
            return Err(Unanswered::NotRun(format!(
                "column {name:?} has type {kind}, which is not told as it is: write {name}::text"
            )));
        }
        let parameters = statement.parameters.iter().map(|value| Text(value.as_deref()));
        let answered = async {
            let mut rows = std::pin::pin!(self.client.query_raw(&prepared, parameters).await?);
            let answer = read_all(rows.as_mut()).await?;
            Ok((answer, rows.rows_affected()))
        };
        let (answer, affected) = answered.await.inspect_err(|_: &Unanswered| {
            // What it was parsed for may not be any more: a column has another type, a table is another one.
            if was_known {
                self.known().remove(&statement.text);
            }
        })?;
        if prepared.columns().is_empty() {
            return Ok(Answered::Changed(affected.unwrap_or(0)));
        }
        Ok(Answered::Rows(answer))
    }

    /// A statement, parsed now or for an earlier branch, and whether it was before: most applications run the same few.
    async fn parsed(&self, text: &str) -> Result<(tokio_postgres::Statement, bool), Error> {
        if let Some(known) = self.known().get(text) {
            return Ok((known.clone(), true));
        }
        let parsed = self.client.prepare(text).await?;
        let mut known = self.known();
        if known.len() >= PARSED_MAX {
            known.clear();
        }
        if text.len() <= PARSED_BYTES_MAX {
            known.insert(text.to_owned(), parsed.clone());
        }
        Ok((parsed, false))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, tokio_postgres::Statement>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the transaction has changed anything.
    pub(super) async fn has_written(&self) -> Result<bool, Failure> {
        Ok(self.value(NUMBER).await?.is_some())
    }

    /// Prepares the transaction as `id`; whether it is prepared now. Then the session is clean: a transaction that was prepared has left no
    /// temporary table and no cursor, as the server prepares none that would, and the rest was taken away before.
    pub(super) async fn prepare(&self, id: &str) -> Result<bool, Failure> {
        let before = self.heard.prepared.load(Ordering::Relaxed);
        self.execute(&format!("{FIRE}; {SETTLE}; {FORGET}; PREPARE TRANSACTION {}", quote(id))).await?;
        if self.heard.prepared.load(Ordering::Relaxed) > before {
            return Ok(true);
        }
        // What the server did is not known until it is found: a refusal to look refuses no more than that.
        self.is_prepared(id).await.map_err(|failure| Failure::Lost(failure.text()))
    }

    /// Commits the transaction; the second says whether the session is clean.
    pub(super) async fn commit(&self) -> (Committed, bool) {
        if self.is_closed() {
            return (Committed::No("its connection broke before it was asked to commit".to_owned()), false);
        }
        let number = format!("{NUMBER}; {SETTLE}");
        let mut known = None;
        let all = async {
            let number = async {
                let rows = self.client.simple_query(&number).await?;
                known = Some(first(&rows));
                Ok::<_, Error>(())
            };
            tokio::join!(
                biased;
                number,
                self.client.batch_execute("COMMIT"),
                self.client.batch_execute(CLEAN)
            )
        };
        let answered = tokio::time::timeout(self.limit, all).await;
        let Ok((number, committed, cleaned)) = answered else {
            return (unknown(self.late(self.limit).text(), known), false);
        };
        let committed = match (number, committed.map_err(Failure::from)) {
            // It had failed, or the server ended the connection, with a word: it has not come to the commit.
            (Err(error), _) if error.as_db_error().is_some() => Committed::No(text(&error)),
            (Err(error), _) => unknown(self.why(text(&error)), None),
            (Ok(()), Ok(())) => Committed::Yes,
            (Ok(()), Err(Failure::Refused(_, why))) => Committed::No(why),
            (Ok(()), Err(Failure::Lost(why))) => unknown(self.why(why), known),
        };
        (committed, cleaned.is_ok())
    }

    /// Rolls the transaction back; whether that was done, and the session is clean.
    pub(super) async fn rollback(&self) -> bool {
        let both = async {
            let (rolled_back, cleaned) = tokio::join!(
                biased;
                self.client.batch_execute("ROLLBACK"),
                self.client.batch_execute(CLEAN)
            );
            rolled_back.is_ok() && cleaned.is_ok()
        };
        tokio::time::timeout(self.limit, both).await.unwrap_or(false)
    }

    /// Commits or rolls back what is prepared as `id`; whether it was there. What another database has under this name is not there
    /// to be rolled back, and who was told to commit it looks in the wrong place.
    pub(super) async fn finish(&self, id: &str, commits: bool) -> Result<bool, Failure> {
        let word = if commits { "COMMIT" } else { "ROLLBACK" };
        let finish = format!("{word} PREPARED {}", quote(id));
        match self.execute(&finish).await {
            Ok(()) => Ok(true),
            Err(Failure::Refused(SqlState::UNDEFINED_OBJECT, _)) => Ok(false),
            Err(Failure::Refused(SqlState::FEATURE_NOT_SUPPORTED, _)) if !commits => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Whether something is prepared as `id`.
    pub(super) async fn is_prepared(&self, id: &str) -> Result<bool, Failure> {
        let database = &self.facts.database;
        let listed = format!("{LISTED} WHERE gid = {} AND dbid = {database}", quote(id));
        Ok(self.value(&listed).await?.is_some())
    }

    /// Whether something is prepared as `id`, and whether this user may end it: whose it is, or a superuser.
    pub(super) async fn is_prepared_and_ours(&self, id: &str) -> Result<Option<bool>, Failure> {
        let look = format!(
            "SELECT found.ownerid = own.oid OR own.rolsuper FROM pg_catalog.pg_prepared_xact() AS found, \
             pg_catalog.pg_roles AS own WHERE gid = {} AND dbid = {} AND own.rolname = current_user",
            quote(id),
            self.facts.database
        );
        Ok(self.value(&look).await?.map(|ours| ours == "t"))
    }

    /// What is prepared under names of `node`, in any database of the server, and whether this user may end it. Of another database's
    /// that is not said.
    pub(super) async fn prepared_by(&self, node: &str) -> Result<Vec<(String, bool)>, Failure> {
        let look = format!(
            "SELECT gid, dbid <> {} OR found.ownerid = own.oid OR own.rolsuper FROM pg_catalog.pg_prepared_xact() AS found, \
             pg_catalog.pg_roles AS own WHERE own.rolname = current_user AND pg_catalog.starts_with(gid, {})",
            self.facts.database,
            quote(&format!("evk_{node}_"))
        );
        let rows = self.rows(&look).await?;
        let found = rows.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?.to_owned(), row.get(1) == Some("t"))),
            _ => None,
        });
        Ok(found.collect())
    }

    /// What is prepared in this database, and since when, in milliseconds of Unix time.
    pub(super) async fn prepared(&self) -> Result<Vec<(String, Option<u64>)>, Failure> {
        let rows = self.rows(ALL_PREPARED).await?;
        let found = rows.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((row.get(0)?.to_owned(), row.get(1).and_then(|ms| ms.parse().ok())))
            }
            _ => None,
        });
        Ok(found.collect())
    }

    /// What became of a transaction: `committed`, `aborted` or `in progress`; `None`: the server does not know any more.
    pub(super) async fn status(&self, number: &str) -> Result<Option<String>, Failure> {
        self.value(&format!("SELECT pg_catalog.pg_xact_status({}::pg_catalog.xid8)", quote(number))).await
    }

    /// Whether a process of the server is gone; if not, it is told to go.
    pub(super) async fn ends(&self, backend: &Backend) -> Result<bool, Failure> {
        let Backend { pid, started } = backend;
        // Of a process that this user may not see, its start is not told: then it is not said to be gone.
        let end = format!("{END} pid = {pid} AND coalesce({STARTED} = {}, true)", quote(started));
        Ok(self.value(&end).await?.is_none())
    }

    async fn execute(&self, statement: &str) -> Result<(), Failure> {
        self.within(self.limit, async { Ok(self.client.batch_execute(statement).await?) }).await
    }

    /// The first value of a query's first row.
    async fn value(&self, query: &str) -> Result<Option<String>, Failure> {
        Ok(first(&self.rows(query).await?))
    }

    async fn rows(&self, query: &str) -> Result<Vec<SimpleQueryMessage>, Failure> {
        self.within(self.limit, simple(&self.client, query)).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let done = tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(self.late(limit)));
        done.map_err(|failure| match failure {
            Failure::Lost(why) => Failure::Lost(self.why(why)),
            refused @ Failure::Refused(..) => refused,
        })
    }

    #[expect(clippy::unused_self, reason = "reads as what happened to this session")]
    fn late(&self, limit: Duration) -> Failure {
        Failure::Lost(format!("no answer within {} ms", limit.as_millis()))
    }

    /// Names what is asked for each branch, so that the server parses and plans it once for a session: it takes longer than to
    /// answer.
    ///
    /// `evenkeel_settle` says what a branch is made durable under, whatever its statements have set, and takes away what
    /// `RESET ALL` leaves. It is no `DISCARD ALL`: what was prepared by name is the driver's or ours (`guard`).
    fn naming(&self) -> String {
        let sync = &self.facts.sync;
        format!(
            "PREPARE evenkeel_number AS SELECT pg_catalog.pg_current_xact_id_if_assigned();
             PREPARE evenkeel_settle AS SELECT
                pg_catalog.set_config('session_authorization', NULL, false),
                pg_catalog.set_config('role', 'none', false),
                pg_catalog.set_config('statement_timeout', '0', false),
                pg_catalog.set_config('synchronous_commit', '{sync}', false),
                pg_catalog.set_config('default_transaction_read_only', 'on', false),
                pg_catalog.pg_advisory_unlock_all();
             EXECUTE evenkeel_settle"
        )
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.closes.load(Ordering::Relaxed) {
            self.connection.abort();
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Default for Facts {
    fn default() -> Self {
        let ready = Err(Unready::Retry("it was not asked yet".to_owned()));
        Self {
            backend: Backend::default(),
            incarnation: String::new(),
            sync: String::new(),
            database: String::new(),
            is_read_only: false,
            ready,
        }
    }
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        match Failure::from(error) {
            Failure::Refused(_, why) => Self::Failed(why),
            Failure::Lost(why) => Self::Lost(why),
        }
    }
}

async fn look(client: &Client) -> Result<Facts, Failure> {
    client.batch_execute(SETUP).await?;
    let rows = simple(client, FACTS).await?;
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let value = |at| row.and_then(|row| row.get(at)).unwrap_or_default().to_owned();
    let is_standby = value(5) == "t";
    let ready = if value(4).parse::<u32>().is_ok_and(|version| version < VERSION_LEAST) {
        Err(Unready::Setting(format!("its version is {}, and 13 is the oldest that can take part", value(4))))
    } else if is_standby {
        // It may be made the primary.
        Err(Unready::Retry("it is a standby, which only reads: give the address of the primary".to_owned()))
    } else if value(2) == "0" {
        Err(Unready::Setting(
            "it prepares no transactions, as max_prepared_transactions is 0: set it to at least the number of \
             transactions at a time (100, say) in postgresql.conf, and restart the server"
                .to_owned(),
        ))
    } else if value(3) != "on" {
        let why = "it runs with fsync = off, so that no vote would survive a crash: set it to on";
        Err(Unready::Setting(why.to_owned()))
    } else {
        Ok(())
    };
    let backend = Backend { pid: value(0), started: value(1) };
    let is_read_only = value(9) == "on";
    Ok(Facts { backend, incarnation: value(6), sync: value(7), database: value(8), is_read_only, ready })
}

/// What one or more statements of the protocol return. Those return little: what is more is not from a PostgreSQL.
async fn simple(client: &Client, query: &str) -> Result<Vec<SimpleQueryMessage>, Failure> {
    let mut messages = std::pin::pin!(client.simple_query_raw(query).await?);
    let (mut all, mut size_bytes) = (Vec::new(), 0);
    while let Some(message) = std::future::poll_fn(|context| messages.as_mut().poll_next(context)).await {
        let message = message?;
        size_bytes += size_of_val(&message);
        if let SimpleQueryMessage::Row(row) = &message {
            let values = (0..row.len()).map(|at| row.get(at).map_or(0, str::len) + ROW_OVERHEAD_BYTES);
            size_bytes += values.sum::<usize>();
        }
        if size_bytes > OWN_RESULT_BYTES_MAX {
            return Err(Failure::Lost(format!(
                "it answered with more than {OWN_RESULT_BYTES_MAX} B, the most that are taken"
            )));
        }
        all.push(message);
    }
    Ok(all)
}

/// Reads all rows, at most so many.
async fn read_all(mut rows: Pin<&mut RowStream>) -> Result<Vec<Vec<Option<Vec<u8>>>>, Unanswered> {
    let (mut all, mut size_bytes) = (Vec::new(), 0);
    while let Some(row) = std::future::poll_fn(|context| rows.as_mut().poll_next(context)).await {
        let row = row?;
        size_bytes += row.raw_size_bytes() + ROW_OVERHEAD_BYTES * (1 + row.len());
        if all.len() >= ROWS_MAX || size_bytes > RESULT_BYTES_MAX {
            return Err(Unanswered::Lost(format!(
                "its result has more than {ROWS_MAX} rows or {RESULT_BYTES_MAX} bytes, the most that are taken: use LIMIT"
            )));
        }
        let mut values = Vec::with_capacity(row.len());
        for (at, column) in row.columns().iter().enumerate() {
            let Raw(raw) = row.try_get(at)?;
            let value = raw.map(|raw| decode(column.type_(), raw).ok_or(raw)).transpose();
            let no = |_| {
                Unanswered::Lost(format!("column {:?}: these bytes are no {}", column.name(), column.type_()))
            };
            values.push(value.map_err(no)?);
        }
        all.push(values);
    }
    Ok(all)
}

/// A commit that was not heard of, of a transaction whose number is known, known to be none, or not known.
fn unknown(why: String, number: Option<Option<String>>) -> Committed {
    match number {
        Some(None) => Committed::No(format!("{why}; it had changed nothing")),
        Some(number) => Committed::Unknown(why, number),
        None => Committed::Unknown(why, None),
    }
}

async fn cancel(token: CancelToken, tap: Tap, limit: Duration) {
    // A server that is not reached does nothing more for this session either.
    let _ = tokio::time::timeout(limit, token.cancel_query(tap)).await;
}

/// What went wrong with a connection, and what to change if it has to do with TLS.
pub(crate) fn advised(error: &Error, tls: &Tls) -> String {
    let advice = tls.advice(error).map_or(String::new(), |advice| format!("; {advice}"));
    format!("{}{advice}", text(error))
}

/// Why a connection was not made, and who can change that: a login that is refused, or TLS that is not had, is a matter of settings.
fn unreached(error: &Error, tls: &Tls) -> Unready {
    let is_refused = error.code().is_some_and(|code| LOGIN_REFUSED.contains(code));
    let why = advised(error, tls);
    if is_refused || tls.advice(error).is_some() { Unready::Setting(why) } else { Unready::Retry(why) }
}

/// The first value of the first row, if there is one and it is not NULL.
fn first(rows: &[SimpleQueryMessage]) -> Option<String> {
    let first = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    first.and_then(|row| row.get(0)).map(str::to_owned)
}

/// No such user or database, or not with this password.
const LOGIN_REFUSED: [SqlState; 3] = [
    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
    SqlState::INVALID_PASSWORD,
    SqlState::INVALID_CATALOG_NAME,
];
/// `remote_apply` waits for more than `on` does.
const SETUP: &str = "SET statement_timeout TO 0; SELECT pg_catalog.set_config('synchronous_commit',
    CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";
/// Statistics are begun anew when the server's processes are, after a crash of one.
const FACTS: &str = "SELECT pid, extract(epoch FROM backend_start)::text,
    pg_catalog.current_setting('max_prepared_transactions'), pg_catalog.current_setting('fsync'),
    pg_catalog.current_setting('server_version_num'), pg_catalog.pg_is_in_recovery(),
    pg_catalog.concat(pg_catalog.pg_postmaster_start_time(), ' ',
        (SELECT stats_reset FROM pg_catalog.pg_stat_bgwriter)),
    pg_catalog.current_setting('synchronous_commit'),
    datid,
    pg_catalog.current_setting('default_transaction_read_only')
FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()";
/// No row, or no value: nothing was written.
const NUMBER: &str = "EXECUTE evenkeel_number";
/// The view `pg_prepared_xacts` takes 0.3 ms, as it joins names that are not asked for; the function below it 0.03.
const LISTED: &str = "SELECT gid FROM pg_catalog.pg_prepared_xact()";
const ALL_PREPARED: &str = "SELECT gid, pg_catalog.trunc(extract(epoch FROM prepared) * 1000)::bigint
FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()";
const END: &str = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE";
const STARTED: &str = "extract(epoch FROM backend_start)::text";
const VERSION_LEAST: u32 = 130_000;
/// What was deferred to the end of the transaction runs now: nothing of an application's runs, or is set, behind it. A commit in one phase
/// goes without: should nobody hear of it, its number has to be known before what may take long.
const FIRE: &str = "SET CONSTRAINTS ALL IMMEDIATE";
/// Goes in front of what ends a transaction. Fails in a transaction that has failed.
const SETTLE: &str = "RESET ALL; EXECUTE evenkeel_settle";
/// What `currval` and `lastval` tell.
const FORGET: &str = "DISCARD SEQUENCES";
/// Takes away what other ends than a prepare may leave behind in a session. It goes behind the statement that ends a transaction, without a
/// wait of its own.
const CLEAN: &str =
    "CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES; UNLISTEN *; RESET ALL; EXECUTE evenkeel_settle";
/// So much later than the server's own limit a statement is given up.
const LATE: Duration = Duration::from_secs(1);
/// Most statements that a session keeps parsed, and the longest.
const PARSED_MAX: usize = 256;
const PARSED_BYTES_MAX: usize = 16 << 10;
/// Most rows of a result.
const ROWS_MAX: usize = 65_536;
/// Most bytes of a result, with what it takes in memory. A row is read whole before it is measured, as the driver has it.
const RESULT_BYTES_MAX: usize = 64 << 20;
const ROW_OVERHEAD_BYTES: usize = 24;
/// Most bytes of an answer to the protocol: a list of 50,000 branches that are prepared.
const OWN_RESULT_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
#[path = "../../tests/common/postgres.rs"]
mod common;

#[cfg(test)]
#[path = "../../tests/common/certificates.rs"]
mod certificates;

#[cfg(test)]
mod client_tests;
