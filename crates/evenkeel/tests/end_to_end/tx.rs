//! `evenkeel tx` as an operator runs it beside a server that has no database: what it prints, and how it ends.
#![allow(clippy::disallowed_methods, reason = "tests start processes and make files")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use resp::Value;

use crate::common::{Server, bulk, evenkeel, eventually, finished, free_port, ok};

/// `evenkeel tx` with `arguments`, at the server on `port`.
fn at(port: u16, arguments: &[&str]) -> Command {
    let mut command = evenkeel();
    command.arg("tx").args(arguments).args(["--url", &format!("redis://127.0.0.1:{port}")]);
    command
}

/// What it prints, when it does what it is told.
fn told(server: &Server, arguments: &[&str]) -> String {
    let (status, text) = finished(&mut at(server.port, arguments));
    assert_eq!(status, 0, "{arguments:?}: {text}");
    text
}

/// Its one line on standard error when it does not, without the program's name.
fn refused(command: &mut Command) -> String {
    let (status, text) = finished(command);
    assert_eq!(status, 1, "{text}");
    let line = text.strip_prefix("evenkeel: ").and_then(|rest| rest.strip_suffix('\n'));
    let line = line.filter(|line| !line.contains('\n'));
    line.unwrap_or_else(|| panic!("one line behind the program's name, not {text:?}")).to_owned()
}

/// Begins a transaction and stages a write in it; its identifier.
fn begun(server: &Server, key: &str) -> String {
    let reply = server.call(&["TX.BEGIN"]);
    let Value::Array(items) = &reply else { panic!("{reply:?}") };
    let Value::Bulk(id) = &items[1] else { panic!("{reply:?}") };
    let id = String::from_utf8_lossy(id).into_owned();
    assert_eq!(server.call(&["TX.DO", &id, "SET", key, "staged"]), ok());
    id
}

/// What a list shows, without widths of columns, times and ports.
fn listed(server: &Server, arguments: &[&str]) -> String {
    let word = |word: &str| match word {
        _ if word.starts_with("127.0.0.1:") => "CLIENT".to_owned(),
        _ if word.ends_with('s') && word.starts_with(|sign: char| sign.is_ascii_digit()) => "AGE".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n";
    told(server, arguments).lines().map(line).collect()
}

/// The row of a transaction over keys that is under way.
fn row(id: &str) -> String {
    format!("{id} active AGE CLIENT keys active keys: SET\n")
}

#[test]
fn transaction_that_is_under_way_is_listed_and_shown_and_not_resolved() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(folder.path(), &["--txn-node=n"]);
    assert_eq!(told(&server, &["list"]), "no transaction\n");
    let ids = [begun(&server, "a"), begun(&server, "b")];
    let head = "id state age client branches last statement\n";
    let both = format!("{head}{}{}", row(&ids[0]), row(&ids[1]));
    assert_eq!(listed(&server, &["list"]), both);
    let first = format!("{head}{}there may be more: --count N lists up to 10000\n", row(&ids[0]));
    assert_eq!(listed(&server, &["list", "active", "--count", "1"]), first, "the one that began first");
    assert_eq!(told(&server, &["list", "preparing"]), "no transaction\n");
    let json: serde_json::Value = serde_json::from_str(&told(&server, &["list", "--json"])).expect("JSON");
    assert_eq!((&json[0]["id"], &json[1]["last"]), (&ids[0].as_str().into(), &"keys: SET".into()), "{json}");
    assert!(json[0]["age_ms"].is_u64() && json[0]["branches"][0]["resource"] == "keys", "{json}");
    let branch = format!("evk_n_{}_0", ids[0].replace('-', "_"));
    let shown = format!(
        "transaction {}\nstate active\nage AGE\nclient CLIENT\nlast keys: SET\nbranch keys active {branch}\n",
        ids[0]
    );
    assert_eq!(listed(&server, &["show", &ids[0]]), shown);
    let json: serde_json::Value =
        serde_json::from_str(&told(&server, &["show", "--json", &ids[0]])).expect("JSON");
    assert_eq!(json["state"], "active", "{json}");
    let asked = "all databases are asked; `evenkeel tx list` shows the result\n";
    assert_eq!(told(&server, &["recover"]), asked);
    for end in ["commit", "rollback"] {
        for also in [&[][..], &["--dry-run"]] {
            let line = refused(&mut at(server.port, &[&["resolve", &ids[0], end], also].concat()));
            let why = "the server refused: ERR the transaction is active: there is nothing for an operator to resolve";
            assert_eq!(line, why);
        }
    }
    assert_eq!(listed(&server, &["list"]), both, "nothing has come of it");
    assert_eq!(
        server.call(&["TX.ROLLBACK", &ids[1]]),
        Value::Array(vec![bulk("aborted"), bulk("the client rolled it back")])
    );
    assert_eq!(listed(&server, &["list"]), format!("{head}{}", row(&ids[0])));
    let shown = told(&server, &["show", &ids[1]]);
    let ended =
        format!("transaction {}\nstate       aborted\nreason      the client rolled it back\n", ids[1]);
    assert_eq!(shown, ended);
}

