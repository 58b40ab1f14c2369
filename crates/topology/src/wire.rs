//! What tasks of different processes send each other, as bytes: one envelope a message of a link. With exactly-once also what workers and the coordinator of
//! epochs say: `talk`.
//!
//! All numbers are little-endian. Header, 36 B:
//!
//! ```text
//!  0 version u8 | 1 kind u8 | 2 zero u16 | 4 from u32 | 8 to u32 | 12 start u32 | 16 moves u32 | 20 count u32 | 24 offset u64 | 32 anchors u32
//! ```
//!
//! | kind | of | start, moves, offset | count, anchors | behind the header |
//! |---|---|---|---|---|
//! | 1 open | a channel's sender | its life; bytes sent | 0 | - |
//! | 2 parcel | the same | its life; bytes sent before | tuples; anchors | anchors, then tuples |
//! | 3 barrier | the same | the same | 0 | epoch u64 |
//! | 4 close | the same | the same | 0 | - |
//! | 5 credit | a channel's receiver | the sender's life; bytes taken | 0 | - |
//! | 6 reports | any task, to a spout's | 0 | reports; 0 | reports |
//!
//! ```text
//!  anchor:  spout u32 | life u32 | number u64 | token u64 | origin u32
//!  tuple:   origin u32 | stream u16 | size u32 | size bytes of values
//!  report:  spout u32 | life u32 | number u64 | xor u64 | flags u8 (1: extends) | failures u32 | failures
//!  failure: origin u32 | component u16 | blame u8 | has delay u8 | delay in ns u64 | size u16 | size bytes of text
//! ```
//!
//! Invariants
//!   1. A count or a length is compared with the bytes that are there before it is used: nothing is allocated for what is not there.
//!   2. One encoding for each envelope: what decodes also encodes to the same bytes.
//!   3. What decodes is what a task may be given: a parcel has tuples, tokens are not 0, values are as many as their lengths say.
//!
//! Values of a decoded parcel share the buffer that it was decoded from, and keep all of it.
//! Out of scope: integrity and order on the way, which are the link's (crate `transport`), and what stream and component numbers mean.

mod cursor;
mod epochs;
mod error;
mod parcel;
mod report;

use bytes::Bytes;

use crate::channel::{Credit, Forward, Incarnation};
use crate::ids::TaskId;
use crate::message::{Envelope, Message};
use crate::parcel::{Epoch, Load};
use cursor::{Cursor, count};

pub use epochs::{decode_epoch_message, encode_epoch_message};
pub use error::{VERSION, WireError};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 36;

/// The header's fields behind version and kind.
#[derive(Clone, Copy, Default)]
struct Header {
    from: u32,
    to: u32,
    life: Incarnation,
    count: u32,
    offset: u64,
    anchors: u32,
}

/// Appends an envelope to `bytes`.
///
/// # Panics
/// If it has more than 4 billion tuples, anchors, reports or failures: credits and `max_spout_pending` bound them far below.
pub fn encode(envelope: &Envelope, bytes: &mut Vec<u8>) {
    let Envelope { from, to, message } = envelope;
    let header = Header { from: from.0, to: to.0, ..Header::default() };
    match message {
        Message::Forward(Forward::Open { life, offset }) => {
            put_header(OPEN, &Header { life: *life, offset: *offset, ..header }, bytes);
        }
        Message::Forward(Forward::Frame { life, offset, load }) => {
            put_load(&Header { life: *life, offset: *offset, ..header }, load, bytes);
        }
        Message::Credit(Credit { life, taken }) => {
            put_header(CREDIT, &Header { life: *life, offset: *taken, ..header }, bytes);
        }
        Message::Reports(reports) => {
            put_header(REPORTS, &Header { count: count(reports.len()), ..header }, bytes);
            reports.iter().for_each(|report| report::put(report, bytes));
        }
    }
}

/// The envelope that has these bytes, all of them.
///
/// # Errors
/// They are no envelope: the process that sent them is of no more use.
pub fn decode(bytes: &Bytes) -> Result<Envelope, WireError> {
    let mut cursor = Cursor::new(bytes);
    let (kind, header) = header(&mut cursor)?;
    let Header { life, offset, .. } = header;
    let load = match kind {
        PARCEL => Some(Load::Parcel(parcel::take(&mut cursor, header.count, header.anchors)?)),
        BARRIER => Some(Load::Barrier(Epoch(cursor.u64("epoch")?))),
        CLOSE => Some(Load::Close),
        _ => None,
    };
    let message = match (kind, load) {
        (_, Some(load)) => Message::Forward(Forward::Frame { life, offset, load }),
        (OPEN, _) => Message::Forward(Forward::Open { life, offset }),
        (CREDIT, _) => Message::Credit(Credit { life, taken: offset }),
        _ => Message::Reports(report::take(&mut cursor, header.count)?),
    };
    cursor.end()?;
    Ok(Envelope { from: TaskId(header.from), to: TaskId(header.to), message })
}

fn put_load(header: &Header, load: &Load, bytes: &mut Vec<u8>) {
    match load {
        Load::Parcel(parcel) => {
            let (items, anchors) = (count(parcel.items.len()), count(parcel.anchors.len()));
            put_header(PARCEL, &Header { count: items, anchors, ..*header }, bytes);
            parcel::put(parcel, bytes);
        }
        Load::Barrier(epoch) => {
            put_header(BARRIER, header, bytes);
            bytes.extend_from_slice(&epoch.0.to_le_bytes());
        }
        Load::Close => put_header(CLOSE, header, bytes),
    }
}

fn put_header(kind: u8, header: &Header, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[VERSION, kind, 0, 0]);
    let Header { from, to, life, count, offset, anchors } = header;
    for field in [*from, *to, life.start, life.moves, *count] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&anchors.to_le_bytes());
    debug_assert_eq!(bytes.len() - start, HEADER_BYTES);
}

/// Kind and header, whose unused fields are 0.
fn header(cursor: &mut Cursor<'_>) -> Result<(u8, Header), WireError> {
    let version = cursor.u8("version")?;
    if version != VERSION {
        return Err(WireError::Version { theirs: version });
    }
    let kind = cursor.u8("kind")?;
    if !(OPEN..=REPORTS).contains(&kind) {
        return Err(WireError::UnknownKind(kind));
    }
    let (has_life, has_count) = (kind != REPORTS, matches!(kind, PARCEL | REPORTS));
    let zero = |what, at, value, may: bool| {
        if may || value == 0 { Ok(()) } else { Err(WireError::Field { what, at, value }) }
    };
    zero("reserved bytes", 2, cursor.u16("reserved bytes")?.into(), false)?;
    let (from, to) = (cursor.u32("sender")?, cursor.u32("receiver")?);
    let life = Incarnation { start: cursor.u32("start")?, moves: cursor.u32("moves")? };
    let (count, offset, anchors) = (cursor.u32("count")?, cursor.u64("offset")?, cursor.u32("anchors")?);
    zero("start", 12, life.start.into(), has_life)?;
    zero("moves", 16, life.moves.into(), has_life)?;
    zero("count", 20, count.into(), has_count)?;
    zero("offset", 24, offset, has_life)?;
    zero("anchors", 32, anchors.into(), kind == PARCEL)?;
    Ok((kind, Header { from, to, life, count, offset, anchors }))
}

const OPEN: u8 = 1;
const PARCEL: u8 = 2;
const BARRIER: u8 = 3;
const CLOSE: u8 = 4;
const CREDIT: u8 = 5;
const REPORTS: u8 = 6;
