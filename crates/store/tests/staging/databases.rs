//! Whole databases in transactions: FLUSHDB, FLUSHALL and SWAPDB that are staged.

use std::time::Duration;

use clock::{Clock, UnixMs};
use store::{Deadline, EngineKind, Staging, Stop, Value, Workspace};

use crate::bench::{Bench, holder};

fn put(bench: &Bench, db: u16, key: &[u8], value: &[u8]) -> Result<(), Stop> {
    bench.run(&[(db, key)], |access| {
        access.put(db, key, Value::String(value), None);
        Ok(())
    })
}

fn stage_put(bench: &Bench, workspace: &mut Workspace, db: u16, key: &[u8], value: &[u8]) {
    let staged = bench.staged(workspace, &[(db, key)], |access| {
        access.put(db, key, Value::String(value), None);
        Ok(())
    });
    staged.expect("room");
}

fn stage_get(bench: &Bench, workspace: &mut Workspace, db: u16, key: &[u8]) -> Option<Vec<u8>> {
    bench
        .staged(workspace, &[(db, key)], |access| Ok(access.get(db, key)?.map(|found| found.value.to_vec())))
        .expect("a read")
}

fn stage_flush(bench: &Bench, workspace: &mut Workspace, db: u16) {
    bench.staged(workspace, &[], |access| access.flush(db)).expect("room");
}

fn stage_swap(bench: &Bench, workspace: &mut Workspace, a: u16, b: u16) {
    bench.staged(workspace, &[], |access| access.swap(a, b)).expect("room");
}

fn prepared(bench: &Bench, workspace: &Workspace) {
    let staging = bench.prepare("b", workspace).expect("room");
    assert!(matches!(staging, Staging::Done { .. }), "{staging:?}");
}

/// Database 0 has `a` and `b`, 1 has `c`. The transaction changes `a`, swaps 0 and 1, changes keys of both, flushes 2, sets a key there.
fn busy(bench: &Bench) -> Workspace {
    for (db, key) in [(0, b"a"), (0, b"b"), (1, b"c"), (2, b"d")] {
        put(bench, db, key, b"old").expect("free");
    }
    let mut workspace = bench.store.workspace();
    stage_put(bench, &mut workspace, 0, b"a", b"before");
    stage_swap(bench, &mut workspace, 0, 1);
    assert_eq!(stage_get(bench, &mut workspace, 1, b"a").as_deref(), Some(&b"before"[..]));
    assert_eq!(stage_get(bench, &mut workspace, 0, b"a"), None);
    assert_eq!(stage_get(bench, &mut workspace, 0, b"c").as_deref(), Some(&b"old"[..]));
    stage_put(bench, &mut workspace, 1, b"b", b"after");
    stage_put(bench, &mut workspace, 2, b"d", b"lost");
    stage_flush(bench, &mut workspace, 2);
    assert_eq!(stage_get(bench, &mut workspace, 2, b"d"), None);
    stage_put(bench, &mut workspace, 2, b"e", b"new");
    workspace
}

fn contents(bench: &Bench) -> Vec<(u16, u8, String)> {
    let mut all = Vec::new();
    for db in 0..3 {
        for key in *b"abcde" {
            if let Some(value) = bench.get_in(db, &[key]) {
                all.push((db, key, String::from_utf8(value).expect("text")));
            }
        }
    }
    all
}

fn told(all: &[(u16, u8, &str)]) -> Vec<(u16, u8, String)> {
    all.iter().map(|(db, key, value)| (*db, *key, (*value).to_owned())).collect()
}

const BEFORE: [(u16, u8, &str); 4] = [(0, b'a', "old"), (0, b'b', "old"), (1, b'c', "old"), (2, b'd', "old")];
const AFTER: [(u16, u8, &str); 4] =
    [(0, b'c', "old"), (1, b'a', "before"), (1, b'b', "after"), (2, b'e', "new")];

#[test]
fn commit_leaves_what_the_same_commands_leave_one_by_one() {
    Bench::each(|bench| {
        let workspace = busy(&bench);
        assert_eq!(contents(&bench), told(&BEFORE), "nobody else sees it");
        assert!(matches!(bench.commit_staged(&workspace), Ok(Staging::Done { .. })));
        assert_eq!(contents(&bench), told(&AFTER));
    });
    Bench::each(|bench| {
        let workspace = busy(&bench);
        prepared(&bench, &workspace);
        assert_eq!(contents(&bench), told(&BEFORE), "nobody else sees it");
        bench.commit("b");
        assert_eq!(contents(&bench), told(&AFTER));
        assert_eq!((bench.store.locked_keys(), bench.store.locked_databases()), (0, 0));
        put(&bench, 0, b"a", b"v").expect("free again");
        bench.run(&[], |access| access.flush_all()).expect("free again");
    });
}

