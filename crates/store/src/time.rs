//! Server time and deadlines: when keys end, whatever the wall clock does.
//!
//! ```text
//! server time = uptime of the machine + a constant that the log keeps    never steps; goes on over restarts
//! wall time   = server time + an offset that changes when the wall clock is set
//! ```
//!
//! Invariants
//!   1. Server time never runs back while the process runs, nor over a restart while the machine stays up.
//!   2. A clock record that is not older than [`RECORD_AGE_MS`] precedes each effect with a TTL in the log, and a step of
//!      the wall clock is in the log before anything is judged by it, unless the disk is full.
//!   3. A key that had passed its deadline at some time that was judged by stays passed: a step back leaves a *ceiling*,
//!      below which the deadlines of older effects have passed.
//!
//! Appending the record is left to `lib`; which record is the newest one, to `index`. Decision: docs/adr/0014-time-and-expiry.md.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use clock::{Clock, UnixMs};
use collections::{Deadline, Moment};
use journal::Seq;

/// Deadlines of the wall clock up to `wall_ms` have passed if an effect up to `seq` set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ceiling {
    pub(crate) wall_ms: u64,
    /// [`OWN_SEQ`]: that of the record which states it.
    pub(crate) seq: Seq,
}

/// What the log says of the clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockRecord {
    pub(crate) boot: u128,
    pub(crate) uptime_us: u64,
    pub(crate) server_us: u64,
    pub(crate) wall_us: u64,
    pub(crate) ceilings: Vec<Ceiling>,
}

/// How often and how far the wall clock was set by more than a second while the store watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReport {
    /// Jumps forward since the start.
    pub jumps_forward: u64,
    /// Jumps back since the start.
    pub jumps_back: u64,
    /// The last one, in ms; negative: back.
    pub last_jump_ms: i64,
    /// Wall-clock time less server time, in ms.
    pub offset_ms: i64,
}

/// A step of the wall clock that was measured and is not judged by yet.
#[derive(Debug)]
pub(crate) struct Step {
    offset_us: i64,
    change_us: i64,
    pub(crate) record: ClockRecord,
}

/// The store's time.
#[derive(Debug)]
pub(crate) struct StoreClock {
    source: Arc<dyn Clock>,
    boot: u128,
    /// Server time less uptime.
    base_us: i64,
    /// Wall-clock time less server time.
    offset_us: AtomicI64,
    /// The latest server time that was judged by.
    latest_ms: AtomicU64,
    has_ceilings: AtomicBool,
    ceilings: RwLock<Vec<Ceiling>>,
    /// Held by who takes care of a step.
    stepping: Mutex<Told>,
    /// Server time of the newest record in the log; [`NEVER`]: none, or it says too little.
    recorded_ms: AtomicU64,
    /// Wall-clock time that the newest record states.
    recorded_wall_ms: AtomicU64,
    /// A step or a ceiling is not in the log.
    is_unrecorded: AtomicBool,
    jumps_forward: AtomicU64,
    jumps_back: AtomicU64,
    last_jump_ms: AtomicI64,
}

/// What was said in the log file of jumps.
#[derive(Debug, Default)]
struct Told {
    /// Server time of the last line.
    at_ms: Option<u64>,
    unsaid: u64,
}

