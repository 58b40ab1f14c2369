//! The command line: subcommands here, flags of `serve` from the table of settings.
//!
//! `evenkeel` alone is `evenkeel serve`. Flags win over the file; whatever is wrong is one line and exit status 2.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use server::settings::{ROWS, Row, Settings, Unreadable};
use std::path::{Path, PathBuf};

use crate::client::Secure;
use crate::exposure::refuse_exposure;
use crate::failure::Failure;
use crate::small::read_small;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run a server.
    Serve {
        /// Its settings.
        settings: Box<Settings>,
        /// The file they came from, if any.
        file: Option<PathBuf>,
    },
    /// Look at a stopped server's folder.
    Check {
        /// The folder.
        dir: PathBuf,
        /// Where to put what can be saved.
        salvage: Option<PathBuf>,
    },
    /// Copy a running server's data.
    Backup {
        /// The folder of the running server.
        dir: PathBuf,
        /// The folder to make.
        out: PathBuf,
        /// How it is reached, if by TLS.
        secure: Secure,
    },
    /// Record what clients send to a server.
    Capture(Box<crate::capture::Capture>),
    /// Run a built-in component for the process that started this one.
    Component(Vec<String>),
    /// Look at a definition of a topology.
    Topology(Box<crate::topologies::Topology>),
    /// Run a topology for a server, which says which on standard input.
    Worker,
    /// Ask a server about its transactions.
    Tx(Box<crate::tx::Tx>),
    /// Take keys of Redis or Valkey over.
    Import(Box<crate::transfer::Import>),
    /// Write the keys of a server to a file that these load.
    Export(Box<crate::transfer::Export>),
    /// Measure a server: the arguments of the program that does it.
    Bench(Vec<std::ffi::OsString>),
    /// Write man pages and shell completions.
    Generate {
        /// The folder to put them in.
        out: PathBuf,
    },
    /// Print a generated text.
    Print(String),
}

/// Reads the arguments of the process; prints help and ends the process where they ask for it.
///
/// # Errors
/// One line that says what is wrong, and where.
pub(crate) fn parse(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<Request, Failure> {
    let arguments: Vec<_> = arguments.collect();
    let has_settings = |word| command().find_subcommand(word).is_none_or(|named| named.get_name() == "serve");
    let takes_settings = arguments.get(1).is_none_or(has_settings);
    let matches =
        command().try_get_matches_from(arguments).map_err(|error| one_line(&error, takes_settings))?;
    match matches.subcommand() {
        Some(("check", m)) => {
            Ok(Request::Check { dir: path(m, "DIR"), salvage: m.get_one("salvage").cloned() })
        }
        Some(("backup", m)) => {
            let secure = Secure::from_arg_matches(m).map_err(|error| Failure::Usage(error.to_string()))?;
            Ok(Request::Backup { dir: path(m, "DIR"), out: path(m, "OUT"), secure })
        }
        Some(("capture", m)) => {
            let capture = crate::capture::Capture::from_arg_matches(m);
            let request = capture.map(|capture| Request::Capture(Box::new(capture)));
            request.map_err(|error| one_line(&error, false))
        }
        Some(("component", m)) => {
            Ok(Request::Component(m.get_many("WORD").into_iter().flatten().cloned().collect()))
        }
        Some(("topology", m)) => {
            let topology = crate::topologies::Topology::from_arg_matches(m);
            let request = topology.map(|topology| Request::Topology(Box::new(topology)));
            request.map_err(|error| one_line(&error, false))
        }
        Some(("worker", _)) => Ok(Request::Worker),
        Some(("tx", m)) => {
            let tx = crate::tx::Tx::from_arg_matches(m);
            tx.map(|tx| Request::Tx(Box::new(tx))).map_err(|error| one_line(&error, false))
        }
        Some(("generate", m)) => Ok(Request::Generate { out: path(m, "OUT") }),
        Some(("import", m)) => {
            let import = crate::transfer::Import::from_arg_matches(m);
            import.map(|it| Request::Import(Box::new(it))).map_err(|error| one_line(&error, false))
        }
        Some(("export", m)) => {
            let export = crate::transfer::Export::from_arg_matches(m);
            export.map(|it| Request::Export(Box::new(it))).map_err(|error| one_line(&error, false))
        }
        Some(("bench", m)) => {
            Ok(Request::Bench(m.get_many("ARGUMENT").into_iter().flatten().cloned().collect()))
        }
        Some((_, m)) => serve(m),
        None => serve(&matches),
    }
}

/// What is wrong with the arguments, of which a flag may be the name of a setting if the command `takes_settings`; prints help or version
/// and ends the process where that is what they ask for.
fn one_line(error: &clap::Error, takes_settings: bool) -> Failure {
    // A command that wants a subcommand, and has none, shows which there are.
    let shows = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if shows.contains(&error.kind()) {
        error.exit();
    }
    if takes_settings
        && let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
            (error.kind(), error.get(ContextKind::InvalidArg))
        && let Some(name) = flag.strip_prefix("--")
    {
        return Failure::Usage(server::settings::unknown_flag(name));
    }
    let text = error.to_string();
    // a value that begins with a dash is seldom meant
    let text = text.split("\n\n  tip: to pass").next().unwrap_or_default();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|l| !l.is_empty())
        .collect();
    Failure::Usage(lines.join(" ").trim_start_matches("error: ").to_owned())
}

