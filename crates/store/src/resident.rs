//! Resident memory within the limit: what the process holds beside what is counted takes its part of `memory.limit`.
//!
//! ```text
//!  resident = counted + code, stacks, buffers of threads + free memory of the allocator between values
//!                       |---------------- not counted: learnt here, and held against the limit -------|
//!
//!  resident > 33/32 of the limit   more is held against it, and free pages go back to the system
//!  resident < the limit            less, a step every 10 s
//! ```
//!
//! Values that leave memory make holes, and the holes are used again. So resident memory tells how much is too much only after free pages went
//! back; and once enough is held against the limit they need not go back any more.
//!
//! Holes of small values that left memory, where larger ones follow, cannot be held against the limit: they come to more than that. Beyond bounds of their own
//! ([`Bounds`]) pages are emptied (`vacate`).
//!
//! Invariants
//!   1. At most a [`SHARE_MAX`]-th of the limit is held against it in this way: what it cannot cover is for the operator to see.
//!   2. A limit below [`LIMIT_BYTES_MIN`] is for keys: nothing is held against it, but free pages go back. Of what was resident at the start more than a
//!      [`START_SHARE`]-th of the limit is never looked at: a limit of 128 MiB leaves out next to nothing.
//!   3. Where giving pages back or emptying them does not help, it is tried ever more rarely: threads that allocate wait meanwhile.
//!
//! Performs no I/O: who calls knows what is resident.

use std::time::Duration;

use clock::Nanos;

/// What is held against the limit for the process itself.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// What was resident and not counted at the first look.
    start_bytes: Option<u64>,
    /// What was learnt since then.
    learnt_bytes: u64,
    /// When something was last learnt.
    changed_at: Nanos,
    /// How long to wait before pages go back again.
    pause: Duration,
    /// What was resident and not counted when all values had moved together, if that was more than at the start.
    own_bytes: u64,
    /// When pages were last emptied, what was resident then, and how long it takes until they are again.
    vacated_at: Option<Nanos>,
    vacated_bytes: u64,
    vacate_pause: Duration,
}

/// What may be resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Down to which pages are emptied.
    pub(crate) goal_bytes: u64,
    /// From which on they are.
    pub(crate) begin_bytes: u64,
    /// With more nothing is stored meanwhile.
    pub(crate) most_bytes: u64,
}

