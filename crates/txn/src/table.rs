//! The transactions of a lane, and all that is known of them: the one place where their state is. No I/O.
//!
//! ```text
//!  under way (some, looked through when a time is due) -> done, kept (perhaps very many, by the time when they go) -> gone
//!       '-- finished: the outcome is there, and is told at the end of the turn
//! ```
//!
//! Invariants
//!   1. A transaction is in one of the two. What is kept waits for one time alone: when it goes.
//!   2. Nobody waits for a time before [`TransactionTable::due`].
//!   3. As many commits and rollbacks are under way as the commit delay counts.
//!   4. As many records are on their way to the log as machines wait for one that it took.
//!
//! Out of scope: what comes next in a transaction (`protocol`), who carries it out (`lane`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use clock::Nanos;
use foldhash::fast::RandomState;

use crate::commit_delay::CommitDelay;
use crate::decision_log::Cycle;
use crate::id::{BranchId, NodeName, TxId};
use crate::inbox::Event;
use crate::info::TransactionInfo;
use crate::lane::error::LaneError;
use crate::phases::Phases;
use crate::protocol::{Effect, Outcome, Standing, State, Transaction};

/// All transactions of a lane.
#[derive(Debug, Default)]
pub(crate) struct TransactionTable {
    live: HashMap<TxId, Transaction, RandomState>,
    /// Of those under way none waits for a time before this.
    live_due: Option<Nanos>,
    kept: HashMap<TxId, Transaction, RandomState>,
    /// When each that is kept goes, and some that are not kept any more, or go later.
    goes: BTreeSet<(Nanos, TxId)>,
    /// Transactions that began here.
    begun: u64,
    finished: Vec<(TxId, Outcome)>,
    outcomes: Outcomes,
    phases: Phases,
    commit_delay: CommitDelay,
    /// Commits wait for the worker of a shared lane, which lets them gather.
    pub(crate) is_gathering: bool,
    /// A shared lane has its worker: it begins a commit that is alone.
    pub(crate) has_worker: bool,
    /// Resources, by their places, that wait to be helped.
    helped: Vec<u16>,
    written: Written,
    pub(crate) scratch: Scratch,
}

/// Buffers, kept for their memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) events: Vec<Event>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) record: Vec<u8>,
}

/// Records that are on their way to the log.
#[derive(Debug, Default)]
struct Written {
    /// Taken, and not heard of.
    count: u64,
    /// With which cycle of the log the newest of them goes.
    cycle: Cycle,
    /// So many were taken, or had no room, since the log was told that somebody waits.
    not_offered: u64,
}

/// How many transactions of a lane ended how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    pub(crate) unknown: u64,
    pub(crate) heuristic: u64,
}

impl Outcomes {
    fn note(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Committed => &mut self.committed,
            Outcome::Aborted(_) => &mut self.aborted,
            Outcome::Unknown(_) => &mut self.unknown,
            Outcome::Heuristic(_) => &mut self.heuristic,
        } += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.heuristic += other.heuristic;
    }
}

/// Where a transaction has gone after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It is where it was.
    Stays,
    /// It was under way, and is only kept now.
    IsKept,
    /// It was only kept, and is under way again.
    IsLive,
}

impl TransactionTable {
    /// How many have begun here, the next one included.
    pub(crate) fn count_next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Takes in one that is under way.
    pub(crate) fn insert(&mut self, machine: Transaction) {
        self.commit_delay.moved(false, machine.is_ending());
        self.put_live(machine);
    }

    /// Adds a branch to it, or the like: nothing that makes it wait for another time.
    pub(crate) fn get_mut(&mut self, tx: TxId) -> Option<&mut Transaction> {
        match self.live.get_mut(&tx) {
            Some(machine) => Some(machine),
            None => self.kept.get_mut(&tx),
        }
    }

    /// Changes it; [`TransactionTable::settle`] is to follow, when the effects are carried out.
    pub(crate) fn change<T>(&mut self, tx: TxId, how: impl FnOnce(&mut Transaction) -> T) -> Option<T> {
        let machine = match self.live.get_mut(&tx) {
            Some(machine) => machine,
            None => self.kept.get_mut(&tx)?,
        };
        let was_ending = machine.is_ending();
        let done = how(machine);
        if cfg!(debug_assertions) {
            machine.check();
        }
        self.commit_delay.moved(was_ending, machine.is_ending());
        Some(done)
    }

    /// Puts it where it belongs after a change.
    pub(crate) fn settle(&mut self, tx: TxId) -> Moved {
        if let Some(machine) = self.live.get(&tx) {
            let next = machine.next_time();
            if machine.state() != State::Done {
                self.live_due = self.live_due.into_iter().chain(next).min();
                return Moved::Stays;
            }
            let machine = self.live.remove(&tx).expect("it was just looked at");
            self.goes.insert((next.expect("what is kept goes at a time"), tx));
            self.kept.insert(tx, machine);
            return Moved::IsKept;
        }
        if self.kept.get(&tx).is_none_or(|machine| machine.state() == State::Done) {
            return Moved::Stays;
        }
        let machine = self.kept.remove(&tx).expect("it was just looked at");
        self.put_live(machine);
        Moved::IsLive
    }

