//! No more than three files of a crate depend on each other in a cycle, with a list of exceptions that may only shrink.
//!
//! Whoever reads a file of a cycle has to read all of them. Two are a module and a part of it that needs its types; three are
//! bearable. `xtask/tidy-cycles.txt` names the files that are still in larger cycles, one a line: one that joins them fails, and
//! one that has left is taken off the list by `cargo xtask tidy --update`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use super::modules::{self, Uses};
use super::tree::Tree;
use crate::failure::Failure;

/// Files in cycles that are too large: how large, and one way from the file back to itself.
type Cycles = BTreeMap<String, (usize, Vec<String>)>;

/// Problems of the tree beside the list of exceptions.
pub(super) fn check(root: &Path, tree: &Tree) -> Vec<String> {
    let listed = parse(&fs::read_to_string(root.join(EXCEPTIONS)).unwrap_or_default());
    compare(&all_cycles(tree), &listed)
}

/// Shrinks the list of exceptions to what the tree still needs.
///
/// # Errors
/// The list cannot be read or written.
pub(super) fn update(root: &Path, tree: &Tree) -> Result<(), Failure> {
    let path = root.join(EXCEPTIONS);
    let text = fs::read_to_string(&path).map_err(|error| format!("{EXCEPTIONS}: {error}"))?;
    let cycles = all_cycles(tree);
    let is_kept = |line: &&str| line.starts_with('#') || cycles.contains_key(*line);
    let lines: Vec<&str> = text.lines().filter(is_kept).collect();
    fs::write(&path, lines.join("\n") + "\n").map_err(|error| format!("{EXCEPTIONS}: {error}"))
}

fn all_cycles(tree: &Tree) -> Cycles {
    modules::uses(tree).iter().flat_map(cycles).collect()
}

/// The files of one crate that are in cycles of more than [`FILES_MAX`].
fn cycles(uses: &Uses) -> Cycles {
    let mut found = Cycles::new();
    for file in uses.keys() {
        let members: BTreeSet<&String> =
            reached(uses, file).into_iter().filter(|other| reached(uses, other).contains(file)).collect();
        if members.len() > FILES_MAX {
            found.insert(file.clone(), (members.len(), way_back(uses, file)));
        }
    }
    found
}

/// All that `file` depends on, however far; itself only if it is in a cycle.
fn reached<'a>(uses: &'a Uses, file: &str) -> BTreeSet<&'a String> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(next) = open.pop() {
        for target in uses.get(next).into_iter().flatten() {
            if reached.insert(target) {
                open.push(target);
            }
        }
    }
    reached
}

/// The shortest way from `file` to itself.
fn way_back(uses: &Uses, file: &str) -> Vec<String> {
    let mut from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([file]);
    while let Some(next) = open.pop_front() {
        for target in uses.get(next).into_iter().flatten() {
            if target == file {
                let mut way = vec![next];
                while let Some(before) = from.get(way[way.len() - 1]) {
                    way.push(before);
                }
                return way.iter().rev().skip(1).map(|step| (*step).to_owned()).collect();
            }
            if !from.contains_key(target.as_str()) {
                from.insert(target, next);
                open.push_back(target);
            }
        }
    }
    Vec::new()
}

fn compare(cycles: &Cycles, listed: &BTreeSet<String>) -> Vec<String> {
    let new = cycles.iter().filter(|(file, _)| !listed.contains(*file)).map(|(file, (files, way))| {
        format!(
            "{file}: depends on itself, as {files} files of its crate do in one cycle ({FILES_MAX} are allowed); \
             the shortest way back goes by {}",
            way.join(", ")
        )
    });
    let stale = listed.iter().filter(|file| !cycles.contains_key(*file));
    let stale = stale.map(|file| format!("{file}: is in no large cycle any more: {UPDATE}"));
    new.chain(stale).collect()
}

fn parse(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

const EXCEPTIONS: &str = "xtask/tidy-cycles.txt";
const FILES_MAX: usize = 3;
const UPDATE: &str = "run `cargo xtask tidy --update`";

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(lines: &[&str]) -> Uses {
        let line = |line: &&str| {
            let (file, targets) = line.split_once(':').expect("a file and what it uses");
            (file.to_owned(), targets.split_whitespace().map(str::to_owned).collect())
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn cycle_of_four_is_found_and_one_of_three_is_not() {
        assert!(cycles(&uses(&["a: b", "b: c", "c: a", "d: a"])).is_empty());
        let found = cycles(&uses(&["a: b", "b: c", "c: d", "d: a", "e: a"]));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(found["b"], (4, vec!["c".to_owned(), "d".to_owned(), "a".to_owned()]));
    }

    #[test]
    fn small_cycles_that_share_a_file_are_one() {
        let found = cycles(&uses(&["m: a b c", "a: m", "b: m", "c: m"]));
        assert_eq!(found.len(), 4);
        assert_eq!(found["a"].1, ["m"], "the shortest way back");
    }

    #[test]
    fn who_joins_a_listed_cycle_is_a_problem_and_so_is_who_is_listed_without_need() {
        let found = cycles(&uses(&["a: b", "b: c", "c: d", "d: a"]));
        let listed = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
        assert!(compare(&found, &listed(&["a", "b", "c", "d"])).is_empty());
        let problems = compare(&found, &listed(&["a", "b", "c"]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("d: ") && problems[0].ends_with("by a, b, c"), "{}", problems[0]);
        assert!(compare(&Cycles::new(), &listed(&["a"]))[0].contains("no large cycle"));
    }
}
