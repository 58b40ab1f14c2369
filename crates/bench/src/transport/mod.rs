//! Messages from one node to another, in this process or another one: by the transports, by the plain loop over TCP that is their limit, and
//! by libzmq and Storm's messaging layer, which are always in two processes.
//!
//! One way: threads send as fast as they are let, each on a channel of its own, and what the other side has got by the end of the time
//! counts. Ping-pong: one message is under way at a time, and there and back is one.

mod apart;
#[cfg(feature = "zeromq")]
mod libzmq;
mod load;
mod nodes;
mod plain;
mod receive;
mod storm;

use crate::Failure;
pub(crate) use load::processor_time;
pub use load::{Carrier, Load, Outcome, Pattern, Went};
pub(crate) use nodes::node;
pub use receive::receive_for_parent;

/// Why there is nothing to measure.
#[cfg(not(feature = "zeromq"))]
const WITHOUT_ZEROMQ: &str = "this program was built without the feature zeromq";

/// Sends `load` by `carrier`.
///
/// # Errors
/// The system refuses sockets or threads, or messages were lost.
pub fn run(carrier: Carrier, load: &Load) -> Result<Outcome, Failure> {
    match (carrier, load.pattern) {
        (Carrier::Plain, Pattern::OneWay) => plain::one_way(load),
        (Carrier::Plain, Pattern::PingPong) => plain::ping_pong(load),
        (Carrier::Storm, _) => storm::run(load),
        (Carrier::Libzmq, _) => run_libzmq(load),
        (_, Pattern::OneWay) => nodes::one_way(&*nodes::pair(carrier, load)?, load),
        (_, Pattern::PingPong) => nodes::ping_pong(&*nodes::pair(carrier, load)?, load),
    }
}

#[cfg(feature = "zeromq")]
fn run_libzmq(load: &Load) -> Result<Outcome, Failure> {
    libzmq::run(load)
}

#[cfg(not(feature = "zeromq"))]
fn run_libzmq(_: &Load) -> Result<Outcome, Failure> {
    Err(WITHOUT_ZEROMQ.to_owned())
}
