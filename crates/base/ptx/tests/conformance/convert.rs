//! Conversions: `cvt` between all types of numbers.

use crate::case::{Case, Expect, T, run};
use crate::half::relu;
use crate::integer::Int;
use crate::number::{
    BRAIN, Exact, HALF, Mode, SINGLE, brain_bits, from_brain, from_half, half_bits, single,
};

const NARROW: [Int; 8] = [
    Int { name: "u8", bits: 8, signed: false },
    Int { name: "s8", bits: 8, signed: true },
    Int { name: "u16", bits: 16, signed: false },
    Int { name: "s16", bits: 16, signed: true },
    Int { name: "u32", bits: 32, signed: false },
    Int { name: "s32", bits: 32, signed: true },
    Int { name: "u64", bits: 64, signed: false },
    Int { name: "s64", bits: 64, signed: true },
];

/// Returns the register type for an integer. An 8-bit integer is in a 32-bit register.
fn register(int: Int) -> T {
    match int.bits {
        16 => T::I16,
        64 => T::I64,
        _ => T::I32,
    }
}

/// Returns a number of type `int` as the bits of its register; a narrow number is sign-extended.
fn in_register(int: Int, value: i128) -> u64 {
    let register = Int { bits: int.bits.max(if int.bits == 8 { 32 } else { 0 }), ..int };
    register.cut(int.value(int.cut(value)))
}

#[test]
fn integers_to_integers_agree() {
    run("integers to integers", &integers_to_integers());
}

pub fn integers_to_integers() -> Vec<Case> {
    let mut cases = Vec::new();
    for to in NARROW {
        for from in NARROW {
            let text = format!("cvt.{}.{} $d, $a;", to.name, from.name);
            cases.push(Case::new(text, &[register(from)], register(to), move |v| {
                in_register(to, from.value(v[0]))
            }));
            let text = format!("cvt.sat.{}.{} $d, $a;", to.name, from.name);
            let reference =
                move |v: &[u64]| in_register(to, from.value(v[0]).clamp(to.min(), to.max()));
            cases.push(Case::new(text, &[register(from)], register(to), reference));
        }
    }
    cases
}

/// A float type: its name, its register type, and the conversions from and to its bits.
type Float = (&'static str, T, fn(u64) -> f64, fn(f64) -> u64);

const FLOATS: [Float; 4] = [
    ("f16", T::F16, from_half, half_bits),
    ("bf16", T::Bf16, from_brain, brain_bits),
    (
        "f32",
        T::F32,
        |bits| f64::from(f32::from_bits(bits as u32)),
        |value| u64::from(single(value).to_bits()),
    ),
    ("f64", T::F64, f64::from_bits, f64::to_bits),
];

/// Rounds an exact number to the format of a float type.
fn round(name: &str, exact: Exact, mode: Mode) -> f64 {
    match name {
        "f16" => exact.round(HALF, mode),
        "bf16" => exact.round(BRAIN, mode),
        "f32" => exact.round(SINGLE, mode),
        _ => crate::number::directed(exact.value, exact.rest, mode),
    }
}

/// A rounding to an integer: its name and the function.
type ToInteger = (&'static str, fn(f64) -> f64);

const TO_INTEGER: [ToInteger; 4] =
    [("rni", f64::round_ties_even), ("rzi", f64::trunc), ("rmi", f64::floor), ("rpi", f64::ceil)];

#[test]
fn floats_to_integers_agree() {
    run("floats to integers", &floats_to_integers());
}

pub fn floats_to_integers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, float, value, _) in FLOATS {
        for to in NARROW {
            for (rounding, function) in TO_INTEGER {
                // All roundings for the widths that programs use, one for the others.
                if (name == "bf16" || to.bits == 8 || to.bits == 16) && rounding != "rzi" {
                    continue;
                }
                let text = format!("cvt.{rounding}.{}.{name} $d, $a;", to.name);
                cases.push(Case::with(text, &[float], register(to), move |v| {
                    let x = value(v[0]);
                    if x.is_nan() {
                        // "Zero if the source is not .f64 and the destination is not .s64 or .u64;
                        // otherwise 1 << (BitWidth(dst) - 1)".
                        let zero = name != "f64" && to.bits != 64;
                        return Expect::Bits(if zero {
                            0
                        } else {
                            in_register(to, 1 << (to.bits - 1))
                        });
                    }
                    let rounded = function(x);
                    let clamped = if rounded.abs() < 1e30 {
                        (rounded as i128).clamp(to.min(), to.max())
                    } else if rounded > 0.0 {
                        to.max()
                    } else {
                        to.min()
                    };
                    Expect::Bits(in_register(to, clamped))
                }));
            }
        }
    }
    cases
}

