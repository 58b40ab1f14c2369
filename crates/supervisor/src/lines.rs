//! Lines out of the bytes of a pipe. A line longer than the bound is an error, or is cut, as the caller wants.

/// Collects bytes until they are lines.
#[derive(Debug)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// The rest of a line that was cut is still to come.
    is_cut: bool,
}

impl Lines {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, is_cut: false }
    }

    /// Takes bytes, and calls `line` with each line without its end; whether none was longer than the bound. Such a line is cut there.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8])) -> bool {
        let mut fits = true;
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = self.bytes_max - self.bytes.len();
            if !self.is_cut {
                self.bytes.extend_from_slice(&part[..part.len().min(room)]);
                if part.len() > room {
                    self.is_cut = true;
                    fits = false;
                }
            }
            let Some(end) = end else { return fits };
            line(&self.bytes);
            self.bytes.clear();
            self.is_cut = false;
            bytes = &bytes[end + 1..];
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_their_bytes_came() {
        let (mut lines, mut found) = (Lines::new(10), Vec::new());
        for bytes in [&b"a"[..], b"b\n\nc", b"\nd"] {
            assert!(lines.push(bytes, |line| found.push(line.to_vec())));
        }
        assert_eq!(found, [&b"ab"[..], b"", b"c"]);
    }

    #[test]
    fn line_beyond_the_bound_is_cut_and_the_next_one_is_whole() {
        let (mut lines, mut found) = (Lines::new(3), Vec::new());
        assert!(!lines.push(b"abcd", |line| found.push(line.to_vec())));
        assert!(lines.push(b"efgh\nxyz\n", |line| found.push(line.to_vec())));
        assert_eq!(found, [b"abc", b"xyz"]);
    }
}
