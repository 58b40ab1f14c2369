//! Two links and their connections, step by step: what the simulation meets seldom or never.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clock::Nanos;
use proptest::prelude::*;

use super::Doorbell;
use super::sending::{Sending, Terms};
use crate::node::Node;
use crate::session::Session;
use crate::wire::{Frame, Header, Kind, append_frame};
use crate::{
    Channel, Incarnation, LinkError, LinkState, Message, NodeId, Receive, SendError, Sent, Settings,
};

const NOW: Nanos = Nanos(1_000_000_000);
const A: Channel = Channel::reliable(0);

#[derive(Default)]
struct Bell {
    rings: AtomicUsize,
    hang_ups: AtomicUsize,
}

impl Doorbell for Bell {
    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
    }

    fn hang_up(&self) {
        self.hang_ups.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Came(Mutex<Vec<Vec<u8>>>);

impl Receive for Came {
    fn on_message(&self, message: &Message<'_>) {
        self.0.lock().unwrap().push(message.bytes.to_vec());
    }
}

fn settings() -> Settings {
    Settings {
        buffer_size_bytes: 1 << 10,
        message_size_bytes_max: 3 << 10,
        channel_window_bytes: 4 << 10,
        link_window_bytes: 6 << 10,
        unacked_bytes_max: 12 << 10,
        ..Settings::default()
    }
}

/// Two nodes, 1 and 2, and what came to 2.
struct Pair {
    one: Arc<Node>,
    two: Arc<Node>,
    came: Arc<Came>,
}

/// A connection between them: its two sessions and their bells.
struct Wire {
    one: Session,
    two: Session,
    bells: [Arc<Bell>; 2],
}

impl Pair {
    fn new() -> Self {
        let one = Node::new(NodeId(1), Incarnation::new(11), settings()).unwrap();
        let two = Node::new(NodeId(2), Incarnation::new(22), settings()).unwrap();
        one.declare(NodeId(2)).unwrap();
        two.declare(NodeId(1)).unwrap();
        let came = Arc::new(Came::default());
        two.set_receiver(Arc::clone(&came) as Arc<dyn Receive>);
        Self { one, two, came }
    }

    fn dial(&self) -> Wire {
        let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
        let one = Session::dialed(Arc::clone(&self.one), bells[0].clone(), NOW, NodeId(2));
        let two = Session::accepted(Arc::clone(&self.two), bells[1].clone(), NOW);
        Wire { one, two, bells }
    }

    /// A connection on which both have said hello.
    fn connect(&self) -> Wire {
        let mut wire = self.dial();
        wire.exchange(NOW);
        wire
    }

    fn send(&self, channel: Channel, message: &[u8]) -> Result<Sent, SendError> {
        self.one.sender(NodeId(2)).unwrap().send(channel, message)
    }

    fn came(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.came.0.lock().unwrap())
    }
}

impl Wire {
    fn written(session: &mut Session, now: Nanos) -> Vec<u8> {
        let mut bytes = Vec::new();
        while session.write(now, 1 << 20, &mut bytes).unwrap() {}
        bytes
    }

    /// Has each take what the other has to say, until both are silent.
    fn exchange(&mut self, now: Nanos) {
        loop {
            let (there, back) = (Self::written(&mut self.one, now), Self::written(&mut self.two, now));
            if there.is_empty() && back.is_empty() {
                return;
            }
            assert_eq!(self.two.on_bytes(&there, now).unwrap().consumed_bytes, there.len());
            assert_eq!(self.one.on_bytes(&back, now).unwrap().consumed_bytes, back.len());
        }
    }
}

