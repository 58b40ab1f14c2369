//! Luau for scripts and functions: an interpreter for each loop, and what scripts of Redis expect to find in it.
//!
//! ```text
//!  source -> sha1 -> Scripts (all loops)      chunk compiled once for each interpreter
//!  KEYS, ARGV, Host, Pace -> Interpreter::run -> reply | error | over (the attempt leaves nothing)
//!                              '- redis.call -> Host::call -> reply as bytes -> values of Lua
//! ```
//!
//! | module | what |
//! |---|---|
//! | `sandbox`, `sandbox.lua` | an interpreter as scripts see it: nothing that outlives a run can be changed |
//! | `meter`, `interrupt` | memory and time: what a run may use, counted by one object |
//! | `host`, `lent` | what scripts reach of the server, for the time of a run |
//! | `pace` | how long a run may take, and why it is over before its end |
//! | `api` | `redis.*`, but for calls |
//! | `convert` | replies as values, values as replies |
//! | `cjson`, `cmsgpack`, `pack` (`struct`), `bit` | the libraries that Redis has |
//! | `cache` | the scripts of a server by digest, and those that run beside the loops |
//! | `library`, `shebang` | functions: libraries, their record, and what stands in a first line |
//! | `thrown`, `args`, `numbers` | errors through Lua, arguments of our functions, numbers as text |
//!
//! Invariants
//!   1. Equal request, equal replies of its commands: equal run. Chance begins with what the request is given, and no clock is seen but
//!      `os.clock` and what the host answers to TIME.
//!   2. An attempt that is over gets no further than the next loop or call, whatever a script catches (`meter`).
//!   3. No bytecode is loaded: Luau does not check it.
//!
//! Decision: docs/adr/0028-scripts.md.
//! Out of scope: what `redis.call` does (`eval`), where the effects go (`run`).

#[cfg(panic = "abort")]
compile_error!(
    "Luau ends calls by exceptions, which must pass our functions: set `panic = \"unwind\"` in the profile"
);

mod api;
mod args;
mod bit;
pub mod cache;
mod cjson;
mod cmsgpack;
mod convert;
mod host;
mod interrupt;
mod lent;
pub mod library;
mod meter;
mod numbers;
mod pace;
mod pack;
mod sandbox;
mod shebang;
#[cfg(test)]
mod tests;
mod thrown;

pub use api::VERSION;
pub use host::{Ended, Host};
pub use pace::{LOAD_TIME_MAX, Over, Pace};

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cache::{Digest, Script};
use convert::{NoReply, Returned};
use lent::Lent;
use library::{Library, Registered};
use meter::{Charge, Meter, OUT_OF_MEMORY};
use mlua::{Function, Lua, MultiValue, Table, Value};
use resp::{Args, ArgsView};

/// Whether a source of so many bytes is compiled beside the loops, and what it makes is run there.
pub fn is_long_source(bytes: usize) -> bool {
    bytes > SOURCE_BYTES_HERE
}

/// What a run came to.
#[derive(Debug)]
pub enum Outcome {
    /// The reply is written; it may be an error that the script returned.
    Reply,
    /// The script failed, with this text.
    Error(Vec<u8>),
    /// It was ended: it is to have done nothing.
    Over(Over),
    /// It used more memory than an interpreter may: it is to have done nothing.
    Memory,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub enum Code<'a> {
    /// A script.
    Script(&'a Arc<Script>),
    /// A function of a library, by its name.
    Function(&'a Arc<Library>, &'a [u8]),
}

/// What it is run with.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The request.
    pub args: ArgsView<'a>,
    /// The first key among them; the arguments follow the keys.
    pub keys_at: usize,
    /// How many keys there are.
    pub keys: usize,
    /// What chance begins with.
    pub seed: u64,
}

/// For whom.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Whether its replies are of RESP3.
    pub resp3: bool,
    /// The largest reply.
    pub reply_bytes_max: usize,
}

