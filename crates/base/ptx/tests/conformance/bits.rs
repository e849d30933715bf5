//! Bits: logic, shifts, fields, bytes.

use crate::case::{Case, Expect, T, run};
use crate::integer::{INTS, Int};

fn mask(bits: u32) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn register(bits: u32) -> T {
    match bits {
        16 => T::I16,
        32 => T::I32,
        _ => T::I64,
    }
}

#[test]
fn logic_agrees() {
    run("logic", &logic());
}

pub fn logic() -> Vec<Case> {
    let mut cases = Vec::new();
    for bits in [16, 32, 64] {
        let r = register(bits);
        for (op, f) in [
            ("and", (|a, b| a & b) as fn(u64, u64) -> u64),
            ("or", |a, b| a | b),
            ("xor", |a, b| a ^ b),
        ] {
            cases.push(Case::new(format!("{op}.b{bits} $d, $a, $b;"), &[r, r], r, move |v| {
                f(v[0], v[1])
            }));
        }
        cases.push(Case::new(format!("not.b{bits} $d, $a;"), &[r], r, move |v| !v[0] & mask(bits)));
        cases.push(Case::new(format!("cnot.b{bits} $d, $a;"), &[r], r, |v| u64::from(v[0] == 0)));
        cases.extend(selections(bits, r));
        cases.push(Case::new(
            format!("slct.u{bits}.s32 $d, $a, $b, $c;"),
            &[r, r, T::I32],
            r,
            |v| {
                if v[2] as i32 >= 0 { v[0] } else { v[1] }
            },
        ));
        cases.push(Case::with(
            format!("slct.s{bits}.f32 $d, $a, $b, $c;"),
            &[r, r, T::F32],
            r,
            |v| {
                let c = f32::from_bits(v[2] as u32);
                // PTX says both that -0.0 is not below zero and that `.ftz` keeps its sign.
                Expect::Bits(if c >= 0.0 { v[0] } else { v[1] })
            },
        ));
    }
    for (op, f) in [
        ("and", (|a, b| a & b) as fn(u64, u64) -> u64),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
    ] {
        cases.push(Case::new(
            format!("{op}.pred $d, $a, $b;"),
            &[T::Pred, T::Pred],
            T::Pred,
            move |v| f(v[0], v[1]),
        ));
    }
    cases.push(Case::new("not.pred $d, $a;", &[T::Pred], T::Pred, |v| v[0] ^ 1));
    cases.push(Case::new("mov.pred $d, $a;", &[T::Pred], T::Pred, |v| v[0]));
    for table in [0x80u64, 0xfe, 0x96, 0xe8, 0xca, 0x1d, 0x00, 0xff] {
        let reference = move |v: &[u64]| {
            let mut result = 0;
            for row in 0..8 {
                let pick = |value: u64, bit: u64| if bit == 1 { value } else { !value };
                if (table >> row) & 1 == 1 {
                    result |=
                        pick(v[0], row >> 2) & pick(v[1], (row >> 1) & 1) & pick(v[2], row & 1);
                }
            }
            result & mask(32)
        };
        cases.push(Case::new(
            format!("lop3.b32 $d, $a, $b, $c, {table};"),
            &[T::I32; 3],
            T::I32,
            reference,
        ));
    }
    cases.push(Case::new(
        "{ .reg .b32 x; lop3.or.b32 x|$d, $a, $b, $a, 0x80, $c; }",
        &[T::I32, T::I32, T::Pred],
        T::Pred,
        |v| u64::from(v[0] & v[1] != 0) | v[2],
    ));
    cases.push(Case::new(
        "{ .reg .b32 x; lop3.and.b32 x|$d, $a, $b, $a, 0x80, !$c; }",
        &[T::I32, T::I32, T::Pred],
        T::Pred,
        |v| u64::from(v[0] & v[1] != 0) & (v[2] ^ 1),
    ));
    cases
}

/// `selp` with a predicate and with its negation.
fn selections(bits: u32, register: T) -> [Case; 2] {
    ["", "!"].map(|not| {
        let text = format!("selp.b{bits} $d, $a, $b, {not}$c;");
        Case::new(text, &[register, register, T::Pred], register, move |v| {
            if (v[2] != 0) == not.is_empty() { v[0] } else { v[1] }
        })
    })
}

#[test]
fn shifts_agree() {
    run("shifts", &shifts());
}

