//! The definition of a kernel: a list of statements with brackets, which is a tree.
//!
//! The list is what the shrinker drops statements from. A bracket and its end have one number, so a
//! list is in order again when brackets without their partners are gone.

use serde::{Deserialize, Serialize};

use crate::plan::Op as AnyOp;

/// A statement. All of a program's statements belong to its only thread of the host.
pub type Op = AnyOp<Act>;
pub type Platform = crate::plan::Platform<crate::cuda::plan::Device>;

/// Number of 32-bit registers of a thread that statements name.
pub const REGISTERS: usize = 6;
/// Words of shared memory. A power of two, so that any number gives an index.
pub const WORDS: usize = 256;
/// Words of global memory that only one thread uses.
pub const OWN: usize = 4;
/// Words of global memory that all threads change.
pub const SUMS: usize = 6;
/// Largest number of threads of a block.
pub const THREADS_MAX: usize = 128;
/// Lanes of a warp.
pub const LANES: usize = 32;

/// A value that a thread reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Value {
    Register(u8),
    Constant(u32),
    /// `%tid.x`
    Thread,
    /// `%laneid`
    Lane,
    /// `%ctaid.x`
    Block,
    /// The kernel's parameter.
    Parameter,
    /// The count of turns of the loop with this number.
    Turn(usize),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Ge,
    LtSigned,
    GeSigned,
}

/// A comparison of some bits of a value with another value.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Condition {
    pub value: Value,
    pub bits: u32,
    pub compare: Compare,
    pub with: Value,
}

/// A word of shared memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Place {
    /// The number of the thread, with some bits inverted.
    Thread(u32),
    /// The number of the thread times an odd number.
    Times(u32),
    Fixed(u32),
    /// The index in a register, modulo the number of words.
    Told(u8),
}

/// The lanes that take part in an exchange.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Mask {
    /// Those that the branches and loops around have counted.
    Here,
    /// Those of the lane's group that are here. The number is the group's size in lanes.
    Group(u32),
    All,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// How several values become one, in any order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Fold {
    Add,
    MinSigned,
    MaxUnsigned,
    And,
    Or,
    Xor,
}

impl Fold {
    pub const ALL: [Self; SUMS] =
        [Self::Add, Self::MinSigned, Self::MaxUnsigned, Self::And, Self::Or, Self::Xor];
}

/// What lanes of a warp tell each other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Exchange {
    /// Takes a register of another lane, in segments of `segment` lanes. `holds` adds one if the
    /// lane lies in the segment.
    Shuffle {
        mode: Shuffle,
        from: u8,
        lane: Value,
        segment: u32,
        holds: bool,
    },
    /// Takes a register of the last of the lanes.
    Lead {
        from: u8,
    },
    Vote {
        mode: Vote,
        condition: Condition,
    },
    /// Lanes with the same value, or all lanes if all have it.
    Match {
        all: bool,
        from: u8,
    },
    Reduce {
        how: Fold,
        from: u8,
    },
}

/// How threads of a block tell each other something at a barrier.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Meeting {
    And,
    Or,
    Count,
}

/// An atomic instruction that returns the earlier value.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Atomic {
    Fold(Fold),
    Exchange,
    Swap,
    Increment,
    Decrement,
}

/// The size of an access to memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Width {
    Byte,
    ByteSigned,
    Half,
    HalfSigned,
    Word,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Act {
    /// Computes by a row of the table of instructions, if the guard holds.
    Compute {
        row: String,
        to: u8,
        from: [Value; 3],
        guard: Option<Condition>,
    },
    If {
        id: usize,
        condition: Condition,
        votes: bool,
    },
    Else {
        id: usize,
    },
    /// Takes `turns & 3` turns, or at least one if the test is at the end.
    Loop {
        id: usize,
        turns: Value,
        at_head: bool,
        votes: bool,
    },
    End {
        id: usize,
    },
    /// Leaves the innermost loop.
    Break {
        condition: Condition,
    },
    /// Goes on with the next turn of the innermost loop.
    Continue {
        condition: Condition,
    },
    /// Ends the thread, which writes its registers first if it `tells`.
    Exit {
        condition: Condition,
        tells: bool,
    },
    Barrier {
        guard: Option<Condition>,
    },
    Meet {
        how: Meeting,
        to: u8,
        condition: Condition,
    },
    Store {
        at: Place,
        from: u8,
        width: Width,
    },
    Load {
        to: u8,
        at: Place,
        width: Width,
    },
    /// Changes a word of shared memory. The word's number is that of the fold.
    Reduce {
        how: Fold,
        from: u8,
    },
    /// The same for global memory.
    ReduceAll {
        how: Fold,
        from: u8,
    },
    StoreOwn {
        at: usize,
        from: u8,
        width: Width,
    },
    LoadOwn {
        to: u8,
        at: usize,
        width: Width,
    },
    AtomicOwn {
        how: Atomic,
        to: u8,
        at: usize,
        from: [u8; 2],
    },
    Exchange {
        to: u8,
        what: Exchange,
        mask: Mask,
    },
    MeetWarp {
        mask: Mask,
    },
}

