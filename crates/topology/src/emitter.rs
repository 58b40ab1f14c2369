//! The sending side of a task: choosers, parcels in the making, channels to the tasks downstream.
//!
//! Emitted tuples are collected in *drafts*, for each receiver and source, until the task has done all that it can do now; then each draft
//! becomes a parcel with its anchors. So tuples that came together and go to one task stay together, and whether a tree splits
//! is known when tokens are given.
//!
//! **Bounds.** Drafts have what one parcel of the input, or one batch of a spout, led to; the caller does not begin another one before
//! they were sent, nor while an outlet waits for credit ([`Emitter::is_clear`]).
//!
//! Out of scope: which anchors a draft gets (`bolt`, `spout`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::anchor::Anchor;
use crate::channel::{Credit, Outlet};
use crate::grouping::{Chooser, CustomGrouping, Subscriber};
use crate::ids::{ComponentId, StreamId, TaskId};
use crate::message::{Envelope, Message, Misuse};
use crate::parcel::{Item, Load, Parcel};
use crate::plan::Plan;
use crate::random::Random;
use crate::ranges::Ranges;
use crate::tap::Tap;
use crate::values::Values;

/// The sending side of a task.
#[derive(Debug)]
pub(crate) struct Emitter {
    task: TaskId,
    routes: BTreeMap<StreamId, Route>,
    lines: BTreeMap<TaskId, Line>,
    /// Those in which something waits, each once: the others need not be looked at.
    waiting: Vec<TaskId>,
    drafts: Vec<Draft>,
    /// How many tuples with several sources were emitted.
    joins: u64,
    random: Random,
    targets: Vec<TaskId>,
    tuple_bytes_max: u64,
    tap: Arc<Tap>,
}

/// A channel to a task.
#[derive(Debug)]
struct Line {
    outlet: Outlet,
    /// The place of its last draft, which may be gone.
    draft: usize,
}

/// A declared stream: how many fields it has, and who reads it.
#[derive(Debug)]
struct Route {
    fields: usize,
    emitted: u64,
    /// Each with its reader and how many tuples have gone there.
    choosers: Vec<(Chooser, ComponentId, u64)>,
}

/// What a task has emitted on one stream since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The stream.
    pub stream: StreamId,
    /// Tuples that the component has emitted on it.
    pub tuples: u64,
    /// Each reader, and how many tuples have gone to its tasks.
    pub transferred: Vec<(ComponentId, u64)>,
}

/// Tuples that become one parcel.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) to: TaskId,
    pub(crate) sources: Sources,
    pub(crate) items: Vec<Item>,
}

/// What a tuple was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// Nothing that anybody waits for.
    Nothing,
    /// An input parcel, or a spout's batch.
    One(u64),
    /// Several tuples: each with its input parcel and its place there. The number keeps such tuples apart.
    Several(u64, Vec<(u64, u32)>),
}

/// What a task needs to know to send.
pub struct Wiring<'a> {
    /// The definition.
    pub plan: &'a Plan,
    /// Who owns which keys, for each component.
    pub ranges: &'a dyn Fn(ComponentId) -> Arc<Ranges>,
    /// Whether a task runs in the same worker.
    pub is_local: &'a dyn Fn(TaskId) -> bool,
    /// The code of a custom grouping.
    pub custom: &'a dyn Fn(&str) -> Option<Box<dyn CustomGrouping>>,
    /// For tokens and shuffles: no two starts of any tasks may have the same.
    pub seed: u64,
    /// Which start of the task this is: higher than those before.
    pub start: u32,
}

