//! Records of a hostile peer: any bytes on the wire, and any content in records that verify.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_tls::{Intake, Message, Records, Side, Suite, TrafficSecret};
use aws_lc_rs::{aead, hkdf};

/// Most of what a record can have: the padding comes on top.
const CONTENT_BYTES_MAX: usize = 16_000;

/// Hostile peer that knows the keys, as every peer does.
struct Forge {
    secret: Vec<u8>,
    key: aead::LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

fuzz_target!(|input: (bool, Vec<u8>, Vec<(u8, u8, Vec<u8>)>)| {
    let (is_client, wire, forged) = input;
    let side = if is_client { Side::Client } else { Side::Server };
    let records = || {
        let secret = |byte| TrafficSecret::new(Suite::Aes128Gcm, &[byte; 32]).expect("32 bytes");
        Records::new(side, secret(1), secret(2))
    };

    // Bytes of a stranger never become data.
    let (mut here, mut intake) = (records(), Intake::new(0));
    for part in wire.chunks(997) {
        intake.room()[..part.len()].copy_from_slice(part);
        let filled = intake.filled(part.len(), &mut here.opener);
        assert!(intake.verified().is_empty());
        if filled.is_err() {
            assert!(here.opener.end_of_stream().is_err());
            break;
        }
    }

    // A peer's own records are data only if they say so, and an error is the last thing.
    let (mut here, mut forge) = (records(), Forge::new(&[2; 32]));
    let mut ended = false;
    for (kind, padding, mut content) in forged {
        // Zeros at the end are padding.
        let kind = kind.max(1);
        content.truncate(CONTENT_BYTES_MAX);
        let mut record = forge.record(kind, &content, usize::from(padding));
        match here.opener.open(&mut record) {
            Ok(Message::Data(data)) => assert!(!ended && kind == 23 && data == content),
            Ok(Message::Handled) => {
                assert!(!ended);
                // An update with which the record ends is the only one that can be whole.
                if kind == 22 && content.ends_with(&[24, 0, 0, 1, 0]) && content.len() == 5 {
                    forge.turn();
                }
            }
            Ok(Message::Closed) => ended = true,
            Err(error) => {
                assert_eq!(here.opener.end_of_stream(), Err(error));
                ended = true;
            }
        }
    }
});

impl Forge {
    fn new(secret: &[u8]) -> Self {
        let key = aead::UnboundKey::new(&aead::AES_128_GCM, &expand(secret, b"key", 16));
        let iv = expand(secret, b"iv", 12).try_into().expect("12 bytes");
        let key = aead::LessSafeKey::new(key.expect("16 bytes"));
        Self { secret: secret.to_vec(), key, iv, sequence: 0 }
    }

    fn turn(&mut self) {
        *self = Self::new(&expand(&self.secret, b"traffic upd", 32));
    }

    fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut body = content.to_vec();
        body.push(kind);
        body.resize(body.len() + padding, 0);
        let length = u16::try_from(body.len() + 16).expect("at most 16,272").to_be_bytes();
        let header = [23, 3, 3, length[0], length[1]];
        let mut nonce = self.iv;
        for (byte, number) in nonce.iter_mut().rev().zip(self.sequence.to_le_bytes()) {
            *byte ^= number;
        }
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, aead::Aad::from(header), &mut body)
            .expect("it is short");
        self.sequence += 1;
        [&header[..], &body].concat()
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(secret: &[u8], label: &[u8], bytes: usize) -> Vec<u8> {
    let label_bytes = u8::try_from(6 + label.len()).expect("a short label");
    let head = [0, u8::try_from(bytes).expect("at most 32"), label_bytes];
    let mut made = vec![0; bytes];
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret)
        .expand(&[&head, b"tls13 ", label, &[0]], Length(bytes))
        .and_then(|all| all.fill(&mut made))
        .expect("at most 255 hashes");
    made
}
