//! Nodes on a simulated network, by seed: connections that are cut at any byte, refused, slow; nodes that stall, die and come back with
//! nothing. After each step and at the end judges look whether every promise holds.
//!
//! `EVENKEEL_SIM_SEED` is the first seed and `EVENKEEL_SIM_SEEDS` how many; a failure prints its seed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::Nanos;
use transport::simulated::{Faults, Network, Simulated};
use transport::{
    Channel, Class, Credit, Event, Incarnation, LinkError, LinkState, MESSAGE_COST_BYTES, Message, NodeId,
    Receive, SendError, Settings, Transport,
};

const CHANNELS: u16 = 3;
/// Enough for a message between nodes that rest, and less than a heartbeat.
const ON_ITS_WAY: Duration = Duration::from_millis(8);

fn settings() -> Settings {
    Settings {
        buffer_size_bytes: 1 << 10,
        message_size_bytes_max: 4 << 10,
        channel_window_bytes: 8 << 10,
        link_window_bytes: 20 << 10,
        unacked_bytes_max: 24 << 10,
        lossy_bytes_max: 4 << 10,
        channels_max: 8,
        retries_max: 5,
        wait_min: Duration::from_millis(10),
        wait_max: Duration::from_millis(80),
        heartbeat: Duration::from_millis(50),
        silence_max: Duration::from_millis(200),
        handshake_timeout: Duration::from_millis(100),
        ..Settings::default()
    }
}

/// The stream of numbers of a run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }

    fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }
}

/// Whose messages count together: sender, its run, how many runs of the receiver it had seen, channel.
type Stream = (u64, u64, u64, Channel);
/// The same, in an order: number of the channel, and whether it is reliable.
type Key = (u64, u64, u64, u16, bool);

/// Takes what comes to one run of a node, and judges it.
#[derive(Default)]
struct Judge(Mutex<Judged>);

#[derive(Default)]
struct Judged {
    /// The number that comes next, of each stream.
    next: BTreeMap<Key, u64>,
    /// Which messages are kept: one in so many; 0: none.
    keeps_one_in: u64,
    seen: u64,
    kept: Vec<Kept>,
    /// What the kept ones count, of each run of a peer and channel.
    kept_bytes: BTreeMap<(u64, u64, u16), u64>,
    /// Runs of each peer that this run has seen end.
    runs: BTreeMap<u64, u64>,
    credits: u64,
}

/// A message that is not consumed yet.
struct Kept {
    credit: Credit,
    of: (u64, u64, u16),
    bytes: u64,
}

impl Judged {
    fn keep(&mut self, message: &Message<'_>, run: u64) {
        let of = (message.from.0, run, message.channel.number);
        let bytes = message.bytes.len() as u64 + MESSAGE_COST_BYTES;
        let all = self.kept_bytes.entry(of).or_default();
        *all += bytes;
        assert!(*all <= settings().channel_window_bytes, "{all} B are kept of {of:?}");
        self.kept.push(Kept { credit: message.keep(), of, bytes });
    }

    /// Takes the first `count` that are kept.
    fn take(&mut self, count: usize) -> Vec<Credit> {
        let taken: Vec<Kept> = self.kept.drain(..count).collect();
        for kept in &taken {
            *self.kept_bytes.get_mut(&kept.of).unwrap() -= kept.bytes;
        }
        taken.into_iter().map(|kept| kept.credit).collect()
    }
}

fn key((from, run, peer_run, channel): Stream) -> Key {
    (from, run, peer_run, channel.number, channel.class == Class::Reliable)
}

fn message(stream: Stream, number: u64, size_bytes: usize) -> Vec<u8> {
    let (from, run, peer_run, _) = stream;
    let mut bytes: Vec<u8> = [from, run, peer_run, number].iter().flat_map(|n| n.to_le_bytes()).collect();
    let fill = (number as u8).wrapping_add(from as u8);
    bytes.resize(size_bytes.max(bytes.len()), fill);
    bytes
}

