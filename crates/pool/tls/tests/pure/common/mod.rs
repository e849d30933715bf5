//! What several tests need.
#![allow(dead_code, reason = "each test uses a part of it")]

use penstock_tls::{
    Established, Expected, Handshake, HandshakeError, Handshakes, Identity, Intake, Pieces,
    RecordError, Records, limits,
};

pub const PROTOCOL: &[u8] = b"penstock/test";

pub fn handshakes() -> Handshakes {
    Handshakes::new(&Identity::generate().unwrap(), PROTOCOL).unwrap()
}

/// Carries the bytes of two handshakes to and fro until both are done. Gives each as many bytes as
/// it asks for, and at most `step`.
pub fn drive(
    client: &mut Handshake,
    server: &mut Handshake,
    step: usize,
) -> Result<(), HandshakeError> {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    loop {
        to_server.extend(client.output());
        to_client.extend(server.output());
        if client.is_done() && server.is_done() {
            assert!(to_server.is_empty() && to_client.is_empty(), "bytes are left");
            return Ok(());
        }
        let mut moved = false;
        for (from, to) in [(&mut to_server, &mut *server), (&mut to_client, &mut *client)] {
            let count = from.len().min(to.missing()).min(step);
            moved |= count > 0;
            let bytes: Vec<u8> = from.drain(..count).collect();
            assert_eq!(to.take(&bytes)?, count);
        }
        assert!(moved, "both sides wait");
    }
}

/// Returns both ends of a connection between two identities.
pub fn connected() -> (Established, Established) {
    let (one, two) = (handshakes(), handshakes());
    let mut client = one.connect(Expected::Key(two.public())).unwrap();
    let mut server = two.accept().unwrap();
    drive(&mut client, &mut server, usize::MAX).unwrap();
    (client.finish().unwrap(), server.finish().unwrap())
}

/// Returns the records of some data.
pub fn sealed(records: &mut Records, data: &[u8]) -> Vec<u8> {
    let pieces = [data];
    let mut pieces = Pieces::new(&pieces);
    let mut stream = Vec::new();
    while pieces.left() > 0 {
        let mut out = vec![0; limits::SEAL_BYTES_MIN];
        let bytes = records.sealer.seal(&mut pieces, &mut out).unwrap();
        stream.extend_from_slice(&out[..bytes]);
    }
    stream
}

pub fn written(fill: impl FnOnce(&mut [u8]) -> Result<usize, RecordError>) -> Vec<u8> {
    let mut out = vec![0; 100];
    let bytes = fill(&mut out).unwrap();
    out.truncate(bytes);
    out
}

/// Opens a part of a stream, and appends its data.
pub fn open(
    records: &mut Records,
    intake: &mut Intake,
    mut stream: &[u8],
    data: &mut Vec<u8>,
) -> Result<(), RecordError> {
    while !stream.is_empty() {
        let room = intake.room();
        let count = room.len().min(stream.len());
        room[..count].copy_from_slice(&stream[..count]);
        stream = &stream[count..];
        let filled = intake.filled(count, &mut records.opener);
        data.extend_from_slice(intake.verified());
        intake.take(usize::MAX);
        filled?;
    }
    Ok(())
}
