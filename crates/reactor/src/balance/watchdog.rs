//! Loops that do not move: told once when it begins, once when it is over, with what they were in.

use std::time::Duration;

use clock::Nanos;

use crate::timing::Doing;

/// A loop whose heart stands still for so long, while it is awake, is stuck: ten times what a client with an eye on its
/// latency bears, and far beyond what a loaded machine keeps a thread waiting for.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(500);

/// What was noticed of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It does not move since `silent`.
    Stuck { silent: Duration, doing: Doing },
    /// It moves again; it stood still for about so long.
    Over { stood: Duration },
}

/// Remembers whether a loop is stuck.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Since when it stands still.
    since: Option<Nanos>,
}

impl Watch {
    /// Looks at a loop that has been silent for so long, `None` while it sleeps; what is new.
    pub(crate) fn look(&mut self, silent: Option<Duration>, doing: Doing, now: Nanos) -> Option<Notice> {
        let stuck = silent.filter(|silent| *silent >= STUCK_AFTER);
        match (self.since, stuck) {
            (None, Some(silent)) => {
                let nanos = u64::try_from(silent.as_nanos()).unwrap_or(u64::MAX);
                self.since = Some(Nanos(now.0.saturating_sub(nanos)));
                Some(Notice::Stuck { silent, doing })
            }
            (Some(since), None) => {
                self.since = None;
                Some(Notice::Over { stood: now - since })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn incident_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let mut watch = Watch::default();
        let mut look = |silent_ms: Option<u64>, now_ms: u64| {
            watch.look(silent_ms.map(Duration::from_millis), Doing::Callback(7), Nanos(now_ms * MS))
        };
        assert_eq!(look(None, 0), None, "asleep for long is not stuck");
        assert_eq!(look(Some(499), 1_000), None);
        let silent = Duration::from_millis(700);
        assert_eq!(look(Some(700), 1_200), Some(Notice::Stuck { silent, doing: Doing::Callback(7) }));
        assert_eq!(look(Some(950), 1_450), None, "said already");
        assert_eq!(look(Some(3), 1_700), Some(Notice::Over { stood: Duration::from_millis(1_200) }));
        assert_eq!(look(None, 2_000), None);
    }
}
