//! What a transaction does, call by call.

mod orders;

use std::time::Duration;

use super::*;
use crate::record::{Decision, DecisionKind, ParticipantState};
use crate::resource::Vote;

const ID: TxId = TxId { epoch: 1, number: 1 };
const WALL: UnixMs = UnixMs(1_700_000_000_000);
const TIMING: Timing = Timing {
    answer_max: Duration::from_millis(100),
    retry_least: Duration::from_millis(1),
    retry_most: Duration::from_millis(8),
    finish_max: Duration::from_millis(50),
    keep: Duration::ZERO,
};
const LAST: Abilities = Abilities { prepares: false, keep_decision_ms: 0 };
const YES: Answer = Answer::Voted(Vote::Yes);
const READ_ONLY: Answer = Answer::Voted(Vote::ReadOnly);

/// A transaction, the time, and what it wants.
struct Bench {
    tx: Transaction,
    now: Nanos,
    effects: Vec<Effect>,
}

impl Bench {
    fn new(resources: &[Abilities]) -> Self {
        let mut tx = Transaction::begin(ID, Nanos(1_000_000_000), TIMING);
        for (place, abilities) in resources.iter().enumerate() {
            tx.enlist(place as u16, *abilities, format!("r{place}")).unwrap();
        }
        Self { tx, now: Nanos(0), effects: Vec::new() }
    }

    /// Two resources that prepare, asked to.
    fn preparing() -> Self {
        let mut bench = Self::new(&[Abilities::default(); 2]);
        bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
        assert_eq!(bench.asked(), [(0, Ask::Prepare, 1), (1, Ask::Prepare, 1)]);
        bench
    }

    /// Two that have voted yes; the decision is on its way.
    fn deciding() -> Self {
        let mut bench = Self::preparing();
        bench.answer(0, Ask::Prepare, 1, YES);
        bench.answer(1, Ask::Prepare, 1, YES);
        assert!(matches!(&bench.effects()[..], [Effect::Write(decision)]
            if decision.kind == DecisionKind::Commit && states(decision) == [ParticipantState::ToCommit; 2]));
        bench
    }

    fn committing() -> Self {
        let mut bench = Self::deciding();
        bench.logged(Ok(()));
        assert_eq!(bench.asked(), [(0, Ask::Commit, 2), (1, Ask::Commit, 2)]);
        bench
    }

    /// One that prepares and said yes, and a last resource that is being asked.
    fn asking_last() -> Self {
        let mut bench = Self::new(&[Abilities::default(), LAST]);
        bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
        assert_eq!(bench.asked(), [(0, Ask::Prepare, 1)]);
        bench.answer(0, Ask::Prepare, 1, YES);
        assert!(
            matches!(&bench.effects()[..], [Effect::Write(decision)] if decision.kind == DecisionKind::Heuristic)
        );
        bench.logged(Ok(()));
        assert_eq!(bench.asked(), [(1, Ask::CommitOnePhase, 1)]);
        bench
    }

    fn answer(&mut self, branch: u16, ask: Ask, attempt: u32, answer: Answer) {
        self.tx.on_answer(self.now, WALL, branch, ask, attempt, answer, &mut self.effects);
        self.tx.check();
    }

    fn logged(&mut self, result: Result<(), LogError>) {
        self.tx.on_logged(self.now, WALL, result, &mut self.effects);
        self.tx.check();
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(due) = self.tx.next_time().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.tx.on_time(self.now, WALL, &mut self.effects);
            self.tx.check();
        }
        self.now = until;
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Branch, question and attempt of what is asked; nothing else may be wanted.
    fn asked(&mut self) -> Vec<(u16, Ask, u32)> {
        let asked = |effect| match effect {
            Effect::Ask { branch, ask, attempt, .. } => (branch, ask, attempt),
            other => panic!("{other:?}"),
        };
        self.effects().into_iter().map(asked).collect()
    }
}

