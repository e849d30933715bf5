//! What the program asks for, as the root keeps it until it is planned.

use crate::command::{Command, CommandId, DeviceId, Rank};

/// A command that the program asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The device that runs the command. A copy runs at the target.
    pub device: DeviceId,
    pub command: Command,
    /// The device that has the source of a copy. Otherwise it is the same as `device`.
    pub source: DeviceId,
    /// Commands that must have ended in any way, so that their failure does not matter. For a
    /// launch over a heap this is the previous launch: two launches in different orders on two
    /// devices would wait for each other.
    pub after: Vec<CommandId>,
}

impl Request {
    pub const fn new(device: DeviceId, command: Command) -> Self {
        Self { device, command, source: device, after: Vec::new() }
    }

    /// Returns the same request for a copy from a buffer of `source`.
    #[must_use]
    pub const fn from(mut self, source: DeviceId) -> Self {
        self.source = source;
        self
    }

    /// Returns the same request after these commands, whose failure does not matter.
    #[must_use]
    pub fn after(mut self, commands: &[CommandId]) -> Self {
        self.after = commands.to_vec();
        self
    }
}

/// A request with the id that the root gave it.
#[derive(Debug)]
pub struct IssuedCommand {
    pub id: CommandId,
    /// The rank of its device.
    pub rank: Rank,
    /// Index of its device on that rank.
    pub device: u32,
    /// The device that has the source of a copy.
    pub source: DeviceId,
    pub waits: Vec<CommandId>,
    /// Commands whose failure does not matter, see [`Request::after`].
    pub after: Vec<CommandId>,
    pub command: Command,
}
