//! MULTI and WATCH; EXEC itself is in `exec`.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use resp::{ArgsView, Writer};

use crate::call::{Control, Outcome};
use crate::session::Transaction;

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
    control.session.drop_transaction();
    out.ok();
    Ok(())
}

pub(crate) fn watch(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let session = &mut *control.session;
    let mut new: HashSet<&[u8]> = args.iter().skip(1).collect();
    let bytes = |key: &[u8]| (key.len() + WATCH_BYTES) as u64;
    let mut held = 0;
    for watch in &session.watched {
        held += bytes(watch.key());
        if watch.db() == session.db {
            new.remove(watch.key());
        }
    }
    let most = control.server.tuned.transaction_bytes_max.load(Ordering::Relaxed);
    let held = held + new.iter().map(|key| bytes(key)).sum::<u64>();
    if held > most {
        return Err(format!("ERR watched keys would take more than transaction.max ({most} B)").into());
    }
    session.watched_bytes = held;
    session.watched.extend(new.into_iter().map(|key| control.server.store.watch(session.db, key)));
    session.show_transaction();
    out.ok();
    Ok(())
}

pub(crate) fn unwatch(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    control.session.unwatch();
    control.session.show_transaction();
    out.ok();
    Ok(())
}

/// What a watched key takes here and in the store, beside its bytes.
const WATCH_BYTES: usize = 256;
