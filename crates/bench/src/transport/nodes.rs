//! Two nodes of this process, joined by a transport.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ::transport::local::Hub;
use ::transport::tcp::Tcp;
use ::transport::{
    Channel, Event, Incarnation, LinkState, Message, NodeId, Receive, SendError, Sender, Settings, Transport,
};
use clock::SystemClock;

use super::{Carrier, Load, Outcome, join, message, observe, time_each};
use crate::Failure;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
/// How long nodes may take to meet, and a message to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// A sender without credit looks again at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Both nodes, and what came to each.
pub(super) struct Pair {
    one: Box<dyn Transport>,
    two: Box<dyn Transport>,
    here: Arc<Here>,
    there: Arc<There>,
}

/// Counts what comes to the second node, and sends it back if asked.
#[derive(Default)]
struct There {
    count: AtomicU64,
    back: OnceLock<Sender>,
}

impl Receive for There {
    fn on_message(&self, message: &Message<'_>) {
        // One thread writes it: no locked instruction for each message.
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if let Some(back) = self.back.get()
            && back.send(message.channel, message.bytes).is_err()
        {
            // The one who waits for it says that it did not come.
            tracing::error!("an answer was not taken");
        }
    }
}

/// Wakes who waits on the first node: for credit, or for an answer.
#[derive(Default)]
struct Here {
    /// By the number of their channel.
    senders: Mutex<Vec<Option<Thread>>>,
    answers: AtomicU64,
}

impl Here {
    fn senders(&self) -> MutexGuard<'_, Vec<Option<Thread>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.senders().iter().flatten().for_each(Thread::unpark);
    }

    /// Has this thread woken for `channel`.
    fn enter(&self, channel: Channel) {
        let (mut senders, index) = (self.senders(), usize::from(channel.number));
        let count = senders.len().max(index + 1);
        senders.resize(count, None);
        senders[index] = Some(thread::current());
    }

    fn wake(&self, channel: Channel) {
        if let Some(Some(thread)) = self.senders().get(usize::from(channel.number)) {
            thread.unpark();
        }
    }
}

impl Receive for Here {
    fn on_message(&self, message: &Message<'_>) {
        self.answers.fetch_add(1, Ordering::Release);
        self.wake(message.channel);
    }

    fn on_event(&self, _: NodeId, event: Event) {
        if let Event::Credit(channel) = event {
            self.wake(channel);
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.one.close();
        self.two.close();
    }
}

/// Two nodes that are connected.
pub(super) fn pair(carrier: Carrier, load: &Load) -> Result<Box<Pair>, Failure> {
    let settings = Settings { threads: load.threads, ..Settings::default() };
    let run = Incarnation::new(1);
    let [one, two]: [Box<dyn Transport>; 2] = if carrier == Carrier::Local {
        let hub = Hub::start(Arc::new(SystemClock)).map_err(|error| error.to_string())?;
        let node = |id| hub.join(id, run, settings.clone()).map_err(|error| error.to_string());
        [Box::new(node(ONE)?), Box::new(node(TWO)?)]
    } else {
        let clock = Arc::new(SystemClock);
        let node = |id| {
            let clock: Arc<SystemClock> = Arc::clone(&clock);
            Tcp::new(id, run, settings.clone(), clock).map_err(|error| error.to_string())
        };
        [Box::new(node(ONE)?), Box::new(node(TWO)?)]
    };
    let pair = Box::new(Pair { one, two, here: Arc::default(), there: Arc::default() });
    pair.one.receive(Arc::clone(&pair.here) as Arc<dyn Receive>);
    pair.two.receive(Arc::clone(&pair.there) as Arc<dyn Receive>);
    let address = if carrier == Carrier::Local { "local:" } else { "127.0.0.1:0" };
    pair.join(address).map_err(|error| error.to_string())?;
    Ok(pair)
}

impl Pair {
    fn join(&self, address: &str) -> Result<(), ::transport::BindError> {
        let addresses = [self.one.bind(address)?, self.two.bind(address)?];
        self.one.connect(TWO, &addresses[1])?;
        self.two.connect(ONE, &addresses[0])?;
        let start = Instant::now();
        let is_up = |node: &dyn Transport, peer| {
            node.status(peer).is_some_and(|status| status.state == LinkState::Up)
        };
        while !(is_up(&*self.one, TWO) && is_up(&*self.two, ONE)) && start.elapsed() < PATIENCE {
            thread::yield_now();
        }
        Ok(())
    }

    fn sender(&self) -> Result<Sender, Failure> {
        self.one.sender(TWO).ok_or_else(|| "the nodes did not meet".to_owned())
    }
}

pub(super) fn one_way(pair: &Pair, load: &Load) -> Result<Outcome, Failure> {
    let (stops, sender, sent) = (AtomicBool::new(false), pair.sender()?, AtomicU64::new(0));
    let outcome = thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..load.senders {
            let (sender, stops, here, sent) = (sender.clone(), &stops, &pair.here, &sent);
            let channel = Channel::reliable(number as u16);
            let run = move || {
                here.enter(channel);
                let count = send(&sender, channel, load.size_bytes, stops)?;
                sent.fetch_add(count, Ordering::SeqCst);
                Ok(())
            };
            let name = format!("sender-{number}");
            let thread = thread::Builder::new().name(name).spawn_scoped(scope, run);
            threads.push(thread.map_err(|error| error.to_string())?);
        }
        let outcome = observe(load, &|| pair.there.count.load(Ordering::Relaxed));
        stops.store(true, Ordering::Relaxed);
        pair.here.wake_all();
        threads.into_iter().try_for_each(join)?;
        outcome
    })?;
    let (start, sent) = (Instant::now(), sent.load(Ordering::SeqCst));
    while pair.there.count.load(Ordering::Relaxed) != sent {
        if start.elapsed() > PATIENCE {
            let came = pair.there.count.load(Ordering::Relaxed);
            return Err(format!("{sent} messages were taken, and {came} came"));
        }
        thread::yield_now();
    }
    Ok(outcome)
}

/// Sends until it is the end; how many.
fn send(sender: &Sender, channel: Channel, size_bytes: usize, stops: &AtomicBool) -> Result<u64, Failure> {
    let message = message(size_bytes);
    let mut count = 0;
    while !stops.load(Ordering::Relaxed) {
        match sender.send(channel, &message) {
            Ok(_) => count += 1,
            Err(SendError::NoCredit) => thread::park_timeout(LOOK_EVERY),
            Err(error) => return Err(format!("not sent: {error}")),
        }
    }
    Ok(count)
}

pub(super) fn ping_pong(pair: &Pair, load: &Load) -> Result<Outcome, Failure> {
    let sender = pair.sender()?;
    let back = pair.two.sender(ONE).ok_or("the nodes did not meet")?;
    pair.there.back.get_or_init(|| back);
    pair.here.enter(Channel::reliable(0));
    let message = message(load.size_bytes);
    let mut due = 0;
    time_each(load, || {
        sender.send(Channel::reliable(0), &message).map_err(|error| format!("not sent: {error}"))?;
        due += 1;
        let start = Instant::now();
        while pair.here.answers.load(Ordering::Acquire) < due {
            thread::park_timeout(LOOK_EVERY);
            if start.elapsed() > PATIENCE {
                return Err("an answer did not come".to_owned());
            }
        }
        Ok(())
    })
}
