//! `http-sink`: posts each tuple to a URL. A tuple is acknowledged when the server has answered with 2xx.
//!
//! ```text
//!  component --calls--> caller (its own thread): connections, TLS, times --what became of each--> component
//! ```
//!
//! | answer | the tuple |
//! |---|---|
//! | 2xx | is acknowledged |
//! | 429, or 503 with `Retry-After` | is tried again after that time, without counting the attempt |
//! | 408, 425, 5xx, a connection that breaks, no answer in time | is tried again; the attempt counts |
//! | no connection | waits here, and does not time out; a connection is tried after 100 ms, and after twice as long each time up to 30 s |
//! | any other | is a dead letter: the same request will get the same answer |
//!
//! A request may be sent twice. `Idempotency-Key` is the same each time: the topology, the component, and what `--key` makes of the tuple's fields.
//!
//! Invariants
//!   1. The definition names scheme, host and port; fields of tuples only fill path, query, key and body. Redirects are not followed.
//!   2. At most `--requests` are under way, and of an answer at most 64 KiB are read.
//!   3. While there is no connection no tuple fails: what else came of its spout's tuple would be repeated with it.
//!
//! **Bounds.** Tuples that wait for a connection: [`WAITING_MAX`], and what their sources may have under way.

mod answer;
mod caller;
mod gate;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC};
use serde_json::{Map, Value as Json};
use topology::bolt::TupleId;
use topology::builder::Factory;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Tuple};
use topology::value::Value;
use url::Url;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::row::{Emits, Exact, Made, Reach, Row};
use crate::template::Template;
use caller::{Call, Caller, News};

/// What is posted, and where.
#[derive(Clone, Debug)]
struct Settings {
    target: Target,
    /// `None`: an object of all fields.
    body: Option<Template>,
    content_type: String,
    key: Template,
    /// A variable of the environment, so that no definition has the secret.
    authorization_env: Option<String>,
    ca: Option<String>,
    requests: usize,
    timeout: Duration,
}

/// Where a request goes.
#[derive(Clone, Debug)]
struct Target {
    is_tls: bool,
    host: String,
    port: u16,
    /// The header `Host`.
    authority: String,
    /// Path and query.
    path: Template,
}

/// The bolt.
struct HttpSink {
    settings: Settings,
    caller: Option<Caller>,
    /// Before what `--key` makes: the topology and the component.
    key_prefix: String,
    open: usize,
    /// Of them those that wait for a connection.
    waiting: HashSet<TupleId>,
    clock: Arc<dyn Clock>,
}

impl HttpSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { settings, caller: None, key_prefix: String::new(), open: 0, waiting: HashSet::new(), clock }
    }

    fn call(&self, tuple: &Tuple<'_>) -> Result<Call, Fault> {
        let Settings { target, body, key, .. } = &self.settings;
        let mut path = Vec::new();
        target.path.append_with(tuple, &mut path, |text| encoded(text, IN_PATH))?;
        let key = key.filled(tuple)?;
        let key = encoded(&[self.key_prefix.as_bytes(), &key].concat(), IN_KEY);
        let body = match body {
            Some(template) => template.filled(tuple)?,
            None => object(tuple)?,
        };
        let body = body.into();
        let path = String::from_utf8(path).map_err(|error| Fault::fatal(error.to_string()))?;
        Ok(Call { tuple: tuple.id(), path, key: format!("\"{}\"", String::from_utf8_lossy(&key)), body })
    }
}

impl Bolt for HttpSink {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        let topology = &context.plan().topology().name;
        self.key_prefix = format!("{topology}:{}:", context.id());
        self.caller = Some(Caller::start(&self.settings, context, &self.clock)?);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let waiting = self.waiting.len();
        self.open - waiting < self.settings.requests && waiting < WAITING_MAX
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let call = self.call(tuple)?;
        let caller = self.caller.as_ref().ok_or_else(|| Fault::silent("it is not prepared"))?;
        caller.call(call)?;
        self.open += 1;
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let Some(caller) = &self.caller else { return Ok(()) };
        let mut said = Ok(());
        for (tuple, news) in caller.told() {
            let result = match news {
                News::Waits(error) => {
                    self.waiting.insert(tuple);
                    out.extend(tuple).unwrap_or(());
                    said = error.map_or(said, |error| Err(Fault::silent(error)));
                    continue;
                }
                News::Done(result) => result,
            };
            self.waiting.remove(&tuple);
            self.open -= 1;
            // The tuple may be gone: the runner fails all when a component panics.
            match result {
                Ok(()) => out.ack(tuple).unwrap_or(()),
                Err(fault) => {
                    out.fail(tuple, &fault).unwrap_or(());
                    said = Err(fault);
                }
            }
        }
        said
    }

    fn close(&mut self) {
        self.caller = None;
    }
}

