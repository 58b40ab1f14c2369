//! Values are looked for in lists beside a vector: in memory and on disk, with stripes locked and beside the loops, and what is staged.

mod reading;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use proptest::prelude::*;
use store::{Access, KeyRef, ListChange, Prepared, Scope, Stop, Store, ValueKind};
use vfs::SimDisk;

use reading::KEY;

fn open(disk: &SimDisk) -> Arc<Store> {
    reading::open(disk, 256)
}

fn run<R>(store: &Arc<Store>, is_beside: bool, command: impl FnMut(&mut Access<'_>) -> Result<R, Stop>) -> R {
    reading::run(store, is_beside, command).0
}

fn push(store: &Arc<Store>, is_beside: bool, values: &[Vec<u8>]) {
    let changes: Vec<_> = values.iter().map(|value| ListChange::PushBack(value)).collect();
    run(store, is_beside, |access| {
        access.change_list(0, KEY, &changes)?.expect("a list");
        Ok(())
    });
}

/// What is looked for.
#[derive(Clone, Debug)]
struct Query {
    value: Vec<u8>,
    range: Range<usize>,
    from_back: bool,
    /// How many of them are.
    most: usize,
}

impl Query {
    fn found(&self, access: &Access<'_>) -> Result<Vec<usize>, Stop> {
        let (list, mut found) = (access.sequence(0, KEY, ValueKind::List)?.expect("a list"), Vec::new());
        list.search(&self.value, self.range.clone(), self.from_back, |at| {
            found.push(at);
            if found.len() == self.most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    fn expected(&self, model: &[Vec<u8>]) -> Vec<usize> {
        let end = self.range.end.min(model.len());
        let equal = (self.range.start.min(end)..end).filter(|at| model[*at] == self.value);
        let mut equal: Vec<usize> = equal.collect();
        if self.from_back {
            equal.reverse();
        }
        equal.truncate(self.most);
        equal
    }
}

/// Bytes of which many are lengths of values as well, so that one value lies in another, or in the bytes of two.
fn letters(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), Just(3), Just(b'a')], len)
}

/// Most are short, and some very long.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let long = |lens: Range<usize>| {
        (letters(1..4), lens).prop_map(|(some, len)| some.iter().copied().cycle().take(len).collect())
    };
    prop_oneof![
        60 => letters(0..4),
        20 => letters(4..40),
        5 => long(40..600),
        1 => long(600..100_000),
    ]
}

fn query(values: Vec<Vec<u8>>) -> impl Strategy<Value = Query> {
    let (len, among) = (values.len() + 3, values.len());
    let place = any::<prop::sample::Index>();
    let one = (value(), place, 0_u8..4, any::<(prop::sample::Index, bool)>());
    (one, 0..len, 0..len, 1_usize..6).prop_map(move |((other, place, kind, (cut, all)), from, to, most)| {
        let known = || if among == 0 { other.clone() } else { values[place.index(among)].clone() };
        let value = match kind {
            0 => other.clone(),
            // a part of one
            1 => {
                let mut value = known();
                value.truncate(cut.index(value.len() + 1));
                value
            }
            _ => known(),
        };
        let (range, most) = if all { (0..len, usize::MAX) } else { (from.min(to)..from.max(to), most) };
        Query { value, range, from_back: cut.index(2) == 0, most }
    })
}

fn case() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Query>)> {
    let values = prop_oneof![prop::collection::vec(value(), 0..30), prop::collection::vec(value(), 30..300)];
    values.prop_flat_map(|values| {
        let queries = prop::collection::vec(query(values.clone()), 1..12);
        (Just(values), queries)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn values_are_found_and_removed_as_in_a_vector((values, queries) in case()) {
        let disk = SimDisk::new(3);
        let store = open(&disk);
        if !values.is_empty() {
            push(&store, false, &values);
        }
        for query in &queries {
            for is_beside in [false, true] {
                let found = run(&store, is_beside, |access| query.found(access));
                prop_assert_eq!(found, query.expected(&values), "beside: {}, {:?}", is_beside, query);
            }
        }
        store.close();
        // parts that one has read are in memory for the next
        let (store, mut model) = (open(&disk.process_death()), values);
        for (query, is_beside) in queries.iter().zip([true, false].into_iter().cycle()) {
            let found = run(&store, is_beside, |access| query.found(access));
            prop_assert_eq!(found, query.expected(&model), "cold, beside: {}, {:?}", is_beside, query);
        }
        for (query, is_beside) in queries.iter().zip([false, true].into_iter().cycle()) {
            // what it finds is staged in part
            model.push(query.value.clone());
            let Query { value, from_back, most, .. } = query;
            let all = Query { range: 0..model.len(), ..query.clone() };
            let equal = ListChange::RemoveEqual { value, most: *most, from_back: *from_back };
            let (found, removed) = run(&store, is_beside, |access| {
                access.change_list(0, KEY, &[ListChange::PushBack(value)])?.expect("a list");
                let found = all.found(access)?;
                Ok((found, access.change_list(0, KEY, &[equal])?.expect("a list").removed))
            });
            let mut expected = all.expected(&model);
            prop_assert_eq!(&found, &expected, "staged, beside: {}, {:?}", is_beside, query);
            prop_assert_eq!(removed, found.len());
            expected.sort_unstable();
            expected.into_iter().rev().for_each(|at| _ = model.remove(at));
            let kept = run(&store, false, |access| {
                let list = access.sequence(0, KEY, ValueKind::List)?.expect("a list");
                Ok(list.range(0..list.len())?.iter().map(|(value, _)| value.to_vec()).collect::<Vec<_>>())
            });
            prop_assert!(kept == model, "others are left, beside: {is_beside}, {query:?}");
        }
    }
}

/// After a change of the same command leaves are others than those that are stored.
#[test]
fn what_was_pushed_by_the_same_change_is_removed_with_the_others() {
    for is_beside in [false, true] {
        let store = open(&SimDisk::new(3));
        let values: Vec<Vec<u8>> = (0..1_000).map(|n: u32| format!("{}", n % 10).into_bytes()).collect();
        push(&store, is_beside, &values);
        let equal = ListChange::RemoveEqual { value: b"new", most: usize::MAX, from_back: false };
        let changes = [ListChange::PushFront(b"new"), ListChange::PushBack(b"new"), equal];
        let removed = run(&store, is_beside, |access| {
            Ok(access.change_list(0, KEY, &changes)?.expect("a list").removed)
        });
        assert_eq!(removed, 2);
    }
}

/// Elements count as they did when each was compared: otherwise others would wait for who searches.
#[test]
fn search_of_many_elements_is_stopped_where_others_wait() {
    let store = open(&SimDisk::new(3));
    push(&store, false, &vec![b"an element".to_vec(); 20_000]);
    let (keys, prepared) = ([KeyRef { db: 0, key: KEY }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1_000).expect("room");
    access.bound_effort(4_096);
    let query = Query { value: b"another".to_vec(), range: 0..20_000, from_back: true, most: 1 };
    assert!(matches!(query.found(&access), Err(Stop::Long)));
    drop(access);
    let few = Query { range: 19_000..20_000, ..query };
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1_000).expect("room");
    access.bound_effort(4_096);
    assert!(few.found(&access).expect("it is short").is_empty());
    assert!(access.touched() >= 1_000, "{}", access.touched());
}
