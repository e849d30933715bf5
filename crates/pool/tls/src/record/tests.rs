//! Each rule of the record layer, with records that break it.

use aws_lc_rs::aead::Aad;

use super::format::{Direction, content, message};
use super::{Intake, Message, Pieces, Records, Side};
use crate::alert::Alert;
use crate::error::RecordError;
use crate::limits::*;
use crate::suite::{RecordKey, Suite, TrafficSecret};

fn secret(suite: Suite, byte: u8) -> TrafficSecret {
    TrafficSecret::new(suite, &vec![byte; suite.secret_bytes()]).unwrap()
}

/// Returns both ends of a connection.
fn pair(suite: Suite) -> (Records, Records) {
    let (one, two) = (secret(suite, 1), secret(suite, 2));
    (Records::new(Side::Client, one.clone(), two.clone()), Records::new(Side::Server, two, one))
}

/// Makes any records, also wrong ones.
struct Forge {
    secret: TrafficSecret,
    key: RecordKey,
}

impl Forge {
    fn new(secret: TrafficSecret) -> Self {
        Self { key: RecordKey::new(&secret, 0), secret }
    }

    fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut inner = content.to_vec();
        inner.push(kind);
        inner.resize(inner.len() + padding, 0);
        self.inner(&inner)
    }

    fn inner(&mut self, inner: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(inner.len() + TAG_BYTES).unwrap().to_be_bytes();
        let header = [content::DATA, 3, 3, high, low];
        let nonce = self.key.nonce(u64::MAX).unwrap();
        let mut body = inner.to_vec();
        self.key.aead.seal_in_place_append_tag(nonce, Aad::from(header), &mut body).unwrap();
        self.key.sequence += 1;
        [&header[..], &body].concat()
    }

    fn turn(&mut self) {
        *self = Self::new(self.secret.next());
    }
}

/// Returns a server's records and a forge of the client's records, or the other way round.
fn forged(side: Side) -> (Records, Forge) {
    let (client, server) = pair(Suite::Aes128Gcm);
    let (here, byte) = if side == Side::Server { (server, 1) } else { (client, 2) };
    (here, Forge::new(secret(Suite::Aes128Gcm, byte)))
}

fn sealed(records: &mut Records, pieces: &[&[u8]]) -> Vec<u8> {
    let mut pieces = Pieces::new(pieces);
    let mut stream = Vec::new();
    while pieces.left() > 0 {
        let mut out = vec![0; SEAL_BYTES_MIN];
        let bytes = records.sealer.seal(&mut pieces, &mut out).unwrap();
        stream.extend_from_slice(&out[..bytes]);
    }
    stream
}

fn written(fill: impl FnOnce(&mut [u8]) -> Result<usize, RecordError>) -> Vec<u8> {
    let mut out = vec![0; 100];
    let bytes = fill(&mut out).unwrap();
    out[..bytes].to_vec()
}

/// Opens a stream through an intake, and returns the data and the end.
fn opened(records: &mut Records, stream: &[u8]) -> (Vec<u8>, Result<(), RecordError>) {
    let mut intake = Intake::new(0);
    let mut data = Vec::new();
    for part in stream.chunks(5_000) {
        let filled = fill(&mut intake, records, part);
        data.extend_from_slice(intake.verified());
        intake.take(usize::MAX);
        if filled.is_err() {
            return (data, filled);
        }
    }
    (data, records.opener.end_of_stream())
}

/// Gives an intake the next part of a stream, in as many steps as its room demands.
fn fill(intake: &mut Intake, records: &mut Records, mut part: &[u8]) -> Result<(), RecordError> {
    while !part.is_empty() {
        let room = intake.room();
        let count = room.len().min(part.len());
        let (now, later) = part.split_at(count);
        room[..count].copy_from_slice(now);
        intake.filled(count, &mut records.opener)?;
        part = later;
    }
    Ok(())
}

