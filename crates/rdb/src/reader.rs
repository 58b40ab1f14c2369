//! A file, record by record: keys with their parts, functions, notes, and what is left out.
//!
//! The checksum is compared behind the last record, so a file is known to be whole only once `next_item` has answered `None`.

use std::io::Read;

use crate::error::{Error, Problem};
use crate::source::{Source, step};
use crate::value::{Began, Decoder, module_name, skip_module};
use crate::{Dialect, Kind, Limits, Part, REDIS_VERSION_MAX, VALKEY_VERSION_MAX};

/// Reads a file from its beginning to its checksum.
pub struct Reader<R> {
    source: Source<R>,
    dialect: Dialect,
    version: u32,
    db: u64,
    /// Of the key that comes.
    expires_ms: Option<u64>,
    value: Option<Decoder>,
    is_over: bool,
}

/// What comes next in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A note about the file.
    Note {
        /// What about.
        name: Vec<u8>,
        /// The note.
        value: Vec<u8>,
    },
    /// The code of a library of functions.
    Functions(Vec<u8>),
    /// A key: its parts follow, and [`Item::End`].
    Key(Key),
    /// A part of the key before.
    Part(Part),
    /// All parts of the key before have come.
    End,
    /// Something that was read and is left out.
    Skipped(Skipped),
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The number of its database.
    pub db: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// What it holds.
    pub kind: Kind,
    /// When it ends, in ms since 1970.
    pub expires_ms: Option<u64>,
}

/// What is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Database and name, if it is a key.
    pub key: Option<(u64, Vec<u8>)>,
    /// What it is, in words.
    pub what: String,
}

impl<R: Read> Reader<R> {
    /// Reads what a file begins with.
    ///
    /// # Errors
    /// It is no such file, or of a version that is not known.
    pub fn open(input: R, limits: Limits) -> Result<Self, Error> {
        let mut source = Source::new(input, limits).with_checksum();
        let magic = source.array::<9>()?;
        let digits = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
        let head = magic.strip_prefix(b"REDIS").map(|rest| (Dialect::Redis, digits(rest)));
        let head = head.or_else(|| Some((Dialect::Valkey, digits(magic.strip_prefix(b"VALKEY")?))));
        let Some((dialect, Some(version))) = head else { return source.fail(Problem::NotRdb) };
        let newest = match dialect {
            Dialect::Redis => REDIS_VERSION_MAX,
            Dialect::Valkey => VALKEY_VERSION_MAX,
        };
        if !(1..=newest.into()).contains(&version) {
            return source.fail(Problem::Version(version));
        }
        Ok(Self { source, dialect, version, db: 0, expires_ms: None, value: None, is_over: false })
    }

    /// Which server wrote it, and the version.
    pub fn written_by(&self) -> (Dialect, u32) {
        (self.dialect, self.version)
    }

    /// Bytes that were read.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// What it reads from, and what was read behind the end of the file.
    pub fn into_parts(self) -> (R, Vec<u8>) {
        self.source.into_parts()
    }

    /// What comes next; `None` behind the end, whose checksum is right.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read on.
    pub fn next_item(&mut self) -> Result<Option<Item>, Error> {
        if let Some(value) = &mut self.value {
            let part = value.next_part(&mut self.source)?;
            if part.is_none() {
                self.value = None;
            }
            return Ok(Some(part.map_or(Item::End, Item::Part)));
        }
        while !self.is_over {
            let record = self.source.byte()?;
            if let Some(item) = self.record(record)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// What a record is about, if it is of interest.
    fn record(&mut self, record: u8) -> Result<Option<Item>, Error> {
        let source = &mut self.source;
        match record {
            255 => self.check_sum()?,
            254 => self.db = source.length()?,
            253 => {
                let seconds = source.array().map(u32::from_le_bytes)?;
                self.expires_ms = Some(u64::from(seconds) * 1_000);
            }
            // what is below 0 has ended
            252 => self.expires_ms = Some(source.array().map(i64::from_le_bytes)?.max(0).unsigned_abs()),
            251 => _ = (source.length()?, source.length()?),
            250 => return Ok(Some(Item::Note { name: source.string()?, value: source.string()? })),
            249 => _ = source.byte()?,
            248 => _ = source.length()?,
            247 => return self.module().map(Some),
            246 => return source.damaged("functions of a version of Redis that was never released"),
            245 => return Ok(Some(Item::Functions(source.string()?))),
            244 => _ = (source.length()?, source.length()?, source.length()?),
            243 => self.skip_243()?,
            kind => return self.key(kind).map(Some),
        }
        Ok(None)
    }

    fn key(&mut self, kind: u8) -> Result<Item, Error> {
        let (name, expires_ms) = (self.source.string()?, self.expires_ms.take());
        Ok(match Decoder::begin(kind, self.dialect, &mut self.source)? {
            Began::Skipped(what) => Item::Skipped(Skipped { key: Some((self.db, name)), what }),
            Began::Value(decoder) => {
                let kind = decoder.kind();
                self.value = Some(decoder);
                Item::Key(Key { db: self.db, name, kind, expires_ms })
            }
        })
    }

    fn module(&mut self) -> Result<Item, Error> {
        let name = module_name(self.source.length()?);
        let (_opcode, _when) = (self.source.length()?, self.source.length()?);
        skip_module(&mut self.source)?;
        Ok(Item::Skipped(Skipped { key: None, what: format!("data of module {name}") }))
    }

    /// Of Redis: what modules note of the next key. Of Valkey: slots that are under way.
    fn skip_243(&mut self) -> Result<(), Error> {
        let source = &mut self.source;
        if self.dialect == Dialect::Valkey {
            source.skip_string()?;
        }
        let mut left = source.length()?;
        while step(&mut left) {
            if self.dialect == Dialect::Valkey {
                let _from_to = (source.length()?, source.length()?);
            } else {
                source.skip(4)?;
                skip_module(source)?;
            }
        }
        Ok(())
    }

    fn check_sum(&mut self) -> Result<(), Error> {
        self.is_over = true;
        if self.version < CHECKSUM_VERSION_MIN {
            return Ok(());
        }
        let found = self.source.checksum();
        let wanted = self.source.u64()?;
        // 0: it was written without
        if wanted != 0 && found != wanted {
            return self.source.fail(Problem::Checksum { found, wanted });
        }
        Ok(())
    }
}

const CHECKSUM_VERSION_MIN: u32 = 5;
