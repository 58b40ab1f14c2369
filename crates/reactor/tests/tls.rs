//! Connections with TLS, through real sockets: what holds of plain ones holds of them, and handshakes are bounded.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod line;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use line::{Client, Message, PATIENCE, Server, eventually, options, under_each_connector};
use proptest::prelude::*;
use reactor::{CloseReason, Connection, Connector, Handle, Limits, Options, TlsOptions};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use tls::{ClientCertificates, ClientFiles, PemFile, ServerFiles, Versions};

under_each_connector! {
    pipeline_of_many_lines_is_answered_in_order,
    handshake_and_request_in_single_bytes_are_answered,
    request_that_comes_with_the_end_of_the_handshake_is_answered,
    held_replies_leave_when_their_ticket_is_released_and_are_not_sealed_before,
    large_replies_are_sealed_as_they_are_taken,
    long_requests_are_taken_whole,
    parked_connection_goes_on_with_its_input_after_the_message,
    end_is_said_by_whoever_closes,
    client_that_ends_without_a_word_has_ended_as_any,
    refused_client_reads_why,
    broken_record_ends_the_connection_and_not_others,
    client_that_does_not_read_a_huge_reply_is_cut,
    one_too_many_is_told_so,
    shutdown_sends_what_is_released_and_ends,
    kept_bytes_of_an_idle_connection_are_few,
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// An authority, for certificates of servers and clients.
struct Authority {
    key: rcgen::KeyPair,
    params: rcgen::CertificateParams,
    pem: PemFile,
}

fn file(path: &str, text: String) -> PemFile {
    PemFile { path: path.to_owned(), text }
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = file("/ca.pem", params.self_signed(&key).unwrap().pem());
        Self { key, params, pem }
    }

    /// A certificate for `name`, and its key.
    fn sign(&self, name: &str) -> (PemFile, PemFile) {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        let signed = params.signed_by(&key, &issuer).unwrap();
        (file("/own.pem", signed.pem()), file("/own.key", key.serialize_pem()))
    }

    fn files(&self) -> ServerFiles {
        let (certificate, key) = self.sign("localhost");
        ServerFiles {
            certificate,
            key,
            ca: Some(self.pem.clone()),
            clients: ClientCertificates::No,
            versions: Versions::Both,
            resumes: true,
        }
    }

    fn client(&self, identity: Option<(PemFile, PemFile)>) -> Arc<ClientConfig> {
        let files = ClientFiles { ca: Some(self.pem.clone()), identity, trusts_anybody: false };
        Arc::new(files.config().unwrap())
    }
}

fn tls_options(files: &ServerFiles) -> TlsOptions {
    TlsOptions {
        config: Arc::new(files.config().unwrap()),
        handshake_timeout: Duration::from_secs(10),
        handshakes_max: 64,
    }
}

/// A server with TLS alone, and a client's way to trust it.
struct Secure {
    server: Server,
    authority: Authority,
    client: Arc<ClientConfig>,
}

impl Secure {
    fn start(options: Options) -> Self {
        Self::start_with(options, |_| {}, |_| {})
    }

    fn start_with(
        options: Options,
        files: impl FnOnce(&mut ServerFiles),
        tls: impl FnOnce(&mut TlsOptions),
    ) -> Self {
        let authority = Authority::new();
        let mut own = authority.files();
        files(&mut own);
        let mut begins = tls_options(&own);
        tls(&mut begins);
        let tls_tcp = vec!["127.0.0.1:0".parse().unwrap()];
        let server = Server::start(Options { tls_tcp, tls: Some(begins), ..options });
        let client = authority.client(None);
        Self { server, authority, client }
    }

    fn handle(&self) -> &Handle<line::Lines> {
        &self.server.handle
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.handle().tls_addresses()[0]).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    fn stream(&self, config: &Arc<ClientConfig>) -> TlsStream {
        StreamOwned::new(session(config), self.socket())
    }

