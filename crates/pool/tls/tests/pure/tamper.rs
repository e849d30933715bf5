//! If somebody on the way changes a stream of records, the connection ends with an error, and
//! no byte of a record that was touched is delivered.
//!
//! `TAMPER_CASES` says how many streams are tampered with (4,000 if it is not set). A million take
//! about a minute:
//!
//! ```text
//! TAMPER_CASES=1000000 cargo test --release -p penstock-tls --test tamper
//! ```

use crate::common::{open, sealed, written};
use penstock_tls::{Intake, RecordError, Records, Side, Suite, TrafficSecret};
use penstock_trial::Random;

/// Largest data of a record in these tests. What is done to a record does not depend on its size.
const DATA_BYTES_MAX: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Flip,
    Overwrite,
    Swap,
    Replay,
    Drop,
    Truncate,
    Splice,
    Insert,
    Shorten,
}

const ACTS: [Act; 9] = [
    Act::Flip,
    Act::Overwrite,
    Act::Swap,
    Act::Replay,
    Act::Drop,
    Act::Truncate,
    Act::Splice,
    Act::Insert,
    Act::Shorten,
];

/// Record on its way, and the data in it.
#[derive(Clone)]
struct Sent {
    bytes: Vec<u8>,
    data: Vec<u8>,
}

