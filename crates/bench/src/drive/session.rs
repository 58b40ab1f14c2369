//! A connection of the load: sends what its task lets it, matches replies with requests, counts what goes wrong.

use std::collections::VecDeque;
use std::sync::Arc;

use clock::Nanos;
use reactor::{CloseReason, Connection, Io, Protocol, Step};

use super::reply::Parsed;
use super::task::{Task, Turn};
use super::work::{Op, Random};

/// The protocol of all connections of a fleet.
#[derive(Debug, Default)]
pub(super) struct Client;

/// What a fleet tells its connections.
#[derive(Debug)]
pub(super) enum Message {
    /// Work for this task, as its connection of this number.
    Start(Arc<Task>, u64),
    /// Something planned may be due.
    Due,
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
        session.go_on(io)
    }

    fn on_message(&self, session: &mut Session, message: Message, io: &mut Io<'_, Self>) -> Step {
        if let Message::Start(task, number) = message {
            session.active = Some(Active::new(task, number, io.connection.id()));
        }
        session.go_on(io)
    }

    fn on_timer(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        let Some(active) = &mut session.active else { return Step::Continue };
        let timeout = active.task.request_timeout;
        if active.under_way.front().is_some_and(|first| first.at + timeout > io.now) {
            active.watch(io);
            return Step::Continue;
        }
        let late = active.under_way.len() as u64;
        active.task.leave(active.number, io.loop_index, |failures| {
            failures.request_timeouts += late;
            failures.say(|| format!("no reply within {timeout:?}"));
        });
        session.active = None;
        Step::Kill
    }

    fn on_close(&self, session: Session, connection: &Arc<Connection>) {
        let Some(active) = session.active else { return };
        active.task.leave(active.number, connection.loop_index(), |failures| {
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
    fn go_on(&mut self, io: &mut Io<'_, Client>) -> Step {
        if let Some(active) = &mut self.active {
            active.send(io);
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
        let under_way = VecDeque::with_capacity(task.group.depth);
        Self { task, number, sent: 0, under_way, random: Random::new(seed), is_exhausted: false }
    }

    fn take_replies(&mut self, io: &mut Io<'_, Client>) -> Result<(), resp::DecodeError> {
        let mut recorder = self.task.recorder(io.loop_index);
        let mut consumed = 0;
        let mut count = 0;
        while let Some(sent) = self.under_way.front() {
            match self.task.encoder.protocol.parse(&io.input.bytes()[consumed..])? {
                Parsed::Whole(reply, length) => {
                    recorder.take(sent.op, &reply, (io.now - sent.due).as_nanos() as u64, &self.task.encoder);
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

    fn send(&mut self, io: &mut Io<'_, Client>) {
        while !self.is_exhausted && self.under_way.len() < self.task.group.depth {
            match self.task.turn(self.number, self.sent, io.now) {
                Turn::Send(index, due) => {
                    let out = io.output.buffer();
                    let op = self.task.encoder.encode(out, index, self.number, &mut self.random);
                    self.under_way.push_back(Sent { op, due, at: io.now });
                    self.sent += 1;
                }
                Turn::Wait => break,
                Turn::Done => self.is_exhausted = true,
            }
        }
        self.watch(io);
    }

    /// Has the timer fire when the oldest request is late.
    fn watch(&self, io: &mut Io<'_, Client>) {
        let timeout = self.task.request_timeout;
        let deadline = self.under_way.front().filter(|_| !timeout.is_zero()).map(|first| first.at + timeout);
        io.set_timer(deadline);
    }
}
