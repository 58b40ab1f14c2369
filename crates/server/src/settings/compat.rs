//! Names of Redis that mean nothing here: tools and libraries set them and ask for them all the same.
//!
//! CONFIG SET takes what Redis would take, CONFIG GET tells it again, and nothing else happens; only the sizes of small collections
//! decide what OBJECT ENCODING answers. What was set is gone at the stop: CONFIG REWRITE writes settings of this server. Names that
//! would promise something that this server does not do have a fixed answer (`redis`).
//!
//! Out of scope: names that stand for a setting (`redis`).
//! Source: `CONFIG GET *` of Redis 7.0, 7.2 and 8.0.

use std::collections::BTreeMap;

use super::error::WrongValue;
use super::kinds::{Kind, Size};

/// What was set, where it differs from Redis's default.
pub(super) type Accepted = BTreeMap<&'static str, String>;

/// A name that is accepted.
pub(super) struct Row {
    pub(super) name: &'static str,
    default: &'static str,
    takes: Takes,
}

/// What Redis takes for it.
enum Takes {
    YesNo,
    /// An integer from the first to the second.
    Integer(i64, i64),
    /// A size, such as 64mb.
    Bytes,
    /// One of these words.
    Word(&'static [&'static str]),
    Text,
}

impl Row {
    pub(super) fn find(name: &str) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
    }

    /// The name under which the value is kept: two names of the same value have one.
    pub(super) fn key(&self) -> &'static str {
        SYNONYMS.iter().find(|(former, _)| *former == self.name).map_or(self.name, |(_, current)| current)
    }

    /// As CONFIG GET tells it.
    pub(super) fn text(&self, accepted: &Accepted) -> String {
        accepted.get(self.key()).map_or(self.default, String::as_str).to_owned()
    }

    /// Keeps `text`.
    ///
    /// # Errors
    /// What would be taken.
    pub(super) fn set(&self, accepted: &mut Accepted, text: &str) -> Result<(), WrongValue> {
        let text = match &self.takes {
            YesNo => word(text, &["yes", "no"])?,
            Word(words) => word(text, words)?,
            Integer(least, most) => match text.parse::<i64>() {
                Ok(number) if (*least..=*most).contains(&number) => number.to_string(),
                _ => return Err(format!("argument must be between {least} and {most} inclusive").into()),
            },
            Bytes => match Size::read(text) {
                Ok(size) if i64::try_from(size.0).is_ok() => size.0.to_string(),
                _ => return Err("argument must be a memory value".into()),
            },
            Text if text.len() > TEXT_BYTES_MAX => {
                return Err(format!("argument must have at most {TEXT_BYTES_MAX} B").into());
            }
            Text => text.to_owned(),
        };
        if text == self.default {
            accepted.remove(self.key());
        } else {
            accepted.insert(self.key(), text);
        }
        Ok(())
    }
}

