//! Wrong settings, by flag, by file and by CONFIG SET: each refusal is one line that names the setting, the value that it
//! was given and what would be right.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

use server::settings::{ROWS, Row};

use crate::common::{self, Server, evenkeel, finished, serve};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

/// A start that fails for a wrong setting: its one line, without the program's name.
fn refused(arguments: &[&str]) -> String {
    let dir = folder();
    let (status, text) = finished(&mut serve(&dir.path().join("data"), arguments));
    assert_eq!(status, 2, "{arguments:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{arguments:?}: one line, not:\n{text}");
    text.trim_end().strip_prefix("evenkeel: ").expect("the program's name").to_owned()
}

/// What CONFIG SET answers to a value that is refused.
fn config_set(server: &Server, name: &str, value: &str) -> String {
    match server.call(&["CONFIG", "SET", name, value]) {
        resp::Value::Error(text) => String::from_utf8(text).expect("text"),
        other => panic!("{name} = {value} was not refused: {other:?}"),
    }
}

/// Values that `row` cannot have, and what the refusal has to say.
fn wrong_values(row: &Row) -> Vec<(&'static str, String)> {
    let [least, most] = row.bounds;
    let range = || format!("from {least} to {most}");
    match row.form {
        "COUNT" | "PORT" | "PERCENT" => vec![
            ("-1", range()),
            ("99999999999999999999999", range()),
            ("many", range()),
            ("10s", range()),
            ("", range()),
        ],
        "SIZE" | "auto|SIZE" => vec![
            // Where the least is 0 there is nothing below it.
            if least == "0" { ("-1", "expected".to_owned()) } else { ("1", format!("the least is {least}")) },
            ("99TiB", format!("the most is {most}")),
            ("99999999999999999999GiB", format!("the most is {most}")),
            ("-1", "expected".to_owned()),
            ("10s", "a size such as 64MiB".to_owned()),
        ],
        "DURATION" | "off|DURATION" | "always|never|DURATION" => vec![
            ("99999d", format!("the most is {most}")),
            ("99999999999999999999d", format!("the most is {most}")),
            ("-1s", "a duration such as".to_owned()),
            ("10MiB", "a duration such as".to_owned()),
        ],
        // 0 or less is off.
        "0|DURATION" => vec![
            ("99999d", format!("the most is {most}")),
            ("1ms", format!("the least is {least}")),
            ("10MiB", "a duration such as".to_owned()),
            ("", "a duration such as".to_owned()),
        ],
        "true|false" => vec![("maybe", "expected true or false".to_owned())],
        form if form.contains('|') => {
            vec![("wrong", "expected one of".to_owned()), ("", "expected one of".to_owned())]
        }
        "ADDRESS..." => vec![("256.1.1.1", "expected IP addresses such as 127.0.0.1".to_owned())],
        "ADDRESS:PORT" => vec![("127.0.0.1", "an address with a port, such as 127.0.0.1:9379".to_owned())],
        "PERCENT..." => {
            ["101", "nan", "50,99"].map(|value| (value, "numbers from 0 to 100".to_owned())).into()
        }
        _ => vec![],
    }
}

/// A negative count was answered with the bounds of 64 bits; a size beyond 64 bits as if it were none; a wrong switch in
/// three lines without the setting's name; an empty value as nothing after the sign.
#[test]
fn every_setting_says_what_is_wrong_with_its_value() {
    let dir = folder();
    let server = Server::start(&dir.path().join("data"), &["--engine=memory"]);
    let file = dir.path().join("evenkeel.toml");
    let config = format!("--config={}", file.display());
    for row in ROWS {
        for (value, expected) in wrong_values(row) {
            let shown = if value.is_empty() { "''" } else { value };
            let expected = [format!("{} = {shown}: ", row.key), expected];
            let says =
                |line: &str| assert!(expected.iter().all(|part| line.contains(part)), "{expected:?}: {line}");
            says(&refused(&[&format!("--{}={value}", row.flag())]));
            std::fs::write(&file, format!("{} = \"{value}\"\n", row.key)).expect("written");
            says(&refused(&[&config]));
            says(&config_set(&server, row.key, value));
        }
    }
}

/// `'x' is not accepted here` was all there was.
#[test]
fn names_of_redis_say_what_they_take() {
    let dir = folder();
    let server = Server::start(&dir.path().join("data"), &["--engine=memory"]);
    for (name, value, expected) in [
        ("maxmemory", "much", "maxmemory = much: expected a size such as 100mb"),
        ("maxmemory", "1", "memory.limit = 1: the least is 16MiB"),
        ("timeout", "10s", "timeout = 10s: expected seconds"),
        ("slowlog-log-slower-than", "x", "expected microseconds, or -1 for off"),
        ("latency-monitor-threshold", "-1", "expected milliseconds"),
        ("appendfsync", "sometimes", "expected one of always, everysec, no"),
        ("appendonly", "no", "expected yes: engine decides at the start"),
        ("loglevel", "loud", "expected one of debug, verbose, notice, warning, nothing"),
        ("lfu-log-factor", "3", "lfu-log-factor = 3: here it is always 10"),
        ("save", "900 1", "save = 900 1: here it is always ''"),
    ] {
        let reply = config_set(&server, name, value);
        assert!(reply.contains(expected), "{expected}: {reply}");
    }
}