#[test]
fn what_the_server_does_not_know_is_said_in_its_words() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(folder.path(), &["--engine=memory"]);
    let shown = told(&server, &["show", "1-2a"]);
    assert!(shown.starts_with("transaction 1-2a\nstate       none\nreason      "), "{shown}");
    let line = refused(&mut at(server.port, &["resolve", "1-2a", "commit"]));
    assert_eq!(line, "the server refused: NOTX no transaction 1-2a waits for an operator");
    for arguments in [&["show", "4711"][..], &["resolve", "4711", "rollback"]] {
        let line = refused(&mut at(server.port, arguments));
        let why = "the server refused: ERR '4711' is no identifier of a transaction: TX.BEGIN gives them";
        assert_eq!(line, why, "{arguments:?}");
    }
    let line = refused(&mut at(server.port, &["list", "lost"]));
    assert!(line.starts_with("the server refused: ERR 'lost' is no state: one of active, "), "{line}");
    let (status, text) = finished(&mut at(server.port, &["resolve", "1-2a", "perhaps"]));
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("perhaps") && text.contains("commit, rollback"), "{text}");
}

#[test]
fn password_comes_from_the_address_or_the_environment_and_a_wrong_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(folder.path(), &["--engine=memory", "--requirepass=s3cret"]);
    let wants = "the server wants a password: set it in the environment as REDISCLI_AUTH";
    assert_eq!(refused(&mut at(server.port, &["list"])), wants);
    let with = |password: &str| {
        let mut command = at(server.port, &["list"]);
        command.env("REDISCLI_AUTH", password);
        command
    };
    assert_eq!(finished(&mut with("s3cret")), (0, "no transaction\n".to_owned()));
    let line = refused(&mut with("other"));
    assert!(line.starts_with("the server refused: WRONGPASS "), "{line}");
    let address = |password: &str| format!("--url=redis://default:{password}@127.0.0.1:{}", server.port);
    let listed = finished(evenkeel().args(["tx", "list", &address("s3cret")]).env("REDISCLI_AUTH", "other"));
    assert_eq!(listed, (0, "no transaction\n".to_owned()), "the address counts");
    let line = refused(evenkeel().args(["tx", "list", &address("other")]));
    assert!(line.starts_with("the server refused: WRONGPASS "), "{line}");
}

/// Whoever has the password of another server in the environment could not ask one that has none.
#[test]
fn password_of_the_environment_is_left_out_where_the_server_has_none() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(folder.path(), &["--engine=memory"]);
    let (status, text) = finished(at(server.port, &["list"]).env("REDISCLI_AUTH", "s3cret"));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("no transaction"), "{text}");
}

/// `topology` knew the variable only for what components ask, and `tx` and `capture` did not; `capture` did not read the password either.
#[test]
fn each_subcommand_asks_the_server_of_the_environment_and_an_argument_goes_before_it() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let programs = format!("--topologies-dir={}", folder.path().display());
    let server = Server::start(folder.path(), &["--engine=memory", "--requirepass=s3cret", &programs]);
    let url = format!("redis://127.0.0.1:{}", server.port);
    let file = folder.path().join("captured");
    let file = file.to_str().expect("text");
    let with = |words: &[&str], url: &str| {
        let mut command = evenkeel();
        command.args(words).env("EVENKEEL_URL", url).env("REDISCLI_AUTH", "s3cret");
        command
    };
    for words in [&["tx", "list"][..], &["topology", "list"], &["capture", file, "--for", "1ms"]] {
        let (status, text) = finished(&mut with(words, &url));
        assert_eq!(status, 0, "{words:?}: {text}");
        let _ = std::fs::remove_file(file);
        let argument = [words, &["--url", &url]].concat();
        let (status, text) = finished(&mut with(&argument, "http://nowhere"));
        assert_eq!(status, 0, "the variable is not read: {words:?}: {text}");
        let _ = std::fs::remove_file(file);
        let (status, text) = finished(&mut with(words, "http://ann:hidden@nowhere"));
        let why = "EVENKEEL_URL: `http:` is no scheme of a server: use redis://host:port";
        assert!(status == 2 && text.contains(why) && !text.contains("hidden"), "{words:?}: {text}");
        let (_, help) = finished(&mut with(&[&words[..1], &["--help"]].concat(), &url));
        assert!(help.contains("EVENKEEL_URL"), "{words:?}: {help}");
    }
}

