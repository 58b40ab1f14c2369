//! A parcel that a component has not finished: which tuples, and what to report for each root.

use crate::anchor::{Ancestor, Anchor, Failure, RootId};
use crate::ids::StreamId;
use crate::parcel::Item;

/// An open parcel.
#[derive(Debug)]
pub(super) struct Open {
    anchors: Vec<Anchor>,
    /// New tokens, for each anchor: their XOR. Empty until the parcel splits.
    new_tokens: Vec<u64>,
    tuples: Vec<Given>,
    live: usize,
    /// Parcels that are being made of this one.
    pub(super) drafts: usize,
    /// Tuples that failed.
    failed: Vec<(u32, Failure)>,
    has_split: bool,
    has_passed: bool,
}

/// A tuple of the parcel.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// Its place in the root's batch.
    origin: u32,
    stream: StreamId,
    /// It is not finished.
    is_live: bool,
}

impl Open {
    pub(super) fn new(anchors: Vec<Anchor>, items: &[Item]) -> Self {
        Self {
            anchors,
            new_tokens: Vec::new(),
            tuples: items.iter().map(Given::new).collect(),
            live: items.len(),
            drafts: 0,
            failed: Vec::new(),
            has_split: false,
            has_passed: false,
        }
    }

    pub(super) fn anchors(&self) -> &[Anchor] {
        &self.anchors
    }

    /// Tuples that are not finished.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn is_live(&self, item: u32) -> bool {
        self.tuples.get(item as usize).is_some_and(|tuple| tuple.is_live)
    }

    pub(super) fn live_items(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.tuples).filter(|(_, tuple)| tuple.is_live).map(|(item, _)| item)
    }

    pub(super) fn origin(&self, item: u32) -> u32 {
        self.tuples[item as usize].origin
    }

    /// The tuples of spouts that a tuple comes from.
    pub(super) fn ancestors(&self, item: u32) -> impl Iterator<Item = Ancestor> {
        let own = if self.anchors.len() == 1 { Some(self.origin(item)) } else { None };
        let of = move |anchor: &Anchor| Ancestor { root: anchor.root, origin: own.unwrap_or(anchor.origin) };
        self.anchors.iter().map(of)
    }

    /// A tuple is finished; its stream.
    pub(super) fn finish(&mut self, item: u32) -> StreamId {
        let tuple = &mut self.tuples[item as usize];
        assert!(std::mem::take(&mut tuple.is_live), "finished before");
        self.live -= 1;
        tuple.stream
    }

    /// A tuple has failed; its stream.
    pub(super) fn fail(&mut self, item: u32, failure: Failure) -> StreamId {
        self.failed.push((item, failure));
        self.finish(item)
    }

    pub(super) fn is_done(&self) -> bool {
        self.live == 0
    }

    /// Whether one new parcel can take over the tokens: all is done, it is the only one, and nothing else is to be reported. A failure must be in the report with
    /// the token: alone, it could come after the last token.
    pub(super) fn can_pass(&self) -> bool {
        self.drafts == 1 && self.is_done() && !self.has_split && self.failed.is_empty()
    }

    /// Gives the tokens to a new parcel.
    pub(super) fn pass(&mut self) -> Vec<Anchor> {
        assert!(self.can_pass() && !self.has_passed, "tokens go to one parcel");
        self.has_passed = true;
        std::mem::take(&mut self.anchors)
    }

    /// Appends anchors with new tokens for a parcel that was made from this one: from its tuple `item`, if that matters.
    pub(super) fn split(
        &mut self,
        item: Option<u32>,
        mut new_token: impl FnMut() -> u64,
        anchors: &mut Vec<Anchor>,
    ) {
        self.has_split = true;
        self.new_tokens.resize(self.anchors.len(), 0);
        let origin_of = |anchor: &Anchor| match item {
            Some(item) if self.anchors.len() == 1 => self.tuples[item as usize].origin,
            _ => anchor.origin,
        };
        for (anchor, new_tokens) in self.anchors.iter().zip(&mut self.new_tokens) {
            let token = new_token();
            *new_tokens ^= token;
            anchors.push(Anchor { root: anchor.root, token, origin: origin_of(anchor) });
        }
    }

    /// What to report for each root; nothing if the tokens went on.
    pub(super) fn reports(self) -> impl Iterator<Item = (RootId, u64, Vec<Failure>)> {
        assert!(self.is_done(), "a parcel is reported when it is done");
        let Self { anchors, new_tokens, tuples, failed, .. } = self;
        let is_of_one = anchors.len() == 1;
        let new_tokens = new_tokens.into_iter().chain(std::iter::repeat(0));
        anchors.into_iter().zip(new_tokens).map(move |(anchor, new)| {
            let origin = |item: &u32| if is_of_one { tuples[*item as usize].origin } else { anchor.origin };
            let failures = failed.iter();
            let failures =
                failures.map(|(item, failure)| Failure { origin: origin(item), ..failure.clone() });
            (anchor.root, anchor.token ^ new, failures.collect())
        })
    }
}

impl Given {
    fn new(item: &Item) -> Self {
        Self { origin: item.origin, stream: item.stream, is_live: true }
    }
}
