//! What the settings `metrics.*` ask for: figures over HTTP and in a file, by the control plane (`console`).

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use console::{Console, FileOptions, Options, Sources};
use server::EvenkeelProtocol;
use server::settings::Settings;

use crate::failure::Failure;

/// Listens on `metrics.listen`, if it is set.
///
/// # Errors
/// One line that says why not.
pub(crate) fn listen(settings: &Settings) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = settings.metrics_listen else { return Ok(None) };
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            ErrorKind::AddrInUse => {
                "something else does; stop it or choose another address with --metrics-listen".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::Place(format!("cannot listen on {address} (metrics.listen): {why}"))
    };
    console::listen(address).map(Some).map_err(failed)
}

/// The server that figures are of, as far as it is.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    protocol: OnceLock<Arc<EvenkeelProtocol>>,
    is_stopping: AtomicBool,
}

impl Watched {
    /// Clients are served from now on.
    pub(crate) fn serves(&self, protocol: &Arc<EvenkeelProtocol>) {
        let is_first = self.protocol.set(Arc::clone(protocol)).is_ok();
        debug_assert!(is_first, "it begins to serve once");
    }

    /// No more clients are accepted.
    pub(crate) fn stops(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn ready(&self) -> Result<(), &'static str> {
        match self.protocol.get() {
            None => Err("starting: the data is read"),
            Some(_) if self.is_stopping.load(Ordering::Relaxed) => Err("stopping"),
            Some(_) => Ok(()),
        }
    }
}

/// Shows the figures of `watched`, from before it serves; nothing is started when nobody asked for them.
///
/// # Errors
/// One line: the system grants no thread.
pub(crate) fn start(
    settings: &Settings,
    listener: Option<TcpListener>,
    watched: &Arc<Watched>,
) -> Result<Option<Console>, Failure> {
    let file = settings.metrics_file.clone().map(|path| FileOptions {
        path,
        interval: settings.metrics_interval,
        bytes_max: settings.metrics_file_bytes_max.0,
        former_max: settings.metrics_files_max,
    });
    if listener.is_none() && file.is_none() {
        return Ok(None);
    }
    let hosts = settings.metrics_hosts.iter().map(|name| name.0.clone()).collect();
    let [for_page, for_line, for_api, for_ready] = [(); 4].map(|()| Arc::clone(watched));
    let mut former = None;
    let line = move || {
        let snapshot = for_line.protocol.get()?.snapshot();
        let line = snapshot.json(former.as_ref());
        former = Some(snapshot);
        Some(line)
    };
    let sources = Sources {
        page: Box::new(move || {
            for_page.protocol.get().map_or_else(String::new, |it| it.snapshot().prometheus())
        }),
        console: server::CONSOLE_PAGE,
        api: Box::new(move |path| for_api.protocol.get()?.api(path)),
        line: Box::new(line),
        ready: Box::new(move || for_ready.ready()),
    };
    let console = Console::start(Options { listener, hosts, file }, sources)
        .map_err(|error| Failure::System(format!("cannot start the thread for metrics: {error}")))?;
    if let Some(address) = console.address() {
        tracing::info!("metrics on http://{address}/metrics");
    }
    Ok(Some(console))
}
