//! Our handshake and record layer against those of rustls, both ways, in every suite.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::common::{PROTOCOL, handshakes, open, sealed, written};
use penstock_tls::{
    Alert, Established, Expected, Handshake, HandshakeError, Intake, Message, RecordError, Records,
    Suite,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, aws_lc_rs as algorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, ServerConfig, ServerConnection, SignatureScheme,
};

/// Content of several records, the last one not full.
const BYTES: usize = 100_000;

/// Takes any raw key.
#[derive(Debug)]
struct AnyKey;

impl AnyKey {
    fn check(
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = algorithms::default_provider().signature_verification_algorithms;
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms)
    }
}

/// The methods that both traits of rustls have.
macro_rules! any_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _key: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!("there is no TLS 1.2")
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Self::check(message, key, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _key: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    any_key!();
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _key: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    any_key!();
}

fn provider(suite: Suite) -> Arc<CryptoProvider> {
    let mut provider = algorithms::default_provider();
    provider.cipher_suites.retain(|known| u16::from(known.suite()) == suite.code());
    Arc::new(provider)
}

fn certified() -> Arc<CertifiedKey> {
    let document =
        aws_lc_rs::signature::Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new());
    let pkcs8 = PrivatePkcs8KeyDer::from(document.unwrap().as_ref().to_vec());
    let key = algorithms::sign::any_eddsa_type(&pkcs8).unwrap();
    let spki = CertificateDer::from(key.public_key().unwrap().to_vec());
    Arc::new(CertifiedKey::new(vec![spki], key))
}

fn rustls_client(suite: Suite, protocols: &[&[u8]]) -> Connection {
    let mut config = ClientConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified())));
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config.resumption = Resumption::disabled();
    ClientConnection::new(Arc::new(config), "node".try_into().unwrap()).unwrap().into()
}

/// `tickets` is the number of tickets that the server sends.
fn rustls_server(suite: Suite, tickets: usize) -> Connection {
    let mut config = ServerConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(AnyKey))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified())));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = tickets;
    ServerConnection::new(Arc::new(config)).unwrap().into()
}

/// rustls as the other side, with the bytes between it and ours.
struct Pair {
    theirs: Connection,
    ours: Established,
    intake: Intake,
}

fn ours(side: &str) -> Handshake {
    match side {
        "client" => handshakes().connect(Expected::Any).unwrap(),
        _ => handshakes().accept().unwrap(),
    }
}

/// Connects our side to rustls.
fn pair(our_side: &str, suite: Suite, tickets: usize) -> Pair {
    let mut ours = ours(our_side);
    let mut theirs = match our_side {
        "client" => rustls_server(suite, tickets),
        _ => rustls_client(suite, &[PROTOCOL]),
    };
    let mut late = Vec::new();
    while !ours.is_done() || theirs.is_handshaking() {
        feed(&mut theirs, &ours.output());
        let bytes = output(&mut theirs);
        let taken = ours.take(&bytes).unwrap();
        late.extend_from_slice(&bytes[taken..]);
    }
    late.extend(output(&mut theirs));
    let mut pair = Pair { theirs, ours: ours.finish().unwrap(), intake: Intake::new(0) };
    assert_eq!(pair.ours.suite, suite);
    let mut data = Vec::new();
    open(&mut pair.ours.records, &mut pair.intake, &late, &mut data).unwrap();
    assert!(data.is_empty());
    pair
}

fn feed(theirs: &mut Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        theirs.read_tls(&mut bytes).unwrap();
        theirs.process_new_packets().unwrap();
    }
}

fn output(theirs: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while theirs.wants_write() {
        theirs.write_tls(&mut bytes).unwrap();
    }
    bytes
}

impl Pair {
    fn records(&mut self) -> &mut Records {
        &mut self.ours.records
    }

    /// Sends data of ours, and returns what rustls reads.
    fn they_read(&mut self, data: &[u8]) -> Vec<u8> {
        let stream = sealed(self.records(), data);
        let mut read = Vec::new();
        for part in stream.chunks(10_000) {
            feed(&mut self.theirs, part);
            let mut buffer = vec![0; 20_000];
            while let Ok(count @ 1..) = self.theirs.reader().read(&mut buffer) {
                read.extend_from_slice(&buffer[..count]);
            }
        }
        read
    }

