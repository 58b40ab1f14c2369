//! The table: a setting is one row, and a row is all there is to a setting.
//!
//! A row's texts become `--help`, the manual page and the example file as they stand. `summary` says what the
//! setting does, `reason` why the default is what it is and what another value costs.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tls::{ClientCertificates, Versions};

use super::classes::Classes;
use super::error::{Expected, SettingError};
use super::kinds::{Kind, Size};
use super::secure::CertificateUser;
use super::values::Settings;
use super::{
    Assignment, Backend, BalanceBy, Connector, Durability, Engine, Every, HostName, LogLevel, MemoryLimit,
    Node, Percent, Policy, Secret, Threshold, TxnLog, User, WorkerTransport,
};

/// A setting.
pub struct Row {
    /// Its name: in the file, in CONFIG, in errors and metrics.
    pub key: &'static str,
    /// What a value looks like, for the help.
    pub form: &'static str,
    /// The default, as it would be written in the file.
    pub default: &'static str,
    /// Least and most, as they would be written; empty where there are no bounds.
    pub bounds: [&'static str; 2],
    /// Whether CONFIG SET may change it while the server runs.
    pub runtime: bool,
    /// What it does.
    pub summary: &'static str,
    /// Why the default is what it is.
    pub reason: &'static str,
    field: Field,
}

impl Row {
    /// The row called `name`, in the spelling of the file or of the flag.
    pub fn find(name: &str) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.key == name)
    }

    /// Its flag, without the dashes in front.
    pub fn flag(&self) -> String {
        match self.key {
            "log.json" => "json-logs".to_owned(),
            key => key.replace(['.', '_'], "-"),
        }
    }

    /// Whether its value is true or false, so that its flag needs no value.
    pub fn is_switch(&self) -> bool {
        self.form == SWITCH
    }

    /// The part of the name before the dot.
    pub fn group(&self) -> Option<&'static str> {
        self.key.split_once('.').map(|(group, _)| group)
    }

    /// The section of the manual, and of the help, that it belongs to.
    pub fn heading(&self) -> &'static str {
        match (self.key, self.group()) {
            ("dir" | "engine" | "durability" | "databases", _) => "Data",
            ("loops" | "connector" | "assignment", _) | (_, Some("balance")) => "Threads",
            (_, None | Some("acl")) => "Network",
            (_, Some("tls")) => "TLS",
            (_, Some("connections")) => "Connections",
            (_, Some("value" | "transaction" | "memory" | "script" | "store")) => "Limits of the data",
            (_, Some("journal")) => "Journal",
            (_, Some("txn")) => "Transactions",
            (_, Some("topologies")) => "Topologies",
            (_, Some(_)) => "Watching",
        }
    }

    /// The value that `settings` has, as text.
    pub fn text(&self, settings: &Settings) -> String {
        (self.field.write)(settings)
    }

    /// Sets the value in `settings`.
    ///
    /// # Errors
    /// [`SettingError::Value`]: what was expected, with the bounds.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), SettingError> {
        let measured = (self.field.read)(settings, text)
            .map_err(|expected| self.refusal(text, &format!("expected {expected}{}", self.range())))?;
        let [least, most] = self.bounds.map(|bound| self.measured(bound));
        match measured {
            Some(value) if least.is_some_and(|least| value < least) => {
                Err(self.refusal(text, &format!("the least is {}", self.bounds[0])))
            }
            Some(value) if most.is_some_and(|most| value > most) => {
                Err(self.refusal(text, &format!("the most is {}", self.bounds[1])))
            }
            _ => Ok(()),
        }
    }

    /// The bounds of a plain number, for whoever gave none: other kinds show how a value looks instead.
    fn range(&self) -> String {
        let [least, most] = self.bounds;
        let plain = matches!(self.form, "COUNT" | "PORT" | "PERCENT");
        if plain { format!(" from {least} to {most}") } else { String::new() }
    }

    /// The number behind one of the bounds.
    fn measured(&self, bound: &str) -> Option<u128> {
        if bound.is_empty() { None } else { (self.field.measure)(bound) }
    }

    fn refusal(&self, text: &str, why: &str) -> SettingError {
        SettingError::Value(match self.key {
            "requirepass" => format!("requirepass: {why}"),
            key => format!("{key} = {}: {why}", shown(text)),
        })
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.key)
    }
}

/// `text` as an error shows it.
pub(super) fn shown(text: &str) -> &str {
    if text.is_empty() { "''" } else { text }
}

/// How a row reaches its field.
struct Field {
    read: fn(&mut Settings, &str) -> Result<Option<u128>, Expected>,
    write: fn(&Settings) -> String,
    measure: fn(&str) -> Option<u128>,
}

