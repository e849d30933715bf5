//! Which keys of a peer this side takes during the handshake.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::key::PublicKey;

/// Takes raw Ed25519 public keys (RFC 7250), and no certificates.
#[derive(Debug)]
pub(super) struct RawKeys {
    /// The key that the peer must have. Without it, any key is taken here, and the caller decides
    /// when the handshake is finished.
    pub(super) expected: Option<PublicKey>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

/// The peer has another key than the expected one.
#[derive(Debug)]
pub(super) struct OtherKey {
    pub(super) expected: PublicKey,
    pub(super) found: PublicKey,
}

impl fmt::Display for OtherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer has the key {}, not {}", self.found, self.expected)
    }
}

impl std::error::Error for OtherKey {}

impl RawKeys {
    fn check(&self, key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        // RFC 7250, 3, as RFC 8446, 4.4.2 has it: "If the RawPublicKey certificate type was
        // negotiated, then the certificate_list MUST contain no more than one CertificateEntry".
        if !others.is_empty() {
            return Err(CertificateError::BadEncoding.into());
        }
        let found = PublicKey::from_spki(key).ok_or(CertificateError::BadEncoding)?;
        match self.expected {
            Some(expected) if expected != found => {
                let why = OtherError(Arc::new(OtherKey { expected, found }));
                Err(CertificateError::Other(why).into())
            }
            _ => Ok(()),
        }
    }
}

/// The methods that rustls asks of both sides' verifiers, which no trait of its shares.
macro_rules! raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _key: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("a handshake of TLS 1.2 came here".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(key.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for RawKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    raw_keys!();
}

impl ClientCertVerifier for RawKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    raw_keys!();
}
