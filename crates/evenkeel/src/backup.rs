//! `evenkeel backup DIR OUT`: asks the server that has DIR open to copy its data into OUT.
//!
//! The server does the work, because only it knows what is consistent. A password is taken from `REDISCLI_AUTH`, as
//! redis-cli does.

use crate::client::{self, Secure};
use crate::failure::Failure;
use crate::peer;
use crate::running::Running;
use connection::{Client, Secured};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Has the server on `dir` back up to `out`; returns when the backup is complete and on disk.
///
/// # Errors
/// One line: no server, a refused password, or what the server says.
pub(crate) fn run(dir: &Path, out: &Path, secure: &Secure) -> Result<(), Failure> {
    let running = peer::running(dir)?;
    let out =
        std::path::absolute(out).map_err(|error| Failure::System(format!("{}: {error}", out.display())))?;
    let mut server = Client::new(connect(&running, dir, secure)?);
    client::log_in(&mut server)?;
    server.call_bytes(&[b"BACKUP", out.as_os_str().as_encoded_bytes()])?;
    let done = format!("backup of {} is in {}\n", dir.display(), out.display());
    crate::output::say(std::io::stdout(), &done);
    Ok(())
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

#[expect(clippy::disallowed_methods, reason = "a client, not the server: one blocking connection")]
fn connect(running: &Running, dir: &Path, secure: &Secure) -> Result<Box<dyn Stream>, Failure> {
    let nobody = |place: &dyn std::fmt::Display, error: std::io::Error| {
        Failure::NoServer(format!(
            "no server runs on {}: nobody answers at {place} (its last process was {}): {error}",
            dir.display(),
            running.pid
        ))
    };
    match (&running.tcp, &running.unix, running.tls) {
        (Some(address), ..) => match TcpStream::connect(address) {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(nobody(address, error)),
        },
        (None, Some(path), _) => match UnixStream::connect(path) {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(nobody(&path.display(), error)),
        },
        (None, None, Some(address)) => {
            let host = address.ip().to_string();
            // Who listens there is known already: the user of the folder, or root.
            let own = Secured { trusts_anybody: true, ..Secured::of(&host) };
            let secured = secure.over(None, &host).unwrap_or(own);
            let stream = TcpStream::connect(address).and_then(|socket| secured.over(socket, None));
            Ok(Box::new(stream.map_err(|error| nobody(&address, error))?))
        }
        (None, None, None) => {
            Err(Failure::NoServer(format!("{} has no address of its server", dir.display())))
        }
    }
}
