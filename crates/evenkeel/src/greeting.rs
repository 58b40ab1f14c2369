//! The few lines that a start prints: what serves, where, how durable, how to connect.

use crate::running::{Running, keeps_files};
use reactor::{Connector, Handle};
use server::EvenkeelProtocol;
use server::settings::{Durability, Engine, Settings};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use store::Store;

/// Prints the greeting, and tells the service manager.
pub(crate) fn print(
    settings: &Settings,
    running: &Running,
    handle: &Handle<EvenkeelProtocol>,
    store: &Store,
) {
    let (plain, tls) = (handle.tcp_addresses(), handle.tls_addresses());
    let places = places(settings, plain, tls);
    crate::notify::ready(&format!("serves on {places}"));
    if settings.log_json {
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            places,
            dir = %settings.dir.display(),
            engine = %settings.engine,
            durable = durable(settings, store),
            "serving"
        );
        return;
    }
    let keys: u64 = store.key_counts().iter().map(|(keys, _)| keys).sum();
    let lines = format!(
        "Evenkeel {} serves on {places} (process {}, {})\n  data     {}\n  durable  {}\n  connect  {}\n  stop     Ctrl-C or SIGTERM\n",
        env!("CARGO_PKG_VERSION"),
        running.pid,
        threads(settings, handle.connector()),
        data(settings, keys),
        durable(settings, store),
        connect(settings, plain, tls),
    );
    // A closed standard output is no reason not to serve.
    let _ = std::io::stdout().write_all(lines.as_bytes());
}

fn threads(settings: &Settings, connector: Connector) -> String {
    let loops = || {
        let most = if settings.loops == 0 && settings.loops_resolved() > 1 { "up to " } else { "" };
        format!("{most}{}", counted(settings.loops_resolved(), "event loop"))
    };
    match connector {
        Connector::Epoll => loops(),
        Connector::Uring => format!("{} on io_uring", loops()),
        Connector::Threads => "connector threads".to_owned(),
    }
}

fn places(settings: &Settings, plain: &[SocketAddr], tls: &[SocketAddr]) -> String {
    let addresses = plain.iter().map(SocketAddr::to_string);
    let addresses = addresses.chain(tls.iter().map(|address| format!("{address} (TLS)")));
    let sockets = settings.unixsocket.iter().map(|path| path.display().to_string());
    addresses.chain(sockets).collect::<Vec<_>>().join(", ")
}

fn data(settings: &Settings, keys: u64) -> String {
    match settings.engine {
        Engine::Memory => "in memory only (engine memory): a stop forgets everything".to_owned(),
        Engine::Noop => "nowhere (engine noop): writes are accepted and forgotten".to_owned(),
        Engine::Log => format!("{}, {} found", settings.dir.display(), counted(keys, "key")),
    }
}

fn durable(settings: &Settings, store: &Store) -> String {
    if !keeps_files(settings) {
        return "no".to_owned();
    }
    let backend = store.backend().unwrap_or_default();
    match settings.durability {
        Durability::Always => format!("always: a write is on disk before its reply (journal: {backend})"),
        Durability::Interval(interval) => {
            format!(
                "within {interval:?}: a loss of power can undo the writes of this time, kill -9 the last ones (journal: {backend})"
            )
        }
        Durability::Never => {
            format!(
                "when the system chooses: a loss of power or kill -9 can undo acknowledged writes (journal: {backend})"
            )
        }
    }
}

fn connect(settings: &Settings, plain: &[SocketAddr], tls: &[SocketAddr]) -> String {
    let mut password = if settings.requirepass.reveal().is_some() { " --askpass" } else { "" }.to_owned();
    let mut addresses = plain;
    if plain.is_empty() && settings.unixsocket.is_none() {
        addresses = tls;
        password.push_str(" --tls --cacert CA");
    }
    match (addresses.first(), &settings.unixsocket) {
        // What redis-cli tries by itself is 127.0.0.1.
        (Some(address), _) if addresses.iter().any(|address| takes_localhost(address.ip())) => {
            format!("redis-cli -p {}{password}", address.port())
        }
        (Some(address), _) if address.ip().is_unspecified() => {
            format!("redis-cli -h ::1 -p {}{password}", address.port())
        }
        (Some(address), _) => format!("redis-cli -h {} -p {}{password}", address.ip(), address.port()),
        (None, Some(path)) => format!("redis-cli -s {}{password}", path.display()),
        (None, None) => "nowhere".to_owned(),
    }
}

fn takes_localhost(address: IpAddr) -> bool {
    address == Ipv4Addr::LOCALHOST || address == Ipv4Addr::UNSPECIFIED
}

fn counted(count: impl TryInto<u64>, name: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_connect_reaches_what_is_listened_on() {
        let told = |addresses: &[&str]| {
            let addresses: Vec<SocketAddr> =
                addresses.iter().map(|address| address.parse().expect("an address")).collect();
            connect(&Settings::default(), &addresses, &[])
        };
        assert_eq!(told(&["127.0.0.1:6379"]), "redis-cli -p 6379");
        assert_eq!(told(&["0.0.0.0:6379"]), "redis-cli -p 6379");
        assert_eq!(told(&["10.0.0.5:6379", "127.0.0.1:6379"]), "redis-cli -p 6379");
        assert_eq!(told(&["10.0.0.5:6379"]), "redis-cli -h 10.0.0.5 -p 6379");
        assert_eq!(told(&["127.0.0.2:6379"]), "redis-cli -h 127.0.0.2 -p 6379");
        assert_eq!(told(&["[::1]:6379"]), "redis-cli -h ::1 -p 6379");
        assert_eq!(told(&["[::]:6379"]), "redis-cli -h ::1 -p 6379");
    }
}