fn reliable(sequence: u64, ack: u64, frames: &[Frame<'_>]) -> Vec<u8> {
    let (mut payload, mut bytes) = (Vec::new(), Vec::new());
    frames.iter().for_each(|frame| append_frame(frame, &mut payload));
    crate::session::Sink::own(
        &mut bytes,
        &Header { kind: Kind::Reliable, sequence, ack, credits: 0 },
        &payload,
    );
    bytes
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { channel: 0, goes_on: false, bytes }
}

#[test]
fn chunk_that_comes_twice_is_handed_out_once_and_a_missing_one_ends_the_connection() {
    let pair = Pair::new();
    let mut wire = pair.connect();
    let first = reliable(1, 0, &[frame(b"first")]);
    wire.two.on_bytes(&[&first[..], &first].concat(), NOW).unwrap();
    assert_eq!(pair.came(), [b"first"]);
    assert_eq!(pair.two.sender(NodeId(1)).unwrap().status().duplicate_chunks, 1);
    let third = reliable(3, 0, &[frame(b"third")]);
    assert_eq!(wire.two.on_bytes(&third, NOW), Err(LinkError::Protocol("a chunk is missing")));
    assert_eq!(pair.came(), [b""; 0]);
}

#[test]
fn peer_that_breaks_the_protocol_is_refused_for_each_way_to_do_so() {
    let goes_on = |bytes| Frame { goes_on: true, ..frame(bytes) };
    let refused: [(Vec<u8>, &str); 6] = [
        (reliable(1, 1, &[]), "it acknowledges what it was not sent"),
        (reliable(1, 0, &[frame(&[0; 1_000]); 5]), "it sent more than it had credit for"),
        (
            reliable(1, 0, &[Frame { channel: 1_024, ..frame(b"") }]),
            "a channel beyond transport.channels_max",
        ),
        (
            reliable(1, 0, &[goes_on(b"a"), Frame { channel: 1, ..frame(b"b") }]),
            "another channel amid the parts of a message",
        ),
        (
            (1..=4).flat_map(|sequence| reliable(sequence, 0, &[goes_on(&[0; 1_000])])).collect(),
            "a message beyond transport.message_size_max",
        ),
        (Wire::written(&mut Pair::new().dial().one, NOW), "a second hello"),
    ];
    for (bytes, why) in refused {
        let pair = Pair::new();
        let mut wire = pair.connect();
        // Five messages of a kilobyte do not fit into one chunk.
        let settled = if why.contains("credit") {
            (1..=5).try_for_each(|n| wire.two.on_bytes(&reliable(n, 0, &[frame(&[0; 1_000])]), NOW).map(drop))
        } else {
            wire.two.on_bytes(&bytes, NOW).map(drop)
        };
        assert_eq!(settled, Err(LinkError::Protocol(why)));
    }
}

#[test]
fn hello_to_or_from_the_wrong_node_is_refused() {
    let pair = Pair::new();
    let hello = Wire::written(&mut pair.dial().one, NOW);
    let three = Node::new(NodeId(3), Incarnation::new(3), settings()).unwrap();
    let at_three = Session::accepted(three, Arc::new(Bell::default()), NOW).on_bytes(&hello, NOW);
    assert_eq!(at_three, Err(LinkError::WrongNode { meant: NodeId(2), reached: NodeId(3) }));
    let stranger = Node::new(NodeId(2), Incarnation::new(3), settings()).unwrap();
    let at_stranger = Session::accepted(stranger, Arc::new(Bell::default()), NOW).on_bytes(&hello, NOW);
    assert_eq!(at_stranger, Err(LinkError::UnknownPeer(NodeId(1))));
    let mut higher = Session::dialed(Arc::clone(&pair.two), Arc::new(Bell::default()), NOW, NodeId(1));
    let hello = Wire::written(&mut higher, NOW);
    let at_one =
        Session::accepted(Arc::clone(&pair.one), Arc::new(Bell::default()), NOW).on_bytes(&hello, NOW);
    assert_eq!(at_one, Err(LinkError::Protocol("it dialed, and has the higher number")));
}

#[test]
fn connection_that_says_nothing_or_sends_before_its_hello_is_given_up() {
    let pair = Pair::new();
    let wire = pair.dial();
    let until = wire.two.deadline(false);
    assert_eq!(until, NOW + settings().handshake_timeout);
    assert_eq!(wire.two.on_time(Nanos(until.0 - 1)), Ok(()));
    assert_eq!(wire.two.on_time(until), Err(LinkError::HandshakeTimeout));
    let mut wire = pair.dial();
    assert!(wire.two.is_stranger());
    let early = wire.two.on_bytes(&reliable(1, 0, &[frame(b"x")]), NOW);
    assert_eq!(early, Err(LinkError::Protocol("a chunk before its hello")));
    let long = wire.two.on_bytes(&reliable(1, 0, &[frame(&[0; 100])]), NOW).unwrap_err().to_string();
    assert_eq!(long, "a chunk of 103 B exceeds the limit of 56 B");
}

#[test]
fn newer_connection_takes_the_place_of_the_older_which_changes_nothing_any_more() {
    let pair = Pair::new();
    let mut old = pair.connect();
    pair.send(A, b"first").unwrap();
    let lost = Wire::written(&mut old.one, NOW);
    let mut new = pair.connect();
    assert_eq!(old.bells.each_ref().map(|bell| bell.hang_ups.load(Ordering::SeqCst)), [1, 1]);
    assert_eq!(old.two.on_bytes(&lost, NOW), Err(LinkError::Superseded));
    assert_eq!(old.one.write(NOW, 1 << 20, &mut Vec::new()), Err(LinkError::Superseded));
    old.one.on_close();
    old.two.on_close();
    let status = pair.one.sender(NodeId(2)).unwrap().status();
    assert_eq!((status.state, status.connections, status.resent_chunks), (LinkState::Up, 2, 1));
    assert_eq!(pair.came(), [b"first"], "it was sent again by the new one, and came once");
    pair.send(A, b"second").unwrap();
    new.exchange(NOW);
    assert_eq!(pair.came(), [b"second"]);
}

/// A node dialed and crashed, and came back at once. The hello of the run before was still on its way: it took the place of the new run, whose
/// state was forgotten, and the link could not go on (EVENKEEL_SIM_SEED=2933).
#[test]
fn hello_of_an_earlier_run_that_comes_late_is_refused() {
    let mut pair = Pair::new();
    let late = Wire::written(&mut pair.dial().one, NOW);
    pair.one = Node::new(NodeId(1), Incarnation::new(12), settings()).unwrap();
    pair.one.declare(NodeId(2)).unwrap();
    let mut wire = pair.connect();
    let refused = pair.dial().two.on_bytes(&late, NOW);
    assert_eq!(refused, Err(LinkError::EarlierRun { theirs: 11, known: 12 }));
    pair.send(A, b"goes on").unwrap();
    wire.exchange(NOW);
    assert_eq!(pair.came(), [b"goes on"]);
}

#[test]
fn message_that_is_larger_than_a_chunk_goes_on_over_another_connection() {
    let pair = Pair::new();
    let mut wire = pair.connect();
    let message: Vec<u8> = (0..3_000_u32).map(|n| n as u8).collect();
    pair.send(A, &message).unwrap();
    let bytes = Wire::written(&mut wire.one, NOW);
    let taken = wire.two.on_bytes(&bytes[..1_500], NOW).unwrap();
    assert!(taken.consumed_bytes > 1_000 && taken.next_bytes > 1_000, "{taken:?}");
    wire.one.on_close();
    wire.two.on_close();
    pair.connect();
    assert_eq!(pair.came(), [message]);
}

#[test]
fn lossy_message_that_waits_when_the_connection_ends_is_not_sent_by_the_next() {
    let pair = Pair::new();
    let wire = pair.connect();
    assert_eq!(pair.send(Channel::lossy(0), b"term 6"), Ok(Sent::Taken));
    assert_eq!(pair.send(Channel::lossy(0), b"term 7"), Ok(Sent::Replaced));
    wire.one.on_close();
    wire.two.on_close();
    assert_eq!(pair.send(Channel::lossy(0), b"term 8"), Err(SendError::NotConnected));
    pair.connect();
    assert_eq!(pair.came(), [b""; 0]);
    assert_eq!(pair.one.sender(NodeId(2)).unwrap().status().dropped_messages, 2);
}

#[test]
fn senders_wake_the_connection_once_for_each_portion_and_not_at_all_while_it_receives() {
    let pair = Pair::new();
    let mut wire = pair.connect();
    let rings = |wire: &Wire| wire.bells[0].rings.load(Ordering::SeqCst);
    let before = rings(&wire);
    for _ in 0..10 {
        pair.send(A, b"small").unwrap();
    }
    assert_eq!(rings(&wire), before + 1);
    wire.exchange(NOW);
    pair.send(A, b"small").unwrap();
    assert_eq!(rings(&wire), before + 2);
}

#[test]
fn small_chunks_that_are_not_acknowledged_count_with_what_they_take() {
    let pair = Pair::new();
    let mut wire = pair.connect();
    let sender = pair.one.sender(NodeId(2)).unwrap();
    let mut chunks = 0;
    while pair.send(A, b"").is_ok() {
        // Each in a chunk of its own, of which the peer hears nothing.
        Wire::written(&mut wire.one, NOW);
        chunks += 1;
        assert!(sender.status().kept_bytes <= settings().unacked_bytes_max);
    }
    assert!((20..100).contains(&chunks), "{chunks} chunks");
    assert_eq!(pair.send(A, b""), Err(SendError::NoCredit));
}

#[test]
fn acknowledgement_and_credits_come_after_the_rest_and_heartbeats_when_nothing_is_said() {
    let pair = Pair::new();
    let mut wire = pair.connect();
    pair.send(A, b"small").unwrap();
    let bytes = Wire::written(&mut wire.one, NOW);
    wire.two.on_bytes(&bytes, NOW).unwrap();
    assert!(Wire::written(&mut wire.two, NOW).is_empty(), "not worth a chunk yet");
    let rest = wire.two.deadline(false);
    assert_eq!(rest, NOW + settings().ack_delay);
    let bytes = Wire::written(&mut wire.two, rest);
    wire.one.on_bytes(&bytes, rest).unwrap();
    assert!(pair.one.sender(NodeId(2)).unwrap().status().kept_bytes <= 2 << 10, "only the open chunk");
    let beat = wire.one.deadline(false);
    assert_eq!(beat, NOW + settings().heartbeat);
    assert_eq!(Wire::written(&mut wire.one, beat).len(), crate::wire::HEADER_BYTES);
    assert_eq!(pair.one.sender(NodeId(2)).unwrap().status().kept_bytes, 0, "an idle link keeps nothing");
    let silent = wire.one.deadline(true);
    assert_eq!(silent, rest + settings().silence_max);
    assert_eq!(wire.one.on_time(silent), Err(LinkError::Silent));
    assert_eq!(wire.one.on_time(silent.0.checked_sub(1).map(Nanos).unwrap()), Ok(()));
}

proptest! {
    #[test]
    fn any_order_of_sends_portions_acknowledgements_and_reconnects_keeps_the_senders_state(
        steps in proptest::collection::vec((0..6_u8, 0..3_100_usize), 1..200)
    ) {
        let terms = Terms {
            message_bytes_max: 3 << 10,
            payload_bytes_max: settings().payload_bytes_max(),
            channel_window_bytes: 1 << 20,
            link_window_bytes: 1 << 20,
        };
        let mut sending = Sending::new(&settings(), terms);
        let (mut sent, mut last, mut acked) = (0_u64, 0, 0);
        for (kind, size) in steps {
            match kind {
                0..3 => sent += u64::from(sending.send(0, &vec![0; size]).is_ok()),
                3 => {
                    let mut portion = Vec::new();
                    sending.hand_out(size, &mut portion);
                    prop_assert!(portion.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
                    last = portion.last().map_or(last, |(sequence, _)| last.max(*sequence));
                }
                4 => {
                    acked = (acked + size as u64 % 4).min(last);
                    sending.on_ack(acked).unwrap();
                    prop_assert!(sending.on_ack(last + 1).is_err());
                }
                _ => sending.rewind(),
            }
            sending.check_state();
            prop_assert!(sending.unacked_messages() <= sent);
        }
        while sending.hand_out(1 << 20, &mut Vec::new()) {}
        prop_assert!(!sending.has_unsent());
    }
}
