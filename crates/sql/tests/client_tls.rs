//! TLS to databases, against real ones: what is spoken over it, and what is refused rather than spoken in plain.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

#[path = "common/certificates.rs"]
mod certificates;
mod common;
mod databases;
mod mariadb_bench;

use std::sync::Arc;

use certificates::Ca;
use common::mariadb::MariaDb as MariaServer;
use common::{Ear, node, tx, waiter};
use databases::{World, until, value};
use mariadb_bench::{Bench, branch, options, wait_until};
use sql::decision_log::SqlLog;
use sql::mariadb::MariaDb;
use sql::postgres::Postgres;
use sql::tls::{TlsMode, TlsOptions};
use sql::{Answered, DatabaseOptions, Drivers};
use txn::decision_log::DecisionLog;
use txn::protocol::Outcome;
use txn::resource::{Answer, Ask, Resource, Vote};

/// A PostgreSQL that speaks TLS alone: it is `localhost`, user `guest` needs a certificate, `bound` a password.
fn postgres(ca: &Ca) -> Option<World> {
    let rules = "local all all trust\nhostssl all guest 127.0.0.1/32 cert\nhostssl all bound 127.0.0.1/32 scram-sha-256\n\
                 hostssl all all 127.0.0.1/32 trust\n";
    ca.write(&ca.path("hba"), rules, "postgres");
    let hba = format!("hba_file={}", ca.path("hba"));
    let settings = ca.of_postgres();
    World::alone(&settings.iter().chain([&hba]).map(String::as_str).collect::<Vec<_>>())
}

/// A MariaDB that speaks TLS alone: it is `localhost`, and user `guest` needs a certificate.
fn mariadb(ca: &Ca) -> Option<(MariaServer, String)> {
    let server = MariaServer::start(&ca.of_mariadb().each_ref().map(String::as_str))?;
    let database = server.database();
    server.sql(&format!(
        "CREATE TABLE {database}.t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL) ENGINE=InnoDB; \
         CREATE USER guest@'%' IDENTIFIED BY 'secret' REQUIRE X509; GRANT ALL ON {database}.* TO guest@'%'; \
         GRANT PROCESS ON *.* TO guest@'%'"
    ));
    Some((server, database))
}

fn of_ca(ca: &Ca) -> TlsOptions {
    TlsOptions { ca: Some(ca.pem()), ..TlsOptions::default() }
}

fn mode(mode: TlsMode) -> TlsOptions {
    TlsOptions { mode: Some(mode), ..TlsOptions::default() }
}

/// As who has a certificate.
fn shown(ca: &Ca, name: &str) -> TlsOptions {
    let [cert, key] = ca.sign(name);
    TlsOptions { cert: Some(cert), key: Some(key), ..of_ca(ca) }
}

fn named(url: &str) -> String {
    url.replace("127.0.0.1", "localhost")
}

/// Why a PostgreSQL is not spoken to.
fn why_not(world: &World, drivers: &Arc<Drivers>, url: &str, tls: TlsOptions) -> String {
    let options = DatabaseOptions { tls, ..DatabaseOptions::new("db", url, world.node.clone()) };
    let database = Postgres::start(&options, drivers).unwrap();
    let mut why = String::new();
    until("it says why", || {
        why = database.ready().expect_err("it is not to be").to_string();
        !why.contains("not connected yet")
    });
    why
}

