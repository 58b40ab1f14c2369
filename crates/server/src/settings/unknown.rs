//! What is told of a name that no setting has: the one that was probably meant.

use super::redis::Alias;
use super::table::{ROWS, Row};

/// What there is to say of the flag `name`, given without its dashes, when no setting has it.
pub fn unknown_flag(name: &str) -> String {
    let flag = |key: &str| Row::find(key).map(|row| format!("--{}", row.flag()));
    if let Some(flag) = Alias::find(name).and_then(|alias| alias.key).and_then(flag) {
        return format!("unknown setting '--{name}' (of Redis); did you mean '{flag}'?");
    }
    match nearest_by(name, Row::flag) {
        Some(row) => format!("unknown setting '--{name}'; did you mean '--{}'?", row.flag()),
        None => format!("unknown setting '--{name}'; `evenkeel serve --help` lists all"),
    }
}

/// What there is to say of `name` when no setting has it.
pub(super) fn unknown(name: &str) -> String {
    if let Some(key) = Alias::find(name).and_then(|alias| alias.key) {
        return format!("unknown setting '{name}' (of Redis); did you mean '{key}'?");
    }
    if is_group(name) {
        let keys: Vec<_> = ROWS.iter().filter(|row| row.group() == Some(name)).map(|row| row.key).collect();
        return format!("'{name}' is a table, with {}", keys.join(", "));
    }
    match nearest(name) {
        Some(near) => format!("unknown setting '{name}'; did you mean '{near}'?"),
        None => format!("unknown setting '{name}'; `evenkeel serve --help` lists all"),
    }
}

/// The setting whose name is closest to `name`, if any is close.
pub fn nearest(name: &str) -> Option<&'static str> {
    nearest_by(name, |row| row.key.to_owned()).map(|row| row.key)
}

/// The row whose spelling is nearest to `name`, if one is near.
pub(super) fn nearest_by(name: &str, spelling: impl Fn(&Row) -> String) -> Option<&'static Row> {
    let (apart, row) =
        ROWS.iter().map(|row| (distance(name, &spelling(row)), row)).min_by_key(|(apart, _)| *apart)?;
    (apart <= 1 + name.len() / 4).then_some(row)
}

/// Whether `name` is the part before the dot of some rows' names.
pub(super) fn is_group(name: &str) -> bool {
    ROWS.iter().any(|row| row.group() == Some(name))
}

/// Insertions, deletions and replacements of bytes between two names.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|name| name.to_ascii_lowercase().into_bytes());
    strsim::generic_levenshtein(&a, &b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("prot"), Some("port"));
        assert_eq!(nearest("memory.limits"), Some("memory.limit"));
        assert_eq!(nearest("requirepas"), Some("requirepass"));
        assert_eq!(nearest("frobnicate"), None);
    }
}
