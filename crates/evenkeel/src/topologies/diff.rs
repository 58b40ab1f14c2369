//! What a definition would change in a topology that runs, for people.

use resp::Value;

use super::text::{counted, row, table};
use crate::reply::{field, items, told};

/// What TOPOLOGY DIFF has answered.
pub(super) fn shown(diff: &Value) -> String {
    let components = items(field(diff, "components"));
    let count = |change: &str| components.iter().filter(|it| told(it, "change") == change).count() as u64;
    let counts = ["added", "removed", "changed", "kept"].map(|change| format!("{} {change}", count(change)));
    let total = counted(components.len() as u64, "component");
    let mut text = format!("{}: {total}: {}\n\n", told(diff, "name"), counts.join(", "));
    let mut rows = vec![row(["component", "change", "what", "was", "is to be"])];
    rows.extend(items(field(diff, "settings")).iter().map(|it| difference("", "changed", it)));
    for component in components {
        let (id, change) = (told(component, "id"), told(component, "change"));
        let differences = items(field(component, "differences"));
        if differences.is_empty() {
            rows.push(row([&id, &change, "", "", ""]));
        }
        rows.extend(differences.iter().map(|it| difference(&id, &change, it)));
    }
    text += &table(&rows);
    let state = items(field(diff, "state"));
    if !state.is_empty() {
        let mut rows = vec![row(["component", "state", "what"])];
        rows.extend(
            state.iter().map(|it| row([&told(it, "component"), &told(it, "fate"), &told(it, "what")])),
        );
        text += &format!("\n{}", table(&rows));
    }
    text
}

fn difference(id: &str, change: &str, it: &Value) -> Vec<String> {
    row([id, change, &told(it, "what"), &told(it, "from"), &told(it, "to")])
}
