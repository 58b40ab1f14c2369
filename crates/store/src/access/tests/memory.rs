//! Values and memory: what is dropped, kept, refused and counted.

use super::*;

/// SET of 8 MiB on an event loop went through up to 16,384 pages, again at each try, while all its other clients waited: a PING for 3.8 s.
#[test]
fn thread_that_others_wait_for_looks_at_few_pages_for_a_large_value() {
    let bench = Bench::new(128);
    let fill = || {
        (0..20_000_u32).for_each(|n| _ = bench.set(&n.to_be_bytes(), &[b'v'; 100], None));
        bench.log.release(bench.store.newest_seq().0);
    };
    fill();
    let before_bytes = bench.store.memory().index_bytes;
    bench.store.set_memory_limit(before_bytes * 16 / 15);
    let (bytes, mut awaited) = (before_bytes / 4, None);
    for _ in 0..2 {
        let busy = bench.store.reserve_memory_soon(bytes, false, &mut awaited);
        assert!(matches!(busy, Err(Stop::Busy)) && awaited.is_some(), "{busy:?}");
        let left_bytes = bench.store.memory().index_bytes;
        assert!(left_bytes > before_bytes * 3 / 4, "{left_bytes} of {before_bytes} B are left");
    }
    bench.store.tend(0);
    let reserved = bench.store.reserve_memory_soon(bytes, false, &mut awaited).expect("it was found");
    assert!(awaited.is_none() && bench.store.memory().large_bytes == 2 * bytes);
    // who is gone before or after it is found leaves nothing
    for tends in [false, true] {
        assert!(bench.store.reserve_memory_soon(bytes, false, &mut awaited).is_err());
        if tends {
            bench.store.tend(0);
        }
        awaited = None;
        bench.store.tend(0);
        assert_eq!(bench.store.memory().large_bytes, 2 * bytes);
    }
    drop(reserved);
    let refill = || {
        bench.store.set_memory_limit(0);
        fill();
        bench.store.set_memory_limit(before_bytes * 16 / 15);
    };
    // what was found for another size is given back when there is no room for this one: it would be what he waits for
    refill();
    assert!(bench.store.reserve_memory_soon(bytes, false, &mut awaited).is_err());
    bench.store.tend(0);
    assert_eq!(bench.store.memory().large_bytes, 2 * bytes);
    let stop = bench.store.reserve_memory_soon(4 * bytes, false, &mut awaited).expect_err("there is no room");
    assert_eq!(bench.store.memory().large_bytes, 0, "{stop:?}");
    // what never fits is refused, once all that can go has gone
    refill();
    let bytes = 2 * before_bytes;
    let busy = bench.store.reserve_memory_soon(bytes, false, &mut awaited);
    assert!(matches!(busy, Err(Stop::Busy)), "{busy:?}");
    bench.store.tend(0);
    let refused = bench.store.reserve_memory_soon(bytes, false, &mut awaited);
    assert!(matches!(refused, Err(Stop::Refused(StoreError::MemoryLimit { .. }))), "{refused:?}");
    assert!(awaited.is_none() && bench.store.memory().large_bytes == 0);
}

