//! Why a handler wrote no reply, and error texts that several commands answer with.

use std::borrow::Cow;
use std::time::Duration;

use clock::Nanos;
use resp::Args;
use store::Stop;

use crate::copies::Splice;
use crate::ready::Wants;

/// How a command waits for an element.
#[derive(Debug)]
pub(crate) struct Wait {
    /// How long; `None`: for ever.
    pub(crate) timeout: Option<Duration>,
    pub(crate) wants: Wants,
    /// What it is run again with, if not with its own arguments.
    pub(crate) again: Option<Args>,
    /// When there will be something without a change, as time passes.
    pub(crate) ripe_in: Option<Duration>,
}

/// The reply is written, or why not.
pub(crate) type Outcome = Result<(), Failure>;

/// Why a handler wrote no reply.
#[derive(Debug)]
pub(crate) enum Failure {
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

/// Error texts that several commands answer with.
pub(crate) mod text {
    pub(crate) const SYNTAX: &str = "ERR syntax error";
    /// Nobody is answered so: each command of a series is to run by itself.
    pub(crate) const BY_ITSELF: &str = "ERR each of these commands runs by itself";
    pub(crate) const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
    pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";
    pub(crate) const NO_SUCH_KEY: &str = "ERR no such key";
    pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    pub(crate) const DB_RANGE: &str = "ERR DB index is out of range";
    pub(crate) const OVERFLOW: &str = "ERR increment or decrement would overflow";
    pub(crate) const OUT_OF_RANGE: &str = "ERR value is out of range";
    pub(crate) const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
}
