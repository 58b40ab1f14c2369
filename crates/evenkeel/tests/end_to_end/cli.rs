//! The command line as a user meets it: what stops a start, what a stop leaves, what is printed.
#![allow(clippy::disallowed_methods, reason = "tests make the files and sockets that users make")]

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use resp::Value;

use crate::common::{Server, SmallDisk, bulk, call, evenkeel, eventually, finished, ok, receive, serve};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

/// A start that fails: its one line on standard error, without the newline.
fn refused(arguments: &[&str]) -> String {
    let dir = folder();
    refusal_of(&mut serve(&dir.path().join("data"), arguments))
}

fn refusal_of(command: &mut std::process::Command) -> String {
    let (status, text) = finished(command);
    assert!(status > 0, "status {status}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "one line, not:\n{text}");
    let line = text.trim_end().strip_prefix("evenkeel: ");
    line.unwrap_or_else(|| panic!("the line starts with the program's name: {text}")).to_owned()
}

/// A server that `starter`, given its command line, becomes.
fn started_by(starter: &[&str], dir: &Path) -> Server {
    Server::spawn_on(|port| {
        let served = serve(dir, &["--engine=memory", &format!("--port={port}")]);
        let mut command = std::process::Command::new(starter[0]);
        command.args(&starter[1..]).arg(served.get_program()).args(served.get_args());
        command
    })
}

#[test]
fn output_that_is_longer_than_a_pipe_does_not_hold_up_its_writer() {
    let mut command = std::process::Command::new("head");
    let (status, text) = finished(command.args(["-c", "300000", "/dev/zero"]));
    assert_eq!((status, text.len()), (0, 300_000));
}

#[test]
fn a_wrong_value_is_refused_with_its_bounds() {
    assert_eq!(
        refused(&["--connections-max", "0"]),
        "--connections-max: connections.max = 0: the least is 1"
    );
    assert_eq!(
        refused(&["--durability", "sometimes"]),
        "--durability: durability = sometimes: expected always, never, or a duration such as 1s"
    );
}

/// It printed what it is for, and not what there is.
#[test]
fn a_command_without_its_subcommand_lists_them() {
    let all: [(&str, &[&str]); 3] = [
        ("bench", &["remote-test", "map-test", "skew"]),
        ("topology", &["check", "run"]),
        ("tx", &["list", "show", "resolve"]),
    ];
    for (command, subcommands) in all {
        let (status, text) = finished(evenkeel().arg(command));
        assert_eq!(status, 2, "{text}");
        for subcommand in subcommands {
            assert!(text.contains(&format!("\n  {subcommand}")), "{subcommand} in {text}");
        }
    }
}

#[test]
fn an_unknown_flag_is_refused_with_the_nearest() {
    let (status, text) = finished(evenkeel().args(["serve", "--durabilty", "never"]));
    assert_eq!(status, 2);
    assert!(text.contains("--durability"), "{text}");
}

#[test]
fn a_wrong_line_of_the_settings_file_is_named() {
    let dir = folder();
    let file = dir.path().join("evenkeel.toml");
    let refused = |text: &str| {
        std::fs::write(&file, text).expect("written");
        refusal_of(&mut serve(&dir.path().join("data"), &["--config", &file.to_string_lossy()]))
    };
    let name = file.display();
    assert_eq!(
        refused("port = 1\n\ndurabilty = 'never'\n"),
        format!("{name}, line 3: unknown setting 'durabilty'; did you mean 'durability'?")
    );
    assert_eq!(
        refused("[value]\nmax = '1TiB'"),
        format!("{name}, line 2: value.max = 1TiB: the most is 512MiB")
    );
    assert!(refused("port = \n").starts_with(&format!("{name}, line 1: ")));
    let line = refused("[resource.a]\nurl = 'postgres://u@db/d'\ntls_ca = '/no/ca.pem'\n");
    assert!(line.starts_with("resource.a.tls_ca: cannot read the file /no/ca.pem: No such file"), "{line}");
    let line = refused("[resource.a]\nurl = 'postgres://u@db/d?sslmode=require'\n");
    assert!(line.contains("resource.a: not an address of PostgreSQL: 'sslmode=require' does not"), "{line}");
    let missing = dir.path().join("none.toml");
    let line = refusal_of(evenkeel().arg("--config").arg(&missing));
    assert!(line.starts_with(&format!("cannot read the settings file {}", missing.display())), "{line}");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    assert_eq!(refused(&["--port=0"]), "port = 0, tls.port = 0 and no unixsocket: nobody could connect");
    assert_eq!(
        refused(&["--value-max=64MiB", "--connections-input-max=1MiB"]),
        "connections.input_max = 1MiB is smaller than value.max = 64MiB: such a value could not be sent"
    );
}

#[test]
fn other_machines_are_not_let_in_without_a_password() {
    let line = refused(&["--bind", "0.0.0.0"]);
    assert!(line.starts_with("bind = 0.0.0.0 lets other machines in without a password"), "{line}");
    let dir = folder();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret\nsecond line\n").expect("written");
    let password = format!("--requirepass-file={}", secret.display());
    let arguments = ["--engine=memory", "--bind=127.0.0.1", "--bind=127.0.0.2", password.as_str()];
    let server = Server::start(dir.path(), &arguments);
    assert!(format!("{:?}", server.call(&["GET", "k"])).contains("Error"));
    assert_eq!(server.call(&["AUTH", "s3cret"]), ok());
    // An address of IPv4 in the words of IPv6 is what it stands for.
    let line = refused(&["--bind", "::ffff:0.0.0.0"]);
    assert!(line.starts_with("bind = 0.0.0.0 lets other machines in without a password"), "{line}");
    let mapped = Server::start(dir.path(), &["--engine=memory", "--bind=::ffff:127.0.0.1"]);
    assert_eq!(mapped.call(&["SET", "k", "v"]), ok());
    drop(mapped);
    let open = Server::start(dir.path(), &["--engine=memory", "--bind=127.0.0.1", "--protected-mode=false"]);
    assert_eq!(open.call(&["SET", "k", "v"]), ok());
}

#[test]
fn a_password_file_that_is_missing_or_empty_is_refused() {
    let dir = folder();
    let secret = dir.path().join("secret");
    let flag = format!("--requirepass-file={}", secret.display());
    assert!(refused(&[&flag]).starts_with("cannot read requirepass_file"));
    std::fs::write(&secret, "\n").expect("written");
    assert!(refused(&[&flag]).ends_with("has no password on its first line"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let dir = folder();
    let first = Server::start(&dir.path().join("1"), &["--engine=memory"]);
    let port = first.port.to_string();
    // A second server that was started by mistake left a folder with a log behind.
    let mistaken = dir.path().join("2");
    let line = refusal_of(&mut serve(&mistaken, &["--port", &port]));
    assert!(line.starts_with(&format!("cannot listen on 127.0.0.1:{port}: something else does")), "{line}");
    assert!(!mistaken.exists());
    let socket = dir.path().join("no such folder").join("socket");
    let line = refusal_of(&mut serve(&mistaken, &["--unixsocket", &*socket.to_string_lossy()]));
    assert!(line.starts_with(&format!("cannot listen on {}: ", socket.display())), "{line}");
    assert!(!mistaken.exists());
    assert_eq!(first.call(&["PING"]), common_pong());
}

#[test]
fn an_address_that_cannot_be_listened_on_is_named_with_what_to_do() {
    let refused = |address: &str| refused(&["--bind", address, "--requirepass=s3cret", "--engine=memory"]);
    let line = refused("192.0.2.1");
    assert!(line.contains("192.0.2.1") && line.contains("this machine has no such address"), "{line}");
    // Link-local: invalid without its interface, or there is no IPv6.
    let line = refused("fe80::1");
    assert!(line.contains("[fe80::1]:") && !line.ends_with("(os error 22)"), "{line}");
}

#[test]
fn a_file_in_the_way_of_the_unix_socket_is_named_and_kept() {
    let dir = folder();
    let path = dir.path().join("letter");
    std::fs::write(&path, "dear user").expect("written");
    let socket = format!("--unixsocket={}", path.display());
    let line = refused(&["--port=0", &socket]);
    let expected = format!("cannot listen on {}: a server does, or the file is no socket;", path.display());
    assert!(line.starts_with(&expected) && !line.contains("--port"), "{line}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "dear user");
}

#[test]
fn the_password_of_a_server_that_other_machines_reach_stays() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--engine=memory", "--bind=0.0.0.0", "--requirepass=s3cret"]);
    let rest = server.greeting.split("0.0.0.0:").nth(1).expect("where it serves");
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let mut client = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it serves");
    let requests = b"AUTH s3cret\r\nCONFIG SET requirepass \"\"\r\nCONFIG SET requirepass other\r\n";
    client.write_all(requests).expect("sent");
    assert_eq!(receive(&mut client).expect("a reply"), ok());
    let Ok(Value::Error(refused)) = receive(&mut client) else { panic!("not refused") };
    let refused = String::from_utf8_lossy(&refused);
    assert!(refused.contains("lets other machines in without a password"), "{refused}");
    assert_eq!(receive(&mut client).expect("a reply"), ok());
}

#[test]
fn a_folder_that_is_in_use_is_named() {
    let dir = folder();
    let first = Server::start(dir.path(), &[]);
    let line = refusal_of(&mut serve(dir.path(), &[]));
    assert!(
        line.contains("in use by another server") && line.contains(&*dir.path().to_string_lossy()),
        "{line}"
    );
    assert_eq!(first.call(&["SET", "k", "v"]), ok());
}

/// The words for the end of a running server were used for a start that failed, too: they spoke of writes without an
/// answer, and nobody had sent any.
#[test]
fn a_folder_that_cannot_be_made_is_named_and_nothing_is_said_of_writes() {
    let dir = folder();
    let file = dir.path().join("file");
    std::fs::write(&file, b"no folder").expect("a file");
    let line = refusal_of(&mut serve(&file.join("data"), &[]));
    assert!(line.contains("not started") && line.contains("file/data"), "{line}");
    assert!(!line.contains("acknowledged"), "{line}");
}

#[test]
fn help_names_every_setting() {
    let (status, text) = finished(evenkeel().args(["serve", "--help"]));
    assert_eq!(status, 0);
    let (_, manual) = finished(evenkeel().args(["serve", "--print-manual"]));
    let flags: Vec<&str> =
        manual.lines().filter_map(|line| line.strip_prefix("`--")?.split('`').next()).collect();
    assert!(flags.len() > 20);
    for flag in flags {
        assert!(text.contains(&format!("--{flag}")), "{flag}");
    }
}

#[test]
fn the_printed_settings_file_serves_as_it_is() {
    let dir = folder();
    let (status, text) = finished(evenkeel().args(["serve", "--print-config"]));
    assert_eq!(status, 0);
    let file = dir.path().join("evenkeel.toml");
    std::fs::write(&file, text).expect("written");
    let server = Server::spawn_on(|port| {
        serve(&dir.path().join("data"), &["--config", &*file.to_string_lossy(), "--port", &port.to_string()])
    });
    assert_eq!(server.call(&["PING"]), common_pong());
}

#[test]
fn a_start_says_what_it_does_in_a_few_lines() {
    let dir = folder();
    let server = Server::start(dir.path(), &[]);
    let greeting = &server.greeting;
    assert!(greeting.lines().count() <= 6, "{greeting}");
    for part in [
        format!("serves on 127.0.0.1:{}", server.port),
        dir.path().display().to_string(),
        "always: a write is on disk before its reply (journal: ".to_owned(),
        format!("redis-cli -p {}", server.port),
    ] {
        assert!(greeting.contains(&part), "{part} is missing in:\n{greeting}");
    }
    let memory = Server::start(dir.path(), &["--engine=memory"]);
    assert!(memory.greeting.contains("a stop forgets everything"), "{}", memory.greeting);
}

#[test]
fn sigterm_ends_it_gracefully_and_a_new_start_finds_everything() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let dir = folder();
        let server = Server::start(dir.path(), &[]);
        assert_eq!(server.call(&["SET", "key", "value"]), ok());
        assert!(dir.path().join("RUNNING").exists());
        server.signal(signal);
        let (status, log) = server.end();
        assert!(status.success(), "{status}: {log}");
        assert!(log.contains("stopped; everything acknowledged is kept"), "{log}");
        assert!(!dir.path().join("RUNNING").exists());
        let again = Server::start(dir.path(), &[]);
        assert!(again.greeting.contains("1 key found"), "{}", again.greeting);
        assert_eq!(again.call(&["GET", "key"]), bulk("value"));
    }
}

/// `nohup evenkeel &` ended with the terminal: the handler took back what nohup had arranged.
#[test]
fn a_server_under_nohup_survives_its_terminal() {
    let dir = folder();
    let server = started_by(&["nohup"], dir.path());
    server.signal(libc::SIGHUP);
    // Watched signals are taken in the order of their numbers, and the log says which one ended it.
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains("SIGTERM: stopping"), "{log}");
}

