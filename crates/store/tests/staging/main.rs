//! Keys as one side of a two-phase commit, from outside: staging, preparing, locks, ends, starts.
#![allow(missing_docs, unreachable_pub, reason = "tests")]

mod bench;
mod databases;
mod locks;
mod starts;

use bench::Bench;
use clock::Clock;
use store::{EngineKind, KeyRef, Prepared, Scope, Staging, Stop, StoreError, Value};
use ticket::Ticket;

#[test]
fn transaction_reads_its_own_writes_and_nobody_else_does() {
    Bench::each(|bench| {
        bench.set(b"old", b"before", None).expect("room");
        let mut workspace = bench.store.workspace();
        assert!(workspace.is_empty());
        bench.stage_set(&mut workspace, b"new", b"one");
        bench.stage_set(&mut workspace, b"old", b"two");
        assert_eq!(bench.stage_get(&mut workspace, b"new").as_deref(), Some(&b"one"[..]));
        assert_eq!((bench.get(b"new"), bench.get(b"old")), (None, Some(b"before".to_vec())));
        assert!(bench.stage_del(&mut workspace, b"old"));
        assert_eq!(bench.stage_get(&mut workspace, b"old"), None);
        assert!(!bench.stage_del(&mut workspace, b"old"), "gone already");
        bench.stage_set(&mut workspace, b"old", b"again");
        assert_eq!(bench.stage_get(&mut workspace, b"old").as_deref(), Some(&b"again"[..]));
        assert_eq!((workspace.keys(), workspace.writes()), (2, 2));
        let newest = bench.store.newest_seq().0;
        drop(workspace);
        assert_eq!((bench.store.newest_seq().0, bench.get(b"new")), (newest, None), "nothing was logged");
    });
}

#[test]
fn staged_value_gets_an_expiry_and_is_absent_once_it_has_come() {
    Bench::each(|bench| {
        let now_ms = bench.clock.unix_ms().0;
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"k", b"v");
        assert!(bench.stage_expire(&mut workspace, b"k", Some(now_ms + 10)));
        bench.clock.advance(std::time::Duration::from_millis(10));
        assert_eq!(bench.stage_get(&mut workspace, b"k"), None);
        assert!(!bench.stage_expire(&mut workspace, b"k", None), "nothing to keep alive");
        bench.stage_set(&mut workspace, b"k", b"w");
        assert!(matches!(bench.commit_staged(&workspace), Ok(Staging::Done { .. })));
        assert_eq!(bench.get(b"k").as_deref(), Some(&b"w"[..]));
    });
}

#[test]
fn everything_that_a_transaction_sees_of_a_database_has_its_own_changes() {
    Bench::each(|bench| {
        for key in [b"a", b"b"] {
            bench.set(key, b"v", None).expect("room");
        }
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"c", b"v");
        bench.stage_del(&mut workspace, b"a");
        let seen = bench.staged(&mut workspace, &[], |access| {
            let mut keys = Vec::new();
            let mut cursor = 0;
            loop {
                cursor = access.scan(0, cursor, 100, &mut |key, _| keys.push(key.to_vec()))?;
                if cursor == 0 {
                    break;
                }
            }
            keys.sort();
            Ok((keys, access.len(0)?))
        });
        assert_eq!(seen.expect("a read"), (vec![b"b".to_vec(), b"c".to_vec()], 2));
    });
}

#[test]
fn prepared_changes_are_seen_when_they_are_committed_and_not_before() {
    Bench::each(|bench| {
        bench.set(b"gone", b"v", None).expect("room");
        bench.set(b"kept", b"v", None).expect("room");
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"k", b"v");
        bench.stage_del(&mut workspace, b"gone");
        bench.stage_get(&mut workspace, b"read");
        assert!(bench.stage_expire(&mut workspace, b"kept", Some(5_000_000)));
        let Ok(Staging::Done { ticket }) = bench.prepare("one", &workspace) else {
            panic!("nothing changed")
        };
        assert_eq!(ticket, if bench.is_log() { bench.store.newest() } else { Ticket::NOTHING });
        drop(workspace);
        assert_eq!((bench.get(b"k"), bench.get(b"gone")), (None, Some(b"v".to_vec())));
        assert_eq!(bench.store.locked_keys(), 4);
        let branches = bench.store.prepared_branches();
        assert_eq!(branches.len(), 1);
        assert_eq!(
            (&*branches[0].id, branches[0].since, branches[0].keys),
            ("one", bench.store.now().unix(), 4)
        );
        assert_eq!(bench.store.key_counts()[0].0, 2, "nobody counts the branch's record");
        assert!(bench.commit("one").is_some());
        assert_eq!((bench.get(b"k"), bench.get(b"gone")), (Some(b"v".to_vec()), None));
        let expiry =
            bench.run(&[(0, b"kept")], |access| Ok(access.get(0, b"kept")?.and_then(|found| found.expiry)));
        assert_eq!(expiry.expect("a read"), Some(store::Deadline::at(clock::UnixMs(5_000_000))));
        assert_eq!((bench.store.locked_keys(), bench.store.prepared_branches().len()), (0, 0));
        assert_eq!((bench.commit("one"), bench.rollback("one")), (None, None), "it has ended");
    });
}

