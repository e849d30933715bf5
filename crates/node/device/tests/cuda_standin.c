/* A stand-in for CUDA's driver, for tests on machines without one. Streams are threads, device
 * memory is host memory, and kernels are functions of this file, found by the names in a
 * module's text. With -DNEWER it also has the functions of CUDA 12.4.
 *
 * It is stricter than the driver: a call without a current context, a range outside an
 * allocation and a read into memory that is not pinned are errors, because they would be wrong
 * or slow on the driver. A GPU sees only registered host memory, at addresses of its own. The host
 * memory of a copy must still be pinned when the copy runs. If CUDA_STANDIN_ONLY_IN_PLACE is set in
 * the environment, the host memory of a copy of more than 64 KiB must be one that is pinned in
 * place. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef uint64_t ptr;

enum {
    OK = 0,
    INVALID_VALUE = 1,
    NO_MEMORY = 2,
    INVALID_PTX = 218,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    ALREADY_REGISTERED = 712,
    TOO_LARGE = 720
};

/* Memory that each device really has; it reports GLOBAL_BYTES. */
#ifndef MEMORY_BYTES
#define MEMORY_BYTES (64ull << 20)
#endif
#define GLOBAL_BYTES (1ull << 30)
#define SHARED_MAX (100 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread int current;
static int sticky; /* error that ended the context */

#include "cuda_standin_memory.h"

/* -- streams and events ------------------------------------------------------------------------ */

struct event {
    uint64_t recorded, reached, at_ns;
    int timed;
};

struct box {
    uint64_t from, to, from_pitch, to_pitch, from_height, to_height, width, height, depth;
};

struct launch {
    int kernel;
    unsigned grid[3], block[3], shared;
    unsigned char params[4096];
};

struct op {
    enum { BOX, SET, RECORD, WAIT, LAUNCH, TASK } kind;
    struct box box;
    void *owned;        /* bytes that the call copied */
    const void *pinned; /* host memory of a copy */
    uint64_t pinned_bytes;
    uint64_t to, bytes;
    unsigned value, width;
    struct event *event;
    uint64_t turn;
    struct launch launch;
    void (*task)(void *); /* of the stand-in for cuBLAS */
    void *argument;
    struct op *next;
};

struct stream {
    struct op *first, **last;
    int busy, closed;
};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void run_kernel(const struct launch *launch);

static void copy_box(const struct box *b) {
    for (uint64_t z = 0; z < b->depth; z++)
        for (uint64_t y = 0; y < b->height; y++)
            memmove((char *)b->to + (z * b->to_height + y) * b->to_pitch,
                    (char *)b->from + (z * b->from_height + y) * b->from_pitch, b->width);
}

static void run(struct op *op) {
    if (op->kind == RECORD) {
        pthread_mutex_lock(&lock);
        op->event->reached = op->turn;
        op->event->at_ns = now();
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    } else if (op->kind == WAIT) {
        pthread_mutex_lock(&lock);
        while (op->event->reached < op->turn) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
    } else if (sticky) {
        return; /* nothing runs in a context that has ended */
    } else if (op->kind == BOX) {
        if (op->pinned && !is_pinned(op->pinned, op->pinned_bytes))
            sticky = ILLEGAL_ADDRESS;
        else
            copy_box(&op->box);
    } else if (op->kind == SET) {
        for (uint64_t i = 0; i < op->bytes; i += op->width)
            memcpy((char *)op->to + i, &op->value, op->width);
    } else if (op->kind == TASK) {
        op->task(op->argument);
    } else {
        run_kernel(&op->launch);
    }
}

static void *work(void *argument) {
    struct stream *s = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->closed) pthread_cond_wait(&changed, &lock);
        if (!s->first) break;
        struct op *op = s->first;
        s->first = op->next;
        if (!s->first) s->last = &s->first;
        s->busy = 1;
        pthread_mutex_unlock(&lock);
        run(op);
        free(op->owned);
        free(op);
        pthread_mutex_lock(&lock);
        s->busy = 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void push(struct stream *s, struct op op) {
    struct op *copy = malloc(sizeof *copy);
    *copy = op;
    copy->next = NULL;
    pthread_mutex_lock(&lock);
    *s->last = copy;
    s->last = &copy->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static struct stream *streams[256];
static int stream_count;

CUresult cuStreamCreate(struct stream **out, unsigned flags) {
    (void)flags;
    NEEDS_CONTEXT;
    struct stream *s = calloc(1, sizeof *s);
    s->last = &s->first;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, s)) return NO_MEMORY;
    pthread_detach(thread);
    pthread_mutex_lock(&lock);
    if (stream_count < 256) streams[stream_count++] = s;
    pthread_mutex_unlock(&lock);
    *out = s;
    return OK;
}

