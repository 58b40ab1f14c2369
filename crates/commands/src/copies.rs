//! Large values that commands will store, copied or made before anything is locked.
//!
//! ```text
//!  a value as it was sent (SET)              row says which argument -> copied -> locked: found by the argument's index
//!  one made of what is there (APPEND)        locked: asked for, nothing done -> made -> locked: found if the base still is there
//! ```
//!
//! A megabyte takes a tenth of a millisecond to copy and to check: whoever needs a key of the same stripe would wait. A command
//! that parks keeps its copies, unless there is no room for what else it needs. Whoever loses the race for the base too often makes its value while the key is locked: so
//! somebody always gets on.

use std::sync::Arc;

use resp::ArgsView;
use store::{AwaitedMemory, Found, Large, Moment, Reserved, Store, Value};

use crate::payload;

/// Which arguments a command will certainly store as they are; part of its row.
#[derive(Clone, Copy, Debug)]
pub enum Stored {
    /// None.
    Nothing,
    /// The one at this index.
    At(u8),
    /// Every second one from this index on.
    Pairs(u8),
    /// What the payload at this index holds.
    Payload(u8),
}

/// A large value to be made: `base`, longer if need be, with the argument at `argument` over it from `at` on.
#[derive(Debug)]
pub struct Splice {
    base: Base,
    at: usize,
    argument: usize,
}

/// The value that another is made of.
#[derive(Debug)]
enum Base {
    Small(Box<[u8]>),
    Large(Arc<Large>),
}

/// One copy.
#[derive(Debug)]
struct Copy {
    command: usize,
    argument: usize,
    /// What it was made of, unless it is the argument alone.
    base: Option<Base>,
    large: Arc<Large>,
}

/// Copies of arguments, by command (its index in a transaction) and argument.
#[derive(Debug, Default)]
pub struct Copies {
    list: Vec<Copy>,
    /// Values that were made of others.
    made: u32,
    /// While the command is parked, what says that they are on their way.
    parked: Option<Reserved>,
    /// Since when the command has waited on though there was no room for one, in ms.
    crowded_since_ms: Option<u64>,
    /// Bytes of one to be made of another, for which there was no room: it is reserved before the other is read again.
    pub made_bytes: u64,
    /// Memory for the next one that the store is looking for.
    pub awaited: Option<AwaitedMemory>,
}

/// The copies that belong to one command.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    all: &'a Copies,
    command: usize,
}

impl Splice {
    /// The argument at `argument` over what was `found`, from `at` on.
    pub fn new(found: Option<Found<'_>>, at: usize, argument: usize) -> Self {
        Self { base: Base::of(found), at, argument }
    }

    /// How long the value gets that is made with this argument.
    pub fn bytes(&self, args: ArgsView<'_>) -> u64 {
        self.base.bytes().len().max(self.at + args.get(self.argument).len()) as u64
    }
}

/// `base` with `part` over it from `at` on, and zeroes between its end and there.
pub(crate) fn spliced(base: &[u8], at: usize, part: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(base.len().max(at + part.len()));
    value.extend_from_slice(&base[..base.len().min(at)]);
    value.resize(at, 0);
    value.extend_from_slice(part);
    value.extend_from_slice(base.get(value.len()..).unwrap_or_default());
    value
}

impl Base {
    fn of(found: Option<Found<'_>>) -> Self {
        match found.and_then(|found| found.large) {
            Some(large) => Self::Large(Arc::clone(large)),
            None => Self::Small(found.map_or(&[][..], |found| found.value).into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Large(large) => (**large).as_ref(),
        }
    }

    /// Whether this is what is there now. A large value is itself as long as we hold it; nobody compares its bytes.
    fn is(&self, found: Option<Found<'_>>) -> bool {
        match (self, found.and_then(|found| found.large)) {
            (Self::Large(large), Some(there)) => Arc::ptr_eq(large, there),
            (Self::Small(bytes), None) => **bytes == *found.map_or(&[][..], |found| found.value),
            _ => false,
        }
    }
}

impl Copies {
    /// None, and none will be made: what is large is copied, or made, while its key is locked.
    pub fn closed() -> Self {
        Self::default().into_closed()
    }

    /// The same of those of a command that goes on.
    pub fn into_closed(self) -> Self {
        Self { list: Vec::new(), made: MADE_MAX, ..self }
    }

    /// Copies what command number `command` will store.
    pub fn add(&mut self, store: &Store, command: usize, stored: Stored, args: ArgsView<'_>) {
        let indices = match stored {
            Stored::Nothing => return,
            Stored::At(index) => usize::from(index)..usize::from(index) + 1,
            Stored::Pairs(first) => first.into()..args.len(),
            Stored::Payload(index) => {
                let argument = usize::from(index);
                let value = args.try_get(argument).filter(|payload| payload.len() >= Large::BYTES_MIN);
                // a collection is made anew: it is not stored as it came
                let made = value.and_then(payload::plain_string).and_then(|string| store.large(string).ok());
                self.list.extend(made.map(|large| Copy { command, argument, base: None, large }));
                return;
            }
        };
        for argument in indices.step_by(2) {
            let made = args.try_get(argument).and_then(|value| store.large(value).ok());
            self.list.extend(made.map(|large| Copy { command, argument, base: None, large }));
        }
    }

