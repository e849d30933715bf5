/* The overhead of libWater per command: empty kernels through wtr_run_kernel, and the same through
 * OpenCL's clEnqueueNDRangeKernel, alternating in one run. Prints one line of JSON. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wtr_ext.h>

enum { COMMANDS = 4000, ROUNDS = 9, WINDOW = 500 };

static const char *source =
    "__kernel void nothing(__global int *p) { if (p[0] == 123456789) p[0] = 1; }";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(cl_int code, const char *what) {
    if (code != CL_SUCCESS) {
        fprintf(stderr, "wtrbench: %s failed with %d\n", what, (int)code);
        exit(1);
    }
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof *values, order);
    return values[ROUNDS / 2];
}

typedef struct {
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem mem;
} plain;

static plain open_plain(void) {
    plain p;
    cl_platform_id platforms[16];
    cl_uint count = 0;
    cl_device_id device;
    cl_int code;
    check(clGetPlatformIDs(16, platforms, &count), "clGetPlatformIDs");
    check(count ? clGetDeviceIDs(platforms[0], CL_DEVICE_TYPE_ALL, 1, &device, NULL)
                : CL_DEVICE_NOT_FOUND,
          "clGetDeviceIDs");
    p.context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    p.queue = clCreateCommandQueue(
        p.context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE,
        &code);
    check(code, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(p.context, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    p.kernel = clCreateKernel(program, "nothing", &code);
    check(code, "clCreateKernel");
    p.mem = clCreateBuffer(p.context, CL_MEM_READ_WRITE, 64, NULL, &code);
    check(code, "clCreateBuffer");
    return p;
}

/* Runs a chain of empty kernels, each of which waits for the previous one. Returns the seconds per
 * kernel. */
static double run_plain(const plain *p) {
    static cl_event events[WINDOW];
    const size_t one = 1;
    double began = now();
    for (int done = 0; done < COMMANDS; done += WINDOW) {
        for (int i = 0; i < WINDOW; i++) {
            check(clSetKernelArg(p->kernel, 0, sizeof p->mem, &p->mem), "clSetKernelArg");
            check(clEnqueueNDRangeKernel(p->queue, p->kernel, 1, NULL, &one, NULL, i > 0,
                                         i > 0 ? &events[i - 1] : NULL, &events[i]),
                  "clEnqueueNDRangeKernel");
        }
        check(clFlush(p->queue), "clFlush");
        check(clWaitForEvents(1, &events[WINDOW - 1]), "clWaitForEvents");
        for (int i = 0; i < WINDOW; i++) check(clReleaseEvent(events[i]), "clReleaseEvent");
    }
    return (now() - began) / COMMANDS;
}

static double run_water(wtr_kernel *kernel, wtr_buffer *buffer) {
    static wtr_event *events[WINDOW];
    const size_t one = 1;
    double began = now();
    for (int done = 0; done < COMMANDS; done += WINDOW) {
        memset(events, 0, sizeof events);
        for (int i = 0; i < WINDOW; i++) {
            wtr_run_kernel(kernel, 1, &one, NULL, i > 0 ? &events[i - 1] : NULL, &events[i], 1,
                           WTR_BUF(buffer));
        }
        wtr_wait_for_events(1, &events[WINDOW - 1]);
        wtr_release_event_array(WINDOW, events);
    }
    return (now() - began) / COMMANDS;
}

int main(void) {
    plain p = open_plain();
    wtr_init_devices("SELECT TOP 1");
    wtr_device *device = wtr_get_device("SELECT POS 1");
    wtr_kernel *kernel = wtr_create_kernel(device, source, "nothing", "", WTR_SOURCE_STRING, NULL);
    wtr_buffer *buffer = wtr_create_buffer(device, WTR_MEM_READ_WRITE, 64, NULL);
    double own[ROUNDS], water[ROUNDS];
    run_plain(&p);
    run_water(kernel, buffer);
    for (int round = 0; round < ROUNDS; round++) {
        own[round] = run_plain(&p);
        water[round] = run_water(kernel, buffer);
    }
    wtr_release_buffer(buffer, NULL, NULL);
    wtr_release_kernel(kernel, NULL, NULL);
    wtr_release_devices();
    double a = median(own), b = median(water);
    printf(
        "{\"measure\":\"empty kernels in a chain\",\"opencl_us\":%.2f,\"libwater_us\":%.2f,\"overhead\":%.2f,\"bar\":2.0}\n",
        a * 1e6, b * 1e6, (b - a) / a);
    return 0;
}
