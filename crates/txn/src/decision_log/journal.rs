//! Decisions in a group-commit journal: one sync for all that were written meanwhile.
