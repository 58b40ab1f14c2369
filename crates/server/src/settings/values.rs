//! The value of every setting, as the parts of the server read them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tls::{ClientCertificates, Versions};

use super::classes::Classes;
use super::kinds::{
    Assignment, Backend, BalanceBy, Connector, Durability, Engine, Every, HostName, LogLevel, MemoryLimit,
    Node, Percent, Policy, Secret, Size, Threshold, TxnLog, User, WorkerTransport,
};
use super::resources::ResourceSettings;
use super::secure::CertificateUser;

/// The value of every setting. Field names are the rows' names with `_` for `.`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the table documents each field, once")]
pub struct Settings {
    /// Names of Redis that were set and mean nothing here; no row.
    pub accepted: super::compat::Accepted,
    pub dir: PathBuf,
    pub engine: Engine,
    pub durability: Durability,
    pub databases: u16,

    pub bind: Vec<IpAddr>,
    pub port: u16,
    pub unixsocket: Option<PathBuf>,
    pub requirepass: Secret,
    pub requirepass_file: Option<PathBuf>,
    pub protected_mode: bool,
    pub acl_file: Option<PathBuf>,
    pub acl_all_channels: bool,
    pub acl_log_length_max: usize,

    pub tls_port: u16,
    pub tls_certificate_file: Option<PathBuf>,
    pub tls_key_file: Option<PathBuf>,
    pub tls_ca_file: Option<PathBuf>,
    pub tls_client_certificates: ClientCertificates,
    pub tls_user_from_certificate: CertificateUser,
    pub tls_protocols: Versions,
    pub tls_resumption: bool,
    pub tls_handshake_timeout: Duration,
    pub tls_handshakes_max: usize,
    /// How often CONFIG SET has set one of these: a file that is named again is read again. No row.
    pub tls_set_count: u64,

    pub loops: usize,
    pub connector: Connector,
    pub assignment: Assignment,
    pub balance_interval: Every,
    pub balance_by: BalanceBy,
    pub balance_threshold: u16,

    pub connections_max: usize,
    pub connections_input_max: Size,
    pub connections_output_max: Size,
    pub connections_held_max: Size,
    pub connections_idle_timeout: Duration,
    pub connections_auth_timeout: Duration,
    pub connections_unauthenticated_max: Size,
    pub connections_memory_max: Size,
    pub connections_room_wait_max: Duration,
    pub connections_subscriptions_max: Size,
    pub connections_messages_max: Size,

    pub value_max: Size,
    pub transaction_max: Size,
    pub memory_limit: MemoryLimit,
    pub memory_policy: Policy,
    pub script_time_limit: Duration,
    pub script_memory_limit: Size,
    pub store_space_ratio_max: u16,
    pub store_disk_limit: Size,
    pub store_leaf_size: Size,

    pub journal_backend: Backend,
    pub journal_segment_size: Size,
    pub journal_buffer_max: Size,

    pub txn_node: Node,
    pub txn_log: TxnLog,
    pub txn_timeout: Duration,
    pub txn_timeout_max: Duration,
    pub txn_start_wait: Duration,
    pub txn_lock_wait: Duration,
    pub txn_keep: Duration,
    pub txn_transactions_max: usize,
    pub txn_recovery_interval: Duration,
    pub txn_safety_interval: Duration,
    /// Of the file's `[resource.NAME]`.
    pub resources: Vec<ResourceSettings>,

    pub log_level: LogLevel,
    pub log_json: bool,
    pub notify_keyspace_events: Classes,
    pub tracking_keys_max: usize,
    pub slowlog_threshold: Threshold,
    pub slowlog_length_max: usize,
    pub latency_threshold: Duration,
    pub metrics_latency: bool,
    pub metrics_percentiles: Vec<Percent>,
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_hosts: Vec<HostName>,
    pub metrics_file: Option<PathBuf>,
    pub metrics_interval: Duration,
    pub metrics_file_bytes_max: Size,
    pub metrics_files_max: usize,

    pub topologies_dir: Option<PathBuf>,
    pub topologies_count_max: usize,
    pub topologies_tasks_max: u32,
    pub topologies_workers_max: u32,
    pub topologies_http_hosts: Vec<HostName>,
    pub topologies_transport: WorkerTransport,
    pub topologies_worker_user: Option<User>,
    pub topologies_worker_memory_max: Size,
    pub topologies_worker_nice: u32,
}