fn serve(matches: &ArgMatches) -> Result<Request, Failure> {
    if matches.get_flag("print-config") {
        return Ok(Request::Print(server::settings::example_file()));
    }
    if matches.get_flag("print-manual") {
        return Ok(Request::Print(server::settings::manual_page()));
    }
    let mut settings = Settings::default();
    let file: Option<PathBuf> = matches.get_one("config").cloned();
    if let Some(path) = &file {
        let text = read_small("the settings file", path)?;
        let told =
            settings.apply_file(&text).map_err(|e| Failure::Usage(format!("{}, {e}", path.display())))?;
        told.iter().for_each(|line| eprintln!("{}, {line}", path.display()));
    }
    for row in ROWS {
        if let Some(text) = flag_text(matches, row) {
            row.set(&mut settings, &text).map_err(|e| Failure::Usage(format!("--{}: {e}", row.flag())))?;
        }
    }
    read_secrets(&mut settings)?;
    settings.check()?;
    refuse_exposure(&settings)?;
    Ok(Request::Serve { settings: Box::new(settings), file })
}

/// Reads the files of passwords and certificates that `settings` name; again, when it is called again with no `requirepass`.
///
/// # Errors
/// The first one that is missing or wrong.
pub(crate) fn read_secrets(settings: &mut Settings) -> Result<(), Failure> {
    read_password_file(settings)?;
    for resource in &mut settings.resources {
        let first_line = |path: &str| {
            let text =
                read_small("the file", Path::new(path)).map_err(|failure| Unreadable(failure.to_string()))?;
            text.lines()
                .next()
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .ok_or_else(|| Unreadable(format!("{path} is empty")))
        };
        resource.read_password(first_line, |name| std::env::var(name).ok())?;
        let whole = |path: &str| {
            read_small("the file", Path::new(path)).map_err(|failure| Unreadable(failure.to_string()))
        };
        resource.read_tls(whole)?;
    }
    Ok(())
}

/// What the flag of `row` says, if it was given; several values are a list.
fn flag_text(matches: &ArgMatches, row: &Row) -> Option<String> {
    if matches.value_source(row.key) != Some(clap::parser::ValueSource::CommandLine) {
        return None;
    }
    let words: Vec<&String> = matches.get_many(row.key)?.collect();
    Some(words.into_iter().map(String::as_str).collect::<Vec<_>>().join(" "))
}

fn read_password_file(settings: &mut Settings) -> Result<(), Failure> {
    let Some(path) = settings.requirepass_file.clone() else { return Ok(()) };
    if settings.requirepass.reveal().is_some() {
        return Err(Failure::Usage("both requirepass and requirepass_file are set: keep one".to_owned()));
    }
    let text = read_small("requirepass_file", &path)?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(settings.set("requirepass", password)?),
        _ => Err(Failure::Usage(format!(
            "requirepass_file {} has no password on its first line",
            path.display()
        ))),
    }
}

fn path(matches: &ArgMatches, name: &str) -> PathBuf {
    matches.get_one::<PathBuf>(name).cloned().expect("clap requires it")
}

