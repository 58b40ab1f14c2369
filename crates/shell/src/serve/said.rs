//! What a component says, as messages of the protocol.

use serde::Serialize;
use topology::value::Value;
use topology::values::Values;

use crate::codec::Codec;
use crate::value::{self, SpokenList, Unspeakable};

/// A message but for tuples; what is `None` is left out.
#[derive(Default, Serialize)]
struct Said<'a> {
    command: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    msg: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u8>,
}

#[derive(Serialize)]
struct Pid {
    pid: u32,
}

#[derive(Serialize)]
struct Emitted<'a> {
    command: &'a str,
    need_task_ids: bool,
    stream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    anchors: Option<&'a [&'a str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    tuple: SpokenList<'a>,
}

/// Whose a tuple is.
pub(super) enum Of<'a> {
    /// A bolt's: the tuples that it was made from.
    Anchors(Vec<&'a str>),
    /// A spout's: what it hears of it by.
    Id(String),
}

/// The answer to the handshake.
pub(super) fn pid(codec: Codec, pid: u32, out: &mut Vec<u8>) {
    codec.append(&Pid { pid }, out);
}

/// It has done what it was told.
pub(super) fn sync(codec: Codec, out: &mut Vec<u8>) {
    codec.append(&Said { command: "sync", ..Said::default() }, out);
}

/// What became of a tuple.
pub(super) fn settled(codec: Codec, command: &str, id: &str, out: &mut Vec<u8>) {
    codec.append(&Said { command, id: Some(id), ..Said::default() }, out);
}

/// An error, which belongs to the next tuple that fails.
pub(super) fn error(codec: Codec, text: &str, out: &mut Vec<u8>) {
    codec.append(&Said { command: "error", msg: Some(text), ..Said::default() }, out);
}

/// A warning for the log.
pub(super) fn warning(codec: Codec, text: &str, out: &mut Vec<u8>) {
    codec.append(&Said { command: "log", msg: Some(text), level: Some(3), ..Said::default() }, out);
}

/// A tuple; `of` has its anchors, or its id.
///
/// # Errors
/// A value is not in `codec`; nothing was appended.
pub(super) fn emit(
    codec: Codec,
    stream: &str,
    values: &Values,
    of: &Of<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Unspeakable> {
    let values: Vec<Value<'_>> =
        (0..values.len()).filter_map(|place| values.value(place)).filter_map(Result::ok).collect();
    value::check(codec, &values).map_err(|(_, why)| why)?;
    let (anchors, id) = match of {
        Of::Anchors(ids) => (Some(&ids[..]), None),
        Of::Id(id) => (None, Some(&id[..])),
    };
    let tuple = SpokenList(&values);
    codec.append(&Emitted { command: "emit", need_task_ids: false, stream, anchors, id, tuple }, out);
    Ok(())
}