/// SET over a cold string of 15 MiB held that string while it waited, which it does not need: others were refused for it.
#[test]
fn large_string_on_disk_is_not_kept_for_a_command_that_needs_none_of_it() {
    let bench = Bench::new(128);
    let (key, value) = (b"large", vec![b'v'; 100_000]);
    bench.set_released(key, &value);
    let keys = [KeyRef { db: 0, key }];
    type Command = fn(&mut crate::Access<'_>) -> Result<(), Stop>;
    let needs_none: [Command; 3] = [
        |access| {
            access.put(0, b"large", Value::String(b"small"), None);
            Ok(())
        },
        |access| access.meta(0, b"large").map(|meta| assert_eq!(meta.map(|it| it.value_len), Some(100_000))),
        |access| access.remove(0, b"large").map(|was_there| assert!(was_there)),
    ];
    for (number, command) in needs_none.into_iter().enumerate() {
        bench.evict();
        let (mut prepared, mut attempts) = (Prepared::default(), 0);
        loop {
            let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
            access.bound_effort(1_000);
            match command(&mut access).and_then(|()| access.commit()) {
                Ok(_) => break,
                Err(Stop::Cold) if attempts == 0 => attempts += 1,
                Err(stop) => panic!("command {number}: {stop:?}"),
            }
            prepared.want(access.into_wanted());
            bench.store.missing(&keys, &mut prepared);
            prepared = bench.fetched(prepared);
            assert_eq!(bench.store.memory().large_bytes, 0, "command {number} keeps it");
        }
        assert_eq!(attempts, 1, "command {number} has read nothing");
        let after = bench.get(key).1;
        match number {
            0 => assert_eq!(after.as_deref(), Some(&b"small"[..])),
            1 => assert_eq!(after.as_deref(), Some(&value[..])),
            _ => assert_eq!(after, None),
        }
        drop(prepared);
        bench.set_released(key, &value);
    }
    // how long it is with what was appended to it is known without it
    let longer = [&value[..], b"more"].concat();
    let put = |access: &mut crate::Access<'_>| {
        access.put_part(0, key, Value::String(&longer), 100_000..100_004, None)
    };
    let part = bench.run(Scope::Keys(&keys), put).0;
    bench.log.release(part);
    bench.evict();
    let mut prepared = Prepared::default();
    for known in [None, Some(100_004)] {
        let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 0).expect("reads need no room");
        access.bound_effort(1_000);
        let value_len = access.meta(0, key).ok().flatten().map(|meta| meta.value_len);
        assert_eq!(value_len, known);
        prepared.want(access.into_wanted());
        prepared = bench.fetched(prepared);
    }
    // one that does need it goes on where it can read it
    bench.evict();
    let mut prepared = Prepared::default();
    for expected in ["Cold", "Long"] {
        let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 0).expect("reads need no room");
        access.bound_effort(1_000);
        let stop = access.meta(0, key).and_then(|_| access.get(0, key).map(drop)).expect_err("it is cold");
        assert_eq!(format!("{stop:?}"), expected);
        prepared.want(access.into_wanted());
        prepared = bench.fetched(prepared);
    }
}

