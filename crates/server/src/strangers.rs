//! Clients of which nobody knows yet who they are: what they may ask for, and how fast they may guess passwords.
//!
//! ```text
//!  wrong passwords of a connection:   1     2     3     4  ...
//!  the next one is looked at after   50   100   200   400 ... 5,000 ms
//! ```
//!
//! Who connects anew does not begin anew. A [`Source`] is an IPv4 address, the first 64 bits of an IPv6 address, or the user of a process that
//! comes over the Unix socket. From its 16th wrong password on, [`Pace::SOURCE`] passwords a second of a source are looked at, on however many
//! connections they come: the others wait, about in the order in which they came. Passwords of all sources that have sent a wrong one are
//! looked at with [`Pace::ALL`]. A source that has sent none waits for nobody.
//!
//! Who knows the password and comes from where guesses come waits as they do, and is let in: nobody is refused unseen.
//!
//! Bounds: [`REPLIES_BYTES_MAX`] of replies before AUTH; sources in `Sources`, of which the oldest are forgotten.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{Nanos, Throttle};
use reactor::Address;

use crate::clients::Client;

/// What is remembered of a client that has to say who it is.
#[derive(Debug, Default)]
pub(crate) struct Stranger {
    /// Since when it is one.
    pub(crate) since: Nanos,
    /// Bytes of replies since then.
    pub(crate) replies_bytes: u32,
    /// Wrong passwords of the connection.
    pub(crate) failures: u32,
    /// No password is looked at before.
    pub(crate) ready_at: Nanos,
    turn: Turn,
}

impl Stranger {
    /// One since `since`.
    pub(crate) fn new(since: Nanos) -> Self {
        Self { since, ..Self::default() }
    }

    /// It has to say once more who it is; its wrong passwords are not forgotten.
    pub(crate) fn begin_again(&mut self, now: Nanos) {
        (self.since, self.replies_bytes) = (now, 0);
    }
}

/// How far its next password is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// It has not asked.
    #[default]
    None,
    /// It waits with others of its source and of all, behind so many who came before it.
    Waits(Places),
    /// Its password is looked at.
    Has,
}

/// A place in a line: how many had come to it, at its source and of all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    of_source: u64,
    of_all: u64,
}

/// All of them: what they may do, and what was done about it.
#[derive(Debug)]
pub(crate) struct Strangers {
    sources: Mutex<Sources>,
    /// The log's share of wrong passwords.
    log: Throttle,
    pub(crate) counts: Counts,
}

/// What was done about clients that have not authenticated.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cut_for_output: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) auth_delays: AtomicU64,
}

/// Where passwords come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    V4(u32),
    V6(u64),
    /// Over the Unix socket; `None`: the kernel did not tell.
    User(Option<u32>),
}

/// Wrong passwords by source, and who waits.
#[derive(Debug, Default)]
struct Sources {
    known: HashMap<Source, Known>,
    all: Line,
}

/// What is known of a source.
#[derive(Debug, Default)]
struct Known {
    failures: u32,
    last: Nanos,
    line: Line,
}

/// Passwords that wait to be looked at, and how fast they are.
#[derive(Debug, Default)]
struct Line {
    /// So many have come, and so many of them wait no longer.
    came: u64,
    left: u64,
    /// When the next one may be looked at, if all came evenly.
    next: Nanos,
}

/// How fast passwords are looked at.
#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Duration,
    /// So many at once after a rest.
    burst: u32,
}

impl Default for Strangers {
    fn default() -> Self {
        Self { sources: Mutex::default(), log: Throttle::new(LOGGED_EVERY), counts: Counts::default() }
    }
}

impl Strangers {
    /// When a password of this connection may be looked at, if not now. To be asked again then.
    pub(crate) fn password_at(&self, stranger: &mut Stranger, client: &Client, now: Nanos) -> Option<Nanos> {
        if stranger.turn == Turn::Has {
            return None;
        }
        let until = if stranger.ready_at > now {
            Some(stranger.ready_at)
        } else {
            let (until, turn) = self.lock().ask(source_of(client), stranger.turn, now);
            stranger.turn = turn;
            until
        };
        if until.is_some() {
            self.counts.auth_delays.fetch_add(1, Ordering::Relaxed);
        }
        until
    }

