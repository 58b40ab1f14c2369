//! The positions of topologies that are exactly-once: no client may change them while the server runs the topology. What it did would be done twice, or left out.
//!
//! Nor may a client flush or swap their database: workers go on with positions and windows that they have in memory, and what they have told
//! other servers is not taken back.

use commands::call::Failure;
use commands::command::{Command, Flags, Kind};
use resp::ArgsView;

use crate::server::Server;

/// Refuses a command in database `db` (`None`: only its execution tells) that may change the positions of a topology that runs; `own`: the topology
/// whose worker sends it.
///
/// # Errors
/// It is one.
#[inline]
pub(crate) fn check(
    server: &Server,
    own: Option<&str>,
    command: &Command,
    args: ArgsView<'_>,
    db: Option<u16>,
) -> Result<(), Failure> {
    match &server.topologies {
        Some(topologies) if command.flags.has(Flags::WRITE) => {
            if matches!(command.kind, Kind::Everything) && takes_positions(command, args, db) {
                return topologies.exactly_once().map_or(Ok(()), |name| Err(refuse_all(command, &name)));
            }
            let mut refused = None;
            command.each_key(args, |index| {
                let key = args.get(index);
                if refused.is_none() && key.starts_with(OWN_PREFIX) {
                    let name = positions_of(key).filter(|name| own != Some(name));
                    refused = name.filter(|name| topologies.has(name));
                }
            });
            refused.map_or(Ok(()), |name| {
                Err(format!(
                    "NOPERM 'topology:{name}:epochs' has the positions of the topology '{name}', which runs: KILL it before you change them"
                )
                .into())
            })
        }
        _ => Ok(()),
    }
}

/// Whether a command on whole databases concerns the one with positions.
fn takes_positions(command: &Command, args: ArgsView<'_>, db: Option<u16>) -> bool {
    let is_it =
        |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) == Some(POSITIONS_DB);
    match command.name {
        "flushdb" => db.is_none_or(|db| db == POSITIONS_DB),
        "swapdb" => args.iter().skip(1).any(is_it),
        _ => true,
    }
}

fn refuse_all(command: &Command, name: &str) -> Failure {
    let command = command.name.to_ascii_uppercase();
    format!(
        "NOPERM {command} would take the positions of the topology '{name}', which runs exactly-once: TOPOLOGY KILL {name} before"
    )
    .into()
}

/// Whether `key` has positions or dead letters of a topology: they are evicted by no policy.
#[must_use]
pub fn is_of_a_topology(key: &[u8]) -> bool {
    let rest = key.strip_prefix(OWN_PREFIX);
    rest.is_some_and(|rest| rest.ends_with(EPOCHS_SUFFIX) || rest.ends_with(LETTERS_SUFFIX))
}

/// The topology whose positions `key` would have.
fn positions_of(key: &[u8]) -> Option<&str> {
    let name = key.strip_prefix(OWN_PREFIX)?.strip_suffix(EPOCHS_SUFFIX)?;
    std::str::from_utf8(name).ok()
}

/// Workers log in to this database.
const POSITIONS_DB: u16 = 0;
/// What keys begin and end with that have the positions of a topology.
const OWN_PREFIX: &[u8] = b"topology:";
const EPOCHS_SUFFIX: &[u8] = b":epochs";
const LETTERS_SUFFIX: &[u8] = b":dead-letters";
