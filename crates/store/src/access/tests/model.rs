//! Random commands, releases, evictions and crashes against a model of the databases.

use clock::Clock;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u8, u8, Option<u8>),
    Remove(u16, u8),
    Expire(u16, u8, Option<u8>),
    Part(u16, u8, u16, u8),
    FieldSet(u16, u8, u8, u8),
    FieldDelete(u16, u8, u8),
    Flush(u16),
    Swap,
    Read(u16, u8),
    Len(u16),
    Advance(u8),
    Tend,
    Release(u8),
    Cool,
    Crash(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (db, key) = (0..DATABASES, 0..KEYS);
    prop_oneof![
        14 => (db.clone(), key.clone(), any::<u8>(), proptest::option::of(1..60_u8))
            .prop_map(|(d, k, v, e)| Step::Put(d, k, v, e)),
        6 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        6 => (db.clone(), key.clone(), proptest::option::of(1..60_u8)).prop_map(|(d, k, e)| Step::Expire(d, k, e)),
        12 => (0..1_u16, 0..3_u8, 0..6_000_u16, 1..=u8::MAX).prop_map(|(d, k, a, l)| Step::Part(d, k, a, l)),
        8 => (db.clone(), key.clone(), 0..5_u8, any::<u8>()).prop_map(|(d, k, f, v)| Step::FieldSet(d, k, f, v)),
        3 => (db.clone(), key.clone(), 0..5_u8).prop_map(|(d, k, f)| Step::FieldDelete(d, k, f)),
        1 => db.clone().prop_map(Step::Flush),
        1 => Just(Step::Swap),
        6 => (db.clone(), key).prop_map(|(d, k)| Step::Read(d, k)),
        1 => db.prop_map(Step::Len),
        2 => (0..20_u8).prop_map(Step::Advance),
        2 => Just(Step::Tend),
        4 => any::<u8>().prop_map(Step::Release),
        3 => Just(Step::Cool),
        1 => any::<u8>().prop_map(Step::Crash),
    ]
}

type State = [BTreeMap<u8, (Content, Option<u64>)>; DATABASES as usize];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    String(Vec<u8>),
    Fields(BTreeMap<Vec<u8>, Vec<u8>>),
}

fn content(access: &crate::Access<'_>, db: u16, key: &[u8]) -> Result<Option<(Content, Option<u64>)>, Stop> {
    let Some(found) = access.get(db, key)? else { return Ok(None) };
    let content = match fields(access, db, key)? {
        Some(fields) => Content::Fields(fields),
        None => Content::String(found.value.to_vec()),
    };
    Ok(Some((content, found.expiry.map(Deadline::raw))))
}

/// The truth: the state after each effect, and the newest effect that an answer was told of.
struct Model {
    states: Vec<State>,
    told: u64,
}

impl Model {
    fn now(&self) -> State {
        self.states.last().expect("there is always one").clone()
    }

    /// The state after effects up to `seq`; a group's state stands for all of its effects.
    fn push(&mut self, state: &State, newest: u64) {
        self.states.resize(newest as usize + 1, state.clone());
        *self.states.last_mut().expect("resized") = state.clone();
    }
}

fn alive(state: &State, now_ms: u64) -> State {
    let mut state = state.clone();
    state.iter_mut().for_each(|map| map.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now_ms)));
    state
}

fn apply(bench: &Bench, model: &mut Model, step: &Step) {
    let mut state = alive(&model.now(), bench.clock.unix_ms().0);
    let ticket = apply_to_key(bench, &mut state, step)
        .or_else(|| apply_to_fields(bench, &mut state, step))
        .unwrap_or_else(|| apply_to_all(bench, &mut state, step));
    model.told = model.told.max(ticket);
    model.push(&state, bench.store.newest_seq().0);
    bench.store.check_state();
}

fn apply_to_key(bench: &Bench, state: &mut State, step: &Step) -> Option<u64> {
    let now_ms = bench.clock.unix_ms().0;
    Some(match *step {
        Step::Put(db, key, seed, ttl) => {
            let value = vec![seed; usize::from(seed) / 2];
            let expiry = ttl.map(|ttl| now_ms + u64::from(ttl));
            state[usize::from(db)].insert(key, (Content::String(value.clone()), expiry));
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            bench
                .run(Scope::Keys(&keys), |access| {
                    access.put(db, &id, Value::String(&value), expiry.map(|at| Deadline::at(UnixMs(at))));
                    Ok(())
                })
                .0
        }
        Step::Remove(db, key) => {
            let expected = state[usize::from(db)].remove(&key).is_some();
            let id = [key];
            let (ticket, removed) =
                bench.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| access.remove(db, &id));
            assert_eq!(removed, expected);
            ticket
        }
        Step::Expire(db, key, ttl) => {
            let expiry = ttl.map(|ttl| now_ms + u64::from(ttl));
            let expected = state[usize::from(db)].get_mut(&key).map(|entry| entry.1 = expiry).is_some();
            let id = [key];
            let (ticket, found) = bench.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| {
                access.set_expiry(db, &id, expiry.map(|at| Deadline::at(UnixMs(at))))
            });
            assert_eq!(found, expected);
            ticket
        }
        Step::Part(db, key, at, len) => {
            let (at, bytes) = (usize::from(at), vec![len; len.into()]);
            let entry = state[usize::from(db)].entry(key).or_insert((Content::String(Vec::new()), None));
            let expiry = entry.1;
            let mut value = match &entry.0 {
                Content::String(value) => value.clone(),
                Content::Fields(_) => Vec::new(),
            };
            let changed = at.min(value.len())..at + bytes.len();
            value.resize(value.len().max(changed.end), 0);
            value[at..at + bytes.len()].copy_from_slice(&bytes);
            entry.0 = Content::String(value.clone());
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            bench
                .run(Scope::Keys(&keys), |access| {
                    access.put_part(
                        db,
                        &id,
                        Value::String(&value),
                        changed.clone(),
                        expiry.and_then(Deadline::of),
                    )
                })
                .0
        }
        Step::Read(db, key) => {
            let id = [key];
            let (ticket, found) =
                bench.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| content(access, db, &id));
            assert_eq!(found.as_ref(), state[usize::from(db)].get(&key));
            ticket
        }
        _ => return None,
    })
}

