//! When fields of a hash end: what the front of a packed map says of it. Deadlines are as records have them ([`Deadline::raw`](crate::Deadline::raw)).

use crate::Moment;

/// The key's own deadline, and the earliest ones of fields; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Of the key itself.
    pub own: u64,
    /// By the wall clock.
    pub wall: u64,
    /// By the server's.
    pub server: u64,
}

impl Times {
    pub(super) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fields, rest) = bytes.split_first_chunk::<TIMES_BYTES>()?;
        let (fields, _) = fields.as_chunks::<8>();
        let [own, wall, server] = [fields[0], fields[1], fields[2]].map(u64::from_le_bytes);
        Some((Self { own, wall, server }, rest))
    }

    pub(super) fn bytes(self) -> [u8; TIMES_BYTES] {
        let mut bytes = [0; TIMES_BYTES];
        for (field, number) in bytes.chunks_exact_mut(8).zip([self.own, self.wall, self.server]) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// With `deadline` of one more field.
    pub(super) fn with(self, deadline: u64) -> Self {
        let earlier = |known: u64| if known == 0 { deadline } else { known.min(deadline) };
        match deadline {
            0 => self,
            wall if wall < Moment::SERVER => Self { wall: earlier(self.wall), ..self },
            _ => Self { server: earlier(self.server), ..self },
        }
    }
}

/// Bytes of [`Times`] at the front.
pub(super) const TIMES_BYTES: usize = 24;
