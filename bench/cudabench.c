/* The cost of calls of the CUDA driver interface, and of the same work through the local OpenCL
 * platform, in one run.
 *
 * usage: cudabench [--quick] [--only cuda|opencl]
 *
 * It uses the libcuda.so.1 that LD_LIBRARY_PATH names, on the pool that PENSTOCK_NODES names.
 *
 * Each measurement has one line: name, unit, CUDA's figure, OpenCL's figure if there is one, and
 * their ratio. No CUDA header is needed: the few functions are declared here and found by name.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPY_BYTES = 16 << 20, LAUNCHES = 100000, QUEUED = 10000, SAMPLES = 2001, COPIES = 41 };

static bool quick;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

__attribute__((format(printf, 1, 2))) static _Noreturn void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "cudabench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, ascending);
    return samples[count / 2];
}

/* With --quick there are fewer rounds, only to see that everything works. */
static size_t rounds(size_t full) { return quick ? full / 20 + 1 : full; }

/* ---- figures: seconds, or bytes per second; 0: not measured
 * ------------------------------------------------------- */

struct figures {
    double sync_after_copy, write4, read4, launch_and_sync, queued, launches, stores, write16,
        read16;
};

/* ---- CUDA
 * ----------------------------------------------------------------------------------------------------------
 */

static struct {
    int (*init)(unsigned);
    int (*get_device)(int *, int);
    int (*device_name)(char *, int, int);
    int (*create_context)(void **, unsigned, int);
    int (*synchronize)(void);
    int (*allocate)(uint64_t *, size_t);
    int (*write)(uint64_t, const void *, size_t);
    int (*read)(void *, uint64_t, size_t);
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
} cu;

#define CU(call)                                                                     \
    do {                                                                             \
        int code_ = (call);                                                          \
        if (code_ != 0) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #call, code_); \
    } while (0)

static void find(void *library, const char *name, void *place) {
    void *address = dlsym(library, name);
    if (!address) fail("libcuda.so.1 has no %s", name);
    memcpy(place, &address, sizeof address);
}

static void open_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) fail("%s", dlerror());
    find(library, "cuInit", &cu.init);
    find(library, "cuDeviceGet", &cu.get_device);
    find(library, "cuDeviceGetName", &cu.device_name);
    find(library, "cuCtxCreate_v2", &cu.create_context);
    find(library, "cuCtxSynchronize", &cu.synchronize);
    find(library, "cuMemAlloc_v2", &cu.allocate);
    find(library, "cuMemcpyHtoD_v2", &cu.write);
    find(library, "cuMemcpyDtoH_v2", &cu.read);
    find(library, "cuModuleLoadData", &cu.load);
    find(library, "cuModuleGetFunction", &cu.function);
    find(library, "cuLaunchKernel", &cu.launch);
}

