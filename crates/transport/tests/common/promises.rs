//! What every transport promises, as tests of any of them: `promises!` for all, `promises_over_sockets!` for those whose connections a proxy
//! can cut.

use std::time::Duration;

use transport::{BindError, Channel, Event, NodeId, SendError, Settings, Transport};

use super::node::{A, Kind, Node, all_came, join, pair, send_on, send_while_cut, settings, two_of};
use super::proxy::Proxy;
use super::{PATIENCE, eventually, number_of, numbered, send_patiently};

/// Has the transport keep what all promise.
#[macro_export]
macro_rules! promises {
    ($kind:expr) => {
        $crate::promises! { $kind;
            messages_of_all_sizes_arrive_in_order_in_both_directions_at_once,
            many_threads_send_and_each_channel_keeps_its_order,
            lossy_messages_come_once_at_most_and_the_last_one_comes,
            receiver_that_keeps_messages_stops_its_channel_and_no_other,
            slow_receiver_stops_its_sender_within_the_bounds_of_memory,
            node_that_comes_back_with_nothing_is_told_from_the_one_before,
            misuse_is_refused_with_the_reason,
        }
    };
    ($kind:expr; $($promise:ident,)+) => {
        $(#[test]
        fn $promise() {
            common::promises::$promise(&$kind);
        })+
    };
}

/// Has the transport keep what those with sockets promise beside.
#[macro_export]
macro_rules! promises_over_sockets {
    ($kind:expr) => {
        $crate::promises! { $kind;
            connections_that_are_cut_under_load_lose_and_double_nothing,
            peer_that_falls_silent_is_noticed_and_met_again,
            idle_link_stays_up_by_its_heartbeats,
            unreachable_peer_is_told_of_once_while_attempts_go_on,
            address_beyond_loopback_is_refused_where_nobody_proves_anything,
        }
    };
}

pub fn messages_of_all_sizes_arrive_in_order_in_both_directions_at_once(kind: &impl Kind) {
    let (one, two) = pair(kind, &settings());
    let sizes = [0_usize, 1, 127, 128, 8 << 10, 64 << 10, (64 << 10) + 1, 1 << 20];
    std::thread::scope(|scope| {
        for (node, peer) in [(&one, 2), (&two, 1)] {
            let sender = node.sender(peer);
            scope.spawn(move || {
                for number in 0..400_u64 {
                    let message = numbered(number, sizes[number as usize % sizes.len()]);
                    send_patiently(&sender, A, &message);
                }
            });
        }
    });
    for node in [&one, &two] {
        all_came(node, 1, 400);
        let came = node.collector.of(A);
        let right = |(number, message): (usize, &Vec<u8>)| {
            *message == numbered(number as u64, sizes[number % sizes.len()])
        };
        assert!(came.iter().enumerate().all(right));
    }
    let too_large = one.sender(2).send(A, &vec![0; (1 << 20) + 1]).unwrap_err().to_string();
    assert_eq!(too_large, "a message of 1048577 B exceeds transport.message_size_max (1048576 B)");
}

pub fn many_threads_send_and_each_channel_keeps_its_order(kind: &impl Kind) {
    let (one, two) = pair(kind, &settings());
    send_on(&one.sender(2), 8, 2_000, 100);
    all_came(&two, 8, 2_000);
}

pub fn lossy_messages_come_once_at_most_and_the_last_one_comes(kind: &impl Kind) {
    const COUNT: u64 = 5_000;
    let channel = Channel::lossy(3);
    let (one, two) = pair(kind, &settings());
    let sender = one.sender(2);
    (0..COUNT).for_each(|number| assert!(sender.send(channel, &numbered(number, 500)).is_ok()));
    eventually("the last one comes", || two.numbers(channel).last() == Some(&(COUNT - 1)));
    let numbers = two.numbers(channel);
    assert!(numbers.is_sorted_by(|one, next| one < next));
    let dropped = sender.status().dropped_messages;
    assert_eq!(numbers.len() as u64 + dropped, COUNT, "what did not come was counted");
}

