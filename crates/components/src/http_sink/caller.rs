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
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsConnector;
use topology::bolt::TupleId;
use topology::component::{Fault, Waker};

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
    pub(super) body: Vec<u8>,
}

/// What became of a tuple.
pub(super) type Done = (TupleId, Result<(), Fault>);

/// The component's side. When it is dropped the thread ends, and what is under way is given up.
pub(super) struct Caller {
    calls: UnboundedSender<Call>,
    done: Receiver<Done>,
}

/// The thread's side.
struct Client {
    settings: Settings,
    authorization: Option<HeaderValue>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Connections whose server waits for the next request, and since when.
    idle: RefCell<Vec<(SendRequest<Full<Bytes>>, Nanos)>>,
    gate: RefCell<Gate>,
    /// Who it is for, in the log.
    id: String,
    done: Sender<Done>,
    waker: Waker,
    clock: Arc<dyn Clock>,
}

impl Caller {
    /// Starts the thread; `waker` is called when there are results.
    ///
    /// # Errors
    /// A file or a variable is not there, or the system has no thread.
    pub(super) fn start(
        settings: &Settings,
        id: &str,
        waker: Waker,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let (calls, to_make) = unbounded_channel();
        let (sender, done) = channel();
        let client = Client::new(settings.clone(), id, (sender, waker), Arc::clone(clock))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name(format!("http of {id}")).spawn(move || {
            LocalSet::new().block_on(&runtime, run(Rc::new(client), to_make));
        })?;
        Ok(Self { calls, done })
    }

    /// Has a request made.
    ///
    /// # Errors
    /// The thread has ended.
    pub(super) fn call(&self, call: Call) -> Result<(), Fault> {
        self.calls.send(call).map_err(|_| Fault::silent("its thread has ended"))
    }

    /// What has become of requests since the last call.
    pub(super) fn results(&self) -> impl Iterator<Item = Done> {
        self.done.try_iter()
    }
}

async fn run(client: Rc<Client>, mut calls: UnboundedReceiver<Call>) {
    while let Some(call) = calls.recv().await {
        let client = Rc::clone(&client);
        spawn_local(async move {
            let tuple = call.tuple;
            let result = client.post(call).await;
            // Nobody hears it when the component was closed.
            let _ = client.done.send((tuple, result));
            client.waker.wake();
        });
    }
}

impl Client {
    fn new(
        settings: Settings,
        id: &str,
        (done, waker): (Sender<Done>, Waker),
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let authorization = settings.authorization_env.as_deref().map(authorization).transpose()?;
        let tls = if settings.target.is_tls {
            let name = ServerName::try_from(settings.target.host.clone())?;
            Some((TlsConnector::from(tls::config(settings.ca.as_deref())?), name))
        } else {
            None
        };
        let (idle, gate, id) = (RefCell::default(), RefCell::default(), id.to_owned());
        Ok(Self { settings, authorization, tls, idle, gate, id, done, waker, clock })
    }

    async fn post(&self, call: Call) -> Result<(), Fault> {
        let limit = self.settings.timeout;
        let begun = self.clock.now();
        match tokio::time::timeout(limit, self.exchange(begun, call)).await {
            Ok(answer) => answer?.verdict(self.clock.unix_us() / 1_000_000),
            Err(_) => Err(Fault::new(format!("no answer within {limit:?} (--timeout-ms)"))),
        }
    }

    /// One request and its answer. A connection that was kept may have been closed meanwhile: then a new one is tried.
    async fn exchange(&self, begun: Nanos, call: Call) -> Result<Answer, Fault> {
        let body = Bytes::from(call.body);
        let request = || self.request(&call.path, &call.key, body.clone());
        while let Some(kept) = self.kept() {
            if let Ok(answer) = self.send(kept, request()?).await {
                return Ok(answer);
            }
        }
        let host = &self.settings.target.authority;
        let new = self.connect_by_gate(begun).await?;
        let answer = self.send(new, request()?).await;
        answer.map_err(|error| Fault::new(format!("the connection to {host} broke: {error}")))
    }

    /// A new connection, unless one has failed a short while ago.
    async fn connect_by_gate(&self, begun: Nanos) -> Result<SendRequest<Full<Bytes>>, Fault> {
        let host = &self.settings.target.authority;
        let fault =
            |pause, error: &str| Fault::silent(format!("no connection to {host}: {error}")).after(pause);
        if let Some((pause, error)) = self.gate.borrow().closed(begun) {
            return Err(fault(pause, error));
        }
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
        let now = self.clock.now();
        let mut gate = self.gate.borrow_mut();
        if let Some(pause) = gate.on_failure(begun, now, &error) {
            tracing::warn!(
                component = self.id,
                host,
                error,
                ?pause,
                "there is no connection: it is tried again after a pause"
            );
        }
        let (pause, _) = gate.closed(now).unwrap_or_default();
        Err(fault(pause, &error))
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
const BODY_BYTES_MAX: usize = 64 << 10;
const EXCERPT_BYTES: usize = 200;