/// SIGHUP ended the server, which operators send after they changed a password.
#[test]
fn sighup_reads_the_password_again_and_stops_nothing() {
    let dir = folder();
    let (data, password) = (dir.path().join("data"), dir.path().join("password"));
    std::fs::write(&password, "first\n").expect("written");
    let server = Server::start(&data, &[&format!("--requirepass-file={}", password.display())]);
    assert_eq!(server.call(&["AUTH", "first"]), ok());
    std::fs::write(&password, "second\n").expect("written");
    server.signal(libc::SIGHUP);
    eventually("the new password holds", || server.call(&["AUTH", "second"]) == ok());
    assert!(matches!(server.call(&["AUTH", "first"]), Value::Error(_)));
    std::fs::remove_file(&password).expect("removed");
    server.signal(libc::SIGHUP);
    server.signal(libc::SIGHUP);
    assert_eq!(server.call(&["AUTH", "second"]), ok(), "as it was");
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success(), "{status}: {log}");
    assert!(
        log.contains(&format!("SIGHUP: requirepass_file {} read, a new password", password.display())),
        "{log}"
    );
    assert!(log.contains("SIGHUP: nothing was reloaded: cannot read requirepass_file"), "{log}");
}

/// Writes went on into files without a name, were acknowledged, and the stop said that they were kept.
#[test]
fn a_server_whose_folder_is_gone_ends_and_says_that_writes_may_be_lost() {
    for gone in ["removed", "renamed", "replaced", "emptied", "idle"] {
        let dir = folder();
        let (data, other) = (dir.path().join("data"), dir.path().join("other"));
        let server = Server::start(&data, &[]);
        assert_eq!(server.call(&["SET", "key", "value"]), ok());
        match gone {
            "renamed" => std::fs::rename(&data, &other).expect("renamed"),
            "emptied" => {
                for file in std::fs::read_dir(&data).expect("listed") {
                    std::fs::remove_file(file.expect("an entry").path()).expect("removed");
                }
            }
            _ => std::fs::remove_dir_all(&data).expect("removed"),
        }
        if gone == "replaced" {
            std::fs::create_dir(&data).expect("made");
            std::fs::write(data.join("LOCK"), "").expect("made");
        }
        if gone == "idle" {
            server.signal(libc::SIGTERM);
        } else {
            eventually("writes end", || call(server.port, &["SET", "key", "value"]).is_err());
        }
        let (status, log) = server.end();
        assert_eq!(status.code(), Some(1), "{gone}: {log}");
        assert!(
            log.contains("is not the one that was opened") && log.contains("may be lost"),
            "{gone}: {log}"
        );
        assert!(
            !log.contains("acknowledged is kept") && !log.contains("Nothing acknowledged"),
            "{gone}: {log}"
        );
    }
}

