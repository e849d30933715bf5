//! The handshake: rustls makes it, from the bytes that the caller receives.
//!
//! After it, rustls has no part in the connection. So it is given one record at a time, and none
//! behind the last one of the handshake: those are for the [`Opener`](crate::Opener).

mod config;
mod secrets;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Connection, ConnectionTrafficSecrets, Error};
use zeroize::Zeroizing;

pub use config::Handshakes;

use self::secrets::Caught;
use self::verify::OtherKey;
use crate::alert::Alert;
use crate::enrol::{Binding, EXPORTER_BYTES};
use crate::error::HandshakeError;
use crate::key::PublicKey;
use crate::limits::{HANDSHAKE_BYTES_MAX, HEADER_BYTES};
use crate::record::{Direction, Records, Side};
use crate::suite::{Suite, TrafficSecret};

/// Label of the exporter. RFC 5705, 4: "Label values beginning with "EXPERIMENTAL" MAY be used for
/// private use without registration."
const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL-penstock-enrolment";

/// Which key the accepting side must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This one, which is pinned.
    Key(PublicKey),
    /// Any key. The caller must not send data before the peer has proved otherwise that it belongs
    /// to the pool.
    Any,
}

/// Handshake of one connection, on either side. Bytes in, bytes out.
///
/// ```text
/// loop {
///     send(handshake.output());                 // may be empty
///     if handshake.is_done() { break }
///     receive at most handshake.missing() bytes
///     handshake.take(bytes)?                    // after an error: send the output, then hang up
/// }
/// handshake.finish()?
/// ```
pub struct Handshake {
    tls: Connection,
    caught: Arc<Caught>,
    side: Side,
    protocol: Arc<[u8]>,
    /// Public key of this side.
    own: PublicKey,
    /// Bytes of a record that is not complete.
    record: Vec<u8>,
    /// Number of bytes that the peer has sent.
    received: usize,
}

/// Connection whose handshake is finished.
#[derive(Debug)]
pub struct Established {
    pub records: Records,
    pub suite: Suite,
    /// Key that the peer has proved. On the accepting side, and with [`Expected::Any`], the caller
    /// decides whether it is welcome.
    pub peer: PublicKey,
    /// What a proof of the pool's key is bound to.
    pub binding: Binding,
}

/// What a handshake has agreed on.
struct Agreed {
    records: Records,
    suite: Suite,
    exporter: Zeroizing<[u8; EXPORTER_BYTES]>,
}