/// What the functions of an interpreter share.
#[derive(Debug)]
struct Shared {
    meter: Rc<Meter>,
    resp3: Cell<bool>,
    random: Cell<u64>,
    /// What commands are for.
    host: Lent,
    /// The globals of what runs, for code that it loads.
    environment: RefCell<Option<Table>>,
    /// Functions that the library which is being loaded has registered.
    loading: RefCell<Option<Vec<(Registered, Function)>>>,
    json: cjson::SharedConfig,
    /// A command on its way, and its reply.
    scratch: RefCell<(Args, Vec<u8>)>,
}

/// An interpreter. It belongs to one thread and one server.
pub struct Interpreter {
    lua: Lua,
    environment: Function,
    call: Function,
    call_with: Function,
    shared: Rc<Shared>,
    chunks: HashMap<Digest, (Arc<Script>, Function)>,
    chunk_bytes: usize,
    /// Sources of which so many bytes are kept compiled.
    chunk_bytes_max: usize,
    /// Functions by the number of their library, and by their name in lower case.
    libraries: HashMap<u64, HashMap<Box<[u8]>, Function>>,
    /// Memory ran out: it is to be dropped.
    is_spent: bool,
    /// The generation of what it holds ([`cache::Scripts`]).
    pub generation: u64,
}

impl Shared {
    /// Everything as at the beginning of a run that goes by `pace`.
    fn begin(&self, pace: Pace, seed: u64) {
        self.resp3.set(false);
        self.random.set(seed & RANDOM_MASK);
        *self.json.borrow_mut() = cjson::Config::default();
        self.meter.begin(pace);
    }

    /// Why the run is over, if it is.
    fn end(&self) -> Option<Over> {
        *self.environment.borrow_mut() = None;
        self.meter.end()
    }
}

impl Interpreter {
    /// An interpreter that uses at most `memory_bytes_max`.
    ///
    /// # Errors
    /// What Lua refuses: memory.
    pub fn new(memory_bytes_max: usize) -> mlua::Result<Self> {
        let shared = Rc::new(Shared {
            meter: Rc::new(Meter::new(memory_bytes_max)),
            resp3: Cell::new(false),
            random: Cell::new(RANDOM_SEED),
            host: Lent::default(),
            environment: RefCell::new(None),
            loading: RefCell::new(None),
            json: cjson::SharedConfig::default(),
            scratch: RefCell::default(),
        });
        let sandbox::Made { lua, environment, call, call_with } = sandbox::make(&shared)?;
        let (chunks, libraries) = (HashMap::new(), HashMap::new());
        let (is_spent, generation, chunk_bytes) = (false, 0, 0);
        let chunk_bytes_max = CHUNK_BYTES_MAX.min(memory_bytes_max / 32);
        Ok(Self {
            lua,
            environment,
            call,
            call_with,
            shared,
            chunks,
            chunk_bytes,
            chunk_bytes_max,
            libraries,
            is_spent,
            generation,
        })
    }

    /// The script with this digest, if it was run here.
    pub fn known(&self, digest: &Digest) -> Option<Arc<Script>> {
        self.chunks.get(digest).map(|(script, _)| Arc::clone(script))
    }

    /// Forgets all scripts and functions.
    pub fn forget(&mut self) {
        self.chunks.clear();
        self.libraries.clear();
        self.chunk_bytes = 0;
    }

    /// Whether memory ran out: it is to be dropped.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// What it uses.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Compiles `script` unless it is known.
    ///
    /// # Errors
    /// The text of the error reply.
    pub fn compile(&mut self, script: &Arc<Script>) -> Result<(), Vec<u8>> {
        if self.chunks.contains_key(&script.digest) {
            return Ok(());
        }
        let function = self
            .load(script.body(), "@user_script", None)
            .map_err(|text| [b"ERR Error compiling script (new function): ", &text[..]].concat())?;
        let bytes = script.source.len();
        if self.chunks.len() >= CHUNKS_MAX || self.chunk_bytes + bytes > self.chunk_bytes_max {
            self.chunks.clear();
            self.chunk_bytes = 0;
        }
        self.chunk_bytes += bytes;
        self.chunks.insert(script.digest, (Arc::clone(script), function));
        Ok(())
    }

    fn load(&self, source: &[u8], name: &str, environment: Option<Table>) -> Result<Function, Vec<u8>> {
        let (lua, shared) = (&self.lua, &*self.shared);
        let work = || sandbox::load_text(lua, shared, source, name, environment);
        shared.meter.limited(lua, work).map_err(|error| match thrown::is_memory(&error) {
            true => b"to compile it takes more memory than script.memory_limit".to_vec(),
            false => thrown::message(&error),
        })
    }

