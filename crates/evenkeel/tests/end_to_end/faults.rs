//! Faults of disk and journal under the shipped binary: full buffers, damaged records, writes that fail, long stops.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets, and damage files")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use resp::Value;

use crate::common::{Server, bulk, evenkeel, ok, receive, serve};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    stream
}

fn encoded(commands: &[Vec<String>]) -> Vec<u8> {
    let mut request = Vec::new();
    commands.iter().for_each(|command| resp::encode_command(&mut request, command));
    request
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A field of INFO, as a number.
fn field(server: &Server, name: &str) -> u64 {
    let Value::Bulk(info) = server.call(&["info", "everything"]) else { panic!("INFO is text") };
    let info = String::from_utf8(info).expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect(name);
    line.parse().expect("a number")
}

/// A lone client waited for two threads to wake, beside the disk.
#[test]
fn loop_commits_what_a_lone_client_waits_for_and_leaves_it_to_the_journal_beside_a_reader() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--loops=1"]);
    let (mut writer, start) = (connect(&server), Instant::now());
    let mut set = |count: usize| {
        writer.write_all(&encoded(&vec![words("SET key value"); count])).expect("sent");
        assert!((0..count).all(|_| receive(&mut writer).expect("a reply") == ok()));
    };
    while field(&server, "journal_commits_by_loops") == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "a loop never commits");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            set(1);
        }
    }
    let (syncs, by_loops) = (field(&server, "journal_syncs"), field(&server, "journal_commits_by_loops"));
    for _ in 0..50 {
        assert_eq!(server.call(&["PING"]), Value::Simple("PONG".into()));
        set(1);
    }
    assert!(field(&server, "journal_syncs") >= syncs + 50);
    assert!(field(&server, "journal_commits_by_loops") < by_loops + 25, "beside a reader a loop blocks");
}

#[test]
fn writers_wait_while_the_buffer_of_the_journal_is_full_and_all_of_them_go_on() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--journal-buffer-max=64KiB"]);
    let value = "v".repeat(20_000);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (mut stream, value) = (connect(&server), value.clone());
            std::thread::spawn(move || {
                let set = |n| vec!["SET".to_owned(), format!("{writer}:{n}"), value.clone()];
                stream.write_all(&encoded(&(0..50).map(set).collect::<Vec<_>>())).expect("sent");
                (0..50).all(|_| receive(&mut stream).expect("a reply") == ok())
            })
        })
        .collect();
    assert!(writers.into_iter().all(|writer| writer.join().expect("no panic")));
    assert!(field(&server, "journal_waits_for_credits") > 0, "the buffer was never full");
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(400));
    assert_eq!(server.call(&["GET", "7:49"]), bulk(&value));
}

