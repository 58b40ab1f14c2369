//! Relative links and images in Markdown files lead to files that exist, and to headings where they name one.

use std::path::{Component, Path, PathBuf};

use super::tree::{File, Tree};

/// Links that lead nowhere.
pub(super) fn check(root: &Path, tree: &Tree) -> Vec<String> {
    tree.markdown().flat_map(|file| check_file(root, tree, file)).collect()
}

fn check_file(root: &Path, tree: &Tree, file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in prose(&file.text) {
        for target in targets(line) {
            if let Some(problem) = problem(root, tree, file, target) {
                problems.push(format!("{}:{number}: {problem}", file.path));
            }
        }
    }
    problems
}

/// Lines outside fenced code, with their numbers from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` in a line.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

fn problem(root: &Path, tree: &Tree, file: &File, target: &str) -> Option<String> {
    let path = resolved(&file.path, target)?;
    let heading = target.split_once('#').map_or("", |(_, heading)| heading);
    if tree.file(&path).is_none() && !root.join(&path).exists() {
        return Some(format!("`{target}` leads nowhere: there is no {path}"));
    }
    let page = tree.file(&path).filter(|page| page.path.ends_with(".md"))?;
    let missing = !heading.is_empty() && !headings(&page.text).any(|slug| slug == heading);
    missing.then(|| format!("`{target}`: no heading of {} gives #{heading}", page.path))
}

/// The file in the repository that a link to `target` in the file `from` leads to; none if it leads out of the repository.
pub(crate) fn resolved(from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let path = target.split('#').next().unwrap_or("");
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    normal(&folder.join(path)).map(|path| path.to_string_lossy().into_owned())
}

/// `path` without `.` and `..`; none if it leaves the tree, which is not ours to check.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir if !out.pop() => return None,
            _ => {}
        }
    }
    Some(out)
}

/// The anchors that a page's headings get: lower case, blanks as hyphens, other signs dropped.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = prose(text).map(|(_, line)| line).filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str) -> Vec<String> {
        let tree = Tree::of(&[("docs/a.md", page), ("docs/b.md", "# The `SET` of one\n"), ("README.md", "")]);
        check(Path::new("/nowhere"), &tree)
    }

    #[test]
    fn link_to_a_file_or_heading_that_exists_is_fine() {
        assert_eq!(
            problems("[b](b.md) and [up](../README.md), [h](b.md#the-set-of-one) [w](https://x.org)"),
            [""; 0]
        );
    }

    #[test]
    fn link_to_a_missing_file_or_heading_is_a_problem() {
        assert!(problems("one\n[c](c.md)")[0].starts_with("docs/a.md:2: `c.md` leads nowhere"));
        assert!(problems("![plot](plots/x.svg)")[0].contains("plots/x.svg"));
        assert!(problems("[h](b.md#no-such)")[0].contains("no heading"));
    }

    #[test]
    fn fenced_code_has_no_links() {
        assert_eq!(problems("```\n[c](c.md)\n```\n"), [""; 0]);
    }
}
