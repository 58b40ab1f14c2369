//! What operators are told of a transaction beside its protocol: since when it is there, who began it, and what was run in it last.
//!
//! Invariants
//!   1. What is shown of a statement has no value in it: literals are replaced by `?`, and where two databases would read it differently the
//!      rest is left out. Parameters are not kept at all, of commands on keys nothing but the name.
//!   2. A summary has a bounded size, and there are at most as many as transactions that are under way, and [`LEFT_MAX`].
//!
//! Out of scope: whether a statement is well-formed.

use std::collections::{HashMap, VecDeque};

use clock::Nanos;
use txn::id::TxId;

/// What is noted of a transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// When it began.
    pub(crate) begun: Nanos,
    /// The client that began it: its address, and its name if it has one.
    pub(crate) client: Box<str>,
    /// Where the last statement was run, and how it began; as it was sent.
    last: String,
}

/// Summaries of transactions whose outcome was told; some go on for long, as their databases are down.
#[derive(Debug, Default)]
pub(super) struct Left {
    summaries: HashMap<TxId, Summary>,
    /// By age.
    order: VecDeque<TxId>,
}

impl Summary {
    pub(super) fn new(begun: Nanos, client: &str) -> Self {
        Self { begun, client: client.into(), last: String::new() }
    }

    /// A statement is run in the resource called `place`.
    pub(super) fn ran(&mut self, place: &str, text: &str) {
        self.last.clear();
        self.last.push_str(place);
        self.last.push_str(": ");
        self.last.push_str(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    }

    /// The last statement, without values; empty if there was none.
    pub(crate) fn last(&self) -> String {
        let Some((place, text)) = self.last.split_once(": ") else { return String::new() };
        let is_cut = text.len() + 4 > TEXT_BYTES_MAX;
        format!("{place}: {}{}", redacted(text), if is_cut { "…" } else { "" })
    }
}

impl Left {
    pub(super) fn keep(&mut self, tx: TxId, summary: Summary) {
        if self.summaries.insert(tx, summary).is_none() {
            self.order.push_back(tx);
        }
        if self.order.len() > LEFT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.summaries.remove(&oldest);
        }
    }

    pub(super) fn find(&self, tx: TxId) -> Option<&Summary> {
        self.summaries.get(&tx)
    }
}

/// A statement without its literals and comments. What PostgreSQL and MariaDB may read differently ends it.
fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let behind = &rest[sign.len_utf8()..];
        let skipped = match sign {
            '\'' | '"' => {
                out.push('?');
                skip_quoted(behind, sign)
            }
            '`' => {
                let end = behind.find('`').map_or(behind.len(), |at| at + 1);
                out.push_str(&rest[..=end]);
                Some(&behind[end..])
            }
            '$' if !behind.starts_with(|next: char| next.is_ascii_digit()) => skip_dollars(behind, &mut out),
            '0'..='9' => Some(number(rest, &mut out)),
            '-' if behind.starts_with('-') => None,
            '#' => None,
            '/' if behind.starts_with('*') => skip_comment(&behind[1..]),
            _ if sign.is_whitespace() => {
                if !out.ends_with(' ') {
                    out.push(' ');
                }
                Some(rest.trim_start())
            }
            _ => {
                out.push(sign);
                Some(behind)
            }
        };
        match skipped {
            Some(skipped) => rest = skipped,
            None => {
                out.push('…');
                break;
            }
        }
    }
    out.trim_end().to_owned()
}

/// What is behind a literal in quotes. A backslash ends a literal in one database and not in the other.
fn skip_quoted(mut rest: &str, quote: char) -> Option<&str> {
    loop {
        let at = rest.find([quote, '\\'])?;
        if rest[at..].starts_with('\\') {
            return None;
        }
        rest = &rest[at + 1..];
        match rest.strip_prefix(quote) {
            Some(more) => rest = more,
            None => return Some(rest),
        }
    }
}