impl Resident {
    /// Looks at `resident_bytes` of the process, of which `counted_bytes` are counted; returns whether free pages should go back now.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        resident_bytes: u64,
        counted_bytes: u64,
        limit_bytes: u64,
    ) -> bool {
        let start_bytes = *self.start_bytes.get_or_insert(resident_bytes.saturating_sub(counted_bytes));
        let is_small = limit_bytes < LIMIT_BYTES_MIN;
        let start_bytes_max = if is_small { 0 } else { limit_bytes / START_SHARE };
        let resident_bytes = resident_bytes.saturating_sub(start_bytes.saturating_sub(start_bytes_max));
        let step_bytes = limit_bytes / STEP_SHARE;
        let since = now.since(self.changed_at);
        let goal_bytes = limit_bytes + (limit_bytes / GOAL_SHARE).max(GOAL_BYTES_MIN);
        if resident_bytes <= goal_bytes {
            self.pause = PAUSE_MIN;
            if resident_bytes < limit_bytes && since >= FORGET_AFTER && self.learnt_bytes > 0 {
                self.learnt_bytes = self.learnt_bytes.saturating_sub(step_bytes);
                self.changed_at = now;
            }
            return false;
        }
        if since < self.pause {
            return false;
        }
        self.changed_at = now;
        if is_small {
            // no pages are emptied, either: those that are free by themselves go back once a second, which takes a millisecond
            self.pause = PAUSE_MIN;
            return limit_bytes > 0;
        }
        self.learnt_bytes += ((resident_bytes - goal_bytes) / LEARNT_PART).max(step_bytes);
        self.learnt_bytes = self.learnt_bytes.min(limit_bytes / SHARE_MAX);
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        true
    }

    /// What may be resident beside a limit of `limit_bytes`; `None` for now, where emptying pages did not help lately.
    pub(crate) fn bounds(&self, now: Nanos, limit_bytes: u64) -> Option<Bounds> {
        if limit_bytes < VACATE_LIMIT_BYTES_MIN
            || self.vacated_at.is_some_and(|at| now.since(at) < self.vacate_pause)
        {
            return None;
        }
        let own_bytes = self.start_bytes?.max(self.own_bytes).min(OWN_BYTES_MAX);
        let (base, step) = (own_bytes + limit_bytes, (limit_bytes / BOUND_SHARE).max(BOUND_BYTES_MIN));
        let [goal_bytes, begin_bytes, most_bytes] = [2, 3, 4].map(|steps| base + steps * step);
        Some(Bounds { goal_bytes, begin_bytes, most_bytes })
    }

    /// Whether a pause that is about to end is all that keeps pages from being emptied.
    pub(crate) fn vacates_soon(&self, now: Nanos) -> bool {
        let is_short = self.vacate_pause <= VACATE_PAUSE_SHORT;
        is_short && self.vacated_at.is_some_and(|at| now.since(at) < self.vacate_pause)
    }

    /// Whether pages were emptied just before `now`, after which no more were resident than the `resident_bytes` of now.
    pub(crate) fn was_vacated_to(&self, now: Nanos, resident_bytes: u64) -> bool {
        self.vacated_at.is_some_and(|at| now.since(at) < AGAIN_WITHIN) && resident_bytes >= self.vacated_bytes
    }

    /// Takes note that pages were emptied, after which `resident_bytes` are, and whether that `helped`.
    pub(crate) fn on_vacated(&mut self, now: Nanos, resident_bytes: u64, helped: bool) {
        (self.vacated_at, self.vacated_bytes) = (Some(now), resident_bytes);
        let longer = (self.vacate_pause * 2).clamp(VACATE_PAUSE_MIN, PAUSE_MAX);
        self.vacate_pause = if helped { Duration::ZERO } else { longer };
    }

    /// With values close together `resident_bytes` of the process are resident, of which `counted_bytes` are counted: the rest is the program's own.
    pub(crate) fn learn_own(&mut self, resident_bytes: u64, counted_bytes: u64) {
        self.own_bytes = self.own_bytes.max(resident_bytes.saturating_sub(counted_bytes));
    }

    /// What is held against a limit of `limit_bytes`.
    pub(crate) fn held_bytes(&self, limit_bytes: u64) -> u64 {
        if limit_bytes < LIMIT_BYTES_MIN {
            return 0;
        }
        let start_bytes = self.start_bytes.unwrap_or(0).min(limit_bytes / START_SHARE);
        (start_bytes + self.learnt_bytes).min(limit_bytes / SHARE_MAX)
    }
}

