//! Glob patterns of KEYS, SCAN, PSUBSCRIBE and others: compiled once, matched in linear time, with counted steps.
//!
//! `*` any bytes, `?` one byte, `[a-c^x]` a set, `\x` x itself; exactly as `stringmatchlen` of Redis reads them, its
//! oddities included (each is noted where it is handled).
//!
//! ```text
//!  head * middle * middle * tail      head and tail are compared at the ends of the text
//!                                     each middle is searched behind the one before it, leftmost first
//! ```
//!
//! A middle of plain bytes is searched by `memmem`. Any other is searched by one bit for each of its elements
//! (shift-and), so a byte of the text costs one step for each 64 elements, whatever the sets contain.
//!
//! Invariants
//!   1. A set is 256 bits: what it contains costs time once, when the pattern is compiled.
//!   2. Matching takes at most [`Pattern::steps_max`] steps of about a nanosecond: for the longest pattern and a channel
//!      of the greatest length about a million.
//!
//! Rejected: going back to the newest `*`, which costs the product of both lengths.
//! Source: Baeza-Yates and Gonnet, "A new approach to text searching", 1992.

use std::ops::Range;

use memchr::memmem::Finder;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    /// What stands before the first `*`, or all of it.
    head: Box<[Element]>,
    /// What follows the first `*`, if there is one.
    rest: Option<Rest>,
    /// Elements that take a byte: a shorter text cannot match.
    bytes_min: usize,
}

/// What follows the first `*`.
#[derive(Debug)]
struct Rest {
    middles: Box<[Middle]>,
    tail: Box<[Element]>,
    /// For each byte, which elements of [`Middle::Bits`] take it: a bit for each of them, `words` words.
    takes: Box<[u64]>,
    words: usize,
}

/// What takes one byte of the text.
#[derive(Clone, Debug)]
enum Element {
    Byte(u8),
    Any,
    Set(Box<Set>),
}

/// Which bytes are in a set, a bit for each.
type Set = [u64; 4];

/// What stands between two `*`.
#[derive(Debug)]
enum Middle {
    Plain(Box<Finder<'static>>),
    /// Its elements' bits in [`Rest::takes`].
    Bits(Range<usize>),
}

/// A pattern is longer than [`Pattern::BYTES_MAX`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern of {bytes} B is longer than the limit of {most} B", most = Pattern::BYTES_MAX)]
pub struct TooLong {
    bytes: usize,
}

impl Pattern {
    /// Longest pattern.
    pub const BYTES_MAX: usize = 1024;

    /// Compiles `pattern`; `fold` ignores the case of ASCII letters.
    ///
    /// # Errors
    /// [`TooLong`], with both lengths.
    pub fn new(pattern: &[u8], fold: bool) -> Result<Self, TooLong> {
        if pattern.len() > Self::BYTES_MAX {
            return Err(TooLong { bytes: pattern.len() });
        }
        let (mut segments, mut elements) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < pattern.len() {
            if pattern[at] == b'*' {
                segments.push(std::mem::take(&mut elements));
                at += 1;
                continue;
            }
            let (element, next) = element(pattern, at, fold);
            elements.push(element);
            at = next;
        }
        segments.push(elements);
        let bytes_min = segments.iter().map(Vec::len).sum();
        let tail = if segments.len() > 1 { segments.pop() } else { None };
        let mut segments = segments.into_iter();
        let head = segments.next().unwrap_or_default().into();
        let middles: Vec<_> = segments.filter(|segment| !segment.is_empty()).collect();
        Ok(Self { head, rest: tail.map(|tail| Rest::new(&middles, tail)), bytes_min })
    }

    /// Whether `text` matches; adds to `steps` what that took.
    pub fn matches(&self, text: &[u8], steps: &mut u64) -> bool {
        // Redis: only the empty pattern matches the empty text, `*` does not.
        if text.is_empty() {
            return self.bytes_min == 0 && self.rest.is_none();
        }
        if text.len() < self.bytes_min {
            return false;
        }
        let (head, behind) = text.split_at(self.head.len());
        if !all_take(&self.head, head, steps) {
            return false;
        }
        let Some(rest) = &self.rest else { return behind.is_empty() };
        let (mut between, end) = behind.split_at(behind.len() - rest.tail.len());
        if !all_take(&rest.tail, end, steps) {
            return false;
        }
        rest.middles.iter().all(|middle| match rest.find(middle, between, steps) {
            Some(end) => {
                between = &between[end..];
                true
            }
            None => false,
        })
    }

