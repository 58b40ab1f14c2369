//! The balancer's thread: takes the figures of each interval, has connections moved, watches heartbeats.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clock::Nanos;
use hdrhistogram::Histogram;

use super::account::{Scale, Totals};
use super::active::Reason;
use super::adapt::Adapt;
use super::decide::{LoopView, MOVES_MAX, Member, Rules, decide};
use super::watchdog::{Notice, Watch};
use super::{Balance, INTERVAL};
use crate::stats::Interval;
use crate::timing::{CpuMark, Doing};
use crate::{Connection, Connector, Handle, LoopStats, Protocol, StartError};

/// How often heartbeats are looked at.
const WATCHED: Duration = Duration::from_millis(250);
/// Loops that are less busy than this are not worth a move.
const BUSY_PERMILLE_MIN: u32 = 2;

/// Starts the balancer's thread.
pub(crate) fn start<P: Protocol>(handle: &Handle<P>) -> Result<(), StartError> {
    let mut runner = Runner::new(handle.clone());
    let thread = thread::Builder::new()
        .name("balance".to_owned())
        .spawn(move || runner.run())
        .map_err(|source| StartError::System { what: "the balancer's thread", source })?;
    handle.shared.keep_thread(thread);
    Ok(())
}

struct Runner<P: Protocol> {
    handle: Handle<P>,
    /// Where the number of active loops adapts to the load.
    adapt: Option<Adapt>,
    loops: Vec<LoopMarks>,
    round: u64,
    /// When the interval began that runs.
    began: Nanos,
}

/// A loop at the end of the last interval.
#[derive(Debug)]
struct LoopMarks {
    busy_ns: u64,
    cpu: CpuMark,
    lag_us: Histogram<u64>,
    scale: Scale,
    watch: Watch,
}

impl<P: Protocol> Runner<P> {
    fn new(handle: Handle<P>) -> Self {
        let began = handle.shared.clock.now();
        let loops: Vec<_> = handle.shared.stats.iter().map(|stats| LoopMarks::new(stats)).collect();
        let adapts = handle.active_loops().reason == Reason::Start && loops.len() > 1;
        let adapt = adapts.then(|| Adapt::new(&handle.shared).ok()).flatten();
        Self { handle, adapt, loops, round: 0, began }
    }

    fn run(&mut self) {
        let mut balance = self.handle.shared.steering.balance();
        loop {
            let ends = self.began + balance.interval.unwrap_or(INTERVAL);
            let now = self.handle.shared.clock.now();
            let looks = self.adapt.as_ref().and_then(Adapt::next_look).map_or(WATCHED, |at| at - now);
            let timeout = (ends - now).min(looks).min(WATCHED);
            let Some(now_set) = self.handle.shared.steering.wait(timeout) else { break };
            balance = now_set;
            let now = self.handle.shared.clock.now();
            self.watch(now);
            if let Some(adapt) = &mut self.adapt {
                adapt.look(&self.handle.shared, now, balance.interval.is_some());
            }
            let ends = self.began + balance.interval.unwrap_or(INTERVAL);
            if now >= ends {
                self.end_interval(now, &balance);
            } else if self.round == 0 {
                // Nobody has to wait for the first figures.
                self.take_figures(now, false);
            }
        }
    }

    /// Ends the interval that began at `self.began`: figures, accounts, moves.
    fn end_interval(&mut self, now: Nanos, balance: &Balance) {
        self.take_figures(now, true);
        self.began = now;
        self.round += 1;
        let connections = self.handle.shared.some_order();
        for connection in &connections {
            let scale =
                self.loops.get(self.index_of(connection)).map_or_else(Scale::default, |marks| marks.scale);
            connection.account().close(totals(connection), scale, balance.by);
        }
        let can_move = self.handle.shared.options.connector != Connector::Threads;
        if balance.interval.is_some() && can_move {
            self.balance(now, balance, &connections);
        }
    }

    /// Under the connector `threads` all have one loop's counters.
    fn index_of(&self, connection: &Connection) -> usize {
        connection.loop_index().min(self.loops.len() - 1)
    }

    /// Publishes what each loop did since the interval began; `ends` it.
    fn take_figures(&mut self, now: Nanos, ends: bool) {
        let span = now - self.began;
        for (marks, stats) in self.loops.iter_mut().zip(&self.handle.shared.stats) {
            stats.set_interval(marks.figures(stats, span, ends), ends);
        }
    }

