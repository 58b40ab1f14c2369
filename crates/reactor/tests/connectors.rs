//! What holds under each connector, through real sockets. Those of `uring` need a kernel that has io_uring switched on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod line;

use std::any::Any;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use line::{Client, Message, Server, all_sent, eventually, options, under_each_connector};
use reactor::{CloseReason, Connector, Dial, Limits, MoveError};

under_each_connector! {
    pipeline_of_many_lines_is_answered_in_order,
    request_in_single_bytes_is_answered_once,
    held_replies_leave_in_order_when_their_ticket_is_released,
    released_wake_ups_reach_every_holder,
    replies_held_again_while_a_release_wakes_their_thread_leave_with_the_next,
    parked_connection_goes_on_with_its_input_after_the_message,
    replies_that_are_kept_leave_with_what_ends_the_park,
    kept_replies_leave_before_it_when_there_is_reason,
    replies_that_are_withheld_leave_with_the_end_of_the_park_alone,
    token_is_dropped_when_the_callbacks_have_ended_that_ran_as_it_was_passed,
    bytes_that_the_socket_refused_leave_while_others_are_kept,
    message_to_itself_arrives,
    messages_arrive_in_the_order_in_which_they_were_posted,
    timer_fires_and_one_that_was_unset_does_not,
    soft_close_sends_what_was_answered,
    soft_close_waits_for_held_replies,
    close_that_cannot_finish_ends_after_its_grace,
    hard_close_sends_nothing,
    kill_from_another_thread_ends_an_idle_connection,
    end_of_input_is_the_end_after_the_answers,
    client_that_does_not_read_is_paused_and_then_served,
    client_that_does_not_read_a_huge_reply_is_cut,
    held_budget_pauses_and_never_cuts,
    input_beyond_its_limit_is_cut,
    one_too_many_is_told_so,
    unix_socket_is_served_and_a_stale_one_replaced,
    client_that_is_there_before_the_start_meets_a_protocol_that_reaches_it,
    file_in_the_way_of_a_unix_socket_is_left_alone,
    unix_socket_of_a_later_server_is_left_to_it,
    shutdown_sends_what_is_released_and_ends,
    shutdown_answers_neither_what_is_held_nor_what_is_parked,
    connection_that_comes_during_a_stop_ends_with_it,
    kill_drops_held_replies_and_what_is_parked,
    client_that_reads_for_long_is_active,
    counters_count_what_happened,
}

/// One loop's word that all wait decides whether it blocks: it must not be said beside somebody who reads.
#[test]
fn all_wait_while_only_held_replies_are_given_and_not_beside_others() {
    let server = Server::start(options(Connector::Epoll, 1));
    let (mut writer, mut reader) = (server.connect(), server.connect());
    let waits = || server.protocol.waits.load(Ordering::SeqCst);
    let ask_held = |writer: &mut Client<_>, ticket: u64| {
        let (ticks, before) = (server.protocol.ticks.load(Ordering::SeqCst), waits());
        writer.send(&format!("hold {ticket} held\n"));
        eventually("a tick ends", || server.protocol.ticks.load(Ordering::SeqCst) > ticks);
        let all_waited = waits() > before;
        server.release(ticket);
        writer.expect("held");
        all_waited
    };
    let mut ticket = 0;
    let mut next = || {
        ticket += 1;
        ticket
    };
    for _ in 0..2 {
        eventually("only the writer is served", || ask_held(&mut writer, next()));
        eventually("somebody was just served", || {
            assert_eq!(reader.ask("echo now"), "now");
            !ask_held(&mut writer, next())
        });
        eventually("only somebody patient is served beside", || {
            assert_eq!(reader.ask("aside now"), "now");
            ask_held(&mut writer, next())
        });
    }
}

/// With `io_uring_enter` refused, a loop logged three million lines in 19 s and heard of no stop for 12 s.
#[test]
fn loop_that_cannot_wait_ends_with_its_connections_and_says_so_once() {
    for connector in [Connector::Epoll, Connector::Uring] {
        let server = Server::start(options(connector, 2));
        let (mut client, connection) = server.connect_known();
        let others: Vec<_> = (0..4).map(|_| server.connect_known()).collect();
        client.send("deny\n");
        assert_eq!(server.close_reason(connection.id()), CloseReason::System);
        let failures = || server.protocol.failures.lock().unwrap().clone();
        eventually("it is said", || !failures().is_empty());
        assert_eq!(failures(), ["an event loop cannot wait for events"]);
        for (mut client, known) in others {
            if known.loop_index() != connection.loop_index() {
                assert_eq!(client.ask("echo the other loop serves"), "the other loop serves");
            }
        }
    }
}