/// `connections = 5` was asked whether it meant `connector`, and `databases = 0x10` made ten of them.
#[test]
fn a_table_and_a_number_in_another_base_are_read_as_toml_means_them() {
    let dir = folder();
    let file = dir.path().join("evenkeel.toml");
    let config = format!("--config={}", file.display());
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write("connections = 5\n");
    let line = refused(&[&config]);
    assert!(
        line.contains("line 1: 'connections' is a table, with connections.max, connections.input_max, "),
        "{line}"
    );
    write("databases = 0x10\nslowlog.length_max = 1_000\n");
    let server = Server::start(&dir.path().join("data"), &["--engine=memory", &config]);
    for (name, value) in [("databases", "16"), ("slowlog.length_max", "1000")] {
        let expected = resp::Value::Array([name, value].map(common::bulk).into());
        assert_eq!(server.call(&["CONFIG", "GET", name]), expected);
    }
}

/// The library's words for a wrong flag are several lines, and it does not know Redis's names.
#[test]
fn a_wrong_command_line_is_one_line() {
    for (flag, expected) in [
        ("--durabilty=never", "unknown setting '--durabilty'; did you mean '--durability'?"),
        ("--conections-max=5", "unknown setting '--conections-max'; did you mean '--connections-max'?"),
        ("--maxmemory=100mb", "unknown setting '--maxmemory' (of Redis); did you mean '--memory-limit'?"),
        ("--appendfsync=always", "unknown setting '--appendfsync' (of Redis); did you mean '--durability'?"),
        ("--nothing-like-it", "unknown setting '--nothing-like-it'; `evenkeel serve --help` lists all"),
        ("extra", "unexpected argument 'extra' found"),
    ] {
        assert_eq!(refused(&[flag]), expected);
    }
    for arguments in [&["serve", "--port"][..], &["check"], &["chekc"], &["serve", "--port=1", "--port=2"]] {
        let (status, text) = finished(evenkeel().args(arguments));
        assert_eq!((status, text.trim_end().lines().count()), (2, 1), "{arguments:?}: {text}");
    }
}

/// A settings file was read whole before anybody looked at it: `--config /dev/zero` took all memory.
#[test]
fn a_file_that_cannot_be_a_settings_file_is_not_read() {
    for (flag, what) in [("config", "the settings file"), ("requirepass-file", "requirepass_file")] {
        let line = refused(&[&format!("--{flag}=/dev/zero")]);
        assert_eq!(line, format!("cannot read {what} /dev/zero: it is no regular file, but a device"));
        let dir = folder();
        let file = dir.path().join("large");
        std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).expect("written");
        let line = refused(&[&format!("--{flag}={}", file.display())]);
        assert_eq!(line, format!("{what} {} is larger than 1 MiB, the limit", file.display()));
    }
}

#[test]
fn figures_are_shown_to_other_machines_only_when_that_is_meant() {
    let line = refused(&["--metrics-listen=0.0.0.0:0", "--requirepass=secret"]);
    assert!(line.starts_with("metrics.listen = 0.0.0.0:0 shows other machines the figures"), "{line}");
    let dir = folder();
    let _server = Server::start(dir.path(), &["--metrics-listen=0.0.0.0:0", "--protected-mode=false"]);
}

#[test]
fn port_for_figures_that_is_taken_is_named_and_the_folder_untouched() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    let dir = folder();
    let data = dir.path().join("data");
    let (status, line) = finished(&mut serve(&data, &[&format!("--metrics-listen={address}")]));
    assert_eq!(status, 1, "{line}");
    assert!(line.contains(&format!("cannot listen on {address} (metrics.listen): ")), "{line}");
    assert!(!data.exists());
}

/// These passed the table, and failed later as something else: a port that is taken by itself, a name that the system has
/// no room for, a password that nobody can send.
#[test]
fn settings_that_can_never_work_are_refused_before_anything_is_done() {
    let long = format!("--unixsocket=/tmp/{}", "s".repeat(110));
    assert!(refused(&[&long]).ends_with(": 107 B at most, this has 115"));
    let line = refused(&["--bind=0.0.0.0 127.0.0.1", "--protected-mode=false"]);
    assert_eq!(line, "bind = 0.0.0.0 127.0.0.1: 0.0.0.0 includes every address: keep only it");
    let line = refused(&["--journal-segment-size=70001B"]);
    assert_eq!(line, "journal.segment_size = 70001: expected a multiple of 4KiB");
    assert_eq!(
        refused(&[&format!("--requirepass={}", "p".repeat(513))]),
        "--requirepass: requirepass: expected 512 B at most"
    );
    assert!(
        refused(&["--bind=0.0.0.0"]).starts_with("bind = 0.0.0.0 lets other machines in without a password")
    );
}

#[test]
fn a_folder_of_data_that_is_a_file_is_named_as_the_setting() {
    let dir = folder();
    let file = dir.path().join("file");
    std::fs::write(&file, "dear user").expect("written");
    let (status, line) = finished(&mut serve(&file, &[]));
    assert_eq!(
        (status, line.trim_end()),
        (1, &*format!("evenkeel: dir = {} is a file, not a folder", file.display()))
    );
}

/// `--bind "127.0.0.1 localhost"` found its own socket in the way.
#[test]
fn an_address_that_is_named_twice_is_listened_on_once() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--engine=memory", "--bind=127.0.0.1 localhost"]);
    assert_eq!(
        server.call(&["CONFIG", "GET", "bind"]),
        resp::Value::Array(["bind", "127.0.0.1"].map(common::bulk).into())
    );
}
