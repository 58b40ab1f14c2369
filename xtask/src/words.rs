//! The word count with components of pystorm, over generated text of any size: are its counts those of a plain program, and how long does it take?
//!
//! The text has lines of ten words out of 10,000, frequent ones more often. Equal sizes give equal texts. With `--storm` the same definition and components run
//! in Storm's local cluster, too, by turns. A run is timed by its spout: from the first line that it emits until all are acknowledged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::packages;
use crate::process::Run;
use crate::storm;

type Counts = BTreeMap<String, u64>;
/// pystorm's word for how components speak, and the class that asks for it.
type Codec = (&'static str, &'static str);

/// What is to be measured.
struct Options {
    text_mb: u64,
    codecs: Vec<Codec>,
    runs: usize,
    /// Whether Storm's local cluster runs it, too.
    storm: bool,
    /// `None`: it is built.
    binary: Option<PathBuf>,
}

/// Runs the word count in each codec, and compares.
///
/// # Errors
/// Counts differ, or a run came to no end.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let options = Options::read(arguments)?;
    let python = packages::python_with_clients(root)?;
    let binary = match options.binary {
        Some(binary) => binary,
        None => {
            let build = ["build", "--release", "-p", "evenkeel"];
            Run::cargo(root).args(build).time_max(Duration::from_secs(1_800)).show(&mut |_| {})?;
            root.join("target/release/evenkeel")
        }
    };
    let folder = root.join("target/words");
    prepare(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let text = folder.join("text");
    generate(&text, options.text_mb << 20).map_err(|error| format!("{}: {error}", text.display()))?;
    let (expected, plain) = count_plainly(&text)?;
    let words: u64 = expected.values().sum();
    println!("{} MB, {words} words; a plain program counts them in {plain:.1?}", options.text_mb);
    let mut runners: Vec<_> =
        options.codecs.iter().map(|&codec| Runner::own(&folder, &binary, &python, codec)).collect();
    if options.storm {
        runners.push(Runner::storm(root, &folder, &binary, &python)?);
    }
    let mut rates = vec![Vec::new(); runners.len()];
    for run in 1..=options.runs {
        for (runner, rates) in runners.iter().zip(&mut rates) {
            let secs = runner.count(&folder, &expected)?;
            let rate = words as f64 / secs;
            println!("run {run}, {}: equal counts after {secs:.1} s, {rate:.0} words/s", runner.name);
            rates.push(rate);
        }
    }
    for (runner, rates) in runners.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        println!("{}: {median:.0} words/s, {:.0} to {:.0}", runner.name, rates[0], rates[rates.len() - 1]);
    }
    Ok(())
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { text_mb: 64, codecs: CODECS.to_vec(), runs: 1, storm: false, binary: None };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            if name == "--storm" {
                options.storm = true;
                continue;
            }
            let value = rest.next().ok_or_else(|| format!("{name} has no value"))?;
            match name.as_str() {
                "--text-mb" => options.text_mb = positive(name, value)?,
                "--runs" => options.runs = positive(name, value)?,
                "--codec" => options.codecs.retain(|(serializer, _)| serializer == value),
                "--binary" => options.binary = Some(PathBuf::from(value)),
                _ => {
                    let known = "--text-mb, --runs, --codec, --storm, --binary";
                    return Err(format!("unknown option {name}: {known}"));
                }
            }
        }
        Ok(options)
    }
}

fn positive<N: FromStr + PartialOrd + Default>(name: &str, value: &str) -> Result<N, Failure> {
    let number = value.parse().ok().filter(|number| *number > N::default());
    number.ok_or_else(|| format!("{name} {value}: it is no number above 0"))
}

/// Writes definition and components.
fn prepare(folder: &Path) -> std::io::Result<()> {
    let resources = folder.join("resources");
    fs::create_dir_all(&resources)?;
    fs::write(folder.join("words.yaml"), include_str!("words/words.yaml"))?;
    fs::write(resources.join("lines.py"), include_str!("words/lines.py"))?;
    fs::write(resources.join("split.py"), include_str!("words/split.py"))?;
    fs::write(resources.join("count.py"), include_str!("words/count.py"))
}

/// Writes `size` bytes of text, and the rest of a line.
fn generate(path: &Path, size: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut random, mut written) = (1_u64, 0);
    while written < size {
        let mut line = String::new();
        for _ in 0..WORDS_A_LINE {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The square of a number below 1: small ones are frequent.
            let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
            let word = (share * share * VOCABULARY) as u64;
            line.push_str(&format!("w{word:x} "));
        }
        line.pop();
        line.push('\n');
        file.write_all(line.as_bytes())?;
        written += line.len() as u64;
    }
    file.flush()
}

fn count_plainly(text: &Path) -> Result<(Counts, Duration), Failure> {
    let wrong = |error: std::io::Error| format!("{}: {error}", text.display());
    let (start, mut counts) = (Instant::now(), Counts::new());
    for line in BufReader::new(File::open(text).map_err(wrong)?).lines() {
        for word in line.map_err(wrong)?.split_whitespace() {
            match counts.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(counts.insert(word.to_owned(), 1)),
            }
        }
    }
    Ok((counts, start.elapsed()))
}

