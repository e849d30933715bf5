//! Barriers, and instructions through which the threads of a warp exchange values.
//!
//! If all threads reach such an instruction together, each writes its value to local memory, and
//! reads the values that it needs behind a barrier. Two halves of that memory alternate, so that
//! one barrier is enough for each exchange. Otherwise the kernel is a state machine (`machine.rs`).

use std::fmt::Write as _;

use super::control::CONTROL_ZERO;
use super::effects::is_meeting;
use super::error::TranslateError;
use super::vote_rows;
use super::writer::Writer;
use crate::ir::{
    Instruction, Opcode, Operand, Reduce, ShuffleMode, Space, Statement, Stop, Type, VoteMode,
    WARP_SIZE,
};

/// Number of words that a warp has for each vote of a row: see [`Writer::vote_together`].
const VOTE_WORDS: usize = 3;

/// Returns the space that an instruction accesses.
fn accessed(what: &Instruction) -> Option<Space> {
    let accesses =
        matches!(what.opcode, Opcode::Ld | Opcode::Ldu | Opcode::St | Opcode::Atom | Opcode::Red);
    accesses.then(|| what.modifiers.space.unwrap_or(Space::Generic))
}

/// Whether the address of an instruction chooses the kind of memory.
fn chooses(what: &Instruction) -> bool {
    accessed(what) == Some(Space::Generic)
}

/// Whether an instruction accesses memory that threads share.
fn is_access(what: &Instruction) -> bool {
    matches!(accessed(what), Some(Space::Global | Space::Shared))
}

/// An exchange of values between threads.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    /// The value that other threads see, of type `ulong`.
    pub value: String,
    /// The member mask in C; empty for all threads of the warp that are here.
    pub members: String,
    /// The outcome, of type `ulong`, computed from `wv` (values of the warp), `here` (the lanes
    /// that take part) and `x` (the thread's own value). Bit 32 is the second destination's truth
    /// value.
    pub outcome: String,
}

