//! The thread that talks to the server: connections that are kept, requests at the same time, a time for each.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use clock::{Clock, Nanos};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsConnector;
use topology::bolt::TupleId;
use topology::component::{Context, Fault, Waker};

use super::answer::Answer;
use super::gate::Gate;
use super::{Settings, tls};

/// A request for a tuple.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) tuple: TupleId,
    /// Path and query.
    pub(super) path: String,
    pub(super) key: String,
    pub(super) body: Bytes,
}

/// What the thread tells of a tuple.
pub(super) type TupleNews = (TupleId, News);

/// What has become of a tuple.
#[derive(Debug)]
pub(super) enum News {
    /// It waits for a connection. Each failure to make one is told once.
    Waits(Option<String>),
    /// It was posted, or is not posted again from here.
    Done(Result<(), Fault>),
}

/// Why there is no answer.
enum Trouble {
    /// There is no connection; an error that was not told.
    Away(Option<String>),
    /// The request has failed.
    Failed(Fault),
}

/// The component's side. When it is dropped the thread ends, and what is under way is given up.
pub(super) struct Caller {
    calls: UnboundedSender<Call>,
    told: Receiver<TupleNews>,
}

/// The thread's side.
struct Client {
    settings: Settings,
    authorization: Option<HeaderValue>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Connections whose server waits for the next request, and since when.
    idle: RefCell<Vec<(SendRequest<Full<Bytes>>, Nanos)>>,
    gate: RefCell<Gate>,
    /// Requests that may be under way.
    turns: Semaphore,
    /// A tuple that waits is told of as often as this, so that it does not time out.
    every: Duration,
    /// Who it is for, in the log.
    id: String,
    told: Sender<TupleNews>,
    waker: Waker,
    clock: Arc<dyn Clock>,
}

impl Caller {
    /// Starts the thread, for the component of `context`, which is woken when something is told.
    ///
    /// # Errors
    /// A file or a variable is not there, or the system has no thread.
    pub(super) fn start(
        settings: &Settings,
        context: &Context<'_>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let (calls, to_make) = unbounded_channel();
        let (sender, told) = channel();
        let id = context.id();
        let client = Client::new(settings.clone(), context, sender, Arc::clone(clock))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name(format!("http of {id}")).spawn(move || {
            LocalSet::new().block_on(&runtime, run(Rc::new(client), to_make));
        })?;
        Ok(Self { calls, told })
    }

    /// Has a request made.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn call(&self, call: Call) -> Result<(), Fault> {
        self.calls.send(call).map_err(|_| Fault::silent("its thread has ended"))
    }

    /// What was told of tuples since the last call.
    pub(super) fn told(&self) -> impl Iterator<Item = TupleNews> {
        self.told.try_iter()
    }
}

async fn run(client: Rc<Client>, mut calls: UnboundedReceiver<Call>) {
    while let Some(call) = calls.recv().await {
        let client = Rc::clone(&client);
        spawn_local(async move {
            let tuple = call.tuple;
            let result = client.post(call).await;
            client.tell(tuple, News::Done(result));
        });
    }
}

impl Client {
    fn new(
        settings: Settings,
        context: &Context<'_>,
        told: Sender<TupleNews>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let authorization = settings.authorization_env.as_deref().map(authorization).transpose()?;
        let tls = if settings.target.is_tls {
            let name = ServerName::try_from(settings.target.host.clone())?;
            Some((TlsConnector::from(tls::config(settings.ca.as_deref())?), name))
        } else {
            None
        };
        let (idle, gate) = (RefCell::default(), RefCell::default());
        let (id, waker, turns) =
            (context.id().to_owned(), context.waker(), Semaphore::new(settings.requests));
        let every = (context.plan().settings().message_timeout / 4).min(EVERY_MAX);
        Ok(Self { settings, authorization, tls, idle, gate, turns, every, id, told, waker, clock })
    }

    fn tell(&self, tuple: TupleId, news: News) {
        // Nobody hears it when the component was closed.
        let _ = self.told.send((tuple, news));
        self.waker.wake();
    }

    /// How long no connection is to be tried.
    fn closed(&self) -> Option<Duration> {
        self.gate.borrow().closed(self.clock.now())
    }

