//! Memory of an element: the growth of `used_memory` while it is filled, on a fresh server for each kind.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::{Client, Requests};
use crate::figure::{Figure, Series, median};
use crate::process::rss_bytes;
use crate::servers::{Recipe, Server};

use super::fill::{Kind, member};
use super::shape::Shape;
use super::sides::Measured;

/// What is counted.
#[derive(Clone, Copy, Debug)]
enum Case {
    SmallHash,
    Large(Kind),
    Pending,
}

/// Growth of one run, for each element.
struct Growth {
    used_bytes: f64,
    rss_bytes: f64,
}

/// All kinds.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    let cases = [
        Case::SmallHash,
        Case::Large(Kind::SortedSet),
        Case::Large(Kind::Set),
        Case::Large(Kind::Hash),
        Case::Pending,
    ];
    let figures = cases.iter().map(|case| case.measure(shape, elements, say));
    Ok(figures.collect::<Result<Vec<_>, _>>()?.concat())
}

impl Case {
    fn measure(self, shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
        let (id, title) = self.names();
        say(&format!("memory: {title}"));
        let ours = Recipe::evenkeel("log", "1s", shape.loops);
        let recipes = std::iter::once(ours).chain(shape.peers.iter().map(|peer| peer.recipe("off")));
        let (mut series, mut notes) = (Vec::new(), Vec::new());
        for recipe in recipes {
            let runs = 0..shape.runs.min(RUNS_MAX);
            let growths =
                runs.map(|_| self.growth(&recipe, shape, elements)).collect::<Result<Vec<_>, _>>()?;
            let resident: Vec<f64> = growths.iter().map(|growth| growth.rss_bytes).collect();
            notes.push(format!("{} {:.1} B", recipe.label, median(&resident)));
            let used = growths.iter().map(|growth| growth.used_bytes).collect();
            series.push(Series::new(&recipe.label, used));
        }
        let figures = Measured::of(series).figures(&shape.peers, &format!("memory/{id}"), title, "bytes");
        let note = format!("growth of the resident memory: {}", notes.join(", "));
        Ok(figures.into_iter().map(|figure| figure.note(&note)).collect())
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::SmallHash => ("small-hash", "a hash of 5 small fields"),
            Self::Large(Kind::SortedSet) => ("zset-member", "a member of a large sorted set"),
            Self::Large(Kind::Set) => ("set-member", "a member of a large set"),
            Self::Large(_) => ("hash-field", "a field of a large hash"),
            Self::Pending => ("pending-entry", "an entry that is pending in a group"),
        }
    }

    /// Fills a fresh server.
    fn growth(self, recipe: &Recipe, shape: &Shape, elements: u64) -> Result<Growth, Failure> {
        let server = Server::start(recipe, &shape.folder)?;
        let mut client = server.client()?;
        // Buffers that any work needs are there before the count starts.
        server.fill(0..1_000)?;
        if let Self::Pending = self {
            Kind::Stream.fill(&mut client, STREAM, 0..elements, VALUE_BYTES)?;
            client.call(&["XGROUP", "CREATE", STREAM, "group", "0"])?;
            client.call(&[
                "XREADGROUP",
                "GROUP",
                "group",
                "consumer",
                "COUNT",
                "1",
                "STREAMS",
                STREAM,
                ">",
            ])?;
        }
        let (used, resident) = settled(&server, &mut client)?;
        let count = self.fill(&mut client, elements)?;
        let (used_after, resident_after) = settled(&server, &mut client)?;
        let each = |before: u64, after: u64| (after as f64 - before as f64) / count as f64;
        Ok(Growth { used_bytes: each(used, used_after), rss_bytes: each(resident, resident_after) })
    }

    /// Fills, and says how many there are of what is counted.
    fn fill(self, client: &mut Client, elements: u64) -> Result<u64, Failure> {
        match self {
            Self::SmallHash => fill_small(client, (elements / FIELDS).max(1)),
            Self::Large(kind) => {
                kind.fill(client, "large", 0..elements, VALUE_BYTES)?;
                Ok(elements)
            }
            Self::Pending => {
                for _ in 0..elements.div_ceil(READ_COUNT) {
                    let count = READ_COUNT.to_string();
                    let words =
                        ["XREADGROUP", "GROUP", "group", "consumer", "COUNT", &count, "STREAMS", STREAM, ">"];
                    client.call(&words)?;
                }
                Ok(elements)
            }
        }
    }
}

/// `count` hashes with the same names of fields.
fn fill_small(client: &mut Client, count: u64) -> Result<u64, Failure> {
    let numbers: Vec<u64> = (0..count).collect();
    for chunk in numbers.chunks(256) {
        let mut requests = Requests::default();
        for number in chunk {
            let (key, value) = (member(*number), format!("{number:010}"));
            let mut words = vec!["HSET", &key];
            ["name", "mail", "city", "seen", "hits"].iter().for_each(|field| words.extend([field, &*value]));
            requests.add(&words);
        }
        requests.ask(client)?;
    }
    Ok(count)
}

/// `used_memory` and resident bytes once they stand still: no change of more than 64 KiB in 3 s. A server that folds what was changed begins with it
/// a second or two after the last change.
fn settled(server: &Server, client: &mut Client) -> Result<(u64, u64), Failure> {
    let started = Instant::now();
    let mut look = || Ok::<_, Failure>((client.info("memory", "used_memory")?, rss_bytes(server.id())?));
    let (mut last, mut since) = (look()?, Instant::now());
    while started.elapsed() < Duration::from_secs(20) && since.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(300));
        let now = look()?;
        if now.0.abs_diff(last.0) > 64 << 10 || now.1.abs_diff(last.1) > 64 << 10 {
            (last, since) = (now, Instant::now());
        }
    }
    look()
}

const STREAM: &str = "stream";
const FIELDS: u64 = 5;
const VALUE_BYTES: usize = 20;
const READ_COUNT: u64 = 1_000;
/// Equal runs hardly differ.
const RUNS_MAX: usize = 2;
