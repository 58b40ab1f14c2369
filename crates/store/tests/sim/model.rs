//! What the store must hold: plain maps, and a queue of groups that a crash may still take back.
//!
//! ```text
//!   settled ---- group ---- group ---- group          a crash leaves `settled` and any prefix of the groups
//!            (ticket 7)  (ticket 9)  (ticket 12)      whose length is at least what was released
//! ```
//!
//! Prepared branches are part of the state: a crash leaves them, and the keys that they hold, with the groups that prepared them.
//!
//! Expired keys are absent whatever the maps say; when they are removed is the store's own business. But absent they stay
//! once somebody was told so: a removal that a command met is a group like any other. A crash after the wall clock
//! was set back may show a key again only if its time had come and nobody had looked ([`Model::recover`]).
//!
//! What a start finds may be explained by several prefixes, which differ in keys whose time has come. A crash that takes time back
//! shows which it was, so all of them are kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Debug, Formatter};
use std::ops::RangeInclusive;

use store::{Deadline, Moment, ValueKind};

use crate::collections::{Content, Operation};

/// How many databases the simulation uses.
pub const DATABASES: u16 = 3;

/// A value and when it expires.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Content,
    pub expiry: Option<Deadline>,
    /// Its time had come before the wall clock was set back.
    pub lapsed: bool,
}

/// One database.
pub type Keys = BTreeMap<Vec<u8>, Entry>;

/// A key of a database.
pub type Name = (u16, Vec<u8>);

/// A field and its value.
type Field = (Vec<u8>, Vec<u8>);

/// A field that has ended, with the key of its hash.
type Ended = (Vec<u8>, Field);

/// A prepared branch: the keys that it holds, and what its commit does.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    pub held: BTreeSet<Name>,
    /// Databases that it holds whole.
    pub whole: BTreeSet<u16>,
    pub effects: Vec<Effect>,
    /// Keys that it sets and removes again, and that were not there.
    pub undone: Vec<Name>,
}

/// All databases, and the prepared branches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(pub [Keys; DATABASES as usize], pub BTreeMap<String, Branch>);

/// What nobody sees from outside makes no difference.
impl PartialEq for Branch {
    fn eq(&self, other: &Self) -> bool {
        self.held == other.held && self.whole == other.whole
    }
}

impl Eq for Branch {}

/// What one command did to one key or database.
#[derive(Clone)]
pub enum Effect {
    Put {
        db: u16,
        key: Vec<u8>,
        value: Content,
        expiry: Option<Deadline>,
        lapsed: bool,
    },
    /// Operations on a collection. The model has what they make of it.
    Change {
        db: u16,
        key: Vec<u8>,
        kind: ValueKind,
        operations: Vec<Operation>,
    },
    Remove {
        db: u16,
        key: Vec<u8>,
    },
    Expiry {
        db: u16,
        key: Vec<u8>,
        expiry: Option<Deadline>,
        lapsed: bool,
    },
    Flush {
        db: u16,
    },
    FlushAll,
    Swap {
        a: u16,
        b: u16,
    },
    /// Each database gets what another (or itself) had; `None`: nothing.
    Rearrange {
        from: [Option<u16>; DATABASES as usize],
    },
    Prepare {
        id: String,
        branch: Branch,
    },
    /// A prepared branch has ended, one way or the other.
    End {
        id: String,
    },
}

impl Entry {
    pub fn new(value: Content, expiry: Option<Deadline>) -> Self {
        Self { value, expiry, lapsed: false }
    }

    pub fn is_alive(&self, now: Moment) -> bool {
        !self.lapsed && self.would_live(now)
    }

    /// The same without fields that have ended, if it is alive.
    pub fn visible(mut self, now: Moment) -> Option<Self> {
        self.value.pass(now);
        (self.is_alive(now) && !self.value.is_empty()).then_some(self)
    }

    /// Whether it is alive unless it had lapsed.
    fn would_live(&self, now: Moment) -> bool {
        self.expiry.is_none_or(|at| !now.has_passed(at))
    }

    /// The wall clock showed `before` and is set back.
    fn on_step_back(&mut self, before: Moment) {
        self.lapsed |= has_lapsed(self.expiry, before);
    }
}

