/* A stand-in for NVIDIA's cuBLAS on the stand-in for CUDA's driver (cuda_standin.c), which must be
 * loaded as libcuda.so.1. It has products, and the routines of vectors, in plain loops.
 *
 * It is stricter than cuBLAS: a call without a current context, without a stream, with operands
 * outside of allocations, or with factors that are not where the pointer mode says, a product that
 * may be summed in less than single precision, and the end of a handle before its calls end the
 * process with a message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_SUMS = 16 }; /* CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION */
enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { S, D, C, Z, H, B, NONE }; /* types of elements; H and B are half precision and bfloat16 */
static const uint64_t size_of[] = {4, 8, 8, 16, 2, 2};

/* Functions of the stand-in for the driver. */
static int (*has_context)(void);
static uint64_t (*seen)(uint64_t at, uint64_t bytes);
static int (*push_task)(void *stream, void (*task)(void *), void *argument);
static void (*fail)(void);

#define DEMAND(condition, ...)                                                              \
    do {                                                                                    \
        if (!(condition))                                                                   \
            fprintf(stderr, "cuBLAS stand-in: " __VA_ARGS__), fputc('\n', stderr), abort(); \
    } while (0)

struct handle {
    uint64_t mark;
    void *stream;
    int has_stream, on_device, math, pending;
};
#define MARK 0x63756c62617368ull
int standin_handles; /* handles that live */

static struct handle *checked(void *handle) {
    struct handle *h = handle;
    DEMAND(h && h->mark == MARK, "no handle");
    DEMAND(has_context(), "no current context");
    DEMAND(h->has_stream, "no stream");
    return h;
}

int cublasCreate_v2(void **out) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    DEMAND(driver, "the stand-in for the driver is not loaded");
    has_context = (int (*)(void))dlsym(driver, "standin_has_context");
    seen = (uint64_t (*)(uint64_t, uint64_t))dlsym(driver, "standin_seen");
    push_task = (int (*)(void *, void (*)(void *), void *))dlsym(driver, "standin_push_task");
    fail = (void (*)(void))dlsym(driver, "standin_fail");
    DEMAND(has_context && seen && push_task && fail, "the driver is not the stand-in");
    DEMAND(has_context(), "a handle without a current context");
    struct handle *h = calloc(1, sizeof *h);
    h->mark = MARK;
    *out = h;
    __sync_fetch_and_add(&standin_handles, 1);
    return OK;
}

int cublasDestroy_v2(void *handle) {
    struct handle *h = checked(handle);
    DEMAND(!__sync_fetch_and_add(&h->pending, 0), "a handle ends before its calls");
    h->mark = 0;
    free(h);
    __sync_fetch_and_sub(&standin_handles, 1);
    return OK;
}

int cublasSetStream_v2(void *handle, void *stream) {
    struct handle *h = handle;
    DEMAND(h && h->mark == MARK && has_context(), "a stream without handle or context");
    h->stream = stream;
    h->has_stream = stream != NULL;
    return OK;
}

int cublasSetPointerMode_v2(void *handle, int mode) {
    checked(handle)->on_device = mode;
    return mode == 0 || mode == 1 ? OK : INVALID_VALUE;
}

int cublasSetMathMode(void *handle, int mode) {
    checked(handle)->math = mode;
    return OK;
}

/* A call on its way through a stream. */
struct turn {
    struct handle *handle;
    void (*run)(void *);
    void *argument;
};

static void take_turn(void *argument) {
    struct turn *turn = argument;
    turn->run(turn->argument);
    __sync_fetch_and_sub(&turn->handle->pending, 1);
    free(turn->argument);
    free(turn);
}

static int enqueue(struct handle *h, void (*run)(void *), void *argument) {
    struct turn *turn = malloc(sizeof *turn);
    *turn = (struct turn){h, run, argument};
    __sync_fetch_and_add(&h->pending, 1);
    return push_task(h->stream, take_turn, turn) ? 13 : OK;
}

/* -- elements ---------------------------------------------------------------------------------- */

typedef struct {
    double re, im;
} number;

static double of_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 0    ? ldexp(fraction, -24)
                  : exponent == 31 ? (fraction ? NAN : INFINITY)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

/* Rounds to the nearest number in half precision; what is smaller than a normal number is 0. */
static uint16_t to_half(double value) {
    int exponent;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) return 0x7e00;
    double fraction = frexp(fabs(value), &exponent);
    long rounded = lrint(ldexp(fraction, 11));
    if (rounded == 2048) rounded = 1024, exponent++;
    if (value == 0 || exponent < -13) return sign;
    if (exponent > 16) return sign | 0x7c00;
    return sign | (exponent + 14) << 10 | (rounded & 1023);
}

