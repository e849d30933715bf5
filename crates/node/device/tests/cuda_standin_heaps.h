/* The stand-in's kernels for symmetric heaps: tests/cuda/heap_kernels.h, compiled as C with
 * ggas.h itself. To ggas.h this is a compiler of OpenCL C 1.2, so this file defines what OpenCL
 * C has and C lacks. Each CUDA thread of a launch is a POSIX thread. */
#include <sched.h>

#define __OPENCL_VERSION__ 120
#define __global
#define __local
#define CLK_GLOBAL_MEM_FENCE 1
#define CLK_LOCAL_MEM_FENCE 2
#define GGAS_YIELD() ((void)sched_yield())
typedef unsigned long ulong;
typedef unsigned int uint;
typedef unsigned char uchar;
typedef ulong ulong16 __attribute__((vector_size(128)));
typedef uchar uchar16 __attribute__((vector_size(16)));

struct item {
    const struct launch *launch;
    unsigned group[3], local[3];
    pthread_barrier_t *barrier;
    void *heap;
};
static __thread const struct item *item;

static inline void barrier(int fences) { (void)fences, pthread_barrier_wait(item->barrier); }
static inline ulong min(ulong a, ulong b) { return a < b ? a : b; }
static inline ulong get_local_id(uint axis) { return item->local[axis]; }
static inline ulong get_local_size(uint axis) { return item->launch->block[axis]; }
static inline ulong get_num_groups(uint axis) { return item->launch->grid[axis]; }

#include "../../../pool/ggas/include/ggas.h"
#define KERNEL static
#define HEAP_GROUP item->group[0]
#define HEAP_ITEM item->local[0]
#include "../../../../tests/cuda/heap_kernels.h"

/* The kernels of `penstock bench comm`. As C each runs on one thread, with a clock in
 * nanoseconds. */
#define __kernel static
#define TICKS() now()
#include "../../../tools/bench/src/device/kernels.cl"

static void *run_item(void *argument) {
    item = argument;
    ptr a[9];
    memcpy(a, item->launch->params, sizeof a);
    if (item->launch->kernel == BENCH_PING_PONG)
        ping_pong(item->heap, a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    if (item->launch->kernel == BENCH_BANDWIDTH)
        bandwidth(item->heap, a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    if (item->launch->kernel == BENCH_MEET)
        meet(item->heap, a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    if (item->launch->kernel == PING_PONG) heap_ping_pong(item->heap, a[1], a[2]);
    if (item->launch->kernel == BARRIERS) heap_barriers(item->heap, a[1], a[2]);
    if (item->launch->kernel == WAIT_IN_VAIN) heap_wait(item->heap);
    return NULL;
}

/* Returns a heap if the GPU sees all of it that kernels store into: the head and the mapped
 * parts. */
static void *seen_heap(ptr at) {
    ggas_heap_t *heap = (ggas_heap_t *)seen(at, sizeof *heap);
    if (!heap || heap->magic != GGAS_MAGIC) return NULL;
    for (unsigned pe = 0; pe < heap->count; pe++)
        if (heap->paths[pe] == GGAS_PATH_MAPPED &&
            !seen(at + sizeof *heap + pe * heap->stride, heap->stride))
            return NULL;
    return heap;
}

#define ITEMS_MAX 512

/* Runs all threads of a launch at the same time. */
static void run_heap_kernel(const struct launch *l) {
    ptr at;
    memcpy(&at, l->params, sizeof at);
    void *heap = seen_heap(at);
    unsigned threads = l->block[0] * l->block[1] * l->block[2], groups = l->grid[0],
             all = threads * groups;
    if (l->kernel >= BENCH_PING_PONG) threads = all = 1;
    if (!heap || l->block[1] * l->block[2] * l->grid[1] * l->grid[2] != 1 || all > ITEMS_MAX) {
        sticky = heap ? LAUNCH_FAILED : ILLEGAL_ADDRESS;
        return;
    }
    struct item *own = calloc(all, sizeof *own);
    pthread_barrier_t barriers[ITEMS_MAX];
    pthread_t ids[ITEMS_MAX];
    for (unsigned i = 0; i < groups; i++) pthread_barrier_init(&barriers[i], NULL, threads);
    for (unsigned i = 0; i < all; i++) {
        own[i] = (struct item){
            l, {i / threads, 0, 0}, {i % threads, 0, 0}, &barriers[i / threads], heap};
        if (pthread_create(&ids[i], NULL, run_item, &own[i])) abort();
    }
    for (unsigned i = 0; i < all; i++) pthread_join(ids[i], NULL);
    for (unsigned i = 0; i < groups; i++) pthread_barrier_destroy(&barriers[i]);
    free(own);
}
