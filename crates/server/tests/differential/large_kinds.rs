//! Commands on one collection: those that look, and those that change a little.

use super::{Kind, Large, Step, Words};

impl Large {
    pub(super) fn list(&mut self, key: &[u8], size: u64) -> Step {
        let index = self.index(size).to_string();
        let sides = ["LEFT", "RIGHT"];
        Step::Same(match self.below(16) {
            0 => words!["LSET", key, index, self.value()],
            1 => words!["LINSERT", key, self.pick(&["BEFORE", "AFTER"]), self.value(), self.value()],
            2 => words!["LREM", key, self.pick(&["0", "1", "-1", "3", "-3"]), self.value()],
            3 => [words!["LRANGE", key], self.range(size).map(Vec::from).to_vec()].concat(),
            4 => words!["LINDEX", key, index],
            5 => self.positions(key),
            6 => words!["LMOVE", key, self.key(Kind::List), self.pick(&sides), self.pick(&sides)],
            7 => words!["RPOPLPUSH", key, self.key(Kind::List)],
            8 => {
                let other = self.key(Kind::List);
                words!["LMPOP", "2", key, other, self.pick(&sides), "COUNT", self.count().to_string()]
            }
            9 => words![self.pick(&["LPUSHX", "RPUSHX"]), key, self.value(), self.value()],
            10 => words![self.pick(&["LPOP", "RPOP"]), key],
            11 if self.one_in(10) => {
                [words!["LTRIM", key], self.range(size).map(Vec::from).to_vec()].concat()
            }
            12 if self.one_in(5) => self.sort(key, ""),
            13 if self.one_in(10) => words!["LRANGE", key, "0", "-1"],
            14 => words!["LSET", key, self.pick(&["0", "-1"]), self.value()],
            _ => words!["LLEN", key],
        })
    }

    fn positions(&mut self, key: &[u8]) -> Words {
        let mut words = words!["LPOS", key, self.value()];
        for (option, numbers) in [
            ("RANK", &["1", "-1", "2", "-2"]),
            ("COUNT", &["0", "1", "3", "9"]),
            ("MAXLEN", &["0", "10", "100", "1000"]),
        ] {
            if self.one_in(2) {
                words.extend(words![option, self.pick(numbers)]);
            }
        }
        words
    }

    /// SORT by the elements as texts: only they decide. `by` stands before ALPHA.
    fn sort(&mut self, key: &[u8], by: &str) -> Words {
        let mut words = words!["SORT", key];
        words.extend(by.split_whitespace().map(Vec::from));
        self.limit(&mut words);
        words.extend(words!["ALPHA", self.pick(&["ASC", "DESC"])]);
        if self.one_in(3) {
            words.extend(words!["STORE", self.key(Kind::List)]);
        }
        words
    }

    pub(super) fn hash(&mut self, key: &[u8]) -> Step {
        let count = self.count();
        Step::Same(match self.below(16) {
            0 => words!["HSETNX", key, self.member(key), self.value()],
            1 => words!["HGET", key, self.member(key)],
            2 => self.members(words!["HMGET", key], 20),
            3 => words!["HEXISTS", key, self.member(key)],
            4 => words!["HSTRLEN", key, self.member(key)],
            5 => words![
                "HINCRBY",
                key,
                format!("n{}", self.below(50)),
                (self.below(90) as i64 - 45).to_string()
            ],
            6 => {
                words!["HINCRBYFLOAT", key, format!("d{}", self.below(9)), self.pick(&["0.25", "-1.5", "3"])]
            }
            7 => words!["HSET", key, self.member(key), self.value()],
            8 if self.one_in(6) => words![self.pick(&["HGETALL", "HKEYS", "HVALS"]), key],
            9 => {
                let mut words = words!["HRANDFIELD", key, self.signed(count)];
                if self.one_in(2) {
                    words.push(b"WITHVALUES".to_vec());
                }
                return Step::Chosen(words);
            }
            10 if self.one_in(4) => return self.walk(Kind::Hash, key),
            11 => words!["HMSET", key, self.member(key), self.value(), self.member(key), self.value()],
            _ => words!["HLEN", key],
        })
    }

    /// A number of elements that are drawn: without doubles, or with.
    fn signed(&mut self, count: u64) -> String {
        let sign = self.pick(&["", "", "-"]);
        format!("{sign}{count}")
    }

