//! What a request does next that the store stopped: it waits for what it lacks, or is answered with the reason.

use std::sync::atomic::Ordering;
use std::time::Duration;

use commands::copies::Copies;
use store::{KeyRef, Prepared, Stop, StoreError};

use crate::errors;
use crate::outcome::{Ran, Unready};
use crate::server::Server;
use crate::session::Session;

/// What a request that the store stopped does next: wait, or answer with the reason.
pub(crate) fn wait(
    server: &Server,
    stop: Stop,
    session: &mut Session,
    mut prepared: Prepared,
    copies: Copies,
    keys: &[KeyRef<'_>],
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    match stop {
        Stop::Cold => {
            let pending = session.pending.get_or_insert_default();
            pending.copies = copies;
            if let Err(failure) = pending.reads.begin(server.clock.now()) {
                server.stats.fetches_given_up.fetch_add(1, Ordering::Relaxed);
                server.stats.write_failure(failure, session.resp3, out);
                return Ok(Ran::plain(server.store.newest(), true));
            }
            server.store.missing(keys, &mut prepared);
            prepared.bound_values(server.tuned.sizes.reply_bytes_max() as u64);
            server.stats.fetches.fetch_add(1, Ordering::Relaxed);
            Err(Unready::Fetch(prepared))
        }
        Stop::Busy => {
            server.stats.waits_for_credits.fetch_add(1, Ordering::Relaxed);
            if copies.is_crowded() {
                // two that keep what they have read would wait for each other
                prepared.forget_large();
            }
            let pending = session.pending.get_or_insert_default();
            (pending.prepared, pending.copies) = (prepared, copies);
            Err(Unready::Credits)
        }
        Stop::Locked(locked) => {
            let now = server.clock.now();
            let client = session.client.id;
            let wait = server.settings.current().txn_lock_wait;
            let pending = session.pending.get_or_insert_default();
            let until = *pending.locked_until.get_or_insert(now + wait);
            if now >= until {
                let by = server
                    .transactions
                    .as_ref()
                    .map_or_else(|| locked.by.to_string(), |it| it.owner_of(&locked.by));
                server.stats.write_failure(errors::locked(&locked, &by), session.resp3, out);
                return Ok(Ran::plain(server.store.newest(), true));
            }
            (pending.prepared, pending.copies) = (prepared, copies);
            server.waits.wait_for_unlock(client);
            // The hook may have run between the refusal and the line above.
            Err(Unready::Until(until.min(now + LOCK_RETRY)))
        }
        Stop::Long => unreachable!("whoever may be stopped so goes on beside the loop"),
        Stop::Abandoned | Stop::Refused(StoreError::Journal(_)) => Err(Unready::Dead),
        Stop::Refused(error) | Stop::Damaged(error) => {
            server.stats.write_failure(errors::of_store(&error), session.resp3, out);
            Ok(Ran::plain(server.store.newest(), true))
        }
    }
}

/// A connection that waits for a key looks again by itself after this.
const LOCK_RETRY: Duration = Duration::from_millis(20);
