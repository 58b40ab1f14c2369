//! A capture as a script: what each connection sends, in its order, and when.
//!
//! | recorded | sent |
//! |---|---|
//! | a key's hash | a key of the same length; another one for each key, where the length has room for that |
//! | a value's size | a value of that size; digits if it is short, so that counters count |
//! | MULTI and what it keeps | the same; parts of a transaction whose beginning is not in the capture are left out |
//! | the database | SELECT, where it changes |
//! | whatever is about the server, a connection or messages; what empties databases; RESTORE without its payload | nothing: counted |

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use capture::{Argument, Capture, Command, FAILED, QUEUED, Record, Turn};
use hdrhistogram::Histogram;

use super::tally::new_histogram;
use crate::Failure;

/// What all connections send.
#[derive(Debug)]
pub struct Script {
    file: Vec<u8>,
    /// Names, by the numbers of the capture.
    commands: Vec<(String, Shows)>,
    tracks: Vec<Track>,
    /// Keys that are too short for their hash, numbered by length.
    short_keys: HashMap<(u32, u64), u64>,
    filler: Vec<u8>,
    /// What the capture tells of the requests that are replayed.
    pub recorded: Recorded,
    /// Requests that are not, by their command.
    pub skipped: BTreeMap<String, u64>,
    /// What the file lacks, in words.
    pub lacks: Option<String>,
}

/// What the capture tells of the requests that are replayed.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// How many they are.
    pub requests: u64,
    /// Those that were answered with an error.
    pub errors: u64,
    /// Keys that GET, GETEX and MGET found.
    pub hits: u64,
    /// And did not.
    pub misses: u64,
    /// In nanoseconds, as the server saw them: from arrival until the reply might leave. No error is among them.
    pub latencies: Histogram<u64>,
    /// Replies of which nobody knows when they left.
    pub unknown: u64,
    /// Records that the file lacks.
    pub dropped: u64,
    /// Length of the capture.
    pub length: Duration,
}

/// What one connection sends.
#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) sends: Vec<Sending>,
    state: State,
}

/// Where a connection is, as far as the script is written.
#[derive(Debug)]
struct State {
    /// `None`: it is not known.
    database: Option<u16>,
    in_multi: bool,
    /// SELECT is among what the transaction does.
    selects: bool,
}

/// One request of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// After the start, in nanoseconds.
    pub(super) due_ns: u64,
    /// Requests of one turn came together.
    pub(super) turn: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The record at this offset of the file.
    Record(usize),
    Select(u16),
    Discard,
}

/// What a request's reply is looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    /// Whether a key was there.
    One,
    /// The same for several.
    Many,
}

/// What is known of a request that was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) shows: Shows,
    /// It was answered with an error.
    pub(super) fails: bool,
    /// It is not of the capture, but needed.
    pub(super) is_ours: bool,
}

impl Script {
    /// Makes a script of a capture's file.
    ///
    /// # Errors
    /// It is no capture, or holds nothing that can be replayed.
    pub fn of(file: Vec<u8>) -> Result<Self, Failure> {
        let capture = capture::decode(&file).map_err(|error| error.to_string())?;
        let mut writing = Writing::new(&capture);
        for (number, turn) in capture.turns.iter().enumerate() {
            writing.add(turn, number as u32);
        }
        let Writing { tracks, short_keys, recorded, skipped, .. } = writing;
        if recorded.requests == 0 {
            return Err("there is nothing in the capture that can be replayed".to_owned());
        }
        let lacks = capture.stopped.map(|stopped| format!("{} at byte {}", stopped.why, stopped.at));
        let commands = capture.commands.iter().map(|c| (c.name.to_owned(), shows(c.name))).collect();
        let tracks = tracks.into_values().filter(|track| !track.sends.is_empty()).collect();
        let filler = crate::client::value(1, FILLER_BYTES);
        Ok(Self { file, commands, tracks, short_keys, filler, recorded, skipped, lacks })
    }