#[test]
fn rolled_back_branch_leaves_nothing_behind() {
    Bench::each(|bench| {
        bench.prepared_set("one", b"k", b"v");
        let newest = bench.store.newest_seq().0;
        assert!(bench.rollback("one").is_some());
        assert_eq!(bench.store.newest_seq().0, newest + 1, "one record");
        assert_eq!((bench.get(b"k"), bench.store.locked_keys()), (None, 0));
        assert_eq!((bench.rollback("one"), bench.commit("one")), (None, None));
        bench.prepared_set("one", b"k", b"w");
        assert!(bench.commit("one").is_some(), "the name is free again");
        assert_eq!(bench.get(b"k").as_deref(), Some(&b"w"[..]));
    });
}

#[test]
fn key_that_changed_since_it_was_touched_stops_prepare_and_commit() {
    Bench::each(|bench| {
        bench.set(b"read", b"v", Some(bench.clock.unix_ms().0 + 50)).expect("room");
        bench.set(b"written", b"v", None).expect("room");
        let staged = || {
            let mut workspace = bench.store.workspace();
            bench.stage_get(&mut workspace, b"read");
            bench.stage_set(&mut workspace, b"written", b"staged");
            workspace
        };
        let expect_changed = |workspace: &store::Workspace, key: &[u8]| {
            let changed = Staging::Changed { db: 0, key: key.into() };
            assert_eq!(bench.prepare("b", workspace).expect("an answer"), changed);
            assert_eq!(bench.commit_staged(workspace).expect("an answer"), changed);
        };
        let workspace = staged();
        bench.set(b"written", b"by another", None).expect("not locked");
        expect_changed(&workspace, b"written");
        let workspace = staged();
        bench.run(&[(0, b"written")], |access| access.remove(0, b"written")).expect("not locked");
        bench.set(b"written", b"by another", None).expect("not locked");
        expect_changed(&workspace, b"written");
        let workspace = staged();
        bench.clock.advance(std::time::Duration::from_millis(50));
        expect_changed(&workspace, b"read");
        let workspace = staged();
        assert!(
            matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })),
            "it was absent when touched"
        );
    });
}

#[test]
fn flushed_database_stops_prepare_where_something_was_there() {
    Bench::each(|bench| {
        bench.set(b"k", b"v", None).expect("room");
        let mut workspace = bench.store.workspace();
        bench.stage_get(&mut workspace, b"k");
        bench.run(&[], |access| access.flush(0)).expect("not locked");
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Changed { .. })));
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"k", b"v");
        bench.run(&[], |access| access.swap(0, 1)).expect("not locked");
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })), "absent here and there");
        bench.commit("b");
        assert_eq!((bench.get(b"k"), bench.get_in(1, b"k")), (Some(b"v".to_vec()), None));
    });
}

#[test]
fn transaction_of_the_store_alone_commits_in_one_group() {
    Bench::each(|bench| {
        bench.set(b"gone", b"v", None).expect("room");
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"k", b"v");
        bench.stage_del(&mut workspace, b"gone");
        let newest = bench.store.newest_seq().0;
        let Ok(Staging::Done { ticket }) = bench.commit_staged(&workspace) else { panic!("nothing changed") };
        assert_eq!(bench.store.newest_seq().0, newest + 2);
        assert_eq!(ticket, if bench.is_log() { Ticket::of(newest + 2) } else { Ticket::NOTHING });
        assert_eq!((bench.get(b"k"), bench.get(b"gone")), (Some(b"v".to_vec()), None));
    });
}

#[test]
fn transaction_that_only_read_depends_on_what_it_saw() {
    let bench = Bench::new(EngineKind::Log, 128);
    bench.set(b"k", b"v", None).expect("room");
    let mut workspace = bench.store.workspace();
    bench.stage_get(&mut workspace, b"k");
    let newest = bench.store.newest_seq().0;
    assert_eq!(
        bench.commit_staged(&workspace).expect("an answer"),
        Staging::Done { ticket: Ticket::of(newest) }
    );
    bench.settle();
    assert_eq!(
        bench.commit_staged(&workspace).expect("an answer"),
        Staging::Done { ticket: Ticket::NOTHING }
    );
    assert_eq!(bench.store.newest_seq().0, newest, "nothing was logged");
}

