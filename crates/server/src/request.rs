//! A request, as it was received.

use clock::Nanos;
use resp::{Args, ArgsView};
use store::{Foreseen, Moment};

use crate::capture::recorder::Recorder;
use crate::capture::what::Asked;

/// A request and where it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) args: ArgsView<'a>,
    /// What is known of the argument at [`Request::FORESEEN_ARG`] as a key.
    pub(crate) foreseen: Option<Foreseen>,
    /// Its size as received.
    pub(crate) bytes: usize,
    /// What was received behind it.
    pub(crate) behind: &'a [u8],
    pub(crate) loop_index: usize,
    /// Monotonic time, fresh.
    pub(crate) now: Nanos,
    /// The same moment as the store counts.
    pub(crate) moment: Moment,
    /// Where it is recorded, while somebody captures.
    pub(crate) recorder: Option<&'a Recorder>,
}

impl<'a> Request<'a> {
    /// Nearly every command that has keys has its first one there.
    pub(crate) const FORESEEN_ARG: usize = Asked::FORESEEN_ARG;

    /// What a capture records of it.
    #[inline]
    pub(crate) fn asked(&self) -> Asked<'a> {
        Asked { args: self.args, foreseen: self.foreseen, bytes: self.bytes }
    }
}

/// A request that is parsed and has not run, or is to run again.
#[derive(Debug, Default)]
pub(crate) struct ParsedRequest {
    /// Its size as received.
    pub(crate) bytes: usize,
    pub(crate) args: Args,
    /// [`Request::foreseen`].
    pub(crate) foreseen: Option<Foreseen>,
    /// It has the name and the key of the one before it.
    pub(crate) follows: bool,
}

/// Requests that may run as one, or one by itself.
#[derive(Clone, Copy)]
pub(crate) struct Series<'a> {
    /// The first one, with the bytes of all.
    pub(crate) first: Request<'a>,
    /// The arguments of each.
    pub(crate) requests: &'a [ArgsView<'a>],
}

impl<'a> Series<'a> {
    /// Of a request that runs by itself; `args` are its arguments.
    pub(crate) fn of_one(first: &Request<'a>, args: &'a [ArgsView<'a>; 1]) -> Self {
        Self { first: *first, requests: args }
    }
}
