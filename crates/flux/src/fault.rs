//! What is wrong with a file, or worth a warning, and where.

use std::fmt;

/// A place in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

/// Whether a file can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It can; this may not be what was meant.
    Warning,
    /// It cannot.
    Error,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// How bad.
    pub severity: Severity,
    /// What, with the value and what to change.
    pub text: String,
}

/// Mistakes so far.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Fault {
    pub(crate) fn error(place: Place, text: impl Into<String>) -> Self {
        Self { place, severity: Severity::Error, text: text.into() }
    }
}

impl Faults {
    pub(crate) fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(crate) fn error(&mut self, place: Place, text: impl Into<String>) {
        self.push(Fault::error(place, text));
    }

    pub(crate) fn warn(&mut self, place: Place, text: impl Into<String>) {
        self.push(Fault { place, severity: Severity::Warning, text: text.into() });
    }

    /// As [`hint`], and nothing where there are so many faults that this one is not shown.
    pub(crate) fn hint<'a>(&self, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
        if self.0.len() < FAULTS_MAX { hint(name, known) } else { String::new() }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// How many errors there are.
    pub(crate) fn errors(&self) -> usize {
        self.0.iter().filter(|fault| fault.severity == Severity::Error).count()
    }

    /// Warnings and errors, each in the order of the file, at most [`FAULTS_MAX`] of each.
    pub(crate) fn split(mut self) -> (Vec<Fault>, Vec<Fault>) {
        self.0.sort_by_key(|fault| fault.place);
        let (mut warnings, mut errors): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|fault| fault.severity == Severity::Warning);
        warnings.truncate(FAULTS_MAX);
        errors.truncate(FAULTS_MAX);
        (warnings, errors)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{}: {severity}: {}", self.place, self.text)
    }
}

/// ` (did you mean ...?)` if a known name is near.
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let nearest = topology::nearest::nearest(name, known);
    nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// What a value is in a message: long ones are cut.
pub(crate) fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

/// More mistakes than anybody repairs at a time.
pub(crate) const FAULTS_MAX: usize = 100;
const SHOWN_BYTES_MAX: usize = 200;
