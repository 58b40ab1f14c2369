//! The entries of a stream behind a position: for exactly-once, whose epochs have the positions.
//!
//! Each of `n` tasks reads the whole stream and emits its share of the entries, which their ids say: so a task gets the same entries after each start.
//!
//! There is no consumer group, and nothing is acknowledged: what an epoch has passed is seen in `topology:NAME:epochs`. So a stream may be trimmed up to
//! the lowest position there.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, SystemClock};
use connection::{Event, Link, Loss, Options};
use resp::Value as Reply;
use topology::changes::StateKey;
use topology::component::{Backlog, Condition, Context, Fault, Next, Spout, SpoutOut};
use topology::epochs::kept;
use topology::past::Past;
use topology::random::Random;
use topology::tracker::Position;

use super::count::{self, Count};
use super::entries::{self, Entry, Wanted};
use super::gaps::{Gaps, Info};
use super::reading::{BLOCK_MS, of_stream};
use super::{ERROR_PAUSE, Settings};

/// The spout.
#[derive(Debug)]
pub(super) struct PositionSpout {
    count: Count,
    clock: Arc<dyn Clock>,
    gaps: Gaps,
    settings: Settings,
    wanted: Vec<Wanted>,
    /// Its share: entries of this place of so many.
    place: u64,
    tasks: u64,
    /// The last entry that was read; `None`: the stream's end is to be asked for.
    last: Option<u128>,
    link: Option<Link>,
    life: Option<u64>,
    is_asked: bool,
    waiting: VecDeque<Entry>,
    /// What tasks have emitted when there were others.
    past: Past,
    /// Entries were read since the start.
    has_read: bool,
    /// Of its entries that were read and are not behind the position that was kept last: how many the stream had up to there.
    counted: VecDeque<(u128, u64)>,
    kept: Kept,
    /// What went wrong while nobody asked for entries.
    fault: Option<Fault>,
}

/// Where the position is kept, and the number of entries up to there; 0 where that is not known.
#[derive(Debug, Default)]
struct Kept {
    key: String,
    position: String,
    count: String,
    /// The position that was kept last.
    last: Option<Position>,
}

