//! The numbers that both sides agree on: the header of a region, the layout of its parts, and the
//! messages with which a worker offers a part and a client takes it.

use penstock_wire::U64;
use penstock_wire::hello::{NONCE_BYTES, PROOF_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::Key;
use crate::transport::rings::ring::{DATA_AT, RING_BYTES, RING_BYTES_MIN};

/// Unit of mappings, and size of a region's header and of a part's page of marks.
pub(super) const PAGE_BYTES: usize = 4096;

/// First bytes of a region.
const MAGIC: [u8; 16] = *b"PENSTOCK REGION1";
/// First bytes of the messages.
const OFFER: [u8; 8] = *b"REGION 1";

/// Smallest part in bytes: the marks, two of the smallest rings, and 1 MiB for buffers.
pub(super) const PART_BYTES_MIN: usize = 4 << 20;

/// Share of a part that each ring takes. Three quarters are left for buffers.
const RING_SHARE: usize = 8;

/// Beginning of a region. The daemon writes it when it starts.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 16],
    /// Size of the region.
    bytes: U64,
    /// Random bytes that only those know who see the memory.
    secret: [u8; PROOF_BYTES],
}

impl Header {
    pub(super) fn new(bytes: usize, secret: [u8; PROOF_BYTES]) -> Self {
        Self { magic: MAGIC, bytes: U64::new(bytes as u64), secret }
    }

    /// Returns the secret as a key if this is the header of a region that fits into `bytes`.
    pub(super) fn key(&self, bytes: u64) -> Option<Key> {
        let is_ours = self.magic == MAGIC && self.bytes.get() <= bytes;
        is_ours.then(|| Key::from_bytes(&self.secret))
    }
}

/// Place of a part in its region, in bytes. Both numbers are multiples of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Layout of a part, in bytes from its start:
///
/// ```text
/// | marks | ring to the worker | ring to the client | arena |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Size of the data of a ring.
    pub(super) ring_bytes: usize,
    pub(super) to_worker_at: usize,
    pub(super) to_client_at: usize,
    pub(super) arena_at: usize,
    pub(super) arena_bytes: usize,
}

impl Layout {
    /// Returns the layout of a part, or `None` if the part is too small.
    pub(super) fn of(bytes: usize) -> Option<Self> {
        if bytes < PART_BYTES_MIN || !bytes.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let share = bytes / RING_SHARE;
        let ring_bytes = (1 << share.ilog2()).clamp(RING_BYTES_MIN, RING_BYTES);
        let to_worker_at = PAGE_BYTES;
        let to_client_at = to_worker_at + DATA_AT + ring_bytes;
        let arena_at = to_client_at + DATA_AT + ring_bytes;
        let arena_bytes = bytes.checked_sub(arena_at)?;
        Some(Self { ring_bytes, to_worker_at, to_client_at, arena_at, arena_bytes })
    }
}

/// Place of the worker's mark in the page of marks.
pub(super) const WORKERS_MARK_AT: usize = 0;
/// Place of the client's mark.
pub(super) const CLIENTS_MARK_AT: usize = 128;

pub(super) type Mark = [u8; NONCE_BYTES];

/// The worker's offer of a part.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Offer {
    magic: [u8; 8],
    offset: U64,
    /// Size of the part; zero if no part is free.
    bytes: U64,
    salt: [u8; NONCE_BYTES],
    /// Proof that the worker sees the region.
    proof: [u8; PROOF_BYTES],
}

impl Offer {
    /// Returns the message of a worker that has no part.
    pub(super) fn none() -> Self {
        let (offset, bytes) = (U64::ZERO, U64::ZERO);
        Self { magic: OFFER, offset, bytes, salt: [0; NONCE_BYTES], proof: [0; PROOF_BYTES] }
    }

    pub(super) fn new(place: Place, salt: [u8; NONCE_BYTES], key: &Key) -> Self {
        let mut offer = Self { salt, ..Self::none() };
        (offer.offset, offer.bytes) = (U64::new(place.offset), U64::new(place.bytes));
        offer.proof = key.prove(&offer.transcript("penstock region offer", &[]));
        offer
    }

    pub(super) fn is_of_this_protocol(&self) -> bool {
        self.magic == OFFER
    }

    /// Returns the place of the part, or `None` if the worker has none.
    pub(super) fn place(&self) -> Option<Place> {
        let place = Place { offset: self.offset.get(), bytes: self.bytes.get() };
        (place.bytes > 0).then_some(place)
    }

    /// Returns whether a process that sees the region with this key made the offer.
    pub(super) fn is_proved(&self, key: &Key) -> bool {
        key.verify(&self.transcript("penstock region offer", &[]), &self.proof)
    }

    /// Returns the bytes over which the client proves that it sees the worker's mark.
    pub(super) fn seen(&self, mark: &Mark) -> Vec<u8> {
        self.transcript("penstock region taken", mark)
    }

