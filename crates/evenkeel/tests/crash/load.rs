//! Fifty clients that write keys of their own, read each other's, and write down what they were told.
//!
//! Each client owns `PLAIN` keys (SET, SET PX, DEL, PEXPIRE), one counter (INCR), a pair that is only
//! written inside MULTI, a long string that is changed in parts (module `long`), and a collection of each type (module `collections`). Where
//! keys may be evicted, all but the first are set whole: what they build on may be gone. Where not, all clients move the same tokens
//! between lists and sets, too (module `tokens`). A value names its key and version and fills up with bytes that follow from both,
//! so that a wrong, mixed or torn value shows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use resp::Value;
use vfs::sim::Rng;

use crate::client::Client;
use crate::collections::{self, Command, KINDS, KINDS_OF_REDIS};
use crate::history::{Deadline, Expires, History, Sight, State, Version};
use crate::long::{self, Change, Kind};
use crate::tokens;

pub const CLIENTS: usize = 50;
const PLAIN: usize = 6;
pub const COUNTER: usize = PLAIN;
pub const PAIR: [usize; 2] = [PLAIN + 1, PLAIN + 2];
/// The long string.
const LONG: usize = PLAIN + 3;
/// The collections, one of each type.
const COLLECTIONS: usize = PLAIN + 4;
pub const SLOTS: usize = COLLECTIONS + KINDS.len();
/// Most commands that a client sends at once.
const PIPELINE_MAX: u64 = 8;
/// An unanswered command was executed within this, or never.
const EXECUTION_TIME_MAX: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(3_600);

/// What all clients may know of all keys: the newest version that was sent, and that was acknowledged.
pub struct Shared {
    sent: Vec<[AtomicU64; SLOTS]>,
    acked: Vec<[AtomicU64; SLOTS]>,
    /// Set before the power goes: replies from then on count for nothing.
    pub cut: AtomicBool,
    /// How many of the collections' types the server has.
    kinds: usize,
}

impl Shared {
    /// Bounds as they are when every history is settled, for a server whose fields end or not.
    pub fn new(histories: &[Vec<History>], fields_end: bool) -> Self {
        let bounds = |of: fn(&History) -> Version| {
            let slots = |keys: &Vec<History>| std::array::from_fn(|slot| AtomicU64::new(of(&keys[slot])));
            histories.iter().map(slots).collect()
        };
        let (sent, acked) = (bounds(History::sent), bounds(History::acked));
        let kinds = if fields_end { KINDS.len() } else { KINDS_OF_REDIS };
        Self { sent, acked, cut: AtomicBool::new(false), kinds }
    }
}

/// What a reader saw; judged when all clients have stopped.
pub struct Observation {
    pub client: usize,
    pub slots: Seen,
    pub between: (Version, Version),
}

pub enum Seen {
    One(usize, Sight),
    Pair([Sight; 2]),
}

/// Why a client stopped.
#[derive(Debug)]
pub enum Stop {
    /// The power was cut before its reply.
    Cut,
    /// Its connection broke, at that time.
    Broken(Nanos, std::io::Error),
    /// A reply that no order of events explains.
    Wrong(String),
}

pub struct Worker<'a> {
    index: usize,
    client: Client,
    rng: Rng,
    shared: &'a Shared,
    plan: Vec<Planned>,
    pub histories: Vec<History>,
    pub observations: Vec<Observation>,
    pub acknowledged: u64,
}

/// A command that was sent, and what its reply will mean.
enum Planned {
    Write {
        slot: usize,
        version: Version,
        expected: Expected,
        ttl: Option<Duration>,
    },
    Pair {
        version: Version,
    },
    Long {
        version: Version,
        replies: Vec<Value>,
    },
    /// So many commands, in a transaction if there are several.
    Collection {
        slot: usize,
        version: Version,
        commands: usize,
    },
    Move,
    ReadTokens,
    Read {
        client: usize,
        slot: usize,
        acked: Version,
    },
    ReadPair {
        client: usize,
        acked: Version,
    },
}

enum Expected {
    Ok,
    Integer(i64),
    AnyInteger,
}

