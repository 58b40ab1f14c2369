//! Placeholder: the binary.
fn main() {}
