//! Playing a script against a server: each connection sends its part in order, when it is due or when it may.
//!
//! ```text
//!  timeline ──> pacer: wakes the connection of each turn that is due ──> sends all that is due, however much is unanswered
//!  full speed:  a turn's requests together; the next turn when all of it is answered
//! ```
//!
//! Invariants
//!   1. A connection's requests are sent in the order in which they were recorded.
//!   2. At 1x or Nx a latency counts from when the request was due: a server that stalls is charged for what it delays.
//!   3. An error that was recorded is expected; every other one is a failure.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use reactor::{Balance, Connection, Dial, Handle, Io, Options, Protocol, Reactor, Step};
use resp::{DecodeError, Value};

use super::fleet::{DESCRIPTORS_BESIDE, FleetOptions, collect};
use super::outcome::{Failures, GroupOutcome, Outcome, Row};
use super::recorder::Recorder;
use super::reply::{Parsed, Reply, parse};
use super::script::{Expected, Script, Shows};
use super::target::Target;
use super::task::Gate;
use crate::Failure;

/// How fast a script is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was.
    Times(f64),
    /// As fast as the server answers.
    Max,
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Played {
    /// Counts and latencies.
    pub outcome: Outcome,
    /// Errors where an error was recorded.
    pub errors_as_recorded: u64,
}

/// How a script is played.
#[derive(Clone, Debug)]
pub struct Playing {
    /// How fast.
    pub speed: Speed,
    /// How connections are opened.
    pub fleet: FleetOptions,
    /// An unanswered request ends its connection after this; zero: never.
    pub request_timeout: Duration,
    /// Length of a row of the time series.
    pub interval: Duration,
}

/// Plays `script` on `target`; `observe` gets the newest row at every interval.
///
/// # Errors
/// No connection could be opened.
pub fn play(
    script: &Arc<Script>,
    target: &Target,
    playing: &Playing,
    observe: &mut dyn FnMut(&Row),
) -> Result<Played, Failure> {
    let loops = playing.fleet.loops;
    let wanted = script.connections() as u64 + DESCRIPTORS_BESIDE;
    let most = reactor::raise_descriptor_limit(wanted).map_err(|error| error.to_string())?;
    if most < wanted {
        return Err(format!("{wanted} descriptors are needed, the system allows {most} (ulimit -n)"));
    }
    let settings = Options {
        loops,
        balance: Balance { interval: None, ..Balance::default() },
        close_grace: Duration::from_millis(100),
        ..Options::default()
    };
    let handle =
        Reactor::start(settings, Arc::new(Player), Arc::new(SystemClock)).map_err(|e| e.to_string())?;
    let stage = Stage { handle };
    let dial = |index| Dial { loop_index: Some(index % loops), ..Dial::to(target.address) };
    let dials = (0..script.connections()).map(dial).collect();
    let mut failures = Failures::default();
    let mut members = Vec::new();
    for (number, outcome) in
        stage.handle.connect_all(dials, playing.fleet.connect_timeout).into_iter().enumerate()
    {
        match outcome {
            Ok(connection) => members.push((number, connection)),
            Err(error) => {
                failures.refused += 1;
                failures.say(|| format!("connecting: {error}"));
            }
        }
    }
    if members.is_empty() {
        return Err(format!("cannot connect to {target}: {}", failures.first.unwrap_or_default()));
    }
    let play = Arc::new(Play::new(script, target, playing, members.len()));
    let mut group = stage.run(&play, &members, playing.interval, observe);
    group.tally.failures.add(&failures);
    let took = Nanos(play.finished_ns.load(Ordering::Relaxed)) - play.start;
    let errors_as_recorded = play.errors_as_recorded.load(Ordering::Relaxed);
    Ok(Played { outcome: Outcome { groups: vec![group], took }, errors_as_recorded })
}

/// The connections' threads, ended when dropped.
struct Stage {
    handle: Handle<Player>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.handle.join();
    }
}

impl Stage {
    fn run(
        &self,
        play: &Arc<Play>,
        members: &[(usize, Arc<Connection>)],
        interval: Duration,
        observe: &mut dyn FnMut(&Row),
    ) -> GroupOutcome {
        let mut group = GroupOutcome::default();
        for (number, member) in members {
            self.handle.post_to(member, Message::Start(Arc::clone(play), *number));
        }
        std::thread::scope(|scope| {
            if let Speed::Times(times) = play.speed {
                scope.spawn(move || self.pace(play, members, times));
            }
            let (mut at, mut is_over) = (Duration::ZERO, false);
            while !is_over {
                let elapsed = SystemClock.now().since(play.start);
                is_over = play.gate.wait((at + interval).saturating_sub(elapsed));
                self.leave_for_the_gone(play, members);
                let now = SystemClock.now().since(play.start);
                observe(&collect(&play.recorders, &mut group, now, now.saturating_sub(at)));
                at = now;
            }
            play.is_over.store(true, Ordering::Relaxed);
        });
        group
    }

