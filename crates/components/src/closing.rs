//! `closing-window`: windows that end, each with one result: by event time (tumbling, sliding, sessions) or by count.
//!
//! ```text
//!  tuple -> script in the server, one for each tuple: add, move the watermark, close -> results, anchored to the tuple; late tuples
//! ```
//!
//! All state of a task is in keys of the server (`PREFIX` and the task's place): a worker that dies loses nothing. No tuple is held until its
//! window ends.
//!
//! **Watermark.** The least of the largest times of all tasks that this one reads, less `--lateness-ms`. It never goes back. Until each of them has
//! sent something it does not move. One that has sent nothing for `--idle-ms` is left out.
//!
//! **At least once.** The script remembers the last `--remember` ids of tuples, and what each has closed. A tuple that is tried again is not
//! counted again, and its results are told again: results are never lost, and may come twice with equal values.
//!
//! Invariants
//!   1. A tuple is acknowledged after the reply to its script, or it fails.
//!   2. What is under way has the bounds of [`crate::line`].
//!
//! With exactly-once windows are state of the bolt instead: `exactly`.
//!
//! Out of scope: windows that end without a further tuple.
//! Source: watermarks and panes as Akidau et al. 2015, "The Dataflow Model", have them.

mod exactly;
#[cfg(test)]
mod tests;
mod watermark;

use std::sync::Arc;

use clock::SystemClock;
use connection::Event;
use resp::Value as Reply;
use sha1::{Digest, Sha1};
use topology::bolt::TupleId;
use topology::builder::Factory;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{self, PIPELINE, Server, URL_OPTION};
use crate::convert::{append_field, text_value};
use crate::counting::{BY, added, total};
use crate::form::Form;
use crate::line::Line;
use crate::row::{Emits, Exact, Keeps, LATE, Made, Reach, Row};
use crate::window::{WINDOWS_MAX, slide_ms, time_ms};
use exactly::Exactly;

/// What is added up, in which windows.
#[derive(Clone, Debug)]
struct Settings {
    by: String,
    id: String,
    /// `None`: tuples are counted.
    field: Option<String>,
    shape: Shape,
    prefix: String,
    idle_ms: u64,
    lateness_ms: u64,
    remember: u64,
    keep_ms: u64,
}

/// When a window ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Time { field: String, size_ms: u64, slide_ms: u64 },
    Session { field: String, gap_ms: u64 },
    Count { size: u64, slide: u64 },
}

#[derive(Debug)]
struct Closing {
    settings: Settings,
    /// Of each tuple its values, for the stream of late ones.
    line: Line<Values>,
    /// Words of a request that are the same for all tuples: the script and its keys.
    begin: Vec<Vec<u8>>,
    /// Tasks that it reads.
    sources: u64,
    /// Late tuples are emitted.
    has_late: bool,
}

/// What the script answered.
#[derive(Debug, PartialEq)]
struct Answer {
    is_late: bool,
    results: Vec<Values>,
}

impl Closing {
    fn new(settings: Settings, server: Server) -> Self {
        Self { settings, line: Line::new(server), begin: Vec::new(), sources: 0, has_late: false }
    }

    /// The arguments of the script for a tuple.
    fn arguments(&self, tuple: &Tuple<'_>) -> Result<Vec<Vec<u8>>, Fault> {
        let Settings { by, id, field, shape, idle_ms, lateness_ms, remember, keep_ms, .. } = &self.settings;
        let text = |name: &str| {
            let mut text = Vec::new();
            append_field(tuple, name, &mut text).map(|()| text)
        };
        let added = added(tuple, field.as_deref())?;
        let (kind, time, size, slide) = match shape {
            Shape::Time { field, size_ms, slide_ms } => ("time", time_ms(tuple, field)?, size_ms, slide_ms),
            Shape::Session { field, gap_ms } => ("session", time_ms(tuple, field)?, gap_ms, gap_ms),
            Shape::Count { size, slide } => ("count", 0, size, slide),
        };
        let source = format!("{}:{}", tuple.component(), tuple.task().0);
        let numbers = [size, slide, lateness_ms, idle_ms, &self.sources, remember, keep_ms];
        let mut arguments = vec![kind.into(), text(id)?, text(by)?, added.into_bytes()];
        arguments.extend([time.to_string().into_bytes(), source.into_bytes()]);
        arguments.extend(numbers.map(|number| number.to_string().into_bytes()));
        Ok(arguments)
    }

    /// Has the server keep the script: it may not have it, or have it no more.
    fn load(&self) {
        // A connection that is lost says so.
        self.line.send(LOAD, |out| resp::encode_command(out, &["SCRIPT", "LOAD", SCRIPT])).unwrap_or(());
    }