#[test]
fn what_exceeds_transaction_max_is_refused_and_the_stage_stays_as_it_was() {
    Bench::each(|bench| {
        let mut workspace = bench.store.workspace();
        bench.stage_set(&mut workspace, b"k", &[1; 600_000]);
        let bytes = workspace.bytes();
        for key in [&b"k"[..], b"other"] {
            let refused = bench.stage_put(&mut workspace, key, &[2; 1_048_500], None);
            let Err(Stop::Refused(error @ StoreError::TransactionTooLarge { .. })) = refused else {
                panic!("{refused:?}")
            };
            assert!(error.to_string().contains("transaction.max"));
        }
        assert!(workspace.bytes() >= bytes && workspace.bytes() < bytes + 200, "a key more, no value");
        assert_eq!(bench.stage_get(&mut workspace, b"k"), Some(vec![1; 600_000]));
        bench.stage_put(&mut workspace, b"k", &[3; 1_000_000], None).expect("it replaces its own");
        bench.stage_set(&mut workspace, b"k", b"small");
        assert!(workspace.bytes() < 1_000);
        let keys: Vec<Vec<u8>> = (0..9_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
        let refs: Vec<KeyRef<'_>> = keys.iter().map(|key| KeyRef { db: 0, key }).collect();
        let refused = bench.store.touch(&mut workspace, &refs);
        assert!(matches!(refused, Err(StoreError::TransactionTooLarge { .. })), "{refused:?}");
        assert_eq!(workspace.keys(), 2, "none was added");
        assert_eq!(
            bench.store.touch(&mut workspace, &[KeyRef { db: 3, key: b"k" }]),
            Err(StoreError::NoSuchDatabase)
        );
    });
}

#[test]
fn transaction_of_transaction_max_can_be_prepared_and_committed() {
    let bench = Bench::new(EngineKind::Log, 128);
    let mut workspace = bench.store.workspace();
    for n in 0..7_000_u32 {
        bench.stage_set(&mut workspace, &n.to_le_bytes(), &[7; 10]);
    }
    let rest = (1 << 20) - workspace.bytes() as usize - 128 - 5;
    bench.stage_set(&mut workspace, b"large", &vec![5; rest]);
    assert_eq!(workspace.bytes(), 1 << 20);
    assert!(matches!(bench.prepare("all", &workspace), Ok(Staging::Done { .. })));
    drop(workspace);
    bench.settle();
    assert!(bench.commit("all").is_some());
    bench.settle();
    assert_eq!(bench.get(b"large"), Some(vec![5; rest]));
    assert_eq!(bench.store.key_counts()[0].0, 7_001);
}

#[test]
fn value_may_exceed_value_max_in_the_image_alone() {
    let bench = Bench::with(EngineKind::Log, 128, |options| options.value_bytes_max = 1_000);
    let mut workspace = bench.store.workspace();
    for n in 0..20_u8 {
        bench.stage_set(&mut workspace, &[n], &[n; 900]);
    }
    let refused = bench.stage_put(&mut workspace, b"k", &[0; 1_001], None);
    assert!(matches!(refused, Err(Stop::Refused(StoreError::ValueTooLarge { .. }))));
    assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })), "an image of 18,000 bytes");
    assert!(bench.commit("b").is_some());
    assert_eq!(bench.get(&[19]), Some(vec![19; 900]));
}

#[test]
fn keys_that_were_not_touched_are_refused() {
    Bench::each(|bench| {
        let mut workspace = bench.store.workspace();
        let (keys, prepared) = ([KeyRef { db: 0, key: b"k" }], Prepared::default());
        let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
        access.resume(&workspace);
        access.put(0, b"k", Value::String(b"v"), None);
        assert!(matches!(access.keep(&mut workspace), Err(Stop::Refused(StoreError::OutOfScope))));
        assert!(workspace.is_empty());
    });
}

#[test]
fn branch_names_are_bounded_and_used_once() {
    Bench::each(|bench| {
        let workspace = bench.store.workspace();
        for name in ["", &"x".repeat(1_025)] {
            let refused = bench.prepare(name, &workspace);
            assert!(matches!(refused, Err(Stop::Refused(StoreError::Transaction(_)))), "{refused:?}");
        }
        assert!(
            matches!(bench.prepare(&"x".repeat(1_024), &workspace), Ok(Staging::Done { .. })),
            "of no key"
        );
        bench.prepared_set("b", b"k", b"v");
        let Err(Stop::Refused(error)) = bench.prepare("b", &workspace) else { panic!("prepared already") };
        assert!(error.to_string().contains("prepared already"), "{error}");
    });
}

