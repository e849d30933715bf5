//! The suites of transports over encrypted TCP, and what only records can get wrong. For the latter
//! the records go through memory, where a test has each byte of them.

use std::io::IoSlice;
use std::thread;
use std::time::Duration;

use penstock_tls::{RecordError, Records, Side, Suite, TrafficSecret};

use crate::error::LinkError;
use crate::establish::establish;
use crate::receiver::{Received, Receiver};
use crate::sender::Sender;
use crate::stream::Stream;
use crate::transport::contract;
use crate::transport::mem::{self, Course, Pipe};
use crate::transport::syscall::Readiness;
use crate::transport::tests::support::{Random, anything, in_time, pattern, soon};
use crate::transport::tests::{Way, ping};
use crate::wait::Patience;

/// Encrypts both ends of a connection.
fn encrypted(client: Stream, worker: Stream) -> (Stream, Stream) {
    let secret = |byte| TrafficSecret::new(Suite::Aes128Gcm, &[byte; 32]).unwrap();
    let connecting = Records::new(Side::Client, secret(1), secret(2));
    let accepting = Records::new(Side::Server, secret(2), secret(1));
    (client.encrypted(connecting), worker.encrypted(accepting))
}

const fn over_tcp() -> Way {
    Way {
        addresses: crate::transport::tcp::tests::addresses,
        features: 0,
        beside: encrypted,
        is_encrypted: true,
    }
}

mod suites {
    crate::transport::tests::cases! { super::over_tcp();
        connection: [
            bytes_arrive_in_both_directions,
            a_connection_continues_in_another_process,
            a_peer_that_hangs_up_is_noticed,
            a_silent_peer_gets_no_more_than_its_time,
            a_peer_that_does_not_read_gets_no_more_than_its_time,
            a_child_keeps_no_connection_alive_that_was_shut_down,
        ]
        greeting: [
            friends_come_in,
            features_are_those_of_the_connection,
            the_last_verdict_is_told,
            a_wrong_key_is_refused_if_one_is_needed,
            a_missing_key_is_refused_if_one_is_needed,
            garbage_is_told_that_it_was_not_understood,
            another_version_is_told,
            a_slow_peer_gets_no_more_time_than_a_silent_one,
            a_daemon_proves_its_instance_or_has_none,
        ]
        frames: [a_frame_that_came_in_part_is_not_lost_when_patience_ends,]
    }
    mod over_memory {
        use crate::transport::mem::tests::addresses;

        crate::transport::tests::cases! {
            crate::transport::tests::Way { addresses, ..super::super::over_tcp() };
            frames: [
                frames_cut_anywhere_are_a_hang_up_and_nothing_more,
                garbage_is_refused_by_the_table,
            ]
        }
    }
    mod links {
        crate::transport::tests::links_over!(super::super::over_tcp());
    }
}

/// Returns both ends of a connection in memory, which is cut behind this many bytes of the first.
fn in_memory(passes: Option<usize>) -> (Stream, Stream) {
    let pipe = |cut_behind| Pipe::of(Course { cut_behind, ..Course::default() }).unwrap();
    let (one, other) = mem::pair(pipe(passes), pipe(None)).unwrap();
    (Stream::new(one), Stream::new(other))
}

/// Returns both ends of an encrypted connection whose bytes pass through this test: a client, a
/// worker, and the two ends in the middle, the client's first.
fn with_a_middle() -> (Stream, Stream, Stream, Stream) {
    let ((client, clients), (workers, worker)) = (in_memory(None), in_memory(None));
    let (client, worker) = encrypted(client, worker);
    (client, worker, clients, workers)
}

/// Reads what has come from one end, as far as it is at most `bytes`.
fn read(middle: &Stream, bytes: usize) -> Vec<u8> {
    let mut stream = vec![0; bytes];
    receive(middle, &mut stream).unwrap();
    stream
}

fn write(middle: &Stream, bytes: &[u8]) {
    middle.write_all_until(bytes, soon()).unwrap();
}

fn receive(stream: &Stream, into: &mut [u8]) -> Result<(), LinkError> {
    stream.read_exact_until(into, soon())
}

#[test]
fn nothing_is_readable_on_the_way() {
    let (client, worker, clients, workers) = with_a_middle();
    let content = b"a secret of the program, which is long enough to be found";
    client.write_all_until(content, soon()).unwrap();
    let record = read(&clients, content.len() + 22);
    assert!(!record.windows(8).any(|bytes| content.windows(8).any(|part| part == bytes)));
    write(&workers, &record);
    let mut heard = vec![0; content.len()];
    receive(&worker, &mut heard).unwrap();
    assert_eq!(heard, content);
}

