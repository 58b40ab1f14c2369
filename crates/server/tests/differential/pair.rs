//! A redis-server and an Evenkeel that do the same steps: the first answer or content that differs ends it.
//!
//! Evenkeel's disk is simulated, so that its process can die, or power fail, in the middle; then its folder is checked, too.

use std::collections::BTreeSet;
use std::path::Path;

use resp::Value;
use vfs::SimDisk;

use crate::compare::{self, Verdict};
use crate::large::{DATABASES, Step, Words, shown};
use crate::servers::{self, Evenkeel, Link, Redis};

/// Commands sent before the replies are read, and their bytes: less than the system keeps for who does not read.
const BATCH: usize = 30;
const BATCH_BYTES: usize = 64 << 10;
/// Steps of one walk, at most.
const WALK_MAX: usize = 100_000;

/// Where and how the two differ.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Number of the step.
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// The two servers.
pub(crate) struct Pair {
    redis: Redis,
    evenkeel: Option<Evenkeel>,
    disk: SimDisk,
    options: store::Options,
    /// Whether Evenkeel gets commands staged in transactions.
    is_staged: bool,
    links: [Link; 2],
    /// What a connection was told, and is told again when it is opened anew.
    protocol: Words,
    database: Words,
    restarts: u64,
    /// Most leaves that were seen.
    pub(crate) leaves: u64,
    /// Replies that differ as it is listed.
    pub(crate) listed: usize,
}

/// What a reply is compared as.
enum Expected {
    /// The reply to the command itself.
    Reply,
    /// EXEC's, to these.
    Replies(Vec<Words>),
}

/// Commands whose replies were not read yet, and the step of each.
#[derive(Default)]
struct Batch {
    commands: Vec<Words>,
    expected: Vec<(usize, Expected)>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, at: usize, command: Words, expected: Expected) {
        self.bytes += command.iter().map(Vec::len).sum::<usize>();
        self.commands.push(command);
        self.expected.push((at, expected));
    }

    fn is_full(&self, most: usize) -> bool {
        self.commands.len() >= most || self.bytes >= BATCH_BYTES
    }
}

impl Pair {
    /// Both with nothing in them; Evenkeel as `options` say, on a disk of its own.
    ///
    /// `is_staged`: it gets commands by TX.DO, those of a transaction together.
    pub(crate) fn start(options: store::Options, is_staged: bool) -> Self {
        let (redis, disk) = (Redis::start(), SimDisk::new(1));
        let options = store::Options { dir: DIR.into(), ..options };
        let options = if servers::is_always_cold() { servers::always_cold(options) } else { options };
        let evenkeel = Evenkeel::start(on_disk(&options, &disk));
        let links = links(&redis, &evenkeel, is_staged);
        let (protocol, database) = (command(&["HELLO", "2"]), command(&["SELECT", "0"]));
        let evenkeel = Some(evenkeel);
        let (restarts, leaves, listed) = (0, 0, 0);
        Self {
            redis,
            evenkeel,
            disk,
            options,
            is_staged,
            links,
            protocol,
            database,
            restarts,
            leaves,
            listed,
        }
    }

    /// Forgets everything that either of them holds.
    pub(crate) fn clear(&mut self) {
        (self.protocol, self.database) = (command(&["HELLO", "2"]), command(&["SELECT", "0"]));
        self.connect();
        let [redis, evenkeel] = self.both(&command(&["FLUSHALL"]));
        assert_eq!(redis, evenkeel);
    }

