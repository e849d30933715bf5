/* Pinned memory on a GPU that its node drives through CUDA's own driver: copies of every kind take
 * and leave their bytes in the order of the streams, whether the GPU copies the memory by itself or
 * its bytes travel over the link. It loads the libcuda.so.1 that is found, and needs no header.
 *
 *     pinned shared|pages|both
 *
 * The argument says what cuMemHostAlloc must return: memory that the program shares with its node,
 * pages of the program, or first the one and then the other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef uint64_t ptr;

static const char *const MODULE = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .global .align 8 .b8 table[64];\n"
                                  ".visible .entry sleep_ns(.param .u64 time) { ret; }\n";

static void *library;

static void *find(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return function;
}

#define CALL(name, ...) (((CUresult (*)())find(#name))(__VA_ARGS__))
#define GOOD(name, ...)                                                           \
    do {                                                                          \
        CUresult code_ = CALL(name, __VA_ARGS__);                                 \
        if (code_) {                                                              \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #name, code_); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)
#define EXPECT(holds)                                                           \
    do {                                                                        \
        if (!(holds)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* More than the stand-in takes from memory that the GPU does not see. */
enum { SIZE = 300000, SMALL = 64, WIDTH = 700, ROWS = 200, PITCH = 1024 };

static void *stream, *sleeper;
static ptr first, second;
static unsigned char *pinned, *other, plain[SIZE], back[SIZE];

static void fill_part(unsigned char *bytes, int size, unsigned seed) {
    for (int i = 0; i < size; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(seed >> 24);
    }
}

static void fill(unsigned char *bytes, unsigned seed) { fill_part(bytes, SIZE, seed); }

/* Whether an address lies in the memory that the program shares with its node. */
static int is_shared(const void *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps);
    char line[512];
    int found = -1;
    while (found < 0 && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && (unsigned long)at >= start &&
            (unsigned long)at < end)
            found = strstr(line, "penstock-arena") != NULL;
    }
    fclose(maps);
    return found;
}

/* -- a gate: commands behind it in a stream run when it has been opened ------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int gates_open;

static void wait_at_gate(void *number) {
    pthread_mutex_lock(&lock);
    while (gates_open < (int)(intptr_t)number) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void gate_in(void *of) {
    GOOD(cuLaunchHostFunc, of, wait_at_gate, (void *)(intptr_t)(gates_open + 1));
}

static void gate(void) { gate_in(stream); }

static void *open_gate(void *none) {
    pthread_mutex_lock(&lock);
    gates_open++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return none;
}

/* Fills the first block of the device, and waits. */
static void on_device(ptr at, unsigned seed) {
    fill(plain, seed);
    for (int done = 0; done < SIZE; done += 50000)
        GOOD(cuMemcpyHtoD_v2, at + done, plain + done, (size_t)50000);
    GOOD(cuCtxSynchronize);
}

static void expect_on_device(ptr at, const unsigned char *bytes) {
    for (int done = 0; done < SIZE; done += 50000)
        GOOD(cuMemcpyDtoH_v2, back + done, at + done, (size_t)50000);
    EXPECT(!memcmp(back, bytes, SIZE));
}

/* -- the cases --------------------------------------------------------------------------------- */

static void bytes_arrive(void) {
    static const int sizes[] = {1, 4, 4097, 70001, SIZE};
    for (int i = 0; i < 5; i++) {
        int size = sizes[i], at = (SIZE - size) / 2;
        fill(pinned, 10 + i);
        GOOD(cuMemcpyHtoD_v2, first + at, pinned + at, (size_t)size);
        memset(other, 0, SIZE);
        GOOD(cuMemcpyDtoH_v2, other + at, first + at, (size_t)size);
        EXPECT(!memcmp(pinned + at, other + at, size));
        EXPECT(at == 0 || (other[at - 1] == 0 && other[at + size] == 0));
        fill(pinned, 20 + i);
        GOOD(cuMemcpy, first, (ptr)(uintptr_t)pinned, (size_t)size);
        GOOD(cuMemcpyAsync, (ptr)(uintptr_t)other, first, (size_t)size, stream);
        GOOD(cuStreamSynchronize, stream);
        EXPECT(!memcmp(pinned, other, size));
    }
}

