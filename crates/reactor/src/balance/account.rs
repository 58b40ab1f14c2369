//! What the balancer remembers of a connection: its counters at the end of the last interval, what they grew by, its rest.
//!
//! The account is a part of the connection and goes with it. There is no other book, so none can be forgotten to be closed:
//! three leaks in Hazelcast's balancer were such books.

use super::By;

/// Rounds for which a connection stays where the balancer sent it: one that shows its load there in part, one in full, and one
/// to see what that changed for the others.
pub(crate) const REST_ROUNDS: u64 = 3;

/// Rounds that a mean of loads looks back.
const MEAN_ROUNDS_MAX: f64 = 8.0;
/// Rounds that a mean of variances looks back.
const VARIANCE_ROUNDS: f64 = 4.0;
/// A load that is so many standard deviations off is a new one.
const JUMP_SIGMAS: f64 = 3.0;

/// Counters of a connection that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) busy_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
}

/// How much of the time by the clock the loop's thread really ran in an interval: processor time for busy time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale(pub(crate) f64);

impl Scale {
    /// Most that busy time is stretched: polling costs processor time that no callback has.
    const MOST: f64 = 4.0;

    /// From what the thread's processor time and its busy time grew by; `former` where that tells nothing.
    pub(crate) fn of(cpu_ns: u64, busy_ns: u64, former: Self) -> Self {
        if busy_ns == 0 { former } else { Self((cpu_ns as f64 / busy_ns as f64).min(Self::MOST)) }
    }

    pub(crate) fn apply(self, busy_ns: u64) -> u64 {
        (busy_ns as f64 * self.0) as u64
    }
}

impl Default for Scale {
    fn default() -> Self {
        Self(1.0)
    }
}

/// What a connection costs an interval, and how sure that is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) load: u64,
    pub(crate) variance: f64,
}

/// A connection's account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    totals: Totals,
    busy_ns: u64,
    load: u64,
    /// Of the load, over the last intervals, as far as it did not jump.
    mean: f64,
    /// Intervals in that mean.
    mean_rounds: f64,
    /// Of the load in one interval.
    variance: f64,
    /// The least that it may be, after a jump.
    doubt: f64,
    is_known: bool,
    /// First round in which it may move again.
    rests_until: u64,
}

impl Account {
    /// Ends an interval at `totals`.
    pub(crate) fn close(&mut self, totals: Totals, scale: Scale, by: By) {
        let former = std::mem::replace(&mut self.totals, totals);
        self.busy_ns = scale.apply(totals.busy_ns.saturating_sub(former.busy_ns));
        let load = match by {
            By::Time => self.busy_ns,
            By::Bytes => totals.bytes.saturating_sub(former.bytes),
            By::Events => totals.events.saturating_sub(former.events),
        };
        self.learn(load);
    }

    fn learn(&mut self, load: u64) {
        let before = std::mem::replace(&mut self.load, load);
        let off = load as f64 - self.mean;
        let is_known = std::mem::replace(&mut self.is_known, true);
        // A jump is news, not noise: what came before tells nothing any more.
        if off.powi(2) > JUMP_SIGMAS.powi(2) * self.variance {
            self.mean_rounds = 1.0;
            // How sure that is shows in the next interval, if there is one.
            self.doubt = off.powi(2) / 2.0;
        } else {
            self.mean_rounds = (self.mean_rounds + 1.0).min(MEAN_ROUNDS_MAX);
            self.doubt = 0.0;
        }
        self.mean += off / self.mean_rounds;
        // That a connection began says nothing of how steady it is.
        if is_known {
            self.variance += ((load.abs_diff(before) as f64).powi(2) / 2.0 - self.variance) / VARIANCE_ROUNDS;
        }
    }

    /// Time that its loop spent on it in the last interval, and in this one until its busy time came to `busy_ns`.
    pub(crate) fn busy_lately_ns(&self, busy_ns: u64) -> u64 {
        self.busy_ns + busy_ns.saturating_sub(self.totals.busy_ns)
    }

