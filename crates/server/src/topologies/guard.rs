//! The positions of topologies that are exactly-once: no client may change them while the server runs the topology. What it did would be done twice, or left out.
//!
//! Commands that concern whole databases are another matter: they take the results with the positions.

use resp::ArgsView;

use crate::call::Failure;
use crate::command::{Command, Flags};
use crate::server::Server;

/// Refuses a command that may change the positions of a topology that runs; `own`: the topology whose worker sends it.
///
/// # Errors
/// It is one.
#[inline]
pub(crate) fn check(
    server: &Server,
    own: Option<&str>,
    command: &Command,
    args: ArgsView<'_>,
) -> Result<(), Failure> {
    match &server.topologies {
        Some(topologies) if command.flags.has(Flags::WRITE) => {
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

/// What keys begin and end with that have the positions of a topology.
const OWN_PREFIX: &[u8] = b"topology:";
const EPOCHS_SUFFIX: &[u8] = b":epochs";
const LETTERS_SUFFIX: &[u8] = b":dead-letters";
