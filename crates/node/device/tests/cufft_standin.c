/* A stand-in for NVIDIA's cuFFT on the stand-in for CUDA's driver (cuda_standin.c), which must be
 * loaded as libcuda.so.1. It has complex transforms of one dimension in single precision.
 *
 * It is stricter than cuFFT: a call without a current context or a stream, a transform whose
 * operands or work area do not lie in allocations, also when it runs, a work area that cuFFT would
 * allocate itself, and the end of a plan before its transforms end the process with a message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_PLAN = 1, ALLOC_FAILED = 2, INVALID_SIZE = 8, NOT_SUPPORTED = 16 };
enum { C2C = 0x29, PLANS = 4096 };

/* Functions of the stand-in for the driver. */
static int (*has_context)(void);
static uint64_t (*seen)(uint64_t at, uint64_t bytes);
static int (*push_task)(void *stream, void (*task)(void *), void *argument);

#define DEMAND(condition, ...)                                                             \
    do {                                                                                   \
        if (!(condition))                                                                  \
            fprintf(stderr, "cuFFT stand-in: " __VA_ARGS__), fputc('\n', stderr), abort(); \
    } while (0)

struct plan {
    int lives, own_area, pending;
    void *stream;
    uint64_t area, needs;
    int64_t n, batch, stride[2], distance[2];
};
static struct plan plans[PLANS];
static int made;
int standin_plans;     /* plans that live */
int standin_plans_all; /* plans that were ever made */

static struct plan *checked(int number) {
    DEMAND(number > 0 && number <= made && plans[number - 1].lives, "no plan");
    DEMAND(has_context(), "no current context");
    return &plans[number - 1];
}

int cufftCreate(int *out) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    DEMAND(driver, "the stand-in for the driver is not loaded");
    has_context = (int (*)(void))dlsym(driver, "standin_has_context");
    seen = (uint64_t (*)(uint64_t, uint64_t))dlsym(driver, "standin_seen");
    push_task = (int (*)(void *, void (*)(void *), void *))dlsym(driver, "standin_push_task");
    DEMAND(has_context && seen && push_task, "the driver is not the stand-in");
    DEMAND(has_context(), "a plan without a current context");
    int number = __sync_add_and_fetch(&made, 1);
    DEMAND(number <= PLANS, "too many plans");
    plans[number - 1] = (struct plan){.lives = 1, .own_area = 1};
    *out = number;
    __sync_fetch_and_add(&standin_plans, 1);
    __sync_fetch_and_add(&standin_plans_all, 1);
    return OK;
}

int cufftDestroy(int number) {
    struct plan *p = checked(number);
    DEMAND(!__sync_fetch_and_add(&p->pending, 0), "a plan ends before its transforms");
    p->lives = 0;
    __sync_fetch_and_sub(&standin_plans, 1);
    return OK;
}

int cufftSetAutoAllocation(int number, int on) {
    checked(number)->own_area = on;
    return OK;
}

int cufftSetStream(int number, void *stream) {
    checked(number)->stream = stream;
    return OK;
}

int cufftSetWorkArea(int number, void *area) {
    struct plan *p = checked(number);
    DEMAND(p->needs && seen((uint64_t)area, p->needs), "a work area outside of allocations");
    p->area = (uint64_t)area;
    return OK;
}

int cufftMakePlanMany64(int number, int rank, long long *n, long long *from, long long stride_in,
                        long long far_in, long long *to, long long stride_out, long long far_out,
                        int type, long long batch, size_t *area) {
    struct plan *p = checked(number);
    DEMAND(!p->own_area, "cuFFT would allocate the work area");
    (void)from, (void)to;
    if (rank != 1 || type != C2C) return NOT_SUPPORTED;
    p->n = n[0], p->batch = batch;
    p->stride[0] = stride_in, p->stride[1] = stride_out;
    p->distance[0] = far_in, p->distance[1] = far_out;
    *area = p->needs = 8 * n[0] * batch;
    return OK;
}

struct transform {
    struct plan *plan;
    int64_t n, batch, stride[2], distance[2];
    uint64_t area, in, out;
    double sign;
};

static void run_transform(void *argument) {
    struct transform *t = argument;
    DEMAND(seen(t->area, 8 * t->n * t->batch), "a transform outlives its work area");
    float *area = (float *)seen(t->area, 8 * t->n * t->batch);
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t k = 0; k < t->n; k++) {
            double re = 0, im = 0;
            for (int64_t i = 0; i < t->n; i++) {
                const float *x = (float *)t->in + 2 * (b * t->distance[0] + i * t->stride[0]);
                double turn = t->sign * 2 * M_PI * (double)(i * k % t->n) / (double)t->n;
                re += x[0] * cos(turn) - x[1] * sin(turn);
                im += x[0] * sin(turn) + x[1] * cos(turn);
            }
            area[2 * (b * t->n + k)] = re, area[2 * (b * t->n + k) + 1] = im;
        }
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t k = 0; k < t->n; k++)
            memcpy((float *)t->out + 2 * (b * t->distance[1] + k * t->stride[1]),
                   area + 2 * (b * t->n + k), 8);
    __sync_fetch_and_sub(&t->plan->pending, 1);
    free(t);
}

static uint64_t operand(const struct plan *p, int side, void *at) {
    int64_t last = (p->n - 1) * p->stride[side] + (p->batch - 1) * p->distance[side];
    uint64_t found = seen((uint64_t)at, 8 * (last + 1));
    DEMAND(found, "an operand is not the device's");
    return found;
}

int cufftExecC2C(int number, void *in, void *out, int direction) {
    struct plan *p = checked(number);
    DEMAND(p->stream, "no stream");
    DEMAND(p->area && seen(p->area, p->needs), "no work area");
    struct transform *t = malloc(sizeof *t);
    *t = (struct transform){p,
                            p->n,
                            p->batch,
                            {p->stride[0], p->stride[1]},
                            {p->distance[0], p->distance[1]},
                            p->area,
                            operand(p, 0, in),
                            operand(p, 1, out),
                            direction};
    __sync_fetch_and_add(&p->pending, 1);
    return push_task(p->stream, run_transform, t) ? INVALID_PLAN : OK;
}

#define ABSENT(name)                                             \
    int name(int number, void *in, void *out) {                  \
        return (void)number, (void)in, (void)out, NOT_SUPPORTED; \
    }
ABSENT(cufftExecR2C)
ABSENT(cufftExecD2Z)
ABSENT(cufftExecC2R)
ABSENT(cufftExecZ2D)
int cufftExecZ2Z(int number, void *in, void *out, int direction) {
    return (void)number, (void)in, (void)out, (void)direction, NOT_SUPPORTED;
}
