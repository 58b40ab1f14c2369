//! The file of a capture: it comes from a server, and may have been cut, hurt or made.
//!
//! Random bytes do not get past the checksums, so each input is tried as it is, and as the content of a chunk that is right.

use capture::{
    Argument, Command, End, Ending, HELD, Head, Plan, append_plain, append_record, begin_turn, chunk, decode,
    decode_end_chunk, end, end_turn, header, record_at,
};

/// Bytes that mean something in a turn.
pub(super) const WORDS: &[&[u8]] = &[
    b"EVKCAPT\n",
    b"\x18\0\0\0",
    b"\x24\0\0\0",
    b"\0\0\0\0",
    b"\x01\0\0\0",
    b"\xFF\xFF\xFF\xFF",
    b"\x39\0\0\0",
    b"\x2B\0\0\0",
    b"\x04\0\0\0",
    b"\x01\xE0\0\x80",
    b"\x01\xE0\0\x84",
];

/// What is read can be walked, agrees with itself, and is no more than the file holds.
pub(super) fn file(input: &[u8]) {
    walk(input);
    let _ = decode_end_chunk(input);
    for records in [0, 1, 2, 3] {
        let mut file = head();
        chunk(&mut file, input, 0, records, 7);
        walk(&file);
    }
}

fn head() -> Vec<u8> {
    let plan = Plan { hashes_keys: true, keeps_values: false, started_unix_us: 0 };
    let command = |name| Command { name, reads: name == "get", writes: name == "set", admin: false };
    header(&plan, [command("get"), command("set")].into_iter())
}

fn walk(file: &[u8]) {
    let Ok(capture) = decode(file) else { return };
    let mut bytes = 0;
    for turn in &capture.turns {
        for (offset, record) in turn.records() {
            assert!(usize::from(record.command) < capture.commands.len());
            assert_eq!(record_at(file, offset), Some(record));
            let _ = turn.latency_ns(&record);
            bytes += 8 + record.arguments().map(|argument| size(&argument)).sum::<usize>();
        }
    }
    assert!(bytes <= file.len(), "{bytes} bytes of records in {}", file.len());
    assert!(capture.turns.is_sorted_by_key(|turn| turn.arrived_ns));
    assert!(capture.stopped.is_none_or(|stopped| stopped.at <= file.len()));
}

/// Least bytes that an argument takes.
fn size(argument: &Argument<'_>) -> usize {
    match argument {
        Argument::Key(bytes) | Argument::Full(bytes) => 4 + bytes.len(),
        // In a short record, whose head has the key's size.
        Argument::Hashed(..) => 8,
        Argument::Sized(_) | Argument::Secret => 4,
    }
}

/// Turns alone, which become chunks, and whole files.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let (mut seeds, mut turns) = (Vec::new(), Vec::new());
    let arguments = [
        Argument::Hashed(7, 9),
        Argument::Sized(5),
        Argument::Key(b"k"),
        Argument::Full(b"EX"),
        Argument::Secret,
    ];
    for count in 0..arguments.len() {
        let at = begin_turn(&mut turns);
        for command in 0..2 {
            let record = Head { command, latency_ns: 99, flags: HELD, ..Head::default() };
            append_record(&mut turns, &record, arguments[..=count].iter().copied());
        }
        let short = Head { command: 1, hits: 1, ..Head::default() };
        append_plain(&mut turns, &short, 7, 9, (count % 2 == 0).then_some(100));
        end_turn(&mut turns, at, 1_000 - count as u64, 3);
        seeds.push(turns.clone());
    }
    let mut file = head();
    chunk(&mut file, &turns, 1, 15, 0);
    end(&mut file, &End { length_ns: 1, records: 15, dropped: 0, ending: Ending::Stopped });
    seeds.extend([file, head()]);
    seeds
}
