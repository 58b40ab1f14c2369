//! What a prepared branch keeps others from.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use clock::{Clock, UnixMs};
use store::{Deadline, Edit, EngineKind, Staging, Stop, Value, ValueKind};

use crate::bench::{Bench, holder};

#[test]
fn every_change_of_a_locked_key_stops_and_names_the_branch() {
    Bench::each(|bench| {
        bench.set(b"k", b"v", None).expect("room");
        bench.set(b"free", b"v", None).expect("room");
        let mut workspace = bench.store.workspace();
        bench.stage_get(&mut workspace, b"k");
        bench.stage_set(&mut workspace, b"target", b"v");
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })));
        let newest = bench.store.newest_seq().0;
        let held = |key: &[u8]| ("b".to_owned(), 0, key.to_vec());
        assert_eq!(holder(bench.set(b"k", b"w", None)), held(b"k"), "SET, RESTORE");
        assert_eq!(holder(bench.set(b"target", b"w", None)), held(b"target"), "COPY, of a key not there yet");
        let removed = bench.run(&[(0, b"k")], |access| {
            access.get(0, b"k")?;
            access.remove(0, b"k")
        });
        assert_eq!(holder(removed), held(b"k"), "GETDEL");
        let expired = bench
            .run(&[(0, b"k")], |access| access.set_expiry(0, b"k", Some(Deadline::at(UnixMs(9_000_000)))));
        assert_eq!(holder(expired), held(b"k"), "EXPIRE");
        let renamed = bench.run(&[(0, b"free"), (0, b"k")], |access| {
            access.put(0, b"k", Value::String(b"v"), None);
            access.remove(0, b"free")
        });
        assert_eq!(holder(renamed), held(b"k"), "RENAME, EXEC");
        let moved = bench.run(&[(0, b"k"), (1, b"k")], |access| {
            access.put(1, b"k", Value::String(b"v"), None);
            access.remove(0, b"k")
        });
        assert_eq!(holder(moved), held(b"k"), "MOVE");
        assert_eq!(bench.store.newest_seq().0, newest, "nothing was logged");
        assert_eq!(bench.get(b"k").as_deref(), Some(&b"v"[..]));
        bench
            .run(&[(1, b"k")], |access| {
                access.put(1, b"k", Value::String(b"of another database"), None);
                Ok(())
            })
            .expect("not locked");
        bench.set(b"free", b"w", None).expect("not locked");
        assert_eq!(bench.unlocks.load(SeqCst), 0);
        bench.rollback("b");
        assert_eq!(bench.unlocks.load(SeqCst), 1);
        bench.set(b"k", b"w", None).expect("unlocked");
        bench.set(b"target", b"w", None).expect("unlocked");
    });
}

/// A change of a leaf that leaves the root as it is meets the lock of the key all the same.
#[test]
fn change_of_a_leaf_of_a_locked_collection_stops() {
    Bench::each(|bench| {
        let fields: Vec<Vec<u8>> = (0..800).map(|at| format!("field-{at:04}").into_bytes()).collect();
        let put = |fields: &[Vec<u8>], value: &[u8]| {
            bench.run(&[(0, b"k")], |access| {
                let named = fields.iter().map(|field| &field[..]);
                let change =
                    |edit: &mut Edit<'_>, tag, number: usize| _ = edit.put(tag, &fields[number], value);
                Ok(access.edit_each(0, b"k", ValueKind::Hash, named, change)?.is_ok())
            })
        };
        assert!(put(&fields, b"before").expect("room"));
        assert!(bench.store.leaf_report().leaves > 1);
        let mut workspace = bench.store.workspace();
        bench.stage_get(&mut workspace, b"k");
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })));
        let held = ("b".to_owned(), 0, b"k".to_vec());
        assert_eq!(holder(put(&fields[7..8], b"after.")), held, "HSET of as many bytes");
        bench.rollback("b");
        put(&fields[7..8], b"after.").expect("unlocked");
    });
}

#[test]
fn removing_what_is_not_there_meets_no_lock() {
    Bench::each(|bench| {
        bench.prepared_set("b", b"k", b"v");
        let removed = bench.run(&[(0, b"k")], |access| access.remove(0, b"k"));
        assert!(!removed.expect("nothing changes"));
        assert_eq!(bench.get(b"k"), None);
    });
}