#[test]
fn postgres_is_prepared_committed_and_cancelled_over_tls_alone() {
    let ca = Ca::new("a CA");
    let Some(world) = postgres(&ca) else { return };
    let guest = shown(&ca, "guest");
    world.sql(0, "CREATE ROLE guest LOGIN; GRANT ALL ON SCHEMA public TO guest; GRANT ALL ON t TO guest");
    let bound =
        "CREATE ROLE bound LOGIN PASSWORD 'pw'; GRANT ALL ON SCHEMA public TO bound; GRANT ALL ON t TO bound";
    world.sql(1, bound);
    let node = world.start_with(
        &mut |database, _| {
            // One shows a certificate, the other takes any, and proves that both ends see the same one.
            let url = named(&database.url);
            (database.url, database.tls) = match &*database.name {
                "one" => (url.replace("postgres@", "guest@"), guest.clone()),
                _ => {
                    let url = url.replace("postgres@", "bound:pw@") + "?channel_binding=require";
                    (url, mode(TlsMode::Require))
                }
            };
        },
        |log| log,
    );
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    for (place, branch) in branches.into_iter().enumerate() {
        let cipher = node.run(branch, place, "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        assert_eq!(value(cipher).as_deref(), Some("TLSv1.3"));
        assert_eq!(node.run(branch, place, "INSERT INTO t VALUES (1, 'x')"), Ok(Answered::Changed(1)));
    }
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|x", "1|x"]);
    let (tx, branches) = node.begin(&mut lane);
    let slept = node.send(branches[0], 0, "SELECT pg_sleep(600)::text", &[]);
    let sleeps =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)::text' AND state = 'active'";
    until("it sleeps", || world.sql(0, &format!("{sleeps} AND usename = 'guest'")) == "1");
    lane.rollback(tx, "it takes too long").unwrap();
    assert!(slept.recv_timeout(databases::PATIENCE).unwrap().is_err());
    until("it was cancelled", || world.sql(0, &format!("{sleeps} AND usename = 'guest'")) == "0");
    let plain = "SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = 'evenkeel' AND NOT ssl";
    assert_eq!(world.sql(0, plain), "0");
}

#[test]
fn postgres_that_does_not_prove_who_it_is_is_not_spoken_to() {
    let (ca, other) = (Ca::new("a CA"), Ca::new("another CA"));
    let Some(world) = postgres(&ca) else { return };
    let drivers = Drivers::start().unwrap();
    let url = world.server().url_of("postgres");
    let why = |url: &str, tls: TlsOptions| why_not(&world, &drivers, url, tls);
    let no = why(&named(&url), of_ca(&other));
    let end = format!(
        "UnknownIssuer; tls = verify-full (the default here), and no CA in {} (tls_ca) has signed it; it is tried again",
        other.path("ca.pem")
    );
    assert!(no.contains(&end), "{no}");
    let no = why(&named(&url), of_ca(&Ca::new("a CA")));
    assert!(no.contains("BadSignature; ") && no.contains("ca.pem (tls_ca) has signed it; it is"), "{no}");
    let no = why(&named(&url), mode(TlsMode::VerifyFull));
    assert!(
        no.contains("; tls = verify-full, and no public CA has signed it: tls_ca names the file"),
        "{no}"
    );
    let no = why(&url, of_ca(&ca));
    assert!(no.contains("certificate not valid for name \"127.0.0.1\""), "{no}");
    assert!(no.contains("so the url must name the host as the certificate does"), "{no}");
    let no = why(&url, TlsOptions::default());
    assert!(no.contains("no pg_hba.conf entry") && no.contains("no encryption"), "{no}");
    let no = why(&named(&url).replace("postgres@", "guest@"), of_ca(&ca));
    assert!(no.contains("requires a valid client certificate"), "{no}");
    let Some(plain) = World::shared() else { return };
    let no = why(&plain.server().url_of("postgres"), mode(TlsMode::Require));
    assert!(
        no.contains("the server has no TLS, and tls = require goes on with it alone; tls = disable goes"),
        "{no}"
    );
}

