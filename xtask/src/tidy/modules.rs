//! Which files of a crate use which others, as far as paths tell.
//!
//! A module uses another if a path of its leads there: `crate::`, `super::` or `self::`, in a `use` or in the midst of code, or the
//! name of a module of its own. What `pub use` hands on is no use: whoever takes the name from there uses the file behind it.
//!
//! Out of scope: methods that a file adds to a type of another one, macros, and what is compiled for tests alone.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer;
use super::tree::Tree;

/// The modules that each module uses, by their files.
pub(super) type Uses = BTreeMap<String, BTreeSet<String>>;

/// A path by its parts, from the crate's root; the root itself has none.
type Path = Vec<String>;

/// One file, as far as others see it.
#[derive(Default)]
struct Module {
    file: String,
    /// What is not for tests.
    code: String,
    /// Names that it hands on, and what each stands for.
    handed_on: BTreeMap<String, Path>,
}

/// The modules of a crate, by their paths.
type Modules = BTreeMap<Path, Module>;

/// The crates that have sources in `tree`, and what their files use.
pub(super) fn uses(tree: &Tree) -> Vec<Uses> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for file in tree.sources() {
        let Some((folder, within)) = file.path.split_once("/src/") else { continue };
        if let Some(path) = module_path(within) {
            let code = without_tests(&lexer::code(&file.text));
            let module = Module { file: file.path.clone(), code, ..Module::default() };
            crates.entry(folder).or_default().entry(path).or_insert(module);
        }
    }
    crates.into_values().map(of_crate).collect()
}

fn of_crate(mut modules: Modules) -> Uses {
    drop_tests(&mut modules);
    let found: Vec<(Path, Vec<Found>)> =
        modules.iter().map(|(path, module)| (path.clone(), paths(path, &module.code, &modules))).collect();
    for (path, all) in &found {
        let module = modules.get_mut(path).expect("it was there");
        let handed_on = all.iter().filter(|it| it.is_handed_on && it.name != "*");
        module.handed_on = handed_on.map(|it| (it.name.clone(), it.path.clone())).collect();
    }
    let mut uses = Uses::new();
    for (path, all) in &found {
        // A glob hides which names it hands on: it counts.
        let used = all.iter().filter(|it| !it.is_handed_on || it.name == "*");
        let targets = used.filter_map(|it| resolve(&it.path, &modules)).filter(|target| *target != path);
        let files = targets.map(|target| modules[target].file.clone());
        uses.insert(modules[path].file.clone(), files.collect());
    }
    uses
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; programs beside the crate are no modules of it.
fn module_path(within: &str) -> Option<Path> {
    let mut parts: Path = within.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    let last = parts.last().map(String::as_str);
    if last == Some("mod") || (parts.len() == 1 && matches!(last, Some("lib" | "main"))) {
        parts.pop();
    }
    (parts.first().map(String::as_str) != Some("bin")).then_some(parts)
}

/// Takes out modules of which nothing is left because they are for tests: no module that is declares them.
fn drop_tests(modules: &mut Modules) {
    let is_declared = |path: &Path| {
        let Some((name, parent)) = path.split_last() else { return true };
        let declares = |module: &Module| module.code.contains(&format!("mod {name};"));
        modules.get(parent).is_none_or(declares)
    };
    let tests: Vec<Path> = modules.keys().filter(|path| !is_declared(path)).cloned().collect();
    modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
}

/// `code` without the items under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]").into_iter().chain(rest.find("#[cfg(all(test,")).min() {
        kept.push_str(&rest[..at]);
        let mut depth = 0_usize;
        let end = rest[at..].find(|c: char| {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && matches!(c, '}' | ';')
        });
        rest = end.map_or("", |end| &rest[at + end + 1..]);
    }
    kept + rest
}

/// A path that a module names.
struct Found {
    path: Path,
    /// As what: its last part, unless it was renamed.
    name: String,
    is_handed_on: bool,
}

/// All paths of `code`, which is that of the module at `own`, that may lead to another module.
fn paths(own: &[String], code: &str, modules: &Modules) -> Vec<Found> {
    let mut found = Vec::new();
    let mut others = String::new();
    let mut rest = code;
    while let Some((before, behind)) = split_at_use(rest) {
        others.push_str(before);
        let (tree, after) = behind.split_once(';').unwrap_or((behind, ""));
        let is_handed_on = before.trim_end().rsplit([';', '}', '{']).next().is_some_and(is_public);
        flatten(tree, &[], &mut |parts, name| {
            let path = absolute(own, parts, modules);
            found.extend(path.map(|path| Found { path, name: name.to_owned(), is_handed_on }));
        });
        rest = after;
    }
    others.push_str(rest);
    for words in inline(&others) {
        let path = absolute(own, &words, modules);
        found.extend(path.map(|path| Found { path, name: String::new(), is_handed_on: false }));
    }
    found
}

/// Before and behind the next `use` that begins an item.
fn split_at_use(code: &str) -> Option<(&str, &str)> {
    let is_start =
        |at: &usize| code[..*at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
    let at = code.match_indices("use ").map(|(at, _)| at).find(is_start)?;
    Some((&code[..at], &code[at + "use ".len()..]))
}

/// Whether what stands before `use` ends with `pub`, or `pub(...)`.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    let before = before.rsplit_once('(').map_or(before, |(head, _)| head.trim_end());
    before.ends_with("pub")
}

