//! The clocks of the model: what the store goes by, and a judge who knows how much time has passed.
//!
//! The store's side follows `time`: server time is uptime and a constant, wall time is server time and an offset, a step
//! back leaves a ceiling. The judge keeps the true time that has elapsed and all walls that were judged by.

use crate::{Lsn, Planted, Seq};

/// What a clock record states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockRecord {
    boot: u64,
    uptime: u64,
    server: u64,
    wall: u64,
    ceilings: Vec<(u64, Seq)>,
}

/// A deadline that some effect set.
#[derive(Clone, Copy, Debug)]
struct Set {
    deadline: u64,
    seq: Seq,
    lsn: Lsn,
    /// True time when a TTL ends, and how long it was.
    due: u64,
    ttl: u64,
    /// The latest wall that was judged by since.
    wall_shown: u64,
    /// Somebody was told that the key is gone.
    has_passed: bool,
    /// A record says so: in the log from this lsn on.
    recorded: Option<Lsn>,
}

#[derive(Debug)]
pub(crate) struct Clocks {
    planted: Planted,
    // the machine
    boot: u64,
    uptime: u64,
    wall: u64,
    // the store
    base: i64,
    offset: i64,
    ceilings: Vec<(u64, Seq)>,
    recorded: Option<u64>,
    is_unrecorded: bool,
    // the judge
    elapsed: u64,
    sets: Vec<Set>,
    broken: Option<String>,
}

impl Clocks {
    pub(crate) fn new(planted: Planted) -> Self {
        Self {
            planted,
            boot: 1,
            uptime: 7,
            wall: 10_000,
            base: 9_993,
            offset: 0,
            ceilings: Vec::new(),
            recorded: None,
            is_unrecorded: false,
            elapsed: 10_000,
            sets: Vec::new(),
            broken: None,
        }
    }

    /// Time passes while the machine is up.
    pub(crate) fn tick(&mut self, ms: u64) {
        self.uptime += ms;
        self.wall += ms;
        self.elapsed += ms;
        self.show();
    }

    /// The wall clock is set; the record that must be in the log before the store goes by it.
    pub(crate) fn set_wall(&mut self, by: i64, newest: Seq) -> ClockRecord {
        let shown = self.server() as i64 + self.offset;
        self.wall = self.wall.saturating_add_signed(by);
        let mut record = self.record();
        record.wall = self.wall;
        if self.planted != Planted::StepBackWithoutCeiling && (self.wall as i64) < shown {
            let seq = if self.planted == Planted::CeilingForLaterEffects { Seq::MAX } else { newest };
            record.ceilings.push((shown as u64, seq));
        }
        record
    }

    /// Goes by what `record`, which was appended at `lsn`, states.
    pub(crate) fn on_step(&mut self, record: &ClockRecord, lsn: Lsn) {
        self.offset = record.wall as i64 - record.server as i64;
        self.ceilings.clone_from(&record.ceilings);
        self.show();
        self.on_recorded(record, lsn);
    }

    pub(crate) fn record(&self) -> ClockRecord {
        let (boot, uptime, server, ceilings) = (self.boot, self.uptime, self.server(), self.ceilings.clone());
        ClockRecord { boot, uptime, server, wall: (server as i64 + self.offset) as u64, ceilings }
    }

    pub(crate) fn on_recorded(&mut self, record: &ClockRecord, lsn: Lsn) {
        (self.recorded, self.is_unrecorded) = (Some(record.server), false);
        for set in
            self.sets.iter_mut().filter(|set| set.deadline & SERVER == 0 && set.wall_shown >= set.deadline)
        {
            set.recorded.get_or_insert(lsn);
        }
    }

    /// Whether a record must precede an effect with this deadline.
    pub(crate) fn is_due(&self, deadline: u64) -> bool {
        let is_old = self.recorded.is_none_or(|at| self.server() - at >= RECORD_AGE);
        let is_ttl = deadline & SERVER != 0 && self.planted != Planted::TtlWithoutRecord;
        deadline != 0 && (is_ttl && is_old || self.is_unrecorded)
    }

    /// The deadline of a TTL, or of the time of the wall clock at which it would end.
    pub(crate) fn deadline(&self, ttl: u64, at_wall: bool) -> u64 {
        match ttl {
            0 => 0,
            _ if at_wall || self.planted == Planted::TtlByTheWallClock => {
                (self.server() as i64 + self.offset) as u64 + ttl
            }
            _ => SERVER | (self.server() + ttl),
        }
    }