    /// Does `steps` with both.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn play(&mut self, steps: &[Step]) -> Result<(), Difference> {
        let mut batch = Batch::default();
        // what is not acknowledged yet stays in memory
        let most = if self.options.is_always_cold { 1 } else { BATCH };
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Same(words) => batch.push(at, words.clone(), Expected::Reply),
                Step::Transaction(commands, is_executed) if !self.is_staged => {
                    batch.push(at, command(&["MULTI"]), Expected::Reply);
                    commands.iter().for_each(|words| batch.push(at, words.clone(), Expected::Reply));
                    let end = if *is_executed { "EXEC" } else { "DISCARD" };
                    batch.push(at, command(&[end]), Expected::Replies(commands.clone()));
                }
                Step::Contents => self.push_contents(at, &mut batch)?,
                _ => {
                    self.send(&mut batch)?;
                    self.special(step).map_err(|text| Difference { at, text: format!("{step}: {text}") })?;
                }
            }
            if batch.is_full(most) {
                self.send(&mut batch)?;
            }
        }
        self.send(&mut batch)
    }

    /// Sends what is there, and compares the replies.
    fn send(&mut self, batch: &mut Batch) -> Result<(), Difference> {
        let batch = std::mem::take(batch);
        self.links.iter_mut().for_each(|link| link.send(&batch.commands));
        let mut found = Ok(());
        for (words, (at, expected)) in batch.commands.iter().zip(&batch.expected) {
            let [theirs, ours] = self.replies(words);
            let text = match expected {
                Expected::Reply => self.judge(words, &theirs, &ours),
                Expected::Replies(commands) => self.judge_all(commands, &theirs, &ours),
            };
            self.remember(words, &theirs);
            if let (Err(text), Ok(())) = (text, &found) {
                found = Err(Difference { at: *at, text });
            }
        }
        let leaves = self.evenkeel.as_ref().map_or(0, |evenkeel| evenkeel.store.leaf_report().leaves);
        self.leaves = self.leaves.max(leaves);
        found
    }

    /// Keeps what a connection that is opened anew must be told.
    fn remember(&mut self, words: &Words, reply: &Value) {
        match &words[0][..] {
            _ if matches!(reply, Value::Error(_)) => {}
            b"HELLO" => self.protocol = words.clone(),
            b"SELECT" if matches!(reply, Value::Simple(text) if text == b"OK") => {
                self.database = words.clone();
            }
            _ => {}
        }
    }

    fn replies(&mut self, words: &Words) -> [Value; 2] {
        let [redis, evenkeel] = self.links.each_mut().map(Link::reply);
        let silent = |server: &str| -> Value { panic!("{server} is silent: {}", shown(words)) };
        [redis.unwrap_or_else(|| silent("redis")), evenkeel.unwrap_or_else(|| silent("evenkeel"))]
    }

    /// Sends a command to both.
    fn both(&mut self, words: &Words) -> [Value; 2] {
        self.links.iter_mut().for_each(|link| link.send(std::slice::from_ref(words)));
        self.replies(words)
    }

    fn redis(&mut self, words: &Words) -> Value {
        self.links[0].send(std::slice::from_ref(words));
        self.links[0].reply().unwrap_or_else(|| panic!("redis is silent: {}", shown(words)))
    }

    fn evenkeel(&mut self, words: &Words) -> Value {
        self.links[1].send(std::slice::from_ref(words));
        self.links[1].reply().unwrap_or_else(|| panic!("evenkeel is silent: {}", shown(words)))
    }

    fn judge(&mut self, words: &Words, theirs: &Value, ours: &Value) -> Result<(), String> {
        match compare::compare(words, theirs, ours) {
            Verdict::Same => Ok(()),
            Verdict::Listed => {
                self.listed += 1;
                Ok(())
            }
            Verdict::Different => Err(format!("{}: {}", shown(words), difference(theirs, ours))),
        }
    }

    fn judge_all(&mut self, commands: &[Words], theirs: &Value, ours: &Value) -> Result<(), String> {
        match (theirs, ours) {
            (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
                let replies = commands.iter().zip(theirs.iter().zip(ours));
                replies.into_iter().try_for_each(|(words, (theirs, ours))| self.judge(words, theirs, ours))
            }
            _ => self.judge(&command(&["MULTI"]), theirs, ours),
        }
    }

    fn special(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Pop(key, count) => self.pop(key, *count),
            Step::Chosen(words) => self.chosen(words),
            Step::Walk(words, changes) => self.walk(words, changes),
            Step::TrimAbout(key, most) => self.trim_about(key, *most),
            Step::Restore(from, to) => self.restore(from, to),
            Step::Restart(is_power_loss) => self.restart(*is_power_loss),
            Step::Transaction(commands, is_executed) => self.stage(commands, *is_executed),
            Step::Same(_) | Step::Contents => {
                unreachable!("they are sent in batches")
            }
        }
    }

    /// Has Redis execute `commands`, and Evenkeel stage those of them that were no errors: an error lets a transaction only roll back.
    fn stage(&mut self, commands: &[Words], is_executed: bool) -> Result<(), String> {
        let mut commands: Vec<Words> =
            commands.iter().filter(|words| self.links[1].can_stage(words)).cloned().collect();
        let mut theirs = Vec::new();
        if is_executed {
            self.redis(&command(&["MULTI"]));
            commands.iter().for_each(|words| _ = self.redis(words));
            let Value::Array(replies) = self.redis(&command(&["EXEC"])) else { return Err("no EXEC".into()) };
            let all = std::mem::take(&mut commands).into_iter().zip(replies);
            (commands, theirs) = all.filter(|(_, reply)| !matches!(reply, Value::Error(_))).unzip();
        }
        let (ours, end) = self.links[1].stage_together(&commands, is_executed);
        let pairs = commands.iter().zip(theirs.iter().zip(&ours));
        pairs.into_iter().try_for_each(|(words, (theirs, ours))| self.judge(words, theirs, ours))?;
        let expected = if is_executed { "committed" } else { "aborted" };
        if flat(&end).first().is_some_and(|word| word == expected.as_bytes()) {
            Ok(())
        } else {
            Err(format!("it is to be {expected}: {end:?}"))
        }
    }

    /// Both answered the same error to `words`; or what Evenkeel answered.
    fn answered(&mut self, words: &Words) -> Result<Option<Value>, String> {
        let ours = self.evenkeel(words);
        if !matches!(ours, Value::Error(_)) {
            return Ok(Some(ours));
        }
        let theirs = self.redis(words);
        self.judge(words, &theirs, &ours).map(|()| None)
    }

    fn pop(&mut self, key: &[u8], count: Option<u64>) -> Result<(), String> {
        let number = count.map(|count| count.to_string().into_bytes());
        let words = [vec![b"SPOP".to_vec(), key.to_vec()], number.into_iter().collect()].concat();
        let Some(ours) = self.answered(&words)? else { return Ok(()) };
        let popped = flat(&ours);
        let card = self.number(&["SCARD"], key)?;
        let wanted = card.min(count.unwrap_or(1));
        if popped.len() as u64 != wanted {
            return Err(format!("{} popped of {card}", popped.len()));
        }
        if wanted == 0 {
            return Ok(());
        }
        let removed = self.redis(&[vec![b"SREM".to_vec(), key.to_vec()], popped].concat());
        if removed == Value::Integer(wanted as i64) {
            Ok(())
        } else {
            Err(format!("of {wanted} popped there were {removed:?}"))
        }
    }

    /// What Redis counts.
    fn number(&mut self, name: &[&str], key: &[u8]) -> Result<u64, String> {
        let reply = self.redis(&[command(name), vec![key.to_vec()]].concat());
        match reply {
            Value::Integer(count) => Ok(count as u64),
            other => Err(format!("redis counts {other:?}")),
        }
    }

    fn chosen(&mut self, words: &Words) -> Result<(), String> {
        let Some(ours) = self.answered(words)? else { return Ok(()) };
        let (count, look) = match &words[0][..] {
            b"SRANDMEMBER" => ("SCARD", "SMISMEMBER"),
            b"HRANDFIELD" => ("HLEN", "HMGET"),
            _ => ("ZCARD", "ZMSCORE"),
        };
        let (key, is_pairs) = (&words[1], words.len() > 3);
        let items = flat(&ours);
        let elements: Words = items.iter().step_by(1 + usize::from(is_pairs)).cloned().collect();
        let wanted: i64 = String::from_utf8_lossy(&words[2]).parse().expect("a number");
        let card = self.number(&[count], key)?;
        let most =
            if wanted < 0 && card > 0 { wanted.unsigned_abs() } else { card.min(wanted.max(0) as u64) };
        let distinct: BTreeSet<&Vec<u8>> = elements.iter().collect();
        if elements.len() as u64 != most || (wanted > 0 && distinct.len() < elements.len()) {
            return Err(format!(
                "{} elements, {} of them distinct, of {card}",
                elements.len(),
                distinct.len()
            ));
        }
        if most == 0 {
            return Ok(());
        }
        let found = self.redis(&[command(&[look]), vec![key.clone()], elements].concat());
        let Value::Array(found) = found else { return Err(format!("redis looks up {found:?}")) };
        // Redis keeps -0 as 0 in a listpack alone
        let text = |value: &Value| Some(text(value)).filter(|text| text != "-0").unwrap_or("0".into());
        let found: Vec<_> = found.iter().map(text).collect();
        if is_pairs {
            let ours: Vec<_> = items.chunks(2).map(|pair| text(&Value::Bulk(pair[1].clone()))).collect();
            return if ours == found { Ok(()) } else { Err(format!("values {ours:?} are {found:?}")) };
        }
        let all = found.iter().all(|found| found == "1");
        if all || look == "HMGET" && found.iter().all(|found| found != NONE) {
            Ok(())
        } else {
            Err("one is not there".into())
        }
    }

    fn whole(&mut self, words: &Words) -> Result<BTreeSet<Vec<u8>>, String> {
        let (key, name) = (words[1].clone(), &words[0][..]);
        let pairs = name != b"SSCAN";
        let reply = self.redis(&match name {
            b"HSCAN" => vec![b"HGETALL".to_vec(), key],
            b"SSCAN" => vec![b"SMEMBERS".to_vec(), key],
            _ => vec![b"ZRANGE".to_vec(), key, b"0".to_vec(), b"-1".to_vec(), b"WITHSCORES".to_vec()],
        });
        if matches!(reply, Value::Error(_)) {
            return Err(format!("redis has {reply:?}"));
        }
        Ok(items(&flat(&reply), pairs, name == b"ZSCAN"))
    }

    fn walk(&mut self, words: &Words, changes: &[Words]) -> Result<(), String> {
        let with_cursor = |cursor: Vec<u8>| [&words[..2], &[cursor], &words[2..]].concat();
        let mut cursor = b"0".to_vec();
        if self.answered(&with_cursor(cursor.clone()))?.is_none() {
            return Ok(());
        }
        let is_scores = words[0] == b"ZSCAN";
        let mut always = self.whole(words)?;
        let (mut ever, mut met) = (always.clone(), BTreeSet::new());
        let mut changes = changes.iter();
        for _ in 0..WALK_MAX {
            let reply = self.evenkeel(&with_cursor(cursor));
            let Value::Array(parts) = &reply else { return Err(format!("{reply:?}")) };
            let [Value::Bulk(next), found] = &parts[..] else { return Err(format!("{reply:?}")) };
            met.extend(items(&flat(found), words[0] != b"SSCAN", is_scores));
            if next == b"0" {
                return match (always.difference(&met).next(), met.difference(&ever).next()) {
                    (None, None) => Ok(()),
                    (Some(missed), _) => Err(format!("missed {}", missed.escape_ascii())),
                    (_, Some(strange)) => Err(format!("{} was never there", strange.escape_ascii())),
                };
            }
            cursor = next.clone();
            if let Some(change) = changes.next() {
                let [theirs, ours] = self.both(change);
                self.judge(change, &theirs, &ours)?;
                let now = self.whole(words).unwrap_or_default();
                always.retain(|item| now.contains(item));
                ever.extend(now);
            }
        }
        Err(format!("no end after {WALK_MAX} steps"))
    }

    fn trim_about(&mut self, key: &[u8], most: u64) -> Result<(), String> {
        let trim = |how: &[&str]| [command(&["XTRIM"]), vec![key.to_vec()], command(how)].concat();
        let Some(ours) = self.answered(&trim(&["MAXLEN", "~", &most.to_string()]))? else { return Ok(()) };
        let kept = self.evenkeel(&[command(&["XLEN"]), vec![key.to_vec()]].concat());
        let (Value::Integer(kept), Value::Integer(gone)) = (&kept, &ours) else {
            return Err(format!("{kept:?}"));
        };
        if *gone > 0 && (*kept as u64) < most {
            return Err(format!("{kept} are left"));
        }
        let theirs = self.redis(&trim(&["MAXLEN", &kept.to_string()]));
        if theirs == ours { Ok(()) } else { Err(difference(&theirs, &ours)) }
    }

    /// Each restores the payload of the other; of streams its own: Redis 7.0 makes no consumer for a read that finds nothing, and would get ours.
    fn restore(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let payloads = self.both(&vec![b"DUMP".to_vec(), from.to_vec()]);
        let [Value::Bulk(theirs), Value::Bulk(ours)] = payloads else {
            let [theirs, ours] = payloads;
            return if theirs == ours { Ok(()) } else { Err(difference(&theirs, &ours)) };
        };
        let is_stream = matches!(theirs.first(), Some(15 | 19 | 21));
        let payloads = if is_stream { [theirs, ours] } else { [ours, theirs] };
        for (link, payload) in self.links.iter_mut().zip(payloads) {
            let end = b"REPLACE".to_vec();
            link.send(&[vec![b"RESTORE".to_vec(), to.to_vec(), b"0".to_vec(), payload, end]]);
        }
        let [theirs, ours] = self.replies(&command(&["RESTORE"]));
        if theirs == ours { Ok(()) } else { Err(difference(&theirs, &ours)) }
    }

    fn restart(&mut self, is_power_loss: bool) -> Result<(), String> {
        self.restarts += 1;
        let disk = if is_power_loss { self.disk.crash(self.restarts) } else { self.disk.process_death() };
        // the disk of the old one is off: nothing that it still does arrives
        drop(self.evenkeel.take());
        let checked = store::check(&disk.fork(), Path::new(DIR)).map_err(|error| error.to_string())?;
        let damage = checked.journal.damage;
        // a damaged folder may not open: what follows finds an empty one
        self.disk = if damage.is_empty() { disk } else { SimDisk::new(1) };
        self.evenkeel = Some(Evenkeel::start(on_disk(&self.options, &self.disk)));
        self.connect();
        if damage.is_empty() { Ok(()) } else { Err(format!("the folder is damaged: {damage:?}")) }
    }

    fn connect(&mut self) {
        let evenkeel = self.evenkeel.as_ref().expect("it runs");
        self.links = links(&self.redis, evenkeel, self.is_staged);
        for words in [self.protocol.clone(), self.database.clone()] {
            self.both(&words);
        }
    }

    /// Commands that show everything.
    fn push_contents(&mut self, at: usize, batch: &mut Batch) -> Result<(), Difference> {
        self.send(batch)?;
        let database = self.database.clone();
        for db in 0..DATABASES {
            batch.push(at, command(&["SELECT", &db.to_string()]), Expected::Reply);
            batch.push(at, command(&["KEYS", "*"]), Expected::Reply);
            self.send(batch)?;
            let keys = flat(&self.redis(&command(&["KEYS", "*"])));
            self.scan(&keys).map_err(|text| Difference { at, text })?;
            for key in keys {
                let kind = text(&self.redis(&[command(&["TYPE"]), vec![key.clone()]].concat()));
                for line in looks(&kind) {
                    let word = |word: &str| if word == "KEY" { key.clone() } else { word.into() };
                    batch.push(at, line.split(' ').map(word).collect(), Expected::Reply);
                }
                self.send(batch)?;
            }
        }
        batch.push(at, database, Expected::Reply);
        Ok(())
    }
}

