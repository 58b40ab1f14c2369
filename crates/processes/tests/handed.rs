//! A secret for a child, as the child and others of its user see it.

#![allow(clippy::disallowed_methods, reason = "a test looks at processes and their files")]

mod common;

use std::process::Command;

use common::line_of;
use processes::{Mark, Process, hand_over};

#[test]
fn secret_is_read_once_and_is_neither_in_the_environment_nor_to_be_opened_by_others() {
    let mut command = Command::new("bash");
    let script = r#"read go; cat <&"$SECRET_FD"; echo; read end"#;
    command.args(["-c", script]);
    let handed = hand_over(&mut command, "SECRET_FD", "s3cret").expect("a socket");
    let mark = Mark { variable: "EVENKEEL_TEST_SECRET", value: format!("{}-it", std::process::id()) };
    let mut process = Process::start(command, mark).expect("it starts");
    drop(handed);
    let (pid, number) = (process.id(), |environ: &str| {
        let variable = environ.split('\0').find_map(|it| it.strip_prefix("SECRET_FD=")).map(str::to_owned);
        variable.expect("it is there")
    });
    let environ = loop {
        let environ = std::fs::read_to_string(format!("/proc/{pid}/environ")).expect("it runs");
        // Before it was executed, it has the environment of this process.
        if environ.contains("SECRET_FD=") {
            break environ;
        }
        std::thread::yield_now();
    };
    assert!(!environ.contains("s3cret"));
    let path = format!("/proc/{pid}/fd/{}", number(&environ));
    assert!(std::fs::File::open(&path).is_err(), "{path} can be opened");
    std::io::Write::write_all(process.stdin.as_mut().expect("a pipe"), b"go\n").expect("it reads");
    assert_eq!(line_of(&mut process), "s3cret");
}
