//! What the commands of a program should have done.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_client::{HostShape, Target};
use penstock_process::Lock;
use penstock_wire::{FrameError, Payload, Status};

use crate::plan::{Fault, Plan};
use crate::program::{Call, FAILS_WITH, Seen};

/// A finding says so much of a command; the words of a write are many.
const ACT_CHARS_MAX: usize = 400;

/// What a command does. Places and sizes are in words.
#[derive(Debug)]
pub enum Act {
    Write {
        buffer: usize,
        at: usize,
        words: Vec<u32>,
        /// Distance between two words in the buffer.
        stride: usize,
        is_blocking: bool,
    },
    Read {
        buffer: usize,
        at: usize,
        into: ReadTarget,
        is_blocking: bool,
    },
    Fill {
        buffer: usize,
        at: usize,
        size: usize,
        value: u32,
    },
    Copy {
        from: usize,
        /// Place of the first word in the source.
        shift: usize,
        to: usize,
        count: usize,
    },
    Add {
        left: usize,
        right: usize,
        to: usize,
        count: usize,
    },
    Scale {
        buffer: usize,
        factor: u32,
        count: usize,
    },
    /// A launch that fails, or that the device refuses.
    Fail {
        is_refused: bool,
    },
    Nothing {
        is_barrier: bool,
    },
}

impl Act {
    pub fn written(&self) -> Option<usize> {
        match self {
            Self::Write { buffer, .. } | Self::Fill { buffer, .. } | Self::Scale { buffer, .. } => {
                Some(*buffer)
            }
            Self::Copy { to, .. } | Self::Add { to, .. } => Some(*to),
            Self::Read { .. } | Self::Fail { .. } | Self::Nothing { .. } => None,
        }
    }

    pub fn is_blocking_write(&self) -> bool {
        matches!(self, Self::Write { is_blocking: true, .. })
    }

    fn is_blocking(&self) -> bool {
        matches!(self, Self::Write { is_blocking: true, .. } | Self::Read { is_blocking: true, .. })
    }

    pub fn read(&self) -> Vec<usize> {
        match self {
            Self::Read { buffer, .. } | Self::Scale { buffer, .. } => vec![*buffer],
            Self::Copy { from, .. } => vec![*from],
            Self::Add { left, right, .. } => vec![*left, *right],
            Self::Write { .. } | Self::Fill { .. } | Self::Fail { .. } | Self::Nothing { .. } => {
                Vec::new()
            }
        }
    }

    fn used(&self) -> Vec<usize> {
        self.read().into_iter().chain(self.written()).collect()
    }

    /// Returns the buffers that count as written: for a kernel, those of all its arguments.
    fn counts_as_written(&self) -> Vec<usize> {
        let is_launch = match self {
            Self::Add { .. } | Self::Scale { .. } => true,
            Self::Copy { shift, count, .. } => Self::is_copied_by_kernel(*shift, *count),
            _ => false,
        };
        if is_launch { self.used() } else { self.written().into_iter().collect() }
    }

    /// Returns whether a kernel does this copy. Otherwise a command of the queue does it.
    pub fn is_copied_by_kernel(shift: usize, count: usize) -> bool {
        shift == 0 && !count.is_multiple_of(2)
    }
}

/// The program's memory that a read writes.
#[derive(Clone, Debug)]
pub struct ReadTarget {
    pub bytes: Arc<Lock<Vec<u8>>>,
    /// Where the client takes it to be. Real addresses differ from run to run.
    pub place: HostShape,
}

impl Target for ReadTarget {
    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        self.bytes.take(offset, payload)
    }

    fn shape(&self) -> Option<HostShape> {
        Some(self.place)
    }
}

/// A command that a program has enqueued.
#[derive(Debug)]
pub struct Step {
    pub act: Act,
    pub node: usize,
    /// Number of its queue.
    pub lane: usize,
    /// Earlier commands in its wait list.
    pub waits: Vec<usize>,
    /// Earlier commands of its queue that it comes after.
    pub behind: Vec<usize>,
    /// Whether these are all earlier commands of its queue.
    pub is_behind_all: bool,
    /// Whether an event of the program in its wait list fails.
    pub awaits_failure: bool,
    /// Whether an event in its wait list had failed when it was enqueued, or is one of the program
    /// that fails. The client sends nothing of such a command.
    pub is_unsent: bool,
    /// Whether the call that enqueued it returned an event. Otherwise that call has failed.
    pub has_event: bool,
    /// How it ended.
    pub status: Option<Status>,
}