/// A stopped folder of several segments, `key:N` for all N below 400, one record of which is damaged.
fn folder_with_a_damaged_record(dir: &Path) {
    let server = Server::start(dir, &["--journal-segment-size=64KiB", "--durability=never"]);
    for number in 0..400 {
        assert_eq!(server.call(&["SET", &format!("key:{number}"), &value(number)]), ok());
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
    let hurt = (1..).map(|number| dir.join(format!("{number:08}.seg"))).find(|path| {
        let Ok(mut bytes) = std::fs::read(path) else { return false };
        let in_a_value = bytes[20_000..30_000].windows(900).position(|part| part == [b'0'; 900]);
        let Some(at) = in_a_value else { return false };
        bytes[20_000 + at + 450] ^= 4;
        std::fs::write(path, bytes).is_ok()
    });
    assert!(hurt.is_some(), "no segment holds values");
}

fn value(number: usize) -> String {
    format!("{number:0>1000}")
}

#[test]
fn damaged_record_is_an_error_for_its_key_alone() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    folder_with_a_damaged_record(dir.path());
    let server = Server::start(dir.path(), &[]);
    let mut stream = connect(&server);
    let gets: Vec<_> = (0..400).map(|n| words(&format!("GET key:{n}"))).collect();
    stream.write_all(&encoded(&gets)).expect("sent");
    let replies: Vec<Value> = (0..400).map(|_| receive(&mut stream).expect("a reply")).collect();
    let damaged: Vec<usize> = (0..400).filter(|n| replies[*n] != bulk(&value(*n))).collect();
    let [number] = damaged[..] else { panic!("one record is damaged: {damaged:?}") };
    let Value::Error(text) = &replies[number] else { panic!("no error: {:?}", replies[number]) };
    let text = String::from_utf8_lossy(text).into_owned();
    assert!(text.contains("damage") && text.contains("segment"), "{text}");

    let key = format!("key:{number}");
    for command in [&["APPEND", &key, "x"][..], &["SET", &key, "new", "NX"], &["MGET", "key:0", &key]] {
        let refused = server.call(command);
        assert!(matches!(&refused, Value::Error(text) if text.starts_with(b"ERR record")), "{refused:?}");
    }
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(400));
    assert_eq!(server.call(&["SET", "other", "value"]), ok());
    let restarted = |server: Server| {
        server.signal(libc::SIGTERM);
        assert!(server.end().0.success());
        Server::start(dir.path(), &[])
    };
    let server = restarted(server);
    assert_eq!(server.call(&["GET", "other"]), bulk("value"));
    assert!(matches!(server.call(&["GET", &key]), Value::Error(_)), "still damaged, still said");
    assert_eq!(server.call(&["SET", &key, "new"]), ok());
    let server = restarted(server);
    assert_eq!(server.call(&["GET", &key]), bulk("new"));
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(401));
}

/// From now on, every write of the server to a file fails.
#[allow(unsafe_code, reason = "prlimit(2) has no safe wrapper in std")]
fn fail_writes(server: &Server) {
    let pid = libc::pid_t::try_from(server.child.id()).expect("a pid");
    let nothing = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: our own child, which is not reaped yet; the limit is read and not kept.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &nothing, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Starts a server that is told of a file size limit by an error, not killed by a signal.
#[allow(unsafe_code, reason = "a signal disposition outlives exec; std cannot set one")]
fn start_with_errors(dir: &Path) -> Server {
    Server::spawn_on(|port| {
        let mut command = serve(dir, &["--port", &port.to_string()]);
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                Ok(())
            });
        }
        command
    })
}

#[test]
fn failed_write_ends_the_server_with_an_error_and_held_replies_are_never_sent() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = start_with_errors(dir.path());
    let (mut writer, mut idle) = (connect(&server), connect(&server));
    writer.write_all(&encoded(&[words("SET kept value")])).expect("sent");
    assert_eq!(receive(&mut writer).expect("a reply"), ok());
    fail_writes(&server);
    // The reply of GET depends on the write before it, on the same connection or on another.
    writer.write_all(&encoded(&[words("SET lost value"), words("GET lost")])).expect("sent");
    let mut rest = Vec::new();
    let _ = writer.read_to_end(&mut rest);
    assert_eq!(String::from_utf8_lossy(&rest), "", "the outcome is unknown: nothing may be said");
    let _ = idle.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let (status, errors) = server.end();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("Nothing acknowledged is lost"), "{errors}");

    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["GET", "kept"]), bulk("value"));
}

/// Fills a server with `count` keys; returns when all are acknowledged.
fn fill(server: &Server, count: usize) {
    let mut stream = connect(server);
    for first in (0..count).step_by(10_000) {
        let set = |n: usize| vec!["SET".to_owned(), format!("key:{n}"), format!("{n:0>64}")];
        let commands: Vec<_> = (first..count.min(first + 10_000)).map(set).collect();
        stream.write_all(&encoded(&commands)).expect("sent");
        let mut replies = vec![0; commands.len() * b"+OK\r\n".len()];
        stream.read_exact(&mut replies).expect("replies");
        assert!(replies.chunks(5).all(|reply| reply == b"+OK\r\n"));
    }
}

