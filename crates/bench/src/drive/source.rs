//! Where the requests of a task come from: made as a group says, or recorded in a capture.
//!
//! Two kinds and no trait: a fleet logs in with requests that are made before it plays recorded ones on the same connections,
//! whose protocol would have to change its type in between.

use clock::Nanos;

use super::load::Load;
use super::play::{Play, UNDER_WAY_MAX};
use super::work::{Op, Random};
use connection::Protocol;

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each group of a phase, and it is looked at for each request"
)]
pub(super) enum Source {
    Load(Load),
    Play(Play),
}

/// What a connection may send now.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    /// The request of this number, which was due then.
    Send(u64, Nanos),
    /// Nothing until a reply comes, or the pacer says so.
    Wait,
    /// Nothing any more.
    Done,
}

impl Source {
    /// Connections, most requests under way on each, and what they speak.
    pub(super) fn shape(&self) -> (usize, usize, Protocol) {
        match self {
            Self::Load(load) => (load.group.connections, load.group.depth, load.encoder.protocol),
            Self::Play(play) => (play.script.connections(), UNDER_WAY_MAX, Protocol::Resp),
        }
    }

    /// What connection `number` does next, which has sent `sent` requests; it is idle if all of them are answered.
    pub(super) fn turn(&self, number: u64, sent: u64, is_idle: bool, now: Nanos) -> Turn {
        match self {
            Self::Load(load) => load.turn(number, sent, now),
            Self::Play(play) => play.turn(number, sent, is_idle, now),
        }
    }

    /// Appends request `index`, sent by connection `number`.
    pub(super) fn encode(&self, out: &mut Vec<u8>, index: u64, number: u64, random: &mut Random) -> Op {
        match self {
            Self::Load(load) => load.encoder.encode(out, index, number, random),
            Self::Play(play) => Op::Recorded(play.encode(out, index, number)),
        }
    }

    /// What connection `number` sends after the reply to an [`Op::Entry`], whose bytes these are.
    pub(super) fn follow_up(&self, reply: &[u8], number: u64) -> Option<Vec<u8>> {
        match self {
            Self::Load(load) => load.encoder.follow_up(reply, number),
            Self::Play(_) => None,
        }
    }

    /// Whether `value` is what key `number` was given, as far as that is known.
    pub(super) fn is_value_of(&self, number: u64, value: &[u8]) -> bool {
        match self {
            Self::Load(load) => load.encoder.is_value_of(number, value),
            Self::Play(_) => true,
        }
    }

    /// When requests are due that do not wait for replies, and on which connections, in order.
    pub(super) fn plan(&self) -> Option<Box<dyn Iterator<Item = (Nanos, usize)> + Send + '_>> {
        match self {
            Self::Load(load) => Some(Box::new(load.plan()?)),
            Self::Play(play) => Some(Box::new(play.plan()?)),
        }
    }
}
