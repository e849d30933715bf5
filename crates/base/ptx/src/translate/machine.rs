//! State machines, for kernels in which only some threads reach a barrier or a warp instruction.
//!
//! Every thread runs until its next meeting, records what it waits for, and goes to one barrier
//! that all threads reach. Then each thread checks whether the threads that it waits for are there.
//! If they are, the thread continues; otherwise it stays. This is a round. A thread that has ended
//! takes part in every round. If no thread can continue in a round, threads wait for each other
//! forever: that is a fault, and the kernel ends.
//!
//! Stops that the translation inserts (`order.rs`) are meetings of the lanes that came there in the
//! same round. At a stop where lanes rejoin, the lanes that are there stay as long as another lane
//! of the warp is stopped on a path that leads there. Each stop has the number of its place in the
//! tree of post-dominators (`spot`), so that the places on such paths form a range of numbers. If
//! no lane of a warp moves for a round, the lanes no longer stay: the other lanes may wait for work
//! that these must do.
//!
//! A thread continues by the `switch` of the states only behind a meeting, and where it jumps back.
//! It jumps forward by `goto`. So the `switch` has few cases, which is what the time to compile
//! depends on: CUB's selection has 83 cases instead of 513, and takes 10 s instead of 38 s. Every
//! loop leads through the `switch`, so the paths of the kernel have the form of loops with one
//! entry, which all compilers know.
//!
//! A thread's key says what it waits for: 0 if the thread has ended, otherwise the kind of the
//! meeting. `.sync` instructions meet by kind and mask, at any place. Older instructions meet the
//! threads that stopped at the same place in the same round.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::control::{Fault, name_number};
use super::effects::is_meeting;
use super::error::TranslateError;
use super::kept::KeptRegisters;
use super::warp::Exchange;
use super::writer::Writer;
use crate::ir::{BARRIERS, Function, Instruction, Opcode, Statement, Stop, Type, WARP_SIZE};

/// First key of meetings at one place; lower keys are those of meetings by kind.
const FIRST_PLACE: u32 = 0x1000;

/// Key of barrier 0; the keys of the other barriers follow.
const FIRST_BARRIER: u32 = 0x100;

/// Key of a thread that arrives at a barrier and does not wait.
const ARRIVES: u32 = 0xff;

/// Number of rounds in which all threads only poll shared memory, after which the kernel ends with
/// a fault. A round takes at least 100 ns, so this is at least one second. No other block can store
/// the value, so longer waiting is useless.
const POLLS_MAX: u32 = 10_000_000;

/// Whether the kernel has stops of this kind that the translation inserted.
fn has_stops(function: &Function, wanted: Stop) -> bool {
    function.body.iter().flatten().any(
        |statement| matches!(statement, Statement::Instruction(what) if what.modifiers.stop == Some(wanted)),
    )
}

/// Whether some barrier waits for a number of threads.
fn has_counts(function: &Function) -> bool {
    function.body.iter().flatten().any(|statement| match statement {
        Statement::Instruction(what) => match what.opcode {
            Opcode::BarArrive => true,
            Opcode::BarSync => what.sources().len() > 1,
            Opcode::BarRed => what.sources().len() > 2,
            _ => false,
        },
        Statement::Label(_) => false,
    })
}

