//! A row of the table, compiled so that an instruction can be compared with it.

use super::row::FormRow;
use crate::ir::{
    Atomic, BoolOp, Cache, Compare, FloatTest, Geometry, Half, Modifiers, Opcode, PermuteMode,
    Reduce, Rounding, Scope, Semantics, ShiftMode, ShuffleMode, Space, Type, VoteMode,
};

/// Returns the words of a class, separated by `|`, or `None` if no class has that name.
///
/// `HINT` is a special case: it takes any number of words that start with one of its prefixes.
pub fn class(name: &str) -> Option<&'static str> {
    Some(match name {
        "INT" => "u16|u32|u64|s16|s32|s64",
        "INT32" => "u32|s32|u64|s64",
        "BITS" => "b16|b32|b64",
        "ANY" => "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64",
        "MEM" => "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64",
        "CVTINT" => "u8|u16|u32|u64|s8|s16|s32|s64",
        "RND" => "rn|rz|rm|rp",
        "IRND" => "rni|rzi|rmi|rpi",
        "CMP" => "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
        "BOOL" => "and|or|xor",
        "VEC" => "v2|v4|v8",
        "SPACE" => {
            "global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
        }
        "SEM" => "weak|relaxed|acquire|release|acq_rel|sc|volatile|mmio",
        "SCOPE" => "cta|cluster|gpu|sys",
        "CACHE" => "ca|cg|cs|lu|cv|wb|wt",
        "HINT" => "L1::|L2::|level::",
        "SHFL" => "up|down|bfly|idx",
        "GEOM" => "1d|2d|3d|a1d|a2d|cube|acube",
        "SGEOM" => "1d|2d|3d|a1d|a2d",
        "MODE" => "f4e|b4e|rc8|ecl|ecr|rc16",
        "TEST" => "finite|infinite|number|notanumber|normal|subnormal",
        "CLAMP" => "trap|clamp|zero",
        _ => return None,
    })
}