    pub(super) fn set(&mut self, key: &[u8]) -> Step {
        let count = self.count();
        let (other, to) = (self.key(Kind::Set), self.key(Kind::Set));
        let any = if self.one_in(6) { self.key(Kind::Sorted) } else { self.key(Kind::Set) };
        Step::Same(match self.below(16) {
            0 => words!["SISMEMBER", key, self.member(key)],
            1 => self.members(words!["SMISMEMBER", key], 20),
            2 => words!["SMOVE", key, other, self.member(key)],
            3 => words![self.pick(&["SINTER", "SUNION", "SDIFF"]), key, other],
            4 => words!["SINTERCARD", "2", key, any, "LIMIT", self.pick(&["0", "1", "10", "100"])],
            5 if self.one_in(3) => {
                words![self.pick(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]), to, key, other]
            }
            6 => return Step::Pop(key.to_vec(), Some(count)),
            7 => return Step::Pop(key.to_vec(), None),
            8 => return Step::Chosen(words!["SRANDMEMBER", key, self.signed(count)]),
            9 if self.one_in(4) => return self.walk(Kind::Set, key),
            10 if self.one_in(6) => words!["SMEMBERS", key],
            11 if self.one_in(5) => self.sort(key, ""),
            12 => self.members(words!["SADD", key], 2),
            13 => words!["SREM", key, self.member(key)],
            _ => words!["SCARD", key],
        })
    }

    /// A walk over a collection, in which others appear and go.
    pub(super) fn walk(&mut self, kind: Kind, key: &[u8]) -> Step {
        let name = match kind {
            Kind::Hash => "HSCAN",
            Kind::Set => "SSCAN",
            _ => "ZSCAN",
        };
        let count = self.pick(&["5", "30", "200"]);
        let (changes, each) = (self.below(20), self.most / 40 + 1);
        let grows = self.one_in(2);
        let changes = (0..changes).map(|_| match self.fewer(kind, key, each) {
            Step::Same(words) if !grows => words,
            _ => self.more(kind, key, each),
        });
        let changes = changes.collect();
        Step::Walk(words![name, key, "COUNT", count], changes)
    }

    pub(super) fn sorted(&mut self, key: &[u8], size: u64) -> Step {
        let index = [words![key], self.range(size).map(Vec::from).to_vec()].concat();
        let scores = words![key, self.score_bound(), self.score_bound()];
        let named = |name: &str, rest: Words| [words![name], rest].concat();
        let (other, count) = (self.key(Kind::Sorted), self.count());
        Step::Same(match self.below(27) {
            0 => words!["ZINCRBY", key, self.pick(&["1", "-5", "0.5"]), self.member(key)],
            1 => words!["ZSCORE", key, self.member(key)],
            2 => words![self.pick(&["ZRANK", "ZREVRANK"]), key, self.member(key)],
            3 => [named("ZRANGE", index), words!["WITHSCORES"]].concat(),
            4 => [named("ZREVRANGE", index), words!["WITHSCORES"]].concat(),
            5 | 6 => {
                let mut words = named(self.pick(&["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]), scores);
                words.push(b"WITHSCORES".to_vec());
                self.limit(&mut words);
                words
            }
            7 => named("ZCOUNT", scores),
            8 => words![self.pick(&["ZPOPMIN", "ZPOPMAX"]), key],
            9 => self.members(words!["ZMSCORE", key], 20),
            10 if self.one_in(5) => named("ZREMRANGEBYRANK", index),
            11 if self.one_in(9) => named("ZREMRANGEBYSCORE", scores),
            12..16 => self.sorted_store(&index, &scores),
            16 if self.one_in(2) => {
                words![self.pick(&["ZUNION", "ZINTER", "ZDIFF"]), "2", key, other, "WITHSCORES"]
            }
            17 => words!["ZINTERCARD", "2", key, other, "LIMIT", self.pick(&["0", "1", "50"])],
            18 => words!["ZMPOP", "2", key, other, self.pick(&["MIN", "MAX"]), "COUNT", count.to_string()],
            19 => {
                let flags = self.pick(&["NX", "XX", "GT", "LT", "CH", "INCR"]);
                words!["ZADD", key, flags, self.score(), self.member(key)]
            }
            20 => return Step::Chosen(words!["ZRANDMEMBER", key, self.signed(count), "WITHSCORES"]),
            21 if self.one_in(4) => return self.walk(Kind::Sorted, key),
            22 if self.one_in(4) => self.sort(key, ""),
            23 if self.one_in(4) => self.sort(key, "BY none"),
            24 => words!["ZADD", key, self.score(), self.member(key)],
            25 => words!["GEOPOS", key, self.member(key)],
            26 => words!["ZREM", key, self.member(key)],
            _ => words!["ZCARD", key],
        })
    }

    /// What makes a sorted set of others. `index` and `scores` are a key and the ends of a range.
    fn sorted_store(&mut self, index: &[Vec<u8>], scores: &[Vec<u8>]) -> Words {
        let (key, to, other) = (&index[0][..], self.key(Kind::Sorted), self.key(Kind::Sorted));
        match self.below(14) {
            0 => {
                let mut words = [words!["ZRANGESTORE", to], scores.to_vec(), words!["BYSCORE"]].concat();
                self.limit(&mut words);
                words
            }
            1 => [words!["ZRANGESTORE", to], index.to_vec()].concat(),
            2 => {
                let name = self.pick(&["ZUNIONSTORE", "ZINTERSTORE"]);
                let weight = self.pick(&["2", "-1", "0.5"]);
                let keys = words![name, to, "2", key, other, "WEIGHTS", "1", weight];
                [keys, words!["AGGREGATE", self.pick(&["SUM", "MIN", "MAX"])]].concat()
            }
            3 => words!["ZDIFFSTORE", to, "2", key, other],
            4 => words!["ZUNIONSTORE", to, "2", key, self.key(Kind::Set)],
            _ => words!["ZCARD", key],
        }
    }

    pub(super) fn lexical(&mut self, key: &[u8]) -> Step {
        let bounds = words![key, self.member_bound(key), self.member_bound(key)];
        let named = |name: &str| [words![name], bounds.clone()].concat();
        Step::Same(match self.below(8) {
            0 | 1 => {
                let mut words = named(self.pick(&["ZRANGEBYLEX", "ZREVRANGEBYLEX"]));
                self.limit(&mut words);
                words
            }
            2 => named("ZLEXCOUNT"),
            3 if self.one_in(6) => named("ZREMRANGEBYLEX"),
            4 if self.one_in(3) => {
                let to = self.key(Kind::Lexical);
                [words!["ZRANGESTORE", to], bounds, words!["BYLEX"]].concat()
            }
            5 => words![self.pick(&["ZRANK", "ZREVRANK"]), key, self.member(key)],
            6 => words!["ZADD", key, "0", self.member(key)],
            _ => words!["ZCARD", key],
        })
    }

    /// The identifier of one of the last `count` entries, or of none.
    pub(super) fn id(&mut self, count: u64) -> Vec<u8> {
        let before = self.below(3 * count + 3);
        format!("{}-1", self.newest.saturating_sub(before)).into_bytes()
    }

    fn ids(&mut self, mut words: Words, size: u64) -> Words {
        let mut last = self.newest.saturating_sub(self.below(2 * size + 2));
        for _ in 0..self.count() {
            // the same identifier twice is answered twice by Redis, and in 7.2 once
            last += 1 + self.below(4);
            words.push(format!("{last}-1").into_bytes());
        }
        words
    }

    pub(super) fn stream(&mut self, key: &[u8], size: u64) -> Step {
        let (group, consumer) = (self.pick(&["g1", "g2"]), self.pick(&["c1", "c2", "c3"]));
        let (count, id) = (self.count().to_string(), self.id(size));
        let to = self.id(size);
        Step::Same(match self.below(26) {
            0 => words!["XRANGE", key, id, to, "COUNT", count],
            1 => words!["XREVRANGE", key, self.pick(&["+", "(9999999-1"]), id, "COUNT", count],
            2 => words!["XDEL", key, id],
            3 if self.one_in(4) => words!["XTRIM", key, "MAXLEN", self.below(size + 1).to_string()],
            4 if self.one_in(4) => words!["XTRIM", key, "MINID", id],
            5 => words!["XGROUP", "CREATE", key, group, self.pick(&["0", "$"])],
            6 if self.one_in(4) => {
                words!["XREADGROUP", "GROUP", group, consumer, "COUNT", count, "NOACK", "STREAMS", key, ">"]
            }
            6..9 => words!["XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">"],
            9 => words!["XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, id],
            10 => self.ids(words!["XACK", key, group], size),
            11 => words!["XPENDING", key, group],
            12 => words!["XPENDING", key, group, id, "+", count],
            13 => words!["XPENDING", key, group, "-", "+", count, consumer],
            14 => {
                let words = self.ids(words!["XCLAIM", key, group, consumer, "0"], size);
                [words, words![self.pick(&["JUSTID", "FORCE", "RETRYCOUNT"])]].concat()
            }
            15 | 16 => {
                let start = if self.one_in(2) { b"0-0".to_vec() } else { id };
                let mut words = words!["XAUTOCLAIM", key, group, consumer, "0", start, "COUNT", count];
                if self.one_in(2) {
                    words.push(b"JUSTID".to_vec());
                }
                words
            }
            17 => words!["XREAD", "COUNT", count, "STREAMS", key, self.key(Kind::Stream), id, to],
            18 => words!["XINFO", self.pick(&["STREAM", "GROUPS"]), key],
            19 => words!["XINFO", "CONSUMERS", key, group],
            20 if self.one_in(6) => words!["XGROUP", "DESTROY", key, group],
            20 => words!["XGROUP", "DELCONSUMER", key, group, consumer],
            21 => words!["XGROUP", "SETID", key, group, id],
            22 if self.one_in(4) => return Step::TrimAbout(key.to_vec(), self.below(size + 1)),
            23 => {
                self.newest += 1;
                let sequence = self.pick(&["1", "*"]);
                let added = format!("{}-{sequence}", self.newest);
                let [how, bound] = if self.one_in(3) {
                    [b"MINID".to_vec(), id]
                } else {
                    [b"MAXLEN".to_vec(), (size + 1).to_string().into()]
                };
                words!["XADD", key, how, bound, added, "f", self.value(), "g", "1"]
            }
            24 if self.one_in(9) => {
                self.newest += 1;
                words!["XSETID", key, format!("{}-0", self.newest)]
            }
            _ => words!["XLEN", key],
        })
    }
}
