//! Any bytes of a stranger as a handshake, on both sides: no panic, and never an authenticated
//! peer.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use penstock_tls::limits::HANDSHAKE_BYTES_MAX;
use penstock_tls::{Expected, Handshakes, Identity};

static HANDSHAKES: LazyLock<Handshakes> = LazyLock::new(|| {
    let identity = Identity::generate().expect("random numbers");
    Handshakes::new(&identity, b"penstock/fuzz").expect("an identity of ours")
});

fuzz_target!(|bytes: &[u8]| {
    let both = [HANDSHAKES.accept(), HANDSHAKES.connect(Expected::Any)];
    for handshake in both {
        let mut handshake = handshake.expect("it starts");
        _ = handshake.output();
        let mut taken = 0;
        for part in bytes.chunks(1_000) {
            let Ok(count) = handshake.take(part) else { break };
            taken += count;
            assert!(taken + handshake.missing() <= HANDSHAKE_BYTES_MAX);
        }
        _ = handshake.output();
        assert!(handshake.finish().is_err());
    }
});
