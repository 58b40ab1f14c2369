//! Series: commands that follow each other in a pipeline, have the same name and name the same key, made as one change of it.
//!
//! ```text
//! pipeline    LPUSH q a | LPUSH q b | LPUSH q c | GET k
//! series      LPUSH q a, b, c: one access, one record, three replies
//! by itself   GET k
//! ```
//!
//! Invariants
//!   1. What each command answers, and what is left, is as if each had run by itself. Where that is not certain (an error, an option that a series does not
//!      know, somebody who waits for the key) nothing has happened, and each runs by itself.
//!   2. What is told of each command (INFO, MONITOR, captures) is told as if it had run by itself; of the time each has its share.
//!
//! Out of scope: which commands have series (`table`), how they are changed (`handlers`).

use std::sync::Arc;

use commands::call::{Data, Failure, SeriesFn};
use commands::copies::Copies;
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::{ArgsView, Writer};
use store::{KeyRef, Scope, Stop, Store};

use crate::admission::admit;
use crate::executor::conclude;
use crate::halted;
use crate::long::EFFORT_MAX;
use crate::outcome::{Ran, Replied, Unready};
use crate::request::{Request, Series};
use crate::run::{Answered, Body, Effects, Halt, How, Plan, Unfinished, Within};
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::table;

/// Runs a series and appends its replies to `out`; `None`: each command is to run by itself.
pub(crate) fn execute(
    server: &Arc<Server>,
    session: &mut Session,
    series: &Series<'_>,
    out: &mut Vec<u8>,
) -> Option<Result<Replied, Unready>> {
    let request = &series.first;
    let is_plain = session.transaction.is_none()
        && session.replies == Replies::On
        && request.bytes <= SERIES_BYTES_MAX
        && request.recorder.is_none()
        && server.monitors.is_empty()
        && !server.pause.is_set();
    if !is_plain {
        return None;
    }
    let entry = admit(server, session, request).ok()?;
    let handler = table::series(entry)?;
    // all else that is asked is the same for the same name and key, which is the only one
    if !series.requests[1..].iter().all(|args| entry.command.takes(args.len())) {
        return None;
    }
    let start = out.len();
    let result = run(server, session, entry, handler, series, out);
    if result.is_none() {
        out.truncate(start);
    }
    Some(conclude(server, session, entry, series, result?, start, out))
}

/// Runs a series in one access; `None`: each command is to run by itself, and nothing has happened.
fn run(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    handler: SeriesFn,
    Series { first, requests }: &Series<'_>,
    out: &mut Vec<u8>,
) -> Option<Result<Ran, Unready>> {
    let caller = session.caller();
    let mut prepared = session.take_prepared();
    let keys = [KeyRef { db: caller.db, key: first.args.get(Request::FORESEEN_ARG) }];
    let scope = first.foreseen.map_or(Scope::Keys(&keys), |foreseen| Scope::Foreseen(&keys[0], foreseen));
    let how = How { db: caller.db, resp3: caller.resp3, ready: Ready::AnswersAtOnce, in_parts: false };
    let plan = Plan {
        scope,
        prepared: &prepared,
        moment: Some(first.moment),
        growth_bytes: entry.growth_bytes(first.bytes),
        origin: caller.origin,
        effort_max: Some(EFFORT_MAX),
        effects: Effects::Commit,
    };
    let body = SeriesBody { handler, requests, keys: &keys, how };
    let ran = server.runner().run(&body, plan, &mut Copies::default(), out);
    let wanted = match ran.map_err(Unfinished::into_stopped) {
        Ok((Some(answered), ticket)) => return Some(Ok(Ran::answered(answered, ticket))),
        Err((Stop::Cold, wanted)) => Some(wanted),
        Ok((None, _)) | Err(_) => None,
    };
    if let Some(wanted) = wanted {
        prepared.want(wanted);
        let parked = halted::wait(server, Stop::Cold, session, prepared, Copies::default(), &keys, out);
        // the first one by itself will answer why nothing more is read
        return parked.is_err().then_some(parked);
    }
    if let Some(pending) = &mut session.pending {
        pending.prepared = prepared;
    }
    None
}

/// A series, as it is run in one access.
struct SeriesBody<'a> {
    handler: SeriesFn,
    requests: &'a [ArgsView<'a>],
    /// The only one.
    keys: &'a [KeyRef<'a>],
    how: How<'a>,
}

impl Body for SeriesBody<'_> {
    /// `None`: each command is to run by itself.
    type Done = Option<Answered>;

    fn run(
        &self,
        within: &mut Within<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Answered>, Halt<Option<Answered>>> {
        let key = self.keys[0];
        if within.access.is_waited_for(key.db, key.key) {
            // who waits is served between two commands
            return Err(Halt::GivenUp(None));
        }
        let handler =
            |data: &mut Data<'_, '_>, out: &mut Writer<'_>| (self.handler)(data, self.requests, out);
        match within.call_alone(self.how, out, handler) {
            (Ok(()), answered) => Ok(Some(answered)),
            (Err(failure @ Failure::Stop(_)), _) => Err(Halt::At(0, failure)),
            (Err(_), _) => Err(Halt::GivenUp(None)),
        }
    }

    fn copy_stored(&self, _: &Store, _: &mut Copies) {}

    fn args(&self, command: usize) -> ArgsView<'_> {
        self.requests[command]
    }
}

/// Bytes of all requests of a series, at most: none of them stores a large value.
const SERIES_BYTES_MAX: usize = 32 << 10;
