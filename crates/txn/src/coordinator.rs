//! The coordinator of a node: its log, its resources, its lanes, and the thread that finishes what was left.
