/* wrong bytes in operation 9: 63 of 128 bytes are wrong, the first is byte 0: expected [63, 41, 75, 18], seen [98, e7, 67, a0].
 * Expected is what a sequential execution gives that respects CUDA's order of streams and events.
 * Seen on: CUDA (driver interface 13.0). Seed 114018054.
 *
 * cc -O1 NAME.c -ldl -lpthread; ./a.out [TIMES]
 * Exit status: 0 right in all runs, 1 wrong, 2 cannot be tried here. */
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

static const char *source =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    "\n"
    "// a[i] = pattern(seed, i)\n"
    ".visible .entry put(.param .u64 a, .param .u32 count, .param .u32 seed, .param .u32 spin)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %i, %n, %b, %x, %y;\n"
    "    .reg .b64 %a, %o;\n"
    "    mov.u32 %b, %ctaid.x;\n"
    "    mov.u32 %n, %ntid.x;\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mad.lo.u32 %i, %b, %n, %i;\n"
    "    ld.param.u32 %n, [count];\n"
    "    setp.ge.u32 %p, %i, %n;\n"
    "    @%p bra DONE;\n"
    "    ld.param.u32 %x, [seed];\n"
    "    mul.lo.u32 %y, %i, 0x9E3779B9;\n"
    "    xor.b32 %x, %x, %y;\n"
    "    shr.u32 %y, %x, 16;\n"
    "    xor.b32 %x, %x, %y;\n"
    "    mul.lo.u32 %x, %x, 0x85EBCA6B;\n"
    "    shr.u32 %y, %x, 13;\n"
    "    xor.b32 %x, %x, %y;\n"
    "    ld.param.u64 %a, [a];\n"
    "    mul.wide.u32 %o, %i, 4;\n"
    "    add.u64 %a, %a, %o;\n"
    "    st.global.u32 [%a], %x;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n"
    "\n"
    "// As put, but the first thread computes for some time before.\n"
    ".visible .entry slow(.param .u64 a, .param .u32 count, .param .u32 seed, .param .u32 spin)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %i, %n, %b, %x, %y, %s, %k, %z;\n"
    "    .reg .b64 %a, %o;\n"
    "    mov.u32 %b, %ctaid.x;\n"
    "    mov.u32 %n, %ntid.x;\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mad.lo.u32 %i, %b, %n, %i;\n"
    "    ld.param.u32 %n, [count];\n"
    "    setp.ge.u32 %p, %i, %n;\n"
    "    @%p bra DONE;\n"
    "    ld.param.u32 %x, [seed];\n"
    "    mov.u32 %z, 1;\n"
    "    setp.ne.u32 %p, %i, 0;\n"
    "    @%p bra STORE;\n"
    "    ld.param.u32 %s, [spin];\n"
    "    mov.u32 %k, 0;\n"
    "LOOP:\n"
    "    setp.ge.u32 %p, %k, %s;\n"
    "    @%p bra STORE;\n"
    "    mad.lo.u32 %z, %z, 1664525, %k;\n"
    "    shr.u32 %y, %z, 7;\n"
    "    xor.b32 %z, %z, %y;\n"
    "    add.u32 %k, %k, 1;\n"
    "    bra LOOP;\n"
    "STORE:\n"
    "    // The result is never used, but no compiler knows that.\n"
    "    setp.eq.u32 %p, %z, 305419896;\n"
    "    selp.u32 %z, 1, 0, %p;\n"
    "    add.u32 %x, %x, %z;\n"
    "    mul.lo.u32 %y, %i, 0x9E3779B9;\n"
    "    xor.b32 %x, %x, %y;\n"
    "    shr.u32 %y, %x, 16;\n"
    "    xor.b32 %x, %x, %y;\n"
    "    mul.lo.u32 %x, %x, 0x85EBCA6B;\n"
    "    shr.u32 %y, %x, 13;\n"
    "    xor.b32 %x, %x, %y;\n"
    "    ld.param.u64 %a, [a];\n"
    "    mul.wide.u32 %o, %i, 4;\n"
    "    add.u64 %a, %a, %o;\n"
    "    st.global.u32 [%a], %x;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n"
    "\n"
    "// a[i] = a[i] * 1664525 + (b[i] ^ seed) + 1013904223\n"
    ".visible .entry mix(.param .u64 a, .param .u64 b, .param .u32 count, .param .u32 seed)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %i, %n, %c, %x, %y, %s;\n"
    "    .reg .b64 %a, %b, %o;\n"
    "    mov.u32 %c, %ctaid.x;\n"
    "    mov.u32 %n, %ntid.x;\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mad.lo.u32 %i, %c, %n, %i;\n"
    "    ld.param.u32 %n, [count];\n"
    "    setp.ge.u32 %p, %i, %n;\n"
    "    @%p bra DONE;\n"
    "    mul.wide.u32 %o, %i, 4;\n"
    "    ld.param.u64 %a, [a];\n"
    "    add.u64 %a, %a, %o;\n"
    "    ld.param.u64 %b, [b];\n"
    "    add.u64 %b, %b, %o;\n"
    "    ld.param.u32 %s, [seed];\n"
    "    ld.global.u32 %x, [%a];\n"
    "    ld.global.u32 %y, [%b];\n"
    "    xor.b32 %y, %y, %s;\n"
    "    mad.lo.u32 %x, %x, 1664525, %y;\n"
    "    add.u32 %x, %x, 1013904223;\n"
    "    st.global.u32 [%a], %x;\n"
    "DONE:\n"
    "    ret;\n"
    "}\n";
