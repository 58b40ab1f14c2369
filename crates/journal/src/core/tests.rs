//! Batches, segments and promises of the core.

use super::*;
use crate::admission::shared_footprint_max;
use crate::format::record::RECORD_HEADER_SIZE_BYTES;
use crate::types::FileId;
use crate::types::Keyspace;

const SIZE: u64 = 64 << 10;

fn core() -> Core {
    let resume = Resume {
        segment: OpenSegment::new(SegmentId(1), SIZE, Lsn(1)),
        end_bytes: SEGMENT_HEADER_SIZE_BYTES,
        next_lsn: Lsn(1),
        next_seq: Seq(1),
        next_segment: SegmentId(2),
    };
    Core::new(9, resume, 8192)
}

fn ready(id: u32, size_bytes: u64) -> ReadyFile {
    ReadyFile::in_a_test(FileId(id), size_bytes)
}

fn append(core: &mut Core, lens: &[usize]) -> (Placed, Vec<LogAddress>) {
    let payloads: Vec<Vec<u8>> = lens.iter().map(|len| vec![1; *len]).collect();
    let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [payload.as_slice()]).collect();
    let drafts: Vec<Draft<'_>> = parts.iter().map(|parts| Draft::new(1, Keyspace::NONE, parts)).collect();
    let mut addresses = Vec::new();
    let bytes = drafts.iter().map(|draft| record_size_bytes(draft.payload_len())).sum();
    if !core.is_large(bytes) {
        return (core.append(&drafts, None, &mut addresses), addresses);
    }
    let (placed, filling) = begin(core, lens.len() as u32, bytes);
    finish(core, filling, &drafts, &mut addresses);
    (placed, addresses)
}

fn begin(core: &mut Core, records: u32, bytes: u64) -> (Placed, Filling) {
    core.begin_filling(bytes, records, None, Core::memory_for(bytes))
}