/// A server that root started in a folder of another user overwrote what `RUNNING` led to, and made what `LOCK` led to.
#[test]
fn links_in_the_folder_lead_nowhere() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let dir = folder();
    let (data, victim) = (dir.path().join("data"), dir.path().join("victim"));
    std::fs::create_dir(&data).expect("made");
    symlink(&victim, data.join("LOCK")).expect("linked");
    let (status, text) = finished(&mut serve(&data, &[]));
    assert!(status == 1 && text.contains("it is a symbolic link: remove it"), "{status}: {text}");
    assert!(!victim.exists());
    std::fs::remove_file(data.join("LOCK")).expect("removed");
    std::fs::write(&victim, "mine").expect("written");
    symlink(&victim, data.join("RUNNING")).expect("linked");
    let metrics = dir.path().join("metrics.jsonl");
    let server =
        Server::start(&data, &[&format!("--metrics-file={}", metrics.display()), "--metrics-interval=100ms"]);
    assert_eq!(std::fs::read_to_string(&victim).expect("there"), "mine");
    eventually("there are figures", || metrics.exists());
    let files = std::fs::read_dir(&data).expect("listed").map(|file| file.expect("an entry").path());
    for file in files.chain([metrics]) {
        let mode = std::fs::symlink_metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o007, 0, "{} is {mode:o}", file.display());
    }
    let link = dir.path().join("link");
    std::fs::create_dir(dir.path().join("empty")).expect("made");
    symlink(dir.path().join("empty"), &link).expect("linked");
    let (status, text) = finished(evenkeel().arg("backup").arg(&data).arg(&link));
    assert!(status == 1 && text.contains("the path is a symbolic link"), "{status}: {text}");
    drop(server);
}

