//! Proof of the pool's key inside a connection.
//!
//! A side that does not know the other one's key yet asks for this proof. It is an HMAC under the
//! pool's key over what only the two ends of this connection share. So it shows that the other end
//! of *this* connection has the pool's key:
//!
//! * Somebody in the middle has two connections with two exporter values, and cannot pass a proof
//!   on from one to the other.
//! * A proof is for one side, with a label of its own, so it cannot be sent back.
//! * Both public keys are in it, and what the client asks for. None of them can be exchanged.
//! * Only the other end of the connection sees a proof. If that end lacks the key, it has an HMAC
//!   of values that it knows, and could try keys until one fits. The pool's key is 256 random bits
//!   (`penstock key --create`), so this is hopeless. A key that somebody thought up would not be.

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::key::PublicKey;
use crate::record::Side;

/// Number of bytes of the exporter value. The output of SHA-256, which is what RFC 9266 uses too.
pub(crate) const EXPORTER_BYTES: usize = 32;
/// Number of bytes of the pool's key.
pub const POOL_KEY_BYTES: usize = 32;
/// Number of bytes of a proof: the output of SHA-256.
pub const ENROLMENT_BYTES: usize = 32;
/// Number of bytes of a ticket.
pub const TICKET_BYTES: usize = 32;

/// Labels of the two proofs. They have the same length, so what follows has the same places.
const CLIENT: &[u8; 27] = b"penstock 1 enrolment client";
const SERVER: &[u8; 27] = b"penstock 1 enrolment server";

/// What belongs to one connection and to no other.
pub struct Binding {
    exporter: Zeroizing<[u8; EXPORTER_BYTES]>,
    client: PublicKey,
    server: PublicKey,
}

/// What the proving side asks for or grants. It is part of the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Number of the link's role.
    pub role: u16,
    /// Features of the proving side.
    pub features: u64,
    /// Ticket that the client brings; zero if it has none.
    pub ticket: [u8; TICKET_BYTES],
}

/// Key that all nodes and clients of a pool share.
pub struct PoolKey(hmac::Key);

impl Binding {
    pub(crate) fn new(
        exporter: Zeroizing<[u8; EXPORTER_BYTES]>,
        client: PublicKey,
        server: PublicKey,
    ) -> Self {
        Self { exporter, client, server }
    }

    /// Returns what a side proves: numbers of fixed sizes behind a label, so that no two meanings
    /// have the same bytes.
    fn transcript(&self, prover: Side, terms: &Terms) -> Zeroizing<Vec<u8>> {
        let label: &[u8] = match prover {
            Side::Client => CLIENT,
            Side::Server => SERVER,
        };
        let parts: [&[u8]; 8] = [
            label,
            &[0],
            &*self.exporter,
            self.client.as_bytes(),
            self.server.as_bytes(),
            &terms.role.to_be_bytes(),
            &terms.features.to_be_bytes(),
            &terms.ticket,
        ];
        Zeroizing::new(parts.concat())
    }
}

impl PoolKey {
    pub fn from_bytes(bytes: &[u8; POOL_KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the proof that `prover`, which is this side, has the key.
    pub fn prove(&self, prover: Side, binding: &Binding, terms: &Terms) -> [u8; ENROLMENT_BYTES] {
        let mut proof = [0; ENROLMENT_BYTES];
        let made = hmac::sign(&self.0, &binding.transcript(prover, terms));
        for (to, from) in proof.iter_mut().zip(made.as_ref()) {
            *to = *from;
        }
        proof
    }

    /// Returns whether `prover`, which is the other side, has the key, in constant time.
    #[must_use]
    pub fn verify(
        &self,
        prover: Side,
        binding: &Binding,
        terms: &Terms,
        proof: &[u8; ENROLMENT_BYTES],
    ) -> bool {
        hmac::verify(&self.0, &binding.transcript(prover, terms), proof).is_ok()
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("client", &self.client)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { role: 1, features: 6, ticket: [9; TICKET_BYTES] };

    fn binding(exporter: u8, client: u8, server: u8) -> Binding {
        let key = |byte| PublicKey::from_bytes([byte; 32]);
        Binding::new(Zeroizing::new([exporter; EXPORTER_BYTES]), key(client), key(server))
    }

    #[test]
    fn a_proof_holds_for_its_side_connection_keys_and_terms_only() {
        let (pool, here) = (PoolKey::from_bytes(&[5; POOL_KEY_BYTES]), binding(1, 2, 3));
        for (prover, other) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
            let proof = pool.prove(prover, &here, &TERMS);
            assert!(pool.verify(prover, &here, &TERMS, &proof));
            assert!(!pool.verify(other, &here, &TERMS, &proof), "reflected");
            for there in [binding(4, 2, 3), binding(1, 4, 3), binding(1, 2, 4), binding(1, 3, 2)] {
                assert!(!pool.verify(prover, &there, &TERMS, &proof), "relayed");
            }
            for terms in [
                Terms { role: 2, ..TERMS },
                Terms { features: 7, ..TERMS },
                Terms { ticket: [0; TICKET_BYTES], ..TERMS },
            ] {
                assert!(!pool.verify(prover, &here, &terms, &proof), "{terms:?}");
            }
            let stranger = PoolKey::from_bytes(&[6; POOL_KEY_BYTES]);
            assert!(!pool.verify(prover, &here, &TERMS, &stranger.prove(prover, &here, &TERMS)));
            for bit in 0..8 * ENROLMENT_BYTES {
                let mut bad = proof;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(!pool.verify(prover, &here, &TERMS, &bad), "bit {bit}");
            }
        }
        assert_eq!(format!("{pool:?}"), "PoolKey(..)");
    }
}