/* "The copy begins when the stream reaches it", and reads what is there then. */
static void late_copies_take_their_turn(void) {
    fill(pinned, 1);
    gate();
    GOOD(cuMemcpyHtoDAsync_v2, first, pinned, (size_t)SIZE, stream);
    GOOD(cuMemcpyDtoHAsync_v2, other, first, (size_t)SIZE, stream);
    fill(pinned, 2);
    memset(other, 0, SIZE);
    open_gate(NULL);
    GOOD(cuStreamSynchronize, stream);
    EXPECT(!memcmp(pinned, other, SIZE));
}

/* Commands behind a read find its bytes in the pinned memory, however they get there. */
static void a_read_is_seen_behind_it(void) {
    on_device(first, 3);
    memset(pinned, 0, SIZE);
    GOOD(cuMemsetD8_v2, second, (unsigned char)0, (size_t)SIZE);
    GOOD(cuCtxSynchronize);
    gate();
    GOOD(cuMemcpyDtoHAsync_v2, pinned, first, (size_t)SIZE, stream);
    GOOD(cuMemcpyHtoDAsync_v2, second, pinned, (size_t)SMALL, stream);
    GOOD(cuMemcpyHtoDAsync_v2, second + SMALL, pinned + SMALL, (size_t)(SIZE - SMALL), stream);
    open_gate(NULL);
    GOOD(cuStreamSynchronize, stream);
    EXPECT(!memcmp(plain, pinned, SIZE));
    expect_on_device(second, plain);
}

/* Opens the gate in a thread of its own, before or while the main thread waits for what is behind
 * the gate. */
static pthread_t open_soon(void) {
    pthread_t thread;
    EXPECT(!pthread_create(&thread, NULL, open_gate, NULL));
    return thread;
}

/* Copies within the program's memory wait for the stream. */
static void host_copies_see_it(void) {
    on_device(first, 4);
    memset(pinned, 0, SIZE);
    memset(back, 0, SIZE);
    gate();
    GOOD(cuMemcpyDtoHAsync_v2, pinned, first, (size_t)SIZE, stream);
    pthread_t thread = open_soon();
    GOOD(cuMemcpyAsync, (ptr)(uintptr_t)back, (ptr)(uintptr_t)pinned, (size_t)SIZE, stream);
    GOOD(cuMemcpyAsync, (ptr)(uintptr_t)other, (ptr)(uintptr_t)pinned, (size_t)SIZE, stream);
    GOOD(cuStreamSynchronize, stream);
    pthread_join(thread, NULL);
    EXPECT(!memcmp(plain, back, SIZE) && !memcmp(plain, other, SIZE));
}

static void change_pinned(void *none) {
    (void)none;
    for (int i = 0; i < SIZE; i++) pinned[i] ^= 0xff;
}

static void host_functions_see_it(void) {
    on_device(first, 5);
    memset(pinned, 0, SIZE);
    gate();
    GOOD(cuMemcpyDtoHAsync_v2, pinned, first, (size_t)SIZE, stream);
    GOOD(cuLaunchHostFunc, stream, change_pinned, NULL);
    GOOD(cuMemcpyHtoDAsync_v2, second, pinned, (size_t)SIZE, stream);
    open_gate(NULL);
    GOOD(cuStreamSynchronize, stream);
    for (int i = 0; i < SIZE; i++) plain[i] ^= 0xff;
    expect_on_device(second, plain);
}

