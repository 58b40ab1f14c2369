//! The end of a trial: its definition takes the place of the live one, or nothing is left of it.
//!
//! ```text
//!  stop both -> walk: keys under the prefix -> one transaction: keys renamed, groups renamed, definitions kept -> run the new one
//!                                              (killed before: both run as they did; after: the new one runs)
//!  stop it -> listed as ending -> keys removed, some at a time -> one transaction: groups, positions and the definition removed
//!             (killed from here on: the next start goes on)
//! ```
//!
//! Each step may wait: for a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use commands::relocate::rename;
use commands::stream;
use components::Group;
use store::{Access, KeyRef, Prepared, Stop, Store};
use supervisor::{Job, Trial};
use ticket::Ticket;
use topology::Plan;
use topology::definition::Guarantee;

use super::record::Definition;
use super::rights::Rights;
use super::{DeadLetterKeys, Kept, LIST, Listed, Topologies, encoded, key, list};

/// How a trial has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrialEnd {
    /// What the answer depends on.
    pub(crate) ticket: Ticket,
    /// Keys that were renamed or removed.
    pub(crate) keys: usize,
}

/// How a definition is tried.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) trial: Trial,
    /// What it reads by a group; with exactly-once nothing.
    pub(crate) groups: Vec<Group>,
    pub(crate) is_exactly_once: bool,
}

/// A trial that is to end.
pub(crate) struct Running {
    name: String,
    of: String,
    /// As if it was none.
    definition: Definition,
    trial: Trial,
}

/// What a switch changes.
#[derive(Default)]
struct Switch {
    renames: Vec<Rename>,
    removals: Vec<Vec<u8>>,
    groups: Vec<Group>,
    /// Groups that nobody is to read any more.
    left: Vec<LeftGroup>,
    bytes: u64,
}

/// A group of the live one's.
struct LeftGroup {
    stream: String,
    name: String,
    /// What the names of its own consumers begin with; a number follows.
    consumers: String,
}

struct Rename {
    from: Vec<u8>,
    to: Vec<u8>,
    /// DeadLetterKeys of the live one are not replaced.
    is_kept_back: bool,
}

impl Topologies {
    /// The name and the job of the trial of `of`, if there is one.
    pub(crate) fn trial(&self, of: &str) -> Option<(String, Arc<Job>)> {
        let name = name_of_trial(of);
        let job = self.supervisor.job(&name)?;
        job.trial.as_ref().is_some_and(|trial| trial.of == of).then_some((name, job))
    }

    /// How the trial of `of` is tried, if there is one.
    pub(crate) fn tried(&self, of: &str) -> Option<Arc<Tried>> {
        self.kept().get(&name_of_trial(of)).and_then(|kept| kept.tried.clone()).filter(|it| it.trial.of == of)
    }

    /// # Errors
    /// Another trial writes under the prefix of this one, or the other way round.
    pub(crate) fn refuse_shared_prefix(&self, trial: &Trial) -> Result<(), String> {
        refuse_shared(&self.kept(), trial)
    }

    /// Whether a trial of `name`, or `name` as a trial, ends just now.
    pub(crate) fn is_ending(&self, name: &str) -> bool {
        let ending = super::lock(&self.ending);
        ending.contains(name) || name.strip_suffix(SUFFIX).is_some_and(|of| ending.contains(of))
    }

    /// Has the trial of `of` take its place.
    ///
    /// # Errors
    /// One line; then both run as they did.
    pub(crate) fn switch(
        &self,
        store: &Store,
        of: &str,
        wait: Duration,
        bytes_max: u64,
    ) -> Result<TrialEnd, String> {
        let live = self.supervisor.job(of).map(|job| definition_of(&job));
        self.end_trial(store, of, wait, true, |running| {
            self.exchange(store, running, live.as_ref(), bytes_max)
        })
    }

    /// Ends the trial of `of`, and removes what it has written.
    ///
    /// # Errors
    /// One line; then the trial runs on.
    pub(crate) fn give_up(&self, store: &Store, of: &str, wait: Duration) -> Result<TrialEnd, String> {
        self.end_trial(store, of, wait, false, |running| {
            self.mark_ending(store, &running.name, true)?;
            self.clear(store, running).inspect_err(|_| {
                let _ = self.mark_ending(store, &running.name, false);
            })
        })
    }

