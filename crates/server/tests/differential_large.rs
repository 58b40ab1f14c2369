//! Collections that grow over every level and split boundary and shrink again to nothing, beside redis-server 7.0: every reply is the same,
//! and so is everything that is there, also after power failed in the middle.
//!
//! A failure prints its seed, and as short a list of steps as it finds that still differs. `EVENKEEL_DIFFERENTIAL_SEED` and
//! `EVENKEEL_DIFFERENTIAL_COMMANDS` choose a run.

#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/dice.rs"]
mod dice;
#[path = "differential/large.rs"]
mod large;
#[path = "differential/pair.rs"]
mod pair;
#[path = "differential/servers.rs"]
mod servers;

use clock::{Clock, SystemClock};
use large::{Large, Step};
use pair::{Difference, Pair};
use servers::small;
use store::{EngineKind, Options};

/// One run.
struct Run {
    seed: u64,
    /// Elements of a collection, at most.
    most: u64,
    /// Steps, unless the environment says otherwise.
    steps: usize,
    /// Steps between two restarts; `None`: there is nothing to start from.
    restarts: Option<usize>,
    options: Options,
    /// Whether Evenkeel gets commands staged in transactions.
    is_staged: bool,
}

/// What a run has at least once: else it is not about large collections.
const LEAVES_MIN: u64 = 500;
/// How long a shorter list of steps is looked for.
const SHRINKING_MS: u64 = 60_000;

#[test]
fn large_collections_in_memory_are_those_of_redis_7_0() {
    let options = Options { leaf_bytes: 256, ..small(EngineKind::Memory) };
    run(Run { seed: 11, most: 4_000, steps: 100_000, restarts: None, options, is_staged: false });
}

#[test]
fn large_collections_in_the_log_are_those_of_redis_7_0_also_after_restarts() {
    let options = Options { leaf_bytes: 700, memory_limit_bytes: MEMORY_BYTES, ..small(EngineKind::Log) };
    run(Run { seed: 12, most: 2_000, steps: 100_000, restarts: Some(6_000), options, is_staged: false });
}

#[test]
fn large_collections_with_hashes_of_8_bits_are_those_of_redis_7_0() {
    let options = Options { hash_bits: 8, ..small(EngineKind::Log) };
    run(Run { seed: 13, most: 300, steps: 100_000, restarts: Some(6_000), options, is_staged: false });
}

/// Scripts that changed large collections on disk left them damaged: a command of theirs that was stopped in its middle went on upon its own half.
#[test]
fn large_collections_that_are_on_disk_alone_are_those_of_redis_7_0_also_after_restarts() {
    let options = Options { leaf_bytes: 256, is_always_cold: true, ..small(EngineKind::Log) };
    run(Run { seed: 15, most: 800, steps: 9_000, restarts: Some(2_500), options, is_staged: false });
}

/// One command could read an eighth of the memory's limit: HMGET of 3,000 fields, LPOS, COPY and SPOP were refused where all was on disk.
#[test]
fn commands_on_much_of_a_collection_that_is_on_disk_alone_answer_as_those_of_redis_7_0() {
    let options = servers::always_cold(Options { engine: EngineKind::Log, ..Options::default() });
    let mut pair = Pair::start(Options { memory_limit_bytes: 16 << 20, ..options }, false);
    if let Err(difference) = pair.play(&much_of_collections()) {
        panic!("step {}: {}", difference.at, difference.text);
    }
}

