//! Settings: one table, from which flags, file, CONFIG, help and manual are made.
//!
//! ```text
//!  defaults  <-  file (TOML)  <-  flags  <-  CONFIG SET (only rows that may change at run time)
//! ```
//!
//! Invariants
//!   1. A setting has one name everywhere; its flag is the name with `-` for `.` and `_`.
//!   2. Nothing is ignored: a name that no row has, or a value outside its bounds, is an error that says where.
//!   3. A change of several settings happens whole or not at all.
//!
//! `values` has the values, `kinds` what they are, `table` the rows, `file` TOML with line numbers, `redis` the names that Redis's tools
//! use for these, `compat` those without effect, `config` changes at run time, `secure` those of TLS, `error` why one is not taken, `text` what is generated.

mod classes;
mod compat;
mod config;
mod error;
mod file;
mod kinds;
mod redis;
mod redis_conf;
mod resources;
mod secure;
mod table;
mod text;
mod toml_value;
mod unknown;
mod values;

use std::net::IpAddr;

use kinds::Kind as _;

pub use classes::Classes;
pub(crate) use config::replace_file;
pub use config::{ChangeError, Config, RewriteError};
pub use error::{Expected, SettingError, Unreadable};
pub use file::FileError;
pub use kinds::{
    Assignment, Backend, BalanceBy, Connector, Durability, Engine, Every, HostName, LogLevel, MemoryLimit,
    Node, Percent, Policy, Secret, Size, Threshold, TxnLog, User, WorkerTransport, positive_duration,
};
pub use resources::{KEYS, ResourceKind, ResourceSettings};
pub use secure::CertificateUser;
pub use table::{ROWS, Row};
pub use text::{example_file, manual_page};
pub use unknown::{nearest, unknown_flag};
pub use values::Settings;

