//! Commands of one element on hot data, numbered, so that what each costs can be counted: keys of 16 bytes, elements of 14, values of 60.
#![allow(dead_code, unreachable_pub, reason = "each program uses a part of this")]

use std::convert::Infallible;
use std::ops::ControlFlow;

use store::{Access, KeyRef, ListChange, ListEnd, Popped, Prepared, Scope, Store, Value, ValueKind};

pub const VALUE: [u8; 60] = [b'v'; 60];
/// Elements of a run: as many commands of a pipeline.
pub const RUN: usize = 16;

/// The keys of the collections of each type.
pub const COLLECTIONS: [&[u8]; 5] =
    [b"hash:00000000001", b"set:000000000001", b"zset:00000000001", b"list:00000000001", b"stream:000000001"];

/// Element number `n` of the collection of each type, and a key.
pub fn fill(store: &Store, n: u64) {
    set(store, n);
    hset(store, n);
    sadd(store, n);
    lpush(store, n);
    zadd_any(store, n);
    xadd(store, n);
}

pub fn set(store: &Store, n: u64) {
    let key = key_of(n);
    write(store, &key, |access| access.put(0, &key, Value::String(&VALUE), None));
}

/// GET of a key that [`set`] has made.
pub fn get(store: &Store, n: u64) {
    let (key, prepared) = (key_of(n), Prepared::default());
    let keys = [KeyRef { db: 0, key: &key }];
    let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("memory never refuses");
    assert!(access.get(0, &key).expect("it is hot").is_some());
    access.commit().expect("nothing was changed");
}

/// HSET of one of seven fields of small hash `n`.
pub fn hset_small(store: &Store, n: u64) {
    edit(store, (&named(*b"small:0000000000", n), ValueKind::Hash), n % 7, |edit, tag, field| {
        edit.put(tag, field, &VALUE);
    });
}

pub fn hset(store: &Store, n: u64) {
    edit(store, (b"hash:00000000001", ValueKind::Hash), n, |edit, tag, field| {
        edit.put(tag, field, &VALUE);
    });
}

pub fn hdel(store: &Store, n: u64) {
    edit(store, (b"hash:00000000001", ValueKind::Hash), n, |edit, tag, field| {
        edit.delete(tag, field);
    });
}

pub fn sadd(store: &Store, n: u64) {
    edit(store, (b"set:000000000001", ValueKind::Set), n, |edit, tag, member| {
        edit.add(tag, member);
    });
}

pub fn zadd(store: &Store, n: u64, score: f64) {
    let member = named(*b"el:00000000000", n);
    rescore(store, &[member], |_| score);
}

/// Adds a member to a sorted set all of whose members have the score 1.
pub fn zadd_equal(store: &Store, member: &[u8]) {
    rescore_in(store, b"zset:equal:00001", std::iter::once(member), |_| 1.0);
}

/// Gives members of a sorted set scores, by their numbers.
fn rescore(store: &Store, members: &[[u8; 14]], score_of: impl Fn(usize) -> f64) {
    rescore_in(store, b"zset:00000000001", members.iter().map(|member| &member[..]), score_of);
}

fn rescore_in<'m>(
    store: &Store,
    key: &[u8],
    members: impl ExactSizeIterator<Item = &'m [u8]> + Clone,
    score_of: impl Fn(usize) -> f64,
) {
    write(store, key, |access| {
        let score = |_, number: usize| Ok::<_, Infallible>(Some(score_of(number)));
        let Ok(()) = access.rescore(0, key, members, score).expect("it is hot").expect("a sorted set");
    });
}

/// As [`zadd`], with the score that looks like any.
pub fn zadd_any(store: &Store, n: u64) {
    zadd(store, n, mixed(n));
}

/// ZPOPMIN of the sorted set that [`zadd`] makes.
pub fn zpopmin(store: &Store, _: u64) {
    pop_lowest(store, 1);
}

/// As so many [`zpopmin`] in one change.
pub fn zpopmin_run(store: &Store, _: u64) {
    pop_lowest(store, RUN);
}

fn pop_lowest(store: &Store, count: usize) {
    let key = b"zset:00000000001";
    write(store, key, |access| {
        let set = access.sequence(0, key, ValueKind::SortedSet).expect("it is hot").expect("a sorted set");
        let mut taken = Vec::new();
        set.visit(0..count, |(member, score)| taken.push((member.to_vec(), score.to_vec())))
            .expect("it is hot");
        access
            .remove_range(0, key, ValueKind::SortedSet, 0..count)
            .expect("it is hot")
            .expect("a sorted set");
    });
}

pub fn lpush(store: &Store, _: u64) {
    change_list(store, &[ListChange::PushFront(&VALUE)]);
}

/// As so many [`lpush`] in one change.
pub fn lpush_run(store: &Store, _: u64) {
    change_list(store, &[ListChange::PushFront(&VALUE); RUN]);
}

/// Removes the element with this index of the list that [`lpush`] makes: of the last one, RPOP.
pub fn remove_at(store: &Store, index: u64) {
    change_list(store, &[ListChange::Remove(index as usize, 1)]);
}

/// RPOP of the list that [`lpush`] makes.
pub fn rpop(store: &Store, _: u64) {
    let key = b"list:00000000001";
    write(store, key, |access| {
        let popped = access.pop(0, key, ListEnd::Back, 4_096).expect("it is hot").expect("a list");
        assert!(matches!(popped, Popped::Value(_)));
    });
}

/// Removes elements from this index on, as many as a run has.
pub fn remove_run_at(store: &Store, index: u64) {
    change_list(store, &[ListChange::Remove(index as usize, RUN)]);
}

