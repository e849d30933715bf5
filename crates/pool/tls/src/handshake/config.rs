//! What all handshakes of a process have in common.

use std::fmt;
use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs as algorithms};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::secrets::Caught;
use super::verify::RawKeys;
use super::{Expected, Handshake};
use crate::error::HandshakeError;
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::record::Side;

/// Makes the handshakes of one identity.
pub struct Handshakes {
    client: ClientConfig,
    server: ServerConfig,
    /// Name of the protocol inside, with its version.
    protocol: Arc<[u8]>,
    own: PublicKey,
}

impl Handshakes {
    /// Prepares handshakes. `protocol` is the name of what is spoken inside, with its version: both
    /// sides must have the same (ALPN, RFC 7301).
    ///
    /// # Errors
    /// Fails if rustls refuses the identity.
    pub fn new(identity: &Identity, protocol: &[u8]) -> Result<Self, HandshakeError> {
        let provider = Arc::new(provider());
        let own = identity.public();
        let key = PrivatePkcs8KeyDer::from(identity.pkcs8());
        let key = algorithms::sign::any_eddsa_type(&key).map_err(HandshakeError::Setup)?;
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(own.to_spki())], key));
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(HandshakeError::Setup)?
            .dangerous()
            .with_custom_certificate_verifier(verifier(None))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                certified.clone(),
            )));
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(HandshakeError::Setup)?
            .with_client_cert_verifier(verifier(None))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
        Ok(Self::of(client, server, protocol, own))
    }

    /// Prepares handshakes with what rustls is told about keys. Tests with peers that know no raw
    /// keys use it.
    pub(super) fn of(
        mut client: ClientConfig,
        mut server: ServerConfig,
        protocol: &[u8],
        own: PublicKey,
    ) -> Self {
        client.alpn_protocols = vec![protocol.to_vec()];
        client.enable_secret_extraction = true;
        client.enable_sni = false;
        // A resumed connection would not prove the peer's key again, so that a revoked client would
        // still get in.
        client.resumption = Resumption::disabled();
        server.alpn_protocols = vec![protocol.to_vec()];
        server.enable_secret_extraction = true;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        // Early data could be replayed.
        server.max_early_data_size = 0;
        Self { client, server, protocol: protocol.into(), own }
    }

    /// Returns the public key of this side.
    pub fn public(&self) -> PublicKey {
        self.own
    }

    /// Starts the handshake of a connection that this side has made.
    ///
    /// # Errors
    /// Fails if rustls cannot start, for example without random numbers.
    pub fn connect(&self, expected: Expected) -> Result<Handshake, HandshakeError> {
        let mut config = self.client.clone();
        if let Expected::Key(key) = expected {
            config.dangerous().set_certificate_verifier(verifier(Some(key)));
        }
        self.connect_with(config)
    }

    /// Starts the handshake of a connection that this side has accepted.
    ///
    /// # Errors
    /// Fails if rustls cannot start.
    pub fn accept(&self) -> Result<Handshake, HandshakeError> {
        let caught = Arc::new(Caught::default());
        let mut config = self.server.clone();
        config.key_log = caught.clone();
        let tls = ServerConnection::new(Arc::new(config)).map_err(HandshakeError::Setup)?;
        Ok(self.begin(tls.into(), caught, Side::Server))
    }

    pub(super) fn connect_with(
        &self,
        mut config: ClientConfig,
    ) -> Result<Handshake, HandshakeError> {
        let caught = Arc::new(Caught::default());
        config.key_log = caught.clone();
        // The name is not sent, and the verifier does not look at it: the key is the identity.
        let name = ServerName::try_from("penstock").map_err(|_| HandshakeError::Unfinished)?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(HandshakeError::Setup)?;
        Ok(self.begin(tls.into(), caught, Side::Client))
    }

    fn begin(&self, tls: Connection, caught: Arc<Caught>, side: Side) -> Handshake {
        Handshake {
            tls,
            caught,
            side,
            protocol: self.protocol.clone(),
            own: self.own,
            record: Vec::new(),
            received: 0,
        }
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes").field("own", &self.own).finish_non_exhaustive()
    }
}

fn verifier(expected: Option<PublicKey>) -> Arc<RawKeys> {
    let algorithms = algorithms::default_provider().signature_verification_algorithms;
    Arc::new(RawKeys { expected, algorithms })
}

/// Returns the algorithms of this side, the best first.
pub(super) fn provider() -> CryptoProvider {
    use algorithms::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    // AES-128 is as safe as the key exchange, which has 128 bits too, and makes fewer rounds than
    // AES-256. Without instructions for AES, ChaCha20 is several times as fast as either.
    let mut suites =
        vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    if !has_aes() {
        suites.rotate_right(1);
    }
    CryptoProvider {
        cipher_suites: suites,
        // Every peer of this protocol has X25519.
        kx_groups: vec![algorithms::kx_group::X25519],
        ..algorithms::default_provider()
    }
}

/// Returns whether the processor has instructions for AES.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

/// Returns whether the processor has instructions for AES.
#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

/// Returns whether the processor has instructions for AES, as far as is known.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}