pub fn receiver_that_keeps_messages_stops_its_channel_and_no_other(kind: &impl Kind) {
    let settings = Settings { channel_window_bytes: 1_100_000, link_window_bytes: 4 << 20, ..settings() };
    let (one, two) = pair(kind, &settings);
    two.collector.keep(Channel::reliable(1));
    let sender = one.sender(2);
    let message = numbered(0, 100_000);
    let mut sent = 0;
    while sender.send(Channel::reliable(1), &message) != Err(SendError::NoCredit) {
        sent += 1;
        assert!(sent <= 10, "a window of 1.1 MB");
    }
    eventually("all that there is credit for is kept", || two.collector.kept() == sent);
    send_patiently(&sender, Channel::reliable(2), b"another channel");
    eventually("the other channel goes on", || two.collector.of(Channel::reliable(2)).len() == 1);
    assert_eq!(sender.send(Channel::reliable(1), &message), Err(SendError::NoCredit));
    two.collector.release();
    let credit = Event::Credit(Channel::reliable(1));
    eventually("the sender is told", || one.collector.has(NodeId(2), credit));
    sender.send(Channel::reliable(1), &message).unwrap();
}

pub fn slow_receiver_stops_its_sender_within_the_bounds_of_memory(kind: &impl Kind) {
    let settings = Settings {
        channel_window_bytes: 2 << 20,
        link_window_bytes: 4 << 20,
        unacked_bytes_max: 4 << 20,
        ..settings()
    };
    let (one, two) = pair(kind, &settings);
    two.collector.keep(A);
    let sender = one.sender(2);
    let mut sent = 0;
    eventually("the sender is told to wait", || match sender.send(A, &numbered(sent, 1_000)) {
        Ok(_) => {
            sent += 1;
            // For as long as its window lasts, which takes more than one refusal for want of acknowledgements.
            false
        }
        Err(error) => error == SendError::NoCredit && two.collector.kept() as u64 == sent,
    });
    assert!(sent * 1_016 <= 2 << 20, "{sent} messages");
    let (here, there) = (sender.status(), two.transport.status(NodeId(1)).unwrap());
    assert!(here.kept_bytes <= settings.unacked_bytes_max, "{here:?}");
    assert!(there.held_bytes <= settings.channel_window_bytes, "{there:?}");
    send_patiently(&sender, Channel::reliable(1), b"another channel goes on");
    eventually("it came", || two.collector.of(Channel::reliable(1)).len() == 1);
    two.collector.release();
    eventually("the sender is told", || one.collector.has(NodeId(2), Event::Credit(A)));
    send_patiently(&sender, A, &numbered(sent, 1_000));
    eventually("nothing is missing", || two.numbers(A).into_iter().eq(0..=sent));
}

pub fn node_that_comes_back_with_nothing_is_told_from_the_one_before(kind: &impl Kind) {
    let (one, two) = pair(kind, &settings());
    send_on(&one.sender(2), 1, 5, 10);
    all_came(&two, 1, 5);
    let address = two.address.clone();
    drop(two);
    eventually("its end is noticed", || !one.is_up(2));
    assert_eq!(one.sender(2).send(A, b"nobody there"), Err(SendError::NotConnected));
    let two = Node::start_at(kind, &address, (2, 2), settings());
    two.transport.connect(NodeId(1), &one.address).unwrap();
    send_patiently(&one.sender(2), A, &numbered(5, 10));
    eventually("what is new comes", || two.collector.count() == 1);
    assert_eq!((number_of(&two.collector.of(A)[0]), one.collector.restarts(NodeId(2))), (5, 1));
    assert!(one.collector.has(NodeId(2), Event::Down));
}

