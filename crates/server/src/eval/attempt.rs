//! One run of a script within an access that is open.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;
use commands::call::Failure;
use script::cache::Running;
use script::{Client, Outcome, Over, Pace};
use store::KeyRef;

use super::calls::Calls;
use super::{Invocation, time_max};
use crate::handlers::scripts::with_interpreter;
use crate::outcome::Executed;
use crate::retained::Retained;
use crate::run::{Halt, Within};
use crate::server::Server;
use crate::transaction::ConnectionState;

/// A run that is to be tried.
pub(crate) struct Attempt<'a> {
    pub(super) server: &'a Server,
    pub(super) invocation: &'a Invocation<'a>,
    pub(super) state: ConnectionState,
    pub(super) retained: &'a Retained,
    /// Beside the loop: where it is told to stop.
    pub(super) running: Option<&'a Arc<Running>>,
    /// And the keys that are claimed.
    pub(super) claimed: &'a [KeyRef<'a>],
    /// When it had the keys that it begins with: what it waited for them is not its time.
    began: Cell<Option<Nanos>>,
}

impl<'a> Attempt<'a> {
    /// A run on a loop.
    pub(crate) fn new(
        server: &'a Server,
        invocation: &'a Invocation<'a>,
        state: ConnectionState,
        retained: &'a Retained,
    ) -> Self {
        Self { server, invocation, state, retained, running: None, claimed: &[], began: Cell::default() }
    }

    /// The same beside the loop, over `claimed` keys.
    pub(crate) fn beside(self, running: &'a Arc<Running>, claimed: &'a [KeyRef<'a>]) -> Self {
        Self { running: Some(running), claimed, ..self }
    }

    /// Makes it, as command `number` of a body; appends the reply to `out`.
    ///
    /// # Errors
    /// Why it is over, with the reply if it was stopped; then nothing of it is to happen.
    pub(crate) fn make(
        &self,
        within: &mut Within<'_, '_>,
        number: usize,
        out: &mut Vec<u8>,
    ) -> Result<Executed, Halt<Vec<u8>>> {
        let Self { server, invocation, state, running, .. } = *self;
        let (start, pace) = (out.len(), self.begin());
        if running.is_some() {
            // one of its commands may take longer than the script may run
            let pace = pace.clone();
            within.access.end_when(Some(Arc::new(move || pace.over().is_some())));
        }
        let mut calls = Calls::new(self, pace.clone(), within, number);
        let client = Client { resp3: state.resp3, reply_bytes_max: server.tuned.sizes.reply_bytes_max() };
        let ran = with_interpreter(server, |interpreter| {
            interpreter.run(
                invocation.code(),
                invocation.inputs(self.retained.seed),
                &mut calls,
                pace,
                client,
                out,
            )
        });
        calls.end();
        let outcome = ran.map_err(|failure| match failure {
            Failure::Error(text) => Halt::GivenUp(text.into_owned().into_bytes()),
            _ => Halt::GivenUp(b"ERR no interpreter".to_vec()),
        })?;
        match outcome {
            Outcome::Reply => {
                let failed = out.get(start) == Some(&b'-');
                if failed {
                    server.stats.error(&out[start + 1..]);
                }
                Ok(Executed { failed, ..calls.executed() })
            }
            Outcome::Error(text) => {
                server.stats.write_failure(Failure::Bytes(text), state.resp3, out);
                Ok(Executed { failed: true, ..calls.executed() })
            }
            Outcome::Over(Over::Host) => Err(calls.into_halt()),
            Outcome::Over(Over::Time) if running.is_none() => Err(Halt::long(number)),
            Outcome::Over(over) => Err(Halt::GivenUp(self.stopped(over))),
            Outcome::Memory => {
                let most = server.tuned.script_memory_bytes_max.load(Ordering::Relaxed);
                let text = format!(
                    "ERR the script needs more memory than script.memory_limit ({most} B); nothing of it has happened"
                );
                Err(Halt::GivenUp(text.into_bytes()))
            }
        }
    }

    /// It has its keys; how long it may run from now on.
    fn begin(&self) -> Pace {
        let Self { server, running, retained, .. } = *self;
        let now = server.clock.now();
        self.began.set(Some(now));
        let until = now + time_max(server, running, retained);
        let looks_max = if running.is_some() { u32::MAX } else { LOOP_LOOKS_MAX };
        Pace { clock: Arc::clone(&server.clock), until, looks_max, running: running.cloned() }
    }

    /// How long it has run by now.
    pub(super) fn took(&self) -> Duration {
        self.began.get().map_or(Duration::ZERO, |began| self.server.clock.now().since(began))
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
