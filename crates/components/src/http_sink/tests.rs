//! The sink with a real server, in plain text and in TLS.
#![allow(clippy::disallowed_methods, reason = "tests have a server and its certificate")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use clock::{SimClock, UnixMs};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::testing::{Stand, made};

/// A server of one connection at a time, which gives the next of `answers` to each request.
struct Server {
    url: String,
    requests: Receiver<Request>,
}

#[derive(Debug)]
struct Request {
    line: String,
    headers: Vec<String>,
    body: String,
    /// How many connections there were before.
    connection: usize,
}

/// A connection that was accepted.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Server {
    fn new(answers: &[&'static str]) -> Self {
        Self::start("http", answers.to_vec(), |stream| Box::new(stream))
    }

    fn start(
        scheme: &str,
        answers: Vec<&'static str>,
        wrap: impl Fn(std::net::TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").expect("a port"), scheme, answers, wrap)
    }

    fn start_on(
        listener: TcpListener,
        scheme: &str,
        answers: Vec<&'static str>,
        wrap: impl Fn(std::net::TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Self {
        let url = format!("{scheme}://localhost:{}", listener.local_addr().expect("it is bound").port());
        let (sender, requests) = channel();
        let mut answers = answers.into_iter();
        let serve = move || {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept() else { return };
                if attend(wrap(stream), connection, &mut answers, &sender).is_none() {
                    return;
                }
            }
        };
        thread::Builder::new().name("server".to_owned()).spawn(serve).expect("a thread");
        Self { url, requests }
    }

    fn request(&self) -> Request {
        self.requests.recv_timeout(Duration::from_secs(20)).expect("a request")
    }
}

/// Answers requests of a connection until it ends; `None`: there are no more answers.
fn attend(
    stream: Box<dyn Stream>,
    connection: usize,
    answers: &mut std::vec::IntoIter<&'static str>,
    sender: &Sender<Request>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return Some(());
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        stream.read_exact(&mut body).expect("the body");
        let body = String::from_utf8(body).expect("text");
        let request = Request { line: lines.remove(0), headers: lines, body, connection };
        sender.send(request).ok()?;
        let answer = answers.next()?;
        if answer == BREAKS {
            return Some(());
        }
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const BREAKS: &str = "";

fn sink(url: &str, options: &str) -> Stand<HttpSink> {
    sink_at(url, options, Arc::new(SystemClock))
}

fn sink_at(url: &str, options: &str, clock: Arc<dyn Clock>) -> Stand<HttpSink> {
    let text = format!("{url} {options}");
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let arguments = Arguments::read(&ROW.signature, &words).expect("they fit");
    let settings = settings(&arguments).expect("they are right");
    Stand::bolt(HttpSink::new(settings, clock), &["id", "word"], &["nothing"])
}

/// Gives the sink a tuple, and waits until it is finished.
fn post(stand: &mut Stand<HttpSink>, id: i64, word: &str) {
    let finished = |stand: &Stand<HttpSink>| stand.record.acked.len() + stand.record.failed.len();
    let before = finished(stand);
    stand.execute(&[Value::from(id), Value::from(word)]);
    while finished(stand) == before {
        stand.rest();
        stand.wake();
    }
}

#[test]
fn tuple_is_posted_with_a_key_and_acknowledged_by_the_answer() {
    let server = Server::new(&[OK, OK]);
    let mut stand = sink(&format!("{}/orders/{{word}}?by={{id}}", server.url), "--key {id}");
    post(&mut stand, 7, "a b/é");
    post(&mut stand, 8, "b");
    let request = server.request();
    assert_eq!(request.line, "POST /orders/a%20b%2F%C3%A9?by=7 HTTP/1.1");
    assert_eq!(request.body, "{\"id\":7,\"word\":\"a b/é\"}");
    for header in
        ["idempotency-key: \"test:bolt:7\"", "content-type: application/json", "user-agent: evenkeel"]
    {
        assert!(request.headers.iter().any(|line| line == header), "{header}: {:?}", request.headers);
    }
    assert_eq!(server.request().connection, 0, "the connection is kept");
    assert_eq!(stand.record.acked, [1, 2]);
}

#[test]
fn body_is_a_text_and_the_key_is_the_same_whenever_it_is_sent() {
    let server = Server::new(&["HTTP/1.1 500 no\r\ncontent-length: 4\r\n\r\noops", OK]);
    let mut stand = sink(&server.url, "--key {word}:\"{id} --body <{word}> --content-type text/xml");
    post(&mut stand, 1, "é");
    post(&mut stand, 1, "é");
    assert_eq!(stand.record.failed, [(1, "the server answered 500: `oops`".to_owned())]);
    assert_eq!(stand.record.acked, [2]);
    let requests = [server.request(), server.request()];
    for request in &requests {
        assert_eq!((&*request.line, &*request.body), ("POST / HTTP/1.1", "<é>"));
        let key = "idempotency-key: \"test:bolt:%C3%A9:%221\"";
        assert!(request.headers.iter().any(|line| line == key), "{:?}", request.headers);
    }
}

/// What is between forgets a connection that rests, without a word to either end: the next request waited for its whole time.
#[test]
fn connection_that_has_rested_for_an_hour_is_not_used_again() {
    let server = Server::new(&[OK, OK, OK]);
    let clock = Arc::new(SimClock::new(UnixMs(1)));
    let mut stand = sink_at(&server.url, "--key {id}", Arc::clone(&clock) as Arc<dyn Clock>);
    for (id, rests_s) in [(1, 29), (2, 3_600), (3, 0)] {
        post(&mut stand, id, "w");
        clock.advance(Duration::from_secs(rests_s));
    }
    let connections: Vec<usize> = (0..3).map(|_| server.request().connection).collect();
    assert_eq!((connections, &stand.record.acked[..]), (vec![0, 0, 1], &[1, 2, 3][..]));
}

#[test]
fn connection_that_breaks_fails_its_tuple_and_another_one_is_made() {
    let server = Server::new(&[OK, BREAKS, BREAKS, OK]);
    let mut stand = sink(&server.url, "--key {id}");
    for id in 1..=3 {
        post(&mut stand, id, "w");
    }
    assert_eq!(stand.record.acked, [1, 3]);
    let (failed, error) = &stand.record.failed[0];
    assert!(*failed == 2 && error.contains("broke"), "{error}");
    let connections: Vec<usize> = (0..4).map(|_| server.request().connection).collect();
    assert_eq!(connections, [0, 0, 1, 2], "one that was kept is followed by a new one at once");
}

/// Waits until the sink shows an error.
fn shown(stand: &mut Stand<HttpSink>) -> String {
    loop {
        stand.rest();
        stand.wake();
        if let Some(said) = stand.record.said.take() {
            return said;
        }
    }
}

/// Each tuple failed when it was tried, and with it all else that came of its spout's tuple was repeated.
#[test]
fn tuples_wait_for_a_server_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let mut stand = sink(&format!("http://127.0.0.1:{port}"), "--key {id} --requests 1");
    let give = |stand: &mut Stand<HttpSink>, id: i64| stand.execute(&[Value::from(id), Value::from("w")]);
    give(&mut stand, 1);
    let said = shown(&mut stand);
    assert!(said.starts_with(&format!("no connection to 127.0.0.1:{port}: ")), "{said}");
    // What waits for a connection is not under way.
    for id in 2..=4 {
        while !stand.component.is_ready() {
            stand.rest();
            stand.wake();
        }
        give(&mut stand, id);
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("nobody else has it");
    let server = Server::start_on(listener, "http", vec![OK; 4], |stream| Box::new(stream));
    while stand.record.acked.len() < 4 {
        stand.rest();
        stand.wake();
    }
    assert!(stand.record.failed.is_empty(), "{:?}", stand.record.failed);
    let mut lines: Vec<String> = (0..4).map(|_| server.request().headers.join("\n")).collect();
    lines.dedup();
    assert_eq!(lines.len(), 4, "each once: {lines:?}");
}

#[test]
fn server_that_says_nothing_fails_the_tuple() {
    // It accepts, by its backlog, and never reads.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("it is bound"));
    let mut stand = sink(&url, "--key {id} --timeout-ms 50");
    post(&mut stand, 1, "w");
    assert_eq!(stand.record.failed, [(1, "no answer within 50ms (--timeout-ms)".to_owned())]);
}

#[test]
fn no_more_requests_are_under_way_than_may_be() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("it is bound"));
    let mut stand = sink(&url, "--key {id} --requests 2");
    for (id, is_ready) in [(1, true), (2, true), (3, false)] {
        assert_eq!(stand.component.is_ready(), is_ready);
        if is_ready {
            stand.execute(&[Value::from(id), Value::from("w")]);
        }
    }
}

#[test]
fn server_proves_its_name_in_tls() {
    let key = KeyPair::generate().expect("a key");
    let certificate = |name: &str| {
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.self_signed(&key).expect("a certificate")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let ca = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, certificate(name).pem()).expect("it is written");
        path.display().to_string()
    };
    let start = |name: &str| {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate(name).der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("it is its key");
        let config = Arc::new(config);
        Server::start("https", vec![OK], move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            Box::new(StreamOwned::new(session, stream))
        })
    };
    let server = start("localhost");
    let mut stand = sink(&server.url, &format!("--key {{id}} --ca {}", ca("localhost")));
    post(&mut stand, 1, "w");
    assert_eq!((stand.record.acked.len(), &*server.request().body), (1, "{\"id\":1,\"word\":\"w\"}"));
    for (name, trusted) in [("localhost", None), ("other", Some(ca("other")))] {
        let server = start(name);
        let options = trusted.map_or_else(String::new, |path| format!(" --ca {path}"));
        let mut stand = sink(&server.url, &format!("--key {{id}}{options}"));
        stand.execute(&[Value::from(1), Value::from("w")]);
        let error = shown(&mut stand);
        assert!(error.contains("no connection") && error.contains("certificate"), "{error}");
    }
}