fn states(decision: &Decision) -> Vec<ParticipantState> {
    decision.participants.iter().map(|one| one.state).collect()
}

fn lost() -> Answer {
    Answer::Lost("the network".to_owned())
}

fn no() -> Answer {
    Answer::Voted(Vote::No("full".to_owned()))
}

fn aborted(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Finish(Outcome::Aborted(_)), Effect::End])
}

fn resumed(decision: &Decision, abilities: &[Abilities]) -> Bench {
    let find = |name: &str| {
        let place = name[1..].parse::<u16>().unwrap();
        Some((place, *abilities.get(usize::from(place))?))
    };
    let mut effects = Vec::new();
    let tx = Transaction::resume(decision, find, TIMING, Nanos(0), &mut effects);
    Bench { tx, now: Nanos(0), effects }
}

fn record(kind: DecisionKind, states: &[ParticipantState]) -> Decision {
    let one = |(branch, state): (usize, &ParticipantState)| crate::record::Participant {
        branch: branch as u16,
        resource: format!("r{branch}").into(),
        state: *state,
    };
    Decision { tx: ID, kind, decided: WALL, participants: states.iter().enumerate().map(one).collect() }
}

#[test]
fn two_that_vote_yes_commit_after_the_record_and_it_is_removed_after_both() {
    let mut bench = Bench::committing();
    bench.answer(1, Ask::Commit, 2, Answer::Done);
    assert_eq!(bench.effects(), []);
    bench.answer(0, Ask::Commit, 2, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed), Effect::Remove, Effect::End]);
    assert_eq!((bench.tx.state(), bench.tx.next_time()), (State::Done, None));
}

#[test]
fn without_branches_it_is_committed_at_once() {
    let mut bench = Bench::new(&[]);
    bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed), Effect::End]);
    let late = bench.tx.rollback(bench.now, WALL, "late", &mut bench.effects);
    assert_eq!(late, Err(Misuse::NotActive(State::Done)));
}

#[test]
fn lone_branch_commits_in_one_phase_without_a_record() {
    let asking = || {
        let mut bench = Bench::new(&[Abilities::default()]);
        bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
        assert_eq!(bench.asked(), [(0, Ask::CommitOnePhase, 1)]);
        bench
    };
    let mut bench = asking();
    bench.answer(0, Ask::CommitOnePhase, 1, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed), Effect::End]);
    let mut bench = asking();
    bench.answer(0, Ask::CommitOnePhase, 1, Answer::RolledBack("conflict".to_owned()));
    assert!(aborted(&bench.effects()));
    let mut bench = asking();
    bench.wait(100);
    assert!(matches!(&bench.effects()[..], [Effect::Finish(Outcome::Unknown(_)), Effect::End]));
}

#[test]
fn lone_branch_that_did_nothing_is_asked_again_until_time_is_over_then_rolled_back() {
    let mut bench = Bench::new(&[Abilities::default()]);
    bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
    bench.answer(0, Ask::CommitOnePhase, 1, Answer::Failed("busy".to_owned()));
    bench.wait(1);
    assert_eq!(bench.asked(), [(0, Ask::CommitOnePhase, 1), (0, Ask::CommitOnePhase, 2)]);
    bench.now = Nanos(100_000_000);
    bench.answer(0, Ask::CommitOnePhase, 2, Answer::Failed("busy".to_owned()));
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 3)]);
    bench.answer(0, Ask::Rollback, 3, Answer::Done);
    assert!(aborted(&bench.effects()));
}

#[test]
fn all_read_only_is_committed_without_a_record() {
    let mut bench = Bench::preparing();
    bench.answer(0, Ask::Prepare, 1, READ_ONLY);
    bench.answer(1, Ask::Prepare, 1, READ_ONLY);
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed), Effect::End]);
}

