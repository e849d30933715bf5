/* Symmetric heaps with GPUs that their nodes drive through CUDA's own driver, and with devices that
 * run translated code. Kernels of heap_kernels.h send messages and check each word, meet at
 * barriers, are aborted, and lose a node.
 *
 *     native_heaps PTX NAME [WORDS]
 *
 * PTX is the module. NAME is a part of the name of those GPUs. With WORDS no heap can be created,
 * and the error message contains these words. PENSTOCK_TEST_VICTIM is the process id of a daemon
 * that has the last device, which the program kills at the end. With PENSTOCK_TEST_LITMUS the
 * program only sends that number of messages in both directions. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <penstock_cuda.h>

enum { PES = 8, HEAP_BYTES = 1 << 20, RESULT_AT = 4096, DATA_AT = 8192 };
enum { TIMEOUT = -1, ABORTED = -2 }; /* from ggas.h */

static struct penstock_heap_functions heaps;

struct device {
    CUdevice number;
    CUcontext context;
    CUmodule module;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define GOOD(call)                                                                    \
    do {                                                                              \
        CUresult code_ = (call);                                                      \
        if (code_) {                                                                  \
            fprintf(stderr, "%s:%d: %s: %d (%s)\n", __FILE__, __LINE__, #call, code_, \
                    heaps.text());                                                    \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)
#define EXPECT(holds)                                                                              \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #holds, heaps.text()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define EQUAL(got, wanted)                                                                   \
    do {                                                                                     \
        long long got_ = (got), wanted_ = (wanted);                                          \
        if (got_ != wanted_) {                                                               \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_, \
                    wanted_);                                                                \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* -- heaps ------------------------------------------------------------------------------------ */

/* Bound of waits that end by themselves, in ms. PoCL compiles a kernel at its first launch, while
 * the other PEs wait. On a busy host that takes longer than the usual bound, and less than half of
 * what the program may take. */
#define PATIENCE_MS 120000

static penstockHeap make(struct device *const *on, unsigned count, unsigned timeout_ms, int proxy) {
    CUdevice numbers[PES];
    penstockHeapOptions options = {timeout_ms, proxy};
    penstockHeap heap = NULL;
    for (unsigned pe = 0; pe < count; pe++) numbers[pe] = on[pe]->number;
    GOOD(heaps.create(&heap, count, numbers, HEAP_BYTES, &options));
    return heap;
}

static CUresult launch(penstockHeap heap, struct device *const *on, unsigned count,
                       const char *name, unsigned blocks, unsigned threads, unsigned long long a,
                       unsigned long long b) {
    CUDA_LAUNCH_PARAMS launches[PES] = {{0}};
    CUdeviceptr pointers[PES];
    void *params[PES][3];
    for (unsigned pe = 0; pe < count; pe++) {
        CUfunction function;
        GOOD(cuCtxSetCurrent(on[pe]->context));
        GOOD(cuModuleGetFunction(&function, on[pe]->module, name));
        GOOD(heaps.pointer(heap, pe, &pointers[pe]));
        params[pe][0] = &pointers[pe];
        params[pe][1] = &a;
        params[pe][2] = &b;
        CUDA_LAUNCH_PARAMS one = {function, blocks, 1, 1, threads, 1, 1, 0, NULL, params[pe]};
        launches[pe] = one;
    }
    return heaps.launch(heap, launches, count);
}

static void finish(struct device *const *on, unsigned count) {
    for (unsigned pe = 0; pe < count; pe++) {
        GOOD(cuCtxSetCurrent(on[pe]->context));
        GOOD(cuCtxSynchronize());
    }
}

static long long result(penstockHeap heap, unsigned pe, unsigned group) {
    long long value = -1000;
    GOOD(heaps.read(heap, pe, RESULT_AT + 8 * group, &value, sizeof value));
    return value;
}

static void clear(penstockHeap heap, unsigned count) {
    static const char zeros[DATA_AT];
    for (unsigned pe = 0; pe < count; pe++) GOOD(heaps.write(heap, pe, 0, zeros, sizeof zeros));
}

/* -- cases ------------------------------------------------------------------------------------ */

static void ping_pong(struct device *const *pair, int proxy, unsigned wanted) {
    static const unsigned long long sizes[] = {8, 256, 65536};
    static const char *const paths[] = {"their own memory", "shared memory", "the proxy"};
    penstockHeap heap = make(pair, 2, PATIENCE_MS, proxy);
    unsigned path = 99;
    GOOD(heaps.path(heap, 0, 0, &path));
    EQUAL(path, PENSTOCK_HEAP_OWN);
    GOOD(heaps.path(heap, 0, 1, &path));
    EQUAL(path, wanted);
    for (int at = 0; at < 3; at++) {
        unsigned long long rounds = sizes[at] > 1000 ? 20 : 100;
        clear(heap, 2);
        double began = now_s();
        GOOD(launch(heap, pair, 2, "heap_ping_pong", 1, 1, rounds, sizes[at]));
        finish(pair, 2);
        printf("  %llu messages of %llu bytes there and back by %s: %.1f ms\n", rounds, sizes[at],
               paths[wanted], 1e3 * (now_s() - began));
        for (unsigned pe = 0; pe < 2; pe++) EQUAL(result(heap, pe, 0), (long long)rounds);
    }
    GOOD(heaps.close(heap));
}

static void litmus(struct device *const *pair, unsigned long long rounds) {
    static const unsigned long long sizes[] = {8, 64};
    for (int at = 0; at < 2; at++) {
        penstockHeap heap = make(pair, 2, 600000, 0);
        double began = now_s();
        GOOD(launch(heap, pair, 2, "heap_ping_pong", 1, 1, rounds, sizes[at]));
        finish(pair, 2);
        double took = now_s() - began;
        for (unsigned pe = 0; pe < 2; pe++) EQUAL(result(heap, pe, 0), (long long)rounds);
        printf("  %llu messages of %llu bytes, none wrong: %.1f s, %.3f us each\n", 2 * rounds,
               sizes[at], took, 5e5 * took / (double)rounds);
        GOOD(heaps.close(heap));
    }
}

static void barriers(struct device *const *on, unsigned count, unsigned blocks, unsigned threads) {
    penstockHeap heap = make(on, count, PATIENCE_MS, 0);
    GOOD(launch(heap, on, count, "heap_barriers", blocks, threads, 50, blocks));
    finish(on, count);
    for (unsigned pe = 0; pe < count; pe++)
        for (unsigned block = 0; block < blocks; block++) EQUAL(result(heap, pe, block), 50);
    printf("  50 barriers of %u PEs with %u blocks of %u threads\n", count, blocks, threads);
    GOOD(heaps.close(heap));
}

static void parts(struct device *const *pair) {
    penstockHeap heap = make(pair, 2, PATIENCE_MS, 0);
    unsigned char *sent = calloc(1, HEAP_BYTES), *got = malloc(HEAP_BYTES);
    for (unsigned pe = 0; pe < 2; pe++) {
        GOOD(heaps.read(heap, pe, 0, got, HEAP_BYTES));
        for (int at = 0; at < HEAP_BYTES; at++) EXPECT(got[at] == 0);
    }
    for (int at = 0; at < HEAP_BYTES; at++) sent[at] = (unsigned char)(at * 7 + at / 256);
    GOOD(heaps.write(heap, 0, 0, sent, HEAP_BYTES));
    GOOD(heaps.read(heap, 0, 0, got, HEAP_BYTES));
    EXPECT(!memcmp(sent, got, HEAP_BYTES));
    GOOD(heaps.read(heap, 1, 5, got, 100));
    for (int at = 0; at < 100; at++) EXPECT(got[at] == 0);
    EXPECT(heaps.read(heap, 0, HEAP_BYTES - 4, got, 8) == CUDA_ERROR_INVALID_VALUE);
    /* Copies do not know its address, and a launch on one device accepts it. */
    CUdeviceptr pointer;
    GOOD(heaps.pointer(heap, 0, &pointer));
    GOOD(cuCtxSetCurrent(pair[0]->context));
    EXPECT(cuMemcpyDtoH(got, pointer, 8) == CUDA_ERROR_INVALID_VALUE);
    unsigned long long rounds = 0, groups = 1;
    void *params[] = {&pointer, &rounds, &groups};
    CUfunction function;
    GOOD(cuModuleGetFunction(&function, pair[0]->module, "heap_barriers"));
    EXPECT(result(heap, 0, 0) != 0);
    GOOD(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    GOOD(cuCtxSynchronize());
    EQUAL(result(heap, 0, 0), 0);
    GOOD(heaps.close(heap));
    free(sent);
    free(got);
    puts("  parts are read and written");
}

static void ends(struct device *const *pair) {
    penstockHeap heap = make(pair, 2, 500, 0);
    int aborted = 99;
    GOOD(launch(heap, pair, 2, "heap_wait", 1, 1, 0, 0));
    finish(pair, 2);
    for (unsigned pe = 0; pe < 2; pe++) EQUAL(result(heap, pe, 0), TIMEOUT);
    GOOD(heaps.reset(heap));
    GOOD(heaps.close(heap));
    heap = make(pair, 2, PATIENCE_MS, 0);
    GOOD(launch(heap, pair, 2, "heap_wait", 1, 1, 0, 0));
    usleep(200000);
    GOOD(heaps.abort(heap, "enough of it"));
    double began = now_s();
    finish(pair, 2);
    double took = now_s() - began;
    EXPECT(took < 1);
    for (unsigned pe = 0; pe < 2; pe++) EQUAL(result(heap, pe, 0), ABORTED);
    GOOD(heaps.aborted(heap, &aborted));
    EQUAL(aborted, 1);
    EXPECT(strstr(heaps.text(), "enough of it"));
    GOOD(heaps.reset(heap));
    GOOD(launch(heap, pair, 2, "heap_barriers", 1, 1, 20, 1));
    finish(pair, 2);
    for (unsigned pe = 0; pe < 2; pe++) EQUAL(result(heap, pe, 0), 20);
    GOOD(heaps.close(heap));
    printf("  waits end at their bound, and %.1f ms after an abort; a reset repairs\n", 1e3 * took);
}

/* A launch with more work-groups than the GPU can hold is refused, based on the driver's answer,
 * with a message. */
static void too_many(struct device *gpu) {
    struct device *const alone[] = {gpu};
    penstockHeap heap = make(alone, 1, PATIENCE_MS, 0);
    EXPECT(launch(heap, alone, 1, "heap_barriers", 1000000, 1, 1, 1) ==
           CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT(strstr(heaps.text(), "1000000 work-groups on PE 0") &&
           strstr(heaps.text(), "as its driver says"));
    printf("  %s\n", heaps.text());
    GOOD(launch(heap, alone, 1, "heap_barriers", 16, 2, 100, 16));
    finish(alone, 1);
    for (unsigned block = 0; block < 16; block++) EQUAL(result(heap, 0, block), 100);
    GOOD(heaps.close(heap));
}

static void come_and_go(struct device *const *pair) {
    for (long long time = 1; time <= 70; time++) {
        penstockHeap heap = make(pair, 2, PATIENCE_MS, 0);
        long long got = 0;
        GOOD(heaps.write(heap, 0, 0, &time, sizeof time));
        GOOD(heaps.read(heap, 0, 0, &got, sizeof got));
        EQUAL(got, time);
        GOOD(heaps.close(heap));
    }
    puts("  70 heaps one after the other");
}

/* The last case, because the device of PE 1 is lost after it. */
static void lose(struct device *const *pair, const char *victim) {
    penstockHeap heap = make(pair, 2, PATIENCE_MS, 0);
    int aborted = 0;
    GOOD(launch(heap, pair, 2, "heap_wait", 1, 1, 0, 0));
    usleep(500000);
    double began = now_s();
    EXPECT(kill(atoi(victim), SIGKILL) == 0);
    finish(pair, 1);
    double took = now_s() - began;
    EXPECT(took < 1);
    EQUAL(result(heap, 0, 0), ABORTED);
    GOOD(heaps.aborted(heap, &aborted));
    EQUAL(aborted, 1);
    EXPECT(heaps.reset(heap) == CUDA_ERROR_DEVICE_UNAVAILABLE);
    printf("  a node ended, and PE 0 was out after %.0f ms\n", 1e3 * took);
}

static void refused(struct device *const *gpu, const char *words) {
    penstockHeap heap = NULL;
    CUresult code = heaps.create(&heap, 1, &(*gpu)->number, HEAP_BYTES, NULL);
    printf("  %s\n", heaps.text());
    EQUAL(code, CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(strstr(heaps.text(), words));
}

static char *text_of(const char *path) {
    static char text[4 << 20];
    FILE *file = fopen(path, "r");
    if (!file || fread(text, 1, sizeof text - 1, file) == 0) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    struct device devices[PES], *gpus[PES], *others[PES], *all[PES];
    int found = 0;
    unsigned gpu_count = 0, other_count = 0, all_count = 0;
    if (count < 3) return 2;
    if (penstock_find_heap_functions(&heaps))
        return fprintf(stderr, "no libcuda.so.1 of a pool\n"), 1;
    const char *text = text_of(arguments[1]), *victim = getenv("PENSTOCK_TEST_VICTIM");
    GOOD(cuInit(0));
    GOOD(cuDeviceGetCount(&found));
    for (int at = 0; at < found && at < PES; at++) {
        char name[256];
        GOOD(cuDeviceGetName(name, sizeof name, at));
        devices[at].number = at;
        if (strstr(name, arguments[2]))
            gpus[gpu_count++] = &devices[at];
        else
            others[other_count++] = &devices[at];
        printf("  device %d: %s\n", at, name);
    }
    EXPECT(gpu_count > 0);
    if (count > 3) return refused(gpus, arguments[3]), puts("Test PASSED"), 0;
    for (unsigned at = 0; at < gpu_count; at++) all[all_count++] = gpus[at];
    for (unsigned at = 0; at < other_count; at++) all[all_count++] = others[at];
    for (unsigned at = 0; at < all_count; at++) {
        GOOD(cuDevicePrimaryCtxRetain(&all[at]->context, all[at]->number));
        GOOD(cuCtxSetCurrent(all[at]->context));
        GOOD(cuModuleLoadDataEx(&all[at]->module, text, 0, NULL, NULL));
    }
    if (getenv("PENSTOCK_TEST_LITMUS")) {
        const unsigned long long rounds = strtoull(getenv("PENSTOCK_TEST_LITMUS"), NULL, 10);
        struct device *mixed[] = {gpus[0], others[0]};
        if (other_count > 0) litmus(mixed, rounds);
        if (gpu_count > 1) litmus(gpus, rounds);
        return puts("Test PASSED"), 0;
    }
    too_many(gpus[0]);
    if (gpu_count > 1) {
        ping_pong(gpus, 0, PENSTOCK_HEAP_SHARED);
        barriers(gpus, 2, 4, 3);
    }
    if (other_count > 0) {
        struct device *pair[] = {gpus[0], others[other_count - 1]}, *turned[] = {pair[1], pair[0]};
        ping_pong(pair, 0, PENSTOCK_HEAP_SHARED);
        ping_pong(turned, 0, PENSTOCK_HEAP_SHARED);
        if (victim) ping_pong(pair, 1, PENSTOCK_HEAP_PROXY);
        parts(pair);
        barriers(pair, 2, 1, 1);
        barriers(all, all_count, 1, 1);
        ends(pair);
        come_and_go(pair);
        if (victim) lose(pair, victim);
    }
    puts("Test PASSED");
    return 0;
}
