//! The arguments of one request: ranges into the bytes that were received.
//!
//! Invariants
//!   1. Every range lies within the frame, or within `own` when the bytes are our own.
//!   2. Parsing the next request of a connection allocates nothing once the vectors are warm.
//!
//! Bytes are our own in two cases: an inline request (its quotes are undone) and a request that must outlive
//! the input buffer ([`Args::copied`], for example one that MULTI has queued).

/// The arguments of one request; reused for the next one.
#[derive(Clone, Debug, Default)]
pub struct Args {
    pub(crate) ranges: Vec<Range>,
    own: Vec<u8>,
    is_own: bool,
}

impl Args {
    /// No arguments, no memory.
    pub const fn new() -> Self {
        Args { ranges: Vec::new(), own: Vec::new(), is_own: false }
    }

    /// A copy of `view` that owns its bytes: give its `view` an empty input.
    pub fn copied(view: ArgsView<'_>) -> Self {
        let mut args = Args::new();
        args.ranges.reserve_exact(view.len());
        args.own.reserve_exact(view.iter().map(<[u8]>::len).sum());
        for arg in view.iter() {
            args.push_own(arg);
        }
        args.is_own = true;
        args
    }

    /// As [`Args::copied`], but copies all bytes of the request at once, its line ends too: for very many arguments, which one
    /// by one would take too long.
    pub fn copied_whole(view: ArgsView<'_>) -> Self {
        let end = view.ranges.iter().map(|range| range.end).max().unwrap_or(0);
        Args { ranges: view.ranges.to_vec(), own: view.bytes[..end as usize].to_vec(), is_own: true }
    }

    /// Arguments made from slices, for callers that have no received bytes.
    pub fn from_slices(slices: &[&[u8]]) -> Self {
        let mut args = Args::new();
        for arg in slices {
            args.push_own(arg);
        }
        args.is_own = true;
        args
    }

    /// Bytes that arguments which own theirs have at most.
    pub const OWN_BYTES_MAX: usize = FRAME_BYTES_MAX;

    /// Adds an argument, of arguments that own their bytes: give their `view` an empty input.
    ///
    /// # Panics
    /// Beyond [`Args::OWN_BYTES_MAX`] together.
    pub fn push(&mut self, arg: &[u8]) {
        self.is_own = true;
        self.push_own(arg);
    }

    /// The arguments, in `input`: the same bytes, from the same first byte, that were parsed.
    ///
    /// # Panics
    /// Later, in [`ArgsView::get`], if `input` is shorter than the parsed request.
    #[inline]
    pub fn view<'a>(&'a self, input: &'a [u8]) -> ArgsView<'a> {
        ArgsView { bytes: if self.is_own { &self.own } else { input }, ranges: &self.ranges }
    }

    /// How many arguments there are, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the request was an empty array or a blank line: nothing to execute, nothing to answer.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// A copy without room for more, if the bytes are those of the input; `None` for an inline request, whose bytes are its own.
    pub fn of_input(&self) -> Option<Self> {
        (!self.is_own).then(|| Args { ranges: self.ranges.clone(), own: Vec::new(), is_own: false })
    }

    /// Bytes of memory held, for accounting.
    pub fn capacity_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>() + self.own.capacity()
    }

    /// Forgets the arguments and keeps the memory, unless one huge request blew it up.
    #[inline]
    pub fn clear(&mut self) {
        self.ranges.clear();
        if self.ranges.capacity() > KEPT_RANGES_MAX {
            self.ranges = Vec::new();
        }
        if self.is_own {
            self.is_own = false;
            self.own.clear();
            self.own.shrink_to(KEPT_OWN_BYTES_MAX);
        }
    }

    /// Opens an argument whose bytes are appended to the returned buffer.
    pub(crate) fn own_bytes(&mut self) -> &mut Vec<u8> {
        self.is_own = true;
        &mut self.own
    }

    /// Ends an argument that started at `start` of the own bytes.
    pub(crate) fn end_own(&mut self, start: usize) {
        self.ranges.push(Range::new(start, self.own.len()));
    }

    fn push_own(&mut self, arg: &[u8]) {
        let start = self.own.len();
        // positions have 32 bits: beyond that they would name other bytes
        assert!(
            arg.len() <= Self::OWN_BYTES_MAX - start,
            "own arguments of more than {} B",
            Self::OWN_BYTES_MAX
        );
        self.own.extend_from_slice(arg);
        self.end_own(start);
    }
}

