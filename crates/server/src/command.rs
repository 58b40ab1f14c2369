//! What is to be known of a command: all that its row in the table says, but for the function that runs it.
//!
//! `COMMAND` and its subcommands, the executor's checks (arity, authentication, MULTI), the keys that are locked, statistics
//! and the differential test all read it. Rows are in `table/`, one file a group; finding them by name is `lookup`.

use resp::ArgsView;

use crate::copies::Stored;

/// One command or subcommand.
#[derive(Debug)]
pub struct Command {
    /// Lower case; a subcommand's is `container|name`.
    pub name: &'static str,
    /// Arguments with the name; negative: at least so many.
    pub arity: i32,
    /// What the executor and clients must know.
    pub flags: Flags,
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// ACL categories, by spaces.
    pub categories: &'static str,
    /// Hints for proxies, by spaces.
    pub tips: &'static str,
    /// Group of the manual.
    pub group: &'static str,
    /// Version of Redis that had it first.
    pub since: &'static str,
    /// Cost.
    pub complexity: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What it takes, as `arguments` reads it.
    pub(crate) args: &'static str,
    /// What changed since, a line for each change: version, space, text.
    pub(crate) history: &'static str,
    /// Version that deprecated it, space, what to use instead; empty for most.
    pub(crate) deprecated: &'static str,
    /// What it will store of its arguments; such as are large are copied before its keys are locked.
    pub(crate) stored: Stored,
    /// What it runs over.
    pub(crate) kind: Kind,
}

impl Command {
    /// Whether `count` arguments, the name included, are as many as it takes.
    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    /// Whether it has subcommands.
    pub fn is_container(&self) -> bool {
        matches!(self.kind, Kind::Container)
    }

    /// The name without its container.
    pub fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// How many keys there are among `count` arguments.
    pub fn count_keys(&self, count: usize) -> usize {
        let of_spec = |spec: &KeySpec| {
            let (count, first) = (count as i64, i64::from(spec.first));
            let last = i64::from(spec.last) + if spec.last < 0 { count } else { first };
            let last = last.min(count - 1);
            if last < first { 0 } else { ((last - first) / i64::from(spec.step) + 1) as usize }
        };
        self.keys.iter().map(of_spec).sum()
    }

    /// Calls `found` with the index of each key among `count` arguments, in order.
    pub fn each_key(&self, count: usize, mut found: impl FnMut(usize)) {
        for spec in self.keys {
            let last = if spec.last < 0 {
                count as i64 + i64::from(spec.last)
            } else {
                i64::from(spec.first) + i64::from(spec.last)
            };
            let mut index = spec.first as usize;
            while index as i64 <= last && index < count {
                found(index);
                index += spec.step as usize;
            }
        }
    }
}

/// Keys at `first`, and every `step` up to `last`: counted from `first`, or from the end if negative.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Index of the first key.
    pub first: u8,
    /// Last key, relative to `first`, or to the end when negative.
    pub last: i8,
    /// Distance of keys.
    pub step: u8,
    /// What is done with the key, by spaces.
    pub flags: &'static str,
}

/// The keys that start at `first`; see [`KeySpec`].
pub(crate) const fn keys(first: u8, last: i8, step: u8, flags: &'static str) -> KeySpec {
    KeySpec { first, last, step, flags }
}

/// What a command runs over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The keys of its row, in the session's database.
    Data,
    /// The keys of its row, in the session's database and in the one that the function names.
    Across(fn(ArgsView<'_>) -> Option<u16>),
    /// All keys.
    Everything,
    /// All keys, one stripe of them at a time; in a transaction as [`Kind::Everything`].
    Walk,
    /// TX.DO: a command that is staged.
    Stage,
    /// The session and the server.
    Control,
    /// Queued commands of MULTI.
    Exec,
    /// Subcommands.
    Container,
}

/// A set of properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    pub(crate) const WRITE: Flags = Flags(1);
    pub(crate) const READONLY: Flags = Flags(1 << 1);
    pub(crate) const DENYOOM: Flags = Flags(1 << 2);
    pub(crate) const ADMIN: Flags = Flags(1 << 3);
    pub(crate) const PUBSUB: Flags = Flags(1 << 4);
    pub(crate) const NOSCRIPT: Flags = Flags(1 << 5);
    pub(crate) const BLOCKING: Flags = Flags(1 << 6);
    pub(crate) const LOADING: Flags = Flags(1 << 7);
    pub(crate) const STALE: Flags = Flags(1 << 8);
    pub(crate) const SKIP_MONITOR: Flags = Flags(1 << 9);
    pub(crate) const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    pub(crate) const FAST: Flags = Flags(1 << 11);
    pub(crate) const NO_AUTH: Flags = Flags(1 << 12);
    pub(crate) const NO_ASYNC_LOADING: Flags = Flags(1 << 13);
    pub(crate) const NO_MULTI: Flags = Flags(1 << 14);
    pub(crate) const ALLOW_BUSY: Flags = Flags(1 << 15);

    /// Both sets.
    pub(crate) const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are in it.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Names as COMMAND INFO spells them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        FLAG_NAMES.iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| *name)
    }
}

const FLAG_NAMES: [&str; 16] = [
    "write",
    "readonly",
    "denyoom",
    "admin",
    "pubsub",
    "noscript",
    "blocking",
    "loading",
    "stale",
    "skip_monitor",
    "skip_slowlog",
    "fast",
    "no_auth",
    "no_async_loading",
    "no_multi",
    "allow_busy",
];
