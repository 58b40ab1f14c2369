//! Which arguments are passwords: MONITOR and SLOWLOG show something else in their place.

use resp::ArgsView;

use crate::handlers::args::is;
use crate::lookup::Entry;

/// What is shown instead.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Whether the argument at `index` is a password or the name that goes with one.
pub(crate) fn is_secret(entry: &Entry, args: ArgsView<'_>, index: usize) -> bool {
    let follows = |word: &str, distance: usize| {
        index.checked_sub(distance).filter(|at| *at > 0).is_some_and(|at| is(args.get(at), word))
    };
    match entry.command.name {
        "auth" => index > 0,
        "hello" => follows("auth", 1) || follows("auth", 2),
        "config|set" => index % 2 == 1 && follows("requirepass", 1),
        _ => false,
    }
}