impl PositionSpout {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            count: Count::new(settings.count),
            clock: Arc::new(SystemClock),
            gaps: Gaps::default(),
            settings,
            wanted: Vec::new(),
            place: 0,
            tasks: 1,
            last: Some(0),
            link: None,
            life: None,
            is_asked: false,
            waiting: VecDeque::new(),
            past: Past::default(),
            has_read: false,
            counted: VecDeque::new(),
            kept: Kept::default(),
            fault: None,
        }
    }

    fn on_events(&mut self) -> Result<(), Fault> {
        let mut result = Ok(());
        for event in self.link.as_ref().map(Link::take).unwrap_or_default() {
            match event {
                Event::Connected(life) => {
                    (self.life, self.is_asked) = (Some(life), false);
                    self.ask_for_count();
                }
                Event::Lost(loss) => {
                    (self.life, self.is_asked) = (None, false);
                    if matches!(loss, Loss::ReplyTooLong { .. }) {
                        self.count.on_too_large();
                    }
                    result = Err(Fault::new(loss.to_string()));
                }
                Event::Reply(KEPT, reply) => self.on_kept(&reply),
                Event::Reply(LOOK, reply) => result = self.on_look(&reply).and(result),
                Event::Reply(_, reply) => {
                    self.is_asked = false;
                    result = self.on_reply(reply).and(result);
                }
            }
        }
        result
    }

    /// Tells of entries that are not read. All tasks read all: the first one tells.
    fn on_look(&mut self, reply: &Reply) -> Result<(), Fault> {
        self.gaps.on_look(self.clock.now());
        if self.last == Some(0) && matches!(reply, Reply::Error(_)) {
            self.gaps.go_on(0); // there is no stream yet
        }
        let (Some(last), Some(info)) = (self.last, Info::read(reply)) else { return Ok(()) };
        let told = self.gaps.on_info(&self.settings.key, last, &info).filter(|_| self.place == 0);
        let Some(told) = told else { return Ok(()) };
        if !told.is_certain {
            tracing::info!(told.text, "entries may not have been read");
            return Ok(());
        }
        self.gaps.on_notice(&told);
        tracing::warn!(told.text, "entries are not read");
        Err(Fault::new(told.text))
    }

    fn on_reply(&mut self, reply: Reply) -> Result<(), Fault> {
        let of_key =
            |error: &str| Fault::new(format!("the server refused to read `{}`: {error}", self.settings.key));
        if let Reply::Error(text) = &reply {
            if let Some(last) = self.last.filter(|_| count::is_too_large(text)) {
                if self.count.on_too_large() {
                    return Ok(());
                }
                let error = count::alone(&self.settings.key, &entries::shown(last), text);
                return Err(Fault::new(error).after(ERROR_PAUSE));
            }
            return Err(of_key(&String::from_utf8_lossy(text)).after(ERROR_PAUSE));
        }
        if self.last.is_none() {
            self.last = Some(last_id(&reply).map_err(|error| of_key(&error).after(ERROR_PAUSE))?);
            return Ok(());
        }
        self.count.on_taken();
        let entries = of_stream(reply).map_err(|error| of_key(&error).after(ERROR_PAUSE))?.entries;
        let passed = self.gaps.passed();
        self.has_read |= !entries.is_empty();
        self.gaps.on_read(entries.len());
        for (number, (id, fields)) in (1..).zip(entries) {
            self.last = Some(id);
            if self.is_own(id) {
                // All tasks read all: the first one counts.
                self.counted.extend(passed.filter(|_| self.place == 0).map(|passed| (id, passed + number)));
                self.waiting.push_back(Entry::new(id, &fields, &self.wanted));
            }
        }
        Ok(())
    }

    /// Asks how many entries there were up to the position that the spout begins with.
    fn ask_for_count(&mut self) {
        let is_asked = self.place > 0 || self.past.after.is_none() || self.has_read;
        let (Some(link), Some(life), false) = (&self.link, self.life, is_asked) else { return };
        link.send(life, KEPT, |out| {
            resp::encode_command(out, &["HMGET", &self.kept.key, &self.kept.position, &self.kept.count]);
        });
    }

    fn on_kept(&mut self, reply: &Reply) {
        let Reply::Array(values) = reply else { return };
        let number = |value: &Reply| match value {
            Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse::<u128>().ok(),
            _ => None,
        };
        let (position, count) = (values.first().and_then(number), values.get(1).and_then(number));
        if let Some(count) = count.filter(|count| *count > 0 && !self.has_read && position == self.last) {
            self.gaps.go_on(count as u64);
            self.gaps.look_again();
        }
    }

    /// Whether an entry is of this task's share, and was not emitted when others had it.
    fn is_own(&self, id: u128) -> bool {
        let place = |tasks: u64| Random::new((id >> 64) as u64 ^ (id as u64).rotate_left(32)).bits() % tasks;
        place(self.tasks) == self.place && !self.past.is_done(Position(id), place)
    }

    fn ask(&mut self) {
        let (Some(link), Some(life)) = (&self.link, self.life) else { return };
        if self.is_asked || !self.waiting.is_empty() {
            return;
        }
        let (Settings { key, .. }, count) = (&self.settings, &self.count);
        if self.last.is_some() && self.gaps.is_due(self.clock.now()) {
            link.send(life, LOOK, |out| resp::encode_command(out, &["XINFO", "STREAM", key]));
        }
        self.is_asked = link.send(life, READ, |out| match self.last {
            None => resp::encode_command(out, &["XREVRANGE", key, "+", "-", "COUNT", "1"]),
            Some(last) => {
                let (count, last) = (count.text(), entries::shown(last));
                resp::encode_command(
                    out,
                    &["XREAD", "COUNT", &count, "BLOCK", BLOCK_MS, "STREAMS", key, &last],
                );
            }
        });
    }
}

