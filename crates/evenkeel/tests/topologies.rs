//! `evenkeel topology`, as a user meets it.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

mod common;

use common::evenkeel;

const WORD_COUNT: &str = include_str!("../../flux/tests/word-count.yaml");

/// Runs `topology check` on `text`; the exit status, standard output and standard error.
fn check(text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    std::fs::write(dir.path().join("x.properties"), "# how many\ncounters = 2\n").expect("it is written");
    let mut command = evenkeel();
    command.args(["topology", "check", "x.yaml"]).args(arguments);
    let out = command.current_dir(dir.path()).env("PYTHON", "python3").output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn definition_without_mistakes_prints_what_would_run() {
    let expected = "\
word-count: at least once; 2 workers, 3 components, 8 tasks

  component  kind   tasks  threads  runs
  sentences  spout  1      1        python3 sentences.py
  split      bolt   4      2        python3 split.py
  count      bolt   3      3        python3 count.py

  from       to     grouping     stream
  sentences  split  shuffle      default (sentence)
  split      count  fields word  default (word)
  split      count  all          odd (word, length)
";
    assert_eq!(check(WORD_COUNT, &["--property", "counters=3"]), (Some(0), expected.into(), String::new()));
}

#[test]
fn option_wins_over_the_file_of_properties() {
    let tasks = |arguments: &[&str]| check(WORD_COUNT, arguments).1.lines().next().map(str::to_owned);
    let of = |tasks| Some(format!("word-count: at least once; 2 workers, 3 components, {tasks} tasks"));
    assert_eq!(tasks(&["--properties", "x.properties"]), of(7));
    assert_eq!(tasks(&["--properties", "x.properties", "--property", "counters=5"]), of(10));
}

#[test]
fn all_mistakes_are_printed_with_their_places() {
    let text = WORD_COUNT.replace("cpuLoad", "cpuload").replace("type: SHUFFLE", "type: SHUFFEL");
    let expected = "\
x.yaml:24:5: error: unknown key `cpuload` in a bolt (did you mean `cpuLoad`?)
x.yaml:43:13: error: unknown grouping `SHUFFEL` (did you mean `SHUFFLE`?)
evenkeel: x.yaml has 2 errors
";
    assert_eq!(check(&text, &["--property", "counters=3"]), (Some(2), String::new(), expected.into()));
}

#[test]
fn property_that_is_no_pair_and_file_that_is_not_there_are_refused() {
    let (status, _, error) = check(WORD_COUNT, &["--property", "counters"]);
    assert!(status == Some(2) && error.contains("it has no `=`: write NAME=VALUE"), "{error}");
    let (status, _, error) = check(WORD_COUNT, &["--properties", "no"]);
    assert!(status == Some(2) && error.contains("cannot read the file of properties no"), "{error}");
}
