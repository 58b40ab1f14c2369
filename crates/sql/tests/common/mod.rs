//! What tests of the drivers share: servers of their own, and who hears what a decision log says.
#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

#[path = "../../../txn/tests/common/mod.rs"]
mod ear;
pub(crate) mod mariadb;
pub(crate) mod postgres;

pub(crate) use ear::{Ear, node, tx, waiter};
