//! Elements as complex numbers in double precision, for the few routines that OpenBLAS lacks or
//! gets wrong.

use std::ffi::c_void;

use penstock_wire::library::blas::Number;

/// Real and imaginary part.
pub(super) type Complex = (f64, f64);

pub(super) fn mul(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

pub(super) fn add(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

/// Returns the bytes of an element, and zeros behind them.
#[expect(clippy::cast_possible_truncation, reason = "the element has single precision")]
pub(super) fn bytes_of(number: Number, re: f64, im: f64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let parts: [[u8; 8]; 2] = match number.part() {
        Number::F32 => [re, im].map(|part| {
            let mut wide = [0; 8];
            wide[..4].copy_from_slice(&(part as f32).to_ne_bytes());
            wide
        }),
        _ => [re, im].map(f64::to_ne_bytes),
    };
    let size = if number.part() == Number::F32 { 4 } else { 8 };
    bytes[..size].copy_from_slice(&parts[0][..size]);
    if number.is_complex() {
        bytes[size..2 * size].copy_from_slice(&parts[1][..size]);
    }
    bytes
}

/// # Safety
/// An element of this type can be read at `from`.
pub(super) unsafe fn read(number: Number, from: *const c_void) -> Complex {
    let part = |index: usize| -> f64 {
        if number.part() == Number::F32 {
            // SAFETY: the caller promises that the element can be read.
            f64::from(unsafe { from.cast::<f32>().add(index).read_unaligned() })
        } else {
            // SAFETY: as above.
            unsafe { from.cast::<f64>().add(index).read_unaligned() }
        }
    };
    (part(0), if number.is_complex() { part(1) } else { 0.0 })
}

/// # Safety
/// An element of this type can be written at `to`.
pub(super) unsafe fn write(number: Number, to: *mut c_void, value: Complex) {
    let bytes = bytes_of(number, value.0, value.1);
    // An element has at most 16 bytes.
    let size = usize::try_from(number.bytes()).unwrap_or(0);
    // SAFETY: the caller promises that the element can be written.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), size) }
}

/// A matrix or vector in memory, for access by element.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) number: Number,
    pub(super) start: *mut c_void,
    /// Distance of two columns in elements.
    pub(super) ld: u32,
}

impl View {
    fn address(self, row: u32, column: u32) -> *mut c_void {
        let index = u64::from(column) * u64::from(self.ld) + u64::from(row);
        // The element lies within memory of this process, so its offset fits.
        let offset = usize::try_from(index * self.number.bytes()).unwrap_or(0);
        self.start.wrapping_byte_add(offset)
    }

    /// # Safety
    /// The element lies within the operand.
    pub(super) unsafe fn get(self, row: u32, column: u32) -> Complex {
        // SAFETY: the caller promises that the element lies within the operand.
        unsafe { read(self.number, self.address(row, column)) }
    }

    /// # Safety
    /// As [`View::get`].
    pub(super) unsafe fn set(self, row: u32, column: u32, value: Complex) {
        // SAFETY: the caller promises that the element lies within the operand.
        unsafe { write(self.number, self.address(row, column), value) }
    }
}

/// Converts half precision to single precision.
pub(super) fn from_half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let fraction = u32::from(bits) & 0x3ff;
    match (exponent, fraction) {
        (0, 0) => f32::from_bits(sign),
        // A subnormal number is a multiple of 2^-24.
        (0, _) => {
            #[expect(clippy::cast_precision_loss, reason = "10 bits")]
            let value = fraction as f32 / 16_777_216.0;
            if sign == 0 { value } else { -value }
        }
        (0x1f, _) => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// Converts single precision to half precision, to the nearest value, ties to even.
#[expect(clippy::cast_possible_truncation, reason = "the value has 16 bits")]
pub(super) fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // 65,520 and more round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14 the result is a multiple of 2^-24: adding 0.5 leaves these multiples in the
    // lowest bits, rounded by the processor.
    if magnitude < 0x3880_0000 {
        let rounded = f32::from_bits(magnitude) + 0.5;
        return sign | (rounded.to_bits() - 0.5_f32.to_bits()) as u16;
    }
    let odd = magnitude >> 13 & 1;
    sign | ((magnitude - (112 << 23) + 0xfff + odd) >> 13) as u16
}

pub(super) fn from_brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Converts single precision to its upper half, to the nearest value, ties to even.
pub(super) fn to_brain(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = bits >> 16 & 1;
    (bits.wrapping_add(0x7fff + odd) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives() {
        for bits in 0..=u16::MAX {
            let value = from_half(bits);
            if value.is_nan() {
                assert!(from_half(to_half(value)).is_nan());
            } else {
                assert_eq!(to_half(value), bits, "{value}");
            }
        }
        assert_eq!((from_half(0x3c00), from_half(1)), (1.0, 2.0_f32.powi(-24)));
        assert_eq!(from_half(0x7bff), 65_504.0);
    }

    #[test]
    fn halves_round_to_the_nearest() {
        let mut state = 1_u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = f32::from_bits(state & 0xc7ff_ffff);
            if value.is_nan() || value.abs() > 65_504.0 {
                continue;
            }
            let found = to_half(value);
            let error = |bits: u16| (f64::from(from_half(bits)) - f64::from(value)).abs();
            for near in [found.wrapping_sub(1), found.wrapping_add(1)] {
                if from_half(near).is_finite() && near & 0x8000 == found & 0x8000 {
                    assert!(
                        error(found) < error(near)
                            || error(found) == error(near) && found.is_multiple_of(2),
                        "{value}"
                    );
                }
            }
        }
        assert_eq!((to_half(65_519.0), to_half(65_520.0)), (0x7bff, 0x7c00));
    }

    #[test]
    fn upper_halves_round_to_the_nearest() {
        assert_eq!(to_brain(1.0), 0x3f80);
        assert_eq!(to_brain(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(to_brain(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(to_brain(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert!(from_brain(to_brain(f32::NAN)).is_nan());
        assert_eq!(to_brain(f32::MAX), 0x7f80);
    }
}
