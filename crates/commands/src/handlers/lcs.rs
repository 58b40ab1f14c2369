//! LCS: the longest common subsequence of two strings, by the table of lengths.
//!
//! The table has `(a + 1) x (b + 1)` cells of four bytes, and is filled while both keys are locked: [`CELLS_MAX`] bounds the
//! time that others wait, not only the memory. Redis allows as many as fit into `proto-max-bulk-len`.

use resp::{ArgsView, Writer};

use crate::args::{integer, is, option_value};
use crate::call::{Data, Failure, Outcome, text};

/// Options of LCS.
#[derive(Debug, Default)]
struct Options {
    len: bool,
    idx: bool,
    with_match_len: bool,
    match_len_min: u64,
}

impl Options {
    fn parse(args: ArgsView<'_>) -> Result<Self, Failure> {
        let mut options = Options::default();
        let mut index = 3;
        while let Some(arg) = args.try_get(index) {
            if is(arg, "len") {
                options.len = true;
            } else if is(arg, "idx") {
                options.idx = true;
            } else if is(arg, "withmatchlen") {
                options.with_match_len = true;
            } else if is(arg, "minmatchlen") {
                options.match_len_min = u64::try_from(integer(option_value(args, index)?)?).unwrap_or(0);
                index += 1;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        if options.len && options.idx {
            return Err("ERR If you want both the length and indexes, please just use IDX.".into());
        }
        Ok(options)
    }
}

pub(crate) fn lcs(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found_a = data.access.get(data.db, args.get(1))?;
    let found_b = data.access.get(data.db, args.get(2))?;
    data.count_lookup(found_a.is_some(), args.get(1));
    data.count_lookup(found_b.is_some(), args.get(2));
    let no_string = [found_a, found_b].into_iter().flatten().any(|f| f.kind != store::ValueKind::String);
    if no_string {
        return Err("ERR The specified keys must contain string values".into());
    }
    let options = Options::parse(args)?;
    let a = found_a.map_or(&[][..], |found| found.value);
    let b = found_b.map_or(&[][..], |found| found.value);
    let cells = (a.len() as u64 + 1).saturating_mul(b.len() as u64 + 1);
    if cells > CELLS_MAX {
        let (a, b) = (a.len(), b.len());
        let text =
            format!("ERR LCS of {a} B and {b} B needs a table of {cells} cells, the most is {CELLS_MAX}");
        return Err(text.into());
    }
    let table = Table::fill(a, b);
    if options.len {
        out.integer(table.at(a.len(), b.len()).into());
    } else if options.idx {
        write_matches(&table, &table.walk(a, b).1, &options, out);
    } else {
        out.bulk(&table.walk(a, b).0);
    }
    Ok(())
}

/// A stretch that both strings have, by its first positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn fill(a: &[u8], b: &[u8]) -> Table {
        let width = b.len() + 1;
        let mut cells = vec![0u32; (a.len() + 1) * width];
        for (i, x) in a.iter().enumerate() {
            let (above, below) = cells.split_at_mut((i + 1) * width);
            let above = &above[i * width..];
            for (j, y) in b.iter().enumerate() {
                below[j + 1] = if x == y { above[j] + 1 } else { above[j + 1].max(below[j]) };
            }
        }
        Table { cells, width }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// The subsequence, and its stretches from the last to the first.
    fn walk(&self, a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Match>) {
        let (mut i, mut j) = (a.len(), b.len());
        let (mut reversed, mut matches): (Vec<u8>, Vec<Match>) = (Vec::new(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                reversed.push(a[i]);
                match matches.last_mut() {
                    Some(last) if last.a == i + 1 && last.b == j + 1 => {
                        *last = Match { a: i, b: j, len: last.len + 1 };
                    }
                    _ => matches.push(Match { a: i, b: j, len: 1 }),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        reversed.reverse();
        (reversed, matches)
    }
}

fn write_matches(table: &Table, matches: &[Match], options: &Options, out: &mut Writer<'_>) {
    let shown = || matches.iter().filter(|found| found.len as u64 >= options.match_len_min);
    out.map(2);
    out.bulk(b"matches");
    out.array(shown().count());
    for found in shown() {
        out.array(if options.with_match_len { 3 } else { 2 });
        for start in [found.a, found.b] {
            out.array(2);
            out.integer(start as i64);
            out.integer((start + found.len - 1) as i64);
        }
        if options.with_match_len {
            out.integer(found.len as i64);
        }
    }
    out.bulk(b"len");
    out.integer(table.cells.last().copied().unwrap_or(0).into());
}

/// Two strings of 2,047 bytes: some milliseconds, as long as any command may take.
const CELLS_MAX: u64 = 2_048 * 2_048;
