//! Roots, leaves and other nodes as they are: a base and the changes on it, read by their addresses and folded.
//!
//! One of them is in memory at a time. Each costs a read of its base and one of each change that lies on it.

use collections::Deadline;
use journal::{Keyspace, LogAddress, ReadError, RecordHeader, Seq};

use super::leaves::Collected;
use crate::log::fold::fold;
use crate::record::{self, Changes, Payload};
use collections::tree::NODE;

/// The newest base of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Counts keys; changes name it.
    pub(crate) key: u32,
    pub(crate) seq: Seq,
    pub(crate) address: LogAddress,
}

/// A change of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// [`Record::key`].
    pub(crate) key: u32,
    pub(crate) seq: Seq,
    pub(crate) address: LogAddress,
}

/// A leaf, or another node, that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// Its keyspace.
    pub(crate) leaves: Keyspace,
    pub(crate) object: u64,
    /// As in its key: nodes of trees have [`NODE`].
    pub(crate) number: u32,
    pub(crate) record: Record,
}

impl Node {
    fn place(&self) -> (Keyspace, u64, u32) {
        (self.leaves, self.object, self.number)
    }
}

/// All leaves and nodes of collections, and all changes.
pub(crate) struct Nodes {
    /// By keyspace, object and number.
    nodes: Vec<Node>,
    /// By key and seq; of copies one.
    changes: Vec<Change>,
}

impl Nodes {
    /// These, in any order.
    pub(super) fn new(mut nodes: Vec<Node>, mut changes: Vec<Change>) -> Self {
        nodes.sort_unstable_by_key(Node::place);
        changes.sort_unstable_by_key(|change| (change.key, change.seq, change.address));
        changes.dedup_by_key(|change| (change.key, change.seq));
        Self { nodes, changes }
    }

    /// How many leaves and nodes there are.
    pub(super) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Those of an object, by number: leaves that are found by hash, then nodes of the tree.
    pub(crate) fn of(&self, leaves: Keyspace, object: u64) -> (&[Node], &[Node]) {
        let before = |number| move |node: &Node| node.place() < (leaves, object, number);
        let from = self.nodes.partition_point(before(0));
        let nodes = &self.nodes[from..];
        let of = |node: &Node| (node.leaves, node.object) == (leaves, object);
        let nodes = &nodes[..nodes.partition_point(of)];
        nodes.split_at(nodes.partition_point(before(NODE)))
    }

    fn changes_of(&self, record: &Record) -> &[Change] {
        let from =
            self.changes.partition_point(|change| (change.key, change.seq) <= (record.key, record.seq));
        let changes = &self.changes[from..];
        &changes[..changes.partition_point(|change| change.key == record.key)]
    }
}

/// Why a key is not known, or not with all of its changes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeFault {
    #[error("{0}")]
    Unread(ReadError),
    #[error("another record is in the place of its own")]
    Another,
    #[error("a change of it cannot be read: {0}")]
    ChangeUnread(ReadError),
    #[error("a change of it is of a state that is not there")]
    ChangeOfAnother,
    #[error("a change of it does not fit")]
    ChangeMisfit,
}

/// What a key is.
#[derive(Debug)]
pub(crate) struct State {
    /// Of its base, without SHARED.
    pub(crate) kind: u8,
    payload: Vec<u8>,
    /// The last effect that is in it.
    pub(crate) seq: Seq,
    /// As in records; 0: none.
    pub(crate) expiry: Option<Deadline>,
    /// Why changes that follow are left out.
    pub(crate) cut: Option<NodeFault>,
}

impl State {
    /// A base without changes, whose payload fits its kind.
    pub(crate) fn whole(kind: u8, payload: Vec<u8>, seq: Seq, expiry: Option<Deadline>) -> Self {
        Self { kind, payload, seq, expiry, cut: None }
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        match record::decode(self.kind, &self.payload) {
            Some(Payload::Whole { key, value }) => (key, value),
            _ => unreachable!("it was decoded when it was read"),
        }
    }

    /// The key.
    pub(crate) fn key(&self) -> &[u8] {
        self.parts().0
    }

