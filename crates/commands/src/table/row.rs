//! A row of the table: what is to be known of a command, and what runs it; and the macro that writes rows.

use std::convert::Infallible;

use resp::ArgsView;

use crate::call::{DataFn, SeriesFn};
use crate::command::{Command, Invoked, Kind};

/// A command, or a subcommand. `C` is what runs commands on more than data, which this crate has none of.
#[derive(Debug)]
pub struct RowOf<C: 'static> {
    /// What is to be known of it.
    pub command: Command,
    /// What runs it.
    pub handler: HandlerOf<C>,
    /// What runs several that follow each other.
    pub series: Option<SeriesFn>,
}

/// What runs a command; what each is over, [`Kind`] says.
#[derive(Clone, Copy, Debug)]
pub enum HandlerOf<C: 'static> {
    /// Over its keys.
    Data(DataFn),
    /// With the database that it reaches beside the session's.
    Across(DataFn, fn(ArgsView<'_>) -> Option<u16>),
    /// Over keys that its values name.
    Reaching(DataFn),
    /// Over all keys at once.
    Everything(DataFn),
    /// Over all keys, some at a time.
    Walk(DataFn),
    /// A script.
    Script(Invoked),
    /// Part of a transaction over several resources.
    Stage,
    /// Over the session and the server.
    Control(C),
    /// EXEC.
    Exec,
    /// It has subcommands, which are these.
    Container(&'static [RowOf<C>]),
}

/// A command, or a subcommand, on data.
pub type Row = RowOf<Infallible>;

/// What runs it.
pub type Handler = HandlerOf<Infallible>;

impl HandlerOf<Infallible> {
    /// The same, among handlers of which some run commands on more than data.
    #[must_use]
    pub const fn widened<C>(&self) -> HandlerOf<C> {
        match self {
            Self::Data(run) => HandlerOf::Data(*run),
            Self::Across(run, target) => HandlerOf::Across(*run, *target),
            Self::Reaching(run) => HandlerOf::Reaching(*run),
            Self::Everything(run) => HandlerOf::Everything(*run),
            Self::Walk(run) => HandlerOf::Walk(*run),
            Self::Script(invoked) => HandlerOf::Script(*invoked),
            Self::Stage => HandlerOf::Stage,
            Self::Control(none) => match *none {},
            Self::Exec => HandlerOf::Exec,
            // its subcommands have rows of their own
            Self::Container(_) => HandlerOf::Container(&[]),
        }
    }
}

/// What a command with this handler runs over.
#[must_use]
pub const fn kind<C>(handler: &HandlerOf<C>) -> Kind {
    match handler {
        HandlerOf::Data(_) => Kind::Data,
        HandlerOf::Across(_, target) => Kind::Across(*target),
        HandlerOf::Reaching(_) => Kind::Reaching,
        HandlerOf::Everything(_) => Kind::Everything,
        HandlerOf::Walk(_) => Kind::Walk,
        HandlerOf::Script(invoked) => Kind::Script(*invoked),
        HandlerOf::Stage => Kind::Stage,
        HandlerOf::Control(_) => Kind::Control,
        HandlerOf::Exec => Kind::Exec,
        HandlerOf::Container(_) => Kind::Container,
    }
}

/// Rows of the table: `name, arity, [flags], [key specs], handler, categories, tips, group, since,
/// complexity, summary [, args "..."] [, history "..."] [, deprecated "..."] [, stored ...] [, series ...];`
#[macro_export]
macro_rules! rows {
    ($($name:literal, $arity:literal, [$($flag:ident)*], [$($spec:expr),*], $handler:expr,
       $categories:literal, $tips:literal, $group:literal, $since:literal, $complexity:literal,
       $summary:literal $(, args $args:literal)? $(, history $history:literal)?
       $(, deprecated $deprecated:literal)? $(, stored $stored:expr)? $(, series $series:expr)?;)*) => {
        &[$($crate::table::row::RowOf { handler: $handler, series: [$(Some($series as $crate::call::SeriesFn),)? None][0], command: $crate::command::Command {
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
