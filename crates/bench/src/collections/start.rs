//! Time from the start of the process to the first PING, with all elements in one hash: after a clean stop, and after kill -9.

use resp::Value;

use crate::Failure;
use crate::figure::Figure;
use crate::servers::{Recipe, Server};

use super::fill::Kind;
use super::shape::Shape;
use super::sides::alone;

/// Both, in turn.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    let recipe = Recipe::evenkeel("log", "always", shape.loops);
    say(&format!("start: filling {elements}"));
    let mut server = Server::start(&recipe, &shape.folder)?;
    Kind::Hash.fill(&mut server.client()?, KEY, 0..elements, VALUE_BYTES)?;
    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..shape.runs {
        say("start: stopping and starting");
        server = server.restart(true)?;
        clean.push(server.ready_after.as_secs_f64());
        expect(&server, elements)?;
        // What the last checkpoint does not have.
        Kind::Hash.fill(&mut server.client()?, KEY, 0..elements / TAIL_SHARE, VALUE_BYTES)?;
        server = server.restart(false)?;
        killed.push(server.ready_after.as_secs_f64());
        expect(&server, elements)?;
    }
    let title = |when: &str| format!("start with {elements} fields in one hash, {when}");
    let note = format!("{} fields were updated after the last clean stop", elements / TAIL_SHARE);
    Ok(vec![
        alone("start/clean", &title("clean"), "s", &recipe.label, clean),
        alone("start/killed", &title("after kill -9"), "s", &recipe.label, killed).note(&note),
    ])
}

fn expect(server: &Server, elements: u64) -> Result<(), Failure> {
    match server.client()?.call(&["HLEN", KEY])? {
        Value::Integer(length) if length == elements as i64 => Ok(()),
        other => Err(format!("{elements} fields were stored, HLEN says {other:?}")),
    }
}

const KEY: &str = "hash";
const VALUE_BYTES: usize = 30;
const TAIL_SHARE: u64 = 10;
