//! `evenkeel tx`: what an operator asks a running server about its transactions, and tells it.

use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use resp::Value;
use serde_json::Value as Json;

use crate::client::{self, Server};
use crate::failure::Failure;
use crate::reply::{field, items, to_json, told};

/// The arguments of `evenkeel tx`.
#[derive(Debug, Args)]
pub(crate) struct Tx {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List transactions that have not ended
    List {
        /// Only those in this state: active, preparing, deciding, committing, rolling-back, heuristic, in-doubt, committed
        state: Option<String>,
        /// Most transactions to list: the oldest first, of committed ones the newest
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        count: u16,
        /// Print JSON: an array of objects
        #[arg(long)]
        json: bool,
    },
    /// Show one transaction
    Show {
        /// Its identifier
        id: String,
        /// Print JSON: an object
        #[arg(long)]
        json: bool,
    },
    /// Commit or roll back one that is in-doubt or heuristic; look into its databases first
    Resolve {
        /// Its identifier
        id: String,
        /// What to do with its branches
        end: End,
        /// Change nothing: check whether the server would accept it, and show what it would do
        #[arg(long)]
        dry_run: bool,
    },
    /// Ask all databases now for their prepared branches
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
pub(crate) fn run(options: &Tx) -> Result<(), Failure> {
    let mut server = client::connect(&options.server.target()?)?;
    let mut call = |words: &[&str]| server.call(words).map_err(Failure::from);
    // The server logs by this name who decided what.
    call(&["CLIENT", "SETNAME", &own_name()])?;
    let text = match &options.what {
        What::List { state, count, json } => {
            let most = count.to_string();
            let words = ["TX.LIST"].into_iter().chain(state.as_deref()).chain(["COUNT", &most]);
            let list = call(&words.collect::<Vec<_>>())?;
            let all: Vec<Json> = items(&list).iter().map(to_json).collect();
            if *json { format!("{:#}\n", Json::Array(all)) } else { table(&list, usize::from(*count)) }
        }
        What::Show { id, json } => {
            let one = call(&["TX.STATUS", id])?;
            if *json { format!("{:#}\n", to_json(&one)) } else { detail(&one) }
        }
        What::Resolve { id, end, dry_run: true } => {
            call(&["TX.RESOLVE", id, end.word(), "DRYRUN"])?;
            plan(&call(&["TX.STATUS", id])?, *end)
        }
        What::Resolve { id, end, dry_run: false } => {
            call(&["TX.RESOLVE", id, end.word()])?;
            detail(&call(&["TX.STATUS", id])?)
        }
        What::Recover => {
            call(&["TX.RECOVER"])?;
            "all databases are asked; `evenkeel tx list` shows the result\n".to_owned()
        }
    };
    crate::output::say(std::io::stdout(), &text);
    Ok(())
}

/// Who runs this, as far as the system tells; no name of a client has spaces.
fn own_name() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|variable| std::env::var(variable).ok());
    let user = user.filter(|user| !user.is_empty() && user.bytes().all(|byte| byte.is_ascii_graphic()));
    format!("evenkeel-tx:{}", user.as_deref().unwrap_or("unknown"))
}

/// The transactions of TX.LIST, of which there are `most` at most, one a line.
fn table(list: &Value, most: usize) -> String {
    let all = items(list);
    if all.is_empty() {
        return "no transaction\n".to_owned();
    }
    let of_branch = |it: &Value| format!("{} {}", told(it, "resource"), told(it, "state"));
    let row = |one: &Value| {
        let branches: Vec<String> = items(field(one, "branches")).iter().map(of_branch).collect();
        [
            told(one, "id"),
            told(one, "state"),
            age(one),
            told(one, "client"),
            branches.join(", "),
            told(one, "last"),
        ]
    };
    let head = ["id", "state", "age", "client", "branches", "last statement"].map(str::to_owned);
    let rows: Vec<[String; COLUMNS]> = std::iter::once(head).chain(all.iter().map(row)).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if all.len() >= most {
        let _ = writeln!(text, "there may be more: --count N lists up to 10000");
    }
    text
}