#[test]
fn server_that_is_not_there_is_named() {
    let port = free_port();
    let line = refused(&mut at(port, &["list"]));
    let begins = format!("no server answers at redis://127.0.0.1:{port}: ");
    assert!(line.starts_with(&begins) && line.contains("refused"), "{line}");
}

/// A folder in which two transactions have prepared keys, `k` and `l`, whose decisions are not in it: a backup that was made between
/// prepare and decision.
fn with_strays(dir: &Path) {
    let options =
        store::Options { dir: dir.to_owned(), clock: Arc::new(clock::SystemClock), ..Default::default() };
    let store = store::Store::open(options).expect("the folder opens");
    for (branch, key) in [("evk_n_ffff_2a_0", b"k"), ("evk_n_ffff_2b_0", b"l")] {
        let (mut workspace, none) = (store.workspace(), store::Prepared::default());
        let keys = [store::KeyRef { db: 0, key }];
        store.touch(&mut workspace, &keys).expect("there is room");
        let mut access = store.access(store::Scope::Keys(&keys), &none, 0).expect("nobody holds it");
        access.resume(&workspace);
        access.put(0, key, store::Value::String(b"prepared"), None);
        access.keep(&mut workspace).expect("there is room");
        let staging = store.prepare(branch, &workspace, &none).expect("it prepares");
        let store::Staging::Done { ticket } = staging else { panic!("{staging:?}") };
        store.offer();
        eventually("it is on the disk", || ticket.is_covered_by(store.released()));
    }
    store.close();
}

#[test]
fn prepared_keys_of_a_transaction_that_nobody_knows_end_as_the_operator_says() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    with_strays(folder.path());
    // While a write waits for txn.lock_wait there are some hundred looks at what is prepared: none takes it for this server's orphan.
    let often = ["--txn-node=n", "--txn-recovery-interval=10ms", "--txn-safety-interval=10ms"];
    let server = Server::start(folder.path(), &often);
    told(&server, &["recover"]);
    assert_eq!(told(&server, &["list"]), "no transaction\n");
    let held = |key: &str, by: &str| {
        let reply = server.call(&["SET", key, "mine"]);
        let Value::Error(text) = &reply else { panic!("{reply:?}") };
        let text = String::from_utf8_lossy(text);
        assert!(
            text.starts_with(&format!("TRYAGAIN key '{key}' is held by prepared transaction {by},")),
            "{text}"
        );
    };
    held("k", "ffff-2a");
    held("l", "ffff-2b");
    for (id, end) in [("ffff-2a", "commit"), ("ffff-2b", "rollback")] {
        let planned = told(&server, &["resolve", id, end, "--dry-run"]);
        let verb = if end == "commit" { "commit" } else { "roll back" };
        let last = format!("the server would {verb} the keys that are prepared under this identifier\n");
        assert!(planned.ends_with(&last), "{planned}");
        let shown = told(&server, &["resolve", id, end]);
        assert!(shown.starts_with(&format!("transaction {id}\nstate       none\n")), "{shown}");
        let again = refused(&mut at(server.port, &["resolve", id, end]));
        assert_eq!(again, format!("the server refused: NOTX no transaction {id} waits for an operator"));
        let again = refused(&mut at(server.port, &["resolve", id, end, "--dry-run"]));
        assert_eq!(again, format!("the server refused: NOTX no transaction {id} waits for an operator"));
    }
    assert_eq!(server.call(&["MGET", "k", "l"]), Value::Array(vec![bulk("prepared"), Value::Null]));
    assert_eq!(server.call(&["SET", "k", "mine"]), ok());
    assert_eq!(server.call(&["SET", "l", "mine"]), ok());
    // Who decided what, and when, is in the log; what was only tried is not.
    server.signal(libc::SIGTERM);
    let (_, log) = server.end();
    let decisions: Vec<&str> = log.lines().filter(|line| line.contains("operator decision on")).collect();
    assert_eq!(decisions.len(), 4, "{log}");
    for part in ["ffff-2a", "commit", "done", "evenkeel-tx:", "127.0.0.1:"] {
        assert!(decisions[0].contains(part), "{part}: {}", decisions[0]);
    }
    assert!(decisions[1].contains("refused"), "{}", decisions[1]);
}

/// `evenkeel tx` and `evenkeel bench` printed one line about themselves, and no subcommand.
#[test]
fn command_without_its_subcommand_lists_them() {
    for (command, subcommands) in
        [("tx", &["list", "show", "resolve", "recover"][..]), ("bench", &["map-test", "skew", "transfers"])]
    {
        let (status, text) = finished(evenkeel().arg(command));
        assert_eq!(status, 2, "{text}");
        for subcommand in subcommands {
            let is_listed = text.lines().any(|line| line.trim_start().starts_with(subcommand));
            assert!(is_listed, "{command} has {subcommand}: {text}");
        }
    }
}
