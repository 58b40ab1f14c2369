//! `[resource.NAME]` of the settings file: the databases that take part in transactions.
//!
//! ```text
//!  [resource.orders]
//!  url = "postgres://app@db.example/orders"       mysql:// or mariadb:// for those
//!  password_file = "/run/secrets/orders"          or password_env = "ORDERS_PASSWORD", or in the url
//!  sessions_max = 16
//!  connect_timeout = "5s"
//!  statement_timeout = "30s"
//!  auth = "scram"                                or any: how PostgreSQL must let us in
//!  tls = "verify-full"                           or disable, require
//!  tls_ca = "/etc/ssl/db-ca.pem"                 tls_cert, tls_key: who this server is
//! ```
//!
//! They hold from start to stop. Out of scope: whether the database answers (the server asks while it runs).

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sql::tls::{PemFile, TlsOptions};
use sql::{Auth, UnknownWord};
use toml::de::{DeTable, DeValue};
use txn::resource::RESOURCE_NAME_BYTES_MAX;

use super::error::{SettingError, Unreadable, WrongValue};
use super::kinds::Kind;
use super::toml_value::text_of;

/// A database that takes part in transactions.
#[derive(Clone, PartialEq, Eq)]
pub struct ResourceSettings {
    /// As commands name it.
    pub name: String,
    /// Which protocol it speaks.
    pub kind: ResourceKind,
    /// Where it is, with user and, once [`ResourceSettings::read_password`] was called, password.
    pub url: String,
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// How the server must let us in.
    pub auth: Option<Auth>,
    /// Longest wait for a session.
    pub connect_timeout: Duration,
    /// Longest wait for a statement.
    pub statement_timeout: Duration,
    /// How connections are kept secret; complete once [`ResourceSettings::read_tls`] was called.
    pub tls: TlsOptions,
    /// As the file says it.
    url_said: String,
    password: PasswordFrom,
}

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB, or MySQL.
    MariaDb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PasswordFrom {
    Url,
    File(String),
    Environment(String),
}

/// Without the address, which may have a password in it.
impl fmt::Debug for ResourceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceSettings")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl ResourceSettings {
    /// Puts the password into the address, from where the file says that it is: `read_file` has the first line of a file,
    /// `environment` a variable. Reads it again when called again.
    ///
    /// # Errors
    /// [`SettingError::Unreadable`], [`SettingError::Conflict`].
    pub fn read_password(
        &mut self,
        read_file: impl FnOnce(&str) -> Result<String, Unreadable>,
        environment: impl FnOnce(&str) -> Option<String>,
    ) -> Result<(), SettingError> {
        let name = &self.name;
        let unreadable =
            |place, why| SettingError::Unreadable { setting: format!("{GROUP}.{name}.{place}"), why };
        let password = match &self.password {
            PasswordFrom::Url => return Ok(()),
            PasswordFrom::File(path) => read_file(path).map_err(|why| unreadable("password_file", why))?,
            PasswordFrom::Environment(variable) => environment(variable).ok_or_else(|| {
                unreadable("password_env", Unreadable(format!("there is no variable {variable}")))
            })?,
        };
        self.url = with_password(&self.url_said, &password).ok_or_else(|| {
            SettingError::Conflict(format!(
                "{GROUP}.{name}.url: a password is set beside it, so the url must be SCHEME://USER@HOST/DATABASE, without a password"
            ))
        })?;
        Ok(())
    }

    /// Reads the files that TLS needs with `read_file`, and looks whether all of it can be obeyed.
    ///
    /// # Errors
    /// [`SettingError::Unreadable`], [`SettingError::Tls`].
    pub fn read_tls(
        &mut self,
        read_file: impl Fn(&str) -> Result<String, Unreadable>,
    ) -> Result<(), SettingError> {
        let Self { name, tls, .. } = self;
        let files = [("tls_ca", &mut tls.ca), ("tls_cert", &mut tls.cert), ("tls_key", &mut tls.key)];
        for (setting, file) in files {
            let Some(file) = file else { continue };
            let setting = || format!("{GROUP}.{name}.{setting}");
            file.text =
                read_file(&file.path).map_err(|why| SettingError::Unreadable { setting: setting(), why })?;
        }
        tls.check().map_err(|error| SettingError::Tls { resource: name.clone(), error })
    }
}