#[test]
fn read_only_branch_is_neither_in_the_record_nor_asked_again() {
    let mut bench = Bench::preparing();
    bench.answer(0, Ask::Prepare, 1, READ_ONLY);
    bench.answer(1, Ask::Prepare, 1, YES);
    let effects = bench.effects();
    assert!(matches!(&effects[..], [Effect::Write(decision)] if decision.participants.len() == 1));
    bench.logged(Ok(()));
    assert_eq!(bench.asked(), [(1, Ask::Commit, 2)]);
}

#[test]
fn a_no_rolls_back_all_others_and_is_told_when_they_have() {
    let mut bench = Bench::preparing();
    bench.answer(0, Ask::Prepare, 1, no());
    assert_eq!(bench.asked(), [(1, Ask::Rollback, 2)]);
    bench.answer(1, Ask::Prepare, 1, YES);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::RollingBack), "a late yes");
    bench.answer(1, Ask::Rollback, 2, Answer::Done);
    assert!(aborted(&bench.effects()));
}

#[test]
fn lost_prepare_is_rolled_back_until_it_answers() {
    let mut bench = Bench::preparing();
    bench.answer(0, Ask::Prepare, 1, lost());
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 2), (1, Ask::Rollback, 2)]);
    bench.answer(1, Ask::Rollback, 2, Answer::Done);
    bench.answer(0, Ask::Rollback, 2, lost());
    bench.wait(1);
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 3)]);
    bench.answer(0, Ask::Rollback, 2, Answer::Done);
    assert_eq!(bench.effects(), [], "an answer to the attempt before");
    bench.answer(0, Ask::Rollback, 3, Answer::Done);
    assert!(aborted(&bench.effects()));
}

#[test]
fn silence_on_prepare_rolls_back_all() {
    let mut bench = Bench::preparing();
    bench.answer(0, Ask::Prepare, 1, YES);
    bench.wait(100);
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 2), (1, Ask::Rollback, 2)]);
}

#[test]
fn deadline_of_an_active_transaction_rolls_it_back_unasked() {
    let mut bench = Bench::new(&[Abilities::default()]);
    bench.wait(1_000);
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 1)]);
    bench.answer(0, Ask::Rollback, 1, Answer::Done);
    assert!(aborted(&bench.effects()));
}

#[test]
fn decision_that_is_certain_not_to_be_written_rolls_back() {
    let mut bench = Bench::deciding();
    bench.logged(Err(LogError::Absent("no".to_owned())));
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 2), (1, Ask::Rollback, 2)]);
    let mut bench = Bench::deciding();
    bench.tx.on_refused(bench.now, WALL, Refused::Full("txn.x".to_owned()), &mut bench.effects);
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 2), (1, Ask::Rollback, 2)]);
}

/// It waited in the lane, with the bytes of the first attempt, and no simulation saw it.
#[test]
fn decision_for_which_the_log_has_no_room_is_written_again_until_it_has() {
    let busy = || Refused::Busy("journal.buffer_max".to_owned());
    let mut bench = Bench::deciding();
    bench.effects();
    for _ in 0..100 {
        bench.tx.on_refused(bench.now, WALL, busy(), &mut bench.effects);
        assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::Deciding));
        bench.wait(10);
        assert!(matches!(&bench.effects()[..], [Effect::Write(decision)] if states(decision).len() == 2));
    }
    bench.logged(Ok(()));
    assert_eq!(bench.asked(), [(0, Ask::Commit, 2), (1, Ask::Commit, 2)]);

    let mut bench = Bench::deciding();
    bench.effects();
    while bench.tx.state() == State::Deciding {
        bench.effects();
        bench.tx.on_refused(bench.now, WALL, busy(), &mut bench.effects);
        bench.wait(10);
        assert!(bench.now <= Nanos(2_100_000_000), "it holds its locks for ever");
    }
    assert!(bench.tx.reason().contains("journal.buffer_max"), "{}", bench.tx.reason());
}