impl StoreClock {
    /// Goes on from the newest `record` of the log, whose newest effect is `newest_seq`. Without a record `floor_ms` is the
    /// newest time that the log states otherwise.
    pub(crate) fn new(
        source: Arc<dyn Clock>,
        record: Option<&ClockRecord>,
        floor_ms: u64,
        newest_seq: Seq,
    ) -> Self {
        let (wall_us, uptime_us, boot) = (source.unix_us(), source.uptime().0 / 1_000, source.boot());
        let server_us = record.map_or(wall_us, |record| record.server_now(boot, uptime_us, wall_us));
        let mut ceilings = record.map(|record| record.ceilings.clone()).unwrap_or_default();
        let stated_ms = record.map_or(floor_ms, |record| record.wall_us / 1_000);
        if stated_ms > wall_us / 1_000 {
            add_ceiling(&mut ceilings, Ceiling { wall_ms: stated_ms, seq: newest_seq });
        }
        ceilings.retain(|ceiling| ceiling.wall_ms > wall_us / 1_000);
        let this_boot = record.filter(|record| record.counts_on(boot, uptime_us));
        let clock = Self {
            source,
            boot,
            base_us: server_us.cast_signed() - uptime_us.cast_signed(),
            offset_us: AtomicI64::new(wall_us.cast_signed() - server_us.cast_signed()),
            latest_ms: AtomicU64::new(server_us / 1_000),
            has_ceilings: AtomicBool::new(!ceilings.is_empty()),
            ceilings: RwLock::new(ceilings),
            stepping: Mutex::default(),
            recorded_ms: AtomicU64::new(this_boot.map_or(NEVER, |record| record.server_us / 1_000)),
            recorded_wall_ms: AtomicU64::new(record.map_or(0, |record| record.wall_us / 1_000)),
            is_unrecorded: AtomicBool::new(false),
            jumps_forward: AtomicU64::new(0),
            jumps_back: AtomicU64::new(0),
            last_jump_ms: AtomicI64::new(0),
        };
        clock.compare(record, floor_ms, wall_us);
        clock
    }

    /// Finds out whether the wall clock was set, or the machine started, since the record was made; then a new one is due.
    fn compare(&self, record: Option<&ClockRecord>, floor_ms: u64, wall_us: u64) {
        let expected_us = match record {
            // what was the offset before is the offset still, unless the clock was set
            Some(record) => {
                wall_us.cast_signed() - self.offset_us.load(Ordering::Relaxed) + record.wall_us.cast_signed()
                    - record.server_us.cast_signed()
            }
            None => wall_us.max(floor_ms * 1_000).cast_signed(),
        };
        let change_us = wall_us.cast_signed() - expected_us;
        // the next start of this process would count the time from the record's on by the wall clock again
        let is_other_boot = record.is_some() && self.recorded_ms.load(Ordering::Relaxed) == NEVER;
        self.is_unrecorded.store(is_other_boot || change_us.abs() >= STEP_US, Ordering::Relaxed);
        if self.count(change_us) {
            tell(change_us / 1_000, 0, "while the server was not running");
        }
    }

    /// What both clocks say, and whether the wall clock seems to have been set.
    pub(crate) fn look(&self) -> (Moment, bool) {
        let (wall_us, server_us) = (self.source.unix_us(), self.server_us());
        let offset_us = wall_us.cast_signed() - server_us.cast_signed();
        let is_off = (offset_us - self.offset_us.load(Ordering::Relaxed)).abs() >= STEP_US;
        (self.at(server_us / 1_000), is_off)
    }

    /// The moment of server time `server_ms`, or the latest that was judged by.
    pub(crate) fn at(&self, server_ms: u64) -> Moment {
        let latest_ms = self.latest_ms.load(Ordering::Relaxed);
        if server_ms > latest_ms {
            self.latest_ms.fetch_max(server_ms, Ordering::Relaxed);
        }
        self.moment(server_ms.max(latest_ms))
    }

    /// Measures the step that [`StoreClock::look`] suspects; calls `adopt` with it if it is there and nobody else does.
    pub(crate) fn on_step(&self, adopt: impl FnOnce(Step) -> Option<(Step, Seq)>) {
        let Ok(mut told) = self.stepping.try_lock() else { return };
        let Some(step) = self.measure() else { return };
        let Some((step, seq)) = adopt(step) else { return };
        self.take(step, seq, &mut told);
    }

    /// A record of the clocks as they are.
    pub(crate) fn record(&self) -> ClockRecord {
        let server_us = self.server_us();
        let wall_us = server_us.saturating_add_signed(self.offset_us.load(Ordering::Relaxed));
        self.record_of(server_us, wall_us)
    }

    /// Whether a record must precede an effect with a deadline, which is a TTL or not.
    pub(crate) fn is_due(&self, now: Moment, is_ttl: bool) -> bool {
        let recorded_ms = self.recorded_ms.load(Ordering::Relaxed);
        let is_old = recorded_ms == NEVER || now.server_ms().saturating_sub(recorded_ms) >= RECORD_AGE_MS;
        is_ttl && is_old || self.is_unrecorded.load(Ordering::Relaxed)
    }

