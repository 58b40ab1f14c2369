//! One turn of a connection: requests out of its input, replies into its output, until something has to come.
//!
//! Knows no socket, so that tests drive it with bytes. What it leaves to `protocol`: fetching what is cold,
//! timers, and the reactor's callbacks.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::{Nanos, UnixMs};
use reactor::{Input, Output, Step};
use resp::{Args, Limits, Parsed, ProtocolError, RequestParser, Writer};
use store::KeyRef;

use crate::call::Attached;
use crate::executor::{Parked, Request, Verdict};
use crate::handlers::dump;
use crate::message::Message;
use crate::pubsub;
use crate::server::Server;
use crate::session::{Replies, Session};

/// How a turn ended.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) step: Step,
    /// When to come back although nothing came; for parked connections.
    pub(crate) wake: Option<Nanos>,
    /// Records to fetch; their arrival ends the parking.
    pub(crate) fetch: Option<store::Prepared>,
    /// Requests answered.
    pub(crate) commands: u64,
}

impl Turn {
    fn ended(step: Step, commands: u64) -> Self {
        Turn { step, wake: None, fetch: None, commands }
    }
}

thread_local! {
    /// Ranges of the request being parsed: one for each loop, not one for each connection.
    static ARGS: Cell<Args> = const { Cell::new(Args::new()) };
    /// The same for requests that are only looked at.
    static AHEAD_ARGS: Cell<Args> = const { Cell::new(Args::new()) };
}

impl Server {
    /// Answers the complete requests of `input`, some dozens of them at most.
    pub(crate) fn on_input(
        self: &Arc<Self>,
        session: &mut Session,
        input: &mut Input,
        output: &mut Output,
        loop_index: usize,
    ) -> Turn {
        self.refresh_settings();
        let mut args = ARGS.take();
        let turn = self.run_turn(session, input, output, loop_index, &mut args);
        args.clear();
        ARGS.set(args);
        turn
    }

    fn run_turn(
        self: &Arc<Self>,
        session: &mut Session,
        input: &mut Input,
        output: &mut Output,
        loop_index: usize,
        args: &mut Args,
    ) -> Turn {
        let mut commands = 0;
        let mut now = self.clock.now();
        let began = WallClock { at: now, unix_us: self.clock.unix_us() };
        let yield_at = now + TURN_TIME_MAX;
        let mut foreseen = 0;
        loop {
            if session.closing {
                return Turn::ended(Step::Close, commands);
            }
            if commands >= TURN_COMMANDS_MAX || (commands > 0 && (now >= yield_at || output.is_full())) {
                return Turn::ended(if input.is_empty() { Step::Continue } else { Step::Yield }, commands);
            }
            let limits = self.limits(session);
            let parsed = session.parser.parse(input.bytes(), &limits, args);
            let consumed = match parsed {
                Ok(Parsed::Complete { consumed }) => consumed,
                Ok(Parsed::Incomplete { needed_bytes_min }) => {
                    input.expect(needed_bytes_min);
                    return Turn::ended(Step::Continue, commands);
                }
                Err(error) => return self.refuse(error, output, commands),
            };
            if args.is_empty() {
                input.consume(consumed);
                continue;
            }
            if foreseen == 0 {
                foreseen = self.foresee(session.db, input.bytes(), consumed, &limits);
            }
            foreseen -= 1;
            let (args, unix) = (args.view(input.bytes()), began.at(now));
            let request = Request { args, bytes: consumed, loop_index, now, unix };
            match self.answer(session, &request, output) {
                Answer::Done(ended) => now = ended,
                Answer::Parked(turn) => return Turn { commands, ..turn },
            }
            input.consume(consumed);
            commands += 1;
        }
    }

    /// Brings near what the requests of a pipeline will look up; `first_len` bytes of `input` are the request that is
    /// about to run. Returns how many requests
    /// that was.
    fn foresee(&self, db: u16, input: &[u8], first_len: usize, limits: &Limits) -> usize {
        if input.len() == first_len {
            return 1;
        }
        let Some(mut foresight) = self.store.foresight() else { return usize::MAX };
        let mut args = AHEAD_ARGS.take();
        let (mut rest, mut count) = (input, 0);
        while count < AHEAD_REQUESTS_MAX
            && let Ok(Parsed::Complete { consumed }) = RequestParser::new().parse(rest, limits, &mut args)
        {
            // Nearly every command that has keys has its first one there; a wrong guess costs no more than a right one.
            if let Some(key) = args.view(rest).try_get(1) {
                foresight.add(KeyRef { db, key });
            }
            rest = &rest[consumed..];
            count += 1;
        }
        foresight.bring_near();
        args.clear();
        AHEAD_ARGS.set(args);
        count.max(1)
    }

    fn answer(self: &Arc<Self>, session: &mut Session, request: &Request<'_>, output: &mut Output) -> Answer {
        if is_http(request) {
            tracing::warn!(
                client = session.client.address(),
                "closed: a web browser was made to speak to us"
            );
            return Answer::Parked(Turn::ended(Step::Kill, 0));
        }
        let start = output.buffer().len();
        if session.replies == Replies::SkipNext {
            session.replies = Replies::Skip;
        }
        match self.execute(session, request, output.buffer()) {
            Verdict::Done { ticket, attached, ended } => {
                let silent = session.replies != Replies::On && suppress(session, request, start, output);
                if !silent {
                    attached.into_iter().for_each(|attached| attach(attached, output));
                }
                if ticket != 0 {
                    output.hold(ticket);
                }
                Answer::Done(ended)
            }
            Verdict::Kill => Answer::Parked(Turn::ended(Step::Kill, 0)),
            Verdict::Park(parked) => {
                if session.replies == Replies::Skip {
                    session.replies = Replies::SkipNext;
                }
                Answer::Parked(self.park(session, parked, request.now))
            }
        }
    }

