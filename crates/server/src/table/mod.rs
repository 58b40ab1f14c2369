//! The command table: every command and subcommand that the server knows, by group. Put together at compile time.

mod acl;
mod connection;
mod pubsub;
pub(crate) mod row;
mod scripts;
mod server;
mod topology;
mod transactions;
mod tx;

use commands::call::SeriesFn;
use commands::lookup::{Entry, Table};
use commands::table::row::{HandlerOf, RowOf};

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

/// Rows of the commands on more than data, group by group.
const GROUPS: [&[Row]; 8] = [
    acl::ROWS,
    connection::ROWS,
    transactions::ROWS,
    pubsub::ROWS,
    scripts::ROWS,
    server::ROWS,
    tx::ROWS,
    topology::ROWS,
];

/// Each command with its subcommands behind it: those on more than data, and those on data.
const CONTROL: [&Row; count(&GROUPS)] = flattened(&GROUPS);
const DATA: [&commands::table::row::Row; count(&commands::table::GROUPS)] =
    flattened(&commands::table::GROUPS);

/// Commands and subcommands.
const COUNT: usize = CONTROL.len() + DATA.len();

const fn count<C>(groups: &[&[RowOf<C>]]) -> usize {
    let (mut count, mut group) = (0, 0);
    while group < groups.len() {
        let mut row = 0;
        while row < groups[group].len() {
            count += 1 + subcommands(&groups[group][row]).len();
            row += 1;
        }
        group += 1;
    }
    count
}

const fn subcommands<C>(row: &RowOf<C>) -> &'static [RowOf<C>] {
    match row.handler {
        HandlerOf::Container(rows) => rows,
        _ => &[],
    }
}

const fn flattened<C, const LEN: usize>(groups: &[&'static [RowOf<C>]]) -> [&'static RowOf<C>; LEN] {
    let mut rows = [&groups[0][0]; LEN];
    let (mut count, mut group) = (0, 0);
    while group < groups.len() {
        let mut row = 0;
        while row < groups[group].len() {
            rows[count] = &groups[group][row];
            count += 1;
            let (subs, mut sub) = (subcommands(&groups[group][row]), 0);
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
}

static ENTRIES: [Entry; COUNT] = {
    let mut entries = [Entry { command: &CONTROL[0].command, id: 0, subcommands: 0 }; COUNT];
    let mut id = 0;
    while id < COUNT {
        let (command, subcommands) = if id < CONTROL.len() {
            (&CONTROL[id].command, subcommands(CONTROL[id]).len())
        } else {
            let row = DATA[id - CONTROL.len()];
            (&row.command, subcommands(row).len())
        };
        entries[id] = Entry { command, id: id as u16, subcommands: subcommands as u16 };
        id += 1;
    }
    entries
};

static HANDLERS: [Handler; COUNT] = {
    let (mut handlers, mut id) = ([Handler::Exec; COUNT], 0);
    while id < COUNT {
        handlers[id] =
            if id < CONTROL.len() { CONTROL[id].handler } else { DATA[id - CONTROL.len()].handler.widened() };
        id += 1;
    }
    handlers
};

static SERIES: [Option<SeriesFn>; COUNT] = {
    let (mut series, mut id) = ([None; COUNT], 0);
    while id < COUNT {
        series[id] = if id < CONTROL.len() { CONTROL[id].series } else { DATA[id - CONTROL.len()].series };
        id += 1;
    }
    series
};

static TABLE: Table = Table::new(&ENTRIES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        let table = commands();
        for entry in table.entries() {
            let upper = entry.command.name.to_ascii_uppercase();
            let found = table.find_full(upper.as_bytes()).expect("found by its full name");
            assert_eq!(found.id, entry.id, "{upper}");
        }
        for name in ["", "ge", "gett", "get ", "g\0t", "client|", "client|x", "get|x", "\u{e9}"] {
            assert!(table.find_full(name.as_bytes()).is_none(), "{name:?}");
        }
        assert!(table.find(&[b'a'; 1000]).is_none());
    }

    #[test]
    fn few_names_share_a_slot() {
        let moved = commands().moved_names();
        assert!(moved <= 8, "{moved} names are not at their first slot");
    }
}