#[test]
fn stop_with_many_changed_keys_is_clean_and_within_its_bound() {
    const KEYS: usize = 100_000;
    for by_command in [false, true] {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(dir.path(), &["--durability=never"]);
        fill(&server, KEYS);
        let asked = Instant::now();
        if by_command {
            connect(&server).write_all(&encoded(&[words("SHUTDOWN")])).expect("sent");
        } else {
            server.signal(libc::SIGTERM);
        }
        let (status, errors) = server.end();
        let took = asked.elapsed();
        assert!(status.success() && took < Duration::from_secs(15), "{took:?}: {errors}");
        let server = Server::start(dir.path(), &[]);
        assert_eq!(server.call(&["DBSIZE"]), Value::Integer(KEYS as i64));
        assert_eq!(server.call(&["GET", "key:99999"]), bulk(&format!("{:0>64}", 99_999)));
    }
}

/// Sets how many descriptors the server may have; returns what it was.
#[allow(unsafe_code, reason = "prlimit(2) has no safe wrapper in std")]
fn limit_descriptors(server: &Server, count: u64) -> u64 {
    let pid = libc::pid_t::try_from(server.child.id()).expect("a pid");
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: our own child, which is not reaped yet; both limits live longer than the calls.
    let done = unsafe {
        libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before);
        let limit = libc::rlimit { rlim_cur: count, ..before };
        libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(done, 0);
    before.rlim_cur
}

/// A roll opened files, and without a descriptor for them the server ended as if its disk had failed.
#[test]
fn server_without_a_descriptor_waits_for_one_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--journal-segment-size=64KiB"]);
    let mut stream = connect(&server);
    let set = |n: usize| vec!["SET".to_owned(), format!("key:{n}"), value(n)];
    stream.write_all(&encoded(&[set(0)])).expect("sent");
    assert_eq!(receive(&mut stream).expect("a reply"), ok());
    let before = limit_descriptors(&server, 3);
    // more than the open segment and the ready ones hold
    stream.write_all(&encoded(&(1..400).map(set).collect::<Vec<_>>())).expect("sent");
    assert_eq!(receive(&mut stream).expect("a reply"), ok());
    stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket option");
    let mut replies = [0; 398 * 5];
    let mut read = 0;
    while let Ok(more @ 1..) = stream.read(&mut replies[read..]) {
        read += more;
    }
    assert!((100..replies.len()).contains(&read), "{read} B of replies: it rolls, and then waits");
    limit_descriptors(&server, before);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    stream.read_exact(&mut replies[read..]).expect("replies");
    assert!(replies.chunks(5).all(|reply| reply == b"+OK\r\n"));
    assert_eq!(server.call(&["GET", "key:399"]), bulk(&value(399)));
    server.signal(libc::SIGKILL);
    drop(server);
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(400));
}

/// A server held 256 files for its data, one for each segment: with more segments, and connections up to their limit, the
/// journal could open no file, and that ended the server.
#[test]
fn files_of_the_data_are_counted_before_connections_get_the_rest() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--journal-segment-size=64KiB", "--durability=never"]);
    let mut stream = connect(&server);
    for first in (0..20_000).step_by(1_000) {
        let set = |n: usize| vec!["SET".to_owned(), format!("key:{n}"), format!("{n:0>1000}")];
        let commands: Vec<_> = (first..first + 1_000).map(set).collect();
        stream.write_all(&encoded(&commands)).expect("sent");
        let mut replies = vec![0; commands.len() * b"+OK\r\n".len()];
        stream.read_exact(&mut replies).expect("replies");
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
    let files = std::fs::read_dir(dir.path()).expect("listed").count() as u64;
    assert!(files > 300, "{files} files");
    let server = Server::spawn_on(|port| {
        let mut command = std::process::Command::new("sh");
        let script = "ulimit -n 2000; exec \"$0\" serve --dir \"$1\" --port \"$2\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_evenkeel")]).arg(dir.path()).arg(port.to_string());
        command
    });
    let room = field(&server, "maxclients");
    assert!((1..=2_000 - 2 * files).contains(&room), "{room} connections beside {files} files");
}

