//! Requests a second of 50 clients for the usual commands of each type, on collections that all clients share; and its plots, one a type.
//!
//! A type has servers of its own, which are filled over the protocol. A command that makes its collection larger or smaller finds the same one
//! before each run: what it adds to has `elements`, and what it takes from has more than a run takes.

use std::time::Duration;

use clap::ValueEnum;

use crate::client::{Client, Requests, value};
use crate::drive::{Action, Outcome, Row};
use crate::figure::Figure;
use crate::plot::{Bar, BarGroup, Bars};
use crate::servers::{Recipe, Server};
use crate::{Failure, Named};

use super::fill::{Kind, member};
use super::load::{command, drive, group, text};
use super::shape::Shape;
use super::sides::Sides;

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Type {
    /// SET, GET, INCR
    Strings,
    /// HSET, HINCRBY, HGET
    Hashes,
    /// LPUSH, RPOP, a queue of LPUSH and BRPOP
    Lists,
    /// SADD, SISMEMBER
    Sets,
    /// ZADD, ZINCRBY, ZPOPMIN
    SortedSets,
    /// XADD, XREADGROUP and XACK
    Streams,
}

/// What a reply promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setting {
    /// Engine memory, beside servers without a log
    NoLog,
    /// Engine log, durable before the reply, beside `appendfsync always`
    Durable,
}

/// Commands that are measured together.
struct Case {
    name: &'static str,
    /// What they are about: a key, or what keys begin with.
    key: &'static str,
    stock: Stock,
    fill: Fill,
    /// Each is sent by 50 clients of its own; what the last ones are answered counts.
    sent: Vec<Action>,
}

/// Puts so many elements into what a key, or what keys begin with, names.
type Fill = Box<dyn Fn(&mut Client, &str, u64) -> Result<(), Failure>>;

/// What a run finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stock {
    /// What the runs before have left, and the commands only read.
    Read,
    /// What the runs before have left: they changed it, and its size is the same.
    Changed,
    /// As many elements as ever: each run adds some.
    Added,
    /// More than it takes.
    Taken,
    /// What it makes itself; to find nothing is no failure.
    Passing,
}

impl Type {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 6] =
        [Self::Strings, Self::Hashes, Self::Lists, Self::Sets, Self::SortedSets, Self::Streams];

    /// Its commands, on collections of `elements`.
    fn cases(self, elements: u64) -> Vec<Case> {
        let any = member_of(elements);
        let (any, new, value) = (any.as_str(), "element:############", &*changing_value());
        match self {
            Self::Strings => vec![
                case("SET", "string", Stock::Changed, strings, &["SET", &key_of("string", any), value]),
                case("GET", "string", Stock::Read, strings, &["GET", &key_of("string", any)]),
                case("INCR", "counter", Stock::Changed, counters, &["INCR", &key_of("counter", any)]),
            ],
            Self::Hashes => vec![
                case(
                    "HSET small",
                    "small",
                    Stock::Changed,
                    small_hashes,
                    &["HSET", &key_of("small", &member_of(elements / SMALL_FIELDS)), &small_field(5), value],
                ),
                case("HSET large", "hash", Stock::Changed, all(Kind::Hash), &["HSET", "hash", any, value]),
                case("HINCRBY", "counts", Stock::Changed, counts, &["HINCRBY", "counts", any, "1"]),
                case("HGET", "hash", Stock::Read, all(Kind::Hash), &["HGET", "hash", any]),
            ],
            Self::Lists => vec![
                case("LPUSH", "list", Stock::Added, all(Kind::List), &["LPUSH", "list", value]),
                case("RPOP", "list", Stock::Taken, all(Kind::List), &["RPOP", "list"]),
                Case {
                    name: "LPUSH + BRPOP",
                    key: "queue",
                    stock: Stock::Passing,
                    fill: Box::new(|_, _, _| Ok(())),
                    // A client that waits when the load ends is let go after this.
                    sent: vec![command(&["LPUSH", "queue", value]), command(&["BRPOP", "queue", "0.1"])],
                },
            ],
            Self::Sets => vec![
                case("SADD", "set", Stock::Added, all(Kind::Set), &["SADD", "set", new]),
                case("SISMEMBER", "set", Stock::Read, all(Kind::Set), &["SISMEMBER", "set", any]),
            ],
            Self::SortedSets => vec![
                // Digits before those of the member make a score that has nothing to do with it.
                case(
                    "ZADD",
                    "zset",
                    Stock::Changed,
                    all(Kind::SortedSet),
                    &["ZADD", "zset", "#########", any],
                ),
                case("ZINCRBY", "zset", Stock::Changed, all(Kind::SortedSet), &["ZINCRBY", "zset", "1", any]),
                case("ZPOPMIN", "zset", Stock::Taken, all(Kind::SortedSet), &["ZPOPMIN", "zset"]),
            ],
            Self::Streams => vec![
                case(
                    "XADD",
                    "stream",
                    Stock::Added,
                    all(Kind::Stream),
                    &["XADD", "stream", "*", "field", value],
                ),
                Case {
                    name: "XREADGROUP + XACK",
                    key: "stream",
                    stock: Stock::Passing,
                    fill: Box::new(stream_with_group),
                    sent: vec![Action::Consume { stream: "stream".to_owned(), group: GROUP.to_owned() }],
                },
            ],
        }
    }
}

