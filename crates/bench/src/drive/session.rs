//! A connection of the load: sends what its task lets it, matches replies with requests, counts what goes wrong.

use std::collections::VecDeque;
use std::sync::Arc;

use clock::Nanos;
use reactor::{CloseReason, Connection, Io, Protocol, Step};

use super::memcached;
use super::reply::{self, Parsed};
use super::source::Turn;
use super::tally::Tally;
use super::task::Task;
use super::work::{Op, Random};

/// The protocol of all connections of a fleet.
#[derive(Debug, Default)]
pub(super) struct Client;

/// What a fleet tells its connections.
#[derive(Debug)]
pub(super) enum Message {
    /// Work for this task, as its connection of this number.
    Start(Arc<Task>, u64),
    /// What was planned for this time is due.
    Due(Nanos),
}

#[derive(Debug, Default)]
pub(super) struct Session {
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    task: Arc<Task>,
    number: u64,
    sent: u64,
    under_way: VecDeque<Sent>,
    /// Requests that replies call for, at most one for each that was under way.
    follow_ups: VecDeque<Vec<u8>>,
    random: Random,
    is_exhausted: bool,
}

/// A request under way.
#[derive(Debug)]
struct Sent {
    op: Op,
    /// From when its latency counts.
    due: Nanos,
    at: Nanos,
}

impl Protocol for Client {
    type Session = Session;
    type Message = Message;

    fn on_open(&self, _: &Arc<Connection>) -> Session {
        Session::default()
    }

    fn on_input(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        let Some(active) = &mut session.active else {
            // A reply to nothing, or the word that the server closes.
            io.input.consume(io.input.len());
            return Step::Continue;
        };
        if let Err(error) = active.take_replies(io) {
            let mut recorder = active.task.recorder(io.loop_index);
            recorder.tally.failures.error_reply(format!("no reply of the protocol: {error}").as_bytes());
            return Step::Kill;
        }
        session.go_on(io, io.now)
    }

    fn on_message(&self, session: &mut Session, message: Message, io: &mut Io<'_, Self>) -> Step {
        let now = match message {
            Message::Start(task, number) => {
                session.active = Some(Active::new(task, number, io.connection.id()));
                io.now
            }
            // The loop read its clock a moment before the pacer did: by that time nothing would be due.
            Message::Due(due) => io.now.max(due),
        };
        session.go_on(io, now)
    }

    fn on_timer(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        let Some(active) = &mut session.active else { return Step::Continue };
        if !active.is_late(io.now) {
            active.watch(io);
            return Step::Continue;
        }
        let (late, timeout) = (active.under_way.len() as u64, active.task.request_timeout);
        active.task.leave(active.number, io.loop_index, |tally| {
            tally.failures.request_timeouts += late;
            tally.failures.say(|| format!("no reply within {timeout:?}"));
        });
        session.active = None;
        Step::Kill
    }

    fn on_close(&self, session: Session, connection: &Arc<Connection>) {
        let Some(active) = session.active else { return };
        active.task.leave(active.number, connection.loop_index(), |Tally { failures, .. }| {
            failures.disconnected += 1;
            failures.unanswered += active.under_way.len() as u64;
            failures.say(|| match connection.close_reason() {
                CloseReason::Peer => "the server closed the connection".to_owned(),
                other => format!("the connection ended: {other:?}"),
            });
        });
    }

    fn refusal(&self) -> &'static [u8] {
        b""
    }
}

impl Session {
    /// Sends what may be sent; leaves the task when all is done.
    fn go_on(&mut self, io: &mut Io<'_, Client>, now: Nanos) -> Step {
        if let Some(active) = &mut self.active {
            active.send(io, now);
            if active.is_exhausted && active.under_way.is_empty() {
                active.task.leave(active.number, io.loop_index, |_| {});
                self.active = None;
                io.set_timer(None);
            }
        }
        Step::Continue
    }
}

impl Active {
    fn new(task: Arc<Task>, number: u64, seed: u64) -> Self {
        let random = Random::new(seed);
        let (under_way, follow_ups) = (VecDeque::new(), VecDeque::new());
        Self { task, number, sent: 0, under_way, follow_ups, random, is_exhausted: false }
    }

    fn take_replies(&mut self, io: &mut Io<'_, Client>) -> Result<(), resp::DecodeError> {
        let mut recorder = self.task.recorder(io.loop_index);
        let mut consumed = 0;
        let mut count = 0;
        while let Some(sent) = self.under_way.front() {
            let rest = &io.input.bytes()[consumed..];
            match parse(self.task.protocol, rest)? {
                Parsed::Whole(reply, length) => {
                    let nanos = (io.now - sent.due).as_nanos() as u64;
                    let bytes = &rest[..length];
                    recorder.take(sent.op, &reply, bytes, nanos, &self.task.source);
                    if sent.op == Op::Entry {
                        self.follow_ups.extend(self.task.source.follow_up(bytes, self.number));
                    }
                    consumed += length;
                    count += 1;
                    self.under_way.pop_front();
                }
                Parsed::Part(length) => {
                    io.input.expect(length);
                    break;
                }
            }
        }
        drop(recorder);
        io.input.consume(consumed);
        io.connection.add_commands(count);
        self.task.answered_at(io.now);
        Ok(())
    }

