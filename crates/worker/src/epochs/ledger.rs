//! What a server keeps of a topology's epochs, and the requests that change it; no I/O.
//!
//! ```text
//!  topology:NAME:epochs         hash: generation, epoch, position:SPOUT:PLACE/TASKS ..., count:SPOUT:0/TASKS (of spouts that count) ...
//!  topology:NAME:dead-letters   stream of tuples that were given up, and of commands that the server refused
//!
//!  UNWATCH, WATCH epochs, HGETALL epochs                                        taking over
//!  MULTI, changes ..., HSET epochs ..., EXEC, WATCH epochs, HGET epochs generation   one step
//! ```
//!
//! Invariants
//!   1. A step is one transaction: all of it is there or nothing, and the reply to EXEC says that it is durable.
//!   2. A step whose hash somebody has changed since the step before is refused by EXEC: so of two that write epochs one is stopped.
//!   3. A tuple of which a command is refused is a dead letter, and the rest of its epoch is there: refused by EXEC, it is written down after the step; refused when it
//!      is queued, no command of the step was done, and the step is asked for again with the letter in the command's place. A command that comes from no tuple alone,
//!      such as a change of state, is the letter itself.
//!
//! **Bound.** A step is as large as what its tuples changed; the server's limit is `transaction.max`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use resp::Value as Reply;
use topology::Plan;
use topology::anchor::Ancestor;
use topology::builder::{Origin, Program};
use topology::changes::{Cause, Command, StateKey};
use topology::epochs::Group;
use topology::epochs::kept::{self, POSITION};
use topology::ids::{ComponentId, TaskId};
use topology::parcel::Epoch;
use topology::past::Former;
use topology::plan::TASKS_MAX;
use topology::tracker::{DeadLetter, Original, Position};
use topology::value::Value;

/// What the server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The last generation that was begun.
    pub(crate) generation: u32,
    /// The last epoch.
    pub(crate) epoch: Epoch,
    /// What spout tasks have emitted last.
    pub(crate) positions: BTreeMap<TaskId, Position>,
    /// The same of spouts when they had other numbers of tasks, as far as that says anything.
    pub(crate) former: BTreeMap<ComponentId, Vec<Former>>,
    /// Fields that say nothing any more.
    pub(crate) outdated: Vec<Bytes>,
}

/// A request, and what its reply says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) asks: Asks,
    pub(crate) words: Command,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// For nothing but to be taken.
    Nothing,
    /// For the command of this place in a step to be queued.
    Queued(usize),
    /// For what is saved.
    Saved,
    /// For the end of a step.
    Step,
    /// Who has begun the last generation.
    Generation,
}

/// The step that ends an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    generation: u32,
    /// What tasks have changed: of these the refusal is told.
    commands: Vec<Command>,
    /// Which tuples they come from, in their order.
    causes: Vec<Cause>,
    /// Tuples that have a letter for a refused command.
    given_up: BTreeSet<Ancestor>,
    /// Dead letters.
    letters: Vec<Command>,
    /// Of the hash `epochs`.
    fields: Vec<Bytes>,
}

/// Commands that the store has refused, by their places, and why.
pub(crate) type Refused = BTreeMap<usize, String>;

/// What letters can have: the tuples that are known, and the most bytes of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) originals: &'a Originals,
    pub(crate) bytes_max: usize,
}

/// What is known of tuples of which commands were refused.
pub(crate) type Originals = BTreeMap<Ancestor, Original>;

/// The names of a topology's keys.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    epochs: Bytes,
    dead_letters: Bytes,
    /// The streams that its spouts read.
    origins: BTreeMap<ComponentId, Origin>,
}

impl Asks {
    const PLAIN: [Self; 4] = [Self::Nothing, Self::Saved, Self::Step, Self::Generation];

    /// What a request is marked with on its connection.
    pub(crate) fn token(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Saved => 1,
            Self::Step => 2,
            Self::Generation => 3,
            Self::Queued(place) => (Self::PLAIN.len() + place) as u64,
        }
    }

    pub(crate) fn of_token(token: u64) -> Self {
        let token = token as usize;
        Self::PLAIN.get(token).copied().unwrap_or_else(|| Self::Queued(token - Self::PLAIN.len()))
    }
}

