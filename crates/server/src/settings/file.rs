//! The settings file: TOML, every complaint with its line.
//!
//! `connections.max = 10` and `[connections]` with `max = 10` are the same. Numbers, switches and strings are taken
//! as text by the row; an array of strings is a list.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::compat;
use super::error::WrongValue;
use super::table::{ROWS, Row};
use super::text::quoted;
use super::toml_value::text_of;
use super::unknown::{is_group, unknown};
use super::values::Settings;

/// A settings file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Line of the file, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for FileError {}

/// One `name = value` of a file.
struct Entry {
    name: String,
    /// The value as the row reads it; an error says why it can be none.
    text: Result<String, WrongValue>,
    name_at: Range<usize>,
    value_at: Range<usize>,
}

/// Takes what `toml` says over into `settings`.
pub(super) fn apply(settings: &mut Settings, toml: &str) -> Result<(), FileError> {
    settings.resources = resources(toml)?;
    for entry in entries(toml)? {
        let at = |span: &Range<usize>, message| FileError { line: line_of(toml, span.start), message };
        let row = Row::find(&entry.name).ok_or_else(|| at(&entry.name_at, unknown(&entry.name)))?;
        let text = entry.text.map_err(|why| at(&entry.value_at, format!("{}: {why}", entry.name)))?;
        row.set(settings, &text).map_err(|error| at(&entry.value_at, error.to_string()))?;
    }
    Ok(())
}

/// `toml` with the values of `settings` where they differ; new ones are added to their table if there is one, or at the top,
/// outside of any.
pub(super) fn rewrite(settings: &Settings, toml: &str) -> Result<String, FileError> {
    let mut said = Settings::default();
    apply(&mut said, toml)?;
    let entries = entries(toml)?;
    let mut replaced: Vec<(Range<usize>, String)> = Vec::new();
    let mut added = String::new();
    for row in ROWS.iter().filter(|row| row.text(settings) != row.text(&said)) {
        let value = literal(row, settings);
        match entries.iter().find(|entry| entry.name == row.key) {
            Some(entry) => replaced.push((entry.value_at.clone(), value)),
            None => match addition(toml, row, &value) {
                Some((at, line)) => replaced.push((at..at, line)),
                None => added.push_str(&format!("{} = {value}\n", row.key)),
            },
        }
    }
    replaced.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = toml.to_owned();
    for (span, value) in replaced {
        text.replace_range(span, &value);
    }
    if !added.is_empty() {
        text.insert_str(0, &format!("# Added by CONFIG REWRITE\n{added}\n"));
    }
    let mut read = Settings::default();
    apply(&mut read, &text)?;
    let lost = ROWS.iter().find(|row| row.text(&read) != row.text(settings));
    lost.map_or(Ok(text), |row| Err(FileError { line: 1, message: format!("{} does not fit in", row.key) }))
}

/// Where the value of `row` is added inside the table of its group, and what is added; `None` without such a table. TOML
/// takes a dotted name at the top for a second definition of the table.
fn addition(toml: &str, row: &Row, value: &str) -> Option<(usize, String)> {
    let (group, name) = row.key.split_once('.')?;
    let table = DeTable::parse(toml).ok()?;
    let (key, inner) = table.get_ref().iter().find(|(key, _)| key.get_ref() == group)?;
    if toml[inner.span()].starts_with('{') {
        // TOML 1.1, as this is read, has room for a comma before the end.
        return Some((inner.span().start + 1, format!(" {name} = {value},")));
    }
    if !toml[..key.span().start].trim_end_matches([' ', '\t']).ends_with('[') {
        return None;
    }
    let header_end = toml[key.span().end..].find('\n').map(|end| key.span().end + end + 1);
    Some(match header_end {
        Some(at) => (at, format!("{name} = {value}\n")),
        None => (toml.len(), format!("\n{name} = {value}\n")),
    })
}

/// The row's value as it stands in a file.
pub(super) fn literal(row: &Row, settings: &Settings) -> String {
    quoted(row, &row.text(settings))
}

fn entries(toml: &str) -> Result<Vec<Entry>, FileError> {
    let table = DeTable::parse(toml).map_err(|error| {
        let line = line_of(toml, error.span().map_or(0, |span| span.start));
        FileError { line, message: not_toml(toml, line, error.message()) }
    })?;
    let mut entries = Vec::new();
    flatten("", table.get_ref(), &mut entries);
    // Errors come in the order of the file, not of the alphabet.
    entries.sort_by_key(|entry| entry.name_at.start);
    Ok(entries)
}

