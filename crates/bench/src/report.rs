//! docs/benchmarks/figures.md: the table, the plots and the commands, written between two markers.
//!
//! All figures, also those of former runs, are kept in docs/benchmarks/results.json, so that measuring one group
//! leaves the others as they were. Text outside the markers, and the summary docs/benchmarks.md, are written by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::figure::{Figure, Series, Target, Verdict};
use crate::plot::{Bar, BarGroup, Bars};

/// The figures, old and new, and where they are shown.
#[derive(Debug)]
pub struct Report {
    folder: PathBuf,
    results: Results,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    /// Of the figures that name no other.
    machine: String,
    figures: Vec<Figure>,
}

impl Report {
    /// The report in `docs`, with the figures of former runs.
    ///
    /// # Errors
    /// The file of results is not what this version writes.
    pub fn open(docs: &Path) -> Result<Self, Failure> {
        let folder = docs.to_path_buf();
        let results = match fs::read(folder.join(RESULTS)) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| format!("{RESULTS}: {error}"))?,
            Err(_) => Results::default(),
        };
        Ok(Self { folder, results })
    }

    /// Puts `figures`, measured on this machine with files in `measured`, in the place of those with the same ids, or at the end.
    pub fn replace(&mut self, figures: Vec<Figure>, measured: &Path) {
        let here = machine(measured);
        if self.results.machine.is_empty() {
            self.results.machine.clone_from(&here);
        }
        for mut figure in figures {
            if self.results.machine != here {
                figure.machine.clone_from(&here);
            }
            match self.results.figures.iter_mut().find(|old| old.id == figure.id) {
                Some(old) => *old = figure,
                None => self.results.figures.push(figure),
            }
        }
        let group_of = |figure: &Figure| {
            let name = figure.id.split('/').next().unwrap_or("");
            crate::suite::GROUPS.iter().position(|group| group.name == name)
        };
        self.results.figures.sort_by_key(group_of);
    }

    /// Writes results, plots and page.
    ///
    /// # Errors
    /// A file cannot be written, or the page has no markers.
    pub fn write(&self) -> Result<(), Failure> {
        let write = |name: &str, text: &str| {
            let path = self.folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&self.folder)).ok();
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let json = serde_json::to_string_pretty(&self.results).map_err(|error| error.to_string())?;
        write(RESULTS, &(json + "\n"))?;
        for (name, plot) in plots(&self.results.figures) {
            write(&name, &plot)?;
        }
        let page = fs::read_to_string(self.folder.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
        write(PAGE, &between_markers(&page, &self.text())?)
    }

    fn text(&self) -> String {
        let mut text =
            format!("{} A figure from another machine names it below.\n\n{TABLE_HEAD}", self.results.machine);
        for figure in &self.results.figures {
            text.push_str(&row(figure));
        }
        for (name, _) in plots(&self.results.figures) {
            let file = name.trim_start_matches(PLOTS);
            text.push_str(&format!("\n![{}]({file})\n", plot_title(file)));
        }
        text.push_str("\n## Commands\n");
        // A command that makes many figures is with the first of them.
        let with_command = |figure: &&Figure| !figure.commands.is_empty();
        for figure in self.results.figures.iter().filter(with_command) {
            text.push_str(&format!(
                "\n`{}`: {}\n\n```sh\n{}\n```\n",
                figure.id,
                figure.heading(),
                figure.commands.join("\n")
            ));
            for remark in [&figure.note, &figure.machine].into_iter().filter(|remark| !remark.is_empty()) {
                text.push_str(&format!("\n{remark}\n"));
            }
        }
        text
    }
}

/// A figure as one line for the terminal.
#[must_use]
pub fn line(figure: &Figure) -> String {
    let (least, most) = figure.spread();
    let measured = measured(figure);
    let spread = format!("{} to {}", number(least), number(most));
    format!("{:<28}{measured:>10}  ({spread})  target {:<12}{}", figure.id, target(figure), verdict(figure))
}

fn row(figure: &Figure) -> String {
    let (least, most) = figure.spread();
    let b = figure.b.as_ref().map_or_else(String::new, |b| number(b.median()));
    format!(
        "| {} | {} | **{}** | {} to {} | {} | {} | {} | {} |\n",
        figure.heading(),
        target(figure),
        measured(figure),
        number(least),
        number(most),
        verdict(figure),
        number(figure.a.median()),
        b,
        figure.unit,
    )
}

/// With as many digits more as it takes to tell a target that was missed from the value.
fn measured(figure: &Figure) -> String {
    let value = figure.measured();
    match figure.target {
        Some(Target::AtLeast(bound) | Target::AtMost(bound)) if figure.verdict() == Verdict::Missed => {
            let apart = |more: &usize| number_to(value, *more) != number_to(bound, *more);
            number_to(value, (0..f64::DIGITS as usize).find(apart).unwrap_or(0))
        }
        _ => number(value),
    }
}