impl<'a> Worker<'a> {
    pub fn new(index: usize, client: Client, rng: Rng, shared: &'a Shared, histories: Vec<History>) -> Self {
        Self { index, client, rng, shared, plan: vec![], histories, observations: vec![], acknowledged: 0 }
    }

    /// Sends commands until the connection breaks or the power is cut.
    pub fn run(&mut self) -> Stop {
        loop {
            if let Err(stop) = self.batch() {
                return stop;
            }
        }
    }

    fn batch(&mut self) -> Result<(), Stop> {
        let count = if self.rng.chance(1, 4) { 1 + self.rng.below(PIPELINE_MAX) } else { 1 };
        for _ in 0..count {
            match self.rng.below(29) {
                22..27 => self.plan_collection(),
                27 | 28 if self.evicts() => self.plan_collection(),
                27 => self.plan_move(),
                28 => self.plan_read_tokens(),
                0..7 => self.plan_write(),
                7..9 => self.plan_count(),
                9..12 => self.plan_pair(),
                12..14 => self.plan_read_pair(),
                14..16 => self.plan_long(),
                _ => self.plan_read(),
            }
        }
        let from = SystemClock.now();
        self.client.flush().map_err(broken)?;
        for planned in std::mem::take(&mut self.plan) {
            let reply = self.client.receive().map_err(broken)?;
            self.on_reply(&planned, from, reply)?;
        }
        Ok(())
    }

    // ---- sending -----------------------------------------------------------------------------------

    fn plan_write(&mut self) {
        let slot = self.rng.index(PLAIN);
        let (key, state, now) = (key(self.index, slot), self.histories[slot].newest(), SystemClock.now());
        let version = self.histories[slot].sent() + 1;
        let soon = Duration::from_millis(20 + self.rng.below(200));
        let lasting = certain_to_last(state, now);
        let (new, expected, ttl) = match (self.rng.below(10), lasting) {
            (0..2, _) => {
                self.client.queue(&["DEL", &key]);
                let expected = match state {
                    State::Absent => Expected::Integer(0),
                    State::Present { .. } if lasting.is_some() && !self.evicts() => Expected::Integer(1),
                    State::Present { .. } => Expected::AnyInteger,
                };
                (State::Absent, expected, None)
            }
            (kind @ 2..5, Some(written)) => {
                let ttl = if kind == 2 { soon } else { LATER };
                self.client.queue(&["PEXPIRE", &key, &ttl.as_millis().to_string()]);
                let expected = if self.evicts() { Expected::AnyInteger } else { Expected::Integer(1) };
                (until(written, now, ttl), expected, Some(ttl))
            }
            (5, _) => {
                let value = value(self.index, slot, version);
                self.client.queue(&[
                    b"SET",
                    key.as_bytes(),
                    &value,
                    b"PX",
                    soon.as_millis().to_string().as_bytes(),
                ]);
                (until(version, now, soon), Expected::Ok, Some(soon))
            }
            _ => {
                self.client.queue(&[b"SET", key.as_bytes(), &value(self.index, slot, version)]);
                (State::Present { written: version, deadline: None }, Expected::Ok, None)
            }
        };
        self.send(slot, new);
        self.plan.push(Planned::Write { slot, version, expected, ttl });
    }

    fn plan_count(&mut self) {
        let (key, version) = (key(self.index, COUNTER), self.histories[COUNTER].sent() + 1);
        // a counter that may vanish begins anew
        let expected = if self.evicts() {
            self.client.queue(&["SET", &key, &version.to_string()]);
            Expected::Ok
        } else {
            self.client.queue(&["INCR", &key]);
            Expected::Integer(version as i64)
        };
        self.send(COUNTER, State::Present { written: version, deadline: None });
        self.plan.push(Planned::Write { slot: COUNTER, version, expected, ttl: None });
    }

    fn plan_pair(&mut self) {
        let version = self.histories[PAIR[0]].sent() + 1;
        let removes = self.rng.chance(1, 4);
        self.client.queue(&["MULTI"]);
        for slot in PAIR {
            let key = key(self.index, slot);
            if removes {
                self.client.queue(&["DEL", &key]);
                self.send(slot, State::Absent);
            } else {
                self.client.queue(&[b"SET", key.as_bytes(), &value(self.index, slot, version)]);
                self.send(slot, State::Present { written: version, deadline: None });
            }
        }
        self.client.queue(&["EXEC"]);
        self.plan.push(Planned::Pair { version });
    }

