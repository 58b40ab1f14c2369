//! `evenkeel tx`: what an operator asks a running server about its transactions, and tells it.

use std::fmt::Write as _;

use bench::drive::Target;
use clap::{Args, Subcommand, ValueEnum};
use resp::Value;

use crate::client;

/// The arguments of `evenkeel tx`.
#[derive(Debug, Args)]
pub(crate) struct Tx {
    #[command(subcommand)]
    what: What,
    /// The server.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "redis://127.0.0.1:6379",
        help = "Server: redis://[user:password@]host[:port]; the password may be in REDISCLI_AUTH"
    )]
    url: Target,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List transactions that have not ended
    List {
        /// Only those in this state: active, preparing, deciding, committing, rolling-back, heuristic, in-doubt, committed
        state: Option<String>,
        /// So many at most: those that began first, or, of those that are committed, last
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        count: u16,
    },
    /// Show what is known of one
    Show {
        /// Its identifier
        id: String,
    },
    /// Decide about one that is in doubt or heuristic, when you have looked at its databases
    Resolve {
        /// Its identifier
        id: String,
        /// What is to become of its branches
        end: End,
    },
    /// Ask all databases now what they hold prepared
    Recover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    /// Commit what is prepared
    Commit,
    /// Roll it back
    Rollback,
}

/// Asks the server, and prints the answer.
///
/// # Errors
/// One line: no server, or what it says.
pub(crate) fn run(options: &Tx) -> Result<(), String> {
    let mut stream = client::connect(&options.url)?;
    let mut call = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        client::call(&mut stream, &words)
    };
    let text = match &options.what {
        What::List { state, count } => {
            let most = count.to_string();
            let words = ["TX.LIST"].into_iter().chain(state.as_deref()).chain(["COUNT", &most]);
            table(&call(&words.collect::<Vec<_>>())?, usize::from(*count))
        }
        What::Show { id } => detail(&call(&["TX.STATUS", id])?),
        What::Resolve { id, end } => {
            let word = if *end == End::Commit { "COMMIT" } else { "ROLLBACK" };
            call(&["TX.RESOLVE", id, word])?;
            detail(&call(&["TX.STATUS", id])?)
        }
        What::Recover => {
            call(&["TX.RECOVER"])?;
            "all databases are asked; `evenkeel tx list` shows what comes of it\n".to_owned()
        }
    };
    crate::say(std::io::stdout(), &text);
    Ok(())
}

/// The transactions of TX.LIST, of which there are `most` at most, one a line.
fn table(list: &Value, most: usize) -> String {
    let all = items(list);
    if all.is_empty() {
        return "no transaction\n".to_owned();
    }
    let mut text = format!("{:<20} {:<13} branches\n", "id", "state");
    for one in all {
        let branches = items(field(one, "branches"));
        let of_branch = |it: &Value| format!("{} {}", told(it, "resource"), told(it, "state"));
        let branches: Vec<String> = branches.iter().map(of_branch).collect();
        let _ = writeln!(text, "{:<20} {:<13} {}", told(one, "id"), told(one, "state"), branches.join(", "));
    }
    if all.len() >= most {
        let _ = writeln!(text, "perhaps there are more: --count N lists up to 10000");
    }
    text
}

/// One transaction, with all that is known of it.
fn detail(one: &Value) -> String {
    let mut text = format!("transaction {}\nstate       {}\n", told(one, "id"), told(one, "state"));
    let reason = told(one, "reason");
    if !reason.is_empty() {
        let _ = writeln!(text, "reason      {reason}");
    }
    for branch in items(field(one, "branches")) {
        let _ = writeln!(
            text,
            "branch      {}  {}  {}",
            told(branch, "resource"),
            told(branch, "state"),
            told(branch, "branch")
        );
        let trouble = told(branch, "trouble");
        if !trouble.is_empty() {
            let _ = writeln!(text, "            asked {} times: {trouble}", told(branch, "attempts"));
        }
    }
    text
}

fn items(value: &Value) -> &[Value] {
    if let Value::Array(items) = value { items } else { &[] }
}

/// The value of a field of a map, which version 2 of the protocol writes as an array.
fn field<'a>(map: &'a Value, name: &str) -> &'a Value {
    let pairs = items(map).chunks_exact(2);
    let mut found = pairs.filter(|pair| matches!(&pair[0], Value::Bulk(key) if key == name.as_bytes()));
    found.next().map_or(&Value::Null, |pair| &pair[1])
}

fn told(map: &Value, name: &str) -> String {
    match field(map, name) {
        Value::Bulk(text) | Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Integer(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn transaction() -> Value {
        let branch = vec![
            text("resource"),
            text("orders"),
            text("branch"),
            text("evk_n_1_5_1"),
            text("state"),
            text("committing"),
            text("attempts"),
            Value::Integer(3),
            text("trouble"),
            text("connection refused"),
        ];
        let fields = vec![
            text("id"),
            text("1-5"),
            text("state"),
            text("committing"),
            text("reason"),
            text(""),
            text("branches"),
            Value::Array(vec![Value::Array(branch)]),
        ];
        Value::Array(fields)
    }

    #[test]
    fn list_has_a_line_for_each_and_says_so_when_there_is_none() {
        assert_eq!(table(&Value::Array(Vec::new()), 1), "no transaction\n");
        let listed = table(&Value::Array(vec![transaction()]), 2);
        assert_eq!(listed.lines().nth(1), Some("1-5                  committing    orders committing"));
        assert_eq!(listed.lines().count(), 2);
        let cut = table(&Value::Array(vec![transaction()]), 1);
        assert_eq!(cut.lines().nth(2), Some("perhaps there are more: --count N lists up to 10000"));
    }

    #[test]
    fn one_is_shown_with_what_went_wrong() {
        let shown = detail(&transaction());
        assert!(shown.contains("branch      orders  committing  evk_n_1_5_1\n"), "{shown}");
        assert!(shown.ends_with("            asked 3 times: connection refused\n"), "{shown}");
    }
}