static handle context0;
__attribute__((unused)) static handle kernels0[3];
static handle stream1;
static memory mem3, mem5;
static unsigned char *area0, *area1, *area2;
static const struct look look9_0[] = {
    {0, 0x18754163}, {4, 0x29687a68}, {8, 0x35c4fb51}, {12, 0xb449e382}, {16, 0x3aeabb07},
    {20, 0xbd7e1e28}, {24, 0x9e290292}, {28, 0x6d701bf9}, {32, 0x0d8ac91f}, {36, 0x5259e16e},
    {40, 0xb7b18fde}, {44, 0xa84078bd}, {48, 0x2192da96}, {52, 0x172ca493}, {56, 0xf0b9f85a},
    {60, 0x82f45c3c}, {64, 0x17d320f2}, {68, 0xf020cde3}, {72, 0x5c21ed1b}, {76, 0x688d98ae},
    {80, 0x471861d6}, {84, 0x080e36f7}, {88, 0xc64e9b00}, {92, 0x38e0ee8a}, {96, 0x92c9bd2b},
    {100, 0xae666eea}, {104, 0x584eb9b4}, {108, 0xee2619b6}, {112, 0xcf006430}, {116, 0x88fa06c2},
    {120, 0x1858e280}, {124, 0x24566205},
};

static void *thread0(void *unused) {
    (void)unused;
    CODE(0, cuCtxSetCurrent(context0));
    CODE(0, cuStreamCreate(&stream1, 0));
    CODE(1, cuMemAllocAsync(&mem3, 128, stream1));
    CODE(2, launch(kernels0[0], mem3 + 0, 0, 32, 0x9080daadu, 0, stream1));
    CODE(3, cuMemcpyDtoHAsync_v2(area1 + 0, mem3 + 0, 64, stream1));
    CODE(4, cuMemcpyHtoDAsync_v2(mem3 + 0, area1 + 0, 64, LEGACY));
    CODE(5, cuMemAllocAsync(&mem5, 64, stream1));
    CODE(6, cuStreamSynchronize(stream1));
    store(area1 + 0, 64, 0xc8a097cdu);
    CODE(8, cuMemcpyDtoH_v2(area2 + 0, mem3 + 0, 128));
    look_at(9, area2 + 0, look9_0, sizeof look9_0 / sizeof *look9_0);
    return NULL;
}

static void run(void) {
    open_driver(1);
    context0 = new_context(0, 1, kernels0);
    area0 = new_array(128);
    area1 = new_pinned(64);
    area2 = new_array(128);
    thread0(NULL);
    SETUP(cuCtxSetCurrent(context0));
    SETUP(cuCtxSynchronize());
}
static const char *wanted_platform;

static void hangs(int number) {
    static const char text[] = "WRONG: the program hangs\n";
    (void)number;
    if (write(1, text, sizeof text - 1)) {}
    _exit(1);
}
int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 20;
    if (argc > 2) wanted_platform = argv[2];
    for (int i = 0; i < runs; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            signal(SIGALRM, hangs);
            alarm(20);
            run();
            fflush(stdout);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0) return 2;
        if (WIFSIGNALED(status)) {
            printf("WRONG: run %d ended by signal %d\n", i, WTERMSIG(status));
            return 1;
        }
        if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
    }
    printf("right in %d runs\n", runs);
    return 0;
}
