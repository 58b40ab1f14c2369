//! Commands on data: what is said of each ([`command`]), its row in the table ([`table`]), and what runs it ([`call`]).
//!
//! ```text
//!  server ──> row of a command ──> handler(Data, arguments, writer) ──> store::Access
//! ```
//!
//! Invariants
//!   1. A handler sees the data under its keys, two limits and a writer for the reply: no session, no server, no sockets.
//!   2. It may be called again for the same request, and has changed nothing that was not thrown away ([`call`]).
//!
//! Out of scope: who runs a handler and when (`server`), keeping data (`store`), bytes of the protocol (`resp`).

pub mod args;
pub mod call;
pub mod chunked;
pub mod command;
pub mod copies;
mod events;
pub mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod geo;
pub mod glob;
mod handlers;
mod hyperloglog;
pub mod lookup;
pub mod payload;
mod rdb_value;
pub mod ready;
pub mod relocate;
pub mod sealed;
pub mod stream;
pub mod table;
pub mod words;

pub use handlers::object::encoding_of;