    fn balance(&self, now: Nanos, balance: &Balance, connections: &[Arc<Connection>]) {
        let active = self.handle.shared.active.count();
        let mut views: Vec<LoopView> =
            self.handle.shared.stats[..active].iter().map(|stats| view(stats, now)).collect();
        for (index, connection) in connections.iter().enumerate() {
            // Who is still on a parked loop is on the way to another.
            let Some(view) = views.get_mut(self.index_of(connection)) else { continue };
            let account = connection.account();
            view.members.push(Member {
                id: index as u64,
                cost: account.cost(),
                is_free: !account.rests(self.round) && !connection.is_bound(),
            });
        }
        let rules = Rules {
            threshold_percent: balance.threshold_percent.into(),
            busy_permille_min: BUSY_PERMILLE_MIN,
            moves_max: MOVES_MAX,
        };
        let moves = decide(&views, &rules);
        for order in &moves {
            let connection = &connections[order.id as usize];
            connection.account().order(self.round);
            self.handle.shared.order_to_move(connection, order.to);
        }
        if !moves.is_empty() {
            tracing::debug!(moves = moves.len(), round = self.round, "connections were sent to idler loops");
        }
    }

    /// Looks whether each loop moves.
    fn watch(&mut self, now: Nanos) {
        for (index, marks) in self.loops.iter_mut().enumerate() {
            let stats = &self.handle.shared.stats[index];
            match marks.watch.look(stats.silent_for(now), stats.doing(), now) {
                Some(Notice::Stuck { silent, doing }) => {
                    stats.note_stuck();
                    let doing = describe(doing, &*self.handle.shared.protocol);
                    let for_ms = silent.as_millis();
                    tracing::warn!(
                        "loop {index} is stuck for {for_ms} ms: {doing}; new connections go to others"
                    );
                }
                Some(Notice::Over { stood }) => {
                    let stood_ms = stood.as_millis();
                    tracing::warn!("loop {index} moves again after about {stood_ms} ms");
                }
                None => {}
            }
        }
    }
}

impl LoopMarks {
    fn new(stats: &LoopStats) -> Self {
        let lag_us = stats.lag_us();
        Self { busy_ns: 0, cpu: CpuMark::default(), lag_us, scale: Scale::default(), watch: Watch::default() }
    }

    /// What the loop did in the `span` that ends now; `ends` the interval.
    fn figures(&mut self, stats: &LoopStats, span: Duration, ends: bool) -> Interval {
        let (busy_ns, cpu, lag_us) = (stats.busy_ns(), stats.timing.cpu(), stats.lag_us());
        let cpu_ns = cpu.cpu_ns.saturating_sub(self.cpu.cpu_ns);
        let scale = Scale::of(cpu_ns, cpu.busy_ns.saturating_sub(self.cpu.busy_ns), self.scale);
        let mut lags = lag_us.clone();
        // Lags of former intervals are a part of all lags: nothing is taken that is not there.
        let _ = lags.subtract(&self.lag_us);
        let busy = Duration::from_nanos(scale.apply(busy_ns.saturating_sub(self.busy_ns)));
        let longest = if ends { stats.timing.take_longest() } else { stats.timing.longest() };
        if ends {
            (self.busy_ns, self.cpu, self.lag_us, self.scale) = (busy_ns, cpu, lag_us, scale);
        }
        Interval { span, busy, lag_us_p99: lags.value_at_quantile(0.99), longest }
    }
}

fn view(stats: &LoopStats, now: Nanos) -> LoopView {
    LoopView {
        members: Vec::new(),
        busy_permille: stats.interval().busy_permille(),
        is_stuck: stats.stuck_for(now).is_some(),
    }
}

fn totals(connection: &Connection) -> Totals {
    Totals {
        busy_ns: connection.busy_ns(),
        bytes: connection.bytes_in() + connection.bytes_out(),
        events: connection.read_events() + connection.write_events(),
    }
}

/// What a loop is in, for a person.
fn describe<P: Protocol>(doing: Doing, protocol: &P) -> String {
    match doing {
        Doing::Nothing => "between two connections".to_owned(),
        Doing::Commit => "it waits for the disk".to_owned(),
        Doing::Callback(id) => match protocol.doing(id) {
            Some(what) => format!("it is in {what} of connection {id}"),
            None => format!("it works for connection {id}"),
        },
    }
}