impl State {
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Put { db, key, value, expiry, lapsed } => {
                let entry = Entry { value: value.clone(), expiry: *expiry, lapsed: *lapsed };
                self.0[usize::from(*db)].insert(key.clone(), entry);
            }
            Effect::Change { .. } => unreachable!("resolved before"),
            Effect::Remove { db, key } => drop(self.0[usize::from(*db)].remove(key)),
            Effect::Expiry { db, key, expiry, lapsed } => {
                if let Some(entry) = self.0[usize::from(*db)].get_mut(key) {
                    (entry.expiry, entry.lapsed) = (*expiry, *lapsed);
                }
            }
            Effect::Flush { db } => self.0[usize::from(*db)].clear(),
            Effect::FlushAll => self.0.iter_mut().for_each(Keys::clear),
            Effect::Swap { a, b } => self.0.swap(usize::from(*a), usize::from(*b)),
            Effect::Rearrange { from } => {
                let before = self.0.clone();
                self.0 = from.map(|from| from.map_or_else(Keys::new, |db| before[usize::from(db)].clone()));
            }
            Effect::Prepare { id, branch } => drop(self.1.insert(id.clone(), branch.clone())),
            Effect::End { id } => drop(self.1.remove(id)),
        }
    }

    /// The same without what has expired at `now`.
    pub fn alive(&self, now: Moment) -> Self {
        let mut alive = self.clone();
        for keys in &mut alive.0 {
            keys.retain(|_, entry| {
                entry.value.pass(now);
                entry.is_alive(now) && !entry.value.is_empty()
            });
        }
        alive
    }

    /// The branch that holds `key`.
    pub fn holder(&self, db: u16, key: &[u8]) -> Option<&str> {
        let name = (db, key.to_vec());
        let holds = |branch: &Branch| branch.held.contains(&name) || branch.whole.contains(&db);
        self.1.iter().find(|(_, branch)| holds(branch)).map(|(id, _)| id.as_str())
    }

    /// The branch that holds all of `db`.
    pub fn whole_holder(&self, db: u16) -> Option<&str> {
        self.1.iter().find(|(_, branch)| branch.whole.contains(&db)).map(|(id, _)| id.as_str())
    }

    /// Whether `key` is still there but for its time, which has come.
    pub fn has_expired(&self, db: u16, key: &[u8], now: Moment) -> bool {
        self.0[usize::from(db)].get(key).is_some_and(|entry| !entry.is_alive(now))
    }

    pub fn get(&self, db: u16, key: &[u8], now: Moment) -> Option<&Entry> {
        self.0[usize::from(db)].get(key).filter(|entry| entry.is_alive(now))
    }
}

fn has_lapsed(expiry: Option<Deadline>, before: Moment) -> bool {
    expiry.is_some_and(|at| at.is_wall() && before.has_passed(at))
}

impl Effect {
    /// The wall clock showed `before` and is set back.
    fn on_step_back(&mut self, before: Moment) {
        if let Self::Put { expiry, lapsed, .. } | Self::Expiry { expiry, lapsed, .. } = self {
            *lapsed |= has_lapsed(*expiry, before);
        }
    }

    /// Forgets fields that have ended at `now`. Of a hash that has none left nothing is put.
    fn pass(&mut self, now: Moment, ended: &mut Vec<Ended>) {
        match self {
            Self::Put { db, key, value, .. } => {
                ended.extend(value.pass(now).into_iter().map(|field| (key.clone(), field)));
                if value.is_empty() {
                    *self = Self::Remove { db: *db, key: std::mem::take(key) };
                }
            }
            Self::Prepare { branch, .. } => {
                branch.effects.iter_mut().for_each(|effect| effect.pass(now, ended));
            }
            _ => {}
        }
    }

    /// Whether it decides what is read at `key` of `db`.
    pub fn concerns(&self, of: u16, at: &[u8]) -> bool {
        match self {
            Self::Put { db, key, .. } | Self::Remove { db, key } | Self::Expiry { db, key, .. } => {
                *db == of && key == at
            }
            Self::Flush { db } => *db == of,
            Self::FlushAll => true,
            Self::Swap { a, b } => *a == of || *b == of,
            Self::Rearrange { from } => from[usize::from(of)] != Some(of),
            Self::Change { .. } | Self::Prepare { .. } | Self::End { .. } => false,
        }
    }
}

/// Effects that are in the log together or not at all.
#[derive(Clone, Debug)]
struct Group {
    first: u64,
    ticket: u64,
    effects: Vec<Effect>,
}

impl Group {
    fn apply(&self, state: &mut State) {
        self.effects.iter().for_each(|effect| state.apply(effect));
    }
}

