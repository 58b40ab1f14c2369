//! Identifiers of entries: a time in milliseconds, and a number among those of the same time.

use std::fmt;

/// An identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

/// Not an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdError;

/// The identifier that XADD is to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// `*`: by the clock.
    Any,
    /// `ms-*`: the next of this time.
    At(u64),
    Exactly(Id),
}

impl Id {
    pub(crate) const MIN: Self = Self { ms: 0, seq: 0 };
    pub(crate) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// `ms` or `ms-seq`; without `seq` it is `seq_missing`.
    pub(crate) fn parse(text: &[u8], seq_missing: u64) -> Result<Self, IdError> {
        let mut halves = text.splitn(2, |byte| *byte == b'-');
        let (ms, seq) = (halves.next().unwrap_or_default(), halves.next());
        Ok(Self { ms: number(ms)?, seq: seq.map_or(Ok(seq_missing), number)? })
    }

    /// An end of a range: `-` and `+`, too, and `(` before one that is not in it, which is why the flag is there.
    pub(crate) fn parse_bound(text: &[u8], seq_missing: u64) -> Result<(Self, bool), IdError> {
        match text {
            b"-" => Ok((Self::MIN, false)),
            b"+" => Ok((Self::MAX, false)),
            [b'(', text @ ..] => Ok((Self::parse(text, seq_missing)?, true)),
            _ => Ok((Self::parse(text, seq_missing)?, false)),
        }
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// Calls `told` with the text that clients know it by.
    pub(crate) fn tell<R>(self, told: impl FnOnce(&[u8]) -> R) -> R {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (ms, seq) = (ms.format(self.ms), seq.format(self.seq));
        let mut text = [b'-'; TEXT_BYTES_MAX];
        let len = ms.len() + 1 + seq.len();
        text[..ms.len()].copy_from_slice(ms.as_bytes());
        text[ms.len() + 1..len].copy_from_slice(seq.as_bytes());
        told(&text[..len])
    }

    fn of(number: u128) -> Self {
        Self { ms: (number >> 64) as u64, seq: number as u64 }
    }

    /// The next one.
    pub(crate) fn after(self) -> Option<Self> {
        u128::from_be_bytes(self.bytes()).checked_add(1).map(Self::of)
    }

    /// The one before.
    pub(crate) fn before(self) -> Option<Self> {
        u128::from_be_bytes(self.bytes()).checked_sub(1).map(Self::of)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(|text| f.write_str(&String::from_utf8_lossy(text)))
    }
}

impl Wanted {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, IdError> {
        match text {
            b"*" => Ok(Self::Any),
            _ => match text.strip_suffix(b"-*") {
                Some(ms) => Ok(Self::At(number(ms)?)),
                None => Ok(Self::Exactly(Id::parse(text, 0)?)),
            },
        }
    }

    /// The identifier behind `last` at the time `now_ms`; `None`: there is none that is greater.
    pub(crate) fn settle(self, last: Id, now_ms: u64) -> Option<Id> {
        match self {
            Self::Any if now_ms > last.ms => Some(Id { ms: now_ms, seq: 0 }),
            Self::Any => last.after(),
            Self::At(ms) if ms == last.ms => Some(Id { ms, seq: last.seq.checked_add(1)? }),
            Self::At(ms) => Some(Id { ms, seq: 0 }).filter(|id| *id > last),
            Self::Exactly(id) => Some(id).filter(|id| *id > last),
        }
    }
}

/// A number in decimal; spaces and a plus sign may be before it, as Redis takes them.
fn number(digits: &[u8]) -> Result<u64, IdError> {
    let text = std::str::from_utf8(digits).map_err(|_| IdError)?;
    text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).parse().map_err(|_| IdError)
}

/// Of two numbers and what is between them.
const TEXT_BYTES_MAX: usize = 2 * 20 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_written_and_counted_up_and_down() {
        let id = |ms, seq| Id { ms, seq };
        assert_eq!(Id::parse(b"5-7", 0), Ok(id(5, 7)));
        assert_eq!(Id::parse(b"5", 9), Ok(id(5, 9)));
        assert_eq!(Id::parse(b" 5-\t+7", 0), Ok(id(5, 7)), "as in Redis");
        assert_eq!(Id::parse(b"18446744073709551615-18446744073709551615", 0), Ok(Id::MAX));
        for wrong in ["", "-", "5-", "-5", "a", "5-a", "5-5-5", "18446744073709551616", "5 ", "+ 5", "++5"] {
            assert_eq!(Id::parse(wrong.as_bytes(), 0), Err(IdError), "{wrong:?}");
        }
        assert_eq!(Id::parse_bound(b"(5", 3), Ok((id(5, 3), true)));
        assert_eq!((id(1, u64::MAX).after(), id(2, 0).before()), (Some(id(2, 0)), Some(id(1, u64::MAX))));
        assert_eq!((Id::MAX.after(), Id::MIN.before()), (None, None));
        assert_eq!(id(12, 3).to_string(), "12-3");
        assert_eq!(Id::MAX.to_string(), "18446744073709551615-18446744073709551615");
    }

    #[test]
    fn new_identifier_is_behind_the_last() {
        let (last, id) = (Id { ms: 5, seq: 7 }, |ms, seq| Some(Id { ms, seq }));
        for (wanted, now_ms, expected) in [
            ("*", 9, id(9, 0)),
            ("*", 5, id(5, 8)),
            ("*", 2, id(5, 8)),
            ("5-*", 0, id(5, 8)),
            ("6-*", 0, id(6, 0)),
            ("4-*", 0, None),
            ("5-8", 0, id(5, 8)),
            ("5-7", 0, None),
        ] {
            let wanted = Wanted::parse(wanted.as_bytes()).expect("an identifier");
            assert_eq!(wanted.settle(last, now_ms), expected, "{wanted:?}");
        }
        let end = Id { ms: 5, seq: u64::MAX };
        assert_eq!(Wanted::At(5).settle(end, 0), None);
        assert_eq!(Wanted::Any.settle(end, 5), id(6, 0));
        assert_eq!(Wanted::Any.settle(Id::MAX, 5), None);
        assert!(Wanted::parse(b"x-*").is_err());
    }
}
