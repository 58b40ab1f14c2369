//! A bolt that asks a server for each tuple: requests in a pipeline, and the tuple is finished by the reply.
//!
//! Invariants
//!   1. A tuple is acknowledged after the reply to its request, or it fails: with an error of the server's, or because the connection was lost.
//!   2. What is under way has the bounds of [`crate::line`].
//!
//! A tuple whose connection is lost may have been done: it is asked for again. What must not count twice has a key of its own.

use std::time::Duration;

use bytes::Bytes;
use connection::{Event, Target};
use resp::Value as Reply;
use topology::changes::Command;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt};
use crate::line::Line;
use crate::row::URL;

/// What is asked for a tuple, and what becomes of the answers.
pub(crate) trait Ask: Send {
    /// What is kept of a tuple until its last reply.
    type Kept: Send;

    /// Appends the requests, at least one.
    ///
    /// # Errors
    /// There is none for this tuple, which fails.
    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Self::Kept, Fault>;

    /// What is emitted for the reply to the request at `place`, which is no error.
    ///
    /// # Errors
    /// The reply is not what was asked for: the tuple fails.
    fn reply(&mut self, kept: &mut Self::Kept, place: usize, reply: Reply) -> Result<Option<Values>, Fault>;
}

/// Requests of one tuple.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

/// A bolt with exactly-once whose requests are part of the epoch: what the server answers is not told.
#[derive(Debug)]
pub(crate) struct Writing<A: Ask> {
    ask: A,
    requests: Requests,
}

impl Requests {
    /// Appends a request of these words.
    pub(crate) fn push<A: AsRef<[u8]>>(&mut self, words: &[A]) {
        resp::encode_command(&mut self.bytes, words);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The words of each request.
    fn commands(&self) -> impl Iterator<Item = Command> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let Ok(Some((Reply::Array(words), size))) = resp::decode_value(rest) else { return None };
            rest = &rest[size..];
            let word = |word| if let Reply::Bulk(word) = word { Bytes::from(word) } else { Bytes::new() };
            Some(words.into_iter().map(word).collect())
        })
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is kept of a tuple whose requests are under way.
#[derive(Debug)]
struct Open<K> {
    kept: K,
    /// Requests, and how many have a reply.
    requests: usize,
    replies: usize,
    /// What went wrong first.
    fault: Option<Fault>,
}

/// Which server, and how much at a time.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) target: Target,
    pub(crate) pipeline: usize,
}

/// The bolt.
#[derive(Debug)]
pub(crate) struct Asking<A: Ask> {
    ask: A,
    line: Line<Open<A::Kept>>,
    requests: Requests,
}

impl Server {
    /// The server that `arguments` name.
    ///
    /// # Errors
    /// They name none.
    pub(crate) fn read(arguments: &Arguments) -> Result<Self, CommandError> {
        let target = target(arguments)?;
        let pipeline = arguments.number(PIPELINE.name).unwrap_or(1_000) as usize;
        Ok(Self { target, pipeline })
    }
}

/// The server that `--url` names.
///
/// # Errors
/// It names none that speaks the Redis protocol.
pub(crate) fn target(arguments: &Arguments) -> Result<Target, CommandError> {
    target_at(arguments.text(URL).unwrap_or_default())
}

/// The server at `url`.
///
/// # Errors
/// There is none that speaks the Redis protocol.
pub(crate) fn target_at(url: &str) -> Result<Target, CommandError> {
    let target = url.parse::<Target>().map_err(|error| error.to_string())?;
    if target.protocol != connection::Protocol::Resp {
        return Err(format!("{target} does not speak the Redis protocol").into());
    }
    Ok(target)
}

impl<A: Ask> Asking<A> {
    pub(crate) fn new(ask: A, server: Server) -> Self {
        Self { ask, line: Line::new(server), requests: Requests::default() }
    }

