//! Groups of connections that get or set keys, in a closed loop or at a fixed rate, for the suite's latencies.
//!
//! A thin face of the load engine ([`crate::drive`]). An error reply, a nil where a value was stored, or a broken connection
//! makes the run invalid, and here that is the end of it.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Failure;
use crate::drive::{
    Action, Fleet, FleetOptions, Group as Driven, KeyForm, Keys, Limit, Phase, Pick, Target, Work,
};

/// Connections that do the same.
#[derive(Clone, Debug)]
pub struct Group {
    /// GET or SET.
    pub is_set: bool,
    /// Connections.
    pub connections: usize,
    /// The keys it works on, drawn evenly.
    pub keys: std::ops::Range<u64>,
    /// Requests a second of the whole group, or none for a closed loop.
    pub per_second: Option<u64>,
}

/// Drives `port` with `groups` for `duration` after a tenth of it as warm-up; latencies of each group in ns.
///
/// # Errors
/// A reply is an error, or not what was stored, or a connection broke: the run is invalid.
pub fn run(port: u16, groups: &[Group], duration: Duration) -> Result<Vec<Histogram<u64>>, Failure> {
    let connections = groups.iter().map(|group| group.connections).sum();
    let options = FleetOptions { connections, loops: 1, connect_timeout: PATIENCE, from: Vec::new() };
    let mut fleet = Fleet::open(&Target::local(port), &options)?;
    measure(&mut fleet, groups, duration / 10)?;
    measure(&mut fleet, groups, duration)
}

fn measure(fleet: &mut Fleet, groups: &[Group], length: Duration) -> Result<Vec<Histogram<u64>>, Failure> {
    let groups = groups.iter().map(|group| group.driven(length)).collect();
    let phase = Phase { groups, request_timeout: PATIENCE, interval: Duration::from_secs(1) };
    let outcome = fleet.run(&phase, &mut |_| {})?;
    let mut failures = fleet.failures.clone();
    let tally = outcome.total().tally;
    failures.add(&tally.failures);
    if failures.count() > 0 {
        return Err(format!("invalid run: {}", failures.first.unwrap_or_default()));
    }
    if tally.missing > 0 {
        return Err(format!("invalid run: {} keys are missing", tally.missing));
    }
    Ok(outcome.groups.iter().map(crate::drive::GroupOutcome::histogram).collect())
}

impl Group {
    fn driven(&self, length: Duration) -> Driven {
        let keys = Keys {
            first: self.keys.start,
            count: self.keys.end - self.keys.start,
            pick: Pick::Random,
            form: KeyForm::Benchmark,
        };
        let work = Work {
            action: if self.is_set { Action::Write } else { Action::Read },
            keys,
            value_bytes: VALUE_BYTES,
            value_count: VALUE_COUNT,
            verify: false,
            percent_cached: 0,
        };
        let per_second = self.per_second.map(|rate| rate as f64);
        Driven { work, connections: self.connections, depth: 1, limit: Limit::For(length), per_second }
    }
}

const VALUE_BYTES: usize = 100;
/// Hardly any value is written twice in a row.
const VALUE_COUNT: u64 = 1 << 32;
const PATIENCE: Duration = Duration::from_secs(60);