#[test]
fn an_end_without_a_farewell_is_an_error_of_its_own() {
    for large in [false, true] {
        let (client, worker, clients, workers) = with_a_middle();
        client.write_all_until(b"all of it?", soon()).unwrap();
        let record = read(&clients, 32);
        write(&workers, &record);
        drop((clients, workers));
        let mut heard = vec![0; if large { 100_000 } else { 10 }];
        let end = receive(&worker, &mut heard);
        let end = if large { end } else { end.and_then(|()| receive(&worker, &mut [0])) };
        let Err(LinkError::Record(error)) = end else { panic!("{end:?}") };
        assert_eq!(error, RecordError::Truncated);
        assert_eq!(&heard[..10], b"all of it?");
    }
}

#[test]
fn a_thread_that_only_sends_learns_what_was_wrong_with_the_records() {
    let (client, worker, clients, workers) = with_a_middle();
    client.write_all_until(b"changed on the way", soon()).unwrap();
    let mut record = read(&clients, 40);
    record[20] ^= 1;
    write(&workers, &record);
    assert!(matches!(receive(&worker, &mut [0]), Err(LinkError::Record(_))));
    let reason = worker.why_hung_up();
    assert!(matches!(reason, LinkError::Record(RecordError::Forged)), "{reason:?}");
}

#[test]
fn a_farewell_is_an_end_and_no_error() {
    for how in ["shutdown", "drop"] {
        let (client, worker, clients, workers) = with_a_middle();
        client.write_all_until(b"done", soon()).unwrap();
        if how == "shutdown" {
            client.shutdown();
        }
        drop(client);
        // The content in one record, and the farewell in another one.
        write(&workers, &read(&clients, 26 + 24));
        receive(&worker, &mut [0; 4]).unwrap();
        // The connection below is still open.
        let end = receive(&worker, &mut [0]);
        assert!(matches!(end, Err(LinkError::Closed)), "{how}: {end:?}");
    }
}

/// What somebody in the middle does with the records of one frame each.
type Tamper = fn(&mut Vec<Vec<u8>>);

/// Sends frames through a middle that changes some of them. Returns how many frames arrived, and
/// the error at the end.
fn deliver(frames: u64, tamper: Tamper) -> (u64, LinkError) {
    let (client, worker, clients, workers) = with_a_middle();
    let (sender, _back) = establish(client, 0, contract::Side::Client, anything).unwrap();
    let (_reply, mut receiver) = establish(worker, 0, contract::Side::Worker, anything).unwrap();
    let mut records = Vec::new();
    for number in 0..frames {
        sender.send(&ping(number), &[], &[]).unwrap();
        sender.flush().unwrap();
        let head = read(&clients, 5);
        let bytes = usize::from(u16::from_be_bytes([head[3], head[4]]));
        records.push([head, read(&clients, bytes)].concat());
    }
    tamper(&mut records);
    write(&workers, &records.concat());
    workers.shutdown();
    let mut came = 0_u64;
    let error = loop {
        let served = receiver.receive(Patience::Until(soon()), &mut |frame, _| {
            assert_eq!(frame.body[..8], came.to_le_bytes(), "another frame was delivered");
            came += 1;
            Ok(())
        });
        match served {
            Ok(Received::Frame) => {}
            Ok(Received::TimedOut) => panic!("the worker hangs"),
            Err(error) => break error,
        }
    };
    // The link has ended for good.
    assert!(
        receiver.receive(Patience::Never, &mut |_, _| panic!("a frame after the end")).is_err()
    );
    (came, error)
}

#[test]
fn a_changed_byte_ends_the_link_and_delivers_nothing_of_its_record() {
    let cases: [(Tamper, u64); 5] = [
        (|records| records[2][5] ^= 1, 2),
        (|records| records[2].last_mut().into_iter().for_each(|byte| *byte ^= 0x80), 2),
        (|records| records[0][20] ^= 4, 0),
        (|records| records[3][4] ^= 1, 3),
        (|records| records[3][0] = 22, 3),
    ];
    for (at, (tamper, good)) in cases.into_iter().enumerate() {
        let (came, error) = deliver(5, tamper);
        assert!(matches!(error, LinkError::Record(_)), "{at}: {error}");
        // Frames in one receive with the changed one may be lost with it; none may be wrong.
        assert!(came <= good, "{at}: {came} frames");
    }
}

