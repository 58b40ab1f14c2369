//! Messages between nodes: links that keep, acknowledge and bound what they carry.
//!
//! [`wire`] is what travels: chunks of frames, checked in every length.
//!
//! Out of scope: who talks to whom and why (topologies, clusters).

pub mod wire;
