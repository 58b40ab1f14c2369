//! The running server, for the commands that ask one: which one it is, and how they log in.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Args;
use connection::{Client, ClientError, Secured, Target};

use crate::failure::Failure;

/// The argument that names the server.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// The server.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "Server: redis://[user:password@]host[:port], or rediss:// for TLS; the password may be in REDISCLI_AUTH [default: EVENKEEL_URL in the environment, or else redis://127.0.0.1:6379]"
    )]
    url: Option<Target>,
    #[command(flatten)]
    secure: Secure,
}

/// How a server is reached by TLS, as redis-cli names it.
#[derive(Debug, Args)]
pub(crate) struct Secure {
    /// Use TLS, as with rediss://
    #[arg(long, global = true)]
    tls: bool,
    /// File of the CA that the server's certificate is to be of [default: those that Mozilla trusts]
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// File of the client's own certificate
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// File of its key
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Take any certificate of the server
    #[arg(long, global = true)]
    insecure: bool,
}

impl Secure {
    /// Whether any of it was given.
    fn is_given(&self) -> bool {
        self.tls || self.insecure || self.cacert.is_some() || self.cert.is_some()
    }

    /// What was given, over what `before` says; for a server called `host` otherwise. `None`: plain.
    pub(crate) fn over(&self, before: Option<Secured>, host: &str) -> Option<Secured> {
        if before.is_none() && !self.is_given() {
            return None;
        }
        let before = before.unwrap_or_else(|| Secured::of(host));
        Some(Secured {
            ca: self.cacert.clone().or(before.ca),
            cert: self.cert.clone().or(before.cert),
            key: self.key.clone().or(before.key),
            trusts_anybody: self.insecure || before.trusts_anybody,
            host: before.host,
        })
    }
}

impl Server {
    /// The server that is meant: the variable is read only where a server is asked.
    ///
    /// # Errors
    /// One line: EVENKEEL_URL names none.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let target = self.url.clone().map_or_else(default_target, Ok)?;
        Ok(target.secured_by(|before, host| self.secure.over(before, host)))
    }
}

/// The server that is meant where no argument names one: the one that components use then, too.
///
/// # Errors
/// One line: EVENKEEL_URL names none.
pub(crate) fn default_target() -> Result<Target, Failure> {
    let found = components::default_target(&variable);
    found.map_err(|error| Failure::Usage(format!("EVENKEEL_URL: {error}")))
}

/// Has this process reach the server at `url` where no argument names one, in place of that of the environment: others can read the environment.
pub(crate) fn set_url(url: &str) {
    let _ = URL.set(Some(url.to_owned()));
}

/// Where this process reaches the server, with a password that is for it alone, if it was told.
pub(crate) fn own_url() -> Option<&'static str> {
    let handed = || processes::handed_over(&std::env::var(URL_DESCRIPTOR).ok()?).ok();
    URL.get_or_init(handed).as_deref()
}

/// A variable of the environment, but for what this process was told by other ways.
pub(crate) fn variable(name: &str) -> Option<String> {
    let own = own_url().filter(|_| name == "EVENKEEL_URL").map(str::to_owned);
    own.or_else(|| std::env::var(name).ok())
}

/// Connects to a server and logs in: with what the address says, or with the password in `REDISCLI_AUTH`, as redis-cli does.
///
/// # Errors
/// One line.
pub(crate) fn connect(target: &Target) -> Result<Client, Failure> {
    let mut client = Client::connect(target)?;
    if target.login().is_empty() {
        log_in(&mut client)?;
    }
    Ok(client)
}

/// Sends the password of the environment, if there is one. A server without a password takes whoever comes: that is told, and no
/// failure, as with redis-cli.
///
/// # Errors
/// One line.
pub(crate) fn log_in(client: &mut Client<impl Read + Write>) -> Result<(), Failure> {
    let Some(password) = std::env::var_os("REDISCLI_AUTH") else { return Ok(()) };
    match client.call_bytes(&[b"AUTH", password.as_encoded_bytes()]) {
        Err(ClientError::Refused(text)) if text.contains(NO_PASSWORD) => {
            eprintln!("the server has no password: REDISCLI_AUTH is not used");
            Ok(())
        }
        result => result.map(|_| ()).map_err(Failure::from),
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::NotRedis(_) => Self::Place(error.to_string()),
            ClientError::Refused(text) if text.starts_with("NOAUTH") => Self::Refused(
                "the server wants a password: set it in the environment as REDISCLI_AUTH".to_owned(),
            ),
            ClientError::Refused(_) => Self::Refused(error.to_string()),
            _ => Self::NoServer(error.to_string()),
        }
    }
}

/// In the answer to AUTH of a server that has no password.
const NO_PASSWORD: &str = "called without any password configured";
static URL: OnceLock<Option<String>> = OnceLock::new();
/// The descriptor that a component reads its server's URL from.
pub(crate) const URL_DESCRIPTOR: &str = "EVENKEEL_URL_FD";
