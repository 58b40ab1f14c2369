//! The name in a certificate: who an authority says that its owner is. What has another form has none.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;

/// The common name of the subject; of several the last, which is the most specific. `None`: it has none, or one of more than
/// [`NAME_BYTES_MAX`].
#[must_use]
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let parts = certificate.tbs_certificate.subject.0;
    let named = parts.iter().flat_map(|part| part.0.iter()).rfind(|part| part.oid == COMMON_NAME)?;
    let value = &named.value;
    let name = Utf8StringRef::try_from(value)
        .map(|text| text.as_str().to_owned())
        .or_else(|_| PrintableStringRef::try_from(value).map(|text| text.as_str().to_owned()))
        .or_else(|_| Ia5StringRef::try_from(value).map(|text| text.as_str().to_owned()))
        .or_else(|_| TeletexStringRef::try_from(value).map(|text| text.as_str().to_owned()))
        .ok()?;
    (1..=NAME_BYTES_MAX).contains(&name.len()).then_some(name)
}

/// Twice what X.520 allows.
pub const NAME_BYTES_MAX: usize = 128;
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec!["other.example".to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            params.distinguished_name.push(rcgen::DnType::CommonName, *name);
        }
        let key = rcgen::KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().clone()
    }

    #[test]
    fn name_is_the_subjects() {
        assert_eq!(common_name(&certificate(&["ann"])).as_deref(), Some("ann"));
        assert_eq!(common_name(&certificate(&["Grüße"])).as_deref(), Some("Grüße"));
        assert_eq!(common_name(&certificate(&[])), None);
        assert_eq!(common_name(&certificate(&["x".repeat(129).as_str()])), None);
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 3, 1, 2, 3])), None);
    }
}
