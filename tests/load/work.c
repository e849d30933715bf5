// One of many programs that start together: it compiles a kernel of its own, computes, and checks
// the result.
//
//   work NUMBER
//
// It prints one line: the seconds on the monotonic clock at which the platform was there, at which
// the kernel began to compute, and at which the result was right. The exit status is 1 where
// anything failed; standard error then tells what.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT 4096
#define DEVICES_MAX 64

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check(cl_int status, const char *what) {
    if (status != CL_SUCCESS) {
        fprintf(stderr, "work: %s: %d\n", what, status);
        exit(1);
    }
}

// The number makes each source another one, so that no driver's cache saves the compilation.
static cl_program build(cl_context context, cl_device_id device, unsigned number) {
    char source[1024];
    snprintf(
        source, sizeof source,
        "kernel void twist(global uint *out, uint by) {\n"
        "    uint at = get_global_id(0), word = at ^ %uu;\n"
        "    for (uint turn = 0; turn < 64; turn++) word = word * 1664525u + 1013904223u + (word >> 7) + by;\n"
        "    out[at] = word;\n"
        "}\n",
        number);
    const char *text = source;
    cl_int status;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &status);
    check(status, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    return program;
}

static unsigned expected(unsigned at, unsigned number, unsigned by) {
    unsigned word = at ^ number;
    for (unsigned turn = 0; turn < 64; turn++)
        word = word * 1664525u + 1013904223u + (word >> 7) + by;
    return word;
}

int main(int argc, char **argv) {
    unsigned number = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    cl_platform_id platform;
    cl_device_id devices[DEVICES_MAX];
    cl_uint count = 0;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices, &count),
          "clGetDeviceIDs");
    double there = now_s();
    cl_device_id device = devices[number % count];
    cl_int status;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &status);
    check(status, "clCreateCommandQueueWithProperties");
    cl_kernel kernel = clCreateKernel(build(context, device, number), "twist", &status);
    check(status, "clCreateKernel");
    cl_mem out = clCreateBuffer(context, CL_MEM_WRITE_ONLY, COUNT * sizeof(cl_uint), NULL, &status);
    check(status, "clCreateBuffer");
    cl_uint by = 17 + number;
    check(clSetKernelArg(kernel, 0, sizeof out, &out), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof by, &by), "clSetKernelArg");
    double began = now_s();
    size_t items = COUNT;
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
    static cl_uint result[COUNT];
    check(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    for (unsigned at = 0; at < COUNT; at++) {
        if (result[at] != expected(at, number, by)) {
            fprintf(stderr, "work: word %u is %u and should be %u\n", at, result[at],
                    expected(at, number, by));
            return 1;
        }
    }
    printf("%.6f %.6f %.6f\n", there, began, now_s());
    return 0;
}
