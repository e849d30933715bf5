//! Handshakes between two sides of ours: who is let in, what is refused, and what a proof of the
//! pool's key is bound to.

use crate::common::{PROTOCOL, connected, drive, handshakes, open, sealed, written};
use penstock_tls::limits::HANDSHAKE_BYTES_MAX;
use penstock_tls::{
    Alert, Expected, HandshakeError, Handshakes, Identity, Intake, PoolKey, RecordError, Side,
    TICKET_BYTES, Terms,
};

const TERMS: Terms = Terms { role: 1, features: 3, ticket: [0; TICKET_BYTES] };

#[test]
fn both_sides_prove_their_keys_and_talk() {
    for step in [usize::MAX, 7, 1] {
        let (one, two) = (handshakes(), handshakes());
        let mut client = one.connect(Expected::Key(two.public())).unwrap();
        let mut server = two.accept().unwrap();
        drive(&mut client, &mut server, step).unwrap();
        let (mut client, mut server) = (client.finish().unwrap(), server.finish().unwrap());
        assert_eq!((client.peer, server.peer), (two.public(), one.public()));
        assert_eq!(client.suite, server.suite);
        for is_back in [false, true] {
            let (mut from, mut to) = (&mut client.records, &mut server.records);
            if is_back {
                std::mem::swap(&mut from, &mut to);
            }
            let (mut intake, mut data) = (Intake::new(0), Vec::new());
            let mut stream = sealed(from, b"over there");
            stream.extend(written(|out| from.sealer.close(out)));
            open(to, &mut intake, &stream, &mut data).unwrap();
            assert_eq!((data.as_slice(), to.opener.end_of_stream()), (&b"over there"[..], Ok(())));
        }
    }
}

#[test]
fn data_that_follows_the_handshake_at_once_is_left_for_the_records() {
    let (one, two) = (handshakes(), handshakes());
    let mut client = one.connect(Expected::Key(two.public())).unwrap();
    let mut server = two.accept().unwrap();
    let hello = client.output();
    assert_eq!(server.take(&hello).unwrap(), hello.len());
    let answer = server.output();
    assert_eq!(client.take(&answer).unwrap(), answer.len());
    assert!(client.is_done() && !server.is_done());
    // The client's first data is in the same packet as the end of its handshake.
    let mut packet = client.output();
    let mut client = client.finish().unwrap();
    let handshake_bytes = packet.len();
    packet.extend(sealed(&mut client.records, b"first call"));
    assert_eq!(server.take(&packet).unwrap(), handshake_bytes);
    let (mut intake, mut data) = (Intake::new(0), Vec::new());
    let mut server = server.finish().unwrap();
    open(&mut server.records, &mut intake, &packet[handshake_bytes..], &mut data).unwrap();
    assert_eq!(data, b"first call");
}

#[test]
fn another_key_than_the_pinned_one_ends_the_handshake() {
    let (one, two, pinned) = (handshakes(), handshakes(), handshakes());
    let mut client = one.connect(Expected::Key(pinned.public())).unwrap();
    let mut server = two.accept().unwrap();
    let error = drive(&mut client, &mut server, usize::MAX).unwrap_err();
    let HandshakeError::OtherKey { expected, found } = &error else { panic!("{error}") };
    assert_eq!((*expected, *found), (pinned.public(), two.public()));
    assert!(error.to_string().contains(&two.public().fingerprint()), "{error}");
    // The server is told, and has learned nothing of the client.
    let alert = client.output();
    assert!(matches!(server.take(&alert), Err(HandshakeError::Refused(_))));
    assert!(matches!(server.finish(), Err(HandshakeError::Unfinished)));
}

#[test]
fn both_sides_need_the_same_protocol() {
    let identity = Identity::generate().unwrap();
    let (one, other) = (handshakes(), Handshakes::new(&identity, b"penstock/other").unwrap());
    let mut client = one.connect(Expected::Any).unwrap();
    let mut server = other.accept().unwrap();
    let error = drive(&mut client, &mut server, usize::MAX).unwrap_err();
    assert!(matches!(error, HandshakeError::OtherProtocol), "{error}");
    let error = client.take(&server.output()).unwrap_err();
    assert!(matches!(error, HandshakeError::OtherProtocol), "{error}");
}

#[test]
fn a_peer_without_tls_is_named_as_such() {
    let one = handshakes();
    for (bytes, side) in
        [(&b"PENSTOCK\x02\0\x01\0"[..], Side::Server), (b"GET / HTTP/1.1\r\n", Side::Client)]
    {
        let mut here = match side {
            Side::Server => one.accept().unwrap(),
            Side::Client => one.connect(Expected::Any).unwrap(),
        };
        let error = (0..100).find_map(|_| here.take(bytes).err()).unwrap();
        assert!(matches!(error, HandshakeError::NotTls), "{error}");
    }
}

