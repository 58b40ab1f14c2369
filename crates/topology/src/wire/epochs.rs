//! Bytes of what the coordinator of epochs and the workers tell each other: one word a message of a link.
//!
//! All numbers are little-endian. Header, 8 B:
//!
//! ```text
//!  0 version u8 | 1 kind u8 | 2 zero u16 | 4 generation u32
//! ```
//!
//! | kind | of | behind the header |
//! |---|---|---|
//! | 16 ready, 17 work | a worker | - |
//! | 18 capture | a worker | task u32, epoch u64, position?; values u32, each: key, field?, value?; commands u32, each: words u32, words; letters u32, letters |
//! | 19 failed | a worker | task u32, original, failure as in reports |
//! | 20 lost | a worker | text |
//! | 21 capture whose commands come from tuples | a worker | as 18; then causes u32, each: command u32, component u16, ancestor |
//! | 22 recalled | a worker | tuples u32, each: ancestor, original? |
//! | 24 prepare | the coordinator | tasks u32, each: worker u32; positions u32, each: task u32, position u128; poison u32, each: task u32, letter; pending_max u32, 0 for none |
//! | 25 go | the coordinator | - |
//! | 28 prepare, where a spout had other numbers of tasks | the coordinator | as 24; then spouts u32, each: component u16, numbers u32, each: tasks u32, each: position? |
//! | 26 barrier, 27 durable | the coordinator | epoch u64 |
//! | 29 recall | the coordinator | ancestors u32, ancestors |
//!
//! ```text
//!  x?:        0 u8, or 1 u8 and x
//!  bytes:     size u32 | size bytes     (keys, fields, values, words, texts)
//!  original:  position u128 | stream u16 | (direct u32)? | attempts u32 | bytes of values
//!  letter:    original | (component u16)? | text
//!  ancestor:  spout u32 | life u32 | number u64 | origin u32
//! ```
//!
//! Keys, values and words share the buffer that they were decoded from.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::cursor::{Cursor, count};
use super::error::{VERSION, WireError};
use super::report::{FAILURE_BYTES, put_failure, take_failure, take_flag};
use crate::anchor::{Ancestor, RootId};
use crate::changes::{Capture, Cause, Changes, Command, StateKey};
use crate::epochs::{Beginning, EpochMessage, EpochReport, Order};
use crate::ids::{ComponentId, StreamId, TaskId, WorkerId};
use crate::parcel::Epoch;
use crate::past::Former;
use crate::tracker::{DeadLetter, Original, Position};
use crate::values::Values;

/// Appends a word between the coordinator of epochs and a worker to `bytes`.
///
/// # Panics
/// If a part of it has 4 GiB, or 4 billion parts: `max_spout_pending` bounds them far below.
pub fn encode_epoch_message(talk: &EpochMessage, bytes: &mut Vec<u8>) {
    let (kind, generation) = match talk {
        EpochMessage::Report(told) => (kind_of_report(told), told.generation()),
        EpochMessage::Order(order) => kind_of_order(order),
    };
    bytes.extend_from_slice(&[VERSION, kind, 0, 0]);
    put_u32(generation, bytes);
    match talk {
        EpochMessage::Report(EpochReport::Capture(capture)) => put_capture(capture, bytes),
        EpochMessage::Report(EpochReport::Failed { task, failed: (original, failure), .. }) => {
            put_u32(task.0, bytes);
            put_original(original, bytes);
            put_failure(failure, bytes);
        }
        EpochMessage::Report(EpochReport::Recalled { originals, .. }) => put_recalled(originals, bytes),
        EpochMessage::Report(EpochReport::Lost { error, .. }) => put_bytes(error.as_bytes(), bytes),
        EpochMessage::Order(Order::Recall { ancestors, .. }) => {
            put_u32(count(ancestors.len()), bytes);
            ancestors.iter().for_each(|ancestor| put_ancestor(ancestor, bytes));
        }
        EpochMessage::Order(Order::Prepare(beginning)) => put_beginning(beginning, bytes),
        EpochMessage::Order(Order::Barrier { epoch, .. } | Order::Durable { epoch, .. }) => {
            bytes.extend_from_slice(&epoch.0.to_le_bytes());
        }
        EpochMessage::Report(EpochReport::Ready { .. } | EpochReport::Work { .. })
        | EpochMessage::Order(Order::Go { .. }) => {}
    }
}

