//! Sources of the bytes of writes.

use penstock_coherence::HostShape;
use penstock_link::{LinkError, Sender};
use penstock_wire::id::kind;
use penstock_wire::{Call, Id};

/// The bytes of a write.
///
/// Bytes of the program's memory are read when the command is sent. If the command is held back,
/// that is after the call has returned, and the program must not change them until the command has
/// ended.
pub trait Source {
    /// Returns the number of bytes.
    fn bytes(&self) -> u64;

    /// Returns where the bytes are in the program's memory, or `None` if the caller passes the
    /// bytes themselves.
    fn shape(&self) -> Option<HostShape>;

    /// Returns all bytes if they have no gaps.
    fn linear(&self) -> Option<&[u8]>;

    /// Returns the rows of bytes in order.
    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_>;

    /// Returns the same source for a command that is held back. Bytes that the caller passes are
    /// copied.
    fn keep(&self) -> Box<dyn Source + Send>;
}

/// Bytes that the caller passes. They are taken before the call returns.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a>(pub &'a [u8]);

/// A source without bytes.
pub(crate) const NOTHING: Given<'static> = Given(&[]);

impl Source for Given<'_> {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn shape(&self) -> Option<HostShape> {
        None
    }

    fn linear(&self) -> Option<&[u8]> {
        Some(self.0)
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        Box::new(std::iter::once(self.0))
    }

    fn keep(&self) -> Box<dyn Source + Send> {
        Box::new(Kept(self.0.into()))
    }
}

struct Kept(Box<[u8]>);

impl Source for Kept {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn shape(&self) -> Option<HostShape> {
        None
    }

    fn linear(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        Box::new(std::iter::once(&*self.0))
    }

    fn keep(&self) -> Box<dyn Source + Send> {
        Box::new(Self(self.0.clone()))
    }
}

/// Returns what sends a call with the bytes of a source.
pub(crate) fn sending<'a, C: Call>(
    call: &'a C,
    waits: &'a [Id<kind::Event>],
    source: &'a dyn Source,
) -> impl FnOnce(&Sender) -> Result<(), LinkError> + 'a {
    move |sender| match source.linear() {
        Some(bytes) => sender.send(call, waits, bytes),
        None => sender.send_pieces(call, waits, source.bytes(), &mut *source.pieces()),
    }
}