/// Under `ulimit -u 60` clients beyond were cut without a word, and counted nowhere.
#[test]
fn connection_without_a_thread_is_told_so_and_counted() {
    // More than there are addresses: no thread can start.
    let options = reactor::Options { thread_stack_bytes: 1 << 47, ..options(Connector::Threads, 1) };
    let server = Server::start(options);
    for count in 1..=3 {
        let mut client = server.connect();
        client.send("echo not served\n");
        client.expect("too many");
        assert_eq!(client.line(), None);
        eventually("it is counted", || server.handle.accept_stats().refused() == count);
    }
    assert_eq!((server.handle.accept_stats().accepted(), server.handle.connection_count()), (0, 0));
}

/// What came from several connections is read before any of it is handled, and the protocol hears of all of it.
#[test]
fn inputs_that_came_together_are_announced_together() {
    let server = Server::start(options(Connector::Epoll, 1));
    let mut clients: Vec<_> = (0..4).map(|_| server.connect_known().0).collect();
    let (first, others) = clients.split_first_mut().unwrap();
    first.send("meet\n");
    server.protocol.meeting.wait();
    for (number, client) in others.iter_mut().enumerate() {
        client.send(&format!("echo {number}\necho more\n"));
    }
    server.protocol.announced_max.store(0, Ordering::SeqCst);
    server.protocol.meeting.wait();
    for (number, client) in others.iter_mut().enumerate() {
        client.expect(&number.to_string());
        client.expect("more");
    }
    assert_eq!(server.protocol.announced_max.load(Ordering::SeqCst), others.len());
}

fn pipeline_of_many_lines_is_answered_in_order(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let mut client = server.connect();
    let sent: String = (0..5_000).map(|number| format!("echo {number}\n")).collect();
    client.send(&sent);
    for number in 0..5_000 {
        client.expect(&number.to_string());
    }
}

fn request_in_single_bytes_is_answered_once(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    for byte in "echo drop by drop\n".chars() {
        client.send(&byte.to_string());
    }
    client.expect("drop by drop");
    assert_eq!(connection.commands(), 2);
}

fn held_replies_leave_in_order_when_their_ticket_is_released(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    let before = connection.bytes_out();
    client.send("echo free\n");
    client.expect("free");
    all_sent(&connection, before + 5);
    client.send("hold 5 five\n");
    eventually("a reply is held", || connection.output_bytes() == 5);
    client.send("hold 9 nine\necho tail\n");
    eventually("three replies are held", || connection.output_bytes() == 15);
    eventually("it is listed", || server.handle.loops()[0].held() == 1);
    server.release(4);
    server.release(5);
    client.expect("five");
    server.release(8);
    eventually("the first held reply is counted", || connection.bytes_out() - before == 10);
    server.release(9);
    client.expect("nine");
    client.expect("tail");
    eventually("none is held", || server.handle.loops()[0].held() == 0);
    assert!(server.handle.loops()[0].wakes() > 0);
}

fn released_wake_ups_reach_every_holder(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for round in 0..50 {
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(&format!("hold {} {index}\n", round * 40 + index as u64 + 1));
        }
        for ticket in [round * 40 + 20, round * 40 + 40] {
            server.release(ticket);
        }
        for (index, client) in clients.iter_mut().enumerate() {
            client.expect(&index.to_string());
        }
    }
}

/// Under `threads` every client of this kind hung for good within seconds: `handover.rs` models why. The incomplete request has
/// the thread keep no buffer that it would wake to give back.
fn replies_held_again_while_a_release_wakes_their_thread_leave_with_the_next(connector: Connector) {
    const ROUNDS: usize = 500;
    let server = Server::start(options(connector, 2));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                server.release(server.protocol.appended.load(Ordering::SeqCst));
            }
        });
        let clients: Vec<_> =
            (0..4).map(|_| scope.spawn(|| half_requests(server.connect(), ROUNDS))).collect();
        let failed = clients.into_iter().filter_map(|client| client.join().err()).count();
        done.store(true, Ordering::SeqCst);
        assert_eq!(failed, 0, "clients that hung");
    });
}

