//! The child's thread: one loop that waits for the pipes, the child's end, the bell and the next time at once.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use topology::Plan;
use topology::ids::TaskId;

use super::shared::{Duties, Shared};
use super::{Event, Spec};
use crate::census::{self, Usage};
use crate::child::Child;
use crate::framing::Frames;
use crate::lines::Lines;
use crate::message::{Garbage, Level, Message};
use crate::pulse::{Beat, Pulse};
use crate::{handshake, speak};

/// What the thread knows of its task.
pub(super) struct Attendant {
    pub(super) name: String,
    pub(super) task: TaskId,
    pub(super) is_bolt: bool,
    pub(super) plan: Plan,
    pub(super) spec: Spec,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) shared: Arc<Shared>,
}

/// One child while it runs.
struct Life<'a> {
    of: &'a Attendant,
    number: u64,
    child: Child,
    frames: Frames,
    lines: Lines,
    pulse: Pulse,
    /// What is being written, and how much of it is.
    out: Vec<u8>,
    written: usize,
    has_begun: bool,
    /// Its pipe is closed, or it was told to end: it has until then.
    until: Option<Nanos>,
    /// When it is looked at what the child takes.
    watched: Nanos,
    buffer: Box<[u8]>,
}

impl Attendant {
    /// One child after the other, until it is stopped.
    pub(super) fn run(self) {
        let (mut life, mut pause) = (0, self.spec.limits.pause_min);
        while !self.shared.is_stopped() {
            life += 1;
            let start = self.clock.now();
            let why = self.live(life);
            if self.shared.is_stopped() {
                return;
            }
            tracing::warn!(component = self.name, task = self.task.0, why, "a child has ended");
            self.shared.end_life(why);
            let end = self.clock.now();
            if end.since(start) >= CALM {
                pause = self.spec.limits.pause_min;
            }
            self.rest(end + pause);
            pause = (pause * 2).min(self.spec.limits.pause_max);
        }
    }

    /// Runs a child to its end; why it ended.
    fn live(&self, number: u64) -> String {
        let child =
            match Child::start(&self.spec.command, self.spec.folder.as_deref(), self.spec.secret.as_ref()) {
                Ok(child) => child,
                Err(error) => return format!("`{}` cannot be started: {error}", self.spec.command.join(" ")),
            };
        child.limit_processes(self.spec.limits.children_max + SLACK_PROCESSES);
        let mut out = Vec::new();
        handshake::append(
            self.spec.codec,
            &self.plan,
            self.task,
            &self.spec.config,
            child.pid_dir(),
            &mut out,
        );
        let mut life = Life {
            of: self,
            number,
            child,
            frames: Frames::new(self.spec.codec, self.spec.limits.message_bytes_max),
            lines: Lines::default(),
            pulse: Pulse::new(self.clock.now(), self.spec.limits.timeout),
            out,
            written: 0,
            has_begun: false,
            until: None,
            watched: self.clock.now(),
            buffer: vec![0; READ_BYTES].into(),
        };
        let why = life.run();
        let status = life.child.end();
        life.read_errors();
        life.lines.end(|line| self.log_line(line));
        why.unwrap_or_else(|| processes::ending(status))
    }

    /// Waits until `end`, or until it is stopped.
    fn rest(&self, end: Nanos) {
        while !self.shared.is_stopped() && self.clock.now() < end {
            self.shared.hear();
            let mut fds = [PollFd::new(&self.shared.bell, PollFlags::IN)];
            wait(&mut fds, Some(end.since(self.clock.now())));
        }
    }

    fn log_line(&self, line: &str) {
        tracing::info!(component = self.name, task = self.task.0, "{line}");
    }

    fn log(&self, level: Level, text: &str) {
        let (component, task) = (self.name.as_str(), self.task.0);
        match level {
            Level::Trace => tracing::trace!(component, task, "{text}"),
            Level::Debug => tracing::debug!(component, task, "{text}"),
            Level::Info => tracing::info!(component, task, "{text}"),
            Level::Warn => tracing::warn!(component, task, "{text}"),
            Level::Error => tracing::error!(component, task, "{text}"),
        }
    }
}