#[test]
fn flush_and_swap_of_a_database_with_a_locked_key_stop() {
    Bench::each(|bench| {
        let mut workspace = bench.store.workspace();
        bench
            .staged(&mut workspace, &[(1, b"k")], |access| {
                access.put(1, b"k", Value::String(b"v"), None);
                Ok(())
            })
            .expect("room");
        bench.prepare("b", &workspace).expect("nothing changed");
        let held = ("b".to_owned(), 1, b"k".to_vec());
        assert_eq!(holder(bench.run(&[], |access| access.flush(1))), held);
        assert_eq!(holder(bench.run(&[], |access| access.flush_all())), held);
        assert_eq!(holder(bench.run(&[], |access| access.swap(0, 1))), held);
        assert_eq!(holder(bench.run(&[], |access| access.swap(1, 2))), held);
        bench.set(b"k", b"v", None).expect("another database");
        bench.run(&[], |access| access.flush(0)).expect("no key of it is locked");
        bench.run(&[], |access| access.swap(0, 2)).expect("no key of them is locked");
        bench.run(&[], |access| access.swap(1, 1)).expect("nothing changes");
        bench.commit("b");
        assert_eq!(bench.get_in(1, b"k").as_deref(), Some(&b"v"[..]));
        bench.run(&[], |access| access.flush_all()).expect("unlocked");
    });
}

#[test]
fn second_branch_waits_for_the_first_and_fails_if_that_changed_a_key() {
    Bench::each(|bench| {
        let staged = || {
            let mut workspace = bench.store.workspace();
            bench.stage_get(&mut workspace, b"k");
            bench.stage_set(&mut workspace, b"own", b"v");
            workspace
        };
        for (changes, last) in [(false, "done"), (true, "changed")] {
            let mut first = bench.store.workspace();
            bench.stage_get(&mut first, b"k");
            if changes {
                bench.stage_set(&mut first, b"k", b"v");
            }
            let second = staged();
            bench.prepare("first", &first).expect("nothing changed");
            let locked = Staging::Locked { by: "first".into(), db: 0, key: Some(b"k".as_slice().into()) };
            assert_eq!(bench.prepare("second", &second).expect("an answer"), locked);
            assert_eq!(bench.commit_staged(&second).expect("an answer"), locked);
            bench.commit("first");
            match bench.prepare("second", &second).expect("an answer") {
                Staging::Done { .. } => assert_eq!(last, "done"),
                Staging::Changed { .. } => assert_eq!(last, "changed"),
                locked @ Staging::Locked { .. } => panic!("{locked:?}"),
            }
            bench.rollback("second");
        }
    });
}

/// Each reads what the other writes: without locks on what was only read both would commit, and neither order explains it.
#[test]
fn write_skew_between_two_branches_is_not_possible() {
    Bench::each(|bench| {
        let (mut one, mut two) = (bench.store.workspace(), bench.store.workspace());
        bench.stage_get(&mut one, b"a");
        bench.stage_set(&mut one, b"b", b"1");
        bench.stage_get(&mut two, b"b");
        bench.stage_set(&mut two, b"a", b"1");
        assert!(matches!(bench.prepare("one", &one), Ok(Staging::Done { .. })));
        assert!(matches!(bench.prepare("two", &two), Ok(Staging::Locked { .. })));
        bench.commit("one");
        assert!(matches!(bench.prepare("two", &two), Ok(Staging::Changed { .. })));
    });
}