    fn connect(&self) -> Client<TlsStream> {
        Client::new(self.stream(&self.client))
    }

    fn connect_known(&self) -> (Client<TlsStream>, Arc<Connection>) {
        let mut client = self.connect();
        assert_eq!(client.ask("echo here"), "here");
        let known = self.known(&client.stream().sock);
        eventually("all is sent", || known.output_bytes() == 0);
        (client, known)
    }

    fn known(&self, socket: &TcpStream) -> Arc<Connection> {
        let own = socket.local_addr().unwrap().to_string();
        let connections = self.handle().connections();
        connections.into_iter().find(|connection| connection.peer().to_string() == own).unwrap()
    }

    fn failed(&self, name: &str) -> u64 {
        self.handle().handshake_stats().failed().into_iter().find(|(other, _)| *other == name).unwrap().1
    }
}

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// What `session` has to send.
fn sealed(session: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn pipeline_of_many_lines_is_answered_in_order(connector: Connector) {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let secure = Secure::start_with(options(connector, 2), |files| files.versions = versions, |_| {});
        let mut client = secure.connect();
        let sent: String = (0..5_000).map(|number| format!("echo {number}\n")).collect();
        client.send(&sent);
        for number in 0..5_000 {
            client.expect(&number.to_string());
        }
        assert!(secure.known(&client.stream().sock).is_tls());
    }
}

fn handshake_and_request_in_single_bytes_are_answered(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let (mut session, mut socket) = (session(&secure.client), secure.socket());
    let mut drip = |session: &mut ClientConnection| {
        for byte in sealed(session) {
            socket.write_all(&[byte]).unwrap();
        }
        session.wants_read().then(|| session.read_tls(&mut socket).unwrap());
        session.process_new_packets().unwrap();
    };
    while session.is_handshaking() {
        drip(&mut session);
    }
    session.writer().write_all(b"echo drop by drop\n").unwrap();
    let mut answer = Vec::new();
    while answer.len() < 13 {
        drip(&mut session);
        let _ = session.reader().read_to_end(&mut answer);
    }
    assert_eq!(answer, b"drop by drop\n");
}

fn request_that_comes_with_the_end_of_the_handshake_is_answered(connector: Connector) {
    let secure = Secure::start(options(connector, 2));
    for count in [1, 1_000] {
        let (mut session, mut socket) = (session(&secure.client), secure.socket());
        socket.write_all(&sealed(&mut session)).unwrap();
        while session.is_handshaking() {
            session.read_tls(&mut socket).unwrap();
            session.process_new_packets().unwrap();
        }
        // The last message of the handshake is among it.
        session.writer().write_all("echo early\n".repeat(count).as_bytes()).unwrap();
        socket.write_all(&sealed(&mut session)).unwrap();
        let mut client = Client::new(StreamOwned::new(session, socket));
        for _ in 0..count {
            client.expect("early");
        }
        assert_eq!(client.ask("echo later"), "later");
    }
}

fn held_replies_leave_when_their_ticket_is_released_and_are_not_sealed_before(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let (mut client, connection) = secure.connect_known();
    let before = connection.bytes_out();
    client.send("hold 5 five\n");
    eventually("a reply is held", || connection.output_bytes() == 5);
    client.send("hold 9 nine\necho tail\n");
    eventually("three replies are held", || connection.output_bytes() == 15);
    secure.server.release(4);
    thread::park_timeout(Duration::from_millis(20));
    assert_eq!((connection.bytes_out(), connection.output_bytes()), (before, 15));
    secure.server.release(5);
    client.expect("five");
    eventually("one has left", || connection.output_bytes() == 10);
    secure.server.release(9);
    client.expect("nine");
    client.expect("tail");
}