    /// Wakes the connection of each turn when it is due.
    fn pace(&self, play: &Play, members: &[(usize, Arc<Connection>)], times: f64) {
        let mut by_number: Vec<Option<&Arc<Connection>>> = vec![None; play.script.connections()];
        members.iter().for_each(|(number, member)| by_number[*number] = Some(member));
        for (due_ns, number) in play.script.timeline() {
            let due = play.due(due_ns, times);
            while !play.is_over.load(Ordering::Relaxed) && due > SystemClock.now() {
                std::thread::sleep((due - SystemClock.now()).min(LOOK_AGAIN));
            }
            if let Some(member) = by_number[number] {
                self.handle.post_to(member, Message::Due);
            }
        }
    }

    /// A connection that ended before it heard what to do does not leave by itself.
    fn leave_for_the_gone(&self, play: &Play, members: &[(usize, Arc<Connection>)]) {
        for (number, member) in members {
            if member.is_closed() && self.handle.connection(member.id()).is_none() {
                play.leave(*number, 0, |failures| {
                    failures.disconnected += 1;
                    failures.say(|| "a connection had ended".to_owned());
                });
            }
        }
    }
}

/// What the connections share.
#[derive(Debug)]
struct Play {
    script: Arc<Script>,
    login: Vec<String>,
    speed: Speed,
    start: Nanos,
    request_timeout: Duration,
    recorders: Vec<Mutex<Recorder>>,
    errors_as_recorded: AtomicU64,
    finished_ns: AtomicU64,
    left: Vec<AtomicBool>,
    playing: AtomicUsize,
    gate: Gate,
    is_over: AtomicBool,
}

impl Play {
    fn new(script: &Arc<Script>, target: &Target, playing: &Playing, members: usize) -> Self {
        let start = SystemClock.now();
        Self {
            script: Arc::clone(script),
            login: target.login(),
            speed: playing.speed,
            start,
            request_timeout: playing.request_timeout,
            recorders: (0..playing.fleet.loops).map(|_| Mutex::new(Recorder::new())).collect(),
            errors_as_recorded: AtomicU64::new(0),
            finished_ns: AtomicU64::new(start.0),
            left: (0..script.connections()).map(|_| AtomicBool::new(false)).collect(),
            playing: AtomicUsize::new(members),
            gate: Gate::new(1),
            is_over: AtomicBool::new(false),
        }
    }

    fn due(&self, due_ns: u64, times: f64) -> Nanos {
        self.start + Duration::from_nanos((due_ns as f64 / times) as u64)
    }

    fn recorder(&self, loop_index: usize) -> MutexGuard<'_, Recorder> {
        self.recorders[loop_index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has ended its part; its first end counts what failed.
    fn leave(&self, number: usize, loop_index: usize, count: impl FnOnce(&mut Failures)) {
        if self.left[number].swap(true, Ordering::AcqRel) {
            return;
        }
        count(&mut self.recorder(loop_index).tally.failures);
        if self.playing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.gate.one_finished();
        }
    }

    /// Counts the reply to a request that was `due` then.
    fn take(&self, recorder: &mut Recorder, sent: &Sent, (reply, bytes): (&Reply<'_>, &[u8]), now: Nanos) {
        let tally = &mut recorder.tally;
        let Expected { shows, fails, is_ours } = sent.expected;
        if let Reply::Error(text) = reply {
            if fails {
                self.errors_as_recorded.fetch_add(1, Ordering::Relaxed);
            } else {
                tally.failures.error_reply(text);
            }
            return;
        }
        if is_ours {
            return;
        }
        match (shows, reply) {
            (Shows::One, Reply::Bulk(_)) => tally.found += 1,
            (Shows::One, Reply::Null) => tally.missing += 1,
            (Shows::Many, Reply::Other) => {
                if let Ok(Some((Value::Array(values), _))) = resp::decode_value(bytes) {
                    let missing = values.iter().filter(|value| **value == Value::Null).count() as u64;
                    tally.missing += missing;
                    tally.found += values.len() as u64 - missing;
                }
            }
            _ => {}
        }
        tally.answered += 1;
        recorder.histogram.saturating_record((now - sent.due).as_nanos() as u64);
    }
}

/// The protocol of all connections of a replay.
#[derive(Debug)]
struct Player;

#[derive(Debug)]
enum Message {
    /// Play the part of this number.
    Start(Arc<Play>, usize),
    /// Something is due.
    Due,
}

#[derive(Debug, Default)]
struct Session(Option<Active>);

#[derive(Debug)]
struct Active {
    play: Arc<Play>,
    number: usize,
    next: usize,
    under_way: VecDeque<Sent>,
}

/// A request under way.
#[derive(Debug)]
struct Sent {
    expected: Expected,
    due: Nanos,
    at: Nanos,
}

impl Protocol for Player {
    type Session = Session;
    type Message = Message;

    fn on_open(&self, _: &Arc<Connection>) -> Session {
        Session::default()
    }

