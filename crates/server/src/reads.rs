//! Reads from disk for one command: for how long it may go on with them.
//!
//! A command that meets something cold waits until it is read, and is executed again. What was read is kept for it, within a bound of
//! memory that `store` has; so each time there is less to read.

use std::time::Duration;

use clock::Nanos;
use commands::failure::Failure;

use crate::errors;

/// How often records were read from disk for one command, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    count: u64,
    since: Option<Nanos>,
}

impl Reads {
    /// Counts one more at `now`.
    ///
    /// # Errors
    /// What the command is answered with: it has read for [`READS_TIME_MAX`].
    pub(crate) fn begin(&mut self, now: Nanos) -> Result<(), Failure> {
        let reading = now.since(*self.since.get_or_insert(now));
        if reading > READS_TIME_MAX {
            return Err(errors::never_ready(self.count, reading));
        }
        self.count += 1;
        Ok(())
    }
}

/// How long records are read from disk for one command. Each time something is read that was not there before, and it stays: the command
/// ends, unless others change what it needs as fast as it is read.
const READS_TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_reads_for_too_long_says_how_long_and_how_often() {
        let mut reads = Reads::default();
        let began = Nanos(5);
        for _ in 0..1_000 {
            assert!(reads.begin(began + READS_TIME_MAX).is_ok(), "any number of reads");
        }
        let Err(Failure::Error(text)) = reads.begin(began + READS_TIME_MAX * 2 + Duration::from_nanos(1))
        else {
            panic!("it goes on for ever")
        };
        assert!(text.contains("for 60 s") && text.contains("1000 times"), "{text}");
    }
}
