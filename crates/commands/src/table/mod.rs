//! Rows of the commands on data, by group.

mod bits;
mod databases;
mod geo;
mod hashes;
mod keys;
mod lists;
pub mod row;
mod sets;
mod sorted_sets;
mod streams;
mod strings;

use row::Row;

/// All rows, group by group.
pub const GROUPS: [&[Row]; 10] = [
    keys::ROWS,
    strings::ROWS,
    bits::ROWS,
    hashes::ROWS,
    sets::ROWS,
    lists::ROWS,
    sorted_sets::ROWS,
    geo::ROWS,
    streams::ROWS,
    databases::ROWS,
];
