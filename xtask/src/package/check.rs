//! What packages must be: stage `package`, and `cargo xtask package --check`.
//!
//! ```text
//!  made twice ──> the same sums       unit ──> systemd's own score, in tenths, below 30
//!       │
//!       └──> names, modes, owners      life.sh ──> install, serve, upgrade, remove, install, purge: as root, in namespaces
//! ```
//!
//! The life takes place in a copy-on-write view of this machine's root, with processes, mounts and network of its own: nothing of it is left. It needs no
//! network and no right that stage `crash` does not need, too. With `--systemd` a systemd is its first process, which takes the right to make control groups.

use std::path::Path;
use std::time::Duration;

use super::{Job, files, make, version, wrong};
use crate::failure::Failure;
use crate::packages;
use crate::process::Run;

/// Makes packages of `binary` and checks them; `boots` is whether a systemd runs the service.
///
/// # Errors
/// The first thing that is not as it must be.
pub(crate) fn check(root: &Path, binary: &Path, boots: bool) -> Result<(), Failure> {
    packages::ensure(root, &[packages::ADDUSER, packages::IP, packages::SYSTEMD])?;
    let folder = root.join("target/package-check");
    std::fs::remove_dir_all(&folder).ok();
    let own = version(root)?;
    let later = format!("{own}+later");
    for (out, version) in [("first", &own), ("again", &own), ("later", &later)] {
        make(&Job { root, binary, version, out: &folder.join(out), fast: true })?;
    }
    let sums = |out: &str| files::read(&folder.join(out).join("SHA256SUMS"));
    if sums("first")? != sums("again")? {
        return Err(
            "two runs made different packages: compare target/package-check/first and again".to_owned()
        );
    }
    let package = package_in(&folder.join("first"))?;
    contents(root, &package)?;
    let tree = folder.join("tree");
    Run::new(root, "dpkg-deb").args(["-x", &package, &tree.display().to_string()]).read()?;
    let unit = tree.join("usr/lib/systemd/system/evenkeel.service").display().to_string();
    let score = ["security", "--no-pager", "--offline=true", SCORE_MAX, &unit];
    let score = Run::new(root, "systemd-analyze").args(score).env("SYSTEMD_COLORS", "0").read()?;
    println!("{}", score.lines().last().unwrap_or_default().trim());
    live(root, &folder, &package, boots)?;
    std::fs::remove_dir_all(&folder).map_err(wrong(&folder))
}

/// The path of the one Debian package in `folder`.
fn package_in(folder: &Path) -> Result<String, Failure> {
    let name = files::names(folder)?.into_iter().find(|name| name.ends_with(".deb"));
    name.map(|name| folder.join(name).display().to_string()).ok_or_else(|| "no package was made".to_owned())
}

/// Checks names, modes and owners, and that nothing else is there.
fn contents(root: &Path, package: &str) -> Result<(), Failure> {
    let list = Run::new(root, "dpkg-deb").args(["-c", package]).read()?;
    let problems = problems_of(&list);
    if problems.is_empty() { Ok(()) } else { Err(format!("the Debian package: {}", problems.join("; "))) }
}

/// What is wrong with the listing of a package: `MODE OWNER/GROUP BYTES DATE TIME ./PATH` a line.
fn problems_of(list: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut missing = FILES.to_vec();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[mode, owner, _, _, _, path] = words.as_slice() else {
            problems.push(format!("`{line}` is no file or folder"));
            continue;
        };
        if owner != "root/root" {
            problems.push(format!("{path} belongs to {owner}"));
        }
        let is_program = path == PROGRAM;
        let wanted = match (path.ends_with('/'), is_program) {
            (true, _) | (_, true) => "rwxr-xr-x",
            (false, false) => "rw-r--r--",
        };
        if mode.get(1..) != Some(wanted) {
            problems.push(format!("{path} has mode {mode}"));
        }
        let before = missing.len();
        missing.retain(|it| *it != path);
        let is_page = path.starts_with("./usr/share/man/man1/evenkeel-") && !path.contains("help");
        if missing.len() == before && !path.ends_with('/') && !is_page {
            problems.push(format!("{path} is not expected"));
        }
    }
    problems.extend(missing.iter().map(|path| format!("{path} is missing")));
    problems
}