#[test]
fn prepared_databases_outlive_crash_and_restart_and_are_held() {
    for commits in [true, false] {
        let mut bench = Bench::new(EngineKind::Log, 128);
        let workspace = busy(&bench);
        prepared(&bench, &workspace);
        drop(workspace);
        bench.settle();
        for crashes in [true, false] {
            if crashes {
                bench.crash();
            } else {
                bench.restart();
            }
            assert_eq!(contents(&bench), told(&BEFORE));
            assert_eq!(bench.store.locked_databases(), 3);
            let told = &bench.store.prepared_branches()[0];
            assert_eq!((told.keys, &*told.databases), (0, &[0, 1, 2][..]));
            assert_eq!(holder(put(&bench, 1, b"x", b"v")), ("b".to_owned(), 1, b"x".to_vec()));
        }
        if commits {
            bench.commit("b")
        } else {
            bench.rollback("b")
        };
        bench.settle();
        bench.crash();
        assert_eq!(contents(&bench), told(if commits { &AFTER } else { &BEFORE }));
        put(&bench, 1, b"x", b"v").expect("free");
    }
}

#[test]
fn whole_database_is_held_from_prepare_to_the_end() {
    Bench::each(|bench| {
        put(&bench, 1, b"k", b"v").expect("free");
        let mut workspace = bench.store.workspace();
        stage_flush(&bench, &mut workspace, 1);
        put(&bench, 1, b"j", b"v").expect("until it is prepared it is in the way of nobody");
        prepared(&bench, &workspace);
        let all = ("b".to_owned(), 1, b"(all)".to_vec());
        assert_eq!(holder(put(&bench, 1, b"new", b"v")), ("b".to_owned(), 1, b"new".to_vec()));
        assert_eq!(
            holder(bench.run(&[(1, b"k")], |it| it.remove(1, b"k"))),
            ("b".to_owned(), 1, b"k".to_vec())
        );
        assert_eq!(holder(bench.run(&[], |access| access.flush(1))), all);
        assert_eq!(holder(bench.run(&[], |access| access.swap(0, 1))), all);
        assert_eq!(holder(bench.run(&[], |access| access.flush_all())), all);
        assert_eq!(bench.get_in(1, b"k").as_deref(), Some(&b"v"[..]), "reads see what is committed");
        let mut other = bench.store.workspace();
        stage_get(&bench, &mut other, 1, b"k");
        assert!(matches!(bench.prepare("c", &other), Ok(Staging::Locked { db: 1, key: Some(_), .. })));
        let mut other = bench.store.workspace();
        stage_swap(&bench, &mut other, 1, 2);
        assert!(matches!(bench.prepare("c", &other), Ok(Staging::Locked { db: 1, key: None, .. })));
        put(&bench, 0, b"k", b"v").expect("another database");
        bench.rollback("b");
        assert_eq!(bench.get_in(1, b"j").as_deref(), Some(&b"v"[..]));
        put(&bench, 1, b"new", b"v").expect("free");
    });
}

#[test]
fn flush_waits_for_a_branch_that_holds_a_key_of_the_database() {
    Bench::each(|bench| {
        bench.prepared_set("first", b"k", b"v");
        let mut workspace = bench.store.workspace();
        stage_flush(&bench, &mut workspace, 0);
        let locked = Staging::Locked { by: "first".into(), db: 0, key: Some(b"k".as_slice().into()) };
        assert_eq!(bench.prepare("b", &workspace).expect("room"), locked);
        assert_eq!(bench.commit_staged(&workspace).expect("room"), locked);
        bench.commit("first");
        prepared(&bench, &workspace);
        bench.commit("b");
        assert_eq!(bench.get(b"k"), None);
    });
}

#[test]
fn touched_keys_are_watched_where_their_contents_were() {
    Bench::each(|bench| {
        put(&bench, 1, b"k", b"v").expect("free");
        let mut workspace = bench.store.workspace();
        stage_swap(&bench, &mut workspace, 0, 1);
        stage_get(&bench, &mut workspace, 0, b"k");
        put(&bench, 0, b"k", b"other").expect("free");
        assert!(
            matches!(bench.commit_staged(&workspace), Ok(Staging::Done { .. })),
            "nobody changed what it read"
        );
        assert_eq!(bench.get_in(1, b"k").as_deref(), Some(&b"other"[..]));
        let mut workspace = bench.store.workspace();
        stage_swap(&bench, &mut workspace, 0, 1);
        stage_get(&bench, &mut workspace, 0, b"k");
        bench.run(&[], |access| access.flush(1)).expect("free");
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Changed { db: 1, .. })));
    });
}

