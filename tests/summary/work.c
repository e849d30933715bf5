/* A program whose commands are known: work MODE. Its device is the simulated one.
 *
 * Mode "work": ten launches, a buffer with content and one without, a build, and three blocking
 * reads, two blocking writes, a map, a copy and a fill of the buffers. Ends with status 5.
 *
 * Mode "launches": ten thousand launches and a wait, eleven times. Prints the seconds of the
 * fastest.
 *
 * Mode "apart": a buffer is written on the first device and read on the last one.
 *
 * Mode "child": as "work", with a child before the pool is used, which does the work, too, and one
 * after that, which calls exit.
 *
 * Mode "lost": says "ready", waits for a line, and uses the pool until that fails. Ends with 3.
 *
 * Mode "nothing": does not use the pool.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS 1024
#define BYTES (WORDS * sizeof(cl_uint))

static cl_device_id devices[8];
static cl_uint count;
static cl_context context;
static cl_kernel scale;

static void must(int ok, const char *what) {
    if (ok) return;
    printf("failed: %s\n", what);
    exit(1);
}

static cl_command_queue queue_of(cl_uint device) {
    cl_int code;
    cl_command_queue queue =
        clCreateCommandQueueWithProperties(context, devices[device], NULL, &code);
    must(code == CL_SUCCESS, "queue");
    return queue;
}

static void begin(void) {
    cl_platform_id platform;
    must(clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS, "platform");
    must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CUSTOM, 8, devices, &count) == CL_SUCCESS,
         "devices");
    cl_int code;
    context = clCreateContext(NULL, count, devices, NULL, NULL, &code);
    must(code == CL_SUCCESS, "context");
    const char *source = "penstock null scale";
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    must(code == CL_SUCCESS, "program");
    must(clBuildProgram(program, 0, NULL, NULL, NULL, NULL) == CL_SUCCESS, "build");
    scale = clCreateKernel(program, "scale", &code);
    must(code == CL_SUCCESS, "kernel");
}

static cl_mem buffer_of(const void *content) {
    cl_int code;
    cl_mem_flags flags = content ? CL_MEM_COPY_HOST_PTR : 0;
    cl_mem buffer = clCreateBuffer(context, flags, BYTES, (void *)content, &code);
    must(code == CL_SUCCESS, "buffer");
    cl_uint one = 1;
    must(clSetKernelArg(scale, 0, sizeof buffer, &buffer) == CL_SUCCESS, "argument");
    must(clSetKernelArg(scale, 1, sizeof one, &one) == CL_SUCCESS, "factor");
    return buffer;
}

static cl_int launch(cl_command_queue queue) {
    size_t all = WORDS;
    return clEnqueueNDRangeKernel(queue, scale, 1, NULL, &all, NULL, 0, NULL, NULL);
}

static void work(void) {
    static cl_uint words[WORDS];
    cl_command_queue queue = queue_of(0);
    cl_mem other = buffer_of(NULL), buffer = buffer_of(words);
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < 10; i++) code |= launch(queue);
    for (int i = 0; i < 3; i++)
        code |= clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 64, words, 0, NULL, NULL);
    for (int i = 0; i < 2; i++)
        code |= clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 128, words, 0, NULL, NULL);
    code |= clEnqueueCopyBuffer(queue, buffer, other, 0, 0, BYTES, 0, NULL, NULL);
    code |= clEnqueueFillBuffer(queue, other, words, 4, 0, BYTES, 0, NULL, NULL);
    code |= clFinish(queue);
    void *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0,
                                      256, 0, NULL, NULL, &code);
    must(mapped && code == CL_SUCCESS, "map");
    code |= clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL);
    must((code | clFinish(queue)) == CL_SUCCESS, "work");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void launches(void) {
    cl_command_queue queue = queue_of(0);
    buffer_of(NULL);
    double fastest = 1e9;
    for (int turn = 0; turn < 11; turn++) {
        double since = seconds();
        for (int i = 0; i < 10000; i++) must(launch(queue) == CL_SUCCESS, "launch");
        double sent = seconds() - since;
        must(clFinish(queue) == CL_SUCCESS, "finish");
        if (sent < fastest) fastest = sent;
    }
    printf("%.9f\n", fastest);
}

static void apart(void) {
    static cl_uint words[WORDS];
    cl_command_queue first = queue_of(0), last = queue_of(count - 1);
    cl_mem buffer = buffer_of(NULL);
    cl_int code = clEnqueueWriteBuffer(first, buffer, CL_TRUE, 0, BYTES, words, 0, NULL, NULL);
    code |= clFinish(first);
    code |= clEnqueueReadBuffer(last, buffer, CL_TRUE, 0, BYTES, words, 0, NULL, NULL);
    must(code == CL_SUCCESS, "transfer");
}

static void child(int works) {
    pid_t pid = fork();
    if (pid == 0) {
        if (works) begin(), work();
        exit(0);
    }
    int status;
    must(waitpid(pid, &status, 0) == pid && status == 0, "child");
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "nothing")) return 6;
    if (!strcmp(mode, "child")) child(1);
    begin();
    if (!strcmp(mode, "launches")) return launches(), 0;
    if (!strcmp(mode, "apart")) return apart(), 0;
    work();
    if (!strcmp(mode, "child")) child(0);
    if (strcmp(mode, "lost")) return 5;
    printf("ready\n");
    fflush(stdout);
    getchar();
    cl_command_queue queue = queue_of(0);
    while (launch(queue) == CL_SUCCESS && clFinish(queue) == CL_SUCCESS) {}
    return 3;
}
