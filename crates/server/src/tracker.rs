//! A client that keeps copies of keys, what it is told, and who remembers what it has read.
//!
//! Out of scope: the table of keys (`tracking`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ticket::Ticket;

use crate::traffic::Weight;

/// Remembers what clients have read.
pub(crate) trait Remembers {
    /// A client is about to read `key`, which is locked, and is to be told of its next change.
    fn remember(&self, key: &[u8], client: u64);
    /// Forgets keys beyond the most that are remembered. Nothing is locked.
    fn trim(&self);
}

/// How a client tracks.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrackingOptions {
    /// Of all keys that begin with one of `prefixes`, whether it has read them or not.
    pub(crate) bcast: bool,
    pub(crate) optin: bool,
    pub(crate) optout: bool,
    /// It is not told of its own changes.
    pub(crate) noloop: bool,
    /// Who is told in its place; 0: nobody else.
    pub(crate) redirect: u64,
    pub(crate) prefixes: Vec<Box<[u8]>>,
}

/// A client that tracks.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(crate) id: u64,
    pub(crate) options: TrackingOptions,
    /// The client that is told in its place has ended.
    pub(crate) is_broken: AtomicBool,
}

/// Keys whose copies are to be dropped.
#[derive(Debug)]
pub struct Invalidated {
    /// `None`: all.
    pub(crate) keys: Option<Vec<Arc<[u8]>>>,
    /// Of the change: nobody hears of it before that is durable.
    pub(crate) ticket: Ticket,
    /// Counts until the last client's loop took it.
    pub(crate) _weight: Weight,
}