#[test]
fn decisions_are_written_over_tls_and_not_to_a_postgres_that_does_not_prove_who_it_is() {
    let ca = Ca::new("a CA");
    let Some(world) = postgres(&ca) else { return };
    world.sql(0, "CREATE ROLE guest LOGIN; GRANT ALL ON SCHEMA public TO guest");
    let url = named(&world.options(0).url).replace("postgres@", "guest@");
    let opened = SqlLog::open(&url, &shown(&ca, "guest"), &node()).unwrap();
    let ear = Arc::new(Ear::default());
    opened.log.write(tx(1, 1), b"record", &waiter(&ear)).unwrap();
    ear.wait(tx(1, 1)).unwrap();
    let connections = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) \
                       WHERE usename = 'guest' AND application_name = 'evenkeel'";
    assert_eq!(world.sql(0, connections), "1|1");
    // A session that breaks is followed by one that speaks TLS as well.
    world.sql(0, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guest'");
    opened.log.write(tx(1, 2), b"record", &waiter(&ear)).unwrap();
    until("it is looked up", || opened.log.is_sound() && world.sql(0, connections) == "1|1");
    opened.log.close();
    let no = |url: &str, tls: TlsOptions| SqlLog::open(url, &tls, &node()).unwrap_err().to_string();
    let unproved = no(&url, of_ca(&Ca::new("another CA")));
    assert!(
        unproved.contains("UnknownIssuer; tls = verify-full") && unproved.contains("(tls_ca) has signed it"),
        "{unproved}"
    );
    let plain = no(&url, mode(TlsMode::Disable));
    assert!(plain.contains("no pg_hba.conf entry") && plain.contains("no encryption"), "{plain}");
    let said = no(&format!("{url}?sslmode=require"), TlsOptions::default());
    assert!(said.contains("'sslmode=require' does not belong there"), "{said}");
    let unfit = TlsOptions { key: None, ..shown(&ca, "guest") };
    assert!(no(&url, unfit).contains("tls_cert: it needs tls_key"));
}

/// As PostgreSQL's manual makes it: good enough to keep who listens out, and no proof.
#[test]
fn certificate_of_a_ca_itself_proves_nothing() {
    let ca = Ca::new("a CA");
    let [cert, key] = ca.serve_itself("postgres");
    let settings = ["ssl=on", &format!("ssl_cert_file={cert}"), &format!("ssl_key_file={key}")];
    let Some(world) = World::alone(&settings) else { return };
    let drivers = Drivers::start().unwrap();
    let url = named(&world.server().url_of("postgres"));
    let no = why_not(&world, &drivers, &url, of_ca(&ca));
    assert!(no.contains("it is a CA's own certificate, not one that a CA has signed for a server"), "{no}");
    let options = DatabaseOptions {
        tls: mode(TlsMode::Require),
        ..DatabaseOptions::new("db", &url, world.node.clone())
    };
    let database = Postgres::start(&options, &drivers).unwrap();
    until("it is ready", || database.ready().is_ok());
}

#[test]
fn mariadb_is_prepared_committed_and_recovered_over_tls_alone() {
    let ca = Ca::new("a CA");
    let Some((server, database)) = mariadb(&ca) else { return };
    for (user, tls) in [("guest", shown(&ca, "guest")), ("evenkeel", mode(TlsMode::Require))] {
        server.sql(&format!("DELETE FROM {database}.t"));
        let url = named(&server.url_of(user, &database));
        let bench = Bench::with(DatabaseOptions { tls, ..options("db", &url) });
        let whole = branch();
        let Ok(Answered::Rows(cipher)) = bench.run(whole, "SHOW STATUS LIKE 'Ssl_cipher'") else { panic!() };
        let cipher = String::from_utf8(cipher[0][1].clone().unwrap()).unwrap();
        assert!(cipher.starts_with("TLS_"), "{cipher}");
        bench.run(whole, "INSERT INTO t VALUES (1, 0)").unwrap();
        assert_eq!(bench.ask(whole, Ask::Prepare), Answer::Voted(Vote::Yes));
        assert_eq!(bench.ask(whole, Ask::Commit), Answer::Done);
        // Its end is brought about by the session that asks the server about itself, and another of the pool.
        let (lost, session) = bench.prepared(2);
        server.sql(&format!("KILL {session}"));
        bench.ask_until_done(lost, Ask::Commit);
        assert_eq!(server.sql(&format!("SELECT COUNT(*) FROM {database}.t")), "2");
    }
}

