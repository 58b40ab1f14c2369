//! A simulated file: what reads see, what the platter holds, and the changes between the two.
//!
//! `live` is the page cache; `durable` survives a power loss; `pending` are the changes since, in order.
//! A sector (512 bytes) is written whole or not at all, and holds what the page cache held at some moment:
//! a power loss leaves each sector at *any* of its versions between `durable` and `live`. That one rule
//! gives lost, torn and reordered writes. The length is metadata and arrives independently.
//!
//! After a failed sync the pages count as clean although they never arrived: `pending` is emptied, an
//! unknown part of it is durable, and `live` keeps all of it until the cache is dropped. So a second sync
//! reports success and the data is gone at the next power loss, as on Linux.

use std::collections::HashMap;
use std::sync::Arc;

use super::Rng;
use super::image::{Image, PAGE_SIZE_BYTES, page_range};

/// What a device writes whole or not at all.
pub(super) const SECTOR_SIZE_BYTES: u64 = 512;
const _: () = assert!(PAGE_SIZE_BYTES.is_multiple_of(SECTOR_SIZE_BYTES));

/// One change that no sync has covered yet.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Allocate { offset: u64, length: u64 },
    Punch { offset: u64, length: u64 },
    Length(u64),
}

impl Change {
    /// The range of bytes whose pages it dirties.
    fn range(&self) -> (u64, u64) {
        match self {
            Self::Write { offset, bytes } => (*offset, bytes.len() as u64),
            Self::Allocate { offset, length } | Self::Punch { offset, length } => (*offset, *length),
            Self::Length(_) => (0, 0),
        }
    }

    fn sectors(&self) -> std::ops::Range<u64> {
        match self {
            Self::Write { offset, bytes } if !bytes.is_empty() => {
                offset / SECTOR_SIZE_BYTES..(offset + bytes.len() as u64).div_ceil(SECTOR_SIZE_BYTES)
            }
            _ => 0..0,
        }
    }

    fn length_after(&self, before: u64) -> u64 {
        match self {
            Self::Length(length) => *length,
            Self::Write { bytes, .. } if bytes.is_empty() => before,
            Self::Punch { .. } => before,
            other => {
                let (offset, length) = other.range();
                before.max(offset + length)
            }
        }
    }

    fn apply(&self, image: &mut Image) {
        match self {
            Self::Write { offset, bytes } if !bytes.is_empty() => image.write(bytes, *offset),
            Self::Write { .. } => {}
            Self::Allocate { offset, length } => image.allocate(*offset, *length),
            Self::Punch { offset, length } => image.punch(*offset, *length),
            Self::Length(length) => image.set_len(*length),
        }
    }
}

/// A file without a name: names are in the folders.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    live: Image,
    durable: Image,
    pending: Vec<Change>,
    /// Names in the live folders.
    pub(super) names: u64,
    /// Open handles.
    pub(super) handles: u64,
}

impl Inode {
    /// An empty file with one name; nothing of it is durable.
    pub(super) fn named() -> Self {
        Self { names: 1, ..Self::default() }
    }

    /// A file that a power loss left with exactly these bytes.
    fn settled(image: &Image) -> Self {
        Self { live: image.clone(), durable: image.clone(), ..Self::default() }
    }

    /// What reads see.
    pub(super) fn live(&self) -> &Image {
        &self.live
    }

