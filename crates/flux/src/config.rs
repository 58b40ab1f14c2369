//! The configuration of a topology: Storm's keys that mean something here, and our own under `evenkeel.`.
//!
//! All of it is handed to shell components, as Storm does: keys of others are theirs. Only unknown keys under `evenkeel.` are refused, and
//! keys under `topology.` that are nearly one that is known get a warning.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use topology::definition::{Guarantee, Settings, Transport};

use crate::fault::{Faults, Place, hint, shown};
use crate::form::{self, Form};
use crate::node::{Entry, Node, Value};

/// Reads `config` into settings, and as what components are told.
pub(crate) fn read(
    form: &Form<'_>,
    properties: &BTreeMap<String, String>,
    faults: &mut Faults,
) -> (Settings, Map<String, Json>) {
    let (mut settings, mut config) = (Settings::default(), Map::new());
    read_entries(form, &mut settings, &mut config, faults);
    // Whoever runs it says so beside the file, on which the name of the property has no other meaning.
    if let Some(name) = properties.get(TRANSPORT) {
        set_transport(name, form.place, &mut settings, faults);
    }
    (settings, config)
}

fn read_entries(
    form: &Form<'_>,
    settings: &mut Settings,
    config: &mut Map<String, Json>,
    faults: &mut Faults,
) {
    let Some(node) = form.get("config") else { return };
    let Value::Map(entries) = &node.value else {
        faults.error(node.place, format!("`config` must be a mapping, not {}", node.kind()));
        return;
    };
    // Ackers are in the same file as the guarantee, which says more.
    let ackers = entries.iter().filter(|entry| entry.key == ACKERS);
    for entry in ackers.chain(entries.iter().filter(|entry| entry.key != ACKERS)) {
        apply(entry, settings, faults);
    }
    config.extend(entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())));
}

fn set_transport(name: &str, place: Place, settings: &mut Settings, faults: &mut Faults) {
    settings.transport = Transport::named(name);
    if settings.transport.is_none() {
        let names = Transport::NAMES.map(|(name, _)| name);
        let nearest = hint(name, names);
        faults.error(
            place,
            format!("`{TRANSPORT}` must be {}, not `{}`{nearest}", names.join(" or "), shown(name)),
        );
    }
}

fn apply(entry: &Entry, settings: &mut Settings, faults: &mut Faults) {
    let (key, node) = (entry.key.as_str(), &entry.node);
    let Some(row) = ROWS.iter().find(|row| row.key == key) else {
        let nearest = hint(key, ROWS.iter().map(|row| row.key));
        if key.starts_with(OURS) {
            faults.error(entry.place, format!("unknown key `{}` in config{nearest}", shown(key)));
        } else if key.starts_with("topology.") && !nearest.is_empty() {
            faults.warn(entry.place, format!("`{}` means nothing here{nearest}", shown(key)));
        }
        return;
    };
    if node.is_null() {
        return;
    }
    match row.apply {
        Apply::Number { least, most, set } => {
            if let Some(value) = form::number(node, key, least..=most, faults) {
                set(settings, value);
            }
        }
        Apply::Serializer => check_serializer(key, node, faults),
        Apply::Guarantee => {
            let Some(text) = form::text(node, key, faults) else { return };
            match GUARANTEES.iter().find(|(name, _)| *name == text) {
                Some((_, guarantee)) => settings.guarantee = *guarantee,
                None => {
                    let names = GUARANTEES.map(|(name, _)| name);
                    let nearest = hint(text, names);
                    let text =
                        format!("`{key}` must be {}, not `{}`{nearest}", names.join(", "), shown(text));
                    faults.error(node.place, text);
                }
            }
        }
        Apply::Transport => {
            let Some(text) = form::text(node, key, faults) else { return };
            set_transport(text, node.place, settings, faults);
        }
        Apply::Pauses => {
            let Some(nodes) = form::list(node, key, faults) else { return };
            if nodes.len() > PAUSES_MAX {
                faults.error(
                    node.place,
                    format!("`{key}` has {} pauses, the limit is {PAUSES_MAX}", nodes.len()),
                );
            }
            let pauses = nodes.iter().filter_map(|node| form::number(node, key, 0..=DAY_MS, faults));
            settings.backoff = pauses.map(Duration::from_millis).collect();
        }
        Apply::Keys => settings.keys = keys(key, node, faults),
    }
}

/// Patterns of keys.
fn keys(key: &str, node: &Node, faults: &mut Faults) -> Option<Vec<String>> {
    let nodes = form::list(node, key, faults)?;
    if nodes.len() > PATTERNS_MAX {
        let count = nodes.len();
        faults.error(node.place, format!("`{key}` has {count} patterns, the limit is {PATTERNS_MAX}"));
        return None;
    }
    let mut patterns = Vec::new();
    for node in nodes {
        let Some(text) = form::text(node, key, faults) else { continue };
        if text.len() > PATTERN_BYTES_MAX {
            let bytes = text.len();
            faults.error(
                node.place,
                format!("a pattern of `{key}` has {bytes} bytes, the limit is {PATTERN_BYTES_MAX}"),
            );
        }
        patterns.push(text.to_owned());
    }
    Some(patterns)
}

