//! What one set of rules allows: commands, keys, channels and databases together.
//!
//! ```text
//!  +get -@dangerous +config|get +select|0     commands: a bit for each row of the table, and first arguments
//!  ~cache:* %R~users:*                        keys, with what may be done with them
//!  &news:*                                    channels
//!  db=0,3                                     databases; all, where no rule says which
//! ```
//!
//! Rules are compiled when they are set: a check looks up one bit and compares the arguments with compiled patterns.
//!
//! Out of scope: passwords, and who has which rules (`user`).

use std::collections::BTreeSet;
use std::sync::Arc;

use commands::command::{Command, Kind, READS, WRITES};
use commands::glob::{Pattern, TooLong};
use commands::lookup::{Entry, Table};
use commands::words::is;
use resp::ArgsView;

use crate::later;

/// Why a rule was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("Unknown command or category name in ACL")]
    Unknown,
    #[error("Syntax error")]
    Syntax,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
         Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
         Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    BadHash,
    #[error("Unmatched parenthesis")]
    OpenParenthesis,
    #[error("{0}")]
    Pattern(#[from] TooLong),
}

/// What one set of rules allows.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    /// All commands there are.
    pub(super) table: &'static Table,
    /// A bit for each row of the table.
    allowed: Vec<u64>,
    /// All bits are set by one rule.
    all_commands: bool,
    /// Whether commands would be allowed that nobody knows yet: `+@all` was the last rule on all.
    future: bool,
    /// First arguments with which a command is allowed that is not allowed otherwise.
    first_args: Vec<(u16, Box<[u8]>)>,
    /// The rules on commands since the last one on all, as the user gave them.
    rules: Vec<(bool, Box<str>)>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<ChannelPattern>,
    /// `None`: all.
    databases: Option<BTreeSet<u16>>,
}

#[derive(Clone, Debug)]
struct KeyPattern {
    /// [`READS`], [`WRITES`] or both.
    rights: u8,
    text: Box<[u8]>,
    compiled: Arc<Pattern>,
}

#[derive(Clone, Debug)]
struct ChannelPattern {
    text: Box<[u8]>,
    compiled: Arc<Pattern>,
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Command,
    /// The database, as far as it is known.
    Database(Option<u16>),
    /// The argument that is the key.
    Key(usize),
    /// The argument that is the channel.
    Channel(usize),
    /// SORT with this option, which reads keys that nobody names.
    Option(&'static str),
}

impl Denied {
    /// Which of two reasons of two selectors is told: the one that came closer to being allowed.
    fn rank(self) -> (u8, usize) {
        match self {
            Self::Command => (0, 0),
            Self::Database(_) => (1, 0),
            Self::Key(at) => (2, at),
            Self::Option(_) => (3, 0),
            Self::Channel(at) => (4, at),
        }
    }

    /// The one of two that is told.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }
}

impl Selector {
    /// Nothing is allowed, but for all channels if `all_channels`.
    pub(crate) fn none(table: &'static Table, all_channels: bool) -> Self {
        Self {
            table,
            allowed: vec![0; table.entries().len().div_ceil(64)],
            all_commands: false,
            future: false,
            first_args: Vec::new(),
            rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
            databases: None,
        }
    }

    /// Everything is allowed.
    pub(crate) fn all(table: &'static Table) -> Self {
        let mut selector = Self::none(table, true);
        selector.set_all(true);
        selector.all_keys = true;
        selector
    }

    /// Whether it allows everything.
    pub(crate) fn is_all(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels && self.databases.is_none()
    }

