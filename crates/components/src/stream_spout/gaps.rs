//! Entries of a stream that are not read, since they were removed before, or are behind the position; no I/O.
//!
//! The server counts all entries that a stream ever had. Those up to the last one that was read are known when it is the stream's last one, or when all that are left are
//! behind it. What is more than were read was removed before.
//!
//! With a position its number among all entries is kept, so that what is removed while nobody reads is counted, too. Where it is not known, since the number of tasks was
//! changed for example, it is said that something may have been removed.

use std::time::Duration;

use clock::Nanos;
use resp::Value as Reply;
use topology::component::{Condition, Figures};

use super::entries;

/// What is known of a stream.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Entries up to the last one that was read, as far as that is known, lost ones included.
    passed: Option<u64>,
    /// When it was looked at last.
    looked: Option<Nanos>,
    /// Something was known since the start.
    has_begun: bool,
    /// Of a group: entries up to which it was told.
    told: u64,
    /// The stream's last entry when it was told that it is behind the position.
    behind: Option<u128>,
    /// Entries that it had then.
    behind_length: u64,
    /// How many were told.
    figures: Figures,
}

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    /// It is so; or it may be.
    pub(super) is_certain: bool,
    /// Entries that are not read.
    count: u64,
}

/// What XINFO GROUPS says of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The last entry that a consumer was given.
    delivered: u128,
    /// Entries up to there that consumers were given.
    read: u64,
}

/// What XINFO STREAM says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    length: u64,
    added: u64,
    /// The last id that was given.
    last: u128,
    /// The first entry that is there.
    first: Option<u128>,
}

impl Gaps {
    /// Whether it is time to ask for [`Info`].
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.looked.is_none_or(|looked| now.since(looked) >= INTERVAL)
    }

    /// Nobody has read for a while: it is time.
    pub(super) fn look_again(&mut self) {
        self.looked = None;
    }

    /// What was told, as the component shows it.
    pub(super) fn condition(&self) -> Condition<'_> {
        let figures = Some(&self.figures).filter(|figures| !figures.is_empty());
        Condition { figures, ..Condition::default() }
    }

    /// What is told is shown.
    pub(super) fn on_notice(&mut self, told: &Notice) {
        if told.count > 0 {
            self.figures.report(NOT_READ, told.count as f64);
        }
    }

    /// The stream had so many entries up to the one that was read last, as was known when that was kept.
    pub(super) fn go_on(&mut self, passed: u64) {
        self.passed = Some(passed);
    }

    /// Entries that the stream had up to the one that was read last, if that is known.
    pub(super) fn passed(&self) -> Option<u64> {
        self.passed
    }

    /// Entries were read that came behind those before.
    pub(super) fn on_read(&mut self, count: usize) {
        self.passed.iter_mut().for_each(|passed| *passed += count as u64);
    }

    /// The server has answered, whatever it has.
    pub(super) fn on_look(&mut self, now: Nanos) {
        self.looked = Some(now);
    }

    /// The stream `key` is as `info` says, and was read up to `last`: what is to be told.
    pub(super) fn on_info(&mut self, key: &str, last: u128, info: &Info) -> Option<Notice> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let certain = |text, count| Some(Notice { text, is_certain: true, count });
        if info.last < last {
            let is_told = self.behind.replace(info.last) == Some(info.last);
            let (end, last) = (entries::shown(info.last), entries::shown(last));
            let text = format!(
                "`{key}` ends at {end}, and was read up to {last}: entries up to there are not read; was it made anew?"
            );
            let behind = info.length.saturating_sub(self.behind_length);
            self.behind_length = info.length;
            return certain(text, behind).filter(|_| !is_told);
        }
        (self.behind, self.behind_length) = (None, 0);
        let (passed, are_all_new) = (info.passed(last)?, info.are_all_behind(last));
        let former = self.passed.replace(passed);
        let (from, to) =
            (entries::shown(last), info.first.map_or_else(|| entries::shown(info.last), entries::shown));
        match former {
            Some(former) if former < passed => {
                let count = passed - former;
                let text =
                    format!("{count} entries of `{key}` were removed before they were read: up to {to}");
                certain(text, count)
            }
            None if is_first && last > 0 && are_all_new && info.last != last => {
                let text = format!(
                    "entries of `{key}` between {from} and {to}, if there were any, were removed before they were read"
                );
                Some(Notice { text, is_certain: false, count: 0 })
            }
            _ => None,
        }
    }
}