/// A held reply, a large one, and most of a request whose reply is held; its rest when both came.
fn half_requests(mut client: Client<TcpStream>, rounds: usize) {
    let large = "e".repeat(12_000);
    client.stream().set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for _ in 0..rounds {
        client.send(&format!("append one\necho {large}\nappend {}", "h".repeat(11_500)));
        client.expect("one");
        client.expect(&large);
        client.send(&format!("{}\n", "h".repeat(500)));
        assert_eq!(client.line().unwrap().len(), 12_000);
    }
}

fn parked_connection_goes_on_with_its_input_after_the_message(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    client.send("park\necho after\n");
    eventually("it parks", || connection.commands() == 2);
    assert!(server.handle.post(connection.id(), Message::Push("while".to_owned())));
    client.expect("while");
    assert_eq!(connection.commands(), 2);
    assert!(server.handle.post_to(&connection, Message::Resume("resumed".to_owned())));
    client.expect("resumed");
    client.expect("after");
}

fn replies_that_are_kept_leave_with_what_ends_the_park(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    let before = (connection.bytes_out(), connection.write_events());
    client.send("echo first\nkeep\nkeep\necho last\n");
    for (kept, text) in [(6, "second"), (13, "third")] {
        eventually("it is kept", || connection.output_bytes() == kept);
        assert!(server.handle.post_to(&connection, Message::Resume(text.to_owned())));
    }
    for text in ["first", "second", "third", "last"] {
        client.expect(text);
    }
    eventually("all is sent", || connection.bytes_out() == before.0 + 24);
    assert_eq!(connection.write_events(), before.1 + 1);
}

fn kept_replies_leave_before_it_when_there_is_reason(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    client.send("echo first\nkeep\n");
    eventually("it is kept", || connection.output_bytes() == 6);
    assert!(server.handle.post_to(&connection, Message::Push("while".to_owned())));
    client.expect("first");
    client.expect("while");
    assert!(server.handle.post_to(&connection, Message::Resume("resumed".to_owned())));
    client.expect("resumed");
    client.send("big 20000\nkeep\n");
    client.expect(&"x".repeat(20_000));
    assert!(server.handle.post_to(&connection, Message::Resume("resumed".to_owned())));
    client.expect("resumed");
    client.send("echo last\nkeep\n");
    eventually("it is kept", || connection.output_bytes() == 5);
    server.handle.shutdown();
    client.expect("last");
}

fn replies_that_are_withheld_leave_with_the_end_of_the_park_alone(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    let before = connection.bytes_out();
    client.send("big 20000\nwithhold\necho last\n");
    eventually("it is withheld", || connection.output_bytes() == 20_001);
    assert!(server.handle.post_to(&connection, Message::Push("while".to_owned())));
    eventually("the message is withheld, too", || connection.output_bytes() == 20_007);
    assert_eq!(connection.bytes_out(), before);
    assert!(server.handle.post_to(&connection, Message::Resume("resumed".to_owned())));
    client.expect(&"x".repeat(20_000));
    for text in ["while", "resumed", "last"] {
        client.expect(text);
    }
}

/// Those who were told that a setting had changed met callbacks that had begun before.
fn token_is_dropped_when_the_callbacks_have_ended_that_ran_as_it_was_passed(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, mut other) = (server.connect(), server.connect());
    assert_eq!((client.ask("echo a"), other.ask("echo b")), ("a".to_owned(), "b".to_owned()));
    client.send("meet\n");
    server.protocol.meeting.wait();
    let token: Arc<dyn Any + Send + Sync> = Arc::new(());
    server.handle.pass(&token);
    eventually("all others have dropped it", || Arc::strong_count(&token) == 2);
    server.protocol.meeting.wait();
    eventually("its thread has, too", || Arc::strong_count(&token) == 1);
}

fn bytes_that_the_socket_refused_leave_while_others_are_kept(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    // Less than what is kept at most, so that nothing but the refusal makes it leave.
    let text = "x".repeat(10_000);
    let mut count = 0;
    while connection.output_bytes() == 0 {
        count += 1;
        client.send("big 10000\n");
        let all = 5 + count * 10_001;
        eventually("it is sent or refused", || {
            connection.bytes_out() == all || connection.output_bytes() > 0
        });
    }
    client.send("keep\n");
    eventually("it parks", || connection.commands() == count + 2);
    for _ in 0..count {
        client.expect(&text);
    }
    assert!(server.handle.post_to(&connection, Message::Resume("resumed".to_owned())));
    client.expect("resumed");
}