/// Elements of 8 to 16 bytes that [`rpush_many`] adds, and how many.
pub fn element_of(n: u64) -> Vec<u8> {
    format!("el:{n:0width$}", width = 5 + (n % 9) as usize).into_bytes()
}

pub const MANY: u64 = 1_000;

/// RPUSH of a thousand elements, from number 1,000 times `n` on.
pub fn rpush_many(store: &Store, n: u64) {
    let values: Vec<Vec<u8>> = (n * MANY..(n + 1) * MANY).map(element_of).collect();
    let pushes: Vec<_> = values.iter().map(|value| ListChange::PushBack(value)).collect();
    change_list(store, &pushes);
}

/// LINSERT before element number `n` of the list that [`rpush_many`] makes, beside the loops.
pub fn linsert(store: &Store, n: u64) {
    let (key, prepared) = (b"list:00000000001", Prepared::default());
    let keys = [KeyRef { db: 0, key }];
    let scope = Scope::Claimed { keys: &keys, writes: true };
    let mut access = store.access(scope, &prepared, 200).expect("memory never refuses");
    access.look_briefly();
    let list = access.sequence(0, key, ValueKind::List).expect("it is hot").expect("a list");
    let mut found = None;
    let search = list.search(&element_of(n), 0..list.len(), false, |at| {
        found = Some(at);
        ControlFlow::Break(())
    });
    search.expect("it is hot");
    let insert = ListChange::Insert(found.expect("it is there"), b"inserted");
    access.change_list(0, key, &[insert]).expect("it is hot").expect("a list");
    access.commit().expect("memory never refuses");
}

fn change_list(store: &Store, changes: &[ListChange<'_>]) {
    let key = b"list:00000000001";
    write(store, key, |access| _ = access.change_list(0, key, changes).expect("it is hot"));
}

pub fn xadd(store: &Store, n: u64) {
    let key = b"stream:000000001";
    let entry = [b"e".as_slice(), &n.to_be_bytes()].concat();
    let changes = [(&entry[..], Some(&VALUE[..]))];
    write(store, key, |access| _ = access.change_stream(0, key, &changes).expect("it is hot"));
}

/// As so many [`xadd`], from number `n` on, in one change.
pub fn xadd_run(store: &Store, n: u64) {
    let key = b"stream:000000001";
    let entries: Vec<Vec<u8>> =
        (n..n + RUN as u64).map(|n| [b"e".as_slice(), &n.to_be_bytes()].concat()).collect();
    let changes: Vec<_> = entries.iter().map(|entry| (&entry[..], Some(&VALUE[..]))).collect();
    write(store, key, |access| _ = access.change_stream(0, key, &changes).expect("it is hot"));
}

/// A number that looks like any: scores come in no order.
pub fn mixed(n: u64) -> f64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as f64
}

/// Lets `change` change element `n` of the collection at `key`.
fn edit(
    store: &Store,
    (key, kind): (&[u8], ValueKind),
    n: u64,
    change: impl FnOnce(&mut store::Edit<'_>, u16, &[u8]),
) {
    let element = named(*b"el:00000000000", n);
    write(store, key, |access| {
        let done = access.edit_element(0, key, kind, &element, |edit, tag| change(edit, tag, &element));
        done.expect("it is hot").expect("it is of this type");
    });
}

/// As [`edit`], of as many elements as a run has, from number `n` on.
fn edit_run(
    store: &Store,
    (key, kind): (&[u8], ValueKind),
    n: u64,
    change: impl Fn(&mut store::Edit<'_>, u16, &[u8]),
) {
    let elements = run_from(n);
    write(store, key, |access| {
        let named = elements.iter().map(|element| &element[..]);
        let done = access.edit_each(0, key, kind, named, |edit, tag, number| {
            change(edit, tag, &elements[number]);
        });
        done.expect("it is hot").expect("it is of this type");
    });
}

/// Elements from number `n` on, as many as a run has.
fn run_from(n: u64) -> Vec<[u8; 14]> {
    (n..n + RUN as u64).map(|n| named(*b"el:00000000000", n)).collect()
}

pub fn hset_run(store: &Store, n: u64) {
    edit_run(store, (b"hash:00000000001", ValueKind::Hash), n, |edit, tag, field| {
        edit.put(tag, field, &VALUE);
    });
}

pub fn sadd_run(store: &Store, n: u64) {
    edit_run(store, (b"set:000000000001", ValueKind::Set), n, |edit, tag, member| {
        edit.add(tag, member);
    });
}

/// As so many [`zadd_any`], the scores of the members `more` further.
pub fn zadd_run(store: &Store, n: u64, more: u64) {
    rescore(store, &run_from(n), |number| mixed(n + number as u64 + more));
}

/// DEL of a key.
pub fn remove(store: &Store, key: &[u8]) {
    write(store, key, |access| assert!(access.remove(0, key).expect("it is hot")));
}

pub fn write(store: &Store, key: &[u8], change: impl FnOnce(&mut Access<'_>)) {
    let (prepared, keys) = (Prepared::default(), [KeyRef { db: 0, key }]);
    let mut access = store.access(Scope::Keys(&keys), &prepared, 200).expect("memory never refuses");
    change(&mut access);
    access.commit().expect("memory never refuses");
}

fn key_of(n: u64) -> [u8; 16] {
    named(*b"key:000000000000", n)
}

/// `name` with `n` in its last digits.
fn named<const LEN: usize>(mut name: [u8; LEN], mut n: u64) -> [u8; LEN] {
    for byte in name.iter_mut().rev().take(10) {
        *byte = b'0' + (n % 10) as u8;
        n /= 10;
    }
    name
}