    /// Counts a wrong password, tells the log, and lets the next one of this connection wait.
    pub(crate) fn note_wrong_password(&self, stranger: &mut Stranger, client: &Client, now: Nanos) {
        stranger.turn = Turn::None;
        stranger.ready_at = now + doubled(stranger.failures).min(DELAY_MAX);
        stranger.failures = stranger.failures.saturating_add(1);
        self.counts.auth_failures.fetch_add(1, Ordering::Relaxed);
        self.lock().add(source_of(client), now);
        if let Some(skipped) = self.log.admit(now) {
            tracing::warn!(client = client.address(), skipped, "wrong password");
        }
    }

    /// The password was right.
    pub(crate) fn note_right_password(stranger: &mut Stranger) {
        stranger.turn = Turn::None;
    }

    /// A connection ends: those behind it need not wait for it.
    pub(crate) fn forget(&self, stranger: &mut Stranger, client: &Client) {
        if let Turn::Waits(_) = std::mem::take(&mut stranger.turn) {
            self.lock().leave(source_of(client));
        }
    }

    /// Whether a client has asked for more than it may before AUTH; `bytes` are those of its newest reply.
    pub(crate) fn is_talkative(&self, stranger: &mut Stranger, bytes: usize) -> bool {
        stranger.replies_bytes =
            stranger.replies_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let is_talkative = stranger.replies_bytes > REPLIES_BYTES_MAX;
        if is_talkative {
            self.counts.cut_for_output.fetch_add(1, Ordering::Relaxed);
        }
        is_talkative
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Begins anew.
    pub(crate) fn reset(&self) {
        for count in [&self.cut_for_output, &self.timed_out, &self.auth_failures, &self.auth_delays] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Sources {
    /// When a password of `source` may be looked at, if not now, and whose turn it then is.
    fn ask(&mut self, source: Source, turn: Turn, now: Nanos) -> (Option<Nanos>, Turn) {
        let is_crowded = self.known.len() >= SOURCES_MAX;
        let known = self.known.get_mut(&source).filter(|known| now - known.last < FORGOTTEN_AFTER);
        let Some(known) = known else {
            if let Turn::Waits(_) = turn {
                self.all.left += 1;
            }
            // Nobody has heard of it: unless there are more sources than can be remembered, it waits for nobody.
            if is_crowded && let Err(at) = self.all.take(None, Pace::ALL, now) {
                return (Some(at), Turn::None);
            }
            return (None, Turn::Has);
        };
        let is_slow = known.failures >= SOURCE_FAILURES_FREE;
        let places = if let Turn::Waits(places) = turn { Some(places) } else { None };
        let of_source =
            if is_slow { known.line.due(places.map(|it| it.of_source), Pace::SOURCE, now) } else { Ok(()) };
        let of_all = self.all.due(places.map(|it| it.of_all), Pace::ALL, now);
        if let Some(at) = of_source.err().max(of_all.err()) {
            let places =
                places.unwrap_or_else(|| Places { of_source: known.line.enter(), of_all: self.all.enter() });
            return (Some(at), Turn::Waits(places));
        }
        if is_slow {
            known.line.advance(Pace::SOURCE, now);
        }
        self.all.advance(Pace::ALL, now);
        if places.is_some() {
            known.line.left += 1;
            self.all.left += 1;
        }
        (None, Turn::Has)
    }

    /// Somebody who waited has gone.
    fn leave(&mut self, source: Source) {
        self.all.left += 1;
        if let Some(known) = self.known.get_mut(&source) {
            known.line.left += 1;
        }
    }

    /// Counts a wrong password of `source`.
    fn add(&mut self, source: Source, now: Nanos) {
        if self.known.len() >= SOURCES_MAX && !self.known.contains_key(&source) {
            self.known.retain(|_, known| now - known.last < FORGOTTEN_AFTER);
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last).map(|(source, _)| *source);
            if let Some(oldest) = oldest.filter(|_| self.known.len() >= SOURCES_MAX) {
                self.known.remove(&oldest);
            }
        }
        let known = self.known.entry(source).or_default();
        if now - known.last >= FORGOTTEN_AFTER {
            known.failures = 0;
        }
        (known.failures, known.last) = (known.failures.saturating_add(1), now);
    }

    #[cfg(test)]
    fn failures(&self, source: Source, now: Nanos) -> u32 {
        let known = self.known.get(&source).filter(|known| now - known.last < FORGOTTEN_AFTER);
        known.map_or(0, |known| known.failures)
    }
}

impl Line {
    /// Takes a place at the end.
    fn enter(&mut self) -> u64 {
        self.came += 1;
        self.came - 1
    }

    /// Whether one may be looked at now that has `place`, or comes now. If not, about when.
    fn due(&self, place: Option<u64>, pace: Pace, now: Nanos) -> Result<(), Nanos> {
        let before = place.unwrap_or(self.came).saturating_sub(self.left);
        let waiting = self.came.saturating_sub(self.left);
        // One that comes now does not pass those who wait.
        let is_next = place.is_some() || waiting == 0;
        if is_next && self.next <= now + pace.ahead() {
            return Ok(());
        }
        let first = Nanos(self.next.0.saturating_sub(pace.ahead().as_nanos() as u64)).max(now);
        let behind = pace.interval * u32::try_from(before).unwrap_or(u32::MAX).min(WAIT_STEPS_MAX);
        Err((first + behind).max(now + pace.interval).min(now + ASK_AGAIN_MAX))
    }

    /// One is looked at.
    fn advance(&mut self, pace: Pace, now: Nanos) {
        self.next = self.next.max(now) + pace.interval;
    }

    /// As [`Line::due`] and [`Line::advance`].
    fn take(&mut self, place: Option<u64>, pace: Pace, now: Nanos) -> Result<(), Nanos> {
        self.due(place, pace, now)?;
        self.advance(pace, now);
        Ok(())
    }
}

impl Pace {
    /// Of a source that has sent more wrong passwords than are free.
    const SOURCE: Self = Self { interval: Duration::from_millis(25), burst: 1 };
    /// Of all sources that have sent a wrong one.
    const ALL: Self = Self { interval: Duration::from_millis(5), burst: 50 };

    fn ahead(self) -> Duration {
        self.interval * (self.burst - 1)
    }
}

fn doubled(doublings: u32) -> Duration {
    DELAY_FIRST * (1 << doublings.min(16))
}

fn source_of(client: &Client) -> Source {
    let Some(connection) = client.connection.as_deref() else { return Source::User(None) };
    match connection.peer() {
        Address::Tcp(address) => source_at(address.ip()),
        Address::Unix(_) => Source::User(connection.peer_user()),
    }
}

/// Who has one IPv6 address has the 2^64 that share its first half.
fn source_at(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(address) => Source::V4(address.to_bits()),
        IpAddr::V6(address) => Source::V6((address.to_bits() >> 64) as u64),
    }
}

/// Most bytes of replies before AUTH: some dozens of errors.
pub(crate) const REPLIES_BYTES_MAX: u32 = 8 << 10;
/// What a client is told then.
pub(crate) const TOO_TALKATIVE: &str = "ERR more than 8192 B of replies before AUTH";

const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Wrong passwords of a source that cost its new connections nothing.
const SOURCE_FAILURES_FREE: u32 = 16;
const SOURCES_MAX: usize = 1_024;
/// Who waits asks again after this at the latest: those before it may have gone.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(2);
const WAIT_STEPS_MAX: u32 = 1_000;
/// A source from which no wrong password came for so long begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// One line in this time, however many passwords are wrong.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Guesses of a source, each on a connection of its own, `many` at a time, for so many seconds: how many were looked at.
    fn guesses(sources: &mut Sources, source: impl Fn(usize) -> Source, many: usize, seconds: u64) -> usize {
        let mut looked = 0;
        let mut waiting: Vec<(Turn, Nanos)> = vec![(Turn::None, Nanos(0)); many];
        for ms in 0..seconds * 1_000 {
            let now = Nanos(ms * 1_000_000);
            for (index, (turn, at)) in waiting.iter_mut().enumerate().filter(|(_, (_, at))| *at <= now) {
                let (until, next) = sources.ask(source(index), *turn, now);
                (*turn, *at) = (next, until.unwrap_or(now));
                if until.is_none() {
                    looked += 1;
                    sources.add(source(index), now);
                    // The next guess comes on a new connection.
                    *turn = Turn::None;
                }
            }
        }
        looked
    }

