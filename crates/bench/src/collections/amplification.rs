//! Bytes given to the device for each byte of the user's (field and value), while fields of hashes are updated at random.

use std::time::Duration;

use crate::Failure;
use crate::client::{Client, Requests, value};
use crate::drive::Random;
use crate::figure::Figure;
use crate::process::{disk_bytes, written_bytes};
use crate::servers::{Recipe, Server};

use super::fill::{Kind, member};
use super::shape::Shape;
use super::sides::alone;

/// With values of 100 bytes, and of 16.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    [100, 16].iter().map(|value_bytes| of_values(*value_bytes, shape, elements, say)).collect()
}

fn of_values(
    value_bytes: usize,
    shape: &Shape,
    elements: u64,
    say: &dyn Fn(&str),
) -> Result<Figure, Failure> {
    let recipe = Recipe::evenkeel("log", "1s", shape.loops);
    let fields = (elements / shape.hashes).max(1);
    say(&format!("write amplification, values of {value_bytes} B: filling {} x {fields}", shape.hashes));
    let server = Server::start(&recipe, &shape.folder)?;
    let mut client = server.client()?;
    for hash in 0..shape.hashes {
        Kind::Hash.fill(&mut client, &key(hash), 0..fields, value_bytes)?;
    }
    let mut updates = Updates { random: Random::new(1), hashes: shape.hashes, fields, value_bytes };
    say(&format!("write amplification, values of {value_bytes} B: warming up"));
    updates.send(&mut client, elements * UPDATES_PER_ELEMENT)?;
    let before = settled_bytes(&server)?;
    say(&format!("write amplification, values of {value_bytes} B: measuring"));
    let user_bytes = updates.send(&mut client, elements * UPDATES_PER_ELEMENT)?;
    let device_bytes = settled_bytes(&server)? - before;
    let live = client.info("all", "log_live_bytes")?.max(1);
    let title =
        format!("device / user bytes, {} hashes of {fields}, values of {value_bytes} B", shape.hashes);
    let ratio = device_bytes as f64 / user_bytes as f64;
    let note = format!(
        "{:.0} B an update; the folder has {:.2} times the live data",
        device_bytes as f64 / (elements * UPDATES_PER_ELEMENT) as f64,
        disk_bytes(server.folder()) as f64 / live as f64
    );
    let id = format!("write-amplification/{value_bytes}");
    Ok(alone(&id, &title, "times", &recipe.label, vec![ratio]).note(&note))
}

/// Where updates go.
struct Updates {
    random: Random,
    hashes: u64,
    fields: u64,
    value_bytes: usize,
}

impl Updates {
    /// Sends `count` updates; the user's bytes in them.
    fn send(&mut self, client: &mut Client, count: u64) -> Result<u64, Failure> {
        let mut bytes = 0;
        let mut left = count;
        while left > 0 {
            let part = left.min(PIPELINE);
            let mut requests = Requests::default();
            for _ in 0..part {
                let (hash, field) = (self.random.below(self.hashes), member(self.random.below(self.fields)));
                let value = value(self.random.below(u64::MAX), self.value_bytes);
                bytes += (field.len() + value.len()) as u64;
                requests.add(&[b"HSET".as_slice(), key(hash).as_bytes(), field.as_bytes(), &value]);
            }
            requests.ask(client)?;
            left -= part;
        }
        Ok(bytes)
    }
}

/// Bytes written by the server, once what was acknowledged is on disk: durability is 1s.
fn settled_bytes(server: &Server) -> Result<u64, Failure> {
    std::thread::sleep(Duration::from_millis(1_200));
    written_bytes(server.id())
}

fn key(hash: u64) -> String {
    format!("hash:{hash:06}")
}

const PIPELINE: u64 = 500;
/// Each element is updated so often before the count starts, and as often again.
const UPDATES_PER_ELEMENT: u64 = 2;