/// How long ago it began, if that is known.
fn age(one: &Value) -> String {
    let Value::Integer(ms) = field(one, "age_ms") else { return String::new() };
    match *ms {
        ..1_000 => format!("{ms}ms"),
        1_000..600_000 => format!("{}s", ms / 1_000),
        600_000..36_000_000 => format!("{}m", ms / 60_000),
        _ => format!("{}h", ms / 3_600_000),
    }
}

/// What TX.RESOLVE would do to one, which the server would let it.
fn plan(one: &Value, end: End) -> String {
    let mut text = detail(one);
    let state = told(one, "state");
    let waits =
        |branch: &&Value| matches!(&*told(branch, "state"), "prepared" | "committing" | "rolling-back");
    let branches: Vec<String> =
        items(field(one, "branches")).iter().filter(waits).map(|it| told(it, "resource")).collect();
    let what = match &*state {
        "heuristic" => {
            "note that an operator has seen it, and forget it; its branches stay as they are".to_owned()
        }
        "none" => format!("{} the keys that are prepared under this identifier", end.verb()),
        _ if branches.is_empty() => format!("note that it is to {}", end.verb()),
        _ => format!("{} its branch in {}", end.verb(), branches.join(", ")),
    };
    let _ = writeln!(text, "dry run     nothing was changed; without --dry-run the server would {what}");
    text
}

/// One transaction, with all that is known of it.
fn detail(one: &Value) -> String {
    let mut text = format!("transaction {}\nstate       {}\n", told(one, "id"), told(one, "state"));
    for (name, value) in [("age", age(one)), ("client", told(one, "client")), ("last", told(one, "last"))] {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<11} {value}");
        }
    }
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

impl End {
    fn word(self) -> &'static str {
        if self == Self::Commit { "COMMIT" } else { "ROLLBACK" }
    }

    fn verb(self) -> &'static str {
        if self == Self::Commit { "commit" } else { "roll back" }
    }
}

const COLUMNS: usize = 6;

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
            text("age_ms"),
            Value::Integer(61_500),
            text("client"),
            text("10.0.0.7:40112"),
            text("last"),
            text("orders: UPDATE t SET v = ?"),
            text("branches"),
            Value::Array(vec![Value::Array(branch)]),
        ];
        Value::Array(fields)
    }

    #[test]
    fn list_has_a_line_for_each_and_says_so_when_there_is_none() {
        assert_eq!(table(&Value::Array(Vec::new()), 1), "no transaction\n");
        let listed = table(&Value::Array(vec![transaction()]), 2);
        assert_eq!(
            listed,
            "id   state       age  client          branches           last statement\n\
             1-5  committing  61s  10.0.0.7:40112  orders committing  orders: UPDATE t SET v = ?\n"
        );
        assert_eq!(listed.lines().count(), 2);
        let cut = table(&Value::Array(vec![transaction()]), 1);
        assert_eq!(cut.lines().nth(2), Some("there may be more: --count N lists up to 10000"));
    }

    /// Identifiers were cut off from their column, and what held a row locked was not told.
    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut long = transaction();
        if let Value::Array(fields) = &mut long {
            fields[1] = text("6b05d2a0-10000000000012345");
        }
        let listed = table(&Value::Array(vec![transaction(), long]), 100);
        let at: Vec<_> = listed.lines().map(|line| line.find(" comm").or(line.find(" state"))).collect();
        assert_eq!(at, [Some(27); 3], "{listed}");
    }

    #[test]
    fn json_has_all_that_is_told() {
        let json = to_json(&transaction());
        assert_eq!(json["id"], "1-5");
        assert_eq!(json["age_ms"], 61_500);
        assert_eq!(json["branches"][0]["attempts"], 3);
        assert_eq!(json["branches"][0]["trouble"], "connection refused");
    }

    #[test]
    fn dry_run_says_what_would_be_done_to_which_branches() {
        let planned = plan(&transaction(), End::Rollback);
        let last = "dry run     nothing was changed; without --dry-run the server would roll back its branch in orders\n";
        assert!(planned.ends_with(last), "{planned}");
    }

    #[test]
    fn one_is_shown_with_what_went_wrong() {
        let shown = detail(&transaction());
        assert!(shown.contains("branch      orders  committing  evk_n_1_5_1\n"), "{shown}");
        assert!(shown.ends_with("            asked 3 times: connection refused\n"), "{shown}");
    }
}
