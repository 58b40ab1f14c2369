//! `cargo xtask valkey`: builds valkey-server from the source package of Debian sid below `target/`, once, and prints its path.
//!
//! Debian's stable releases have no Valkey that is current. apt gets a sources list of its own, with the mirror that the machine's apt has, so
//! that nothing of the machine's configuration changes. It is built as its own Makefile does by default: with its own jemalloc, without TLS.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::packages;
use crate::process::Run;

/// Prints the path of valkey-server, and its version to standard error.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let server = ensure(root)?;
    eprintln!("{}", version(root, &server)?);
    println!("{}", server.display());
    Ok(())
}

/// The path of valkey-server, which is built if it was not before.
///
/// # Errors
/// The source cannot be fetched, or it does not build: the message says which.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf, Failure> {
    let folder = root.join("target/valkey");
    let server = folder.join("source/src/valkey-server");
    if server.is_file() {
        return Ok(server);
    }
    let tools = [packages::DPKG_SOURCE, packages::MAKE, packages::CC];
    packages::ensure(root, &tools)?;
    fetch(root, &folder)
        .map_err(|error| format!("cannot fetch the source package valkey of Debian {SUITE}: {error}"))?;
    eprintln!("xtask: building valkey-server, which takes a few minutes");
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let flags = ["MALLOC=jemalloc", "BUILD_TLS=no", "USE_SYSTEMD=no"];
    Run::new(&folder.join("source/src"), "timeout")
        .args([BUILD_SECONDS_MAX, "make", &format!("-j{jobs}"), "valkey-server"])
        .args(flags)
        .read()
        .map_err(|error| format!("cannot build valkey-server: {}", last_lines(&error)))?;
    version(root, &server)?;
    Ok(server)
}

/// What the program says of itself.
fn version(root: &Path, server: &Path) -> Result<String, Failure> {
    Run::new(root, &server.to_string_lossy()).args(["--version"]).read().map(|text| text.trim().to_owned())
}

/// Fetches the source below `folder` and unpacks it to `folder/source`.
fn fetch(root: &Path, folder: &Path) -> Result<(), Failure> {
    let targets = ["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"];
    let listed = Run::new(root, "apt-get").args(targets).read()?;
    let mirror = mirror(&listed).ok_or("apt has no package list of a Debian mirror: apt-get update")?;
    fs::remove_dir_all(folder).ok();
    for name in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(name)).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let list = folder.join("sources.list");
    fs::write(&list, format!("deb-src [signed-by={KEYRING}] {mirror} {SUITE} main\n"))
        .map_err(|error| format!("{}: {error}", list.display()))?;
    eprintln!("xtask: fetching valkey of Debian {SUITE}");
    apt(folder).args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]).read()?;
    apt(folder).args(["-qq", "source", "--download-only", "valkey"]).read()?;
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = files.flatten().map(|file| file.path());
    let description = paths.find(|path| path.extension().is_some_and(|extension| extension == "dsc"));
    let description = description.ok_or("there is no .dsc file in it")?;
    // apt has checked the archives by the signed list.
    let unpack = ["--no-check", "-x", &description.to_string_lossy(), "source"];
    Run::new(folder, "dpkg-source").args(unpack).read().map(drop)
}

/// apt-get with a configuration of its own in `folder`.
fn apt(folder: &Path) -> Run {
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let options = [
        format!("Dir::Etc::sourcelist={}", at("sources.list")),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::lists={}", at("lists")),
        format!("Dir::Cache={}", at("cache")),
        // The folder may be one that apt's own user cannot write to.
        "APT::Sandbox::User=root".to_owned(),
    ];
    Run::new(folder, "apt-get").args(options.into_iter().flat_map(|option| ["-o".to_owned(), option]))
}

/// The first repository of a release that is none of security fixes or updates: those have no sid beside them.
fn mirror(targets: &str) -> Option<&str> {
    let lines = targets.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(_, release)| !release.contains('-')).map(|(uri, _)| uri).find(|uri| uri.contains("debian"))
}

/// The end of what a compiler said.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

const SUITE: &str = "sid";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const BUILD_SECONDS_MAX: &str = "1800";
const LINES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_the_one_that_has_whole_releases() {
        let targets = "http://a.example/debian-security/ bookworm-security\nhttp://b.example/other/ nodistro\n\
                       http://c.example/debian/ bookworm-updates\nhttp://d.example/debian/ bookworm\n";
        assert_eq!(mirror(targets), Some("http://d.example/debian/"));
        assert_eq!(mirror(""), None);
    }

    #[test]
    fn long_output_of_a_compiler_is_shown_from_its_end() {
        let text = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert!(last_lines(&text).starts_with("80\n") && last_lines(&text).ends_with("\n99"));
        assert_eq!(last_lines("one"), "one");
    }
}
