//! Random commands on collections that grow over every level and split boundary, and shrink again to nothing.
//!
//! Each key has a size that it goes to; when it is there, another is drawn. So a collection meets each boundary from both
//! sides, and many times. Sizes are guessed from what was sent: no reply is needed to draw the next command, so a list of steps without
//! some of them is still one that can be played.
//!
//! What is left out: numbers that the two servers round or print in two ways, large scores of positions among them, and what the order of a
//! hash table decides.

use crate::dice::Dice;

/// Words of one command.
macro_rules! words {
    ($($word:expr),* $(,)?) => { vec![$(Vec::<u8>::from($word)),*] };
}

#[path = "large_kinds.rs"]
mod kinds;

pub(crate) type Words = Vec<Vec<u8>>;

/// One thing to do, with both servers.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A command that both answer alike.
    Same(Words),
    /// Commands between MULTI and EXEC, or DISCARD.
    Transaction(Vec<Words>, bool),
    /// SPOP: what Evenkeel chose, Redis removes.
    Pop(Vec<u8>, Option<u64>),
    /// SRANDMEMBER, HRANDFIELD or ZRANDMEMBER: what Evenkeel chose must be there.
    Chosen(Words),
    /// HSCAN, SSCAN or ZSCAN from begin to end, while others change the collection.
    Walk(Words, Vec<Words>),
    /// XTRIM with `~`: Redis keeps what Evenkeel kept.
    TrimAbout(Vec<u8>, u64),
    /// DUMP, and RESTORE at another key.
    Restore(Vec<u8>, Vec<u8>),
    /// Evenkeel ends and starts anew: power fails, or the process alone.
    Restart(bool),
    /// Compares all keys in all databases.
    Contents,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same(words) => write!(f, "{}", shown(words)),
            Self::Chosen(words) => write!(f, "{} (chosen)", shown(words)),
            Self::Transaction(commands, is_executed) => {
                let commands: Vec<String> = commands.iter().map(|words| shown(words)).collect();
                write!(
                    f,
                    "MULTI\n    {}\n  {}",
                    commands.join("\n    "),
                    if *is_executed { "EXEC" } else { "DISCARD" }
                )
            }
            Self::Walk(words, changes) => {
                let changes: Vec<String> = changes.iter().map(|words| shown(words)).collect();
                write!(f, "{} (walk)\n    {}", shown(words), changes.join("\n    "))
            }
            Self::Pop(key, count) => write!(f, "SPOP {} {count:?}", key.escape_ascii()),
            Self::TrimAbout(key, most) => write!(f, "XTRIM {} MAXLEN ~ {most}", key.escape_ascii()),
            Self::Restore(from, to) => {
                write!(f, "DUMP {}, RESTORE {}", from.escape_ascii(), to.escape_ascii())
            }
            Self::Restart(is_power_loss) => write!(f, "restart, power loss: {is_power_loss}"),
            Self::Contents => write!(f, "all contents"),
        }
    }
}

/// A command, with long words cut.
pub(crate) fn shown(command: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| match word.get(..80) {
        Some(start) => format!("\"{}...{}\" ", start.escape_ascii(), word.len()),
        None => format!("\"{}\" ", word.escape_ascii()),
    };
    let some: String = command.iter().take(40).map(word).collect();
    if command.len() > 40 { format!("{some} ... {} words", command.len()) } else { some }
}

/// Types whose collections are large, and a sorted set whose scores are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    List,
    Hash,
    Set,
    Sorted,
    Lexical,
    Stream,
}

const KINDS: [Kind; 6] = [Kind::List, Kind::Hash, Kind::Set, Kind::Sorted, Kind::Lexical, Kind::Stream];
/// Keys of each kind.
const KEYS: usize = 3;
pub(crate) const DATABASES: u64 = 3;

/// About how many elements a key has, and where it goes to.
#[derive(Clone, Copy, Default)]
struct Size {
    now: u64,
    goal: u64,
}

/// Draws steps.
pub(crate) struct Large {
    dice: Dice,
    /// Most elements.
    most: u64,
    /// Of each kind and key.
    sizes: [[Size; KEYS]; KINDS.len()],
    /// The newest identifier in any stream.
    newest: u64,
    ends: bool,
}

impl Large {
    /// Steps on collections of up to about `most` elements.
    pub(crate) fn new(seed: u64, most: u64) -> Self {
        Self { dice: Dice::new(seed), most, sizes: Default::default(), newest: 0, ends: false }
    }

    /// From now on every collection goes to nothing.
    pub(crate) fn end(&mut self) {
        self.ends = true;
        self.sizes.iter_mut().flatten().for_each(|size| size.goal = 0);
    }

