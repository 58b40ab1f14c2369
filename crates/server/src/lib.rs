//! RESP commands, sessions and the settings of a server.

pub mod settings;
