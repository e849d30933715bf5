//! The table of instructions that compute: their text, and what the manual says that they give.
//!
//! The text has `$d` for the register that gets the result, and `$a`, `$b` and `$c` for what the
//! instruction reads. `x`, `y` and `z` are 64-bit registers, `h`, `i` and `j` 16-bit ones, `t` and
//! `u` 32-bit ones, `p` and `q` predicates of the scope that the text is in. `f`, `g`, `e` and `m`,
//! `n`, `o` are registers for floats of 32 and 64 bits. Comments quote the PTX ISA manual, 8.5.

use super::floats::{half, rounded_half};

type Compute = fn(u32, u32, u32) -> u32;

/// One instruction, or a few that belong together.
#[derive(Debug)]
pub struct Rule {
    /// The first word of its text, or a name of its own.
    pub name: &'static str,
    pub text: &'static str,
    pub compute: Compute,
}

/// Returns the row with this name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

const fn rule_of(name: &'static str, text: &'static str, compute: Compute) -> Rule {
    Rule { name, text, compute }
}

/// The upper and lower half of a value, in one word.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the rest of the value goes into the word, too"
)]
fn fold(x: u64) -> u32 {
    x as u32 ^ (x >> 32) as u32
}

fn wide(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn s(x: u32) -> i32 {
    x.cast_signed()
}

fn s64(low: u32, high: u32) -> i64 {
    wide(low, high).cast_signed()
}

#[expect(clippy::cast_possible_truncation, reason = "the instruction takes the lower half")]
fn low(x: u64) -> u32 {
    x as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the instruction takes the lower half")]
fn h(x: u32) -> u16 {
    x as u16
}

/// "Shift amounts greater than the register width N are clamped to N."
fn shifted_right(x: i64, by: u32) -> i64 {
    x >> by.min(63)
}

/// "bfe: `pos = b & 0xff; len = c & 0xff`, for 32 bits `msb = 31`, for 64 bits 63. If `len == 0` or
/// the type is unsigned, `sbit = 0`, else `sbit = a[min(pos+len-1, msb)]`. Then
/// `d[i] = (i < len && pos+i <= msb) ? a[pos+i] : sbit`."
fn extracted(a: u64, pos: u32, len: u32, msb: u32, signed: bool) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    let sign = signed && len > 0 && a >> (pos + len - 1).min(msb) & 1 == 1;
    let bit = |i: u32| if i < len && pos + i <= msb { a >> (pos + i) & 1 == 1 } else { sign };
    (0..=msb).fold(0, |d, i| d | u64::from(bit(i)) << i)
}

/// "bfi: `f = b; pos = c & 0xff; len = d & 0xff; for (i=0; i<len && pos+i<=msb; i++) f[pos+i] =
/// a[i]`."
fn inserted(a: u64, b: u64, pos: u32, len: u32, msb: u32) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    (0..len)
        .take_while(|i| pos + i <= msb)
        .fold(b, |f, i| f & !(1 << (pos + i)) | (a >> i & 1) << (pos + i))
}

