//! One `io_uring` for the sockets of a loop, without a raw pointer in its interface.
//!
//! ```text
//!  receive ---> armed --(bytes)*--> armed --(end, error, cancel, no buffer)--> off      [the completion without MORE]
//!  send    ---> under way ---------(some or all was taken, error, cancel)----> off      [the bytes come back]
//!  watch   ---> under way ---------(the peer closed, error, cancel)----------> off
//!  stop    ---> all of the above end, each with a completion of its own
//! ```
//!
//! Invariants
//!   1. Bytes that the kernel may read belong to the ring until their completion hands them back.
//!   2. What is under way is counted; a ring that ends while something is leaks what the kernel may still touch.
//!   3. A descriptor is not closed while anything is under way on it: its owner waits for the completions.
//!
//! One system call submits what a tick asked for and waits for what comes. The ring is made disabled and belongs to the thread
//! that first waits on it (`SINGLE_ISSUER`, `DEFER_TASKRUN`): completions are worked out when that thread asks, never between
//! its instructions.
//!
//! Out of scope: whose connection it is (`uring`), order and holding of replies (`output`).
//! Sources: io_uring(7), io_uring_prep_recv_multishot(3), io_uring_register_buf_ring(3).
#![allow(unsafe_code, reason = "queue entries carry raw pointers; each is proved where it is pushed")]

mod buffers;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::SharedBytes;
use buffers::Buffers;
pub(crate) use buffers::Lease;

/// Requests that wait to be submitted; more of them are submitted at once.
const SUBMISSIONS_MAX: u32 = 256;
/// Completions that wait to be taken; the kernel keeps more by itself.
const COMPLETIONS_MAX: u32 = 4_096;

/// Bits of `user_data` that tell what completed, above the slot in its low half.
const KIND_SHIFT: u32 = 28;
const KIND_MASK: u64 = 0xf << KIND_SHIFT;
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << KIND_SHIFT;
const STOP: u64 = 2 << KIND_SHIFT;
const WAKE: u64 = 3 << KIND_SHIFT;
const WATCH: u64 = 4 << KIND_SHIFT;
/// Slots that a token can name.
pub(crate) const SLOTS_MAX: usize = 1 << KIND_SHIFT;

/// A loop's ring.
pub(crate) struct Ring {
    ring: IoUring,
    buffers: ManuallyDrop<Buffers>,
    /// Bytes under way, by the slot of their connection.
    sends: ManuallyDrop<Vec<Option<Box<Parcel>>>>,
    bell: Arc<OwnedFd>,
    bell_is_watched: bool,
    completed: VecDeque<cqueue::Entry>,
    /// Receives and sends whose last completion has not come.
    under_way: usize,
    is_enabled: bool,
}

/// Bytes to send, and how many of them have left.
#[derive(Default)]
pub(crate) struct Parcel {
    /// Bytes of its own; sent unless `shared` is there.
    pub(crate) own: Vec<u8>,
    /// Bytes that others hold as well.
    pub(crate) shared: Option<SharedBytes>,
    /// What of them is to be sent.
    pub(crate) range: Range<usize>,
    /// More follows at once.
    pub(crate) continues: bool,
}

impl Parcel {
    /// What is to be sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        let all = self.shared.as_deref().map_or(self.own.as_slice(), AsRef::as_ref);
        &all[self.range.clone()]
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("range", &self.range).finish_non_exhaustive()
    }
}

/// What happened to the connection with a token.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Another thread rang.
    Woken,
    /// Bytes came, or the stream ended (no bytes), or it broke.
    Received {
        token: u64,
        outcome: Result<Option<Lease>, Errno>,
        /// Whether more of these follow without asking.
        armed: bool,
    },
    /// The socket took so many bytes.
    Sent { token: u64, parcel: Box<Parcel>, outcome: Result<usize, Errno> },
    /// The peer closed its side, or both; or the watch was stopped.
    Watched { token: u64, outcome: Result<Closed, Errno> },
}

/// What a peer has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Its side: it sends nothing more.
    Sending,
    /// The connection.
    Both,
}

