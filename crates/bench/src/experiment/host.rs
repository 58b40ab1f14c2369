//! Where the load goes: a server that runs already, or one that is started afresh for each test.

use std::path::{Path, PathBuf};

use resp::Value;

use super::arguments::Common;
use super::hazelcast;
use crate::Failure;
use crate::client::Client;
use crate::drive::{Protocol, Target};
use crate::process;
use crate::servers::{Ready, Recipe, Server, is_installed, sibling};

/// A server to be measured.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// What tables call it.
    pub(super) label: String,
    kind: Kind,
    folder: PathBuf,
}

#[derive(Clone, Debug)]
enum Kind {
    Running(Target),
    Started(Recipe, Protocol),
    /// It is loaded by a client of its own.
    Hazelcast(Recipe),
}

/// A server as it runs, ended when dropped if it was started here.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: Target,
    server: Option<Server>,
    /// Whether what is written can be read: not so of the engine noop.
    pub(super) keeps: bool,
}

impl Host {
    /// The servers that `common` names, the first one first.
    ///
    /// # Errors
    /// There is none of a name.
    pub(super) fn all(common: &Common) -> Result<Vec<Self>, Failure> {
        if let Some(target) = &common.url {
            return Ok(vec![Self::new(target.to_string(), Kind::Running(target.clone()), common)]);
        }
        let first = Self::named(&common.server, common)?;
        first.prepare().map_err(|why| format!("{} {why}", first.label))?;
        let mut hosts = vec![first];
        for name in &common.against {
            let host = Self::named(name, common)?;
            match host.prepare() {
                Ok(()) => hosts.push(host),
                Err(why) => eprintln!("evenkeel: {} {why}: measured without it", host.label),
            }
        }
        Ok(hosts)
    }

    /// Whether our engine does not speak its protocol.
    pub(super) fn has_own_client(&self) -> bool {
        matches!(self.kind, Kind::Hazelcast(_))
    }

    /// Sees that it can be started; what is in the way, said of it.
    fn prepare(&self) -> Result<(), Failure> {
        let (Kind::Started(recipe, _) | Kind::Hazelcast(recipe)) = &self.kind else { return Ok(()) };
        if !is_installed(recipe.program()) {
            return Err(format!("is not installed here (no {})", recipe.program().display()));
        }
        if self.has_own_client() { hazelcast::build() } else { Ok(()) }
    }

    /// An evenkeel with `flags` beside those of `common`.
    pub(super) fn evenkeel(flags: &[String], label: String, common: &Common) -> Result<Self, Failure> {
        let program = sibling("evenkeel");
        let mut arguments = "serve --bind 127.0.0.1 --port {port} --dir {dir} --connections-max {clients}"
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let loops = common.loops.map(|loops| loops.to_string());
        let given = [("--engine", &common.engine), ("--connector", &common.connector), ("--loops", &loops)];
        for (flag, value) in given {
            arguments.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
        }
        arguments.extend(flags.iter().cloned());
        Ok(Self::new(label, Kind::Started(Recipe::of(&program, arguments), Protocol::Resp), common))
    }

    /// How it is started, for who wants to repeat it.
    pub(super) fn command(&self) -> Option<String> {
        match &self.kind {
            Kind::Running(_) => None,
            Kind::Started(recipe, _) | Kind::Hazelcast(recipe) => {
                Some(recipe.filled("{clients}", "CLIENTS").command())
            }
        }
    }

    /// Starts it for so many clients, or takes the one that runs.
    ///
    /// # Errors
    /// It does not start, or is not there.
    pub(super) fn fresh(&self, clients: usize) -> Result<Running, Failure> {
        match &self.kind {
            Kind::Running(target) => {
                let keeps = keeps(target)?;
                Ok(Running { target: target.clone(), server: None, keeps })
            }
            Kind::Started(recipe, protocol) => {
                let server = self.start(recipe, clients)?;
                let target = Target::local_of(*protocol, server.port());
                let keeps = recipe.is_limit() || keeps(&target)?;
                Ok(Running { target, server: Some(server), keeps })
            }
            // Its protocol is its client's affair.
            Kind::Hazelcast(recipe) => {
                let server = self.start(recipe, clients)?;
                Ok(Running { target: Target::local(server.port()), server: Some(server), keeps: true })
            }
        }
    }

