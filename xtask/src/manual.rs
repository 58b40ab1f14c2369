//! `cargo xtask docs`: the manual as a site, built by mdBook from `docs/manual/SUMMARY.md`.
//!
//! ```text
//! docs/manual/*.md, docs/settings.md, ...  --copied, links changed-->  target/manual/src  --mdbook-->  target/manual/html
//! ```
//!
//! A link to a page of the site stays a link. A link to anything else in the repository becomes its text and the path, since
//! the site has nothing at that address. mdBook is a program that is installed, not a dependency: it would double what CI builds.
//!
//! Out of scope: rustdoc (stage `docs` of the tests), links between files of the repository (`tidy::links`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::packages;
use crate::process::Run;
use crate::tidy::book::{self, SUMMARY};
use crate::tidy::links;

/// Builds the site and checks its links.
///
/// # Errors
/// A page cannot be read, mdBook cannot be installed or fails, or a link of the site leads nowhere.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("docs takes no arguments, not `{unknown}`"));
    }
    let folder = root.join("target/manual");
    copy_pages(root, &folder)?;
    let mdbook = installed(root)?;
    Run::new(root, &mdbook).args(["build", &folder.to_string_lossy()]).show(&mut |_| {})?;
    let problems = dead_links(&folder.join("html"))?;
    if !problems.is_empty() {
        return Err(format!("{} dead links in the site\n{}", problems.len(), problems.join("\n")));
    }
    println!("manual: {}", folder.join("html/index.html").display());
    Ok(())
}

/// The path of mdBook; it is installed below `target/` unless there is one.
fn installed(root: &Path) -> Result<String, Failure> {
    if packages::is_installed("mdbook") {
        return Ok("mdbook".to_owned());
    }
    let tools = root.join("target/tools");
    let program = tools.join("bin/mdbook");
    if !program.is_file() {
        let install = ["install", "mdbook", "--version", VERSION, "--locked", "--root"];
        let features = ["--no-default-features", "--features", "search"];
        let run = Run::cargo(root).args(install).args([tools.to_string_lossy()]).args(features);
        run.time_max(Duration::from_secs(1_800)).show(&mut |_| {})?;
    }
    Ok(program.to_string_lossy().into_owned())
}

/// Copies the table of contents and what it names into `folder`/src, and writes mdBook's settings.
fn copy_pages(root: &Path, folder: &Path) -> Result<(), Failure> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let summary = read(SUMMARY)?;
    let mut names = BTreeMap::from([(SUMMARY.to_owned(), name_in_book(SUMMARY))]);
    names.extend(book::pages(&summary).into_iter().map(|page| (page.clone(), name_in_book(&page))));
    let source = folder.join("src");
    fs::remove_dir_all(&source).ok();
    fs::create_dir_all(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    for (page, name) in &names {
        write(&source.join(name), &within_the_book(page, &read(page)?, &names))?;
    }
    write(&folder.join("book.toml"), BOOK)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The site has no folders: pages from elsewhere lie beside those of the manual.
fn name_in_book(page: &str) -> String {
    page.strip_prefix(book::FOLDER).unwrap_or_else(|| page.rsplit('/').next().unwrap_or(page)).to_owned()
}

/// The text of `page` with links that hold within the site; `names` has each page's name there.
fn within_the_book(page: &str, text: &str, names: &BTreeMap<String, String>) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for part in text.split_inclusive("```") {
        if fenced {
            out.push_str(part);
        } else {
            with_links(page, part, names, &mut out);
        }
        fenced = !fenced;
    }
    out
}

fn with_links(page: &str, text: &str, names: &BTreeMap<String, String>, out: &mut String) {
    let mut rest = text;
    while let Some((before, target, after)) = next_link(rest) {
        out.push_str(before);
        let heading = target.split_once('#').map_or(String::new(), |(_, heading)| format!("#{heading}"));
        match links::resolved(page, target) {
            None => out.push_str(&format!("]({target})")),
            Some(path) => match names.get(&path) {
                Some(name) => out.push_str(&format!("]({name}{heading})")),
                None => unlink(out, &path),
            },
        }
        rest = after;
    }
    out.push_str(rest);
}

