//! A job that this rank has received, and its order among the others.

use std::collections::VecDeque;

use crate::backend::Backend;
use crate::command::{Command, CommandId, End, Fault, Job, Outcome, Rank, Times};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) job: Job,
    /// Number of unfinished jobs that it waits for and that the back end does not order before it.
    pub(super) unmet: u32,
    /// Started jobs that the back end orders before this one.
    pub(super) after: Vec<CommandId>,
    /// Jobs of this rank that wait for this one.
    pub(super) successors: Vec<CommandId>,
    /// Ranks to tell when it has ended.
    pub(super) tell: Vec<Rank>,
    pub(super) started: bool,
    /// Its ordinal among the jobs that this rank has received.
    pub(super) ordinal: u64,
    /// The fault of a job that it waited for, if one failed.
    pub(super) broken: Option<Box<Fault>>,
    pub(super) times: Times,
}

#[derive(Debug, Default)]
pub(super) struct Foreign {
    pub(super) waiting: VecDeque<CommandId>,
    pub(super) arrived: VecDeque<Outcome>,
}

/// Whether `job` fails if `command`, which it waits for, fails.
pub(super) fn fails_with(job: &Job, command: CommandId) -> bool {
    job.waits.iter().any(|wait| wait.command == command && !wait.is_lenient)
}

/// Whether the back end starts `later` only after `earlier` has ended, if it gets both now.
pub(super) fn is_ordered(backend: &dyn Backend, earlier: &Job, later: &Job) -> bool {
    // Builds, and the creation and reset of heaps, run beside the queues. A release takes effect at
    // once, whatever is queued.
    !matches!(
        earlier.command,
        Command::CreateKernel { .. } | Command::CreateHeap { .. } | Command::ResetHeap { .. }
    ) && !matches!(later.command, Command::ResetHeap { .. })
        && !later.command.is_release()
        && !hands_over_in_memory(&earlier.command, &later.command)
        && is_one_operation(&earlier.command)
        && is_one_operation(&later.command)
        && backend.orders(earlier.device, later.device)
}

/// Whether bytes may pass from `earlier` to `later` through the program's memory. The back end
/// reads the source of a write at once, so the bytes must be there when it starts.
fn hands_over_in_memory(earlier: &Command, later: &Command) -> bool {
    let (Command::Move(earlier), Command::Move(later)) = (earlier, later) else { return false };
    matches!(later.source, End::Host { .. })
        && earlier.sinks.iter().any(|sink| matches!(sink.to, End::Host { .. }))
}

/// Whether the command is one operation of the back end, and not a move that this rank drives.
fn is_one_operation(command: &Command) -> bool {
    match command {
        Command::Marker => false,
        Command::Move(order) => order.as_command().is_some(),
        _ => true,
    }
}
