//! Where the programs of components may be: in one folder that the operator names, and nowhere else.
//!
//! A definition comes from a client, and a client must not run any program of the machine. So the first word of a command is
//! a file in the folder, by a path with a `/`; or an interpreter by its plain name, whose next word is a file in the folder. None of these
//! [`INTERPRETERS`] looks at words behind its file. Python may have `-m` and a module of the folder there, or a module of [`RUNNERS`], which imports the class that
//! the next word names: that is in the folder, too. Links in the folder are followed, and must stay in it, so that what a component may be is
//! decided by who may write there.

use std::fmt;
use std::path::{Path, PathBuf};

/// The folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
}

/// What is not where it has to be, and where that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced(String);

impl Place {
    /// The folder at `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder where components run: `folder` of this one, or this one itself.
    ///
    /// # Errors
    /// It is not there, is no folder, or is outside.
    pub fn folder(&self, folder: Option<&str>) -> Result<PathBuf, Misplaced> {
        let path = self.inside(&self.root.join(folder.unwrap_or("")))?;
        if path.is_dir() { Ok(path) } else { Err(Misplaced(format!("{} is no folder", path.display()))) }
    }

    /// Whether a component that is a process in `folder` may be run by `command`.
    ///
    /// # Errors
    /// It may not, and why.
    pub fn check(&self, folder: &Path, command: &[String]) -> Result<(), Misplaced> {
        let program = command.first().map_or("", String::as_str);
        if PYTHONS.contains(&program) && command.get(1).is_some_and(|word| word == "-m") {
            return self.check_module(folder, &command[2..]);
        }
        if program == RUNNERS[0].1 {
            return self.check_class(folder, command.get(1));
        }
        let file = match command.get(1) {
            _ if program.contains('/') => program,
            Some(file) if INTERPRETERS.contains(&program) => file,
            _ => return Err(self.refused(program)),
        };
        if file.starts_with('-') {
            return Err(Misplaced(format!("`{program} {file}`: the word behind {program} has to be a file")));
        }
        let path = self.inside(&folder.join(file))?;
        if path.is_file() { Ok(()) } else { Err(Misplaced(format!("{} is no file", path.display()))) }
    }

    /// Whether Python may run the module that `words` begin with.
    fn check_module(&self, folder: &Path, words: &[String]) -> Result<(), Misplaced> {
        let module = words.first().map_or("", String::as_str);
        if RUNNERS.iter().any(|(runner, _)| *runner == module) {
            return self.check_class(folder, words.get(1));
        }
        self.find_module(folder, module, &[".py", "/__main__.py"])
    }

    /// Whether the class that a runner imports is in a module of the folder.
    fn check_class(&self, folder: &Path, class: Option<&String>) -> Result<(), Misplaced> {
        let class = class.map_or("", String::as_str);
        match class.rsplit_once('.') {
            Some((module, _)) => self.find_module(folder, module, &[".py", "/__init__.py"]),
            None => Err(Misplaced(format!("`{class}` is no class of a module: write module.Class"))),
        }
    }

    /// Whether the folder has a file of `module`: Python looks there first.
    fn find_module(&self, folder: &Path, module: &str, ends: &[&str]) -> Result<(), Misplaced> {
        let is_name =
            |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        let path = module.replace('.', "/");
        let mut files = ends.iter().map(|end| folder.join(format!("{path}{end}")));
        if module.split('.').all(is_name)
            && files.any(|file| self.inside(&file).is_ok_and(|file| file.is_file()))
        {
            return Ok(());
        }
        Err(Misplaced(format!(
            "`{module}` is no module in {}: there is no {path}{}",
            folder.display(),
            ends[0]
        )))
    }

    fn refused(&self, program: &str) -> Misplaced {
        Misplaced(format!(
            "`{program}` is neither the path of a file below topologies.dir ({}), with a `/` in it, nor one of {} with such a file behind it",
            self.root.display(),
            INTERPRETERS.join(", ")
        ))
    }

