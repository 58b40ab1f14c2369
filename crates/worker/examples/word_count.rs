//! Word count in one process: a spout makes sentences, a bolt splits them, another one counts, and the top words are printed each second.
//!
//! ```sh
//! cargo run --release -p worker --example word_count -- 10
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::sync::mpsc::channel;
use std::time::Duration;

use topology::builder::TopologyBuilder;
use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple};
use topology::random::Random;
use topology::tracker::Position;
use topology::values;
use worker::{Options, Running};

/// A source without end.
struct Sentences {
    random: Random,
    next: u128,
}

impl Spout for Sentences {
    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        let sentence = SENTENCES[self.random.index(SENTENCES.len())];
        self.next += 1;
        out.emit(Position(self.next), &values![sentence])?;
        Ok(Next::Now)
    }
}

struct Split;

impl Bolt for Split {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        for word in tuple.str("sentence")?.split(' ') {
            out.emit(&values![word])?;
        }
        Ok(Outcome::Ack)
    }
}

/// Counts its share of the words, and tells the counts at each tick.
#[derive(Default)]
struct Count(HashMap<String, i64>);

impl Bolt for Count {
    fn execute(&mut self, tuple: &Tuple<'_>, _out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let word = tuple.str("word")?;
        match self.0.get_mut(word) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(word.to_owned(), 1)),
        }
        Ok(Outcome::Ack)
    }

    fn tick(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        for (word, count) in &self.0 {
            out.emit(&values![word, *count])?;
        }
        Ok(())
    }
}

/// Knows all counts, and prints the highest.
#[derive(Default)]
struct Top(HashMap<String, i64>);

impl Bolt for Top {
    fn execute(&mut self, tuple: &Tuple<'_>, _out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        self.0.insert(tuple.str("word")?.to_owned(), tuple.int("count")?);
        Ok(Outcome::Ack)
    }

    fn tick(&mut self, _out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let mut counts: Vec<_> = self.0.iter().collect();
        counts.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let top: Vec<String> = counts.iter().take(5).map(|(word, count)| format!("{word} {count}")).collect();
        println!("{}", top.join(", "));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = std::env::args().nth(1).as_deref().unwrap_or("5").parse()?;
    let mut builder = TopologyBuilder::new("word-count");
    builder.set_spout("sentences", || Sentences { random: Random::new(1), next: 0 }).outputs(&["sentence"]);
    builder.set_bolt("split", || Split).tasks(2).shuffle("sentences").outputs(&["word"]);
    let count = builder.set_bolt("count", Count::default).tasks(2).fields("split", &["word"]);
    count.outputs(&["word", "count"]).tick_every(Duration::from_secs(1));
    builder.set_bolt("top", Top::default).global("count").tick_every(Duration::from_secs(1));
    let program = builder.build().map_err(|problems| format!("{problems:?}"))?;

    let running = Running::start(&program, &Options::default())?;
    // Nobody sends: this waits for the time to pass.
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(Duration::from_secs(seconds));
    let ended = running.kill(Duration::from_secs(30));
    for component in &ended.stats.components {
        println!(
            "{:10} executed {:9}  acked {:9}  failed {}  p99 {} us",
            component.id,
            component.executed,
            component.acked,
            component.failed,
            component.latencies.execute.p99_us()
        );
    }
    let sentences = ended.stats.component("sentences").expect("it is declared");
    println!(
        "{} sentences/s, complete after {} us",
        sentences.acked / seconds.max(1),
        sentences.latencies.complete.mean_us()
    );
    Ok(())
}

const SENTENCES: [&str; 5] = [
    "the keel keeps the boat upright",
    "the wind turns and the sail follows",
    "a rudder without water steers nothing",
    "an anchor holds what the wind would take",
    "the boat follows the wind and the keel",
];
