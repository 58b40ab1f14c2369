//! `evenkeel topology tap`: shows what a component emits, by asking the server for it again and again.

use std::io::Write;
use std::time::Duration;

use clock::{Clock, SystemClock};
use connection::Client;
use resp::Value;

use super::arguments::Tap;
use super::text::counted;
use crate::failure::Failure;
use crate::reply::{field, items};

/// Prints tuples until there were enough, the time is over, or whoever reads them is gone; nothing is left to be said then.
///
/// # Errors
/// One line: what the server says.
pub(super) fn run(server: &mut Client, tap: &Tap) -> Result<String, Failure> {
    let until = SystemClock.now() + tap.length;
    let (mut left, mut cursor, mut skipped) = (tap.count.unwrap_or(u64::MAX), 0, 0);
    while left > 0 && SystemClock.now() < until {
        let reply = server.call(&request(tap, cursor, left))?;
        let number = |name| if let Value::Integer(number) = field(&reply, name) { *number as u64 } else { 0 };
        cursor = number("cursor");
        let tuples = items(field(&reply, "tuples"));
        for tuple in tuples {
            if let Value::Bulk(line) = tuple {
                let line = [line, &b"\n"[..]].concat();
                if std::io::stdout().write_all(&line).is_err() {
                    // Who has read them has enough.
                    return Ok(String::new());
                }
            }
        }
        left = left.saturating_sub(tuples.len() as u64);
        skipped += number("skipped");
        if tuples.is_empty() {
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }
    if skipped > 0 {
        let tuples = counted(skipped, "tuple");
        let text = format!("{tuples} more came than can be shown: --sample 1/N chooses among them\n");
        crate::output::say(std::io::stderr(), &text);
    }
    Ok(String::new())
}

fn request(tap: &Tap, cursor: u64, left: u64) -> Vec<String> {
    let mut words = ["TOPOLOGY", "TAP", &tap.name, &tap.component].map(str::to_owned).to_vec();
    words.extend(tap.stream.iter().flat_map(|stream| ["STREAM".to_owned(), stream.clone()]));
    let numbers = [("SAMPLE", tap.sample), ("COUNT", left.min(AT_ONCE)), ("CURSOR", cursor)];
    words.extend(numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]));
    words
}

/// Tuples that are asked for at a time.
const AT_ONCE: u64 = 1_000;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