/// What connections leave to the data was counted at start: while a log grew from nothing connections took the files that it
/// needed next, and writers waited until some of them left.
#[test]
fn growing_log_takes_its_files_from_connections_that_come_later() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::spawn_on(|port| {
        let mut command = std::process::Command::new("sh");
        let script = "ulimit -n 700; exec \"$0\" serve --dir \"$1\" --port \"$2\" --durability=never --loops=1 \
                      --journal-segment-size=64KiB";
        command.args(["-c", script, env!("CARGO_BIN_EXE_evenkeel")]).arg(dir.path()).arg(port.to_string());
        command
    });
    let room = field(&server, "maxclients") as usize;
    assert!(room > 400, "{room} connections beside an empty folder");
    let mut stream = connect(&server);
    let mut fill = |keys: std::ops::Range<usize>| {
        let set = |n: usize| vec!["SET".to_owned(), format!("key:{n}"), format!("{n:0>1000}")];
        let mut replies = vec![0; keys.len() * b"+OK\r\n".len()];
        stream.write_all(&encoded(&keys.map(set).collect::<Vec<_>>())).expect("sent");
        stream.read_exact(&mut replies).expect("replies");
    };
    (0..20).for_each(|part| fill(part * 1_000..(part + 1) * 1_000));
    let files = std::fs::read_dir(dir.path()).expect("listed").count();
    assert!(files > 300, "{files} files");
    let mut others = Vec::new();
    let refusal = loop {
        let mut other = connect(&server);
        other.write_all(b"PING\r\n").expect("sent");
        match receive(&mut other).expect("a reply") {
            Value::Error(text) => break text,
            _ => others.push(other),
        }
        assert!(others.len() < room, "let in as if the folder were empty");
    };
    assert_eq!(refusal, b"ERR max number of clients reached");
    (20..23).for_each(|part| fill(part * 1_000..(part + 1) * 1_000));
    drop(others);
    server.signal(libc::SIGTERM);
    let (status, errors) = server.end();
    assert!(status.success(), "{errors}");
    assert!(errors.contains("connections.max lowered from"), "{errors}");
    assert!(!errors.contains("no file can be opened"), "{errors}");
}

/// `println!`, and the logger's own complaint about a line that it could not write, ended the process when standard output
/// or error was a closed pipe or a full disk.
#[test]
fn server_whose_output_nobody_takes_goes_on() {
    for full in [false, true] {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let path = dir.path().join("socket");
        let mut command = serve(dir.path(), &["--port=0", &format!("--unixsocket={}", path.display())]);
        let sink = || -> Stdio {
            match full {
                true => std::fs::File::options().write(true).open("/dev/full").expect("it exists").into(),
                // the reading end is dropped at once
                false => std::io::pipe().expect("a pipe").1.into(),
            }
        };
        let mut child = command.stdout(sink()).stderr(sink()).spawn().expect("the binary starts");
        for _ in 0..3 {
            let mut browser = connected(&path);
            browser.write_all(b"POST / HTTP/1.1\r\n\r\n").expect("sent");
            assert_eq!(browser.read(&mut [0; 16]).unwrap_or(0), 0, "closed, and a warning is logged");
            let (mut client, mut reply) = (connected(&path), [0; 5]);
            client.write_all(b"SET k v\r\n").expect("sent");
            client.read_exact(&mut reply).expect("a reply");
            assert_eq!(&reply, b"+OK\r\n");
        }
        let pid = i32::try_from(child.id()).expect("a pid");
        // SAFETY: a plain system call on our own child, which is not reaped yet.
        #[allow(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
        let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
        assert_eq!(sent, 0);
        let status = child.wait().expect("it ends");
        assert!(status.success(), "ended with {status}");
        let checked = evenkeel().arg("check").arg(dir.path()).stdout(sink()).stderr(sink()).status();
        assert!(checked.expect("it runs").success(), "nothing is damaged, whoever reads that");
    }
}

/// A connection to the server that listens at `path`, or will.
fn connected(path: &Path) -> UnixStream {
    let started = Instant::now();
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
            return stream;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "nobody listens at {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}
