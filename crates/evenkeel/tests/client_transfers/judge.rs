//! The judge: after each cycle nothing is in doubt any more, and what is there is what was told.
#![allow(clippy::disallowed_methods, reason = "a test waits for a condition, within a bound")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use resp::Value;

use crate::history::{Record, Settled, Told};
use crate::parties::Parties;
use crate::plan::{ACCOUNTS, INITIAL, Party};
use crate::wire::{field, text};

/// What a cycle came to.
#[derive(Debug, Default)]
pub struct Tally {
    pub transfers: u64,
    pub committed: u64,
    pub aborted: u64,
    pub lost: u64,
    /// Of those, which turned out to be committed.
    pub found: u64,
    pub unasked: u64,
    pub settled_in_max: Duration,
}

/// Waits until nothing is in doubt; how long that took.
///
/// # Errors
/// What still is, after [`SETTLE_TIME_MAX`].
pub fn settle(parties: &Parties) -> Result<Duration, String> {
    let (start, mut is_slow) = (Instant::now(), false);
    loop {
        let left = doubts(parties);
        if left.is_empty() {
            return Ok(start.elapsed());
        }
        if start.elapsed() > SETTLE_TIME_USUAL && !is_slow {
            is_slow = true;
            println!("after {SETTLE_TIME_USUAL:?} there still is: {}", left.join("; "));
        }
        if start.elapsed() > SETTLE_TIME_MAX {
            return Err(format!("after {SETTLE_TIME_MAX:?}: {}", left.join("; ")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// All that is not ended.
///
/// What MariaDB's engine has is asked of its monitor: this asks so often that INNODB_TRX, a copy, would never be renewed.
fn doubts(parties: &Parties) -> Vec<String> {
    let mut left = Vec::new();
    if let Value::Array(all) = parties.server.call(&["TX.LIST"]) {
        let open = all.iter().filter(|info| field(info, "state").map(text).as_deref() != Some("committed"));
        left.extend(open.map(text));
    }
    for name in ["txn_prepared_branches", "txn_locked_keys", "txn_locked_databases"] {
        let value = parties.server.info(name);
        left.extend((value != "0").then(|| format!("{name}:{value}")));
    }
    for name in ["txn_resource_pg", "txn_resource_my"] {
        let value = parties.server.info(name);
        let is_idle = ["state=ready", "busy=0", "waiting=0"].iter().all(|word| value.contains(word));
        left.extend((!is_idle).then(|| format!("{name}:{value}")));
    }
    if left.is_empty() {
        let open = "SELECT pid, state, query FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()";
        for statement in ["SELECT gid FROM pg_prepared_xacts", open] {
            let found = parties.postgres.sql(statement);
            left.extend((!found.trim().is_empty()).then(|| format!("PostgreSQL: {found}")));
        }
        let prepared = parties.mariadb_sql("XA RECOVER");
        left.extend((!prepared.is_empty()).then(|| format!("MariaDB: {prepared}")));
        left.extend(parties.mariadb.transactions().into_iter().map(|it| format!("MariaDB: {it}")));
    }
    left
}

/// What parties have.
struct Sight {
    journals: BTreeMap<Party, BTreeSet<u64>>,
    settled: Settled,
}

/// Compares what is there with what was told; takes what is there into `settled`.
///
/// # Errors
/// Each promise that was broken.
pub fn judge(parties: &Parties, records: &[Record], settled: &mut Settled) -> Result<Tally, Vec<String>> {
    let mut wrong = Vec::new();
    let sight = look(parties, records);
    let mut tally = Tally { transfers: records.len() as u64, ..Tally::default() };
    for record in records {
        let number = record.transfer.number;
        let is_there = |party: Party| sight.journals[&party].contains(&number);
        let parts: Vec<(Party, bool)> =
            record.transfer.writers().map(|part| (part.party, is_there(part.party))).collect();
        let (all, any) = (parts.iter().all(|part| part.1), parts.iter().any(|part| part.1));
        if all != any {
            wrong.push(format!("a part of a transfer: {parts:?} of {record:?}"));
        }
        tally.note(&record.told, any);
        match record.told {
            Told::Committed if !all => wrong.push(format!("told committed, and not there: {record:?}")),
            Told::Aborted(_) | Told::Never if any => {
                wrong.push(format!("told aborted, or never asked, and there: {record:?}"));
            }
            _ => {}
        }
        if any {
            settled.add(&record.transfer);
        }
        wrong.extend(status(parties, record, any));
    }
    if sight.settled != *settled {
        wrong.push(format!("balances or journals:\n{:?}\nwhere it must be\n{settled:?}", sight.settled));
    }
    wrong.extend(sets(parties));
    if wrong.is_empty() { Ok(tally) } else { Err(wrong) }
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.transfers += other.transfers;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.lost += other.lost;
        self.found += other.found;
        self.unasked += other.unasked;
        self.settled_in_max = self.settled_in_max.max(other.settled_in_max);
    }

    fn note(&mut self, told: &Told, is_there: bool) {
        match told {
            Told::Committed => self.committed += 1,
            Told::Aborted(_) => self.aborted += 1,
            Told::Never => self.unasked += 1,
            Told::Perhaps(_) => {
                self.lost += 1;
                self.found += u64::from(is_there);
            }
        }
    }
}

/// What TX.STATUS says against what is there. The decision of a transfer that two parties took part in is kept for a minute.
fn status(parties: &Parties, record: &Record, is_there: bool) -> Option<String> {
    let tx = record.tx.as_deref()?;
    if record.transfer.writers().count() < 2 {
        return None;
    }
    let status = parties.server.call(&["TX.STATUS", tx]);
    let state = field(&status, "state").map(text).unwrap_or_default();
    let is_right = match &*state {
        "committed" => is_there,
        "aborted" | "none" => !is_there,
        _ => false,
    };
    (!is_right).then(|| format!("TX.STATUS says {}, there: {is_there}, of {record:?}", text(&status)))
}

/// Reads accounts and journals.
fn look(parties: &Parties, records: &[Record]) -> Sight {
    let first = records.first().map_or(u64::MAX >> 1, |record| record.transfer.number);
    let mut sight = Sight { journals: BTreeMap::new(), settled: Settled::default() };
    for party in Party::ALL {
        let (balances, fresh, (count, sum)) = match party {
            Party::Keys => look_at_keys(parties, records),
            _ => look_at_database(parties, party, first),
        };
        for (account, balance) in balances {
            sight.settled.balances.insert((party, account), balance - INITIAL);
        }
        sight.settled.journals.insert(party, (count, sum));
        sight.journals.insert(party, fresh);
    }
    sight
}

/// Balances, numbers of new transfers, count and sum of the numbers of all.
type Book = (Vec<(u64, i64)>, BTreeSet<u64>, (u64, u64));

fn look_at_database(parties: &Parties, party: Party, first: u64) -> Book {
    let ask = |statement: String| match party {
        Party::Postgres => parties.postgres.sql(&statement).replace('|', "\t"),
        _ => parties.mariadb_sql(&statement),
    };
    let rows = |text: String| -> Vec<Vec<i64>> {
        let numbers = |line: &str| line.split('\t').map(|word| word.trim().parse().unwrap()).collect();
        text.lines().map(numbers).collect()
    };
    let balances = rows(ask("SELECT id, balance FROM accounts ORDER BY id".to_owned()));
    let fresh = rows(ask(format!("SELECT transfer FROM journal WHERE transfer >= {first}")));
    let all = rows(ask("SELECT count(*), coalesce(sum(transfer), 0) FROM journal".to_owned()));
    (
        balances.into_iter().map(|row| (row[0] as u64, row[1])).collect(),
        fresh.into_iter().map(|row| row[0] as u64).collect(),
        (all[0][0] as u64, all[0][1] as u64),
    )
}

fn look_at_keys(parties: &Parties, records: &[Record]) -> Book {
    let get = |prefix: &str, numbers: &[u64]| -> Vec<Option<i64>> {
        let mut command = vec!["MGET".to_owned()];
        command.extend(numbers.iter().map(|number| format!("{prefix}:{number}")));
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        match parties.server.call(&command) {
            Value::Array(values) => values.iter().map(|value| text(value).parse().ok()).collect(),
            other => panic!("{command:?}: {other:?}"),
        }
    };
    let accounts: Vec<u64> = (0..ACCOUNTS).collect();
    let balances = get("account", &accounts).into_iter().map(|value| value.unwrap());
    let numbers: Vec<u64> = records.iter().map(|record| record.transfer.number).collect();
    let found = if numbers.is_empty() { Vec::new() } else { get("transfer", &numbers) };
    let fresh: BTreeSet<u64> = numbers
        .into_iter()
        .zip(found)
        .filter(|(_, found)| found.is_some())
        .map(|(number, _)| number)
        .collect();
    let Value::Array(all) = parties.server.call(&["KEYS", "transfer:*"]) else { panic!("KEYS is an array") };
    let all: Vec<u64> = all.iter().map(|key| text(key)["transfer:".len()..].parse().unwrap()).collect();
    (accounts.into_iter().zip(balances).collect(), fresh, (all.len() as u64, all.iter().sum()))
}

/// A plain SET on each account must work: nobody holds it.
fn sets(parties: &Parties) -> Vec<String> {
    let mut wrong = Vec::new();
    for account in 0..ACCOUNTS {
        let key = format!("account:{account}");
        let balance = text(&parties.server.call(&["GET", &key]));
        let answer = parties.server.call(&["SET", &key, &balance]);
        if answer != Value::Simple(b"OK".to_vec()) {
            wrong.push(format!("SET {key}: {}", text(&answer)));
        }
    }
    wrong
}

/// What is left after more than this is printed.
const SETTLE_TIME_USUAL: Duration = Duration::from_secs(4);
/// The promise.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
