/* What calls and copies of CUDA's driver interface cost. The libcuda.so.1 that the loader finds can
 * be NVIDIA's or Penstock's. Needs no header of CUDA.
 *
 *     speed [--quick]
 *
 * Prints name, unit and figure of each measurement, separated by tabs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef uint64_t ptr;

enum { CALLS = 2001, QUEUED = 20000, IN_GRAPH = 100, GRAPHS = 101 };
/* Longest time for the copies of one kind and size. */
#define COPIES_S 0.25

static const char *const MODULE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry empty(.param .u64 value)\n{\nret;\n}\n"
    ".visible .entry store(.param .u64 to, .param .u64 value)\n{\n"
    ".reg .b64 %d<3>;\nld.param.u64 %d1, [to];\nld.param.u64 %d2, [value];\n"
    "st.global.u64 [%d1], %d2;\nret;\n}\n";

static void *library;
static bool quick;

static void *find(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return function;
}

#define CALL(name, ...)                                  \
    ({                                                   \
        static CUresult (*call_)();                      \
        if (!call_) call_ = (CUresult (*)())find(#name); \
        call_(__VA_ARGS__);                              \
    })
#define GOOD(name, ...)                                                           \
    do {                                                                          \
        CUresult code_ = CALL(name, __VA_ARGS__);                                 \
        if (code_) {                                                              \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #name, code_); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, ascending);
    return samples[count / 2];
}

static void row(const char *name, const char *unit, double figure) {
    printf("%s\t%s\t%.6g\n", name, unit, figure);
    fflush(stdout);
}

static void calls(void *function, void *stream, ptr memory) {
    static double launches[CALLS], idle[CALLS], after_copy[CALLS], allocations[CALLS];
    uint64_t value = 7;
    void *params[] = {&value};
    size_t count = quick ? 101 : CALLS;
    for (size_t i = 0; i < count; i++) {
        double start = now_s();
        GOOD(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
        GOOD(cuStreamSynchronize, stream);
        double launched = now_s();
        GOOD(cuStreamSynchronize, stream);
        double again = now_s();
        GOOD(cuMemcpyHtoD_v2, memory, &value, (size_t)4);
        double copied = now_s();
        GOOD(cuCtxSynchronize);
        after_copy[i] = now_s() - copied;
        launches[i] = launched - start;
        idle[i] = again - launched;
    }
    row("launch and synchronize", "us", 1e6 * median(launches, count));
    row("synchronize", "us", 1e6 * median(idle, count));
    row("synchronize after a 4 B copy", "us", 1e6 * median(after_copy, count));
    count = quick ? 11 : 201;
    for (size_t i = 0; i < count; i++) {
        ptr block;
        double start = now_s();
        GOOD(cuMemAlloc_v2, &block, (size_t)1 << 20);
        GOOD(cuMemFree_v2, block);
        allocations[i] = now_s() - start;
    }
    row("allocate and free 1 MiB", "us", 1e6 * median(allocations, count));
}

static void queued(void *function, void *stream) {
    static double rates[5], enqueued[5];
    uint64_t value = 7;
    void *params[] = {&value};
    size_t count = quick ? 1000 : QUEUED;
    for (int round = 0; round < 5; round++) {
        double start = now_s();
        for (size_t i = 0; i < count; i++)
            GOOD(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
        enqueued[round] = (now_s() - start) / (double)count;
        GOOD(cuStreamSynchronize, stream);
        rates[round] = (double)count / (now_s() - start);
    }
    row("launches queued", "launches/s", median(rates, 5));
    row("time of the program for a queued launch", "us", 1e6 * median(enqueued, 5));
}

static void graphs(void *function, void *stream) {
    static double times[GRAPHS];
    uint64_t value = 7;
    void *params[] = {&value}, *graph, *ready;
    size_t count = quick ? 11 : GRAPHS;
    GOOD(cuStreamBeginCapture_v2, stream, 0);
    for (int i = 0; i < IN_GRAPH; i++)
        GOOD(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    GOOD(cuStreamEndCapture, stream, &graph);
    GOOD(cuGraphInstantiateWithFlags, &ready, graph, 0ull);
    for (size_t i = 0; i < count; i++) {
        double start = now_s();
        GOOD(cuGraphLaunch, ready, stream);
        GOOD(cuStreamSynchronize, stream);
        times[i] = now_s() - start;
    }
    row("graph of 100 launches", "us", 1e6 * median(times, count));
}

/* Copies `bytes` there and back, compares them, and measures both directions. */
static void copies(ptr memory, unsigned char *host, size_t bytes, const char *size,
                   const char *kind) {
    static double there[1001], back[1001];
    char name[80];
    size_t count = 0;
    double end = now_s() + (quick ? 0.05 : COPIES_S);
    while (count < 3 || (count < 1001 && now_s() < end)) {
        memcpy(host, &count, 4);
        host[bytes - 1] = (unsigned char)(count + 3);
        double start = now_s();
        GOOD(cuMemcpyHtoD_v2, memory, host, bytes);
        GOOD(cuCtxSynchronize);
        there[count] = now_s() - start;
        memset(host, 0, 4);
        host[bytes - 1] = 0;
        start = now_s();
        GOOD(cuMemcpyDtoH_v2, host, memory, bytes);
        back[count] = now_s() - start;
        unsigned char last = (unsigned char)(count + 3);
        if (host[bytes - 1] != last || (bytes > 4 && memcmp(host, &count, 4))) {
            fprintf(stderr, "wrong bytes after a copy of %s, %s\n", size, kind);
            exit(1);
        }
        count++;
    }
    bool is_small = bytes < 1 << 16;
    double factor = is_small ? 1e6 : 1, t = median(there, count), b = median(back, count);
    snprintf(name, sizeof name, "to device %s %s", size, kind);
    row(name, is_small ? "us" : "MB/s", is_small ? factor * t : 1e-6 * (double)bytes / t);
    snprintf(name, sizeof name, "from device %s %s", size, kind);
    row(name, is_small ? "us" : "MB/s", is_small ? factor * b : 1e-6 * (double)bytes / b);
}

static void all_copies(size_t largest) {
    static const struct {
        size_t bytes;
        const char *name;
    } sizes[] = {{4, "4 B"},         {4096, "4 KiB"},      {1 << 16, "64 KiB"},
                 {1 << 20, "1 MiB"}, {16 << 20, "16 MiB"}, {256 << 20, "256 MiB"},
                 {1 << 30, "1 GiB"}};
    ptr memory;
    void *pinned;
    GOOD(cuMemAlloc_v2, &memory, largest);
    unsigned char *pageable = malloc(largest);
    memset(pageable, 1, largest);
    GOOD(cuMemHostAlloc, &pinned, largest, 0u);
    memset(pinned, 1, largest);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].bytes > largest) break;
        copies(memory, pageable, sizes[i].bytes, sizes[i].name, "pageable");
        copies(memory, pinned, sizes[i].bytes, sizes[i].name, "pinned");
    }
    GOOD(cuMemFree_v2, memory);
    GOOD(cuMemFreeHost, pinned);
    free(pageable);
}

int main(int count, char **arguments) {
    quick = count > 1 && !strcmp(arguments[1], "--quick");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *context, *module, *empty, *stream;
    size_t free_bytes, total;
    ptr memory;
    GOOD(cuInit, 0u);
    GOOD(cuDevicePrimaryCtxRetain, &context, 0);
    GOOD(cuCtxSetCurrent, context);
    GOOD(cuModuleLoadDataEx, &module, MODULE, 0u, NULL, NULL);
    GOOD(cuModuleGetFunction, &empty, module, "empty");
    GOOD(cuStreamCreate, &stream, 1u);
    GOOD(cuMemAlloc_v2, &memory, (size_t)4096);
    GOOD(cuMemGetInfo_v2, &free_bytes, &total);
    calls(empty, stream, memory);
    queued(empty, stream);
    all_copies(free_bytes > (size_t)4 << 30 ? (size_t)1 << 30 : (size_t)16 << 20);
    graphs(empty, stream);
    GOOD(cuCtxSynchronize);
    return 0;
}
