//@ ps_half_to_float
float ps_half_to_float(ushort a) {
    uint sign = (uint)(a & 0x8000u) << 16, exponent = a >> 10 & 31u, mantissa = a & 0x3ffu;
    if (exponent == 31u) return as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0u) return as_float(sign | (exponent + 112u) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f;
    return sign != 0u ? -f : f;
}
//@ ps_bf16_to_float
float ps_bf16_to_float(ushort a) { return as_float((uint)a << 16); }
//@ ps_rounds_up
// Whether to go to the number further from zero: mode 0 nearest, 1 to zero, 2 down, 3 up. `rest` against half a unit.
bool ps_rounds_up(uint mode, bool negative, bool odd, ulong rest, ulong half_unit) {
    if (mode == 0u) return rest > half_unit || (rest == half_unit && odd);
    return rest != 0UL && ((mode == 2u && negative) || (mode == 3u && !negative));
}
//@ ps_narrow
// A float as a float of `mantissa` bits and exponents from `least` (of the smallest normal number) to `most`.
uint ps_narrow(float a, uint mode, uint mantissa, int least, int most) {
    uint bits = as_uint(a), exponent_bits = 15u - mantissa;
    bool negative = bits >> 31;
    uint sign = (bits >> 31) << 15, infinite = ((1u << exponent_bits) - 1u) << mantissa;
    uint size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fffu;
    if (size == 0x7f800000u) return sign | infinite;
    if (size == 0u) return sign;
    int exponent = (int)(size >> 23) - 127;
    uint whole = size & 0x7fffffu;
    if (exponent == -127) exponent = -126; else whole |= 0x800000u;
    uint cut = 23u - mantissa;
    if (exponent < least) cut += (uint)(least - exponent);
    if (cut > 40u) cut = 40u;
    ulong kept = (ulong)whole >> cut, rest = (ulong)whole & ((1UL << cut) - 1UL);
    if (ps_rounds_up(mode, negative, kept & 1UL, rest, 1UL << (cut - 1u))) kept++;
    // The leading bit carries into the exponent.
    uint biased = exponent < least ? 0u : (uint)(exponent - least);
    uint result = (biased << mantissa) + (uint)kept;
    if (result >= infinite) {
        bool stays = mode == 1u || (mode == 2u && !negative) || (mode == 3u && negative);
        result = stays ? infinite - 1u : infinite;
    }
    return sign | result;
}
//@ ps_float_to_half_rn
ushort ps_float_to_half_rn(float a) { return (ushort)ps_narrow(a, 0u, 10u, -14, 15); }
//@ ps_float_to_half_rz
ushort ps_float_to_half_rz(float a) { return (ushort)ps_narrow(a, 1u, 10u, -14, 15); }
//@ ps_float_to_half_rm
ushort ps_float_to_half_rm(float a) { return (ushort)ps_narrow(a, 2u, 10u, -14, 15); }
//@ ps_float_to_half_rp
ushort ps_float_to_half_rp(float a) { return (ushort)ps_narrow(a, 3u, 10u, -14, 15); }
//@ ps_float_to_bf16_rn
ushort ps_float_to_bf16_rn(float a) { return (ushort)ps_narrow(a, 0u, 7u, -126, 127); }
//@ ps_float_to_bf16_rz
ushort ps_float_to_bf16_rz(float a) { return (ushort)ps_narrow(a, 1u, 7u, -126, 127); }
//@ ps_float_to_bf16_rm
ushort ps_float_to_bf16_rm(float a) { return (ushort)ps_narrow(a, 2u, 7u, -126, 127); }
//@ ps_float_to_bf16_rp
ushort ps_float_to_bf16_rp(float a) { return (ushort)ps_narrow(a, 3u, 7u, -126, 127); }
//@ ps_double_to_odd
// A float whose last bit says that it is not exact: narrower types are rounded from it as from the double.
float ps_double_to_odd(double a) {
    float f = (float)a;
    if (fabs((double)f) > fabs(a)) f = as_float(as_uint(f) - 1u);
    return (double)f != a && a == a ? as_float(as_uint(f) | 1u) : f;
}
//@ ps_double_to_half_rn
ushort ps_double_to_half_rn(double a) { return ps_float_to_half_rn(ps_double_to_odd(a)); }
//@ ps_double_to_half_rz
ushort ps_double_to_half_rz(double a) { return ps_float_to_half_rz(ps_double_to_odd(a)); }
//@ ps_double_to_half_rm
ushort ps_double_to_half_rm(double a) { return ps_float_to_half_rm(ps_double_to_odd(a)); }
//@ ps_double_to_half_rp
ushort ps_double_to_half_rp(double a) { return ps_float_to_half_rp(ps_double_to_odd(a)); }
//@ ps_double_to_bf16_rn
ushort ps_double_to_bf16_rn(double a) { return ps_float_to_bf16_rn(ps_double_to_odd(a)); }
//@ ps_double_to_bf16_rz
ushort ps_double_to_bf16_rz(double a) { return ps_float_to_bf16_rz(ps_double_to_odd(a)); }
//@ ps_double_to_bf16_rm
ushort ps_double_to_bf16_rm(double a) { return ps_float_to_bf16_rm(ps_double_to_odd(a)); }
//@ ps_double_to_bf16_rp
ushort ps_double_to_bf16_rp(double a) { return ps_float_to_bf16_rp(ps_double_to_odd(a)); }
//@ ps_float_to_uchar
uchar ps_float_to_uchar(float a) { return (uchar)(int)(a > 0.0f ? (a < 255.0f ? a : 255.0f) : a <= 0.0f ? 0.0f : 0.0f); }
//@ ps_float_to_char
char ps_float_to_char(float a) { return (char)(int)(a > -128.0f ? (a < 127.0f ? a : 127.0f) : a <= -128.0f ? -128.0f : 0.0f); }
//@ ps_float_to_ushort
ushort ps_float_to_ushort(float a) { return (ushort)(int)(a > 0.0f ? (a < 65535.0f ? a : 65535.0f) : a <= 0.0f ? 0.0f : 0.0f); }
//@ ps_float_to_short
short ps_float_to_short(float a) { return (short)(int)(a > -32768.0f ? (a < 32767.0f ? a : 32767.0f) : a <= -32768.0f ? -32768.0f : 0.0f); }
//@ ps_float_to_int
int ps_float_to_int(float a) { return a >= 2147483648.0f ? 0x7fffffff : a >= -2147483648.0f ? (int)a : a != a ? 0 : (int)0x80000000u; }
//@ ps_float_to_uint
uint ps_float_to_uint(float a) { return a >= 4294967296.0f ? 0xffffffffu : a > 0.0f ? (uint)a : a != a ? 0u : 0u; }
//@ ps_float_to_long
long ps_float_to_long(float a) { return a >= 0x1p63f ? 0x7fffffffffffffffL : a >= -0x1p63f ? (long)a : (long)0x8000000000000000UL; }
//@ ps_float_to_ulong
ulong ps_float_to_ulong(float a) { return a >= 0x1p64f ? 0xffffffffffffffffUL : a > 0.0f ? (ulong)a : a != a ? 0x8000000000000000UL : 0UL; }
//@ ps_double_to_uchar
uchar ps_double_to_uchar(double a) { return (uchar)(int)(a > 0.0 ? (a < 255.0 ? a : 255.0) : a <= 0.0 ? 0.0 : 128.0); }
//@ ps_double_to_char
char ps_double_to_char(double a) { return (char)(int)(a > -128.0 ? (a < 127.0 ? a : 127.0) : a <= -128.0 ? -128.0 : -128.0); }
//@ ps_double_to_ushort
ushort ps_double_to_ushort(double a) { return (ushort)(int)(a > 0.0 ? (a < 65535.0 ? a : 65535.0) : a <= 0.0 ? 0.0 : 32768.0); }
//@ ps_double_to_short
short ps_double_to_short(double a) { return (short)(int)(a > -32768.0 ? (a < 32767.0 ? a : 32767.0) : a <= -32768.0 ? -32768.0 : -32768.0); }
//@ ps_double_to_int
int ps_double_to_int(double a) { return a >= 2147483648.0 ? 0x7fffffff : a >= -2147483648.0 ? (int)a : a != a ? (int)0x80000000u : (int)0x80000000u; }
//@ ps_double_to_uint
uint ps_double_to_uint(double a) { return a >= 4294967296.0 ? 0xffffffffu : a > 0.0 ? (uint)a : a != a ? 0x80000000u : 0u; }
//@ ps_double_to_long
long ps_double_to_long(double a) { return a >= 0x1p63 ? 0x7fffffffffffffffL : a >= -0x1p63 ? (long)a : (long)0x8000000000000000UL; }
//@ ps_double_to_ulong
ulong ps_double_to_ulong(double a) { return a >= 0x1p64 ? 0xffffffffffffffffUL : a > 0.0 ? (ulong)a : a != a ? 0x8000000000000000UL : 0UL; }
//@ ps_size_rounded
// An integer as mantissa bits and a power of two, rounded to `bits` bits.
ulong ps_size_rounded(ulong size, bool negative, uint mode, uint bits) {
    uint length = 64u - (uint)clz(size);
    if (size == 0UL || length <= bits) return size;
    uint cut = length - bits;
    ulong kept = size >> cut, rest = size & ((1UL << cut) - 1UL);
    if (ps_rounds_up(mode, negative, kept & 1UL, rest, 1UL << (cut - 1u))) kept++;
    // May carry out of 64 bits: then it is 2 to the power of 64, which 0 stands for.
    return kept << cut;
}
//@ ps_ulong_to_float_rn
float ps_ulong_to_float_rn(ulong a) { ulong r = ps_size_rounded(a, false, 0u, 24u); return a != 0UL && r == 0UL ? 0x1p64f : (float)r; }
//@ ps_long_to_float_rn
float ps_long_to_float_rn(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 0u, 24u); return a < 0 ? -(float)r : (float)r; }
//@ ps_ulong_to_float_rz
float ps_ulong_to_float_rz(ulong a) { ulong r = ps_size_rounded(a, false, 1u, 24u); return a != 0UL && r == 0UL ? 0x1p64f : (float)r; }
//@ ps_long_to_float_rz
float ps_long_to_float_rz(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 1u, 24u); return a < 0 ? -(float)r : (float)r; }
//@ ps_ulong_to_float_rm
float ps_ulong_to_float_rm(ulong a) { ulong r = ps_size_rounded(a, false, 2u, 24u); return a != 0UL && r == 0UL ? 0x1p64f : (float)r; }
//@ ps_long_to_float_rm
float ps_long_to_float_rm(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 2u, 24u); return a < 0 ? -(float)r : (float)r; }
//@ ps_ulong_to_float_rp
float ps_ulong_to_float_rp(ulong a) { ulong r = ps_size_rounded(a, false, 3u, 24u); return a != 0UL && r == 0UL ? 0x1p64f : (float)r; }
//@ ps_long_to_float_rp
float ps_long_to_float_rp(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 3u, 24u); return a < 0 ? -(float)r : (float)r; }
//@ ps_ulong_to_double_rn
double ps_ulong_to_double_rn(ulong a) { ulong r = ps_size_rounded(a, false, 0u, 53u); return a != 0UL && r == 0UL ? 0x1p64 : (double)r; }
//@ ps_long_to_double_rn
double ps_long_to_double_rn(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 0u, 53u); return a < 0 ? -(double)r : (double)r; }
//@ ps_ulong_to_double_rz
double ps_ulong_to_double_rz(ulong a) { ulong r = ps_size_rounded(a, false, 1u, 53u); return a != 0UL && r == 0UL ? 0x1p64 : (double)r; }
//@ ps_long_to_double_rz
double ps_long_to_double_rz(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 1u, 53u); return a < 0 ? -(double)r : (double)r; }
//@ ps_ulong_to_double_rm
double ps_ulong_to_double_rm(ulong a) { ulong r = ps_size_rounded(a, false, 2u, 53u); return a != 0UL && r == 0UL ? 0x1p64 : (double)r; }
//@ ps_long_to_double_rm
double ps_long_to_double_rm(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 2u, 53u); return a < 0 ? -(double)r : (double)r; }
//@ ps_ulong_to_double_rp
double ps_ulong_to_double_rp(ulong a) { ulong r = ps_size_rounded(a, false, 3u, 53u); return a != 0UL && r == 0UL ? 0x1p64 : (double)r; }
//@ ps_long_to_double_rp
double ps_long_to_double_rp(long a) { ulong r = ps_size_rounded(a < 0 ? 0UL - (ulong)a : (ulong)a, a < 0, 3u, 53u); return a < 0 ? -(double)r : (double)r; }
//@ ps_size_odd
// An integer cut to the 24 bits of a float, the last of which says whether something was cut off.
ulong ps_size_odd(ulong size) {
    uint length = 64u - (uint)clz(size);
    if (size == 0UL || length <= 24u) return size;
    uint cut = length - 24u;
    ulong rest = size & ((1UL << cut) - 1UL);
    return (size >> cut | (rest != 0UL ? 1UL : 0UL)) << cut;
}
//@ ps_ulong_to_half_rn
ushort ps_ulong_to_half_rn(ulong a) { return ps_float_to_half_rn((float)ps_size_odd(a)); }
//@ ps_long_to_half_rn
ushort ps_long_to_half_rn(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_half_rn(a < 0 ? -f : f); }
//@ ps_ulong_to_half_rz
ushort ps_ulong_to_half_rz(ulong a) { return ps_float_to_half_rz((float)ps_size_odd(a)); }
//@ ps_long_to_half_rz
ushort ps_long_to_half_rz(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_half_rz(a < 0 ? -f : f); }
//@ ps_ulong_to_half_rm
ushort ps_ulong_to_half_rm(ulong a) { return ps_float_to_half_rm((float)ps_size_odd(a)); }
//@ ps_long_to_half_rm
ushort ps_long_to_half_rm(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_half_rm(a < 0 ? -f : f); }
//@ ps_ulong_to_half_rp
ushort ps_ulong_to_half_rp(ulong a) { return ps_float_to_half_rp((float)ps_size_odd(a)); }
//@ ps_long_to_half_rp
ushort ps_long_to_half_rp(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_half_rp(a < 0 ? -f : f); }
//@ ps_ulong_to_bf16_rn
ushort ps_ulong_to_bf16_rn(ulong a) { return ps_float_to_bf16_rn((float)ps_size_odd(a)); }
//@ ps_long_to_bf16_rn
ushort ps_long_to_bf16_rn(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_bf16_rn(a < 0 ? -f : f); }
//@ ps_ulong_to_bf16_rz
ushort ps_ulong_to_bf16_rz(ulong a) { return ps_float_to_bf16_rz((float)ps_size_odd(a)); }
//@ ps_long_to_bf16_rz
ushort ps_long_to_bf16_rz(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_bf16_rz(a < 0 ? -f : f); }
//@ ps_ulong_to_bf16_rm
ushort ps_ulong_to_bf16_rm(ulong a) { return ps_float_to_bf16_rm((float)ps_size_odd(a)); }
//@ ps_long_to_bf16_rm
ushort ps_long_to_bf16_rm(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_bf16_rm(a < 0 ? -f : f); }
//@ ps_ulong_to_bf16_rp
ushort ps_ulong_to_bf16_rp(ulong a) { return ps_float_to_bf16_rp((float)ps_size_odd(a)); }
//@ ps_long_to_bf16_rp
ushort ps_long_to_bf16_rp(long a) { float f = (float)ps_size_odd(a < 0 ? 0UL - (ulong)a : (ulong)a); return ps_float_to_bf16_rp(a < 0 ? -f : f); }