impl Writer<'_> {
    /// Writes a barrier of all threads. Behind it, the kernel reads again the zero that is added to
    /// shared indices. Otherwise compilers compute every address before the first barrier, and must
    /// keep all of them for each thread (PoCL: three times slower).
    pub(super) fn barrier(&mut self) {
        let tells_failure = self.tells_failure();
        if tells_failure {
            self.store_failure();
        }
        self.line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);");
        if tells_failure {
            self.load_failure();
        }
        self.line(&format!("zero = *(__global const a_int *)(AT(control) + {CONTROL_ZERO});"));
        if self.parts_behind() {
            self.line("ps_apart();");
        }
    }

    /// Whether threads may separate between the current statement and the next meeting, before they
    /// access memory.
    fn parts_behind(&self) -> bool {
        let body = self.function.body.as_deref().unwrap_or_default();
        let mut seen = vec![false; self.flow.blocks.len()];
        let mut starts = vec![self.at + 1];
        while let Some(start) = starts.pop() {
            let Some(&block) = self.flow.block_of.get(start) else { continue };
            let mut goes_on = true;
            for statement in body.get(start..self.flow.blocks[block].end).unwrap_or_default() {
                let Statement::Instruction(what) = statement else { continue };
                // The text in front of the barrier of such a meeting has branches of its own.
                if matches!(what.opcode, Opcode::Vote | Opcode::BarRed) {
                    return true;
                }
                if is_meeting(what.opcode) {
                    goes_on = false;
                    break;
                }
                let parts = what.guard.is_some_and(|guard| !self.uniform.register(guard.register));
                if parts || what.opcode == Opcode::BrxIdx || chooses(what) {
                    return true;
                }
                // No compiler moves such an access across the barrier, so the access separates the
                // two.
                if what.guard.is_none() && is_access(what) {
                    goes_on = false;
                    break;
                }
            }
            // The current statement may be the last of its block.
            let next = self.flow.blocks[block].successors.iter().filter(|_| goes_on);
            for &next in next.filter(|next| **next != self.flow.exit()) {
                if !std::mem::replace(&mut seen[next], true) {
                    starts.push(self.flow.blocks[next].start);
                }
            }
        }
        false
    }

    /// Writes a meeting that all threads reach together.
    pub(super) fn meet_together(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        self.uses_barriers = true;
        match what.opcode {
            Opcode::BarWarpSync if what.modifiers.stop == Some(Stop::Close) => {
                self.line("ps_close();");
                if self.parts_behind() {
                    self.line("ps_apart();");
                }
                return Ok(());
            }
            Opcode::BarSync | Opcode::BarWarpSync => {
                self.barrier();
                return Ok(());
            }
            Opcode::BarRed => return self.reduce_block(what),
            Opcode::Vote => return self.vote_together(),
            _ => {}
        }
        let exchange = self.exchange(what)?;
        self.uses_exchange = true;
        let members = if exchange.members.is_empty() { "0xffffffffu" } else { &exchange.members };
        self.line(&format!("wv[turn + lid] = (ps_word){};", exchange.value));
        self.barrier();
        self.line(&format!("{{ __local const ps_word *w = wv + turn + (lid & ~31u); const uint lane = lid & 31u, here = {members} & ps_lanes(lid, threads); const ulong x = w[lane];"));
        self.line(&format!(
            "const ulong y = {}; turn ^= {}u;",
            exchange.outcome,
            self.threads_most()
        ));
        self.write_outcome(what)?;
        self.line("}");
        Ok(())
    }

    /// Assigns `y` to the destinations.
    pub(super) fn write_outcome(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = if what.opcode == Opcode::Vote
            && !matches!(what.modifiers.vote, Some(VoteMode::Ballot))
        {
            Type::Pred
        } else {
            Type::U32
        };
        let first = if ty == Type::Pred { "((uint)y != 0u)" } else { "(uint)y" };
        if what.destinations > 0 {
            self.write(what, &what.operands[0], ty, first)?;
        }
        if what.destinations > 1 {
            self.write(what, &what.operands[1], Type::Pred, "(y >> 32 != 0)")?;
        }
        Ok(())
    }

    /// Returns the values that an instruction exchanges, and its outcome.
    pub(super) fn exchange(&mut self, what: &Instruction) -> Result<Exchange, TranslateError> {
        let nothing = || String::from("0UL");
        Ok(match what.opcode {
            Opcode::Shfl => return self.shuffle(what),
            Opcode::Vote => return self.vote(what, "ps_ballot(w, here)"),
            Opcode::Redux => return self.reduce_warp(what),
            Opcode::Match => {
                let ty = if what.ty().bits() == 64 { Type::U64 } else { Type::U32 };
                let (value, members) =
                    (self.source(what, 0, ty)?, self.source(what, 1, Type::U32)?);
                let all = what.modifiers.vote == Some(VoteMode::All);
                let outcome = if all {
                    "ps_match_all(w, here, x)"
                } else {
                    "(ulong)ps_match_any(w, here, x)"
                };
                Exchange { value: format!("(ulong){value}"), members, outcome: outcome.to_owned() }
            }
            Opcode::Activemask => Exchange {
                value: nothing(),
                members: String::new(),
                outcome: String::from("(ulong)here"),
            },
            Opcode::Elect => Exchange {
                value: nothing(),
                members: self.source(what, 0, Type::U32)?,
                outcome: String::from("ps_elect(here, lane)"),
            },
            Opcode::BarWarpSync if what.modifiers.stop.is_some() => {
                Exchange { value: nothing(), members: String::new(), outcome: nothing() }
            }
            Opcode::BarWarpSync => Exchange {
                value: nothing(),
                members: self.source(what, 0, Type::U32)?,
                outcome: nothing(),
            },
            _ => return Err(TranslateError::unsupported(what)),
        })
    }

    fn source(
        &mut self,
        what: &Instruction,
        index: usize,
        ty: Type,
    ) -> Result<String, TranslateError> {
        let sources = what.sources();
        let operand = sources.get(index).ok_or_else(|| TranslateError::operand(what, sources))?;
        self.read(what, operand, ty)
    }

    /// Returns the member mask at this index, or an empty text if the instruction has none.
    fn members(&mut self, what: &Instruction, index: usize) -> Result<String, TranslateError> {
        if what.sources().len() > index {
            self.source(what, index, Type::U32)
        } else {
            Ok(String::new())
        }
    }

    fn shuffle(&mut self, what: &Instruction) -> Result<Exchange, TranslateError> {
        let mode = what.modifiers.shuffle.map_or("idx", ShuffleMode::name);
        let value = self.source(what, 0, Type::U32)?;
        let by = self.source(what, 1, Type::U32)?;
        let range = self.source(what, 2, Type::U32)?;
        Ok(Exchange {
            value: format!("(ulong){value}"),
            members: self.members(what, 3)?,
            outcome: format!("ps_shfl(w, here, ps_shfl_{mode}(lane, {by}, {range}), x)"),
        })
    }

    fn vote(&mut self, what: &Instruction, ballot: &str) -> Result<Exchange, TranslateError> {
        let value = self.source(what, 0, Type::Pred)?;
        let members = self.members(what, 1)?;
        let outcome = match what.modifiers.vote {
            Some(VoteMode::Ballot) => format!("(ulong){ballot}"),
            Some(VoteMode::Any) => format!("(ulong)({ballot} != 0u)"),
            Some(VoteMode::Uni) => format!("(ulong)({ballot} == 0u || {ballot} == here)"),
            _ => format!("(ulong)({ballot} == here)"),
        };
        Ok(Exchange { value: format!("(ulong)({value} ? 1u : 0u)"), members, outcome })
    }

    /// Writes a vote that all threads reach together, and those directly behind it that can share
    /// its barrier.
    ///
    /// Each warp has three words for each vote of a row, and row number `n` uses those with the
    /// number `n % 3`. Each lane whose predicate is true sets its bit in front of the barrier, and
    /// all lanes read behind it. Before the barrier of row `n`, the first lane clears the words of
    /// row `n + 1`. These were last used in row `n - 2`. All lanes had read them when they came to
    /// the barrier of row `n - 1`, which the first lane has passed. The lanes set their bits for
    /// row `n + 1` behind the barrier of row `n`. So the words are clear then.
    fn vote_together(&mut self) -> Result<(), TranslateError> {
        self.votes.are_used = true;
        let (first, words) = (self.at, self.vote_words());
        let warps = self.threads_most() / WARP_SIZE;
        let body = self.function.body.as_deref().unwrap_or_default();
        let count = vote_rows::count(body, first).max(1);
        let votes: Vec<&Instruction> = body[first..first + count]
            .iter()
            .filter_map(|statement| match statement {
                Statement::Instruction(vote) => Some(vote),
                Statement::Label(_) => None,
            })
            .collect();
        let after = format!("(voted == {}u ? 0u : voted + {words}u)", (VOTE_WORDS - 1) * words);
        let clear = self.clear_votes(&after);
        self.line(clear.trim_end());
        let mut exchanges = Vec::new();
        for (index, vote) in votes.iter().enumerate() {
            self.at = first + index;
            let exchange = self.vote(vote, "ballot")?;
            let word = format!("ballots[voted + {}u + (lid >> 5)]", index * warps as usize);
            self.line(&format!(
                "if ({} != 0UL) atomic_or((volatile __local uint *)&{word}, 1u << (lid & 31u));",
                exchange.value
            ));
            exchanges.push((exchange, word));
        }
        self.barrier();
        for (index, (vote, (exchange, word))) in votes.iter().zip(exchanges).enumerate() {
            self.at = first + index;
            let members =
                if exchange.members.is_empty() { "0xffffffffu" } else { &exchange.members };
            self.line(&format!("{{ const uint here = {members} & ps_lanes(lid, threads);"));
            self.line(&format!("const uint ballot = {word} & here;"));
            self.line(&format!("const ulong y = {};", exchange.outcome));
            self.write_outcome(vote)?;
            self.line("}");
        }
        self.line(&format!("voted = {after};"));
        self.votes.written_to = first + votes.len();
        Ok(())
    }

    /// Declares two halves for the exchanged values, and three alternating sums for `bar.red`.
    pub(super) fn declare_exchange(&self, text: &mut String) {
        if self.uses_exchange {
            let words = 2 * self.threads_most();
            let _ = writeln!(text, "__local ps_word wv[{words}];\nuint turn = 0;");
        }
        if self.uses_sums {
            text.push_str("__local uint wr[3];\nuint third = 0;\n");
        }
    }

    pub(super) fn declare_votes(&self, text: &mut String) {
        if self.votes.are_used {
            let words = VOTE_WORDS * self.vote_words();
            let _ = writeln!(text, "__local uint ballots[{words}];\nuint voted = 0;");
        }
    }

    /// Clears what the first votes and the first `bar.red` add to.
    pub(super) fn clear_sums(&self, text: &mut String) {
        if self.is_machine || !self.uses_sums && !self.votes.are_used {
            return;
        }
        if self.uses_sums {
            text.push_str("if (lid == 0) wr[0] = 0;\n");
        }
        if self.votes.are_used {
            text.push_str(&self.clear_votes("0u"));
        }
        // What follows may be a branch on which threads part.
        text.push_str("barrier(CLK_LOCAL_MEM_FENCE);\nps_apart();\n");
    }

    /// Returns the number of words that the votes of a row have, in all warps.
    fn vote_words(&self) -> usize {
        self.votes.most * (self.threads_most() / WARP_SIZE) as usize
    }

    /// Returns the text with which each warp clears its words of a row.
    fn clear_votes(&self, from: &str) -> String {
        let warps = self.threads_most() / WARP_SIZE;
        match self.votes.most {
            1 => format!("if ((lid & 31u) == 0u) ballots[{from} + (lid >> 5)] = 0u;\n"),
            most => format!(
                "if ((lid & 31u) == 0u) for (uint i = 0; i < {most}u; i++) {{\n\
                 ballots[{from} + i * {warps}u + (lid >> 5)] = 0u;\n}}\n"
            ),
        }
    }

    fn reduce_warp(&mut self, what: &Instruction) -> Result<Exchange, TranslateError> {
        let value = self.source(what, 0, Type::U32)?;
        let members = self.source(what, 1, Type::U32)?;
        let name = what.modifiers.reduce.unwrap_or(Reduce::Add);
        let suffix = match name {
            Reduce::Min | Reduce::Max if what.ty().is_signed() => "_s",
            Reduce::Popc => return Err(TranslateError::unsupported(what)),
            _ => "",
        };
        if what.ty().is_float() || what.modifiers.abs || what.modifiers.nan {
            return Err(TranslateError::unsupported(what));
        }
        Ok(Exchange {
            value: format!("(ulong){value}"),
            members,
            outcome: format!("(ulong)ps_redux_{}{suffix}(w, here)", name.name()),
        })
    }

    /// Returns the predicate of `bar.red`, and the expression that turns its `sum`, of `all`
    /// threads, into the result.
    pub(super) fn reduction(
        &mut self,
        what: &Instruction,
    ) -> Result<(String, &'static str), TranslateError> {
        let predicate =
            what.sources().last().ok_or_else(|| TranslateError::operand(what, what.sources()))?;
        let predicate = self.read(what, predicate, Type::Pred)?;
        let text = match what.modifiers.reduce {
            Some(Reduce::Popc) => "sum",
            Some(Reduce::And) => "(sum == all)",
            Some(Reduce::Or) => "(sum != 0u)",
            _ => return Err(TranslateError::unsupported(what)),
        };
        Ok((predicate, text))
    }

    fn reduce_block(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let (predicate, text) = self.reduction(what)?;
        self.uses_sums = true;
        // No thread reads the sum of two meetings ago any more.
        self.line("if (lid == 0) wr[third == 2u ? 0u : third + 1u] = 0;");
        self.line(&format!("if ({predicate}) atomic_inc((volatile __local uint *)&wr[third]);"));
        self.barrier();
        self.line(
            "{ const uint sum = wr[third], all = threads; (void)all; third = third == 2u ? 0u : third + 1u;",
        );
        self.write_reduction(what, text)?;
        self.line("}");
        Ok(())
    }

    pub(super) fn write_reduction(
        &mut self,
        what: &Instruction,
        text: &str,
    ) -> Result<(), TranslateError> {
        let destination: &Operand = self.destination(what)?;
        let ty = if what.modifiers.reduce == Some(Reduce::Popc) { Type::U32 } else { Type::Pred };
        self.write(what, destination, ty, text)
    }
}
