//! The transaction manager beside Narayana's: `evenkeel bench tx --against narayana`, by turns, each JVM warm.
//!
//! Untuned its journal waits for company at a fixed time, so one thread is compared with the tuned one. Its 400 threads stand beside
//! ours, and (reported) beside as many clients on one thread, which its interface has no way to make.

use super::context::Context;
use super::tx::measure;
use crate::Failure;
use crate::figure::{Figure, Target};

/// Rates beside those of Narayana's stores.
pub(super) fn tx_narayana(context: &Context) -> Result<Vec<Figure>, Failure> {
    let cases = [
        (
            ("tx-narayana/journal-400", "400 threads, journal / Narayana's journal with asynchronous I/O"),
            ["--log", "journal", "--threads", "400", "--against", "narayana=journal-aio"],
            Some(Target::AtLeast(8.0)),
        ),
        (
            ("tx-narayana/journal-1", "1 thread, journal / Narayana's journal, tuned"),
            ["--log", "journal", "--threads", "1", "--against", "narayana=journal-tuned"],
            Some(Target::AtLeast(1.3)),
        ),
        (
            ("tx-narayana/file-100", "100 threads, file log / Narayana's default store of files"),
            ["--log", "file", "--threads", "100", "--against", "narayana=file"],
            Some(Target::AtLeast(1.0)),
        ),
        (
            (
                "tx-narayana/clients-400",
                "400 clients on a thread, journal / Narayana's journal with asynchronous I/O, 400 threads",
            ),
            ["--log", "journal", "--logical", "400", "--against", "narayana=journal-aio"],
            None,
        ),
        (
            (
                "tx-narayana/tuned-400",
                "400 threads, journal / Narayana's journal with asynchronous I/O, tuned",
            ),
            ["--log", "journal", "--threads", "400", "--against", "narayana=journal-aio-tuned"],
            None,
        ),
    ];
    let warm_up = if context.quick { "3s" } else { "40s" };
    let mut figures = Vec::new();
    for ((id, what), arguments, target) in cases {
        let measured = measure(context, &[&arguments[..], &["--jvm-warm-up", warm_up]].concat())?;
        let title = format!("empty transactions, {what}");
        figures.push(measured.beside(id, &title, "narayana", target)?);
    }
    Ok(figures)
}