impl Pair {
    /// SCAN tells all keys, and each once: nothing changes meanwhile.
    fn scan(&mut self, keys: &Words) -> Result<(), String> {
        let (mut cursor, mut met) = (b"0".to_vec(), Vec::new());
        loop {
            let reply = self.evenkeel(&[command(&["SCAN"]), vec![cursor], command(&["COUNT", "5"])].concat());
            let Value::Array(parts) = &reply else { return Err(format!("{reply:?}")) };
            met.extend(flat(&parts[1]));
            cursor = text(&parts[0]).into_bytes();
            if cursor == b"0" {
                break;
            }
        }
        let (mut keys, mut sorted) = (keys.clone(), met);
        keys.sort();
        sorted.sort();
        if keys == sorted { Ok(()) } else { Err(format!("SCAN tells {sorted:?} of {keys:?}")) }
    }
}

/// Commands that show all of a key of this type.
fn looks(kind: &str) -> &'static [&'static str] {
    match kind {
        "string" => &["GET KEY", "PEXPIRETIME KEY"],
        "list" => &["LRANGE KEY 0 -1", "LLEN KEY", "PEXPIRETIME KEY"],
        "hash" => &["HGETALL KEY", "HLEN KEY", "PEXPIRETIME KEY"],
        "set" => &["SMEMBERS KEY", "SCARD KEY", "PEXPIRETIME KEY"],
        "zset" => &["ZRANGE KEY 0 -1 WITHSCORES", "ZCARD KEY", "PEXPIRETIME KEY"],
        _ => &[
            "XRANGE KEY - +",
            "XLEN KEY",
            "XINFO STREAM KEY",
            "XINFO GROUPS KEY",
            "XINFO CONSUMERS KEY g1",
            "XINFO CONSUMERS KEY g2",
            "XPENDING KEY g1 - + 100000",
            "XPENDING KEY g2 - + 100000",
            "PEXPIRETIME KEY",
        ],
    }
}

