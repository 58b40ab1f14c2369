//! ARCHITECTURE.md and the glossary name only what exists: every path and every type, function or module in their code spans.
//!
//! A span is a path when it has a `/` or a known file ending; it is a name when it is a Rust path such as
//! `Journal`, `store::Access` or `Access::commit`. Each part of a name must be declared in some source file, be a
//! crate, or be a module. Other spans (commands, settings, numbers) are not checked.

use std::collections::BTreeSet;
use std::path::Path;

use super::lexer;
use super::links::prose;
use super::tree::{File, Tree};

/// Paths and names in these pages that do not exist.
pub(super) fn check(root: &Path, tree: &Tree) -> Vec<String> {
    let known = Declared::read(tree);
    let pages = PAGES.iter().filter_map(|page| tree.file(page));
    pages.flat_map(|page| check_page(root, page, &known)).collect()
}

fn check_page(root: &Path, page: &File, known: &Declared) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in prose(&page.text) {
        for span in spans(line) {
            if is_path(span) {
                if !root.join(span.trim_end_matches('/')).exists() {
                    problems.push(format!("{}:{number}: there is no `{span}`", page.path));
                }
            } else if let Some(missing) = names(span).into_iter().find(|name| !known.has(name)) {
                problems.push(format!("{}:{number}: `{span}`: no source declares {missing}", page.path));
            }
        }
    }
    problems
}

/// Every name that the sources declare: types, functions, constants, variants, modules, crates.
struct Declared(BTreeSet<String>);

impl Declared {
    fn read(tree: &Tree) -> Self {
        let mut names = BTreeSet::new();
        for file in tree.sources() {
            names.extend(file.path.split(['/', '.']).map(str::to_owned)); // crates and modules
            let code = lexer::code(&file.text);
            let words: Vec<&str> = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2).filter(|pair| DECLARATIONS.contains(&pair[0])) {
                names.insert(pair[1].to_owned());
            }
            names.extend(code.lines().filter_map(variant).map(str::to_owned));
        }
        Self(names)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// The name that opens a line as a variant or a field would: `Name,` `Name {` `Name(` `name:`.
fn variant(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let end = line.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let follows = line[end..].trim_start().chars().next()?;
    (end > 0 && matches!(follows, ',' | '{' | '(' | ':' | '=')).then(|| &line[..end])
}

/// The code spans of a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|span| !span.is_empty())
}

fn is_path(span: &str) -> bool {
    let ends = [".rs", ".md", ".toml", ".txt"].iter().any(|end| span.ends_with(end));
    let plain = span.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    plain && !span.starts_with('/') && (ends || span.contains('/'))
}

/// The parts of a path of modules, or of one that starts or goes on with a type; none if the span is something else.
fn names(span: &str) -> Vec<&str> {
    let span = span.trim_end_matches("()");
    let is_rust = span.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
    let parts: Vec<&str> = span.split("::").collect();
    let is_type = |part: &&str| part.starts_with(char::is_uppercase) && part.contains(char::is_lowercase);
    let names_something = parts.len() > 1 || parts.iter().any(is_type);
    if is_rust && !parts.contains(&"") && names_something { parts } else { Vec::new() }
}

const PAGES: &[&str] = &["ARCHITECTURE.md", "docs/glossary.md"];
const DECLARATIONS: &[&str] = &["struct", "enum", "trait", "type", "fn", "const", "static", "mod", "union"];

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str) -> Vec<String> {
        let source = "pub struct Journal;\nimpl Journal {\n    pub fn append(&self) {}\n}\nenum Step {\n    Park,\n}\n";
        check(Path::new("/nowhere"), &Tree::of(&[(PAGES[0], page), ("crates/journal/src/lib.rs", source)]))
    }

    #[test]
    fn declared_names_are_fine() {
        assert_eq!(problems("`Journal`, `journal::Journal`, `Journal::append()`, `Step::Park`"), [""; 0]);
    }

    #[test]
    fn undeclared_names_and_missing_paths_are_problems() {
        assert!(problems("\n`Ledger`")[0].starts_with("ARCHITECTURE.md:2:"));
        assert!(problems("`Journal::erase`")[0].contains("erase"));
        assert!(problems("`journal::ledger`")[0].contains("ledger"));
        assert!(problems("`crates/ledger/src/lib.rs`")[0].contains("there is no"));
    }

    #[test]
    fn commands_settings_and_numbers_are_not_names() {
        assert_eq!(problems("`SET`, `journal.buffer_max`, `kill -9`, `64 MiB`, `/proc`"), [""; 0]);
    }

    #[test]
    fn names_in_comments_and_strings_declare_nothing() {
        let source = "// struct Ledger\nconst A: &str = \"struct Ledger\";\n";
        let tree = Tree::of(&[(PAGES[1], "`Ledger`"), ("crates/a/src/lib.rs", source)]);
        assert_eq!(check(Path::new("/nowhere"), &tree).len(), 1);
    }
}
