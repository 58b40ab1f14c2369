//! Every order of the steps by which threads hand work to an owner that falls asleep, tried by a model checker (loom) on the code
//! that serves: `handover.rs` is compiled here with loom's locks and atomics. A wake-up that is lost is a deadlock, which loom reports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "what the reactor needs beside what is modelled")]

#[path = "../src/handover.rs"]
mod handover;

/// What `handover` is made of here.
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard, Notify};
}

use handover::{Holders, Mailbox, NOTHING_HELD, Wake, relocate};
use loom::thread;
use sync::{Arc, AtomicBool, AtomicU64, Mutex, Notify, Ordering, fence};
use ticket::Ticket;

/// An eventfd: it rings until it is heard.
#[derive(Clone)]
struct Bell(Arc<Notify>);

impl Wake for Bell {
    fn wake(&self) -> std::io::Result<()> {
        self.0.notify();
        Ok(())
    }
}

/// An owner and what it needs to sleep.
struct Owner {
    bell: Bell,
    mailbox: Arc<Mailbox<u32>>,
    released: Arc<AtomicU64>,
}

impl Owner {
    fn new(released: &Arc<AtomicU64>) -> Self {
        let bell = Bell(Arc::new(Notify::new()));
        let mailbox = Arc::new(Mailbox::new(Box::new(bell.clone())));
        Self { bell, mailbox, released: Arc::clone(released) }
    }

    fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// What a loop and a thread of a connection do between two looks at their work.
    fn sleep(&self) {
        if !self.mailbox.begin_sleep(|| Ticket::of(self.released())) {
            self.bell.0.wait();
        }
        self.mailbox.end_sleep();
    }

    fn take(&self) -> Vec<u32> {
        let mut posts = Vec::new();
        self.mailbox.take(&mut posts);
        posts
    }
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // Three preemptions find what any number does, but for contrived cases, and end in time.
    builder.preemption_bound = Some(3);
    builder.check(body);
}