    fn on_input(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        let Some(active) = &mut session.0 else {
            // A reply to nothing, or the word that the server closes.
            io.input.consume(io.input.len());
            return Step::Continue;
        };
        if let Err(error) = active.take_replies(io) {
            let mut recorder = active.play.recorder(io.loop_index);
            recorder.tally.failures.error_reply(format!("no reply of RESP: {error}").as_bytes());
            return Step::Kill;
        }
        session.go_on(io)
    }

    fn on_message(&self, session: &mut Session, message: Message, io: &mut Io<'_, Self>) -> Step {
        if let Message::Start(play, number) = message {
            let mut active = Active { play, number, next: 0, under_way: VecDeque::new() };
            active.log_in(io);
            session.0 = Some(active);
        }
        session.go_on(io)
    }

    fn on_timer(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        let Some(active) = &mut session.0 else { return Step::Continue };
        let timeout = active.play.request_timeout;
        let is_late = |first: &Sent| !timeout.is_zero() && first.at + timeout <= io.now;
        if !active.under_way.front().is_some_and(is_late) {
            return session.go_on(io);
        }
        let late = active.under_way.len() as u64;
        active.play.leave(active.number, io.loop_index, |failures| {
            failures.request_timeouts += late;
            failures.say(|| format!("no reply within {timeout:?}"));
        });
        session.0 = None;
        Step::Kill
    }

    fn on_close(&self, session: Session, connection: &Arc<Connection>) {
        let Some(active) = session.0 else { return };
        active.play.leave(active.number, connection.loop_index(), |failures| {
            failures.disconnected += 1;
            failures.unanswered += active.under_way.len() as u64;
            failures.say(|| format!("the connection ended: {:?}", connection.close_reason()));
        });
    }

    fn refusal(&self) -> &'static [u8] {
        b""
    }
}

impl Session {
    fn go_on(&mut self, io: &mut Io<'_, Player>) -> Step {
        if let Some(active) = &mut self.0 {
            active.send(io);
            if active.is_through() {
                active.play.leave(active.number, io.loop_index, |_| {});
                self.0 = None;
                io.set_timer(None);
            }
        }
        Step::Continue
    }
}

impl Active {
    fn is_through(&self) -> bool {
        self.under_way.is_empty() && self.next == self.play.script.track(self.number).sends.len()
    }

    fn log_in(&mut self, io: &mut Io<'_, Player>) {
        for command in &self.play.login {
            io.output.buffer().extend_from_slice(command.as_bytes());
            let expected = Expected { shows: Shows::Nothing, fails: false, is_ours: true };
            self.under_way.push_back(Sent { expected, due: io.now, at: io.now });
        }
    }

    fn take_replies(&mut self, io: &mut Io<'_, Player>) -> Result<(), DecodeError> {
        let mut recorder = self.play.recorder(io.loop_index);
        let (mut consumed, mut count) = (0, 0);
        while let Some(sent) = self.under_way.front() {
            let rest = &io.input.bytes()[consumed..];
            match parse(rest)? {
                Parsed::Whole(reply, length) => {
                    self.play.take(&mut recorder, sent, (&reply, &rest[..length]), io.now);
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
        self.play.finished_ns.fetch_max(io.now.0, Ordering::Relaxed);
        Ok(())
    }

    /// Sends what is due, or the next turn.
    fn send(&mut self, io: &mut Io<'_, Player>) {
        let play = Arc::clone(&self.play);
        let sends = &play.script.track(self.number).sends;
        let is_idle = self.under_way.is_empty();
        let turn = sends.get(self.next).map(|first| first.turn);
        while let Some(next) = sends.get(self.next).filter(|_| self.under_way.len() < UNDER_WAY_MAX) {
            let due = match play.speed {
                Speed::Times(times) => Some(play.due(next.due_ns, times)).filter(|due| *due <= io.now),
                Speed::Max => (is_idle && Some(next.turn) == turn).then_some(io.now),
            };
            let Some(due) = due else { break };
            let expected = play.script.encode(io.output.buffer(), next);
            self.under_way.push_back(Sent { expected, due, at: io.now });
            self.next += 1;
        }
        self.watch(io);
    }

    /// Has the timer fire when the oldest request is late, or the next one due: the pacer is quicker, unless it comes a
    /// moment before the loop's clock.
    fn watch(&self, io: &mut Io<'_, Player>) {
        let Play { script, request_timeout: timeout, speed, .. } = &*self.play;
        let late = self.under_way.front().filter(|_| !timeout.is_zero()).map(|first| first.at + *timeout);
        let next = script.track(self.number).sends.get(self.next);
        let next = next.filter(|_| self.under_way.len() < UNDER_WAY_MAX).and_then(|next| match speed {
            Speed::Times(times) => Some(self.play.due(next.due_ns, *times)),
            Speed::Max => None,
        });
        io.set_timer(late.into_iter().chain(next).min());
    }
}

/// A connection that has so many unanswered sends on when there are fewer; what is due meanwhile is late, and counted so.
const UNDER_WAY_MAX: usize = 4_096;
/// The pacer looks so often whether everybody has left.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