/// One launch of the kernel.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Launch {
    pub blocks: usize,
    pub parameter: u32,
    /// Seed of the memory's content.
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Program {
    pub seed: u64,
    /// Threads of the host: one.
    pub threads: usize,
    pub block: usize,
    pub launches: Vec<Launch>,
    pub ops: Vec<Op>,
}

crate::interface::plan!(Program, Act);

/// A statement with the statements that it contains.
#[derive(Debug)]
pub struct Node<'a> {
    pub act: &'a Act,
    pub body: Vec<Node<'a>>,
    pub other: Vec<Node<'a>>,
}

impl Program {
    /// Returns the statements as a tree, or `None` if brackets have no partners.
    pub fn tree(&self) -> Option<Vec<Node<'_>>> {
        let mut open: Vec<(Node<'_>, bool)> = Vec::new();
        let mut top = Vec::new();
        for op in &self.ops {
            let act = &op.act;
            let ready = match act {
                Act::If { .. } | Act::Loop { .. } => {
                    open.push((Node { act, body: Vec::new(), other: Vec::new() }, false));
                    continue;
                }
                Act::Else { id } => {
                    let (node, is_other) = open.last_mut()?;
                    if !matches!(node.act, Act::If { id: own, .. } if own == id) || *is_other {
                        return None;
                    }
                    *is_other = true;
                    continue;
                }
                Act::End { id } => {
                    let (node, _) = open.pop()?;
                    if bracket(node.act) != Some(*id) {
                        return None;
                    }
                    node
                }
                _ => Node { act, body: Vec::new(), other: Vec::new() },
            };
            match open.last_mut() {
                Some((node, false)) => node.body.push(ready),
                Some((node, true)) => node.other.push(ready),
                None => top.push(ready),
            }
        }
        open.is_empty().then_some(top)
    }

    /// Drops brackets without their partners.
    #[must_use]
    pub fn balanced(&self) -> Self {
        let all = |is: fn(&Act) -> bool| -> Vec<usize> {
            self.ops.iter().filter(|op| is(&op.act)).filter_map(|op| bracket(&op.act)).collect()
        };
        let opens = all(|act| matches!(act, Act::If { .. } | Act::Loop { .. }));
        let ends = all(|act| matches!(act, Act::End { .. }));
        let goes =
            |act: &Act| bracket(act).is_none_or(|id| opens.contains(&id) && ends.contains(&id));
        let ops = self.ops.iter().filter(|op| goes(&op.act)).cloned().collect();
        Self { ops, ..self.clone() }
    }

    /// Number of words of memory that a launch uses.
    pub fn words(&self, launch: &Launch) -> usize {
        SUMS + launch.blocks * self.block * STRIDE
    }
}

/// Words of global memory of a thread: its first registers, its own words, its last registers.
pub const STRIDE: usize = REGISTERS + OWN + REGISTERS;

/// Returns the number of a bracket.
pub fn bracket(act: &Act) -> Option<usize> {
    match act {
        Act::If { id, .. } | Act::Loop { id, .. } | Act::Else { id } | Act::End { id } => Some(*id),
        _ => None,
    }
}

/// Returns the content of memory before a launch.
pub fn content(words: usize, seed: u64) -> Vec<u32> {
    let mut random = crate::random::Random::new(seed);
    let mut word = |_| {
        let any = random.word().wrapping_mul(random.word());
        match random.below(8) {
            0 => [0, 1, u32::MAX, 1 << 31, (1 << 31) - 1, 31, 32, 33][any as usize % 8],
            1 | 2 => any % 40,
            3 => 0_u32.wrapping_sub(any % 40),
            4 => any & 0xffff,
            5 => (any & 1) << (any >> 1 & 31),
            _ => any,
        }
    };
    (0..words).map(&mut word).collect()
}
