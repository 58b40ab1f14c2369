//! The life of one worker: when it is started, told something and killed. No I/O; time is an argument.
//!
//! ```text
//!            due                  exit: pause x 2
//!  Waiting -------> Running ------------------------> Waiting
//!     |                | kill, silence
//!     | kill           v
//!     |             Ending (until: then it is killed) --exit--> Ended (kill) | Waiting (silence)
//!     +----------> Ended
//! ```
//!
//! Invariants
//!   1. After [`Action::Start`] nothing is started before an exit, or a start that failed, was told.
//!   2. A pause doubles from [`PAUSE_MIN`] to [`PAUSE_MAX`]; a worker that ran for [`CALM`] sets it back.
//!   3. A worker that says nothing for [`SILENCE_MAX`] is killed and counts as one that has died.

use std::time::Duration;

use clock::Nanos;

use crate::messages::Order;

/// What a topology is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No worker runs: they are to be started, after a pause.
    Waiting,
    /// It runs, and spouts emit.
    Active,
    /// It runs, and spouts emit nothing.
    Inactive,
    /// Its workers are ending, and others follow.
    Restarting,
    /// Tasks move to other workers, and the rest goes on.
    Rebalancing,
    /// It was killed, and finishes what is under way.
    Killed,
    /// Nothing is left of it.
    Gone,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start a worker, and tell whether that worked.
    Start,
    /// Tell it to the worker.
    Tell(Order),
    /// Kill the worker, and tell its exit.
    Kill,
}

/// The life of one worker.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    is_active: bool,
    /// What the worker was told to be.
    told_active: bool,
    phase: Phase,
    pause: Duration,
    restarts: u64,
    last_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A worker is to be started.
    Waiting { at: Nanos },
    /// A worker runs since then, and has last said something.
    Running { since: Nanos, heard: Nanos },
    /// A worker was told to end, or was killed.
    Ending { until: Nanos, then: Then, wait: Option<Duration>, is_killed: bool },
    /// There is none, and will be none.
    Ended,
}

/// What follows the end of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Another one, after a pause: it was at fault.
    Retry,
    /// Nothing.
    End,
}

impl Lifecycle {
    /// A topology whose worker is to be started now.
    pub(crate) fn new(now: Nanos, is_active: bool) -> Self {
        let phase = Phase::Waiting { at: now };
        Self { is_active, told_active: true, phase, pause: PAUSE_MIN, restarts: 0, last_error: None }
    }

