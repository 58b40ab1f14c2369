//! A client as CLIENT LIST and ACL LOG show it.

use std::sync::atomic::Ordering;

use clock::Nanos;
use commands::lookup::Table;

use crate::clients::Client;
use crate::session::Session;

/// A client as a line of CLIENT LIST.
pub(crate) fn describe(client: &Client, table: &'static Table, now: Nanos) -> Vec<u8> {
    let labels = client.labels();
    let connection = client.connection.as_deref();
    let active = connection.map_or(now, reactor::Connection::last_active);
    let number = |read: fn(&reactor::Connection) -> u64| connection.map_or(0, read);
    let (input, output) =
        (number(reactor::Connection::input_bytes), number(reactor::Connection::output_bytes));
    let queued_bytes = client.queued_bytes.load(Ordering::Relaxed);
    let mut line = format!("id={} addr={} laddr={} ", client.id, client.address(), client.local_address());
    line += &format!("fd={} name=", connection.map_or(-1, reactor::Connection::descriptor));
    let mut line = line.into_bytes();
    line.extend_from_slice(&labels.name);
    line.extend_from_slice(
        format!(
            " age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} watch={} qbuf={input} qbuf-free=0 \
             argv-mem=0 multi-mem={queued_bytes} rbs=0 rbp=0 obl=0 oll={} omem={output} tot-mem={} events={} \
             cmd={} user=",
            now.since(client.created).as_secs(),
            now.since(active).as_secs(),
            client.flags(),
            client.db.load(Ordering::Relaxed),
            client.channels.load(Ordering::Relaxed),
            client.patterns.load(Ordering::Relaxed),
            client.shards.load(Ordering::Relaxed),
            client.queued.load(Ordering::Relaxed),
            client.watched.load(Ordering::Relaxed),
            u8::from(output > 0),
            size_of::<Session>() as u64
                + size_of::<Client>() as u64
                + input
                + output
                + u64::from(queued_bytes),
            if output > 0 { "rw" } else { "r" },
            client.last_command(table).unwrap_or("NULL"),
        )
        .as_bytes(),
    );
    line.extend_from_slice(&client.user());
    line.extend_from_slice(
        format!(
            " redir={} resp={} lib-name=",
            client.tracker().map_or(-1, |tracker| tracker.options.redirect.cast_signed()),
            if client.resp3.load(Ordering::Relaxed) { 3 } else { 2 },
        )
        .as_bytes(),
    );
    line.extend_from_slice(&labels.lib_name);
    line.extend_from_slice(b" lib-ver=");
    line.extend_from_slice(&labels.lib_ver);
    line.extend_from_slice(what_it_costs(connection).as_bytes());
    line
}

/// Where a connection is and what it takes. `tot-*` are Redis's names; the others are only in Evenkeel.
fn what_it_costs(connection: Option<&reactor::Connection>) -> String {
    let number = |read: fn(&reactor::Connection) -> u64| connection.map_or(0, read);
    format!(
        " tot-net-in={} tot-net-out={} tot-cmds={} read-events={} write-events={} loop={} load={} moves={}",
        number(reactor::Connection::bytes_in),
        number(reactor::Connection::bytes_out),
        number(reactor::Connection::commands),
        number(reactor::Connection::read_events),
        number(reactor::Connection::write_events),
        connection.map_or(0, reactor::Connection::loop_index),
        number(reactor::Connection::load_ns) / 1_000,
        number(reactor::Connection::moves),
    )
}
