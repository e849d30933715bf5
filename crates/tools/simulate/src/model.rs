//! What the commands of a program should have done.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_process::Lock;
use penstock_wire::Status;

use crate::plan::{Fault, Plan};
use crate::program::FAILS_WITH;

/// What a command does. Places and sizes are in words.
#[derive(Debug)]
pub enum Act {
    Write {
        buffer: usize,
        at: usize,
        words: Vec<u32>,
    },
    Read {
        buffer: usize,
        at: usize,
        into: Arc<Lock<Vec<u8>>>,
    },
    Fill {
        buffer: usize,
        at: usize,
        size: usize,
        value: u32,
    },
    Copy {
        from: usize,
        /// Its first word in the source.
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
    Nothing,
}

impl Act {
    pub fn written(&self) -> Option<usize> {
        match self {
            Self::Write { buffer, .. } | Self::Fill { buffer, .. } | Self::Scale { buffer, .. } => {
                Some(*buffer)
            }
            Self::Copy { to, .. } | Self::Add { to, .. } => Some(*to),
            Self::Read { .. } | Self::Fail { .. } | Self::Nothing => None,
        }
    }

    pub fn read(&self) -> Vec<usize> {
        match self {
            Self::Read { buffer, .. } | Self::Scale { buffer, .. } => vec![*buffer],
            Self::Copy { from, .. } => vec![*from],
            Self::Add { left, right, .. } => vec![*left, *right],
            Self::Write { .. } | Self::Fill { .. } | Self::Fail { .. } | Self::Nothing => {
                Vec::new()
            }
        }
    }

    fn used(&self) -> Vec<usize> {
        self.read().into_iter().chain(self.written()).collect()
    }
}

/// A command that a program has enqueued.
#[derive(Debug)]
pub struct Step {
    pub act: Act,
    pub node: usize,
    /// Earlier commands in its wait list.
    pub waits: Vec<usize>,
    /// Whether an event of the program in its wait list fails.
    pub awaits_failure: bool,
    /// How it ended.
    pub status: Option<Status>,
}

/// Returns what is wrong with the results of a program that made buffers with this content.
pub fn check(plan: &Plan, initial: Vec<Vec<u32>>, steps: &[Step]) -> Vec<String> {
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
            problems.push(format!("command {number} on node {}: {why}; {:?}", step.node, step.act));
        };
        let mut failures = step.waits.iter().filter_map(|wait| steps[*wait].status);
        let waits_for_failed = step.awaits_failure || failures.clone().any(Status::is_error);
        // A lost node may have ended the command, and told other workers but not the client.
        let must_fail = step.awaits_failure
            || failures.any(|status| status.is_error() && status != Status::NODE_LOST);
        let touches =
            |node| step.node == node || used.iter().any(|it| nodes_of[*it].contains(&node));
        let mut awaited = step.waits.iter().map(|wait| steps[*wait].node);
        // The end of a command comes from its node, over a link that may be gone.
        let is_excused = match plan.fault {
            Fault::Nothing => false,
            Fault::CutPeers { .. } => {
                used.iter().any(|it| nodes_of[*it].len() > 1) || awaited.any(|it| it != step.node)
            }
            Fault::Cut { node, .. } | Fault::Silent { node, .. } => {
                touches(node) || awaited.any(|it| it == node)
            }
            Fault::Starved { node, .. } => touches(node),
        };
        if status.is_error() {
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
        } else if let Err(why) = perform(&step.act, &mut content) {
            wrong(why);
        }
    }
    problems
}

/// Does to the content what a command does. Fails if a read has other words.
fn perform(act: &Act, content: &mut [Option<Vec<u32>>]) -> Result<(), String> {
    match act {
        Act::Read { buffer, at, into } => {
            let Some(words) = &content[*buffer] else { return Ok(()) };
            let bytes = into.lock();
            let read = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word));
            let differs = read.zip(&words[*at..]).enumerate().find(|(_, (is, is_to))| is != *is_to);
            if let Some((word, (is, is_to))) = differs {
                return Err(format!("word {} is {is} and should be {is_to}", at + word));
            }
        }
        Act::Write { buffer, at, words } => {
            if let Some(to) = &mut content[*buffer] {
                to[*at..][..words.len()].copy_from_slice(words);
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
            combine((*left, *right), *to, *count, content, u32::wrapping_add);
        }
        Act::Scale { buffer, factor, count } => {
            if let Some(to) = &mut content[*buffer] {
                to[..*count].iter_mut().for_each(|word| *word = word.wrapping_mul(*factor));
            }
        }
        Act::Fail { .. } | Act::Nothing => {}
    }
    Ok(())
}

fn combine(
    (left, right): (usize, usize),
    to: usize,
    count: usize,
    content: &mut [Option<Vec<u32>>],
    combine: fn(u32, u32) -> u32,
) {
    let words = content[left].as_ref().zip(content[right].as_ref()).map(|(left, right)| {
        let pairs = left.iter().zip(right).take(count);
        pairs.map(|(left, right)| combine(*left, *right)).collect::<Vec<_>>()
    });
    put(words, &mut content[to]);
}

/// Puts words at the beginning of a buffer.
fn put(words: Option<Vec<u32>>, to: &mut Option<Vec<u32>>) {
    match (words, to) {
        (Some(words), Some(to)) => to[..words.len()].copy_from_slice(&words),
        (None, to) => *to = None,
        (Some(_), None) => {}
    }
}