/// Opens forged records and returns the error of the last one.
fn refused(side: Side, make: impl FnOnce(&mut Forge) -> Vec<Vec<u8>>) -> RecordError {
    let (mut here, mut forge) = forged(side);
    let mut all = make(&mut forge);
    let mut last = all.pop().unwrap();
    for mut record in all {
        here.opener.open(&mut record).unwrap();
    }
    let error = here.opener.open(&mut last).unwrap_err();
    // Nothing more is opened, also if it is good.
    let mut good = forge.record(content::DATA, b"later", 0);
    assert_eq!(here.opener.open(&mut good), Err(error));
    assert_eq!(here.opener.end_of_stream(), Err(error));
    error
}

#[test]
fn the_example_of_rfc_8448_has_the_same_bytes() {
    let hex = |text: &str| -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    };
    let client = hex("9e 40 64 6c e7 9a 7f 9d c0 5a f8 88 9b ce 65 52
        87 5a fa 0b 06 df 00 87 f7 92 eb b7 c1 75 04 a5");
    let server = hex("a1 1a f9 f0 55 31 f8 56 ad 47 11 6b 45 a9 50 32
        82 04 b4 f4 4b fb 6b 3a 4b 4f 1f 3f cb 63 16 43");
    let client = TrafficSecret::new(Suite::Aes128Gcm, &client).unwrap();
    let server = TrafficSecret::new(Suite::Aes128Gcm, &server).unwrap();
    assert_eq!(client.key_and_iv().key(), hex("17 42 2d da 59 6e d5 d9 ac d8 90 e3 c6 3f 50 51"));
    assert_eq!(client.key_and_iv().iv.to_vec(), hex("5b 78 92 3d ee 08 57 90 33 e5 23 d9"));
    let mut records = Records::new(Side::Client, client, server);
    let plain: Vec<u8> = (0..50).collect();
    let record = sealed(&mut records, &[&plain]);
    assert_eq!(
        record,
        hex("17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa
            66 bc ab 3f 2b 98 19 a8 a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2
            97 70 14 bd 1e 3d ea e6 3a ee bb 21 69 49 15 e4")
    );
}

#[test]
fn data_of_all_suites_arrives_whatever_its_pieces_are() {
    for suite in Suite::ALL {
        let (mut client, mut server) = pair(suite);
        let plain: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
        let (one, rest) = plain.split_at(7);
        let (two, three) = rest.split_at(40_000);
        let mut stream = sealed(&mut client, &[one, &[], two, three]);
        // All records but the last have the largest size.
        assert_eq!(stream.len(), plain.len() + 7 * RECORD_OVERHEAD_BYTES);
        stream.extend(written(|out| client.sealer.close(out)));
        assert_eq!(opened(&mut server, &stream), (plain, Ok(())));
    }
}

#[test]
fn sealing_stops_where_the_room_ends_and_says_if_there_is_none() {
    let (mut client, _) = pair(Suite::Aes256Gcm);
    let plain = vec![7; 2 * PLAIN_BYTES_MAX];
    let pieces = [plain.as_slice()];
    let mut pieces = Pieces::new(&pieces);
    let mut out = vec![0; SEAL_BYTES_MIN];
    assert_eq!(
        client.sealer.seal(&mut pieces, &mut out),
        Ok(PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES)
    );
    assert_eq!(pieces.left(), PLAIN_BYTES_MAX);
    assert_eq!(client.sealer.seal(&mut pieces, &mut out[..100]), Err(RecordError::NoRoom));
    assert_eq!(client.sealer.seal(&mut Pieces::new(&[]), &mut out), Ok(0));
    assert!(client.sealer.close(&mut out[..ALERT_RECORD_BYTES - 1]).is_err());
    assert_eq!(client.sealer.close(&mut out), Ok(ALERT_RECORD_BYTES));
    assert_eq!(client.sealer.seal(&mut pieces, &mut out), Err(RecordError::Closed));
    assert_eq!(client.sealer.update(true, &mut out), Err(RecordError::Closed));
    assert_eq!(client.sealer.alert(Alert::DECODE_ERROR, &mut out), Err(RecordError::Closed));
}

#[test]
fn a_side_takes_a_new_key_in_time() {
    let (mut client, mut server) = pair(Suite::Aes128Gcm);
    client.sealer.set_update_records(3);
    server.opener.set_records_max(4); // three of data, and the update
    let plain = vec![1; 10 * PLAIN_BYTES_MAX];
    let mut stream = sealed(&mut client, &[&plain]);
    let records = 10 * (PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES);
    assert_eq!(stream.len(), records + 3 * UPDATE_RECORD_BYTES);
    stream.extend(written(|out| client.sealer.close(out)));
    assert_eq!(opened(&mut server, &stream), (plain, Ok(())));
}

#[test]
fn a_key_that_is_used_too_long_ends_the_connection() {
    let (mut client, mut server) = pair(Suite::Aes128Gcm);
    server.opener.set_records_max(3);
    let plain = vec![1; 4 * PLAIN_BYTES_MAX];
    let stream = sealed(&mut client, &[&plain]);
    let worn = Err(RecordError::KeyWornOut { records: 3 });
    assert_eq!(opened(&mut server, &stream), (plain[..3 * PLAIN_BYTES_MAX].to_vec(), worn));
    let key = RecordKey::new(&secret(Suite::ChaCha20Poly1305, 1), u64::MAX);
    assert!(key.nonce(Suite::ChaCha20Poly1305.records_max()).is_err(), "the number would wrap");
}

#[test]
fn an_asked_side_updates_before_its_next_data() {
    for round in 0_u8..3 {
        let (mut client, mut server) = pair(Suite::Aes256Gcm);
        // Two requests before any data need one answer.
        for _ in 0..2 {
            let mut ask = written(|out| client.sealer.update(true, out));
            assert_eq!(server.opener.open(&mut ask), Ok(Message::Handled));
        }
        let mut answer = sealed(&mut server, &[&[round]]);
        assert_eq!(answer.len(), UPDATE_RECORD_BYTES + RECORD_OVERHEAD_BYTES + 1);
        let (update, data) = answer.split_at_mut(UPDATE_RECORD_BYTES);
        assert_eq!(client.opener.open(update), Ok(Message::Handled));
        assert_eq!(client.opener.open(data), Ok(Message::Data(&mut [round])));
        // The answer asked for nothing.
        assert_eq!(sealed(&mut client, &[&[round]]).len(), RECORD_OVERHEAD_BYTES + 1);
    }
}

#[test]
fn an_update_that_asks_does_not_count_as_the_answer() {
    let (mut client, mut server) = pair(Suite::Aes256Gcm);
    let mut ask = written(|out| client.sealer.update(true, out));
    assert_eq!(server.opener.open(&mut ask), Ok(Message::Handled));
    written(|out| server.sealer.update(true, out));
    let answer = sealed(&mut server, &[b"x"]);
    assert_eq!(answer.len(), UPDATE_RECORD_BYTES + RECORD_OVERHEAD_BYTES + 1);
}

#[test]
fn outer_headers_that_no_record_has_are_refused_before_their_body_comes() {
    let (mut server, _) = forged(Side::Server);
    let long = u16::try_from(BODY_BYTES_MAX + 1).unwrap().to_be_bytes();
    let cases = [
        ([20, 3, 3, 0, 1], RecordError::OuterType(20)),
        ([21, 3, 3, 0, 2], RecordError::OuterType(21)),
        ([0, 3, 3, 0, 30], RecordError::OuterType(0)),
        ([23, 3, 3, long[0], long[1]], RecordError::TooLong { bytes: BODY_BYTES_MAX + 1 }),
        ([23, 3, 3, 0, 16], RecordError::TooShort { bytes: 16 }),
    ];
    for (header, error) in cases {
        let mut intake = Intake::new(0);
        let (mut here, _) = forged(Side::Server);
        intake.room()[..5].copy_from_slice(&header);
        assert_eq!(intake.filled(5, &mut here.opener), Err(error));
        assert_eq!(here.opener.end_of_stream(), Err(error));
    }
    assert_eq!(server.opener.open(&mut [23, 3, 3]), Err(RecordError::TooShort { bytes: 0 }));
}

#[test]
fn content_and_padding_have_one_limit() {
    let full = vec![1; PLAIN_BYTES_MAX];
    let (mut server, mut forge) = forged(Side::Server);
    let mut largest = forge.record(content::DATA, &full, 0);
    assert!(matches!(server.opener.open(&mut largest), Ok(Message::Data(data)) if data == full));
    let mut padded = forge.record(content::DATA, b"abc", PLAIN_BYTES_MAX - 3);
    assert_eq!(server.opener.open(&mut padded), Ok(Message::Data(&mut b"abc".to_owned())));
    let over = |content: usize, padding: usize| {
        let content = vec![1; content];
        refused(Side::Server, |forge| vec![forge.record(content::DATA, &content, padding)])
    };
    assert_eq!(over(PLAIN_BYTES_MAX + 1, 0), RecordError::Overflow);
    assert_eq!(over(PLAIN_BYTES_MAX, 1), RecordError::Overflow);
    assert_eq!(
        refused(Side::Server, |forge| vec![forge.inner(&[0; 40])]),
        RecordError::NoContentType
    );
}

#[test]
fn what_may_not_follow_a_handshake_is_refused() {
    let update = [message::KEY_UPDATE, 0, 0, 1, 0];
    let ticket = |bytes: u8| [message::NEW_SESSION_TICKET, 0, 0, bytes];
    let record = |kind: u8, content: &[u8]| {
        let content = content.to_vec();
        refused(Side::Server, move |forge| vec![forge.record(kind, &content, 0)])
    };
    assert_eq!(record(20, &[1]), RecordError::ContentType(20));
    assert_eq!(record(24, &[1]), RecordError::ContentType(24));
    assert_eq!(record(content::ALERT, &[]), RecordError::EmptyMessage);
    assert_eq!(record(content::HANDSHAKE, &[]), RecordError::EmptyMessage);
    assert_eq!(record(content::ALERT, &[2]), RecordError::AlertLength { bytes: 1 });
    assert_eq!(record(content::ALERT, &[1, 0, 1]), RecordError::AlertLength { bytes: 3 });
    assert_eq!(record(content::ALERT, &[1, 40]), RecordError::Alert(Alert(40)));
    assert_eq!(record(content::ALERT, &[1, 200]), RecordError::Alert(Alert(200)));
    assert_eq!(record(content::HANDSHAKE, &ticket(1)), RecordError::Message(4));
    assert_eq!(record(content::HANDSHAKE, &[13, 0, 0, 1]), RecordError::Message(13));
    assert_eq!(record(content::HANDSHAKE, &[24, 0, 0, 2]), RecordError::UpdateLength { bytes: 2 });
    assert_eq!(record(content::HANDSHAKE, &[24, 0, 0, 1, 2]), RecordError::UpdateRequest(2));
    assert_eq!(record(content::HANDSHAKE, &[24, 0, 0, 1, 0, 24]), RecordError::UpdateNotLast);
    let long = [message::NEW_SESSION_TICKET, 1, 0, 0];
    assert_eq!(
        refused(Side::Client, |forge| vec![forge.record(content::HANDSHAKE, &long, 0)]),
        RecordError::TicketTooLong { bytes: 1 << 16 }
    );
    for kind in [content::DATA, content::ALERT] {
        let between = refused(Side::Server, |forge| {
            vec![forge.record(content::HANDSHAKE, &update[..3], 0), forge.record(kind, &[1, 0], 0)]
        });
        assert_eq!(between, RecordError::Interleaved);
    }
}

#[test]
fn messages_come_in_any_parts() {
    let (mut client, mut forge) = forged(Side::Client);
    let mut ticket = vec![message::NEW_SESSION_TICKET, 0, 1, 44];
    ticket.resize(4 + 300, 0xab);
    let update = [message::KEY_UPDATE, 0, 0, 1, 0];
    let mut stream = Vec::new();
    // Two tickets and an update in records that end anywhere.
    for part in [&ticket[..], &ticket, &update].concat().chunks(101) {
        stream.extend(forge.record(content::HANDSHAKE, part, 3));
    }
    forge.turn();
    stream.extend(forge.record(content::DATA, b"new key", 0));
    for byte in update {
        stream.extend(forge.record(content::HANDSHAKE, &[byte], 0));
    }
    forge.turn();
    stream.extend(forge.record(content::DATA, b", newer key", 0));
    stream.extend(forge.record(content::ALERT, &[1, 90], 0));
    stream.extend(forge.record(content::ALERT, &[2, 0], 0));
    // What follows the end is ignored.
    stream.extend(forge.record(content::DATA, b"late", 0));
    stream.extend([0; 30]);
    assert_eq!(opened(&mut client, &stream), (b"new key, newer key".to_vec(), Ok(())));
}

#[test]
fn a_peer_that_sends_no_data_is_stopped() {
    let idle = usize::try_from(IDLE_RECORDS_MAX).unwrap();
    let (mut server, mut forge) = forged(Side::Server);
    for _ in 0..3 {
        for _ in 0..idle {
            let mut empty = forge.record(content::DATA, b"", 9);
            assert_eq!(server.opener.open(&mut empty), Ok(Message::Handled));
        }
        let mut data = forge.record(content::DATA, b"x", 0);
        assert!(matches!(server.opener.open(&mut data), Ok(Message::Data(_))));
    }
    let updates = refused(Side::Server, |forge| {
        let mut all = Vec::new();
        for _ in 0..=idle {
            all.push(forge.record(content::HANDSHAKE, &[24, 0, 0, 1, 1], 0));
            forge.turn();
        }
        all
    });
    assert_eq!(updates, RecordError::Idle);
}

#[test]
fn updates_that_this_side_asked_for_are_not_idle() {
    let (mut server, mut forge) = forged(Side::Server);
    let idle = usize::try_from(IDLE_RECORDS_MAX).unwrap();
    for _ in 0..4 * idle {
        written(|out| server.sealer.update(true, out));
    }
    let mut answer = || {
        let mut update = forge.record(content::HANDSHAKE, &[24, 0, 0, 1, 0], 0);
        forge.turn();
        server.opener.open(&mut update).map(|_| ())
    };
    for _ in 0..4 * idle {
        assert_eq!(answer(), Ok(()));
    }
    let more: Vec<_> = (0..=idle).map(|_| answer()).collect();
    assert_eq!(more.last(), Some(&Err(RecordError::Idle)));
    assert_eq!(more.first(), Some(&Ok(())));
}

#[test]
fn every_error_that_the_peer_caused_has_its_alert() {
    assert_eq!(RecordError::Forged.alert(), Some(Alert::BAD_RECORD_MAC));
    assert_eq!(RecordError::UpdateRequest(2).alert(), Some(Alert::ILLEGAL_PARAMETER));
    assert_eq!(RecordError::Overflow.alert(), Some(Alert::RECORD_OVERFLOW));
    assert_eq!(RecordError::Alert(Alert(40)).alert(), None);
    let (mut client, mut server) = pair(Suite::Aes128Gcm);
    let mut alert = written(|out| server.sealer.alert(Alert::BAD_RECORD_MAC, out));
    let error = client.opener.open(&mut alert).unwrap_err();
    assert_eq!(error.to_string(), "the peer ended the connection: bad_record_mac");
}

#[test]
fn another_process_continues_the_records() {
    for suite in Suite::ALL {
        let (mut client, mut server) = pair(suite);
        let stream = sealed(&mut client, &[b"hello"]);
        assert_eq!(opened_data(&mut server, &stream), b"hello");
        let mut ask = written(|out| client.sealer.update(true, out));
        server.opener.open(&mut ask).unwrap();
        let handed = server.hand_over().unwrap();
        let mut worker = Records::take_over(&*handed).unwrap();
        let stream = sealed(&mut client, &[b"world"]);
        assert_eq!(opened_data(&mut worker, &stream), b"world");
        let answer = sealed(&mut worker, &[b"yes"]);
        assert!(answer.len() > RECORD_OVERHEAD_BYTES + 3, "the update is still owed");
        assert_eq!(opened_data(&mut client, &answer), b"yes");
        for (at, wrong) in [(0, 2), (1, 9), (3, 2), (4, 2)] {
            let mut bad = *handed;
            bad[at] = wrong;
            assert_eq!(Records::take_over(&bad).unwrap_err(), RecordError::Handover);
        }
        assert!(Records::take_over(&handed[..handed.len() - 1]).is_err());
    }
    let (mut client, _) = pair(Suite::Aes128Gcm);
    written(|out| client.sealer.close(out));
    assert_eq!(client.hand_over().unwrap_err(), RecordError::Closed);
    let (mut server, mut forge) = forged(Side::Server);
    server.opener.open(&mut forge.record(content::HANDSHAKE, &[24], 0)).unwrap();
    assert_eq!(server.hand_over().unwrap_err(), RecordError::MidMessage);
}

fn opened_data(records: &mut Records, stream: &[u8]) -> Vec<u8> {
    let (data, end) = opened_open(records, stream);
    end.unwrap();
    data
}

/// Like [`opened`], of a stream that goes on.
fn opened_open(records: &mut Records, stream: &[u8]) -> (Vec<u8>, Result<(), RecordError>) {
    let mut intake = Intake::new(stream.len());
    intake.room()[..stream.len()].copy_from_slice(stream);
    let filled = intake.filled(stream.len(), &mut records.opener);
    (intake.verified().to_vec(), filled)
}

#[test]
fn an_intake_gathers_small_records_and_tells_what_is_missing() {
    let (mut client, mut server) = pair(Suite::Aes128Gcm);
    let mut intake = Intake::new(0);
    assert_eq!(intake.missing(&mut server.opener), Ok(5));
    let mut stream = sealed(&mut client, &[b"one "]);
    stream.extend(sealed(&mut client, &[b"record"]));
    let mut rest = stream.as_slice();
    // Never more than one record: what follows would be left for the next reader.
    while !rest.is_empty() {
        let missing = intake.missing(&mut server.opener).unwrap();
        let (now, later) = rest.split_at(missing);
        rest = later;
        fill(&mut intake, &mut server, now).unwrap();
    }
    assert_eq!(intake.verified(), b"one record");
    intake.take(4);
    assert_eq!(intake.verified(), b"record");
    // An untaken rest stays in front of what comes, however much comes.
    let plain = vec![5; 5 * PLAIN_BYTES_MAX];
    let stream = sealed(&mut client, &[&plain]);
    for part in stream.chunks(1_000) {
        fill(&mut intake, &mut server, part).unwrap();
    }
    assert_eq!(intake.verified().len(), 6 + plain.len());
    assert_eq!(intake.verified()[..8], *b"record\x05\x05");
}

/// Receives `target.len()` bytes as a link does: large content goes to its place at once.
fn read(
    stream: &mut &[u8],
    step: usize,
    intake: &mut Intake,
    records: &mut Records,
    target: &mut [u8],
) -> Result<(), RecordError> {
    let mut done = intake.take_into(target);
    while done < target.len() {
        let rest = &mut target[done..];
        let bytes = step.min(stream.len()).min(rest.len().max(1_000));
        intake.room_for(bytes)[..bytes].copy_from_slice(&stream[..bytes]);
        *stream = &stream[bytes..];
        done += intake.filled_into(bytes, &mut records.opener, rest)?;
    }
    Ok(())
}

#[test]
fn content_lands_in_its_target_whatever_the_parts_are() {
    for step in [1 << 20, 70_000, 20_000, 4_321] {
        let (mut client, mut server) = pair(Suite::Aes256Gcm);
        let plain: Vec<u8> = (0..300_000_u32).flat_map(|at| at.to_be_bytes()).collect();
        let mut stream = sealed(&mut client, &[&plain[..100]]);
        stream.extend(sealed(&mut client, &[&plain[100..900_000]]));
        stream.extend(written(|out| client.sealer.update(false, out)));
        stream.extend(sealed(&mut client, &[&plain[900_000..]]));
        let (mut rest, mut intake, mut got) = (stream.as_slice(), Intake::new(0), Vec::new());
        for bytes in [10, 200, 500_000, 1, 16_000, 400_000, 100, 1_200_000 - 916_311] {
            let mut target = vec![0; bytes];
            read(&mut rest, step, &mut intake, &mut server, &mut target).unwrap();
            got.extend(target);
        }
        assert!(got == plain, "step {step}");
        assert!(intake.is_empty() && rest.is_empty());
    }
}

#[test]
fn a_bad_record_leaves_nothing_of_itself_in_a_target() {
    for suite in Suite::ALL {
        let (mut client, mut server) = pair(suite);
        let plain = vec![7; 4 * PLAIN_BYTES_MAX];
        let mut stream = sealed(&mut client, &[&plain]);
        let third = 2 * (PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES);
        stream[third + 9_000] ^= 1;
        let mut target = vec![0; stream.len()];
        let mut intake = Intake::new(0);
        intake.room_for(stream.len())[..stream.len()].copy_from_slice(&stream);
        let filled = intake.filled_into(stream.len(), &mut server.opener, &mut target);
        assert_eq!(filled, Err(RecordError::Forged));
        let (good, bad) = target.split_at(2 * PLAIN_BYTES_MAX);
        assert!(good.iter().all(|&byte| byte == 7) && bad.iter().all(|&byte| byte != 7));
        assert!(intake.verified().is_empty());
    }
}

/// The opened record, with its type and its padding, is longer than its content. It must not spoil
/// what is behind the target, and content that waits must stay in front.
#[test]
fn a_target_of_any_size_gets_the_next_bytes_and_no_others() {
    let contents = [b"some".to_vec(), vec![5; 700], b"x".to_vec(), vec![6; 300]];
    for bytes in 0..contents.concat().len() {
        let (mut server, mut forge) = forged(Side::Server);
        let mut stream = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            stream.extend(forge.record(content::DATA, content, 40 * (number % 2)));
        }
        let mut memory = vec![0xee; bytes + 50];
        let (target, behind) = memory.split_at_mut(bytes);
        let mut intake = Intake::new(0);
        intake.room_for(stream.len())[..stream.len()].copy_from_slice(&stream);
        let filled = intake.filled_into(stream.len(), &mut server.opener, target);
        assert_eq!(filled, Ok(bytes));
        assert!(behind.iter().all(|&byte| byte == 0xee));
        assert!([target, intake.verified()].concat() == contents.concat(), "{bytes} bytes");
        let mut rest = vec![0; 2_000];
        let count = intake.filled_into(0, &mut server.opener, &mut rest).unwrap();
        assert!([target, &rest[..count]].concat() == contents.concat(), "{bytes} bytes");
        assert!(intake.is_empty());
    }
}

/// Content in one piece is sealed where it lies, and other content is gathered first.
#[test]
fn records_are_the_same_however_the_content_is_cut() {
    let plain: Vec<u8> = (0..40_000_u32).flat_map(|at| at.to_be_bytes()).collect();
    for suite in Suite::ALL {
        let whole = sealed(&mut pair(suite).0, &[&plain]);
        assert_eq!(opened_data(&mut pair(suite).1, &whole), plain);
        let full = PLAIN_BYTES_MAX;
        for cuts in [vec![1], vec![full], vec![full - 1, full], vec![0, 7, 7, 2 * full, 3 * full]] {
            let mut pieces = Vec::new();
            let mut rest = plain.as_slice();
            let mut last = 0;
            for cut in cuts {
                let (piece, later) = rest.split_at(cut - last);
                pieces.push(piece);
                (rest, last) = (later, cut);
            }
            pieces.push(rest);
            assert!(sealed(&mut pair(suite).0, &pieces) == whole, "{suite:?}");
        }
    }
}

#[test]
fn secrets_have_the_size_of_their_suite() {
    for suite in Suite::ALL {
        assert!(TrafficSecret::new(suite, &[0; 31]).is_none());
        assert!(TrafficSecret::new(suite, &[0; 40]).is_none());
        assert_eq!(Suite::from_code(suite.code()), Some(suite));
        let shown = format!("{:?}", Direction { secret: secret(suite, 0x41), sequence: 0 });
        assert!(shown.contains("..") && !shown.contains("65"), "{shown}");
    }
    assert_eq!(Suite::from_code(0x1304), None);
}