static number get(int type, uint64_t at, int64_t index) {
    const char *p = (const char *)at + index * (int64_t)size_of[type];
    if (type == S) return (number){*(float *)p, 0};
    if (type == D) return (number){*(double *)p, 0};
    if (type == C) return (number){((float *)p)[0], ((float *)p)[1]};
    if (type == Z) return (number){((double *)p)[0], ((double *)p)[1]};
    if (type == H) return (number){of_half(*(uint16_t *)p), 0};
    uint32_t bits = (uint32_t)*(uint16_t *)p << 16;
    float value;
    memcpy(&value, &bits, 4);
    return (number){value, 0};
}

static void put(int type, uint64_t at, int64_t index, number value) {
    char *p = (char *)at + index * (int64_t)size_of[type];
    if (type == S) *(float *)p = value.re;
    if (type == D) *(double *)p = value.re;
    if (type == C) ((float *)p)[0] = value.re, ((float *)p)[1] = value.im;
    if (type == Z) ((double *)p)[0] = value.re, ((double *)p)[1] = value.im;
    if (type == H) *(uint16_t *)p = to_half(value.re);
    if (type == B) {
        float narrow = value.re;
        uint32_t bits;
        memcpy(&bits, &narrow, 4);
        *(uint16_t *)p = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
}

static number times(number a, number b) {
    return (number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static number plus(number a, number b) { return (number){a.re + b.re, a.im + b.im}; }

/* -- calls ------------------------------------------------------------------------------------- */

/* A factor: read in the call in host mode, and by the stream in device mode. */
struct factor {
    int type;
    uint64_t at; /* 0: `value` has it */
    number value;
};

static struct factor factor(struct handle *h, int type, const void *from) {
    DEMAND(from, "no factor");
    uint64_t on_device = seen((uint64_t)from, size_of[type]);
    DEMAND(!h->on_device == !on_device, "a factor is not where the pointer mode says");
    if (on_device) return (struct factor){type, on_device, {0, 0}};
    return (struct factor){type, 0, get(type, (uint64_t)from, 0)};
}

static number value(const struct factor *f) { return f->at ? get(f->type, f->at, 0) : f->value; }

static uint64_t operand(const void *at, int64_t elements, uint64_t size) {
    if (elements <= 0) return 0;
    uint64_t found = seen((uint64_t)at, elements * size);
    DEMAND(found, "an operand of %lld bytes at %p is not the device's",
           (long long)(elements * size), at);
    return found;
}

struct matrix {
    int op, type;
    uint64_t at;
    int64_t ld, distance;
};

struct gemm {
    int64_t m, n, k, count;
    int listed;
    struct factor alpha, beta;
    struct matrix a, b, c;
};

static number element(const struct matrix *x, uint64_t at, int64_t row, int64_t column) {
    number v =
        x->op ? get(x->type, at, column + row * x->ld) : get(x->type, at, row + column * x->ld);
    if (x->op == 2) v.im = -v.im;
    return v;
}

/* Returns the start of one matrix of a batch, or 0 if it is not the device's. */
static uint64_t matrix_at(const struct gemm *g, const struct matrix *x, int64_t index,
                          int64_t last) {
    if (!g->listed) return x->at + index * x->distance * size_of[x->type];
    return last ? seen(((uint64_t *)x->at)[index], last * size_of[x->type]) : 1;
}

static int64_t last_of(int64_t rows, int64_t columns, int64_t ld) {
    return rows && columns ? (columns - 1) * ld + rows : 0;
}

static void run_gemm(void *argument) {
    struct gemm *g = argument;
    number alpha = value(&g->alpha), beta = value(&g->beta);
    int64_t last_a = g->a.op ? last_of(g->k, g->m, g->a.ld) : last_of(g->m, g->k, g->a.ld),
            last_b = g->b.op ? last_of(g->n, g->k, g->b.ld) : last_of(g->k, g->n, g->b.ld);
    for (int64_t i = 0; i < g->count; i++) {
        uint64_t a = matrix_at(g, &g->a, i, last_a), b = matrix_at(g, &g->b, i, last_b),
                 c = matrix_at(g, &g->c, i, last_of(g->m, g->n, g->c.ld));
        if (g->listed && (!a || !b || !c)) {
            fail();
            break;
        }
        for (int64_t column = 0; column < g->n; column++)
            for (int64_t row = 0; row < g->m; row++) {
                number sum = {0, 0};
                for (int64_t l = 0; l < g->k; l++)
                    sum = plus(sum, times(element(&g->a, a, row, l), element(&g->b, b, l, column)));
                sum = times(alpha, sum);
                if (beta.re != 0 || beta.im != 0)
                    sum = plus(sum, times(beta, get(g->c.type, c, row + column * g->c.ld)));
                put(g->c.type, c, row + column * g->c.ld, sum);
            }
    }
}

static int gemm(void *handle, int factors, const int sizes[3], const void *alpha, const void *beta,
                struct matrix matrices[3], int64_t count, int listed) {
    struct handle *h = checked(handle);
    struct gemm g = {sizes[0],
                     sizes[1],
                     sizes[2],
                     count,
                     listed,
                     factor(h, factors, alpha),
                     factor(h, factors, beta),
                     matrices[0],
                     matrices[1],
                     matrices[2]};
    if (g.m < 0 || g.n < 0 || g.k < 0 || count < 0) return INVALID_VALUE;
    if (!g.m || !g.n || !count) return OK;
    for (int i = 0; i < 3; i++) {
        struct matrix *x = &matrices[i];
        int64_t rows = i == 1 ? g.k : g.m, columns = i == 0 ? g.k : g.n;
        if (x->type == NONE) return NOT_SUPPORTED;
        DEMAND(x->type < H || h->math == EXACT_SUMS, "parts of a product may be rounded");
        if (x->op) rows ^= columns, columns ^= rows, rows ^= columns;
        if (x->ld < (rows > 1 ? rows : 1) || x->op < 0 || x->op > 2) return INVALID_VALUE;
        int64_t last = last_of(rows, columns, x->ld);
        x->at = listed ? operand((void *)x->at, count, 8)
                       : operand((void *)x->at, last ? (count - 1) * x->distance + last : 0,
                                 size_of[x->type]);
    }
    g.a = matrices[0], g.b = matrices[1], g.c = matrices[2];
    struct gemm *copy = malloc(sizeof *copy);
    *copy = g;
    return enqueue(h, run_gemm, copy);
}

#define M(op, type, at, ld, distance) {op, type, (uint64_t)(at), ld, distance}
#define SIZES \
    (const int[]) { m, n, k }
#define THREE(x, y, z) \
    (struct matrix[]) { x, y, z }
#define GEMM(letter, T)                                                                            \
    int cublas##letter##gemm_v2(void *h, int ta, int tb, int m, int n, int k, const T *alpha,      \
                                const T *a, int lda, const T *b, int ldb, const T *beta, T *c,     \
                                int ldc) {                                                         \
        return gemm(                                                                               \
            h, letter, SIZES, alpha, beta,                                                         \
            THREE(M(ta, letter, a, lda, 0), M(tb, letter, b, ldb, 0), M(0, letter, c, ldc, 0)), 1, \
            0);                                                                                    \
    }                                                                                              \
    int cublas##letter##gemmStridedBatched(void *h, int ta, int tb, int m, int n, int k,           \
                                           const T *alpha, const T *a, int lda, long long far_a,   \
                                           const T *b, int ldb, long long far_b, const T *beta,    \
                                           T *c, int ldc, long long far_c, int count) {            \
        return gemm(h, letter, SIZES, alpha, beta,                                                 \
                    THREE(M(ta, letter, a, lda, far_a), M(tb, letter, b, ldb, far_b),              \
                          M(0, letter, c, ldc, far_c)),                                            \
                    count, 0);                                                                     \
    }                                                                                              \
    int cublas##letter##gemmBatched(void *h, int ta, int tb, int m, int n, int k, const T *alpha,  \
                                    const T *const a[], int lda, const T *const b[], int ldb,      \
                                    const T *beta, T *const c[], int ldc, int count) {             \
        return gemm(                                                                               \
            h, letter, SIZES, alpha, beta,                                                         \
            THREE(M(ta, letter, a, lda, 0), M(tb, letter, b, ldb, 0), M(0, letter, c, ldc, 0)),    \
            count, 1);                                                                             \
    }
