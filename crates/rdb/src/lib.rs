//! RDB: the files in which Redis and Valkey keep all their keys, and the payloads of DUMP, read and written.
//!
//! ```text
//!  file     "REDIS" or "VALKEY" | version, digits up to 9 bytes in all | records | 255 | crc64 of all before, u64 (0: none), from version 5 on
//!  record   250 name value             a note          254 db               keys of this database follow
//!           251 keys expiring          sizes           244 slot keys expiring
//!           252 u64 ms, 253 u32 s      the next key ends then
//!           248 idle, 249 u8           how the next key is used
//!           245 code                   functions       247 module value     a module's own
//!           type key value             a key
//!  payload  type value | version u16 | crc64 of all before, u64            what DUMP answers and RESTORE takes
//!
//!  length   00xxxxxx  |  01xxxxxx u8  |  80 u32 big-endian  |  81 u64 big-endian  |  11xxxxxx: a string in another form
//!  string   length bytes  |  C0 i8  |  C1 i16  |  C2 i32  |  C3 length length bytes, compressed by LZF
//! ```
//!
//! Numbers are little-endian unless it says so. [`value`] has the values by type. Redis and Valkey give some numbers (22, 243) different meanings: the first
//! five bytes say who wrote a file, the version a payload (from [`VALKEY_VERSION_MIN`] on it is Valkey).
//!
//! Invariants
//!   1. Whatever the bytes are, reading them ends with values or with an [`Error`] that has the offset. It takes time in proportion to
//!      the bytes and to what they expand to, which [`Limits`] bounds.
//!   2. A length is no reason to allocate: memory grows as bytes come.
//!   3. A [`Reader`] holds one string at a time, and what is pending in one group of a stream.
//!
//! Written is what Redis 7.0 reads (version 10), in the plain types, whose elements are strings. Elements are not looked at for doubles.
//!
//! Weighed: the crate `rdb` 0.4 knows neither streams nor functions nor deadlines of fields, and trusts lengths.
//! Out of scope: what values mean, sockets, files.

mod blob;
mod encode;
mod error;
pub mod fuzzing;
mod lzf;
mod payload;
mod reader;
mod source;
mod stream;
#[cfg(test)]
mod tests;
pub mod value;

pub use encode::{FileWriter, StreamWriter, Writing, put_length, put_string};
pub use error::{Error, Problem};
pub use payload::{Body, FOOTER_BYTES, footer, plain_string, read_payload, string_head, verify};
pub use reader::{Item, Key, Reader, Skipped};

/// Which server wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis, and Valkey before version 9.
    Redis,
    /// Valkey from version 9 on.
    Valkey,
}

/// What reading refuses.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a string, after it is decompressed; also of small collections that are one string.
    pub string_bytes_max: u64,
}

impl Default for Limits {
    /// The longest string of Redis.
    fn default() -> Self {
        Self { string_bytes_max: 512 << 20 }
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    String,
    /// Elements in their order.
    List,
    /// Elements.
    Set,
    /// Members with scores.
    SortedSet,
    /// Fields with values.
    Hash,
    /// Entries, and groups that read them.
    Stream,
}

/// The identifier of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Milliseconds.
    pub ms: u64,
    /// Which of that millisecond.
    pub seq: u64,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A string, whole.
    String(Vec<u8>),
    /// Of a list, in order, or of a set.
    Element(Vec<u8>),
    /// Of a sorted set; the score is not NaN.
    Member {
        /// Who.
        member: Vec<u8>,
        /// Its score.
        score: f64,
    },
    /// Of a hash.
    Field {
        /// Its name.
        field: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// When it ends, in ms since 1970.
        expires_ms: Option<u64>,
    },
    /// Of a stream: fields and values, one behind the other. Identifiers ascend.
    Entry {
        /// Which.
        id: Id,
        /// Fields and values.
        fields: Vec<Vec<u8>>,
    },
    /// Of a stream, behind its entries.
    Stream(StreamState),
    /// A group of a stream.
    Group {
        /// Its name.
        name: Vec<u8>,
        /// The last entry that it was given.
        last: Id,
        /// How many it was given, as far as that is known.
        read: Option<u64>,
    },
    /// A consumer of the group before.
    Consumer {
        /// Its name.
        name: Vec<u8>,
        /// When it last asked, in ms since 1970.
        seen_ms: u64,
        /// When it last got something; `None`: never, or not known.
        active_ms: Option<u64>,
    },
    /// What was given to the consumer before and not acknowledged.
    Pending(Pending),
}

/// An entry of a stream that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Which.
    pub id: Id,
    /// When it was given, in ms since 1970.
    pub delivered_ms: u64,
    /// How often.
    pub times: u64,
    /// No consumer has it any more: it was given back.
    pub is_free: bool,
}

/// What is known of a stream as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Entries.
    pub len: u64,
    /// The identifier of the newest entry that there ever was.
    pub last: Id,
    /// The greatest one that was deleted.
    pub max_deleted: Id,
    /// Entries that were ever added.
    pub added: u64,
}

/// Payloads of this version and later ones are Valkey's; those of versions 12 up to it are Redis's alone.
pub const VALKEY_VERSION_MIN: u16 = 80;
/// The newest version of Valkey whose types are known.
pub const VALKEY_VERSION_MAX: u16 = 80;
/// The newest version of Redis whose types are known.
pub const REDIS_VERSION_MAX: u16 = 14;
/// What is written: Redis 7.0 reads it.
pub const VERSION: u16 = 10;
/// What is written of hashes whose fields have deadlines: Redis 7.4 reads it.
pub const VERSION_TIMED: u16 = 12;
pub(crate) const ALGORITHM: crc_fast::CrcAlgorithm = crc_fast::CrcAlgorithm::Crc64Redis;