/// What is wrong, and where in the file.
type Wrong = (Range<usize>, String);

/// The resources of a file's table, in the order of their names.
pub(super) fn read(file: &DeTable<'_>) -> Result<Vec<ResourceSettings>, Wrong> {
    let Some((key, value)) = file.iter().find(|(key, _)| key.get_ref() == GROUP) else {
        return Ok(Vec::new());
    };
    let DeValue::Table(tables) = value.get_ref() else {
        return Err((key.span(), format!("{GROUP} is a table of tables: [{GROUP}.NAME]")));
    };
    if tables.len() > RESOURCES_MAX {
        return Err((key.span(), format!("{} resources: the most is {RESOURCES_MAX}", tables.len())));
    }
    let mut resources = Vec::new();
    for (key, value) in tables {
        let DeValue::Table(table) = value.get_ref() else {
            return Err((
                key.span(),
                format!("{GROUP}.{0}: expected a table [{GROUP}.{0}] with url", key.get_ref()),
            ));
        };
        resources.push(read_one(key.get_ref(), key.span(), table)?);
    }
    Ok(resources)
}

fn read_one(name: &str, at: Range<usize>, table: &DeTable<'_>) -> Result<ResourceSettings, Wrong> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name == KEYS || !(1..=RESOURCE_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_part) {
        let text = format!(
            "{GROUP}.{name}: a name is 1 to {RESOURCE_NAME_BYTES_MAX} letters, digits, - and _; '{KEYS}' are the server's own"
        );
        return Err((at, text));
    }
    let mut url = None;
    let mut password = None;
    let (mut sessions_max, mut connect, mut statement) =
        (16, Duration::from_secs(5), Duration::from_secs(30));
    let (mut tls, mut auth) = (TlsOptions::default(), None);
    for (key, value) in table {
        let wrong = |why: WrongValue| (value.span(), format!("{GROUP}.{name}.{}: {why}", key.get_ref()));
        let text = text_of(value.get_ref()).map_err(wrong)?;
        match &**key.get_ref() {
            "url" => url = Some((text, value.span())),
            "password_file" | "password_env" if password.is_some() => {
                return Err(wrong("the password is given twice".into()));
            }
            "password_file" => password = Some(PasswordFrom::File(text)),
            "password_env" => password = Some(PasswordFrom::Environment(text)),
            "sessions_max" => {
                let count = usize::read(&text).ok().filter(|count| (1..=SESSIONS_MAX).contains(count));
                sessions_max = count.ok_or_else(|| {
                    wrong(format!("expected a whole number from 1 to {SESSIONS_MAX}").into())
                })?;
            }
            "connect_timeout" => connect = timeout(&text).map_err(wrong)?,
            "statement_timeout" => statement = timeout(&text).map_err(wrong)?,
            "auth" => auth = Some((word(&text).map_err(wrong)?, value.span())),
            "tls" => tls.mode = Some(word(&text).map_err(wrong)?),
            "tls_ca" => tls.ca = Some(unread(text)),
            "tls_cert" => tls.cert = Some(unread(text)),
            "tls_key" => tls.key = Some(unread(text)),
            other => {
                return Err((key.span(), format!("{GROUP}.{name} has no '{other}': it has {ALL}")));
            }
        }
    }
    let (url, url_at) = url.ok_or_else(|| (at, format!("{GROUP}.{name} has no url")))?;
    let kind = match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => ResourceKind::Postgres,
        Some("mysql" | "mariadb") => ResourceKind::MariaDb,
        _ => {
            let text =
                format!("{GROUP}.{name}.url: expected postgres://USER@HOST:PORT/DATABASE or mysql://...");
            return Err((url_at, text));
        }
    };
    if let (ResourceKind::MariaDb, Some((_, at))) = (kind, &auth) {
        let text = format!("{GROUP}.{name}.auth: auth is for PostgreSQL only");
        return Err((at.clone(), text));
    }
    Ok(ResourceSettings {
        name: name.to_owned(),
        kind,
        url_said: url.clone(),
        url,
        sessions_max,
        auth: auth.map(|(auth, _)| auth),
        connect_timeout: connect,
        statement_timeout: statement,
        tls,
        password: password.unwrap_or(PasswordFrom::Url),
    })
}

