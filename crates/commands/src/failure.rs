//! Why a handler wrote no reply, and error texts that several commands answer with.

use std::borrow::Cow;
use std::time::Duration;

use clock::Nanos;
use resp::Args;
use store::Stop;

use crate::copies::Splice;
use crate::ready::Wants;
use crate::words::{ECHO_BYTES_MAX, shortened};

/// How a command waits for an element.
#[derive(Debug)]
pub struct Wait {
    /// How long; `None`: for ever.
    pub timeout: Option<Duration>,
    /// What it wants.
    pub wants: Wants,
    /// What it is run again with, if not with its own arguments.
    pub again: Option<Args>,
    /// When there will be something without a change, as time passes.
    pub ripe_in: Option<Duration>,
}

/// The reply is written, or why not.
pub type Outcome = Result<(), Failure>;

/// Why a handler wrote no reply.
#[derive(Debug)]
pub enum Failure {
    /// Answer with this error; the text starts with its code.
    Error(Cow<'static, str>),
    /// The same, with bytes of the client in it.
    Bytes(Vec<u8>),
    /// The store could not do it now, or at all.
    Stop(Stop),
    /// Unlock, make this, and call again.
    Make(Splice),
    /// Call again with these keys claimed, too.
    Keys(Vec<(u16, Box<[u8]>)>),
    /// Call again at this time, or when woken.
    Wait(Nanos),
    /// It found nothing, and waits for something.
    Blocked(Box<Wait>),
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Failure::Stop(stop)
    }
}

impl From<store::WrongType> for Failure {
    fn from(_: store::WrongType) -> Self {
        text::WRONG_TYPE.into()
    }
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Failure::Error(Cow::Borrowed(text))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Error(Cow::Owned(text))
    }
}

/// Too few or too many arguments.
pub fn arity(name: &str) -> Failure {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// A subcommand that takes no such arguments.
pub fn sub_syntax(container: &str, name: &[u8]) -> Failure {
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    text.extend_from_slice(shortened(name, ECHO_BYTES_MAX));
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    Failure::Bytes(text)
}

/// A command found more to answer than a connection may hold.
pub fn reply_too_large(most_bytes: usize) -> Failure {
    format!("ERR the reply would be larger than connections.output_max ({most_bytes} B)").into()
}

/// Error texts that several commands answer with.
pub mod text {
    #![expect(missing_docs, reason = "each says what it is for")]

    pub const SYNTAX: &str = "ERR syntax error";
    /// Nobody is answered so: each command of a series is to run by itself.
    pub(crate) const BY_ITSELF: &str = "ERR each of these commands runs by itself";
    pub const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    pub const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
    pub const NOT_FLOAT: &str = "ERR value is not a valid float";
    pub const NO_SUCH_KEY: &str = "ERR no such key";
    pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    pub const DB_RANGE: &str = "ERR DB index is out of range";
    pub const OVERFLOW: &str = "ERR increment or decrement would overflow";
    pub const OUT_OF_RANGE: &str = "ERR value is out of range";
    pub const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
}
