//! What a process leaves behind, where this one adopts that. A test binary of its own: it concerns all children of a process.

#![allow(clippy::disallowed_methods, reason = "a test looks at processes and their files")]

mod common;

use std::process::Command;

use common::line_of;
use processes::{Mark, Orphans, Process, adopt_orphans};

fn is_there(pid: &str) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// A component that cleared its environment and began a session of its own outlived the end of its topology.
#[test]
fn process_without_a_mark_in_a_session_of_its_own_ends_with_what_started_it() {
    let mut former = Command::new("sleep").arg("600").env_clear().spawn().expect("it starts");
    adopt_orphans(Orphans::Unmarked).expect("the system can");
    let mark = |name: &str| Mark {
        variable: "EVENKEEL_TEST_ORPHAN",
        value: format!("{}-{name}", std::process::id()),
    };
    let daemon = |clears: bool| {
        let cleared = if clears { "env -i" } else { "" };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{cleared} setsid -f sh -c 'echo $$; exec sleep 600'; read end")]);
        command
    };
    let mut other = Process::start(daemon(false), mark("other")).expect("it starts");
    let mut process = Process::start(daemon(true), mark("it")).expect("it starts");
    let (of_other, of_it) = (line_of(&mut other), line_of(&mut process));
    assert!(is_there(&of_other) && is_there(&of_it));
    process.end().expect("it ends");
    assert!(!is_there(&of_it), "nothing of it is left");
    assert!(is_there(&of_other), "that of another one has its mark");
    other.end().expect("it ends");
    assert!(!is_there(&of_other));
    assert!(is_there(&former.id().to_string()), "it was there before");
    former.kill().expect("it runs");
    former.wait().expect("it ends");
    // A child of this process that has ended by itself is still waited for by who started it.
    let mut quick = Process::start(Command::new("true"), mark("quick")).expect("it starts");
    while !quick.has_ended() {
        std::thread::yield_now();
    }
    processes::end_orphans("EVENKEEL_TEST_ORPHAN");
    assert!(quick.end().expect("it is waited for").success());
}
