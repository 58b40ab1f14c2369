//! A connection to PostgreSQL that holds the node's lock, and every statement.
//!
//! ```text
//!  evenkeel_nodes      node text primary key | epoch bigint: of the newest start | born bigint: of the first
//!  evenkeel_decisions  node text | epoch bigint | number bigint, its bits | record bytea     primary key (node, epoch, number)
//! ```
//!
//! Invariants
//!   1. A session exists only with the node's advisory lock, which the server gives up when the backend that holds it is gone,
//!      its last transaction committed or rolled back. So who has the lock sees what became of every session before.
//!   2. `synchronous_commit` is on, whatever role, database or server say; a server without `fsync` is refused.
//!   3. A session that is dropped, or given up while it is opened, leaves no connection behind.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, Statement};

use crate::postgres::failure::{Failure, place, text};
use crate::postgres::gate::Proof;
use crate::postgres::session::advised;
use crate::postgres::tags::Tap;
use crate::tls::Tls;
use txn::decision_log::OpenError;
use txn::id::{NodeName, TxId};

/// Where the database is, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) proof: Proof,
    /// A server that says nothing for so long is given up.
    pub(super) answer_max: Duration,
}

/// A connection, locked for its node.
pub(super) struct Session {
    client: Client,
    write: Statement,
    connection: Connection,
    answer_max: Duration,
}

/// What carries a connection: it ends when this is dropped, whatever is under way.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What goes into one transaction.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) writes: Vec<(TxId, Vec<u8>)>,
    pub(super) removals: Vec<TxId>,
}

/// What a start found.
pub(super) struct Found {
    pub(super) epoch: u32,
    pub(super) born: u32,
    pub(super) records: Vec<(TxId, Vec<u8>)>,
}

impl Session {
    /// Connects, and locks the node; `wait_max` for one who is about to let go of it. A silent server lets it wait: the caller sets
    /// a limit, as it may be dropped at any time.
    pub(super) async fn open(
        Target { config, tls, proof, answer_max }: &Target,
        node: &NodeName,
        wait_max: Duration,
    ) -> Result<Self, OpenError> {
        let no = |error: Error| OpenError::Failed(format!("{}: {}", place(config), text(&error)));
        let unreached =
            |error: Error| OpenError::Failed(format!("{}: {}", place(config), advised(&error, tls)));
        let tap = Tap::new(tls.postgres(), *proof, Arc::default());
        let (client, connection) = config.connect(tap).await.map_err(unreached)?;
        let connection = Connection(tokio::spawn(async move {
            // What went wrong is told to whoever asks for something next.
            let _ = connection.await;
        }));
        client.batch_execute("SET synchronous_commit TO on").await.map_err(no)?;
        let row = client.query_one(LOOK, &[]).await.map_err(no)?;
        let (fsync, has_tables): (String, bool) = (row.get(0), row.get(1));
        if fsync != "on" {
            let what = "it runs with fsync = off, so that no decision would be durable";
            return Err(OpenError::Failed(format!("{}: {what}", place(config))));
        }
        if !has_tables {
            client.batch_execute(SETUP).await.map_err(no)?;
        }
        let mut waited = Duration::ZERO;
        while !client.query_one(LOCK, &[&node.as_str()]).await.map_err(no)?.get::<_, bool>(0) {
            if waited >= wait_max {
                return Err(OpenError::InUse(format!("{}, node {node}", place(config))));
            }
            tokio::time::sleep(LOCK_PAUSE).await;
            waited += LOCK_PAUSE;
        }
        let write = client.prepare(WRITE).await.map_err(no)?;
        Ok(Self { client, write, connection, answer_max: *answer_max })
    }

    /// Begins the next epoch of `node`, and reads what is there.
    pub(super) async fn start(
        &self,
        Target { config, .. }: &Target,
        node: &NodeName,
    ) -> Result<Found, OpenError> {
        let no = |failure: Failure| OpenError::Failed(format!("{}: {}", place(config), failure.text()));
        let damaged = |what: String| OpenError::Damaged(format!("{}, node {node}: {what}", place(config)));
        let limit = self.answer_max;
        let name = node.as_str();
        let row = timely(limit, self.client.query_one(NEXT_EPOCH, &[&name])).await.map_err(no)?;
        let (epoch, born): (i64, i64) = (row.get(0), row.get(1));
        // However many rows there are: the limit is for each.
        let rows = timely(limit, self.client.query_raw(READ_ALL, [name])).await.map_err(no)?;
        let mut rows = pin!(rows);
        let mut records = Vec::new();
        loop {
            let next = poll_fn(|context| rows.as_mut().poll_next(context).map(Option::transpose));
            let Some(row) = timely(limit, next).await.map_err(no)? else { break };
            let (of, number): (i64, i64) = (row.get(0), row.get(1));
            let of = u32::try_from(of).ok().filter(|of| i64::from(*of) < epoch);
            let of = of.ok_or_else(|| {
                damaged(format!(
                    "a decision of epoch {}, and the newest start is {epoch}",
                    row.get::<_, i64>(0)
                ))
            })?;
            records.push((TxId { epoch: of, number: number as u64 }, row.get(2)));
        }
        let epoch = u32::try_from(epoch).map_err(|_| damaged(format!("its epoch is {epoch}")))?;
        let born = u32::try_from(born).map_err(|_| damaged(format!("its first epoch is {born}")))?;
        Ok(Found { epoch, born, records })
    }

