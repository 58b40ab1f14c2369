//! Moves and copies keys with their values and the times when they end.

use store::{Access, KeyRef, Stop, Value, ValueKind};

/// A key in a database.
pub type Spot<'a> = (u16, &'a [u8]);

/// Renames `from` to `to`, in the same database, in place of what is there; returns whether there was one.
///
/// # Errors
/// [`Stop::Cold`] when a record must be read first.
pub fn rename(access: &mut Access<'_>, db: u16, from: &[u8], to: &[u8]) -> Result<bool, Stop> {
    if access.rename_paged(db, from, to)? {
        return Ok(true);
    }
    if !duplicate(access, (db, from), (db, to))? {
        return Ok(false);
    }
    if from != to {
        access.remove(db, from)?;
    }
    Ok(true)
}

/// Writes the value and expiry of `from` to `to`; returns whether there was one.
///
/// # Errors
/// As [`rename`].
pub fn duplicate(access: &mut Access<'_>, from: Spot<'_>, to: Spot<'_>) -> Result<bool, Stop> {
    let key_ref = |(db, key)| KeyRef { db, key };
    if from != to && access.copy_paged(key_ref(from), key_ref(to))? {
        return Ok(true);
    }
    let Some(found) = access.get(from.0, from.1)? else { return Ok(false) };
    if from != to {
        let (kind, expiry) = (found.kind, found.expiry);
        if let (ValueKind::String, Some(large)) = (kind, found.large.cloned()) {
            access.put(to.0, to.1, Value::Large(&large), expiry);
            return Ok(true);
        }
        access.ask(found.value.len() as u64)?;
        let value = found.value.to_vec();
        let value = match kind {
            ValueKind::String => Value::String(&value),
            _ => Value::Collection(kind, &value),
        };
        access.put(to.0, to.1, value, expiry);
    }
    Ok(true)
}
