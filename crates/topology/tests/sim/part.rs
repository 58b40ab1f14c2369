//! What the components of the simulated topologies do with their input, and when they do it badly.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use topology::Plan;
use topology::anchor::{Blame, Nack};
use topology::bolt::{BoltTask, Input, TupleId};
use topology::changes::StateKey;
use topology::definition::Guarantee;
use topology::ids::{ComponentId, StreamId, TaskId};
use topology::random::Random;
use topology::values::Values;

use crate::server::{Server, number};
use crate::shapes::{Word, Work, count_key, emitted};
use crate::world::Met;

/// The memory of one bolt task's component; it is gone with its worker.
#[derive(Debug)]
pub struct Part {
    component: ComponentId,
    work: Work,
    /// Of `Pair`: the first of two.
    first: Option<(TupleId, Word)>,
    /// Of `Meet`: ids that have come from one side, and when, and those that have from both.
    half: BTreeMap<String, (ComponentId, TupleId, u64)>,
    whole: BTreeSet<String>,
    /// Tuples that it will come to later.
    late: Vec<(u64, TupleId, ComponentId, Word)>,
}

/// What surrounds a component.
pub struct Around<'a> {
    pub plan: &'a Plan,
    pub server: &'a mut Server,
    pub random: &'a mut Random,
    pub met: &'a mut Met,
    pub habits: &'a Habits,
    pub now_us: u64,
    /// Faults strike.
    pub is_bad: bool,
}

/// What is wrong with the components of a run.
#[derive(Debug)]
pub struct Habits {
    /// The component that fails what is poison.
    pub picky: ComponentId,
    /// Ids that it fails each time.
    pub poison: BTreeSet<String>,
    /// Failures of other tuples, one in so many.
    pub flaky_one_in: u64,
}

impl Part {
    pub fn new(component: ComponentId, work: Work) -> Self {
        let (half, whole) = (BTreeMap::new(), BTreeSet::new());
        Self { component, work, first: None, half, whole, late: Vec::new() }
    }

    /// Works on an input.
    pub fn execute(&mut self, bolt: &mut BoltTask, input: Input, around: &mut Around<'_>) {
        let Input::Tuple { id, from, values, .. } = input else {
            around.met.ticks += 1;
            return self.let_go(bolt, around);
        };
        let (from, word) = (around.plan.component_of(from), read(&values));
        if around.is_bad && around.random.chance(1, 40) {
            let longest_us = around.plan.settings().message_timeout.as_micros() as u64 * 3 / 2;
            let due_us = around.now_us + around.random.below(longest_us);
            around.met.late += 1;
            return self.late.push((due_us, id, from, word));
        }
        self.work_on(bolt, id, from, word, around);
    }

    /// Comes to what it has put off.
    pub fn on_time(&mut self, bolt: &mut BoltTask, around: &mut Around<'_>) {
        let now_us = around.now_us;
        let due: Vec<_> = self.late.extract_if(.., |(due_us, ..)| *due_us <= now_us).collect();
        for (_, id, from, word) in due {
            self.work_on(bolt, id, from, word, around);
        }
        for (_, id, ..) in &self.late {
            if around.random.chance(1, 20) {
                around.met.extended += 1;
                bolt.extend(*id).expect("it has it");
            }
        }
    }

    /// When it has put something off until.
    pub fn next_due_us(&self) -> Option<u64> {
        self.late.iter().map(|(due_us, ..)| *due_us).min()
    }

    fn work_on(
        &mut self,
        bolt: &mut BoltTask,
        id: TupleId,
        from: ComponentId,
        word: Word,
        around: &mut Around<'_>,
    ) {
        if let Some((error, nack)) = self.trouble(&word, around) {
            around.met.failed += 1;
            return bolt.fail(id, error, nack).expect("it has it");
        }
        match self.work {
            Work::Count => count(bolt, &count_key(around.plan, self.component, &word), around),
            Work::Sink => return self.sink(bolt, id, &word, around),
            Work::Pair => return self.pair(bolt, id, word, around),
            Work::Meet => return self.meet(bolt, id, from, &word, around),
            _ => {}
        }
        for word in emitted(self.work, &word) {
            self.emit(bolt, &word, &[id], around);
        }
        bolt.ack(id).expect("it has it");
    }

    fn trouble(&self, word: &Word, around: &mut Around<'_>) -> Option<(&'static str, Nack)> {
        let is_poison = word.id.split('+').any(|id| around.habits.poison.contains(base(id)));
        if is_poison && self.component == around.habits.picky {
            return Some(("poison", Nack::FAIL));
        }
        let is_flaky = around.is_bad && around.random.chance(1, around.habits.flaky_one_in);
        let blame = if around.random.chance(1, 2) { Blame::Silent } else { Blame::Fail };
        let delay = around.random.chance(1, 2).then(|| Duration::from_micros(around.random.below(30_000)));
        is_flaky.then_some(("flaky", Nack { blame, delay }))
    }

