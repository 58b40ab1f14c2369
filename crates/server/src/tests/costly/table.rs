//! The table of costly commands (`table.txt`), and the collections that they run on. Also for the test that measures how long others wait.

/// A row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) place: &'static str,
    pub(crate) changes: bool,
    /// The command, or why it is not run.
    pub(crate) rest: &'static str,
}

pub(crate) fn rows() -> Vec<Row> {
    let lines = include_str!("table.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let row = |line: &'static str| {
        let (name, rest) = line.split_once(' ').expect("a name");
        let (place, rest) = rest.split_once(' ').expect("a place");
        Row { name, place: place.trim_end_matches('!'), changes: place.ends_with('!'), rest }
    };
    lines.map(row).collect()
}

/// The words of a command on collections of `n` elements; of these, on those in `range`.
pub(crate) fn words(text: &str, range: std::ops::Range<usize>, n: usize) -> Vec<String> {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let numbers = range.clone();
        match word {
            "{members}" => words.extend(numbers.map(|i| format!("m{i}"))),
            "{keys}" => words.extend(numbers.map(|i| format!("k{i}"))),
            "{dollars}" => words.extend(numbers.map(|_| "$".to_owned())),
            "{fields}" => words.extend(numbers.flat_map(|i| [format!("m{i}"), "v".to_owned()])),
            "{scored}" => words.extend(numbers.flat_map(|i| [i.to_string(), format!("m{i}")])),
            "{zeros}" => words.extend(numbers.flat_map(|i| ["0".to_owned(), format!("m{i}")])),
            "{places}" => words.extend(
                numbers.flat_map(|i| [(i % 180).to_string(), (i / 180 % 80).to_string(), format!("m{i}")]),
            ),
            "{ids}" => words.extend(numbers.map(|i| format!("{}-1", i + 1))),
            word => words.push(word.replace("{n}", &n.to_string())),
        }
    }
    words
}

/// The pipelines that make the keys of the table, and copies by which they are made anew.
pub(crate) fn filling(n: usize) -> impl Iterator<Item = Vec<Vec<String>>> {
    let parts = move || (0..n).step_by(PART).map(move |from| from..n.min(from + PART));
    let texts = [
        "HSET h {fields}",
        "SADD s {members}",
        "SADD s2 {members}",
        "ZADD z {scored}",
        "ZADD z2 {scored}",
        "ZADD zl {zeros}",
        "RPUSH l {members}",
        "GEOADD geo {places}",
        "PFADD hll {members}",
    ];
    let elements =
        texts.into_iter().flat_map(move |text| parts().map(move |part| vec![words(text, part, n)]));
    let entries =
        parts().map(move |part| part.map(|i| words(&format!("XADD x {}-1 f v", i + 1), 0..0, n)).collect());
    let string = vec![vec!["SET".to_owned(), "str".to_owned(), "v".repeat(n)]];
    let lines = [
        "SET short text",
        "SET number 7",
        "PFADD hll2 a b c",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c STREAMS x >",
        "XGROUP CREATE x g2 0",
    ];
    let copies = KEYS.into_iter().map(|key| format!("COPY {key} kept:{key} REPLACE"));
    let lines = lines.into_iter().map(str::to_owned).chain(copies);
    let lines = lines.map(move |line| vec![words(&line, 0..0, n)]);
    elements.chain(entries).chain([string]).chain(lines)
}

/// The commands that make the keys anew which `text` has changed.
pub(crate) fn renewing(text: &str) -> Vec<Vec<String>> {
    let named: Vec<&str> = text.split(' ').collect();
    let keys = KEYS.iter().filter(|key| named.contains(*key));
    let copies = keys.map(|key| format!("COPY kept:{key} {key} REPLACE"));
    let others = ["DEL d new", "SELECT 1", "FLUSHDB", "SELECT 0"].map(str::to_owned);
    copies.chain(others).map(|line| words(&line, 0..0, 0)).collect()
}

const KEYS: [&str; 12] = ["str", "h", "s", "s2", "z", "z2", "zl", "geo", "l", "x", "hll", "number"];
/// Elements that are added by one command.
const PART: usize = 1_000;
