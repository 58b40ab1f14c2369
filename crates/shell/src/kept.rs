//! A child as its component has it: what it is told is for the life that goes on, and so is what is heard of it.

use std::collections::VecDeque;
use std::io;

use topology::component::{Condition, Context, Figures};

use crate::child_thread::{Asks, ChildThread, Event, Spec};
use crate::codec::Codec;
use crate::message::Message;

/// A child that is started again whenever it ends, once it was started.
#[derive(Debug)]
pub(crate) struct Kept {
    spec: Spec,
    supervisor: Option<ChildThread>,
    /// The life that is told things.
    life: Option<u64>,
    events: VecDeque<Event>,
    /// Why the last one has ended, until another one lives.
    why: Option<String>,
    figures: Figures,
}

impl Kept {
    pub(crate) fn new(spec: Spec) -> Self {
        Self {
            spec,
            supervisor: None,
            life: None,
            events: VecDeque::new(),
            why: None,
            figures: Figures::default(),
        }
    }

    /// Starts it for the task of `context`, whose waker is called when there are events.
    pub(crate) fn start(&mut self, context: &Context<'_>) -> io::Result<()> {
        let supervisor = ChildThread::start(&self.spec, context.plan(), context.task(), context.waker())?;
        self.supervisor = Some(supervisor);
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        self.supervisor = None;
    }

    /// The next thing that has happened. What a child says after [`Kept::end`] is of no interest.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.pop_front()?;
            match &event {
                Event::Started(life) => (self.life, self.why) = (Some(*life), None),
                Event::Ended(why) => {
                    (self.life, self.why) = (None, Some(format!("its child has ended: {why}")));
                }
                Event::Said(_) if self.life.is_none() => continue,
                Event::Said(Message::Metrics(reports)) => {
                    reports.iter().for_each(|(name, value)| self.figures.report(name, *value));
                    continue;
                }
                Event::Said(_) => {}
            }
            return Some(event);
        }
    }

    /// Has [`Kept::next_event`] look at what has happened up to now.
    pub(crate) fn look(&mut self) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.take(&mut self.events);
        }
    }

    /// Tells it something that it gives `answers` answers to, if it lives; if it does not, its end is among the events to come.
    pub(crate) fn tell<R>(&self, answers: u32, append: impl FnOnce(Codec, &mut Vec<u8>) -> R) -> Option<R> {
        self.tell_that(Asks { answers, tuples: 0 }, append)
    }

    /// Tells it a tuple; the same holds.
    pub(crate) fn tell_tuple<R>(
        &self,
        answers: u32,
        append: impl FnOnce(Codec, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        self.tell_that(Asks { answers, tuples: 1 }, append)
    }

    fn tell_that<R>(&self, asks: Asks, append: impl FnOnce(Codec, &mut Vec<u8>) -> R) -> Option<R> {
        self.supervisor.as_ref()?.tell(self.life?, asks, |bytes| append(self.spec.codec, bytes))
    }

    /// Ends it for what it did.
    pub(crate) fn end(&mut self, why: String) {
        if let (Some(supervisor), Some(life)) = (&self.supervisor, self.life.take()) {
            supervisor.end(life, why);
        }
    }

    /// How it speaks.
    pub(crate) fn codec(&self) -> Codec {
        self.spec.codec
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    /// What is to be said of it, whose component has or has not given it something to do: why there is none, if there was one, and what it has reported of itself.
    pub(crate) fn condition(&self, is_busy: bool) -> Condition<'_> {
        Condition {
            is_busy,
            trouble: self.why.as_deref().filter(|_| self.life.is_none()),
            figures: Some(&self.figures).filter(|figures| !figures.is_empty()),
        }
    }

    /// Whether it may be told one more tuple while it has `open`.
    pub(crate) fn has_room(&self, open: usize) -> bool {
        self.is_alive()
            && self.spec.limits.open_max.is_none_or(|most| open < most)
            && self.supervisor.as_ref().is_some_and(ChildThread::has_room)
    }
}
