//! Idle connections: each has been used once, then stays open and says nothing.

use std::net::{IpAddr, Ipv4Addr};

use crate::Failure;
use crate::drive::{Fleet, FleetOptions, Target};

/// Opens `count` connections to `port`, uses each once (PING), and returns them open.
///
/// # Errors
/// A connection was refused or not answered; or this process may not open so many files.
pub fn open(port: u16, count: usize) -> Result<Fleet, Failure> {
    // Redis in its protected mode turns away whoever comes from another address of the loopback network.
    let options = FleetOptions { from: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], ..FleetOptions::new(count) };
    let mut fleet = Fleet::open(&Target::local(port), &options)?;
    if let Some(first) = &fleet.failures.first {
        return Err(format!("{} of {count} connections were not made: {first}", fleet.failures.count()));
    }
    fleet.each("*1\r\n$4\r\nPING\r\n".to_owned())?;
    Ok(fleet)
}

/// Raises the limit of open files of this process, and so of the servers that it starts, to the most allowed.
pub fn allow_many_files() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).ok();
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;
    use crate::limit::{self, Limit};

    /// The engine spreads thousands of connections over addresses of the loopback network, which Redis denies.
    #[test]
    fn many_connections_are_used_once_and_come_from_the_address_that_servers_trust() {
        allow_many_files();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("known").port();
        let limit =
            Limit { loops: 1, request_bytes: 14, journal: None, parse: false, greeting: false, pool: None };
        let counts = Arc::default();
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || limit::serve(&listener, &limit, &counted));
        let fleet = open(port, 2_100).expect("open");
        assert_eq!(fleet.open_count(), 2_100);
        assert!(fleet.local_addresses().iter().all(|address| address.starts_with("127.0.0.1:")));
        let counts: &crate::count::Counts = &counts;
        assert_eq!(counts.requests.load(std::sync::atomic::Ordering::Relaxed), 2_100);
    }
}