    /// How many connections it is for.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.tracks.len()
    }

    pub(super) fn track(&self, number: usize) -> &Track {
        &self.tracks[number]
    }

    /// When each turn is due, and on which connection, in order.
    pub(super) fn timeline(&self) -> Vec<(u64, usize)> {
        let mut times: Vec<(u64, usize)> = Vec::new();
        for (number, track) in self.tracks.iter().enumerate() {
            let firsts = track.sends.chunk_by(|one, next| one.turn == next.turn).filter_map(<[_]>::first);
            times.extend(firsts.map(|send| (send.due_ns, number)));
        }
        times.sort_unstable();
        times
    }

    /// Appends a request.
    pub(super) fn encode(&self, out: &mut Vec<u8>, sending: &Sending) -> Expected {
        let ours = Expected { shows: Shows::Nothing, fails: false, is_ours: true };
        let record = match sending.what {
            What::Discard => {
                resp::encode_command(out, &["DISCARD"]);
                return ours;
            }
            What::Select(database) => {
                resp::encode_command(out, &["SELECT", &database.to_string()]);
                return ours;
            }
            What::Record(offset) => capture::record_at(&self.file, offset).expect("it was found there"),
        };
        let (name, shows) = &self.commands[usize::from(record.command)];
        let mut writer = resp::Writer::new(out, false);
        writer.array(name.split('|').count() + record.arguments().count());
        name.split('|').for_each(|word| writer.bulk(word.as_bytes()));
        let mut made = Vec::new();
        for argument in record.arguments() {
            made.clear();
            match argument {
                Argument::Key(bytes) | Argument::Full(bytes) => {
                    writer.bulk(bytes);
                    continue;
                }
                Argument::Hashed(size, hash) => self.make_key(size, hash, &mut made),
                Argument::Sized(size) => self.make_value(size as usize, &mut made),
                Argument::Secret => {}
            }
            writer.bulk(&made);
        }
        let shows = if record.flags & QUEUED == 0 { *shows } else { Shows::Nothing };
        Expected { shows, fails: record.flags & FAILED != 0, is_ours: false }
    }

    fn make_key(&self, size: u32, hash: u64, out: &mut Vec<u8>) {
        let mut number = self.short_keys.get(&(size, hash)).copied().unwrap_or(hash);
        out.resize(size as usize, DIGITS[0]);
        for digit in out.iter_mut().rev() {
            *digit = DIGITS[(number % 64) as usize];
            number /= 64;
        }
    }

    fn make_value(&self, size: usize, out: &mut Vec<u8>) {
        if size <= DECIMAL_DIGITS_MAX {
            return out.resize(size, b'7');
        }
        while out.len() < size {
            let part = (size - out.len()).min(self.filler.len());
            out.extend_from_slice(&self.filler[..part]);
        }
    }
}

/// A script that is being written.
struct Writing<'a> {
    capture: &'a Capture<'a>,
    /// By the number of the connection, so that equal files give equal scripts.
    tracks: BTreeMap<u64, Track>,
    short_keys: HashMap<(u32, u64), u64>,
    /// How many keys of a length have numbers.
    numbered: HashMap<u32, u64>,
    recorded: Recorded,
    skipped: BTreeMap<String, u64>,
}

impl<'a> Writing<'a> {
    fn new(capture: &'a Capture<'a>) -> Self {
        let last_ns = capture.turns.last().map_or(0, |turn| turn.arrived_ns);
        let length = Duration::from_nanos(capture.end.map_or(last_ns, |end| end.length_ns));
        let recorded = Recorded {
            requests: 0,
            errors: 0,
            hits: 0,
            misses: 0,
            latencies: new_histogram(),
            unknown: 0,
            dropped: capture.dropped,
            length,
        };
        Self {
            capture,
            tracks: BTreeMap::new(),
            short_keys: HashMap::new(),
            numbered: HashMap::new(),
            recorded,
            skipped: BTreeMap::new(),
        }
    }

