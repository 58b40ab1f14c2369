//! `join`: a tuple of one component and a tuple of another one with the same key become one tuple.
//!
//! ```text
//!  LEFT  -> waits by its key --\
//!                               +-- the oldest of each side: left values, right values
//!  RIGHT -> waits by its key --/
//!  beyond `--within-ms`, or the oldest beyond `--tuples-max`: source, key, values (a JSON array) on the stream `unmatched`
//! ```
//!
//! Invariants
//!   1. Tuples of a key are joined in the order in which they came, each once.
//!   2. A tuple that waits is not acknowledged: it is tried again if the worker dies. Its time-out begins anew with each tick.
//!   3. At most `--tuples-max` tuples of a task wait.
//!
//! With exactly-once tuples wait in keys, and are acknowledged when they came: `exactly`.

mod exactly;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use serde_json::Value as Json;
use topology::bolt::TupleId;
use topology::builder::Factory;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::convert::{append_field, text_value};
use crate::counting::BY;
use crate::form::Form;
use crate::http_sink::json;
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row, UNMATCHED};
use exactly::Exactly;

/// What is joined.
#[derive(Clone, Debug)]
struct Settings {
    /// The components, left and right.
    sources: [String; 2],
    by: String,
    within: Duration,
    tuples_max: usize,
}

/// The bolt.
#[derive(Debug)]
struct Join {
    settings: Settings,
    clock: Arc<dyn Clock>,
    /// By the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    /// For each side, those that wait for a key.
    by_key: [HashMap<Vec<u8>, VecDeque<u64>>; 2],
    came: u64,
    /// Somebody reads, or may read, what finds no partner.
    tells_unmatched: bool,
}

/// A tuple that waits for its partner.
#[derive(Debug)]
struct Waiting {
    id: TupleId,
    side: usize,
    key: Vec<u8>,
    values: Values,
    since: Nanos,
}

impl Join {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let (waiting, by_key) = (BTreeMap::new(), [HashMap::new(), HashMap::new()]);
        Self { settings, clock, waiting, by_key, came: 0, tells_unmatched: false }
    }

    /// Takes the oldest that waits on a side for a key.
    fn take(&mut self, side: usize, key: &[u8]) -> Option<Waiting> {
        let numbers = self.by_key[side].get_mut(key)?;
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.by_key[side].remove(key);
        }
        self.waiting.remove(&number?)
    }

    fn keep(&mut self, waiting: Waiting) {
        self.came += 1;
        self.by_key[waiting.side].entry(waiting.key.clone()).or_default().push_back(self.came);
        self.waiting.insert(self.came, waiting);
    }

    /// Gives up what has waited for too long, and the oldest while too many wait.
    fn give_up(&mut self, now: Nanos, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        while let Some((_, oldest)) = self.waiting.first_key_value()
            && (now.since(oldest.since) >= self.settings.within
                || self.waiting.len() > self.settings.tuples_max)
        {
            let (side, key) = (oldest.side, oldest.key.clone());
            // The oldest of all is the oldest of its key.
            let Some(Waiting { id, values, .. }) = self.take(side, &key) else { return Ok(()) };
            let told = self.tell_unmatched(side, &key, &values, id, out);
            // The runner may have failed it meanwhile.
            match &told {
                Ok(()) => out.ack(id).unwrap_or(()),
                Err(fault) => out.fail(id, fault).unwrap_or(()),
            }
            told?;
        }
        Ok(())
    }

    /// Emits what is told of a tuple without a partner, if somebody reads it.
    fn tell_unmatched(
        &self,
        side: usize,
        key: &[u8],
        values: &Values,
        id: TupleId,
        out: &mut BoltOut<'_>,
    ) -> Result<(), Fault> {
        if self.tells_unmatched {
            let values = unmatched(&self.settings.sources[side], key, values)?;
            out.send(Outgoing { stream: UNMATCHED, values, anchors: &[id], direct: None })?;
        }
        Ok(())
    }
}

/// All values of a tuple.
fn all(values: &Values) -> Result<Vec<Value<'_>>, Fault> {
    let value = |place| values.value(place).expect("it is within its length");
    (0..values.len()).map(value).collect::<Result<_, _>>().map_err(|error| Fault::fatal(error.to_string()))
}

/// Which side a tuple is on, and its key.
fn side_and_key(settings: &Settings, tuple: &Tuple<'_>) -> Result<(usize, Vec<u8>), Fault> {
    let side = settings.sources.iter().position(|source| source == tuple.component());
    let side = side.ok_or_else(|| Fault::fatal(format!("`{}` is on neither side", tuple.component())))?;
    let mut key = Vec::new();
    append_field(tuple, &settings.by, &mut key)?;
    Ok((side, key))
}

/// The values of a tuple on `side` and those of its partner, the left ones first.
fn joined(side: usize, values: &Values, partner: &Values) -> Result<Values, Fault> {
    let (left, right) = if side == 0 { (values, partner) } else { (partner, values) };
    Ok(Values::encode(&[all(left)?, all(right)?].concat())?)
}

