//! Sessions in memory: what leaves, when, and what comes, however it is cut.

use std::io::Write as _;

use proptest::prelude::*;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tls::{ClientCertificates, ClientFiles, PemFile, ServerFiles, Versions};

use super::*;

/// The two ends of a session whose handshake is done.
fn pair() -> (Tls, ClientConnection) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let file = |text: String| PemFile { path: String::new(), text };
    let files = ServerFiles {
        certificate: file(own.cert.pem()),
        key: file(own.signing_key.serialize_pem()),
        ca: None,
        clients: ClientCertificates::No,
        versions: Versions::Both,
        resumes: true,
    };
    let trusting = ClientFiles { trusts_anybody: true, ..ClientFiles::default() };
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::new(trusting.config().expect("right")), name).expect("begun");
    let mut server = ServerConnection::new(Arc::new(files.config().expect("right"))).expect("begun");
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("into memory");
        server.read_tls(&mut bytes.as_slice()).expect("room");
        server.process_new_packets().expect("right");
        bytes.clear();
        server.write_tls(&mut bytes).expect("into memory");
        client.read_tls(&mut bytes.as_slice()).expect("room");
        client.process_new_packets().expect("right");
    }
    (Tls::new(server), client)
}

/// Reads what `bytes` say to `client`.
fn read(client: &mut ClientConnection, mut bytes: &[u8], into: &mut Vec<u8>) {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("room");
        client.process_new_packets().expect("right");
        let _ = client.reader().read_to_end(into);
    }
}

/// What an output is told.
#[derive(Clone, Debug)]
enum Act {
    /// Bytes of its own, or shared ones before a byte of its own, which wait for the ticket.
    Reply { length: usize, is_shared: bool, ticket: u64 },
    /// Tickets up to this are released.
    Release(u64),
    /// The socket takes so many bytes.
    Take(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (1..40_000_usize, any::<bool>(), 0..30_u64).prop_map(|(length, is_shared, ticket)| Act::Reply {
            length,
            is_shared,
            ticket
        }),
        (0..30_u64).prop_map(Act::Release),
        (1..100_000_usize).prop_map(Act::Take),
    ];
    prop::collection::vec(act, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// What the client reads is what was appended, in order, and nothing of it before its ticket was released.
    #[test]
    fn client_reads_what_was_released_in_order(acts in acts()) {
        let (mut tls, mut client) = pair();
        let (mut output, mut pool) = (Output::default(), Pool::default());
        let (mut appended, mut got) = (Vec::new(), Vec::new());
        // Where what waits for a ticket begins: a later reply waits for those before it as well.
        let mut waits: Vec<(usize, u64)> = Vec::new();
        let (mut released, mut highest) = (0, 0);
        for act in acts.into_iter().chain([Act::Release(30)]).chain((0..60).map(|_| Act::Take(1 << 20))) {
            match act {
                Act::Reply { length, is_shared, ticket } => {
                    output.begin_turn(&mut pool, Ticket::of(released), true);
                    waits.push((appended.len(), ticket));
                    let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + appended.len()) as u8).collect();
                    appended.extend_from_slice(&bytes);
                    if is_shared {
                        let at = output.buffer().len();
                        output.buffer().push(b'.');
                        appended.push(b'.');
                        output.attach(at, Arc::new(bytes), 0..length);
                    } else {
                        output.buffer().extend_from_slice(&bytes);
                    }
                    output.hold(Ticket::of(ticket));
                }
                Act::Release(ticket) => released = released.max(ticket),
                Act::Take(count) => {
                    tls.seal_next(&mut output, Ticket::of(released), &mut pool).expect("keys are fresh");
                    prop_assert!(tls.unsent().len() < SEALED_BYTES_MAX + 4 * 64, "{} B", tls.unsent().len());
                    highest = highest.max(released);
                    let piece = tls.unsent()[..count.min(tls.unsent().len())].to_vec();
                    read(&mut client, &piece, &mut got);
                    tls.advance(piece.len());
                }
            }
            let allowed = waits.iter().find(|(_, ticket)| *ticket > released).map_or(appended.len(), |(at, _)| *at);
            prop_assert!(got.len() <= allowed, "{} of {allowed} B came", got.len());
        }
        prop_assert!(got == appended, "{} of {} B", got.len(), appended.len());
        tls.settle(&mut pool);
        prop_assert_eq!(tls.kept_bytes() < 12 << 10, true);
    }

    /// What the input gets is what the client sent, however it is cut.
    #[test]
    fn input_is_what_the_client_sent(
        records in prop::collection::vec(1..30_000_usize, 1..20),
        segments in prop::collection::vec(1..20_000_usize, 1..20),
    ) {
        let (mut tls, mut client) = pair();
        let (mut input, mut pool) = (Input::new(usize::MAX), Pool::default());
        let (mut sent, mut sealed) = (Vec::new(), Vec::new());
        for length in records {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 11 + sent.len()) as u8).collect();
            client.writer().write_all(&bytes).expect("room");
            while client.wants_write() {
                client.write_tls(&mut sealed).expect("into memory");
            }
            sent.extend(bytes);
        }
        client.send_close_notify();
        client.write_tls(&mut sealed).expect("into memory");
        let (mut rest, mut lengths) = (sealed.as_slice(), segments.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*lengths.next().expect("endless")));
            prop_assert!(!tls.has_ended());
            tls.open(piece, &mut input, &mut pool).expect("right");
            rest = after;
        }
        prop_assert!(tls.has_ended());
        prop_assert!(input.bytes() == sent);
    }
}