    /// Ways to empty all that is left, one element or a part at a time, and whatever is there.
    pub(crate) fn remove_all(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for db in 0..DATABASES {
            steps.push(Step::Same(words!["SELECT", db.to_string()]));
            for (kind, at) in KINDS.into_iter().flat_map(|kind| (0..KEYS).map(move |at| (kind, at))) {
                let key = key_of(kind, at);
                for count in [1, 7, self.most / 3] {
                    steps.push(some_go(kind, &key, count));
                }
                steps.push(some_go(kind, &key, 10 * self.most));
                steps.push(Step::Same(words!["DEL", &*key]));
            }
            steps.push(Step::Same(words!["DEL", "a"]));
            steps.push(Step::Same(words!["DBSIZE"]));
        }
        steps
    }

    /// The next step.
    pub(crate) fn step(&mut self) -> Step {
        match self.below(1_000) {
            0..3 => Step::Same(words!["HELLO", self.pick(&["2", "3"])]),
            3..40 => self.transaction(),
            40..60 => Step::Same(self.script()),
            60..100 => self.key_command(),
            100..115 => self.restore(),
            _ => {
                let kind = self.pick(&KINDS);
                self.change_or_look(kind)
            }
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.dice.below(limit)
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        self.dice.pick(choices)
    }

    /// Whether something that is so one time in `times` is so.
    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn at(&mut self) -> usize {
        self.below(KEYS as u64) as usize
    }

    fn key(&mut self, kind: Kind) -> Vec<u8> {
        let at = self.at();
        key_of(kind, at)
    }

    fn size(&mut self, kind: Kind, at: usize) -> &mut Size {
        &mut self.sizes[kind as usize][at]
    }

    /// A number of elements: mostly few.
    fn count(&mut self) -> u64 {
        let most = self.most;
        self.pick(&[1, 1, 1, 2, 3, 10, 40, most / 10 + 1])
    }

    /// A value: short, or longer than a leaf now and then.
    fn value(&mut self) -> Vec<u8> {
        let fill = match self.below(200) {
            0 => 900,
            1..20 => 150,
            20..80 => 30,
            _ => self.below(6) as usize,
        };
        [format!("v{}-", self.below(300)).into_bytes(), vec![b'x'; fill]].concat()
    }

    /// An element that tells itself from others: of twice as many as a collection has. Those of one key of each kind are integers.
    fn member(&mut self, key: &[u8]) -> Vec<u8> {
        let number = self.below(2 * self.most);
        if key.ends_with(b"2") {
            return number.to_string().into_bytes();
        }
        let fill = if number.is_multiple_of(97) { 300 } else { number as usize % 11 };
        [format!("m{number}").into_bytes(), vec![b'y'; fill]].concat()
    }

    /// `words`, of which the second is the key, and `count` members.
    fn members(&mut self, mut words: Words, count: u64) -> Words {
        let key = words[1].clone();
        (0..count).for_each(|_| words.push(self.member(&key)));
        words
    }

    /// A score that both servers print alike; many are equal.
    fn score(&mut self) -> String {
        match self.below(20) {
            0 => self.pick(&["inf", "-inf", "0", "1000000"]).to_owned(),
            1..6 => (self.below(400) as f64 / 4.0 - 50.0).to_string(),
            _ => (self.below(100) as i64 - 50).to_string(),
        }
    }

    fn score_bound(&mut self) -> String {
        let open = self.pick(&["", "", "("]);
        if self.one_in(8) { self.pick(&["-inf", "+inf"]).to_owned() } else { open.to_owned() + &self.score() }
    }

    fn member_bound(&mut self, key: &[u8]) -> Vec<u8> {
        if self.one_in(6) {
            return self.pick(&["-", "+"]).into();
        }
        [self.pick(&[&b"["[..], b"("]), &self.member(key)].concat()
    }

    /// A place in a collection of `size`, or beyond its ends; from the end now and then.
    fn index(&mut self, size: u64) -> i64 {
        let index = self.below(size + size / 8 + 2) as i64;
        if self.one_in(3) { -index - 1 } else { index }
    }

    /// Two places, mostly close to each other.
    fn range(&mut self, size: u64) -> [String; 2] {
        let from = self.index(size);
        let to = if self.one_in(6) { self.index(size) } else { from + self.count() as i64 };
        [from, to].map(|index| index.to_string())
    }

    fn limit(&mut self, words: &mut Words) {
        if self.one_in(2) {
            let skipped = self.count() - 1;
            let count = if self.one_in(5) { -1 } else { self.count() as i64 };
            words.extend(words!["LIMIT", skipped.to_string(), count.to_string()]);
        }
    }

    /// A command on one collection: what brings it nearer to where it goes, or another.
    fn change_or_look(&mut self, kind: Kind) -> Step {
        let at = self.at();
        let key = key_of(kind, at);
        if self.below(5) < 2 {
            return self.towards_goal(kind, at, &key);
        }
        let now = self.size(kind, at).now;
        match kind {
            Kind::List => self.list(&key, now),
            Kind::Hash => self.hash(&key),
            Kind::Set => self.set(&key),
            Kind::Sorted => self.sorted(&key, now),
            Kind::Lexical => self.lexical(&key),
            Kind::Stream => self.stream(&key, now),
        }
    }

    fn towards_goal(&mut self, kind: Kind, at: usize, key: &[u8]) -> Step {
        let (size, most) = (*self.size(kind, at), self.most);
        let count = self.count();
        if size.now < size.goal {
            self.size(kind, at).now += count;
            return Step::Same(self.more(kind, key, count));
        }
        if size.now > size.goal.max(most / 50) {
            self.size(kind, at).now = size.now.saturating_sub(count);
            return self.fewer(kind, key, count);
        }
        let goals = [0, 1, most / 100, most / 30, most / 10, most / 3, most];
        self.size(kind, at).goal = if self.ends { 0 } else { self.pick(&goals) };
        if size.goal > 0 {
            return Step::Same(words!["OBJECT", "ENCODING", key]);
        }
        self.size(kind, at).now = 0;
        if self.one_in(3) {
            let name = self.pick(&["DEL", "UNLINK"]);
            return Step::Same(words![name, key]);
        }
        some_go(kind, key, 10 * most)
    }

    /// `count` elements more, about.
    fn more(&mut self, kind: Kind, key: &[u8], count: u64) -> Words {
        match kind {
            Kind::List => {
                let mut words = words![self.pick(&["LPUSH", "RPUSH", "RPUSH"]), key];
                (0..count).for_each(|_| words.push(self.value()));
                words
            }
            Kind::Hash => {
                let mut words = words!["HSET", key];
                (0..count).for_each(|_| words.extend([self.member(key), self.value()]));
                words
            }
            Kind::Set => self.members(words!["SADD", key], count),
            Kind::Sorted => {
                let mut words = words!["ZADD", key];
                (0..count).for_each(|_| words.extend([self.score().into(), self.member(key)]));
                words
            }
            Kind::Lexical => {
                let mut words = words!["ZADD", key];
                (0..count).for_each(|_| words.extend([b"0".to_vec(), self.member(key)]));
                words
            }
            Kind::Stream => self.entries(key, count),
        }
    }

    /// A script that adds entries: XADD adds one.
    fn entries(&mut self, key: &[u8], count: u64) -> Words {
        let from = self.newest;
        self.newest += 2 * count;
        if count == 1 {
            return words!["XADD", key, format!("{}-1", from + 1), "f", self.value()];
        }
        let script = "for at = ARGV[1] + 1, ARGV[2], 2 do redis.call('XADD', KEYS[1], at .. '-1', 'f', ARGV[3] .. at) end";
        words!["EVAL", script, "1", key, from.to_string(), self.newest.to_string(), self.value()]
    }

    /// `count` elements less, about, by one of several ways.
    fn fewer(&mut self, kind: Kind, key: &[u8], count: u64) -> Step {
        let some = some_go(kind, key, count);
        let ends = [count.to_string(), (-1 - count as i64).to_string()];
        Step::Same(match kind {
            Kind::List if self.one_in(2) => {
                let [front, back] = if self.one_in(2) { [&ends[0], "-1"] } else { ["0", &ends[1]] };
                words!["LTRIM", key, front, back]
            }
            Kind::Hash => self.members(words!["HDEL", key], 2 * count),
            Kind::Set if self.one_in(2) => self.members(words!["SREM", key], 2 * count),
            Kind::Sorted | Kind::Lexical => match self.below(4) {
                0 => self.members(words!["ZREM", key], 2 * count),
                1 => words!["ZREMRANGEBYRANK", key, "3", (count + 2).to_string()],
                2 => words!["ZREMRANGEBYRANK", key, &*ends[1], "-2"],
                _ => return some,
            },
            Kind::Stream if self.one_in(2) => {
                let mut words = words!["XDEL", key];
                (0..2 * count).for_each(|_| words.push(self.id(4 * count)));
                words
            }
            _ => return some,
        })
    }

    /// What concerns whole keys.
    fn key_command(&mut self) -> Step {
        let kind = self.pick(&KINDS);
        let (from, to) = (self.at(), self.at());
        let (key, other) = (key_of(kind, from), key_of(kind, to));
        let db = self.below(DATABASES).to_string();
        let size = *self.size(kind, from);
        let choice = self.below(12);
        if matches!(choice, 0..3) {
            *self.size(kind, to) = size;
        }
        Step::Same(match choice {
            0 => words!["RENAME", key, other],
            1 => words!["COPY", key, other, "REPLACE"],
            2 => words!["RENAMENX", key, other],
            3 => words!["MOVE", key, db],
            4 => words!["COPY", key, other, "DB", db, "REPLACE"],
            5 => words!["SWAPDB", "0", db],
            6 => words!["SELECT", if self.one_in(2) { b"0".to_vec() } else { db.into_bytes() }],
            7 => words!["TYPE", key],
            8 => words!["EXPIRE", key, "100000"],
            9 => words!["PERSIST", key],
            // of another type, for a while
            10 if self.one_in(4) => words!["COPY", key, self.key(Kind::List), "REPLACE"],
            11 if self.one_in(4) => words!["SET", key, "text"],
            _ => words!["EXISTS", key, other],
        })
    }

    fn restore(&mut self) -> Step {
        let kind = self.pick(&KINDS);
        let (from, to) = (self.at(), self.at());
        *self.size(kind, to) = *self.size(kind, from);
        Step::Restore(key_of(kind, from), key_of(kind, to))
    }

    fn transaction(&mut self) -> Step {
        let count = 2 + self.below(6);
        let mut commands = Vec::new();
        while commands.len() < count as usize {
            let step = match self.below(8) {
                0 => Step::Same(self.script()),
                1 => self.key_command(),
                _ => {
                    let kind = self.pick(&KINDS);
                    self.change_or_look(kind)
                }
            };
            if let Step::Same(words) = step {
                commands.push(words);
            }
        }
        Step::Transaction(commands, !self.one_in(10))
    }

    /// A script over several collections.
    fn script(&mut self) -> Words {
        let count = self.count().to_string();
        let [list, other] = [self.key(Kind::List), self.key(Kind::List)];
        let [hash, set, sorted] = [Kind::Hash, Kind::Set, Kind::Sorted].map(|kind| self.key(kind));
        let member = self.member(&hash);
        words!["EVAL", self.pick(&SCRIPTS), "5", list, other, hash, set, sorted, count, member, self.score()]
    }
}

/// Scripts over two lists, a hash, a set and a sorted set, with a number, a member and a score.
const SCRIPTS: [&str; 8] = [
    "for n = 1, ARGV[1] do local v = redis.call('LPOP', KEYS[1]); if not v then return n end; redis.call('RPUSH', KEYS[2], v) end",
    "for n, v in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[1])) do redis.call('SADD', KEYS[4], v) end; return redis.call('SCARD', KEYS[4])",
    "local popped = redis.call('ZPOPMIN', KEYS[5], ARGV[1]); for n = 1, #popped, 2 do redis.call('HSET', KEYS[3], popped[n], n) end; return redis.call('HLEN', KEYS[3])",
    "for n = 1, ARGV[1] do redis.call('ZADD', KEYS[5], n % 50, ARGV[2] .. n) end; return redis.call('ZRANGE', KEYS[5], -20, -1, 'WITHSCORES')",
    "for n = 1, ARGV[1] do redis.call('HDEL', KEYS[3], 'm' .. n); redis.call('SREM', KEYS[4], 'm' .. n) end; return redis.call('HLEN', KEYS[3])",
    "local n = redis.call('ZCARD', KEYS[5]); if n > 40 then redis.call('ZREMRANGEBYRANK', KEYS[5], n / 2 - n / 2 % 1, -1) end; return redis.call('ZCARD', KEYS[5])",
    "redis.call('RENAME', KEYS[1], KEYS[2]); return redis.call('LLEN', KEYS[2])",
    "redis.call('LPUSH', KEYS[1], ARGV[2]); redis.call('ZINCRBY', KEYS[5], 1, ARGV[2]); return redis.call('LPOS', KEYS[1], ARGV[2], 'RANK', -1)",
];

/// A step that removes up to `count` elements.
fn some_go(kind: Kind, key: &[u8], count: u64) -> Step {
    let number = count.to_string();
    Step::Same(match kind {
        Kind::List => words!["LPOP", key, number],
        Kind::Set => return Step::Pop(key.to_vec(), Some(count)),
        Kind::Sorted => words!["ZPOPMAX", key, number],
        Kind::Lexical => words!["ZPOPMIN", key, number],
        Kind::Stream => words!["XTRIM", key, "MAXLEN", count.saturating_sub(1).to_string()],
        // hashes have no command for it
        Kind::Hash => {
            let script = "local fields = redis.call('HKEYS', KEYS[1]); table.sort(fields); \
                          for n = 1, math.min(#fields, ARGV[1]) do redis.call('HDEL', KEYS[1], fields[n]) end; \
                          return redis.call('HLEN', KEYS[1])";
            words!["EVAL", script, "1", key, number]
        }
    })
}

fn key_of(kind: Kind, at: usize) -> Vec<u8> {
    let name = ["l", "h", "s", "z", "y", "x"][kind as usize];
    format!("{name}{at}").into_bytes()
}