/// Does with a pair of sockets what loops do with connections, on a ring that ends with it: parts of io_uring may be refused one by one.
///
/// # Errors
/// What the system reports for what it refuses, or that a request did not complete.
pub(crate) fn try_out() -> io::Result<()> {
    let bell = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
    let mut ring = Ring::new(Arc::clone(&bell))?;
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let (receiver, sender) = (0, (1 << 32) | 1);
    ring.receive(ours.as_fd(), receiver)?;
    ring.send(
        theirs.as_fd(),
        sender,
        Box::new(Parcel { own: vec![7; 9], range: 0..9, ..Parcel::default() }),
    )?;
    ring.watch(theirs.as_fd(), sender, true)?;
    rustix::io::write(&*bell, &1u64.to_ne_bytes())?;
    let (mut came, mut went, mut woken, mut stops, mut ended) = (false, false, false, false, [false; 2]);
    for timeout in [None; TRIES_MAX].into_iter().chain([Some(TRY_MAX); TRIES_MAX]) {
        // One of each kind of wait; what must come comes within the first of them.
        let has_all = came && went && woken;
        if has_all && !stops {
            ring.stop(ours.as_fd(), receiver, false)?;
            ring.stop(theirs.as_fd(), sender, false)?;
            stops = true;
        }
        ring.wait(if has_all { Some(TRY_MAX) } else { timeout })?;
        while let Some(completion) = ring.next() {
            match completion {
                Completion::Woken => woken = true,
                Completion::Received { outcome, armed, .. } => {
                    ended[0] |= !armed;
                    if let (false, Some(lease)) = (came, outcome.or_else(cancelled)?) {
                        came = ring.bytes(&lease) == [7; 9];
                        ring.give(lease);
                    }
                }
                Completion::Sent { outcome, .. } => went = outcome? == 9,
                Completion::Watched { outcome, .. } => {
                    outcome.map(drop).or_else(|error| cancelled::<()>(error).map(drop))?;
                    ended[1] = true;
                }
            }
        }
        if ended == [true; 2] && has_all {
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "requests to io_uring do not complete"))
}

/// What a stop does is no failure.
fn cancelled<T>(error: Errno) -> io::Result<Option<T>> {
    if error == Errno::CANCELED { Ok(None) } else { Err(error.into()) }
}

/// Waits of a trial, and the longest of those that are bounded.
const TRIES_MAX: usize = 8;
const TRY_MAX: Duration = Duration::from_secs(1);