fn target(figure: &Figure) -> String {
    match figure.target {
        Some(Target::AtLeast(least)) => format!(">= {}", number(least)),
        Some(Target::AtMost(most)) => format!("<= {}", number(most)),
        None => "reported".to_owned(),
    }
}

fn verdict(figure: &Figure) -> &'static str {
    match figure.verdict() {
        Verdict::Met => "met",
        Verdict::Missed => "**missed**",
        Verdict::Reported => "",
    }
}

/// Three significant digits, or a whole number with its thousands apart.
pub(crate) fn number(value: f64) -> String {
    number_to(value, 0)
}

/// The same with `more` decimals.
fn number_to(value: f64, more: usize) -> String {
    if value.abs() < 100.0 {
        let digits = more + if value.abs() < 10.0 { 2 } else { 1 };
        return format!("{value:.digits$}");
    }
    let rounded = format!("{value:.more$}");
    let (whole, decimals) = rounded.split_at(rounded.find('.').unwrap_or(rounded.len()));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + decimals
}

/// A plot for each group that compares two series, and one for each type of values.
fn plots(figures: &[Figure]) -> Vec<(String, String)> {
    let is_by_type = |id: &str| BY_TYPE.iter().any(|group| id.split('/').next() == Some(group));
    let by_type: Vec<Figure> = figures.iter().filter(|figure| is_by_type(&figure.id)).cloned().collect();
    let of_types = crate::collections::plots(&by_type);
    let mut plots: Vec<_> =
        of_types.into_iter().map(|(name, plot)| (format!("{PLOTS}{name}"), plot)).collect();
    for group in crate::suite::GROUPS.iter().filter(|group| !BY_TYPE.contains(&group.name)) {
        let prefix = format!("{}/", group.name);
        let pairs: Vec<&Figure> =
            figures.iter().filter(|f| f.id.starts_with(&prefix) && f.b.is_some()).collect();
        if !pairs.is_empty() {
            plots.push((format!("{PLOTS}{}.svg", group.name), ratios(group.about, &pairs)));
        }
    }
    plots
}

/// A and B of each figure: their medians as bars, their runs as dots.
fn ratios(title: &str, figures: &[&Figure]) -> String {
    let group = |figure: &&Figure| {
        let bar = |(colour, series): (usize, &Series)| {
            let (length, unit) = (series.median(), &figure.unit);
            let words =
                if length < 100.0 { format!("{length:.2} {unit}") } else { format!("{length:.0} {unit}") };
            Bar { label: series.label.clone(), colour, length, words, dots: series.values.clone() }
        };
        let wanted = match figure.target {
            Some(Target::AtLeast(least)) => format!(", wanted at least {least}"),
            Some(Target::AtMost(most)) => format!(", wanted at most {most}"),
            None => String::new(),
        };
        let title = format!("{}: {:.2}{wanted}", figure.title, figure.measured());
        // Of the three colours, ours and the palest.
        let both = [Some((0, &figure.a)), figure.b.as_ref().map(|b| (2, b))];
        BarGroup { title, bars: both.into_iter().flatten().map(bar).collect() }
    };
    let groups = figures.iter().map(group).collect();
    Bars { title: title.to_owned(), line_at: None, groups }.svg()
}

fn plot_title(file: &str) -> &str {
    let group = file.trim_end_matches(".svg");
    if group.starts_with("types-") {
        return "requests a second of commands of this type, as multiples of those of Redis and Valkey";
    }
    crate::suite::GROUPS.iter().find(|known| known.name == group).map_or(group, |known| known.about)
}

fn between_markers(page: &str, text: &str) -> Result<String, Failure> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("{PAGE} has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{PAGE} has no {END}"))?;
    Ok(format!("{before}{BEGIN}\n{text}\n{END}{after}"))
}

/// Processor, cores and kernel, and the file system of `measured`.
fn machine(measured: &Path) -> String {
    format!("Machine: {}; {}.", hardware(), file_system(measured))
}

/// Processors and kernel of this machine.
pub(crate) fn hardware() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("", |rest| rest.trim_matches(['\t', ' ', ':']));
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {model}, Linux {}", kernel.trim())
}

/// Its name, or that of the place where it was: groups remove their folders.
fn file_system(folder: &Path) -> String {
    let there = folder.ancestors().find(|it| it.exists()).unwrap_or(Path::new("."));
    let said = Command::new("df").arg("--output=fstype").arg(there).output();
    // A heading comes first.
    said.ok()
        .and_then(|said| String::from_utf8_lossy(&said.stdout).lines().nth(1).map(str::to_owned))
        .unwrap_or_else(|| "a file system that df does not know".into())
}

