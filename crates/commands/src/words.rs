//! Words and bytes of clients: compared in any case, and made fit for messages; and what HELP answers.

use resp::Writer;

/// Whether `arg` is `word`, in any case.
pub fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// `bytes` for a message, whatever they are and however many.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(shortened(bytes, ECHO_BYTES_MAX)).into_owned()
}

/// The first `most` of `bytes`.
pub fn shortened(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}

/// Writes what HELP answers: a line about the command, its subcommands, and HELP itself.
pub fn help(out: &mut Writer<'_>, command: &str, lines: &[&str]) {
    out.array(lines.len() + 3);
    out.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| out.simple(line));
    out.simple("HELP");
    out.simple("    Prints this help.");
}

/// So much of what a client sent is sent back.
pub const ECHO_BYTES_MAX: usize = 128;
