//! Patterns of Lua 5.1, matched with a count of steps.
//!
//! Lua's own matcher is C: it may try for longer than anybody lives (`(a*)*b` and its like), and nothing ends it. This one gives the same
//! answers, and looks every [`STEPS`] steps whether the script may go on.
//!
//! Invariants
//!   1. What matches, what is captured and what is refused, with which text, is as in Lua 5.1 (`strings` compares them).
//!   2. Recursion is bounded by the length of the pattern, which is at most [`PATTERN_BYTES_MAX`].
//!
//! A pattern ends at its first byte 0, as there. Out of scope: arguments and results (`strings`).

/// The longest pattern.
pub(super) const PATTERN_BYTES_MAX: usize = 1_024;
/// Captures of a pattern, at most.
const CAPTURES_MAX: usize = 32;
/// Steps after which is looked whether the run may go on.
const STEPS: u32 = 4_096;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The pattern is none.
    Pattern(&'static str),
    /// The run is over.
    Over(mlua::Error),
}

/// A pattern on its way through a text.
pub(super) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    steps: u32,
    tick: &'a dyn Fn() -> mlua::Result<()>,
}

#[derive(Clone, Copy, Debug)]
struct Capture {
    from: usize,
    len: Len,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Len {
    Bytes(usize),
    /// It is not closed.
    Open,
    /// It is a place.
    Place,
}

/// What was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Captured<'a> {
    Text(&'a [u8]),
    /// Counted from 1 on.
    Place(usize),
}

type Matched = Result<Option<usize>, Fault>;

impl<'a> Matcher<'a> {
    /// `pattern` in `text`; `tick` fails when the run is over.
    pub(super) fn new(text: &'a [u8], pattern: &'a [u8], tick: &'a dyn Fn() -> mlua::Result<()>) -> Self {
        let end = memchr::memchr(0, pattern).unwrap_or(pattern.len());
        let nothing = Capture { from: 0, len: Len::Open };
        Self { text, pattern: &pattern[..end], captures: [nothing; CAPTURES_MAX], level: 0, steps: 0, tick }
    }

    /// Where a match ends that begins at `from`.
    ///
    /// # Errors
    /// The pattern is none, or the run is over.
    pub(super) fn at(&mut self, from: usize) -> Matched {
        self.level = 0;
        self.follow(from, 0)
    }

    /// How many captures the last match has.
    pub(super) fn count(&self) -> usize {
        self.level
    }

    /// Capture number `index`, from 0 on, of the last match, which was `whole`; without captures the first is all of it.
    ///
    /// # Errors
    /// There is none, or it is not closed.
    pub(super) fn capture(&self, index: usize, whole: std::ops::Range<usize>) -> Result<Captured<'a>, Fault> {
        if index >= self.level {
            return match index {
                0 => Ok(Captured::Text(&self.text[whole])),
                _ => Err(Fault::Pattern("invalid capture index")),
            };
        }
        let Capture { from, len } = self.captures[index];
        match len {
            Len::Bytes(bytes) => Ok(Captured::Text(&self.text[from..from + bytes])),
            Len::Place => Ok(Captured::Place(from + 1)),
            Len::Open => Err(Fault::Pattern("unfinished capture")),
        }
    }

