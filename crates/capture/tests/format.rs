//! The bytes of a capture, pinned; what is cut or hurt is read up to there.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use capture::{
    Argument, Command, DecodeError, End, Ending, FAILED, HELD, Head, Plan, QUEUED, append_plain,
    append_record, begin_turn, chunk, decode, end, end_turn, header, record_at, set_released,
};

const COMMANDS: [Command<'_>; 3] = [
    Command { name: "get", reads: true, writes: false, admin: false },
    Command { name: "set", reads: false, writes: true, admin: false },
    Command { name: "config|set", reads: false, writes: false, admin: true },
];

fn turns() -> Vec<u8> {
    let mut out = Vec::new();
    let at = begin_turn(&mut out);
    let set = Head { latency_ns: 1_600, reply_bytes: 5, command: 1, flags: HELD, ..Head::default() };
    append_record(
        &mut out,
        &set,
        [Argument::Hashed(7, 0x1122_3344_5566_7788), Argument::Sized(100)].into_iter(),
    );
    let get =
        Head { latency_ns: 3_200, reply_bytes: 9, command: 0, database: 2, hits: 1, misses: 0, flags: HELD };
    append_record(&mut out, &get, [Argument::Key(b"key")].into_iter());
    end_turn(&mut out, at, 5_000, 42);
    set_released(&mut out, at, Some(250_000));
    let at = begin_turn(&mut out);
    let secret =
        Head { latency_ns: u64::MAX, reply_bytes: 3, command: 2, flags: FAILED | QUEUED, ..Head::default() };
    append_record(&mut out, &secret, [Argument::Full(b"requirepass"), Argument::Secret].into_iter());
    end_turn(&mut out, at, 4_000, 7);
    out
}

/// What most requests are, and each field of such a record at its end and beyond.
fn plain() -> Vec<(Head, u32, Option<u32>, usize)> {
    let get =
        Head { latency_ns: 1_600, reply_bytes: 108, command: 0, database: 15, hits: 1, ..Head::default() };
    let most = Head {
        latency_ns: 65_535 * 16,
        reply_bytes: 65_535,
        command: 2,
        flags: HELD | FAILED | QUEUED,
        misses: 1,
        ..get
    };
    let long = |head| (head, 255, Some(100), 40);
    vec![
        (get, 7, None, 16),
        (Head { command: 1, hits: 0, flags: HELD, ..get }, 0, Some(u32::MAX >> 3), 20),
        (most, 255, None, 16),
        (Head { latency_ns: 65_536 * 16, ..get }, 255, None, 36),
        (get, 256, Some(100), 40),
        long(Head { reply_bytes: 65_536, ..most }),
        long(Head { database: 16, ..most }),
        long(Head { hits: 2, ..most }),
        long(Head { misses: 2, ..most }),
        long(Head { flags: 8, ..most }),
    ]
}

fn file() -> Vec<u8> {
    let plan = Plan { hashes_keys: true, keeps_values: false, started_unix_us: 1_700_000_000_000_000 };
    let mut out = header(&plan, COMMANDS.into_iter());
    chunk(&mut out, &turns(), 1, 3, 0);
    let mut short = Vec::new();
    let at = begin_turn(&mut short);
    let plain = plain();
    for (head, key_bytes, value_bytes, _) in &plain {
        append_plain(&mut short, head, *key_bytes, 0x99, *value_bytes);
    }
    end_turn(&mut short, at, 6_000, 42);
    chunk(&mut out, &short, 1, plain.len() as u32, 0);
    end(&mut out, &End { length_ns: 60_000_000_000, records: 13, dropped: 9, ending: Ending::Full });
    out
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/capture.evkcap");
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        #[allow(clippy::disallowed_methods, reason = "a file of the source tree")]
        std::fs::write(path, file()).unwrap();
    }
    assert_eq!(file(), include_bytes!("golden/capture.evkcap"));
}

#[test]
fn what_was_written_is_read_in_order_of_arrival() {
    let file = file();
    let capture = decode(&file).unwrap();
    assert_eq!((capture.commands.as_slice(), capture.stopped), (&COMMANDS[..], None));
    assert!(capture.plan.hashes_keys && !capture.plan.keeps_values);
    assert_eq!((capture.dropped, capture.end.unwrap().ending), (9, Ending::Full));
    let [early, late, _] = capture.turns[..] else { panic!("{:?}", capture.turns) };
    assert_eq!((early.connection, late.connection), (7, 42));
    let records: Vec<_> = late.records().collect();
    let [(offset, set), (_, get)] = records[..] else { panic!("{records:?}") };
    let arguments: Vec<_> = set.arguments().collect();
    assert_eq!(arguments, [Argument::Hashed(7, 0x1122_3344_5566_7788), Argument::Sized(100)]);
    assert_eq!((set.written_ns, late.latency_ns(&set)), (1_600, Some(250_000)));
    assert_eq!((get.hits, get.database, get.reply_bytes), (1, 2, 9));
    assert_eq!(record_at(&file, offset), Some(set));
    let secret = early.records().next().unwrap().1;
    assert_eq!(secret.arguments().last(), Some(Argument::Secret));
    assert_eq!(early.latency_ns(&secret), Some(capture::TIME_NS_MAX), "what took longer counts as that");
}

