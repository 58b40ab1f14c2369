//! Which connections change loops: a pure function of what was counted in the last interval.
//!
//! The busiest loop gives to the idlest the connection whose load comes closest to half of their difference, again and again,
//! until they differ by little:
//!
//! ```text
//!  busiest |########################|      gap = 16: give the one closest to 8
//!  idlest  |########|
//!           <- gap / 2 -><- gap / 2 ->
//! ```
//!
//! Invariants
//!   1. Every move shrinks the difference of its two loops to at most [`GAP_LEFT_MAX`] of what it was, or is one of many small
//!      ones that do so together: a move that only swaps who is busier is refused.
//!   2. A loop keeps its last active connection. A connection that rests, or is bound to its loop, stays.
//!   3. Nothing is done about a difference that chance explains: the loads of the two loops must differ by more than
//!      [`SIGMAS`] times what they are uncertain by.
//!   4. Nobody moves without load: an idle connection costs its loop nothing.
//!
//! Cost: connections of loops that give are sorted once a round.
//! Source: Hazelcast's IO balancer, whose rules 1 and 2 are (a candidate's load is under 0.9 of the gap; two connections at
//! least); 3, several moves a round and the rest are ours. docs/adr/0005-balance.md weighs them.

use std::collections::BTreeSet;

use super::account::Estimate;

/// Most of a difference that a move may leave, in eighths: beyond that it is a swap.
const GAP_LEFT_MAX: u64 = 4;
/// A difference that exceeds what is let be by less than so many standard deviations is chance.
const SIGMAS: f64 = 2.0;
/// A round that began at the threshold ends at this part of it, so that the next one does not begin at once.
const STOP_PART: u64 = 2;
/// Moves of one round: each costs two loops some microseconds, so that a round costs a loop at most a fifth of a second.
pub(crate) const MOVES_MAX: usize = 32_768;

/// What the balancer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Difference between busiest and idlest, in percent of the busiest, up to which nothing is done.
    pub(crate) threshold_percent: u64,
    /// Busy share below which a loop needs no help.
    pub(crate) busy_permille_min: u32,
    /// Moves of one round.
    pub(crate) moves_max: usize,
}

/// A connection in the last interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) id: u64,
    /// What it costs an interval, in whatever is balanced by.
    pub(crate) cost: Estimate,
    /// It may change loops: it does not rest and is not bound to its loop.
    pub(crate) is_free: bool,
}

/// A loop in the last interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LoopView {
    pub(crate) members: Vec<Member>,
    pub(crate) busy_permille: u32,
    /// It does not move: nobody is sent there.
    pub(crate) is_stuck: bool,
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) id: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// The moves of one round, in the order in which they were found.
pub(crate) fn decide(loops: &[LoopView], rules: &Rules) -> Vec<Move> {
    let needed = loops.iter().any(|view| view.busy_permille >= rules.busy_permille_min);
    if !needed || loops.len() < 2 {
        return Vec::new();
    }
    let mut sides: Vec<Side> = loops.iter().map(Side::new).collect();
    let mut moves = Vec::new();
    while moves.len() < rules.moves_max {
        let Some((from, to)) = busiest_and_idlest(&sides) else { break };
        let gap = sides[from].load - sides[to].load;
        let bearable = (sides[from].load as f64 * rules.threshold_percent as f64 / 100.0) as u64;
        let gives_already = sides[from].gives.is_some();
        if gap <= if gives_already { bearable / STOP_PART } else { bearable } {
            // Every other loop is less busy, and so no further above the idlest for its load.
            break;
        }
        let is_chance = !gives_already && is_chance(&sides[from], &sides[to], gap - bearable);
        let given = if is_chance { None } else { sides[from].give(&loops[from], gap) };
        let Some((load, id)) = given else {
            sides[from].is_done = true;
            continue;
        };
        sides[from].load -= load;
        sides[to].load += load;
        sides[to].active_count += 1;
        moves.push(Move { id, from, to });
    }
    moves
}

