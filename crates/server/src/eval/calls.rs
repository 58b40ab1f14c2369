//! What `redis.call` does: data commands in the access of the script, and the few others that scripts use.
//!
//! A message is counted when it is published and sent when the script's effects are committed.

use std::collections::HashSet;

use resp::{ArgsView, Writer};
use store::KeyRef;

use super::attempt::Attempt;
use crate::call::{Attached, Attachments, DataFn, Failure};
use crate::command::{Flags, Kind};
use crate::copies::Copies;
use crate::handlers::connection::selected;
use crate::handlers::pubsub::admit_channel;
use crate::lookup::Entry;
use crate::outcome::{Answer, Pause};
use crate::payload;
use crate::pubsub::SLICE_STEPS;
use crate::ready::Ready;
use crate::run::{Step, Within, collect_keys};
use crate::script::{Ended, Host};
use crate::subscriptions::Publishing;
use crate::table::{self, row::Handler};
use crate::topologies::guard;

/// What the commands of an attempt share.
pub(super) struct Calls<'a, 'r, 's> {
    attempt: &'a Attempt<'a>,
    within: &'a mut Within<'r, 's>,
    number: usize,
    /// The database: SELECT holds until the script ends.
    db: u16,
    /// The keys that may be touched, where they are claimed.
    claimed: Option<HashSet<(u16, &'a [u8])>>,
    copies: Copies,
    answer: Answer,
    pause: Option<Pause>,
}

impl<'a, 'r, 's> Calls<'a, 'r, 's> {
    pub(super) fn new(attempt: &'a Attempt<'a>, within: &'a mut Within<'r, 's>, number: usize) -> Self {
        let claimed = within.access.is_claimed().then(|| {
            within.access.forget_order();
            attempt.claimed.iter().map(|key| (key.db, key.key)).collect()
        });
        let (db, copies, answer) = (attempt.course.db, Copies::closed(), Answer::default());
        Self { attempt, within, number, db, claimed, copies, answer, pause: None }
    }

    /// What the commands came to.
    pub(super) fn answer(&mut self) -> Answer {
        std::mem::take(&mut self.answer)
    }

    /// Why the attempt is over.
    pub(super) fn into_pause(self) -> Pause {
        self.pause.unwrap_or(Pause::Long)
    }

    fn pause(&mut self, pause: Pause) -> Ended {
        self.pause = Some(pause);
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
        if self.attempt.invocation.no_writes && command.flags.has(Flags::WRITE) {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        if let Some(rights) = &self.attempt.retained.rights {
            rights.check(command, args)?;
        }
        guard::check(self.attempt.server, self.attempt.retained.topology.as_deref(), command, args)?;
        Ok(entry)
    }

    fn refuse(&self, failure: Failure, resp3: bool, out: &mut Vec<u8>) {
        self.attempt.server.stats.write_failure(failure, resp3, out);
    }

    fn data(
        &mut self,
        (entry, handler): (&'static Entry, DataFn),
        (args, resp3): (ArgsView<'_>, bool),
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        let mut keys = Vec::new();
        collect_keys(entry, self.db, args, &mut keys);
        self.reach(&keys)?;
        let step = Step { handler, args, db: self.db, resp3, ready: Ready::default(), in_parts: false };
        let stepped = self.within.step_with(self.copies.of(self.number), (self.number, step), out);
        if self.claimed.is_some() {
            // others get at the stripes while the script computes
            self.within.access.turn_to(&[]);
        }
        match stepped {
            Ok(answered) => {
                let (hits, misses) = self.answer.lookups;
                self.answer.lookups = (hits + answered.lookups.0, misses + answered.lookups.1);
                self.answer.calls.push((entry.id, answered.failed));
                take_in(answered.attached, out);
                Ok(())
            }
            Err((number, failure)) => Err(self.pause(Pause::of(number, failure))),
        }
    }

    /// Has all of `keys` locked, or ends the attempt.
    fn reach(&mut self, keys: &[KeyRef<'_>]) -> Result<(), Ended> {
        let missing: Vec<(u16, Box<[u8]>)> = match &self.claimed {
            Some(claimed) => {
                let is_missing = |key: &&KeyRef<'_>| !claimed.contains(&(key.db, key.key));
                keys.iter().filter(is_missing).map(|key| (key.db, key.key.into())).collect()
            }
            None => {
                let access = &mut *self.within.access;
                let missing = keys.iter().filter(|key| !access.include(**key));
                missing.map(|key| (key.db, key.key.into())).collect()
            }
        };
        if !missing.is_empty() {
            return Err(self.pause(Pause::Keys(missing)));
        }
        if self.claimed.is_some() && keys.len() <= TURN_KEYS_MAX {
            self.within.access.turn_to(keys);
        }
        Ok(())
    }

    /// A command over all keys: they have to be locked.
    fn everything(
        &mut self,
        (entry, handler): (&'static Entry, DataFn),
        (args, resp3): (ArgsView<'_>, bool),
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        if !self.attempt.retained.everything {
            return Err(self.pause(Pause::Everything));
        }
        self.data((entry, handler), (args, resp3), out)
    }

    fn control(
        &mut self,
        entry: &'static Entry,
        (args, resp3): (ArgsView<'_>, bool),
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        let server = self.attempt.server;
        let mut writer = Writer::new(out, resp3);
        match entry.command.name {
            "publish" => return self.publish((args, resp3), out),
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
        self.answer.calls.push((entry.id, false));
        Ok(())
    }

    fn publish(&mut self, (args, resp3): (ArgsView<'_>, bool), out: &mut Vec<u8>) -> Result<(), Ended> {
        let server = self.attempt.server;
        let (channel, payload) = (args.get(1), args.get(2));
        if let Err(failure) = admit_channel(channel) {
            self.refuse(failure, resp3, out);
            return Ok(());
        }
        if let Some(later) = server.pubsub.publish_at(server.clock.now()) {
            return Err(self.pause(Pause::Until(later)));
        }
        let mut publishing = Publishing::new(channel, payload);
        let mut steps_left = if self.attempt.running.is_some() { u64::MAX } else { SLICE_STEPS };
        if !server.pubsub.walk_patterns(channel, &mut publishing.walk, &mut steps_left) {
            return Err(self.pause(Pause::Long));
        }
        let audience = publishing.walk.audience + server.pubsub.listeners(channel);
        if audience > 0 {
            self.answer.outbox.push(publishing.take(true));
        }
        Writer::new(out, resp3).integer(audience as i64);
        Ok(())
    }
}

impl Host for Calls<'_, '_, '_> {
    fn call(&mut self, args: ArgsView<'_>, resp3: bool, out: &mut Vec<u8>) -> Result<(), Ended> {
        let entry = match self.admit(args) {
            Ok(entry) => entry,
            Err(failure) => {
                self.refuse(failure, resp3, out);
                return Ok(());
            }
        };
        self.attempt.server.monitors.note(self.db, entry, args, &mut self.answer.monitored);
        match table::handler(entry) {
            Handler::Data(run) | Handler::Across(run, _) | Handler::Reaching(run) => {
                self.data((entry, run), (args, resp3), out)
            }
            Handler::Everything(run) | Handler::Walk(run) => {
                self.everything((entry, run), (args, resp3), out)
            }
            Handler::Control(_)
            | Handler::Script(_)
            | Handler::Stage
            | Handler::Exec
            | Handler::Container(_) => self.control(entry, (args, resp3), out),
        }
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

/// A command of more keys turns to each of them by itself.
const TURN_KEYS_MAX: usize = 16;
