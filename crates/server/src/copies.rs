//! Large values that commands will store, copied before anything is locked.
//!
//! A megabyte takes a tenth of a millisecond to copy and to check: whoever needs a key of the same stripe would wait. So the
//! executor copies what a command will certainly store as it is, and the handler finds the copy by the argument's index.
//! A command that parks keeps its copies. What handlers make of a value that is there (APPEND, SETRANGE) is not foreseen.

use std::sync::Arc;

use resp::ArgsView;
use store::{Large, Store, Value};

use crate::handlers::dump;

/// Which arguments a command will certainly store as they are; part of its row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    /// None.
    Nothing,
    /// The one at this index.
    At(u8),
    /// Every second one from this index on.
    Pairs(u8),
    /// What the payload at this index holds.
    Payload(u8),
}

/// Copies of arguments, by command (its index in a transaction) and argument.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<(usize, usize, Arc<Large>)>);

/// The copies that belong to one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied<'a> {
    all: &'a Copies,
    command: usize,
}

impl Copies {
    /// Copies what command number `command` will store.
    pub(crate) fn add(&mut self, store: &Store, command: usize, stored: Stored, args: ArgsView<'_>) {
        let indices = match stored {
            Stored::Nothing => return,
            Stored::At(index) => usize::from(index)..usize::from(index) + 1,
            Stored::Pairs(first) => first.into()..args.len(),
            Stored::Payload(index) => {
                let index = usize::from(index);
                let value = args.try_get(index).filter(|payload| payload.len() >= Large::BYTES_MIN);
                let made = value.and_then(dump::decode).and_then(|value| store.large(value).ok());
                self.0.extend(made.map(|large| (command, index, large)));
                return;
            }
        };
        for index in indices.step_by(2) {
            let made = args.try_get(index).and_then(|value| store.large(value).ok());
            self.0.extend(made.map(|large| (command, index, large)));
        }
    }

    /// Those of command number `command`.
    pub(crate) fn of(&self, command: usize) -> Copied<'_> {
        Copied { all: self, command }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Copied<'a> {
    /// The value in the argument at `index`, copied already or not.
    pub(crate) fn value(self, args: ArgsView<'a>, index: usize) -> Value<'a> {
        self.find(index).unwrap_or_else(|| Value::String(args.get(index)))
    }

    /// The copy made for the argument at `index`.
    pub(crate) fn find(self, index: usize) -> Option<Value<'a>> {
        let list = &self.all.0;
        let at = list.binary_search_by_key(&(self.command, index), |(command, index, _)| (*command, *index));
        Some(Value::Large(&list[at.ok()?].2))
    }
}