    /// Posts a tuple when there is a connection.
    async fn post(&self, call: Call) -> Result<(), Fault> {
        let limit = self.settings.timeout;
        loop {
            while let Some(pause) = self.closed() {
                self.tell(call.tuple, News::Waits(None));
                tokio::time::sleep(pause.min(self.every)).await;
            }
            let _turn = self.turns.acquire().await.map_err(|error| Fault::silent(error.to_string()))?;
            let begun = self.clock.now();
            if self.closed().is_some() {
                continue; // it was closed while this one waited
            }
            match tokio::time::timeout(limit, self.exchange(begun, &call)).await {
                Ok(Ok(answer)) => return answer.verdict(self.clock.unix_us() / 1_000_000),
                Ok(Err(Trouble::Away(error))) => self.tell(call.tuple, News::Waits(error)),
                Ok(Err(Trouble::Failed(fault))) => return Err(fault),
                Err(_) => return Err(Fault::new(format!("no answer within {limit:?} (--timeout-ms)"))),
            }
        }
    }

    /// One request and its answer. A connection that was kept may have been closed meanwhile: then a new one is tried.
    async fn exchange(&self, begun: Nanos, call: &Call) -> Result<Answer, Trouble> {
        let request = || self.request(&call.path, &call.key, call.body.clone()).map_err(Trouble::Failed);
        while let Some(kept) = self.kept() {
            if let Ok(answer) = self.send(kept, request()?).await {
                return Ok(answer);
            }
        }
        let host = &self.settings.target.authority;
        let new = self.connect_by_gate(begun).await?;
        let answer = self.send(new, request()?).await;
        answer
            .map_err(|error| Trouble::Failed(Fault::new(format!("the connection to {host} broke: {error}"))))
    }

    /// A new connection. If there is none, none is tried for a while.
    async fn connect_by_gate(&self, begun: Nanos) -> Result<SendRequest<Full<Bytes>>, Trouble> {
        let host = &self.settings.target.authority;
        let limit = self.settings.timeout / 2;
        let error = match tokio::time::timeout(limit, self.connect()).await {
            Ok(Ok(new)) => {
                let failures = self.gate.borrow_mut().on_connected();
                if failures > 0 {
                    tracing::info!(component = self.id, host, failures, "there is a connection again");
                }
                return Ok(new);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("none within {limit:?}, half of --timeout-ms"),
        };
        let pause = self.gate.borrow_mut().on_failure(begun, self.clock.now());
        Err(Trouble::Away(pause.map(|pause| {
            tracing::warn!(
                component = self.id,
                host,
                error,
                ?pause,
                "there is no connection: it is tried again after a pause"
            );
            format!("no connection to {host}: {error}; the next attempt is in {} ms", pause.as_millis())
        })))
    }

    fn kept(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.borrow_mut();
        let now = self.clock.now();
        idle.retain(|(connection, since)| !connection.is_closed() && now.since(*since) < IDLE_MAX);
        idle.pop().map(|(connection, _)| connection)
    }

    fn request(&self, path: &str, key: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Fault> {
        let mut builder = Request::post(path)
            .header(HOST, &self.settings.target.authority)
            .header(USER_AGENT, "evenkeel")
            .header(CONTENT_TYPE, &self.settings.content_type)
            .header("idempotency-key", key);
        if let Some(authorization) = &self.authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        builder.body(Full::new(body)).map_err(|error| Fault::fatal(format!("it makes no request: {error}")))
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let target = &self.settings.target;
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => handshake(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                handshake(TokioIo::new(connector.connect(name.clone(), stream).await?)).await
            }
        }
    }

    /// Sends a request, and keeps the connection if its answer was read to the end.
    async fn send(
        &self,
        mut connection: SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Answer> {
        connection.ready().await?;
        let response = connection.send_request(request).await?;
        let (answer, is_whole) = read(response).await;
        if is_whole {
            self.idle.borrow_mut().push((connection, self.clock.now()));
        }
        Ok(answer)
    }
}

async fn handshake(stream: impl Read + Write + Unpin + 'static) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    // What goes wrong with it is told to who sends.
    spawn_local(async move { drop(connection.await) });
    Ok(sender)
}

/// The answer, and whether its body was read to the end.
async fn read(response: Response<Incoming>) -> (Answer, bool) {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(str::to_owned);
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
    let is_whole = body.is_ok();
    let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]);
    let begin = begin.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    (Answer { status, retry_after, begin }, is_whole)
}

fn authorization(name: &str) -> Result<HeaderValue, Fault> {
    let value = std::env::var(name)
        .map_err(|error| Fault::new(format!("the variable {name} of the environment: {error}")))?;
    let mut value = HeaderValue::try_from(value)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A connection that rests for longer is not used again: what is between may have forgotten it, and the request would wait for its whole time.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Time between two words of a tuple that waits for a connection.
const EVERY_MAX: Duration = Duration::from_secs(5);
const BODY_BYTES_MAX: usize = 64 << 10;
const EXCERPT_BYTES: usize = 200;