/// The whole command line.
pub(crate) fn command() -> Command {
    let flags = ROWS.iter().map(flag);
    let serve = serve_only(Command::new("serve").about("Run a server (the default without a subcommand)"));
    let command = Command::new("evenkeel")
        .about("A durable server for keys and values that speaks the Redis protocol")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand(serve.args(flags.clone()))
        .subcommand(
            Command::new("check")
                .about("Check the data folder of a stopped server and report every segment; exit status 1 on corruption, 3 if it was not checked")
                .arg(path_arg("DIR", "Folder of the data"))
                .arg(
                    Arg::new("salvage")
                        .long("salvage")
                        .value_name("OUT")
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("Write everything readable into a new folder that a server can open"),
                ),
        )
        .subcommand(
            Secure::augment_args(Command::new("backup"))
                .about("Copy the data of a running server, as of one moment, into a new folder")
                .arg(path_arg("DIR", "Folder of the running server's data"))
                .arg(path_arg("OUT", "New folder, on the server's machine")),
        )
        .subcommand(
            crate::capture::Capture::augment_args(Command::new("capture"))
                .about("Record the requests to a running server, for `bench replay`"),
        )
        .subcommand(
            Command::new("component")
                .about("Run a built-in component of a topology: speaks Storm's multilang protocol on standard input and output")
                .arg(
                    Arg::new("WORD")
                        .help("Its name and arguments, as in a definition; see the manual")
                        .num_args(0..)
                        .trailing_var_arg(true)
                        .allow_hyphen_values(true),
                ),
        )
        .subcommand(
            crate::topologies::Topology::augment_args(Command::new("topology"))
                .about("Check and run definitions of topologies"),
        )
        .subcommand(worker())
        .subcommands(transfers())
        .subcommand(
            crate::tx::Tx::augment_args(Command::new("tx"))
                .about("Show and resolve the transactions of a running server"),
        )
        .subcommand(generate())
        .subcommand(
            Command::new("bench")
                .about("Measure this server, or any other that speaks the Redis protocol (by the program evenkeel-bench)")
                .disable_help_flag(true)
                .arg(
                    Arg::new("ARGUMENT")
                        .num_args(0..)
                        .trailing_var_arg(true)
                        .allow_hyphen_values(true)
                        .value_parser(clap::value_parser!(std::ffi::OsString)),
                ),
        )
        .args_conflicts_with_subcommands(true);
    serve_only(command).args(flags)
}

fn generate() -> Command {
    let command = Command::new("generate").about("Write man pages, and completions for bash, zsh and fish");
    command.arg(path_arg("OUT", "Folder to write them to"))
}

fn worker() -> Command {
    Command::new("worker")
        .about("Run a topology for a server, which starts it")
        .hide(true)
        .arg(Arg::new("NAME").help("What it is called in lists of processes"))
}

/// From and to Redis.
fn transfers() -> [Command; 2] {
    [
        crate::transfer::Import::augment_args(Command::new("import"))
            .about("Take keys of Redis or Valkey over: from a file, a folder, or a running server"),
        crate::transfer::Export::augment_args(Command::new("export"))
            .about("Write the keys of a running server to a file that Redis and Valkey load"),
    ]
}

fn serve_only(command: Command) -> Command {
    let print = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    command
        .arg(
            Arg::new("config")
                .long("config")
                .short('c')
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Settings file (TOML); flags win over it"),
        )
        .arg(print("print-config", "Print a commented settings file with all defaults, and exit"))
        .arg(print("print-manual", "Print the manual page of the settings, and exit").hide(true))
}

fn path_arg(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).required(true).value_parser(clap::value_parser!(PathBuf)).help(help)
}

