//! Statements of applications: which may be run in a branch, and what their values are as text.
//!
//! The server itself refuses in a branch whatever ends a transaction (XAER_RMFAIL: COMMIT, DDL, LOCK TABLES, also within a procedure).
//! What it allows, and must not be, is what changes the session: the next branch would run with it. So there is a list of
//! statements that may be run, not one of those that may not. A second statement behind a `;` is refused by the prepared protocol.
//!
//! Out of scope: what a stored function does to its session.

use mysql_async::consts::ColumnType;
use mysql_async::{Column, Params, Row, Value};

use crate::StatementError::{self, Refused};

/// What a statement may do to the session that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It looks as if it only read.
    Reads,
    /// It may write.
    Writes,
    /// It may leave something in the session, which is not used again.
    Sullies,
}

/// What `text` may do.
///
/// # Errors
/// [`StatementError::Refused`]: why it is not run.
pub(super) fn judge(text: &str) -> Result<Kind, StatementError> {
    let upper = text.to_ascii_uppercase();
    if let Some(what) = FORBIDDEN.iter().find(|what| upper.contains(**what)) {
        let why = format!("{what} is not for a branch: by a lock of its own a session is known to live");
        return Err(Refused(why));
    }
    let word = first_word(&upper);
    let kind = KINDS.iter().find(|(keyword, _)| *keyword == word).map(|(_, kind)| *kind);
    match kind {
        Some(_) if SULLYING.iter().any(|what| upper.contains(what)) => Ok(Kind::Sullies),
        // Its locks last until the transaction is decided, as those of what writes.
        Some(Kind::Reads) if LOCKING.iter().any(|what| upper.contains(what)) => Ok(Kind::Writes),
        Some(kind) => Ok(kind),
        None => {
            let word: String = word.chars().take(32).collect();
            let known = KINDS.map(|(keyword, _)| keyword).join(", ");
            let why =
                format!("{word:?} is not for a branch, which runs {known}; it ends with its transaction");
            Err(Refused(why))
        }
    }
}

/// Whether `text` may set what `LAST_INSERT_ID()` tells.
pub(super) fn names_insert_id(text: &str) -> bool {
    text.to_ascii_uppercase().contains("LAST_INSERT_ID")
}

/// The parameters, as the driver wants them.
pub(super) fn params(parameters: Vec<Option<Vec<u8>>>) -> Params {
    if parameters.is_empty() {
        return Params::Empty;
    }
    Params::Positional(parameters.into_iter().map(|value| value.map_or(Value::NULL, Value::Bytes)).collect())
}

/// The values of a row as text, and how many bytes of memory they take.
pub(super) fn texts(row: Row) -> (Vec<Option<Vec<u8>>>, usize) {
    let columns = row.columns();
    let values = row.unwrap().into_iter().zip(columns.iter());
    let texts: Vec<_> = values.map(|(value, column)| text(value, column)).collect();
    let size = texts.iter().map(|text| VALUE_BYTES + text.as_ref().map_or(0, Vec::len)).sum::<usize>();
    (texts, VALUE_BYTES + size)
}

fn text(value: Value, column: &Column) -> Option<Vec<u8>> {
    let text = match value {
        Value::NULL => return None,
        Value::Bytes(bytes) => return Some(bytes),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Date(year, month, day, ..) if column.column_type() == ColumnType::MYSQL_TYPE_DATE => {
            format!("{year:04}-{month:02}-{day:02}")
        }
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let fraction = fraction(micros, column.decimals());
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}")
        }
        Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let sign = if is_negative { "-" } else { "" };
            // Whatever number of days a server sends.
            let hours = u64::from(days) * 24 + u64::from(hours);
            format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{}", fraction(micros, column.decimals()))
        }
    };
    Some(text.into_bytes())
}

/// A fraction of a second, as long as its column says.
fn fraction(micros: u32, decimals: u8) -> String {
    match decimals {
        0 => String::new(),
        1..=6 => format!(".{micros:06}")[..=usize::from(decimals)].to_owned(),
        _ if micros == 0 => String::new(),
        _ => format!(".{micros:06}"),
    }
}