fn unread(path: String) -> PemFile {
    PemFile { path, text: String::new() }
}

fn word<T: std::str::FromStr<Err = UnknownWord>>(text: &str) -> Result<T, WrongValue> {
    Ok(text.parse()?)
}

fn timeout(text: &str) -> Result<Duration, WrongValue> {
    let within = |time: &Duration| (Duration::from_millis(1)..=TIMEOUT_MAX).contains(time);
    Duration::read(text).ok().filter(within).ok_or_else(|| "expected a duration from 1ms to 1h".into())
}

/// `scheme://user@rest` with a password; `None` if there is no user, or a password.
fn with_password(url: &str, password: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next().unwrap_or(rest);
    let (user, _) = authority.rsplit_once('@')?;
    if user.is_empty() || user.contains(':') {
        return None;
    }
    let behind = &rest[user.len()..];
    Some(format!("{scheme}://{user}:{}{behind}", utf8_percent_encode(password, NON_ALPHANUMERIC)))
}

const ALL: &str = "url, password_file, password_env, sessions_max, connect_timeout, statement_timeout, auth, tls, tls_ca, tls_cert, tls_key";
/// The table's name in the file.
pub(super) const GROUP: &str = "resource";
/// The resource that is the server's own.
pub const KEYS: &str = "keys";
/// A transaction may have a branch in each, and one of keys.
const RESOURCES_MAX: usize = txn::protocol::BRANCHES_MAX - 1;
const SESSIONS_MAX: usize = 10_000;
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn error(toml: &str) -> String {
        Settings::default().apply_toml(toml).expect_err("the file is wrong").to_string()
    }

    #[test]
    fn resources_are_read_beside_settings_and_survive_a_rewrite() {
        let file = "port = 7000\n[resource.orders]\nurl = 'postgres://app@db/orders'\nsessions_max = 4\n\
                    [resource.stock]\nurl = 'mysql://app:pw@db/stock'\nstatement_timeout = '2s'\n";
        let mut settings = Settings::default();
        settings.apply_toml(file).expect("the file is right");
        let found: Vec<_> =
            settings.resources.iter().map(|it| (&*it.name, it.kind, it.sessions_max)).collect();
        assert_eq!(found, [("orders", ResourceKind::Postgres, 4), ("stock", ResourceKind::MariaDb, 16)]);
        assert_eq!(settings.resources[1].statement_timeout, Duration::from_secs(2));
        settings.set("txn.lock_wait", "3s").expect("set");
        let rewritten = settings.rewritten(file).expect("rewritten");
        assert!(rewritten.contains("[resource.orders]\nurl = 'postgres://app@db/orders'\n"), "{rewritten}");
        let mut again = Settings::default();
        again.apply_toml(&rewritten).expect("what was rewritten is right");
        assert_eq!(again, settings);
        assert!(!format!("{settings:?}").contains("pw"), "no password in a log");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(error("[resource.a]\nsessions_max = 1\n"), "line 1: resource.a has no url");
        assert!(
            error("[resource.a]\nurl = 'redis://x'\n")
                .starts_with("line 2: resource.a.url: expected postgres://")
        );
        assert!(error("[resource.keys]\nurl = 'mysql://x/y'\n").contains("'keys' are the server's own"));
        assert!(
            error("[resource.'a b']\nurl = 'mysql://x/y'\n").starts_with("line 1: resource.a b: a name is")
        );
        assert!(
            error("[resource.a]\nurl = 'mysql://x/y'\npool = 3\n")
                .starts_with("line 3: resource.a has no 'pool'")
        );
        assert!(error("[resource.a]\nurl = 'mysql://x/y'\nsessions_max = 0\n").ends_with("from 1 to 10000"));
        assert!(
            error("[resource.a]\nurl = 'mysql://x/y'\nconnect_timeout = '0s'\n").contains("from 1ms to 1h")
        );
        assert_eq!(
            error("[resource.a]\nurl = 'mysql://x/y'\ntls = 'prefer'\n"),
            "line 3: resource.a.tls: 'prefer' would go on in plain without a word: expected disable, require or verify-full"
        );
        assert!(
            error("[resource.a]\nurl = 'mysql://x/y'\ntls = true\n").ends_with("or verify-full, not 'true'")
        );
        assert!(error("resource = 3\n").contains("a table of tables"));
        assert!(error("[resource]\nurl = 'mysql://x/y'\n").contains("expected a table [resource.url]"));
    }

    #[test]
    fn password_comes_from_its_own_place_and_needs_a_user() {
        let read = |lines: &str| {
            let mut settings = Settings::default();
            settings.apply_toml(&format!("[resource.a]\n{lines}\n")).expect("the file is right");
            let mut resource = settings.resources.remove(0);
            let file = |path: &str| {
                if path == "/pw" {
                    Ok("p@ss/word".to_owned())
                } else {
                    Err(Unreadable("no such file".to_owned()))
                }
            };
            let environment = |name: &str| (name == "PW").then(|| "from:env".to_owned());
            resource.read_password(file, environment).map(|()| resource.url)
        };
        let url = "url = 'postgres://app@db:5432/x'";
        assert_eq!(
            read(&format!("{url}\npassword_file = '/pw'")).as_deref(),
            Ok("postgres://app:p%40ss%2Fword@db:5432/x")
        );
        assert_eq!(
            read(&format!("{url}\npassword_env = 'PW'")).as_deref(),
            Ok("postgres://app:from%3Aenv@db:5432/x")
        );
        assert_eq!(read(url).as_deref(), Ok("postgres://app@db:5432/x"));
        let mut settings = Settings::default();
        settings.apply_toml(&format!("[resource.a]\n{url}\npassword_file = '/pw'\n")).expect("right");
        for password in ["one", "two"] {
            let resource = &mut settings.resources[0];
            resource.read_password(|_| Ok(password.to_owned()), |_| None).expect("a password");
            assert_eq!(resource.url, format!("postgres://app:{password}@db:5432/x"), "read again");
        }
        assert!(
            read(&format!("{url}\npassword_env = 'NO'"))
                .is_err_and(|why| why.to_string().contains("no variable NO"))
        );
        assert!(
            read(&format!("{url}\npassword_file = '/no'"))
                .is_err_and(|why| why.to_string().contains("no such file"))
        );
        for url in ["postgres://db/x", "postgres://u:p@db/x"] {
            let read = read(&format!("url = '{url}'\npassword_env = 'PW'"));
            assert!(matches!(read, Err(SettingError::Conflict(_))), "{read:?}");
        }
    }

    #[test]
    fn files_for_tls_that_say_nothing_or_have_no_effect_are_refused_by_name() {
        let refused = |lines: &str| {
            let mut settings = Settings::default();
            let file = format!("[resource.a]\nurl = 'postgres://app@db/x'\n{lines}\n");
            settings.apply_toml(&file).expect("the file is right");
            settings.resources.remove(0).read_tls(|path| match path {
                "/empty" => Ok(String::new()),
                "/broken" => {
                    Ok("-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n".to_owned())
                }
                _ => Err(Unreadable(format!("cannot read the file {path}: gone"))),
            })
        };
        let no = |lines: &str| refused(lines).expect_err(lines).to_string();
        assert_eq!(refused("tls = 'verify-full'"), Ok(()));
        assert_eq!(no("tls_ca = '/no'"), "resource.a.tls_ca: cannot read the file /no: gone");
        assert_eq!(
            no("tls_ca = '/empty'"),
            "resource.a.tls_ca: /empty has no certificate in it (-----BEGIN CERTIFICATE-----)"
        );
        assert!(
            no("tls_ca = '/broken'")
                .starts_with("resource.a.tls_ca: /broken: certificate 1 is none of a CA: ")
        );
        assert_eq!(
            no("tls = 'require'\ntls_ca = '/empty'"),
            "resource.a.tls_ca: tls = require checks no certificate: leave it away, or say tls = verify-full"
        );
        assert_eq!(no("tls_cert = '/empty'"), "resource.a.tls_cert: it needs tls_key, the file of its key");
        assert_eq!(
            no("tls_key = '/empty'"),
            "resource.a.tls_key: it needs tls_cert, the file of its certificate"
        );
        assert!(
            no("tls = 'disable'\ntls_cert = '/empty'\ntls_key = '/empty'").contains("tls = disable shows no")
        );
    }
}
