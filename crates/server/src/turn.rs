//! One turn of a connection: requests out of its input, replies into its output, until something has to come.
//!
//! Knows no socket, so that tests drive it with bytes. What it leaves to `protocol`: fetching what is cold,
//! timers, and the reactor's callbacks.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::{Nanos, Throttle};
use commands::call::Attached;
use commands::chunked::Progress;
use commands::lookup::Entry;
use commands::payload;
use reactor::{Input, Output, Step};
use resp::{Args, ArgsView, Parsed, ProtocolError, Writer};
use smallvec::SmallVec;
use store::{Foreseen, Moment, Prepared};

use crate::acl::user::User;
use crate::admission::writes;
use crate::blocked;
use crate::capture::recorder::Recorder;
use crate::executor::{conclude, execute};
use crate::handlers::tx;
use crate::invalidations::{invalidate, invalidate_again, tell_broken};
use crate::long::beside;
use crate::long::job::{Done, Long, Work};
use crate::message::Message;
use crate::outcome::{Ran, Replied, Unready};
use crate::pipeline::{AHEAD_REQUESTS_MAX, PIPELINE, Pipeline};
use crate::pubsub;
use crate::request::{ParsedRequest, Request, Series};
use crate::series;
use crate::server::Server;
use crate::session::{Pending, Replies, Session};
use crate::strangers::TOO_TALKATIVE;
use crate::subscriptions::Names;

/// How a turn ended.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) step: Step,
    /// When to come back although nothing came; for parked connections.
    pub(crate) wake: Option<Nanos>,
    /// Records to fetch; their arrival ends the parking.
    pub(crate) fetch: Option<Prepared>,
    /// Requests answered.
    pub(crate) commands: u64,
    /// Replies wait until it goes on, as far as they may.
    pub(crate) keeps: bool,
    /// Nothing leaves until it goes on.
    pub(crate) withholds: bool,
    /// What it waits for may take long, and is nobody's when its client has gone.
    pub(crate) ends_with_peer: bool,
}

impl Turn {
    fn ended(step: Step, commands: u64) -> Self {
        let (keeps, withholds, ends_with_peer) = (false, false, false);
        Turn { step, wake: None, fetch: None, commands, keeps, withholds, ends_with_peer }
    }
}

/// Answers the complete requests of `input`, some dozens of them at most.
pub(crate) fn on_input(
    server: &Arc<Server>,
    session: &mut Session,
    input: &mut Input,
    output: &mut Output,
    loop_index: usize,
) -> Turn {
    server.refresh_settings();
    let mut ahead = PIPELINE.take().unwrap_or_default();
    let slot = server.captures.begin_turn(loop_index);
    let recorder = slot.as_ref().and_then(|slot| slot.as_ref());
    let turn = run_turn(server, session, input, output, loop_index, &mut ahead, recorder);
    server.calls.settle();
    if let Some(slot) = slot {
        server.captures.end_turn(slot, loop_index, session.client.id);
    }
    ahead.clear();
    PIPELINE.set(Some(ahead));
    turn
}

fn run_turn(
    server: &Arc<Server>,
    session: &mut Session,
    input: &mut Input,
    output: &mut Output,
    loop_index: usize,
    ahead: &mut Pipeline,
    recorder: Option<&Recorder>,
) -> Turn {
    let mut commands = 0;
    let mut now = server.clock.now();
    if let Some(recorder) = recorder {
        recorder.arrive(now);
    }
    let (began, moment) = (now, server.store.now());
    let yield_at = now + TURN_TIME_MAX;
    let here = Here { loop_index, now, moment, recorder };
    if let Some((answer, consumed)) = go_on_long(server, session, here, output) {
        match answer {
            Continue(ended) => now = ended,
            Break(turn) => return turn,
        }
        input.consume(consumed);
        commands = 1;
    }
    loop {
        if awaits(session) {
            return Turn { withholds: true, ends_with_peer: true, ..Turn::ended(Step::Park, commands) };
        }
        if let Some(turn) = send_rest(server, session, output) {
            return Turn { commands, ..turn };
        }
        if commands >= TURN_COMMANDS_MAX || (commands > 0 && (now >= yield_at || output.is_full())) {
            return Turn::ended(if input.is_empty() { Step::Continue } else { Step::Yield }, commands);
        }
        let limits = server.tuned.limits(session.authenticated);
        let is_parsed = session.pending.as_ref().is_some_and(|pending| pending.parsed.is_some());
        if ahead.is_empty() && !is_parsed && session.parser.is_fresh() {
            ahead.look(server, session.db, input.bytes(), &limits);
        }
        let here = Here { loop_index, now, moment: moment.later(now.since(began)), recorder };
        let (answer, requests, consumed) = answer_next(server, session, input, output, here, ahead, commands);
        match answer {
            Continue(ended) => now = ended,
            Break(turn) => return Turn { commands, ..turn },
        }
        input.consume(consumed);
        commands += requests;
    }
}

