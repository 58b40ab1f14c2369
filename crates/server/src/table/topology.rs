//! Commands of topologies that the server runs.
//!
//! One row a command, as `row` describes. Redis has none of them.

use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::{topology, topology_show, trials};

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "topology", -2, [], [], Handler::Container(TOPOLOGY),
        "slow", "", "topologies", "7.2.0", "Depends on subcommand.",
        "A container for commands of topologies (not in Redis)";
};

/// Subcommands of TOPOLOGY.
const TOPOLOGY: &[Row] = rows! {
    "topology|activate", 3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::activate),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(1)",
        "Lets the spouts of a topology emit (not in Redis)",
        args "name:string";
    "topology|deactivate", 3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::deactivate),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(1)",
        "Lets the spouts of a topology emit nothing new (not in Redis)",
        args "name:string";
    "topology|diff", -4, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::diff),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(N log N) where N is the size of both definitions",
        "Tells what would change if a definition took the place of a topology (not in Redis)",
        args "name:string definition:string [property{name:string value:string}=PROPERTY++] [folder:string=FOLDER] [workers:integer=WORKERS]";
    "topology|drain", -3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::drain),
        "admin slow dangerous blocking", "", "topologies", "7.2.0", "O(1)",
        "Deactivates a topology, and answers when nothing is under way any more (not in Redis)",
        args "name:string [seconds:integer=WAIT]";
    "topology|help", 2, [LOADING STALE], [], Handler::Control(topology_show::help),
        "slow", "", "topologies", "7.2.0", "O(1)",
        "Show helpful text about the different subcommands";
    "topology|kill", -3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::kill),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(1)",
        "Ends a topology when what is under way is finished, and forgets it (not in Redis)",
        args "name:string [seconds:integer=WAIT]";
    "topology|list", 2, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology_show::list),
        "admin slow", "", "topologies", "7.2.0", "O(N) where N is the number of topologies",
        "Lists topologies with their status (not in Redis)";
    "topology|rebalance", -3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::rebalance),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(N) where N is the number of tasks",
        "Has a number of workers share the tasks of a topology, which runs on meanwhile (not in Redis)",
        args "name:string [workers:integer=WORKERS]";
    "topology|restart", -3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology::restart),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(1)",
        "Starts the workers of a topology anew (not in Redis)",
        args "name:string [seconds:integer=WAIT]";
    "topology|show", 3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology_show::show),
        "admin slow", "", "topologies", "7.2.0", "O(N) where N is the number of components",
        "Tells what a topology and its components have done (not in Redis)",
        args "name:string";
    "topology|submit", -4, [ADMIN DENYOOM NOSCRIPT NO_MULTI], [], Handler::Control(topology::submit),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(N) where N is the size of the definition",
        "Runs a definition (not in Redis)",
        args "name:string definition:string [property{name:string value:string}=PROPERTY++] [folder:string=FOLDER] [workers:integer=WORKERS] [replace=REPLACE]";
    "topology|switch", -3, [ADMIN DENYOOM NOSCRIPT NO_MULTI], [], Handler::Control(trials::switch),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(N) where N is the number of keys of the database",
        "Puts a definition that is tried, with what it has written, in the place of a topology (not in Redis)",
        args "name:string [seconds:integer=WAIT]";
    "topology|tap", -4, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(topology_show::tap),
        "admin slow", "", "topologies", "7.2.0", "O(N) where N is the number of tuples",
        "Tells which tuples a component of a topology has emitted since the last time (not in Redis)",
        args "name:string component:string [stream:string=STREAM] [n:integer=SAMPLE] [count:integer=COUNT] [cursor:integer=CURSOR]";
    "topology|trial", 3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(trials::tell),
        "admin slow", "", "topologies", "7.2.0", "O(N) where N is the number of streams that it reads",
        "Tells where a definition that is tried reads and writes (not in Redis)",
        args "name:string";
    "topology|try", -6, [ADMIN DENYOOM NOSCRIPT NO_MULTI], [], Handler::Control(trials::begin),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(N) where N is the number of keys of the database",
        "Runs a definition beside a topology, with its keys under a prefix (not in Redis)",
        args "name:string definition:string prefix:string=PREFIX [position:string=FROM] [programs=PROGRAMS] [property{name:string value:string}=PROPERTY++] [folder:string=FOLDER] [workers:integer=WORKERS]";
    "topology|untry", -3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(trials::give_up),
        "admin slow dangerous", "", "topologies", "7.2.0", "O(N) where N is the number of keys of the database",
        "Ends the trial of a definition, and removes the keys that it has written (not in Redis)",
        args "name:string [seconds:integer=WAIT]";
};
