//! Against a server: what the protocol leans on, and no call from outside can bring about.

use tokio_postgres::config::SslMode;

use super::super::address;
use super::certificates::Ca;
use super::*;
use crate::tls::{TlsMode, TlsOptions};

/// A server, and a session of it where tags are heard, in plain and over TLS, then one where they are not.
fn with_session(test: &impl AsyncFn(&common::Postgres, &Session, bool)) {
    let ca = Ca::new("a CA");
    let settings = ca.of_postgres();
    let Some(server) = common::Postgres::start(&settings.each_ref().map(String::as_str)) else { return };
    server.sql("CREATE TABLE t (key int)");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (mode, hears) in [(TlsMode::Disable, true), (TlsMode::Require, true), (TlsMode::Disable, false)] {
            let mut config = server.url().parse().expect("an address");
            let tls = TlsOptions { mode: Some(mode), ..TlsOptions::default() };
            let tls = Tls::new(&tls, true).expect("it can be");
            address::secure(&mut config, &tls).expect("a host");
            if !hears {
                config.ssl_mode(SslMode::Disable);
            }
            let session = Session::open(&config, &tls, Proof::Any, Duration::from_secs(30), |_| {})
                .await
                .expect("it connects");
            let ssl = "SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()";
            let is_secret = session.value(ssl).await.map_err(Failure::text);
            assert_eq!(is_secret.as_ref().map(|it| it.as_deref() == Some("t")), Ok(tls.is_on()));
            test(&server, &session, hears).await;
        }
    });
}

fn insert() -> Statement {
    Statement { text: "INSERT INTO t VALUES (1)".to_owned(), ..Statement::default() }
}

/// The server answers PREPARE TRANSACTION without an error there: a yes would be a commit that was rolled back.
#[test]
fn transaction_that_failed_unseen_is_not_taken_for_prepared() {
    with_session(&async |server, session, hears| {
        for prepares in [false, true] {
            let (begun, inserted) = session.begin(&insert()).await;
            assert!(begun.is_ok() && inserted.is_ok(), "{begun:?} {inserted:?}");
            session.client.batch_execute("SELECT 1/0").await.expect_err("it fails");
            if prepares {
                let no = session.prepare("x").await;
                assert!(
                    matches!(no, Err(Failure::Refused(SqlState::IN_FAILED_SQL_TRANSACTION, _))),
                    "{no:?}"
                );
                assert!(session.rollback().await);
            } else {
                session.client.batch_execute("PREPARE TRANSACTION 'x'").await.expect("no error");
            }
            assert_eq!(session.heard.prepared.load(Ordering::Relaxed), 0);
            assert_eq!(server.sql("SELECT count(*) FROM pg_prepared_xacts").trim(), "0");
        }
        let (begun, inserted) = session.begin(&insert()).await;
        assert!(begun.is_ok() && inserted.is_ok(), "{begun:?} {inserted:?}");
        assert_eq!(session.prepare("x").await.map_err(Failure::text), Ok(true));
        assert_eq!(session.heard.prepared.load(Ordering::Relaxed), u64::from(hears));
        assert_eq!(session.finish("x", false).await.map_err(Failure::text), Ok(true));
        assert_eq!(server.sql("SELECT count(*) FROM t").trim(), "0");
    });
}

/// Else it would be looked up by what the next statement of the same message told.
#[test]
fn transaction_that_wrote_nothing_has_no_number() {
    with_session(&async |_, session, _| {
        let reads = Statement { text: "SELECT 1".to_owned(), ..Statement::default() };
        for (statement, has_one) in [(reads, false), (insert(), true)] {
            let (begun, answered) = session.begin(&statement).await;
            assert!(begun.is_ok() && answered.is_ok(), "{begun:?} {answered:?}");
            let rows = session.rows(&format!("{NUMBER}; {SETTLE}")).await.map_err(Failure::text);
            assert_eq!(rows.map(|rows| first(&rows).is_some()), Ok(has_one));
            assert!(session.rollback().await);
        }
    });
}

/// A statement is sent behind its BEGIN unseen. Should that fail, the statement must not be a transaction of its own.
#[test]
fn statement_whose_begin_failed_writes_nothing() {
    with_session(&async |server, session, _| {
        for cleans in [false, true] {
            let no = session.run(&insert()).await;
            assert!(matches!(&no, Err(Unanswered::Failed(why)) if why.contains("read-only")), "{no:?}");
            // What a branch has set lasts no longer than it.
            let sets = "SET default_transaction_read_only TO off";
            let sets = Statement { text: sets.to_owned(), ..Statement::default() };
            let (begun, set) = session.begin(&sets).await;
            assert!(begun.is_ok() && set.is_ok(), "{begun:?} {set:?}");
            if cleans {
                assert_eq!(session.commit().await, (Committed::Yes, true));
            } else {
                assert_eq!(session.prepare("x").await.map_err(Failure::text), Ok(true));
                assert_eq!(session.finish("x", true).await.map_err(Failure::text), Ok(true));
            }
            let no = session.run(&insert()).await;
            assert!(matches!(&no, Err(Unanswered::Failed(why)) if why.contains("read-only")), "{no:?}");
        }
        assert_eq!(server.sql("SELECT count(*) FROM t").trim(), "0");
    });
}
