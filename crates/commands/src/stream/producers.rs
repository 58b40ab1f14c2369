//! Entries that producers name: one that is added again under its name is known, and not added.
//!
//! Names are known for some time, and the newest of each producer only. Keys are those of the module above.

use store::Stop;
use xxhash_rust::xxh3::xxh3_128;

use super::{Changes, Id, Reader, Stream, group_prefix};

/// How long names are known, and how many of a producer; and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracking {
    pub(crate) seconds: u64,
    pub(crate) most: u64,
    /// Entries that were added with a name.
    pub(crate) named: u64,
    /// Entries that were not added, because they had been.
    pub(crate) again: u64,
}

impl Default for Tracking {
    fn default() -> Self {
        Self { seconds: 100, most: 100, named: 0, again: 0 }
    }
}

/// A name for an entry with these fields and values.
pub(crate) fn automatic_name<'p>(parts: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut whole = Vec::new();
    for part in parts {
        whole.extend_from_slice(&(part.len() as u64).to_le_bytes());
        whole.extend_from_slice(part);
    }
    xxh3_128(&whole).to_be_bytes().to_vec()
}

impl Stream<'_, '_> {
    /// How names are kept; `None`: none was ever given.
    pub(crate) fn tracking(self) -> Result<Option<Tracking>, Stop> {
        let Some(value) = self.value(TRACKING)? else { return Ok(None) };
        let mut reader = Reader(value);
        let (seconds, most, named, again) = (reader.u64(), reader.u64(), reader.u64(), reader.u64());
        Ok(Some(Tracking { seconds, most, named, again }))
    }

    /// The entry that `producer` named so and that is still known.
    pub(crate) fn named(self, producer: &[u8], name: &[u8], now_ms: u64) -> Result<Option<Id>, Stop> {
        let Some(value) = self.value(&name_key(producer, name))? else { return Ok(None) };
        let mut reader = Reader(value);
        let (id, added_ms) = (reader.id(), reader.u64());
        let is_known = !is_over(self.tracking()?.unwrap_or_default(), added_ms, now_ms);
        Ok(is_known.then_some(id))
    }

    /// How many producers have names, and how many there are.
    pub(crate) fn count_names(self) -> Result<(u64, u64), Stop> {
        let (mut producers, mut names, mut last) = (0, 0, None);
        for (key, _) in self.with_prefix(b"o")? {
            let producer = key.get(..key.len().saturating_sub(16));
            producers += u64::from(producer != last);
            (names, last) = (names + 1, producer);
        }
        Ok((producers, names))
    }
}

fn is_over(tracking: Tracking, added_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(added_ms) >= tracking.seconds.saturating_mul(1_000)
}

impl Changes {
    pub(crate) fn put_tracking(&mut self, tracking: Tracking) {
        let Tracking { seconds, most, named, again } = tracking;
        let fields = [seconds, most, named, again].map(u64::to_be_bytes);
        self.put(&[TRACKING], fields.iter().map(|field| &field[..]));
    }

    /// Names the entry `id`; what is known no longer, or is one too many, goes.
    pub(crate) fn put_name(
        &mut self,
        stream: Stream<'_, '_>,
        producer: &[u8],
        name: &[u8],
        id: Id,
        now_ms: u64,
    ) -> Result<(), Stop> {
        let mut tracking = stream.tracking()?.unwrap_or_default();
        let by_age = stream.with_prefix(&group_prefix(b'o', producer))?;
        let mut left = by_age.len() as u64;
        for (key, old) in by_age {
            let added_ms = stream.value(&name_key(producer, old))?.map_or(0, |known| {
                let mut reader = Reader(known);
                reader.id();
                reader.u64()
            });
            if left < tracking.most && !is_over(tracking, added_ms, now_ms) && old != name {
                break;
            }
            self.delete(&[key]);
            self.delete(&[&name_key(producer, old)]);
            left -= 1;
        }
        let known = [&id.bytes()[..], &now_ms.to_be_bytes()];
        self.put(&[&name_key(producer, name)], known.into_iter());
        self.put(&[&group_prefix(b'o', producer), &id.bytes()], [name].into_iter());
        tracking.named = tracking.named.saturating_add(1);
        self.put_tracking(tracking);
        Ok(())
    }

    /// Forgets all names.
    pub(crate) fn delete_names(&mut self, stream: Stream<'_, '_>) -> Result<(), Stop> {
        for kind in [b"i", b"o"] {
            stream.with_prefix(kind)?.into_iter().for_each(|(key, _)| self.delete(&[key]));
        }
        Ok(())
    }
}

fn name_key(producer: &[u8], name: &[u8]) -> Vec<u8> {
    [&group_prefix(b'i', producer)[..], name].concat()
}

const TRACKING: &[u8] = b"k";
