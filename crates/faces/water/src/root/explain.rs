//! Explains why a group of transfers was replaced or not: `WTR_DCR_EXPLAIN=file` gets a line of
//! JSON for each.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::cost::Shape;
use crate::clock::Clock;
use crate::command::CommandId;

/// A group of transfers, and the decision about it.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// `broadcast`, `broadcast of a buffer`, `scatter`, `gather` or `device to device`.
    pub what: &'static str,
    /// Level of its commands in their batch.
    pub level: u32,
    /// Number of ranks other than the source.
    pub ranks: u32,
    pub commands: usize,
    /// Bytes for each member of a broadcast, or of all members of a scatter or gather.
    pub bytes: u64,
    /// Predicted time of one transfer for each rank.
    pub predicted_p2p_ns: f64,
    /// Predicted time of the chosen shape.
    pub predicted_ns: f64,
    pub shape: Shape,
    /// Bytes of each piece.
    pub segment: u64,
    pub replaced: bool,
    pub reason: &'static str,
}

/// Decisions whose commands have not ended.
#[derive(Debug, Default)]
pub struct Explain {
    file: Option<BufWriter<File>>,
    /// Number of decisions and of replacements, by kind.
    pub totals: FxHashMap<&'static str, (u64, u64)>,
    next: usize,
    open: FxHashMap<usize, OpenDecision>,
    watched: FxHashMap<CommandId, Vec<usize>>,
}

#[derive(Debug)]
struct OpenDecision {
    decision: Decision,
    left: usize,
    began: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    decision: &'a Decision,
    actual_ns: u64,
}

impl Explain {
    /// Writes the lines to this file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn to_file(path: &str) -> std::io::Result<Self> {
        Ok(Self { file: Some(BufWriter::new(File::create(path)?)), ..Self::default() })
    }

    /// Counts a decision, and returns its number.
    pub(super) fn add(&mut self, decision: Decision, clock: &dyn Clock) -> usize {
        let totals = self.totals.entry(decision.what).or_default();
        totals.0 += 1;
        totals.1 += u64::from(decision.replaced);
        self.next += 1;
        if self.file.is_some() {
            self.open.insert(self.next, OpenDecision { decision, left: 0, began: clock.now() });
        }
        self.next
    }

    /// Finishes the decision when these commands have ended.
    pub(super) fn watch(&mut self, decision: usize, commands: &[CommandId]) {
        let Some(open) = self.open.get_mut(&decision) else { return };
        open.left = commands.len();
        for command in commands {
            self.watched.entry(*command).or_default().push(decision);
        }
    }

    /// Notes the end of a command. Writes the line of each decision whose last command it is.
    pub(super) fn ended(&mut self, command: CommandId, clock: &dyn Clock) {
        if self.watched.is_empty() {
            return;
        }
        for decision in self.watched.remove(&command).unwrap_or_default() {
            let Some(open) = self.open.get_mut(&decision) else { continue };
            open.left = open.left.saturating_sub(1);
            if open.left > 0 {
                continue;
            }
            let Some(open) = self.open.remove(&decision) else { continue };
            let actual_ns = clock.now().saturating_sub(open.began);
            let line = serde_json::to_string(&Line { decision: &open.decision, actual_ns });
            if let (Some(file), Ok(line)) = (&mut self.file, line) {
                // A full disk must not end the run, because the lines are only information.
                _ = writeln!(file, "{line}");
                _ = file.flush();
            }
        }
    }
}
