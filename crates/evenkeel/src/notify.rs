//! Telling systemd how the service stands (`sd_notify`), without a library: one datagram to a socket.
//!
//! Without `NOTIFY_SOCKET` in the environment, everything here does nothing. A message that cannot be sent is
//! dropped: the service manager notices by its own time limit.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Connections are served from now on.
pub(crate) fn ready(status: &str) {
    send(&format!("READY=1\nSTATUS={status}\n"));
}

/// A stop has begun.
pub(crate) fn stopping() {
    send("STOPPING=1\nSTATUS=stopping\n");
}

fn send(message: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(String::from_utf8_lossy(name).as_ref()),
    };
    let sent =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager was not told");
    }
}
