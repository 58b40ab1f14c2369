//! Nodes with sockets, which keep what comes.

use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use transport::tcp::Tcp;
use transport::{Channel, Incarnation, LinkState, NodeId, Receive, Security, Sender, Settings, Transport};

use super::{Collector, eventually, number_of, numbered, send_patiently};

pub const A: Channel = Channel::reliable(0);

pub fn settings() -> Settings {
    Settings {
        wait_min: Duration::from_millis(5),
        wait_max: Duration::from_millis(20),
        ..Settings::default()
    }
}

pub struct Node {
    pub tcp: Tcp,
    pub collector: Arc<Collector>,
    pub address: String,
}

impl Node {
    pub fn start(id: u64, run: u64, settings: Settings) -> Self {
        Self::start_secured(id, run, settings, &Security::None)
    }

    pub fn start_secured(id: u64, run: u64, settings: Settings, security: &Security) -> Self {
        let tcp = Tcp::new(NodeId(id), Incarnation::new(run), settings, Arc::new(SystemClock)).unwrap();
        let tcp = tcp.secured(security).unwrap();
        let collector = Arc::new(Collector::default());
        tcp.receive(Arc::clone(&collector) as Arc<dyn Receive>);
        let address = tcp.bind("127.0.0.1:0").unwrap();
        Self { tcp, collector, address }
    }

    pub fn is_up(&self, peer: u64) -> bool {
        self.tcp.status(NodeId(peer)).is_some_and(|status| status.state == LinkState::Up)
    }

    pub fn sender(&self, peer: u64) -> Sender {
        self.tcp.sender(NodeId(peer)).unwrap()
    }

    pub fn numbers(&self, channel: Channel) -> Vec<u64> {
        self.collector.of(channel).iter().map(|message| number_of(message)).collect()
    }
}

/// Two nodes, the first of which reaches the second by `address`, or directly.
pub fn join(one: &Node, two: &Node, address: Option<&str>) {
    one.tcp.connect(two.tcp.node(), address.unwrap_or(&two.address)).unwrap();
    two.tcp.connect(one.tcp.node(), &one.address).unwrap();
    let (one_id, two_id) = (one.tcp.node().0, two.tcp.node().0);
    eventually("they are connected", || one.is_up(two_id) && two.is_up(one_id));
}

pub fn pair(settings: &Settings) -> (Node, Node) {
    let (one, two) = (Node::start(1, 1, settings.clone()), Node::start(2, 1, settings.clone()));
    join(&one, &two, None);
    (one, two)
}

/// Sends `count` messages on each of `channels`, from a thread for each.
pub fn send_on(sender: &Sender, channels: u16, count: u64, size_bytes: usize) {
    std::thread::scope(|scope| {
        for channel in 0..channels {
            scope.spawn(move || {
                for number in 0..count {
                    send_patiently(sender, Channel::reliable(channel), &numbered(number, size_bytes));
                }
            });
        }
    });
}

pub fn all_came(node: &Node, channels: u16, count: u64) {
    eventually("all came", || node.collector.count() == usize::from(channels) * count as usize);
    for channel in 0..channels {
        assert!(node.numbers(Channel::reliable(channel)).into_iter().eq(0..count), "channel {channel}");
    }
}
