//! What a start finds of transactions.

use std::path::Path;

use store::{EngineKind, Halted, Prepared, Staging, Stop, StoreError};

use crate::bench::{Bench, holder};

fn bench(bits: u32) -> Bench {
    let bench = Bench::new(EngineKind::Log, bits);
    bench.set(b"read", b"v", None).expect("room");
    bench.set(b"gone", b"v", None).expect("room");
    let mut workspace = bench.store.workspace();
    bench.stage_get(&mut workspace, b"read");
    bench.stage_del(&mut workspace, b"gone");
    bench.stage_put(&mut workspace, b"k", &[7; 70_000], Some(5_000_000)).expect("room");
    assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })));
    bench.settle();
    bench
}

fn assert_prepared(bench: &Bench) {
    assert_eq!(bench.store.locked_keys(), 3);
    for key in [&b"read"[..], b"gone", b"k"] {
        assert_eq!(holder(bench.set(key, b"w", None)).0, "b");
    }
    assert_eq!((bench.get(b"k"), bench.get(b"gone")), (None, Some(b"v".to_vec())));
    assert_eq!(bench.store.key_counts()[0].0, 2);
}

#[test]
fn prepared_branch_and_its_locks_survive_crash_checkpoint_cleaning_and_stop() {
    for bits in [8, 128] {
        let mut bench = bench(bits);
        bench.crash();
        assert_prepared(&bench);
        bench.store.checkpoint().expect("room");
        bench.crash();
        assert_prepared(&bench);
        for round in 0..40_u8 {
            (0..20_u8).for_each(|n| bench.set(&[n, 9], &[round; 900], None).expect("room"));
            bench.settle();
            while bench.store.housekeep().expect("no fault") {
                bench.settle();
            }
        }
        (0..20_u8).for_each(|n| drop(bench.run(&[(0, &[n, 9])], |access| access.remove(0, &[n, 9]))));
        assert_prepared(&bench);
        bench.restart();
        assert_prepared(&bench);
        let since = bench.store.prepared_branches()[0].since;
        assert_eq!(since.0, 1_000_000);
        assert!(bench.commit("b").is_some());
        bench.settle();
        bench.crash();
        assert_eq!((bench.get(b"k"), bench.get(b"gone")), (Some(vec![7; 70_000]), None));
        assert_eq!((bench.store.locked_keys(), bench.commit("b")), (0, None));
        bench.store.checkpoint().expect("room");
        bench.crash();
        assert_eq!((bench.store.locked_keys(), bench.commit("b")), (0, None));
    }
}

#[test]
fn crash_before_the_end_is_durable_leaves_the_branch_prepared() {
    for commits in [true, false] {
        let mut bench = bench(128);
        let ended = if commits { bench.commit("b") } else { bench.rollback("b") };
        assert_eq!(ended, Some(bench.store.newest()));
        bench.disk = bench.disk.crash(1);
        let disk = bench.disk.clone();
        bench.reopen(disk).expect("opens");
        assert_prepared(&bench);
    }
}

#[test]
fn crash_before_the_prepare_is_durable_leaves_nothing() {
    let mut bench = Bench::new(EngineKind::Log, 128);
    bench.settle();
    bench.prepared_set("b", b"k", b"v");
    bench.crash();
    assert_eq!((bench.store.locked_keys(), bench.commit("b")), (0, None));
    bench.set(b"k", b"w", None).expect("not locked");
}

#[test]
fn backup_holds_the_branch_and_check_finds_nothing_wrong() {
    let mut bench = bench(128);
    bench.store.checkpoint().expect("room");
    let out = Path::new("/backup");
    bench.store.backup(out).expect("room");
    bench.rollback("b");
    bench.settle();
    bench.store.close();
    let stopped = bench.disk.process_death();
    let checked = store::check(&stopped, Path::new("/data")).expect("a folder");
    assert!(checked.journal.damage.is_empty(), "{:?}", checked.journal.damage);
    bench.options.dir = out.to_owned();
    bench.reopen(stopped.process_death()).expect("opens");
    assert_prepared(&bench);
}

#[test]
fn salvaged_folder_has_the_branch() {
    let mut bench = bench(128);
    bench.store.checkpoint().expect("room");
    bench.store.close();
    let (disk, out) = (bench.disk.process_death(), Path::new("/salvaged"));
    let vfs: std::sync::Arc<dyn vfs::Vfs> = std::sync::Arc::new(disk.clone());
    store::salvage(&vfs, &bench.options.clock, Path::new("/data"), out).expect("readable");
    bench.options.dir = out.to_owned();
    bench.reopen(disk).expect("opens");
    assert_prepared(&bench);
}

#[test]
fn branch_of_a_database_beyond_the_setting_refuses_the_start_by_its_name() {
    let mut bench = Bench::new(EngineKind::Log, 128);
    let mut workspace = bench.store.workspace();
    let scope: [(u16, &[u8]); 1] = [(2, b"k")];
    bench.staged(&mut workspace, &scope, |access| access.get(2, b"k").map(drop)).expect("a read");
    bench.prepare("b", &workspace).expect("nothing changed");
    bench.settle();
    drop(workspace);
    bench.options.databases = 2;
    let disk = bench.disk.process_death();
    let Err(StoreError::Open(text)) = bench.reopen(disk) else { panic!("it cannot be served") };
    assert!(text.contains("transaction b") && text.contains("databases to 3"), "{text}");
    bench.options.databases = 3;
    let disk = bench.disk.process_death();
    bench.reopen(disk).expect("opens");
    assert_eq!(bench.store.locked_keys(), 1);
}

#[test]
fn commit_beyond_a_transaction_max_that_was_lowered_names_it_and_works_once_it_is_raised() {
    let mut bench = Bench::with(EngineKind::Log, 128, |options| options.transaction_bytes_max = 4 << 20);
    bench.prepared_set("b", b"k", &[7; 3 << 20]);
    bench.settle();
    bench.options.transaction_bytes_max = 1 << 20;
    let disk = bench.disk.process_death();
    bench.reopen(disk).expect("opens");
    let refused = bench.store.commit_prepared("b", &Prepared::default());
    let Err(Halted { stop: Stop::Refused(error), .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("transaction.max (1048576 B)"), "{error}");
    assert_eq!(bench.store.locked_keys(), 1, "it is still prepared");
    bench.options.transaction_bytes_max = 4 << 20;
    let disk = bench.disk.process_death();
    bench.reopen(disk).expect("opens");
    assert!(bench.commit("b").is_some());
    assert_eq!(bench.get(b"k"), Some(vec![7; 3 << 20]));
}
