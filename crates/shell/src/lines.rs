//! What a child writes to standard error, line by line, for the log.
//!
//! A line that is too long is cut into pieces: nothing waits here that is longer than [`LINE_BYTES_MAX`].

/// Lines that have begun.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// More bytes have come: calls `line` with each that is complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&str)) {
        while !bytes.is_empty() {
            let room = LINE_BYTES_MAX - self.0.len();
            let end = bytes.iter().take(room).position(|&byte| byte == b'\n');
            let taken = end.unwrap_or(room.min(bytes.len()));
            self.0.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken + usize::from(end.is_some())..];
            if end.is_some() || self.0.len() == LINE_BYTES_MAX {
                self.end(&mut line);
            }
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, mut line: impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim_end();
        if !text.is_empty() {
            line(text);
        }
        self.0.clear();
    }
}

const LINE_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_and_long_ones_in_pieces() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in ["on", "e\r\n\ntwo\nth", "ree"] {
            lines.push(piece.as_bytes(), |line| found.push(line.to_owned()));
        }
        lines.end(|line| found.push(line.to_owned()));
        assert_eq!(found, ["one", "two", "three"]);
        let mut sizes = Vec::new();
        lines.push(&[b'x'; 2 * LINE_BYTES_MAX + 5], |line| sizes.push(line.len()));
        assert_eq!((sizes, lines.0.len()), (vec![LINE_BYTES_MAX; 2], 5));
    }
}