/// What is wrong with a line that is no TOML: most are of a redis.conf, `NAME VALUE`.
fn not_toml(toml: &str, line: usize, message: &str) -> String {
    let text = toml.lines().nth(line - 1).unwrap_or_default();
    if let Some(advice) = advice_on(text) {
        return format!("{message}: {advice}");
    }
    let mut words = text.split_whitespace();
    let (name, is_pair) = (words.next().unwrap_or_default(), words.next().is_some_and(|word| word != "="));
    let key = match (Row::find(name), super::redis::Alias::find(name)) {
        (Some(row), _) => Some(row.key),
        (None, Some(alias)) => alias.key,
        (None, None) if is_pair && (compat::Row::find(name).is_some() || OF_REDIS.contains(&name)) => None,
        _ => return message.to_owned(),
    };
    if !is_pair {
        return message.to_owned();
    }
    let meant = key.map_or_else(
        || "there is no such setting here, or it has another name".to_owned(),
        |key| format!("here it is `{key} = ...`"),
    );
    format!(
        "`{name} ...` is a line of a redis.conf, and this file is TOML: {meant}; `evenkeel serve --print-config` prints all settings"
    )
}

/// What to do about a line `name = value`: its value lacks quotes, or the line is right by itself and its name was there before. The value of a
/// setting that is not known, or is a password, is not shown.
fn advice_on(line: &str) -> Option<String> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.split('#').next().unwrap_or_default().trim());
    if DeTable::parse(line).is_ok() {
        return Some(format!("`{name}`"));
    }
    let is_bare = value.starts_with(|first: char| first.is_ascii_alphanumeric());
    if !is_bare || DeTable::parse(&format!("x = {value}")).is_ok() {
        return None;
    }
    let is_shown = Row::find(name).is_some_and(|row| row.key != "requirepass");
    let switch = match value {
        "yes" | "no" | "on" | "off" => ", and a switch is true or false",
        _ => "",
    };
    let value = if is_shown { value } else { "..." };
    Some(format!("`{name} = {value}`: text is written in quotes, `{name} = \"{value}\"`{switch}"))
}

/// Words that lines of a redis.conf begin with, and that CONFIG does not know.
const OF_REDIS: &[&str] = &["include", "loadmodule", "rename-command", "user"];

fn resources(toml: &str) -> Result<Vec<super::ResourceSettings>, FileError> {
    // What is no TOML is told with the settings.
    let Ok(table) = DeTable::parse(toml) else { return Ok(Vec::new()) };
    super::resources::read(table.get_ref())
        .map_err(|(at, message)| FileError { line: line_of(toml, at.start), message })
}

