//! The tests that every transport must pass. `transports!` runs them over each transport in its
//! list, and a module that can share memory runs them once more over that memory.

pub(crate) mod closing;
pub(crate) mod connection;
pub(crate) mod flow;
pub(crate) mod frames;
pub(crate) mod greeting;
pub(crate) mod silence;
#[path = "../../tests/common/mod.rs"]
pub(crate) mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use penstock_trial::Need;
use penstock_wire::Frame;
use penstock_wire::calls::to_worker;
use penstock_wire::{Id, U64};

use crate::address::Address;
use crate::establish::{establish, establish_within};
use crate::key::Key;
use crate::listener::Listener;
use crate::receiver::{Received, Receiver};
use crate::stream::Stream;
use crate::transport::contract::Side;
use crate::wait::Patience;
use support::{End, anything, soon};

/// Where the tests listen and connect.
pub(crate) struct TestAddresses {
    pub(crate) listen: String,
    /// Address to connect to, if it is not the listener's.
    pub(crate) connect: Option<String>,
    /// What this host lacks, and why, if the tests cannot run on it.
    pub(crate) lacks: Option<(Need, String)>,
}

impl TestAddresses {
    /// Returns addresses of a transport that listens.
    pub(crate) fn at(listen: String) -> Self {
        Self { listen, connect: None, lacks: None }
    }

    /// Returns no addresses: this host lacks something that the transport needs.
    pub(crate) fn lacking(need: Need, why: String) -> Self {
        Self { listen: String::new(), connect: None, lacks: Some((need, why)) }
    }
}

/// One way to make links for the tests.
pub(crate) struct Way {
    /// Returns the addresses for a test that has a folder of its own.
    pub(crate) addresses: fn(&Path) -> TestAddresses,
    /// Features of the links.
    pub(crate) features: u64,
    /// Adds what is beside the connection at the client's and at the worker's end.
    pub(crate) beside: fn(Stream, Stream) -> (Stream, Stream),
    /// Whether `beside` encrypts the connection, so that not even a hello is without it.
    pub(crate) is_encrypted: bool,
}

/// Leaves both ends of a connection as they are.
pub(crate) fn nothing(client: Stream, worker: Stream) -> (Stream, Stream) {
    (client, worker)
}

/// Returns the way over the connection alone, without shared memory.
pub(crate) const fn plain(addresses: fn(&Path) -> TestAddresses) -> Way {
    Way { addresses, features: 0, beside: nothing, is_encrypted: false }
}

/// Makes the tests of a transport: those of its connections, and those of links over them.
macro_rules! over {
    ($addresses:path) => {
        $crate::transport::tests::cases! { $crate::transport::tests::plain($addresses);
            connection: [
                a_listener_tells_an_address_that_can_be_written_and_read,
                a_served_address_is_refused,
                an_address_without_a_listener_fails_in_time,
                bytes_arrive_in_both_directions,
                a_connection_continues_in_another_process,
                a_note_for_another_transport_is_refused,
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
                a_client_in_line_hears_where_it_stands,
            ]
            frames: [
                a_frame_that_came_in_part_is_not_lost_when_patience_ends,
                garbage_in_place_of_shared_memory_is_refused,
                cut_frames_are_a_hang_up_and_nothing_more,
            ]
        }
        mod links {
            $crate::transport::tests::links_over!($crate::transport::tests::plain($addresses));
        }
    };
}
pub(crate) use over;

