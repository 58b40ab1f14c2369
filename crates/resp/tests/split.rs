//! What a parse yields depends on the bytes alone: cut anywhere, and with limits on every edge.

use proptest::prelude::*;
use resp::{Args, Limits, Parsed, ProtocolError, RequestParser, decode_value, encode_command, skip_value};

/// What a connection makes of a stream of bytes: its requests, then the error that ended it, if one did.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    requests: Vec<Vec<Vec<u8>>>,
    error: Option<ProtocolError>,
}

/// Feeds `stream` in pieces that end at `cuts`, as a connection does.
fn fed(stream: &[u8], cuts: &[usize], limits: &Limits) -> Seen {
    let (mut seen, mut parser, mut args) = (Seen::default(), RequestParser::new(), Args::new());
    let (mut start, mut needed) = (0, 0);
    for end in cuts.iter().copied().chain([stream.len()]) {
        let end = end.max(start);
        loop {
            let input = &stream[start..end];
            match parser.parse(input, limits, &mut args) {
                Ok(Parsed::Complete { consumed }) => {
                    assert!(consumed > 0 && consumed <= input.len());
                    assert!(input.len() >= needed, "said to need {needed} bytes, done with {}", input.len());
                    needed = 0;
                    seen.requests.push(args.view(input).iter().map(<[u8]>::to_vec).collect());
                    start += consumed;
                }
                Ok(Parsed::Incomplete { needed_bytes_min }) => {
                    assert!(needed_bytes_min > input.len());
                    needed = needed_bytes_min;
                    // Another connection of the loop uses the same arguments meanwhile.
                    let other =
                        RequestParser::new().parse(b"*1\r\n$5\r\nother\r\n", &Limits::REDIS, &mut args);
                    assert_eq!(other, Ok(Parsed::Complete { consumed: 15 }));
                    break;
                }
                Err(error) => {
                    assert!(parser.is_fresh());
                    seen.error = Some(error);
                    return seen;
                }
            }
        }
    }
    seen
}

fn whole(stream: &[u8], limits: &Limits) -> Seen {
    fed(stream, &[], limits)
}

fn assert_cut_anywhere(stream: &[u8], limits: &Limits) {
    let expected = whole(stream, limits);
    for cut in 0..=stream.len() {
        assert_eq!(fed(stream, &[cut], limits), expected, "cut at {cut}");
    }
    let every: Vec<usize> = (0..=stream.len()).collect();
    assert_eq!(fed(stream, &every, limits), expected, "byte by byte");
}

#[test]
fn every_golden_request_is_the_same_cut_anywhere() {
    // The golden file's own bytes, escapes and all, are a stream of inline requests; each `in` line is one more.
    let text = include_str!("golden/requests.txt");
    assert_cut_anywhere(&text.as_bytes()[..2000], &Limits::REDIS);
    for line in text.lines().filter_map(|line| line.strip_prefix("in ")) {
        let stream = line.replace("\\r", "\r").replace("\\n", "\n");
        assert_cut_anywhere(stream.as_bytes(), &Limits::REDIS);
        assert_cut_anywhere(stream.as_bytes(), &Limits::BEFORE_AUTH);
    }
}

#[test]
fn inline_counted_and_empty_requests_mix() {
    let stream = b"PING\r\n*0\r\n*1\r\n$4\r\nPING\r\n\r\n*-1\r\nSET 'a b' \"\\x00\"\r\n*2\r\n$3\r\nGET\r\n$3\r\na b\r\n\n";
    let seen = whole(stream, &Limits::BEFORE_AUTH);
    let lens: Vec<usize> = seen.requests.iter().map(Vec::len).collect();
    assert_eq!((lens, seen.error), (vec![1, 0, 1, 0, 0, 3, 2, 0], None));
    assert_cut_anywhere(stream, &Limits::BEFORE_AUTH);
}

#[test]
fn before_auth_only_small_requests_pass() {
    let limits = Limits::BEFORE_AUTH;
    let error = |stream: &[u8]| {
        assert_cut_anywhere(stream, &limits);
        whole(stream, &limits).error.map(|error| error.to_string())
    };
    assert_eq!(error(b"*10\r\n"), None);
    assert_eq!(error(b"*11\r\n").as_deref(), Some("Protocol error: unauthenticated multibulk length"));
    assert_eq!(error(b"*2147483648\r\n").as_deref(), Some("Protocol error: invalid multibulk length"));
    assert_eq!(error(b"1 2 3 4 5 6 7 8 9 10\r\n"), None);
    let eleven_words = "Protocol error: unauthenticated multibulk length";
    assert_eq!(error(b"1 2 3 4 5 6 7 8 9 10 11\r\n").as_deref(), Some(eleven_words));
    assert_eq!(error(b"*1\r\n$16384\r\n"), None);
    assert_eq!(error(b"*1\r\n$16385\r\n").as_deref(), Some("Protocol error: unauthenticated bulk length"));
    assert_eq!(error(b"*1\r\n$536870913\r\n").as_deref(), Some("Protocol error: invalid bulk length"));
}