    fn plan_long(&mut self) {
        let (key, version) = (key(self.index, LONG), self.histories[LONG].sent() + 1);
        let changes = if self.evicts() {
            let bytes = long::content(self.index, version);
            vec![Change { kind: Kind::Set, len: bytes.len(), bytes }]
        } else {
            long::changes(self.index, version)
        };
        self.send(LONG, State::Present { written: version, deadline: None });
        let is_group = changes.len() > 1;
        if is_group {
            self.client.queue(&["MULTI"]);
        }
        let mut replies = Vec::new();
        for Change { kind, bytes, len } in changes {
            match kind {
                Kind::Set => self.client.queue(&[b"SET", key.as_bytes(), &bytes]),
                Kind::Append => self.client.queue(&[b"APPEND", key.as_bytes(), &bytes]),
                Kind::SetRange(at) => {
                    let at = at.to_string();
                    self.client.queue(&[b"SETRANGE", key.as_bytes(), at.as_bytes(), &bytes]);
                }
            }
            replies.push(if kind == Kind::Set { simple("OK") } else { Value::Integer(len as i64) });
        }
        if is_group {
            self.client.queue(&["EXEC"]);
            let queued = replies.iter().map(|_| simple("QUEUED"));
            let mut all: Vec<Value> = [simple("OK")].into_iter().chain(queued).collect();
            all.push(Value::Array(replies));
            replies = all;
        }
        self.plan.push(Planned::Long { version, replies });
    }

    fn plan_collection(&mut self) {
        let kind = KINDS[self.rng.index(self.shared.kinds)];
        let slot = COLLECTIONS + kind as usize;
        let (key, version) = (key(self.index, slot), self.histories[slot].sent() + 1);
        let commands = if self.evicts() {
            collections::whole(kind, &key, version)
        } else {
            collections::commands(kind, &key, version)
        };
        self.send(
            slot,
            match collections::is_empty(version) {
                true => State::Absent,
                false => State::Present { written: version, deadline: None },
            },
        );
        self.queue_group(&commands);
        self.plan.push(Planned::Collection { slot, version, commands: commands.len() });
    }

    fn plan_move(&mut self) {
        let command = tokens::random_move(&mut self.rng);
        self.client.queue(&command);
        self.plan.push(Planned::Move);
    }

    fn plan_read_tokens(&mut self) {
        self.queue_group(&tokens::reads());
        self.plan.push(Planned::ReadTokens);
    }

    /// Queues the commands, as a transaction if there are several.
    fn queue_group(&mut self, commands: &[Command]) {
        if let [command] = commands {
            return self.client.queue(command);
        }
        self.client.queue(&["MULTI"]);
        commands.iter().for_each(|command| self.client.queue(command));
        self.client.queue(&["EXEC"]);
    }

    fn plan_read(&mut self) {
        let (client, slot) = (self.rng.index(CLIENTS), self.rng.index(SLOTS));
        let acked = self.shared.acked[client][slot].load(SeqCst);
        self.client.queue(&read(client, slot));
        self.plan.push(Planned::Read { client, slot, acked });
    }

    fn plan_read_pair(&mut self) {
        let client = self.rng.index(CLIENTS);
        let acked = self.shared.acked[client][PAIR[0]].load(SeqCst);
        self.client.queue(&["MGET", &key(client, PAIR[0]), &key(client, PAIR[1])]);
        self.plan.push(Planned::ReadPair { client, acked });
    }

    /// Whether any key may be gone.
    fn evicts(&self) -> bool {
        self.histories[0].evicts()
    }

    /// Tells everybody of a version before the server can.
    fn send(&mut self, slot: usize, state: State) {
        let version = self.histories[slot].send(state);
        self.shared.sent[self.index][slot].store(version, SeqCst);
    }

    // ---- replies -----------------------------------------------------------------------------------