GEMM(S, float)
GEMM(D, double)
GEMM(C, void)
GEMM(Z, void)

/* The types of matrices that cuBLAS multiplies in single precision. */
static int mixed(int a, int b, int c, int compute, int algorithm, int of[3]) {
    int kinds[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        of[i] = kinds[i] == 0 ? S : kinds[i] == 2 ? H : kinds[i] == 14 ? B : NONE;
    return compute == 68 && algorithm == -1 && of[0] == of[1] && of[0] != NONE &&
           (of[2] == of[0] || of[2] == S);
}

int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                 int kind_a, int lda, const void *b, int kind_b, int ldb, const void *beta, void *c,
                 int kind_c, int ldc, int compute, int algorithm) {
    int of[3];
    if (!mixed(kind_a, kind_b, kind_c, compute, algorithm, of)) return NOT_SUPPORTED;
    return gemm(h, S, SIZES, alpha, beta,
                THREE(M(ta, of[0], a, lda, 0), M(tb, of[1], b, ldb, 0), M(0, of[2], c, ldc, 0)), 1,
                0);
}

int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha,
                               const void *a, int kind_a, int lda, long long far_a, const void *b,
                               int kind_b, int ldb, long long far_b, const void *beta, void *c,
                               int kind_c, int ldc, long long far_c, int count, int compute,
                               int algorithm) {
    int of[3];
    if (!mixed(kind_a, kind_b, kind_c, compute, algorithm, of)) return NOT_SUPPORTED;
    return gemm(
        h, S, SIZES, alpha, beta,
        THREE(M(ta, of[0], a, lda, far_a), M(tb, of[1], b, ldb, far_b), M(0, of[2], c, ldc, far_c)),
        count, 0);
}

int cublasGemmBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha,
                        const void *const a[], int kind_a, int lda, const void *const b[],
                        int kind_b, int ldb, const void *beta, void *const c[], int kind_c, int ldc,
                        int count, int compute, int algorithm) {
    int of[3];
    if (!mixed(kind_a, kind_b, kind_c, compute, algorithm, of)) return NOT_SUPPORTED;
    return gemm(h, S, SIZES, alpha, beta,
                THREE(M(ta, of[0], a, lda, 0), M(tb, of[1], b, ldb, 0), M(0, of[2], c, ldc, 0)),
                count, 1);
}

/* A product with a vector is one with a matrix of one column, or of one row if it has gaps. */
static int gemv(void *h, int type, int trans, int m, int n, const void *alpha, const void *a,
                int lda, const void *x, int incx, const void *beta, void *y, int incy) {
    int rows = trans ? n : m, inner = trans ? m : n;
    if (incx <= 0 || incy <= 0) return NOT_SUPPORTED;
    struct matrix column = M(1, type, x, incx, 0), out = M(0, type, y, incy, 0);
    /* y' = x' * op(A)', so that the distance of two elements of y is one of columns. */
    struct matrix left = M(trans == 0 ? 1 : 0, type, a, lda, 0);
    if (trans == 2) return NOT_SUPPORTED;
    column.op = 0; /* x' has one row, and its columns are `incx` apart */
    return gemm(h, type, (const int[]){1, rows, inner}, alpha, beta, THREE(column, left, out), 1,
                0);
}
#define GEMV(letter, T)                                                                         \
    int cublas##letter##gemv_v2(void *h, int trans, int m, int n, const T *alpha, const T *a,   \
                                int lda, const T *x, int incx, const T *beta, T *y, int incy) { \
        return gemv(h, letter, trans, m, n, alpha, a, lda, x, incx, beta, y, incy);             \
    }
GEMV(S, float)
GEMV(D, double)

/* -- vectors ----------------------------------------------------------------------------------- */

struct vectors {
    enum { AXPY, SCAL, DOT, DOTC, NORM, SUM, LARGEST } kind;
    int type, n, step_x, step_y;
    struct factor alpha;
    uint64_t x, y, result;
};

static int64_t place(int n, int step, int index) {
    return step < 0 ? (int64_t)(index - n + 1) * step : (int64_t)index * step;
}

