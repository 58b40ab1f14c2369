//! A client: transfers one after the other, over the server, and where an application would, in sessions of its own.
//!
//! A client is killed by aborting its task: its sockets close, as those of a process that was killed do, and nothing else is
//! ever heard of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use resp::Value;
use vfs::sim::Rng;

use crate::history::{History, Told};
use crate::plan::{Ends, Part, Party, Transfer};
use crate::wire::{Wire, field, text};

/// Where the parties are.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub server: u16,
    pub postgres: String,
    pub mariadb: String,
}

/// What all clients of a cycle share.
#[derive(Debug)]
pub struct Office {
    pub addresses: Addresses,
    pub history: Arc<History>,
    /// Clients end after the transfer at hand.
    pub closes: AtomicBool,
    /// Transfers that were told committed.
    pub committed: AtomicU64,
}

/// A session that the application has prepared a branch in.
enum Own {
    Postgres(#[allow(dead_code, reason = "it is dropped with the session")] PostgresSession),
    MariaDb(#[allow(dead_code, reason = "it is dropped with the session")] mysql_async::Conn),
}

struct PostgresSession {
    client: tokio_postgres::Client,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Why a transfer does not go on.
enum Stop {
    /// The connection to the server is gone.
    Cut(std::io::Error),
    /// A database refused a session of the application's own; the text says what.
    Refused(String),
    /// The transaction can only roll back: a command was answered with an error, or a branch failed.
    Spoilt(String),
}

impl Stop {
    /// What is no branch yet cannot keep the transaction from committing.
    fn refused(self) -> Self {
        match self {
            Self::Spoilt(why) => Self::Refused(why),
            other => other,
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Cut(error)
    }
}

/// Makes transfers until the office closes.
pub async fn run(office: Arc<Office>, mut rng: Rng) {
    let mut wire = None;
    while !office.closes.load(Ordering::Relaxed) {
        if wire.is_none() {
            wire = Wire::connect(office.addresses.server).await.ok();
        }
        let Some(connected) = &mut wire else {
            tokio::time::sleep(RECONNECT_PAUSE).await;
            continue;
        };
        let transfer = office.history.begin(|number| Transfer::random(number, &mut rng));
        let mut desk = Desk { office: &office, wire: connected, transfer: &transfer, sessions: Vec::new() };
        if let Err(error) = desk.carry_out().await {
            desk.note(error.to_string());
            if error.kind() == std::io::ErrorKind::TimedOut {
                office.history.violation(format!("transfer {}: {error}", transfer.number));
            }
            wire = None;
        }
    }
}

/// A transfer that is under way.
struct Desk<'a> {
    office: &'a Office,
    wire: &'a mut Wire,
    transfer: &'a Transfer,
    sessions: Vec<Own>,
}

impl Desk<'_> {
    async fn carry_out(&mut self) -> std::io::Result<()> {
        if self.transfer.is_pipeline {
            return self.pipeline().await;
        }
        let begun = self.wire.call(&["TX.BEGIN", "TIMEOUT", TIMEOUT_MS]).await?;
        let (Some(id), Some(branches)) = (field(&begun, "id"), field(&begun, "branches")) else {
            self.note(text(&begun));
            return Ok(());
        };
        let (id, branches) = (text(id), branches.clone());
        self.office.history.change(self.transfer.number, |record| record.tx = Some(id.clone()));
        let mut spoilt = false;
        for part in &self.transfer.parts {
            match self.work(&id, &branches, part).await {
                Ok(()) => {}
                Err(Stop::Cut(error)) => return Err(error),
                Err(Stop::Spoilt(why)) if self.transfer.is_stubborn => {
                    self.note(why);
                    spoilt = true;
                }
                Err(Stop::Refused(why) | Stop::Spoilt(why)) => {
                    self.note(why);
                    self.wire.call(&["TX.ROLLBACK", &id]).await?;
                    return Ok(());
                }
            }
        }
        match self.transfer.ends {
            Ends::Commits => self.commit(&id, spoilt).await,
            Ends::RollsBack => self.wire.call(&["TX.ROLLBACK", &id]).await.map(drop),
            Ends::Leaves => Ok(()),
        }
    }

    async fn commit(&mut self, id: &str, spoilt: bool) -> std::io::Result<()> {
        if !self.transfer.keeps_sessions {
            self.sessions.clear();
        }
        self.tell(Told::Perhaps("asked, and not answered".to_owned()));
        let answer = self.wire.call(&["TX.COMMIT", id]).await?;
        self.note_outcome(&answer, spoilt);
        Ok(())
    }

    /// Sends all of it at once: whatever fails must leave nothing to commit.
    async fn pipeline(&mut self) -> std::io::Result<()> {
        let parts = self.transfer.parts.iter().flat_map(|part| self.commands("$", part));
        let commands: Vec<Vec<String>> = parts.collect();
        let (begin, commit) = (vec!["TX.BEGIN", "TIMEOUT", TIMEOUT_MS], vec!["TX.COMMIT", "$"]);
        let all: Vec<Vec<&str>> = [begin]
            .into_iter()
            .chain(commands.iter().map(|command| words(command)))
            .chain([commit])
            .collect();
        self.tell(Told::Perhaps("sent, and not answered".to_owned()));
        self.wire.send(&all).await?;
        let begun = self.wire.reply(&all[0]).await?;
        let id = field(&begun, "id").map(text);
        self.office.history.change(self.transfer.number, |record| record.tx = id);
        let mut has_failed = false;
        for command in &all[1..all.len() - 1] {
            let answer = self.wire.reply(command).await?;
            if matches!(answer, Value::Error(_)) {
                has_failed = true;
                self.note(text(&answer));
            }
        }
        let answer = self.wire.reply(&all[all.len() - 1]).await?;
        self.note_outcome(&answer, has_failed);
        Ok(())
    }

    /// What the answer to a commit says; `spoilt`: it must not be that all of it is done.
    fn note_outcome(&self, answer: &Value, spoilt: bool) {
        let number = self.transfer.number;
        match answer {
            Value::Array(words) if words.len() == 2 => match (&*text(&words[0]), text(&words[1])) {
                ("committed", _) => {
                    if spoilt {
                        let transfer = self.transfer;
                        let what = format!("committed after an error: {transfer:?}");
                        self.office.history.violation(what);
                    }
                    self.office.committed.fetch_add(1, Ordering::Relaxed);
                    self.tell(Told::Committed);
                }
                ("aborted", why) => self.tell(Told::Aborted(why)),
                ("unknown", why) => self.tell(Told::Perhaps(why)),
                (other, why) => {
                    self.office.history.violation(format!("transfer {number} was told {other}: {why}"));
                }
            },
            Value::Error(_) => self.tell(Told::Aborted(text(answer))),
            _ => self.office.history.violation(format!("transfer {number} was told {answer:?}")),
        }
    }

    /// Does one party's part.
    async fn work(&mut self, id: &str, branches: &Value, part: &Part) -> Result<(), Stop> {
        if !part.is_own {
            for command in self.commands(id, part) {
                self.accept(&words(&command)).await?;
            }
            return Ok(());
        }
        let branch = field(branches, part.party.name()).map(text).unwrap_or_default();
        // What a prepare that was not heard of came to shows when all is to be committed.
        let prepared = match part.party {
            Party::Postgres => self.prepare_postgres(id, &branch, part).await,
            _ => self.prepare_mariadb(id, &branch, part).await,
        };
        if self.transfer.enlists_first { prepared } else { prepared.map_err(Stop::refused) }
    }

    /// What the server is told to do in keys, or in a database of its own sessions.
    fn commands(&self, id: &str, part: &Part) -> Vec<Vec<String>> {
        let number = self.transfer.number.to_string();
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        if part.party == Party::Keys {
            let mut all = Vec::new();
            for (account, amount) in &part.moves {
                all.push(command(&[
                    "TX.DO",
                    id,
                    "INCRBY",
                    &format!("account:{account}"),
                    &amount.to_string(),
                ]));
            }
            all.push(match part.moves[..] {
                [] => command(&["TX.DO", id, "GET", "account:0"]),
                _ => command(&["TX.DO", id, "SET", &format!("transfer:{number}"), "1"]),
            });
            return all;
        }
        let sql = |words: &[&str]| command(&[&["TX.SQL", id, part.party.name()], words].concat());
        let (update, insert) = match part.party {
            Party::Postgres => (
                "UPDATE accounts SET balance = balance + $1 WHERE id = $2",
                "INSERT INTO journal VALUES ($1)",
            ),
            _ => (
                "UPDATE accounts SET balance = balance + CAST(? AS SIGNED) WHERE id = ?",
                "INSERT INTO journal VALUES (?)",
            ),
        };
        let mut all = Vec::new();
        for (account, amount) in &part.moves {
            all.push(sql(&[update, &amount.to_string(), &account.to_string()]));
        }
        all.push(match part.moves[..] {
            [] => sql(&["SELECT balance FROM accounts WHERE id = 0"]),
            _ => sql(&[insert, &number]),
        });
        all
    }

    /// A branch of PostgreSQL that the application works in and prepares by itself.
    async fn prepare_postgres(&mut self, id: &str, branch: &str, part: &Part) -> Result<(), Stop> {
        let enlist = ["TX.ENLIST", id, "RESOURCE", "pg", "BRANCH", branch];
        if self.transfer.enlists_first {
            self.accept(&enlist).await?;
        }
        let connected = tokio_postgres::connect(&self.office.addresses.postgres, tokio_postgres::NoTls);
        let (client, connection) = bounded(connected).await?;
        #[allow(clippy::disallowed_methods, reason = "ends with its session")]
        let connection = tokio::spawn(async move { drop(connection.await) });
        let session = PostgresSession { client, connection };
        bounded(session.client.batch_execute(&format!("BEGIN; {}", self.statements(part)))).await?;
        let prepared =
            bounded(session.client.batch_execute(&format!("PREPARE TRANSACTION '{branch}'"))).await;
        self.sessions.push(Own::Postgres(session));
        self.go_on(prepared)?;
        if !self.transfer.enlists_first {
            self.accept(&enlist).await?;
        }
        Ok(())
    }

    /// A branch of MariaDB that the application works in and prepares by itself.
    async fn prepare_mariadb(&mut self, id: &str, branch: &str, part: &Part) -> Result<(), Stop> {
        let options = mysql_async::Opts::from_url(&self.office.addresses.mariadb).expect("an address");
        // Without a session there is nobody to enlist the branch for.
        let mut session = bounded(mysql_async::Conn::new(options)).await.map_err(Stop::refused)?;
        let owner = session.id().to_string();
        let mut enlist = vec!["TX.ENLIST", id, "RESOURCE", "my", "BRANCH", branch];
        let xid = if self.transfer.takes_lock {
            let lock = format!("SELECT GET_LOCK('{branch}', 0)");
            let has = bounded(session.query_first::<Option<u8>, _>(lock)).await.map_err(Stop::refused)?;
            if has.flatten() != Some(1) {
                return Err(Stop::Refused("another session holds the lock".to_owned()));
            }
            format!("'{branch}','lock'")
        } else {
            enlist.extend(["OWNER", &owner]);
            format!("'{branch}'")
        };
        if self.transfer.enlists_first {
            self.accept(&enlist).await?;
        }
        bounded(session.query_drop(format!("XA START {xid}"))).await?;
        for statement in self.statements(part).split("; ") {
            bounded(session.query_drop(statement)).await?;
        }
        bounded(session.query_drop(format!("XA END {xid}"))).await?;
        let prepared = bounded(session.query_drop(format!("XA PREPARE {xid}"))).await;
        self.sessions.push(Own::MariaDb(session));
        self.go_on(prepared)?;
        if !self.transfer.enlists_first {
            self.accept(&enlist).await?;
        }
        Ok(())
    }

    /// Who is stubborn has a branch enlisted of which it does not know whether it is prepared: then it votes.
    fn go_on(&mut self, prepared: Result<(), Stop>) -> Result<(), Stop> {
        match prepared {
            Err(Stop::Spoilt(why)) if self.transfer.is_stubborn => {
                self.note(why);
                Ok(())
            }
            other => other,
        }
    }

    fn statements(&self, part: &Part) -> String {
        let mut all: Vec<String> = Vec::new();
        for (account, amount) in &part.moves {
            all.push(format!("UPDATE accounts SET balance = balance + {amount} WHERE id = {account}"));
        }
        all.push(format!("INSERT INTO journal VALUES ({})", self.transfer.number));
        all.join("; ")
    }

    /// Calls the server, which must not answer with an error.
    async fn accept(&mut self, command: &[&str]) -> Result<(), Stop> {
        let answer = self.wire.call(command).await?;
        if !matches!(answer, Value::Error(_)) {
            return Ok(());
        }
        let why = text(&answer);
        // Whatever it was, its transaction must not be committed any more.
        Err(Stop::Spoilt(why))
    }

    fn tell(&self, told: Told) {
        self.office.history.change(self.transfer.number, |record| record.told = told);
    }

    fn note(&self, why: String) {
        self.office.history.change(self.transfer.number, |record| record.trouble = why);
    }
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// A step in a session of the application's own; what takes too long counts as lost.
async fn bounded<T, E: std::fmt::Display>(step: impl Future<Output = Result<T, E>>) -> Result<T, Stop> {
    match tokio::time::timeout(OWN_TIME_MAX, step).await {
        Ok(result) => result.map_err(|error| Stop::Spoilt(error.to_string())),
        Err(_) => Err(Stop::Spoilt(format!("nothing within {OWN_TIME_MAX:?}"))),
    }
}

/// For so long a transaction may be open; what a killed client leaves behind holds its rows for that time.
const TIMEOUT_MS: &str = "1200";
const OWN_TIME_MAX: Duration = Duration::from_secs(3);
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);