#[test]
fn expired_key_that_is_locked_reads_as_absent_and_stays_until_the_end() {
    Bench::each(|bench| {
        let at = bench.clock.unix_ms().0 + 10;
        for key in [&b"k"[..], b"beside"] {
            bench.set(key, b"v", Some(at)).expect("room");
        }
        let mut workspace = bench.store.workspace();
        assert!(bench.stage_expire(&mut workspace, b"k", None), "PERSIST");
        bench.prepare("b", &workspace).expect("nothing changed");
        bench.clock.advance(Duration::from_millis(20));
        let newest = bench.store.newest_seq().0;
        assert_eq!(bench.get(b"k"), None);
        assert_eq!(
            bench.store.newest_seq().0,
            newest + 1,
            "its removal waits, but the log says that its time had come"
        );
        for _ in 0..3 {
            bench.store.tend(100);
        }
        let next = bench.store.tend(100).map_or(u64::MAX, |next| next.0);
        assert!(next > bench.store.now().unix().0, "{next} is due: the tender would turn in circles");
        assert_eq!(bench.store.key_counts()[0].0, 1);
        let refused = bench.set(b"k", b"w", None);
        assert_eq!(holder(refused).0, "b");
        bench.commit("b");
        assert_eq!(bench.get(b"k").as_deref(), Some(&b"v"[..]), "it was persisted before its time had come");

        bench.set(b"k", b"v", Some(bench.clock.unix_ms().0 + 10)).expect("room");
        let mut workspace = bench.store.workspace();
        bench.stage_get(&mut workspace, b"k");
        bench.prepare("b", &workspace).expect("nothing changed");
        bench.clock.advance(Duration::from_millis(20));
        bench.store.tend(100);
        assert_eq!(bench.store.key_counts()[0].0, 1);
        bench.rollback("b");
        bench.store.tend(100);
        assert_eq!(bench.store.key_counts()[0].0, 0, "it was due");
    });
}

/// Locked keys that are overdue must not use up what one turn may remove.
#[test]
fn locked_keys_that_are_overdue_leave_the_tender_its_budget() {
    let bench = Bench::new(EngineKind::Memory, 128);
    let at = bench.clock.unix_ms().0 + 10;
    let mut workspace = bench.store.workspace();
    for n in 0..50_u8 {
        bench.set(&[n], b"v", Some(at)).expect("room");
        bench.stage_get(&mut workspace, &[n]);
    }
    for n in 50..60_u8 {
        bench.set(&[n], b"v", Some(at)).expect("room");
    }
    bench.prepare("b", &workspace).expect("nothing changed");
    bench.clock.advance(Duration::from_millis(20));
    bench.store.tend(10);
    assert_eq!((bench.store.expired_keys(), bench.store.key_counts()[0].0), (10, 50));
    assert_eq!(bench.store.tend(10), None, "nothing else is due");
}

#[test]
fn transaction_may_stage_a_locked_key_and_meets_the_lock_when_it_prepares() {
    Bench::each(|bench| {
        bench.prepared_set("b", b"k", b"v");
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"k", b"w");
        assert_eq!(bench.staged(&mut workspace, &[], |access| access.len(0)).expect("a read"), 1);
        assert!(matches!(bench.prepare("c", &workspace), Ok(Staging::Locked { .. })));
        bench.rollback("b");
        assert!(
            matches!(bench.prepare("c", &workspace), Ok(Staging::Done { .. })),
            "nothing changed after all"
        );
    });
}

#[test]
fn watch_of_another_connection_hears_of_a_commit_and_not_of_a_prepare() {
    Bench::each(|bench| {
        let watch = bench.store.watch(0, b"k");
        let named_alike = bench.store.watch(0, b"b");
        let changed = |watch: &store::Watch| {
            bench.run(&[(0, watch.key())], |access| access.changed(watch)).expect("a read")
        };
        bench.prepared_set("b", b"k", b"v");
        assert!(!changed(&watch));
        bench.commit("b");
        assert!(changed(&watch) && !changed(&named_alike), "the branch is called like a key");
        assert!(matches!(
            bench.run(&[(0, b"b")], |access| access.get(0, b"b").map(|f| f.is_none())),
            Ok(true)
        ));
    });
}

#[test]
fn full_disk_refuses_prepare_and_lets_a_prepared_branch_end() {
    let bench = Bench::with(EngineKind::Log, 128, |options| options.journal.space_margin_bytes = 640 << 10);
    bench.prepared_set("b", b"k", &[7; 3_000]);
    bench.prepared_set("c", b"other", &[7; 3_000]);
    bench.settle();
    bench.disk.set_capacity(bench.disk.used_bytes() + (640 << 10));
    let full = (0..200_u8).any(|n| matches!(bench.set(&[n], &[n; 3_000], None), Err(Stop::Refused(_))));
    assert!(full, "the disk is full");
    let mut workspace = bench.store.workspace();
    bench.stage_set(&mut workspace, b"more", &[1; 3_000]);
    assert!(matches!(bench.prepare("d", &workspace), Err(Stop::Refused(store::StoreError::DiskFull(_)))));
    assert!(bench.commit("b").is_some() && bench.rollback("c").is_some());
    assert_eq!(bench.get(b"k"), Some(vec![7; 3_000]));
}
