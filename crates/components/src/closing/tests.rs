//! Arguments and answers; what the script does is looked at with a real server (`crates/evenkeel/tests/end_to_end/topologies.rs`).

use topology::value::Value;

use super::*;
use crate::testing::{made, tuple};

const COMMON: &str = "--by word --id id --prefix p:";

fn settings_of(text: &str) -> Settings {
    let words: Vec<String> = format!("{COMMON} {text}").split_whitespace().map(str::to_owned).collect();
    settings(&Arguments::read(&ROW.signature, &words).expect("they fit")).expect("they are right")
}

fn arguments(text: &str, values: &[Value<'_>]) -> Result<Vec<String>, Fault> {
    let server = Server { target: connection::Target::local(1), pipeline: 1_000 };
    let mut closing = Closing::new(settings_of(text), server);
    closing.sources = 3;
    let words = tuple(&["id", "word", "t", "n"], values, |tuple| closing.arguments(tuple))?;
    Ok(words.into_iter().map(|word| String::from_utf8(word).expect("text")).collect())
}

#[test]
fn script_is_told_the_tuple_and_what_ends_a_window() {
    let values = [Value::from("65-3"), Value::from("a"), Value::from("65-3"), Value::from(1.5)];
    let told = |text| arguments(text, &values).expect("it fits").join(" ");
    let common = "0 60000 3 100000 604800000";
    assert_eq!(told("--time t --size-ms 60"), format!("time 65-3 a 1 65 source:0 60 60 {common}"));
    assert_eq!(
        told("--time t --size-ms 60 --slide-ms 20 --field n --lateness-ms 5"),
        "time 65-3 a 1.5 65 source:0 60 20 5 60000 3 100000 604800000"
    );
    assert_eq!(told("--time t --gap-ms 9"), format!("session 65-3 a 1 65 source:0 9 9 {common}"));
    assert_eq!(told("--count 6 --every 2"), format!("count 65-3 a 1 0 source:0 6 2 {common}"));
}

#[test]
fn answer_has_results_and_whether_the_tuple_was_late() {
    let bulk = |text: &str| Reply::Bulk(text.into());
    let result = Reply::Array(["60", "120", "a", "2.5"].map(bulk).into());
    let read = answer(Reply::Array(vec![bulk("late"), Reply::Array(vec![result])]));
    let values = [Value::from(60), Value::from(120), Value::from("a"), Value::from(2.5)];
    let results = vec![Values::encode(&values).expect("they fit")];
    assert_eq!(read, Ok(Answer { is_late: true, results }));
    let read = answer(Reply::Array(vec![bulk("counted"), Reply::Array(Vec::new())]));
    assert_eq!(read, Ok(Answer { is_late: false, results: Vec::new() }));
    for none in [Reply::Null, Reply::Array(Vec::new()), Reply::Array(vec![bulk("late"), bulk("x")])] {
        assert!(answer(none).is_err());
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let refused = |text: &str| made(&ROW, &format!("{COMMON} {text}")).expect_err("refused");
    let which = "one of `--size-ms`, `--gap-ms` and `--count`";
    assert!(refused("--time t").contains(which));
    assert!(refused("--time t --size-ms 9 --gap-ms 9").contains(which));
    assert!(refused("--size-ms 9").contains("`--time` is missing"));
    assert!(refused("--time t --size-ms 9 --slide-ms 10").contains("does not fit --size-ms 9"));
    assert!(refused("--count 9 --every 2").contains("does not fit --count 9"));
    assert!(made(&ROW, "--by a --count 9 --prefix p").expect_err("refused").contains("`--id` is missing"));
    let reads = made(&ROW, &format!("{COMMON} --time t --gap-ms 9 --field n")).expect("right").reads;
    assert_eq!(reads, ["word", "id", "n", "t"]);
}
