//! Servers that are broken, or that somebody has put in a database's place: what they can make this process hold, or tell.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "tests play servers")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sql::mariadb::MariaDb;
use sql::postgres::Postgres;
use sql::tls::{TlsMode, TlsOptions};
use sql::{Auth, Database, DatabaseOptions, Drivers};
use txn::id::NodeName;

/// A server that treats each connection alike.
struct Hostile {
    port: u16,
    /// The most bytes that a connection took.
    taken: Arc<AtomicU64>,
    /// What connections have sent, one after the other.
    heard: Arc<Mutex<Vec<u8>>>,
    connections: Arc<AtomicU64>,
}

impl Hostile {
    /// `play` may send until it fails; returns the bytes that were taken.
    fn start(play: impl Fn(&mut TcpStream) -> u64 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (taken, heard, connections) = (Arc::default(), Arc::default(), Arc::default());
        let server = Self { port, taken, heard, connections };
        let (taken, heard) = (Arc::clone(&server.taken), Arc::clone(&server.heard));
        let connections = Arc::clone(&server.connections);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                taken.fetch_max(play(&mut stream), Ordering::SeqCst);
                // What it says to that: until it closes, or says nothing more.
                let mut said = vec![0; 4_096];
                while let Ok(len @ 1..) = stream.read(&mut said) {
                    heard.lock().unwrap().extend_from_slice(&said[..len]);
                }
                connections.fetch_add(1, Ordering::SeqCst);
            }
        });
        server
    }

    fn options(&self, scheme: &str) -> DatabaseOptions {
        let url = format!("{scheme}://u:s3cret@127.0.0.1:{}/d", self.port);
        DatabaseOptions {
            connect_timeout: PATIENCE,
            statement_timeout: PATIENCE,
            ..DatabaseOptions::new("db", &url, NodeName::new("n").unwrap())
        }
    }

    /// Has it asked, at least once, and returns why the database is not ready.
    fn trouble(&self, options: DatabaseOptions) -> String {
        let drivers = Drivers::start().unwrap();
        let database: Arc<dyn Database> = match options.url.starts_with("postgres") {
            true => Postgres::start(&options, &drivers).unwrap(),
            false => MariaDb::start(options, &drivers).unwrap(),
        };
        let begun = Instant::now();
        while self.connections.load(Ordering::SeqCst) == 0 || waits(&database) {
            assert!(begun.elapsed() < PATIENCE, "nothing came of it: {:?}", database.ready());
            std::thread::yield_now();
        }
        let trouble = database.ready().unwrap_err().to_string();
        database.close();
        trouble
    }

    fn has_heard(&self, what: &[u8]) -> bool {
        self.heard.lock().unwrap().windows(what.len()).any(|it| it == what)
    }
}

fn waits(database: &Arc<dyn Database>) -> bool {
    database.ready().is_err_and(|why| {
        why.to_string().contains("not connected yet") || why.to_string().contains("has not connected")
    })
}

/// Sends `message` again and again; how many bytes were taken.
fn flood(stream: &mut TcpStream, message: &[u8]) -> u64 {
    let mut taken = 0;
    while taken < FLOOD_BYTES && stream.write_all(message).is_ok() {
        taken += message.len() as u64;
    }
    taken
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], body].concat()
}

fn authentication(code: u32) -> Vec<u8> {
    message(b'R', &code.to_be_bytes())
}

/// Reads the message that a client begins with.
fn greeted(stream: &mut TcpStream) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut rest).unwrap();
}

/// A packet of MariaDB.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], body].concat()
}

/// What MariaDB begins with, as far as a client looks.
fn handshake() -> Vec<u8> {
    let mut body = b"\x0a5.5.5-10.11.0-MariaDB\0".to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend(b"12345678\0");
    // PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, CONNECT_WITH_DB, and no LONG_PASSWORD.
    body.extend([0x08, 0x82, 33, 2, 0, 0x08, 0, 21]);
    body.extend([0; 10]);
    body.extend(b"123456789012\0mysql_native_password\0");
    packet(0, &body)
}

/// 3.5 GB in 12 s: the driver keeps what comes before the login is over.
#[test]
fn postgres_that_never_ends_its_login_is_given_up_with_its_reason() {
    let long = [b"SNOTICE\0M".as_slice(), &[b'x'; 60_000], b"\0\0"].concat();
    for (kind, body) in [
        (b'N', long),
        (b'N', b"\0".to_vec()),
        (b'S', [b"name\0".as_slice(), &[b'x'; 60_000], b"\0"].concat()),
        (b'R', 11_u32.to_be_bytes().to_vec()),
        (b'K', vec![0; 8]),
    ] {
        for lets_in in [true, false] {
            let body = body.clone();
            let server = Hostile::start(move |stream| {
                greeted(stream);
                if lets_in {
                    stream.write_all(&authentication(0)).unwrap();
                }
                flood(stream, &message(kind, &body))
            });
            let trouble =
                server.trouble(DatabaseOptions { auth: Some(Auth::Any), ..server.options("postgres") });
            let taken = server.taken.load(Ordering::SeqCst);
            assert!(taken < FLOOD_BYTES, "it was let send {taken} B: {trouble}");
            // What has no place there, the driver refuses at once.
            let is_told = trouble.contains("before it was ready") || !lets_in || matches!(kind, b'R' | b'K');
            assert!(is_told, "{} {lets_in}: {trouble}", kind.escape_ascii());
        }
    }
}

#[test]
fn message_of_postgres_that_is_announced_too_long_is_not_waited_for() {
    let server = Hostile::start(|stream| {
        greeted(stream);
        stream.write_all(&[b'N', 0x3F, 0xFF, 0xFF, 0xFF]).unwrap();
        flood(stream, &[b'x'; 65_536])
    });
    let trouble = server.trouble(server.options("postgres"));
    assert!(server.taken.load(Ordering::SeqCst) < FLOOD_BYTES, "{trouble}");
    assert!(trouble.contains("before it was ready"), "{trouble}");
}