#[test]
fn a_folder_of_another_user_is_refused() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let dir = folder();
    if std::fs::metadata(dir.path()).expect("there").uid() != 0 {
        return; // only root may give a folder away
    }
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("made");
    chown(&data, Some(4711), Some(4711)).expect("given away");
    let (status, text) = finished(&mut serve(&data, &[]));
    assert!(
        status == 1 && text.contains("belongs to another user (id 4711; this process runs as 0)"),
        "{status}: {text}"
    );
    assert_eq!(std::fs::read_dir(&data).expect("listed").count(), 0, "nothing was made");
}

/// With 256 files it served one connection.
#[test]
fn a_limit_of_open_files_that_leaves_room_for_nearly_no_connection_is_refused() {
    let dir = folder();
    let script = "ulimit -n 256; exec \"$0\" serve --dir \"$1\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_evenkeel")]).arg(dir.path().join("data"));
    let (status, text) = finished(&mut command);
    assert_eq!(status, 1, "{text}");
    let expected = "the limit of open files (ulimit -n) leaves room for 0 connections: it must be at least 272, and 10256 for";
    assert!(text.contains(expected), "{text}");
}

/// A shell without job control ignores SIGINT for what it runs in the background, and so did the server: nothing but SIGTERM ended it.
#[test]
fn a_server_that_a_script_runs_in_the_background_ends_on_sigint() {
    let dir = folder();
    let server = started_by(&["sh", "-c", "trap '' INT; exec \"$0\" \"$@\""], dir.path());
    server.signal(libc::SIGINT);
    let (status, log) = server.end();
    assert!(status.success(), "{status}: {log}");
}

