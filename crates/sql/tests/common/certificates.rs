//! A CA of a test's own, and what it has signed, as files that servers can read. Other crates' tests use this file by its path.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and owns its files"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use sql::tls::PemFile;

/// A CA, and the folder where what it signs lies.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> PemFile {
        PemFile { path: self.path("ca.pem"), text: self.issuer.pem() }
    }

    /// Signs a certificate of a server or client `name`: it and its key.
    pub(crate) fn sign(&self, name: &str) -> [PemFile; 2] {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let file =
            |suffix: &str, text: String| PemFile { path: self.path(&format!("{name}.{suffix}")), text };
        [file("crt", cert.pem()), file("key", key.serialize_pem())]
    }

    /// Settings of a PostgreSQL that is `localhost`, and whose clients may show what this has signed.
    pub(crate) fn of_postgres(&self) -> [String; 4] {
        let [cert, key] = self.serve("localhost", "postgres");
        let clients = self.clients("postgres");
        [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={cert}"),
            format!("ssl_key_file={key}"),
            format!("ssl_ca_file={clients}"),
        ]
    }

    /// Settings of a MariaDB that is `localhost`, and whose clients may show what this has signed, and are not spoken to in plain.
    pub(crate) fn of_mariadb(&self) -> [String; 4] {
        let [cert, key] = self.serve("localhost", "mysql");
        let clients = self.clients("mysql");
        let files = [format!("--ssl-cert={cert}"), format!("--ssl-key={key}"), format!("--ssl-ca={clients}")];
        let [cert, key, clients] = files;
        [cert, key, clients, "--require-secure-transport=ON".to_owned()]
    }

    fn clients(&self, user: &str) -> String {
        let path = self.path(&format!("clients.{user}"));
        self.write(&path, &self.issuer.pem(), user);
        path
    }

    /// Puts the certificate and key of a server there, which runs as `user` if this runs as root; returns their places.
    pub(crate) fn serve(&self, name: &str, user: &str) -> [String; 2] {
        self.sign(name).map(|PemFile { path, text }| {
            let path = format!("{path}.{user}");
            self.write(&path, &text, user);
            path
        })
    }

    /// As [`Self::serve`], with its own certificate.
    pub(crate) fn serve_itself(&self, user: &str) -> [String; 2] {
        let files = [("own.crt", self.issuer.pem()), ("own.key", self.issuer.key().serialize_pem())];
        files.map(|(name, text)| {
            let path = self.path(name);
            self.write(&path, &text, user);
            path
        })
    }

    /// Puts a file there that `user`'s server reads.
    pub(crate) fn write(&self, path: &str, text: &str, user: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
        // Who is not root runs the server itself.
        let _ = Command::new("chown").args([user, path]).stderr(Stdio::null()).status();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        let path: &Path = self.folder.path();
        path.join(name).display().to_string()
    }
}