/// The word that has these bytes, all of them.
///
/// # Errors
/// They are none: the process that sent them is of no more use.
pub fn decode_epoch_message(bytes: &Bytes) -> Result<EpochMessage, WireError> {
    let mut cursor = Cursor::new(bytes);
    let version = cursor.u8("version")?;
    if version != VERSION {
        return Err(WireError::Version { theirs: version });
    }
    let kind = cursor.u8("kind")?;
    let zero = cursor.u16("reserved bytes")?;
    if zero != 0 {
        return Err(WireError::Field { what: "reserved bytes", at: 2, value: zero.into() });
    }
    let generation = cursor.u32("generation")?;
    let talk = match kind {
        READY => EpochMessage::Report(EpochReport::Ready { generation }),
        WORK => EpochMessage::Report(EpochReport::Work { generation }),
        CAPTURE => EpochMessage::Report(EpochReport::Capture(take_capture(&mut cursor, generation)?)),
        CAPTURE_WITH_CAUSES => {
            let mut capture = take_capture(&mut cursor, generation)?;
            capture.changes.causes = take_causes(&mut cursor, capture.changes.commands.len())?;
            EpochMessage::Report(EpochReport::Capture(capture))
        }
        RECALLED => {
            EpochMessage::Report(EpochReport::Recalled { generation, originals: take_recalled(&mut cursor)? })
        }
        RECALL => {
            let ancestors = cursor.u32("ancestors")?;
            cursor.need_parts("ancestors", ancestors, ANCESTOR_BYTES)?;
            let ancestors = (0..ancestors).map(|_| take_ancestor(&mut cursor)).collect::<Result<_, _>>()?;
            EpochMessage::Order(Order::Recall { generation, ancestors })
        }
        FAILED => EpochMessage::Report(take_failed(&mut cursor, generation)?),
        LOST => EpochMessage::Report(EpochReport::Lost { generation, error: take_text(&mut cursor)? }),
        PREPARE => EpochMessage::Order(Order::Prepare(take_beginning(&mut cursor, generation)?)),
        PREPARE_OTHERS => {
            let mut beginning = take_beginning(&mut cursor, generation)?;
            beginning.former = take_former(&mut cursor)?;
            EpochMessage::Order(Order::Prepare(beginning))
        }
        GO => EpochMessage::Order(Order::Go { generation }),
        BARRIER => EpochMessage::Order(Order::Barrier { generation, epoch: Epoch(cursor.u64("epoch")?) }),
        DURABLE => EpochMessage::Order(Order::Durable { generation, epoch: Epoch(cursor.u64("epoch")?) }),
        other => return Err(WireError::UnknownKind(other)),
    };
    cursor.end()?;
    Ok(talk)
}

fn kind_of_report(told: &EpochReport) -> u8 {
    match told {
        EpochReport::Ready { .. } => READY,
        EpochReport::Work { .. } => WORK,
        EpochReport::Capture(capture) if capture.changes.causes.is_empty() => CAPTURE,
        EpochReport::Capture(_) => CAPTURE_WITH_CAUSES,
        EpochReport::Recalled { .. } => RECALLED,
        EpochReport::Failed { .. } => FAILED,
        EpochReport::Lost { .. } => LOST,
    }
}

fn kind_of_order(order: &Order) -> (u8, u32) {
    match order {
        Order::Prepare(beginning) if beginning.former.is_empty() => (PREPARE, beginning.generation),
        Order::Prepare(beginning) => (PREPARE_OTHERS, beginning.generation),
        Order::Go { generation } => (GO, *generation),
        Order::Barrier { generation, .. } => (BARRIER, *generation),
        Order::Recall { generation, .. } => (RECALL, *generation),
        Order::Durable { generation, .. } => (DURABLE, *generation),
    }
}

// ---- captures --------------------------------------------------------------------------------------

