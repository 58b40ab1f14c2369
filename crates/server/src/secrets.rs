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
            let is_password =
                |name| position(name, 2).is_some_and(|at| index == at + 1 || !args.len().is_multiple_of(2));
            PASSWORDS.into_iter().any(is_password)
        }
        "acl|setuser" => index > 1,
        "acl|dryrun" => is_within(args, 3, index),
        "command|getkeys" | "command|getkeysandflags" | "tx.do" => is_within(args, 2, index),
        // The definition, and values for what it leaves open.
        "topology|submit" => index > 2,
        _ => false,
    }
}

/// Whether the argument at `index` is one of a command at `at` that may take passwords: all of these are.
fn is_within(args: ArgsView<'_>, at: usize, index: usize) -> bool {
    let takes = |name: &[u8]| ["auth", "hello", "acl", "config"].into_iter().any(|word| is(name, word));
    index > at && args.try_get(at).is_some_and(takes)
}

/// Names of CONFIG whose values are passwords, also where they mean nothing here.
const PASSWORDS: [&str; 4] = ["requirepass", "masterauth", "tls-key-file-pass", "tls-client-key-file-pass"];
