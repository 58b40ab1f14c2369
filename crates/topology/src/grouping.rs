//! Which tasks get a tuple: one [`Chooser`] for each emitting task and subscription.
//!
//! | grouping | task | even because |
//! |---|---|---|
//! | shuffle, none | the next one of a random order, a new order each round | each task gets one tuple a round |
//! | local-or-shuffle | as shuffle, among the tasks of the emitter's worker if there are any | the same |
//! | fields | the owner of the hash ([`Ranges`]) | hashes are |
//! | partial key | of two that the hash names, the one that this emitter has sent less | a hot key has two tasks, others fill up |
//! | all; global; direct; custom | all; the first; the one that the emitter names; those that the user's code names | - |
//!
//! Invariants
//!   1. A choice depends on the tuple, the seed and earlier choices of this emitter only.
//!   2. All emitters choose the same owner for fields of equal text, in every run of every topology: tasks keep state by it ([`hash`]).
//!   3. Only tasks of the subscriber are chosen.
//!
//! Load is counted where a tuple leaves, not asked for: as the paper shows, emitters that each balance what they send balance the sum.
//! Source: Nasir et al. 2015 (partial key grouping); docs/adr/0032-topologies.md.

use std::ops::Range;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::definition::Grouping;
use crate::ids::TaskId;
use crate::plan::Edge;
use crate::random::Random;
use crate::ranges::Ranges;
use crate::value::Value;
use crate::values::Values;

/// Chooses tasks of one subscriber for the tuples of one emitter.
#[derive(Debug)]
pub struct Chooser {
    /// The tasks of the subscriber.
    tasks: Range<u32>,
    key_fields: Vec<usize>,
    rule: Rule,
}

/// What a chooser needs to know of the subscriber.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// Its tasks.
    pub tasks: Range<u32>,
    /// Those of them that run in the emitter's worker.
    pub local: Vec<TaskId>,
    /// Who of them owns which keys.
    pub ranges: Arc<Ranges>,
}

/// Code of a user that chooses tasks.
pub trait CustomGrouping: std::fmt::Debug + Send {
    /// Appends places of tasks, counted from the subscriber's first, of `count`; places beyond are ignored.
    fn choose(&mut self, values: &Values, count: u32, places: &mut Vec<u32>);
}

#[derive(Debug)]
enum Rule {
    Shuffle(Shuffle),
    Fields { ranges: Arc<Ranges> },
    PartialKey { sent: Vec<u64> },
    All,
    Global,
    Direct,
    Custom { code: Box<dyn CustomGrouping>, places: Vec<u32> },
}

impl Chooser {
    /// A chooser for `edge`. `seed` should differ between emitters, so that they do not begin with the same task.
    ///
    /// `custom` finds the code of a custom grouping by its name; `None` if there is none of this name.
    ///
    /// # Panics
    /// If the subscriber has no task, or `ranges` are for another number of them.
    pub fn new(
        edge: &Edge,
        subscriber: Subscriber,
        seed: u64,
        custom: impl FnOnce(&str) -> Option<Box<dyn CustomGrouping>>,
    ) -> Option<Self> {
        let Subscriber { tasks, local, ranges } = subscriber;
        assert_eq!(ranges.tasks() as usize, tasks.len(), "ranges of another component");
        let shuffle = |tasks: Vec<TaskId>| Rule::Shuffle(Shuffle::new(tasks, seed));
        let all = || tasks.clone().map(TaskId).collect();
        let rule = match &edge.grouping {
            Grouping::LocalOrShuffle if !local.is_empty() => shuffle(local),
            Grouping::Shuffle | Grouping::None | Grouping::LocalOrShuffle => shuffle(all()),
            Grouping::Fields(_) => Rule::Fields { ranges },
            Grouping::PartialKey(_) => Rule::PartialKey { sent: vec![0; tasks.len()] },
            Grouping::All => Rule::All,
            Grouping::Global => Rule::Global,
            Grouping::Direct => Rule::Direct,
            Grouping::Custom(name) => Rule::Custom { code: custom(name)?, places: Vec::new() },
        };
        Some(Self { tasks, key_fields: edge.key_fields.clone(), rule })
    }