impl Handshake {
    /// Returns the bytes to send, and forgets them.
    pub fn output(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            // Writing into memory does not fail.
            if !matches!(self.tls.write_tls(&mut bytes), Ok(1..)) {
                break;
            }
        }
        bytes
    }

    /// Returns whether nothing more is to be received.
    pub fn is_done(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Returns the number of bytes that complete the next record, as far as its length is known. A
    /// caller that receives no more never has bytes that follow the handshake.
    pub fn missing(&self) -> usize {
        if self.is_done() { 0 } else { self.record_bytes() - self.record.len() }
    }

    /// Takes bytes from the peer, and returns how many. The others follow the handshake.
    ///
    /// # Errors
    /// Fails if the peer sends what it must not. [`Handshake::output`] then has the alert that says
    /// so.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let mut left = bytes;
        while !left.is_empty() && !self.is_done() {
            let (now, later) = left.split_at(self.missing().min(left.len()));
            left = later;
            self.received += now.len();
            self.record.extend_from_slice(now);
            if self.record.len() >= HEADER_BYTES && !self.speaks_tls() {
                return Err(HandshakeError::NotTls);
            }
            if self.received + self.missing() > HANDSHAKE_BYTES_MAX {
                return Err(HandshakeError::TooMuch);
            }
            if self.missing() == 0 {
                self.feed()?;
            }
        }
        Ok(bytes.len() - left.len())
    }

    /// Ends the handshake and returns what carries the data.
    ///
    /// # Errors Fails if the handshake is not finished, its output is not taken, or the peer is not
    /// what this side talks to.
    pub fn finish(self) -> Result<Established, HandshakeError> {
        let spki = self.tls.peer_certificates().and_then(|keys| keys.first());
        let peer = spki.and_then(|key| PublicKey::from_spki(key));
        let (side, own) = (self.side, self.own);
        let Agreed { records, suite, exporter } = self.agree()?;
        let peer = peer.ok_or(HandshakeError::NoKey)?;
        let (client, server) = match side {
            Side::Client => (own, peer),
            Side::Server => (peer, own),
        };
        Ok(Established { records, suite, peer, binding: Binding::new(exporter, client, server) })
    }

    /// Returns what both sides have agreed on. Does not ask who the peer is.
    fn agree(self) -> Result<Agreed, HandshakeError> {
        if self.tls.is_handshaking() || self.tls.wants_write() {
            return Err(HandshakeError::Unfinished);
        }
        // RFC 7301, 3.2, lets a server go on without a protocol if the client names none.
        if self.tls.alpn_protocol() != Some(&*self.protocol) {
            return Err(HandshakeError::OtherProtocol);
        }
        let suite = self.tls.negotiated_cipher_suite();
        let suite = suite.and_then(|suite| Suite::from_code(suite.suite().into()));
        let suite = suite.ok_or(HandshakeError::Secrets)?;
        let exporter = Zeroizing::new([0; EXPORTER_BYTES]);
        let exporter = self
            .tls
            .export_keying_material(exporter, EXPORTER_LABEL, Some(&[]))
            .map_err(HandshakeError::Tls)?;
        let made = self.tls.dangerous_extract_secrets().map_err(HandshakeError::Tls)?;
        let caught = self.caught.take();
        let (outgoing, incoming) = match self.side {
            Side::Client => (caught.client, caught.server),
            Side::Server => (caught.server, caught.client),
        };
        let direction =
            |secret: Option<Zeroizing<Vec<u8>>>,
             (sequence, keys): (u64, ConnectionTrafficSecrets)| {
                let secret = TrafficSecret::new(suite, &secret?)?;
                agrees(&secret, &keys).then_some(Direction { secret, sequence })
            };
        let outgoing = direction(outgoing, made.tx).ok_or(HandshakeError::Secrets)?;
        let incoming = direction(incoming, made.rx).ok_or(HandshakeError::Secrets)?;
        let records = Records::resume(self.side, outgoing, incoming, false);
        Ok(Agreed { records, suite, exporter })
    }

    /// Returns the number of bytes of the current record, or of its header as long as that is not
    /// complete.
    fn record_bytes(&self) -> usize {
        match self.record.first_chunk::<HEADER_BYTES>() {
            Some(&[_, _, _, high, low]) => {
                HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]))
            }
            None => HEADER_BYTES,
        }
    }

    /// Returns whether the current record can be one of TLS: its type is between those of
    /// change_cipher_spec and application_data, and its version begins with 3.
    fn speaks_tls(&self) -> bool {
        matches!(self.record.as_slice(), [20..=23, 3, ..])
    }

    /// Gives rustls one whole record.
    fn feed(&mut self) -> Result<(), HandshakeError> {
        let mut rest = self.record.as_slice();
        while !rest.is_empty() {
            if !matches!(self.tls.read_tls(&mut rest), Ok(1..)) {
                return Err(HandshakeError::TooMuch);
            }
            self.tls.process_new_packets().map_err(explain)?;
        }
        self.record.clear();
        Ok(())
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("side", &self.side)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// Returns whether a secret leads to the keys that rustls has made.
fn agrees(secret: &TrafficSecret, keys: &ConnectionTrafficSecrets) -> bool {
    let made = secret.key_and_iv();
    let (suite, key, iv) = match keys {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Suite::ChaCha20Poly1305, key, iv)
        }
        _ => return false,
    };
    // This compares what this process has made twice, so its time tells a peer nothing.
    secret.suite() == suite && made.key() == key.as_ref() && made.iv == *iv.as_ref()
}

/// Turns an error of rustls into one that says what a person can do.
fn explain(error: Error) -> HandshakeError {
    match error {
        Error::InvalidCertificate(CertificateError::Other(ref other)) => {
            match other.0.downcast_ref::<OtherKey>() {
                Some(&OtherKey { expected, found }) => HandshakeError::OtherKey { expected, found },
                None => HandshakeError::Tls(error),
            }
        }
        Error::NoApplicationProtocol
        | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            HandshakeError::OtherProtocol
        }
        Error::AlertReceived(alert) => HandshakeError::Refused(Alert(alert.into())),
        error => HandshakeError::Tls(error),
    }
}