/// The settled state and what may still be taken back.
#[derive(Clone, Debug)]
pub struct Model {
    /// What may be settled, never empty: states that differ in keys whose time has come. The first counts as the current one's.
    settled: Vec<State>,
    groups: VecDeque<Group>,
    current: State,
    /// The last moment that the store has shown.
    latest: Moment,
    /// Fields that have ended, by the keys of their hashes.
    pub ended: BTreeMap<Vec<u8>, BTreeSet<Field>>,
    /// How many, in any state.
    pub fields_ended: u64,
    /// How much later than they should: a planted fault.
    field_delay_ms: u64,
}

impl Default for Model {
    fn default() -> Self {
        let (groups, current, latest, ended) = Default::default();
        let settled = vec![State::default()];
        Self { settled, groups, current, latest, ended, fields_ended: 0, field_delay_ms: 0 }
    }
}

impl Model {
    /// One whose fields end so much later than they should.
    pub fn planted(field_delay_ms: u64) -> Self {
        Self { field_delay_ms, ..Self::default() }
    }

    pub fn current(&self) -> &State {
        &self.current
    }

    /// Whether everything is settled.
    pub fn is_settled(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes note of the store's time. What had expired stays so when the wall clock runs back.
    ///
    /// # Errors
    /// When server time ran back.
    pub fn on_time(&mut self, now: Moment) -> Result<(), String> {
        let before = std::mem::replace(&mut self.latest, now);
        if now.unix() < before.unix() {
            for state in self.settled.iter_mut().chain([&mut self.current]) {
                state.0.iter_mut().flat_map(Keys::values_mut).for_each(|entry| entry.on_step_back(before));
            }
            let effects = self.groups.iter_mut().flat_map(|group| &mut group.effects);
            effects.for_each(|effect| effect.on_step_back(before));
        }
        self.pass(now);
        match now.server_ms() >= before.server_ms() {
            true => Ok(()),
            false => Err(format!("server time ran back from {before:?} to {now:?}")),
        }
    }

    /// Forgets fields that have ended, wherever they are.
    fn pass(&mut self, now: Moment) {
        let now = Moment::new(now.server_ms().saturating_sub(self.field_delay_ms), now.unix());
        let mut ended = Vec::new();
        for state in self.settled.iter_mut().chain([&mut self.current]) {
            for keys in &mut state.0 {
                keys.retain(|key, entry| {
                    ended.extend(entry.value.pass(now).into_iter().map(|field| (key.clone(), field)));
                    !entry.value.is_empty()
                });
            }
            let branches = state.1.values_mut().flat_map(|branch| &mut branch.effects);
            branches.for_each(|effect| effect.pass(now, &mut ended));
        }
        let effects = self.groups.iter_mut().flat_map(|group| &mut group.effects);
        effects.for_each(|effect| effect.pass(now, &mut ended));
        self.bury(ended);
    }

    fn bury(&mut self, ended: Vec<Ended>) {
        self.fields_ended += ended.len() as u64;
        ended.into_iter().for_each(|(key, field)| _ = self.ended.entry(key).or_default().insert(field));
    }

    /// `found` without fields that had ended: a start of the machine may know less of the time than was known before.
    fn without_ended(&self, found: &State) -> State {
        let mut state = found.clone();
        for keys in &mut state.0 {
            keys.retain(|key, entry| {
                self.ended.get(key).into_iter().for_each(|ended| entry.value.without(ended));
                !entry.value.is_empty()
            });
        }
        state
    }

    /// Adds what a commit did in the effects numbered `seqs`.
    pub fn commit(&mut self, seqs: RangeInclusive<u64>, mut effects: Vec<Effect>) {
        let mut ended = Vec::new();
        effects.iter_mut().for_each(|effect| effect.pass(self.latest, &mut ended));
        self.bury(ended);
        let group = Group { first: *seqs.start(), ticket: *seqs.end(), effects };
        group.apply(&mut self.current);
        self.groups.push_back(group);
    }

    /// A reader was told that `key`, whose time has come, is not there, and waits for `ticket` (0: for nothing).
    pub fn expire(&mut self, db: u16, key: &[u8], (first, ticket): (u64, u64)) {
        let effect = Effect::Remove { db, key: key.to_vec() };
        self.current.apply(&effect);
        if ticket == 0 {
            return self.settled.iter_mut().for_each(|state| state.apply(&effect));
        }
        // after the group that has effect `ticket`, whatever else that group has
        let later = self.groups.iter().position(|group| group.first > ticket);
        let at = later.unwrap_or(self.groups.len());
        self.groups.insert(at, Group { first, ticket, effects: vec![effect] });
    }

    /// Settles every group that the store has released.
    pub fn release(&mut self, released: u64) {
        while self.groups.front().is_some_and(|group| group.ticket <= released) {
            let group = self.groups.pop_front().expect("there is a first one");
            self.settled.iter_mut().for_each(|state| group.apply(state));
        }
    }

    /// Whether `key` is not there at `now`, and the store may have it still, as one whose time has come.
    pub fn may_have_expired(&self, db: u16, key: &[u8], now: Moment) -> bool {
        let may_be_settled = || self.settled.iter().any(|state| state.has_expired(db, key, now));
        let is_written =
            || self.groups.iter().flat_map(|group| &group.effects).any(|it| it.concerns(db, key));
        self.current.has_expired(db, key, now)
            || self.current.get(db, key, now).is_none() && may_be_settled() && !is_written()
    }

    /// The effect that a reader of `key` must wait for, at least: any of a group, since none comes without the rest.
    pub fn depends_on(&self, db: u16, key: &[u8]) -> u64 {
        let newest = self.groups.iter().rev().find(|group| {
            let mut effects = group.effects.iter();
            effects.any(|effect| effect.concerns(db, key))
        });
        newest.map_or(0, |group| group.first)
    }

    /// The group that begins with effect `first`, for messages.
    pub fn group_of(&self, first: u64) -> String {
        format!("{:?}", self.groups.iter().find(|group| group.first == first))
    }

    /// Settles on the prefixes that explain `found`, as a crash left it and the store shows it at `now`: the longest first.
    ///
    /// # Errors
    /// How `found` differs from the settled state and from the newest one.
    pub fn recover(&mut self, shown: &State, now: Moment) -> Result<(), String> {
        self.pass(now);
        let found = &self.without_ended(shown);
        let latest = std::mem::replace(&mut self.latest, now);
        let mut explaining = Vec::new();
        for settled in &self.settled {
            let mut candidate = settled.clone();
            let mut prefixes =
                Vec::from_iter(explains(&candidate, found, now, latest).then(|| candidate.clone()));
            for group in &self.groups {
                group.apply(&mut candidate);
                if explains(&candidate, found, now, latest) {
                    prefixes.push(candidate.clone());
                }
            }
            explaining.extend(prefixes.into_iter().rev());
        }
        let mut kept: Vec<State> = Vec::new();
        for mut state in explaining {
            for (keys, found) in state.0.iter_mut().zip(&found.0) {
                // what time has not taken (yet, or again) and is not there was removed
                keys.retain(|key, entry| found.contains_key(key) || !entry.is_alive(now));
                keys.iter_mut().for_each(|(key, entry)| entry.lapsed &= !found.contains_key(key));
            }
            if !kept.contains(&state) {
                kept.push(state);
            }
        }
        if kept.is_empty() {
            return Err(self.explain(found, now));
        }
        // what is back is there
        for state in &mut kept {
            for ((keys, shown), found) in state.0.iter_mut().zip(&shown.0).zip(&found.0) {
                let back = shown.iter().filter(|(key, entry)| found.get(*key) != Some(entry));
                keys.extend(back.map(|(key, entry)| (key.clone(), entry.clone())));
            }
        }
        for (key, entry) in shown.0.iter().flatten() {
            if let Some(ended) = self.ended.get_mut(key) {
                ended.retain(|field| !entry.value.has(field));
            }
        }
        self.groups.clear();
        self.current.clone_from(&kept[0]);
        self.settled = kept;
        Ok(())
    }

    fn explain(&self, found: &State, now: Moment) -> String {
        let (settled, current) = (self.settled[0].alive(now), self.current.alive(now));
        let count = self.settled.len();
        let mut text =
            format!("no prefix of {} groups on {count} explains what was found:", self.groups.len());
        for group in &self.groups {
            text += &format!("\n  {group:?}");
        }
        let held = |state: &State| {
            state
                .1
                .iter()
                .map(|(id, branch)| format!("{id}: {:?} {:?}", branch.held, branch.whole))
                .collect::<Vec<_>>()
        };
        text += &format!(
            "\n  held: settled {:?}, newest {:?}, found {:?}",
            held(&settled),
            held(&current),
            held(found)
        );
        for db in 0..usize::from(DATABASES) {
            let keys = settled.0[db].keys().chain(current.0[db].keys()).chain(found.0[db].keys());
            let keys: BTreeSet<_> = keys.collect();
            for key in keys {
                let versions = [&settled, &current, found].map(|state| state.0[db].get(key));
                if versions[0] != versions[2] || versions[1] != versions[2] {
                    let [settled, current, found] = versions.map(|entry| entry.map(short));
                    let key = key.escape_ascii();
                    text += &format!(
                        "\n  db {db} {key}: settled {settled:?}, newest {current:?}, found {found:?}"
                    );
                }
            }
        }
        text
    }
}

/// Whether `state` is what was `found` at `now`, where time had been at `latest` before: a key whose time had come
/// by then may have been removed or not.
fn explains(state: &State, found: &State, now: Moment, latest: Moment) -> bool {
    if state.1 != found.1 {
        return false;
    }
    let same = |known: &Entry, entry: &Entry| {
        known.would_live(now) && (&known.value, known.expiry) == (&entry.value, entry.expiry)
    };
    state.0.iter().zip(&found.0).all(|(known, found)| {
        let mut lasting = known.iter().filter(|(_, entry)| entry.is_alive(latest) && entry.is_alive(now));
        found.iter().all(|(key, entry)| known.get(key).is_some_and(|known| same(known, entry)))
            && lasting.all(|(key, _)| found.contains_key(key))
    })
}

fn short(entry: &Entry) -> String {
    match &entry.value {
        Content::String(value) => {
            let head = &value[..value.len().min(24)];
            format!("{} ({} B, expires {:?})", head.escape_ascii(), value.len(), entry.expiry)
        }
        Content::Collection(kind, elements) => {
            let texts = elements.iter().map(|(key, value)| {
                format!("{} {}", key[..key.len().min(2)].escape_ascii(), value.escape_ascii())
            });
            let text = texts.collect::<Vec<_>>().join(",");
            format!("{} [{text}] (expires {:?})", kind.name(), entry.expiry)
        }
    }
}

impl Debug for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self))
    }
}