    fn sink(&self, bolt: &mut BoltTask, id: TupleId, word: &Word, around: &mut Around<'_>) {
        for word in word.id.split('+') {
            if is_exact(around) {
                let command = vec!["XADD".into(), Bytes::copy_from_slice(word.as_bytes())];
                bolt.command(command, Some(id));
            } else {
                around.server.output(word);
            }
        }
        bolt.ack(id).expect("it has it");
    }

    fn pair(&mut self, bolt: &mut BoltTask, id: TupleId, word: Word, around: &mut Around<'_>) {
        let Some((first, other)) = self.first.take() else {
            self.first = Some((id, word));
            return;
        };
        let both = Word { id: format!("{}+{}", other.id, word.id), key: word.key };
        self.emit(bolt, &both, &[first, id], around);
        [first, id].into_iter().for_each(|id| bolt.ack(id).expect("it has it"));
    }

    fn let_go(&mut self, bolt: &mut BoltTask, around: &mut Around<'_>) {
        if let Some((id, word)) = self.first.take() {
            self.emit(bolt, &word, &[id], around);
            bolt.ack(id).expect("it has it");
        }
        // The other one is not to come any more: both were emitted again, and have met.
        let longest_us = 2 * around.plan.settings().message_timeout.as_micros() as u64;
        let alone = self.half.extract_if(.., |_, (_, _, since_us)| *since_us + longest_us < around.now_us);
        for (_, (_, id, _)) in alone {
            around.met.alone += 1;
            bolt.fail(id, "alone", Nack { blame: Blame::Silent, delay: None }).expect("it has it");
        }
    }

    fn meet(
        &mut self,
        bolt: &mut BoltTask,
        id: TupleId,
        from: ComponentId,
        word: &Word,
        around: &mut Around<'_>,
    ) {
        if self.whole.contains(&word.id) {
            self.emit(bolt, word, &[id], around); // it is tried again
            return bolt.ack(id).expect("it has it");
        }
        match self.half.insert(word.id.clone(), (from, id, around.now_us)) {
            None => {}
            Some((side, old, _)) if side == from => bolt.ack(old).expect("it has it"),
            Some((_, other, _)) => {
                around.met.met += 1;
                self.half.remove(&word.id);
                self.whole.insert(word.id.clone());
                self.emit(bolt, word, &[other, id], around);
                [other, id].into_iter().for_each(|id| bolt.ack(id).expect("it has it"));
            }
        }
    }

    fn emit(&self, bolt: &mut BoltTask, word: &Word, anchors: &[TupleId], around: &Around<'_>) {
        let Some((stream, direct)) = out(around.plan, self.component, word) else { return };
        bolt.emit(stream, values(word), anchors, direct).expect("the definition allows it");
    }
}

/// The stream of a component, and the task that gets a word if it is direct.
fn out(plan: &Plan, component: ComponentId, word: &Word) -> Option<(StreamId, Option<TaskId>)> {
    let stream = plan.stream(component, "default")?;
    let is_direct = plan.declaration(stream).1.is_direct;
    let reader = plan.edges_from(component).next()?;
    let tasks = plan.tasks(reader.to);
    let direct = TaskId(tasks.start + word.key % tasks.len() as u32);
    Some((stream, is_direct.then_some(direct)))
}

fn count(bolt: &mut BoltTask, key: &str, around: &mut Around<'_>) {
    if !is_exact(around) {
        return around.server.increment(key);
    }
    let state_key = StateKey::of_key(key.to_owned());
    let staged = bolt.staged(&state_key).map(Option::<&Bytes>::cloned);
    let value = staged.unwrap_or_else(|| around.server.get(key.as_bytes()));
    let count = value.map_or(0, |value| number(&value)) + 1;
    bolt.set(state_key, Some(count.to_string().into()));
}

fn is_exact(around: &Around<'_>) -> bool {
    around.plan.settings().guarantee == Guarantee::ExactlyOnce
}

/// The id of the input that a word comes from.
pub fn base(id: &str) -> &str {
    id.split('/').next().unwrap_or(id)
}

/// The values of a word.
pub fn values(word: &Word) -> Values {
    Values::new(&[word.id.as_bytes(), word.key.to_string().as_bytes()])
}

fn read(values: &Values) -> Word {
    let text = |place| String::from_utf8_lossy(values.field(place).expect("two fields")).into_owned();
    Word { id: text(0), key: text(1).parse().expect("a number") }
}