fn message_to_itself_arrives(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let mut client = server.connect();
    client.send("later one\nlater two\necho three\n");
    for expected in ["one", "two", "three"] {
        client.expect(expected);
    }
}

fn messages_arrive_in_the_order_in_which_they_were_posted(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    for number in 0..2_000 {
        assert!(server.handle.post_to(&connection, Message::Push(number.to_string())));
    }
    for number in 0..2_000 {
        client.expect(&number.to_string());
    }
}

fn timer_fires_and_one_that_was_unset_does_not(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let mut client = server.connect();
    client.send("timer 60000\ntimer 5\n");
    client.expect("timer");
    client.send("timer 1\ntimer 60000\n");
    assert_eq!(client.ask("echo put off"), "put off");
    client.send("timer 10\npark\n");
    client.expect("timer");
    assert_eq!(client.ask("echo a timer ends a park"), "a timer ends a park");
}

fn soft_close_sends_what_was_answered(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    client.send("echo last\nclose\necho never\n");
    client.expect("last");
    assert_eq!(client.line(), None);
    assert_eq!(server.close_reason(connection.id()), CloseReason::Protocol);
    assert!(!server.handle.post(connection.id(), Message::Push(String::new())));
}

fn soft_close_waits_for_held_replies(connector: Connector) {
    let server = Server::start(line_options_with_long_grace(connector));
    let (mut client, connection) = server.connect_known();
    client.send("hold 3 kept\nclose\n");
    eventually("it closes", || connection.commands() == 3);
    server.release(3);
    client.expect("kept");
    assert_eq!(client.line(), None);
}

fn line_options_with_long_grace(connector: Connector) -> reactor::Options {
    reactor::Options { close_grace: line::PATIENCE, ..options(connector, 1) }
}

fn close_that_cannot_finish_ends_after_its_grace(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    client.send("hold 3 never\nclose\n");
    assert_eq!(client.line(), None);
    assert_eq!(server.close_reason(connection.id()), CloseReason::Grace);
}

fn hard_close_sends_nothing(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    client.send("echo dropped\nkill\n");
    assert_eq!(client.line(), None);
    assert_eq!(server.close_reason(connection.id()), CloseReason::Protocol);
}

fn kill_from_another_thread_ends_an_idle_connection(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut client, connection) = server.connect_known();
    let (mut other, _) = server.connect_known();
    assert!(server.handle.kill(connection.id()));
    assert_eq!(client.line(), None);
    assert_eq!(server.close_reason(connection.id()), CloseReason::Killed);
    assert!(!server.handle.kill(connection.id()));
    assert_eq!(other.ask("echo lives"), "lives");
}

fn end_of_input_is_the_end_after_the_answers(connector: Connector) {
    let server = Server::start(line_options_with_long_grace(connector));
    let (mut client, connection) = server.connect_known();
    client.send("echo one\nhold 2 two\n");
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    client.expect("one");
    server.release(2);
    client.expect("two");
    assert_eq!(client.line(), None);
    assert_eq!(server.close_reason(connection.id()), CloseReason::Peer);
}

fn client_that_does_not_read_is_paused_and_then_served(connector: Connector) {
    let limits = Limits { output_bytes_soft: 100_000, ..Limits::default() };
    let server = Server::start(reactor::Options { limits, ..options(connector, 1) });
    let (mut client, connection) = server.connect_known();
    let (mut other, _) = server.connect_known();
    // More than the buffers of both kernels' sockets take.
    client.send(&"big 100000\n".repeat(500));
    eventually("it is paused", || connection.output_bytes() > 100_000);
    let commands = connection.commands();
    assert!(commands < 400, "paused after {commands}");
    assert_eq!(other.ask("echo others are served"), "others are served");
    for _ in 0..500 {
        assert_eq!(client.line().unwrap().len(), 100_000);
    }
    eventually("nothing is left", || connection.output_bytes() == 0);
}

fn client_that_does_not_read_a_huge_reply_is_cut(connector: Connector) {
    let limits = Limits { output_bytes_max: 1_000_000, ..Limits::default() };
    let server = Server::start(reactor::Options { limits, ..options(connector, 1) });
    let (mut client, connection) = server.connect_known();
    client.send("big 50000000\n");
    assert_eq!(server.close_reason(connection.id()), CloseReason::OutputLimit);
    assert!(client.rest().len() < 50_000_000);
}