CUresult cuStreamDestroy_v2(struct stream *s) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    s->closed = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return OK;
}

static void drain(struct stream *s) {
    pthread_mutex_lock(&lock);
    while (s->first || s->busy) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

CUresult cuStreamSynchronize(struct stream *s) {
    NEEDS_CONTEXT;
    drain(s);
    return sticky;
}

CUresult cuCtxSynchronize(void) {
    NEEDS_CONTEXT;
    for (int i = 0; i < stream_count; i++) drain(streams[i]);
    return sticky;
}

CUresult cuEventCreate(struct event **out, unsigned flags) {
    NEEDS_CONTEXT;
    *out = calloc(1, sizeof **out);
    (*out)->timed = !(flags & 2);
    return OK;
}

CUresult cuEventRecord(struct event *e, struct stream *s) {
    NEEDS_CONTEXT;
    struct op op = {.kind = RECORD, .event = e};
    pthread_mutex_lock(&lock);
    op.turn = ++e->recorded;
    pthread_mutex_unlock(&lock);
    push(s, op);
    return OK;
}

CUresult cuEventQuery(struct event *e) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    int ready = e->reached >= e->recorded;
    pthread_mutex_unlock(&lock);
    return sticky ? sticky : ready ? OK : NOT_READY;
}

CUresult cuEventSynchronize(struct event *e) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    while (e->reached < e->recorded) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return sticky;
}

CUresult cuEventElapsedTime(float *ms, struct event *a, struct event *b) {
    NEEDS_CONTEXT;
    if (!a->timed || !b->timed) return INVALID_VALUE;
    *ms = (float)((double)(int64_t)(b->at_ns - a->at_ns) / 1e6);
    return OK;
}

CUresult cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags) {
    (void)flags;
    NEEDS_CONTEXT;
    struct op op = {.kind = WAIT, .event = e};
    pthread_mutex_lock(&lock);
    op.turn = e->recorded;
    pthread_mutex_unlock(&lock);
    push(s, op);
    return OK;
}

#include "cuda_standin_library.h"

/* -- copies ------------------------------------------------------------------------------------ */

static CUresult copy(struct stream *s, uint64_t from, uint64_t to, uint64_t bytes, void *owned,
                     const void *pinned) {
    struct op op = {.kind = BOX, .owned = owned, .pinned = pinned, .pinned_bytes = bytes};
    op.box = (struct box){from, to, bytes, bytes, 1, 1, bytes, 1, 1};
    push(s, op);
    return OK;
}

CUresult cuMemcpyHtoDAsync_v2(ptr to, const void *from, size_t bytes, struct stream *s) {
    NEEDS_CONTEXT;
    if (!(to = seen(to, bytes))) return INVALID_VALUE;
    if (is_refused(from, bytes)) return INVALID_VALUE;
    if (is_pinned(from, bytes)) return copy(s, (uint64_t)from, to, bytes, NULL, from);
    if (bytes > 64 << 10) return INVALID_VALUE; /* the driver would wait here */
    void *owned = malloc(bytes);
    memcpy(owned, from, bytes);
    return copy(s, (uint64_t)owned, to, bytes, owned, NULL);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, ptr from, size_t bytes, struct stream *s) {
    NEEDS_CONTEXT;
    if (!(from = seen(from, bytes)) || !is_pinned(to, bytes) || is_refused(to, bytes))
        return INVALID_VALUE;
    return copy(s, from, (uint64_t)to, bytes, NULL, to);
}

CUresult cuMemcpyDtoDAsync_v2(ptr to, ptr from, size_t bytes, struct stream *s) {
    NEEDS_CONTEXT;
    if (!(from = seen(from, bytes)) || !(to = seen(to, bytes))) return INVALID_VALUE;
    return copy(s, from, to, bytes, NULL, NULL);
}

