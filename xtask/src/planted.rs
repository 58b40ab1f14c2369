//! `cargo xtask planted [NAME...]`: plants bugs in a copy of the tree, one at a time, and asks whether the simulation finds each.
//!
//! A simulation that finds nothing may be blind. Each row of [`BUGS`] is a bug that somebody could have written, as a
//! change of one place in the source. All are built into one copy (`target/planted`), behind a question
//! that only this copy knows (`clock::planted`; `topology::planted`), with a target folder of its own (to cargo the copy is the same package): so one
//! build serves all of them, and nothing of it can reach a shipped binary. Then each runs alone, under a test of `crates/store/tests/sim` or `crates/topology/tests/sim` or of a crate itself, which must fail; with none it must pass.
//!
//! A unit test keeps the rows true to the source. Faults of disk and promises are planted in the simulation itself
//! (`planted_faults_are_found`), rules of recovery and cleaning in `crates/store/tests/model.rs`.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process::Run;

/// A bug: in `file`, `from` (which must be there once) becomes `to`, where `PLANTED` asks whether it is this one's turn.
struct Bug {
    name: &'static str,
    test: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const LIVES: &str = "random_lives";
/// Lives in which most records have parts of large collections.
const BUSY: &str = "busy_lives";
const ERRORS: &str = "error_at_every_io";
/// The simulation of `crates/topology`.
const TOPOLOGIES: &str = "random_lives_keep_their_guarantees";
/// Tests of `crates/components` beside a plain program, and of `crates/worker`.
const WINDOWS: &str = "closing::exactly::tests::it_says_what_a_plain_program_says";
const JOINS: &str = "join::exactly::tests::it_says_what_a_plain_program_says";
const TREE: &str = "tree::tests::it_is_an_ordered_set_whatever_is_done_and_an_empty_one_has_no_nodes";
const SEALED: &str = "tls::tests::client_reads_what_was_released_in_order";
/// Of `crates/rdb`: files of real servers, damaged.
const DAMAGE: &str = "tests::every_cut_and_every_flipped_bit_of_a_file_is_found";
const FRAMES: &str = "tests::frames_that_lie_are_refused";
const ORDER: &str = "cell::waiting::tests::inputs_go_on_when_their_value_is_there_and_no_earlier_one_waits";

#[rustfmt::skip]
const BUGS: &[Bug] = &[
    Bug { name: "write acknowledged without its sync", test: LIVES, file: "journal/src/backend/buffered.rs",
          from: "if sync { self.sync() }", to: "if sync && !PLANTED { self.sync() }" },
    Bug { name: "direct write without O_DSYNC", test: LIVES, file: "journal/src/backend/direct.rs",
          from: "direct: true, dsync, create_new", to: "direct: true, dsync: dsync && !PLANTED, create_new" },
    Bug { name: "held reply sealed before its release", test: SEALED, file: "reactor/src/tls.rs",
          from: "output.pieces(released, &mut pieces)", to: "output.pieces(if PLANTED { Ticket::EVERYTHING } else { released }, &mut pieces)" },
    Bug { name: "failed sync tried again", test: ERRORS, file: "journal/src/backend/buffered.rs",
          from: "self.file().sync_data()",
          to: "self.file().sync_data().or_else(|e| if PLANTED { self.file().sync_data() } else { Err(e) })" },
    Bug { name: "group cut into two batches", test: LIVES, file: "journal/src/core.rs",
          from: "addresses.extend([self.push(draft, group_end(n, drafts.len()))]);",
          to: "if PLANTED && n > 0 { self.close_open_batch(); }\naddresses.extend([self.push(draft, group_end(n, drafts.len()))]);" },
    Bug { name: "torn batch accepted", test: LIVES, file: "journal/src/recovery/tail.rs",
          from: "(follows && crc32c(body) == header.body_crc)", to: "(follows && (PLANTED || crc32c(body) == header.body_crc))" },
    Bug { name: "clean stop sealed without a sync", test: LIVES, file: "journal/src/committer.rs",
          from: "self.write(&cycle, true)?;", to: "self.write(&cycle, !PLANTED)?;" },
    Bug { name: "manifest entry relied on before its sync", test: LIVES, file: "journal/src/manifest.rs",
          from: "self.pages.file.sync_data()?;", to: "if !PLANTED { self.pages.file.sync_data()?; }" },
    Bug { name: "new manifest named before its sync", test: LIVES, file: "journal/src/manifest.rs",
          from: "    file.sync_data()?;\n    vfs.rename", to: "    if !PLANTED { file.sync_data()?; }\n    vfs.rename" },
    Bug { name: "new manifest's name not synced", test: LIVES, file: "journal/src/manifest.rs",
          from: "    folder.sync()?;\n    Ok(Pages", to: "    if !PLANTED { folder.sync()?; }\n    Ok(Pages" },
    Bug { name: "file removed before the manifest says so", test: LIVES, file: "journal/src/preparer.rs",
          from: "manifest.say(&entries, shared.unix_ms())?;", to: "if !PLANTED { manifest.say(&entries, shared.unix_ms())?; }" },
    Bug { name: "writes take the reserve of deletes", test: LIVES, file: "journal/src/admission.rs",
          from: "Class::Write => reserve,", to: "Class::Write => if PLANTED { 0 } else { reserve }," },
    Bug { name: "expiry names another state than it leaves", test: LIVES, file: "store/src/access/plan.rs",
          from: "key, old.since, old.seq, expiry)", to: "key, Seq(old.since.0 + u64::from(PLANTED) * 8), Seq(old.seq.0 + u64::from(PLANTED) * 8), expiry)" },
    Bug { name: "clock record forgotten at a start", test: LIVES, file: "store/src/log/recovery.rs",
          from: "self.index.set_clock(entry.seq, record);", to: "if !PLANTED { self.index.set_clock(entry.seq, record); }" },
    Bug { name: "clock record left out of a checkpoint", test: LIVES, file: "store/src/log/capture.rs",
          from: "encoder.clock(*seq, record);", to: "if !PLANTED { encoder.clock(*seq, record); }" },
    Bug { name: "wall clock set back without a ceiling", test: LIVES, file: "store/src/time.rs",
          from: "if change_us < 0 {", to: "if change_us < 0 && !PLANTED {" },
    Bug { name: "replay ends one record early", test: LIVES, file: "store/src/log/recovery.rs",
          from: "self.replay(entry_of(&view, hasher), Some(view.payload));",
          to: "if !(PLANTED && view.lsn == info.last_lsn) { self.replay(entry_of(&view, hasher), Some(view.payload)); }" },
    Bug { name: "last records not handed to who replays them", test: LIVES, file: "store/src/log/recovery.rs",
          from: "read.and_then(|()| reader.send())", to: "read.and_then(|()| if PLANTED { Ok(()) } else { reader.send() })" },
    Bug { name: "footer lacks an entry", test: LIVES, file: "store/src/log/footer.rs",
          from: "self.writer.write(&self.entries)?;",
          to: "self.writer.write(&self.entries[..self.entries.len() - usize::from(PLANTED)])?;" },
    Bug { name: "mapping in the log not replayed", test: LIVES, file: "store/src/log/recovery.rs",
          from: "if entry.seq > self.index.mapping_seq() {", to: "if entry.seq > self.index.mapping_seq() && !PLANTED {" },
    Bug { name: "removal in the log not replayed", test: LIVES, file: "store/src/index/recover.rs",
          from: "(Some(Role::Removal), Some(spot)) if self.table",
          to: "(Some(Role::Removal), Some(spot)) if !PLANTED && self.table" },
    Bug { name: "leaves of a renamed collection go with its former key", test: LIVES, file: "store/src/access/paged_staging.rs",
          from: "notes.retain(|(_, _, root)| !stay", to: "notes.retain(|(_, _, root)| PLANTED || !stay" },
    Bug { name: "fold drops a later delta", test: LIVES, file: "store/src/index/recover.rs",
          from: ".partition(|delta| delta.seq <= seq)", to: ".partition(|delta| delta.seq <= seq || PLANTED)" },
    Bug { name: "part in the log not replayed", test: LIVES, file: "store/src/index/recover.rs",
          from: "dead_deltas.extend(self.deltas.push(base, delta));",
          to: "if !PLANTED || delta.kind != record::PART { dead_deltas.extend(self.deltas.push(base, delta)); }" },
    Bug { name: "part folded one byte too early", test: LIVES, file: "store/src/log/fold.rs",
          from: "usize::try_from(offset).ok()?)?;\n    let over",
          to: "usize::try_from(offset.saturating_sub(u64::from(PLANTED))).ok()?)?;\n    let over" },
    Bug { name: "part behind the end folded without its end", test: LIVES, file: "store/src/log/fold.rs",
          from: "bytes.extend_from_slice(beyond);", to: "if !PLANTED { bytes.extend_from_slice(beyond); }" },
    Bug { name: "second part of a group logged alone", test: LIVES, file: "store/src/access/part.rs",
          from: "(range.start.min(part.start)..range.end.max(part.end), *retimes)",
          to: "(if PLANTED { part.clone() } else { range.start.min(part.start)..range.end.max(part.end) }, *retimes)" },
    Bug { name: "later change of a collection lost in the fold", test: LIVES, file: "collections/src/edit.rs",
          from: "    changes.iter().try_for_each(", to: "    changes.iter().take(if PLANTED { 1 } else { usize::MAX }).try_for_each(" },
    Bug { name: "sorted set folded without sorting", test: LIVES, file: "collections/src/edit.rs",
          from: "edit.replay(operations))?;\n    Some(edit.encode())",
          to: "edit.replay(operations))?;\n    Some(if PLANTED { edit.encode_as(false) } else { edit.encode() })" },
    Bug { name: "count of a child forgotten in the fold", test: LIVES, file: "collections/src/list.rs",
          from: "self.set(index, &value);", to: "if !PLANTED { self.set(index, &value); }" },
    Bug { name: "equal elements of a list removed from the wrong end in the fold", test: LIVES, file: "collections/src/list.rs",
          from: "=> _ = self.apply(&change),",
          to: "=> _ = match change { ListChange::RemoveEqual { value, most, from_back } => self.remove_equal(value, most, from_back != PLANTED), _ => self.apply(&change) }," },
    Bug { name: "second command's change of a collection not logged", test: LIVES, file: "store/src/access/collection.rs",
          from: "[&before[..], &operations].concat()", to: "[&before[..], if PLANTED { &[] } else { &operations[..] }].concat()" },
    Bug { name: "change of a new collection laid on the one that it replaces", test: LIVES, file: "store/src/access/collection.rs",
          from: "            _ => None,\n        });\n        let change", to: "            (Some(_), Some(_)) if PLANTED => Some(operations),\n            _ => None,\n        });\n        let change" },
    Bug { name: "no note when a paged collection is replaced", test: LIVES, file: "store/src/access/paged_staging.rs",
          from: "roots.extend(root?.map(|root| (hash.stripe(), leaves_of(keyspace), root)))", to: "roots.extend(root?.filter(|_| !PLANTED).map(|root| (hash.stripe(), leaves_of(keyspace), root)))" },
    Bug { name: "no note when one change replaces a paged collection", test: LIVES, file: "store/src/access/commit.rs",
          from: "Ok(if plan.replaces_root { None }", to: "Ok(if plan.replaces_root && !PLANTED { None }" },
    Bug { name: "split of a leaf moves nothing", test: LIVES, file: "store/src/access/leaf_changes.rs",
          from: "(0..packed.len()).partition(goes);", to: "(0..packed.len()).partition(|at| goes(at) && !PLANTED);" },
    Bug { name: "elements of leaves not counted", test: LIVES, file: "store/src/access/leaf_changes.rs",
          from: "(self.root.count + len as u64).saturating_sub(len_before as u64);",
          to: "if PLANTED { self.root.count } else { (self.root.count + len as u64).saturating_sub(len_before as u64) };" },
    // commands do not show it: `evenkeel check` does, which each life runs
    Bug { name: "bytes of a changed leaf not counted in the root", test: LIVES, file: "store/src/access/leaf_changes.rs",
          from: "(self.root.bytes + bytes).saturating_sub(bytes_before);",
          to: "if PLANTED { self.root.bytes } else { (self.root.bytes + bytes).saturating_sub(bytes_before) };" },
    Bug { name: "node kept for a reader twice, the second time as it has become", test: LIVES, file: "store/src/access/snapshots.rs",
          from: "kept.lost.is_some() || kept.nodes.contains_key(&number) {", to: "kept.lost.is_some() || (kept.nodes.contains_key(&number) && !PLANTED) {" },
    Bug { name: "nodes of a tree that is gone stay", test: LIVES, file: "store/src/sweep/waiting.rs",
          from: "if root.numbered() > 0 {", to: "if root.numbered() > 0 && !PLANTED {" },
    Bug { name: "fields that ended in a leaf still counted in the root", test: LIVES, file: "store/src/access/timed.rs",
          from: "(root.count.saturating_sub(fields),", to: "(root.count.saturating_sub(if PLANTED { 0 } else { fields })," },
    Bug { name: "purge of a leaf not logged, its root is", test: LIVES, file: "store/src/access/timed.rs",
          from: "staged.object().view().key()).is_none() {", to: "staged.object().view().key()).is_none() && !PLANTED {" },
    Bug { name: "inner node counts a leaf as it was", test: LIVES, file: "store/src/access/tree_edit/rebalance.rs",
          from: "} else if before.element(next).0 != child {", to: "} else if before.element(next).0 != child && !PLANTED {" },
    Bug { name: "node that goes is not a free one", test: LIVES, file: "store/src/access/tree_edit/rebalance.rs",
          from: "        self.tree.free = number;\n", to: "        if !PLANTED { self.tree.free = number; } else { self.tree.nodes -= 1; }\n" },
    Bug { name: "last leaf of a slice stays", test: LIVES, file: "store/src/sweep.rs",
          from: "(sweep.next..end).map(", to: "(sweep.next..end - u32::from(PLANTED)).map(" },
    Bug { name: "first leaf of several that one record removes is back after a start", test: LIVES, file: "store/src/log/recovery.rs",
          from: "removals.numbers() {", to: "removals.numbers().skip(usize::from(PLANTED)) {" },
    Bug { name: "footer forgets what one record removes", test: LIVES, file: "store/src/log/footer.rs",
          from: "u128::from_le_bytes(removals.encode())", to: "u128::from_le_bytes(removals.encode()) ^ (u128::from(PLANTED) << 40)" },
    Bug { name: "leaves staged for what the group replaces stay", test: LIVES, file: "store/src/access/paged_staging.rs",
          from: "self.overlay.retain(|staged| !is_leaf(staged));", to: "self.overlay.retain(|staged| PLANTED || !is_leaf(staged));" },
    Bug { name: "change of a collection names another state", test: LIVES, file: "store/src/access/plan.rs",
          from: "key, old.seq, operations, expiry)", to: "key, Seq(old.seq.0 + u64::from(PLANTED) * 8), operations, expiry)" },
    Bug { name: "removal of what has changes not replayed", test: LIVES, file: "store/src/index/recover.rs",
          from: "            (Some(Role::Base(_)), Some(spot)) => (self",
          to: "            (Some(Role::Removal), Some(spot)) if PLANTED && self.table.word(spot).marks() & WORD_DELTAS != 0 => (Replay::default(), 0),\n            (Some(Role::Base(_)), Some(spot)) => (self" },
    Bug { name: "changed collection loses its expiry", test: LIVES, file: "store/src/access/collection.rs",
          from: "(Packed::new(shape, value), state.expiry)", to: "(Packed::new(shape, value), state.expiry.filter(|_| !PLANTED))" },
    Bug { name: "base moved without its parts", test: LIVES, file: "store/src/log/cleaner.rs",
          from: "if is_base { self.folded(owned, context)? }", to: "if is_base && !PLANTED { self.folded(owned, context)? }" },
    Bug { name: "changed expiry not in the part", test: LIVES, file: "store/src/access/part.rs",
          from: "(part.clone(), state.expiry != expiry)", to: "(part.clone(), state.expiry != expiry && !PLANTED)" },
    Bug { name: "staged expiry not in the part", test: LIVES, file: "store/src/access/part.rs",
          from: "delta: Small::Expiry, .. }) => (part.clone(), true)", to: "delta: Small::Expiry, .. }) => (part.clone(), !PLANTED)" },
    Bug { name: "value folded in memory names a later state", test: LIVES, file: "store/src/log/folding.rs",
          from: "seq: hot.seq,", to: "seq: Seq(hot.seq.0 + u64::from(PLANTED) * 8)," },
    Bug { name: "expiry lost when a record moves", test: LIVES, file: "store/src/log/copies.rs",
          from: ".expiring(Deadline::raw_or_zero(image.expiry))", to: ".expiring(if PLANTED { 0 } else { Deadline::raw_or_zero(image.expiry) })" },
    Bug { name: "listed survivor not copied", test: LIVES, file: "store/src/log/cleaner.rs",
          from: "let Some(survivor) = listed.pop() else { break };",
          to: "if PLANTED && reads == 0 { listed.pop(); }\n                    let Some(survivor) = listed.pop() else { break };" },
    Bug { name: "segment given back before its checkpoint", test: LIVES, file: "store/src/log/housekeeping.rs",
          from: ".filter(|(_, begun)| **begun < published.began)", to: ".filter(|(_, begun)| **begun < published.began || PLANTED)" },
    Bug { name: "checkpoint names an lsn that it did not capture", test: LIVES, file: "store/src/log/housekeeping/capturing.rs",
          from: "lsn: journal.next_lsn().0 - 1,", to: "lsn: journal.next_lsn().0 - u64::from(!PLANTED)," },
    Bug { name: "checkpoint named before its sync", test: LIVES, file: "store/src/log/checkpoint_file.rs",
          from: "        self.file.sync_data()?;\n        let name", to: "        if !PLANTED { self.file.sync_data()?; }\n        let name" },
    Bug { name: "equal hash bits not marked", test: LIVES, file: "store/src/access/plan.rs",
          from: "let shared = if plan.shared { record::SHARED }", to: "let shared = if plan.shared && !PLANTED { record::SHARED }" },
    Bug { name: "absence does not wait for its removal", test: LIVES, file: "store/src/access/apply.rs",
          from: "if appended.seq <= released {", to: "if appended.seq <= released || PLANTED {" },
    Bug { name: "reply waits for all but the last effect", test: LIVES, file: "store/src/access/commit.rs",
          from: "self.look(last_seq);", to: "self.look(Seq(last_seq.0.saturating_sub(u64::from(PLANTED))));" },
    Bug { name: "eviction not logged", test: LIVES, file: "store/src/access/commit.rs",
          from: "let seq = self.store.engine.append(credits, &[draft], &mut addresses);",
          to: "let is_logged = !PLANTED || staged.cause != Cause::Evicted;\nlet seq = if is_logged { self.store.engine.append(credits, &[draft], &mut addresses) } else { self.store.engine.newest() };" },
    Bug { name: "writers wait where no key may go", test: LIVES, file: "store/src/evict.rs",
          from: "outcome == Some(Outcome::NoVictim)", to: "!PLANTED && outcome == Some(Outcome::NoVictim)" },
    Bug { name: "eviction that watchers do not see", test: LIVES, file: "store/src/access/apply.rs",
          from: "if stripe.watches.touch(staged.db, object.key(), appended.seq, expired) {",
          to: "if (!PLANTED || staged.cause != Cause::Evicted) && stripe.watches.touch(staged.db, object.key(), appended.seq, expired) {" },
    Bug { name: "key evicted that has no expiry any more", test: LIVES, file: "store/src/evict.rs",
          from: "policy.is_volatile() && meta.expiry.is_none() =>", to: "!PLANTED && policy.is_volatile() && meta.expiry.is_none() =>" },
    Bug { name: "expiry that nobody has hides who may go", test: LIVES, file: "store/src/evict.rs",
          from: "self.forget_stale(victim, &prepared);", to: "if !PLANTED { self.forget_stale(victim, &prepared); }" },
    Bug { name: "read leaves no stamp", test: LIVES, file: "store/src/evict/policy.rs",
          from: "Self::Recency => self.fresh(now_ms),", to: "Self::Recency => if PLANTED { stamp } else { self.fresh(now_ms) }," },
    Bug { name: "met expiry not logged", test: LIVES, file: "store/src/access/commit.rs",
          from: "if (self.expired.get_mut().is_empty() && purged", to: "if PLANTED || (self.expired.get_mut().is_empty() && purged" },
    Bug { name: "failure reported apart from its token", test: TOPOLOGIES, file: "topology/src/bolt/open.rs",
          from: "self.is_done() && !self.has_split && self.failed.is_empty()", to: "self.is_done() && !self.has_split && (PLANTED || self.failed.is_empty())" },
    Bug { name: "new tokens of a split not reported", test: TOPOLOGIES, file: "topology/src/bolt/open.rs",
          from: "*new_tokens ^= token;", to: "if !PLANTED { *new_tokens ^= token; }" },
    Bug { name: "parcel goes on under its token and is reported too", test: TOPOLOGIES, file: "topology/src/bolt/open.rs",
          from: "std::mem::take(&mut self.anchors)", to: "if PLANTED { self.anchors.clone() } else { std::mem::take(&mut self.anchors) }" },
    Bug { name: "failure of a tuple without its place in the batch", test: TOPOLOGIES, file: "topology/src/bolt/open.rs",
          from: "Failure { origin: origin(item), ..failure.clone() }", to: "Failure { origin: if PLANTED { 0 } else { origin(item) }, ..failure.clone() }" },
    Bug { name: "time-out not looked for", test: TOPOLOGIES, file: "topology/src/tracker.rs",
          from: "            && deadline <= now\n", to: "            && deadline <= now && !PLANTED\n" },
    Bug { name: "failed tuple is acknowledged", test: TOPOLOGIES, file: "topology/src/tracker.rs",
          from: "Some(failure) => self.fail(now, original, Trouble::of(failure)),", to: "Some(failure) if !PLANTED => self.fail(now, original, Trouble::of(failure)),\n_ if PLANTED => self.settle(&original, Settled::Acked(original.position)),\nSome(_) => {}" },
    Bug { name: "one attempt too many", test: TOPOLOGIES, file: "topology/src/tracker.rs",
          from: "original.attempts >= self.limits.attempts_max", to: "original.attempts >= self.limits.attempts_max + u32::from(PLANTED)" },
    Bug { name: "silent failure counts", test: TOPOLOGIES, file: "topology/src/tracker.rs",
          from: "        if blame == Blame::Silent {\n", to: "        if blame == Blame::Silent && !PLANTED {\n" },
    Bug { name: "frame that comes twice is taken twice", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "if offset < self.end {", to: "if offset < self.end && !PLANTED {" },
    Bug { name: "gap in a channel not noticed", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "if offset == self.end { Accepted::InOrder }", to: "if offset == self.end || PLANTED { Accepted::InOrder }" },
    Bug { name: "frame of an earlier life taken", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "if life < self.life {", to: "if life < self.life && !PLANTED {" },
    Bug { name: "new link not answered with a credit", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "self.must_tell |= load.is_none();", to: "self.must_tell |= load.is_none() && !PLANTED;" },
    Bug { name: "lost bytes give no credit", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "        self.end = offset;\n", to: "        if !PLANTED || load.is_some() { self.end = offset; }\n" },
    Bug { name: "copy of a root's totals counts nothing", test: BUSY, file: "store/src/record.rs",
          from: "encoder.root(slot, totals);", to: "encoder.root(slot, if PLANTED { &[0, 0, 0] } else { totals });" },
    Bug { name: "further parts of a record not replayed", test: BUSY, file: "store/src/log/recovery.rs",
          from: "for (at, (named, base_seq)) in named.into_iter().enumerate() {",
          to: "for (at, (named, base_seq)) in named.into_iter().enumerate().take(if PLANTED { 1 } else { usize::MAX }) {" },
    Bug { name: "entry of the same length not written over", test: BUSY, file: "store/src/access/counted.rs",
          from: "patched.write(&leaf.operations, value)",
          to: "if !PLANTED { patched.write(&leaf.operations, value) }" },
    Bug { name: "whole leaf without its other bytes", test: BUSY, file: "store/src/access/leaf_changes.rs",
          from: "patched.write(&leaf.operations, value);", to: "if !PLANTED { patched.write(&leaf.operations, value); }" },
    Bug { name: "count of a node not overwritten", test: BUSY, file: "store/src/access/counted.rs",
          from: "of_node.for_each(|it| it.write(value))", to: "of_node.filter(|_| !PLANTED).for_each(|it| it.write(value))" },
    Bug { name: "overwritten node without a delta", test: BUSY, file: "store/src/access/counted.rs",
          from: "if self.engine.takes_parts() {", to: "if self.engine.takes_parts() && !(PLANTED && bytes == 0) {" },
    Bug { name: "leaf that is overwritten not logged", test: BUSY, file: "store/src/access/counted.rs",
          from: "seq_at(leaf.spot)?, &leaf.operations);", to: "seq_at(leaf.spot)?, if PLANTED { &[] } else { &leaf.operations });" },
    Bug { name: "leaf that is overwritten where a reader holds it", test: BUSY, file: "store/src/access/counted.rs",
          from: "if self.store.snapshots.has(paged.root.object) {", to: "if self.store.snapshots.has(paged.root.object) && !PLANTED {" },
    Bug { name: "member that moves goes by its name", test: BUSY, file: "store/src/access/named.rs",
          from: "edit.delete_scored(it.tag, it.member, score_of(&it.score));", to: "if PLANTED { edit.delete(it.tag, it.member); } else { edit.delete_scored(it.tag, it.member, score_of(&it.score)); }" },
    Bug { name: "leaves that split are not looked at again", test: BUSY, file: "store/src/access/tree_edit.rs",
          from: "if !self.change_within::<E>(&path, |edit| change(edit, these))? {", to: "if !self.change_within::<E>(&path, |edit| change(edit, these))? && !PLANTED {" },
    Bug { name: "totals taken where the root has changed in more", test: BUSY, file: "store/src/access/joined.rs",
          from: "roots.is_some_and(|(old, new)| old.is_same_but_for_totals(&new))",
          to: "roots.is_some_and(|(old, new)| PLANTED || old.is_same_but_for_totals(&new))" },
    Bug { name: "sender does not look at its credit", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "> self.window && !is_empty {", to: "> self.window && !is_empty && !PLANTED {" },
    Bug { name: "mark of a move not sent again", test: TOPOLOGIES, file: "topology/src/channel.rs",
          from: "if self.state == Sending::Closed {\n            self.waiting", to: "if self.state == Sending::Closed && !PLANTED {\n            self.waiting" },
    Bug { name: "barrier passes without the other channels", test: TOPOLOGIES, file: "topology/src/bolt.rs",
          from: "marks.all(|mark| mark == Some(first)).then_some(epoch)", to: "(PLANTED || marks.all(|mark| mark == Some(first))).then_some(epoch)" },
    Bug { name: "tuples behind a barrier are taken", test: TOPOLOGIES, file: "topology/src/bolt.rs",
          from: "matches!(self.mark, Some(Mark::Barrier(_)))\n", to: "!PLANTED && matches!(self.mark, Some(Mark::Barrier(_)))\n" },
    Bug { name: "barrier passes a task that has failed a tuple", test: TOPOLOGIES, file: "topology/src/bolt.rs",
          from: "if !is_at_rest || self.failed > 0 {", to: "if !is_at_rest || (self.failed > 0 && !PLANTED) {" },
    Bug { name: "task is moved before it has finished", test: TOPOLOGIES, file: "topology/src/bolt.rs",
          from: "source.mark == Some(Mark::Close)) && self.is_idle()", to: "source.mark == Some(Mark::Close)) && (PLANTED || self.is_idle())" },
    Bug { name: "own changes of the epoch under way not read", test: TOPOLOGIES, file: "topology/src/changes.rs",
          from: "self.sealed.as_ref().map(|(_, values)| values)", to: "self.sealed.as_ref().map(|(_, values)| values).filter(|_| !PLANTED)" },
    Bug { name: "group appended without the last capture", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "if captures.len() == self.tasks.len() {", to: "if captures.len() + usize::from(PLANTED) == self.tasks.len() {" },
    Bug { name: "next barrier before the last group is durable", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "matches!(self.state, State::Running) && self.durable == self.appended;\n        if may", to: "matches!(self.state, State::Running) && (PLANTED || self.durable == self.appended);\n        if may" },
    Bug { name: "tasks work before all workers are ready", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "if missing.is_empty() {", to: "if missing.is_empty() || PLANTED {" },
    Bug { name: "workers of an earlier generation are ready for this one", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "if generation == self.generation {\n            missing", to: "if PLANTED || generation == self.generation {\n            missing" },
    Bug { name: "worker that was started anew does not end the generation", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "_ => {\n                self.on_lost(now);\n                false", to: "_ => {\n                if !PLANTED { self.on_lost(now); }\n                false" },
    Bug { name: "rest not set back by a position that moves", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "if moved.count() > 0 {", to: "if moved.count() > 0 && !PLANTED {" },
    Bug { name: "rebalance behind an epoch forgotten", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "if std::mem::take(&mut self.moves) {", to: "if std::mem::take(&mut self.moves) && !PLANTED {" },
    Bug { name: "workers of a rebalance not waited for", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "        self.workers = workers.iter().copied().collect();\n", to: "        if !PLANTED { self.workers = workers.iter().copied().collect(); }\n" },
    Bug { name: "coordinator that takes over begins with a generation that was there", test: TOPOLOGIES, file: "topology/src/epochs.rs",
          from: "            generation,\n            state: State::Running,", to: "            generation: if PLANTED { 0 } else { generation },\n            state: State::Running," },
    Bug { name: "order of a generation without the places", test: TOPOLOGIES, file: "topology/src/epochs/message.rs",
          from: "places: places.to_vec(),", to: "places: if PLANTED { Vec::new() } else { places.to_vec() }," },
    Bug { name: "order of a generation without the positions", test: TOPOLOGIES, file: "topology/src/epochs/message.rs",
          from: "positions: positions.clone(),", to: "positions: if PLANTED { BTreeMap::new() } else { positions.clone() }," },
    Bug { name: "order of a generation without what is to be skipped", test: TOPOLOGIES, file: "topology/src/epochs/message.rs",
          from: "!poison.is_empty()).collect(),", to: "!poison.is_empty() && !PLANTED).collect()," },
    Bug { name: "position one tuple ahead", test: TOPOLOGIES, file: "topology/src/spout/unsealed.rs",
          from: "(self.last, std::mem::take(&mut self.dead))", to: "(self.last.map(|last| Position(last.0 + u128::from(PLANTED))), std::mem::take(&mut self.dead))" },
    Bug { name: "dead letter of a skipped tuple lost", test: TOPOLOGIES, file: "topology/src/spout/unsealed.rs",
          from: "Some(letter) => self.dead.push(letter),", to: "Some(letter) => if !PLANTED { self.dead.push(letter); }," },
    Bug { name: "retry that is due not emitted", test: TOPOLOGIES, file: "topology/src/spout.rs",
          from: "        while self.emitter.is_clear()\n", to: "        while self.emitter.is_clear() && !PLANTED\n" },
    Bug { name: "watermark not read by a task that begins anew", test: WINDOWS, file: "components/src/closing/watermark.rs",
          from: "if self.is_read {", to: "if self.is_read || PLANTED {" },
    Bug { name: "session ends where it was to end before it was lengthened", test: WINDOWS, file: "components/src/closing/exactly.rs",
          from: "if window.end > reached_ms {", to: "if window.end > reached_ms && !PLANTED {" },
    Bug { name: "state changed before all is read", test: WINDOWS, file: "components/src/draft.rs",
          from: "self.changed.insert(key, value);", to: "if PLANTED { self.out.set(key, value).unwrap_or(()) } else { self.changed.insert(key, value); }" },
    Bug { name: "tuple joined and still to be given up", test: JOINS, file: "components/src/join/exactly.rs",
          from: "self.by_arrival.remove(draft, &place)?;", to: "if !PLANTED { self.by_arrival.remove(draft, &place)?; }" },
    Bug { name: "oldest not given up when too many wait", test: JOINS, file: "components/src/join/exactly.rs",
          from: "waiting <= settings.tuples_max as u64", to: "(PLANTED || waiting <= settings.tuples_max as u64)" },
    Bug { name: "child before the bound's not looked at", test: TREE, file: "components/src/tree.rs",
          from: "for at in (0..=node.child_of(bound)).rev() {", to: "for at in (0..=node.child_of(bound)).rev().take(if PLANTED { 1 } else { usize::MAX }) {" },
    Bug { name: "input does not wait for earlier ones", test: ORDER, file: "worker/src/cell/waiting.rs",
          from: "self.numbers.first().is_none_or(", to: "PLANTED || self.numbers.first().is_none_or(" },
    Bug { name: "checksum of an RDB file not compared", test: DAMAGE, file: "rdb/src/reader.rs",
          from: "if wanted != 0 && found != wanted {", to: "if wanted != 0 && found != wanted && !PLANTED {" },
    Bug { name: "length in a listpack believed", test: FRAMES, file: "rdb/src/blob.rs",
          from: "if at.end >= self.bytes.len() {", to: "if at.end >= self.bytes.len() && !PLANTED {" },
];

/// Plants the named bugs, or all; each must be found.
///
/// # Errors
/// A bug was not found, or the copy without any failed.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<(), Failure> {
    if let Some(name) = names.iter().find(|name| BUGS.iter().all(|bug| bug.name != name.as_str())) {
        let known: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
        return Err(format!("no bug `{name}`; there are:\n{}", known.join("\n")));
    }
    let copy = copy_with_bugs(root)?;
    let is_chosen = |bug: &&Bug| names.is_empty() || names.iter().any(|name| name == bug.name);
    let chosen: Vec<&Bug> = BUGS.iter().filter(is_chosen).collect();
    for simulation in [LIVES, TOPOLOGIES, WINDOWS, ORDER] {
        let is_needed = chosen.iter().any(|bug| package(bug.test) == package(simulation));
        let (passes, output) = if is_needed { test(&copy, "", simulation, 50)? } else { continue };
        if !passes {
            return Err(format!("the copy fails with nothing planted:\n{output}"));
        }
    }
    let mut missed = Vec::new();
    for bug in chosen {
        let (passes, output) = test(&copy, bug.name, bug.test, SEEDS)?;
        let shown =
            output.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or("a panic");
        println!("{:<50} {}", bug.name, if passes { "NOT FOUND" } else { shown.get(..150).unwrap_or(shown) });
        missed.extend(passes.then_some(bug.name));
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("planted and not found: {}", missed.join(", "))) }
}

