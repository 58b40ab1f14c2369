//! MULTI and WATCH; EXEC itself is in `exec`.

use std::sync::atomic::Ordering;

use resp::{ArgsView, Writer};

use crate::call::{Control, Outcome};
use crate::session::Transaction;

pub(crate) fn multi(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    control.session.transaction = Some(Box::new(Transaction::default()));
    control.session.client.queued.store(0, Ordering::Relaxed);
    out.ok();
    Ok(())
}

pub(crate) fn discard(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    control.session.drop_transaction();
    control.session.client.queued.store(-1, Ordering::Relaxed);
    control.session.client.watched.store(0, Ordering::Relaxed);
    out.ok();
    Ok(())
}

pub(crate) fn watch(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.session.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let session = &mut *control.session;
    for key in args.iter().skip(1) {
        let known = session.watched.iter().any(|watch| watch.db() == session.db && watch.key() == key);
        if !known {
            session.watched.push(control.server.store.watch(session.db, key));
        }
    }
    let count = u32::try_from(session.watched.len()).unwrap_or(u32::MAX);
    session.client.watched.store(count, Ordering::Relaxed);
    out.ok();
    Ok(())
}

pub(crate) fn unwatch(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    control.session.watched = Vec::new();
    control.session.client.watched.store(0, Ordering::Relaxed);
    out.ok();
    Ok(())
}
