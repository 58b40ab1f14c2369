//! `generator`: numbered tuples with a text of random letters; equal options give equal tuples.
//!
//! A task of `n` emits every `n`-th number, so all tasks together emit each number once. A new start begins at 0 again; with exactly-once, behind what is durable.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use topology::builder::Factory;
use topology::component::{Context, Fault, Next, Spout, SpoutOut};
use topology::past::Past;
use topology::random::Random;
use topology::tracker::Position;
use topology::value::Value;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// What it generates.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// Tuples of all tasks.
    count: Option<u64>,
    /// Tuples a second of all tasks.
    rate: Option<u64>,
    size_bytes: usize,
    distinct: Option<u64>,
    seed: u64,
}

struct Generator {
    settings: Settings,
    clock: Arc<dyn Clock>,
    start: Nanos,
    /// The first number since the start.
    first: u64,
    /// The next number, and the step to the one after it.
    next: u64,
    step: u64,
    /// Fields of its stream.
    fields: usize,
    text: String,
    /// What tasks have emitted when there were others.
    past: Past,
}

impl Generator {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let start = clock.now();
        Self {
            settings,
            clock,
            start,
            first: 0,
            next: 0,
            step: 1,
            fields: 2,
            text: String::new(),
            past: Past::default(),
        }
    }

    /// When the next tuple is due, from the start on.
    fn due(&self) -> Duration {
        let Some(rate) = self.settings.rate else { return Duration::ZERO };
        Duration::from_nanos((u128::from(self.next - self.first) * 1_000_000_000 / u128::from(rate)) as u64)
    }

    /// The time since the start. Of a time in which nobody asked [`LATE_MAX`] is made up for: more would come all at once.
    fn elapsed(&mut self) -> Duration {
        let elapsed = self.clock.now().since(self.start);
        if self.settings.rate.is_none() {
            return elapsed;
        }
        let missed = elapsed.saturating_sub(self.due() + LATE_MAX);
        self.start = self.start + missed;
        elapsed - missed
    }

    fn fill_text(&mut self) {
        let Settings { size_bytes, distinct, seed, .. } = self.settings;
        let number = distinct.map_or(self.next, |distinct| self.next % distinct);
        let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.text.clear();
        while self.text.len() < size_bytes {
            let mut bits = random.bits();
            for _ in 0..LETTERS_OF_BITS.min(size_bytes - self.text.len()) {
                self.text.push(char::from(b'a' + (bits % 26) as u8));
                bits /= 26;
            }
        }
    }
}

impl Spout for Generator {
    fn open(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        (self.next, self.step) = (u64::from(context.place()), u64::from(context.tasks()));
        let streams = &context.plan().component(context.component()).streams;
        self.fields = streams.first().map_or(2, |stream| stream.fields.len());
        self.start = self.clock.now();
        Ok(())
    }

    fn seek(&mut self, after: Option<Position>) -> Result<(), Fault> {
        self.seek_past(&Past::after(after))
    }

