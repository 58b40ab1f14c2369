//! `evenkeel topology` on a server: submits a definition, and asks about what runs.

use std::time::Duration;

use clock::{Clock, SystemClock};
use connection::{Client, Target};
use resp::Value;
use serde_json::Value as Json;

use super::arguments::{Ending, Run, Submitted, What};
use super::diff;
use super::replay;
use super::source::Submission;
use super::tap;
use super::text::{counted, row, table};
use super::trial;
use crate::client::{self, Server};
use crate::failure::Failure;
use crate::reply::{field, items, to_json, told};

/// Asks the server, and prints the answer.
///
/// # Errors
/// One line: no server, or what it says.
pub(super) fn run(address: &Server, what: &What) -> Result<(), Failure> {
    let submission = match what {
        What::Run(Run { submitted, .. }) | What::Diff { submitted, .. } => Some(submitted.source.read()?),
        _ => None,
    };
    let url = address.target()?;
    let mut server = client::connect(&url)?;
    let text = match (what, submission) {
        (What::Run(run), Some(submission)) => submit(&mut server, &url, run, &submission)?,
        (What::Diff { submitted, json }, Some(submission)) => {
            let diff = server.call(&request("DIFF", submitted, &submission).1)?;
            if *json { format!("{:#}\n", to_json(&diff)) } else { diff::shown(&diff) }
        }
        (What::List { json }, _) => {
            let list = server.call(&["TOPOLOGY", "LIST"])?;
            let all = items(&list).iter().map(to_json).collect();
            if *json { format!("{:#}\n", Json::Array(all)) } else { listed(&list) }
        }
        (What::Show { name, json }, _) => {
            let one = server.call(&["TOPOLOGY", "SHOW", name])?;
            let letters = if *json { String::new() } else { letters(&mut server, &one) };
            if *json { format!("{:#}\n", to_json(&one)) } else { shown(&one) + &letters }
        }
        (What::Kill(ending), _) => {
            let has_trial = server.call(&["TOPOLOGY", "TRIAL", &ending.name]).is_ok();
            end(&mut server, "KILL", ending)?;
            await_end(&mut server, ending, has_trial)?;
            format!("{} is ended and forgotten\n", ending.name)
        }
        (What::Restart(ending), _) => {
            end(&mut server, "RESTART", ending)?;
            format!("{} is started anew\n", ending.name)
        }
        (What::Rebalance { name, workers, executors, wait }, _) => {
            let mut words = ["TOPOLOGY", "REBALANCE", name].map(str::to_owned).to_vec();
            words.extend(workers.iter().flat_map(|workers| ["WORKERS".to_owned(), workers.to_string()]));
            for (id, count) in executors {
                words.extend(["EXECUTORS".to_owned(), id.clone(), count.to_string()]);
            }
            server.call(&words)?;
            await_balance(&mut server, name, Duration::from_secs((*wait).into()))?
        }
        (What::Try(what), _) => trial::run(&mut server, what)?,
        (What::Switch { name, wait }, _) => trial::switch(&mut server, name, *wait)?,
        (What::Tap(what), _) => tap::run(&mut server, what)?,
        (What::Replay(what), _) => replay::run(&mut server, what)?,
        (What::Drain(ending), _) => {
            end(&mut server, "DRAIN", ending)?;
            format!("{} is drained; `evenkeel topology activate {0}` lets it go on\n", ending.name)
        }
        (What::Activate { name }, _) => {
            server.call(&["TOPOLOGY", "ACTIVATE", name])?;
            format!("{name} is active\n")
        }
        (What::Deactivate { name }, _) => {
            server.call(&["TOPOLOGY", "DEACTIVATE", name])?;
            format!("{name} is inactive\n")
        }
        (What::Check(_) | What::Package { .. } | What::Run(_) | What::Diff { .. }, _) => {
            unreachable!("a check and a package ask no server, and what is to run was read")
        }
    };
    crate::output::say(std::io::stdout(), &text);
    Ok(())
}

