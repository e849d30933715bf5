//! A kernel's entry in its ring, read once and checked: kernels may write anything at any time.

use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{Entry, NO_SIGNAL, kind};

/// Checked request of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingRequest {
    /// Sends bytes of the PE's own part.
    Put { to: PutTarget, source_at: u64 },
    /// Sends the first `to.length` of these bytes.
    Store { to: PutTarget, bytes: [u8; 8] },
    /// Reports when everything before it has arrived.
    Quiet,
}

/// Where bytes and their signal go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PutTarget {
    pub(super) pe: u8,
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) signal_at: u64,
    pub(super) signal: u64,
}

impl PutTarget {
    /// Returns whether the whole target lies within a part of `part_bytes` bytes. Sender and
    /// receiver both check this.
    pub(super) fn lies_within(&self, part_bytes: u64) -> bool {
        let within =
            |at: u64, length: u64| at.checked_add(length).is_some_and(|end| end <= part_bytes);
        let signals = self.signal_at != NO_SIGNAL;
        within(self.at, self.length)
            && (!signals || self.signal_at.is_multiple_of(8) && within(self.signal_at, 8))
    }
}

/// Reads an entry. Returns `None` if no verb of the header writes such an entry.
pub(super) fn read_entry(entry: &Entry, part_bytes: u64) -> Option<RingRequest> {
    let what = entry.kind.load(Relaxed);
    if what == kind::QUIET {
        return Some(RingRequest::Quiet);
    }
    let value = entry.value.load(Relaxed);
    let to = PutTarget {
        pe: u8::try_from(entry.pe.load(Relaxed)).ok()?,
        at: entry.target_at.load(Relaxed),
        length: entry.length.load(Relaxed),
        signal_at: entry.signal_at.load(Relaxed),
        signal: entry.signal.load(Relaxed),
    };
    if !to.lies_within(part_bytes) {
        return None;
    }
    match what {
        kind::PUT if value.checked_add(to.length).is_some_and(|end| end <= part_bytes) => {
            Some(RingRequest::Put { to, source_at: value })
        }
        kind::STORE_32 if to.length == 4 => {
            Some(RingRequest::Store { to, bytes: value.to_ne_bytes() })
        }
        kind::STORE_64 if to.length == 8 => {
            Some(RingRequest::Store { to, bytes: value.to_ne_bytes() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 1 << 16;

    fn entry(fields: [u64; 7]) -> Entry {
        // SAFETY: an entry consists of atomic numbers, for which zero is a valid value.
        let entry: Entry = unsafe { std::mem::zeroed() };
        let [kind, pe, target_at, value, length, signal_at, signal] = fields;
        entry.kind.store(u32::try_from(kind).unwrap(), Relaxed);
        entry.pe.store(u32::try_from(pe).unwrap(), Relaxed);
        entry.target_at.store(target_at, Relaxed);
        entry.value.store(value, Relaxed);
        entry.length.store(length, Relaxed);
        entry.signal_at.store(signal_at, Relaxed);
        entry.signal.store(signal, Relaxed);
        entry
    }

    #[test]
    fn what_verbs_write_is_understood() {
        let to = PutTarget { pe: 2, at: 64, length: 100, signal_at: 8, signal: 7 };
        let put = entry([1, 2, 64, 32, 100, 8, 7]);
        assert_eq!(read_entry(&put, PART), Some(RingRequest::Put { to, source_at: 32 }));
        let store = entry([2, 2, 64, 5, 4, NO_SIGNAL, 0]);
        let Some(RingRequest::Store { bytes, .. }) = read_entry(&store, PART) else {
            panic!("a store")
        };
        assert_eq!(bytes[..4], 5_u32.to_ne_bytes());
        assert_eq!(read_entry(&entry([4, 0, 0, 0, 0, 0, 0]), PART), Some(RingRequest::Quiet));
    }

    #[test]
    fn what_would_leave_the_part_is_refused() {
        for fields in [
            [1, 2, PART, 0, 1, NO_SIGNAL, 0],
            [1, 2, u64::MAX, 0, 2, NO_SIGNAL, 0],
            [1, 2, 0, PART, 1, NO_SIGNAL, 0],
            [1, 2, 0, u64::MAX, 2, NO_SIGNAL, 0],
            [1, 2, 0, 0, u64::MAX, NO_SIGNAL, 0],
            [1, 2, 0, 0, 8, PART - 4, 0],
            [1, 2, 0, 0, 8, 4, 0],
            [1, 256, 0, 0, 8, NO_SIGNAL, 0],
            [2, 2, 0, 0, 8, NO_SIGNAL, 0],
            [3, 2, 0, 0, 4, NO_SIGNAL, 0],
            [9, 2, 0, 0, 4, NO_SIGNAL, 0],
        ] {
            assert_eq!(read_entry(&entry(fields), PART), None, "{fields:?}");
        }
    }
}
