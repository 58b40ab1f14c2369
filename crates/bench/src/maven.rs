//! Peers in Java: small Maven projects in bench/peers, each a program that is, or loads, what we are compared with.
//!
//! A project is in this program, too, and is built below the user's cache folder when it is first asked for, by `mvn`, which brings
//! the peer itself.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{Failure, servers};

/// A Maven project that makes target/peer.jar and, beside it, the jars that it names.
pub(crate) struct Project {
    /// What is measured with it.
    pub(crate) name: &'static str,
    /// Its files, by path.
    pub(crate) files: &'static [(&'static str, &'static str)],
}

impl Project {
    /// Builds it, unless that is done.
    ///
    /// # Errors
    /// What is in the way, said of the peer.
    pub(crate) fn build(&self) -> Result<(), Failure> {
        let folder = self.folder();
        let is_current =
            |(name, text): &(&str, &str)| fs::read_to_string(folder.join(name)).is_ok_and(|old| old == *text);
        if self.files.iter().all(is_current) && self.jar().exists() {
            return Ok(());
        }
        if !servers::is_installed("mvn".as_ref()) {
            return Err("must be built once, and Maven is not installed here (no mvn)".to_owned());
        }
        eprintln!("evenkeel: {} is built, once, in {}", self.name, folder.display());
        self.write().map_err(|error| format!("cannot be built in {}: {error}", folder.display()))?;
        let output =
            servers::output_of(Command::new("mvn").args(["-q", "-B", "package"]).current_dir(&folder))
                .map_err(|error| format!("cannot be built here (mvn: {error})"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let first = said.lines().find(|line| line.contains("ERROR")).unwrap_or("mvn failed").trim();
        if output.status.success() { Ok(()) } else { Err(format!("cannot be built here ({first})")) }
    }

    /// A JVM that runs it.
    pub(crate) fn java(&self) -> Command {
        let mut java = Command::new("java");
        java.args([LEAVES_NOTHING, "-jar"]).arg(self.jar());
        java
    }

    /// What [`Project::build`] makes.
    pub(crate) fn jar(&self) -> PathBuf {
        self.folder().join("target/peer.jar")
    }

    fn write(&self) -> std::io::Result<()> {
        let folder = self.folder();
        // What an older project left would pass for the new one's if that cannot be built.
        let _ = fs::remove_dir_all(folder.join("target"));
        for (name, text) in self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&folder))?;
            fs::write(path, text)?;
        }
        Ok(())
    }

    /// Where it is built: below the user's cache folder.
    fn folder(&self) -> PathBuf {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        cache.unwrap_or_else(std::env::temp_dir).join(format!("evenkeel/{}-peer", self.name))
    }
}

/// A JVM that is killed leaves its file for jps and jstat in /tmp: ours have none.
pub(crate) const LEAVES_NOTHING: &str = "-XX:-UsePerfData";