fn links(redis: &Redis, evenkeel: &Evenkeel, is_staged: bool) -> [Link; 2] {
    let ours = if is_staged { Link::staging(evenkeel.port) } else { Link::open(evenkeel.port) };
    [Link::open(redis.port), ours]
}

fn on_disk(options: &store::Options, disk: &SimDisk) -> store::Options {
    store::Options { vfs: std::sync::Arc::new(disk.clone()), dir: DIR.into(), ..options.clone() }
}

fn command(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Two values, and of large ones where they begin to differ.
fn difference(theirs: &Value, ours: &Value) -> String {
    let cut = |value: &Value| format!("{value:?}").chars().take(600).collect::<String>();
    let lengths = |value: &Value| flat(value).len();
    let (a, b) = (flat(theirs), flat(ours));
    let first = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let at = |items: &Words| items.get(first).map(|item| item.escape_ascii().to_string());
    format!(
        "\n  redis:    {}\n  evenkeel: {}\n  of {} and {} items number {first} is {:?} and {:?}",
        cut(theirs),
        cut(ours),
        lengths(theirs),
        lengths(ours),
        at(&a),
        at(&b)
    )
}

/// All strings and numbers of a value, in its order.
fn flat(value: &Value) -> Words {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => items.iter().flat_map(flat).collect(),
        Value::Map(pairs) => {
            pairs.iter().flat_map(|(key, value)| [flat(key), flat(value)].concat()).collect()
        }
        Value::Null => Vec::new(),
        other => vec![text(other).into_bytes()],
    }
}

/// A string, or a number as all of them are written here.
fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) | Value::Error(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        Value::Integer(number) => number.to_string(),
        Value::Double(number) => (number + 0.0).to_string(),
        Value::Null => NONE.to_owned(),
        other => format!("{other:?}"),
    }
}

/// Elements, or pairs of them with their values; scores are written in one way.
fn items(flat: &Words, is_pairs: bool, is_scores: bool) -> BTreeSet<Vec<u8>> {
    let pair = |pair: &[Vec<u8>]| {
        let value = String::from_utf8_lossy(&pair[1]);
        let value = match value.parse::<f64>() {
            Ok(score) if is_scores => (score + 0.0).to_string(),
            _ => value.into_owned(),
        };
        [&pair[0][..], b"=", value.as_bytes()].concat()
    };
    if is_pairs { flat.chunks_exact(2).map(pair).collect() } else { flat.iter().cloned().collect() }
}

const DIR: &str = "/data";
/// What a lookup answers that finds nothing.
const NONE: &str = "(nil)";
