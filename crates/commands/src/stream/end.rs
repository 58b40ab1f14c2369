//! Adding entries behind the last one, which is most of what is done to streams: with one look at the end of the stream.

use resp::ArgsView;
use store::{Access, OrderedEdit, STREAM_ENTRY, Stop, WrongType};

use super::{Id, META, Meta, Wanted, append_parts, entry_key};

/// Adds an entry for each of `requests`, with the identifier that it wants and its arguments from `parts_at` on, behind the last entry of the stream at
/// `key`; returns their identifiers. `None`: nothing has happened, since there is no stream or no entry, an identifier is none that may be given, or its end is in
/// several leaves.
///
/// # Errors
/// As [`Access::edit_stream_around`].
pub(crate) fn add_at_end(
    access: &mut Access<'_>,
    db: u16,
    key: &[u8],
    requests: &[ArgsView<'_>],
    parts_at: usize,
    wanted: Wanted,
    now_ms: u64,
) -> Result<Result<Option<Vec<Id>>, WrongType>, Stop> {
    access.edit_stream_around(db, key, META, |stream| {
        let mut meta = meta_behind_entries(stream)?;
        let mut ids = Vec::with_capacity(requests.len());
        for _ in requests {
            let id = wanted.settle(meta.last, now_ms)?;
            (meta.last, meta.added) = (id, meta.added.saturating_add(1));
            ids.push(id);
        }
        let parts = requests.iter().flat_map(|args| args.iter().skip(parts_at));
        let bytes: usize = parts.map(|part| part.len() + LEN_BYTES).sum();
        stream.reserve(requests.len() + 1, bytes + (requests.len() + 1) * KEY_BYTES);
        let mut value = Vec::new();
        for (args, id) in requests.iter().zip(&ids) {
            value.clear();
            append_parts(&mut value, args.iter().skip(parts_at));
            stream.put(&entry_key(*id), &value);
        }
        stream.put(META, &meta.bytes());
        Some(ids)
    })
}

/// What is known of the stream as a whole, if what comes before its next entry lies in the same leaf.
fn meta_behind_entries(stream: &OrderedEdit<'_>) -> Option<Meta> {
    let elements = stream.base();
    let meta = Meta::read_from(elements.element(elements.place_of(META)?).1);
    let entries = elements.partition_point(|(key, _)| key < STREAM_ENTRY || key.starts_with(STREAM_ENTRY));
    let before = elements.element(entries.checked_sub(1)?).0;
    (before < &entry_key(meta.last.after()?)[..]).then_some(meta)
}

/// Of the length of a part.
const LEN_BYTES: usize = 4;
/// About that of an entry, and of what is known of all.
const KEY_BYTES: usize = 64;