    fn start(&self, recipe: &Recipe, clients: usize) -> Result<Server, Failure> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let places = (clients + CLIENTS_BESIDE).max(CLIENTS_USUAL).to_string();
        let server = Server::start(&recipe.filled("{clients}", &places), &self.folder);
        server.inspect_err(|_| remove_if_empty(&self.folder))
    }

    fn named(text: &str, common: &Common) -> Result<Self, Failure> {
        let (name, flags) = text.split_once('=').unwrap_or((text, ""));
        let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        let label = [name].into_iter().chain(flags.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
        let peer = |program: &str, fixed: &str| {
            // An empty word is an argument, too.
            let fixed = fixed.split(' ').map(str::to_owned);
            Recipe::of(program.as_ref(), fixed.chain(flags.iter().cloned()).collect())
        };
        let redis = "--bind 127.0.0.1 --port {port} --dir {dir} --maxclients {clients} --save ";
        let mut protocol = Protocol::Resp;
        let recipe = match name {
            "evenkeel" => {
                let engine = common.engine.iter().chain(&common.connector).map(String::as_str);
                let label = [label.as_str()].into_iter().chain(engine).collect::<Vec<_>>().join(" ");
                return Self::evenkeel(&flags, label, common);
            }
            "redis" => peer("redis-server", redis),
            "valkey" => peer("valkey-server", redis),
            "memcached" => {
                protocol = Protocol::Memcached;
                let cores = || std::thread::available_parallelism().map_or(1, usize::from);
                let threads = common.loops.map_or_else(cores, usize::from);
                peer("memcached", &format!("{MEMCACHED} -t {threads}")).ready_when(Ready::Accepts)
            }
            "hazelcast" => {
                let recipe = hazelcast::member(&flags)?;
                return Ok(Self::new(label, Kind::Hazelcast(recipe), common));
            }
            "limit" => Recipe::limit(usize::from(common.loops.unwrap_or(2)), false, true)
                .with(&flags.iter().map(String::as_str).collect::<Vec<_>>()),
            other => {
                return Err(format!(
                    "no server `{other}`: evenkeel, redis, valkey, memcached, hazelcast or limit"
                ));
            }
        };
        Ok(Self::new(label, Kind::Started(recipe, protocol), common))
    }

    fn new(label: String, kind: Kind, common: &Common) -> Self {
        let folder = common.folder.clone().unwrap_or_else(std::env::temp_dir);
        Self { label, kind, folder: folder.join(format!("evenkeel-bench-{}", std::process::id())) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let parent = server.folder().parent().map(Path::to_path_buf);
            drop(server);
            parent.iter().for_each(|parent| remove_if_empty(parent));
        }
    }
}

/// Removes the folder of servers' folders after the last of them.
fn remove_if_empty(folder: &Path) {
    // The system refuses when there is something in it.
    let _ = std::fs::remove_dir(folder);
}

impl Running {
    /// Processor time that it has taken, if it was started here.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        process::cpu_seconds(self.server.as_ref()?.id()).ok()
    }

    /// Memory that it takes, if it was started here.
    pub(super) fn rss_bytes(&self) -> Option<u64> {
        process::rss_bytes(self.server.as_ref()?.id()).ok()
    }

    /// The folder of its data, if it was started here.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.server.as_ref().map(Server::folder)
    }

    /// A connection to ask it about itself.
    ///
    /// # Errors
    /// It is not there.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Client::connect_to(&self.target)
    }
}

/// Whether the server at `target` keeps what is written; it is there in any case.
fn keeps(target: &Target) -> Result<bool, Failure> {
    if target.protocol == Protocol::Memcached {
        return Ok(true);
    }
    let mut client = Client::connect_to(target)?;
    let engine = client.call(&["CONFIG", "GET", "engine"]);
    Ok(!matches!(engine, Ok(Value::Array(words)) if words.get(1) == Some(&Value::Bulk(b"noop".to_vec()))))
}

/// It runs as somebody else where we are root, answers with an error when its memory is used up instead of forgetting keys, and
/// may use more of it than by itself. It gets as many threads as an evenkeel has loops: its own default of 4 is not meant for
/// two cores.
const MEMCACHED: &str = "-l 127.0.0.1 -p {port} -c {clients} -u nobody -M -m 4096";
/// Connections of ours that are not of the load.
const CLIENTS_BESIDE: usize = 64;
/// What servers allow if nobody says anything.
const CLIENTS_USUAL: usize = 10_000;