#[test]
fn decision_that_may_be_written_leaves_all_prepared_and_says_unknown() {
    let mut bench = Bench::deciding();
    bench.logged(Err(LogError::Unknown("sync".to_owned())));
    assert!(matches!(&bench.effects()[..], [Effect::Finish(Outcome::Unknown(_))]));
    bench.wait(60_000);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::InDoubt));
    let resolved = bench.tx.resolve(bench.now, WALL, true, &mut bench.effects);
    assert_eq!(resolved, Err(Misuse::NotResolvable(State::InDoubt)));
}

#[test]
fn commit_is_asked_for_ever_and_told_after_a_bound() {
    let mut bench = Bench::committing();
    bench.answer(0, Ask::Commit, 2, Answer::Done);
    bench.wait(50);
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed)]);
    bench.wait(60_000);
    let asked = bench.asked();
    assert!(asked.len() > 500 && asked.iter().all(|(branch, ask, _)| (*branch, *ask) == (1, Ask::Commit)));
    let (.., attempt) = asked.last().unwrap();
    bench.answer(1, Ask::Commit, *attempt, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Remove, Effect::End]);
}

#[test]
fn pauses_double_up_to_the_longest() {
    let mut bench = Bench::committing();
    let mut pauses = Vec::new();
    for attempt in 2..8 {
        bench.answer(0, Ask::Commit, attempt, Answer::Failed("busy".to_owned()));
        let due = bench.tx.next_time().unwrap();
        pauses.push(due.since(bench.now).as_millis());
        bench.wait(due.since(bench.now).as_millis() as u64);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 8, 8]);
}

#[test]
fn decision_is_kept_as_long_as_the_coordinator_wants() {
    let mut bench = Bench::committing();
    bench.tx.timing.keep = Duration::from_millis(500);
    bench.effects();
    bench.answer(0, Ask::Commit, 2, Answer::Done);
    bench.answer(1, Ask::Commit, 2, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed)]);
    bench.wait(499);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::Done));
    bench.wait(1);
    assert_eq!(bench.effects(), [Effect::Remove, Effect::End]);
}

#[test]
fn decision_is_kept_as_long_as_a_resource_wants() {
    let keeps = Abilities { keep_decision_ms: 500, ..Abilities::default() };
    let mut bench = resumed(&record(DecisionKind::Commit, &[ParticipantState::ToCommit; 2]), &[keeps; 2]);
    assert_eq!(bench.asked(), [(0, Ask::Commit, 1), (1, Ask::Commit, 1)]);
    bench.answer(0, Ask::Commit, 1, Answer::Done);
    bench.answer(1, Ask::Commit, 1, Answer::Done);
    bench.wait(499);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::Done));
    bench.tx.on_found(bench.now, 1, &mut bench.effects);
    assert_eq!(bench.asked(), [(1, Ask::Commit, 2)], "it came back without what it acknowledged");
    bench.answer(1, Ask::Commit, 2, Answer::Done);
    bench.wait(500);
    assert_eq!(bench.effects(), [Effect::Remove, Effect::End]);
}

#[test]
fn heuristic_answer_is_written_told_and_kept_until_an_operator_has_seen_it() {
    let mut bench = Bench::committing();
    bench.answer(0, Ask::Commit, 2, Answer::RolledBack("by an operator".to_owned()));
    let effects = bench.effects();
    assert!(matches!(&effects[..], [Effect::Write(decision)] if decision.kind == DecisionKind::Heuristic
        && states(decision) == [ParticipantState::RolledBack, ParticipantState::ToCommit]));
    bench.logged(Ok(()));
    bench.answer(1, Ask::Commit, 2, Answer::Done);
    assert!(matches!(&bench.effects()[..], [Effect::Finish(Outcome::Heuristic(_))]));
    bench.wait(60_000);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::Heuristic));
    bench.tx.resolve(bench.now, WALL, true, &mut bench.effects).unwrap();
    assert_eq!(bench.asked(), [(0, Ask::Forget, 3)]);
    bench.answer(0, Ask::Forget, 3, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Remove, Effect::End]);
}