impl Receive for Judge {
    fn on_message(&self, message: &Message<'_>) {
        let mut judged = self.0.lock().unwrap();
        let numbers: Vec<u64> =
            message.bytes[..32].chunks(8).map(|n| u64::from_le_bytes(n.try_into().unwrap())).collect();
        let [from, run, peer_run, number] = numbers[..] else { unreachable!("four of them") };
        assert_eq!(from, message.from.0);
        let fill = (number as u8).wrapping_add(from as u8);
        assert!(message.bytes[32..].iter().all(|byte| *byte == fill), "bytes of another message");
        let next = judged.next.entry(key((from, run, peer_run, message.channel))).or_default();
        match message.channel.class {
            Class::Reliable => assert_eq!(number, *next, "from {from}, {:?}", message.channel),
            Class::Lossy => assert!(number >= *next, "{number} came again, or late: {next} was due"),
        }
        *next = number + 1;
        judged.seen += 1;
        let is_kept = judged.keeps_one_in > 0 && judged.seen.is_multiple_of(judged.keeps_one_in);
        if is_kept && message.channel.class == Class::Reliable {
            judged.keep(message, run);
        }
    }

    fn on_event(&self, peer: NodeId, event: Event) {
        let mut judged = self.0.lock().unwrap();
        match event {
            Event::Restarted { .. } => {
                *judged.runs.entry(peer.0).or_default() += 1;
            }
            Event::Credit(_) => judged.credits += 1,
            _ => {}
        }
    }
}

struct Run {
    transport: Simulated,
    judge: Arc<Judge>,
    incarnation: u64,
    /// Numbers of the next messages, by receiver and stream.
    next: BTreeMap<(u64, Key), u64>,
}

