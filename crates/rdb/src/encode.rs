//! Writing what Redis reads: strings, files, and streams in listpacks.
//!
//! A number in a listpack takes two bytes or ten: Redis reads any form, and packs anew what it changes.

use std::io::{self, Write};

use crate::blob::{END, back_len_bytes};
use crate::stream::SAME_FIELDS;
use crate::{Id, Pending, StreamState, VERSION};

/// Appends a length or another number.
pub fn put_length(out: &mut Vec<u8>, len: u64) {
    match len {
        0..64 => out.push(len as u8),
        64..16_384 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        _ => match u32::try_from(len) {
            Ok(len) => {
                out.push(0x80);
                out.extend_from_slice(&len.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend_from_slice(&len.to_be_bytes());
            }
        },
    }
}

/// Appends a string.
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_id(out: &mut Vec<u8>, id: Id) {
    put_length(out, id.ms);
    put_length(out, id.seq);
}

/// A file that is being written.
pub struct FileWriter<W> {
    out: W,
    digest: crc_fast::Digest,
    db: Option<u64>,
    bytes: u64,
}

impl<W: Write> FileWriter<W> {
    /// Writes what a file of `version` begins with, and the notes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(out: W, version: u16, notes: &[(&str, &str)]) -> io::Result<Self> {
        let digest = crc_fast::Digest::new(crate::ALGORITHM);
        let mut file = Self { out, digest, db: None, bytes: 0 };
        let mut head = format!("REDIS{version:04}").into_bytes();
        for (name, value) in notes {
            head.push(250);
            put_string(&mut head, name.as_bytes());
            put_string(&mut head, value.as_bytes());
        }
        file.write(&head)?;
        Ok(file)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a key, whose `value` is its type and then the value, as in the payload of DUMP.
    ///
    /// # Errors
    /// Those of `out`.
    ///
    /// # Panics
    /// If there is no type.
    pub fn key(&mut self, db: u64, name: &[u8], expires_ms: Option<u64>, value: &[u8]) -> io::Result<()> {
        let (kind, value) = value.split_first().expect("a value has a type");
        let mut head = Vec::with_capacity(name.len() + 32);
        if self.db.replace(db) != Some(db) {
            head.push(254);
            put_length(&mut head, db);
        }
        if let Some(ms) = expires_ms {
            head.push(252);
            head.extend_from_slice(&ms.to_le_bytes());
        }
        head.push(*kind);
        put_string(&mut head, name);
        self.write(&head)?;
        self.write(value)
    }

    /// Writes a library of functions.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn functions(&mut self, code: &[u8]) -> io::Result<()> {
        let mut record = vec![245];
        put_string(&mut record, code);
        self.write(&record)
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(&[255])?;
        let sum = self.digest.finalize();
        self.out.write_all(&sum.to_le_bytes())?;
        Ok(self.out)
    }
}

