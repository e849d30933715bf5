//! Writes a kernel as PTX.

mod values;

use std::collections::BTreeSet;

use super::emulate::parts;
use super::program::{
    Act, Atomic, Exchange, Fold, Meeting, Node, OWN, Program, REGISTERS, STRIDE, SUMS, Shuffle,
    Vote, WORDS, Width, bracket,
};
use super::rules;

/// The name of the kernel.
pub const NAME: &str = "kernel";

/// Returns the module of a kernel, or `None` if its brackets are not in order.
pub fn module(program: &Program) -> Option<String> {
    let tree = program.tree()?;
    let mut writer = Writer { text: String::new(), temporaries: 0 };
    writer.begin(program);
    writer.body(&tree, &Place { mask: "%here".to_owned(), turn: None });
    writer.end();
    let functions = if uses_calls(program) { rules::FUNCTIONS } else { "" };
    let mut counts = String::new();
    let masks: BTreeSet<usize> = program.ops.iter().filter_map(|op| bracket(&op.act)).collect();
    for id in turns(program).union(&masks) {
        counts.push_str(&format!(".reg .b32 %turn{id}, %turns{id}, %then{id}, %else{id};\n"));
    }
    Some(format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n{functions}\
         .visible .entry {NAME}(.param .u64 memory, .param .u32 parameter)\n{{\n\
         .shared .align 4 .b8 words[{}];\n\
         .reg .b64 %memory, %own, x, y, z;\n.reg .b32 %v<{REGISTERS}>, %thread, %lane, %block;\n\
         .reg .b32 %parameter, %here, %all, t, u;\n\
         .reg .b32 %t<{}>;\n.reg .pred %p<{}>, p, q;\n.reg .b16 h, i, j;\n\
         .reg .f32 f, g, e;\n.reg .f64 m, n, o;\n{counts}{}}}\n",
        WORDS * 4,
        writer.temporaries + 1,
        writer.temporaries + 1,
        writer.text
    ))
}

fn uses_calls(program: &Program) -> bool {
    program.ops.iter().any(|op| matches!(&op.act, Act::Compute { row, .. } if row.contains("call")))
}

/// Returns the numbers of the loops whose turns are counted or read.
fn turns(program: &Program) -> BTreeSet<usize> {
    let text = |op| format!("{op:?}");
    let mut all = BTreeSet::new();
    for op in &program.ops {
        if let Act::Loop { id, .. } = &op.act {
            all.insert(*id);
        }
        for part in text(&op.act).split("Turn(").skip(1) {
            all.extend(part.split(')').next().and_then(|id| id.parse::<usize>().ok()));
        }
    }
    all
}

/// What surrounds a statement.
struct Place {
    /// The register with the mask of the lanes that are here.
    mask: String,
    /// The number of the innermost loop.
    turn: Option<usize>,
}

struct Writer {
    text: String,
    temporaries: usize,
}

macro_rules! line {
    ($self:ident, $($argument:tt)*) => {{
        $self.text.push_str(&format!($($argument)*));
        $self.text.push('\n');
    }};
}
use line;

impl Writer {
    fn begin(&mut self, program: &Program) {
        line!(self, "ld.param.u64 %memory, [memory];\nld.param.u32 %parameter, [parameter];");
        line!(self, "mov.u32 %thread, %tid.x;\nmov.u32 %lane, %laneid;\nmov.u32 %block, %ctaid.x;");
        line!(self, "mov.u32 %all, words;\nmad.lo.u32 t, %block, {}, %thread;", program.block);
        line!(self, "cvta.to.global.u64 %memory, %memory;");
        line!(self, "mad.wide.u32 %own, t, {}, %memory;", STRIDE * 4);
        for register in 0..REGISTERS {
            line!(self, "ld.global.u32 %v{register}, [%own+{}];", (SUMS + register) * 4);
        }
        // The lanes of the warp that exist: as many as the block has threads from the first one on.
        line!(self, "sub.u32 t, %thread, %lane;\nsub.u32 t, {}, t;", program.block);
        line!(self, "min.u32 t, t, 32;\nsub.u32 t, 32, t;\nmov.u32 %here, -1;");
        line!(self, "shr.u32 %here, %here, t;");
        for id in turns(program) {
            line!(self, "mov.u32 %turn{id}, 0;");
        }
    }

    fn end(&mut self) {
        line!(self, "TELL:");
        for register in 0..REGISTERS {
            let at = (SUMS + REGISTERS + OWN + register) * 4;
            line!(self, "st.global.u32 [%own+{at}], %v{register};");
        }
        line!(self, "OVER: ret;");
    }

