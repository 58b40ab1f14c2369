//! The protocol byte by byte: requests and replies against the files in `golden/`.

use resp::{Args, Limits, Parsed, RequestParser, Writer, decode_value, skip_value};

#[test]
fn every_golden_request_is_parsed_as_written() {
    for case in paragraphs(include_str!("golden/requests.txt")) {
        let input = unescaped(field(&case, "in").next().unwrap());
        let args: Vec<_> = field(&case, "arg").map(unescaped).collect();
        let end = field(&case, "end").next().unwrap();
        assert_eq!(parsed(&input), (args, end.to_owned()), "{case:#?}");
    }
}

#[test]
fn every_golden_reply_is_written_as_written_and_read_back() {
    for case in paragraphs(include_str!("golden/replies.txt")) {
        for (version, resp3) in [("2", false), ("3", true)] {
            let expected = unescaped(field(&case, version).next().unwrap());
            let mut out = Vec::new();
            write(case[0], &mut Writer::new(&mut out, resp3));
            assert_eq!(out, expected, "{case:#?}");
            if !matches!(case[0], "array" | "map" | "set" | "push") {
                assert_eq!(skip_value(&out), Ok(Some(out.len())), "{case:#?}");
                assert!(matches!(decode_value(&out), Ok(Some((_, len))) if len == out.len()), "{case:#?}");
            }
        }
    }
}

fn write(call: &str, writer: &mut Writer<'_>) {
    match call {
        "ok" => writer.ok(),
        "simple" => writer.simple("PONG"),
        "error" => writer.error("ERR unknown command"),
        "integer" => writer.integer(-42),
        "bulk" => writer.bulk(b"a\r\nb\0"),
        "bulk_i64" => writer.bulk_i64(i64::MIN),
        "null" => writer.null(),
        "null_array" => writer.null_array(),
        "array" => writer.array(12),
        "map" => writer.map(2),
        "set" => writer.set(2),
        "push" => writer.push(3),
        "double" => writer.double(0.25),
        "boolean" => writer.boolean(true),
        "big_number" => writer.big_number("1234567999999999999999999"),
        "verbatim" => writer.verbatim(*b"txt", b"Some text"),
        other => panic!("no such call: {other}"),
    }
}

fn parsed(input: &[u8]) -> (Vec<Vec<u8>>, String) {
    let mut args = Args::new();
    let end = match RequestParser::new().parse(input, &Limits::REDIS, &mut args) {
        Ok(Parsed::Complete { consumed }) => consumed.to_string(),
        Ok(Parsed::Incomplete { .. }) => return (Vec::new(), "incomplete".to_owned()),
        Err(error) => return (Vec::new(), error.to_string()),
    };
    (args.view(input).iter().map(<[u8]>::to_vec).collect(), end)
}

/// The paragraphs of a golden file, without its comments.
fn paragraphs(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()).map(<[&str]>::to_vec).collect()
}

/// The rest of each line that starts with `name` and a space.
fn field<'a>(case: &'a [&'a str], name: &'a str) -> impl Iterator<Item = &'a str> {
    case.iter().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, len) = match rest[0] {
            b'r' => (b'\r', 1),
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'x' => (hex(rest[1]) << 4 | hex(rest[2]), 3),
            other => panic!("no such escape: {}", char::from(other)),
        };
        bytes.push(byte);
        rest = &rest[len..];
    }
    bytes
}

fn hex(digit: u8) -> u8 {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
        .expect("two hex digits follow \\x")
}