/// A case of one command, `words`.
fn case(
    name: &'static str,
    key: &'static str,
    stock: Stock,
    fill: impl Fn(&mut Client, &str, u64) -> Result<(), Failure> + 'static,
    words: &[&str],
) -> Case {
    Case { name, key, stock, fill: Box::new(fill), sent: vec![command(words)] }
}

impl Setting {
    /// What titles call it.
    fn name(self) -> &'static str {
        match self {
            Self::NoLog => "no log",
            Self::Durable => "durable",
        }
    }

    fn sides(self, shape: &Shape) -> Result<Sides, Failure> {
        let (engine, durability, fsync) = match self {
            Self::NoLog => ("memory", "never", "off"),
            Self::Durable => ("log", "always", "always"),
        };
        Sides::start(shape, &Recipe::evenkeel(engine, durability, shape.loops).labelled("evenkeel"), fsync)
    }
}

impl Case {
    /// Requests in flight on each connection: a client that waits for an element sends nothing else.
    fn depths(&self) -> &'static [usize] {
        if self.sent.len() > 1 { &[1] } else { &[1, 16] }
    }

    /// Measures it on all sides, which have been started.
    fn measure(&self, sides: &Sides, shape: &Shape, at: &At) -> Result<Vec<Figure>, Failure> {
        if !self.stock.is_renewed() {
            sides.each(|server| self.renew(server, at.elements))?;
        }
        let length = shape.duration;
        let mut count = match self.stock {
            Stock::Taken => (TAKEN_PER_SECOND * at.depth.min(3) as u64 * (length * 3 / 2).as_millis() as u64
                / 1_000)
                .max(at.elements),
            _ => at.elements,
        };
        let measured = sides.in_turn(shape.runs, |server| self.run(server, at.depth, length, &mut count))?;
        let mut figures = measured.figures(&shape.peers, &at.id(self), &at.title(self), "requests/s");
        for figure in &mut figures {
            let Some(peer) = &mut figure.b else { continue };
            // Its last word says what the title says, too.
            if let Some((name, _)) = peer.label.rsplit_once(' ') {
                peer.label = name.to_owned();
            }
            figure.peer = Some(peer.label.clone());
        }
        Ok(figures)
    }

    /// Requests a second of a run of `length`; `count` elements are there before it, more if that is not enough.
    fn run(&self, server: &Server, depth: usize, length: Duration, count: &mut u64) -> Result<f64, Failure> {
        let groups =
            |length| self.sent.iter().map(|action| group(action.clone(), NUMBERS, depth, length)).collect();
        loop {
            if self.stock.is_renewed() {
                self.renew(server, *count)?;
            }
            // The second event loop of ours becomes active within a second (ADR 0021).
            let outcome = drive(server, self.name, [length / 2, length], groups)?;
            let missing = outcome.total().tally.missing;
            if missing == 0 || self.stock == Stock::Passing {
                return Ok(per_second(&outcome));
            }
            if self.stock != Stock::Taken || *count > TAKEN_MAX {
                return Err(format!("{} of {}: {missing} replies are nil", self.name, server.label()));
            }
            *count *= 2;
        }
    }

    /// Fills what it is about anew.
    fn renew(&self, server: &Server, count: u64) -> Result<(), Failure> {
        let mut client = server.client()?;
        client.call(&["DEL", self.key])?;
        (self.fill)(&mut client, self.key, count)
    }
}

impl Stock {
    /// Whether it is made anew before each run.
    fn is_renewed(self) -> bool {
        matches!(self, Self::Added | Self::Taken | Self::Passing)
    }
}

/// Where a case is measured.
struct At {
    of: Type,
    setting: Setting,
    elements: u64,
    depth: usize,
}

