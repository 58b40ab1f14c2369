//! The load of `rates` and `types`: fifty clients that each send the same command, again and again.

use std::time::Duration;

use crate::Failure;
use crate::client::value;
use crate::drive::{
    Action, Fleet, FleetOptions, Group, KeyForm, Keys, Limit, Outcome, Phase, Pick, Target, Work,
};
use crate::servers::Server;

/// A group of [`CLIENTS`] that send `action` with numbers below `numbers`, `depth` requests at a time, for `length`.
pub(super) fn group(action: Action, numbers: u64, depth: usize, length: Duration) -> Group {
    let keys = Keys { first: 0, count: numbers, pick: Pick::Random, form: KeyForm::Decimal };
    let work = Work { action, keys, value_bytes: 0, value_count: 1, verify: false, percent_cached: 0 };
    Group { work, connections: CLIENTS, depth, limit: Limit::For(length), per_second: None }
}

/// A command, in whose arguments runs of `#` are numbers.
pub(super) fn command<A: AsRef<[u8]>>(arguments: &[A]) -> Action {
    let mut request = Vec::new();
    resp::encode_command(&mut request, arguments);
    Action::Numbered(String::from_utf8_lossy(&request).into_owned())
}

/// A value of `bytes` in which nothing stands for a number.
pub(super) fn text(bytes: usize) -> String {
    String::from_utf8_lossy(&value(1, bytes)).replace('#', "x")
}

/// Drives `server` with what `groups` makes of a length, for each of `lengths`; what the last of them came to.
///
/// The first row of the time series is what was answered within the length.
///
/// # Errors
/// Anything failed; the message says what was sent by `name`.
pub(super) fn drive(
    server: &Server,
    name: &str,
    lengths: [Duration; 2],
    groups: impl Fn(Duration) -> Vec<Group>,
) -> Result<Outcome, Failure> {
    let connections = groups(lengths[0]).iter().map(|group| group.connections).sum();
    let options = FleetOptions { connections, loops: 1, connect_timeout: PATIENCE, from: Vec::new() };
    let mut fleet = Fleet::open(&Target::local(server.port()), &options)?;
    let mut outcome = Outcome::default();
    for length in lengths {
        let phase = Phase { groups: groups(length), request_timeout: PATIENCE, interval: length };
        outcome = fleet.run(&phase, &mut |_| {})?;
        let mut failures = fleet.failures.clone();
        failures.add(&outcome.total().tally.failures);
        if failures.count() > 0 {
            let first = failures.first.unwrap_or_default();
            return Err(format!("{name} of {}: {first}", server.label()));
        }
    }
    Ok(outcome)
}

const CLIENTS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);
