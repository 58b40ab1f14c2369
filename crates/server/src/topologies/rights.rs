//! What the components of a topology may do on the server, if its definition names the keys that it uses (`evenkeel.keys`).
//!
//! Each key of a command must fit one of the patterns, or be one that the topology always has (`topology:NAME:...`). Commands of scripts are asked as others are.
//! Without keys a command must be one of connections, MULTI or messages: what looks at all keys, or at the server, is refused.

use std::sync::Arc;

use commands::command::{Command, Kind};
use commands::failure::Failure;
use commands::glob::Pattern;
use commands::words::is;
use resp::ArgsView;
use topology::Plan;

/// The rights of a topology's workers, and of all that they start.
#[derive(Debug)]
pub(crate) struct Rights {
    topology: String,
    patterns: Vec<Pattern>,
}

impl Rights {
    /// Those that a definition has, if it names its keys: on trial these under its prefix, too, which has no special letters of patterns.
    pub(crate) fn of(topology: &str, plan: &Plan, prefix: Option<&str>) -> Option<Arc<Self>> {
        let named = plan.settings().keys.as_ref()?;
        let under = prefix.into_iter().flat_map(|prefix| named.iter().map(move |it| format!("{prefix}{it}")));
        let all = named.iter().cloned().chain(under);
        let patterns = all.filter_map(|it| Pattern::new(it.as_bytes(), false).ok()).collect();
        Some(Arc::new(Self { topology: topology.to_owned(), patterns }))
    }

    /// # Errors
    /// The command is not one for this topology, or one of its keys.
    pub(crate) fn check(&self, command: &Command, args: ArgsView<'_>) -> Result<(), Failure> {
        let finds_others = matches!(command.name, "sort" | "sort_ro")
            && args.iter().skip(2).any(|word| is(word, "by") || is(word, "get"));
        let is_script = matches!(command.kind, Kind::Script(_));
        let has_keys = !command.keys.is_empty() && !finds_others;
        if !(has_keys || is_script || is_harmless(command)) {
            let (name, topology) = (command.name, &self.topology);
            return Err(Failure::Error(
                format!("NOPERM topology '{topology}' may not run '{name}': its definition has evenkeel.keys, and this command is not bound to them").into(),
            ));
        }
        if has_keys {
            self.check_size(command, args)?;
        }
        let mut refused = None;
        command.each_key(args, |index| {
            if refused.is_none() && !self.fits(args.get(index)) {
                refused = Some(index);
            }
        });
        let Some(index) = refused else { return Ok(()) };
        let mut text = format!("NOPERM topology '{}' may not use the key '", self.topology).into_bytes();
        text.extend(args.get(index).iter().take(SHOWN_BYTES_MAX));
        text.extend(b"': evenkeel.keys of its definition has no pattern for it");
        Err(Failure::Bytes(text))
    }

    /// # Errors
    /// To compare its keys would hold up the loop.
    fn check_size(&self, command: &Command, args: ArgsView<'_>) -> Result<(), Failure> {
        let (count, mut bytes) = (command.count_keys(args), 0);
        if count <= KEYS_MAX {
            command.each_key(args, |index| bytes += args.get(index).len());
        }
        let what = if count > KEYS_MAX {
            format!("{count} keys in a command, but at most {KEYS_MAX}")
        } else if bytes > KEYS_BYTES_MAX {
            format!("keys of {bytes} bytes in a command, but at most {KEYS_BYTES_MAX}")
        } else {
            return Ok(());
        };
        let topology = &self.topology;
        let why = "each is compared with evenkeel.keys of its definition";
        Err(Failure::Error(format!("NOPERM topology '{topology}' may not use {what}: {why}").into()))
    }

    /// Whether the topology may use this key.
    pub(crate) fn fits(&self, key: &[u8]) -> bool {
        let own = key.strip_prefix(b"topology:").and_then(|rest| rest.strip_prefix(self.topology.as_bytes()));
        own.is_some_and(|rest| rest.starts_with(b":"))
            || self.patterns.iter().any(|pattern| pattern.matches(key, &mut 0))
    }
}

/// Whether a command without keys concerns the connection, MULTI, messages or a script that was sent before.
fn is_harmless(command: &Command) -> bool {
    let is_of = |name: &str| command.categories.split_whitespace().any(|it| it == name);
    let is_known =
        ["connection", "transaction", "pubsub"].into_iter().any(is_of) && !command.name.starts_with("tx.");
    let is_needed = matches!(command.name, "script|load" | "script|exists" | "time" | "wait" | "waitaof");
    (is_known || is_needed) && !is_of("dangerous") && !is_of("admin")
}