impl At {
    fn id(&self, case: &Case) -> String {
        let name = case.name.replace(" + ", "-").to_lowercase();
        format!("types/{}-{name}-{}-{}", self.of.name(), self.setting.name(), self.depth).replace(' ', "-")
    }

    fn title(&self, case: &Case) -> String {
        format!("{}, {}, pipeline {}", case.name, self.setting.name(), self.depth)
    }
}

/// All commands of the shape's types in its settings.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (setting, of) in shape.settings.iter().flat_map(|s| shape.types.iter().map(move |of| (*s, *of))) {
        let sides = setting.sides(shape)?;
        for case in of.cases(elements) {
            if setting == Setting::Durable && case.stock == Stock::Read {
                continue;
            }
            for depth in case.depths() {
                let at = At { of, setting, elements, depth: *depth };
                say(&format!("types: {}", at.title(&case)));
                figures.extend(case.measure(&sides, shape, &at)?);
            }
        }
    }
    Ok(figures)
}

/// A plot of each type that has figures beside a peer: the name of its file, and the SVG. The part of ids before their `/` does not count.
#[must_use]
pub fn plots(figures: &[Figure]) -> Vec<(String, String)> {
    let plot = |of: &Type| {
        let prefix = format!("{}-", of.name());
        let is_of = |figure: &&Figure| {
            let name = figure.id.split_once('/').map_or("", |(_, name)| name);
            name.starts_with(&prefix) && figure.b.is_some()
        };
        let figures: Vec<&Figure> = figures.iter().filter(is_of).collect();
        let name = of.name().replace('-', " ");
        let title = format!("{name}: requests a second, as a multiple of those of another server");
        (!figures.is_empty()).then(|| (format!("types-{}.svg", of.name()), grouped(title, &figures)))
    };
    Type::ALL.iter().filter_map(plot).collect()
}

/// The ratio of each figure as a bar, those of its runs as dots; figures that differ in their peer alone are a group.
fn grouped(title: String, figures: &[&Figure]) -> String {
    let (mut groups, mut peers): (Vec<BarGroup>, Vec<&str>) = (Vec::new(), Vec::new());
    for figure in figures {
        let peer = figure.b.as_ref().map_or("", |b| b.label.as_str());
        let colour = peers.iter().position(|known| *known == peer).unwrap_or_else(|| {
            peers.push(peer);
            peers.len() - 1
        });
        let length = figure.measured();
        let (label, words) = (format!("Evenkeel / {peer}"), format!("{length:.2}"));
        let bar = Bar { label, colour, length, words, dots: figure.outcomes() };
        match groups.iter_mut().find(|group| group.title == figure.title) {
            Some(group) => group.bars.push(bar),
            None => groups.push(BarGroup { title: figure.title.clone(), bars: vec![bar] }),
        }
    }
    Bars { title, line_at: Some(1.0), groups }.svg()
}

/// What the last group was answered within the length of the run, without what is nil.
fn per_second(outcome: &Outcome) -> f64 {
    let Some(counted) = outcome.groups.last() else { return 0.0 };
    let rate = counted.rows.first().map_or(0.0, Row::per_second);
    rate * (1.0 - counted.tally.missing as f64 / counted.tally.answered.max(1) as f64)
}

/// The name of any of `elements`, with a run of `#`: of a power of ten of them, of all.
fn member_of(elements: u64) -> String {
    let digits = elements.max(1).ilog10() as usize;
    format!("element:{}{}", "0".repeat(12 - digits.min(12)), "#".repeat(digits.min(12)))
}

fn key_of(prefix: &str, member: &str) -> String {
    format!("{prefix}:{member}")
}

fn small_field(number: u64) -> String {
    format!("field:{number}")
}

/// A value of [`VALUE_BYTES`] that differs from one request to the next.
fn changing_value() -> String {
    "#########".to_owned() + &text(VALUE_BYTES - 9)
}

/// Asks for what `request` makes of each of `count` numbers.
fn each(client: &mut Client, count: u64, request: impl Fn(&mut Requests, u64)) -> Result<(), Failure> {
    let mut number = 0;
    while number < count {
        let mut requests = Requests::default();
        let end = count.min(number + CHUNK);
        (number..end).for_each(|number| request(&mut requests, number));
        requests.ask(client)?;
        number = end;
    }
    Ok(())
}

fn strings(client: &mut Client, prefix: &str, count: u64) -> Result<(), Failure> {
    each(client, count, |requests, number| {
        let (key, value) = (key_of(prefix, &member(number)), value(number, VALUE_BYTES));
        requests.add(&[b"SET".as_slice(), key.as_bytes(), &value]);
    })
}

