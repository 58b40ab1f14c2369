//! How much is pending at each consumer, kept with the consumers: so that nobody need look at all that is pending.
//!
//! ```text
//!  key                                   what comes behind the fields of the module above
//!  c | group len u32 | group | consumer  pending u64    entries that are pending at the consumer
//!  g | group                             free u64 | pending u64 | blocks u64
//!                                        entries that were given back (XNACK), all that are pending, and blocks that have them
//! ```
//!
//! A group of an older version is not counted, or has `free` alone, until something of what is pending in it changes; one that is not counted is
//! then, once. Who asks believes counts if they add up and there are so many blocks (of older versions: entries): salvage may have lost some, and RESTORE takes
//! anything. A change looks at their number when blocks come or go, and counts all anew if it is another.

use std::collections::{BTreeMap, HashMap};

use store::{Sequence, Stop};

use super::pending::Folded;
use super::{Changes, Id, Stream, consumer_key, group_key, group_prefix};

/// What is pending in a group.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Given back by all consumers.
    free: u64,
    /// By consumer; of one that is not there nothing is.
    pub(crate) by_consumer: BTreeMap<Vec<u8>, u64>,
}

/// How many entries are pending at each consumer of a group, as the stream's counts say; `None`: there are none, or not such as can be right.
///
/// # Errors
/// As [`store::Access::get`].
pub fn kept_counts(sequence: Sequence<'_, '_>, group: &[u8]) -> Result<Option<BTreeMap<Vec<u8>, u64>>, Stop> {
    Ok(Stream::new(sequence).kept_counts(group)?.map(|counts| counts.by_consumer))
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
        let Some(kept) = self.value(&group_key(group))?.and_then(Kept::of) else { return Ok(None) };
        let mut counts = Counts { free: kept.free, by_consumer: BTreeMap::new() };
        let prefix = group_prefix(b'c', group);
        for (key, value) in self.with_prefix(&prefix)? {
            let Some(count) = pending_of(value) else { return Ok(None) };
            counts.by_consumer.insert(key[prefix.len()..].to_vec(), count);
        }
        let blocks = self.blocks(group)?.len() as u64;
        let is_right = kept.in_blocks.unwrap_or((blocks, blocks)) == (counts.sum(), blocks);
        Ok(is_right.then_some(counts))
    }

    /// How much is pending in a group.
    pub(crate) fn count_pending(self, group: &[u8]) -> Result<usize, Stop> {
        let blocks = self.blocks(group)?.len();
        match self.value(&group_key(group))?.map(|record| Kept::of(record).and_then(|kept| kept.in_blocks)) {
            Some(Some((pending, counted))) if counted == blocks as u64 => Ok(pending as usize),
            // of an older version: each is of one entry
            Some(None) => Ok(blocks),
            _ => Ok(self.count_all(group)?.sum() as usize),
        }
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
}

/// What a list of changes does to a group.
#[derive(Default)]
struct Delta<'c> {
    /// Its record, which is put or goes.
    record: Option<Option<&'c [u8]>>,
    /// The records of consumers.
    consumers: BTreeMap<&'c [u8], Option<&'c [u8]>>,
    /// What becomes of what is pending.
    pending: Option<Folded>,
}

/// What is kept of a group that is counted.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    free: u64,
    /// How many entries are pending, and in how many blocks; `None`: an older version counted.
    in_blocks: Option<(u64, u64)>,
}

impl Kept {
    fn of(record: &[u8]) -> Option<Self> {
        let free = number_at(record, GROUP_BYTES)?;
        let in_blocks = number_at(record, GROUP_BYTES + 8).zip(number_at(record, GROUP_BYTES + 16));
        Some(Self { free, in_blocks })
    }
}

impl Changes {
    /// These changes with those of blocks of what is pending, and of the counts; `None` if there are none of these.
    pub(crate) fn settled(&self, stream: Stream<'_, '_>) -> Result<Option<Self>, Stop> {
        let mut groups = BTreeMap::<&[u8], Delta<'_>>::new();
        for (key, value) in self.iter() {
            match (key.first(), behind_group(key)) {
                (Some(b'g'), _) => groups.entry(&key[1..]).or_default().record = Some(value),
                (Some(b'c'), Some((group, name))) => {
                    groups.entry(group).or_default().consumers.insert(name, value);
                }
                _ => {}
            }
        }
        for (group, pending) in &self.pending {
            groups.entry(group).or_default().pending = Some(stream.fold_pending(group, pending)?);
        }
        groups.retain(|_, delta| delta.record != Some(None));
        let mut counted = HashMap::new();
        for (name, delta) in &groups {
            count_group(stream, name, delta, &mut counted)?;
        }
        let is_settled = self.pending.is_empty() && counted.is_empty();
        let blocks = groups.into_values().filter_map(|delta| delta.pending).flat_map(|folded| folded.blocks);
        Ok((!is_settled).then(|| self.with_values(counted, blocks)))
    }