    fn on_reply(&mut self, reply: Reply, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let Some((tuple, open)) = self.line.open.front_mut() else { return Ok(()) };
        let place = open.replies;
        open.replies += 1;
        let result = match reply {
            Reply::Error(text) => Err(refusal(&text)),
            reply => self.ask.reply(&mut open.kept, place, reply),
        };
        let anchors = &[*tuple];
        let emitted = result.and_then(|values| match values.filter(|_| open.fault.is_none()) {
            None => Ok(()),
            Some(values) => {
                let tuple = Outgoing { stream: DEFAULT_STREAM, values, anchors, direct: None };
                out.send(tuple).map_err(Fault::from)
            }
        });
        if let Err(fault) = &emitted {
            open.fault.get_or_insert_with(|| fault.clone());
        }
        if open.replies == open.requests
            && let Some((tuple, Open { fault, .. })) = self.line.open.pop_front()
        {
            // The tuple may be gone: the runner fails all when a component panics.
            match fault {
                None => out.ack(tuple).unwrap_or(()),
                Some(fault) => out.fail(tuple, &fault).unwrap_or(()),
            }
        }
        emitted
    }
}

impl<A: Ask> Bolt for Asking<A> {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        Ok(self.line.start(context)?)
    }

    fn is_ready(&self) -> bool {
        self.line.is_ready()
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        self.requests.clear();
        let kept = self.ask.request(tuple, &mut self.requests)?;
        let Requests { bytes, ends } = &self.requests;
        let mut start = 0;
        for &end in ends {
            self.line.send(0, |out| out.extend_from_slice(&bytes[start..end]))?;
            start = end;
        }
        let requests = ends.len();
        self.line.open.push_back((tuple.id(), Open { kept, requests, replies: 0, fault: None }));
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let mut result = Ok(());
        for event in self.line.events() {
            match event {
                Event::Connected(life) => self.line.on_connected(life),
                Event::Reply(_, reply) => result = self.on_reply(reply, out).and(result),
                Event::Lost(loss) => result = Err(self.line.on_loss(&loss, out)),
            }
        }
        result
    }

    fn close(&mut self) {
        self.line.close();
    }
}

impl<A: Ask> Writing<A> {
    pub(crate) fn new(ask: A) -> Self {
        Self { ask, requests: Requests::default() }
    }
}

impl<A: Ask> Bolt for Writing<A> {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        self.requests.clear();
        self.ask.request(tuple, &mut self.requests)?;
        self.requests.commands().try_for_each(|command| out.command(command))?;
        Ok(Outcome::Ack)
    }
}

/// An error of the server's. What is a matter of its state counts no attempt.
pub(crate) fn refusal(text: &[u8]) -> Fault {
    let text = String::from_utf8_lossy(text);
    let code = text.split(' ').next().unwrap_or_default();
    let error = format!("the server refused: {text}");
    if PASSING.contains(&code) { Fault::silent(error).after(PASSING_PAUSE) } else { Fault::new(error) }
}

/// Values that all fit into a tuple, or the fault that says why not.
pub(crate) fn values(values: &[Value<'_>]) -> Result<Option<Values>, Fault> {
    Ok(Some(Values::encode(values)?))
}

/// The option for the server.
pub(crate) const URL_OPTION: Opt = Opt {
    name: URL,
    value: Kind::Text,
    default: "",
    what: "server: redis://[user:password@]host[:port][/database]; without it EVENKEEL_URL, or else redis://127.0.0.1:6379",
};
pub(crate) const PIPELINE: Opt = Opt {
    name: "--pipeline",
    value: Kind::Number(1, 100_000),
    default: "1000",
    what: "tuples of one task that may be under way",
};
/// Errors that pass without a change of the tuple. NOPERM is none: it is for a key that was made of the tuple's fields.
const PASSING: [&str; 7] = ["LOADING", "OOM", "BUSY", "MISCONF", "NOAUTH", "READONLY", "TRYAGAIN"];
const PASSING_PAUSE: Duration = Duration::from_secs(1);
