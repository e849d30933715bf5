/* A program of the driver interface on a GPU that its node drives through CUDA's own driver:
 * modules, addresses, variables, streams, events, errors. It loads the libcuda.so.1 that is found,
 * and needs no header of CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int CUresult;
typedef uint64_t ptr;

static const char *const MODULE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 8 .b8 table[64];\n"
    ".visible .entry add(\n"
    ".param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n"
    "ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb]; ld.param.u64 %d3, [pc]; ld.param.u32 %r1, [pn];\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;\n"
    "cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2; cvta.to.global.u64 %d3, %d3;\n"
    "mul.wide.u32 %d4, %r5, 4; add.s64 %d1, %d1, %d4; add.s64 %d2, %d2, %d4; add.s64 %d3, %d3, %d4;\n"
    "ld.global.u32 %r6, [%d1]; ld.global.u32 %r7, [%d2]; add.u32 %r8, %r6, %r7; st.global.u32 [%d3], %r8;\n"
    "done: ret;\n}\n";

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

enum { N = 1 << 20, BYTES = 4 * N };

static void add(void *module) {
    void *function, *stream, *start, *end;
    ptr a, b, c;
    unsigned *host = malloc(BYTES), n = N;
    GOOD(cuModuleGetFunction, &function, module, "add");
    GOOD(cuMemAlloc_v2, &a, (size_t)BYTES);
    GOOD(cuMemAlloc_v2, &b, (size_t)BYTES);
    GOOD(cuMemAlloc_v2, &c, (size_t)BYTES);
    GOOD(cuStreamCreate, &stream, 0);
    GOOD(cuEventCreate, &start, 0);
    GOOD(cuEventCreate, &end, 0);
    for (unsigned i = 0; i < N; i++) host[i] = i;
    GOOD(cuMemcpyHtoD_v2, a, host, (size_t)BYTES);
    for (unsigned i = 0; i < N; i++) host[i] = 10 * i;
    GOOD(cuMemcpyHtoD_v2, b, host, (size_t)BYTES);
    GOOD(cuMemsetD8_v2, c, (unsigned char)0, (size_t)BYTES);
    void *params[] = {&a, &b, &c, &n};
    GOOD(cuEventRecord, start, stream);
    GOOD(cuLaunchKernel, function, N / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL);
    GOOD(cuEventRecord, end, stream);
    GOOD(cuStreamSynchronize, stream);
    float ms = -1;
    GOOD(cuEventElapsedTime, &ms, start, end);
    EXPECT(ms >= 0 && ms < 60000);
    GOOD(cuMemcpyDtoH_v2, host, c, (size_t)BYTES);
    for (unsigned i = 0; i < N; i++) EXPECT(host[i] == 11 * i);
    /* From one place of the device to another, at a computed address. */
    GOOD(cuMemcpyDtoD_v2, a + 400, c, (size_t)4000);
    GOOD(cuMemcpyDtoH_v2, host, a + 400, (size_t)4000);
    for (unsigned i = 0; i < 1000; i++) EXPECT(host[i] == 11 * i);
    /* Blocks that are too large, and an address that is not allocated. */
    EXPECT(CALL(cuLaunchKernel, function, 1, 1, 1, 4096, 1, 1, 0, stream, params, NULL) == 1);
    EXPECT(CALL(cuMemcpyDtoH_v2, host, (ptr)0x1000, (size_t)4) == 1);
    int size = 0;
    GOOD(cuFuncGetAttribute, &size, 0, function);
    EXPECT(size > 0 && size <= 1024);
    GOOD(cuMemFree_v2, a);
    GOOD(cuMemFree_v2, b);
    GOOD(cuMemFree_v2, c);
    GOOD(cuStreamDestroy_v2, stream);
    free(host);
}

static void variables(void *module) {
    ptr table;
    size_t size;
    unsigned char bytes[64], back[64];
    GOOD(cuModuleGetGlobal_v2, &table, &size, module, "table");
    EXPECT(size == 64 && table);
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(3 * i);
    GOOD(cuMemcpyHtoD_v2, table, bytes, sizeof bytes);
    GOOD(cuMemcpyDtoH_v2, back, table, sizeof back);
    EXPECT(!memcmp(bytes, back, sizeof back));
    EXPECT(CALL(cuModuleGetGlobal_v2, &table, &size, module, "nothing") == 500);
}

/* Content of another device: each device has its own context and memory. */
static void across(void *first) {
    enum { SIZE = 100000 };
    void *second;
    ptr here, there;
    unsigned char *bytes = malloc(SIZE), *back = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i * 7 + i / 256);
    GOOD(cuDevicePrimaryCtxRetain, &second, 1);
    GOOD(cuMemAlloc_v2, &here, (size_t)SIZE);
    GOOD(cuCtxSetCurrent, second);
    GOOD(cuMemAlloc_v2, &there, (size_t)SIZE);
    GOOD(cuMemcpyHtoD_v2, there, bytes, (size_t)SIZE);
    GOOD(cuMemcpyPeer, here, first, there, second, (size_t)SIZE);
    GOOD(cuCtxSetCurrent, first);
    GOOD(cuMemcpyDtoH_v2, back, here, (size_t)SIZE);
    EXPECT(!memcmp(bytes, back, SIZE));
    GOOD(cuMemFree_v2, here);
    GOOD(cuDevicePrimaryCtxRelease_v2, 1);
    free(bytes);
    free(back);
}

