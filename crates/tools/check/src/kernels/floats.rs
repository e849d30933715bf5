//! Numbers of 16 bits (IEEE 754 binary16).

/// Returns the value of a half that is finite.
pub fn half(bits: u32) -> f32 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, bits & 0x3ff);
    let value = match exponent {
        0 => fraction as f32 * 2_f32.powi(-24),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if bits & 0x8000 == 0 { value } else { -value }
}

/// Returns the half that is nearest to a value, the even one of two.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is in range"
)]
pub fn rounded_half(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    // The distance of two halves: a power of two, at least that of the subnormal ones.
    let exponent = (((size.to_bits() >> 52) as i32) - 1023).max(-14);
    let steps = (size / 2_f64.powi(exponent - 10)).round_ties_even() as u32;
    // A value that is rounded up to the next power of two carries into the exponent.
    let bits = if steps < 1024 && exponent == -14 {
        steps
    } else {
        (((exponent + 14) as u32) << 10) + steps
    };
    sign | bits.min(0x7c00) as u16
}
