//! Every source file opens with a `//!` header that says what it is.

use super::tree::{File, Tree};

/// Files whose header is missing or says too little.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    tree.sources().filter_map(problem).collect()
}

fn problem(file: &File) -> Option<String> {
    let header = file.text.lines().take_while(|line| line.starts_with("//!"));
    let characters: usize = header.map(|line| line.trim_start_matches("//!").trim().chars().count()).sum();
    let path = &file.path;
    match characters {
        0 => Some(format!("{path}:1: no header: open the file with `//!` and what it is for")),
        few if few < HEADER_CHARACTERS_MIN => Some(format!(
            "{path}:1: header of {few} characters: say what the file is for and what holds in it"
        )),
        _ => None,
    }
}

/// Half a line of text: enough for a sentence.
const HEADER_CHARACTERS_MIN: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_header_or_with_a_word_of_one_is_a_problem() {
        let tree = Tree::of(&[
            (
                "crates/a/src/lib.rs",
                "use std::fs;\n//! Too late to be a header, however long it may be and go on.",
            ),
            ("crates/a/src/b.rs", "//! Placeholder.\n"),
        ]);
        let problems = check(&tree);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].contains("no header") && problems[1].contains("12 characters"));
    }

    #[test]
    fn tests_need_no_header_and_sources_with_one_are_fine() {
        let header = "//! Turns what arrives into what leaves, one frame at a time, and never looks back.\n";
        assert!(check(&Tree::of(&[("crates/a/src/lib.rs", header), ("crates/a/tests/b.rs", "")])).is_empty());
    }
}
