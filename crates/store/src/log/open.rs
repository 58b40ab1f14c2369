//! Opens the folder of engine `log`: recovers the index, then starts the journal and the readers of cold records.

use std::sync::{Arc, Mutex, OnceLock};

use journal::{Journal, JournalError};

use super::expected::Expected;
use super::housekeeping::Housekeeping;
use super::housekeeping::rest::Alarm;
use super::liveness::Liveness;
use super::reader::{Readers, Source};
use super::recovery::{open_error, recover};
use super::returns::Returns;
use super::throttle::WriteThrottle;
use super::wishes::Wishes;
use super::{JournalSource, LogEngine, Quarantine, TRANSACTION_MARGIN_BYTES};
use crate::error::StoreError;
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::options::{Durability, Options};
use crate::record;

/// What opening a folder gives.
pub(crate) struct Opened {
    pub(crate) engine: Arc<LogEngine>,
    pub(crate) index: Arc<Index>,
    pub(crate) hasher: KeyHasher,
    /// Newest time in the log.
    pub(crate) time_floor_ms: u64,
    pub(crate) housekeeping: Housekeeping,
}

/// Opens the folder that `options` name, or creates it.
///
/// # Errors
/// [`StoreError::Open`]: locked, damaged, of a newer version, or the disk refuses; the text says which.
pub(crate) fn open(options: &Options) -> Result<Opened, StoreError> {
    let mut settings = journal::Options {
        sync: match options.durability {
            Durability::Always => journal::SyncMode::Always,
            Durability::Interval(interval) => journal::SyncMode::Interval(interval),
            Durability::Never => journal::SyncMode::Never,
        },
        transaction_bytes_max: options.transaction_bytes_max + TRANSACTION_MARGIN_BYTES,
        content: record::CONTENT,
        ..options.journal.clone()
    };
    if let Some(identity) = &mut settings.identity {
        identity.hash_bits = options.hash_bits;
    }
    let (vfs, clock) = (Arc::clone(&options.vfs), Arc::clone(&options.clock));
    let recovery = Journal::open(vfs, clock, &options.dir, settings).map_err(|error| open_error(&error))?;
    let identity = recovery.identity();
    let hasher = KeyHasher::new(&identity.hash_key.to_le_bytes(), identity.hash_bits);
    let mut index = Arc::new(Index::new(options.databases));
    let liveness = Liveness::new();
    let recovered = recover(&recovery, options, &mut index, &hasher, &liveness)?;
    let time_floor_ms = recovery.newest_time_ms().max(recovered.time_ms);
    let (journal, driver) = if options.background {
        (recovery.start(hooks(options)).map_err(|error| open_error(&error))?, None)
    } else {
        let (journal, driver) = recovery.start_manual(hooks(options)).map_err(|error| open_error(&error))?;
        (journal, Some(Mutex::new(Some(driver))))
    };
    let quarantine = Arc::new(Quarantine::default());
    let wishes = Arc::new(Wishes::default());
    let source = Arc::new(JournalSource {
        journal: Arc::clone(&journal),
        index: Arc::clone(&index),
        hasher: hasher.clone(),
        quarantine: Arc::clone(&quarantine),
        expected: Expected::default(),
        wishes: Arc::clone(&wishes),
        memory: OnceLock::new(),
    });
    let readers = Readers::start(Arc::clone(&source) as Arc<dyn Source>, options.readers)
        .map_err(|error| StoreError::Open(format!("no threads for cold reads: {error}")))?;
    let waits = options.durability == Durability::Always;
    let alarm = Arc::new(Alarm::default());
    let engine = Arc::new(LogEngine {
        journal,
        liveness,
        waits,
        readers,
        source,
        driver,
        quarantine,
        damaged_at_start: recovered.damaged,
        throttle: WriteThrottle::default(),
        returns: Returns::default(),
        wishes,
        applying: Mutex::default(),
        room: Mutex::default(),
        alarm: Arc::clone(&alarm),
    });
    let housekeeping = Housekeeping::new(options, identity.folder, recovered.checkpoint, alarm);
    Ok(Opened { engine, index, hasher, time_floor_ms, housekeeping })
}

fn hooks(options: &Options) -> journal::Hooks {
    let (advance, credits, failure) = (options.hooks.clone(), options.hooks.clone(), options.hooks.clone());
    journal::Hooks {
        on_advance: Box::new(move |_| (advance.on_advance)()),
        on_credits: Box::new(move || (credits.on_credits)()),
        on_failure: Box::new(move |error| {
            let text = error.to_string();
            (failure.on_failure)(match error {
                JournalError::FolderGone { .. } => StoreError::FolderGone(text),
                _ => StoreError::Journal(text),
            });
        }),
    }
}
