//! Names of objects, chosen by the client so that creating one needs no answer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The name of an object of kind `K` in one client's sessions. The client counts upwards from 1 and never uses a
/// number twice, so a late message about a released object can not meet a new one. 0 means "none".
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Id<K> {
    raw: U64,
    kind: PhantomData<K>,
}

impl<K> Id<K> {
    /// No object.
    pub const NONE: Self = Self::new(0);

    /// The id with this number.
    pub const fn new(raw: u64) -> Self {
        Self { raw: U64::new(raw), kind: PhantomData }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.raw.get()
    }

    /// Whether this names no object.
    pub const fn is_none(self) -> bool {
        self.get() == 0
    }
}

/// The bit of a wait list's entry that says [`Id::however_it_ends`]. Names are counted from 1 and do not reach it.
const HOWEVER_IT_ENDS: u64 = 1 << 63;

impl Id<kind::Event> {
    /// The entry of a wait list whose command comes after the end of this event, also if that is a failure. An entry
    /// that is only the event's name fails the command with the event.
    #[must_use]
    pub const fn however_it_ends(self) -> Self {
        Self::new(self.get() | HOWEVER_IT_ENDS)
    }

    /// The event of a wait list's entry, and whether its failure fails the command.
    #[must_use]
    pub const fn of_entry(self) -> (Self, bool) {
        (Self::new(self.get() & !HOWEVER_IT_ENDS), self.get() & HOWEVER_IT_ENDS == 0)
    }
}

// Derived impls would ask the same of `K`, which is only a name.
impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}
impl<K> Eq for Id<K> {}
impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.get());
    }
}
impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.get())
    }
}

/// What an [`Id`] can name.
pub mod kind {
    macro_rules! kinds {
        ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
            $($(#[$doc])* #[derive(Debug)] pub enum $name {})*
        };
    }
    kinds! {
        /// A context: devices of one platform of one node.
        Context,
        /// A command queue of one device.
        Queue,
        /// A buffer, sub-buffer, image or pipe: whatever can be a memory argument of a kernel.
        Mem,
        /// A sampler.
        Sampler,
        /// A program.
        Program,
        /// A kernel object.
        Kernel,
        /// An event: the completion of one command.
        Event,
        /// A call that is answered.
        Request,
        /// Bytes on their way from one memory object to another one.
        Transfer,
        /// Another worker of the same client.
        Peer,
        /// A symmetric heap: memory on several devices that their kernels reach by themselves.
        Heap,
    }
}
