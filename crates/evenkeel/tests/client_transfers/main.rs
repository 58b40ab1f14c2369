//! Recovery drills: money moves between PostgreSQL, MariaDB and keys through a real server, while one party after the other is killed.
//!
//! ```text
//!  cycle: clients transfer -> the server stops itself at a step of the protocol, or a moment comes -> kill -9 of somebody
//!         -> all is brought up again, clients go on and leave -> nothing is in doubt within 60 s, and what is there is what was told
//! ```
//!
//! Invariants that are looked at after each cycle
//!   1. No branch is prepared in either database or in the keys, no key is held, no transaction is unfinished.
//!   2. Each transfer is in all journals of its parties or in none; what was told `committed` is there, what was told `aborted`, or was
//!      never asked to commit, is not. TX.STATUS agrees.
//!   3. Each account has what the transfers that are there make of it; so the sum is what it was.
//!
//! `EVENKEEL_TRANSFER_CYCLES` sets the cycles (20), `EVENKEEL_TRANSFER_SEED` the seed, which is always printed: it fixes who is killed at which
//! step and what clients send, not how the machine interleaves them. A failure shows the last words of the server and of MariaDB, and
//! keeps MariaDB's folder: `data/general.log` in it has each statement.
//!
//! Needs PostgreSQL and MariaDB; fails where they are not installed, or skips itself where `EVENKEEL_SKIP_CLIENTS` is set.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, unreachable_pub, reason = "tests")]

mod blow;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod deaths;
mod history;
mod judge;
#[path = "../../../sql/tests/common/mariadb.rs"]
mod mariadb;
mod parties;
mod pipeline;
mod plan;
#[path = "../../../sql/tests/common/postgres.rs"]
mod postgres;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use blow::{Blow, Moment};
use client::Office;
use clock::{Clock, SystemClock};
use crowd::Crowd;
use history::{History, Settled};
use judge::Tally;
use parties::Parties;
use vfs::sim::Rng;

#[test]
fn transfers_are_all_or_nothing_whoever_is_killed_at_whatever_step() {
    let (seed, cycles) = (seed(), number("EVENKEEL_TRANSFER_CYCLES").unwrap_or(20));
    println!("transfers: seed {seed}, {cycles} cycles");
    let Some(parties) = Parties::start() else { return };
    let mut drill = Drill::new(parties, seed);
    for cycle in 0..cycles {
        drill.cycle(cycle);
    }
    println!("transfers: {:?}\nsteps that were not reached in time: {:?}", drill.total, drill.missed);
    assert!(drill.total.committed > cycles, "too few transfers to show anything: {:?}", drill.total);
    let missed: u64 = drill.missed.values().sum();
    assert!(missed * 4 <= cycles, "too few steps were reached: {:?}", drill.missed);
}

/// Cycle after cycle over the same parties.
struct Drill {
    parties: Parties,
    history: Arc<History>,
    settled: Settled,
    rng: Rng,
    seed: u64,
    first: u64,
    total: Tally,
    missed: BTreeMap<&'static str, u64>,
}

impl Drill {
    fn new(parties: Parties, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            parties,
            history: Arc::default(),
            settled: Settled::new(),
            first: rng.below(1 << 20),
            rng,
            seed,
            total: Tally::default(),
            missed: BTreeMap::new(),
        }
    }

    fn cycle(&mut self, cycle: u64) {
        let blow = Blow::of(cycle, self.first, &mut self.rng);
        let started = SystemClock.now();
        let mut crowd = Crowd::start(self.office(), &mut self.rng);
        if !blow.fall(&mut self.parties, &mut crowd)
            && let Moment::At(step, _) = blow.moment
        {
            *self.missed.entry(step.name()).or_default() += 1;
        }
        blow.restore(&mut self.parties, &mut self.rng);
        self.await_commits(&crowd);
        crowd.leave();
        drop(crowd);
        let judged = self.judged();
        let settled = match judged {
            Ok(tally) => {
                self.total.add(&tally);
                tally.settled_in_max
            }
            Err(what) => panic!(
                "seed {}, cycle {cycle}, {blow:?}:\n{what}\nthe server's last words:\n{}\nMariaDB's:\n{}",
                self.seed,
                self.parties.server.last_words(),
                self.parties.mariadb.last_words()
            ),
        };
        println!("{cycle}: {blow:?} in {:?}, settled in {settled:?}", SystemClock.now() - started);
    }

    /// Waits until clients that live have committed again after the blow: all parties work together.
    fn await_commits(&self, crowd: &Crowd) {
        let office = &crowd.office;
        let before = office.committed.load(Ordering::Relaxed);
        common::eventually("a transfer after all is up", || {
            office.closes.load(Ordering::Relaxed) || office.committed.load(Ordering::Relaxed) > before
        });
    }

    fn judged(&mut self) -> Result<Tally, String> {
        let took = judge::settle(&self.parties)?;
        let violations = self.history.violations();
        if !violations.is_empty() {
            return Err(violations.join("\n"));
        }
        let records = self.history.take();
        let tally = judge::judge(&self.parties, &records, &mut self.settled);
        let tally = tally.map_err(|wrong| wrong.join("\n"))?;
        Ok(Tally { settled_in_max: took, ..tally })
    }

    fn office(&self) -> Office {
        Office {
            addresses: self.parties.addresses(),
            history: Arc::clone(&self.history),
            closes: AtomicBool::new(false),
            committed: AtomicU64::new(0),
        }
    }
}

fn seed() -> u64 {
    number("EVENKEEL_TRANSFER_SEED").unwrap_or_else(|| SystemClock.unix_us())
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}
