//! Lengths of files and functions, with a list of exceptions that may only shrink.
//!
//! `xtask/tidy-exceptions.txt` has one exception a line: `path name lines`, where `name` is a function, or `*` for
//! the file itself. A function or file over its limit must be listed with exactly its length; so growth fails,
//! and what got shorter is taken off the list by `cargo xtask tidy --update`, which never adds and never raises.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::lexer;
use super::tree::Tree;
use crate::failure::Failure;

/// Lengths over the limit, by path and name.
type Lengths = BTreeMap<(String, String), usize>;

/// Problems of the tree beside the list of exceptions.
pub(super) fn check(root: &Path, tree: &Tree) -> Vec<String> {
    let listed = match parse(&fs::read_to_string(root.join(EXCEPTIONS)).unwrap_or_default()) {
        Ok(listed) => listed,
        Err(problem) => return vec![problem],
    };
    compare(&over_limit(tree), &listed)
}

/// Shrinks the list of exceptions to what the tree still needs.
///
/// # Errors
/// The list cannot be read or written.
pub(super) fn update(root: &Path, tree: &Tree) -> Result<(), Failure> {
    let path = root.join(EXCEPTIONS);
    let text = fs::read_to_string(&path).map_err(|error| format!("{EXCEPTIONS}: {error}"))?;
    let shrunk = shrink(&over_limit(tree), parse(&text)?);
    let mut lines: Vec<String> =
        text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect();
    lines.extend(shrunk.iter().map(|((path, name), count)| format!("{path} {name} {count}")));
    fs::write(&path, lines.join("\n") + "\n").map_err(|error| format!("{EXCEPTIONS}: {error}"))
}

fn over_limit(tree: &Tree) -> Lengths {
    let mut over = Lengths::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            over.insert((file.path.clone(), "*".to_owned()), lines);
        }
        for function in lexer::functions(&file.text) {
            if function.lines > FUNCTION_LINES_MAX {
                let longest = over.entry((file.path.clone(), function.name)).or_default();
                *longest = (*longest).max(function.lines);
            }
        }
    }
    over
}

fn compare(over: &Lengths, listed: &Lengths) -> Vec<String> {
    let mut problems = Vec::new();
    for ((path, name), lines) in over {
        let limit = if name == "*" { FILE_LINES_MAX } else { FUNCTION_LINES_MAX };
        match listed.get(&(path.clone(), name.clone())) {
            None => problems.push(format!("{path}: {name} has {lines} lines, more than {limit}: split it")),
            Some(before) if lines > before => {
                problems.push(format!("{path}: {name} grew from {before} to {lines} lines: split it"));
            }
            Some(before) if lines < before => {
                problems.push(format!("{path}: {name} shrank from {before} to {lines} lines: {UPDATE}"));
            }
            Some(_) => {}
        }
    }
    let stale = listed.keys().filter(|key| !over.contains_key(*key));
    problems
        .extend(stale.map(|(path, name)| format!("{path}: {name} needs no exception any more: {UPDATE}")));
    problems
}

fn shrink(over: &Lengths, listed: Lengths) -> Lengths {
    let still = listed.into_iter().filter_map(|(key, before)| {
        let now = *over.get(&key)?;
        Some((key, now.min(before)))
    });
    still.collect()
}

fn parse(text: &str) -> Result<Lengths, Failure> {
    let mut listed = Lengths::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [path, name, count] = words[..] else {
            return Err(format!("{EXCEPTIONS}: `{line}` is not `path name lines`"));
        };
        let count = count.parse().map_err(|_| format!("{EXCEPTIONS}: `{count}` is no number of lines"))?;
        listed.insert((path.to_owned(), name.to_owned()), count);
    }
    Ok(listed)
}

const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";
const FILE_LINES_MAX: usize = 1_500;
const FUNCTION_LINES_MAX: usize = 70;
const UPDATE: &str = "run `cargo xtask tidy --update`";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(lines: usize) -> Lengths {
        Lengths::from([(("a.rs".to_owned(), "long".to_owned()), lines)])
    }

    #[test]
    fn function_over_the_limit_is_found_with_its_length() {
        let body = "    step();\n".repeat(FUNCTION_LINES_MAX - 1);
        let source = format!("fn fine() {{\n}}\nfn long() {{\n{body}}}\n");
        assert_eq!(over_limit(&Tree::of(&[("a.rs", &source)])), one(FUNCTION_LINES_MAX + 1));
    }

    #[test]
    fn file_over_the_limit_is_found() {
        let source = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(over_limit(&Tree::of(&[("a.rs", &source)])).len(), 1);
    }

    #[test]
    fn unlisted_grown_shrunk_and_stale_are_problems() {
        assert!(compare(&one(80), &Lengths::new())[0].contains("more than 70"));
        assert!(compare(&one(80), &one(75))[0].contains("grew from 75 to 80"));
        assert!(compare(&one(80), &one(90))[0].contains("shrank"));
        assert!(compare(&Lengths::new(), &one(80))[0].contains("no exception any more"));
        assert!(compare(&one(80), &one(80)).is_empty());
    }

    #[test]
    fn update_lowers_and_removes_but_never_raises_or_adds() {
        assert_eq!(shrink(&one(75), one(80)), one(75));
        assert_eq!(shrink(&one(90), one(80)), one(80));
        assert_eq!(shrink(&Lengths::new(), one(80)), Lengths::new());
        assert_eq!(shrink(&one(75), Lengths::new()), Lengths::new());
    }

    #[test]
    fn list_refuses_what_it_cannot_read() {
        assert!(parse("# a comment\n\na.rs long 71\n").is_ok_and(|listed| listed == one(71)));
        assert!(parse("a.rs long").is_err());
        assert!(parse("a.rs long many").is_err());
    }
}
