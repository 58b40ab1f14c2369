//! The manual's table of contents names every page: `docs/manual/SUMMARY.md`, in the form that mdBook reads.
//!
//! That what it names exists is checked with all other links (`links`).

use super::links::{prose, resolved, targets};
use super::tree::Tree;

/// Pages of the manual that its table of contents does not name.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(summary) = tree.file(SUMMARY) else { return Vec::new() };
    let named: Vec<String> = pages(&summary.text);
    let manual = tree.markdown().filter(|file| file.path.starts_with(FOLDER) && file.path != SUMMARY);
    manual
        .filter(|page| !named.contains(&page.path))
        .map(|page| format!("{}: not in the table of contents, {SUMMARY}", page.path))
        .collect()
}

/// The pages that the table of contents names, by their paths in the repository, in its order.
pub(crate) fn pages(summary: &str) -> Vec<String> {
    prose(summary)
        .flat_map(|(_, line)| targets(line))
        .filter_map(|target| resolved(SUMMARY, target))
        .collect()
}

/// Where the manual's pages are.
pub(crate) const FOLDER: &str = "docs/manual/";
/// Their table of contents.
pub(crate) const SUMMARY: &str = "docs/manual/SUMMARY.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_that_the_table_of_contents_does_not_name_is_a_problem() {
        let summary = "# Summary\n- [A](a.md)\n    - [Settings](../settings.md)\n";
        let files = [
            (SUMMARY, summary),
            ("docs/manual/a.md", ""),
            ("docs/manual/b.md", ""),
            ("docs/settings.md", ""),
            ("docs/other.md", ""),
        ];
        let problems = check(&Tree::of(&files));
        assert_eq!(problems, ["docs/manual/b.md: not in the table of contents, docs/manual/SUMMARY.md"]);
        assert_eq!(pages(summary), ["docs/manual/a.md", "docs/settings.md"]);
    }
}