#[test]
fn second_heuristic_answer_meanwhile_is_written_after_the_first() {
    let mut bench = Bench::committing();
    bench.answer(0, Ask::Commit, 2, Answer::Mixed("half".to_owned()));
    bench.answer(1, Ask::Commit, 2, Answer::RolledBack("too".to_owned()));
    assert!(matches!(&bench.effects()[..], [Effect::Write(_), Effect::Finish(Outcome::Heuristic(_))]));
    bench.logged(Ok(()));
    let effects = bench.effects();
    assert!(matches!(&effects[..], [Effect::Write(decision)]
        if states(decision) == [ParticipantState::Mixed, ParticipantState::RolledBack]));
}

#[test]
fn commit_in_answer_to_a_rollback_is_heuristic() {
    let mut bench = Bench::preparing();
    bench.answer(1, Ask::Prepare, 1, no());
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 2)]);
    bench.answer(0, Ask::Rollback, 2, Answer::Committed("by itself".to_owned()));
    assert!(matches!(&bench.effects()[..], [Effect::Write(_), Effect::Finish(Outcome::Heuristic(_))]));
}

#[test]
fn heuristic_record_that_was_not_written_is_tried_again() {
    let mut bench = Bench::committing();
    bench.answer(0, Ask::Commit, 2, Answer::Mixed("half".to_owned()));
    bench.answer(1, Ask::Commit, 2, Answer::Done);
    bench.tx.on_refused(bench.now, WALL, Refused::Full("txn.x".to_owned()), &mut bench.effects);
    bench.effects();
    bench.wait(8);
    assert!(matches!(&bench.effects()[..], [Effect::Write(_)]));
}

#[test]
fn last_resource_is_asked_after_a_record_and_its_yes_is_written_before_the_others_commit() {
    let mut bench = Bench::asking_last();
    bench.answer(1, Ask::CommitOnePhase, 1, Answer::Done);
    let effects = bench.effects();
    assert!(matches!(&effects[..], [Effect::Write(decision)] if decision.kind == DecisionKind::Commit
        && states(decision) == [ParticipantState::ToCommit, ParticipantState::Committed]));
    bench.logged(Ok(()));
    assert_eq!(bench.asked(), [(0, Ask::Commit, 2)]);
}

#[test]
fn others_follow_a_last_resource_that_committed_though_its_record_failed() {
    for error in [LogError::Absent(String::new()), LogError::Unknown(String::new())] {
        let mut bench = Bench::asking_last();
        bench.answer(1, Ask::CommitOnePhase, 1, Answer::Done);
        bench.effects();
        bench.logged(Err(error));
        assert_eq!(bench.asked(), [(0, Ask::Commit, 2)]);
    }
}

#[test]
fn last_resource_that_rolled_back_takes_the_others_with_it() {
    let mut bench = Bench::asking_last();
    bench.answer(1, Ask::CommitOnePhase, 1, Answer::RolledBack("conflict".to_owned()));
    assert!(matches!(
        &bench.effects()[..],
        [Effect::Remove, Effect::Ask { branch: 0, ask: Ask::Rollback, .. }]
    ));
    bench.answer(0, Ask::Rollback, 2, Answer::Done);
    assert!(aborted(&bench.effects()));
}

#[test]
fn silent_last_resource_leaves_the_others_prepared_for_an_operator() {
    for commit in [true, false] {
        let mut bench = Bench::asking_last();
        bench.wait(60_000);
        assert!(matches!(&bench.effects()[..], [Effect::Finish(Outcome::Unknown(_))]));
        bench.tx.resolve(bench.now, WALL, commit, &mut bench.effects).unwrap();
        assert!(matches!(&bench.effects()[..], [Effect::Write(_)]));
        let again = bench.tx.resolve(bench.now, WALL, commit, &mut bench.effects);
        assert_eq!(again, Err(Misuse::NotResolvable(State::InDoubt)));
        bench.logged(Ok(()));
        let ask = if commit { Ask::Commit } else { Ask::Rollback };
        assert_eq!(bench.asked(), [(0, ask, 2)]);
        bench.answer(0, ask, 2, Answer::Done);
        assert_eq!(bench.effects(), [Effect::Remove, Effect::End]);
    }
}

