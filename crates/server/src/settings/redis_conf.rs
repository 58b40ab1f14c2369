//! A redis.conf as settings: a line is `NAME VALUE...`, comments begin with `#`, words may stand in quotes.
//!
//! Names that are settings here, or stand for one, are set. What Redis does and this server does not is refused where somebody would rely on it (replicas, clusters,
//! modules, renamed commands), and told to whoever starts the server where it means nothing (snapshots, files of the log).

use std::collections::HashSet;

use super::compat;
use super::error::WrongValue;
use super::file::FileError;
use super::redis::Alias;
use super::table::Row;
use super::values::Settings;

/// Whether `text` is a redis.conf and not TOML: its first line with anything on it has a word, a blank, and no sign of TOML.
pub(super) fn is_one(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let first = lines.into_iter().find(|line| !line.is_empty() && !line.starts_with('#'));
    first.and_then(|line| line.split_once(char::is_whitespace)).is_some_and(|(name, rest)| {
        !name.contains(['=', '[', '"', '\'']) && !rest.trim_start().starts_with('=')
    })
}

/// Takes what `text` says over into `settings`; what of it means nothing here, a line each.
///
/// # Errors
/// The first line that is wrong, or that says what this server does not do.
pub(super) fn apply(settings: &mut Settings, text: &str) -> Result<Vec<String>, FileError> {
    let (mut told, mut names) = (Vec::new(), HashSet::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |message: String| FileError { line: index + 1, message };
        let words =
            words(line).ok_or_else(|| at("a quote is not closed, or has letters behind it".to_owned()))?;
        let name = words[0].to_ascii_lowercase();
        let set = set(settings, &name, &words[1..]).map_err(|why| at(format!("{name}: {why}")))?;
        if let Some(why) = set {
            told.push(format!("line {}: {name}: {why}", index + 1));
        }
        names.insert(name);
    }
    if names.contains("tls-port") && !names.contains("tls-auth-clients") {
        // as Redis does where the file does not say
        let set = set_row(settings, "tls.client_certificates", "yes");
        set.map_err(|why| FileError { line: 1, message: format!("tls-auth-clients: {why}") })?;
    }
    Ok(told)
}

/// Sets one name; why it means nothing here, if it does not.
fn set(settings: &mut Settings, name: &str, values: &[String]) -> Result<Option<String>, WrongValue> {
    if values.is_empty() {
        return Err("there is no value".into());
    }
    let value = values.join(" ");
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err((*why).into());
    }
    match name {
        "replicaof" | "slaveof" if !value.eq_ignore_ascii_case("no one") => {
            return Err(
                "this server has no replication; `evenkeel import redis://HOST` copies and follows one"
                    .into(),
            );
        }
        "cluster-enabled" if value.eq_ignore_ascii_case("yes") => {
            return Err("this server is no node of a cluster".into());
        }
        "appendonly" if value.eq_ignore_ascii_case("no") => {
            return Ok(Some("every write is logged all the same".to_owned()));
        }
        "bind" => return set_row(settings, "bind", &bound(&value)),
        _ => {}
    }
    if let Some(row) = Row::find(name) {
        return set_row(settings, row.key, &value);
    }
    if let Some(alias) = Alias::find(name) {
        return match (alias.key, alias.translated(&value)) {
            (Some(key), text) => {
                set_row(settings, key, &text.map_err(|error| WrongValue::from(error.to_string()))?)
            }
            (None, Ok(_)) => Ok(None),
            (None, Err(_)) => {
                Ok(Some(format!("has no effect: here it is always '{}'", alias.text(settings))))
            }
        };
    }
    let known = compat::Row::find(name)
        .ok_or_else(|| WrongValue::from("no setting of Redis that this server knows".to_owned()))?;
    known.set(&mut settings.accepted, &value)?;
    Ok(None)
}

fn set_row(settings: &mut Settings, key: &str, text: &str) -> Result<Option<String>, WrongValue> {
    let row = Row::find(key).expect("a name of the table");
    row.set(settings, text).map_err(|error| WrongValue::from(error.to_string()))?;
    Ok(None)
}

/// Addresses as Redis writes them: `*` is any, and one behind `-` need not be there.
fn bound(value: &str) -> String {
    let address = |word: &str| match word.trim_start_matches('-') {
        "*" => "0.0.0.0".to_owned(),
        "::*" => "::".to_owned(),
        address => address.to_owned(),
    };
    value.split_whitespace().map(address).collect::<Vec<_>>().join(" ")
}

/// The words of a line, those in quotes without them; `None` if a quote is not closed, or something follows one at once.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let word;
        (word, rest) = match first {
            '"' | '\'' => quoted(&rest[1..], first)?,
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
            return None;
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Some(words)
}

