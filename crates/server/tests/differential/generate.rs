//! Random commands that are likely to meet each other: few keys, values on the edges, every option.
//!
//! What is left out of the arguments is what the two servers do not agree on: times that are over while the test
//! runs, GT and LT with times that lie close together, decimals that `long double` rounds and numbers that only
//! it holds, NUL in what an error echoes (Redis ends its text there; we do not).

use crate::dice::Dice;

/// Draws commands from the table.
pub(crate) struct Generator {
    dice: Dice,
}

type Words = Vec<Vec<u8>>;

/// Commands that are not sent, and why.
const EXCUSED: &[(&str, &str)] = &[
    ("shutdown", "ends the server"),
    ("quit", "ends the connection"),
    ("monitor", "its lines follow every command after it"),
    ("client|reply", "leaves replies out, and the test counts them; see tests of the protocol"),
    ("client|pause", "waits"),
    ("client|kill", "addresses and ids differ; see tests of the protocol"),
    ("client|setinfo", "newer than 7.0; golden replies"),
    ("client|no-touch", "newer than 7.0; golden replies"),
    ("client|move", "ours alone"),
    ("client|tracking", "follows with messaging; answers with an error that says so"),
    ("client|caching", "needs tracking"),
    ("waitaof", "newer than 7.0; golden replies"),
    ("save", "writes files of Redis"),
    ("bgsave", "writes files of Redis"),
    ("backup", "ours alone"),
    ("tx.begin", "ours alone"),
    ("tx.enlist", "ours alone"),
    ("tx.sql", "ours alone"),
    ("tx.do", "ours alone"),
    ("tx.commit", "ours alone"),
    ("tx.rollback", "ours alone"),
    ("tx.status", "ours alone"),
    ("tx.list", "ours alone"),
    ("tx.resolve", "ours alone"),
    ("tx.recover", "ours alone"),
    ("topology|submit", "ours alone"),
    ("topology|diff", "ours alone"),
    ("topology|list", "ours alone"),
    ("topology|show", "ours alone"),
    ("topology|kill", "ours alone"),
    ("topology|activate", "ours alone"),
    ("topology|deactivate", "ours alone"),
    ("topology|restart", "ours alone"),
    ("topology|rebalance", "ours alone"),
    ("topology|drain", "ours alone"),
    ("topology|switch", "ours alone"),
    ("topology|tap", "ours alone"),
    ("topology|trial", "ours alone"),
    ("topology|try", "ours alone"),
    ("topology|untry", "ours alone"),
    ("topology|help", "ours alone"),
    ("capture|start", "ours alone"),
    ("capture|stop", "ours alone"),
    ("debug|change-repl-id", "there is no replication"),
    ("debug|error", "an error of the caller's own words"),
    ("debug|jmap", "there is no jemalloc"),
    ("debug|reload", "writes files of Redis"),
    ("debug|digest", "numbers of this server"),
    ("debug|digest-value", "numbers of this server"),
    ("bgrewriteaof", "writes files of Redis"),
    ("lolwut", "tells the version"),
    ("pfselftest", "takes Redis seconds"),
    ("debug|sleep", "waits"),
    ("debug|stringmatch-len", "takes Redis a second"),
    ("acl|cat", "users have a test of their own"),
    ("acl|deluser", "users have a test of their own"),
    ("acl|dryrun", "users have a test of their own"),
    ("acl|genpass", "users have a test of their own"),
    ("acl|getuser", "users have a test of their own"),
    ("acl|help", "users have a test of their own"),
    ("acl|list", "users have a test of their own"),
    ("acl|load", "users have a test of their own"),
    ("acl|log", "users have a test of their own"),
    ("acl|save", "users have a test of their own"),
    ("acl|setuser", "users have a test of their own"),
    ("acl|users", "users have a test of their own"),
    ("acl|whoami", "users have a test of their own"),
    ("config|set", "settings differ"),
    ("config|rewrite", "no file in either"),
    ("config|resetstat", "statistics are not compared"),
    ("latency|latest", "speed"),
    ("latency|histogram", "speed"),
    ("latency|doctor", "text for people"),
    ("latency|graph", "speed"),
    ("memory|stats", "parts differ"),
    ("memory|doctor", "text for people"),
    ("memory|malloc-stats", "text for people"),
    ("command|docs", "texts differ; arguments are not told yet"),
    ("command|count", "fewer commands"),
    ("command|list", "fewer commands"),
    ("eval", "see the list of scripts"),
    ("eval_ro", "see the list of scripts"),
    ("evalsha", "see the list of scripts"),
    ("evalsha_ro", "see the list of scripts"),
    ("fcall", "see the list of scripts"),
    ("fcall_ro", "see the list of scripts"),
    ("script|debug", "no debugger"),
    ("script|exists", "see the list of scripts"),
    ("script|flush", "see the list of scripts"),
    ("script|kill", "see the list of scripts"),
    ("script|load", "see the list of scripts"),
    ("function|load", "see the list of scripts"),
    ("function|restore", "payloads differ"),
    ("function|dump", "payloads differ"),
    ("function|stats", "engines differ"),
    ("function|delete", "there are no functions yet"),
];

/// Newer than 7.2: `tests::newer_commands` has golden replies and models of them.
const NEWER: &[&str] = &[
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "msetex",
    "digest",
    "delex",
    "delifeq",
    "increx",
    "hgetdel",
    "sdiffcard",
    "sunioncard",
    "blmovem",
    "lmovem",
    "xackdel",
    "xcfgset",
    "xdelex",
    "xnack",
];

fn is_excused(name: &str) -> bool {
    EXCUSED.iter().any(|(excused, _)| *excused == name) || NEWER.contains(&name)
}

/// Whether the generator draws `name` or has an excuse.
pub(crate) fn knows(name: &str) -> bool {
    name.ends_with("|help")
        || is_excused(name)
        || (1..200).any(|seed| !Generator::new(seed).arguments(name).is_empty())
}

/// Whether it waits for an element.
fn is_blocking(name: &str) -> bool {
    name.starts_with('b') && !matches!(name, "backup" | "bgsave")
}