    /// `path` without links, if that is inside.
    fn inside(&self, path: &Path) -> Result<PathBuf, Misplaced> {
        let real = |path: &Path| {
            path.canonicalize().map_err(|error| Misplaced(format!("{}: {error}", path.display())))
        };
        let (root, path) = (real(&self.root)?, real(path)?);
        if path.starts_with(&root) {
            return Ok(path);
        }
        Err(Misplaced(format!("{} is not below topologies.dir ({})", path.display(), root.display())))
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misplaced {}

/// Programs that run the file behind them, and take all words behind that for its own.
const INTERPRETERS: [&str; 7] = ["python3", "python", "node", "ruby", "perl", "bash", "sh"];

/// Those that run modules.
const PYTHONS: [&str; 2] = ["python3", "python"];
/// Modules that import the class behind them, and what they are called as programs.
const RUNNERS: [(&str, &str); 1] = [("streamparse.run", "streamparse_run")];

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test makes the files that an operator makes")]
    fn place() -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("words")).expect("made");
        std::fs::write(root.join("words/split.py"), "").expect("written");
        std::fs::create_dir_all(root.join("words/bolts")).expect("made");
        std::fs::write(root.join("words/bolts/count.py"), "").expect("written");
        std::fs::write(dir.path().join("outside.py"), "").expect("written");
        std::os::unix::fs::symlink(dir.path().join("outside.py"), root.join("words/link.py"))
            .expect("linked");
        std::os::unix::fs::symlink(dir.path(), root.join("up")).expect("linked");
        let place = Place::new(&root);
        (dir, place)
    }

    fn check(place: &Place, words: &[&str]) -> Result<(), String> {
        let folder = place.folder(Some("words")).expect("inside");
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        place.check(&folder, &words).map_err(|error| error.to_string())
    }

    #[test]
    fn files_of_the_folder_may_be_run_also_by_an_interpreter() {
        let (_dir, place) = place();
        assert_eq!(check(&place, &["./split.py", "-x"]), Ok(()));
        assert_eq!(check(&place, &["python3", "split.py", "../../outside.py"]), Ok(()));
        assert_eq!(check(&place, &["python3", "../words/split.py"]), Ok(()));
        assert_eq!(check(&place, &["python3", "-m", "split"]), Ok(()));
        assert_eq!(check(&place, &["python3", "-m", "streamparse.run", "split.Split"]), Ok(()));
        assert_eq!(
            check(&place, &["python3", "-m", "streamparse.run", "bolts.count.Counter", "-s", "msgpack"]),
            Ok(())
        );
        assert_eq!(check(&place, &["streamparse_run", "bolts.count.Counter"]), Ok(()));
    }

    #[test]
    fn nothing_else_may_be_run() {
        let (dir, place) = place();
        let outside = dir.path().join("outside.py").display().to_string();
        for command in [
            &["/bin/sh", "split.py"][..],
            &["split.py"],
            &["python3"],
            &["python3", "-c", "import os"],
            &["sh", "-c", "true"],
            &["sh", &outside],
            &["./link.py"],
            &["sh", "../../outside.py"],
            &["sh", "no.sh"],
            &["./"],
            &["env", "sh", "split.py"],
            &["python3", "-m"],
            &["python3", "-m", "http.server"],
            &["python3", "-m", "../../outside"],
            &["python3", "-m", "link"],
            &["python3", "-m", "streamparse.run"],
            &["python3", "-m", "streamparse.run", "-s", "split.Split"],
            &["python3", "-m", "streamparse.run", "os.system"],
            &["python3", "-m", "streamparse.run", "up.outside.X"],
            &["sh", "-m", "split"],
            &[],
        ] {
            assert!(check(&place, command).is_err(), "{command:?}");
        }
    }

    #[test]
    fn folder_outside_is_refused_whatever_leads_there() {
        let (_dir, place) = place();
        for folder in ["..", "up", "/tmp", "words/../..", "no", "words/split.py"] {
            assert!(place.folder(Some(folder)).is_err(), "{folder}");
        }
        assert!(place.folder(None).is_ok() && place.folder(Some("words")).is_ok());
    }
}