    /// Notes that it is sent elsewhere in `round`.
    pub(crate) fn order(&mut self, round: u64) {
        self.rests_until = round + REST_ROUNDS + 1;
    }

    pub(crate) fn rests(&self, round: u64) -> bool {
        round < self.rests_until
    }

    /// Time that its loop spent on it in the last interval, scaled; `None` before its first is over.
    pub(crate) fn busy_ns(&self) -> Option<u64> {
        self.is_known.then_some(self.busy_ns)
    }

    /// What it costs an interval: as the last one says, and those before it that were like it.
    pub(crate) fn cost(&self) -> Estimate {
        let variance = self.variance.max(self.doubt) / self.mean_rounds.max(1.0);
        Estimate { load: self.mean.round() as u64, variance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(busy_ns: u64, bytes: u64, events: u64) -> Totals {
        Totals { busy_ns, bytes, events }
    }

    /// Hazelcast's test: a connection that was busy long ago is not busy now.
    #[test]
    fn load_is_what_the_last_interval_added_and_not_the_total() {
        let mut account = Account::default();
        for (total, load) in [(1_000_000, 1_000_000), (1_000_007, 7), (1_000_007, 0)] {
            account.close(totals(total, 0, 0), Scale::default(), By::Time);
            assert_eq!(account.load, load);
        }
    }

    fn account_of(loads: &[u64]) -> Account {
        let mut account = Account::default();
        let mut total = 0;
        for load in loads {
            total += load;
            account.close(totals(total, 0, 0), Scale::default(), By::Time);
        }
        account
    }

    #[test]
    fn noise_is_averaged_and_a_jump_is_believed_at_once() {
        let noisy = [100, 120, 90, 110, 95, 105, 100, 115, 85, 100];
        let account = account_of(&noisy);
        assert!((95..=105).contains(&account.cost().load), "{:?}", account.cost());
        assert!(account.cost().variance * 4.0 < account.variance);
        let mut jumped = noisy.to_vec();
        jumped.push(1_000);
        assert_eq!(account_of(&jumped).cost().load, 1_000);
        jumped.push(0);
        assert!(account_of(&jumped).cost().load <= 500, "and so is the way back");
    }

    #[test]
    fn connection_that_always_costs_the_same_is_known_exactly() {
        let account = account_of(&[70, 70, 70]);
        assert_eq!(account.cost(), Estimate { load: 70, variance: 0.0 });
    }

    #[test]
    fn first_interval_of_a_connection_is_believed_with_caution() {
        assert_eq!(account_of(&[70]).cost(), Estimate { load: 70, variance: 2_450.0 });
    }

    #[test]
    fn load_is_of_the_chosen_kind_and_time_is_always_told() {
        for (by, load) in [(By::Time, 500), (By::Bytes, 20), (By::Events, 3)] {
            let mut account = Account::default();
            account.close(totals(1_000, 20, 3), Scale(0.5), by);
            assert_eq!((account.load, account.busy_ns()), (load, Some(500)), "{by:?}");
        }
    }

    #[test]
    fn loop_that_did_not_run_half_of_the_time_blames_its_connections_for_half() {
        let former = Scale::default();
        assert_eq!(Scale::of(50, 100, former).apply(80), 40);
        assert_eq!(Scale::of(0, 0, Scale(0.7)), Scale(0.7), "nothing was done, nothing is known");
        assert_eq!(Scale::of(1_000_000, 1, former), Scale(Scale::MOST));
    }

    #[test]
    fn moved_connection_rests_for_some_rounds() {
        let mut account = Account::default();
        assert!(!account.rests(0));
        account.order(5);
        let resting: Vec<u64> = (5..20).filter(|round| account.rests(*round)).collect();
        assert_eq!(resting, [5, 6, 7, 8]);
    }
}
