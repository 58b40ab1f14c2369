//! Nodes that prove to each other who they are, over real sockets, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::certificates::{Ca, client_config};
use common::node::{A, Node, all_came, join, send_on, send_while_cut, settings};
use common::proxy::Proxy;
use common::{PATIENCE, eventually, numbered, send_patiently};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use transport::tcp::Tcp;
use transport::wire::{Header, Hello, Kind, MAC_BYTES, ProofKind, ProofRecord, encode_header};
use transport::{Event, Incarnation, NodeId, Refusal, Secret, Security, Settings, Transport};

const SECRET: &str = "a secret that nobody guesses";

fn secret(text: &str, cluster: &str) -> Security {
    Security::Secret { secret: Secret::new(text).unwrap(), cluster: cluster.to_owned() }
}

fn right() -> Security {
    secret(SECRET, "east")
}

fn node(id: u64, security: &Security) -> Node {
    Node::start_secured(id, 1, settings(), security)
}

fn refused(node: &Node, why: Refusal) -> u64 {
    node.transport.security().refused(why)
}

/// Has node 1 dial node 2, which must come to nothing: both say why.
fn never_meet(one: &Security, two: &Security, at_one: &[Refusal], at_two: Refusal) {
    let (one, two) = (node(1, one), node(2, two));
    let sender = one.transport.connect(NodeId(2), &two.address).unwrap();
    two.transport.connect(NodeId(1), &one.address).unwrap();
    eventually("the second node refuses the first, again and again", || refused(&two, at_two) >= 2);
    eventually("the first says why", || at_one.iter().any(|why| refused(&one, *why) >= 1));
    assert!(sender.send(A, b"secret words").is_err());
    assert!(!one.is_up(2) && !two.is_up(1), "{:?} {:?}", one.transport.security(), two.transport.security());
    assert_eq!((one.transport.security().proved, two.transport.security().proved), (0, 0));
    assert_eq!(two.collector.count() + one.collector.count(), 0);
}

/// Two nodes that have met, the first of which sent something.
fn good_pair(security: &Security, settings: &Settings) -> (Node, Node) {
    let (one, two) = (
        Node::start_secured(1, 1, settings.clone(), security),
        Node::start_secured(2, 1, settings.clone(), security),
    );
    join(&one, &two, None);
    (one, two)
}