fn flatten(prefix: &str, table: &DeTable<'_>, entries: &mut Vec<Entry>) {
    let is_setting = |name: &str| !prefix.is_empty() || name != super::resources::GROUP;
    for (key, value) in table.iter().filter(|(key, _)| is_setting(key.get_ref())) {
        let name =
            if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(inner) if Row::find(&name).is_none() && is_group(&name) => {
                flatten(&name, inner, entries);
            }
            value_ref => entries.push(Entry {
                name,
                text: text_of(value_ref),
                name_at: key.span(),
                value_at: value.span(),
            }),
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Durability, Engine, Size};
    use std::time::Duration;

    fn error(toml: &str) -> String {
        Settings::default().apply_toml(toml).expect_err("the file is wrong").to_string()
    }

    #[test]
    fn dotted_names_and_tables_mean_the_same() {
        let mut settings = Settings::default();
        let file = "engine = 'memory'\ndurability = '1s'\nvalue.max = '1MiB'\nbind = ['127.0.0.1', '::1']\n\
                    [connections]\nmax = 1_000\nidle_timeout = '5m'\n";
        settings.apply_toml(file).expect("the file is right");
        assert_eq!(settings.engine, Engine::Memory);
        assert_eq!(settings.durability, Durability::Interval(Duration::from_secs(1)));
        assert_eq!(settings.value_max, Size(1 << 20));
        assert_eq!(settings.bind.len(), 2);
        assert_eq!(settings.connections_max, 1000);
        assert_eq!(settings.connections_idle_timeout, Duration::from_secs(300));
    }

    #[test]
    fn a_wrong_line_is_named_with_what_is_wrong() {
        assert_eq!(error("port = 1\n\nprot = 2\n"), "line 3: unknown setting 'prot'; did you mean 'port'?");
        assert_eq!(
            error("[connections]\nmaxx = 2\n"),
            "line 2: unknown setting 'connections.maxx'; did you mean 'connections.max'?"
        );
        assert_eq!(
            error("[conections]\nmax = 2\n"),
            "line 1: unknown setting 'conections'; `evenkeel serve --help` lists all"
        );
        assert_eq!(
            error("loops = 1\nmaxmemory = '1gb'\n"),
            "line 2: unknown setting 'maxmemory' (of Redis); did you mean 'memory.limit'?"
        );
        let hint = "`evenkeel serve --print-config` prints all settings";
        for (file, expected) in [
            (
                "# Redis\nbind 127.0.0.1 -::1\n",
                "line 2: `bind ...` is a line of a redis.conf, and this file is TOML: here it is `bind = ...`",
            ),
            (
                "maxmemory 100mb\n",
                "line 1: `maxmemory ...` is a line of a redis.conf, and this file is TOML: here it is `memory.limit = ...`",
            ),
            (
                "daemonize no\n",
                "line 1: `daemonize ...` is a line of a redis.conf, and this file is TOML: there is no such setting here, or it has another name",
            ),
        ] {
            assert_eq!(error(file), format!("{expected}; {hint}"));
        }
        for (file, end) in [
            (
                "memory.limit = 1GiB # all",
                "`memory.limit = 1GiB`: text is written in quotes, `memory.limit = \"1GiB\"`",
            ),
            ("protected_mode = no", "`protected_mode = \"no\"`, and a switch is true or false"),
            ("port = 1\nport = 2", "duplicate key: `port`"),
            (
                "requirepass = hunter2",
                "`requirepass = ...`: text is written in quotes, `requirepass = \"...\"`",
            ),
            (
                "[resource.x]\npassword = hunter2",
                "`password = ...`: text is written in quotes, `password = \"...\"`",
            ),
        ] {
            assert!(error(file).ends_with(end), "{}", error(file));
        }
        assert_eq!(error("port = 70000"), "line 1: port = 70000: expected a whole number from 0 to 65535");
        assert_eq!(error("connections.max = 0"), "line 1: connections.max = 0: the least is 1");
        assert_eq!(error("port = 1.5"), "line 1: port: expected a text, a whole number, true or false");
        assert!(error("a = 1\nport = = 2").starts_with("line 2: "));
        assert!(error("port = 1\nport = 2").starts_with("line 2: duplicate key"));
    }

    /// What was new went to the top under its dotted name, beside the `[connections]` further down: the next start refused the
    /// file, "duplicate key".
    #[test]
    fn a_new_value_is_added_to_the_table_that_is_there() {
        for file in [
            "port = 7000\n[connections] # mine\nmax = 5\n[log]\nlevel = 'warn'\n",
            "[log]\n[ connections ]",
            "connections = { max = 5 }\n",
            "connections = {}\n",
            "connections.max = 5\n",
            "[\"connections\"]\r\nmax = 5\r\n",
            "",
        ] {
            let mut settings = Settings::default();
            settings.apply_toml(file).expect("the file is right");
            for (name, value) in
                [("connections.idle_timeout", "7s"), ("connections.input_max", "1GiB"), ("log.json", "true")]
            {
                settings.set(name, value).expect("set");
            }
            let rewritten = settings.rewritten(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            let mut again = Settings::default();
            again.apply_toml(&rewritten).unwrap_or_else(|error| panic!("{rewritten}: {error}"));
            assert_eq!(again, settings, "{rewritten}");
        }
    }

    #[test]
    fn a_rewritten_file_keeps_its_comments_and_says_what_is_set() {
        let file = "# mine\nport = 7000 # keep\n[connections]\nmax = 5 # five\n";
        let mut settings = Settings::default();
        settings.apply_toml(file).expect("the file is right");
        settings.set("connections.max", "7").expect("set");
        settings.set("memory.limit", "64MiB").expect("set");
        let rewritten = settings.rewritten(file).expect("rewritten");
        assert!(
            rewritten.contains("# mine\nport = 7000 # keep\n[connections]\nmax = 7 # five\n"),
            "{rewritten}"
        );
        let mut again = Settings::default();
        again.apply_toml(&rewritten).expect("what was rewritten is right");
        assert_eq!(again, settings);
        assert_eq!(settings.rewritten(&rewritten).as_deref(), Ok(rewritten.as_str()));
    }
}
