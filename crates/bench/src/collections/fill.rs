//! Fills collections over the protocol: many elements with each command, many commands with each write.

use crate::Failure;
use crate::client::{Client, Requests, value};

/// A type of collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hash,
    Set,
    SortedSet,
    List,
    Stream,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Hash, Self::Set, Self::SortedSet, Self::List, Self::Stream];

    /// What it is called, in ids and keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::List => "list",
            Self::Stream => "stream",
        }
    }

    /// Puts elements `numbers` into `key`; values of fields, entries and elements of lists have `value_bytes`.
    ///
    /// # Errors
    /// A reply is an error, or the connection broke.
    pub(super) fn fill(
        self,
        client: &mut Client,
        key: &str,
        mut numbers: impl Iterator<Item = u64>,
        value_bytes: usize,
    ) -> Result<(), Failure> {
        loop {
            let chunk: Vec<u64> = numbers.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            let mut requests = Requests::default();
            for part in chunk.chunks(ELEMENTS_PER_COMMAND) {
                self.encode(&mut requests, key, part, value_bytes);
            }
            requests.ask(client)?;
        }
    }

    fn encode(self, requests: &mut Requests, key: &str, numbers: &[u64], value_bytes: usize) {
        let command = match self {
            Self::Hash => "HSET",
            Self::Set => "SADD",
            Self::SortedSet => "ZADD",
            Self::List => "RPUSH",
            Self::Stream => {
                for number in numbers {
                    let value = value(*number, value_bytes);
                    requests.add(&[b"XADD", key.as_bytes(), b"*", b"field", &value]);
                }
                return;
            }
        };
        let mut arguments = vec![command.as_bytes().to_vec(), key.as_bytes().to_vec()];
        for number in numbers {
            match self {
                Self::Hash => arguments.extend([member(*number).into_bytes(), value(*number, value_bytes)]),
                Self::SortedSet => {
                    arguments.extend([score(*number).to_string().into_bytes(), member(*number).into_bytes()]);
                }
                Self::List => arguments.push(element(*number, value_bytes)),
                Self::Set | Self::Stream => arguments.push(member(*number).into_bytes()),
            }
        }
        requests.add(&arguments);
    }
}

/// Field or member `number`: 20 bytes.
pub(super) fn member(number: u64) -> String {
    format!("element:{number:012}")
}

/// Element `number` of a list: its member, and more up to `bytes`.
fn element(number: u64, bytes: usize) -> Vec<u8> {
    let mut element = member(number).into_bytes();
    let more = bytes.saturating_sub(element.len());
    element.extend(value(number, more));
    element
}

/// The score of member `number`: far from those of its neighbours.
fn score(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

const ELEMENTS_PER_COMMAND: usize = 100;
/// Elements of one write.
const CHUNK: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_sends_each_element_once() {
        for kind in Kind::ALL {
            let mut requests = Requests::default();
            kind.encode(&mut requests, "key", &[7, 8, 9], 30);
            let commands = if kind == Kind::Stream { 3 } else { 1 };
            assert_eq!(requests.count, commands, "{kind:?}");
        }
    }

    #[test]
    fn element_of_a_list_begins_with_its_member() {
        assert_eq!(element(7, 5), member(7).into_bytes());
        assert!(element(7, 50).starts_with(member(7).as_bytes()) && element(7, 50).len() == 50);
    }
}