    /// Loads a library and says which functions it registers.
    ///
    /// # Errors
    /// What a run of it would come to: the text of an error, or that it was over.
    pub fn load_library(&mut self, library: &Arc<Library>, pace: Pace) -> Result<Vec<Registered>, Outcome> {
        let (clock, time_max) = (Arc::clone(&pace.clock), pace.until.since(pace.clock.now()));
        self.shared.begin(pace, RANDOM_SEED);
        let loaded = self.new_environment(None);
        let loaded = loaded.map_err(|error| thrown::message(&error)).and_then(|environment| {
            *self.shared.environment.borrow_mut() = Some(environment.clone());
            self.load(library.body(), "@user_function", Some(environment))
        });
        let function = match loaded {
            Ok(function) => function,
            Err(text) => {
                if let Some(over) = self.shared.end() {
                    return Err(Outcome::Over(over));
                }
                return Err(Outcome::Error([b"ERR Error compiling function: ", &text[..]].concat()));
            }
        };
        // compiling has no end but its own, and takes as long as the source is
        self.shared.meter.prolong(clock.now() + time_max);
        *self.shared.loading.borrow_mut() = Some(Vec::new());
        let result = self.shared.meter.limited(&self.lua, || self.call.call(function));
        let registered = self.shared.loading.borrow_mut().take().unwrap_or_default();
        if let Some(over) = self.shared.end() {
            return Err(Outcome::Over(over));
        }
        let result: mlua::Result<(bool, Value)> = result;
        let raised = match result {
            Ok((true, _)) => None,
            Ok((false, error)) => Some(self.raised(&error)),
            Err(error) => Some(Raised::of(&error)),
        };
        if let Some(raised) = raised {
            self.is_spent |= raised.is_memory;
            if raised.is_memory {
                return Err(Outcome::Memory);
            }
            let text = [b"ERR Error registering functions: ", &raised.text[..]].concat();
            return Err(Outcome::Error(text));
        }
        if registered.is_empty() {
            return Err(Outcome::Error(b"ERR No functions registered".to_vec()));
        }
        let by_name = |(it, function): &(Registered, Function)| {
            (it.name.to_ascii_lowercase().into_boxed_slice(), function.clone())
        };
        let callbacks = registered.iter().map(by_name).collect();
        self.libraries.insert(library.id, callbacks);
        Ok(registered.into_iter().map(|(registered, _)| registered).collect())
    }

    /// Loads a library for a run that goes by `pace`: on a loop for as long as it may take, beside one for as long as the run.
    fn load_here(&mut self, library: &Arc<Library>, pace: &Pace) -> Result<(), Outcome> {
        let mut own = Pace::of_library(Arc::clone(&pace.clock), pace.running.clone());
        if pace.running.is_some() {
            own.until = own.until.max(pace.until);
        }
        let loaded = self.load_library(library, own).map(drop);
        if pace.running.is_none() && matches!(loaded, Err(Outcome::Over(_))) {
            library.loads_slowly.store(true, Ordering::Relaxed);
        }
        loaded
    }

    /// A table of globals: of a script with its keys and arguments, or of a library.
    fn new_environment(&self, given: Option<(Table, Table)>) -> mlua::Result<Table> {
        let environment: Table = self.environment.call(given.is_none())?;
        if let Some((keys, args)) = given {
            environment.raw_set("KEYS", keys)?;
            environment.raw_set("ARGV", args)?;
        }
        environment.raw_set("_G", &environment)?;
        environment.set_safeenv(true);
        environment.set_readonly(true);
        Ok(environment)
    }