/// What stands before the closing `quote`, with escapes read, and what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut word, mut chars) = (Vec::new(), text.char_indices());
    while let Some((at, letter)) = chars.next() {
        if letter == quote {
            return Some((String::from_utf8(word).ok()?, &text[at + 1..]));
        }
        let letter = match letter {
            '\\' if quote == '"' => match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'b' => '\u{8}',
                'a' => '\u{7}',
                'x' => {
                    let digits = text.get(at + 2..at + 4)?;
                    word.push(u8::from_str_radix(digits, 16).ok()?);
                    chars.next();
                    chars.next();
                    continue;
                }
                other => other,
            },
            '\\' if text[at + 1..].starts_with('\'') => chars.next()?.1,
            letter => letter,
        };
        word.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
    None
}

/// Names that somebody relies on, and that are refused.
const REFUSED: &[(&str, &str)] = &[
    ("include", "put the lines of that file here: one file is read"),
    ("loadmodule", "there are no modules"),
    ("rename-command", "commands have their names: forbid them by rules of users (acl.file)"),
    ("tls-ciphers", "ciphers are not chosen here: those of rustls are used"),
    ("tls-ciphersuites", "ciphers are not chosen here: those of rustls are used"),
    ("tls-ca-cert-dir", "name one file with all of them: tls-ca-cert-file PATH"),
    ("tls-key-file-pass", "keys are not encrypted here: protect the file"),
    ("user", "put the lines of users into a file of their own, and name it: aclfile PATH"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_debian_installs_is_read() {
        let text = "# Redis configuration file example.\nbind 127.0.0.1 -::1\nprotected-mode yes\nport 6380\ntcp-backlog 511\ntimeout 0\n\
                    daemonize yes\nsupervised auto\npidfile /run/redis/redis-server.pid\nloglevel notice\nlogfile \"/var/log/x.log\"\n\
                    databases 16\nalways-show-logo no\nsave 900 1\nsave 300 10\nrdbcompression yes\ndir /var/lib/x\nappendonly no\n\
                    appendfsync everysec\nrequirepass \"a \\\"b\\\" \\x41\"\nmaxmemory 2gb\nmaxmemory-policy allkeys-lru\n\
                    client-output-buffer-limit pubsub 32mb 8mb 60\nslowlog-log-slower-than 10000\nlist-max-listpack-size -2\n";
        assert!(is_one(text));
        let mut settings = Settings::default();
        let told = apply(&mut settings, text).expect("all is known");
        assert_eq!((settings.port, settings.requirepass.reveal()), (6_380, Some("a \"b\" A")));
        assert_eq!(settings.bind.len(), 2);
        assert_eq!(settings.dir, std::path::Path::new("/var/lib/x"));
        let names: Vec<_> = told.iter().filter_map(|line| line.split(": ").nth(1)).collect();
        assert_eq!(names, ["daemonize", "supervised", "pidfile", "logfile", "save", "save", "appendonly"]);
    }

    #[test]
    fn line_that_somebody_relies_on_is_refused_with_its_number() {
        for (text, why) in [
            ("port 1\nreplicaof 10.0.0.1 6379", "line 2: replicaof: this server has no replication"),
            ("rename-command FLUSHALL \"\"", "line 1: rename-command: commands have their names"),
            ("cluster-enabled yes", "line 1: cluster-enabled: this server is no node"),
            ("port", "line 1: port: there is no value"),
            ("port x", "line 1: port: port = x"),
            ("requirepass \"a", "line 1: a quote is not closed"),
            ("requirepass \"a\"b", "line 1: a quote is not closed"),
            ("tls-ciphers HIGH", "line 1: tls-ciphers: ciphers are not chosen here"),
            ("nosuch 1", "line 1: nosuch: no setting of Redis that this server knows"),
        ] {
            let error = apply(&mut Settings::default(), text).expect_err(text).to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }

    /// The file opened the server to clients without a certificate.
    #[test]
    fn certificates_are_asked_for_where_redis_asks_for_them() {
        for (text, expected) in
            [("tls-port 1", "yes"), ("tls-port 1\ntls-auth-clients no", "no"), ("port 1", "no")]
        {
            let mut settings = Settings::default();
            apply(&mut settings, text).expect("all is known");
            let row = Row::find("tls.client_certificates").expect("a row");
            assert_eq!(row.text(&settings), expected, "{text}");
        }
    }

    #[test]
    fn toml_is_no_redis_conf() {
        for text in
            ["", "# x\n", "port = 1", "[connections]\nmax = 1", "port=1 # x", "\"port\" = 1", "x.y = 'a b'"]
        {
            assert!(!is_one(text), "{text}");
        }
        assert!(is_one("\n# x\nrequirepass a=b"));
    }
}