    /// Most steps that matching a text of `text_bytes` takes.
    pub fn steps_max(&self, text_bytes: usize) -> u64 {
        let words = self.rest.iter().flat_map(|rest| &rest.middles).map(|middle| match middle {
            Middle::Plain(_) => 1,
            Middle::Bits(bits) => words_of(bits).len(),
        });
        (self.bytes_min + text_bytes * words.max().unwrap_or(0)) as u64
    }

    /// What the compiled pattern takes in memory, beside `Pattern` itself.
    pub fn memory_bytes(&self) -> usize {
        let elements = |elements: &[Element]| -> usize {
            let sets = elements.iter().filter(|element| matches!(element, Element::Set(_))).count();
            size_of_val(elements) + sets * size_of::<Set>()
        };
        let rest = self.rest.as_ref().map_or(0, |rest| {
            let needles = rest.middles.iter().map(|middle| match middle {
                Middle::Plain(finder) => finder.needle().len() + size_of::<Finder<'_>>(),
                Middle::Bits(_) => 0,
            });
            let lists = size_of_val(&*rest.middles) + size_of_val(&*rest.takes);
            needles.sum::<usize>() + lists + elements(&rest.tail)
        });
        rest + elements(&self.head)
    }
}

impl Element {
    #[inline]
    fn takes(&self, byte: u8) -> bool {
        match self {
            Element::Byte(own) => *own == byte,
            Element::Any => true,
            Element::Set(set) => set[usize::from(byte / 64)] >> (byte % 64) & 1 == 1,
        }
    }
}

impl Rest {
    fn new(segments: &[Vec<Element>], tail: Vec<Element>) -> Self {
        let mut bits = Vec::new();
        let middles = segments.iter().map(|segment| match plain(segment) {
            Some(bytes) => Middle::Plain(Box::new(Finder::new(&bytes).into_owned())),
            None => {
                bits.extend(segment);
                Middle::Bits(bits.len() - segment.len()..bits.len())
            }
        });
        let middles = middles.collect();
        let words = bits.len().div_ceil(64);
        let mut takes = vec![0; 256 * words].into_boxed_slice();
        for (index, element) in bits.iter().enumerate() {
            let mut add = |byte: usize| takes[byte * words + index / 64] |= 1 << (index % 64);
            match element {
                Element::Byte(byte) => add(usize::from(*byte)),
                _ => {
                    (0..=u8::MAX).filter(|byte| element.takes(*byte)).for_each(|byte| add(usize::from(byte)));
                }
            }
        }
        Self { middles, tail: tail.into(), takes, words }
    }

    /// Where the leftmost place that `middle` matches ends.
    fn find(&self, middle: &Middle, text: &[u8], steps: &mut u64) -> Option<usize> {
        let (end, words) = match middle {
            Middle::Plain(finder) => (finder.find(text).map(|start| start + finder.needle().len()), 1),
            Middle::Bits(bits) => (self.find_bits(bits, text), words_of(bits).len()),
        };
        *steps += (end.unwrap_or(text.len()) * words) as u64;
        end
    }

