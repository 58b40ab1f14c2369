//! The page over HTTP/1.1, within bounds that a misbehaving client cannot move.

use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

/// Makes the page.
pub(crate) type Page = Box<dyn Fn() -> String + Send>;

/// Serves `page` at `/metrics` until it is dropped.
pub(crate) async fn serve(listener: TcpListener, page: Page) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics.listen: nothing is served"),
    };
    let (page, room) = (Rc::new(page), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
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
            // One too many is closed: whoever scrapes comes back.
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let page = Rc::clone(&page);
            tokio::task::spawn_local(async move {
                connection(stream, page).await;
                drop(permit);
            });
        }
    };
    LocalSet::new().run_until(accept).await;
}

async fn connection(stream: TcpStream, page: Rc<Page>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &page);
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

fn answer(method: &Method, path: &str, page: &Page) -> Response<Full<Bytes>> {
    let (status, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, page()),
        (&Method::GET | &Method::HEAD, "/") => {
            (StatusCode::OK, "Figures for Prometheus: /metrics\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "there is only /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

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
