/* wrong bytes in operation 10: area 4 at byte 40: expected [00, 00, 00, 00], seen [01, 19, 76, 28]; 380 of 512 bytes are wrong.
 * Expected is what a sequential execution gives that respects the order of the commands: the expected word 0x00000000 is first written by operation 7.
 * Seen on: Penstock (OpenCL 3.0 Penstock 0.1). Seed 112023495.
 *
 * cc -O1 NAME.c -lOpenCL -lpthread; ./a.out [TIMES [PART OF THE PLATFORM'S NAME]]
 * Exit status: 0 right in all runs, 1 wrong, 2 cannot be tried here. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct look { unsigned at, word; };
struct callback { atomic_int count; cl_int status; cl_event *sets; };
static const char *wanted_platform = "";
static cl_device_id devices[64];
static cl_uint device_count;
static cl_int rc;
static const char *source;

__attribute__((unused)) static void wrong(int op, const char *what, long expected, long seen) {
    printf("WRONG: operation %d: %s: expected %ld, seen %ld\n", op, what, expected, seen);
    fflush(stdout);
    _exit(1);
}
#define CODE(op, call, code) do { cl_int c_ = (call); if (c_ != (code)) wrong(op, #call, code, c_); } while (0)
#define MADE(op) do { if (rc != CL_SUCCESS) wrong(op, "error code", 0, rc); } while (0)
#define SETUP(call) do { cl_int c_ = (call); if (c_ != CL_SUCCESS) { printf("%s = %d\n", #call, c_); _exit(2); } } while (0)

static void open_platform(void) {
    cl_platform_id all[16], chosen = NULL;
    cl_uint count = 0;
    SETUP(clGetPlatformIDs(16, all, &count));
    for (cl_uint i = 0; i < count && chosen == NULL; i++) {
        char name[256] = "";
        clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
        if (strstr(name, wanted_platform) != NULL) chosen = all[i];
    }
    if (chosen == NULL) { printf("there is no such platform\n"); _exit(2); }
    SETUP(clGetDeviceIDs(chosen, CL_DEVICE_TYPE_ALL, 64, devices, &device_count));
}
static cl_device_id device(cl_uint index) {
    if (index >= device_count) { printf("device %u is not there\n", index); _exit(2); }
    return devices[index];
}
static cl_context new_context(cl_uint count, const cl_device_id *list, cl_program *program) {
    cl_context context = clCreateContext(NULL, count, list, NULL, NULL, &rc);
    SETUP(rc);
    *program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
    SETUP(rc);
    SETUP(clBuildProgram(*program, count, list, "", NULL, NULL));
    return context;
}
static unsigned char *new_array(size_t len) {
    void *array = NULL;
    if (posix_memalign(&array, 4096, len) != 0) _exit(2);
    return memset(array, 0, len);
}
__attribute__((unused)) static cl_kernel new_kernel(cl_program program, const char *name) {
    cl_kernel kernel = clCreateKernel(program, name, &rc);
    SETUP(rc);
    return kernel;
}
__attribute__((unused)) static void argument(cl_kernel kernel, cl_uint index, unsigned value) {
    SETUP(clSetKernelArg(kernel, index, sizeof value, &value));
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
__attribute__((unused)) static void one_word(int op, const unsigned char *at, size_t words, const unsigned *allowed, size_t count) {
    unsigned first, word;
    memcpy(&first, at, 4);
    for (size_t i = 1; i < words; i++) {
        memcpy(&word, at + i * 4, 4);
        if (word != first) wrong(op, "the read saw words of several fills", first, word);
    }
    for (size_t i = 0; i < count; i++) if (allowed[i] == first) return;
    wrong(op, "the read saw a word that cannot be there", 0, first);
}
__attribute__((unused)) static void await(atomic_int *signal_) {
    while (!atomic_load(signal_)) sched_yield();
}
__attribute__((unused)) static void times(int op, cl_event event) {
    cl_ulong t[4] = {0};
    for (cl_uint i = 0; i < 4; i++)
        CODE(op, clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof t[i], &t[i], NULL), CL_SUCCESS);
    if (t[0] > t[1] || t[1] > t[2] || t[2] > t[3]) wrong(op, "the times are not in order", (long)t[0], (long)t[3]);
}
__attribute__((unused)) static void CL_CALLBACK ended(cl_event event, cl_int status, void *data) {
    struct callback *callback = data;
    (void)event;
    if (callback->sets != NULL) clSetUserEventStatus(*callback->sets, status < 0 ? status : CL_COMPLETE);
    callback->status = status;
    atomic_fetch_add(&callback->count, 1);
}
static const char *source =
    "uint pattern(uint seed, uint index) {\n"
    "    uint x = seed ^ (index * 0x9E3779B9u);\n"
    "    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;\n"
    "    return x ^ (x >> 13);\n"
    "}\n"
    "kernel void do_put(global uint *a, uint a_at, uint count, uint seed) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    if (i < count) a[a_at + i] = pattern(seed, i);\n"
    "}\n"
    "kernel void do_slow(global uint *a, uint a_at, uint count, uint seed, uint spin) {\n"
    "    uint i = (uint)get_global_id(0), x = seed;\n"
    "    if (i == 0) for (uint j = 0; j < spin; j++) x = x * 1664525u + (j ^ (x >> 7));\n"
    "    if (i < count) a[a_at + i] = pattern(seed, i) + (x == 0x12345678u && spin > 0x7FFFFFFFu ? 1u : 0u);\n"
    "}\n"
    "kernel void do_cast(global const uint *a, uint a_at, uint count, uint seed) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    if (i < count) ((global uint *)a)[a_at + i] = pattern(seed, i);\n"
    "}\n"
    "kernel void do_mix(global uint *a, global const uint *b, uint a_at, uint b_at, uint count, uint seed) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    if (i < count) a[a_at + i] = a[a_at + i] * 1664525u + (b[b_at + i] ^ seed) + 1013904223u;\n"
    "}\n"
    "kernel void do_mix_plain(global uint *a, global uint *b, uint a_at, uint b_at, uint count, uint seed) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    if (i < count) a[a_at + i] = a[a_at + i] * 1664525u + (b[b_at + i] ^ seed) + 1013904223u;\n"
    "}\n"
    "kernel void do_too_big(global uint *source, global uint *scratch, local uint *memory, uint seed) {\n"
    "    memory[0] = source[0];\n"
    "    if (seed == 0u) source[0] = memory[0] + 1u;\n"
    "    scratch[0] = seed;\n"
    "}\n";
static cl_context context0, context1;
static cl_program program0, program1;
static cl_command_queue queue11, queue12;
static cl_mem mem15;
static cl_event event24, event28;
static unsigned char *area0, *area1, *area2, *area3, *area4;
static const struct look look10[] = {
    {36, 0x00000000}, {40, 0x00000000}, {44, 0x00000000}, {48, 0x00000000}, {52, 0x00000000},
    {56, 0x00000000}, {60, 0x00000000}, {64, 0x00000000}, {68, 0x00000000}, {72, 0x00000000},
    {76, 0x00000000}, {96, 0x00000000}, {116, 0x00000000}, {136, 0x00000000}, {156, 0x00000000},
    {176, 0x00000000}, {196, 0x00000000}, {216, 0x00000000}, {236, 0x00000000}, {256, 0x00000000},
    {276, 0x00000000}, {296, 0x00000000}, {316, 0x00000000}, {336, 0x00000000}, {356, 0x00000000},
    {376, 0x00000000}, {396, 0x00000000}, {416, 0x00000000}, {436, 0x00000000}, {456, 0x00000000},
    {476, 0x00000000}, {484, 0x00000000}, {488, 0x00000000}, {492, 0x00000000}, {496, 0x00000000},
};

static void *thread0(void *unused) {
    (void)unused;
    queue11 = clCreateCommandQueue(context1, device(1), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &rc); MADE(0);
    queue12 = clCreateCommandQueue(context1, device(1), 0, &rc); MADE(1);
    mem15 = clCreateBuffer(context1, CL_MEM_COPY_HOST_PTR, 512, area2 + 396, &rc); MADE(2);
    CODE(3, clEnqueueFillBuffer(queue11, mem15, &(cl_uint){0x28761901u}, 4, 40, 380, 0, NULL, NULL), CL_SUCCESS);
    CODE(4, clEnqueueBarrierWithWaitList(queue11, 0, NULL, NULL), CL_SUCCESS);
    CODE(5, clEnqueueMigrateMemObjects(queue11, 1, (cl_mem[]){mem15}, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, &event24), CL_SUCCESS);
    CODE(6, clFlush(queue11), CL_SUCCESS);
    CODE(7, clEnqueueWriteBuffer(queue12, mem15, CL_FALSE, 36, 466, area1 + 512, 1, (cl_event[]){event24}, &event28), CL_SUCCESS);
    CODE(8, clFlush(queue12), CL_SUCCESS);
    CODE(9, clEnqueueReadBuffer(queue11, mem15, CL_TRUE, 0, 512, area4, 1, (cl_event[]){event28}, NULL), CL_SUCCESS);
    look_at(10, area4, look10, sizeof look10 / sizeof *look10);
    return NULL;
}

static void run(void) {
    open_platform();
    context0 = new_context(1, (cl_device_id[]){device(1)}, &program0);
    context1 = new_context(1, (cl_device_id[]){device(1)}, &program1);
    area0 = new_array(1024);
    area1 = new_array(1024);
    area2 = new_array(1024);
    area3 = new_array(64);
    area4 = new_array(2048);
    thread0(NULL);
    if (event24 != NULL) clReleaseEvent(event24);
    if (event28 != NULL) clReleaseEvent(event28);
    clReleaseMemObject(mem15);
    clReleaseCommandQueue(queue11);
    clReleaseCommandQueue(queue12);
}

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