impl Request {
    /// A request of which only an error would be heard, in the log.
    pub(crate) fn of_nothing(words: Command) -> Self {
        Self { asks: Asks::Nothing, words }
    }
}

impl Ending {
    /// Bytes of each command, and of each letter behind them.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        let size = |words: &Command| words.iter().map(|word| word.len() + WORD_BYTES).sum();
        self.commands.iter().chain(&self.letters).map(size)
    }

    /// The generation of its tasks.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Commands with a word of more than `most` bytes.
    pub(crate) fn places_with_words_beyond(&self, most: usize) -> Vec<usize> {
        let is_long = |command: &Command| command.iter().any(|word| word.len() > most);
        (0..).zip(&self.commands).filter(|(_, command)| is_long(command)).map(|(place, _)| place).collect()
    }

    /// The names of these commands, each once.
    pub(crate) fn names(&self, places: &Refused) -> String {
        let commands = places.keys().filter_map(|place| self.commands.get(*place));
        let names: BTreeSet<_> = commands.map(|command| String::from_utf8_lossy(&command[0])).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Whether a command has this place, and no letter.
    pub(crate) fn has_command(&self, place: usize) -> bool {
        place < self.commands.len()
    }

    /// The tuples of which these commands come, without those that were given up before.
    pub(crate) fn ancestors(&self, refused: &Refused) -> BTreeSet<Ancestor> {
        let all = refused.keys().flat_map(|place| self.causes_of(*place)).map(|cause| cause.ancestor);
        all.filter(|ancestor| !self.given_up.contains(ancestor)).collect()
    }

    fn causes_of(&self, place: usize) -> &[Cause] {
        let end = |last: usize| self.causes.partition_point(|cause| (cause.command as usize) < last);
        &self.causes[end(place)..end(place + 1)]
    }
}

impl Ledger {
    pub(crate) fn new(program: &Program) -> Self {
        let plan = program.plan();
        let name = &plan.topology().name;
        let of = |id| program.origin(id).map(|origin| (id, origin.clone()));
        let origins = plan.components().filter_map(|(id, _)| of(id)).collect();
        let (epochs, letters) = (kept::key(name), format!("topology:{name}:dead-letters"));
        Self { epochs: epochs.into(), dead_letters: letters.into(), origins }
    }

    /// Asks for what is saved. A step that follows is refused if somebody changes it.
    pub(crate) fn take_over(&self) -> Vec<Request> {
        vec![
            request(Asks::Nothing, &[b"UNWATCH"]),
            request(Asks::Nothing, &[b"WATCH", &self.epochs]),
            request(Asks::Saved, &[b"HGETALL", &self.epochs]),
        ]
    }

    /// The step that begins a generation, and removes fields that say nothing any more.
    pub(crate) fn begin(&self, generation: u32, outdated: &[Bytes]) -> Vec<Request> {
        let removals = outdated.chunks(WORDS_MAX).map(|fields| {
            let mut words = vec![Bytes::from_static(b"HDEL"), self.epochs.clone()];
            words.extend_from_slice(fields);
            words
        });
        self.requests(&Ending { generation, letters: removals.collect(), ..Ending::default() })
    }

    /// The step that ends an epoch.
    pub(crate) fn end(&self, plan: &Plan, group: &Group) -> Ending {
        let mut commands = value_commands(&group.values);
        let before = commands.len() as u32;
        let causes = group.causes.iter().map(|cause| Cause { command: before + cause.command, ..*cause });
        commands.extend(group.commands.iter().cloned());
        let letters = group.dead.iter().map(|(task, letter)| self.dead_letter(plan, *task, letter)).collect();
        let mut fields = vec![Bytes::from_static(EPOCH), Bytes::from(group.epoch.0.to_string())];
        for (task, position) in &group.positions {
            fields.extend([position_field(plan, *task).into(), Bytes::from(position.0.to_string())]);
        }
        let (generation, causes) = (group.generation, causes.collect());
        Ending { generation, commands, causes, given_up: BTreeSet::new(), letters, fields }
    }