    /// Appends to `targets` the tasks that get a tuple.
    ///
    /// `direct` is the task that the emitter names, for direct groupings only; if it is none of the subscriber's, nobody gets the tuple.
    pub fn choose(&mut self, values: &Values, direct: Option<TaskId>, targets: &mut Vec<TaskId>) {
        let (tasks, fields) = (&self.tasks, &self.key_fields);
        let at = |place: u32| TaskId(tasks.start + place);
        match &mut self.rule {
            Rule::Shuffle(shuffle) => targets.push(shuffle.next()),
            Rule::Fields { ranges } => targets.push(at(ranges.owner(hash(values, fields)))),
            Rule::PartialKey { sent } => {
                let (first, second) = pair(hash(values, fields), sent.len());
                let place = less_loaded(first, second, sent);
                sent[place] += 1;
                targets.push(at(place as u32));
            }
            Rule::All => targets.extend(tasks.clone().map(TaskId)),
            Rule::Global => targets.push(at(0)),
            Rule::Direct => targets.extend(direct.filter(|task| tasks.contains(&task.0))),
            Rule::Custom { code, places } => {
                places.clear();
                let count = tasks.len() as u32;
                code.choose(values, count, places);
                targets.extend(places.iter().filter(|&&place| place < count).map(|&place| at(place)));
            }
        }
    }
}

/// Tasks in a random order, and where in it the next tuple goes.
#[derive(Debug)]
struct Shuffle {
    order: Vec<TaskId>,
    next: usize,
    random: Random,
}

impl Shuffle {
    fn new(order: Vec<TaskId>, seed: u64) -> Self {
        assert!(!order.is_empty(), "a subscriber has tasks");
        Self { next: order.len(), order, random: Random::new(seed) }
    }

    fn next(&mut self) -> TaskId {
        if self.next == self.order.len() {
            self.random.shuffle(&mut self.order);
            self.next = 0;
        }
        self.next += 1;
        self.order[self.next - 1]
    }
}

/// The hash of some fields: SipHash-1-3 with the key 0 of each one's length (u64, little-endian) and its text.
///
/// Tasks keep state for the keys that they own, in the store, for as long as the store lives: a change of this function gives keys to other tasks, which do not have
/// it. So it has no secret, which a run could lose, and a test has some of its values. Whoever chooses keys that meet at one task does no more harm than with one
/// key for all tuples.
///
/// Components tell keys apart by their texts, so 5 and `5` are one key, and a list, which has no text, is hashed by its bytes.
#[must_use]
pub fn hash(values: &Values, fields: &[usize]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    for &field in fields {
        let value = values.field(field).unwrap_or_default();
        let text = Value::text_of(value);
        // Lengths keep the fields `ab`, `c` and `a`, `bc` apart.
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(&text);
    }
    hasher.finish()
}

/// Two different places of `count` that `hash` names; the same one twice if there is only one.
fn pair(hash: u64, count: usize) -> (usize, usize) {
    let scaled = |bits: u64, count: usize| (((bits & LOW_BITS) * count as u64) >> 32) as usize;
    let first = scaled(hash >> 32, count);
    let step = 1 + scaled(hash, count.saturating_sub(1));
    (first, (first + step) % count)
}

/// Of equally loaded places the first: all tuples of a key meet at one task until another one is better.
fn less_loaded(first: usize, second: usize, sent: &[u64]) -> usize {
    if sent[second] < sent[first] { second } else { first }
}

