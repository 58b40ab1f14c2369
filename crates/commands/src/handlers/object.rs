//! OBJECT: how a value is kept, as far as clients of Redis ask for it.

use std::sync::atomic::{AtomicI64, Ordering};

use resp::{ArgsView, Writer, parse_i64};
use store::{Form, Found, Packed, Shape, Usage};

use crate::call::{Data, Failure, Outcome, Small};

pub(crate) fn encoding(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if data.access.leaf_count(data.db, args.get(2))? > 0 {
        let kind = data.access.meta(data.db, args.get(2))?.and_then(|meta| meta.kind.shape());
        data.count_quietly(true);
        out.bulk(kind.map_or("hashtable", large_encoding).as_bytes());
        return Ok(());
    }
    let found = data.access.peek(data.db, args.get(2))?;
    data.count_quietly(found.is_some());
    match found {
        Some(found) => out.bulk(encoding_of(&found, &data.limits.small).as_bytes()),
        None => out.null(),
    }
    Ok(())
}

/// What clients of Redis expect to hear: of a string, whether it is a number, short, or long; of a collection, how Redis would keep it.
pub fn encoding_of(found: &Found<'_>, small: &Small) -> &'static str {
    if let Some(shape) = found.kind.shape() {
        let packed = Packed::new(shape, found.value);
        let form =
            if small.is_set.load(Ordering::Relaxed) { small.form(shape, &packed) } else { packed.form() };
        return match form {
            Form::Integers => "intset",
            Form::Listpack if packed.is_timed() => "listpackex",
            Form::Listpack => "listpack",
            Form::Table => large_encoding(shape),
        };
    }
    match found.value.len() {
        len if len <= 20 && parse_i64(found.value).is_some() => "int",
        len if len <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

impl Small {
    /// How Redis would keep what there is.
    fn form(&self, shape: Shape, packed: &Packed<'_>) -> Form {
        let is_within = |[entries, value]: &[AtomicI64; 2], values_count: bool| {
            let value_bytes_max = value.load(Ordering::Relaxed);
            let fits = |bytes: &[u8]| bytes.len() as i64 <= value_bytes_max;
            packed.len() as i64 <= entries.load(Ordering::Relaxed)
                && packed.iter().all(|(key, value)| fits(key) && (!values_count || fits(value)))
        };
        let is_small = match shape {
            Shape::Map => is_within(&self.hash, true),
            Shape::Scored => is_within(&self.sorted_set, false),
            Shape::Set if packed.iter().all(|(member, _)| parse_i64(member).is_some()) => {
                let most = self.integers.load(Ordering::Relaxed);
                if packed.len() as i64 <= most {
                    return Form::Integers;
                }
                is_within(&self.set, false)
            }
            Shape::Set => is_within(&self.set, false),
            Shape::List => match self.list.load(Ordering::Relaxed) {
                entries @ 0.. => packed.len() as i64 <= entries,
                size => {
                    let bytes_max = 2_048 << -size.max(-5);
                    packed.iter().map(|(element, _)| element.len() + ENTRY_BYTES).sum::<usize>() <= bytes_max
                }
            },
            Shape::Ordered => false,
        };
        if is_small { Form::Listpack } else { Form::Table }
    }
}

/// How Redis would keep a collection that is not small.
fn large_encoding(shape: Shape) -> &'static str {
    match shape {
        Shape::Map | Shape::Set => "hashtable",
        Shape::List => "quicklist",
        Shape::Scored => "skiplist",
        Shape::Ordered => "stream",
    }
}

pub(crate) fn refcount(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if is_there(data, args)? {
        out.integer(1);
    } else {
        out.null();
    }
    Ok(())
}

/// Whether there is the key that is asked about.
fn is_there(data: &Data<'_, '_>, args: ArgsView<'_>) -> Result<bool, Failure> {
    let found = data.access.meta(data.db, args.get(2))?.is_some();
    data.count_quietly(found);
    Ok(found)
}

/// Only the policies with LRU keep it; 0 would tell tools that every key was just used.
pub(crate) fn idletime(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match usage(data, args)? {
        None => out.null(),
        Some(Usage::IdleMs(ms)) => out.integer((ms / 1_000).cast_signed()),
        Some(Usage::Frequency(_)) => {
            let text = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
                        between policies at runtime LRU and LFU data will take some time to adjust.";
            return Err(text.into());
        }
        Some(Usage::Untracked) => {
            return Err("ERR idle time is not tracked: maxmemory-policy is none of those with lru".into());
        }
    }
    Ok(())
}

pub(crate) fn freq(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match usage(data, args)? {
        None => out.null(),
        Some(Usage::Frequency(count)) => out.integer(count.into()),
        Some(_) => {
            let text = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                        switching between policies at runtime LRU and LFU data will take some time to adjust.";
            return Err(text.into());
        }
    }
    Ok(())
}

fn usage(data: &Data<'_, '_>, args: ArgsView<'_>) -> Result<Option<Usage>, Failure> {
    let usage = data.access.usage(data.db, args.get(2))?;
    data.count_quietly(usage.is_some());
    Ok(usage)
}

pub(crate) fn help(_data: &mut Data<'_, '_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "ENCODING <key>",
        "    Return the kind of internal representation used in order to store the value",
        "    associated with a <key>.",
        "FREQ <key>",
        "    Return the access frequency index of the <key>. The returned integer is",
        "    proportional to the logarithm of the recent access frequency of the key.",
        "IDLETIME <key>",
        "    Return the idle time of the <key>, that is the approximated number of",
        "    seconds elapsed since the last access to the key.",
        "REFCOUNT <key>",
        "    Return the number of references of the value associated with the specified",
        "    <key>.",
    ];
    crate::words::help(out, "OBJECT", &lines);
    Ok(())
}

/// What an element of a list takes in Redis beside its bytes.
const ENTRY_BYTES: usize = 2;
/// Longest string that Redis keeps beside its header.
const EMBEDDED_BYTES_MAX: usize = 44;