    fn add(&mut self, turn: &Turn<'a>, number: u32) {
        for (offset, record) in turn.records() {
            let command = &self.capture.commands[usize::from(record.command)];
            let Track { sends, state } = self.tracks.entry(turn.connection).or_default();
            let mut send = |what| sends.push(Sending { due_ns: turn.arrived_ns, turn: number, what });
            if state.in_multi && has_left_multi(command.name, &record) {
                *state = State { database: None, in_multi: false, selects: false };
                send(What::Discard);
            }
            if !can_be_sent(command, &record) || !state.is_in_place(command.name, &record) {
                // SELECT outside of MULTI is sent where a request needs it.
                if command.name != "select" {
                    *self.skipped.entry(command.name.to_owned()).or_default() += 1;
                }
                continue;
            }
            if !state.in_multi && state.database != Some(record.database) {
                send(What::Select(record.database));
                state.database = Some(record.database);
            }
            send(What::Record(offset));
            state.pass(command.name, &record);
            self.note_keys(&record);
            self.count(turn, &record);
        }
    }

    /// Numbers keys that are too short for their hash.
    fn note_keys(&mut self, record: &Record<'_>) {
        for argument in record.arguments() {
            if let Argument::Hashed(size, hash) = argument
                && size < HASH_DIGITS
            {
                let next = self.numbered.entry(size).or_default();
                self.short_keys.entry((size, hash)).or_insert_with(|| {
                    *next += 1;
                    *next - 1
                });
            }
        }
    }

    fn count(&mut self, turn: &Turn<'_>, record: &Record<'_>) {
        let recorded = &mut self.recorded;
        recorded.requests += 1;
        if record.flags & FAILED != 0 {
            recorded.errors += 1;
            return;
        }
        match turn.latency_ns(record) {
            Some(ns) => recorded.latencies.saturating_record(ns.max(1)),
            None => recorded.unknown += 1,
        }
        let name = self.capture.commands[usize::from(record.command)].name;
        if shows(name) != Shows::Nothing && record.flags & QUEUED == 0 {
            recorded.hits += u64::from(record.hits);
            recorded.misses += u64::from(record.misses);
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self { database: Some(0), in_multi: false, selects: false }
    }
}

impl State {
    /// Whether what it belongs to is in the capture.
    fn is_in_place(&self, name: &str, record: &Record<'_>) -> bool {
        match name {
            "exec" | "discard" => self.in_multi || record.flags & FAILED != 0,
            _ => self.in_multi || record.flags & QUEUED == 0,
        }
    }

    fn pass(&mut self, name: &str, record: &Record<'_>) {
        match name {
            "multi" if record.flags & FAILED == 0 => self.in_multi = true,
            "select" => self.selects = true,
            "exec" | "discard" => {
                let database = if self.selects { None } else { self.database };
                *self = Self { database, in_multi: false, selects: false };
            }
            _ => {}
        }
    }
}

/// Whether a request says that its connection is in no transaction any more: its end is not in the capture.
fn has_left_multi(name: &str, record: &Record<'_>) -> bool {
    record.flags & (QUEUED | FAILED) == 0 && !matches!(name, "exec" | "discard" | "multi" | "watch")
}

fn can_be_sent(command: &Command<'_>, record: &Record<'_>) -> bool {
    match command.name {
        // Whoever replays need not be alone on the server.
        "flushall" | "flushdb" | "swapdb" => false,
        "restore" => matches!(record.arguments().nth(2), Some(Argument::Full(_))),
        "select" => record.flags & QUEUED != 0,
        "multi" | "exec" | "discard" | "watch" | "unwatch" | "ping" | "echo" => true,
        _ => (command.reads || command.writes) && !command.admin,
    }
}

fn shows(name: &str) -> Shows {
    match name {
        "get" | "getex" => Shows::One,
        "mget" => Shows::Many,
        _ => Shows::Nothing,
    }
}

const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// Digits that a hash takes.
const HASH_DIGITS: u32 = 11;
/// Numbers of so many digits can be counted up.
const DECIMAL_DIGITS_MAX: usize = 18;
const FILLER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{Head, Plan, append_record, begin_turn, chunk, end_turn, header};

    const NAMES: [&str; 8] = ["get", "set", "multi", "exec", "client|kill", "select", "flushall", "mget"];

