//! `evenkeel generate`: man pages and shell completions, from the definition of the command line.
//!
//! ```text
//!  OUT/man/evenkeel.1, evenkeel-check.1, ...    one page for each command that help shows
//!  OUT/completions/evenkeel.bash, _evenkeel (zsh), evenkeel.fish
//! ```

use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;

/// Writes what `command` takes as man pages and completions below `out`, which is made if it is not there.
///
/// # Errors
/// A folder or file cannot be written.
pub(crate) fn run(mut command: Command, out: &Path) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::Place(format!("cannot write below {}: {error}", out.display()));
    let (man, completions) = (out.join("man"), out.join("completions"));
    std::fs::create_dir_all(&man).map_err(cannot)?;
    std::fs::create_dir_all(&completions).map_err(cannot)?;
    // Before completions are made: they build the subcommand `help` into the command.
    let pages = without_help(command.clone());
    // Its flags are those of `serve`, page for page.
    let pages = pages.mut_args(|arg| if arg.get_help_heading().is_some() { arg.hide(true) } else { arg });
    let pages = pages.after_help("Without a subcommand it is evenkeel-serve(1), and takes all flags of it.");
    clap_mangen::generate_to(pages, &man).map_err(cannot)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "evenkeel", &completions).map_err(cannot)?;
    }
    Ok(())
}

/// `command` without the subcommand `help` at any depth, which would have a page for each other command.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(folder: &Path) -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).expect("it is there");
        entries.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect()
    }

    /// The pages of `command` and of all below it that help shows.
    fn pages(command: &Command, name: &str) -> Vec<String> {
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        let below = shown.flat_map(|below| pages(below, &format!("{name}-{}", below.get_name())));
        std::iter::once(format!("{name}.1")).chain(below).collect()
    }

    /// Completions build the subcommand `help` into the command, and each other command had a page below `help`, too.
    #[test]
    fn each_command_that_help_shows_has_one_page() {
        let out = tempfile::tempdir().expect("a folder");
        run(crate::cli::command(), out.path()).expect("written");
        let expected: BTreeSet<String> = pages(&crate::cli::command(), "evenkeel").into_iter().collect();
        assert!(expected.contains("evenkeel-topology-run.1") && !expected.contains("evenkeel-worker.1"));
        assert_eq!(names(&out.path().join("man")), expected);
    }

    #[test]
    fn page_of_the_program_leaves_settings_to_that_of_serve() {
        let out = tempfile::tempdir().expect("a folder");
        run(crate::cli::command(), out.path()).expect("written");
        let page = |name: &str| std::fs::read_to_string(out.path().join("man").join(name)).expect("read");
        let (program, serve) = (page("evenkeel.1"), page("evenkeel-serve.1"));
        assert!(serve.contains("requirepass") && !program.contains("requirepass"));
        assert!(program.contains("evenkeel\\-serve(1), and takes all flags"), "{program}");
        assert!(!serve.contains("manual"), "a flag that help does not show");
    }

    #[test]
    fn completions_of_three_shells_know_the_commands() {
        let out = tempfile::tempdir().expect("a folder");
        run(crate::cli::command(), out.path()).expect("written");
        let folder = out.path().join("completions");
        assert_eq!(names(&folder), ["_evenkeel", "evenkeel.bash", "evenkeel.fish"].map(str::to_owned).into());
        for name in names(&folder) {
            let text = std::fs::read_to_string(folder.join(&name)).expect("read");
            assert!(text.contains("salvage") && text.contains("memory-limit"), "{name}");
        }
    }
}