    /// What it is doing.
    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Waiting { .. } => State::Waiting,
            Phase::Running { .. } if self.is_active => State::Active,
            Phase::Running { .. } => State::Inactive,
            Phase::Ending { then: Then::End, .. } => State::Killed,
            Phase::Ending { .. } => State::Waiting,
            Phase::Ended => State::Gone,
        }
    }

    /// Whether its process runs and was not told to end.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// How often a worker was started again after a fault.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Why its last worker ended, if that was a fault.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether spouts are to emit.
    pub(crate) fn set_active(&mut self, is_active: bool) {
        self.is_active = is_active;
    }

    /// Ends it: what is under way is finished, for at most `wait`.
    pub(crate) fn kill(&mut self, now: Nanos, wait: Duration) {
        self.end(now, wait);
    }

    /// Ends it as [`Lifecycle::kill`] does, because the server stops: it is killed soon after `wait`.
    pub(crate) fn stop(&mut self, now: Nanos, wait: Duration) {
        self.kill(now, wait);
        if let Phase::Ending { until, .. } = &mut self.phase {
            *until = (*until).min(now + wait + STOP_GRACE);
        }
    }

    fn end(&mut self, now: Nanos, wait: Duration) {
        let (until, then) = (now + wait + END_GRACE, Then::End);
        self.phase = match self.phase {
            Phase::Running { .. } => Phase::Ending { until, then, wait: Some(wait), is_killed: false },
            // A second kill may be in more of a hurry.
            Phase::Ending { until: former, wait, is_killed, .. } => {
                Phase::Ending { until: former.min(until), then, wait, is_killed }
            }
            Phase::Waiting { .. } | Phase::Ended => Phase::Ended,
        };
    }

    /// A worker was started. It is killed at once if it is not wanted any more.
    pub(crate) fn on_started(&mut self, now: Nanos) {
        self.told_active = true;
        self.phase = match self.phase {
            Phase::Waiting { .. } => Phase::Running { since: now, heard: now },
            _ => Phase::Ending { until: now, then: Then::End, wait: None, is_killed: false },
        };
    }

    /// A worker could not be started.
    pub(crate) fn on_start_failed(&mut self, now: Nanos, why: String) {
        self.last_error = Some(why);
        if self.phase != Phase::Ended {
            self.retry(now);
        }
    }

    /// The worker said how it is.
    pub(crate) fn on_status(&mut self, now: Nanos) {
        if let Phase::Running { heard, .. } = &mut self.phase {
            *heard = now;
        }
    }

    /// The worker has done what it may not: it is killed, and another one follows.
    pub(crate) fn on_misuse(&mut self, now: Nanos, why: String) {
        self.last_error = Some(why);
        if let Phase::Running { .. } = self.phase {
            self.phase = Phase::Ending { until: now, then: Then::Retry, wait: None, is_killed: false };
        }
    }

    /// The worker has ended, and nothing is left of it.
    pub(crate) fn on_exit(&mut self, now: Nanos, why: String) {
        match self.phase {
            Phase::Running { since, .. } => {
                if now.since(since) >= CALM {
                    self.pause = PAUSE_MIN;
                }
                self.last_error = Some(why);
                self.retry(now);
            }
            Phase::Ending { then: Then::Retry, .. } => self.retry(now),
            Phase::Ending { then: Then::End, .. } => self.phase = Phase::Ended,
            Phase::Waiting { .. } | Phase::Ended => {}
        }
    }

    fn retry(&mut self, now: Nanos) {
        self.restarts += 1;
        self.phase = Phase::Waiting { at: now + self.pause };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// What is to be done now. Call until there is nothing.
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<Action> {
        if let Phase::Running { heard, .. } = self.phase
            && now.since(heard) >= SILENCE_MAX
        {
            let seconds = SILENCE_MAX.as_secs();
            self.on_misuse(now, format!("it said nothing for {seconds} s, and was killed"));
        }
        match &mut self.phase {
            Phase::Waiting { at } if *at <= now => Some(Action::Start),
            Phase::Running { .. } if self.told_active != self.is_active => {
                self.told_active = self.is_active;
                Some(Action::Tell(if self.is_active { Order::Activate } else { Order::Deactivate }))
            }
            Phase::Ending { wait, .. } if wait.is_some() => {
                wait.take().map(|wait| Action::Tell(Order::Kill { wait_ms: wait.as_millis() as u64 }))
            }
            Phase::Ending { until, is_killed, .. } if *until <= now && !*is_killed => {
                *is_killed = true;
                Some(Action::Kill)
            }
            _ => None,
        }
    }

    /// When there may be something to be done, if nothing happens before.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Waiting { at } => Some(at),
            Phase::Running { heard, .. } => Some(heard + SILENCE_MAX),
            Phase::Ending { until, is_killed: false, .. } => Some(until),
            Phase::Ending { .. } | Phase::Ended => None,
        }
    }
}

