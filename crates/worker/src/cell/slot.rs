//! The place of a component in its cell: there is one, or there will be one after a pause.
//!
//! ```text
//!  empty --make, open--> taken --panic--> empty until a time: 100 ms after the first loss, doubled up to 10 s
//! ```
//!
//! A component that has worked for a minute begins with the shortest pause again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use clock::Nanos;
use topology::component::{Bolt, Fault};

/// The place of a component.
#[derive(Debug)]
pub(super) struct Slot<C: ?Sized> {
    component: Option<Box<C>>,
    /// When the next one is made.
    until: Nanos,
    losses: Losses,
}

/// How often components were lost in a row.
#[derive(Debug, Default)]
pub(super) struct Losses {
    count: u32,
    last: Nanos,
}

/// A call that panicked, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Panicked(pub(super) String);

impl<C: ?Sized> Slot<C> {
    pub(super) fn new() -> Self {
        Self { component: None, until: Nanos(0), losses: Losses::default() }
    }

    /// Makes a component if it is time to; what went wrong if it could not be opened.
    pub(super) fn fill(
        &mut self,
        now: Nanos,
        make: impl FnOnce() -> Result<Box<C>, Fault>,
    ) -> Result<(), String> {
        if self.component.is_some() || now < self.until {
            return Ok(());
        }
        let made = guarded(make).map_err(|panicked| panicked.0);
        match made.and_then(|opened| opened.map_err(|fault| fault.error().to_owned())) {
            Ok(component) => self.component = Some(component),
            Err(error) => {
                self.lose(now);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether there is a component.
    pub(super) fn is_taken(&self) -> bool {
        self.component.is_some()
    }

    /// Calls the component, if there is one. If it panics it is gone, until `now` and a pause.
    pub(super) fn call<R>(
        &mut self,
        now: Nanos,
        call: impl FnOnce(&mut C) -> R,
    ) -> Option<Result<R, Panicked>> {
        let component = self.component.as_mut()?;
        let result = guarded(|| call(component));
        if result.is_err() {
            self.lose(now);
        }
        Some(result)
    }

    /// What the component says of itself, if there is one. One that panics here does so again when it is called, and is gone then.
    pub(super) fn ask<R>(&self, ask: impl FnOnce(&C) -> R) -> Option<R> {
        self.component.as_ref().and_then(|component| guarded(|| ask(component)).ok())
    }

    /// When another component is made, if there is none.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.component.is_none().then_some(self.until)
    }

    /// Takes the component away.
    pub(super) fn clear(&mut self) {
        // What a component does when it is dropped can panic as well.
        let component = self.component.take();
        let _ = guarded(move || drop(component));
    }

    fn lose(&mut self, now: Nanos) {
        self.clear();
        self.until = now + self.losses.pause(now);
    }
}

impl Slot<dyn Bolt> {
    /// Whether there is a bolt that takes a tuple.
    pub(super) fn is_ready(&self) -> bool {
        // One that panics here does so again when it is called, and is gone then.
        self.component.as_ref().is_some_and(|bolt| guarded(|| bolt.is_ready()).unwrap_or(true))
    }
}

impl Losses {
    /// One more; the pause after it.
    pub(super) fn pause(&mut self, now: Nanos) -> Duration {
        self.count = if now.since(self.last) >= CALM { 0 } else { self.count + 1 };
        self.last = now;
        PAUSE_LONGEST.min(PAUSE * 2_u32.saturating_pow(self.count.saturating_sub(1)))
    }
}

/// Calls, and makes an error of a panic.
pub(super) fn guarded<R>(call: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Panicked(format!("panicked: {}", text(&*panic))))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

/// After the first loss.
const PAUSE: Duration = Duration::from_millis(100);
/// After many.
const PAUSE_LONGEST: Duration = Duration::from_secs(10);
/// A component that has lasted so long is as good as new.
const CALM: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn pause_is_doubled_with_each_loss_and_short_again_after_a_calm_time() {
        let mut losses = Losses { count: 0, last: at(90_000) };
        let pauses: Vec<u128> = (0..9).map(|n| losses.pause(at(90_001 + n)).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        losses.pause(at(200_000));
        assert_eq!(losses.pause(at(200_001)).as_millis(), 100);
    }

    #[test]
    fn component_that_panics_is_gone_until_its_pause_is_over() {
        let mut slot = Slot::<u32>::new();
        slot.fill(at(100_000), || Ok(Box::new(7))).unwrap();
        let panicked = slot.call(at(100_000), |n| panic!("no {n}")).unwrap().map(|_: ()| ());
        assert_eq!(panicked, Err(Panicked("panicked: no 7".to_owned())));
        assert!(slot.call(at(100_000), |n| *n).is_none());
        let due = slot.next_due().unwrap();
        slot.fill(Nanos(due.0 - 1), || Ok(Box::new(8))).unwrap();
        assert!(!slot.is_taken());
        slot.fill(due, || Ok(Box::new(8))).unwrap();
        assert_eq!(slot.call(due, |n| *n), Some(Ok(8)));
    }

    #[test]
    fn component_that_cannot_be_opened_says_why() {
        let mut slot = Slot::<u32>::new();
        assert_eq!(slot.fill(at(1), || Err(Fault::new("no file"))), Err("no file".to_owned()));
        assert!(!slot.is_taken() && slot.next_due().is_some_and(|due| due > at(1)));
    }
}
