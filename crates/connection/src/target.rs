//! Which server: `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS, or `memcached://host[:port]`.
//!
//! With TLS, files are named behind a question mark: `rediss://host?cacert=CA.pem&cert=OWN.pem&key=OWN.key`; `insecure=1` takes any
//! server's certificate.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use url::Url;

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// Redis's.
    Resp,
    /// The text protocol of memcached.
    Memcached,
}

/// A server, and who we are there.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Where it is.
    pub address: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// Without user and password.
    name: String,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    /// How it is reached by TLS; `None`: plain.
    pub secured: Option<Secured>,
}

/// What a client of TLS has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secured {
    /// The name that the server's certificate is to have.
    pub host: String,
    /// File of the authorities that sign certificates; `None`: those that Mozilla trusts.
    pub ca: Option<PathBuf>,
    /// File of the client's own certificate.
    pub cert: Option<PathBuf>,
    /// File of its key.
    pub key: Option<PathBuf>,
    /// Any server will do.
    pub trusts_anybody: bool,
}

/// What is wrong with a URL, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TargetError(String);

impl Target {
    /// A server on this machine.
    #[must_use]
    pub fn local(port: u16) -> Self {
        Self::local_of(Protocol::Resp, port)
    }

    /// A server on this machine that speaks `protocol`.
    #[must_use]
    pub fn local_of(protocol: Protocol, port: u16) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let name = format!("{}://{address}", protocol.scheme());
        Self { address, protocol, name, user: None, password: None, database: 0, secured: None }
    }

    /// The requests that each connection begins with, encoded; each has one reply.
    #[must_use]
    pub fn login(&self) -> Vec<String> {
        let words: Vec<&str> = self.user.iter().chain(&self.password).map(String::as_str).collect();
        let auth = self.password.is_some().then(|| [&["AUTH"], &words[..]].concat());
        let database = self.database.to_string();
        let select = (self.database != 0).then(|| vec!["SELECT", &database]);
        auth.iter().chain(&select).map(|words| encoded(words)).collect()
    }

    /// The same server, reached as `change` says of how it was to be reached and of its host.
    #[must_use]
    pub fn secured_by(mut self, change: impl FnOnce(Option<Secured>, &str) -> Option<Secured>) -> Self {
        let place = self.name.split_once("://").map_or("", |(_, place)| place).to_owned();
        let host = place.rsplit_once(':').map_or(place.as_str(), |(host, _)| host);
        self.secured = change(self.secured.take(), host.trim_matches(['[', ']']));
        let scheme = if self.secured.is_some() { "rediss" } else { self.protocol.scheme() };
        self.name = format!("{scheme}://{place}");
        self
    }

    fn from_url(url: &Url) -> Result<Self, TargetError> {
        let wrong = |text: &str| TargetError(text.to_owned());
        let protocol = match url.scheme() {
            "redis" | "valkey" | "rediss" | "valkeys" => Protocol::Resp,
            "memcached" => Protocol::Memcached,
            other => {
                return Err(TargetError(format!(
                    "`{other}:` is no scheme of a server: use redis://host:port"
                )));
            }
        };
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(|| wrong("no host: use redis://host:port"))?;
        let port = url.port().unwrap_or(protocol.port());
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_secured = matches!(url.scheme(), "rediss" | "valkeys");
        let secured = is_secured.then(|| Secured::from_query(bare, url)).transpose()?;
        if !is_secured && url.query().is_some() {
            return Err(wrong("what is behind `?` is for TLS: use rediss://"));
        }
        let scheme = if is_secured { "rediss" } else { protocol.scheme() };
        let found =
            (bare, port).to_socket_addrs().map_err(|error| TargetError(format!("{host}: {error}")))?.next();
        let database = url.path().trim_matches('/');
        let is_more = !url.username().is_empty() || url.password().is_some() || !database.is_empty();
        if protocol == Protocol::Memcached && is_more {
            return Err(wrong("memcached knows neither user nor database: use memcached://host:port"));
        }
        Ok(Self {
            address: found.ok_or_else(|| TargetError(format!("{host} has no address")))?,
            protocol,
            name: format!("{scheme}://{host}:{port}"),
            secured,
            user: (!url.username().is_empty()).then(|| decoded(url.username())),
            password: url.password().map(decoded),
            database: if database.is_empty() {
                0
            } else {
                let wrong = |_| TargetError(format!("`{database}` is no number of a database"));
                database.parse().map_err(wrong)?
            },
        })
    }
}

