//! The payload of DUMP: a value with its type, a version and a checksum.

use crate::encode::put_length;
use crate::error::{Error, Problem};
use crate::source::Source;
use crate::value::{Began, Decoder};
use crate::{ALGORITHM, Dialect, Kind, Limits, Part, VALKEY_VERSION_MIN};

/// The value of a payload, part by part.
pub struct Body<'a> {
    source: Source<&'a [u8]>,
    decoder: Decoder,
}

/// What is in a payload: type and value, and the version; `None` if its checksum is another, or none of its versions is known.
///
/// Takes time in proportion to its length.
#[must_use]
pub fn verify(payload: &[u8]) -> Option<(&[u8], u16)> {
    let (body, footer) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    let (version, wanted) = footer.split_first_chunk::<2>()?;
    let found = crc_fast::checksum(ALGORITHM, &payload[..payload.len() - 8]);
    (wanted == found.to_le_bytes()).then_some((body, u16::from_le_bytes(*version)))
}

/// Begins to read the value in `body`, of which [`verify`] told.
///
/// # Errors
/// What it begins with is no value of a type that is known. It is not empty, and no module's.
pub fn read_payload(body: &[u8], version: u16, limits: Limits) -> Result<Body<'_>, Error> {
    let mut source = Source::new(body, limits);
    let dialect = if version < VALKEY_VERSION_MIN { Dialect::Redis } else { Dialect::Valkey };
    let kind = source.byte()?;
    match Decoder::begin(kind, dialect, &mut source)? {
        Began::Value(decoder) => Ok(Body { source, decoder }),
        Began::Skipped(_) => source.fail(Problem::Type(kind)),
    }
}

impl Body<'_> {
    /// What it holds.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.decoder.kind()
    }

    /// The next part; `None` behind the last one, which is where the payload ends.
    ///
    /// # Errors
    /// The payload is no value.
    pub fn next_part(&mut self) -> Result<Option<Part>, Error> {
        if let Some(part) = self.decoder.next_part(&mut self.source)? {
            return Ok(Some(part));
        }
        match self.source.byte() {
            Err(Error { problem: Problem::Ends, .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => self.source.damaged("bytes behind the value"),
        }
    }
}

/// The string in `body`, if it is one that lies there as it is.
#[must_use]
pub fn plain_string(body: &[u8]) -> Option<&[u8]> {
    let rest = body.strip_prefix(&[crate::value::STRING])?;
    let (len, rest) = match *rest.first()? {
        first @ 0..0x40 => (first.into(), &rest[1..]),
        first @ 0x40..0x80 => (u64::from(first & 0x3f) << 8 | u64::from(*rest.get(1)?), &rest[2..]),
        0x80 => (u32::from_be_bytes(*rest[1..].first_chunk()?).into(), &rest[5..]),
        0x81 => (u64::from_be_bytes(*rest[1..].first_chunk()?), &rest[9..]),
        _ => return None,
    };
    (len == rest.len() as u64).then_some(rest)
}

/// What comes before the bytes of a string in its payload, if it is not to be copied.
#[must_use]
pub fn string_head(len: usize) -> Vec<u8> {
    let mut head = vec![crate::value::STRING];
    put_length(&mut head, len as u64);
    head
}

/// What comes behind the value in its payload, which begins with these `parts`.
#[must_use]
pub fn footer(version: u16, parts: &[&[u8]]) -> [u8; FOOTER_BYTES] {
    let version = version.to_le_bytes();
    let mut digest = crc_fast::Digest::new(ALGORITHM);
    parts.iter().for_each(|part| digest.update(part));
    digest.update(&version);
    let mut footer = [0; FOOTER_BYTES];
    footer[..2].copy_from_slice(&version);
    footer[2..].copy_from_slice(&digest.finalize().to_le_bytes());
    footer
}

/// Version and checksum.
pub const FOOTER_BYTES: usize = 10;
