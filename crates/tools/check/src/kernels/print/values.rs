//! Writes what statements read.

use super::{Place as Around, Writer, line, register};
use crate::kernels::program::{Compare, Condition, Mask, Place, Value, WORDS};

impl Writer {
    pub(super) fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("%t{}", self.temporaries)
    }

    pub(super) fn predicate(&mut self) -> String {
        self.temporaries += 1;
        format!("%p{}", self.temporaries)
    }

    /// Returns a register with a value, or a constant if those may stand here.
    pub(super) fn value(&mut self, value: Value, constants: bool) -> String {
        match value {
            Value::Register(at) => register(at),
            Value::Constant(it) if constants => it.cast_signed().to_string(),
            Value::Constant(it) => {
                let temporary = self.temporary();
                line!(self, "mov.u32 {temporary}, {};", it.cast_signed());
                temporary
            }
            Value::Thread => "%thread".to_owned(),
            Value::Lane => "%lane".to_owned(),
            Value::Block => "%block".to_owned(),
            Value::Parameter => "%parameter".to_owned(),
            Value::Turn(id) => format!("%turn{id}"),
        }
    }

    /// Returns a predicate that says whether a condition holds.
    pub(super) fn condition(&mut self, condition: &Condition) -> String {
        let mut one = self.value(condition.value, false);
        if condition.bits != u32::MAX {
            let bits = self.temporary();
            line!(self, "and.b32 {bits}, {one}, {};", condition.bits.cast_signed());
            one = bits;
        }
        let (other, holds) = (self.value(condition.with, true), self.predicate());
        let compare = match condition.compare {
            Compare::Eq => "eq.u32",
            Compare::Ne => "ne.s32",
            Compare::Lt => "lt.u32",
            Compare::Ge => "ge.u32",
            Compare::LtSigned => "lt.s32",
            Compare::GeSigned => "ge.s32",
        };
        line!(self, "setp.{compare} {holds}, {one}, {other};");
        holds
    }

    /// Returns the address of a word of shared memory.
    pub(super) fn place(&mut self, place: Place) -> String {
        let index = self.temporary();
        match place {
            Place::Fixed(word) => return format!("[%all+{}]", word as usize % WORDS * 4),
            Place::Thread(bits) => line!(self, "xor.b32 {index}, %thread, {bits};"),
            Place::Times(times) => line!(self, "mul.lo.u32 {index}, %thread, {times};"),
            Place::Told(told) => line!(self, "mov.b32 {index}, {};", register(told)),
        }
        let address = self.temporary();
        line!(self, "and.b32 {index}, {index}, {};", WORDS - 1);
        line!(self, "shl.b32 {address}, {index}, 2;\nadd.u32 {address}, {address}, %all;");
        format!("[{address}]")
    }

    /// Returns a register or constant with a mask.
    pub(super) fn mask(&mut self, mask: Mask, around: &Around) -> String {
        match mask {
            Mask::All => "-1".to_owned(),
            Mask::Here => around.mask.clone(),
            Mask::Group(size) => {
                let (first, group) = (self.temporary(), self.temporary());
                line!(self, "and.b32 {first}, %lane, {};", 0_u32.wrapping_sub(size).cast_signed());
                let lanes = u32::MAX >> (32 - size.clamp(1, 32));
                line!(self, "mov.u32 {group}, {};", lanes.cast_signed());
                line!(self, "shl.b32 {group}, {group}, {first};");
                line!(self, "and.b32 {group}, {group}, {};", around.mask);
                group
            }
        }
    }
}
