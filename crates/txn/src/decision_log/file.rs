//! A file for each transaction, synced with its folder: the baseline.