    /// Command, flags, database, arguments.
    type Told<'a> = (&'a str, u8, u16, &'a [Argument<'a>]);

    /// A script of turns, each of a connection and its records.
    fn script(turns: &[(u64, &[Told<'_>])]) -> Result<Script, Failure> {
        let plan = Plan { hashes_keys: true, keeps_values: false, started_unix_us: 0 };
        let commands = NAMES.map(|name| Command {
            name,
            reads: name.ends_with("get"),
            writes: matches!(name, "set" | "flushall"),
            admin: name == "client|kill",
        });
        let (mut out, mut file, mut count) = (Vec::new(), header(&plan, commands.into_iter()), 0);
        for (index, (connection, records)) in turns.iter().enumerate() {
            let at = begin_turn(&mut out);
            for (name, flags, database, arguments) in *records {
                let command = NAMES.iter().position(|known| known == name).expect("listed") as u16;
                let (flags, database) = (*flags, *database);
                let head = Head { command, flags, database, latency_ns: 1_600, ..Head::default() };
                append_record(&mut out, &head, arguments.iter().copied());
                count += 1;
            }
            end_turn(&mut out, at, index as u64 * 1_000, *connection);
        }
        chunk(&mut file, &out, 0, count, 0);
        Script::of(file)
    }

    fn text(script: &Script, track: usize) -> String {
        let mut out = Vec::new();
        script.track(track).sends.iter().for_each(|send| _ = script.encode(&mut out, send));
        let lines = String::from_utf8(out).expect("printable");
        lines
            .split("\r\n")
            .filter(|line| !line.starts_with(['*', '$']))
            .collect::<Vec<_>>()
            .join(" ")
            .trim()
            .to_owned()
    }

    const KEY: Argument<'_> = Argument::Hashed(3, 99);

    #[test]
    fn keys_and_values_have_the_sizes_that_were_recorded() {
        let other = Argument::Hashed(3, 100);
        let long = Argument::Hashed(16, u64::MAX);
        let set: &[Argument<'_>] = &[KEY, Argument::Sized(5)];
        let large: &[Argument<'_>] = &[long, Argument::Sized(100)];
        let script = script(&[(1, &[("set", 0, 0, set), ("get", 0, 0, &[other]), ("set", 0, 0, large)])])
            .expect("a script");
        let text = text(&script, 0);
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!(words[..5], ["set", "000", "77777", "get", "001"]);
        assert_eq!((words[6], words[7].len()), ("00000f__________", 100));
    }

    #[test]
    fn databases_are_selected_and_what_is_not_about_data_is_skipped_and_counted() {
        let kill: &[Argument<'_>] = &[Argument::Full(b"id")];
        let script = script(&[
            (1, &[("get", 0, 0, &[KEY]), ("select", 0, 2, &[Argument::Full(b"2")]), ("get", 0, 2, &[KEY])]),
            (1, &[("client|kill", 0, 2, kill), ("flushall", 0, 2, &[])]),
            (2, &[("client|kill", 0, 0, kill)]),
        ])
        .expect("a script");
        assert_eq!(text(&script, 0), "get 000 SELECT 2 get 000");
        assert_eq!(script.connections(), 1, "one that sends nothing is left out");
        assert_eq!((script.skipped["client|kill"], script.skipped["flushall"]), (2, 1));
        assert_eq!(script.recorded.requests, 2);
    }

    #[test]
    fn transactions_are_whole_or_left_out() {
        let script = script(&[
            (1, &[("get", QUEUED, 0, &[KEY]), ("exec", 0, 0, &[])]),
            (
                1,
                &[
                    ("multi", 0, 0, &[]),
                    ("get", QUEUED, 0, &[KEY]),
                    ("exec", 0, 0, &[]),
                    ("get", 0, 0, &[KEY]),
                ],
            ),
            (1, &[("multi", 0, 0, &[]), ("get", QUEUED, 0, &[KEY])]),
            (1, &[("get", 0, 0, &[KEY])]),
        ])
        .expect("a script");
        assert_eq!(text(&script, 0), "multi get 000 exec get 000 multi get 000 DISCARD SELECT 0 get 000");
        assert_eq!((script.skipped["get"], script.skipped["exec"]), (1, 1));
    }

    #[test]
    fn capture_without_anything_to_replay_is_refused() {
        assert!(script(&[(1, &[("flushall", 0, 0, &[])])]).expect_err("nothing").contains("nothing"));
        assert!(Script::of(b"+OK".to_vec()).expect_err("no capture").contains("not a capture"));
    }
}