/// Calls `found` with each path of the tree of a `use`, and the name it gets.
fn flatten(tree: &str, before: &[String], found: &mut impl FnMut(&[String], &str)) {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let close = tree.rfind('}').unwrap_or(tree.len());
        let head = [before, &words(&tree[..open])].concat();
        let mut depth = 0_usize;
        let inner = &tree[open + 1..close];
        let parts = inner.split(|c: char| {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        });
        parts.filter(|part| !part.trim().is_empty()).for_each(|part| flatten(part, &head, found));
        return;
    }
    let (path, renamed) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path = [before, &words(path)].concat();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name =
        if renamed.is_empty() { path.last().cloned().unwrap_or_default() } else { renamed.trim().to_owned() };
    found(&path, &name);
}

fn words(path: &str) -> Path {
    path.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// Paths of several parts in code that has no `use`.
fn inline(code: &str) -> Vec<Path> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let candidates = code.split(|c| !is_part(c)).filter(|word| word.contains("::"));
    candidates.map(words).filter(|path| path.len() > 1).collect()
}

/// The path from the crate's root that `parts` is in the module at `own`; none if it leads out of the crate.
fn absolute(own: &[String], parts: &[String], modules: &Modules) -> Option<Path> {
    let first = parts.first()?;
    match first.as_str() {
        "crate" => Some(parts[1..].to_vec()),
        "self" => Some([own, &parts[1..]].concat()),
        "super" => {
            let up = parts.iter().take_while(|part| *part == "super").count();
            Some([own.get(..own.len().checked_sub(up)?)?, &parts[up..]].concat())
        }
        _ => {
            let child = [own, parts].concat();
            modules.contains_key(&child[..=own.len()]).then_some(child)
        }
    }
}

/// The module that has what `path` names.
fn resolve<'a>(path: &[String], modules: &'a Modules) -> Option<&'a Path> {
    let mut path = path.to_vec();
    for _ in 0..HANDS_MAX {
        let depth = (0..=path.len()).rev().find(|depth| modules.contains_key(&path[..*depth]))?;
        let (at, module) = modules.get_key_value(&path[..depth])?;
        let Some(next) = path.get(depth).and_then(|name| module.handed_on.get(name)) else { return Some(at) };
        path = [next, &path[depth + 1..]].concat();
    }
    None
}

/// Modules that may hand on a name, one to the other.
const HANDS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the files of a crate use, `a.rs: b.rs c.rs` for each that uses any.
    fn shown(files: &[(&str, &str)]) -> Vec<String> {
        let named: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), *text)).collect();
        let named: Vec<(&str, &str)> = named.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let short = |path: &String| path.trim_start_matches("crates/x/src/").to_owned();
        let uses = uses(&Tree::of(&named)).remove(0);
        let used = uses.iter().filter(|(_, targets)| !targets.is_empty());
        used.map(|(file, targets)| {
            let targets: Vec<String> = targets.iter().map(short).collect();
            format!("{}: {}", short(file), targets.join(" "))
        })
        .collect()
    }

    #[test]
    fn paths_in_uses_and_in_code_lead_to_the_file_that_has_the_item() {
        let found = shown(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::{b::{self, Item}, c::deep};\nuse std::fmt;"),
            ("b.rs", "fn f() { crate::c::deep::g(); super::a::h() }"),
            ("c/mod.rs", "pub mod deep; fn g() { deep::g() }"),
            ("c/deep.rs", "use super::super::b::Item as Other;"),
        ]);
        assert_eq!(
            found,
            ["a.rs: b.rs c/deep.rs", "b.rs: a.rs c/deep.rs", "c/deep.rs: b.rs", "c/mod.rs: c/deep.rs"]
        );
    }

    #[test]
    fn name_that_is_handed_on_counts_for_the_file_behind_it() {
        let found = shown(&[
            ("lib.rs", "mod a; mod b; pub use a::Item;"),
            ("a/mod.rs", "mod inner; pub(crate) use inner::{Item, Other as Third}; pub struct Own;"),
            ("a/inner.rs", "use super::Own;"),
            ("b.rs", "use crate::Item; use crate::a::Third;"),
        ]);
        assert_eq!(found, ["a/inner.rs: a/mod.rs", "b.rs: a/inner.rs"]);
        let found = shown(&[("lib.rs", "mod a; pub use a::*;"), ("a.rs", "use crate::Item;")]);
        assert_eq!(found, ["a.rs: lib.rs", "lib.rs: a.rs"], "a glob hides what it hands on");
    }

    #[test]
    fn what_is_for_tests_or_in_a_text_is_left_out() {
        let found = shown(&[
            ("lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod tests;"),
            (
                "a.rs",
                "const T: &str = \"crate::b::x\"; // crate::b::x\n#[cfg(test)]\nmod tests { use crate::b::x; }",
            ),
            ("b.rs", "#[cfg(test)] use crate::a::y;"),
            ("tests/mod.rs", "mod more; use crate::a::z;"),
            ("tests/more.rs", "use crate::b::z;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
