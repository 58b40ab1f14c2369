//! Every way of waiting times every way of leaving, under each connector.
//!
//! `WAIT 1 0` and a close left the connection where it was until CLIENT KILL or the stop: a connection that waits was not read, and so
//! its end was not seen. With `connections.max` at 100, a hundred such clients locked everyone out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod line;

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use line::{Client, Message, Server, eventually, options, under_each_connector};
use reactor::{CloseReason, Connection, Connector, Limits, Options};

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// For something that is nobody's without its client.
    Ending,
    /// As before, with more requests behind it.
    EndingPipeline,
    /// As before, behind a reply that waits for its ticket.
    EndingBehindHeld,
    /// For something that goes on without its client.
    Going,
    /// As before, with more behind it than `uring` takes in ahead. The others read nothing meanwhile, and see an end that the socket's
    /// buffer has room for, or a reset.
    GoingLongPipeline,
    /// For a ticket.
    Held,
    /// For a ticket, with so much held that no more is read.
    HeldFull,
    /// For its client to read.
    Reader,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It closes its side and still reads.
    Half,
    /// It closes, or is killed.
    Close,
    /// It resets the connection.
    Reset,
    /// Somebody kills it here.
    Kill,
    /// It was ordered to another loop before it closed.
    MovedClose,
    /// It closed its side, and later resets.
    HalfThenReset,
}

/// When the connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At once.
    Now,
    /// With what it waits for, and its reply was sent; or after the grace time.
    Answered,
}

const WAITS: [Wait; 8] = [
    Wait::Ending,
    Wait::EndingPipeline,
    Wait::EndingBehindHeld,
    Wait::Going,
    Wait::GoingLongPipeline,
    Wait::Held,
    Wait::HeldFull,
    Wait::Reader,
];
const LEAVES: [Leave; 6] =
    [Leave::Half, Leave::Close, Leave::Reset, Leave::Kill, Leave::MovedClose, Leave::HalfThenReset];

fn expected(wait: Wait, leave: Leave) -> End {
    match (wait, leave) {
        (_, Leave::Reset | Leave::Kill | Leave::HalfThenReset) => End::Now,
        (Wait::Ending | Wait::EndingPipeline, _) => End::Now,
        // A close that leaves bytes unread is a reset.
        (Wait::Reader, Leave::Close | Leave::MovedClose) => End::Now,
        _ => End::Answered,
    }
}

/// Whether every connector is sure to see that client leave. `uring` mostly sees an end behind many bytes, too, but not always.
fn is_seen(wait: Wait, leave: Leave) -> bool {
    let is_behind_bytes = matches!(leave, Leave::Half | Leave::Close | Leave::MovedClose);
    !(wait == Wait::GoingLongPipeline && is_behind_bytes)
}

fn table_options(connector: Connector, close_grace: Duration) -> Options {
    let limits = Limits { held_bytes_max: 1_000, output_bytes_soft: 100_000, ..Limits::default() };
    Options { limits, close_grace, ..options(connector, 2) }
}

/// A client whose connection waits for `wait`.
fn waiting(server: &Server, wait: Wait) -> (Client<TcpStream>, Arc<Connection>) {
    let (client, connection) = server.connect_known();
    let requests = match wait {
        Wait::Ending => "wait\n".to_owned(),
        Wait::EndingPipeline => format!("wait\n{}", "echo behind\n".repeat(2_000)),
        Wait::EndingBehindHeld => "hold 7 held\nwait\n".to_owned(),
        Wait::Going => "park\n".to_owned(),
        Wait::GoingLongPipeline => format!("park\n{}", "echo behind\n".repeat(40_000)),
        Wait::Held => "hold 7 held\n".to_owned(),
        Wait::HeldFull => format!("hold 7 {}\n", "h".repeat(2_000)),
        Wait::Reader => "big 20000000\n".to_owned(),
    };
    let before = connection.commands();
    // The rest of a long pipeline stays in the sockets' buffers, or with us.
    client.stream().set_nonblocking(true).unwrap();
    let _ = std::io::Write::write(&mut client.stream(), requests.as_bytes()).unwrap();
    client.stream().set_nonblocking(false).unwrap();
    let count = if wait == Wait::EndingBehindHeld { 2 } else { 1 };
    eventually("it waits", || connection.commands() >= before + count);
    (client, connection)
}