fn cases() -> u64 {
    std::env::var("TAMPER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000)
}

fn pair(suite: Suite, random: &mut Random) -> (Records, Records) {
    let mut secret = || TrafficSecret::new(suite, &random.bytes(suite.secret_bytes())).unwrap();
    let (one, two) = (secret(), secret());
    (Records::new(Side::Client, one.clone(), two.clone()), Records::new(Side::Server, two, one))
}

/// Sends a few records, key updates among them, and the end.
fn stream(client: &mut Records, random: &mut Random) -> Vec<Sent> {
    let mut all = Vec::new();
    for _ in 0..2 + random.below(5) {
        if random.below(5) == 0 {
            let ask = random.below(2) == 0;
            let bytes = written(|out| client.sealer.update(ask, out));
            all.push(Sent { bytes, data: Vec::new() });
        } else {
            let size = 1 + random.below(DATA_BYTES_MAX);
            let data = random.bytes(usize::try_from(size).unwrap());
            all.push(Sent { bytes: sealed(client, &data), data });
        }
    }
    all.push(Sent { bytes: written(|out| client.sealer.close(out)), data: Vec::new() });
    all
}

/// Tampers with a stream.
fn tamper(act: Act, all: &mut Vec<Sent>, foreign: &[Sent], random: &mut Random) {
    let at = random.index(all.len());
    let bytes = all[at].bytes.len();
    match act {
        Act::Flip => {
            for _ in 0..1 + random.below(3) {
                let bit = random.index(8 * bytes);
                all[at].bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        Act::Overwrite => {
            let from = random.index(bytes);
            let count = 1 + random.index(bytes - from);
            let new = random.bytes(count);
            all[at].bytes[from..from + count].copy_from_slice(&new);
        }
        Act::Swap => {
            let other = random.index(all.len());
            all.swap(at, other);
        }
        Act::Replay => {
            let again = all[at].clone();
            let place = random.index(all.len());
            all.insert(place, again);
        }
        Act::Drop => {
            all.remove(at);
        }
        Act::Truncate => {
            let kept = random.index(bytes);
            all[at].bytes.truncate(kept);
            all.truncate(at + 1);
        }
        Act::Splice => {
            all.truncate(at);
            all.extend_from_slice(foreign.get(at.min(foreign.len() - 1)..).unwrap_or_default());
        }
        Act::Insert => {
            let count = 1 + random.index(60);
            let bytes = random.bytes(count);
            all.insert(at, Sent { bytes, data: Vec::new() });
        }
        Act::Shorten => {
            let cut = random.index(bytes);
            all[at].bytes.remove(cut);
        }
    }
}

fn bytes(all: &[Sent]) -> Vec<u8> {
    all.iter().flat_map(|sent| sent.bytes.clone()).collect()
}

/// Returns the data of the records that lie whole before the first byte that differs.
fn untouched(sent: &[Sent], on_the_way: &[u8]) -> Vec<u8> {
    let (mut end, mut data) = (0, Vec::new());
    for sent in sent {
        let from = end;
        end += sent.bytes.len();
        if on_the_way.get(from..end) != Some(sent.bytes.as_slice()) {
            break;
        }
        data.extend_from_slice(&sent.data);
    }
    data
}

/// Opens what came through, in parts of random sizes.
fn deliver(
    server: &mut Records,
    stream: &[u8],
    random: &mut Random,
) -> (Vec<u8>, Result<(), RecordError>) {
    let (mut intake, mut data, mut rest) = (Intake::new(0), Vec::new(), stream);
    while !rest.is_empty() {
        let count = (1 + random.index(700)).min(rest.len());
        let (now, later) = rest.split_at(count);
        rest = later;
        let taken = open(server, &mut intake, now, &mut data);
        if taken.is_err() {
            return (data, taken);
        }
    }
    let end = server.opener.end_of_stream();
    (data, end)
}

#[test]
fn a_tampered_stream_ends_with_an_error_and_delivers_nothing_of_what_was_touched() {
    let mut seen = [0_u64; ACTS.len()];
    for case in 0..cases() {
        let mut random = Random::new(case);
        let suite = Suite::ALL[random.index(3)];
        let (mut client, mut server) = pair(suite, &mut random);
        let (mut stranger, _) = pair(suite, &mut random);
        let sent = stream(&mut client, &mut random);
        let foreign = stream(&mut stranger, &mut random);
        let mut changed = sent.clone();
        let which = random.index(ACTS.len());
        let act = ACTS[which];
        tamper(act, &mut changed, &foreign, &mut random);
        let on_the_way = bytes(&changed);
        // Sometimes two changes undo each other, or something comes only behind the end, where RFC
        // 8446, 6.1 has it ignored.
        if on_the_way.starts_with(&bytes(&sent)) {
            let all = untouched(&sent, &on_the_way);
            assert_eq!(deliver(&mut server, &on_the_way, &mut random), (all, Ok(())));
            continue;
        }
        seen[which] += 1;
        let (data, end) = deliver(&mut server, &on_the_way, &mut random);
        assert!(end.is_err(), "case {case}, {act:?}: no error");
        let good = untouched(&sent, &on_the_way);
        assert!(data == good, "case {case}, {act:?}: {} bytes, not {}", data.len(), good.len());
    }
    assert!(seen.iter().all(|&count| count > cases() / 30), "{seen:?}");
}

#[test]
fn every_single_bit_matters() {
    for suite in Suite::ALL {
        let mut random = Random::new(3);
        let secrets: Vec<Vec<u8>> = (0..2).map(|_| random.bytes(suite.secret_bytes())).collect();
        let ends = || {
            let secret = |at: usize| TrafficSecret::new(suite, &secrets[at]).unwrap();
            let client = Records::new(Side::Client, secret(0), secret(1));
            (client, Records::new(Side::Server, secret(1), secret(0)))
        };
        let (mut client, _) = ends();
        let record = sealed(&mut client, b"some content");
        let end = written(|out| client.sealer.close(out));
        for bit in 0..8 * record.len() {
            let (_, mut server) = ends();
            let mut stream = record.clone();
            stream[bit / 8] ^= 1 << (bit % 8);
            stream.extend_from_slice(&end);
            let (data, result) = deliver(&mut server, &stream, &mut random);
            assert!(data.is_empty() && result.is_err(), "{suite:?}, bit {bit}");
        }
        let (_, mut server) = ends();
        let whole = [record, end].concat();
        let whole = deliver(&mut server, &whole, &mut random);
        assert_eq!(whole, (b"some content".to_vec(), Ok(())));
    }
}
