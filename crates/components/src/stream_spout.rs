//! `stream-spout`: the entries of a stream, read as a consumer of a group.
//!
//! ```text
//!  reader (a connection): group -> own pending -> claim -> new -> new ...        entries wait here, then they are emitted
//!  settler (another one): XACK of tuples that are acknowledged, many at a time   nothing is XACKed before
//! ```
//!
//! Invariants
//!   1. An entry is acknowledged to the server after its tuple is: so it is never lost, and it may be emitted again after a crash.
//!   2. An entry that this task has, or has not yet acknowledged to the server, is not emitted a second time.
//!   3. Entries that wait to be emitted are at most `--count`, and those that are out at most `topology.max.spout.pending`.
//!
//! The consumer's name is the component's with its task's place: a task that starts again reads what it had before. What a consumer had that
//! is not there any more is claimed after `--claim-after-ms`, at the start and each time that has passed.
//!
//! With exactly-once it is another spout ([`by_position`]), which has no group.
//!
//! A tuple that is given up stays pending in the group, or goes to the stream of `--dead-letter` and is acknowledged then.

mod by_position;
mod count;
mod entries;
mod gaps;
mod reading;
mod settling;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use connection::{Event, Link, Options, Target};
use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Backlog, Condition, Context, Fault, Next, Spout, SpoutOut};
use topology::tracker::{DeadLetter, Position};

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{self, URL_OPTION};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};
use by_position::PositionSpout;
use entries::Entry;
pub use entries::number as entry_number;
pub(crate) use entries::{Wanted, wanted};
use gaps::{Gaps, Group, Info};
use reading::{Found, Reading};
use settling::{DeadLetters, Settling};

/// What is read.
#[derive(Clone, Debug)]
struct Settings {
    target: Target,
    key: String,
    /// `None`: the name of the topology.
    group: Option<String>,
    /// Where a group begins that is made.
    from: String,
    /// Fields of an entry, in the order of those that are declared; `None`: those with their names.
    fields: Option<Vec<String>>,
    count: usize,
    claim_after: Duration,
    letters: Option<DeadLetters>,
}

/// The spout.
#[derive(Debug)]
struct StreamSpout {
    settings: Settings,
    clock: Arc<dyn Clock>,
    wanted: Vec<Wanted>,
    reading: Reading,
    gaps: Gaps,
    group: String,
    /// The group, as it was told last.
    looked: Option<Group>,
    /// All tasks see the same: the first one tells.
    is_first: bool,
    settling: Settling,
    reader: Option<Link>,
    /// The reader's connection.
    life: Option<u64>,
    is_asked: bool,
    /// Entries that were read and not emitted.
    waiting: VecDeque<Entry>,
    /// Entries that wait, are out, or are not yet acknowledged to the server.
    known: HashSet<u128>,
    /// What went wrong while nobody asked for entries.
    fault: Option<Fault>,
}

impl Settings {
    /// What of an entry becomes the fields that the component declares.
    fn wanted(&self, context: &Context<'_>) -> Vec<Wanted> {
        let streams = &context.plan().component(context.component()).streams;
        let declared: &[String] = streams.first().map_or(&[], |stream| &stream.fields);
        wanted(self.fields.as_deref(), declared)
    }
}