    fn park(&self, session: &mut Session, parked: Parked, now: Nanos) -> Turn {
        let mut turn = Turn::ended(Step::Park, 0);
        match parked {
            Parked::Fetch(prepared) => turn.fetch = Some(prepared),
            Parked::Until(until) => turn.wake = Some(until),
            Parked::Credits => {
                self.wait_for_credits(session.client.id);
                // The hook may have run between the refusal and the line above.
                turn.wake = Some(now + CREDIT_RETRY);
            }
        }
        turn
    }

    fn refuse(&self, error: ProtocolError, output: &mut Output, commands: u64) -> Turn {
        let text = format!("ERR {error}");
        self.stats.error(text.as_bytes());
        Writer::new(output.buffer(), false).error(&text);
        Turn::ended(Step::Close, commands)
    }

    fn limits(&self, session: &Session) -> Limits {
        if !session.authenticated {
            return Limits::BEFORE_AUTH;
        }
        let bytes = |setting: &std::sync::atomic::AtomicU64| {
            usize::try_from(setting.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
        };
        Limits {
            bulk_bytes_max: bytes(&self.tuned.value_bytes_max).max(Limits::BEFORE_AUTH.bulk_bytes_max),
            query_bytes_max: bytes(&self.tuned.input_bytes_max),
            ..Limits::REDIS
        }
    }

    /// Takes a message; `parked` tells whether the connection is.
    pub(crate) fn on_message(
        &self,
        session: &mut Session,
        message: Message,
        output: &mut Output,
        parked: bool,
    ) -> Step {
        let unchanged = if parked { Step::Park } else { Step::Continue };
        match message {
            Message::Published(published) => {
                pubsub::write(&published, session, output.buffer());
                output.hold(published.ticket);
                return unchanged;
            }
            Message::Monitor(line) => {
                if session.client.monitor.load(Ordering::Relaxed) {
                    output.buffer().extend_from_slice(&line.bytes);
                }
                return unchanged;
            }
            Message::Retry => {}
            Message::Fetched(prepared) => {
                if let Some(pending) = &mut session.pending {
                    pending.prepared = prepared;
                }
            }
            Message::Unblock(with_error) => {
                if let Some(pending) = &mut session.pending {
                    pending.unblocked = Some(with_error);
                }
            }
            Message::Done(result) => {
                if let Some(pending) = &mut session.pending {
                    pending.result = Some(result);
                }
            }
        }
        session.client.paused.store(false, Ordering::Relaxed);
        // A turn may have parked again since: it then answers Park once more.
        if session.pending.is_some() || parked { Step::Continue } else { unchanged }
    }

    /// Ends what a connection holds in the registries.
    pub(crate) fn on_close(&self, session: &Session) {
        let id = session.client.id;
        if let Some(subscriptions) = &session.subscriptions {
            self.pubsub.forget(id, subscriptions);
        }
        if session.client.monitor.load(Ordering::Relaxed) {
            self.remove_monitor(id);
        }
        self.clients.remove(id);
    }
}

/// A moment by both clocks: tells the wall clock's time of later moments of the same turn.
struct WallClock {
    at: Nanos,
    unix_us: u64,
}

impl WallClock {
    fn at(&self, now: Nanos) -> UnixMs {
        UnixMs((self.unix_us + now.0.saturating_sub(self.at.0) / 1_000) / 1_000)
    }
}

/// Lets a lent value follow what is in the buffer.
fn attach(Attached { at, bytes, part, unsealed }: Attached, output: &mut Output) {
    if unsealed {
        dump::seal(&(*bytes).as_ref()[part.clone()], &mut output.buffer()[at..]);
    }
    output.attach(at, bytes, part);
}

enum Answer {
    Done(Nanos),
    Parked(Turn),
}

/// CLIENT REPLY: takes the reply back, if it is not to be sent; returns whether. CLIENT REPLY SKIP itself is silent, too.
fn suppress(session: &mut Session, request: &Request<'_>, start: usize, output: &mut Output) -> bool {
    if session.replies == Replies::Skip {
        session.replies = Replies::On;
    }
    let silent = !confirms(session, request) || output.buffer().get(start) == Some(&b'-');
    if silent {
        output.buffer().truncate(start);
    }
    silent
}

/// Whether the reply is a message in itself, as those that come later without being asked for: these are always sent.
fn confirms(session: &Session, request: &Request<'_>) -> bool {
    let verb = request.args.get(0);
    let verbs = ["subscribe", "psubscribe", "unsubscribe", "punsubscribe"];
    session.transaction.is_none() && verbs.into_iter().any(|name| verb.eq_ignore_ascii_case(name.as_bytes()))
}

/// A browser made to send a form here (cross-protocol scripting) ends up with these.
fn is_http(request: &Request<'_>) -> bool {
    let name = request.args.get(0);
    matches!(name.len(), 4 | 5) && (name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:"))
}

/// Requests of one connection before others get their turn.
const TURN_COMMANDS_MAX: u64 = 256;
/// Requests of a pipeline whose keys are brought near together.
const AHEAD_REQUESTS_MAX: usize = 16;
/// Time of one connection before others get their turn.
const TURN_TIME_MAX: Duration = Duration::from_millis(2);
/// A connection that waits for credits asks again by itself after this.
const CREDIT_RETRY: Duration = Duration::from_millis(5);
