//! Known differences to redis-server 7.0, each with its reason, and how replies are compared under them.

use resp::Value;

/// What two replies are to each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    Listed,
    Different,
}

/// How far replies of some command may differ, and why.
struct Difference {
    /// Beginning of the command, lower case.
    command: &'static str,
    /// Why; for readers.
    #[expect(dead_code, reason = "documentation that stands beside what it explains")]
    reason: &'static str,
    /// Whether the two replies mean the same.
    same: fn(&Value, &Value) -> bool,
}

/// All of them. A difference that is not here is a bug of ours.
const DIFFERENCES: &[Difference] = &[
    Difference { command: "scan -1", reason: "a negative cursor is refused, not wrapped", same: |_, _| true },
    Difference {
        command: "dbsize",
        reason: "Redis counts keys whose time is over until it removes them; SET with a past time stores none here",
        same: |a, b| matches!((a, b), (Value::Integer(a), Value::Integer(b)) if a > b && a - b < 10),
    },
    Difference { command: "debug", reason: "a container here: errors name the subcommand", same: same_kind },
    Difference { command: "keys", reason: "the order of keys is that of the index", same: same_items },
    Difference {
        command: "scan",
        reason: "cursors and order are our own; one walk returns all",
        same: same_items,
    },
    Difference { command: "hgetall", reason: "the order of a hash table", same: same_pairs },
    Difference { command: "hkeys", reason: "the order of a hash table", same: same_items },
    Difference { command: "hvals", reason: "the order of a hash table", same: same_items },
    Difference { command: "hscan", reason: "the order of a hash table", same: same_step },
    Difference { command: "hrandfield", reason: "chance", same: same_nested },
    Difference { command: "smembers", reason: "the order of a hash table", same: same_items },
    Difference { command: "sscan", reason: "the order of a hash table", same: same_step },
    Difference { command: "srandmember", reason: "chance", same: same_items },
    Difference { command: "spop", reason: "chance", same: same_items },
    Difference { command: "sinter", reason: "the order of a hash table", same: same_items },
    Difference { command: "sunion", reason: "the order of a hash table", same: same_items },
    Difference { command: "sdiff", reason: "the order of a hash table", same: same_items },
    Difference { command: "zscan", reason: "the order of a hash table", same: same_step },
    Difference { command: "zrandmember", reason: "chance", same: same_nested },
    Difference {
        command: "xinfo stream",
        reason: "Redis's tree of nodes; ours is one run of bytes",
        same: same_fields,
    },
    Difference {
        command: "xinfo groups",
        reason: "from 7.2 on a read or claim that gets nothing creates its consumer; from 8.0 on a lag and what was read count no trimmed entries as unread",
        same: same_fields,
    },
    Difference {
        command: "xgroup createconsumer",
        reason: "from 7.2 on a read or claim that got nothing has created it before",
        same: same_kind,
    },
    Difference {
        command: "xinfo consumers",
        reason: "`inactive` is newer; clocks of two servers; consumers of reads that got nothing",
        same: same_consumers,
    },
    Difference { command: "xpending", reason: "clocks of two servers", same: same_pending },
    Difference {
        command: "lpos",
        reason: "from 7.2 on a rank of -2^63 is refused, which has no opposite",
        same: |_, ours| matches!(ours, Value::Error(text) if text.starts_with(b"ERR value is out of range, value must between")),
    },
    Difference { command: "randomkey", reason: "chance", same: both_null_or_not },
    Difference {
        command: "dump",
        reason: "the payload is our own, with its own checksum",
        same: both_null_or_not,
    },
    Difference {
        command: "object encoding",
        reason: "we keep one form: what APPEND or SETRANGE made is not told from what SET made; sets and lists have a listpack from 7.2 on; SORT of a sorted set makes a skip list of it in Redis",
        same: same_encoding,
    },
    Difference {
        command: "object refcount",
        reason: "small integers are shared in Redis",
        same: both_null_or_not,
    },
    Difference {
        command: "object idletime",
        reason: "when a key was last used is not kept: an error says so",
        same: both_null_or_neither,
    },
    Difference {
        command: "object freq",
        reason: "Redis writes the same text, with its own policy",
        same: same_kind,
    },
    Difference { command: "memory usage", reason: "our values take less", same: both_null_or_not },
    Difference { command: "ttl", reason: "clocks of two servers", same: close },
    Difference { command: "pttl", reason: "clocks of two servers", same: close },
    Difference { command: "expiretime", reason: "clocks of two servers", same: close },
    Difference { command: "pexpiretime", reason: "clocks of two servers", same: close },
    Difference { command: "hello", reason: "id and version of the server", same: same_kind },
    Difference { command: "client id", reason: "numbers of connections", same: same_kind },
    Difference { command: "client info", reason: "addresses, sizes, loops", same: same_kind },
    Difference { command: "client list", reason: "addresses, sizes, loops", same: same_kind },
    Difference { command: "time", reason: "clocks of two servers", same: same_kind },
    Difference { command: "info", reason: "fields of our own", same: same_kind },
    Difference { command: "lastsave", reason: "clocks of two servers", same: same_kind },
    Difference { command: "command info", reason: "Redis adds notes to some key specs", same: same_command },
    Difference { command: "slowlog len", reason: "speed", same: same_kind },
    Difference { command: "slowlog get", reason: "speed", same: same_kind },
    Difference { command: "latency history", reason: "speed", same: same_kind },
    Difference {
        command: "debug object",
        reason: "internals; Redis shows expired keys, too",
        same: |_, _| true,
    },
    Difference { command: "pubsub channels", reason: "the order of a hash table", same: same_items },
    Difference {
        command: "setrange",
        reason: "the limit is value.max, and the text says so",
        same: same_kind,
    },
    Difference {
        command: "config get",
        reason: "settings of our own beside those of Redis",
        same: same_kind,
    },
];