/// What is behind `$TAG$...$TAG$`; a dollar that begins none is shown.
fn skip_dollars<'a>(behind: &'a str, out: &mut String) -> Option<&'a str> {
    let tag_len = behind.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(behind.len());
    let Some(body) = behind[tag_len..].strip_prefix('$') else {
        out.push('$');
        return Some(behind);
    };
    out.push('?');
    let close = format!("${}$", &behind[..tag_len]);
    body.find(&close).map(|at| &body[at + close.len()..])
}

/// What is behind a number, or behind digits within a name, which are shown.
fn number<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let is_part = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '.');
    let len = rest.find(|sign| !is_part(sign)).unwrap_or(rest.len());
    let is_name = out.ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | '$'));
    out.push_str(if is_name { &rest[..len] } else { "?" });
    &rest[len..]
}

/// What is behind a comment, and those in it.
fn skip_comment(mut rest: &str) -> Option<&str> {
    let mut depth = 1;
    while depth > 0 {
        let end = rest.find("*/")?;
        match rest.find("/*").filter(|begin| *begin < end) {
            Some(begin) => (depth, rest) = (depth + 1, &rest[begin + 2..]),
            None => (depth, rest) = (depth - 1, &rest[end + 2..]),
        }
    }
    Some(rest)
}

/// So much of a statement is kept.
const TEXT_BYTES_MAX: usize = 256;
/// Transactions whose outcome was told, and of which a summary is kept.
const LEFT_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_shown_without_its_values() {
        for (text, shown) in [
            ("UPDATE a SET b = b - $1 WHERE id = $2", "UPDATE a SET b = b - $1 WHERE id = $2"),
            (
                "UPDATE a1 SET b = 'se''cret', c = 12.5e3\n  WHERE id=-7",
                "UPDATE a1 SET b = ?, c = ? WHERE id=-?",
            ),
            ("SELECT \"secret\" , `col 1` FROM t", "SELECT ? , `col 1` FROM t"),
            ("SELECT $$secret$$, $x$ $$ secret $x$, 1", "SELECT ?, ?, ?"),
            ("SELECT /* a /* secret */ b */ 0xFF", "SELECT ?"),
            ("SELECT 'secret", "SELECT ?…"),
            ("SELECT $$secret", "SELECT ?…"),
            // Read otherwise by one of the two.
            ("SELECT 'a\\', 'secret'", "SELECT ?…"),
            ("SELECT 1 --'\nsecret'", "SELECT ? …"),
            ("SELECT 1 # '\nsecret'", "SELECT ? …"),
            ("SELECT 1 /* secret", "SELECT ? …"),
            ("", ""),
        ] {
            assert_eq!(redacted(text), shown, "{text}");
        }
    }

    #[test]
    fn whatever_is_cut_shows_no_more_of_it() {
        let text = "INSERT INTO t VALUES ('secret', $a$secret$a$, \"secret\", 'it''s secret') /* secret */ -- secret";
        for end in 0..=text.len() {
            assert!(!redacted(&text[..end]).contains("sec"), "{}", &text[..end]);
        }
    }

    #[test]
    fn notes_are_short_and_few() {
        let (mut left, mut summary) = (Left::default(), Summary::new(Nanos(5), "10.0.0.7:1"));
        assert_eq!(summary.last(), "");
        summary.ran("pg", &"é".repeat(10_000));
        assert!(summary.last().len() < 300 && summary.last().ends_with('…'), "{}", summary.last());
        summary.ran("keys", "SET");
        assert_eq!(summary.last(), "keys: SET");
        let tx = |number| TxId { epoch: 1, number };
        (0..2 * LEFT_MAX as u64).for_each(|number| left.keep(tx(number), summary.clone()));
        assert_eq!((left.summaries.len(), left.order.len()), (LEFT_MAX, LEFT_MAX));
        assert!(left.find(tx(0)).is_none() && left.find(tx(LEFT_MAX as u64)).is_some());
    }
}