/// Has the package live.
fn live(root: &Path, folder: &Path, package: &str, boots: bool) -> Result<(), Failure> {
    let later = package_in(&folder.join("later"))?;
    let script = root.join("xtask/src/package/life.sh").display().to_string();
    let how = if boots { "systemd" } else { "plain" };
    let world = folder.join("world");
    std::fs::create_dir_all(&world).map_err(wrong(&world))?;
    let words = [&*script, "outside", how, &*world.display().to_string(), package, &later].map(str::to_owned);
    let mut is_over = false;
    Run::new(root, "sh").args(words).time_max(LIFE_MAX).show(&mut |line| is_over |= line == LIFE_IS_OVER)?;
    if is_over { Ok(()) } else { Err("the package's life was not lived to its end".to_owned()) }
}

const SCORE_MAX: &str = "--threshold=29";
/// What the script says last.
const LIFE_IS_OVER: &str = "the package was installed, upgraded, removed and purged";
/// A life takes ten seconds on an idle machine.
const LIFE_MAX: Duration = Duration::from_secs(600);
const PROGRAM: &str = "./usr/bin/evenkeel";
/// What must be there, beside the pages of subcommands.
const FILES: [&str; 15] = [
    PROGRAM,
    "./etc/evenkeel/evenkeel.toml",
    "./usr/lib/systemd/system/evenkeel.service",
    "./usr/share/bash-completion/completions/evenkeel",
    "./usr/share/doc/evenkeel/THIRD-PARTY-LICENSES.gz",
    "./usr/share/doc/evenkeel/changelog.Debian.gz",
    "./usr/share/doc/evenkeel/changelog.gz",
    "./usr/share/doc/evenkeel/copyright",
    "./usr/share/doc/evenkeel/examples/evenkeel.toml",
    "./usr/share/fish/vendor_completions.d/evenkeel.fish",
    "./usr/share/man/man1/evenkeel-check.1.gz",
    "./usr/share/man/man1/evenkeel-serve.1.gz",
    "./usr/share/man/man1/evenkeel-topology-run.1.gz",
    "./usr/share/man/man1/evenkeel.1.gz",
    "./usr/share/zsh/vendor-completions/_evenkeel",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mode: &str, owner: &str, path: &str) -> String {
        format!("{mode} {owner} 12 2026-11-30 11:00 {path}\n")
    }

    fn sound() -> String {
        let folder = line("drwxr-xr-x", "root/root", "./usr/");
        let mode = |path: &str| if path == PROGRAM { "-rwxr-xr-x" } else { "-rw-r--r--" };
        folder + &FILES.map(|path| line(mode(path), "root/root", path)).concat()
    }

    #[test]
    fn listing_with_all_files_has_no_problem() {
        assert_eq!(problems_of(&sound()), Vec::<String>::new());
        let page = line("-rw-r--r--", "root/root", "./usr/share/man/man1/evenkeel-tx.1.gz");
        assert_eq!(problems_of(&(sound() + &page)), Vec::<String>::new());
    }

    #[test]
    fn file_that_is_missing_foreign_open_or_unexpected_is_a_problem() {
        let problem = |text: String| problems_of(&text).join("; ");
        assert_eq!(
            problem(
                sound().replace("./usr/share/man/man1/evenkeel.1.gz", "./usr/share/man/man1/evenkeel-x.1.gz")
            ),
            "./usr/share/man/man1/evenkeel.1.gz is missing"
        );
        assert_eq!(
            problem(sound() + &line("drwxr-xr-x", "ada/root", "./etc/")),
            "./etc/ belongs to ada/root"
        );
        assert_eq!(
            problem(sound() + &line("drwxrwxr-x", "root/root", "./etc/")),
            "./etc/ has mode drwxrwxr-x"
        );
        assert_eq!(
            problem(sound() + &line("-rw-r--r--", "root/root", "./usr/note")),
            "./usr/note is not expected"
        );
        let page = "./usr/share/man/man1/evenkeel-help.1.gz";
        assert_eq!(
            problem(sound() + &line("-rw-r--r--", "root/root", page)),
            format!("{page} is not expected")
        );
    }
}