impl Gaps {
    /// The same for a group, which the server counts for.
    pub(super) fn on_group(&mut self, key: &str, group: Group, info: &Info) -> Option<Notice> {
        let Group { delivered, read } = group;
        let passed = info.passed(delivered)?;
        let count = passed.saturating_sub(read.max(self.told));
        self.told = self.told.max(passed);
        let to = info.first.map_or_else(|| entries::shown(info.last), entries::shown);
        let text = format!("{count} entries of `{key}` were removed before they were read: up to {to}");
        (count > 0).then_some(Notice { text, is_certain: true, count })
    }
}

impl Group {
    /// That of a group in a reply; `None`: there is none, or nobody knows how many it has read.
    pub(super) fn read(reply: &Reply, name: &str) -> Option<Self> {
        let Reply::Array(groups) = reply else { return None };
        let items = groups.iter().find_map(|group| match group {
            Reply::Array(items) if field(items, "name") == Some(&Reply::Bulk(name.into())) => Some(items),
            _ => None,
        })?;
        let Some(Reply::Integer(read)) = field(items, "entries-read") else { return None };
        Some(Self { delivered: id(field(items, "last-delivered-id")?)?, read: u64::try_from(*read).ok()? })
    }
}

fn field<'a>(items: &'a [Reply], name: &str) -> Option<&'a Reply> {
    let mut pairs = items.chunks_exact(2);
    pairs.find(|pair| pair[0] == Reply::Bulk(name.into())).map(|pair| &pair[1])
}

fn id(value: &Reply) -> Option<u128> {
    if let Reply::Bulk(id) = value { entries::number(id) } else { None }
}

impl Info {
    /// Entries up to `last`, lost ones included; `None`: some of them are there, and others behind them.
    fn passed(&self, last: u128) -> Option<u64> {
        if self.last == last {
            Some(self.added)
        } else {
            self.are_all_behind(last).then(|| self.added.saturating_sub(self.length))
        }
    }

    fn are_all_behind(&self, last: u128) -> bool {
        self.first.is_none_or(|first| first > last)
    }

    /// That of a reply; `None`: there is no stream, or the server does not count.
    pub(super) fn read(reply: &Reply) -> Option<Self> {
        let Reply::Array(items) = reply else { return None };
        let field = |name| field(items, name);
        let number = |name| match field(name) {
            Some(Reply::Integer(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let first = match field("first-entry") {
            Some(Reply::Array(parts)) => parts.first().and_then(id),
            _ => None,
        };
        let (length, added) = (number("length")?, number("entries-added")?);
        Some(Self { length, added, last: id(field("last-generated-id")?)?, first })
    }
}

/// The figure of entries that are not read.
const NOT_READ: &str = "entries_not_read";
/// Time between two looks: the answer has the first and the last entry.
const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(0);

    fn info(added: u64, first: Option<u128>, last: u128, length: u64) -> Info {
        Info { length, added, last, first }
    }

    #[test]
    fn entries_that_were_trimmed_before_they_were_read_are_counted() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.on_info("s", 0, &info(10, Some(6), 10, 5)), None, "it begins with what is there");
        gaps.on_read(2);
        assert_eq!(gaps.on_info("s", 7, &info(10, Some(6), 10, 5)), None, "some are left, some are new");
        let error = gaps.on_info("s", 7, &info(20, Some(15), 20, 6)).expect("seven are gone").text;
        assert_eq!(error, "7 entries of `s` were removed before they were read: up to 0-15");
        assert_eq!(gaps.on_info("s", 7, &info(20, Some(15), 20, 6)), None, "once");
        gaps.on_read(6);
        assert_eq!(gaps.on_info("s", 20, &info(20, None, 20, 0)), None, "trimmed when they were read");
        gaps.on_read(3);
        let error = gaps.on_info("s", 25, &info(25, Some(23), 25, 3)).expect("two are gone").text;
        assert!(error.starts_with("2 entries"), "{error}");
    }