/// Compares the replies of both servers to `command`.
pub(crate) fn compare(command: &[Vec<u8>], expected: &Value, actual: &Value) -> Verdict {
    if expected == actual {
        return Verdict::Same;
    }
    // Redis keeps -0 as 0 in a listpack alone.
    if without_minus_zero(expected) == *actual {
        return Verdict::Listed;
    }
    // A large score is printed with 17 digits by Redis 7.0, and with as few as tell it from others from 7.2 on.
    if command.first().is_some_and(|name| name.to_ascii_lowercase().starts_with(b"z"))
        && same_scores(expected, actual)
    {
        return Verdict::Listed;
    }
    let line = command.iter().take(2).map(|word| String::from_utf8_lossy(word).to_lowercase());
    let line = line.collect::<Vec<_>>().join(" ");
    let listed = |d: &&Difference| line == d.command || line.starts_with(&format!("{} ", d.command));
    if DIFFERENCES.iter().filter(listed).any(|d| (d.same)(expected, actual)) {
        return Verdict::Listed;
    }
    // EXEC's replies are those of the commands in it; which ones is not known here.
    if let (Value::Array(a), Value::Array(b)) = (expected, actual)
        && line.starts_with("exec")
        && a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a == b || DIFFERENCES.iter().any(|d| (d.same)(a, b)))
    {
        return Verdict::Listed;
    }
    Verdict::Different
}

/// The same with each -0 as 0.
fn without_minus_zero(value: &Value) -> Value {
    match value {
        Value::Bulk(text) if text == b"-0" => Value::Bulk(b"0".to_vec()),
        Value::Double(number) => Value::Double(number + 0.0),
        Value::Array(items) => Value::Array(items.iter().map(without_minus_zero).collect()),
        other => other.clone(),
    }
}

/// The same, where large numbers may be written in another way.
fn same_scores(a: &Value, b: &Value) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_scores(a, b))
        }
        (Value::Bulk(a), Value::Bulk(b)) if a != b => {
            number(a).is_some_and(|score| score.abs() >= 1e17 && Some(score) == number(b))
        }
        _ => a == b,
    }
}

/// Fields with their names, without those that differ by nature.
fn same_fields(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) if matches!(a.first(), Some(Value::Array(_) | Value::Map(_))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_fields(a, b))
        }
        _ => fields(a) == fields(b) && !fields(a).is_empty(),
    }
}

/// The consumers of Redis are there with the same fields; those that only we have hold no entries.
fn same_consumers(a: &Value, b: &Value) -> bool {
    let (Value::Array(theirs), Value::Array(ours)) = (a, b) else { return false };
    let is_idle = |consumer: &Value| {
        fields(consumer).iter().any(|(name, count)| {
            matches!((name, count), (Value::Bulk(name), Value::Integer(0)) if name == b"pending")
        })
    };
    let is_theirs = |consumer: &&Value| theirs.iter().any(|it| fields(it) == fields(consumer));
    let (shared, own): (Vec<_>, Vec<_>) = ours.iter().partition(is_theirs);
    shared.len() == theirs.len() && own.into_iter().all(is_idle)
}

fn fields(value: &Value) -> Vec<(Value, Value)> {
    let own = ["radix-tree-keys", "radix-tree-nodes", "idle", "inactive", "consumers", "entries-read", "lag"];
    let is_own =
        |name: &Value| matches!(name, Value::Bulk(name) if own.iter().any(|own| own.as_bytes() == name));
    let pairs: Vec<(Value, Value)> = match value {
        Value::Map(pairs) => pairs.clone(),
        Value::Array(items) => items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        _ => Vec::new(),
    };
    pairs.into_iter().filter(|(name, _)| !is_own(name)).collect()
}