    /// Runs `code` and appends its reply to `out`.
    pub fn run(
        &mut self,
        code: Code<'_>,
        inputs: Inputs<'_>,
        host: &mut dyn Host,
        mut pace: Pace,
        client: Client,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let began = pace.clock.now();
        let function = match code {
            Code::Script(script) => match self.compile(script) {
                Ok(()) => self.chunks[&script.digest].1.clone(),
                Err(text) => return Outcome::Error(text),
            },
            Code::Function(library, name) => {
                if !self.libraries.contains_key(&library.id)
                    && let Err(outcome) = self.load_here(library, &pace)
                {
                    return outcome;
                }
                match self.libraries[&library.id].get(&*name.to_ascii_lowercase()) {
                    Some(function) => function.clone(),
                    None => return Outcome::Error(b"ERR Function not found".to_vec()),
                }
            }
        };
        // what an interpreter does once is no time of the run: on a loop each of them would end before it began
        pace.until = pace.until + pace.clock.now().since(began);
        self.shared.begin(pace, inputs.seed);
        let start = out.len();
        let result = self.run_function(&function, matches!(code, Code::Function(..)), inputs, host);
        let outcome = self.judge(result, code, client, out);
        if !matches!(outcome, Outcome::Reply) {
            out.truncate(start);
        }
        self.is_spent |= matches!(outcome, Outcome::Memory);
        self.shrink();
        outcome
    }

    fn run_function(
        &self,
        function: &Function,
        is_library: bool,
        inputs: Inputs<'_>,
        host: &mut dyn Host,
    ) -> mlua::Result<(bool, Value)> {
        let Inputs { args, keys_at, keys, .. } = inputs;
        let keys = self.list(args.iter().skip(keys_at).take(keys), keys)?;
        let behind = keys_at + inputs.keys;
        let rest = self.list(args.iter().skip(behind), args.len().saturating_sub(behind))?;
        let meter = &self.shared.meter;
        if is_library {
            let run = || self.call_with.call((function, keys, rest));
            return self.shared.host.lend(host, || meter.limited(&self.lua, run));
        }
        let environment = self.new_environment(Some((keys, rest)))?;
        *self.shared.environment.borrow_mut() = Some(environment.clone());
        // its own copy: nothing that this run does to it is there for the next one
        let function = function.deep_clone()?;
        function.set_environment(environment)?;
        self.shared.host.lend(host, || meter.limited(&self.lua, || self.call.call(function)))
    }

    fn list<'a>(&self, items: impl Iterator<Item = &'a [u8]>, count: usize) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(count, 0)?;
        for (index, item) in items.enumerate() {
            table.raw_set(index + 1, self.lua.create_string(item)?)?;
        }
        Ok(table)
    }

    /// What a run came to, by what Lua returned.
    fn judge(
        &self,
        result: mlua::Result<(bool, Value)>,
        code: Code<'_>,
        client: Client,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let written = match &result {
            Ok((true, value)) => {
                let (client_resp3, bytes_max) = (client.resp3, client.reply_bytes_max);
                let meter = &self.shared.meter;
                let returned =
                    Returned { script_resp3: self.shared.resp3.get(), client_resp3, bytes_max, meter };
                Some(returned.write(value, out))
            }
            _ => None,
        };
        if let Some(over) = self.shared.end() {
            return Outcome::Over(over);
        }
        match (result, written) {
            (_, Some(Ok(()))) => Outcome::Reply,
            (_, Some(Err(NoReply::TooDeep))) => Outcome::Error(b"ERR reached lua stack limit".to_vec()),
            (_, Some(Err(NoReply::TooLarge))) => {
                let most = client.reply_bytes_max;
                let text = format!("ERR the reply would be larger than connections.output_max ({most} B)");
                Outcome::Error(text.into_bytes())
            }
            (_, Some(Err(NoReply::Lua(error)))) => failed(&error),
            (Ok((_, error)), None) => {
                let raised = self.raised(&error);
                if raised.is_memory { Outcome::Memory } else { Outcome::Error(raised.placed(&code.name())) }
            }
            (Err(error), None) => failed(&error),
        }
    }

    /// What the message handler made of an error.
    fn raised(&self, error: &Value) -> Raised {
        let text_of = |value: Value| match value {
            Value::String(text) => text.as_bytes().to_vec(),
            other => {
                numbers::number(&other).map(|number| numbers::general(number, 14)).unwrap_or_default().into()
            }
        };
        let mut raised = Raised::default();
        match error {
            Value::Table(table) => {
                let field = |name: &str| table.raw_get(name).map(text_of).unwrap_or_default();
                raised.text = convert::trimmed(&field("err")).to_vec();
                raised.source = field("source");
                raised.line = field("line");
                if raised.text.is_empty() {
                    raised.text = b"ERR unknown error".to_vec();
                }
            }
            Value::String(text) => {
                raised.is_memory = *text.as_bytes() == *OUT_OF_MEMORY.as_bytes();
                raised.text = [b"ERR ", &text.as_bytes()[..]].concat();
            }
            Value::Error(error) => raised = Raised::of(error),
            _ => raised.text = b"ERR execution failure".to_vec(),
        }
        raised.is_memory |=
            raised.text.strip_prefix(b"ERR ").is_some_and(|text| text == OUT_OF_MEMORY.as_bytes());
        raised
    }

    /// Collects garbage if there is much; small scripts leave that to Lua.
    fn shrink(&self) {
        if self.lua.used_memory() > KEPT_BYTES_MAX {
            // what it refuses shows in the next run
            let _ = self.lua.gc_collect();
        }
    }
}

