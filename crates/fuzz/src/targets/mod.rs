//! The table of targets: one row a decoder.

mod capture;
mod collections;
mod flux;
mod folder;
mod journal;
mod rdb;
mod resp;
mod server;
mod settings;
mod shell;
mod sql;
mod store;
mod topology;
mod transport;
mod txn;

use crate::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "capture-file",
        run: capture::file,
        seeds: capture::seeds,
        words: capture::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "collections-change",
        run: collections::change,
        seeds: collections::seeds,
        words: collections::WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "flux-definition",
        run: flux::definition,
        seeds: flux::seeds,
        words: flux::WORDS,
        input_bytes_max: 2_048,
    },
    Target {
        name: "flux-properties",
        run: flux::properties,
        seeds: flux::property_seeds,
        words: flux::PROPERTY_WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "journal-batch",
        run: journal::batch,
        seeds: journal::seeds,
        words: journal::WORDS,
        input_bytes_max: 80,
    },
    Target {
        name: "journal-record",
        run: journal::record,
        seeds: journal::seeds,
        words: journal::WORDS,
        input_bytes_max: 64,
    },
    Target {
        name: "journal-footer",
        run: journal::footer,
        seeds: journal::seeds,
        words: journal::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "journal-manifest",
        run: journal::manifest,
        seeds: journal::seeds,
        words: journal::WORDS,
        input_bytes_max: 65,
    },
    Target {
        name: "journal-segment-header",
        run: journal::segment_header,
        seeds: journal::seeds,
        words: journal::WORDS,
        input_bytes_max: 128,
    },
    Target {
        name: "journal-folder",
        run: folder::run,
        seeds: folder::seeds,
        words: folder::WORDS,
        input_bytes_max: 128,
    },
    Target {
        name: "rdb-file",
        run: rdb::file,
        seeds: rdb::file_seeds,
        words: rdb::WORDS,
        input_bytes_max: 2_048,
    },
    Target {
        name: "rdb-payload",
        run: rdb::payload,
        seeds: rdb::payload_seeds,
        words: rdb::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "resp-request",
        run: resp::request,
        seeds: resp::request_seeds,
        words: resp::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "resp-reply",
        run: resp::reply,
        seeds: resp::reply_seeds,
        words: resp::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "bench-reply",
        run: resp::bench_reply,
        seeds: resp::reply_seeds,
        words: resp::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "bench-memcached-reply",
        run: resp::memcached_reply,
        seeds: resp::memcached_seeds,
        words: resp::MEMCACHED_WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "store-record",
        run: store::record,
        seeds: store::record_seeds,
        words: store::WORDS,
        input_bytes_max: 128,
    },
    Target {
        name: "store-checkpoint",
        run: store::checkpoint,
        seeds: store::checkpoint_seeds,
        words: store::WORDS,
        input_bytes_max: 1_024,
    },
    Target {
        name: "store-image",
        run: store::image,
        seeds: store::image_seeds,
        words: store::WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "server-dump",
        run: server::dump,
        seeds: server::seeds,
        words: server::WORDS,
        input_bytes_max: 128,
    },
    Target {
        name: "server-pending",
        run: server::pending,
        seeds: server::pending_seeds,
        words: server::PENDING_WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "server-pattern",
        run: server::glob,
        seeds: server::glob_seeds,
        words: server::PATTERN_WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "server-hyperloglog",
        run: server::hyperloglog,
        seeds: server::hyperloglog_seeds,
        words: server::SKETCH_WORDS,
        input_bytes_max: 96,
    },
    Target {
        name: "server-libraries",
        run: server::library,
        seeds: server::library_seeds,
        words: server::LIBRARY_WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "server-topologies",
        run: server::topology,
        seeds: server::topology_seeds,
        words: server::TOPOLOGY_WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "server-script-functions",
        run: server::script_function,
        seeds: server::script_function_seeds,
        words: server::SCRIPT_WORDS,
        input_bytes_max: 90,
    },
    Target {
        name: "server-script",
        run: server::script,
        seeds: server::script_seeds,
        words: server::SCRIPT_WORDS,
        input_bytes_max: 128,
    },
    Target {
        name: "settings-toml",
        run: settings::toml,
        seeds: settings::seeds,
        words: settings::WORDS,
        input_bytes_max: 4_096,
    },
    Target {
        name: "shell-output",
        run: shell::output,
        seeds: shell::seeds,
        words: shell::WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "shell-messagepack",
        run: shell::messagepack,
        seeds: shell::messagepack_seeds,
        words: shell::MESSAGEPACK_WORDS,
        input_bytes_max: 512,
    },
    Target {
        name: "shell-serve",
        run: shell::serve,
        seeds: shell::serve_seeds,
        words: shell::SERVE_WORDS,
        input_bytes_max: 1_024,
    },
    Target {
        name: "topology-envelope",
        run: topology::envelope,
        seeds: topology::envelope_seeds,
        words: topology::WORDS,
        input_bytes_max: 300,
    },
    Target {
        name: "topology-talk",
        run: topology::talk,
        seeds: topology::talk_seeds,
        words: topology::WORDS,
        input_bytes_max: 400,
    },
    Target {
        name: "topology-value",
        run: topology::value,
        seeds: topology::value_seeds,
        words: topology::WORDS,
        input_bytes_max: 200,
    },
    Target {
        name: "transport-chunk",
        run: transport::chunk,
        seeds: transport::seeds,
        words: transport::WORDS,
        input_bytes_max: 300,
    },
    Target {
        name: "transport-proof",
        run: transport::proof,
        seeds: transport::proof_seeds,
        words: transport::PROOF_WORDS,
        input_bytes_max: 56,
    },
    Target {
        name: "txn-decision",
        run: txn::decision,
        seeds: txn::decision_seeds,
        words: txn::WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "txn-file-log",
        run: txn::file_log,
        seeds: txn::file_log_seeds,
        words: txn::WORDS,
        input_bytes_max: 1_600,
    },
    Target {
        name: "txn-statement",
        run: sql::statement,
        seeds: sql::statement_seeds,
        words: sql::STATEMENT_WORDS,
        input_bytes_max: 128,
    },
    Target {
        name: "txn-postgres-tags",
        run: sql::postgres_tags,
        seeds: sql::postgres_tags_seeds,
        words: sql::POSTGRES_TAGS_WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "txn-postgres-value",
        run: sql::postgres_value,
        seeds: sql::postgres_value_seeds,
        words: sql::POSTGRES_WORDS,
        input_bytes_max: 64,
    },
    Target {
        name: "txn-monitor",
        run: sql::monitor,
        seeds: sql::monitor_seeds,
        words: sql::MONITOR_WORDS,
        input_bytes_max: 256,
    },
    Target {
        name: "txn-xid",
        run: sql::xid,
        seeds: sql::xid_seeds,
        words: sql::XID_WORDS,
        input_bytes_max: 80,
    },
];