#[test]
fn shutdown_ends_it_as_a_signal_does() {
    let dir = folder();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["SET", "key", "value"]), ok());
    // No reply: the connection closes.
    assert!(call(server.port, &["SHUTDOWN"]).is_err());
    let (status, log) = server.end();
    assert!(status.success(), "{status}: {log}");
    assert_eq!(Server::start(dir.path(), &[]).call(&["GET", "key"]), bulk("value"));
}

#[test]
fn start_in_a_folder_with_data_of_redis_says_that_it_is_not_read() {
    let dir = folder();
    std::fs::write(dir.path().join("dump.rdb"), "REDIS0010").expect("it is written");
    // it ends before it makes anything: the port is not to be had
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = format!("--port={}", taken.local_addr().expect("bound").port());
    let ended = serve(dir.path(), &[&port]).output().expect("the binary starts");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(told.contains("holds dump.rdb of Redis, which is not read"), "{told}");
}

#[test]
fn json_logs_are_one_object_a_line() {
    let dir = folder();
    let notify = NotifySocket::bind(dir.path());
    let socket = format!("--unixsocket={}", dir.path().join("socket").display());
    let mut command = serve(dir.path(), &["--json-logs", "--engine=memory", "--port=0", &socket]);
    let child = command.env("NOTIFY_SOCKET", &notify.path).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("the binary starts");
    notify.expect("READY=1");
    let pid = libc::pid_t::try_from(child.id()).expect("a pid");
    // SAFETY: a plain system call on our own child, which is not reaped yet.
    #[allow(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
    let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
    assert_eq!(sent, 0);
    notify.expect("STOPPING=1");
    assert!(child.wait().expect("it ends").success());
    let log = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
    assert!(log.lines().count() >= 2, "{log}");
    for line in log.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(object["level"].is_string() && object["timestamp"].is_string(), "{line}");
    }
}

#[test]
fn config_set_and_rewrite_reach_the_file_and_the_next_start() {
    let dir = folder();
    let file = dir.path().join("evenkeel.toml");
    let arguments = ["--config", &*file.to_string_lossy()];
    let server = Server::spawn_on(|port| {
        let table = "[connections]\nidle_timeout = '1h'\n";
        std::fs::write(&file, format!("# mine\nport = {port}\nengine = 'memory'\n{table}")).expect("written");
        serve(&dir.path().join("data"), &arguments)
    });
    assert_eq!(server.call(&["CONFIG", "SET", "maxclients", "77", "slowlog.threshold", "5ms"]), ok());
    assert!(matches!(server.call(&["CONFIG", "SET", "port", "1"]), Value::Error(_)));
    assert_eq!(server.call(&["CONFIG", "REWRITE"]), ok());
    drop(server);
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(text.contains("# mine") && text.contains("[connections]\nmax = 77\n"), "{text}");
    let again = Server::spawn_on(|port| {
        serve(&dir.path().join("data"), &[arguments[0], arguments[1], "--port", &port.to_string()])
    });
    let values = again.call(&["CONFIG", "GET", "connections.max"]);
    assert_eq!(values, Value::Array(vec![bulk("connections.max"), bulk("77")]));
}

