//! What an edit of a hash, a set or a sorted set has become, as bytes.

use std::ops::Range;

use super::{Edit, Entry};
use crate::entries::{Shape, Span, by_score};
use crate::filling::{Filling, Frame, TimedEntry, encode_map};

impl Edit<'_> {
    /// The collection as it is now. Time grows with its size.
    ///
    /// # Panics
    /// If it has more than 4 GiB: `value.max` is below that.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(self.is_ordered())
    }

    /// Bytes of the collection as it is now; `None`: fields have deadlines.
    pub fn encoded_len(&self) -> Option<usize> {
        self.times().is_none().then(|| self.frame().bytes())
    }

    /// As [`Edit::encode`], into `out`, which has so many bytes.
    pub fn write(&self, out: &mut [u8]) {
        self.frame().write(out, |out| self.fill(out, self.is_ordered()));
    }

    /// Where in the bytes of the collection one entry begins that alone is another than in what it began with, and as long, and where it lies in
    /// the operations; `None`: more has become of it than that.
    #[must_use]
    pub fn patch(&self) -> Option<(usize, Range<usize>)> {
        let ([(at, entry)], []) = (&self.changed[..], &self.entries[..]) else { return None };
        let (from, to) = (self.base.end(*at), self.base.end(at + 1));
        let is_all = self.base.shape == Shape::Map
            && entry.is_new
            && !self.is_spread
            && !entry.is_gone
            && self.deadlines.is_empty()
            && self.form == self.base.form
            && self.entry_bytes(entry) == to - from;
        let Span { at, len } = self.raw_place(entry);
        is_all.then(|| (self.base.begin() + from, at as usize..(at + len) as usize))
    }

    /// Whether scores say the order.
    fn is_ordered(&self) -> bool {
        self.base.shape == Shape::Scored
    }

    pub(super) fn encode_as(&self, is_ordered: bool) -> Vec<u8> {
        match self.times() {
            None => self.frame().encode(|out| self.fill(out, is_ordered)),
            Some(_) => self.encode_timed(),
        }
    }

    fn frame(&self) -> Frame {
        let bytes_of = |entry: &Entry| if entry.is_gone { 0 } else { self.entry_bytes(entry) };
        let mut entries_bytes: usize = self.entries.iter().map(bytes_of).sum();
        if !self.is_spread {
            let gone = self.changed.iter().map(|(at, _)| self.base.end(at + 1) - self.base.end(*at));
            entries_bytes += self.base.entries.len() - gone.sum::<usize>();
            entries_bytes += self.changed.iter().map(|(_, entry)| bytes_of(entry)).sum::<usize>();
        }
        Frame { shape: self.base.shape, form: self.form, count: self.count, entries_bytes }
    }

    /// Puts the entries, none of which has a deadline.
    fn fill(&self, out: &mut Filling<'_>, is_ordered: bool) {
        match (&self.changed[..], &self.entries[..]) {
            _ if self.is_spread => {}
            // what most commands do: one element is new, or has another value
            ([], [added]) if !added.is_gone => {
                let at = self.place_of(added, is_ordered);
                return self.fill_around(out, at, at, added);
            }
            ([(at, entry)], []) if !entry.is_gone && !is_ordered => {
                return self.fill_around(out, *at, at + 1, entry);
            }
            ([(at, entry)], []) if entry.is_gone => {
                out.put_run(&self.base, 0..*at);
                return out.put_run(&self.base, at + 1..self.base.count);
            }
            _ => return self.fill_by_runs(out, is_ordered),
        }
        let mut there: Vec<&Entry> = self.there().collect();
        if is_ordered {
            // What was there before is in order: the sort finds that in one pass.
            there.sort_by(|a, b| by_score(self.element_of(**a), self.element_of(**b)));
        }
        there.into_iter().for_each(|entry| out.put(entry.tag, self.raw(entry)));
    }

    /// The same, where one entry is another: it is behind the first `before` of the base, and those from `after` on follow.
    fn fill_around(&self, out: &mut Filling<'_>, before: usize, after: usize, entry: &Entry) {
        out.put_run(&self.base, 0..before);
        out.put(entry.tag, self.raw(entry));
        out.put_run(&self.base, after..self.base.count);
    }

    /// Before which entry of the base one belongs that is added.
    fn place_of(&self, added: &Entry, is_ordered: bool) -> usize {
        if !is_ordered {
            return self.base.count;
        }
        let new = self.element_of(*added);
        self.base.partition_point(|old| by_score(old, new).is_lt())
    }

    /// The same, where entries are not spread out.
    fn fill_by_runs(&self, out: &mut Filling<'_>, is_ordered: bool) {
        let mut next = 0;
        for (at, entry) in self.steps(is_ordered) {
            out.put_run(&self.base, next..at);
            match entry {
                Some(entry) => {
                    out.put(entry.tag, self.raw(entry));
                    next = at;
                }
                None => next = at + 1,
            }
        }
        out.put_run(&self.base, next..self.base.count);
    }

    /// What differs from the base, in order: an entry before this number, or (`None`) that the entry with this number is not there.
    fn steps(&self, is_ordered: bool) -> Vec<(usize, Option<&Entry>)> {
        let mut steps = Vec::with_capacity(2 * self.changed.len() + self.entries.len());
        let replaced = self.changed.iter().map(|(at, entry)| (*at, entry));
        let added = self.entries.iter().map(|entry| (self.base.count, entry));
        let there = replaced.chain(added).filter(|(_, entry)| !entry.is_gone);
        steps.extend(there.map(|(at, entry)| (at, Some(entry))));
        if is_ordered {
            let element = |entry: Option<&Entry>| self.element_of(*entry.expect("all are there"));
            steps.sort_by(|a, b| by_score(element(a.1), element(b.1)));
            for (at, entry) in &mut steps {
                *at = self.place_of(entry.expect("all are there"), is_ordered);
            }
        }
        steps.extend(self.changed.iter().map(|(at, _)| (*at, None)));
        steps.sort_by_key(|(at, entry)| (*at, entry.is_none()));
        steps
    }

    fn there(&self) -> impl Iterator<Item = &Entry> + Clone {
        debug_assert!(self.is_spread, "the others are in the base");
        self.entries.iter().filter(|entry| !entry.is_gone)
    }

    /// A map as it is now, some of whose fields have deadlines.
    fn encode_timed(&self) -> Vec<u8> {
        let there = self.entries.iter().zip(&self.deadlines).filter(|(entry, _)| !entry.is_gone);
        let entries = there.map(|(entry, deadline)| TimedEntry {
            tag: entry.tag,
            deadline: *deadline,
            entry: self.raw(entry),
        });
        encode_map(self.form, self.own, &entries.collect::<Vec<_>>())
    }
}