/// A loop while a round is worked out.
struct Side {
    load: u64,
    /// Variance of the load from interval to interval.
    variance: f64,
    active_count: usize,
    is_stuck: bool,
    /// It has nothing to give.
    is_done: bool,
    /// What it may give, load and id, once it was asked.
    gives: Option<BTreeSet<(u64, u64)>>,
}

impl Side {
    fn new(view: &LoopView) -> Self {
        Self {
            load: view.members.iter().map(|member| member.cost.load).sum(),
            variance: view.members.iter().map(|member| member.cost.variance).sum(),
            active_count: view.members.iter().filter(|member| member.cost.load > 0).count(),
            is_stuck: view.is_stuck,
            is_done: false,
            gives: None,
        }
    }

    /// Takes the connection out whose load comes closest to half of `gap`, if there is a good one.
    fn give(&mut self, view: &LoopView, gap: u64) -> Option<(u64, u64)> {
        let gives = self.gives.get_or_insert_with(|| {
            let free = view.members.iter().filter(|member| member.is_free && member.cost.load > 0);
            free.map(|member| (member.cost.load, member.id)).collect()
        });
        // The difference left is the double of what moves, less the gap. Gaps only shrink: a swap now is one later.
        let is_swap = |load: u64| u128::from(load) * 16 > u128::from(gap) * u128::from(8 + GAP_LEFT_MAX);
        while gives.last().is_some_and(|(load, _)| is_swap(*load)) {
            gives.pop_last();
        }
        if self.active_count < 2 {
            return None;
        }
        let half = gap / 2;
        let above = gives.range((half, 0)..).next();
        let below = gives.range(..(half, 0)).next_back();
        let chosen =
            [below, above].into_iter().flatten().min_by_key(|(load, _)| load.abs_diff(half)).copied()?;
        gives.remove(&chosen);
        self.active_count -= 1;
        Some(chosen)
    }
}

/// The busiest loop that may have something to give, and the idlest other that takes.
fn busiest_and_idlest(sides: &[Side]) -> Option<(usize, usize)> {
    let gives = sides.iter().enumerate().filter(|(_, side)| !side.is_done);
    let (from, busiest) = gives.max_by_key(|(_, side)| side.load)?;
    let takes = sides.iter().enumerate().filter(|(index, side)| !side.is_stuck && *index != from);
    let (to, idlest) = takes.min_by_key(|(_, side)| side.load)?;
    (idlest.load < busiest.load).then_some((from, to))
}