/// Runs a definition; one that takes the place of another one only with --replace, and what that changes is said before.
fn submit(server: &mut Client, url: &Target, run: &Run, submission: &Submission) -> Result<String, Failure> {
    let (name, mut words) = request("SUBMIT", &run.submitted, submission);
    if status(server, &name)?.is_some_and(|status| status != "killed") {
        let diff = server.call(&request("DIFF", &run.submitted, submission).1)?;
        crate::output::say(std::io::stdout(), &diff::shown(&diff));
        if !run.replace {
            return Err(Failure::Refused(format!(
                "{name} runs already, and was not changed: --replace puts this definition in its place"
            )));
        }
    }
    words.extend(run.replace.then(|| "REPLACE".to_owned()));
    server.call(&words)?;
    Ok(format!("{name} runs on {url}; `evenkeel topology show {name}` shows what it does\n"))
}

/// The name of what is submitted, and the command.
pub(super) fn request(verb: &str, submitted: &Submitted, submission: &Submission) -> (String, Vec<String>) {
    let Submission { definition, text, properties } = submission;
    let name = submitted.name.clone().unwrap_or_else(|| definition.plan.topology().name.clone());
    let mut words = ["TOPOLOGY", verb, &name, text].map(str::to_owned).to_vec();
    for (name, value) in properties {
        words.extend(["PROPERTY", name, value].map(str::to_owned));
    }
    let transport = submitted.transport.iter();
    words.extend(transport.flat_map(|name| ["PROPERTY", "evenkeel.transport", name].map(str::to_owned)));
    words.extend(submitted.folder.iter().flat_map(|folder| ["FOLDER".to_owned(), folder.clone()]));
    words.extend(submitted.workers.iter().flat_map(|workers| ["WORKERS".to_owned(), workers.to_string()]));
    (name, words)
}

/// What the topology `name` does, if the server has it.
fn status(server: &mut Client, name: &str) -> Result<Option<String>, Failure> {
    let list = server.call(&["TOPOLOGY", "LIST"])?;
    Ok(items(&list).iter().find(|it| told(it, "name") == name).map(|it| told(it, "status")))
}

fn end(server: &mut Client, verb: &str, ending: &Ending) -> Result<Value, Failure> {
    Ok(server.call(&["TOPOLOGY", verb, &ending.name, "WAIT", &ending.wait.to_string()])?)
}