struct place {
    size_t x, y, z, lod;
    unsigned type;
    const void *host;
    ptr device;
    void *array, *reserved;
    size_t pitch, height;
};
struct copy3d {
    struct place from, to;
    size_t width, height, depth;
};

static uint64_t last_byte(uint64_t pitch, uint64_t height, const struct copy3d *c) {
    return (c->depth - 1) * height * pitch + (c->height - 1) * pitch + c->width;
}

CUresult cuMemcpy3DAsync_v2(const struct copy3d *c, struct stream *s) {
    NEEDS_CONTEXT;
    const struct place *f = &c->from, *t = &c->to;
    if (f->x | f->y | f->z | t->x | t->y | t->z) return INVALID_VALUE;
    if (c->width > f->pitch || c->width > t->pitch || c->height > f->height ||
        c->height > t->height)
        return INVALID_VALUE;
    struct op op = {.kind = BOX};
    uint64_t from_bytes = last_byte(f->pitch, f->height, c),
             to_bytes = last_byte(t->pitch, t->height, c);
    uint64_t from = f->type == 1 ? (uint64_t)f->host : f->device,
             to = t->type == 1 ? (uint64_t)t->host : t->device;
    if (f->type == 2 && !(from = seen(from, from_bytes))) return INVALID_VALUE;
    if (t->type == 2 && !(to = seen(to, to_bytes))) return INVALID_VALUE;
    if (t->type == 1 && (!is_pinned(t->host, to_bytes) || is_refused(t->host, to_bytes)))
        return INVALID_VALUE;
    if (f->type == 1 && is_refused(f->host, from_bytes)) return INVALID_VALUE;
    if (t->type == 1) op.pinned = t->host, op.pinned_bytes = to_bytes;
    if (f->type == 1 && !is_pinned(f->host, from_bytes)) {
        if (from_bytes > 64 << 10) return INVALID_VALUE;
        op.owned = malloc(from_bytes);
        memcpy(op.owned, f->host, from_bytes);
        from = (uint64_t)op.owned;
    } else if (f->type == 1) {
        op.pinned = f->host, op.pinned_bytes = from_bytes;
    }
    op.box = (struct box){from,      to,       f->pitch,  t->pitch, f->height,
                          t->height, c->width, c->height, c->depth};
    push(s, op);
    return OK;
}

static CUresult set(ptr to, unsigned value, unsigned width, size_t count, struct stream *s) {
    NEEDS_CONTEXT;
    if (to % width || !(to = seen(to, count * width))) return INVALID_VALUE;
    push(s, (struct op){
                .kind = SET, .to = to, .bytes = count * width, .value = value, .width = width});
    return OK;
}
CUresult cuMemsetD8Async(ptr to, unsigned char v, size_t n, struct stream *s) {
    return set(to, v, 1, n, s);
}
CUresult cuMemsetD16Async(ptr to, unsigned short v, size_t n, struct stream *s) {
    return set(to, v, 2, n, s);
}
CUresult cuMemsetD32Async(ptr to, unsigned v, size_t n, struct stream *s) {
    return set(to, v, 4, n, s);
}

/* -- modules and kernels ----------------------------------------------------------------------- */

enum {
    ADD,
    SLEEP,
    TRAP,
    SHAPE,
    EMPTY,
    PUT,
    PING_PONG,
    BARRIERS,
    WAIT_IN_VAIN,
    BENCH_PING_PONG,
    BENCH_BANDWIDTH,
    BENCH_MEET,
    SHAPED_LAST
};
struct parameter {
    size_t offset, size;
};
static const struct {
    const char *name;
    int count;
    struct parameter params[9];
} kernels[] = {
    [ADD] = {"add", 4, {{0, 8}, {8, 8}, {16, 8}, {24, 4}}}, /* c[i] = a[i] + b[i], n words */
    [SLEEP] = {"sleep_ns", 1, {{0, 8}}},
    [TRAP] = {"trap", 0, {{0, 0}}},
    [SHAPE] = {"shape", 1, {{0, 8}}}, /* grid, block, dynamic shared memory */
    [EMPTY] = {"empty", 0, {{0, 0}}},
    [PUT] = {"put", 2, {{0, 8}, {8, 8}}}, /* stores a word at an address */
    [PING_PONG] = {"heap_ping_pong", 3, {{0, 8}, {8, 8}, {16, 8}}}, /* tests/cuda/heap_kernels.h */
    [BARRIERS] = {"heap_barriers", 3, {{0, 8}, {8, 8}, {16, 8}}},
    [WAIT_IN_VAIN] = {"heap_wait", 1, {{0, 8}}},
#define NINE \
    9, { {0, 8}, {8, 8}, {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8}, {56, 8}, {64, 8} }
    [BENCH_PING_PONG] = {"ping_pong", NINE}, /* crates/tools/bench/src/device/kernels.cl */
    [BENCH_BANDWIDTH] = {"bandwidth", NINE},
    [BENCH_MEET] = {"meet", NINE},
};