fn stranger(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What comes until the other side closes.
fn read_all(mut stream: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn nodes_with_the_same_secret_keep_order_over_connections_that_are_cut() {
    let (one, two) = (node(1, &right()), node(2, &right()));
    let proxy = Proxy::in_pieces(&two.address, 3_001);
    join(&one, &two, Some(&proxy.address()));
    send_while_cut(&one, &two, &proxy, 20);
    assert_eq!(two.transport.security().proved, two.transport.status(NodeId(1)).unwrap().connections);
}

#[test]
fn large_messages_survive_records_that_come_in_pieces() {
    let settings = Settings {
        message_size_bytes_max: 8 << 20,
        channel_window_bytes: 32 << 20,
        unacked_bytes_max: 32 << 20,
        ..settings()
    };
    let ca = Ca::new("ours");
    for security in [right(), ca.security(&ca, 2100)] {
        let (one, two) = (
            Node::start_secured(1, 1, settings.clone(), &security),
            Node::start_secured(2, 1, settings.clone(), &security),
        );
        let proxy = Proxy::in_pieces(&two.address, 16_385 + 5);
        join(&one, &two, Some(&proxy.address()));
        let sizes = [8 << 20, 0, 16_384, 3_000_001, 1, (64 << 10) + 1];
        for (number, size_bytes) in sizes.into_iter().enumerate() {
            send_patiently(&one.sender(2), A, &numbered(number as u64, size_bytes));
        }
        eventually("all came", || two.collector.count() == sizes.len());
        for (number, message) in two.collector.of(A).iter().enumerate() {
            assert!(*message == numbered(number as u64, sizes[number]), "message {number}");
        }
    }
}

#[test]
fn another_secret_or_cluster_is_refused_and_nothing_comes() {
    let at_one = [Refusal::PeerRefusesSecret];
    for other in [secret("another secret, which is wrong", "east"), secret(SECRET, "west")] {
        never_meet(&other, &right(), &at_one, Refusal::WrongSecret);
    }
}

#[test]
fn peer_that_refuses_this_node_is_called_unreachable_while_attempts_go_on() {
    let settings = Settings { retries_max: 2, ..settings() };
    let one = Node::start_secured(1, 1, settings, &secret("another secret, which is wrong", "east"));
    let two = node(2, &right());
    one.transport.connect(NodeId(2), &two.address).unwrap();
    eventually("it is called so", || one.collector.has(NodeId(2), Event::Unreachable));
    eventually("attempts go on", || refused(&one, Refusal::PeerRefusesSecret) > 5);
    assert_eq!(one.collector.times(NodeId(2), Event::Unreachable), 1);
}

#[test]
fn links_by_tls_move_between_loops_under_load() {
    const COUNT: u64 = 20_000;
    let (one, two) = good_pair(&right(), &Settings { threads: 2, ..settings() });
    std::thread::scope(|scope| {
        let sender = one.sender(2);
        scope.spawn(move || send_on(&sender, 1, COUNT, 200));
        for node in [&one, &two] {
            let connection = node.transport.connections()[0].clone();
            for _ in 0..10 {
                let to = 1 - connection.loop_index();
                node.transport.move_connection(connection.id(), to).unwrap();
                eventually("it moved", || connection.loop_index() == to);
            }
        }
    });
    all_came(&two, 1, COUNT);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
}

#[test]
fn security_on_one_side_alone_is_refused() {
    let here = [Refusal::Closed, Refusal::NotTls];
    never_meet(&Security::None, &right(), &here, Refusal::NotTls);
    never_meet(&right(), &Security::None, &here, Refusal::UnwantedTls);
}

#[test]
fn secret_and_certificates_do_not_meet() {
    let ca = Ca::new("ours");
    let certificates = ca.security(&ca, 2100);
    never_meet(
        &certificates,
        &right(),
        &[Refusal::ForeignCertificate, Refusal::UnfitCertificate],
        Refusal::PeerRefusesCertificate,
    );
    never_meet(&right(), &certificates, &[Refusal::PeerRefusesCertificate], Refusal::NoCertificate);
}

#[test]
fn certificates_of_the_same_ca_let_nodes_meet() {
    let ca = Ca::new("ours");
    let (one, two) = (node(1, &ca.security(&ca, 2100)), node(2, &ca.security(&ca, 2100)));
    join(&one, &two, None);
    send_on(&one.sender(2), 2, 100, 1_000);
    all_came(&two, 2, 100);
}

#[test]
fn certificate_of_another_ca_is_refused_also_if_that_has_the_same_name() {
    let ours = Ca::new("ours");
    for other in [Ca::new("theirs"), Ca::new("ours")] {
        let foreign = ours.security(&other, 2100);
        let right = ours.security(&ours, 2100);
        never_meet(&foreign, &right, &[Refusal::PeerRefusesCertificate], Refusal::ForeignCertificate);
        never_meet(&right, &foreign, &[Refusal::ForeignCertificate], Refusal::PeerRefusesCertificate);
    }
}

#[test]
fn expired_certificate_is_refused() {
    let ca = Ca::new("ours");
    let (expired, right) = (ca.security(&ca, 2020), ca.security(&ca, 2100));
    never_meet(&expired, &right, &[Refusal::PeerRefusesCertificate], Refusal::ExpiredCertificate);
    never_meet(&right, &expired, &[Refusal::ExpiredCertificate], Refusal::PeerRefusesCertificate);
}

#[test]
fn plaintext_is_closed_without_an_answer_and_the_nodes_go_on() {
    let (one, two) = good_pair(&right(), &settings());
    let requests: [&[u8]; 4] =
        [b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0; 100_000], b"EV\x01\x01\x38\0\0\0"];
    for (index, request) in requests.into_iter().enumerate() {
        let mut stream = stranger(&two);
        // It may be closed before all is written.
        let _ = stream.write_all(request);
        assert!(read_all(stream).is_empty(), "nothing is told to a stranger");
        eventually("it is counted", || refused(&two, Refusal::NotTls) == index as u64 + 1);
    }
    send_on(&one.sender(2), 1, 10, 10);
    all_came(&two, 1, 10);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
}

#[test]
fn bytes_of_a_good_connection_sent_again_are_refused() {
    let (one, two) = (node(1, &right()), node(2, &right()));
    let proxy = Proxy::start(&two.address);
    join(&one, &two, Some(&proxy.address()));
    send_on(&one.sender(2), 1, 5, 10);
    all_came(&two, 1, 5);
    let mut stream = stranger(&two);
    stream.write_all(&proxy.first_sent(64 << 10)).unwrap();
    read_all(stream);
    eventually("it is counted", || refused(&two, Refusal::BrokenTls) == 1);
    assert_eq!((two.collector.count(), two.transport.security().proved), (5, 1));
}

/// TLS with `node`, by who has no certificate and takes that of any server; `None` if that is refused at once.
fn client(
    versions: &[&'static SupportedProtocolVersion],
    node: &Node,
) -> Option<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from("node").unwrap();
    let mut tls = ClientConnection::new(client_config(versions), name).unwrap();
    let mut stream = stranger(node);
    tls.complete_io(&mut stream).ok().map(|_| StreamOwned::new(tls, stream))
}

#[test]
fn older_version_of_tls_is_refused_on_both_sides() {
    let ca = Ca::new("ours");
    let two = node(2, &ca.security(&ca, 2100));
    assert!(client(&[&TLS12], &two).is_none());
    eventually("it is counted", || refused(&two, Refusal::OldTls) == 1);

    let one = node(1, &right());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    one.transport.connect(NodeId(2), &listener.local_addr().unwrap().to_string()).unwrap();
    let own = rcgen::generate_simple_self_signed(["node".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
    assert!(tls.complete_io(&mut listener.accept().unwrap().0).is_err());
    eventually("it is counted", || refused(&one, Refusal::OldTls) >= 1);
}

#[test]
fn client_without_a_certificate_is_refused() {
    let ca = Ca::new("ours");
    let two = node(2, &ca.security(&ca, 2100));
    // Its handshake is over before the server has seen that nothing came.
    if let Some(stream) = client(&[&TLS13], &two) {
        assert!(read_all(stream).is_empty());
    }
    eventually("it is counted", || refused(&two, Refusal::NoCertificate) == 1);
}

#[test]
fn peer_that_stalls_is_dropped_after_the_time_wherever_it_stalls() {
    let patient = Settings { handshake_timeout: Duration::from_millis(300), ..settings() };
    let (one, two) = good_pair(&right(), &patient);
    // A record's header and a part of it.
    let starts: [&[u8]; 3] = [b"", b"\x16", b"\x16\x03\x01\x02\0\x01\0"];
    for (index, start) in starts.into_iter().enumerate() {
        let mut stream = stranger(&two);
        stream.write_all(start).unwrap();
        assert!(read_all(stream).is_empty());
        eventually("it is counted", || refused(&two, Refusal::TooSlow) == index as u64 + 1);
    }
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
}

#[test]
fn tls_alone_proves_nothing() {
    let patient = Settings { handshake_timeout: Duration::from_millis(300), ..settings() };
    let two = Node::start_secured(2, 1, patient, &right());
    two.transport.connect(NodeId(1), "127.0.0.1:1").unwrap();
    let silent = client(&[&TLS13], &two).expect("certificates are not looked at");
    assert!(read_all(silent).is_empty());
    eventually("it is counted", || refused(&two, Refusal::TooSlow) == 1);
    let hello = Hello {
        node: 1,
        incarnation: 1,
        to: 2,
        knows: None,
        channel_window_bytes: 2 << 20,
        link_window_bytes: 32 << 20,
        message_bytes_max: 1 << 20,
        payload_bytes_max: 65_600,
    };
    let header = Header { kind: Kind::Hello, sequence: 0, ack: 0, credits: 0 };
    let guess = ProofRecord { kind: ProofKind::Dialer, node: 1, to: 2, mac: [0; MAC_BYTES] };
    for (proof, why, answer) in [
        (vec![], Refusal::NoProof, vec![]),
        (guess.encode().to_vec(), Refusal::WrongSecret, ProofRecord::REFUSED.encode().to_vec()),
    ] {
        let mut stream = client(&[&TLS13], &two).unwrap();
        let hello = [&encode_header(&header, &hello.encode())[..], &hello.encode()].concat();
        stream.write_all(&[proof, hello].concat()).unwrap();
        stream.flush().unwrap();
        assert_eq!(read_all(stream), answer);
        eventually("it is counted", || refused(&two, why) == 1);
    }
    assert!(!two.is_up(1) && two.transport.security().proved == 0);
}

#[test]
fn handshake_that_never_ends_is_cut_off_by_its_length() {
    let two = node(2, &right());
    let mut stream = stranger(&two);
    // A client hello of 64 KiB, in records of 16 KiB.
    let mut record = [&b"\x16\x03\x01\x40\0"[..], &[0; 16 << 10]].concat();
    record[5..9].copy_from_slice(b"\x01\0\xFF\xFF");
    for _ in 0..4 {
        let _ = stream.write_all(&record);
        record[5..9].fill(0);
    }
    read_all(stream);
    eventually("it is counted", || refused(&two, Refusal::TooMuch) == 1);
}

#[test]
fn two_hundred_connections_without_a_word_do_not_keep_a_node_out() {
    let (one, two) = (node(1, &right()), node(2, &right()));
    let half_open: Vec<TcpStream> = (0..200).map(|_| stranger(&two)).collect();
    eventually("most are closed", || refused(&two, Refusal::TooMany) == 200 - 64);
    assert_eq!(two.transport.security().waiting, 64);
    join(&one, &two, None);
    send_on(&one.sender(2), 1, 10, 10);
    all_came(&two, 1, 10);
    drop(half_open);
    eventually("none waits", || two.transport.security().waiting == 0);
}

#[test]
fn addresses_beyond_loopback_are_for_nodes_that_prove_who_they_are() {
    let ca = Ca::new("ours");
    for security in [right(), ca.security(&ca, 2100)] {
        let new = |id| {
            let clock = Arc::new(clock::SystemClock);
            let tcp = Tcp::new(NodeId(id), Incarnation::new(1), settings(), clock).unwrap();
            tcp.secured(&security).unwrap()
        };
        let one = new(1);
        let address = one.bind("0.0.0.0:0").unwrap();
        assert!(one.connect(NodeId(2), "10.0.0.7:7100").is_ok());
        assert!(address.starts_with("0.0.0.0:"), "{address}");
    }
}
