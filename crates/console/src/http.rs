//! The page over HTTP/1.1, within bounds that a misbehaving client cannot move.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, LocalSet};

use crate::{Api, Ready};

/// Makes what is served.
pub(crate) struct Pages {
    /// For Prometheus.
    pub(crate) page: Box<dyn Fn() -> String + Send>,
    /// For a browser.
    pub(crate) console: &'static str,
    /// JSON by path.
    pub(crate) api: Api,
    pub(crate) ready: Ready,
}

/// What all connections share.
struct Site {
    pages: Pages,
    hosts: Vec<String>,
    /// Counts what connections did: the one with the least did nothing for longest.
    moves: Cell<u64>,
}

/// A connection that is served.
struct Served {
    /// When it was accepted, or asked last: [`Site::moves`] then.
    moved: Rc<Cell<u64>>,
    task: AbortHandle,
}

/// Serves `pages` until it is dropped.
pub(crate) async fn serve(listener: TcpListener, pages: Pages, hosts: Vec<String>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics.listen: nothing is served"),
    };
    let site = Rc::new(Site { pages, hosts, moves: Cell::default() });
    let mut connections: Vec<Served> = Vec::new();
    let accept = async {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // No descriptors, mostly: they come back when somebody closes one.
                    tracing::debug!(%error, "metrics.listen: a connection was not accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            connections.retain(|connection| !connection.task.is_finished());
            if connections.len() >= CONNECTIONS_MAX {
                // Sixteen that say nothing kept everybody out.
                let idlest = (0..connections.len()).min_by_key(|index| connections[*index].moved.get());
                idlest.map(|index| connections.swap_remove(index)).inspect(|idlest| idlest.task.abort());
            }
            let moved = Rc::new(Cell::new(site.moved()));
            let served = connection(stream, Rc::clone(&site), Rc::clone(&moved));
            connections.push(Served { moved, task: tokio::task::spawn_local(served).abort_handle() });
        }
    };
    LocalSet::new().run_until(accept).await;
}

async fn connection(stream: TcpStream, site: Rc<Site>, moved: Rc<Cell<u64>>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        moved.set(site.moved());
        let response = if is_known(&request, &site.hosts) {
            answer(request.method(), request.uri().path(), &site.pages)
        } else {
            text(StatusCode::MISDIRECTED_REQUEST, UNKNOWN_HOST.to_owned())
        };
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME_MAX)
        .max_buf_size(HEADERS_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // Idle or slow, its time ends; Prometheus connects again by itself. A broken connection is the client's affair.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, served).await;
}

impl Site {
    fn moved(&self) -> u64 {
        self.moves.set(self.moves.get() + 1);
        self.moves.get()
    }
}

/// Whether the request is for an IP address, `localhost`, or one of `hosts`, wherever it says so. One that names no host is from no
/// web page.
fn is_known<T>(request: &Request<T>, hosts: &[String]) -> bool {
    let in_header = request.headers().get_all(HOST).iter().map(|value| value.to_str().unwrap_or("?"));
    let in_target = request.uri().authority().map(Authority::as_str);
    in_header.chain(in_target).all(|host| is_known_host(host, hosts))
}

fn is_known_host(host: &str, hosts: &[String]) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    v6.map_or(name.parse::<Ipv4Addr>().is_ok(), |v6| v6.parse::<Ipv6Addr>().is_ok())
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn answer(method: &Method, path: &str, pages: &Pages) -> Response<Full<Bytes>> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if reads && LIVE.contains(&path) {
        return text(StatusCode::OK, "alive\n".to_owned());
    }
    let ready = if reads { (pages.ready)() } else { Ok(()) };
    if let Err(why) = ready {
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    }
    if reads && READY.contains(&path) {
        return text(StatusCode::OK, "ready\n".to_owned());
    }
    if let Some(json) = Some(path).filter(|path| reads && path.starts_with("/api/")).and_then(&pages.api) {
        let (status, json) = match json {
            Ok(json) => (StatusCode::OK, json),
            Err(json) => (StatusCode::NOT_FOUND, json),
        };
        let mut response = text(status, json);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return response;
    }
    if reads && path == "/console" {
        return html(pages.console);
    }
    let (status, body) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, (pages.page)()),
        (&Method::GET | &Method::HEAD, "/") => (
            StatusCode::OK,
            "In a browser: /console\nFigures for Prometheus: /metrics\nTopologies as JSON: /api/v1/topology/summary\nLoops as JSON: /api/v1/loops\nWhether the process lives: /health\nWhether it serves: /ready\n"
                .to_owned(),
        ),
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "there is no such page: see /\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned()),
    };
    let mut response = text(status, body);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// A page whose script may ask this server alone, and that no other page may show as a part of itself.