/// Answers the next request, or the series that it begins: how many they were, none where nothing is asked, and their bytes.
fn answer_next(
    server: &Arc<Server>,
    session: &mut Session,
    input: &mut Input,
    output: &mut Output,
    here: Here<'_>,
    ahead: &mut Pipeline,
    commands: u64,
) -> (Answer, u64, usize) {
    if let Some(answered) = answer_series(server, session, input, ahead, here, output) {
        return answered;
    }
    let ended = |turn| (Break(turn), 0, 0);
    let mut again = session.pending.as_mut().and_then(|pending| pending.parsed.take());
    let parsed = match again.as_mut().or_else(|| ahead.next()) {
        Some(parsed) => parsed,
        None => match parse_next(server, session, input, output, ahead, commands) {
            Continue(parsed) => parsed,
            Break(turn) => return ended(turn),
        },
    };
    let (bytes, foreseen) = (parsed.bytes, parsed.foreseen);
    let Here { loop_index, now, moment, recorder } = here;
    let args = parsed.args.view(input.bytes());
    if args.is_empty() {
        return (Continue(now), 0, bytes);
    }
    let behind = &input.bytes()[bytes..];
    if commands > 0 && !output.is_empty() && tx::ends_newest(args) {
        // Before it is on its way its client has the identifier to look it up by.
        return ended(Turn::ended(Step::Yield, commands));
    }
    let foreseen = foreseen.or_else(|| foreseen_by(server, recorder, args));
    let request = Request { args, foreseen, bytes, behind, loop_index, now, moment, recorder };
    let (answer, is_short) = (answer(server, session, &request, output), args.len() <= KEPT_ARGS_MAX);
    if let (Break(Turn { step: Step::Park, .. }), Some(pending), true) =
        (&answer, &mut session.pending, is_short)
    {
        let args = parsed.args.of_input();
        pending.parsed = args.map(|args| ParsedRequest { bytes, args, foreseen, follows: false });
    }
    (answer, 1, bytes)
}

/// Parses the request that `input` begins with, by itself; breaks where it is not complete, or wrong.
fn parse_next<'p>(
    server: &Server,
    session: &mut Session,
    input: &mut Input,
    output: &mut Output,
    ahead: &'p mut Pipeline,
    commands: u64,
) -> ControlFlow<Turn, &'p mut ParsedRequest> {
    let limits = server.tuned.limits(session.authenticated);
    let parsed = ahead.spare();
    match session.parser.parse(input.bytes(), &limits, &mut parsed.args) {
        Ok(Parsed::Complete { consumed }) => {
            (parsed.bytes, parsed.foreseen) = (consumed, None);
            Continue(parsed)
        }
        Ok(Parsed::Incomplete { needed_bytes_min }) => {
            input.expect(needed_bytes_min);
            Break(Turn::ended(Step::Continue, commands))
        }
        Err(error) => Break(refuse(server, session, error, input, output, commands)),
    }
}

/// The hash of the key, which a capture computes anyway: the lookup need not compute it again.
fn foreseen_by(server: &Server, recorder: Option<&Recorder>, args: ArgsView<'_>) -> Option<Foreseen> {
    recorder.and(args.try_get(Request::FORESEEN_ARG)).map(|key| server.store.foreseen(key))
}

fn answer(server: &Arc<Server>, session: &mut Session, request: &Request<'_>, output: &mut Output) -> Answer {
    if is_http(request) {
        if let Some(left_out) = HTTP_LINES.admit(request.now) {
            tracing::warn!(
                client = session.client.address(),
                left_out,
                "closed: it sent an HTTP request to the port of the Redis protocol"
            );
        }
        return Break(Turn::ended(Step::Kill, 0));
    }
    let start = output.buffer().len();
    if session.replies == Replies::SkipNext {
        session.replies = Replies::Skip;
    }
    let replied = execute(server, session, request, output.buffer());
    settle_answer(server, session, request, replied, start, output)
}

