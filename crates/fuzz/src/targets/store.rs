//! What the store keeps in the journal's records, in checkpoint files and of prepared transactions.
//!
//! Checkpoints are sealed as in [`super::journal`]: the checksums of header and blocks are put right after the
//! mutation, unless the last byte of the input says otherwise.

use journal::format::crc32c;

/// Bytes that mean something to the store's decoders.
pub(super) const WORDS: &[&[u8]] =
    &[b"EKC1", b"\x01\0\0\0k", b"\0\0\0\0", b"\xFF\xFF\xFF\xFF", b"\0\x01", b"\x06\0", b"\x80"];

const HEADER: usize = 64;
const BLOCK_HEADER: usize = 32;

/// The first byte is the kind, the rest the payload.
pub(super) fn record(input: &[u8]) {
    if let Some((kind, payload)) = input.split_first() {
        let _ = store::fuzzing::record(*kind, payload);
    }
}

/// What a prepared transaction's record holds.
pub(super) fn image(input: &[u8]) {
    let _ = store::fuzzing::image(input);
}

pub(super) fn checkpoint(input: &[u8]) {
    let Some((last, bytes)) = input.split_last() else { return };
    let mut bytes = bytes.to_vec();
    if last % 8 != 0 {
        seal(&mut bytes);
    }
    let _ = store::fuzzing::checkpoint(&bytes);
}

/// Puts right every checksum that the lengths in `bytes` lead to.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < HEADER {
        return;
    }
    bytes[..4].copy_from_slice(b"EKC1");
    bytes[8..12].copy_from_slice(&[1, 0, 1, 0]);
    let crc = crc32c(&bytes[8..HEADER]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    let salt = u32_at(bytes, 32);
    let (mut at, mut ordinal) = (HEADER, 0_u32);
    while let Some(header) = bytes.get(at..at + BLOCK_HEADER) {
        let end = at + BLOCK_HEADER + u32_at(header, 4) as usize;
        let Some(block) = bytes.get_mut(at..end) else { return };
        block[8..12].copy_from_slice(&ordinal.to_le_bytes());
        let crc = crc32c(&block[4..]) ^ salt;
        block[..4].copy_from_slice(&crc.to_le_bytes());
        (at, ordinal) = (end, ordinal + 1);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn record_seeds() -> Vec<Vec<u8>> {
    let payloads: [&[u8]; 10] = [
        b"\x01\x02\0\0\0abvalue",
        b"\x02\x02\0\0\0ab",
        b"\x03\x01\0\0\0k\x07\0\0\0\0\0\0\0",
        b"\x04\x09\0\0\0\x02\0\0\0\x01\0\0\0\x08\0\0\0",
        b"\x06\x01\0\0\0k\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0part",
        b"\x07\x01\0\0\0k\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01\x01fv",
        b"\x08\x01\0\0\0k\x01\0\0\0\0\0\0\0\x02\0\0\0\x0217",
        b"\x93\x01\0\0\0k\x07\0\0\0\0\0\0\0\x01\x02\0\x01\x01fv\x02\x03\0\x01g\x03\x04\0\x01h",
        b"\x14\x09\0\0\0\0\0\0\0\x01\x07\x07\x01\x02\0\x01\x01fv\x00\x01\x02\x03\x04\x05\x06\x03\x01\x02\0",
        b"\x16\x09\0\0\0\0\0\0\0\x01\0\0\x80\x80\0\0\0",
    ];
    payloads.iter().map(|payload| payload.to_vec()).collect()
}

/// An image of nothing, and one of each change.
pub(super) fn image_seeds() -> Vec<Vec<u8>> {
    let head = |count: u8| [&[1, 4, 3, 2, 1, 0, 0, 0, 0, count][..], &[0; 3]].concat();
    let read = b"\0\0\0\x01\0\0\0a";
    let removed = b"\0\0\x02\x02\0\0\0ab";
    let put = b"\x03\0\x01\x01\0\0\0k\x01\x02\x01\0\0\0\0\0\0\x05\0\0\0value";
    let hash = b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01\x01fv";
    let collection = [&b"\x03\0\x01\x01\0\0\0l\x07\0\0\0\0\0\0\0\0\x10\0\0\0"[..], hash].concat();
    vec![head(0), [&head(4)[..], read, removed, put, &collection].concat()]
}

/// A checkpoint with a block of each kind; its checksums are put right by [`seal`].
pub(super) fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let mut whole = vec![0; HEADER];
    let mut block = |kind: u16, count: u32, body: &[u8]| {
        let mut header = [0; BLOCK_HEADER];
        header[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        header[12..16].copy_from_slice(&count.to_le_bytes());
        header[20..22].copy_from_slice(&kind.to_le_bytes());
        whole.extend_from_slice(&header);
        whole.extend_from_slice(body);
    };
    block(1, 2, &[7; 12 + 2 * 4]);
    block(2, 1, &[1; 16]);
    block(3, 2, &[2; 2 * 17]);
    block(4, 1, &[3; 17]);
    let mut chained = vec![4; 16];
    chained.extend_from_slice(&[9, 1, 0, 0]); // a tag, and one delta
    chained.extend_from_slice(&[5; 32]);
    block(5, 1, &chained);
    let mut listed = vec![6; 16];
    listed.extend_from_slice(&[9, 2, 0, 0]); // a tag, and two deltas: one that names what it follows, and expires, one that does not
    listed.extend_from_slice(&[5, 2, 120, 3, 7, 200, 1, 1, 8, 7, 6, 5, 4, 3, 2, 1]);
    listed.extend_from_slice(&[5, 1, 120, 1, 9, 4]);
    block(9, 1, &listed);
    block(6, 0, &5_u64.to_le_bytes());
    whole.push(1); // to be sealed
    vec![whole]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_seed_is_a_whole_checkpoint() {
        let mut seed = checkpoint_seeds().remove(0);
        seed.pop();
        assert!(!store::fuzzing::checkpoint(&seed));
        seal(&mut seed);
        assert!(store::fuzzing::checkpoint(&seed), "or mutations of it would stop at the first block");
    }

    #[test]
    fn image_seeds_are_images() {
        assert!(image_seeds().iter().all(|seed| store::fuzzing::image(seed)));
    }

    #[test]
    fn record_seeds_fit_their_kinds() {
        for seed in record_seeds() {
            assert!(store::fuzzing::record(seed[0], &seed[1..]), "kind {}", seed[0]);
        }
    }
}
