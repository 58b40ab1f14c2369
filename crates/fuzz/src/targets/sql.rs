//! What databases send, and statements for them.

/// A comment in front changes nothing of what a statement is.
pub(super) fn statement(input: &[u8]) {
    let _ = ::sql::fuzzing::statement(&String::from_utf8_lossy(input));
}

/// Statements that are run, and such that are not.
pub(super) fn statement_seeds() -> Vec<Vec<u8>> {
    let statements = [
        "SELECT 1",
        "(((select a from b for update)))",
        "/* /* */ */ COMMIT",
        "UPDATE t SET a = $1 -- COMMIT",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "INSERT INTO t VALUES (GET_LOCK('a', 0), @b)",
        "DO RELEASE_LOCK('a')",
        "/*!50000 COMMIT */",
        "#\nCALL p()",
    ];
    statements.map(|statement| statement.as_bytes().to_vec()).to_vec()
}

/// Words of both guards.
pub(super) const STATEMENT_WORDS: &[&[u8]] = &[
    b"/*",
    b"*/",
    b"--",
    b"\n",
    b"#",
    b"/*!",
    b"/*M!",
    b"(",
    b";",
    b"COMMIT",
    b"SET SESSION",
    b"SELECT",
    b"@",
    b"LOCK",
];

/// A value of any type is read, or refused.
pub(super) fn postgres_value(input: &[u8]) {
    let _ = ::sql::fuzzing::postgres_value(input);
}

/// Tags are the same however what was sent is cut, and those that are found in the whole of it; what is refused is refused in any pieces.
pub(super) fn postgres_tags(input: &[u8]) {
    let Some((size, sent)) = input.split_first() else { return };
    let mut found = 0;
    let mut rest = sent;
    while let Some((&[kind, a, b, c, d], behind)) = rest.split_first_chunk() {
        let length = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(4);
        let Some((body, next)) = behind.split_at_checked(length) else { break };
        found += u64::from(kind == b'C' && body == b"PREPARE TRANSACTION\0");
        rest = next;
    }
    let whole = ::sql::fuzzing::postgres_tags(sent, sent.len());
    assert!(whole.is_none_or(|whole| whole == found), "{whole:?}, not {found}");
    assert_eq!(::sql::fuzzing::postgres_tags(sent, usize::from(*size)), whole, "in pieces of {size}");
}

/// What a server answers to a prepare, and to one of a transaction that had failed.
pub(super) fn postgres_tags_seeds() -> Vec<Vec<u8>> {
    let message = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[kind], &length.to_be_bytes()[..], body].concat()
    };
    let answer = |tag: &[u8]| {
        let login = [12, 0].map(|code: u32| message(b'R', &code.to_be_bytes())).concat();
        let ready = message(b'Z', b"I");
        [&[7], &login[..], &ready, &message(b'C', b"RESET\0"), &message(b'C', tag), &ready].concat()
    };
    vec![answer(b"PREPARE TRANSACTION\0"), answer(b"ROLLBACK\0")]
}

/// Heads of messages, and the tag.
pub(super) const POSTGRES_TAGS_WORDS: &[&[u8]] =
    &[b"C\0\0\0\x18", b"PREPARE TRANSACTION\0", b"D\0\0\0\x04", b"\0\0\0\x03", b"\xFF\xFF\xFF\xFF"];

/// Numbers with places, and one of each length.
pub(super) fn postgres_value_seeds() -> Vec<Vec<u8>> {
    let numeric = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut seeds = vec![
        numeric(&[2, 0, 0, 2, 12, 3_400]),
        numeric(&[1, 0xFFFE, 0x4000, 9, 1]),
        numeric(&[0, 0, 0xC000, 0]),
    ];
    seeds.extend([0, 1, 2, 4, 8, 16].map(|length| vec![1; length]));
    seeds
}

/// Signs and weights of numbers.
pub(super) const POSTGRES_WORDS: &[&[u8]] =
    &[b"\x40\0", b"\xC0\0", b"\xF0\0", b"\x7F\xFF", b"\x80\0", b"\xFF\xFE", b"\0\0", b"\x01{}"];

/// A row of XA RECOVER: format, two lengths, and what they are of.
pub(super) fn xid(input: &[u8]) {
    if let Some((&[format, gtrid, bqual], data)) = input.split_first_chunk() {
        // A length may be any number.
        let length = |byte: u8| if byte == u8::MAX { usize::MAX } else { usize::from(byte) };
        let _ = ::sql::fuzzing::xid(u64::from(format), length(gtrid), length(bqual), data);
    }
}

/// A branch that was run here, and one of an application.
pub(super) fn xid_seeds() -> Vec<Vec<u8>> {
    vec![b"\x01\x0B\x03evk_a_1_2_0run".to_vec(), b"\x01\x0B\0evk_a_1_2_0".to_vec()]
}

/// What rows are made of.
pub(super) const XID_WORDS: &[&[u8]] = &[b"run", b"evk_", b"\x01", b"\xFF", b"'", b"\0"];

/// What the engine says of its transactions hides none.
pub(super) fn monitor(input: &[u8]) {
    let _ = ::sql::fuzzing::monitor(&String::from_utf8_lossy(input));
}

/// A transaction with a session, and one without.
pub(super) fn monitor_seeds() -> Vec<Vec<u8>> {
    let list = "LIST OF TRANSACTIONS FOR EACH SESSION:\n---TRANSACTION 27, ACTIVE (PREPARED) 6 sec\nMySQL thread id 6, x\n\
                ---TRANSACTION 26, ACTIVE (PREPARED) 9 sec recovered trx\n1 lock struct(s)\n--------\n";
    vec![list.as_bytes().to_vec()]
}

/// Lines of the list.
pub(super) const MONITOR_WORDS: &[&[u8]] = &[
    b"---TRANSACTION ",
    b" thread id ",
    b"(PREPARED)",
    b"... truncated...",
    b"LIST OF TRANSACTIONS FOR EACH SESSION:",
    b"\n",
    b"\r\n",
];
