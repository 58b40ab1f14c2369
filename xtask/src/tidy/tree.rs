//! The text files of the repository, read once, for all checks.
//!
//! Build output, data folders and hidden folders other than `.ci`, `.cargo` and `.github` are not part of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// One text file.
pub(super) struct File {
    /// Relative to the root, with `/` between folders.
    pub(super) path: String,
    pub(super) text: String,
}

/// All text files, ordered by path.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

impl Tree {
    /// Reads what lies below `root`.
    ///
    /// # Errors
    /// A folder or a text file cannot be read.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(root.join(&folder)).map_err(|e| format!("{}: {e}", folder.display()))?;
            for entry in entries.flatten() {
                let path = folder.join(entry.file_name());
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && is_ours(&name) {
                    folders.push(path);
                } else if !is_folder && is_text(&path) {
                    let text = fs::read(root.join(&path)).map_err(|e| format!("{}: {e}", path.display()))?;
                    let text = String::from_utf8_lossy(&text).into_owned();
                    files.push(File { path: path.to_string_lossy().into_owned(), text });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// The Rust files of the crates and of xtask: sources, tests, benches.
    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The Rust files below a `src` folder.
    pub(super) fn sources(&self) -> impl Iterator<Item = &File> {
        self.rust().filter(|file| file.path.contains("/src/"))
    }

    /// The Markdown files.
    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    /// The file at `path`.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        Self { files: files.iter().map(file).collect() }
    }
}

fn is_ours(folder: &str) -> bool {
    let hidden_ones = [".ci", ".cargo", ".github"];
    let built = ["target", "evenkeel-data", "__pycache__", "node_modules"];
    hidden_ones.contains(&folder) || (!folder.starts_with('.') && !built.contains(&folder))
}

fn is_text(path: &Path) -> bool {
    let kinds = ["rs", "md", "toml", "txt", "py", "sh", "svg", "json", "yml", "yaml", "service"];
    let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
    extension.is_some_and(|extension| kinds.contains(&extension.as_str())) || path.starts_with(".ci")
}
