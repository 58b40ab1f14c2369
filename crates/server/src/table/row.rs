//! A row of the table of commands on more than data.

use commands::call::Outcome;
use commands::table::row::{HandlerOf, RowOf};
use resp::{ArgsView, Writer};

use crate::control::Control;

/// Function over the session and the server.
pub(crate) type ControlFn = fn(&mut Control<'_>, ArgsView<'_>, &mut Writer<'_>) -> Outcome;

/// What runs a command.
pub(crate) type Handler = HandlerOf<ControlFn>;

/// A command, or a subcommand.
pub(crate) type Row = RowOf<ControlFn>;
