//! The running server, for the commands that ask one: which one it is, and how they log in.

use std::io::{Read, Write};
use std::sync::OnceLock;

use clap::Args;
use connection::{Client, ClientError, Target};

use crate::failure::Failure;

/// The argument that names the server.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// The server.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "Server: redis://[user:password@]host[:port]; the password may be in REDISCLI_AUTH [default: EVENKEEL_URL in the environment, or else redis://127.0.0.1:6379]"
    )]
    url: Option<Target>,
}

impl Server {
    /// The server that is meant: the variable is read only where a server is asked.
    ///
    /// # Errors
    /// One line: EVENKEEL_URL names none.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        self.url.clone().map_or_else(default_target, Ok)
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
