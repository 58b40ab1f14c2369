//! DUMP and RESTORE: a value as a `payload`, and back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clock::UnixMs;
use resp::{ArgsView, Writer};
use store::{Deadline, EventClass, Found, Packed, Value};

use crate::args::{integer, is, option_value};
use crate::call::{Attached, Data, Failure, Outcome, text};
use crate::payload::{decode, encode, encode_collection, is_own, load};
use crate::rdb_value::{self, Read, Unread};

pub(crate) fn dump(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = data.access.get(data.db, args.get(1))?;
    data.count_lookup(found.is_some(), args.get(1));
    if let Some(shape) = found.and_then(|found| found.kind.shape()) {
        let found = found.expect("it has a shape");
        data.admit_reply(found.value.len())?;
        let payload = encode_collection(found.kind, Packed::new(shape, found.value), data.now);
        data.admit_reply(payload.len())?;
        out.bulk(&payload);
        return Ok(());
    }
    match found {
        None => out.null(),
        Some(Found { value, large: Some(large), .. }) => {
            // Nor is the checksum made while the key is locked.
            let head = rdb::string_head(value.len());
            let at = out.bulk_around(&head, value.len(), &[0; rdb::FOOTER_BYTES]);
            let (bytes, part) = (Arc::<store::Large>::clone(large), 0..value.len());
            data.lend(Attached { at, bytes, part, unsealed: true });
        }
        Some(found) => out.bulk(&encode(found.value)),
    }
    Ok(())
}

/// Options of RESTORE; those about eviction are checked and forgotten.
#[derive(Debug, Default)]
struct Options {
    replace: bool,
    absolute: bool,
}

impl Options {
    fn parse(args: ArgsView<'_>) -> Result<Self, Failure> {
        let mut options = Options::default();
        let (mut index, mut idle, mut frequency) = (4, false, false);
        while let Some(arg) = args.try_get(index) {
            if is(arg, "replace") {
                options.replace = true;
            } else if is(arg, "absttl") {
                options.absolute = true;
            } else if is(arg, "idletime") && args.len() > index + 1 && !frequency {
                idle = true;
                if integer(option_value(args, index)?)? < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
                index += 1;
            } else if is(arg, "freq") && args.len() > index + 1 && !idle {
                frequency = true;
                if !(0..=255).contains(&integer(option_value(args, index)?)?) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
                }
                index += 1;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

pub(crate) fn restore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let key = args.get(1);
    let options = Options::parse(args)?;
    if !options.replace && data.access.meta(data.db, key)?.is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = u64::try_from(integer(args.get(2))?).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let (restored, mut is_empty);
    is_empty = false;
    let value = match data.copies.find(3) {
        Some(value) => value,
        None => {
            restored = read(data, args.get(3))?;
            match &restored {
                Restored::Lent(value) => Value::String(value),
                Restored::Made(Read::String(value)) => Value::String(value),
                Restored::Made(Read::Collection(kind, value)) => {
                    let shape = kind.shape().expect("a type of collections");
                    is_empty = Packed::new(shape, value).is_empty();
                    Value::Collection(*kind, value)
                }
            }
        }
    };
    let deadline = || if options.absolute { Deadline::at(UnixMs(ttl)) } else { data.now.after(ttl) };
    let expiry = (ttl != 0).then(deadline);
    // the time of all fields may have come
    if is_empty || expiry.is_some_and(|at| data.now.has_passed(at)) {
        let was_there = data.access.remove(data.db, key)?;
        data.removed(key, was_there);
    } else {
        data.access.put(data.db, key, value, expiry);
        data.event(EventClass::Generic, "restore", key);
    }
    out.ok();
    Ok(())
}

/// The value of a payload.
enum Restored<'a> {
    /// A string that lies in it as it is.
    Lent(&'a [u8]),
    Made(Read),
}

/// The value in a payload, Redis's or our own.
fn read<'a>(data: &Data<'_, '_>, payload: &'a [u8]) -> Result<Restored<'a>, Failure> {
    let damaged = "ERR DUMP payload version or checksum are wrong";
    // before it is decoded nobody knows how many elements it has
    data.access.charge(payload.len() / RESTORED_BYTES)?;
    if is_own(payload) {
        let (kind, value) = decode(payload).ok_or(damaged)?;
        let Some(shape) = kind.shape() else { return Ok(Restored::Lent(value)) };
        let elements = load(shape, value, data.now, |element| data.access.tag(element)).ok_or(damaged)?;
        return Ok(Restored::Made(Read::Collection(kind, elements)));
    }
    let (body, version) = rdb::verify(payload).filter(|(_, version)| is_known(*version)).ok_or(damaged)?;
    if let Some(string) = rdb::plain_string(body) {
        return Ok(Restored::Lent(string));
    }
    let most = data.limits.value_bytes_max.load(Ordering::Relaxed);
    let limits = rdb::Limits { string_bytes_max: most };
    // what is compressed may be many times as long
    let ask = |more: usize| {
        data.access.charge(more / RESTORED_BYTES)?;
        data.access.ask(more as u64)
    };
    let bad = |_| "ERR Bad data format";
    let read =
        rdb_value::read(data.access, rdb::read_payload(body, version, limits).map_err(bad)?, data.now, ask);
    match read {
        Ok(read) => Ok(Restored::Made(read)),
        Err(Unread::Damaged) => Err("ERR Bad data format".into()),
        Err(Unread::Stop(stop)) => Err(stop.into()),
    }
}

/// Whether Redis or Valkey has a version whose types are known.
fn is_known(version: u16) -> bool {
    (1..=rdb::REDIS_VERSION_MAX).contains(&version)
        || (rdb::VALKEY_VERSION_MIN..=rdb::VALKEY_VERSION_MAX).contains(&version)
}

/// Bytes of a payload that take about as long as an element.
const RESTORED_BYTES: usize = 32;