    /// Letters for commands that the store has refused: of the tuples that they come from, each once, as far as these are known and not larger than
    /// `bytes_max`; or else of the commands.
    pub(crate) fn letters_of(
        &self,
        plan: &Plan,
        ending: &mut Ending,
        refused: &Refused,
        Known { originals, bytes_max }: Known<'_>,
    ) -> Vec<Command> {
        let mut letters = Vec::new();
        for (place, error) in refused {
            let Some(command) = ending.commands.get(*place).cloned() else { continue };
            let causes = ending.causes_of(*place).to_vec();
            let mut is_told = false;
            for Cause { component, ancestor, .. } in causes {
                if ending.given_up.contains(&ancestor) {
                    is_told = true;
                    continue;
                }
                let original = originals.get(&ancestor);
                let Some(original) = original.filter(|it| it.values.size_bytes() <= bytes_max / 2) else {
                    continue;
                };
                let (original, component) = (original.clone(), Some(component));
                let letter = DeadLetter { original, component, error: error.clone() };
                let mut words = self.dead_letter(plan, ancestor.root.spout, &letter);
                words.extend([Bytes::from_static(b"command"), shown_command(&command, bytes_max / 2).into()]);
                letters.push(words);
                is_told = ending.given_up.insert(ancestor);
            }
            if !is_told {
                letters.push(self.letter_of(&command, error, bytes_max));
            }
        }
        letters
    }

    /// Puts letters in the place of what the store did not queue.
    pub(crate) fn give_up(&self, plan: &Plan, ending: &mut Ending, refused: &Refused, known: Known<'_>) {
        let (count, mut place) = (ending.commands.len(), 0);
        // A letter that is refused is in the log alone.
        let mut letter = count;
        ending.letters.retain(|_| {
            letter += 1;
            !refused.contains_key(&(letter - 1))
        });
        let letters = self.letters_of(plan, ending, refused, known);
        ending.letters.extend(letters);
        let (mut gone, mut before) = (refused.keys().peekable(), 0);
        ending.causes.retain_mut(|cause| {
            let own = cause.command as usize;
            while gone.next_if(|place| **place < own).is_some() {
                before += 1;
            }
            cause.command -= before;
            gone.peek() != Some(&&own)
        });
        ending.commands.retain(|_| {
            place += 1;
            !refused.contains_key(&(place - 1))
        });
    }

    fn letter_of(&self, command: &Command, error: &str, bytes_max: usize) -> Command {
        let command = shown_command(command, bytes_max);
        let mut words = self.letter();
        words.extend(
            [&b"error"[..], error.as_bytes(), b"command", command.as_bytes()].map(Bytes::copy_from_slice),
        );
        words
    }

    /// What the reply to HGETALL says.
    ///
    /// # Errors
    /// It is no hash of this program.
    pub(crate) fn saved(&self, plan: &Plan, reply: &Reply) -> Result<Saved, String> {
        let key = String::from_utf8_lossy(&self.epochs);
        let fields = pairs(reply).ok_or_else(|| format!("the server has no hash at `{key}`: {reply:?}"))?;
        let wrong =
            |field: &str| format!("field `{field}` of `{key}` is no number: remove the key to begin anew");
        let (mut saved, mut former) = (Saved::default(), FormerBySpout::new());
        for (field, value) in fields {
            let (field, value) = (String::from_utf8_lossy(field), std::str::from_utf8(value).unwrap_or(""));
            match field.as_bytes() {
                GENERATION => saved.generation = value.parse().map_err(|_| wrong(&field))?,
                EPOCH => saved.epoch = Epoch(value.parse().map_err(|_| wrong(&field))?),
                _ => {
                    let position = Position(value.parse().map_err(|_| wrong(&field))?);
                    let Some((spout, place, tasks)) = place_of(plan, &field)? else { continue };
                    let now = plan.tasks(spout);
                    if tasks as usize == now.len() {
                        saved.positions.insert(TaskId(now.start + place), position);
                    } else {
                        let positions = former.entry(spout).or_default().entry(tasks);
                        positions.or_insert_with(|| vec![None; tasks as usize])[place as usize] =
                            Some(position);
                    }
                }
            }
        }
        for (spout, former) in former {
            saved.keep_former(plan, spout, former);
        }
        Ok(saved)
    }

