//! Redis's names for settings, where they mean the same: tools ask for them by CONFIG GET and change them by CONFIG SET.
//!
//! An alias is read and written in Redis's own form (`maxmemory` in bytes, `timeout` in seconds). Names with a fixed
//! answer say how this server behaves; setting them to that answer is accepted, anything else refused.

use tls::Versions;

use super::error::{SettingError, WrongValue};
use super::kinds::{Durability, Engine, Kind, Size};
use super::table::shown;
use super::{LogLevel, MemoryLimit, Settings, Threshold};

/// A name that Redis uses.
pub(super) struct Alias {
    pub(super) name: &'static str,
    /// The row that it stands for; `None` where the answer is fixed.
    pub(super) key: Option<&'static str>,
    write: fn(&Settings) -> String,
    /// Redis's form turned into ours; the error says what it would be.
    read: fn(&str) -> Result<String, WrongValue>,
}

impl Alias {
    pub(super) fn find(name: &str) -> Option<&'static Alias> {
        ALIASES.iter().find(|alias| alias.name.eq_ignore_ascii_case(name))
    }

    /// The value in our form.
    ///
    /// # Errors
    /// [`SettingError::Value`].
    pub(super) fn translated(&self, text: &str) -> Result<String, SettingError> {
        (self.read)(text)
            .map_err(|why| SettingError::Value(format!("{} = {}: {why}", self.name, shown(text))))
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

#[expect(clippy::unnecessary_wraps, reason = "the other forms can be wrong")]
fn same(text: &str) -> Result<String, WrongValue> {
    Ok(text.to_owned())
}

fn bytes(text: &str) -> Result<String, WrongValue> {
    Size::read(text)
        .map(|size| size.write())
        .map_err(|_| "expected a size such as 100mb, or 0 for no limit".into())
}

fn seconds(text: &str) -> Result<String, WrongValue> {
    text.parse::<u32>()
        .map(|seconds| format!("{seconds}s"))
        .map_err(|_| "expected seconds, or 0 for never".into())
}

fn milliseconds(text: &str) -> Result<String, WrongValue> {
    text.parse::<u32>()
        .map(|millis| format!("{millis}ms"))
        .map_err(|_| "expected milliseconds, or 0 for off".into())
}

/// Microseconds; -1 is off.
fn microseconds(text: &str) -> Result<String, WrongValue> {
    match (text, text.parse::<u64>()) {
        ("-1", _) => Ok("off".to_owned()),
        (_, Ok(micros)) => Ok(format!("{micros}us")),
        _ => Err("expected microseconds, or -1 for off".into()),
    }
}

/// `TLSv1.2 TLSv1.3`; empty is both.
fn protocols(text: &str) -> Result<String, WrongValue> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let known = |word: &str| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Some("1.2"),
        "tlsv1.3" => Some("1.3"),
        _ => None,
    };
    let versions: Option<Vec<_>> = words.map(known).collect();
    match versions {
        Some(none) if none.is_empty() => Ok("1.2 1.3".to_owned()),
        Some(versions) => Ok(versions.join(" ")),
        None => Err("expected TLSv1.2, TLSv1.3 or both".into()),
    }
}

/// One of Redis's words turned into ours.
fn word(text: &str, words: &[(&str, &str)]) -> Result<String, WrongValue> {
    let known = words.iter().find(|(theirs, _)| text.eq_ignore_ascii_case(theirs));
    let all = || words.iter().map(|(theirs, _)| *theirs).collect::<Vec<_>>().join(", ");
    known.map(|(_, ours)| (*ours).to_owned()).ok_or_else(|| format!("expected one of {}", all()).into())
}

