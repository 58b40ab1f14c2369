//! One request of a running server, for the commands that ask one: blocking, and as long as the answer takes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;

use clap::Args;
use connection::{Protocol, Target};
use resp::Value;

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
#[expect(clippy::disallowed_methods, reason = "a client, not the server: one blocking connection")]
pub(crate) fn connect(target: &Target) -> Result<TcpStream, Failure> {
    if target.protocol != Protocol::Resp {
        return Err(Failure::Place(format!("{target} does not speak the Redis protocol")));
    }
    let mut stream = TcpStream::connect(target.address)
        .map_err(|error| Failure::NoServer(format!("no server answers at {target}: {error}")))?;
    let login = target.login();
    if login.is_empty() {
        log_in(&mut stream)?;
    }
    for command in login {
        exchange(&mut stream, command.as_bytes())?;
    }
    Ok(stream)
}

/// Sends the password of the environment, if there is one.
///
/// # Errors
/// One line.
pub(crate) fn log_in(stream: &mut (impl Read + Write)) -> Result<(), Failure> {
    let Some(password) = std::env::var_os("REDISCLI_AUTH") else { return Ok(()) };
    call(stream, &[b"AUTH", password.as_encoded_bytes()]).map(drop)
}

/// Sends a command and waits for its answer.
///
/// # Errors
/// One line: what the server refused, or how the connection ended.
pub(crate) fn call(stream: &mut (impl Read + Write), args: &[&[u8]]) -> Result<Value, Failure> {
    let mut request = Vec::new();
    resp::encode_command(&mut request, args);
    exchange(stream, &request)
}

fn exchange(stream: &mut (impl Read + Write), request: &[u8]) -> Result<Value, Failure> {
    let lost = |error: std::io::Error| Failure::NoServer(format!("the server went away: {error}"));
    stream.write_all(request).map_err(lost)?;
    let (mut reply, mut end) = (Vec::new(), resp::ValueEnd::default());
    let mut chunk = vec![0; 64 << 10];
    let garbage = |error| Failure::NoServer(format!("the server answered something else: {error}"));
    while end.find(&reply).map_err(garbage)?.is_none() {
        match stream.read(&mut chunk).map_err(lost)? {
            0 => {
                let text = "the server closed the connection without an answer; see its log";
                return Err(Failure::NoServer(text.to_owned()));
            }
            len => reply.extend_from_slice(&chunk[..len]),
        }
    }
    match resp::decode_value(&reply).map_err(garbage)? {
        Some((Value::Error(text), _)) => Err(refusal(&String::from_utf8_lossy(&text))),
        Some((value, _)) => Ok(value),
        None => unreachable!("its end was found"),
    }
}

static URL: OnceLock<Option<String>> = OnceLock::new();
/// The descriptor that a component reads its server's URL from.
pub(crate) const URL_DESCRIPTOR: &str = "EVENKEEL_URL_FD";

fn refusal(text: &str) -> Failure {
    if text.starts_with("NOAUTH") {
        let text = "the server wants a password: set it in the environment as REDISCLI_AUTH";
        return Failure::Refused(text.to_owned());
    }
    Failure::Refused(format!("the server refused: {text}"))
}
