//! What `redis.call` does: data commands in the access of the script, and the few others that scripts use.
//!
//! A message is counted when it is published and sent when the script's effects are committed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use commands::call::{Attached, Attachments, DataFn, Failure};
use commands::command::{Flags, Kind};
use commands::copies::Copies;
use commands::lookup::Entry;
use commands::payload;
use commands::ready::Ready;
use resp::{ArgsView, Writer};
use script::{Ended, Host, Pace};
use store::{KeyRef, Stop};

use super::attempt::Attempt;
use crate::acl::AclContext;
use crate::handlers::connection::selected;
use crate::handlers::pubsub::admit_channel;
use crate::outcome::Executed;
use crate::permit;
use crate::pubsub::SLICE_STEPS;
use crate::run::{Answered, Halt, Need, Step, Within, collect_keys};
use crate::server::Server;
use crate::subscriptions::{Names, Publishing};
use crate::table::{self, row::Handler};

/// What the commands of an attempt share.
pub(super) struct Calls<'a, 'r, 's> {
    attempt: &'a Attempt<'a>,
    pace: Pace,
    within: &'a mut Within<'r, 's>,
    number: usize,
    /// The database: SELECT holds until the script ends.
    db: u16,
    /// The keys that may be touched, by database, where they are claimed.
    claimed: Option<HashMap<u16, HashSet<Box<[u8]>>>>,
    /// Reads from disk while all keys are locked.
    reads: u32,
    effect_bytes_max: u64,
    /// Of messages that wait for the end.
    published_bytes: u64,
    copies: Copies,
    executed: Executed,
    halt: Option<Halt<Vec<u8>>>,
}

impl<'a, 'r, 's> Calls<'a, 'r, 's> {
    pub(super) fn new(
        attempt: &'a Attempt<'a>,
        pace: Pace,
        within: &'a mut Within<'r, 's>,
        number: usize,
    ) -> Self {
        let claimed = within.access.is_claimed().then(|| {
            within.access.forget_order();
            let mut claimed: HashMap<u16, HashSet<Box<[u8]>>> = HashMap::new();
            for key in attempt.claimed {
                claimed.entry(key.db).or_default().insert(key.key.into());
            }
            claimed
        });
        within.access.count_effects();
        within.access.keep_values();
        let effect_bytes_max = effect_bytes_max(attempt.server);
        let (db, copies, executed) = (attempt.state.db, Copies::closed(), Executed::default());
        Self {
            attempt,
            pace,
            within,
            number,
            db,
            claimed,
            reads: 0,
            effect_bytes_max,
            published_bytes: 0,
            copies,
            executed,
            halt: None,
        }
    }

    /// What the commands came to.
    pub(super) fn executed(&mut self) -> Executed {
        std::mem::take(&mut self.executed)
    }

    /// The script has ended: what follows it in the same access goes on.
    pub(super) fn end(&mut self) {
        self.within.access.end_when(None);
    }

    /// Why the attempt is over.
    pub(super) fn into_halt(self) -> Halt<Vec<u8>> {
        self.halt.expect("who ends a run says why")
    }

    fn halt(&mut self, halt: Halt<Vec<u8>>) -> Ended {
        self.halt = Some(halt);
        Ended
    }

