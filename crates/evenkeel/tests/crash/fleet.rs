//! Rounds of load, death and judgement over one data folder.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use resp::Value;
use vfs::sim::Rng;

use crate::client::Client;
use crate::history::{Expires, History, Sight, Violation};
use crate::load::{self, CLIENTS, PAIR, SLOTS, Seen, Shared, Stop, Worker};
use crate::tokens;

/// Broken promises that a failure shows; the pattern of many tells more than one.
const VIOLATIONS_SHOWN_MAX: usize = 30;

/// Everything that clients know of the data, from round to round.
pub struct Fleet {
    histories: Vec<Vec<History>>,
    rng: Rng,
    /// The tokens are there; where keys may be evicted there are none.
    has_tokens: bool,
}

/// What a round was worth: a round without load shows nothing.
#[derive(Debug, Default)]
pub struct Tally {
    pub acknowledged: u64,
    pub observed: u64,
    /// Segments that were begun in a file that was not filled with zeroes yet.
    pub fallocated_fallbacks: u64,
    /// Keys that were evicted.
    pub evicted: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.observed += other.observed;
        self.fallocated_fallbacks += other.fallocated_fallbacks;
        self.evicted += other.evicted;
    }
}

impl Fleet {
    /// Clients of a server that evicts keys or not.
    pub fn new(seed: u64, evicts: bool) -> Self {
        Self {
            histories: vec![vec![History::new(evicts); SLOTS]; CLIENTS],
            rng: Rng::new(seed),
            has_tokens: false,
        }
    }

    /// A moment within the next fraction of a second.
    pub fn random_moment(&mut self) -> Duration {
        Duration::from_millis(100 + self.rng.below(500))
    }

    /// Runs all clients against `port` for `duration`, then `death`, and judges what they saw.
    ///
    /// `death` gets the shared state, to say from when on replies count for nothing.
    ///
    /// # Errors
    /// The first thing that is wrong even without a look at what survived.
    pub fn round(
        &mut self,
        port: u16,
        duration: Duration,
        death: impl FnOnce(&Shared),
    ) -> Result<Tally, String> {
        if !self.has_tokens && !self.histories[0][0].evicts() {
            tokens::make(&mut Client::connect(port).map_err(|error| error.to_string())?)?;
            self.has_tokens = true;
        }
        let shared = Shared::new(&self.histories, fields_end(port)?);
        let mut workers = Vec::new();
        for (index, histories) in self.histories.drain(..).enumerate() {
            let client = Client::connect(port).map_err(|error| format!("client {index}: {error}"))?;
            workers.push(Worker::new(index, client, self.rng.fork(), &shared, histories));
        }
        let (killed_at, stops) = run(&mut workers, duration, || death(&shared));
        let mut tally = Tally::default();
        let mut observations = Vec::new();
        for mut worker in workers {
            tally.acknowledged += worker.acknowledged;
            observations.append(&mut worker.observations);
            self.histories.push(worker.histories);
        }
        for (index, stop) in stops.into_iter().enumerate() {
            match stop {
                Stop::Wrong(what) => return Err(format!("client {index}: {what}")),
                Stop::Broken(at, error) if at < killed_at => {
                    return Err(format!("client {index} was cut off by a living server: {error}"));
                }
                Stop::Broken(..) | Stop::Cut => {}
            }
        }
        tally.observed = observations.len() as u64;
        for observation in observations {
            let keys = &mut self.histories[observation.client];
            let between = observation.between.0..=observation.between.1;
            let judged = match observation.slots {
                Seen::One(slot, sight) => keys[slot].observe(between, &sight),
                Seen::Pair(sights) => History::observe_pair(pair(keys), between, &sights),
            };
            judged.map_err(|violation| format!("client {}'s keys: {violation:?}", observation.client))?;
        }
        Ok(tally)
    }