    /// The match itself.
    pub(super) fn whole(&self, whole: std::ops::Range<usize>) -> Captured<'a> {
        Captured::Text(&self.text[whole])
    }

    /// Counts `steps` steps.
    fn step(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps += u32::try_from(steps).unwrap_or(STEPS).min(STEPS);
        if self.steps >= STEPS {
            self.steps = 0;
            (self.tick)().map_err(Fault::Over)?;
        }
        Ok(())
    }

    /// The byte of the pattern at `p`; 0 behind the last.
    fn byte(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    /// Where a match of the pattern from `p` on ends that begins at `s`.
    fn follow(&mut self, mut s: usize, mut p: usize) -> Matched {
        loop {
            self.step(1)?;
            match (self.byte(p), self.byte(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open(s, p + 2, Len::Place),
                (b'(', _) => return self.open(s, p + 1, Len::Open),
                (b')', _) => return self.close(s, p + 1),
                (b'$', 0) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', b'b') => match self.balanced(s, p + 2)? {
                    None => return Ok(None),
                    Some(end) => (s, p) = (end, p + 4),
                },
                (b'%', b'f') => match self.frontier(s, p + 2)? {
                    None => return Ok(None),
                    Some(end) => p = end,
                },
                (b'%', digit @ b'0'..=b'9') => match self.again(s, digit)? {
                    None => return Ok(None),
                    Some(end) => (s, p) = (end, p + 2),
                },
                _ => match self.single(s, p)? {
                    Single::Next(next, end) => (s, p) = (next, end),
                    Single::Done(done) => return Ok(done),
                },
            }
        }
    }

    /// A class of bytes at `p`, with what says how often.
    fn single(&mut self, s: usize, p: usize) -> Result<Single, Fault> {
        let end = self.class_end(p)?;
        let fits = self.fits(s, p, end);
        Ok(match self.byte(end) {
            b'?' => {
                if fits && let Some(done) = self.follow(s + 1, end + 1)? {
                    return Ok(Single::Done(Some(done)));
                }
                Single::Next(s, end + 1)
            }
            b'*' => Single::Done(self.most(s, p, end)?),
            b'+' if fits => Single::Done(self.most(s + 1, p, end)?),
            b'-' => Single::Done(self.fewest(s, p, end)?),
            b'+' => Single::Done(None),
            _ if fits => Single::Next(s + 1, end),
            _ => Single::Done(None),
        })
    }

    fn most(&mut self, s: usize, p: usize, end: usize) -> Matched {
        let mut count = 0;
        while self.fits(s + count, p, end) {
            count += 1;
        }
        self.step(count / 8)?;
        loop {
            if let Some(done) = self.follow(s + count, end + 1)? {
                return Ok(Some(done));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn fewest(&mut self, mut s: usize, p: usize, end: usize) -> Matched {
        loop {
            if let Some(done) = self.follow(s, end + 1)? {
                return Ok(Some(done));
            }
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, len: Len) -> Matched {
        if self.level >= CAPTURES_MAX {
            return Err(Fault::Pattern("too many captures"));
        }
        self.captures[self.level] = Capture { from: s, len };
        self.level += 1;
        let done = self.follow(s, p)?;
        if done.is_none() {
            self.level -= 1;
        }
        Ok(done)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched {
        let open = self.captures[..self.level].iter().rposition(|capture| capture.len == Len::Open);
        let index = open.ok_or(Fault::Pattern("invalid pattern capture"))?;
        self.captures[index].len = Len::Bytes(s - self.captures[index].from);
        let done = self.follow(s, p)?;
        if done.is_none() {
            self.captures[index].len = Len::Open;
        }
        Ok(done)
    }

    /// What a capture has, once more.
    fn again(&mut self, s: usize, digit: u8) -> Matched {
        let index = usize::from(digit).checked_sub(usize::from(b'1')).filter(|index| *index < self.level);
        let known = index.map(|index| self.captures[index]).filter(|capture| capture.len != Len::Open);
        let Capture { from, len } = known.ok_or(Fault::Pattern("invalid capture index"))?;
        let Len::Bytes(bytes) = len else { return Ok(None) };
        self.step(bytes / 64)?;
        Ok(self.text[s..].starts_with(&self.text[from..from + bytes]).then_some(s + bytes))
    }

    /// `%b` with the two bytes at `p`.
    fn balanced(&mut self, s: usize, p: usize) -> Matched {
        let (opens, closes) = (self.byte(p), self.byte(p + 1));
        if opens == 0 || closes == 0 {
            return Err(Fault::Pattern("unbalanced pattern"));
        }
        if self.text.get(s) != Some(&opens) {
            return Ok(None);
        }
        let mut depth = 1;
        for (at, byte) in self.text.iter().enumerate().skip(s + 1) {
            if *byte == closes {
                depth -= 1;
                if depth == 0 {
                    self.step((at - s) / 8)?;
                    return Ok(Some(at + 1));
                }
            } else if *byte == opens {
                depth += 1;
            }
        }
        self.step((self.text.len() - s) / 8)?;
        Ok(None)
    }

    /// `%f` with the set at `p`: where the set ends, if one begins at `s`. Before and behind the text there is a byte 0.
    fn frontier(&mut self, s: usize, p: usize) -> Matched {
        if self.byte(p) != b'[' {
            return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p)?;
        let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
        let behind = self.text.get(s).copied().unwrap_or(0);
        let begins = !self.is_in_set(before, p, end) && self.is_in_set(behind, p, end);
        Ok(begins.then_some(end))
    }

    /// Where the class at `p` ends.
    fn class_end(&self, mut p: usize) -> Result<usize, Fault> {
        let unclosed = || Fault::Pattern("malformed pattern (missing ']')");
        match self.byte(p) {
            b'%' if self.byte(p + 1) == 0 => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            b'%' => Ok(p + 2),
            b'[' => {
                p += 1 + usize::from(self.byte(p + 1) == b'^');
                loop {
                    // a `]` in the first place is one of the set
                    let byte = self.byte(p);
                    if byte == 0 {
                        return Err(unclosed());
                    }
                    p += 1 + usize::from(byte == b'%' && self.byte(p + 1) != 0);
                    if self.byte(p) == b']' {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` is of the class from `p` to `end`.
    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(byte) = self.text.get(s).copied() else { return false };
        match self.byte(p) {
            b'.' => true,
            b'%' => is_of_class(byte, self.byte(p + 1)),
            b'[' => self.is_in_set(byte, p, end),
            literal => literal == byte,
        }
    }

    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let (is_inverse, last) = (self.byte(p + 1) == b'^', end - 1);
        let mut at = p + 1 + usize::from(is_inverse);
        while at < last {
            let found = match self.byte(at) {
                b'%' => {
                    at += 1;
                    is_of_class(byte, self.byte(at))
                }
                from if self.byte(at + 1) == b'-' && at + 2 < last => {
                    at += 2;
                    (from..=self.byte(at)).contains(&byte)
                }
                literal => literal == byte,
            };
            if found {
                return !is_inverse;
            }
            at += 1;
        }
        is_inverse
    }
}

/// How to go on behind a class.
enum Single {
    /// At these places of text and pattern.
    Next(usize, usize),
    Done(Option<usize>),
}

fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b'\t'..=b'\r' | b' '),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of != class.is_ascii_uppercase()
}
