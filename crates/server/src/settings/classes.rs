//! The classes of events that are told, in Redis's letters: the value of `notify.keyspace_events`.

use store::EventClass;

use super::error::Expected;
use super::kinds::Kind;

/// Which events are told, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(u32);

impl Classes {
    /// As [`Classes::bits`] has them.
    pub(crate) fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// As a number.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// `K`: by the key.
    pub(crate) fn tells_keys(self) -> bool {
        self.0 & KEYSPACE != 0
    }

    /// `E`: by the event.
    pub(crate) fn tells_events(self) -> bool {
        self.0 & KEYEVENT != 0
    }

    /// The classes as [`store::Store::want_notices`] takes them: none where nobody is told.
    pub(crate) fn events(self) -> u32 {
        if self.tells_keys() || self.tells_events() { self.0 & !(KEYSPACE | KEYEVENT | MODULE) } else { 0 }
    }
}

impl Kind for Classes {
    fn read(text: &str) -> Result<Self, Expected> {
        let mut bits = 0;
        for letter in text.chars() {
            let known = LETTERS.iter().chain(OTHERS).find(|(known, _)| *known == letter);
            bits |= match known {
                Some((_, bit)) => *bit,
                None if letter == 'A' => all(),
                None => return Err("classes of events: some of KEg$lshzxetdmnA".into()),
            };
        }
        Ok(Self(bits))
    }

    fn write(&self) -> String {
        let has = |(letter, bit): &(char, u32)| (self.0 & bit != 0).then_some(*letter);
        let mut text = String::new();
        if self.0 & all() == all() {
            text.push('A');
        } else {
            text.extend(LETTERS.iter().filter_map(has));
        }
        text.extend(OTHERS.iter().filter_map(has));
        text
    }
}

/// What `A` stands for.
fn all() -> u32 {
    LETTERS.iter().map(|(_, bit)| bit).sum()
}

const KEYSPACE: u32 = 1 << 28;
const KEYEVENT: u32 = 1 << 29;
/// Events of modules, of which there are none.
const MODULE: u32 = 1 << 30;

const LETTERS: &[(char, u32)] = &[
    ('g', EventClass::Generic.bit()),
    ('$', EventClass::String.bit()),
    ('l', EventClass::List.bit()),
    ('s', EventClass::Set.bit()),
    ('h', EventClass::Hash.bit()),
    ('z', EventClass::SortedSet.bit()),
    ('x', EventClass::Expired.bit()),
    ('e', EventClass::Evicted.bit()),
    ('t', EventClass::Stream.bit()),
    ('d', MODULE),
];

/// Those that `A` leaves out.
const OTHERS: &[(char, u32)] =
    &[('n', EventClass::New.bit()), ('K', KEYSPACE), ('E', KEYEVENT), ('m', EventClass::Missed.bit())];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_told_as_redis_tells_them() {
        for (text, told) in
            [("KEA", "AKE"), ("KEgn", "gnKE"), ("", ""), ("Kg$lshzxetd", "AK"), ("xE", "xE"), ("m", "m")]
        {
            assert_eq!(Classes::read(text).expect("known").write(), told, "{text}");
        }
        assert!(Classes::read("KEq").is_err());
        assert_eq!(Classes::read("gx").expect("known").events(), 0, "nobody is told");
        assert_eq!(Classes::read("Kg").expect("known").events(), EventClass::Generic.bit());
    }
}
