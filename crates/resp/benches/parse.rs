//! How long a small request takes to parse and a small reply to write: `cargo bench -p resp`.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the real clock")]

use resp::{Args, Limits, Parsed, RequestParser, Writer, encode_command};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 20_000;
const BATCH: u32 = 100;

fn main() {
    let value = [b'v'; 100];
    measure("GET, 16 byte key", &requests(&[b"GET", b"key:000000000001"]));
    measure("SET k v", &requests(&[b"SET", b"k", b"v"]));
    measure("SET, 16 byte key, 100 byte value", &requests(&[b"SET", b"key:000000000001", &value]));
    let mut out = Vec::with_capacity(1 << 16);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        out.clear();
        for _ in 0..BATCH {
            Writer::new(black_box(&mut out), false).bulk(black_box(&value));
        }
    }
    report("write a bulk string of 100 bytes", start);
}

fn requests(args: &[&[u8]]) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..BATCH {
        encode_command(&mut stream, args);
    }
    stream
}

fn measure(name: &str, stream: &[u8]) {
    let (mut parser, mut args) = (RequestParser::new(), Args::new());
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let mut rest = black_box(stream);
        while let Ok(Parsed::Complete { consumed }) = parser.parse(rest, &Limits::REDIS, &mut args) {
            black_box(args.view(rest).len());
            rest = &rest[consumed..];
        }
    }
    report(name, start);
}

fn report(name: &str, start: Instant) {
    let each = start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS * BATCH);
    println!("{name}: {each:.1} ns");
}
