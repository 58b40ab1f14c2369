//! Reads from the device for each command on a collection that is on disk: after a restart, and again with a `memory.limit` far below the data.
//!
//! Commands are so few beside the leaves that hardly any leaf is asked for twice. So the count is what a cold command costs, and what it
//! finds in memory are the nodes above the leaves.

use std::time::Duration;

use crate::Failure;
use crate::client::Client;
use crate::drive::{PATIENCE, Random};
use crate::figure::Figure;
use crate::process::{rss_bytes, settled};
use crate::servers::{Recipe, Server};

use super::fill::{Kind, member};
use super::shape::Shape;
use super::sides::alone;

/// All kinds that have such commands.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    let recipe = Recipe::evenkeel("log", "1s", shape.loops);
    say("cold reads: an empty server");
    let empty = Server::start(&recipe, &shape.folder)?.restart(true)?;
    let empty_bytes = Held::of(&empty)?;
    drop(empty);
    let mut figures = Vec::new();
    for kind in [Kind::Hash, Kind::Set, Kind::List, Kind::SortedSet] {
        say(&format!("cold reads: {}", kind.name()));
        figures.extend(of_kind(kind, &recipe, shape, elements, empty_bytes)?);
    }
    Ok(figures)
}

/// What a server holds in memory.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Index, values and leaves, as INFO counts them.
    counted: u64,
    resident: u64,
}

impl Held {
    fn of(server: &Server) -> Result<Self, Failure> {
        let mut client = server.client()?;
        let parts = ["memory_index", "memory_values"].map(|part| client.info("memory", part));
        let counted = parts.into_iter().sum::<Result<u64, _>>()?;
        Ok(Self { counted, resident: rss_bytes(server.id())? })
    }
}

fn of_kind(
    kind: Kind,
    recipe: &Recipe,
    shape: &Shape,
    elements: u64,
    empty: Held,
) -> Result<Vec<Figure>, Failure> {
    let server = Server::start(recipe, &shape.folder)?;
    kind.fill(&mut server.client()?, KEY, 0..elements, VALUE_BYTES)?;
    let server = server.restart(true)?;
    let cold = Held::of(&server)?;
    let each = |now: u64, before: u64| (now as f64 - before as f64) / elements as f64;
    let bytes = vec![each(cold.counted, empty.counted)];
    let title = format!("memory of an element of a cold {}", kind.name());
    let id = format!("cold-reads/{}-memory", kind.name());
    let note = format!("resident: {:.2} B", each(cold.resident, empty.resident));
    let mut figures = vec![alone(&id, &title, "bytes", &recipe.label, bytes).note(&note)];

    let mut client = server.client()?;
    let mut random = Random::new(1);
    for command in commands(kind) {
        let reads = command.reads(&mut client, &mut random, elements)?;
        figures.push(command.figure("after a restart", &recipe.label, reads));
    }
    client.call(&["CONFIG", "SET", "memory.limit", &format!("{}MiB", shape.memory_limit_mib)])?;
    for command in commands(kind) {
        // What came in before is evicted, and what stays is what the server chooses.
        command.reads(&mut client, &mut random, elements)?;
        let reads = command.reads(&mut client, &mut random, elements)?;
        let situation = format!("with {} MiB of memory", shape.memory_limit_mib);
        figures.push(command.figure(&situation, &recipe.label, reads));
    }
    Ok(figures)
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Hget,
    Sismember,
    Srandmember,
    Lindex,
    Lrange,
    Zrank,
    Zrange,
}

fn commands(kind: Kind) -> &'static [Command] {
    match kind {
        Kind::Hash => &[Command::Hget],
        Kind::Set => &[Command::Sismember, Command::Srandmember],
        Kind::List => &[Command::Lindex, Command::Lrange],
        Kind::SortedSet => &[Command::Zrank, Command::Zrange],
        Kind::Stream => &[],
    }
}

impl Command {
    fn name(self) -> &'static str {
        match self {
            Self::Hget => "HGET",
            Self::Sismember => "SISMEMBER",
            Self::Srandmember => "SRANDMEMBER",
            Self::Lindex => "LINDEX",
            Self::Lrange => "LRANGE 100",
            Self::Zrank => "ZRANK",
            Self::Zrange => "ZRANGE 100",
        }
    }

    fn ask(self, client: &mut Client, number: u64) -> Result<(), Failure> {
        let (member, first, last) = (member(number), number.to_string(), (number + 99).to_string());
        let words: &[&str] = match self {
            Self::Hget => &["HGET", KEY, &member],
            Self::Sismember => &["SISMEMBER", KEY, &member],
            Self::Srandmember => &["SRANDMEMBER", KEY],
            Self::Lindex => &["LINDEX", KEY, &first],
            Self::Lrange => &["LRANGE", KEY, &first, &last],
            Self::Zrank => &["ZRANK", KEY, &member],
            Self::Zrange => &["ZRANGE", KEY, &first, &last],
        };
        client.call(words).map(drop)
    }

    /// Reads from the device for each of a few commands on any elements.
    fn reads(self, client: &mut Client, random: &mut Random, elements: u64) -> Result<f64, Failure> {
        let count = (elements / ELEMENTS_PER_COMMAND).clamp(COMMANDS_MIN, COMMANDS_MAX);
        let before = settled_reads(client)?;
        for _ in 0..count {
            self.ask(client, random.below(elements))?;
        }
        Ok((settled_reads(client)? - before) as f64 / count as f64)
    }

    fn figure(self, situation: &str, label: &str, reads: f64) -> Figure {
        let name = self.name().replace(' ', "-").to_lowercase();
        let when = if situation.starts_with("after") { "restart" } else { "limit" };
        let title = format!("{}, {situation}", self.name());
        alone(&format!("cold-reads/{name}-{when}"), &title, "reads a command", label, vec![reads])
    }
}

/// `log_cold_reads`, when it stands still.
fn settled_reads(client: &mut Client) -> Result<u64, Failure> {
    let (every, patience) = (Duration::from_millis(20), PATIENCE);
    settled(every, patience, |last, now| last == now, || client.info("all", "log_cold_reads"))
}

const KEY: &str = "collection";
const VALUE_BYTES: usize = 30;
/// A leaf of 2 KiB has about 40 elements: of 50 leaves one is asked for.
const ELEMENTS_PER_COMMAND: u64 = 2_000;
const COMMANDS_MIN: u64 = 20;
const COMMANDS_MAX: u64 = 1_000;