    /// What is asked for a step.
    pub(crate) fn requests(&self, ending: &Ending) -> Vec<Request> {
        let Ending { generation, commands, letters, fields, .. } = ending;
        let mut requests = vec![request(Asks::Nothing, &[b"MULTI"])];
        let changes = commands.iter().chain(letters).cloned().enumerate();
        requests.extend(changes.map(|(place, words)| Request { asks: Asks::Queued(place), words }));
        let generation = generation.to_string();
        let mut words = [&b"HSET"[..], &self.epochs, GENERATION, generation.as_bytes()]
            .map(Bytes::copy_from_slice)
            .to_vec();
        words.extend(fields.iter().cloned());
        requests.push(Request { asks: Asks::Nothing, words });
        requests.push(request(Asks::Step, &[b"EXEC"]));
        requests.push(request(Asks::Nothing, &[b"WATCH", &self.epochs]));
        requests.push(request(Asks::Generation, &[b"HGET", &self.epochs, GENERATION]));
        requests
    }

    /// As `stream-spout` writes it, if the spout reads a stream: its name, the entry's id, its fields.
    fn dead_letter(&self, plan: &Plan, task: TaskId, letter: &DeadLetter) -> Command {
        let DeadLetter { original, component, error } = letter;
        let spout = plan.component_of(task);
        let origin = self.origins.get(&spout);
        let component = component.map_or("", |component| &plan.component(component).id);
        let (_, stream) = plan.declaration(original.stream);
        let mut words = self.letter();
        let mut field = |name: String, value: Vec<u8>| words.extend([name.into(), Bytes::from(value)]);
        field("spout".to_owned(), plan.component(spout).id.clone().into());
        let position = original.position.0;
        field("position".to_owned(), position.to_string().into());
        if let Some(Origin { stream, .. }) = origin {
            field("stream".to_owned(), stream.clone().into());
            field("id".to_owned(), format!("{}-{}", position >> 64, position as u64).into());
        }
        field("component".to_owned(), component.to_owned().into());
        field("error".to_owned(), error.clone().into());
        field("attempts".to_owned(), original.attempts.to_string().into());
        let declared = || stream.fields.iter().cloned().map(Some).collect();
        let names = origin.map_or_else(declared, |origin| origin.fields.clone());
        for (place, name) in names.iter().enumerate() {
            let Some(name) = name else { continue };
            let value = original.values.value(place).and_then(Result::ok);
            field(format!("field:{name}"), value.as_ref().map_or_else(Vec::new, text));
        }
        words
    }

    /// The beginning of an entry of the dead letters.
    fn letter(&self) -> Command {
        [b"XADD", &self.dead_letters[..], b"MAXLEN", b"~", DEAD_LETTERS_MAX, b"*"]
            .map(Bytes::copy_from_slice)
            .to_vec()
    }
}

/// Commands that give values what they have now; fields of one hash are together.
fn value_commands(values: &BTreeMap<StateKey, Option<Bytes>>) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for (StateKey { key, field }, value) in values {
        let name: &[u8] = match (field, value) {
            (None, Some(_)) => b"SET",
            (None, None) => b"DEL",
            (Some(_), Some(_)) => b"HSET",
            (Some(_), None) => b"HDEL",
        };
        let more = field.iter().chain(value).cloned();
        match commands.last_mut() {
            Some(last) if field.is_some() && last[0] == name && last[1] == *key && last.len() < WORDS_MAX => {
                last.extend(more);
            }
            _ => {
                commands.push(vec![Bytes::copy_from_slice(name), key.clone()]);
                commands.last_mut().expect("it was pushed").extend(more);
            }
        }
    }
    commands
}

fn position_field(plan: &Plan, task: TaskId) -> String {
    let component = plan.component_of(task);
    let tasks = plan.tasks(component);
    kept::position_field(&plan.component(component).id, task.0 - tasks.start, tasks.len() as u32)
}

/// For each spout and each number of tasks that it had: where these were.
type FormerBySpout = BTreeMap<ComponentId, BTreeMap<u32, Vec<Option<Position>>>>;