impl Secured {
    /// Any server called `host` that a public authority knows.
    #[must_use]
    pub fn of(host: &str) -> Self {
        Self { host: host.to_owned(), ..Self::default() }
    }

    fn from_query(host: &str, url: &Url) -> Result<Self, TargetError> {
        let mut secured = Self::of(host);
        for (name, value) in url.query_pairs() {
            let path = || Some(PathBuf::from(value.as_ref()));
            match name.as_ref() {
                "cacert" => secured.ca = path(),
                "cert" => secured.cert = path(),
                "key" => secured.key = path(),
                "insecure" => secured.trusts_anybody = value == "1",
                other => {
                    return Err(TargetError(format!("`{other}` is none of cacert, cert, key, insecure")));
                }
            }
        }
        Ok(secured)
    }
}

impl Protocol {
    fn scheme(self) -> &'static str {
        match self {
            Self::Resp => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// Where its servers listen unless they are told otherwise.
    fn port(self) -> u16 {
        match self {
            Self::Resp => 6379,
            Self::Memcached => 11_211,
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let url = Url::parse(text).map_err(|error| TargetError(format!("{error}: use redis://host:port")))?;
        Self::from_url(&url)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn encoded(words: &[&str]) -> String {
    let mut out = Vec::new();
    resp::encode_command(&mut out, words);
    String::from_utf8(out).expect("made of text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Target, TargetError> {
        text.parse()
    }

    #[test]
    fn url_has_all_parts_and_its_secrets_are_not_shown() {
        let target = parsed("redis://ann:p%40ss@127.0.0.1:7000/3").expect("a URL");
        assert_eq!(target.address, "127.0.0.1:7000".parse().expect("an address"));
        let login = ["*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$4\r\np@ss\r\n", "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"];
        assert_eq!(target.login(), login);
        assert!(!format!("{target} {target:?}").contains("p@ss"));
    }

    #[test]
    fn parts_that_are_not_given_have_defaults() {
        let target = parsed("redis://[::1]").expect("a URL");
        assert_eq!(target.address, "[::1]:6379".parse().expect("an address"));
        assert!(target.login().is_empty());
        assert_eq!(
            parsed("redis://:pw@127.0.0.1").expect("a URL").login(),
            ["*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n"]
        );
    }

    #[test]
    fn tls_has_a_scheme_and_names_its_files() {
        let target = parsed("rediss://ann:pw@127.0.0.1:7000/3?cacert=%2Fca.pem&cert=c&key=k&insecure=1");
        let target = target.expect("a URL");
        let secured = target.secured.clone().expect("TLS");
        assert_eq!((secured.host.as_str(), secured.ca), ("127.0.0.1", Some("/ca.pem".into())));
        assert_eq!((secured.cert, secured.key), (Some("c".into()), Some("k".into())));
        assert!(secured.trusts_anybody);
        assert_eq!(target.to_string(), "rediss://127.0.0.1:7000");
        assert_eq!(target.login().len(), 2);
        assert_eq!(parsed("rediss://[::1]").expect("a URL").secured, Some(Secured::of("::1")));
        assert_eq!(parsed("redis://127.0.0.1").expect("a URL").secured, None);
    }

    #[test]
    fn memcached_has_a_scheme_and_a_port_and_no_login() {
        let target = parsed("memcached://127.0.0.1").expect("a URL");
        assert_eq!((target.protocol, target.address.port()), (Protocol::Memcached, 11_211));
        assert_eq!(target.to_string(), "memcached://127.0.0.1:11211");
        assert!(target.login().is_empty());
    }

    #[test]
    fn what_is_no_server_is_refused_in_words() {
        for (text, part) in [
            ("localhost:6379", "use redis://"),
            ("127.0.0.1:6379", "use redis://"),
            ("redis://127.0.0.1?cacert=x", "rediss"),
            ("rediss://127.0.0.1?ca=x", "cacert"),
            ("redis://127.0.0.1/x", "database"),
            ("redis://", "host"),
            ("memcached://ann:pw@127.0.0.1", "neither user"),
            ("memcached://127.0.0.1/1", "nor database"),
        ] {
            let error = parsed(text).expect_err("refused").to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
