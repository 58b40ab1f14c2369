//! LZF, the compression of strings: runs of literals, and references to what came before.
//!
//! ```text
//!  000lllll  l + 1 bytes                    literals
//!  lllooooo o8         l = 1..6             l + 2 bytes from (o << 8 | o8) + 1 before
//!  111ooooo l8 o8                           l8 + 9 bytes from there
//! ```

/// The `len` bytes that `packed` stands for; `None` if these are others, or more or fewer.
pub(crate) fn decompress(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    // three bytes stand for 264 at most: a length beyond that is a lie
    let possible = packed.len().saturating_mul(LONGEST_BYTES) / 3 + LONGEST_BYTES;
    let mut out = Vec::with_capacity(len.min(possible));
    let mut rest = packed;
    while let Some((&control, behind)) = rest.split_first() {
        rest = behind;
        if control < 32 {
            let (literals, behind) = rest.split_at_checked(usize::from(control) + 1)?;
            rest = behind;
            out.extend_from_slice(literals);
        } else {
            let mut run = usize::from(control >> 5);
            if run == 7 {
                run += usize::from(*rest.split_off_first()?);
            }
            let back = (usize::from(control & 0x1f) << 8 | usize::from(*rest.split_off_first()?)) + 1;
            copy_back(&mut out, back, run + 2)?;
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// Appends `run` bytes from `back` bytes before the end, which may be bytes that are appended.
fn copy_back(out: &mut Vec<u8>, back: usize, run: usize) -> Option<()> {
    let from = out.len().checked_sub(back)?;
    if back >= run {
        out.extend_from_within(from..from + run);
    } else {
        for at in from..from + run {
            out.push(out[at]);
        }
    }
    Some(())
}

/// What one reference stands for at most.
const LONGEST_BYTES: usize = 264;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_references_expand_also_into_themselves() {
        assert_eq!(decompress(b"\x02abc", 3).as_deref(), Some(&b"abc"[..]));
        // "a", then 9 bytes from 1 before
        assert_eq!(decompress(b"\x00a\xe0\x00\x00", 10).as_deref(), Some(&b"aaaaaaaaaa"[..]));
        assert_eq!(decompress(b"\x01ab\x20\x01", 5).as_deref(), Some(&b"ababa"[..]));
    }

    #[test]
    fn references_before_the_beginning_cuts_and_other_lengths_are_refused() {
        assert_eq!(decompress(b"\x00a\x20\x01", 4), None);
        assert_eq!(decompress(b"\x05a", 6), None);
        assert_eq!(decompress(b"\x00a\xe0\x00", 10), None);
        for len in [0, 2, 4, usize::MAX] {
            assert_eq!(decompress(b"\x02abc", len), None);
        }
    }
}
