//! Definitions of topologies and files of properties, as a person may write them.

use std::collections::BTreeMap;

use flux::Variables;

/// Bytes that mean something in a definition.
pub(super) const WORDS: &[&[u8]] = &[
    b"\n",
    b"\n  ",
    b"\n    ",
    b"- ",
    b": ",
    b"[",
    b"]",
    b"{",
    b"}",
    b", ",
    b"#",
    b"'",
    b"\"",
    b"&a ",
    b"*a",
    b"!!str ",
    b"|\n",
    b"<<",
    b"---\n",
    b"${a}",
    b"${ENV-A}",
    b"name: ",
    b"id: ",
    b"from: ",
    b"to: ",
    b"spouts:\n",
    b"bolts:\n",
    b"streams:\n",
    b"config:\n",
    b"components:\n",
    b"parallelism: ",
    b"grouping: {type: FIELDS, args: [a]}",
    b"streamId: ",
    b"constructorArgs: [[a], [b]]",
    b"configMethods: [{name: setNamedStream, args: [a, [b]]}]",
    b"evenkeel.guarantee: exactly-once",
    b"99999999999999999999",
    b"\xFF",
    b"\r",
    b"\t",
];

/// A definition is taken, or refused with places within the file; what is taken has a plan that fits its programs.
pub(super) fn definition(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let properties = [("a", "b"), ("list", "[x, \"y\"]"), ("open", "[")];
    let properties = BTreeMap::from(properties.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let environment = |name: &str| (name == "A").then(|| "long text".repeat(3));
    let lines = text.split(['\n', '\r']).count();
    match flux::read(text, &Variables { properties: &properties, environment: &environment }) {
        Ok((definition, warnings)) => {
            assert_eq!(definition.plan.components().count(), definition.programs.len());
            assert!(definition.programs.iter().all(|program| !program.command.is_empty()));
            assert!(warnings.iter().all(|warning| (1..=lines + 1).contains(&warning.place.line)));
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            for fault in &faults {
                assert!((1..=lines + 1).contains(&fault.place.line) && fault.place.column > 0, "{fault}");
                assert!(fault.to_string().len() < 4_096, "{fault}");
            }
        }
    }
}

/// Properties are taken or refused.
pub(super) fn properties(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(properties) = flux::parse_properties(text) else { return };
    assert!(properties.len() <= text.lines().count());
}

/// The definition of the tests, by parts and as a whole.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let whole = include_str!("../../../flux/tests/word-count.yaml");
    let small = "name: t\nspouts:\n- id: s\n  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout\n  constructorArgs: [[p], [f]]\n";
    let cycle = "bolts:\n- id: b\n  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt\n  constructorArgs: [[p], [f]]\nstreams:\n- {from: s, to: b, grouping: {type: DIRECT}}\n- {from: b, to: b, grouping: {type: NONE}}\n";
    let aliases = "a: &a [1, &b {c: d}]\ne: [*a, *b]\nf: \"${a}\"\n";
    [whole.to_owned(), small.to_owned(), [small, cycle].concat(), aliases.to_owned()]
        .map(String::into_bytes)
        .to_vec()
}

/// One of each form.
pub(super) fn property_seeds() -> Vec<Vec<u8>> {
    vec![b"# c\n! c\na=1\nb : two\nc three\\\n  four\nd\\ e=\\u0041\\t\\\\".to_vec()]
}

/// Bytes that mean something in a file of properties.
pub(super) const PROPERTY_WORDS: &[&[u8]] =
    &[b"\\", b"\n", b"=", b":", b" ", b"\\u", b"00e9", b"#", b"!", b"\r"];
