//! SLOWLOG: the newest commands that took longer than the threshold.
//!
//! Only slow commands come here, so a mutex serves. Arguments are shortened as Redis does: 32 of them, 128
//! bytes each; passwords are not kept. What all entries take is bounded as well: the oldest leave first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use commands::lookup::Entry;
use resp::ArgsView;

use crate::clients::Client;
use crate::secrets::{REDACTED, is_secret};

/// One slow command.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) id: u64,
    pub(crate) unix_s: u64,
    pub(crate) micros: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) name: Box<[u8]>,
}

/// The log, newest first.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    length_max: AtomicUsize,
    bytes_max: AtomicU64,
    bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    entries: VecDeque<Slow>,
    bytes: u64,
}

impl State {
    /// Drops the oldest until no more than so many entries and bytes are left.
    fn truncate(&mut self, length_max: usize, bytes_max: u64) {
        while (self.entries.len() > length_max || self.bytes > bytes_max)
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.kept_bytes();
        }
        if self.entries.capacity() > 4 * self.entries.len().max(64) {
            self.entries.shrink_to_fit();
        }
    }
}

impl Slow {
    /// What it takes.
    fn kept_bytes(&self) -> u64 {
        let args: usize =
            self.args.iter().map(|arg| size_of::<Vec<u8>>() + arg.capacity() + ALLOCATION_BYTES).sum();
        (size_of::<Self>() + args + self.address.capacity() + self.name.len() + 2 * ALLOCATION_BYTES) as u64
    }
}

impl SlowLog {
    pub(crate) fn set_max(&self, length_max: usize, bytes_max: u64) {
        self.length_max.store(length_max, Ordering::Relaxed);
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        let mut state = self.lock();
        state.truncate(length_max, bytes_max);
        self.bytes.store(state.bytes, Ordering::Relaxed);
    }

    /// What all entries take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, unix_s: u64, micros: u64, entry: &Entry, args: ArgsView<'_>, client: &Client) {
        let length_max = self.length_max.load(Ordering::Relaxed);
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        let name = client.labels().name;
        let args = shortened(entry, args);
        let slow = Slow { id, unix_s, micros, args, address: client.address(), name };
        state.bytes += slow.kept_bytes();
        state.entries.push_front(slow);
        state.truncate(length_max, self.bytes_max.load(Ordering::Relaxed));
        self.bytes.store(state.bytes, Ordering::Relaxed);
    }

    /// The newest `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<Slow> {
        self.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    pub(crate) fn reset(&self) {
        self.lock().truncate(0, 0);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(entry: &Entry, args: ArgsView<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let text =
        |(index, arg)| if is_secret(entry, args, index) { REDACTED.to_vec() } else { shortened_arg(arg) };
    let mut texts: Vec<Vec<u8>> = args.iter().enumerate().take(shown).map(text).collect();
    if shown < args.len() {
        texts.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    texts
}

fn shortened_arg(arg: &[u8]) -> Vec<u8> {
    let mut text = arg[..arg.len().min(ARG_BYTES_MAX)].to_vec();
    if text.len() < arg.len() {
        text.extend_from_slice(format!("... ({} more bytes)", arg.len() - text.len()).as_bytes());
    }
    text
}

/// What the allocator takes beside the bytes.
const ALLOCATION_BYTES: usize = 16;
/// Arguments kept of one command.
const ARGS_MAX: usize = 32;
/// Bytes kept of one argument.
const ARG_BYTES_MAX: usize = 128;