impl Debug for Effect {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { db, key, value, expiry, lapsed } => {
                let entry = Entry { value: value.clone(), expiry: *expiry, lapsed: *lapsed };
                write!(f, "put {db} {} {entry:?}", key.escape_ascii())
            }
            Self::Change { db, key, operations, .. } => {
                write!(f, "change {db} {} {operations:?}", key.escape_ascii())
            }
            Self::Remove { db, key } => write!(f, "remove {db} {}", key.escape_ascii()),
            Self::Expiry { db, key, expiry, .. } => {
                write!(f, "expiry {db} {} {expiry:?}", key.escape_ascii())
            }
            Self::Flush { db } => write!(f, "flush {db}"),
            Self::Rearrange { from } => write!(f, "rearrange {from:?}"),
            Self::FlushAll => f.write_str("flush all"),
            Self::Swap { a, b } => write!(f, "swap {a} {b}"),
            Self::Prepare { id, branch } => write!(f, "prepare {id} {:?}", branch.effects),
            Self::End { id } => write!(f, "end {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::UnixMs;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::new(ms, UnixMs(ms))
    }

    fn wall(ms: u64) -> Option<Deadline> {
        Some(Deadline::at(UnixMs(ms)))
    }

    fn put(value: &str) -> Effect {
        Effect::Put {
            db: 0,
            key: b"k".to_vec(),
            value: value.as_bytes().to_vec().into(),
            expiry: None,
            lapsed: false,
        }
    }

