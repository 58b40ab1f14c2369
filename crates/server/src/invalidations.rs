//! Tells a client to drop copies of keys: as a push of RESP3, or as a message to the channel `__redis__:invalidate`.
//!
//! Invariants
//!   1. An invalidation comes behind the reply that it is about: what came while a command waited is told again behind its reply.
//!   2. It does not come between the parts of a reply.

use std::sync::Arc;

use reactor::Output;
use resp::Writer;

use crate::session::Session;
use crate::tracker::Invalidated;

/// Tells a client, for itself or for `source`, to drop copies.
pub(crate) fn invalidate(
    session: &mut Session,
    source: u64,
    invalidated: Arc<Invalidated>,
    output: &mut Output,
) {
    if session.chunked.is_some() {
        session.late.push((source, invalidated));
        return;
    }
    let is_own = source == session.client.id;
    write_invalidated(session, is_own, invalidated.keys.as_deref(), output);
    output.hold(invalidated.ticket);
    if let (true, true, Some(tracking)) = (is_own, session.pending.is_some(), &mut session.tracking) {
        tracking.keep(&invalidated);
    }
}

/// Tells once more what came while a command waited that has answered now.
pub(crate) fn invalidate_again(session: &mut Session, output: &mut Output) {
    let Some(tracking) = &mut session.tracking else { return };
    let (again, is_all) = tracking.take_kept();
    for invalidated in again {
        write_invalidated(session, true, invalidated.keys.as_deref(), output);
    }
    if is_all {
        write_invalidated(session, true, None, output);
    }
}

fn write_invalidated(session: &Session, is_own: bool, keys: Option<&[Arc<[u8]>]>, output: &mut Output) {
    let mut writer = Writer::new(output.buffer(), session.resp3);
    if session.resp3 {
        writer.push(2);
        writer.bulk(b"invalidate");
    } else if !is_own && session.is_subscribed() {
        writer.push(3);
        writer.bulk(b"message");
        writer.bulk(b"__redis__:invalidate");
    } else {
        // version 2 has no message that nobody has subscribed to
        return;
    }
    match keys {
        Some(keys) => {
            writer.array(keys.len());
            keys.iter().for_each(|key| writer.bulk(key));
        }
        None => writer.null(),
    }
}

/// Tells a client that nobody is told of invalidations in its place any more.
pub(crate) fn tell_broken(session: &Session, output: &mut Output) {
    let Some(tracking) = session.tracking.as_ref().filter(|_| session.resp3) else { return };
    let mut writer = Writer::new(output.buffer(), true);
    writer.push(2);
    writer.bulk(b"tracking-redir-broken");
    writer.integer(tracking.tracker.options.redirect.cast_signed());
}