pub fn misuse_is_refused_with_the_reason<K: Kind>(kind: &K) {
    let new = |id| kind.new_node(id, 1, settings());
    let one = new(1);
    assert!(matches!(one.bind("somewhere"), Err(BindError::Address { .. })));
    let address = one.bind(K::ADDRESS).unwrap();
    assert!(matches!(one.bind(K::ADDRESS), Err(BindError::Bound)));
    assert!(matches!(one.connect(NodeId(1), &address), Err(BindError::Itself(NodeId(1)))));
    assert_eq!(one.send(NodeId(9), A, b""), Err(SendError::Closed));
    let sender = one.connect(NodeId(2), &address).unwrap();
    assert_eq!(sender.send(A, b""), Err(SendError::NotConnected));
    one.close();
    assert_eq!(sender.send(A, b""), Err(SendError::Closed));
    assert!(matches!(one.bind(K::ADDRESS), Err(BindError::Closed)));
    one.close();
}

pub fn connections_that_are_cut_under_load_lose_and_double_nothing(kind: &impl Kind) {
    let (one, two) = two_of(kind, &settings());
    let proxy = Proxy::start(&two.address);
    join(&one, &two, Some(&proxy.address()));
    send_while_cut(&one, &two, &proxy, 20);
}

pub fn peer_that_falls_silent_is_noticed_and_met_again(kind: &impl Kind) {
    let settings = Settings {
        heartbeat: Duration::from_millis(20),
        silence_max: Duration::from_millis(200),
        ..settings()
    };
    let (one, two) = two_of(kind, &settings);
    let proxy = Proxy::start(&two.address);
    join(&one, &two, Some(&proxy.address()));
    proxy.swallow(true);
    send_patiently(&one.sender(2), A, &numbered(0, 100));
    eventually("both notice", || !one.is_up(2) && !two.is_up(1));
    assert_eq!(one.sender(2).send(A, b"nobody"), Err(SendError::NotConnected));
    proxy.swallow(false);
    eventually("what was taken before the silence comes", || two.numbers(A) == [0]);
    assert!(one.collector.has(NodeId(2), Event::Down));
}

pub fn idle_link_stays_up_by_its_heartbeats(kind: &impl Kind) {
    let settings = Settings {
        heartbeat: Duration::from_millis(10),
        silence_max: Duration::from_millis(300),
        ..settings()
    };
    assert!(2 * settings.silence_max < PATIENCE);
    let (one, two) = pair(kind, &settings);
    let start = std::time::Instant::now();
    eventually("for longer than a silence", || start.elapsed() > 2 * settings.silence_max);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
    assert!(one.is_up(2) && two.is_up(1));
}

pub fn unreachable_peer_is_told_of_once_while_attempts_go_on(kind: &impl Kind) {
    let settings = Settings { retries_max: 2, ..settings() };
    let (one, gone) = two_of(kind, &settings);
    let address = gone.address.clone();
    drop(gone);
    one.transport.connect(NodeId(2), &address).unwrap();
    eventually("it is called unreachable", || one.collector.has(NodeId(2), Event::Unreachable));
    let two = Node::start_at(kind, &address, (2, 1), settings);
    two.transport.connect(NodeId(1), &one.address).unwrap();
    eventually("it is met all the same", || one.is_up(2));
    assert_eq!(one.collector.times(NodeId(2), Event::Unreachable), 1);
}

pub fn address_beyond_loopback_is_refused_where_nobody_proves_anything<K: Kind>(kind: &K) {
    let one = kind.new_node(1, 1, settings());
    let exposed = one.bind("0.0.0.0:0").unwrap_err().to_string();
    assert!(exposed.starts_with("0.0.0.0:0 is beyond loopback"), "{exposed}");
    let exposed = one.connect(NodeId(2), "10.0.0.7:7100").unwrap_err().to_string();
    assert!(exposed.starts_with("10.0.0.7:7100 is beyond loopback"), "{exposed}");
    let address = one.bind(K::ADDRESS).unwrap();
    let taken = kind.new_node(2, 1, settings()).bind(&address);
    assert!(matches!(taken, Err(BindError::Listen { .. })));
}