pub fn shifts() -> Vec<Case> {
    let mut cases = Vec::new();
    for int in INTS {
        let r = int.register();
        let count = |v: &[u64]| (v[1] & 0xffff_ffff).min(u64::from(u32::MAX)) as u32;
        cases.push(Case::new(
            format!("shr.{} $d, $a, $b;", int.name),
            &[r, T::Count],
            r,
            move |v| {
                let value = int.value(v[0]);
                int.cut(value >> count(v).min(127))
            },
        ));
        if !int.signed {
            let bits = int.bits;
            cases.push(Case::new(
                format!("shl.b{bits} $d, $a, $b;"),
                &[r, T::Count],
                r,
                move |v| {
                    if count(v) >= bits { 0 } else { (v[0] << count(v)) & mask(bits) }
                },
            ));
            cases.push(Case::new(
                format!("shr.b{bits} $d, $a, $b;"),
                &[r, T::Count],
                r,
                move |v| {
                    if count(v) >= bits { 0 } else { v[0] >> count(v) }
                },
            ));
        }
    }
    for (mode, wraps) in [("wrap", true), ("clamp", false)] {
        let amount = move |c: u64| if wraps { c & 31 } else { c.min(32) };
        cases.push(Case::new(
            format!("shf.l.{mode}.b32 $d, $a, $b, $c;"),
            &[T::I32, T::I32, T::Count],
            T::I32,
            move |v| {
                let wide = u128::from((v[1] << 32) | v[0]);
                ((wide << amount(v[2])) >> 32) as u64 & mask(32)
            },
        ));
        cases.push(Case::new(
            format!("shf.r.{mode}.b32 $d, $a, $b, $c;"),
            &[T::I32, T::I32, T::Count],
            T::I32,
            move |v| {
                let wide = u128::from((v[1] << 32) | v[0]);
                (wide >> amount(v[2])) as u64 & mask(32)
            },
        ));
        cases.push(Case::new(
            format!("bmsk.{mode}.b32 $d, $a, $b;"),
            &[T::Count, T::Count],
            T::I32,
            move |v| {
                let limit = |value: u64| if wraps { value & 31 } else { value.min(32) };
                let (from, width) = (limit(v[0]), limit(v[1]));
                ((mask(u32::try_from(width).expect("small")) as u128) << from) as u64 & mask(32)
            },
        ));
        for signed in [false, true] {
            let name = if signed { "s32" } else { "u32" };
            cases.push(Case::new(
                format!("szext.{mode}.{name} $d, $a, $b;"),
                &[T::I32, T::Count],
                T::I32,
                move |v| {
                    let width = if wraps { v[1] & 31 } else { v[1].min(32) };
                    if width == 0 {
                        return 0;
                    }
                    INTS[2].cut(Int { name, bits: width as u32, signed }.value(v[0]))
                },
            ));
        }
    }
    cases
}

#[test]
fn fields_and_counts_agree() {
    run("fields", &fields());
}

pub fn fields() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.push(Case::with(
        "{ .reg .b32 x; and.b32 x, $b, 31; fns.b32 $d, $a, x, $c; }",
        &[T::I32, T::Count, T::Count],
        T::I32,
        |v| Expect::Bits(nth_bit(v[0], (v[1] & 31) as i64, i64::from(v[2] as i32))),
    ));
    for int in INTS.into_iter().filter(|int| int.bits >= 32) {
        let (r, bits) = (int.register(), int.bits);
        cases.push(Case::new(
            format!("bfe.{} $d, $a, $b, $c;", int.name),
            &[r, T::Count, T::Count],
            r,
            move |v| field(int, v[0], (v[1] & 0xff) as u32, (v[2] & 0xff) as u32),
        ));
        for (shiftamt, suffix) in [(false, ""), (true, ".shiftamt")] {
            cases.push(Case::new(
                format!("bfind{suffix}.{} $d, $a;", int.name),
                &[r],
                T::I32,
                move |v| {
                    let value = if int.value(v[0]) < 0 { !v[0] & mask(bits) } else { v[0] };
                    let highest = 63 - i64::from(value.leading_zeros());
                    let result = if shiftamt && highest >= 0 {
                        i64::from(bits) - 1 - highest
                    } else {
                        highest
                    };
                    result as u64 & mask(32)
                },
            ));
        }
        if !int.signed {
            cases.push(Case::new(
                format!("bfi.b{bits} $d, $a, $b, $c, $e;"),
                &[r, r, T::Count, T::Count],
                r,
                move |v| {
                    let (from, width) = ((v[2] & 0xff) as u32, (v[3] & 0xff) as u32);
                    if width == 0 || from >= bits {
                        return v[1];
                    }
                    let ones = (mask(width.min(bits)) << from) & mask(bits);
                    (v[1] & !ones) | ((v[0] << from) & ones)
                },
            ));
            cases.push(Case::new(format!("popc.b{bits} $d, $a;"), &[r], T::I32, |v| {
                u64::from(v[0].count_ones())
            }));
            cases.push(Case::new(format!("clz.b{bits} $d, $a;"), &[r], T::I32, move |v| {
                u64::from(v[0].leading_zeros() - (64 - bits))
            }));
            cases.push(Case::new(format!("brev.b{bits} $d, $a;"), &[r], r, move |v| {
                v[0].reverse_bits() >> (64 - bits)
            }));
        }
    }
    cases
}