/// "prmt: the source bytes are {b, a} = {{b7..b4},{b3..b0}}. For each byte of the target, a 4-bit
/// value: the three lower bits select a byte, the msb says if the byte's sign is replicated."
fn permuted(a: u32, b: u32, c: u32) -> u32 {
    let bytes = wide(a, b).to_le_bytes();
    let byte = |index: u32| {
        let select = c >> (4 * index) & 0xf;
        let byte = bytes[(select & 7) as usize];
        if select & 8 == 0 {
            byte
        } else if byte & 0x80 == 0 {
            0
        } else {
            0xff
        }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// "prmt.f4e: forward 4 extract", by `c & 3`: `{a.0..}` from byte `c` on.
fn forward(a: u32, b: u32, c: u32) -> u32 {
    low(wide(a, b) >> (8 * (c & 3)))
}

/// "bfind: the bit position of the most significant non-sign bit, 0xffffffff if there is none."
fn found(a: u32) -> u32 {
    if a == 0 { u32::MAX } else { 31 - a.leading_zeros() }
}

/// "shf.l: `n = (mode == .wrap) ? c & 0x1f : min(c, 32)`; `d = (b << n) | (a >> (32-n))`."
fn funnel_left(a: u32, b: u32, n: u32) -> u32 {
    low((wide(a, b) << n) >> 32)
}

fn funnel_right(a: u32, b: u32, n: u32) -> u32 {
    low(wide(a, b) >> n)
}

fn dp4(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let part = |x: u8| if signed { i32::from(x.cast_signed()) } else { i32::from(x) };
    a.to_le_bytes()
        .iter()
        .zip(b.to_le_bytes())
        .fold(c, |sum, (a, b)| sum.wrapping_add((part(*a) * part(b)).cast_unsigned()))
}

/// A float whose exponent is moderate, so that nothing overflows.
fn f(x: u32) -> f32 {
    f32::from_bits(x & 0x87ff_ffff | 0x3800_0000)
}

/// A float that is subnormal or very small.
fn tiny(x: u32) -> f32 {
    f32::from_bits(x & 0x80ff_ffff)
}

/// The integer without the fraction.
#[expect(clippy::cast_possible_truncation, reason = "the value is in range")]
fn whole(x: f32) -> u32 {
    (x as i32).cast_unsigned()
}

fn d(x: u32, y: u32) -> f64 {
    f64::from_bits(wide(x, y & 0x807f_ffff | 0x3f80_0000))
}

/// A product of three, or of three and the number of the row.
fn times(a: u32, n: u32) -> u32 {
    (0..n & 7).fold(a, |x, turn| x.wrapping_mul(3).wrapping_add(turn))
}

const F2: &str = "and.b32 t, $a, 0x87ffffff; or.b32 t, t, 0x38000000; mov.b32 f, t; \
                  and.b32 t, $b, 0x87ffffff; or.b32 t, t, 0x38000000; mov.b32 g, t; \
                  and.b32 t, $c, 0x87ffffff; or.b32 t, t, 0x38000000; mov.b32 e, t;";
const TINY: &str =
    "and.b32 t, $a, 0x80ffffff; mov.b32 f, t; and.b32 t, $b, 0x80ffffff; mov.b32 g, t;";
const D3: &str = "and.b32 t, $b, 0x807fffff; or.b32 t, t, 0x3f800000; mov.b64 m, {$a, t}; \
                  and.b32 t, $c, 0x807fffff; or.b32 t, t, 0x3f800000; mov.b64 n, {$b, t}; \
                  and.b32 t, $a, 0x807fffff; or.b32 t, t, 0x3f800000; mov.b64 o, {$c, t};";
const WIDE: &str = "mov.b64 x, {$a, $b}; mov.b64 y, {$c, $a};";
const FOLD: &str = "mov.b64 {t, u}, x; xor.b32 $d, t, u;";
const HALF: &str = "and.b32 t, $a, 0xbfff; cvt.u16.u32 h, t; and.b32 t, $b, 0xbfff; \
                    cvt.u16.u32 i, t;";

/// Returns the text with the parts that rows share.
pub fn text(rule: &Rule) -> String {
    let parts = [("@F", F2), ("@T", TINY), ("@D", D3), ("@W", WIDE), ("@X", FOLD), ("@H", HALF)];
    parts.iter().fold(rule.text.to_owned(), |text, (name, part)| text.replace(name, part))
}

/// Functions that the module has.
pub const FUNCTIONS: &str = "\
.func (.reg .b32 d) mix(.reg .b32 a, .reg .b32 b)
{ .reg .b32 t; .reg .pred p; setp.lt.u32 p, a, b; mul.lo.u32 t, a, 5; @p sub.u32 t, b, a;
  xor.b32 d, t, b; ret; }
.func (.param .b32 d) times(.param .b32 a, .param .b32 n)
{ .reg .b32 x, k, t; .reg .pred p; ld.param.u32 x, [a]; ld.param.u32 k, [n]; and.b32 k, k, 7;
  mov.u32 t, 0;
again: setp.ge.u32 p, t, k; @p bra done; mad.lo.u32 x, x, 3, t; add.u32 t, t, 1; bra again;
done: st.param.b32 [d], x; ret; }
";

/// All rows. Names are unique.
pub static RULES: &[Rule] = &[
    rule_of("add", "add.u32 $d, $a, $b;", |a, b, _| a.wrapping_add(b)),
    rule_of("sub", "sub.s32 $d, $a, $b;", |a, b, _| a.wrapping_sub(b)),
    rule_of("xor", "xor.b32 $d, $a, $b;", |a, b, _| a ^ b),
    rule_of("and", "and.b32 $d, $a, $b;", |a, b, _| a & b),
    rule_of("or", "or.b32 $d, $a, $b;", |a, b, _| a | b),
    rule_of("not", "not.b32 $d, $a;", |a, _, _| !a),
    // "cnot: d = (a == 0) ? 1 : 0"
    rule_of("cnot", "cnot.b32 $d, $a;", |a, _, _| u32::from(a == 0)),
    rule_of("neg", "neg.s32 $d, $a;", |a, _, _| a.wrapping_neg()),
    rule_of("abs", "abs.s32 $d, $a;", |a, _, _| s(a).wrapping_abs().cast_unsigned()),
    rule_of("mov", "mov.b32 $d, $a;", |a, _, _| a),
    rule_of("mul.lo", "mul.lo.s32 $d, $a, $b;", |a, b, _| a.wrapping_mul(b)),
    rule_of("mul.hi.u32", "mul.hi.u32 $d, $a, $b;", |a, b, _| {
        low((u64::from(a) * u64::from(b)) >> 32)
    }),
    rule_of("mul.hi.s32", "mul.hi.s32 $d, $a, $b;", |a, b, _| {
        low(((i64::from(s(a)) * i64::from(s(b))) >> 32).cast_unsigned())
    }),
    rule_of("mad.lo", "mad.lo.u32 $d, $a, $b, $c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
    rule_of("mad.hi.s32", "mad.hi.s32 $d, $a, $b, $c;", |a, b, c| {
        low(((i64::from(s(a)) * i64::from(s(b))) >> 32).cast_unsigned()).wrapping_add(c)
    }),
    // "mul24.lo: the 32 least significant bits of the 48-bit product of the 24 lower bits"
    rule_of("mul24", "mul24.lo.u32 $d, $a, $b;", |a, b, _| {
        (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)
    }),
    rule_of("sad.u32", "sad.u32 $d, $a, $b, $c;", |a, b, c| a.abs_diff(b).wrapping_add(c)),
    rule_of("sad.s32", "sad.s32 $d, $a, $b, $c;", |a, b, c| s(a).abs_diff(s(b)).wrapping_add(c)),
    rule_of("div.u32", "or.b32 t, $b, 1; div.u32 $d, $a, t;", |a, b, _| a / (b | 1)),
    rule_of("rem.u32", "or.b32 t, $b, 1; rem.u32 $d, $a, t;", |a, b, _| a % (b | 1)),
    rule_of(
        "div.s32",
        "shl.b32 t, $b, 24; shr.s32 t, t, 24; or.b32 t, t, 1; setp.eq.s32 p, t, -1; \
                        selp.b32 t, 3, t, p; div.s32 $d, $a, t;",
        |a, b, _| {
            let by = i32::from(b.to_le_bytes()[0].cast_signed()) | 1;
            (s(a) / if by == -1 { 3 } else { by }).cast_unsigned()
        },
    ),
    rule_of("rem.s32", "or.b32 t, $b, 1; and.b32 t, t, 0xffff; rem.s32 $d, $a, t;", |a, b, _| {
        (s(a) % s((b | 1) & 0xffff)).cast_unsigned()
    }),
    rule_of("min.u32", "min.u32 $d, $a, $b;", |a, b, _| a.min(b)),
    rule_of("max.u32", "max.u32 $d, $a, $b;", |a, b, _| a.max(b)),
    rule_of("min.s32", "min.s32 $d, $a, $b;", |a, b, _| s(a).min(s(b)).cast_unsigned()),
    rule_of("max.s32", "max.s32 $d, $a, $b;", |a, b, _| s(a).max(s(b)).cast_unsigned()),
    rule_of("add.sat", "add.sat.s32 $d, $a, $b;", |a, b, _| {
        s(a).saturating_add(s(b)).cast_unsigned()
    }),
    rule_of("sub.sat", "sub.sat.s32 $d, $a, $b;", |a, b, _| {
        s(a).saturating_sub(s(b)).cast_unsigned()
    }),
    rule_of("popc", "popc.b32 $d, $a;", |a, _, _| a.count_ones()),
    rule_of("clz", "clz.b32 $d, $a;", |a, _, _| a.leading_zeros()),
    rule_of("brev", "brev.b32 $d, $a;", |a, _, _| a.reverse_bits()),
    rule_of("bfind.u32", "bfind.u32 $d, $a;", |a, _, _| found(a)),
    rule_of("bfind.s32", "bfind.s32 $d, $a;", |a, _, _| found(if s(a) < 0 { !a } else { a })),
    // "bfind.shiftamt: the shift amount needed to left-shift the found bit into the msb"
    rule_of("bfind.shiftamt", "bfind.shiftamt.u32 $d, $a;", |a, _, _| match found(a) {
        u32::MAX => u32::MAX,
        at => 31 - at,
    }),
    rule_of("bfe.u32", "bfe.u32 $d, $a, $b, $c;", |a, b, c| {
        low(extracted(u64::from(a), b, c, 31, false))
    }),
    rule_of("bfe.s32", "bfe.s32 $d, $a, $b, $c;", |a, b, c| {
        low(extracted(u64::from(a), b, c, 31, true))
    }),
    rule_of(
        "bfe.s32 small",
        "and.b32 t, $b, 31; and.b32 u, $c, 31; bfe.s32 $d, $a, t, u;",
        |a, b, c| low(extracted(u64::from(a), b & 31, c & 31, 31, true)),
    ),
    rule_of("bfi", "and.b32 t, $c, 39; bfi.b32 $d, $a, $b, t, $b;", |a, b, c| {
        low(inserted(u64::from(a), u64::from(b), c & 39, b, 31))
    }),
    rule_of(
        "bfi small",
        "shr.u32 t, $c, 5; and.b32 t, t, 31; and.b32 u, $c, 31; \
                          bfi.b32 $d, $a, $b, t, u;",
        |a, b, c| low(inserted(u64::from(a), u64::from(b), c >> 5 & 31, c & 31, 31)),
    ),
    rule_of("prmt", "prmt.b32 $d, $a, $b, $c;", permuted),
    rule_of("prmt.f4e", "prmt.b32.f4e $d, $a, $b, $c;", forward),
    // "lop3: immLut = F(0xF0, 0xCC, 0xAA)"
    rule_of("lop3 majority", "lop3.b32 $d, $a, $b, $c, 0xE8;", |a, b, c| a & b | a & c | b & c),
    rule_of("lop3 choose", "lop3.b32 $d, $a, $b, $c, 0xCA;", |a, b, c| a & b | !a & c),
    rule_of("lop3 odd", "lop3.b32 $d, $a, $b, $c, 0x1E;", |a, b, c| a ^ (b | c)),
    // "Shift amounts greater than the register width N are clamped to N."
    rule_of("shl", "shl.b32 $d, $a, $b;", |a, b, _| a.checked_shl(b).unwrap_or(0)),
    rule_of("shr.u32", "shr.u32 $d, $a, $b;", |a, b, _| a.checked_shr(b).unwrap_or(0)),
    rule_of("shr.s32", "shr.s32 $d, $a, $b;", |a, b, _| (s(a) >> b.min(31)).cast_unsigned()),
    rule_of("shl near", "and.b32 t, $b, 63; shl.b32 $d, $a, t;", |a, b, _| {
        a.checked_shl(b & 63).unwrap_or(0)
    }),
    rule_of("shr.u32 near", "and.b32 t, $b, 63; shr.u32 $d, $a, t;", |a, b, _| {
        a.checked_shr(b & 63).unwrap_or(0)
    }),
    rule_of("shr.s32 near", "and.b32 t, $b, 63; shr.s32 $d, $a, t;", |a, b, _| {
        (s(a) >> (b & 63).min(31)).cast_unsigned()
    }),
    rule_of("shf.l.wrap", "shf.l.wrap.b32 $d, $a, $b, $c;", |a, b, c| funnel_left(a, b, c & 31)),
    rule_of("shf.l.clamp", "shf.l.clamp.b32 $d, $a, $b, $c;", |a, b, c| {
        funnel_left(a, b, c.min(32))
    }),
    rule_of("shf.r.wrap", "shf.r.wrap.b32 $d, $a, $b, $c;", |a, b, c| funnel_right(a, b, c & 31)),
    rule_of("shf.r.clamp", "shf.r.clamp.b32 $d, $a, $b, $c;", |a, b, c| {
        funnel_right(a, b, c.min(32))
    }),
    rule_of(
        "selp u",
        "setp.lt.u32 p, $a, $b; selp.b32 $d, $c, $a, p;",
        |a, b, c| {
            if a < b { c } else { a }
        },
    ),
    rule_of("selp s", "setp.gt.s32 p, $a, $b; selp.b32 $d, $b, $c, p;", |a, b, c| {
        if s(a) > s(b) { b } else { c }
    }),
    rule_of(
        "setp two",
        "setp.le.s32 p|q, $a, $b; selp.b32 t, 5, 9, p; selp.b32 u, 16, 32, q; \
                         add.u32 $d, t, u;",
        |a, b, _| if s(a) <= s(b) { 37 } else { 25 },
    ),
    rule_of(
        "setp and",
        "setp.hs.u32 p, $a, 7; setp.lo.and.u32 q, $b, $c, p; \
                         selp.b32 $d, $a, 1, q;",
        |a, b, c| if b < c && a >= 7 { a } else { 1 },
    ),
    rule_of(
        "setp xor",
        "setp.ne.b32 p, $a, 0; setp.gt.xor.s32 q, $b, $c, !p; \
                         selp.b32 $d, $b, $c, q;",
        |a, b, c| {
            if (s(b) > s(c)) ^ (a == 0) { b } else { c }
        },
    ),
    rule_of("set", "set.ge.s32.s32 $d, $a, $b;", |a, b, _| if s(a) >= s(b) { u32::MAX } else { 0 }),
    // "slct: d = (c >= 0) ? a : b"
    rule_of("slct", "slct.b32.s32 $d, $a, $b, $c;", |a, b, c| if s(c) >= 0 { a } else { b }),
    rule_of("dp4a.u32", "dp4a.u32.u32 $d, $a, $b, $c;", |a, b, c| dp4(a, b, c, false)),
    rule_of("dp4a.s32", "dp4a.s32.s32 $d, $a, $b, $c;", |a, b, c| dp4(a, b, c, true)),
    rule_of("add.cc", "add.cc.u32 t, $a, $b; addc.u32 u, $b, $c; xor.b32 $d, t, u;", |a, b, c| {
        let (sum, carry) = a.overflowing_add(b);
        sum ^ b.wrapping_add(c).wrapping_add(u32::from(carry))
    }),
    rule_of("sub.cc", "sub.cc.u32 t, $a, $b; subc.u32 u, $b, $c; xor.b32 $d, t, u;", |a, b, c| {
        let (rest, borrow) = a.overflowing_sub(b);
        rest ^ b.wrapping_sub(c).wrapping_sub(u32::from(borrow))
    }),
    // 16 and 8 bits
    rule_of("cvt.s8", "cvt.s32.s8 $d, $a;", |a, _, _| {
        i32::from(a.to_le_bytes()[0].cast_signed()).cast_unsigned()
    }),
    rule_of("cvt.u16", "cvt.u32.u16 $d, $a;", |a, _, _| u32::from(h(a))),
    rule_of("cvt.s16", "cvt.s32.s16 $d, $a;", |a, _, _| {
        i32::from(h(a).cast_signed()).cast_unsigned()
    }),
    rule_of("cvt.sat.u8", "cvt.sat.u8.s32 t, $a; cvt.u32.u8 $d, t;", |a, _, _| {
        s(a).clamp(0, 255).cast_unsigned()
    }),
    rule_of("cvt.sat.s8", "cvt.sat.s8.s32 t, $a; cvt.s32.s8 $d, t;", |a, _, _| {
        s(a).clamp(-128, 127).cast_unsigned()
    }),
    rule_of("cvt.sat.s16", "cvt.sat.s16.u32 t, $a; cvt.s32.s16 $d, t;", |a, _, _| a.min(0x7fff)),
    rule_of(
        "add.u16",
        "cvt.u16.u32 h, $a; cvt.u16.u32 i, $b; add.u16 h, h, i; cvt.u32.u16 $d, h;",
        |a, b, _| u32::from(h(a).wrapping_add(h(b))),
    ),
    rule_of(
        "mul.lo.s16",
        "cvt.u16.u32 h, $a; cvt.u16.u32 i, $b; mul.lo.s16 h, h, i; \
                           cvt.s32.s16 $d, h;",
        |a, b, _| i32::from(h(a).wrapping_mul(h(b)).cast_signed()).cast_unsigned(),
    ),
    rule_of(
        "mul.wide.s16",
        "cvt.u16.u32 h, $a; cvt.u16.u32 i, $b; mul.wide.s16 $d, h, i;",
        |a, b, _| (i32::from(h(a).cast_signed()) * i32::from(h(b).cast_signed())).cast_unsigned(),
    ),
    rule_of(
        "mul.hi.u16",
        "cvt.u16.u32 h, $a; cvt.u16.u32 i, $b; mul.hi.u16 h, h, i; \
                           cvt.u32.u16 $d, h;",
        |a, b, _| (u32::from(h(a)) * u32::from(h(b))) >> 16,
    ),
    rule_of("shr.s16", "cvt.u16.u32 h, $a; shr.s16 h, h, $b; cvt.s32.s16 $d, h;", |a, b, _| {
        (i32::from(h(a).cast_signed()) >> b.min(16)).cast_unsigned()
    }),
    rule_of(
        "min.s16",
        "cvt.u16.u32 h, $a; cvt.u16.u32 i, $b; min.s16 h, h, i; cvt.s32.s16 $d, h;",
        |a, b, _| i32::from(h(a).cast_signed().min(h(b).cast_signed())).cast_unsigned(),
    ),
    rule_of(
        "setp.u16",
        "cvt.u16.u32 h, $a; cvt.u16.u32 i, $b; setp.lt.u16 p, h, i; \
                         selp.b32 $d, $c, $b, p;",
        |a, b, c| if h(a) < h(b) { c } else { b },
    ),
    // 64 bits
    rule_of("add.u64", "@W add.u64 x, x, y; @X", |a, b, c| {
        fold(wide(a, b).wrapping_add(wide(c, a)))
    }),
    rule_of("sub.s64", "@W sub.s64 x, x, y; @X", |a, b, c| {
        fold(wide(a, b).wrapping_sub(wide(c, a)))
    }),
    rule_of("mul.lo.u64", "@W mul.lo.u64 x, x, y; @X", |a, b, c| {
        fold(wide(a, b).wrapping_mul(wide(c, a)))
    }),
    rule_of("mul.hi.u64", "@W mul.hi.u64 x, x, y; @X", |a, b, c| {
        let product = u128::from(wide(a, b)) * u128::from(wide(c, a));
        low((product >> 64 & 0xffff_ffff) as u64) ^ low((product >> 96) as u64)
    }),
    rule_of("mul.hi.s64", "@W mul.hi.s64 x, x, y; @X", |a, b, c| {
        let product = (i128::from(s64(a, b)) * i128::from(s64(c, a))).cast_unsigned();
        low((product >> 64 & 0xffff_ffff) as u64) ^ low((product >> 96) as u64)
    }),
    rule_of("mul.wide.u32", "mul.wide.u32 x, $a, $b; @X", |a, b, _| {
        fold(u64::from(a) * u64::from(b))
    }),
    rule_of("mad.wide.s32", "@W mad.wide.s32 x, $b, $c, y; @X", |a, b, c| {
        fold((i64::from(s(b)) * i64::from(s(c))).wrapping_add(s64(c, a)).cast_unsigned())
    }),
    rule_of("div.u64", "@W or.b64 y, y, 1; div.u64 x, x, y; @X", |a, b, c| {
        fold(wide(a, b) / (wide(c, a) | 1))
    }),
    rule_of("rem.s64", "@W shr.u64 y, y, 20; or.b64 y, y, 1; rem.s64 x, x, y; @X", |a, b, c| {
        let by = (wide(c, a) >> 20 | 1).cast_signed();
        fold((s64(a, b) % by).cast_unsigned())
    }),
    rule_of("shl.b64", "@W and.b32 t, $c, 127; shl.b64 x, x, t; @X", |a, b, c| {
        fold(wide(a, b).checked_shl(c & 127).unwrap_or(0))
    }),
    rule_of("shr.u64", "@W shr.u64 x, x, $c; @X", |a, b, c| {
        fold(wide(a, b).checked_shr(c).unwrap_or(0))
    }),
    rule_of("shr.s64", "@W and.b32 t, $c, 127; shr.s64 x, x, t; @X", |a, b, c| {
        fold(shifted_right(s64(a, b), c & 127).cast_unsigned())
    }),
    rule_of("min.s64", "@W min.s64 x, x, y; @X", |a, b, c| {
        fold(s64(a, b).min(s64(c, a)).cast_unsigned())
    }),
    rule_of("max.u64", "@W max.u64 x, x, y; @X", |a, b, c| fold(wide(a, b).max(wide(c, a)))),
    rule_of("popc.b64", "@W popc.b64 $d, x;", |a, b, _| wide(a, b).count_ones()),
    rule_of("clz.b64", "@W shr.u64 x, x, $c; clz.b64 $d, x;", |a, b, c| {
        wide(a, b).checked_shr(c).unwrap_or(0).leading_zeros()
    }),
    rule_of("brev.b64", "@W brev.b64 x, x; and.b64 x, x, y; @X", |a, b, c| {
        fold(wide(a, b).reverse_bits() & wide(c, a))
    }),
    rule_of(
        "bfe.s64",
        "@W and.b32 t, $b, 63; and.b32 u, $c, 63; bfe.s64 x, x, t, u; @X",
        |a, b, c| fold(extracted(wide(a, b), b & 63, c & 63, 63, true)),
    ),
    rule_of(
        "bfi.b64",
        "@W and.b32 t, $b, 63; and.b32 u, $c, 127; bfi.b64 x, x, y, t, u; @X",
        |a, b, c| fold(inserted(wide(a, b), wide(c, a), b & 63, c & 127, 63)),
    ),
    rule_of("setp.s64", "@W setp.lt.s64 p, x, y; selp.b64 x, y, x, p; @X", |a, b, c| {
        fold(if s64(a, b) < s64(c, a) { wide(c, a) } else { wide(a, b) })
    }),
    rule_of("cvt.s64", "cvt.s64.s32 x, $a; @W add.s64 x, x, y; @X", |a, b, c| {
        fold(wide(a, b).wrapping_add(wide(c, a)))
    }),
    rule_of(
        "cvt.s64.s32",
        "cvt.s64.s32 x, $a; mov.b64 {t, u}, x; xor.b32 $d, u, $b;",
        |a, b, _| (s(a) >> 31).cast_unsigned() ^ b,
    ),
    rule_of("cvt.sat.u32.s64", "@W cvt.sat.u32.s64 $d, x;", |a, b, _| {
        low(s64(a, b).clamp(0, 0xffff_ffff).cast_unsigned())
    }),
    // Floats. The results are finite.
    rule_of("add.f32", "@F add.rn.f32 f, f, g; mov.b32 $d, f;", |a, b, _| (f(a) + f(b)).to_bits()),
    rule_of("sub.f32", "@F sub.rn.f32 f, f, g; mov.b32 $d, f;", |a, b, _| (f(a) - f(b)).to_bits()),
    rule_of("mul.f32", "@F mul.rn.f32 f, f, g; mov.b32 $d, f;", |a, b, _| (f(a) * f(b)).to_bits()),
    rule_of("fma.f32", "@F fma.rn.f32 f, f, g, e; mov.b32 $d, f;", |a, b, c| {
        f(a).mul_add(f(b), f(c)).to_bits()
    }),
    rule_of("mul add", "@F mul.rn.f32 f, f, g; add.rn.f32 f, f, e; mov.b32 $d, f;", |a, b, c| {
        (f(a) * f(b) + f(c)).to_bits()
    }),
    rule_of("div.f32", "@F div.rn.f32 f, f, g; mov.b32 $d, f;", |a, b, _| (f(a) / f(b)).to_bits()),
    rule_of("rcp.f32", "@F rcp.rn.f32 f, f; mov.b32 $d, f;", |a, _, _| (1.0 / f(a)).to_bits()),
    rule_of("sqrt.f32", "@F abs.f32 f, f; sqrt.rn.f32 f, f; mov.b32 $d, f;", |a, _, _| {
        f(a).abs().sqrt().to_bits()
    }),
    // "Subnormal numbers are supported."
    rule_of("add tiny", "@T add.rn.f32 f, f, g; mov.b32 $d, f;", |a, b, _| {
        (tiny(a) + tiny(b)).to_bits()
    }),
    // "add.ftz.f32 flushes subnormal inputs and results to sign-preserving zero."
    rule_of(
        "neg abs",
        "@F abs.f32 f, f; neg.f32 g, g; add.rn.f32 f, f, g; mov.b32 $d, f;",
        |a, b, _| (f(a).abs() - f(b)).to_bits(),
    ),
    rule_of("min.f32", "@F min.f32 f, f, g; mov.b32 $d, f;", |a, b, _| f(a).min(f(b)).to_bits()),
    rule_of("max.f32", "@F max.f32 f, f, g; mov.b32 $d, f;", |a, b, _| f(a).max(f(b)).to_bits()),
    rule_of("setp.f32", "@F setp.geu.f32 p, f, g; selp.b32 $d, $b, $c, p;", |a, b, c| {
        if f(a) >= f(b) { b } else { c }
    }),
    rule_of("setp.nan", "setp.num.f32 p, $a, $b; selp.b32 $d, $a, $c, p;", |a, b, c| {
        let is_number = |x: u32| !f32::from_bits(x).is_nan();
        if is_number(a) && is_number(b) { a } else { c }
    }),
    rule_of("cvt.rn.f32.s32", "cvt.rn.f32.s32 f, $a; mov.b32 $d, f;", |a, _, _| {
        (s(a) as f32).to_bits()
    }),
    rule_of("cvt.rn.f32.u64", "@W cvt.rn.f32.u64 f, x; mov.b32 $d, f;", |a, b, _| {
        (wide(a, b) as f32).to_bits()
    }),
    // "cvt.rzi: the result is clamped to the range of the target."
    rule_of("cvt.rzi.s32", "@F mul.rn.f32 f, f, 0f4C800000; cvt.rzi.s32.f32 $d, f;", |a, _, _| {
        whole(f(a) * f32::from_bits(0x4c80_0000))
    }),
    rule_of("cvt.rni.u32", "@F mul.rn.f32 f, f, 0f46000000; cvt.rni.u32.f32 $d, f;", |a, _, _| {
        whole((f(a) * f32::from_bits(0x4600_0000)).round_ties_even().max(0.0))
    }),
    rule_of("cvt.rpi.s32", "@F mul.rn.f32 f, f, 0f44000000; cvt.rpi.s32.f32 $d, f;", |a, _, _| {
        whole((f(a) * f32::from_bits(0x4400_0000)).ceil())
    }),
    rule_of("cvt.f32.f64", "@D cvt.rn.f32.f64 f, m; mov.b32 $d, f;", |a, b, _| {
        #[expect(clippy::cast_possible_truncation, reason = "this is the conversion")]
        let it = d(a, b) as f32;
        it.to_bits()
    }),
    rule_of("add.f64", "@D add.rn.f64 m, m, n; mov.b64 x, m; @X", |a, b, c| {
        fold((d(a, b) + d(b, c)).to_bits())
    }),
    rule_of("mul.f64", "@D mul.rn.f64 m, m, n; mov.b64 x, m; @X", |a, b, c| {
        fold((d(a, b) * d(b, c)).to_bits())
    }),
    rule_of("fma.f64", "@D fma.rn.f64 m, m, n, o; mov.b64 x, m; @X", |a, b, c| {
        fold(d(a, b).mul_add(d(b, c), d(c, a)).to_bits())
    }),
    rule_of("div.f64", "@D div.rn.f64 m, m, n; mov.b64 x, m; @X", |a, b, c| {
        fold((d(a, b) / d(b, c)).to_bits())
    }),
    // Halves. The exponents are below half of the largest.
    rule_of("cvt.f32.f16", "@H cvt.f32.f16 f, h; mov.b32 $d, f;", |a, _, _| {
        half(a & 0xbfff).to_bits()
    }),
    rule_of("cvt.rn.f16.f32", "@F cvt.rn.f16.f32 h, f; cvt.u32.u16 $d, h;", |a, _, _| {
        u32::from(rounded_half(f64::from(f(a))))
    }),
    rule_of("add.f16", "@H add.rn.f16 h, h, i; cvt.u32.u16 $d, h;", |a, b, _| {
        u32::from(rounded_half(f64::from(half(a & 0xbfff)) + f64::from(half(b & 0xbfff))))
    }),
    rule_of("mul.f16", "@H mul.rn.f16 h, h, i; cvt.u32.u16 $d, h;", |a, b, _| {
        u32::from(rounded_half(f64::from(half(a & 0xbfff)) * f64::from(half(b & 0xbfff))))
    }),
    // Functions
    rule_of("call mix", "call ($d), mix, ($a, $b);", |a, b, _| {
        (if a < b { b.wrapping_sub(a) } else { a.wrapping_mul(5) }) ^ b
    }),
    rule_of(
        "call times",
        "{ .param .b32 pa; .param .b32 pb; .param .b32 pd; \
                           st.param.b32 [pa], $a; st.param.b32 [pb], $b; \
                           call (pd), times, (pa, pb); ld.param.b32 $d, [pd]; }",
        |a, b, _| times(a, b),
    ),
];