    /// Effect `seq` at `lsn` has set `deadline`, meant as a TTL or not.
    pub(crate) fn on_set(&mut self, deadline: u64, ttl: Option<u64>, seq: Seq, lsn: Lsn) {
        let wall_shown = (self.server() as i64 + self.offset) as u64;
        let due = ttl.map_or(0, |ttl| self.elapsed + ttl);
        let ttl = ttl.unwrap_or(0);
        self.sets.push(Set { deadline, seq, lsn, due, ttl, wall_shown, has_passed: false, recorded: None });
    }

    pub(crate) fn has_passed(&self, deadline: u64, seq: Seq) -> bool {
        let now =
            if deadline & SERVER != 0 { self.server() as i64 } else { self.server() as i64 + self.offset };
        let is_under = |&(wall, newest): &(u64, Seq)| deadline <= wall && seq <= newest;
        deadline != 0
            && ((deadline & !SERVER) as i64 <= now
                || deadline & SERVER == 0 && self.ceilings.iter().any(is_under))
    }

    /// The process dies, and of the log what lies above `kept`; `off` passes, and the wall clock may be set by `by`.
    pub(crate) fn crash(&mut self, kept: Lsn, off: u64, by: i64, reboots: bool) {
        self.sets.retain(|set| set.lsn <= kept);
        for set in &mut self.sets {
            set.recorded = set.recorded.filter(|lsn| *lsn <= kept);
            if set.recorded.is_none() {
                // nobody who is left has seen it
                (set.wall_shown, set.has_passed) = (0, false);
            }
        }
        self.elapsed += off;
        self.wall = (self.wall + off).saturating_add_signed(by);
        self.uptime += off;
        if reboots {
            (self.boot, self.uptime) = (self.boot + 1, off / 2);
        }
    }

    /// A start whose log states `record`, and whose newest effect is `newest`.
    pub(crate) fn recover(&mut self, record: Option<&ClockRecord>, newest: Seq) {
        let boot = self.boot;
        let is_same = record.is_some_and(|record| record.boot == boot);
        let server = match record {
            None => self.wall,
            Some(record) if is_same && self.planted != Planted::DownTimeByTheWallClock => {
                record.server + (self.uptime - record.uptime)
            }
            Some(record) => record.server + self.wall.saturating_sub(record.wall),
        };
        self.base = server as i64 - self.uptime as i64;
        self.offset = self.wall as i64 - server as i64;
        self.ceilings = record.map(|record| record.ceilings.clone()).unwrap_or_default();
        if let Some(record) = record.filter(|record| record.wall > self.wall) {
            self.ceilings.push((record.wall, newest));
        }
        self.recorded = record.filter(|_| is_same).map(|record| record.server);
        let offset = self.offset;
        self.is_unrecorded = record.is_some_and(|record| record.wall as i64 - record.server as i64 != offset);
        if !is_same {
            // how long the machine was off is only known from its wall clock: the judge believes the store
            for set in self.sets.iter_mut().filter(|set| set.due != 0 && set.deadline & SERVER != 0) {
                let left = (set.deadline & !SERVER).saturating_sub(server);
                if left > set.ttl + RECORD_AGE {
                    self.broken = Some(format!("{set:?}: {left} are left"));
                }
                set.due = (self.elapsed + (set.deadline & !SERVER)).saturating_sub(server);
            }
        }
        self.show();
    }

    /// Every deadline has passed when it should have, and stays so.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        if let Some(what) = &self.broken {
            return Err(what.clone());
        }
        for at in 0..self.sets.len() {
            let set = self.sets[at];
            let passed = self.has_passed(set.deadline, set.seq);
            if set.has_passed && !passed {
                return Err(format!("{set:?} is back at {:?}", self.record()));
            }
            if set.due != 0 && passed != (self.elapsed >= set.due) {
                return Err(format!("{set:?}: a TTL, passed {passed}, at true time {}", self.elapsed));
            }
            if set.due == 0 && passed && set.wall_shown < set.deadline {
                return Err(format!("{set:?} has passed before the wall clock showed it"));
            }
            self.sets[at].has_passed = passed;
        }
        Ok(())
    }

    fn show(&mut self) {
        let wall = (self.server() as i64 + self.offset) as u64;
        self.sets.iter_mut().for_each(|set| set.wall_shown = set.wall_shown.max(wall));
    }

    fn server(&self) -> u64 {
        self.uptime.saturating_add_signed(self.base)
    }
}

pub(crate) const SERVER: u64 = 1 << 63;
const RECORD_AGE: u64 = 40;