/* Freed memory returns to the GPU: an allocation that does not fit beside it fits in its place. */
static void large(size_t first_bytes, size_t second_bytes) {
    ptr first, second, third;
    GOOD(cuMemAlloc_v2, &first, first_bytes);
    EXPECT(CALL(cuMemAlloc_v2, &second, second_bytes) == 2);
    GOOD(cuMemFree_v2, first);
    GOOD(cuMemAlloc_v2, &second, second_bytes);
    EXPECT(CALL(cuMemAlloc_v2, &third, first_bytes) == 2);
    GOOD(cuMemFree_v2, second);
    GOOD(cuMemAlloc_v2, &third, first_bytes);
    GOOD(cuMemFree_v2, third);
}

/* A context's end frees everything it had, including its modules' variables, which are not
 * allocations of the program. */
static void ended(void **context, int is_stand_in) {
    void *module;
    ptr table, address;
    size_t size, free_bytes, total;
    GOOD(cuModuleLoadDataEx, &module, MODULE, 0, NULL, NULL);
    GOOD(cuModuleGetGlobal_v2, &table, &size, module, "table");
    GOOD(cuDevicePrimaryCtxReset_v2, 0);
    GOOD(cuDevicePrimaryCtxRetain, context, 0);
    GOOD(cuCtxSetCurrent, *context);
    EXPECT(CALL(cuModuleUnload, module) == 400);
    GOOD(cuMemGetInfo_v2, &free_bytes, &total);
    EXPECT(free_bytes <= total);
    /* A GPU keeps memory of its own for a context. */
    if (is_stand_in) EXPECT(total - free_bytes < 4096);
    for (int i = 0; i < 100; i++) {
        GOOD(cuMemAlloc_v2, &address, (size_t)256);
        EXPECT(address != table);
    }
}

/* Reserves the device's address range when the program starts, so that the library finds no place
 * for its first arena. */
static void take_addresses(const char *at) {
    void *wanted = (void *)strtoull(at, NULL, 16);
    EXPECT(mmap(wanted, 128 << 20, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                0) == wanted);
}

int main(int count, char **arguments) {
    if (getenv("PENSTOCK_TEST_TAKEN")) take_addresses(getenv("PENSTOCK_TEST_TAKEN"));
    const char *wanted = count > 1 ? arguments[1] : "";
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int devices = 0, major = 0, threads = 0;
    char name[256];
    void *context, *module, *broken;
    GOOD(cuInit, 0);
    GOOD(cuDeviceGetCount, &devices);
    EXPECT(devices >= 1);
    GOOD(cuDeviceGetName, name, (int)sizeof name, 0);
    GOOD(cuDeviceGetAttribute, &major, 75, 0);
    GOOD(cuDeviceGetAttribute, &threads, 1, 0);
    printf("%d devices, the first is %s, capability %d, %d threads\n", devices, name, major,
           threads);
    EXPECT(major >= 5 && threads >= 256);
    EXPECT(strstr(name, wanted));
    GOOD(cuDevicePrimaryCtxRetain, &context, 0);
    GOOD(cuCtxSetCurrent, context);
    /* CU_LIMIT_MALLOC_HEAP_SIZE would change nothing on this device. */
    EXPECT(CALL(cuCtxSetLimit, 2, (size_t)(32 << 20)) == 215);
    char log[4096] = "";
    unsigned options[] = {5, 6};
    void *values[] = {log, (void *)sizeof log};
    CUresult refused =
        CALL(cuModuleLoadDataEx, &broken, ".version 7.0\n.target sm_70\n.address_size 64\nbroken\n",
             2, options, values);
    printf("a broken module: %d, %s\n", refused, log);
    EXPECT(refused == 218 && strlen(log) > 0);
    GOOD(cuModuleLoadDataEx, &module, MODULE, 0, NULL, NULL);
    add(module);
    variables(module);
    if (devices > 1) across(context);
    GOOD(cuModuleUnload, module);
    /* The stand-in has 128 MiB, of which 32 stay in use. */
    if (*wanted) large((size_t)50 << 20, (size_t)70 << 20);
    /* Handles and addresses after the end of a context are Penstock's promise, and not NVIDIA's. */
    if (dlsym(library, "penstock_libcuda")) ended(&context, *wanted != 0);
    GOOD(cuCtxSynchronize);
    GOOD(cuDevicePrimaryCtxRelease_v2, 0);
    puts("Test PASSED");
    return 0;
}