#[test]
fn late_answer_of_a_last_resource_resolves_the_doubt() {
    for (answer, ask) in [(Answer::Done, Ask::Commit), (Answer::RolledBack(String::new()), Ask::Rollback)] {
        let mut bench = Bench::asking_last();
        bench.wait(60_000);
        bench.effects();
        bench.answer(1, Ask::CommitOnePhase, 1, lost());
        assert_eq!(bench.effects(), []);
        bench.answer(1, Ask::CommitOnePhase, 1, answer.clone());
        bench.answer(1, Ask::CommitOnePhase, 1, answer);
        assert!(matches!(&bench.effects()[..], [Effect::Write(_)]), "once");
        bench.logged(Ok(()));
        assert_eq!(bench.asked(), [(0, ask, 2)]);
    }
}

#[test]
fn last_resource_among_readers_commits_in_one_phase() {
    let mut bench = Bench::new(&[Abilities::default(), LAST]);
    bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
    bench.answer(0, Ask::Prepare, 1, READ_ONLY);
    assert_eq!(bench.asked(), [(0, Ask::Prepare, 1), (1, Ask::CommitOnePhase, 1)]);
    bench.answer(1, Ask::CommitOnePhase, 1, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Finish(Outcome::Committed), Effect::End]);
}

#[test]
fn record_of_an_asked_last_resource_is_in_doubt_after_a_start() {
    let intent = record(DecisionKind::Heuristic, &[ParticipantState::ToCommit; 2]);
    let mut bench = resumed(&intent, &[Abilities::default(), LAST]);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::InDoubt));
    bench.tx.resolve(bench.now, WALL, false, &mut bench.effects).unwrap();
    let effects = bench.effects();
    assert!(matches!(&effects[..], [Effect::Write(decision)]
        if states(decision) == [ParticipantState::ToRollBack]));
}

#[test]
fn operators_rollback_goes_on_after_a_start() {
    let resolved = record(DecisionKind::Heuristic, &[ParticipantState::ToRollBack]);
    let mut bench = resumed(&resolved, &[Abilities::default()]);
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 1)]);
    bench.answer(0, Ask::Rollback, 1, Answer::Done);
    assert_eq!(bench.effects(), [Effect::Remove, Effect::End]);
}

#[test]
fn heuristic_record_is_kept_over_a_start_and_the_others_go_on() {
    let kept = record(DecisionKind::Heuristic, &[ParticipantState::RolledBack, ParticipantState::ToCommit]);
    let mut bench = resumed(&kept, &[Abilities::default(); 2]);
    assert_eq!(bench.asked(), [(1, Ask::Commit, 1)]);
    bench.answer(1, Ask::Commit, 1, Answer::Done);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::Heuristic));
}

#[test]
fn resource_that_is_not_configured_any_more_keeps_the_transaction_waiting() {
    let decided = record(DecisionKind::Commit, &[ParticipantState::ToCommit; 2]);
    let mut bench = resumed(&decided, &[Abilities::default()]);
    assert_eq!(bench.asked(), [(0, Ask::Commit, 1)]);
    bench.answer(0, Ask::Commit, 1, Answer::Done);
    bench.wait(60_000);
    assert_eq!((bench.effects(), bench.tx.state()), (vec![], State::Committing));
    let waiting = bench.tx.branches().find(|branch| !branch.is_configured).unwrap();
    assert_eq!((waiting.branch, waiting.resource), (1, "r1"));
    assert!(waiting.trouble.contains("not configured"), "{}", waiting.trouble);
}