    fn holding(value: Option<&str>) -> State {
        let mut state = State::default();
        if let Some(value) = value {
            state.apply(&put(value));
        }
        state
    }

    #[test]
    fn released_group_must_survive_and_a_later_one_may() {
        for (found, explained) in
            [(None, false), (Some("one"), true), (Some("two"), true), (Some("x"), false)]
        {
            let mut model = Model::default();
            model.commit(1..=1, vec![put("one")]);
            model.commit(2..=2, vec![put("two")]);
            model.release(1);
            assert_eq!(model.recover(&holding(found), at(0)).is_ok(), explained, "{found:?}");
        }
    }

    #[test]
    fn branch_is_there_with_all_that_it_holds_or_not_at_all() {
        let branch =
            Branch { held: [(0, b"k".to_vec())].into(), effects: vec![put("one")], ..Branch::default() };
        let prepare = Effect::Prepare { id: "b".into(), branch };
        let (mut whole, mut without_lock) = (State::default(), State::default());
        whole.apply(&prepare);
        without_lock.1.insert("b".into(), Branch::default());
        let lock_alone = holding(Some("one"));
        for (found, explained) in
            [(State::default(), true), (whole, true), (without_lock, false), (lock_alone, false)]
        {
            let mut model = Model::default();
            model.commit(1..=1, vec![prepare.clone()]);
            assert_eq!(model.recover(&found, at(0)).is_ok(), explained, "{found:?}");
        }
    }

