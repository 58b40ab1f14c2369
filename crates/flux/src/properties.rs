//! Files of properties as Java reads them: `key = value`, one a line.
//!
//! | text | means |
//! |---|---|
//! | `# ...`, `! ...` | a comment |
//! | `key = value`, `key: value`, `key value` | a property; blanks around the sign do not count |
//! | a line that ends with `\` | goes on in the next one, whose leading blanks do not count |
//! | `\t`, `\n`, `\r`, `\f`, `\uXXXX`, `\` and another sign | that sign |

use std::collections::BTreeMap;

/// Reads properties; of equal keys the last one counts.
///
/// # Errors
/// A line with an escape that means nothing, or more than the bounds allow: its number, and why.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut properties = BTreeMap::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut logical = line.trim_start().to_owned();
        if logical.starts_with(['#', '!']) || logical.is_empty() {
            continue;
        }
        while ends_open(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(next.trim_start());
        }
        let (key, value) = split(&logical);
        let unescaped = |text| unescape(text).map_err(|why| format!("line {}: {why}", number + 1));
        properties.insert(unescaped(key)?, unescaped(value)?);
        if properties.len() > PROPERTIES_MAX {
            return Err(format!("line {}: more than {PROPERTIES_MAX} properties", number + 1));
        }
    }
    Ok(properties)
}

/// Whether an odd number of `\` is at the end.
fn ends_open(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = line.find(|c: char| {
        let ends = !is_escaped && (c == '=' || c == ':' || c.is_whitespace());
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    let Some(end) = end else { return (line, "") };
    let rest = line[end..].trim_start();
    (&line[..end], rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start())
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            out.push(sign);
            continue;
        }
        match signs.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0C'),
            Some('u') => {
                let digits: String = signs.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
                let sign = code.and_then(char::from_u32);
                out.push(sign.ok_or_else(|| format!("`\\u{digits}` is no character"))?);
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Ok(out)
}

const PROPERTIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# comment\n! too\n\n  a=1\nb : two words \nc three\nlong = one \\\n    line\nwith\\ blank=x\\u0041\\\\\nlast";
        let expected = [
            ("a", "1"),
            ("b", "two words "),
            ("c", "three"),
            ("last", ""),
            ("long", "one line"),
            ("with blank", "xA\\"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(parse(text).unwrap(), BTreeMap::from(expected));
    }

    #[test]
    fn escape_that_means_nothing_is_refused_with_its_line() {
        assert_eq!(parse("a=1\nb=\\uZZ").unwrap_err(), "line 2: `\\uZZ` is no character");
    }
}
