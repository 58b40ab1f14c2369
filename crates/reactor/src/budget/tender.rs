//! The tender of the budget: a thread that sleeps while all is well, and ends connections when they keep too much together.
//!
//! Who is ended is chosen among all connections, by what they published last. Ends are asked for through the mailboxes of their loops;
//! the next choice is made when all of the last one have ended, so that nobody is ended for bytes that are about to be free.
//!
//! And what all threads do with the budget that they share: ask for room, look whether too much is kept, call the tender.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use clock::{Nanos, Throttle};

use super::requests::{Answer, Doing, Room, Verdict};
use super::{BudgetReport, Kept, MODEST_BYTES, NoRoom, Pressure};
use crate::handle::{Post, Shared};
use crate::pool::LARGE_BYTES;
use crate::{CloseReason, Connection, Connector, Handle, Protocol, StartError};

/// A loop looks at the sum when it has grown by this.
const CHECK_BYTES: i64 = 256 << 10;
/// A connection from which nothing has come for so long is in the middle of nothing.
const RESTING: Duration = Duration::from_millis(200);
/// So many of those who wait for room are not ended for what they hold already.
const FIRST_COUNT: usize = 16;
/// What a turn is lent: a buffer for input and one for output.
const TURN_BYTES: u64 = 2 * LARGE_BYTES as u64;
/// How often it looks while there is something to do.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

impl<P: Protocol> Shared<P> {
    /// Asks for room for `more_bytes` of a request of `connection`.
    pub(crate) fn ask_for_room(&self, connection: &Connection, more_bytes: u64, now: Nanos) -> Answer {
        let room = self.room();
        let answer = self.budget.state().requests.ask(connection.id(), more_bytes, room, now);
        if answer == Answer::Waits {
            self.budget.waits.fetch_add(1, Ordering::Relaxed);
            self.budget.call();
        }
        answer
    }

    /// Looks whether too much is kept, tells the protocol how much it is, and calls the tender if there is something to do.
    pub(crate) fn check_budget(&self) {
        let kept = self.kept();
        let limits = self.budget.limits();
        let pressure = Pressure::of(self.told_bytes(&kept), limits.kept_bytes_max);
        if pressure > Pressure::Low {
            self.budget.pressure.fetch_max(pressure as u8, Ordering::Relaxed);
        }
        if pressure > Pressure::Low || kept.strangers.max(0).cast_unsigned() > limits.strangers_bytes_max {
            self.budget.call();
        }
    }

    /// All that counts against the budget; the protocol is told.
    fn told_bytes(&self, kept: &Kept) -> u64 {
        let own_bytes = kept.sum().max(0).cast_unsigned();
        let granted_bytes = self.budget.state().requests.granted_bytes();
        let bytes = own_bytes + granted_bytes + self.protocol.shared_bytes();
        // What is beyond the limit is about to go: others are not refused for it.
        let max_bytes = self.budget.kept_bytes_max.load(Ordering::Relaxed);
        self.protocol.on_kept(bytes.min(max_bytes), max_bytes);
        bytes
    }

    /// What connections keep, summed up over all loops.
    pub(crate) fn kept(&self) -> Kept {
        let mut sum = Kept::default();
        self.stats.iter().for_each(|stats| sum += stats.kept.load());
        sum
    }

    fn room(&self) -> Room {
        let own_bytes = self.kept().sum().max(0).cast_unsigned();
        let max_bytes = self.budget.limits().requests_bytes_max();
        let other_bytes = own_bytes + self.protocol.shared_bytes();
        Room { max_bytes, other_bytes, is_held: self.protocol.holds_requests() }
    }

    /// What is kept, and what was done about it.
    pub(crate) fn budget_report(&self) -> BudgetReport {
        let kept = self.kept();
        let (granted_bytes, waiting) = {
            let state = self.budget.state();
            (state.requests.granted_bytes(), state.requests.waiting() as u64)
        };
        let bytes = |part: i64| part.max(0).cast_unsigned();
        let shared_bytes = self.protocol.shared_bytes();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BudgetReport {
            max_bytes: count(&self.budget.kept_bytes_max),
            kept_bytes: bytes(kept.sum()) + granted_bytes + shared_bytes,
            connections_bytes: bytes(kept.connections),
            input_bytes: bytes(kept.input),
            requests_bytes: granted_bytes,
            output_bytes: bytes(kept.output),
            session_bytes: bytes(kept.session),
            shared_bytes,
            strangers_bytes: bytes(kept.strangers),
            waiting,
            waits: count(&self.budget.waits),
            refused: count(&self.budget.refused),
            stalled: count(&self.budget.stalled),
            cut: count(&self.budget.cut),
            strangers_cut: count(&self.budget.strangers_cut),
        }
    }

