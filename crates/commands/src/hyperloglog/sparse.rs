//! The sparse form: registers as runs.
//!
//! ```text
//!  00 n6             n + 1 registers that are 0
//!  01 n14            n + 1 registers that are 0, two bytes, the high bits first
//!  1 v5 n2           n + 1 registers that are v + 1
//! ```
//!
//! A register is raised by replacing the run that it is in by up to three; then equal neighbours around it become one run. Which runs there are
//! after that follows Redis, so that the bytes are the same.

use super::{HEADER_BYTES, Invalid, REGISTERS, Registers};

/// All registers are 0.
pub(super) const EMPTY: [u8; 2] = [0x7f, 0xff];

/// What raising a register came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Raised {
    Is(bool),
    /// It is to become dense first.
    HasNoRoom,
}

/// A run: how many registers, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    registers: usize,
    count: u8,
    bytes: usize,
}

impl Run {
    /// The run at the front of `bytes`.
    fn split(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [first, second, ..] if first & 0xc0 == 0x40 => {
                let registers = (usize::from(first & 0x3f) << 8 | usize::from(second)) + 1;
                Some(Self { registers, count: 0, bytes: 2 })
            }
            [first, ..] if first & 0xc0 == 0 => {
                Some(Self { registers: usize::from(first & 0x3f) + 1, count: 0, bytes: 1 })
            }
            [first, ..] if first & 0x80 != 0 => {
                let (registers, count) = (usize::from(first & 3) + 1, (first >> 2 & 0x1f) + 1);
                Some(Self { registers, count, bytes: 1 })
            }
            _ => None,
        }
    }

    fn put(out: &mut Vec<u8>, registers: usize, count: u8) {
        match (registers, count) {
            (0, _) => {}
            (1..=64, 0) => out.push(registers as u8 - 1),
            (_, 0) => {
                let [high, low] = ((registers - 1) as u16).to_be_bytes();
                out.extend_from_slice(&[0x40 | high, low]);
            }
            _ => out.push(value(registers, count)),
        }
    }
}

/// A run of up to four registers that are not 0.
fn value(registers: usize, count: u8) -> u8 {
    0x80 | (count - 1) << 2 | (registers as u8 - 1)
}

pub(super) fn read(mut runs: &[u8], registers: &mut Registers) -> Result<(), Invalid> {
    let mut at = 0;
    while !runs.is_empty() {
        let run = Run::split(runs).ok_or(Invalid::Corrupt)?;
        let of_run = registers.get_mut(at..at + run.registers).ok_or(Invalid::Corrupt)?;
        of_run.fill(run.count);
        at += run.registers;
        runs = &runs[run.bytes..];
    }
    if at == REGISTERS { Ok(()) } else { Err(Invalid::Corrupt) }
}

/// Lets a register be `count` at least.
pub(super) fn raise(bytes: &mut Vec<u8>, register: usize, count: u8) -> Result<Raised, Invalid> {
    if count > COUNT_MAX {
        return Ok(Raised::HasNoRoom);
    }
    let (mut at, mut first, mut former) = (HEADER_BYTES, 0, None);
    let run = loop {
        let run = Run::split(&bytes[at..]).ok_or(Invalid::Corrupt)?;
        if register < first + run.registers {
            break run;
        }
        former = Some(at);
        at += run.bytes;
        first += run.registers;
    };
    if run.count >= count {
        return Ok(Raised::Is(false));
    }
    let mut replaced = Vec::with_capacity(5);
    Run::put(&mut replaced, register - first, run.count);
    replaced.push(value(1, count));
    Run::put(&mut replaced, first + run.registers - 1 - register, run.count);
    if replaced.len() > run.bytes && bytes.len() + replaced.len() - run.bytes > BYTES_MAX {
        return Ok(Raised::HasNoRoom);
    }
    bytes.splice(at..at + run.bytes, replaced);
    join_neighbours(bytes, former.unwrap_or(HEADER_BYTES));
    Ok(Raised::Is(true))
}

/// Lets neighbours of equal value around `at` be one run, where that is not too long for one.
fn join_neighbours(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..NEIGHBOURS {
        let Some(run) = bytes.get(at..).and_then(Run::split) else { return };
        let next = bytes.get(at + run.bytes..).and_then(Run::split);
        match next.filter(|next| run.count > 0 && next.count == run.count) {
            Some(next) if run.registers + next.registers <= 4 => {
                bytes[at + 1] = value(run.registers + next.registers, run.count);
                bytes.remove(at);
            }
            _ => at += run.bytes,
        }
    }
}

/// Of registers in a run.
const COUNT_MAX: u8 = 32;
/// `hll-sparse-max-bytes` of Redis.
const BYTES_MAX: usize = 3_000;
/// Runs that are looked at after a change.
const NEIGHBOURS: usize = 5;