    /// It came to `outcome`, which is to be told.
    pub(crate) fn on_finish(&mut self, tx: TxId, outcome: Outcome) {
        self.outcomes.note(&outcome);
        if outcome == Outcome::Committed
            && let Some(machine) = self.get(tx)
        {
            let marks = machine.marks();
            self.phases.note(marks);
            if marks.asked.0 != 0 {
                self.commit_delay.took(marks.finished.since(marks.asked));
            }
        }
        self.finished.push((tx, outcome));
    }

    /// Removes one that has ended; whether it was only kept.
    pub(crate) fn on_end(&mut self, tx: TxId) -> bool {
        let (live, kept) = (self.live.remove(&tx), self.kept.remove(&tx));
        assert!(live.is_some() != kept.is_some(), "transaction {tx} ended in no place, or in two");
        let is_ending = live.iter().chain(&kept).any(Transaction::is_ending);
        self.commit_delay.moved(is_ending, false);
        kept.is_some()
    }

    /// A record was taken by the log, and goes with this cycle.
    pub(crate) fn on_written(&mut self, cycle: Cycle) {
        self.written.count += 1;
        self.written.cycle = cycle;
        self.written.not_offered += 1;
    }

    /// A record had no room: what fills the log may be ours, and nobody else offers it.
    pub(crate) fn on_no_room(&mut self) {
        self.written.not_offered += 1;
    }

    /// A record that the log took was heard of.
    pub(crate) fn on_logged(&mut self) {
        assert!(self.written.count > 0, "more records were heard of than written");
        self.written.count -= 1;
    }

    /// Whether something was written since the last call: the log is to be told that somebody waits.
    pub(crate) fn take_offer(&mut self) -> bool {
        std::mem::take(&mut self.written.not_offered) > 0
    }

    /// So much was written since the log was told that somebody waits.
    pub(crate) fn not_offered(&self) -> u64 {
        self.written.not_offered
    }

    /// Records that the log took, and that were not heard of.
    pub(crate) fn writing(&self) -> u64 {
        self.written.count
    }

    /// With which cycle of the log a lone transaction goes on; `None` if anything else is waited for.
    pub(crate) fn cycle_awaited(&self) -> Cycle {
        if self.written.count == 1 && self.live.len() == 1 { self.written.cycle } else { None }
    }