#[test]
fn what_does_not_fit_is_misuse_and_changes_nothing() {
    let mut bench = Bench::new(&[LAST]);
    assert_eq!(bench.tx.enlist(1, LAST, "r1"), Err(Misuse::SecondLastResource));
    for place in 1..BRANCHES_MAX {
        bench.tx.enlist(place as u16, Abilities::default(), "r").unwrap();
    }
    assert_eq!(bench.tx.enlist(99, Abilities::default(), "r"), Err(Misuse::TooManyBranches));
    bench.tx.rollback(bench.now, WALL, "enough", &mut bench.effects).unwrap();
    let late = Misuse::NotActive(State::RollingBack);
    assert_eq!(bench.tx.enlist(99, Abilities::default(), "r"), Err(late.clone()));
    assert_eq!(bench.tx.commit(bench.now, WALL, &mut bench.effects), Err(late));
}

#[test]
fn orphan_is_rolled_back_until_it_answers_with_all_its_branches() {
    let mut bench = Bench { tx: Transaction::orphan(ID, TIMING), now: Nanos(0), effects: Vec::new() };
    for branch in [0, 3] {
        let none = bench.tx.standing(branch);
        bench.tx.adopt(bench.now, branch, branch, Abilities::default(), "r", &mut bench.effects).unwrap();
        assert_eq!((none, bench.tx.standing(branch)), (Standing::Nobody, Standing::Live));
    }
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 1), (3, Ask::Rollback, 1)]);
    bench.answer(0, Ask::Rollback, 1, lost());
    bench.answer(3, Ask::Rollback, 1, Answer::Done);
    bench.wait(1);
    assert_eq!(bench.asked(), [(0, Ask::Rollback, 2)]);
    bench.answer(0, Ask::Rollback, 2, Answer::Done);
    assert_eq!(bench.effects(), [Effect::End]);
    let late = bench.tx.adopt(bench.now, 4, 4, Abilities::default(), "r", &mut bench.effects);
    assert_eq!(late, Err(Misuse::NotActive(State::Done)));
}

#[test]
fn what_an_orphan_decided_on_its_own_is_kept_for_an_operator() {
    let mut bench = Bench { tx: Transaction::orphan(ID, TIMING), now: Nanos(0), effects: Vec::new() };
    bench.tx.adopt(bench.now, 0, 0, Abilities::default(), "r", &mut bench.effects).unwrap();
    bench.effects();
    bench.answer(0, Ask::Rollback, 1, Answer::Committed("by hand".to_owned()));
    assert!(
        matches!(&bench.effects()[..], [Effect::Write(decision)] if decision.kind == DecisionKind::Heuristic)
    );
    assert_eq!(bench.tx.state(), State::Heuristic);
}

#[test]
fn resource_that_is_back_is_asked_at_once_and_what_is_asked_or_done_is_left_alone() {
    let mut bench = Bench::committing();
    for attempt in 2..8 {
        bench.answer(0, Ask::Commit, attempt, Answer::Lost("down".to_owned()));
        bench.now = bench.tx.next_time().unwrap();
        bench.tx.on_time(bench.now, WALL, &mut bench.effects);
        assert!(bench.asked().contains(&(0, Ask::Commit, attempt + 1)), "{attempt}");
    }
    bench.answer(0, Ask::Commit, 8, Answer::Lost("down".to_owned()));
    bench.effects();
    // Branch 1 has its question open, and branch 0 is another resource's.
    bench.tx.on_back(bench.now, WALL, 1, &mut bench.effects);
    assert_eq!(bench.asked(), []);
    bench.tx.on_back(bench.now, WALL, 0, &mut bench.effects);
    assert_eq!(bench.asked(), [(0, Ask::Commit, 9)]);
    bench.tx.on_back(bench.now, WALL, 0, &mut bench.effects);
    assert_eq!(bench.asked(), []);
}