/// The arguments of a request, readable.
#[derive(Clone, Copy, Debug)]
pub struct ArgsView<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range],
}

impl<'a> ArgsView<'a> {
    /// How many arguments there are, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Argument `index`; 0 is the command's name.
    ///
    /// # Panics
    /// If there is no such argument: the caller checks the arity first.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.ranges[index].of(self.bytes)
    }

    /// Argument `index`, if there is one.
    #[inline]
    pub fn try_get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| range.of(self.bytes))
    }

    /// All arguments, the command's name first.
    #[inline]
    pub fn iter(&self) -> ArgsIter<'a> {
        ArgsIter { bytes: self.bytes, ranges: self.ranges.iter() }
    }

    /// The arguments from `first` on.
    ///
    /// # Panics
    /// If there are fewer than `first` arguments.
    #[inline]
    pub fn from(&self, first: usize) -> ArgsView<'a> {
        ArgsView { bytes: self.bytes, ranges: &self.ranges[first..] }
    }
}

impl<'a> IntoIterator for ArgsView<'a> {
    type Item = &'a [u8];
    type IntoIter = ArgsIter<'a>;

    fn into_iter(self) -> ArgsIter<'a> {
        self.iter()
    }
}

/// Iterator over the arguments of an [`ArgsView`].
#[derive(Clone, Debug)]
pub struct ArgsIter<'a> {
    bytes: &'a [u8],
    ranges: std::slice::Iter<'a, Range>,
}

impl<'a> Iterator for ArgsIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.ranges.next().map(|range| range.of(self.bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranges.size_hint()
    }
}

impl DoubleEndedIterator for ArgsIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.ranges.next_back().map(|range| range.of(self.bytes))
    }
}

impl ExactSizeIterator for ArgsIter<'_> {}

/// Start and end of an argument. 32 bits each: a request is at most 2 GiB (`FRAME_BYTES_MAX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    start: u32,
    end: u32,
}

impl Range {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a frame is below FRAME_BYTES_MAX, asserted beside it"
    )]
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= u32::MAX as usize, "range {start}..{end} leaves the frame");
        Range { start: start as u32, end: end as u32 }
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// No request is larger, whatever the limits say: 2 GiB, so that 32 bits hold every position with room to spare.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 31;

/// Room for ranges that is kept from request to request (8 KiB).
const KEPT_RANGES_MAX: usize = 1024;

/// Room for own bytes that is kept from request to request.
const KEPT_OWN_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_outlives_the_input() {
        let original = Args::from_slices(&[b"SET", b"", b"v\r\n"]);
        let copy = Args::copied(original.view(&[]));
        let whole = Args::copied_whole(original.view(&[]));
        drop(original);
        for copy in [&copy, &whole] {
            assert_eq!(copy.view(&[]).iter().collect::<Vec<_>>(), [b"SET".as_slice(), b"", b"v\r\n"]);
        }
        let view = copy.view(&[]);
        assert_eq!(view.from(2).get(0), b"v\r\n");
        assert_eq!(view.try_get(3), None);
    }

    #[test]
    fn memory_of_a_huge_request_is_given_back() {
        let mut args = Args::new();
        args.ranges.extend((0..100_000).map(|_| Range::new(0, 0)));
        args.clear();
        assert!(args.capacity_bytes() <= KEPT_RANGES_MAX * size_of::<Range>());
    }
}
