//! Any answers in any order: what a machine wants must keep the promises all the same.

use proptest::prelude::{ProptestConfig, any, prop, proptest};

use super::*;

/// Any answer that a resource may give to anything.
fn any_answer(choice: u8) -> Answer {
    let why = String::new();
    match choice % 11 {
        0 | 1 => YES,
        2 => READ_ONLY,
        3 => no(),
        4 | 5 => Answer::Done,
        6 => Answer::RolledBack(why),
        7 => Answer::Committed(why),
        8 => Answer::Mixed(why),
        9 => Answer::Failed(why),
        _ => Answer::Lost(why),
    }
}

/// Looks at everything that a machine wants, in order.
#[derive(Default)]
struct Judge {
    is_logged: bool,
    /// A record may be in the log, and a commit may be.
    may_be_logged: bool,
    may_be_committed: bool,
    writing: Option<DecisionKind>,
    finished: usize,
    ended: usize,
    told: Option<Outcome>,
    asked_commit: bool,
    asked_rollback: bool,
}

impl Judge {
    /// What becomes of the record that is on its way.
    fn logged(&mut self, choice: u8) -> Result<(), LogError> {
        let kind = self.writing.take();
        match choice % 6 {
            0 => Err(LogError::Absent(String::new())),
            1 => {
                self.may_be_logged = true;
                self.may_be_committed |= kind == Some(DecisionKind::Commit);
                Err(LogError::Unknown(String::new()))
            }
            _ => {
                self.is_logged = true;
                Ok(())
            }
        }
    }

    fn see(&mut self, effect: &Effect) {
        assert_eq!(self.ended, 0, "{effect:?} after the end");
        match effect {
            Effect::Ask { ask: Ask::Commit, .. } => {
                assert!(self.is_logged, "commit before the record");
                self.asked_commit = true;
            }
            Effect::Ask { ask: Ask::Rollback, .. } => self.asked_rollback = true,
            Effect::Write(decision) => {
                assert!(self.writing.replace(decision.kind).is_none(), "two records at once");
            }
            Effect::Finish(outcome) => {
                self.finished += 1;
                self.told = Some(outcome.clone());
            }
            Effect::End => self.ended += 1,
            Effect::Remove => assert!(self.is_logged || self.may_be_logged, "nothing to remove"),
            Effect::Ask { .. } => {}
        }
        assert!(self.finished <= 1, "finished twice");
        match self.told {
            Some(Outcome::Aborted(_)) => {
                assert!(!self.asked_commit && !self.may_be_committed, "told as aborted, and committed");
            }
            Some(Outcome::Committed) => assert!(!self.asked_rollback, "told as committed, and rolled back"),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]
    #[test]
    fn any_order_of_any_answers_keeps_the_promises(
        readers in 1_usize..4,
        has_last in any::<bool>(),
        events in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..60),
    ) {
        let mut resources = vec![Abilities::default(); readers];
        resources.extend(has_last.then_some(LAST));
        let mut bench = Bench::new(&resources);
        let (mut judge, mut asked) = (Judge::default(), Vec::new());
        bench.tx.commit(bench.now, WALL, &mut bench.effects).unwrap();
        for (what, which, choice) in events {
            for effect in bench.effects() {
                judge.see(&effect);
                if let Effect::Ask { branch, ask, attempt, .. } = effect {
                    asked.push((branch, ask, attempt));
                }
            }
            match what % 8 {
                0 => bench.wait(u64::from(choice)),
                1 | 2 if judge.writing.is_some() => bench.logged(judge.logged(choice)),
                3 => drop(bench.tx.resolve(bench.now, WALL, choice % 2 == 0, &mut bench.effects)),
                _ if asked.is_empty() => {}
                _ => {
                    let (branch, ask, attempt) = asked[usize::from(which) % asked.len()];
                    bench.answer(branch, ask, attempt, any_answer(choice));
                }
            }
        }
        for effect in bench.effects() {
            judge.see(&effect);
        }
        if judge.ended == 1 {
            assert_eq!(judge.finished, 1, "ended and nobody was told");
            assert!(bench.tx.branches().all(|branch| branch.state.question().is_none()));
        }
    }
}
