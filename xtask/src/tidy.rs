//! What the compiler cannot check: the floor plan, module headers, lengths, module cycles, links, words.
//!
//! Each module below returns problems as text, one a line, with file and line where there is one. Nothing here
//! changes the tree, except `--update`, which only shrinks the lists of exceptions (`lengths`, `cycles`).
//!
//! Source of the idea: TigerBeetle's `tidy.zig`, Oxide's `check_workspace_deps`.

mod architecture;
pub(crate) mod book;
mod cycles;
mod floors;
mod headers;
mod lengths;
mod lexer;
pub(crate) mod links;
mod modules;
mod tree;
mod words;

use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;
use crate::process::Run;
use tree::Tree;

/// Runs every check; with `--update` writes the shrunk lists of exceptions first.
///
/// # Errors
/// At least one problem, all of them listed, or the tree could not be read.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let update = match arguments {
        [] => false,
        [only] if only == "--update" => true,
        _ => return Err(format!("tidy takes only --update, not `{}`", arguments.join(" "))),
    };
    let tree = Tree::read(root)?;
    if update {
        lengths::update(root, &tree)?;
        cycles::update(root, &tree)?;
    }
    let mut problems = floors::check(&metadata(root)?);
    problems.extend(headers::check(&tree));
    problems.extend(lengths::check(root, &tree));
    problems.extend(cycles::check(root, &tree));
    problems.extend(links::check(root, &tree));
    problems.extend(book::check(&tree));
    problems.extend(architecture::check(root, &tree));
    problems.extend(words::check(&tree));
    if problems.is_empty() {
        println!("tidy: {} files, {} of them Rust", tree.files.len(), tree.rust().count());
        return Ok(());
    }
    Err(format!("{} untidy places\n{}", problems.len(), problems.join("\n")))
}

/// What `cargo metadata` says about the workspace's own packages.
///
/// # Errors
/// Cargo cannot read the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value, Failure> {
    let text = Run::cargo(root).args(["metadata", "--format-version", "1", "--no-deps"]).read()?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}
