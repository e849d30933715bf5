//! The cipher suites of TLS 1.3, and the secrets from which the keys of records come.

use std::fmt;

use aws_lc_rs::aead::{self, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use zeroize::Zeroizing;

use crate::error::RecordError;
use crate::limits::{
    AES_GCM_RECORDS_MAX, AES_GCM_UPDATE_RECORDS, CHACHA_RECORDS_MAX, CHACHA_UPDATE_RECORDS,
};

/// Maximum number of bytes of a traffic secret: the output of SHA-384.
pub(crate) const SECRET_BYTES_MAX: usize = 48;

/// Maximum number of bytes of a key.
const KEY_BYTES_MAX: usize = 32;

/// Cipher suite of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the number that the standard gives to the suite (RFC 8446, B.4).
    pub const fn code(self) -> u16 {
        match self {
            Self::Aes128Gcm => 0x1301,
            Self::Aes256Gcm => 0x1302,
            Self::ChaCha20Poly1305 => 0x1303,
        }
    }

    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// Returns the suite with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.code() == code)
    }

    /// Returns the number of bytes of a traffic secret.
    pub const fn secret_bytes(self) -> usize {
        match self {
            Self::Aes256Gcm => 48,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    pub(crate) const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => KEY_BYTES_MAX,
        }
    }

    /// Returns the number of records that one key may seal.
    pub(crate) const fn records_max(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => AES_GCM_RECORDS_MAX,
            Self::ChaCha20Poly1305 => CHACHA_RECORDS_MAX,
        }
    }

    /// Returns the number of records after which this side takes a new key.
    pub(crate) const fn update_records(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => AES_GCM_UPDATE_RECORDS,
            Self::ChaCha20Poly1305 => CHACHA_UPDATE_RECORDS,
        }
    }

    fn aead(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Self::Aes256Gcm => hkdf::HKDF_SHA384,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }
}

/// Secret of one direction of a connection (`application_traffic_secret_N` in RFC 8446, 7.1). It is
/// cleared when it is dropped.
#[derive(Clone)]
pub struct TrafficSecret {
    suite: Suite,
    bytes: Zeroizing<[u8; SECRET_BYTES_MAX]>,
}

impl TrafficSecret {
    /// Makes a secret of its bytes. Returns `None` if their number is not that of the suite.
    pub fn new(suite: Suite, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != suite.secret_bytes() {
            return None;
        }
        let mut secret = Zeroizing::new([0; SECRET_BYTES_MAX]);
        secret.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { suite, bytes: secret })
    }

    /// Returns the suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.suite.secret_bytes()).unwrap_or_default()
    }

    /// Returns the secret that follows this one.
    ///
    /// RFC 8446, 7.2: "application_traffic_secret_N+1 = HKDF-Expand-Label(
    /// application_traffic_secret_N, "traffic upd", "", Hash.length)".
    #[must_use]
    pub(crate) fn next(&self) -> Self {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES_MAX]);
        if let Some(room) = bytes.get_mut(..self.suite.secret_bytes()) {
            self.expand(b"traffic upd", room);
        }
        Self { suite: self.suite, bytes }
    }

    /// Returns the key and the initialization vector of records under this secret.
    ///
    /// RFC 8446, 7.3: "[sender]_write_key = HKDF-Expand-Label(Secret, "key", "", key_length)" and
    /// "[sender]_write_iv = HKDF-Expand-Label(Secret, "iv", "", iv_length)".
    pub(crate) fn key_and_iv(&self) -> KeyAndIv {
        let mut made =
            KeyAndIv { suite: self.suite, key: Zeroizing::new([0; KEY_BYTES_MAX]), iv: [0; 12] };
        if let Some(room) = made.key.get_mut(..self.suite.key_bytes()) {
            self.expand(b"key", room);
        }
        self.expand(b"iv", &mut made.iv);
        made
    }

    /// Fills `out` by HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
    fn expand(&self, label: &[u8], out: &mut [u8]) {
        const PREFIX: &[u8] = b"tls13 ";
        let [length_high, length_low] = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
        let label_bytes = u8::try_from(PREFIX.len() + label.len()).unwrap_or(u8::MAX);
        let head = [length_high, length_low, label_bytes];
        let info: [&[u8]; 4] = [&head, PREFIX, label, &[0]];
        hkdf::Prk::new_less_safe(self.suite.hkdf(), self.bytes())
            .expand(&info, Length(out.len()))
            .and_then(|made| made.fill(out))
            .expect("HKDF makes up to 255 hashes, and these are at most 48 bytes");
    }
}

impl fmt::Debug for TrafficSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrafficSecret({:?}, ..)", self.suite)
    }
}

/// Number of bytes that HKDF makes.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// What the records of one direction are sealed with until the next key update.
pub(crate) struct KeyAndIv {
    suite: Suite,
    key: Zeroizing<[u8; KEY_BYTES_MAX]>,
    pub(crate) iv: [u8; NONCE_LEN],
}

impl KeyAndIv {
    pub(crate) fn key(&self) -> &[u8] {
        self.key.get(..self.suite.key_bytes()).unwrap_or_default()
    }
}

/// Key of one direction, and the number of records that it has sealed or opened.
pub(crate) struct RecordKey {
    pub(crate) aead: LessSafeKey,
    iv: [u8; NONCE_LEN],
    pub(crate) sequence: u64,
}

impl RecordKey {
    pub(crate) fn new(secret: &TrafficSecret, sequence: u64) -> Self {
        let made = secret.key_and_iv();
        let key = UnboundKey::new(secret.suite.aead(), made.key())
            .expect("the key has the size of its suite");
        Self { aead: LessSafeKey::new(key), iv: made.iv, sequence }
    }

    /// Returns the nonce of the next record.
    ///
    /// RFC 8446, 5.3: "The 64-bit record sequence number is encoded in network byte order and
    /// padded to the left with zeros to iv_length. The padded sequence number is XORed with either
    /// the static client_write_iv or server_write_iv". And: "If a TLS implementation would need to
    /// wrap a sequence number, it MUST either rekey (Section 4.6.3) or terminate the connection."
    pub(crate) fn nonce(&self, records_max: u64) -> Result<Nonce, RecordError> {
        if self.sequence >= records_max {
            return Err(RecordError::KeyWornOut { records: self.sequence });
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce.iter_mut().rev().zip(self.sequence.to_le_bytes()) {
            *byte ^= number;
        }
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordKey").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}
