//! Integer arithmetic.

use crate::case::{Case, Expect, T, run};

#[derive(Debug, Clone, Copy)]
pub struct Int {
    pub name: &'static str,
    pub bits: u32,
    pub signed: bool,
}

pub const INTS: [Int; 6] = [
    Int { name: "u16", bits: 16, signed: false },
    Int { name: "s16", bits: 16, signed: true },
    Int { name: "u32", bits: 32, signed: false },
    Int { name: "s32", bits: 32, signed: true },
    Int { name: "u64", bits: 64, signed: false },
    Int { name: "s64", bits: 64, signed: true },
];

impl Int {
    pub fn register(self) -> T {
        match self.bits {
            16 => T::I16,
            32 => T::I32,
            _ => T::I64,
        }
    }

    /// Interprets bits as a number.
    pub fn value(self, bits: u64) -> i128 {
        let shift = 64 - self.bits;
        if self.signed {
            i128::from(((bits << shift) as i64) >> shift)
        } else {
            i128::from((bits << shift) >> shift)
        }
    }

    /// Truncates a number to the width of the type.
    pub fn cut(self, value: i128) -> u64 {
        let shift = 64 - self.bits;
        ((value as u64) << shift) >> shift
    }

    pub fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    pub fn max(self) -> i128 {
        if self.signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    pub fn clamp(self, value: i128) -> u64 {
        self.cut(value.clamp(self.min(), self.max()))
    }

    /// Returns the upper half of a product.
    fn high(self, a: u64, b: u64) -> i128 {
        if self.bits == 64 && !self.signed {
            return ((u128::from(a) * u128::from(b)) >> 64) as i128;
        }
        (self.value(a) * self.value(b)) >> self.bits
    }
}

fn two(cases: &mut Vec<Case>, int: Int, op: &str, f: impl Fn(i128, i128) -> i128 + 'static) {
    let r = int.register();
    let text = format!("{op}.{} $d, $a, $b;", int.name);
    cases.push(Case::new(text, &[r, r], r, move |v| int.cut(f(int.value(v[0]), int.value(v[1])))));
}

fn three(
    cases: &mut Vec<Case>,
    int: Int,
    op: &str,
    f: impl Fn(i128, i128, i128) -> i128 + 'static,
) {
    let r = int.register();
    let text = format!("{op}.{} $d, $a, $b, $c;", int.name);
    let reference = move |v: &[u64]| int.cut(f(int.value(v[0]), int.value(v[1]), int.value(v[2])));
    cases.push(Case::new(text, &[r, r, r], r, reference));
}

#[test]
fn sums_products_and_extremes_agree() {
    run("integers", &integers());
}

pub fn integers() -> Vec<Case> {
    let mut cases = Vec::new();
    for int in INTS {
        let r = int.register();
        two(&mut cases, int, "add", |a, b| a + b);
        two(&mut cases, int, "sub", |a, b| a - b);
        two(&mut cases, int, "min", i128::min);
        two(&mut cases, int, "max", i128::max);
        two(&mut cases, int, "mul.lo", i128::wrapping_mul);
        three(&mut cases, int, "mad.lo", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
        three(&mut cases, int, "sad", |a, b, c| (a - b).abs() + c);
        let high = move |v: &[u64]| int.cut(int.high(v[0], v[1]));
        cases.push(Case::new(format!("mul.hi.{} $d, $a, $b;", int.name), &[r, r], r, high));
        let high = move |v: &[u64]| int.cut(int.high(v[0], v[1]) + int.value(v[2]));
        cases.push(Case::new(format!("mad.hi.{} $d, $a, $b, $c;", int.name), &[r, r, r], r, high));
        for (op, is_div) in [("div", true), ("rem", false)] {
            let reference = move |v: &[u64]| {
                let (a, b) = (int.value(v[0]), int.value(v[1]));
                // PTX does not define the result of a division by zero or of one that overflows.
                if b == 0 || (b == -1 && a == int.min()) {
                    return Expect::Any;
                }
                Expect::Bits(int.cut(if is_div { a / b } else { a % b }))
            };
            cases.push(Case::with(format!("{op}.{} $d, $a, $b;", int.name), &[r, r], r, reference));
        }
        if int.signed {
            cases.push(Case::new(format!("abs.{} $d, $a;", int.name), &[r], r, move |v| {
                int.cut(int.value(v[0]).abs())
            }));
            // The smallest number keeps its sign, also where a compiler sees who uses the result.
            let text = format!("abs.{0} $d, $a; mul.hi.{0} $d, $d, $b;", int.name);
            cases.push(Case::new(text, &[r, r], r, move |v| {
                int.cut(int.high(int.cut(int.value(v[0]).abs()), v[1]))
            }));
            cases.push(Case::new(format!("neg.{} $d, $a;", int.name), &[r], r, move |v| {
                int.cut(-int.value(v[0]))
            }));
        }
    }
    cases
}

#[test]
fn wide_narrow_and_saturating_products_agree() {
    run("products", &products());
}

pub fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for int in INTS.into_iter().filter(|int| int.bits < 64) {
        let (r, wide) = (int.register(), Int { bits: int.bits * 2, ..int });
        let w = wide.register();
        let text = format!("mul.wide.{} $d, $a, $b;", int.name);
        cases.push(Case::new(text, &[r, r], w, move |v| {
            wide.cut(int.value(v[0]) * int.value(v[1]))
        }));
        let text = format!("mad.wide.{} $d, $a, $b, $c;", int.name);
        let reference =
            move |v: &[u64]| wide.cut(int.value(v[0]) * int.value(v[1]) + wide.value(v[2]));
        cases.push(Case::new(text, &[r, r, w], w, reference));
    }
    let s32 = INTS[3];
    let saturating = |op: &str, f: fn(i128, i128) -> i128| {
        let reference = move |v: &[u64]| s32.clamp(f(s32.value(v[0]), s32.value(v[1])));
        Case::new(format!("{op}.sat.s32 $d, $a, $b;"), &[T::I32, T::I32], T::I32, reference)
    };
    cases.push(saturating("add", |a, b| a + b));
    cases.push(saturating("sub", |a, b| a - b));
    let reference =
        move |v: &[u64]| s32.clamp(((s32.value(v[0]) * s32.value(v[1])) >> 32) + s32.value(v[2]));
    cases.push(Case::new("mad.hi.sat.s32 $d, $a, $b, $c;", &[T::I32; 3], T::I32, reference));
    for int in [INTS[2], INTS[3]] {
        let narrow = Int { bits: 24, ..int };
        let product =
            move |v: &[u64]| narrow.value(v[0] & 0xff_ffff) * narrow.value(v[1] & 0xff_ffff);
        for (half, shift) in [("lo", 0), ("hi", 16)] {
            let text = format!("mul24.{half}.{} $d, $a, $b;", int.name);
            cases.push(Case::new(text, &[T::I32, T::I32], T::I32, move |v| {
                int.cut(product(v) >> shift)
            }));
            let text = format!("mad24.{half}.{} $d, $a, $b, $c;", int.name);
            let reference = move |v: &[u64]| int.cut((product(v) >> shift) + int.value(v[2]));
            cases.push(Case::new(text, &[T::I32; 3], T::I32, reference));
        }
    }
    let narrow = Int { bits: 24, ..s32 };
    let reference = move |v: &[u64]| {
        let product = narrow.value(v[0] & 0xff_ffff) * narrow.value(v[1] & 0xff_ffff);
        s32.clamp(i128::from((product >> 16) as i32) + s32.value(v[2]))
    };
    cases.push(Case::new("mad24.hi.sat.s32 $d, $a, $b, $c;", &[T::I32; 3], T::I32, reference));
    cases
}

#[test]
fn carries_agree() {
    run("carries", &carries());
}

pub fn carries() -> Vec<Case> {
    let split =
        "{ .reg .b32 dl, dh, al, ah, bl, bh, cl, ch; mov.b64 {al, ah}, $a; mov.b64 {bl, bh}, $b;";
    let join = "mov.b64 $d, {dl, dh}; }";
    let long = |text: &str, reference: fn(u64, u64) -> u64| {
        Case::new(format!("{split} {text} {join}"), &[T::I64, T::I64], T::I64, move |v| {
            reference(v[0], v[1])
        })
    };
    let mut cases = vec![
        long("add.cc.u32 dl, al, bl; addc.u32 dh, ah, bh;", u64::wrapping_add),
        long("sub.cc.u32 dl, al, bl; subc.u32 dh, ah, bh;", u64::wrapping_sub),
        long("add.cc.s32 dl, al, bl; addc.cc.s32 dh, ah, bh; addc.u32 dl, 0, 0;", |a, b| {
            let (sum, carry) = a.overflowing_add(b);
            (sum & !0xffff_ffff) | u64::from(carry)
        }),
        long("sub.cc.s32 dl, al, bl; subc.cc.s32 dh, ah, bh; subc.u32 dl, 0, 0;", |a, b| {
            let (difference, borrow) = a.overflowing_sub(b);
            (difference & !0xffff_ffff) | if borrow { 0xffff_ffff } else { 0 }
        }),
        // The low 64 bits of a product of 64-bit numbers, from products of 32-bit numbers.
        long(
            "mul.lo.u32 dl, al, bl; mul.hi.u32 dh, al, bl; mad.lo.u32 dh, al, bh, dh; mad.lo.u32 dh, ah, bl, dh;",
            u64::wrapping_mul,
        ),
        // al * bl + bh:ah in 64 bits.
        long("mad.lo.cc.u32 dl, al, bl, ah; madc.hi.u32 dh, al, bl, bh;", |a, b| {
            (a & 0xffff_ffff)
                .wrapping_mul(b & 0xffff_ffff)
                .wrapping_add((a >> 32) | (b & !0xffff_ffff))
        }),
        long("mad.hi.cc.u32 dl, al, bl, ah; madc.lo.u32 dh, 0, 0, 0;", |a, b| {
            (((a & 0xffff_ffff) * (b & 0xffff_ffff)) >> 32) + (a >> 32)
        }),
    ];
    let carry = |text: &str, reference: fn(u64, u64) -> u64| {
        let text = format!("{{ .reg .b64 x; {text} }}");
        Case::new(text, &[T::I64, T::I64], T::I64, move |v| reference(v[0], v[1]))
    };
    cases.push(carry("add.cc.u64 x, $a, $b; addc.u64 $d, 0, 0;", |a, b| {
        u64::from(a.checked_add(b).is_none())
    }));
    cases.push(carry(
        "sub.cc.u64 x, $a, $b; subc.u64 $d, 0, 0;",
        |a, b| if a < b { u64::MAX } else { 0 },
    ));
    cases.push(carry("mad.lo.cc.u64 x, $a, $b, $a; madc.hi.u64 $d, $a, $b, 0;", |a, b| {
        ((u128::from(a) * u128::from(b) + u128::from(a)) >> 64) as u64
    }));
    cases
}

/// `vabsdiff2` or `vabsdiff4`, for operands with a sign or without.
fn lane_differences(bits: u32, a_signed: bool, b_signed: bool) -> [Case; 2] {
    let lane = |signed| Int { name: "", bits, signed };
    let (a, b, to) = (lane(a_signed), lane(b_signed), lane(false));
    let difference = move |v: &[u64], at: u32| {
        (a.value(v[0] >> (bits * at)) - b.value(v[1] >> (bits * at))).abs()
    };
    let all =
        move |v: &[u64]| (0..32 / bits).map(|at| to.cut(difference(v, at)) << (bits * at)).sum();
    let sum = move |v: &[u64]| {
        let sum: i128 = (0..32 / bits).map(|at| difference(v, at)).sum();
        INTS[2].cut(sum + INTS[2].value(v[2]))
    };
    let name = |signed| if signed { "s32" } else { "u32" };
    let text = format!("vabsdiff{}.u32.{}.{}", 32 / bits, name(a_signed), name(b_signed));
    let registers = [T::I32; 3];
    [
        Case::new(format!("{text} $d, $a, $b, $c;"), &registers, T::I32, all),
        Case::new(format!("{text}.add $d, $a, $b, $c;"), &registers, T::I32, sum),
    ]
}

#[test]
fn halves_and_dot_products_agree() {
    run("packed integers", &packed_integers());
}

pub fn packed_integers() -> Vec<Case> {
    let mut cases = Vec::new();
    let halves = |op: &str, int: Int, f: fn(i128, i128) -> i128| {
        let reference = move |v: &[u64]| {
            let half = |shift: u32| {
                int.cut(f(int.value(v[0] >> shift), int.value(v[1] >> shift))) << shift
            };
            half(0) | half(16)
        };
        Case::new(format!("{op}.{}x2 $d, $a, $b;", int.name), &[T::I32, T::I32], T::I32, reference)
    };
    for int in [INTS[0], INTS[1]] {
        cases.push(halves("add", int, |a, b| a + b));
        cases.push(halves("min", int, i128::min));
        cases.push(halves("max", int, i128::max));
    }
    cases.push(halves("min.relu", INTS[1], |a, b| a.min(b).max(0)));
    cases.push(halves("max.relu", INTS[1], |a, b| a.max(b).max(0)));
    for (op, f) in [("min", i128::min as fn(i128, i128) -> i128), ("max", i128::max)] {
        let reference =
            move |v: &[u64]| INTS[3].cut(f(INTS[3].value(v[0]), INTS[3].value(v[1])).max(0));
        cases.push(Case::new(
            format!("{op}.relu.s32 $d, $a, $b;"),
            &[T::I32, T::I32],
            T::I32,
            reference,
        ));
    }
    for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
        cases.extend(lane_differences(8, a, b));
        cases.extend(lane_differences(16, a, b));
    }
    for (a_name, a_signed) in [("u32", false), ("s32", true)] {
        for (b_name, b_signed) in [("u32", false), ("s32", true)] {
            let byte = |signed| Int { name: "", bits: 8, signed };
            let (a8, b8, a16) =
                (byte(a_signed), byte(b_signed), Int { bits: 16, ..byte(a_signed) });
            let reference = move |v: &[u64]| {
                let sum: i128 = (0..4)
                    .map(|index| a8.value(v[0] >> (8 * index)) * b8.value(v[1] >> (8 * index)))
                    .sum();
                INTS[2].cut(sum + INTS[2].value(v[2]))
            };
            cases.push(Case::new(
                format!("dp4a.{a_name}.{b_name} $d, $a, $b, $c;"),
                &[T::I32; 3],
                T::I32,
                reference,
            ));
            for (half, first) in [("lo", 0), ("hi", 2)] {
                let reference = move |v: &[u64]| {
                    let term = |index: u32| {
                        a16.value(v[0] >> (16 * index)) * b8.value(v[1] >> (8 * (first + index)))
                    };
                    INTS[2].cut(term(0) + term(1) + INTS[2].value(v[2]))
                };
                cases.push(Case::new(
                    format!("dp2a.{half}.{a_name}.{b_name} $d, $a, $b, $c;"),
                    &[T::I32; 3],
                    T::I32,
                    reference,
                ));
            }
        }
    }
    cases
}