fn put_capture(capture: &Capture, bytes: &mut Vec<u8>) {
    let Capture { task, generation: _, epoch, changes, position, dead } = capture;
    put_u32(task.0, bytes);
    bytes.extend_from_slice(&epoch.0.to_le_bytes());
    put_option(position.as_ref(), bytes, |position, bytes| {
        bytes.extend_from_slice(&position.0.to_le_bytes());
    });
    put_u32(count(changes.values.len()), bytes);
    for (StateKey { key, field }, value) in &changes.values {
        put_bytes(key, bytes);
        put_option(field.as_ref(), bytes, |field, bytes| put_bytes(field, bytes));
        put_option(value.as_ref(), bytes, |value, bytes| put_bytes(value, bytes));
    }
    put_u32(count(changes.commands.len()), bytes);
    for command in &changes.commands {
        put_u32(count(command.len()), bytes);
        command.iter().for_each(|word| put_bytes(word, bytes));
    }
    put_u32(count(dead.len()), bytes);
    dead.iter().for_each(|letter| put_letter(letter, bytes));
    if !changes.causes.is_empty() {
        put_u32(count(changes.causes.len()), bytes);
        for Cause { command, component, ancestor } in &changes.causes {
            put_u32(*command, bytes);
            bytes.extend_from_slice(&component.0.to_le_bytes());
            put_ancestor(ancestor, bytes);
        }
    }
}

fn take_causes(cursor: &mut Cursor<'_>, commands: usize) -> Result<Vec<Cause>, WireError> {
    let causes = cursor.u32("causes")?;
    cursor.need_parts("causes", causes, SIZE_BYTES + 2 + ANCESTOR_BYTES)?;
    let take = |cursor: &mut Cursor<'_>| {
        let at = cursor.at();
        let command = cursor.u32("command")?;
        if command as usize >= commands {
            return Err(WireError::Field { what: "command", at, value: command.into() });
        }
        let component = ComponentId(cursor.u16("component")?);
        Ok(Cause { command, component, ancestor: take_ancestor(cursor)? })
    };
    (0..causes).map(|_| take(cursor)).collect()
}

fn put_ancestor(ancestor: &Ancestor, bytes: &mut Vec<u8>) {
    let Ancestor { root: RootId { spout, life, number }, origin } = ancestor;
    put_u32(spout.0, bytes);
    put_u32(*life, bytes);
    bytes.extend_from_slice(&number.to_le_bytes());
    put_u32(*origin, bytes);
}

fn take_ancestor(cursor: &mut Cursor<'_>) -> Result<Ancestor, WireError> {
    let (spout, life) = (TaskId(cursor.u32("spout")?), cursor.u32("life")?);
    let root = RootId { spout, life, number: cursor.u64("batch")? };
    Ok(Ancestor { root, origin: cursor.u32("origin")? })
}

fn take_capture(cursor: &mut Cursor<'_>, generation: u32) -> Result<Capture, WireError> {
    let (task, epoch) = (TaskId(cursor.u32("task")?), Epoch(cursor.u64("epoch")?));
    let position = take_option(cursor, |cursor| Ok(Position(cursor.u128("position")?)))?;
    let values = cursor.u32("values")?;
    cursor.need_parts("values", values, VALUE_BYTES)?;
    let values = (0..values).map(|_| take_value(cursor)).collect::<Result<_, _>>()?;
    let commands = cursor.u32("commands")?;
    cursor.need_parts("commands", commands, SIZE_BYTES)?;
    let commands = (0..commands).map(|_| take_command(cursor)).collect::<Result<_, _>>()?;
    let letters = cursor.u32("letters")?;
    cursor.need_parts("letters", letters, LETTER_BYTES)?;
    let dead = (0..letters).map(|_| take_letter(cursor)).collect::<Result<_, _>>()?;
    let changes = Changes { values, commands, causes: Vec::new() };
    Ok(Capture { task, generation, epoch, changes, position, dead })
}

fn take_value(cursor: &mut Cursor<'_>) -> Result<(StateKey, Option<Bytes>), WireError> {
    let key = take_bytes(cursor, "key")?;
    let field = take_option(cursor, |cursor| take_bytes(cursor, "field"))?;
    let value = take_option(cursor, |cursor| take_bytes(cursor, "value"))?;
    Ok((StateKey { key, field }, value))
}

fn take_command(cursor: &mut Cursor<'_>) -> Result<Command, WireError> {
    let at = cursor.at();
    let words = cursor.u32("words")?;
    if words == 0 {
        return Err(WireError::Field { what: "words", at, value: 0 });
    }
    cursor.need_parts("words", words, SIZE_BYTES)?;
    (0..words).map(|_| take_bytes(cursor, "word")).collect()
}

// ---- failures and letters --------------------------------------------------------------------------

