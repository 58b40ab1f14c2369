//! Error replies that the executor makes, in the words that clients know.

use std::time::Duration;

use commands::failure::Failure;
use commands::words::{ECHO_BYTES_MAX, shortened, shown};
use resp::ArgsView;
use store::{Locked, Stop, StoreError};

use crate::later;
use crate::tx::error::TxError;

/// No row has this name.
pub(crate) fn unknown(args: ArgsView<'_>) -> Failure {
    if let Some(failure) = unsupported(args.get(0)) {
        return failure;
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(shortened(args.get(0), ECHO_BYTES_MAX));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in args.iter().skip(1) {
        let room = ECHO_BYTES_MAX.saturating_sub(text.len() - start);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(shortened(arg, room));
        text.extend_from_slice(b"' ");
    }
    Failure::Bytes(text)
}

/// Redis has a command of this name, and no row here has.
pub(crate) fn unsupported(name: &[u8]) -> Option<Failure> {
    let text = || {
        let name = String::from_utf8_lossy(name);
        format!("ERR unknown command '{name}': it is a command of Redis that is not supported yet")
    };
    later::is_of_redis(name).then(|| text().into())
}

/// `container` has no such subcommand.
pub(crate) fn unknown_sub(container: &str, name: &[u8]) -> Failure {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(shortened(name, ECHO_BYTES_MAX));
    text.extend_from_slice(format!("'. Try {} HELP.", container.to_ascii_uppercase()).as_bytes());
    Failure::Bytes(text)
}

/// EXEC itself was refused: nothing that was queued will run.
pub(crate) fn exec_refused(failure: Failure) -> Failure {
    match failure {
        Failure::Error(text) => {
            let why = text.strip_prefix("ERR ").unwrap_or(&text);
            format!("EXECABORT Transaction discarded because of: {why}").into()
        }
        other => other,
    }
}

/// A client of version 2 that has subscribed may do little else.
pub(crate) fn subscribed(name: &str) -> Failure {
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context"
    )
    .into()
}

/// The messages of a transaction match more patterns than can be told at once.
pub(crate) fn too_many_matches(most: usize) -> Failure {
    format!(
        "ERR its messages match more than {most} patterns that clients listen to; publish outside of MULTI"
    )
    .into()
}

/// What the store refused, with the code that clients look at.
pub(crate) fn of_store(error: &StoreError) -> Failure {
    let code = match error {
        StoreError::MemoryLimit { .. } | StoreError::TooMuchAtOnce { .. } => "OOM",
        StoreError::DiskFull(_) => "MISCONF",
        _ => "ERR",
    };
    format!("{code} {error}").into()
}

/// There is no memory for something that cannot wait for it.
pub(crate) fn no_memory(stop: &Stop) -> Failure {
    match stop {
        Stop::Refused(error) | Stop::Damaged(error) => of_store(error),
        Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Cold | Stop::Locked(_) => {
            "OOM there is no memory for it now, and room is being made: try again".into()
        }
    }
}

/// What is wrong with a transaction; one that is not known has a code of its own.
pub(crate) fn of_transaction(error: &TxError) -> Failure {
    let code = if error.is_unknown() { "NOTX" } else { "ERR" };
    format!("{code} {}", error.to_string().replace(['\r', '\n'], " ")).into()
}

/// A key that a prepared transaction holds, or a database.
pub(crate) fn held(db: u16, key: Option<&[u8]>) -> String {
    match key {
        Some(key) => format!("key '{}'", shown(key)),
        None => format!("database {db}"),
    }
}

/// A prepared transaction holds a key that would change, and went on doing so.
pub(crate) fn locked(locked: &Locked, by: &str) -> Failure {
    let what = held(locked.db, locked.key.as_deref());
    format!("TRYAGAIN {what} is held by prepared transaction {by}, for longer than txn.lock_wait").into()
}

/// The same of a statement, which was run before its rows were known.
pub(crate) fn rows_too_large(most_bytes: usize) -> String {
    format!(
        "ERR the rows of the statement are larger than connections.output_max ({most_bytes} B); its transaction is rolled back"
    )
}

/// A command fetched values again and again and never had all of them at once.
pub(crate) fn never_ready(reads: u64, reading: Duration) -> Failure {
    let seconds = reading.as_secs();
    format!(
        "ERR gave up after reading from disk for {seconds} s, {reads} times: other commands change the values as fast as they are \
         read; try again"
    )
    .into()
}

/// Why the rest of a request is not taken; the connection is closed then.
pub(crate) fn no_room(why: reactor::NoRoom) -> String {
    match why {
        reactor::NoRoom::TooLarge(bytes, max_bytes) => format!(
            "OOM a request of {bytes} B is larger than {max_bytes} B, seven eighths of connections.memory_max, which all clients share"
        ),
        reactor::NoRoom::Waited => "OOM the request waited for connections.room_wait_max, but other clients hold \
                                    connections.memory_max together: try again later"
            .to_owned(),
        reactor::NoRoom::Stalled => {
            "OOM the rest of the request did not come while others waited for its room (connections.memory_max)".to_owned()
        }
    }
}
