//! Balanced loops, as clients see them: connections spread under load, whatever they are in the middle of goes on, policies
//! hold, a stuck loop is told of.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use resp::Value;

use crate::common::{PATIENCE, Server, bulk, eventually, ok, receive};

fn start(arguments: &[&str]) -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[&["--engine=memory", "--loops=2"], arguments].concat());
    (dir, server)
}

struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Self(stream)
    }

    fn send(&mut self, words: &[&str]) {
        let mut bytes = Vec::new();
        resp::encode_command(&mut bytes, words);
        self.0.write_all(&bytes).expect("sent");
    }

    fn call(&mut self, words: &[&str]) -> Value {
        self.send(words);
        self.receive()
    }

    fn receive(&mut self) -> Value {
        receive(&mut self.0).expect("a reply")
    }

    /// Whether nothing came for it.
    fn is_waiting(&self) -> bool {
        self.0.set_nonblocking(true).expect("a socket option");
        let peeked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).expect("a socket option");
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    fn text(&mut self, words: &[&str]) -> String {
        let Value::Bulk(bytes) = self.call(words) else { panic!("{words:?} answers with text") };
        String::from_utf8(bytes).expect("text")
    }

    fn id(&mut self) -> i64 {
        let Value::Integer(id) = self.call(&["CLIENT", "ID"]) else { panic!("an id") };
        id
    }

    /// A field of CLIENT INFO.
    fn own(&mut self, name: &str) -> String {
        let line = self.text(&["CLIENT", "INFO"]);
        let field = line.split_whitespace().find_map(|field| field.strip_prefix(&format!("{name}=")));
        field.unwrap_or_else(|| panic!("no {name} in {line}")).to_owned()
    }
}

/// A field of INFO, of each loop.
fn loops(client: &mut Client, name: &str) -> Vec<String> {
    let info = client.text(&["INFO", "loops"]);
    (0..2)
        .map(|index| {
            let find = |line: &str| line.strip_prefix(&format!("loop{index}_{name}:")).map(str::to_owned);
            info.lines().find_map(find).unwrap_or_else(|| panic!("no {name} of loop {index} in {info}"))
        })
        .collect()
}

fn numbers(client: &mut Client, name: &str) -> Vec<u64> {
    loops(client, name).iter().map(|text| text.parse().expect("a number")).collect()
}

/// Stops threads that look at it, also when the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has every connection of `ids` live on loop 0.
fn gather(operator: &mut Client, ids: &[i64]) {
    for id in ids {
        assert_eq!(operator.call(&["CLIENT", "MOVE", &id.to_string(), "0"]), ok());
    }
    let own = operator.id();
    eventually("all are on loop 0", || {
        let list = operator.text(&["CLIENT", "LIST"]);
        let elsewhere = |line: &&str| !line.contains(" loop=0 ") && !line.starts_with(&format!("id={own} "));
        list.lines().filter(elsewhere).count() == 0
    });
}

