//! The values of a tuple, in one buffer that is written once and shared by all who get the tuple.
//!
//! In memory (little-endian):
//! | count u16 | end u32, count times | the values, one after the other |
//!
//! `end` is where a value ends, counted from where the values begin. What bytes mean is a matter of the components.

use bytes::Bytes;

/// Values of a tuple, one for each field that its stream declares. A clone shares the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Values(Bytes);

impl Values {
    /// The given values in this order; copies them.
    ///
    /// # Panics
    /// If there are more than 65,535, or they have 4 GiB or more: a stream declares far fewer, and a tuple is refused before.
    #[must_use]
    pub fn new<V: AsRef<[u8]>>(values: &[V]) -> Self {
        let size: usize = values.iter().map(|value| value.as_ref().len()).sum();
        Self::written(values.len(), size, |place, bytes| bytes.extend_from_slice(values[place].as_ref()))
    }

    /// The values that `write` appends, called for each place in order; `size` is what it appends in all.
    ///
    /// # Panics
    /// As [`Values::new`].
    pub(crate) fn written(count: usize, size: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Self {
        let data = data_start(count);
        let mut bytes = Vec::with_capacity(data + size);
        bytes.extend_from_slice(&u16::try_from(count).expect("a stream declares fewer fields").to_le_bytes());
        bytes.resize(data, 0);
        for place in 0..count {
            write(place, &mut bytes);
            let end = u32::try_from(bytes.len() - data).expect("a tuple is refused before");
            let at = data_start(place);
            bytes[at..at + END_BYTES].copy_from_slice(&end.to_le_bytes());
        }
        Self(bytes.into())
    }

    /// The values in this layout; `None` if it is not one: ends that fall, or bytes that belong to no value.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<COUNT_BYTES>()?;
        let count = usize::from(u16::from_le_bytes(*count));
        let (ends, data) = rest.split_at_checked(count * END_BYTES)?;
        let mut last = 0;
        for end in ends.as_chunks::<END_BYTES>().0 {
            let end = u32::from_le_bytes(*end);
            if end < last {
                return None;
            }
            last = end;
        }
        (last as usize == data.len()).then_some(Self(bytes))
    }

    /// The layout.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(u16::from_le_bytes([self.0[0], self.0[1]]))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field.
    #[must_use]
    pub fn field(&self, place: usize) -> Option<&[u8]> {
        if place >= self.len() {
            return None;
        }
        let start = if place == 0 { 0 } else { self.end(place - 1) };
        let data = data_start(self.len());
        Some(&self.0[data + start..data + self.end(place)])
    }

    /// All values in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map_while(|place| self.field(place))
    }

    /// What they take in a queue, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn end(&self, place: usize) -> usize {
        let at = data_start(place);
        let bytes = self.0[at..at + END_BYTES].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

/// Where the values begin if there are `count`.
const fn data_start(count: usize) -> usize {
    COUNT_BYTES + END_BYTES * count
}

const COUNT_BYTES: usize = 2;
const END_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_and_shared_by_clones() {
        let values = Values::new(&["", "word", "7"]);
        assert_eq!(values.iter().collect::<Vec<_>>(), [&b""[..], b"word", b"7"]);
        assert_eq!((values.len(), values.field(3), values.size_bytes()), (3, None, 2 + 12 + 5));
        assert_eq!(values.clone().0.as_ptr(), values.0.as_ptr());
        assert_eq!(format!("{values:?}"), r#"["", "word", "7"]"#);
    }

    #[test]
    fn layout_is_read_back_and_one_that_does_not_agree_is_none() {
        let values = Values::new(&["ab", "", "c"]);
        assert_eq!(Values::from_bytes(Bytes::copy_from_slice(values.as_bytes())), Some(values.clone()));
        let changed = |at: usize, byte: u8| {
            let mut bytes = values.as_bytes().to_vec();
            bytes[at] = byte;
            Values::from_bytes(bytes.into())
        };
        assert_eq!(changed(2, 3), None, "the second value would end before it begins");
        assert_eq!(changed(10, 2), None, "a byte would belong to no value");
        assert_eq!(changed(0, 200), None, "more values than bytes");
        assert_eq!(Values::from_bytes(Bytes::new()), None);
    }

    #[test]
    fn tuple_without_fields_is_empty() {
        let values = Values::new::<&[u8]>(&[]);
        assert!(values.is_empty() && values.field(0).is_none());
    }
}