    fn on_reply(&mut self, reply: Reply, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let Some((tuple, values)) = self.line.open.pop_front() else { return Ok(()) };
        let result = match reply {
            Reply::Error(text) => Err(self.refusal(&text)),
            reply => answer(reply).and_then(|answer| self.emit(answer, tuple, values, out)),
        };
        // The tuple may be gone: the runner fails all when a component panics.
        match &result {
            Ok(()) => out.ack(tuple).unwrap_or(()),
            Err(fault) => out.fail(tuple, fault).unwrap_or(()),
        }
        result
    }

    fn emit(
        &self,
        answer: Answer,
        tuple: TupleId,
        values: Values,
        out: &mut BoltOut<'_>,
    ) -> Result<(), Fault> {
        let anchors = &[tuple];
        for values in answer.results {
            out.send(Outgoing { stream: DEFAULT_STREAM, values, anchors, direct: None })?;
        }
        if answer.is_late && self.has_late {
            out.send(Outgoing { stream: LATE, values, anchors, direct: None })?;
        }
        Ok(())
    }

    /// An error of the server's. A script that it has forgotten is given to it again.
    fn refusal(&self, text: &[u8]) -> Fault {
        if text.starts_with(b"NOSCRIPT") {
            self.load();
            return Fault::silent("the server has forgotten the script");
        }
        asking::refusal(text)
    }
}

impl Bolt for Closing {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        let (plan, own) = (context.plan(), context.component());
        let mut from: Vec<_> = plan.edges_to(own).map(|edge| edge.from).collect();
        from.sort_unstable();
        from.dedup();
        self.sources = from.into_iter().map(|from| plan.tasks(from).len() as u64).sum();
        self.has_late = plan.stream(own, LATE).is_some();
        let keys = KEYS.map(|key| format!("{}{}:{key}", self.settings.prefix, context.place()).into_bytes());
        self.begin = vec![b"EVALSHA".to_vec(), digest(), KEYS.len().to_string().into_bytes()];
        self.begin.extend(keys);
        Ok(self.line.start(context)?)
    }

    fn is_ready(&self) -> bool {
        self.line.is_ready()
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let arguments = self.arguments(tuple)?;
        let words: Vec<&[u8]> = self.begin.iter().chain(&arguments).map(Vec::as_slice).collect();
        self.line.send(TUPLE, |out| resp::encode_command(out, &words))?;
        self.line.open.push_back((tuple.id(), tuple.values().clone()));
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let mut result = Ok(());
        for event in self.line.events() {
            match event {
                Event::Connected(life) => {
                    self.line.on_connected(life);
                    self.load();
                }
                Event::Reply(LOAD, Reply::Error(text)) => result = Err(asking::refusal(&text)),
                Event::Reply(LOAD, _) => {}
                Event::Reply(_, reply) => result = self.on_reply(reply, out).and(result),
                Event::Lost(loss) => result = Err(self.line.on_loss(&loss, out)),
            }
        }
        result
    }

    fn close(&mut self) {
        self.line.close();
    }
}

/// What the script says: how the tuple was taken, and what it has closed.
fn answer(reply: Reply) -> Result<Answer, Fault> {
    let none = || Fault::new("the server answered no result of the script");
    let Reply::Array(parts) = reply else { return Err(none()) };
    let Ok([Reply::Bulk(taken), Reply::Array(closed)]) = <[Reply; 2]>::try_from(parts) else {
        return Err(none());
    };
    let results = closed.into_iter().map(|result| {
        let Reply::Array(parts) = result else { return Err(none()) };
        let Ok([start, end, Reply::Bulk(value), number]) = <[Reply; 4]>::try_from(parts) else {
            return Err(none());
        };
        let values = [total(start)?, total(end)?, text_value(&value), total(number)?];
        Ok(Values::encode(&values)?)
    });
    Ok(Answer { is_late: taken == LATE.as_bytes(), results: results.collect::<Result<_, _>>()? })
}