impl StreamSpout {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let reading =
            Reading::new(&settings.key, "", "", &settings.from, settings.count, settings.claim_after);
        Self {
            reading,
            gaps: Gaps::default(),
            group: String::new(),
            looked: None,
            is_first: false,
            clock,
            settling: Settling::new(&settings.key, "", settings.letters.clone()),
            settings,
            wanted: Vec::new(),
            reader: None,
            life: None,
            is_asked: false,
            waiting: VecDeque::new(),
            known: HashSet::new(),
            fault: None,
        }
    }

    fn on_events(&mut self) -> Result<(), Fault> {
        let mut result = Ok(());
        for event in self.reader.as_ref().map(Link::take).unwrap_or_default() {
            match event {
                Event::Connected(life) => {
                    (self.life, self.is_asked) = (Some(life), false);
                    self.reading.restart();
                }
                Event::Reply(LOOK_GROUPS, reply) => self.looked = Group::read(&reply, &self.group),
                Event::Reply(LOOK, reply) => result = self.on_look(&reply).and(result),
                Event::Reply(_, reply) => {
                    self.is_asked = false;
                    match self.reading.on_reply(reply) {
                        Ok(found) => self.take(found),
                        Err(error) => result = Err(Fault::new(error).after(ERROR_PAUSE)),
                    }
                }
                Event::Lost(loss) => {
                    (self.life, self.is_asked) = (None, false);
                    self.reading.on_lost(&loss);
                    result = Err(Fault::new(loss.to_string()));
                }
            }
        }
        result
    }

    /// Tells of entries that are not read.
    fn on_look(&mut self, reply: &Reply) -> Result<(), Fault> {
        self.gaps.on_look(self.clock.now());
        let (Some(group), Some(info)) = (self.looked.take(), Info::read(reply)) else { return Ok(()) };
        let told = self.gaps.on_group(&self.settings.key, group, &info).filter(|_| self.is_first);
        let Some(told) = told else { return Ok(()) };
        self.gaps.on_notice(&told);
        tracing::warn!(told.text, "entries are not read");
        Err(Fault::new(told.text))
    }

    fn take(&mut self, found: Found) {
        for id in found.deleted {
            if self.known.insert(id) {
                self.settling.push(id);
            }
        }
        for (id, fields) in found.entries {
            if self.known.insert(id) {
                self.waiting.push_back(Entry::new(id, &fields, &self.wanted));
            }
        }
    }

    /// Asks for more if there is need.
    fn ask(&mut self) {
        let (Some(reader), Some(life)) = (&self.reader, self.life) else { return };
        if self.is_asked || !self.waiting.is_empty() {
            return;
        }
        let (reading, now) = (&mut self.reading, self.clock.now());
        if self.is_first && self.gaps.is_due(now) {
            let key = &self.settings.key;
            reader.send(life, LOOK_GROUPS, |out| resp::encode_command(out, &["XINFO", "GROUPS", key]));
            reader.send(life, LOOK, |out| resp::encode_command(out, &["XINFO", "STREAM", key]));
        }
        self.is_asked = reader.send(life, READ, |out| reading.request(now, out));
    }
}

impl Spout for StreamSpout {
    fn open(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        let Settings { target, key, group, from, count, claim_after, letters, .. } = &self.settings;
        let group = group.as_deref().unwrap_or(&context.plan().topology().name);
        let consumer = format!("{}-{}", context.id(), context.place());
        self.reading = Reading::new(key, group, &consumer, from, *count, *claim_after);
        self.wanted = self.settings.wanted(context);
        (self.group, self.is_first) = (group.to_owned(), context.place() == 0);
        self.settling = Settling::new(key, group, letters.clone());
        self.clock = context.clock_or(&self.clock);
        let clock = Arc::clone(&self.clock);
        let link = |what: &str| {
            let waker = context.waker();
            let options = Options::named(&format!("{what} of {}", context.id()));
            Link::start_at(target, options, Arc::clone(&clock), move || waker.wake())
        };
        self.settling.start(link("settler")?);
        self.reader = Some(link("reader")?);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        let settled = self.settling.pump(&mut self.known);
        self.on_events().and(self.fault.take().map_or(Ok(()), Err)).and(settled)?;
        // One that is no tuple stays pending, as all that is given up.
        entries::emit(&mut self.waiting, &self.settings.key, out)?;
        self.ask();
        Ok(if self.waiting.is_empty() { Next::Woken } else { Next::Now })
    }

    fn activate(&mut self) {
        self.gaps.look_again();
    }

