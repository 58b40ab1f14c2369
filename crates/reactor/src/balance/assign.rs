//! Which loop a new connection goes to.
//!
//! Least loaded: a loop that was busier in the last interval by more than a step of [`STEP_PPM`] comes after one that was not;
//! within a step the one with the fewest connections comes first. Connections alone would fill the loop of a giant, which the
//! balancer has just emptied, up to the same number; load alone would send a storm of arrivals to the loop that happened to be
//! idlest when last looked at. So each arrival since then counts as much as a connection costs in the mean.
//!
//! By host: a host's first connection decides where the others go, among loops the one with the fewest such hosts. The book of
//! hosts has a count for each; a host without connections is not in it.

use std::collections::HashMap;
use std::net::IpAddr;

/// Loads that differ by less are equal: a twentieth of a loop.
const STEP_PPM: u64 = 50_000;

/// A loop as an arrival sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) connections: usize,
    /// Busy share in the last interval, in millionths.
    pub(crate) busy_ppm: u64,
    /// Connections that came since.
    pub(crate) arrivals: u64,
    pub(crate) is_stuck: bool,
}

/// The loop that has least to do, and of equals the one with the fewest connections. A stuck one only if all are.
pub(crate) fn least_loaded(loops: &[Candidate]) -> usize {
    let busy_ppm: u64 = loops.iter().map(|candidate| candidate.busy_ppm).sum();
    let arrivals: u64 = loops.iter().map(|candidate| candidate.arrivals).sum();
    let connections: usize = loops.iter().map(|candidate| candidate.connections).sum();
    let known = (connections as u64).saturating_sub(arrivals).max(1);
    let expected = |candidate: &Candidate| {
        let arrived = candidate.arrivals.saturating_mul(busy_ppm) / known;
        (candidate.busy_ppm + arrived) / STEP_PPM
    };
    let order = |candidate: &Candidate| (candidate.is_stuck, expected(candidate), candidate.connections);
    first_least(loops, order)
}

/// The loop after `turn` others, stuck ones left out.
pub(crate) fn round_robin(loops: &[Candidate], turn: usize) -> usize {
    let count = loops.len();
    let in_turn = (0..count).map(|step| (turn + step) % count);
    in_turn.clone().find(|index| !loops[*index].is_stuck).or_else(|| in_turn.clone().next()).unwrap_or(0)
}

/// Where hosts have their connections.
#[derive(Debug, Default)]
pub(crate) struct Hosts(HashMap<IpAddr, Host>);

#[derive(Debug)]
struct Host {
    loop_index: usize,
    connections: usize,
}

impl Hosts {
    /// Counts a connection of `host`; returns its loop.
    pub(crate) fn enter(&mut self, host: IpAddr, loops: &[Candidate]) -> usize {
        if let Some(known) = self.0.get_mut(&host) {
            known.connections += 1;
            return known.loop_index;
        }
        let mut counts = vec![0_usize; loops.len()];
        self.0.values().for_each(|host| counts[host.loop_index] += 1);
        let order =
            |(candidate, hosts): &(&Candidate, &usize)| (candidate.is_stuck, **hosts, candidate.connections);
        let pairs: Vec<_> = loops.iter().zip(&counts).collect();
        let loop_index = first_least(&pairs, order);
        self.0.insert(host, Host { loop_index, connections: 1 });
        loop_index
    }

    /// Changes to `count` loops: hosts of others go to the loops with the fewest hosts, and those that have two more than a loop
    /// give to it.
    pub(crate) fn resize(&mut self, count: usize) {
        let mut hosts: Vec<_> = self.0.iter_mut().collect();
        // The same order each time: a map has none.
        hosts.sort_unstable_by_key(|(address, _)| **address);
        let mut counts = vec![0_usize; count];
        for (_, host) in &hosts {
            if let Some(known) = counts.get_mut(host.loop_index) {
                *known += 1;
            }
        }
        for (_, host) in hosts {
            let fewest = first_least(&counts, |known| *known);
            let here = counts.get(host.loop_index).copied();
            if here.is_some_and(|here| here < counts[fewest] + 2) {
                continue;
            }
            if let Some(known) = counts.get_mut(host.loop_index) {
                *known -= 1;
            }
            counts[fewest] += 1;
            host.loop_index = fewest;
        }
    }

    /// The loop of `host`, if it has connections.
    pub(crate) fn loop_of(&self, host: IpAddr) -> Option<usize> {
        self.0.get(&host).map(|known| known.loop_index)
    }

