//! What supervisor and worker say to each other: lines of JSON over the worker's standard input and output.
//!
//! ```text
//!  to the worker:    job                 once, the first line
//!                    order               as it is given
//!                    end of the input    end at once: the server is gone
//!  from the worker:  status              each second
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a worker runs.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Job {
    /// The topology's name on this server, which goes before that in its definition.
    pub name: String,
    /// The text of the definition.
    pub definition: String,
    /// Values for `${name}`; those for `${ENV-NAME}` as `ENV-NAME`.
    pub properties: BTreeMap<String, String>,
    /// Where components may be.
    pub dir: PathBuf,
    /// The folder of it where those of this topology run; `None`: it itself.
    pub folder: Option<String>,
    /// Spouts emit from the start.
    pub is_active: bool,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Let spouts emit.
    Activate,
    /// Let spouts emit nothing new.
    Deactivate,
    /// Finish what is under way, and end.
    Kill {
        /// Longest time for that.
        wait_ms: u64,
    },
}

/// How a worker is. Counters are those since its start.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Status {
    /// Nothing is under way.
    pub is_idle: bool,
    /// In the order of the definition.
    pub components: Vec<ComponentStatus>,
}

/// What a component has done, all its tasks together.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct ComponentStatus {
    /// Its id.
    pub id: String,
    /// Whether it is a spout.
    pub is_spout: bool,
    /// How many tasks it has.
    pub tasks: u64,
    /// Tuples that it emitted, further attempts included.
    pub emitted: u64,
    /// Tuples that went to tasks of its readers.
    pub transferred: u64,
    /// Tuples that a bolt executed.
    pub executed: u64,
    /// Tuples that were acknowledged.
    pub acked: u64,
    /// Tuples that failed, and of a spout's, were given up.
    pub failed: u64,
    /// Tuples that are not finished.
    pub pending: u64,
    /// Bytes in its queues.
    pub queued_bytes: u64,
    /// Calls that failed.
    pub faults: u64,
    /// How often it was made anew.
    pub restarts: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Time of an execution on average, in microseconds.
    pub execute_us: u64,
    /// Time from a spout's tuple to its acknowledgement on average, in microseconds.
    pub complete_us: u64,
    /// Who reads what it emits.
    #[serde(default)]
    pub edges: Vec<EdgeStatus>,
}

/// A stream of a component and one of its readers.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct EdgeStatus {
    /// The stream.
    pub stream: String,
    /// The reader.
    pub to: String,
    /// Tuples that went to its tasks.
    pub transferred: u64,
}

/// Most bytes of the line of a job: a definition of 1 MiB, its properties, and what JSON adds.
pub const JOB_BYTES_MAX: usize = 16 << 20;
/// Most bytes of the line of a status.
pub const STATUS_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_these_lines() {
        let line = |order| serde_json::to_string(&order).expect("JSON");
        assert_eq!(line(Order::Activate), r#""activate""#);
        assert_eq!(line(Order::Deactivate), r#""deactivate""#);
        assert_eq!(line(Order::Kill { wait_ms: 5 }), r#"{"kill":{"wait_ms":5}}"#);
    }
}
