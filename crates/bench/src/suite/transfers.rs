//! Transfers between PostgreSQL, MariaDB and keys beside a program that does both databases by hand: `evenkeel bench transfers`, on
//! databases of its own, as Debian installs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::context::Context;
use super::reported::{Reported, series};
use crate::Failure;
use crate::figure::{Figure, Target};
use crate::servers::{Folder, Ready, Recipe, Server, output_of};

/// Transfers a second and how long the slowest take.
pub(super) fn transfers(context: &Context) -> Result<Vec<Figure>, Failure> {
    let databases = Databases::start(&context.folder)?;
    let duration = if context.quick { "1s" } else { "10s" };
    let (runs, folder) = ((context.runs + 1).to_string(), context.folder.to_string_lossy());
    let (postgres, mariadb) = databases.urls();
    let shape = ["--dir", &folder, "--clients", "32", "--duration", duration, "--runs", &runs, "--json"];
    let arguments = [&["transfers", "--postgres", &postgres, "--mariadb", &mariadb][..], &shape].concat();
    let test = Reported::of(&arguments)?;
    let theirs = test.peer("the program by hand")?;
    let figure = |id: &str, what: &str, target: Option<Target>, unit: &str, of: fn(&Value) -> &Value| {
        let (a, b) = (series("evenkeel", &test.report, of), series("by hand", theirs, of));
        let title = format!(
            "transfers between PostgreSQL, MariaDB and keys, 32 clients: {what} / both databases by hand, no decision, no keys"
        );
        Figure::new(id, &title, target, unit, a, Some(b)).by(["cargo xtask bench transfers"])
    };
    Ok(vec![
        figure(
            "transfers/rate",
            "rate",
            Some(Target::AtLeast(0.85)),
            "transfers/s",
            |run| &run["operations_per_second"],
        ),
        figure("transfers/p99", "p99", None, "us", |run| &run["latency_us"]["p99"]),
    ])
}

/// Both databases, with what they keep in folders of their own.
struct Databases {
    postgres: Server,
    mariadb: Server,
    _folders: [Folder; 2],
}

impl Databases {
    /// Makes and starts both below `parent`.
    ///
    /// # Errors
    /// One is not installed, or does not start.
    fn start(parent: &Path) -> Result<Self, Failure> {
        let folder = |user: &str| -> Result<Folder, Failure> {
            // The servers work in folders of their own: a path from here would lead them elsewhere.
            let path =
                std::path::absolute(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
            let folder = Folder::fresh(path.join(format!("{user}-data")))?;
            if rustix::process::geteuid().is_root() {
                run(Command::new("chown").arg(user).arg(folder.path()))?;
            }
            Ok(folder)
        };
        let folders = [folder(POSTGRES_USER)?, folder(MARIADB_USER)?];
        let [postgres, mariadb] = [folders[0].path(), folders[1].path()].map(|path| path.to_string_lossy());
        let programs = postgres_programs()?;
        let (initdb, server) = (programs.join("initdb"), programs.join("postgres"));
        run(&mut command(&as_user(
            POSTGRES_USER,
            &initdb,
            &["-A", "trust", "-U", POSTGRES_USER, "-D", &postgres],
        )))?;
        let settings = ["-c", "listen_addresses=127.0.0.1", "-c", "max_prepared_transactions=100"];
        let place = ["-D", &postgres, "-k", "", "-p", "{port}", "-c", "max_connections=200"];
        let server = as_user(POSTGRES_USER, &server, &[&place[..], &settings].concat());
        let postgres = Server::start(&recipe("PostgreSQL", &server), parent)?;
        let begun = Instant::now();
        let port = postgres.port().to_string();
        let mut is_ready = command(&[programs.join("pg_isready").to_string_lossy().into_owned()]);
        is_ready.args(["-q", "-h", "127.0.0.1", "-p", &port]);
        while run(&mut is_ready).is_err() {
            if begun.elapsed() > START_TIME_MAX {
                return Err(format!("PostgreSQL does not answer within {START_TIME_MAX:?}"));
            }
            std::thread::sleep(PAUSE);
        }
        let data = format!("--datadir={mariadb}/data");
        let install = ["--no-defaults", &data, "--auth-root-authentication-method=normal"];
        run(&mut command(&as_user(MARIADB_USER, Path::new("mariadb-install-db"), &install)))?;
        let server = ["--no-defaults", &data, "--socket=socket", "--port={port}", "--bind-address=127.0.0.1"];
        let server = [&server[..], &["--skip-name-resolve", "--max-connections=200"]].concat();
        let server = as_user(MARIADB_USER, Path::new("/usr/sbin/mariadbd"), &server);
        let mariadb = Server::start(&recipe("MariaDB", &server), parent)?;
        Ok(Self { postgres, mariadb, _folders: folders })
    }

    fn urls(&self) -> (String, String) {
        (
            format!("postgres://{POSTGRES_USER}@127.0.0.1:{}/postgres", self.postgres.port()),
            format!("mysql://root@127.0.0.1:{}/test", self.mariadb.port()),
        )
    }
}

/// `program` with `arguments`, by a user whom it accepts: neither database runs as root.
fn as_user(user: &str, program: &Path, arguments: &[&str]) -> Vec<String> {
    let program = program.to_string_lossy();
    let prefix = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"];
    let prefix: &[&str] = if rustix::process::geteuid().is_root() { &prefix } else { &[] };
    prefix.iter().copied().chain([&*program]).chain(arguments.iter().copied()).map(str::to_owned).collect()
}

fn recipe(label: &str, words: &[String]) -> Recipe {
    Recipe::of(Path::new(&words[0]), words[1..].to_vec()).labelled(label).ready_when(Ready::Accepts)
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let output = output_of(command).map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The folder with PostgreSQL's programs, the newest of Debian's.
fn postgres_programs() -> Result<PathBuf, Failure> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|version| version.path()).max_by_key(number);
    newest
        .map(|path| path.join("bin"))
        .ok_or_else(|| "PostgreSQL is not installed (package postgresql)".to_owned())
}

const POSTGRES_USER: &str = "postgres";
const MARIADB_USER: &str = "mysql";
const START_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
