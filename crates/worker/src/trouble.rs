//! What keeps something from going on: seen again and again, for some time, with nothing good between.

use std::time::Duration;

use clock::Nanos;

/// Why something does not go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trouble(Option<Seen>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    first: Nanos,
    /// When it is over unless it is seen again; `None`: when that is said.
    until: Option<Nanos>,
    why: String,
}

impl Trouble {
    /// It does not go on until [`Trouble::clear`], and why.
    pub(crate) fn begin(&mut self, now: Nanos, why: &str) {
        self.see(now, None, why);
    }

    /// An attempt to go on has failed, and why.
    pub(crate) fn note(&mut self, now: Nanos, why: &str) {
        self.see(now, Some(now + AGAIN), why);
    }

    /// It goes on.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Why it has not gone on for a while.
    pub(crate) fn lasting(&self, now: Nanos) -> Option<&str> {
        let seen = self.current(now)?;
        (now.since(seen.first) >= LASTS).then_some(seen.why.as_str())
    }

    fn current(&self, now: Nanos) -> Option<&Seen> {
        self.0.as_ref().filter(|seen| seen.until.is_none_or(|until| now <= until))
    }

    fn see(&mut self, now: Nanos, until: Option<Nanos>, why: &str) {
        let first = self.current(now).map_or(now, |seen| seen.first);
        let why = why[..why.floor_char_boundary(WHY_BYTES_MAX)].to_owned();
        self.0 = Some(Seen { first, until, why });
    }
}

/// What is not seen again for so long is over. Longer than the pauses between two attempts.
const AGAIN: Duration = Duration::from_secs(15);
/// A pause after one failure is no trouble yet.
const LASTS: Duration = Duration::from_secs(3);
const WHY_BYTES_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos(1_000_000_000 * (100 + seconds))
    }

    #[test]
    fn trouble_is_shown_while_it_lasts() {
        let mut trouble = Trouble::default();
        trouble.note(at(0), "no file");
        assert_eq!(trouble.lasting(at(2)), None);
        trouble.note(at(2), "no file");
        assert_eq!(trouble.lasting(at(3)), Some("no file"));
        assert_eq!(trouble.lasting(at(18)), None, "it was not seen again");
        trouble.note(at(30), "no file");
        assert_eq!(trouble.lasting(at(31)), None, "that is another one");
        trouble.note(at(34), "no memory");
        assert_eq!(trouble.lasting(at(34)), Some("no memory"));
        trouble.clear();
        assert_eq!(trouble.lasting(at(34)), None);
        trouble.begin(at(40), "no file");
        assert_eq!((trouble.lasting(at(42)), trouble.lasting(at(4_000))), (None, Some("no file")));
    }
}