static void run_vectors(void *argument) {
    struct vectors *v = argument;
    number sum = {0, 0}, alpha = value(&v->alpha);
    double most = -1;
    int found = 0, part = v->type == C ? S : v->type == Z ? D : v->type;
    for (int i = 0; i < v->n; i++) {
        int64_t at_x = place(v->n, v->step_x, i), at_y = place(v->n, v->step_y, i);
        number x = get(v->type, v->x, at_x);
        if (v->kind == AXPY)
            put(v->type, v->y, at_y, plus(get(v->type, v->y, at_y), times(alpha, x)));
        if (v->kind == SCAL) put(v->type, v->x, at_x, times(alpha, x));
        if (v->kind == DOTC) x.im = -x.im;
        if (v->kind == DOT || v->kind == DOTC) sum = plus(sum, times(x, get(v->type, v->y, at_y)));
        if (v->kind == NORM) sum.re += x.re * x.re + x.im * x.im;
        if (v->kind == SUM) sum.re += fabs(x.re) + fabs(x.im);
        if (v->kind == LARGEST && fabs(x.re) + fabs(x.im) > most)
            most = fabs(x.re) + fabs(x.im), found = i + 1;
    }
    if (v->kind == DOT || v->kind == DOTC) put(v->type, v->result, 0, sum);
    if (v->kind == NORM) put(part, v->result, 0, (number){sqrt(sum.re), 0});
    if (v->kind == SUM) put(part, v->result, 0, sum);
    if (v->kind == LARGEST) *(int *)v->result = found;
}

/* The length of a reduction is 0 if its distance is not positive. */
static int vectors(void *handle, struct vectors v, const void *alpha, const void *result) {
    struct handle *h = checked(handle);
    int reduces = v.kind >= NORM;
    if (v.n < 0 || (reduces && v.step_x <= 0)) v.n = 0;
    if (alpha) v.alpha = factor(h, v.type, alpha);
    v.x = operand((void *)v.x, v.n ? (int64_t)(v.n - 1) * abs(v.step_x) + 1 : 0, size_of[v.type]);
    if (v.kind == AXPY || v.kind == DOT || v.kind == DOTC)
        v.y =
            operand((void *)v.y, v.n ? (int64_t)(v.n - 1) * abs(v.step_y) + 1 : 0, size_of[v.type]);
    if (v.kind >= DOT) {
        DEMAND(h->on_device, "a result in host memory");
        uint64_t bytes = v.kind == LARGEST ? 4 : reduces ? size_of[v.type & 1] : size_of[v.type];
        v.result = operand(result, 1, bytes);
    }
    struct vectors *copy = malloc(sizeof *copy);
    *copy = v;
    return enqueue(h, run_vectors, copy);
}

#define V(kind, letter, n, x, incx, y, incy) \
    (struct vectors){kind, letter, n, incx, incy, {S, 0, {0, 0}}, (uint64_t)(x), (uint64_t)(y), 0}
#define VECTORS(letter, T, dot, dotc, nrm2, asum, amax)                                     \
    int cublas##letter##axpy_v2(void *h, int n, const T *alpha, const T *x, int incx, T *y, \
                                int incy) {                                                 \
        return vectors(h, V(AXPY, letter, n, x, incx, y, incy), alpha, NULL);               \
    }                                                                                       \
    int cublas##letter##scal_v2(void *h, int n, const T *alpha, T *x, int incx) {           \
        return vectors(h, V(SCAL, letter, n, x, incx, NULL, 0), alpha, NULL);               \
    }                                                                                       \
    int dot(void *h, int n, const T *x, int incx, const T *y, int incy, T *result) {        \
        return vectors(h, V(DOT, letter, n, x, incx, y, incy), NULL, result);               \
    }                                                                                       \
    int dotc(void *h, int n, const T *x, int incx, const T *y, int incy, T *result) {       \
        return vectors(h, V(DOTC, letter, n, x, incx, y, incy), NULL, result);              \
    }                                                                                       \
    int nrm2(void *h, int n, const T *x, int incx, void *result) {                          \
        return vectors(h, V(NORM, letter, n, x, incx, NULL, 0), NULL, result);              \
    }                                                                                       \
    int asum(void *h, int n, const T *x, int incx, void *result) {                          \
        return vectors(h, V(SUM, letter, n, x, incx, NULL, 0), NULL, result);               \
    }                                                                                       \
    int amax(void *h, int n, const T *x, int incx, int *result) {                           \
        return vectors(h, V(LARGEST, letter, n, x, incx, NULL, 0), NULL, result);           \
    }
VECTORS(S, float, cublasSdot_v2, standin_sdotc, cublasSnrm2_v2, cublasSasum_v2, cublasIsamax_v2)
VECTORS(D, double, cublasDdot_v2, standin_ddotc, cublasDnrm2_v2, cublasDasum_v2, cublasIdamax_v2)
VECTORS(C, void, cublasCdotu_v2, cublasCdotc_v2, cublasScnrm2_v2, cublasScasum_v2, cublasIcamax_v2)
VECTORS(Z, void, cublasZdotu_v2, cublasZdotc_v2, cublasDznrm2_v2, cublasDzasum_v2, cublasIzamax_v2)
