//! Settings of a running server: read by everybody, changed by CONFIG SET, written back by CONFIG REWRITE.
//!
//! Readers take an `Arc` and keep it as long as they like. A change is checked, handed to the one who must act on
//! it (the binary's hook), and only then visible; several settings change together or not at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use thiserror::Error;

use super::compat;
use super::redis::Alias;
use super::table::Row;
use super::{FileError, Secret, SettingError, Settings};

/// The settings in force.
pub struct Config {
    current: RwLock<Arc<Settings>>,
    generation: AtomicU64,
    /// One change at a time, from check to act.
    changing: Mutex<Option<Hook>>,
    file: Option<PathBuf>,
    /// The password that was read from `requirepass_file` last: it stays there.
    filed_password: Mutex<Option<Secret>>,
    /// The password that the server was started with.
    first_password: Secret,
}

/// Acts on a change: former settings, new settings. An error refuses the change.
type Hook = Box<dyn Fn(&Settings, &Settings) -> Result<(), SettingError> + Send>;

/// Why CONFIG SET changed nothing. The text is what the client is told, without `ERR `.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// No setting has this name.
    #[error("Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// The setting holds from start to stop.
    #[error("CONFIG SET failed (possibly related to argument '{0}') - can't set immutable config")]
    Immutable(String),
    /// The same setting twice in one command.
    #[error("CONFIG SET failed (possibly related to argument '{0}') - duplicate parameter")]
    Duplicate(String),
    /// A value that the setting does not take, or not now.
    #[error("CONFIG SET failed (possibly related to argument '{name}') - {why}")]
    Refused {
        /// The name as the client gave it.
        name: String,
        /// What was expected.
        why: String,
    },
}

/// Why CONFIG REWRITE wrote nothing. The text is what the client is told, without `ERR `.
#[derive(Debug, Error)]
pub enum RewriteError {
    /// The server was started without a file.
    #[error("The server is running without a config file")]
    NoFile,
    /// The file has become unreadable as settings.
    #[error("Rewriting config file: {0}")]
    File(#[from] FileError),
    /// Reading or writing it failed.
    #[error("Rewriting config file: {0}")]
    Io(#[from] std::io::Error),
    /// It cannot be replaced.
    #[error(
        "Rewriting config file: {0}; the server must be allowed to write to the folder of {1}: a new file takes the place of the \
         former one (under systemd: ReadWritePaths= of the unit, and a folder that belongs to its User=)"
    )]
    Unwritable(std::io::Error, PathBuf),
    /// The password would be written where others may read it.
    #[error(
        "Rewriting config file: the password was changed by CONFIG SET, and is not written to {file} in plain text: write it to \
         {place}, and send SIGHUP or set it back; then rewrite again"
    )]
    Password {
        /// The settings file.
        file: PathBuf,
        /// Where the password belongs.
        place: String,
    },
}

impl Config {
    /// Starts with `settings`, which came from `file` if there was one.
    pub fn new(settings: Settings, file: Option<PathBuf>) -> Self {
        Config {
            filed_password: Mutex::new(
                settings.requirepass_file.is_some().then(|| settings.requirepass.clone()),
            ),
            first_password: settings.requirepass.clone(),
            current: RwLock::new(Arc::new(settings)),
            generation: AtomicU64::new(0),
            changing: Mutex::new(None),
            file,
        }
    }

    /// The settings in force now.
    pub fn current(&self) -> Arc<Settings> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The file that it was read from, if any.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Grows with every change: whoever keeps a copy compares this, which is one load.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Sets who acts on changes; it sees the former and the new settings before anybody else does.
    pub fn on_change(
        &self,
        hook: impl Fn(&Settings, &Settings) -> Result<(), SettingError> + Send + 'static,
    ) {
        *self.changing.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    /// Takes the password that `requirepass_file` has now; says whether it is another one than was in force.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub fn renew_password(&self, password: &Secret) -> Result<bool, ChangeError> {
        let is_new = self.current().requirepass != *password;
        if is_new {
            self.change(&[("requirepass", password.reveal().unwrap_or_default())])?;
        }
        *self.filed_password.lock().unwrap_or_else(PoisonError::into_inner) = Some(password.clone());
        Ok(is_new)
    }

