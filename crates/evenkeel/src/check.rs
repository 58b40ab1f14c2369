//! `evenkeel check DIR [--salvage OUT]`: reads a stopped server's folder as a whole and reports every segment.
//!
//! The report goes to standard output; damage makes the exit status 1, a folder that could not be checked 3. Nothing in the folder is changed: what can be
//! saved goes to a new one.

use journal::SegmentState;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::failure::Failure;

/// Checks the folder `dir`, prints the report, and copies what can be read into `salvage_to` if that is given.
///
/// # Errors
/// One line: there is nothing to check, how much is damaged, or why nothing was saved.
pub(crate) fn run(dir: &Path, salvage_to: Option<&Path>) -> Result<(), Failure> {
    let checked = store::check(&vfs::RealDisk, dir).map_err(Failure::from);
    if let Ok(checked) = &checked {
        crate::output::say(std::io::stdout(), &text(checked));
    }
    // what cannot be checked for a damaged manifest can be saved all the same
    if let Some(out) = salvage_to {
        salvage(dir, out)?;
    }
    let checked = checked?;
    match checked.journal.damage.len() {
        0 => Ok(()),
        count => Err(Failure::Data(format!(
            "{} is damaged in {count} place{}",
            dir.display(),
            if count == 1 { "" } else { "s" }
        ))),
    }
}

fn salvage(dir: &Path, out: &Path) -> Result<(), Failure> {
    let disk: Arc<dyn vfs::Vfs> = Arc::new(vfs::RealDisk);
    let clock: Arc<dyn clock::Clock> = Arc::new(clock::SystemClock);
    let saved = store::salvage(&disk, &clock, dir, out).map_err(Failure::from)?;
    let copied = saved.journal;
    let mut text = format!("\n{} records copied to {}\n", copied.records_copied, out.display());
    text += &format!(
        "{} left out: of no use any more, says the checkpoint (replaced, removed or copied since)\n",
        copied.records_unwanted
    );
    text += &format!(
        "{} are lost ({} places skipped, {} segments could not be read)\n",
        copied.records_lost, copied.gaps, copied.segments_lost
    );
    if copied.records_mended > 0 {
        text += &format!(
            "{} of large collections had one wrong bit, which their checksums tell: it was put right\n",
            counted(copied.records_mended, "record")
        );
    }
    if saved.strange > 0 {
        text += &format!(
            "{} verify and do not have the content of their kind: they were left out\n",
            counted(saved.strange, "record")
        );
    }
    for assumed in &copied.assumed {
        text += &format!("assumed: {assumed}\n");
    }
    for (first, last) in &copied.missing {
        text += &format!("lost: records of lsn {} to {} are in no file\n", first.0, last.0);
    }
    if copied.gaps > 0 || copied.segments_lost > 0 || !copied.missing.is_empty() {
        text += "a skipped record may have been a removal or a newer value: its key then shows what was there before\n";
    }
    if saved.broken_chains > 0 {
        text += &format!(
            "{} keys have changes of another state of theirs: they read as damaged\n",
            saved.broken_chains
        );
    }
    if saved.loose_deltas > 0 {
        text += &format!(
            "{} changes to parts of long values were left out, because what they changed is lost: these keys show older values\n",
            saved.loose_deltas
        );
    }
    text += &rebuilt(&saved.rebuilt);
    if let Some(why) = saved.without_checkpoint {
        text += &format!("the checkpoint could not be read ({why}): removed keys may be back\n");
    }
    crate::output::say(std::io::stdout(), &text);
    Ok(())
}

/// What is said of large collections of which a part was lost.
fn rebuilt(rebuilt: &store::Rebuilt) -> String {
    let mut text = String::new();
    if rebuilt.collections > 0 {
        let _ = writeln!(
            text,
            "{} lost a part and now consist of the rest:",
            counted(rebuilt.collections, "large collection")
        );
    }
    for what in &rebuilt.told {
        let _ = writeln!(text, "  {what}");
    }
    let more = rebuilt.collections - rebuilt.told.len() as u64;
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
    if rebuilt.loose_leaves > 0 {
        let _ = writeln!(
            text,
            "{} left out: neither the record that names their key nor they can be read",
            counted(rebuilt.loose_leaves, "leaf").replace("leafs", "leaves")
        );
    }
    text
}

/// `count` of a thing, in words.
fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn text(checked: &store::Checked) -> String {
    let (report, payload_bytes) = (&checked.journal, checked.payload_bytes);
    let mut text = format!(
        "folder {:032x}: {}, {} ready\n\n  segment   file          state      records      lost         bytes\n",
        report.identity.folder,
        counted(report.segments.len() as u64, "segment"),
        counted(report.prepared as u64, "file")
    );
    for segment in &report.segments {
        let info = &segment.info;
        let state = match info.state {
            SegmentState::Open => "open",
            SegmentState::Sealed => "sealed",
            SegmentState::Footed => "footed",
            SegmentState::Trimmed => "trimmed",
        };
        let (read, lost) = (segment.records_read, segment.records_lost);
        let number = info.segment.to_string();
        let _ = writeln!(
            text,
            "  {number}  {}  {state}  {read:>10}{lost:>10}{:>14}",
            info.file.file_name(),
            info.end_bytes
        );
    }
    let records: u64 = report.segments.iter().map(|segment| segment.records_read).sum();
    let verify =
        if records == 1 { "1 record verifies".to_owned() } else { format!("{records} records verify") };
    let _ = writeln!(text, "\n{verify}, {payload_bytes} bytes of keys and values");
    if let Some(checkpoint) = &report.checkpoint {
        let keys = checked.checkpoint_keys.map_or("damaged".to_owned(), |keys| counted(keys, "key"));
        let _ = writeln!(
            text,
            "checkpoint {}: {keys}, records from lsn {} on follow it",
            checkpoint.name, checkpoint.lsn.0
        );
    }
    if let Some(collections) = checked.collections.filter(|counts| counts.roots > 0) {
        let roots = counted(collections.roots, "large collection");
        let _ =
            writeln!(text, "{roots} with {}", counted(collections.leaves, "leaf").replace("leafs", "leaves"));
    }
    match (&report.torn, report.clean) {
        (_, true) => text.push_str("the last stop was clean\n"),
        (None, false) => text.push_str("the last stop was not clean; nothing is torn\n"),
        (Some(torn), false) => {
            let _ = writeln!(
                text,
                "the last stop was not clean: segment {} is torn at offset {}, behind everything that was durable",
                torn.segment, torn.offset_bytes
            );
        }
    }
    for damage in &report.damage {
        let _ = writeln!(text, "damage in {} at offset {}: {}", damage.file, damage.offset, damage.what);
    }
    text
}
