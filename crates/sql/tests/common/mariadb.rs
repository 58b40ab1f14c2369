//! A MariaDB of a test's own: in a temporary folder, on a free port, stopped when it is dropped.
//!
//! Its folder goes with it, unless the test fails: then it stays, with the error log in it, and its place is told.
//!
//! The server refuses to run as root: then it runs as the user `mysql`, whom Debian's package makes. Other crates' tests use this file
//! by its path.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and owns the processes it starts"
)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// A server that runs.
#[derive(Debug)]
pub(crate) struct MariaDb {
    folder: tempfile::TempDir,
    port: u16,
    server: Option<Child>,
}

impl MariaDb {
    /// Starts a server with `settings` (`--name=value`); `None`, with a word about it, where there is none and the caller lets tests
    /// be skipped for that.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        if PROGRAMS.iter().any(|name| program(name).is_none()) {
            assert!(
                std::env::var_os("EVENKEEL_SKIP_CLIENTS").is_some(),
                "MariaDB is not installed; EVENKEEL_SKIP_CLIENTS=1 skips what needs it"
            );
            eprintln!("skipped: MariaDB is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut mariadb = Self { folder, port, server: None };
        if is_root() {
            run(Command::new("chown").arg(USER).arg(mariadb.folder.path()));
        }
        run(mariadb
            .server("mariadb-install-db")
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"]));
        mariadb.run(settings);
        mariadb.sql(&format!(
            "CREATE USER '{CLIENT}'@'%' IDENTIFIED BY 'secret'; GRANT ALL ON `d%`.* TO '{CLIENT}'@'%'; \
             GRANT PROCESS ON *.* TO '{CLIENT}'@'%'; \
             CREATE USER 'plain'@'%' IDENTIFIED BY 'secret'; GRANT ALL ON `d%`.* TO 'plain'@'%';"
        ));
        Some(mariadb)
    }

    /// A server that tests of one program share: whoever changes more than a database of its own starts one for itself.
    pub(crate) fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<MariaDb>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start(&[])?);
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// Starts the server again, and waits until it answers.
    pub(crate) fn run(&mut self, settings: &[&str]) {
        assert!(self.server.is_none(), "it runs");
        for _ in 0..TRIES_MAX {
            // A server that was killed may hold its files for a moment: then a new one ends at once.
            let port = format!("--port={}", self.port);
            let mut command = self.server("mariadbd");
            command.args([
                port.as_str(),
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--max-connections=200",
            ]);
            command.args(settings);
            command.arg(format!("--socket={}", self.socket().display()));
            command.arg(format!("--log-error={}", self.log().display()));
            let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            while server.try_wait().unwrap().is_none() {
                if self.client().args(["-e", "SELECT 1"]).output().unwrap().status.success() {
                    self.server = Some(server);
                    return;
                }
                std::thread::sleep(PAUSE);
            }
            std::thread::sleep(PAUSE);
        }
        panic!("the server does not start");
    }

    /// Where clients connect for a database, as a user who sees all sessions.
    pub(crate) fn url(&self, database: &str) -> String {
        self.url_of(CLIENT, database)
    }

    /// Where `user` connects: [`CLIENT`], or `plain`, who sees only sessions of its own.
    pub(crate) fn url_of(&self, user: &str, database: &str) -> String {
        format!("mysql://{user}:secret@127.0.0.1:{}/{database}", self.port)
    }

    /// Where root connects.
    pub(crate) fn root_url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A new database; its name begins with `d`.
    pub(crate) fn database(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let name = format!("d{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name}"));
        name
    }

    /// Kills the server as hard as can be.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Runs statements as root, and returns what the client prints: a line a row, columns with tabs between them.
    pub(crate) fn sql(&self, statements: &str) -> String {
        run(self.client().args(["-N", "-B", "-e", statements])).trim_end().to_owned()
    }

    /// As [`Self::sql`], for statements that may fail.
    pub(crate) fn try_sql(&self, statements: &str) {
        let _ = self.client().args(["-e", statements]).output().unwrap();
    }

    /// The engine's transactions that are under way, prepared ones included, as its monitor shows them.
    ///
    /// Not `INNODB_TRX`: that is a copy, which is renewed only when nobody has asked for a tenth of a second. Who asks more often sees a
    /// transaction that has ended for as long as he asks.
    pub(crate) fn transactions(&self) -> Vec<String> {
        let shown = self.sql("SHOW ENGINE INNODB STATUS").replace("\\n", "\n");
        assert!(!shown.contains("... truncated..."), "the list of transactions is cut off");
        let (_, list) =
            shown.split_once("LIST OF TRANSACTIONS FOR EACH SESSION:\n").expect("a list of transactions");
        let (list, _) = list.split_once("--------\nFILE I/O").expect("the list's end");
        let is_under_way = |it: &&str| {
            let head = it.lines().next().unwrap_or_default();
            head.contains(", ACTIVE") || head.contains(", COMMITTED")
        };
        list.split("---TRANSACTION ").skip(1).filter(is_under_way).map(|it| it.trim().to_owned()).collect()
    }

    /// The end of its error log.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// Sends its process a signal.
    pub(crate) fn signal(&self, name: &str) {
        run(Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()));
    }

    fn client(&self) -> Command {
        let mut command = Command::new(program("mariadb").unwrap());
        command
            .arg("--no-defaults")
            .arg(format!("--socket={}", self.socket().display()))
            .args(["-u", "root"]);
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("error.log")
    }

    /// A program of the server, run by a user whom it accepts.
    fn server(&self, name: &str) -> Command {
        let path = program(name).unwrap();
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(self.folder.path()).arg("--no-defaults");
        // Temporary files of two servers may have one name.
        command.arg(format!("--tmpdir={}", self.folder.path().display()));
        command.arg(format!("--datadir={}", self.folder.path().join("data").display()));
        command.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]);
        command
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("MariaDB's folder is kept: {}", self.folder.path().display());
        }
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout.trim_ascii() == b"0"
}

/// The user of most tests.
pub(crate) const CLIENT: &str = "evenkeel";
const USER: &str = "mysql";
const PROGRAMS: [&str; 3] = ["mariadbd", "mariadb-install-db", "mariadb"];
const PAUSE: Duration = Duration::from_millis(50);
const TRIES_MAX: usize = 100;
const LINES_SHOWN: usize = 60;
