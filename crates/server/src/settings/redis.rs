//! Redis's names for settings, where they mean the same: tools ask for them by CONFIG GET and change them by CONFIG SET.
//!
//! An alias is read and written in Redis's own form (`maxmemory` in bytes, `timeout` in seconds). Names with a fixed
//! answer say how this server behaves; setting them to that answer is accepted, anything else refused.

use super::kinds::{Durability, Engine, Kind, Size};
use super::{LogLevel, MemoryLimit, Settings, Threshold};
use std::time::Duration;

/// A name that Redis uses.
pub(super) struct Alias {
    pub(super) name: &'static str,
    /// The row that it stands for; `None` where the answer is fixed.
    pub(super) key: Option<&'static str>,
    write: fn(&Settings) -> String,
    /// Redis's form turned into ours.
    read: fn(&str) -> Option<String>,
}

impl Alias {
    pub(super) fn find(name: &str) -> Option<&'static Alias> {
        ALIASES.iter().find(|alias| alias.name.eq_ignore_ascii_case(name))
    }

    /// The value in our form.
    pub(super) fn translated(&self, text: &str) -> Result<String, String> {
        (self.read)(text).ok_or_else(|| format!("'{text}' is not accepted here"))
    }

    pub(super) fn text(&self, settings: &Settings) -> String {
        (self.write)(settings)
    }
}

/// `own` and the aliases that `matches`.
pub(super) fn listed(
    settings: &Settings,
    own: Vec<(&'static str, String)>,
    mut matches: impl FnMut(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let mut all = own;
    for alias in ALIASES {
        if matches(alias.name) && !all.iter().any(|(name, _)| *name == alias.name) {
            all.push((alias.name, alias.text(settings)));
        }
    }
    all
}

fn same(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn seconds(text: &str) -> Option<String> {
    text.parse::<u32>().ok().map(|seconds| format!("{seconds}s"))
}

fn milliseconds(text: &str) -> Option<String> {
    text.parse::<u32>().ok().map(|millis| format!("{millis}ms"))
}

/// Microseconds; -1 is off.
fn microseconds(text: &str) -> Option<String> {
    match text.parse::<i64>().ok()? {
        -1 => Some("off".to_owned()),
        micros => u64::try_from(micros).ok().map(|micros| format!("{micros}us")),
    }
}

/// Only the fixed answer is accepted.
macro_rules! fixed {
    ($name:literal, $answer:literal) => {
        Alias {
            name: $name,
            key: None,
            write: |_| $answer.to_owned(),
            read: |text| text.eq_ignore_ascii_case($answer).then(|| $answer.to_owned()),
        }
    };
}

macro_rules! alias {
    ($name:literal => $key:literal, $write:expr, $read:expr) => {
        Alias { name: $name, key: Some($key), write: $write, read: $read }
    };
}

static ALIASES: &[Alias] = &[
    alias!("maxmemory" => "memory.limit", |s| match s.memory_limit {
        MemoryLimit::Auto => "0".to_owned(),
        MemoryLimit::Bytes(bytes) => bytes.to_string(),
    }, |text| Size::read(text).ok().map(|size| size.write())),
    alias!("maxclients" => "connections.max", |s| s.connections_max.to_string(), same),
    alias!("timeout" => "connections.idle_timeout", |s| s.connections_idle_timeout.as_secs().to_string(), seconds),
    alias!("client-query-buffer-limit" => "connections.input_max", |s| s.connections_input_max.0.to_string(), same),
    alias!("proto-max-bulk-len" => "value.max", |s| s.value_max.0.to_string(), same),
    alias!("io-threads" => "loops", |s| s.loops_resolved().to_string(), same),
    alias!("protected-mode" => "protected_mode", |s| yes_no(s.protected_mode), same),
    alias!("loglevel" => "log.level", |s| match s.log_level {
        LogLevel::Error | LogLevel::Warn => "warning",
        LogLevel::Info => "notice",
        LogLevel::Debug => "verbose",
        LogLevel::Trace => "debug",
    }.to_owned(), |text| match text.to_ascii_lowercase().as_str() {
        "warning" | "nothing" => Some("warn".to_owned()),
        "notice" => Some("info".to_owned()),
        "verbose" => Some("debug".to_owned()),
        "debug" => Some("trace".to_owned()),
        _ => None,
    }),
    alias!("slowlog-log-slower-than" => "slowlog.threshold", |s| match s.slowlog_threshold {
        Threshold::Off => "-1".to_owned(),
        Threshold::From(time) => time.as_micros().to_string(),
    }, microseconds),
    alias!("slowlog-max-len" => "slowlog.length_max", |s| s.slowlog_length_max.to_string(), same),
    alias!("latency-monitor-threshold" => "latency.threshold", |s| s.latency_threshold.as_millis().to_string(), milliseconds),
    alias!("appendonly" => "engine", |s| yes_no(s.engine == Engine::Log), |text| match text.to_ascii_lowercase().as_str() {
        "yes" => Some("log".to_owned()),
        _ => None,
    }),
    alias!("appendfsync" => "durability", |s| match s.durability {
        Durability::Always => "always".to_owned(),
        Durability::Interval(_) => "everysec".to_owned(),
        Durability::Never => "no".to_owned(),
    }, |text| match text.to_ascii_lowercase().as_str() {
        "always" => Some("always".to_owned()),
        "everysec" => Some(Duration::from_secs(1).write()),
        "no" => Some("never".to_owned()),
        _ => None,
    }),
    fixed!("save", ""),
    fixed!("maxmemory-policy", "noeviction"),
    fixed!("notify-keyspace-events", ""),
    fixed!("cluster-enabled", "no"),
    fixed!("activedefrag", "no"),
    fixed!("logfile", ""),
    fixed!("daemonize", "no"),
    fixed!("dbfilename", ""),
    fixed!("latency-tracking", "yes"),
    fixed!("latency-tracking-info-percentiles", "50 99 99.9"),
];

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::table::Row;
    use super::*;

    #[test]
    fn every_alias_stands_for_a_row_and_takes_its_own_answer() {
        let settings = Settings::default();
        for alias in ALIASES {
            let answer = alias.text(&settings);
            let ours = alias.translated(&answer).expect(alias.name);
            if let Some(key) = alias.key {
                let row = Row::find(key).expect(alias.name);
                row.set(&mut settings.clone(), &ours).expect(alias.name);
            }
        }
    }

    #[test]
    fn names_match_in_both_worlds() {
        let settings = Settings::default();
        let listed =
            settings.listed(|name| name == "maxclients" || name == "connections.max" || name == "port");
        let names: Vec<_> = listed.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["port", "connections.max", "maxclients"]);
        assert_eq!(listed[1].1, "10000");
    }
}
