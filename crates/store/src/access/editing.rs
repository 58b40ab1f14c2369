//! What the edits of the shapes have in common, for who changes a collection of any of them.

use std::ops::Range;

use collections::{Deadline, Edit, ListEdit, OrderedEdit, Packed};

/// A way to change collections.
pub(super) trait Editing {
    type Of<'a>;

    /// Of a key that expires at `own`.
    fn begin(packed: Packed<'_>, own: Option<Deadline>) -> Self::Of<'_>;

    /// Whether anything was done.
    fn is_changed(edit: &Self::Of<'_>) -> bool;

    /// Number of elements that it has become.
    fn len(edit: &Self::Of<'_>) -> usize;

    /// Bytes of what the collection has become; `None` if nothing is left of it, or some of it has a deadline.
    fn bytes(edit: &Self::Of<'_>) -> Option<usize>;

    /// Writes what it has become into as many bytes.
    fn write(edit: &Self::Of<'_>, out: &mut [u8]);

    /// As [`Edit::patch`].
    fn patch(edit: &Self::Of<'_>) -> Option<(usize, Range<usize>)>;

    /// By which operations it has become that.
    fn operations(edit: Self::Of<'_>) -> Vec<u8>;

    /// What the collection has become, `None` if nothing is left of it, and by which operations; `None` if it is as it was.
    fn end(edit: Self::Of<'_>) -> Option<(Option<Vec<u8>>, Vec<u8>)>;
}

macro_rules! editing {
    ($($edit:ident: $begin:expr, $bytes:expr, $patch:expr;)*) => {$(
        impl Editing for $edit<'static> {
            type Of<'a> = $edit<'a>;

            fn begin(packed: Packed<'_>, own: Option<Deadline>) -> $edit<'_> {
                $begin(packed, own)
            }

            fn is_changed(edit: &$edit<'_>) -> bool {
                edit.is_changed()
            }

            fn len(edit: &$edit<'_>) -> usize {
                edit.len()
            }

            fn bytes(edit: &$edit<'_>) -> Option<usize> {
                if edit.is_empty() { None } else { $bytes(edit) }
            }

            fn write(edit: &$edit<'_>, out: &mut [u8]) {
                edit.write(out);
            }

            fn patch(edit: &$edit<'_>) -> Option<(usize, Range<usize>)> {
                $patch(edit)
            }

            fn operations(edit: $edit<'_>) -> Vec<u8> {
                edit.into_operations()
            }

            fn end(edit: $edit<'_>) -> Option<(Option<Vec<u8>>, Vec<u8>)> {
                edit.is_changed().then(|| ((!edit.is_empty()).then(|| edit.encode()), edit.into_operations()))
            }
        }
    )*};
}

editing!(
    Edit: Edit::of_key, Edit::encoded_len, Edit::patch;
    ListEdit: |packed, _| ListEdit::new(packed), |edit: &ListEdit<'_>| Some(edit.encoded_len()), |_| None;
    OrderedEdit: |packed, _| OrderedEdit::new(packed), |edit: &OrderedEdit<'_>| Some(edit.encoded_len()), OrderedEdit::patch;
);
