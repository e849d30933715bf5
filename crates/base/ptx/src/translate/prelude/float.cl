//@ ps_sat_float
// NaN becomes 0, and so does -0.
float ps_sat_float(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
//@ ps_sat_double
double ps_sat_double(double a) { return a > 0.0 ? (a < 1.0 ? a : 1.0) : 0.0; }
//@ ps_min_float
// The other operand where one is NaN; -0 is less than 0.
float ps_min_float(float a, float b) {
    float m = a < b || (a == b && as_int(a) < 0) ? a : b;
    return a != a ? (b != b ? as_float(0x7fffffffu) : b) : b != b ? a : m;
}
//@ ps_max_float
float ps_max_float(float a, float b) {
    float m = a > b || (a == b && as_int(a) >= 0) ? a : b;
    return a != a ? (b != b ? as_float(0x7fffffffu) : b) : b != b ? a : m;
}
//@ ps_min_nan_float
float ps_min_nan_float(float a, float b) { return a != a || b != b ? as_float(0x7fffffffu) : a < b || (a == b && as_int(a) < 0) ? a : b; }
//@ ps_max_nan_float
float ps_max_nan_float(float a, float b) { return a != a || b != b ? as_float(0x7fffffffu) : a > b || (a == b && as_int(a) >= 0) ? a : b; }
//@ ps_min_double
double ps_min_double(double a, double b) {
    double m = a < b || (a == b && as_long(a) < 0) ? a : b;
    return a != a ? b : b != b ? a : m;
}
//@ ps_max_double
double ps_max_double(double a, double b) {
    double m = a > b || (a == b && as_long(a) >= 0) ? a : b;
    return a != a ? b : b != b ? a : m;
}
//@ ps_xorsign
float ps_xorsign(float value, float a, float b) { return value != value ? value : as_float((as_uint(value) & 0x7fffffffu) | ((as_uint(a) ^ as_uint(b)) & 0x80000000u)); }
//@ ps_up_float ps_down_float
// The next number up and down.
float ps_up_float(float a) {
    uint bits = as_uint(a);
    return a == 0.0f ? as_float(1u) : as_float(a > 0.0f ? bits + 1u : bits - 1u);
}
float ps_down_float(float a) { return -ps_up_float(-a); }
//@ ps_up_double ps_down_double
double ps_up_double(double a) {
    ulong bits = as_ulong(a);
    return a == 0.0 ? as_double(1UL) : as_double(a > 0.0 ? bits + 1UL : bits - 1UL);
}
double ps_down_double(double a) { return -ps_up_double(-a); }
//@ ps_double_to_float_rz ps_double_to_float_rm ps_double_to_float_rp
float ps_double_to_float_rz(double a) {
    float f = (float)a;
    return fabs((double)f) > fabs(a) ? as_float(as_uint(f) - 1u) : f;
}
float ps_double_to_float_rm(double a) {
    float f = (float)a;
    return (double)f > a ? ps_down_float(f) : f;
}
float ps_double_to_float_rp(double a) {
    float f = (float)a;
    return (double)f < a ? ps_up_float(f) : f;
}
//@ ps_odd
// A double that stands for `a` plus an error: its last bit is 1 if the error is not zero, so that rounding it again is right.
double ps_odd(double a, double error) {
    ulong bits = as_ulong(a);
    if (!(error < 0.0 || error > 0.0) || (bits & 1UL) || isinf(a)) return a;
    return as_double((error > 0.0) == (a > 0.0) ? bits + 1UL : bits - 1UL);
}
//@ ps_sum_error
// What rounding took from a sum.
double ps_sum_error(double a, double b, double s) {
    double t = s - a;
    return (a - (s - t)) + (b - t);
}
//@ ps_sum_odd
double ps_sum_odd(double a, double b) {
    double s = a + b;
    return ps_odd(s, ps_sum_error(a, b, s));
}
//@ ps_add_rz_float ps_add_rm_float ps_add_rp_float
float ps_add_rz_float(float a, float b) { return ps_double_to_float_rz(ps_sum_odd(a, b)); }
float ps_add_rm_float(float a, float b) {
    double s = ps_sum_odd(a, b);
    return s == 0.0 ? (as_int(a) < 0 || as_int(b) < 0 ? -0.0f : 0.0f) : ps_double_to_float_rm(s);
}
float ps_add_rp_float(float a, float b) { return ps_double_to_float_rp(ps_sum_odd(a, b)); }
//@ ps_mul_rz_float ps_mul_rm_float ps_mul_rp_float
float ps_mul_rz_float(float a, float b) { return ps_double_to_float_rz((double)a * (double)b); }
float ps_mul_rm_float(float a, float b) { return ps_double_to_float_rm((double)a * (double)b); }
float ps_mul_rp_float(float a, float b) { return ps_double_to_float_rp((double)a * (double)b); }
//@ ps_fma_rz_float ps_fma_rm_float ps_fma_rp_float
float ps_fma_rz_float(float a, float b, float c) { return ps_double_to_float_rz(ps_sum_odd((double)a * (double)b, c)); }
float ps_fma_rm_float(float a, float b, float c) {
    double p = (double)a * (double)b, s = ps_sum_odd(p, c);
    return s == 0.0 ? (as_long(p) < 0 || as_int(c) < 0 ? -0.0f : 0.0f) : ps_double_to_float_rm(s);
}
float ps_fma_rp_float(float a, float b, float c) { return ps_double_to_float_rp(ps_sum_odd((double)a * (double)b, c)); }
//@ ps_quotient
double ps_quotient(double a, double b) {
    double q = a / b;
    if (b == 0.0 || !isfinite(q) || isinf(b)) return q;
    double rest = fma(-q, b, a);
    return ps_odd(q, b > 0.0 ? rest : -rest);
}
//@ ps_div_rz_float ps_div_rm_float ps_div_rp_float
float ps_div_rz_float(float a, float b) { return ps_double_to_float_rz(ps_quotient(a, b)); }
float ps_div_rm_float(float a, float b) { return ps_double_to_float_rm(ps_quotient(a, b)); }
float ps_div_rp_float(float a, float b) { return ps_double_to_float_rp(ps_quotient(a, b)); }
//@ ps_root
double ps_root(double a) {
    double s = sqrt(a);
    return a > 0.0 && isfinite(a) ? ps_odd(s, fma(-s, s, a)) : s;
}
//@ ps_sqrt_rz_float ps_sqrt_rm_float ps_sqrt_rp_float
float ps_sqrt_rz_float(float a) { return ps_double_to_float_rz(ps_root(a)); }
float ps_sqrt_rm_float(float a) { return ps_double_to_float_rm(ps_root(a)); }
float ps_sqrt_rp_float(float a) { return ps_double_to_float_rp(ps_root(a)); }
//@ ps_corrected_rz ps_corrected_rm ps_corrected_rp
// A result that was rounded to nearest, and what rounding took from it (its sign is enough), rounded another way.
double ps_corrected_rz(double r, double error) {
    if (isinf(r)) return as_double(as_ulong(r) - 1UL);
    if ((r > 0.0 && error < 0.0) || (r < 0.0 && error > 0.0)) return as_double(as_ulong(r) - 1UL);
    return r;
}
double ps_corrected_rm(double r, double error) {
    if (isinf(r)) return r > 0.0 ? as_double(0x7fefffffffffffffUL) : r;
    return error < 0.0 ? ps_down_double(r) : r;
}
double ps_corrected_rp(double r, double error) { return -ps_corrected_rm(-r, -error); }
//@ ps_add_rz_double ps_add_rm_double ps_add_rp_double
double ps_add_rz_double(double a, double b) {
    double s = a + b;
    return isfinite(a) && isfinite(b) ? ps_corrected_rz(s, ps_sum_error(a, b, s)) : s;
}
double ps_add_rm_double(double a, double b) {
    double s = a + b;
    if (s == 0.0) return as_long(a) < 0 || as_long(b) < 0 ? -0.0 : 0.0;
    return isfinite(a) && isfinite(b) ? ps_corrected_rm(s, ps_sum_error(a, b, s)) : s;
}
double ps_add_rp_double(double a, double b) {
    double s = a + b;
    return isfinite(a) && isfinite(b) ? ps_corrected_rp(s, ps_sum_error(a, b, s)) : s;
}
//@ ps_product_error
// What rounding took from a product, or something of the same sign where that is too small for a double.
double ps_product_error(double a, double b, double p) {
    if (p == 0.0) return a == 0.0 || b == 0.0 ? 0.0 : (a > 0.0) == (b > 0.0) ? 1.0 : -1.0;
    if (fabs(p) > 0x1p-900) return fma(a, b, -p);
    double small = fabs(a) < fabs(b) ? a : b, large = fabs(a) < fabs(b) ? b : a;
    return fma(small * 0x1p600, large, -(p * 0x1p600));
}
//@ ps_mul_rz_double ps_mul_rm_double ps_mul_rp_double
double ps_mul_rz_double(double a, double b) {
    double p = a * b;
    return isfinite(a) && isfinite(b) ? ps_corrected_rz(p, ps_product_error(a, b, p)) : p;
}
double ps_mul_rm_double(double a, double b) {
    double p = a * b;
    return isfinite(a) && isfinite(b) ? ps_corrected_rm(p, ps_product_error(a, b, p)) : p;
}
double ps_mul_rp_double(double a, double b) {
    double p = a * b;
    return isfinite(a) && isfinite(b) ? ps_corrected_rp(p, ps_product_error(a, b, p)) : p;
}
//@ ps_fma_error
// The sign of what rounding took from a * b + c, after Boldo and Muller.
double ps_fma_error(double a, double b, double c, double r) {
    double u = a * b, v = fma(a, b, -u);
    double s = c + v, se = ps_sum_error(c, v, s), t = u + s, te = ps_sum_error(u, s, t);
    return ((t - r) + te) + se;
}
//@ ps_fma_rz_double ps_fma_rm_double ps_fma_rp_double
double ps_fma_rz_double(double a, double b, double c) {
    double r = fma(a, b, c);
    return isfinite(a) && isfinite(b) && isfinite(c) ? ps_corrected_rz(r, ps_fma_error(a, b, c, r)) : r;
}
double ps_fma_rm_double(double a, double b, double c) {
    double r = fma(a, b, c);
    if (r == 0.0 && ps_fma_error(a, b, c, r) == 0.0) return ((as_long(a) ^ as_long(b)) < 0) || as_long(c) < 0 ? -0.0 : 0.0;
    return isfinite(a) && isfinite(b) && isfinite(c) ? ps_corrected_rm(r, ps_fma_error(a, b, c, r)) : r;
}
double ps_fma_rp_double(double a, double b, double c) {
    double r = fma(a, b, c);
    return isfinite(a) && isfinite(b) && isfinite(c) ? ps_corrected_rp(r, ps_fma_error(a, b, c, r)) : r;
}
//@ ps_quotient_error
double ps_quotient_error(double a, double b, double q) {
    if (q == 0.0 && a != 0.0) return (a > 0.0) == (b > 0.0) ? 1.0 : -1.0;
    double rest = fma(-q, b, a);
    return b > 0.0 ? rest : -rest;
}
//@ ps_div_rz_double ps_div_rm_double ps_div_rp_double
double ps_div_rz_double(double a, double b) {
    double q = a / b;
    return isfinite(a) && isfinite(b) && b != 0.0 ? ps_corrected_rz(q, ps_quotient_error(a, b, q)) : q;
}
double ps_div_rm_double(double a, double b) {
    double q = a / b;
    return isfinite(a) && isfinite(b) && b != 0.0 ? ps_corrected_rm(q, ps_quotient_error(a, b, q)) : q;
}
double ps_div_rp_double(double a, double b) {
    double q = a / b;
    return isfinite(a) && isfinite(b) && b != 0.0 ? ps_corrected_rp(q, ps_quotient_error(a, b, q)) : q;
}
//@ ps_root_error
double ps_root_error(double a, double s) {
    if (a < 0x1p-900) { a *= 0x1p200; s *= 0x1p100; }
    return fma(-s, s, a);
}
//@ ps_sqrt_rz_double ps_sqrt_rm_double ps_sqrt_rp_double
double ps_sqrt_rz_double(double a) { double s = sqrt(a); return a > 0.0 && isfinite(a) ? ps_corrected_rz(s, ps_root_error(a, s)) : s; }
double ps_sqrt_rm_double(double a) { double s = sqrt(a); return a > 0.0 && isfinite(a) ? ps_corrected_rm(s, ps_root_error(a, s)) : s; }
double ps_sqrt_rp_double(double a) { double s = sqrt(a); return a > 0.0 && isfinite(a) ? ps_corrected_rp(s, ps_root_error(a, s)) : s; }
