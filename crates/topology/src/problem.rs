//! What can be wrong with a definition, in words that say what to change.

/// A mistake: the definition cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Problem {
    #[error("the topology has no spout: nothing would ever be emitted")]
    NoSpout,
    #[error("a component has an empty id")]
    EmptyId,
    #[error("two components have the id `{id}`")]
    DuplicateComponent { id: String },
    #[error("`{component}` declares the stream `{stream}` twice")]
    DuplicateStream { component: String, stream: String },
    #[error("stream `{stream}` of `{component}` declares the field `{field}` twice")]
    DuplicateField { component: String, stream: String, field: String },
    #[error("`{component}` subscribes to stream `{stream}` of `{from}` twice")]
    DuplicateSubscription { component: String, from: String, stream: String },
    #[error("`{component}` has {what} 0: it needs at least 1")]
    ZeroParallelism { component: String, what: &'static str },
    #[error("`{component}` has {executors} executors for {tasks} tasks: an executor needs a task")]
    IdleExecutors { component: String, executors: u32, tasks: u32 },
    #[error("spout `{component}` subscribes to `{from}`: only bolts read streams")]
    SpoutSubscribes { component: String, from: String },
    #[error("bolt `{component}` subscribes to nothing: it would never be called")]
    NoInput { component: String },
    #[error("`{component}` subscribes to `{from}`, and there is no such component{}", hint(nearest))]
    UnknownComponent { component: String, from: String, nearest: Option<String> },
    #[error(
        "`{component}` subscribes to stream `{stream}`, which `{from}` does not declare{}: nothing would come",
        hint(nearest)
    )]
    NoSource { component: String, from: String, stream: String, nearest: Option<String> },
    #[error(
        "`{component}` groups stream `{stream}` of `{from}` by field `{field}`, which is not declared{}",
        hint(nearest)
    )]
    UnknownField { component: String, from: String, stream: String, field: String, nearest: Option<String> },
    #[error("`{component}` groups the stream of `{from}` by no field: name at least one")]
    NoFields { component: String, from: String },
    #[error("`{component}` subscribes to `{from}` with a custom grouping that has no name")]
    EmptyCustom { component: String, from: String },
    #[error(
        "`{component}` and stream `{stream}` of `{from}` do not fit: both must be direct, or none of them"
    )]
    DirectMismatch { component: String, from: String, stream: String },
    #[error("there is no code for `{component}`")]
    NoCode { component: String },
    #[error("`{component}` is declared as a spout and its code is a bolt's, or the other way round")]
    OtherKind { component: String },
    #[error("`{component}` groups by `{grouping}`, and no custom grouping of this name is registered")]
    NoGrouping { component: String, grouping: String },
    #[error("{key} is 0: it must be at least 1")]
    ZeroSetting { key: &'static str },
    #[error("{count} {what} are more than the {most} that a topology can have")]
    TooMany { what: &'static str, count: u64, most: u64 },
    #[error("{}: a cycle cannot be exactly-once, because a barrier would wait for itself", path(.0))]
    CycleWithBarriers(Vec<String>),
}

/// What may be meant so, and is probably not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Warning {
    #[error("{}: a cycle; it can stop for want of credits if its tuples multiply", path(.0))]
    Cycle(Vec<String>),
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

fn path(components: &[String]) -> String {
    components.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_nearest_where_there_is_one() {
        let problem = |nearest: Option<&str>| {
            let nearest = nearest.map(str::to_owned);
            Problem::UnknownComponent { component: "sums".into(), from: "order".into(), nearest }.to_string()
        };
        let base = "`sums` subscribes to `order`, and there is no such component";
        assert_eq!(problem(None), base);
        assert_eq!(problem(Some("orders")), format!("{base} (did you mean `orders`?)"));
    }
}
