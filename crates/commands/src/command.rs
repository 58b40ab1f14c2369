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
    pub args: &'static str,
    /// What changed since, a line for each change: version, space, text.
    pub history: &'static str,
    /// Version that deprecated it, space, what to use instead; empty for most.
    pub deprecated: &'static str,
    /// What it will store of its arguments; such as are large are copied before its keys are locked.
    pub stored: Stored,
    /// What it runs over.
    pub kind: Kind,
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

    /// Whether its keys are not where the first, the last and a step tell: they are counted, come behind a word, or are found out from values.
    pub fn moves_keys(&self) -> bool {
        let moves = |spec: &KeySpec| spec.is_counted || !spec.keyword.is_empty();
        matches!(self.kind, Kind::Reaching) || self.keys.iter().any(moves)
    }

    /// The name without its container.
    pub fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// How many keys there are among `args`.
    pub fn count_keys(&self, args: ArgsView<'_>) -> usize {
        let of_spec = |spec: &KeySpec| {
            let (first, last) = spec.range(args);
            let more = last - first as i64;
            if more < 0 { 0 } else { (more / i64::from(spec.step) + 1) as usize }
        };
        self.keys.iter().map(of_spec).sum()
    }

    /// Whether an argument that counts keys is no number, or one that cannot be.
    pub fn has_miscounted_keys(&self, args: ArgsView<'_>) -> bool {
        let is_none = |spec: &KeySpec| {
            let (first, last) = spec.range(args);
            last < first as i64
        };
        self.keys.iter().any(|spec| spec.is_counted && is_none(spec)) || self.keys.iter().all(is_none)
    }

    /// Calls `found` with the index of each key among `args`, in order.
    pub fn each_key(&self, args: ArgsView<'_>, mut found: impl FnMut(usize)) {
        self.each_key_of(args, |_, index| found(index));
    }

    /// Calls `found` with the index of each key among `args`, in order, and with where the row says that it is.
    pub fn each_key_of(&self, args: ArgsView<'_>, mut found: impl FnMut(&KeySpec, usize)) {
        for spec in self.keys {
            let (mut index, last) = spec.range(args);
            while index as i64 <= last {
                found(spec, index);
                index += usize::from(spec.step);
            }
        }
    }

    /// Whether the argument at `index` of `args` is a key.
    pub fn is_key(&self, args: ArgsView<'_>, index: usize) -> bool {
        self.keys.iter().any(|spec| {
            let (first, last) = spec.range(args);
            index >= first && index as i64 <= last && (index - first).is_multiple_of(usize::from(spec.step))
        })
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
    /// The same as rights that it takes: [`READS`], [`WRITES`], both or none.
    pub needs: u8,
    /// The argument at `first` says how many keys follow it; `last` counts for nothing.
    pub is_counted: bool,
    /// The word behind which the keys are, looked for from `first` on; empty if `first` is where they are.
    pub keyword: &'static str,
    /// With 2 the keys are the first half of what is there.
    pub limit: u8,
    /// Other words that are looked for with the keyword, and how many arguments each has behind it: these are no keywords, and the last
    /// keyword counts. Empty: the first one does.
    pub words: &'static [(&'static str, u8)],
}

impl KeySpec {
    /// Whether it is one key at a fixed index.
    pub fn is_one(&self) -> bool {
        self.last == 0 && !self.is_counted && self.keyword.is_empty()
    }

    /// Index of the first key among `args`.
    pub(crate) fn first_key(&self, args: ArgsView<'_>) -> Option<usize> {
        let (first, last) = self.range(args);
        (first as i64 <= last).then_some(first)
    }

    /// The index of the last keyword that has an argument behind it.
    fn last_keyword(&self, args: ArgsView<'_>) -> Option<usize> {
        let (mut at, mut last) = (usize::from(self.first), None);
        while let Some(word) = args.try_get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is(self.keyword) && at + 1 < args.len() {
                last = Some(at);
            }
            at += 1 + self
                .words
                .iter()
                .find(|(name, _)| is(name))
                .map_or(0, |(_, values)| usize::from(*values));
        }
        last
    }

    /// Index of the first key among `args`, and of the last one; below the first if there is none.
    fn range(&self, args: ArgsView<'_>) -> (usize, i64) {
        let (count, first) = (args.len() as i64, i64::from(self.first));
        if self.is_counted {
            // one that is no number, or too large, is refused before anything is looked up
            let keys = args.try_get(self.first.into()).and_then(resp::parse_i64).unwrap_or(0);
            let step = i64::from(self.step);
            let fits = keys.checked_mul(step).is_some_and(|wanted| wanted < count - first);
            let keys = if fits { keys.max(0) } else { 0 };
            return (
                usize::from(self.first) + 1,
                if keys > 0 { first + 1 + (keys - 1) * step } else { first },
            );
        }
        let first = match self.keyword {
            "" => first,
            _ if !self.words.is_empty() => self.last_keyword(args).map_or(count, |at| at as i64 + 1),
            keyword => {
                let words = args.iter().enumerate().skip(self.first.into());
                let found = words.into_iter().find(|(_, word)| word.eq_ignore_ascii_case(keyword.as_bytes()));
                found.map_or(count, |(at, _)| at as i64 + 1)
            }
        };
        let last = match self.limit {
            0 => i64::from(self.last) + if self.last < 0 { count } else { first },
            parts => first + (count - first) / i64::from(parts) - 1,
        };
        (first as usize, last.min(count - 1))
    }
}