    #[test]
    fn half_of_a_group_is_not_explained() {
        let mut model = Model::default();
        let other = Effect::Put {
            db: 1,
            key: b"k".to_vec(),
            value: b"one".to_vec().into(),
            expiry: None,
            lapsed: false,
        };
        model.commit(1..=1, vec![put("one"), other]);
        assert!(model.recover(&holding(Some("one")), at(0)).is_err());
    }

    #[test]
    fn key_whose_time_had_come_may_be_back_unless_somebody_was_told_that_it_is_gone() {
        let expiring = Effect::Put {
            db: 0,
            key: b"k".to_vec(),
            value: b"one".to_vec().into(),
            expiry: wall(50),
            lapsed: false,
        };
        let (gone, mut back) = (State::default(), State::default());
        back.apply(&expiring);
        for (told, found, explained) in [(false, &gone, true), (false, &back, true), (true, &back, false)] {
            let mut model = Model::default();
            model.on_time(at(100)).unwrap();
            model.commit(1..=1, vec![expiring.clone()]);
            model.release(1);
            if told {
                model.expire(0, b"k", (0, 0));
            }
            assert_eq!(model.recover(found, at(40)).is_ok(), explained, "told {told}, found {found:?}");
        }
        let mut model = Model::default();
        model.commit(1..=1, vec![expiring.clone()]);
        model.release(1);
        assert!(model.recover(&gone, at(40)).is_err(), "its time had not come");
    }

    /// A start took the longest prefix for the one that survived: what an earlier one had of a key whose time had come was a lost
    /// write once the machine's next start took time back.
    #[test]
    fn prefix_that_an_expired_key_hid_may_show_when_time_has_run_back() {
        let expiring = |value: &str, ms| Effect::Put {
            db: 0,
            key: b"k".to_vec(),
            value: value.as_bytes().to_vec().into(),
            expiry: wall(ms),
            lapsed: false,
        };
        for (value, ms, explained) in [("one", 50, true), ("two", 60, true), ("three", 60, false)] {
            let mut found = State::default();
            found.apply(&expiring(value, ms));
            let mut model = Model::default();
            model.commit(1..=1, vec![expiring("one", 50)]);
            model.release(1);
            model.commit(2..=2, vec![expiring("two", 60)]);
            model.recover(&State::default(), at(100)).unwrap();
            assert_eq!(model.clone().recover(&found, at(40)).is_ok(), explained, "{value}");
            assert!(model.may_have_expired(0, b"k", at(100)));
            model.expire(0, b"k", (0, 0));
            assert!(model.recover(&found, at(40)).is_err(), "a reader was told that {value} is gone");
        }
    }

    #[test]
    fn removal_of_an_expired_key_follows_the_group_that_it_waits_for() {
        let mut model = Model::default();
        model.commit(1..=1, vec![put("one")]);
        model.commit(2..=3, vec![Effect::Swap { a: 0, b: 1 }, Effect::Remove { db: 2, key: b"k".to_vec() }]);
        model.expire(0, b"k", (2, 2));
        let mut found = holding(Some("one"));
        found.apply(&Effect::Swap { a: 0, b: 1 });
        model.recover(&found, at(0)).unwrap();
    }

    #[test]
    fn reader_depends_on_the_newest_group_that_concerns_its_key() {
        let mut model = Model::default();
        model.commit(1..=1, vec![put("one")]);
        model.commit(5..=5, vec![Effect::Remove { db: 0, key: b"k".to_vec() }]);
        model.commit(6..=6, vec![Effect::Flush { db: 1 }]);
        assert_eq!(
            (model.depends_on(0, b"k"), model.depends_on(0, b"j"), model.depends_on(1, b"k")),
            (5, 0, 6)
        );
        model.release(5);
        assert_eq!(model.depends_on(0, b"k"), 0);
    }
}
