//! The long string of a client: set once, then changed in parts, then set again.
//!
//! What each version changes follows from its number and from the length before it, so the content is a function of the
//! version alone. A part is the stamp of its version, `<client.version>`, some times over:
//!
//! ```text
//! <3.64><3.64>...<3.64>                     SET
//! <3.64><3.<3.66><3.66>4>...<3.64><3.65>    APPEND of 65, SETRANGE of 66
//! ```
//!
//! Stamps begin and end with marks of their own and parts are whole stamps, so what is left of an older one is never taken for
//! a stamp. No part is covered by an older one: the newest stamp in a value is that of its version, and the value must be that
//! version to the byte. A part that is lost, doubled or in a wrong place shows, in a value that some version does not explain or
//! in an older version than was acknowledged.

use vfs::sim::Rng;

use crate::history::Version;

/// A version of so many is a SET.
const ROUND: Version = 64;
/// Long enough that the server logs changes of it by themselves.
const SET_BYTES_MIN: u64 = 4 << 10;
/// The zeroes between the end and what is written behind it, at most.
const GAP_BYTES_MAX: u64 = 200;

/// What a command changes.
#[derive(Debug)]
pub struct Change {
    pub kind: Kind,
    pub bytes: Vec<u8>,
    /// Of the whole string afterwards.
    pub len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Set,
    Append,
    SetRange(usize),
}

/// What makes `version` of the one before; more than one change is one transaction.
pub fn changes(client: usize, version: Version) -> Vec<Change> {
    let before = if is_set(version) { 0 } else { content(client, version - 1).len() };
    changes_of(client, version, before)
}

/// The string at `version`, which is not 0.
pub fn content(client: usize, version: Version) -> Vec<u8> {
    let first = version - (version - 1) % ROUND;
    let mut value = Vec::new();
    for version in first..=version {
        for Change { kind, bytes, len } in changes_of(client, version, value.len()) {
            let from = match kind {
                Kind::Set => 0,
                Kind::Append => value.len(),
                Kind::SetRange(offset) => offset,
            };
            value.resize(len, 0);
            value[from..from + bytes.len()].copy_from_slice(&bytes);
        }
    }
    value
}

/// The version that `bytes` are.
///
/// # Errors
/// What shows that they are none.
pub fn version_of(client: usize, bytes: &[u8]) -> Result<Version, String> {
    let Some(version) = stamps(client, bytes).max() else {
        return Err(format!("{} B without a part", bytes.len()));
    };
    let wanted = content(client, version);
    if wanted == bytes {
        return Ok(version);
    }
    let same = wanted.iter().zip(bytes).take_while(|(wanted, found)| wanted == found).count();
    let around = |bytes: &[u8]| {
        let from = same.saturating_sub(40).min(bytes.len());
        bytes[from..(same + 40).min(bytes.len())].escape_ascii().to_string()
    };
    let lens = format!("{} B, its newest part is {version}, of {} B", bytes.len(), wanted.len());
    Err(format!("{lens}; at {same} it differs: {} instead of {}", around(bytes), around(&wanted)))
}

fn is_set(version: Version) -> bool {
    version % ROUND == 1
}

fn changes_of(client: usize, version: Version, len: usize) -> Vec<Change> {
    let mut rng = Rng::new(version ^ (client as u64) << 40);
    let stamp = format!("<{client}.{version}>");
    let part = |len: u64| stamp.repeat(1 + len as usize / stamp.len()).into_bytes();
    if is_set(version) {
        let bytes = part(SET_BYTES_MIN + rng.below(2_000));
        return vec![Change { kind: Kind::Set, len: bytes.len(), bytes }];
    }
    let (mut changes, mut len) = (Vec::new(), len);
    for _ in 0..if rng.chance(1, 4) { 2 } else { 1 } {
        // most are short: then many lie on one base
        let bytes = part(if rng.chance(1, 8) { rng.below(4_000) } else { rng.below(60) });
        let kind = match rng.below(5) {
            0..2 => Kind::Append,
            2..4 => Kind::SetRange(rng.index(len)),
            _ => Kind::SetRange(len + rng.below(GAP_BYTES_MAX) as usize),
        };
        len = match kind {
            Kind::SetRange(offset) => len.max(offset + bytes.len()),
            _ => len + bytes.len(),
        };
        changes.push(Change { kind, bytes, len });
    }
    changes
}

/// The versions of the whole stamps in `bytes`.
fn stamps(client: usize, bytes: &[u8]) -> impl Iterator<Item = Version> {
    let name = format!("{client}.");
    bytes.split(|byte| *byte == b'<').filter_map(move |rest| {
        let stamp = &rest[..rest.iter().position(|byte| *byte == b'>')?];
        std::str::from_utf8(stamp).ok()?.strip_prefix(&name)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: Version = 3 * ROUND;

    #[test]
    fn every_version_is_known_by_its_content() {
        let mut changes_seen = [0; 3];
        for version in 1..=VERSIONS {
            assert_eq!(version_of(7, &content(7, version)), Ok(version));
            let made = changes(7, version);
            assert_eq!(made.last().unwrap().len, content(7, version).len());
            assert_eq!(made[0].kind == Kind::Set, is_set(version));
            assert!(content(7, version).len() as u64 > SET_BYTES_MIN);
            changes_seen[made.len()] += 1;
        }
        assert!(changes_seen[1] > 0 && changes_seen[2] > 0, "{changes_seen:?}");
    }

    #[test]
    fn part_that_is_lost_or_misplaced_makes_no_version_or_an_older_one() {
        for version in (2..=VERSIONS).filter(|version| !is_set(*version)) {
            let (before, after) = (content(7, version - 1), content(7, version));
            let [Change { kind: Kind::SetRange(offset), bytes, .. }] = &changes(7, version)[..] else {
                continue;
            };
            // the next part without this one
            let mut lost = before.clone();
            lost.extend_from_slice(format!("<7.{}>", version + 1).as_bytes());
            assert!(version_of(7, &lost).is_err(), "{version}");
            let mut misplaced = before.clone();
            misplaced.resize(after.len() + 1, 0);
            misplaced[offset + 1..offset + 1 + bytes.len()].copy_from_slice(bytes);
            assert!(version_of(7, &misplaced).is_err(), "{version}");
            let torn = [&after[..offset + 1], &before[(offset + 1).min(before.len())..]].concat();
            assert_ne!(version_of(7, &torn), Ok(version));
        }
        assert!(version_of(7, b"").is_err());
        assert!(version_of(7, &content(8, 3)).is_err(), "another client's");
    }
}
