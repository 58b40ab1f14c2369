//! Requests of a pipeline that are parsed before they run, so that what they will look up is on its way from memory meanwhile.

use std::cell::Cell;

use reactor::Input;
use resp::{ArgsView, Limits, Parsed, RequestParser};
use store::{Foreseen, Foresight, KeyRef};

use crate::request::{ParsedRequest, Request};
use crate::server::Server;
use crate::session::Session;

thread_local! {
    /// Ranges of the requests being parsed: one for each loop, not one for each connection.
    pub(crate) static PIPELINE: Cell<Option<Box<Pipeline>>> = const { Cell::new(None) };
}

/// Prefetches what the request of each input will look up. Pipelines do that for themselves, and a request that comes in
/// parts is left alone: what came of it before would be parsed again with each part.
pub(crate) fn on_ahead(server: &Server, inputs: &mut dyn Iterator<Item = (&Session, &Input)>) {
    let Some(mut foresight) = server.store.foresight() else { return };
    let mut ahead = PIPELINE.take().unwrap_or_default();
    // What was parked was parsed before: a long one takes its time.
    let is_new = |session: &Session| session.pending.is_none() && session.parser.is_fresh();
    for (session, input) in inputs.filter(|(session, _)| is_new(session)) {
        let args = &mut ahead.spare().args;
        let parsed =
            RequestParser::new().parse(input.bytes(), &server.tuned.limits(session.authenticated), args);
        if parsed == Ok(Parsed::Complete { consumed: input.len() }) {
            foresee(&mut foresight, session.db, args.view(input.bytes()));
        }
    }
    foresight.prefetch();
    ahead.clear();
    PIPELINE.set(Some(ahead));
}

/// A guess what the key is; a wrong one costs no more than a right one.
fn foresee(foresight: &mut Foresight<'_>, db: u16, args: ArgsView<'_>) -> Option<Foreseen> {
    args.try_get(Request::FORESEEN_ARG).map(|key| foresight.add(KeyRef { db, key }))
}

/// Requests of a pipeline that are parsed and have not run.
#[derive(Default)]
pub(crate) struct Pipeline {
    requests: [ParsedRequest; AHEAD_REQUESTS_MAX],
    next: usize,
    count: usize,
    /// Those before this one need not be tried as a series.
    tried: usize,
    /// For a request that is parsed by itself.
    spare: ParsedRequest,
}

impl Pipeline {
    /// Parses the complete requests at the front of `input`, up to some bound, and prefetches what they will look up if there
    /// are several.
    pub(crate) fn look(&mut self, server: &Server, db: u16, input: &[u8], limits: &Limits) {
        self.parse(input, limits);
        if self.count < 2 {
            return;
        }
        let Some(mut foresight) = server.store.foresight() else { return };
        let (mut rest, mut before) = (input, None);
        for request in &mut self.requests[..self.count] {
            // those of a series have one key
            let known = before.filter(|_| request.follows);
            request.foreseen = known.or_else(|| foresee(&mut foresight, db, request.args.view(rest)));
            before = request.foreseen;
            rest = &rest[request.bytes..];
        }
        foresight.prefetch();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.count
    }

    pub(crate) fn spare(&mut self) -> &mut ParsedRequest {
        &mut self.spare
    }

    /// Parses what `input` begins with; what is not complete, or wrong, is left.
    fn parse(&mut self, input: &[u8], limits: &Limits) {
        (self.next, self.count, self.tried) = (0, 0, 0);
        let (mut rest, mut before) = (input, None);
        for request in &mut self.requests {
            if rest.is_empty() {
                break;
            }
            let parsed = RequestParser::new().parse(rest, limits, &mut request.args);
            let Ok(Parsed::Complete { consumed }) = parsed else { break };
            let args = request.args.view(rest);
            let named = args.try_get(0).zip(args.try_get(Request::FORESEEN_ARG));
            request.follows = named.is_some() && named == before;
            (request.bytes, request.foreseen, before) = (consumed, None, named);
            rest = &rest[consumed..];
            self.count += 1;
        }
    }

    /// The next request with those behind it that follow it, if there are any and they were not tried as a series before.
    pub(crate) fn untried_series(&mut self) -> Option<&[ParsedRequest]> {
        let ahead = &self.requests[..self.count];
        if self.next < self.tried || !ahead.get(self.next + 1)?.follows {
            return None;
        }
        let follow = ahead[self.next + 1..].iter().take_while(|request| request.follows).count();
        self.tried = self.next + 1 + follow;
        Some(&ahead[self.next..self.tried])
    }

    pub(crate) fn next(&mut self) -> Option<&mut ParsedRequest> {
        let request = self.requests[..self.count].get_mut(self.next)?;
        self.next += 1;
        Some(request)
    }

    /// So many more have run.
    pub(crate) fn pass(&mut self, count: usize) {
        self.next += count;
    }

    /// Forgets the requests and keeps the memory, within bounds.
    pub(crate) fn clear(&mut self) {
        self.requests[..self.count].iter_mut().for_each(|request| request.args.clear());
        self.spare.args.clear();
        (self.next, self.count, self.tried) = (0, 0, 0);
    }
}

/// Requests of a pipeline whose keys are prefetched together.
pub(crate) const AHEAD_REQUESTS_MAX: usize = 16;