/// A command as a person would type it.
pub(crate) fn shown(command: &[Vec<u8>]) -> String {
    command.iter().map(|word| format!("{:?} ", String::from_utf8_lossy(word))).collect()
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator { dice: Dice::new(seed) }
    }

    /// The next command.
    pub(crate) fn command(&mut self) -> Words {
        loop {
            let entries = server::commands().entries();
            let name = entries[self.below(entries.len() as u64) as usize].command.name;
            let rare =
                matches!(name, "flushall" | "flushdb" | "reset" | "hello" | "keys" | "scan" | "command|info");
            // Those that wait take a millisecond each.
            if (is_blocking(name) || name.starts_with("xread")) && self.below(4) > 0 {
                continue;
            }
            if (rare && self.below(20) > 0) || is_excused(name) {
                continue;
            }
            let mut words = self.arguments(name);
            if words.is_empty() {
                continue;
            }
            self.spoil(&mut words, name);
            return words;
        }
    }

    /// Now and then a wrong number of arguments, a wrong word, or letters of another case.
    fn spoil(&mut self, words: &mut Words, name: &str) {
        // The first answer once for each argument, and the test counts replies; of the others, what they answer to
        // other arguments is listed among the differences.
        let counted = matches!(name, "subscribe" | "psubscribe" | "unsubscribe" | "punsubscribe" | "wait")
            || matches!(name, "ssubscribe" | "sunsubscribe")
            || matches!(
                name,
                "scan"
                    | "incrbyfloat"
                    | "hincrbyfloat"
                    | "hscan"
                    | "sscan"
                    | "spop"
                    | "srandmember"
                    | "hrandfield"
                    | "zrandmember"
                    | "zscan"
                    | "zadd"
                    | "zincrby"
                    | "zrank"
                    | "zrevrank"
                    | "xread"
                    | "xreadgroup"
                    | "xclaim"
            )
            || is_blocking(name)
            || name.starts_with("debug")
            || name.starts_with("command");
        match self.below(60) {
            0 if !counted && words.len() > 1 => drop(words.pop()),
            1 if !counted => words.push(self.value()),
            2 if !counted && words.len() > 2 => {
                let at = 1 + self.below(words.len() as u64 - 1) as usize;
                // Not a few seconds: a key that ends while the test runs ends at two times.
                words[at] =
                    self.pick(&["x", "", "-5", "0", "9223372036854775808", "-9223372036854775808"]).into();
            }
            3 => words[0].make_ascii_uppercase(),
            4 => words[0] = [b"no", &words[0][..]].concat(),
            _ => {}
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.dice.below(limit)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        self.dice.pick(words)
    }

    fn key(&mut self) -> Vec<u8> {
        self.pick(&[
            "a", "b", "c", "d", "e", "", "key:1", "key:2", "k\r\nx", "h1", "s1", "l1", "z1", "b1", "x1",
        ])
        .as_bytes()
        .to_vec()
    }

    fn number(&mut self) -> Vec<u8> {
        let edges = [
            "0",
            "1",
            "-1",
            "2",
            "10",
            "-5",
            "100",
            "2147483647",
            "2147483648",
            "-2147483649",
            "4294967296",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "x",
            "",
            "1.5",
            "007",
            " 1",
        ];
        self.pick(&edges).as_bytes().to_vec()
    }

    fn small(&mut self) -> Vec<u8> {
        (self.below(24) as i64 - 8).to_string().into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.number(),
            1 | 2 => self.below(1_000).to_string().into_bytes(),
            3 => Vec::new(),
            4 => (0..self.below(90)).map(|n| ((n * 7) as u8).max(1)).collect(),
            5 => b"1.25".to_vec(),
            _ => {
                let len = self.below(20);
                (0..len).map(|_| b'a' + self.below(4) as u8).collect()
            }
        }
    }

    /// Seconds far enough in the future, or wrong.
    fn seconds(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self
                .pick(&["0", "-1", "x", "9223372036854775807", "-9223372036854775808", "9223372036854775"])
                .into(),
            _ => (10_000 + self.below(90_000) * 1_000).to_string().into_bytes(),
        }
    }

    fn millis(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self.pick(&["0", "-1", "x", "9223372036854775807", "-9223372036854775808"]).into(),
            _ => (10_000_000 + self.below(90_000) * 1_000_000).to_string().into_bytes(),
        }
    }

    /// Times of the years from 2096 on, in seconds, or past ones.
    fn at(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self.pick(&["0", "-1", "1000", "x", "9223372036854775807"]).into(),
            _ => (4_000_000_000 + self.below(90_000) * 1_000).to_string().into_bytes(),
        }
    }

    fn at_millis(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => self.pick(&["0", "-1", "1000", "x", "9223372036854775807"]).into(),
            _ => (4_000_000_000_000 + self.below(90_000) * 1_000_000).to_string().into_bytes(),
        }
    }

    /// Up to ten bytes of `alphabet`: a pattern, or what patterns are matched against.
    pub(crate) fn glob(&mut self, alphabet: &[u8]) -> Vec<u8> {
        (0..self.below(11)).map(|_| alphabet[self.below(alphabet.len() as u64) as usize]).collect()
    }

    fn pattern(&mut self) -> Vec<u8> {
        self.pick(&["*", "k*", "?", "[a-c]", "[^a]", "key:\\*", "*:1", "a*b*c", "", "[b", "k\\"]).into()
    }

    fn repeat(&mut self, mut words: Words, most: u64, mut one: impl FnMut(&mut Self, &mut Words)) -> Words {
        for _ in 0..=self.below(most) {
            one(self, &mut words);
        }
        words
    }

    /// Some of `options`, in any number.
    fn options(&mut self, words: &mut Words, options: &[&str]) {
        for _ in 0..self.below(3) {
            words.push(self.pick(options).into());
        }
    }

    fn expiry_option(&mut self, words: &mut Words) {
        let (option, time) = match self.below(4) {
            0 => ("EX", self.seconds()),
            1 => ("px", self.millis()),
            2 => ("EXAT", self.at()),
            _ => ("PXAT", self.at_millis()),
        };
        words.push(option.into());
        words.push(time);
    }

    /// A whole command for the row `name`; empty when there is none to make.
    pub(crate) fn arguments(&mut self, name: &str) -> Words {
        let words: Words = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
        if let Some(words) = self.string_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.key_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.hash_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.set_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.list_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.sorted_set_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.stream_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.geo_command(name, words.clone()) {
            return words;
        }
        if let Some(words) = self.bit_command(name, words.clone()) {
            return words;
        }
        self.other_command(name, words).unwrap_or_default()
    }

    /// A key of collections: mostly of one type each, and now and then any.
    fn key_of(&mut self, type_name: &str) -> Vec<u8> {
        if self.below(12) == 0 {
            self.key()
        } else {
            [type_name.as_bytes(), self.pick(&["1", "2", "3"]).as_bytes()].concat()
        }
    }

    /// A field or member: few, so that commands meet, and now and then many or long ones, which change how a collection is kept.
    fn element(&mut self) -> Vec<u8> {
        match self.below(40) {
            0 => vec![b'l'; 60 + self.below(10) as usize],
            1 => self.value(),
            2..=12 => self.below(30).to_string().into_bytes(),
            _ => self.pick(&["f", "g", "h", "i", "j", ""]).as_bytes().to_vec(),
        }
    }

    /// Commands on hashes.
    fn hash_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        if !name.starts_with('h') || matches!(name, "hello") {
            return None;
        }
        words.push(self.key_of("h"));
        match name {
            "hgetall" | "hkeys" | "hvals" | "hlen" => {}
            "hset" | "hmset" => {
                let most = if self.below(30) == 0 { 200 } else { 3 };
                return Some(self.repeat(words, most, |g, words| words.extend([g.element(), g.value()])));
            }
            "hsetnx" => words.extend([self.element(), self.value()]),
            "hget" | "hexists" | "hstrlen" => words.push(self.element()),
            "hmget" | "hdel" => return Some(self.repeat(words, 3, |g, words| words.push(g.element()))),
            "hincrby" => words.extend([self.element(), self.number()]),
            "hincrbyfloat" => {
                let field = self.pick(&["x1", "x2"]).into();
                words.extend([
                    field,
                    self.pick(&["0.5", "-0.25", "1", "3.0e1", "x", "", "-2.75", "+5"]).into(),
                ]);
            }
            "hrandfield" => {
                words.push(self.all_or_none());
                self.options(&mut words, &["WITHVALUES"]);
            }
            "hscan" => self.scan_options(&mut words),
            _ => return None,
        }
        Some(words)
    }

    /// Commands on sets.
    fn set_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        let of_one =
            ["sadd", "srem", "scard", "sismember", "smismember", "smembers", "spop", "srandmember", "sscan"];
        if of_one.contains(&name) {
            words.push(self.key_of("s"));
        }
        match name {
            "scard" | "smembers" => {}
            "sadd" => {
                let most = if self.below(30) == 0 { 200 } else { 3 };
                let integers = self.below(2) == 0;
                return Some(self.repeat(words, most, |g, words| {
                    let any = if integers { g.below(700).to_string().into_bytes() } else { g.element() };
                    words.push(any);
                }));
            }
            "srem" | "smismember" => return Some(self.repeat(words, 3, |g, words| words.push(g.element()))),
            "sismember" => words.push(self.element()),
            "srandmember" => words.push(self.all_or_none()),
            "spop" => words.push(self.pick(&["1000", "0", "-1", "x"]).into()),
            "sscan" => self.scan_options(&mut words),
            "smove" => words.extend([self.key_of("s"), self.key_of("s"), self.element()]),
            "sinter" | "sunion" | "sdiff" | "sinterstore" | "sunionstore" | "sdiffstore" => {
                return Some(self.repeat(words, 3, |g, words| words.push(g.key_of("s"))));
            }
            "sintercard" => {
                words.push(self.pick(&["1", "2", "2", "3", "0", "-1", "x"]).into());
                words = self.repeat(words, 2, |g, words| words.push(g.key_of("s")));
                if self.below(3) == 0 {
                    words.extend([b"LIMIT".to_vec(), self.pick(&["0", "1", "2", "-1", "x"]).into()]);
                }
            }
            _ => return None,
        }
        Some(words)
    }

    fn id(&mut self) -> Vec<u8> {
        match self.below(16) {
            0 => self
                .pick(&["0", "0-0", "x", "", "5-", "18446744073709551615-18446744073709551615", "3"])
                .into(),
            _ => format!("{}-{}", self.below(30), self.below(3)).into_bytes(),
        }
    }

    fn id_bound(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => self.pick(&["-", "+", "(0-0", "(18446744073709551615-18446744073709551615"]).into(),
            1 => [b"(".to_vec(), self.id()].concat(),
            _ => self.id(),
        }
    }

    fn group(&mut self) -> Vec<u8> {
        self.pick(&["g1", "g1", "g2", "none"]).into()
    }

    fn consumer(&mut self) -> Vec<u8> {
        self.pick(&["c1", "c2", "c3"]).into()
    }

    /// MAXLEN and MINID, or what is none.
    fn trim(&mut self, words: &mut Words) {
        words.push(self.pick(&["MAXLEN", "maxlen", "MINID", "LIMIT"]).into());
        if self.below(3) == 0 {
            words.push(self.pick(&["=", "~", "="]).into());
        }
        words.push(if self.below(2) == 0 { self.below(8).to_string().into() } else { self.id() });
        if self.below(6) == 0 {
            words.extend([b"LIMIT".to_vec(), self.small()]);
        }
    }

    /// Commands on streams. Their time is not that of a clock: identifiers are given.
    fn stream_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        if !name.starts_with('x') {
            return None;
        }
        if self.below(40) == 0 {
            // Identifiers only grow: now and then a stream begins anew.
            return Some(vec![b"DEL".to_vec(), self.key_of("x")]);
        }
        let idle = self.pick(&["0", "0", "0", "1000000000", "-1", "x"]);
        match name {
            "xread" | "xreadgroup" => {
                self.stream_read(name == "xreadgroup", &mut words);
                return Some(words);
            }
            _ => words.push(self.key_of("x")),
        }
        if name.starts_with("xgroup") || GROUP_COMMANDS.contains(&name) {
            return self.group_command(name, idle, words);
        }
        match name {
            "xlen" | "xinfo|groups" => {}
            "xinfo|stream" => {
                if self.below(4) == 0 {
                    words.push(b"x".to_vec());
                }
            }
            "xinfo|consumers" => words.push(self.group()),
            "xadd" => {
                if self.below(4) == 0 {
                    self.trim(&mut words);
                }
                self.options(&mut words, &["NOMKSTREAM"]);
                let id = self.id();
                let any = [id.clone(), id, format!("{}-*", self.below(30)).into_bytes()];
                words.push(any[self.below(3) as usize].clone());
                return Some(self.repeat(words, 2, |g, words| words.extend([g.element(), g.value()])));
            }
            "xdel" => return Some(self.repeat(words, 3, |g, words| words.push(g.id()))),
            "xtrim" => self.trim(&mut words),
            "xrange" | "xrevrange" => {
                words.extend([self.id_bound(), self.id_bound()]);
                if self.below(3) == 0 {
                    words.extend([b"COUNT".to_vec(), self.small()]);
                }
            }
            "xsetid" => {
                words.push(self.id());
                if self.below(3) == 0 {
                    words.extend([
                        b"ENTRIESADDED".to_vec(),
                        self.small(),
                        b"MAXDELETEDID".to_vec(),
                        self.id(),
                    ]);
                }
            }
            _ => return None,
        }
        Some(words)
    }

    /// Commands on groups of a stream.
    fn group_command(&mut self, name: &str, idle: &str, mut words: Words) -> Option<Words> {
        match name {
            "xgroup|create" | "xgroup|setid" => {
                words.push(self.group());
                words.push(if self.below(2) == 0 { b"$".to_vec() } else { self.id() });
                if name == "xgroup|create" && self.below(3) == 0 {
                    words.push(b"MKSTREAM".to_vec());
                }
                if self.below(4) == 0 {
                    words.extend([b"ENTRIESREAD".to_vec(), self.small()]);
                }
            }
            "xgroup|destroy" => words.push(self.group()),
            "xgroup|createconsumer" | "xgroup|delconsumer" => words.extend([self.group(), self.consumer()]),
            "xack" => {
                words.push(self.group());
                return Some(self.repeat(words, 3, |g, words| words.push(g.id())));
            }
            "xpending" => {
                words.push(self.group());
                if self.below(2) == 0 {
                    if self.below(4) == 0 {
                        words.extend([b"IDLE".to_vec(), idle.into()]);
                    }
                    words.extend([self.id_bound(), self.id_bound(), self.small()]);
                    if self.below(3) == 0 {
                        words.push(self.consumer());
                    }
                }
            }
            "xclaim" => {
                words.extend([self.group(), self.consumer(), idle.into()]);
                words = self.repeat(words, 2, |g, words| words.push(g.id()));
                self.options(&mut words, &["FORCE", "JUSTID", "force", "x"]);
                if self.below(4) == 0 {
                    words.extend([b"RETRYCOUNT".to_vec(), self.small()]);
                }
                if self.below(6) == 0 {
                    words.extend([b"LASTID".to_vec(), self.id()]);
                }
            }
            "xautoclaim" => {
                words.extend([self.group(), self.consumer(), idle.into(), self.id_bound()]);
                if self.below(3) == 0 {
                    words.extend([b"COUNT".to_vec(), self.small()]);
                }
                self.options(&mut words, &["JUSTID"]);
            }
            _ => return None,
        }
        Some(words)
    }

    fn stream_read(&mut self, of_group: bool, words: &mut Words) {
        if of_group && self.below(20) > 0 {
            words.extend([b"GROUP".to_vec(), self.group(), self.consumer()]);
        }
        if self.below(2) == 0 {
            words.extend([b"COUNT".to_vec(), self.pick(&["1", "2", "0", "-1", "x"]).into()]);
        }
        if self.below(2) == 0 {
            words.extend([b"BLOCK".to_vec(), self.pick(&["1", "1", "2", "x", "-1"]).into()]);
        }
        if self.below(8) == 0 {
            words.push(self.pick(&["NOACK", "x"]).into());
        }
        words.push(b"STREAMS".to_vec());
        let count = 1 + self.below(2);
        (0..count).for_each(|_| words.push(self.key_of("x")));
        for _ in 0..count {
            let id = self.id();
            words.push(match self.below(4) {
                0 => b"$".to_vec(),
                1 if of_group => id,
                _ if of_group => b">".to_vec(),
                1 => b">".to_vec(),
                _ => id,
            });
        }
    }

    /// A coordinate: mostly in a region where places meet, now and then at an end of the map, or none.
    fn coordinate(&mut self, ends: &[&str], around: i64) -> Vec<u8> {
        match self.below(30) {
            0 => self.pick(ends).into(),
            1 => self.pick(&["x", "", "nan", "inf", "-1e3", "1000"]).into(),
            n => {
                // Regions of several sizes, so that some searches meet few places and others many.
                let spread = [2_000_000, 200_000, 20_000][n as usize % 3];
                let micros = around * 1_000_000 + self.below(2 * spread) as i64 - spread as i64;
                format!("{:.6}", micros as f64 / 1e6).into_bytes()
            }
        }
    }

    fn place(&mut self, words: &mut Words) {
        let (longitude, latitude) = match self.below(8) {
            0 => (179, 70),
            1 => (-179, -82),
            2 => (0, 0),
            _ => (13, 38),
        };
        words.push(self.coordinate(&["180", "-180", "180.1"], longitude));
        words.push(self.coordinate(&["85.05112878", "-85.05112878", "-85.06"], latitude));
    }

    /// A distance with its unit; `count` is how many numbers it has.
    fn reach(&mut self, count: usize, words: &mut Words) {
        for _ in 0..count {
            let edges =
                ["0", "0.5", "10", "100", "150.5", "1000", "5000", "20000", "1e9", "inf", "-1", "x", ""];
            words.push(match self.below(3) {
                0 => self.pick(&edges).into(),
                _ => self.below(300).to_string().into_bytes(),
            });
        }
        words.push(self.pick(&["km", "KM", "km", "km", "m", "mi", "FT", "x"]).into());
    }

    fn geo_key(&mut self) -> Vec<u8> {
        self.pick(&["g1", "g2", "g3", "g1", "g2", "g3", "g1", "g2", "g3", "a", "h1", "none"]).into()
    }

    fn search_options(&mut self, words: &mut Words) {
        self.options(words, &["ASC", "desc"]);
        if self.below(3) == 0 {
            words.extend([b"COUNT".to_vec(), self.pick(&["1", "2", "3", "5", "100", "0", "-1", "x"]).into()]);
            self.options(words, &["ANY"]);
        }
        self.options(words, &["WITHCOORD", "WITHDIST", "withhash", "WITHCOORD", "withdist", "ANY"]);
    }

    /// Commands on positions. Distances are stored at a key of its own: their last digits are printed in two ways.
    fn geo_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        if !name.starts_with("geo") {
            return None;
        }
        if self.below(30) == 0 {
            let read =
                self.pick(&["ZRANGE d1 0 -1", "ZCARD g1", "GEOPOS d1 f g h", "GEOPOS z1 f g 1", "DEL g1"]);
            return Some(read.split(' ').map(Into::into).collect());
        }
        if name == "geosearchstore" {
            words.push(self.pick(&["g1", "g2", "g3", "a"]).into());
        }
        words.push(self.geo_key());
        match name {
            "geoadd" => {
                self.options(&mut words, &["NX", "xx", "CH", "CH"]);
                let most = if self.below(10) == 0 { 150 } else { 3 };
                return Some(self.repeat(words, most, |g, words| {
                    g.place(words);
                    words.push(g.element());
                }));
            }
            "geodist" => {
                words.extend([self.element(), self.element()]);
                self.options(&mut words, &["km", "M", "ft", "MI", "x"]);
            }
            "geohash" | "geopos" => return Some(self.repeat(words, 3, |g, words| words.push(g.element()))),
            "georadius" | "georadius_ro" => {
                self.place(&mut words);
                self.reach(1, &mut words);
            }
            "georadiusbymember" | "georadiusbymember_ro" => {
                words.push(self.element());
                self.reach(1, &mut words);
            }
            "geosearch" | "geosearchstore" => self.search_area(&mut words),
            _ => return None,
        }
        if name.starts_with("georadius") && self.below(4) == 0 {
            self.search_options(&mut words);
            let stored = if self.below(2) == 0 { ["STORE", "g2"] } else { ["storedist", "d1"] };
            words.extend(stored.map(Into::into));
        } else if name.starts_with("georadius") || name.starts_with("geosearch") {
            self.search_options(&mut words);
        }
        if name == "geosearchstore" && self.below(3) == 0 {
            words[1] = b"d1".to_vec();
            words.push(b"STOREDIST".to_vec());
        }
        Some(words)
    }

    /// Centre and shape of GEOSEARCH.
    fn search_area(&mut self, words: &mut Words) {
        for _ in 0..1 + self.below(20) / 19 {
            if self.below(2) == 0 {
                words.extend([b"FROMMEMBER".to_vec(), self.element()]);
            } else {
                words.push(b"fromlonlat".to_vec());
                self.place(words);
            }
        }
        for _ in 0..1 + self.below(20) / 19 {
            let (word, count) = if self.below(2) == 0 { ("BYRADIUS", 1) } else { ("bybox", 2) };
            words.push(word.into());
            self.reach(count, words);
        }
    }

    /// Commands on bits and HyperLogLogs.
    fn bit_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        match name {
            "bitop" => {
                words.push(self.pick(&["AND", "or", "XOR", "not", "NOT", "x"]).into());
                let most = if words[1].eq_ignore_ascii_case(b"not") { 2 } else { 4 };
                return Some(self.repeat(words, most, |g, words| words.push(g.key_of("b"))));
            }
            "pfadd" => {
                // PFCOUNT writes down what it found in Redis: keys whose bytes are compared are not counted.
                words.push(if self.below(3) == 0 { self.compared_sketch() } else { self.key_of("p") });
                let most = if self.below(20) == 0 { 900 } else { 3 };
                return Some(
                    self.repeat(words, most, |g, words| words.push(g.below(20_000).to_string().into())),
                );
            }
            "pfmerge" if self.below(3) == 0 => {
                words.push(self.compared_sketch());
                return Some(self.repeat(words, 2, |g, words| words.push(g.key_of("p"))));
            }
            "pfcount" | "pfmerge" => {
                return Some(self.repeat(words, 3, |g, words| words.push(g.key_of("p"))));
            }
            _ => {}
        }
        words.push(self.key_of("b"));
        match name {
            "getbit" => words.push(self.bit()),
            "setbit" => words.extend([self.bit(), self.pick(&["0", "1", "1", "2", "x"]).into()]),
            "bitcount" | "bitpos" => {
                if name == "bitpos" {
                    words.push(self.pick(&["0", "1", "2", "x"]).into());
                }
                if self.below(4) > 0 {
                    words.push(self.small());
                    if self.below(4) > 0 {
                        words.push(self.small());
                        if self.below(2) == 0 {
                            words.push(self.pick(&["BIT", "byte", "x"]).into());
                        }
                    }
                }
            }
            "bitfield" | "bitfield_ro" => {
                for _ in 0..self.below(4) {
                    self.bitfield_step(name == "bitfield_ro", &mut words);
                }
            }
            _ => return None,
        }
        Some(words)
    }

    fn compared_sketch(&mut self) -> Vec<u8> {
        self.pick(&["q1", "q2"]).into()
    }

    fn bit(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.pick(&["-1", "x", "4294967296", "9223372036854775807", ""]).into(),
            _ => self.below(300).to_string().into_bytes(),
        }
    }

    fn bitfield_step(&mut self, reads: bool, words: &mut Words) {
        if !reads && self.below(4) == 0 {
            words.extend([b"OVERFLOW".to_vec(), self.pick(&["WRAP", "sat", "FAIL", "x"]).into()]);
        }
        let act =
            if reads && self.below(8) > 0 { "GET" } else { self.pick(&["get", "SET", "INCRBY", "incrby"]) };
        let kind = self.pick(&["u1", "i5", "u8", "i8", "u16", "i32", "u63", "i64", "u64", "i0", "x"]);
        let at = self.below(100).to_string();
        let offset = if self.below(3) == 0 { format!("#{}", self.below(6)) } else { at };
        words.extend([act.into(), kind.into(), offset.into_bytes()]);
        if !act.eq_ignore_ascii_case("get") {
            words.push(self.number());
        }
    }

    /// Commands on lists.
    fn list_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        let pairs = ["lmove", "rpoplpush", "blmove", "brpoplpush"];
        let counted = ["lmpop", "blmpop"];
        let of_one =
            ["lindex", "linsert", "llen", "lpop", "lpos", "lpush", "lpushx", "lrange", "lrem", "lset"];
        let of_one = of_one.into_iter().chain(["ltrim", "rpop", "rpush", "rpushx", "blpop", "brpop"]);
        if pairs.contains(&name) {
            words.extend([self.key_of("l"), self.key_of("l")]);
        } else if of_one.into_iter().any(|one| one == name) {
            words.push(self.key_of("l"));
        }
        match name {
            "llen" | "rpoplpush" => {}
            "lpush" | "rpush" | "lpushx" | "rpushx" => {
                let most = if self.below(30) == 0 { 200 } else { 3 };
                return Some(self.repeat(words, most, |g, words| words.push(g.element())));
            }
            "lpop" | "rpop" if self.below(2) == 0 => {}
            "lpop" | "rpop" | "lindex" => words.push(self.small()),
            "lrange" | "ltrim" => {
                words.extend([self.small(), self.small()]);
                if self.below(5) == 0 {
                    words[2] = self.number();
                }
            }
            "lrem" => words.extend([self.small(), self.element()]),
            "lset" => words.extend([self.small(), self.element()]),
            "linsert" => {
                words.extend([self.pick(&["BEFORE", "after", "x"]).into(), self.element(), self.element()]);
            }
            "lpos" => {
                words.push(self.element());
                for _ in 0..self.below(3) {
                    words.extend([self.pick(&["RANK", "count", "MAXLEN", "x"]).into(), self.small()]);
                }
            }
            "lmove" | "blmove" => {
                let ends = ["LEFT", "right", "LEFT", "RIGHT", "x"];
                words.extend([self.pick(&ends).into(), self.pick(&ends).into()]);
            }
            "blpop" | "brpop" => {
                if self.below(2) == 0 {
                    words.push(self.key_of("l"));
                }
            }
            "brpoplpush" => {}
            "sort" | "sort_ro" => self.sort(name, &mut words),
            name if counted.contains(&name) => self.multi_pop(name, "l", &["LEFT", "right", "x"], &mut words),
            _ => return None,
        }
        if is_blocking(name) && name != "blmpop" {
            words.push(self.timeout());
        }
        Some(words)
    }

    /// SORT: elements that are equal by their weights have no order, so ALPHA with BY is left out. Weights are of keys of their own: where a
    /// string has a NUL, Redis reads a number that ends there.
    fn sort(&mut self, name: &str, words: &mut Words) {
        let kind = self.pick(&["l", "l", "z", "s"]);
        let key = self.key_of(kind);
        // Members of a set that are not sorted come in any order; keys without a type's letter may be sets.
        let has_order = kind != "s" && key.starts_with(kind.as_bytes());
        words.push(key);
        match self.below(4) {
            0 => words.extend([b"BY".to_vec(), self.pick(&["w*", "h1->*", "h*->f"]).into()]),
            1 if has_order => words.extend([b"by".to_vec(), b"none".to_vec()]),
            _ => self.options(words, &["ALPHA"]),
        }
        self.limit(words);
        self.options(words, &["DESC", "asc", "desc"]);
        for _ in 0..self.below(3) {
            words.extend([b"GET".to_vec(), self.pick(&["#", "w*", "h*->f", "none"]).into()]);
        }
        if name == "sort" && self.below(3) == 0 {
            words.extend([b"STORE".to_vec(), self.key_of("l")]);
        }
        if self.below(20) == 0 {
            let weight = [b"w".to_vec(), self.element()].concat();
            *words = vec![b"SET".to_vec(), weight, self.pick(&["1", "2", "3.5", "-1"]).into()];
        }
    }

    /// Numbers of seconds that are soon over.
    fn timeout(&mut self) -> Vec<u8> {
        self.pick(&["0.001", "0.001", "0.001", "0.002", "1e-3", "x", "-1", "nan"]).into()
    }

    /// LMPOP and its like from the number of keys on.
    fn multi_pop(&mut self, name: &str, type_name: &str, sides: &[&str], words: &mut Words) {
        if is_blocking(name) {
            words.push(self.timeout());
        }
        words.push(self.pick(&["1", "2", "2", "0", "x"]).into());
        words.extend([self.key_of(type_name), self.key_of(type_name)]);
        if words[words.len() - 3] == b"1" {
            words.pop();
        }
        words.push(self.pick(sides).into());
        if self.below(2) == 0 {
            words.extend([b"COUNT".to_vec(), self.small()]);
        }
    }

    /// A score that both servers print in the same way.
    fn score(&mut self) -> Vec<u8> {
        self.pick(&["0", "1", "1", "2", "-1", "2.5", "-0.5", "1e3", "0x10", "inf", "x", "nan", ""]).into()
    }

    /// An end of a range of scores.
    fn score_bound(&mut self) -> Vec<u8> {
        self.pick(&["0", "1", "(1", "2", "-inf", "+inf", "(2.5", "-1", "x", "", "(", "1e3", " 1"]).into()
    }

    /// An end of a range of members.
    fn member_bound(&mut self) -> Vec<u8> {
        self.pick(&["-", "+", "[f", "(f", "[h", "(i", "[", "(", "x", "", "[2", "(20"]).into()
    }

    fn limit(&mut self, words: &mut Words) {
        if self.below(3) == 0 {
            words.extend([b"LIMIT".to_vec(), self.small(), self.small()]);
        }
    }

    /// Commands on sorted sets.
    fn sorted_set_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        if !(name.starts_with('z') || name.starts_with("bz")) {
            return None;
        }
        match name {
            "zmpop" | "bzmpop" => {
                self.multi_pop(name, "z", &["MIN", "max", "x"], &mut words);
                return Some(words);
            }
            "zunion" | "zinter" | "zdiff" | "zintercard" | "zunionstore" | "zinterstore" | "zdiffstore" => {
                return Some(self.combined(name, words));
            }
            // Members are in order among equal scores alone: keys whose scores are all 0, and whom nothing else changes.
            "zrangebylex" | "zrevrangebylex" | "zlexcount" | "zremrangebylex" => {
                words.push(self.pick(&["y1", "y2", "y3"]).into());
                words.extend([self.member_bound(), self.member_bound()]);
                if matches!(name, "zrangebylex" | "zrevrangebylex") {
                    self.limit(&mut words);
                }
                return Some(words);
            }
            "zadd" if self.below(4) == 0 => {
                words.push(self.pick(&["y1", "y2", "y3"]).into());
                return Some(self.repeat(words, 3, |g, words| words.extend([b"0".to_vec(), g.element()])));
            }
            _ => {}
        }
        words.push(self.key_of("z"));
        match name {
            "zcard" => {}
            "zadd" => {
                self.options(&mut words, &["NX", "xx", "GT", "lt", "CH", "INCR"]);
                let most = if self.below(30) == 0 { 200 } else { 3 };
                return Some(self.repeat(words, most, |g, words| words.extend([g.score(), g.element()])));
            }
            "zincrby" => words.extend([self.score(), self.element()]),
            "zrem" | "zmscore" => return Some(self.repeat(words, 3, |g, words| words.push(g.element()))),
            "zscore" | "zrank" | "zrevrank" => words.push(self.element()),
            "zcount" | "zremrangebyscore" => words.extend([self.score_bound(), self.score_bound()]),
            "zrangebyscore" | "zrevrangebyscore" => {
                words.extend([self.score_bound(), self.score_bound()]);
                self.options(&mut words, &["WITHSCORES"]);
                self.limit(&mut words);
            }
            "zremrangebyrank" => words.extend([self.small(), self.small()]),
            "zrevrange" => {
                words.extend([self.small(), self.small()]);
                self.options(&mut words, &["WITHSCORES", "x"]);
            }
            "zrange" => self.range(&mut words),
            "zrangestore" => {
                words.push(self.key_of("z"));
                self.range(&mut words);
            }
            "zpopmin" | "zpopmax" if self.below(2) == 0 => {}
            "zpopmin" | "zpopmax" => words.push(self.small()),
            "bzpopmin" | "bzpopmax" => words.push(self.timeout()),
            "zrandmember" => {
                words.push(self.all_or_none());
                self.options(&mut words, &["WITHSCORES"]);
            }
            "zscan" => self.scan_options(&mut words),
            _ => return None,
        }
        Some(words)
    }

    /// The bounds and options of ZRANGE.
    fn range(&mut self, words: &mut Words) {
        match self.below(3) {
            0 => {
                words.extend([self.small(), self.small()]);
                self.options(words, &["REV", "WITHSCORES", "x"]);
            }
            1 => {
                words.extend([self.score_bound(), self.score_bound(), b"BYSCORE".to_vec()]);
                self.options(words, &["REV", "WITHSCORES", "rev"]);
                self.limit(words);
            }
            _ => {
                let last = words.len() - 1;
                words[last] = self.pick(&["y1", "y2", "y3"]).into();
                words.extend([self.member_bound(), self.member_bound(), b"bylex".to_vec()]);
                self.options(words, &["REV", "WITHSCORES"]);
                self.limit(words);
            }
        }
    }

    /// ZUNION and its like.
    fn combined(&mut self, name: &str, mut words: Words) -> Words {
        if name.ends_with("store") {
            words.push(self.key_of("z"));
        }
        let count = 1 + self.below(3);
        words.push(if self.below(12) == 0 { self.small() } else { count.to_string().into() });
        for _ in 0..count {
            let kind = self.pick(&["z", "z", "z", "s"]);
            words.push(self.key_of(kind));
        }
        if self.below(3) == 0 {
            words.push(b"WEIGHTS".to_vec());
            (0..count).for_each(|_| words.push(self.pick(&["1", "2", "0.5", "-1", "0", "x"]).into()));
        }
        if self.below(3) == 0 {
            words.extend([b"AGGREGATE".to_vec(), self.pick(&["SUM", "min", "MAX", "x"]).into()]);
        }
        if self.below(3) == 0 {
            words.push(b"WITHSCORES".to_vec());
        }
        if name == "zintercard" && self.below(2) == 0 {
            words.extend([b"LIMIT".to_vec(), self.small()]);
        }
        words
    }

    /// A count by which chance decides nothing.
    fn all_or_none(&mut self) -> Vec<u8> {
        self.pick(&["1000", "0", "x", "9223372036854775807", "-9223372036854775808"]).into()
    }

    fn scan_options(&mut self, words: &mut Words) {
        words.extend([self.pick(&["0", "0", "0", "x"]).into(), b"COUNT".to_vec(), b"10000".to_vec()]);
        if self.below(3) == 0 {
            words.extend([b"MATCH".to_vec(), self.pattern()]);
        }
    }

    fn string_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        let key = self.key();
        match name {
            "get" if self.below(6) == 0 => words.push(self.compared_sketch()),
            "get" | "getdel" | "strlen" | "incr" | "decr" => words.push(key),
            "set" => {
                words.extend([key, self.value()]);
                self.options(&mut words, &["NX", "XX", "GET", "KEEPTTL", "nx", "get"]);
                if self.below(4) == 0 {
                    self.expiry_option(&mut words);
                }
            }
            "setnx" | "getset" | "append" => words.extend([key, self.value()]),
            "setex" => words.extend([key, self.seconds(), self.value()]),
            "psetex" => words.extend([key, self.millis(), self.value()]),
            "getex" => {
                words.push(key);
                match self.below(4) {
                    0 => words.push(b"PERSIST".to_vec()),
                    1 | 2 => self.expiry_option(&mut words),
                    _ => {}
                }
            }
            "mget" => return Some(self.repeat(words, 4, |g, words| words.push(g.key()))),
            "mset" | "msetnx" => {
                return Some(self.repeat(words, 3, |g, words| words.extend([g.key(), g.value()])));
            }
            "getrange" | "substr" => {
                words.extend([key, self.small(), self.small()]);
                if self.below(5) == 0 {
                    words[2] = self.number();
                }
            }
            "setrange" => {
                let offset =
                    if self.below(5) == 0 { self.edge_offset() } else { self.below(60).to_string().into() };
                words.extend([key, offset, self.value()]);
            }
            "incrby" | "decrby" => words.extend([key, self.number()]),
            "incrbyfloat" => {
                let by = self.pick(&["0.5", "-0.25", "1", "3.0e1", "x", "", "nan", "inf", "-2.75", "+5"]);
                // Keys of their own: what others leave behind may be larger than `long double` is exact.
                let key = self.pick(&["f1", "f2", "f3"]);
                words.extend([key.into(), by.into()]);
                if self.below(4) == 0 {
                    let start = self.pick(&["3", "-1.5", "10.25", "x", ""]);
                    return Some(vec![b"SET".to_vec(), key.into(), start.into()]);
                }
            }
            "lcs" => {
                words.extend([key, self.key()]);
                self.options(&mut words, &["LEN", "IDX", "WITHMATCHLEN", "MINMATCHLEN"]);
                if words.last().is_some_and(|word| word == b"MINMATCHLEN") {
                    words.push(self.small());
                }
            }
            _ => return None,
        }
        Some(words)
    }

    /// Offsets that no server takes, or that are too large.
    fn edge_offset(&mut self) -> Vec<u8> {
        self.pick(&["-1", "536870912", "9223372036854775807", "-9223372036854775808", "x"]).into()
    }

    fn key_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        let key = self.key();
        match name {
            "type" | "ttl" | "pttl" | "expiretime" | "pexpiretime" | "persist" | "dump" => words.push(key),
            "del" | "unlink" | "exists" | "touch" | "watch" => {
                return Some(self.repeat(words, 3, |g, words| words.push(g.key())));
            }
            "expire" | "pexpire" | "expireat" | "pexpireat" => {
                let time = match name {
                    "expire" => self.seconds(),
                    "pexpire" => self.millis(),
                    "expireat" => self.at(),
                    _ => self.at_millis(),
                };
                words.extend([key, time]);
                self.options(&mut words, &["NX", "XX", "GT", "LT", "gt", "no"]);
            }
            "rename" | "renamenx" => words.extend([key, self.key()]),
            "copy" => {
                words.extend([key, self.key()]);
                if self.below(3) == 0 {
                    words.extend([b"DB".to_vec(), self.database()]);
                }
                self.options(&mut words, &["REPLACE"]);
            }
            "move" => words.extend([key, self.database()]),
            "keys" => words.push(self.pattern()),
            "scan" => {
                let cursor = self.pick(&["0", "0", "0", "0", "x", "-1"]);
                words.extend([cursor.into(), b"COUNT".to_vec(), b"10000".to_vec()]);
                if self.below(2) == 0 {
                    words.extend([b"MATCH".to_vec(), self.pattern()]);
                }
                if self.below(4) == 0 {
                    words.extend([
                        b"TYPE".to_vec(),
                        self.pick(&["string", "hash", "STRING", "list", "zset", "stream"]).into(),
                    ]);
                }
            }
            "object|encoding" | "object|refcount" | "object|idletime" | "object|freq" | "memory|usage"
            | "debug|object" => words.push(key),
            "restore" => {
                let ttl = self.pick(&["0", "100000", "-1", "x"]);
                words.extend([key, ttl.into(), self.value()]);
                self.options(&mut words, &["REPLACE", "ABSTTL"]);
            }
            "randomkey" | "dbsize" | "module|list" => {}
            _ => return None,
        }
        Some(words)
    }

    fn database(&mut self) -> Vec<u8> {
        self.pick(&["0", "1", "2", "0", "1", "15", "16", "-1", "x", "9223372036854775807"]).into()
    }

    fn other_command(&mut self, name: &str, mut words: Words) -> Option<Words> {
        match name {
            "ping" if self.below(2) == 0 => words.push(self.value()),
            "ping" => {}
            name if BARE.contains(&name) => {}
            "auth" => return Some(self.repeat(words, 1, |g, words| words.push(g.value()))),
            "echo" => words.push(self.value()),
            "hello" => {
                words.extend([self.pick(&["2", "3", "3", "4", "x"]).into()]);
                if self.below(4) == 0 {
                    words.extend([b"SETNAME".to_vec(), self.pick(&["me", "a b"]).into()]);
                }
            }
            "select" => {
                words.push(self.pick(&["0", "0", "0", "1", "2", "16", "-1", "x", "2147483648"]).into());
            }
            "swapdb" => words.extend([self.database(), self.database()]),
            "flushall" | "flushdb" => self.options(&mut words, &["SYNC", "async", "x"]),
            "client|setname" => words.push(self.pick(&["", "me", "a b", "x\n", "~"]).into()),
            "client|no-evict" => words.push(self.pick(&["on", "off", "x"]).into()),
            "client|unblock" => words.push(self.pick(&["99999", "x"]).into()),
            "publish" | "spublish" => words.extend([self.pick(&["nobody", ""]).into(), self.value()]),
            // One name each: there is a reply for each name.
            "subscribe" | "psubscribe" | "ssubscribe" if self.below(20) > 0 => return None,
            "subscribe" | "psubscribe" | "ssubscribe" | "unsubscribe" | "punsubscribe" | "sunsubscribe" => {
                words.push(self.pick(&["one", "two", "th*"]).into());
            }
            "pubsub|numsub" | "pubsub|shardnumsub" => {
                return Some(self.repeat(words, 2, |g, words| words.push(g.key())));
            }
            "config|get" => words.push(self.pick(&["maxclients", "nosuch", "databases"]).into()),
            "wait" => {
                words.extend([self.pick(&["0", "-1", "x"]).into(), self.pick(&["0", "1", "-1", "x"]).into()]);
            }
            "debug|set-active-expire" => words.push(b"1".to_vec()),
            "latency|history" => words.push(self.pick(&["command", "nosuch"]).into()),
            "command|info" => {
                let names =
                    ["get", "set", "mset", "del", "rename", "lcs", "nosuch", "object|freq", "expire", "ping"];
                words.push(self.pick(&names).into());
            }
            "command|getkeys" | "command|getkeysandflags" => {
                let inner = self.pick(&[
                    "get",
                    "mset",
                    "rename",
                    "lcs",
                    "ping",
                    "copy",
                    "del",
                    "getex",
                    "zunionstore",
                    "lmpop",
                    "blpop",
                    "bzmpop",
                ]);
                words.extend(self.arguments(inner));
            }
            _ => return None,
        }
        Some(words)
    }
}

/// Commands on groups of a stream, but XGROUP's own.
const GROUP_COMMANDS: [&str; 4] = ["xack", "xpending", "xclaim", "xautoclaim"];

/// Commands that are sent by their name alone.
const BARE: [&str; 27] = [
    "multi",
    "exec",
    "discard",
    "unwatch",
    "reset",
    "role",
    "time",
    "lastsave",
    "info",
    "client|id",
    "client|getname",
    "client|info",
    "client|list",
    "client|getredir",
    "client|trackinginfo",
    "client|unpause",
    "pubsub|numpat",
    "pubsub|channels",
    "pubsub|shardchannels",
    "function|kill",
    "slowlog|len",
    "slowlog|reset",
    "slowlog|get",
    "latency|reset",
    "memory|purge",
    "function|list",
    "function|flush",
];
