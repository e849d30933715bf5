//! Kernel arguments beside a launch. Only those travel that changed since the kernel object's last
//! launch on the same node.
//!
//! ```text
//! | index u16 | kind u8 | 0 u8 | size u32 | value: size bytes |   repeated
//! ```
//!
//! The value of kind `Bytes` may have any size; those of all other kinds have 8 bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::FrameError;
use crate::id::{Id, kind};
use crate::limits::ARG_INDEX_MAX;

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg<'a> {
    /// The bytes of a value, as the device sees it.
    Bytes(&'a [u8]),
    /// A memory object, or none (`NULL`).
    Mem(Id<kind::Mem>),
    Sampler(Id<kind::Sampler>),
    /// Size of local memory, in bytes.
    Local(u64),
    /// An address in shared virtual memory.
    Svm(u64),
    /// A queue on the device.
    Queue(Id<kind::Queue>),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Head {
    index: U16,
    kind: u8,
    reserved: u8,
    size: U32,
}

const BYTES: u8 = 0;
const MEM: u8 = 1;
const SAMPLER: u8 = 2;
const LOCAL: u8 = 3;
const SVM: u8 = 4;
const QUEUE: u8 = 5;

/// Appends argument `index` to `into`.
///
/// # Errors
/// If the index or the size of a value exceeds what the encoding holds.
pub fn write(into: &mut Vec<u8>, index: u32, arg: Arg<'_>) -> Result<(), FrameError> {
    if index > ARG_INDEX_MAX {
        return Err(FrameError::BadPayload("a kernel argument's index"));
    }
    let word;
    let (kind, value): (u8, &[u8]) = match arg {
        Arg::Bytes(bytes) => (BYTES, bytes),
        Arg::Mem(id) => (MEM, {
            word = U64::new(id.get());
            word.as_bytes()
        }),
        Arg::Sampler(id) => (SAMPLER, {
            word = U64::new(id.get());
            word.as_bytes()
        }),
        Arg::Local(size) => (LOCAL, {
            word = U64::new(size);
            word.as_bytes()
        }),
        Arg::Svm(address) => (SVM, {
            word = U64::new(address);
            word.as_bytes()
        }),
        Arg::Queue(id) => (QUEUE, {
            word = U64::new(id.get());
            word.as_bytes()
        }),
    };
    let size = u32::try_from(value.len())
        .map_err(|_| FrameError::BadPayload("a kernel argument's size"))?;
    #[expect(clippy::cast_possible_truncation, reason = "at most ARG_INDEX_MAX, checked above")]
    let head = Head { index: U16::new(index as u16), kind, reserved: 0, size: U32::new(size) };
    into.extend_from_slice(head.as_bytes());
    into.extend_from_slice(value);
    Ok(())
}

/// Reads the arguments of a launch from bytes that may come from a hostile peer. Ends after the
/// first error.
pub fn read(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Arg<'_>), FrameError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let item = read_one(&mut bytes);
        if item.is_err() {
            bytes = &[];
        }
        Some(item)
    })
}

fn read_one<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Arg<'a>), FrameError> {
    const BAD: FrameError = FrameError::BadPayload("kernel arguments");
    let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| BAD)?;
    let size = usize::try_from(head.size.get()).map_err(|_| BAD)?;
    let (value, rest) = rest.split_at_checked(size).ok_or(BAD)?;
    *bytes = rest;
    let index = u32::from(head.index.get());
    if index > ARG_INDEX_MAX || head.reserved != 0 {
        return Err(BAD);
    }
    let word = || U64::read_from_bytes(value).map(U64::get).map_err(|_| BAD);
    let arg = match head.kind {
        BYTES => Arg::Bytes(value),
        MEM => Arg::Mem(Id::new(word()?)),
        SAMPLER => Arg::Sampler(Id::new(word()?)),
        LOCAL => Arg::Local(word()?),
        SVM => Arg::Svm(word()?),
        QUEUE => Arg::Queue(Id::new(word()?)),
        _ => return Err(BAD),
    };
    Ok((index, arg))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arguments_survive_the_wire() {
        let args = [
            (0, Arg::Bytes(&[1, 2, 3])),
            (1, Arg::Mem(Id::new(7))),
            (2, Arg::Mem(Id::NONE)),
            (3, Arg::Sampler(Id::new(9))),
            (4, Arg::Local(1 << 20)),
            (ARG_INDEX_MAX, Arg::Svm(u64::MAX)),
            (5, Arg::Queue(Id::new(3))),
            (6, Arg::Bytes(&[])),
        ];
        let mut bytes = Vec::new();
        for (index, arg) in args {
            write(&mut bytes, index, arg).unwrap();
        }
        assert_eq!(read(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), args);
    }

    #[test]
    fn every_truncation_is_refused() {
        let mut bytes = Vec::new();
        write(&mut bytes, 1, Arg::Mem(Id::new(7))).unwrap();
        for end in 1..bytes.len() {
            assert!(read(&bytes[..end]).any(|arg| arg.is_err()), "{end} bytes");
        }
        assert!(write(&mut bytes, ARG_INDEX_MAX + 1, Arg::Local(0)).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            prop_assert!(read(&bytes).count() <= bytes.len());
        }
    }
}