fn held_budget_pauses_and_never_cuts(connector: Connector) {
    let limits = Limits { held_bytes_max: 1_000, output_bytes_max: 10, ..Limits::default() };
    let server = Server::start(reactor::Options { limits, ..options(connector, 1) });
    let (mut client, connection) = server.connect_known();
    client.send(&format!("hold 1 {}\n", "x".repeat(99)).repeat(200));
    eventually("it is paused", || connection.output_bytes() > 1_000);
    assert!(connection.commands() < 30, "paused after {}", connection.commands());
    server.release(1);
    for _ in 0..200 {
        assert_eq!(client.line().unwrap().len(), 99);
    }
}

fn input_beyond_its_limit_is_cut(connector: Connector) {
    let limits = Limits { input_bytes_max: 100_000, ..Limits::default() };
    let server = Server::start(reactor::Options { limits, ..options(connector, 1) });
    let (mut client, connection) = server.connect_known();
    // The write fails when the server cuts in the midst of it.
    let _ = client.stream().try_clone().unwrap().write_all(&vec![b'x'; 10_000_000]);
    assert_eq!(server.close_reason(connection.id()), CloseReason::InputLimit);
    assert_eq!(client.line(), None);
}

fn one_too_many_is_told_so(connector: Connector) {
    let server = Server::start(reactor::Options { connections_max: 2, ..options(connector, 2) });
    let (mut one, connection) = server.connect_known();
    let (_two, _) = server.connect_known();
    let mut third = server.connect();
    third.send("echo sent before it read\n");
    third.expect("too many");
    assert_eq!(third.line(), None);
    assert_eq!(server.handle.accept_stats().refused(), 1);
    assert_eq!(one.ask("echo served"), "served");
    drop(one);
    server.close_reason(connection.id());
    let (mut fourth, _) = server.connect_known();
    assert_eq!(fourth.ask("echo there is room again"), "there is room again");
}

fn unix_socket_is_served_and_a_stale_one_replaced(connector: Connector) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let unix = reactor::Options { unix: Some(path.clone()), ..options(connector, 1) };
    let server = Server::start(unix.clone());
    let mut client = Client::unix(&path);
    assert_eq!(client.ask("echo local"), "local");
    let text = path.display().to_string();
    assert_eq!(server.handle.connections()[0].peer().to_string(), format!("{text}:0"));
    let protocol = Arc::new(line::Lines::default());
    let clock = Arc::new(clock::SystemClock);
    let error = reactor::Reactor::start(unix, protocol, clock).expect_err("it is served already");
    assert!(error.to_string().contains(&text), "{error}");
    drop(server);
    assert!(!path.exists());
}

/// The protocol was given the reactor after its start: what was posted to a connection of the first moments was lost, and so was the answer to
/// a TX.SQL, which its client waited for until it gave up (cycle 85 of a drill).
fn client_that_is_there_before_the_start_meets_a_protocol_that_reaches_it(connector: Connector) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let unix = reactor::Options { unix: Some(path.clone()), ..options(connector, 1) };
    let listeners = reactor::Listeners::open(&unix).unwrap();
    let mut client = Client::unix(&path);
    let server = Server::start_on(listeners, unix);
    assert_eq!(client.ask("echo early"), "early");
    assert_eq!(server.protocol.unreachable.load(Ordering::SeqCst), 0);
}

