//! What was taken, what not, and why.

use std::collections::BTreeMap;
use std::fmt;

use rdb::Kind;

/// Counts, and names of keys as far as there is room for them.
#[derive(Debug, Default)]
pub struct Report {
    /// Keys that came, by type, those that failed and those that were there included.
    keys: BTreeMap<&'static str, u64>,
    /// Whose time had come.
    expired: u64,
    /// Keys that were there, and stayed.
    existing: u64,
    /// Libraries of functions.
    libraries: u64,
    /// Commands that followed.
    commands: u64,
    /// What is none of ours, by what it is.
    skipped: Names,
    /// What was refused, with the reason.
    failed: Names,
    /// Commands that were refused or are not known, by name and reason.
    refused: BTreeMap<String, u64>,
    /// What else is to be known.
    notes: Vec<String>,
    /// Whether nothing was sent.
    pub(crate) is_dry: bool,
}

/// Keys with what is to be said about each.
#[derive(Debug, Default)]
struct Names {
    count: u64,
    named: BTreeMap<(Option<u64>, Vec<u8>), String>,
}

impl Names {
    fn add(&mut self, db: Option<u64>, key: &[u8], why: &str) {
        let name = (db, key.to_vec());
        if self.named.contains_key(&name) {
            return;
        }
        self.count += 1;
        if self.named.len() < NAMES_MAX {
            self.named.insert(name, why.to_owned());
        }
    }
}

impl Report {
    /// Of what is read and not sent.
    pub(crate) fn dry() -> Self {
        Self { is_dry: true, ..Self::default() }
    }

    pub(crate) fn key(&mut self, kind: Kind) {
        let name = match kind {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
        };
        *self.keys.entry(name).or_default() += 1;
    }

    pub(crate) fn expired(&mut self) {
        self.expired += 1;
    }

    pub(crate) fn existing(&mut self) {
        self.existing += 1;
    }

    pub(crate) fn library(&mut self) {
        self.libraries += 1;
    }

    pub(crate) fn command(&mut self) {
        self.commands += 1;
    }

    pub(crate) fn skipped(&mut self, key: Option<(u64, &[u8])>, what: &str) {
        self.skipped.add(key.map(|(db, _)| db), key.map_or(what.as_bytes(), |(_, name)| name), what);
    }

    pub(crate) fn failed(&mut self, db: u64, key: &[u8], why: &str) {
        self.failed.add(Some(db), key, why);
    }

    pub(crate) fn refused(&mut self, command: &[u8], why: &str) {
        let name = format!("{}: {why}", command.escape_ascii().to_string().to_uppercase());
        if self.refused.len() < NAMES_MAX || self.refused.contains_key(&name) {
            *self.refused.entry(name).or_default() += 1;
        } else {
            *self.refused.entry("others".to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Keys that came so far.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys.values().sum()
    }

    /// Whether all that came was taken, or was none of the keys that were asked for.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed.count == 0 && self.skipped.count == 0 && self.refused.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.keys.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let verb = if self.is_dry { "found" } else { "imported" };
        let taken = self.keys().saturating_sub(self.failed.count + self.existing);
        writeln!(
            f,
            "{verb}: {taken} keys of {}{kinds}, {} libraries of functions",
            self.keys(),
            self.libraries
        )?;
        let counts = [("expired", self.expired), ("kept, since they were there", self.existing)];
        for (what, count) in counts.iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "{what}: {count} keys")?;
        }
        if self.commands > 0 {
            writeln!(f, "followed: {} commands", self.commands)?;
        }
        for (what, names) in [("skipped", &self.skipped), ("failed", &self.failed)] {
            if names.count > 0 {
                writeln!(f, "{what}: {}", names.count)?;
            }
            for ((db, name), why) in &names.named {
                match db {
                    Some(db) => writeln!(f, "  db {db} \"{}\": {why}", name.escape_ascii())?,
                    None => writeln!(f, "  {why}")?,
                }
            }
            if names.count > names.named.len() as u64 {
                writeln!(f, "  and {} more", names.count - names.named.len() as u64)?;
            }
        }
        for (command, count) in &self.refused {
            writeln!(f, "refused: {count} x {command}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

/// Names that are kept.
const NAMES_MAX: usize = 1_000;