impl Saved {
    /// Keeps what tasks of `spout` had emitted when there were other numbers of them, and forgets what another number says as well: all up to there is done.
    fn keep_former(&mut self, plan: &Plan, spout: ComponentId, former: BTreeMap<u32, Vec<Option<Position>>>) {
        let now = plan.tasks(spout).map(|task| self.positions.get(&TaskId(task)).copied()).collect();
        let former: Vec<Former> = former.into_values().map(Former).collect();
        let now = Former(now).least();
        let done = former.iter().map(Former::least).max().flatten().max(now);
        let (kept, outdated): (Vec<_>, Vec<_>) =
            former.into_iter().partition(|it| it.most() > done || (now < done && it.least() == done));
        let fields = outdated.iter().flat_map(|Former(positions)| {
            let (spout, tasks) = (&plan.component(spout).id, positions.len() as u32);
            let fields = (0..tasks).map(move |place| kept::position_field(spout, place, tasks));
            fields.chain([kept::count_field(spout, 0, tasks)]).map(Bytes::from)
        });
        self.outdated.extend(fields);
        if !kept.is_empty() {
            self.former.insert(spout, kept);
        }
    }
}

/// The spout whose position a field has, the place of the task, and how many there were; none if the definition has no such spout any more.
fn place_of(plan: &Plan, field: &str) -> Result<Option<(ComponentId, u32, u32)>, String> {
    let Some((spout, place)) = field.strip_prefix(POSITION).and_then(|rest| rest.rsplit_once(':')) else {
        return Ok(None);
    };
    let Some(component) = plan.find(spout) else { return Ok(None) };
    let numbers =
        place.split_once('/').and_then(|(place, tasks)| Some((place.parse().ok()?, tasks.parse().ok()?)));
    match numbers.filter(|&(place, tasks): &(u32, u32)| place < tasks && u64::from(tasks) <= TASKS_MAX) {
        Some((place, tasks)) => Ok(Some((component, place, tasks))),
        None => Err(format!("field `{field}`: `{place}` is no task of a spout")),
    }
}

fn request(asks: Asks, words: &[&[u8]]) -> Request {
    Request { asks, words: words.iter().map(|word| Bytes::copy_from_slice(word)).collect() }
}

/// Fields and values of a hash, as RESP2 and RESP3 have them.
fn pairs(reply: &Reply) -> Option<Vec<(&[u8], &[u8])>> {
    fn bulk(reply: &Reply) -> Option<&[u8]> {
        let Reply::Bulk(bytes) = reply else { return None };
        Some(bytes)
    }
    match reply {
        Reply::Array(items) => {
            items.chunks_exact(2).map(|pair| Some((bulk(&pair[0])?, bulk(&pair[1])?))).collect()
        }
        Reply::Map(items) => items.iter().map(|(field, value)| Some((bulk(field)?, bulk(value)?))).collect(),
        _ => None,
    }
}

/// A command as a reader of dead letters sees it, in about `most` bytes.
fn shown_command(command: &Command, most: usize) -> String {
    let most = (most / command.len().max(1)).max(1);
    command.iter().map(|word| shown(word, most)).collect::<Vec<_>>().join(" ")
}

/// At most so many bytes of a word, as a reader of dead letters sees it: what was refused may be larger than the server takes.
fn shown(word: &Bytes, most: usize) -> String {
    let text = String::from_utf8_lossy(word);
    if text.len() <= most {
        return text.into_owned();
    }
    format!("{}... ({} B)", &text[..text.floor_char_boundary(most)], word.len())
}

/// A value as a reader of dead letters sees it.
fn text(value: &Value<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    match value.append_text(&mut text) {
        Ok(()) => text,
        Err(_) => format!("{value:?}").into(),
    }
}

const GENERATION: &[u8] = b"generation";
const EPOCH: &[u8] = b"epoch";
/// What the protocol adds to a word, at most.
const WORD_BYTES: usize = 16;
/// Words of a command for many fields.
const WORDS_MAX: usize = 1_000;
/// Bytes of a refused command in its letter, about.
pub(crate) const SHOWN_BYTES_MAX: usize = 1 << 20;
/// Entries of the dead letters, about, beyond which the oldest are dropped.
const DEAD_LETTERS_MAX: &[u8] = b"10000";

