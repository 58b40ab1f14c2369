//! Transactions over data that is larger than `memory.limit`: what they stage and commit has room made for it, as what others write.

#[allow(dead_code, reason = "of the servers one is needed")]
#[path = "differential/servers.rs"]
mod servers;

use resp::Value;
use servers::{Evenkeel, Link, small};
use store::{EngineKind, Options};

type Words = Vec<Vec<u8>>;

const LIMIT: u64 = 16 << 20;

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn start() -> (Evenkeel, Link) {
    let options = Options { leaf_bytes: 4 << 10, memory_limit_bytes: LIMIT, ..small(EngineKind::Log) };
    let evenkeel = Evenkeel::start(options);
    let link = Link::open(evenkeel.port);
    (evenkeel, link)
}

fn ask(link: &mut Link, command: Words) -> Value {
    link.send(&[command]);
    link.reply().expect("a reply")
}

fn is_committed(reply: &Value) -> bool {
    matches!(reply, Value::Array(words) if words.first() == Some(&Value::Bulk(b"committed".to_vec())))
}

/// 38 of 40 were refused with `nothing can be dropped`, where a plain HSET made room: who kept what it had staged asked for none.
#[test]
fn transaction_on_a_large_hash_that_is_not_in_memory_commits() {
    let (_evenkeel, mut link) = start();
    for hash in 0..20 {
        for from in (0..1_500).step_by(100) {
            let fields =
                (from..from + 100).flat_map(|at| [format!("field:{at}").into_bytes(), vec![b'x'; 1_000]]);
            let head = [b"HSET".to_vec(), format!("h{hash}").into_bytes()];
            assert_eq!(ask(&mut link, head.into_iter().chain(fields).collect()), Value::Integer(100));
        }
    }
    for round in 0..2 {
        for hash in 0..20 {
            ask(&mut link, words("TX.BEGIN"));
            let reply = ask(&mut link, words(&format!("TX.DO $ HSET h{hash} w {round}")));
            assert_eq!(reply, Value::Integer(i64::from(round == 0)), "h{hash}");
            let reply = ask(&mut link, words("TX.COMMIT $"));
            assert!(is_committed(&reply), "h{hash}: {reply:?}");
        }
    }
    assert_eq!(ask(&mut link, words("HLEN h7")), Value::Integer(1_501));
}

/// A transaction could stage as much as the whole limit, and its commit, which needs the same again, was refused.
#[test]
fn transaction_is_refused_when_it_stages_more_than_its_commit_has_room_for_and_commits_what_is_less() {
    let (_evenkeel, mut link) = start();
    let set = |at: usize| {
        vec![
            b"TX.DO".to_vec(),
            b"$".to_vec(),
            b"SET".to_vec(),
            format!("k{at}").into_bytes(),
            vec![b'x'; 100 << 10],
        ]
    };
    for commits in [false, true] {
        ask(&mut link, words("TX.BEGIN"));
        let most = if commits { 35 } else { 1_000 };
        let refused = (0..most).find_map(|at| match ask(&mut link, set(at)) {
            Value::Error(text) => Some((at, String::from_utf8_lossy(&text).into_owned())),
            _ => None,
        });
        let end = ask(&mut link, words("TX.COMMIT $"));
        match refused {
            Some((at, text)) => {
                assert!(!commits && text.contains("a quarter of memory.limit"), "{at}: {text}");
                assert!((35..45).contains(&at), "a quarter is 40: {at}");
            }
            None => assert!(commits && is_committed(&end), "{end:?}"),
        }
    }
}