    /// Compares every key of a restarted server with what may have survived.
    ///
    /// # Errors
    /// The broken promises: how many, and the first of them.
    pub fn verify(&mut self, port: u16) -> Result<(), String> {
        let mut client = Client::connect(port).map_err(|error| error.to_string())?;
        let mut broken = Vec::new();
        if self.has_tokens {
            let replies = tokens::reads().into_iter().map(|command| client.call(&command));
            let replies = replies.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
            broken.extend(tokens::check(&replies).err());
        }
        for (index, keys) in self.histories.iter_mut().enumerate() {
            let sights = look(&mut client, index)?;
            let mut note = |slot: usize, settled: Result<(), Violation>| {
                broken.extend(
                    settled.err().map(|violation| format!("{}: {violation:?}", load::key(index, slot))),
                );
            };
            for slot in (0..SLOTS).filter(|slot| !PAIR.contains(slot)) {
                note(slot, keys[slot].settle(&sights[slot]));
            }
            let sights = PAIR.map(|slot| sights[slot]);
            note(PAIR[0], History::settle_pair(pair(keys), &sights));
        }
        if broken.is_empty() {
            return Ok(());
        }
        let count = broken.len();
        broken.truncate(VIOLATIONS_SHOWN_MAX);
        Err(format!("{count} of {} keys broke a promise:\n{}", CLIENTS * SLOTS, broken.join("\n")))
    }
}

/// Whether the server lets fields of hashes end: Redis 7.0 does not.
fn fields_end(port: u16) -> Result<bool, String> {
    let known = Client::connect(port).and_then(|mut client| client.call(&["COMMAND", "INFO", "HPEXPIREAT"]));
    let known = known.map_err(|error| error.to_string())?;
    Ok(matches!(known, Value::Array(rows) if !matches!(rows[..], [Value::Null])))
}

/// Runs the workers on a thread each; returns when the death began, and why each stopped.
#[allow(clippy::disallowed_methods, reason = "load runs until time has passed: that is the point")]
fn run(workers: &mut [Worker<'_>], duration: Duration, death: impl FnOnce()) -> (Nanos, Vec<Stop>) {
    std::thread::scope(|scope| {
        let spawn = |worker| std::thread::Builder::new().spawn_scoped(scope, || Worker::run(worker));
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| spawn(worker).expect("a thread starts")).collect();
        std::thread::sleep(duration);
        let killed_at = SystemClock.now();
        death();
        (
            killed_at,
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect(),
        )
    })
}

/// Value and time to live of each key of one client.
fn look(client: &mut Client, index: usize) -> Result<Vec<Sight>, String> {
    let error = |error: std::io::Error| format!("reading client {index}'s keys: {error}");
    for slot in 0..SLOTS {
        client.queue(&load::read(index, slot));
        client.queue(&["PTTL", &load::key(index, slot)]);
    }
    let from = SystemClock.now();
    client.flush().map_err(error)?;
    let mut sights = Vec::new();
    for slot in 0..SLOTS {
        let reply = client.receive().map_err(error)?;
        let mut sight = load::sight(index, slot, &reply, from).map_err(|stop| format!("{stop:?}"))?;
        let ttl = client.receive().map_err(error)?;
        sight.to = SystemClock.now();
        sight.expires = match (sight.value, ttl) {
            (None, _) | (Some(_), Value::Integer(-2)) => Expires::Unknown,
            (Some(_), Value::Integer(-1)) => Expires::Never,
            (Some(_), Value::Integer(ms @ 0..)) => {
                let left = Duration::from_millis(ms as u64);
                Expires::Between(from + left, sight.to + left)
            }
            (_, other) => return Err(format!("PTTL {}: {other:?}", load::key(index, slot))),
        };
        sights.push(sight);
    }
    Ok(sights)
}

fn pair(keys: &mut [History]) -> [&mut History; 2] {
    keys.get_disjoint_mut(PAIR).expect("the pair is two different keys")
}

/// Tells the clients that from now on replies count for nothing.
pub fn announce_cut(shared: &Shared) {
    shared.cut.store(true, SeqCst);
}