/// The flag of a setting.
fn flag(row: &'static Row) -> Arg {
    let default = if row.default.is_empty() { String::new() } else { format!(" [default: {}]", row.default) };
    let (form, choices) = if row.form.len() > FORM_LEN_MAX && row.form.contains('|') {
        ("WORD", format!(" One of {}.", row.form.replace('|', ", ")))
    } else {
        (row.form, String::new())
    };
    let arg = Arg::new(row.key)
        .long(row.flag())
        .value_name(form)
        .help(format!("{}{choices}{default}", row.summary))
        .help_heading(row.heading());
    if row.is_switch() {
        return arg.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    if row.form.ends_with("...") {
        arg.action(ArgAction::Append).num_args(1..)
    } else {
        // A password may begin with one, an interval below zero does.
        arg.allow_hyphen_values(matches!(row.key, "requirepass" | "balance.interval"))
    }
}

/// Longer forms of a value would push the text of their whole section to the right.
const FORM_LEN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Request, Failure> {
        parse(std::iter::once("evenkeel").chain(arguments.iter().copied()).map(Into::into))
    }

    fn settings(arguments: &[&str]) -> Settings {
        match parsed(arguments) {
            Ok(Request::Serve { settings, .. }) => *settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn without_a_subcommand_it_serves() {
        assert_eq!(settings(&[]), Settings::default());
        assert_eq!(settings(&["--port", "7000"]), settings(&["serve", "--port", "7000"]));
        assert_eq!(settings(&["--port", "7000"]).port, 7000);
    }

    #[test]
    fn every_setting_can_be_given_as_a_flag() {
        let mut arguments = vec!["serve".to_owned()];
        for row in ROWS.iter().filter(|row| !row.default.is_empty()) {
            arguments.push(format!("--{}={}", row.flag(), row.default));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(settings(&arguments), Settings::default());
        assert!(settings(&["--json-logs"]).log_json);
        assert_eq!(settings(&["--bind", "127.0.0.1", "--bind", "::1"]).bind.len(), 2);
    }

    /// The help shows `<ADDRESS...>`, and the second one was "unexpected".
    #[test]
    fn flag_that_takes_several_values_takes_them_in_each_way_that_its_help_shows() {
        let both = settings(&["--bind", "127.0.0.1", "--bind", "::1"]);
        for arguments in [
            &["--bind", "127.0.0.1", "::1"][..],
            &["serve", "--bind", "127.0.0.1", "::1", "--port", "6379"],
            &["--bind", "127.0.0.1 ::1"],
            &["--bind=127.0.0.1 ::1"],
        ] {
            assert_eq!(settings(arguments), both, "{arguments:?}");
        }
        for row in ROWS.iter().filter(|row| row.form.ends_with("...")) {
            let one = row.default.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("127.0.0.1");
            let flag = format!("--{}", row.flag());
            let (twice, once) = (parsed(&[&flag, one, one]), parsed(&[&flag, &format!("{one} {one}")]));
            match (twice, once) {
                (Ok(Request::Serve { settings: twice, .. }), Ok(Request::Serve { settings: once, .. })) => {
                    assert_eq!(twice, once, "{flag}");
                }
                (Err(twice), Err(once)) => assert_eq!(twice.to_string(), once.to_string(), "{flag}"),
                other => panic!("{flag}: {other:?}"),
            }
        }
    }

    /// The words of one section stood at column 132, one a line.
    #[test]
    fn help_is_read_on_a_terminal_of_eighty_columns() {
        let help = command().term_width(80).render_help().to_string();
        assert!(help.contains("--memory-policy <WORD>") && help.contains("allkeys-lru"), "{help}");
        for line in help.lines() {
            let indent = line.len() - line.trim_start().len();
            assert!(indent <= 45 && line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn a_wrong_flag_value_is_named() {
        let error = parsed(&["--connections-max", "0"]).expect_err("refused");
        assert_eq!(error.to_string(), "--connections-max: connections.max = 0: the least is 1");
    }

    /// `check --dir X` was asked whether it meant `--dir`.
    #[test]
    fn settings_are_hinted_at_only_where_flags_are_settings() {
        let refused = |arguments: &[&str]| match parsed(arguments) {
            Err(error) => error.to_string(),
            Ok(request) => panic!("{arguments:?}: {request:?}"),
        };
        for serves in [&["--prot", "1"][..], &["serve", "--prot", "1"]] {
            assert_eq!(refused(serves), "unknown setting '--prot'; did you mean '--port'?");
        }
        for command in command().get_subcommands().filter(|command| command.get_name() != "serve") {
            // These hand on every word.
            if ["bench", "component"].contains(&command.get_name()) {
                continue;
            }
            for flag in ROWS.iter().map(Row::flag).chain(["prot".to_owned(), "config".to_owned()]) {
                if command.get_arguments().any(|own| own.get_long() == Some(&flag)) {
                    continue;
                }
                let flag = format!("--{flag}");
                let text = refused(&[command.get_name(), &flag, "X"]);
                assert!(!text.contains("setting"), "{} {flag}: {text}", command.get_name());
            }
        }
        let text = refused(&["check", "--dir", "X"]);
        assert_eq!(text, "unexpected argument '--dir' found");
    }
}