impl Life<'_> {
    /// Carries bytes until the child has ended, or has to be: then why.
    fn run(&mut self) -> Option<String> {
        loop {
            if self.written == self.out.len() {
                self.out.clear();
                self.written = 0;
            }
            // The handshake goes alone: what follows is for a child that has answered it.
            let duties = self.of.shared.duties(&mut self.out);
            if let Some(why) = duties.end {
                return Some(why);
            }
            let now = self.of.clock.now();
            if duties.is_stopped && self.until.is_none() {
                self.child.process.stdin = None;
                self.until = Some(now + self.of.spec.limits.grace);
            }
            if self.until.is_some_and(|until| until <= now) {
                return Some("it closed its pipes and did not end".to_owned());
            }
            if let Some(why) = self.beat(now, &duties).or_else(|| self.watch(now)) {
                return Some(why);
            }
            let ready = self.wait(now, &duties);
            if ready.bell {
                self.of.shared.hear();
            }
            if ready.stdin {
                self.write();
            }
            if ready.stderr {
                self.read_errors();
            }
            if ready.stdout
                && let Err(garbage) = self.read()
            {
                return Some(garbage.to_string());
            }
            if ready.exit {
                return self.read_rest();
            }
        }
    }

    /// Asks a child that rests, and gives up one that does not answer.
    fn beat(&mut self, now: Nanos, duties: &Duties) -> Option<String> {
        let may_ask = self.of.is_bolt;
        if duties.is_full {
            // It cannot be heard.
            self.pulse.on_message(now, duties.owed > 0);
        } else if duties.owed > 0 {
            self.pulse.on_told(now);
        }
        match self.pulse.poll(now, may_ask) {
            Beat::Rest => None,
            Beat::Ask => {
                speak::heartbeat(self.of.spec.codec, &mut self.out);
                self.pulse.on_told(now);
                None
            }
            Beat::Dead => Some(format!(
                "it did not answer for {:?} (topology.subprocess.timeout.secs)",
                self.of.spec.limits.timeout
            )),
        }
    }

    /// Gives up a child that takes more than it may. One that is half way there is looked at more often.
    fn watch(&mut self, now: Nanos) -> Option<String> {
        if now < self.watched {
            return None;
        }
        let limits = &self.of.spec.limits;
        let usage = census::usage(now, WATCH_SOON, self.child.group(), self.child.mark());
        let Usage { children, memory_bytes } = usage;
        if children > limits.children_max {
            let most = limits.children_max;
            return Some(format!(
                "it has started {children} processes, more than evenkeel.children_max ({most})"
            ));
        }
        if memory_bytes > limits.memory_bytes_max {
            let most = limits.memory_bytes_max;
            return Some(format!(
                "its {} processes take {memory_bytes} B of memory, more than evenkeel.child_memory_bytes_max ({most} B)",
                children + 1
            ));
        }
        let is_near = children > limits.children_max / 2 || memory_bytes > limits.memory_bytes_max / 2;
        self.watched = now + if is_near { WATCH_SOON } else { WATCH };
        None
    }

    fn wait(&self, now: Nanos, duties: &Duties) -> Ready {
        let is_writing = self.written < self.out.len();
        let (stdin, stdout) = (self.child.process.stdin.as_ref(), self.child.process.stdout.as_ref());
        let stdin = stdin.filter(|_| is_writing).map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let stdout = stdout.filter(|_| !duties.is_full).map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let stderr = self.child.process.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let has = [stdin.is_some(), stdout.is_some(), stderr.is_some()];
        let mut fds = vec![
            PollFd::new(&self.of.shared.bell, PollFlags::IN),
            PollFd::new(&self.child.process.exit, PollFlags::IN),
        ];
        fds.extend([stdin, stdout, stderr].into_iter().flatten());
        let due = [self.until, self.pulse.next_due(self.of.is_bolt), Some(self.watched)];
        let due = due.into_iter().flatten().min();
        wait(&mut fds, due.map(|due| due.since(now)));
        let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |has: bool| has && is_ready.next().unwrap_or(false);
        Ready {
            bell: next(true),
            exit: next(true),
            stdin: next(has[0]),
            stdout: next(has[1]),
            stderr: next(has[2]),
        }
    }

    fn write(&mut self) {
        let Some(pipe) = &mut self.child.process.stdin else { return };
        match pipe.write(&self.out[self.written..]) {
            Ok(count) => self.written += count,
            Err(error) if is_passing(error.kind()) => {}
            Err(_) => {
                self.child.process.stdin = None;
                self.out.clear();
                self.written = 0;
                self.expect_end();
            }
        }
    }

    /// One read of standard output.
    fn read(&mut self) -> Result<(), Garbage> {
        let Some(pipe) = &mut self.child.process.stdout else { return Ok(()) };
        match pipe.read(&mut self.buffer) {
            Ok(0) => {
                self.child.process.stdout = None;
                self.expect_end();
            }
            Ok(count) => {
                self.frames.push(&self.buffer[..count]);
                return self.take_messages();
            }
            Err(error) if is_passing(error.kind()) => {}
            Err(_) => self.child.process.stdout = None,
        }
        Ok(())
    }

    /// A child that has ended may have said something before: that much at most fits into its pipe.
    fn read_rest(&mut self) -> Option<String> {
        let mut left = PIPE_BYTES_MAX;
        while left > 0
            && let Some(pipe) = &mut self.child.process.stdout
        {
            let Ok(count @ 1..) = pipe.read(&mut self.buffer) else { break };
            left = left.saturating_sub(count);
            self.frames.push(&self.buffer[..count]);
            if let Err(garbage) = self.take_messages() {
                return Some(garbage.to_string());
            }
        }
        None
    }

    fn take_messages(&mut self) -> Result<(), Garbage> {
        let mut events = Vec::new();
        let result = self.sort_messages(&mut events);
        let syncs = events.iter().filter(|event| **event == Event::Said(Message::Sync)).count();
        let owed = self.of.shared.on_answers(syncs as u32);
        self.pulse.on_message(self.of.clock.now(), owed > 0);
        if !events.is_empty() {
            self.of.shared.post(events);
        }
        result
    }

    /// Takes what is for the log, and appends what is for the component.
    fn sort_messages(&mut self, events: &mut Vec<Event>) -> Result<(), Garbage> {
        while let Some(bytes) = self.frames.read()? {
            let message = Message::decode(self.of.spec.codec, bytes)?;
            match message {
                Message::Pid(_) if !self.has_begun => {
                    self.has_begun = true;
                    self.of.shared.begin_life(self.number);
                }
                Message::Log(level, text) => self.of.log(level, &text),
                _ if !self.has_begun => {
                    return Err(Garbage::NoPid { begin: crate::message::excerpt(bytes) });
                }
                Message::Pid(_) => {}
                Message::Error(text) => {
                    self.of.log(Level::Error, &text);
                    events.push(Event::Said(Message::Error(text)));
                }
                message => events.push(Event::Said(message)),
            }
        }
        Ok(())
    }

    /// Reads standard error until it is empty, or for a while.
    fn read_errors(&mut self) {
        for _ in 0..ERROR_READS {
            let Some(pipe) = &mut self.child.process.stderr else { return };
            match pipe.read(&mut self.buffer) {
                Ok(0) => self.child.process.stderr = None,
                Ok(count) => {
                    let of = self.of;
                    self.lines.push(&self.buffer[..count], |line| of.log_line(line));
                }
                Err(_) => return,
            }
        }
    }

    fn expect_end(&mut self) {
        let until = self.of.clock.now() + self.of.spec.limits.grace;
        self.until.get_or_insert(until);
    }
}

/// What is ready.
struct Ready {
    bell: bool,
    exit: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// Waits until one is ready, or for `time`.
fn wait(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let timeout =
        time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
    // A signal ends it early, which does no harm.
    let _ = poll(fds, timeout.as_ref());
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A child that lived so long begins with the shortest pause again.
const CALM: Duration = Duration::from_secs(60);
/// Time between two looks at what a child takes, and if that is much.
const WATCH: Duration = Duration::from_secs(1);
const WATCH_SOON: Duration = Duration::from_millis(100);
/// The system's limit is for all processes of a user, who may start others meanwhile.
const SLACK_PROCESSES: u64 = 1_024;
const READ_BYTES: usize = 64 << 10;
/// The system's own limit for the size of a pipe.
const PIPE_BYTES_MAX: usize = 1 << 20;
/// A child that writes without end to standard error is read so often before others are looked at.
const ERROR_READS: usize = 16;
