//! Beside a plain program: whatever comes, results and late tuples are the same, with state that has to be read and is taken over by another task.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::{Nanos, SimClock, UnixMs};
use topology::Plan;
use topology::definition::{Component, Grouping, Settings as Overall, Stream, Subscription, Topology};
use topology::ids::TaskId;
use topology::random::Random;

use super::*;
use crate::arguments::Arguments;
use crate::testing::Stand;

const FIELDS: [&str; 3] = ["word", "t", "n"];

/// A plain program that does the same. Times in milliseconds.
struct Model {
    settings: Settings,
    /// Of each source: the largest time, and when its last tuple came.
    sources: BTreeMap<u32, (Option<u64>, Nanos)>,
    reached: Option<u64>,
    open: Vec<(String, Window)>,
    tuples: BTreeMap<String, Vec<f64>>,
}

fn settings_and_form(options: &str) -> (Settings, Form) {
    let text = format!("--by word --id t --time t --prefix p: {options}");
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let arguments = Arguments::read(&super::super::ROW.signature, &words).expect("they fit");
    let form = Form::new(&arguments, super::super::FORM).expect("a prefix");
    (super::super::settings(&arguments).expect("they are right"), form)
}

/// A bolt with these options, which reads the tasks 0 and 1 of one spout and the task 2 of another.
fn stand(options: &str, clock: &Arc<SimClock>) -> Stand<Exactly> {
    let fields = vec![Stream::default_with(&FIELDS)];
    let inputs = ["left", "right"].map(|from| Subscription::to(from, Grouping::fields(&["word"])));
    let results = Stream::default_with(&["start", "end", "word", "n"]);
    let outputs = vec![results, Stream::default_with(&FIELDS).named(LATE)];
    let components = vec![
        Component::spout("left", fields.clone()).with_tasks(2),
        Component::spout("right", fields),
        Component::bolt("windows", inputs.to_vec(), outputs),
    ];
    let topology = Topology { name: "t".to_owned(), settings: Overall::default(), components };
    Stand::bolt_in(bolt(options, clock), Plan::new(topology).expect("it is right").0)
}

fn bolt(options: &str, clock: &Arc<SimClock>) -> Exactly {
    let (settings, form) = settings_and_form(options);
    Exactly::new(settings, form, Arc::clone(clock) as Arc<dyn Clock>)
}

impl Model {
    fn new(options: &str, now: Nanos) -> Self {
        let sources = (0..3).map(|task| (task, (None, now))).collect();
        let settings = settings_and_form(options).0;
        Self { settings, sources, reached: None, open: Vec::new(), tuples: BTreeMap::new() }
    }

    /// What comes of a tuple: results, sorted, and whether it is late.
    fn execute(
        &mut self,
        from: u32,
        word: &str,
        (time, n): (u64, f64),
        now: Nanos,
    ) -> (Vec<[String; 4]>, bool) {
        let n = if self.settings.field.is_some() { n } else { 1.0 };
        let number = |n: f64| n.to_string();
        let value = |number: &str| number.parse::<f64>().expect("a number");
        let text = |window: &Window, word: &str| {
            [window.start.to_string(), window.end.to_string(), word.to_owned(), window.number.clone()]
        };
        let is_counted = match self.settings.shape {
            Shape::Count { size, slide } => {
                let tuples = self.tuples.entry(word.to_owned()).or_default();
                tuples.push(n);
                let end = tuples.len() as u64;
                if !end.is_multiple_of(slide) || end < size {
                    return (Vec::new(), false);
                }
                let number = number(tuples[(end - size) as usize..].iter().sum());
                return (vec![text(&Window { start: end - size, end, due: 0, number }, word)], false);
            }
            Shape::Time { size_ms, slide_ms, .. } => {
                let starts =
                    (0..=time).filter(|start| start.is_multiple_of(slide_ms) && start + size_ms > time);
                let open: Vec<u64> =
                    starts.filter(|start| self.reached.is_none_or(|it| start + size_ms > it)).collect();
                for &start in &open {
                    let window = Window { start, end: start + size_ms, due: 0, number: number(n) };
                    match self.open.iter_mut().find(|(of, it)| of == word && it.start == start) {
                        Some((_, it)) => it.number = number(value(&it.number) + n),
                        None => self.open.push((word.to_owned(), window)),
                    }
                }
                !open.is_empty()
            }
            Shape::Session { gap_ms, .. } => {
                let mut all = Window { start: time, end: time + gap_ms, due: 0, number: number(n) };
                let touches =
                    |(of, it): &(String, Window)| of == word && it.start < time + gap_ms && time < it.end;
                for (_, it) in self.open.iter().filter(|it| touches(it)) {
                    (all.start, all.end) = (all.start.min(it.start), all.end.max(it.end));
                    all.number = number(value(&all.number) + value(&it.number));
                }
                let is_counted = self.reached.is_none_or(|reached| all.end > reached);
                if is_counted {
                    self.open.retain(|it| !touches(it));
                    self.open.push((word.to_owned(), all));
                }
                is_counted
            }
        };
        let source = self.sources.get_mut(&from).expect("a source");
        *source = (source.0.max(Some(time)), now);
        let idle = Duration::from_millis(self.settings.idle_ms);
        let awaited = self.sources.values().filter(|(_, came)| now.since(*came) <= idle);
        let largest: Option<Vec<u64>> = awaited.map(|(largest, _)| *largest).collect();
        let least = largest.and_then(|largest| largest.into_iter().min());
        self.reached = self.reached.max(least.and_then(|least| least.checked_sub(self.settings.lateness_ms)));
        let has_ended = |it: &mut (String, Window)| self.reached.is_some_and(|reached| it.1.end <= reached);
        let ended = self.open.extract_if(.., has_ended);
        let mut results: Vec<_> = ended.map(|(word, window)| text(&window, &word)).collect();
        results.sort_unstable();
        (results, !is_counted)
    }
}

