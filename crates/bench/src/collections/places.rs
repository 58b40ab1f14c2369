//! Commands in the middle of large collections, by one client: medians of their latencies.

use std::time::Instant;

use crate::Failure;
use crate::client::Client;
use crate::drive::Random;
use crate::figure::{Figure, median};
use crate::servers::Recipe;

use super::fill::{Kind, member};
use super::shape::Shape;
use super::sides::Sides;

#[derive(Clone, Copy, Debug)]
enum Command {
    Zrank,
    Lindex,
    Linsert,
}

/// ZRANK of any member; LINDEX and LINSERT around the middle.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    say(&format!("places: filling {elements}"));
    let ours = Recipe::evenkeel("log", "never", shape.loops);
    let sides = Sides::start(shape, &ours, "off")?;
    sides.each(|server| {
        let mut client = server.client()?;
        Kind::SortedSet.fill(&mut client, ZSET, 0..elements, VALUE_BYTES)?;
        Kind::List.fill(&mut client, LIST, 0..elements, VALUE_BYTES)
    })?;
    let mut figures = Vec::new();
    for command in [Command::Zrank, Command::Lindex, Command::Linsert] {
        say(&format!("places: {}", command.name()));
        let mut random = Random::new(1);
        let measured = sides
            .in_turn(shape.runs, |server| command.median_us(&mut server.client()?, elements, &mut random))?;
        let title = format!("{} of {elements}, median", command.name());
        figures.extend(measured.figures(&shape.peers, &format!("places/{}", command.id()), &title, "us"));
    }
    Ok(figures)
}

impl Command {
    fn id(self) -> &'static str {
        match self {
            Self::Zrank => "zrank",
            Self::Lindex => "lindex",
            Self::Linsert => "linsert",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Zrank => "ZRANK of any member",
            Self::Lindex => "LINDEX in the middle",
            Self::Linsert => "LINSERT in the middle",
        }
    }

    fn count(self) -> usize {
        // Each looks at half of the list.
        if let Self::Linsert = self { 20 } else { 500 }
    }

    fn median_us(self, client: &mut Client, elements: u64, random: &mut Random) -> Result<f64, Failure> {
        let mut latencies = Vec::new();
        for _ in 0..self.count() {
            let middle = elements / 2;
            let any = random.below(elements);
            let (near, any, pivot) =
                ((middle + any % 1_000.min(elements / 2)).to_string(), member(any), member(middle));
            let words: &[&str] = match self {
                Self::Zrank => &["ZRANK", ZSET, &any],
                Self::Lindex => &["LINDEX", LIST, &near],
                Self::Linsert => &["LINSERT", LIST, "BEFORE", &pivot, "inserted"],
            };
            let asked = Instant::now();
            client.call(words)?;
            latencies.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(&latencies))
    }
}

const ZSET: &str = "zset";
const LIST: &str = "list";
/// An element of the list is as long as its name: that finds it.
const VALUE_BYTES: usize = 20;