/// What stands before the next `](target)`, the target, and what follows it.
fn next_link(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("](")?;
    let (target, after) = rest.split_once(')')?;
    Some((before, target, after))
}

/// Makes the link whose text ends `out` plain text, with the path behind it.
fn unlink(out: &mut String, path: &str) {
    if let Some(open) = out.rfind('[') {
        out.remove(open);
    }
    out.push_str(&format!(" (`{path}`)"));
}

/// Links within the site that lead to no file, or to no element of it.
fn dead_links(site: &Path) -> Result<Vec<String>, Failure> {
    let pages = html_pages(site)?;
    let ids: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(name, html)| (name.as_str(), values(html, " id=\"").collect())).collect();
    let mut problems = Vec::new();
    for (name, html) in &pages {
        for link in values(html, "href=\"").filter(|link| !link.contains(':')) {
            let (path, id) = link.split_once('#').unwrap_or((link, ""));
            let path = if path.is_empty() { name } else { path };
            let known =
                ids.get(path).map_or(site.join(path).exists(), |ids| id.is_empty() || ids.contains(id));
            if !known {
                problems.push(format!("{name}: {link}"));
            }
        }
    }
    Ok(problems)
}

/// Name and text of each page, but for the one that repeats all others and the one for wrong addresses.
fn html_pages(site: &Path) -> Result<Vec<(String, String)>, Failure> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(site).map_err(|error| failed(site, error))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".html") && name != "print.html" && name != "404.html" {
            let path: PathBuf = entry.path();
            pages.push((name, fs::read_to_string(&path).map_err(|error| failed(&path, error))?));
        }
    }
    Ok(pages)
}

/// What stands between `start` and the next quotation mark, at each place.
fn values<'a>(html: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    html.split(start).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Builds with the toolchain of `rust-toolchain.toml`.
const VERSION: &str = "0.5.4";
const BOOK: &str = "\
[book]
title = \"Evenkeel\"
language = \"en\"

[build]
build-dir = \"html\"
create-missing = false

[output.html]
";

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeMap<String, String> {
        ["docs/manual/a.md", "docs/settings.md"].map(|page| (page.to_owned(), name_in_book(page))).into()
    }

    #[test]
    fn link_to_a_page_of_the_site_stays_and_any_other_becomes_its_path() {
        let text = "[a](a.md#x), [s](../settings.md), [the\nADR](../adr/1.md#y), [w](https://x.org), [h](#x)";
        assert_eq!(
            within_the_book("docs/manual/a.md", text, &names()),
            "[a](a.md#x), [s](settings.md), the\nADR (`docs/adr/1.md`), [w](https://x.org), [h](a.md#x)"
        );
        assert_eq!(within_the_book("docs/settings.md", "[a](manual/a.md)", &names()), "[a](a.md)");
    }

    #[test]
    fn fenced_code_keeps_its_brackets() {
        let text = "```\n[a](../b.md)\n```\n[a](a.md)\n";
        assert_eq!(within_the_book("docs/manual/a.md", text, &names()), text);
    }

    #[test]
    fn link_of_the_site_to_a_missing_page_or_element_is_reported() {
        let site = std::env::temp_dir().join(format!("evenkeel-xtask-site-{}", std::process::id()));
        fs::create_dir_all(&site).expect("a folder");
        let page = "<h1 id=\"top\"></h1><a href=\"#top\"><a href=\"b.html#top\"><a href=\"c.html\"><a href=\"https://x.org\">";
        fs::write(site.join("a.html"), page).expect("a page");
        fs::write(site.join("b.html"), "<h1 id=\"other\"></h1>").expect("a page");
        let problems = dead_links(&site).expect("read");
        fs::remove_dir_all(&site).ok();
        assert_eq!(problems, ["a.html: b.html#top", "a.html: c.html"]);
    }
}
