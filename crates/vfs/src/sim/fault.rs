//! Which operation fails, and how.

use std::ops::BitOr;

/// A set of kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// Opening an existing file or a folder.
    pub const OPEN: Self = Self(1);
    /// Creating a file.
    pub const CREATE: Self = Self(1 << 1);
    /// Reading bytes.
    pub const READ: Self = Self(1 << 2);
    /// Writing bytes.
    pub const WRITE: Self = Self(1 << 3);
    /// Syncing a file.
    pub const SYNC: Self = Self(1 << 4);
    /// Allocating space.
    pub const ALLOCATE: Self = Self(1 << 5);
    /// Changing a file's length.
    pub const SET_LEN: Self = Self(1 << 6);
    /// Renaming, removing or linking a name.
    pub const NAME: Self = Self(1 << 7);
    /// Syncing a folder.
    pub const SYNC_DIR: Self = Self(1 << 8);
    /// Listing a folder, asking for a length, a link count or space, dropping the cache, locking.
    pub const QUERY: Self = Self(1 << 9);
    /// Giving the space of a range back.
    pub const PUNCH: Self = Self(1 << 10);
    /// Whatever changes the disk: the moments at which a crash can differ from one before.
    pub const CHANGES: Self = Self(
        Self::CREATE.0
            | Self::WRITE.0
            | Self::SYNC.0
            | Self::ALLOCATE.0
            | Self::SET_LEN.0
            | Self::NAME.0
            | Self::SYNC_DIR.0
            | Self::PUNCH.0,
    );
    /// All of them.
    pub const ANY: Self = Self(u16::MAX);

    /// Whether every kind of `other` is in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as bits, for a digest.
    pub(super) const fn bits(self) -> u16 {
        self.0
    }
}

impl BitOr for Kinds {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What happens instead of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `EIO`. A write leaves an unknown part behind; after a failed sync the data counts as clean (Linux).
    Eio,
    /// `ENOSPC`, nothing is written.
    Enospc,
    /// `EMFILE`: the process has no descriptor left. For what opens something.
    Emfile,
    /// At most this many bytes are written, and reported.
    ShortWrite(usize),
    /// The write lands this many bytes further and reports success.
    Misdirect(i64),
    /// The write or sync reports success and does nothing.
    Lie,
    /// The write reports success and stays in the cache, whatever `O_DSYNC` says: a device that lies about its flushes.
    Cached,
    /// Power goes off while the operation runs: it may or may not arrive, and all later ones fail.
    PowerOff,
}

/// A fault that waits for its operation.
#[derive(Clone, Debug)]
pub struct Fault {
    kinds: Kinds,
    path_part: Option<String>,
    remaining: u64,
    repeats: bool,
    effect: Effect,
}

impl Fault {
    /// `effect` at the `nth` operation (from 1) that it is asked about; any kind, any path.
    #[must_use]
    pub fn at(nth: u64, effect: Effect) -> Self {
        Self { kinds: Kinds::ANY, path_part: None, remaining: nth.max(1), repeats: false, effect }
    }

    /// Counts only operations of these kinds.
    #[must_use]
    pub fn of(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// Counts only operations on paths that contain `part`.
    #[must_use]
    pub fn on(mut self, part: &str) -> Self {
        self.path_part = Some(part.to_owned());
        self
    }

    /// Strikes every operation from the `nth` on.
    #[must_use]
    pub fn repeated(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// Counts an operation; the effect if it is the one.
    pub(super) fn strike(&mut self, kind: Kinds, path: &str) -> Option<Effect> {
        let concerns = self.kinds.contains(kind)
            && self.path_part.as_ref().is_none_or(|part| path.contains(part.as_str()));
        if !concerns || self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        if self.remaining > 0 {
            return None;
        }
        if self.repeats {
            self.remaining = 1;
        }
        Some(self.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_strikes_the_nth_operation_of_its_kind_and_path_once() {
        let mut fault = Fault::at(2, Effect::Eio).of(Kinds::WRITE).on(".seg");
        assert_eq!(fault.strike(Kinds::WRITE, "a.seg"), None);
        assert_eq!(fault.strike(Kinds::READ, "a.seg"), None);
        assert_eq!(fault.strike(Kinds::WRITE, "MANIFEST"), None);
        assert_eq!(fault.strike(Kinds::WRITE, "b.seg"), Some(Effect::Eio));
        assert_eq!(fault.strike(Kinds::WRITE, "b.seg"), None);
    }

    #[test]
    fn repeated_fault_strikes_from_the_nth_on() {
        let mut fault = Fault::at(2, Effect::Enospc).of(Kinds::CHANGES).repeated();
        let struck: Vec<bool> = (0..4).map(|_| fault.strike(Kinds::SYNC, "x").is_some()).collect();
        assert_eq!(struck, [false, true, true, true]);
    }
}