    /// These changes, with other values for some keys, and with blocks.
    fn with_values(
        &self,
        mut values: HashMap<Vec<u8>, Vec<u8>>,
        blocks: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) -> Self {
        let mut changes = Self { oldest: self.oldest.clone(), ..Self::with_room(self.bytes.len()) };
        let mut add = |key: &[u8], value: Option<&[u8]>| match value {
            Some(value) => changes.put(&[key], [value].into_iter()),
            None => changes.delete(&[key]),
        };
        for (key, value) in self.iter() {
            match value.and_then(|_| values.remove(key)) {
                Some(value) => add(key, Some(&value)),
                None => add(key, value),
            }
        }
        values.iter().for_each(|(key, value)| add(key, Some(value)));
        blocks.for_each(|(key, value)| add(&key, value.as_deref()));
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
    let new = Kept { free: 0, in_blocks: Some((0, 0)) };
    let kept = former.map_or(Some(new), Kept::of);
    if kept.is_none() && delta.pending.is_none() {
        return Ok(());
    }
    let nothing = Folded::default();
    let folded = delta.pending.as_ref().unwrap_or(&nothing);
    let blocks = match kept.and_then(|kept| kept.in_blocks) {
        // that some are lost is noticed when blocks come or go
        Some((_, blocks)) if folded.more == 0 => blocks,
        _ => stream.blocks(name)?.len() as u64,
    };
    // of an older version each block is of one entry
    let kept = kept.map(|kept| (kept.free, kept.in_blocks.unwrap_or((blocks, blocks))));
    let mut names: Vec<&[u8]> = delta.consumers.keys().copied().collect();
    let changed = folded.by_consumer.keys().map(|name| &name[..]);
    names.extend(changed.filter(|name| !delta.consumers.contains_key(name)));
    let mut known = HashMap::new();
    for consumer in &names {
        let value = stream.value(&consumer_key(name, consumer))?;
        known.insert(*consumer, (value, value.map_or(Some(0), pending_of)));
    }
    let kept = kept.filter(|(_, (_, counted))| *counted == blocks);
    let is_counted = kept.is_some() && known.values().all(|(_, count)| count.is_some());
    let all = if is_counted { None } else { Some(stream.count_all(name)?) };
    let consumers = if is_counted { Vec::new() } else { stream.with_prefix(&group_prefix(b'c', name))? };
    for (key, value) in &consumers {
        let consumer = &key[group_prefix(b'c', name).len()..];
        if known.insert(consumer, (Some(*value), None)).is_none() {
            names.push(consumer);
        }
    }
    for consumer in names {
        let (former, count) = known[consumer];
        let Some(record) = delta.consumers.get(consumer).copied().unwrap_or(former) else { continue };
        let count = match &all {
            Some(all) => all.by_consumer.get(consumer).copied().unwrap_or(0),
            None => count.unwrap_or(0),
        };
        let count = count.saturating_add_signed(folded.by_consumer.get(consumer).copied().unwrap_or(0));
        counted.insert(consumer_key(name, consumer), with_numbers(record, CONSUMER_BYTES, &[count]));
    }
    let (free, pending) = match (&all, kept) {
        (Some(all), _) => (all.free, all.sum()),
        (None, Some((free, (pending, _)))) => (free, pending),
        (None, None) => (0, 0),
    };
    let more = folded.by_consumer.values().fold(folded.free, |sum, more| sum.saturating_add(*more));
    let numbers = [
        free.saturating_add_signed(folded.free),
        pending.saturating_add_signed(more),
        blocks.saturating_add_signed(folded.more),
    ];
    let value = with_numbers(record, GROUP_BYTES, &numbers);
    if delta.record.is_some() || former.is_none_or(|former| *former != value[..]) {
        counted.insert(key, value);
    }
    Ok(())
}

/// The group in the key of a consumer, or of what is pending, and what comes behind it.
pub(super) fn behind_group(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = key.get(1..)?.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}

/// How much is pending, if the consumer is counted.
fn pending_of(record: &[u8]) -> Option<u64> {
    number_at(record, CONSUMER_BYTES)
}

fn number_at(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*record.get(at..)?.first_chunk()?))
}

/// The first `len` bytes of a record, and numbers behind them.
fn with_numbers(record: &[u8], len: usize, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = record[..record.len().min(len)].to_vec();
    bytes.resize(len, 0);
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
    bytes
}

/// What a consumer has before its count.
const CONSUMER_BYTES: usize = 16;
/// What a group has before its counts.
const GROUP_BYTES: usize = 24;