/// Gives both the same, and looks whether they say the same.
fn run(options: &str, seed: u64) {
    let (clock, mut random) = (Arc::new(SimClock::new(UnixMs(0))), Random::new(seed));
    let (mut stand, mut model) = (stand(options, &clock), Model::new(options, clock.now()));
    stand.record.cold = random.chance(1, 2).then(|| Random::new(seed));
    let words = ["a", "b", "a:1", "", "long".repeat(200).leak()];
    for step in 0..1_000_u64 {
        let (from, word) = (random.below(3) as u32, words[random.below(5) as usize]);
        let (time, n) = (step * 5 + random.below(200), random.below(5) as f64 - 1.5);
        clock.advance(Duration::from_millis(if random.chance(1, 50) { 1_000 } else { 5 }));
        if random.chance(1, 100) {
            stand.replace(bolt(options, &clock));
            model.sources.values_mut().for_each(|(_, came)| *came = clock.now());
        }
        stand.execute_of(TaskId(from), &[word.into(), Value::Int(time as i64), n.into()]);
        let mut said = std::mem::take(&mut stand.record.emitted);
        let (results, is_late) = model.execute(from, word, (time, n), clock.now());
        let of_late = [word.to_owned(), time.to_string(), n.to_string()];
        if is_late {
            assert_eq!(said.pop().as_deref(), Some(&of_late[..]), "{options}, seed {seed}, step {step}");
        }
        said.sort_unstable();
        assert_eq!(said, results, "{options}, seed {seed}, step {step}");
    }
    assert_eq!((stand.record.acked.len(), stand.record.failed.len()), (1_000, 0));
    // All end; what is left is a few fields.
    for from in 0..3 {
        stand.execute_of(TaskId(from), &["z".into(), Value::Int(1_000_000), Value::Int(1)]);
    }
    let is_open = |place: &&StateKey| {
        place.key == "p:0:windows" && !place.field.as_ref().is_some_and(|it| it.ends_with(b":z"))
    };
    assert_eq!(stand.record.values.keys().find(is_open), None, "{options}, seed {seed}");
    let nodes = stand.record.values.keys().filter(|place| place.key.starts_with(b"p:0:by-"));
    assert!(nodes.count() <= 10, "{options}, seed {seed}: {:?}", stand.record.values);
}

#[test]
fn it_says_what_a_plain_program_says() {
    let shapes = [
        "--size-ms 100",
        "--size-ms 100 --slide-ms 30 --field n",
        "--gap-ms 20 --field n",
        "--gap-ms 60",
        "--count 6 --every 2 --field n",
        "--count 1",
    ];
    for shape in shapes {
        for seed in 1..=10 {
            for late in ["--idle-ms 100", "--lateness-ms 150", "--lateness-ms 60 --idle-ms 400"] {
                run(&format!("{shape} {late}"), seed);
            }
        }
    }
}

#[test]
fn one_tuple_closes_so_many_windows_and_the_next_ones_the_others() {
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    let mut stand = stand("--size-ms 10", &clock);
    for from in 0..3 {
        for n in 0..150 {
            stand.execute_of(
                TaskId(from),
                &[format!("{from}-{n}").as_str().into(), Value::Int(5), Value::Int(1)],
            );
        }
    }
    let mut numbers = Vec::new();
    for from in [0, 1, 2, 2, 2, 2] {
        stand.execute_of(TaskId(from), &["z".into(), Value::Int(100), Value::Int(1)]);
        numbers.push(stand.record.emitted.len());
    }
    assert_eq!(numbers, [0, 0, CLOSED_MAX, 2 * CLOSED_MAX, 450, 450]);
}

#[test]
fn tuple_that_lengthens_a_session_changes_one_value_of_it() {
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    let mut stand = stand("--gap-ms 100", &clock);
    let mut give = |time| {
        stand.execute_of(TaskId(0), &["a".into(), Value::Int(time), Value::Int(1)]);
        let mut fields: Vec<_> =
            stand.record.values.iter().filter(|(place, _)| place.key.starts_with(b"p:0:by")).collect();
        fields.sort_unstable();
        (format!("{fields:?}"), stand.record.values[&StateKey::of_field("p:0:windows", "5:a")].clone())
    };
    let (trees, window) = give(5);
    assert_eq!(window, "105 105 1");
    assert_eq!(give(60), (trees, "160 105 2".into()));
}

#[test]
fn windows_of_another_form_are_left_alone_and_it_is_said_how_to_go_on() {
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    let mut stand = stand("--size-ms 10", &clock);
    let tuple = ["a".into(), Value::Int(5), Value::Int(1)];
    stand.execute_of(TaskId(0), &tuple);
    let values = stand.record.values.clone();
    stand.replace(bolt("--gap-ms 10", &clock));
    stand.execute_of(TaskId(0), &tuple);
    let said = "the keys `p:*` are those of `1 tasks: --size-ms 10`, and this is `1 tasks: --gap-ms 10`: remove them, or choose another --prefix";
    assert_eq!(stand.record.failed, [(2, said.to_owned())]);
    assert_eq!(stand.record.values, values);
}

#[test]
fn what_others_have_changed_is_named() {
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    let mut stand = stand("--size-ms 10", &clock);
    stand.record.values.insert(StateKey::of_field("p:0:windows", "0:a"), "x".into());
    stand.execute_of(TaskId(0), &["a".into(), Value::Int(5), Value::Int(1)]);
    let said = &stand.record.failed[0].1;
    assert_eq!(
        said,
        "`x` in the field `0:a` of the hash `p:0:windows` is no window: was it changed by others?"
    );
}