    /// Changes it as `rule` says.
    ///
    /// # Errors
    /// It is no rule, or one without effect; nothing has changed.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is_rule = |names: [&str; 2]| names.into_iter().any(|name| is(rule, name));
        match rule {
            _ if is_rule(["allkeys", "~*"]) => (self.all_keys, self.keys) = (true, Vec::new()),
            _ if is(rule, "resetkeys") => (self.all_keys, self.keys) = (false, Vec::new()),
            _ if is_rule(["allchannels", "&*"]) => (self.all_channels, self.channels) = (true, Vec::new()),
            _ if is(rule, "resetchannels") => (self.all_channels, self.channels) = (false, Vec::new()),
            _ if is_rule(["allcommands", "+@all"]) => self.set_all(true),
            _ if is_rule(["nocommands", "-@all"]) => self.set_all(false),
            _ if is(rule, "alldbs") => self.databases = None,
            _ if is(rule, "resetdbs") => self.databases = Some(BTreeSet::new()),
            [b'~', pattern @ ..] => self.add_key(READS | WRITES, pattern)?,
            [b'%', rest @ ..] => {
                let (rights, pattern) = key_rights(rest)?;
                self.add_key(rights, pattern)?;
            }
            [b'&', pattern @ ..] => self.add_channel(pattern)?,
            [sign @ (b'+' | b'-'), b'@', category @ ..] => self.set_category(*sign == b'+', category)?,
            [b'+', name @ ..] => self.allow(name)?,
            [b'-', name @ ..] => self.forbid(name)?,
            _ if rule.get(..3).is_some_and(|start| is(start, "db=")) => self.add_databases(&rule[3..])?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_all(&mut self, allowed: bool) {
        self.allowed.fill(if allowed { u64::MAX } else { 0 });
        (self.all_commands, self.future) = (allowed, allowed);
        self.first_args.clear();
        self.rules.clear();
    }

    fn set_category(&mut self, allowed: bool, category: &[u8]) -> Result<(), RuleError> {
        let name = category_of(category).ok_or(RuleError::Unknown)?;
        let of_category = self.table.entries().iter().filter(|entry| has_category(entry.command, name));
        of_category.for_each(|entry| self.set(entry, allowed));
        self.note_rule(allowed, &format!("@{name}"));
        Ok(())
    }

    fn set(&mut self, entry: &Entry, allowed: bool) {
        let (word, bit) = (usize::from(entry.id / 64), 1 << (entry.id % 64));
        if allowed {
            self.allowed[word] |= bit;
        } else {
            self.allowed[word] &= !bit;
            self.all_commands = false;
        }
        self.first_args.retain(|(id, _)| *id != entry.id);
    }

    /// A command, with its subcommands; or a subcommand alone.
    fn set_whole(&mut self, entry: &'static Entry, allowed: bool) {
        self.set(entry, allowed);
        self.table.subcommands(entry).iter().for_each(|sub| self.set(sub, allowed));
        self.note_rule(allowed, entry.command.name);
    }

    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        if let Some(entry) = self.table.find_full(name) {
            self.set_whole(entry, true);
            return Ok(());
        }
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            return self.note_later(true, name);
        };
        let (command, arg) = (&name[..bar], &name[bar + 1..]);
        let Some(entry) = self.table.find_full(command) else { return self.note_later(true, name) };
        if entry.command.name.contains('|') {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if arg.is_empty() {
            return Err(RuleError::Syntax);
        }
        if entry.command.is_container() {
            return Err(RuleError::Unknown);
        }
        let arg: Box<[u8]> = arg.to_ascii_lowercase().into();
        if !self.first_args.iter().any(|(id, other)| *id == entry.id && *other == arg) {
            self.first_args.push((entry.id, arg.clone()));
        }
        self.note_rule(true, &format!("{}|{}", entry.command.name, String::from_utf8_lossy(&arg)));
        Ok(())
    }

    fn forbid(&mut self, name: &[u8]) -> Result<(), RuleError> {
        match self.table.find_full(name) {
            Some(entry) => self.set_whole(entry, false),
            None => self.note_later(false, name)?,
        }
        Ok(())
    }

    /// A command of Redis that is not here: the rule is kept, for files that both read.
    fn note_later(&mut self, allowed: bool, name: &[u8]) -> Result<(), RuleError> {
        let command = name.split(|byte| *byte == b'|').next().unwrap_or_default();
        let name = std::str::from_utf8(name).map_err(|_| RuleError::Unknown)?;
        if !later::is_of_redis(command) || name.contains(char::is_whitespace) {
            return Err(RuleError::Unknown);
        }
        self.note_rule(allowed, name);
        Ok(())
    }