    /// Changes several settings, named in our spelling or Redis's, all or none.
    ///
    /// # Errors
    /// [`ChangeError`] with the first name that stands in the way; nothing has changed then.
    pub fn change(&self, pairs: &[(&str, &str)]) -> Result<(), ChangeError> {
        let hook = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let former = self.current();
        let mut settings = Settings::clone(&former);
        let mut seen: Vec<&str> = Vec::new();
        for (name, text) in pairs {
            let Some(key) = change_one(&mut settings, name, text)? else { continue };
            if seen.contains(&key) {
                return Err(ChangeError::Duplicate((*name).to_owned()));
            }
            seen.push(key);
            settings.tls_set_count += u64::from(key.starts_with("tls."));
        }
        let refused = |error: SettingError| ChangeError::Refused {
            name: pairs.first().map_or("", |pair| pair.0).to_owned(),
            why: error.to_string(),
        };
        settings.check().map_err(refused)?;
        if let Some(hook) = hook.as_ref() {
            hook(&former, &settings).map_err(refused)?;
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// What CONFIG SET does with the words of a command: [`Config::change`].
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub fn set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Arc<Settings>, ChangeError> {
        let names: Vec<_> = pairs.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        let mut words = Vec::with_capacity(pairs.len());
        for ((_, text), name) in pairs.iter().zip(&names) {
            // another value than was asked for would be set, and nobody knew which
            let why = || "the value is not UTF-8".to_owned();
            let refused = |_| ChangeError::Refused { name: name.clone().into_owned(), why: why() };
            words.push((name.as_ref(), std::str::from_utf8(text).map_err(refused)?));
        }
        self.change(&words)?;
        Ok(self.current())
    }

    /// What CONFIG GET lists: names that `matches`, ours and Redis's, with their values.
    pub fn get(&self, matches: impl FnMut(&str) -> bool) -> Vec<(&'static str, String)> {
        self.current().listed(matches)
    }

    /// Writes the settings in force into the file that the server was started with; comments stay. Paths are written from
    /// the root: a relative one was meant in the folder that this server was started in, which the next one need not be.
    ///
    /// Returns what has changed in the file, old values and new ones; never a secret.
    ///
    /// # Errors
    /// [`RewriteError`]; the file is as it was then.
    pub fn rewrite(&self) -> Result<Vec<String>, RewriteError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.file.as_ref().ok_or(RewriteError::NoFile)?;
        let mut settings = self.current().with_absolute_paths()?;
        let filed = self.filed_password.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused = |place: String| RewriteError::Password { file: path.clone(), place };
        match (filed, &settings.requirepass_file) {
            (Some(password), _) if password == settings.requirepass => {
                settings.requirepass = Secret::default();
            }
            (_, Some(file)) => return Err(refused(format!("requirepass_file = {}", file.display()))),
            (_, None) if settings.requirepass != self.first_password => {
                let place = "a file that only the server may read, name that as requirepass_file in the settings file, and \
                             restart it";
                return Err(refused(place.to_owned()));
            }
            // From the file, or from a flag, which the next start gets as well: the file keeps what it says.
            _ => {
                let mut said = Settings::default();
                said.apply_toml(&vfs::read_regular(path, FILE_BYTES_MAX)?)?;
                settings.requirepass = said.requirepass;
            }
        }
        let before = vfs::read_regular(path, FILE_BYTES_MAX)?;
        let text = settings.rewritten(&before)?;
        replace_file(path, text.as_bytes()).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                RewriteError::Unwritable(error, path.clone())
            }
            _ => error.into(),
        })?;
        Ok(settings.changes_since(&before))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("settings", &self.current())
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// Changes one setting; returns its key, or `None` for a name whose answer is fixed.
fn change_one(settings: &mut Settings, name: &str, text: &str) -> Result<Option<&'static str>, ChangeError> {
    let refused =
        |error: SettingError| ChangeError::Refused { name: name.to_owned(), why: error.to_string() };
    let lower = name.to_ascii_lowercase();
    let (row, text) = match (Row::find(&lower), Alias::find(&lower)) {
        (Some(row), _) => (row, text.to_owned()),
        (None, Some(alias)) => {
            let text = alias.translated(text).map_err(refused)?;
            let Some(key) = alias.key else { return Ok(None) };
            (Row::find(key).ok_or_else(|| ChangeError::Unknown(name.to_owned()))?, text)
        }
        (None, None) => {
            let accepted = compat::Row::find(&lower).ok_or_else(|| ChangeError::Unknown(name.to_owned()))?;
            let why = |why| refused(SettingError::Value(format!("{why}")));
            accepted.set(&mut settings.accepted, text).map_err(why)?;
            return Ok(Some(accepted.key()));
        }
    };
    let before = row.text(settings);
    row.set(settings, &text).map_err(refused)?;
    // Tools set what is already so; that is no change, whatever the row allows.
    if !row.runtime && row.text(settings) != before {
        return Err(ChangeError::Immutable(name.to_owned()));
    }
    Ok(Some(row.key))
}

