//! One run of a script within an access that is open.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clock::Nanos;
use commands::call::Failure;
use store::{IsOver, KeyRef};

use super::calls::Calls;
use super::{Invocation, time_max};
use crate::handlers::scripts::with_interpreter;
use crate::outcome::{Answer, Pause};
use crate::retained::Retained;
use crate::run::Within;
use crate::server::Server;
use crate::transaction::Course;
use script::cache::Running;
use script::{Client, Outcome, Over, Pace};

/// A run that is to be tried.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(super) server: &'a Server,
    pub(super) invocation: &'a Invocation<'a>,
    pub(super) course: Course,
    pub(super) retained: &'a Retained,
    /// Beside the loop: where it is told to stop.
    pub(super) running: Option<&'a Arc<Running>>,
    /// And the keys that are claimed.
    pub(super) claimed: &'a [KeyRef<'a>],
    /// When it got the keys that it began with: what it waited before is not its time.
    began: &'a Cell<Nanos>,
    /// Until when it may run.
    until: Nanos,
}

impl<'a> Attempt<'a> {
    /// A run on a loop, which notes when it began.
    pub(crate) fn new(
        server: &'a Server,
        invocation: &'a Invocation<'a>,
        course: Course,
        retained: &'a Retained,
        began: &'a Cell<Nanos>,
    ) -> Self {
        let (running, claimed, until) = (None, &[][..], Nanos::default());
        Self { server, invocation, course, retained, running, claimed, began, until }
    }

    /// The same beside the loop, over `claimed` keys.
    pub(crate) fn beside(self, running: &'a Arc<Running>, claimed: &'a [KeyRef<'a>]) -> Self {
        Self { running: Some(running), claimed, ..self }
    }

    /// Makes it, as command `number` of a body; appends the reply to `out`.
    ///
    /// # Errors
    /// [`Pause`]; then nothing of it is to happen.
    pub(crate) fn make(
        &self,
        within: &mut Within<'_, '_>,
        number: usize,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Pause> {
        let Self { server, invocation, course, running, retained, .. } = *self;
        let start = out.len();
        self.began.set(server.clock.now());
        let until = self.began.get() + time_max(server, running, retained);
        let attempt = &Attempt { until, ..*self };
        within.access.end_when(attempt.ends_commands());
        let mut calls = Calls::new(attempt, within, number);
        let pace = attempt.pace();
        let client = Client { resp3: course.resp3, reply_bytes_max: server.tuned.sizes.reply_bytes_max() };
        let ran = with_interpreter(server, |interpreter| {
            interpreter.run(
                invocation.code(),
                invocation.inputs(self.retained.seed),
                (&mut calls, pace),
                client,
                out,
            )
        });
        calls.end();
        let outcome = ran.map_err(|failure| match failure {
            Failure::Error(text) => Pause::Refused(text.into_owned().into_bytes()),
            _ => Pause::Refused(b"ERR no interpreter".to_vec()),
        })?;
        match outcome {
            Outcome::Reply => {
                let failed = out.get(start) == Some(&b'-');
                if failed {
                    server.stats.error(&out[start + 1..]);
                }
                Ok(Answer { failed, ..calls.answer() })
            }
            Outcome::Error(text) => {
                server.stats.write_failure(Failure::Bytes(text), course.resp3, out);
                Ok(Answer { failed: true, ..calls.answer() })
            }
            Outcome::Over(Over::Host) => Err(calls.into_pause()),
            Outcome::Over(Over::Time) if running.is_none() => Err(Pause::long(number)),
            Outcome::Over(over) => Err(Pause::Refused(attempt.stopped(over))),
            Outcome::Memory => {
                let most = server.tuned.script_memory_bytes_max.load(Ordering::Relaxed);
                let text = format!(
                    "ERR the script needs more memory than script.memory_limit ({most} B); nothing of it has happened"
                );
                Err(Pause::Refused(text.into_bytes()))
            }
        }
    }

    fn pace(&self) -> Pace {
        let Self { server, running, until, .. } = *self;
        let looks_max = if running.is_some() { u32::MAX } else { LOOP_LOOKS_MAX };
        Pace { clock: Arc::clone(&server.clock), until, looks_max, running: running.cloned() }
    }

    /// Whether a run beside the loop is over: it is asked where a command reads from disk, and where one was stopped.
    pub(super) fn is_over(&self) -> Option<Over> {
        let running = self.running?;
        if running.is_killed() {
            return Some(Over::Killed);
        }
        (self.server.clock.now() >= self.until).then_some(Over::Time)
    }

    /// The same, for its commands to ask: one of them may take longer than the script may run.
    fn ends_commands(&self) -> Option<IsOver> {
        let running = Arc::clone(self.running?);
        let (clock, until) = (Arc::clone(&self.server.clock), self.until);
        Some(Arc::new(move || running.is_killed() || clock.now() >= until))
    }

    pub(super) fn stopped(&self, over: Over) -> Vec<u8> {
        if over == Over::Killed {
            let by = if self.invocation.is_function() { "FUNCTION" } else { "SCRIPT" };
            return format!("ERR Script killed by user with {by} KILL.").into_bytes();
        }
        let limit = self.server.settings.current().script_time_limit;
        let whole =
            if self.retained.everything { ", of which one that needs all keys has a tenth" } else { "" };
        format!("ERR the script ran for longer than script.time_limit ({limit:?}{whole}); nothing of it has happened")
            .into_bytes()
    }
}

/// How often a run on a loop is looked at, where the clock stands still.
const LOOP_LOOKS_MAX: u32 = 4_096;