/// Makes the field, the default and the row of each setting from one list.
macro_rules! table {
    ($($field:ident: $kind:ty = $key:literal {
        form: $form:expr, default: $default:literal, bounds: [$least:literal, $most:literal],
        runtime: $runtime:literal, summary: $summary:literal, reason: $reason:literal,
    })*) => {
        /// Every setting there is, in the order of the manual.
        pub static ROWS: &[Row] = &[$(Row {
            key: $key, form: $form, default: $default, bounds: [$least, $most], runtime: $runtime,
            summary: $summary, reason: $reason,
            field: Field {
                read: |settings, text| {
                    let value = <$kind as Kind>::read(text)?;
                    let measured = value.measure();
                    settings.$field = value;
                    Ok(measured)
                },
                write: |settings| settings.$field.write(),
                measure: |text| <$kind as Kind>::read(text).ok().and_then(|value| value.measure()),
            },
        }),*];

        /// The settings of a server that was told nothing.
        impl Default for Settings {
            fn default() -> Self {
                Settings {
                    $($field: <$kind as Kind>::read($default).expect("a test reads every default"),)*
                    resources: Vec::new(),
                    tls_set_count: 0,
                    accepted: super::compat::Accepted::default(),
                }
            }
        }
    };
}

const SWITCH: &str = "true|false";