struct World {
    rng: Rng,
    network: Arc<Network>,
    runs: BTreeMap<u64, Run>,
    nodes: u64,
    incarnations: u64,
    refused: u64,
    sent: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let faults = Faults {
            delay: Duration::from_micros(rng.within(1..500))..Duration::from_micros(rng.within(500..5_000)),
            cuts_per_mille: [0, 2, 20][rng.below(3) as usize],
            refusals_per_mille: [0, 100, 500][rng.below(3) as usize],
            piece_bytes: 1..[40, 1_500, 100_000][rng.below(3) as usize],
        };
        let nodes = rng.within(2..5);
        let network = Network::new(seed, faults);
        let runs = BTreeMap::new();
        let mut world = Self { rng, network, runs, nodes, incarnations: 0, refused: 0, sent: 0 };
        (1..=nodes).for_each(|node| world.start(node));
        world
    }

    /// Starts another run of `node`, which knows nothing.
    fn start(&mut self, node: u64) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let transport = self.network.join(NodeId(node), Incarnation::new(incarnation), settings()).unwrap();
        let judge = Arc::new(Judge::default());
        judge.0.lock().unwrap().keeps_one_in = self.rng.below(4);
        transport.receive(Arc::clone(&judge) as Arc<dyn Receive>);
        transport.bind("sim:here").unwrap();
        for peer in (1..=self.nodes).filter(|peer| *peer != node) {
            transport.connect(NodeId(peer), "sim:there").unwrap();
        }
        self.runs.insert(node, Run { transport, judge, incarnation, next: BTreeMap::new() });
    }

    fn pass(&mut self, time: Duration) {
        self.network.advance(self.network.now() + time);
        for run in self.runs.values() {
            for peer in (1..=self.nodes).filter_map(|peer| run.transport.status(NodeId(peer))) {
                let settings = settings();
                assert!(peer.kept_bytes <= settings.unacked_bytes_max + settings.lossy_bytes_max, "{peer:?}");
                assert!(peer.held_bytes <= settings.link_window_bytes, "{peer:?}");
            }
        }
        for end in self.network.take_ends() {
            let is_expected = matches!(
                end,
                LinkError::HandshakeTimeout
                    | LinkError::Silent
                    | LinkError::Superseded
                    | LinkError::EarlierRun { .. }
            );
            assert!(is_expected, "{end}");
        }
    }

    /// Sends a message if it is taken.
    fn send(&mut self, node: u64, peer: u64, channel: Channel, size_bytes: usize) -> Result<(), SendError> {
        let run = self.runs.get_mut(&node).unwrap();
        let peer_run = run.judge.0.lock().unwrap().runs.get(&peer).copied().unwrap_or(0);
        let stream = (node, run.incarnation, peer_run, channel);
        let next = run.next.entry((peer, key(stream))).or_default();
        run.transport.send(NodeId(peer), channel, &message(stream, *next, size_bytes))?;
        *next += 1;
        self.sent += 1;
        Ok(())
    }

    fn send_some(&mut self) {
        let node = self.rng.within(1..self.nodes + 1);
        let peer = self.rng.within(1..self.nodes + 1);
        if node == peer {
            return;
        }
        let number = self.rng.below(u64::from(CHANNELS)) as u16;
        let channel = if self.rng.below(5) == 0 { Channel::lossy(number) } else { Channel::reliable(number) };
        let bytes_max = [40, 300, 1_024, 4_096, 4_200][self.rng.below(5) as usize];
        for _ in 0..self.rng.within(1..12) {
            let size_bytes = self.rng.within(32..bytes_max + 1) as usize;
            match self.send(node, peer, channel, size_bytes) {
                Ok(()) => {}
                Err(SendError::NoCredit) => {
                    self.refused += 1;
                    break;
                }
                Err(SendError::NotConnected) => break,
                Err(SendError::TooLarge { limit_bytes, .. }) => assert!(size_bytes as u64 > limit_bytes),
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// A receiver consumes some of what it keeps.
    fn consume(&mut self) {
        let node = self.rng.within(1..self.nodes + 1);
        let mut judged = self.runs[&node].judge.0.lock().unwrap();
        let count = self.rng.below(judged.kept.len() as u64 + 1) as usize;
        let consumed = judged.take(count);
        drop(judged);
        drop(consumed);
    }

    fn trouble(&mut self) {
        let node = self.rng.within(1..self.nodes + 1);
        match self.rng.below(12) {
            0..6 => {
                let other = self.rng.within(1..self.nodes + 1);
                self.network.cut(NodeId(node), NodeId(other));
            }
            6..10 => {
                let stall_ms = self.rng.within(1..500);
                let until = self.network.now() + Duration::from_millis(stall_ms);
                self.network.stall(NodeId(node), until);
            }
            _ => {
                self.network.crash(NodeId(node), self.rng.below(2) == 0);
                self.start(node);
            }
        }
    }

    fn play(&mut self, steps: u64, trouble_per_mille: u64) {
        for _ in 0..steps {
            match self.rng.below(1_000) {
                chance if chance < trouble_per_mille => self.trouble(),
                chance if chance < 800 => self.send_some(),
                _ => self.consume(),
            }
            let micros = self.rng.within(1..3_000);
            self.pass(Duration::from_micros(micros));
        }
    }

    /// Without faults and with receivers that consume everything, all that was taken arrives, and whoever has credit to wait for gets it.
    fn settle(&mut self) {
        self.network.set_faults(Faults::default());
        for run in self.runs.values() {
            self.network.stall(run.transport.node(), self.network.now());
            let mut judged = run.judge.0.lock().unwrap();
            judged.keeps_one_in = 0;
            let count = judged.kept.len();
            let kept = judged.take(count);
            drop(judged);
            drop(kept);
        }
        // A dead connection is noticed, another is made, everything is sent again.
        self.pass(Duration::from_millis(1_000));
        for (node, peer) in self.pairs() {
            for channel in (0..CHANNELS).map(Channel::reliable) {
                let sent = self.send(node, peer, channel, 4_000);
                assert_eq!(sent, Ok(()), "{node} to {peer} on {channel:?} after a second of rest");
            }
            // It is on its way at once, and not with the next heartbeat.
            self.pass(ON_ITS_WAY);
            self.judge_pair(node, peer);
        }
        self.pass(Duration::from_millis(100));
    }

    fn pairs(&self) -> Vec<(u64, u64)> {
        let all = (1..=self.nodes).flat_map(|node| (1..=self.nodes).map(move |peer| (node, peer)));
        all.filter(|(node, peer)| node != peer).collect()
    }

    /// Everything that `node` sent to `peer`, whose run still lives, has come.
    fn judge_pair(&self, node: u64, peer: u64) {
        let run = &self.runs[&node];
        let runs = run.judge.0.lock().unwrap().runs.get(&peer).copied().unwrap_or(0);
        for ((to, stream), sent) in &run.next {
            let (_, _, peer_run, _, is_reliable) = *stream;
            if *to == peer && is_reliable && peer_run == runs {
                let there = self.runs[&peer].judge.0.lock().unwrap();
                let came = there.next.get(stream).copied().unwrap_or(0);
                assert_eq!(came, *sent, "of {stream:?} to {peer}");
            }
        }
    }

    fn judge(&self) {
        for (node, peer) in self.pairs() {
            self.judge_pair(node, peer);
        }
        for (node, peer) in self.pairs() {
            let status = self.runs[&node].transport.status(NodeId(peer)).unwrap();
            assert_eq!((status.state, status.held_bytes), (LinkState::Up, 0), "{node} to {peer}: {status:?}");
        }
    }
}

/// Prints the seed of a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with EVENKEEL_SIM_SEED={} EVENKEEL_SIM_SEEDS=1", self.0);
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn run(seed: u64) -> World {
    let _seed = Seed(seed);
    let mut world = World::new(seed);
    let trouble = [0, 10, 60][(seed % 3) as usize];
    world.play(400, trouble);
    world.settle();
    world.judge();
    world
}

#[test]
fn reliable_messages_arrive_once_and_in_order_and_memory_is_bounded_whatever_happens() {
    let (first, count) = (setting("EVENKEEL_SIM_SEED", 1), setting("EVENKEEL_SIM_SEEDS", 300));
    let (mut sent, mut refused, mut resent) = (0, 0, 0);
    for seed in first..first + count {
        let world = run(seed);
        (sent, refused) = (sent + world.sent, refused + world.refused);
        for (node, peer) in world.pairs() {
            resent += world.runs[&node].transport.status(NodeId(peer)).unwrap().resent_chunks;
        }
    }
    println!("{count} seeds: {sent} messages, {refused} refusals, {resent} chunks again");
    if count >= 100 {
        assert!(refused > 1_000 && resent > 1_000, "the rare paths were made common");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let outcome = |world: World| {
        let statuses: Vec<_> = world
            .pairs()
            .into_iter()
            .map(|(node, peer)| world.runs[&node].transport.status(NodeId(peer)))
            .collect();
        (world.network.now(), world.sent, world.refused, statuses)
    };
    assert_eq!(outcome(run(7)), outcome(run(7)));
    assert_ne!(outcome(run(7)).1, outcome(run(8)).1);
}

/// Two nodes that are connected, without faults.
fn pair() -> World {
    let mut world = World::new(1);
    world.nodes = 2;
    world.network.set_faults(Faults::default());
    (1..=2).for_each(|node| world.start(node));
    world.pass(Duration::from_millis(300));
    world
}

#[test]
fn sender_without_credit_has_it_soon_after_the_receiver_consumed() {
    let mut world = pair();
    world.runs[&2].judge.0.lock().unwrap().keeps_one_in = 1;
    while world.send(1, 2, Channel::reliable(0), 1_000).is_ok() {}
    world.pass(ON_ITS_WAY);
    assert_eq!(world.send(1, 2, Channel::reliable(0), 1_000), Err(SendError::NoCredit));
    let consumed = world.runs[&2].judge.0.lock().unwrap().take(1);
    drop(consumed);
    world.pass(ON_ITS_WAY);
    assert_eq!(world.runs[&1].judge.0.lock().unwrap().credits, 1);
    assert_eq!(world.send(1, 2, Channel::reliable(0), 1_000), Ok(()));
}

/// A channel whose receiver stands still for good, beside one that goes on.
#[test]
fn channel_that_nobody_reads_stops_itself_alone() {
    let mut world = pair();
    world.runs[&2].judge.0.lock().unwrap().keeps_one_in = 1;
    while world.send(1, 2, Channel::reliable(0), 1_000).is_ok() {}
    world.pass(ON_ITS_WAY);
    world.runs[&2].judge.0.lock().unwrap().keeps_one_in = 0;
    for _ in 0..100 {
        assert_eq!(world.send(1, 2, Channel::reliable(0), 1_000), Err(SendError::NoCredit));
        assert_eq!(world.send(1, 2, Channel::reliable(1), 4_000), Ok(()));
        world.pass(ON_ITS_WAY);
    }
    world.judge_pair(1, 2);
}

#[test]
fn dead_peer_is_noticed_within_the_silence_and_the_others_go_on() {
    let mut world = pair();
    world.nodes = 3;
    (1..=3).for_each(|node| world.start(node));
    world.pass(Duration::from_millis(300));
    world.network.crash(NodeId(3), true);
    let gone = world.network.now();
    let settings = settings();
    while world.runs[&1].transport.status(NodeId(3)).unwrap().state == LinkState::Up {
        world.pass(Duration::from_millis(1));
        assert!(world.network.now() <= gone + settings.silence_max + settings.heartbeat);
    }
    assert_eq!(world.send(1, 3, Channel::reliable(0), 100), Err(SendError::NotConnected));
    assert_eq!(world.send(1, 2, Channel::reliable(0), 100), Ok(()));
    assert_eq!(world.network.next_event().map(|next| next > Nanos::default()), Some(true));
}