#[test]
fn a_folder_of_a_newer_version_is_named_and_left_alone() {
    let dir = folder();
    stopped_folder(dir.path());
    let manifest = dir.path().join("MANIFEST");
    let mut bytes = std::fs::read(&manifest).expect("read");
    // The first entry's reader_version_min.
    bytes[6..8].copy_from_slice(&99_u16.to_le_bytes());
    std::fs::write(&manifest, &bytes).expect("written");
    let line = refusal_of(&mut serve(dir.path(), &[]));
    assert!(line.contains("was written by a newer version") && line.contains("format 99"), "{line}");
    assert_eq!(std::fs::read(&manifest).expect("read"), bytes);
}

#[test]
fn damage_in_what_was_durable_stops_the_start_with_file_and_offset() {
    let dir = folder();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["SET", "key", "value"]), ok());
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
    let file = dir.path().join("00000001.seg");
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[4096 + 70] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let line = refusal_of(&mut serve(dir.path(), &[]));
    assert!(
        line.contains("damage in 00000001.seg at offset 4096") && line.contains("evenkeel check"),
        "{line}"
    );
}

#[test]
fn a_disk_without_room_stops_the_start() {
    let disk = SmallDisk::mount("4m");
    let (status, text) = finished(&mut serve(&disk.path().join("data"), &[]));
    assert_eq!(status, 1, "{text}");
    assert!(text.trim_end().lines().count() == 1 && text.contains("disk full"), "{text}");
}

/// A stopped folder of several segments: `key:N` for all N below 400, those that 10 divides removed.
fn stopped_folder(dir: &Path) {
    let server = Server::start(dir, &["--journal-segment-size=64KiB", "--durability=never"]);
    for number in 0..400 {
        assert_eq!(server.call(&["SET", &format!("key:{number}"), &format!("{number:0>1000}")]), ok());
    }
    for number in (0..400).step_by(10) {
        assert_eq!(server.call(&["DEL", &format!("key:{number}")]), Value::Integer(1));
    }
    let fields: Vec<String> = (0..600).map(|number| format!("field-number-{number}")).collect();
    let words = fields.iter().flat_map(|field| [field.as_str(), "value"]);
    assert_eq!(
        server.call(&["HSET", "hash"].into_iter().chain(words).collect::<Vec<_>>()),
        Value::Integer(600)
    );
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
}

#[test]
fn a_sound_folder_passes_the_check_and_one_in_use_is_not_checked() {
    let dir = folder();
    stopped_folder(dir.path());
    let (status, text) = finished(evenkeel().arg("check").arg(dir.path()));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("the last stop was clean") && text.contains("records verify"), "{text}");
    assert!(text.contains("\n1 large collection with ") && text.contains(" leaves\n"), "{text}");
    let _server = Server::start(dir.path(), &[]);
    // 1 is corruption
    let (status, line) = finished(evenkeel().arg("check").arg(dir.path()));
    assert!(status == 3 && line.contains("in use by another server"), "{status}: {line}");
    let none = dir.path().join("none");
    let (status, line) = finished(evenkeel().arg("check").arg(&none));
    assert_eq!(status, 3, "{line}");
    assert!(line.starts_with(&format!("evenkeel: {}: ", none.display())) && !none.exists(), "{line}");
}

#[test]
fn damage_is_found_named_and_salvaged_around() {
    let dir = folder();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    stopped_folder(&data);
    let hurt = hurt_a_segment(&data);
    let mut command = evenkeel();
    let (status, text) = finished(command.arg("check").arg(&data).arg("--salvage").arg(&out));
    assert_eq!(status, 1, "{text}");
    assert!(text.contains(&format!("damage in {hurt} at offset ")), "{text}");
    assert!(text.contains("is damaged in 1 place"), "{text}");
    let server = Server::start(&out, &[]);
    let mut found = 0;
    for number in 0..400 {
        let value = server.call(&["GET", &format!("key:{number}")]);
        if value == bulk(&format!("{number:0>1000}")) {
            found += 1;
            assert!(number % 10 != 0, "a removed key is back: {number}");
        } else {
            assert_eq!(value, Value::Null);
        }
    }
    assert_eq!(found, 359, "one value has a wrong bit");
    let (status, text) = finished(evenkeel().arg("check").arg(dir.path().join("out")));
    assert!(status == 3 && text.contains("in use"), "{text}");
}