impl Step {
    pub fn is_barrier(&self) -> bool {
        matches!(self.act, Act::Nothing { is_barrier: true })
    }
}

/// The target of a read, with the number of the command.
type Numbered = (usize, ReadTarget);

/// What was in the program's memory when the program heard that commands have ended.
pub struct Look {
    ends: Vec<usize>,
    reads: Vec<(usize, Vec<u8>)>,
}

impl Look {
    /// Copies what is there now.
    pub fn at(ends: Vec<usize>, reads: &[Numbered]) -> Self {
        let reads = reads.iter().map(|(read, into)| (*read, into.bytes.lock().clone())).collect();
        Self { ends, reads }
    }
}

/// The commands of which the program had heard that they have ended, and the bytes that it saw.
type Sight<'a> = (&'a [usize], &'a [u8]);

/// Returns these commands and those that have ended before them. `is_good` says which commands have
/// ended well.
fn closure(steps: &[Step], ends: &[usize], is_good: impl Fn(&Step) -> bool) -> BTreeSet<usize> {
    let (mut open, mut all) = (ends.to_vec(), BTreeSet::new());
    while let Some(number) = open.pop() {
        let step = &steps[number];
        // A command that has failed may have ended before those for which it should have waited.
        // But a kernel that fails ends in its turn.
        if all.insert(number) && (is_good(step) || step.status == Some(FAILS_WITH)) {
            open.extend(&step.behind);
            open.extend(step.waits.iter().filter(|_| is_good(step)));
        }
    }
    all
}

/// Returns the targets of the reads that may have ended when these commands have ended.
pub fn reads_behind(steps: &[Step], ends: &[usize]) -> Vec<Numbered> {
    let all = closure(steps, ends, |_| true).into_iter();
    let target = |number: usize| match &steps[number].act {
        Act::Read { into, .. } => Some((number, into.clone())),
        _ => None,
    };
    all.filter_map(target).collect()
}

/// Returns what is wrong with the results of a program that made buffers with this content.
pub fn check(plan: &Plan, initial: Vec<Vec<u32>>, seen: &Seen) -> Vec<String> {
    let mut problems = check_calls(seen);
    problems.extend(seen.wrong.iter().cloned());
    let calls = seen.calls.iter().map(|call| &call.look);
    let mut seen_of = vec![Vec::new(); seen.steps.len()];
    for look in seen.looks.iter().chain(calls) {
        let is_good = |step: &Step| step.status == Some(Status::OK);
        let ended = closure(&seen.steps, &look.ends, is_good);
        let ended = look.reads.iter().filter(|(read, _)| ended.contains(read));
        ended.for_each(|(read, bytes)| seen_of[*read].push((&look.ends[..], &bytes[..])));
    }
    problems.extend(check_steps(plan, initial, &seen.steps, &seen_of));
    problems
}

/// Each callback was called once, with the status of its event.
fn check_calls(Seen { steps, registered, calls, .. }: &Seen) -> Vec<String> {
    let mut problems = Vec::new();
    let mut called: Vec<_> = calls.iter().map(|call| call.step).collect();
    called.sort_unstable();
    if called != *registered {
        problems.push(format!("callbacks of {registered:?} were called for {called:?}"));
    }
    let differs = |call: &&Call| steps[call.step].status != Some(call.status);
    problems.extend(calls.iter().filter(differs).map(|Call { step, status, .. }| {
        format!("the callback of command {step} got {status}; {:?}", steps[*step].status)
    }));
    problems
}

