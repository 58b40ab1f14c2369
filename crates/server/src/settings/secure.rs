//! Kinds of the settings `tls.*`, and how they become what connections are made from.

use std::path::Path;

use tls::{ClientCertificates, PemFile, ServerFiles, Versions};

use super::Settings;
use super::error::{Expected, SettingError};
use super::kinds::Kind;

impl Kind for ClientCertificates {
    fn read(text: &str) -> Result<Self, Expected> {
        match text.to_ascii_lowercase().as_str() {
            "no" => Ok(Self::No),
            "optional" => Ok(Self::Optional),
            "yes" => Ok(Self::Required),
            _ => Err("one of no, optional, yes".into()),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::No => "no",
            Self::Optional => "optional",
            Self::Required => "yes",
        }
        .to_owned()
    }
}

impl Kind for Versions {
    fn read(text: &str) -> Result<Self, Expected> {
        let words: Vec<_> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let has = |version: &str| words.contains(&version);
        let is_known = words.iter().all(|word| ["1.2", "1.3"].contains(word));
        match (has("1.2"), has("1.3")) {
            _ if !is_known => Err("1.2, 1.3 or both".into()),
            (true, true) => Ok(Self::Both),
            (true, false) => Ok(Self::Tls12),
            (false, true) => Ok(Self::Tls13),
            (false, false) => Err("1.2, 1.3 or both".into()),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Tls13 => "1.3",
            Self::Tls12 => "1.2",
            Self::Both => "1.2 1.3",
        }
        .to_owned()
    }
}

/// Which user a client's certificate logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUser {
    /// None.
    Off,
    /// That of its common name.
    CommonName,
}

impl Kind for CertificateUser {
    fn read(text: &str) -> Result<Self, Expected> {
        match text.to_ascii_lowercase().as_str() {
            "off" => Ok(Self::Off),
            "cn" => Ok(Self::CommonName),
            _ => Err("one of off, cn".into()),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Off => "off",
            Self::CommonName => "cn",
        }
        .to_owned()
    }
}

impl Settings {
    /// What connections to `tls.port` are made from; `None` without such a port. `read` gives the text of a file.
    ///
    /// # Errors
    /// [`SettingError::Value`]: the setting whose file cannot be used, and why.
    pub fn tls_config(
        &self,
        read: impl Fn(&Path) -> Result<String, String>,
    ) -> Result<Option<tls::ServerConfig>, SettingError> {
        if self.tls_port == 0 {
            return Ok(None);
        }
        let file = |name: &str, path: &Path| {
            let shown = path.display().to_string();
            let text = read(path).map_err(|why| SettingError::Value(format!("{name} = {shown}: {why}")))?;
            Ok::<_, SettingError>(PemFile { path: shown, text })
        };
        let needed = |name: &str, path: Option<&Path>| match path {
            Some(path) => file(name, path),
            None => Err(SettingError::Conflict(format!("tls.port is set, and {name} is not"))),
        };
        let files = ServerFiles {
            certificate: needed("tls.certificate_file", self.tls_certificate_file.as_deref())?,
            key: needed("tls.key_file", self.tls_key_file.as_deref())?,
            ca: self.tls_ca_file.as_deref().map(|path| file("tls.ca_file", path)).transpose()?,
            clients: self.tls_client_certificates,
            versions: self.tls_protocols,
            resumes: self.tls_resumption,
        };
        files.config().map(Some).map_err(|error| SettingError::Value(error.to_string()))
    }

    /// Checks that the settings `tls.*` fit each other.
    ///
    /// # Errors
    /// [`SettingError::Conflict`] with the names of two that do not.
    pub(super) fn check_tls(&self) -> Result<(), SettingError> {
        let conflict = |why: &str| Err(SettingError::Conflict(why.to_owned()));
        let asks = self.tls_client_certificates != ClientCertificates::No;
        if self.tls_user_from_certificate != CertificateUser::Off && !asks {
            return conflict(
                "tls.user_from_certificate is set, and tls.client_certificates = no asks for none",
            );
        }
        if self.tls_port == 0 {
            return Ok(());
        }
        if self.tls_port == self.port {
            return conflict("tls.port = port: one is for TLS, the other is not");
        }
        if self.tls_certificate_file.is_none() || self.tls_key_file.is_none() {
            return conflict("tls.port is set: tls.certificate_file and tls.key_file say who the server is");
        }
        if asks && self.tls_ca_file.is_none() {
            return conflict(
                "tls.client_certificates asks for certificates: tls.ca_file says who signs them",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        for text in ["no", "optional", "yes"] {
            assert_eq!(ClientCertificates::read(text).expect("known").write(), text);
        }
        for (text, written) in [("1.3", "1.3"), ("1.2", "1.2"), ("1.3, 1.2", "1.2 1.3")] {
            assert_eq!(Versions::read(text).expect("known").write(), written);
        }
        for text in ["", "1.1", "1.2 1.1", "TLSv1.2"] {
            assert!(Versions::read(text).is_err(), "{text}");
        }
        for text in ["off", "cn"] {
            assert_eq!(CertificateUser::read(text).expect("known").write(), text);
        }
    }

    #[test]
    fn settings_that_do_not_fit_are_refused_by_name() {
        let refusal = |pairs: &[(&str, &str)]| {
            let mut settings = Settings::default();
            pairs.iter().for_each(|(name, text)| settings.set(name, text).expect("a value"));
            settings.check().expect_err("refused").to_string()
        };
        assert!(refusal(&[("tls.port", "6380")]).contains("tls.certificate_file"));
        let files = [("tls.certificate_file", "/c"), ("tls.key_file", "/k")];
        assert!(refusal(&[&[("tls.port", "6379")], &files[..]].concat()).contains("tls.port = port"));
        let asks = [("tls.port", "6380"), ("tls.client_certificates", "yes")];
        assert!(refusal(&[&asks, &files[..]].concat()).contains("tls.ca_file"));
        assert!(refusal(&[("tls.user_from_certificate", "cn")]).contains("tls.client_certificates = no"));
        let mut alone = Settings { port: 0, ..Settings::default() };
        for (name, text) in [&[("tls.port", "6380")], &files[..]].concat() {
            alone.set(name, text).expect("a value");
        }
        assert_eq!(alone.check(), Ok(()));
    }

    #[test]
    fn broken_file_is_refused_by_the_name_of_its_setting() {
        let mut settings = Settings { tls_port: 6_380, ..Settings::default() };
        let read = |path: &Path| Err::<String, _>(format!("no such file as {}", path.display()));
        let error = settings.tls_config(read).expect_err("refused").to_string();
        assert!(error.contains("tls.certificate_file is not"), "{error}");
        (settings.tls_certificate_file, settings.tls_key_file) = (Some("/c".into()), Some("/k".into()));
        let error = settings.tls_config(read).expect_err("refused").to_string();
        assert_eq!(error, "tls.certificate_file = /c: no such file as /c");
    }
}