/// Declares the machine's local memory and variables.
pub(super) fn declare(function: &Function, threads: u32, text: &mut String) {
    let _ = writeln!(
        text,
        "__local ps_word wv[{threads}];\n__local uint wk[{threads}], wm[{threads}];"
    );
    if has_counts(function) {
        let warps = threads.div_ceil(WARP_SIZE);
        let _ = writeln!(text, "__local uint bl[{}], we[{warps}];", warps * BARRIERS);
    }
    if has_stops(function, Stop::Rejoin) {
        let _ =
            writeln!(text, "__local uint wp[{threads}], wl[{}];", 2 * threads.div_ceil(WARP_SIZE));
        text.push_str("uint spot = 0, low = 0, high = 0;\n");
    }
    if has_stops(function, Stop::Yield) {
        text.push_str("__local uint busy;\nbool asks = false;\n");
    }
    let _ = writeln!(
        text,
        "__local uint bn[{BARRIERS}], bt[{BARRIERS}], bq[{BARRIERS}], bd[{BARRIERS}], bs[{BARRIERS}], ba[{BARRIERS}], gone, moved;"
    );
    text.push_str("uint pc = 0, key = 0, member = 0, need = 0, round = 0; ulong value = 0, outcome = 0; bool waits = false, fresh = false, together = false, over = false, stuck = false;\n");
}

