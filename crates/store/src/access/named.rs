//! Changes of elements that a command names of a hash, a set or a sorted set, each by itself. Where there are leaves, those of one leaf follow each other.

use smallvec::SmallVec;

use crate::error::Stop;
use crate::value::ValueKind;
use collections::{Edit, score_of};

use super::collection::Tried;
use super::leaf_changes::Changed;
use super::nodes::Paged;
use super::tree_edit::TreeEdit;
use super::{Access, WrongType};

/// An element that is named, and its number among them. Of a command there may be a million.
#[derive(Clone, Copy)]
struct Named<'e> {
    leaf: u32,
    number: u32,
    tag: u16,
    element: &'e [u8],
}

/// A member of a sorted set that gets another score; `None`: it is not there.
struct Rescored<'e> {
    tag: u16,
    member: &'e [u8],
    before: Option<f64>,
    after: Option<f64>,
}

/// Something that comes into a tree by its score, or goes.
struct Placed<'e> {
    tag: u16,
    member: &'e [u8],
    /// As it is in elements.
    score: [u8; size_of::<f64>()],
    comes: bool,
}

impl Access<'_> {
    /// Lets `change` change an element of the hash or set at `key`, of which it gets the tag; the collection is made if it is absent, and removed if nothing
    /// is left in it.
    ///
    /// # Errors
    /// As [`Access::get`].
    ///
    /// # Panics
    /// If `kind` is neither a hash nor a set.
    pub fn edit_element<R>(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        element: &[u8],
        change: impl FnOnce(&mut Edit<'_>, u16) -> R,
    ) -> Result<Result<R, WrongType>, Stop> {
        assert!(matches!(kind, ValueKind::Hash | ValueKind::Set), "sorted sets have scores");
        let hash = self.store.hasher.hash(element);
        let change = |edit: &mut Edit<'_>| change(edit, hash.low_bits());
        match self.try_change::<Edit<'static>, R, _>(db, key, kind, change)? {
            Tried::Paged(paged, change) => {
                let leaf = paged.root.leaf_of(hash.0);
                self.edit_leaf(db, key, &paged, leaf, change).map(Ok)
            }
            tried => self.finish(db, key, kind, tried),
        }
    }

    /// As [`Access::edit_element`], of each of these elements: `change` gets the tag and the number of one. Of elements named twice it gets the first one first;
    /// otherwise they come in any order. If this fails nothing has changed, whatever was called.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn edit_each<'e>(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        elements: impl ExactSizeIterator<Item = &'e [u8]> + Clone,
        mut change: impl FnMut(&mut Edit<'_>, u16, usize),
    ) -> Result<Result<(), WrongType>, Stop> {
        if let (1, Some(element)) = (elements.len(), elements.clone().next()) {
            return self.edit_element(db, key, kind, element, |edit, tag| change(edit, tag, 0));
        }
        assert!(matches!(kind, ValueKind::Hash | ValueKind::Set), "sorted sets have scores");
        let hasher = &self.store.hasher;
        let all = |edit: &mut Edit<'_>| {
            let tags = elements.clone().map(|element| hasher.hash(element).low_bits());
            tags.enumerate().for_each(|(number, tag)| change(edit, tag, number));
        };
        let paged = match self.try_change::<Edit<'static>, (), _>(db, key, kind, all)? {
            Tried::Paged(paged, _) => paged,
            tried => return self.finish(db, key, kind, tried),
        };
        self.charge(elements.len())?;
        let named = self.named(&paged, elements);
        let of_leaf = |edit: &mut Edit<'_>, these: &[Named<'_>]| {
            these.iter().for_each(|it| change(edit, it.tag, it.number as usize));
        };
        let changed = self.change_leaves(&paged, by_leaf(&named, |it| it.leaf), of_leaf)?;
        if !changed.is_none() {
            self.stage_leaves(db, key, &paged, changed)?;
        }
        Ok(Ok(()))
    }

    /// Lets `change` say which score each of these members of the sorted set at `key` gets, by the one that it has and its number among them; `None`: it is not
    /// there. What it gets for a member that is named twice is what it said first; otherwise they come in any order. The set is made if it is absent, and removed
    /// if nothing is left in it. If this fails nothing has changed, whatever was called.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, the first that `change` says.
    ///
    /// # Panics
    /// If a score is NaN.
    pub fn rescore<'e, E>(
        &mut self,
        db: u16,
        key: &[u8],
        members: impl ExactSizeIterator<Item = &'e [u8]> + Clone,
        mut change: impl FnMut(Option<f64>, usize) -> Result<Option<f64>, E>,
    ) -> Result<Result<Result<(), E>, WrongType>, Stop> {
        let hasher = &self.store.hasher;
        let all = |edit: &mut Edit<'_>| {
            for (number, member) in members.clone().enumerate() {
                let tag = hasher.hash(member).low_bits();
                edit.rescore(tag, member, |former| change(former, number))?;
            }
            Ok(())
        };
        let kind = ValueKind::SortedSet;
        let paged = match self.try_change::<Edit<'static>, Result<(), E>, _>(db, key, kind, all)? {
            Tried::Paged(paged, _) => paged,
            Tried::Done(Err(error), _) => return Ok(Ok(Err(error))),
            tried => return self.finish(db, key, kind, tried),
        };
        self.charge(members.len())?;
        let named = self.named(&paged, members);
        let mut rescored = SmallVec::<[Rescored<'e>; NAMED_FEW]>::with_capacity(named.len());
        let mut failed = None;
        let of_leaf = |edit: &mut Edit<'_>, these: &[Named<'e>]| {
            for Named { tag, element: member, number, .. } in these {
                if failed.is_some() {
                    return;
                }
                match edit.rescore(*tag, member, |former| change(former, *number as usize)) {
                    Ok([before, after]) => note_rescored(&mut rescored, *tag, member, [before, after]),
                    Err(error) => failed = Some(error),
                }
            }
        };
        let changed = self.change_leaves(&paged, by_leaf(&named, |it| it.leaf), of_leaf)?;
        if let Some(error) = failed {
            self.give_back(changed.bytes());
            return Ok(Ok(Err(error)));
        }
        if !changed.is_none() {
            let changed = self.with_scores(&paged, changed, &rescored)?;
            self.stage_leaves(db, key, &paged, changed)?;
        }
        Ok(Ok(Ok(())))
    }

    /// These elements by their leaves; equal ones follow each other in their order.
    fn named<'e>(
        &self,
        paged: &Paged,
        elements: impl ExactSizeIterator<Item = &'e [u8]>,
    ) -> SmallVec<[Named<'e>; NAMED_FEW]> {
        let mut named: SmallVec<[_; NAMED_FEW]> = (0..)
            .zip(elements)
            .map(|(number, element)| {
                let hash = self.store.hasher.hash(element);
                Named { leaf: paged.root.leaf_of(hash.0), number, tag: hash.low_bits(), element }
            })
            .collect();
        self.bring_leaves(paged, named.iter().map(|it| it.leaf));
        named.sort_unstable_by_key(|it| (it.leaf, it.tag, it.element, it.number));
        named
    }

    /// The change of a sorted set's leaves, with that of its tree.
    fn with_scores(
        &self,
        paged: &Paged,
        mut changed: Changed,
        rescored: &[Rescored<'_>],
    ) -> Result<Changed, Stop> {
        self.charge(rescored.len())?;
        let mut placed = SmallVec::<[Placed<'_>; 2 * NAMED_FEW]>::with_capacity(2 * rescored.len());
        for Rescored { tag, member, before, after } in rescored.iter().filter(|it| it.before != it.after) {
            let place = |comes: bool| {
                move |score: &f64| Placed { tag: *tag, member, score: score.to_le_bytes(), comes }
            };
            placed.extend(before.iter().map(place(false)));
            placed.extend(after.iter().map(place(true)));
        }
        placed.sort_unstable_by(|a, b| collections::by_score((a.member, &a.score), (b.member, &b.score)));
        let mut tree = TreeEdit::new(self, paged);
        let change = |edit: &mut Edit<'_>, these: &[Placed<'_>]| {
            // who gets another score may come before it has gone
            for it in these.iter().filter(|it| !it.comes) {
                edit.delete_scored(it.tag, it.member, score_of(&it.score));
            }
            for it in these.iter().filter(|it| it.comes) {
                edit.put_score(it.tag, it.member, score_of(&it.score));
            }
        };
        tree.change_keyed::<Edit<'static>, _>(&placed, |it| (it.member, &it.score), change)?;
        changed.with_tree(paged, tree)?;
        Ok(changed)
    }
}

/// Notes the score that a member had and the one that it gets; it may have got others before, in the same change.
fn note_rescored<'e>(
    rescored: &mut SmallVec<[Rescored<'e>; NAMED_FEW]>,
    tag: u16,
    member: &'e [u8],
    [before, after]: [Option<f64>; 2],
) {
    match rescored.last_mut().filter(|last| last.member == member) {
        Some(last) => last.after = after,
        None => rescored.push(Rescored { tag, member, before, after }),
    }
}

/// What follows each other and is of the same leaf, with the number of that.
fn by_leaf<T>(named: &[T], leaf_of: impl Fn(&T) -> u32) -> impl Iterator<Item = (u32, &[T])> {
    let mut rest = named;
    std::iter::from_fn(move || {
        let leaf = leaf_of(rest.first()?);
        let these = rest.iter().take_while(|it| leaf_of(it) == leaf).count();
        let (these, behind) = rest.split_at(these);
        rest = behind;
        Some((leaf, these))
    })
}

/// Elements of a command, or of a series, for which nothing is put on the heap.
const NAMED_FEW: usize = 4;