    fn send(&mut self, io: &mut Io<'_, Client>, now: Nanos) {
        let source = &self.task.source;
        // Also when nothing else is sent any more: what was read is acknowledged.
        while self.under_way.len() < self.task.depth
            && let Some(request) = self.follow_ups.pop_front()
        {
            io.output.buffer().extend_from_slice(&request);
            self.under_way.push_back(Sent { op: Op::Any, due: now, at: now });
        }
        while !self.is_exhausted && self.under_way.len() < self.task.depth {
            match source.turn(self.number, self.sent, self.under_way.is_empty(), now) {
                Turn::Send(index, due) => {
                    let op = source.encode(io.output.buffer(), index, self.number, &mut self.random);
                    self.under_way.push_back(Sent { op, due, at: now });
                    self.sent += 1;
                }
                Turn::Wait => break,
                Turn::Done => self.is_exhausted = true,
            }
        }
        self.watch(io);
    }

    /// Whether the oldest request has waited too long; never without a time limit.
    fn is_late(&self, now: Nanos) -> bool {
        let timeout = self.task.request_timeout;
        !timeout.is_zero() && self.under_way.front().is_some_and(|first| first.at + timeout <= now)
    }

    /// Has the timer fire when the oldest request is late.
    fn watch(&self, io: &mut Io<'_, Client>) {
        let timeout = self.task.request_timeout;
        let deadline = self.under_way.front().filter(|_| !timeout.is_zero()).map(|first| first.at + timeout);
        io.set_timer(deadline);
    }
}

/// Looks at the reply that `input` starts with.
///
/// # Errors
/// It is none.
fn parse(protocol: connection::Protocol, input: &[u8]) -> Result<Parsed<'_>, resp::DecodeError> {
    match protocol {
        connection::Protocol::Resp => reply::parse(input),
        connection::Protocol::Memcached => memcached::parse(input),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a server of a test owns its socket")]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    use clock::{SimClock, UnixMs};
    use reactor::{Dial, Options, Reactor};

    use super::super::load::Load;
    use super::super::source::Source;
    use super::super::task::Gate;
    use super::super::work::{Action, Group, Limit, Pick, tests::work};
    use super::*;

    fn task(request_timeout: Duration, per_second: Option<f64>, start: Nanos) -> Arc<Task> {
        let work = work(Action::Read, Pick::Sequence);
        let group = Group { work, connections: 1, depth: 2, limit: Limit::Each(9), per_second };
        let source = Source::Load(Load::new(&group, connection::Protocol::Resp, start));
        Arc::new(Task::new(source, start, request_timeout, 1, &Arc::new(Gate::new(1))))
    }

    fn active(request_timeout: Duration, under_way: usize) -> Active {
        let mut active = Active::new(task(request_timeout, None, Nanos(0)), 0, 1);
        let at = |number: usize| Nanos(100 * number as u64);
        active.under_way.extend((1..=under_way).map(|n| Sent { op: Op::Any, due: at(n), at: at(n) }));
        active
    }

    /// A loop that had read its clock a moment before the pacer did found nothing due: the request waited for the one after.
    #[test]
    fn what_the_pacer_says_is_due_is_sent_by_a_loop_whose_clock_is_behind() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let clock = Arc::new(SimClock::new(UnixMs(0)));
        let options = Options { loops: 1, ..Options::default() };
        let handle = Reactor::start(options, Arc::new(Client), clock).expect("a loop");
        let dial = Dial::to(listener.local_addr().expect("bound"));
        let connection = handle.connect_all(vec![dial], PATIENCE).remove(0).expect("a connection");
        let (mut stream, _) = listener.accept().expect("connected");
        let due = Nanos(1_000);
        handle.post_to(&connection, Message::Start(task(Duration::ZERO, Some(1.0), due), 0));
        handle.post_to(&connection, Message::Due(due));
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut request = [0; 22];
        stream.read_exact(&mut request).expect("a request");
        assert_eq!(&request, b"*2\r\n$3\r\nGET\r\n$3\r\n100\r\n");
        drop(stream);
        handle.shutdown();
        handle.join();
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn oldest_request_is_late_when_its_time_is_over() {
        let active = active(Duration::from_nanos(50), 2);
        assert_eq!([149, 150, 900].map(|now| active.is_late(Nanos(now))), [false, true, true]);
    }

    /// Whatever timer fired without a limit, or with nothing under way, ended the connection as one that had timed out.
    #[test]
    fn nothing_is_late_without_a_time_limit_or_a_request() {
        assert!(!active(Duration::ZERO, 2).is_late(Nanos(u64::MAX)));
        assert!(!active(Duration::from_nanos(50), 0).is_late(Nanos(900)));
    }
}