impl Writer<'_> {
    pub(super) fn write_machine(&mut self) -> Result<(), TranslateError> {
        self.kept = KeptRegisters::of(self.function, self.flow);
        self.uses_barriers = true;
        self.uses_faults = true;
        self.next_state = u32::try_from(self.flow.blocks.len()).unwrap_or(u32::MAX);
        let all = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE";
        self.line(&format!("for (uint i = lid; i < {BARRIERS}u; i += threads) {{ bn[i] = 0; bt[i] = 0; bq[i] = 0; bd[i] = 0; }}"));
        self.line("wk[lid] = 0; wm[lid] = 0; if (lid == 0) { gone = 0; moved = 0; }");
        if has_counts(self.function) {
            self.line(&format!("if ((lid & 31u) == 0) {{ we[lid >> 5] = ~ps_lanes(lid, threads); for (uint i = 0; i < {BARRIERS}u; i++) bl[(lid >> 5) * {BARRIERS}u + i] = 0; }}"));
        }
        if has_stops(self.function, Stop::Rejoin) {
            let warps = self.threads_most().div_ceil(WARP_SIZE);
            self.line(&format!(
                "wp[lid] = 0; for (uint i = lid; i < {}u; i += threads) wl[i] = 0;",
                2 * warps
            ));
        }
        if has_stops(self.function, Stop::Yield) {
            self.line("if (lid == 0) busy = 0;");
        }
        if let Some(hold) = self.kept.hold() {
            self.line(&hold);
        }
        self.line(&format!("barrier({all});"));
        self.line("for (;;) {\nround++;\nif (!waits) for (;;) switch (pc) {");
        let body = self.function.body.as_deref().unwrap_or_default();
        for (number, block) in
            self.flow.blocks.iter().enumerate().filter(|(number, _)| self.flow.reached[*number])
        {
            // The `switch` leads here at the begin, and from jumps back.
            let is_case = number == 0 || block.predecessors.iter().any(|from| *from >= number);
            let case = if is_case { format!(" case {number}:;") } else { String::new() };
            self.line(&format!("S{number}:;{case}"));
            for (index, statement) in body.iter().enumerate().take(block.end).skip(block.start) {
                self.at = index;
                if let Statement::Instruction(instruction) = statement {
                    if is_meeting(instruction.opcode) {
                        self.write_meeting(instruction)?
                    } else {
                        self.guarded(instruction)?
                    }
                }
            }
            let next = number + 1;
            let goes_on = next != self.flow.exit() && block.successors.contains(&next);
            let text = if goes_on { format!("goto S{next};") } else { self.leaving() };
            self.line(&text);
        }
        self.line("default: END:; key = 0; waits = true; fresh = true; goto MEET;\n}\nMEET:;");
        self.write_round(all);
        self.line("}");
        self.write_end(all);
        debug_assert!(self.has_all_states(), "{}: a jump to no state", self.entry.name);
        Ok(())
    }

    /// Whether every jump leads to a state that is there once. A thread would end at a jump to a
    /// number without a case, as if the kernel had ended.
    fn has_all_states(&self) -> bool {
        let all = |before: &str, behind: &str| {
            let numbers = |text: &str| -> Vec<u32> {
                let found = text.match_indices(before).map(|(at, _)| &text[at + before.len()..]);
                let number = |rest: &str| {
                    let (digits, rest) = rest.split_at(rest.find(|it: char| !it.is_ascii_digit())?);
                    rest.starts_with(behind).then(|| digits.parse().ok())?
                };
                found.filter_map(number).collect()
            };
            self.lines.iter().flat_map(|line| numbers(&line.text)).collect::<Vec<_>>()
        };
        let once = |places: Vec<u32>| {
            let different: HashSet<_> = places.iter().copied().collect();
            (different.len() == places.len()).then_some(different)
        };
        let (Some(cases), Some(labels)) = (once(all("case ", ":;")), once(all("S", ":;"))) else {
            return false;
        };
        all("pc = ", ";").iter().all(|to| cases.contains(to))
            && all("goto S", ";").iter().all(|to| labels.contains(to))
    }

    /// Writes the round between two runs, in which all threads take part.
    fn write_round(&mut self, all: &str) {
        let counts = has_counts(self.function);
        let (rejoins, yields) =
            (has_stops(self.function, Stop::Rejoin), has_stops(self.function, Stop::Yield));
        self.line("if (fresh) {\nwk[lid] = key; wm[lid] = member; wv[lid] = (ps_word)value;");
        if rejoins {
            self.line("wp[lid] = key == 0u ? 0u : spot;");
        }
        self.line("if (key == 0u) atomic_inc((volatile __local uint *)&gone);");
        if counts {
            self.line("if (key == 0u) atomic_or((volatile __local uint *)&we[lid >> 5], 1u << (lid & 31u));");
        }
        self.line(&format!("if (key >= {FIRST_BARRIER}u && key < {FIRST_PLACE}u || key == {ARRIVES}u) {{ atomic_inc((volatile __local uint *)&bn[member]); bq[member] = need; if (value) atomic_inc((volatile __local uint *)&bt[member]);"));
        if counts {
            self.line(&format!(
                "atomic_or((volatile __local uint *)&bl[(lid >> 5) * {BARRIERS}u + member], 1u << (lid & 31u));"
            ));
        }
        self.line("}");
        self.line(&format!("fresh = false;\n}}\nbarrier({all});\nbool goes = key == {ARRIVES}u;"));
        // Meetings of a warp.
        self.line(&format!("if (waits && key != 0u && key != {ARRIVES}u && (key < {FIRST_BARRIER}u || key >= {FIRST_PLACE}u)) {{"));
        self.line("const uint lane = lid & 31u, first = lid & ~31u; uint here = 0;");
        // Lanes that rejoin stay while other lanes of their warp are on the way and the warp has
        // moved in the last round.
        let stays = if rejoins {
            let warps = self.threads_most().div_ceil(WARP_SIZE);
            self.line(&format!("const bool stays = high != 0u && wl[(round & 1u ? 0u : {warps}u) + (lid >> 5)] == round - 1u && ps_is_between(wp + first, min(32u, threads - first), low, high);"));
            "!stays && "
        } else {
            ""
        };
        self.line(&format!("if ({stays}ps_gather(wk + first, wm + first, min(32u, threads - first), lane, member, together, &here)) {{\ngoes = true;"));
        self.line("__local const ps_word *w = wv + first; const ulong x = w[lane];\nswitch (pc) {");
        for (state, outcome) in std::mem::take(&mut self.outcomes) {
            self.line(&format!("case {state}: outcome = {outcome}; break;"));
        }
        self.line("default: break;\n}\n}\n}");
        // Barriers of the block: one thread checks them for all.
        self.line(&format!("if (lid == 0) for (uint i = 0; i < {BARRIERS}u; i++) {{\nuint wanted = bq[i] != 0u ? bq[i] : threads - gone;\nbd[i] = 0;"));
        self.line("uint came = bn[i];");
        if counts {
            self.line(&format!(
                "if (came != 0u && bq[i] != 0u) came += ps_lanes_without(bl + i, we, threads, {BARRIERS}u);"
            ));
        }
        self.line("if (bn[i] != 0u && came >= wanted) { bd[i] = 1; bs[i] = bt[i]; ba[i] = bn[i]; bn[i] = 0; bt[i] = 0; moved = round;");
        if counts {
            self.line(&format!(
                "for (uint warp = 0; warp < threads; warp += 32u) bl[(warp >> 5) * {BARRIERS}u + i] = 0;"
            ));
        }
        self.line("}\n}");
        let mut went = String::from("moved = round;");
        if rejoins {
            let warps = self.threads_most().div_ceil(WARP_SIZE);
            went.push_str(&format!(" wl[(round & 1u ? {warps}u : 0u) + (lid >> 5)] = round;"));
        }
        if yields {
            went.push_str(" if (!asks) busy = round;");
        }
        let went = if rejoins || yields { format!("{{ {went} }}") } else { went };
        self.line(&format!("if (goes) {went}\nover = gone == threads;\nbarrier({all});"));
        self.line(&format!("if (waits && key >= {FIRST_BARRIER}u && key < {FIRST_PLACE}u && bd[member]) {{ goes = true; outcome = (ulong)bs[member] | (ulong)ba[member] << 32; }}"));
        self.write_exit(rejoins, yields);
        self.line("if (goes) waits = false;");
    }

    /// Writes the only way out of the rounds, which all threads take together: all have ended, or
    /// none can continue. A device's compiler is wrong more easily about a loop with two exits
    /// (`closing.rs`).
    fn write_exit(&mut self, rejoins: bool, yields: bool) {
        // Lanes that stay continue in the next round.
        let mut stands = String::from(if rejoins {
            "moved != round && moved + 1u != round"
        } else {
            "moved != round"
        });
        if rejoins {
            let warps = self.threads_most().div_ceil(WARP_SIZE);
            self.line(&format!("if (goes && key >= {FIRST_BARRIER}u && key < {FIRST_PLACE}u) wl[(round & 1u ? {warps}u : 0u) + (lid >> 5)] = round;"));
        }
        if yields {
            self.line(&format!(
                "if (goes && key >= {FIRST_BARRIER}u && key < {FIRST_PLACE}u) busy = round;"
            ));
            stands = format!("({stands}) || round - busy > {POLLS_MAX}u");
        }
        self.line(&format!("stuck = {stands};\nif (over | stuck) break;"));
    }

    /// Writes what follows the rounds: the fault, if no thread could continue.
    fn write_end(&mut self, all: &str) {
        let is_named =
            has_stops(self.function, Stop::Rejoin) || has_stops(self.function, Stop::Yield);
        let (code, address) = match is_named {
            true => (Fault::Stuck as u64, format!("{:#x}UL", name_number(&self.entry.name))),
            false => (Fault::Trap as u64, String::from("0UL")),
        };
        self.line(&format!(
            "barrier({all});\nif (!over && lid == 0) ps_fault(AT(control), {code}u, {address}, 0u);"
        ));
    }

    /// Writes a meeting: the thread stops here, and continues behind it.
    fn write_meeting(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let (behind, skipped) = (self.next_state, self.next_state + 1);
        self.next_state += 2;
        if let Some(guard) = what.guard {
            let not = if guard.negated { "" } else { "!" };
            let name = self.name(guard.register);
            self.line(&format!("if ({not}{name}) goto S{skipped};"));
        }
        self.record_stop(what);
        let mut sum = "";
        match what.opcode {
            Opcode::BarSync | Opcode::BarRed | Opcode::BarArrive => {
                sum = self.wait_at_barrier(what)?;
            }
            _ => {
                let Exchange { value, members, outcome } = self.exchange(what)?;
                let by_kind = !members.is_empty();
                let key = if by_kind { key_by_kind(what) } else { FIRST_PLACE + behind };
                let members = if by_kind { &members } else { "0u" };
                self.line(&format!(
                    "key = {key}u; value = {value}; member = {members}; together = {by_kind};"
                ));
                self.outcomes.push((behind, outcome));
            }
        }
        self.line(&format!(
            "pc = {behind}; waits = true; fresh = true; goto MEET;\ncase {behind}:;"
        ));
        match what.opcode {
            Opcode::BarSync | Opcode::BarArrive | Opcode::BarWarpSync => {}
            Opcode::BarRed => {
                self.line(
                    "{ const uint sum = (uint)outcome, all = (uint)(outcome >> 32); (void)all;",
                );
                self.write_reduction(what, sum)?;
                self.line("}");
            }
            _ => {
                self.line("{ const ulong y = outcome;");
                self.write_outcome(what)?;
                self.line("}");
            }
        }
        if what.guard.is_some() {
            self.line(&format!("S{skipped}:;"));
        }
        Ok(())
    }

    /// Records the place where the thread stops, for lanes that stay until it comes.
    fn record_stop(&mut self, what: &Instruction) {
        let (rejoins, yields) =
            (has_stops(self.function, Stop::Rejoin), has_stops(self.function, Stop::Yield));
        if rejoins {
            let (enters, leaves) = self.joins.interval(self.flow.block_of[self.at]);
            let asks = matches!(what.modifiers.stop, Some(Stop::Yield | Stop::Pause));
            let spot = if asks { 0 } else { enters };
            let (low, high) =
                if what.modifiers.stop == Some(Stop::Rejoin) { (enters, leaves) } else { (0, 0) };
            self.line(&format!("spot = {spot}u; low = {low}u; high = {high}u;"));
        }
        // A stop inside a loop that waits is part of the poll.
        if yields && what.modifiers.stop != Some(Stop::Order) {
            self.line(&format!("asks = {};", what.modifiers.stop == Some(Stop::Yield)));
        }
    }

    fn wait_at_barrier(&mut self, what: &Instruction) -> Result<&'static str, TranslateError> {
        let sources = what.sources();
        let reduces = what.opcode == Opcode::BarRed;
        let plain = if reduces { sources.len().saturating_sub(1) } else { sources.len() };
        let number = match sources.first() {
            Some(operand) if plain > 0 => self.read(what, operand, Type::U32)?,
            _ => String::from("0u"),
        };
        let need =
            if plain > 1 { self.read(what, &sources[1], Type::U32)? } else { String::from("0u") };
        let (value, sum) = if reduces {
            let (predicate, sum) = self.reduction(what)?;
            (format!("({predicate} ? 1UL : 0UL)"), sum)
        } else {
            (String::from("0UL"), "")
        };
        let key = if what.opcode == Opcode::BarArrive {
            format!("{ARRIVES}u")
        } else {
            format!("{FIRST_BARRIER}u + member")
        };
        self.line(&format!(
            "member = ({number}) & {}u; need = {need}; value = {value}; key = {key};",
            BARRIERS - 1
        ));
        Ok(sum)
    }
}

/// Returns the key of a meeting by kind. `.sync` instructions of one kind and mode meet each other.
fn key_by_kind(what: &Instruction) -> u32 {
    let mode = match what.opcode {
        Opcode::Shfl => what.modifiers.shuffle.map_or(0, |mode| mode as u32),
        Opcode::Vote | Opcode::Match => what.modifiers.vote.map_or(0, |mode| mode as u32),
        Opcode::Redux => what.modifiers.reduce.map_or(0, |mode| mode as u32),
        _ => 0,
    };
    let family = match what.opcode {
        Opcode::Shfl => 1,
        Opcode::Vote => 2,
        Opcode::Match => 3,
        Opcode::Redux => 4,
        Opcode::Elect => 5,
        _ => 6,
    };
    family * 16 + mode
}
