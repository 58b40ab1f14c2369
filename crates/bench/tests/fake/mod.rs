//! A small server for tests of the load: it keeps keys, and misbehaves as it is told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a server of a test owns its sockets and threads")]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How the server misbehaves, by the number of a request on its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// DEL of keys that end in this digit says that nothing was there.
    pub(crate) denies: Option<u8>,
    /// This request, and those behind it, wait so long.
    pub(crate) stalls: Option<(usize, Duration)>,
    /// It closes instead of answering this request.
    pub(crate) closes: Option<usize>,
    /// It answers this request with an error.
    pub(crate) errs: Option<usize>,
    /// It never answers from this request on.
    pub(crate) hangs: Option<usize>,
    /// GET answers something else.
    pub(crate) corrupts: bool,
}

/// Starts it; it ends with the process.
pub(crate) fn start(manners: Manners) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let keys = Arc::new(Mutex::new(HashSet::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let keys = Arc::clone(&keys);
            std::thread::spawn(move || serve(stream, manners, &keys));
        }
    });
    address
}

fn serve(mut stream: TcpStream, manners: Manners, keys: &Mutex<HashSet<Vec<u8>>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = Vec::new();
    let mut number = 0;
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
        input.extend_from_slice(&chunk[..count]);
        while let Some((arguments, length)) = request(&input) {
            input.drain(..length);
            if let Some((at, pause)) = manners.stalls
                && at == number
            {
                std::thread::sleep(pause);
            }
            if manners.closes == Some(number) {
                return None;
            }
            if manners.hangs.is_none_or(|at| number < at) {
                let reply = reply(&arguments, manners, number, &mut keys.lock().unwrap());
                stream.write_all(&reply).ok()?;
            }
            number += 1;
        }
    }
}

fn request(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (value, length) = resp::decode_value(input).unwrap()?;
    let resp::Value::Array(items) = value else { panic!("no request") };
    let words = items.into_iter().map(|item| match item {
        resp::Value::Bulk(bytes) => bytes,
        other => panic!("no word: {other:?}"),
    });
    Some((words.collect(), length))
}

fn reply(words: &[Vec<u8>], manners: Manners, number: usize, keys: &mut HashSet<Vec<u8>>) -> Vec<u8> {
    if manners.errs == Some(number) {
        return b"-ERR not today\r\n".to_vec();
    }
    match &words[0].to_ascii_uppercase()[..] {
        b"SET" => {
            keys.insert(words[1].clone());
            b"+OK\r\n".to_vec()
        }
        b"DEL" => {
            let is_denied = manners.denies.is_some_and(|digit| words[1].ends_with(&[digit]));
            if keys.remove(&words[1]) && !is_denied { b":1\r\n".to_vec() } else { b":0\r\n".to_vec() }
        }
        b"GET" if manners.corrupts => b"$3\r\nbad\r\n".to_vec(),
        b"GET" => b"$-1\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}