    /// Applies `change` to what reads see; a power loss may still undo it.
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            if let Change::Length(length) = change
                && length < self.durable.len()
            {
                self.durable.set_len(length);
            }
            let (offset, length) = change.range();
            for index in page_range(offset, length) {
                self.durable.copy_page(&self.live, index);
            }
        }
        self.durable.set_len(self.live.len());
    }

    /// A write that returns when its data is durable, and the length with it.
    ///
    /// Older changes of the same sectors arrive with it (a sector holds one version); others stay pending.
    pub(super) fn write_through(&mut self, change: &Change) {
        if self.pending.iter().any(|other| matches!(other, Change::Length(_))) {
            self.sync(); // a cut orders what lies around it: let all of it arrive
        }
        let sectors = change.sectors();
        let touches = |other: &Change| {
            let range = other.sectors();
            !matches!(other, Change::Write { .. }) || (range.start < sectors.end && sectors.start < range.end)
        };
        let (arriving, waiting) = std::mem::take(&mut self.pending).into_iter().partition(touches);
        self.pending = waiting;
        let arriving: Vec<Change> = arriving;
        change.apply(&mut self.live);
        for change in arriving.iter().chain([change]) {
            change.apply(&mut self.durable);
        }
        let length = self.live.len();
        self.durable.set_len(length);
    }

    /// A sync that failed: an unknown part arrived, and the cache believes all of it did.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        self.durable = self.after_power_loss(rng);
        self.pending.clear();
    }

    /// Forgets clean pages of the range: the next read asks the device.
    pub(super) fn drop_cache(&mut self, offset: u64, length: u64) {
        let end = (offset + length).min(self.live.len());
        let dirty: Vec<_> = self.pending.iter().map(Change::range).map(|(at, n)| page_range(at, n)).collect();
        if self.pending.iter().any(|change| matches!(change, Change::Length(_))) {
            return; // a pending cut keeps its pages busy
        }
        for index in page_range(offset, end.saturating_sub(offset)) {
            if !dirty.iter().any(|range| range.contains(&index)) {
                self.live.copy_page(&self.durable, index);
            }
        }
    }

    /// Flips a bit where it stays, on the device.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        self.live.flip_bit(offset, bit);
        self.durable.flip_bit(offset, bit);
    }

    /// The file as a power loss leaves it.
    pub(super) fn crashed(&self, rng: &mut Rng) -> Self {
        Self::settled(&self.after_power_loss(rng))
    }

    /// The file as the death of its process leaves it: nothing is lost, nothing became durable.
    pub(super) fn orphaned(&self) -> Self {
        Self { handles: 0, ..self.clone() }
    }

    fn after_power_loss(&self, rng: &mut Rng) -> Image {
        let fate = Fate::draw(rng, self.pending.len());
        let mut image = self.durable.clone();
        if matches!(fate, Fate::Nothing) || self.pending.is_empty() {
            return image;
        }
        let newest_kept = self.newest_kept(&fate, rng);
        let lengths_kept = fate.lengths_kept(rng, self.pending.len());
        let mut length = self.durable.len();
        for (index, change) in self.pending.iter().enumerate() {
            match change {
                Change::Write { offset, bytes } => {
                    for sector in change.sectors() {
                        if newest_kept.get(&sector).is_some_and(|&newest| index <= newest) {
                            let (start, end) = clip(sector, *offset, bytes.len() as u64);
                            image.write(&bytes[(start - offset) as usize..(end - offset) as usize], start);
                        }
                    }
                }
                other if index < lengths_kept => other.apply(&mut image),
                _ => {}
            }
            if index < lengths_kept {
                length = change.length_after(length);
            }
        }
        image.set_len(length);
        image
    }

    /// For each sector that arrives at all, the index of the newest change it shows.
    fn newest_kept(&self, fate: &Fate, rng: &mut Rng) -> HashMap<u64, usize> {
        let mut newest = HashMap::new();
        for (index, change) in self.pending.iter().enumerate() {
            let whole = fate.keeps_whole(rng, index);
            for sector in change.sectors() {
                if whole.unwrap_or_else(|| rng.chance(1, 2)) {
                    newest.insert(sector, index);
                }
            }
        }
        newest
    }
}

/// What a power loss does to the pending changes of one file. Several kinds, so that both the likely
/// outcomes and the wild ones are common.
enum Fate {
    /// All are lost.
    Nothing,
    /// All arrive.
    Everything,
    /// The first ones arrive, the next one is torn.
    Prefix(usize),
    /// Each arrives or not.
    Subset,
    /// Each sector of each change arrives or not.
    Torn,
}

impl Fate {
    fn draw(rng: &mut Rng, count: usize) -> Self {
        match rng.below(6) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 => Self::Subset,
            3 => Self::Torn,
            _ => Self::Prefix(rng.index(count + 1)),
        }
    }

    /// Whether the whole change arrives; `None` lets each sector decide.
    fn keeps_whole(&self, rng: &mut Rng, index: usize) -> Option<bool> {
        match self {
            Self::Nothing => Some(false),
            Self::Everything => Some(true),
            Self::Prefix(cut) if index == *cut => None,
            Self::Prefix(cut) => Some(index < *cut),
            Self::Subset => Some(rng.chance(1, 2)),
            Self::Torn => None,
        }
    }

    /// How many changes, from the first, are seen in the length.
    fn lengths_kept(&self, rng: &mut Rng, count: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Everything => count,
            Self::Prefix(cut) => (cut + rng.index(2)).min(count),
            Self::Subset | Self::Torn => rng.index(count + 1),
        }
    }
}

/// The part of a write at `offset` of `length` bytes that lies in `sector`, as start and end.
fn clip(sector: u64, offset: u64, length: u64) -> (u64, u64) {
    let start = (sector * SECTOR_SIZE_BYTES).max(offset);
    let end = ((sector + 1) * SECTOR_SIZE_BYTES).min(offset + length);
    (start, end)
}
