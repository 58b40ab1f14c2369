//! The command table: every command and subcommand that the server knows, by group. Put together at compile time.

mod bits;
mod connection;
mod geo;
mod hashes;
mod keys;
mod lists;
mod pubsub;
pub(crate) mod row;
mod scripts;
mod server;
mod sets;
mod sorted_sets;
mod streams;
mod strings;
mod topology;
mod transactions;
mod tx;

use crate::call::SeriesFn;
use crate::lookup::{Entry, Table};
use row::{Handler, Row};

/// The table.
#[must_use]
pub fn commands() -> &'static Table {
    &TABLE
}

/// What runs the command of `entry`, which is one of [`commands`].
#[inline]
pub(crate) fn handler(entry: &Entry) -> Handler {
    HANDLERS[usize::from(entry.id)]
}

/// What runs several commands of `entry` that follow each other, if anything does.
#[inline]
pub(crate) fn series(entry: &Entry) -> Option<SeriesFn> {
    SERIES[usize::from(entry.id)]
}

/// All rows, group by group.
const GROUPS: [&[Row]; 16] = [
    connection::ROWS,
    keys::ROWS,
    strings::ROWS,
    bits::ROWS,
    hashes::ROWS,
    sets::ROWS,
    lists::ROWS,
    sorted_sets::ROWS,
    geo::ROWS,
    streams::ROWS,
    transactions::ROWS,
    pubsub::ROWS,
    scripts::ROWS,
    server::ROWS,
    tx::ROWS,
    topology::ROWS,
];

/// Commands and subcommands.
const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut row = 0;
        while row < GROUPS[group].len() {
            count += 1 + subcommands(&GROUPS[group][row]).len();
            row += 1;
        }
        group += 1;
    }
    count
};

const fn subcommands(row: &Row) -> &'static [Row] {
    match row.handler {
        Handler::Container(rows) => rows,
        _ => &[],
    }
}

/// Each command with its subcommands behind it.
const ROWS: [&Row; COUNT] = {
    let mut rows = [&GROUPS[0][0]; COUNT];
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut row = 0;
        while row < GROUPS[group].len() {
            rows[count] = &GROUPS[group][row];
            count += 1;
            let (subs, mut sub) = (subcommands(&GROUPS[group][row]), 0);
            while sub < subs.len() {
                rows[count] = &subs[sub];
                count += 1;
                sub += 1;
            }
            row += 1;
        }
        group += 1;
    }
    rows
};

static ENTRIES: [Entry; COUNT] = {
    let mut entries = [Entry { command: &ROWS[0].command, id: 0, subcommands: 0 }; COUNT];
    let mut id = 0;
    while id < COUNT {
        let (command, subcommands) = (&ROWS[id].command, subcommands(ROWS[id]).len() as u16);
        entries[id] = Entry { command, id: id as u16, subcommands };
        id += 1;
    }
    entries
};

static HANDLERS: [Handler; COUNT] = {
    let (mut handlers, mut id) = ([Handler::Exec; COUNT], 0);
    while id < COUNT {
        handlers[id] = ROWS[id].handler;
        id += 1;
    }
    handlers
};

static SERIES: [Option<SeriesFn>; COUNT] = {
    let (mut series, mut id) = ([None; COUNT], 0);
    while id < COUNT {
        series[id] = ROWS[id].series;
        id += 1;
    }
    series
};

static TABLE: Table = Table::new(&ENTRIES);