table! {
    dir: PathBuf = "dir" {
        form: "PATH", default: "./evenkeel-data", bounds: ["", ""], runtime: false,
        summary: "Folder of the data; created if it does not exist. Only one server may use it at a time.",
        reason: "A folder below the current one, so that a first try leaves nothing elsewhere.",
    }
    engine: Engine = "engine" {
        form: "log|memory|noop", default: "log", bounds: ["", ""], runtime: false,
        summary: "Where values live: on disk (log), only in memory (memory), or nowhere (noop).",
        reason: "Only log keeps data over a restart. memory is for caches and tests, noop for measuring the network alone.",
    }
    durability: Durability = "durability" {
        form: "always|never|DURATION", default: "always", bounds: ["1ms", "1h"], runtime: false,
        summary: "When a write is on disk: before its reply (always), within a time after its reply (DURATION), or when the \
                  operating system writes it (never).",
        reason: "With anything but always a loss of power, or a kill of the process, can undo acknowledged writes; INFO persistence \
                 says so.",
    }
    databases: u16 = "databases" {
        form: "COUNT", default: "16", bounds: ["1", "1024"], runtime: false,
        summary: "Number of databases that SELECT can reach.",
        reason: "As in Redis.",
    }
    bind: Vec<IpAddr> = "bind" {
        form: "ADDRESS...", default: "127.0.0.1", bounds: ["", ""], runtime: false,
        summary: "IP addresses to listen on, separated by spaces.",
        reason: "Only this machine can connect. For other addresses set a password: see protected_mode.",
    }
    port: u16 = "port" {
        form: "PORT", default: "6379", bounds: ["0", "65535"], runtime: false,
        summary: "TCP port to listen on; 0 for none.",
        reason: "The port of Redis, which every client tries first.",
    }
    unixsocket: Option<PathBuf> = "unixsocket" {
        form: "PATH", default: "", bounds: ["", ""], runtime: false,
        summary: "Unix socket to listen on; empty for none.",
        reason: "It is faster than TCP on the same machine, but clients must know the path.",
    }
    requirepass: Secret = "requirepass" {
        form: "PASSWORD", default: "", bounds: ["", ""], runtime: true,
        summary: "Password for AUTH, at most 512 B; empty for none. Other users of the machine can see flags: prefer \
                  requirepass_file.",
        reason: "None, because by default only this machine can connect.",
    }
    requirepass_file: Option<PathBuf> = "requirepass_file" {
        form: "PATH", default: "", bounds: ["", ""], runtime: false,
        summary: "File with the password in its first line, for example a secret that systemd or Kubernetes mounts.",
        reason: "Only the server needs to be able to read this file.",
    }
    protected_mode: bool = "protected_mode" {
        form: SWITCH, default: "true", bounds: ["", ""], runtime: false,
        summary: "Refuse to start without a password on an address that other machines reach.",
        reason: "Open servers are found and emptied within hours. Turn it off where something else protects the server, for \
                 example a firewall.",
    }
    acl_file: Option<PathBuf> = "acl.file" {
        form: "PATH", default: "", bounds: ["", ""], runtime: false,
        summary: "File of users, a line `user NAME RULE...` for each, as ACL LIST shows them; ACL SAVE writes it, ACL LOAD reads \
                  it again. Empty: users are gone at the stop.",
        reason: "As in Redis (aclfile).",
    }
    acl_all_channels: bool = "acl.all_channels" {
        form: SWITCH, default: "false", bounds: ["", ""], runtime: true,
        summary: "Whether new users, and those that are reset, may use all channels.",
        reason: "As in Redis (acl-pubsub-default): what is not granted is not allowed.",
    }
    acl_log_length_max: usize = "acl.log_length_max" {
        form: "COUNT", default: "128", bounds: ["0", "65536"], runtime: true,
        summary: "Entries that ACL LOG keeps.",
        reason: "As in Redis (acllog-max-len).",
    }
    tls_port: u16 = "tls.port" {
        form: "PORT", default: "0", bounds: ["0", "65535"], runtime: false,
        summary: "TCP port for clients that speak TLS, on the addresses of bind; 0 for none. With port = 0 it is the only one.",
        reason: "TLS needs a certificate, which only you can choose.",
    }
    tls_certificate_file: Option<PathBuf> = "tls.certificate_file" {
        form: "PATH", default: "", bounds: ["", ""], runtime: true,
        summary: "File with the server's certificate in PEM, and behind it those between it and its CA.",
        reason: "SIGHUP, and CONFIG SET of a setting of TLS, read it again: open connections go on, new ones use the new one.",
    }
    tls_key_file: Option<PathBuf> = "tls.key_file" {
        form: "PATH", default: "", bounds: ["", ""], runtime: true,
        summary: "File with the key of the certificate in PEM, not encrypted.",
        reason: "Only the server needs to be able to read this file. It is read again as tls.certificate_file is.",
    }
    tls_ca_file: Option<PathBuf> = "tls.ca_file" {
        form: "PATH", default: "", bounds: ["", ""], runtime: true,
        summary: "File with certificates in PEM of those who sign certificates of clients.",
        reason: "None, because by default clients are not asked for certificates. It is read again as tls.certificate_file is.",
    }
    tls_client_certificates: ClientCertificates = "tls.client_certificates" {
        form: "no|optional|yes", default: "no", bounds: ["", ""], runtime: true,
        summary: "Whether clients show a certificate that tls.ca_file has signed: not asked (no), checked if shown (optional), or \
                  refused without (yes).",
        reason: "Most clients have none: they trust the server's certificate, and log in with a password.",
    }
    tls_user_from_certificate: CertificateUser = "tls.user_from_certificate" {
        form: "off|cn", default: "off", bounds: ["", ""], runtime: true,
        summary: "User that a client's certificate logs in: none (off), or the one with its common name (cn).",
        reason: "Whoever signs certificates then says who may log in: that should be meant.",
    }
    tls_protocols: Versions = "tls.protocols" {
        form: "VERSION...", default: "1.2 1.3", bounds: ["", ""], runtime: true,
        summary: "Versions of TLS, separated by spaces: 1.2 and 1.3.",
        reason: "Older clients know only 1.2, which is safe with the ciphers used here. 1.3 needs one round trip less.",
    }
    tls_resumption: bool = "tls.resumption" {
        form: SWITCH, default: "true", bounds: ["", ""], runtime: true,
        summary: "Let a client take up an earlier session again, for 12 hours at most.",
        reason: "It spares the server most of a handshake's work. New files of tls.* end all former sessions.",
    }
    tls_handshake_timeout: Duration = "tls.handshake_timeout" {
        form: "DURATION", default: "10s", bounds: ["100ms", "10m"], runtime: true,
        summary: "Longest time from the accept of a client to the end of its handshake.",
        reason: "Enough for a slow network; a client that says nothing holds a place no longer.",
    }
    tls_handshakes_max: usize = "tls.handshakes_max" {
        form: "COUNT", default: "256", bounds: ["1", "65536"], runtime: true,
        summary: "Handshakes under way at a time. Clients beyond wait, or take the place of one that has not got on for a second.",
        reason: "Bounds their memory, up to 70 KiB each. They share one thread, whatever their number.",
    }
    loops: usize = "loops" {
        form: "COUNT", default: "0", bounds: ["0", "256"], runtime: false,
        summary: "Number of event loops; each is a thread with its own connections. 0: as many as the load needs, at most \
                  one for each core that the process may use (affinity mask, CPU quota of the control group).",
        reason: "More loops than cores wait for each other. Where other processes use the cores, fewer loops are faster. \
                 INFO loops shows how many are active and why. A number other than 0 is fixed.",
    }
    connector: Connector = "connector" {
        form: "epoll|uring|threads", default: "epoll", bounds: ["", ""], runtime: false,
        summary: "How threads do the I/O of connections: event loops with readiness (epoll) or completions (uring), or one \
                  thread for each connection (threads).",
        reason: "epoll runs everywhere. uring falls back to epoll where io_uring is not available. threads is for comparison.",
    }
    assignment: Assignment = "assignment" {
        form: "least-loaded|round-robin|by-host", default: "least-loaded", bounds: ["", ""], runtime: false,
        summary: "Which loop gets a new connection: the least busy one (least-loaded), each in turn (round-robin), or the \
                  same one for each IP address (by-host).",
        reason: "Round robin becomes uneven when connections close immediately. by-host is uneven when hosts differ, and its \
                 connections are not balanced.",
    }
    balance_interval: Every = "balance.interval" {
        form: "0|DURATION", default: "5s", bounds: ["10ms", "1h"], runtime: true,
        summary: "How often the loops are compared, and connections moved from the busiest to the idlest; 0 or less for never.",
        reason: "Long enough to measure a load, short enough that three rounds correct a bad start. Loads are measured in any case.",
    }
    balance_by: BalanceBy = "balance.by" {
        form: "time|bytes|events", default: "time", bounds: ["", ""], runtime: true,
        summary: "What is compared: the CPU time that a loop spends on its connections (time), their bytes, or their reads \
                  and writes (events).",
        reason: "Loops run out of time, not of bytes or events. Other servers count bytes or events.",
    }
    balance_threshold: u16 = "balance.threshold" {
        form: "PERCENT", default: "10", bounds: ["1", "90"], runtime: true,
        summary: "Largest difference between the busiest and the idlest loop that is left alone, in percent of the busiest.",
        reason: "With less, connections would move for differences that disappear by themselves.",
    }
    connections_max: usize = "connections.max" {
        form: "COUNT", default: "10000", bounds: ["1", "1000000"], runtime: true,
        summary: "Most connections at a time; further connections get an error and are closed.",
        reason: "As in Redis. Lowered, with a warning, to what the limit of open files allows beside the data's files.",
    }
    connections_input_max: Size = "connections.input_max" {
        form: "SIZE", default: "128MiB", bounds: ["1KiB", "1GiB"], runtime: true,
        summary: "Largest request as a whole; a larger one closes its connection.",
        reason: "Room for a value of value.max and a little more. Before AUTH: 10 strings of 16 KiB.",
    }
    connections_output_max: Size = "connections.output_max" {
        form: "SIZE", default: "256MiB", bounds: ["64KiB", "4GiB"], runtime: true,
        summary: "Most bytes of replies that wait for a client that does not read; beyond it the connection is closed.",
        reason: "Room for several values of value.max. While replies wait, requests are not read.",
    }
    connections_held_max: Size = "connections.held_max" {
        form: "SIZE", default: "16MiB", bounds: ["64KiB", "4GiB"], runtime: false,
        summary: "Most bytes of one connection's replies that wait for the disk; beyond it the connection is not read.",
        reason: "A slow disk then slows clients down, and closes no connection.",
    }
    connections_idle_timeout: Duration = "connections.idle_timeout" {
        form: "DURATION", default: "0", bounds: ["0", "365d"], runtime: true,
        summary: "Close a connection that has sent nothing for this time; 0 for never.",
        reason: "As in Redis: client pools expect idle connections to stay. Subscribers, MONITOR and clients that wait for a \
                 reply are never closed.",
    }
    connections_auth_timeout: Duration = "connections.auth_timeout" {
        form: "DURATION", default: "30s", bounds: ["0", "1d"], runtime: true,
        summary: "Close a connection that has not authenticated within this time, if a password is set; 0 for never.",
        reason: "Clients authenticate at once. Strangers must not occupy connections for ever.",
    }
    connections_unauthenticated_max: Size = "connections.unauthenticated_max" {
        form: "SIZE", default: "32MiB", bounds: ["64KiB", "4GiB"], runtime: true,
        summary: "Most memory for all unauthenticated connections together, at most a quarter of connections.memory_max; \
                  beyond it the connections that use most are closed, of equal ones the oldest.",
        reason: "Room for about ten thousand clients that connect at the same moment. Each gets at most 8 KiB of replies \
                 before AUTH.",
    }
    connections_memory_max: Size = "connections.memory_max" {
        form: "SIZE", default: "0", bounds: ["0", "1TiB"], runtime: true,
        summary: "Most memory for all connections together: input, requests in progress, replies, messages, transactions. It \
                  is a part of memory.limit, at most three quarters of it; 0 for three eighths.",
        reason: "Beyond it requests wait for room, and clients that do not read are closed. See limits.md in the manual.",
    }
    connections_room_wait_max: Duration = "connections.room_wait_max" {
        form: "DURATION", default: "10s", bounds: ["10ms", "1h"], runtime: true,
        summary: "Longest wait of a large request for room in connections.memory_max; then it is refused. A request that has \
                  room is ended if almost nothing of it arrives in a quarter of this time while others wait.",
        reason: "Long enough for some large requests before it, short enough for a client to try again.",
    }
    connections_subscriptions_max: Size = "connections.subscriptions_max" {
        form: "SIZE", default: "16MiB", bounds: ["1KiB", "4GiB"], runtime: true,
        summary: "Most memory for the channels and patterns of one connection: their names, 192 B for each, and compiled patterns.",
        reason: "Room for 75,000 channels with names of 30 bytes. Without a bound one client could use all memory.",
    }
    connections_messages_max: Size = "connections.messages_max" {
        form: "SIZE", default: "64MiB", bounds: ["64KiB", "16GiB"], runtime: true,
        summary: "Most bytes of published messages on their way to all listeners together; beyond it PUBLISH waits, and \
                  connections in MONITOR are closed.",
        reason: "Loops take messages within a millisecond. So many bytes are on their way only when the loops, or the disk, \
                 fall behind.",
    }
    value_max: Size = "value.max" {
        form: "SIZE", default: "64MiB", bounds: ["1KiB", "512MiB"], runtime: false,
        summary: "Largest value of a key.",
        reason: "A larger value would occupy the disk for more than a tenth of a second while others wait. Redis: 512 MiB.",
    }
    transaction_max: Size = "transaction.max" {
        form: "SIZE", default: "128MiB", bounds: ["1KiB", "1GiB"], runtime: false,
        summary: "Most bytes that one MULTI, MSET or other atomic command may write.",
        reason: "They are written to disk in one piece, all or nothing.",
    }
    memory_limit: MemoryLimit = "memory.limit" {
        form: "auto|SIZE", default: "auto", bounds: ["16MiB", "16TiB"], runtime: true,
        summary: "Most memory for index, values and buffers: auto for three quarters of what the machine or the control \
                  group has, 0 for no limit.",
        reason: "At the limit values leave memory first (they are on disk). Then commands that store more are refused, and \
                 reads, DEL and EXPIRE continue. So the system does not kill the server for its memory.",
    }
    memory_policy: Policy = "memory.policy" {
        form: "noeviction|allkeys-lru|allkeys-lfu|allkeys-random|volatile-lru|volatile-lfu|volatile-random|volatile-ttl",
        default: "noeviction", bounds: ["", ""], runtime: true,
        summary: "Which keys are evicted for lack of room: room in memory with engine memory, room on disk \
                  (store.disk_limit) with engine log. Redis: maxmemory-policy.",
        reason: "No data is deleted unless you choose a policy. Policies with lru and lfu in their names track the use of \
                 keys, in 4 bytes for each key.",
    }
    script_time_limit: Duration = "script.time_limit" {
        form: "DURATION", default: "5s", bounds: ["1ms", "1h"], runtime: true,
        summary: "Longest time that a script or a function runs; then it is stopped, and nothing of it has happened. One that \
                  needs all keys (KEYS, FLUSHDB, ...) may take a tenth of it. Redis: busy-reply-threshold.",
        reason: "Longer scripts are most often loops without an end. A script of more than a millisecond runs beside the \
                 event loops, and only its keys wait for it.",
    }
    script_memory_limit: Size = "script.memory_limit" {
        form: "SIZE", default: "64MiB", bounds: ["4MiB", "16GiB"], runtime: true,
        summary: "Most memory of one interpreter of Lua. A script that needs more is stopped, and nothing of it has happened.",
        reason: "There is an interpreter for each event loop that runs scripts; most need less than 1 MiB.",
    }
    store_space_ratio_max: u16 = "store.space_ratio_max" {
        form: "PERCENT", default: "200", bounds: ["0", "10000"], runtime: false,
        summary: "Largest size of the log, in percent of the live records; beyond it writers are slowed down until cleaning \
                  has caught up. 0 for no bound.",
        reason: "Cleaning begins at 135 and runs at full speed from 170, so only writers that are faster than cleaning reach \
                 the bound. Deletes are never slowed down.",
    }
    store_disk_limit: Size = "store.disk_limit" {
        form: "SIZE", default: "0", bounds: ["0", "64TiB"], runtime: true,
        summary: "Most bytes that the log may reach, counted as live data times store.space_ratio_max. From 15/16 of it on \
                  keys are evicted if memory.policy says so; beyond it writes are refused, or wait for the eviction. 0: the \
                  size of the file system.",
        reason: "Without a limit the folder may fill its file system; a reserve for deletes is kept.",
    }
    store_leaf_size: Size = "store.leaf_size" {
        form: "SIZE", default: "2KiB", bounds: ["256B", "64KiB"], runtime: false,
        summary: "Bytes of a leaf, about. A collection that is larger than two (a list: than four) is kept in leaves: a command \
                  on one of its elements reads and changes one of them.",
        reason: "A leaf is what is read from disk for one element. Larger ones take less memory while they are cold.",
    }
    journal_backend: Backend = "journal.backend" {
        form: "auto|buffered|direct|uring", default: "auto", bounds: ["", ""], runtime: false,
        summary: "How the journal writes and syncs. The start prints what was chosen.",
        reason: "auto is buffered. direct bypasses the page cache. uring falls back to buffered where the kernel has no io_uring.",
    }
    journal_segment_size: Size = "journal.segment_size" {
        form: "SIZE", default: "64MiB", bounds: ["64KiB", "1GiB"], runtime: false,
        summary: "Size of a segment file. A change applies to new segments.",
        reason: "Larger segments are recycled less often, smaller ones waste less space. A log below 2 GiB uses smaller ones \
                 by itself, from 8 MiB on.",
    }
    journal_buffer_max: Size = "journal.buffer_max" {
        form: "SIZE", default: "64MiB", bounds: ["64KiB", "4GiB"], runtime: false,
        summary: "Most bytes of writes that wait in memory for the disk; beyond it writers are slowed down.",
        reason: "A second of a slow disk. A single larger write is accepted when it is alone.",
    }
    txn_node: Node = "txn.node" {
        form: "NAME", default: "", bounds: ["", ""], runtime: false,
        summary: "Name of this server in the databases of its transactions: 1 to 24 characters of a-z, 0-9 and -. Empty: a \
                  name is made at the first start and kept with the data.",
        reason: "The name distinguishes this server's branches from all others, so no two servers may have the same.",
    }
    txn_log: TxnLog = "txn.log" {
        form: "journal|file", default: "journal", bounds: ["", ""], runtime: false,
        summary: "Where decisions are kept: in a journal of their own, or in a file for each. It cannot be changed after the \
                  first start.",
        reason: "The journal makes many decisions durable with one sync. file is for comparison.",
    }
    txn_timeout: Duration = "txn.timeout" {
        form: "DURATION", default: "1m", bounds: ["1ms", "1d"], runtime: true,
        summary: "A transaction that is neither committed nor rolled back within this time is rolled back. TX.BEGIN may \
                  choose another time.",
        reason: "Long enough for a user's request, short enough that an abandoned transaction does not block others.",
    }
    txn_timeout_max: Duration = "txn.timeout_max" {
        form: "DURATION", default: "10m", bounds: ["1ms", "1d"], runtime: true,
        summary: "Largest TIMEOUT that TX.BEGIN accepts. Without TIMEOUT a transaction has the smaller of this and txn.timeout.",
        reason: "An abandoned transaction holds rows, and a session of each of its databases, until its time is over.",
    }
    txn_start_wait: Duration = "txn.start_wait" {
        form: "DURATION", default: "5s", bounds: ["0s", "10m"], runtime: false,
        summary: "For this time after the start TX.SQL and TX.ENLIST wait for a database that does not answer yet, instead of failing.",
        reason: "The server accepts clients at once and connects to the databases meanwhile.",
    }
    txn_lock_wait: Duration = "txn.lock_wait" {
        form: "DURATION", default: "1s", bounds: ["0s", "1h"], runtime: true,
        summary: "Longest wait of a command for a key that a prepared transaction holds; then the reply is TRYAGAIN.",
        reason: "Most transactions are prepared for some milliseconds. One whose database is down holds its keys for longer.",
    }
    txn_keep: Duration = "txn.keep" {
        form: "DURATION", default: "1m", bounds: ["0s", "1d"], runtime: false,
        summary: "How long a decision is kept after all branches have carried it out, so that TX.STATUS knows it also after \
                  a restart.",
        reason: "A client that lost the reply to TX.COMMIT asks again within this time.",
    }
    txn_transactions_max: usize = "txn.transactions_max" {
        form: "COUNT", default: "65536", bounds: ["1", "1000000"], runtime: false,
        summary: "Most transactions that have begun and not ended.",
        reason: "About 64 MiB of memory, without keys and values.",
    }
    txn_recovery_interval: Duration = "txn.recovery_interval" {
        form: "DURATION", default: "10s", bounds: ["10ms", "1h"], runtime: false,
        summary: "How often the databases are asked for their prepared branches.",
        reason: "It is one short query.",
    }
    txn_safety_interval: Duration = "txn.safety_interval" {
        form: "DURATION", default: "10s", bounds: ["10ms", "1h"], runtime: false,
        summary: "A prepared branch that no transaction of this server knows is rolled back after this time.",
        reason: "Longer than the time from the prepare of any branch until the server knows of it.",
    }
    log_level: LogLevel = "log.level" {
        form: "error|warn|info|debug|trace", default: "info", bounds: ["", ""], runtime: false,
        summary: "Least important level that is logged to standard error.",
        reason: "At info nothing is logged while nothing happens.",
    }
    log_json: bool = "log.json" {
        form: SWITCH, default: "false", bounds: ["", ""], runtime: false,
        summary: "Log one JSON object on each line.",
        reason: "JSON is for log collectors, the default form for people.",
    }
    notify_keyspace_events: Classes = "notify.keyspace_events" {
        form: "CLASSES", default: "", bounds: ["", ""], runtime: true,
        summary: "Events of keys that are published, as in Redis: K to __keyspace@DB__:KEY, E to __keyevent@DB__:EVENT, of the classes \
                  g (generic) $ (strings) l (lists) s (sets) h (hashes) z (sorted sets) x (expired) e (evicted) t (streams); A for \
                  all of these, and m (missed), n (new). Without K or E nothing is published.",
        reason: "Each event costs its command some microseconds. Redis: off.",
    }
    tracking_keys_max: usize = "tracking.keys_max" {
        form: "COUNT", default: "1000000", bounds: ["0", "1000000000"], runtime: true,
        summary: "Most keys that are remembered for clients that keep copies (CLIENT TRACKING); beyond it some are forgotten, and their \
                  clients drop them. 0: no limit.",
        reason: "As in Redis. A key takes about 60 B.",
    }
    slowlog_threshold: Threshold = "slowlog.threshold" {
        form: "off|DURATION", default: "10ms", bounds: ["0", "1h"], runtime: true,
        summary: "Commands that run for this time or longer are kept for SLOWLOG; 0 keeps all, off none.",
        reason: "As in Redis.",
    }
    slowlog_length_max: usize = "slowlog.length_max" {
        form: "COUNT", default: "128", bounds: ["0", "1000000"], runtime: true,
        summary: "Most commands that SLOWLOG keeps; the oldest are removed first. 0 keeps none.",
        reason: "As in Redis.",
    }
    latency_threshold: Duration = "latency.threshold" {
        form: "DURATION", default: "0", bounds: ["0", "1h"], runtime: true,
        summary: "Events that take this time or longer are kept for LATENCY; 0 keeps none.",
        reason: "As in Redis.",
    }
    metrics_latency: bool = "metrics.latency" {
        form: SWITCH, default: "true", bounds: ["", ""], runtime: true,
        summary: "Measure the time of each command, for INFO latencystats, LATENCY HISTOGRAM and the metrics. Calls are \
                  counted in any case.",
        reason: "It costs 20 of 1,900 instructions for each call, and 52 KiB for each command that a loop has run.",
    }
    metrics_percentiles: Vec<Percent> = "metrics.percentiles" {
        form: "PERCENT...", default: "50 99 99.9 99.99", bounds: ["", ""], runtime: true,
        summary: "Percentiles of each command's time that INFO latencystats shows, separated by spaces.",
        reason: "As in Redis, and the slowest call in ten thousand.",
    }
    metrics_listen: Option<SocketAddr> = "metrics.listen" {
        form: "ADDRESS:PORT", default: "", bounds: ["", ""], runtime: false,
        summary: "Address where Prometheus reads the metrics, at /metrics; empty for none. Usually 127.0.0.1:9379.",
        reason: "Off, because the page asks for no password, and an open port has to be protected.",
    }
    metrics_hosts: Vec<HostName> = "metrics.hosts" {
        form: "NAME...", default: "", bounds: ["", ""], runtime: false,
        summary: "Host names under which metrics.listen answers, separated by spaces, besides IP addresses and localhost.",
        reason: "A web page can point its own name at this machine, and read the metrics through a browser here (DNS rebinding).",
    }
    metrics_file: Option<PathBuf> = "metrics.file" {
        form: "PATH", default: "", bounds: ["", ""], runtime: false,
        summary: "File to which the metrics are appended as a line of JSON every metrics.interval; empty for none.",
        reason: "For machines without Prometheus, and for a look at the past. When the disk is full only these lines are lost.",
    }
    metrics_interval: Duration = "metrics.interval" {
        form: "DURATION", default: "5s", bounds: ["100ms", "1d"], runtime: false,
        summary: "Time between two lines of metrics.file.",
        reason: "Short enough to show a stall, at about 60 MB a day.",
    }
    metrics_file_bytes_max: Size = "metrics.file_bytes_max" {
        form: "SIZE", default: "16MiB", bounds: ["64KiB", "16GiB"], runtime: false,
        summary: "Size at which metrics.file is renamed to metrics.file.1 and a new file begins.",
        reason: "Some hours in a file that every editor can open.",
    }
    metrics_files_max: usize = "metrics.files_max" {
        form: "COUNT", default: "8", bounds: ["0", "1000"], runtime: false,
        summary: "Most renamed files that are kept, the newest as metrics.file.1.",
        reason: "With metrics.file_bytes_max about two days, and at most 144 MiB.",
    }
    topologies_dir: Option<PathBuf> = "topologies.dir" {
        form: "PATH", default: "", bounds: ["", ""], runtime: false,
        summary: "Folder where the programs of topologies' components are; empty: this server runs no topologies.",
        reason: "Off, because a definition comes from a client and runs programs on this machine: only those that are in this folder. \
                 Whoever may write to it decides what clients can run.",
    }
    topologies_count_max: usize = "topologies.count_max" {
        form: "COUNT", default: "32", bounds: ["1", "256"], runtime: false,
        summary: "Most topologies; each has a worker process, or several.",
        reason: "An idle worker takes about 5 MB and some threads.",
    }
    topologies_tasks_max: u32 = "topologies.tasks_max" {
        form: "COUNT", default: "256", bounds: ["1", "100000"], runtime: false,
        summary: "Most tasks of a topology.",
        reason: "Each task of a shell component is a process.",
    }
    topologies_workers_max: u32 = "topologies.workers_max" {
        form: "COUNT", default: "16", bounds: ["1", "1000"], runtime: false,
        summary: "Most worker processes of a topology.",
        reason: "More than a machine has processors share them. Each one has a link to each other one.",
    }
    topologies_http_hosts: Vec<HostName> = "topologies.http_hosts" {
        form: "NAME...", default: "", bounds: ["", ""], runtime: false,
        summary: "Hosts that http-sink may post to from this server's workers, without ports; empty: none.",
        reason: "A definition comes from a client, which could otherwise reach what only this machine can.",
    }
    topologies_transport: WorkerTransport = "topologies.transport" {
        form: "tcp|zeromq", default: "tcp", bounds: ["", ""], runtime: false,
        summary: "What carries tuples between workers of topologies whose definition does not say: tcp or zeromq.",
        reason: "tcp is faster, and workers prove to each other who they are. zeromq is in builds with the feature of that name.",
    }
    topologies_worker_user: Option<User> = "topologies.worker_user" {
        form: "USER", default: "", bounds: ["", ""], runtime: false,
        summary: "User that workers and components run as: a name, or uid:gid; empty: the server's own.",
        reason: "The server must be root to start them as another user. With one, components cannot read the data, nor signal the server.",
    }
    topologies_worker_memory_max: Size = "topologies.worker_memory_max" {
        form: "SIZE", default: "0", bounds: ["0", "1TiB"], runtime: false,
        summary: "Most private memory of a worker, and of each process that it starts (RLIMIT_DATA); 0: no limit.",
        reason: "Memory counts that can be written, touched or not. At least 64MiB: a worker has about 20 MiB, and stacks of its threads.",
    }
    topologies_worker_nice: u32 = "topologies.worker_nice" {
        form: "COUNT", default: "0", bounds: ["0", "19"], runtime: false,
        summary: "How much workers and components give way to others when processors are short (nice).",
        reason: "10 gives the event loops nine tenths of a processor that both want. Workers are not slower while processors rest.",
    }
}