    /// Bit `first + i` of the state says that the `i + 1` newest bytes are what the first `i + 1` elements take.
    fn find_bits(&self, bits: &Range<usize>, text: &[u8]) -> Option<usize> {
        let words = words_of(bits);
        let (first, last) = (1 << (bits.start % 64), 1u64 << ((bits.end - 1) % 64));
        let mut all = [0u64; Pattern::BYTES_MAX / 64];
        let state = &mut all[..words.len()];
        for (index, byte) in text.iter().enumerate() {
            let takes = &self.takes[usize::from(*byte) * self.words..][words.clone()];
            let mut carry = first;
            for (word, takes) in state.iter_mut().zip(takes) {
                let shifted = *word << 1 | carry;
                carry = *word >> 63;
                *word = shifted & takes;
            }
            if state[state.len() - 1] & last != 0 {
                return Some(index + 1);
            }
        }
        None
    }
}

/// The words that hold `bits`.
fn words_of(bits: &Range<usize>) -> Range<usize> {
    bits.start / 64..bits.end.div_ceil(64)
}

/// The bytes that `elements` are, if each is one.
fn plain(elements: &[Element]) -> Option<Vec<u8>> {
    let byte = |element: &Element| if let Element::Byte(byte) = element { Some(*byte) } else { None };
    elements.iter().map(byte).collect()
}

/// Whether each element takes its byte.
fn all_take(elements: &[Element], bytes: &[u8], steps: &mut u64) -> bool {
    let taken = elements.iter().zip(bytes).take_while(|(element, byte)| element.takes(**byte)).count();
    *steps += taken as u64;
    taken == elements.len()
}

/// The element at `at`, which is no `*`, and where the next one begins.
fn element(pattern: &[u8], at: usize, fold: bool) -> (Element, usize) {
    match pattern[at] {
        b'?' => (Element::Any, at + 1),
        b'[' => {
            let (set, next) = set(pattern, at + 1, fold);
            (Element::Set(Box::new(set)), next)
        }
        b'\\' if at + 1 < pattern.len() => (literal(pattern[at + 1], fold), at + 2),
        byte => (literal(byte, fold), at + 1),
    }
}

fn literal(byte: u8, fold: bool) -> Element {
    if !fold || !byte.is_ascii_alphabetic() {
        return Element::Byte(byte);
    }
    let mut set = Set::default();
    add(&mut set, byte, fold);
    Element::Set(Box::new(set))
}

/// The set whose first byte is at `at`, and where it ends; an unclosed one ends with the pattern.
fn set(pattern: &[u8], mut at: usize, fold: bool) -> (Set, usize) {
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut set = Set::default();
    let end = loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break at,
            // Redis: what is escaped in a set is never folded.
            [b'\\', byte, ..] => {
                add(&mut set, *byte, false);
                at += 2;
            }
            [b']', ..] => break at + 1,
            // Redis: also `]` ends a range, and the set goes on.
            [low, b'-', high, ..] => {
                add_range(&mut set, *low.min(high), *low.max(high), fold);
                at += 3;
            }
            [byte, ..] => {
                add(&mut set, *byte, fold);
                at += 1;
            }
        }
    };
    (if is_negated { set.map(|word| !word) } else { set }, end)
}

fn add(set: &mut Set, byte: u8, fold: bool) {
    let both = if fold { [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()] } else { [byte; 2] };
    both.iter().for_each(|byte| set[usize::from(byte / 64)] |= 1 << (byte % 64));
}

