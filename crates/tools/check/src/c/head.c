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
