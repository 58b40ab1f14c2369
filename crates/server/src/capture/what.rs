//! What is recorded of a request: which of its arguments, and how much of each.
//!
//! | argument | recorded |
//! |---|---|
//! | key | its size and a hash, or (KEYS PLAIN) itself |
//! | password, and a name that goes with one | that there is one |
//! | word of the command's grammar (EX, NX), number that is no value | itself: without it the request is another one |
//! | anything else | its size, or (VALUES) itself |
//!
//! A key's hash is the store's, which is keyed by the folder, mixed with a secret of the capture: who has two files cannot tell
//! which keys are the same, and who has the keys cannot look for them.

use capture::Argument;
use commands::command::{Command, Kind};
use commands::copies::Stored;
use commands::lookup::{Entry, Table};
use resp::ArgsView;
use store::{Foreseen, Store};

use crate::secrets::is_secret;

/// What somebody wants captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) hashes_keys: bool,
    pub(crate) keeps_values: bool,
    /// The header's bytes and those of all chunks.
    pub(crate) bytes_max: u64,
}

/// What is recorded of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) args: ArgsView<'a>,
    /// What is known of the argument at [`Asked::FORESEEN_ARG`] as a key.
    pub(crate) foreseen: Option<Foreseen>,
    /// Its size as received.
    pub(crate) bytes: usize,
}

impl Asked<'_> {
    /// Nearly every command that has keys has its first one there.
    pub(crate) const FORESEEN_ARG: usize = 1;
}

/// What a capture wants, and what follows from that.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) wanted: Wanted,
    /// What hashes of keys are mixed with; told to nobody.
    secret: [u64; 2],
    /// How requests of each command are recorded, by its id; `None`: not at all.
    shapes: Box<[Option<Shape>]>,
}

/// What the requests of a command look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// With up to so many arguments, the name included, they have a key behind the name, and perhaps a value behind that; the key
    /// is told by its hash, the value by its size. 0: each argument is looked at.
    plain_args_max: u8,
}

impl Plan {
    pub(super) fn new(wanted: &Wanted, table: &'static Table, secret: [u64; 2]) -> Self {
        let shape = |entry: &Entry| Shape::of(entry.command, wanted);
        let shapes = table.entries().iter().map(shape).collect();
        Plan { wanted: *wanted, secret, shapes }
    }

    /// How requests of this kind are recorded; `None`: not at all.
    #[inline]
    pub(super) fn shape(&self, entry: &Entry) -> Option<Shape> {
        self.shapes[usize::from(entry.id)]
    }

    /// The key of a plain request, by its size and hash, and its value's size, if it has one.
    #[inline]
    pub(super) fn plain(&self, args: ArgsView<'_>, key: Foreseen) -> ((u32, u64), Option<u32>) {
        let hash = mixed(key.bits(), self.secret);
        ((size(args.get(Asked::FORESEEN_ARG)), hash), args.try_get(2).map(size))
    }

    /// The arguments of any request.
    pub(super) fn arguments<'a>(
        &self,
        store: &Store,
        entry: &Entry,
        request: Asked<'a>,
    ) -> impl Iterator<Item = Argument<'a>> {
        let first = if entry.command.name.contains('|') { 2 } else { 1 };
        (first..request.args.len()).map(move |index| self.argument(entry, store, request, index))
    }

    fn argument<'a>(&self, entry: &Entry, store: &Store, request: Asked<'a>, index: usize) -> Argument<'a> {
        let (arg, command) = (request.args.get(index), entry.command);
        let is_small = arg.len() <= ARGUMENT_BYTES_MAX && request.bytes <= REQUEST_BYTES_MAX;
        if command.is_key(request.args, index) {
            let in_full = is_small && !self.wanted.hashes_keys;
            if in_full {
                return Argument::Key(arg);
            }
            let (size, hash) = self.hash(arg, store, request, index);
            return Argument::Hashed(size, hash);
        }
        if is_secret(entry, request.args, index) {
            return Argument::Secret;
        }
        let in_full = self.wanted.keeps_values || is_word(command, arg, index, request.args.len());
        if in_full && is_small { Argument::Full(arg) } else { Argument::Sized(size(arg)) }
    }

    fn hash(&self, key: &[u8], store: &Store, request: Asked<'_>, index: usize) -> (u32, u64) {
        let known = request.foreseen.filter(|_| index == Asked::FORESEEN_ARG);
        let bits = known.unwrap_or_else(|| store.foreseen(key)).bits();
        (size(key), mixed(bits, self.secret))
    }
}