fn finish(core: &mut Core, mut filling: Filling, drafts: &[Draft<'_>], addresses: &mut Vec<LogAddress>) {
    filling.fill(drafts, addresses);
    core.finish_filling(filling);
}

/// A group of 60 MB was copied under the lock: loops that appended something small waited for it, and all of their clients.
#[test]
fn group_that_is_filled_without_the_lock_lets_others_append_and_is_written_before_them() {
    let mut core = core();
    let (before, _) = append(&mut core, &[10]);
    let payload = [7; 5_000];
    let parts: [&[u8]; 1] = [&payload];
    let draft = Draft::new(1, Keyspace::NONE, &parts);
    let bytes = record_size_bytes(draft.payload_len());
    assert!(core.is_large(bytes));
    let (placed, filling) = begin(&mut core, 1, bytes);
    let (after, later) = append(&mut core, &[20, 30]);
    let last = |placed: Placed| (placed.appended.last_seq.0, placed.appended.last_lsn.0);
    assert_eq!([before, placed, after].map(last), [(1, 1), (2, 2), (4, 4)]);
    let mut cycle = core.take_cycle().expect("what came before it");
    assert_eq!((cycle.records, cycle.last_lsn, cycle.next_seq), (1, Lsn(1), Seq(2)));
    core.on_cycle_done(&mut cycle);
    assert!(core.take_cycle().is_none() && core.is_filling() && !core.is_drained());
    let mut addresses = Vec::new();
    finish(&mut core, filling, &[draft], &mut addresses);
    assert!(later[0].pack() > addresses[0].pack() && !core.is_filling());
    let found =
        core.with_unwritten(addresses[0], |bytes| bytes[RECORD_HEADER_SIZE_BYTES..][..5_000] == payload);
    assert_eq!(found, Some(true), "it is read before it is written");
    let cycle = core.take_cycle().expect("the rest");
    assert_eq!((cycle.records, cycle.last_lsn, cycle.next_seq), (3, Lsn(4), Seq(5)));
    let ends = cycle.batches.iter().map(|batch| {
        let batch = batch.read().expect("nobody panicked");
        (batch.offset, batch.end())
    });
    assert!(ends.collect::<Vec<_>>().windows(2).all(|pair| pair[0].1 == pair[1].0), "without a gap");
}

#[test]
fn one_cycle_takes_everything_appended_and_the_next_waits_for_its_end() {
    let mut core = core();
    assert!(core.take_cycle().is_none(), "nothing to write");
    append(&mut core, &[10, 20]);
    append(&mut core, &[30]);
    let mut cycle = core.take_cycle().expect("two groups");
    assert_eq!((cycle.records, cycle.last_lsn, cycle.next_seq), (3, Lsn(3), Seq(4)));
    append(&mut core, &[40]);
    assert!(core.take_cycle().is_none(), "one cycle at a time");
    core.on_cycle_done(&mut cycle);
    assert_eq!(core.take_cycle().map(|cycle| cycle.last_lsn), Some(Lsn(4)));
}

#[test]
fn batches_follow_each_other_without_a_gap_and_hold_whole_groups() {
    let mut core = core();
    for _ in 0..6 {
        append(&mut core, &[900, 1100]);
    }
    let cycle = core.take_cycle().expect("six groups");
    assert!(cycle.batches.len() > 1, "a batch closes at its limit");
    let mut end = SEGMENT_HEADER_SIZE_BYTES;
    for batch in &cycle.batches {
        let batch = batch.read().expect("nobody panicked");
        assert_eq!((batch.offset, batch.records % 2), (end, 0));
        end = batch.end();
    }
}

/// Each group was charged for a batch header of its own, and segments of small records ended 40 % empty.
#[test]
fn groups_that_share_a_batch_pay_for_one_header() {
    let mut core = core();
    append(&mut core, &[10]);
    let first = core.segment().used;
    append(&mut core, &[10]);
    assert_eq!(core.segment().used, 2 * first - BATCH_HEADER_SIZE_BYTES as u64);
    let cycle = core.take_cycle().expect("two groups");
    assert_eq!(cycle.batches.len(), 1);
    append(&mut core, &[10]);
    assert_eq!(core.segment().used, 3 * first - BATCH_HEADER_SIZE_BYTES as u64, "a new batch has its header");
}

#[test]
fn moved_copy_keeps_its_seq_and_takes_a_new_lsn() {
    let mut core = core();
    append(&mut core, &[10, 10, 10]);
    let parts: [&[u8]; 1] = [b"copy"];
    let placed = core.append(&[Draft::new(1, Keyspace::NONE, &parts).moved(Seq(2))], None, &mut Vec::new());
    assert_eq!(placed.appended, Appended { last_seq: Seq(3), last_lsn: Lsn(4), cycle: 0 });
}

proptest::proptest! {
    /// Whatever fits what admission promises finds room, and what is promised is never taken twice.
    #[test]
    fn promises_cover_every_order_of_groups(lens in proptest::collection::vec(1_usize..11_000, 1..200)) {
        let mut core = core();
        let mut room = core.segment().promise;
        let mut files = 2;
        let mut last = LogAddress::default();
        for len in lens {
            let footprint = footprint_of(record_size_bytes(len as u32), 1);
            proptest::prop_assume!(footprint <= shared_footprint_max(SIZE));
            while room < footprint {
                core.add_ready(ready(files, SIZE));
                files += 1;
                room += promise_bytes(SIZE);
            }
            let (placed, addresses) = append(&mut core, &[len]);
            core.check();
            proptest::prop_assert!(placed.room <= footprint, "took {} for {footprint}", placed.room);
            proptest::prop_assert!(addresses[0].pack() > last.pack(), "addresses grow");
            proptest::prop_assert!(core.end_bytes() + 4096 <= SIZE);
            room -= placed.room;
            last = addresses[0];
        }
    }
}
