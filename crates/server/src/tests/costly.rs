//! Every command with the arguments that cost most: where it runs, on collections of some thousand elements. How long others wait beside a million
//! elements is measured by `cargo test -p evenkeel --test costly -- --ignored`.

mod table;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Clock as _;
use commands::command::Flags;
use reactor::Step;
use resp::encode_command;
use table::{Row, filling, renewing, rows, words};

use super::{Harness, Wire};
use crate::long::EFFORT_MAX;
use crate::table::commands;

impl Harness {
    /// Runs a command to its end, which its time is if it waits.
    fn costly(&self, wire: &mut Wire, command: &[String]) -> String {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, command);
        let mut reply = self.feed(wire, &bytes);
        while wire.step == Step::Park {
            reply.extend(self.deliver(wire));
            if let Some(wake) = wire.wake.filter(|wake| *wake < self.clock.now() + Duration::from_secs(60)) {
                reply.extend(self.after(wire, wake - self.clock.now()));
            }
            std::thread::yield_now();
        }
        String::from_utf8_lossy(&reply).into_owned()
    }
}

#[test]
fn table_of_costly_commands_has_every_command() {
    let told: BTreeSet<&str> = rows().iter().map(|row| row.name).collect();
    let all: BTreeSet<&str> = commands().entries().iter().map(|entry| entry.command.name).collect();
    assert_eq!(all.difference(&told).collect::<Vec<_>>(), Vec::<&&str>::new(), "missing in the table");
    assert_eq!(told.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new(), "no such commands");
    for Row { name, place, changes, .. } in rows() {
        assert!(["here", "parts", "beside", "waits", "none"].contains(&place), "{name} {place}");
        let entry = commands().find_full(name.as_bytes()).expect("it is one");
        assert!(!changes || entry.command.flags.has(Flags::WRITE), "{name} changes nothing");
    }
}

/// SUNIONSTORE of a million members, and 60 commands like it, ran as a whole on a loop: work was judged by the number of keys.
#[test]
fn command_that_touches_many_elements_runs_beside_its_loop() {
    const N: usize = 6_000;
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    filling(N).for_each(|commands| _ = harness.long(&mut wire, &commands));
    let mut wrong = Vec::new();
    for Row { name, place, changes, rest } in rows().into_iter().filter(|row| row.place != "none") {
        let count =
            || (harness.server.long.count(), harness.server.stats.chunked_replies.load(Ordering::Relaxed));
        // who has left many lines is taken out of them
        while harness.server.long.waiting() > 0 {
            std::thread::yield_now();
        }
        let before = count();
        let reply = harness.costly(&mut wire, &words(rest, 0..N, N));
        let after = count();
        let found = match (after.0 > before.0, after.1 > before.1) {
            (true, _) if reply == "*-1\r\n" => "waits",
            (true, _) => "beside",
            (false, true) => "parts",
            (false, false) => "here",
        };
        let touched = harness.server.stats.touched_max.swap(0, Ordering::Relaxed);
        let is_bounded = touched <= 2 * EFFORT_MAX;
        if found != place || reply.starts_with('-') || reply.is_empty() || !is_bounded {
            wrong.push(format!("{name} {found}, not {place}; touched {touched}; {reply:.80}"));
        }
        if changes {
            harness.long(&mut wire, &renewing(rest));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
