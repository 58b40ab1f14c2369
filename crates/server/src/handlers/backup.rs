//! BACKUP path: a consistent copy of the running store in a new folder, made on a thread of its own.
//!
//! The connection is parked until the thread is done; the loop goes on. Only connections from the server's own machine may
//! ask: the path is one of this machine, and a password alone should not let other machines write to its disks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use commands::call::{Failure, Outcome};
use resp::{ArgsView, Writer};

use crate::control::Control;
use crate::message::Message;

pub(crate) fn backup(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let again = control.now + PATIENCE;
    let pending = control.session.pending.get_or_insert_with(Box::default);
    match pending.result.take() {
        Some(Ok(())) => {
            out.ok();
            return Ok(());
        }
        Some(Err(why)) => return Err(format!("ERR {why}").into()),
        // Woken for another reason: the thread still works.
        None if pending.until.is_some() => return Err(Failure::Wait(again)),
        None => {}
    }
    if !is_local(&control.session.client.address(), &control.session.client.local_address()) {
        return Err("ERR BACKUP is only for connections from the server's own machine".into());
    }
    let path = std::str::from_utf8(args.get(1)).map(PathBuf::from).map_err(|_| NO_PATH)?;
    if !path.is_absolute() {
        return Err(NO_PATH.into());
    }
    // The copy would be somewhere else than it was asked for.
    let is_link = std::fs::symlink_metadata(&path).is_ok_and(|there| there.is_symlink());
    if is_link {
        return Err("ERR BACKUP: the path is a symbolic link: name the folder itself".into());
    }
    pending.until = Some(again);
    let (server, id) = (Arc::clone(control.server), control.session.client.id);
    let copy = move || {
        let result = server.store.backup(&path);
        match &result {
            Ok(()) => tracing::info!(path = %path.display(), "backup made"),
            Err(error) => tracing::warn!(path = %path.display(), %error, "backup failed"),
        }
        server.peers.post(id, Message::Done(result));
    };
    match std::thread::Builder::new().name("backup".to_owned()).spawn(copy) {
        Ok(_) => Err(Failure::Wait(again)),
        Err(error) => Err(format!("ERR no thread for the backup: {error}").into()),
    }
}

/// Whether a peer is on this machine: it came over loopback, a Unix socket, or from our own address.
fn is_local(peer: &str, local: &str) -> bool {
    match (peer.parse::<SocketAddr>(), local.parse::<SocketAddr>()) {
        (Ok(peer), Ok(local)) => peer.ip().is_loopback() || peer.ip() == local.ip(),
        _ => true,
    }
}

const NO_PATH: &str = "ERR BACKUP needs the absolute path of a new folder";

/// The message that the thread is done wakes the connection; this only bounds a wait that lost it.
const PATIENCE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn only_peers_of_this_machine_are_local() {
        assert!(is_local("127.0.0.1:5000", "127.0.0.1:6379"));
        assert!(is_local("[::1]:5000", "[::1]:6379"));
        assert!(is_local("10.0.0.5:5000", "10.0.0.5:6379"));
        assert!(is_local("/run/evenkeel.sock:0", "/run/evenkeel.sock:0"));
        assert!(!is_local("10.0.0.6:5000", "10.0.0.5:6379"));
    }
}