impl Target {
    /// Reads a URL with `{field}` in path and query.
    ///
    /// # Errors
    /// It is none, or a field would choose where the request goes.
    fn read(text: &str) -> Result<Self, CommandError> {
        let no = |why: &str| CommandError::from(format!("`{text}` is no URL for this: {why}"));
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| no("it must begin with http:// or https://"))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains(['{', '}']) || scheme.contains(['{', '}']) {
            return Err(no("a field may be in path and query alone, not where the server is"));
        }
        if authority.contains('@') {
            return Err(no("put user and password into a variable of the environment (--authorization-env)"));
        }
        let url = Url::parse(&format!("{scheme}://{authority}/")).map_err(|error| no(&error.to_string()))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(no("it must begin with http:// or https://")),
        };
        let host = url.host_str().ok_or_else(|| no("it has no host"))?.trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().ok_or_else(|| no("it has no port"))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if path.contains('#') || path.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(no("its path has characters that must be percent-encoded, or a fragment"));
        }
        let path = Template::read(&path)?;
        Ok(Self { is_tls, host, port, authority: url.authority().to_owned(), path })
    }
}

/// A JSON object of all fields.
fn object(tuple: &Tuple<'_>) -> Result<Vec<u8>, Fault> {
    let mut object = Map::new();
    for name in &tuple.stream().fields {
        let value = tuple.get(name.as_str()).map_err(|error| Fault::fatal(error.to_string()))?;
        let value =
            json(&value).map_err(|why| Fault::fatal(format!("field `{name}` is not in JSON: {why}")))?;
        object.insert(name.clone(), value);
    }
    serde_json::to_vec(&object).map_err(|error| Fault::fatal(error.to_string()))
}

pub(crate) fn json(value: &Value<'_>) -> Result<Json, &'static str> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Float(value) if value.is_finite() => Json::from(*value),
        Value::Float(_) => return Err("it is not a finite number"),
        Value::Str(text) => Json::from(text.as_ref()),
        Value::Bytes(bytes) => {
            Json::from(std::str::from_utf8(bytes).map_err(|_| "its bytes are not UTF-8: use --body")?)
        }
        Value::List(values) => Json::Array(values.iter().map(json).collect::<Result<_, _>>()?),
    })
}

/// `text` with all of `set` percent-encoded, and all that is not ASCII.
fn encoded(text: &[u8], set: &'static AsciiSet) -> Vec<u8> {
    percent_encoding::percent_encode(text, set).collect::<String>().into_bytes()
}

fn settings(arguments: &Arguments) -> Result<Settings, CommandError> {
    let key = arguments.text("--key");
    let key = key.ok_or("`--key` is missing: without it a request that is sent again does its work twice")?;
    Ok(Settings {
        target: Target::read(&arguments.words()[0])?,
        body: arguments.text("--body").map(Template::read).transpose()?,
        content_type: arguments.text("--content-type").unwrap_or_default().to_owned(),
        key: Template::read(key)?,
        authorization_env: arguments.text("--authorization-env").map(str::to_owned),
        ca: arguments.text("--ca").map(str::to_owned),
        requests: arguments.number("--requests").unwrap_or(1) as usize,
        timeout: Duration::from_millis(arguments.number("--timeout-ms").unwrap_or(1)),
    })
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let settings = settings(arguments)?;
    let fields = [&settings.target.path, &settings.key].into_iter().chain(&settings.body);
    let reads = fields.flat_map(Template::fields).cloned().collect();
    let reach = match (&settings.ca, &settings.authorization_env) {
        (Some(_), _) => Reach::Machine("--ca"),
        (_, Some(_)) => Reach::Machine("--authorization-env"),
        _ => Reach::Host(settings.target.host.clone()),
    };
    let factory = Factory::bolt(move || HttpSink::new(settings.clone(), Arc::new(SystemClock)));
    Ok(Made {
        factory,
        reads,
        reach,
        emits: Emits::Nothing,
        exact: Exact::None("a web server is not part of an epoch"),
    })
}

/// Tuples that wait for a connection.
const WAITING_MAX: usize = 100_000;
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The header's value is text in quotes.
const IN_KEY: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "http-sink",
    what: "posts each tuple to a URL",
    signature: Signature {
        words: "URL",
        words_count: (1, 1),
        options: &[
            Opt {
                name: "--key",
                value: Kind::Text,
                default: "",
                what: "text of the header Idempotency-Key behind the names of topology and component, with `{field}` for values; needed",
            },
            Opt {
                name: "--body",
                value: Kind::Text,
                default: "",
                what: "the body, with `{field}` for values; without it a JSON object of all fields",
            },
            Opt {
                name: "--content-type",
                value: Kind::Text,
                default: "application/json",
                what: "what the body is",
            },
            Opt {
                name: "--authorization-env",
                value: Kind::Text,
                default: "",
                what: "variable of the environment that has the header Authorization",
            },
            Opt {
                name: "--requests",
                value: Kind::Number(1, 1_000),
                default: "8",
                what: "requests of one task that may be under way",
            },
            Opt {
                name: "--timeout-ms",
                value: Kind::Number(1, 600_000),
                default: "10000",
                what: "time for a request with its answer (ms)",
            },
            Opt {
                name: "--ca",
                value: Kind::Text,
                default: "",
                what: "file with certificates (PEM) of who may sign the server's; without it those of Mozilla's list",
            },
        ],
    },
    keeps: &[],
    make,
};