struct rows {
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    ptr from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    unsigned to_type;
    void *to_host;
    ptr to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

/* Rows of the device go to rows of another distance in pinned memory, and back to the device. */
static void rectangles_see_it(void) {
    struct rows down = {.from_x = 8,
                        .from_y = 1,
                        .from_type = 2,
                        .from_device = first,
                        .from_pitch = PITCH,
                        .to_x = 3,
                        .to_y = 2,
                        .to_type = 1,
                        .to_host = pinned,
                        .to_pitch = WIDTH + 100,
                        .width = WIDTH,
                        .height = ROWS};
    struct rows up = {.from_x = 3,
                      .from_y = 2,
                      .from_type = 1,
                      .from_host = pinned,
                      .from_pitch = WIDTH + 100,
                      .to_type = 2,
                      .to_device = second,
                      .to_pitch = PITCH,
                      .width = WIDTH,
                      .height = ROWS};
    on_device(first, 6);
    memset(pinned, 0, SIZE);
    gate();
    GOOD(cuMemcpy2DAsync_v2, &down, stream);
    GOOD(cuMemcpy2DAsync_v2, &up, stream);
    GOOD(cuMemcpyHtoDAsync_v2, second + WIDTH, pinned, (size_t)4, stream);
    open_gate(NULL);
    GOOD(cuStreamSynchronize, stream);
    for (int y = 0; y < ROWS; y++)
        EXPECT(!memcmp(pinned + (y + 2) * (WIDTH + 100) + 3, plain + (y + 1) * PITCH + 8, WIDTH));
    for (int done = 0; done < ROWS * PITCH; done += 50 * PITCH)
        GOOD(cuMemcpyDtoH_v2, back + done, second + done, (size_t)(50 * PITCH));
    for (int y = 0; y < ROWS; y++)
        EXPECT(!memcmp(back + y * PITCH, plain + (y + 1) * PITCH + 8, WIDTH));
    EXPECT(!memcmp(back + WIDTH, "\0\0\0", 4));
    /* And synchronously. */
    memset(pinned, 0, SIZE);
    GOOD(cuMemcpy2D_v2, &down);
    EXPECT(!memcmp(pinned + 2 * (WIDTH + 100) + 3, plain + PITCH + 8, WIDTH));
}

static void graphs_see_it(void) {
    void *graph, *exec;
    on_device(first, 7);
    GOOD(cuStreamBeginCapture_v2, stream, 0);
    GOOD(cuMemcpyDtoHAsync_v2, pinned, first, (size_t)SIZE, stream);
    GOOD(cuMemcpyAsync, (ptr)(uintptr_t)other, (ptr)(uintptr_t)pinned, (size_t)SIZE, stream);
    GOOD(cuMemcpyHtoDAsync_v2, second, other, (size_t)SIZE, stream);
    GOOD(cuStreamEndCapture, stream, &graph);
    GOOD(cuGraphInstantiateWithFlags, &exec, graph, (unsigned long long)0);
    for (int round = 0; round < 3; round++) {
        memset(pinned, 0, SIZE);
        memset(other, 0, SIZE);
        /* A launch waits for nothing, whatever is in front of it. */
        gate();
        GOOD(cuGraphLaunch, exec, stream);
        open_gate(NULL);
        GOOD(cuStreamSynchronize, stream);
        EXPECT(!memcmp(plain, pinned, SIZE) && !memcmp(plain, other, SIZE));
        expect_on_device(second, plain);
        on_device(first, 8 + round);
    }
    GOOD(cuGraphExecDestroy, exec);
    GOOD(cuGraphDestroy, graph);
}

static void variables_take_it(void *module) {
    ptr table;
    size_t size;
    GOOD(cuModuleGetGlobal_v2, &table, &size, module, "table");
    fill(pinned, 11);
    GOOD(cuMemcpyHtoDAsync_v2, table, pinned, (size_t)64, stream);
    GOOD(cuMemcpyDtoHAsync_v2, other, table, (size_t)64, stream);
    GOOD(cuStreamSynchronize, stream);
    EXPECT(!memcmp(pinned, other, 64));
}

/* Asynchronous copies and launches of graphs on another device wait for nothing, whether the
 * block's device has used it or not. The gate is in the way of the other device only. */
static void another_device_does_not_wait(void *context, void *there, void *far, ptr block) {
    enum { PART = 60000 };
    unsigned char *shared;
    void *graph, *exec;
    for (int is_used = 0; is_used < 2; is_used++) {
        GOOD(cuMemHostAlloc, (void **)&shared, (size_t)(2 * PART), 1);
        if (is_used) GOOD(cuMemcpyHtoD_v2, first, shared, (size_t)(2 * PART));
        GOOD(cuCtxSetCurrent, there);
        memset(shared, 1, PART);
        gate_in(far);
        GOOD(cuMemcpyHtoDAsync_v2, block, shared, (size_t)PART, far);
        GOOD(cuMemcpyDtoHAsync_v2, shared + PART, block, (size_t)PART, far);
        /* The copy takes the bytes when its stream reaches it. */
        fill_part(shared, PART, 40 + is_used);
        open_gate(NULL);
        GOOD(cuStreamSynchronize, far);
        EXPECT(!memcmp(shared, shared + PART, PART));
        GOOD(cuStreamBeginCapture_v2, far, 0);
        GOOD(cuMemcpyHtoDAsync_v2, block, shared, (size_t)PART, far);
        GOOD(cuMemcpyDtoHAsync_v2, shared + PART, block, (size_t)PART, far);
        GOOD(cuStreamEndCapture, far, &graph);
        GOOD(cuGraphInstantiateWithFlags, &exec, graph, (unsigned long long)0);
        gate_in(far);
        GOOD(cuGraphLaunch, exec, far);
        open_gate(NULL);
        GOOD(cuStreamSynchronize, far);
        GOOD(cuGraphExecDestroy, exec);
        GOOD(cuGraphDestroy, graph);
        GOOD(cuCtxSetCurrent, context);
        /* Its own device takes it now as it takes plain memory. */
        fill_part(shared, PART, 50 + is_used);
        GOOD(cuMemcpyHtoDAsync_v2, first, shared, (size_t)PART, stream);
        GOOD(cuMemcpyDtoHAsync_v2, shared + PART, first, (size_t)PART, stream);
        GOOD(cuMemcpyHtoDAsync_v2, second, shared + PART, (size_t)PART, stream);
        GOOD(cuMemcpyDtoHAsync_v2, other, second, (size_t)PART, stream);
        GOOD(cuStreamSynchronize, stream);
        EXPECT(!memcmp(shared, other, PART));
        GOOD(cuMemFreeHost, shared);
    }
}

/* Memory of one device's context, used by another device behind an event. */
static void another_device_uses_it(void *context) {
    enum { PART = 60000 };
    void *there, *far, *event, *returned;
    ptr block;
    uint64_t time = 50000000;
    void *params[] = {&time};
    GOOD(cuDevicePrimaryCtxRetain, &there, 1);
    GOOD(cuEventCreate, &event, 2);
    GOOD(cuCtxSetCurrent, there);
    GOOD(cuStreamCreate, &far, 0);
    GOOD(cuEventCreate, &returned, 2);
    GOOD(cuMemAlloc_v2, &block, (size_t)PART);
    GOOD(cuCtxSetCurrent, context);
    on_device(first, 12);
    GOOD(cuMemsetD8_v2, second, (unsigned char)0, (size_t)SIZE);
    memset(pinned, 0, SIZE);
    GOOD(cuCtxSynchronize);
    /* The kernel only makes it likely that a copy without order comes too early. */
    GOOD(cuLaunchKernel, sleeper, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    GOOD(cuMemcpyDtoHAsync_v2, pinned, first, (size_t)PART, stream);
    GOOD(cuEventRecord, event, stream);
    GOOD(cuCtxSetCurrent, there);
    GOOD(cuStreamWaitEvent, far, event, 0);
    GOOD(cuMemcpyHtoDAsync_v2, block, pinned, (size_t)PART, far);
    GOOD(cuMemcpyDtoHAsync_v2, pinned + PART, block, (size_t)PART, far);
    GOOD(cuEventRecord, returned, far);
    GOOD(cuCtxSetCurrent, context);
    GOOD(cuStreamWaitEvent, stream, returned, 0);
    GOOD(cuMemcpyHtoDAsync_v2, second, pinned + PART, (size_t)PART, stream);
    GOOD(cuMemcpyDtoHAsync_v2, other, second, (size_t)PART, stream);
    GOOD(cuStreamSynchronize, stream);
    EXPECT(!memcmp(plain, pinned, PART) && !memcmp(plain, other, PART));
    /* Between the memories of two devices and this memory. */
    GOOD(cuMemcpyHtoD_v2, block, pinned, (size_t)PART);
    memset(other, 0, PART);
    GOOD(cuMemcpyDtoHAsync_v2, other, block, (size_t)PART, stream);
    GOOD(cuStreamSynchronize, stream);
    EXPECT(!memcmp(plain, other, PART));
    another_device_does_not_wait(context, there, far, block);
    GOOD(cuDevicePrimaryCtxRelease_v2, 1);
}

/* A block that open commands of another context use is not used for something else, whether the
 * node keeps its memory or gets it back. The kernel makes it likely that the copy is still to come
 * when the memory is used again. A gate is no use here: a function of the host may use any memory,
 * so freeing waits for it. */
static void freeing_spares_open_copies(void *context) {
    static const size_t sizes[] = {SIZE, 40 << 20};
    void *beside, *its_stream, *its_module, *its_sleeper;
    uint64_t time = 200000000;
    void *params[] = {&time};
    GOOD(cuCtxCreate_v2, &beside, 0, 0);
    GOOD(cuStreamCreate, &its_stream, 1);
    GOOD(cuModuleLoadDataEx, &its_module, MODULE, 0, NULL, NULL);
    GOOD(cuModuleGetFunction, &its_sleeper, its_module, "sleep_ns");
    for (int i = 0; i < 2; i++) {
        unsigned char *freed, *next;
        GOOD(cuCtxSetCurrent, context);
        GOOD(cuMemHostAlloc, (void **)&freed, sizes[i], 1);
        fill(freed, 13 + i);
        memcpy(plain, freed, SIZE);
        GOOD(cuCtxSetCurrent, beside);
        GOOD(cuLaunchKernel, its_sleeper, 1, 1, 1, 1, 1, 1, 0, its_stream, params, NULL);
        GOOD(cuMemcpyHtoDAsync_v2, first, freed, (size_t)SIZE, its_stream);
        GOOD(cuCtxSetCurrent, context);
        GOOD(cuMemFreeHost, freed);
        GOOD(cuMemHostAlloc, (void **)&next, sizes[i], 1);
        for (int at = 0; at < SIZE; at++) EXPECT(next[at] == 0);
        memset(next, 1, SIZE);
        GOOD(cuCtxSetCurrent, beside);
        GOOD(cuStreamSynchronize, its_stream);
        GOOD(cuCtxSetCurrent, context);
        expect_on_device(first, plain);
        GOOD(cuMemFreeHost, next);
        EXPECT(CALL(cuMemFreeHost, next) == 1);
    }
    GOOD(cuCtxDestroy_v2, beside);
    GOOD(cuCtxSetCurrent, context);
}

/* Small blocks share what the node registers, begin at pages, and are zero. */
static void small_blocks(int must_be_shared) {
    static unsigned char *blocks[500];
    for (int i = 0; i < 500; i++) {
        GOOD(cuMemHostAlloc, (void **)&blocks[i], (size_t)5, 1);
        EXPECT((uintptr_t)blocks[i] % 4096 == 0 && blocks[i][0] == 0 && blocks[i][4] == 0);
        EXPECT(!must_be_shared || is_shared(blocks[i]));
        memset(blocks[i], i, 5);
    }
    for (int i = 0; i < 500; i++) {
        EXPECT(blocks[i][0] == (unsigned char)i && blocks[i][4] == (unsigned char)i);
        GOOD(cuMemFreeHost, blocks[i]);
    }
}

int main(int count, char **arguments) {
    const char *kind = count > 1 ? arguments[1] : "";
    int shared = !strcmp(kind, "shared"), both = !strcmp(kind, "both");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int devices = 0;
    void *context, *module;
    unsigned char *more;
    GOOD(cuInit, 0);
    GOOD(cuDeviceGetCount, &devices);
    GOOD(cuDevicePrimaryCtxRetain, &context, 0);
    GOOD(cuCtxSetCurrent, context);
    GOOD(cuModuleLoadDataEx, &module, MODULE, 0, NULL, NULL);
    GOOD(cuModuleGetFunction, &sleeper, module, "sleep_ns");
    GOOD(cuStreamCreate, &stream, 1);
    GOOD(cuMemAlloc_v2, &first, (size_t)SIZE);
    GOOD(cuMemAlloc_v2, &second, (size_t)SIZE);
    GOOD(cuMemHostAlloc, (void **)&pinned, (size_t)SIZE, 1);
    GOOD(cuMemAllocHost_v2, (void **)&other, (size_t)SIZE);
    EXPECT(is_shared(pinned) == (shared || both) && is_shared(other) == (shared || both));
    if (both) {
        /* The node refuses what does not fit into the first arena. */
        GOOD(cuMemHostAlloc, (void **)&more, (size_t)(8 << 20), 1);
        EXPECT(!is_shared(more));
        GOOD(cuMemFreeHost, other);
        other = more;
    }
    bytes_arrive();
    late_copies_take_their_turn();
    a_read_is_seen_behind_it();
    host_copies_see_it();
    host_functions_see_it();
    rectangles_see_it();
    graphs_see_it();
    variables_take_it(module);
    if (devices > 1) another_device_uses_it(context);
    small_blocks(shared);
    freeing_spares_open_copies(context);
    GOOD(cuCtxSynchronize);
    GOOD(cuMemFreeHost, pinned);
    GOOD(cuMemFreeHost, other);
    GOOD(cuDevicePrimaryCtxRelease_v2, 0);
    printf("%d devices, %s\n", devices, kind);
    puts("Test PASSED");
    return 0;
}
