//! Arithmetic of halves, of `bf16`, and of pairs of them.

use crate::case::{Case, Expect, T, run};
use crate::float::{least, most};
use crate::number::{
    self, BRAIN, Exact, Format, HALF, Mode, brain_bits, from_brain, from_half, half_bits,
};

/// A narrow float type: its names, registers and format, and the conversions from and to its bits.
struct Narrow {
    name: &'static str,
    pair: &'static str,
    one: T,
    two: T,
    format: Format,
    value: fn(u64) -> f64,
    bits: fn(f64) -> u64,
}

const NARROW: [Narrow; 2] = [
    Narrow {
        name: "f16",
        pair: "f16x2",
        one: T::F16,
        two: T::F16x2,
        format: HALF,
        value: from_half,
        bits: half_bits,
    },
    Narrow {
        name: "bf16",
        pair: "bf16x2",
        one: T::Bf16,
        two: T::Bf16x2,
        format: BRAIN,
        value: from_brain,
        bits: brain_bits,
    },
];

type Function = fn(&[f64]) -> Exact;

fn both(
    cases: &mut Vec<Case>,
    narrow: &Narrow,
    op: &str,
    operands: usize,
    finish: fn(f64) -> f64,
    function: Function,
) {
    let names = ["$a", "$b", "$c"][..operands].join(", ");
    let (format, value, bits) = (narrow.format, narrow.value, narrow.bits);
    let compute = move |v: &[u64], shift: u32| {
        let values: Vec<f64> = v.iter().map(|bits| value((bits >> shift) & 0xffff)).collect();
        bits(finish(function(&values).round(format, Mode::Rn)))
    };
    let text = format!("{op}.{} $d, {names};", narrow.name);
    cases.push(Case::new(text, &vec![narrow.one; operands], narrow.one, move |v| compute(v, 0)));
    let text = format!("{op}.{} $d, {names};", narrow.pair);
    cases.push(Case::new(text, &vec![narrow.two; operands], narrow.two, move |v| {
        compute(v, 0) | (compute(v, 16) << 16)
    }));
}

fn saturate(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 { 0.0 } else { value.min(1.0) }
}

pub fn relu(value: f64) -> f64 {
    if value.is_nan() {
        value
    } else if value <= 0.0 {
        0.0
    } else {
        value
    }
}

fn nan_or(v: &[f64], result: f64) -> Exact {
    Exact::of(if v[0].is_nan() || v[1].is_nan() { f64::NAN } else { result })
}

#[test]
fn halves_and_pairs_agree() {
    run("halves", &halves());
}

pub fn halves() -> Vec<Case> {
    let mut cases = Vec::new();
    let same = |value: f64| value;
    for narrow in &NARROW {
        both(&mut cases, narrow, "add.rn", 2, same, |v| number::add(v[0], v[1], Mode::Rn));
        both(&mut cases, narrow, "sub.rn", 2, same, |v| number::add(v[0], -v[1], Mode::Rn));
        both(&mut cases, narrow, "mul.rn", 2, same, |v| number::mul(v[0], v[1]));
        both(&mut cases, narrow, "fma.rn", 3, same, |v| number::fma(v[0], v[1], v[2], Mode::Rn));
        both(&mut cases, narrow, "fma.rn.relu", 3, relu, |v| {
            number::fma(v[0], v[1], v[2], Mode::Rn)
        });
        both(&mut cases, narrow, "abs", 1, same, |v| Exact::of(v[0].abs()));
        both(&mut cases, narrow, "neg", 1, same, |v| Exact::of(-v[0]));
        both(&mut cases, narrow, "min", 2, same, |v| Exact::of(least(v[0], v[1])));
        both(&mut cases, narrow, "max", 2, same, |v| Exact::of(most(v[0], v[1])));
        both(&mut cases, narrow, "min.NaN", 2, same, |v| nan_or(v, least(v[0], v[1])));
        both(&mut cases, narrow, "max.NaN", 2, same, |v| nan_or(v, most(v[0], v[1])));
    }
    both(&mut cases, &NARROW[0], "add.sat", 2, saturate, |v| number::add(v[0], v[1], Mode::Rn));
    both(&mut cases, &NARROW[0], "mul.sat", 2, saturate, |v| number::mul(v[0], v[1]));
    both(&mut cases, &NARROW[0], "fma.rn.sat", 3, saturate, |v| {
        number::fma(v[0], v[1], v[2], Mode::Rn)
    });
    cases
}

#[test]
fn comparisons_and_functions_of_halves_agree() {
    run("functions of halves", &functions_of_halves());
}

pub fn functions_of_halves() -> Vec<Case> {
    let mut cases = Vec::new();
    for narrow in &NARROW {
        compared_in_pairs(narrow, &mut cases);
        compared(narrow, &mut cases);
        approximated(narrow, &mut cases);
    }
    cases
}