    /// Makes what command number `command` asked for.
    pub fn make(&mut self, store: &Store, command: usize, splice: Splice, args: ArgsView<'_>) {
        self.made += 1;
        let Splice { base, at, argument } = splice;
        let Ok(large) = store.large(spliced(base.bytes(), at, args.get(argument))) else { return };
        let copy = Copy { command, argument, base: Some(base), large };
        match self.position(command, argument) {
            Ok(at) => self.list[at] = copy,
            Err(at) => self.list.insert(at, copy),
        }
    }

    /// Keeps them for a command that parks, which had memory `reserved` for them.
    pub fn park(&mut self, reserved: Option<Reserved>) {
        self.parked = reserved.filter(|it| !self.list.is_empty() || it.has_room_for(self.made_bytes));
        if !self.list.is_empty() {
            self.parked.iter_mut().for_each(Reserved::parked);
        }
    }

    /// Whether the command waits on at `now` where there is no room.
    pub fn waits_on(&mut self, now: Moment) -> bool {
        let now_ms = now.server_ms();
        now_ms.saturating_sub(*self.crowded_since_ms.get_or_insert(now_ms)) < CROWDED_MS_MAX
    }

    /// Whether the command has waited on because there was no room.
    pub fn is_crowded(&self) -> bool {
        self.crowded_since_ms.is_some()
    }

    /// The command goes on, with the memory for a value that is still to be made.
    pub fn unpark(&mut self) -> Option<Reserved> {
        self.parked.take().filter(|_| self.list.is_empty())
    }

    /// Drops them all: there is no room for what else their command needs.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Those of command number `command`.
    pub fn of(&self, command: usize) -> Copied<'_> {
        Copied { all: self, command }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn position(&self, command: usize, argument: usize) -> Result<usize, usize> {
        self.list.binary_search_by_key(&(command, argument), |copy| (copy.command, copy.argument))
    }
}

impl<'a> Copied<'a> {
    /// The value in the argument at `index`, copied already or not.
    pub fn value(self, args: ArgsView<'a>, index: usize) -> Value<'a> {
        self.find(index).unwrap_or_else(|| Value::String(args.get(index)))
    }

    /// The copy made for the argument at `index`.
    pub fn find(self, index: usize) -> Option<Value<'a>> {
        let at = self.all.position(self.command, index).ok()?;
        Some(Value::Large(&self.all.list[at].large))
    }

    /// What was made with the argument at `index` of the value that was `found`.
    pub fn made(self, index: usize, found: Option<Found<'_>>) -> Option<Value<'a>> {
        let copy = &self.all.list[self.all.position(self.command, index).ok()?];
        copy.base.as_ref().filter(|base| base.is(found))?;
        Some(Value::Large(&copy.large))
    }

    /// Whether to ask for another value to be made: each time the whole request runs again.
    pub(crate) fn may_ask(self) -> bool {
        self.all.made < MADE_MAX
    }
}

/// How long a command waits where what takes its room is on its way. Clients that read slowly may keep it for ever.
const CROWDED_MS_MAX: u64 = 2_000;
/// Values made for one request before its keys are locked.
const MADE_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::{SimClock, UnixMs};
    use store::{EngineKind, Options};

    use super::*;

    #[test]
    fn command_waits_for_what_is_on_its_way_for_two_seconds_and_no_longer() {
        let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
        let options = Options {
            engine: EngineKind::Memory,
            background: false,
            clock: clock.clone(),
            ..Options::default()
        };
        let (store, mut copies) = (Store::open(options).expect("memory always opens"), Copies::default());
        assert!(!copies.is_crowded());
        for (after_ms, waits) in [(0, true), (1_999, true), (1, false), (3_600_000, false)] {
            clock.advance(Duration::from_millis(after_ms));
            assert_eq!(copies.waits_on(store.now()), waits, "{after_ms} ms later");
        }
        assert!(copies.is_crowded());
    }

    #[test]
    fn part_replaces_extends_or_leaves_a_gap() {
        for (base, at, part, made) in [
            ("", 0, "abc", "abc"),
            ("", 2, "c", "\0\0c"),
            ("abcdef", 0, "XY", "XYcdef"),
            ("abcdef", 2, "XY", "abXYef"),
            ("abcdef", 4, "XY", "abcdXY"),
            ("abcdef", 5, "XY", "abcdeXY"),
            ("abcdef", 6, "XY", "abcdefXY"),
            ("abcdef", 7, "XY", "abcdef\0XY"),
        ] {
            assert_eq!(spliced(base.as_bytes(), at, part.as_bytes()), made.as_bytes(), "{base} {at} {part}");
        }
    }
}