#[test]
fn records_that_are_moved_repeated_or_left_out_end_the_link() {
    let cases: [(Tamper, u64); 4] = [
        (|records| records.swap(1, 2), 1),
        (|records| records.insert(2, records[1].clone()), 2),
        (|records| _ = records.remove(1), 1),
        (|records| records.insert(0, vec![23, 3, 3, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 0),
    ];
    for (at, (tamper, good)) in cases.into_iter().enumerate() {
        let (came, error) = deliver(5, tamper);
        assert!(matches!(error, LinkError::Record(_)), "{at}: {error}");
        assert!(came <= good, "{at}: {came} frames");
    }
}

#[test]
fn a_cut_anywhere_ends_the_link_with_an_error() {
    // 100 bytes of content make a record of 122.
    for cut in 0..122 {
        let (client, worker) = in_memory(Some(cut));
        let (client, worker) = encrypted(client, worker);
        // The client may notice the cut.
        _ = client.write_all_until(&[7; 100], soon());
        let mut heard = [1; 100];
        let end = receive(&worker, &mut heard);
        assert!(matches!(end, Err(LinkError::Record(RecordError::Truncated))), "{cut}: {end:?}");
        assert_eq!(heard, [1; 100], "bytes of a cut record were delivered");
    }
}

#[test]
fn a_peer_that_stops_inside_a_record_gets_no_more_than_its_time() {
    for into in [100, 100_000] {
        let (client, worker, clients, workers) = with_a_middle();
        client.write_all_until(&[7; 100], soon()).unwrap();
        let record = read(&clients, 122);
        write(&workers, &record[..60]);
        let limit = std::time::Instant::now() + Duration::from_millis(50);
        let heard = in_time("a read", || worker.read_exact_until(&mut vec![0; into], limit));
        assert!(matches!(heard, Err(LinkError::HelloTimeout { .. })), "{heard:?}");
    }
}

#[test]
fn what_was_sealed_is_sent_even_if_the_caller_changes_its_mind() {
    let (client, worker, clients, workers) = with_a_middle();
    // Fill the socket, so that a record stays behind.
    let filler = vec![3; 1 << 20];
    let mut sent = 0_usize;
    while let Some(bytes) = client.send_now(&[IoSlice::new(&filler)]).unwrap() {
        sent += bytes;
    }
    let content = thread::scope(|scope| {
        let middle = scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(received) = clients.recv_now(&mut buffer) {
                match received {
                    Some(bytes) => write(&workers, &buffer[..bytes]),
                    None => _ = clients.wait(Readiness::Readable, Some(soon())).unwrap(),
                }
            }
        });
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            loop {
                match worker.recv_now(&mut buffer) {
                    Ok(Some(bytes)) => all.extend_from_slice(&buffer[..bytes]),
                    Ok(None) => _ = worker.wait(Readiness::Readable, Some(soon())).unwrap(),
                    Err(LinkError::Closed) => return all,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        // The same bytes are due; others come. The stream is what was sealed.
        let other = vec![4; 1 << 20];
        let mut told = 0;
        while told == 0 {
            told = client.send_now(&[IoSlice::new(&other)]).unwrap().unwrap_or(0);
        }
        sent += told;
        client.shutdown();
        drop(client);
        middle.join().unwrap();
        reader.join().unwrap()
    });
    assert_eq!(content.len(), sent);
    assert!(content.iter().all(|byte| *byte == 3), "bytes were sealed twice");
}

#[test]
fn bytes_of_all_sizes_arrive_in_all_sizes() {
    let way = over_tcp();
    let (one, other) = way.streams();
    let bytes = pattern(9, 4 << 20);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(1);
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                let most = [1, 30, 17_000, 300_000][random.index(4)];
                let (now, later) = left.split_at(random.index(most).min(left.len() - 1) + 1);
                one.write_all_until(now, soon()).unwrap();
                left = later;
            }
            // A farewell while all is still on its way.
            one.shutdown();
        });
        let mut random = Random::new(2);
        let (mut heard, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
        while heard.len() < bytes.len() {
            let most = [1, 50, 16_640, 16_660, 1 << 20][random.index(5)];
            let room = (random.index(most) + 1).min(bytes.len() - heard.len());
            match other.recv_now(&mut buffer[..room]).unwrap() {
                Some(count) => heard.extend_from_slice(&buffer[..count]),
                None => assert!(other.wait(Readiness::Readable, Some(soon())).unwrap()),
            }
        }
        assert!(heard == bytes);
        let end = receive(&other, &mut [0]);
        assert!(matches!(end, Err(LinkError::Closed)), "{end:?}");
    });
}

