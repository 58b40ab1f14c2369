//! What a run may use: one object counts memory and time for the interpreter and for all functions of ours.
//!
//! ```text
//!  Luau's safepoints (loops, calls, returns, patterns) --\
//!                                                         tick -> every so much work: look -> over?
//!  functions of ours, for each value and each 1 KiB ------/
//!  functions of ours, before they allocate ------> charge -> used by Lua + held by us <= script.memory_limit?
//! ```
//!
//! Invariants
//!   1. What a run holds in Lua and in buffers of ours is within the limit together: a charge lowers what Lua may use.
//!   2. A run that is over stays so until the next one begins: every safepoint and every function of ours raises it again, so a script
//!      that catches it only gets as far as the next loop or call.
//!   3. The time is looked at after [`TICKS`] steps of work, and whenever the coarse clock has moved since the last step: a step that
//!      takes long is followed by a look.
//!
//! Luau has no collection on demand: memory that nobody uses any more is collected when a charge fails, and at a safepoint when a quarter of
//! the room was allocated that the last collection left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use clock::Nanos;
use mlua::Lua;

use super::pace::{Over, Pace};
use super::thrown::Thrown;

/// The use of memory and time by one interpreter.
#[derive(Debug)]
pub(super) struct Meter {
    /// `script.memory_limit`.
    limit_bytes: usize,
    /// What functions of ours hold.
    held_bytes: Cell<usize>,
    /// Whether Lua has to keep within the limit now.
    is_limited: Cell<bool>,
    pace: RefCell<Option<Pace>>,
    looks: Cell<u32>,
    over: Cell<Option<Over>>,
}

thread_local! {
    /// Steps of work until the time is looked at.
    static TICKS_LEFT: Cell<u32> = const { Cell::new(TICKS) };
    /// The coarse clock at the last step.
    static COARSE: Cell<u64> = const { Cell::new(0) };
    /// From so many bytes on Lua collects garbage at the next safepoint.
    static COLLECT_AT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The meter of the run that is going on in this thread.
    static CURRENT: RefCell<Option<Rc<Meter>>> = const { RefCell::new(None) };
}

impl Meter {
    pub(super) fn new(limit_bytes: usize) -> Self {
        let (held_bytes, looks) = (Cell::new(0), Cell::new(0));
        let (is_limited, pace, over) = (Cell::new(false), RefCell::new(None), Cell::new(None));
        Self { limit_bytes, held_bytes, is_limited, pace, looks, over }
    }

    /// Begins a run that goes by `pace`.
    pub(super) fn begin(self: &Rc<Self>, pace: Pace) {
        self.looks.set(0);
        self.over.set(None);
        self.held_bytes.set(0);
        *self.pace.borrow_mut() = Some(pace);
        TICKS_LEFT.set(TICKS);
        COARSE.set(clock::coarse());
        CURRENT.with(|current| *current.borrow_mut() = Some(Rc::clone(self)));
    }

    /// Lets the run go on until then.
    pub(super) fn prolong(&self, until: Nanos) {
        if let Some(pace) = &mut *self.pace.borrow_mut() {
            pace.until = until;
        }
    }

    /// Ends the run: why it was over before its end, if it was.
    pub(super) fn end(&self) -> Option<Over> {
        *self.pace.borrow_mut() = None;
        CURRENT.with(|current| *current.borrow_mut() = None);
        COLLECT_AT.set(usize::MAX);
        self.over.take()
    }

    /// The time of the run's clock in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.pace.borrow().as_ref().map_or(0.0, |pace| pace.clock.now().0 as f64 / 1e9)
    }

    /// Ends the attempt.
    pub(super) fn stop(&self, over: Over) -> mlua::Error {
        self.over.set(Some(self.over.get().unwrap_or(over)));
        // whoever catches it is met at the next step
        TICKS_LEFT.set(1);
        Thrown::Halt.into()
    }

    /// Counts `steps` of work of a function of ours; one is about a tenth of a microsecond.
    ///
    /// # Errors
    /// When the run is over.
    #[inline]
    pub(super) fn tick(&self, steps: usize) -> mlua::Result<()> {
        if counts_down(u32::try_from(steps).unwrap_or(u32::MAX)) { self.look() } else { Ok(()) }
    }

    /// Looks whether the run may go on.
    ///
    /// # Errors
    /// When it is over.
    pub(super) fn look(&self) -> mlua::Result<()> {
        TICKS_LEFT.set(TICKS);
        if let Some(over) = self.over.get() {
            return Err(self.stop(over));
        }
        let pace = self.pace.borrow();
        let Some(pace) = &*pace else { return Ok(()) };
        self.looks.set(self.looks.get() + 1);
        let is_looked_out = self.looks.get() > pace.looks_max;
        match pace.over().or(is_looked_out.then_some(Over::Time)) {
            Some(over) => Err(self.stop(over)),
            None => Ok(()),
        }
    }

    /// Calls `work` while Lua has to keep within the limit. Where it has, each call of Lua's is protected, which costs as much as a
    /// small script: so what we do ourselves, in bounds that we know, is done without.
    pub(super) fn limited<T>(&self, lua: &Lua, work: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
        self.is_limited.set(true);
        self.set_limit(lua)?;
        // what is in use may be garbage
        COLLECT_AT.set(self.limit_bytes / 2);
        let result = work();
        self.is_limited.set(false);
        self.set_limit(lua)?;
        result
    }

    /// Calls `work`, which makes a small value of known size, without the limit.
    pub(super) fn unlimited<T>(&self, lua: &Lua, work: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
        let was_limited = self.is_limited.replace(false);
        self.set_limit(lua)?;
        let result = work();
        self.is_limited.set(was_limited);
        self.set_limit(lua)?;
        result
    }

    fn set_limit(&self, lua: &Lua) -> mlua::Result<()> {
        let limit = if self.is_limited.get() { self.limit_bytes - self.held_bytes.get() } else { 0 };
        lua.set_memory_limit(limit).map(drop)
    }

    /// Bytes that may still be used.
    pub(super) fn room(&self, lua: &Lua) -> usize {
        self.limit_bytes.saturating_sub(lua.used_memory() + self.held_bytes.get())
    }

    /// Counts `bytes` that a function of ours is about to allocate, until what is returned is dropped.
    ///
    /// # Errors
    /// When the run would use more than it may.
    pub(super) fn charge<'m>(&'m self, lua: &'m Lua, bytes: usize) -> mlua::Result<Charge<'m>> {
        let mut charge = Charge { meter: self, lua, bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// When garbage is collected next, with `used` bytes in use after a collection.
    fn collect_at(&self, used: usize) -> usize {
        let room = self.limit_bytes.saturating_sub(used + self.held_bytes.get());
        used + (room / 4).max(self.limit_bytes / 32)
    }
}

/// Memory that a function of ours holds.
#[derive(Debug)]
pub(super) struct Charge<'m> {
    meter: &'m Meter,
    lua: &'m Lua,
    bytes: usize,
}

