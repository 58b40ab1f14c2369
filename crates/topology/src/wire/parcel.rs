//! Bytes of a parcel: anchors, then tuples.

use super::cursor::Cursor;
use super::error::WireError;
use crate::anchor::{Anchor, RootId};
use crate::ids::{StreamId, TaskId};
use crate::parcel::{Item, Parcel};
use crate::values::Values;

/// Appends anchors and tuples.
pub(super) fn put(parcel: &Parcel, bytes: &mut Vec<u8>) {
    for Anchor { root, token, origin } in &parcel.anchors {
        put_root(root, bytes);
        bytes.extend_from_slice(&token.to_le_bytes());
        bytes.extend_from_slice(&origin.to_le_bytes());
    }
    for Item { origin, stream, values } in &parcel.items {
        bytes.extend_from_slice(&origin.to_le_bytes());
        bytes.extend_from_slice(&stream.0.to_le_bytes());
        let values = values.as_bytes();
        bytes.extend_from_slice(&(values.len() as u32).to_le_bytes());
        bytes.extend_from_slice(values);
    }
}

/// Takes so many anchors and tuples.
pub(super) fn take(cursor: &mut Cursor<'_>, items: u32, anchors: u32) -> Result<Parcel, WireError> {
    if items == 0 {
        return Err(WireError::Field { what: "count", at: COUNT_AT, value: 0 });
    }
    cursor.need_parts("anchors", anchors, ANCHOR_BYTES)?;
    let anchors = (0..anchors).map(|_| take_anchor(cursor)).collect::<Result<_, _>>()?;
    cursor.need_parts("tuples", items, ITEM_BYTES)?;
    let items = (0..items).map(|_| take_item(cursor)).collect::<Result<_, _>>()?;
    Ok(Parcel { anchors, items })
}

pub(super) fn put_root(root: &RootId, bytes: &mut Vec<u8>) {
    let RootId { spout, life, number } = root;
    bytes.extend_from_slice(&spout.0.to_le_bytes());
    bytes.extend_from_slice(&life.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn take_root(cursor: &mut Cursor<'_>) -> Result<RootId, WireError> {
    let (spout, life) = (TaskId(cursor.u32("spout")?), cursor.u32("life")?);
    Ok(RootId { spout, life, number: cursor.u64("batch")? })
}

fn take_anchor(cursor: &mut Cursor<'_>) -> Result<Anchor, WireError> {
    let root = take_root(cursor)?;
    let at = cursor.at();
    let token = cursor.u64("token")?;
    if token == 0 {
        return Err(WireError::Field { what: "token", at, value: 0 });
    }
    Ok(Anchor { root, token, origin: cursor.u32("origin")? })
}

fn take_item(cursor: &mut Cursor<'_>) -> Result<Item, WireError> {
    let (origin, stream) = (cursor.u32("origin")?, StreamId(cursor.u16("stream")?));
    let size = cursor.u32("size of a tuple")? as usize;
    let at = cursor.at();
    let bytes = cursor.shared("values", size)?;
    let values = Values::from_bytes(bytes).ok_or(WireError::Values { at, size })?;
    Ok(Item { origin, stream, values })
}

const COUNT_AT: usize = 20;
const ANCHOR_BYTES: usize = 28;
/// Of a tuple without fields.
const ITEM_BYTES: usize = 12;