/// Flips a bit in the middle of the oldest segment that holds a value; returns the file's name.
/// The manifest alone named segments and checkpoint: without it `--salvage` had refused, though all of the data was there.
#[test]
fn a_folder_with_a_damaged_manifest_is_salvaged_from_its_segments() {
    let dir = folder();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    stopped_folder(&data);
    let manifest = data.join("MANIFEST");
    let mut bytes = std::fs::read(&manifest).expect("read");
    bytes[3 * 64 + 20] ^= 4;
    std::fs::write(&manifest, bytes).expect("written");
    let mut command = evenkeel();
    let (status, text) = finished(command.arg("check").arg(&data).arg("--salvage").arg(&out));
    assert_eq!(status, 1, "{text}");
    for part in ["assumed: MANIFEST does not verify (at offset 192: ", "records copied to", "damage in "] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("removed keys may be back") && !text.contains("lost: "), "{text}");
    let server = Server::start(&out, &[]);
    for number in 0..400 {
        let value = server.call(&["GET", &format!("key:{number}")]);
        let wanted = if number % 10 == 0 { Value::Null } else { bulk(&format!("{number:0>1000}")) };
        assert_eq!(value, wanted, "key:{number}");
    }
}

fn hurt_a_segment(data: &Path) -> String {
    let mut names: Vec<_> = std::fs::read_dir(data)
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .filter(|name| name.ends_with(".seg"))
        .collect();
    names.sort();
    for name in names {
        let mut bytes = std::fs::read(data.join(&name)).expect("read");
        if bytes[20_000..30_000].windows(20).any(|window| window == [b'0'; 20]) {
            bytes[25_000] ^= 4;
            std::fs::write(data.join(&name), bytes).expect("written");
            return name;
        }
    }
    panic!("no segment holds values");
}

#[test]
fn a_backup_of_a_running_server_serves_what_was_there() {
    let dir = folder();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    let server = Server::start(&data, &["--requirepass=pw", "--journal-segment-size=64KiB"]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    let mut call = |command: &[&str]| {
        let mut request = Vec::new();
        resp::encode_command(&mut request, command);
        std::io::Write::write_all(&mut stream, &request).expect("sent");
        receive(&mut stream).expect("a reply")
    };
    assert_eq!(call(&["AUTH", "pw"]), ok());
    for number in 0..300 {
        assert_eq!(call(&["SET", &format!("key:{number}"), &format!("{number:0>1000}")]), ok());
    }
    let backup = |out: &Path, password: Option<&str>| {
        let mut command = evenkeel();
        command.arg("backup").arg(&data).arg(out).envs(password.map(|password| ("REDISCLI_AUTH", password)));
        finished(&mut command)
    };
    let (status, text) = backup(&out, None);
    assert!(status == 1 && text.contains("set it in the environment as REDISCLI_AUTH"), "{text}");
    let (status, text) = backup(&out, Some("pw"));
    assert_eq!(status, 0, "{text}");
    assert_eq!(call(&["SET", "key:0", "changed since"]), ok());
    let (status, text) = backup(&out, Some("pw"));
    assert!(status == 1 && text.contains("the server refused: ERR "), "{text}");
    drop(server);
    let (status, text) = finished(evenkeel().arg("check").arg(&out));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("the last stop was clean\n"), "{text}");
    let copy = Server::start(&out, &[]);
    assert!(copy.greeting.contains("300 keys found"), "{}", copy.greeting);
    for number in [0, 1, 150, 299] {
        assert_eq!(copy.call(&["GET", &format!("key:{number}")]), bulk(&format!("{number:0>1000}")));
    }
}

#[test]
fn a_unix_socket_alone_serves_and_is_backed_up_through() {
    let dir = folder();
    let (data, socket) = (dir.path().join("data"), dir.path().join("s.sock"));
    let server = Server::start(&data, &["--port=0", &format!("--unixsocket={}", socket.display())]);
    assert!(server.greeting.contains(&format!("redis-cli -s {}", socket.display())), "{}", server.greeting);
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("connected");
    std::io::Write::write_all(&mut stream, b"SET key value\r\n").expect("sent");
    let mut reply = [0; 5];
    std::io::Read::read_exact(&mut stream, &mut reply).expect("a reply");
    assert_eq!(&reply, b"+OK\r\n");
    let (status, text) = finished(evenkeel().arg("backup").arg(&data).arg(dir.path().join("out")));
    assert_eq!(status, 0, "{text}");
    assert_eq!(Server::start(&dir.path().join("out"), &[]).call(&["GET", "key"]), bulk("value"));
}

#[test]
fn the_connector_threads_serves_as_well() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--connector=threads"]);
    assert!(server.greeting.contains("threads"), "{}", server.greeting);
    assert_eq!(server.call(&["SET", "key", "value"]), ok());
    assert_eq!(server.call(&["GET", "key"]), bulk("value"));
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
}

