//! What of transactions only the log's side shows, or the keys that staging looks at.

use std::cell::Cell;
use std::sync::Arc;

use journal::LogAddress;
use ticket::Ticket;

use crate::engine::{Class, Engine};
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::keyspaces::PREPARED_KEYSPACE;
use crate::record::{self, Draft};
use crate::testlog::TestLog;
use crate::{EngineKind, KeyRef, Options, Prepared, Scope, Staging, Store, StoreError, Value};

thread_local! {
    /// Keys of stages that were looked at.
    pub(super) static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// Two groups that are appended one after the other mostly share a batch, which is there whole or not at all: a simulated crash
/// hardly ever falls between them.
#[test]
fn each_step_of_a_branch_is_one_group() {
    let log = Arc::new(TestLog::default());
    let options = Options { engine: EngineKind::Log, databases: 1, background: false, ..Options::default() };
    let hasher = KeyHasher::new(&[9; 16], 128);
    let engine = Arc::<TestLog>::clone(&log);
    let store =
        Store::assemble(options, engine, Arc::new(Index::new(1)), hasher, 0, None).expect("no threads");
    let prepared = Prepared::default();
    let mut workspace = store.workspace();
    let keys = [KeyRef { db: 0, key: b"a" }, KeyRef { db: 0, key: b"b" }];
    store.touch(&mut workspace, &keys).expect("room");
    let mut access = store.access(Scope::Keys(&keys), &prepared, 64).expect("room");
    access.resume(&workspace);
    access.put(0, b"a", Value::String(b"v"), None);
    access.put(0, b"b", Value::String(b"v"), None);
    access.keep(&mut workspace).expect("room");
    let counts = || (log.groups(), store.newest_seq().0);
    assert_eq!(counts(), (0, 0), "nothing is logged before it is prepared");
    let prepare = || {
        let staging = store.prepare("branch", &workspace, &prepared).expect("room");
        assert!(matches!(staging, Staging::Done { .. }), "{staging:?}");
    };
    prepare();
    assert_eq!(counts(), (1, 1));
    assert_eq!(store.rollback_prepared("branch", &prepared).expect("room"), Some(Ticket::of(2)));
    assert_eq!(counts(), (2, 2));
    prepare();
    assert_eq!(store.commit_prepared("branch", &prepared).expect("room"), Some(Ticket::of(6)));
    assert_eq!(counts(), (4, 6), "both changes and the removal of the record");
}

#[test]
fn image_that_cannot_be_decoded_refuses_the_start_by_the_name_of_its_branch() {
    for (image, what) in [(&b"\x03"[..], "newer version"), (b"\x01", "damaged")] {
        let (log, hasher) = (TestLog::default(), KeyHasher::new(&[9; 16], 128));
        let draft = Draft::whole(record::STRING, PREPARED_KEYSPACE, b"branch", image, None);
        let credits = log.reserve(draft.record_bytes(), 1, Class::Write).expect("room");
        log.append(credits, &[draft], &mut [LogAddress::default()]);
        let (log, index) = log.recover(1, &hasher, 1);
        let options =
            Options { engine: EngineKind::Log, databases: 1, background: false, ..Options::default() };
        let opened = Store::assemble(options, Arc::new(log), Arc::new(index), hasher, 0, None);
        let Err(StoreError::Open(text)) = opened else { panic!("nobody knows what it holds") };
        assert!(text.contains("prepared transaction branch") && text.contains(what), "{text}");
    }
}

/// Each command looked at every key of the stripes that it locked, four times for each of its own: an MSET of 1,000 keys as the
/// 500th of a transaction held all of them for more than a second, and every connection stood still.
#[test]
fn commands_that_name_their_keys_look_at_no_others_of_the_transaction() {
    let looks = |batches: u32| {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("nothing to read");
        let (mut workspace, prepared) = (store.workspace(), Prepared::default());
        LOOKS.set(0);
        for batch in 0..batches {
            let names: Vec<[u8; 4]> = (0..BATCH).map(|key| (batch * BATCH + key).to_be_bytes()).collect();
            let keys: Vec<KeyRef<'_>> = names.iter().map(|name| KeyRef { db: 0, key: name }).collect();
            for value in [b"fresh", b"again"] {
                store.touch(&mut workspace, &keys).expect("room");
                let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("room");
                access.resume(&workspace);
                keys.iter().for_each(|key| access.put(0, key.key, Value::String(value), None));
                access.keep(&mut workspace).expect("room");
            }
        }
        assert_eq!(
            (workspace.keys(), workspace.writes()),
            ((batches * BATCH) as usize, (batches * BATCH) as usize)
        );
        LOOKS.get()
    };
    let (once, twice) = (looks(20), looks(40));
    assert!(once > 0 && 10 * twice <= 22 * once, "{once} for 2,000 keys, {twice} for 4,000");
}

const BATCH: u32 = 100;
