//! Groups that change their name, or go, beside the commands.

use store::{Access, Stop, ValueKind};

use super::{Changes, Id, Stream};
use crate::relocate::Spot;

/// Gives the group `from` of a stream the name `to`, in place of the group of that name; `None` removes it. Nothing happens where there is no such group.
///
/// # Errors
/// As [`Access::get`].
pub fn move_group(
    access: &mut Access<'_>,
    (db, key): Spot<'_>,
    from: &[u8],
    to: Option<&[u8]>,
) -> Result<(), Stop> {
    let (mut removed, mut moved) = (Changes::default(), Changes::default());
    {
        // A key of another type has no group.
        let Ok(sequence) = access.sequence(db, key, ValueKind::Stream)? else { return Ok(()) };
        let stream = Stream::new(sequence);
        let Some(state) = stream.group(from)? else { return Ok(()) };
        removed.delete_group(stream, from)?;
        if let Some(to) = to {
            if stream.group(to)?.is_some() {
                removed.delete_group(stream, to)?;
            }
            moved.put_group(to, state);
            for (name, consumer) in stream.consumers(from)? {
                moved.put_consumer(to, name, consumer);
            }
            for it in stream.pending_from(from, Id::MIN)? {
                let (id, pending) = it?;
                moved.put_pending(to, id, pending);
            }
        }
    }
    let _ = access.change_stream(db, key, &removed.iter().collect::<Vec<_>>())?;
    let settled = match access.sequence(db, key, ValueKind::Stream)? {
        Ok(sequence) => moved.settled(Stream::new(sequence))?,
        Err(_) => None,
    };
    if let Some(moved) = settled {
        let _ = access.change_stream(db, key, &moved.iter().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Removes the group `name` of a stream, unless it has a consumer for whose name `is_own` is false.
///
/// # Errors
/// As [`Access::get`].
pub fn remove_group(
    access: &mut Access<'_>,
    (db, key): Spot<'_>,
    name: &[u8],
    is_own: impl Fn(&[u8]) -> bool,
) -> Result<(), Stop> {
    let mut changes = Changes::default();
    {
        let Ok(sequence) = access.sequence(db, key, ValueKind::Stream)? else { return Ok(()) };
        let stream = Stream::new(sequence);
        if stream.group(name)?.is_none() || !stream.consumers(name)?.iter().all(|(name, _)| is_own(name)) {
            return Ok(());
        }
        changes.delete_group(stream, name)?;
    }
    let _ = access.change_stream(db, key, &changes.iter().collect::<Vec<_>>())?;
    Ok(())
}
