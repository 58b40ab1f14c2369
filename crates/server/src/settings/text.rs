//! What is generated from the table: the manual page, the example file, the name most similar to a misspelt one.

use std::fmt::Write as _;

use super::table::{ROWS, Row};

/// The manual page `docs/settings.md`.
pub fn manual_page() -> String {
    let mut page = String::from(MANUAL_HEAD);
    for (heading, rows) in sections() {
        let _ = write!(page, "\n## {heading}\n");
        for row in rows {
            let _ =
                write!(page, "\n### `{}`\n\n{}\n{}\n\n{}\n", row.key, row.summary, row.reason, facts(row));
        }
    }
    page
}

/// The example file: every setting with its default, all of them commented out.
pub fn example_file() -> String {
    let mut file = String::from(EXAMPLE_HEAD);
    for (heading, rows) in sections() {
        let _ = write!(file, "\n# {heading}\n");
        for row in rows {
            file.push('\n');
            for line in wrapped(&format!("{} {}", row.summary, row.reason)) {
                let _ = writeln!(file, "# {line}");
            }
            let _ = writeln!(file, "#{} = {}", row.key, quoted(row, row.default));
        }
    }
    file + EXAMPLE_TAIL
}

/// `text`, in quotes unless the row's values are numbers or switches.
pub(super) fn quoted(row: &Row, text: &str) -> String {
    let bare = row.is_switch() || matches!(row.form, "COUNT" | "PORT" | "PERCENT");
    if bare { text.to_owned() } else { toml::Value::String(text.to_owned()).to_string() }
}

fn facts(row: &Row) -> String {
    let default = if row.default.is_empty() { "none".to_owned() } else { format!("`{}`", row.default) };
    let bounds = match row.bounds {
        ["", ""] => String::new(),
        [least, most] => format!(" · from `{least}` to `{most}`"),
    };
    let change = if row.runtime { "CONFIG SET can change it" } else { "read at the start" };
    format!("`--{}` · {} · default {default}{bounds} · {change}", row.flag(), form(row))
}

fn form(row: &Row) -> String {
    format!("`{}`", row.form)
}

/// Rows by their group, in the order of the table.
fn sections() -> Vec<(&'static str, Vec<&'static Row>)> {
    let mut sections: Vec<(&'static str, Vec<&'static Row>)> = Vec::new();
    for row in ROWS {
        let heading = row.heading();
        match sections.iter_mut().find(|(other, _)| *other == heading) {
            Some((_, rows)) => rows.push(row),
            None => sections.push((heading, vec![row])),
        }
    }
    sections
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("starts with one line and only grows");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= LINE_LEN_MAX {
            let _ = write!(line, " {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

const LINE_LEN_MAX: usize = 96;

const MANUAL_HEAD: &str = "\
# Settings

<!-- Generated from the table in crates/server/src/settings/table.rs: change it there. -->

A setting has one name. In the settings file (`evenkeel serve --config evenkeel.toml`) it is `name = value`, or a line of a table:
`connections.max = 10` is `max = 10` in `[connections]`. On the command line it is `--` and the name with `-` for `.` and `_`. A flag wins
over the file, the file over the default.

`CONFIG GET` shows all settings. `CONFIG SET` changes those that may change while the server runs. `CONFIG REWRITE` writes the current
settings into the file, with absolute paths, and keeps the file's comments. `CONFIG` also accepts Redis's names where they mean the same (`maxmemory`,
`maxclients`, `timeout`, `appendfsync`, ...).

Sizes are written `64MiB`, `100B`, or as in Redis (`64mb`). Durations are written `250ms`, `1s`, `5m`. An unknown name, or a value outside its
bounds, stops the start with a message. `evenkeel serve --print-config` prints an example file with every setting.

Databases that take part in transactions are tables `[resource.NAME]` of the file:
see [transactions](manual/transactions.md#set-up).
";

const EXAMPLE_HEAD: &str = "\
# All settings of Evenkeel with their defaults. Remove the # to change one.
# evenkeel serve --config THIS_FILE
";

const EXAMPLE_TAIL: &str = r#"
# Databases for transactions, one table each, after all settings: see docs/manual/transactions.md
# [resource.orders]
# url = "postgres://app@db.example/orders"      # or mysql://, mariadb://
# password_env = "ORDERS_PASSWORD"
# sessions_max = 16
# connect_timeout = "5s"
# statement_timeout = "30s"
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn the_example_file_with_all_comments_removed_says_the_defaults() {
        let file: String = example_file()
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' '))
            .fold(String::new(), |all, line| all + line + "\n");
        assert_eq!(file.lines().count(), ROWS.len());
        let mut settings = Settings::default();
        settings.apply_toml(&file).expect("the example is a settings file");
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn the_manual_page_in_the_repository_is_that_of_the_table() {
        let checked_in = include_str!("../../../../docs/settings.md");
        assert!(checked_in == manual_page(), "stale: cargo run -- serve --print-manual > docs/settings.md");
        let checked_in = include_str!("../../../../docs/evenkeel.example.toml");
        assert!(
            checked_in == example_file(),
            "stale: cargo run -- serve --print-config > docs/evenkeel.example.toml"
        );
    }
}
