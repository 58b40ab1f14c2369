//! What a command does that finds no element: BLPOP and its like.

/// What a command does that finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Ready<'a> {
    /// Answers that there is nothing: in a transaction, in a script.
    #[default]
    AnswersAtOnce,
    /// Waits.
    Waits,
    /// Goes on waiting; this key alone was changed and is looked at.
    Changed(&'a [u8]),
}