    #[test]
    fn what_may_be_gone_since_the_last_run_and_a_stream_that_ends_before_the_position_are_told_once() {
        let mut gaps = Gaps::default();
        let Some(Notice { text, is_certain: false, .. }) = gaps.on_info("s", 5, &info(20, Some(9), 20, 12))
        else {
            panic!("there may be a gap");
        };
        assert!(text.starts_with("entries of `s` between 0-5 and 0-9, if there were any"), "{text}");
        assert_eq!(gaps.on_info("s", 5, &info(20, Some(9), 20, 12)), None);
        let mut gaps = Gaps::default();
        let error = gaps.on_info("s", 9, &info(3, Some(1), 3, 3)).expect("behind").text;
        assert!(error.starts_with("`s` ends at 0-3, and was read up to 0-9"), "{error}");
        assert_eq!(gaps.on_info("s", 9, &info(3, Some(1), 3, 3)), None, "once");
        assert!(gaps.on_info("s", 9, &info(4, Some(1), 4, 4)).is_some(), "there is one more");
    }

    #[test]
    fn what_was_removed_while_nobody_read_is_counted_from_what_was_kept() {
        let mut gaps = Gaps::default();
        gaps.go_on(5);
        let told = gaps.on_info("s", 5, &info(20, Some(9), 20, 12)).expect("three are gone");
        assert_eq!(
            (&*told.text, told.count),
            ("3 entries of `s` were removed before they were read: up to 0-9", 3)
        );
        gaps.on_notice(&told);
        gaps.on_read(12);
        assert_eq!(gaps.passed(), Some(20));
        assert_eq!(
            gaps.figures.iter().map(|(name, it)| (name, it.sum)).collect::<Vec<_>>(),
            [(NOT_READ, 3.0)]
        );
        let mut gaps = Gaps::default();
        gaps.go_on(5);
        assert_eq!(gaps.on_info("s", 5, &info(20, Some(6), 20, 15)), None, "none is gone");
    }

    #[test]
    fn group_has_its_own_count() {
        let (mut gaps, group) = (Gaps::default(), |delivered, read| Group { delivered, read });
        assert_eq!(gaps.on_group("s", group(5, 5), &info(20, Some(3), 20, 18)), None, "some are left");
        let told = gaps.on_group("s", group(5, 5), &info(20, Some(9), 20, 12)).expect("three are gone");
        assert!(told.is_certain && told.text.starts_with("3 entries of `s`"), "{}", told.text);
        assert_eq!(gaps.on_group("s", group(5, 5), &info(20, Some(9), 20, 12)), None, "once");
        assert_eq!(
            gaps.on_group("s", group(20, 20), &info(20, None, 20, 0)),
            None,
            "the server counts them as read"
        );
        let reply = b"*1\r\n*6\r\n$4\r\nname\r\n$1\r\ng\r\n$17\r\nlast-delivered-id\r\n$3\r\n0-5\r\n$12\r\nentries-read\r\n:5\r\n";
        let (reply, _) = resp::decode_value(reply).expect("a reply").expect("all of it");
        assert_eq!((Group::read(&reply, "g"), Group::read(&reply, "h")), (Some(group(5, 5)), None));
    }

    #[test]
    fn reply_of_the_server_is_read() {
        let reply = b"*8\r\n$6\r\nlength\r\n:2\r\n$13\r\nentries-added\r\n:7\r\n$17\r\nlast-generated-id\r\n$3\r\n1-7\r\n$11\r\nfirst-entry\r\n*2\r\n$3\r\n1-6\r\n*0\r\n";
        let (reply, _) = resp::decode_value(reply).expect("a reply").expect("all of it");
        let id = |text: &[u8]| entries::number(text).expect("an id");
        assert_eq!(Info::read(&reply), Some(info(7, Some(id(b"1-6")), id(b"1-7"), 2)));
        assert_eq!(Info::read(&Reply::Error(b"ERR no such key".to_vec())), None);
        let mut gaps = Gaps::default();
        assert!(gaps.is_due(NOW));
        gaps.on_look(NOW);
        assert!(!gaps.is_due(NOW) && gaps.is_due(NOW + INTERVAL));
    }
}