    fn condition(&self) -> Condition<'_> {
        self.gaps.condition()
    }

    fn backlog(&mut self) -> Backlog {
        if let Err(fault) = self.on_events() {
            self.fault = Some(fault);
        }
        entries::backlog(self.life, &self.waiting)
    }

    fn ack(&mut self, position: Position) {
        self.settling.push(position.0);
        // What goes wrong here is found again, and told, when the spout is asked.
        self.settling.pump(&mut self.known).unwrap_or(());
    }

    fn fail(&mut self, letter: &DeadLetter) {
        self.settling.push_letter(letter, &self.wanted);
        self.settling.pump(&mut self.known).unwrap_or(());
    }

    fn close(&mut self) {
        self.reader = None;
        self.settling.finish(&mut self.known, CLOSE_GRACE);
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let fields = arguments.text("--fields").map(|_| arguments.names("--fields"));
    let letters = arguments.text("--dead-letter").map(|key| DeadLetters {
        key: key.to_owned(),
        max: arguments.number("--dead-letter-max").unwrap_or_default(),
    });
    let counts = fields.as_ref().map_or(1..=usize::MAX, |fields| fields.len()..=fields.len());
    let settings = Settings {
        target: asking::target(arguments)?,
        key: arguments.words()[0].clone(),
        group: arguments.text("--group").map(str::to_owned),
        from: from(arguments.text("--from").unwrap_or_default())?,
        fields,
        count: arguments.number("--count").unwrap_or_default() as usize,
        claim_after: Duration::from_millis(arguments.number("--claim-after-ms").unwrap_or_default()),
        letters,
    };
    let exactly = settings.clone();
    let exact = Exact::Other(Factory::spout(move || PositionSpout::new(exactly.clone())));
    let factory = Factory::spout(move || StreamSpout::new(settings.clone(), Arc::new(SystemClock)));
    let emits = Emits::Values(counts, "the fields that `--fields` names");
    Ok(Made { factory, reads: Vec::new(), reach: Reach::Server, emits, exact })
}

/// The id behind which a group begins.
fn from(text: &str) -> Result<String, CommandError> {
    match text {
        "start" => Ok("0-0".to_owned()),
        "end" => Ok("$".to_owned()),
        id => {
            let first = entries::number_or_time(id)
                .ok_or_else(|| format!("`--from` must be start, end or the id of an entry, not `{id}`"))?;
            Ok(entries::shown(first.saturating_sub(1)))
        }
    }
}

/// Tokens of requests.
const READ: u64 = 0;
const LOOK_GROUPS: u64 = 1;
const LOOK: u64 = 2;
/// Pause after an error of the server's.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Time for the last acknowledgements when the spout ends.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

const OPTIONS: &[Opt] = &[
    Opt {
        name: "--group",
        value: Kind::Text,
        default: "",
        what: "consumer group, which is made if it is not there; without it the topology's name",
    },
    Opt {
        name: "--from",
        value: Kind::Text,
        default: "start",
        what: "where a group begins that is made: start, end, or with the entry of this id or time (ms since 1970)",
    },
    Opt {
        name: "--fields",
        value: Kind::Names,
        default: "",
        what: "fields of an entry for the fields that are declared, in their order; without it those of the same names. `id` is the entry's id",
    },
    Opt {
        name: "--count",
        value: Kind::Number(1, 10_000),
        default: "256",
        what: "entries that are read at a time",
    },
    Opt {
        name: "--claim-after-ms",
        value: Kind::Number(1_000, 86_400_000),
        default: "300000",
        what: "entries that another consumer of the group has had for so long are taken over (ms)",
    },
    Opt {
        name: "--dead-letter",
        value: Kind::Text,
        default: "",
        what: "stream for entries that are given up, which are acknowledged then; without it they stay pending in the group",
    },
    Opt {
        name: "--dead-letter-max",
        value: Kind::Number(1, 1 << 40),
        default: "10000",
        what: "entries of that stream, beyond which the oldest are dropped, about",
    },
    URL_OPTION,
];

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "stream-spout",
    what: "emits the entries of a stream as a consumer of a group",
    signature: Signature { words: "KEY", words_count: (1, 1), options: OPTIONS },
    keeps: &[Keeps::Position, Keeps::DeadLetters("--dead-letter")],
    make,
};
