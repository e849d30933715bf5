//! Integers, bits and predicates.

use super::c_type::{signed, unsigned, value_type};
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{
    BoolOp, Half, Immediate, Instruction, Kind, Opcode, Operand, PermuteMode, ShiftMode, Type,
};

impl Writer<'_> {
    pub(super) fn integer(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        match what.opcode {
            Opcode::Add | Opcode::Sub | Opcode::Addc | Opcode::Subc | Opcode::Madc => {
                self.add(what)
            }
            Opcode::Mul | Opcode::Mad if !what.modifiers.carry => self.multiply(what),
            Opcode::Mad => self.add(what),
            Opcode::Mul24 | Opcode::Mad24 => self.multiply24(what),
            Opcode::Setp | Opcode::Set => self.compare(what),
            Opcode::Selp => self.select(what),
            Opcode::Slct => self.select_sign(what),
            Opcode::Prmt => self.permute(what),
            Opcode::Lop3 => self.lookup(what),
            Opcode::Dp4a | Opcode::Dp2a => self.dot(what),
            Opcode::Vabsdiff2 | Opcode::Vabsdiff4 => self.lane_differences(what),
            Opcode::Shl | Opcode::Shr | Opcode::Shf => self.shift(what),
            Opcode::And | Opcode::Or | Opcode::Xor | Opcode::Not | Opcode::Cnot => self.logic(what),
            _ => self.simple(what),
        }
    }

    fn logic(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let predicate = what.ty() == Type::Pred;
        let ty = unsigned(what.ty());
        let count = if matches!(what.opcode, Opcode::Not | Opcode::Cnot) { 1 } else { 2 };
        let from = self.sources(what, ty, count)?;
        let cast = value_type(ty);
        let text = match (what.opcode, predicate) {
            (Opcode::Not, true) => format!("!{}", from[0]),
            (Opcode::Not, false) => format!("({cast})~{}", from[0]),
            (Opcode::Cnot, _) => format!("({cast})({} == 0)", from[0]),
            (Opcode::And, true) => format!("({} && {})", from[0], from[1]),
            (Opcode::Or, true) => format!("({} || {})", from[0], from[1]),
            (Opcode::Xor, true) => format!("({} != {})", from[0], from[1]),
            (Opcode::And, false) => format!("({cast})({} & {})", from[0], from[1]),
            (Opcode::Or, false) => format!("({cast})({} | {})", from[0], from[1]),
            _ => format!("({cast})({} ^ {})", from[0], from[1]),
        };
        self.result(what, ty, &text)
    }

    fn add(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        if ty.kind() == Kind::IntegerPair {
            return self.pair(what);
        }
        let plain = unsigned(ty);
        let cast = value_type(plain);
        let carries = what.modifiers.carry
            || matches!(what.opcode, Opcode::Addc | Opcode::Subc | Opcode::Madc);
        if what.modifiers.sat {
            if ty != Type::S32 {
                return Err(TranslateError::unsupported(what));
            }
            let from = self.sources(what, ty, 2)?;
            let name = if what.opcode == Opcode::Add { "add_sat" } else { "sub_sat" };
            return self.result(what, ty, &format!("{name}({}, {})", from[0], from[1]));
        }
        if !carries {
            let from = self.sources(what, plain, 2)?;
            let sign = if what.opcode == Opcode::Add { '+' } else { '-' };
            return self.result(what, plain, &format!("({cast})({} {sign} {})", from[0], from[1]));
        }
        self.add_with_carry(what, ty)
    }

    /// Writes an addition or subtraction with carry. The carry flag is a C variable: 1 for a carry
    /// or a borrow.
    fn add_with_carry(&mut self, what: &Instruction, ty: Type) -> Result<(), TranslateError> {
        self.uses_carry = true;
        let plain = unsigned(ty);
        let cast = value_type(plain);
        let product = matches!(what.opcode, Opcode::Mad | Opcode::Madc);
        let (left, right) = if product {
            let from = self.sources(what, plain, 3)?;
            let (a, b) = (&from[0], &from[1]);
            let left = match what.modifiers.half {
                Some(Half::Hi) => {
                    let name = value_type(if ty.is_signed() { signed(ty) } else { plain });
                    format!("({cast})mul_hi(({name}){a}, ({name}){b})")
                }
                _ => format!("{a} * {b}"),
            };
            (left, from[2].clone())
        } else {
            let from = self.sources(what, plain, 2)?;
            (from[0].clone(), from[1].clone())
        };
        let takes = matches!(what.opcode, Opcode::Addc | Opcode::Subc | Opcode::Madc);
        let flag = if takes { "carry" } else { "0u" };
        let minus = matches!(what.opcode, Opcode::Sub | Opcode::Subc);
        self.line(&format!("{{ {cast} x = {left}, y = {right}; uint c = {flag};"));
        let (value, next) = if minus {
            ("x - y - c", "x < y || (c != 0 && x == y)")
        } else {
            ("x + y + c", "z < x || (c != 0 && z == x)")
        };
        self.line(&format!("{cast} z = {value};"));
        if what.modifiers.carry {
            self.line(&format!("carry = {next};"));
        }
        self.result(what, plain, "z")?;
        self.line("}");
        Ok(())
    }

    fn multiply(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        if ty.kind() == Kind::IntegerPair {
            return self.pair(what);
        }
        let (plain, own) = (unsigned(ty), if ty.is_signed() { signed(ty) } else { unsigned(ty) });
        let adds = what.opcode == Opcode::Mad;
        let half = what.modifiers.half.unwrap_or(Half::Lo);
        let (result, product) = match half {
            Half::Wide => {
                let wide = match (ty.bits(), ty.is_signed()) {
                    (16, true) => Type::S32,
                    (16, false) => Type::U32,
                    (32, true) => Type::S64,
                    (32, false) => Type::U64,
                    _ => return Err(TranslateError::unsupported(what)),
                };
                let from = self.sources(what, own, 2)?;
                let cast = value_type(wide);
                (wide, format!("(({cast}){} * ({cast}){})", from[0], from[1]))
            }
            Half::Hi => {
                let from = self.sources(what, own, 2)?;
                (own, format!("mul_hi({}, {})", from[0], from[1]))
            }
            Half::Lo => {
                let from = self.sources(what, plain, 2)?;
                // C promotes 16-bit factors to `int`, whose product may overflow.
                let cast = if plain == Type::U16 { "(uint)" } else { "" };
                (plain, format!("({})({cast}{} * {cast}{})", value_type(plain), from[0], from[1]))
            }
        };
        if !adds {
            return self.result(what, result, &product);
        }
        let sum = unsigned(result);
        let third = self.read(
            what,
            what.sources().get(2).ok_or_else(|| TranslateError::operand(what, &what.operands))?,
            sum,
        )?;
        if what.modifiers.sat {
            if half != Half::Hi || ty != Type::S32 {
                return Err(TranslateError::unsupported(what));
            }
            return self.result(what, Type::S32, &format!("add_sat({product}, (int){third})"));
        }
        let cast = value_type(sum);
        self.result(what, sum, &format!("({cast})(({cast}){product} + {third})"))
    }

    fn multiply24(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let adds = what.opcode == Opcode::Mad24;
        let from = self.sources(what, ty, if adds { 3 } else { 2 })?;
        let is_signed = ty.is_signed();
        let part = |text: &str| match is_signed {
            true => format!("((long)({text} << 8 >> 8))"),
            false => format!("((ulong)({text} & 0xffffffu))"),
        };
        let shift = if what.modifiers.half == Some(Half::Hi) { 16 } else { 0 };
        let product = format!("(uint)(({} * {}) >> {shift})", part(&from[0]), part(&from[1]));
        let text = match (adds, what.modifiers.sat) {
            (false, _) => product,
            (true, false) => format!("({product} + (uint){})", from[2]),
            (true, true) => format!("(uint)add_sat((int){product}, (int){})", from[2]),
        };
        self.result(what, Type::U32, &text)
    }

    /// Writes an operation on two 16-bit numbers in one register, element by element.
    fn pair(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let is_signed = what.ty() == Type::S16x2;
        let cast = if is_signed { "short" } else { "ushort" };
        let from = self.sources(what, Type::U32, 2)?;
        let each = match what.opcode {
            Opcode::Add => format!("as_{cast}2(x) + as_{cast}2(y)"),
            Opcode::Sub => format!("as_{cast}2(x) - as_{cast}2(y)"),
            Opcode::Min => format!("min(as_{cast}2(x), as_{cast}2(y))"),
            Opcode::Max => format!("max(as_{cast}2(x), as_{cast}2(y))"),
            _ => return Err(TranslateError::unsupported(what)),
        };
        if what.modifiers.relu && !(is_signed && matches!(what.opcode, Opcode::Min | Opcode::Max)) {
            return Err(TranslateError::unsupported(what));
        }
        let each = if what.modifiers.relu { format!("max({each}, (short2)(0))") } else { each };
        self.line(&format!("{{ uint x = {}, y = {};", from[0], from[1]));
        self.result(what, Type::U32, &format!("as_uint({each})"))?;
        self.line("}");
        Ok(())
    }

    fn shift(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        if what.opcode == Opcode::Shf {
            return self.funnel(what);
        }
        let ty = if what.opcode == Opcode::Shl { unsigned(what.ty()) } else { what.ty() };
        let bits = ty.bits();
        let [value, amount] = what.sources() else {
            return Err(TranslateError::operand(what, what.sources()));
        };
        let value = self.read(what, value, ty)?;
        let cast = value_type(ty);
        let sign = if what.opcode == Opcode::Shl { "<<" } else { ">>" };
        let shifts_sign = what.opcode == Opcode::Shr && ty.is_signed();
        if let Operand::Immediate(Immediate::Integer(by)) = amount {
            let by = by & 0xffff_ffff;
            let text = match (by < u64::from(bits), shifts_sign) {
                (true, _) => format!("({cast})({value} {sign} {by})"),
                (false, true) => format!("({cast})({value} >> {})", bits - 1),
                (false, false) => String::from("0"),
            };
            return self.result(what, ty, &text);
        }
        let amount = self.read(what, amount, Type::U32)?;
        let text = if shifts_sign {
            format!("({cast})({value} >> min({amount}, {}u))", bits - 1)
        } else {
            // C masks the amount, PTX does not.
            format!(
                "({amount} < {bits}u ? ({cast})({value} {sign} ({amount} & {}u)) : ({cast})0)",
                bits - 1
            )
        };
        self.result(what, ty, &text)
    }

    fn funnel(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let from = self.sources(what, Type::U32, 3)?;
        let amount = match what.modifiers.shift {
            Some(ShiftMode::Clamp) => format!("min({}, 32u)", from[2]),
            _ => format!("({} & 31u)", from[2]),
        };
        let both = format!("(((ulong){} << 32) | {})", from[1], from[0]);
        let text = if what.modifiers.left {
            format!("(uint)(({both} << {amount}) >> 32)")
        } else {
            format!("(uint)({both} >> {amount})")
        };
        self.result(what, Type::U32, &text)
    }

    fn permute(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let from = self.sources(what, Type::U32, 3)?;
        let name = match what.modifiers.permute {
            None => "ps_prmt",
            Some(PermuteMode::F4e) => "ps_prmt_f4e",
            Some(PermuteMode::B4e) => "ps_prmt_b4e",
            Some(PermuteMode::Rc8) => "ps_prmt_rc8",
            Some(PermuteMode::Ecl) => "ps_prmt_ecl",
            Some(PermuteMode::Ecr) => "ps_prmt_ecr",
            Some(PermuteMode::Rc16) => "ps_prmt_rc16",
        };
        self.result(what, Type::U32, &format!("{name}({}, {}, {})", from[0], from[1], from[2]))
    }

    /// Writes `lop3`. Each bit of the table stands for one combination of the bits of a, b and c.
    fn lookup(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let from = self.sources(what, Type::U32, 3)?;
        let Some(Operand::Immediate(Immediate::Integer(table))) = what.sources().get(3) else {
            return Err(TranslateError::operand(what, what.sources()));
        };
        let mut parts = Vec::new();
        for bit in (0..8_u32).filter(|bit| table >> bit & 1 == 1) {
            let part = |index: usize, mask: u32| {
                if bit & mask != 0 { from[index].clone() } else { format!("~{}", from[index]) }
            };
            parts.push(format!("({} & {} & {})", part(0, 4), part(1, 2), part(2, 1)));
        }
        let text = if parts.is_empty() { String::from("0u") } else { parts.join(" | ") };
        let Some(operator) = what.modifiers.bool_op else {
            return self.result(what, Type::U32, &format!("({text})"));
        };
        // `lop3.or d|p, a, b, c, table, q`: `p` is whether the result is not zero, combined with
        // `q`.
        let (Some(operand), 2) = (what.sources().get(4), what.destinations) else {
            return Err(TranslateError::operand(what, what.sources()));
        };
        let other = self.read(what, operand, Type::Pred)?;
        let sign = match operator {
            BoolOp::And => "&&",
            BoolOp::Or => "||",
            BoolOp::Xor => "!=",
        };
        self.line(&format!("{{ const uint x = {text}; const bool y = (x != 0u) {sign} {other};"));
        self.write(what, &what.operands[0], Type::U32, "x")?;
        self.write(what, &what.operands[1], Type::Pred, "y")?;
        self.line("}");
        Ok(())
    }

    fn dot(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [left, right] = what.types[..] else { return Err(TranslateError::unsupported(what)) };
        let from = self.sources(what, Type::U32, 3)?;
        let vector = |ty: Type, lanes: u32| {
            format!("as_{}{lanes}", if ty.is_signed() { "char" } else { "uchar" })
                .replace("char", if lanes == 2 { "short" } else { "char" })
        };
        let mut terms = vec![from[2].clone()];
        let wide = what.opcode == Opcode::Dp4a;
        for lane in 0..if wide { 4 } else { 2 } {
            let second =
                if what.modifiers.half == Some(Half::Hi) && !wide { lane + 2 } else { lane };
            let first = vector(left, if wide { 4 } else { 2 });
            terms.push(format!(
                "(uint)((int){first}({}).s{lane} * (int){}({}).s{second})",
                from[0],
                vector(right, 4),
                from[1]
            ));
        }
        self.result(what, Type::U32, &format!("({})", terms.join(" + ")))
    }

    /// Writes the absolute differences of the bytes or halves of two registers, or their sum.
    fn lane_differences(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [_, left, right] = what.types[..] else {
            return Err(TranslateError::unsupported(what));
        };
        let from = self.sources(what, Type::U32, 3)?;
        let (name, lanes) =
            if what.opcode == Opcode::Vabsdiff4 { ("char", 4) } else { ("short", 2) };
        let lanes_of = |ty: Type, value: &str| {
            let sign = if ty.is_signed() { "" } else { "u" };
            format!("convert_int{lanes}(as_{sign}{name}{lanes}({value}))")
        };
        let all = format!("abs_diff({}, {})", lanes_of(left, &from[0]), lanes_of(right, &from[1]));
        if what.modifiers.reduce.is_none() {
            return self.result(
                what,
                Type::U32,
                &format!("as_uint(convert_u{name}{lanes}({all}))"),
            );
        }
        let terms: Vec<String> = (0..lanes).map(|lane| format!("{all}.s{lane}")).collect();
        self.result(what, Type::U32, &format!("({} + {})", terms.join(" + "), from[2]))
    }

    /// Writes an instruction that is one C expression or one call.
    fn simple(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        if ty.kind() == Kind::IntegerPair {
            return self.pair(what);
        }
        let (plain, cast) = (unsigned(ty), value_type(ty));
        let counts = what.sources().len();
        let (result, text) = match what.opcode {
            Opcode::Abs => {
                // PoCL leaves `abs` of the smallest number open: its compiler takes the sign of the
                // result for granted in one place, and computes with its bits in another.
                let (from, cast) = (self.sources(what, ty, 1)?, value_type(plain));
                let (a, bits) = (&from[0], format!("({cast}){}", from[0]));
                (plain, format!("({cast})({a} < 0 ? 0 - {bits} : {bits})"))
            }
            Opcode::Neg => {
                let from = self.sources(what, plain, 1)?;
                (plain, format!("({})(0 - {})", value_type(plain), from[0]))
            }
            Opcode::Min | Opcode::Max => {
                let from = self.sources(what, ty, 2)?;
                let name = what.opcode.name();
                let text = format!("{name}({}, {})", from[0], from[1]);
                (ty, if what.modifiers.relu { format!("max({text}, ({cast})0)") } else { text })
            }
            Opcode::Div | Opcode::Rem => return self.divide(what),
            Opcode::Sad => {
                // PoCL's `abs_diff` subtracts signed numbers, and leaves open what is too large for
                // one of them.
                let (from, cast) = (self.sources(what, ty, 3)?, value_type(plain));
                let (a, b, c) = (&from[0], &from[1], &from[2]);
                let difference =
                    format!("({a} < {b} ? ({cast}){b} - ({cast}){a} : ({cast}){a} - ({cast}){b})");
                (plain, format!("({cast})({difference} + {c})"))
            }
            Opcode::Popc | Opcode::Clz => {
                let from = self.sources(what, plain, 1)?;
                let name = if what.opcode == Opcode::Clz { "clz" } else { "popcount" };
                (Type::U32, format!("(uint){name}({})", from[0]))
            }
            Opcode::Brev
            | Opcode::Bfind
            | Opcode::Bfe
            | Opcode::Bfi
            | Opcode::Fns
            | Opcode::Bmsk
            | Opcode::Szext => {
                return self.field(what, counts);
            }
            _ => return Err(TranslateError::unsupported(what)),
        };
        self.result(what, result, &text)
    }

    /// Writes a division. PTX leaves the result of a division by zero, or of the smallest number by
    /// -1, undefined, but it must not end the program.
    fn divide(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let from = self.sources(what, ty, 2)?;
        let sign = if what.opcode == Opcode::Div { '/' } else { '%' };
        let cast = value_type(ty);
        let mask = if ty.bits() == 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
        if let Operand::Immediate(Immediate::Integer(by)) = &what.sources()[1]
            && by & mask != 0
            && by & mask != mask
        {
            return self.result(what, ty, &format!("({cast})({} {sign} {})", from[0], from[1]));
        }
        let name = if what.opcode == Opcode::Div { "ps_idiv" } else { "ps_irem" };
        self.result(
            what,
            ty,
            &format!(
                "({cast}){name}_{}({}, {})",
                if ty.bits() == 64 {
                    cast
                } else if ty.is_signed() {
                    "int"
                } else {
                    "uint"
                },
                from[0],
                from[1]
            ),
        )
    }

    fn field(&mut self, what: &Instruction, counts: usize) -> Result<(), TranslateError> {
        let ty = what.ty();
        let plain = unsigned(ty);
        let bits = ty.bits();
        let suffix = if ty.is_signed() { "s" } else { "u" };
        let mut from = Vec::with_capacity(counts);
        let values = if what.opcode == Opcode::Bfi { 2 } else { 1 };
        for (index, operand) in what.sources().iter().enumerate() {
            let wanted = if index < values { plain } else { Type::U32 };
            from.push(self.read(what, operand, wanted)?);
        }
        let arguments = from.join(", ");
        let (result, name) = match what.opcode {
            Opcode::Brev => (plain, format!("ps_brev{bits}")),
            Opcode::Bfind => {
                let amount = if what.modifiers.shiftamt { "_shiftamt" } else { "" };
                (Type::U32, format!("ps_bfind_{suffix}{bits}{amount}"))
            }
            Opcode::Bfe => (plain, format!("ps_bfe_{suffix}{bits}")),
            Opcode::Bfi => (plain, format!("ps_bfi{bits}")),
            Opcode::Fns => (Type::U32, String::from("ps_fns")),
            _ => {
                let mode =
                    if what.modifiers.shift == Some(ShiftMode::Wrap) { "wrap" } else { "clamp" };
                let name = if what.opcode == Opcode::Bmsk {
                    "ps_bmsk"
                } else if ty.is_signed() {
                    "ps_szext_s"
                } else {
                    "ps_szext_u"
                };
                (Type::U32, format!("{name}_{mode}"))
            }
        };
        self.result(what, result, &format!("{name}({arguments})"))
    }
}