struct function {
    int kernel;
    int shared_max;
};
struct module {
    struct function functions[SHAPED_LAST];
    int has[SHAPED_LAST];
    ptr table;
};

#include "cuda_standin_heaps.h"

static void run_kernel(const struct launch *l) {
    ptr a[4];
    memcpy(a, l->params, sizeof a);
    if (l->kernel == ADD) {
        unsigned n = (unsigned)a[3];
        if (!seen(a[0], n * 4ull) || !seen(a[1], n * 4ull) || !seen(a[2], n * 4ull)) {
            sticky = ILLEGAL_ADDRESS;
            return;
        }
        for (unsigned i = 0; i < n; i++)
            ((unsigned *)a[2])[i] = ((unsigned *)a[0])[i] + ((unsigned *)a[1])[i];
    } else if (l->kernel == SLEEP) {
        struct timespec t = {a[0] / 1000000000, a[0] % 1000000000};
        nanosleep(&t, NULL);
    } else if (l->kernel == TRAP) {
        sticky = LAUNCH_FAILED;
    } else if (l->kernel == SHAPE) {
        unsigned out[7] = {l->grid[0],  l->grid[1],  l->grid[2], l->block[0],
                           l->block[1], l->block[2], l->shared};
        memcpy((void *)a[0], out, sizeof out);
    } else if (l->kernel == PUT) {
        if (!(a[0] = seen(a[0], 8)))
            sticky = ILLEGAL_ADDRESS;
        else
            __atomic_store_n((ptr *)a[0], a[1], __ATOMIC_RELEASE);
    } else if (l->kernel >= PING_PONG) {
        run_heap_kernel(l);
    }
}

CUresult cuModuleLoadDataEx(struct module **out, const void *image, unsigned count,
                            unsigned *options, void **values) {
    NEEDS_CONTEXT;
    const char *text = image;
    if (strstr(text, "broken")) {
        for (unsigned i = 0; i < count; i++)
            if (options[i] == 5)
                strcpy(values[i], "ptxas application ptx input, line 3; error : broken");
        return INVALID_PTX;
    }
    struct module *m = calloc(1, sizeof *m);
    for (int k = 0; k < SHAPED_LAST; k++) {
        char entry[64];
        snprintf(entry, sizeof entry, ".entry %s(", kernels[k].name);
        m->has[k] = strstr(text, entry) != NULL;
        m->functions[k] = (struct function){k, 48 << 10};
    }
    if (strstr(text, "table[") && cuMemAlloc_v2(&m->table, 64)) return free(m), NO_MEMORY;
    *out = m;
    return OK;
}

CUresult cuModuleUnload(struct module *m) {
    NEEDS_CONTEXT;
    if (m->table) cuMemFree_v2(m->table);
    free(m);
    return OK;
}

