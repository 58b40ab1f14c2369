#![allow(missing_docs, reason = "tests")]
//! Whole definitions: what they mean, and what is said of those with mistakes.

use std::collections::BTreeMap;
use std::time::Duration;

use flux::{Definition, Fault, Serializer, Variables};
use serde_json::json;
use topology::definition::{Grouping, Guarantee, Kind, Parallelism};

/// Sentences from a spout, split, counted by word.
const WORD_COUNT: &str = include_str!("word-count.yaml");

fn read_with(text: &str, properties: &[(&str, &str)]) -> Result<(Definition, Vec<Fault>), Vec<Fault>> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let properties: BTreeMap<String, String> = properties.iter().map(owned).collect();
    let environment = |name: &str| (name == "PYTHON").then(|| "python3".to_owned());
    flux::read(text, &Variables { properties: &properties, environment: &environment })
}

fn read(text: &str) -> (Definition, Vec<String>) {
    let (definition, warnings) = read_with(text, &[("counters", "3")]).expect("a definition");
    (definition, warnings.iter().map(ToString::to_string).collect())
}

/// What is said of the word count after `from` was replaced by `to`.
fn changed(from: &str, to: &str) -> Vec<String> {
    assert!(WORD_COUNT.contains(from), "{from}");
    let faults = read_with(&WORD_COUNT.replacen(from, to, 1), &[("counters", "3")]).expect_err("faults");
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn word_count_is_read_as_flux_reads_it() {
    let (definition, warnings) = read(WORD_COUNT);
    assert_eq!(warnings, [""; 0]);
    let topology = definition.plan.topology();
    assert_eq!(topology.name, "word-count");
    assert_eq!((topology.settings.workers, topology.settings.max_spout_pending), (2, 500));
    assert_eq!(topology.settings.message_timeout, Duration::from_secs(60));
    let [sentences, split, count] = &topology.components[..] else { panic!("{topology:?}") };
    assert_eq!((sentences.kind, &*sentences.streams[0].fields[0]), (Kind::Spout, "sentence"));
    assert_eq!(split.parallelism, Parallelism { tasks: 4, executors: 2 });
    assert_eq!(count.parallelism, Parallelism { tasks: 3, executors: 3 });
    assert_eq!(count.tick_interval, Some(Duration::from_secs(10)));
    let inputs: Vec<_> = count.inputs.iter().map(|it| (&*it.stream, it.grouping.clone())).collect();
    assert_eq!(inputs, [("default", Grouping::fields(&["word"])), ("odd", Grouping::All)]);
    assert_eq!(definition.programs[1].command, ["python3", "split.py"]);
    assert_eq!(
        definition.programs[2].config,
        json!({ "topology.tick.tuple.freq.secs": 10 }).as_object().unwrap().clone()
    );
    assert_eq!(definition.config["words.max"], json!([1, "two", true]));
}

#[test]
fn names_that_nobody_has_are_reported_with_place_and_nearest() {
    assert_eq!(
        changed("spouts:", "spout:")[0],
        "11:1: error: unknown key `spout` in the topology (did you mean `spouts`?)"
    );
    assert_eq!(
        changed("parallelism: 2", "paralelism: 2"),
        ["22:5: error: unknown key `paralelism` in a bolt (did you mean `parallelism`?)"]
    );
    assert_eq!(
        changed("to: split", "to: spilt"),
        ["41:9: error: the stream leads to `spilt`, and there is no such component (did you mean `split`?)"]
    );
    assert_eq!(
        changed("from: sentences", "from: sentense"),
        [
            "40:11: error: `split` subscribes to `sentense`, and there is no such component (did you mean `sentences`?)"
        ]
    );
    assert_eq!(
        changed("streamId: odd", "streamId: old"),
        [
            "56:17: error: `count` subscribes to stream `old`, which `split` does not declare (did you mean `odd`?): nothing would come"
        ]
    );
    assert_eq!(
        changed("args: [word]", "args: [wort]"),
        [
            "50:13: error: `count` groups stream `default` of `split` by field `wort`, which is not declared (did you mean `word`?)"
        ]
    );
    assert_eq!(
        changed("type: SHUFFLE", "type: SHUFLE"),
        ["43:13: error: unknown grouping `SHUFLE` (did you mean `SHUFFLE`?)"]
    );
    assert_eq!(
        changed("setNamedStream", "setNamedStreams"),
        ["27:15: error: unknown config method `setNamedStreams` (did you mean `setNamedStream`?)"]
    );
    assert_eq!(
        changed("topology.workers: 2", "evenkeel.guarante: x"),
        ["6:3: error: unknown key `evenkeel.guarante` in config (did you mean `evenkeel.guarantee`?)"]
    );
    assert_eq!(
        changed("${counters}", "${counter}"),
        [
            "35:18: error: `${counter}`: no property has this name (did you mean `counters`?)",
            "35:18: error: `parallelism` must be an integer of 1 to 10000, not `${counter}`",
        ]
    );
    assert_eq!(
        changed("${ENV-PYTHON}", "${ENV-PYTHO}"),
        ["20:10: error: `${ENV-PYTHO}`: the environment has no variable `PYTHO`"]
    );
}

#[test]
fn values_out_of_bounds_are_reported() {
    for (value, shown) in
        [("0", "`0`"), ("10001", "`10001`"), ("-1", "`-1`"), ("\"2\"", "`2`"), ("[]", "a list")]
    {
        let expected = format!("22:18: error: `parallelism` must be an integer of 1 to 10000, not {shown}");
        assert_eq!(changed("parallelism: 2", &format!("parallelism: {value}")), [expected]);
    }
    assert_eq!(
        changed("numTasks: 4", "numTasks: 1"),
        ["23:15: error: `numTasks` 1 is less than `parallelism` 2: an executor needs a task"]
    );
    assert_eq!(
        changed("topology.workers: 2", "topology.workers: many"),
        ["6:21: error: `topology.workers` must be an integer of 1 to 1000, not `many`"]
    );
    assert_eq!(
        changed("[word]\n    parallelism", "[5]\n    parallelism"),
        ["21:10: error: `the fields` must be text, and `5` is a number: write it in quotes"]
    );
}

#[test]
fn serializer_is_known_by_its_class_for_all_components_or_one() {
    let key = "topology.multilang.serializer";
    let with = |class: &str| WORD_COUNT.replace("config:\n", &format!("config:\n  {key}: {class}\n"));
    let (definition, warnings) = read(&with("com.example.MessagePackSerializer"));
    assert_eq!(warnings, [""; 0]);
    assert_eq!(Serializer::of(&definition.config), Serializer::MessagePack);
    let (definition, _) = read(&with("org.apache.storm.multilang.JsonSerializer"));
    assert_eq!(Serializer::of(&definition.config), Serializer::Json);
    let text =
        WORD_COUNT.replace("topology.tick.tuple.freq.secs, 10", &format!("{key}, a.MsgpackSerializer"));
    let (definition, _) = read(&text);
    assert_eq!(Serializer::of(&definition.programs[2].config), Serializer::MessagePack);
    assert_eq!(Serializer::of(&definition.config), Serializer::Json);
    assert_eq!(
        changed("config:\n", &format!("config:\n  {key}: com.example.KryoSerializer\n")),
        [format!(
            "5:34: error: `{key}` must be a class JsonSerializer or MessagePackSerializer, in any package, not `com.example.KryoSerializer`"
        )]
    );
}

#[test]
fn java_is_refused_by_name() {
    let class = "org.apache.storm.flux.wrappers.spouts.FluxShellSpout";
    assert!(
        changed(class, "com.example.Spout")[0].starts_with(
            "13:16: error: `com.example.Spout` is a Java class, which cannot run here: use `org."
        )
    );
    assert!(
        changed(class, "org.apache.storm.flux.wrappers.bolts.FluxShellBolt")[0]
            .contains("is of the other kind")
    );
    assert!(
        changed("config:", "topologySource: {}\nconfig:")[0].contains("`topologySource` is not supported")
    );
    assert!(changed("numTasks: 4", "factory: f")[0].contains("`factory` is for Java objects"));
}

#[test]
fn duplicates_and_what_nothing_reads_are_reported() {
    assert_eq!(
        changed("id: count", "id: split")[0],
        "31:9: error: two components have the id `split`, the first one in line 17"
    );
    assert_eq!(
        changed("to: split", "to: count"),
        ["17:9: error: bolt `split` subscribes to nothing: it would never be called"]
    );
    assert_eq!(
        changed("streamId: odd", "streamId: default"),
        ["53:9: error: `count` subscribes to stream `default` of `split` twice"]
    );
}

#[test]
fn cycle_is_a_warning() {
    let cycle = "  - from: count\n    to: split\n    grouping: {type: SHUFFLE}\n";
    let text = WORD_COUNT.replace("[python3, count.py]", "[python3, count.py]\n      - [word]");
    let (_, warnings) = read(&(text.clone() + cycle));
    assert_eq!(
        warnings,
        [
            "58:11: warning: split -> count -> split: a cycle; it can stop for want of credits if its tuples multiply"
        ]
    );
    let exact = text.replace("topology.workers: 2", "evenkeel.guarantee: exactly-once");
    let faults =
        read_with(&(exact + cycle), &[("counters", "3")]).expect_err("a barrier would wait for itself");
    assert!(
        faults[0]
            .to_string()
            .starts_with("58:11: error: split -> count -> split: a cycle cannot be exactly-once")
    );
}

#[test]
fn partial_key_is_the_class_that_storm_has() {
    let partial = |arguments: &str| {
        let class = "org.apache.storm.grouping.PartialKeyGrouping";
        let grouping = format!("type: CUSTOM\n      customClass:\n        className: {class}\n{arguments}");
        let fields = "components:\n  - id: by-word\n    className: org.apache.storm.tuple.Fields\n    constructorArgs: [[word]]\n";
        [fields, &WORD_COUNT.replace("type: FIELDS\n      args: [word]\n", &grouping)].concat()
    };
    let grouping = |text: &str| read(text).0.plan.topology().components[2].inputs[0].grouping.clone();
    assert_eq!(grouping(&partial("")), Grouping::partial_key(&["word"]));
    assert_eq!(
        grouping(&partial("        constructorArgs: [{ref: by-word}]\n")),
        Grouping::partial_key(&["word"])
    );
    let faults = read_with(&partial("        constructorArgs: [{ref: by-wort}]\n"), &[("counters", "3")])
        .expect_err("no such");
    assert!(
        faults[0]
            .to_string()
            .ends_with("`ref` names `by-wort`, which `components` does not have (did you mean `by-word`?)")
    );
}

#[test]
fn direct_streams_and_empty_lists_run_here_and_not_on_storm() {
    let (definition, warnings) = read(&WORD_COUNT.replace("type: SHUFFLE", "type: DIRECT"));
    assert!(definition.plan.topology().components[0].streams[0].is_direct);
    assert!(
        warnings[0].starts_with("43:13: warning: shell components of Flux cannot declare a direct stream")
    );
    let (_, warnings) = read(&WORD_COUNT.replace("[python3, count.py]", "[python3, count.py]\n      - []"));
    assert!(warnings[0].contains("Flux refuses an empty list"));
}

#[test]
fn topology_without_ackers_is_at_most_once_unless_it_says_otherwise() {
    let guarantee =
        |lines: &str| read(&WORD_COUNT.replace("topology.workers: 2", lines)).0.plan.settings().guarantee;
    assert_eq!(guarantee("x: 1"), Guarantee::AtLeastOnce);
    assert_eq!(guarantee("topology.acker.executors: 0"), Guarantee::AtMostOnce);
    assert_eq!(
        guarantee("evenkeel.guarantee: exactly-once\n  topology.acker.executors: 0"),
        Guarantee::ExactlyOnce
    );
}

#[test]
fn key_that_is_nearly_one_of_storms_is_a_warning() {
    let (_, warnings) = read(&WORD_COUNT.replace("topology.workers: 2", "topology.worker: 2"));
    assert_eq!(
        warnings,
        ["6:3: warning: `topology.worker` means nothing here (did you mean `topology.workers`?)"]
    );
}

/// Mistakes of three kinds came in three rounds: the next kind was looked for when the one before was mended.
#[test]
fn mistakes_of_all_kinds_are_told_at_once_and_none_that_follows_from_another() {
    let mut text = WORD_COUNT.to_owned();
    for (from, to) in [
        ("numTasks: 4", "numTasks: 1"), // in a part
        ("to: count\n    grouping:\n      type: ALL", "to: cuont\n    grouping:\n      type: ALL"), // between parts
        ("args: [word]\n", "args: [wrod]\n"), // in the graph
    ] {
        text = text.replacen(from, to, 1);
    }
    let properties = BTreeMap::from([("counters".to_owned(), "3".to_owned())]);
    let environment = |name: &str| (name == "PYTHON").then(|| "python3".to_owned());
    let check = |parts: &flux::Parts<'_>| {
        let last = parts.programs.last().expect("a program");
        vec![Fault { place: last.place, severity: flux::Severity::Error, text: "no such file".to_owned() }]
    };
    let variables = Variables { properties: &properties, environment: &environment };
    let faults = flux::read_checked(&text, &variables, &check).expect_err("faults");
    let has = |what: &str| faults.iter().any(|fault| fault.text.contains(what));
    for what in ["`numTasks` 1 is less", "`cuont`", "field `wrod`", "no such file"] {
        assert!(has(what), "{what}: {faults:?}");
    }
    assert_eq!(faults.len(), 4, "{faults:?}");
    // A spout that cannot be read is one mistake: what reads it is none.
    let faults = changed("FluxShellSpout", "FluxShellSpuot");
    assert_eq!(faults.len(), 1, "{faults:?}");
}
