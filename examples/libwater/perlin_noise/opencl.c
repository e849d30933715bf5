/* Gradient noise on one device, in plain OpenCL. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "perlin_noise.h"

#define CHECK(call) check((call), #call)

const char *const host_name = "opencl";

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;

static void check(cl_int code, const char *call) {
    if (code != CL_SUCCESS) fail("%s: OpenCL error %d", call, code);
}

static void find_device(void) {
    cl_uint count = 0;
    CHECK(clGetPlatformIDs(0, NULL, &count));
    cl_platform_id *platforms = allocate(count, sizeof *platforms);
    CHECK(clGetPlatformIDs(count, platforms, NULL));
    for (cl_uint i = 0; i < count && !device; i++) {
        const cl_int code = clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL);
        if (code != CL_DEVICE_NOT_FOUND) check(code, "clGetDeviceIDs");
    }
    free(platforms);
    if (!device) fail("there is no OpenCL device");
}

unsigned host_start(const struct options *options) {
    (void)options;
    cl_int code;
    find_device();
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    return 1;
}

static char *read_source(const char *file, size_t *size) {
    FILE *stream = fopen(file, "rb");
    if (!stream) fail("cannot open %s", file);
    if (fseek(stream, 0, SEEK_END) != 0) fail("cannot read %s", file);
    const long length = ftell(stream);
    if (length < 0) fail("cannot read %s", file);
    rewind(stream);
    char *source = allocate((size_t)length, 1);
    if (fread(source, 1, (size_t)length, stream) != (size_t)length) fail("cannot read %s", file);
    fclose(stream);
    *size = (size_t)length;
    return source;
}

static cl_program build_program(const char *file, const char *build_options) {
    cl_int code;
    size_t size, log_size;
    char *source = read_source(file, &size);
    cl_program program =
        clCreateProgramWithSource(context, 1, (const char **)&source, &size, &code);
    check(code, "clCreateProgramWithSource");
    free(source);
    code = clBuildProgram(program, 1, &device, build_options, NULL, NULL);
    if (code == CL_BUILD_PROGRAM_FAILURE) {
        CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &log_size));
        char *log = allocate(log_size, 1);
        CHECK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, log_size, log, NULL));
        fail("%s does not build:\n%s", file, log);
    }
    check(code, "clBuildProgram");
    return program;
}

void host_solve(const struct options *options, struct problem *p) {
    const size_t bytes = p->n * p->n * sizeof(float);
    const cl_ulong n = p->n, first_row = 0;
    cl_int code;
    cl_program program = build_program(options->kernel, BUILD_OPTIONS);
    cl_kernel kernel = clCreateKernel(program, "perlin_noise", &code);
    check(code, "clCreateKernel");
    cl_mem picture = clCreateBuffer(context, CL_MEM_WRITE_ONLY, bytes, NULL, &code);
    check(code, "clCreateBuffer");
    CHECK(clSetKernelArg(kernel, 0, sizeof picture, &picture));
    CHECK(clSetKernelArg(kernel, 1, sizeof n, &n));
    CHECK(clSetKernelArg(kernel, 2, sizeof first_row, &first_row));
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, (size_t[]){p->n, p->n}, NULL, 0, NULL,
                                 NULL));
    CHECK(clEnqueueReadBuffer(queue, picture, CL_FALSE, 0, bytes, p->picture, 0, NULL, NULL));
    CHECK(clFinish(queue));
    CHECK(clReleaseMemObject(picture));
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseProgram(program));
}

void host_stop(void) {
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(context));
}