    /// Keeps a rule in place of those that it overrides.
    fn note_rule(&mut self, allowed: bool, rule: &str) {
        let rule = rule.to_ascii_lowercase();
        let of_it = |other: &str| {
            other.strip_prefix(rule.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|(_, other)| !of_it(other));
        self.rules.push((allowed, rule.into()));
    }

    fn add_key(&mut self, rights: u8, text: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        let compiled = pattern(text)?;
        match self.keys.iter_mut().find(|it| *it.text == *text) {
            Some(known) => known.rights |= rights,
            None => self.keys.push(KeyPattern { rights, text: text.into(), compiled }),
        }
        Ok(())
    }

    fn add_channel(&mut self, text: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        let compiled = pattern(text)?;
        if !self.channels.iter().any(|it| *it.text == *text) {
            self.channels.push(ChannelPattern { text: text.into(), compiled });
        }
        Ok(())
    }

    fn add_databases(&mut self, numbers: &[u8]) -> Result<(), RuleError> {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u16>().ok();
        let numbers: Option<BTreeSet<u16>> = numbers.split(|byte| *byte == b',').map(number).collect();
        self.databases.get_or_insert_default().extend(numbers.ok_or(RuleError::Syntax)?);
        Ok(())
    }

    /// Whether the command may run, in database `db` if that is known yet.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self, entry: &Entry, args: ArgsView<'_>, db: Option<u16>) -> Result<(), Denied> {
        if !self.all_commands && !self.may_run(entry, args) {
            return Err(Denied::Command);
        }
        if let Some(databases) = &self.databases {
            check_databases(databases, entry.command, args, db)?;
        }
        if !self.all_keys {
            self.check_keys(entry.command, args)?;
        }
        if !self.all_channels {
            self.check_channels(entry.command, args)?;
        }
        Ok(())
    }

    fn may_run(&self, entry: &Entry, args: ArgsView<'_>) -> bool {
        let is_allowed = self.allowed[usize::from(entry.id / 64)] & (1 << (entry.id % 64)) != 0;
        is_allowed
            || args.try_get(1).is_some_and(|first| {
                let with = |(id, arg): &(u16, Box<[u8]>)| *id == entry.id && arg.eq_ignore_ascii_case(first);
                self.first_args.iter().any(with)
            })
    }

    fn check_keys(&self, command: &Command, args: ArgsView<'_>) -> Result<(), Denied> {
        let mut denied = None;
        command.each_key_of(args, |spec, index| {
            if denied.is_none() && !self.fits(args.get(index), needs(command, args, spec.needs)) {
                denied = Some(index);
            }
        });
        if let Some(index) = denied {
            return Err(Denied::Key(index));
        }
        if matches!(command.kind, Kind::Reaching) && !self.reads_all() {
            return reached(args).map_or(Ok(()), |option| Err(Denied::Option(option)));
        }
        Ok(())
    }

    /// Whether `key` may be used in a way that takes `needs`.
    fn fits(&self, key: &[u8], needs: u8) -> bool {
        self.keys.iter().any(|it| it.rights & needs == needs && it.compiled.matches(key, &mut 0))
    }

    fn reads_all(&self) -> bool {
        self.all_keys || self.keys.iter().any(|it| it.rights & READS != 0 && *it.text == *b"*")
    }

    fn check_channels(&self, command: &Command, args: ArgsView<'_>) -> Result<(), Denied> {
        let (last, is_pattern) = match command.name {
            "publish" | "spublish" => (1, false),
            "subscribe" | "ssubscribe" => (args.len() - 1, false),
            "psubscribe" => (args.len() - 1, true),
            _ => return Ok(()),
        };
        let denied = (1..=last).find(|index| !self.hears(args.get(*index), is_pattern));
        denied.map_or(Ok(()), |index| Err(Denied::Channel(index)))
    }

    /// Whether it may use the channel, or the pattern: that must be one of its own, letter by letter.
    pub(crate) fn hears(&self, channel: &[u8], is_pattern: bool) -> bool {
        let fits = |it: &ChannelPattern| match is_pattern {
            true => *it.text == *channel,
            false => it.compiled.matches(channel, &mut 0),
        };
        self.all_channels || self.channels.iter().any(fits)
    }

    /// Its rules on commands, as ACL GETUSER shows them.
    pub(crate) fn commands_text(&self) -> Vec<u8> {
        let mut text = if self.future { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for (allowed, rule) in &self.rules {
            text.extend_from_slice(if *allowed { b" +" } else { b" -" });
            text.extend_from_slice(rule.as_bytes());
        }
        text
    }

    /// Its rules on keys.
    pub(crate) fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let of = |it: &KeyPattern| {
            let sign: &[u8] = match it.rights {
                READS => b"%R~",
                WRITES => b"%W~",
                _ => b"~",
            };
            [sign, &it.text].concat()
        };
        self.keys.iter().map(of).collect::<Vec<_>>().join(&b' ')
    }