/// Fills collections of 3 MB each, and has commands look at much of them.
fn much_of_collections() -> Vec<Step> {
    let element = |number: usize| format!("{number:06}{:040}", 0).into_bytes();
    let some = |step: usize| (0..ELEMENTS).step_by(step).map(element);
    let words =
        |text: &str| -> Vec<Vec<u8>> { text.split(' ').map(|word| word.as_bytes().to_vec()).collect() };
    let named = |text: &str, step| Step::Same(words(text).into_iter().chain(some(step)).collect());
    let mut steps = Vec::new();
    for first in (0..ELEMENTS).step_by(500) {
        let numbers = || first..first + 500;
        let of = |text: &str, each: &dyn Fn(usize) -> Vec<Vec<u8>>| {
            Step::Same(words(text).into_iter().chain(numbers().flat_map(each)).collect())
        };
        steps.push(of("SADD s", &|number| vec![element(number)]));
        steps.push(of("RPUSH l", &|number| vec![element(number)]));
        steps.push(of("HSET h", &|number| vec![element(number), b"v".to_vec()]));
        steps.push(of("ZADD z", &|number| vec![number.to_string().into_bytes(), element(number)]));
    }
    // one element much larger than a leaf among the small ones of each
    let large = vec![b'x'; 300_000];
    for text in ["SADD s", "RPUSH l", "HSET h large", "ZADD z 7"] {
        steps.push(Step::Same(words(text).into_iter().chain([large.clone()]).collect()));
    }
    steps.extend([named("HMGET h", 20), named("SMISMEMBER s", 20), named("ZMSCORE z", 20)]);
    let queued = ["LPOS l none", "HSTRLEN h large", "COPY l copied-list", "DEL copied-list"];
    steps.push(Step::Transaction(queued.map(words).to_vec(), true));
    let mut script = words("EVAL - 1 l none");
    script[1] =
        b"redis.call('LPOS', KEYS[1], ARGV[1]) return redis.call('LREM', KEYS[1], 0, ARGV[1])".to_vec();
    steps.push(Step::Same(script));
    let last = String::from_utf8(element(ELEMENTS - 10)).expect("text");
    for text in [
        &format!("LPOS l {last}")[..],
        "LPOS l none RANK -1",
        &format!("LINSERT l BEFORE {last} new"),
        "LREM l 0 none",
        &format!("LREM l -1 {last}"),
        "SINTERCARD 2 s s LIMIT 10",
        "COPY s copied",
        "COPY l copied-list",
        "COPY h copied-hash",
        "COPY z copied-scores",
        "MOVE copied 3",
        "ZREMRANGEBYRANK z 100 3000",
    ] {
        steps.push(Step::Same(words(text)));
    }
    steps.push(Step::Pop(b"s".to_vec(), Some(2_000)));
    steps.push(Step::Chosen(words("HRANDFIELD h -1000")));
    steps.extend([named("HDEL h", 19), named("SREM s", 21), named("ZREM z", 230)]);
    steps.push(Step::Contents);
    steps
}

/// Elements of collections of which much is looked at.
const ELEMENTS: usize = 60_000;

/// ZPOPMIN of a sorted set in leaves failed in a transaction, as did all that removes a range: a transaction keeps keys, not leaves.
#[test]
fn large_collections_changed_in_transactions_are_those_of_redis_7_0() {
    let options = Options { leaf_bytes: 256, ..small(EngineKind::Log) };
    run(Run { seed: 14, most: 600, steps: 8_000, restarts: Some(2_500), options, is_staged: true });
}

fn run(run: Run) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("EVENKEEL_DIFFERENTIAL_SEED").unwrap_or(run.seed);
    let count = number("EVENKEEL_DIFFERENTIAL_COMMANDS").map_or(run.steps, |count| count as usize);
    println!("seed {seed}, {count} steps, collections of up to {} elements", run.most);
    let mut pair = Pair::start(run.options, run.is_staged);
    let steps = steps(seed, run.most, count, run.restarts);
    if let Err(difference) = pair.play(&steps) {
        println!("seed {seed}, step {}: {}", difference.at, difference.text);
        report(&mut pair, steps, difference);
        panic!("seed {seed}: see above");
    }
    println!("{count} steps, {} listed differences, up to {} leaves", pair.listed, pair.leaves);
    let leaves_min = if run.is_staged || run.steps < 10_000 { LEAVES_MIN / 10 } else { LEAVES_MIN };
    assert!(pair.leaves >= leaves_min || count < run.steps, "no more than {} leaves at once", pair.leaves);
}

/// All steps of a run: growth and shrinking, and at the end all of it goes.
fn steps(seed: u64, most: u64, count: usize, restarts: Option<usize>) -> Vec<Step> {
    let mut large = Large::new(seed, most);
    let (mut steps, mut is_power_loss) = (Vec::new(), false);
    for at in 0..count {
        if at == count - count / 8 {
            large.end();
        }
        if restarts.is_some_and(|every| at % every == every - 1) {
            is_power_loss = !is_power_loss;
            steps.extend([Step::Restart(is_power_loss), Step::Contents]);
        }
        steps.push(large.step());
    }
    steps.push(Step::Contents);
    steps.extend(large.remove_all());
    steps
}

/// Shows a list of steps as short as is found in the time that there is.
fn report(pair: &mut Pair, mut steps: Vec<Step>, mut difference: Difference) {
    let began = SystemClock.now();
    steps.truncate(difference.at + 1);
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from + part < steps.len() {
            if SystemClock.now().0 - began.0 > SHRINKING_MS * 1_000_000 {
                break;
            }
            let without = [&steps[..from], &steps[from + part..]].concat();
            pair.clear();
            match pair.play(&without) {
                Err(found) => {
                    steps = without[..=found.at].to_vec();
                    difference = found;
                }
                Ok(()) => from += part,
            }
        }
        part /= 2;
    }
    println!("{} steps that differ:", steps.len());
    for step in steps.iter().rev().take(SHOWN_MAX).rev() {
        println!("  {step}");
    }
    println!("{}", difference.text);
}

/// So little that not all is in memory.
const MEMORY_BYTES: u64 = 6 << 20;
/// Steps that are printed.
const SHOWN_MAX: usize = 80;
