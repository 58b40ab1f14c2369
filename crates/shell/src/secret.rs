//! What a child is told and no other process is.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;

/// What a child reads from a descriptor, whose number it has in its environment.
#[derive(Clone)]
pub struct Secret {
    variable: &'static str,
    text: Arc<str>,
}

impl Secret {
    /// What a child finds behind the descriptor whose number is in `variable`.
    #[must_use]
    pub fn new(variable: &'static str, text: &str) -> Self {
        Self { variable, text: text.into() }
    }

    /// Has what `command` starts find it; what is returned is kept until it was started.
    pub(crate) fn hand_over(&self, command: &mut Command) -> io::Result<OwnedFd> {
        processes::hand_over(command, self.variable, &self.text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("variable", &self.variable).finish_non_exhaustive()
    }
}
