//! What a command does that finds no element, and what it then waits for: BLPOP and its like.

use std::sync::Arc;

use store::ValueKind;

/// What a command does that finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub enum Ready<'a> {
    /// Answers that there is nothing: in a transaction, in a script.
    #[default]
    AnswersAtOnce,
    /// Waits.
    Waits,
    /// Goes on waiting; this key alone was changed and is looked at.
    Changed(&'a [u8]),
}

/// What a command waits for: whether others find nothing where it has found nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wants {
    /// Any element of a collection of this type: nobody else who wants that finds one.
    Any(ValueKind),
    /// New entries for this group of consumers: the same.
    New(Arc<[u8]>),
    /// What only it can tell: others may find something.
    Own,
}
