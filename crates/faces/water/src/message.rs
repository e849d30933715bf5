//! The messages between the ranks, and their encoding.

use serde::{Deserialize, Serialize};

use crate::command::{
    CommandEnd, CommandId, DeviceInfo, Fault, Job, ObjectId, Outcome, Rank, Stream,
};
use crate::heap::HeapMessage;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To the root, as the first message of a rank: introduces the rank.
    Hello {
        /// Version of these messages; must be [`VERSION`].
        version: u32,
        hostname: String,
        devices: Vec<DeviceInfo>,
    },
    /// From the root to a rank: commands, in the order in which they were issued.
    Jobs(Vec<Job>),
    /// From the root: tell `rank` once when this command has ended.
    Tell { command: CommandId, rank: Rank },
    /// From the rank that ran it: this command has ended.
    Ended { command: CommandId, outcome: Outcome },
    /// To the root: commands that have ended since the last report.
    Report(Vec<CommandEnd>),
    /// To the sender of a large stream: its receiver is ready.
    Ready { stream: Stream },
    /// To the receiver of a large stream that has not said [`Message::Ready`]: there are bytes.
    Offer { stream: Stream },
    /// To the receiver of a stream: the sender cannot send the bytes, and sends pieces of 0 bytes
    /// instead.
    Broken { stream: Stream, fault: Box<Fault> },
    /// From the root: asks for the rank's clock. The rank answers with `Clock`.
    AskClock {
        /// The root's clock when it asked, in ns.
        asked: u64,
    },
    /// The answer to `AskClock`.
    Clock {
        /// The value of `AskClock`.
        asked: u64,
        /// The rank's own clock, in ns.
        now: u64,
    },
    /// From the root: by how many ns the rank's clock is ahead of the root's.
    ClockAhead(i64),
    /// From the root: no more messages will come.
    Bye,
    /// The answer to `Bye`: the rank has released everything.
    Farewell,
    /// A sign of life, sent when the rank has had nothing else to say for a while.
    Beat,
    /// From one member of a heap to another, or to the root.
    Heap { heap: ObjectId, message: HeapMessage },
}

/// Version of [`Message`]. All ranks of a run must have the same.
pub const VERSION: u32 = 3;

/// A message that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("a message of {length} bytes from rank {rank} cannot be read: {reason}")]
pub struct Garbled {
    pub rank: Rank,
    /// Its length in bytes.
    pub length: usize,
    pub reason: postcard::Error,
}

pub fn encode(messages: &[Message]) -> Vec<u8> {
    // Serialising into memory cannot fail: every type here can be serialised.
    postcard::to_allocvec(messages).unwrap_or_default()
}

/// Decodes a batch of messages from `rank`.
///
/// # Errors
/// The bytes are not a batch.
pub fn decode(rank: Rank, bytes: &[u8]) -> Result<Vec<Message>, Garbled> {
    postcard::from_bytes(bytes).map_err(|reason| Garbled { rank, length: bytes.len(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn jobs(command: Command) -> [Message; 1] {
        let (id, waits) = (CommandId(5), Vec::new());
        [Message::Jobs(vec![Job { id, device: 1, waits, command, collective: None }])]
    }

    /// Ranks of one version must agree on the number of each command, and the simulated times
    /// depend on the length of messages.
    #[test]
    fn the_last_command_that_travels_has_its_number() {
        let sent = jobs(Command::ResetHeap { heap: ObjectId(9), generation: 3 });
        let bytes = encode(&sent);
        assert_eq!(bytes, [1, 1, 1, 5, 1, 0, 10, 9, 3, 0]);
        assert_eq!(decode(0, &bytes).unwrap(), sent);
    }

    #[test]
    fn a_command_with_an_address_does_not_travel() {
        let write = Command::Write { buffer: ObjectId(1), offset: 0, size: 4, address: 4096 };
        assert!(postcard::to_allocvec(&jobs(write)).is_err());
        // A peer cannot make one up either: these would be the numbers of the three.
        for number in 11..14 {
            let bytes = [1, 1, 1, 5, 1, 0, number, 1, 0, 4, 8, 0, 0, 0];
            assert!(decode(0, &bytes).is_err(), "{number}");
        }
    }
}