/// A child of `fork` that seals one byte under its parent's key has used a nonce twice.
#[test]
fn a_forked_child_seals_and_opens_nothing() {
    let way = over_tcp();
    let (one, other) = way.streams();
    one.write_all_until(b"before", soon()).unwrap();
    // SAFETY: the child uses the connection, which refuses at once, allocates little, and ends with
    // _exit. No other thread of this test holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let sent = matches!(one.send_now(&[IoSlice::new(b"x")]), Err(LinkError::Forked));
        let heard = matches!(other.recv_now(&mut [0; 6]), Err(LinkError::Forked));
        let noted = matches!(one.note(), Err(LinkError::Forked));
        drop((one, other));
        // SAFETY: ends the child without running any code of the parent.
        unsafe { libc::_exit(i32::from(!(sent && heard && noted))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; the pointer refers to a local.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    one.write_all_until(b" after", soon()).unwrap();
    let mut heard = [0; 12];
    receive(&other, &mut heard).unwrap();
    assert_eq!(&heard, b"before after", "the child has sent a record");
}

#[test]
fn a_connection_that_was_handed_over_seals_and_opens_nothing_here() {
    let way = over_tcp();
    let (one, other) = way.streams();
    let note = one.note().unwrap();
    assert!(one.note().is_err());
    assert!(matches!(one.send_now(&[IoSlice::new(b"x")]), Err(LinkError::Closed)));
    assert!(matches!(one.recv_now(&mut [0; 1]), Err(LinkError::Closed)));
    let fd = rustix::io::fcntl_dupfd_cloexec(&one, 0).unwrap();
    // Its end says no farewell in the name of the other process.
    drop(one);
    let resumed = Stream::resume(fd, &note).unwrap();
    resumed.write_all_until(b"from there", soon()).unwrap();
    let mut heard = [0; 10];
    receive(&other, &mut heard).unwrap();
    assert_eq!(&heard, b"from there");
}

#[test]
fn a_hand_over_keeps_what_has_come_and_refuses_what_has_not_left() {
    let (client, worker, clients, workers) = with_a_middle();
    client.write_all_until(b"one record", soon()).unwrap();
    client.write_all_until(b"and another", soon()).unwrap();
    let records = read(&clients, 32 + 33);
    // One byte of the first record is taken, and the second one has come in part.
    write(&workers, &records[..50]);
    receive(&worker, &mut [0; 1]).unwrap();
    let note = worker.note().unwrap();
    let fd = rustix::io::fcntl_dupfd_cloexec(&worker, 0).unwrap();
    drop(worker);
    let resumed = Stream::resume(fd, &note).unwrap();
    write(&workers, &records[50..]);
    let mut heard = [0; 20];
    receive(&resumed, &mut heard).unwrap();
    assert_eq!(&heard, b"ne recordand another");
    // Records that have not left belong to no note.
    let filler = vec![3; 1 << 20];
    while client.send_now(&[IoSlice::new(&filler)]).unwrap().is_some() {}
    assert!(matches!(client.note(), Err(LinkError::Record(RecordError::MidMessage))));
}

#[test]
fn a_note_of_an_encrypted_connection_must_be_whole() {
    let way = over_tcp();
    let (one, _other) = way.streams();
    let copy = || rustix::io::fcntl_dupfd_cloexec(&one, 0).unwrap();
    let fd = copy();
    let note = one.note().unwrap();
    for cut in 0..note.len() {
        assert!(
            Stream::resume(rustix::io::fcntl_dupfd_cloexec(&fd, 0).unwrap(), &note[..cut]).is_err()
        );
    }
    let mut longer = note.clone();
    // The first byte of the number of verified bytes, behind the scheme, a size and the secrets.
    longer["tcp+tls:".len() + 4 + penstock_tls::HANDOVER_BYTES] = 1;
    assert!(Stream::resume(copy(), &longer).is_err());
}

/// Ends of links must be sendable to other threads.
#[test]
fn links_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Stream>();
    is_shared::<Sender>();
    fn is_sent<T: Send>() {}
    is_sent::<Receiver>();
}