fn take_failed(cursor: &mut Cursor<'_>, generation: u32) -> Result<EpochReport, WireError> {
    let task = TaskId(cursor.u32("task")?);
    let original = take_original(cursor)?;
    cursor.need_parts("failure", 1, FAILURE_BYTES)?;
    Ok(EpochReport::Failed { generation, task, failed: (original, take_failure(cursor)?) })
}

fn put_recalled(originals: &[(Ancestor, Option<Original>)], bytes: &mut Vec<u8>) {
    put_u32(count(originals.len()), bytes);
    for (ancestor, original) in originals {
        put_ancestor(ancestor, bytes);
        put_option(original.as_ref(), bytes, put_original);
    }
}

fn take_recalled(cursor: &mut Cursor<'_>) -> Result<Vec<(Ancestor, Option<Original>)>, WireError> {
    let tuples = cursor.u32("tuples")?;
    cursor.need_parts("tuples", tuples, ANCESTOR_BYTES + 1)?;
    (0..tuples).map(|_| Ok((take_ancestor(cursor)?, take_option(cursor, take_original)?))).collect()
}

fn put_original(original: &Original, bytes: &mut Vec<u8>) {
    let Original { position, stream, direct, values, attempts } = original;
    bytes.extend_from_slice(&position.0.to_le_bytes());
    bytes.extend_from_slice(&stream.0.to_le_bytes());
    put_option(direct.as_ref(), bytes, |direct, bytes| put_u32(direct.0, bytes));
    put_u32(*attempts, bytes);
    put_bytes(values.as_bytes(), bytes);
}

fn take_original(cursor: &mut Cursor<'_>) -> Result<Original, WireError> {
    let (position, stream) = (Position(cursor.u128("position")?), StreamId(cursor.u16("stream")?));
    let direct = take_option(cursor, |cursor| Ok(TaskId(cursor.u32("direct task")?)))?;
    let attempts = cursor.u32("attempts")?;
    let at = cursor.at() + SIZE_BYTES;
    let values = take_bytes(cursor, "values")?;
    let size = values.len();
    let values = Values::from_bytes(values).ok_or(WireError::Values { at, size })?;
    Ok(Original { position, stream, direct, values, attempts })
}

fn put_letter(letter: &DeadLetter, bytes: &mut Vec<u8>) {
    put_original(&letter.original, bytes);
    put_option(letter.component.as_ref(), bytes, |component, bytes| {
        bytes.extend_from_slice(&component.0.to_le_bytes());
    });
    put_bytes(letter.error.as_bytes(), bytes);
}

fn take_letter(cursor: &mut Cursor<'_>) -> Result<DeadLetter, WireError> {
    let original = take_original(cursor)?;
    let component = take_option(cursor, |cursor| Ok(ComponentId(cursor.u16("component")?)))?;
    Ok(DeadLetter { original, component, error: take_text(cursor)? })
}

// ---- beginnings ------------------------------------------------------------------------------------

fn put_beginning(beginning: &Beginning, bytes: &mut Vec<u8>) {
    let Beginning { generation: _, places, positions, former, poison, pending_max } = beginning;
    put_u32(count(places.len()), bytes);
    places.iter().for_each(|worker| put_u32(worker.0, bytes));
    put_u32(count(positions.len()), bytes);
    for (task, position) in positions {
        put_u32(task.0, bytes);
        bytes.extend_from_slice(&position.0.to_le_bytes());
    }
    put_u32(count(poison.values().map(BTreeMap::len).sum()), bytes);
    for (task, letter) in poison.iter().flat_map(|(task, poison)| poison.values().map(move |it| (task, it))) {
        put_u32(task.0, bytes);
        put_letter(letter, bytes);
    }
    put_u32(pending_max.unwrap_or(0), bytes);
    if !former.is_empty() {
        put_former(former, bytes);
    }
}

fn put_former(former: &BTreeMap<ComponentId, Vec<Former>>, bytes: &mut Vec<u8>) {
    put_u32(count(former.len()), bytes);
    for (spout, numbers) in former {
        bytes.extend_from_slice(&spout.0.to_le_bytes());
        put_u32(count(numbers.len()), bytes);
        for Former(positions) in numbers {
            put_u32(count(positions.len()), bytes);
            for position in positions {
                put_option(position.as_ref(), bytes, |position, bytes| {
                    bytes.extend_from_slice(&position.0.to_le_bytes());
                });
            }
        }
    }
}

