//! Where the bytes of writes come from.

use penstock_coherence::HostShape;
use penstock_wire::id::kind;
use penstock_wire::{Call, Id};

use crate::error::Result;
use crate::session::Session;

/// The bytes of a write.
///
/// Bytes of the program's memory are read when the command is sent. If the command is held back, that is later than
/// the call, and the program keeps them as they are until the command has ended.
pub trait Source {
    /// Their number.
    fn bytes(&self) -> u64;

    /// Where they are in the program's memory; `None` for bytes that are the caller's own.
    fn shape(&self) -> Option<HostShape>;

    /// All of them, if they have no gaps.
    fn linear(&self) -> Option<&[u8]>;

    /// Their rows in order.
    fn pieces(&self) -> Box<dyn Iterator<Item = &[u8]> + '_>;

    /// The same for a command that is held back. Bytes that are the caller's own are copied.
    fn keep(&self) -> Box<dyn Source + Send>;
}

/// Bytes that are the caller's own: they are taken before the call returns.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a>(pub &'a [u8]);

/// No bytes.
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

/// Sends a call with the bytes of a source.
pub(crate) fn send<C: Call>(
    session: &Session,
    call: &C,
    waits: &[Id<kind::Event>],
    source: &dyn Source,
) -> Result<()> {
    match source.linear() {
        Some(bytes) => session.send(call, waits, bytes),
        None => session.send_pieces(call, waits, source.bytes(), &mut *source.pieces()),
    }
}
