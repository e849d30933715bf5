/* What the two hand-written OpenCL programs have in common: the first device, checked calls,
 * options, time. */
#ifndef PENSTOCK_BENCH_CUDA_OPENCL_H
#define PENSTOCK_BENCH_CUDA_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline void check(cl_int code, const char *call, int line) {
    if (code == CL_SUCCESS) return;
    fprintf(stderr, "line %d: %s gave %d\n", line, call, code);
    exit(1);
}
#define CHECK(call) check((call), #call, __LINE__)

struct opencl {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    char name[256];
};

static inline struct opencl opencl_open(void) {
    struct opencl cl;
    cl_platform_id platform;
    cl_int code;
    CHECK(clGetPlatformIDs(1, &platform, NULL));
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &cl.device, NULL));
    CHECK(clGetDeviceInfo(cl.device, CL_DEVICE_NAME, sizeof cl.name, cl.name, NULL));
    cl.context = clCreateContext(NULL, 1, &cl.device, NULL, NULL, &code);
    CHECK(code);
    cl.queue = clCreateCommandQueue(cl.context, cl.device, 0, &code);
    CHECK(code);
    return cl;
}

static inline cl_kernel opencl_kernel(struct opencl *cl, const char *source, const char *options,
                                      const char *name) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(cl->context, 1, &source, NULL, &code);
    CHECK(code);
    if (clBuildProgram(program, 1, &cl->device, options, NULL, NULL) != CL_SUCCESS) {
        char log[8192] = "";
        clGetProgramBuildInfo(program, cl->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        fprintf(stderr, "%s\n", log);
        exit(1);
    }
    cl_kernel kernel = clCreateKernel(program, name, &code);
    CHECK(code);
    return kernel;
}

/* A buffer with `bytes` bytes, from `data` if that is not NULL. */
static inline cl_mem opencl_buffer(struct opencl *cl, size_t bytes, const void *data) {
    cl_int code;
    cl_mem buffer = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    CHECK(code);
    if (data != NULL)
        CHECK(clEnqueueWriteBuffer(cl->queue, buffer, CL_TRUE, 0, bytes, data, 0, NULL, NULL));
    return buffer;
}

static inline double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* The mean time of `repeats` launches in a row, after one that is not counted. */
static inline double opencl_time(struct opencl *cl, cl_kernel kernel, cl_uint dimensions,
                                 const size_t *global, const size_t *local, size_t repeats) {
    CHECK(
        clEnqueueNDRangeKernel(cl->queue, kernel, dimensions, NULL, global, local, 0, NULL, NULL));
    CHECK(clFinish(cl->queue));
    const double began_ms = now_ms();
    for (size_t repeat = 0; repeat < repeats; repeat++)
        CHECK(clEnqueueNDRangeKernel(cl->queue, kernel, dimensions, NULL, global, local, 0, NULL,
                                     NULL));
    CHECK(clFinish(cl->queue));
    return (now_ms() - began_ms) / (double)repeats;
}

static inline float random_between(unsigned *state, float low, float high) {
    *state = *state * 1664525U + 1013904223U;
    return low + (high - low) * (float)(*state >> 8) / 16777216.0F;
}

/* `--size N` and `--repeats N`. */
static inline void opencl_options(int argc, char **argv, size_t *size, size_t *repeats) {
    for (int at = 1; at + 1 < argc; at += 2) {
        size_t *const value = strcmp(argv[at], "--size") == 0      ? size
                              : strcmp(argv[at], "--repeats") == 0 ? repeats
                                                                   : NULL;
        if (value != NULL) *value = strtoull(argv[at + 1], NULL, 10);
        if (value == NULL || *value == 0) {
            fprintf(stderr, "%s [--size N] [--repeats N]\n", argv[0]);
            exit(2);
        }
    }
}

static inline int verdict(int passed) {
    puts(passed ? "Test passed" : "Test failed");
    return passed ? 0 : 1;
}

#endif