/// An error that ended a run.
#[derive(Default)]
struct Raised {
    text: Vec<u8>,
    source: Vec<u8>,
    line: Vec<u8>,
    is_memory: bool,
}

impl Raised {
    /// One that Lua or a function of ours has raised.
    fn of(error: &mlua::Error) -> Self {
        let text = [b"ERR ", &thrown::message(error)[..]].concat();
        Self { text, is_memory: thrown::is_memory(error), ..Self::default() }
    }

    /// The text with where the error was raised, as Redis adds it.
    fn placed(self, name: &[u8]) -> Vec<u8> {
        if self.source.is_empty() || self.line.is_empty() {
            return self.text;
        }
        [&self.text[..], b" script: ", name, b", on ", &self.source, b":", &self.line, b"."].concat()
    }
}

impl Code<'_> {
    /// What errors call it.
    pub fn name(&self) -> Vec<u8> {
        match self {
            Self::Script(script) => script.digest.hex().into_bytes(),
            Self::Function(_, name) => name.to_vec(),
        }
    }
}

fn failed(error: &mlua::Error) -> Outcome {
    if thrown::is_memory(error) {
        return Outcome::Memory;
    }
    Outcome::Error([b"ERR ", &thrown::message(error)[..]].concat())
}

/// `redis.call` (`raises`) and `redis.pcall`.
/// `redis.acl_check_cmd`: whether who runs the script may run a command.
fn may(lua: &Lua, shared: &Shared, values: &MultiValue) -> mlua::Result<bool> {
    let meter = &*shared.meter;
    meter.tick(CALL_TICKS)?;
    let mut args = Args::default();
    let _charge = match collect(lua, meter, values, &mut args) {
        Err(Uncollected::Text(text)) => return Err(thrown::reply(text)),
        Err(Uncollected::Lua(error)) => return Err(error),
        Ok(charge) => charge,
    };
    match shared.host.with(|host| host.may(args.view(&[]))) {
        None => Err(thrown::reply(NO_HOST)),
        Some(None) => Err(thrown::reply("ERR Invalid command passed to redis.acl_check_cmd()")),
        Some(Some(may)) => Ok(may),
    }
}

fn invoke(lua: &Lua, shared: &Shared, values: &MultiValue, raises: bool) -> mlua::Result<Value> {
    let meter = &*shared.meter;
    meter.tick(CALL_TICKS)?;
    let (mut args, mut reply) = shared.scratch.take();
    args.clear();
    reply.clear();
    let result = match collect(lua, meter, values, &mut args) {
        Err(Uncollected::Text(text)) => answered_error(lua, text.as_bytes(), raises),
        Err(Uncollected::Lua(error)) => Err(error),
        Ok(_charge) => {
            let resp3 = shared.resp3.get();
            let called = shared.host.with(|host| {
                let room = meter.room(lua);
                host.call(args.view(&[]), resp3, room, &mut reply)
            });
            match called {
                None => answered_error(lua, NO_HOST.as_bytes(), raises),
                Some(Err(Ended)) => Err(meter.stop(Over::Host)),
                Some(Ok(())) if reply.first() == Some(&b'-') => {
                    answered_error(lua, convert::trimmed(&reply[1..]), raises)
                }
                Some(Ok(())) if reply.len() <= SMALL_REPLY_BYTES_MAX => meter
                    .unlimited(lua, || convert::to_lua(lua, meter, &reply, resp3))
                    .map(|(value, _)| value),
                Some(Ok(())) => large_reply(lua, meter, &reply, resp3),
            }
        }
    };
    if reply.capacity() <= SCRATCH_BYTES_MAX && args.capacity_bytes() <= SCRATCH_BYTES_MAX {
        *shared.scratch.borrow_mut() = (args, reply);
    }
    // a command may have taken long
    meter.look()?;
    result
}

