//! `rate-limit`: so many tuples a second of each task go on; others come again when it is their time.
//!
//! A tuple beyond the rate fails without blame: its spout emits it again after the time that it would have to wait, and the attempt does not count. So nothing
//! waits here, and nobody who shares the thread does. Each is given a time of its own: if all of a burst came again with the first of them, the attempts
//! would be as many as the square of its tuples.
//!
//! Source: the generic cell rate algorithm; two times for each value are all that is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use topology::builder::Factory;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::convert::append_field;
use crate::counting::KEYS_MAX;
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// The rate, and for which values.
#[derive(Clone, Debug)]
struct Settings {
    /// Time between two tuples.
    interval: Duration,
    /// How far ahead of its time a tuple may go on.
    ahead: Duration,
    by: Option<String>,
    keys_max: usize,
}

#[derive(Debug)]
struct RateLimit {
    settings: Settings,
    clock: Arc<dyn Clock>,
    /// Values that are at their rate.
    values: HashMap<Vec<u8>, Times>,
}

/// Of one value. Times that are past are as if they were not there.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// When its next tuple is due.
    due: Nanos,
    /// From when on nobody was told to come again.
    free: Nanos,
}

impl Times {
    /// Lets a tuple go on at `now`, or says how long it has to wait.
    fn take(&mut self, now: Nanos, interval: Duration, ahead: Duration) -> Result<(), Duration> {
        let due = self.due.max(now);
        if due.since(now) <= ahead {
            self.due = due + interval;
            return Ok(());
        }
        // `ahead` before it is due, it may go on
        let at = (now + (due.since(now) - ahead)).max(self.free).min(now + WAIT_MAX);
        self.free = at + interval;
        Err(at.since(now))
    }

    fn is_past(&self, now: Nanos) -> bool {
        self.due <= now && self.free <= now
    }
}

impl Bolt for RateLimit {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let Settings { interval, ahead, by, keys_max } = &self.settings;
        let (mut value, now) = (Vec::new(), self.clock.now());
        by.iter().try_for_each(|by| append_field(tuple, by, &mut value))?;
        if self.values.len() >= *keys_max && !self.values.contains_key(&value) {
            self.values.retain(|_, times| !times.is_past(now));
            if self.values.len() >= *keys_max {
                let text = format!("{keys_max} values are at their rate: --keys-max allows no more");
                return Err(Fault::silent(text).after(Duration::from_secs(1)));
            }
        }
        let times = self.values.entry(value).or_insert(Times { due: now, free: now });
        times.take(now, *interval, *ahead).map_err(|wait| Fault::silent("beyond the rate").after(wait))?;
        let (values, anchors) = (tuple.values().clone(), &[tuple.id()]);
        out.send(Outgoing { stream: DEFAULT_STREAM, values, anchors, direct: None })?;
        Ok(Outcome::Ack)
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let word = &arguments.words()[0];
    let rate = word.parse::<u32>().ok().filter(|rate| (1..=RATE_MAX).contains(rate));
    let rate = rate.ok_or_else(|| format!("RATE must be an integer of 1 to {RATE_MAX}, not `{word}`"))?;
    let interval = Duration::from_secs(1) / rate;
    let burst = arguments.number("--burst").unwrap_or(1) as u32;
    let by = arguments.text("--by").map(str::to_owned);
    let keys_max = arguments.number(KEYS_MAX.name).unwrap_or_default() as usize;
    let reads = by.iter().cloned().collect();
    let settings = Settings { interval, ahead: interval * (burst - 1), by, keys_max };
    let factory = Factory::bolt(move || RateLimit {
        settings: settings.clone(),
        clock: Arc::new(SystemClock),
        values: HashMap::new(),
    });
    Ok(Made {
        factory,
        reads,
        reach: Reach::Server,
        emits: Emits::InputAnd(0, "what it reads"),
        exact: Exact::Same,
    })
}

const RATE_MAX: u32 = 1_000_000;
/// A tuple comes again after so long at the latest, whoever else was told to.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "rate-limit",
    what: "lets so many tuples a second of each task go on; others are emitted again when it is their time",
    signature: Signature {
        words: "RATE",
        words_count: (1, 1),
        options: &[
            Opt {
                name: "--by",
                value: Kind::Text,
                default: "",
                what: "field whose values have the rate each; without it all tuples together",
            },
            Opt {
                name: "--burst",
                value: Kind::Number(1, 1_000_000),
                default: "1",
                what: "tuples that may go on at a time after a rest",
            },
            KEYS_MAX,
        ],
    },
    keeps: &[Keeps::Memory("the rates of its values in memory")],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stand, made};
    use clock::{SimClock, UnixMs};
    use topology::value::Value;

    #[test]
    fn tuples_beyond_the_rate_come_again_and_each_value_has_its_own() {
        let clock = Arc::new(SimClock::new(UnixMs(0)));
        let settings = Settings {
            interval: Duration::from_millis(100),
            ahead: Duration::from_millis(100),
            by: Some("word".to_owned()),
            keys_max: 2,
        };
        let limit =
            RateLimit { settings, clock: Arc::clone(&clock) as Arc<dyn Clock>, values: HashMap::new() };
        let mut stand = Stand::bolt(limit, &["word"], &["word"]);
        for word in ["a", "a", "a", "b", "c"] {
            stand.execute(&[Value::from(word)]);
        }
        assert_eq!(stand.record.acked, [1, 2, 4], "two at a time, then no more");
        let errors: Vec<&str> = stand.record.failed.iter().map(|(_, error)| error.as_str()).collect();
        assert_eq!(errors, ["beyond the rate", "2 values are at their rate: --keys-max allows no more"]);
        clock.advance(Duration::from_millis(100));
        stand.execute(&[Value::from("a")]);
        stand.execute(&[Value::from("c")]);
        assert_eq!(stand.record.acked, [1, 2, 4, 6, 7]);
    }

    /// Each tuple of a burst came again with the first of them: 200 needed 20,100 attempts.
    #[test]
    fn burst_passes_at_the_rate_in_about_two_attempts_each() {
        let (interval, start) = (Duration::from_millis(10), Nanos(1_000_000_000));
        let mut times = Times { due: start, free: start };
        let mut waiting = std::collections::BTreeMap::from_iter((0..200).map(|n| ((start, n), ())));
        let (mut attempts, mut passed_at) = (0, Vec::new());
        while let Some(((now, n), ())) = waiting.pop_first() {
            attempts += 1;
            match times.take(now, interval, 4 * interval) {
                Ok(()) => passed_at.push(now),
                Err(wait) => assert!(waiting.insert((now + wait, n), ()).is_none()),
            }
        }
        assert!(attempts <= 400, "{attempts} attempts");
        assert!(passed_at.windows(6).all(|six| six[5].since(six[0]) >= interval), "beyond the rate");
        assert_eq!(passed_at.last().expect("all").since(start), 195 * interval, "no slower than the rate");
    }

    #[test]
    fn rate_that_is_none_is_refused() {
        assert!(made(&ROW, "0").expect_err("refused").contains("RATE must be an integer of 1 to"));
        assert_eq!(made(&ROW, "5 --by w").expect("right").reads, ["w"]);
    }
}
