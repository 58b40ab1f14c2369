//! The floor plan against what cargo knows: a crate imports only from floors below its own.
//!
//! Imports of tests count as well: a test that needs a higher floor belongs to that floor.

use serde_json::Value;

/// Which crates stand on which floor, from the ground up.
const FLOORS: &[&[&str]] = &[
    &["capture", "clock", "decimal", "processes", "rdb", "resp", "ticket", "tls", "vfs"],
    &["collections", "connection", "journal", "reactor"],
    &["migrate", "store", "topology", "transport", "txn"],
    &["commands", "components", "flux", "shell", "sql", "supervisor", "worker"],
    &["bench", "console", "script"],
    &["server"],
    &["evenkeel", "fuzz", "xtask"],
];

/// Problems of the packages in `metadata` (`cargo metadata --no-deps`).
pub(super) fn check(metadata: &Value) -> Vec<String> {
    let packages: Vec<&Value> = metadata["packages"].as_array().into_iter().flatten().collect();
    let mut problems = Vec::new();
    for package in &packages {
        let name = text(&package["name"]);
        let Some(floor) = floor_of(name) else {
            problems.push(format!("crate `{name}` stands on no floor: add it to xtask/src/tidy/floors.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = text(&dependency["name"]);
            if dependency["path"].is_null() || other == name {
                continue;
            }
            match floor_of(other) {
                Some(below) if below < floor => {}
                Some(same) if same == floor => {
                    problems.push(format!("{name} imports {other} of its own floor {floor}"));
                }
                Some(above) => {
                    problems.push(format!("{name} (floor {floor}) imports {other} (floor {above})"));
                }
                None => problems.push(format!("{name} imports {other}, which stands on no floor")),
            }
        }
    }
    problems
}

fn floor_of(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one_import(name: &str, other: &str) -> Vec<String> {
        let dependency = json!({ "name": other, "path": format!("/tree/crates/{other}") });
        check(&json!({ "packages": [{ "name": name, "dependencies": [dependency] }] }))
    }

    #[test]
    fn import_from_a_lower_floor_is_fine() {
        assert!(one_import("store", "journal").is_empty());
        assert!(one_import("evenkeel", "clock").is_empty());
    }

    #[test]
    fn import_upward_or_sideways_is_a_problem() {
        assert!(one_import("journal", "store")[0].contains("floor 2"));
        assert!(one_import("reactor", "journal")[0].contains("own floor"));
    }

    #[test]
    fn crate_without_a_floor_is_a_problem() {
        assert!(one_import("newcomer", "clock")[0].contains("stands on no floor"));
        assert!(one_import("store", "newcomer")[0].contains("stands on no floor"));
    }

    #[test]
    fn library_of_others_stands_on_no_floor() {
        let library = json!({ "name": "mio", "path": null });
        assert!(check(&json!({ "packages": [{ "name": "clock", "dependencies": [library] }] })).is_empty());
    }
}