/// A large reply as a value; it is counted while both are there.
fn large_reply(lua: &Lua, meter: &Meter, reply: &[u8], resp3: bool) -> mlua::Result<Value> {
    let _charge = meter.charge(lua, reply.len())?;
    convert::to_lua(lua, meter, reply, resp3).map(|(value, _)| value)
}

fn answered_error(lua: &Lua, text: &[u8], raises: bool) -> mlua::Result<Value> {
    if raises {
        return Err(thrown::reply(text));
    }
    Ok(Value::Table(api::error_table(lua, text)?))
}

/// Why there is no command.
enum Uncollected {
    Text(&'static str),
    Lua(mlua::Error),
}

/// Arguments of a command: strings and numbers, charged before they are copied.
fn collect<'m>(
    lua: &'m Lua,
    meter: &'m Meter,
    values: &MultiValue,
    args: &mut Args,
) -> Result<Option<Charge<'m>>, Uncollected> {
    if values.is_empty() {
        return Err(Uncollected::Text("ERR Please specify at least one argument for this redis lib call"));
    }
    let mut bytes = 0_usize;
    for value in values {
        bytes += match value {
            Value::String(text) => text.as_bytes().len(),
            Value::Integer(_) | Value::Number(_) => NUMBER_BYTES_MAX,
            _ => {
                return Err(Uncollected::Text(
                    "ERR Lua redis lib command arguments must be strings or integers",
                ));
            }
        };
    }
    meter.tick(values.len() + bytes / 1_024).map_err(Uncollected::Lua)?;
    let charge = match bytes > SMALL_REPLY_BYTES_MAX {
        true => Some(meter.charge(lua, bytes).map_err(Uncollected::Lua)?),
        false => None,
    };
    if bytes > Args::OWN_BYTES_MAX {
        return Err(Uncollected::Text("ERR the arguments of the command are larger than a request may be"));
    }
    for value in values {
        match value {
            Value::String(text) => args.push(&text.as_bytes()),
            Value::Integer(number) => args.push(itoa::Buffer::new().format(*number).as_bytes()),
            other => {
                let number = numbers::number(other).unwrap_or_default();
                match numbers::integer(number) {
                    Some(integer) => args.push(itoa::Buffer::new().format(integer).as_bytes()),
                    None => args.push(numbers::general(number, 17).as_bytes()),
                }
            }
        }
    }
    Ok(charge)
}

/// A longer source is compiled beside the loops.
const SOURCE_BYTES_HERE: usize = 64 << 10;
/// Steps of work that the call of a command takes at least.
const CALL_TICKS: usize = 4;
/// What a command is answered with where none can be run.
const NO_HOST: &str = "ERR redis.call/pcall can only be called inside a script invocation";
/// Bytes of a number as text.
const NUMBER_BYTES_MAX: usize = 32;
/// What chance begins with where a library is loaded.
const RANDOM_SEED: u64 = 0x330e;
/// The state of chance has 48 bits.
const RANDOM_MASK: u64 = (1 << 48) - 1;
/// Scripts that an interpreter keeps compiled, and the bytes of their sources.
const CHUNKS_MAX: usize = 1_024;
const CHUNK_BYTES_MAX: usize = 4 << 20;
/// An interpreter that has more collects its garbage at the end of a run.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// A reply that becomes values of Lua whatever the limit of memory says.
const SMALL_REPLY_BYTES_MAX: usize = 16 << 10;
/// A larger buffer is not kept.
const SCRATCH_BYTES_MAX: usize = 64 << 10;
