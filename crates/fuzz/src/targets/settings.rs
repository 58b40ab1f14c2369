//! The settings file, as a person may write it.

use server::settings::Settings;

/// Bytes that mean something in a settings file.
pub(super) const WORDS: &[&[u8]] = &[
    b"\n",
    b"=",
    b"[",
    b"]",
    b"\"",
    b"'''",
    b"#",
    b"port = 6379\n",
    b"[connections]\n",
    b"max = 10\n",
    b"dir",
    b"\"1s\"",
    b"64MiB",
    b"-1",
    b"0x7fffffff",
    b"1979-05-27",
    b"true",
    b"[[",
    b"{",
    b"}",
    b".",
    b"\xFF",
    b"memory.limit",
];

/// A file is taken or refused with its line; what was taken survives being written out again.
pub(super) fn toml(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut settings = Settings::default();
    let Ok(()) = settings.apply_toml(text) else { return };
    let _ = settings.check();
    let rewritten = settings.rewritten(text).expect("a file that was taken can be rewritten");
    let mut again = Settings::default();
    again.apply_toml(&rewritten).expect("what was written is a settings file");
    let listed = |settings: &Settings| settings.listed(|_| true);
    assert_eq!(listed(&settings), listed(&again), "rewriting changed a setting: {rewritten}");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "port = 7000\ndir = \"/tmp/x\"\n",
        "# a comment\n[connections]\nmax = 10\nidle_timeout = \"5s\"\n[journal]\nbackend = \"direct\"\n",
        "durability = \"250ms\"\nmemory.limit = \"1GiB\"\nlog.json = true\nloops = 2\n",
        "requirepass = 'it is \"quoted\"'\nbind = \"127.0.0.1\"\n",
        "port = 7000 # why\nport = 7001\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
