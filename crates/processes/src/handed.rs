//! A secret for a child, through a descriptor: other processes of the same user can read a child's environment, its arguments and its pipes, and cannot open a
//! socket that it has.
//!
//! ```text
//!  parent:  hand_over(command, "NAME_FD", secret) -> start -> drop
//!  child:   NAME_FD=7 in its environment; reads 7 to its end, once
//! ```

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd, read, write};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Has what `command` starts find `secret` behind the descriptor whose number it has as `variable`. What is returned is kept until it was started.
///
/// # Errors
/// The system has no descriptor left, or the secret is larger than a socket takes.
pub fn hand_over(command: &mut Command, variable: &str, secret: &str) -> io::Result<OwnedFd> {
    let (child, parent) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    // One that is started meanwhile may have it, too: it is shut down before anybody reads, so nobody waits for that one's end.
    fcntl_setfd(&parent, FdFlags::CLOEXEC)?;
    let mut rest = secret.as_bytes();
    while !rest.is_empty() {
        let count = write(&parent, rest)?;
        rest = &rest[count..];
    }
    shutdown(&parent, Shutdown::Both)?;
    command.env(variable, child.as_raw_fd().to_string());
    Ok(child)
}

/// What this process was handed over as `variable`, the first time.
///
/// # Errors
/// The number is none, or nothing is behind it.
pub fn handed_over(number: &str) -> io::Result<String> {
    let number = number.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let descriptor = pidfd_getfd(own, number, PidfdGetfdFlags::empty())?;
    let (mut secret, mut part) = (Vec::new(), [0; 4 << 10]);
    while secret.len() < SECRET_BYTES_MAX {
        match read(&descriptor, &mut part)? {
            0 => break,
            count => secret.extend_from_slice(&part[..count]),
        }
    }
    String::from_utf8(secret).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

const SECRET_BYTES_MAX: usize = 64 << 10;