/// Something that runs the word count: until all lines are acknowledged, and it is told to end.
struct Runner {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// The signal that ends it as a user does.
    signal: &'static str,
}

impl Runner {
    /// This server, in one process.
    fn own(folder: &Path, binary: &Path, python: &Path, (serializer, class): Codec) -> Self {
        let mut arguments = ["topology", "run", "words.yaml", "--local"].map(String::from).to_vec();
        arguments.extend(given(&properties(folder, python, (serializer, class))));
        Self {
            name: format!("evenkeel, {serializer}"),
            program: binary.to_owned(),
            arguments,
            signal: "-INT",
        }
    }

    /// Storm's local cluster, with the jar that `topology package` makes. It has JSON alone.
    fn storm(root: &Path, folder: &Path, binary: &Path, python: &Path) -> Result<Self, Failure> {
        let storm = root.join("target/storm");
        fs::create_dir_all(&storm).map_err(|error| format!("{}: {error}", storm.display()))?;
        let classes = storm::classes(&storm)?;
        let package = ["topology", "package", "words.yaml", "-o", "words.jar"];
        let properties = properties(folder, python, CODECS[0]);
        Run::new(folder, &binary.display().to_string()).args(package).args(given(&properties)).read()?;
        let pairs = properties.map(|(name, value)| format!("{name}={value}\n"));
        let file = folder.join("words.properties");
        fs::write(&file, pairs.concat()).map_err(|error| format!("{}: {error}", file.display()))?;
        // The jar comes first: `flux-wrappers` has a folder `resources`, too.
        let classes = format!("words.jar:{classes}");
        let arguments = [
            "-Xmx768m",
            "-Dstorm.jar=words.jar",
            "-Dstorm.local.sleeptime=3600",
            "-cp",
            &classes,
            "org.apache.storm.LocalCluster",
            storm::FLUX,
            "--no-splash",
            "--filter",
            "words.properties",
            "words.yaml",
        ];
        let arguments = arguments.map(String::from).to_vec();
        Ok(Self {
            name: format!("Storm {}, json", storm::VERSION),
            program: "java".into(),
            arguments,
            signal: "-TERM",
        })
    }

    /// Counts the words of the text in `folder`; the time from the first line until all were acknowledged, in seconds.
    fn count(&self, folder: &Path, expected: &Counts) -> Result<f64, Failure> {
        let wrong = |error: std::io::Error| format!("{}: {error}", self.program.display());
        let acked = folder.join("acked");
        let _ = fs::remove_file(&acked);
        for file in counts_files(folder)? {
            fs::remove_file(file).map_err(wrong)?;
        }
        let log = File::create(folder.join("log")).map_err(wrong)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(folder);
        let mut child = command.stdout(Stdio::null()).stderr(log).spawn().map_err(wrong)?;
        wait(&mut child, &acked)?;
        Run::new(folder, "kill").args([self.signal, &child.id().to_string()]).read()?;
        child.wait().map_err(wrong)?;
        // Components of Storm end by themselves, when their input does.
        let until = Instant::now() + COUNTS_WAIT_MAX;
        while counted(folder).as_ref() != Ok(expected) {
            if Instant::now() > until {
                return Err(format!("{}: counts differ from those of a plain program", self.name));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = fs::read_to_string(&acked).map_err(wrong)?;
        said.trim().parse().map_err(|_| format!("{}: `{said}` is no number of seconds", acked.display()))
    }
}

/// What the definition leaves open.
fn properties(folder: &Path, python: &Path, (serializer, class): Codec) -> [(&'static str, String); 4] {
    [
        ("python", python.display().to_string()),
        ("out", folder.display().to_string()),
        ("serializer", serializer.to_owned()),
        ("class", class.to_owned()),
    ]
}

/// Properties as arguments.
fn given(properties: &[(&str, String)]) -> impl Iterator<Item = String> {
    properties.iter().flat_map(|(name, value)| ["--property".to_owned(), format!("{name}={value}")])
}

fn wait(child: &mut Child, acked: &Path) -> Result<(), Failure> {
    while !acked.exists() {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("the run ended early with {status}: see target/words/log"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn counted(folder: &Path) -> Result<Counts, Failure> {
    let mut counts = Counts::new();
    for file in counts_files(folder)? {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        for line in text.lines() {
            let pair =
                line.split_once(' ').and_then(|(word, count)| Some((word, count.parse::<u64>().ok()?)));
            let (word, count) = pair.ok_or_else(|| format!("{}: `{line}`", file.display()))?;
            *counts.entry(word.to_owned()).or_default() += count;
        }
    }
    Ok(counts)
}

fn counts_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_its =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("counts-"));
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_its).collect())
}

const CODECS: [Codec; 2] =
    [("json", "org.apache.storm.multilang.JsonSerializer"), ("msgpack", "com.example.MessagePackSerializer")];
const WORDS_A_LINE: usize = 10;
const VOCABULARY: f64 = 10_000.0;
const COUNTS_WAIT_MAX: Duration = Duration::from_secs(60);
