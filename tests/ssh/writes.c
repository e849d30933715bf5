/* Writes 4 MiB to the first device again and again for some seconds, and prints the MiB that it
 * writes in a second. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BYTES (4 << 20)
#define CHECK(call) \
    if ((call) != CL_SUCCESS) return fprintf(stderr, "failed: %s\n", #call), 1

static double now(void) {
    struct timespec it;
    clock_gettime(CLOCK_MONOTONIC, &it);
    return it.tv_sec + it.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    CHECK(clGetPlatformIDs(1, &platform, NULL));
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    CHECK(code);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    CHECK(code);
    cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &code);
    CHECK(code);
    char *from = calloc(1, BYTES), *back = malloc(BYTES);
    if (!from || !back) return 1;
    /* The first writes allocate. */
    for (int turn = 0; turn < 3; ++turn)
        CHECK(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, BYTES, from, 0, NULL, NULL));
    CHECK(clFinish(queue));
    double began = now(), end = began + seconds;
    int count = 0;
    while (now() < end) {
        from[count % BYTES] = (char)count;
        CHECK(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, BYTES, from, 0, NULL, NULL));
        CHECK(clFinish(queue));
        count += 1;
    }
    double took = now() - began;
    CHECK(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, BYTES, back, 0, NULL, NULL));
    for (int at = 0; at < BYTES; ++at)
        if (from[at] != back[at]) return fprintf(stderr, "wrong content\n"), 1;
    printf("%.0f\n", count * (BYTES / 1048576.0) / took);
    return 0;
}
