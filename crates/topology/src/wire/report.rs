//! Bytes of reports: for each its root, XOR and flag, then what has failed, with texts of bounded length.

use std::time::Duration;

use super::cursor::{Cursor, count};
use super::error::WireError;
use super::parcel::{put_root, take_root};
use crate::anchor::{Blame, ERROR_BYTES_MAX, Failure, Nack, Report};
use crate::ids::ComponentId;

pub(super) fn put(report: &Report, bytes: &mut Vec<u8>) {
    put_root(&report.root, bytes);
    bytes.extend_from_slice(&report.xor.to_le_bytes());
    bytes.push(u8::from(report.extends));
    bytes.extend_from_slice(&count(report.failed.len()).to_le_bytes());
    report.failed.iter().for_each(|failure| put_failure(failure, bytes));
}

pub(super) fn take(cursor: &mut Cursor<'_>, reports: u32) -> Result<Vec<Report>, WireError> {
    cursor.need_parts("reports", reports, REPORT_BYTES)?;
    (0..reports).map(|_| take_report(cursor)).collect()
}

pub(super) fn put_failure(failure: &Failure, bytes: &mut Vec<u8>) {
    let Failure { origin, component, error, nack: Nack { blame, delay } } = failure;
    let blame = match blame {
        Blame::Silent => SILENT,
        Blame::Fail => FAIL,
        Blame::Fatal => FATAL,
    };
    // A delay of more than 584 years is one of 584 years.
    let delay_ns = delay.map_or(0, |delay| u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
    let text = &error[..error.floor_char_boundary(ERROR_BYTES_MAX)];
    bytes.extend_from_slice(&origin.to_le_bytes());
    bytes.extend_from_slice(&component.0.to_le_bytes());
    bytes.extend_from_slice(&[blame, u8::from(delay.is_some())]);
    bytes.extend_from_slice(&delay_ns.to_le_bytes());
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn take_report(cursor: &mut Cursor<'_>) -> Result<Report, WireError> {
    let (root, xor) = (take_root(cursor)?, cursor.u64("xor")?);
    let extends = take_flag(cursor, "flags")?;
    let failures = cursor.u32("failures")?;
    cursor.need_parts("failures", failures, FAILURE_BYTES)?;
    let failed = (0..failures).map(|_| take_failure(cursor)).collect::<Result<_, _>>()?;
    Ok(Report { root, xor, failed, extends })
}

pub(super) fn take_failure(cursor: &mut Cursor<'_>) -> Result<Failure, WireError> {
    let (origin, component) = (cursor.u32("origin")?, ComponentId(cursor.u16("component")?));
    let nack = Nack { blame: take_blame(cursor)?, delay: take_delay(cursor)? };
    let at = cursor.at();
    let size = cursor.u16("size of a text")?;
    if usize::from(size) > ERROR_BYTES_MAX {
        return Err(WireError::Field { what: "size of a text", at, value: size.into() });
    }
    let at = cursor.at();
    let text = cursor.slice("text", size.into())?;
    let error = std::str::from_utf8(text).map_err(|_| WireError::Text { at })?.to_owned();
    Ok(Failure { origin, component, error, nack })
}

fn take_blame(cursor: &mut Cursor<'_>) -> Result<Blame, WireError> {
    let at = cursor.at();
    match cursor.u8("blame")? {
        SILENT => Ok(Blame::Silent),
        FAIL => Ok(Blame::Fail),
        FATAL => Ok(Blame::Fatal),
        other => Err(WireError::Field { what: "blame", at, value: other.into() }),
    }
}

fn take_delay(cursor: &mut Cursor<'_>) -> Result<Option<Duration>, WireError> {
    let has_delay = take_flag(cursor, "has delay")?;
    let at = cursor.at();
    match (has_delay, cursor.u64("delay")?) {
        (true, nanos) => Ok(Some(Duration::from_nanos(nanos))),
        (false, 0) => Ok(None),
        (false, value) => Err(WireError::Field { what: "delay", at, value }),
    }
}

pub(super) fn take_flag(cursor: &mut Cursor<'_>, what: &'static str) -> Result<bool, WireError> {
    let at = cursor.at();
    match cursor.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(WireError::Field { what, at, value: other.into() }),
    }
}

const SILENT: u8 = 0;
const FAIL: u8 = 1;
const FATAL: u8 = 2;
/// Without failures.
const REPORT_BYTES: usize = 29;
/// Without text.
pub(super) const FAILURE_BYTES: usize = 18;

const _: () = assert!(ERROR_BYTES_MAX <= u16::MAX as usize);
