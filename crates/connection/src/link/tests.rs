//! Links against servers of a few lines.
#![allow(clippy::disallowed_methods, reason = "tests have sockets and threads")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use clock::{SimClock, UnixMs};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A link to `address`, and what rings when it has events.
fn start(url: &str) -> (Link, Receiver<()>) {
    start_at(url, Arc::new(SystemClock))
}

fn start_at(url: &str, clock: Arc<dyn Clock>) -> (Link, Receiver<()>) {
    let (sender, receiver) = channel();
    let target = url.parse().expect("a server");
    let link = Link::start_at(&target, Options::named("test"), clock, move || {
        let _ = sender.send(());
    });
    (link.expect("it starts"), receiver)
}

/// The next event.
fn next(link: &Link, bell: &Receiver<()>, events: &mut VecDeque<Event>) -> Event {
    loop {
        events.append(&mut link.take());
        match events.pop_front() {
            Some(event) => return event,
            None => bell.recv_timeout(PATIENCE).expect("an event comes"),
        }
    }
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

fn read(stream: &mut TcpStream, bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    stream.read_exact(&mut buffer).expect("they come");
    String::from_utf8(buffer).expect("text")
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

#[test]
fn replies_come_with_the_tokens_of_their_requests_and_a_lost_connection_is_made_anew() {
    let (listener, port) = listen();
    let (link, bell) = start(&format!("redis://127.0.0.1:{port}"));
    let mut events = VecDeque::new();
    let (mut server, _) = listener.accept().expect("it connects");
    assert_eq!(next(&link, &bell, &mut events), Event::Connected(1));
    for token in [7, 8, 9] {
        assert!(link.send(1, token, |out| out.extend_from_slice(PING)));
    }
    read(&mut server, 3 * PING.len());
    server.write_all(b"+one\r\n$3\r\nt").expect("it is sent");
    assert_eq!(next(&link, &bell, &mut events), Event::Reply(7, Value::Simple(b"one".to_vec())));
    server.write_all(b"wo\r\n").expect("it is sent");
    assert_eq!(next(&link, &bell, &mut events), Event::Reply(8, Value::Bulk(b"two".to_vec())));
    drop(server);
    let Event::Lost(why) = next(&link, &bell, &mut events) else { panic!("it is lost") };
    let why = why.to_string();
    assert!(why.contains("the server closed it"), "{why}");
    assert!(!link.send(1, 10, |_| unreachable!("that life is over")));
    let _server = listener.accept().expect("it connects again");
    assert_eq!(next(&link, &bell, &mut events), Event::Connected(2));
}

#[test]
fn login_is_first_and_its_refusal_is_said_without_the_password() {
    let (listener, port) = listen();
    let (link, bell) = start(&format!("redis://ann:secret@127.0.0.1:{port}"));
    let mut events = VecDeque::new();
    let (mut server, _) = listener.accept().expect("it connects");
    let login = "*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$6\r\nsecret\r\n";
    assert_eq!(read(&mut server, login.len()), login);
    server.write_all(b"-WRONGPASS no\r\n").expect("it is sent");
    let Event::Lost(why) = next(&link, &bell, &mut events) else { panic!("it is lost") };
    let why = why.to_string();
    assert!(why.contains("refused the login: WRONGPASS no") && !why.contains("secret"), "{why}");
    let (mut server, _) = listener.accept().expect("it connects again");
    read(&mut server, login.len());
    server.write_all(b"+OK\r\n").expect("it is sent");
    assert_eq!(next(&link, &bell, &mut events), Event::Connected(2));
}

#[test]
fn reply_that_nobody_has_asked_for_ends_the_connection() {
    let (listener, port) = listen();
    let (link, bell) = start(&format!("redis://127.0.0.1:{port}"));
    let mut events = VecDeque::new();
    let (mut server, _) = listener.accept().expect("it connects");
    server.write_all(b"+OK\r\n").expect("it is sent");
    assert_eq!(next(&link, &bell, &mut events), Event::Connected(1));
    let Event::Lost(why) = next(&link, &bell, &mut events) else { panic!("it is lost") };
    let why = why.to_string();
    assert!(why.contains("nobody has asked for"), "{why}");
}

#[test]
fn waiting_ends_with_the_last_reply() {
    let (listener, port) = listen();
    let (link, bell) = start(&format!("redis://127.0.0.1:{port}"));
    let (mut server, _) = listener.accept().expect("it connects");
    assert_eq!(next(&link, &bell, &mut VecDeque::new()), Event::Connected(1));
    assert!(link.send(1, 1, |out| out.extend_from_slice(PING)));
    let answer = std::thread::spawn(move || {
        read(&mut server, PING.len());
        server.write_all(b"+PONG\r\n").expect("it is sent");
        server
    });
    link.wait(PATIENCE);
    assert_eq!(link.take(), [Event::Reply(1, Value::Simple(b"PONG".to_vec()))]);
    drop(answer.join());
}

/// The time of the next request ran from the last reply: after 30 s without one it was given up before a byte of it was sent.
#[test]
fn link_that_was_idle_for_a_day_gives_the_next_request_its_full_time_and_no_more() {
    let (listener, port) = listen();
    let clock = Arc::new(SimClock::new(UnixMs(1)));
    let (link, bell) = start_at(&format!("redis://127.0.0.1:{port}"), Arc::clone(&clock) as Arc<dyn Clock>);
    let mut events = VecDeque::new();
    let (mut server, _) = listener.accept().expect("it connects");
    assert_eq!(next(&link, &bell, &mut events), Event::Connected(1));
    for (token, idle_s) in [(1, 3_600), (2, 86_400), (3, 0), (4, 31)] {
        clock.advance(Duration::from_secs(idle_s));
        assert!(link.send(1, token, |out| out.extend_from_slice(PING)));
        read(&mut server, PING.len());
        clock.advance(Duration::from_secs(29));
        server.write_all(b"+PONG\r\n").expect("it is sent");
        assert_eq!(next(&link, &bell, &mut events), Event::Reply(token, Value::Simple(b"PONG".to_vec())));
    }
    clock.advance(Duration::from_secs(86_400));
    assert!(link.send(1, 5, |out| out.extend_from_slice(PING)));
    read(&mut server, PING.len());
    clock.advance(Duration::from_secs(30));
    // It looks at the clock when something happens: nothing else wakes it before 30 s of its own.
    assert!(link.send(1, 6, |out| out.extend_from_slice(PING)));
    let Event::Lost(why) = next(&link, &bell, &mut events) else { panic!("it is given up") };
    let why = why.to_string();
    assert!(why.contains("no reply within 30s"), "{why}");
}

#[test]
fn silence_counts_while_a_reply_is_owed_alone() {
    let (mut silence, most) = (attend::Silence::default(), Duration::from_secs(30));
    let at = |seconds: u64| clock::Nanos(seconds * 1_000_000_000);
    assert_eq!(silence.left(false, at(0), most), None);
    assert_eq!(silence.left(true, at(3_600), most), Some(most), "it begins now");
    assert_eq!(silence.left(true, at(3_610), most), Some(Duration::from_secs(20)));
    silence.end();
    assert_eq!(silence.left(true, at(3_620), most), Some(most), "the rest is to come");
    assert_eq!(silence.left(true, at(3_625), most), Some(Duration::from_secs(25)));
    assert_eq!(silence.left(false, at(3_626), most), None, "the owner is behind, or nothing is owed");
    silence.end();
    assert_eq!(silence.left(true, at(90_000), most), Some(most));
    assert_eq!(silence.left(true, at(90_030), most), Some(Duration::ZERO));
}
