//! Glob patterns as KEYS, SCAN and PSUBSCRIBE know them, in linear memory and at most quadratic time.
//!
//! `*` any bytes, `?` one byte, `[a-c^x]` a set, `\x` x itself. After a `*` only the newest one is ever tried
//! again, which is enough (an earlier one could only give what the newest can take): no pattern costs more than
//! its length times the text's.

/// Whether `text` matches `pattern`; `fold` ignores the case of ASCII letters.
pub fn matches(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the newest `*` does not fit: one byte further in the text.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            while p < pattern.len() && pattern[p] == b'*' {
                p += 1;
            }
            if p == pattern.len() {
                return true;
            }
            retry = Some((p, t));
            continue;
        }
        match one(pattern, p, text[t], fold) {
            Some(next) => (p, t) = (next, t + 1),
            None => match &mut retry {
                None => return false,
                Some((after_star, from)) => {
                    *from += 1;
                    (p, t) = (*after_star, *from);
                }
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte against the element at `p`; returns where the next element starts.
fn one(pattern: &[u8], p: usize, byte: u8, fold: bool) -> Option<usize> {
    match pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => {
            let (hit, next) = set(pattern, p + 1, byte, fold);
            hit.then_some(next)
        }
        b'\\' if p + 1 < pattern.len() => same(pattern[p + 1], byte, fold).then_some(p + 2),
        literal => same(*literal, byte, fold).then_some(p + 1),
    }
}

/// Matches a set whose first byte is at `p`; an unclosed one ends with the pattern.
fn set(pattern: &[u8], mut p: usize, byte: u8, fold: bool) -> (bool, usize) {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut hit = false;
    loop {
        match pattern.get(p) {
            None => return (hit != negated, pattern.len()),
            Some(b']') => return (hit != negated, p + 1),
            Some(b'\\') if p + 1 < pattern.len() => {
                hit |= same(pattern[p + 1], byte, fold);
                p += 2;
            }
            Some(&low) if pattern.get(p + 1) == Some(&b'-') && p + 2 < pattern.len() => {
                hit |= in_range(low, pattern[p + 2], byte, fold);
                p += 3;
            }
            Some(&literal) => {
                hit |= same(literal, byte, fold);
                p += 1;
            }
        }
    }
}

fn in_range(low: u8, high: u8, byte: u8, fold: bool) -> bool {
    let (low, high) = (low.min(high), low.max(high));
    if fold {
        let (low, high) = (low.to_ascii_lowercase(), high.to_ascii_lowercase());
        return (low..=high).contains(&byte.to_ascii_lowercase());
    }
    (low..=high).contains(&byte)
}

fn same(a: u8, b: u8, fold: bool) -> bool {
    a == b || (fold && a.eq_ignore_ascii_case(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a[\\]]b", "a]b", true),
            ("[abc", "c", true),
            ("[a-", "-", true),
            ("[]", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*a*", "bbb", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} on {text}");
        }
        assert!(matches(b"H[A-C]*", b"hbX", true) && !matches(b"H*", b"h", false));
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_exponential_time() {
        // The class of CVE-2022-36021: with backtracking into every star this would never end.
        let pattern = "a*".repeat(500) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 10_000], false));
    }
}
