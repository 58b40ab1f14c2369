//! What the tests of processes share.

use std::io::{ErrorKind, Read};

use processes::Process;

/// What a child says on standard output, up to the end of a line.
pub(crate) fn line_of(process: &mut Process) -> String {
    let (mut line, mut byte) = (String::new(), [0]);
    while !line.ends_with('\n') {
        match process.stdout.as_mut().expect("a pipe").read(&mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(char::from(byte[0])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    line.trim().to_owned()
}