/// The script's name in the server.
fn digest() -> Vec<u8> {
    Sha1::digest(SCRIPT).iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

fn shape(arguments: &Arguments) -> Result<Shape, CommandError> {
    let number = |name| arguments.number(name);
    match (number("--size-ms"), number("--gap-ms"), number("--count")) {
        (Some(size_ms), None, None) => {
            let slide_ms = slide_ms(arguments, size_ms)?;
            Ok(Shape::Time { field: arguments.needed("--time")?, size_ms, slide_ms })
        }
        (None, Some(gap_ms), None) => Ok(Shape::Session { field: arguments.needed("--time")?, gap_ms }),
        (None, None, Some(size)) => {
            let slide = number("--every").unwrap_or(size);
            if !size.is_multiple_of(slide) || size / slide > WINDOWS_MAX {
                return Err(format!(
                    "--every {slide} does not fit --count {size}: it must be {size} or a part of it, 1 to {WINDOWS_MAX} times"
                ).into());
            }
            Ok(Shape::Count { size, slide })
        }
        _ => Err("one of `--size-ms`, `--gap-ms` and `--count` says when a window ends".to_owned().into()),
    }
}

fn settings(arguments: &Arguments) -> Result<Settings, CommandError> {
    let number = |name| arguments.number(name).unwrap_or_default();
    Ok(Settings {
        by: arguments.needed("--by")?,
        id: arguments.needed("--id")?,
        field: arguments.text("--field").map(str::to_owned),
        shape: shape(arguments)?,
        prefix: arguments.needed("--prefix")?,
        idle_ms: number("--idle-ms"),
        lateness_ms: number("--lateness-ms"),
        remember: number("--remember"),
        keep_ms: number("--keep-ms"),
    })
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let (settings, server) = (settings(arguments)?, Server::read(arguments)?);
    let time = match &settings.shape {
        Shape::Time { field, .. } | Shape::Session { field, .. } => Some(field.clone()),
        Shape::Count { .. } => None,
    };
    let reads = [settings.by.clone(), settings.id.clone()].into_iter().chain(settings.field.clone());
    let reads = reads.chain(time).collect();
    let (by, of_exactly) = (settings.by.clone(), settings.clone());
    let form = Form::new(arguments, FORM).ok_or("`--prefix` is missing")?;
    let exactly = move || Exactly::new(of_exactly.clone(), form.clone(), Arc::new(SystemClock));
    let exact = Exact::Keyed(Factory::bolt(exactly), by);
    let factory = Factory::bolt(move || Closing::new(settings.clone(), server.clone()));
    let emits = Emits::ValuesAndLate(4..=4, "the window's start and end, the value and its number");
    Ok(Made { factory, reads, reach: Reach::Server, emits, exact })
}

const SCRIPT: &str = include_str!("closing/script.lua");
const KEYS: [&str; 7] = ["meta", "sources", "open", "ends", "sessions", "ids", "results"];
/// Options that say what a window is.
const FORM: &[&str] = &["--size-ms", "--slide-ms", "--gap-ms", "--count", "--every"];
/// Tokens of requests.
const TUPLE: u64 = 0;
const LOAD: u64 = 1;
const DAY_MS: u64 = 86_400_000;

const fn text(name: &'static str, what: &'static str) -> Opt {
    Opt { name, value: Kind::Text, default: "", what }
}

const fn span(name: &'static str, least: u64, default: &'static str, what: &'static str) -> Opt {
    Opt { name, value: Kind::Number(least, 366 * DAY_MS), default, what }
}

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "closing-window",
    what: "counts or adds up by windows that end; emits start, end, value and number once for each",
    signature: Signature {
        words: "",
        words_count: (0, 0),
        options: &[
            BY,
            text("--id", "field that tells tuples apart, such as the id of an entry; needed"),
            text("--field", "field with the number that is added up; without it tuples are counted"),
            text("--prefix", "prefix of the keys; needed"),
            text(
                "--time",
                "field with the time in ms since 1970, or with an entry's id; needed but for --count",
            ),
            span("--size-ms", 1, "", "length of a window (ms)"),
            span(
                "--slide-ms",
                1,
                "",
                "time between the starts of two windows (ms); without it they do not overlap",
            ),
            span("--gap-ms", 1, "", "a session ends when a value has had no tuple for so long (ms)"),
            Opt {
                name: "--count",
                value: Kind::Number(1, 1_000_000),
                default: "",
                what: "tuples of a value in a window",
            },
            Opt {
                name: "--every",
                value: Kind::Number(1, 1_000_000),
                default: "",
                what: "tuples between the ends of two windows; without it they do not overlap",
            },
            span("--lateness-ms", 0, "0", "time that tuples may be late without being left out (ms)"),
            span(
                "--idle-ms",
                0,
                "60000",
                "time after which a source that sends nothing does not hold windows open (ms)",
            ),
            Opt {
                name: "--remember",
                value: Kind::Number(1, 10_000_000),
                default: "100000",
                what: "ids of tuples that each task remembers",
            },
            Opt {
                name: "--keep-ms",
                value: Kind::Number(1, 3_660 * DAY_MS),
                default: "604800000",
                what: "time that keys are kept after their last change (ms)",
            },
            URL_OPTION,
            PIPELINE,
        ],
    },
    keeps: &[Keeps::KeysOfTasks(FORM)],
    make,
};
