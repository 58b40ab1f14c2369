//! Lua for scripts and functions: an interpreter for each loop, and what scripts of Redis expect to find in it.
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
//!   2. An attempt that is over raises [`thrown::Thrown::Halt`], which no script can catch.
//!   3. No bytecode is loaded: Lua does not check it.
//!
//! Out of scope: what `redis.call` does (`eval`), where the effects go (`run`).

mod api;
mod args;
mod bit;
pub(crate) mod cache;
mod cjson;
mod cmsgpack;
mod convert;
pub(crate) mod library;
mod numbers;
mod pack;
mod pattern;
pub(crate) mod retained;
mod sandbox;
pub(crate) mod shebang;
mod strings;
#[cfg(test)]
mod tests;
mod thrown;

pub(crate) use api::VERSION;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use clock::{Clock, Nanos};
use mlua::{Function, Lua, MultiValue, Table, Value};
use resp::{Args, ArgsView};

use crate::lookup::Table as Commands;
use cache::{Digest, Running, Script};
use convert::{NoReply, Returned};
use library::{Library, Registered};
use thrown::Thrown;

/// What a script reaches of the server.
pub(crate) trait Host {
    /// Runs a command and appends its whole reply to `out`, in version 3 of the protocol if `resp3`; errors, too.
    ///
    /// # Errors
    /// [`Ended`] when the attempt is over; the host keeps why.
    fn call(&mut self, args: ArgsView<'_>, resp3: bool, out: &mut Vec<u8>) -> Result<(), Ended>;
}

/// The attempt is over.
#[derive(Debug)]
pub(crate) struct Ended;

/// How long a run may take.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) until: Nanos,
    /// Steps of [`HOOK_INSTRUCTIONS`] that it may take; bounds a run where the clock stands still.
    pub(crate) steps_max: u32,
    /// Where it is told to stop.
    pub(crate) running: Option<Arc<Running>>,
}

/// Why a run is over that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The host said so.
    Host,
    /// It took longer than its pace allows.
    Time,
    Killed,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) enum Outcome {
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
pub(crate) enum Code<'a> {
    Script(&'a Arc<Script>),
    Function(&'a Arc<Library>, &'a [u8]),
}

/// What it is run with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) args: ArgsView<'a>,
    /// The first key among them; the arguments follow the keys.
    pub(crate) keys_at: usize,
    pub(crate) keys: usize,
    /// What chance begins with.
    pub(crate) seed: u64,
}

/// For whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) resp3: bool,
    /// The largest reply.
    pub(crate) reply_bytes_max: usize,
}

/// What the functions of an interpreter share.
#[derive(Debug)]
struct Shared {
    resp3: Cell<bool>,
    random: Cell<u64>,
    steps: Cell<u32>,
    over: Cell<Option<Over>>,
    pace: RefCell<Option<Pace>>,
    /// Functions that the library which is being loaded has registered.
    loading: RefCell<Option<Vec<(Registered, Function)>>>,
    json: cjson::SharedConfig,
    /// A command on its way, and its reply.
    scratch: RefCell<(Args, Vec<u8>)>,
    /// What Lua code may use.
    memory_bytes_max: usize,
}

/// An interpreter. It belongs to one thread and one server.
pub(crate) struct Interpreter {
    lua: Lua,
    /// What is behind `_G` and behind `redis`.
    globals: Table,
    redis: Table,
    call: Function,
    call_with: Function,
    shared: Rc<Shared>,
    chunks: HashMap<Digest, (Arc<Script>, Function)>,
    chunk_bytes: usize,
    libraries: HashMap<u64, HashMap<Box<[u8]>, Function>>,
    /// Memory ran out: it is to be dropped.
    is_spent: bool,
    /// The generation of what it holds ([`cache::Scripts`]).
    pub(crate) generation: u64,
}

impl Shared {
    /// Everything as at the beginning of a run that goes by `pace`.
    fn begin(&self, pace: Pace, seed: u64) {
        self.resp3.set(false);
        self.random.set(seed & RANDOM_MASK);
        self.steps.set(0);
        self.over.set(None);
        *self.json.borrow_mut() = cjson::Config::default();
        *self.pace.borrow_mut() = Some(pace);
    }