fn counters(client: &mut Client, prefix: &str, count: u64) -> Result<(), Failure> {
    each(client, count, |requests, number| requests.add(&["SET", &key_of(prefix, &member(number)), "0"]))
}

fn small_hashes(client: &mut Client, prefix: &str, count: u64) -> Result<(), Failure> {
    each(client, count / SMALL_FIELDS, |requests, number| {
        let mut words = vec![b"HSET".to_vec(), key_of(prefix, &member(number)).into_bytes()];
        for field in 0..SMALL_FIELDS {
            words.extend([small_field(field).into_bytes(), value(number + field, VALUE_BYTES)]);
        }
        requests.add(&words);
    })
}

fn counts(client: &mut Client, key: &str, count: u64) -> Result<(), Failure> {
    each(client, count, |requests, number| requests.add(&["HSET", key, &member(number), "0"]))
}

/// What fills a collection with elements of its kind.
fn all(kind: Kind) -> impl Fn(&mut Client, &str, u64) -> Result<(), Failure> {
    move |client, key, count| kind.fill(client, key, 0..count, VALUE_BYTES)
}

fn stream_with_group(client: &mut Client, key: &str, count: u64) -> Result<(), Failure> {
    Kind::Stream.fill(client, key, 0..count, VALUE_BYTES)?;
    client.call(&["XGROUP", "CREATE", key, GROUP, "0"]).map(drop)
}

const VALUE_BYTES: usize = 60;
/// Fields of a small hash.
const SMALL_FIELDS: u64 = 10;
const GROUP: &str = "group";
/// Requests of one write while filling.
const CHUNK: u64 = 1_000;
/// Hardly any is drawn twice.
const NUMBERS: u64 = 1_000_000_000;
/// What a run is given to take at first, for each second; three times as many in pipelines.
const TAKEN_PER_SECOND: u64 = 100_000;
/// More is not given.
const TAKEN_MAX: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{GroupOutcome, Tally};
    use crate::figure::Series;

    #[test]
    fn any_element_of_a_power_of_ten_is_drawn() {
        assert_eq!(member_of(100_000), "element:0000000#####");
        assert_eq!(member_of(100_000).len(), member(0).len());
        assert_eq!(changing_value().len(), VALUE_BYTES);
    }

    #[test]
    fn ids_of_all_cases_differ() {
        let mut ids: Vec<String> = Vec::new();
        for (of, setting) in
            Type::ALL.iter().flat_map(|of| [Setting::NoLog, Setting::Durable].map(|s| (*of, s)))
        {
            for case in of.cases(1_000) {
                let at = |depth: &usize| At { of, setting, elements: 1_000, depth: *depth }.id(&case);
                ids.extend(case.depths().iter().map(at));
            }
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!((ids.len(), count), (66, 66), "{ids:?}");
        assert!(ids.contains(&"types/streams-xreadgroup-xack-no-log-16".to_owned()), "{ids:?}");
    }

    #[test]
    fn replies_of_the_last_group_count_that_are_not_nil_and_came_in_time() {
        let row = |answered| Row { length: Duration::from_secs(2), answered, ..Row::default() };
        let tally = Tally { answered: 200, missing: 50, ..Tally::default() };
        let last = GroupOutcome { tally, rows: vec![row(160), row(40)] };
        let first = GroupOutcome { rows: vec![row(1_000)], ..GroupOutcome::default() };
        let outcome = Outcome { groups: vec![first, last], took: Duration::from_secs(9) };
        assert_eq!(per_second(&outcome), 60.0);
    }

    #[test]
    fn each_type_has_a_plot_of_its_figures_in_any_group() {
        let figure = |id: &str, peer: Option<&str>| {
            let series = |label: &str| Series::new(label, vec![1.0]);
            Figure::new(id, "SADD", None, "", series("evenkeel"), peer.map(series))
        };
        let figures = [
            figure("types/sets-sadd", Some("Redis 7.0")),
            figure("types-durable/sets-sadd-valkey", Some("Valkey 9.1")),
            figure("types/sorted-sets-zadd", Some("Redis 7.0")),
            figure("types/lists-lpush", None),
        ];
        let plots = plots(&figures);
        let names: Vec<&str> = plots.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["types-sets.svg", "types-sorted-sets.svg"]);
        assert!(plots[0].1.contains("Redis 7.0") && plots[0].1.contains("Valkey 9.1"));
        assert_eq!(plots[0].1.matches("\nSADD\n").count(), 1, "both are one group: {}", plots[0].1);
        assert!(!plots[1].1.contains("Valkey"));
    }
}