/// Waits until the server does not list it any more.
fn await_end(server: &mut Client, ending: &Ending, has_trial: bool) -> Result<(), Failure> {
    let until = SystemClock.now() + Duration::from_secs(ending.wait.into()) + KILL_GRACE;
    loop {
        // Its trial ends with it.
        let trial = format!("{}-try", ending.name);
        if status(server, &ending.name)?.is_none() && (!has_trial || status(server, &trial)?.is_none()) {
            return Ok(());
        }
        if SystemClock.now() > until {
            return Err(Failure::Refused(format!(
                "the worker of {} has not ended; see the server's log",
                ending.name
            )));
        }
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// Waits until all tasks are where they are to be; what there is to say.
fn await_balance(server: &mut Client, name: &str, wait: Duration) -> Result<String, Failure> {
    let until = SystemClock.now() + wait;
    loop {
        let one = server.call(&["TOPOLOGY", "SHOW", name])?;
        if !["rebalancing", "waiting", "restarting"].contains(&told(&one, "status").as_str()) {
            let count = items(field(&one, "workers")).len();
            return Ok(format!("{name} has {}\n", counted(count as u64, "worker")));
        }
        if wait.is_zero() {
            return Ok(format!(
                "{name} is being rebalanced; `evenkeel topology show {name}` shows how far\n"
            ));
        }
        if SystemClock.now() > until {
            let seconds = wait.as_secs();
            return Err(Failure::Refused(format!(
                "{name} goes on to be rebalanced, and was not done within {seconds} s; see `evenkeel topology show {name}`"
            )));
        }
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// One topology a line.
fn listed(list: &Value) -> String {
    if items(list).is_empty() {
        return "no topology\n".to_owned();
    }
    let mut rows = vec![row(["name", "status", "workers", "process", "uptime", "restarts"])];
    for it in items(list) {
        let uptime = uptime(it);
        rows.push(row([
            &told(it, "name"),
            &told(it, "status"),
            &told(it, "workers"),
            &told(it, "pid"),
            &uptime,
            &told(it, "restarts"),
        ]));
    }
    table(&rows)
}

/// One topology, with its workers and components.
fn shown(one: &Value) -> String {
    let mut text = format!("{}: {}\n", told(one, "name"), told(one, "status"));
    let blocked = told(one, "blocked");
    if !blocked.is_empty() {
        text += &format!("nothing goes on: {blocked}\n");
    }
    for worker in items(field(one, "workers")) {
        let (pid, restarts) = (told(worker, "pid"), told(worker, "restarts"));
        let number = told(worker, "worker");
        let tasks = counted(told(worker, "tasks").parse().unwrap_or(0), "task");
        text += &match pid.as_str() {
            "" => format!("worker {number}: no process; {tasks}; {restarts} restarts\n"),
            pid => {
                let uptime = uptime(worker);
                format!("worker {number}: process {pid} for {uptime}; {tasks}; {restarts} restarts\n")
            }
        };
    }
    let error = told(one, "last_error");
    if !error.is_empty() {
        text += &format!("the last worker that failed: {error}\n");
    }
    let fields = ["emitted", "executed", "acked", "failed", "pending", "faults"];
    let times = ["busy", "back-pressured", "lag"];
    let heads = ["component"].iter().chain(&fields).chain(&times).chain(&["last error"]);
    let mut rows = vec![heads.map(ToString::to_string).collect()];
    for it in items(field(one, "components")) {
        let mut cells = vec![told(it, "id")];
        cells.extend(fields.iter().map(|name| told(it, name)));
        cells.extend([percent(it, "busy_permille"), percent(it, "back_pressured_permille"), lag(it)]);
        cells.push(last_error(it));
        rows.push(cells);
    }
    let (components, edges) = (table(&rows), items(field(one, "edges")));
    if edges.is_empty() {
        return format!("{text}\n{components}");
    }
    let fields = ["from", "to", "stream", "transferred", "executed", "acked", "failed"];
    let heads = fields.iter().chain(&["bytes queued", "process", "queue"]);
    let mut rows = vec![heads.map(ToString::to_string).collect()];
    for it in edges {
        let mut cells: Vec<String> = fields.iter().map(|name| told(it, name)).collect();
        cells.extend([told(it, "queued_bytes"), time(it, "process_us"), time(it, "queue_us")]);
        rows.push(cells);
    }
    format!("{text}\n{components}\n{}", table(&rows))
}

/// How many dead letters the topology has, where its keys are streams.
fn letters(server: &mut Client, one: &Value) -> String {
    let mut text = String::new();
    for key in items(field(one, "dead_letters")) {
        let Value::Bulk(key) = key else { continue };
        if let Ok(Value::Integer(count @ 1..)) = server.call_bytes(&[b"XLEN", key]) {
            let (count, key) = (counted(count as u64, "dead letter"), String::from_utf8_lossy(key));
            text += &format!(
                "{count} in `{key}`; `evenkeel topology replay {} --dead-letter` sends them back\n",
                told(one, "name")
            );
        }
    }
    text
}

/// What went wrong last, and how long ago.
fn last_error(it: &Value) -> String {
    let error = told(it, "last_error");
    let Some(line) = error.lines().next() else { return String::new() };
    match field(it, "last_error_age_ms") {
        Value::Integer(ms) => format!("{line} ({} ago)", span(*ms)),
        _ => line.to_owned(),
    }
}

fn percent(it: &Value, name: &str) -> String {
    let Value::Integer(permille) = field(it, name) else { return String::new() };
    format!("{}%", (permille + 5) / 10)
}

fn lag(it: &Value) -> String {
    let Value::Integer(ms) = field(it, "lag_ms") else { return String::new() };
    match ms {
        ms @ ..1_000 => format!("{ms}ms"),
        ms => format!("{}s", ms / 1_000),
    }
}

fn time(it: &Value, name: &str) -> String {
    let Value::Integer(us) = field(it, name) else { return String::new() };
    match us {
        us @ ..1_000 => format!("{us}us"),
        us @ 1_000..10_000_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        us => format!("{}s", us / 1_000_000),
    }
}

fn uptime(it: &Value) -> String {
    let Value::Integer(ms) = field(it, "uptime_ms") else { return String::new() };
    span(*ms)
}

fn span(ms: i64) -> String {
    match ms / 1_000 {
        s @ ..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}m", s / 60),
        s => format!("{}h", s / 3_600),
    }
}

/// More than the server gives a worker after its time.
const KILL_GRACE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