    /// Ends the attempt.
    fn end(&self, over: Over) -> mlua::Error {
        self.over.set(Some(self.over.get().unwrap_or(over)));
        Thrown::Halt.into()
    }

    /// Looks whether a run may go on.
    fn tick(&self) -> mlua::Result<()> {
        if let Some(over) = self.over.get() {
            return Err(self.end(over));
        }
        let pace = self.pace.borrow();
        let Some(pace) = &*pace else { return Ok(()) };
        self.steps.set(self.steps.get() + 1);
        if pace.running.as_ref().is_some_and(|running| running.is_killed()) {
            return Err(self.end(Over::Killed));
        }
        if self.steps.get() > pace.steps_max || pace.clock.now() >= pace.until {
            return Err(self.end(Over::Time));
        }
        Ok(())
    }
}

impl Interpreter {
    /// An interpreter that uses at most `memory_bytes_max`; `table` says which commands there are.
    ///
    /// # Errors
    /// What Lua refuses: memory.
    pub(crate) fn new(memory_bytes_max: usize, table: &'static Commands) -> mlua::Result<Self> {
        let shared = Rc::new(Shared {
            resp3: Cell::new(false),
            random: Cell::new(RANDOM_SEED),
            steps: Cell::new(0),
            over: Cell::new(None),
            pace: RefCell::new(None),
            loading: RefCell::new(None),
            json: cjson::SharedConfig::default(),
            scratch: RefCell::default(),
            memory_bytes_max,
        });
        let sandbox::Made { lua, globals, redis, call, call_with } = sandbox::make(&shared, table)?;
        let (chunks, libraries) = (HashMap::new(), HashMap::new());
        let (is_spent, generation, chunk_bytes) = (false, 0, 0);
        Ok(Self {
            lua,
            globals,
            redis,
            call,
            call_with,
            shared,
            chunks,
            chunk_bytes,
            libraries,
            is_spent,
            generation,
        })
    }

    /// The script with this digest, if it was run here.
    pub(crate) fn known(&self, digest: &Digest) -> Option<Arc<Script>> {
        self.chunks.get(digest).map(|(script, _)| Arc::clone(script))
    }

    /// Forgets all scripts and functions.
    pub(crate) fn forget(&mut self) {
        self.chunks.clear();
        self.libraries.clear();
        self.chunk_bytes = 0;
    }

