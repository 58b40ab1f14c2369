//! Elements in order, of leaves each of which is in order and some of which may overlap: an older state of one beside what it became.

use std::vec::IntoIter;

use journal::Seq;

use crate::check::collections::comes_before;
use collections::{Element, Shape};

/// A key, or a member, with its value.
pub(super) type Owned = (Vec<u8>, Vec<u8>);

/// Elements in order.
pub(super) struct Run {
    /// The next one.
    first: Owned,
    rest: IntoIter<Owned>,
    /// Of equal elements that of the newest run counts.
    seq: Seq,
}

impl Run {
    /// These elements; `None`: there are none.
    pub(super) fn new(elements: Vec<Owned>, seq: Seq) -> Option<Self> {
        let mut rest = elements.into_iter();
        rest.next().map(|first| Self { first, rest, seq })
    }
}

/// A run that is not read yet, by its first element; `T` says which.
pub(super) type Place<T> = (Owned, T);

/// Hands out all elements in order, of equal ones that of the newest run. In memory are the runs that overlap where it is.
///
/// `places` are in the order of their first elements, and `read` opens one of them; `open` are there from the beginning.
///
/// # Errors
/// The first of `each`.
pub(super) fn merge<T, E>(
    shape: Shape,
    places: &[Place<T>],
    mut open: Vec<Run>,
    mut read: impl FnMut(&T) -> Option<Run>,
    mut each: impl FnMut(Element<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut unread, mut last): (_, Option<Owned>) = (places.iter(), None);
    loop {
        let least = least(shape, &open);
        let is_due = match (least, unread.as_slice().first()) {
            (Some(at), Some((first, _))) => !comes_before(shape, element(&open[at].first), element(first)),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if is_due {
            open.extend(unread.next().and_then(|(_, place)| read(place)));
            continue;
        }
        let Some(at) = least else { return Ok(()) };
        let taken = match open[at].rest.next() {
            Some(next) => std::mem::replace(&mut open[at].first, next),
            None => open.swap_remove(at).first,
        };
        if last.as_ref().is_none_or(|last| comes_before(shape, element(last), element(&taken))) {
            each(element(&taken))?;
            last = Some(taken);
        }
    }
}

/// Which run has the element that comes next.
fn least(shape: Shape, open: &[Run]) -> Option<usize> {
    let comes =
        |at: usize, other: usize| comes_before(shape, element(&open[at].first), element(&open[other].first));
    (0..open.len()).reduce(|least, at| {
        let is_newer = !comes(least, at) && open[at].seq > open[least].seq;
        if comes(at, least) || is_newer { at } else { least }
    })
}

fn element((key, value): &Owned) -> Element<'_> {
    (key, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(keys: &str, value: &str) -> Vec<Owned> {
        keys.bytes().map(|key| (vec![key], value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn runs_that_overlap_give_each_key_once_with_its_newest_value() {
        let runs = [("abc", "old", 1), ("bcdx", "new", 2), ("e", "old", 1), ("xz", "old", 1)];
        let places: Vec<Place<usize>> =
            (0..runs.len()).map(|at| (elements(runs[at].0, "").remove(0), at)).collect();
        let mut met = Vec::new();
        let read = |at: &usize| Run::new(elements(runs[*at].0, runs[*at].1), Seq(runs[*at].2));
        let open = Run::new(elements("cf", "more"), Seq(3)).into_iter().collect();
        let each = |(key, value): Element<'_>| {
            met.push(format!("{} {}", key.escape_ascii(), value.escape_ascii()));
            Ok::<(), ()>(())
        };
        assert_eq!(merge(Shape::Ordered, &places, open, read, each), Ok(()));
        assert_eq!(met, ["a old", "b new", "c more", "d new", "e old", "f more", "x new", "z old"]);
    }
}