    fn body(&mut self, nodes: &[Node<'_>], place: &Place) {
        for node in nodes {
            self.statement(node, place);
        }
    }

    fn statement(&mut self, node: &Node<'_>, place: &Place) {
        match node.act {
            Act::If { id, condition, votes } => {
                let holds = self.condition(condition);
                if *votes {
                    line!(self, "vote.sync.ballot.b32 %then{id}, {holds}, {};", place.mask);
                    line!(self, "not.b32 t, %then{id};\nand.b32 %else{id}, t, {};", place.mask);
                }
                let has_other = !node.other.is_empty();
                let target = if has_other { "ELSE" } else { "END" };
                line!(self, "@!{holds} bra {target}{id};");
                let inside = |mask: &str| Place { mask: format!("%{mask}{id}"), turn: place.turn };
                self.body(&node.body, &inside("then"));
                if has_other {
                    line!(self, "bra END{id};\nELSE{id}:");
                    self.body(&node.other, &inside("else"));
                }
                line!(self, "END{id}:");
            }
            Act::Loop { id, turns, at_head, votes } => {
                let turns = self.value(*turns, false);
                line!(self, "and.b32 %turns{id}, {turns}, 3;\nmov.u32 %turn{id}, 0;");
                line!(self, "mov.b32 %then{id}, {};", place.mask);
                line!(self, "HEAD{id}:");
                if *at_head {
                    let more = self.more(*id, *votes);
                    line!(self, "@!{more} bra END{id};");
                }
                let inside = Place { mask: format!("%then{id}"), turn: Some(*id) };
                self.body(&node.body, &inside);
                line!(self, "NEXT{id}: add.u32 %turn{id}, %turn{id}, 1;");
                if *at_head {
                    line!(self, "bra HEAD{id};");
                } else {
                    let more = self.more(*id, *votes);
                    line!(self, "@{more} bra HEAD{id};");
                }
                line!(self, "END{id}:");
            }
            Act::Break { condition } => self.jump(condition, "END", place),
            Act::Continue { condition } => self.jump(condition, "NEXT", place),
            Act::Exit { condition, tells } => {
                let holds = self.condition(condition);
                line!(self, "@{holds} {};", if *tells { "bra TELL" } else { "exit" });
            }
            Act::Exchange { to, what, mask } => {
                let mask = self.mask(*mask, place);
                self.exchange(*to, what, &mask);
            }
            Act::MeetWarp { mask } => {
                let mask = self.mask(*mask, place);
                line!(self, "bar.warp.sync {mask};");
            }
            act => self.simple(act),
        }
    }

    /// Asks whether a loop has another turn.
    fn more(&mut self, id: usize, votes: bool) -> String {
        let more = self.predicate();
        line!(self, "setp.lt.u32 {more}, %turn{id}, %turns{id};");
        if votes {
            line!(self, "vote.sync.ballot.b32 %then{id}, {more}, %then{id};");
        }
        more
    }

    /// Leaves the innermost loop or its turn. Outside of loops, does nothing.
    fn jump(&mut self, condition: &super::program::Condition, to: &str, place: &Place) {
        let Some(id) = place.turn else { return };
        let holds = self.condition(condition);
        line!(self, "@{holds} bra {to}{id};");
    }

    fn simple(&mut self, act: &Act) {
        match act {
            Act::Compute { row, to, from, guard } => {
                let Some(rule) = rules::rule(row) else { return };
                let guard = guard.as_ref().map(|guard| self.condition(guard));
                let text = rules::text(rule);
                // A constant can only stand in an instruction that stands alone.
                let constants = text.matches(';').count() == 1 && !text.contains("call");
                let [a, b, c] = from.map(|value| self.value(value, constants));
                let text = text.replace("$a", &a).replace("$b", &b).replace("$c", &c);
                match guard {
                    // The guard is that of the one instruction.
                    Some(guard) if constants => {
                        line!(self, "@{guard} {}", text.replace("$d", &register(*to)));
                    }
                    Some(guard) => {
                        let result = self.temporary();
                        line!(self, "{}", text.replace("$d", &result));
                        line!(self, "@{guard} mov.b32 {}, {result};", register(*to));
                    }
                    None => line!(self, "{}", text.replace("$d", &register(*to))),
                }
            }
            Act::Barrier { guard: None } => line!(self, "bar.sync 0;"),
            Act::Barrier { guard: Some(guard) } => {
                let holds = self.condition(guard);
                line!(self, "@{holds} bar.sync 0;");
            }
            Act::Meet { how, to, condition } => {
                let holds = self.condition(condition);
                let to = register(*to);
                let result = self.predicate();
                match how {
                    Meeting::Count => line!(self, "bar.red.popc.u32 {to}, 0, {holds};"),
                    Meeting::And => line!(self, "bar.red.and.pred {result}, 0, {holds};"),
                    Meeting::Or => line!(self, "bar.red.or.pred {result}, 0, {holds};"),
                }
                if *how != Meeting::Count {
                    line!(self, "selp.b32 {to}, 1, 0, {result};");
                }
            }
            act => self.access(act),
        }
    }

    fn access(&mut self, act: &Act) {
        let own = |at: usize| format!("[%own+{}]", (SUMS + REGISTERS + at % OWN) * 4);
        match act {
            Act::Store { at, from, width } => {
                let at = self.place(*at);
                line!(self, "st.shared.{} {at}, {};", size(*width), register(*from));
            }
            Act::Load { to, at, width } => {
                let at = self.place(*at);
                line!(self, "ld.shared.{} {}, {at};", size(*width), register(*to));
            }
            Act::Reduce { how, from } => {
                let at = *how as usize * 4;
                let how = folding(*how);
                line!(self, "red.shared.{how} [%all+{at}], {};", register(*from));
            }
            Act::ReduceAll { how, from } => {
                let at = *how as usize * 4;
                let how = folding(*how);
                line!(self, "red.global.{how} [%memory+{at}], {};", register(*from));
            }
            Act::StoreOwn { at, from, width } => {
                line!(self, "st.global.{} {}, {};", size(*width), own(*at), register(*from));
            }
            Act::LoadOwn { to, at, width } => {
                line!(self, "ld.global.{} {}, {};", size(*width), register(*to), own(*at));
            }
            Act::AtomicOwn { how, to, at, from: [a, b] } => {
                let (to, a, b, at) = (register(*to), register(*a), register(*b), own(*at));
                match how {
                    Atomic::Fold(how) => {
                        line!(self, "atom.global.{} {to}, {at}, {a};", folding(*how))
                    }
                    Atomic::Exchange => line!(self, "atom.global.exch.b32 {to}, {at}, {a};"),
                    Atomic::Swap => line!(self, "atom.global.cas.b32 {to}, {at}, {a}, {b};"),
                    Atomic::Increment => line!(self, "atom.global.inc.u32 {to}, {at}, {a};"),
                    Atomic::Decrement => line!(self, "atom.global.dec.u32 {to}, {at}, {a};"),
                }
            }
            _ => {}
        }
    }

    fn exchange(&mut self, to: u8, what: &Exchange, mask: &str) {
        let to = register(to);
        match what {
            Exchange::Shuffle { mode, from, lane, segment, holds } => {
                let name = match mode {
                    Shuffle::Up => "up",
                    Shuffle::Down => "down",
                    Shuffle::Butterfly => "bfly",
                    Shuffle::Index => "idx",
                };
                let lane = self.value(*lane, true);
                let [clamp, segments] = parts(*mode, *segment);
                let (last, from) = (segments << 8 | clamp, register(*from));
                if *holds {
                    let is_in = self.predicate();
                    line!(
                        self,
                        "shfl.sync.{name}.b32 {to}|{is_in}, {from}, {lane}, {last}, {mask};"
                    );
                    line!(self, "@{is_in} add.u32 {to}, {to}, 1;");
                } else {
                    line!(self, "shfl.sync.{name}.b32 {to}, {from}, {lane}, {last}, {mask};");
                }
            }
            Exchange::Lead { from } => {
                let (all, holds) = (self.temporary(), self.predicate());
                line!(self, "setp.eq.u32 {holds}, %lane, %lane;");
                line!(self, "vote.sync.ballot.b32 {all}, {holds}, {mask};");
                line!(self, "bfind.u32 {all}, {all};");
                line!(self, "shfl.sync.idx.b32 {to}, {}, {all}, 31, {mask};", register(*from));
            }
            Exchange::Vote { mode, condition } => {
                let (holds, result) = (self.condition(condition), self.predicate());
                let name = match mode {
                    Vote::Ballot => {
                        return line!(self, "vote.sync.ballot.b32 {to}, {holds}, {mask};");
                    }
                    Vote::All => "all",
                    Vote::Any => "any",
                    Vote::Uniform => "uni",
                };
                line!(self, "vote.sync.{name}.pred {result}, {holds}, {mask};");
                line!(self, "selp.b32 {to}, 1, 0, {result};");
            }
            Exchange::Match { all, from } => {
                let name = if *all { "all" } else { "any" };
                line!(self, "match.{name}.sync.b32 {to}, {}, {mask};", register(*from));
            }
            Exchange::Reduce { how, from } => {
                let how = folding(*how);
                line!(self, "redux.sync.{how} {to}, {}, {mask};", register(*from));
            }
        }
    }
}

fn register(at: u8) -> String {
    format!("%v{}", usize::from(at) % REGISTERS)
}

fn folding(how: Fold) -> &'static str {
    match how {
        Fold::Add => "add.u32",
        Fold::MinSigned => "min.s32",
        Fold::MaxUnsigned => "max.u32",
        Fold::And => "and.b32",
        Fold::Or => "or.b32",
        Fold::Xor => "xor.b32",
    }
}

fn size(width: Width) -> &'static str {
    match width {
        Width::Byte => "u8",
        Width::ByteSigned => "s8",
        Width::Half => "u16",
        Width::HalfSigned => "s16",
        Width::Word => "u32",
    }
}
