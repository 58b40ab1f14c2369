//! Two channels that hand each other their bytes, without sockets.

use super::*;
use crate::{Secret, Security};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);

fn keys(secret: &str) -> Arc<Keys> {
    let secret = Secret::new(secret).unwrap();
    Keys::new(&Security::Secret { secret, cluster: String::new() }).unwrap().unwrap()
}

fn right() -> Arc<Keys> {
    keys("a secret of more than 16 bytes")
}

fn pair(one: &Arc<Keys>, two: &Arc<Keys>) -> [Channel; 2] {
    [Channel::dialed(one, ONE, TWO).unwrap(), Channel::accepted(two, TWO).unwrap()]
}

/// Hands what `from` has to say to `to`, in pieces of `piece_bytes`; whether there was anything.
fn hand(from: &mut Channel, to: &mut Channel, piece_bytes: usize) -> Result<bool, Refusal> {
    let mut bytes = Vec::new();
    from.flush(&mut bytes);
    bytes.chunks(piece_bytes).try_for_each(|piece| to.take(piece))?;
    Ok(!bytes.is_empty())
}

/// Has both speak until they are silent, or one refuses the other.
fn talk([one, two]: &mut [Channel; 2], piece_bytes: usize) -> Result<(), Refusal> {
    while hand(one, two, piece_bytes)? | hand(two, one, piece_bytes)? {}
    Ok(())
}

#[test]
fn both_open_and_carry_bytes_in_pieces_of_any_size() {
    for piece_bytes in [1, 7, 1_000, usize::MAX] {
        let mut pair = pair(&right(), &right());
        talk(&mut pair, piece_bytes).unwrap();
        assert_eq!((pair[0].peer(), pair[1].peer()), (Some(TWO), Some(ONE)));
        let message: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        let (head, tail) = message.split_at(33_333);
        pair[0].send(&mut [IoSlice::new(head), IoSlice::new(b""), IoSlice::new(tail)]);
        talk(&mut pair, piece_bytes).unwrap();
        let plain = pair[1].plain().unwrap();
        assert_eq!(plain.bytes(), message);
        plain.consume(40_000);
        assert_eq!(plain.bytes(), &message[40_000..]);
        plain.consume(60_000);
        assert_eq!(plain.bytes(), b"");
    }
}

#[test]
fn other_secret_is_refused_by_the_acceptor_which_tells_the_dialer() {
    let mut pair = pair(&keys("another secret of enough bytes"), &right());
    assert_eq!(talk(&mut pair, usize::MAX), Err(Refusal::WrongSecret));
    let [one, two] = &mut pair;
    assert_eq!(hand(two, one, usize::MAX), Err(Refusal::PeerRefusesSecret));
    assert!(!one.is_open() && !two.is_open());
}

#[test]
fn nothing_is_shown_before_the_proof_whatever_came_over_tls() {
    let [mut one, mut two] = pair(&right(), &right());
    // TLS is there on both sides, and the dialer's proof is in its buffer with its last words.
    hand(&mut one, &mut two, usize::MAX).unwrap();
    hand(&mut two, &mut one, usize::MAX).unwrap();
    one.tls.writer().write_all(&[0; 100]).unwrap();
    let mut bytes = Vec::new();
    one.flush(&mut bytes);
    // Up to the last byte but one of the record with the proof, which is followed by one of 100 + 22.
    two.take(&bytes[..bytes.len() - 123]).unwrap();
    assert!(two.plain().is_none() && !one.is_open());
    two.take(&bytes[bytes.len() - 123..]).unwrap();
    assert_eq!(two.plain().map(|plain| plain.bytes().len()), Some(100));
}

/// Two sessions of somebody in the middle, who hands on what is in them.
#[test]
fn proof_that_is_handed_on_by_somebody_in_the_middle_is_wrong() {
    let middle = keys("of whom nobody knows the secret");
    let [mut one, mut two] = pair(&right(), &right());
    let mut to_one = Channel::accepted(&middle, TWO).unwrap();
    hand(&mut one, &mut to_one, usize::MAX).unwrap();
    hand(&mut to_one, &mut one, usize::MAX).unwrap();
    assert_eq!(hand(&mut one, &mut to_one, usize::MAX), Err(Refusal::WrongSecret));
    let proof = to_one.plain.bytes().to_vec();
    assert_eq!(proof.len(), PROOF_BYTES);

    let name = ServerName::try_from(NAME).unwrap();
    let mut to_two = ClientConnection::new(Arc::clone(&middle.client), name).unwrap();
    let mut bytes = Vec::new();
    to_two.write_tls(&mut bytes).unwrap();
    two.take(&bytes).unwrap();
    bytes.clear();
    two.flush(&mut bytes);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to_two.read_tls(&mut rest).unwrap();
        to_two.process_new_packets().unwrap();
    }
    to_two.writer().write_all(&proof).unwrap();
    let mut bytes = Vec::new();
    while to_two.wants_write() {
        to_two.write_tls(&mut bytes).unwrap();
    }
    assert_eq!(two.take(&bytes), Err(Refusal::WrongSecret));
    assert!(!one.is_open() && !two.is_open());
}

#[test]
fn stranger_without_end_is_cut_off() {
    let mut two = Channel::accepted(&right(), TWO).unwrap();
    let mut record = [&b"\x16\x03\x01\x10\0"[..], &[0; 4 << 10]].concat();
    record[5..9].copy_from_slice(b"\x01\0\xFF\xFF");
    let mut taken = 0;
    let why = loop {
        match two.take(&record) {
            Ok(()) => taken += record.len(),
            Err(why) => break why,
        }
        record[5..9].fill(0);
    };
    assert!(why == Refusal::TooMuch && taken <= HANDSHAKE_BYTES_MAX, "{why:?} after {taken}");
}

#[test]
fn changed_byte_closes_an_open_channel() {
    let mut pair = pair(&right(), &right());
    talk(&mut pair, usize::MAX).unwrap();
    let [one, two] = &mut pair;
    one.send(&mut [IoSlice::new(b"to be changed")]);
    let mut bytes = Vec::new();
    one.flush(&mut bytes);
    bytes[10] ^= 1;
    assert_eq!(two.take(&bytes), Err(Refusal::BrokenTls));
    assert_eq!(two.plain().map(|plain| plain.bytes().len()), Some(0));
}