    /// Makes `rows` durable in one transaction.
    pub(super) async fn write(&self, node: &NodeName, rows: &Rows) -> Result<(), Failure> {
        let (epochs, numbers) = keys(rows.writes.iter().map(|(tx, _)| *tx));
        let records: Vec<&[u8]> = rows.writes.iter().map(|(_, record)| &record[..]).collect();
        let (gone_epochs, gone_numbers) = keys(rows.removals.iter().copied());
        let name = node.as_str();
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&name, &epochs, &numbers, &records, &gone_epochs, &gone_numbers];
        timely(self.answer_max, self.client.execute(&self.write, &parameters)).await.map(drop)
    }

    /// What is there of `txs`; `None` if another start of the node came meanwhile. The caller sets a limit.
    pub(super) async fn read_back(
        &self,
        node: &NodeName,
        epoch: u32,
        txs: impl Iterator<Item = TxId>,
    ) -> Result<Option<HashMap<TxId, Vec<u8>>>, Error> {
        let row = self.client.query_opt(EPOCH, &[&node.as_str()]).await?;
        if row.is_none_or(|row| row.get::<_, i64>(0) != i64::from(epoch)) {
            return Ok(None);
        }
        let (epochs, numbers) = keys(txs);
        let rows = self.client.query(READ_SOME, &[&node.as_str(), &epochs, &numbers]).await?;
        let found = rows.iter().map(|row| {
            let tx = TxId { epoch: row.get::<_, i64>(0) as u32, number: row.get::<_, i64>(1) as u64 };
            (tx, row.get(2))
        });
        Ok(Some(found.collect()))
    }

    /// Ends it: the server has given the lock up, or will.
    pub(super) async fn close(mut self) {
        drop(self.client);
        let _ = tokio::time::timeout(self.answer_max, &mut self.connection.0).await;
    }
}

/// What the server answers within `limit`.
async fn timely<T>(limit: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    let done = tokio::time::timeout(limit, answer).await;
    done.map_or_else(|_| Err(Failure::Lost(silence(limit))), |done| Ok(done?))
}

/// What is said of a server that says nothing.
pub(super) fn silence(limit: Duration) -> String {
    format!("no answer within {limit:?}")
}

/// Epochs and numbers as the server has them.
fn keys(txs: impl Iterator<Item = TxId>) -> (Vec<i64>, Vec<i64>) {
    txs.map(|tx| (i64::from(tx.epoch), tx.number as i64)).unzip()
}

/// What runs the server, and whether the tables are there, with the column that came later. To make what is there `IF NOT EXISTS` takes
/// the right to make it, and to alter a table waits for all who read it.
const LOOK: &str =
    "SELECT current_setting('fsync'), to_regclass('evenkeel_decisions') IS NOT NULL AND EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('evenkeel_nodes') AND attname = 'born' AND NOT attisdropped)";
/// Tables are made by one at a time: `IF NOT EXISTS` alone fails when two try.
const SETUP: &str = "BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('evenkeel_decisions', 0));
CREATE TABLE IF NOT EXISTS evenkeel_nodes (node text PRIMARY KEY, epoch bigint NOT NULL);
ALTER TABLE evenkeel_nodes ADD COLUMN IF NOT EXISTS born bigint NOT NULL DEFAULT 1;
CREATE TABLE IF NOT EXISTS evenkeel_decisions (node text NOT NULL, epoch bigint NOT NULL, number bigint NOT NULL,
    record bytea NOT NULL, PRIMARY KEY (node, epoch, number));
COMMIT";
const LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended('evenkeel_decisions ' || $1::text, 0))";
const NEXT_EPOCH: &str = "INSERT INTO evenkeel_nodes (node, epoch, born) SELECT $1, now, now
FROM (SELECT extract(epoch FROM current_timestamp)::bigint AS now) AS clock
ON CONFLICT (node) DO UPDATE SET epoch = evenkeel_nodes.epoch + 1 RETURNING epoch, born";
const EPOCH: &str = "SELECT epoch FROM evenkeel_nodes WHERE node = $1";
const READ_ALL: &str =
    "SELECT epoch, number, record FROM evenkeel_decisions WHERE node = $1 ORDER BY epoch, number";
const READ_SOME: &str = "SELECT epoch, number, record FROM evenkeel_decisions WHERE node = $1
AND (epoch, number) IN (SELECT * FROM unnest($2::bigint[], $3::bigint[]))";
const WRITE: &str = "WITH gone AS (DELETE FROM evenkeel_decisions WHERE node = $1
    AND (epoch, number) IN (SELECT * FROM unnest($5::bigint[], $6::bigint[])))
INSERT INTO evenkeel_decisions (node, epoch, number, record)
SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bytea[])
ON CONFLICT (node, epoch, number) DO UPDATE SET record = EXCLUDED.record";
const LOCK_PAUSE: Duration = Duration::from_millis(50);