const PAGE: &str = "benchmarks/figures.md";
/// Before the names of the plots, which lie beside the page.
const PLOTS: &str = "benchmarks/";
/// Groups whose figures are plotted by type.
const BY_TYPE: [&str; 2] = ["types", "types-durable"];
const RESULTS: &str = "benchmarks/results.json";
const BEGIN: &str = "<!-- figures: written by `cargo xtask bench` -->";
const END: &str = "<!-- end of figures -->";
const TABLE_HEAD: &str = "\
| figure | target | measured | spread | verdict | A | B | unit of A, B |
|---|---|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(id: &str, a: f64) -> Figure {
        let b = Some(Series::new("theirs", vec![50_000.0]));
        Figure::new(id, "SET", Some(Target::AtLeast(1.25)), "requests/s", Series::new("ours", vec![a]), b)
            .by(["run it"])
    }

    #[test]
    fn new_figure_replaces_its_old_one_and_leaves_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(PLOTS)).expect("a folder");
        fs::write(folder.path().join(PAGE), format!("Mine.\n{BEGIN}\nold\n{END}\nMine too.\n"))
            .expect("a page");
        for (id, a) in [("redis/x", 40_000.0), ("limit/y", 1.0), ("redis/x", 90_000.0)] {
            let mut report = Report::open(folder.path()).expect("a report");
            report.replace(vec![figure(id, a)], folder.path());
            report.write().expect("written");
        }
        let page = fs::read_to_string(folder.path().join(PAGE)).expect("the page");
        assert!(page.starts_with("Mine.\n") && page.ends_with("Mine too.\n") && !page.contains("old"));
        assert!(
            page.contains("| SET | >= 1.25 | **1.80** | 1.80 to 1.80 | met | 90,000 | 50,000 | requests/s |")
        );
        assert!(page.find("`limit/y`").expect("limit") < page.find("`redis/x`").expect("redis"));
        assert!(page.contains("](redis.svg)") && folder.path().join("benchmarks/redis.svg").exists());
    }

    #[test]
    fn former_figure_keeps_its_values_and_its_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(PLOTS)).expect("a folder");
        fs::write(folder.path().join(PAGE), format!("{BEGIN}\n{END}\n")).expect("a page");
        let mut report = Report::open(folder.path()).expect("a report");
        report.results.machine = "Machine: another.".to_owned();
        report.results.figures.push(figure("redis/old", 7.7339636249997845));
        report.replace(vec![figure("limit/new", 1.0)], folder.path());
        report.write().expect("written");

        let report = Report::open(folder.path()).expect("a report");
        let old =
            &report.results.figures.iter().find(|figure| figure.id == "redis/old").expect("the old one");
        assert_eq!((old.a.values[0].to_bits(), old.machine.as_str()), (7.7339636249997845_f64.to_bits(), ""));
        let page = fs::read_to_string(folder.path().join(PAGE)).expect("the page");
        assert!(page.contains("Machine: another. A figure from another machine names it below.\n"), "{page}");
        assert_eq!(page.matches(&machine(folder.path())).count(), 1, "{page}");
    }

    #[test]
    fn machine_names_the_file_system_that_was_measured() {
        assert!(machine(Path::new("/proc")).ends_with("; proc."));
        assert!(
            machine(Path::new("/proc/no/such")).ends_with("; proc."),
            "it was removed behind the measurement"
        );
    }

    #[test]
    fn miss_by_less_than_a_digit_shows_one_more() {
        assert!(row(&figure("redis/x", 62_400.0)).contains("| **1.248** | 1.25 to 1.25 | **missed** |"));
        assert!(row(&figure("redis/x", 62_500.0)).contains("| **1.25** | 1.25 to 1.25 | met |"));
        assert!(row(&figure("redis/x", 62_499.0)).contains("| **1.24998** | 1.25 to 1.25 | **missed** |"));
        let mut bytes = figure("redis/x", 1_024.4);
        (bytes.b, bytes.target) = (None, Some(Target::AtMost(1_024.0)));
        assert!(row(&bytes).contains("| <= 1,024 | **1,024.4** | 1,024 to 1,024 | **missed** |"));
    }

    #[test]
    fn numbers_keep_three_digits_or_thousands() {
        assert_eq!(
            [0.904, 12.34, 1_234.5, 1_234_567.0, 100.0].map(number),
            ["0.90", "12.3", "1,234", "1,234,567", "100"]
        );
    }

    #[test]
    fn page_without_markers_is_refused() {
        assert!(between_markers("no markers", "text").is_err());
    }
}