fn leave(
    server: &Server,
    client: Client<TcpStream>,
    connection: &Connection,
    leave: Leave,
) -> Option<Client<TcpStream>> {
    let reset = |client: &Client<TcpStream>| {
        socket2::SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    };
    match leave {
        Leave::Half => {
            client.stream().shutdown(Shutdown::Write).unwrap();
            return Some(client);
        }
        Leave::Close => {}
        Leave::Reset => reset(&client),
        Leave::Kill => {
            server.handle.kill(connection.id());
            return Some(client);
        }
        Leave::MovedClose => {
            // Refused under `threads`, where nothing moves.
            let _ = server.handle.move_connection(connection.id(), 1 - connection.loop_index().min(1));
        }
        Leave::HalfThenReset => {
            client.stream().shutdown(Shutdown::Write).unwrap();
            reset(&client);
        }
    }
    None
}

/// Ends what `wait` waits for.
fn end_wait(server: &Server, client: Option<&mut Client<TcpStream>>, connection: &Connection, wait: Wait) {
    match wait {
        Wait::Going | Wait::GoingLongPipeline => {
            server.handle.post(connection.id(), Message::Resume("resumed".to_owned()));
        }
        _ => server.release(7),
    }
    let Some(client) = client else { return };
    match wait {
        Wait::Going | Wait::GoingLongPipeline => client.expect("resumed"),
        Wait::HeldFull => assert_eq!(client.line().map(|line| line.len()), Some(2_000), "{wait:?}"),
        Wait::Reader => assert_eq!(client.line().map(|line| line.len()), Some(20_000_000), "{wait:?}"),
        _ => client.expect("held"),
    }
    // Whatever was behind, then the end.
    let rest = client.rest();
    assert!(rest.len().is_multiple_of("behind\n".len()), "{wait:?}: {} bytes", rest.len());
}

fn whoever_leaves_while_waiting_is_noticed(connector: Connector) {
    // Longer than this waits for anything: nothing in the table ends by the grace time.
    let server = Server::start(table_options(connector, Duration::from_secs(25)));
    for wait in WAITS {
        for how in LEAVES.into_iter().filter(|how| is_seen(wait, *how)) {
            let (client, connection) = waiting(&server, wait);
            let mut client = leave(&server, client, &connection, how);
            let case = format!("{connector}: {wait:?}, {how:?}");
            if expected(wait, how) == End::Answered {
                assert!(!connection.is_closed(), "{case}");
                end_wait(&server, client.as_mut(), &connection, wait);
            }
            eventually(&case, || connection.is_closed());
            server.protocol.released.store(0, std::sync::atomic::Ordering::SeqCst);
        }
    }
    eventually("all have gone", || server.handle.connection_count() == 0);
}

/// What goes on for a client that closed its side is bounded by the grace time: the client may be gone for good.
fn whoever_closed_its_side_and_gets_nowhere_is_ended_after_the_grace_time(connector: Connector) {
    let server = Server::start(table_options(connector, Duration::from_millis(50)));
    for wait in WAITS {
        let ways = [Leave::Half, Leave::Close, Leave::MovedClose];
        for how in ways.into_iter().filter(|how| is_seen(wait, *how)) {
            let (client, connection) = waiting(&server, wait);
            let client = leave(&server, client, &connection, how);
            eventually(&format!("{connector}: {wait:?}, {how:?}"), || connection.is_closed());
            let why = server.close_reason(connection.id());
            assert!(matches!(why, CloseReason::Peer | CloseReason::Grace), "{wait:?}, {how:?}: {why:?}");
            drop(client);
        }
    }
}

/// A client that pipes a file in and reads slowly has closed its side long before it has read all.
fn half_closed_client_that_reads_slowly_gets_all_its_replies(connector: Connector) {
    let server = Server::start(table_options(connector, Duration::from_millis(600)));
    let (mut client, connection) = server.connect_known();
    client.send(&"big 100000\n".repeat(100));
    client.stream().shutdown(Shutdown::Write).unwrap();
    for _ in 0..100 {
        // Each line takes a part of the grace time, all together several of it.
        let before = std::time::Instant::now();
        assert_eq!(client.line().map(|line| line.len()), Some(100_000));
        while before.elapsed() < Duration::from_millis(20) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
    assert_eq!(client.line(), None);
    eventually("it ends", || connection.is_closed());
}

under_each_connector! {
    whoever_leaves_while_waiting_is_noticed,
    whoever_closed_its_side_and_gets_nowhere_is_ended_after_the_grace_time,
    half_closed_client_that_reads_slowly_gets_all_its_replies,
}
