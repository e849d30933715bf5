// Arithmetic of every width, including the slow paths that nvcc inlines.
#include <cuda_fp16.h>

extern "C" __global__ void floats(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    float y = in[i + n];
    out[i] = cosf(y) * tanhf(x) + expf(x) / logf(fabsf(y) + 1.0f) + fmodf(x, y);
    out[i + n] = __sinf(x) + __expf(y) + __fdividef(x, y) + rsqrtf(x) + sqrtf(y) + __frcp_rz(x) +
                 __fmaf_rd(x, y, 1.0f);
    out[i + 2 * n] =
        copysignf(x, y) + fmaxf(x, y) - fminf(x, y) + rintf(x) + floorf(y) + ceilf(x) + truncf(y);
    out[i + 3 * n] = __saturatef(x) + (float)isnan(x) + (float)isinf(y) + ldexpf(x, 3) + cbrtf(y);
}

extern "C" __global__ void doubles(double *out, const double *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i];
    double y = in[i + n];
    out[i] = sin(x) + exp(x) + log(y) + sqrt(x) / y + fma(x, y, 1.0);
    out[i + n] =
        fmod(x, y) + atan(x) + rint(y) + floor(x) + (double)(long long)y + (double)(unsigned)x;
}

extern "C" __global__ void integers(unsigned *out, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int a = in[i];
    int b = in[i + n];
    unsigned u = a;
    unsigned v = b;
    out[i] = a / b + a % b + u / v + u % v + __popc(u) + __clz(v) + __ffs(u) + __brev(v);
    out[i + n] = __umulhi(u, v) + __mulhi(a, b) + __byte_perm(u, v, 0x5410) +
                 __funnelshift_l(u, v, 7) + __funnelshift_rc(u, v, 40);
    out[i + 2 * n] = min(a, b) + max(u, v) + abs(a) + __sad(a, b, u) + __mul24(a, b) +
                     __umul24(u, v) + ((u >> 5) & 0x3f);
    out[i + 3 * n] = (u & v) | (~u & 0xff00ff00u) ^ (v << 3);
}

extern "C" __global__ void wide_integers(unsigned long long *out, const long long *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    long long a = in[i];
    long long b = in[i + n];
    unsigned long long u = a;
    unsigned long long v = b;
    out[i] = a / b + a % b + u / v + u % v + __popcll(u) + __clzll(a) + __brevll(v) +
             __umul64hi(u, v) + __mul64hi(a, b);
    unsigned __int128 product = (unsigned __int128)u * v + (unsigned __int128)b;
    out[i + n] = (unsigned long long)(product >> 64) ^ (unsigned long long)product;
}

extern "C" __global__ void narrow_integers(short *out, const short *in, const signed char *bytes,
                                           unsigned char *flags, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    short a = in[i];
    short b = in[i + n];
    signed char c = bytes[i];
    out[i] = (short)(a * b + c);
    out[i + n] =
        (short)(a >> 3) + (short)((unsigned short)b >> 2) + (short)(a < b) + (short)min(a, b);
    flags[i] = (unsigned char)(c > 3 && a != b);
}

extern "C" __global__ void halves(__half *out, const __half *in, const __half2 *pairs, float *wide,
                                  int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half a = in[i];
    __half b = in[i + n];
    __half2 p = pairs[i];
    out[i] = __hadd(a, b) * __hsub(a, b) + __hfma(a, b, a) + hsqrt(a) + hexp2(b) + hrcp(a);
    out[i + n] = __hlt(a, b) ? __hneg(a) : __habs(b);
    __half2 q = __hfma2(p, p, __half2half2(a));
    wide[i] = __half2float(__low2half(q)) + __half2float(__high2half(q)) + (float)__half2int_rn(a) +
              __half2float(__int2half_rn(i));
    wide[i + n] = __hbgt2(p, q) ? 1.0f : __half2float(__hadd2_sat(p, q).x);
}

extern "C" __global__ void conversions(float *f, double *d, int *i, unsigned *u, long long *l,
                                       unsigned char *b, short *s) {
    int t = threadIdx.x;
    f[t] = (float)d[t] + (float)i[t] + (float)u[t] + (float)l[t] + (float)b[t] + (float)s[t];
    d[t] = (double)f[t] + (double)l[t] + __hiloint2double(i[t], u[t]) +
           (double)(unsigned long long)l[t];
    i[t] = __float2int_rn(f[t]) + __float2int_ru(f[t]) + __double2int_rz(d[t]) +
           __float_as_int(f[t]) + (int)b[t];
    u[t] = __float2uint_rd(f[t]) + (unsigned)d[t] + (unsigned)__double2hiint(d[t]);
    l[t] =
        __float2ll_rz(f[t]) + __double2ll_rn(d[t]) + (long long)i[t] + __double_as_longlong(d[t]);
    b[t] = (unsigned char)f[t];
    s[t] = (short)i[t];
}
