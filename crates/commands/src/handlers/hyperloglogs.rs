//! PFADD, PFCOUNT and PFMERGE, over `hyperloglog`: strings that hold sketches.

use resp::{ArgsView, Writer};
use store::{EventClass, Value};

use crate::args::{string, string_to_change};
use crate::call::{Data, Failure, Outcome};
use crate::hyperloglog::{Invalid, Registers, Sketch, estimate, is_dense, noted_count, registers};

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Kind => "WRONGTYPE Key is not a valid HyperLogLog string value.".into(),
            Invalid::Corrupt => "INVALIDOBJ Corrupted HLL object detected".into(),
        }
    }
}

pub(crate) fn pfadd(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = string_to_change(data, args.get(1))?;
    let (mut is_changed, expiry) = (found.is_none(), found.and_then(|found| found.expiry));
    let mut sketch = found.map_or_else(|| Ok(Sketch::new()), |found| Sketch::of(found.value))?;
    for element in args.iter().skip(2) {
        if sketch.add(element)? {
            is_changed = true;
            sketch.forget_count();
        }
    }
    if is_changed {
        data.access.put(data.db, args.get(1), Value::String(&sketch.into_bytes()), expiry);
        data.event(EventClass::String, "pfadd", args.get(1));
    }
    out.integer(is_changed.into());
    Ok(())
}

/// The count is not noted in the value, as Redis does: a command that reads writes nothing.
pub(crate) fn pfcount(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() == 2 {
        let count = match string(data, args.get(1))? {
            None => 0,
            Some(found) => {
                // It is checked before what it says of itself is believed.
                let registers = registers(found.value)?;
                noted_count(found.value).unwrap_or_else(|| estimate(&registers))
            }
        };
        out.integer(count.cast_signed());
        return Ok(());
    }
    let (all, _) = merged(data, args.iter().skip(1))?;
    out.integer(estimate(&all).cast_signed());
    Ok(())
}

/// The greatest registers of all keys, and whether one of them is dense.
fn merged<'a>(
    data: &mut Data<'_, '_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<(Registers, bool), Failure> {
    let (mut all, mut any_dense): (Option<Registers>, bool) = (None, false);
    for key in keys {
        data.turn_to_key(key);
        let Some(found) = string(data, key)? else { continue };
        data.access.charge(SKETCH_EFFORT)?;
        let own = registers(found.value)?;
        any_dense |= is_dense(found.value);
        match &mut all {
            Some(all) => all.iter_mut().zip(own.iter()).for_each(|(a, b)| *a = (*a).max(*b)),
            None => all = Some(own),
        }
    }
    Ok((all.unwrap_or_else(|| Box::new([0; _])), any_dense))
}

pub(crate) fn pfmerge(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (all, any_dense) = merged(data, args.iter().skip(1))?;
    let target = args.get(1);
    data.turn_to_key(target);
    let found = string_to_change(data, target)?;
    let expiry = found.and_then(|found| found.expiry);
    let mut sketch = found.map_or_else(|| Ok(Sketch::new()), |found| Sketch::of(found.value))?;
    sketch.merge(&all, any_dense)?;
    sketch.forget_count();
    data.access.put(data.db, target, Value::String(&sketch.into_bytes()), expiry);
    data.event(EventClass::String, "pfadd", target);
    out.ok();
    Ok(())
}

/// A sketch of 16,384 registers takes about as long as so many elements.
const SKETCH_EFFORT: usize = 32;
