//! Beside a plain program: whatever comes, what is told is the same, with state that has to be read and is taken over by another task.

use std::collections::VecDeque;
use std::time::Duration;

use clock::{SimClock, UnixMs};
use topology::Plan;
use topology::definition::{Component, Grouping, Settings as Overall, Stream, Subscription, Topology};
use topology::ids::TaskId;
use topology::random::Random;

use super::*;
use crate::testing::Stand;

const WITHIN_MS: u64 = 100;
const TUPLES_MAX: usize = 20;

fn bolt(clock: &Arc<SimClock>) -> Exactly {
    let words = "left right --by k --prefix p:".split(' ').map(str::to_owned).collect::<Vec<_>>();
    let arguments =
        crate::arguments::Arguments::read(&super::super::ROW.signature, &words).expect("they fit");
    let settings = Settings {
        sources: ["left".to_owned(), "right".to_owned()],
        by: "k".to_owned(),
        within: Duration::from_millis(WITHIN_MS),
        tuples_max: TUPLES_MAX,
    };
    let form = Form::new(&arguments, super::super::FORM).expect("a prefix");
    Exactly::new(settings, form, "p:".to_owned(), Arc::clone(clock) as Arc<dyn Clock>)
}

fn stand(clock: &Arc<SimClock>) -> Stand<Exactly> {
    let fields = |fields: &[&str]| Stream::default_with(fields);
    let inputs = ["left", "right"].map(|from| Subscription::to(from, Grouping::fields(&["k"])));
    let outputs =
        vec![fields(&["k", "n", "k2", "n2"]), fields(&["source", "key", "values"]).named(UNMATCHED)];
    let mut join = Component::bolt("join", inputs.to_vec(), outputs);
    join.tick_interval = Some(Duration::from_secs(1));
    let spout = |id: &str| Component::spout(id, vec![fields(&["k", "n"])]);
    let components = vec![spout("left"), spout("right"), join];
    let topology = Topology { name: "t".to_owned(), settings: Overall::default(), components };
    Stand::bolt_in(bolt(clock), Plan::new(topology).expect("it is right").0)
}

/// A plain program that does the same: side, key, number and time of those that wait, in the order in which they came.
#[derive(Default)]
struct Model(VecDeque<(usize, String, u64, u64)>);

impl Model {
    fn give_up(&mut self, now: u64) -> Vec<Vec<String>> {
        let mut told = Vec::new();
        while let Some((side, key, n, _)) = {
            let is_due = |it: &(_, _, _, u64)| now - it.3 >= WITHIN_MS || self.0.len() > TUPLES_MAX;
            if self.0.front().is_some_and(is_due) { self.0.pop_front() } else { None }
        } {
            told.push(vec![["left", "right"][side].to_owned(), key.clone(), format!("[\"{key}\",{n}]")]);
        }
        told
    }

    fn execute(&mut self, side: usize, key: &str, n: u64, now: u64) -> Vec<Vec<String>> {
        let mut told = self.give_up(now);
        match self.0.iter().position(|(of, waits, ..)| *of != side && waits == key) {
            Some(at) => {
                let (_, _, partner, _) = self.0.remove(at).expect("it is there");
                let (left, right) = if side == 0 { (n, partner) } else { (partner, n) };
                let row = [key.to_owned(), left.to_string(), key.to_owned(), right.to_string()];
                told.push(row.to_vec());
            }
            None => {
                self.0.push_back((side, key.to_owned(), n, now));
                told.extend(self.give_up(now));
            }
        }
        told
    }
}

#[test]
fn it_says_what_a_plain_program_says() {
    let keys = ["a", "b", "c:1", "", "waiting"];
    for seed in 1..=20 {
        let (clock, mut random) = (Arc::new(SimClock::new(UnixMs(1_000))), Random::new(seed));
        let (mut stand, mut model) = (stand(&clock), Model::default());
        stand.record.cold = random.chance(1, 2).then(|| Random::new(seed));
        for n in 0..2_000_u64 {
            // One side sends more for a while: some are too many.
            let (side, key) = (usize::from(random.chance(1 + n / 500, 5)), keys[random.below(5) as usize]);
            clock.advance(Duration::from_millis(if random.chance(1, 50) { 120 } else { random.below(6) }));
            if random.chance(1, 50) {
                stand.replace(bolt(&clock));
            }
            let now = clock.unix_ms().0;
            let expected = if random.chance(1, 10) {
                stand.tick();
                model.give_up(now)
            } else {
                stand.execute_of(TaskId(side as u32), &[key.into(), (n as i64).into()]);
                model.execute(side, key, n, now)
            };
            assert_eq!(std::mem::take(&mut stand.record.emitted), expected, "seed {seed}, step {n}");
        }
        assert!(stand.record.failed.is_empty());
        clock.advance(Duration::from_millis(WITHIN_MS));
        stand.tick();
        let left = stand.record.values.iter().filter(|(place, _)| !place.key.starts_with(b"p:0:by"));
        let mut left: Vec<_> = left.map(|(place, _)| place.field.clone().unwrap_or_default()).collect();
        left.sort_unstable();
        assert_eq!(left, ["", "waiting"], "seed {seed}: the form, and the counts");
    }
}

#[test]
fn one_call_gives_up_so_many_and_the_next_ones_the_others() {
    let clock = Arc::new(SimClock::new(UnixMs(1_000)));
    let mut stand = stand(&clock);
    stand.component.settings.tuples_max = 1_000;
    for n in 0..250_u64 {
        stand.execute_of(TaskId(0), &[n.to_string().as_str().into(), (n as i64).into()]);
    }
    clock.advance(Duration::from_millis(WITHIN_MS));
    let mut told = Vec::new();
    for _ in 0..4 {
        stand.tick();
        told.push(stand.record.emitted.len());
    }
    assert_eq!(told, [GIVEN_UP_MAX, 2 * GIVEN_UP_MAX, 250, 250]);
}
