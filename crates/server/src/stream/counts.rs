//! How much is pending at each consumer, kept with the consumers: so that nobody need look at all that is pending.
//!
//! ```text
//!  key                                   what comes behind the fields of the module above
//!  c | group len u32 | group | consumer  pending u64    entries that are pending at the consumer
//!  g | group                             free u64       entries that were given back (XNACK): the group is counted
//! ```
//!
//! A group of an older version is not counted until something of what is pending in it changes: then all is counted, once.
//! Counts are believed if they add up to the number of what is pending: salvage may have lost some of it, and RESTORE takes anything.

use std::collections::{BTreeMap, HashMap};

use store::Stop;

use super::{Changes, Id, Pending, Reader, Stream, consumer_key, group_key, group_prefix, pending_key};

/// What is pending in a group.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Given back by all consumers.
    free: u64,
    /// By consumer; of one that is not there nothing is.
    pub(crate) by_consumer: BTreeMap<Vec<u8>, u64>,
}

impl Counts {
    fn sum(&self) -> u64 {
        self.by_consumer.values().fold(self.free, |sum, count| sum.saturating_add(*count))
    }
}

impl Stream<'_, '_> {
    /// What is pending in a group: as it is kept, or counted now.
    pub(crate) fn pending_counts(self, group: &[u8]) -> Result<Counts, Stop> {
        match self.kept_counts(group)? {
            Some(counts) => Ok(counts),
            None => self.count_all(group),
        }
    }

    /// What is kept of that, if it can be believed.
    pub(crate) fn kept_counts(self, group: &[u8]) -> Result<Option<Counts>, Stop> {
        let Some(free) = self.value(&group_key(group))?.and_then(free_of) else { return Ok(None) };
        let mut counts = Counts { free, by_consumer: BTreeMap::new() };
        let prefix = group_prefix(b'c', group);
        for (key, value) in self.with_prefix(&prefix)? {
            let Some(count) = pending_of(value) else { return Ok(None) };
            counts.by_consumer.insert(key[prefix.len()..].to_vec(), count);
        }
        let is_right = counts.sum() == self.count_pending(group)? as u64;
        Ok(is_right.then_some(counts))
    }

    fn count_all(self, group: &[u8]) -> Result<Counts, Stop> {
        let mut counts = Counts::default();
        for it in self.pending_from(group, Id::MIN)? {
            let (_, pending) = it?;
            if pending.is_free() {
                counts.free += 1;
            } else if let Some(count) = counts.by_consumer.get_mut(&pending.consumer) {
                *count += 1;
            } else {
                counts.by_consumer.insert(pending.consumer, 1);
            }
        }
        Ok(counts)
    }

    /// The last of what is pending in a group.
    fn last_pending(self, group: &[u8]) -> Result<Option<Id>, Stop> {
        let prefix = group_prefix(b'p', group);
        let end = self.0.partition_point(|(key, _)| key < &prefix[..] || key.starts_with(&prefix))?;
        let before = end.checked_sub(1).map(|at| self.0.element(at)).transpose()?.flatten();
        let key = before.and_then(|(key, _)| key.strip_prefix(&prefix[..]));
        Ok(key.map(|id| Reader(id).id()))
    }

    /// The first and the last of what is pending in a group.
    pub(crate) fn ends_of_pending(self, group: &[u8]) -> Result<Option<(Id, Id)>, Stop> {
        let prefix = group_prefix(b'p', group);
        let places = self.places(&prefix)?;
        if places.is_empty() {
            return Ok(None);
        }
        let at =
            |place| Ok::<_, Stop>(self.0.element(place)?.map(|(key, _)| Reader(&key[prefix.len()..]).id()));
        Ok(at(places.start)?.zip(at(places.end - 1)?))
    }
}

/// What a list of changes does to a group.
#[derive(Default)]
struct Delta<'c> {
    /// Its record, which is put or goes.
    record: Option<Option<&'c [u8]>>,
    /// The records of consumers.
    consumers: BTreeMap<&'c [u8], Option<&'c [u8]>>,
    /// What becomes of what is pending, in order.
    pending: Vec<(&'c [u8], Option<Pending>)>,
}

impl Changes {
    /// These changes with those of the counts; `None` if there are none of these.
    pub(crate) fn with_counts(&self, stream: Stream<'_, '_>) -> Result<Option<Self>, Stop> {
        let mut groups = BTreeMap::<&[u8], Delta<'_>>::new();
        for (key, value) in self.iter() {
            match (key.first(), behind_group(key)) {
                (Some(b'g'), _) => groups.entry(&key[1..]).or_default().record = Some(value),
                (Some(b'c'), Some((group, name))) => {
                    groups.entry(group).or_default().consumers.insert(name, value);
                }
                (Some(b'p'), Some((group, _))) => {
                    groups.entry(group).or_default().pending.push((key, value.map(Pending::read_from)));
                }
                _ => {}
            }
        }
        let mut counted = HashMap::new();
        for (name, delta) in groups.iter().filter(|(_, delta)| delta.record != Some(None)) {
            count_group(stream, name, delta, &mut counted)?;
        }
        Ok((!counted.is_empty()).then(|| self.with_values(counted)))
    }

