//! Doors for fuzz targets: the decoders of this crate as functions of bytes. Not part of the interface.

use std::path::Path;

use vfs::{OpenOptions, SimDisk, Vfs};

use crate::log::checkpoint_file;
use crate::log::fold::{put_part, split_part};
use crate::record::{self, Payload};
use crate::staging;
use collections::Packed;

/// Decodes the payload of a record; returns whether it fits its kind.
///
/// # Panics
/// When the parts of the payload are not in it, or a part is missing: a bug of the decoder.
#[must_use]
pub fn record(kind: u8, payload: &[u8]) -> bool {
    match record::decode(kind, payload) {
        None => false,
        Some(Payload::Whole { key, value }) => {
            assert_eq!(payload.len(), 4 + key.len() + value.len());
            if let Some(root) = record::root_of(kind, value) {
                assert_eq!(&root.encode()[..], value);
                assert!(root.leaves == 0 || root.leaf_of(u128::MAX) < root.leaves);
            } else if let Some(shape) = record::base(kind).and_then(|base| base.value.shape()) {
                collections::fuzzing::read_and_change(Packed::new(shape, value));
            }
            true
        }
        Some(Payload::Delta { key, body, .. }) => {
            assert_eq!(payload.len(), 12 + key.len() + body.len());
            if record::changes(kind) == Some(record::Changes::Bytes) {
                let mut string = vec![0; 16];
                let fits = put_part(&mut string, 0, body).is_some();
                let end =
                    split_part(body).map_or(0, |(offset, part)| offset.saturating_add(part.len() as u64));
                assert_eq!(string.len() as u64, if fits { end.max(16) } else { 16 });
            }
            true
        }
        Some(Payload::Deltas(parts)) => {
            // each part is a record that says the same
            for part in parts {
                let (kind, alone) = parts.alone(&part);
                match record::decode(kind, &alone) {
                    Some(Payload::Deltas(alone)) => assert!(alone.eq([part]), "{part:?} alone"),
                    _ => assert!(record(kind, &alone), "{part:?} alone"),
                }
            }
            true
        }
        Some(Payload::Removals(removals)) => {
            assert_eq!(removals.encode()[..], *payload);
            assert!((1..=record::REMOVALS_MAX as usize).contains(&removals.numbers().count()));
            true
        }
        Some(Payload::Mapping { keyspaces, .. }) => {
            assert_eq!(payload.len(), 8 + 4 * record::mapping_ids(keyspaces).len());
            true
        }
        Some(Payload::Clock(body)) => {
            let record = record::decode_clock(body).expect("decoded a moment ago");
            assert_eq!(record::encode_clock(&record), payload);
            true
        }
    }
}

/// Decodes the image of a prepared transaction; returns whether it is one.
///
/// # Panics
/// When an image does not encode to the bytes that it was decoded from: a bug of the codec.
#[must_use]
pub fn image(bytes: &[u8]) -> bool {
    match staging::decode_image(bytes) {
        Err(_) => false,
        Ok(image) => {
            assert_eq!(staging::encode_image(image.since_ms, &image.moves, &image.entries), bytes);
            true
        }
    }
}

/// Loads `bytes` as a checkpoint file; returns whether they are one.
///
/// # Panics
/// When a simulated disk without faults fails.
#[must_use]
pub fn checkpoint(bytes: &[u8]) -> bool {
    let (disk, dir) = (SimDisk::new(0), Path::new("/"));
    disk.create_dir_all(dir).expect("a simulated disk has room");
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = disk.open(&dir.join("file"), options).expect("the name is free");
    let written = file.write_at(bytes, 0).expect("a simulated disk has room");
    assert_eq!(written, bytes.len());
    checkpoint_file::load(&disk, dir, "file", &mut |_, _| {}).is_ok()
}
