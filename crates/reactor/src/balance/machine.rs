//! The number of active loops on a simulated machine: cores that loops share with their clients and with other processes, load that
//! steps, swings and comes from one connection. Each run comes from a seed, which is in the message of what fails.
//!
//! Threads share the cores fairly. A closed load is as fast as the slowest of loops, clients and cores lets it be.

use std::time::Duration;

use super::active::{ActiveLoops, Sample};
use super::simulation::Dice;

const SPAN: Duration = Duration::from_millis(100);
const MINUTE: usize = 600;

#[derive(Clone, Copy)]
struct Load {
    /// Commands a second that come at most: an open load; infinite for a closed one.
    rate: f64,
    /// Time of a loop for a command, in microseconds.
    work_us: f64,
    /// By how much that grows for each further loop, as a share.
    spill: f64,
    /// Time of the clients for a command, in microseconds, on this machine.
    client_us: f64,
    client_threads: usize,
    /// Share of the work that comes from one connection.
    giant: f64,
    /// Share of the work that one loop alone can do at a time, since it is on the same data.
    serial: f64,
}

/// Clients elsewhere that ask as fast as they are answered.
const REMOTE: Load = Load {
    rate: f64::INFINITY,
    work_us: 5.0,
    spill: 0.02,
    client_us: 0.0,
    client_threads: 0,
    giant: 0.0,
    serial: 0.0,
};
/// Pipelines from this machine, whose clients need less time than the loops.
const PIPELINED: Load = Load { work_us: 1.3, client_us: 0.8, client_threads: 1, ..REMOTE };
/// Single requests from this machine, whose clients need more time than the loops.
const SINGLE: Load = Load { work_us: 5.0, spill: 0.3, client_us: 8.0, client_threads: 1, ..REMOTE };
const NOTHING: Load = Load { rate: 0.0, ..REMOTE };

struct Machine {
    seed: u64,
    dice: Dice,
    cores: f64,
    /// Threads of other processes that are always busy.
    others: usize,
    noise: f64,
    loops: ActiveLoops,
    changes: usize,
    /// Commands so far.
    commands: f64,
}

/// What each thread gets of its demand when they share `cores` fairly, one at most: the level above which demands are cut.
fn level(demands: &[f64], cores: f64) -> f64 {
    let taken = |level: f64| demands.iter().map(|demand| demand.min(level)).sum::<f64>();
    if taken(1.0) <= cores {
        return 1.0;
    }
    bisect(1.0, |level| taken(level) <= cores)
}

