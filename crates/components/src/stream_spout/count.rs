//! How many entries are asked for at a time: fewer after a reply that would have been too large.

/// Half as many after a reply that was too large, one more after each that was not.
#[derive(Debug)]
pub(super) struct Count {
    now: usize,
    most: usize,
}

impl Count {
    pub(super) fn new(most: usize) -> Self {
        Self { now: most, most }
    }

    /// How many are to be asked for, in words.
    pub(super) fn text(&self) -> String {
        self.now.to_string()
    }

    /// There was a reply that was taken.
    pub(super) fn on_taken(&mut self) {
        self.now = (self.now + 1).min(self.most);
    }

    /// The reply was too large; whether fewer can be asked for.
    pub(super) fn on_too_large(&mut self) -> bool {
        let can_ask = self.now > 1;
        self.now = (self.now / 2).max(1);
        can_ask
    }
}

/// Whether a server says in `error` that it cannot answer so much at once.
pub(super) fn is_too_large(error: &[u8]) -> bool {
    String::from_utf8_lossy(error).contains("ask for fewer at once")
}

/// That one entry of `key` alone is too large, the first behind the one with the id `last`.
pub(super) fn alone(key: &str, last: &str, error: &[u8]) -> String {
    let error = String::from_utf8_lossy(error);
    format!(
        "the entry behind {last} of `{key}` is too large to be read, and holds up those behind it: raise the limit or XDEL it: {error}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_halved_to_one_and_grows_to_what_it_was() {
        let mut count = Count::new(5);
        let halved: Vec<(bool, String)> = (0..3).map(|_| (count.on_too_large(), count.text())).collect();
        assert_eq!(halved, [(true, "2".to_owned()), (true, "1".to_owned()), (false, "1".to_owned())]);
        for _ in 0..10 {
            count.on_taken();
        }
        assert_eq!(count.text(), "5");
    }
}
