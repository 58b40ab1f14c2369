//! Transfers through a server: each is one pipeline, from TX.BEGIN to TX.COMMIT.

use std::time::Duration;

use clock::{Clock as _, SystemClock};
use resp::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{ACCOUNTS_EACH, Transfers, runtime};
use crate::Failure;
use crate::client::Client;
use crate::drive::Recorder;
use crate::servers::{Folder, Recipe, Server};

/// A server with both databases as resources.
pub(super) struct Served {
    server: Server,
    command: String,
    _folder: Folder,
}

impl Served {
    /// Starts it, and waits until both databases take branches.
    ///
    /// # Errors
    /// It does not start, or a database does not answer in time.
    pub(super) fn start(of: &Transfers) -> Result<Self, Failure> {
        let id = std::process::id();
        let parent = of.dir.clone().unwrap_or_else(std::env::temp_dir).join(format!("evenkeel-bench-{id}"));
        // The folder that it is in goes with it: that must not be the one that was named.
        let folder = Folder::fresh(parent.join("transfers"))?;
        let file = folder.path().join("evenkeel.toml");
        let resource = |name: &str, url: &str| {
            // A quarter is kept for steps of the protocol: as many as there are clients are for branches.
            let sessions_max = (u32::from(of.clients) * 4).div_ceil(3) + 2;
            // The program that does it by hand knows no TLS.
            format!(
                "[resource.{name}]\nurl = {}\ntls = \"disable\"\nsessions_max = {sessions_max}\n",
                toml_text(url)
            )
        };
        let text = resource("postgres", &of.postgres) + &resource("mariadb", &of.mariadb);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let recipe = Recipe::evenkeel("log", "always", 2).with(&["--config", &file.to_string_lossy()]);
        let server = Server::start(&recipe, folder.path())?;
        let begun = SystemClock.now();
        let mut client = Client::connect(server.port())?;
        let section = loop {
            let section = client.info_text("transactions")?;
            if section.matches("state=ready").count() == 2 || SystemClock.now().since(begun) > READY_MAX {
                break section;
            }
            std::thread::sleep(PAUSE);
        };
        if section.matches("state=ready").count() != 2 {
            return Err(format!("the databases do not take branches: {section}"));
        }
        let command = recipe.command();
        Ok(Self { server, command, _folder: folder })
    }

    pub(super) fn command(&self) -> String {
        self.command.clone()
    }

    /// The money in keys.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) fn money(&self) -> Result<i64, Failure> {
        match Client::connect(self.server.port())?.call(&["GET", MONEY])? {
            Value::Bulk(text) => {
                let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| "the sum of all keys is no number".to_owned())
            }
            _ => Ok(0),
        }
    }

    /// All clients, on a thread of their own; then the keys are added up.
    ///
    /// # Errors
    /// They cannot connect.
    pub(super) fn run(&self, of: &Transfers) -> Result<Recorder, Failure> {
        let worked = runtime()?.block_on(async {
            let mut clients = Vec::new();
            for number in 0..of.clients {
                let stream = TcpStream::connect(("127.0.0.1", self.server.port())).await;
                let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
                let stream = stream.map_err(|error| format!("a client does not connect: {error}"))?;
                clients.push(Piper { number: u32::from(number), stream, input: Vec::new() });
            }
            of.drive(clients).await
        })?;
        self.add_up(u32::from(of.clients))?;
        Ok(worked)
    }

    /// Leaves the sum of all accounts in one key.
    fn add_up(&self, clients: u32) -> Result<(), Failure> {
        let mut client = Client::connect(self.server.port())?;
        let mut sum = 0;
        for account in 0..clients * ACCOUNTS_EACH {
            if let Value::Bulk(text) = client.call(&["GET", &key(account)])? {
                sum += std::str::from_utf8(&text).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
            }
        }
        client.call(&["SET", MONEY, &sum.to_string()]).map(drop)
    }
}

/// One client, which sends each transfer as one pipeline.
struct Piper {
    number: u32,
    stream: TcpStream,
    /// Replies that were not looked at.
    input: Vec<u8>,
}

impl super::Client for Piper {
    async fn transfer(&mut self, count: u32) -> Result<(), Failure> {
        let transfer = self.transfer_from(self.number * ACCOUNTS_EACH + count % ACCOUNTS_EACH);
        let late = |_| Err(format!("no reply within {} s", REPLY_MAX.as_secs()));
        tokio::time::timeout(REPLY_MAX, transfer).await.unwrap_or_else(late)
    }
}

impl Piper {
    /// Two from a row in PostgreSQL, one to a row in MariaDB, one to a key.
    async fn transfer_from(&mut self, account: u32) -> Result<(), Failure> {
        let row = account.to_string();
        let in_postgres = "UPDATE evenkeel_bench SET money = money - 2 WHERE id = $1";
        let in_mariadb = "UPDATE evenkeel_bench SET money = money + 1 WHERE id = ?";
        let mut requests = Vec::new();
        resp::encode_command(&mut requests, &["TX.BEGIN"]);
        resp::encode_command(&mut requests, &["TX.SQL", "$", "postgres", in_postgres, &row]);
        resp::encode_command(&mut requests, &["TX.SQL", "$", "mariadb", in_mariadb, &row]);
        resp::encode_command(&mut requests, &["TX.DO", "$", "INCR", &key(account)]);
        resp::encode_command(&mut requests, &["TX.COMMIT", "$"]);
        self.stream.write_all(&requests).await.map_err(|error| format!("sending: {error}"))?;
        match self.receive().await? {
            Value::Array(_) => {}
            other => return Err(format!("TX.BEGIN: {other:?}")),
        }
        for expected in ["postgres", "mariadb", "key"] {
            match self.receive().await? {
                Value::Integer(_) => {}
                other => return Err(format!("{expected}: {other:?}")),
            }
        }
        match self.receive().await? {
            Value::Array(outcome) if matches!(&outcome[..], [Value::Bulk(word), _] if word == b"committed") => {
                Ok(())
            }
            other => Err(format!("TX.COMMIT: {other:?}")),
        }
    }

    async fn receive(&mut self) -> Result<Value, Failure> {
        loop {
            if let Some((value, bytes)) =
                resp::decode_value(&self.input).map_err(|error| error.to_string())?
            {
                self.input.drain(..bytes);
                return Ok(value);
            }
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(|error| format!("receiving: {error}"))? == 0 {
                return Err("the server closed the connection".to_owned());
            }
        }
    }
}

fn key(account: u32) -> String {
    format!("account:{account}")
}

fn toml_text(text: &str) -> String {
    format!("'{text}'")
}

/// Where the sum is left.
const MONEY: &str = "money";
const READY_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
const REPLY_MAX: Duration = Duration::from_secs(60);