/// What was forgotten counted on: a value that was read again after each wait was left out at last.
#[test]
fn large_values_that_were_forgotten_are_read_again_however_often() {
    let bench = Bench::new(128);
    let (key, value) = (b"large", vec![b'v'; 100_000]);
    bench.set_released(key, &value);
    let (keys, mut prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    prepared.bound_values(250_000);
    for _ in 0..10 {
        bench.evict();
        assert!(!bench.store.missing(&keys, &mut prepared), "it is on disk");
        prepared = bench.fetched(prepared);
        assert_eq!((prepared.read_bytes(), prepared.bytes_left()), (100_000, 150_000));
        prepared.forget_large();
        assert_eq!((prepared.read_bytes(), prepared.bytes_left()), (0, 250_000));
    }
}

/// One SET of 64 KiB on a server at its limit dropped three eighths of what it held in memory: as much as its clients' buffers might have come to.
#[test]
fn large_value_alone_makes_room_for_itself_and_not_for_buffers_that_may_come() {
    let bench = Bench::new(128);
    for n in 0..200 {
        bench.set(&[n], &[b'v'; 1_000], None);
    }
    bench.log.release(200);
    let before_bytes = bench.store.memory().index_bytes;
    bench.store.set_memory_limit(before_bytes * 16 / 15);
    bench.store.report_buffers(0, before_bytes / 2);
    drop(bench.store.reserve_memory(1_000, true).expect("values leave memory for it"));
    let dropped_bytes = before_bytes - bench.store.memory().index_bytes;
    assert!((1_000..before_bytes / 10).contains(&dropped_bytes), "{dropped_bytes} of {before_bytes} B");
}

#[test]
fn full_memory_refuses_growth_by_name_while_the_rest_goes_on() {
    let bench = Bench::new(128);
    (0..100_u8).for_each(|i| {
        bench.set(&[i], &[i; 500], None);
    });
    let keys = [KeyRef { db: 0, key: b"more" }];
    bench.store.set_memory_limit(30_000);
    let prepared = Prepared::default();
    let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
    access.put(0, b"more", Value::String(&[0; 500]), None);
    let Err(Stop::Refused(error @ StoreError::MemoryLimit { .. })) = access.commit() else { panic!("over") };
    assert!(error.to_string().contains("memory.limit"));
    assert_eq!(bench.get(&[3]).1, Some(vec![3; 500]), "reads go on");
    assert!(bench.del(&[4]).1, "so do removals");
    let keys = [KeyRef { db: 0, key: &[5] }];
    assert!(
        bench
            .run(Scope::Keys(&keys), |access| access.set_expiry(0, &[5], Some(Deadline::at(UnixMs(9_000)))))
            .1
    );
    bench.log.release(bench.store.newest_seq().0);
    bench.store.tend(1);
    bench.set(b"more", &[0; 500], None);
    assert_eq!(bench.get(b"more").1, Some(vec![0; 500]), "once values are clean they make room");
}

/// Only writes and the tender made room. Values that were read from disk stayed out of full memory, so the same reads went to the
/// disk again and again: 16 MiB, 30,000 keys of 1 kB, 2,245 of 4,000 GETs missed in the eighth round.
#[test]
fn keys_that_are_read_again_and_again_come_to_stay_in_full_memory() {
    let bench = Bench::new(128);
    let keys: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    for key in &keys {
        let seq = bench.set(key, &[b'v'; 1_000], None);
        bench.log.release(seq);
    }
    let limit_bytes = bench.store.memory().used_bytes() / 2;
    for (how, at_once) in [("GET", 1), ("MGET", 50)] {
        bench.evict();
        bench.store.set_memory_limit(limit_bytes);
        // what nobody reads fills memory first
        for key in &keys[400..] {
            let seq = bench.set(key, &[b'w'; 1_000], None);
            bench.log.release(seq);
        }
        let misses: Vec<u64> = (0..4)
            .map(|_| {
                let before = bench.log.reads();
                keys[..400].chunks(at_once).for_each(|part| bench.read(part));
                bench.log.reads() - before
            })
            .collect();
        assert_eq!(misses, [400, 400, 0, 0], "{how}: a value stays from its second read on");
        assert!(bench.store.memory().used_bytes() <= limit_bytes, "{how}");
    }
}

/// A value that was read once took the place of one that is read often: a pass over all keys swept memory.
#[test]
fn pass_over_all_keys_displaces_nothing_that_is_in_use() {
    for (how, at_once) in [("GET", 1), ("MGET", 50)] {
        let bench = Bench::new(128);
        let keys: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
        for key in &keys {
            let seq = bench.set(key, &[b'v'; 1_000], None);
            bench.log.release(seq);
        }
        bench.store.set_memory_limit(bench.store.memory().used_bytes() / 2);
        bench.store.tend(1);
        let (used, rest) = keys.split_at(400);
        let misses_of = |keys: &[Vec<u8>]| {
            let before = bench.log.reads();
            keys.chunks(at_once).for_each(|part| bench.read(part));
            bench.log.reads() - before
        };
        (0..3).for_each(|_| assert!(misses_of(used) <= 400));
        assert_eq!(misses_of(used), 0, "{how}");
        assert!(misses_of(rest) > 1_000, "{how}: most of them are on disk");
        assert_eq!(misses_of(used), 0, "{how}: what is in use stayed");
    }
}

#[test]
fn accounted_memory_is_what_the_index_holds() {
    let bench = Bench::new(128);
    let held = || {
        let spaces = (0..crate::hash::STRIPES).map(|number| {
            bench.store.index.lock(number).spaces().map(|(_, space)| space.memory_bytes()).sum::<u64>()
        });
        spaces.sum::<u64>()
    };
    let close = |what: &str| {
        assert_eq!(bench.store.memory().index_bytes, held(), "{what}");
    };
    let key = |i: u64| i.to_le_bytes();
    (0..20_000).for_each(|i| {
        bench.set(&key(i), &[1; 100], Some(5_000 + i));
    });
    close("filled");
    (0..20_000).for_each(|i| {
        bench.set(&key(i), &[1; 30], None);
    });
    close("overwritten without expiry");
    bench.log.release(bench.store.newest_seq().0);
    bench.evict();
    close("evicted");
    (0..20_000).for_each(|i| {
        bench.del(&key(i));
    });
    bench.log.release(bench.store.newest_seq().0);
    bench.store.tend(1);
    close("removed");
    (0..1_000).for_each(|i| {
        bench.set(&key(i), &[1; 100], Some(1_000_000 + i));
    });
    bench.run(Scope::Everything, |access| access.flush_all());
    let turns = (1..100).find(|_| bench.store.tend(1).is_none()).expect("what was flushed is freed");
    assert!(turns > 10, "a share of it at a time");
    assert_eq!(bench.store.memory().index_bytes, 0, "flushed");
}