/// What is told of a tuple without a partner.
fn unmatched(source: &str, key: &[u8], values: &Values) -> Result<Values, Fault> {
    // What JSON has not is null there.
    let array: Vec<Json> = all(values)?.iter().map(|it| json(it).unwrap_or(Json::Null)).collect();
    let text = Json::Array(array).to_string();
    Ok(Values::encode(&[source.into(), text_value(key), text.as_str().into()])?)
}

/// Whether somebody reads, or may read, what finds no partner.
///
/// # Errors
/// There are no ticks, which give up what waits while no tuples come.
fn tells_unmatched(context: &Context<'_>) -> Result<bool, Fault> {
    let (plan, component) = (context.plan(), context.component());
    if plan.tick_interval(component).is_none() {
        return Err(Fault::new("what waits is looked at with each tick: set topology.tick.tuple.freq.secs"));
    }
    Ok(plan.component(component).streams.iter().any(|stream| stream.id == UNMATCHED))
}

impl Bolt for Join {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        self.tells_unmatched = tells_unmatched(context)?;
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let now = self.clock.now();
        self.give_up(now, out)?;
        let (side, key) = side_and_key(&self.settings, tuple)?;
        let (id, values) = (tuple.id(), tuple.values().clone());
        let Some(partner) = self.take(1 - side, &key) else {
            self.keep(Waiting { id, side, key, values, since: now });
            self.give_up(now, out)?;
            return Ok(Outcome::Keep);
        };
        let values = joined(side, &values, &partner.values)?;
        let anchors = &[partner.id, id];
        let sent = out.send(Outgoing { stream: DEFAULT_STREAM, values, anchors, direct: None });
        if let Err(error) = sent {
            let fault = Fault::from(error);
            out.fail(partner.id, &fault).unwrap_or(());
            return Err(fault);
        }
        out.ack(partner.id).unwrap_or(());
        Ok(Outcome::Ack)
    }

    fn tick(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        self.give_up(self.clock.now(), out)?;
        self.waiting.values().for_each(|waiting| out.extend(waiting.id).unwrap_or(()));
        Ok(())
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let sources = [0, 1].map(|place| arguments.words()[place].clone());
    if sources[0] == sources[1] {
        return Err(format!("`{}` is on both sides: a tuple would be joined with itself", sources[0]).into());
    }
    let by = arguments.needed("--by")?;
    let settings = Settings {
        sources: sources.clone(),
        by: by.clone(),
        within: Duration::from_millis(arguments.number("--within-ms").unwrap_or_default()),
        tuples_max: arguments.number("--tuples-max").unwrap_or_default() as usize,
    };
    let of_exactly = settings.clone();
    let factory = Factory::bolt(move || Join::new(settings.clone(), Arc::new(SystemClock)));
    let exact = match arguments.text("--prefix").zip(Form::new(arguments, FORM)) {
        None => Exact::None("tuples that wait in memory are not part of an epoch: give `--prefix`"),
        Some((prefix, form)) => {
            let prefix = prefix.to_owned();
            let exactly =
                move || Exactly::new(of_exactly.clone(), form.clone(), prefix.clone(), Arc::new(SystemClock));
            Exact::Keyed(Factory::bolt(exactly), by.clone())
        }
    };
    Ok(Made { factory, reads: vec![by], reach: Reach::Server, emits: Emits::Joined(sources), exact })
}

/// Options that say what the keys are of.
const FORM: &[&str] = &["--by"];

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "join",
    what: "joins tuples of two components that have the same key, within a time",
    signature: Signature {
        words: "LEFT RIGHT",
        words_count: (2, 2),
        options: &[
            BY,
            Opt {
                name: "--within-ms",
                value: Kind::Number(1, 86_400_000),
                default: "60000",
                what: "time that a tuple waits for its partner (ms)",
            },
            Opt {
                name: "--tuples-max",
                value: Kind::Number(1, 1_000_000),
                default: "10000",
                what: "tuples of a task that wait, beyond which the oldest is given up",
            },
            Opt {
                name: "--prefix",
                value: Kind::Text,
                default: "",
                what: "prefix of the keys in which tuples wait with exactly-once, which needs it; else they wait in memory",
            },
        ],
    },
    keeps: &[Keeps::MemoryOrKeysOfTasks("tuples that wait for their partner, which are tried again", FORM)],
    make,
};

#[cfg(test)]
mod tests {
    use clock::{SimClock, UnixMs};
    use topology::Plan;
    use topology::definition::{Component, Grouping, Settings as Overall, Stream, Subscription, Topology};
    use topology::ids::{StreamId, TaskId};

    use super::*;
    use crate::testing::{Record, made};

    /// A join of orders and payments.
    struct Stand {
        plan: Plan,
        join: Join,
        clock: Arc<SimClock>,
        record: Record,
        count: u64,
    }

    impl Stand {
        fn new(tuples_max: usize) -> Self {
            Self::with(tuples_max, &[unmatched()])
        }

