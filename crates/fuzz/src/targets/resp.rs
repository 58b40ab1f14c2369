//! RESP in both directions: requests as a server reads them, replies as a client does; and replies of memcached.

use resp::{Args, Limits, Parsed, RequestParser};

/// Bytes that mean something in RESP.
pub(super) const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"*",
    b"$",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"$0\r\n\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\"",
    b"'",
    b"\\x41",
    b"*1\r\n$4\r\nPING\r\n",
    b"GET a\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"%1\r\n",
    b"~1\r\n",
    b">1\r\n",
    b"+OK\r\n",
    b"-ERR x\r\n",
    b":1\r\n",
    b"$?\r\n",
];

/// Bytes that mean something in memcached's text protocol.
pub(super) const MEMCACHED_WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b" ",
    b"VALUE ",
    b"END\r\n",
    b" 0 ",
    b"STORED\r\n",
    b"ERROR\r\n",
    b"CLIENT_ERROR ",
    b"4294967296",
];

/// Small, so that limits are met by small inputs.
const LIMITS: Limits = Limits {
    inline_bytes_max: 64,
    args_max: 8,
    bulk_bytes_max: 100,
    query_bytes_max: 300,
    unauthenticated: false,
};

/// What a stream of bytes meant: its requests, and the error or rest that it ended with.
#[derive(Debug, PartialEq)]
struct Meaning {
    requests: Vec<Vec<Vec<u8>>>,
    end: Result<usize, String>,
}

/// The request parser gives the same requests however the bytes are cut, and never reads beyond them.
pub(super) fn request(input: &[u8]) {
    for limits in [LIMITS, Limits::REDIS, Limits::BEFORE_AUTH] {
        let whole = meaning(input, &limits, &[input.len()]);
        for split in 0..=input.len() {
            assert_eq!(whole, meaning(input, &limits, &[split, input.len()]), "split at {split}");
        }
        let every: Vec<usize> = (0..=input.len()).collect();
        assert_eq!(whole, meaning(input, &limits, &every), "byte by byte");
    }
}

/// Feeds `input` up to each of `ends` in turn, as a connection would receive it.
fn meaning(input: &[u8], limits: &Limits, ends: &[usize]) -> Meaning {
    let (mut parser, mut args) = (RequestParser::new(), Args::new());
    let (mut start, mut requests) = (0, Vec::new());
    for &end in ends {
        loop {
            let frame = &input[start..end];
            match parser.parse(frame, limits, &mut args) {
                Err(error) => return Meaning { requests, end: Err(error.to_string()) },
                Ok(Parsed::Incomplete { needed_bytes_min }) => {
                    assert!(needed_bytes_min > frame.len(), "asks for {needed_bytes_min} of {}", frame.len());
                    break;
                }
                Ok(Parsed::Complete { consumed }) => {
                    assert!(0 < consumed && consumed <= frame.len());
                    assert!(parser.is_fresh(), "a complete request leaves nothing behind");
                    let view = args.view(frame);
                    assert!(view.len() <= limits.args_max);
                    requests.push(view.iter().map(<[u8]>::to_vec).collect());
                    start += consumed;
                }
            }
        }
    }
    Meaning { requests, end: Ok(start) }
}

/// The client's decoder: lengths agree, a prefix is never more than its whole.
pub(super) fn reply(input: &[u8]) {
    let decoded = resp::decode_value(input);
    let skipped = resp::skip_value(input);
    if let Ok(Some((_, length))) = &decoded {
        assert!(*length > 0 && *length <= input.len());
        assert_eq!(skipped.as_ref().ok(), Some(&Some(*length)), "skipping and decoding differ");
        for end in 0..*length {
            let prefix = resp::decode_value(&input[..end]);
            assert!(matches!(prefix, Ok(None)), "the first {end} bytes alone: {prefix:?}");
        }
    }
}

/// The load engine's look at replies agrees with the client's decoder, and never takes a prefix for the whole.
pub(super) fn bench_reply(input: &[u8]) {
    let Some(length) = bench::fuzzing::reply(input) else { return };
    for end in 0..length {
        assert_eq!(bench::fuzzing::reply(&input[..end]), None, "the first {end} bytes alone");
    }
}

/// The same of memcached's replies: no prefix is taken for the whole.
pub(super) fn memcached_reply(input: &[u8]) {
    let Some(length) = bench::fuzzing::memcached_reply(input) else { return };
    for end in 0..length {
        assert_eq!(bench::fuzzing::memcached_reply(&input[..end]), None, "the first {end} bytes alone");
    }
}

pub(super) fn request_seeds() -> Vec<Vec<u8>> {
    let mut pipeline = Vec::new();
    resp::encode_command(&mut pipeline, &["SET", "key", "value", "PX", "100"]);
    resp::encode_command(&mut pipeline, &["GET", "key"]);
    let mut binary = Vec::new();
    resp::encode_command(&mut binary, &[&b"SET"[..], b"\0\r\n$5\r\n", &[0xFF; 40]]);
    let texts: [&[u8]; 7] = [
        b"PING\r\n",
        b"1 2 3 4 5 6 7 8 9\n",
        b"SET \"a b\\x00\\n\" 'it''s'\r\n\r\nGET a\n",
        b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n",
        b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100\r\n",
        b"*100000\r\n$1\r\na\r\n",
    ];
    texts.iter().map(|text| text.to_vec()).chain([pipeline, binary]).collect()
}

pub(super) fn reply_seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 8] = [
        b"+OK\r\n",
        b"-ERR unknown\r\n:42\r\n",
        b"*3\r\n$3\r\nabc\r\n$-1\r\n*2\r\n:1\r\n_\r\n",
        b"%2\r\n+a\r\n,1.5\r\n+b\r\n#t\r\n",
        b"~2\r\n(123456789012345678901234567890\r\n=7\r\ntxt:abc\r\n",
        b">2\r\n+message\r\n$0\r\n\r\n",
        b",inf\r\n,nan\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n",
    ];
    texts.iter().map(|text| text.to_vec()).collect()
}

pub(super) fn memcached_seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 5] = [
        b"STORED\r\nEND\r\n",
        b"DELETED\r\nNOT_FOUND\r\n",
        b"VALUE key 0 5\r\na\r\nb \r\nEND\r\n",
        b"VALUE a 0 0\r\n\r\nVALUE b 1 2\r\nxy\r\nEND\r\n",
        b"SERVER_ERROR object too large for cache\r\nERROR\r\n",
    ];
    texts.iter().map(|text| text.to_vec()).collect()
}
