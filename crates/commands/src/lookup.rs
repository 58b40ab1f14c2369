//! Finding a row of the command table by its name, without allocation and in any case of letters.
//!
//! ```text
//!  name -> first 8 bytes and last byte, lower case -> hash -> slots[hash] -> entry, name compared
//! ```
//!
//! The slots are filled at compile time; the hash was chosen so that few of our names share one (a test counts them).

use crate::command::{Command, Flags};

/// A command with its place in the statistics.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What is to be known of it.
    pub command: &'static Command,
    /// Dense number over all commands and subcommands.
    pub id: u16,
    /// How many subcommands follow it.
    pub subcommands: u16,
}

impl Entry {
    /// What a request of `bytes` may make the data grow by: nothing, unless its row says that it does.
    #[inline]
    pub fn growth_bytes(&self, bytes: usize) -> u64 {
        if self.command.flags.has(Flags::DENYOOM) { bytes as u64 } else { 0 }
    }
}

/// All commands and subcommands.
#[derive(Debug)]
pub struct Table {
    entries: &'static [Entry],
    /// Id + 1 of an entry; 0 is empty. Linear probing.
    slots: [u16; SLOTS],
}

impl Table {
    /// The table of these, each with its subcommands behind it.
    pub const fn new(entries: &'static [Entry]) -> Self {
        let (mut slots, mut id) = ([0; SLOTS], 0);
        while id < entries.len() {
            let mut slot = hash(entries[id].command.name.as_bytes());
            while slots[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = id as u16 + 1;
            id += 1 + entries[id].subcommands as usize;
        }
        Table { entries, slots }
    }

    /// The command called `name`, in any case.
    #[inline]
    pub fn find(&'static self, name: &[u8]) -> Option<&'static Entry> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut slot = hash(name);
        loop {
            match self.slots[slot] {
                0 => return None,
                id => {
                    let entry = &self.entries[usize::from(id) - 1];
                    if entry.command.name.as_bytes().eq_ignore_ascii_case(name) {
                        return Some(entry);
                    }
                }
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// The subcommand `name` of `container`, in any case.
    pub fn find_sub(&'static self, container: &Entry, name: &[u8]) -> Option<&'static Entry> {
        let mut subcommands = self.subcommands(container).iter();
        subcommands.find(|entry| entry.command.own_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The subcommands of `container`; none for most.
    pub fn subcommands(&'static self, container: &Entry) -> &'static [Entry] {
        let first = usize::from(container.id) + 1;
        &self.entries[first..first + usize::from(container.subcommands)]
    }

    /// The row called `name`, or `container|name`.
    pub fn find_full(&'static self, name: &[u8]) -> Option<&'static Entry> {
        match memchr::memchr(b'|', name) {
            Some(bar) => self.find_sub(self.find(&name[..bar])?, &name[bar + 1..]),
            None => self.find(name),
        }
    }

    /// How many names share their first slot with another one, and are found at a later one.
    pub fn moved_names(&'static self) -> usize {
        let is_at_home = |entry: &&Entry| {
            let name = entry.command.name;
            let id = usize::from(self.slots[hash(name.as_bytes())]) - 1;
            self.entries[id].command.name == name
        };
        self.commands().filter(|entry| !is_at_home(entry)).count()
    }

    /// Commands and subcommands, by id.
    pub fn entries(&'static self) -> &'static [Entry] {
        self.entries
    }

    /// Commands alone.
    pub fn commands(&'static self) -> impl Iterator<Item = &'static Entry> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let entry = self.entries.get(next)?;
            next += 1 + usize::from(entry.subcommands);
            Some(entry)
        })
    }
}

/// Folds case by setting bit 5, which maps letters of both cases to the same byte.
#[inline]
const fn hash(name: &[u8]) -> usize {
    let (mut word, mut at) = ([0u8; 8], 0);
    while at < 8 && at < name.len() {
        word[at] = name[at];
        at += 1;
    }
    let folded = u64::from_le_bytes(word) | 0x2020_2020_2020_2020;
    let last = ((name[name.len() - 1] | 0x20) as u64) << 8 | name.len() as u64;
    let mixed = (folded ^ last.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - SLOTS.trailing_zeros())) as usize
}

/// At least four times as many as there are commands.
const SLOTS: usize = 8192;

/// Longer names are nobody's.
const NAME_BYTES_MAX: usize = 32;
