/* A token that goes round all devices, from kernel to kernel: token_ring [ROUNDS]
 *
 * The global buffer has a part on each device (PE). A kernel runs on every PE at the same time; the
 * one that gets the token adds one to it, puts it into the next PE's part, and signals. Nothing
 * returns to the host until all rounds are over.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <CL/cl_ext_penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PES_MAX 64

/* The layout of each part: the signal in the first line of 64 bytes, the token and the status in
 * lines of their own. */
#define TOKEN 64
#define STATUS 128
#define PART_BYTES 4096

static const char *const source =
    "#include <ggas.h>\n"
    "kernel void ring(global ggas_heap_t *heap, const ulong rounds) {\n"
    "    const ggas_t g = ggas_open(heap);\n"
    "    const uint me = ggas_my_pe(g), n = ggas_n_pes(g), next = (me + 1) % n;\n"
    /* The own part is ordinary memory. */
    "    volatile global ulong *token = (volatile global ulong *)ggas_ptr(g, 64, me);\n"
    "    global long *result = (global long *)ggas_ptr(g, 128, me);\n"
    "    int status = GGAS_OK;\n"
    "    for (ulong round = 1; round <= rounds && status == GGAS_OK; round++) {\n"
    /* PE 0 begins; after that each waits for its predecessor. Signals only grow, so none has to be
       set back. */
    "        if (me != 0 || round > 1) status = ggas_wait_until(g, 0, GGAS_CMP_GE, me == 0 ? round - 1 : round);\n"
    "        if (status != GGAS_OK) break;\n"
    "        *token += 1;\n"
    /* The bytes are there before the signal is seen. */
    "        status = ggas_put_signal(g, 64, 64, 8, 0, round, next);\n"
    "    }\n"
    "    if (me == 0 && status == GGAS_OK) status = ggas_wait_until(g, 0, GGAS_CMP_GE, rounds);\n"
    "    *result = status;\n"
    "}\n";

static void check(cl_int code, const char *what) {
    if (code == CL_SUCCESS) return;
    fprintf(stderr, "token_ring: %s failed with %d\n", what, code);
    exit(1);
}

/* Refusals come with a sentence. */
static void CL_CALLBACK notified(const char *text, const void *info, size_t size, void *user) {
    (void)info, (void)size, (void)user;
    fprintf(stderr, "token_ring: %s\n", text);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Prints by which path each PE reaches the next one. Returns whether all have ended well. */
static int tell_paths(const struct penstock_global_buffer_functions *heaps, cl_mem heap, cl_uint n,
                      const cl_device_id *devices, const cl_command_queue *queues) {
    cl_uint paths[PES_MAX * PES_MAX];
    static const char *const names[] = {"?", "itself", "shared memory", "the proxy"};
    check(heaps->info(heap, CL_GLOBAL_BUFFER_PATHS_PENSTOCK, sizeof paths, paths, NULL),
          "clGetGlobalBufferInfoPENSTOCK");
    for (cl_uint pe = 0; pe < n; pe++) {
        /* A read in a device's queue is one of its part. */
        cl_long status = 0;
        char name[128] = "";
        check(clEnqueueReadBuffer(queues[pe], heap, CL_TRUE, STATUS, sizeof status, &status, 0,
                                  NULL, NULL),
              "reading");
        check(clGetDeviceInfo(devices[pe], CL_DEVICE_NAME, sizeof name - 1, name, NULL),
              "clGetDeviceInfo");
        printf("PE %u: %.40s, to PE %u by %s, status %ld\n", pe, name, (pe + 1) % n,
               names[paths[pe * n + (pe + 1) % n] & 3], (long)status);
        if (status != 0) return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    const cl_ulong rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    cl_platform_id platform;
    cl_device_id devices[PES_MAX];
    cl_uint n = 0;
    cl_int code;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, PES_MAX, devices, &n), "clGetDeviceIDs");
    if (n > PES_MAX) n = PES_MAX;
    struct penstock_global_buffer_functions heaps;
    check(penstock_find_global_buffer_functions(platform, &heaps),
          "finding cl_penstock_global_buffer: run me with `penstock run`;");

    cl_context context = clCreateContext(NULL, n, devices, notified, NULL, &code);
    check(code, "clCreateContext");
    cl_command_queue queues[PES_MAX];
    for (cl_uint pe = 0; pe < n; pe++) {
        queues[pe] = clCreateCommandQueue(context, devices[pe], 0, &code);
        check(code, "clCreateCommandQueue");
    }
    cl_mem heap = heaps.create(context, n, devices, PART_BYTES, NULL, &code);
    check(code, "clCreateGlobalBufferPENSTOCK");

    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "ring", &code);
    check(code, "clCreateKernel");
    check(clSetKernelArg(kernel, 0, sizeof heap, &heap), "clSetKernelArg");
    /* One work-item on each PE, all at the same time. Twice: some drivers compile a kernel when it
     * is first launched. */
    const cl_ulong turns[] = {1, rounds};
    const size_t one = 1;
    const char zeros[STATUS] = {0};
    double took = 0;
    for (int turn = 0; turn < 2; turn++) {
        /* Signals and token begin with 0. The launch waits for these writes, on all devices. */
        for (cl_uint pe = 0; pe < n; pe++)
            check(clEnqueueWriteBuffer(queues[pe], heap, CL_FALSE, 0, sizeof zeros, zeros, 0, NULL,
                                       NULL),
                  "writing");
        check(clSetKernelArg(kernel, 1, sizeof turns[turn], &turns[turn]), "clSetKernelArg");
        const double start = seconds();
        check(heaps.launch(heap, n, queues, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
              "the collective launch");
        for (cl_uint pe = 0; pe < n; pe++) check(clFinish(queues[pe]), "clFinish");
        took = seconds() - start;
    }

    if (!tell_paths(&heaps, heap, n, devices, queues)) return 1;
    cl_ulong token = 0;
    check(clEnqueueReadBuffer(queues[0], heap, CL_TRUE, TOKEN, sizeof token, &token, 0, NULL, NULL),
          "reading the token");
    printf("the token went round %lu times and is %lu; %.2f us for each hop\n",
           (unsigned long)rounds, (unsigned long)token, 1e6 * took / (double)(rounds * n));
    clReleaseMemObject(heap);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    for (cl_uint pe = 0; pe < n; pe++) clReleaseCommandQueue(queues[pe]);
    clReleaseContext(context);
    return token == rounds * n ? 0 : 1;
}
