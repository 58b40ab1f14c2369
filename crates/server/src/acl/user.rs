//! A user: whether it may log in, its passwords, and its sets of rules. A value: it is changed as a copy, which takes its place.

use std::sync::Arc;

use commands::lookup::{Entry, Table};
use commands::words::is;
use resp::ArgsView;
use ring::digest::{SHA256, digest};

use super::selector::{Denied, RuleError, Selector};
use crate::clients::DEFAULT_USER;

/// A user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: Arc<[u8]>,
    pub(crate) enabled: bool,
    /// Any password is right.
    pub(crate) nopass: bool,
    /// Kept for Redis: payloads of RESTORE are checked for everybody here.
    skips_sanitizing: bool,
    /// What they hash to.
    passwords: Vec<Hash>,
    pub(crate) root: Selector,
    pub(crate) selectors: Vec<Selector>,
}

/// Rules of a user.
pub(crate) const USER_RULES_MAX: usize = 2_000;
/// Bytes of these.
pub(crate) const USER_BYTES_MAX: usize = 64 << 10;

/// SHA-256.
type Hash = [u8; 32];

impl User {
    /// One who may do nothing yet, but for all channels if `all_channels`.
    pub(crate) fn new(name: &[u8], table: &'static Table, all_channels: bool) -> Self {
        Self {
            name: name.into(),
            enabled: false,
            nopass: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::none(table, all_channels),
            selectors: Vec::new(),
        }
    }

    /// Who may do everything, with `password` or without one.
    pub(crate) fn default_with(password: Option<&str>, table: &'static Table) -> Self {
        let root = Selector::all(table);
        let mut user = Self { enabled: true, root, ..Self::new(DEFAULT_USER, table, true) };
        user.set_password(password);
        user
    }

    /// Has this password, or none, in place of all others.
    pub(crate) fn set_password(&mut self, password: Option<&str>) {
        self.nopass = password.is_none();
        self.passwords = password.map(|it| hash(it.as_bytes())).into_iter().collect();
    }

