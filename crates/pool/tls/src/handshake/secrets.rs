//! The traffic secrets of one handshake, as rustls reports them.

use std::sync::{Mutex, PoisonError};

use rustls::KeyLog;
use zeroize::Zeroizing;

/// Labels of the secrets in NSS's format of key logs, which rustls uses.
const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// Receives the traffic secrets of one connection.
///
/// rustls hands out keys and initialization vectors for records (`dangerous_extract_secrets`), but
/// a key update derives the next ones from the secret. The `KernelConnection` of rustls derives
/// them, too, but only in the process that made the handshake, and the worker is another one. A key
/// log is the way in which rustls hands out the secret itself. [`super::Handshake::finish`]
/// compares the keys that follow from the secret with those that rustls hands out.
#[derive(Default)]
pub(super) struct Caught(Mutex<Pair>);

#[derive(Default)]
pub(super) struct Pair {
    pub(super) client: Option<Zeroizing<Vec<u8>>>,
    pub(super) server: Option<Zeroizing<Vec<u8>>>,
}

impl Caught {
    pub(super) fn take(&self) -> Pair {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeyLog for Caught {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut pair = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match label {
            CLIENT => &mut pair.client,
            SERVER => &mut pair.server,
            _ => return,
        };
        *place = Some(Zeroizing::new(secret.to_vec()));
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT | SERVER)
    }
}

impl std::fmt::Debug for Caught {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Caught(..)")
    }
}
