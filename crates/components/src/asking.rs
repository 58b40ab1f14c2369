//! A bolt that asks a server for each tuple: requests in a pipeline, and the tuple is finished by the reply.
//!
//! Invariants
//!   1. A tuple is acknowledged after the reply to its request, or it fails: with an error of the server's, or because the connection was lost.
//!   2. At most `pipeline` tuples are under way, and about [`WAITING_BYTES_MAX`] wait to be sent: beyond it no tuple is taken.
//!
//! A tuple whose connection is lost may have been done: it is asked for again. What must not count twice has a key of its own.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use connection::{Event, Link, Options, Target};
use resp::Value as Reply;
use topology::bolt::TupleId;
use topology::changes::Command;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, Kind, Opt};
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

/// A tuple whose requests are under way.
#[derive(Debug)]
struct Open<K> {
    tuple: TupleId,
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
    target: Target,
    pipeline: usize,
}

/// The bolt.
#[derive(Debug)]
pub(crate) struct Asking<A: Ask> {
    ask: A,
    server: Server,
    link: Option<Link>,
    /// The connection that can be asked.
    life: Option<u64>,
    /// What is under way, in the order of its replies.
    open: VecDeque<Open<A::Kept>>,
    requests: Requests,
    events: VecDeque<Event>,
}

impl Server {
    /// The server that `arguments` name.
    ///
    /// # Errors
    /// They name none.
    pub(crate) fn read(arguments: &Arguments) -> Result<Self, String> {
        let target = target(arguments)?;
        let pipeline = arguments.number(PIPELINE.name).unwrap_or(1_000) as usize;
        Ok(Self { target, pipeline })
    }
}

/// The server that `--url` names.
///
/// # Errors
/// It names none that speaks the Redis protocol.
pub(crate) fn target(arguments: &Arguments) -> Result<Target, String> {
    target_at(arguments.text(URL).unwrap_or_default())
}

/// The server at `url`.
///
/// # Errors
/// There is none that speaks the Redis protocol.
pub(crate) fn target_at(url: &str) -> Result<Target, String> {
    let target: Target = url.parse()?;
    if target.protocol != connection::Protocol::Resp {
        return Err(format!("{target} does not speak the Redis protocol"));
    }
    Ok(target)
}

impl<A: Ask> Asking<A> {
    pub(crate) fn new(ask: A, server: Server) -> Self {
        Self {
            ask,
            server,
            link: None,
            life: None,
            open: VecDeque::new(),
            requests: Requests::default(),
            events: VecDeque::new(),
        }
    }

    fn on_reply(&mut self, reply: Reply, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let Some(open) = self.open.front_mut() else { return Ok(()) };
        let place = open.replies;
        open.replies += 1;
        let result = match reply {
            Reply::Error(text) => Err(refusal(&text)),
            reply => self.ask.reply(&mut open.kept, place, reply),
        };
        let anchors = &[open.tuple];
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
            && let Some(Open { tuple, fault, .. }) = self.open.pop_front()
        {
            // The tuple may be gone: the runner fails all when a component panics.
            match fault {
                None => out.ack(tuple).unwrap_or(()),
                Some(fault) => out.fail(tuple, &fault).unwrap_or(()),
            }
        }
        emitted
    }

    /// What was under way fails: whether it was done is not known.
    fn on_loss(&mut self, why: &str, out: &mut BoltOut<'_>) -> Fault {
        self.life = None;
        let fault = Fault::silent(why);
        for Open { tuple, .. } in self.open.drain(..) {
            out.fail(tuple, &fault).unwrap_or(());
        }
        fault
    }
}

impl<A: Ask> Bolt for Asking<A> {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        let (waker, options) = (context.waker(), Options::named(&format!("link of {}", context.id())));
        self.link = Some(Link::start(&self.server.target, options, move || waker.wake())?);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let has_room = |link: &Link| link.waiting_bytes() < WAITING_BYTES_MAX;
        self.life.is_some()
            && self.open.len() < self.server.pipeline
            && self.link.as_ref().is_some_and(has_room)
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        self.requests.clear();
        let kept = self.ask.request(tuple, &mut self.requests)?;
        let (Some(link), Some(life)) = (&self.link, self.life) else {
            return Err(Fault::silent("there is no connection"));
        };
        let Requests { bytes, ends } = &self.requests;
        let mut start = 0;
        for &end in ends {
            if !link.send(life, 0, |out| out.extend_from_slice(&bytes[start..end])) {
                return Err(Fault::silent("the connection is lost"));
            }
            start = end;
        }
        let requests = ends.len();
        self.open.push_back(Open { tuple: tuple.id(), kept, requests, replies: 0, fault: None });
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let mut events = std::mem::take(&mut self.events);
        if let Some(link) = &self.link {
            link.take(&mut events);
        }
        let mut result = Ok(());
        for event in events.drain(..) {
            match event {
                Event::Connected(life) => self.life = Some(life),
                Event::Reply(_, reply) => result = self.on_reply(reply, out).and(result),
                Event::Lost(why) => result = Err(self.on_loss(&why, out)),
            }
        }
        self.events = events;
        result
    }

    fn close(&mut self) {
        self.link = None;
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
fn refusal(text: &[u8]) -> Fault {
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
/// Bytes that may wait to be sent.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Errors that pass without a change of the tuple.
const PASSING: [&str; 8] = ["LOADING", "OOM", "BUSY", "MISCONF", "NOAUTH", "NOPERM", "READONLY", "TRYAGAIN"];
const PASSING_PAUSE: Duration = Duration::from_secs(1);