/// The bounds are 2, 3 and 4 of this share of the limit beyond limit and program: what is under way meanwhile comes on top.
const BOUND_SHARE: u64 = 32;
/// With a smaller limit code that becomes resident as it runs, and buffers, come to as much as these bounds: pages would be emptied for them all the time, and
/// long commands wait for it.
const VACATE_LIMIT_BYTES_MIN: u64 = 32 << 20;
/// At least so much each: code becomes resident as it runs, some 4 MiB.
const BOUND_BYTES_MIN: u64 = 2 << 20;
/// Of what is resident and not counted no more than this is the program's own.
const OWN_BYTES_MAX: u64 = 24 << 20;
/// Of a smaller limit each value of a fifth of it would miss what is held for the process.
const LIMIT_BYTES_MIN: u64 = 128 << 20;
/// By this share of itself resident memory may exceed the limit before anything is done.
const GOAL_SHARE: u64 = 32;
/// At least by so much: code that runs for the first time becomes resident.
const GOAL_BYTES_MIN: u64 = 4 << 20;
/// What was resident at the start counts up to this share of the limit.
const START_SHARE: u64 = 16;
/// Most that is held against the limit.
const SHARE_MAX: u64 = 4;
/// The smallest change, a share of the limit.
const STEP_SHARE: u64 = 256;
/// Of what is too much, a part is learnt at a time: pages that go back make up for the rest.
const LEARNT_PART: u64 = 4;
/// Between two times that pages go back: free memory that is in use again by then was not to spare.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// After pages were emptied and that did not help. One such pass says little: values that wait for the disk cannot leave memory, but soon can; and nobody
/// waits in a pause, so that 40 MiB came in 100 ms.
const VACATE_PAUSE_MIN: Duration = Duration::from_millis(1);
/// The thread that empties pages waits for the end of such a pause, and of a longer one until it is woken.
const VACATE_PAUSE_SHORT: Duration = Duration::from_millis(16);
/// Pages that are emptied again so soon were emptied in vain.
const AGAIN_WITHIN: Duration = Duration::from_millis(100);
/// The most of both, where it does not help.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long less than the limit is resident before a step is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 256 * MIB;

    /// A process with `fixed` bytes beside its values. Writers fill a limit of 256 MiB up to 15/16 at once; from then on holes between values grow, a
    /// quarter of the way at each look, to a share of them.
    struct Process {
        resident: Resident,
        now: Nanos,
        fixed: u64,
        holes_percent: u64,
        resident_bytes: u64,
        given_back: usize,
    }

    impl Process {
        fn new(fixed_mib: u64, holes_percent: u64) -> Self {
            let (resident, fixed) = (Resident::default(), fixed_mib * MIB);
            let now = Nanos(1_000_000_000);
            let mut process =
                Self { resident, now, fixed, holes_percent, resident_bytes: fixed, given_back: 0 };
            process.look(0);
            process
        }

        fn used(&self) -> u64 {
            LIMIT / 16 * 15 - self.resident.held_bytes(LIMIT)
        }

        fn look(&mut self, used: u64) {
            self.now = Nanos(self.now.0 + 250_000_000);
            if self.resident.look(self.now, self.resident_bytes, used, LIMIT) {
                self.given_back += 1;
                self.resident_bytes = self.fixed + used;
            }
        }

        /// `looks` while values come and go.
        fn churn(&mut self, looks: usize) {
            for _ in 0..looks {
                let used = self.used();
                let whole = self.fixed + used + used * self.holes_percent / 100;
                self.resident_bytes = self.resident_bytes.max(self.fixed + used);
                self.resident_bytes += whole.saturating_sub(self.resident_bytes) / 4;
                self.look(used);
            }
        }
    }

    #[test]
    fn churn_comes_to_rest_below_the_goal_and_no_page_goes_back_any_more() {
        for (fixed_mib, holes_percent) in [(12, 7), (30, 12), (12, 25)] {
            let mut process = Process::new(fixed_mib, holes_percent);
            process.churn(240);
            let given_back = process.given_back;
            let left_out = fixed_mib.saturating_sub(16) * MIB;
            assert!(
                process.resident_bytes <= LIMIT / 32 * 33 + left_out,
                "{} MiB",
                process.resident_bytes / MIB
            );
            assert!(process.used() > LIMIT * 2 / 3, "{} MiB used", process.used() / MIB);
            process.churn(40);
            assert_eq!(process.given_back, given_back, "{fixed_mib} MiB, {holes_percent} %");
        }
    }

    #[test]
    fn process_that_needs_little_beside_its_values_loses_next_to_nothing() {
        let mut process = Process::new(4, 1);
        process.churn(1_000);
        assert_eq!((process.given_back, process.resident.held_bytes(LIMIT)), (0, 4 * MIB));
    }

    #[test]
    fn free_pages_go_back_once_a_second_with_a_small_limit_and_nothing_is_held_against_it() {
        let (mut resident, limit) = (Resident::default(), 20 * MIB);
        let mut look = |ms: u64, mib: u64| resident.look(Nanos(ms * 1_000_000), mib * MIB, 0, limit);
        assert!(!look(1_000, 18) && !look(2_000, 41), "18 are the program's own");
        assert_eq!(
            [3_000, 3_500, 4_000, 4_500, 5_000].map(|ms| look(ms, 50)),
            [true, false, true, false, true]
        );
        assert!(!look(6_000, 40));
        assert_eq!((resident.held_bytes(limit), resident.learnt_bytes), (0, 0));
        assert!(!Resident::default().look(Nanos(9_000_000_000), 50 * MIB, 0, 0), "no limit");
    }

    #[test]
    fn what_cannot_be_helped_takes_a_quarter_of_the_limit_and_pages_go_back_rarely() {
        let mut process = Process::new(4, 0);
        process.fixed = 500 * MIB;
        process.churn(4 * 600);
        assert_eq!(process.resident.held_bytes(LIMIT), LIMIT / 4);
        assert!(process.given_back < 20, "{} times in ten minutes", process.given_back);
    }

    #[test]
    fn what_was_learnt_is_forgotten_when_it_is_not_needed_any_more() {
        let mut process = Process::new(12, 25);
        process.churn(240);
        assert!(process.resident.held_bytes(LIMIT) > 20 * MIB);
        process.resident_bytes = 100 * MIB;
        (0..4 * 600).for_each(|_| process.look(88 * MIB));
        assert_eq!(process.resident.held_bytes(LIMIT), 12 * MIB);
    }

    #[test]
    fn bounds_lie_within_a_quarter_of_the_limit_and_what_the_program_takes() {
        let (mut resident, now) = (Resident::default(), Nanos(1_000_000_000));
        assert_eq!(resident.bounds(now, LIMIT), None, "nothing is known");
        resident.look(now, 18 * MIB, 3 * MIB, 20 * MIB);
        for limit in [32 * MIB, LIMIT, 100 << 30] {
            let bounds = resident.bounds(now, limit).expect("known");
            assert!(15 * MIB + limit < bounds.goal_bytes && bounds.goal_bytes < bounds.begin_bytes);
            assert!(bounds.begin_bytes < bounds.most_bytes && bounds.most_bytes <= 15 * MIB + limit / 4 * 5);
        }
        assert_eq!(resident.bounds(now, 0), None, "no limit");
        assert_eq!(resident.bounds(now, 20 * MIB), None, "the program is as large");
        let mut crowded = Resident::default();
        crowded.look(now, 900 * MIB, 0, LIMIT);
        assert!(
            crowded.bounds(now, LIMIT).is_some_and(|it| it.most_bytes < LIMIT / 4 * 5),
            "holes at the start"
        );
    }

    #[test]
    fn what_is_left_when_all_has_moved_is_the_own_share_up_to_a_bound() {
        let (mut resident, now) = (Resident::default(), Nanos(1_000_000_000));
        resident.look(now, 15 * MIB, 0, LIMIT);
        let goal_mib =
            |resident: &Resident| resident.bounds(now, LIMIT).map(|it| (it.goal_bytes - LIMIT) / MIB);
        assert_eq!(goal_mib(&resident), Some(15 + 16));
        resident.learn_own(LIMIT + 10 * MIB, LIMIT);
        assert_eq!(goal_mib(&resident), Some(15 + 16), "no less");
        resident.learn_own(LIMIT + 20 * MIB, LIMIT);
        assert_eq!(goal_mib(&resident), Some(20 + 16));
        resident.learn_own(LIMIT + 200 * MIB, LIMIT);
        assert_eq!(goal_mib(&resident), Some(24 + 16));
    }

    #[test]
    fn pass_soon_after_another_that_leaves_no_less_was_in_vain() {
        let (mut resident, at) = (Resident::default(), |ms: u64| Nanos(ms * 1_000_000));
        assert!(!resident.was_vacated_to(at(1), LIMIT));
        resident.on_vacated(at(1), LIMIT, true);
        assert!(resident.was_vacated_to(at(50), LIMIT) && !resident.was_vacated_to(at(50), LIMIT - 1));
        assert!(!resident.was_vacated_to(at(500), LIMIT));
    }

    #[test]
    fn passes_that_do_not_help_are_ever_rarer_until_one_does() {
        let (mut resident, at) = (Resident::default(), |s: u64| Nanos(s * 1_000_000_000));
        resident.look(at(1), 18 * MIB, 3 * MIB, LIMIT);
        let mut passes = 0;
        for second in 1..=600 {
            if resident.bounds(at(second), LIMIT).is_some() {
                resident.on_vacated(at(second), LIMIT, false);
                passes += 1;
            }
        }
        assert!((15..30).contains(&passes), "{passes} in ten minutes");
        resident.on_vacated(at(700), LIMIT, true);
        assert!(resident.bounds(at(700), LIMIT).is_some());
    }

    /// Nobody came back for a pass after a pause of a millisecond: 140 MiB came in half a second.
    #[test]
    fn short_pause_is_waited_for_and_a_long_one_is_not() {
        let (mut resident, at) = (Resident::default(), |ms: u64| Nanos(ms * 1_000_000));
        resident.look(at(1_000), 18 * MIB, 3 * MIB, LIMIT);
        assert!(!resident.vacates_soon(at(1_000)), "no pass");
        resident.on_vacated(at(2_000), LIMIT, false);
        assert!(resident.vacates_soon(at(2_000)) && resident.bounds(at(2_000), LIMIT).is_none());
        assert!(!resident.vacates_soon(at(2_001)) && resident.bounds(at(2_001), LIMIT).is_some());
        (0..10).for_each(|_| resident.on_vacated(at(3_000), LIMIT, false));
        assert!(!resident.vacates_soon(at(3_000)), "a second");
        resident.on_vacated(at(4_000), LIMIT, true);
        assert!(!resident.vacates_soon(at(4_000)));
    }

    #[test]
    fn without_a_limit_nothing_is_held_nor_of_a_small_one() {
        let mut resident = Resident::default();
        assert!(!resident.look(Nanos(5_000_000_000), 1 << 40, 0, 0));
        assert!(!resident.look(Nanos(6_000_000_000), 1 << 40, 0, 64 * MIB));
        assert_eq!((resident.held_bytes(0), resident.held_bytes(64 * MIB)), (0, 0));
    }
}