    /// A connection of `host` has ended.
    pub(crate) fn leave(&mut self, host: IpAddr) {
        if let Some(known) = self.0.get_mut(&host) {
            known.connections -= 1;
            if known.connections == 0 {
                self.0.remove(&host);
            }
        }
    }

    /// How many hosts have connections.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

fn first_least<T, O: Ord>(of: &[T], order: impl Fn(&T) -> O) -> usize {
    of.iter().enumerate().min_by_key(|(_, one)| order(one)).map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(
        loops: &mut [Candidate],
        count: usize,
        choose: impl Fn(&[Candidate], usize) -> usize,
    ) -> Vec<usize> {
        let mut chosen = vec![0; loops.len()];
        for turn in 0..count {
            let index = choose(loops, turn);
            loops[index].arrivals += 1;
            loops[index].connections += 1;
            chosen[index] += 1;
        }
        chosen
    }

    fn least(loops: &[Candidate], _turn: usize) -> usize {
        least_loaded(loops)
    }

    fn of(connections: usize, busy_ppm: u64) -> Candidate {
        Candidate { connections, busy_ppm, ..Candidate::default() }
    }

    #[test]
    fn arrivals_at_an_idle_server_are_spread_by_number() {
        assert_eq!(arrive(&mut [of(0, 0); 4], 100, least), [25, 25, 25, 25]);
        assert_eq!(
            arrive(&mut [of(10, 40), of(0, 3_000)], 20, least),
            [5, 15],
            "what is next to nothing is nothing"
        );
    }

    #[test]
    fn loop_of_a_giant_is_not_filled_up_with_others() {
        assert_eq!(arrive(&mut [of(1, 900_000), of(60, 300_000)], 20, least), [0, 20]);
    }

    #[test]
    fn storm_does_not_end_on_the_loop_that_was_idlest_when_last_looked_at() {
        let chosen = arrive(&mut [of(100, 600_000), of(100, 500_000)], 1_000, least);
        assert!(chosen[0] > 450 && chosen[1] > 450, "{chosen:?}");
    }

    #[test]
    fn stuck_loop_gets_nobody_unless_all_are_stuck() {
        let stuck = Candidate { is_stuck: true, ..of(0, 0) };
        assert_eq!(arrive(&mut [stuck, of(50, 900_000)], 10, least), [0, 10]);
        assert_eq!(arrive(&mut [stuck, of(50, 0), of(60, 0)], 10, round_robin), [0, 7, 3]);
        assert_eq!(least_loaded(&[stuck, stuck]), 0);
        assert_eq!(round_robin(&[stuck, stuck], 3), 1);
    }

    #[test]
    fn round_robin_goes_round() {
        assert_eq!(arrive(&mut [of(90, 0), of(0, 0), of(5, 0)], 9, round_robin), [3, 3, 3]);
    }

    /// Hazelcast's books were not empty when connections were gone, three times.
    #[test]
    fn host_stays_together_and_leaves_nothing_behind() {
        let loops = [of(0, 0); 2];
        let mut hosts = Hosts::default();
        let address = |last| IpAddr::from([10, 0, 0, last]);
        for host in 0..4 {
            let index = hosts.enter(address(host), &loops);
            assert_eq!(index, usize::from(host) % 2);
            for _ in 0..5 {
                assert_eq!(hosts.enter(address(host), &loops), index);
            }
        }
        for host in 0..4 {
            (0..6).for_each(|_| hosts.leave(address(host)));
        }
        assert_eq!(hosts.count(), 0);
    }

    #[test]
    fn hosts_of_a_parked_loop_go_to_others_and_come_to_a_new_one() {
        let mut hosts = Hosts::default();
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        for number in 0..12 {
            hosts.enter(address(number), &[Candidate::default(); 3]);
        }
        let counts = |hosts: &Hosts, loops: usize| -> Vec<usize> {
            let on = |index| (0..12).filter(|n| hosts.loop_of(address(*n)) == Some(index)).count();
            (0..loops).map(on).collect()
        };
        assert_eq!(counts(&hosts, 3), [4, 4, 4]);
        hosts.resize(2);
        assert_eq!(counts(&hosts, 3), [6, 6, 0]);
        let stayed = hosts.loop_of(address(0));
        hosts.resize(2);
        assert_eq!(hosts.loop_of(address(0)), stayed, "nobody moves without need");
        hosts.resize(4);
        assert_eq!(counts(&hosts, 4), [3, 3, 3, 3]);
        hosts.resize(1);
        assert_eq!(counts(&hosts, 4), [12, 0, 0, 0]);
        assert_eq!(hosts.enter(address(3), &[Candidate::default()]), 0);
    }
}
