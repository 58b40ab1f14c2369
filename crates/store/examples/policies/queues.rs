//! Policies of the literature, on queues of all keys.

use std::collections::VecDeque;

use crate::Cache;

/// A list of keys, linked through arrays.
struct List {
    newer: Vec<usize>,
    older: Vec<usize>,
    newest: usize,
    oldest: usize,
    len: usize,
}

impl List {
    fn new(keys: usize) -> Self {
        Self { newer: vec![NONE; keys], older: vec![NONE; keys], newest: NONE, oldest: NONE, len: 0 }
    }

    fn push(&mut self, key: usize) {
        (self.newer[key], self.older[key]) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = key,
            newest => self.newer[newest] = key,
        }
        self.newest = key;
        self.len += 1;
    }

    fn remove(&mut self, key: usize) {
        let (newer, older) = (self.newer[key], self.older[key]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older] = newer,
        }
        self.len -= 1;
    }

    fn pop(&mut self) -> usize {
        let oldest = self.oldest;
        self.remove(oldest);
        oldest
    }
}

const NONE: usize = usize::MAX;

/// The least recently used value goes.
pub(crate) struct Lru {
    list: List,
    is_in: Vec<bool>,
    room: usize,
}

impl Lru {
    pub(crate) fn new(keys: usize, room: usize) -> Self {
        Self { list: List::new(keys), is_in: vec![false; keys], room }
    }
}

impl Cache for Lru {
    fn read(&mut self, key: usize) -> bool {
        let hit = self.is_in[key];
        if hit {
            self.list.remove(key);
        } else if self.list.len >= self.room {
            let gone = self.list.pop();
            self.is_in[gone] = false;
        }
        self.is_in[key] = true;
        self.list.push(key);
        hit
    }
}

/// SIEVE (Zhang et al. 2024).
pub(crate) struct Sieve {
    list: List,
    is_in: Vec<bool>,
    visited: Vec<bool>,
    hand: usize,
    room: usize,
}

impl Sieve {
    pub(crate) fn new(keys: usize, room: usize) -> Self {
        let (is_in, visited) = (vec![false; keys], vec![false; keys]);
        Self { list: List::new(keys), is_in, visited, hand: NONE, room }
    }

    fn drop_one(&mut self) {
        let mut at = if self.hand == NONE { self.list.oldest } else { self.hand };
        while std::mem::take(&mut self.visited[at]) {
            at = self.list.newer[at];
            if at == NONE {
                at = self.list.oldest;
            }
        }
        self.hand = self.list.newer[at];
        self.list.remove(at);
        self.is_in[at] = false;
    }
}

impl Cache for Sieve {
    fn read(&mut self, key: usize) -> bool {
        if self.is_in[key] {
            self.visited[key] = true;
            return true;
        }
        if self.list.len >= self.room {
            self.drop_one();
        }
        self.is_in[key] = true;
        self.list.push(key);
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    None,
    Small,
    Main,
    Ghost,
}

/// S3-FIFO (Yang et al. 2023): a tenth of the room for new values, as many ghosts as values.
pub(crate) struct S3Fifo {
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    ghosts: VecDeque<usize>,
    queue: Vec<Queue>,
    count: Vec<u8>,
    room: usize,
}

impl S3Fifo {
    pub(crate) fn new(keys: usize, room: usize) -> Self {
        let (small, main, ghosts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { small, main, ghosts, queue: vec![Queue::None; keys], count: vec![0; keys], room }
    }

    fn drop_one(&mut self) {
        while self.small.len() >= self.room / 10 {
            let Some(key) = self.small.pop_front() else { break };
            if self.count[key] <= 1 {
                self.add_ghost(key);
                return;
            }
            self.count[key] = 0;
            self.queue[key] = Queue::Main;
            self.main.push_back(key);
        }
        while let Some(key) = self.main.pop_front() {
            if self.count[key] == 0 {
                self.queue[key] = Queue::None;
                return;
            }
            self.count[key] -= 1;
            self.main.push_back(key);
        }
    }

    fn add_ghost(&mut self, key: usize) {
        self.queue[key] = Queue::Ghost;
        self.ghosts.push_back(key);
        if self.ghosts.len() > self.room
            && let Some(oldest) = self.ghosts.pop_front()
            && self.queue[oldest] == Queue::Ghost
        {
            self.queue[oldest] = Queue::None;
        }
    }
}

impl Cache for S3Fifo {
    fn read(&mut self, key: usize) -> bool {
        if matches!(self.queue[key], Queue::Small | Queue::Main) {
            self.count[key] = (self.count[key] + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.room {
            self.drop_one();
        }
        self.count[key] = 0;
        if self.queue[key] == Queue::Ghost {
            self.queue[key] = Queue::Main;
            self.main.push_back(key);
        } else {
            self.queue[key] = Queue::Small;
            self.small.push_back(key);
        }
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    None,
    Window,
    Probation,
    Protected,
}

/// W-TinyLFU (Einziger et al. 2017) with a window of 1 %, four fifths of the rest protected, and exact counts of 4 bits in place of the
/// sketch, halved every ten reads for each value in memory.
pub(crate) struct TinyLfu {
    window: List,
    probation: List,
    protected: List,
    segment: Vec<Segment>,
    count: Vec<u8>,
    reads: usize,
    room: usize,
}

impl TinyLfu {
    pub(crate) fn new(keys: usize, room: usize) -> Self {
        let [window, probation, protected] = [(); 3].map(|()| List::new(keys));
        let (segment, count) = (vec![Segment::None; keys], vec![0; keys]);
        Self { window, probation, protected, segment, count, reads: 0, room }
    }

    fn add_count(&mut self, key: usize) {
        self.count[key] = (self.count[key] + 1).min(15);
        self.reads += 1;
        if self.reads >= 10 * self.room {
            self.reads /= 2;
            self.count.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn hit(&mut self, key: usize) {
        match self.segment[key] {
            Segment::None => {}
            Segment::Window => {
                self.window.remove(key);
                self.window.push(key);
            }
            Segment::Probation => {
                self.probation.remove(key);
                self.protected.push(key);
                self.segment[key] = Segment::Protected;
                if self.protected.len > (self.room - self.room / 100) / 5 * 4 {
                    let demoted = self.protected.pop();
                    self.segment[demoted] = Segment::Probation;
                    self.probation.push(demoted);
                }
            }
            Segment::Protected => {
                self.protected.remove(key);
                self.protected.push(key);
            }
        }
    }

    /// The oldest of the window replaces the oldest of the rest if it was read more often.
    fn compete(&mut self) {
        let candidate = self.window.pop();
        self.segment[candidate] = Segment::None;
        if self.probation.len + self.protected.len >= self.room - self.room / 100 {
            let of = if self.probation.len > 0 { &mut self.probation } else { &mut self.protected };
            if self.count[candidate] <= self.count[of.oldest] {
                return;
            }
            let gone = of.pop();
            self.segment[gone] = Segment::None;
        }
        self.segment[candidate] = Segment::Probation;
        self.probation.push(candidate);
    }
}

impl Cache for TinyLfu {
    fn read(&mut self, key: usize) -> bool {
        self.add_count(key);
        if self.segment[key] != Segment::None {
            self.hit(key);
            return true;
        }
        self.segment[key] = Segment::Window;
        self.window.push(key);
        if self.window.len > self.room / 100 {
            self.compete();
        }
        false
    }
}
