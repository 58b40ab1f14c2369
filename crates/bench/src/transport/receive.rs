//! The receiving side as a process: what [`super::apart`] starts.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::apart::Opening;
#[cfg(feature = "zeromq")]
use super::libzmq;
use super::load::Carrier;
use super::{nodes, plain};
use crate::Failure;
use crate::asked::{answer, told};

/// Receives as this process's input says, until it ends: what the child's program does.
///
/// # Errors
/// The parent is no parent of this version, or is gone.
pub fn receive_for_parent() -> Result<(), Failure> {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let opening: Opening = told(lines.next())?;
    end_after(Duration::from_secs(opening.seconds_max))?;
    let receiving = match Receiving::start(&opening) {
        Ok((receiving, address)) => answer("Listens", Ok(address)).map(|()| receiving)?,
        Err(failure) => return answer("Listens", Err::<(), _>(failure)),
    };
    lines.try_for_each(|_| answer("Count", Ok(receiving.count(opening.size_bytes))))
}

/// What receives, in the child.
enum Receiving {
    Node(Box<nodes::Receiver>),
    Plain(Arc<AtomicU64>),
}

impl Receiving {
    fn start(opening: &Opening) -> Result<(Self, String), Failure> {
        let carrier = opening.carrier;
        #[cfg(feature = "zeromq")]
        if carrier == Carrier::Libzmq {
            let (bytes, answers) = (Arc::<AtomicU64>::default(), opening.answers);
            let (socket, address) = libzmq::listen(answers)?;
            let counted = Arc::clone(&bytes);
            spawn("receiver", move || libzmq::receive(&socket, answers, &counted))?;
            return Ok((Self::Plain(bytes), address));
        }
        if carrier != Carrier::Plain {
            let (receiver, address) = nodes::Receiver::start(carrier, opening)?;
            return Ok((Self::Node(Box::new(receiver)), address));
        }
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let bytes = Arc::new(AtomicU64::new(0));
        let (counted, answers, size_bytes) = (Arc::clone(&bytes), opening.answers, opening.size_bytes);
        spawn("receiver", move || serve_plain(&listener, answers, size_bytes, &counted))?;
        Ok((Self::Plain(bytes), address.to_string()))
    }

    fn count(&self, size_bytes: usize) -> u64 {
        match self {
            Self::Node(receiver) => receiver.count(),
            Self::Plain(bytes) => bytes.load(Ordering::Relaxed) / size_bytes as u64,
        }
    }
}

fn serve_plain(listener: &TcpListener, answers: bool, size_bytes: usize, bytes: &AtomicU64) {
    let serve = |stream: TcpStream| {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        if answers { plain::echo(&stream, size_bytes) } else { plain::receive(&stream, bytes) }
    };
    let served = listener.accept().map_err(|error| error.to_string()).and_then(|(stream, _)| serve(stream));
    if let Err(failure) = served {
        tracing::error!(failure, "the receiving loop ended");
    }
}

/// Ends this process if it still runs then.
fn end_after(time: Duration) -> Result<(), Failure> {
    spawn("end", move || {
        std::thread::sleep(time);
        std::process::exit(1);
    })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(|error| error.to_string())
}
