//! Comparisons: `setp` and `set`.

use std::cmp::Ordering;

use crate::case::{Case, Expect, T, run};
use crate::integer::INTS;
use crate::number::{from_brain, from_half};

/// Whether a comparison is true. The order is `None` if an operand is NaN.
fn holds(compare: &str, order: Option<Ordering>) -> bool {
    let Some(order) = order else {
        return matches!(compare, "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "nan");
    };
    match compare.trim_end_matches('u') {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" | "lo" => order.is_lt(),
        "le" | "ls" => order.is_le(),
        "gt" | "hi" => order.is_gt(),
        "ge" | "hs" => order.is_ge(),
        "num" => true,
        _ => false,
    }
}

const INTEGER: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
const UNSIGNED: [&str; 4] = ["lo", "ls", "hi", "hs"];
const FLOAT: [&str; 14] =
    ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

/// A float's type, and a function that orders its bits.
type FloatOrder = (&'static str, T, fn(u64, u64) -> Option<Ordering>);

const FLOATS: [FloatOrder; 4] = [
    ("f32", T::F32, |a, b| f32::from_bits(a as u32).partial_cmp(&f32::from_bits(b as u32))),
    ("f64", T::F64, |a, b| f64::from_bits(a).partial_cmp(&f64::from_bits(b))),
    ("f16", T::F16, |a, b| from_half(a).partial_cmp(&from_half(b))),
    ("bf16", T::Bf16, |a, b| from_brain(a).partial_cmp(&from_brain(b))),
];

#[test]
fn comparisons_of_integers_agree() {
    run("comparisons of integers", &comparisons_of_integers());
}

pub fn comparisons_of_integers() -> Vec<Case> {
    let mut cases = Vec::new();
    for int in INTS {
        let r = int.register();
        let more: &[&str] = if int.signed { &[] } else { &UNSIGNED };
        for compare in INTEGER.iter().chain(more) {
            let reference = move |v: &[u64]| {
                u64::from(holds(compare, Some(int.value(v[0]).cmp(&int.value(v[1])))))
            };
            cases.push(Case::new(
                format!("setp.{compare}.{} $d, $a, $b;", int.name),
                &[r, r],
                T::Pred,
                reference,
            ));
        }
        let reference =
            move |v: &[u64]| if int.value(v[0]) > int.value(v[1]) { 0xffff_ffff } else { 0 };
        cases.push(Case::new(
            format!("set.gt.u32.{} $d, $a, $b;", int.name),
            &[r, r],
            T::I32,
            reference,
        ));
        let reference =
            move |v: &[u64]| if int.value(v[0]) <= int.value(v[1]) { 0x3f80_0000 } else { 0 };
        cases.push(Case::new(
            format!("set.le.f32.{} $d, $a, $b;", int.name),
            &[r, r],
            T::F32,
            reference,
        ));
    }
    for bits in [16, 32, 64] {
        let r = [T::I16, T::I32, T::I64][bits / 32];
        cases.push(Case::new(format!("setp.eq.b{bits} $d, $a, $b;"), &[r, r], T::Pred, |v| {
            u64::from(v[0] == v[1])
        }));
        cases.push(Case::new(format!("setp.ne.b{bits} $d, $a, $b;"), &[r, r], T::Pred, |v| {
            u64::from(v[0] != v[1])
        }));
    }
    cases
}

#[test]
fn comparisons_with_a_predicate_agree() {
    run("comparisons with a predicate", &comparisons_with_a_predicate());
}

pub fn comparisons_with_a_predicate() -> Vec<Case> {
    let mut cases = Vec::new();
    let ins = [T::I32, T::I32, T::Pred];
    for (op, f) in [
        ("and", (|a, b| a & b) as fn(bool, bool) -> bool),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
    ] {
        for negated in [false, true] {
            let sign = if negated { "!" } else { "" };
            let less = |v: &[u64]| (v[0] as i32) < (v[1] as i32);
            let c = move |v: &[u64]| (v[2] != 0) != negated;
            let text = format!("setp.lt.{op}.s32 $d, $a, $b, {sign}$c;");
            cases.push(Case::new(text, &ins, T::Pred, move |v| u64::from(f(less(v), c(v)))));
            // The second destination: the opposite comparison, combined with the same predicate.
            let text = format!("{{ .reg .pred x; setp.lt.{op}.s32 x|$d, $a, $b, {sign}$c; }}");
            cases.push(Case::new(text, &ins, T::Pred, move |v| u64::from(f(!less(v), c(v)))));
            let text = format!("set.lt.{op}.u32.s32 $d, $a, $b, {sign}$c;");
            cases.push(Case::new(text, &ins, T::I32, move |v| {
                if f(less(v), c(v)) { 0xffff_ffff } else { 0 }
            }));
        }
    }
    cases.push(Case::new(
        "{ .reg .pred x; setp.gt.u32 x|$d, $a, $b; }",
        &[T::I32, T::I32],
        T::Pred,
        |v| u64::from(v[0] <= v[1]),
    ));
    cases.push(Case::new(
        "{ .reg .pred x; setp.eq.f32 x|$d, $a, $b; }",
        &[T::F32, T::F32],
        T::Pred,
        |v| u64::from(f32::from_bits(v[0] as u32) != f32::from_bits(v[1] as u32)),
    ));
    cases.push(Case::new("mov.b32 $d, $a;\n@$c mov.b32 $d, $b;", &ins, T::I32, |v| {
        if v[2] != 0 { v[1] } else { v[0] }
    }));
    cases.push(Case::new("mov.b32 $d, $a;\n@!$c add.s32 $d, $d, $b;", &ins, T::I32, |v| {
        if v[2] == 0 { v[0].wrapping_add(v[1]) & 0xffff_ffff } else { v[0] }
    }));
    cases
}

#[test]
fn comparisons_of_floats_agree() {
    run("comparisons of floats", &comparisons_of_floats());
}

pub fn comparisons_of_floats() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, register, order) in FLOATS {
        for compare in FLOAT {
            let reference = move |v: &[u64]| u64::from(holds(compare, order(v[0], v[1])));
            cases.push(Case::new(
                format!("setp.{compare}.{name} $d, $a, $b;"),
                &[register, register],
                T::Pred,
                reference,
            ));
        }
        let reference =
            move |v: &[u64]| if holds("geu", order(v[0], v[1])) { 0xffff_ffff } else { 0 };
        cases.push(Case::new(
            format!("set.geu.u32.{name} $d, $a, $b;"),
            &[register, register],
            T::I32,
            reference,
        ));
    }
    let flushed = |bits: u64| {
        let value = f32::from_bits(bits as u32);
        if value.is_subnormal() { 0f32.copysign(value) } else { value }
    };
    cases.push(Case::with("setp.lt.ftz.f32 $d, $a, $b;", &[T::F32, T::F32], T::Pred, move |v| {
        let kept = f32::from_bits(v[0] as u32) < f32::from_bits(v[1] as u32);
        Expect::OneOf(vec![u64::from(kept), u64::from(flushed(v[0]) < flushed(v[1]))])
    }));
    for (test, f) in [
        ("finite", (|value| value.is_finite()) as fn(f64) -> bool),
        ("infinite", |value| value.is_infinite()),
        ("number", |value| !value.is_nan()),
        ("notanumber", |value| value.is_nan()),
    ] {
        cases.push(Case::new(format!("testp.{test}.f64 $d, $a;"), &[T::F64], T::Pred, move |v| {
            u64::from(f(f64::from_bits(v[0])))
        }));
        let reference = move |v: &[u64]| u64::from(f(f64::from(f32::from_bits(v[0] as u32))));
        cases.push(Case::new(format!("testp.{test}.f32 $d, $a;"), &[T::F32], T::Pred, reference));
    }
    cases.push(Case::new("testp.normal.f32 $d, $a;", &[T::F32], T::Pred, |v| {
        u64::from(f32::from_bits(v[0] as u32).is_normal())
    }));
    cases.push(Case::new("testp.subnormal.f32 $d, $a;", &[T::F32], T::Pred, |v| {
        u64::from(f32::from_bits(v[0] as u32).is_subnormal())
    }));
    cases.push(Case::new("testp.normal.f64 $d, $a;", &[T::F64], T::Pred, |v| {
        u64::from(f64::from_bits(v[0]).is_normal())
    }));
    cases.push(Case::new("testp.subnormal.f64 $d, $a;", &[T::F64], T::Pred, |v| {
        u64::from(f64::from_bits(v[0]).is_subnormal())
    }));
    cases
}
