//! Nodes of any transport, which keep what comes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::SystemClock;
use transport::tcp::Tcp;
use transport::{Channel, Incarnation, LinkState, NodeId, Receive, Security, Sender, Settings, Transport};

use super::proxy::Proxy;
use super::{Collector, eventually, number_of, numbered, send_patiently};

pub const A: Channel = Channel::reliable(0);

pub fn settings() -> Settings {
    Settings {
        wait_min: Duration::from_millis(5),
        wait_max: Duration::from_millis(20),
        ..Settings::default()
    }
}

/// A transport under test.
pub trait Kind {
    type Transport: Transport;

    /// Where a node may listen.
    const ADDRESS: &str;

    fn new_node(&self, id: u64, run: u64, settings: Settings) -> Self::Transport;
}

/// The transport `tcp`.
pub struct OverTcp;

impl Kind for OverTcp {
    type Transport = Tcp;

    const ADDRESS: &str = "127.0.0.1:0";

    fn new_node(&self, id: u64, run: u64, settings: Settings) -> Tcp {
        Tcp::new(NodeId(id), Incarnation::new(run), settings, Arc::new(SystemClock)).unwrap()
    }
}

pub struct Node<T: Transport = Tcp> {
    pub transport: T,
    pub collector: Arc<Collector>,
    pub address: String,
}

impl Node {
    pub fn start_secured(id: u64, run: u64, settings: Settings, security: &Security) -> Self {
        let tcp = OverTcp.new_node(id, run, settings).secured(security).unwrap();
        Self::listening(tcp, OverTcp::ADDRESS)
    }
}

impl<T: Transport> Node<T> {
    pub fn start(kind: &impl Kind<Transport = T>, id: u64, run: u64, settings: Settings) -> Self {
        Self::start_at(kind, address_of(kind), (id, run), settings)
    }

    pub fn start_at(
        kind: &impl Kind<Transport = T>,
        address: &str,
        (id, run): (u64, u64),
        settings: Settings,
    ) -> Self {
        Self::listening(kind.new_node(id, run, settings), address)
    }

    fn listening(transport: T, address: &str) -> Self {
        let collector = Arc::new(Collector::default());
        transport.receive(Arc::clone(&collector) as Arc<dyn Receive>);
        let address = transport.bind(address).unwrap();
        Self { transport, collector, address }
    }

    pub fn is_up(&self, peer: u64) -> bool {
        self.transport.status(NodeId(peer)).is_some_and(|status| status.state == LinkState::Up)
    }

    /// How often the first node was connected to the second.
    fn connections(&self) -> u64 {
        self.transport.status(NodeId(2)).unwrap().connections
    }

    pub fn sender(&self, peer: u64) -> Sender {
        self.transport.sender(NodeId(peer)).unwrap()
    }

    pub fn numbers(&self, channel: Channel) -> Vec<u64> {
        self.collector.of(channel).iter().map(|message| number_of(message)).collect()
    }
}

fn address_of<K: Kind>(_: &K) -> &'static str {
    K::ADDRESS
}

/// Two nodes, the first of which reaches the second by `address`, or directly.
pub fn join<T: Transport>(one: &Node<T>, two: &Node<T>, address: Option<&str>) {
    one.transport.connect(two.transport.node(), address.unwrap_or(&two.address)).unwrap();
    two.transport.connect(one.transport.node(), &one.address).unwrap();
    let (one_id, two_id) = (one.transport.node().0, two.transport.node().0);
    eventually("they are connected", || one.is_up(two_id) && two.is_up(one_id));
}

pub fn pair<K: Kind>(kind: &K, settings: &Settings) -> (Node<K::Transport>, Node<K::Transport>) {
    let (one, two) = two_of(kind, settings);
    join(&one, &two, None);
    (one, two)
}

/// Two nodes that do not know each other yet.
pub fn two_of<K: Kind>(kind: &K, settings: &Settings) -> (Node<K::Transport>, Node<K::Transport>) {
    (Node::start(kind, 1, 1, settings.clone()), Node::start(kind, 2, 1, settings.clone()))
}

/// Sends `count` messages on each of `channels`, from a thread for each.
pub fn send_on(sender: &Sender, channels: u16, count: u64, size_bytes: usize) {
    send_from(sender, channels, 0..count, size_bytes);
}

fn send_from(sender: &Sender, channels: u16, numbers: Range<u64>, size_bytes: usize) {
    std::thread::scope(|scope| {
        for channel in 0..channels {
            let numbers = numbers.clone();
            scope.spawn(move || {
                for number in numbers {
                    send_patiently(sender, Channel::reliable(channel), &numbered(number, size_bytes));
                }
            });
        }
    });
}

/// Sends both ways until `proxy` has cut their connection `cuts` times, each time while messages were on their way. All must have come, once
/// and in order.
pub fn send_while_cut<T: Transport>(one: &Node<T>, two: &Node<T>, proxy: &Proxy, cuts: u64) {
    const ROUND: u64 = 1_000;
    let is_over = AtomicBool::new(false);
    let send_rounds = |sender: &Sender, channels, size_bytes| {
        let mut sent = 0;
        while !is_over.load(Ordering::SeqCst) {
            send_from(sender, channels, sent..sent + ROUND, size_bytes);
            sent += ROUND;
        }
        sent
    };
    let (there, back) = std::thread::scope(|scope| {
        let there = scope.spawn(|| send_rounds(&one.sender(2), 3, 300));
        let back = scope.spawn(|| send_rounds(&two.sender(1), 2, 100));
        let cut = scope.spawn(|| {
            for _ in 0..cuts {
                let (before, connections) = (proxy.forwarded_bytes(), one.connections());
                eventually("more is under way", || proxy.forwarded_bytes() >= before + 300_000);
                proxy.cut();
                eventually("they are connected again", || one.connections() > connections);
            }
        });
        // also where the wait was in vain: who sends waits for this
        let done = cut.join();
        is_over.store(true, Ordering::SeqCst);
        done.unwrap();
        (there.join().unwrap(), back.join().unwrap())
    });
    all_came(two, 3, there);
    all_came(one, 2, back);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().lost_messages, 0);
}

pub fn all_came<T: Transport>(node: &Node<T>, channels: u16, count: u64) {
    eventually("all came", || node.collector.count() == usize::from(channels) * count as usize);
    for channel in 0..channels {
        assert!(node.numbers(Channel::reliable(channel)).into_iter().eq(0..count), "channel {channel}");
    }
}