/// Makes the tests of links over one [`Way`].
macro_rules! links_over {
    ($way:expr) => {
        $crate::transport::tests::cases! { $way;
            frames: [
                body_waits_and_payload_arrive,
                random_frames_in_both_directions_at_once,
                payloads_up_to_64_mib_arrive,
                frames_of_several_threads_do_not_mix,
                small_frames_arrive_without_a_flush,
            ]
            flow: [
                patience_ends,
                try_send_sends_all_or_nothing_and_never_blocks,
                a_sender_without_room_waits_for_the_reader_and_says_so,
                sleepers_are_always_woken,
            ]
            silence: [
                a_peer_that_beats_is_kept_until_it_stops,
                a_reader_that_was_away_gives_nobody_up,
                a_peer_that_finds_no_room_is_kept,
                a_peer_that_stops_is_given_up_by_readers_and_writers,
            ]
            closing: [
                a_hang_up_wakes_both_ends,
                a_hang_up_inside_a_payload_wakes_the_reader,
                what_was_sent_before_a_hang_up_is_received,
                an_error_of_the_handler_ends_the_receiver,
                a_forked_child_is_told_and_leaves_its_parent_alone,
            ]
        }
    };
}
pub(crate) use links_over;

/// Makes a test of each case over one [`Way`].
macro_rules! cases {
    ($way:expr; $($file:ident: [$($case:ident,)+])+) => {
        const WAY: $crate::transport::tests::Way = $way;
        $($(
            #[test]
            fn $case() {
                if WAY.is_possible() {
                    $crate::transport::tests::$file::$case(&WAY);
                }
            }
        )+)+
    };
}
pub(crate) use cases;

/// Folder of one test. Dropping this value removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-link-suite-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

impl Way {
    /// Returns whether this host can run the tests. Skips the test if the host cannot.
    pub(crate) fn is_possible(&self) -> bool {
        let folder = Folder::new();
        let lacks = (self.addresses)(&folder.0).lacks;
        if let Some((need, why)) = &lacks {
            penstock_trial::skip(*need, why);
        }
        lacks.is_none()
    }

    /// Returns a listener, the address for its clients, and the folder of both.
    fn listen(&self) -> (Listener, Address, Folder) {
        let folder = Folder::new();
        let TestAddresses { listen, connect, .. } = (self.addresses)(&folder.0);
        let listener = Listener::bind(&listen.parse().unwrap()).unwrap();
        let address = connect.map_or_else(|| listener.address(), |text| text.parse().unwrap());
        (listener, address, folder)
    }

    /// Returns the connecting and the accepting end of a connection.
    pub(crate) fn streams(&self) -> (Stream, Stream) {
        let (listener, address, _folder) = self.listen();
        let connecting = Stream::connect(&address, soon()).unwrap();
        let accepting = listener.accept().unwrap();
        if self.is_encrypted {
            (self.beside)(connecting, accepting)
        } else {
            (connecting, accepting)
        }
    }

    /// Returns the client's end and the worker's end of a link.
    fn links(&self) -> (End, End) {
        self.links_within(self.features, None)
    }

    /// Like [`Way::links`]. The client gives up a worker that is silent for this time.
    fn links_within(&self, features: u64, silence_max: Option<Duration>) -> (End, End) {
        let (mut connecting, mut accepting) = self.streams();
        if !self.is_encrypted {
            (connecting, accepting) = (self.beside)(connecting, accepting);
        }
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                establish_within(connecting, features, Side::Client, anything, silence_max)
            });
            let worker = establish(accepting, features, Side::Worker, anything).unwrap();
            (client.join().unwrap().unwrap(), worker)
        })
    }
}

fn key(byte: u8) -> Key {
    Key::from_bytes(&[byte; 32])
}

pub(crate) fn ping(number: u64) -> to_worker::Ping {
    to_worker::Ping { request: Id::new(number) }
}

fn bulk(number: u64) -> to_worker::InitBuffer {
    to_worker::InitBuffer { mem: Id::new(number), offset: U64::new(7) }
}

fn number_of(frame: &Frame<'_>) -> u64 {
    u64::from_le_bytes(frame.body[..8].try_into().unwrap())
}

fn receive_number(receiver: &mut Receiver) -> u64 {
    let mut number = 0;
    let served = receiver.receive(Patience::Until(soon()), &mut |frame, _| {
        number = number_of(frame);
        Ok(())
    });
    assert_eq!(served.unwrap(), Received::Frame);
    number
}