/// Pending entries without how long they have been idle.
fn same_pending(a: &Value, b: &Value) -> bool {
    let without_idle = |value: &Value| match value {
        Value::Array(items) => {
            let entry = |item: &Value| match item {
                Value::Array(fields) if fields.len() == 4 => {
                    Value::Array([&fields[..2], &fields[3..]].concat())
                }
                other => other.clone(),
            };
            Some(items.iter().map(entry).collect::<Vec<_>>())
        }
        _ => None,
    };
    without_idle(a).is_some() && without_idle(a) == without_idle(b)
}

fn same_kind(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn both_null_or_not(a: &Value, b: &Value) -> bool {
    matches!(a, Value::Null) == matches!(b, Value::Null)
        && matches!(a, Value::Error(_)) == matches!(b, Value::Error(_))
}

/// What is there may be an error on our side.
fn both_null_or_neither(a: &Value, b: &Value) -> bool {
    matches!(a, Value::Null) == matches!(b, Value::Null)
}

fn close(a: &Value, b: &Value) -> bool {
    matches!((a, b), (Value::Integer(a), Value::Integer(b)) if *a > 0 && a.abs_diff(*b) < 5_000)
}

/// The same elements in any order; of SCAN's reply, the same keys.
fn same_items(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => match (&a[..], &b[..]) {
            ([Value::Bulk(_), Value::Array(a)], [Value::Bulk(_), Value::Array(b)]) => sorted(a) == sorted(b),
            _ => sorted(a) == sorted(b),
        },
        // Redis answers some of them as a set only where it takes another road
        (Value::Set(a), Value::Set(b)) | (Value::Set(a), Value::Array(b)) => sorted(a) == sorted(b),
        _ => false,
    }
}

fn sorted(values: &[Value]) -> Vec<Vec<u8>> {
    let bytes = |value: &Value| match value {
        Value::Bulk(bytes) => bytes.clone(),
        other => format!("{other:?}").into_bytes(),
    };
    let mut all: Vec<_> = values.iter().map(bytes).collect();
    all.sort();
    all
}

fn same_encoding(a: &Value, b: &Value) -> bool {
    let text =
        |value: &Value| matches!(value, Value::Bulk(b) if b == b"raw" || b == b"embstr" || b == b"int");
    let set = |value: &Value, forms: [&[u8]; 2]| matches!(value, Value::Bulk(b) if forms.contains(&&b[..]));
    (text(a) && text(b))
        || (set(a, [b"skiplist"; 2]) && set(b, [b"listpack"; 2]))
        || (set(a, [b"quicklist"; 2]) && set(b, [b"listpack", b"quicklist"]))
        || (set(a, [b"hashtable", b"intset"]) && set(b, [b"listpack", b"hashtable"]))
}

/// COMMAND INFO without notes and in any order of flags.
fn same_command(a: &Value, b: &Value) -> bool {
    plain(a) == plain(b)
}

fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) | Value::Set(items) => {
            let notes = matches!(items.first(), Some(Value::Bulk(word)) if word == b"notes");
            let mut items: Vec<Value> = items.iter().skip(if notes { 2 } else { 0 }).map(plain).collect();
            if items.iter().all(|item| matches!(item, Value::Simple(_))) {
                items.sort_by_key(|item| format!("{item:?}"));
            }
            Value::Array(items)
        }
        Value::Map(pairs) => {
            let notes = |key: &Value| matches!(key, Value::Bulk(word) if word == b"notes");
            let pairs = pairs.iter().filter(|(key, _)| !notes(key));
            Value::Map(pairs.map(|(key, value)| (plain(key), plain(value))).collect())
        }
        other => other.clone(),
    }
}

/// The same pairs in any order: a map, or in RESP2 an array of keys and values.
fn same_pairs(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => pairs(a) == pairs(b),
        (Value::Map(a), Value::Map(b)) => {
            let sorted = |map: &[(Value, Value)]| {
                let mut all: Vec<String> = map.iter().map(|pair| format!("{pair:?}")).collect();
                all.sort();
                all
            };
            sorted(a) == sorted(b)
        }
        _ => false,
    }
}

fn pairs(values: &[Value]) -> Vec<String> {
    let mut all: Vec<String> = values.chunks(2).map(|pair| format!("{pair:?}")).collect();
    all.sort();
    all
}

/// A step of a scan: of all elements, in any order; pairs stay together.
fn same_step(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => match (&a[..], &b[..]) {
            ([a_next, Value::Array(a)], [b_next, Value::Array(b)]) => {
                a_next == b_next && (sorted(a) == sorted(b))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Fields, or fields with their values, in any order: flat, or each pair by itself.
fn same_nested(a: &Value, b: &Value) -> bool {
    same_items(a, b) || same_pairs(a, b)
}
