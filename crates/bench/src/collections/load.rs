//! The load of `rates` and `types`: fifty clients that each send the same command, again and again.

use std::time::Duration;

use crate::Failure;
use crate::client::value;
use crate::drive::{Action, Fleet, FleetOptions, Group, KeyForm, Keys, Limit, Outcome, Pick, Target, Work};
use crate::servers::Server;

/// A group of [`CLIENTS`] that send `action` with numbers below `numbers`, `depth` requests at a time, for `length`.
pub(super) fn group(action: Action, numbers: u64, depth: usize, length: Duration) -> Group {
    let keys = Keys { first: 0, count: numbers, pick: Pick::Random, form: KeyForm::Decimal };
    Group {
        work: Work::new(action, keys, 0),
        connections: CLIENTS,
        depth,
        limit: Limit::For(length),
        per_second: None,
    }
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
    let mut fleet = Fleet::open(&Target::local(server.port()), &FleetOptions::new(connections))?;
    let mut run = |length| {
        let outcome = fleet.measure(groups(length), length);
        outcome.map_err(|why| format!("{name} of {}: {why}", server.label()))
    };
    run(lengths[0])?;
    run(lengths[1])
}

const CLIENTS: usize = 50;