#[test]
fn mariadb_that_does_not_prove_who_it_is_is_not_spoken_to() {
    let (ca, other) = (Ca::new("a CA"), Ca::new("another CA"));
    let Some((server, database)) = mariadb(&ca) else { return };
    let drivers = Drivers::start().unwrap();
    let url = server.url(&database);
    let why = |url: &str, tls: TlsOptions| {
        let options = DatabaseOptions { tls, ..options("db", url) };
        let database = MariaDb::start(options, &drivers).unwrap();
        let mut why = String::new();
        wait_until("it says why", || {
            why = database.ready().expect_err("it is not to be").to_string();
            !why.contains("not connected yet")
        });
        why
    };
    let no = why(&named(&url), of_ca(&other));
    let end = format!(
        "UnknownIssuer; tls = verify-full (the default here), and no CA in {} (tls_ca) has signed it",
        other.path("ca.pem")
    );
    assert!(no.ends_with(&end), "{no}");
    let no = why(&named(&url), mode(TlsMode::VerifyFull));
    assert!(
        no.contains("; tls = verify-full, and no public CA has signed it: tls_ca names the file"),
        "{no}"
    );
    let no = why(&url, of_ca(&ca));
    assert!(no.contains("certificate not valid for name \"127.0.0.1\""), "{no}");
    assert!(no.contains("so the url must name the host as the certificate does"), "{no}");
    let no = why(&url, TlsOptions::default());
    // Its word for a connection that ought to be secret.
    assert!(no.contains("Access denied"), "{no}");
    let no = why(&named(&server.url_of("guest", &database)), of_ca(&ca));
    assert!(no.contains("Access denied"), "{no}");
    let Some(plain) = MariaServer::shared() else { return };
    let no = why(&plain.url(&plain.database()), mode(TlsMode::Require));
    assert!(
        no.contains("the server has no TLS, and tls = require goes on with it alone; tls = disable goes"),
        "{no}"
    );
}

#[test]
fn what_cannot_be_obeyed_is_refused_at_the_start() {
    let (ca, drivers) = (Ca::new("a CA"), Drivers::start().unwrap());
    let refused = |url: &str, tls: TlsOptions| {
        let options = DatabaseOptions { tls, ..options("db", url) };
        if url.starts_with("mysql") {
            MariaDb::start(options, &drivers).unwrap_err().to_string()
        } else {
            Postgres::start(&options, &drivers).unwrap_err().to_string()
        }
    };
    // A password that no temporary folder can have in its name.
    for url in ["postgres://u:p-w@db/d", "mysql://u:p-w@db/d"] {
        let unfit = TlsOptions { key: shown(&ca, "guest").key, ..shown(&ca, "guest") };
        let no = refused(url, unfit);
        assert!(no.starts_with("tls_key: ") && no.contains("guest.key is not the key of "), "{no}");
        let none = TlsOptions { key: Some(ca.pem()), ..shown(&ca, "guest") };
        let no = refused(url, none);
        assert!(no.contains("ca.pem has no key in PEM that is not encrypted"), "{no}");
        assert!(!no.contains("p-w"), "{no}");
    }
    for (url, it) in [
        ("postgres://u:p-w@db/d?sslmode=require", "'sslmode=require' does not belong there"),
        ("mysql://u:p-w@db/d?require_ssl=true&verify_ca=false", "'require_ssl=true' does not belong there"),
        ("mysql://u:p-w@db/d?ssl-mode=REQUIRED", "'ssl-mode=REQUIRED' does not belong there"),
        ("mysql://u:p-w@db/d?%72equire_ssl=true", "require_ssl does not belong there"),
    ] {
        let no = refused(url, TlsOptions::default());
        assert!(no.contains(it) && !no.contains("p-w"), "{no}");
    }
    for url in ["postgres://u@%2Frun/d", "mysql://u@localhost/d?socket=%2Frun%2Fmysqld.sock"] {
        let no = refused(url, mode(TlsMode::Require));
        assert!(no.contains("a socket of this machine has no TLS, and it is to have tls = require"), "{no}");
    }
}
