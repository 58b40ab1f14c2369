//! Files of users: a line `user NAME RULE...` for each, as ACL LIST shows them and Redis writes them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use commands::lookup::Table;

use super::ALL_BYTES_MAX;
use super::user::{USER_BYTES_MAX, User};
use crate::clients::DEFAULT_USER;
use crate::settings::replace_file;

/// The users of a file.
#[derive(Clone, Debug)]
pub struct UserFile(Vec<User>);

/// Why a file of users was not taken, or not written.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// It cannot be read or written.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, std::io::Error),
    /// A line is wrong.
    #[error("{path}:{line}: {why}", path = .0.display(), line = .1, why = .2)]
    Line(PathBuf, usize, String),
}

impl UserFile {
    /// Reads the file; `table` has all commands, and with `all_channels` new users may use all channels.
    ///
    /// # Errors
    /// It cannot be read, is larger than 8 MiB, or a line is wrong: the first one.
    pub fn read(path: &Path, table: &'static Table, all_channels: bool) -> Result<Self, UserFileError> {
        let text = vfs::read_regular(path, FILE_BYTES_MAX)
            .map_err(|error| UserFileError::Io(path.to_owned(), error))?;
        let (mut users, mut names) = (Vec::new(), HashSet::new());
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: String| UserFileError::Line(path.to_owned(), index + 1, why);
            if line.len() > USER_BYTES_MAX {
                return Err(wrong(format!(
                    "a line of {} B is longer than the limit of {USER_BYTES_MAX} B",
                    line.len()
                )));
            }
            let mut words = line.split_ascii_whitespace().map(str::as_bytes);
            let Some(first) = words.next().filter(|word| !word.starts_with(b"#")) else { continue };
            if first != b"user" {
                return Err(wrong("a line begins with the word user, and a name".to_owned()));
            }
            let name = words.next().ok_or_else(|| wrong("there is no name".to_owned()))?;
            if !names.insert(name) {
                return Err(wrong(format!("the user '{}' is there twice", String::from_utf8_lossy(name))));
            }
            let user = User::new(name, table, all_channels).with_rules(words, all_channels);
            let user = user.map_err(|(rule, error)| {
                // a word that begins so is a password
                let is_secret = rule.starts_with(b">") || rule.starts_with(b"<");
                let shown = if is_secret { "a password".into() } else { String::from_utf8_lossy(&rule) };
                wrong(format!("{shown}: {error}"))
            })?;
            user.check_size().map_err(wrong)?;
            users.push(user);
        }
        Ok(Self(users))
    }

    /// Whether it says that connections have to say who they are.
    #[must_use]
    pub fn asks_for_password(&self) -> bool {
        self.0.iter().any(|user| *user.name == *DEFAULT_USER && !user.is_open())
    }

    pub(crate) fn into_users(self) -> Vec<User> {
        self.0
    }
}

/// Writes the file anew, with a line for each user: it is the former or the new one, whatever happens.
///
/// # Errors
/// It cannot be written; the former one is there.
pub(crate) fn write(path: &Path, lines: impl Iterator<Item = Vec<u8>>) -> Result<(), UserFileError> {
    let mut text = lines.collect::<Vec<_>>().join(&b'\n');
    text.push(b'\n');
    replace_file(path, &text).map_err(|error| UserFileError::Io(path.to_owned(), error))
}

const FILE_BYTES_MAX: u64 = ALL_BYTES_MAX as u64;
