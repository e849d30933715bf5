//! The work of commands, and how it is performed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_process::Lock;
use penstock_wire::status::Status;

use super::builtin::{Done, Launch};
use super::memory::{PIECE_BYTES, Rows};
use crate::staging::Staged;

pub(super) enum Work {
    Nothing,
    Write { to: Rows, bytes: Staged },
    Read { from: Rows, into: Arc<Lock<Staged>> },
    Copy { from: Rows, to: Rows },
    Fill { to: Rows, pattern: Vec<u8> },
    Launch(Launch),
}

impl Work {
    pub(super) fn perform(self) -> Done {
        let performed = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Nothing => Done::Ended(Ok(())),
            Self::Write { to, bytes } => Done::Ended(write(&to, &bytes)),
            Self::Read { from, into } => Done::Ended(read(&from, &mut into.lock())),
            Self::Copy { from, to } => Done::Ended(copy(&from, &to)),
            Self::Fill { to, pattern } => Done::Ended(fill(&to, &pattern)),
            Self::Launch(launch) => launch.perform(),
        }));
        // A panic is a defect of ours; the device must go on for all others.
        performed.unwrap_or(Done::Ended(Err(Status::OUT_OF_RESOURCES)))
    }
}

fn write(to: &Rows, bytes: &[u8]) -> Result<(), Status> {
    let mut rows = to.starts().zip(bytes.chunks(to.width()));
    rows.try_for_each(|(start, row)| to.buffer.write(start, row))
}

fn read(from: &Rows, into: &mut [u8]) -> Result<(), Status> {
    let mut rows = from.starts().zip(into.chunks_mut(from.width()));
    rows.try_for_each(|(start, row)| from.buffer.read(start, row))
}

fn copy(from: &Rows, to: &Rows) -> Result<(), Status> {
    let mut piece = [0; PIECE_BYTES];
    for (source, target) in from.starts().zip(to.starts()) {
        for done in (0..from.width()).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min(from.width() - done)];
            from.buffer.read(source + done, piece)?;
            to.buffer.write(target + done, piece)?;
        }
    }
    Ok(())
}

fn fill(to: &Rows, pattern: &[u8]) -> Result<(), Status> {
    // Patterns have sizes that divide this.
    let piece = pattern.repeat(PIECE_BYTES / pattern.len());
    for start in to.starts() {
        for done in (0..to.width()).step_by(PIECE_BYTES) {
            let piece = &piece[..PIECE_BYTES.min(to.width() - done)];
            to.buffer.write(start + done, piece)?;
        }
    }
    Ok(())
}