/// The names and values that `matches`.
pub(super) fn listed<'a>(
    accepted: &'a Accepted,
    mut matches: impl FnMut(&str) -> bool + 'a,
) -> impl Iterator<Item = (&'static str, String)> + 'a {
    ROWS.iter().filter(move |row| matches(row.name)).map(|row| (row.name, row.text(accepted)))
}

/// The number that `name` has.
///
/// # Panics
/// If `name` is no row whose value is a number.
pub(super) fn number(accepted: &Accepted, name: &str) -> i64 {
    let text = Row::find(name).expect("a row").text(accepted);
    text.parse().expect("checked when it was set")
}

fn word(text: &str, words: &[&str]) -> Result<String, WrongValue> {
    let known = words.iter().find(|word| text.eq_ignore_ascii_case(word));
    known.map(|word| (*word).to_owned()).ok_or_else(|| match words {
        ["yes", "no"] => "argument must be 'yes' or 'no'".into(),
        _ => format!("argument(s) must be one of the following: {}", words.join(", ")).into(),
    })
}

/// Former names, and those that Redis has now.
const SYNONYMS: &[(&str, &str)] = &[
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor"),
    ("slave-priority", "replica-priority"),
    ("slave-read-only", "replica-read-only"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
];

macro_rules! rows {
    ($($name:literal = $default:literal, $takes:expr;)*) => {
        &[$(Row { name: $name, default: $default, takes: $takes }),*]
    };
}

use Takes::{Bytes, Integer, Text, Word, YesNo};

/// Of a text that is kept for nobody.
const TEXT_BYTES_MAX: usize = 1 << 10;
const COUNT: Takes = Integer(0, i64::MAX);
const INT: Takes = Integer(0, i32::MAX as i64);

static ROWS: &[Row] = rows! {
    "active-defrag-cycle-max" = "25", Integer(1, 99);
    "active-defrag-cycle-min" = "1", Integer(1, 99);
    "active-defrag-ignore-bytes" = "104857600", Bytes;
    "active-defrag-max-scan-fields" = "1000", Integer(1, i64::MAX);
    "active-defrag-threshold-lower" = "10", Integer(0, 1000);
    "active-defrag-threshold-upper" = "100", Integer(0, 1000);
    "active-expire-effort" = "1", Integer(1, 10);
    "activerehashing" = "yes", YesNo;
    "aof-disable-auto-gc" = "no", YesNo;
    "aof-load-truncated" = "yes", YesNo;
    "aof-rewrite-incremental-fsync" = "yes", YesNo;
    "aof-timestamp-enabled" = "no", YesNo;
    "aof-use-rdb-preamble" = "yes", YesNo;
    "aof_rewrite_cpulist" = "", Text;
    "auto-aof-rewrite-min-size" = "67108864", Bytes;
    "auto-aof-rewrite-percentage" = "100", INT;
    "bgsave_cpulist" = "", Text;
    "bio_cpulist" = "", Text;
    "client-output-buffer-limit" = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Text;
    "cluster-allow-pubsubshard-when-down" = "yes", YesNo;
    "cluster-allow-reads-when-down" = "no", YesNo;
    "cluster-allow-replica-migration" = "yes", YesNo;
    "cluster-announce-hostname" = "", Text;
    "cluster-link-sendbuf-limit" = "0", Bytes;
    "cluster-migration-barrier" = "1", INT;
    "cluster-node-timeout" = "15000", COUNT;
    "cluster-preferred-endpoint-type" = "ip", Word(&["ip", "hostname", "unknown-endpoint"]);
    "cluster-replica-no-failover" = "no", YesNo;
    "cluster-replica-validity-factor" = "10", INT;
    "cluster-require-full-coverage" = "yes", YesNo;
    "cluster-slave-no-failover" = "no", YesNo;
    "cluster-slave-validity-factor" = "10", INT;
    "crash-log-enabled" = "yes", YesNo;
    "crash-memcheck-enabled" = "yes", YesNo;
    "disable-thp" = "yes", YesNo;
    "dynamic-hz" = "yes", YesNo;
    "hash-max-listpack-entries" = "512", COUNT;
    "hash-max-listpack-value" = "64", Bytes;
    "hash-max-ziplist-entries" = "512", COUNT;
    "hash-max-ziplist-value" = "64", Bytes;
    "hide-user-data-from-log" = "no", YesNo;
    "hll-sparse-max-bytes" = "3000", Bytes;
    "hz" = "10", Integer(1, 500);
    "ignore-warnings" = "", Text;
    "io-threads-do-reads" = "no", YesNo;
    "jemalloc-bg-thread" = "yes", YesNo;
    "lazyfree-lazy-eviction" = "no", YesNo;
    "lazyfree-lazy-expire" = "no", YesNo;
    "lazyfree-lazy-server-del" = "no", YesNo;
    "lazyfree-lazy-user-del" = "no", YesNo;
    "lazyfree-lazy-user-flush" = "no", YesNo;
    "list-compress-depth" = "0", INT;
    "list-max-listpack-size" = "-2", Integer(-5, i32::MAX as i64);
    "list-max-ziplist-size" = "-2", Integer(-5, i32::MAX as i64);
    "locale-collate" = "", Text;
    "max-new-connections-per-cycle" = "10", Integer(1, 1000);
    "max-new-tls-connections-per-cycle" = "1", Integer(1, 1000);
    "maxmemory-clients" = "0", Text;
    "maxmemory-eviction-tenacity" = "10", Integer(0, 100);
    "maxmemory-samples" = "5", Integer(1, 64);
    "no-appendfsync-on-rewrite" = "no", YesNo;
    "oom-score-adj" = "no", Word(&["no", "yes", "relative", "absolute"]);
    "oom-score-adj-values" = "0 200 800", Text;
    "proc-title-template" = "{title} {listen-addr} {server-mode}", Text;
    "propagation-error-behavior" = "ignore", Word(&["ignore", "panic", "panic-on-replicas"]);
    "rdb-del-sync-files" = "no", YesNo;
    "rdb-save-incremental-fsync" = "yes", YesNo;
    "rdbcompression" = "yes", YesNo;
    "repl-backlog-size" = "1048576", Bytes;
    "repl-backlog-ttl" = "3600", COUNT;
    "repl-disable-tcp-nodelay" = "no", YesNo;
    "repl-diskless-load" = "disabled", Word(&["disabled", "on-empty-db", "swapdb", "flush-before-load"]);
    "repl-diskless-sync" = "yes", YesNo;
    "repl-diskless-sync-delay" = "5", INT;
    "repl-diskless-sync-max-replicas" = "0", INT;
    "repl-ping-replica-period" = "10", Integer(1, i32::MAX as i64);
    "repl-ping-slave-period" = "10", Integer(1, i32::MAX as i64);
    "repl-timeout" = "60", Integer(1, i32::MAX as i64);
    "replica-announced" = "yes", YesNo;
    "replica-full-sync-buffer-limit" = "268435456", Bytes;
    "replica-ignore-disk-write-errors" = "no", YesNo;
    "replica-ignore-maxmemory" = "yes", YesNo;
    "replica-lazy-flush" = "no", YesNo;
    "replica-priority" = "100", INT;
    "replica-read-only" = "yes", YesNo;
    "replica-serve-stale-data" = "yes", YesNo;
    "sanitize-dump-payload" = "no", Word(&["no", "yes", "clients"]);
    "server_cpulist" = "", Text;
    "set-max-intset-entries" = "512", COUNT;
    "set-max-listpack-entries" = "128", COUNT;
    "set-max-listpack-value" = "64", Bytes;
    "set-proc-title" = "yes", YesNo;
    "shutdown-on-sigint" = "default", Text;
    "shutdown-on-sigterm" = "default", Text;
    "shutdown-timeout" = "10", INT;
    "slave-ignore-maxmemory" = "yes", YesNo;
    "slave-lazy-flush" = "no", YesNo;
    "slave-priority" = "100", INT;
    "slave-read-only" = "yes", YesNo;
    "slave-serve-stale-data" = "yes", YesNo;
    "stop-writes-on-bgsave-error" = "yes", YesNo;
    "stream-node-max-bytes" = "4096", Bytes;
    "stream-node-max-entries" = "100", COUNT;
    "syslog-facility" = "local0", Text;
    "syslog-ident" = "redis", Text;
    "tcp-backlog" = "511", INT;
    "tcp-keepalive" = "300", INT;
    "tls-prefer-server-ciphers" = "no", YesNo;
    "tls-session-cache-size" = "20480", INT;
    "tls-session-cache-timeout" = "300", INT;
    "zset-max-listpack-entries" = "128", COUNT;
    "zset-max-listpack-value" = "64", Bytes;
    "zset-max-ziplist-entries" = "128", COUNT;
    "zset-max-ziplist-value" = "64", Bytes;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_takes_its_default_and_tells_it_again() {
        let mut accepted = Accepted::default();
        for row in ROWS {
            let before = row.text(&accepted);
            assert_eq!(before, row.default, "{}", row.name);
            row.set(&mut accepted, &before).unwrap_or_else(|why| panic!("{}: {why}", row.name));
            assert_eq!(row.text(&accepted), before, "{}", row.name);
        }
    }

    #[test]
    fn names_are_there_once_and_synonyms_are_rows() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(SYNONYMS.iter().all(|(former, now)| Row::find(former).and(Row::find(now)).is_some()));
    }

    #[test]
    fn no_name_is_told_twice() {
        let mut names: Vec<_> =
            super::super::Settings::default().listed(|_| true).into_iter().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn manual_lists_every_name() {
        let manual = include_str!("../../../../docs/manual/redis.md");
        let missing: Vec<_> =
            ROWS.iter().map(|row| row.name).filter(|name| !manual.contains(&format!("`{name}`"))).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn synonyms_have_one_value() {
        let mut accepted = Accepted::default();
        let row = |name| Row::find(name).expect("a row");
        row("zset-max-ziplist-entries").set(&mut accepted, "7").expect("taken");
        assert_eq!(row("ZSET-max-listpack-entries").text(&accepted), "7");
        assert_eq!(number(&accepted, "zset-max-listpack-entries"), 7);
        row("zset-max-listpack-entries").set(&mut accepted, "128").expect("taken");
        assert!(accepted.is_empty(), "the default is nothing that was set");
    }

    #[test]
    fn what_redis_refuses_is_refused() {
        let mut accepted = Accepted::default();
        for (name, text) in [
            ("hz", "0"),
            ("hz", "x"),
            ("activerehashing", "1"),
            ("repl-diskless-load", "always"),
            ("active-defrag-ignore-bytes", "much"),
            ("list-max-listpack-size", "-6"),
        ] {
            assert!(Row::find(name).expect("a row").set(&mut accepted, text).is_err(), "{name} {text}");
        }
        assert!(accepted.is_empty());
    }
}
