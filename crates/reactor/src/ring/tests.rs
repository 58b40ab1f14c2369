//! The ring on real sockets: pieces come in order, parcels come back, what is stopped completes, and nothing is lost when buffers
//! or places in the queue run out. Needs a kernel that has io_uring switched on.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::EventfdFlags;
use rustix::net::RecvFlags;

use super::*;

const TOKEN: u64 = (77 << 32) | 5;
const PATIENCE: Duration = Duration::from_secs(20);

fn ring() -> Ring {
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    Ring::new(Arc::new(bell)).expect("io_uring, which this test needs: kernel 6.1 or newer, not switched off")
}

fn next(ring: &mut Ring) -> Completion {
    loop {
        if let Some(completion) = ring.next() {
            return completion;
        }
        ring.wait(Some(PATIENCE)).expect("a ring that waits");
    }
}

fn parcel(bytes: &[u8]) -> Box<Parcel> {
    Box::new(Parcel { own: bytes.to_vec(), range: 0..bytes.len(), ..Parcel::default() })
}

/// Takes what came off the ring; `None` at the end of the stream or of receiving.
fn received(ring: &mut Ring) -> (Option<Vec<u8>>, bool) {
    match next(ring) {
        Completion::Received { token: TOKEN, outcome: Ok(Some(lease)), armed } => {
            let bytes = ring.bytes(&lease).to_vec();
            ring.give(lease);
            (Some(bytes), armed)
        }
        Completion::Received { token: TOKEN, armed, .. } => (None, armed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_come_one_after_the_other_until_the_stream_ends() {
    let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
    let mut ring = ring();
    ring.receive(socket.as_fd(), TOKEN).expect("room");
    for text in ["one", "two", "three"] {
        client.write_all(text.as_bytes()).expect("room");
        assert_eq!(received(&mut ring), (Some(text.as_bytes().to_vec()), true));
    }
    drop(client);
    assert_eq!(received(&mut ring), (None, false));
    assert_eq!(ring.under_way, 0);
}

#[test]
fn buffers_that_are_given_back_serve_a_stream_longer_than_all_of_them() {
    let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
    let sent: Vec<u8> = (0..3 * MEMORY).map(|at| (at % 251) as u8).collect();
    let copy = sent.clone();
    let mut ring = ring();
    let writer = std::thread::scope(|scope| {
        scope.spawn(move || client.write_all(&copy).map(|()| drop(client)));
        let mut came = Vec::new();
        ring.receive(socket.as_fd(), TOKEN).expect("room");
        loop {
            match received(&mut ring) {
                (Some(bytes), true) => came.extend_from_slice(&bytes),
                (Some(bytes), false) => {
                    came.extend_from_slice(&bytes);
                    ring.receive(socket.as_fd(), TOKEN).expect("room");
                }
                (None, _) => break came,
            }
        }
    });
    assert_eq!(writer.len(), sent.len());
    assert!(writer == sent);
}

const OTHER_TOKEN: u64 = TOKEN + 1;
const MEMORY: usize = buffers::COUNT as usize * buffers::SIZE_BYTES;

#[test]
fn receiving_ends_without_buffers_and_goes_on_when_they_are_back() {
    let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
    let mut ring = ring();
    ring.receive(socket.as_fd(), TOKEN).expect("room");
    let mut leases = Vec::new();
    let no_buffer = loop {
        client.write_all(b"x").expect("room");
        match next(&mut ring) {
            Completion::Received { outcome: Ok(Some(lease)), .. } => leases.push(lease),
            Completion::Received { outcome, armed, .. } => break (outcome.map(drop), armed),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(no_buffer, (Err(Errno::NOBUFS), false));
    assert_eq!(leases.len(), usize::from(buffers::COUNT));
    // Also for one to which nothing came: the kernel looks for a buffer first.
    let (mut other_client, other) = UnixStream::pair().expect("a pair of sockets");
    ring.receive(other.as_fd(), OTHER_TOKEN).expect("room");
    let Completion::Received { token, outcome, armed } = next(&mut ring) else { panic!("not received") };
    assert_eq!((token, outcome.map(drop), armed), (OTHER_TOKEN, Err(Errno::NOBUFS), false));
    ring.await_bytes(other.as_fd(), OTHER_TOKEN).expect("room");
    other_client.write_all(b"y").expect("room");
    let Completion::Received { token, outcome, armed } = next(&mut ring) else { panic!("not received") };
    assert!((token, armed) == (OTHER_TOKEN, false) && matches!(outcome, Ok(None)), "{outcome:?}");
    let mut waits = [0; 8];
    assert_eq!(rustix::net::recv(&other, &mut waits, RecvFlags::DONTWAIT).expect("it is there").1, 1);
    leases.into_iter().for_each(|lease| ring.give(lease));
    ring.receive(socket.as_fd(), TOKEN).expect("room");
    assert_eq!(received(&mut ring).0.as_deref(), Some(&b"x"[..]), "nothing was lost");
}

#[test]
fn parcel_arrives_and_comes_back() {
    let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
    let mut ring = ring();
    ring.send(socket.as_fd(), TOKEN, parcel(b"reply")).expect("room");
    match next(&mut ring) {
        Completion::Sent { token: TOKEN, parcel, outcome: Ok(5) } => assert_eq!(parcel.bytes(), b"reply"),
        other => panic!("{other:?}"),
    }
    let shared: SharedBytes = Arc::new(b"not this, this".to_vec());
    let parcel = Parcel { shared: Some(shared), range: 10..14, ..Parcel::default() };
    ring.send(socket.as_fd(), TOKEN, Box::new(parcel)).expect("room");
    assert!(matches!(next(&mut ring), Completion::Sent { outcome: Ok(4), .. }));
    let mut came = [0; 9];
    client.read_exact(&mut came).expect("both parcels");
    assert_eq!(&came, b"replythis");
}

#[test]
fn stop_ends_a_send_that_nobody_takes_and_a_receive() {
    let (_client, socket) = UnixStream::pair().expect("a pair of sockets");
    let mut ring = ring();
    ring.receive(socket.as_fd(), TOKEN).expect("room");
    loop {
        ring.send(socket.as_fd(), TOKEN, parcel(&[1; 64 << 10])).expect("room");
        ring.wait(Some(Duration::from_millis(50))).expect("a ring that waits");
        match ring.next() {
            Some(Completion::Sent { outcome: Ok(_), .. }) => {}
            None => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ring.under_way, 2);
    ring.stop(socket.as_fd(), TOKEN, false).expect("room");
    for _ in 0..2 {
        match next(&mut ring) {
            Completion::Sent { outcome: Err(Errno::CANCELED), .. } => {}
            Completion::Received { outcome: Err(Errno::CANCELED), armed: false, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ring.under_way, 0);
}

#[test]
fn stop_of_receiving_alone_lets_a_send_be() {
    let (mut client, socket) = UnixStream::pair().expect("a pair of sockets");
    let mut ring = ring();
    ring.receive(socket.as_fd(), TOKEN).expect("room");
    ring.stop(socket.as_fd(), TOKEN, true).expect("room");
    assert_eq!(received(&mut ring), (None, false));
    client.write_all(b"later").expect("room");
    ring.receive(socket.as_fd(), TOKEN).expect("room");
    assert_eq!(received(&mut ring).0.as_deref(), Some(&b"later"[..]), "kept for the next receive");
}

#[test]
fn bell_wakes_a_wait_each_time_it_rings() {
    let mut ring = ring();
    for _ in 0..3 {
        let bell = Arc::clone(&ring.bell);
        std::thread::scope(|scope| {
            scope.spawn(move || rustix::io::write(&*bell, &1_u64.to_ne_bytes()).expect("room"));
            assert!(matches!(next(&mut ring), Completion::Woken));
        });
    }
}

#[test]
fn wait_with_a_timeout_ends_without_a_completion() {
    let mut ring = ring();
    ring.wait(Some(Duration::from_millis(1))).expect("a ring that waits");
    assert!(ring.next().is_none());
}

#[test]
fn more_requests_than_the_queue_takes_are_submitted_meanwhile() {
    let pairs: Vec<_> = (0..600).map(|_| UnixStream::pair().expect("a pair of sockets")).collect();
    let mut ring = ring();
    for (slot, (_, socket)) in pairs.iter().enumerate() {
        ring.receive(socket.as_fd(), slot as u64).expect("room");
    }
    for (slot, (client, _)) in pairs.iter().enumerate() {
        (&*client).write_all(&slot.to_le_bytes()).expect("room");
    }
    let mut seen = vec![false; pairs.len()];
    while seen.contains(&false) {
        match next(&mut ring) {
            Completion::Received { token, outcome: Ok(Some(lease)), .. } => {
                assert_eq!(ring.bytes(&lease), token.to_le_bytes());
                assert!(!std::mem::replace(&mut seen[token as usize], true));
                ring.give(lease);
            }
            // Out of buffers for now.
            Completion::Received { token, outcome: Err(Errno::NOBUFS), .. } => {
                ring.receive(pairs[token as usize].1.as_fd(), token).expect("room");
            }
            other => panic!("{other:?}"),
        }
    }
}