/// A listpack that is being written.
#[derive(Debug)]
struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    fn new() -> Self {
        Self { bytes: vec![0; 6], count: 0 }
    }

    fn push_number(&mut self, number: i64) {
        let begin = self.bytes.len();
        if (0..128).contains(&number) {
            self.bytes.push(number as u8);
        } else {
            self.bytes.push(0xF4);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.close(begin);
    }

    /// A string; also digits, which a reader gives back as the same text.
    fn push(&mut self, bytes: &[u8]) {
        let begin = self.bytes.len();
        match bytes.len() {
            len @ 0..64 => self.bytes.push(0x80 | len as u8),
            len @ 64..4096 => self.bytes.extend_from_slice(&(0xE000 | len as u16).to_be_bytes()),
            len => {
                self.bytes.push(0xF0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.close(begin);
    }

    /// Appends the length of the element that began at `begin`.
    fn close(&mut self, begin: usize) {
        let len = self.bytes.len() - begin;
        let count = back_len_bytes(len);
        for nth in (0..count).rev() {
            let mark = if nth + 1 == count { 0 } else { 0x80 };
            self.bytes.push((len >> (7 * nth)) as u8 & 0x7f | mark);
        }
        self.count += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// What a stream's parts are written to, in this order: entries, state, groups with their consumers.
#[derive(Debug, Default)]
pub struct StreamWriter {
    /// Listpacks so far, each with its first id, and how many.
    nodes: Vec<u8>,
    node_count: u64,
    /// Entries that are in none yet, and their bytes.
    open: Vec<(Id, Vec<Vec<u8>>)>,
    open_bytes: usize,
    first: Option<Id>,
    groups: Vec<u8>,
    group_count: u64,
}

/// A group of a stream that is written.
#[derive(Clone, Copy, Debug)]
pub struct Writing<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The last entry that it was given.
    pub last: Id,
    /// How many it was given.
    pub read: Option<u64>,
    /// What is pending, by id, each with its consumer's number.
    pub pending: &'a [(Pending, usize)],
    /// Its consumers: name and when it was seen, in ms.
    pub consumers: &'a [(&'a [u8], u64)],
}

impl StreamWriter {
    /// Adds an entry behind all others.
    pub fn entry(&mut self, id: Id, fields: Vec<Vec<u8>>) {
        let bytes: usize = fields.iter().map(|part| part.len() + ELEMENT_BYTES).sum();
        if self.open.len() == NODE_ENTRIES_MAX || self.open_bytes + bytes > NODE_BYTES_MAX {
            self.close_node();
        }
        self.first.get_or_insert(id);
        self.open_bytes += bytes;
        self.open.push((id, fields));
    }

    fn close_node(&mut self) {
        let open = std::mem::take(&mut self.open);
        let Some((first, parts)) = open.first() else { return };
        let names = |parts: &[Vec<u8>]| parts.iter().step_by(2).cloned().collect::<Vec<_>>();
        let master = names(parts);
        let mut pack = Listpack::new();
        for number in [open.len() as i64, 0, master.len() as i64] {
            pack.push_number(number);
        }
        master.iter().for_each(|name| pack.push(name));
        pack.push_number(0);
        for (id, parts) in &open {
            let is_same = names(parts) == master;
            pack.push_number(if is_same { SAME_FIELDS } else { 0 });
            pack.push_number(id.ms.wrapping_sub(first.ms).cast_signed());
            pack.push_number(id.seq.wrapping_sub(first.seq).cast_signed());
            let pairs = parts.len() / 2;
            if is_same {
                parts.iter().skip(1).step_by(2).for_each(|value| pack.push(value));
            } else {
                pack.push_number(pairs as i64);
                parts.iter().for_each(|part| pack.push(part));
            }
            pack.push_number(if is_same { pairs + 3 } else { 2 * pairs + 4 } as i64);
        }
        put_string(&mut self.nodes, &first.to_bytes());
        put_string(&mut self.nodes, &pack.finish());
        self.node_count += 1;
        self.open_bytes = 0;
    }

    /// Adds a group.
    pub fn group(&mut self, group: Writing<'_>) {
        let Writing { name, last, read, pending, consumers } = group;
        let out = &mut self.groups;
        put_string(out, name);
        put_id(out, last);
        put_length(out, read.unwrap_or(u64::MAX));
        put_length(out, pending.len() as u64);
        for (Pending { id, delivered_ms, times, .. }, _) in pending {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&delivered_ms.to_le_bytes());
            put_length(out, *times);
        }
        let mut by_consumer = vec![Vec::new(); consumers.len()];
        for (Pending { id, .. }, consumer) in pending {
            by_consumer[*consumer].extend_from_slice(&id.to_bytes());
        }
        put_length(out, consumers.len() as u64);
        for ((name, seen_ms), ids) in consumers.iter().zip(&by_consumer) {
            put_string(out, name);
            out.extend_from_slice(&seen_ms.to_le_bytes());
            put_length(out, ids.len() as u64 / 16);
            out.extend_from_slice(ids);
        }
        self.group_count += 1;
    }

    /// Appends the stream, of type [`crate::value::STREAM`], which stands before it.
    pub fn finish(mut self, state: StreamState, out: &mut Vec<u8>) {
        self.close_node();
        out.push(crate::value::STREAM);
        put_length(out, self.node_count);
        out.append(&mut self.nodes);
        put_length(out, state.len);
        put_id(out, state.last);
        put_id(out, self.first.unwrap_or_default());
        put_id(out, state.max_deleted);
        put_length(out, state.added);
        put_length(out, self.group_count);
        out.append(&mut self.groups);
    }
}

const _: () = assert!(VERSION >= 10, "streams of this type came with version 10");
/// As Redis has them by default.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES_MAX: usize = 4096;
/// About what an element has beside its bytes.
const ELEMENT_BYTES: usize = 8;
