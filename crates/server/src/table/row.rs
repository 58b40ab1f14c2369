//! A row of the table: what is to be known of a command, and what runs it; and the macro that writes rows.

use resp::{ArgsView, Writer};

use crate::call::{DataFn, Outcome, SeriesFn};
use crate::command::{Command, Invoked, Kind};
use crate::control::Control;

/// A command, or a subcommand.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) command: Command,
    pub(crate) handler: Handler,
    /// What runs several that follow each other.
    pub(crate) series: Option<SeriesFn>,
}

/// Function over the session and the server.
pub(crate) type ControlFn = fn(&mut Control<'_>, ArgsView<'_>, &mut Writer<'_>) -> Outcome;

/// What runs a command; what each is over, [`Kind`] says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler {
    Data(DataFn),
    /// With the database that it reaches beside the session's.
    Across(DataFn, fn(ArgsView<'_>) -> Option<u16>),
    Reaching(DataFn),
    Everything(DataFn),
    Walk(DataFn),
    Script(Invoked),
    Stage,
    Control(ControlFn),
    Exec,
    Container(&'static [Row]),
}

/// What a command with this handler runs over.
pub(crate) const fn kind(handler: &Handler) -> Kind {
    match handler {
        Handler::Data(_) => Kind::Data,
        Handler::Across(_, target) => Kind::Across(*target),
        Handler::Reaching(_) => Kind::Reaching,
        Handler::Everything(_) => Kind::Everything,
        Handler::Walk(_) => Kind::Walk,
        Handler::Script(invoked) => Kind::Script(*invoked),
        Handler::Stage => Kind::Stage,
        Handler::Control(_) => Kind::Control,
        Handler::Exec => Kind::Exec,
        Handler::Container(_) => Kind::Container,
    }
}

/// Rows of the table: `name, arity, [flags], [key specs], handler, categories, tips, group, since,
/// complexity, summary [, args "..."] [, history "..."] [, deprecated "..."] [, stored ...] [, series ...];`
macro_rules! rows {
    ($($name:literal, $arity:literal, [$($flag:ident)*], [$($spec:expr),*], $handler:expr,
       $categories:literal, $tips:literal, $group:literal, $since:literal, $complexity:literal,
       $summary:literal $(, args $args:literal)? $(, history $history:literal)?
       $(, deprecated $deprecated:literal)? $(, stored $stored:expr)? $(, series $series:expr)?;)*) => {
        &[$($crate::table::row::Row { handler: $handler, series: [$(Some($series as $crate::call::SeriesFn),)? None][0], command: $crate::command::Command {
            name: $name,
            arity: $arity,
            flags: $crate::command::Flags::NONE$(.and($crate::command::Flags::$flag))*,
            keys: &[$($spec),*],
            kind: $crate::table::row::kind(&$handler),
            categories: $categories,
            tips: $tips,
            group: $group,
            since: $since,
            complexity: $complexity,
            summary: $summary,
            args: concat!("" $(, $args)?),
            history: concat!("" $(, $history)?),
            deprecated: concat!("" $(, $deprecated)?),
            stored: [$($stored,)? $crate::copies::Stored::Nothing][0],
        }}),*]
    };
}
pub(crate) use rows;