/// Only the fixed answer is accepted.
macro_rules! fixed {
    ($name:literal, $answer:literal) => {
        Alias {
            name: $name,
            key: None,
            write: |_| $answer.to_owned(),
            read: |text| {
                let right = text.eq_ignore_ascii_case($answer);
                if right {
                    Ok($answer.to_owned())
                } else {
                    Err(format!("here it is always {}", shown($answer)).into())
                }
            },
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
    }, bytes),
    alias!("notify-keyspace-events" => "notify.keyspace_events", |s| s.notify_keyspace_events.write(), same),
    alias!("tracking-table-max-keys" => "tracking.keys_max", |s| s.tracking_keys_max.to_string(), same),
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
    }.to_owned(), |text| word(text, LOG_LEVELS)),
    alias!("slowlog-log-slower-than" => "slowlog.threshold", |s| match s.slowlog_threshold {
        Threshold::Off => "-1".to_owned(),
        Threshold::From(time) => time.as_micros().to_string(),
    }, microseconds),
    alias!("slowlog-max-len" => "slowlog.length_max", |s| s.slowlog_length_max.to_string(), same),
    alias!("latency-monitor-threshold" => "latency.threshold", |s| s.latency_threshold.as_millis().to_string(), milliseconds),
    alias!("busy-reply-threshold" => "script.time_limit", |s| s.script_time_limit.as_millis().to_string(), milliseconds),
    alias!("lua-time-limit" => "script.time_limit", |s| s.script_time_limit.as_millis().to_string(), milliseconds),
    alias!("latency-tracking" => "metrics.latency", |s| yes_no(s.metrics_latency), same),
    alias!("latency-tracking-info-percentiles" => "metrics.percentiles", |s| s.metrics_percentiles.write(), same),
    alias!("appendonly" => "engine", |s| yes_no(s.engine == Engine::Log), |text| {
        if text.eq_ignore_ascii_case("yes") { Ok("log".to_owned()) } else { Err("expected yes: engine decides at the start".into()) }
    }),
    alias!("appendfsync" => "durability", |s| match s.durability {
        Durability::Always => "always".to_owned(),
        Durability::Interval(_) => "everysec".to_owned(),
        Durability::Never => "no".to_owned(),
    }, |text| word(text, &[("always", "always"), ("everysec", "1s"), ("no", "never")])),
    alias!("tls-port" => "tls.port", |s| s.tls_port.to_string(), same),
    alias!("tls-cert-file" => "tls.certificate_file", |s| s.tls_certificate_file.write(), same),
    alias!("tls-key-file" => "tls.key_file", |s| s.tls_key_file.write(), same),
    alias!("tls-ca-cert-file" => "tls.ca_file", |s| s.tls_ca_file.write(), same),
    alias!("tls-auth-clients" => "tls.client_certificates", |s| s.tls_client_certificates.write(), same),
    alias!("tls-protocols" => "tls.protocols", |s| match s.tls_protocols {
        Versions::Both => "",
        Versions::Tls12 => "TLSv1.2",
        Versions::Tls13 => "TLSv1.3",
    }.to_owned(), protocols),
    alias!("tls-session-caching" => "tls.resumption", |s| yes_no(s.tls_resumption), same),
    fixed!("save", ""),
    alias!("maxmemory-policy" => "memory.policy", |s| s.memory_policy.to_string(), |text| Ok(text.to_ascii_lowercase())),
    fixed!("lfu-log-factor", "10"),
    fixed!("lfu-decay-time", "1"),
    alias!("acl-pubsub-default" => "acl.all_channels", |s| CHANNELS[usize::from(s.acl_all_channels)].0.to_owned(), |text| word(text, CHANNELS)),
    alias!("aclfile" => "acl.file", |s| s.acl_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default(), same),
    alias!("acllog-max-len" => "acl.log_length_max", |s| s.acl_log_length_max.to_string(), same),
    fixed!("always-show-logo", "no"),
    fixed!("appenddirname", ""),
    fixed!("appendfilename", ""),
    fixed!("bind-source-addr", ""),
    fixed!("cluster-announce-ip", ""),
    fixed!("cluster-port", "0"),
    fixed!("enable-debug-command", "yes"),
    fixed!("enable-module-command", "no"),
    fixed!("enable-protected-configs", "no"),
    fixed!("masterauth", ""),
    fixed!("masteruser", ""),
    fixed!("min-replicas-max-lag", "10"),
    fixed!("min-replicas-to-write", "0"),
    fixed!("min-slaves-max-lag", "10"),
    fixed!("min-slaves-to-write", "0"),
    fixed!("pidfile", ""),
    fixed!("rdbchecksum", "yes"),
    fixed!("replica-announce-ip", ""),
    fixed!("replica-announce-port", "0"),
    fixed!("replicaof", ""),
    fixed!("slaveof", ""),
    fixed!("supervised", "no"),
    fixed!("syslog-enabled", "no"),
    fixed!("tls-ca-cert-dir", ""),
    fixed!("cluster-announce-bus-port", "0"),
    fixed!("cluster-announce-port", "0"),
    fixed!("cluster-announce-tls-port", "0"),
    fixed!("cluster-config-file", ""),
    fixed!("slave-announce-ip", ""),
    fixed!("slave-announce-port", "0"),
    fixed!("socket-mark-id", "0"),
    fixed!("tls-ciphers", ""),
    fixed!("tls-ciphersuites", ""),
    fixed!("tls-client-cert-file", ""),
    fixed!("tls-client-key-file", ""),
    fixed!("tls-client-key-file-pass", ""),
    fixed!("tls-cluster", "no"),
    fixed!("tls-dh-params-file", ""),
    fixed!("tls-key-file-pass", ""),
    fixed!("tls-replication", "no"),
    fixed!("unixsocketperm", "0"),
    fixed!("cluster-enabled", "no"),
    fixed!("activedefrag", "no"),
    fixed!("logfile", ""),
    fixed!("daemonize", "no"),
    fixed!("dbfilename", ""),
];

/// Redis's levels and ours.
const LOG_LEVELS: &[(&str, &str)] =
    &[("debug", "trace"), ("verbose", "debug"), ("notice", "info"), ("warning", "warn"), ("nothing", "warn")];

/// What new users may listen to: by [`super::Settings::acl_all_channels`].
const CHANNELS: &[(&str, &str)] = &[("resetchannels", "false"), ("allchannels", "true")];

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