impl Settings {
    /// Sets one setting, given by its name, from text.
    ///
    /// # Errors
    /// [`SettingError::Unknown`] with the nearest name, [`SettingError::Value`] with the bounds.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
        let row = Row::find(name).ok_or_else(|| SettingError::Unknown(unknown::unknown(name)))?;
        row.set(self, text)
    }

    /// Takes what the text of a TOML file says over what is set.
    ///
    /// # Errors
    /// The first wrong line, by its number.
    pub fn apply_toml(&mut self, toml: &str) -> Result<(), FileError> {
        file::apply(self, toml)
    }

    /// Takes what a settings file says over what is set: TOML, or a redis.conf, of which what means nothing here is told, a line each.
    ///
    /// # Errors
    /// The first wrong line, by its number.
    pub fn apply_file(&mut self, text: &str) -> Result<Vec<String>, FileError> {
        if redis_conf::is_one(text) {
            return redis_conf::apply(self, text);
        }
        file::apply(self, text).map(|()| Vec::new())
    }

    /// `toml` with every setting that differs from what it (or the default) says put in; comments stay.
    ///
    /// # Errors
    /// If `toml` is not a settings file.
    pub fn rewritten(&self, toml: &str) -> Result<String, FileError> {
        file::rewrite(self, toml)
    }

    /// How these settings differ from those of the file's text `toml`: old values and new ones, but no secret.
    pub(crate) fn changes_since(&self, toml: &str) -> Vec<String> {
        let mut former = Settings::default();
        // What was rewritten has been read as settings.
        let _ = file::apply(&mut former, toml);
        let changed = ROWS.iter().filter(|row| row.text(self) != row.text(&former));
        let shown = |row: &Row| match row.key {
            "requirepass" => "requirepass: another password".to_owned(),
            key => {
                format!("{key}: {} -> {}", table::shown(&row.text(&former)), table::shown(&row.text(self)))
            }
        };
        changed.map(shown).collect()
    }

    /// The same settings, with paths that do not depend on the working directory.
    ///
    /// # Errors
    /// The system's, if there is no working directory any more.
    pub fn with_absolute_paths(&self) -> std::io::Result<Self> {
        let mut settings = self.clone();
        settings.dir = std::path::absolute(&settings.dir)?;
        let Settings { unixsocket, requirepass_file, acl_file, metrics_file, topologies_dir, .. } =
            &mut settings;
        let paths = [unixsocket, requirepass_file, acl_file, metrics_file, topologies_dir];
        for path in paths.into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
        let Settings { tls_certificate_file, tls_key_file, tls_ca_file, .. } = &mut settings;
        for path in [tls_certificate_file, tls_key_file, tls_ca_file].into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
        Ok(settings)
    }

    /// Names and values that `matches`, for CONFIG GET: this table's names and those of Redis that mean the same.
    pub fn listed(&self, mut matches: impl FnMut(&str) -> bool) -> Vec<(&'static str, String)> {
        let own = ROWS.iter().filter(|row| matches(row.key)).map(|row| (row.key, row.text(self))).collect();
        let mut all = redis::listed(self, own, &mut matches);
        all.extend(compat::listed(&self.accepted, matches));
        all
    }

    /// The number that a name of Redis has which is accepted without effect on how data is kept; whether it is not Redis's default.
    pub(crate) fn accepted_number(&self, name: &str) -> (i64, bool) {
        (compat::number(&self.accepted, name), self.accepted.contains_key(name))
    }

    /// Whether it listens where other machines reach it, and refuses to do that without a password.
    pub fn is_protected(&self) -> bool {
        self.protected_mode && self.port != 0 && self.bind.iter().any(|address| !address.is_loopback())
    }

    /// The number of event loops: what is set, or one for each core that this process may use, by its affinity mask and by the
    /// processor time that its control group grants.
    pub fn loops_resolved(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.loops == 0 { cores() } else { self.loops }
    }

    /// The memory limit in bytes: what is set, or three quarters of `granted`; `None` means no limit.
    pub fn memory_limit_resolved(&self, granted_bytes: Option<u64>) -> Option<u64> {
        match self.memory_limit {
            MemoryLimit::Auto => granted_bytes.map(|bytes| bytes / 4 * 3),
            MemoryLimit::Bytes(0) => None,
            MemoryLimit::Bytes(bytes) => Some(bytes),
        }
    }

    /// Checks what no single row can: settings that contradict each other.
    ///
    /// # Errors
    /// [`SettingError::Conflict`] with the names of both settings; [`SettingError::Value`] of one that cannot be had as it is.
    pub fn check(&self) -> Result<(), SettingError> {
        if self.port == 0 && self.tls_port == 0 && self.unixsocket.is_none() {
            let why = "port = 0, tls.port = 0 and no unixsocket: nobody could connect";
            return Err(SettingError::Conflict(why.to_owned()));
        }
        if (self.port != 0 || self.tls_port != 0) && self.bind.is_empty() {
            let why = "bind is empty: set port = 0 to listen on unixsocket only";
            return Err(SettingError::Conflict(why.to_owned()));
        }
        self.check_places()?;
        self.check_tls()?;
        let pairs = [
            ("connections.input_max", self.connections_input_max.0),
            ("connections.output_max", self.connections_output_max.0),
            ("transaction.max", self.transaction_max.0),
        ];
        for (name, bytes) in pairs {
            if bytes < self.value_max.0 {
                let (most, own) = (table::size_text(self.value_max.0), table::size_text(bytes));
                return Err(SettingError::Conflict(format!(
                    "{name} = {own} is smaller than value.max = {most}: such a value could not be sent"
                )));
            }
        }
        Ok(())
    }

    /// What would fail at the start, and not by the setting's name.
    fn check_places(&self) -> Result<(), SettingError> {
        let all = self.bind.iter().find(|address| {
            let family = |other: &&IpAddr| other.is_ipv4() == address.is_ipv4();
            address.is_unspecified() && self.bind.iter().filter(family).count() > 1
        });
        if let Some(all) = all {
            let bind = self.bind.write();
            let why = format!("bind = {bind}: {all} includes every address: keep only it");
            return Err(SettingError::Value(why));
        }
        if let Some(path) = &self.unixsocket {
            let bytes = path.as_os_str().len();
            if bytes > UNIX_PATH_BYTES_MAX {
                let path = path.display();
                let why = format!("unixsocket = {path}: {UNIX_PATH_BYTES_MAX} B at most, this has {bytes}");
                return Err(SettingError::Value(why));
            }
        }
        if !self.journal_segment_size.0.is_multiple_of(SEGMENT_SIZE_STEP_BYTES) {
            let (size, step) = (self.journal_segment_size.0, table::size_text(SEGMENT_SIZE_STEP_BYTES));
            let why = format!("journal.segment_size = {size}: expected a multiple of {step}");
            return Err(SettingError::Value(why));
        }
        Ok(())
    }
}

/// What the system has room for in the address of a socket, its last zero left out.
const UNIX_PATH_BYTES_MAX: usize = 107;
/// Segments are written in sectors of this size.
const SEGMENT_SIZE_STEP_BYTES: u64 = 4096;