    /// Whether the wall clock was set and no record states it.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.is_unrecorded.load(Ordering::Relaxed)
    }

    /// Whether a start would know that `deadline` had passed.
    pub(crate) fn is_on_record(&self, deadline: Deadline) -> bool {
        !deadline.is_wall() || deadline.raw() <= self.recorded_wall_ms.load(Ordering::Relaxed)
    }

    /// `record` is in the log.
    pub(crate) fn on_recorded(&self, record: &ClockRecord) {
        self.recorded_ms.store(record.server_us / 1_000, Ordering::Relaxed);
        self.recorded_wall_ms.store(record.wall_us / 1_000, Ordering::Relaxed);
        self.is_unrecorded.store(false, Ordering::Relaxed);
    }

    /// Up to which deadlines of the wall clock had passed, before it was set back, that effects up to `seq` or later ones set.
    pub(crate) fn ceiling_of(&self, seq: Seq) -> u64 {
        if !self.has_ceilings.load(Ordering::Acquire) {
            return 0;
        }
        let ceilings = self.ceilings.read().unwrap_or_else(PoisonError::into_inner);
        let held = ceilings.iter().filter(|ceiling| seq <= ceiling.seq);
        held.map(|ceiling| ceiling.wall_ms).max().unwrap_or(0)
    }

    /// Whether `deadline`, set by effect `seq`, had passed before the wall clock was set back.
    pub(crate) fn had_passed(&self, deadline: Deadline, seq: Seq) -> bool {
        if !deadline.is_wall() || !self.has_ceilings.load(Ordering::Acquire) {
            return false;
        }
        let ceilings = self.ceilings.read().unwrap_or_else(PoisonError::into_inner);
        ceilings.iter().any(|ceiling| deadline.raw() <= ceiling.wall_ms && seq <= ceiling.seq)
    }

    /// Jumps so far.
    pub(crate) fn report(&self) -> ClockReport {
        ClockReport {
            jumps_forward: self.jumps_forward.load(Ordering::Relaxed),
            jumps_back: self.jumps_back.load(Ordering::Relaxed),
            last_jump_ms: self.last_jump_ms.load(Ordering::Relaxed),
            offset_ms: self.offset_us.load(Ordering::Relaxed) / 1_000,
        }
    }

    fn server_us(&self) -> u64 {
        (self.source.uptime().0 / 1_000).saturating_add_signed(self.base_us)
    }

    fn moment(&self, server_ms: u64) -> Moment {
        let wall_us = (server_ms * 1_000).saturating_add_signed(self.offset_us.load(Ordering::Relaxed));
        Moment::new(server_ms, UnixMs(wall_us / 1_000))
    }

    /// Reads both clocks close together: who is interrupted between them sees no step.
    fn measure(&self) -> Option<Step> {
        for _ in 0..MEASURES_MAX {
            let (before_us, wall_us, after_us) = (self.server_us(), self.source.unix_us(), self.server_us());
            if after_us - before_us > STEP_US.unsigned_abs() / 4 {
                continue;
            }
            let offset_us = wall_us.cast_signed() - before_us.cast_signed();
            let change_us = offset_us - self.offset_us.load(Ordering::Relaxed);
            if change_us.abs() < STEP_US {
                return None;
            }
            let mut record = self.record_of(before_us, wall_us);
            if change_us < 0 {
                let wall_ms = self.moment(self.latest_ms.load(Ordering::Relaxed)).unix().0;
                add_ceiling(&mut record.ceilings, Ceiling { wall_ms, seq: OWN_SEQ });
            }
            record.ceilings.retain(|ceiling| ceiling.wall_ms > wall_us / 1_000);
            return Some(Step { offset_us, change_us, record });
        }
        None
    }

    /// Goes by `step`, which record `seq` states; if none does, `seq` is that of the newest effect: NONE if there is none.
    fn take(&self, step: Step, seq: Seq, told: &mut Told) {
        if seq == Seq::NONE {
            // the log may state the time before the step all the same: a record precedes the first effect with a deadline
            self.on_unrecorded();
        }
        let ceilings = step.record.with_seq(seq).ceilings;
        self.has_ceilings.store(!ceilings.is_empty(), Ordering::Release);
        *self.ceilings.write().unwrap_or_else(PoisonError::into_inner) = ceilings;
        self.offset_us.store(step.offset_us, Ordering::Release);
        if !self.count(step.change_us) {
            return;
        }
        let now_ms = self.latest_ms.load(Ordering::Relaxed);
        if told.at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < TELL_REST_MS) {
            told.unsaid += 1;
            return;
        }
        told.at_ms = Some(now_ms);
        tell(step.change_us / 1_000, std::mem::take(&mut told.unsaid), "while the server runs");
    }

    /// Counts a change of the wall clock if it is a jump; whether it is one.
    fn count(&self, change_us: i64) -> bool {
        let is_jump = change_us.abs() > JUMP_US;
        if is_jump {
            let counter = if change_us > 0 { &self.jumps_forward } else { &self.jumps_back };
            counter.fetch_add(1, Ordering::Relaxed);
            self.last_jump_ms.store(change_us / 1_000, Ordering::Relaxed);
        }
        is_jump
    }

    /// A step was taken that no record states.
    pub(crate) fn on_unrecorded(&self) {
        self.is_unrecorded.store(true, Ordering::Relaxed);
    }

    fn record_of(&self, server_us: u64, wall_us: u64) -> ClockRecord {
        let uptime_us = server_us.saturating_add_signed(-self.base_us);
        let ceilings = self.ceilings.read().unwrap_or_else(PoisonError::into_inner).clone();
        ClockRecord { boot: self.boot, uptime_us, server_us, wall_us, ceilings }
    }
}