/// Adds `low` to `high`. Redis orders them first and folds them then: `[Z-a]` folded is empty.
///
/// Bytes are unsigned here, as in Redis on ARM; on x86 it takes those from 128 on for negative.
fn add_range(set: &mut Set, low: u8, high: u8, fold: bool) {
    if !fold {
        return (low..=high).for_each(|byte| add(set, byte, false));
    }
    let range = low.to_ascii_lowercase()..=high.to_ascii_lowercase();
    (0..=u8::MAX).filter(|byte| range.contains(&byte.to_ascii_lowercase())).for_each(|b| add(set, b, false));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The matcher that this one replaced: goes back to the newest `*`.
    mod previous {
        pub(super) fn matches(pattern: &[u8], text: &[u8], fold: bool) -> bool {
            if text.is_empty() {
                return pattern.is_empty();
            }
            let (mut p, mut t) = (0, 0);
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

        fn set(pattern: &[u8], mut p: usize, byte: u8, fold: bool) -> (bool, usize) {
            let negated = pattern.get(p) == Some(&b'^');
            p += usize::from(negated);
            let mut hit = false;
            loop {
                match pattern.get(p) {
                    None => return (hit != negated, pattern.len()),
                    Some(b']') => return (hit != negated, p + 1),
                    Some(b'\\') if p + 1 < pattern.len() => {
                        // It folded this, which Redis does not.
                        hit |= pattern[p + 1] == byte;
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
    }

    fn matches(pattern: &[u8], text: &[u8], fold: bool) -> bool {
        let pattern = Pattern::new(pattern, fold).expect("short");
        let mut steps = 0;
        let matches = pattern.matches(text, &mut steps);
        assert!(steps <= pattern.steps_max(text.len()), "{steps} steps: {pattern:?}");
        matches
    }

    #[test]
    fn patterns_mean_what_they_mean_to_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", false),
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
            ("[a-]b", "]", true),
            ("[]", "a", false),
            ("[^", "a", true),
            ("[", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("ab*ba", "aba", false),
            ("*a*", "bbb", false),
            ("*a?c*", "xabcx", true),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} on {text}");
        }
        assert!(matches(b"H[A-C]*", b"hbX", true) && !matches(b"H*", b"h", false));
        assert!(!matches(b"[\\M]", b"m", true), "Redis does not fold what is escaped in a set");
    }

    /// Few letters, so that they meet, and all that has a meaning.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            6 => prop::sample::select(b"abAB-".to_vec()).prop_map(|byte| vec![byte]),
            4 => prop::sample::select(b"*?[]^\\".to_vec()).prop_map(|byte| vec![byte]),
            1 => prop::sample::select(vec![b"[a-b]".to_vec(), b"[^b]".to_vec(), b"[b-a]".to_vec(), b"[Z-a".to_vec()]),
            1 => any::<u8>().prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn any_pattern_matches_what_the_previous_matcher_matched(
            pattern in pieces(),
            text in prop::collection::vec(
                prop_oneof![12 => prop::sample::select(b"abAB-]".to_vec()), 1 => any::<u8>()], 0..12),
            fold: bool,
        ) {
            prop_assert_eq!(matches(&pattern, &text, fold), previous::matches(&pattern, &text, fold));
        }

        #[test]
        fn long_middles_are_found_where_they_are(
            middle in prop::collection::vec(prop::sample::select(b"ab?".to_vec()), 60..200),
            before in prop::collection::vec(prop::sample::select(b"ab".to_vec()), 0..200),
            is_there: bool,
        ) {
            let pattern = [&b"*"[..], &middle, b"*"].concat();
            let mut text = before;
            if is_there {
                text.extend(middle.iter().map(|byte| if *byte == b'?' { b'x' } else { *byte }));
                text.push(b'x');
            }
            prop_assert_eq!(matches(&pattern, &text, false), previous::matches(&pattern, &text, false));
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_exponential_time() {
        // The class of CVE-2022-36021: with backtracking into every star this would never end.
        let pattern = "a*".repeat(500) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 10_000], false));
    }

    #[test]
    fn the_worst_pattern_and_text_take_about_a_million_steps() {
        // The fault: `*[` and a million bytes on 40,000 bytes took 28 s, for the set was read anew for each byte.
        let worst = [
            ["*[", &"b".repeat(Pattern::BYTES_MAX - 4), "]c"].concat(),
            ["*", &"?".repeat(Pattern::BYTES_MAX - 5), "[b]*"].concat(),
            ["*", &"a".repeat(Pattern::BYTES_MAX - 6), "[b]a*"].concat(),
            "*a?[b]".repeat(Pattern::BYTES_MAX / 6),
        ];
        let text = vec![b'a'; 64 << 10];
        for pattern in worst {
            let mut steps = 0;
            assert!(
                !Pattern::new(pattern.as_bytes(), false)
                    .expect("within the limit")
                    .matches(&text, &mut steps)
            );
            assert!(steps <= 1_100_000, "{steps} steps: {pattern}");
        }
    }

    #[test]
    fn a_pattern_beyond_the_limit_is_refused_with_both_lengths() {
        let error = Pattern::new(&[b'*'; Pattern::BYTES_MAX + 1], false).expect_err("too long");
        assert_eq!(error.to_string(), "a pattern of 1025 B is longer than the limit of 1024 B");
        assert!(Pattern::new(&[b'['; Pattern::BYTES_MAX], false).is_ok());
    }

    #[test]
    fn the_memory_of_a_pattern_is_bounded() {
        let most = [["*[", &"[a]".repeat(300), "]*"].concat(), "[a]".repeat(340), "*?a".repeat(341)]
            .map(|pattern| Pattern::new(pattern.as_bytes(), false).expect("short").memory_bytes())
            .into_iter()
            .max();
        assert!(most.is_some_and(|most| most <= 256 << 10), "{most:?}");
    }
}