fn file_in_the_way_of_a_unix_socket_is_left_alone(connector: Connector) {
    // `unixsocket` once named a file by mistake: connecting to it was refused, as with a socket that nobody listens on,
    // and the start removed it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter");
    std::fs::write(&path, "dear user").unwrap();
    let unix = reactor::Options { unix: Some(path.clone()), ..options(connector, 1) };
    let protocol = Arc::new(line::Lines::default());
    let clock = Arc::new(clock::SystemClock);
    let error = reactor::Reactor::start(unix, protocol, clock).expect_err("a file is there");
    assert!(error.to_string().contains("letter"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear user");
}

fn unix_socket_of_a_later_server_is_left_to_it(connector: Connector) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let unix = reactor::Options { unix: Some(path.clone()), ..options(connector, 1) };
    let former = Server::start(unix.clone());
    std::fs::remove_file(&path).unwrap();
    let later = Server::start(unix);
    drop(former);
    assert_eq!(Client::unix(&path).ask("echo still here"), "still here");
    drop(later);
    assert!(!path.exists());
}

fn shutdown_sends_what_is_released_and_ends(connector: Connector) {
    let server = Server::start(line_options_with_long_grace(connector));
    let (mut holder, held) = server.connect_known();
    let (mut idle, _) = server.connect_known();
    holder.send("hold 1 kept\n");
    eventually("a reply is held", || held.output_bytes() == 5);
    server.handle.shutdown();
    assert_eq!(idle.line(), None);
    server.release(1);
    holder.expect("kept");
    assert_eq!(holder.line(), None);
    server.handle.join();
    assert_eq!(server.close_reason(held.id()), CloseReason::Shutdown);
    assert!(TcpStream::connect_timeout(&server.address(), Duration::from_secs(1)).is_err());
}

fn shutdown_answers_neither_what_is_held_nor_what_is_parked(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut holder, held) = server.connect_known();
    let (mut waiter, parked) = server.connect_known();
    holder.send("echo free\nhold 1 lost\necho behind it\n");
    waiter.send("echo free\npark\necho behind it\n");
    eventually("replies are held", || held.output_bytes() == 15);
    eventually("it parks", || parked.commands() == 3);
    server.handle.shutdown();
    server.handle.join();
    server.release(1);
    for client in [&mut holder, &mut waiter] {
        assert_eq!(client.rest(), b"free\n");
    }
    assert_eq!(server.close_reason(held.id()), CloseReason::Shutdown);
    assert_eq!(server.close_reason(parked.id()), CloseReason::Shutdown);
    assert!(!server.handle.post_to(&parked, Message::Resume("too late".to_owned())));
}

/// A thread that began after the stop had told all others waited for its client, and the stop waited for the thread.
fn connection_that_comes_during_a_stop_ends_with_it(connector: Connector) {
    let there = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(line_options_with_long_grace(connector));
    let (mut holder, held) = server.connect_known();
    holder.send("hold 1 kept\n");
    eventually("a reply is held", || held.output_bytes() == 5);
    server.handle.shutdown();
    let late = server.handle.connect(Dial::to(there.local_addr().unwrap()), line::PATIENCE).unwrap();
    assert_eq!(server.close_reason(late.id()), CloseReason::Shutdown);
    server.release(1);
    holder.expect("kept");
}

fn kill_drops_held_replies_and_what_is_parked(connector: Connector) {
    let server = Server::start(options(connector, 2));
    let (mut holder, held) = server.connect_known();
    let (mut waiter, parked) = server.connect_known();
    holder.send("hold 1 lost\n");
    waiter.send("hold 1 lost\npark\n");
    eventually("replies are held", || held.output_bytes() == 5 && parked.output_bytes() == 5);
    for (client, connection) in [(&mut holder, &held), (&mut waiter, &parked)] {
        connection.kill();
        assert_eq!(client.rest(), b"");
        assert_eq!(server.close_reason(connection.id()), CloseReason::Killed);
        assert!(!server.handle.post_to(connection, Message::Resume("too late".to_owned())));
    }
    server.release(1);
    eventually("nothing is held", || server.handle.loops().iter().all(|stats| stats.held() == 0));
}

/// Idle was who sent nothing, also while a large reply was on its way to it.
fn client_that_reads_for_long_is_active(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    client.send("hold 1 late\n");
    eventually("a reply is held", || connection.output_bytes() == 5);
    let asked = connection.last_active();
    server.release(1);
    client.expect("late");
    eventually("it was active since", || connection.last_active() > asked);
}

fn counters_count_what_happened(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    for _ in 0..10 {
        assert_eq!(client.ask("echo 12345"), "12345");
    }
    eventually("the tick is published", || server.handle.loops()[0].bytes_out() == 65);
    assert_eq!((connection.commands(), connection.bytes_in(), connection.bytes_out()), (11, 120, 65));
    let stats = &server.handle.loops()[0];
    assert_eq!((stats.connections(), stats.bytes_in(), stats.bytes_out()), (1, 120, 65));
    assert!((11..=22).contains(&connection.read_events()), "{}", connection.read_events());
    assert_eq!((connection.write_events(), stats.write_events()), (11, 11));
    assert!(connection.busy_ns() > 0 && stats.busy_ns() >= connection.busy_ns() / 2);
    assert!(connection.last_active() > connection.created());
    assert!(server.protocol.ticks.load(Ordering::Relaxed) > 0);
    let moved = server.handle.move_connection(connection.id(), 7);
    match connector {
        Connector::Epoll | Connector::Uring => {
            assert_eq!(moved, Err(MoveError::UnknownLoop { index: 7, count: 1 }));
        }
        Connector::Threads => assert_eq!(moved, Err(MoveError::Connector)),
    }
}
