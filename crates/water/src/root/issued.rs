//! A command of the program, as the root keeps it until it is planned.

use super::request::Request;
use crate::command::{CommandId, Rank};

#[derive(Debug)]
pub struct IssuedCommand {
    pub id: CommandId,
    /// The rank of its device.
    pub rank: Rank,
    /// Index of its device on that rank.
    pub device: u32,
    pub waits: Vec<CommandId>,
    pub request: Request,
}