fn large_replies_are_sealed_as_they_are_taken(connector: Connector) {
    const BYTES: usize = 40_000_000;
    let secure = Secure::start(options(connector, 2));
    let (mut client, connection) = secure.connect_known();
    client.send(&format!("share {BYTES}\necho after\nbig {BYTES}\necho last\n"));
    eventually("a part is there", || connection.unsent_bytes() > 0);
    thread::park_timeout(Duration::from_millis(50));
    let most = connection.kept_bytes();
    assert!(most < 256 << 10, "{most} B are kept for a reply of {BYTES}");
    for next in ["after", "last"] {
        assert_eq!(client.line().unwrap().len(), BYTES);
        client.expect(next);
    }
    eventually("all is sent", || connection.output_bytes() == 0);
}

fn long_requests_are_taken_whole(connector: Connector) {
    let secure = Secure::start(options(connector, 2));
    let mut client = secure.connect();
    for length in [4_090, 16_384, 100_000, 3_000_000] {
        let text = "y".repeat(length);
        assert!(client.ask(&format!("echo {text}")) == text, "{length}");
    }
}

fn parked_connection_goes_on_with_its_input_after_the_message(connector: Connector) {
    let secure = Secure::start(options(connector, 2));
    let (mut client, connection) = secure.connect_known();
    client.send("park\necho after\n");
    eventually("it parks", || connection.commands() == 2);
    client.send("echo more\n");
    assert!(secure.handle().post_to(&connection, Message::Resume("resumed".to_owned())));
    client.expect("resumed");
    client.expect("after");
    client.expect("more");
}

fn end_is_said_by_whoever_closes(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let mut client = secure.connect();
    client.send("echo last\nclose\n");
    client.expect("last");
    // An end that was not said is an error of the library.
    assert_eq!(client.line(), None);
    let (mut client, connection) = secure.connect_known();
    client.send("echo one\necho two\n");
    client.stream_mut().conn.send_close_notify();
    client.stream_mut().flush().unwrap();
    for line in ["one", "two"] {
        client.expect(line);
    }
    assert_eq!(client.line(), None);
    assert_eq!(secure.server.close_reason(connection.id()), CloseReason::Peer);
}

fn client_that_ends_without_a_word_has_ended_as_any(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let (mut client, connection) = secure.connect_known();
    client.send("echo one\n");
    client.stream().sock.shutdown(Shutdown::Write).unwrap();
    client.expect("one");
    assert_eq!(client.line(), None);
    assert_eq!(secure.server.close_reason(connection.id()), CloseReason::Peer);
}

fn refused_client_reads_why(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let mut client = secure.connect();
    client.send("refuse too long\n");
    client.send(&"z".repeat(1 << 20));
    client.expect("too long");
    assert_eq!(client.line(), None);
}

fn broken_record_ends_the_connection_and_not_others(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let mut other = secure.connect();
    assert_eq!(other.ask("echo here"), "here");
    let (client, connection) = secure.connect_known();
    let mut socket = &client.stream().sock;
    socket.write_all(&[0x17, 3, 3, 0, 20]).unwrap();
    socket.write_all(&[7; 20]).unwrap();
    eventually("it ends", || connection.is_closed());
    assert_eq!(other.ask("echo still here"), "still here");
}

