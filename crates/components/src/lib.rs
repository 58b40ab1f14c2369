//! Ready-made components of topologies: what a definition names as the command `["evenkeel", "component", NAME, ...]`.
//!
//! ```text
//!  command -> Builtin (checked: arguments, fields) -> Factory of topology::Spout or topology::Bolt
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`catalog`] | the table of components; a command that names one; whether it fits its streams |
//! | [`arguments`], `row` | options with their bounds, as a table that errors are made from; a row of the table of components |
//! | `stream_spout` | entries of a stream, by a consumer group |
//! | `state` | what components keep, and what becomes of it under another definition |
//! | `trial` | a definition that is tried: what it writes under a prefix |
//! | `generator` | tuples out of nothing, for tests and measurements |
//! | `asking` | what bolts do that ask a server for each tuple: requests, replies, errors |
//! | `line` | a bolt's connection, with the tuples that wait on it |
//! | `key_sink`, `template`, `convert` | commands on keys, made from fields; values as text and numbers |
//! | `stream_sink` | entries of streams, messages of channels |
//! | `counting`, `distinct`, `window`, `top` | counts and sums, of values, of time, the largest ones; in memory or in keys |
//! | `draft`, `tree`, `form` | with exactly-once: what a call changes when it has read all; an ordered set in state; what keys were made for |
//! | `closing` | windows that end, each with one result; late tuples |
//! | `dedupe`, `rate_limit`, `enrich` | which tuples go on, when, and with what |
//! | `join` | tuples of two components with the same key become one |
//! | `file_spout`, `file_sink` | lines of files |
//! | `http_sink` | requests to a web server |
//!
//! Invariants
//!   1. A tuple is acknowledged when the server has said that it did what the tuple asks for, and an entry of a stream when its tuple is.
//!   2. No call waits for a server: connections have threads of their own. All that waits has a bound.
//!   3. A lost connection is no tuple's fault: its tuples are tried again, and the attempt does not count.
//!
//! Out of scope: what runs components (`worker`), processes that speak multilang (`shell`).

pub mod arguments;
mod asking;
pub mod catalog;
mod closing;
mod convert;
mod counting;
mod dedupe;
mod distinct;
mod draft;
mod enrich;
mod file_sink;
mod file_spout;
mod form;
mod generator;
mod http_sink;
mod join;
mod key_sink;
mod line;
mod rate_limit;
mod row;
mod state;
mod stream_sink;
mod stream_spout;
mod template;
#[cfg(test)]
mod testing;
mod top;
mod tree;
mod trial;
mod window;

pub use arguments::CommandError;
pub use catalog::{Builtin, Shape, default_target, misfit_of_program};
pub use row::Row;
pub use state::{Fate, Held, Outcome, compare};
pub use stream_spout::entry_number;
pub use trial::{Group, Trial, group, is_program, letters, redirect};