    /// Whether memory ran out: it is to be dropped.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// What it uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Compiles `script` unless it is known.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn compile(&mut self, script: &Arc<Script>) -> Result<(), Vec<u8>> {
        if self.chunks.contains_key(&script.digest) {
            return Ok(());
        }
        let function = self
            .load(script.body(), "@user_script")
            .map_err(|text| [b"ERR Error compiling script (new function): ", &text[..]].concat())?;
        let bytes = script.source.len();
        if self.chunks.len() >= CHUNKS_MAX || self.chunk_bytes + bytes > CHUNK_BYTES_MAX {
            self.chunks.clear();
            self.chunk_bytes = 0;
        }
        self.chunk_bytes += bytes;
        self.chunks.insert(script.digest, (Arc::clone(script), function));
        Ok(())
    }

    fn load(&self, source: &[u8], name: &str) -> Result<Function, Vec<u8>> {
        if source.first() == Some(&BYTECODE) {
            return Err(b"bytecode is not allowed".to_vec());
        }
        let chunk = self.lua.load(source).set_name(name).set_mode(mlua::chunk::ChunkMode::Text);
        self.limited(|| chunk.into_function()).map_err(|error| thrown::message(&error))
    }

    /// Loads a library and says which functions it registers.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn load_library(
        &mut self,
        library: &Arc<Library>,
        pace: Pace,
    ) -> Result<Vec<Registered>, Vec<u8>> {
        let function = self
            .load(library.body(), "@user_function")
            .map_err(|text| [b"ERR Error compiling function: ", &text[..]].concat())?;
        self.shared.begin(pace, RANDOM_SEED);
        *self.shared.loading.borrow_mut() = Some(Vec::new());
        let result = self.run_load(&function);
        let registered = self.shared.loading.borrow_mut().take().unwrap_or_default();
        *self.shared.pace.borrow_mut() = None;
        if self.shared.over.take().is_some() {
            return Err(b"ERR FUNCTION LOAD timeout".to_vec());
        }
        match result {
            Ok((true, _)) => {}
            Ok((false, error)) => {
                let raised = self.raised(&error);
                return Err([b"ERR Error registering functions: ", &raised.text[..]].concat());
            }
            Err(error) => {
                return Err([b"ERR Error registering functions: ", &thrown::message(&error)[..]].concat());
            }
        }
        if registered.is_empty() {
            return Err(b"ERR No functions registered".to_vec());
        }
        let callbacks = registered.iter().map(|(it, function)| (it.name.clone(), function.clone())).collect();
        self.libraries.insert(library.id, callbacks);
        Ok(registered.into_iter().map(|(registered, _)| registered).collect())
    }

    fn run_load(&self, function: &Function) -> mlua::Result<(bool, Value)> {
        for name in ["call", "pcall"] {
            self.redis.raw_set(name, Value::Nil)?;
        }
        for name in ["KEYS", "ARGV"] {
            self.globals.raw_set(name, Value::Nil)?;
        }
        self.redis.raw_set("register_function", api::register(&self.lua, &self.shared)?)?;
        let result = self.limited(|| self.call.call(function));
        self.redis.raw_set("register_function", Value::Nil)?;
        result
    }

    /// Runs `code` and appends its reply to `out`.
    pub(crate) fn run(
        &mut self,
        code: Code<'_>,
        inputs: Inputs<'_>,
        (host, pace): (&mut dyn Host, Pace),
        client: Client,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let function = match code {
            Code::Script(script) => match self.compile(script) {
                Ok(()) => self.chunks[&script.digest].1.clone(),
                Err(text) => return Outcome::Error(text),
            },
            Code::Function(library, name) => {
                if !self.libraries.contains_key(&library.id)
                    && let Err(text) = self.load_library(library, pace.clone())
                {
                    return Outcome::Error(text);
                }
                match self.libraries[&library.id].get(name) {
                    Some(function) => function.clone(),
                    None => return Outcome::Error(b"ERR Function not found".to_vec()),
                }
            }
        };
        self.shared.begin(pace, inputs.seed);
        let start = out.len();
        let result = self.run_function(&function, matches!(code, Code::Function(..)), inputs, host);
        *self.shared.pace.borrow_mut() = None;
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
        let (host, shared) = (RefCell::new(host), &self.shared);
        self.lua.scope(|scope| {
            let call =
                scope.create_function(|lua, values: MultiValue| invoke(lua, shared, &host, &values, true))?;
            let pcall = scope
                .create_function(|lua, values: MultiValue| invoke(lua, shared, &host, &values, false))?;
            self.redis.raw_set("call", call)?;
            self.redis.raw_set("pcall", pcall)?;
            if is_library {
                self.globals.raw_set("KEYS", Value::Nil)?;
                self.globals.raw_set("ARGV", Value::Nil)?;
                return self.limited(|| self.call_with.call((function, keys, rest)));
            }
            self.globals.raw_set("KEYS", keys)?;
            self.globals.raw_set("ARGV", rest)?;
            self.limited(|| self.call.call(function))
        })
    }

    /// Calls `work` while the limit of memory is in force. Where it is, each call of Lua's is protected, which costs as much as a
    /// small script: so what we do ourselves, in bounds that we know, is done without.
    fn limited<T>(&self, work: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
        self.lua.set_memory_limit(self.shared.memory_bytes_max)?;
        let result = work();
        self.lua.set_memory_limit(0)?;
        result
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
        if let Some(over) = self.shared.over.take() {
            return Outcome::Over(over);
        }
        match result {
            Ok((true, value)) => {
                let (client_resp3, bytes_max) = (client.resp3, client.reply_bytes_max);
                let returned = Returned { script_resp3: self.shared.resp3.get(), client_resp3, bytes_max };
                match returned.write(&value, out) {
                    Ok(()) => Outcome::Reply,
                    Err(NoReply::TooDeep) => Outcome::Error(b"ERR reached lua stack limit".to_vec()),
                    Err(NoReply::TooLarge) => {
                        let text = format!(
                            "ERR the reply would be larger than connections.output_max ({bytes_max} B)"
                        );
                        Outcome::Error(text.into_bytes())
                    }
                    Err(NoReply::Lua(error)) => failed(&error),
                }
            }
            Ok((false, error)) => {
                let raised = self.raised(&error);
                if raised.is_memory { Outcome::Memory } else { Outcome::Error(raised.placed(&code.name())) }
            }
            Err(error) => failed(&error),
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
                raised.is_memory = *text.as_bytes() == *OUT_OF_MEMORY;
                raised.text = [b"ERR ", &text.as_bytes()[..]].concat();
            }
            Value::Error(error) => {
                raised.is_memory = thrown::is_memory(error);
                raised.text = [b"ERR ", &thrown::message(error)[..]].concat();
            }
            _ => raised.text = b"ERR execution failure".to_vec(),
        }
        raised.is_memory |= raised.text.strip_prefix(b"ERR ").is_some_and(|text| text == OUT_OF_MEMORY);
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
    pub(crate) fn name(&self) -> Vec<u8> {
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
fn invoke(
    lua: &Lua,
    shared: &Shared,
    host: &RefCell<&mut dyn Host>,
    values: &MultiValue,
    raises: bool,
) -> mlua::Result<Value> {
    if let Some(over) = shared.over.get() {
        return Err(shared.end(over));
    }
    let (mut args, mut reply) = shared.scratch.take();
    args.clear();
    reply.clear();
    let result = match collect(values, &mut args) {
        Err(text) => answered_error(lua, text.as_bytes(), raises),
        Ok(()) => {
            let resp3 = shared.resp3.get();
            match host.borrow_mut().call(args.view(&[]), resp3, &mut reply) {
                Err(Ended) => Err(shared.end(Over::Host)),
                Ok(()) if reply.first() == Some(&b'-') => {
                    answered_error(lua, convert::trimmed(&reply[1..]), raises)
                }
                Ok(()) if reply.len() <= SMALL_REPLY_BYTES_MAX => {
                    lua.set_memory_limit(0)?;
                    let value = convert::to_lua(lua, &reply, resp3);
                    lua.set_memory_limit(shared.memory_bytes_max)?;
                    value.map(|(value, _)| value)
                }
                Ok(()) => convert::to_lua(lua, &reply, resp3).map(|(value, _)| value),
            }
        }
    };
    if reply.capacity() <= SCRATCH_BYTES_MAX {
        *shared.scratch.borrow_mut() = (args, reply);
    }
    result
}

fn answered_error(lua: &Lua, text: &[u8], raises: bool) -> mlua::Result<Value> {
    if raises {
        return Err(thrown::reply(text));
    }
    Ok(Value::Table(api::error_table(lua, text)?))
}

/// Arguments of a command: strings and numbers.
fn collect(values: &MultiValue, args: &mut Args) -> Result<(), &'static str> {
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    for value in values {
        match value {
            Value::String(text) => args.push(&text.as_bytes()),
            Value::Integer(number) => args.push(itoa::Buffer::new().format(*number).as_bytes()),
            Value::Number(number) => match numbers::integer(*number) {
                Some(integer) => args.push(itoa::Buffer::new().format(integer).as_bytes()),
                None => args.push(numbers::general(*number, 17).as_bytes()),
            },
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        }
    }
    Ok(())
}

/// Instructions of Lua after which a run is looked at: some 100 µs.
const HOOK_INSTRUCTIONS: u32 = 10_000;
/// What chance begins with where a library is loaded.
const RANDOM_SEED: u64 = 0x330e;
/// The state of chance has 48 bits.
const RANDOM_MASK: u64 = (1 << 48) - 1;
/// What a compiled chunk begins with.
const BYTECODE: u8 = 0x1b;
/// What Lua says then.
const OUT_OF_MEMORY: &[u8] = b"not enough memory";
/// Scripts that an interpreter keeps compiled, and the bytes of their sources.
const CHUNKS_MAX: usize = 1_024;
const CHUNK_BYTES_MAX: usize = 4 << 20;
/// An interpreter that has more collects its garbage at the end of a run.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// A reply that becomes values of Lua whatever the limit of memory says.
const SMALL_REPLY_BYTES_MAX: usize = 16 << 10;
/// A larger buffer is not kept.
const SCRATCH_BYTES_MAX: usize = 64 << 10;