/// Returns what is wrong with the ends of commands, and with what was seen of each read.
fn check_steps(
    plan: &Plan,
    initial: Vec<Vec<u32>>,
    steps: &[Step],
    seen_of: &[Vec<Sight<'_>>],
) -> Vec<String> {
    let mut problems = Vec::new();
    // `None` after a command that has failed: its buffer may have any content.
    let mut content: Vec<Option<Vec<u32>>> = initial.into_iter().map(Some).collect();
    // Commands that are held back may come after later ones.
    let mut nodes_of: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); content.len()];
    for step in steps {
        for buffer in step.act.used() {
            nodes_of[buffer].insert(step.node);
        }
    }
    for (number, step) in steps.iter().enumerate() {
        let used = step.act.used();
        let status = step.status.unwrap_or(Status::OK);
        let mut wrong = |why: String| {
            let (mut act, node) = (format!("{:?}", step.act), step.node);
            act.truncate(ACT_CHARS_MAX);
            problems.push(format!("command {number} on node {node}: {why}; {act}"));
        };
        let mut failures = step.waits.iter().filter_map(|wait| steps[*wait].status);
        let waits_for_failed = step.awaits_failure || failures.clone().any(Status::is_error);
        // A lost node may have ended the command, and told other workers but not the client.
        let must_fail = step.awaits_failure
            || failures.any(|status| status.is_error() && status != Status::NODE_LOST);
        let users: Vec<_> = used.iter().map(|it| &nodes_of[*it]).collect();
        let awaited: Vec<_> = step.waits.iter().map(|wait| steps[*wait].node).collect();
        if status.is_error() {
            // The client may have held the command back until it had sent later ones, unless the
            // call waited for the end of the command.
            let is_over = !step.has_event || step.act.is_blocking();
            let earlier = if is_over { &steps[..number] } else { steps };
            let is_lost = status == Status::NODE_LOST
                && used.iter().any(|it| lost_buffers(plan, earlier).contains(it));
            let is_excused = plan.fault.excuses(step.node, &users, &awaited)
                && (plan.fault.gives().contains(&status) || is_lost);
            let fails = matches!(step.act, Act::Fail { .. }) && status == FAILS_WITH;
            if !(is_excused || waits_for_failed || fails) {
                wrong(format!("failed with {status}"));
            }
            if let Some(buffer) = step.act.written() {
                content[buffer] = None;
            }
        } else if must_fail {
            wrong("ran although a command in its wait list failed".to_owned());
        } else if matches!(step.act, Act::Fail { .. }) {
            wrong("a kernel that fails has succeeded".to_owned());
        } else if let Err(why) = perform(&step.act, &mut content, &seen_of[number]) {
            wrong(why);
        }
    }
    problems
}

/// Returns the buffers whose content no node may have any more, because the device of a node has no
/// memory for it. The memory model says: "If an early command runs at the place of the old content,
/// the old content may be lost, and later readers fail." So a command that counts as a writer has
/// failed on that node, and an early command has failed on another one. The early command is not
/// itself such a reader: the status of its transfer says why it has failed. The client has sent
/// both of them.
fn lost_buffers(plan: &Plan, steps: &[Step]) -> BTreeSet<usize> {
    let Fault::Starved { node, .. } = plan.fault else { return BTreeSet::new() };
    let has_failed = |step: &&Step| !step.is_unsent && step.status.is_some_and(Status::is_error);
    let failed = steps.iter().filter(has_failed);
    let (there, elsewhere): (Vec<_>, Vec<_>) = failed.partition(|step| step.node == node);
    let early = elsewhere.iter().filter(|step| step.status != Some(Status::NODE_LOST));
    let early: BTreeSet<_> = early.flat_map(|step| step.act.used()).collect();
    let refused = there.iter().flat_map(|step| step.act.counts_as_written());
    refused.filter(|buffer| early.contains(buffer)).collect()
}

/// Does to the content what a command does. Fails if a read has other words.
fn perform(act: &Act, content: &mut [Option<Vec<u32>>], seen: &[Sight<'_>]) -> Result<(), String> {
    match act {
        Act::Read { buffer, at, into, .. } => {
            let Some(words) = &content[*buffer] else { return Ok(()) };
            let bytes = into.bytes.lock();
            for (ends, bytes) in [(&[][..], &bytes[..])].iter().chain(seen) {
                let read = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word));
                let mut pairs = read.zip(&words[*at..]).enumerate();
                if let Some((word, (is, is_to))) = pairs.find(|(_, (is, is_to))| is != *is_to) {
                    let word = at + word;
                    return Err(format!(
                        "word {word} is {is} and should be {is_to} after the ends of {ends:?}"
                    ));
                }
            }
        }
        Act::Write { buffer, at, words, stride, .. } => {
            if let Some(to) = &mut content[*buffer] {
                let to = to[*at..].iter_mut().step_by(*stride);
                to.zip(words).for_each(|(to, word)| *to = *word);
            }
        }
        Act::Fill { buffer, at, size, value } => {
            if let Some(to) = &mut content[*buffer] {
                to[*at..][..*size].fill(*value);
            }
        }
        Act::Copy { from, shift, to, count } => {
            let source = content[*from].as_ref().map(|words| words[*shift..][..*count].to_vec());
            put(source, &mut content[*to]);
        }
        Act::Add { left, right, to, count } => {
            let words = content[*left].as_ref().zip(content[*right].as_ref());
            let words = words.map(|(left, right)| {
                let pairs = left.iter().zip(right).take(*count);
                pairs.map(|(left, right)| left.wrapping_add(*right)).collect()
            });
            put(words, &mut content[*to]);
        }
        Act::Scale { buffer, factor, count } => {
            if let Some(to) = &mut content[*buffer] {
                to[..*count].iter_mut().for_each(|word| *word = word.wrapping_mul(*factor));
            }
        }
        Act::Fail { .. } | Act::Nothing { .. } => {}
    }
    Ok(())
}