/// Answers the requests that are next, if they are a series and run as one: how many there were, and their bytes.
fn answer_series(
    server: &Arc<Server>,
    session: &mut Session,
    input: &Input,
    ahead: &mut Pipeline,
    Here { loop_index, now, moment, recorder }: Here<'_>,
    output: &mut Output,
) -> Option<(Answer, u64, usize)> {
    let requests = ahead.untried_series()?;
    let (mut rest, mut views) = (input.bytes(), SmallVec::<[ArgsView<'_>; AHEAD_REQUESTS_MAX]>::new());
    for request in requests {
        views.push(request.args.view(rest));
        rest = &rest[request.bytes..];
    }
    let bytes = input.len() - rest.len();
    let (args, foreseen, behind) = (views[0], requests[0].foreseen, rest);
    let first = Request { args, foreseen, bytes, behind, loop_index, now, moment, recorder };
    let (start, count) = (output.buffer().len(), views.len());
    let series = Series { first, requests: &views };
    let replied = series::execute(server, session, &series, output.buffer())?;
    let answer = settle_answer(server, session, &first, replied, start, output);
    drop(views);
    ahead.pass(count);
    Some((answer, count as u64, bytes))
}

/// Goes on with the long command of a connection, if it has one; what came of it, and the size of its request.
fn go_on_long(
    server: &Arc<Server>,
    session: &mut Session,
    here: Here<'_>,
    output: &mut Output,
) -> Option<(Answer, usize)> {
    let pending = session.pending.as_mut()?;
    let parked = || Break(Turn::ended(Step::Park, 0));
    match pending.long.take()? {
        Long::Out => {
            pending.long = Some(Long::Out);
            Some((parked(), 0))
        }
        Long::Again(job) => {
            if let Some(until) = server.pause.wait(job.client, writes(job.entry, job.queue()), here.now) {
                session.client.paused.store(true, Ordering::Relaxed);
                pending.long = Some(Long::Again(job));
                let turn = Turn { wake: Some(until), ends_with_peer: true, ..Turn::ended(Step::Park, 0) };
                return Some((Break(turn), 0));
            }
            beside::start(server, session, job);
            Some((parked(), 0))
        }
        Long::InLine(job) => {
            let (args, bytes) = (Arc::clone(&job.args), job.bytes);
            let request = here.request(&args, bytes);
            let (answer, waits) = answer_job(server, session, job.entry, &request, output, |session, out| {
                blocked::go_on(server, session, job.entry, &request, out)
            });
            if let (true, Some(pending)) = (waits, &mut session.pending) {
                pending.long = Some(Long::InLine(job));
            }
            Some((answer, bytes))
        }
        Long::Back(done) => {
            let Done { mut job, out: reply, end } = *done;
            let (args, bytes) = (std::mem::take(&mut job.args), job.bytes);
            let request = here.request(&args, bytes);
            let (answer, waits) = answer_job(server, session, job.entry, &request, output, |session, out| {
                beside::end_long(server, session, &request, &mut job, end, reply, out)
            });
            if let (true, Some(pending)) = (waits, &mut session.pending) {
                let stands = pending.stands_in_line;
                job.args = args;
                pending.long = Some(if stands { Long::InLine(job) } else { Long::Again(job) });
            } else if let Work::Exec { .. } = job.work {
                server.long.drop_in_background(job);
            }
            Some((answer, bytes))
        }
    }
}

/// Answers the request of a job as `end` says, which appends the reply; with whether it waits, to run again on its loop.
fn answer_job(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    output: &mut Output,
    end: impl FnOnce(&mut Session, &mut Vec<u8>) -> Result<Ran, Unready>,
) -> (Answer, bool) {
    let (start, args) = (output.buffer().len(), [request.args]);
    if session.replies == Replies::SkipNext {
        session.replies = Replies::Skip;
    }
    let result = end(session, output.buffer());
    let waits = result.as_ref().is_err_and(Unready::runs_again);
    let series = Series::of_one(request, &args);
    let replied = conclude(server, session, entry, &series, result, start, output.buffer());
    (settle_answer(server, session, request, replied, start, output), waits)
}

/// Whether the newest reply says what is not done yet.
fn awaits(session: &mut Session) -> bool {
    session.awaited.take_if(|awaited| awaited.is_done());
    session.awaited.is_some()
}

/// Sends more of a reply that is sent in parts, if there is one; `None`: the next request may be looked at.
fn send_rest(server: &Server, session: &mut Session, output: &mut Output) -> Option<Turn> {
    if session.closing {
        return Some(Turn::ended(Step::Close, 0));
    }
    let turn = match session.chunked.as_mut()?.go_on(&server.store, output) {
        Progress::Done => {
            session.chunked = None;
            for (source, invalidated) in std::mem::take(&mut session.late) {
                invalidate(session, source, invalidated, output);
            }
            return None;
        }
        Progress::Full => Turn::ended(Step::Yield, 0),
        Progress::Fetch(prepared) => {
            server.stats.fetches.fetch_add(1, Ordering::Relaxed);
            Turn { fetch: Some(prepared), ..Turn::ended(Step::Park, 0) }
        }
        Progress::Broken => {
            server.stats.chunked_replies_broken.fetch_add(1, Ordering::Relaxed);
            Turn::ended(Step::Kill, 0)
        }
    };
    Some(turn)
}

fn settle_answer(
    server: &Server,
    session: &mut Session,
    request: &Request<'_>,
    result: Result<Replied, Unready>,
    start: usize,
    output: &mut Output,
) -> Answer {
    match result {
        Ok(Replied { ticket, attached, ended }) => {
            let silent = session.replies != Replies::On && suppress(session, request, start, output);
            if !silent {
                attached.into_iter().for_each(|attached| attach(attached, output));
            }
            if !ticket.is_nothing() {
                output.hold(ticket);
            }
            if session.tracking.is_some() {
                invalidate_again(session, output);
            }
            if !session.authenticated
                && server.strangers.is_talkative(&mut session.stranger, output.buffer().len() - start)
            {
                Writer::new(output.buffer(), false).error(TOO_TALKATIVE);
                session.closing = true;
            }
            Continue(ended)
        }
        Err(Unready::Dead) => Break(Turn::ended(Step::Kill, 0)),
        Err(unready) => {
            if session.replies == Replies::Skip {
                session.replies = Replies::SkipNext;
            }
            let keeps = tx::names_newest(request.args);
            Break(Turn { keeps, ..park(server, session, unready, request.now) })
        }
    }
}

fn park(server: &Server, session: &mut Session, unready: Unready, now: Nanos) -> Turn {
    let mut turn = Turn::ended(Step::Park, 0);
    match unready {
        Unready::Fetch(prepared) => turn.fetch = Some(prepared),
        Unready::Until(until) => (turn.wake, turn.ends_with_peer) = (Some(until), true),
        Unready::Beside(_) | Unready::Away | Unready::Dead => {}
        Unready::Credits => {
            server.waits.wait_for_credits(session.client.id);
            // The hook may have run between the refusal and the line above.
            turn.wake = Some(now + CREDIT_RETRY);
        }
    }
    turn
}

fn refuse(
    server: &Server,
    session: &mut Session,
    error: ProtocolError,
    input: &Input,
    output: &mut Output,
    commands: u64,
) -> Turn {
    let limits = server.tuned.limits(session.authenticated);
    if error == ProtocolError::Tls {
        if let Some(skipped) = TLS_LINES.admit(server.clock.now()) {
            let client = session.client.address();
            tracing::warn!(
                client,
                skipped,
                "closed: it speaks TLS, and its port does not (tls.port is for that)"
            );
        }
        return Turn::ended(Step::Kill, commands);
    }
    let text = match error {
        ProtocolError::InvalidLength if session.authenticated => {
            format!("ERR {error}: the longest value is value.max ({} B)", limits.bulk_bytes_max)
        }
        _ => format!("ERR {error}"),
    };
    server.stats.error(text.as_bytes());
    tx::spoil_unparsed(server, session, input.bytes(), text.as_bytes());
    Writer::new(output.buffer(), false).error(&text);
    if let Some(skipped) = server.refused_log.admit(server.clock.now()) {
        tracing::warn!(
            client = session.client.address(),
            error = text,
            skipped,
            "closed after a request that cannot be taken"
        );
    }
    let drains_bytes = if session.authenticated { DRAINED_BYTES_MAX } else { STRANGER_DRAINED_BYTES_MAX };
    Turn::ended(Step::Refuse(drains_bytes), commands)
}

/// Takes a message; `parked` tells whether the connection is.
pub(crate) fn on_message(
    server: &Server,
    session: &mut Session,
    message: Message,
    output: &mut Output,
    parked: bool,
) -> Step {
    let unchanged = if parked { Step::Park } else { Step::Continue };
    match message {
        Message::Published(published) => {
            if let Some(subscriptions) = &session.subscriptions {
                pubsub::write(&published, subscriptions, session.resp3, output);
            }
            output.hold(published.ticket);
            return unchanged;
        }
        Message::Invalidated { source, invalidated } => {
            invalidate(session, source, invalidated, output);
            return unchanged;
        }
        Message::RedirectionBroken => {
            tell_broken(session, output);
            return unchanged;
        }
        Message::Monitor(line) => return show_line(server, session, &line.bytes, output, unchanged),
        Message::Captured(chunk) => {
            server.captures.on_captured(
                &session.client,
                &chunk,
                server.tuned.sizes.reply_bytes_max(),
                output,
            );
            return unchanged;
        }
        Message::CaptureEnd(last) => {
            server.captures.on_capture_end(&session.client, &last, output);
            return unchanged;
        }
        Message::Serve => {
            blocked::serve_more(server, session.client.id);
            return unchanged;
        }
        Message::Retry => {}
        Message::UserChanged if !may_listen(server, session) => return Step::Kill,
        Message::UserChanged => {}
        Message::Fetched(prepared) => take_fetched(session, prepared),
        result => {
            if let Some(pending) = &mut session.pending {
                take_result(pending, result);
            }
        }
    }
    if session.awaited.is_some() {
        return if awaits(session) { Step::Park } else { Step::Yield };
    }
    server.pause.end_wait(&session.client);
    if session.chunked.is_some() {
        return Step::Yield;
    }
    // A turn may have parked again since: it then answers Park once more.
    if session.pending.is_some() || parked { Step::Continue } else { unchanged }
}

/// Appends a line of MONITOR; a client that does not read them is closed.
fn show_line(server: &Server, session: &Session, line: &[u8], output: &mut Output, unchanged: Step) -> Step {
    if session.client.monitor.load(Ordering::Relaxed) {
        if output.len() + line.len() > server.tuned.sizes.reply_bytes_max() {
            server.monitors.note_cut();
            return Step::Kill;
        }
        output.buffer().extend_from_slice(line);
    }
    unchanged
}

/// Whether the session's user is still there, and may listen to all that it listens to.
fn may_listen(server: &Server, session: &mut Session) -> bool {
    server.acl.refresh(&mut session.member, &session.client);
    let (user, subscriptions) = (&session.member.permissions.user, &session.subscriptions);
    let hears_all = |user: &User| {
        subscriptions.as_ref().is_none_or(|held| {
            let mut channels = held.channels.iter().chain(&held.shards);
            channels.all(|name| user.hears(name, false))
                && held.patterns.iter().all(|name| user.hears(name, true))
        })
    };
    !session.member.is_gone && user.as_deref().is_none_or(hears_all)
}

/// Keeps what a request that parked has come to elsewhere.
fn take_result(pending: &mut Pending, result: Message) {
    match result {
        Message::Unblock(with_error) => pending.unblocked = Some(with_error),
        Message::Answered(answers) => pending.answers = answers,
        Message::Served(served) => pending.served = Some(served),
        Message::LongDone(done) => pending.long = Some(Long::Back(done)),
        Message::Done(result) => pending.result = Some(result),
        Message::Checked(result) => pending.checked = Some(result),
        Message::TrialEnded(result) => pending.trial_end = Some(result),
        Message::Fetched(_)
        | Message::Retry
        | Message::UserChanged
        | Message::Serve
        | Message::Published(_)
        | Message::Invalidated { .. }
        | Message::RedirectionBroken
        | Message::Monitor(_)
        | Message::Captured(_)
        | Message::CaptureEnd(_) => {}
    }
}

/// Keeps what was fetched for the rest of a reply, or for a request.
fn take_fetched(session: &mut Session, prepared: Prepared) {
    match (&mut session.chunked, &mut session.pending) {
        (Some(chunked), _) => chunked.prepared = prepared,
        (None, Some(pending)) => pending.prepared = prepared,
        (None, None) => {}
    }
}

/// Ends what a connection holds in the registries.
pub(crate) fn on_close(server: &Arc<Server>, session: &mut Session) {
    let (id, mut forgotten_beside, mut waits) = (session.client.id, None, false);
    if let Some(subscriptions) = session.subscriptions.take() {
        if subscriptions.count() <= NAMES_FORGOTTEN_HERE {
            server.pubsub.forget(id, &subscriptions);
        } else {
            forgotten_beside = Some(subscriptions);
        }
    }
    if session.tracking.take().is_some() {
        server.notices.tracking.remove(id);
        server.notices.refresh();
    }
    if session.client.monitor.load(Ordering::Relaxed) {
        server.monitors.remove(id);
    }
    server.captures.abandon(&session.client);
    server.strangers.forget(&mut session.stranger, &session.client);
    server.pause.end_wait(&session.client);
    if let Some(pending) = &session.pending {
        server.waits.forget(id);
        waits = pending.stands_in_line || pending.long.is_some();
    }
    let holds = server.clients.remove(id);
    if waits {
        blocked::forget(server, id);
    }
    if waits || !holds.is_empty() {
        server.long.abandon(id, &holds);
    }
    if let Some(subscriptions) = forgotten_beside {
        let of_thread = Arc::clone(server);
        let forget = move || {
            of_thread.pubsub.forget(id, &subscriptions);
            drop(holds);
        };
        server.long.call_in_background(Box::new(forget));
    }
}

/// When, and where, requests run.
#[derive(Clone, Copy)]
struct Here<'a> {
    loop_index: usize,
    now: Nanos,
    moment: Moment,
    recorder: Option<&'a Recorder>,
}

/// Lets a lent value follow what is in the buffer.
fn attach(Attached { at, bytes, part, unsealed }: Attached, output: &mut Output) {
    if unsealed {
        payload::seal(&(*bytes).as_ref()[part.clone()], &mut output.buffer()[at..]);
    }
    output.attach(at, bytes, part);
}

impl<'a> Here<'a> {
    /// A request that was copied out of the input, its size there `bytes`.
    fn request<'r>(self, args: &'r Args, bytes: usize) -> Request<'r>
    where
        'a: 'r,
    {
        let Self { loop_index, now, moment, recorder } = self;
        let (args, behind, foreseen) = (args.view(&[]), &[][..], None);
        Request { args, foreseen, bytes, behind, loop_index, now, moment, recorder }
    }
}