    /// Whether it may do everything.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.root.is_all()
    }

    /// Whether a connection is this user without a word.
    pub(crate) fn is_open(&self) -> bool {
        self.enabled && self.nopass
    }

    /// Whether `password` lets somebody in as this user; takes as long whichever it is.
    pub(crate) fn admits(&self, password: &[u8]) -> bool {
        let given = hash(password);
        let same = |wanted: &Hash| {
            let difference =
                wanted.iter().zip(given).fold(0, |all, (a, b)| all | std::hint::black_box(a ^ b));
            difference == 0
        };
        let is_right = self.passwords.iter().fold(false, |found, wanted| found | same(wanted));
        self.enabled && (self.nopass || is_right)
    }

    /// Changes it as `rules` say, all or nothing; `all_channels` is what new sets of rules begin with.
    ///
    /// # Errors
    /// The first rule that is none, and why.
    pub(crate) fn with_rules<'a>(
        mut self,
        rules: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<Self, (Vec<u8>, RuleError)> {
        for rule in merged(rules)? {
            self.apply(&rule, all_channels).map_err(|error| (rule, error))?;
        }
        Ok(self)
    }

    fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        match rule {
            _ if is(rule, "on") => self.enabled = true,
            _ if is(rule, "off") => self.enabled = false,
            _ if is(rule, "nopass") => (self.nopass, self.passwords) = (true, Vec::new()),
            _ if is(rule, "resetpass") => (self.nopass, self.passwords) = (false, Vec::new()),
            _ if is(rule, "skip-sanitize-payload") => self.skips_sanitizing = true,
            _ if is(rule, "sanitize-payload") => self.skips_sanitizing = false,
            _ if is(rule, "clearselectors") => self.selectors.clear(),
            _ if is(rule, "reset") => *self = Self::new(&self.name, self.root.table, all_channels),
            [b'>', password @ ..] => self.add(hash(password)),
            [b'#', hex @ ..] => self.add(parsed(hex)?),
            [b'<', password @ ..] => self.remove(&hash(password))?,
            [b'!', hex @ ..] => self.remove(&parsed(hex)?)?,
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::none(self.root.table, all_channels);
                let rules = inner.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty());
                rules.into_iter().try_for_each(|rule| selector.apply(rule))?;
                self.selectors.push(selector);
            }
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    fn add(&mut self, password: Hash) {
        self.nopass = false;
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
    }

    fn remove(&mut self, password: &Hash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|it| it == password).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Whether the command may run, in database `db` if that is known yet.
    ///
    /// # Errors
    /// Why not: of the set of rules that comes closest.
    pub(crate) fn check(&self, entry: &Entry, args: ArgsView<'_>, db: Option<u16>) -> Result<(), Denied> {
        let Err(mut denied) = self.root.check(entry, args, db) else { return Ok(()) };
        for selector in &self.selectors {
            match selector.check(entry, args, db) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.or(other),
            }
        }
        Err(denied)
    }

    /// Whether it may listen to the channel, or to the pattern.
    pub(crate) fn hears(&self, channel: &[u8], is_pattern: bool) -> bool {
        [&self.root].into_iter().chain(&self.selectors).any(|selector| selector.hears(channel, is_pattern))
    }

    /// Its flags, as ACL GETUSER names them.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        flags.extend(self.nopass.then_some("nopass"));
        flags.extend(self.skips_sanitizing.then_some("skip-sanitize-payload"));
        flags
    }

    /// What its passwords hash to, in hexadecimal digits.
    pub(crate) fn hashes(&self) -> Vec<String> {
        self.passwords.iter().map(|hash| hex(hash)).collect()
    }

    /// Refuses one whose rules would take much time and memory: each is compared with what commands name.
    ///
    /// # Errors
    /// How many there are, and how many there may be.
    pub(crate) fn check_size(&self) -> Result<(), String> {
        let line = self.line();
        let (bytes, rules) = (line.len(), line.split(|byte| *byte == b' ').count());
        if bytes <= USER_BYTES_MAX && rules <= USER_RULES_MAX {
            return Ok(());
        }
        Err(format!(
            "the user would have {rules} rules of {bytes} B, more than the limit of {USER_RULES_MAX} rules and {USER_BYTES_MAX} B"
        ))
    }

    /// The line of a file of users that makes it; sets of rules are in parentheses.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut parts = vec![b"user".to_vec(), self.name.to_vec()];
        parts.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.hashes().into_iter().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.root.text());
        parts.extend(self.selectors.iter().map(|it| [b"(", it.text().as_slice(), b")"].concat()));
        parts.join(&b' ')
    }
}

/// Rules with each set of rules in one piece: `(+get` and `~x)` are one.
fn merged<'a>(rules: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, (Vec<u8>, RuleError)> {
    let (mut whole, mut open) = (Vec::new(), None::<Vec<u8>>);
    for rule in rules {
        let piece = match open.take() {
            Some(begun) => [&begun, rule].join(&b' '),
            None => rule.to_vec(),
        };
        if piece.starts_with(b"(") && !piece.ends_with(b")") {
            open = Some(piece);
        } else {
            whole.push(piece);
        }
    }
    match open {
        Some(begun) => Err((begun, RuleError::OpenParenthesis)),
        None => Ok(whole),
    }
}

fn hash(password: &[u8]) -> Hash {
    digest(&SHA256, password).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// As lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parsed(hex: &[u8]) -> Result<Hash, RuleError> {
    let is_hex = hex.len() == 64 && hex.iter().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex {
        return Err(RuleError::BadHash);
    }
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(hex.chunks(2)) {
        let digits = std::str::from_utf8(pair).expect("digits are ASCII");
        *byte = u8::from_str_radix(digits, 16).expect("two hexadecimal digits are a byte");
    }
    Ok(hash)
}