    /// A new connection for each guess was a new beginning: 1,700 a second from one address, 14,300 over the Unix socket.
    #[test]
    fn guesses_over_new_connections_are_as_slow_as_those_of_one_however_many_there_are() {
        for source in [Source::V4(1), Source::V6(7), Source::User(Some(1000)), Source::User(None)] {
            for many in [1, 50, 2_000] {
                let looked = guesses(&mut Sources::default(), |_| source, many, 10);
                assert!((370..=430).contains(&looked), "{looked} guesses of {many} connections in 10 s");
            }
        }
    }

    #[test]
    fn guesses_of_many_sources_have_one_bound_and_others_wait_for_none_of_them() {
        let mut sources = Sources::default();
        let looked = guesses(&mut sources, |index| Source::V4(index as u32 % 500), 1_000, 10);
        // One of each source before it is known.
        assert!((1_800..=2_700).contains(&looked), "{looked} guesses in 10 s");
        let now = Nanos(10 * SECOND);
        assert_eq!(sources.ask(Source::V4(10_000), Turn::None, now), (None, Turn::Has));
    }

    #[test]
    fn right_password_from_where_guesses_come_is_looked_at_within_its_turn() {
        let mut sources = Sources::default();
        guesses(&mut sources, |_| Source::V4(1), 20, 5);
        let (mut turn, mut now, mut asked) = (Turn::None, Nanos(5 * SECOND), 0);
        loop {
            let (until, next) = sources.ask(Source::V4(1), turn, now);
            turn = next;
            let Some(at) = until else { break };
            (now, asked) = (at, asked + 1);
            assert!(asked < 100 && now < Nanos(9 * SECOND), "it waits for ever");
        }
    }

