//! A server whose databases speak TLS: from its settings file to a transaction.
#![allow(clippy::disallowed_methods, reason = "tests start processes and make files")]

use resp::Value;

use crate::certificates::Ca;
use crate::common::{Server, bulk, eventually};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;

#[test]
fn transaction_over_two_databases_is_committed_over_tls_as_the_settings_say() {
    let ca = Ca::new("a CA");
    let Some(postgres) = Postgres::start(&ca.of_postgres().each_ref().map(String::as_str)) else { return };
    let Some(mariadb) = MariaDb::start(&ca.of_mariadb().each_ref().map(String::as_str)) else { return };
    postgres.sql("CREATE TABLE t (secret bool)");
    let database = mariadb.database();
    mariadb.sql(&format!("CREATE TABLE {database}.t (secret TEXT) ENGINE=InnoDB"));
    let [cert, key] = ca.sign("server").map(|file| {
        std::fs::write(&file.path, &file.text).expect("written");
        file.path
    });
    let ca_file = ca.path("ca.pem");
    let named = |url: String| url.replace("127.0.0.1", "localhost");
    let settings = format!(
        "[resource.pg]\nurl = '{}'\ntls = 'verify-full'\ntls_ca = '{ca_file}'\ntls_cert = '{cert}'\ntls_key = '{key}'\n\
         [resource.my]\nurl = '{}'\ntls_ca = '{ca_file}'\n",
        named(postgres.url()),
        named(mariadb.url(&database))
    );
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("settings.toml");
    std::fs::write(&file, settings).expect("written");
    let server = Server::start(&folder.path().join("data"), &[&format!("--config={}", file.display())]);
    eventually("both databases are ready", || match server.call(&["INFO", "transactions"]) {
        Value::Bulk(info) => String::from_utf8_lossy(&info).matches("state=ready").count() == 2,
        _ => false,
    });
    let begun = server.call(&["TX.BEGIN"]);
    let Value::Array(begun) = begun else { panic!("{begun:?}") };
    let Value::Bulk(id) = &begun[1] else { panic!("{begun:?}") };
    let id = String::from_utf8_lossy(id);
    let insert = "INSERT INTO t SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(server.call(&["TX.SQL", &id, "pg", insert]), Value::Integer(1));
    let insert = "INSERT INTO t SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'SSL_VERSION'";
    assert_eq!(server.call(&["TX.SQL", &id, "my", insert]), Value::Integer(1));
    let ended = server.call(&["TX.COMMIT", &id]);
    let Value::Array(ended) = ended else { panic!("{ended:?}") };
    assert_eq!(ended[0], bulk("committed"));
    assert_eq!(postgres.sql("SELECT secret FROM t").trim(), "t");
    assert_eq!(mariadb.sql(&format!("SELECT secret FROM {database}.t")), "TLSv1.3");
}
