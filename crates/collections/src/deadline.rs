//! When keys and fields end, and what is compared with it.
//!
//! ```text
//! Deadline u64:  bit 63 set: server time in ms (a TTL)    clear: Unix time in ms (EXPIREAT; all of older folders)
//! ```

use std::time::Duration;

use clock::UnixMs;

/// When a key ends: after a duration, or at a time of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// At a time of the wall clock.
    #[must_use]
    pub fn at(unix: UnixMs) -> Self {
        Self(unix.0.clamp(1, SERVER - 1))
    }

    /// As records have it; `None` for 0.
    pub fn of(raw: u64) -> Option<Self> {
        (raw != 0).then_some(Self(raw))
    }

    /// As records have it: never 0.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Whether it is a time of the wall clock.
    #[must_use]
    pub fn is_wall(self) -> bool {
        self.0 & SERVER == 0
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
        Deadline(SERVER | self.server_ms.saturating_add(ms).min(SERVER - 1))
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
        (deadline.0 & !SERVER).saturating_sub(now_ms)
    }

    /// The time of the wall clock at `deadline`, as far as is known now.
    #[must_use]
    pub fn unix_of(self, deadline: Deadline) -> UnixMs {
        let at = deadline.0 & !SERVER;
        let offset_ms = self.wall_ms.cast_signed() - self.server_ms.cast_signed();
        UnixMs(if deadline.is_wall() { at } else { at.saturating_add_signed(offset_ms) })
    }

    /// Server time at `deadline`, as far as is known now.
    pub fn server_ms_of(self, deadline: Deadline) -> u64 {
        let offset_ms = self.wall_ms.cast_signed() - self.server_ms.cast_signed();
        let at = deadline.0 & !SERVER;
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
