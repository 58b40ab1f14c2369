//! Tokens that all clients move between a few lists, and between a few sets: whatever dies meanwhile, each is there once.
//!
//! Most lists are empty most of the time, so that movers block, and are served by others' moves.

use resp::Value;
use vfs::sim::Rng;

use crate::client::Client;
use crate::collections::Command;

const PLACES: u64 = 6;
const TOKENS: u64 = 4;
/// A mover that nobody serves gives up after this.
const BLOCKED_SECONDS_MAX: &str = "0.02";

/// Puts every token in its first place.
///
/// # Errors
/// The connection's, and a reply that is no number.
pub fn make(client: &mut Client) -> Result<(), String> {
    for (verb, place) in [("RPUSH", "list:0"), ("SADD", "set:0")] {
        let mut command = vec![verb.to_owned(), place.to_owned()];
        command.extend((0..TOKENS).map(token));
        let reply = client.call(&command).map_err(|error| error.to_string())?;
        if reply != Value::Integer(TOKENS as i64) {
            return Err(format!("{command:?}: {reply:?}"));
        }
    }
    Ok(())
}

/// A command that moves a token, if it is there.
pub fn random_move(rng: &mut Rng) -> Command {
    let from = rng.below(PLACES);
    let to = (from + 1 + rng.below(PLACES - 1)) % PLACES;
    let end = |rng: &mut Rng| if rng.chance(1, 2) { "LEFT" } else { "RIGHT" }.to_owned();
    let list = |place| format!("list:{place}");
    match rng.below(4) {
        0 => vec!["SMOVE".to_owned(), format!("set:{from}"), format!("set:{to}"), token(rng.below(TOKENS))],
        1 => vec!["LMOVE".to_owned(), list(from), list(to), end(rng), end(rng)],
        _ => {
            let timeout = BLOCKED_SECONDS_MAX.to_owned();
            vec!["BLMOVE".to_owned(), list(from), list(to), end(rng), end(rng), timeout]
        }
    }
}

/// Commands that read all places, to be one transaction.
pub fn reads() -> Vec<Command> {
    let lists = (0..PLACES).map(|place| format!("list:{place}"));
    let lists = lists.map(|list| ["LRANGE", &list, "0", "-1"].map(str::to_owned).to_vec());
    let sets = (0..PLACES).map(|place| vec!["SMEMBERS".to_owned(), format!("set:{place}")]);
    lists.chain(sets).collect()
}

/// Whether `replies`, to [`reads`], have each token once in the lists, and once in the sets.
///
/// # Errors
/// The replies, if not.
pub fn check(replies: &[Value]) -> Result<(), String> {
    let wanted: Vec<Value> = (0..TOKENS).map(|number| Value::Bulk(token(number).into_bytes())).collect();
    let is_right = |replies: &[Value]| {
        let mut found: Vec<&Value> = Vec::new();
        for reply in replies {
            let Value::Array(items) = reply else { return false };
            found.extend(items);
        }
        found.sort_by_key(|token| format!("{token:?}"));
        found.into_iter().eq(&wanted)
    };
    let (lists, sets) = replies.split_at(replies.len() / 2);
    let all = is_right(lists) && is_right(sets);
    if all { Ok(()) } else { Err(format!("a token is lost or doubled: {replies:?}")) }
}

fn token(number: u64) -> String {
    format!("token-{number}")
}
