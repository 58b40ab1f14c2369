//! A definition that a user has in a file, with values for what it leaves open.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use flux::{Definition, Fault, Variables};

use super::builtin;
use crate::failure::Failure;
use crate::small::read_small_or_pipe;

/// A definition, and values for what it leaves open.
#[derive(Debug, Args)]
pub(super) struct Source {
    /// Definition in the YAML of Apache Storm's Flux
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) values: Values,
}

/// Values for what a definition leaves open.
#[derive(Clone, Debug, Args)]
pub(super) struct Values {
    /// Value of `${NAME}` in the file; goes before that of --properties
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    property: Vec<(String, String)>,
    /// File with lines NAME=VALUE, as Java reads properties
    #[arg(long, value_name = "FILE")]
    properties: Option<PathBuf>,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Submission {
    /// What it says.
    pub(super) definition: Definition,
    /// Its text.
    pub(super) text: String,
    /// Values for what it leaves open; those of the environment that it uses as `ENV-NAME`.
    pub(super) properties: BTreeMap<String, String>,
}

impl Source {
    /// Reads the definition; prints its warnings, or all that is wrong, to standard error.
    pub(super) fn read(&self) -> Result<Submission, Failure> {
        let text = read_small_or_pipe("the definition", &self.file)?;
        let mut properties = self.values.read()?;
        let used = RefCell::new(BTreeMap::new());
        let environment = |name: &str| {
            let value = std::env::var(name).ok()?;
            used.borrow_mut().insert(format!("ENV-{name}"), value.clone());
            Some(value)
        };
        let variables = Variables { properties: &properties, environment: &environment };
        match flux::read_checked(&text, &variables, &builtin::faults_of) {
            Ok((definition, warnings)) => {
                say_all(&self.file, &warnings);
                properties.extend(used.into_inner());
                Ok(Submission { definition, text, properties })
            }
            Err(faults) => Err(self.refused(&faults)),
        }
    }

    fn refused(&self, faults: &[Fault]) -> Failure {
        say_all(&self.file, faults);
        let plural = if faults.len() == 1 { "" } else { "s" };
        Failure::Usage(format!("{} has {} error{plural}", self.file.display(), faults.len()))
    }
}

impl Values {
    fn read(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut properties = match &self.properties {
            Some(path) => {
                let text = read_small_or_pipe("the file of properties", path)?;
                let wrong = |why| Failure::Usage(format!("{}, {why}", path.display()));
                flux::parse_properties(&text).map_err(wrong)?
            }
            None => BTreeMap::new(),
        };
        properties.extend(self.property.iter().cloned());
        Ok(properties)
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it has no `=`: write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn say_all(file: &Path, faults: &[Fault]) {
    let lines: String = faults.iter().map(|fault| format!("{}:{fault}\n", file.display())).collect();
    crate::output::say(std::io::stderr(), &lines);
}
