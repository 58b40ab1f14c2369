//! Scale: whether any cost grows faster than the data. Each operation at several numbers of keys (connections, commands), in processor time of the
//! server for each; what is judged is the cost of one at the greatest number beside that at the least.
//!
//! n log n from 1 M to 10 M is 1.17, and caches hold less of more keys: 2 is the bound. A cost that grows with the square is 10.
//! Processor time, because waiting for the disk says nothing about that, and neighbours on the machine disturb it least.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use resp::Value;

use crate::Failure;
use crate::client::{Client, Requests, key};
use crate::figure::{Figure, Series, Target};
use crate::load::idle;
use crate::process::{cpu_seconds, settled};
use crate::servers::{Recipe, Server, sibling};

use super::context::Context;

/// What one operation cost at one number of things.
#[derive(Clone, Copy, Debug)]
struct Cost {
    operation: Operation,
    count: u64,
    seconds: f64,
}

/// An operation: id and title of its figure, and what is counted.
type Operation = (&'static str, &'static str, &'static str);

/// All operations at all numbers.
pub(super) fn scale(context: &Context) -> Result<Vec<Figure>, Failure> {
    // without syncs no checkpoint becomes durable, and a backup waits for one
    let recipe = Recipe::evenkeel("log", "100ms", context.loops).with(&["--connections-max", "20000"]);
    let mut costs = Vec::new();
    for &keys in &context.scale_keys {
        eprintln!("scale: {keys} keys");
        costs.extend(with_keys(&recipe, &context.folder, keys)?);
    }
    let server = Server::start(&recipe, &context.folder)?;
    for count in [1_000, 4_000, 16_000].map(|count| context.amount(count)) {
        costs.push(client_list(&server, count)?);
    }
    for count in [1_000, 10_000, 100_000].map(|count| context.amount(count)) {
        costs.extend([multi(&server, count)?, pipeline(&server, count)?]);
    }
    let mut operations: Vec<Operation> = Vec::new();
    for cost in &costs {
        if !operations.contains(&cost.operation) {
            operations.push(cost.operation);
        }
    }
    Ok(operations.into_iter().map(|operation| figure(&recipe, operation, &costs)).collect())
}

/// The cost of one at the greatest number beside the cost of one at the least; the others are in the note.
fn figure(recipe: &Recipe, operation: Operation, costs: &[Cost]) -> Figure {
    let (id, title, unit) = operation;
    let costs: Vec<&Cost> = costs.iter().filter(|cost| cost.operation == operation).collect();
    let each = |cost: &Cost| cost.seconds * 1e9 / cost.count as f64;
    let (least, most) = (costs[0], costs[costs.len() - 1]);
    let series = |cost: &Cost| Series::new(&format!("{} {unit}", cost.count), vec![each(cost)]);
    let title = format!("{title}: cost of one of {} {unit} / of {}", most.count, least.count);
    let all = costs.iter().map(|cost| format!("{} {unit}: {:.3} s", cost.count, cost.seconds));
    Figure::new(
        &format!("scale/{id}"),
        &title,
        Some(Target::AtMost(GROWTH_MAX)),
        "ns",
        series(most),
        Some(series(least)),
    )
    .by([recipe.command(), "cargo xtask bench scale".to_owned()])
    .note(&format!("Processor time of all: {}.", all.collect::<Vec<_>>().join(", ")))
}

/// What is done to a database of `keys` keys, one after the other.
fn with_keys(recipe: &Recipe, folder: &Path, keys: u64) -> Result<Vec<Cost>, Failure> {
    let mut server = Server::start(recipe, folder)?;
    let mut costs = Vec::new();
    let mut add = |operation, seconds| costs.push(Cost { operation, count: keys, seconds });
    add(LOAD, busy(&server, |_| server.fill(0..keys))?);
    add(SCAN, busy(&server, |client| scan(client, keys))?);
    add(KEYS, busy(&server, |client| client.call(&["KEYS", "none*"]).map(drop))?);
    let copy = server.folder().with_extension("copy");
    add(BACKUP, busy(&server, |_| run("backup", &[server.folder(), &copy]))?);
    std::fs::remove_dir_all(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    server = server.restart(true)?;
    add(START, cpu_seconds(server.id())?);
    add(START_WALL, server.ready_after.as_secs_f64());
    add(CLEAN, busy(&server, |_| server.fill(0..keys))?);
    server = server.restart(false)?;
    add(KILLED, cpu_seconds(server.id())?);
    add(KILLED_WALL, server.ready_after.as_secs_f64());
    add(EXPIRE, busy(&server, |client| expire(client, keys))?);
    let began = Instant::now();
    server = server.check(|folder| run("check", &[folder]))?;
    add(CHECK, began.elapsed().as_secs_f64() - server.ready_after.as_secs_f64());
    add(FLUSH, busy(&server, |client| client.call(&["FLUSHALL"]).map(drop))?);
    Ok(costs)
}

/// Processor time of the server for `work` and what it does by itself afterwards.
fn busy(server: &Server, work: impl FnOnce(&mut Client) -> Result<(), Failure>) -> Result<f64, Failure> {
    let before = cpu_seconds(server.id())?;
    work(&mut server.client()?)?;
    let every = Duration::from_secs(1);
    let after = settled(every, SETTLE_TIME_MAX, |last, now| now - last < 0.03, || cpu_seconds(server.id()))?;
    Ok(after - before)
}

fn run(command: &str, folders: &[&Path]) -> Result<(), Failure> {
    let said = Command::new(sibling("evenkeel")).arg(command).args(folders).output();
    let said = said.map_err(|error| format!("evenkeel {command}: {error}"))?;
    if said.status.success() {
        return Ok(());
    }
    Err(format!("evenkeel {command}: {}: {}", said.status, String::from_utf8_lossy(&said.stderr).trim()))
}

fn scan(client: &mut Client, keys: u64) -> Result<(), Failure> {
    let (mut cursor, mut seen) = ("0".to_owned(), 0);
    loop {
        let reply = client.call(&["SCAN", &cursor, "COUNT", "1000"])?;
        let Value::Array(parts) = &reply else { return Err(format!("SCAN: {reply:?}")) };
        let [Value::Bulk(next), Value::Array(page)] = &parts[..] else {
            return Err(format!("SCAN: {reply:?}"));
        };
        seen += page.len() as u64;
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            return if seen == keys { Ok(()) } else { Err(format!("SCAN showed {seen} of {keys} keys")) };
        }
    }
}

fn expire(client: &mut Client, keys: u64) -> Result<(), Failure> {
    let expire = |number| [b"EXPIRE".to_vec(), key(number), b"100000".to_vec()];
    (0..keys).step_by(PIPELINE).try_for_each(|first| {
        let last = keys.min(first + PIPELINE as u64);
        together((first..last).map(expire)).ask_for(client, |reply| *reply == Value::Integer(1))
    })
}

fn together(commands: impl Iterator<Item = [Vec<u8>; 3]>) -> Requests {
    let mut requests = Requests::default();
    commands.for_each(|command| requests.add(&command));
    requests
}

fn set(number: u64) -> [Vec<u8>; 3] {
    [b"SET".to_vec(), key(number), b"value".to_vec()]
}

/// So many times that the processor time can be read: it comes in hundredths of a second.
fn times(count: u64) -> u64 {
    (400_000 / count).max(1)
}

fn multi(server: &Server, count: u64) -> Result<Cost, Failure> {
    let parts: Vec<_> = (0..count)
        .step_by(PIPELINE)
        .map(|first| together((first..count.min(first + PIPELINE as u64)).map(set)))
        .collect();
    let seconds = busy(server, |client| {
        for _ in 0..times(count) {
            client.call(&["MULTI"])?;
            let is_queued = |reply: &Value| *reply == Value::Simple(b"QUEUED".to_vec());
            parts.iter().try_for_each(|part| part.ask_for(client, is_queued))?;
            client.call(&["EXEC"])?;
        }
        Ok(())
    })?;
    Ok(Cost { operation: MULTI, count, seconds: seconds / times(count) as f64 })
}

fn pipeline(server: &Server, count: u64) -> Result<Cost, Failure> {
    let commands = together((0..count).map(set));
    let is_ok = |reply: &Value| *reply == Value::Simple(b"OK".to_vec());
    let seconds = busy(server, |client| (0..times(count)).try_for_each(|_| commands.ask_for(client, is_ok)))?;
    Ok(Cost { operation: PIPELINED, count, seconds: seconds / times(count) as f64 })
}

fn client_list(server: &Server, count: u64) -> Result<Cost, Failure> {
    let connections = idle::open(server.port(), count as usize)?;
    let seconds = busy(server, |client| {
        (0..times(count)).try_for_each(|_| client.call(&["CLIENT", "LIST"]).map(drop))
    })?;
    drop(connections);
    Ok(Cost { operation: CLIENT_LIST, count, seconds: seconds / times(count) as f64 })
}

const LOAD: Operation = ("load", "SET of all keys", "keys");
const SCAN: Operation = ("scan", "full SCAN", "keys");
const KEYS: Operation = ("keys", "KEYS that finds none", "keys");
const BACKUP: Operation = ("backup", "evenkeel backup, a checkpoint and a copy", "keys");
const START: Operation = ("start-clean", "start after a clean stop", "keys");
const START_WALL: Operation =
    ("start-clean-wall", "start after a clean stop, wall time, files out of the page cache", "keys");
const CLEAN: Operation = ("overwrite", "SET of all keys again, with cleaning", "keys");
const KILLED: Operation = ("start-killed", "start after kill -9", "keys");
const KILLED_WALL: Operation =
    ("start-killed-wall", "start after kill -9, wall time, files out of the page cache", "keys");
const EXPIRE: Operation = ("expire", "EXPIRE of all keys", "keys");
const CHECK: Operation = ("check", "evenkeel check, and a clean stop, wall time", "keys");
const FLUSH: Operation = ("flushall", "FLUSHALL", "keys");
const CLIENT_LIST: Operation = ("client-list", "CLIENT LIST", "connections");
const MULTI: Operation = ("multi", "MULTI of SETs", "commands");
const PIPELINED: Operation = ("pipeline", "SETs in one pipeline", "commands");

const GROWTH_MAX: f64 = 2.0;
const PIPELINE: usize = 256;
const SETTLE_TIME_MAX: Duration = Duration::from_secs(120);
