//@ ps_half_add
ushort ps_half_add(ushort a, ushort b) { return ps_float_to_half_rn(ps_half_to_float(a) + ps_half_to_float(b)); }
//@ ps_half_sub
ushort ps_half_sub(ushort a, ushort b) { return ps_float_to_half_rn(ps_half_to_float(a) - ps_half_to_float(b)); }
//@ ps_half_mul
ushort ps_half_mul(ushort a, ushort b) { return ps_float_to_half_rn(ps_half_to_float(a) * ps_half_to_float(b)); }
//@ ps_half_fma
// The product is exact, and the last bit of the sum says whether that is: so rounding it again is right.
ushort ps_half_fma(ushort a, ushort b, ushort c) {
    float p = ps_half_to_float(a) * ps_half_to_float(b), x = ps_half_to_float(c), s = p + x, t = s - p, error = (p - (s - t)) + (x - t);
    uint bits = as_uint(s);
    if ((error < 0.0f || error > 0.0f) && !(bits & 1u) && !isinf(s)) s = as_float((error > 0.0f) == (s > 0.0f) ? bits + 1u : bits - 1u);
    return ps_float_to_half_rn(s);
}
//@ ps_half_neg
ushort ps_half_neg(ushort a) { return (ushort)(a ^ 0x8000u); }
//@ ps_half_abs
ushort ps_half_abs(ushort a) { return (ushort)(a & 0x7fffu); }
//@ ps_relu_half
ushort ps_relu_half(ushort a) { return (a & 0x7fffu) > 0x7c00u ? (ushort)0x7fffu : (a & 0x8000u) ? (ushort)0u : a; }
//@ ps_sat_half
ushort ps_sat_half(ushort a) { float f = ps_half_to_float(a); return f > 0.0f ? (f < 1.0f ? a : ps_float_to_half_rn(1.0f)) : (ushort)0u; }
//@ ps_half_min
ushort ps_half_min(ushort a, ushort b) {
    float x = ps_half_to_float(a), y = ps_half_to_float(b);
    if (x != x) return y != y ? (ushort)0x7fffu : b;
    if (y != y) return a;
    return x < y || (x == y && (short)a < 0) ? a : b;
}
//@ ps_half_min_nan
ushort ps_half_min_nan(ushort a, ushort b) {
    float x = ps_half_to_float(a), y = ps_half_to_float(b);
    return x != x || y != y ? (ushort)0x7fffu : x < y || (x == y && (short)a < 0) ? a : b;
}
//@ ps_half_max
ushort ps_half_max(ushort a, ushort b) {
    float x = ps_half_to_float(a), y = ps_half_to_float(b);
    if (x != x) return y != y ? (ushort)0x7fffu : b;
    if (y != y) return a;
    return x > y || (x == y && (short)a >= 0) ? a : b;
}
//@ ps_half_max_nan
ushort ps_half_max_nan(ushort a, ushort b) {
    float x = ps_half_to_float(a), y = ps_half_to_float(b);
    return x != x || y != y ? (ushort)0x7fffu : x > y || (x == y && (short)a >= 0) ? a : b;
}
//@ ps_half_ex2
ushort ps_half_ex2(ushort a) { return ps_float_to_half_rn(exp2(ps_half_to_float(a))); }
//@ ps_half_tanh
ushort ps_half_tanh(ushort a) { return ps_float_to_half_rn(tanh(ps_half_to_float(a))); }
//@ ps_half_sqrt
ushort ps_half_sqrt(ushort a) { return ps_float_to_half_rn(sqrt(ps_half_to_float(a))); }
//@ ps_half_rcp
ushort ps_half_rcp(ushort a) { return ps_float_to_half_rn(1.0f / (ps_half_to_float(a))); }
//@ ps_half_rsqrt
ushort ps_half_rsqrt(ushort a) { return ps_float_to_half_rn(rsqrt(ps_half_to_float(a))); }
//@ ps_half_lg2
ushort ps_half_lg2(ushort a) { return ps_float_to_half_rn(log2(ps_half_to_float(a))); }
//@ ps_half_sin
ushort ps_half_sin(ushort a) { return ps_float_to_half_rn(sin(ps_half_to_float(a))); }
//@ ps_half_cos
ushort ps_half_cos(ushort a) { return ps_float_to_half_rn(cos(ps_half_to_float(a))); }
//@ ps_bf16_add
ushort ps_bf16_add(ushort a, ushort b) { return ps_float_to_bf16_rn(ps_bf16_to_float(a) + ps_bf16_to_float(b)); }
//@ ps_bf16_sub
ushort ps_bf16_sub(ushort a, ushort b) { return ps_float_to_bf16_rn(ps_bf16_to_float(a) - ps_bf16_to_float(b)); }
//@ ps_bf16_mul
ushort ps_bf16_mul(ushort a, ushort b) { return ps_float_to_bf16_rn(ps_bf16_to_float(a) * ps_bf16_to_float(b)); }
//@ ps_bf16_fma
// In double precision, where the product neither overflows nor underflows.
ushort ps_bf16_fma(ushort a, ushort b, ushort c) {
#ifdef WITH_DOUBLE
    return ps_double_to_bf16_rn(ps_sum_odd((double)ps_bf16_to_float(a) * (double)ps_bf16_to_float(b), (double)ps_bf16_to_float(c)));
#else
    float p = ps_bf16_to_float(a) * ps_bf16_to_float(b), x = ps_bf16_to_float(c), s = p + x, t = s - p, error = (p - (s - t)) + (x - t);
    uint bits = as_uint(s);
    if ((error < 0.0f || error > 0.0f) && !(bits & 1u) && !isinf(s)) s = as_float((error > 0.0f) == (s > 0.0f) ? bits + 1u : bits - 1u);
    return ps_float_to_bf16_rn(s);
#endif
}
//@ ps_bf16_neg
ushort ps_bf16_neg(ushort a) { return (ushort)(a ^ 0x8000u); }
//@ ps_bf16_abs
ushort ps_bf16_abs(ushort a) { return (ushort)(a & 0x7fffu); }
//@ ps_relu_bf16
ushort ps_relu_bf16(ushort a) { return (a & 0x7fffu) > 0x7f80u ? (ushort)0x7fffu : (a & 0x8000u) ? (ushort)0u : a; }
//@ ps_sat_bf16
ushort ps_sat_bf16(ushort a) { float f = ps_bf16_to_float(a); return f > 0.0f ? (f < 1.0f ? a : ps_float_to_bf16_rn(1.0f)) : (ushort)0u; }
//@ ps_bf16_min
ushort ps_bf16_min(ushort a, ushort b) {
    float x = ps_bf16_to_float(a), y = ps_bf16_to_float(b);
    if (x != x) return y != y ? (ushort)0x7fffu : b;
    if (y != y) return a;
    return x < y || (x == y && (short)a < 0) ? a : b;
}
//@ ps_bf16_min_nan
ushort ps_bf16_min_nan(ushort a, ushort b) {
    float x = ps_bf16_to_float(a), y = ps_bf16_to_float(b);
    return x != x || y != y ? (ushort)0x7fffu : x < y || (x == y && (short)a < 0) ? a : b;
}
//@ ps_bf16_max
ushort ps_bf16_max(ushort a, ushort b) {
    float x = ps_bf16_to_float(a), y = ps_bf16_to_float(b);
    if (x != x) return y != y ? (ushort)0x7fffu : b;
    if (y != y) return a;
    return x > y || (x == y && (short)a >= 0) ? a : b;
}
//@ ps_bf16_max_nan
ushort ps_bf16_max_nan(ushort a, ushort b) {
    float x = ps_bf16_to_float(a), y = ps_bf16_to_float(b);
    return x != x || y != y ? (ushort)0x7fffu : x > y || (x == y && (short)a >= 0) ? a : b;
}
//@ ps_bf16_ex2
ushort ps_bf16_ex2(ushort a) { return ps_float_to_bf16_rn(exp2(ps_bf16_to_float(a))); }
//@ ps_bf16_tanh
ushort ps_bf16_tanh(ushort a) { return ps_float_to_bf16_rn(tanh(ps_bf16_to_float(a))); }
//@ ps_bf16_sqrt
ushort ps_bf16_sqrt(ushort a) { return ps_float_to_bf16_rn(sqrt(ps_bf16_to_float(a))); }
//@ ps_bf16_rcp
ushort ps_bf16_rcp(ushort a) { return ps_float_to_bf16_rn(1.0f / (ps_bf16_to_float(a))); }
//@ ps_bf16_rsqrt
ushort ps_bf16_rsqrt(ushort a) { return ps_float_to_bf16_rn(rsqrt(ps_bf16_to_float(a))); }
//@ ps_bf16_lg2
ushort ps_bf16_lg2(ushort a) { return ps_float_to_bf16_rn(log2(ps_bf16_to_float(a))); }
//@ ps_bf16_sin
ushort ps_bf16_sin(ushort a) { return ps_float_to_bf16_rn(sin(ps_bf16_to_float(a))); }
//@ ps_bf16_cos
ushort ps_bf16_cos(ushort a) { return ps_float_to_bf16_rn(cos(ps_bf16_to_float(a))); }