/// Keys of a command that are compared, on the loop, with each pattern.
const KEYS_MAX: usize = 1_024;
/// Bytes that these may have together.
const KEYS_BYTES_MAX: usize = 64 << 10;
/// Bytes of a refused key that are shown.
const SHOWN_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use resp::Args;
    use topology::definition::{Component, Settings, Topology};

    use super::*;
    use crate::table::commands;

    fn check(keys: &[&str], words: &str) -> Result<(), String> {
        check_on_trial(None, keys, words)
    }

    fn check_on_trial(prefix: Option<&str>, keys: &[&str], words: &str) -> Result<(), String> {
        let keys = Some(keys.iter().map(ToString::to_string).collect());
        let settings = Settings { keys, ..Settings::default() };
        let components = vec![Component::spout("s", Vec::new())];
        let plan = Plan::new(Topology { name: "file".to_owned(), settings, components }).expect("a plan").0;
        let rights = Rights::of("t", &plan, prefix).expect("keys are named");
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let args = Args::from_slices(&words);
        let args = args.view(&[]);
        let mut entry = commands().find(args.get(0)).expect("a command");
        if entry.command.is_container() {
            entry = commands().find_sub(entry, args.get(1)).expect("a subcommand");
        }
        rights.check(entry.command, args).map_err(|failure| match failure {
            Failure::Error(text) => text.into_owned(),
            Failure::Bytes(text) => String::from_utf8_lossy(&text).into_owned(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn keys_that_fit_a_pattern_and_those_of_the_topology_may_be_used() {
        let may = |words: &str| assert_eq!(check(&["orders", "sales:*"], words), Ok(()), "{words}");
        for words in [
            "GET orders",
            "MSET sales:a 1 sales:b 2",
            "XREADGROUP GROUP g c STREAMS orders >",
            "XADD topology:t:dead-letters * a b",
            "WATCH topology:t:epochs",
            "MULTI",
            "EXEC",
            "PUBLISH news x",
            "PING",
            "CLIENT SETINFO lib-name x",
            "EVALSHA x 1 sales:a",
            "SCRIPT LOAD x",
            "SELECT 1",
            "TIME",
        ] {
            may(words);
        }
    }

    #[test]
    fn trial_may_use_its_keys_under_its_prefix_too() {
        let on_trial = |words: &str| check_on_trial(Some("try:"), &["orders", "sales:*"], words);
        for words in ["XREAD STREAMS orders 0", "SET try:sales:a 1", "SET sales:a 1"] {
            assert_eq!(on_trial(words), Ok(()), "{words}");
        }
        assert!(on_trial("SET try:secret 1").is_err() && check(&["sales:*"], "SET try:sales:a 1").is_err());
    }

    #[test]
    fn other_keys_and_commands_about_all_keys_or_the_server_are_refused() {
        let refused = |words: &str| check(&["orders", "sales:*"], words).expect_err(words);
        assert_eq!(
            refused("MSET sales:a 1 secret 2"),
            "NOPERM topology 't' may not use the key 'secret': evenkeel.keys of its definition has no pattern for it"
        );
        for words in [
            "GET sale",
            "COPY orders other",
            "XREAD STREAMS orders other 0 0",
            "GET topology:other:epochs",
            "EVAL x 1 secret",
        ] {
            assert!(refused(words).starts_with("NOPERM topology 't' may not use the key '"), "{words}");
        }
        for words in [
            "FLUSHALL",
            "KEYS *",
            "SCAN 0",
            "RANDOMKEY",
            "CONFIG GET requirepass",
            "TOPOLOGY LIST",
            "SHUTDOWN",
            "MONITOR",
            "CLIENT LIST",
            "CLIENT KILL ID 1",
            "SORT orders BY secret:*",
            "TX.BEGIN",
            "SCRIPT FLUSH",
            "INFO",
            "SWAPDB 0 1",
            "FUNCTION LOAD x",
        ] {
            assert!(refused(words).starts_with("NOPERM topology 't' may not run '"), "{words}");
        }
        assert_eq!(check(&["*"], "GET anything"), Ok(()));
        assert!(check(&[], "GET anything").is_err());
    }

    #[test]
    fn keys_that_would_hold_up_the_loop_are_refused() {
        let of = |count: usize, bytes: usize| {
            check(&["*"], &format!("DEL{}", format!(" {}", "k".repeat(bytes)).repeat(count)))
        };
        assert_eq!(of(KEYS_MAX, KEYS_BYTES_MAX / KEYS_MAX), Ok(()));
        assert_eq!(
            of(KEYS_MAX + 1, 1).expect_err("refused"),
            "NOPERM topology 't' may not use 1025 keys in a command, but at most 1024: each is compared with evenkeel.keys of its definition"
        );
        assert_eq!(
            of(2, KEYS_BYTES_MAX / 2 + 1).expect_err("refused"),
            "NOPERM topology 't' may not use keys of 65538 bytes in a command, but at most 65536: each is compared with evenkeel.keys of its definition"
        );
        assert!(of(1, KEYS_BYTES_MAX + 1).is_err());
    }
}