impl Shape {
    /// Whether [`Plan::plain`] tells all of such a request.
    #[inline]
    pub(super) fn is_plain(self, args: ArgsView<'_>) -> bool {
        (2..=usize::from(self.plain_args_max)).contains(&args.len())
    }

    fn of(command: &Command, wanted: &Wanted) -> Option<Self> {
        // Those for captures are not recorded.
        let is_recorded = command.name.split('|').next() != Some("capture");
        let has_key_first = matches!(command.keys, [spec] if (spec.first, spec.last) == (1, 0))
            && matches!(command.kind, Kind::Data);
        let plain_args_max = if !has_key_first || !wanted.hashes_keys || wanted.keeps_values {
            0
        } else if is_value(command, 2, 3) {
            3
        } else {
            2
        };
        is_recorded.then_some(Shape { plain_args_max })
    }
}

/// Half of a product whose factors nobody knows.
#[inline]
fn mixed(bits: u128, [low, high]: [u64; 2]) -> u64 {
    let product = u128::from(bits as u64 ^ low) * u128::from((bits >> 64) as u64 ^ high);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn size(arg: &[u8]) -> u32 {
    u32::try_from(arg.len()).unwrap_or(u32::MAX)
}

/// Whether the argument becomes a value, or part of one.
fn is_value(command: &Command, index: usize, count: usize) -> bool {
    match command.stored {
        Stored::At(at) | Stored::Payload(at) => index == usize::from(at),
        Stored::Pairs(first) => index >= usize::from(first) && (index - usize::from(first)).is_multiple_of(2),
        Stored::Nothing => matches!(command.name, "append" | "setrange") && index + 1 == count,
    }
}

/// Whether the argument says what is to be done, and nothing of the data.
fn is_word(command: &Command, arg: &[u8], index: usize, count: usize) -> bool {
    let is_about_data = !matches!(command.kind, Kind::Control | Kind::Stage) || command.name == "select";
    if !is_about_data || arg.len() > WORD_BYTES_MAX || is_value(command, index, count) {
        return false;
    }
    let is_number = arg.iter().any(u8::is_ascii_digit)
        && arg.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
    is_number || is_token(command.args, arg)
}

/// Whether the grammar of a command has the token `=WORD`.
fn is_token(grammar: &str, word: &[u8]) -> bool {
    grammar.split('=').skip(1).any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        rest.as_bytes()[..end].eq_ignore_ascii_case(word)
    })
}

/// A request with more of them is dropped.
pub(super) const ARGUMENTS_MAX: usize = 10_000;
/// Longer arguments are recorded by their size, longer keys by their hash.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;
/// So are all arguments of longer requests: one record is to fit into what a loop keeps.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// As long as numbers and words are.
const WORD_BYTES_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::commands;

    fn words(line: &str) -> Vec<&str> {
        let parts: Vec<&str> = line.split(' ').collect();
        let command = commands().find(parts[0].as_bytes()).expect("a command").command;
        let args = resp::Args::from_slices(&parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>());
        let is_shown = |index: &usize| {
            !command.is_key(args.view(&[]), *index)
                && is_word(command, parts[*index].as_bytes(), *index, parts.len())
        };
        (1..parts.len()).filter(is_shown).map(|index| parts[index]).collect()
    }

    #[test]
    fn words_and_numbers_that_say_what_to_do_are_told_and_values_are_not() {
        assert_eq!(words("set k 17 EX 100 nx"), ["EX", "100", "nx"]);
        assert_eq!(words("setex k 10 20"), ["10"]);
        assert_eq!(words("mset a 1 b 2"), Vec::<&str>::new());
        assert_eq!(words("setrange k 5 6"), ["5"]);
        assert_eq!(words("append k 6"), Vec::<&str>::new());
        assert_eq!(words("incrbyfloat k -1.5e3"), ["-1.5e3"]);
        assert_eq!(words("scan 0 match user:* count 10"), ["0", "match", "count", "10"]);
        assert_eq!(words("getrange k 0 -1"), ["0", "-1"]);
        assert_eq!(words("select 3"), ["3"]);
        assert_eq!(words("echo 3"), Vec::<&str>::new());
        assert_eq!(words("publish 1 2"), Vec::<&str>::new());
    }

    #[test]
    fn hashes_of_two_captures_have_nothing_in_common() {
        let all =
            |secret| (0..1_000u128).map(|key| mixed((key << 100) | (key * 7), secret)).collect::<Vec<_>>();
        let (one, two) = (all([0x1234_5678_9abc_def1, 77]), all([0xfeed_beef_0bad_cafe, 78]));
        assert!(one.iter().zip(&two).all(|(one, two)| one != two));
    }
}