/// The pause before a worker that has died is started again: the first one, and the longest.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A worker that ran so long begins with the shortest pause again.
const CALM: Duration = Duration::from_secs(60);
/// A worker says how it is each second.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A worker needs so long to end its children after all is finished.
const END_GRACE: Duration = Duration::from_secs(8);
/// The same while the server stops: children that do not end by themselves are killed with it.
const STOP_GRACE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos(1_000_000_000);

    fn running() -> Lifecycle {
        let mut life = Lifecycle::new(START, true);
        assert_eq!(life.poll(START), Some(Action::Start));
        life.on_started(START);
        assert_eq!(life.poll(START), None);
        life
    }

    #[test]
    fn worker_that_dies_is_started_after_pauses_that_double_up_to_the_longest() {
        let (mut life, mut now, mut pauses) = (running(), START, Vec::new());
        for _ in 0..9 {
            life.on_exit(now, "it exited".to_owned());
            assert_eq!(life.poll(now), None);
            let due = life.next_due().expect("it is started again");
            pauses.push(due.since(now).as_millis());
            now = due;
            assert_eq!(life.poll(now), Some(Action::Start));
            life.on_started(now);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!((life.restarts(), life.last_error()), (9, Some("it exited")));
    }

    #[test]
    fn minute_of_running_sets_the_pause_back() {
        let mut life = running();
        for _ in 0..5 {
            life.on_exit(START, String::new());
            life.on_started(START);
        }
        let now = START + CALM;
        life.on_exit(now, String::new());
        assert_eq!(life.next_due(), Some(now + PAUSE_MIN));
    }

    #[test]
    fn start_that_fails_is_tried_again_after_a_pause() {
        let mut life = Lifecycle::new(START, true);
        assert_eq!(life.poll(START), Some(Action::Start));
        life.on_start_failed(START, "no such file".to_owned());
        assert_eq!((life.poll(START), life.state()), (None, State::Waiting));
        assert_eq!(life.poll(START + PAUSE_MIN), Some(Action::Start));
        assert_eq!(life.last_error(), Some("no such file"));
    }

    #[test]
    fn silent_worker_is_killed_and_counts_as_dead() {
        let mut life = running();
        let heard = START + Duration::from_secs(5);
        life.on_status(heard);
        assert_eq!(life.poll(START + SILENCE_MAX), None);
        let now = heard + SILENCE_MAX;
        assert_eq!(life.poll(now), Some(Action::Kill));
        assert_eq!(life.poll(now), None, "once");
        life.on_exit(now, "it was killed by signal 9".to_owned());
        assert_eq!((life.next_due(), life.restarts()), (Some(now + PAUSE_MIN), 1));
        assert_eq!(life.last_error(), Some("it said nothing for 30 s, and was killed"));
    }

    #[test]
    fn kill_waits_as_long_as_it_was_told_and_then_kills() {
        let mut life = running();
        let wait = Duration::from_secs(10);
        life.kill(START, wait);
        assert_eq!(life.state(), State::Killed);
        assert_eq!(life.poll(START), Some(Action::Tell(Order::Kill { wait_ms: 10_000 })));
        assert_eq!(life.poll(START + wait), None);
        assert_eq!(life.poll(START + wait + END_GRACE), Some(Action::Kill));
        life.on_exit(START + wait + END_GRACE, String::new());
        assert_eq!((life.state(), life.next_due()), (State::Gone, None));
    }

    #[test]
    fn second_kill_may_be_in_more_of_a_hurry() {
        let mut life = running();
        life.kill(START, Duration::from_secs(100));
        life.kill(START, Duration::ZERO);
        assert_eq!((life.next_due(), life.state()), (Some(START + END_GRACE), State::Killed));
    }

    #[test]
    fn killed_while_it_waits_is_gone_at_once_also_if_its_start_fails_then() {
        let mut life = Lifecycle::new(START, true);
        assert_eq!(life.poll(START), Some(Action::Start));
        life.kill(START, Duration::from_secs(5));
        assert_eq!(life.state(), State::Gone);
        life.on_start_failed(START, "no".to_owned());
        assert_eq!((life.state(), life.poll(START)), (State::Gone, None));
    }

    #[test]
    fn worker_whose_topology_was_killed_while_it_started_is_killed() {
        let mut life = Lifecycle::new(START, true);
        assert_eq!(life.poll(START), Some(Action::Start));
        life.kill(START, Duration::from_secs(5));
        life.on_started(START);
        assert_eq!((life.poll(START), life.state()), (Some(Action::Kill), State::Killed));
        life.on_exit(START, String::new());
        assert_eq!(life.state(), State::Gone);
    }

    #[test]
    fn worker_is_told_when_what_is_wanted_changes_and_a_new_one_what_is_wanted() {
        let mut life = running();
        life.set_active(false);
        assert_eq!(life.poll(START), Some(Action::Tell(Order::Deactivate)));
        assert_eq!((life.poll(START), life.state()), (None, State::Inactive));
        life.on_exit(START, String::new());
        life.on_started(START);
        assert_eq!(life.poll(START), Some(Action::Tell(Order::Deactivate)), "a worker starts active");
        life.set_active(true);
        assert_eq!(life.poll(START), Some(Action::Tell(Order::Activate)));
    }

    #[test]
    fn worker_that_misbehaves_is_killed_at_once_and_another_one_follows() {
        let mut life = running();
        life.on_misuse(START, "a status of more than 4 MiB".to_owned());
        assert_eq!(life.poll(START), Some(Action::Kill));
        life.on_exit(START, "it was killed by signal 9".to_owned());
        assert_eq!((life.state(), life.last_error()), (State::Waiting, Some("a status of more than 4 MiB")));
    }
}
