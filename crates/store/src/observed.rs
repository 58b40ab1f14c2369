//! Who is told of what a store's commits change (`notices`).

use std::sync::Weak;

use crate::Store;
use crate::notices::Observer;

impl Store {
    /// Has `observer` told of changes, from now on: of what [`Store::want_notices`] says. Once.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        self.watchers.attach(observer);
    }

    /// Of what the observer is to be told: bits of [`EventClass`](crate::EventClass), and [`WANTS_CHANGES`](crate::WANTS_CHANGES). What is under way
    /// may still be told as before.
    pub fn want_notices(&self, bits: u32) {
        self.watchers.set_wanted(bits);
    }
}