    /// The trial `name`, whose removal was cut by a crash; until it is removed nothing of its topology's trials is done.
    pub(super) fn begin_removal(&self, name: String, definition: Definition) -> Option<Running> {
        let trial = definition.trial.clone()?;
        super::lock(&self.ending).insert(trial.of.clone());
        Some(Running {
            name,
            of: trial.of.clone(),
            definition: Definition { trial: None, ..definition },
            trial,
        })
    }

    /// Removes what the trial of a topology that was killed has written, when its workers have ended. What fails here the next start does.
    pub(crate) fn finish_killed(&self, store: &Store, running: Running, wait: Duration) {
        if let Err(error) = self.stop(&[&running.name], wait) {
            tracing::error!(
                topology = running.of,
                error,
                "what its trial has written is removed by the next start"
            );
            super::lock(&self.ending).remove(&running.of);
            return;
        }
        self.go_on_removing(store, &[running]);
    }

    /// Removes what trials have written whose removal was cut by a crash, or whose topology was killed. Gives up what cannot be removed: the next start tries again.
    pub(crate) fn go_on_removing(&self, store: &Store, all: &[Running]) {
        for running in all {
            let is_removed = (0..REMOVALS_TRIED).any(|_| {
                let removed = self.clear(store, running);
                if let Err(error) = &removed {
                    tracing::error!(
                        topology = running.of,
                        error,
                        "the trial cannot be removed: it is tried again"
                    );
                    std::thread::park_timeout(REMOVE_AGAIN);
                }
                removed.is_ok()
            });
            tracing::info!(topology = running.of, is_removed, "what a trial has written was removed");
            super::lock(&self.ending).remove(&running.of);
        }
    }

    /// Writes down whether a trial is being removed.
    fn mark_ending(&self, store: &Store, name: &str, is_ending: bool) -> Result<(), String> {
        patiently(|| {
            let mut kept = self.kept();
            let mut new = kept.clone();
            if let Some(it) = new.get_mut(name) {
                it.listed.is_ending = is_ending;
            }
            store.keep(LIST, &encoded(&new))?;
            *kept = new;
            Ok(())
        })
    }

    fn end_trial(
        &self,
        store: &Store,
        of: &str,
        wait: Duration,
        ends_both: bool,
        end: impl FnOnce(&Running) -> Result<TrialEnd, String>,
    ) -> Result<TrialEnd, String> {
        let none = || format!("there is no trial of '{of}': TOPOLOGY TRY begins one");
        let (name, job) = self.trial(of).ok_or_else(none)?;
        let trial = job.trial.clone().ok_or_else(none)?;
        if !super::lock(&self.ending).insert(of.to_owned()) {
            return Err(format!("the trial of '{of}' ends already"));
        }
        let running = Running { name, of: of.to_owned(), definition: definition_of(&job), trial };
        let mut names = vec![running.name.as_str()];
        names.extend(ends_both.then_some(of));
        let ended = self.stop(&names, wait).and_then(|()| end(&running));
        if ended.is_err() {
            let kept = list(store).unwrap_or_default();
            for (name, listed) in kept.into_iter().filter(|(name, _)| names.contains(&name.as_str())) {
                if let Err(error) = self.run_kept(store, &name, &listed) {
                    tracing::error!(topology = name, %error, "it cannot be run again");
                }
            }
        }
        super::lock(&self.ending).remove(of);
        ended
    }