    fn on_reply(&mut self, planned: &Planned, from: Nanos, reply: Value) -> Result<(), Stop> {
        match planned {
            Planned::Write { slot, version, expected, ttl } => {
                self.check_not_cut()?;
                let fits = match (expected, &reply) {
                    (Expected::Ok, Value::Simple(text)) => text == b"OK",
                    (Expected::Integer(wanted), Value::Integer(got)) => wanted == got,
                    (Expected::AnyInteger, Value::Integer(got)) => (0..=1).contains(got),
                    _ => false,
                };
                let (client, history) = (self.index, &self.histories[*slot]);
                if !fits {
                    return wrong(format!(
                        "write {version} of {}: {reply:?}, {history:?}",
                        key(client, *slot)
                    ));
                }
                self.acknowledge(*slot, *version, *ttl);
                if self.evicts() && reply == Value::Integer(0) {
                    self.histories[*slot].found_none(*version);
                }
            }
            Planned::Pair { version } => self.on_exec(*version, reply)?,
            Planned::Long { version, replies } => self.on_long(*version, replies, reply)?,
            Planned::Collection { slot, version, commands } => {
                self.receive_group(*commands, reply)?;
                self.acknowledge(*slot, *version, None);
            }
            Planned::Move => {
                self.check_not_cut()?;
                if let Value::Error(_) = reply {
                    return wrong(format!("moving a token: {reply:?}"));
                }
                self.acknowledged += 1;
            }
            Planned::ReadTokens => {
                let replies = self.receive_group(tokens::reads().len(), reply)?;
                tokens::check(&replies).map_err(Stop::Wrong)?;
            }
            Planned::Read { client, slot, acked } => {
                self.check_not_cut()?;
                let sight = sight(*client, *slot, &reply, from)?;
                let sent = self.shared.sent[*client][*slot].load(SeqCst);
                let slots = Seen::One(*slot, sight);
                self.observations.push(Observation { client: *client, slots, between: (*acked, sent) });
            }
            Planned::ReadPair { client, acked } => {
                self.check_not_cut()?;
                let Value::Array(values) = &reply else { return wrong(format!("MGET: {reply:?}")) };
                let [one, two] = values.as_slice() else { return wrong(format!("MGET: {reply:?}")) };
                let sights = [sight(*client, PAIR[0], one, from)?, sight(*client, PAIR[1], two, from)?];
                let sent = self.shared.sent[*client][PAIR[1]].load(SeqCst);
                let slots = Seen::Pair(sights);
                self.observations.push(Observation { client: *client, slots, between: (*acked, sent) });
            }
        }
        Ok(())
    }

    fn on_exec(&mut self, version: Version, multi: Value) -> Result<(), Stop> {
        let mut replies = vec![multi];
        for _ in 0..3 {
            replies.push(self.client.receive().map_err(broken)?);
        }
        self.check_not_cut()?;
        let queued = |reply: &Value| *reply == simple("QUEUED");
        let executed = |reply: &Value| matches!(reply, Value::Array(items) if items.len() == 2);
        if replies[0] != simple("OK")
            || !queued(&replies[1])
            || !queued(&replies[2])
            || !executed(&replies[3])
        {
            return wrong(format!("MULTI: {replies:?}"));
        }
        for slot in PAIR {
            self.acknowledge(slot, version, None);
        }
        Ok(())
    }

    fn on_long(&mut self, version: Version, wanted: &[Value], first: Value) -> Result<(), Stop> {
        let mut replies = vec![first];
        for _ in 1..wanted.len() {
            replies.push(self.client.receive().map_err(broken)?);
        }
        self.check_not_cut()?;
        if replies != wanted {
            let key = key(self.index, LONG);
            return wrong(format!("write {version} of {key}: {replies:?} instead of {wanted:?}"));
        }
        self.acknowledge(LONG, version, None);
        Ok(())
    }

