#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;
typedef uint64_t memory;
struct copy2d {
    size_t src_x, src_y; unsigned src_kind; const void *src_host; memory src_device; handle src_array; size_t src_pitch;
    size_t dst_x, dst_y; unsigned dst_kind; void *dst_host; memory dst_device; handle dst_array; size_t dst_pitch;
    size_t width, height;
};
#define LEGACY ((handle)1)
#define PER_THREAD ((handle)2)
#define NOT_READY 600

#define FUNCTIONS(F) \
    F(cuInit, (unsigned)) F(cuDeviceGetCount, (int *)) F(cuDeviceGet, (int *, int)) F(cuDevicePrimaryCtxRetain, (handle *, int)) \
    F(cuCtxCreate_v2, (handle *, unsigned, int)) F(cuCtxSetCurrent, (handle)) F(cuCtxSynchronize, (void)) \
    F(cuModuleLoadData, (handle *, const void *)) F(cuModuleGetFunction, (handle *, handle, const char *)) \
    F(cuMemHostAlloc, (void **, size_t, unsigned)) F(cuMemHostRegister_v2, (void *, size_t, unsigned)) F(cuMemHostUnregister, (void *)) \
    F(cuStreamCreate, (handle *, unsigned)) F(cuStreamDestroy_v2, (handle)) F(cuStreamSynchronize, (handle)) F(cuStreamQuery, (handle)) \
    F(cuStreamWaitEvent, (handle, handle, unsigned)) F(cuEventCreate, (handle *, unsigned)) F(cuEventDestroy_v2, (handle)) \
    F(cuEventRecord, (handle, handle)) F(cuEventSynchronize, (handle)) F(cuEventQuery, (handle)) \
    F(cuMemAlloc_v2, (memory *, size_t)) F(cuMemFree_v2, (memory)) F(cuMemAllocAsync, (memory *, size_t, handle)) \
    F(cuMemFreeAsync, (memory, handle)) F(cuMemcpyHtoD_v2, (memory, const void *, size_t)) F(cuMemcpyDtoH_v2, (void *, memory, size_t)) \
    F(cuMemcpyDtoD_v2, (memory, memory, size_t)) F(cuMemcpyHtoDAsync_v2, (memory, const void *, size_t, handle)) \
    F(cuMemcpyDtoHAsync_v2, (void *, memory, size_t, handle)) F(cuMemcpyDtoDAsync_v2, (memory, memory, size_t, handle)) \
    F(cuMemcpy2DUnaligned_v2, (const struct copy2d *)) F(cuMemcpy2DAsync_v2, (const struct copy2d *, handle)) \
    F(cuMemcpyPeer, (memory, handle, memory, handle, size_t)) F(cuMemcpyPeerAsync, (memory, handle, memory, handle, size_t, handle)) \
    F(cuMemsetD8_v2, (memory, unsigned char, size_t)) F(cuMemsetD16_v2, (memory, unsigned short, size_t)) \
    F(cuMemsetD32_v2, (memory, unsigned, size_t)) F(cuMemsetD2D32_v2, (memory, size_t, unsigned, size_t, size_t)) \
    F(cuMemsetD8Async, (memory, unsigned char, size_t, handle)) F(cuMemsetD16Async, (memory, unsigned short, size_t, handle)) \
    F(cuMemsetD32Async, (memory, unsigned, size_t, handle)) \
    F(cuMemsetD2D32Async, (memory, size_t, unsigned, size_t, size_t, handle)) \
    F(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **)) \
    F(cuLaunchHostFunc, (handle, void (*)(void *), void *)) F(cuStreamBeginCapture_v2, (handle, unsigned)) \
    F(cuStreamEndCapture, (handle, handle *)) F(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long)) \
    F(cuGraphLaunch, (handle, handle))