impl ClockRecord {
    /// Server time at `uptime_us` of start `boot` of the machine, when the wall clock shows `wall_us`.
    fn server_now(&self, boot: u128, uptime_us: u64, wall_us: u64) -> u64 {
        if self.counts_on(boot, uptime_us) {
            return self.server_us + (uptime_us - self.uptime_us);
        }
        // how long the machine was off, only the wall clock tells
        self.server_us + wall_us.saturating_sub(self.wall_us)
    }

    /// Whether the machine is up since the record was made.
    fn counts_on(&self, boot: u128, uptime_us: u64) -> bool {
        boot != 0 && boot == self.boot && uptime_us >= self.uptime_us
    }

    /// The record as effect `seq` states it.
    pub(crate) fn with_seq(mut self, seq: Seq) -> Self {
        self.ceilings.iter_mut().filter(|ceiling| ceiling.seq == OWN_SEQ).for_each(|own| own.seq = seq);
        self
    }
}

fn tell(jump_ms: i64, jumps_before: u64, when: &'static str) {
    tracing::warn!(
        jump_ms,
        jumps_before,
        when,
        "the wall clock jumped: TTLs end when they would have, EXPIREAT follows the wall clock"
    );
}

/// Adds a ceiling, the newest; those that it covers go. Too many become fewer that cover more.
fn add_ceiling(ceilings: &mut Vec<Ceiling>, ceiling: Ceiling) {
    ceilings.retain(|older| older.wall_ms > ceiling.wall_ms);
    if ceilings.len() >= CEILINGS_MAX {
        let oldest = ceilings.remove(0);
        ceilings[0].wall_ms = ceilings[0].wall_ms.max(oldest.wall_ms);
    }
    ceilings.push(ceiling);
}

/// The seq of a ceiling that is the record's own.
const OWN_SEQ: Seq = Seq::MAX;
/// A smaller change of the offset is no step: the two clocks are not read at the same instant.
const STEP_US: i64 = 1_000;
/// A larger one is a jump, which is counted and logged.
const JUMP_US: i64 = 1_000_000;
/// How old the newest record may be when a TTL is written: after the machine was off and its clock set back, TTLs last
/// longer by at most this.
const RECORD_AGE_MS: u64 = 60_000;
/// Jumps within this of a log line are counted in the next one.
const TELL_REST_MS: u64 = 1_000;
/// Ceilings that are kept apart.
pub(crate) const CEILINGS_MAX: usize = 16;
const MEASURES_MAX: usize = 8;
const NEVER: u64 = u64::MAX;