        /// With `more` streams beside the one of what is joined.
        fn with(tuples_max: usize, more: &[Stream]) -> Self {
            let stream = |fields: &[&str]| vec![Stream::default_with(fields)];
            let inputs =
                ["orders", "payments"].map(|from| Subscription::to(from, Grouping::fields(&["order"])));
            let outputs = [&stream(&["order", "item", "order2", "paid"])[..], more].concat();
            let mut bolt = Component::bolt("join", inputs.to_vec(), outputs);
            bolt.tick_interval = Some(Duration::from_secs(1));
            let components = vec![
                Component::spout("orders", stream(&["order", "item"])),
                Component::spout("payments", stream(&["order", "paid"])),
                bolt,
            ];
            let topology = Topology { name: "shop".to_owned(), settings: Overall::default(), components };
            let (plan, _) = Plan::new(topology).expect("it is right");
            let settings = Settings {
                sources: ["orders".to_owned(), "payments".to_owned()],
                by: "order".to_owned(),
                within: Duration::from_secs(10),
                tuples_max,
            };
            let clock = Arc::new(SimClock::new(UnixMs(0)));
            let mut join = Join::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
            join.tells_unmatched = true;
            Self { plan, join, clock, record: Record::default(), count: 0 }
        }

        /// A tuple of component `from` (0: orders, 1: payments), as number `count` of all.
        fn give(&mut self, from: u16, key: &str, what: &str) {
            self.count += 1;
            let (id, component) = (TupleId::numbered(self.count), topology::ids::ComponentId(from));
            let stream: StreamId = self.plan.stream(component, DEFAULT_STREAM).expect("declared");
            let values = Values::encode(&[key.into(), what.into()]).expect("they fit");
            let tuple = Tuple::new(&self.plan, id, TaskId(from.into()), stream, &values);
            let own = topology::ids::ComponentId(2);
            let mut out = BoltOut::new(&self.plan, own, &mut self.record, Some(id));
            if self.join.execute(&tuple, &mut out).expect("it is a tuple of one side") == Outcome::Ack {
                self.record.acked.push(self.count);
            }
        }

        fn tick(&mut self) {
            self.try_tick().expect("nothing is wrong");
        }

        fn try_tick(&mut self) -> Result<(), Fault> {
            let mut out = BoltOut::new(&self.plan, topology::ids::ComponentId(2), &mut self.record, None);
            self.join.tick(&mut out)
        }
    }

    fn unmatched() -> Stream {
        Stream::default_with(&["source", "key", "values"]).named(UNMATCHED)
    }

    /// It was taken out, and neither acknowledged nor failed until its time-out.
    #[test]
    fn tuple_without_a_partner_that_cannot_be_told_is_failed() {
        let mut stand = Stand::with(100, &[]);
        stand.give(0, "o1", "hat");
        stand.clock.advance(Duration::from_secs(10));
        assert!(stand.try_tick().is_err(), "there is no such stream");
        assert_eq!((stand.record.failed[0].0, stand.record.acked.len()), (1, 0));
        stand.tick();
        assert_eq!(stand.record.failed.len(), 1, "once");
    }

    #[test]
    fn tuples_of_a_key_are_joined_in_their_order_whichever_side_comes_first() {
        let mut stand = Stand::new(100);
        stand.give(0, "o1", "hat");
        stand.give(1, "o2", "5");
        stand.give(0, "o1", "coat");
        assert!(stand.record.acked.is_empty());
        stand.give(1, "o1", "7");
        stand.give(0, "o2", "belt");
        stand.give(1, "o1", "9");
        assert_eq!(
            stand.record.emitted,
            [["o1", "hat", "o1", "7"], ["o2", "belt", "o2", "5"], ["o1", "coat", "o1", "9"]]
        );
        assert_eq!(stand.record.acked, [1, 4, 2, 5, 3, 6]);
        assert!(stand.join.waiting.is_empty() && stand.join.by_key.iter().all(HashMap::is_empty));
    }

    #[test]
    fn tuple_without_a_partner_is_told_after_its_time_or_when_too_many_wait() {
        let mut stand = Stand::new(2);
        for order in ["o1", "o2", "o3"] {
            stand.give(0, order, "hat");
        }
        assert_eq!((stand.record.emitted.len(), &stand.record.acked[..]), (1, &[1][..]));
        stand.clock.advance(Duration::from_secs(9));
        stand.tick();
        assert_eq!(stand.record.acked, [1]);
        stand.clock.advance(Duration::from_secs(1));
        stand.tick();
        assert_eq!(stand.record.acked, [1, 2, 3]);
        assert_eq!(stand.record.emitted[2], ["orders", "o3", r#"["o3","hat"]"#]);
        stand.give(1, "o3", "7");
        assert_eq!(stand.record.acked.len(), 3, "it came too late, and waits itself");
    }

    #[test]
    fn one_component_on_both_sides_is_refused() {
        let error = made(&ROW, "orders orders --by order").expect_err("refused");
        assert!(error.contains("`orders` is on both sides"), "{error}");
        assert!(made(&ROW, "orders payments --by order").is_ok());
    }
}
