//! A lane: the one thread that owns some transactions and drives their machines.
