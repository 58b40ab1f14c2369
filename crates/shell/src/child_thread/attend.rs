//! The child's thread: one loop that waits for the pipes, the child's end, the component and the next time at once.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};
use processes::duplex::{Outgoing, Pauses, is_passing, wait};
use rustix::event::{PollFd, PollFlags};
use topology::Plan;
use topology::ids::TaskId;

use super::{Event, Shared, Spec};
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
struct RunningChild<'a> {
    of: &'a Attendant,
    number: u64,
    child: Child,
    frames: Frames,
    lines: Lines,
    pulse: Pulse,
    out: Outgoing,
    has_begun: bool,
    /// Its pipe is closed, or it was told to end: it has until then.
    until: Option<Nanos>,
    /// When it is looked at what the child takes.
    watched: Nanos,
    buffer: Box<[u8]>,
}

/// What the thread has to do.
struct Duties {
    end: Option<String>,
    is_stopped: bool,
    /// The component is behind: nothing is to be read.
    is_full: bool,
    /// Answers that the child will give.
    owed: u32,
}

impl Attendant {
    /// One child after the other, until it is stopped.
    pub(super) fn run(self) {
        let pauses = Pauses { least: self.spec.limits.pause_min, most: self.spec.limits.pause_max };
        let now = || Duration::from_nanos(self.clock.now().0);
        self.shared.run(pauses, now, |number| {
            let start = self.clock.now();
            let why = self.live(number);
            if !self.shared.is_stopped() {
                tracing::warn!(component = self.name, task = self.task.0, why, "a child has ended");
            }
            (Event::Ended(why), self.clock.now().since(start) >= CALM)
        });
    }

    /// Runs a child to its end; why it ended.
    fn live(&self, number: u64) -> String {
        let child =
            match Child::start(&self.spec.command, self.spec.folder.as_deref(), self.spec.secret.as_ref()) {
                Ok(child) => child,
                Err(error) => return format!("`{}` cannot be started: {error}", self.spec.command.join(" ")),
            };
        child.limit_processes(self.spec.limits.children_max + SLACK_PROCESSES);
        let mut out = Outgoing::default();
        handshake::append(
            self.spec.codec,
            &self.plan,
            self.task,
            &self.spec.config,
            child.pid_dir(),
            out.bytes(),
        );
        let mut life = RunningChild {
            of: self,
            number,
            child,
            frames: Frames::new(self.spec.codec, self.spec.limits.message_bytes_max),
            lines: Lines::default(),
            pulse: Pulse::new(self.clock.now(), self.spec.limits.timeout),
            out,
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

impl RunningChild<'_> {
    /// Carries bytes until the child has ended, or has to be: then why.
    fn run(&mut self) -> Option<String> {
        loop {
            let duties = self.duties();
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
            if ready.waker {
                self.of.shared.waker.clear();
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

    /// What is to be done; takes what is to be written, if nothing is being written.
    fn duties(&mut self) -> Duties {
        let mut state = self.of.shared.lock();
        let mut is_awaited = false;
        // The handshake goes alone: what follows is for a child that has answered it.
        if self.out.is_empty() {
            std::mem::swap(self.out.bytes(), &mut state.out);
            state.more.taken_tuples = std::mem::take(&mut state.more.out_tuples);
            is_awaited = std::mem::take(&mut state.more.is_awaited);
        }
        let (is_stopped, is_full) = (state.is_stopped, state.is_full);
        let duties = Duties { end: state.more.end.clone(), is_stopped, is_full, owed: state.more.owed };
        drop(state);
        if is_awaited {
            self.of.shared.wake_owner();
        }
        duties
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
                speak::heartbeat(self.of.spec.codec, self.out.bytes());
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
        let is_writing = !self.out.is_empty();
        let (stdin, stdout) = (self.child.process.stdin.as_ref(), self.child.process.stdout.as_ref());
        let stdin = stdin.filter(|_| is_writing).map(|pipe| PollFd::new(pipe, PollFlags::OUT));
        let stdout = stdout.filter(|_| !duties.is_full).map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let stderr = self.child.process.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN));
        let has = [stdin.is_some(), stdout.is_some(), stderr.is_some()];
        let mut fds =
            vec![self.of.shared.waker.poll_fd(), PollFd::new(&self.child.process.exit, PollFlags::IN)];
        fds.extend([stdin, stdout, stderr].into_iter().flatten());
        let due = [self.until, self.pulse.next_due(self.of.is_bolt), Some(self.watched)];
        let due = due.into_iter().flatten().min();
        wait(&mut fds, due.map(|due| due.since(now)));
        let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |has: bool| has && is_ready.next().unwrap_or(false);
        Ready {
            waker: next(true),
            exit: next(true),
            stdin: next(has[0]),
            stdout: next(has[1]),
            stderr: next(has[2]),
        }
    }

    fn write(&mut self) {
        let Some(pipe) = &mut self.child.process.stdin else { return };
        if self.out.write_to(pipe).is_err() {
            self.child.process.stdin = None;
            self.out.clear();
            self.expect_end();
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
            Err(error) if is_passing(&error) => {}
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
        let mut messages = Vec::new();
        let result = self.sort_messages(&mut messages);
        let syncs = messages.iter().filter(|message| **message == Message::Sync).count();
        let owed = {
            let told = &mut self.of.shared.lock().more;
            told.owed = told.owed.saturating_sub(syncs as u32);
            told.owed
        };
        self.pulse.on_message(self.of.clock.now(), owed > 0);
        if !messages.is_empty() {
            self.of.shared.post(|state| {
                for message in messages {
                    let bytes = message.size_bytes();
                    state.push(Event::Said(message), bytes);
                }
            });
        }
        result
    }

    /// Takes what is for the log, and appends what is for the component.
    fn sort_messages(&mut self, messages: &mut Vec<Message>) -> Result<(), Garbage> {
        while let Some(bytes) = self.frames.read()? {
            let message = Message::decode(self.of.spec.codec, bytes)?;
            match message {
                Message::Pid(_) if !self.has_begun => {
                    self.has_begun = true;
                    self.of.shared.begin(self.number, Event::Started(self.number));
                }
                Message::Log(level, text) => self.of.log(level, &text),
                _ if !self.has_begun => {
                    return Err(Garbage::NoPid { begin: crate::message::excerpt(bytes) });
                }
                Message::Pid(_) => {}
                Message::Error(text) => {
                    self.of.log(Level::Error, &text);
                    messages.push(Message::Error(text));
                }
                message => messages.push(message),
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
    waker: bool,
    exit: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
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
