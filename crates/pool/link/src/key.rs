//! The pool's key. A process that has the key may use every node over TCP and vsock.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use aws_lc_rs::hmac;
use penstock_tls::PoolKey;
use penstock_wire::hello::{KEY_BYTES, PROOF_BYTES};
use zeroize::Zeroizing;

use crate::error::LinkError;

/// Maximum number of bytes read from a key file: 64 digits and some white space.
const FILE_BYTES_MAX: u64 = 256;

/// Key that all nodes and clients of a pool share.
pub struct Key {
    /// For plain links.
    plain: hmac::Key,
    /// For encrypted links, where it only enrols.
    enrolling: PoolKey,
}

impl Key {
    /// Makes a key from its bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self {
            plain: hmac::Key::new(hmac::HMAC_SHA256, bytes),
            enrolling: PoolKey::from_bytes(bytes),
        }
    }

    pub(crate) fn enrolling(&self) -> &PoolKey {
        &self.enrolling
    }

    /// Reads a key file, which has 64 hexadecimal digits.
    ///
    /// # Errors
    /// Fails if the file is unreadable, no key, of another user, or readable by others.
    pub fn load(path: &Path) -> Result<Self, LinkError> {
        let wrong = |why: String| LinkError::Key { path: path.to_owned(), why };
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY; // a pipe must not block us
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| wrong(error.to_string()))?;
        let about = file.metadata().map_err(|error| wrong(error.to_string()))?;
        if !about.is_file() {
            return Err(wrong("is not a regular file".to_owned()));
        }
        if about.mode() & 0o077 != 0 {
            return Err(wrong(format!(
                "others may read it (mode {:03o}); run chmod 600 on it",
                about.mode() & 0o777
            )));
        }
        let user = rustix::process::geteuid().as_raw();
        if about.uid() != user && about.uid() != 0 {
            return Err(wrong(format!("belongs to user {}, not to user {user}", about.uid())));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|error| wrong(error.to_string()))?;
        let bytes =
            parse(text.trim()).ok_or_else(|| wrong("is not 64 hexadecimal digits".to_owned()))?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Creates a random key and writes it to a file that only the user may read.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn create(path: &Path) -> Result<Self, LinkError> {
        let wrong = |why: String| LinkError::Key { path: path.to_owned(), why };
        let text = Self::random()?;
        if let Some(folder) = path.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| wrong(error.to_string()))?;
        }
        // `create_new` neither follows a link nor replaces a key that links depend on.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(|error| wrong(error.to_string()))?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = fs::remove_file(path);
            return Err(wrong(error.to_string()));
        }
        let bytes = parse(text.trim()).ok_or_else(|| wrong("has no key".to_owned()))?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Returns the content of a file with a new random key.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn random() -> Result<Zeroizing<String>, LinkError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        fill_random(bytes.as_mut())?;
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        Ok(Zeroizing::new(digits.chain(["\n".to_owned()]).collect()))
    }

    /// Returns the proof that this side has the key.
    pub(crate) fn prove(&self, transcript: &[u8]) -> [u8; PROOF_BYTES] {
        let mut proof = [0; PROOF_BYTES];
        for (to, from) in proof.iter_mut().zip(hmac::sign(&self.plain, transcript).as_ref()) {
            *to = *from;
        }
        proof
    }

    /// Returns whether a proof is right, in constant time.
    pub(crate) fn verify(&self, transcript: &[u8], proof: &[u8; PROOF_BYTES]) -> bool {
        hmac::verify(&self.plain, transcript, proof).is_ok()
    }
}

/// The file in which the pool's key may appear while this process runs.
#[derive(Debug)]
pub struct AwaitedKey {
    path: PathBuf,
    key: OnceLock<Key>,
}

impl AwaitedKey {
    /// Awaits the key in the file `path`.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path, key: OnceLock::new() }
    }

    /// Returns the key if a call of [`AwaitedKey::look`] has found it.
    pub(crate) fn get(&self) -> Option<&Key> {
        self.key.get()
    }

    /// Reads the file if it has appeared. Returns `None` if it has not, or if the key is known.
    ///
    /// # Errors
    /// As [`Key::load`].
    pub fn look(&self) -> Option<Result<(), LinkError>> {
        if self.key.get().is_some() || !self.path.exists() {
            return None;
        }
        let key = Key::load(&self.path);
        // Another thread may have read it at the same time.
        Some(key.map(|key| _ = self.key.set(key)))
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Fills `bytes` with cryptographically secure random bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), LinkError> {
    use aws_lc_rs::rand::SecureRandom;
    aws_lc_rs::rand::SystemRandom::new().fill(bytes).map_err(|_| LinkError::System {
        doing: "asking the system for random bytes",
        source: std::io::Error::from(std::io::ErrorKind::Other),
    })
}

/// Reads 64 hexadecimal digits.
pub(crate) fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; KEY_BYTES];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("penstock-key-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn a_created_key_can_be_loaded_and_is_never_overwritten() {
        let folder = folder("create");
        let path = folder.join("deep/key");
        let made = Key::create(&path).unwrap();
        let loaded = Key::load(&path).unwrap();
        assert!(loaded.verify(b"text", &made.prove(b"text")));
        assert!(!loaded.verify(b"other", &made.prove(b"text")));
        assert!(Key::create(&path).unwrap_err().to_string().contains("exists"));
        assert_eq!(format!("{made:?}"), "Key(..)");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_key_that_appears_later_is_found() {
        let folder = folder("awaited");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("key");
        let awaited = AwaitedKey::at(path.clone());
        assert!(awaited.look().is_none() && awaited.get().is_none());
        fs::write(&path, "no key").unwrap();
        assert!(matches!(awaited.look(), Some(Err(LinkError::Key { .. }))));
        fs::remove_file(&path).unwrap();
        let made = Key::create(&path).unwrap();
        assert!(matches!(awaited.look(), Some(Ok(()))));
        assert_eq!(awaited.get().unwrap().prove(b"it"), made.prove(b"it"));
        // From now on the file may change: the key stays.
        fs::remove_file(&path).unwrap();
        assert!(awaited.look().is_none() && awaited.get().is_some());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = folder("mode");
        let path = folder.join("key");
        Key::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Key::load(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let folder = folder("bad");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("short", "ab"),
            ("sign", &"+1".repeat(32)),
            ("long", &"a".repeat(65)),
            ("binary", "\u{1}"),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(Key::load(&path).is_err(), "{name}");
        }
        assert!(Key::load(&folder.join("absent")).is_err());
        assert!(Key::load(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