    /// The value.
    pub(crate) fn value(&self) -> &[u8] {
        self.parts().1
    }
}

/// Reads the record at an address, of about so many bytes, into a buffer.
type Read<'a> = dyn FnMut(LogAddress, usize, &mut Vec<u8>) -> Result<RecordHeader, ReadError> + 'a;

/// Reads what keys are.
pub(crate) struct Reader<'a> {
    read: Box<Read<'a>>,
}

impl<'a> Reader<'a> {
    /// One of the folder whose records `read` reads.
    pub(crate) fn new(
        read: impl FnMut(LogAddress, usize, &mut Vec<u8>) -> Result<RecordHeader, ReadError> + 'a,
    ) -> Self {
        Self { read: Box::new(read) }
    }

    /// What the key of `record` is.
    ///
    /// # Errors
    /// Why its base cannot be read.
    pub(crate) fn state(&mut self, nodes: &Nodes, record: &Record) -> Result<State, NodeFault> {
        let mut payload = Vec::new();
        let header = (self.read)(record.address, PAYLOAD_BYTES, &mut payload);
        let header = header.map_err(NodeFault::Unread)?;
        let kind = header.kind & !record::SHARED;
        if header.seq != record.seq || !matches!(record::decode(kind, &payload), Some(Payload::Whole { .. }))
        {
            return Err(NodeFault::Another);
        }
        let mut state = State::whole(kind, payload, header.seq, Deadline::of(header.expiry_ms));
        let mut bodies = Vec::new();
        for change in nodes.changes_of(record) {
            state.cut = self.take_change(change, &mut state, &mut bodies).err();
            if state.cut.is_some() {
                break;
            }
        }
        state.fold(bodies);
        Ok(state)
    }

    /// Reads a change that follows `state` and the changes in `bodies`.
    fn take_change(
        &mut self,
        change: &Change,
        state: &mut State,
        bodies: &mut Vec<(u8, Vec<u8>)>,
    ) -> Result<(), NodeFault> {
        let mut payload = Vec::new();
        let header = (self.read)(change.address, PAYLOAD_BYTES, &mut payload);
        let header = header.map_err(NodeFault::ChangeUnread)?;
        if header.seq != change.seq || state.since(header.kind, &payload) > state.seq {
            return Err(NodeFault::ChangeOfAnother);
        }
        let is_expiry = record::changes(header.kind) == Some(Changes::Expiry);
        let expiry = Deadline::of(header.expiry_ms);
        if is_expiry || expiry.is_some() {
            state.expiry = expiry;
        }
        if !is_expiry {
            bodies.push((header.kind, payload));
        }
        state.seq = header.seq;
        Ok(())
    }
}

impl State {
    /// What the change in a record may lie on, if that is one of this key.
    fn since(&self, kind: u8, payload: &[u8]) -> Seq {
        let Some(Payload::Deltas(parts)) = record::decode(kind, payload) else {
            return record::since(kind, payload);
        };
        let part = parts.of(self.key(), record::is_root(self.kind));
        part.map_or(Seq::MAX, |part| part.since())
    }

    /// Lets these changes, oldest first, become part of the value.
    fn fold(&mut self, changes: Vec<(u8, Vec<u8>)>) {
        if changes.is_empty() {
            return;
        }
        if let Some(folded) = fold(&self.payload, self.kind, &changes) {
            self.payload = folded;
            return;
        }
        self.cut = Some(NodeFault::ChangeMisfit);
        for change in changes {
            let Some(folded) = fold(&self.payload, self.kind, &[change]) else { return };
            self.payload = folded;
        }
    }
}

/// What is there, and its reader.
pub(crate) struct Found<'a> {
    pub(crate) collected: Collected,
    pub(crate) reader: Reader<'a>,
}

impl Found<'_> {
    /// What the key of `record` is.
    ///
    /// # Errors
    /// As [`Reader::state`].
    pub(crate) fn state(&mut self, record: &Record) -> Result<State, NodeFault> {
        self.reader.state(&self.collected.nodes, record)
    }
}

/// About how long the payload of a node is.
const PAYLOAD_BYTES: usize = 4 << 10;
