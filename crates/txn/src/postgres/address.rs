//! An address of PostgreSQL, and how connections to it are kept secret.
//!
//! The driver obeys `sslmode` in an address where it knows the word, takes it for `prefer` where there is none, and goes on in plain then
//! if the server wants that: so the word has no place there, and the mode is set here, always.
//!
//! Out of scope: what the modes do (`tls`).

use std::net::IpAddr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};

use super::failure::text;
use crate::tls::{BESIDE, Tls, refuse_in_address};

/// Where `url` leads.
///
/// # Errors
/// It leads nowhere, or says how to get there (see the header).
pub(crate) fn read(url: &str) -> Result<Config, String> {
    refuse_in_address(url)?;
    let config = url.parse::<Config>().map_err(|error| text(&error))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("it names no host".to_owned());
    }
    // Written in another way: as pairs, or escaped.
    if config.get_ssl_mode() != SslMode::Prefer || config.get_ssl_negotiation() != SslNegotiation::Postgres {
        return Err(format!("sslmode and sslnegotiation do not belong there: {BESIDE}"));
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

/// Has the driver speak TLS, or not; and ask its hook for TLS for the stream, in any case, where it can (`tags`).
///
/// # Errors
/// There is none where it leads to, or nothing to look for in certificates.
pub(crate) fn secure(config: &mut Config, tls: &Tls) -> Result<(), String> {
    let hosts = config.get_hosts();
    let has_socket = hosts.iter().any(|host| matches!(host, Host::Unix(_)));
    if !tls.is_on() {
        let is_hooked = !hosts.is_empty() && !has_socket;
        config.ssl_mode(if is_hooked { SslMode::Require } else { SslMode::Disable });
        // The server is asked for nothing.
        config.ssl_negotiation(SslNegotiation::Direct);
        return Ok(());
    }
    if has_socket {
        tls.refuse_socket()?;
    }
    if config.get_hosts().is_empty() {
        return Err("it names a hostaddr alone, and TLS looks for the name of a host".to_owned());
    }
    config.ssl_mode(SslMode::Require);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{TlsMode, TlsOptions};

    /// Whether it is secret, and whether its stream is made by the hook.
    fn mode(url: &str, said: Option<TlsMode>) -> Result<(bool, bool), String> {
        let mut config = read(url)?;
        let options = TlsOptions { mode: said, ..TlsOptions::default() };
        let tls = Tls::new(&options, is_here(&config)).map_err(|error| error.to_string())?;
        secure(&mut config, &tls)?;
        let is_asked_for = config.get_ssl_negotiation() == SslNegotiation::Postgres;
        assert_eq!(is_asked_for, tls.is_on(), "{url}");
        Ok((tls.is_on(), config.get_ssl_mode() == SslMode::Require))
    }

    #[test]
    fn database_on_this_machine_is_plain_by_default_and_no_other() {
        for url in ["postgres://u@localhost/d", "postgres://u@127.0.0.2/d", "postgres://u@[::1]/d"] {
            assert_eq!(mode(url, None), Ok((false, true)), "{url}");
        }
        for url in
            ["postgres://u@%2Frun/d", "postgres://u@localhost,%2Frun/d", "postgres:///d?hostaddr=127.0.0.1"]
        {
            assert_eq!(mode(url, None), Ok((false, false)), "{url}");
        }
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
    fn word_for_it_in_the_address_is_refused_however_it_is_written() {
        for url in [
            "postgres://u@db/d?sslmode=disable",
            "postgres://u@db/d?application_name=x&sslmode=verify-full",
            "postgres://u@db/d?sslrootcert=system",
            "postgres://u@db/d?ssl%6Dode=require",
            "host=db user=u sslmode=require",
        ] {
            let no = mode(url, None).expect_err(url);
            assert!(
                no.contains("belong there: TLS is set beside it, with tls = disable, require or"),
                "{no}"
            );
        }
    }

    #[test]
    fn socket_or_number_alone_is_refused_where_tls_is_wanted() {
        let no = mode("postgres://u@%2Frun/d", Some(TlsMode::Require)).expect_err("a socket");
        assert_eq!(no, "a socket of this machine has no TLS, and it is to have tls = require");
        let no = mode("postgres:///d?hostaddr=10.0.0.1", None).expect_err("a number");
        assert!(no.contains("hostaddr alone"), "{no}");
    }
}