#[test]
fn connections_that_meet_on_one_loop_spread_within_three_intervals() {
    const CLIENTS: usize = 12;
    let (_dir, server) = start(&["--balance-interval", "-1"]);
    let mut operator = Client::connect(&server);
    let keys: Vec<String> = (0..30).map(|number| format!("key{number}")).collect();
    for key in &keys {
        assert_eq!(operator.call(&["SET", key, &"x".repeat(2_000)]), ok());
    }
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let mut request = Vec::new();
    resp::encode_command(&mut request, &words);
    let reply_bytes = 5 + 30 * (7 + 2_000 + 2);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&server)).collect();
    let ids: Vec<i64> = clients.iter_mut().map(Client::id).collect();
    gather(&mut operator, &ids);
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for client in &mut clients {
            scope.spawn(|| {
                let mut reply = vec![0; reply_bytes];
                while !stop.load(Ordering::Relaxed) {
                    client.0.write_all(&request).expect("sent");
                    client.0.read_exact(&mut reply).expect("a reply");
                    assert!(reply.starts_with(b"*30\r\n$2000\r\nx"));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually("the load runs", || answered.load(Ordering::Relaxed) > 100);
        assert_eq!(numbers(&mut operator, "moves_in")[1], 0, "nobody balances yet");
        assert_eq!(operator.call(&["CONFIG", "SET", "balance.interval", "200ms"]), ok());
        let began = Instant::now();
        // In one interval: a machine that is busy with others may leave a client without an answer in any other.
        eventually("they spread, and loads and lags are told", || {
            let busy = numbers(&mut operator, "busy_permille");
            let is_even = busy.iter().min() > Some(&(busy.iter().max().expect("two") / 2));
            let list = operator.text(&["CLIENT", "LIST"]);
            let at_home = list.lines().filter(|line| line.contains(" loop=0 ")).count();
            let told = list.lines().filter(|line| !line.contains(" load=0 ")).count();
            let has_lag = numbers(&mut operator, "lag_us_p99").iter().any(|lag| *lag > 0);
            is_even && has_lag && (3..=10).contains(&at_home) && told >= CLIENTS
        });
        println!("even after {:?}", began.elapsed());
    });
    let commands: u64 = numbers(&mut operator, "commands").iter().sum();
    assert!(commands > answered.load(Ordering::Relaxed));
}

#[test]
fn whatever_a_session_is_in_the_middle_of_survives_its_moves() {
    let (_dir, server) = start(&["--balance-interval=20ms"]);
    let mut operator = Client::connect(&server);
    let [mut queued, mut listener, mut waiter, mut paused, mut monitor] =
        std::array::from_fn(|_| Client::connect(&server));
    let ids = [&mut queued, &mut listener, &mut waiter, &mut paused, &mut monitor].map(|client| client.id());
    assert_eq!(queued.call(&["WATCH", "watched"]), ok());
    assert_eq!(queued.call(&["MULTI"]), ok());
    assert_eq!(queued.call(&["SET", "watched", "1"]), Value::Simple(b"QUEUED".to_vec()));
    assert!(matches!(listener.call(&["SUBSCRIBE", "news"]), Value::Array(_)));
    assert_eq!(monitor.call(&["MONITOR"]), ok());
    waiter.send(&["WAIT", "1", "0"]);
    eventually("it waits", || operator.text(&["CLIENT", "LIST"]).contains("cmd=wait"));
    for round in 0..20 {
        for id in ids {
            operator.call(&["CLIENT", "MOVE", &id.to_string(), &(round % 2).to_string()]);
        }
        assert_eq!(operator.call(&["PUBLISH", "news", &round.to_string()]), Value::Integer(1));
        let news = listener.receive();
        assert_eq!(news, Value::Array(vec![bulk("message"), bulk("news"), bulk(&round.to_string())]));
    }
    let moved = queued_moves(&mut operator, ids[1]);
    assert!(moved > 0, "the listener moved");
    assert_eq!(queued.call(&["GET", "watched"]), Value::Simple(b"QUEUED".to_vec()));
    assert_eq!(queued.call(&["EXEC"]), Value::Array(vec![ok(), bulk("1")]));
    assert_eq!(operator.call(&["CLIENT", "UNBLOCK", &ids[2].to_string()]), Value::Integer(1));
    assert_eq!(waiter.receive(), Value::Integer(0));
    assert_eq!(waiter.call(&["PING"]), Value::Simple(b"PONG".to_vec()));
    assert_eq!(operator.call(&["CLIENT", "PAUSE", "60000", "WRITE"]), ok());
    paused.send(&["SET", "later", "1"]);
    eventually("it is paused", || operator.text(&["INFO", "clients"]).contains("blocked_clients:1"));
    operator.call(&["CLIENT", "MOVE", &ids[3].to_string(), "0"]);
    operator.call(&["CLIENT", "MOVE", &ids[3].to_string(), "1"]);
    assert_eq!(operator.call(&["CLIENT", "UNPAUSE"]), ok());
    assert_eq!(paused.receive(), ok());
    assert_eq!(paused.call(&["GET", "later"]), bulk("1"));
    // MONITOR saw all of it, in order.
    let mut lines = std::iter::from_fn(|| Some(monitor.receive()));
    let is_publish = |value: &Value| {
        let Value::Simple(line) = value else { panic!("a line of MONITOR, not {value:?}") };
        String::from_utf8_lossy(line).contains("\"PUBLISH\"")
    };
    assert_eq!(lines.by_ref().filter(is_publish).take(20).count(), 20);
}

fn queued_moves(operator: &mut Client, id: i64) -> u64 {
    let list = operator.text(&["CLIENT", "LIST", "ID", &id.to_string()]);
    let moves = list.split_whitespace().find_map(|field| field.strip_prefix("moves="));
    moves.expect("moves=").parse().expect("a number")
}

#[test]
fn assignment_is_by_number_in_turn_or_by_host() {
    for (policy, expected) in [("least-loaded", [4, 4]), ("round-robin", [4, 4]), ("by-host", [8, 0])] {
        let (_dir, server) = start(&["--assignment", policy]);
        let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
        let mut at = clients.iter_mut().map(|client| client.own("loop")).collect::<Vec<_>>();
        at.sort();
        let count = |index: &str| at.iter().filter(|loop_index| *loop_index == index).count();
        let counts = [count("0").max(count("1")), count("0").min(count("1"))];
        assert_eq!(counts, expected, "{policy}");
        let connections = numbers(&mut clients[0], "connections");
        assert_eq!(connections.iter().sum::<u64>(), 8, "{policy}");
        assert_eq!(
            clients[0].call(&["CONFIG", "GET", "assignment"]),
            Value::Array(vec![bulk("assignment"), bulk(policy)])
        );
    }
}

#[test]
fn a_connection_tells_what_it_takes() {
    let (_dir, server) = start(&[]);
    let mut client = Client::connect(&server);
    assert_eq!(client.call(&["SET", "key", "value"]), ok());
    let number = |client: &mut Client, name| client.own(name).parse::<u64>().expect("a number");
    assert_eq!(number(&mut client, "moves"), 0);
    assert!(number(&mut client, "tot-cmds") >= 2);
    assert!(number(&mut client, "tot-net-in") > 33);
    assert!(number(&mut client, "tot-net-out") > 5);
    assert!(number(&mut client, "read-events") >= 4);
    assert!(number(&mut client, "write-events") >= 4);
    eventually("its load is told", || number(&mut client, "load") > 0);
}

/// Begins a transaction of `count` commands that take long.
fn begin(victim: &mut Client, count: usize) {
    assert_eq!(victim.call(&["MULTI"]), ok());
    for _ in 0..count {
        victim.send(&["LCS", "one", "other", "LEN"]);
    }
    (0..count).for_each(|_| drop(victim.receive()));
    victim.send(&["EXEC"]);
}

#[test]
fn stuck_loop_is_told_of_by_info_and_log_with_what_it_was_doing() {
    let (_dir, server) = start(&["--balance-interval=500ms"]);
    let [mut victim, mut operator] = std::array::from_fn(|_| Client::connect(&server));
    let (victim_loop, id) = (victim.own("loop"), victim.id());
    assert_ne!(victim_loop, operator.own("loop"));
    let index: usize = victim_loop.parse().expect("a number");
    for key in ["one", "other"] {
        assert_eq!(victim.call(&["SET", key, &key.repeat(400)]), ok());
    }
    // How many take long enough depends on the machine, and on who else works on it at the moment.
    let (mut count, mut seen) = (8, None);
    while seen.is_none() {
        eventually("it moves", || loops(&mut operator, "stuck_us")[index] == "0");
        let before = numbers(&mut operator, "stuck_count")[index];
        begin(&mut victim, count);
        while seen.is_none() && victim.is_waiting() {
            if numbers(&mut operator, "stuck_count")[index] > before {
                let stuck_in = loops(&mut operator, "stuck_in")[index].clone();
                let late_loop = Client::connect(&server).own("loop");
                seen = victim.is_waiting().then_some((before, stuck_in, late_loop));
            }
        }
        assert!(matches!(victim.receive(), Value::Array(_)));
        count *= 2;
    }
    let (before, stuck_in, late_loop) = seen.expect("seen");
    assert_eq!(stuck_in, format!("exec of client {id}"));
    assert_ne!(late_loop, victim_loop, "new connections go to others");
    eventually("it is over", || loops(&mut operator, "stuck_us")[index] == "0");
    assert_eq!(numbers(&mut operator, "stuck_count")[index], before + 1);
    eventually("the longest is told", || loops(&mut operator, "longest_command")[index] == "exec");
    // By then it was looked at again, too.
    eventually("another interval ends", || loops(&mut operator, "longest_command")[index] != "exec");
    server.signal(libc::SIGTERM);
    let (status, errors) = server.end();
    assert!(status.success());
    let line = format!("loop {index} is stuck");
    assert!(
        errors.contains(&line) && errors.contains(&format!("it is in exec of connection {id}")),
        "{errors}"
    );
    assert!(errors.contains(&format!("loop {index} moves again after about")), "{errors}");
}

/// Every new user's server had a loop for each core, whatever else the cores were needed for.
#[test]
fn default_server_starts_with_one_active_loop_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--engine=memory", "--loops=0"]);
    let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(&server)).collect();
    let ids: Vec<i64> = clients.iter_mut().map(Client::id).collect();
    let info = clients[0].text(&["INFO", "loops"]);
    for line in
        ["loops_active:1", "loops_active_reason:start", "loops_active_changes:0", "loop0_connections:20"]
    {
        assert!(info.lines().any(|has| has == line), "{line} in {info}");
    }
    assert!(info.contains("loop0_run_queue_delay_us:"), "{info}");
    let Value::Error(refused) = clients[0].call(&["CLIENT", "MOVE", &ids[0].to_string(), "1"]) else {
        panic!("it is parked, or there is none on this machine");
    };
    assert!(refused.starts_with(b"ERR "), "{}", String::from_utf8_lossy(&refused));
    let fixed = Server::start(&dir.path().join("fixed"), &["--engine=memory", "--loops=3"]);
    let info = Client::connect(&fixed).text(&["INFO", "loops"]);
    assert!(info.contains("loops_active:3\r\nloops_active_reason:fixed\r\n"), "{info}");
}

#[test]
fn server_that_may_use_one_core_has_one_loop() {
    let all = rustix::thread::sched_getaffinity(None).expect("the cores of this thread");
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| all.is_set(*core)).expect("a core");
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    // The server inherits it from the thread that starts it.
    rustix::thread::sched_setaffinity(None, &one).expect("fewer cores");
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--engine=memory", "--loops=0"]);
    let info = Client::connect(&server).text(&["INFO", "loops"]);
    assert!(info.contains("loop0_connections:") && !info.contains("loop1_"), "{info}");
    assert!(info.contains("loops_active:1\r\n"), "{info}");
}