#[test]
fn backups_at_the_same_time_are_whole_or_refused_with_a_clear_line() {
    let dir = folder();
    let data = dir.path().join("data");
    let server = Server::start(&data, &[]);
    for n in 0..50 {
        assert_eq!(server.call(&["SET", &format!("key:{n}"), &"v".repeat(100_000)]), ok());
    }
    let outs: Vec<_> = (0..4).map(|n| dir.path().join(format!("out-{n}"))).collect();
    let runs: Vec<_> =
        outs.iter().map(|out| (out, evenkeel().arg("backup").arg(&data).arg(out).spawn())).collect();
    let ended =
        runs.into_iter().map(|(out, run)| (out, run.expect("it starts").wait().expect("it ends").success()));
    let (whole, refused): (Vec<_>, Vec<_>) = ended.partition(|(_, whole)| *whole);
    assert!(!whole.is_empty(), "one at least is alone");
    for (out, _) in whole {
        let copy = Server::start(out, &[]);
        assert_eq!(copy.call(&["DBSIZE"]), Value::Integer(50));
    }
    refused.iter().for_each(|(out, _)| assert!(!out.exists(), "{} was begun", out.display()));
}

#[test]
fn a_backup_without_a_server_says_so() {
    let dir = folder();
    let line = refusal_of(evenkeel().arg("backup").arg(dir.path()).arg(dir.path().join("out")));
    assert!(line.starts_with(&format!("no server runs on {}", dir.path().display())), "{line}");
}

/// A socket that stands for systemd's.
struct NotifySocket {
    socket: UnixDatagram,
    path: std::path::PathBuf,
}

impl NotifySocket {
    fn bind(dir: &Path) -> Self {
        let path = dir.join("notify.sock");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("set");
        Self { socket, path }
    }

    fn expect(&self, line: &str) {
        let mut buffer = [0; 512];
        let len = self.socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {line}: {error}"));
        let message = String::from_utf8_lossy(&buffer[..len]);
        assert!(message.lines().any(|found| found == line), "{line} is not in {message}");
    }
}

fn common_pong() -> Value {
    Value::Simple(b"PONG".to_vec())
}

/// Waits until no thread of the server has `signal` before it.
fn wait_for_delivery(server: &Server, signal: i32) {
    let status = format!("/proc/{}/status", server.child.id());
    loop {
        let text = std::fs::read_to_string(&status).expect("it runs");
        let pending =
            text.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("a field of that name");
        let pending = u64::from_str_radix(pending.trim(), 16).expect("a number");
        if pending & (1 << (signal - 1)) == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// The open of a pipe waits for a writer: the thread that obeys signals waited with it, and SIGTERM did nothing any more.
#[test]
fn pipe_in_place_of_the_password_is_refused_and_holds_up_no_stop() {
    let dir = folder();
    let (data, password) = (dir.path().join("data"), dir.path().join("password"));
    std::fs::write(&password, "first\n").expect("written");
    let server = Server::start(&data, &[&format!("--requirepass-file={}", password.display())]);
    std::fs::remove_file(&password).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&password).status().expect("mkfifo is there");
    assert!(made.success());
    server.signal(libc::SIGHUP);
    // two signals at once may come in any order
    wait_for_delivery(&server, libc::SIGHUP);
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains("SIGHUP: nothing was reloaded: cannot read requirepass_file"), "{log}");
    assert!(log.contains("it is no regular file, but a pipe"), "{log}");
    let line = refused(&[&format!("--requirepass-file={}", password.display())]);
    assert!(line.ends_with("it is no regular file, but a pipe"), "{line}");
}

#[test]
fn unit_file_is_one_that_systemd_takes() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd/evenkeel.service");
    let text = std::fs::read_to_string(unit).expect("it is there");
    assert!(text.contains("ExecStart=/usr/bin/evenkeel serve "), "{text}");
    let dir = folder();
    let here = dir.path().join("evenkeel.service");
    // It looks for the program.
    let text = text.replace("/usr/bin/evenkeel", env!("CARGO_BIN_EXE_evenkeel"));
    std::fs::write(&here, text).expect("written");
    match std::process::Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&here).output() {
        Ok(verified) => {
            let told = String::from_utf8_lossy(&verified.stderr).into_owned();
            assert!(verified.status.success() && !told.contains("evenkeel.service"), "{told}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "there is no systemd here"),
    }
}