#define DECLARE(name, types) static int (*name) types;
FUNCTIONS(DECLARE)
#define LOAD(name, types) \
    if ((name = (int(*) types)dlsym(library, #name)) == NULL) { printf("no %s\n", #name); _exit(2); }

struct look { unsigned at, word; };
/* What a host function does when its turn in a stream has come. `looks` has one table per turn. */
enum kind { STORE, LOOK, MOVE, REST };
struct job {
    enum kind kind;
    unsigned delay, seed;
    unsigned char *to;
    const unsigned char *from;
    size_t len;
    const struct look *looks[16];
    size_t counts[16];
    int op;
    atomic_int turn;
};
static const char *source;

__attribute__((unused)) static void wrong(int op, const char *what, long expected, long seen) {
    printf("WRONG: operation %d: %s: expected %ld, seen %ld\n", op, what, expected, seen);
    fflush(stdout);
    _exit(1);
}
#define CODE(op, call) do { int c_ = (call); if (c_ != 0) wrong(op, #call, 0, c_); } while (0)
#define UNTIL(op, call) do { int c_; while ((c_ = (call)) == NOT_READY) sched_yield(); if (c_ != 0) wrong(op, #call, 0, c_); } while (0)
#define SETUP(call) do { int c_ = (call); if (c_ != 0) { printf("%s = %d\n", #call, c_); _exit(2); } } while (0)

static void open_driver(int wanted) {
    int count = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) { printf("%s\n", dlerror()); _exit(2); }
    FUNCTIONS(LOAD)
    SETUP(cuInit(0));
    SETUP(cuDeviceGetCount(&count));
    if (count < wanted) { printf("needs %d devices\n", wanted); _exit(2); }
}
static handle new_context(int device, int primary, handle *kernels) {
    static const char *const names[] = {"put", "slow", "mix"};
    handle context = NULL, module = NULL;
    SETUP(cuDeviceGet(&device, device));
    if (primary) SETUP(cuDevicePrimaryCtxRetain(&context, device));
    else SETUP(cuCtxCreate_v2(&context, 0, device));
    SETUP(cuCtxSetCurrent(context));
    SETUP(cuModuleLoadData(&module, source));
    for (int i = 0; i < 3; i++) SETUP(cuModuleGetFunction(&kernels[i], module, names[i]));
    return context;
}
__attribute__((unused)) static unsigned char *new_array(size_t len) {
    void *array = NULL;
    if (posix_memalign(&array, 4096, len) != 0) _exit(2);
    return memset(array, 0, len);
}
__attribute__((unused)) static unsigned char *new_pinned(size_t len) {
    void *array = NULL;
    SETUP(cuMemHostAlloc(&array, len, 1));
    return memset(array, 0, len);
}
__attribute__((unused)) static unsigned pattern(unsigned seed, unsigned index) {
    unsigned x = seed ^ (index * 0x9E3779B9u);
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    return x ^ (x >> 13);
}
__attribute__((unused)) static void store(unsigned char *to, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++) to[i] = (unsigned char)(pattern(seed, (unsigned)(i / 4)) >> (i % 4 * 8));
}
__attribute__((unused)) static void look_at(int op, const unsigned char *at, const struct look *looks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        unsigned seen;
        memcpy(&seen, at + looks[i].at, 4);
        if (seen != looks[i].word) {
            printf("WRONG: operation %d: byte %u: expected 0x%08x, seen 0x%08x\n", op, looks[i].at, looks[i].word, seen);
            fflush(stdout);
            _exit(1);
        }
    }
}
__attribute__((unused)) static void await(atomic_int *signal_) {
    while (!atomic_load(signal_)) sched_yield();
}
__attribute__((unused)) static void run_job(void *data) {
    struct job *job = data;
    int turn = atomic_fetch_add(&job->turn, 1);
    if (job->delay > 0) usleep(job->delay);
    if (job->kind == STORE) store(job->to, job->len, job->seed);
    if (job->kind == MOVE) memmove(job->to, job->from, job->len);
    if (job->kind == LOOK && turn < 16) look_at(job->op, job->from, job->looks[turn], job->counts[turn]);
}
__attribute__((unused)) static int launch(handle kernel, memory a, memory b, unsigned count, unsigned seed, unsigned spin, handle stream) {
    void *two[] = {&a, &b, &count, &seed}, *one[] = {&a, &count, &seed, &spin};
    return cuLaunchKernel(kernel, (count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, b != 0 ? two : one, NULL);
}

