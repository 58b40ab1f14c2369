//! The file `RUNNING` in a server's folder: how to reach the server that has the folder open.
//!
//! ```text
//! pid 4711
//! tcp 127.0.0.1:6379
//! tls 127.0.0.1:6380
//! unix /run/evenkeel.sock
//! ```
//!
//! Written when connections are served, removed at a clean stop. After a kill it is left over: whoever reads it finds
//! nobody at the address, and the folder's lock, not this file, says whether a server runs.
//!
//! It is written beside its place and renamed, and read through no link: whoever may write to the folder makes no other file be
//! overwritten. Its owner is the user of the server: whoever sends a password there looks first who listens (`peer`).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use reactor::{Handle, Protocol};
use server::settings::{Engine, Settings};

use crate::machine;

/// Where a running server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    /// Its process.
    pub(crate) pid: u32,
    /// Its TCP address, if it has one.
    pub(crate) tcp: Option<SocketAddr>,
    /// Its TCP address for TLS, if it has one.
    pub(crate) tls: Option<SocketAddr>,
    /// Its Unix socket, if it has one.
    pub(crate) unix: Option<PathBuf>,
    /// Who wrote it.
    pub(crate) owner: u32,
}

/// Whether the engine has a folder at all.
pub(crate) fn keeps_files(settings: &Settings) -> bool {
    settings.engine == Engine::Log
}

impl Running {
    /// This process, listening where `handle` says, and on `unix`.
    pub(crate) fn this_process<P: Protocol>(handle: &Handle<P>, unix: Option<&Path>) -> Self {
        Self::listening(handle.tcp_addresses(), handle.tls_addresses(), unix)
    }

    fn listening(plain: &[SocketAddr], tls: &[SocketAddr], unix: Option<&Path>) -> Self {
        let unix = unix.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let [tcp, tls] = [plain, tls].map(|addresses| addresses.first().copied().map(reachable));
        Running { pid: std::process::id(), tcp, tls, unix, owner: machine::user() }
    }

    /// Reads the file in `dir`.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub(crate) fn read(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(NAME);
        let (text, owner) = read_file(&path).map_err(|error| {
            Failure::NoServer(format!("no server runs on {}: {}: {error}", dir.display(), path.display()))
        })?;
        let mut running = Running { owner, ..Running::default() };
        for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            match key {
                "pid" => running.pid = value.parse().unwrap_or(0),
                "tcp" => running.tcp = value.parse().ok(),
                "tls" => running.tls = value.parse().ok(),
                "unix" => running.unix = Some(PathBuf::from(value)),
                _ => {}
            }
        }
        Ok(running)
    }

    /// Writes the file into `dir`.
    ///
    /// # Errors
    /// What the system reports.
    #[expect(clippy::disallowed_methods, reason = "a note for other processes, no data: lost without harm")]
    pub(crate) fn write(&self, dir: &Path) -> std::io::Result<()> {
        let mut text = format!("pid {}\n", self.pid);
        if let Some(tcp) = self.tcp {
            text.push_str(&format!("tcp {tcp}\n"));
        }
        if let Some(tls) = self.tls {
            text.push_str(&format!("tls {tls}\n"));
        }
        if let Some(unix) = &self.unix {
            text.push_str(&format!("unix {}\n", unix.display()));
        }
        let (new, path) = (dir.join(NEW_NAME), dir.join(NAME));
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o640).open(&new)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(new, path)
    }

    /// Removes the file from `dir`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a note for other processes, no data: left over without harm"
    )]
    pub(crate) fn remove(dir: &Path) {
        let _ = std::fs::remove_file(dir.join(NAME));
    }
}

/// What the file says, and whose it is; a link is not followed.
#[expect(clippy::disallowed_methods, reason = "a note for other processes, no data")]
fn read_file(path: &Path) -> std::io::Result<(String, u32)> {
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    let owner = file.metadata()?.uid();
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok((text, owner))
}

/// An address that this machine can connect to: a wildcard listens on loopback as well.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback = match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        address.set_ip(loopback);
    }
    address
}

const NAME: &str = "RUNNING";
const NEW_NAME: &str = "RUNNING.new";
/// A path, an address and a number have less.
const BYTES_MAX: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes the files that others would")]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let address = "0.0.0.0:6379".parse().expect("an address");
        let running = Running::listening(
            &[address],
            &["[::]:6380".parse().expect("an address")],
            Some(Path::new("/tmp/x.sock")),
        );
        running.write(dir.path()).expect("written");
        assert_eq!(Running::read(dir.path()), Ok(running.clone()));
        assert_eq!(running.tcp.map(|tcp| tcp.to_string()).as_deref(), Some("127.0.0.1:6379"));
        // Root overwrote what a link of that name led to.
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "mine").expect("written");
        for name in [NAME, NEW_NAME] {
            let _ = std::fs::remove_file(dir.path().join(name));
            std::os::unix::fs::symlink(&victim, dir.path().join(name)).expect("linked");
        }
        assert!(Running::read(dir.path()).is_err(), "through a link");
        running.write(dir.path()).expect("written");
        assert_eq!(std::fs::read_to_string(&victim).expect("there"), "mine");
        assert_eq!(Running::read(dir.path()), Ok(running));
        let mode = std::fs::metadata(dir.path().join(NAME)).expect("there").mode();
        assert_eq!(mode & 0o007, 0, "{mode:o}");
        Running::remove(dir.path());
        assert!(
            Running::read(dir.path()).is_err_and(|error| error.to_string().starts_with("no server runs on"))
        );
    }
}