#[test]
fn a_stranger_cannot_make_us_keep_much() {
    let one = handshakes();
    // One record that is announced too large.
    let mut server = one.accept().unwrap();
    let error = server.take(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]).unwrap_err();
    assert!(matches!(error, HandshakeError::TooMuch), "{error}");
    // Many small ones: a ClientHello in parts, which never ends.
    let mut server = one.accept().unwrap();
    let mut sent = 0;
    let mut part = vec![22, 3, 1, 0, 100];
    part.extend([1, 0, 0x3f, 0]);
    part.resize(105, 3);
    let error = loop {
        if let Err(error) = server.take(&part) {
            break error;
        }
        sent += part.len();
        part[5..].fill(3);
        assert!(sent <= HANDSHAKE_BYTES_MAX);
    };
    assert!(matches!(error, HandshakeError::TooMuch | HandshakeError::Tls(_)), "{error}");
}

#[test]
fn a_handshake_that_is_not_finished_gives_no_records() {
    let (one, two) = (handshakes(), handshakes());
    let client = one.connect(Expected::Any).unwrap();
    assert!(matches!(client.finish(), Err(HandshakeError::Unfinished)));
    let mut client = one.connect(Expected::Any).unwrap();
    let mut server = two.accept().unwrap();
    server.take(&client.output()).unwrap();
    client.take(&server.output()).unwrap();
    assert!(client.is_done());
    // Its own last bytes are not taken.
    assert!(matches!(client.finish(), Err(HandshakeError::Unfinished)));
}

/// Runs a handshake, of whose flights `change` may change the bytes. Returns the flights if both
/// sides are content.
fn flights(
    one: &Handshakes,
    two: &Handshakes,
    change: &dyn Fn(usize, &mut Vec<u8>),
) -> Option<Vec<Vec<u8>>> {
    let mut client = one.connect(Expected::Key(two.public())).unwrap();
    let mut server = two.accept().unwrap();
    let mut flights = Vec::new();
    for flight in 0..3 {
        let (from, to) =
            if flight == 1 { (&mut server, &mut client) } else { (&mut client, &mut server) };
        let mut bytes = from.output();
        change(flight, &mut bytes);
        to.take(&bytes).ok()?;
        flights.push(bytes);
    }
    (server.is_done() && client.is_done()).then_some(flights)
}

/// Returns whether a byte of a flight has no meaning.
///
/// RFC 8446, 5.1: "legacy_record_version: [...] This field is deprecated and MUST be ignored for
/// all purposes." rustls computes tags with the version that the standard prescribes, and not with
/// the one that came.
fn is_ignored(flight: &[u8], byte: usize) -> bool {
    let mut at = 0;
    while let Some(&[_, _, _, high, low]) = flight.get(at..).and_then(|rest| rest.first_chunk()) {
        if (at + 1..at + 3).contains(&byte) {
            return true;
        }
        at += 5 + usize::from(u16::from_be_bytes([high, low]));
    }
    false
}

#[test]
fn every_flipped_bit_of_a_handshake_ends_it() {
    let (one, two) = (handshakes(), handshakes());
    let good = flights(&one, &two, &|_, _| ()).unwrap();
    for (flight, bytes) in good.iter().enumerate() {
        for bit in (0..8 * bytes.len()).filter(|bit| bit % 3 == flight) {
            let flip = |which: usize, bytes: &mut Vec<u8>| {
                if which == flight {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            };
            let done = flights(&one, &two, &flip).is_some();
            assert!(!done || is_ignored(bytes, bit / 8), "flight {flight}, bit {bit}");
        }
    }
}

#[test]
fn a_proof_of_the_pools_key_is_bound_to_one_connection() {
    let pool = PoolKey::from_bytes(&[7; 32]);
    let (client, server) = connected();
    let proof = pool.prove(Side::Client, &client.binding, &TERMS);
    assert!(pool.verify(Side::Client, &server.binding, &TERMS, &proof));
    let answer = pool.prove(Side::Server, &server.binding, &TERMS);
    assert!(pool.verify(Side::Server, &client.binding, &TERMS, &answer));
    assert_ne!(proof, answer);
    // Somebody in the middle has two connections, and no proof fits both.
    let (_, elsewhere) = connected();
    assert!(!pool.verify(Side::Client, &elsewhere.binding, &TERMS, &proof));
}

#[test]
fn the_same_two_sides_have_other_secrets_each_time() {
    let (one, two) = (handshakes(), handshakes());
    let mut bindings = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = one.connect(Expected::Key(two.public())).unwrap();
        let mut server = two.accept().unwrap();
        drive(&mut client, &mut server, usize::MAX).unwrap();
        let mut client = client.finish().unwrap();
        streams.push((sealed(&mut client.records, b"same"), server.finish().unwrap().records));
        bindings.push(client.binding);
    }
    let pool = PoolKey::from_bytes(&[7; 32]);
    let proofs: Vec<_> = bindings.iter().map(|at| pool.prove(Side::Client, at, &TERMS)).collect();
    assert_ne!(proofs[0], proofs[1]);
    // A record of one connection is refused by the other.
    let (mut first, _) = (streams.remove(0).0, ());
    let error = streams[0].1.opener.open(&mut first).unwrap_err();
    assert_eq!((error, error.alert()), (RecordError::Forged, Some(Alert::BAD_RECORD_MAC)));
    assert_eq!(PROTOCOL, b"penstock/test");
}