impl Emitter {
    /// The sending side of `task`.
    ///
    /// Returns the name of a custom grouping that `wiring` does not know as an error.
    pub(crate) fn new(task: TaskId, wiring: &Wiring<'_>) -> Result<Self, String> {
        let Wiring { plan, ranges, is_local, custom, seed, start } = wiring;
        let component = plan.component_of(task);
        let mut random = Random::new(*seed);
        let mut routes = BTreeMap::new();
        for declared in &plan.component(component).streams {
            let stream = plan.stream(component, &declared.id).expect("it is declared");
            routes.insert(stream, Route { fields: declared.fields.len(), emitted: 0, choosers: Vec::new() });
        }
        for edge in plan.edges_from(component) {
            let tasks = plan.tasks(edge.to);
            let local = tasks.clone().map(TaskId).filter(|&task| is_local(task)).collect();
            let subscriber = Subscriber { tasks, local, ranges: ranges(edge.to) };
            let chooser = Chooser::new(edge, subscriber, random.bits(), custom)
                .ok_or_else(|| format!("no custom grouping is registered for {:?}", edge.grouping))?;
            let route = routes.get_mut(&edge.stream).expect("edges begin at declared streams");
            route.choosers.push((chooser, edge.to, 0));
        }
        let window = plan.settings().channel_bytes_max;
        let line = |task| (task, Line { outlet: Outlet::new(*start, window), draft: 0 });
        Ok(Self {
            task,
            routes,
            lines: plan.downstream_tasks(component).into_iter().map(line).collect(),
            waiting: Vec::new(),
            drafts: Vec::new(),
            joins: 0,
            random,
            targets: Vec::new(),
            tuple_bytes_max: window,
            tap: Arc::default(),
        })
    }

    /// Shows what is emitted to those who look at the component.
    pub(crate) fn set_tap(&mut self, tap: Arc<Tap>) {
        self.tap = tap;
    }

    /// Whether the component may emit such a tuple.
    pub(crate) fn verify(&self, stream: StreamId, values: &Values) -> Result<(), Misuse> {
        let fields = self.routes.get(&stream).ok_or(Misuse::ForeignStream)?.fields;
        let (count, bytes) = (values.len(), values.size_bytes());
        if count != fields {
            return Err(Misuse::Fields { values: count, fields });
        }
        if bytes as u64 > self.tuple_bytes_max {
            return Err(Misuse::TooLarge { bytes, limit: self.tuple_bytes_max });
        }
        Ok(())
    }

    /// Adds a tuple, which was verified, to the drafts of all tasks that get it.
    pub(crate) fn emit(&mut self, sources: &Sources, item: Item, direct: Option<TaskId>) {
        let mut targets = std::mem::take(&mut self.targets);
        targets.clear();
        let route = self.routes.get_mut(&item.stream).expect("it was verified");
        route.emitted += 1;
        self.tap.on_tuple(self.task, item.stream, &item.values);
        for (chooser, _, transferred) in &mut route.choosers {
            let before = targets.len();
            chooser.choose(&item.values, direct, &mut targets);
            *transferred += (targets.len() - before) as u64;
        }
        if let Some((&last, others)) = targets.split_last() {
            others.iter().for_each(|&to| self.draft(to, sources, item.clone()));
            self.draft(last, sources, item);
        }
        self.targets = targets;
    }

    /// The tasks that got what was emitted last.
    pub(crate) fn targets(&self) -> &[TaskId] {
        &self.targets
    }

    /// A number for the next tuple with several sources.
    pub(crate) fn next_join(&mut self) -> u64 {
        self.joins += 1;
        self.joins
    }