    fn transcript(&self, label: &'static str, more: &[u8]) -> Vec<u8> {
        let blank = Self { proof: [0; PROOF_BYTES], ..*self };
        [label.as_bytes(), &[0], blank.as_bytes(), more].concat()
    }
}

/// The client's answer to an offer.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Taking {
    /// Number of a [`MemoryUse`].
    pub(super) outcome: U64,
    /// The client's mark, which is also in the part.
    pub(super) mark: Mark,
    /// Proof that the client sees the worker's mark.
    pub(super) proof: [u8; PROOF_BYTES],
}

/// The worker's last word.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Agreed {
    /// Number of a [`MemoryUse`].
    pub(super) outcome: U64,
}

macro_rules! outcomes {
    ($($(#[doc = $about:literal])+ $name:ident = $number:literal, $why:expr;)+) => {
        /// Whether a link uses the memory that a guest shares with its host, and otherwise why not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u64)]
        pub enum MemoryUse {
            $($(#[doc = $about])+ $name = $number,)+
        }

        impl MemoryUse {
            /// Returns the outcome with this number.
            pub const fn from_wire(raw: u64) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Returns why the link does not use the memory, or `None` if it does.
            pub const fn why_not(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => $why,)+
                }
            }

            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

outcomes! {
    /// The link uses it.
    Shared = 0, None;
    /// The guest has no such device.
    Absent = 1, Some("the guest has no ivshmem device");
    /// The program may not open the device.
    Denied = 2, Some("the program in the guest may not open the ivshmem device");
    /// The client sees no memory of this daemon, or only a copy of it.
    Foreign = 3, Some("the guest's ivshmem device shows other memory than the daemon's");
    /// Another process of the guest still has the part.
    Held = 4, Some("a process in the guest still holds the part of the memory that was free");
    /// The processor of the guest does not cache the memory.
    Uncached = 5, Some("the guest reaches the shared memory too slowly, without a cache");
    /// Memory of a device is not ordinary memory on this kind of processor.
    Processor = 6, Some("guests with this kind of processor cannot use memory of a PCI device");
    /// The user does not want it.
    Off = 7, Some("PENSTOCK_GUEST_MEMORY is `none` in the guest");
    /// One side lacks descriptors or addresses.
    Lacking = 8, Some("a side of the session lacks descriptors or addresses");
    /// All parts are taken.
    Full = 9, Some("other sessions have all parts of the guest's shared memory");
    /// The two sides have not agreed yet.
    Unsettled = 10, Some("the session has just begun");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_survive_a_round_trip() {
        for outcome in MemoryUse::ALL {
            assert_eq!(MemoryUse::from_wire(*outcome as u64), Some(*outcome));
            assert_eq!(outcome.why_not().is_none(), *outcome == MemoryUse::Shared);
        }
        assert_eq!(MemoryUse::from_wire(MemoryUse::ALL.len() as u64), None);
    }

    #[test]
    fn the_pieces_of_a_part_do_not_overlap() {
        for pages in [1024, 1025, 4096, 16_383, 1 << 18] {
            let bytes = pages * PAGE_BYTES;
            let layout = Layout::of(bytes).unwrap();
            let ring = DATA_AT + layout.ring_bytes;
            assert!(layout.ring_bytes.is_power_of_two());
            assert_eq!(layout.to_client_at, layout.to_worker_at + ring);
            assert_eq!(layout.arena_at, layout.to_client_at + ring);
            assert_eq!(layout.arena_at + layout.arena_bytes, bytes);
            assert!(layout.arena_bytes >= bytes / 3, "{layout:?}");
        }
        assert_eq!(Layout::of(PART_BYTES_MIN - PAGE_BYTES), None);
        assert_eq!(Layout::of(PART_BYTES_MIN + 1), None);
    }

    #[test]
    fn an_offer_is_proved_by_the_region_alone() {
        let (ours, other) = (Key::from_bytes(&[1; 32]), Key::from_bytes(&[2; 32]));
        let place = Place { offset: 4096, bytes: 4 << 20 };
        let offer = Offer::new(place, [3; 32], &ours);
        assert!(offer.is_proved(&ours) && !offer.is_proved(&other));
        assert_eq!(offer.place(), Some(place));
        let moved = Offer { offset: U64::new(8192), ..offer };
        assert!(!moved.is_proved(&ours));
        assert_ne!(offer.seen(&[1; 32]), offer.seen(&[2; 32]));
        assert_eq!(Offer::none().place(), None);
    }

    #[test]
    fn a_header_of_a_larger_region_is_refused() {
        let header = Header::new(1 << 20, [7; 32]);
        assert!(header.key(1 << 20).is_some());
        assert!(header.key((1 << 20) - 1).is_none());
        assert!(Header::new_zeroed_for_test().key(1 << 20).is_none());
    }

    impl Header {
        fn new_zeroed_for_test() -> Self {
            Self { magic: [0; 16], ..Self::new(0, [0; 32]) }
        }
    }
}