fn html(page: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(Bytes::from_static(page.as_bytes())));
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONSOLE_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    response.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
    response
}

/// The process runs: what else goes wrong, another start would not mend. The second names are those of Kubernetes' own parts.
const LIVE: [&str; 3] = ["/health", "/healthz", "/livez"];
/// It serves clients.
const READY: [&str; 2] = ["/ready", "/readyz"];
const UNKNOWN_HOST: &str =
    "this host is unknown here: ask by IP address or localhost, or name it in metrics.hosts\n";
const CONSOLE_POLICY: &str = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
/// Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// From the beginning of a request to the end of its headers.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(5);
/// A request's headers as a whole; hyper takes no less than 8 KiB.
const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// From accept to close.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// Between two tries to accept when the first one failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(ready: Result<(), &'static str>) -> Pages {
        Pages {
            page: Box::new(|| "figures\n".to_owned()),
            console: "<html>",
            api: Box::new(|path| (path == "/api/v1/loops").then(|| Ok("[]".to_owned()))),
            ready: Box::new(move || ready),
        }
    }

    #[test]
    fn process_is_alive_while_it_starts_and_ready_when_it_serves() {
        let status = |pages: &Pages, path: &str| answer(&Method::GET, path, pages).status().as_u16();
        let (starts, serves) = (pages(Err("it starts")), pages(Ok(())));
        for path in ["/health", "/healthz", "/livez"] {
            assert_eq!((status(&starts, path), status(&serves, path)), (200, 200), "{path}");
        }
        for path in ["/ready", "/readyz", "/metrics", "/api/v1/loops", "/console"] {
            assert_eq!((status(&starts, path), status(&serves, path)), (503, 200), "{path}");
        }
        assert_eq!(answer(&Method::HEAD, "/ready", &serves).status().as_u16(), 200);
        assert_eq!(answer(&Method::POST, "/ready", &serves).status().as_u16(), 405);
        assert_eq!(status(&serves, "/healthy"), 404);
    }

    /// A web page whose own name was made to lead to this machine could read the figures: it sends that name.
    #[test]
    fn requests_are_for_addresses_localhost_and_named_hosts_alone() {
        let hosts = ["evenkeel.internal".to_owned()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:9379",
            "10.0.0.5:9379",
            "[::1]",
            "[::1]:9379",
            "localhost",
            "LocalHost:9379",
            "evenkeel.internal",
            "Evenkeel.Internal:9379",
        ] {
            assert!(is_known_host(host, &hosts), "{host}");
        }
        for host in [
            "",
            "x",
            "evil.example",
            "evil.example:9379",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::1",
            "127.0.0.1@evil.example",
            "[::1",
            "localhost:x",
        ] {
            assert!(!is_known_host(host, &hosts), "{host}");
        }
        let request = |target: &str, host: Option<&str>| {
            let request = Request::builder().uri(target);
            let request = if let Some(host) = host { request.header(HOST, host) } else { request };
            is_known(&request.body(()).expect("a request"), &hosts)
        };
        assert!(request("/metrics", None) && request("/metrics", Some("localhost")));
        assert!(!request("/metrics", Some("evil.example")));
        assert!(!request("http://evil.example/metrics", Some("localhost")));
    }
}