    /// The replies to so many commands of [`Worker::queue_group`], none of them an error.
    fn receive_group(&mut self, commands: usize, first: Value) -> Result<Vec<Value>, Stop> {
        let mut replies = vec![first];
        if commands > 1 {
            for _ in 0..=commands {
                replies.push(self.client.receive().map_err(broken)?);
            }
        }
        self.check_not_cut()?;
        let executed = match replies.pop() {
            Some(Value::Array(executed)) if commands > 1 => executed,
            single => single.into_iter().collect(),
        };
        let has_failed = executed.iter().any(|reply| matches!(reply, Value::Error(_)));
        match executed.len() == commands && !has_failed {
            true => Ok(executed),
            false => wrong(format!("{commands} commands: {replies:?}, {executed:?}")),
        }
    }

    fn acknowledge(&mut self, slot: usize, version: Version, ttl: Option<Duration>) {
        self.histories[slot].acknowledge(version, SystemClock.now(), ttl);
        self.shared.acked[self.index][slot].store(version, SeqCst);
        self.acknowledged += 1;
    }

    /// A reply that was received before the flag was set was sent before the power went.
    fn check_not_cut(&self) -> Result<(), Stop> {
        if self.shared.cut.load(SeqCst) { Err(Stop::Cut) } else { Ok(()) }
    }
}

/// The version that wrote a value which will not expire during the test.
fn certain_to_last(state: State, now: Nanos) -> Option<Version> {
    match state {
        State::Present { written, deadline: None } => Some(written),
        State::Present { written, deadline: Some(deadline) } if deadline.earliest > now + LATER / 2 => {
            Some(written)
        }
        _ => None,
    }
}

fn until(written: Version, now: Nanos, ttl: Duration) -> State {
    let deadline = Deadline { earliest: now + ttl, latest: now + ttl + EXECUTION_TIME_MAX };
    State::Present { written, deadline: Some(deadline) }
}

/// What `reply` says of a key, read some time since `from`.
pub fn sight(client: usize, slot: usize, reply: &Value, from: Nanos) -> Result<Sight, Stop> {
    let value = match reply {
        _ if slot >= COLLECTIONS => match collections::version_of(KINDS[slot - COLLECTIONS], reply) {
            Ok(version) => version,
            Err(what) => return wrong(format!("{}: {what}", key(client, slot))),
        },
        Value::Null => None,
        Value::Bulk(bytes) if slot == LONG => match long::version_of(client, bytes) {
            Ok(version) => Some(version),
            Err(what) => return wrong(format!("{}: {what}", key(client, slot))),
        },
        Value::Bulk(bytes) => match version_of(client, slot, bytes) {
            Some(version) => Some(version),
            None => return wrong(format!("{} holds {}", key(client, slot), bytes.escape_ascii())),
        },
        other => return wrong(format!("GET {}: {other:?}", key(client, slot))),
    };
    Ok(Sight { value, expires: Expires::Unknown, from, to: SystemClock.now() })
}

/// The command that reads a key of a client.
pub fn read(client: usize, slot: usize) -> Command {
    let key = key(client, slot);
    if slot < COLLECTIONS {
        vec!["GET".to_owned(), key]
    } else {
        collections::read(KINDS[slot - COLLECTIONS], &key)
    }
}

pub fn key(client: usize, slot: usize) -> String {
    format!("client:{client}:key:{slot}")
}

/// The value of one version: its name, then bytes that follow from it; now and then a few blocks long.
fn value(client: usize, slot: usize, version: Version) -> Vec<u8> {
    let mut rng = Rng::new(version ^ (client as u64) << 40 ^ (slot as u64) << 56);
    let length = if rng.chance(1, 64) { rng.index(20_000) } else { rng.index(300) };
    let mut value = format!("{client}.{slot}.{version}.").into_bytes();
    value.extend((0..length).map(|_| b'a' + rng.below(26) as u8));
    value
}

fn version_of(client: usize, slot: usize, bytes: &[u8]) -> Option<Version> {
    let text = std::str::from_utf8(bytes).ok()?;
    if slot == COUNTER {
        return text.parse().ok();
    }
    let version = text.split('.').nth(2)?.parse().ok()?;
    (value(client, slot, version) == bytes).then_some(version)
}

fn simple(text: &str) -> Value {
    Value::Simple(text.as_bytes().to_vec())
}

fn broken(error: std::io::Error) -> Stop {
    Stop::Broken(SystemClock.now(), error)
}

fn wrong<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Wrong(what))
}