    /// Sends data of rustls, and returns what we open.
    fn we_open(&mut self, data: &[u8]) -> Vec<u8> {
        let mut opened = Vec::new();
        for part in data.chunks(30_000) {
            self.theirs.writer().write_all(part).unwrap();
            let stream = output(&mut self.theirs);
            open(&mut self.ours.records, &mut self.intake, &stream, &mut opened).unwrap();
        }
        opened
    }
}

fn content() -> Vec<u8> {
    (0..BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn data_goes_both_ways_in_every_suite() {
    for suite in Suite::ALL {
        for side in ["client", "server"] {
            let mut pair = pair(side, suite, 0);
            assert!(pair.they_read(&content()) == content(), "{suite:?}, {side}");
            assert!(pair.we_open(&content()) == content(), "{suite:?}, {side}");
        }
    }
}

#[test]
fn both_sides_change_their_keys_again_and_again() {
    for suite in Suite::ALL {
        for side in ["client", "server"] {
            let mut pair = pair(side, suite, 0);
            for round in 0..5 {
                // Ours, with and without a request.
                let update = written(|out| pair.records().sealer.update(round % 2 == 0, out));
                feed(&mut pair.theirs, &update);
                assert!(pair.they_read(&content()) == content());
                // Theirs; it asks, so ours follows with its next data.
                pair.theirs.refresh_traffic_keys().unwrap();
                assert!(pair.we_open(&content()) == content());
                let before = sealed(pair.records(), b"x").len();
                assert!(before > 30, "no update before the data");
                // That record was not sent, so the connection ends here.
                pair = self::pair(side, suite, 0);
                assert!(pair.they_read(b"again") == b"again");
            }
        }
    }
}

#[test]
fn keys_change_while_data_flows_both_ways() {
    for side in ["client", "server"] {
        let mut pair = pair(side, Suite::Aes128Gcm, 0);
        pair.records().sealer.set_update_records(2);
        for _ in 0..10 {
            assert!(pair.they_read(&content()) == content());
            pair.theirs.refresh_traffic_keys().unwrap();
            assert!(pair.we_open(&content()) == content());
        }
    }
}

#[test]
fn a_client_that_names_no_protocol_gets_no_records() {
    let mut ours = ours("server");
    let mut theirs = rustls_client(Suite::Aes128Gcm, &[]);
    while !ours.is_done() {
        feed(&mut theirs, &ours.output());
        ours.take(&output(&mut theirs)).unwrap();
    }
    let error = ours.finish().unwrap_err();
    assert!(matches!(error, HandshakeError::OtherProtocol), "{error}");
}

#[test]
fn tickets_of_a_server_are_skipped() {
    let mut pair = pair("client", Suite::Aes256Gcm, 4);
    assert!(pair.we_open(&content()) == content());
    assert!(pair.they_read(&content()) == content());
}

#[test]
fn each_side_hears_of_the_others_end() {
    let mut pair = pair("client", Suite::Aes128Gcm, 0);
    let close = written(|out| pair.records().sealer.close(out));
    let mut rest = close.as_slice();
    pair.theirs.read_tls(&mut rest).unwrap();
    assert!(pair.theirs.process_new_packets().unwrap().peer_has_closed());
    // The other direction is still open.
    assert_eq!(pair.we_open(b"still here"), b"still here");
    pair.theirs.send_close_notify();
    let mut stream = output(&mut pair.theirs);
    assert_eq!(pair.ours.records.opener.open(&mut stream), Ok(Message::Closed));
    assert_eq!(pair.ours.records.opener.end_of_stream(), Ok(()));
}

#[test]
fn each_side_hears_of_the_others_alerts() {
    let mut pair = pair("server", Suite::Aes128Gcm, 0);
    let mut record = sealed(pair.records(), b"changed on the way");
    record[10] ^= 1;
    pair.theirs.read_tls(&mut record.as_slice()).unwrap();
    assert!(matches!(pair.theirs.process_new_packets(), Err(Error::DecryptError)));
    let mut alert = output(&mut pair.theirs);
    let error = pair.ours.records.opener.open(&mut alert).unwrap_err();
    assert_eq!(error, RecordError::Alert(Alert::BAD_RECORD_MAC));

    let mut pair = self::pair("client", Suite::Aes128Gcm, 0);
    let alert = written(|out| pair.records().sealer.alert(Alert::ACCESS_DENIED, out));
    pair.theirs.read_tls(&mut alert.as_slice()).unwrap();
    let error = pair.theirs.process_new_packets().unwrap_err();
    assert_eq!(error, Error::AlertReceived(AlertDescription::AccessDenied));
}
