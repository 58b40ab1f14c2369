//! The first message to a child: its configuration, and where it is in the topology.
//!
//! ```text
//!  {"pidDir": folder, "conf": {...}, "context": {"taskid": 3, "componentid": "split", "task->component": {"1": "sentences", ...},
//!   "streams": [...], "stream->outputfields": {...}, "stream->target->grouping": {...},
//!   "source->stream->fields": {...}, "source->stream->grouping": {...}}}
//! ```
//!
//! The child makes an empty file with its pid as its name in `pidDir`, and answers with its pid.

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use topology::Plan;
use topology::definition::Grouping;
use topology::ids::TaskId;
use topology::plan::Edge;

use crate::codec::Codec;

/// Appends the handshake of `task`.
pub fn append(
    codec: Codec,
    plan: &Plan,
    task: TaskId,
    config: &Map<String, Json>,
    pid_dir: &Path,
    out: &mut Vec<u8>,
) {
    let hello = json!({
        "pidDir": pid_dir.to_string_lossy(),
        "conf": config,
        "context": context(plan, task),
    });
    codec.append(&hello, out);
}

/// Where a task is, under the names that Storm has.
fn context(plan: &Plan, task: TaskId) -> Json {
    let own = plan.component_of(task);
    let component = plan.component(own);
    let mut names = Map::new();
    for (id, other) in plan.components() {
        let tasks = plan.tasks(id).map(|task| ((task + 1).to_string(), Json::from(other.id.as_str())));
        names.extend(tasks);
    }
    let fields: Map<String, Json> =
        component.streams.iter().map(|stream| (stream.id.clone(), json!(stream.fields))).collect();
    let mut targets = Map::new();
    for edge in plan.edges_from(own) {
        let stream = &plan.declaration(edge.stream).1.id;
        nested(&mut targets, stream).insert(plan.component(edge.to).id.clone(), grouping(edge));
    }
    let (mut source_fields, mut source_groupings) = (Map::new(), Map::new());
    for edge in plan.edges_to(own) {
        let (from, stream) = (&plan.component(edge.from).id, plan.declaration(edge.stream).1);
        nested(&mut source_fields, from).insert(stream.id.clone(), json!(stream.fields));
        nested(&mut source_groupings, from).insert(stream.id.clone(), grouping(edge));
    }
    json!({
        "taskid": task.0 + 1,
        "componentid": component.id,
        "task->component": names,
        "streams": component.streams.iter().map(|stream| stream.id.as_str()).collect::<Vec<_>>(),
        "stream->outputfields": fields,
        "stream->target->grouping": targets,
        "source->stream->fields": source_fields,
        "source->stream->grouping": source_groupings,
    })
}

fn nested<'a>(map: &'a mut Map<String, Json>, key: &str) -> &'a mut Map<String, Json> {
    let inner = map.entry(key).or_insert_with(|| Json::Object(Map::new()));
    inner.as_object_mut().expect("only objects are put in")
}

fn grouping(edge: &Edge) -> Json {
    let name = match &edge.grouping {
        Grouping::Shuffle => "SHUFFLE",
        Grouping::LocalOrShuffle => "LOCAL_OR_SHUFFLE",
        Grouping::Fields(fields) => return json!({ "type": "FIELDS", "fields": fields }),
        Grouping::PartialKey(_) | Grouping::Custom(_) => "CUSTOM",
        Grouping::All => "ALL",
        Grouping::Global => "GLOBAL",
        Grouping::Direct => "DIRECT",
        Grouping::None => "NONE",
    };
    json!({ "type": name })
}
