//! Sockets that take connections in: TCP and unix, made once at the start, never blocking.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::{Address, Options, StartError};

/// A listening socket, not blocking.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    endpoint: Endpoint,
    /// Whoever comes speaks TLS.
    pub(crate) is_tls: bool,
    /// Our own address of the connection that came last.
    newest_local: Mutex<Arc<Address>>,
}

#[derive(Debug)]
enum Endpoint {
    Tcp(SocketAddr),
    /// The name for display, and the file to remove in the end: only as long as it is the one that was made here.
    Unix(Arc<str>, PathBuf, Option<FileId>),
}

/// Device and inode of a file: which one a path leads to.
type FileId = (u64, u64);

/// A socket that was just accepted, with its two ends.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Address,
    pub(crate) local: Arc<Address>,
}

/// The sockets that a reactor will take connections from; these wait until it starts.
#[derive(Debug)]
pub struct Listeners(pub(crate) Vec<Listener>);

impl Listeners {
    /// Listens on all addresses of `options`.
    ///
    /// # Errors
    /// [`StartError::Listen`] names the first address that cannot be listened on; nothing is left of the others.
    pub fn open(options: &Options) -> Result<Self, StartError> {
        listen_all(options).map(Self)
    }
}

fn listen_all(options: &Options) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    let plain = options.tcp.iter().map(|address| (address, false));
    for (address, is_tls) in plain.chain(options.tls_tcp.iter().map(|address| (address, true))) {
        let mut listener = listen_tcp(*address, options)
            .map_err(|source| StartError::Listen { address: address.to_string(), source })?;
        listener.is_tls = is_tls;
        listeners.push(listener);
    }
    if let Some(path) = &options.unix {
        let listener = listen_unix(path, options)
            .map_err(|source| StartError::Listen { address: path.display().to_string(), source })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn listen_tcp(address: SocketAddr, options: &Options) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Accepted sockets inherit both, which saves two system calls for each.
    socket.set_tcp_nodelay(options.tcp_nodelay)?;
    if let Some(idle) = options.tcp_keepalive {
        socket.set_tcp_keepalive(&keepalive(idle))?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::from(options.backlog))?;
    socket.set_nonblocking(true)?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(Listener::new(socket, Endpoint::Tcp(bound), Address::Tcp(bound)))
}

/// How the kernel probes a peer that was silent for `idle`.
pub(crate) fn keepalive(idle: Duration) -> TcpKeepalive {
    TcpKeepalive::new().with_time(idle).with_interval(idle / 3).with_retries(3)
}

fn listen_unix(path: &Path, options: &Options) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            rustix::fs::unlink(path)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    socket.listen(i32::from(options.backlog))?;
    socket.set_nonblocking(true)?;
    let name: Arc<str> = path.display().to_string().into();
    let endpoint = Endpoint::Unix(Arc::clone(&name), path.to_owned(), socket_at(path));
    Ok(Listener::new(socket, endpoint, Address::Unix(name)))
}

/// Whether `path` is a socket that nobody listens on, left by a server that was killed. Connecting to any other file
/// is refused in the same way: it is not ours to remove.
fn is_stale(path: &Path) -> bool {
    socket_at(path).is_some()
        && matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Which socket `path` is; `None` if it is none.
fn socket_at(path: &Path) -> Option<FileId> {
    let stat = rustix::fs::lstat(path).ok()?;
    let is_socket = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket;
    is_socket.then_some((stat.st_dev, stat.st_ino))
}

impl Listener {
    fn new(socket: Socket, endpoint: Endpoint, local: Address) -> Self {
        Self { socket, endpoint, is_tls: false, newest_local: Mutex::new(Arc::new(local)) }
    }

    /// Takes one connection in.
    ///
    /// # Errors
    /// The system's: `AGAIN` when none waits.
    pub(crate) fn accept(&self) -> Result<Accepted, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match &self.endpoint {
            Endpoint::Tcp(bound) => {
                let (socket, peer) = rustix::net::acceptfrom_with(&self.socket, flags)?;
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let local = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from);
                Ok(Accepted {
                    peer: Address::Tcp(peer.unwrap_or(*bound)),
                    local: self.shared(Address::Tcp(local.unwrap_or(*bound))),
                    socket,
                })
            }
            Endpoint::Unix(name, ..) => {
                let socket = rustix::net::accept_with(&self.socket, flags)?;
                let address = Address::Unix(Arc::clone(name));
                Ok(Accepted { socket, peer: address.clone(), local: self.shared(address) })
            }
        }
    }

    /// `local`, our own address of a connection, as one to share: nearly always it is that of the one before.
    fn shared(&self, local: Address) -> Arc<Address> {
        let mut newest = self.newest_local.lock().unwrap_or_else(PoisonError::into_inner);
        if **newest != local {
            *newest = Arc::new(local);
        }
        Arc::clone(&newest)
    }

    /// The TCP address that it is bound to.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.endpoint {
            Endpoint::Tcp(address) => Some(*address),
            Endpoint::Unix(..) => None,
        }
    }

    /// Its descriptor, to wait on.
    pub(crate) fn descriptor(&self) -> impl AsFd + '_ {
        &self.socket
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Endpoint::Unix(_, path, made) = &self.endpoint
            && made.is_some()
            && *made == socket_at(path)
        {
            // It may go between the two calls; nothing is lost then.
            let _ = rustix::fs::unlink(path);
        }
    }
}
