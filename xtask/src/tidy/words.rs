//! Words that have no business in the repository: hosts of package registries, paths of somebody's machine.

use super::tree::Tree;

/// Lines that hold such a word.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some((_, why)) = WORDS.iter().find(|(word, _)| holds(line, word)) {
                problems.push(format!("{}:{}: {why}", file.path, index + 1));
            }
        }
    }
    problems
}

/// Whether `word` stands in `line`, not as the continuation of a longer path or name.
fn holds(line: &str, word: &str) -> bool {
    let mut matches = line.match_indices(word);
    matches.any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}'))
    })
}

/// Written in two pieces, so that this file passes its own check.
const WORDS: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("index.cra", "tes.io"), "the host of a package registry"),
    (concat!("static.cra", "tes.io"), "the host of a package registry"),
    (concat!("py", "pi.org"), "the host of a package registry"),
    (concat!("files.python", "hosted.org"), "the host of a package registry"),
    (concat!("registry.np", "mjs.org"), "the host of a package registry"),
    (concat!("proxy.go", "lang.org"), "the host of a package registry"),
    (concat!("deb.deb", "ian.org"), "the host of a package registry"),
    (concat!("repo.maven.ap", "ache.org"), "the host of a package registry"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_machine_and_host_of_a_registry_are_problems() {
        let text = format!("fine\nsee {} and\n{}\n", WORDS[0].0, WORDS[5].0);
        let problems = check(&Tree::of(&[("docs/a.md", &text)]));
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("docs/a.md:2: a path"));
    }

    #[test]
    fn folder_of_our_own_with_the_same_name_is_fine() {
        let text = format!("docs{} target{}", WORDS[0].0, WORDS[0].0);
        assert!(check(&Tree::of(&[("docs/a.md", &text)])).is_empty());
    }
}
