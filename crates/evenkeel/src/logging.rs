//! Lines for people or collectors, on standard error.
//!
//! Standard output has only what was asked for: the greeting of `serve`, the report of `check`.

use server::settings::{LogLevel, Settings};
use tracing::level_filters::LevelFilter;

/// Starts logging as `settings` say. Call once.
pub(crate) fn start(settings: &Settings) {
    let level = match settings.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // A line that cannot be written is lost: to tell of it on standard error, which just failed, would end the process.
    let lines = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_max_level(level)
        .with_writer(std::io::stderr);
    if settings.log_json {
        lines.json().flatten_event(true).init();
    } else {
        lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).with_target(false).init();
    }
}

/// Starts logging for a process whose standard error a server reads: the time is in the server's log.
pub(crate) fn start_for_server() {
    tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
}
