//! CAs of a test's own, and what they sign.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use transport::{Pem, Security};

/// A CA.
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The security of a node that trusts this CA, with a certificate of `signer` that ends in `year`.
    pub fn security(&self, signer: &Self, year: i32) -> Security {
        let mut params = CertificateParams::new(["node".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &signer.0).unwrap();
        Security::Certificates {
            ca: Pem::new(self.pem()),
            cert: Pem::new(cert.pem()),
            key: Pem::new(key.serialize_pem()),
        }
    }
}