/// Puts `text` in the place of the file at `path`, if there is one, by way of a new file: it is the former or the new one, never half.
#[expect(
    clippy::disallowed_methods,
    reason = "a settings file is the user's, outside of the data that a simulation owns"
)]
pub(crate) fn replace_file(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // A link stays one: what it leads to is replaced.
    let path = match std::fs::canonicalize(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => std::path::absolute(path)?,
        found => found?,
    };
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = (|| {
        let _ = std::fs::remove_file(&new);
        // Nobody else reads it before it has the former one's permissions, and no link is followed.
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        if let Ok(former) = std::fs::metadata(&path) {
            file.set_permissions(former.permissions())?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
    })();
    if written.is_err() {
        // Half a copy, perhaps of a password, is not left behind.
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// A hundred times what all settings take with their comments.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(Settings::default(), None)
    }

    #[test]
    fn several_settings_change_together_or_not_at_all() {
        let config = config();
        let error =
            config.change(&[("connections.max", "5"), ("slowlog.length_max", "x")]).expect_err("refused");
        assert!(error.to_string().contains("'slowlog.length_max'"), "{error}");
        assert_eq!(config.current().connections_max, 10_000);
        config.change(&[("maxclients", "5"), ("timeout", "60")]).expect("both are right");
        assert_eq!(config.current().connections_max, 5);
        assert_eq!(config.current().connections_idle_timeout.as_secs(), 60);
        assert_eq!(config.generation(), 1);
    }

    #[test]
    fn what_holds_from_start_to_stop_is_not_changed() {
        let config = config();
        assert_eq!(config.change(&[("port", "1")]), Err(ChangeError::Immutable("port".to_owned())));
        assert_eq!(config.change(&[("port", "6379"), ("save", ""), ("appendonly", "yes")]), Ok(()));
        assert!(matches!(config.change(&[("save", "60 1")]), Err(ChangeError::Refused { .. })));
    }

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        let config = config();
        assert_eq!(config.change(&[("x", "1")]), Err(ChangeError::Unknown("x".to_owned())));
        let twice = config.change(&[("maxclients", "1"), ("connections.max", "2")]);
        assert_eq!(twice, Err(ChangeError::Duplicate("connections.max".to_owned())));
    }

    #[test]
    fn a_change_that_cannot_be_acted_on_is_refused() {
        let config = config();
        config.on_change(|_, new| match new.connections_max {
            101.. => Err(SettingError::Value("too many files".to_owned())),
            _ => Ok(()),
        });
        assert!(config.change(&[("maxclients", "1000")]).is_err());
        assert_eq!(config.change(&[("maxclients", "10")]), Ok(()));
        assert_eq!(config.current().connections_max, 10);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a settings file is the user's, as above")]
    fn a_rewrite_goes_through_a_link_and_keeps_who_may_read() {
        // The link itself was replaced by a file, and what it led to kept the old settings.
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let (real, link) = (folder.path().join("real.toml"), folder.path().join("link.toml"));
        std::fs::write(&real, "# mine\ndir = '/data'\nconnections.max = 5\n").expect("written");
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).expect("set");
        std::os::unix::fs::symlink("real.toml", &link).expect("linked");
        let settings = Settings { dir: "/data".into(), ..Settings::default() };
        let config = Config::new(settings, Some(link.clone()));
        config.change(&[("maxclients", "7")]).expect("changed");
        config.rewrite().expect("rewritten");
        assert!(std::fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(
            std::fs::read_to_string(&real).expect("text"),
            "# mine\ndir = '/data'\nconnections.max = 7\n"
        );
        assert_eq!(std::fs::metadata(&real).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a settings file is the user's, as above")]
    fn a_rewrite_names_the_folders_of_this_server_wherever_the_next_one_starts() {
        // `dir` stayed relative, or unsaid: a start from elsewhere served an empty folder.
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("evenkeel.toml");
        let here = std::env::current_dir().expect("a working directory").display().to_string();
        for (said, expected) in [
            ("", format!("# Added by CONFIG REWRITE\ndir = \"{here}/evenkeel-data\"\n\n")),
            ("dir = 'data' # mine\n", format!("dir = \"{here}/data\" # mine\n")),
            ("dir = '/data'\nunixsocket = 's'\n", format!("dir = '/data'\nunixsocket = \"{here}/s\"\n")),
        ] {
            std::fs::write(&file, said).expect("written");
            let mut settings = Settings::default();
            settings.apply_toml(said).expect("right");
            let config = Config::new(settings, Some(file.clone()));
            config.rewrite().expect("rewritten");
            assert_eq!(std::fs::read_to_string(&file).expect("text"), expected);
            config.rewrite().expect("rewritten");
            assert_eq!(std::fs::read_to_string(&file).expect("text"), expected, "once more");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a settings file is the user's, as above")]
    fn a_rewrite_leaves_the_password_in_the_file_it_came_from() {
        // The password was copied out of its file into that of the settings, and a start with both is refused.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("settings.toml");
        std::fs::write(&path, "requirepass_file = \"/run/password\"\n").expect("written");
        let mut settings = Settings::default();
        settings.apply_toml(&std::fs::read_to_string(&path).expect("readable")).expect("right");
        settings.set("requirepass", "secret").expect("any text");
        let config = Config::new(settings, Some(path.clone()));
        config.rewrite().expect("rewritten");
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.contains("requirepass_file = \"/run/password\"") && !text.contains("secret"), "{text}");

        // It was written in plain text into a file that everybody may read, and `requirepass_file` was emptied.
        config.change(&[("requirepass", "changed")]).expect("allowed");
        let error = config.rewrite().expect_err("refused").to_string();
        assert!(
            error.contains("requirepass_file = /run/password") && !error.contains("changed by \""),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), text, "as it was");
        assert_eq!(
            config.renew_password(&settings_password("changed")),
            Ok(false),
            "it was written to its file"
        );
        config.rewrite().expect("rewritten");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), text);
        assert_eq!(config.renew_password(&settings_password("newer")), Ok(true));
        assert_eq!(config.current().requirepass.reveal(), Some("newer"));
        config.rewrite().expect("rewritten");
    }

    fn settings_password(password: &str) -> Secret {
        let mut settings = Settings::default();
        settings.set("requirepass", password).expect("any text");
        settings.requirepass
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a settings file is the user's, as above")]
    fn a_rewrite_writes_no_password_that_config_set_gave() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("settings.toml");
        for (said, password) in [("", ""), ("", "flag"), ("requirepass = \"first\"\n", "first")] {
            std::fs::write(&path, said).expect("written");
            let mut settings = Settings::default();
            settings.apply_toml(said).expect("right");
            settings.set("requirepass", password).expect("any text");
            let config = Config::new(settings, Some(path.clone()));
            config.rewrite().expect("what the file says is no secret from it");
            let before = std::fs::read_to_string(&path).expect("readable");
            assert!(!before.contains("flag"), "{before}");
            config.change(&[("requirepass", "changed")]).expect("allowed");
            let error = config.rewrite().expect_err("refused").to_string();
            assert!(error.contains("name that as requirepass_file in the settings file"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("readable"), before, "as it was");
            config.change(&[("requirepass", password)]).expect("allowed");
            config.rewrite().expect("it is the one that the file says");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a settings file is the user's, as above")]
    fn a_rewrite_follows_no_link_where_its_new_file_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, victim) = (folder.path().join("settings.toml"), folder.path().join("victim"));
        std::fs::write(&path, "port = 1\n").expect("written");
        std::fs::write(&victim, "mine").expect("written");
        std::os::unix::fs::symlink(&victim, folder.path().join("settings.toml.new")).expect("linked");
        let settings = Settings { port: 1, dir: "/data".into(), ..Settings::default() };
        Config::new(settings, Some(path.clone())).rewrite().expect("rewritten");
        assert_eq!(std::fs::read_to_string(&victim).expect("readable"), "mine");
        assert!(std::fs::read_to_string(&path).expect("readable").contains("/data"));
    }

    #[test]
    fn without_a_file_there_is_nothing_to_rewrite() {
        assert_eq!(config().rewrite().map_err(|e| e.to_string()), Err(RewriteError::NoFile.to_string()));
    }
}