CUresult cuModuleGetFunction(struct function **out, struct module *m, const char *name) {
    NEEDS_CONTEXT;
    for (int k = 0; k < SHAPED_LAST; k++)
        if (m->has[k] && !strcmp(name, kernels[k].name)) return *out = &m->functions[k], OK;
    return NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(ptr *out, size_t *bytes, struct module *m, const char *name) {
    NEEDS_CONTEXT;
    if (!m->table || strcmp(name, "table")) return NOT_FOUND;
    *out = m->table;
    *bytes = 64;
    return OK;
}

CUresult cuFuncGetAttribute(int *out, unsigned attribute, struct function *f) {
    static const int values[] = {1024, 16, 0, 8, 20, 75, 75, 0};
    NEEDS_CONTEXT;
    if (attribute > 8) return INVALID_VALUE;
    *out = attribute == 8 ? f->shared_max : values[attribute];
    return OK;
}

CUresult cuFuncSetAttribute(struct function *f, unsigned attribute, int value) {
    NEEDS_CONTEXT;
    if (attribute != 8 || value > SHARED_MAX) return INVALID_VALUE;
    f->shared_max = value;
    return OK;
}

CUresult cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, struct stream *s, void **params,
                        void **extra) {
    NEEDS_CONTEXT;
    int count = kernels[f->kernel].count;
    size_t needed = count ? kernels[f->kernel].params[count - 1].offset +
                                kernels[f->kernel].params[count - 1].size
                          : 0;
    if (params || bx * by * bz > 1024 || (int)shared > f->shared_max || (needed && !extra))
        return INVALID_VALUE;
    struct op op = {.kind = LAUNCH, .launch = {f->kernel, {gx, gy, gz}, {bx, by, bz}, shared, {0}}};
    if (extra) {
        if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return INVALID_VALUE;
        size_t bytes = *(size_t *)extra[3];
        if (bytes < needed || bytes > sizeof op.launch.params) return INVALID_VALUE;
        memcpy(op.launch.params, extra[1], bytes);
    }
    push(s, op);
    return OK;
}

/* Number of multiprocessors, and the most threads and blocks of each. */
enum { UNITS = 4, THREADS_PER_UNIT = 2048, BLOCKS_PER_UNIT = 8 };

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, struct function *f, int threads,
                                                     size_t shared) {
    NEEDS_CONTEXT;
    if (threads <= 0) return INVALID_VALUE;
    int fit = THREADS_PER_UNIT / threads,
        room = shared ? (int)(SHARED_MAX / shared) : BLOCKS_PER_UNIT;
    *out = threads > 1024 || (int)shared > f->shared_max ? 0 : fit < room ? fit : room;
    if (*out > BLOCKS_PER_UNIT) *out = BLOCKS_PER_UNIT;
    return OK;
}

int standin_whole; /* number of cooperative launches */

struct attribute {
    unsigned id;
    char pad[4];
    unsigned value[16];
};
struct config {
    unsigned grid[3], block[3], shared;
    struct stream *stream;
    struct attribute *attributes;
    unsigned count;
};

CUresult cuLaunchKernelEx(const struct config *c, struct function *f, void **params, void **extra) {
    NEEDS_CONTEXT;
    int fit;
    for (unsigned i = 0; i < c->count; i++)
        if (c->attributes[i].id == 2 && c->attributes[i].value[0]) {
            CUresult asked = cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &fit, f, c->block[0] * c->block[1] * c->block[2], c->shared);
            if (asked) return asked;
            if (c->grid[0] * c->grid[1] * c->grid[2] > (unsigned)fit * UNITS) return TOO_LARGE;
            __sync_fetch_and_add(&standin_whole, 1);
        }
    return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                          c->block[2], c->shared, c->stream, params, extra);
}

#ifdef NEWER
CUresult cuFuncGetParamInfo(struct function *f, size_t index, size_t *offset, size_t *size) {
    NEEDS_CONTEXT;
    if (index >= (size_t)kernels[f->kernel].count) return INVALID_VALUE;
    *offset = kernels[f->kernel].params[index].offset;
    *size = kernels[f->kernel].params[index].size;
    return OK;
}
CUresult cuFuncGetName(const char **out, struct function *f) {
    return *out = kernels[f->kernel].name, OK;
}
CUresult cuModuleGetFunctionCount(unsigned *out, struct module *m) {
    *out = 0;
    for (int k = 0; k < SHAPED_LAST; k++) *out += m->has[k];
    return OK;
}
CUresult cuModuleEnumerateFunctions(struct function **out, unsigned count, struct module *m) {
    for (int k = 0; k < SHAPED_LAST; k++)
        if (m->has[k] && count) *out++ = &m->functions[k], count--;
    return OK;
}
#endif

#include "cuda_standin_devices.h"
