//! The word count with components of pystorm, over generated text of any size: are its counts those of a plain program, and how long does it take?
//!
//! The text has lines of ten words out of 10,000, frequent ones more often. Equal sizes give equal texts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::packages;
use crate::process::Run;

type Counts = BTreeMap<String, u64>;

/// What is to be measured.
struct Options {
    text_mb: u64,
    codecs: Vec<(&'static str, &'static str)>,
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
    for (serializer, class) in options.codecs {
        let time = topology(&binary, &python, &folder, serializer, class)?;
        let rate = words as f64 / time.as_secs_f64();
        if counted(&folder)? != expected {
            return Err(format!("{serializer}: counts differ from those of a plain program"));
        }
        let hours = time.as_secs_f64() * 1_024.0 / options.text_mb as f64 / 3_600.0;
        println!(
            "{serializer}: equal counts after {time:.1?}, {rate:.0} words/s; 1 GB would take {hours:.2} h"
        );
    }
    Ok(())
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { text_mb: 64, codecs: CODECS.to_vec(), binary: None };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{name} has no value"))?;
            match name.as_str() {
                "--text-mb" => {
                    options.text_mb = value.parse().map_err(|_| format!("{value} is no number of MB"))?;
                }
                "--codec" => options.codecs.retain(|(serializer, _)| serializer == value),
                "--binary" => options.binary = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {name}: --text-mb, --codec, --binary")),
            }
        }
        Ok(options)
    }
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

/// Runs the topology until all lines are acknowledged; how long that took.
fn topology(
    binary: &Path,
    python: &Path,
    folder: &Path,
    serializer: &str,
    class: &str,
) -> Result<Duration, Failure> {
    let wrong = |error: std::io::Error| format!("{}: {error}", binary.display());
    let acked = folder.join("acked");
    let _ = fs::remove_file(&acked);
    for file in counts_files(folder)? {
        fs::remove_file(file).map_err(wrong)?;
    }
    let log = File::create(folder.join("log")).map_err(wrong)?;
    let mut command = Command::new(binary);
    command.args(["topology", "run", "words.yaml", "--local"]).current_dir(folder);
    for (name, value) in [
        ("python", python.display().to_string()),
        ("out", folder.display().to_string()),
        ("serializer", serializer.to_owned()),
        ("class", class.to_owned()),
    ] {
        command.arg("--property").arg(format!("{name}={value}"));
    }
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn().map_err(wrong)?;
    let time = wait(&mut child, &acked, start)?;
    let pid = child.id().to_string();
    Run::new(folder, "kill").args(["-INT", &pid]).read()?;
    let status = child.wait().map_err(wrong)?;
    if status.success() { Ok(time) } else { Err(format!("{serializer}: the run ended with {status}")) }
}

fn wait(child: &mut Child, acked: &Path, start: Instant) -> Result<Duration, Failure> {
    while !acked.exists() {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("the run ended early with {status}: see target/words/log"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(start.elapsed())
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

/// pystorm's word for each, and the class that asks for it.
const CODECS: [(&str, &str); 2] =
    [("json", "org.apache.storm.multilang.JsonSerializer"), ("msgpack", "com.example.MessagePackSerializer")];
const WORDS_A_LINE: usize = 10;
const VOCABULARY: f64 = 10_000.0;
