//! Rounds numbers as PTX does: exact arithmetic, then one rounding, in plain Rust.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Rn,
    Rz,
    Rm,
    Rp,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::Rn, Self::Rz, Self::Rm, Self::Rp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Rn => "rn",
            Self::Rz => "rz",
            Self::Rm => "rm",
            Self::Rp => "rp",
        }
    }
}

/// A binary format whose numbers `f64` holds exactly.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Number of bits behind the point.
    fraction: i32,
    /// Exponent of the smallest normal number.
    exponent_min: i32,
    max: f64,
}

pub const SINGLE: Format = Format { fraction: 23, exponent_min: -126, max: f32::MAX as f64 };
pub const HALF: Format = Format { fraction: 10, exponent_min: -14, max: 65504.0 };
pub const BRAIN: Format =
    Format { fraction: 7, exponent_min: -126, max: 3.389_531_389_251_535_5e38 };

/// `value` plus a number that has the sign of `rest` and is smaller than each digit of `value`.
#[derive(Debug, Clone, Copy)]
pub struct Exact {
    pub value: f64,
    pub rest: f64,
}

impl Exact {
    pub fn of(value: f64) -> Self {
        Self { value, rest: 0.0 }
    }

    /// Rounds to a format in a direction.
    pub fn round(self, format: Format, mode: Mode) -> f64 {
        let Self { value, rest } = self;
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        // A number just below a power of two belongs to the finer steps below that power.
        let is_power = value.to_bits() << 12 == 0;
        let below_power = is_power && rest * value < 0.0;
        let exponent = (exponent(value) - i32::from(below_power)).max(format.exponent_min);
        // The division is exact, because the divisor is a power of two.
        let quantum = 2f64.powi(exponent - format.fraction);
        let scaled = value / quantum;
        let mut below = scaled.floor();
        let mut fraction = scaled - below;
        let mut sticky = if rest == 0.0 { 0.0 } else { rest.signum() };
        if fraction == 0.0 && sticky < 0.0 {
            below -= 1.0;
            fraction = 1.0;
        }
        if fraction == 1.0 && sticky >= 0.0 {
            sticky = 0.0;
        }
        let is_exact = fraction == 0.0 && sticky == 0.0;
        let up = match mode {
            _ if is_exact => false,
            Mode::Rm => false,
            Mode::Rp => true,
            Mode::Rz => value < 0.0,
            Mode::Rn => {
                let above_half = fraction > 0.5 || (fraction == 0.5 && sticky > 0.0);
                let is_half = fraction == 0.5 && sticky == 0.0;
                above_half || (is_half && below.rem_euclid(2.0) == 1.0)
            }
        };
        let rounded = (below + f64::from(u8::from(up))) * quantum;
        let rounded = if rounded == 0.0 { 0f64.copysign(value) } else { rounded };
        if rounded.abs() <= format.max {
            return rounded;
        }
        let to_infinity = match mode {
            Mode::Rn => true,
            Mode::Rz => false,
            Mode::Rm => value < 0.0,
            Mode::Rp => value > 0.0,
        };
        if to_infinity { f64::INFINITY.copysign(value) } else { format.max.copysign(value) }
    }
}

/// Returns the exponent of a finite number that is not zero.
fn exponent(value: f64) -> i32 {
    let bits = i32::try_from((value.to_bits() >> 52) & 0x7ff).expect("eleven bits");
    // For a denormal number any small exponent is good enough, because no format here reaches
    // there.
    bits - 1023
}

/// Returns `a + b`, exactly.
pub fn add(a: f64, b: f64, mode: Mode) -> Exact {
    let value = a + b;
    if !value.is_finite() {
        return Exact::of(value);
    }
    let part = value - a;
    let rest = (a - (value - part)) + (b - part);
    if value == 0.0 && rest == 0.0 {
        // "The sign of an exact zero sum is positive, but negative when rounding down". Operands
        // with the same sign keep it.
        let like = a == 0.0 && b == 0.0 && a.is_sign_negative() == b.is_sign_negative();
        let negative = if like { a.is_sign_negative() } else { mode == Mode::Rm };
        return Exact::of(if negative { -0.0 } else { 0.0 });
    }
    Exact { value, rest }
}

/// Returns `a * b`, if `f64` holds the product exactly.
pub fn mul(a: f64, b: f64) -> Exact {
    Exact::of(a * b)
}

/// Returns `a * b + c`, if `f64` holds the product exactly.
pub fn fma(a: f64, b: f64, c: f64, mode: Mode) -> Exact {
    let product = a * b;
    if product.is_nan() || c.is_nan() {
        return Exact::of(f64::NAN);
    }
    add(product, c, mode)
}