/// `fns` as PTX's manual describes it: the bit at `base`, or the `offset`-th set bit from there,
/// upwards or downwards.
fn nth_bit(mask: u64, base: i64, offset: i64) -> u64 {
    let is_set = |position: i64| (mask >> position) & 1 == 1;
    let step = if offset < 0 { -1 } else { 1 };
    let mut left = offset.abs() - 1;
    let mut position = base;
    if offset == 0 {
        return if is_set(base) { base as u64 } else { 0xffff_ffff };
    }
    while (0..32).contains(&position) {
        if is_set(position) {
            if left == 0 {
                return position as u64;
            }
            left -= 1;
        }
        position += step;
    }
    0xffff_ffff
}

/// `bfe` as PTX's manual describes it: bits beyond the width are copies of the sign, which is that
/// of the field's last bit or of the value's.
fn field(int: Int, value: u64, from: u32, width: u32) -> u64 {
    let msb = int.bits - 1;
    let bit = |position: u32| (value >> position) & 1;
    let sign = if !int.signed || width == 0 { 0 } else { bit((from + width - 1).min(msb)) };
    let mut result = 0;
    for position in 0..=msb {
        let inside = position < width && from + position <= msb;
        result |= (if inside { bit(from + position) } else { sign }) << position;
    }
    result
}

#[test]
fn bytes_and_vectors_agree() {
    run("bytes", &bytes());
}

pub fn bytes() -> Vec<Case> {
    let mut cases = Vec::new();
    let bytes = |a: u64, b: u64| ((b << 32) | a).to_le_bytes();
    let permute = move |a: u64, b: u64, selector: u64| {
        (0..4).fold(0, |result, index| {
            let nibble = (selector >> (4 * index)) & 0xf;
            let byte = bytes(a, b)[(nibble & 7) as usize];
            let byte = if nibble & 8 == 0 {
                byte
            } else if byte & 0x80 == 0 {
                0
            } else {
                0xff
            };
            result | (u64::from(byte) << (8 * index))
        })
    };
    cases.push(Case::new("prmt.b32 $d, $a, $b, $c;", &[T::I32; 3], T::I32, move |v| {
        permute(v[0], v[1], v[2])
    }));
    // The bytes that each mode takes, lowest first, for c from 0 to 3.
    let modes: [(&str, [[u64; 4]; 4]); 6] = [
        ("f4e", [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]),
        ("b4e", [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]]),
        ("rc8", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecl", [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]]),
        ("rc16", [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]]),
    ];
    for (mode, table) in modes {
        cases.push(Case::new(
            format!("prmt.b32.{mode} $d, $a, $b, $c;"),
            &[T::I32; 3],
            T::I32,
            move |v| {
                let selector = table[(v[2] & 3) as usize]
                    .iter()
                    .enumerate()
                    .fold(0, |selector, (index, byte)| selector | (byte << (4 * index)));
                permute(v[0], v[1], selector)
            },
        ));
    }
    cases.push(Case::new("mov.b64 $d, {$a, $b};", &[T::I32, T::I32], T::I64, |v| {
        v[0] | (v[1] << 32)
    }));
    cases.push(Case::new("mov.b32 $d, {$a, $b};", &[T::I16, T::I16], T::I32, |v| {
        v[0] | (v[1] << 16)
    }));
    cases.push(Case::new("mov.b64 $d, {$a, $b, $a, $b};", &[T::I16, T::I16], T::I64, |v| {
        v[0] | (v[1] << 16) | (v[0] << 32) | (v[1] << 48)
    }));
    cases.push(Case::new("{ .reg .b32 x; mov.b64 {x, $d}, $a; }", &[T::I64], T::I32, |v| {
        v[0] >> 32
    }));
    cases.push(Case::new("mov.b64 {$d, _}, $a;", &[T::I64], T::I32, |v| v[0] & mask(32)));
    cases.push(Case::new("{ .reg .b16 x; mov.b32 {x, $d}, $a; }", &[T::I32], T::I16, |v| {
        v[0] >> 16
    }));
    cases.push(Case::new("mov.b32 $d, $a;", &[T::F32], T::I32, |v| v[0]));
    cases.push(Case::new("mov.b64 $d, $a;", &[T::F64], T::I64, |v| v[0]));
    cases.push(Case::new("mov.f32 $d, 0fC0490FDB;", &[], T::F32, |_| 0xc049_0fdb));
    cases
        .push(Case::new("mov.f64 $d, 0d400921FB54442D18;", &[], T::F64, |_| 0x4009_21fb_5444_2d18));
    cases.push(Case::new("mov.u32 $d, WARP_SZ;", &[], T::I32, |_| 32));
    cases
}