#[test]
fn integers_to_floats_agree() {
    run("integers to floats", &integers_to_floats());
}

pub fn integers_to_floats() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, register_of_float, _, bits) in FLOATS {
        for from in NARROW {
            for mode in Mode::ALL {
                if from.bits < 32 && mode != Mode::Rn {
                    continue;
                }
                let text = format!("cvt.{}.{name}.{} $d, $a;", mode.name(), from.name);
                cases.push(Case::new(text, &[register(from)], register_of_float, move |v| {
                    let whole = from.value(v[0]);
                    let value = whole as f64;
                    let rest = (whole - value as i128) as f64;
                    bits(round(name, Exact { value, rest }, mode))
                }));
            }
        }
    }
    cases
}

#[test]
fn floats_to_floats_agree() {
    run("floats to floats", &floats_to_floats());
}

pub fn floats_to_floats() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut plain = |suffixes: String, from: Float, to: Float, f: Box<dyn Fn(f64) -> f64>| {
        let text = format!("cvt{suffixes}.{}.{} $d, $a;", to.0, from.0);
        cases.push(Case::new(text, &[from.1], to.1, move |v| to.3(f(from.2(v[0])))));
    };
    let [half, brain, float, double] = FLOATS;
    for mode in Mode::ALL {
        let suffix = format!(".{}", mode.name());
        for (from, to) in [(double, float), (double, half), (float, half)] {
            plain(suffix.clone(), from, to, Box::new(move |x| round(to.0, Exact::of(x), mode)));
        }
    }
    for (from, mode) in [(half, Mode::Rn), (half, Mode::Rp), (double, Mode::Rn), (double, Mode::Rm)]
    {
        plain(
            format!(".{}", mode.name()),
            from,
            brain,
            Box::new(move |x| round("bf16", Exact::of(x), mode)),
        );
    }
    for mode in [Mode::Rn, Mode::Rz] {
        plain(
            format!(".{}", mode.name()),
            float,
            brain,
            Box::new(move |x| round("bf16", Exact::of(x), mode)),
        );
        plain(
            format!(".{}.relu", mode.name()),
            float,
            half,
            Box::new(move |x| relu(round("f16", Exact::of(x), mode))),
        );
    }
    for (from, to) in [(half, float), (half, double), (float, double), (brain, float)] {
        plain(String::new(), from, to, Box::new(|x| x));
    }
    for (rounding, function) in TO_INTEGER {
        for same in [half, brain, float, double] {
            plain(format!(".{rounding}"), same, same, Box::new(function));
        }
        plain(format!(".{rounding}.sat"), float, float, Box::new(move |x| saturate(function(x))));
    }
    plain(".sat".to_owned(), float, float, Box::new(saturate));
    plain(
        ".rn.sat".to_owned(),
        double,
        float,
        Box::new(|x| saturate(round("f32", Exact::of(x), Mode::Rn))),
    );
    let pair = |name: &'static str,
                register: T,
                format: &'static str,
                bits: fn(f64) -> u64,
                mode: Mode| {
        let text = format!("cvt.{}.{name}.f32 $d, $a, $b;", mode.name());
        Case::new(text, &[T::F32, T::F32], register, move |v| {
            let narrow = |value: u64| {
                bits(round(format, Exact::of(f64::from(f32::from_bits(value as u32))), mode))
            };
            (narrow(v[0]) << 16) | narrow(v[1])
        })
    };
    cases.push(pair("f16x2", T::F16x2, "f16", half_bits, Mode::Rn));
    cases.push(pair("f16x2", T::F16x2, "f16", half_bits, Mode::Rz));
    cases.push(pair("bf16x2", T::Bf16x2, "bf16", brain_bits, Mode::Rn));
    cases
}

fn saturate(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 { 0.0 } else { value.min(1.0) }
}
