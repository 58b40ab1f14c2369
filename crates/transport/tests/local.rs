//! Nodes of one process, with real threads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use clock::SystemClock;
use common::node::Kind;
use transport::local::{Hub, Local};
use transport::{Incarnation, NodeId, Settings, Transport};

/// The transport `local`, of nodes that meet in one hub.
struct Here(Arc<Hub>);

impl Here {
    fn start() -> Self {
        Self(Hub::start(Arc::new(SystemClock)).unwrap())
    }
}

impl Kind for Here {
    type Transport = Local;

    const ADDRESS: &str = "local:here";

    fn new_node(&self, id: u64, run: u64, settings: Settings) -> Local {
        self.0.join(NodeId(id), Incarnation::new(run), settings).unwrap()
    }
}

promises!(Here::start());

#[test]
fn address_of_another_transport_and_setting_out_of_bounds_are_refused_in_words() {
    let here = Here::start();
    let one = here.new_node(1, 1, Settings::default());
    let wrong = one.connect(NodeId(2), "10.0.0.1:7000").unwrap_err().to_string();
    assert_eq!(wrong, "`10.0.0.1:7000` is no address for this transport: local:NAME");
    let settings = Settings { threads: 0, ..Settings::default() };
    assert_eq!(
        here.0.join(NodeId(3), Incarnation::new(1), settings).unwrap_err().to_string(),
        "transport.threads is 0, and must be from 1 to 1024 (threads)"
    );
}