/// `bytes` as a size is written.
pub(super) fn size_text(bytes: u64) -> String {
    Size(bytes).write()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_bounds_and_survives_text() {
        for row in ROWS {
            let mut settings = Settings::default();
            row.set(&mut settings, row.default).expect(row.key);
            assert_eq!(row.text(&settings), row.default, "{}", row.key);
            for bound in row.bounds.iter().filter(|bound| !bound.is_empty()) {
                assert!(row.measured(bound).is_some(), "{}: bound {bound}", row.key);
            }
        }
        Settings::default().check().expect("the defaults agree with each other");
    }

    #[test]
    fn names_are_distinct_and_have_a_form_and_a_reason() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(
                ROWS[..index].iter().all(|other| other.key != row.key && other.flag() != row.flag()),
                "{row:?}"
            );
            assert!(
                !row.form.is_empty() && row.summary.ends_with('.') && row.reason.ends_with('.'),
                "{row:?}"
            );
        }
    }

    #[test]
    fn a_value_out_of_bounds_is_refused_with_the_bound() {
        let mut settings = Settings::default();
        let error =
            |settings: &mut Settings, key, text| settings.set(key, text).expect_err("refused").to_string();
        assert_eq!(error(&mut settings, "connections.max", "0"), "connections.max = 0: the least is 1");
        assert_eq!(error(&mut settings, "value.max", "1GiB"), "value.max = 1GiB: the most is 512MiB");
        assert_eq!(
            error(&mut settings, "port", "70000"),
            "port = 70000: expected a whole number from 0 to 65535"
        );
        assert_eq!(
            error(&mut settings, "engine", "disk"),
            "engine = disk: expected one of log, memory, noop"
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest() {
        let error = Settings::default().set("conections.max", "1").expect_err("unknown");
        let text = "unknown setting 'conections.max'; did you mean 'connections.max'?";
        assert_eq!(error, SettingError::Unknown(text.to_owned()));
    }
}