const LOW_BITS: u64 = (1 << 32) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ComponentId, StreamId};
    use crate::values;

    const TASKS: Range<u32> = 10..18;

    fn chooser_among(grouping: Grouping, local: &[u32], seed: u64) -> Chooser {
        let key_fields = grouping.key_fields().map_or(vec![], |_| vec![0]);
        let edge =
            Edge { from: ComponentId(0), stream: StreamId(0), to: ComponentId(1), grouping, key_fields };
        let local = local.iter().copied().map(TaskId).collect();
        let subscriber =
            Subscriber { tasks: TASKS, local, ranges: Arc::new(Ranges::new(TASKS.len() as u32)) };
        Chooser::new(&edge, subscriber, seed, |_| Some(Box::new(Ends))).unwrap()
    }

    fn chooser(grouping: Grouping) -> Chooser {
        chooser_among(grouping, &[], 1)
    }

    #[derive(Debug)]
    struct Ends;

    impl CustomGrouping for Ends {
        fn choose(&mut self, _: &Values, count: u32, places: &mut Vec<u32>) {
            places.extend([0, count - 1, count]);
        }
    }

    fn one(chooser: &mut Chooser, value: u64) -> u32 {
        let mut targets = Vec::new();
        chooser.choose(&Values::new(&[value.to_string()]), None, &mut targets);
        let [target] = targets[..] else { panic!("one target, not {targets:?}") };
        target.0
    }

    fn counts(chooser: &mut Chooser, keys: impl IntoIterator<Item = u64>) -> Vec<usize> {
        let mut counts = vec![0; TASKS.len()];
        keys.into_iter().for_each(|key| counts[(one(chooser, key) - TASKS.start) as usize] += 1);
        counts
    }

    /// `count` keys, of which the one of rank r is drawn proportionally to 1/r.
    fn zipf(count: usize, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        let weights = (1..=1_000).scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        });
        let sums: Vec<f64> = weights.collect();
        let mut draw = || random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * sums[sums.len() - 1];
        (0..count).map(|_| draw()).map(|drawn| sums.partition_point(|sum| *sum < drawn) as u64).collect()
    }

    #[test]
    fn shuffle_gives_each_task_one_tuple_a_round_in_changing_order() {
        for grouping in [Grouping::Shuffle, Grouping::None, Grouping::LocalOrShuffle] {
            let mut chooser = chooser(grouping);
            let rounds: Vec<Vec<u32>> =
                (0..20).map(|_| TASKS.map(|_| one(&mut chooser, 0)).collect()).collect();
            assert!(rounds.iter().all(|round| {
                let mut sorted = round.clone();
                sorted.sort_unstable();
                sorted == TASKS.collect::<Vec<_>>()
            }));
            assert!(rounds.windows(2).any(|two| two[0] != two[1]));
        }
    }

    #[test]
    fn emitters_with_other_seeds_begin_with_other_tasks() {
        let first = |seed| one(&mut chooser_among(Grouping::Shuffle, &[], seed), 0);
        let firsts: std::collections::BTreeSet<u32> = (0..64).map(first).collect();
        assert_eq!(firsts.len(), TASKS.len());
    }

    #[test]
    fn local_or_shuffle_stays_in_the_worker_that_has_tasks() {
        let mut chooser = chooser_among(Grouping::LocalOrShuffle, &[12, 15], 1);
        let counts = counts(&mut chooser, 0..1_000);
        assert_eq!(counts, [0, 0, 500, 0, 0, 500, 0, 0]);
    }

    #[test]
    fn equal_fields_meet_at_one_task_whoever_emits_them() {
        let (mut one_emitter, mut other) = (
            chooser_among(Grouping::fields(&["k"]), &[], 1),
            chooser_among(Grouping::fields(&["k"]), &[13], 9),
        );
        assert!((0..1_000).all(|key| one(&mut one_emitter, key) == one(&mut other, key)));
    }

    #[test]
    fn distinct_fields_are_spread_evenly() {
        let counts = counts(&mut chooser(Grouping::fields(&["k"])), 0..80_000);
        // 10,000 each; five standard deviations are 470
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 470), "{counts:?}");
    }

    #[test]
    fn partial_key_is_even_for_keys_that_are_not() {
        let keys = zipf(100_000, 3);
        let by_key = counts(&mut chooser(Grouping::fields(&["k"])), keys.iter().copied());
        let partial = counts(&mut chooser(Grouping::partial_key(&["k"])), keys.iter().copied());
        let worst = |counts: &[usize]| counts.iter().max().unwrap() * TASKS.len() * 100 / keys.len();
        assert!(worst(&by_key) > 150, "the keys are uneven: {by_key:?}");
        assert!(worst(&partial) <= 101, "at most 1 % above the mean: {partial:?}");
    }

    #[test]
    fn key_has_two_tasks_at_most_under_partial_key() {
        let mut chooser = chooser(Grouping::partial_key(&["k"]));
        let mut tasks = std::collections::BTreeMap::<u64, std::collections::BTreeSet<u32>>::new();
        for key in zipf(20_000, 5) {
            tasks.entry(key).or_default().insert(one(&mut chooser, key));
        }
        assert!(tasks.values().all(|tasks| tasks.len() <= 2));
        assert_eq!(tasks[&0].len(), 2, "the hottest key uses both");
    }

    #[test]
    fn two_places_differ_unless_there_is_one() {
        let mut random = Random::new(11);
        for count in 1..20 {
            let pairs: Vec<_> = (0..500).map(|_| pair(random.bits(), count)).collect();
            assert!(
                pairs.iter().all(|(one, two)| *one < count && *two < count && (one != two || count == 1))
            );
        }
    }

    #[test]
    fn lengths_count_in_the_hash() {
        let of = |values: [&str; 2]| hash(&Values::encode(&values.map(Value::from)).unwrap(), &[0, 1]);
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }

    /// The hash had a key that was drawn at the start of each server. Windows and joins with several tasks were split by each restart.
    #[test]
    fn keys_have_these_hashes_for_ever() {
        let of = |value: Value<'_>| hash(&Values::encode(&[value]).unwrap(), &[0]);
        let two = hash(&Values::encode(&values!["a", 1, "b"]).unwrap(), &[2, 0]);
        let hashes = [of("user-17".into()), of(17.into()), of(Value::List(vec![1.into()])), two];
        assert_eq!(
            hashes,
            [10283371746032065418, 15987716475368544513, 2241474274122068063, 12885820708521031328]
        );
        let owners = |tasks| hashes.map(|hash| Ranges::new(tasks).owner(hash));
        assert_eq!((owners(2), owners(3), owners(4)), ([1, 1, 0, 1], [1, 2, 0, 2], [2, 3, 0, 2]));
    }

    /// A stream's entry has text where a program's JSON has a number: `join` with several tasks found no partner.
    #[test]
    fn values_of_equal_text_are_one_key() {
        let of = |value: Value<'_>| hash(&Values::encode(&[value]).unwrap(), &[0]);
        assert_eq!(of(5.into()), of("5".into()));
        assert_eq!(of(Value::from(&b"5"[..])), of("5".into()));
        assert_eq!((of(5.0.into()), of(true.into())), (of("5".into()), of("1".into())));
        assert_eq!(of(Value::Null), of("".into()));
        assert_ne!(of(Value::List(vec![5.into()])), of("5".into()));
    }

    #[test]
    fn all_global_direct_and_custom_name_their_tasks() {
        let targets = |grouping, direct: Option<u32>| {
            let mut targets = Vec::new();
            chooser(grouping).choose(&Values::new(&["x"]), direct.map(TaskId), &mut targets);
            targets.into_iter().map(|task| task.0).collect::<Vec<_>>()
        };
        assert_eq!(targets(Grouping::All, None), TASKS.collect::<Vec<_>>());
        assert_eq!(targets(Grouping::Global, None), [10]);
        assert_eq!(targets(Grouping::Direct, Some(12)), [12]);
        assert_eq!(targets(Grouping::Direct, Some(9)), [0_u32; 0]);
        assert_eq!(targets(Grouping::Direct, None), [0_u32; 0]);
        assert_eq!(targets(Grouping::Custom("ends".into()), None), [10, 17], "places beyond are ignored");
    }
}