    /// Its rules on channels.
    pub(crate) fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let of = |it: &ChannelPattern| [&b"&"[..], &it.text].concat();
        self.channels.iter().map(of).collect::<Vec<_>>().join(&b' ')
    }

    /// Its rules on databases; empty if all are allowed.
    pub(crate) fn databases_text(&self) -> Vec<u8> {
        let Some(databases) = &self.databases else { return Vec::new() };
        if databases.is_empty() {
            return b"resetdbs".to_vec();
        }
        let numbers: Vec<_> = databases.iter().map(u16::to_string).collect();
        format!("db={}", numbers.join(",")).into_bytes()
    }

    /// Rules that make it from [`Selector::none`].
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut channels = self.channels_text();
        if !self.all_channels {
            channels = [&b"resetchannels"[..], &channels].join(&b' ');
        }
        let parts = [self.keys_text(), channels, self.databases_text(), self.commands_text()];
        let parts: Vec<_> = parts.iter().map(|part| part.trim_ascii()).filter(|it| !it.is_empty()).collect();
        parts.join(&b' ')
    }
}

/// The rights in front of a pattern of keys, and the pattern.
fn key_rights(rest: &[u8]) -> Result<(u8, &[u8]), RuleError> {
    let tilde = rest.iter().position(|byte| *byte == b'~').ok_or(RuleError::Syntax)?;
    let mut rights = 0;
    for letter in &rest[..tilde] {
        rights |= match letter {
            b'r' | b'R' => READS,
            b'w' | b'W' => WRITES,
            _ => return Err(RuleError::Syntax),
        };
    }
    if rights == 0 { Err(RuleError::Syntax) } else { Ok((rights, &rest[tilde + 1..])) }
}

fn pattern(text: &[u8]) -> Result<Arc<Pattern>, RuleError> {
    if text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err(RuleError::Syntax);
    }
    Ok(Arc::new(Pattern::new(text, false)?))
}

/// What a key takes, where that depends on the other arguments.
fn needs(command: &Command, args: ArgsView<'_>, needs: u8) -> u8 {
    let words = || args.iter().skip(2);
    match command.name {
        "set" if !words().any(|word| is(word, "get")) => WRITES,
        "bitfield" if !words().any(|word| is(word, "set") || is(word, "incrby")) => READS,
        _ => needs,
    }
}

/// The option with which SORT reads keys that its arguments do not name.
fn reached(args: ArgsView<'_>) -> Option<&'static str> {
    let mut index = 2;
    while let Some(word) = args.try_get(index) {
        let value = args.try_get(index + 1);
        match word {
            _ if is(word, "by") && value.is_some_and(|by| by.contains(&b'*')) => return Some("BY"),
            _ if is(word, "get") && value.is_some() => return Some("GET"),
            _ if is(word, "limit") => index += 3,
            _ if is(word, "by") || is(word, "store") => index += 2,
            _ => index += 1,
        }
    }
    None
}

fn check_databases(
    databases: &BTreeSet<u16>,
    command: &Command,
    args: ArgsView<'_>,
    db: Option<u16>,
) -> Result<(), Denied> {
    let may = |db: Option<u16>| match db {
        Some(number) if !databases.contains(&number) => Err(Denied::Database(db)),
        _ => Ok(()),
    };
    let number =
        |index: usize| args.try_get(index).and_then(resp::parse_i64).and_then(|it| it.try_into().ok());
    match (command.name, command.kind) {
        ("select", _) => return may(number(1)),
        ("flushall", _) => return Err(Denied::Database(None)),
        ("swapdb", _) => may(number(1)).and(may(number(2)))?,
        (_, Kind::Across(target)) => may(target(args))?,
        (_, Kind::Everything | Kind::Walk) => {}
        _ if !command.keys.is_empty() => {}
        _ if matches!(command.name, "dbsize") => {}
        _ => return Ok(()),
    }
    may(db)
}

/// The categories of commands.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The category that `name` is, in any case.
pub(crate) fn category_of(name: &[u8]) -> Option<&'static str> {
    CATEGORIES.into_iter().find(|category| is(name, category))
}

/// Whether a command is in a category.
pub(crate) fn has_category(command: &Command, name: &str) -> bool {
    command.categories.split_whitespace().any(|it| it == name)
}