/// Returns `a / b`, exactly.
pub fn div(a: f64, b: f64) -> Exact {
    let value = a / b;
    if value == 0.0 || !value.is_finite() || b.is_infinite() {
        return Exact::of(value);
    }
    Exact { value, rest: (-value).mul_add(b, a) * b.signum() }
}

/// Returns the square root, exactly.
pub fn sqrt(a: f64) -> Exact {
    let value = a.sqrt();
    if value == 0.0 || !value.is_finite() {
        return Exact::of(value);
    }
    Exact { value, rest: (-value).mul_add(value, a) }
}

/// Returns a correctly rounded `f64` result, or its neighbour in the direction of `mode`. `rest` is
/// the difference between the exact result and `value`.
pub fn directed(value: f64, rest: f64, mode: Mode) -> f64 {
    let down = |value: f64| if value == 0.0 { -f64::from_bits(1) } else { value.next_down() };
    if !value.is_finite() || rest == 0.0 {
        return value;
    }
    match mode {
        Mode::Rn => value,
        Mode::Rm if rest < 0.0 => down(value),
        Mode::Rp if rest > 0.0 => value.next_up(),
        Mode::Rz if value > 0.0 && rest < 0.0 => value.next_down(),
        Mode::Rz if value < 0.0 && rest > 0.0 => value.next_up(),
        _ => value,
    }
}

pub fn from_half(bits: u64) -> f64 {
    let (sign, exponent, fraction) = ((bits >> 15) & 1, (bits >> 10) & 0x1f, bits & 0x3ff);
    #[expect(clippy::cast_precision_loss, reason = "ten bits")]
    let magnitude = match exponent {
        0 => fraction as f64 * 2f64.powi(-24),
        31 if fraction == 0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024 + fraction) as f64 * 2f64.powi(i32::try_from(exponent).expect("five bits") - 25),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// Returns the bits of a number that the half format holds exactly.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small whole numbers")]
pub fn half_bits(value: f64) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << 15;
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return 0x7fff;
    }
    if magnitude.is_infinite() {
        return sign | 0x7c00;
    }
    if magnitude < 2f64.powi(-14) {
        return sign | (magnitude * 2f64.powi(24)) as u64;
    }
    let exponent = exponent(magnitude);
    let fraction = (magnitude / 2f64.powi(exponent - 10)) as u64 - 1024;
    sign | (u64::from((exponent + 15).cast_unsigned()) << 10) | fraction
}

pub fn from_brain(bits: u64) -> f64 {
    f64::from(f32::from_bits(u32::try_from(bits & 0xffff).expect("16 bits") << 16))
}

/// Returns the bits of a number that `bf16` holds exactly.
pub fn brain_bits(value: f64) -> u64 {
    if value.is_nan() { 0x7fff } else { u64::from(single(value).to_bits() >> 16) }
}

/// Converts a number that `f32` holds exactly.
#[expect(clippy::cast_possible_truncation, reason = "it is rounded already")]
pub fn single(value: f64) -> f32 {
    value as f32
}

#[test]
fn rounding_agrees_with_the_processor() {
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            f32::from_bits((state >> 32) as u32)
        };
        let (a, b, c) = (next(), next(), next());
        let (x, y, z) = (f64::from(a), f64::from(b), f64::from(c));
        let same = |ours: f64, theirs: f32, what: &str| {
            let ours = single(ours);
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "{what} {a:e} {b:e} {c:e}: {ours:e} {theirs:e}"
            );
        };
        same(add(x, y, Mode::Rn).round(SINGLE, Mode::Rn), a + b, "add");
        same(mul(x, y).round(SINGLE, Mode::Rn), a * b, "mul");
        same(div(x, y).round(SINGLE, Mode::Rn), a / b, "div");
        same(sqrt(x).round(SINGLE, Mode::Rn), a.sqrt(), "sqrt");
        same(fma(x, y, z, Mode::Rn).round(SINGLE, Mode::Rn), a.mul_add(b, c), "fma");
        assert!(
            add(x, y, Mode::Rm).round(SINGLE, Mode::Rm)
                <= add(x, y, Mode::Rp).round(SINGLE, Mode::Rp)
                || (x + y).is_nan()
        );
        let exact = from_half(u64::from(a.to_bits() >> 16));
        assert!(half_bits(exact) == u64::from(a.to_bits() >> 16) || exact.is_nan());
    }
}