#[test]
fn fields_never_choose_the_server() {
    let refused = |url: &str| made(&ROW, &format!("{url} --key {{id}}")).expect_err("refused");
    for url in
        ["http://{word}/", "http://example.com{word}", "{word}://a/", "https://a:{id}/x", "http://{word}?x"]
    {
        assert!(refused(url).contains("not where the server is"), "{url}: {}", refused(url));
    }
    assert!(refused("ftp://a/").contains("it must begin with http:// or https://"));
    assert!(refused("a/b").contains("it must begin with http:// or https://"));
    assert!(refused("http://me:secret@a/").contains("--authorization-env"));
    assert!(refused("http://a/x#y").contains("a fragment"));
    assert!(refused("http:///x").contains("is no URL"));
    assert!(made(&ROW, "http://a/").expect_err("refused").contains("`--key` is missing"));
    assert_eq!(made(&ROW, "http://[::1]:8/{word} --key {id}").expect("right").reads, ["word", "id"]);
}

#[test]
fn values_that_are_not_in_json_are_dead_letters() {
    let mut stand = sink("http://127.0.0.1:1", "--key {id}");
    stand.execute(&[Value::from(1), Value::from(f64::NAN)]);
    stand.execute(&[Value::from(1), Value::Bytes(b"\xFF"[..].into())]);
    let errors: Vec<&str> = stand.record.failed.iter().map(|(_, error)| &**error).collect();
    let expected = [
        "field `word` is not in JSON: it is not a finite number",
        "field `word` is not in JSON: its bytes are not UTF-8: use --body",
    ];
    assert_eq!(errors, expected);
}
