//! Housekeeping's trimming: what a checkpoint covers needs no footer, and no room for one.
//!
//! It has the lowest rank: a segment that is about to be given back whole is left alone. Out of scope: how (`journal`).

use journal::{JournalError, SegmentInfo, SegmentState};

use super::{Housekeeping, Survey, Work};

impl Housekeeping {
    /// Gives back the room behind one segment's batches; whether there was one.
    pub(super) fn trim(&self, work: &mut Work, survey: &Survey<'_>) -> Result<bool, JournalError> {
        let Survey { store, ref segments, .. } = *survey;
        let Some(published) = &work.published else { return Ok(false) };
        let is_due = |info: &&SegmentInfo| {
            matches!(info.state, SegmentState::Sealed | SegmentState::Footed)
                && info.last_lsn.0 <= published.lsn
                && info.size_bytes - info.end_bytes >= info.size_bytes / ROOM_SHARE
                && !work.untrimmed.contains(&info.segment.0)
                && !work.emptied.contains_key(&info.segment.0)
                && !work.died_whole(info, store)
                && work.footing.as_ref().is_none_or(|footing| footing.segment() != info.segment)
        };
        let Some(info) = segments.iter().find(is_due) else { return Ok(false) };
        match store.engine.journal.trim(info.segment) {
            Ok(0) => drop(work.untrimmed.insert(info.segment.0)),
            Ok(_) => {}
            Err(error @ JournalError::Invalid(_)) => {
                tracing::info!(%error, "room for footers is not given back");
                work.untrimmed.extend(segments.iter().map(|info| info.segment.0));
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// A smaller part of a file is not worth an entry in the manifest.
const ROOM_SHARE: u64 = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clock::{SimClock, UnixMs};
    use vfs::SimDisk;

    use super::super::Manner;
    use crate::{KeyRef, Options, Prepared, Scope, Store, Value};

    fn open(disk: &SimDisk) -> Arc<Store> {
        Store::open(Options {
            background: false,
            readers: 0,
            clock: Arc::new(SimClock::new(UnixMs(1_000_000))),
            vfs: Arc::new(disk.clone()),
            dir: "/data".into(),
            journal: journal::Options { segment_size_bytes: 1 << 20, ..journal::Options::small() },
            ..Options::default()
        })
        .expect("opens")
    }

    fn fill(store: &Store, keys: u32) {
        let prepared = Prepared::default();
        for n in 0..keys {
            let key = n.to_be_bytes();
            let scope = [KeyRef { db: 0, key: &key }];
            let mut access = store.access(Scope::Keys(&scope), &prepared, 100).expect("room");
            access.put(0, &key, Value::String(&[7; 100]), None);
            access.commit().expect("committed");
            while n % 100 == 0 && store.drive() {}
        }
        while store.drive() {}
    }

    /// Segments that cleaning had given back, and that only waited for their files to serve again, were counted as log:
    /// INFO showed a log of several times what lives right after it had been cleaned.
    #[test]
    fn report_tells_the_log_from_files_that_wait() {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        fill(&store, 20_000);
        let (_, parts) = store.housekeeping().expect("engine log");
        let sealed = parts.engine.journal.segments()[0];
        let report = || store.log_report().expect("engine log");
        let before = report();
        let pin = parts.engine.journal.pin(sealed.segment).expect("it is there");
        fill(&store, 20_000);
        store.checkpoint().expect("published");
        store.checkpoint().expect("what the first did not meet is given back");
        let all: u64 = parts.engine.journal.segments().iter().map(|info| info.end_bytes).sum();
        assert!(report().log_bytes + sealed.end_bytes <= all, "{:?}", report());
        assert!(report().disk_bytes > before.disk_bytes.min(all), "{:?}", report());
        drop(pin);
    }

    /// 1 M keys that were overwritten in random order came to rest at 370 MB, a fifth of it room for footers of segments
    /// that start from a checkpoint.
    #[test]
    fn segments_below_the_checkpoint_keep_no_room_for_footers() {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        fill(&store, 40_000);
        store.checkpoint().expect("published");
        let before = disk.used_bytes();
        let (housekeeping, parts) = store.housekeeping().expect("engine log");
        while housekeeping.turn(parts, Manner::Paced).expect("the journal runs").worked {
            while store.drive() {}
        }
        let report = store.log_report().expect("engine log");
        let counters = store.journal_counters().expect("engine log");
        assert!(counters.segments_trimmed >= 5, "{counters:?}");
        assert!(disk.used_bytes() < before - report.log_bytes / 4, "{before} B, then {}", disk.used_bytes());
        drop(store);
        let store = open(&disk.crash(1));
        assert_eq!(store.key_counts()[0].0, 40_000);
    }
}
