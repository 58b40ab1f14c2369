//! When keys and fields end, and what is compared with it.
//!
//! ```text
//! Deadline u64, never 0:  bit 63 set: server time in ms (a TTL)    clear: Unix time in ms (EXPIREAT; all of older folders)
//! ```

use std::num::NonZeroU64;
use std::time::Duration;

use clock::UnixMs;

/// When a key ends: after a duration, or at a time of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(NonZeroU64);

impl Deadline {
    /// The first of the wall clock.
    pub const WALL_MIN: Self = Self(NonZeroU64::MIN);
    /// The first of the server's clock; those of the wall clock come before it.
    pub const SERVER_MIN: Self = Self(SERVER_MARK);
    /// The last of all.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// At a time of the wall clock.
    #[must_use]
    pub fn at(unix: UnixMs) -> Self {
        Self(NonZeroU64::new(unix.0.min(SERVER - 1)).unwrap_or(NonZeroU64::MIN))
    }

    /// As records have it; `None` for 0.
    #[must_use]
    #[inline]
    pub const fn of(raw: u64) -> Option<Self> {
        match NonZeroU64::new(raw) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// As records have it: never 0.
    #[inline]
    pub fn raw(self) -> u64 {
        self.0.get()
    }

    /// Ms, of the clock that [`Deadline::is_wall`] tells.
    #[must_use]
    #[inline]
    pub fn ms(self) -> u64 {
        self.raw() & !SERVER
    }

    /// `expiry` as records have it: 0 for none.
    #[inline]
    pub fn raw_or_zero(expiry: Option<Self>) -> u64 {
        expiry.map_or(0, Self::raw)
    }

    /// Whether it is a time of the wall clock.
    #[must_use]
    #[inline]
    pub fn is_wall(self) -> bool {
        self.raw() & SERVER == 0
    }
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    server_ms: u64,
    wall_ms: u64,
}

impl Moment {
    /// Server time `server_ms`, when the wall clock shows `unix`.
    #[must_use]
    pub const fn new(server_ms: u64, unix: UnixMs) -> Self {
        Self { server_ms, wall_ms: unix.0 }
    }

    /// Wall-clock time.
    #[must_use]
    pub fn unix(self) -> UnixMs {
        UnixMs(self.wall_ms)
    }

    /// Server time in ms.
    #[must_use]
    pub fn server_ms(self) -> u64 {
        self.server_ms
    }

    /// The deadline of a TTL of `ms` that begins now.
    #[must_use]
    pub fn after(self, ms: u64) -> Deadline {
        Deadline(SERVER_MARK | self.server_ms.saturating_add(ms).min(SERVER - 1))
    }

    /// Whether `deadline` is not later than this.
    #[must_use]
    pub fn has_passed(self, deadline: Deadline) -> bool {
        self.left_ms(deadline) == 0
    }

    /// Time from this to `deadline`, 0 when it has passed.
    #[must_use]
    pub fn left_ms(self, deadline: Deadline) -> u64 {
        let now_ms = if deadline.is_wall() { self.wall_ms } else { self.server_ms };
        deadline.ms().saturating_sub(now_ms)
    }

    /// The time of the wall clock at `deadline`, as far as is known now.
    #[must_use]
    pub fn unix_of(self, deadline: Deadline) -> UnixMs {
        let at = deadline.ms();
        let offset_ms = self.wall_ms.cast_signed() - self.server_ms.cast_signed();
        UnixMs(if deadline.is_wall() { at } else { at.saturating_add_signed(offset_ms) })
    }

    /// Server time at `deadline`, as far as is known now.
    pub fn server_ms_of(self, deadline: Deadline) -> u64 {
        let offset_ms = self.wall_ms.cast_signed() - self.server_ms.cast_signed();
        let at = deadline.ms();
        if deadline.is_wall() { at.saturating_add_signed(-offset_ms) } else { at }
    }

    /// The time of the wall clock at server time `server_ms`, as far as is known now.
    pub fn unix_at(self, server_ms: u64) -> UnixMs {
        let offset_ms = self.wall_ms.cast_signed() - self.server_ms.cast_signed();
        UnixMs(server_ms.saturating_add_signed(offset_ms))
    }

    /// This moment and `elapsed`.
    #[must_use]
    pub fn later(self, elapsed: Duration) -> Self {
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Self { server_ms: self.server_ms.saturating_add(ms), wall_ms: self.wall_ms.saturating_add(ms) }
    }

    /// Deadlines below this are times of the wall clock, the others of the server.
    pub const SERVER: u64 = SERVER;

    /// The latest deadlines that have passed: of the wall clock, and of the server.
    pub fn passed(self) -> [u64; 2] {
        [self.wall_ms.min(SERVER - 1), SERVER | self.server_ms.min(SERVER - 1)]
    }
}

/// Set in a deadline of the server's clock.
const SERVER: u64 = 1 << 63;
const SERVER_MARK: NonZeroU64 = NonZeroU64::new(SERVER).unwrap();
