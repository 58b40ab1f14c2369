//! Just enough of Rust's lexical rules to find functions and where they end.
//!
//! [`code`] blanks comments, strings and characters, so that braces and keywords in them do not count; lines stay
//! where they were. [`functions`] then matches braces. Out of scope: macros that build functions from pieces.

/// A function and its extent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Of its `fn`, counted from 1.
    pub(super) line: usize,
    /// From the line of its `fn` to that of its closing brace, both included.
    pub(super) lines: usize,
}

/// `source` with the content of comments, strings and characters replaced by blanks.
pub(super) fn code(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = token_end(bytes, at);
        if is_blanked(bytes, at, end) {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The functions with a body in `source`, in the order of their `fn`.
pub(super) fn functions(source: &str) -> Vec<Function> {
    let code = code(source);
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let end = word_end(bytes, at);
        if &bytes[at..end] == b"fn" {
            found.extend(function_at(&code, at, end));
        }
        at = end;
    }
    found
}

/// The function whose `fn` is `start..end`; none for a pointer type, a declaration or a macro's `$name`.
fn function_at(code: &str, start: usize, end: usize) -> Option<Function> {
    let bytes = code.as_bytes();
    let name_at = end + bytes[end..].iter().position(|byte| !byte.is_ascii_whitespace())?;
    let name = &code[name_at..word_end(bytes, name_at)];
    if name.is_empty() {
        return None;
    }
    let mut depth = 0_usize;
    for (offset, byte) in bytes[name_at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => {
                let close = closing_brace(bytes, name_at + offset)?;
                let line = 1 + lines_in(&bytes[..start]);
                return Some(Function {
                    name: name.to_owned(),
                    line,
                    lines: 1 + lines_in(&bytes[start..close]),
                });
            }
            _ => {}
        }
    }
    None
}

fn closing_brace(bytes: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(open + offset),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// End of the comment, string, character, word or single byte that starts at `at`.
fn token_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + block_comment_len(rest);
    }
    match rest[0] {
        b'"' => at + quoted_len(rest, b'"'),
        b'\'' if is_character(rest) => at + quoted_len(rest, b'\''),
        b'r' | b'b' | b'c' => match raw_string_len(rest) {
            Some(len) => at + len,
            None if rest.starts_with(b"b'") => at + 1 + quoted_len(&rest[1..], b'\''),
            None if rest.get(1) == Some(&b'"') => at + 1 + quoted_len(&rest[1..], b'"'),
            None => word_end(bytes, at),
        },
        byte if is_word(byte) => word_end(bytes, at),
        _ => at + 1,
    }
}

fn is_blanked(bytes: &[u8], at: usize, end: usize) -> bool {
    let token = &bytes[at..end];
    token.starts_with(b"//")
        || token.starts_with(b"/*")
        || (token.len() > 1 && matches!(token[token.len() - 1], b'"' | b'\'' | b'#'))
}

/// A quote that opens a character, not a lifetime: `'x'` or `'\...'`.
fn is_character(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(first) => {
            let len = match first {
                0..=0x7f => 1,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            rest.get(1 + len) == Some(&b'\'')
        }
        None => false,
    }
}

fn quoted_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of `r"..."`, `r#"..."#`, `br"..."`, `cr"..."`; none if there is no raw string.
fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let r = rest.iter().take(2).position(|byte| *byte == b'r')?;
    let hashes = rest[r + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = r + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(rest.len(), |end| open + 1 + end + close.len()))
}

fn block_comment_len(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn word_end(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|byte| is_word(**byte)).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn lines_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(String, usize, usize)> {
        functions(source).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn function_reaches_from_its_fn_to_its_closing_brace() {
        let source =
            "// fn no() {\npub fn first(a: [u8; 2],\n  b: u8) -> u8 {\n  if a { b }\n}\nfn second() {}\n";
        assert_eq!(found(source), [("first".to_owned(), 2, 4), ("second".to_owned(), 6, 1)]);
    }

    #[test]
    fn braces_in_strings_characters_and_comments_do_not_count() {
        let source = "fn a<'x>(y: &'x str) {\n \"}\\\"\"; '}'; '\\''; b'{'; r#\"}\"\"#; b\"}\"; /* } /* } */ } */\n}\nfn b() {}";
        assert_eq!(found(source), [("a".to_owned(), 1, 3), ("b".to_owned(), 4, 1)]);
    }

    #[test]
    fn declarations_pointer_types_and_macro_names_are_not_functions() {
        assert_eq!(found("trait T { fn declared(&self); }\ntype P = fn(u8) -> u8;\nfn $name() {}"), []);
    }

    #[test]
    fn nested_functions_count_for_themselves_too() {
        let source = "fn outer() {\n    fn inner() {\n    }\n}\n";
        assert_eq!(found(source), [("outer".to_owned(), 1, 4), ("inner".to_owned(), 2, 2)]);
    }

    #[test]
    fn code_keeps_lines_and_blanks_text() {
        assert_eq!(code("a /* x\ny */ b // c\n\"d\ne\" 'l x"), "a     \n     b     \n  \n   'l x");
    }
}
