//! What the arguments of TOPOLOGY say.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use commands::args::{is, shown};
use commands::call::{Failure, Outcome};
use resp::ArgsView;

use crate::topologies::record::Definition;

/// What SUBMIT says.
pub(super) struct Submitted {
    pub(super) definition: Definition,
    pub(super) workers: Option<u32>,
    pub(super) replaces: bool,
    /// For a trial: what keys begin with, where spouts begin, whether programs may run.
    pub(super) prefix: String,
    pub(super) from: String,
    pub(super) allows_programs: bool,
}

/// What the words behind the name say; some are of trials alone.
pub(super) fn submitted(args: ArgsView<'_>, is_trial: bool) -> Result<Submitted, Failure> {
    let mut definition = Definition { text: utf8(args.get(3), "the definition")?, ..Definition::default() };
    let (mut workers, mut replaces, mut at) = (None, false, 4);
    let (mut prefix, mut from, mut allows_programs) = (String::new(), String::new(), false);
    while let Some(word) = args.try_get(at) {
        let more = args.len() - at - 1;
        at += match word {
            _ if is(word, "property") && more >= 2 => {
                let (name, value) =
                    (utf8(args.get(at + 1), "a property")?, utf8(args.get(at + 2), "a property")?);
                definition.properties.insert(name, value);
                3
            }
            _ if is(word, "folder") && more >= 1 && definition.folder.is_none() => {
                definition.folder = Some(utf8(args.get(at + 1), "the folder")?);
                2
            }
            _ if is(word, "workers") && more >= 1 && workers.is_none() => {
                workers = Some(number_of_workers(args.get(at + 1))?);
                2
            }
            _ if is_trial && is(word, "prefix") && more >= 1 => {
                prefix = text(args.get(at + 1), "the prefix")?;
                2
            }
            _ if is_trial && is(word, "from") && more >= 1 => {
                from = text(args.get(at + 1), "the position")?;
                2
            }
            _ if is_trial && is(word, "programs") => {
                allows_programs = true;
                1
            }
            _ if !is_trial && is(word, "replace") => {
                replaces = true;
                1
            }
            _ => return Err(commands::failure::sub_syntax("TOPOLOGY", args.get(1))),
        };
    }
    bounded("the definition", definition.text.len(), DEFINITION_BYTES_MAX)?;
    let rest = definition.bytes() - definition.text.len();
    bounded("all properties and the folder", rest, DEFINITION_BYTES_MAX)?;
    Ok(Submitted { definition, workers, replaces, prefix, from, allows_programs })
}

/// What REBALANCE says.
#[derive(Debug, Default)]
pub(super) struct Rebalancing {
    pub(super) workers: Option<u32>,
    pub(super) executors: Vec<(String, u32)>,
}

/// What the words behind the name of REBALANCE say.
pub(super) fn rebalancing(args: ArgsView<'_>) -> Result<Rebalancing, Failure> {
    let (mut rebalancing, mut at) = (Rebalancing::default(), 3);
    while let Some(word) = args.try_get(at) {
        let more = args.len() - at - 1;
        at += match word {
            _ if is(word, "workers") && more >= 1 && rebalancing.workers.is_none() => {
                rebalancing.workers = Some(number_of_workers(args.get(at + 1))?);
                2
            }
            _ if is(word, "executors") && more >= 2 && rebalancing.executors.len() < COMPONENTS_MAX => {
                let count = within("EXECUTORS", args.get(at + 2), 1..=topology::plan::TASKS_MAX)? as u32;
                rebalancing.executors.push((text(args.get(at + 1), "the component")?, count));
                3
            }
            _ => return Err(commands::failure::sub_syntax("TOPOLOGY", args.get(1))),
        };
    }
    Ok(rebalancing)
}

/// How many workers are to be: the setting is the bound.
fn number_of_workers(arg: &[u8]) -> Result<u32, Failure> {
    let workers = resp::parse_i64(arg).and_then(|workers| u32::try_from(workers).ok());
    workers
        .filter(|workers| *workers > 0)
        .ok_or_else(|| format!("ERR WORKERS {}: a whole number of at least 1", shown(arg)).into())
}

/// The time of `[WAIT seconds]` behind the name.
pub(super) fn wait(args: ArgsView<'_>) -> Result<Duration, Failure> {
    match args.len() {
        3 => Ok(WAIT_USUALLY),
        5 if is(args.get(3), "wait") => {
            let seconds = resp::parse_i64(args.get(4)).and_then(|seconds| u64::try_from(seconds).ok());
            let seconds = seconds.filter(|seconds| *seconds <= WAIT_MAX_S);
            seconds.map(Duration::from_secs).ok_or_else(|| {
                format!("ERR WAIT {}: a whole number of seconds from 0 to {WAIT_MAX_S}", shown(args.get(4)))
                    .into()
            })
        }
        _ => Err(commands::failure::sub_syntax("TOPOLOGY", args.get(1))),
    }
}

/// A whole number within bounds.
pub(super) fn within(word: &str, arg: &[u8], bounds: RangeInclusive<u64>) -> Result<u64, Failure> {
    let number = resp::parse_i64(arg).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| bounds.contains(number)).ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        format!("ERR {word} {}: a whole number from {least} to {most}", shown(arg)).into()
    })
}

/// A name that a definition may have.
pub(super) fn text(arg: &[u8], what: &str) -> Result<String, Failure> {
    bounded(what, arg.len(), NAMED_BYTES_MAX)?;
    utf8(arg, what)
}

pub(super) fn unknown(name: impl Display) -> Failure {
    format!("ERR there is no topology '{name}': TOPOLOGY LIST shows which there are").into()
}

/// The name of a topology that there may be.
pub(super) fn name(arg: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(arg).map_err(|_| unknown(shown(arg)))
}

/// A name that a topology may have: it is part of metrics, addresses and the log.
pub(super) fn new_name(arg: &[u8]) -> Result<String, Failure> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    if arg.len() <= NAME_BYTES_MAX
        && arg.iter().all(fits)
        && arg.first().is_some_and(u8::is_ascii_alphanumeric)
    {
        return Ok(String::from_utf8_lossy(arg).into_owned());
    }
    Err(format!(
        "ERR '{}' cannot be the name of a topology: 1 to {NAME_BYTES_MAX} letters, digits, and after the first `_`, `.` and `-`",
        shown(arg)
    )
    .into())
}

fn utf8(arg: &[u8], what: &str) -> Result<String, Failure> {
    bounded(what, arg.len(), DEFINITION_BYTES_MAX)?;
    String::from_utf8(arg.to_vec()).map_err(|error| {
        format!("ERR {what} is no UTF-8: byte {} is none", error.utf8_error().valid_up_to()).into()
    })
}

fn bounded(what: &str, bytes: usize, most: usize) -> Outcome {
    if bytes <= most {
        return Ok(());
    }
    Err(format!("ERR {what}: {bytes} B, more than the limit of {most} B").into())
}

const NAME_BYTES_MAX: usize = 128;
/// Components whose executors one REBALANCE changes.
const COMPONENTS_MAX: usize = 1_000;
/// Of a component or stream that is asked for.
const NAMED_BYTES_MAX: usize = 4 << 10;
const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// As long as a tuple has by default.
const WAIT_USUALLY: Duration = Duration::from_secs(30);
const WAIT_MAX_S: u64 = 86_400;
