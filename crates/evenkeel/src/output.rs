//! What a command prints, for people and programs that may stop reading.

/// Writes `text`, if anybody takes it: a reader that stopped reading (head) or a full disk is no reason to fail, and
/// `println!` would end the process.
pub(crate) fn say(mut to: impl std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
