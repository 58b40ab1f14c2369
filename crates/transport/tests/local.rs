//! Nodes of one process, with real threads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use clock::SystemClock;
use common::{Collector, eventually, number_of, numbered, send_patiently};
use transport::local::{Hub, Local};
use transport::{BindError, Channel, Event, Incarnation, LinkState, NodeId, SendError, Settings, Transport};

fn hub() -> Arc<Hub> {
    Hub::start(Arc::new(SystemClock)).unwrap()
}

fn node(hub: &Arc<Hub>, id: u64, run: u64, settings: Settings) -> (Local, Arc<Collector>) {
    let local = hub.join(NodeId(id), Incarnation::new(run), settings).unwrap();
    let collector = Arc::new(Collector::default());
    local.receive(Arc::clone(&collector) as Arc<dyn transport::Receive>);
    local.bind("local:here").unwrap();
    (local, collector)
}

fn joined(settings: &Settings) -> ((Local, Arc<Collector>), (Local, Arc<Collector>)) {
    let hub = hub();
    let (one, two) = (node(&hub, 1, 1, settings.clone()), node(&hub, 2, 1, settings.clone()));
    one.0.connect(NodeId(2), "local:two").unwrap();
    two.0.connect(NodeId(1), "local:one").unwrap();
    for (local, peer) in [(&one.0, 2), (&two.0, 1)] {
        eventually("they are connected", || {
            local.status(NodeId(peer)).is_some_and(|status| status.state == LinkState::Up)
        });
    }
    (one, two)
}

#[test]
fn many_threads_send_and_each_channel_keeps_its_order() {
    const COUNT: u64 = 2_000;
    let ((one, _), (_two, collector)) = joined(&Settings::default());
    std::thread::scope(|scope| {
        for channel in 0..8 {
            let sender = one.sender(NodeId(2)).unwrap();
            scope.spawn(move || {
                for number in 0..COUNT {
                    send_patiently(&sender, Channel::reliable(channel), &numbered(number, 100));
                }
            });
        }
    });
    eventually("all came", || collector.count() == 8 * COUNT as usize);
    for channel in 0..8 {
        let numbers: Vec<u64> =
            collector.of(Channel::reliable(channel)).iter().map(|m| number_of(m)).collect();
        assert!(numbers.iter().copied().eq(0..COUNT));
    }
}

#[test]
fn receiver_that_keeps_messages_stops_its_channel_and_no_other() {
    let settings =
        Settings { channel_window_bytes: 1_100_000, link_window_bytes: 4 << 20, ..Settings::default() };
    let ((one, events), (_two, collector)) = joined(&settings);
    collector.keep(Channel::reliable(1));
    let sender = one.sender(NodeId(2)).unwrap();
    let message = numbered(0, 100_000);
    let mut sent = 0;
    while sender.send(Channel::reliable(1), &message) != Err(SendError::NoCredit) {
        sent += 1;
        assert!(sent <= 10, "a window of 1.1 MB");
    }
    eventually("all that there is credit for is kept", || collector.kept() == sent);
    send_patiently(&sender, Channel::reliable(2), b"another channel");
    eventually("the other channel goes on", || collector.of(Channel::reliable(2)).len() == 1);
    assert_eq!(sender.send(Channel::reliable(1), &message), Err(SendError::NoCredit));
    collector.release();
    eventually("the sender is told", || events.has(NodeId(2), Event::Credit(Channel::reliable(1))));
    sender.send(Channel::reliable(1), &message).unwrap();
}

#[test]
fn node_that_comes_back_with_nothing_is_told_from_the_one_before() {
    let hub = hub();
    let (one, events) = node(&hub, 1, 1, Settings::default());
    let (two, first) = node(&hub, 2, 1, Settings::default());
    let sender = one.connect(NodeId(2), "local:two").unwrap();
    two.connect(NodeId(1), "local:one").unwrap();
    send_patiently(&sender, Channel::reliable(0), &numbered(0, 8));
    eventually("it came", || first.count() == 1);
    two.close();
    eventually("the end is noticed", || sender.status().state == LinkState::Down);
    assert_eq!(sender.send(Channel::reliable(0), b"nobody there"), Err(SendError::NotConnected));
    let (two, second) = node(&hub, 2, 2, Settings::default());
    two.connect(NodeId(1), "local:one").unwrap();
    send_patiently(&sender, Channel::reliable(0), &numbered(1, 8));
    eventually("the new one gets what is new", || second.count() == 1);
    assert_eq!(number_of(&second.of(Channel::reliable(0))[0]), 1);
    assert!(events.has(NodeId(2), Event::Down) && events.restarts(NodeId(2)) == 1);
}

#[test]
fn misuse_is_refused_with_the_reason() {
    let hub = hub();
    let (one, _) = node(&hub, 1, 1, Settings::default());
    assert!(matches!(one.bind("local:again"), Err(BindError::Bound)));
    assert!(matches!(one.connect(NodeId(1), "local:me"), Err(BindError::Itself(NodeId(1)))));
    let wrong = one.connect(NodeId(2), "10.0.0.1:7000").unwrap_err().to_string();
    assert_eq!(wrong, "`10.0.0.1:7000` is no address for this transport: local:NAME");
    assert_eq!(one.send(NodeId(9), Channel::reliable(0), b""), Err(SendError::Closed));
    let sender = one.connect(NodeId(2), "local:two").unwrap();
    assert_eq!(sender.send(Channel::reliable(0), b""), Err(SendError::NotConnected));
    one.close();
    assert_eq!(sender.send(Channel::reliable(0), b""), Err(SendError::Closed));
    assert!(matches!(one.bind("local:late"), Err(BindError::Closed)));
    let settings = Settings { threads: 0, ..Settings::default() };
    assert_eq!(
        hub.join(NodeId(3), Incarnation::new(1), settings).unwrap_err().to_string(),
        "transport.threads is 0, and must be from 1 to 1024 (threads)"
    );
}
