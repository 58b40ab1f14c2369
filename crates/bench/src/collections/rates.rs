//! Requests a second of 50 clients: writes that are durable before their replies, and all without a log.
//!
//! Writes add elements: a number is drawn for each request from so many that hardly any comes twice, its last digits choose the collection.

use std::time::Duration;

use crate::Failure;
use crate::figure::Figure;
use crate::servers::{Recipe, Server};

use super::fill::Kind;
use super::load::{command, drive, group, text};
use super::shape::Shape;
use super::sides::Sides;

/// A command, with runs of `#` where a number goes.
struct Case {
    name: &'static str,
    arguments: Vec<String>,
    /// Numbers that are drawn.
    numbers: u64,
}

/// All commands.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    let (writes, reads) = (writes(shape), reads(shape, elements));
    let durable = Recipe::evenkeel("log", "always", shape.loops);
    let mut figures = Setting { what: "durable", ours: durable, fsync: "always" }.measure(
        shape,
        elements,
        &writes.iter().collect::<Vec<_>>(),
        say,
    )?;
    let memory = Recipe::evenkeel("memory", "never", shape.loops).labelled("evenkeel memory");
    let without = Setting { what: "without a log", ours: memory, fsync: "off" };
    figures.extend(without.measure(
        shape,
        elements,
        &writes.iter().chain(&reads).collect::<Vec<_>>(),
        say,
    )?);
    Ok(figures)
}

/// All sides with the same promise.
struct Setting {
    what: &'static str,
    ours: Recipe,
    fsync: &'static str,
}

impl Setting {
    fn measure(
        &self,
        shape: &Shape,
        elements: u64,
        cases: &[&Case],
        say: &dyn Fn(&str),
    ) -> Result<Vec<Figure>, Failure> {
        say(&format!("rates, {}: filling", self.what));
        let sides = Sides::start(shape, &self.ours, self.fsync)?;
        sides.each(|server| fill(server, shape, elements))?;
        let mut figures = Vec::new();
        for case in cases {
            for depth in [1, 16] {
                let title = format!("{}, {}, pipeline {depth}", case.name, self.what);
                say(&format!("rates: {title}"));
                let measured =
                    sides.in_turn(shape.runs, |server| per_second(server, case, depth, shape.duration))?;
                let id =
                    format!("rates/{}-{}-{depth}", case.name.replace(' ', "-").to_lowercase(), self.what);
                figures.extend(measured.figures(&shape.peers, &id.replace(' ', "-"), &title, "requests/s"));
            }
        }
        Ok(figures)
    }
}

/// Collections with `elements` of each kind, and a hundred with 100 elements each.
fn fill(server: &Server, shape: &Shape, elements: u64) -> Result<(), Failure> {
    let mut client = server.client()?;
    let collections = 10_u64.pow(shape.collection_digits as u32);
    for kind in Kind::ALL {
        for number in 0..collections {
            let key = format!("{}:{}", kind.name(), digits(number, shape.collection_digits));
            let numbers = (number..elements).step_by(collections as usize);
            kind.fill(&mut client, &key, numbers, VALUE_BYTES)?;
        }
    }
    for kind in [Kind::List, Kind::SortedSet, Kind::Set] {
        for number in 0..HUNDREDS {
            let key = format!("{}100:{number:02}", kind.name());
            kind.fill(&mut client, &key, number * 100..(number + 1) * 100, VALUE_BYTES)?;
        }
    }
    Ok(())
}

fn writes(shape: &Shape) -> Vec<Case> {
    let runs = "#".repeat(shape.collection_digits);
    let key = |kind: Kind| format!("{}:{runs}", kind.name());
    let member = || format!("element:{}", "#".repeat(12));
    let value = text(VALUE_BYTES);
    let case = |name, arguments| Case { name, arguments, numbers: NUMBERS };
    vec![
        case("HSET", vec!["HSET".into(), key(Kind::Hash), member(), value.clone()]),
        case("LPUSH", vec!["LPUSH".into(), key(Kind::List), value.clone()]),
        case("SADD", vec!["SADD".into(), key(Kind::Set), member()]),
        case("ZADD", vec!["ZADD".into(), key(Kind::SortedSet), "#".repeat(9), member()]),
        case("XADD", vec!["XADD".into(), key(Kind::Stream), "*".into(), "field".into(), value]),
    ]
}

fn reads(shape: &Shape, elements: u64) -> Vec<Case> {
    let hash = format!("hash:{}", "#".repeat(shape.collection_digits));
    let hundred = |kind: Kind| format!("{}100:##", kind.name());
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let case = |name, arguments, numbers| Case { name, arguments, numbers };
    vec![
        case("HGET", words(&["HGET", &hash, "element:############"]), elements),
        case("LRANGE 100", words(&["LRANGE", &hundred(Kind::List), "0", "99"]), HUNDREDS),
        case("ZRANGE 100", words(&["ZRANGE", &hundred(Kind::SortedSet), "0", "99"]), HUNDREDS),
        case("SMEMBERS 100", words(&["SMEMBERS", &hundred(Kind::Set)]), HUNDREDS),
    ]
}

/// Drives `server` with a command for `duration`, after a third of it that does not count.
fn per_second(server: &Server, case: &Case, depth: usize, duration: Duration) -> Result<f64, Failure> {
    let groups = |length| vec![group(command(&case.arguments), case.numbers, depth, length)];
    drive(server, case.name, [duration / 3, duration], groups).map(|outcome| outcome.per_second())
}

/// The last `count` digits of `number`.
fn digits(number: u64, count: usize) -> String {
    if count == 0 { String::new() } else { format!("{number:0count$}") }
}

const VALUE_BYTES: usize = 100;
/// Collections of 100 elements.
const HUNDREDS: u64 = 100;
/// Hardly any is drawn twice.
const NUMBERS: u64 = 1_000_000_000;
