//! Ids of objects. The client chooses them, so that creating an object needs no answer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Id of an object of kind `K` in one client's sessions. The client counts upwards from 1 and never
/// reuses a number, so a late message about a released object cannot meet a new one. 0 means
/// "none".
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Id<K> {
    raw: U64,
    kind: PhantomData<K>,
}

impl<K> Id<K> {
    /// The id that names no object.
    pub const NONE: Self = Self::new(0);

    /// Makes the id with this number.
    pub const fn new(raw: u64) -> Self {
        Self { raw: U64::new(raw), kind: PhantomData }
    }

    pub const fn get(self) -> u64 {
        self.raw.get()
    }

    /// Returns whether this id names no object.
    pub const fn is_none(self) -> bool {
        self.get() == 0
    }
}

/// The bit of a wait-list entry that [`Id::however_it_ends`] sets. Ids count from 1 and do not
/// reach it.
const HOWEVER_IT_ENDS: u64 = 1 << 63;

impl Id<kind::Event> {
    /// Returns a wait-list entry whose command runs after this event ends, even if the event fails.
    /// With the plain id as the entry, a failure of the event fails the command.
    #[must_use]
    pub const fn however_it_ends(self) -> Self {
        Self::new(self.get() | HOWEVER_IT_ENDS)
    }

    /// Returns the event of a wait-list entry, and whether the event's failure fails the command.
    #[must_use]
    pub const fn of_entry(self) -> (Self, bool) {
        (Self::new(self.get() & !HOWEVER_IT_ENDS), self.get() & HOWEVER_IT_ENDS == 0)
    }
}

// Derived impls would demand the same of `K`, which is only a label.
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

/// The kinds of object that an [`Id`] can name.
pub mod kind {
    macro_rules! kinds {
        ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
            $($(#[$doc])* #[derive(Debug)] pub enum $name {})*
        };
    }
    kinds! {
        /// Devices of one platform of one node.
        Context,
        /// A command queue of one device.
        Queue,
        /// A buffer, sub-buffer, image or pipe: anything that can be a memory argument of a kernel.
        Mem,
        Sampler,
        Program,
        Kernel,
        /// The completion of one command.
        Event,
        /// A call that is answered.
        Request,
        /// Bytes on their way from one memory object to another.
        Transfer,
        /// Another worker of the same client.
        Peer,
        /// A symmetric heap: memory on several devices that kernels on all of them reach.
        Heap,
    }
}