/// When a request was answered, or how the turn ends that it does not go beyond.
type Answer = ControlFlow<Turn, Nanos>;

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
    let kinds = [Names::Channels, Names::Patterns, Names::Shards];
    let mut verbs = kinds.into_iter().flat_map(|names| [names.verb(), names.verb_of_end()]);
    session.transaction.is_none() && verbs.any(|name| verb.eq_ignore_ascii_case(name.as_bytes()))
}

/// A browser made to send a form here (cross-protocol scripting) ends up with these.
fn is_http(request: &Request<'_>) -> bool {
    let name = request.args.get(0);
    matches!(name.len(), 4 | 5) && (name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:"))
}

/// Bytes dropped of what a refused client still sends, so that it comes to read why.
const DRAINED_BYTES_MAX: usize = 1 << 30;
/// The same before AUTH.
const STRANGER_DRAINED_BYTES_MAX: usize = 64 << 10;
/// Each HTTP request was a line, as many as somebody liked.
static HTTP_LINES: Throttle = Throttle::new(Duration::from_secs(1));
/// The same for clients of TLS.
static TLS_LINES: Throttle = Throttle::new(Duration::from_secs(10));

/// A closed connection that listened to more names is taken out of them beside the loop: many that close at once held it up.
const NAMES_FORGOTTEN_HERE: usize = 64;
/// A request that waits with no more arguments than these is not parsed again.
const KEPT_ARGS_MAX: usize = 64;
/// Requests of one connection before others get their turn.
const TURN_COMMANDS_MAX: u64 = 256;
/// Time of one connection before others get their turn.
const TURN_TIME_MAX: Duration = Duration::from_millis(2);
/// A connection that waits for credits asks again by itself after this.
const CREDIT_RETRY: Duration = Duration::from_millis(5);
