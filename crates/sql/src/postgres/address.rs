//! An address of PostgreSQL, how connections to it are kept secret, and how the server must let us in.
//!
//! The driver obeys `sslmode` in an address where it knows the word, takes it for `prefer` where there is none, and goes on in plain then
//! if the server wants that: so the word has no place there, and the mode is set here, always.
//!
//! Out of scope: what the modes do (`tls`).

use std::net::IpAddr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};

use super::failure::text;
use super::gate::Proof;
use crate::Auth;
use crate::error::AddressError::{self, Conflict, HasTls, Malformed};
use crate::tls::{Tls, refuse_in_address};

/// Where `url` leads.
///
/// # Errors
/// It leads nowhere, or says how to get there (see the header).
pub(crate) fn read(url: &str) -> Result<Config, AddressError> {
    refuse_in_address(url)?;
    let config = url.parse::<Config>().map_err(|error| Malformed(text(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(Malformed("it names no host".to_owned()));
    }
    // Written in another way: as pairs, or escaped.
    if config.get_ssl_mode() != SslMode::Prefer || config.get_ssl_negotiation() != SslNegotiation::Postgres {
        return Err(HasTls("sslmode or sslnegotiation".to_owned()));
    }
    Ok(config)
}

/// Whether all that it leads to is on this machine.
pub(crate) fn is_here(config: &Config) -> bool {
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().all(IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => crate::tls::is_loopback(name),
        Host::Unix(_) => true,
    })
}

/// Has the driver ask its hook for the stream, with TLS or without, wherever it can (`tags`).
///
/// # Errors
/// There is none where it leads to, or nothing to look for in certificates.
pub(crate) fn secure(config: &mut Config, tls: &Tls) -> Result<(), AddressError> {
    let sockets = config.get_hosts().iter().filter(|host| matches!(host, Host::Unix(_))).count();
    if sockets > 0 && sockets < config.get_hosts().len() {
        return Err(Conflict(
            "it names a socket of this machine and a host: what holds for one does not for the other"
                .to_owned(),
        ));
    }
    // The hook asks the server for TLS itself, where that is wanted.
    config.ssl_negotiation(SslNegotiation::Direct);
    if tls.is_on() {
        if sockets > 0 {
            tls.refuse_socket()?;
        }
        if config.get_hosts().is_empty() {
            let why = "it names a hostaddr alone, and TLS looks for the name of a host";
            return Err(Conflict(why.to_owned()));
        }
    } else if config.get_hosts().is_empty() {
        // Without a name of a host there is no hook.
        let addresses: Vec<String> = config.get_hostaddrs().iter().map(IpAddr::to_string).collect();
        addresses.iter().for_each(|address| _ = config.host(address));
    }
    config.ssl_mode(if sockets > 0 { SslMode::Disable } else { SslMode::Require });
    Ok(())
}

/// How the server must let us in, if the settings say `said`: where a password could be read on its way, with SCRAM.
///
/// # Errors
/// What is said cannot be had.
pub(crate) fn proof(config: &Config, tls: &Tls, said: Option<Auth>) -> Result<Proof, AddressError> {
    let (has_password, has_socket) = (
        config.get_password().is_some(),
        config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_))),
    );
    match said {
        Some(Auth::Scram) if !has_password => {
            Err(Conflict("auth = scram proves a password, and there is none".to_owned()))
        }
        Some(Auth::Scram) if has_socket => {
            let why = "auth = scram is for connections to a host: the address is a socket of this machine";
            Err(Conflict(why.to_owned()))
        }
        Some(Auth::Scram) => Ok(Proof::Scram),
        None if has_password && !tls.is_on() => Ok(Proof::Scram),
        Some(Auth::Any) | None => Ok(Proof::Any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{TlsMode, TlsOptions};

    /// Whether it is secret, and whether its stream is made by the hook.
    fn mode(url: &str, said: Option<TlsMode>) -> Result<(bool, bool), AddressError> {
        let mut config = read(url)?;
        let options = TlsOptions { mode: said, ..TlsOptions::default() };
        let tls = Tls::new(&options, is_here(&config)).expect("it can be");
        secure(&mut config, &tls)?;
        assert_eq!(config.get_ssl_negotiation(), SslNegotiation::Direct, "{url}");
        Ok((tls.is_on(), config.get_ssl_mode() == SslMode::Require))
    }

    #[test]
    fn database_on_this_machine_is_plain_by_default_and_no_other() {
        for url in ["postgres://u@localhost/d", "postgres://u@127.0.0.2/d", "postgres://u@[::1]/d"] {
            assert_eq!(mode(url, None), Ok((false, true)), "{url}");
        }
        assert_eq!(mode("postgres:///d?hostaddr=127.0.0.1", None), Ok((false, true)));
        assert_eq!(mode("postgres://u@%2Frun/d", None), Ok((false, false)));
        let no = mode("postgres://u@localhost,%2Frun/d", None).expect_err("two kinds");
        assert!(matches!(&no, Conflict(why) if why.contains("a socket of this machine and a host")), "{no}");
        for url in [
            "postgres://u@db/d",
            "postgres://u@10.0.0.1/d",
            "postgres://u@localhost,db/d",
            "postgres://u@localhost/d?hostaddr=10.0.0.1",
        ] {
            assert_eq!(mode(url, None), Ok((true, true)), "{url}");
        }
    }

    #[test]
    fn password_needs_scram_where_it_could_be_read_on_its_way_unless_somebody_says_otherwise() {
        let plain = Some(TlsMode::Disable);
        for (url, mode, said, proof) in [
            ("postgres://u:p@localhost/d", None, None, Some(Proof::Scram)),
            ("postgres://u:p@db/d", plain, None, Some(Proof::Scram)),
            ("postgres://u:p@db/d", plain, Some(Auth::Any), Some(Proof::Any)),
            ("postgres://u:p@db/d", None, None, Some(Proof::Any)),
            ("postgres://u:p@db/d", None, Some(Auth::Scram), Some(Proof::Scram)),
            ("postgres://u@localhost/d", None, None, Some(Proof::Any)),
            ("postgres://u@localhost/d", None, Some(Auth::Scram), None),
            ("postgres://u:p@%2Frun/d", None, Some(Auth::Scram), None),
        ] {
            let mut config = read(url).expect("an address");
            let options = TlsOptions { mode, ..TlsOptions::default() };
            let tls = Tls::new(&options, is_here(&config)).expect("it can be");
            secure(&mut config, &tls).expect("it can be");
            assert_eq!(super::proof(&config, &tls, said).ok(), proof, "{url} {said:?}");
        }
    }

    #[test]
    fn word_for_it_in_the_address_is_refused_however_it_is_written() {
        for url in [
            "postgres://u@db/d?sslmode=disable",
            "postgres://u@db/d?application_name=x&sslmode=verify-full",
            "postgres://u@db/d?sslrootcert=system",
            "postgres://u@db/d?ssl%6Dode=require",
            "host=db user=u sslmode=require",
        ] {
            let no = mode(url, None).expect_err(url);
            assert!(matches!(no, HasTls(_)), "{no:?}");
            let no = no.to_string();
            assert!(
                no.contains("belong there: TLS is set beside it, with tls = disable, require or"),
                "{no}"
            );
        }
    }

    #[test]
    fn socket_or_number_alone_is_refused_where_tls_is_wanted() {
        let no = mode("postgres://u@%2Frun/d", Some(TlsMode::Require)).expect_err("a socket");
        let why = "a socket of this machine has no TLS, and it is to have tls = require";
        assert_eq!(no, Conflict(why.to_owned()));
        let no = mode("postgres:///d?hostaddr=10.0.0.1", None).expect_err("a number");
        assert!(matches!(&no, Conflict(why) if why.contains("hostaddr alone")), "{no}");
    }
}