/// The largest value up to `most` that `fits`.
fn bisect(most: f64, fits: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..22 {
        let middle = f64::midpoint(low, high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

impl Machine {
    fn new(seed: u64, cores: usize, noise: f64) -> Self {
        let loops = ActiveLoops::from(1, cores);
        Self {
            seed,
            dice: Dice(seed),
            cores: cores as f64,
            others: 0,
            noise,
            loops,
            changes: 0,
            commands: 0.0,
        }
    }

    /// Demands of loops, of clients, of others, in cores, at `rate`.
    fn demands(&self, load: &Load, rate: f64) -> (Vec<f64>, Vec<f64>) {
        let active = self.loops.active();
        let work = rate * load.work_us * (1.0 + load.spill * (active as f64 - 1.0)) / 1e6;
        let first = work * load.giant.max(1.0 / active as f64);
        let mut loops = vec![first];
        loops.resize(active, (work - first) / (active as f64 - 1.0).max(1.0));
        let client = rate * load.client_us / 1e6 / load.client_threads.max(1) as f64;
        let mut all = loops.clone();
        all.extend(std::iter::repeat_n(client, load.client_threads));
        (loops, all)
    }

    /// Share of its time that a loop is not blocked by others.
    fn unblocked(&self, load: &Load) -> f64 {
        (1.0 / (load.serial * self.loops.active() as f64)).min(1.0)
    }

    fn rate(&self, load: &Load) -> f64 {
        let fits = |rate: f64| {
            let (_, own) = self.demands(load, rate);
            let most = own.iter().copied().fold(0.0, f64::max);
            let mut all = own;
            all.extend(std::iter::repeat_n(1.0, self.others));
            most <= level(&all, self.cores).min(self.unblocked(load))
        };
        bisect(load.rate.min(2e7), fits)
    }

    /// Runs `count` intervals; how often the number of loops changed.
    fn run(&mut self, count: usize, load: &Load) -> usize {
        let before = self.changes;
        for _ in 0..count {
            let noise = 1.0 + (self.dice.unit() - 0.5) * 2.0 * self.noise;
            let rate = self.rate(load);
            let (loops, mut all) = self.demands(load, rate);
            all.extend(std::iter::repeat_n(1.0, self.others));
            let level = level(&all, self.cores);
            let idle = (self.cores - all.iter().map(|demand| demand.min(level)).sum::<f64>()).max(0.0);
            // Threads that share a full machine queue for it.
            let delay = |ran: f64| if idle < 0.05 { (ran / 2.0).min(1.0 - ran).max(0.0) } else { 0.0 };
            let of = |share: f64| SPAN.mul_f64(share.clamp(0.0, 64.0));
            let held = 1.0 - self.unblocked(load);
            let blocked = |ran: f64| held.min(1.0 - ran).max(0.0);
            let occupied = |ran: &f64| (ran + delay(*ran) + blocked(*ran)).min(1.0);
            let commands = (rate * noise * SPAN.as_secs_f64()) as u64;
            let is_calm = loops.iter().all(|ran| *ran < 0.7);
            let sample = Sample {
                span: SPAN,
                occupied: of(loops.iter().map(occupied).sum()),
                occupied_most: of(loops.iter().map(occupied).fold(0.0, f64::max)),
                delayed: of(loops.iter().map(|ran| delay(*ran)).sum()),
                blocked: of(loops.iter().map(|ran| blocked(*ran)).sum()),
                // The system counts it in hundredths of a second.
                idle: SPAN.mul_f64((idle * 10.0 + self.dice.unit()).floor() / 10.0),
                commands,
                wakeups: if is_calm { commands } else { commands / 8 },
            };
            self.commands += rate * SPAN.as_secs_f64();
            self.changes += usize::from(self.loops.on_interval(&sample).is_some());
            let active = self.loops.active();
            assert!((1..=self.cores as usize).contains(&active), "seed {}: {active} loops", self.seed);
        }
        self.changes - before
    }

    /// Commands under `load` for `count` intervals with a fixed number of loops.
    fn fixed(&self, active: usize, count: usize, load: &Load) -> f64 {
        let loops = ActiveLoops::from(active, self.cores as usize);
        Self { loops, dice: Dice(self.seed), ..*self }.rate(load) * SPAN.as_secs_f64() * count as f64
    }
}

/// Machines with 0 to 8 % of noise.
fn machines(cores: usize) -> impl Iterator<Item = Machine> {
    (0..10).map(move |seed| Machine::new(seed, cores, seed as f64 % 5.0 * 0.02))
}

#[test]
fn load_of_clients_elsewhere_gets_all_cores_within_seconds() {
    for cores in [2, 4, 16, 64] {
        for mut machine in machines(cores) {
            machine.run(60, &REMOTE);
            let (active, seed) = (machine.loops.active(), machine.seed);
            assert!(active + 1 >= cores, "seed {seed}: {active} of {cores} after 6 s");
            let changes = machine.run(10 * MINUTE, &REMOTE);
            assert!(changes <= 2, "seed {seed}: {changes} changes of {cores}");
        }
    }
}

#[test]
fn clients_that_use_the_other_core_leave_it_at_one_loop() {
    for mut machine in machines(2) {
        let changes = machine.run(10 * MINUTE, &SINGLE);
        assert_eq!((changes, machine.loops.active()), (0, 1), "seed {}", machine.seed);
    }
}

/// Whether a second loop helps, only a trial tells; and only a trial tells that it helps no more.
#[test]
fn pipelines_get_a_second_loop_which_is_questioned_ever_more_rarely() {
    for mut machine in machines(2) {
        let seed = machine.seed;
        machine.run(MINUTE, &PIPELINED);
        assert_eq!(machine.loops.active(), 2, "seed {seed}");
        let changes = machine.run(10 * MINUTE, &PIPELINED);
        assert!(changes <= 12, "seed {seed}: {changes} changes in ten minutes");
        let best = machine.fixed(2, 11 * MINUTE, &PIPELINED);
        assert!(machine.commands >= 0.97 * best, "seed {seed}: {:.3} of two loops", machine.commands / best);
    }
}

/// Pipelines of changes of one collection: a second loop waits for the first, and each brings its data to a core of its own.
#[test]
fn loops_that_hold_the_same_data_become_one() {
    let load = Load { spill: 0.5, serial: 0.8, ..PIPELINED };
    for mut machine in machines(2) {
        let changes = machine.run(11 * MINUTE, &load);
        let best = machine.fixed(1, 11 * MINUTE, &load);
        let seed = machine.seed;
        assert!(changes <= 14, "seed {seed}: {changes} changes");
        assert!(machine.commands >= 0.97 * best, "seed {seed}: {:.3} of one loop", machine.commands / best);
    }
    for mut machine in machines(8) {
        machine.run(MINUTE, &REMOTE);
        let (seed, before) = (machine.seed, machine.loops.active());
        machine.run(MINUTE, &Load { spill: 0.5, serial: 0.8, ..REMOTE });
        let active = machine.loops.active();
        assert!(before >= 7 && active <= 2, "seed {seed}: {before} loops, then {active}");
    }
}

#[test]
fn second_loop_that_costs_more_than_it_brings_is_tried_ever_more_rarely() {
    let load = Load { spill: 1.0, client_us: 2.0, client_threads: 1, ..REMOTE };
    for mut machine in machines(2) {
        let changes = machine.run(11 * MINUTE, &load);
        let best = machine.fixed(1, 11 * MINUTE, &load);
        let seed = machine.seed;
        assert!((2..=14).contains(&changes), "seed {seed}: {changes} changes");
        assert!(machine.commands >= 0.98 * best, "seed {seed}: {:.3} of one loop", machine.commands / best);
    }
}

#[test]
fn load_that_steps_down_parks_what_it_does_not_need() {
    for mut machine in machines(8) {
        let seed = machine.seed;
        machine.run(100, &REMOTE);
        assert!(machine.loops.active() >= 7, "seed {seed}");
        let changes = machine.run(100, &Load { rate: 300_000.0, ..REMOTE });
        let active = machine.loops.active();
        assert!((2..=4).contains(&active) && changes <= 4, "seed {seed}: {active} loops, {changes} changes");
        let changes = machine.run(100, &NOTHING);
        assert_eq!((changes, machine.loops.active()), (1, 1), "seed {seed}");
    }
}

#[test]
fn waves_cost_a_few_changes_each() {
    for mut machine in machines(4) {
        let seed = machine.seed;
        for wave in 0..20 {
            let changes = machine.run(200, &REMOTE) + machine.run(200, &Load { rate: 20_000.0, ..REMOTE });
            assert!(changes <= 6, "seed {seed}, wave {wave}: {changes} changes");
            assert_eq!(machine.loops.active(), 1, "seed {seed}, wave {wave}");
        }
        // Waves that are shorter than what it takes to be sure change next to nothing.
        let changes: usize = (0..100)
            .map(|_| machine.run(10, &REMOTE) + machine.run(10, &Load { rate: 20_000.0, ..REMOTE }))
            .sum();
        assert!(changes <= 40, "seed {seed}: {changes} changes in 100 short waves");
    }
}

#[test]
fn processes_that_come_and_go_cost_a_few_changes_each() {
    for mut machine in machines(2) {
        let seed = machine.seed;
        machine.run(100, &REMOTE);
        for round in 0..15 {
            machine.others = 1 + round % 3;
            let changes = machine.run(200, &REMOTE);
            assert!(changes <= 6, "seed {seed}, round {round}: {changes} changes when they came");
            machine.others = 0;
            let changes = machine.run(200, &REMOTE);
            assert!(changes <= 4, "seed {seed}, round {round}: {changes} changes when they went");
            assert_eq!(machine.loops.active(), 2, "seed {seed}, round {round}");
        }
    }
}

/// A second loop does not help it, and costs it nothing.
#[test]
fn one_giant_connection_gets_at_most_two_loops() {
    for mut machine in machines(4) {
        let load = Load { giant: 1.0, spill: 0.0, ..REMOTE };
        let changes = machine.run(11 * MINUTE, &load);
        let (active, seed) = (machine.loops.active(), machine.seed);
        assert!(active <= 2 && changes <= 14, "seed {seed}: {active} loops, {changes} changes");
    }
}

#[test]
fn others_beside_a_giant_get_a_loop_of_their_own() {
    for mut machine in machines(4) {
        machine.run(MINUTE, &Load { giant: 0.6, spill: 0.0, ..REMOTE });
        let (active, seed) = (machine.loops.active(), machine.seed);
        assert!((2..=3).contains(&active), "seed {seed}: {active} loops");
    }
}

/// Any load, any company: the number changes at most once in some seconds.
#[test]
fn wild_loads_do_not_make_it_oscillate() {
    for mut machine in machines(6) {
        let mut changes = 0;
        for _ in 0..200 {
            let rate = if machine.dice.below(2) == 0 { f64::INFINITY } else { 1e6 * machine.dice.unit() };
            let load = Load {
                rate,
                work_us: 1.0 + 20.0 * machine.dice.unit(),
                spill: machine.dice.unit(),
                client_us: 10.0 * machine.dice.unit(),
                client_threads: machine.dice.below(4),
                giant: machine.dice.unit() / 2.0,
                serial: if machine.dice.below(2) == 0 { 0.0 } else { machine.dice.unit() },
            };
            machine.others = machine.dice.below(4);
            let lasts = 10 + machine.dice.below(100);
            changes += machine.run(lasts, &load);
        }
        // 200 loads of 6 s in the mean.
        assert!(changes <= 400, "seed {}: {changes} changes of 200 loads", machine.seed);
    }
}
