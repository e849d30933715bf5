//! Names of the objects in the machine. The caller chooses the numbers.

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident($of:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $of);
    )*};
}

names! {
    /// A command, a transfer between places, or a client event. The number is that of its event.
    CommandId(u64);
    QueueId(u64);
    /// A context: the queues and allocations that share memory.
    ContextId(u64);
    /// A memory object that is not a part or view of another one.
    AllocationId(u64);
    /// A node. All places on it are lost together.
    NodeId(u32);
}

/// Index of a place in its context. One driver keeps the memory of a place coherent.
pub type Place = usize;
