//! Where a store keeps the epochs of a topology: the key of a hash, and its fields.

/// The key of the hash.
#[must_use]
pub fn key(topology: &str) -> String {
    format!("topology:{topology}:epochs")
}

/// The field with the position of a spout's task, which has this place among so many.
#[must_use]
pub fn position_field(spout: &str, place: u32, tasks: u32) -> String {
    format!("{POSITION}{spout}:{place}/{tasks}")
}

/// The field with how many tuples the source of a spout had up to the position of its task, if the spout counts them.
#[must_use]
pub fn count_field(spout: &str, place: u32, tasks: u32) -> String {
    format!("count:{spout}:{place}/{tasks}")
}

/// What fields with positions begin with.
pub const POSITION: &str = "position:";
