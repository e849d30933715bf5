//! Floating-point arithmetic in single and double precision.

use crate::case::{Case, Expect, T, run};
use crate::number::{self, Exact, Mode, SINGLE, directed, single};

fn f32_of(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

fn f64_of(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Returns a result of `round` as the bits of a single.
fn bits32(value: f64) -> u64 {
    u64::from(single(value).to_bits())
}

/// Flushes denormal singles to zeros of the same sign.
fn flush(value: f64) -> f64 {
    if single(value).is_subnormal() { 0f64.copysign(value) } else { value }
}

/// `.sat`: clamps to [0, 1], NaN to 0.
fn saturate(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 { 0.0 } else { value.min(1.0) }
}

/// An operation on singles, exact before it is rounded.
type Operation = fn(&[f64], Mode) -> Exact;

/// Adds a form with all roundings, `.ftz` and `.sat`, for `operands` singles.
fn rounded(
    cases: &mut Vec<Case>,
    op: &str,
    operands: usize,
    can_saturate: bool,
    operation: Operation,
) {
    let ins = vec![T::F32; operands];
    let names = ["$a", "$b", "$c"][..operands].join(", ");
    for mode in Mode::ALL {
        for ftz in [false, true] {
            for sat in [false, true] {
                // `.ftz` and `.sat` do not depend on the direction, so two directions are enough
                // for them.
                if (sat && !can_saturate) || ((ftz || sat) && mode != Mode::Rn && mode != Mode::Rz)
                {
                    continue;
                }
                let suffixes = format!(
                    "{}{}{}",
                    mode.name(),
                    if ftz { ".ftz" } else { "" },
                    if sat { ".sat" } else { "" }
                );
                let compute = move |values: &[f64]| {
                    let result = operation(values, mode).round(SINGLE, mode);
                    if sat { saturate(result) } else { result }
                };
                cases.push(Case::with(
                    format!("{op}.{suffixes}.f32 $d, {names};"),
                    &ins,
                    T::F32,
                    move |v| {
                        let values: Vec<f64> = v.iter().map(|bits| f32_of(*bits)).collect();
                        let kept = compute(&values);
                        if !ftz {
                            return Expect::Bits(bits32(kept));
                        }
                        let flushed: Vec<f64> = values.iter().map(|value| flush(*value)).collect();
                        let flushed = compute(&flushed);
                        Expect::OneOf(
                            [kept, flush(kept), flushed, flush(flushed)].map(bits32).to_vec(),
                        )
                    },
                ));
            }
        }
    }
}

#[test]
fn singles_are_rounded_as_the_form_says() {
    run("singles", &singles());
}

pub fn singles() -> Vec<Case> {
    let mut cases = Vec::new();
    rounded(&mut cases, "add", 2, true, |v, mode| number::add(v[0], v[1], mode));
    rounded(&mut cases, "sub", 2, true, |v, mode| number::add(v[0], -v[1], mode));
    rounded(&mut cases, "mul", 2, true, |v, _| number::mul(v[0], v[1]));
    rounded(&mut cases, "fma", 3, true, |v, mode| number::fma(v[0], v[1], v[2], mode));
    rounded(&mut cases, "mad", 3, true, |v, mode| number::fma(v[0], v[1], v[2], mode));
    rounded(&mut cases, "div", 2, false, |v, _| number::div(v[0], v[1]));
    rounded(&mut cases, "rcp", 1, false, |v, _| number::div(1.0, v[0]));
    rounded(&mut cases, "sqrt", 1, false, |v, _| number::sqrt(v[0]));
    let plain = |op: &str, f: fn(f32, f32) -> f32| {
        Case::new(format!("{op}.f32 $d, $a, $b;"), &[T::F32, T::F32], T::F32, move |v| {
            u64::from(f(f32::from_bits(v[0] as u32), f32::from_bits(v[1] as u32)).to_bits())
        })
    };
    cases.push(plain("add", |a, b| a + b));
    cases.push(plain("mul", |a, b| a * b));
    cases
}

/// Returns the exact difference between `a + b` and `value`.
fn sum_rest(a: f64, b: f64, value: f64) -> f64 {
    let part = value - a;
    (a - (value - part)) + (b - part)
}

/// Returns the sign of the difference between `a * b + c` and `value`, its rounding to nearest,
/// after Boldo and Muller.
fn fma_rest(a: f64, b: f64, c: f64, value: f64) -> f64 {
    let product = a * b;
    let product_rest = a.mul_add(b, -product);
    let small = c + product_rest;
    let small_rest = sum_rest(c, product_rest, small);
    let large = product + small;
    let large_rest = sum_rest(product, small, large);
    ((large - value) + large_rest) + small_rest
}

/// Whether a result is so far from the ends of the range that its rest is exact.
fn is_moderate(values: &[f64], result: f64) -> bool {
    let fits =
        |value: f64| value == 0.0 || !value.is_finite() || (1e-140..1e140).contains(&value.abs());
    values.iter().all(|value| fits(*value)) && fits(result)
}

#[test]
fn doubles_are_rounded_as_the_form_says() {
    run("doubles", &doubles());
}

pub fn doubles() -> Vec<Case> {
    type Double = (&'static str, usize, fn(&[f64]) -> f64, fn(&[f64], f64) -> f64);
    let operations: [Double; 8] = [
        ("add", 2, |v| v[0] + v[1], |v, r| sum_rest(v[0], v[1], r)),
        ("sub", 2, |v| v[0] - v[1], |v, r| sum_rest(v[0], -v[1], r)),
        ("mul", 2, |v| v[0] * v[1], |v, r| v[0].mul_add(v[1], -r)),
        ("fma", 3, |v| v[0].mul_add(v[1], v[2]), |v, r| fma_rest(v[0], v[1], v[2], r)),
        ("mad", 3, |v| v[0].mul_add(v[1], v[2]), |v, r| fma_rest(v[0], v[1], v[2], r)),
        ("div", 2, |v| v[0] / v[1], |v, r| (-r).mul_add(v[1], v[0]) * v[1].signum()),
        ("rcp", 1, |v| 1.0 / v[0], |v, r| (-r).mul_add(v[0], 1.0) * v[0].signum()),
        ("sqrt", 1, |v| v[0].sqrt(), |v, r| (-r).mul_add(r, v[0])),
    ];
    let mut cases = Vec::new();
    for (op, operands, nearest, rest) in operations {
        let names = ["$a", "$b", "$c"][..operands].join(", ");
        for mode in Mode::ALL {
            cases.push(Case::with(
                format!("{op}.{}.f64 $d, {names};", mode.name()),
                &vec![T::F64; operands],
                T::F64,
                move |v| {
                    let values: Vec<f64> = v.iter().map(|bits| f64_of(*bits)).collect();
                    let result = nearest(&values);
                    if mode == Mode::Rn {
                        return Expect::Bits(result.to_bits());
                    }
                    if !is_moderate(&values, result)
                        || values.iter().any(|value| !value.is_finite())
                    {
                        // Near the ends of the range, directed rounding may be a step off. Only the
                        // kind of result must be right.
                        return if result.is_nan() {
                            Expect::Bits(result.to_bits())
                        } else {
                            Expect::Any
                        };
                    }
                    let missing = rest(&values, result);
                    if result == 0.0 && missing == 0.0 {
                        return Expect::OneOf(vec![0, 1 << 63]);
                    }
                    Expect::Bits(directed(result, missing, mode).to_bits())
                },
            ));
        }
    }
    cases
}

/// Returns the smaller number, or the number if one is NaN. In PTX, -0.0 is below +0.0.
pub fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || (!b.is_nan() && b.total_cmp(&a).is_lt()) { b } else { a }
}

/// Returns the larger number, or the number if one is NaN.
pub fn most(a: f64, b: f64) -> f64 {
    if a.is_nan() || (!b.is_nan() && b.total_cmp(&a).is_gt()) { b } else { a }
}

#[test]
fn extremes_and_signs_agree() {
    run("extremes and signs", &extremes_and_signs());
}

pub fn extremes_and_signs() -> Vec<Case> {
    let mut cases = Vec::new();
    let pair = |text: &str, f: fn(f64, f64) -> f64| {
        Case::with(format!("{text}.f32 $d, $a, $b;"), &[T::F32, T::F32], T::F32, move |v| {
            Expect::Bits(bits32(f(f32_of(v[0]), f32_of(v[1]))))
        })
    };
    fn any_nan(a: f64, b: f64, result: f64) -> f64 {
        if a.is_nan() || b.is_nan() { f64::NAN } else { result }
    }
    fn sign_of_both(a: f64, b: f64) -> bool {
        a.is_sign_negative() != b.is_sign_negative()
    }
    cases.push(pair("min", least));
    cases.push(pair("max", most));
    cases.push(pair("min.NaN", |a, b| any_nan(a, b, least(a, b))));
    cases.push(pair("max.NaN", |a, b| any_nan(a, b, most(a, b))));
    cases.push(pair("copysign", |sign, value| value.copysign(sign)));
    cases.push(pair("min.xorsign.abs", |a, b| {
        let least = least(a.abs(), b.abs());
        if sign_of_both(a, b) { -least } else { least }
    }));
    cases.push(pair("max.xorsign.abs", |a, b| {
        let most = most(a.abs(), b.abs());
        if sign_of_both(a, b) { -most } else { most }
    }));
    let double = |text: &str, f: fn(f64, f64) -> f64| {
        Case::new(format!("{text}.f64 $d, $a, $b;"), &[T::F64, T::F64], T::F64, move |v| {
            f(f64_of(v[0]), f64_of(v[1])).to_bits()
        })
    };
    cases.push(double("min", least));
    cases.push(double("max", most));
    cases.push(double("copysign", |sign, value| value.copysign(sign)));
    cases.push(Case::new("abs.f32 $d, $a;", &[T::F32], T::F32, |v| v[0] & 0x7fff_ffff));
    cases.push(Case::new("neg.f32 $d, $a;", &[T::F32], T::F32, |v| v[0] ^ 0x8000_0000));
    cases.push(Case::new("abs.f64 $d, $a;", &[T::F64], T::F64, |v| v[0] & !(1 << 63)));
    cases.push(Case::new("neg.f64 $d, $a;", &[T::F64], T::F64, |v| v[0] ^ (1 << 63)));
    cases.push(Case::new("selp.f32 $d, $a, $b, $c;", &[T::F32, T::F32, T::Pred], T::F32, |v| {
        v[if v[2] != 0 { 0 } else { 1 }]
    }));
    cases.push(Case::new(
        "selp.f64 $d, $a, 0d3FF0000000000000, $b;",
        &[T::F64, T::Pred],
        T::F64,
        |v| {
            if v[1] != 0 { v[0] } else { 1f64.to_bits() }
        },
    ));
    cases
}

/// An approximate function of one single: its name, the exact result, and the error that PTX's
/// manual allows.
type Approximate = (&'static str, fn(f64) -> f64, fn(f64, f64) -> f64);

/// Returns one unit in the last place of a single.
fn ulp(value: f64) -> f64 {
    let value = single(value.abs()).max(f32::MIN_POSITIVE);
    if value.is_infinite() { f64::INFINITY } else { f64::from(value.next_up()) - f64::from(value) }
}

const APPROXIMATE: [Approximate; 8] = [
    ("rcp.approx", |x| 1.0 / x, |_, result| ulp(result)),
    ("sqrt.approx", f64::sqrt, |_, result| ulp(result)),
    ("rsqrt.approx", |x| 1.0 / x.sqrt(), |_, result| result.abs() * 2f64.powf(-22.9)),
    // The manual defines the error from -2 pi to 2 pi and from -100 pi to 100 pi, and not beyond.
    ("sin.approx", f64::sin, |x, _| trigonometric(x)),
    ("cos.approx", f64::cos, |x, _| trigonometric(x)),
    ("ex2.approx", f64::exp2, |_, result| 2.0 * ulp(result)),
    ("lg2.approx", f64::log2, |_, result| 2f64.powf(-22.6) * result.abs().max(1.0)),
    ("tanh.approx", f64::tanh, |_, result| result.abs() * 2f64.powi(-11)),
];

fn trigonometric(x: f64) -> f64 {
    match x.abs() {
        small if small <= std::f64::consts::TAU => 2f64.powf(-20.5),
        middle if middle <= 50.0 * std::f64::consts::TAU => 2f64.powf(-14.7),
        _ => 2.0,
    }
}

#[test]
fn approximate_functions_are_near_enough() {
    run("approximate functions", &approximate_functions());
}

pub fn approximate_functions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, function, error) in APPROXIMATE {
        for ftz in [false, true] {
            if ftz && name == "tanh.approx" {
                continue;
            }
            let suffix = if ftz { ".ftz" } else { "" };
            cases.push(Case::with(
                format!("{name}{suffix}.f32 $d, $a;"),
                &[T::F32],
                T::F32,
                move |v| {
                    let x = f32_of(v[0]);
                    let result = function(x);
                    let is_small = single(x).is_subnormal()
                        || single(result).is_subnormal()
                        || single(result) == 0.0;
                    if is_small
                        && result.is_finite()
                        && (ftz
                            || single(result).is_subnormal()
                            || result == 0.0
                            || single(result) == 0.0)
                    {
                        // With `.ftz` a denormal is zero, as an operand or as a result.
                        return if ftz && single(x).is_subnormal() {
                            Expect::Any
                        } else {
                            Expect::Near(result, f64::from(f32::MIN_POSITIVE))
                        };
                    }
                    if x.is_infinite() && (name == "sin.approx" || name == "cos.approx") {
                        return Expect::Bits(u64::from(f32::NAN.to_bits()));
                    }
                    if single(result).is_infinite() {
                        return if x == 0.0 || !x.is_finite() {
                            Expect::Bits(bits32(result))
                        } else {
                            Expect::OneOf(vec![
                                bits32(result),
                                bits32(f64::from(f32::MAX).copysign(result)),
                            ])
                        };
                    }
                    Expect::Near(result, error(x, result))
                },
            ));
        }
    }
    divisions(&mut cases);
    cases.push(Case::with("rcp.approx.ftz.f64 $d, $a;", &[T::F64], T::F64, |v| {
        let x = f64_of(v[0]);
        let result = 1.0 / x;
        if x.is_subnormal() || result.is_subnormal() || (result == 0.0 && x.is_finite()) {
            Expect::Any
        } else {
            Expect::Near(result, result.abs() * 2f64.powi(-20))
        }
    }));
    cases.push(Case::with("rsqrt.approx.f64 $d, $a;", &[T::F64], T::F64, |v| {
        let x = f64_of(v[0]);
        let result = 1.0 / x.sqrt();
        if x.is_subnormal() {
            Expect::Any
        } else {
            Expect::Near(result, result.abs() * 2f64.powi(-20))
        }
    }));
    cases
}

fn divisions(cases: &mut Vec<Case>) {
    for name in ["div.approx", "div.full", "div.approx.ftz", "div.full.ftz"] {
        cases.push(Case::with(format!("{name}.f32 $d, $a, $b;"), &[T::F32, T::F32], T::F32, |v| {
            let (a, b) = (f32_of(v[0]), f32_of(v[1]));
            let result = a / b;
            // For a divisor between 2^126 and 2^128 the manual allows 0 (or NaN, if a is infinite).
            // For denormal operands `.ftz` allows any result.
            if !(2f64.powi(-126)..=2f64.powi(126)).contains(&b.abs()) || single(a).is_subnormal() {
                return if a.is_nan() || b.is_nan() {
                    Expect::Bits(bits32(f64::NAN))
                } else {
                    Expect::Any
                };
            }
            if result.abs() > f64::from(f32::MAX) || result.is_nan() {
                return Expect::Bits(bits32(result));
            }
            Expect::Near(
                result,
                (2.0 * ulp(result))
                    .max(f64::from(f32::MIN_POSITIVE) * 2f64.powi(-22))
                    .max(if single(result).is_subnormal() { result.abs() } else { 0.0 }),
            )
        }));
    }
}
