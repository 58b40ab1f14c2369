//! The licences of what is linked into the program: those who distribute it must give them along.
//!
//! Crates with the same text share it. Debian's libraries are not part of it: they are linked at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::files;
use crate::failure::Failure;
use crate::process::Run;

/// Each crate of others in the program with its licence, then the texts.
///
/// # Errors
/// Cargo does not know the dependencies, or a crate states no licence.
pub(super) fn all(root: &Path) -> Result<String, Failure> {
    let linked = Run::cargo(root)
        .args(["tree", "--locked", "-p", "evenkeel", "-e", "normal", "--prefix", "none", "-f", "{p}"])
        .read()?;
    let linked: BTreeSet<&str> = linked.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let metadata = Run::cargo(root).args(["metadata", "--locked", "--format-version", "1"]).read()?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut heads = BTreeSet::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        let is_linked = linked.contains(&*format!("{} v{}", field("name"), field("version")));
        // Luau's source is a crate that is used at build time alone.
        if package["source"].is_null() || !(is_linked || field("name") == LUAU) {
            continue;
        }
        let licence = Some(field("license")).filter(|it| !it.is_empty()).or(package["license_file"].as_str());
        heads.insert(format!("{name}: {}", licence.ok_or_else(|| format!("{name} states no licence"))?));
        let folder = Path::new(field("manifest_path")).parent().unwrap_or(root);
        for text in texts_in(folder)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut all = heads.into_iter().collect::<Vec<_>>().join("\n");
    for (text, names) in texts {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        write!(all, "\n\n{}\n{names}\n\n{}", "-".repeat(80), text.trim_end()).expect("a string takes all");
    }
    Ok(all + "\n")
}

/// The licences and notices in a crate's folder.
fn texts_in(folder: &Path) -> Result<Vec<String>, Failure> {
    let is_legal = |name: &String| {
        let upper = name.to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|it| upper.starts_with(it))
    };
    let paths = files::names(folder)?.into_iter().filter(is_legal).map(|name| folder.join(name));
    paths.filter(|path| path.is_file()).map(|path| files::read(&path)).collect()
}

const LUAU: &str = "luau0-src";
