//! What a statement may not begin with, what it may be, and how an identifier is quoted.
//!
//! The server refuses several statements at once by itself, as each goes through its extended protocol. What is left to refuse here
//! is what would end the branch behind its coordinator's back, or leave the driver in a state that it does not know:
//!
//! | first word | why not |
//! |---|---|
//! | `BEGIN START COMMIT END ROLLBACK ABORT PREPARE` | the coordinator begins and ends branches |
//! | `SAVEPOINT RELEASE` | after a statement failed, a branch only rolls back: there is nothing to go back to |
//! | `LISTEN UNLISTEN NOTIFY` | what did this cannot be prepared |
//! | `COPY` | its data would need a stream |
//! | `EXECUTE DEALLOCATE DISCARD`, `SET SESSION CHARACTERISTICS` | sessions are shared: nothing of one branch is there in the next |
//!
//! `SET TRANSACTION` is allowed: as the first statement it chooses the branch's isolation, and lasts no longer than the branch.
//! What a function does inside a statement is not looked at; the server lets none end the transaction it runs in.

use crate::StatementError::{self, Refused};

/// What a statement is, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It may have changed nothing, and holds nothing that others wait for: see [`reads`].
    Reads,
    /// It may do anything.
    Works,
}

/// What `statement` is.
///
/// # Errors
/// [`StatementError::Refused`]: why it is not run.
pub(super) fn look(statement: &str) -> Result<Kind, StatementError> {
    if statement.contains('\0') {
        return Err(Refused("a statement has no NUL bytes".to_owned()));
    }
    let mut words = Words { rest: statement };
    let first = words.next().unwrap_or_default();
    let no = |why: &str| Err(Refused(format!("{first} is not run in a branch: {why}")));
    match first.as_str() {
        "" => Err(Refused("a statement begins with a word: this one has none".to_owned())),
        "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "PREPARE" => {
            no("its transaction is begun, prepared and ended by the coordinator")
        }
        "SAVEPOINT" | "RELEASE" => no("a branch whose statement failed only rolls back, whole"),
        "LISTEN" | "UNLISTEN" | "NOTIFY" => no("PostgreSQL prepares no transaction that did it"),
        "COPY" => no("its data has no way through here; INSERT takes many rows at once"),
        "EXECUTE" | "DEALLOCATE" | "DISCARD" => no("sessions are shared by branches"),
        "SET" if is_characteristics(words) => {
            no("SESSION CHARACTERISTICS outlive a branch, and sessions are shared; SET TRANSACTION is run")
        }
        "SELECT" | "VALUES" | "TABLE" | "SHOW" if reads(statement) => Ok(Kind::Reads),
        _ => Ok(Kind::Works),
    }
}

/// `text` as a literal.
pub(super) fn quote(text: &str) -> String {
    // `E''` reads the same whatever `standard_conforming_strings` says.
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// `SET [SESSION | LOCAL] SESSION CHARACTERISTICS`.
fn is_characteristics(words: Words<'_>) -> bool {
    words.take(3).any(|word| word == "CHARACTERISTICS")
}

/// Whether a query may be taken for one that only reads, if it was given no transaction number either. One that takes a lock for others
/// to wait for (`FOR UPDATE` has a number, `pg_advisory_xact_lock` has none), or tells others something, is prepared like one that
/// writes: it costs two syncs, and is never wrong. What a function of the user's own does without writing is not seen.
fn reads(statement: &str) -> bool {
    let lower = statement.to_ascii_lowercase();
    !["lock", "notify", "set_config"].iter().any(|word| lower.contains(word))
}

/// The words that a statement begins with, in capitals; whatever is no word ends them.
#[derive(Clone, Copy, Debug)]
struct Words<'a> {
    rest: &'a str,
}

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let start = skip(self.rest);
        let end = start.find(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_' || !sign.is_ascii()));
        let (word, rest) = start.split_at(end.unwrap_or(start.len()));
        self.rest = rest;
        (!word.is_empty()).then(|| word.chars().take(WORD_CHARS_MAX).collect::<String>().to_ascii_uppercase())
    }
}

/// `text` behind its blanks, comments, parentheses, and the semicolons of empty statements, which the server drops.
fn skip(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches(|sign: char| sign.is_ascii_whitespace() || "\x0b;(".contains(sign));
        if text.starts_with("--") {
            text = text.find(['\n', '\r']).map_or("", |end| &text[end..]);
        } else if text.starts_with("/*") {
            text = skip_comment(text);
        } else {
            return text;
        }
    }
}

/// `text` behind the comment that it begins with; comments nest.
fn skip_comment(text: &str) -> &str {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => depth += 1,
            [b'*', b'/', ..] => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return &text[at..];
        }
    }
    ""
}

/// Longer than any word that is looked for.
const WORD_CHARS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_that_ends_the_branch_is_refused_however_it_is_dressed() {
        let statements = [
            "COMMIT",
            "commit;",
            "  \t\r\n\x0b\x0cCommit",
            ";;COMMIT",
            "-- a word\nCOMMIT",
            "--\rEND",
            "/* one /* two */ one */ COMMIT",
            "/**/ROLLBACK PREPARED 'x'",
            "/*/**/*/ABORT",
            "COMMIT/**/AND CHAIN",
            "Prepare Transaction 'x'",
            "begin isolation level serializable",
            "START TRANSACTION",
            "END",
            "savepoint a",
            "RELEASE a",
            "LISTEN a",
            "COPY t FROM STDIN",
            "DISCARD ALL",
            "set session characteristics as transaction read only",
            "SET SESSION /* */ SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "",
            " ; -- nothing",
            "/* not ended",
            "SELECT '\0'",
        ];
        for statement in statements {
            assert!(look(statement).is_err(), "{statement:?}");
        }
    }

    #[test]
    fn work_is_let_through() {
        for statement in ["SELECT 1", "(select 1)", "-- x\nTABLE t", "VALUES (1)", "/* COMMIT */ select 1"] {
            assert_eq!(look(statement), Ok(Kind::Reads), "{statement:?}");
        }
        let statements = [
            "INSERT INTO t VALUES ('COMMIT')",
            "committed",
            "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET LOCAL search_path TO x",
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT PG_NOTIFY('a', 'b')",
            "SELECT 1 FROM t FOR UPDATE NOWAIT -- lock",
            "LOCK t IN EXCLUSIVE MODE",
            "élan",
        ];
        for statement in statements {
            assert_eq!(look(statement), Ok(Kind::Works), "{statement:?}");
        }
        assert!(look("\"commit\"").is_err(), "no statement begins with a quoted name");
    }

    #[test]
    fn literal_is_quoted_for_any_setting_of_the_server() {
        assert_eq!(quote("evk_n_1_2_3"), "E'evk_n_1_2_3'");
        assert_eq!(quote(r"a'b\'c"), r"E'a''b\\''c'");
    }
}