/// A key that it set behind its own flush was watched where others still saw the old contents, so their writes, which the
/// flush empties anyway, made it fail.
#[test]
fn key_behind_a_flush_is_its_own_whatever_others_do_there() {
    Bench::each(|bench| {
        for prepares in [false, true] {
            let mut workspace = bench.store.workspace();
            stage_flush(&bench, &mut workspace, 0);
            stage_swap(&bench, &mut workspace, 0, 1);
            stage_put(&bench, &mut workspace, 1, b"set", b"new");
            assert_eq!(stage_get(&bench, &mut workspace, 1, b"read"), None);
            for (db, key) in [(0, b"set".as_slice()), (0, b"read"), (1, b"set"), (1, b"read")] {
                put(&bench, db, key, b"other").expect("free");
            }
            if prepares {
                prepared(&bench, &workspace);
                bench.commit("b");
            } else {
                assert!(matches!(bench.commit_staged(&workspace), Ok(Staging::Done { .. })));
            }
            assert_eq!(bench.get_in(1, b"set").as_deref(), Some(&b"new"[..]));
            assert_eq!(bench.get_in(1, b"read"), None);
            assert_eq!(bench.get(b"set").as_deref(), Some(&b"other"[..]), "what 1 had");
            assert_eq!((bench.store.locked_keys(), bench.store.locked_databases()), (0, 0));
        }
        // What it saw before its flush it did see.
        put(&bench, 0, b"k", b"v").expect("free");
        let mut workspace = bench.store.workspace();
        stage_get(&bench, &mut workspace, 0, b"k");
        stage_flush(&bench, &mut workspace, 0);
        stage_put(&bench, &mut workspace, 0, b"k", b"new");
        put(&bench, 0, b"k", b"other").expect("free");
        assert!(matches!(bench.prepare("b", &workspace), Ok(Staging::Changed { db: 0, .. })));
    });
}

#[test]
fn two_swaps_change_nothing_and_hold_nothing() {
    Bench::each(|bench| {
        let mut workspace = bench.store.workspace();
        (0..2).for_each(|_| stage_swap(&bench, &mut workspace, 0, 1));
        assert_eq!((workspace.writes(), workspace.is_empty()), (0, true));
        stage_flush(&bench, &mut workspace, 0);
        assert_eq!((workspace.writes(), workspace.is_empty()), (1, false));
    });
}

/// `k` in database 0 and `beside` in 2, which nobody holds, both overdue; 0 and 1 are prepared to be swapped.
fn overdue(bench: &Bench) {
    let at = Deadline::at(UnixMs(bench.clock.unix_ms().0 + 10));
    for (db, key) in [(0, b"k".as_slice()), (2, b"beside")] {
        let put = bench.run(&[(db, key)], |access| {
            access.put(db, key, Value::String(b"v"), Some(at));
            Ok(())
        });
        put.expect("room");
    }
    let mut workspace = bench.store.workspace();
    stage_swap(bench, &mut workspace, 0, 1);
    prepared(bench, &workspace);
    bench.clock.advance(Duration::from_millis(20));
}

#[test]
fn expired_key_of_a_held_database_reads_as_absent_and_goes_when_that_is_let_go() {
    for commits in [true, false] {
        Bench::each(|mut bench| {
            overdue(&bench);
            let newest = bench.store.newest_seq().0;
            assert_eq!(bench.get(b"k"), None);
            assert_eq!(
                bench.store.newest_seq().0,
                newest + 1,
                "its removal waits, but the log says that its time had come"
            );
            assert_eq!(bench.get(b"k"), None);
            assert_eq!(bench.store.newest_seq().0, newest + 1, "once");
            for _ in 0..3 {
                bench.store.tend(100);
            }
            let next = bench.store.tend(100).map_or(u64::MAX, |next| next.0);
            assert!(next > bench.store.now().unix().0, "{next} is due: the tender would turn in circles");
            assert_eq!((bench.store.key_counts()[0].0, bench.store.key_counts()[2].0), (1, 0));
            assert_eq!(holder(put(&bench, 0, b"k", b"w")), ("b".to_owned(), 0, b"k".to_vec()));
            if bench.is_log() {
                bench.settle();
                bench.crash();
                bench.store.tend(100);
                assert_eq!((bench.get(b"k"), bench.store.key_counts()[0].0), (None, 1));
            }
            if commits {
                bench.commit("b");
            } else {
                bench.rollback("b");
            }
            let db = u16::from(commits);
            assert_eq!(bench.store.key_counts()[usize::from(db)].0, 1);
            bench.store.tend(100);
            assert_eq!(bench.store.key_counts()[usize::from(db)].0, 0, "it was due");
            put(&bench, db, b"k", b"w").expect("free");
        });
    }
}