    /// These changes, with other values for some keys.
    fn with_values(&self, mut values: HashMap<Vec<u8>, Vec<u8>>) -> Self {
        let mut changes = Self { oldest: self.oldest.clone(), ..Self::with_room(self.bytes.len()) };
        for (key, value) in self.iter() {
            match value.and_then(|_| values.remove(key)) {
                Some(value) => changes.put(&[key], [&value[..]].into_iter()),
                None => match value {
                    Some(value) => changes.put(&[key], [value].into_iter()),
                    None => changes.delete(&[key]),
                },
            }
        }
        values.iter().for_each(|(key, value)| changes.put(&[key], [&value[..]].into_iter()));
        changes
    }
}

/// Adds the records of a group and its consumers to `counted` whose counts change, or that are put.
fn count_group(
    stream: Stream<'_, '_>,
    name: &[u8],
    delta: &Delta<'_>,
    counted: &mut HashMap<Vec<u8>, Vec<u8>>,
) -> Result<(), Stop> {
    let key = group_key(name);
    let former = stream.value(&key)?;
    let Some(record) = delta.record.flatten().or(former) else { return Ok(()) };
    let free = if former.is_none() { Some(0) } else { former.and_then(free_of) };
    if free.is_none() && delta.pending.is_empty() {
        return Ok(());
    }
    let (free_delta, deltas) = deltas_of(stream, name, &delta.pending)?;
    let mut names: Vec<&[u8]> = delta.consumers.keys().copied().collect();
    names.extend(deltas.keys().map(|name| &name[..]).filter(|name| !delta.consumers.contains_key(name)));
    let mut kept = HashMap::new();
    for consumer in &names {
        let value = stream.value(&consumer_key(name, consumer))?;
        kept.insert(*consumer, (value, value.map_or(Some(0), pending_of)));
    }
    let is_counted = free.is_some() && kept.values().all(|(_, count)| count.is_some());
    let all = if is_counted { None } else { Some(stream.count_all(name)?) };
    let consumers = if is_counted { Vec::new() } else { stream.with_prefix(&group_prefix(b'c', name))? };
    for (key, value) in &consumers {
        let consumer = &key[group_prefix(b'c', name).len()..];
        if kept.insert(consumer, (Some(*value), None)).is_none() {
            names.push(consumer);
        }
    }
    for consumer in names {
        let (former, count) = kept[consumer];
        let Some(record) = delta.consumers.get(consumer).copied().unwrap_or(former) else { continue };
        let count = match &all {
            Some(all) => all.by_consumer.get(consumer).copied().unwrap_or(0),
            None => count.unwrap_or(0),
        };
        let count = count.saturating_add_signed(deltas.get(consumer).copied().unwrap_or(0));
        counted.insert(consumer_key(name, consumer), with_number(record, CONSUMER_BYTES, count));
    }
    let free = all.map_or(free.unwrap_or(0), |all| all.free).saturating_add_signed(free_delta);
    let value = with_number(record, GROUP_BYTES, free);
    if delta.record.is_some() || former.is_none_or(|former| *former != value[..]) {
        counted.insert(key, value);
    }
    Ok(())
}

/// How many more are given back, and are pending at each consumer.
fn deltas_of(
    stream: Stream<'_, '_>,
    group: &[u8],
    changes: &[(&[u8], Option<Pending>)],
) -> Result<(i64, HashMap<Vec<u8>, i64>), Stop> {
    let (mut free, mut deltas) = (0, HashMap::<Vec<u8>, i64>::new());
    if changes.is_empty() {
        return Ok((free, deltas));
    }
    let last = stream.last_pending(group)?.map(|last| pending_key(group, last));
    let mut changed = HashMap::<&[u8], &Option<Pending>>::new();
    let mut count = |pending: &Pending, by: i64| {
        if pending.is_free() {
            free += by;
        } else if let Some(delta) = deltas.get_mut(&pending.consumer) {
            *delta += by;
        } else {
            deltas.insert(pending.consumer.clone(), by);
        }
    };
    for (key, value) in changes {
        match changed.insert(key, value) {
            Some(former) => former.iter().for_each(|former| count(former, -1)),
            // what comes behind all that is pending is new
            None if last.as_ref().is_none_or(|last| *key > &last[..]) => {}
            None => {
                let former = stream.value(key)?.map(Pending::read_from);
                former.iter().for_each(|former| count(former, -1));
            }
        }
        value.iter().for_each(|value| count(value, 1));
    }
    Ok((free, deltas))
}

/// The group in the key of a consumer, or of what is pending, and what comes behind it.
fn behind_group(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = key.get(1..)?.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}

/// How much was given back, if the group is counted.
fn free_of(record: &[u8]) -> Option<u64> {
    number_at(record, GROUP_BYTES)
}

/// How much is pending, if the consumer is counted.
fn pending_of(record: &[u8]) -> Option<u64> {
    number_at(record, CONSUMER_BYTES)
}

fn number_at(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*record.get(at..)?.first_chunk()?))
}

/// The first `len` bytes of a record, and a number behind them.
fn with_number(record: &[u8], len: usize, number: u64) -> Vec<u8> {
    let mut bytes = record[..record.len().min(len)].to_vec();
    bytes.resize(len, 0);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes
}

/// What a consumer has before its count.
const CONSUMER_BYTES: usize = 16;
/// What a group has before its own.
const GROUP_BYTES: usize = 24;