#[test]
fn a_line_without_an_end_is_refused_at_its_limit() {
    let limits = Limits { inline_bytes_max: 32, ..Limits::REDIS };
    let cases = [
        (b"".as_slice(), b'x', "Protocol error: too big inline request"),
        (b"*", b'1', "Protocol error: too big mbulk count string"),
        (b"*1\r\n$", b'1', "Protocol error: too big bulk count string"),
    ];
    for (start, filler, text) in cases {
        let mut stream = start.to_vec();
        stream.extend(std::iter::repeat_n(filler, 33));
        let late_end = [stream.as_slice(), b"\r\n"].concat();
        for stream in [stream, late_end] {
            assert_eq!(whole(&stream, &limits).error.map(|error| error.to_string()).as_deref(), Some(text));
            assert_cut_anywhere(&stream, &limits);
        }
    }
}

#[test]
fn a_request_is_bounded_as_a_whole() {
    let limits = Limits { query_bytes_max: 64, ..Limits::REDIS };
    let mut fits = Vec::new();
    encode_command(&mut fits, &[[b'x'; 24], [b'y'; 20 + 4]]);
    assert_eq!(fits.len(), 66);
    assert_eq!(whole(&fits, &limits).error, Some(ProtocolError::RequestTooBig { limit_bytes: 64 }));
    let mut many = b"*1000\r\n".to_vec();
    many.extend(b"$0\r\n\r\n".repeat(1000));
    assert_eq!(whole(&many, &limits).error, Some(ProtocolError::RequestTooBig { limit_bytes: 64 }));
    assert_cut_anywhere(&many[..200], &limits);
}

#[test]
fn announced_lengths_reserve_no_memory() {
    let (mut parser, mut args) = (RequestParser::new(), Args::new());
    for stream in [b"*2147483647\r\n$3\r\nSET\r\n".as_slice(), b"*1\r\n$536870912\r\n"] {
        parser.parse(stream, &Limits::REDIS, &mut args).unwrap();
        assert!(parser.capacity_bytes() + args.capacity_bytes() < 1024);
        parser = RequestParser::new();
    }
}

#[test]
fn a_large_request_that_trickles_in_costs_no_more_than_its_bytes() {
    // 100,000 arguments, a call for each 16 bytes: quadratic work would take minutes here.
    let mut stream = b"*100000\r\n".to_vec();
    stream.extend(b"$1\r\nx\r\n".repeat(100_000));
    let cuts: Vec<usize> = (0..stream.len()).step_by(16).collect();
    assert_eq!(fed(&stream, &cuts, &Limits::REDIS).requests[0].len(), 100_000);
}

const NUMBERS: &[&str] =
    &["0", "1", "-1", "2", "3", "10", "11", "16384", "2147483648", "4294967296", "9223372036854775807"];

/// Bytes that are nearly a protocol: pieces of framing, numbers on edges, junk.
fn nearly_protocol() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(NUMBERS).prop_map(|number| format!("*{number}\r\n").into_bytes()),
        prop::sample::select(NUMBERS).prop_map(|number| format!("${number}\r\n").into_bytes()),
        prop::sample::select(
            ["\r\n", "\r", "\n", "$", "*", "\"", "'", "\\", " ", "\0", "PING\r\n", "a b\n"].as_slice()
        )
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..5).prop_map(|args| {
            let mut out = Vec::new();
            encode_command(&mut out, &args);
            out
        }),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_parsed_back(requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6)) {
        let mut stream = Vec::new();
        for args in &requests {
            encode_command(&mut stream, args);
        }
        prop_assert_eq!(whole(&stream, &Limits::REDIS), Seen { requests, error: None });
    }

    #[test]
    fn any_bytes_are_the_same_cut_anywhere(stream in nearly_protocol(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        for limits in [Limits::REDIS, Limits::BEFORE_AUTH, Limits { inline_bytes_max: 8, query_bytes_max: 40, ..Limits::REDIS }] {
            prop_assert_eq!(fed(&stream, &cuts, &limits), whole(&stream, &limits));
        }
        let every: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(fed(&stream, &every, &Limits::REDIS), whole(&stream, &Limits::REDIS));
    }

    #[test]
    fn skipping_a_reply_agrees_with_decoding_it(reply in nearly_protocol()) {
        if let Ok(decoded) = decode_value(&reply) {
            prop_assert_eq!(skip_value(&reply), Ok(decoded.map(|(_, len)| len)));
        }
    }
}
