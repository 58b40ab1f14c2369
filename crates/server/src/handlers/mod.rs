//! What each command does: one function a command, one file a group.

pub(crate) mod args;
pub(crate) mod backup;
pub(crate) mod bitfields;
pub(crate) mod bitmaps;
pub(crate) mod blocking;
pub(crate) mod capture;
pub(crate) mod client;
pub(crate) mod combined;
pub(crate) mod command;
pub(crate) mod conditions;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod databases;
pub(crate) mod debug;
pub(crate) mod dump;
mod elements;
pub(crate) mod expiry;
pub(crate) mod fields;
pub(crate) mod function;
pub(crate) mod geo;
pub(crate) mod geo_search;
pub(crate) mod groups;
pub(crate) mod hashes;
pub(crate) mod hyperloglogs;
pub(crate) mod increments;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod kill;
pub(crate) mod latency;
pub(crate) mod lcs;
pub(crate) mod list_moves;
pub(crate) mod lists;
mod loops;
pub(crate) mod memory;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod pubsub;
pub(crate) mod ranges;
pub(crate) mod scan;
pub(crate) mod score_ranges;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod sets;
pub(crate) mod slowlog;
pub(crate) mod sort;
pub(crate) mod sorted_sets;
pub(crate) mod stream_info;
pub(crate) mod stream_refs;
pub(crate) mod streams;
pub(crate) mod strings;
mod together;
pub(crate) mod topology;
mod topology_args;
pub(crate) mod topology_show;
pub(crate) mod transactions;
pub(crate) mod trials;
pub(crate) mod tx;

use resp::Writer;

/// Writes what HELP answers: a line about the command, its subcommands, and HELP itself.
pub(crate) fn help(out: &mut Writer<'_>, command: &str, lines: &[&str]) {
    out.array(lines.len() + 3);
    out.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| out.simple(line));
    out.simple("HELP");
    out.simple("    Prints this help.");
}