/// Checks what a component is told under `key`, if it means something here.
pub(crate) fn check_value(key: &str, node: &Node, faults: &mut Faults) {
    if key == TICKS {
        form::number(node, key, 1..=DAY_S, faults);
    } else if key == SERIALIZER {
        check_serializer(key, node, faults);
    } else if key.starts_with(OURS) {
        faults.error(node.place, format!("`{}` is for the whole topology: put it into `config`", shown(key)));
    }
}

/// How shell components speak, by the class that speaks to them on Storm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serializer {
    /// Storm's own class, which holds without the key.
    #[default]
    Json,
    /// A class of others.
    MessagePack,
}

impl Serializer {
    /// What the configuration of a component asks for: its own, or else that of the topology.
    #[must_use]
    pub fn of(config: &Map<String, Json>) -> Self {
        config.get(SERIALIZER).and_then(Json::as_str).and_then(Self::of_class).unwrap_or_default()
    }

    fn of_class(class: &str) -> Option<Self> {
        match class.rsplit('.').next() {
            Some(JSON) => Some(Self::Json),
            Some("MessagePackSerializer" | "MsgpackSerializer") => Some(Self::MessagePack),
            _ => None,
        }
    }
}

fn check_serializer(key: &str, node: &Node, faults: &mut Faults) {
    let Some(class) = form::text(node, key, faults) else { return };
    if Serializer::of_class(class).is_none() {
        let class = shown(class);
        let text =
            format!("`{key}` must be a class {JSON} or MessagePackSerializer, in any package, not `{class}`");
        faults.error(node.place, text);
    }
}

/// How often a component with this configuration gets a tick tuple.
pub(crate) fn tick_interval_of(config: &Map<String, Json>) -> Option<Duration> {
    config.get(TICKS).and_then(Json::as_u64).map(Duration::from_secs)
}

struct Row {
    key: &'static str,
    apply: Apply,
}

enum Apply {
    Number { least: u64, most: u64, set: fn(&mut Settings, u64) },
    Guarantee,
    Transport,
    Serializer,
    Pauses,
    Keys,
}

const fn number(key: &'static str, least: u64, most: u64, set: fn(&mut Settings, u64)) -> Row {
    Row { key, apply: Apply::Number { least, most, set } }
}

const ROWS: &[Row] = &[
    number("topology.workers", 1, 1_000, |settings, value| settings.workers = value as u32),
    number("topology.max.spout.pending", 1, 10_000_000, |settings, value| {
        settings.max_spout_pending = value as u32;
    }),
    number("topology.message.timeout.secs", 1, DAY_S, |settings, value| {
        settings.message_timeout = Duration::from_secs(value);
    }),
    number(TICKS, 1, DAY_S, |settings, value| settings.tick_interval = Some(Duration::from_secs(value))),
    // Without ackers Storm does not know what became of a tuple; more than one is its way to spread work that is not done here.
    number(ACKERS, 0, 10_000, |settings, value| {
        if value == 0 {
            settings.guarantee = Guarantee::AtMostOnce;
        }
    }),
    // These are for the shell components of the topology, which read them from their configuration.
    number("topology.subprocess.timeout.secs", 1, DAY_S, |_, _| {}),
    number("topology.shellbolt.max.pending", 1, 100_000, |_, _| {}),
    number("evenkeel.child_tuples_max", 1, 10_000_000, |_, _| {}),
    Row { key: SERIALIZER, apply: Apply::Serializer },
    number("evenkeel.children_max", 0, 100_000, |_, _| {}),
    number("evenkeel.child_memory_bytes_max", 1 << 20, 1 << 50, |_, _| {}),
    number("evenkeel.message_bytes_max", 1 << 10, 1 << 30, |_, _| {}),
    Row { key: "evenkeel.guarantee", apply: Apply::Guarantee },
    Row { key: TRANSPORT, apply: Apply::Transport },
    number("evenkeel.attempts_max", 1, 1_000_000, |settings, value| settings.attempts_max = value as u32),
    Row { key: "evenkeel.backoff_ms", apply: Apply::Pauses },
    number("evenkeel.spout_bytes_max", 1 << 10, 1 << 40, |settings, value| settings.spout_bytes_max = value),
    number("evenkeel.channel_bytes_max", 1 << 10, 1 << 30, |settings, value| {
        settings.channel_bytes_max = value;
    }),
    number("evenkeel.batch_tuples_max", 1, 100_000, |settings, value| {
        settings.batch_tuples_max = value as u32;
    }),
    Row { key: "evenkeel.keys", apply: Apply::Keys },
];
const TRANSPORT: &str = "evenkeel.transport";
const GUARANTEES: [(&str, Guarantee); 3] = [
    ("at-most-once", Guarantee::AtMostOnce),
    ("at-least-once", Guarantee::AtLeastOnce),
    ("exactly-once", Guarantee::ExactlyOnce),
];
const OURS: &str = "evenkeel.";
const ACKERS: &str = "topology.acker.executors";
const TICKS: &str = "topology.tick.tuple.freq.secs";
const SERIALIZER: &str = "topology.multilang.serializer";
const JSON: &str = "JsonSerializer";
const DAY_S: u64 = 86_400;
const DAY_MS: u64 = DAY_S * 1_000;
const PAUSES_MAX: usize = 100;
const PATTERNS_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 256;