impl Spout for PositionSpout {
    fn open(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.wanted = self.settings.wanted(context);
        (self.place, self.tasks) = (u64::from(context.place()), u64::from(context.tasks()));
        let (topology, place, tasks) = (&context.plan().topology().name, context.place(), context.tasks());
        self.kept = Kept {
            key: kept::key(topology),
            position: kept::position_field(context.id(), place, tasks),
            count: kept::count_field(context.id(), place, tasks),
            last: None,
        };
        let (waker, options) = (context.waker(), Options::named(&format!("reader of {}", context.id())));
        self.clock = context.clock_or(&self.clock);
        let clock = Arc::clone(&self.clock);
        self.link = Some(Link::start_at(&self.settings.target, options, clock, move || waker.wake())?);
        Ok(())
    }

    fn seek(&mut self, after: Option<Position>) -> Result<(), Fault> {
        self.seek_past(&Past::after(after))
    }

    fn seek_past(&mut self, past: &Past) -> Result<(), Fault> {
        // That of the end is none: it is asked for, unless tasks have read the stream before.
        let first = entries::number(self.settings.from.as_bytes()).or_else(|| past.lowest().map(|it| it.0));
        self.last = past.begin().map_or(first, |position| Some(position.0));
        self.past = past.clone();
        // it may have been connected before, and have looked for nothing
        self.ask_for_count();
        self.gaps.look_again();
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        self.on_events().and(self.fault.take().map_or(Ok(()), Err))?;
        entries::emit(&mut self.waiting, &self.settings.key, out)?;
        self.ask();
        Ok(if self.waiting.is_empty() { Next::Woken } else { Next::Now })
    }

    fn kept_with(&mut self, position: Position) -> Option<(StateKey, Bytes)> {
        if self.place > 0 || self.kept.last.replace(position) == Some(position) {
            return None;
        }
        let mut count = 0;
        while let Some((id, number)) = self.counted.pop_front_if(|(id, _)| *id <= position.0) {
            count = if id == position.0 { number } else { 0 };
        }
        let key = StateKey::of_field(self.kept.key.clone(), self.kept.count.clone());
        Some((key, count.to_string().into()))
    }

    fn activate(&mut self) {
        self.gaps.look_again();
    }

    fn condition(&self) -> Condition<'_> {
        self.gaps.condition()
    }

    fn backlog(&mut self) -> Backlog {
        if let Err(fault) = self.on_events() {
            self.fault = Some(fault);
        }
        entries::backlog(self.life, &self.waiting)
    }

    fn close(&mut self) {
        self.link = None;
    }
}

/// Tokens of requests.
const READ: u64 = 0;
const LOOK: u64 = 1;
const KEPT: u64 = 2;

