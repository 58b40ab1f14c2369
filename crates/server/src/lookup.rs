//! Finding a row of the command table by its name, without allocation and in any case of letters.
//!
//! ```text
//!  name -> first 8 bytes and last byte, lower case -> hash -> slots[hash] -> entry, name compared
//! ```
//!
//! The slots are filled once; the hash was chosen so that few of our names share one (a test counts them).

use std::sync::LazyLock;

use crate::command::{Command, Flags};
use crate::table;

/// A row with its place in the statistics.
#[derive(Debug)]
pub struct Entry {
    /// The row.
    pub command: &'static Command,
    /// Dense number over all commands and subcommands.
    pub id: u16,
    /// Id of the first subcommand; they follow each other.
    sub_first: u16,
}

impl Entry {
    /// What a request of `bytes` may make the data grow by: nothing, unless its row says that it does.
    #[inline]
    pub(crate) fn growth_bytes(&self, bytes: usize) -> u64 {
        if self.command.flags.has(Flags::DENYOOM) { bytes as u64 } else { 0 }
    }
}

/// All commands and subcommands.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    /// Id + 1 of an entry; 0 is empty. Linear probing.
    slots: [u16; SLOTS],
}

impl Table {
    /// The table; built at the first call.
    #[inline]
    pub fn of_server() -> &'static Table {
        &TABLE
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
        let rows = container.command.subcommands();
        let position = rows.iter().position(|row| row.own_name().as_bytes().eq_ignore_ascii_case(name))?;
        self.entries.get(usize::from(container.sub_first) + position)
    }

    /// The row called `name`, or `container|name`.
    pub fn find_full(&'static self, name: &[u8]) -> Option<&'static Entry> {
        match memchr::memchr(b'|', name) {
            Some(bar) => self.find_sub(self.find(&name[..bar])?, &name[bar + 1..]),
            None => self.find(name),
        }
    }

    /// Commands and subcommands, by id.
    pub fn entries(&'static self) -> &'static [Entry] {
        &self.entries
    }

    /// Commands alone.
    pub fn commands(&'static self) -> impl Iterator<Item = &'static Command> {
        table::GROUPS.iter().flat_map(|group| group.iter())
    }

    fn build() -> Table {
        let mut entries = Vec::new();
        let mut slots = [0; SLOTS];
        for command in table::GROUPS.iter().flat_map(|group| group.iter()) {
            let id = number(entries.len());
            let mut slot = hash(command.name.as_bytes());
            while slots[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = id + 1;
            entries.push(Entry { command, id, sub_first: id + 1 });
            for sub in command.subcommands() {
                let id = number(entries.len());
                entries.push(Entry { command: sub, id, sub_first: id });
            }
        }
        Table { entries, slots }
    }
}

fn number(index: usize) -> u16 {
    u16::try_from(index).expect("the table has some hundred rows")
}

/// Folds case by setting bit 5, which maps letters of both cases to the same byte.
#[inline]
fn hash(name: &[u8]) -> usize {
    let mut word = [0u8; 8];
    let count = name.len().min(8);
    word[..count].copy_from_slice(&name[..count]);
    let folded = u64::from_le_bytes(word) | 0x2020_2020_2020_2020;
    let last = u64::from(name[name.len() - 1] | 0x20) << 8 | name.len() as u64;
    let mixed = (folded ^ last.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - SLOTS.trailing_zeros())) as usize
}

/// At least four times as many as there are commands.
const SLOTS: usize = 1024;

/// Longer names are nobody's.
const NAME_BYTES_MAX: usize = 32;

static TABLE: LazyLock<Table> = LazyLock::new(Table::build);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        let table = Table::of_server();
        for entry in table.entries() {
            let upper = entry.command.name.to_ascii_uppercase();
            let found = table.find_full(upper.as_bytes()).expect("found by its full name");
            assert_eq!(found.id, entry.id, "{upper}");
        }
        for name in ["", "ge", "gett", "get ", "g\0t", "client|", "client|x", "get|x", "\u{e9}"] {
            assert!(table.find_full(name.as_bytes()).is_none(), "{name:?}");
        }
        assert!(table.find(&[b'a'; 1000]).is_none());
    }

    #[test]
    fn few_names_share_a_slot() {
        let table = Table::of_server();
        let moved = table
            .commands()
            .filter(|row| {
                let id = usize::from(table.slots[hash(row.name.as_bytes())]) - 1;
                table.entries[id].command.name != row.name
            })
            .count();
        assert!(moved <= 8, "{moved} names are not at their first slot");
    }
}