    /// By how much a thread may grow before it looks whether all together keep too much.
    pub(crate) fn check_bytes(&self) -> i64 {
        if self.options.connector == Connector::Threads { 1 } else { CHECK_BYTES }
    }
}

/// Starts the tender's thread.
pub(crate) fn start<P: Protocol>(handle: &Handle<P>) -> Result<(), StartError> {
    let mut tender =
        Tender { shared: Arc::clone(&handle.shared), ending: Vec::new(), log: Throttle::new(LOGGED_EVERY) };
    let thread = thread::Builder::new()
        .name("budget".to_owned())
        .spawn(move || tender.run())
        .map_err(|source| StartError::System { what: "the budget's thread", source })?;
    handle.shared.keep_thread(thread);
    Ok(())
}

struct Tender<P: Protocol> {
    shared: Arc<Shared<P>>,
    /// Connections that were told to end, and have not.
    ending: Vec<Arc<Connection>>,
    log: Throttle,
}

impl<P: Protocol> Tender<P> {
    fn run(&mut self) {
        let mut has_more = false;
        while self.wait(has_more) {
            has_more = self.tend();
        }
    }

    /// Waits until it is called, or for the next look; `false` when the reactor stops.
    fn wait(&self, has_more: bool) -> bool {
        let budget = &self.shared.budget;
        let mut state = budget.state();
        if has_more && !state.is_stopping && !state.is_called {
            state = budget.called.wait_timeout(state, LOOKS_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        while !has_more && !state.is_stopping && !state.is_called {
            state = budget.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_called = false;
        !state.is_stopping
    }

    /// Does what there is to do now; whether to look again by itself.
    fn tend(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let limits = shared.budget.limits();
        let kept = shared.kept();
        let kept_bytes = shared.told_bytes(&kept);
        let low_bytes = limits.kept_bytes_max - limits.kept_bytes_max / 8;
        let mut pressure = Pressure::of(kept_bytes, limits.kept_bytes_max);
        if pressure == Pressure::Low && shared.budget.is_pressed() && kept_bytes > low_bytes {
            pressure = Pressure::Over;
        }
        self.ending.retain(|connection| !connection.is_closed());
        let patience = limits.room_wait_max / 4;
        let owed_bytes =
            shared.budget.state().requests.owed_bytes(shared.room(), shared.clock.now(), patience);
        if pressure == Pressure::Low {
            pressure = self.make_room_for_requests(owed_bytes, patience);
        } else if self.ending.is_empty() && !self.cut(kept_bytes.saturating_sub(low_bytes).max(owed_bytes)) {
            // All keep little, and would wait for ever.
            pressure = Pressure::Over;
        }
        shared.budget.pressure.store(pressure as u8, Ordering::Relaxed);
        let connection_bytes = shared.connection_bytes::<P>().cast_unsigned();
        for connection in shared.budget.let_go(|it| it.kept_bytes().saturating_sub(connection_bytes)) {
            shared.send(&connection, Post::Room(Arc::clone(&connection), None));
        }
        let strangers_are_over = self.cut_strangers(&kept, limits.strangers_bytes_max);
        let waiting = self.decide_requests();
        pressure > Pressure::Low || waiting || strangers_are_over || !self.ending.is_empty()
    }

    /// Makes room of `over_bytes` that connections keep and the first request needs which has waited for `patience`. Those that keep
    /// more than a little are not read until then, and those of them that were silent for as long are ended, those with most first,
    /// when that makes enough room. Nothing is done if all of them together could not make it.
    fn make_room_for_requests(&mut self, over_bytes: u64, patience: Duration) -> Pressure {
        if over_bytes == 0 {
            return Pressure::Low;
        }
        let survey = self.survey();
        let freed = |it: &Connection| match survey.unsent_bytes(it) {
            _ if survey.is_first(it) => 0,
            // Its command is taken, and ends by itself.
            0 if it.is_parked() => 0,
            0 => survey.kept_bytes(it),
            unsent_bytes => unsent_bytes,
        };
        if survey.connections.iter().map(|it| freed(it)).sum::<u64>() < over_bytes {
            return Pressure::Low;
        }
        let silent = |it: &Connection| if survey.is_silent(it, patience) { freed(it) } else { 0 };
        let victims = take_largest(&survey.connections, over_bytes, silent);
        if self.ending.is_empty() && victims.iter().map(|it| silent(it)).sum::<u64>() >= over_bytes {
            self.end_for_memory(victims);
        }
        Pressure::Wanted
    }

    /// Ends connections of one kind until `over_bytes` will be free: those with most unsent bytes; if there are none, those that
    /// keep most and rest, then those that send, and then those that wait for something. The next look finds whether it was enough.
    /// Returns whether there were any.
    fn cut(&mut self, over_bytes: u64) -> bool {
        let survey = self.survey();
        let unsent = |it: &Connection| survey.unsent_bytes(it);
        let idle =
            |it: &Connection| if it.is_parked() || survey.waits(it) { 0 } else { survey.kept_bytes(it) };
        // Whoever is in the middle of a request that comes goes on, as long as others keep more than they need.
        let resting = |it: &Connection| if survey.is_silent(it, RESTING) { idle(it) } else { 0 };
        // Also one whose request is small is lent these for the time of its turn.
        let beyond_a_turn = |bytes: u64| if bytes > TURN_BYTES { bytes } else { 0 };
        let sending = |it: &Connection| beyond_a_turn(idle(it));
        let late =
            |it: &Connection| if survey.is_first(it) { 0 } else { beyond_a_turn(survey.kept_bytes(it)) };
        let kinds: [&dyn Fn(&Connection) -> u64; 4] = [&unsent, &resting, &sending, &late];
        let mut victims = kinds.iter().map(|bytes| take_largest(&survey.connections, over_bytes, bytes));
        let victims = victims.find(|victims| !victims.is_empty()).unwrap_or_default();
        let any = !victims.is_empty();
        self.end_for_memory(victims);
        any
    }

    /// All connections as they are now.
    fn survey(&self) -> Survey {
        let modest_bytes = self.shared.connection_bytes::<P>().cast_unsigned() + MODEST_BYTES;
        let waiting = self.shared.budget.state().requests.waiting_ids();
        Survey {
            connections: self.shared.some_order(),
            now: self.shared.clock.now(),
            modest_bytes,
            first: waiting.iter().take(FIRST_COUNT).copied().collect(),
            waiting: waiting.into_iter().collect(),
        }
    }

    /// Ends `victims` for what they keep.
    fn end_for_memory(&mut self, victims: Vec<Arc<Connection>>) {
        let freed_bytes: u64 = victims.iter().map(|connection| connection.unsent_bytes()).sum();
        let cut = victims.len();
        self.end_all(victims, CloseReason::Memory);
        self.shared.budget.cut.fetch_add(cut as u64, Ordering::Relaxed);
        if cut > 0
            && let Some(skipped) = self.log.admit(self.shared.clock.now())
        {
            let max_bytes = self.shared.budget.limits().kept_bytes_max;
            tracing::warn!(
                connections = cut,
                unsent_bytes = freed_bytes,
                max_bytes,
                skipped,
                "clients closed, those with most unsent bytes first: all together keep more than connections.memory_max"
            );
        }
    }

    /// Ends strangers while they keep too much together; whether they do.
    fn cut_strangers(&mut self, kept: &Kept, max_bytes: u64) -> bool {
        let strangers_bytes = kept.strangers.max(0).cast_unsigned();
        if strangers_bytes <= max_bytes {
            return false;
        }
        if !self.ending.is_empty() {
            return true;
        }
        let mut strangers = self.shared.some_order();
        strangers.retain(|connection| connection.is_stranger());
        // Of those that keep the same, the oldest first.
        strangers.sort_unstable_by_key(|connection| connection.id());
        let over_bytes = strangers_bytes - (max_bytes - max_bytes / 8);
        let cut = take_largest(&strangers, over_bytes, |connection| connection.kept_bytes());
        let count = cut.len();
        self.end_all(cut, CloseReason::Stranger);
        self.shared.budget.strangers_cut.fetch_add(count as u64, Ordering::Relaxed);
        if let Some(skipped) = self.log.admit(self.shared.clock.now()) {
            tracing::warn!(
                connections = count,
                max_bytes,
                skipped,
                "clients closed that have not authenticated: all such together keep more than connections.unauthenticated_max"
            );
        }
        true
    }

    fn end_all(&mut self, connections: Vec<Arc<Connection>>, reason: CloseReason) {
        for connection in connections {
            connection.kill_for(reason);
            self.ending.push(connection);
        }
    }

    /// Grants room, and ends requests for which there is none; whether some still wait.
    fn decide_requests(&mut self) -> bool {
        let shared = &self.shared;
        if shared.budget.state().requests.waiting() == 0 {
            return false;
        }
        let (now, limits, room) = (shared.clock.now(), shared.budget.limits(), shared.room());
        let doing = |id| match shared.table().get(&id) {
            Some(route) if route.connection.is_receiving() => Doing::Receiving(route.connection.bytes_in()),
            _ => Doing::Running,
        };
        let (verdicts, waiting) = {
            let mut state = shared.budget.state();
            (state.requests.poll(room, now, limits.room_wait_max, doing), state.requests.waiting())
        };
        for verdict in verdicts {
            let (id, refusal) = match verdict {
                Verdict::Granted(id) => (id, None),
                Verdict::Refused(id) => (id, Some(NoRoom::Waited)),
                Verdict::Stalled(id) => (id, Some(NoRoom::Stalled)),
            };
            match refusal {
                Some(NoRoom::Stalled) => _ = shared.budget.stalled.fetch_add(1, Ordering::Relaxed),
                Some(_) => _ = shared.budget.refused.fetch_add(1, Ordering::Relaxed),
                None => {}
            }
            let connection = shared.table().get(&id).map(|route| Arc::clone(&route.connection));
            if let Some(connection) = connection {
                shared.send(&connection, Post::Room(Arc::clone(&connection), refusal));
            }
        }
        waiting > 0
    }
}

/// All connections, and what the end of each would free.
struct Survey {
    connections: Vec<Arc<Connection>>,
    now: Nanos,
    /// What a connection keeps that keeps little.
    modest_bytes: u64,
    /// Connections that wait for room, and of them those who have waited longest.
    waiting: HashSet<u64>,
    first: HashSet<u64>,
}

impl Survey {
    /// What it keeps beyond a little.
    fn kept_bytes(&self, connection: &Connection) -> u64 {
        connection.kept_bytes().saturating_sub(self.modest_bytes)
    }

    /// What it keeps if it has not read what was sent to it; a little is on its way in any case.
    fn unsent_bytes(&self, connection: &Connection) -> u64 {
        match connection.unsent_bytes() {
            // Of what listeners share each holds a part.
            bytes @ MODEST_BYTES.. => bytes.max(self.kept_bytes(connection)),
            _ => 0,
        }
    }

    /// Whether nothing has come from it for so long.
    fn is_silent(&self, connection: &Connection, rest: Duration) -> bool {
        self.now - connection.last_active() >= rest
    }

    /// Whether it waits for room.
    fn waits(&self, connection: &Connection) -> bool {
        self.waiting.contains(&connection.id())
    }

    /// Whether it is among those that room is made for.
    fn is_first(&self, connection: &Connection) -> bool {
        self.first.contains(&connection.id())
    }
}

/// The connections with the largest `bytes`, as many as make up `over_bytes`; of equal ones the first.
fn take_largest(
    connections: &[Arc<Connection>],
    over_bytes: u64,
    bytes: impl Fn(&Connection) -> u64,
) -> Vec<Arc<Connection>> {
    let mut sized: Vec<_> = connections.iter().map(|connection| (bytes(connection), connection)).collect();
    sized.retain(|(bytes, _)| *bytes > 0);
    sized.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut taken_bytes = 0;
    let taken = sized.into_iter().take_while(|(bytes, _)| {
        let goes_on = taken_bytes < over_bytes;
        taken_bytes += bytes;
        goes_on
    });
    taken.map(|(_, connection)| Arc::clone(connection)).collect()
}

/// One line in this time, however many connections are closed.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