/// The id of the entry in a reply to XREVRANGE; 0 if there is none.
fn last_id(reply: &Reply) -> Result<u128, String> {
    let Reply::Array(entries) = reply else { return Err(format!("it answered {reply:?}")) };
    let Some(entry) = entries.first() else { return Ok(0) };
    match entry {
        Reply::Array(parts) => match parts.first() {
            Some(Reply::Bulk(id)) => entries::number(id).ok_or_else(|| format!("it answered {reply:?}")),
            _ => Err(format!("it answered {reply:?}")),
        },
        _ => Err(format!("it answered {reply:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spout(place: u64, tasks: u64) -> PositionSpout {
        let settings = Settings {
            target: connection::Target::local(1),
            key: "orders".to_owned(),
            group: None,
            from: "0".to_owned(),
            fields: None,
            count: 10,
            claim_after: std::time::Duration::ZERO,
            letters: None,
        };
        PositionSpout { place, tasks, ..PositionSpout::new(settings) }
    }

    #[test]
    fn each_entry_is_of_one_task_and_tasks_have_about_as_many() {
        let tasks: Vec<PositionSpout> = (0..4).map(|place| spout(place, 4)).collect();
        let mut counts = [0; 4];
        for id in (0..1_000).map(|n| (1_700_000_000_000 + n / 10) << 64 | (n % 10)) {
            let owners: Vec<usize> = (0..4).filter(|place| tasks[*place].is_own(id)).collect();
            assert_eq!(owners.len(), 1, "{id}");
            counts[owners[0]] += 1;
        }
        assert!(counts.iter().all(|count| *count > 200), "{counts:?}");
    }

    #[test]
    fn entries_that_other_tasks_have_emitted_are_not_emitted_again() {
        let ids = || (0..400_u128).map(|n| (1_700_000_000_000 + n) << 64);
        let mut emitted: Vec<u128> = Vec::new();
        let mut former = vec![None; 2];
        for (place, count) in [(0, 300), (1, 150)] {
            let of_two = spout(place, 2);
            let own = ids().take(count).filter(|id| of_two.is_own(*id)).collect::<Vec<_>>();
            former[place as usize] = own.last().map(|id| Position(*id));
            emitted.extend(own);
        }
        let past = Past { after: None, former: vec![topology::past::Former(former)] };
        for place in 0..3 {
            let mut of_three = spout(place, 3);
            of_three.seek_past(&past).expect("it can");
            let begin = of_three.last.expect("both had a position");
            emitted.extend(ids().filter(|id| *id > begin && of_three.is_own(*id)));
        }
        emitted.sort_unstable();
        assert_eq!(emitted, ids().collect::<Vec<_>>());
    }

    /// It was said that there might be some: nobody knew how many there were up to the position.
    #[test]
    fn number_of_entries_is_kept_with_the_position_and_taken_up_with_it_alone() {
        let mut first = spout(0, 1);
        first.gaps.go_on(7);
        let reply = b"*1\r\n*2\r\n$6\r\norders\r\n*2\r\n*2\r\n$3\r\n0-7\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\n0-9\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n";
        let (reply, _) = resp::decode_value(reply).expect("a reply").expect("all of it");
        first.on_reply(reply).expect("entries");
        let mut kept = |position| first.kept_with(Position(position)).map(|(_, count)| count);
        assert_eq!([kept(7), kept(7), kept(9)], [Some("8".into()), None, Some("9".into())]);
        assert_eq!(kept(12), Some("0".into()), "it is not known");
        let taken_up = |values: [&str; 2]| {
            let mut spout = spout(0, 1);
            spout.seek(Some(Position(9))).expect("it can");
            spout.on_kept(&Reply::Array(values.map(|value| Reply::Bulk(value.into())).into()));
            spout.gaps.passed()
        };
        assert_eq!([["9", "9"], ["12", "9"], ["9", "0"]].map(taken_up), [Some(9), None, None]);
    }

    #[test]
    fn it_goes_on_behind_the_last_entry_that_was_read_and_a_refusal_is_told() {
        let mut spout = spout(0, 1);
        spout.seek(Some(Position(5))).expect("it can");
        assert_eq!(spout.last, Some(5));
        let reply = b"*1\r\n*2\r\n$6\r\norders\r\n*1\r\n*2\r\n$3\r\n0-7\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n";
        let (reply, _) = resp::decode_value(reply).expect("a reply").expect("all of it");
        spout.on_reply(reply).expect("entries");
        assert_eq!((spout.last, spout.waiting.len()), (Some(7), 1));
        let refused = spout.on_reply(Reply::Error(b"WRONGTYPE no stream".to_vec())).expect_err("refused");
        assert!(refused.error().contains("`orders`: WRONGTYPE"), "{}", refused.error());
    }

    #[test]
    fn the_end_of_a_stream_is_its_last_entry() {
        let mut spout = spout(0, 1);
        spout.settings.from = "$".to_owned();
        spout.seek(None).expect("it can");
        let reply = b"*1\r\n*2\r\n$3\r\n3-1\r\n*0\r\n";
        let (reply, _) = resp::decode_value(reply).expect("a reply").expect("all of it");
        spout.on_reply(reply).expect("an entry");
        assert_eq!(spout.last, entries::number(b"3-1"));
        assert_eq!(last_id(&Reply::Array(Vec::new())), Ok(0), "it is empty");
    }
}
