//! Who is at the other end, before a password is sent there: `RUNNING` may be anybody's, in a folder that is anybody's.
//!
//! ```text
//!  DIR (no link of somebody else's) -> RUNNING, its owner -> who listens at its address -> the same user, or root
//! ```
//!
//! Of TCP the kernel tells the user of each socket that listens (`/proc/net/tcp`), of a Unix socket its file does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::failure::Failure;
use crate::machine;
use crate::running::Running;

/// Reads where the server of `dir` is, and makes sure that it is the one whose folder it is.
///
/// # Errors
/// One line that says whom the password would have been sent to.
pub(crate) fn running(dir: &Path) -> Result<Running, Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let link = std::fs::symlink_metadata(dir)
        .map_err(|error| Failure::NoServer(format!("no server runs on {}", failed(error))))?;
    if link.is_symlink() && !is_trusted(link.uid()) {
        return Err(Failure::Place(format!(
            "{} is a link of another user (id {}): name the folder itself",
            dir.display(),
            link.uid()
        )));
    }
    let folder = std::fs::metadata(dir).map_err(|error| Failure::Place(failed(error)))?;
    let running = Running::read(dir)?;
    let anybody_writes = folder.mode() & 0o002 != 0;
    if anybody_writes && running.owner != folder.uid() && !is_trusted(running.owner) {
        return Err(Failure::Place(format!(
            "{}/RUNNING was written by another user (id {}) than the folder's owner (id {}): no password is sent there",
            dir.display(),
            running.owner,
            folder.uid()
        )));
    }
    let owners = match (&running.tcp, &running.unix) {
        (Some(address), _) => listeners(*address),
        (None, None) if running.tls.is_some() => running.tls.map(listeners).unwrap_or_default(),
        (None, Some(path)) => std::fs::metadata(path).map(|socket| socket.uid()).into_iter().collect(),
        (None, None) => Vec::new(),
    };
    match owners.iter().find(|owner| **owner != running.owner && **owner != ROOT) {
        Some(owner) => Err(Failure::Place(format!(
            "who listens at the address in {}/RUNNING is another user (id {owner}) than the one who wrote it (id {}): \
             no password is sent there",
            dir.display(),
            running.owner
        ))),
        None => Ok(running),
    }
}

fn is_trusted(user: u32) -> bool {
    user == ROOT || user == machine::user()
}

/// Users whose sockets listen at `address`; none if nobody does.
fn listeners(address: SocketAddr) -> Vec<u32> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(|line| listener(line, address)).collect()
}

/// The user of the socket that a line is about, if it listens at `address`.
fn listener(line: &str, address: SocketAddr) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let (ip, port) = words.next()?.split_once(':')?;
    let (_, state) = (words.next()?, words.next()?);
    let is_there = state == LISTENS && u16::from_str_radix(port, 16).ok()? == address.port();
    let ip = ip_of(ip)?;
    let takes_it = ip.is_unspecified() || ip.to_canonical() == address.ip().to_canonical();
    // Two words of queues and timers, one of retransmits.
    let user = words.nth(3)?.parse().ok()?;
    (is_there && takes_it).then_some(user)
}

/// An address as the kernel prints it: words of 32 bits in the machine's order, in hexadecimal.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(index * 8)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

const ROOT: u32 = 0;
/// TCP_LISTEN.
const LISTENS: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_user_of_a_listener_is_read_from_the_kernels_table() {
        let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0";
        let at = |address: &str| listener(line, address.parse().expect("an address"));
        assert_eq!(at("127.0.0.1:8080"), Some(1000));
        assert_eq!((at("127.0.0.1:8081"), at("127.0.0.2:8080")), (None, None));
        let any = line.replace("0100007F", &"0".repeat(32));
        assert_eq!(listener(&any, "127.0.0.1:8080".parse().expect("an address")), Some(1000));
        let mapped = line.replace("0100007F", "0000000000000000FFFF00000100007F");
        assert_eq!(listener(&mapped, "127.0.0.1:8080".parse().expect("an address")), Some(1000));
        assert_eq!(
            listener(&line.replace(" 0A ", " 01 "), "127.0.0.1:8080".parse().expect("an address")),
            None
        );
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test is a server")]
    fn this_process_is_found_to_listen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert_eq!(listeners(listener.local_addr().expect("an address")), [machine::user()]);
    }
}