fn client_that_does_not_read_a_huge_reply_is_cut(connector: Connector) {
    let limits = Limits { output_bytes_max: 8 << 20, ..Limits::default() };
    let secure = Secure::start(Options { limits, ..options(connector, 1) });
    let (mut client, connection) = secure.connect_known();
    client.send("big 60000000\n");
    assert_eq!(secure.server.close_reason(connection.id()), CloseReason::OutputLimit);
    // What is cut is not said to be all.
    let error = client.stream_mut().read_to_end(&mut Vec::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
}

fn one_too_many_is_told_so(connector: Connector) {
    let secure = Secure::start(Options { connections_max: 1, ..options(connector, 1) });
    let (mut first, _) = secure.connect_known();
    let mut second = secure.connect();
    second.expect("too many");
    assert_eq!(second.line(), None);
    assert_eq!(secure.handle().accept_stats().refused(), 1);
    assert_eq!(first.ask("echo still here"), "still here");
}

fn shutdown_sends_what_is_released_and_ends(connector: Connector) {
    let secure = Secure::start(options(connector, 2));
    let (mut client, connection) = secure.connect_known();
    client.send("hold 5 five\n");
    eventually("a reply is held", || connection.output_bytes() == 5);
    secure.handle().shutdown();
    secure.server.release(5);
    client.expect("five");
    assert_eq!(client.line(), None);
}

fn kept_bytes_of_an_idle_connection_are_few(connector: Connector) {
    let secure = Secure::start(options(connector, 1));
    let (mut client, connection) = secure.connect_known();
    let text = "k".repeat(200_000);
    assert!(client.ask(&format!("echo {text}")) == text);
    let of_thread = if connector == Connector::Threads { 24 << 10 } else { 0 };
    eventually("all is given back", || connection.kept_bytes() < of_thread + (12 << 10));
    // Most of a record, of which nothing can be said: it counts.
    let mut session_bytes = Vec::new();
    client.stream_mut().conn.writer().write_all(&[b'p'; 16 << 10]).unwrap();
    client.stream_mut().conn.write_tls(&mut session_bytes).unwrap();
    (&client.stream().sock).write_all(&session_bytes[..16_000]).unwrap();
    eventually("it counts", || connection.kept_bytes() > of_thread + (16 << 10));
}

macro_rules! under_both_drivers {
    ($($name:ident),+ $(,)?) => {
        mod moving_epoll { $(#[test] fn $name() { super::$name(reactor::Connector::Epoll); })+ }
        mod moving_uring { $(#[test] fn $name() { super::$name(reactor::Connector::Uring); })+ }
    };
}

under_both_drivers! {
    moves_under_pipelined_load_lose_and_double_nothing,
    unsent_output_moves_with_a_client_that_does_not_read,
}

fn moves_under_pipelined_load_lose_and_double_nothing(connector: Connector) {
    let secure = Secure::start(options(connector, 3));
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let connections: Vec<_> = (0..6)
            .map(|_| {
                let (mut client, connection) = secure.connect_known();
                let enough = &enough;
                scope.spawn(move || client.ask_until(enough, 0));
                connection
            })
            .collect();
        scope.spawn(|| {
            let mut ticket = 0;
            while !enough.load(Ordering::Relaxed) {
                ticket += 1_000;
                secure.server.release(ticket);
                thread::yield_now();
            }
            secure.server.release(u64::from(u32::MAX));
        });
        let moves = || connections.iter().map(|connection| connection.moves()).sum::<u64>();
        let mut rounds = 0..100_000;
        while moves() < 3_000 && rounds.next().is_some() {
            for (index, connection) in connections.iter().enumerate() {
                let _ = secure.handle().move_connection(connection.id(), (rounds.start + index) % 3);
            }
            thread::park_timeout(Duration::from_micros(500));
        }
        enough.store(true, Ordering::Relaxed);
        assert!(moves() >= 3_000, "{}", moves());
    });
}

fn unsent_output_moves_with_a_client_that_does_not_read(connector: Connector) {
    let secure = Secure::start(options(connector, 2));
    let (mut client, connection) = secure.connect_known();
    client.send("big 20000000\necho after\n");
    eventually("it does not read", || connection.unsent_bytes() > 1_000_000);
    for to in [1, 0, 1] {
        secure.handle().move_connection(connection.id(), to).unwrap();
        eventually("it moved", || connection.loop_index() == to);
    }
    assert_eq!(client.line().unwrap().len(), 20_000_000);
    client.expect("after");
}

#[test]
fn session_is_taken_up_again_with_both_versions_and_not_after_new_keys() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let secure =
            Secure::start_with(options(Connector::Epoll, 1), |files| files.versions = versions, |_| {});
        let kind = || {
            let mut client = secure.connect();
            assert_eq!(client.ask("echo here"), "here");
            client.stream().conn.handshake_kind().unwrap()
        };
        assert_ne!(kind(), HandshakeKind::Resumed);
        assert_eq!(kind(), HandshakeKind::Resumed);
        assert_eq!(secure.handle().handshake_stats().resumed(), 1);
        let mut files = secure.authority.files();
        files.versions = versions;
        secure.handle().set_tls(tls_options(&files));
        assert_ne!(kind(), HandshakeKind::Resumed);
        assert_eq!(secure.handle().handshake_stats().done(), 3);
    }
}

#[test]
fn new_files_are_for_new_connections_and_old_ones_go_on() {
    let secure = Secure::start(options(Connector::Epoll, 1));
    let (mut client, _) = secure.connect_known();
    let shown = |client: &Client<TlsStream>| client.stream().conn.peer_certificates().unwrap()[0].clone();
    let former = shown(&client);
    secure.handle().set_tls(tls_options(&secure.authority.files()));
    assert_eq!(client.ask("echo still here"), "still here");
    let mut newer = secure.connect();
    assert_eq!(newer.ask("echo new"), "new");
    assert_ne!(shown(&newer), former);
    // Another authority's clients do not trust it, and say so.
    let stranger = Authority::new().client(None);
    let error = secure.stream(&stranger).write_all(b"echo x\n").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    eventually("it is counted", || secure.failed("refused") == 1);
}

#[test]
fn certificate_of_a_client_is_asked_for_checked_and_names_it() {
    for (asked, without) in [(ClientCertificates::Optional, true), (ClientCertificates::Required, false)] {
        for versions in [Versions::Tls12, Versions::Tls13] {
            let change = |files: &mut ServerFiles| (files.clients, files.versions) = (asked, versions);
            let secure = Secure::start_with(options(Connector::Epoll, 1), change, |_| {});
            let ann = secure.authority.client(Some(secure.authority.sign("ann")));
            let ask = |config: &Arc<ClientConfig>| {
                let mut stream = secure.stream(config);
                let done = stream.write_all(b"echo here\n").and_then(|()| stream.read_exact(&mut [0; 5]));
                done.map(|()| secure.known(&stream.sock).peer_name().map(ToString::to_string))
            };
            assert_eq!(ask(&ann).unwrap().as_deref(), Some("ann"));
            // Also when the session is taken up again.
            assert_eq!(ask(&ann).unwrap().as_deref(), Some("ann"));
            let nobody = ask(&secure.client);
            assert_eq!(nobody.is_ok(), without, "{nobody:?}");
            assert_eq!(nobody.ok().flatten(), None);
            let other = Authority::new().sign("mallory");
            ask(&secure.authority.client(Some(other))).unwrap_err();
            eventually("it is counted", || secure.failed("certificate") == u64::from(!without) + 1);
        }
    }
}

#[test]
fn handshakes_that_fail_are_counted_by_reason_and_leave_nothing() {
    let secure = Secure::start_with(
        options(Connector::Epoll, 1),
        |_| {},
        |tls| tls.handshake_timeout = Duration::from_millis(300),
    );
    let (mut bystander, _) = secure.connect_known();
    let mut plain = secure.socket();
    plain.write_all(b"PING\r\n").unwrap();
    let mut garbage = secure.socket();
    garbage.write_all(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    let mut cut = secure.socket();
    cut.write_all(&sealed(&mut session(&secure.client))[..40]).unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    let mut slow = secure.socket();
    slow.write_all(&sealed(&mut session(&secure.client))[..40]).unwrap();
    for (mut socket, name) in [(plain, "not_tls"), (garbage, "protocol"), (cut, "cut"), (slow, "timed_out")] {
        let _ = socket.read_to_end(&mut Vec::new());
        eventually(name, || secure.failed(name) == 1);
    }
    let mut endless = secure.socket();
    let header = [0x16, 3, 3, 0x40, 0, 1, 0, 0xff, 0xff];
    let _ = endless.write_all(&header);
    let _ = endless.write_all(&vec![0; 200_000]);
    let _ = endless.read_to_end(&mut Vec::new());
    eventually("it is over", || secure.handle().handshake_stats().under_way() == 0);
    assert_eq!(bystander.ask("echo still here"), "still here");
    assert_eq!(secure.handle().handshake_stats().done(), 1);
    assert_eq!(secure.handle().connection_count(), 1);
}

#[test]
fn silent_clients_take_no_place_for_long_from_those_who_speak() {
    let secure = Secure::start_with(options(Connector::Epoll, 1), |_| {}, |tls| tls.handshakes_max = 4);
    let silent: Vec<_> = (0..8).map(|_| secure.socket()).collect();
    eventually("all places are taken", || secure.handle().handshake_stats().under_way() == 4);
    let mut client = secure.connect();
    assert_eq!(client.ask("echo here"), "here");
    assert!(secure.failed("crowded") > 0);
    assert!(secure.handle().handshake_stats().under_way() <= 4);
    drop(silent);
    eventually("they are gone", || secure.handle().handshake_stats().under_way() == 0);
}

#[test]
fn many_clients_at_once_are_all_served() {
    let secure = Secure::start_with(options(Connector::Epoll, 2), |_| {}, |tls| tls.handshakes_max = 16);
    thread::scope(|scope| {
        for thread in 0..8 {
            let secure = &secure;
            scope.spawn(move || {
                let mut clients: Vec<_> = (0..40).map(|_| secure.connect()).collect();
                for client in &mut clients {
                    assert_eq!(client.ask(&format!("echo {thread}")), thread.to_string());
                }
            });
        }
    });
    assert_eq!(secure.handle().handshake_stats().done(), 320);
}

/// Sends what a client's session seals in pieces of these lengths, over and over.
fn send_in_pieces(socket: &mut TcpStream, bytes: &[u8], lengths: &[usize]) {
    let (mut at, mut next) = (0, lengths.iter().cycle());
    while at < bytes.len() {
        let end = bytes.len().min(at + next.next().unwrap());
        socket.write_all(&bytes[at..end]).unwrap();
        at = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// However requests are cut into records, and records into segments, every one is answered once and in order.
    #[test]
    fn fragments_of_any_size_make_the_same_stream(
        connector in prop_oneof![Just(Connector::Epoll), Just(Connector::Uring), Just(Connector::Threads)],
        records in prop::collection::vec(1_usize..20_000, 1..6),
        segments in prop::collection::vec(1_usize..5_000, 1..6),
        texts in prop::collection::vec(0_usize..9_000, 1..30),
    ) {
        let secure = Secure::start(options(connector, 2));
        let mut stream = secure.stream(&secure.client);
        stream.write_all(b"echo begin\n").unwrap();
        stream.read_exact(&mut [0; 6]).unwrap();
        let texts: Vec<String> =
            texts.iter().enumerate().map(|(number, length)| format!("{number}:{}", "t".repeat(*length))).collect();
        let lines: String = texts.iter().map(|text| format!("echo {text}\n")).collect();
        let (mut at, mut next) = (0, records.iter().cycle());
        let mut bytes = Vec::new();
        while at < lines.len() {
            let end = lines.len().min(at + next.next().unwrap());
            stream.conn.writer().write_all(&lines.as_bytes()[at..end]).unwrap();
            bytes.extend(sealed(&mut stream.conn));
            at = end;
        }
        let mut socket = stream.sock.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| send_in_pieces(&mut socket, &bytes, &segments));
            let mut client = Client::new(stream);
            for text in &texts {
                assert!(client.line().as_ref() == Some(text), "{}", text.len());
            }
        });
    }
}
