//! Replays a corpus, then mutates it until the time is up or something breaks.
#![allow(clippy::disallowed_methods, reason = "corpora are plain files that no server ever opens")]

use std::cell::RefCell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::{Clock, SystemClock};

use crate::{Mutator, Target};

/// One input that takes longer than this is a finding: a decoder's cost must be bounded by its input.
const INPUT_TIME_MAX: Duration = Duration::from_secs(2);

/// How long to try, from where.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time for mutations; the corpus is replayed whole in any case.
    pub time: Duration,
    /// What decides every mutation.
    pub seed: u64,
}

/// An input that broke its target.
#[derive(Debug)]
pub struct Finding {
    /// What went wrong.
    pub what: String,
    /// With which bytes.
    pub input: Vec<u8>,
}

impl Finding {
    /// Writes the input into the folder `corpus`, where the next replay finds it; returns its path.
    ///
    /// # Errors
    /// What the system reports.
    pub fn save(&self, corpus: &Path) -> io::Result<PathBuf> {
        let name = self.input.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        std::fs::create_dir_all(corpus)?;
        let path = corpus.join(format!("crash-{name:016x}"));
        std::fs::write(&path, &self.input).map(|()| path)
    }
}

/// Runs the target's seeds and its corpus; returns how many inputs that were.
///
/// # Errors
/// The first input that breaks it.
///
/// # Panics
/// If the corpus cannot be read.
pub fn replay(target: &Target) -> Result<usize, Finding> {
    let pool = inputs(target);
    for input in &pool {
        attempt(target, input)?;
    }
    Ok(pool.len())
}

/// Replays, then mutates as `plan` says; returns how many inputs were tried.
///
/// # Errors
/// The first input that breaks it.
///
/// # Panics
/// If the corpus cannot be read.
pub fn run(target: &Target, plan: Plan) -> Result<u64, Finding> {
    let mut tried = replay(target)? as u64;
    let pool = inputs(target);
    let mut mutator = Mutator::new(plan.seed, target.words, target.input_bytes_max);
    let start = SystemClock.now();
    while SystemClock.now() - start < plan.time {
        attempt(target, &mutator.next(&pool))?;
        tried += 1;
    }
    Ok(tried)
}

/// Seeds first, then the files of the corpus by name: the order decides what a seed's mutations are made of.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut pool = (target.seeds)();
    let mut files: Vec<PathBuf> = match std::fs::read_dir(target.corpus()) {
        Ok(entries) => entries.map(|entry| entry.expect("a corpus can be listed").path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("corpus {}: {error}", target.corpus().display()),
    };
    files.sort();
    pool.extend(files.iter().map(|file| std::fs::read(file).expect("a file of a corpus can be read")));
    pool
}

fn attempt(target: &Target, input: &[u8]) -> Result<(), Finding> {
    let start = SystemClock.now();
    let outcome = quietly(|| (target.run)(input));
    let time = SystemClock.now() - start;
    let what = match outcome {
        Err(message) => message,
        Ok(()) if time > INPUT_TIME_MAX => format!("{} bytes took {time:?}", input.len()),
        Ok(()) => return Ok(()),
    };
    Err(Finding { what, input: input.to_vec() })
}

/// Runs `work`; a panic becomes its message and place, and is not printed.
fn quietly(work: impl FnOnce()) -> Result<(), String> {
    thread_local! {
        static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
    }
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let caught = MESSAGE.with(|message| {
                let armed = message.borrow().is_some();
                if armed {
                    *message.borrow_mut() = Some(info.to_string());
                }
                armed
            });
            if !caught {
                former(info);
            }
        }));
    });
    MESSAGE.set(Some(String::new()));
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    let message = MESSAGE.take().unwrap_or_default();
    outcome.map_err(|_| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks on inputs that hold a zero after a colon.
    fn fragile(input: &[u8]) {
        assert!(!input.windows(2).any(|pair| pair == b":\0"), "planted");
    }

    const FRAGILE: Target = Target {
        name: "no-such-corpus",
        run: fragile,
        seeds: || vec![b"length:9".to_vec()],
        words: &[b"\0", b":"],
        input_bytes_max: 64,
    };

    #[test]
    fn planted_bug_is_found_again_with_the_same_seed() {
        let plan = Plan { time: Duration::from_secs(60), seed: 5 };
        let (one, two) = (run(&FRAGILE, plan).unwrap_err(), run(&FRAGILE, plan).unwrap_err());
        assert_eq!(one.input, two.input);
        assert!(one.what.contains("planted"), "{}", one.what);
    }

    #[test]
    fn seeds_alone_pass() {
        assert_eq!(replay(&FRAGILE).unwrap(), 1);
    }
}