/// Whether loads that are as uncertain as these are often so much further apart than they may be.
fn is_chance(busiest: &Side, idlest: &Side, excess: u64) -> bool {
    (excess as f64).powi(2) <= SIGMAS.powi(2) * (busiest.variance + idlest.variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { threshold_percent: 10, busy_permille_min: 2, moves_max: 32_768 };

    /// A loop whose connections always cost the same; ids count from `first`.
    fn steady(first: u64, loads: &[u64]) -> LoopView {
        let member = |(index, load): (usize, &u64)| Member {
            id: first + index as u64,
            cost: Estimate { load: *load, variance: 0.0 },
            is_free: true,
        };
        let members = loads.iter().enumerate().map(member).collect();
        LoopView { members, busy_permille: 500, is_stuck: false }
    }

    fn ids(moves: &[Move]) -> Vec<u64> {
        moves.iter().map(|order| order.id).collect()
    }

    #[test]
    fn connection_closest_to_half_of_the_difference_moves() {
        let loops = [steady(1, &[50, 30, 9, 20]), steady(10, &[49])];
        // 109 to 49: the one with 30 makes it 79 to 79.
        assert_eq!(decide(&loops, &RULES), [Move { id: 2, from: 0, to: 1 }]);
    }

    #[test]
    fn several_moves_a_round_while_each_shrinks_the_gap() {
        let loops = [steady(1, &[10; 10]), steady(20, &[])];
        assert_eq!(decide(&loops, &RULES).len(), 5);
    }

    #[test]
    fn lone_active_connection_is_never_robbed() {
        let mut busy = steady(1, &[1_000]);
        assert_eq!(decide(&[busy.clone(), steady(2, &[])], &RULES), []);
        // Idle company does not count.
        busy.members.extend(steady(50, &[0, 0, 0]).members);
        assert_eq!(decide(&[busy, steady(2, &[])], &RULES), []);
    }

    #[test]
    fn move_that_only_swaps_who_is_busier_is_refused() {
        let loops = [steady(1, &[100, 1]), steady(10, &[])];
        assert_eq!(ids(&decide(&loops, &RULES)), [2], "100 of a gap of 101");
        let loops = [steady(1, &[88, 88]), steady(10, &[76])];
        assert_eq!(decide(&loops, &RULES), [], "88 of a gap of 100 leaves three quarters");
    }

    #[test]
    fn differences_within_the_threshold_are_let_be() {
        let loops = [steady(1, &[10; 10]), steady(20, &[10; 9])];
        assert_eq!(decide(&loops, &RULES), []);
    }

    #[test]
    fn giant_is_left_alone_with_its_loop() {
        let mut loads = vec![1_000];
        loads.extend([10; 10]);
        let moves = decide(&[steady(1, &loads), steady(100, &[10; 30])], &RULES);
        assert_eq!(ids(&moves), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
    }

    #[test]
    fn giant_moves_itself_where_that_is_less_work() {
        let mut loads = vec![1_000];
        loads.extend([10; 60]);
        let moves = decide(&[steady(1, &loads), steady(100, &[10; 10])], &RULES);
        assert_eq!((moves.len(), moves[0].id), (11, 1), "one goes, ten come");
    }

    #[test]
    fn smallest_numbers_are_not_swapped_either() {
        assert_eq!(decide(&[steady(1, &[1, 1]), steady(5, &[1])], &RULES), []);
    }

    #[test]
    fn loop_that_can_give_nothing_does_not_keep_others_from_giving() {
        let loops = [steady(1, &[1_000]), steady(10, &[10; 40]), steady(100, &[])];
        let moves = decide(&loops, &RULES);
        assert_eq!(moves.len(), 20);
        assert!(moves.iter().all(|order| (order.from, order.to) == (1, 2)));
    }

    #[test]
    fn resting_and_bound_connections_stay() {
        let mut busy = steady(1, &[10; 10]);
        busy.members[..7].iter_mut().for_each(|member| member.is_free = false);
        assert_eq!(decide(&[busy, steady(20, &[])], &RULES).len(), 3);
    }

    #[test]
    fn nobody_is_sent_to_a_stuck_loop() {
        let stuck = LoopView { is_stuck: true, ..steady(20, &[]) };
        assert_eq!(decide(&[steady(1, &[10; 10]), stuck.clone()], &RULES), []);
        let moves = decide(&[steady(1, &[10; 10]), stuck, steady(30, &[])], &RULES);
        assert!(moves.len() == 5 && moves.iter().all(|order| order.to == 2));
    }

    #[test]
    fn idle_server_is_let_be() {
        let mut busy = steady(1, &[10; 10]);
        busy.busy_permille = 1;
        let idle = LoopView { busy_permille: 0, ..steady(20, &[]) };
        assert_eq!(decide(&[busy, idle], &RULES), []);
        assert_eq!(decide(&[], &RULES), []);
        assert_eq!(decide(&[steady(1, &[10; 10])], &RULES), [], "nowhere to go");
    }

    #[test]
    fn difference_that_chance_explains_is_let_be() {
        let mut loops = [steady(1, &[10; 10]), steady(20, &[10; 8])];
        assert_eq!(decide(&loops, &RULES).len(), 1);
        // The same loads, of connections that cost seven more or less each time.
        for member in loops.iter_mut().flat_map(|view| &mut view.members) {
            member.cost.variance = 50.0;
        }
        assert_eq!(decide(&loops, &RULES), []);
    }

    #[test]
    fn moves_of_a_round_are_bounded() {
        let rules = Rules { moves_max: 7, ..RULES };
        assert_eq!(decide(&[steady(1, &[10; 100]), steady(200, &[])], &rules).len(), 7);
    }
}