/// A place where a form has a suffix.
#[derive(Debug)]
struct Slot {
    optional: bool,
    words: Vec<&'static str>,
    /// Whether the slot takes any number of words that start with one of `words`.
    is_hint: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeRule {
    /// Type of the first suffix.
    First,
    /// Type of the last suffix.
    Last,
    /// An integer of twice the width of the first type suffix.
    Wide,
    Exactly(Type),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandKind {
    /// A register, or a number if the operand is read.
    Value,
    /// The same as [`Self::Value`], or a vector if the instruction has `.v2`, `.v4` or `.v8`.
    VectorOrValue,
    /// A value, the address of a variable, or a vector that packs or unpacks bits (`mov`).
    Symbol,
    /// `{a, b, c, d}`: the result of a texture instruction.
    Texel,
    /// A memory operand: `[...]`
    Address,
    /// A texture operand: `[texture, {x, y}]`
    Texture,
    /// `[texture]`, the operand of `txq`.
    Handle,
    Label,
    /// The label of a `.branchtargets` list.
    Targets,
    /// Function and arguments of a call.
    Call,
    /// An integer in the text.
    Immediate,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OperandForm {
    pub(crate) kind: OperandKind,
    pub(crate) rule: TypeRule,
    /// Whether the register may be wider than the type.
    pub(crate) relaxed: bool,
    pub(crate) optional: bool,
    pub(crate) negatable: bool,
    pub(crate) written: bool,
    /// Whether this is the second destination, written behind a `|`.
    pub(crate) second: bool,
}

/// A compiled row of the table.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) row: FormRow,
    slots: Vec<Slot>,
    pub(crate) operands: Vec<OperandForm>,
}

/// The meaning of an instruction's suffixes.
#[derive(Debug, Default)]
pub(crate) struct Suffixes {
    pub(crate) modifiers: Modifiers,
    pub(crate) types: Vec<Type>,
}

impl Form {
    /// Compiles a row. Panics if the row is malformed, which tests exclude.
    pub(crate) fn compile(row: &FormRow) -> Self {
        let operands = row.operands.split_whitespace().map(operand_form).collect();
        Self { row: *row, slots: slots(row.suffixes), operands }
    }

    /// Returns the meaning of `words` (the suffixes of an instruction) in this form, or `None` if
    /// they do not fit the form.
    pub(crate) fn suffixes(&self, words: &[&str]) -> Option<Suffixes> {
        let mut used = vec![false; self.slots.len()];
        let mut found = Suffixes::default();
        for word in words {
            let taken = self.slots.iter().enumerate().find_map(|(index, slot)| {
                if slot.is_hint {
                    return slot
                        .words
                        .iter()
                        .any(|start| word.starts_with(start))
                        .then_some((index, ""));
                }
                let known = slot.words.iter().find(|known| !used[index] && *known == word)?;
                Some((index, *known))
            });
            let (index, known) = taken?;
            used[index] = true;
            if !known.is_empty() {
                apply(self.row.opcode, known, &mut found);
            }
        }
        let complete = self.slots.iter().zip(&used).all(|(slot, used)| slot.optional || *used);
        complete.then_some(found)
    }
}

fn slots(suffixes: &'static str) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut rest = suffixes;
    while !rest.is_empty() {
        let optional = rest.starts_with('{');
        let (group, behind) = if optional {
            rest[1..].split_once('}').expect("a row's braces are closed")
        } else if rest.starts_with(".(") {
            rest.split_at(rest.find(')').expect("a row's parentheses are closed") + 1)
        } else {
            rest.split_at(rest[1..].find(['.', '{']).map_or(rest.len(), |at| at + 1))
        };
        rest = behind;
        // A group may hold two words that belong together, such as `{.xorsign.abs}`. Each gets a
        // slot.
        let mut inside = group;
        while let Some(word) = inside.strip_prefix('.') {
            let end = if word.starts_with('(') {
                word.find(')').map(|at| at + 1)
            } else {
                word.find('.')
            };
            let (word, behind) = word.split_at(end.unwrap_or(word.len()));
            inside = behind;
            let word = word.trim_start_matches('(').trim_end_matches(')');
            let words =
                word.split('|').flat_map(|word| class(word).unwrap_or(word).split('|')).collect();
            slots.push(Slot { optional, words, is_hint: word == "HINT" });
        }
        assert!(inside.is_empty(), "a row's suffix starts with a dot: {suffixes}");
    }
    slots
}

fn operand_form(text: &str) -> OperandForm {
    let (name, ty) = text.split_once(':').expect("a row's operand has a type");
    let second = name.starts_with('|');
    let name = name.trim_start_matches('|');
    let negatable = name.starts_with('!');
    let name = name.trim_start_matches('!');
    let optional = ty.ends_with('?');
    let ty = ty.trim_end_matches('?');
    let relaxed = ty.contains('~');
    let (kind, rule) = match ty.trim_start_matches('~') {
        "[]" => (OperandKind::Address, "b64"),
        "tex" => (OperandKind::Texture, "b64"),
        "handle" => (OperandKind::Handle, "b64"),
        "label" => (OperandKind::Label, "b64"),
        "targets" => (OperandKind::Targets, "b64"),
        "call" => (OperandKind::Call, "b64"),
        "imm" => (OperandKind::Immediate, "b64"),
        "symbol" => (OperandKind::Symbol, "t"),
        "texel" => (OperandKind::Texel, "t"),
        "v~t" | "vt" => (OperandKind::VectorOrValue, "t"),
        plain => (OperandKind::Value, plain),
    };
    let rule = match rule {
        "t" => TypeRule::First,
        "s" => TypeRule::Last,
        "w" => TypeRule::Wide,
        exact => {
            TypeRule::Exactly(Type::from_name(exact).expect("a row's operand has a type of PTX"))
        }
    };
    OperandForm {
        kind,
        rule,
        relaxed,
        optional,
        negatable,
        written: matches!(name, "d" | "p" | "q"),
        second,
    }
}

/// Records the meaning of a suffix of this opcode.
fn apply(opcode: Opcode, word: &'static str, found: &mut Suffixes) {
    if let Some(ty) = Type::from_name(word) {
        found.types.push(ty);
        return;
    }
    let modifiers = &mut found.modifiers;
    if apply_by_opcode(opcode, word, modifiers) {
        return;
    }
    match word {
        "sat" => modifiers.sat = true,
        "ftz" => modifiers.ftz = true,
        "satfinite" => modifiers.satfinite = true,
        "relu" => modifiers.relu = true,
        "approx" => modifiers.approx = true,
        "full" => modifiers.full = true,
        "NaN" => modifiers.nan = true,
        "xorsign" => modifiers.xorsign = true,
        "abs" => modifiers.abs = true,
        "noftz" => modifiers.noftz = true,
        "cc" => modifiers.carry = true,
        "to" => modifiers.to = true,
        "nc" => modifiers.non_coherent = true,
        "volatile" => modifiers.volatile = true,
        "l" => modifiers.left = true,
        "shiftamt" => modifiers.shiftamt = true,
        "sync" => modifiers.sync = true,
        "aligned" => modifiers.aligned = true,
        "uni" => modifiers.uniform = true,
        "level" => modifiers.level = true,
        "grad" => modifiers.grad = true,
        "gl" => modifiers.scope = Some(Scope::Gpu),
        "v2" => modifiers.vector = 2,
        "v4" => modifiers.vector = 4,
        "v8" => modifiers.vector = 8,
        "shared::cluster" => (modifiers.space, modifiers.cluster) = (Some(Space::Shared), true),
        "global" => modifiers.space = Some(Space::Global),
        "const" => modifiers.space = Some(Space::Const),
        "shared" | "shared::cta" => modifiers.space = Some(Space::Shared),
        "local" => modifiers.space = Some(Space::Local),
        "param" | "param::entry" | "param::func" => modifiers.space = Some(Space::Param),
        _ => apply_named(word, modifiers),
    }
}

/// Records a word whose meaning depends on the opcode. Returns false if the word is not such a
/// word.
fn apply_by_opcode(opcode: Opcode, word: &'static str, modifiers: &mut Modifiers) -> bool {
    match opcode {
        Opcode::Setp | Opcode::Set => {
            if let Some(bool_op) = BoolOp::from_name(word) {
                modifiers.bool_op = Some(bool_op);
            } else if let Some(compare) = Compare::from_name(word) {
                modifiers.compare = Some(compare);
            } else {
                return false;
            }
        }
        // Each operand of `cp.async` has its own space.
        Opcode::CpAsync if matches!(word, "global" | "shared" | "shared::cta") => {}
        Opcode::Lop3 if BoolOp::from_name(word).is_some() => {
            modifiers.bool_op = BoolOp::from_name(word)
        }
        Opcode::Atom | Opcode::Red if Atomic::from_name(word).is_some() => {
            modifiers.atomic = Atomic::from_name(word)
        }
        Opcode::Redux | Opcode::BarRed | Opcode::Vabsdiff2 | Opcode::Vabsdiff4
            if Reduce::from_name(word).is_some() =>
        {
            modifiers.reduce = Reduce::from_name(word)
        }
        Opcode::Vote | Opcode::Match if VoteMode::from_name(word).is_some() => {
            modifiers.vote = VoteMode::from_name(word)
        }
        Opcode::Shfl if ShuffleMode::from_name(word).is_some() => {
            modifiers.shuffle = ShuffleMode::from_name(word)
        }
        Opcode::Shf | Opcode::Bmsk | Opcode::Szext => match ShiftMode::from_name(word) {
            Some(mode) => modifiers.shift = Some(mode),
            None => return false,
        },
        Opcode::Txq | Opcode::Suld | Opcode::Sust | Opcode::Tld4 if is_query(opcode, word) => {
            modifiers.query.push(word);
        }
        _ => return false,
    }
    true
}

/// Records a word whose meaning is the same with all opcodes.
fn apply_named(word: &'static str, modifiers: &mut Modifiers) {
    if let Some(rounding) = Rounding::from_name(word) {
        modifiers.rounding = Some(rounding);
    } else if let Some(semantics) = Semantics::from_name(word) {
        modifiers.semantics = Some(semantics);
    } else if let Some(scope) = Scope::from_name(word) {
        modifiers.scope = Some(scope);
    } else if let Some(cache) = Cache::from_name(word) {
        modifiers.cache = Some(cache);
    } else if let Some(half) = Half::from_name(word) {
        modifiers.half = Some(half);
    } else if let Some(mode) = PermuteMode::from_name(word) {
        modifiers.permute = Some(mode);
    } else if let Some(test) = FloatTest::from_name(word) {
        modifiers.test = Some(test);
    } else if let Some(geometry) = Geometry::from_name(word) {
        modifiers.geometry = Some(geometry);
    }
    // The remaining words only select the row: `sync` of `bar.sync` is part of the opcode, and `b`
    // of `suld.b` adds no information.
}

/// Whether a word belongs in [`Modifiers::query`].
fn is_query(opcode: Opcode, word: &str) -> bool {
    match opcode {
        Opcode::Suld | Opcode::Sust => matches!(word, "trap" | "clamp" | "zero"),
        Opcode::Tld4 => matches!(word, "r" | "g" | "b" | "a"),
        _ => true,
    }
}
