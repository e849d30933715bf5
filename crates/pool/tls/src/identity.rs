//! The key pair of a node or client.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::file::{self, FileError, Secrecy};
use crate::key::PublicKey;
use crate::limits::IDENTITY_FILE_BYTES_MAX;
use crate::text::{from_pem_base64, to_pem_base64};

/// Number of bytes of an Ed25519 private key.
const SEED_BYTES: usize = 32;

/// What stands before the private key in PKCS #8 (RFC 8410, 7): a sequence, version 0, the
/// algorithm 1.3.101.112, and a string of bytes within one.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

const PEM_FIRST: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_LAST: &str = "-----END PRIVATE KEY-----";

/// Ed25519 key pair with which a node or client proves who it is.
///
/// The file is PEM, so that other programs read it: `openssl pkey -in FILE -text`.
pub struct Identity {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error(
        "the identity, which is the key pair of encrypted links, cannot be used: {0}; it needs a \
         folder of this user below HOME or XDG_CONFIG_HOME"
    )]
    File(#[from] FileError),
    #[error(
        "{} is not an Ed25519 private key in PEM; restore the file, or remove it to get a new \
         identity, which every other side must then accept anew", path.display()
    )]
    NotAnIdentity { path: PathBuf },
    #[error("the system has no random numbers")]
    Random,
}

impl Identity {
    /// Makes a new identity.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn generate() -> Result<Self, IdentityError> {
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        SystemRandom::new().fill(seed.as_mut()).map_err(|_| IdentityError::Random)?;
        Self::from_seed(seed.as_ref()).ok_or(IdentityError::Random)
    }

    /// Reads the identity in a file, or makes one at the first use. If several processes do this at
    /// the same time, all get the same identity.
    ///
    /// # Errors Fails if the file cannot be read or written, is a symbolic link, belongs to another
    /// user, may be read by others, or is not an identity.
    pub fn load_or_create(path: &Path) -> Result<Self, IdentityError> {
        match Self::load(path) {
            Err(IdentityError::File(error)) if error.is_absent() => {}
            other => return other,
        }
        let made = Self::generate()?;
        match file::create(path, Secrecy::Secret, &made.to_text()) {
            Ok(()) => Ok(made),
            Err(error) if error.is_there_already() => Self::load(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the identity in a file.
    ///
    /// # Errors
    /// See [`Identity::load_or_create`].
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let text = Zeroizing::new(file::read(path, Secrecy::Secret, IDENTITY_FILE_BYTES_MAX)?);
        Self::from_text(&text).ok_or_else(|| IdentityError::NotAnIdentity { path: path.to_owned() })
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    fn from_seed(seed: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = PublicKey::from_bytes(pair.public_key().as_ref().try_into().ok()?);
        let mut pkcs8 = Zeroizing::new(Vec::with_capacity(PKCS8_PREFIX.len() + SEED_BYTES));
        pkcs8.extend_from_slice(&PKCS8_PREFIX);
        pkcs8.extend_from_slice(seed);
        Some(Self { pkcs8, public })
    }

    fn to_text(&self) -> Zeroizing<String> {
        let digits = Zeroizing::new(to_pem_base64(&self.pkcs8));
        // 48 bytes are 64 digits, which is one line of PEM.
        Zeroizing::new(format!("{PEM_FIRST}\n{}\n{PEM_LAST}\n", *digits))
    }

    fn from_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.strip_prefix(PEM_FIRST)?.strip_suffix(PEM_LAST)?.trim();
        let bytes = Zeroizing::new(from_pem_base64(digits)?);
        Self::from_seed(bytes.strip_prefix(&PKCS8_PREFIX)?)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, ..)", self.public)
    }
}