/// Whether one half of the first operand is less than the same half of the second.
fn is_less(narrow: &'static Narrow) -> impl Fn(&[u64], u32) -> bool + Copy + Send + Sync {
    move |v: &[u64], shift: u32| {
        (narrow.value)((v[0] >> shift) & 0xffff) < (narrow.value)((v[1] >> shift) & 0xffff)
    }
}

fn compared_in_pairs(narrow: &'static Narrow, cases: &mut Vec<Case>) {
    let (one, half) = (narrow.bits, is_less(narrow));
    let ins = [narrow.two, narrow.two];
    cases.push(Case::new(
        format!("setp.lt.{} $d|_, $a, $b;", narrow.pair),
        &ins,
        T::Pred,
        move |v| u64::from(half(v, 0)),
    ));
    cases.push(Case::new(
        format!("{{ .reg .pred x; setp.lt.{} x|$d, $a, $b; }}", narrow.pair),
        &ins,
        T::Pred,
        move |v| u64::from(half(v, 16)),
    ));
    let pair = narrow.pair;
    cases.push(Case::new(
        format!("set.lt.{pair}.{pair} $d, $a, $b;"),
        &ins,
        narrow.two,
        move |v| {
            let truth = |holds: bool| if holds { one(1.0) } else { 0 };
            truth(half(v, 0)) | (truth(half(v, 16)) << 16)
        },
    ));
    cases.push(Case::new(format!("set.lt.u32.{pair} $d, $a, $b;"), &ins, T::I32, move |v| {
        let truth = |holds: bool| if holds { 0xffff } else { 0 };
        truth(half(v, 0)) | (truth(half(v, 16)) << 16)
    }));
    let ins = [narrow.two, narrow.two, T::Pred];
    cases.push(Case::new(
        format!("set.lt.xor.{pair}.{pair} $d, $a, $b, $c;"),
        &ins,
        narrow.two,
        move |v| {
            let truth = |holds: bool| if holds != (v[2] != 0) { one(1.0) } else { 0 };
            truth(half(v, 0)) | (truth(half(v, 16)) << 16)
        },
    ));
    cases.push(Case::new(
        format!("set.lt.and.u32.{pair} $d, $a, $b, !$c;"),
        &ins,
        T::I32,
        move |v| {
            let truth = |holds: bool| if holds && v[2] == 0 { 0xffff } else { 0 };
            truth(half(v, 0)) | (truth(half(v, 16)) << 16)
        },
    ));
    cases.push(Case::new(
        format!("setp.lt.and.{pair} $d|_, $a, $b, $c;"),
        &ins,
        T::Pred,
        move |v| u64::from(half(v, 0) && v[2] != 0),
    ));
}

fn compared(narrow: &'static Narrow, cases: &mut Vec<Case>) {
    let (one, half) = (narrow.bits, is_less(narrow));
    let ins = [narrow.one, narrow.one, T::Pred];
    cases.push(Case::new(
        format!("set.lt.{0}.{0} $d, $a, $b;", narrow.name),
        &ins[..2],
        narrow.one,
        move |v| {
            if half(v, 0) { one(1.0) } else { 0 }
        },
    ));
    cases.push(Case::new(
        format!("set.lt.xor.u16.{} $d, $a, $b, $c;", narrow.name),
        &ins,
        T::I16,
        move |v| {
            if half(v, 0) != (v[2] != 0) { 0xffff } else { 0 }
        },
    ));
    cases.push(Case::new(
        format!("set.lt.or.u32.{} $d, $a, $b, $c;", narrow.name),
        &ins,
        T::I32,
        move |v| {
            if half(v, 0) || v[2] != 0 { 0xffff_ffff } else { 0 }
        },
    ));
}

fn approximated(narrow: &'static Narrow, cases: &mut Vec<Case>) {
    let (value, one) = (narrow.value, narrow.bits);
    for (name, function, digits) in [
        ("ex2.approx", f64::exp2 as fn(f64) -> f64, if narrow.name == "f16" { 9.9 } else { 7.0 }),
        ("tanh.approx", f64::tanh, if narrow.name == "f16" { 10.987 } else { 8.0 }),
    ] {
        let ftz = if narrow.name == "bf16" && name == "ex2.approx" { ".ftz" } else { "" };
        let max = (narrow.value)(if narrow.name == "f16" { 0x7bff } else { 0x7f7f });
        cases.push(Case::with(
            format!("{name}{ftz}.{} $d, $a;", narrow.name),
            &[narrow.one],
            narrow.one,
            move |v| {
                let result = function(value(v[0]));
                if result > max {
                    return Expect::OneOf(vec![one(f64::INFINITY), one(max)]);
                }
                // Below the smallest normal number `.ftz` gives zero, and steps are coarse.
                let coarse =
                    if narrow_is_half(max) { 2f64.powi(-24) } else { f64::from(f32::MIN_POSITIVE) };
                Expect::Near(result, (result.abs() * 2f64.powf(-digits)).max(coarse))
            },
        ));
    }
}

fn narrow_is_half(max: f64) -> bool {
    max < 1e5
}
