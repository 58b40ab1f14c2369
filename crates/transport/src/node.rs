//! What the transports have in common: who this node is, its links, and who takes what comes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::link::Link;
use crate::{
    BindError, Channel, Incarnation, LinkStatus, NodeId, Receive, SendError, Sent, SettingError, Settings,
};

/// A node's links.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) settings: Arc<Settings>,
    links: RwLock<HashMap<NodeId, Arc<Link>>>,
    receiver: OnceLock<Arc<dyn Receive>>,
}

impl Node {
    /// A node without links.
    ///
    /// # Errors
    /// A setting is out of its bounds.
    pub(crate) fn new(
        id: NodeId,
        incarnation: Incarnation,
        settings: Settings,
    ) -> Result<Arc<Self>, SettingError> {
        settings.check()?;
        Ok(Arc::new(Self {
            id,
            incarnation,
            settings: Arc::new(settings),
            links: RwLock::default(),
            receiver: OnceLock::new(),
        }))
    }

    /// Sets who takes what comes; the first stays.
    pub(crate) fn set_receiver(&self, receiver: Arc<dyn Receive>) -> bool {
        self.receiver.set(receiver).is_ok()
    }

    /// Who takes what comes.
    pub(crate) fn receiver(&self) -> &dyn Receive {
        self.receiver.get().map_or(&Nobody, |receiver| &**receiver)
    }

    /// The link with `peer`, made if there was none.
    ///
    /// # Errors
    /// It would be a link with itself.
    pub(crate) fn declare(&self, peer: NodeId) -> Result<Arc<Link>, BindError> {
        if peer == self.id {
            return Err(BindError::Itself(peer));
        }
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let link = links.entry(peer).or_insert_with(|| Arc::new(Link::new(peer, &self.settings)));
        Ok(Arc::clone(link))
    }

    /// The link with `peer`, if it was declared.
    pub(crate) fn link(&self, peer: NodeId) -> Option<Arc<Link>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).get(&peer).cloned()
    }

    /// All links.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Closes all links: none takes messages any more.
    pub(crate) fn close(&self) {
        self.links().iter().for_each(|link| link.close());
    }

    /// The sender to `peer`, if it was declared.
    pub(crate) fn sender(&self, peer: NodeId) -> Option<Sender> {
        self.link(peer).map(Sender::new)
    }

    /// Whether this node dials `peer`.
    pub(crate) fn dials(&self, peer: NodeId) -> bool {
        self.id < peer
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("links", &self.links().len())
            .finish_non_exhaustive()
    }
}

/// Takes nothing: before [`crate::Transport::receive`].
struct Nobody;

impl Receive for Nobody {
    fn on_message(&self, _message: &crate::Message<'_>) {}
}

/// Sends to one node without looking it up for each message. Clones send on the same link.
#[derive(Clone, Debug)]
pub struct Sender {
    link: Arc<Link>,
}

impl Sender {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// As [`crate::Transport::send`], to its node.
    ///
    /// # Errors
    /// Why the message was not taken.
    pub fn send(&self, channel: Channel, message: &[u8]) -> Result<Sent, SendError> {
        self.link.send(channel, message)
    }

    /// Who it sends to.
    #[must_use]
    pub fn peer(&self) -> NodeId {
        self.link.peer
    }

    /// What the link is and did.
    #[must_use]
    pub fn status(&self) -> LinkStatus {
        self.link.status()
    }
}
