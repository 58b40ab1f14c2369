//! A value, part by part, by its type.
//!
//! ```text
//!   0 string
//!   1 count strings                        a list            2 the same            a set
//!   3 count (string score)                 a sorted set; score: u8 digits, or 253 NaN, 254 and 255: infinite
//!   5 count (string f64)                   a sorted set
//!   4 count (field value)                  a hash
//!  10, 12, 13 ziplist    16, 17, 20 listpack    11 intset    9 zipmap
//!                                          as one string: a list, a sorted set, a hash; a hash, a sorted set, a set; a set; a hash
//!  14 count ziplists                       a list
//!  18 count (1 string, or 2 listpack)      a list
//!  15, 19, 21, 26, 27                      a stream, see `stream`
//!   7 module, 28 array                     skipped
//!
//!  Redis   22 count (ms field value)       a hash, ms 0: no end
//!          24 u64 ms0 | count (ms field value)   a hash, ends at ms0 + ms - 1, or never if ms is 0
//!          23 listpack, 25 u64 | listpack  a hash, of field, value and ms in turn, ms 0: no end
//!  Valkey  22 count (field value i64 ms)   a hash, ms -1: no end
//! ```

use std::io::Read;

use crate::blob::{Blob, Form, new_blob, score};
use crate::error::{Error, Problem};
use crate::source::{Source, step};
use crate::stream::StreamDecoder;
use crate::{Dialect, Kind, Part};

/// What was read of a value.
#[derive(Debug)]
pub(crate) struct Decoder {
    kind: Kind,
    state: State,
}

/// How reading a value began.
pub(crate) enum Began {
    Value(Decoder),
    /// It is none of ours, and was read: what it was.
    Skipped(String),
}

#[derive(Debug)]
enum State {
    Done,
    String,
    Elements { left: u64 },
    Scored { left: u64, is_binary: bool },
    Fields { left: u64, times: Times },
    Blob { blob: Blob, has_times: bool },
    Nodes { left: u64, form: NodeForm, blob: Option<Blob> },
    Stream(Box<StreamDecoder>),
}

/// Where the deadline of a field is.
#[derive(Clone, Copy, Debug)]
enum Times {
    None,
    /// Before it, a number that counts from here; 0: none.
    Before {
        from_ms: u64,
    },
    /// Behind it.
    Behind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeForm {
    Ziplists,
    Any,
}

impl Decoder {
    /// Begins to read a value of this type.
    pub(crate) fn begin<R: Read>(kind: u8, dialect: Dialect, source: &mut Source<R>) -> Result<Began, Error> {
        let is_redis = dialect == Dialect::Redis;
        let times = |from_ms| Times::Before { from_ms };
        let (kind, state) = match kind {
            STRING => (Kind::String, State::String),
            LIST => (Kind::List, State::Elements { left: source.length()? }),
            SET => (Kind::Set, State::Elements { left: source.length()? }),
            3 => (Kind::SortedSet, State::Scored { left: source.length()?, is_binary: false }),
            SORTED_SET => (Kind::SortedSet, State::Scored { left: source.length()?, is_binary: true }),
            HASH => (Kind::Hash, State::Fields { left: source.length()?, times: Times::None }),
            7 => {
                let name = module_name(source.length()?);
                skip_module(source)?;
                return Ok(Began::Skipped(format!("a value of module {name}")));
            }
            9 => (Kind::Hash, State::blob(Form::Zipmap, source)?),
            10 => (Kind::List, State::blob(Form::Ziplist, source)?),
            11 => (Kind::Set, State::blob(Form::Intset, source)?),
            12 => (Kind::SortedSet, State::blob(Form::Ziplist, source)?),
            13 => (Kind::Hash, State::blob(Form::Ziplist, source)?),
            14 => (Kind::List, State::nodes(NodeForm::Ziplists, source)?),
            16 => (Kind::Hash, State::blob(Form::Listpack, source)?),
            17 => (Kind::SortedSet, State::blob(Form::Listpack, source)?),
            18 => (Kind::List, State::nodes(NodeForm::Any, source)?),
            20 => (Kind::Set, State::blob(Form::Listpack, source)?),
            15 => (Kind::Stream, State::stream(1, source)?),
            STREAM => (Kind::Stream, State::stream(2, source)?),
            21 => (Kind::Stream, State::stream(3, source)?),
            22 if !is_redis => (Kind::Hash, State::Fields { left: source.length()?, times: Times::Behind }),
            22 => (Kind::Hash, State::Fields { left: source.length()?, times: times(1) }),
            23 if is_redis => (Kind::Hash, State::timed_blob(source)?),
            HASH_TIMED if is_redis => {
                let from_ms = source.u64()?;
                (Kind::Hash, State::Fields { left: source.length()?, times: times(from_ms) })
            }
            25 if is_redis => {
                source.u64()?;
                (Kind::Hash, State::timed_blob(source)?)
            }
            26 if is_redis => (Kind::Stream, State::stream(4, source)?),
            27 if is_redis => (Kind::Stream, State::stream(5, source)?),
            28 if is_redis => {
                skip_array(source)?;
                return Ok(Began::Skipped("an array".to_owned()));
            }
            other => return source.fail(Problem::Type(other)),
        };
        Ok(Began::Value(Self { kind, state }))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The next part; `None` behind the last one.
    pub(crate) fn next_part<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Part>, Error> {
        match &mut self.state {
            State::Done => Ok(None),
            State::String => {
                self.state = State::Done;
                Ok(Some(Part::String(source.string()?)))
            }
            State::Elements { left } => {
                if !step(left) {
                    return Ok(None);
                }
                Ok(Some(Part::Element(source.string()?)))
            }
            State::Scored { left, is_binary } => {
                if !step(left) {
                    return Ok(None);
                }
                let member = source.string()?;
                let score = if *is_binary { f64::from_bits(source.u64()?) } else { text_score(source)? };
                if score.is_nan() {
                    return source.damaged("a score that is no number");
                }
                Ok(Some(Part::Member { member, score }))
            }
            State::Fields { left, times } => {
                if !step(left) {
                    return Ok(None);
                }
                field(*times, source).map(Some)
            }
            State::Blob { blob, has_times } => {
                blob_part(self.kind, *has_times, blob).or_else(|what| source.damaged(what))
            }
            State::Nodes { left, form, blob } => node_part(left, *form, blob, source),
            State::Stream(stream) => stream.next_part(source),
        }
    }
}

impl State {
    fn blob<R: Read>(form: Form, source: &mut Source<R>) -> Result<Self, Error> {
        let blob = new_blob(form, source)?;
        Ok(Self::Blob { blob, has_times: false })
    }