impl Ring {
    /// A ring with its buffers, woken through `bell`, an eventfd. Whatever thread waits first owns it from then on.
    ///
    /// # Errors
    /// The system has io_uring switched off, or its kernel is older than 6.1.
    pub(crate) fn new(bell: Arc<OwnedFd>) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS_MAX)
            .build(SUBMISSIONS_MAX)?;
        let buffers = Buffers::register(&ring)?;
        Ok(Self {
            ring,
            buffers: ManuallyDrop::new(buffers),
            sends: ManuallyDrop::default(),
            bell,
            bell_is_watched: false,
            completed: VecDeque::new(),
            under_way: 0,
            is_enabled: false,
        })
    }

    /// Receives on `socket` until that ends; each piece comes with `token`.
    ///
    /// # Errors
    /// The kernel takes no more requests.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), buffers::GROUP).build();
        self.push(&entry.user_data(token | RECEIVE))?;
        self.under_way += 1;
        Ok(())
    }

    /// Tells once, without bytes, when some come on `socket` or it ends: needs no buffer. Ends as [`Ring::receive`].
    ///
    /// # Errors
    /// The kernel takes no more requests.
    pub(crate) fn await_bytes(&mut self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let events = (libc::POLLIN | libc::POLLRDHUP).cast_unsigned();
        let poll = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events.into());
        self.push(&poll.build().user_data(token | RECEIVE))?;
        self.under_way += 1;
        Ok(())
    }

    /// Sends `parcel` on `socket`; it comes back with `token`.
    ///
    /// # Errors
    /// The kernel takes no more requests.
    ///
    /// # Panics
    /// If a send with this token's slot is under way.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, token: u64, parcel: Box<Parcel>) -> io::Result<()> {
        let slot = slot_of(token);
        if self.sends.len() <= slot {
            self.sends.resize_with(slot + 1, || None);
        }
        assert!(self.sends[slot].is_none(), "two sends of slot {slot}");
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, parcel.continues);
        let bytes = parcel.bytes();
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), len);
        let entry = entry.flags(flags.bits().cast_signed()).build().user_data(token | SEND);
        self.push(&entry)?;
        // Kept before the kernel hears of it, which the next submission does: what `entry` points to stays where it is, in the
        // parcel's buffer.
        self.sends[slot] = Some(parcel);
        self.under_way += 1;
        Ok(())
    }

    /// Tells once when the peer of `socket` closes the connection; with `its_side` also when it closes its side alone.
    ///
    /// # Errors
    /// The kernel takes no more requests.
    pub(crate) fn watch(&mut self, socket: BorrowedFd<'_>, token: u64, its_side: bool) -> io::Result<()> {
        // A broken connection is told of by any poll.
        let events = if its_side { libc::POLLRDHUP } else { 0 };
        let poll = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events.cast_unsigned().into());
        self.push(&poll.build().user_data(token | WATCH))
    }

    /// Ends what is under way on `socket`, all of it or receiving alone; each part still gets its completion.
    ///
    /// # Errors
    /// The kernel takes no more requests.
    pub(crate) fn stop(
        &mut self,
        socket: BorrowedFd<'_>,
        token: u64,
        only_receiving: bool,
    ) -> io::Result<()> {
        let builder = if only_receiving {
            CancelBuilder::user_data(token | RECEIVE)
        } else {
            CancelBuilder::fd(Fd(socket.as_raw_fd())).all()
        };
        self.push(&opcode::AsyncCancel2::new(builder).build().user_data(token | STOP))
    }

    /// Submits what was asked for, and waits for a completion unless there is one: for ever, or for `timeout`.
    ///
    /// # Errors
    /// What the system reports; an interruption is none.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enable()?;
        if !self.bell_is_watched {
            let poll = opcode::PollAdd::new(Fd(self.bell.as_raw_fd()), libc::POLLIN as u32).multi(true);
            self.push(&poll.build().user_data(WAKE))?;
            self.bell_is_watched = true;
        }
        let has_some = !self.completed.is_empty() || !self.ring.completion().is_empty();
        let entered = match timeout {
            _ if has_some => self.submit(),
            Some(Duration::ZERO) => self.submit(),
            None => self.ring.submit_and_wait(1).map(drop),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout)).map(drop)
            }
        };
        self.completed.extend(self.ring.completion());
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) | Err((Some(libc::EINTR | libc::ETIME), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// The next thing that happened, if there is one.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.completed.pop_front()?;
            let (token, kind) = (entry.user_data() & !KIND_MASK, entry.user_data() & KIND_MASK);
            let more = cqueue::more(entry.flags());
            match kind {
                WAKE => {
                    self.bell_is_watched = more;
                    return Some(Completion::Woken);
                }
                RECEIVE => return Some(self.received(token, &entry, more)),
                SEND => {
                    self.under_way -= 1;
                    let parcel = self.sends[slot_of(token)].take().expect("kept since it was sent");
                    return Some(Completion::Sent { token, parcel, outcome: outcome(entry.result()) });
                }
                WATCH => {
                    let both = (libc::POLLERR | libc::POLLHUP) as usize;
                    let closed = |events| if events & both == 0 { Closed::Sending } else { Closed::Both };
                    return Some(Completion::Watched { token, outcome: outcome(entry.result()).map(closed) });
                }
                // How a stop itself went does not matter: what it stops completes for itself.
                STOP => {}
                other => unreachable!("no such kind: {other}"),
            }
        }
    }

    /// What came with `lease`.
    pub(crate) fn bytes<'a>(&'a self, lease: &'a Lease) -> &'a [u8] {
        self.buffers.bytes(lease)
    }

    /// Gives a buffer back.
    pub(crate) fn give(&mut self, lease: Lease) {
        self.buffers.give(lease);
    }

    fn received(&mut self, token: u64, entry: &cqueue::Entry, armed: bool) -> Completion {
        self.under_way -= usize::from(!armed);
        let outcome = outcome(entry.result()).map(|len| {
            let id = cqueue::buffer_select(entry.flags());
            id.map(|id| self.buffers.lease(id, len)).filter(|_| len > 0)
        });
        Completion::Received { token, outcome, armed }
    }

    fn push(&mut self, entry: &Entry) -> io::Result<()> {
        loop {
            // SAFETY: entries are made by this module only. A SEND points to bytes that `sends` keeps, in place, from before the
            // submission until its completion came, and `drop` leaks them if it did not; a RECEIVE names the group of buffers, kept likewise; the
            // others carry no pointer. Descriptors: an owner that closes one early gets an error, or bytes of the one that
            // took its number, which rule 3 of the header forbids it to cause; memory stays safe either way.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.submit() {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// Enters what is queued, and lets the kernel finish what is ready, if there is either.
    fn submit(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        self.enable()?;
        self.ring.submit().map(drop)
    }

    /// Makes the calling thread the ring's owner, the first time.
    fn enable(&mut self) -> io::Result<()> {
        if !self.is_enabled {
            self.ring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Else the kernel, which cleans a closed ring up by itself and later, may still use them: they are leaked.
        if self.under_way == 0 {
            // SAFETY: not used after this, and no request is left that could use them.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sends);
            }
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

/// The slot in the low half of `token`.
fn slot_of(token: u64) -> usize {
    (token & (SLOTS_MAX as u64 - 1)) as usize
}

fn outcome(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

#[cfg(test)]
mod tests;
