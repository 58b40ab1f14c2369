//! Which arguments are passwords: MONITOR and SLOWLOG show something else in their place.

use commands::lookup::Entry;
use commands::words::is;
use resp::ArgsView;

/// What is shown instead.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Whether the argument at `index` is a password or the name that goes with one.
pub(crate) fn is_secret(entry: &Entry, args: ArgsView<'_>, index: usize) -> bool {
    // Behind its word; all that follows, too, where the request is none: a password may have been meant to be in one piece.
    let position = |word: &str, first: usize| (first..index).rfind(|at| is(args.get(*at), word));
    match entry.command.name {
        "auth" => index > 0,
        "hello" => position("auth", 2).is_some_and(|at| {
            index <= at + 2 || !args.try_get(at + 3).is_some_and(|option| is(option, "setname"))
        }),
        "config|set" => {
            position("requirepass", 2).is_some_and(|at| index == at + 1 || !args.len().is_multiple_of(2))
        }
        "acl|setuser" => index > 1,
        // The definition, and values for what it leaves open.
        "topology|submit" => index > 2,
        _ => false,
    }
}