    /// How many commits and rollbacks are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.commit_delay.under_way()
    }

    /// A resource was asked with the promise of help.
    pub(crate) fn on_helped(&mut self, resource: u16) {
        if !self.helped.contains(&resource) {
            self.helped.push(resource);
        }
    }

    /// Takes the resources that were promised help.
    pub(crate) fn take_helped(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.helped)
    }

    /// Whether a commit or rollback is under way alone, and waits for what this thread can do.
    pub(crate) fn may_help(&self) -> bool {
        self.under_way() == 1 && (!self.helped.is_empty() || self.written.not_offered > 0)
    }

    /// The outcome of `tx`, if it is there and was not told.
    pub(crate) fn take_outcome(&mut self, tx: TxId) -> Option<Outcome> {
        let at = self.finished.iter().position(|(other, _)| *other == tx)?;
        Some(self.finished.swap_remove(at).1)
    }

    /// Adds what is to be told to `finished`.
    pub(crate) fn take_finished(&mut self, finished: &mut Vec<(TxId, Outcome)>) {
        finished.append(&mut self.finished);
    }

    /// Those that wait for a time that has come.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Vec<TxId> {
        let mut all = Vec::new();
        while let Some((at, tx)) = self.goes.first().copied().filter(|(at, _)| *at <= now) {
            self.goes.remove(&(at, tx));
            all.push(tx);
        }
        if self.live_due.is_some_and(|due| due <= now) {
            let is_due = |machine: &Transaction| machine.next_time().is_some_and(|time| time <= now);
            all.extend(self.live.iter().filter(|(_, machine)| is_due(machine)).map(|(tx, _)| *tx));
        }
        all
    }

    /// Looks again for when those under way wait, after all that were due were told.
    pub(crate) fn forget_past(&mut self, now: Nanos) {
        if self.live_due.is_some_and(|due| due <= now) {
            self.live_due = self.live.values().filter_map(Transaction::next_time).min();
        }
    }

    /// Nobody waits for a time before this.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let kept = self.goes.first().map(|(at, _)| *at);
        self.live_due.into_iter().chain(kept).min()
    }

    pub(crate) fn get(&self, tx: TxId) -> Option<&Transaction> {
        self.live.get(&tx).or_else(|| self.kept.get(&tx))
    }

    pub(crate) fn has(&self, tx: TxId) -> bool {
        self.get(tx).is_some()
    }

    /// How many have not gone.
    pub(crate) fn len(&self) -> usize {
        self.live.len() + self.kept.len()
    }

    /// Whether all have gone, and were told.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.has_finished()
    }

    /// Whether outcomes are there that were not told.
    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// What is known here of a branch.
    pub(crate) fn standing(&self, branch: BranchId) -> Standing {
        self.get(branch.tx).map_or(Standing::Nobody, |machine| machine.standing(branch.branch))
    }

    /// The transaction `tx`, in which work may still be done.
    pub(crate) fn active(&self, tx: TxId) -> Result<&Transaction, LaneError> {
        let machine = self.get(tx).ok_or(LaneError::Unknown(tx))?;
        machine.check_active()?;
        Ok(machine)
    }

    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    pub(crate) fn phases(&self) -> &Phases {
        &self.phases
    }

    /// How long to let commits gather now.
    pub(crate) fn rest(&self) -> Duration {
        self.commit_delay.rest()
    }

    /// Those under way.
    pub(crate) fn live(&self) -> impl ExactSizeIterator<Item = &Transaction> {
        self.live.values()
    }

    /// The `most` with the least numbers that are under way, of all or of those in `state`.
    pub(crate) fn first_live(
        &self,
        node: &NodeName,
        state: Option<State>,
        most: usize,
    ) -> Vec<TransactionInfo> {
        let wanted = self.live().filter(|machine| state.is_none_or(|state| machine.state() == state));
        let mut first: Vec<&Transaction> = wanted.collect();
        if first.len() > most {
            first.select_nth_unstable_by_key(most, |machine| machine.id());
            first.truncate(most);
        }
        first.into_iter().map(|machine| TransactionInfo::of(node, machine)).collect()
    }

    /// The `most` that became done last of those that are kept, each with the time at which it goes.
    pub(crate) fn newest_kept(&self, node: &NodeName, most: usize) -> Vec<(Nanos, TransactionInfo)> {
        let kept = self.goes.iter().rev().filter_map(|(at, tx)| Some((*at, self.kept.get(tx)?)));
        // One that was under way again meanwhile has an entry for each time.
        let newest = kept.filter(|(at, machine)| machine.next_time() == Some(*at)).take(most);
        newest.map(|(at, machine)| (at, TransactionInfo::of(node, machine))).collect()
    }

    /// Adds how many are in which state.
    pub(crate) fn count_states(&self, states: &mut BTreeMap<State, u64>) {
        self.live().for_each(|machine| *states.entry(machine.state()).or_default() += 1);
        let kept = self.kept.len() as u64;
        if kept > 0 {
            *states.entry(State::Done).or_default() += kept;
        }
    }

    pub(crate) fn info(&self, node: &NodeName, tx: TxId) -> Option<TransactionInfo> {
        self.get(tx).map(|machine| TransactionInfo::of(node, machine))
    }

    /// Looks whether the invariants hold. As dear as there are transactions: for tests.
    #[cfg(test)]
    fn check(&self) {
        for (tx, machine) in &self.live {
            assert!(!self.kept.contains_key(tx) && machine.state() != State::Done, "{machine:?}");
            let next = machine.next_time();
            assert!(next.is_none_or(|next| self.live_due.is_some_and(|due| due <= next)), "{machine:?}");
        }
        for (tx, machine) in &self.kept {
            let goes = machine.next_time().expect("what is kept goes at a time");
            assert!(machine.state() == State::Done && self.goes.contains(&(goes, *tx)), "{machine:?}");
        }
        self.live.values().chain(self.kept.values()).for_each(Transaction::check);
        let ending = self.live.values().filter(|machine| machine.is_ending()).count();
        assert_eq!(self.commit_delay.under_way(), ending, "commits under way");
    }

    fn put_live(&mut self, machine: Transaction) {
        let tx = machine.id();
        self.live_due = self.live_due.into_iter().chain(machine.next_time()).min();
        let before = self.live.insert(tx, machine);
        assert!(before.is_none() && !self.kept.contains_key(&tx), "transaction {tx} began twice");
    }
}

#[cfg(test)]
mod tests {
    use clock::UnixMs;

    use super::*;
    use crate::protocol::Timing;
    use crate::resource::{Abilities, Answer, Ask, Vote};

    const WALL: UnixMs = UnixMs(1_700_000_000_000);

    /// A table whose machines are asked, answered and written for, and whose invariants are looked at after each step.
    #[derive(Default)]
    struct Bench {
        table: TransactionTable,
        now: Nanos,
        ended: usize,
    }

