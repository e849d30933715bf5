//! The kinds of commands, and the reasons of waits, with their names in JSON and in text.

use penstock_wire::Call;
use penstock_wire::calls::to_worker;

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident / $count:ident {
        $($(#[$about:meta])* $kind:ident = $key:literal, $one:literal, $many:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$about])* $kind),* }

        /// The number of kinds.
        pub(super) const $count: usize = $name::ALL.len();

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$kind),*];

            pub(super) fn key(self) -> &'static str {
                match self { $(Self::$kind => $key),* }
            }

            /// Returns the words for one and for several of this kind.
            pub(super) fn words(self, count: u64) -> &'static str {
                match self { $(Self::$kind => if count == 1 { $one } else { $many }),* }
            }
        }
    };
}

kinds! {
    /// Kind of a command of the program.
    Command / COMMANDS {
        Launch = "launches", "launch", "launches";
        Write = "writes", "write", "writes";
        Read = "reads", "read", "reads";
        Copy = "copies", "copy", "copies";
        Fill = "fills", "fill", "fills";
        Map = "maps", "map", "maps";
        Library = "library_calls", "call of a library", "calls of libraries";
        Build = "builds", "build", "builds";
        /// The move of content from one node to another.
        Transfer = "transfers", "transfer to another node", "transfers to other nodes";
    }
}

kinds! {
    /// Why a thread of the program waits for the pool.
    Reason / REASONS {
        Read = "read", "blocking read or map", "blocking reads and maps";
        Write = "write", "blocking write", "blocking writes";
        /// All commands of a queue.
        Finish = "finish", "wait for a whole queue", "waits for a whole queue";
        Event = "event", "wait for an event", "waits for events";
        Build = "build", "build", "builds";
        /// Another answer of a worker.
        Reply = "reply", "other question to a node", "other questions to nodes";
        /// Room on a link: the node has not yet taken what was sent before.
        Room = "room", "call that found a full link", "calls that found a full link";
        Open = "open", "opening of the pool", "openings of the pool";
    }
}

impl Command {
    /// Returns whether the bytes of these commands are known.
    pub(super) fn has_bytes(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Transfer)
    }

    /// Returns the kind of the command that the call with this opcode carries.
    pub(super) const fn of_call(opcode: u16) -> Option<Self> {
        use to_worker::*;
        Some(match opcode {
            LaunchKernel::OPCODE => Self::Launch,
            WriteBuffer::OPCODE | WriteBufferRect::OPCODE | WriteImage::OPCODE => Self::Write,
            InitBuffer::OPCODE | InitImage::OPCODE => Self::Write,
            ReadBuffer::OPCODE | ReadBufferRect::OPCODE | ReadImage::OPCODE => Self::Read,
            CopyBuffer::OPCODE | CopyBufferRect::OPCODE | CopyImage::OPCODE => Self::Copy,
            CopyImageToBuffer::OPCODE | CopyBufferToImage::OPCODE | CopySvm::OPCODE => Self::Copy,
            FillBuffer::OPCODE | FillImage::OPCODE => Self::Fill,
            CallLibrary::OPCODE => Self::Library,
            BuildProgram::OPCODE | CompileProgram::OPCODE | LinkProgram::OPCODE => Self::Build,
            _ => return None,
        })
    }
}

impl Reason {
    /// Returns the reason of a wait for the answer to a request.
    pub(crate) fn of_request(name: &str) -> Self {
        use to_worker::*;
        match name {
            Finish::NAME => Self::Finish,
            BuildProgram::NAME | CompileProgram::NAME | LinkProgram::NAME => Self::Build,
            _ => Self::Reply,
        }
    }
}