impl Charge<'_> {
    /// Counts so many more.
    ///
    /// # Errors
    /// When the run would use more than it may; then nothing is counted.
    pub(super) fn grow(&mut self, bytes: usize) -> mlua::Result<()> {
        if self.meter.room(self.lua) < bytes {
            self.lua.gc_collect()?;
            if self.meter.room(self.lua) < bytes {
                return Err(mlua::Error::MemoryError(OUT_OF_MEMORY.to_owned()));
            }
        }
        self.bytes += bytes;
        self.meter.held_bytes.set(self.meter.held_bytes.get() + bytes);
        self.meter.set_limit(self.lua)
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.meter.held_bytes.set(self.meter.held_bytes.get().saturating_sub(self.bytes));
        // it has room again: that is not refused
        let _ = self.meter.set_limit(self.lua);
    }
}

/// Bytes that grow under a [`Charge`].
#[derive(Debug)]
pub(super) struct Buffer<'m> {
    charge: Charge<'m>,
    bytes: Vec<u8>,
}

impl<'m> Buffer<'m> {
    pub(super) fn new(meter: &'m Meter, lua: &'m Lua) -> Self {
        Self { charge: Charge { meter, lua, bytes: 0 }, bytes: Vec::new() }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for `more` bytes, charged before they are allocated.
    ///
    /// # Errors
    /// When the run is over, or would use more than it may.
    pub(super) fn reserve(&mut self, more: usize) -> mlua::Result<()> {
        self.charge.meter.tick(1 + more / TICK_BYTES)?;
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            // as much again, or what there is room for
            let old = self.bytes.capacity();
            let grown = needed.max(2 * old).max(BUFFER_BYTES_MIN);
            let capacity = match self.charge.grow(grown) {
                Ok(()) => grown,
                Err(_) => self.charge.grow(needed).map(|()| needed)?,
            };
            // what was there is copied: for a moment both are held
            self.bytes.reserve_exact(capacity - self.bytes.len());
            self.charge.give_back(old);
        }
        Ok(())
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// As [`Buffer::reserve`].
    pub(super) fn extend(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends `byte`.
    ///
    /// # Errors
    /// As [`Buffer::reserve`].
    #[inline]
    pub(super) fn push(&mut self, byte: u8) -> mlua::Result<()> {
        if self.bytes.len() == self.bytes.capacity() {
            self.reserve(1)?;
        }
        self.bytes.push(byte);
        Ok(())
    }

    /// Bytes from `start` on in the opposite order.
    pub(super) fn reverse_from(&mut self, start: usize) {
        self.bytes[start..].reverse();
    }
}

impl Charge<'_> {
    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.meter.held_bytes.set(self.meter.held_bytes.get() - bytes);
        let _ = self.meter.set_limit(self.lua);
    }
}

/// Whether `steps` more of work are enough for a look.
#[inline]
fn counts_down(steps: u32) -> bool {
    match TICKS_LEFT.get().checked_sub(steps) {
        Some(left) if left > 0 => {
            TICKS_LEFT.set(left);
            false
        }
        _ => true,
    }
}

/// What a safepoint of Luau finds.
pub(super) enum Safepoint {
    GoOn,
    Collect,
    Stop,
}

/// A safepoint, with so many bytes in use.
#[inline]
pub(super) fn safepoint(used_bytes: usize) -> Safepoint {
    if used_bytes >= COLLECT_AT.get() {
        return Safepoint::Collect;
    }
    let coarse = clock::coarse();
    if counts_down(1) || coarse != COARSE.replace(coarse) {
        return looked();
    }
    Safepoint::GoOn
}

#[cold]
fn looked() -> Safepoint {
    let is_over =
        CURRENT.with(|current| current.borrow().as_ref().is_some_and(|meter| meter.look().is_err()));
    if is_over { Safepoint::Stop } else { Safepoint::GoOn }
}

/// Garbage was collected, which left so many bytes in use.
#[cold]
pub(super) fn collected(used_bytes: usize) {
    let at = CURRENT.with(|current| current.borrow().as_ref().map(|meter| meter.collect_at(used_bytes)));
    COLLECT_AT.set(at.unwrap_or(usize::MAX));
}

/// What Lua says when memory is used up.
pub(super) const OUT_OF_MEMORY: &str = "not enough memory";
/// Steps of work after which the time is looked at: some 25 µs.
const TICKS: u32 = 256;
/// Bytes that count as one.
const TICK_BYTES: usize = 1_024;
/// The first size of a buffer.
const BUFFER_BYTES_MIN: usize = 64;