/// The keys behind the argument at `first`, which says how many they are.
pub const fn counted_keys(first: u8, flags: &'static str) -> KeySpec {
    KeySpec { is_counted: true, ..keys(first, 0, 1, flags) }
}

/// The same, with a value behind each key.
pub(crate) const fn counted_pairs(first: u8, flags: &'static str) -> KeySpec {
    KeySpec { is_counted: true, ..keys(first, 0, 2, flags) }
}

/// The keys behind the word `keyword`, which is looked for from `first` on; with `limit` 2 the first half of what is there.
pub(crate) const fn keys_behind(
    keyword: &'static str,
    first: u8,
    last: i8,
    limit: u8,
    flags: &'static str,
) -> KeySpec {
    KeySpec { keyword, limit, ..keys(first, last, 1, flags) }
}

/// The keys that start at `first`; see [`KeySpec`].
pub const fn keys(first: u8, last: i8, step: u8, flags: &'static str) -> KeySpec {
    let needs = needs(flags);
    KeySpec { first, last, step, flags, needs, is_counted: false, keyword: "", limit: 0, words: &[] }
}

/// The right to learn what a key holds.
pub const READS: u8 = 1;
/// The right to change what a key holds.
pub const WRITES: u8 = 2;

/// The rights that a key with these flags takes. Who only learns that it exists needs none of them.
const fn needs(flags: &str) -> u8 {
    let reads = if contains(flags, "access") { READS } else { 0 };
    let writes = contains(flags, "insert") || contains(flags, "delete") || contains(flags, "update");
    reads | if writes { WRITES } else { 0 }
}

const fn contains(text: &str, word: &str) -> bool {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    let mut at = 0;
    while at + word.len() <= text.len() {
        let mut same = 0;
        while same < word.len() && text[at + same] == word[same] {
            same += 1;
        }
        if same == word.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// The key behind the last word `keyword` that is looked for from `first` on, where `words` have so many arguments.
pub(crate) const fn key_behind_last(
    keyword: &'static str,
    first: u8,
    words: &'static [(&'static str, u8)],
    flags: &'static str,
) -> KeySpec {
    KeySpec { words, ..keys_behind(keyword, first, 0, 0, flags) }
}

/// What a command runs over.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The keys of its row, in the session's database.
    Data,
    /// The keys of its row, in the session's database and in the one that the function names.
    Across(fn(ArgsView<'_>) -> Option<u16>),
    /// The keys of its row, and others that are found out from their values.
    Reaching,
    /// All keys.
    Everything,
    /// All keys, one stripe of them at a time; in a transaction as [`Kind::Everything`].
    Walk,
    /// A script or a function, over the keys of its row and what else it touches.
    Script(Invoked),
    /// TX.DO: a command that is staged.
    Stage,
    /// The session and the server.
    Control,
    /// Queued commands of MULTI.
    Exec,
    /// Subcommands.
    Container,
}

/// How a script is named, and what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invoked {
    /// What its first argument is.
    pub by: By,
    /// Whether it may change nothing.
    pub read_only: bool,
}

/// What the first argument of a command that runs a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its text.
    Source,
    /// The digest of a text that the server knows.
    Digest,
    /// The name of a function of a library.
    Name,
}

/// A set of properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

#[expect(missing_docs, reason = "names that COMMAND INFO tells clients")]
impl Flags {
    pub const NONE: Flags = Flags(0);
    pub const WRITE: Flags = Flags(1);
    pub const READONLY: Flags = Flags(1 << 1);
    pub const DENYOOM: Flags = Flags(1 << 2);
    pub const ADMIN: Flags = Flags(1 << 3);
    pub const PUBSUB: Flags = Flags(1 << 4);
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    pub const BLOCKING: Flags = Flags(1 << 6);
    pub const LOADING: Flags = Flags(1 << 7);
    pub const STALE: Flags = Flags(1 << 8);
    pub const SKIP_MONITOR: Flags = Flags(1 << 9);
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    pub const FAST: Flags = Flags(1 << 11);
    pub const NO_AUTH: Flags = Flags(1 << 12);
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 13);
    pub const NO_MULTI: Flags = Flags(1 << 14);
    pub const ALLOW_BUSY: Flags = Flags(1 << 15);
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 16);

    /// Both sets.
    pub const fn and(self, other: Flags) -> Flags {
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

const FLAG_NAMES: [&str; 17] = [
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
    "no_mandatory_keys",
];
