//! Words and bytes of clients: compared in any case, and made fit for messages.

/// Whether `arg` is `word`, in any case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// `bytes` for a message, whatever they are and however many.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(shortened(bytes, ECHO_BYTES_MAX)).into_owned()
}

pub(crate) fn shortened(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}

/// So much of what a client sent is sent back.
pub(crate) const ECHO_BYTES_MAX: usize = 128;
