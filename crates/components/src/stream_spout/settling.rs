//! What becomes of entries at the server: XACK of those that are done, letters for those that are given up.
//!
//! One request is under way at a time; what is done meanwhile goes with the next one, so many entries cost one request when there are many. What was under
//! way when the connection was lost is sent again. A letter is written before its entry is acknowledged: after a crash there may be two, and never none.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use connection::{Event, Link};
use resp::Value as Reply;
use topology::component::Fault;
use topology::tracker::DeadLetter;

use super::entries::{self, Wanted};

/// Where entries go that are given up.
#[derive(Clone, Debug)]
pub(super) struct DeadLetters {
    pub(super) key: String,
    /// Entries that it has, about.
    pub(super) max: u64,
}

/// Entries on their way out.
#[derive(Debug)]
pub(super) struct Settling {
    key: String,
    group: String,
    letters: Option<DeadLetters>,
    link: Option<Link>,
    life: Option<u64>,
    waiting: VecDeque<Settled>,
    /// What the request under way settles.
    under_way: VecDeque<Settled>,
}

#[derive(Debug)]
struct Settled {
    id: u128,
    /// The request that puts it into the stream of letters.
    letter: Option<Vec<u8>>,
}

impl Settling {
    pub(super) fn new(key: &str, group: &str, letters: Option<DeadLetters>) -> Self {
        Self {
            key: key.to_owned(),
            group: group.to_owned(),
            letters,
            link: None,
            life: None,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
        }
    }

    pub(super) fn start(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// An entry is done.
    pub(super) fn push(&mut self, id: u128) {
        self.waiting.push_back(Settled { id, letter: None });
    }

    /// An entry is given up: it stays pending if there is no stream for such.
    pub(super) fn push_letter(&mut self, letter: &DeadLetter, wanted: &[Wanted]) {
        let Some(letters) = &self.letters else { return };
        let id = letter.original.position.0;
        let request = request_of(letters, &self.key, letter, wanted);
        self.waiting.push_back(Settled { id, letter: Some(request) });
    }

    /// Takes replies, and sends what waits. What the server has settled leaves `known`.
    ///
    /// # Errors
    /// The server has refused it, or the connection is lost; both are tried again.
    pub(super) fn pump(&mut self, known: &mut HashSet<u128>) -> Result<(), Fault> {
        let mut result = Ok(());
        for event in self.link.as_ref().map(Link::take).unwrap_or_default() {
            match event {
                Event::Connected(life) => self.life = Some(life),
                Event::Reply(_, Reply::Error(text)) => {
                    let text = String::from_utf8_lossy(&text);
                    result = Err(Fault::new(format!(
                        "the server refused to settle entries of `{}`: {text}",
                        self.key
                    )));
                    self.give_back(known, text.starts_with("NOGROUP") || text.starts_with("WRONGTYPE"));
                }
                Event::Reply(..) => self.on_done(known),
                // The reader tells why.
                Event::Lost(_) => {
                    self.life = None;
                    self.give_back(known, false);
                }
            }
        }
        self.send();
        result
    }

    /// Settles what waits, at most for about `time`.
    pub(super) fn finish(&mut self, known: &mut HashSet<u128>, time: Duration) {
        for _ in 0..FINISH_ROUNDS {
            self.pump(known).unwrap_or(());
            let Some(link) = self.link.as_ref().filter(|_| !self.under_way.is_empty()) else { break };
            link.wait(time / FINISH_ROUNDS);
        }
        self.link = None;
    }

    /// What was under way is done; a letter that is written lets its entry be acknowledged.
    fn on_done(&mut self, known: &mut HashSet<u128>) {
        for Settled { id, letter } in self.under_way.drain(..) {
            if letter.is_some() {
                self.waiting.push_front(Settled { id, letter: None });
            } else {
                known.remove(&id);
            }
        }
    }

    /// What was under way is tried again, or of no use any more.
    fn give_back(&mut self, known: &mut HashSet<u128>, is_useless: bool) {
        while let Some(settled) = self.under_way.pop_back() {
            if is_useless {
                known.remove(&settled.id);
            } else {
                self.waiting.push_front(settled);
            }
        }
    }

    fn send(&mut self) {
        let (Some(link), Some(life)) = (&self.link, self.life) else { return };
        if !self.under_way.is_empty() {
            return;
        }
        let Some(first) = self.waiting.front() else { return };
        let plain = self.waiting.iter().take(BATCH_MAX).take_while(|next| next.letter.is_none()).count();
        if first.letter.is_some() {
            self.under_way.extend(self.waiting.pop_front());
        } else {
            self.under_way.extend(self.waiting.drain(..plain));
        }
        let is_sent = link.send(life, 0, |out| match &self.under_way[0].letter {
            Some(letter) => out.extend_from_slice(letter),
            None => self.append_ack(out),
        });
        if !is_sent {
            self.waiting.extend(self.under_way.drain(..));
        }
    }

    fn append_ack(&self, out: &mut Vec<u8>) {
        let mut words = vec!["XACK".to_owned(), self.key.clone(), self.group.clone()];
        words.extend(self.under_way.iter().map(|settled| entries::shown(settled.id)));
        resp::encode_command(out, &words);
    }
}

/// The XADD of a letter: where it came from, what went wrong, and its values.
fn request_of(letters: &DeadLetters, key: &str, letter: &DeadLetter, wanted: &[Wanted]) -> Vec<u8> {
    let max = letters.max.to_string();
    let mut words: Vec<Vec<u8>> =
        ["XADD", &letters.key, "MAXLEN", "~", &max, "*"].map(|word| word.as_bytes().to_vec()).into();
    let mut field = |name: &str, value: &[u8]| words.extend([name.as_bytes().to_vec(), value.to_vec()]);
    let original = &letter.original;
    field("stream", key.as_bytes());
    field("id", entries::shown(original.position.0).as_bytes());
    field("error", letter.error.as_bytes());
    field("attempts", original.attempts.to_string().as_bytes());
    for (place, wanted) in wanted.iter().enumerate() {
        let (Wanted::Field(name), Some(Ok(value))) = (wanted, original.values.value(place)) else { continue };
        let mut text = Vec::new();
        if value.append_text(&mut text).is_ok() {
            field(&format!("field:{name}"), &text);
        }
    }
    let mut request = Vec::new();
    resp::encode_command(&mut request, &words);
    request
}

const BATCH_MAX: usize = 1_000;
const FINISH_ROUNDS: u32 = 20;
