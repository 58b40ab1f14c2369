//! From the reply of a push to the reply of the BLPOP that waited for it, with many that wait.

use std::time::Instant;

use crate::Failure;
use crate::client::Client;
use crate::drive::Random;
use crate::figure::Figure;
use crate::load::idle;
use crate::servers::{Recipe, Server};

use super::shape::Shape;
use super::sides::Sides;

/// The 99th percentile of each run.
pub(super) fn measure(shape: &Shape, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    say(&format!("waiters: {}", shape.waiters));
    idle::allow_many_files();
    let ours = Recipe::evenkeel("log", "always", shape.loops);
    let sides = Sides::start(shape, &ours, "always")?;
    let measured = sides.in_turn(shape.runs, |server| p99_ms(server, shape.waiters))?;
    let title = format!("BLPOP, {} wait: p99 from the push's reply to the waiter's", shape.waiters);
    Ok(measured.figures(&shape.peers, "waiters/blpop-p99", &title, "ms"))
}

fn p99_ms(server: &Server, count: usize) -> Result<f64, Failure> {
    let mut waiters =
        (0..count).map(|number| waiting(server, number)).collect::<Result<Vec<_>, Failure>>()?;
    let mut client = server.client()?;
    await_blocked(&mut client, count)?;
    let mut random = Random::new(1);
    let mut latencies = Vec::new();
    for _ in 0..PUSHES {
        let number = random.below(count as u64) as usize;
        client.call(&["RPUSH", &key(number), "value"])?;
        let pushed = Instant::now();
        waiters[number].receive()?;
        latencies.push(pushed.elapsed().as_secs_f64() * 1e3);
        waits(&mut waiters[number], number)?;
    }
    latencies.sort_by(f64::total_cmp);
    Ok(latencies[PUSHES * 99 / 100])
}

/// A client that waits.
fn waiting(server: &Server, number: usize) -> Result<Client, Failure> {
    let mut client = server.client()?;
    waits(&mut client, number)?;
    Ok(client)
}

fn waits(client: &mut Client, number: usize) -> Result<(), Failure> {
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["BLPOP", &key(number), "0"]);
    client.send(&request)
}

/// Waits until the server has all who wait.
fn await_blocked(client: &mut Client, count: usize) -> Result<(), Failure> {
    while client.info("clients", "blocked_clients")? < count as u64 {
        std::thread::yield_now();
    }
    Ok(())
}

fn key(number: usize) -> String {
    format!("queue:{number:06}")
}

/// Of each run.
const PUSHES: usize = 1_000;
