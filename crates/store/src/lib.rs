//! Placeholder: the crate's first commit replaces this.
