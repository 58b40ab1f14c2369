//! MULTI and WATCH; EXEC itself is in `exec`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::{Failure, Outcome};
use resp::{ArgsView, Writer};
use store::Watch;

use crate::control::Control;
use crate::errors;
use crate::server::Server;
use crate::transaction::Transaction;

pub(crate) fn multi(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    control.session.transaction = Some(Box::new(Transaction::default()));
    control.session.show_transaction();
    out.ok();
    Ok(())
}

pub(crate) fn discard(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    control.session.end_transaction(&control.server.long);
    out.ok();
    Ok(())
}

pub(crate) fn watch(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let (server, session) = (control.server, &mut *control.session);
    let (former_bytes, mut watched) = (session.watched_bytes(), session.unwatch());
    let bytes = watch_keys(server, session.db, &mut watched, args);
    session.watch(watched, *bytes.as_ref().unwrap_or(&former_bytes));
    bytes?;
    session.show_transaction();
    out.ok();
    Ok(())
}

/// Adds the keys of WATCH to those that are `watched`; returns the bytes that all of them keep.
pub(crate) fn watch_keys(
    server: &Arc<Server>,
    db: u16,
    watched: &mut Vec<Watch>,
    args: ArgsView<'_>,
) -> Result<u64, Failure> {
    let mut new: HashSet<&[u8]> = args.iter().skip(1).collect();
    let bytes = |key: &[u8]| (key.len() + WATCH_BYTES) as u64;
    let mut held = 0;
    for watch in &*watched {
        held += bytes(watch.key());
        if watch.db() == db {
            new.remove(watch.key());
        }
    }
    let most = server.tuned.transaction_bytes_max.load(Ordering::Relaxed);
    let held = held + new.iter().map(|key| bytes(key)).sum::<u64>();
    if held > most {
        return Err(format!("ERR watched keys would take more than transaction.max ({most} B)").into());
    }
    // counted as the session's when that is done
    let _asked = server
        .store
        .ask_memory(new.iter().map(|key| bytes(key)).sum())
        .map_err(|stop| errors::no_memory(&stop))?;
    watched.extend(new.into_iter().map(|key| server.store.watch(db, key)));
    Ok(held)
}

pub(crate) fn unwatch(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let watched = control.session.unwatch();
    control.server.long.drop_large(watched.len(), watched);
    control.session.show_transaction();
    out.ok();
    Ok(())
}

/// What a watched key takes here and in the store, beside its bytes.
const WATCH_BYTES: usize = 256;