/// Of one field long, so that changes of the others are logged as such.
fn value_of(field: u8, value: u8) -> Vec<u8> {
    vec![value; if field == 0 { 900 } else { 9 }]
}

fn apply_to_fields(bench: &Bench, state: &mut State, step: &Step) -> Option<u64> {
    Some(match *step {
        Step::FieldSet(db, key, field, value) => {
            let entry = state[usize::from(db)].entry(key).or_insert((Content::String(Vec::new()), None));
            match entry {
                (Content::Fields(fields), _) => drop(fields.insert(vec![field], value_of(field, value))),
                other => *other = (Content::Fields([(vec![field], value_of(field, value))].into()), None),
            }
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            bench
                .run(Scope::Keys(&keys), |access| {
                    field_set(access, db, &id, &[field], &value_of(field, value))
                })
                .0
        }
        Step::FieldDelete(db, key, field) => {
            let expected = match state[usize::from(db)].get_mut(&key) {
                Some((Content::Fields(fields), _)) => fields.remove(&[field][..]).is_some(),
                _ => false,
            };
            state[usize::from(db)].retain(|_, (content, _)| *content != Content::Fields(BTreeMap::new()));
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            let (ticket, deleted) =
                bench.run(Scope::Keys(&keys), |access| field_delete(access, db, &id, &[field]));
            assert_eq!(deleted, expected);
            ticket
        }
        _ => return None,
    })
}

fn apply_to_all(bench: &Bench, state: &mut State, step: &Step) -> u64 {
    match *step {
        Step::Flush(db) => {
            state[usize::from(db)].clear();
            bench.run(Scope::Everything, |access| access.flush(db)).0
        }
        Step::Swap => {
            state.swap(0, 1);
            bench.run(Scope::Everything, |access| access.swap(0, 1)).0
        }
        Step::Len(db) => {
            bench.store.tend(1_000);
            let (ticket, len) = bench.run(Scope::Everything, |access| access.len(db));
            assert_eq!(len, state[usize::from(db)].len() as u64);
            ticket
        }
        Step::Advance(ms) => {
            bench.clock.advance(Duration::from_millis(ms.into()));
            0
        }
        Step::Tend => {
            bench.store.tend(1_000);
            0
        }
        Step::Release(share) => {
            let (released, newest) = (bench.store.released_seq().0, bench.store.newest_seq().0);
            bench.log.release(released + (newest - released) * u64::from(share) / 255);
            0
        }
        Step::Cool => {
            bench.evict();
            0
        }
        _ => 0,
    }
}

/// Keeps what is released and some of the rest, as a crash does, and checks that it is a state of the past.
fn crash(bench: &Bench, model: &mut Model, share: u8, bits: u32) -> Bench {
    let (released, newest) = (bench.store.released_seq().0, bench.store.newest_seq().0);
    let kept = released + (newest - released) * u64::from(share) / 255;
    let (log, index) = bench.log.recover(kept, &bench.hasher, DATABASES);
    let again = Bench::over(log, index, Arc::clone(&bench.clock), bench.hasher.clone(), bits);
    model.states.truncate(kept as usize + 1);
    model.told = 0;
    let now_ms = bench.clock.unix_ms().0;
    let expected = alive(&model.now(), now_ms);
    for db in 0..DATABASES {
        for key in 0..KEYS {
            let id = [key];
            let (_, found) =
                again.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| content(access, db, &id));
            assert_eq!(
                found.as_ref(),
                expected[usize::from(db)].get(&key),
                "db {db} key {key} after the crash"
            );
        }
    }
    model.push(&expected, again.store.newest_seq().0);
    again
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn cold_released_and_crashed_keys_read_as_the_model_says(
        bits in prop_oneof![Just(8_u32), Just(128)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut bench = Bench::new(bits);
        let mut model = Model { states: vec![State::default()], told: 0 };
        for step in &steps {
            match step {
                Step::Crash(share) => bench = crash(&bench, &mut model, *share, bits),
                step => apply(&bench, &mut model, step),
            }
            prop_assert!(model.told <= bench.store.newest_seq().0);
        }
        crash(&bench, &mut model, 128, bits);
    }
}