    fn seek_past(&mut self, past: &Past) -> Result<(), Fault> {
        if let Some(Position(done)) = past.begin() {
            // a task's first number is less than the step
            let place = self.next % self.step;
            let after = u64::try_from(done)? + 1;
            self.next = after + (place + self.step - after % self.step) % self.step;
            self.first = self.next - place;
        }
        self.past = past.clone();
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        let now = self.elapsed();
        for _ in 0..out.room().max(1) {
            if self.settings.count.is_some_and(|count| self.next >= count) {
                return Ok(Next::Woken);
            }
            if let Some(wait) = self.due().checked_sub(now).filter(|wait| !wait.is_zero()) {
                return Ok(Next::After(wait));
            }
            if self.past.is_done(Position(u128::from(self.next)), |tasks| self.next % tasks) {
                self.next += self.step;
                continue;
            }
            self.fill_text();
            let (number, text) = (Value::Int(self.next as i64), Value::Str(self.text.as_str().into()));
            let values = if self.fields == 1 { vec![text] } else { vec![number, text] };
            out.emit(Position(u128::from(self.next)), &values)?;
            self.next += self.step;
        }
        Ok(Next::Now)
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").field("next", &self.next).finish_non_exhaustive()
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let settings = Settings {
        count: arguments.number("--count"),
        rate: arguments.number("--rate"),
        size_bytes: arguments.number("--size").unwrap_or_default() as usize,
        distinct: arguments.number("--distinct"),
        seed: arguments.number("--seed").unwrap_or_default(),
    };
    let factory = Factory::spout(move || Generator::new(settings, Arc::new(SystemClock)));
    Ok(Made {
        factory,
        reads: Vec::new(),
        reach: Reach::Server,
        emits: Emits::Values(1..=2, "a number and a text, or the text alone"),
        exact: Exact::Same,
    })
}

/// Tuples that are later than this are left out.
const LATE_MAX: Duration = Duration::from_secs(1);
/// 26 to the power of 13 is less than 2 to the power of 64.
const LETTERS_OF_BITS: usize = 13;
const OPTIONS: &[Opt] = &[
    Opt {
        name: "--count",
        value: Kind::Number(1, 1 << 50),
        default: "",
        what: "tuples of all tasks; without it there is no end",
    },
    Opt {
        name: "--rate",
        value: Kind::Number(1, 100_000_000),
        default: "",
        what: "tuples a second of all tasks; without it as many as are taken",
    },
    Opt { name: "--size", value: Kind::Number(1, 1 << 20), default: "16", what: "bytes of the text" },
    Opt {
        name: "--distinct",
        value: Kind::Number(1, 1 << 50),
        default: "",
        what: "different texts; without it each is different",
    },
    Opt {
        name: "--seed",
        value: Kind::Number(0, u64::MAX),
        default: "1",
        what: "another seed gives other texts",
    },
];

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "generator",
    what: "emits numbered tuples with a random text",
    signature: Signature { words: "", words_count: (0, 0), options: OPTIONS },
    keeps: &[Keeps::Progress],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Stand;
    use clock::{SimClock, UnixMs};

    fn texts(emitted: &[(u128, Vec<String>)]) -> Vec<&str> {
        emitted.iter().map(|(_, values)| values[1].as_str()).collect()
    }

    #[test]
    fn equal_seeds_give_equal_tuples_and_there_are_as_many_different_ones_as_asked_for() {
        let settings = Settings { count: Some(7), rate: None, size_bytes: 20, distinct: Some(3), seed: 5 };
        let run = || {
            let mut stand = Stand::spout(Generator::new(settings, Arc::new(SystemClock)), &["n", "text"]);
            stand.ask();
            assert_eq!(stand.ask(), Next::Woken);
            stand.emitted
        };
        let emitted = run();
        assert_eq!(emitted, run());
        let numbers: Vec<&str> = emitted.iter().map(|(_, values)| values[0].as_str()).collect();
        assert_eq!(numbers, ["0", "1", "2", "3", "4", "5", "6"]);
        let texts = texts(&emitted);
        assert!(texts[0] == texts[3] && texts[0] != texts[1] && texts.iter().all(|text| text.len() == 20));
    }

    #[test]
    fn rate_is_kept_by_asking_to_be_called_later() {
        let clock = Arc::new(SimClock::new(UnixMs(0)));
        let settings = Settings { count: None, rate: Some(10), size_bytes: 1, distinct: None, seed: 1 };
        let mut stand =
            Stand::spout(Generator::new(settings, Arc::clone(&clock) as Arc<dyn Clock>), &["n", "t"]);
        assert_eq!((stand.ask(), stand.emitted.len()), (Next::After(Duration::from_millis(100)), 1));
        clock.advance(Duration::from_millis(250));
        assert_eq!((stand.ask(), stand.emitted.len()), (Next::After(Duration::from_millis(50)), 3));
    }

    /// A topology that was inactive for an hour got all tuples of that hour at once.
    #[test]
    fn rate_is_kept_after_an_hour_in_which_nobody_asked() {
        let clock = Arc::new(SimClock::new(UnixMs(0)));
        let settings = Settings { count: None, rate: Some(10), size_bytes: 1, distinct: None, seed: 1 };
        let mut stand =
            Stand::spout(Generator::new(settings, Arc::clone(&clock) as Arc<dyn Clock>), &["n", "t"]);
        stand.ask();
        for hours in 1..3 {
            clock.advance(Duration::from_secs(3_600));
            let before = stand.emitted.len();
            while stand.ask() == Next::Now {}
            let came = stand.emitted.len() - before;
            assert!((10..=12).contains(&came), "{came} tuples in hour {hours}");
            clock.advance(Duration::from_secs(1));
            assert_eq!(
                (stand.ask(), stand.emitted.len() - before - came),
                (Next::After(Duration::from_millis(100)), 10)
            );
        }
    }
}