#[test]
fn record_that_fits_is_short_and_any_other_long() {
    let file = file();
    let turn = decode(&file).unwrap().turns[2];
    let mut ends: Vec<usize> = turn.records().map(|(offset, _)| offset).skip(1).collect();
    ends.push(file.len() - capture::END_BYTES);
    let records: Vec<_> = turn.records().collect();
    assert_eq!(records.len(), plain().len());
    for ((head, key_bytes, value_bytes, bytes), ((offset, record), end)) in
        plain().into_iter().zip(records.into_iter().zip(ends))
    {
        assert_eq!(end - offset, bytes, "{head:?}");
        assert_eq!(record_at(&file, offset), Some(record));
        let counts = (u32::from(record.hits), u32::from(record.misses));
        assert_eq!((record.written_ns, record.reply_bytes as usize), (head.latency_ns, head.reply_bytes));
        assert_eq!(
            (record.command, record.database, record.flags),
            (head.command, head.database, head.flags)
        );
        assert_eq!(counts, (head.hits, head.misses));
        let arguments: Vec<_> = record.arguments().collect();
        let key = Argument::Hashed(key_bytes, 0x99);
        match value_bytes {
            Some(value_bytes) => assert_eq!(arguments, [key, Argument::Sized(value_bytes)]),
            None => assert_eq!(arguments, [key]),
        }
    }
}

#[test]
fn command_beyond_the_field_of_a_short_record_makes_a_long_one() {
    for (command, bytes) in [(511, 16), (512, 36)] {
        let mut out = Vec::new();
        append_plain(&mut out, &Head { command, ..Head::default() }, 1, 2, None);
        assert_eq!(out.len(), bytes);
    }
}

#[test]
fn file_of_version_1_is_read_and_one_of_version_3_is_not() {
    let (old, new) = (include_bytes!("golden/capture-v1.evkcap"), file());
    let (old, new) = (decode(old).unwrap(), decode(&new).unwrap());
    let records = |turn: &capture::Turn<'_>| turn.records().count();
    assert_eq!(old.turns.iter().map(records).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((old.commands, old.end.unwrap().ending), (new.commands, Ending::Full));
    let mut next = file();
    next[8] = 3;
    assert_eq!(decode(&next), Err(DecodeError::Version(3)));
}

#[test]
fn held_reply_whose_release_nobody_saw_has_no_latency() {
    let mut turns = turns();
    set_released(&mut turns, 0, None);
    let mut file = header(&decode(&file()).unwrap().plan, COMMANDS.into_iter());
    chunk(&mut file, &turns, 0, 3, 0);
    let capture = decode(&file).unwrap();
    let late = capture.turns[1];
    assert_eq!(late.latency_ns(&late.records().next().unwrap().1), None);
    assert_eq!(capture.stopped.unwrap().why, "its end is missing");
}

/// Where the chunk ends that begins at `at`.
fn chunk_after(file: &[u8], at: usize) -> usize {
    let length = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    at + capture::CHUNK_HEAD_BYTES + length as usize
}

#[test]
fn file_that_is_cut_is_read_up_to_the_last_whole_chunk() {
    let file = file();
    let head = header(&decode(&file).unwrap().plan, COMMANDS.into_iter()).len();
    let [first, second] = [chunk_after(&file, head), file.len() - capture::END_BYTES];
    for cut in 0..file.len() {
        match decode(&file[..cut]) {
            Err(error) => assert!(cut < head, "{cut}: {error}"),
            Ok(capture) => {
                let stopped = capture.stopped.unwrap();
                let wanted = match cut {
                    _ if cut < first => (0, head),
                    _ if cut < second => (2, first),
                    _ => (3, second),
                };
                assert_eq!((capture.turns.len(), stopped.at), wanted, "{cut}");
            }
        }
    }
}

#[test]
fn changed_byte_is_noticed_wherever_it_is() {
    let file = file();
    let good = decode(&file).unwrap();
    for at in 0..file.len() {
        let mut hurt = file.clone();
        hurt[at] ^= 0x10;
        match decode(&hurt) {
            Err(DecodeError::NoCapture | DecodeError::Version(_) | DecodeError::Header) => {}
            Ok(capture) => {
                assert!(capture.stopped.is_some(), "{at}");
                assert!(capture.turns.iter().all(|turn| good.turns.contains(turn)), "{at}");
            }
        }
    }
}