    /// The row of the command, or why a script may not run it.
    fn admit(&self, args: ArgsView<'_>) -> Result<&'static Entry, Failure> {
        let table = table::commands();
        let unknown = || Failure::from("ERR Unknown Redis command called from script");
        let mut entry = table.find(args.get(0)).ok_or_else(unknown)?;
        if let (Kind::Container, Some(name)) = (entry.command.kind, args.try_get(1)) {
            entry = table.find_sub(entry, name).ok_or_else(unknown)?;
        }
        let command = entry.command;
        if !command.takes(args.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if command.flags.has(Flags::NOSCRIPT) {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        let may_change = command.flags.has(Flags::WRITE) || LIKE_WRITES.contains(&command.name);
        if self.attempt.invocation.no_writes && may_change {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        let (server, permissions) = (self.attempt.server, &self.attempt.retained.permissions);
        permit::check(server, permissions, entry, args, Some(self.db), AclContext::Script)?;
        Ok(entry)
    }

    fn refuse(&self, failure: Failure, resp3: bool, out: &mut Vec<u8>) {
        self.attempt.server.stats.write_failure(failure, resp3, out);
    }

    fn data(
        &mut self,
        entry: &'static Entry,
        handler: DataFn,
        args: ArgsView<'_>,
        resp3: bool,
        room_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        if self.attempt.running.is_none() && self.attempt.server.long.is_long(self.db, entry, args) {
            return Err(self.halt(Halt::long(self.number)));
        }
        let mut keys = Vec::new();
        collect_keys(entry, self.db, args, &mut keys);
        self.reach(&keys)?;
        let (db, ready) = (self.db, Ready::default());
        let mut step = Step { entry: Some(entry), handler, args, db, resp3, ready, in_parts: true };
        let start = out.len();
        // only there it may be executed again within this attempt
        if self.attempt.running.is_some() {
            self.within.access.save();
        }
        let answered = loop {
            out.truncate(start);
            let stepped = self.within.step_with(self.copies.of(self.number), self.number, step, out);
            match stepped {
                // so large that it would be sent in parts: of those it is known how large they are
                Ok(Answered { chunked: Some(chunked), .. }) if chunked.bytes_about() > room_bytes as u64 => {
                    return Err(self.refuse_reply(room_bytes));
                }
                Ok(Answered { chunked: Some(_), .. }) => step.in_parts = false,
                Ok(answered) => break answered,
                Err((_, Failure::Stop(Stop::Cold))) if self.reads_here() => {
                    self.within.access.undo();
                    self.read(&keys)?;
                }
                // those of others that the values name
                Err((_, Failure::Keys(more))) if self.claimed.is_some() => {
                    let more: Vec<KeyRef<'_>> =
                        more.iter().map(|(db, key)| KeyRef { db: *db, key }).collect();
                    self.within.access.undo();
                    self.reach(&more)?;
                }
                Err((number, failure)) => {
                    if matches!(failure, Failure::Stop(Stop::Abandoned)) {
                        self.unless_over()?;
                    }
                    if matches!(failure, Failure::Stop(Stop::Cold)) && self.is_to_read_beside() {
                        return Err(self.halt(Halt::long(self.number)));
                    }
                    return Err(self.halt(Halt::At(number, failure)));
                }
            }
        };
        if self.claimed.is_some() {
            // others get at the stripes while the script computes
            self.within.access.turn_to(&[]);
        }
        self.within.access.forget_read();
        self.executed.lookups += answered.lookups;
        self.executed.calls.push((entry.id, answered.failed));
        if out.len() + answered.attached.bytes() > room_bytes.max(REPLY_BYTES_MIN) {
            return Err(self.refuse_reply(room_bytes));
        }
        take_in(answered.attached, out);
        self.check_effects()
    }

    /// Refuses a reply that memory has no room_bytes for.
    fn refuse_reply(&mut self, room_bytes: usize) -> Ended {
        let most = self.attempt.server.tuned.script_memory_bytes_max.load(Ordering::Relaxed);
        let text = format!(
            "ERR the reply to a command of the script needs more memory than script.memory_limit ({most} B) leaves \
             ({room_bytes} B); nothing of the script has happened"
        );
        self.halt(Halt::GivenUp(text.into_bytes()))
    }

    /// Stops the script if it has made more effects than fit into one group.
    fn check_effects(&mut self) -> Result<(), Ended> {
        let (bytes, most) = (self.within.access.effect_bytes(), self.effect_bytes_max);
        if bytes <= most {
            return Ok(());
        }
        let text = format!(
            "ERR the script changes more ({bytes} B) than transaction.max and half of memory.limit allow ({most} B); \
             nothing of it has happened: let several scripts do it"
        );
        Err(self.halt(Halt::GivenUp(text.into_bytes())))
    }

    /// Whether a record is read where it is missed: on a thread that may wait. While all keys are locked that is done for a moment only;
    /// what was read is there for the next attempt.
    fn reads_here(&self) -> bool {
        self.attempt.running.is_some() && (self.claimed.is_some() || self.reads < READS_LOCKED_MAX)
    }

    /// Whether the script has begun anew on its loop for records so often that it should go where they are read.
    fn is_to_read_beside(&self) -> bool {
        self.attempt.running.is_none() && self.attempt.retained.fetches >= LOOP_FETCHES_MAX
    }

    /// Ends a script that was killed, or has run for as long as it may.
    fn unless_over(&mut self) -> Result<(), Ended> {
        match self.pace.over() {
            Some(over) => Err(self.halt(Halt::GivenUp(self.attempt.stopped(over)))),
            None => Ok(()),
        }
    }

    /// Reads what the command has missed, and turns to its keys again.
    fn read(&mut self, keys: &[KeyRef<'_>]) -> Result<(), Ended> {
        self.unless_over()?;
        self.reads += 1;
        self.attempt.server.stats.fetches.fetch_add(1, Ordering::Relaxed);
        self.within.access.read_missed(keys);
        if self.claimed.is_some() {
            self.within.access.turn_to(keys);
        }
        Ok(())
    }

    /// Has all of `keys` locked, or ends the attempt.
    fn reach(&mut self, keys: &[KeyRef<'_>]) -> Result<(), Ended> {
        let access = &mut *self.within.access;
        let mut missing: Vec<(u16, Box<[u8]>)> = Vec::new();
        for key in keys {
            let is_there = match &mut self.claimed {
                None => access.include(*key),
                Some(claimed) => {
                    let of_db = claimed.entry(key.db).or_default();
                    of_db.contains(key.key) || (access.claim_more(*key) && of_db.insert(key.key.into()))
                }
            };
            if !is_there {
                missing.push((key.db, key.key.into()));
            }
        }
        if !missing.is_empty() {
            return Err(self.halt(Halt::Needs(Need::Keys(missing))));
        }
        if self.claimed.is_some() && keys.len() <= TURN_KEYS_MAX {
            self.within.access.turn_to(keys);
        }
        Ok(())
    }

    /// A command over all keys: they have to be locked.
    fn everything(
        &mut self,
        entry: &'static Entry,
        handler: DataFn,
        args: ArgsView<'_>,
        resp3: bool,
        room_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        if !self.attempt.retained.everything {
            return Err(self.halt(Halt::Needs(Need::Everything)));
        }
        self.data(entry, handler, args, resp3, room_bytes, out)
    }

    fn control(
        &mut self,
        entry: &'static Entry,
        args: ArgsView<'_>,
        resp3: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        let server = self.attempt.server;
        let mut writer = Writer::new(out, resp3);
        match entry.command.name {
            "publish" => return self.publish(args, Names::Channels, resp3, out),
            "spublish" => return self.publish(args, Names::Shards, resp3, out),
            "ping" => match args.try_get(1) {
                Some(message) => writer.bulk(message),
                None => writer.simple("PONG"),
            },
            "echo" => writer.bulk(args.get(1)),
            "time" => {
                let time_us = self.attempt.retained.time_us;
                writer.array(2);
                writer.bulk(itoa::Buffer::new().format(time_us / 1_000_000).as_bytes());
                writer.bulk(itoa::Buffer::new().format(time_us % 1_000_000).as_bytes());
            }
            "select" => match selected(server, args.get(1)) {
                Ok(db) => {
                    self.db = db;
                    writer.ok();
                }
                Err(failure) => self.refuse(failure, resp3, out),
            },
            _ => {
                let failure = "ERR This Redis command is not allowed from script".into();
                self.refuse(failure, resp3, out);
            }
        }
        self.executed.calls.push((entry.id, false));
        Ok(())
    }

    fn publish(
        &mut self,
        args: ArgsView<'_>,
        to: Names,
        resp3: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        let server = self.attempt.server;
        let (channel, payload) = (args.get(1), args.get(2));
        if let Err(failure) = admit_channel(channel) {
            self.refuse(failure, resp3, out);
            return Ok(());
        }
        if let Some(later) = server.pubsub.publish_at(server.clock.now()) {
            return Err(self.halt(Halt::Needs(Need::Later(later))));
        }
        let mut publishing = Publishing::new(channel, payload);
        let mut steps_left = if self.attempt.running.is_some() { u64::MAX } else { SLICE_STEPS };
        if to == Names::Channels
            && !server.pubsub.walk_patterns(channel, &mut publishing.walk, &mut steps_left)
        {
            return Err(self.halt(Halt::long(self.number)));
        }
        let audience = publishing.walk.audience + server.pubsub.listeners(to, channel);
        if audience > 0 {
            self.published_bytes += (channel.len() + payload.len() + MESSAGE_BYTES) as u64;
            if self.published_bytes > self.effect_bytes_max {
                let text = format!(
                    "ERR the script publishes more than transaction.max and half of memory.limit allow ({} B); nothing of \
                     it has happened",
                    self.effect_bytes_max
                );
                return Err(self.halt(Halt::GivenUp(text.into_bytes())));
            }
            self.executed.outbox.push(publishing.take(Some(to)));
        }
        Writer::new(out, resp3).integer(audience as i64);
        Ok(())
    }
}

impl Host for Calls<'_, '_, '_> {
    fn call(
        &mut self,
        args: ArgsView<'_>,
        resp3: bool,
        room_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        let entry = match self.admit(args) {
            Ok(entry) => entry,
            Err(failure) => {
                self.refuse(failure, resp3, out);
                return Ok(());
            }
        };
        self.attempt.server.monitors.note(self.db, entry, args, &mut self.executed.monitored);
        match table::handler(entry) {
            Handler::Data(run) | Handler::Across(run, _) | Handler::Reaching(run) => {
                self.data(entry, run, args, resp3, room_bytes, out)
            }
            Handler::Everything(run) | Handler::Walk(run) => {
                self.everything(entry, run, args, resp3, room_bytes, out)
            }
            Handler::Control(_)
            | Handler::Script(_)
            | Handler::Stage
            | Handler::Exec
            | Handler::Container(_) => self.control(entry, args, resp3, out),
        }
    }

    fn may(&self, args: ArgsView<'_>) -> Option<bool> {
        let table = table::commands();
        let mut entry = table.find(args.get(0))?;
        if let (Kind::Container, Some(name)) = (entry.command.kind, args.try_get(1)) {
            entry = table.find_sub(entry, name)?;
        }
        let user = &self.attempt.retained.permissions.user;
        Some(user.as_ref().is_none_or(|user| user.check(entry, args, Some(self.db)).is_ok()))
    }
}

/// Puts the large values of a reply, which others would send, where they belong.
fn take_in(attached: Attachments, reply: &mut Vec<u8>) {
    let mut grown = 0;
    for Attached { at, bytes, part, unsealed } in attached {
        let (at, value) = (at + grown, &(*bytes).as_ref()[part]);
        if unsealed {
            payload::seal(value, &mut reply[at..]);
        }
        reply.splice(at..at, value.iter().copied());
        grown += value.len();
    }
}

/// The bytes of effects that a script may have: what one group of the journal has room_bytes for, and half of the memory.
fn effect_bytes_max(server: &Server) -> u64 {
    let group = server.tuned.transaction_bytes_max.load(Ordering::Relaxed);
    match server.store.memory_limit() {
        0 => group,
        limit => group.min(limit / 2),
    }
}

/// What a message takes beside its text.
const MESSAGE_BYTES: usize = 128;
/// A script on a loop that has begun anew so often for records goes on beside it.
const LOOP_FETCHES_MAX: u32 = 4;
/// Reads from disk of an attempt that has all keys locked: some milliseconds.
const READS_LOCKED_MAX: u32 = 64;
/// A reply that is taken whatever memory is left.
const REPLY_BYTES_MIN: usize = 64 << 10;
/// Commands that read-only scripts may not run either: others learn of them.
const LIKE_WRITES: [&str; 3] = ["publish", "spublish", "pfcount"];
/// A command of more keys turns to each of them by itself.
const TURN_KEYS_MAX: usize = 16;
