//! Two nodes of this process, or of two, joined by a transport.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ::transport::local::Hub;
use ::transport::tcp::Tcp;
use ::transport::{
    Channel, Event, Incarnation, LinkState, Message, NodeId, Receive, Secret, Security, SendError, Sender,
    Settings, Transport,
};
use clock::SystemClock;

use super::apart::{Apart, Opening};
use super::load::{Carrier, Load, Outcome, join, message, observe, time_each, with_own};
use crate::Failure;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
/// How long nodes may take to meet, and a message to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// A sender without credit looks again at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Of nodes that measure how long it takes to use one.
const SECRET: &str = "for measurements, known to all";

/// Both nodes, and what came to each.
pub(super) struct Pair {
    one: Box<dyn Transport>,
    here: Arc<Here>,
    far: Far,
}

/// The second node.
enum Far {
    Here(Receiver),
    Apart(Apart),
}

/// A node that receives.
pub(super) struct Receiver {
    node: Box<dyn Transport>,
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
    }
}

impl Receiver {
    fn new(node: Box<dyn Transport>) -> Self {
        let there = Arc::<There>::default();
        node.receive(Arc::clone(&there) as Arc<dyn Receive>);
        Self { node, there }
    }

    /// The node of a child, which the parent's dials; where it listens.
    pub(super) fn start(carrier: Carrier, opening: &Opening) -> Result<(Self, String), Failure> {
        let parent = opening.parent.as_ref().ok_or("the parent has no node")?;
        let receiver = Self::new(node(carrier, TWO, with_threads(opening.threads))?);
        let address = receiver.node.bind("127.0.0.1:0").map_err(text)?;
        let back = receiver.node.connect(ONE, parent).map_err(text)?;
        if opening.answers {
            receiver.there.back.get_or_init(|| back);
        }
        Ok((receiver, address))
    }

    pub(super) fn count(&self) -> u64 {
        self.there.count.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.node.close();
    }
}

/// Two nodes that are connected.
pub(super) fn pair(carrier: Carrier, load: &Load) -> Result<Box<Pair>, Failure> {
    let here = Arc::<Here>::default();
    let receive = |node: &dyn Transport| node.receive(Arc::clone(&here) as Arc<dyn Receive>);
    let pair = if carrier == Carrier::Local {
        let hub = Hub::start(Arc::new(SystemClock)).map_err(text)?;
        let settings = Settings { threads: load.threads, ..Settings::default() };
        let join = |id| hub.join(id, Incarnation::new(1), settings.clone()).map_err(text);
        let (one, two) = (Box::new(join(ONE)?), Receiver::new(Box::new(join(TWO)?)));
        receive(&*one);
        join_here(&*one, &two, "local:").map_err(text)?;
        Pair { one, here, far: Far::Here(two) }
    } else if load.apart {
        let one = node(carrier, ONE, with_threads(load.threads))?;
        receive(&*one);
        let address = one.bind("127.0.0.1:0").map_err(text)?;
        let answers = load.pattern == super::load::Pattern::PingPong;
        let (apart, there) = Apart::start(&Opening::new(carrier, load, answers, Some(address)))?;
        one.connect(TWO, &there).map_err(text)?;
        Pair { one, here, far: Far::Apart(apart) }
    } else {
        let (one, two) = (
            node(carrier, ONE, with_threads(load.threads))?,
            Receiver::new(node(carrier, TWO, with_threads(load.threads))?),
        );
        receive(&*one);
        join_here(&*one, &two, "127.0.0.1:0").map_err(text)?;
        Pair { one, here, far: Far::Here(two) }
    };
    pair.wait_for_link()?;
    Ok(Box::new(pair))
}

fn with_threads(threads: usize) -> Settings {
    Settings { threads, ..Settings::default() }
}

/// A node over sockets.
pub(crate) fn node(carrier: Carrier, id: NodeId, settings: Settings) -> Result<Box<dyn Transport>, Failure> {
    if carrier == Carrier::ZeroMq {
        return zeromq(id, settings);
    }
    let tcp = Tcp::new(id, Incarnation::new(1), settings, Arc::new(SystemClock)).map_err(text)?;
    let security = if carrier == Carrier::Tls {
        Security::Secret { secret: Secret::new(SECRET).map_err(text)?, cluster: "bench".to_owned() }
    } else {
        Security::None
    };
    tcp.secured(&security).map(|tcp| Box::new(tcp) as Box<dyn Transport>).map_err(text)
}

#[cfg(feature = "zeromq")]
fn zeromq(id: NodeId, settings: Settings) -> Result<Box<dyn Transport>, Failure> {
    let node = ::transport::zeromq::ZeroMq::new(id, Incarnation::new(1), settings, Arc::new(SystemClock));
    node.map(|node| Box::new(node) as Box<dyn Transport>).map_err(text)
}

#[cfg(not(feature = "zeromq"))]
fn zeromq(_: NodeId, _: Settings) -> Result<Box<dyn Transport>, Failure> {
    Err(super::WITHOUT_ZEROMQ.to_owned())
}

fn join_here(one: &dyn Transport, two: &Receiver, address: &str) -> Result<(), ::transport::BindError> {
    let addresses = [one.bind(address)?, two.node.bind(address)?];
    one.connect(TWO, &addresses[1])?;
    two.node.connect(ONE, &addresses[0])?;
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err calls takes the error")]
fn text(error: impl ToString) -> Failure {
    error.to_string()
}

impl Pair {
    /// Both nodes know of it: the second one is up before it answers the first.
    fn wait_for_link(&self) -> Result<(), Failure> {
        let start = Instant::now();
        let is_up = || self.one.status(TWO).is_some_and(|status| status.state == LinkState::Up);
        while !is_up() {
            if start.elapsed() > PATIENCE {
                return Err("the nodes did not meet".to_owned());
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn sender(&self) -> Result<Sender, Failure> {
        self.one.sender(TWO).ok_or_else(|| "the nodes did not meet".to_owned())
    }

    /// How many messages the second node has got.
    fn count(&self) -> Result<u64, Failure> {
        match &self.far {
            Far::Here(receiver) => Ok(receiver.count()),
            Far::Apart(apart) => apart.count(),
        }
    }

    /// The second node's process, if it is another one.
    fn other(&self) -> Option<u32> {
        if let Far::Apart(apart) = &self.far { Some(apart.id()) } else { None }
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
        let outcome = observe(load, &with_own(pair.other()), &|| pair.count());
        stops.store(true, Ordering::Relaxed);
        pair.here.wake_all();
        threads.into_iter().try_for_each(join)?;
        outcome
    })?;
    let (start, sent) = (Instant::now(), sent.load(Ordering::SeqCst));
    loop {
        let came = pair.count()?;
        if came == sent {
            break;
        }
        if start.elapsed() > PATIENCE {
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
    if let Far::Here(receiver) = &pair.far {
        let back = receiver.node.sender(ONE).ok_or("the nodes did not meet")?;
        receiver.there.back.get_or_init(|| back);
    }
    pair.here.enter(Channel::reliable(0));
    let message = message(load.size_bytes);
    let mut due = 0;
    time_each(load, &with_own(pair.other()), || {
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
