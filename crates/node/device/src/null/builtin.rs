//! The kernels of the device.

use std::sync::Arc;

use penstock_wire::IndexSpace;
use penstock_wire::status::Status;

use super::memory::{Buffer, PIECE_BYTES};

/// Largest work-group.
pub(super) const WORK_GROUP_MAX: u64 = 1024;
/// Number of bytes in each element of a buffer.
const WORD_BYTES: usize = size_of::<u32>();

/// What an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A buffer that the kernel only reads.
    Source,
    Buffer,
    Word,
}

/// A kernel, the names of its arguments, and what they take.
#[derive(Debug)]
pub(super) struct Builtin {
    pub(super) name: &'static str,
    pub(super) args: &'static [(&'static str, Takes)],
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Copy,
    Add,
    Scale,
    Endless,
    Fail,
    Refuse,
    Starve,
    Lose,
}

/// All kernels, as the documentation of [`super`] describes them.
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "copy",
        args: &[("from", Takes::Source), ("to", Takes::Buffer)],
        action: Action::Copy,
    },
    Builtin {
        name: "add",
        args: &[("a", Takes::Source), ("b", Takes::Source), ("sum", Takes::Buffer)],
        action: Action::Add,
    },
    Builtin {
        name: "scale",
        args: &[("a", Takes::Buffer), ("factor", Takes::Word)],
        action: Action::Scale,
    },
    Builtin { name: "endless", args: &[("word", Takes::Source)], action: Action::Endless },
    Builtin { name: "fail", args: &[("code", Takes::Word)], action: Action::Fail },
    Builtin { name: "refuse", args: &[("code", Takes::Word)], action: Action::Refuse },
    Builtin { name: "starve", args: &[("buffers", Takes::Word)], action: Action::Starve },
    Builtin { name: "lose", args: &[], action: Action::Lose },
];

/// Returns the names of all kernels.
pub(super) fn names() -> String {
    BUILTINS.iter().map(|builtin| builtin.name).collect::<Vec<_>>().join(", ")
}

/// What a command has done.
pub(super) enum Done {
    Ended(Result<(), Status>),
    /// It runs until the first word of this buffer is not 0.
    Endless(Arc<Buffer>),
    /// It has ended, and the context can make this number of further buffers.
    Starved(u32),
    /// It has failed, and the context is lost.
    Lost,
}

/// An argument of a launch.
#[derive(Clone)]
pub(super) enum Value {
    Buffer(Arc<Buffer>),
    Word(u32),
}

/// A launch whose arguments are those that the kernel takes.
pub(super) struct Launch {
    action: Action,
    /// First element, and number of elements.
    first: usize,
    count: usize,
    args: Vec<Value>,
}

impl Launch {
    /// `space` has passed [`IndexSpace::checked`].
    pub(super) fn new(
        builtin: &Builtin,
        space: &IndexSpace,
        args: Vec<Value>,
    ) -> Result<Self, Status> {
        if space.dims != 1 {
            return Err(Status::INVALID_WORK_DIMENSION);
        }
        let ([first, ..], [count, ..]) = (space.offset, space.global);
        // "CL_INVALID_WORK_GROUP_SIZE if local_work_size is specified and ... the number of
        // work-items specified by global_work_size is not evenly divisible".
        let local = space.local.map_or(1, |[local, ..]| local);
        if local > WORK_GROUP_MAX || !count.is_multiple_of(local) {
            return Err(Status::INVALID_WORK_GROUP_SIZE);
        }
        if let (Action::Refuse, Some(Value::Word(code))) = (builtin.action, args.first()) {
            Status(code.cast_signed()).ok()?;
        }
        let narrow = |number| usize::try_from(number).map_err(|_| Status::INVALID_GLOBAL_WORK_SIZE);
        Ok(Self { action: builtin.action, first: narrow(first)?, count: narrow(count)?, args })
    }

    pub(super) fn perform(&self) -> Done {
        use Value::{Buffer, Word};
        match (self.action, self.args.as_slice()) {
            (Action::Copy, [Buffer(from), Buffer(to)]) => {
                Done::Ended(self.each((from, &Word(0)), to, |word, _| word))
            }
            (Action::Add, [Buffer(a), b, Buffer(sum)]) => {
                Done::Ended(self.each((a, b), sum, u32::wrapping_add))
            }
            (Action::Scale, [Buffer(a), factor]) => {
                Done::Ended(self.each((a, factor), a, u32::wrapping_mul))
            }
            (Action::Endless, [Buffer(word)]) => Done::Endless(word.clone()),
            (Action::Fail, [Word(code)]) => Done::Ended(Status(code.cast_signed()).ok()),
            (Action::Starve, [Word(buffers)]) => Done::Starved(*buffers),
            (Action::Lose, _) => Done::Lost,
            _ => Done::Ended(Ok(())),
        }
    }

    /// Computes each element from two others, or from another one and a number.
    fn each(
        &self,
        (left, right): (&Buffer, &Value),
        result: &Buffer,
        combine: fn(u32, u32) -> u32,
    ) -> Result<(), Status> {
        const PIECE: usize = PIECE_BYTES / WORD_BYTES;
        for done in (0..self.count).step_by(PIECE) {
            let bytes = PIECE.min(self.count - done) * WORD_BYTES;
            let place = self.first.checked_add(done).and_then(|it| it.checked_mul(WORD_BYTES));
            let place = place.ok_or(Status::OUT_OF_RESOURCES)?;
            let (mut words, mut others) = (vec![0; bytes], vec![0; bytes]);
            left.read(place, &mut words)?;
            match right {
                Value::Buffer(right) => right.read(place, &mut others)?,
                Value::Word(word) => others = word.to_ne_bytes().repeat(bytes / WORD_BYTES),
            }
            let pairs = words.as_chunks_mut().0.iter_mut().zip(others.as_chunks().0);
            for (word, other) in pairs {
                let (left, right) = (u32::from_ne_bytes(*word), u32::from_ne_bytes(*other));
                *word = combine(left, right).to_ne_bytes();
            }
            result.write(place, &words)?;
        }
        Ok(())
    }
}
