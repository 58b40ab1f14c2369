//! What a command does that finds no element: BLPOP and its like.

/// What a command does that finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Ready<'a> {
    /// Answers that there is nothing: in a transaction, in a script.
    #[default]
    AnswersAtOnce,
    /// Waits.
    Waits,
    /// Goes on waiting; all its keys are looked at once more.
    StillWaits,
    /// Goes on waiting; this key alone was changed and is looked at.
    Changed(&'a [u8]),
}

impl Ready<'_> {
    /// Of a command that waits, on its own loop; whether it stands in line.
    pub(crate) fn on_loop(stands_in_line: bool) -> Self {
        if stands_in_line { Self::StillWaits } else { Self::Waits }
    }
}