/// What asks for a password in plain text is not the database, or is not what it was thought to be.
#[test]
fn password_is_sent_to_postgres_over_a_plain_connection_with_scram_alone() {
    for (code, body, what) in [
        (3, Vec::new(), "asks for the password in plain text"),
        (5, vec![1, 2, 3, 4], "asks for an MD5 of the password"),
        (0, Vec::new(), "lets in without a password"),
    ] {
        for auth in [None, Some(Auth::Any)] {
            let asks = message(b'R', &[&u32::to_be_bytes(code)[..], &body].concat());
            let server = Hostile::start(move |stream| {
                greeted(stream);
                stream.write_all(&asks).unwrap();
                0
            });
            let trouble = server.trouble(DatabaseOptions { auth, ..server.options("postgres") });
            let refuses = auth.is_none();
            assert_eq!(trouble.contains(what) && trouble.contains("auth = any"), refuses, "{trouble}");
            let is_silent = server.heard.lock().unwrap().is_empty();
            assert_eq!(is_silent, refuses || code == 0, "{code} {auth:?}");
            assert_eq!(server.has_heard(b"s3cret"), !refuses && code == 3, "{code} {auth:?}");
        }
    }
}

/// A challenge may ask for so much work that nothing else is done for hours.
#[test]
fn challenge_of_postgres_that_asks_for_too_much_work_is_refused() {
    let server = Hostile::start(|stream| {
        greeted(stream);
        let mechanisms = [&10_u32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat();
        stream.write_all(&message(b'R', &mechanisms)).unwrap();
        let mut said = [0; 512];
        let len = stream.read(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said[..len]).into_owned();
        let nonce = said.rsplit_once("r=").unwrap().1;
        let challenge = format!("r={nonce}x,s=c2FsdA==,i=4294967295");
        let challenge = [&11_u32.to_be_bytes()[..], challenge.as_bytes()].concat();
        stream.write_all(&message(b'R', &challenge)).unwrap();
        0
    });
    let trouble = server.trouble(server.options("postgres"));
    assert!(trouble.contains("4294967295 rounds"), "{trouble}");
}

/// It was said to have no TLS.
#[test]
fn what_answers_junk_when_it_is_asked_for_tls_is_told_by_what_it_answers() {
    for (answer, told) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "asked for TLS it answers 'HTTP/1.1 400 Bad Request\\r\\n'"),
        (&b"x"[..], "asked for TLS it answers 'x'"),
        (&message(b'E', b"SFATAL\0\0"), "asked for TLS it answers 'E\\x00\\x00\\x00\\x0cSFATAL"),
        (&b""[..], "it closed the connection when it was asked for TLS"),
        (&b"N"[..], "the server has no TLS"),
    ] {
        let sent = answer.to_vec();
        let server = Hostile::start(move |stream| {
            greeted(stream);
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            0
        });
        let tls = TlsOptions { mode: Some(TlsMode::Require), ..TlsOptions::default() };
        let trouble = server.trouble(DatabaseOptions { tls, ..server.options("postgres") });
        assert!(trouble.contains(told), "{trouble}");
        assert_eq!(trouble.contains("has no TLS"), answer == b"N", "{trouble}");
    }
}

#[test]
fn what_is_no_postgres_is_told_by_how_it_begins() {
    let server = Hostile::start(|stream| {
        greeted(stream);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        0
    });
    let trouble = server.trouble(server.options("postgres"));
    assert!(trouble.contains("it answers with 'HTTP/'"), "{trouble}");
}

/// Packets go on one in the next when they are as long as can be: the greeting never ends.
#[test]
fn mariadb_that_never_ends_its_greeting_is_given_up() {
    for greets in [false, true] {
        let server = Hostile::start(move |stream| {
            if greets {
                stream.write_all(&handshake()).unwrap();
                let mut head = [0; 4];
                stream.read_exact(&mut head).unwrap();
            }
            let (mut taken, body) = (0, vec![b'x'; 0xFF_FFFF]);
            for number in 0.. {
                let number = if greets { number + 2 } else { number };
                if taken > FLOOD_BYTES || stream.write_all(&packet(number, &body)).is_err() {
                    break;
                }
                taken += body.len() as u64;
            }
            taken
        });
        let trouble = server.trouble(server.options("mysql"));
        assert!(server.taken.load(Ordering::SeqCst) < FLOOD_BYTES, "{trouble}");
        assert!(trouble.contains("acket"), "{trouble}");
    }
}

#[test]
fn password_is_not_sent_to_mariadb_in_plain_text() {
    let server = Hostile::start(|stream| {
        stream.write_all(&handshake()).unwrap();
        let mut head = [0; 4];
        stream.read_exact(&mut head).unwrap();
        let mut rest = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        stream.read_exact(&mut rest).unwrap();
        stream.write_all(&packet(head[3] + 1, b"\xFEmysql_clear_password\0")).unwrap();
        0
    });
    let trouble = server.trouble(server.options("mysql"));
    assert!(trouble.contains("mysql_clear_password must be enabled"), "{trouble}");
    assert!(!server.has_heard(b"s3cret"));
    let drivers = Drivers::start().unwrap();
    for word in ["enable_cleartext_plugin=true", "secure_auth=false"] {
        let mut options = server.options("mysql");
        options.url += &format!("?{word}");
        let no = MariaDb::start(options, &drivers).expect_err("it is refused").to_string();
        assert!(no.contains("in plain text") && no.contains("without TLS"), "{no}");
    }
}

/// More than the sockets between the two may hold.
const FLOOD_BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