    /// Takes all drafts, in the order in which they were begun.
    pub(crate) fn take_drafts(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.drafts)
    }

    /// Takes the memory of drafts back that were taken.
    pub(crate) fn reuse(&mut self, mut drafts: Vec<Draft>) {
        drafts.clear();
        self.drafts = drafts;
    }

    /// Whether a tuple was emitted that is not on its way.
    pub(crate) fn has_drafts(&self) -> bool {
        !self.drafts.is_empty()
    }

    /// A token that no other parcel has.
    pub(crate) fn token(&mut self) -> u64 {
        loop {
            let token = self.random.bits();
            if token != 0 {
                return token;
            }
        }
    }

    /// Puts a parcel into the channel to `to`.
    pub(crate) fn push_parcel(&mut self, to: TaskId, anchors: Vec<Anchor>, items: Vec<Item>) {
        assert!(!items.is_empty(), "a parcel has tuples");
        self.push(to, Load::Parcel(Parcel { anchors, items }));
    }

    /// Puts a mark into all channels.
    pub(crate) fn push_to_all(&mut self, load: &Load) {
        self.lines.values_mut().for_each(|line| line.outlet.push(load.clone()));
        self.waiting = self.lines.keys().copied().collect();
    }

    /// Appends what may be sent now.
    pub(crate) fn poll(&mut self, outbox: &mut Vec<Envelope>) {
        let Self { task: from, lines, waiting, .. } = self;
        waiting.retain(|&to| {
            let outlet = &mut lines.get_mut(&to).expect("it is a channel").outlet;
            while let Some(forward) = outlet.poll() {
                outbox.push(Envelope { from: *from, to, message: Message::Forward(forward) });
            }
            !outlet.is_clear()
        });
    }

    /// `from` has taken bytes.
    pub(crate) fn on_credit(&mut self, from: TaskId, credit: Credit) {
        if let Some(line) = self.lines.get_mut(&from) {
            line.outlet.on_credit(credit);
        }
    }

    /// The link to these tasks is new: says so in each channel to them.
    pub(crate) fn on_connected(&mut self, is_there: &dyn Fn(TaskId) -> bool, outbox: &mut Vec<Envelope>) {
        let lines = self.lines.iter_mut().filter(|(to, _)| is_there(**to));
        outbox.extend(lines.map(|(&to, line)| {
            let message = Message::Forward(line.outlet.on_connected());
            Envelope { from: self.task, to, message }
        }));
        self.look_for_waiting();
    }

    /// `to` is about to move: what waits for it is sent, then nothing until [`Emitter::resume`].
    pub(crate) fn hold(&mut self, to: TaskId) {
        self.lines.get_mut(&to).into_iter().for_each(|line| line.outlet.close());
        self.look_for_waiting();
    }

    /// `to` has moved.
    pub(crate) fn resume(&mut self, to: TaskId) {
        self.lines.get_mut(&to).into_iter().for_each(|line| line.outlet.resume());
        self.look_for_waiting();
    }

    /// Whether no channel waits for credit: more input may be taken.
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether all that was emitted was taken by the tasks downstream.
    pub(crate) fn is_settled(&self) -> bool {
        self.drafts.is_empty() && self.lines.values().all(|line| line.outlet.is_settled())
    }

    /// What was emitted since the start, by streams.
    pub(crate) fn emitted(&self) -> impl Iterator<Item = Emitted> {
        self.routes.iter().map(|(&stream, route)| {
            let transferred = route.choosers.iter().map(|(_, to, count)| (*to, *count)).collect();
            Emitted { stream, tuples: route.emitted, transferred }
        })
    }

    /// Looks whether counters agree.
    pub(crate) fn check(&self) {
        self.lines.values().for_each(|line| line.outlet.check());
        let mut waiting = self.waiting.clone();
        waiting.sort_unstable();
        assert!(waiting.is_sorted_by(|one, other| one < other), "each once: {waiting:?}");
        let is_listed = |to| waiting.binary_search(to).is_ok();
        assert!(self.lines.iter().all(|(to, line)| line.outlet.is_clear() != is_listed(to)), "{waiting:?}");
    }

    /// Adds a tuple to the last draft for `to`, or begins another one: so tuples keep their order in a channel.
    fn draft(&mut self, to: TaskId, sources: &Sources, item: Item) {
        let line = self.lines.get_mut(&to).expect("choosers name tasks downstream");
        let last = self.drafts.get_mut(line.draft);
        if let Some(draft) = last.filter(|draft| draft.to == to && draft.sources == *sources) {
            return draft.items.push(item);
        }
        line.draft = self.drafts.len();
        self.drafts.push(Draft { to, sources: sources.clone(), items: vec![item] });
    }

    fn push(&mut self, to: TaskId, load: Load) {
        let outlet = &mut self.lines.get_mut(&to).expect("choosers name tasks downstream").outlet;
        if outlet.is_clear() {
            self.waiting.push(to);
        }
        outlet.push(load);
    }

    fn look_for_waiting(&mut self) {
        let waiting = self.lines.iter().filter(|(_, line)| !line.outlet.is_clear());
        self.waiting = waiting.map(|(&to, _)| to).collect();
    }
}

impl Sources {
    /// The input parcels that a tuple was made from, each with the place of the tuple in it if that matters.
    pub(crate) fn parcels(&self) -> impl Iterator<Item = (u64, Option<u32>)> {
        let (one, several): (Option<u64>, &[(u64, u32)]) = match self {
            Self::Nothing => (None, &[]),
            Self::One(parcel) => (Some(*parcel), &[]),
            Self::Several(_, tuples) => (None, tuples),
        };
        let several = several.iter().map(|&(parcel, item)| (parcel, Some(item)));
        one.into_iter().map(|parcel| (parcel, None)).chain(several)
    }
}

impl std::fmt::Debug for Wiring<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wiring").field("start", &self.start).finish_non_exhaustive()
    }
}
