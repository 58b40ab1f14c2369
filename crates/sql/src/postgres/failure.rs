//! How a server says no, and how one falls silent: what every connection to PostgreSQL makes of an error.

use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::{Config, Error};

/// How something that was asked of a server failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server said no, with this code: nothing of it was done.
    Refused(SqlState, String),
    /// The connection is gone, perhaps after it was done.
    Lost(String),
}

impl Failure {
    /// What happened, in words.
    pub(crate) fn text(self) -> String {
        let (Self::Refused(_, text) | Self::Lost(text)) = self;
        text
    }
}

/// An `ERROR` rolls the statement's transaction back; a `FATAL` ends the backend, perhaps after the commit.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let said = error.as_db_error();
        match said.filter(|said| said.parsed_severity() == Some(Severity::Error)) {
            Some(said) => Self::Refused(said.code().clone(), text(&error)),
            None => Self::Lost(text(&error)),
        }
    }
}

/// Where, for messages: without user and password.
pub(crate) fn place(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("PostgreSQL at {hosts}:{port}, database {}", config.get_dbname().unwrap_or("of the user's name"))
}

/// What went wrong, with the server's advice or with what lies below.
pub(crate) fn text(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let advice = said.hint().map_or(String::new(), |hint| format!("; {hint}"));
        return format!("{}: {} ({}){advice}", said.severity(), message(said), said.code().code());
    }
    let mut text = error.to_string();
    let mut below = std::error::Error::source(error);
    while let Some(cause) = below {
        text = format!("{text}: {cause}");
        below = cause.source();
    }
    text
}

/// A message quotes what it complains of: as much of it as serves.
fn message(said: &DbError) -> &str {
    let text = said.message();
    &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

const MESSAGE_BYTES_MAX: usize = 1_024;