#[test]
fn post_to_an_owner_that_falls_asleep_is_taken() {
    model(|| {
        let owner = Owner::new(&Arc::new(AtomicU64::new(0)));
        let senders = [1, 2].map(|post| {
            let mailbox = Arc::clone(&owner.mailbox);
            thread::spawn(move || mailbox.post(post))
        });
        let mut taken = Vec::new();
        while taken.len() < 2 {
            owner.sleep();
            taken.append(&mut owner.take());
        }
        taken.sort_unstable();
        assert_eq!(taken, [1, 2], "each once");
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn release_while_a_loop_falls_asleep_wakes_it() {
    model(|| {
        let owner = Owner::new(&Arc::new(AtomicU64::new(0)));
        let (mailbox, released) = (Arc::clone(&owner.mailbox), Arc::clone(&owner.released));
        let journal = thread::spawn(move || {
            for ticket in 1..=2 {
                released.store(ticket, Ordering::Release);
                fence(Ordering::SeqCst);
                mailbox.wake_released(Ticket::of(ticket));
            }
        });
        for ticket in 1..=2 {
            owner.mailbox.set_lowest_held(Ticket::of(ticket));
            while owner.released() < ticket {
                owner.sleep();
            }
        }
        owner.mailbox.set_lowest_held(NOTHING_HELD);
        journal.join().unwrap();
    });
}

#[test]
fn message_to_a_connection_that_moves_arrives_once_and_at_its_new_loop() {
    const MESSAGE: u32 = 7;
    const ARRIVAL: u32 = 100;
    model(|| {
        let released = Arc::new(AtomicU64::new(0));
        let loops = [Owner::new(&released), Owner::new(&released)];
        let mailboxes = Arc::new(loops.each_ref().map(|owner| Arc::clone(&owner.mailbox)));
        let lives_at = Arc::new(AtomicU64::new(0));
        let (doors, home) = (Arc::clone(&mailboxes), Arc::clone(&lives_at));
        let sender = thread::spawn(move || {
            loop {
                let index = home.load(Ordering::Acquire);
                let is_here = || home.load(Ordering::Acquire) == index;
                if doors[index as usize].post_if(MESSAGE, is_here).is_ok() {
                    break;
                }
            }
        });
        // The first loop sends the connection off; what had come for it travels along.
        relocate(&*mailboxes, 0, 1, |here| {
            let carried: u32 = here.drain(..).sum();
            lives_at.store(1, Ordering::Release);
            ARRIVAL + carried
        });
        let [first, second] = loops;
        let mut got = 0;
        while got < ARRIVAL + MESSAGE {
            second.sleep();
            got += second.take().iter().sum::<u32>();
        }
        assert_eq!(got, ARRIVAL + MESSAGE, "once");
        sender.join().unwrap();
        assert!(first.take().is_empty(), "nothing was left behind");
    });
}

/// A list of holders, by which releases wake threads.
trait List: Send + Sync + 'static {
    fn set(&self, owner: &Owner, ticket: Ticket);
    fn wake(&self, released: Ticket);
}

impl List for Holders<u32> {
    fn set(&self, owner: &Owner, ticket: Ticket) {
        self.set_lowest_held(1, &owner.mailbox, ticket);
    }

    fn wake(&self, released: Ticket) {
        self.wake_released(released);
    }
}

/// The order that lost wake-ups: a release wakes the thread and then notes that it is not listed. A thread that holds its next
/// ticket in between believes that it is.
#[derive(Default)]
struct NotesLate {
    doors: Mutex<Vec<Arc<Mailbox<u32>>>>,
    listed: AtomicBool,
}

impl List for NotesLate {
    fn set(&self, owner: &Owner, ticket: Ticket) {
        owner.mailbox.set_lowest_held(ticket);
        if ticket != NOTHING_HELD && !self.listed.swap(true, Ordering::AcqRel) {
            self.doors.lock().unwrap().push(Arc::clone(&owner.mailbox));
        }
    }

    fn wake(&self, released: Ticket) {
        self.doors.lock().unwrap().retain(|mailbox| {
            let is_due = mailbox.lowest_held().is_covered_by(released);
            if is_due {
                mailbox.wake_released(released);
                self.listed.store(false, Ordering::Release);
            }
            !is_due
        });
    }
}

/// A thread answers `tickets` requests, each of which waits for its ticket, while a journal releases one after the other.
fn holds_one_ticket_after_the_other<L: List>(list: L) {
    let list = Arc::new(list);
    let owner = Owner::new(&Arc::new(AtomicU64::new(0)));
    let (held, released) = (Arc::new(AtomicU64::new(0)), Arc::clone(&owner.released));
    let (releases, appended) = (Arc::clone(&list), Arc::clone(&held));
    let journal = thread::spawn(move || {
        for ticket in 1..=2 {
            // It has nothing to sync before it is appended.
            while appended.load(Ordering::Acquire) < ticket {
                thread::yield_now();
            }
            released.store(ticket, Ordering::Release);
            fence(Ordering::SeqCst);
            releases.wake(Ticket::of(ticket));
        }
    });
    for ticket in 1..=2 {
        held.store(ticket, Ordering::Release);
        list.set(&owner, Ticket::of(ticket));
        while owner.released() < ticket {
            owner.sleep();
        }
    }
    list.set(&owner, NOTHING_HELD);
    journal.join().unwrap();
}

/// Under the connector `threads`, clients hung, or had their replies 100 ms late: a thread that a release had just woken held its
/// next ticket before that release had taken it off the list of holders, and was then taken off with it.
#[test]
fn thread_that_holds_its_next_ticket_while_it_is_woken_is_woken_for_that_too() {
    model(|| holds_one_ticket_after_the_other(Holders::default()));
}

#[test]
#[should_panic(expected = "deadlock")]
fn model_finds_the_order_that_lost_wake_ups() {
    model(|| holds_one_ticket_after_the_other(NotesLate::default()));
}
