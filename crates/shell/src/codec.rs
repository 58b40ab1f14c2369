//! How messages are written.
//!
//! | codec | a message | values that the other one lacks |
//! |---|---|---|
//! | JSON | an object or a list, then a line `end` | |
//! | MessagePack | a map or an array, which says where it ends | bytes, NaN, infinities |
//!
//! Both have the same keys. Who is a child knows the codec by the first byte that it reads.
//!
//! Source: MessagePack is framed as `pystorm` does it (`serializer="msgpack"`), and as the serializers for Storm do that it speaks to.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A way to write messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Text, which every component speaks.
    #[default]
    Json,
    /// Less to parse, and bytes stay what they are.
    MessagePack,
}

impl Codec {
    /// The codec of messages whose first byte is `first`: JSON is no MessagePack, and MessagePack's maps and arrays are no text.
    #[must_use]
    pub fn of_first(first: u8) -> Self {
        if is_container(first) { Self::MessagePack } else { Self::Json }
    }

    /// Appends a message with its end.
    pub(crate) fn append<T: Serialize + ?Sized>(self, message: &T, out: &mut Vec<u8>) {
        match self {
            Self::Json => {
                serde_json::to_writer(&mut *out, message)
                    .expect("text, numbers and maps with text as keys are JSON");
                out.extend_from_slice(b"\nend\n");
            }
            Self::MessagePack => {
                let mut serializer = rmp_serde::Serializer::new(out).with_struct_map();
                message.serialize(&mut serializer).expect("maps and lists with a length are MessagePack");
            }
        }
    }

    /// What the bytes of a message say, without its end.
    ///
    /// # Errors
    /// It is none, or another one.
    pub(crate) fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, String> {
        match self {
            Self::Json => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
            Self::MessagePack => {
                let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
                deserializer.set_max_depth(DEPTH_MAX);
                T::deserialize(&mut deserializer).map_err(|error| error.to_string())
            }
        }
    }

    /// Whether a message is a list, which has the tasks that got a tuple.
    pub(crate) fn is_list(self, message: &[u8]) -> bool {
        match (self, message.first()) {
            (Self::Json, first) => first == Some(&b'['),
            (Self::MessagePack, first) => {
                first.is_some_and(|first| matches!(first, 0x90..=0x9F | 0xDC | 0xDD))
            }
        }
    }
}

/// Whether a value of MessagePack with this first byte is a map or an array.
pub(crate) fn is_container(first: u8) -> bool {
    matches!(first, 0x80..=0x9F | 0xDC..=0xDF)
}

/// Maps and lists within each other; JSON's reader has the same bound.
const DEPTH_MAX: usize = 128;