#[cfg(test)]
mod tests {
    use super::*;
    use topology::anchor::RootId;
    use topology::builder::{Code, Factory, TopologyBuilder};
    use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple};
    use topology::ids::StreamId;
    use topology::tracker::Original;
    use topology::values;

    #[derive(Default)]
    struct Nothing;

    impl Spout for Nothing {
        fn next_tuple(&mut self, _: &mut SpoutOut<'_>) -> Result<Next, Fault> {
            Ok(Next::Woken)
        }
    }

    impl Bolt for Nothing {
        fn execute(&mut self, _: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
            Ok(Outcome::Ack)
        }
    }

    fn program(tasks: u32, origins: BTreeMap<String, Origin>) -> Program {
        let mut builder = TopologyBuilder::new("t");
        builder.set_spout("in:put", Nothing::default).tasks(tasks).outputs(&["word", "n"]);
        builder.set_bolt("sink", Nothing::default).shuffle("in:put");
        let topology = builder.build().expect("it is right").plan().topology().clone();
        let components = [
            ("in:put".to_owned(), Factory::spout(Nothing::default)),
            ("sink".to_owned(), Factory::bolt(Nothing::default)),
        ];
        let code = Code { components: components.into(), origins, ..Code::default() };
        Program::new(topology, code).expect("it is right")
    }

    fn plan(tasks: u32) -> Plan {
        (**program(tasks, BTreeMap::new()).plan()).clone()
    }

    fn ledger(tasks: u32) -> Ledger {
        Ledger::new(&program(tasks, BTreeMap::new()))
    }

    /// A tuple that was given up.
    fn letter(plan: &Plan, position: u128) -> DeadLetter {
        let original = Original {
            position: Position(position),
            stream: StreamId(0),
            direct: None,
            values: values::Values::encode(&topology::values!["x", 5]).expect("they fit"),
            attempts: 5,
        };
        DeadLetter { original, component: plan.find("sink"), error: "bad".to_owned() }
    }

    #[test]
    fn letter_of_a_streams_entry_says_where_it_came_from() {
        let origin = Origin { stream: "words".to_owned(), fields: vec![Some("w".to_owned()), None] };
        let program = program(2, BTreeMap::from([("in:put".to_owned(), origin)]));
        let plan = program.plan();
        let words = Ledger::new(&program).dead_letter(plan, TaskId(1), &letter(plan, (7 << 64) + 3));
        let text: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let expected = format!(
            "XADD topology:t:dead-letters MAXLEN ~ 10000 * spout in:put position {} stream words id 7-3 component sink error bad attempts 5 field:w x",
            (7_u128 << 64) + 3
        );
        assert_eq!(text.join(" "), expected);
    }

    fn shown(requests: &[Request]) -> Vec<String> {
        let words = |request: &Request| {
            let words = request.words.iter().map(|word| String::from_utf8_lossy(word));
            words.collect::<Vec<_>>().join(" ")
        };
        requests.iter().map(words).collect()
    }

    fn hash(fields: &[(&str, &str)]) -> Reply {
        let words = fields.iter().flat_map(|(field, value)| [field, value]);
        Reply::Array(words.map(|word| Reply::Bulk(word.as_bytes().to_vec())).collect())
    }

    #[test]
    fn step_is_one_transaction_with_all_of_an_epoch() {
        let plan = plan(2);
        let letter = letter(&plan, 7);
        let field = |name: &str| StateKey::of_field("h", name.to_owned());
        let group = Group {
            generation: 3,
            epoch: Epoch(9),
            values: BTreeMap::from([
                (StateKey::of_key("k"), Some("v".into())),
                (StateKey::of_key("gone"), None),
                (field("a"), Some("1".into())),
                (field("b"), Some("2".into())),
                (field("c"), None),
            ]),
            commands: vec![vec!["PUBLISH".into(), "c".into(), "m".into()]],
            causes: Vec::new(),
            positions: BTreeMap::from([(TaskId(1), Position(40))]),
            dead: vec![(TaskId(0), letter)],
        };
        let ending = ledger(2).end(&plan, &group);
        let requests = ledger(2).requests(&ending);
        assert_eq!(
            shown(&requests),
            [
                "MULTI",
                "DEL gone",
                "HSET h a 1 b 2",
                "HDEL h c",
                "SET k v",
                "PUBLISH c m",
                "XADD topology:t:dead-letters MAXLEN ~ 10000 * spout in:put position 7 component sink error bad attempts 5 field:word x field:n 5",
                "HSET topology:t:epochs generation 3 epoch 9 position:in:put:1/2 40",
                "EXEC",
                "WATCH topology:t:epochs",
                "HGET topology:t:epochs generation",
            ]
        );
        assert_eq!(ending.commands.len(), 5, "those that are told, by their places in the reply to EXEC");
        let tokens: Vec<Asks> = requests.iter().map(|request| Asks::of_token(request.asks.token())).collect();
        assert_eq!(tokens[7..], [Asks::Nothing, Asks::Step, Asks::Nothing, Asks::Generation]);
    }

    #[test]
    fn letters_take_the_places_of_commands_that_are_not_queued() {
        let ledger = ledger(1);
        let words =
            |text: &str| text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let commands = ["SET a 1", "SET b 2", "GET"].map(words).to_vec();
        let letters = vec![words("XADD l * x y")];
        let mut ending = Ending { generation: 3, commands, letters, ..Ending::default() };
        let refused = [(1, "NOPERM no"), (2, "ERR arity"), (3, "ERR too large")];
        let refused = refused.map(|(place, error)| (place, error.to_owned())).into();
        assert_eq!(ending.names(&refused), "GET, SET");
        ledger.give_up(
            &plan(1),
            &mut ending,
            &refused,
            Known { originals: &Originals::new(), bytes_max: 100 },
        );
        assert_eq!(
            shown(&ledger.requests(&ending)[..4]),
            [
                "MULTI",
                "SET a 1",
                "XADD topology:t:dead-letters MAXLEN ~ 10000 * error NOPERM no command SET b 2",
                "XADD topology:t:dead-letters MAXLEN ~ 10000 * error ERR arity command GET",
            ]
        );
        assert_eq!(super::shown(&"xyz".into(), 2), "xy... (3 B)");
    }

    #[test]
    fn letter_of_a_refused_command_is_the_tuple_that_it_comes_from_once() {
        let (ledger, plan) = (ledger(1), plan(1));
        let words =
            |text: &str| text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let ancestor = |origin| Ancestor { root: RootId { spout: TaskId(0), life: 3, number: 5 }, origin };
        let component = plan.find("sink").expect("it is there");
        let cause = |command, origin| Cause { command, component, ancestor: ancestor(origin) };
        let group = Group {
            generation: 3,
            epoch: Epoch(9),
            values: BTreeMap::from([(StateKey::of_key("k"), Some("v".into()))]),
            commands: ["SET a 1", "SET b 2", "SET c 3", "SET d 4", "SET e 5"].map(words).to_vec(),
            causes: vec![cause(0, 0), cause(1, 1), cause(2, 1), cause(3, 2), cause(4, 4)],
            ..Group::default()
        };
        let mut ending = ledger.end(&plan, &group);
        // Of the tuple behind `c` there is a letter for `b`; what `d` comes from is not known.
        let refused: Refused = [2, 3, 4].map(|place| (place, "NOPERM no".to_owned())).into();
        assert_eq!(ending.ancestors(&refused), [ancestor(1), ancestor(2)].into());
        let originals: Originals = [(ancestor(1), letter(&plan, 7).original)].into();
        ledger.give_up(&plan, &mut ending, &refused, Known { originals: &originals, bytes_max: 1_000 });
        let dead = "XADD topology:t:dead-letters MAXLEN ~ 10000 *";
        assert_eq!(
            shown(&ledger.requests(&ending)[1..6]),
            [
                "SET k v".to_owned(),
                "SET a 1".to_owned(),
                "SET e 5".to_owned(),
                format!(
                    "{dead} spout in:put position 7 component sink error NOPERM no attempts 5 field:word x field:n 5 command SET b 2"
                ),
                format!("{dead} error NOPERM no command SET d 4"),
            ]
        );
        // Places have moved with the commands.
        assert_eq!(ending.ancestors(&[(2, String::new())].into()), [ancestor(4)].into());
        assert!(ending.ancestors(&[(0, String::new())].into()).is_empty());
    }

    #[test]
    fn what_is_saved_is_read_again() {
        let (plan, ledger) = (plan(2), ledger(2));
        assert_eq!(ledger.saved(&plan, &hash(&[])), Ok(Saved::default()));
        let fields =
            [("generation", "3"), ("epoch", "9"), ("position:in:put:1/2", "40"), ("position:other:0/1", "5")];
        let positions = BTreeMap::from([(TaskId(1), Position(40))]);
        assert_eq!(
            ledger.saved(&plan, &hash(&fields)),
            Ok(Saved { generation: 3, epoch: Epoch(9), positions, ..Saved::default() })
        );
    }

    #[test]
    fn positions_of_another_number_of_tasks_are_kept_until_all_of_it_is_done() {
        let (plan, ledger) = (plan(2), ledger(2));
        let spout = plan.find("in:put").expect("it is there");
        let saved =
            |fields: &[(&str, &str)]| ledger.saved(&plan, &hash(fields)).expect("it can be gone on from");
        let of = |all: &[Option<u128>]| Former(all.iter().map(|it| it.map(Position)).collect());
        let three = [("position:in:put:0/3", "40"), ("position:in:put:2/3", "30")];
        let begun = saved(&three);
        assert_eq!(begun.former, BTreeMap::from([(spout, vec![of(&[Some(40), None, Some(30)])])]));
        assert_eq!((begun.positions.len(), begun.outdated.len()), (0, 0));
        // One task of two is behind what a task of three had: both are needed.
        let both = [three[0], three[1], ("position:in:put:0/2", "35"), ("position:in:put:1/2", "50")];
        assert_eq!((saved(&both).positions.len(), saved(&both).former), (2, begun.former));
        let past = [three[0], three[1], ("position:in:put:0/2", "40"), ("position:in:put:1/2", "50")];
        assert!(saved(&past).former.is_empty());
        assert_eq!(
            saved(&past).outdated,
            ["position:in:put:0/3", "position:in:put:1/3", "position:in:put:2/3", "count:in:put:0/3"]
        );
        assert_eq!(
            shown(&ledger.begin(4, &saved(&past).outdated))[1],
            "HDEL topology:t:epochs position:in:put:0/3 position:in:put:1/3 position:in:put:2/3 count:in:put:0/3"
        );
        // What is done to the same place by all tasks of one number is said by that number, until today's have passed it.
        let one = [("position:in:put:0/1", "60"), past[2], past[3]];
        assert_eq!(saved(&one).former, BTreeMap::from([(spout, vec![of(&[Some(60)])])]));
    }

    #[test]
    fn what_cannot_be_gone_on_from_is_told() {
        let (plan, ledger) = (plan(2), ledger(2));
        let error = |fields: &[(&str, &str)]| ledger.saved(&plan, &hash(fields)).expect_err("refused");
        assert!(error(&[("position:in:put:2/2", "40")]).contains("`2/2` is no task"));
        assert!(error(&[("position:in:put:0/4000000000", "40")]).contains("is no task"));
        assert!(error(&[("epoch", "nine")]).contains("`epoch` of `topology:t:epochs` is no number"));
        let other = ledger.saved(&plan, &Reply::Error(b"WRONGTYPE".to_vec())).expect_err("refused");
        assert!(other.contains("no hash at `topology:t:epochs`"));
    }

    #[test]
    fn hash_with_many_fields_is_written_by_several_commands() {
        let values: BTreeMap<StateKey, Option<Bytes>> =
            (0..1_500).map(|n| (StateKey::of_field("h", n.to_string()), Some("1".into()))).collect();
        let commands = value_commands(&values);
        assert!(commands.iter().all(|command| command.len() <= WORDS_MAX + 1 && command.len() % 2 == 0));
        assert_eq!(commands.iter().map(|command| command.len() / 2 - 1).sum::<usize>(), 1_500);
    }
}