/// Puts words at the beginning of a buffer.
fn put(words: Option<Vec<u32>>, to: &mut Option<Vec<u32>>) {
    match (words, to) {
        (Some(words), Some(to)) => to[..words.len()].copy_from_slice(&words),
        (None, to) => *to = None,
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARVED: usize = 1;

    fn failed(node: usize, act: Act) -> Step {
        Step {
            act,
            node,
            lane: node,
            waits: Vec::new(),
            behind: Vec::new(),
            is_behind_all: false,
            awaits_failure: false,
            is_unsent: false,
            has_event: true,
            status: Some(Status::WAIT_LIST_FAILED),
        }
    }

    /// Returns the buffers that may be lost after these commands, with a starved node and without.
    fn lost(steps: &[Step]) -> Vec<usize> {
        let plan = Plan { fault: Fault::Nothing, ..Plan::of(0) };
        assert_eq!(lost_buffers(&plan, steps), BTreeSet::new());
        let plan = Plan { fault: Fault::Starved { node: STARVED, buffers: 0 }, ..plan };
        lost_buffers(&plan, steps).into_iter().collect()
    }

    #[test]
    fn content_is_lost_only_behind_a_failed_writer_and_a_failed_user_elsewhere() {
        let add = || failed(STARVED, Act::Add { left: 0, right: 1, to: 2, count: 1 });
        let scale = |node| failed(node, Act::Scale { buffer: 0, factor: 3, count: 1 });
        let copy = |count| failed(STARVED, Act::Copy { from: 0, shift: 0, to: 2, count });
        assert_eq!(lost(&[add(), scale(0)]), [0], "arguments of kernels count as written");
        assert_eq!(lost(&[copy(1), scale(0)]), [0]);
        assert_eq!(lost(&[copy(2), scale(0)]), [0; 0], "a copy by the queue reads its source");
        assert_eq!(lost(&[add(), scale(STARVED)]), [0; 0], "all users are at the starved node");
        let ended = |status| Step { status: Some(status), ..scale(0) };
        assert_eq!(lost(&[add(), ended(Status::OK)]), [0; 0], "the user has not failed");
        assert_eq!(lost(&[add(), ended(Status::NODE_LOST)]), [0; 0], "the user is a later reader");
        let kept = Step { is_unsent: true, ..add() };
        assert_eq!(lost(&[kept, scale(0)]), [0; 0], "the client has not sent the writer");
        let kept = Step { is_unsent: true, ..scale(0) };
        assert_eq!(lost(&[add(), kept]), [0; 0], "the client has not sent the user");
    }

    #[test]
    fn a_loss_behind_later_commands_excuses_no_call_that_waited() {
        let plan = Plan { fault: Fault::Starved { node: STARVED, buffers: 0 }, ..Plan::of(0) };
        let add = || failed(STARVED, Act::Add { left: 0, right: 1, to: 2, count: 1 });
        let scale = || failed(0, Act::Scale { buffer: 0, factor: 3, count: 1 });
        let write = |is_blocking| {
            let act = Act::Write { buffer: 0, at: 0, words: vec![7], stride: 1, is_blocking };
            Step { status: Some(Status::NODE_LOST), ..failed(0, act) }
        };
        let wrong = |steps: &[Step]| {
            check_steps(&plan, vec![vec![0]; 3], steps, &vec![Vec::new(); steps.len()])
        };
        assert_eq!(wrong(&[add(), write(false), scale()]), [""; 0]);
        assert_eq!(wrong(&[add(), scale(), write(true)]), [""; 0]);
        let told = wrong(&[add(), write(true), scale()]);
        assert!(matches!(&told[..], [one] if one.starts_with("command 1 on node 0: failed with")));
    }
}