fn take_former(cursor: &mut Cursor<'_>) -> Result<BTreeMap<ComponentId, Vec<Former>>, WireError> {
    let spouts = cursor.u32("spouts")?;
    cursor.need_parts("spouts", spouts, 2 + SIZE_BYTES)?;
    let mut former = BTreeMap::new();
    for _ in 0..spouts {
        let spout = ComponentId(cursor.u16("spout")?);
        let numbers = cursor.u32("numbers of tasks")?;
        cursor.need_parts("numbers of tasks", numbers, SIZE_BYTES)?;
        let mut all = Vec::new();
        for _ in 0..numbers {
            let tasks = cursor.u32("former tasks")?;
            cursor.need_parts("former tasks", tasks, 1)?;
            let position = |cursor: &mut Cursor<'_>| Ok(Position(cursor.u128("position")?));
            let positions = (0..tasks).map(|_| take_option(cursor, position)).collect::<Result<_, _>>()?;
            all.push(Former(positions));
        }
        former.insert(spout, all);
    }
    Ok(former)
}

fn take_beginning(cursor: &mut Cursor<'_>, generation: u32) -> Result<Beginning, WireError> {
    let mut beginning = Beginning { generation, ..Beginning::default() };
    let tasks = cursor.u32("tasks")?;
    cursor.need_parts("tasks", tasks, 4)?;
    for _ in 0..tasks {
        beginning.places.push(WorkerId(cursor.u32("worker")?));
    }
    let positions = cursor.u32("positions")?;
    cursor.need_parts("positions", positions, 20)?;
    for _ in 0..positions {
        let task = TaskId(cursor.u32("task")?);
        beginning.positions.insert(task, Position(cursor.u128("position")?));
    }
    let poison = cursor.u32("poison")?;
    cursor.need_parts("poison", poison, 4 + LETTER_BYTES)?;
    for _ in 0..poison {
        let task = TaskId(cursor.u32("task")?);
        let letter = take_letter(cursor)?;
        beginning.poison.entry(task).or_default().insert(letter.original.position, letter);
    }
    beginning.pending_max = Some(cursor.u32("pending_max")?).filter(|most| *most > 0);
    Ok(beginning)
}

// ---- parts -----------------------------------------------------------------------------------------

fn put_u32(number: u32, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(part: &[u8], bytes: &mut Vec<u8>) {
    put_u32(count(part.len()), bytes);
    bytes.extend_from_slice(part);
}

fn put_option<T>(part: Option<&T>, bytes: &mut Vec<u8>, put: impl FnOnce(&T, &mut Vec<u8>)) {
    bytes.push(u8::from(part.is_some()));
    if let Some(part) = part {
        put(part, bytes);
    }
}

fn take_bytes(cursor: &mut Cursor<'_>, what: &'static str) -> Result<Bytes, WireError> {
    let size = cursor.u32(what)? as usize;
    cursor.shared(what, size)
}

fn take_text(cursor: &mut Cursor<'_>) -> Result<String, WireError> {
    let at = cursor.at() + SIZE_BYTES;
    let text = take_bytes(cursor, "text")?;
    std::str::from_utf8(&text).map(str::to_owned).map_err(|_| WireError::Text { at })
}

fn take_option<T>(
    cursor: &mut Cursor<'_>,
    take: impl FnOnce(&mut Cursor<'_>) -> Result<T, WireError>,
) -> Result<Option<T>, WireError> {
    if take_flag(cursor, "flag")? { take(cursor).map(Some) } else { Ok(None) }
}

const READY: u8 = 16;
const WORK: u8 = 17;
const CAPTURE: u8 = 18;
const FAILED: u8 = 19;
const LOST: u8 = 20;
const CAPTURE_WITH_CAUSES: u8 = 21;
const RECALLED: u8 = 22;
const PREPARE: u8 = 24;
const GO: u8 = 25;
const BARRIER: u8 = 26;
const DURABLE: u8 = 27;
const PREPARE_OTHERS: u8 = 28;
const RECALL: u8 = 29;
/// The least that parts have: what a count is compared with before it is used.
const SIZE_BYTES: usize = 4;
const VALUE_BYTES: usize = SIZE_BYTES + 2;
const ANCESTOR_BYTES: usize = 4 + 4 + 8 + 4;
const LETTER_BYTES: usize = 16 + 2 + 1 + 4 + SIZE_BYTES + 2 + 1 + SIZE_BYTES;