/// The first word of a statement, behind blanks, comments and parentheses. A comment that the server executes is none.
fn first_word(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        let after = if rest.starts_with('#') || is_dashes(rest) {
            rest.split_once('\n').map(|(_, after)| after)
        } else if rest.starts_with("/*") && !rest.starts_with("/*!") && !rest.starts_with("/*M!") {
            rest[2..].split_once("*/").map(|(_, after)| after)
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            return if end == 0 { rest } else { &rest[..end] };
        };
        rest = after.unwrap_or("");
    }
}

/// Whether a comment begins here: the server wants a blank behind the dashes.
fn is_dashes(text: &str) -> bool {
    let after = text.strip_prefix("--").map(|after| after.chars().next());
    after.is_some_and(|next| next.is_none_or(|c| c.is_whitespace() || c.is_control()))
}

/// What a branch runs.
const KINDS: [(&str, Kind); 11] = [
    ("SELECT", Kind::Reads),
    ("VALUES", Kind::Reads),
    ("SHOW", Kind::Reads),
    ("EXPLAIN", Kind::Reads),
    ("WITH", Kind::Writes),
    ("INSERT", Kind::Writes),
    ("UPDATE", Kind::Writes),
    ("DELETE", Kind::Writes),
    ("REPLACE", Kind::Writes),
    ("CALL", Kind::Sullies),
    ("DO", Kind::Sullies),
];
/// User variables, locks, and sequences, whose last value a session remembers.
const SULLYING: [&str; 4] = ["@", "GET_LOCK", "NEXTVAL", "NEXT VALUE"];
/// `FOR UPDATE`, `FOR SHARE`, `LOCK IN SHARE MODE`, whatever blanks are within.
const LOCKING: [&str; 2] = ["UPDATE", "SHARE"];
const FORBIDDEN: [&str; 2] = ["RELEASE_ALL_LOCKS", "RELEASE_LOCK"];
/// What a value takes beside its bytes.
const VALUE_BYTES: usize = size_of::<Option<Vec<u8>>>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_judged_by_its_first_word_behind_comments() {
        let reads =
            ["select 1", "\n (Select 1)", "-- a comment\nSELECT 1", "#x\n/* y */ sElEcT\t1", "((SELECT 1))"];
        assert!(reads.iter().all(|text| judge(text) == Ok(Kind::Reads)));
        for text in [
            "INSERT INTO t VALUES(1)",
            "update t set a=1",
            "/**/delete from t",
            "WITH a AS (SELECT 1) SELECT 1",
        ] {
            assert_eq!(judge(text), Ok(Kind::Writes), "{text}");
        }
        for text in ["SELECT 1 FROM t FOR\nUPDATE", "select 1 from t lock in share mode"] {
            assert_eq!(judge(text), Ok(Kind::Writes), "{text}");
        }
        for text in
            ["CALL p()", "DO sleep(1)", "SELECT @a:=1", "select get_lock('a', 1)", "SELECT nextval(s)"]
        {
            assert_eq!(judge(text), Ok(Kind::Sullies), "{text}");
        }
    }

    #[test]
    fn what_ends_transactions_or_changes_sessions_is_refused() {
        let texts = [
            "",
            "(",
            "-- only this",
            "/* open",
            "--SELECT 1",
            "COMMIT",
            "begin",
            "ROLLBACK",
            "SAVEPOINT a",
            "XA RECOVER",
            "START TRANSACTION",
            "SET autocommit=0",
            "LOCK TABLES t READ",
            "UNLOCK TABLES",
            "USE d",
            "CREATE TABLE t(i int)",
            "DROP TABLE t",
            "ALTER TABLE t ADD x int",
            "TRUNCATE t",
            "PREPARE p FROM 'x'",
            "EXECUTE p",
            "KILL 1",
            "HANDLER t OPEN",
            "/*! COMMIT */",
            "/*M!100100 COMMIT */",
            "SELECTED",
            "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
            "SELECT release_all_locks()",
            "SELECT RELEASE_LOCK('x')",
            "GRANT ALL ON d.* TO u",
            "FLUSH TABLES",
            "ä",
        ];
        for text in texts {
            assert!(judge(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fraction_is_as_long_as_its_column_says() {
        let fractions =
            [(0, 0), (120_000, 2), (1, 6), (5, 31), (0, 31)].map(|(micros, n)| fraction(micros, n));
        assert_eq!(fractions, ["", ".12", ".000001", ".000005", ""]);
    }
}