    #[test]
    fn those_who_leave_are_waited_for_by_nobody() {
        let mut sources = Sources::default();
        let (source, mut now) = (Source::User(Some(1)), Nanos(SECOND));
        (0..20).for_each(|_| sources.add(source, now));
        assert_eq!(sources.ask(source, Turn::None, now), (None, Turn::Has));
        for _ in 0..1_000 {
            let (until, turn) = sources.ask(source, Turn::None, now);
            assert!(until.is_some() && matches!(turn, Turn::Waits(_)));
            sources.leave(source);
        }
        now = now + Duration::from_millis(50);
        assert_eq!(sources.ask(source, Turn::None, now), (None, Turn::Has));
    }

    #[test]
    fn sources_are_bounded_and_forgotten_after_a_minute() {
        let mut sources = Sources::default();
        for n in 0..5_000 {
            sources.add(Source::V4(n), Nanos(u64::from(n)));
        }
        assert_eq!(sources.known.len(), SOURCES_MAX);
        let last = Source::V4(4_999);
        sources.add(last, Nanos(SECOND));
        assert_eq!(sources.failures(last, Nanos(2 * SECOND)), 2);
        assert_eq!(sources.failures(Source::V4(1), Nanos(2 * SECOND)), 0, "the oldest are forgotten");
        assert_eq!(sources.failures(last, Nanos(61 * SECOND)), 0);
        sources.add(last, Nanos(62 * SECOND));
        assert_eq!(sources.failures(last, Nanos(62 * SECOND)), 1);
    }

    #[test]
    fn addresses_of_one_owner_are_one_source() {
        let source = |text: &str| source_at(text.parse().expect("an address"));
        assert_eq!(source("::ffff:10.0.0.7"), source("10.0.0.7"));
        assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    }
}