    impl Bench {
        fn begin(&mut self, timeout_ms: u64, branches: u16) -> TxId {
            let tx = TxId { epoch: 1, number: self.table.count_next() };
            let timing = Timing { keep: Duration::from_millis(30), ..Timing::default() };
            self.table.insert(Transaction::begin(tx, self.now + Duration::from_millis(timeout_ms), timing));
            for place in 0..branches {
                let machine = self.table.get_mut(tx).unwrap();
                machine.enlist(place, Abilities::default(), format!("r{place}")).unwrap();
            }
            tx
        }

        fn change(&mut self, tx: TxId, how: impl FnOnce(&mut Transaction, Nanos, &mut Vec<Effect>)) {
            let (now, mut effects) = (self.now, Vec::new());
            self.table.change(tx, |machine| how(machine, now, &mut effects));
            for effect in effects {
                match effect {
                    Effect::Finish(outcome) => self.table.on_finish(tx, outcome),
                    Effect::End => {
                        self.table.on_end(tx);
                        self.ended += 1;
                    }
                    _ => {}
                }
            }
            self.table.settle(tx);
            self.table.check();
        }

        fn answer(&mut self, tx: TxId, branch: u16, ask: Ask, attempt: u32, answer: Answer) {
            self.change(tx, |machine, now, effects| {
                machine.on_answer(now, WALL, branch, ask, attempt, answer, effects);
            });
        }

        fn commit(&mut self, tx: TxId) {
            self.change(tx, |machine, now, effects| machine.commit(now, WALL, effects).unwrap());
            (0..2).for_each(|branch| self.answer(tx, branch, Ask::Prepare, 1, Answer::Voted(Vote::Yes)));
            self.change(tx, |machine, now, effects| machine.on_logged(now, WALL, Ok(()), effects));
            (0..2).for_each(|branch| self.answer(tx, branch, Ask::Commit, 2, Answer::Done));
        }

        fn wait(&mut self, ms: u64) {
            self.now = self.now + Duration::from_millis(ms);
            for tx in self.table.take_due(self.now) {
                self.change(tx, |machine, now, effects| machine.on_time(now, WALL, effects));
            }
            self.table.forget_past(self.now);
            self.table.check();
        }
    }

    #[test]
    fn transaction_is_under_way_then_kept_then_gone() {
        let mut bench = Bench::default();
        let (first, second) = (bench.begin(1_000, 2), bench.begin(1_000, 2));
        bench.commit(first);
        assert_eq!((bench.table.live().len(), bench.table.kept.len(), bench.table.len()), (1, 1, 2));
        assert_eq!(bench.table.take_outcome(first), Some(Outcome::Committed));
        assert_eq!((bench.table.take_outcome(first), bench.table.take_outcome(second)), (None, None));
        bench.wait(30);
        assert!(!bench.table.has(first) && bench.table.has(second) && bench.ended == 1);
    }

    #[test]
    fn one_that_was_kept_is_under_way_again_when_its_branch_comes_back() {
        let mut bench = Bench::default();
        let tx = bench.begin(1_000, 2);
        bench.commit(tx);
        bench.change(tx, |machine, now, effects| machine.on_found(now, 1, effects));
        assert_eq!((bench.table.live().len(), bench.table.kept.len()), (1, 0));
        bench.answer(tx, 1, Ask::Commit, 3, Answer::Done);
        assert_eq!((bench.table.live().len(), bench.table.kept.len()), (0, 1));
        bench.wait(30);
        assert_eq!((bench.table.len(), bench.ended), (0, 1));
    }

    #[test]
    fn nobody_waits_for_a_time_before_the_next_that_is_due() {
        let mut bench = Bench::default();
        let last = bench.begin(50, 0);
        let first = bench.begin(20, 0);
        assert_eq!(bench.table.due(), Some(Nanos(20_000_000)));
        bench.wait(20);
        assert!(!bench.table.has(first) && bench.table.has(last));
        assert_eq!(bench.table.due(), Some(Nanos(50_000_000)));
        bench.wait(30);
        assert_eq!((bench.table.due(), bench.table.len(), bench.table.outcomes().aborted), (None, 0, 2));
    }

    #[test]
    fn lone_transaction_goes_on_with_the_cycle_of_its_record() {
        let mut bench = Bench::default();
        bench.begin(1_000, 2);
        assert_eq!(bench.table.cycle_awaited(), None);
        bench.table.on_written(Some(7));
        assert_eq!((bench.table.cycle_awaited(), bench.table.not_offered()), (Some(7), 1));
        assert!(bench.table.take_offer() && !bench.table.take_offer());
        bench.begin(1_000, 2);
        assert_eq!(bench.table.cycle_awaited(), None, "the other waits for something else");
        bench.table.on_logged();
        assert_eq!(bench.table.writing(), 0);
    }
}