    /// Ends the workers of these topologies, and waits until nothing is left of them.
    fn stop(&self, names: &[&str], wait: Duration) -> Result<(), String> {
        names.iter().for_each(|name| self.supervisor.kill(name, wait));
        let clock = &self.supervisor.options().clock;
        let until: Nanos = clock.now() + wait + END_GRACE;
        while names.iter().any(|name| self.supervisor.report(name).is_some()) {
            if clock.now() > until {
                let seconds = wait.as_secs();
                return Err(format!(
                    "the workers have not ended within {seconds} s: both go on as they were"
                ));
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Renames keys and groups, and puts the definition in the live one's place, all at once.
    fn exchange(
        &self,
        store: &Store,
        running: &Running,
        live: Option<&Definition>,
        bytes_max: u64,
    ) -> Result<TrialEnd, String> {
        let Running { name, of, definition, .. } = running;
        let read = super::read(definition)?;
        let mut switch = Switch::new(store, running, &read)?;
        switch.refuse_foreign(of, &read.plan)?;
        switch.leave_groups(live.map(super::read).transpose()?.as_ref(), running);
        let (keys, bytes) = (switch.renames.len(), switch.bytes);
        if bytes > bytes_max {
            return Err(format!(
                "the trial has {keys} keys of {bytes} B, more than transaction.max ({bytes_max} B): raise it"
            ));
        }
        let places = switch.keys();
        let refs: Vec<KeyRef<'_>> = places.iter().map(|key| KeyRef { db: 0, key }).collect();
        let mut prepared = Prepared::default();
        // What is on disk is read before others wait.
        patiently(|| store.rehearse(&refs, &mut prepared, |access| switch.make(access)))?;

        let (letters, plan) = (super::letters(&read), Arc::new(read.plan));
        // Others get the list between two tries.
        let ticket = patiently(|| {
            let mut kept = self.kept();
            let Some((new, listed)) = self.switched(&kept, running, &letters) else {
                return Ok(None);
            };
            let (record, list) = (definition.encode(), encoded(&new));
            let changes: [(&[u8], Option<&[u8]>); 3] =
                [(&key(of), Some(&record)), (&key(name), None), (LIST, Some(&list))];
            let ticket =
                store.change_and_keep(&refs, &changes, bytes, &mut prepared, |it| switch.make(it))?;
            *kept = new;
            self.run(of, definition.clone(), Some(Arc::clone(&plan)), &listed, Duration::ZERO);
            Ok(Some(ticket))
        })?;
        let ticket = ticket.ok_or_else(|| format!("'{of}' or its trial was changed meanwhile"))?;
        tracing::info!(topology = of, keys, "a trial has taken the place of the topology");
        Ok(TrialEnd { ticket, keys })
    }

    /// What there is after a switch, and how the new one runs; `None` when one of both was changed since they were stopped.
    fn switched(
        &self,
        kept: &BTreeMap<String, Kept>,
        Running { name, of, definition, .. }: &Running,
        letters: &DeadLetterKeys,
    ) -> Option<(BTreeMap<String, Kept>, Listed)> {
        if [name, of].iter().any(|it| self.supervisor.job(it).is_some()) {
            return None;
        }
        let mut new = kept.clone();
        let trial = new.remove(name)?;
        let live = new.get_mut(of)?;
        let listed = Listed { workers: trial.listed.workers, ..live.listed.clone() };
        *live =
            Kept { listed: listed.clone(), bytes: definition.bytes(), letters: letters.clone(), tried: None };
        Some((new, listed))
    }

    /// Removes what a trial has written, and forgets it.
    fn clear(&self, store: &Store, running: &Running) -> Result<TrialEnd, String> {
        let switch = Switch::new(store, running, &super::read(&running.definition)?)?;
        let keys: Vec<&[u8]> = switch.renames.iter().map(|it| &it.from[..]).collect();
        for part in keys.chunks(CLEAR_KEYS) {
            let refs: Vec<KeyRef<'_>> = part.iter().map(|key| KeyRef { db: 0, key }).collect();
            let remove =
                |access: &mut Access<'_>| part.iter().try_for_each(|key| access.remove(0, key).map(drop));
            patiently(|| store.change_and_keep(&refs, &[], 0, &mut Prepared::default(), remove))?;
        }
        let streams: Vec<KeyRef<'_>> =
            switch.groups.iter().map(|it| KeyRef { db: 0, key: it.stream.as_bytes() }).collect();
        let leave = |access: &mut Access<'_>| {
            switch.groups.iter().try_for_each(|group| move_group(access, group, false))
        };
        let mut prepared = Prepared::default();
        let ticket = patiently(|| {
            let mut kept = self.kept();
            let mut new = kept.clone();
            new.remove(&running.name);
            let list = encoded(&new);
            let changes: [(&[u8], Option<&[u8]>); 2] = [(&key(&running.name), None), (LIST, Some(&list))];
            let ticket = store.change_and_keep(&streams, &changes, 0, &mut prepared, leave)?;
            *kept = new;
            Ok(ticket)
        })?;
        tracing::info!(topology = running.of, keys = keys.len(), "a trial was given up");
        Ok(TrialEnd { ticket, keys: keys.len() })
    }
}

impl Switch {
    /// What there is to be changed. `definition` is that of the trial, as if it was none.
    fn new(store: &Store, running: &Running, definition: &flux::Definition) -> Result<Self, String> {
        let Running { name, of, trial, .. } = running;
        let mut switch = Self::default();
        let prefix = trial.prefix.as_bytes();
        let letters = super::named_letters(definition);
        let walked = store.walk(0, &mut |key, meta| {
            if let Some(to) = key.strip_prefix(prefix).filter(|to| !to.is_empty()) {
                switch.bytes += (2 * key.len()) as u64 + meta.value_len;
                let is_kept_back = std::str::from_utf8(to).is_ok_and(|to| letters.contains(to));
                switch.renames.push(Rename { from: key.to_vec(), to: to.to_vec(), is_kept_back });
            }
        });
        walked.map_err(said)?;
        // With the prefix `a`, `aa` goes before `aaa` takes its place.
        switch.renames.sort_unstable_by_key(|it| it.from.len());
        let of_topology = |name: &str, what: &str| super::own_key(name, what).into_bytes();
        let epochs = of_topology(of, "epochs");
        if is_exactly_once(&definition.plan) {
            let from = of_topology(name, "epochs");
            switch.renames.push(Rename { from, to: epochs, is_kept_back: false });
            let (from, to) = (of_topology(name, "dead-letters"), of_topology(of, "dead-letters"));
            switch.renames.push(Rename { from, to, is_kept_back: true });
        } else {
            switch.removals.push(epochs);
            switch.groups = groups(definition, trial);
        }
        Ok(switch)
    }

    /// # Errors
    /// The topology names its keys, and a key under the prefix would become one that it may not use.
    fn refuse_foreign(&self, of: &str, plan: &Plan) -> Result<(), String> {
        let Some(rights) = Rights::of(of, plan, None) else { return Ok(()) };
        let Some(Rename { from, to, .. }) = self.renames.iter().find(|it| !rights.fits(&it.to)) else {
            return Ok(());
        };
        let [from, to] = [from, to].map(|key| shown(key));
        Err(format!(
            "`{from}` would become `{to}`, and evenkeel.keys of the definition has no pattern for it: remove the key, or add a pattern"
        ))
    }

    /// Finds the groups that the live one reads by, and the new one does not.
    fn leave_groups(&mut self, live: Option<&flux::Definition>, Running { trial, .. }: &Running) {
        let Some(live) = live.filter(|live| !is_exactly_once(&live.plan)) else { return };
        let of_trial = of_components(trial);
        let kept: BTreeSet<(&str, &str)> = self.groups.iter().map(|it| (&*it.stream, &*it.live)).collect();
        for ((_, component), program) in live.plan.components().zip(&live.programs) {
            let group = components::group(&program.command, &of_trial);
            if let Some(Group { stream, live: name, .. }) = group
                && !kept.contains(&(&*stream, &*name))
            {
                self.left.push(LeftGroup { stream, name, consumers: format!("{}-", component.id) });
            }
        }
    }

    /// All keys that it touches.
    fn keys(&self) -> Vec<Vec<u8>> {
        let renames = self.renames.iter().flat_map(|it| [it.from.clone(), it.to.clone()]);
        let left = self.left.iter().map(|group| &group.stream);
        let streams = self.groups.iter().map(|group| &group.stream).chain(left);
        let streams = streams.map(|stream| stream.clone().into_bytes());
        renames.chain(self.removals.iter().cloned()).chain(streams).collect()
    }

    fn make(&self, access: &mut Access<'_>) -> Result<(), Stop> {
        for Rename { from, to, is_kept_back } in &self.renames {
            if !is_kept_back || access.meta(0, to)?.is_none() {
                rename(access, 0, from, to)?;
            }
        }
        for key in &self.removals {
            access.remove(0, key)?;
        }
        self.groups.iter().try_for_each(|group| move_group(access, group, true))?;
        self.left.iter().try_for_each(|group| remove_group(access, group))
    }
}

impl Tried {
    /// How `definition` is tried, which is not redirected.
    pub(super) fn new(definition: &flux::Definition, trial: &Trial) -> Self {
        let is_exactly_once = is_exactly_once(&definition.plan);
        let groups = if is_exactly_once { Vec::new() } else { groups(definition, trial) };
        Self { trial: trial.clone(), groups, is_exactly_once }
    }
}

/// # Errors
/// A trial that is kept writes under the prefix of this one, or the other way round.
pub(super) fn refuse_shared(kept: &BTreeMap<String, Kept>, trial: &Trial) -> Result<(), String> {
    let others = kept.values().filter_map(|kept| kept.tried.as_ref()).map(|it| &it.trial);
    let shares = |it: &&Trial| it.prefix.starts_with(&trial.prefix) || trial.prefix.starts_with(&it.prefix);
    match others.filter(|it| it.of != trial.of).find(shares) {
        None => Ok(()),
        Some(Trial { of, prefix, .. }) => Err(format!(
            "'{of}' is tried under the prefix `{prefix}`, and one of both would take the keys of the other: choose another prefix"
        )),
    }
}

/// # Errors
/// A key begins with `prefix`; waits for reads from the disk.
pub(crate) fn refuse_taken(store: &Store, prefix: &str) -> Result<(), String> {
    let mut taken = None;
    let walked = store.walk(0, &mut |key, _| {
        if taken.is_none() && key.starts_with(prefix.as_bytes()) {
            taken = Some(shown(key));
        }
    });
    walked.map_err(said)?;
    match taken {
        None => Ok(()),
        Some(key) => Err(format!(
            "`{key}` begins with `{prefix}`, and would be taken for the trial's: remove it, or choose another prefix"
        )),
    }
}

/// The beginning of a key, for an error.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// The definition of a trial, as if it was none.
pub(super) fn definition_of(job: &Job) -> Definition {
    let Job { definition, properties, folder, .. } = job.clone();
    Definition { text: definition, properties, folder, trial: None }
}

/// A trial as components are told of it.
pub(super) fn of_components(trial: &Trial) -> components::Trial<'_> {
    components::Trial { of: &trial.of, prefix: &trial.prefix, from: &trial.from }
}

fn groups(definition: &flux::Definition, trial: &Trial) -> Vec<Group> {
    let trial = of_components(trial);
    definition.programs.iter().filter_map(|it| components::group(&it.command, &trial)).collect()
}

pub(super) fn is_exactly_once(plan: &Plan) -> bool {
    plan.settings().guarantee == Guarantee::ExactlyOnce
}

/// Gives the group of a trial its name without it, in place of the one that has it, or removes it.
fn move_group(access: &mut Access<'_>, group: &Group, takes_place: bool) -> Result<(), Stop> {
    let live = takes_place.then_some(group.live.as_bytes());
    stream::move_group(access, (0, group.stream.as_bytes()), group.trial.as_bytes(), live)
}

/// Removes a group, unless it has consumers of somebody else.
fn remove_group(access: &mut Access<'_>, group: &LeftGroup) -> Result<(), Stop> {
    let is_own = |consumer: &[u8]| {
        let place = consumer.strip_prefix(group.consumers.as_bytes());
        place.is_some_and(|place| place.iter().all(u8::is_ascii_digit))
    };
    stream::remove_group(access, (0, group.stream.as_bytes()), group.name.as_bytes(), is_own)
}

/// Tries again what finds no room now, for a while.
fn patiently<T>(mut change: impl FnMut() -> Result<T, Stop>) -> Result<T, String> {
    for _ in 0..TRIES {
        match change() {
            Err(Stop::Busy | Stop::Long | Stop::Locked(_) | Stop::Cold) => {
                std::thread::park_timeout(LOOK_AGAIN);
            }
            result => return result.map_err(said),
        }
    }
    change().map_err(said)
}

fn said(stop: Stop) -> String {
    match stop {
        Stop::Refused(error) | Stop::Damaged(error) => error.to_string(),
        Stop::Locked(_) => "a prepared transaction holds one of its keys".to_owned(),
        Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Cold => "the journal has no room now".to_owned(),
    }
}

/// The name of the trial of a topology.
pub(crate) fn name_of_trial(of: &str) -> String {
    format!("{of}{SUFFIX}")
}

const SUFFIX: &str = "-try";
/// More than a worker takes that is to end.
const END_GRACE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// So often a change that finds no room is tried again: 10 s.
const TRIES: usize = 500;
/// So often a trial whose removal was cut is to be removed, this long after each other.
const REMOVALS_TRIED: usize = 60;
const REMOVE_AGAIN: Duration = Duration::from_secs(5);
/// Bytes of a key that an error shows.
const SHOWN_BYTES_MAX: usize = 128;
/// Keys that are removed at a time.
const CLEAR_KEYS: usize = 500;