#[test]
fn engine_noop_takes_part_in_no_transaction() {
    let bench = Bench::new(EngineKind::Noop, 128);
    let mut workspace = bench.store.workspace();
    bench.stage_set(&mut workspace, b"k", b"v");
    for outcome in [bench.prepare("b", &workspace), bench.commit_staged(&workspace)] {
        let Err(Stop::Refused(error)) = outcome else { panic!("{outcome:?}") };
        assert!(error.to_string().contains("noop"), "{error}");
    }
    assert_eq!(bench.commit("b"), None);
}

#[test]
fn large_values_are_shared_and_staged_bytes_are_counted_until_the_stage_is_gone() {
    Bench::each(|bench| {
        let used = || bench.store.memory().used_bytes();
        let value = vec![9; 200_000];
        bench.set(b"k", &value, None).expect("room");
        bench.settle();
        let before = used();
        let mut workspace = bench.store.workspace();
        bench.stage_expire(&mut workspace, b"k", Some(5_000_000));
        assert!(used() - before < 1_000, "the value is there once");
        bench.stage_set(&mut workspace, b"small", &[1; 30_000]);
        let staged = used() - before;
        assert!((30_000..32_000).contains(&staged), "{staged}");
        drop(workspace);
        assert_eq!(used(), before);
    });
}

#[test]
fn full_memory_refuses_what_a_transaction_adds_and_a_prepared_one_commits() {
    let bench = Bench::new(EngineKind::Memory, 128);
    bench.prepared_set("b", b"k", &[1; 50_000]);
    let mut workspace = bench.store.workspace();
    bench.stage_set(&mut workspace, b"other", b"v");
    bench.store.set_memory_limit(10_000);
    let refused = bench.stage_put(&mut workspace, b"other", b"longer", None);
    assert!(matches!(refused, Err(Stop::Refused(StoreError::MemoryLimit { .. }))), "{refused:?}");
    let refused = bench.prepare("c", &workspace);
    assert!(matches!(refused, Err(Stop::Refused(StoreError::MemoryLimit { .. }))), "{refused:?}");
    assert!(bench.commit("b").is_some());
    assert_eq!(bench.get(b"k"), Some(vec![1; 50_000]));
}

#[test]
fn cold_values_are_fetched_at_every_step() {
    for bits in [8, 128] {
        let bench = Bench::new(EngineKind::Log, bits);
        for n in 0..40_u8 {
            bench.set(&[n], &[n; 5_000], None).expect("room");
        }
        bench.settle();
        let evict = || {
            // whoever looks for room again and again looks only once something was released
            bench.set(b"beside", &[1; 5_000], None).expect("room");
            bench.settle();
            bench.store.set_memory_limit(1);
            bench.store.tend(1);
            bench.store.set_memory_limit(0);
            assert!(!bench.store.missing(&[KeyRef { db: 0, key: &[7] }], &mut Prepared::default()), "cold");
        };
        evict();
        let mut workspace = bench.store.workspace();
        assert_eq!(bench.stage_get(&mut workspace, &[7]), Some(vec![7; 5_000]));
        evict();
        bench.stage_set(&mut workspace, &[7], b"new");
        bench.stage_set(&mut workspace, &[8], b"new, blindly");
        bench.stage_del(&mut workspace, &[9]);
        evict();
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Done { .. })));
        evict();
        assert!(bench.commit("b").is_some());
        assert_eq!(bench.get(&[7]).as_deref(), Some(&b"new"[..]));
        assert_eq!(bench.get(&[9]), None);
        assert_eq!(bench.store.key_counts()[0].0, 40);
    }
}

#[test]
fn threads_that_prepare_the_same_keys_never_lose_a_commit_of_another() {
    let bench = Bench::new(EngineKind::Memory, 128);
    let done: usize = std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|first| {
            scope.spawn({
                let bench = &bench;
                move || append_dots(bench, first)
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let dots: usize = (0..4_u8).map(|key| bench.get(&[key]).unwrap_or_default().len()).sum();
    assert_eq!(dots, 3 * done, "each commit counts once on each of its keys");
    assert_eq!(bench.store.locked_keys(), 0);
}

/// Appends a dot to three of four keys, again and again; returns how often that was committed.
fn append_dots(bench: &Bench, first: u8) -> usize {
    let attempt = |round: u32| {
        let mut workspace = bench.store.workspace();
        for key in 0..3_u8 {
            let key = [(key + first) % 4];
            let before = bench.stage_get(&mut workspace, &key).unwrap_or_default();
            bench.stage_set(&mut workspace, &key, &[&before[..], b"."].concat());
        }
        let branch = format!("{first}-{round}");
        let done = matches!(bench.prepare(&branch, &workspace), Ok(Staging::Done { .. }));
        done && bench.commit(&branch).is_some()
    };
    (0..300).filter(|round| attempt(*round)).count()
}
