//! `cargo xtask release VERSION`: is the tree what VERSION is to be? Then its packages, and the commands that publish it. It pushes nothing.

use std::path::Path;

use super::{files, version};
use crate::failure::Failure;
use crate::process::Run;

/// Checks, packages, and prints what to push.
///
/// # Errors
/// The tree is not ready: the message has each reason; or packaging failed.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let [wanted] = arguments else { return Err("release takes the version, and nothing else".to_owned()) };
    let git = |words: &[&str]| Run::new(root, "git").args(words.iter().copied()).read();
    let tag = format!("v{wanted}");
    let state = State {
        version: version(root)?,
        changes: git(&["status", "--porcelain"])?,
        changelog: files::read(&root.join("CHANGELOG.md"))?,
        is_tagged: !git(&["tag", "--list", &tag])?.is_empty(),
    };
    let reasons = state.reasons_against(wanted);
    if !reasons.is_empty() {
        return Err(format!("the tree is not ready to be {wanted}:\n  {}", reasons.join("\n  ")));
    }
    super::run(root, &[])?;
    let names = files::names(&root.join("target/package"))?;
    let names = names.iter().map(|name| format!("target/package/{name}")).collect::<Vec<_>>();
    println!("\nPublish it, when the tests have passed on this commit:\n");
    println!("git tag --sign {tag} --message 'Evenkeel {wanted}'\ngit push origin HEAD {tag}");
    println!("# and upload to the release {tag}:\n#   {}", names.join("\n#   "));
    Ok(())
}

/// What a release depends on.
struct State {
    version: String,
    /// Of the tree, as `git status --porcelain` lists them.
    changes: String,
    changelog: String,
    is_tagged: bool,
}

impl State {
    fn reasons_against(&self, wanted: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.version != wanted {
            reasons.push(format!("Cargo.toml has version {}: set workspace.package.version", self.version));
        }
        if !self.changes.is_empty() {
            reasons.push("the tree has changes that are not committed (git status)".to_owned());
        }
        let heading = format!("## {wanted}");
        let is_heading = |line: &str| {
            line.strip_prefix(&*heading).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        if !self.changelog.lines().any(is_heading) {
            reasons.push(format!("CHANGELOG.md has no heading `{heading}`"));
        }
        if self.is_tagged {
            reasons.push(format!("there is a tag v{wanted} already"));
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> State {
        let changelog = "# Changelog\n\n## 1.2.0 (2026-12-01)\n\n## 1.1.0\n".to_owned();
        State { version: "1.2.0".to_owned(), changes: String::new(), changelog, is_tagged: false }
    }

    #[test]
    fn tree_that_is_ready_has_nothing_against_it() {
        assert!(ready().reasons_against("1.2.0").is_empty());
    }

    #[test]
    fn each_reason_against_a_release_is_named() {
        let reasons = |state: &State, wanted: &str| state.reasons_against(wanted).join("\n");
        // `## 1.2` is no heading for it, although one begins so.
        assert!(
            reasons(&State { version: "1.2".to_owned(), ..ready() }, "1.2").contains("no heading `## 1.2`")
        );
        assert!(reasons(&ready(), "1.1.0").contains("has version 1.2.0"));
        let changed = State { changes: " M README.md\n".to_owned(), ..ready() };
        assert!(reasons(&changed, "1.2.0").contains("not committed"));
        assert!(reasons(&State { is_tagged: true, ..ready() }, "1.2.0").contains("tag v1.2.0"));
    }
}
