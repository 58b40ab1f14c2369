//! Locks and atomics of `handover`: the standard library's here, a model checker's where that file is compiled for its test.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