static const char PTX[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry empty(.param .u64 value) { ret; }\n"
    ".visible .entry store(.param .u64 to, .param .u64 value) {\n"
    ".reg .b64 %rd<4>; ld.param.u64 %rd1, [to]; cvta.to.global.u64 %rd2, %rd1; ld.param.u64 %rd3, [value];\n"
    "st.global.u64 [%rd2], %rd3; ret; }\n";

static void cuda_calls(void *empty, uint64_t memory, struct figures *of) {
    static double samples[SAMPLES], copies[SAMPLES], reads[SAMPLES], launches[SAMPLES];
    uint32_t value = 5;
    uint64_t param = 7;
    void *params[] = {&param};
    size_t count = rounds(SAMPLES);
    for (size_t i = 0; i < count; i++) {
        double start = seconds();
        CU(cu.write(memory, &value, 4));
        double written = seconds();
        CU(cu.synchronize());
        double ended = seconds();
        CU(cu.read(&value, memory, 4));
        double read = seconds();
        CU(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        CU(cu.synchronize());
        copies[i] = written - start;
        samples[i] = ended - written;
        reads[i] = read - ended;
        launches[i] = seconds() - read;
    }
    of->write4 = median(copies, count);
    of->sync_after_copy = median(samples, count);
    of->read4 = median(reads, count);
    of->launch_and_sync = median(launches, count);
    size_t queued = rounds(QUEUED);
    double start = seconds();
    for (size_t i = 0; i < queued; i++)
        CU(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    of->queued = (seconds() - start) / (double)queued;
    CU(cu.synchronize());
    size_t all = rounds(LAUNCHES);
    start = seconds();
    for (size_t i = 0; i < all; i++) CU(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CU(cu.synchronize());
    of->launches = (seconds() - start) / (double)all;
}

/* Launches of a kernel that stores a number, which differs for each launch. */
static void cuda_stores(void *store, uint64_t memory, struct figures *of) {
    uint64_t value = 0;
    void *params[] = {&memory, &value};
    CU(cu.launch(store, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CU(cu.synchronize());
    size_t all = rounds(LAUNCHES);
    double start = seconds();
    for (size_t i = 0; i < all; i++) {
        value = i;
        CU(cu.launch(store, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    }
    CU(cu.synchronize());
    of->stores = (seconds() - start) / (double)all;
    uint64_t last = 0;
    CU(cu.read(&last, memory, sizeof last));
    if (last != all - 1) fail("the last launch stored %llu", (unsigned long long)last);
}

static void run_cuda(unsigned char *host, struct figures *of) {
    int device = 0;
    void *context = NULL, *module = NULL, *empty = NULL, *store = NULL;
    uint64_t memory = 0;
    char name[128];
    open_cuda();
    CU(cu.init(0));
    CU(cu.get_device(&device, 0));
    CU(cu.device_name(name, sizeof name, device));
    printf("# CUDA on %s\n", name);
    CU(cu.create_context(&context, 0, device));
    CU(cu.allocate(&memory, COPY_BYTES));
    CU(cu.load(&module, PTX));
    CU(cu.function(&empty, module, "empty"));
    CU(cu.function(&store, module, "store"));
    uint64_t param = 7;
    void *params[] = {&param};
    CU(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CU(cu.synchronize());
    cuda_calls(empty, memory, of);
    cuda_stores(store, memory, of);
    double writes[COPIES], reads[COPIES];
    for (size_t i = 0; i < COPIES; i++) {
        double start = seconds();
        CU(cu.write(memory, host, COPY_BYTES));
        CU(cu.synchronize());
        double written = seconds();
        CU(cu.read(host, memory, COPY_BYTES));
        writes[i] = written - start;
        reads[i] = seconds() - written;
    }
    of->write16 = COPY_BYTES / median(writes, COPIES);
    of->read16 = COPY_BYTES / median(reads, COPIES);
}

/* ---- OpenCL
 * --------------------------------------------------------------------------------------------------------
 */

#define CL(call)                                                                              \
    do {                                                                                      \
        cl_int code_ = (call);                                                                \
        if (code_ != CL_SUCCESS) fail("%s:%d: %s gave %d", __FILE__, __LINE__, #call, code_); \
    } while (0)

static void opencl_calls(cl_command_queue queue, cl_kernel empty, cl_mem memory,
                         struct figures *of) {
    static double copies[SAMPLES], reads[SAMPLES], launches[SAMPLES];
    uint32_t value = 5;
    const size_t one = 1;
    size_t count = rounds(SAMPLES);
    for (size_t i = 0; i < count; i++) {
        double start = seconds();
        CL(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
        double written = seconds();
        CL(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
        double read = seconds();
        CL(clEnqueueNDRangeKernel(queue, empty, 1, NULL, &one, &one, 0, NULL, NULL));
        CL(clFinish(queue));
        copies[i] = written - start;
        reads[i] = read - written;
        launches[i] = seconds() - read;
    }
    of->write4 = median(copies, count);
    of->read4 = median(reads, count);
    of->launch_and_sync = median(launches, count);
    size_t queued = rounds(QUEUED);
    double start = seconds();
    for (size_t i = 0; i < queued; i++)
        CL(clEnqueueNDRangeKernel(queue, empty, 1, NULL, &one, &one, 0, NULL, NULL));
    of->queued = (seconds() - start) / (double)queued;
    CL(clFinish(queue));
    size_t all = rounds(LAUNCHES);
    start = seconds();
    for (size_t i = 0; i < all; i++)
        CL(clEnqueueNDRangeKernel(queue, empty, 1, NULL, &one, &one, 0, NULL, NULL));
    CL(clFinish(queue));
    of->launches = (seconds() - start) / (double)all;
}

/* As `cuda_stores`: a kernel with a buffer and a number that differs for each launch. */
static void opencl_stores(cl_command_queue queue, cl_kernel store, cl_mem memory,
                          struct figures *of) {
    cl_ulong first = 0;
    CL(clSetKernelArg(store, 0, sizeof memory, &memory));
    CL(clSetKernelArg(store, 1, sizeof first, &first));
    const size_t one = 1;
    /* The driver compiles the kernel at its first launch. */
    CL(clEnqueueNDRangeKernel(queue, store, 1, NULL, &one, &one, 0, NULL, NULL));
    CL(clFinish(queue));
    size_t all = rounds(LAUNCHES);
    double start = seconds();
    for (size_t i = 0; i < all; i++) {
        cl_ulong value = i;
        CL(clSetKernelArg(store, 1, sizeof value, &value));
        CL(clEnqueueNDRangeKernel(queue, store, 1, NULL, &one, &one, 0, NULL, NULL));
    }
    CL(clFinish(queue));
    of->stores = (seconds() - start) / (double)all;
    cl_ulong last = 0;
    CL(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof last, &last, 0, NULL, NULL));
    if (last != all - 1) fail("the last launch stored %llu", (unsigned long long)last);
}

static void run_opencl(unsigned char *host, struct figures *of) {
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    char name[128];
    CL(clGetPlatformIDs(1, &platform, NULL));
    CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    CL(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));
    printf("# OpenCL on %s\n", name);
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    CL(code);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    CL(code);
    const char *source = "__kernel void empty(ulong value) {}\n"
                         "__kernel void store(__global ulong *to, ulong value) { *to = value; }";
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    CL(code);
    CL(clBuildProgram(program, 1, &device, "", NULL, NULL));
    cl_kernel empty = clCreateKernel(program, "empty", &code);
    CL(code);
    cl_kernel store = clCreateKernel(program, "store", &code);
    CL(code);
    cl_ulong value = 7;
    CL(clSetKernelArg(empty, 0, sizeof value, &value));
    cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, COPY_BYTES, NULL, &code);
    CL(code);
    const size_t one = 1;
    CL(clEnqueueNDRangeKernel(queue, empty, 1, NULL, &one, &one, 0, NULL, NULL));
    CL(clFinish(queue));
    opencl_calls(queue, empty, memory, of);
    opencl_stores(queue, store, memory, of);
    double writes[COPIES], reads[COPIES];
    for (size_t i = 0; i < COPIES; i++) {
        double start = seconds();
        CL(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, COPY_BYTES, host, 0, NULL, NULL));
        double written = seconds();
        CL(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, COPY_BYTES, host, 0, NULL, NULL));
        writes[i] = written - start;
        reads[i] = seconds() - written;
    }
    of->write16 = COPY_BYTES / median(writes, COPIES);
    of->read16 = COPY_BYTES / median(reads, COPIES);
    clReleaseMemObject(memory);
    clReleaseKernel(empty);
    clReleaseKernel(store);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
}

/* ---- results
 * -------------------------------------------------------------------------------------------------------
 */

/* `more` means that the larger figure is the better one. The ratio is that of speeds. */
static void row(const char *name, const char *unit, double scale, double cuda, double opencl,
                bool more) {
    printf("%-34s %-6s", name, unit);
    if (cuda > 0)
        printf(" %10.2f", cuda * scale);
    else
        printf(" %10s", "-");
    if (opencl > 0)
        printf(" %10.2f", opencl * scale);
    else
        printf(" %10s", "-");
    if (cuda > 0 && opencl > 0) printf(" %8.2f", more ? cuda / opencl : opencl / cuda);
    printf("\n");
}

int main(int argc, char **argv) {
    const char *only = "";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            quick = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else
            fail("no such option: %s", argv[i]);
    }
    struct figures cuda = {0}, opencl = {0};
    unsigned char *host = malloc(COPY_BYTES);
    if (!host) fail("no memory");
    memset(host, 7, COPY_BYTES);
    if (strcmp(only, "opencl")) run_cuda(host, &cuda);
    if (strcmp(only, "cuda")) run_opencl(host, &opencl);
    printf("%-34s %-6s %10s %10s %8s\n", "# measure", "unit", "CUDA", "OpenCL", "ratio");
    row("synchronize after a 4 B copy", "us", 1e6, cuda.sync_after_copy, 0, false);
    row("write 4 B, waited for", "us", 1e6, cuda.write4, opencl.write4, false);
    row("read 4 B, waited for", "us", 1e6, cuda.read4, opencl.read4, false);
    row("launch and synchronize", "us", 1e6, cuda.launch_and_sync, opencl.launch_and_sync, false);
    row("queued launch", "us", 1e6, cuda.queued, opencl.queued, false);
    row("each of 100,000 launches", "us", 1e6, cuda.launches, opencl.launches, false);
    row("each of 100,000 that store", "us", 1e6, cuda.stores, opencl.stores, false);
    row("write 16 MiB", "MB/s", 1e-6, cuda.write16, opencl.write16, true);
    row("read 16 MiB", "MB/s", 1e-6, cuda.read16, opencl.read16, true);
    free(host);
    return 0;
}
