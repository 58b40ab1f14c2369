//! Decisions in memory: what the protocol alone costs.
