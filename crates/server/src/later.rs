//! Commands of Redis that this server does not have yet: they get an error that says so, and not one for a wrong name.
//!
//! They are in no table: COMMAND does not list them. Out of scope: subcommands of commands that are there.
//! Source: COMMAND LIST of Redis 7.2 and 8, and of the modules that Redis 8 contains.

/// Whether Redis has a command of this name, in any case, that this server does not have.
pub(crate) fn is_of_redis(name: &[u8]) -> bool {
    let has = |names: &str| names.split_whitespace().any(|other| other.as_bytes().eq_ignore_ascii_case(name));
    let is_of_module = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    COMMANDS.iter().any(|names| has(names)) || MODULES.iter().any(is_of_module)
}

/// By group.
const COMMANDS: &[&str] = &[
    // strings and bits
    "pfdebug",
    // streams
    "xidmprecord",
    // vector sets
    "vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange vrem vsetattr vsim",
    // users, replication, cluster, server
    "asking cluster failover migrate psync readonly readwrite replconf replicaof \
     restore-asking slaveof sync",
];

/// What names of modules' commands begin with.
const MODULES: &[&str] =
    &["bf.", "cf.", "cms.", "ft.", "json.", "tdigest.", "timeseries.", "topk.", "ts.", "search."];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::commands;

    #[test]
    fn what_is_not_here_yet_is_in_no_table() {
        for name in COMMANDS.iter().flat_map(|names| names.split_whitespace()) {
            assert!(
                commands().find(name.as_bytes()).is_none(),
                "{name} is supported: take it out of the list"
            );
            assert!(is_of_redis(name.to_ascii_uppercase().as_bytes()), "{name}");
        }
        assert!(is_of_redis(b"JSON.SET") && is_of_redis(b"ft.search"));
        assert!(!is_of_redis(b"HSETT") && !is_of_redis(b"") && !is_of_redis(b"json") && !is_of_redis(b"get"));
    }
}