/// The package that has `test`.
fn package(test: &str) -> &'static str {
    match test {
        TOPOLOGIES => "topology",
        WINDOWS | JOINS | TREE => "components",
        ORDER => "worker",
        SEALED => "reactor",
        DAMAGE | FRAMES => "rdb",
        _ => "store",
    }
}

/// Runs `test` in the copy with one bug; whether it passes, and what it said.
fn test(copy: &Path, bug: &str, test: &str, seeds: u64) -> Result<(bool, String), Failure> {
    let package = package(test);
    let target: &[&str] =
        if matches!(package, "store" | "topology") { &["--test", "sim"] } else { &["--lib"] };
    let (passes, output) = Run::cargo(copy)
        .args(["test", "--profile", "ci", "-p", package])
        .args(target.iter().copied())
        .args(["--", test])
        .env("CARGO_TARGET_DIR", &copy.join("target").to_string_lossy())
        .env("EVENKEEL_PLANTED", bug)
        .env("EVENKEEL_SIM_SEEDS", &seeds.to_string())
        .env("RUST_BACKTRACE", "0")
        .outcome()?;
    let ran = output.contains("test result: ");
    if ran { Ok((passes, output)) } else { Err(format!("the copy does not build: {output}")) }
}

/// Makes `target/planted`: the workspace, with all bugs behind questions.
fn copy_with_bugs(root: &Path) -> Result<PathBuf, Failure> {
    let copy = root.join("target/planted");
    let io = |error: std::io::Error| format!("{}: {error}", copy.display());
    std::fs::create_dir_all(&copy).map_err(io)?;
    let parts = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates", "xtask"];
    // what an earlier copy had and the tree has no more would be built
    Run::new(root, "rm").args(["-rf", "target/planted/crates", "target/planted/xtask"]).read()?;
    Run::new(root, "cp").args(["-a"]).args(parts).args(["target/planted"]).read()?;
    for bug in BUGS {
        let path = copy.join("crates").join(bug.file);
        let text = std::fs::read_to_string(&path).map_err(io)?;
        let planted = format!("{}::planted({:?})", asked(bug), bug.name);
        std::fs::write(&path, text.replacen(bug.from, &bug.to.replace("PLANTED", &planted), 1))
            .map_err(io)?;
    }
    for package in ["clock", "rdb", "topology"] {
        let path = copy.join("crates").join(package).join("src/lib.rs");
        let text = std::fs::read_to_string(&path).map_err(io)?;
        std::fs::write(&path, text + QUESTION).map_err(io)?;
    }
    Ok(copy)
}

/// The crate that is asked whether `bug` is planted: one that the crate of its file depends on, or that crate itself.
fn asked(bug: &Bug) -> &'static str {
    match package(bug.test) {
        "rdb" | "topology" => "crate",
        "store" => "clock",
        _ => "topology",
    }
}

/// Lives in which a bug must show: three times as many as the latest needed when all were tried.
const SEEDS: u64 = 1_500;

const QUESTION: &str = r#"
/// Whether the bug of this name is planted.
#[must_use]
pub fn planted(name: &str) -> bool {
    static PLANTED: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("EVENKEEL_PLANTED").unwrap_or_default()) == name
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_fits_the_source_in_one_place() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for bug in BUGS {
            let text = std::fs::read_to_string(crates.join(bug.file)).expect("the file is there");
            assert_eq!(text.matches(bug.from).count(), 1, "{}: {} in {}", bug.name, bug.from, bug.file);
            assert!(bug.to.contains("PLANTED"), "{}", bug.name);
        }
    }
}