    fn timed_blob<R: Read>(source: &mut Source<R>) -> Result<Self, Error> {
        let blob = new_blob(Form::Listpack, source)?;
        Ok(Self::Blob { blob, has_times: true })
    }

    fn nodes<R: Read>(form: NodeForm, source: &mut Source<R>) -> Result<Self, Error> {
        Ok(Self::Nodes { left: source.length()?, form, blob: None })
    }

    fn stream<R: Read>(version: u8, source: &mut Source<R>) -> Result<Self, Error> {
        Ok(Self::Stream(Box::new(StreamDecoder::begin(version, source)?)))
    }
}

fn blob_part(kind: Kind, has_times: bool, blob: &mut Blob) -> Result<Option<Part>, &'static str> {
    let Some(first) = blob.next()? else { return Ok(None) };
    Ok(Some(match kind {
        Kind::Hash => {
            let value = blob.needed()?;
            let expires_ms = if has_times { u64::try_from(blob.number()?).ok() } else { None };
            Part::Field { field: first, value, expires_ms: expires_ms.filter(|ms| *ms > 0) }
        }
        Kind::SortedSet => Part::Member { member: first, score: score(&blob.needed()?)? },
        _ => Part::Element(first),
    }))
}

fn node_part<R: Read>(
    left: &mut u64,
    form: NodeForm,
    blob: &mut Option<Blob>,
    source: &mut Source<R>,
) -> Result<Option<Part>, Error> {
    loop {
        if let Some(inner) = blob {
            match inner.next() {
                Ok(Some(element)) => return Ok(Some(Part::Element(element))),
                Ok(None) => *blob = None,
                Err(what) => return source.damaged(what),
            }
        }
        if !step(left) {
            return Ok(None);
        }
        let packed = match form {
            NodeForm::Ziplists => Form::Ziplist,
            NodeForm::Any => match source.length()? {
                1 => return Ok(Some(Part::Element(source.string()?))),
                2 => Form::Listpack,
                _ => return source.damaged("a part of a list in an unknown form"),
            },
        };
        *blob = Some(new_blob(packed, source)?);
    }
}

fn field<R: Read>(times: Times, source: &mut Source<R>) -> Result<Part, Error> {
    let before = if matches!(times, Times::Before { .. }) { source.length()? } else { 0 };
    let (field, value) = (source.string()?, source.string()?);
    let expires_ms = match times {
        Times::None => None,
        Times::Before { from_ms } => (before != 0).then(|| from_ms.saturating_add(before - 1)),
        Times::Behind => u64::try_from(source.array().map(i64::from_le_bytes)?).ok(),
    };
    // 0 would be a field that ends never
    let expires_ms = expires_ms.map(|ms| ms.max(1));
    Ok(Part::Field { field, value, expires_ms })
}

fn text_score<R: Read>(source: &mut Source<R>) -> Result<f64, Error> {
    match source.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            let text = source.bytes(len.into())?;
            score(&text).or_else(|what| source.damaged(what))
        }
    }
}

/// The name in the number of a module: nine characters of six bits.
pub(crate) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).rev().map(|at| char::from(LETTERS[(id >> (10 + 6 * at) & 63) as usize])).collect()
}

/// Skips what a module wrote, up to its end.
pub(crate) fn skip_module<R: Read>(source: &mut Source<R>) -> Result<(), Error> {
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => _ = source.length()?,
            3 => source.skip(4)?,
            4 => source.skip(8)?,
            5 => source.skip_string()?,
            _ => return source.damaged("an unknown part of a module's value"),
        }
    }
}

/// Skips an array: `count | 0, or 1 index | (index | 0 string, 1 i64, 2 f64, 3 string) ...`
fn skip_array<R: Read>(source: &mut Source<R>) -> Result<(), Error> {
    let mut left = source.length()?;
    if source.length()? != 0 {
        source.length()?;
    }
    while step(&mut left) {
        source.length()?;
        match source.length()? {
            0 | 3 => source.skip_string()?,
            1 | 2 => source.skip(8)?,
            _ => return source.damaged("an element of an array in an unknown form"),
        }
    }
    Ok(())
}

/// The type of a string.
pub const STRING: u8 = 0;
/// Of a list of strings.
pub const LIST: u8 = 1;
/// Of a set of strings.
pub const SET: u8 = 2;
/// Of a hash of strings.
pub const HASH: u8 = 4;
/// Of a sorted set with binary scores.
pub const SORTED_SET: u8 = 5;
/// Of a stream whose groups have positions.
pub const STREAM: u8 = 19;
/// Of a hash whose fields have deadlines, as Redis writes it.
pub const HASH_TIMED: u8 = 24;
