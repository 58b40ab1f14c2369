//! An import from its beginning to its end: connect, take what the source has, and wait for the last reply.

use crate::error::MigrateError;
use crate::options::{Connect, Control, Import, Source};
use crate::report::Report;
use crate::sink::Sink;
use crate::{aof, replica};

/// Takes all keys over.
///
/// # Errors
/// What could not be read, or that the server went away. What was taken before is there: the same again, with keys replaced, ends as if
/// nothing had happened.
pub fn import(options: &Import, connect: Connect<'_>, control: &Control<'_>) -> Result<Report, MigrateError> {
    let mut sink = if options.dry_run { Sink::dry() } else { Sink::connect(connect, options)? };
    match &options.source {
        Source::Path(path) => aof::import(path, options, &mut sink, control)?,
        Source::Server(target) => replica::import(target, options, &mut sink, control)?,
    }
    sink.settle()?;
    Ok(sink.into_report())
}
