//! The first line of a script or a library: `#!lua name=mylib flags=no-writes,allow-stale`.

/// What a script or a function promises, or asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionFlags(u8);

impl FunctionFlags {
    /// Adds the flag called `name`; returns whether there is one.
    pub fn set(&mut self, name: &[u8]) -> bool {
        let bit = NAMES.iter().position(|known| known.as_bytes() == name);
        self.0 |= bit.map_or(0, |bit| 1 << bit);
        bit.is_some()
    }

    /// Whether it changes nothing.
    pub fn no_writes(self) -> bool {
        self.0 & 1 != 0
    }

    /// Names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| *name)
    }

    pub(super) fn to_byte(self) -> u8 {
        self.0
    }

    pub(super) fn of_byte(byte: u8) -> Self {
        Self(byte)
    }
}

const NAMES: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// The words of a first line, and where the rest begins, line end included.
type FirstLine = (Vec<Vec<u8>>, usize);

/// The first line of `source`, if it begins with `#!`; `None` within if it has no end, or a quote without one.
fn first_line(source: &[u8]) -> Option<Option<FirstLine>> {
    source.strip_prefix(b"#!")?;
    Some(memchr::memchr(b'\n', source).and_then(|end| Some((words(&source[..end])?, end))))
}

/// The words of `line`; one may be in quotes, or have a part in quotes. `None`: a quote has no end, or something follows it.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut at) = (Vec::new(), 0);
    loop {
        at += line[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if at == line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
            at += 1;
            if !matches!(byte, b'"' | b'\'') {
                word.push(*byte);
                continue;
            }
            let quoted = memchr::memchr(*byte, &line[at..])?;
            word.extend_from_slice(&line[at..at + quoted]);
            at += quoted + 1;
            if line.get(at).is_some_and(|next| !next.is_ascii_whitespace()) {
                return None;
            }
        }
        words.push(word);
    }
}

/// What follows `name` in `word`, in any case.
fn value_of<'a>(word: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (start, value) = word.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name.as_bytes()).then_some(value)
}

/// The flags of a script, `None` without a first line of that kind, and where its code begins.
///
/// # Errors
/// The text of the error reply.
pub(crate) fn of_script(source: &[u8]) -> Result<(Option<FunctionFlags>, usize), Vec<u8>> {
    let Some(line) = first_line(source) else { return Ok((None, 0)) };
    let (words, body_at) = line.ok_or_else(|| b"ERR Invalid script shebang".to_vec())?;
    if words[0] != b"#!lua" {
        return Err([b"ERR Unexpected engine in script shebang: ", &words[0][..]].concat());
    }
    let mut flags = FunctionFlags::default();
    for word in &words[1..] {
        let Some(list) = word.strip_prefix(b"flags=") else {
            return Err([b"ERR Unknown lua shebang option: ", &word[..]].concat());
        };
        for name in list.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
            if !flags.set(name) {
                return Err([b"ERR Unexpected flag in script shebang: ", name].concat());
            }
        }
    }
    Ok((Some(flags), body_at))
}

/// The name of a library, and where its code begins.
///
/// # Errors
/// The text of the error reply.
pub(crate) fn of_library(source: &[u8]) -> Result<(Vec<u8>, usize), Vec<u8>> {
    let line = first_line(source).ok_or_else(|| b"ERR Missing library metadata".to_vec())?;
    let (words, body_at) = line.ok_or_else(|| b"ERR Invalid library metadata".to_vec())?;
    let (engine, mut name) = (&words[0][2..], None);
    for word in &words[1..] {
        match value_of(word, "name=") {
            Some(_) if name.is_some() => {
                return Err(b"ERR Invalid metadata value, name argument was given multiple times".to_vec());
            }
            Some(given) => name = Some(given),
            None => return Err([b"ERR Invalid metadata value given: ", &word[..]].concat()),
        }
    }
    let name = name.ok_or_else(|| b"ERR Library name was not given".to_vec())?;
    if !is_name(name) {
        return Err(b"ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                     character long"
            .to_vec());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err([b"ERR Engine '", engine, b"' not found"].concat());
    }
    Ok((name.to_vec(), body_at))
}

/// Whether a library or a function may be called that.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_read_or_refused() {
        assert_eq!(of_script(b"return 1"), Ok((None, 0)));
        let (flags, at) = of_script(b"#!lua flags=no-writes,allow-oom\nreturn 1").expect("flags");
        assert!(flags.is_some_and(FunctionFlags::no_writes) && at == 31);
        assert_eq!(of_library(b"#!lua name=a_1\ncode"), Ok((b"a_1".to_vec(), 14)));
        for line in ["#!lua name=\"x\"\n", "#!lua  name='x' \n", "#!lua 'name=x'\n", "#!LUA NAME=x\n"] {
            assert_eq!(of_library(line.as_bytes()).map(|(name, _)| name), Ok(b"x".to_vec()), "{line}");
        }
        assert!(of_script(b"#!lua flags=\"no-writes\"\n").is_ok_and(|(flags, _)| flags.is_some()));
        let text = |result: Result<(Vec<u8>, usize), Vec<u8>>| {
            String::from_utf8(result.expect_err("refused")).expect("text")
        };
        assert_eq!(text(of_library(b"code")), "ERR Missing library metadata");
        assert_eq!(text(of_library(b"#!lua name=\"x\ncode")), "ERR Invalid library metadata");
        assert_eq!(text(of_library(b"#!lua\ncode")), "ERR Library name was not given");
        assert_eq!(text(of_library(b"#!js name=x\n")), "ERR Engine 'js' not found");
        assert_eq!(text(of_library(b"#!lua name=x y=1\n")), "ERR Invalid metadata value given: y=1");
    }
}
