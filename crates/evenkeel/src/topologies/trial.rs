//! `evenkeel topology try` and `switch`: a definition runs beside the live one, and takes its place when it is as far.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::{Clock, SystemClock};
use connection::Client;
use resp::Value;

use super::arguments::Try;
use super::remote::request;
use super::text::counted;
use crate::failure::Failure;
use crate::reply::{field, items, told};

/// Begins a trial, or ends one; what there is to say.
///
/// # Errors
/// One line: a file cannot be read, or what the server says.
pub(super) fn run(server: &mut Client, what: &Try) -> Result<String, Failure> {
    let Some(submitted) = what.submitted() else {
        let name = what.stop.as_deref().unwrap_or_default();
        let keys = server.call(&["TOPOLOGY", "UNTRY", name])?;
        return Ok(format!("the trial of {name} has ended; {} removed\n", keys_of(&keys)));
    };
    let submission = submitted.source.read()?;
    let (name, mut words) = request("TRY", &submitted, &submission);
    let Try { from, prefix, programs, .. } = what;
    words.extend(["PREFIX", prefix, "FROM", from].map(str::to_owned));
    words.extend(programs.then(|| "PROGRAMS".to_owned()));
    server.call(&words)?;
    Ok(format!(
        "{name}-try runs beside {name}, and writes keys that begin with `{prefix}`; `evenkeel topology switch {name}` puts it in its place, `evenkeel topology try --stop {name}` removes it\n"
    ))
}

/// Puts a trial in the place of its topology, once it is as far as that is now.
///
/// # Errors
/// One line: it is not within the time, or what the server says.
pub(super) fn switch(server: &mut Client, name: &str, wait: u32) -> Result<String, Failure> {
    if wait > 0 {
        await_position(server, name, Duration::from_secs(wait.into()))?;
    }
    let keys = server.call(&["TOPOLOGY", "SWITCH", name])?;
    Ok(format!("{name} runs the definition that was tried; {} renamed\n", keys_of(&keys)))
}

fn keys_of(reply: &Value) -> String {
    let Value::Integer(count) = reply else { return "no keys".to_owned() };
    counted(*count as u64, "key")
}

/// Waits until the trial has read what the topology has read by now.
fn await_position(server: &mut Client, name: &str, wait: Duration) -> Result<(), Failure> {
    let trial = server.call(&["TOPOLOGY", "TRIAL", name])?;
    let (goals, _) = positions(server, name, &trial)?;
    let until = SystemClock.now() + wait;
    loop {
        let (_, reached) = positions(server, name, &trial)?;
        let late = goals.iter().find(|(of, goal)| reached.get(*of).is_none_or(|at| at < *goal));
        let Some((of, _)) = late else { return Ok(()) };
        if SystemClock.now() > until {
            let seconds = wait.as_secs();
            return Err(Failure::Refused(format!(
                "the trial of {name} was not as far as {name} within {seconds} s: {of}; it runs on, and --wait 0 does not wait"
            )));
        }
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// How far something is: by what it reads.
type Positions = BTreeMap<String, u128>;

/// How far the topology is, and its trial.
fn positions(server: &mut Client, name: &str, trial: &Value) -> Result<(Positions, Positions), Failure> {
    let (mut live, mut tried) = (Positions::new(), Positions::new());
    if told(trial, "exactly_once") == "1" {
        let trial_name = told(trial, "name");
        for (name, into) in [(name, &mut live), (trial_name.as_str(), &mut tried)] {
            let epochs = server.call(&["HGETALL", &format!("topology:{name}:epochs")])?;
            for (spout, at) in items(&epochs).chunks_exact(2).filter_map(position) {
                // Of all its tasks, of which there may be another number.
                let furthest: &mut u128 = into.entry(format!("positions of `{spout}`")).or_default();
                *furthest = at.max(*furthest);
            }
        }
        return Ok((live, tried));
    }
    for group in items(field(trial, "groups")) {
        let key = told(group, "stream");
        if told(trial, "from") == "end" || server.call(&["EXISTS", &key])? == Value::Integer(0) {
            continue;
        }
        let groups = server.call(&["XINFO", "GROUPS", &key])?;
        for (which, into) in [("live", &mut live), ("trial", &mut tried)] {
            let of = told(group, which);
            let found = items(&groups).iter().find(|it| told(it, "name") == of);
            let at = found.map(|it| told(it, "last-delivered-id"));
            if let Some(at) = at.and_then(|id| components::entry_number(id.as_bytes())) {
                into.insert(format!("entries of `{key}`"), at);
            }
        }
    }
    Ok((live, tried))
}

/// A spout and its position, of a field of epochs that has one.
fn position(pair: &[Value]) -> Option<(String, u128)> {
    let [Value::Bulk(field), Value::Bulk(at)] = pair else { return None };
    let (spout, _) = std::str::from_utf8(field.strip_prefix(b"position:")?).ok()?.rsplit_once(':')?;
    Some((spout.to_owned(), std::str::from_utf8(at).ok()?.parse().ok()?))
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);
