//! The bytes of a simulated file: sparse pages that snapshots share.
//!
//! A page is a hole (reads as zeroes, takes no space), zeroes (takes space, no memory) or data behind an
//! `Arc`. Cloning an image copies the page table only; the first write to a shared page copies that page.

use std::sync::Arc;

/// Size of a page: what the page cache drops, and the unit of allocation.
pub(super) const PAGE_SIZE_BYTES: u64 = 4096;
const PAGE: usize = PAGE_SIZE_BYTES as usize;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Page {
    #[default]
    Hole,
    Zeroes,
    Data(Arc<[u8; PAGE]>),
}

/// Contents and length of a file at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pages: Vec<Page>,
    length: u64,
    allocated_pages: u64,
}

impl Image {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Pages that take space.
    pub(super) fn allocated_pages(&self) -> u64 {
        self.allocated_pages
    }

    /// Pages that a write of `length` at `offset` would newly take.
    pub(super) fn missing_pages(&self, offset: u64, length: u64) -> u64 {
        page_range(offset, length).filter(|&index| matches!(self.page(index), Page::Hole)).count() as u64
    }

    /// Reads at `offset`; returns how many bytes, 0 at the end.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for (position, within, taken) in pieces(offset, count) {
            let target = &mut buffer[position..position + taken];
            match self.page((offset + position as u64) / PAGE_SIZE_BYTES) {
                Page::Data(data) => target.copy_from_slice(&data[within..within + taken]),
                Page::Hole | Page::Zeroes => target.fill(0),
            }
        }
        count
    }

    /// Writes `bytes` at `offset`, growing the file.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for (position, within, taken) in pieces(offset, bytes.len()) {
            let index = (offset + position as u64) / PAGE_SIZE_BYTES;
            self.write_page(index, within, &bytes[position..position + taken]);
        }
        self.length = self.length.max(offset + bytes.len() as u64);
    }

    /// Takes space for the range without changing what reads return, growing the file.
    pub(super) fn allocate(&mut self, offset: u64, length: u64) {
        for index in page_range(offset, length) {
            if matches!(self.page(index), Page::Hole) {
                self.put(index, Page::Zeroes);
            }
        }
        self.length = self.length.max(offset + length);
    }

    /// Gives the space of whole pages back; the length stays.
    ///
    /// # Panics
    /// If the range is no range of pages: a bug in the caller.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        let aligned = |bytes: u64| bytes.is_multiple_of(PAGE_SIZE_BYTES);
        assert!(aligned(offset) && aligned(length), "punch of {length} B at {offset}");
        for index in page_range(offset, length) {
            self.put(index, Page::Hole);
        }
    }

    /// Cuts (what lay behind reads as zeroes if the file grows again) or extends with a hole.
    pub(super) fn set_len(&mut self, length: u64) {
        if length < self.length {
            let first_dropped = length.div_ceil(PAGE_SIZE_BYTES);
            for index in first_dropped..self.pages.len() as u64 {
                self.put(index, Page::Hole);
            }
            self.pages.truncate(usize::try_from(first_dropped).unwrap_or(usize::MAX));
            let within = (length % PAGE_SIZE_BYTES) as usize;
            if within != 0 && matches!(self.page(length / PAGE_SIZE_BYTES), Page::Data(_)) {
                self.write_page(length / PAGE_SIZE_BYTES, within, &[0; PAGE][within..]);
            }
        }
        self.length = length;
    }

    /// Makes page `index` what it is in `other`; the length is not touched.
    pub(super) fn copy_page(&mut self, other: &Self, index: u64) {
        self.put(index, other.page(index).clone());
    }

    /// Flips one bit; nothing happens behind the end.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let mut byte = [0];
        if self.read(&mut byte, offset) == 1 {
            byte[0] ^= 1 << (bit % 8);
            self.write(&byte, offset);
        }
    }

    fn write_page(&mut self, index: u64, within: usize, bytes: &[u8]) {
        let zeroes = bytes.iter().all(|&byte| byte == 0);
        match self.page(index) {
            Page::Hole | Page::Zeroes if zeroes => self.put(index, Page::Zeroes),
            _ if zeroes && bytes.len() == PAGE => self.put(index, Page::Zeroes),
            Page::Hole | Page::Zeroes => {
                let mut data = [0; PAGE];
                data[within..within + bytes.len()].copy_from_slice(bytes);
                self.put(index, Page::Data(Arc::new(data)));
            }
            Page::Data(_) => {
                if let Some(Page::Data(data)) = self.pages.get_mut(index as usize) {
                    Arc::make_mut(data)[within..within + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
    }

    fn page(&self, index: u64) -> &Page {
        usize::try_from(index).ok().and_then(|index| self.pages.get(index)).unwrap_or(&Page::Hole)
    }

    fn put(&mut self, index: u64, page: Page) {
        let index = index as usize;
        if self.pages.len() <= index {
            if matches!(page, Page::Hole) {
                return;
            }
            self.pages.resize(index + 1, Page::Hole);
        }
        let takes = |page: &Page| u64::from(!matches!(page, Page::Hole));
        self.allocated_pages = self.allocated_pages + takes(&page) - takes(&self.pages[index]);
        self.pages[index] = page;
    }
}

/// Indices of the pages that the range touches.
pub(super) fn page_range(offset: u64, length: u64) -> std::ops::Range<u64> {
    if length == 0 {
        return 0..0;
    }
    offset / PAGE_SIZE_BYTES..(offset + length).div_ceil(PAGE_SIZE_BYTES)
}

/// Cuts `count` bytes at `offset` at page boundaries: position in the buffer, offset in the page, length.
fn pieces(offset: u64, count: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        if position == count {
            return None;
        }
        let within = ((offset + position as u64) % PAGE_SIZE_BYTES) as usize;
        let taken = (PAGE - within).min(count - position);
        let piece = (position, within, taken);
        position += taken;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(image: &Image) -> Vec<u8> {
        let mut bytes = vec![0xEE; image.len() as usize];
        assert_eq!(image.read(&mut bytes, 0), bytes.len());
        bytes
    }

    #[test]
    fn image_agrees_with_a_vector_under_random_changes() {
        let mut rng = super::super::Rng::new(11);
        for _ in 0..50 {
            let (mut image, mut model) = (Image::default(), Vec::<u8>::new());
            for _ in 0..40 {
                let (offset, length) = (rng.index(20_000), rng.index(9_000));
                match rng.below(5) {
                    0 => {
                        image.set_len(offset as u64);
                        model.resize(offset, 0);
                    }
                    4 => {
                        let (page, pages) = (offset / PAGE, length / PAGE);
                        image.punch((page * PAGE) as u64, (pages * PAGE) as u64);
                        let end = model.len();
                        model[(page * PAGE).min(end)..((page + pages) * PAGE).min(end)].fill(0);
                    }
                    kind => {
                        let byte = if kind == 1 { 0 } else { rng.bits() as u8 };
                        image.write(&vec![byte; length], offset as u64);
                        model.resize(model.len().max(offset + length), 0);
                        model[offset..offset + length].fill(byte);
                    }
                }
                assert_eq!(contents(&image), model);
                let held = image.pages.iter().filter(|page| !matches!(page, Page::Hole)).count();
                assert_eq!(held as u64, image.allocated_pages());
            }
        }
    }

    #[test]
    fn snapshot_keeps_its_bytes_when_the_original_changes() {
        let mut image = Image::default();
        image.write(b"before", 4_090);
        let snapshot = image.clone();
        image.write(b"after!", 4_090);
        image.flip_bit(4_090, 0);
        assert_eq!(&contents(&snapshot)[4_090..], b"before");
        assert_eq!(&contents(&image)[4_090..], b"`fter!");
    }
}
