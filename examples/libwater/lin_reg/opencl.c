/* Linear regression on one device, in plain OpenCL. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "lin_reg.h"

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

static cl_mem create_buffer(cl_mem_flags flags, size_t size) {
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, flags, size, NULL, &code);
    check(code, "clCreateBuffer");
    return buffer;
}

void host_solve(const struct options *options, struct problem *p) {
    const size_t points_bytes = p->points * sizeof(float),
                 candidates_bytes = p->candidates * sizeof(float);
    const size_t work_size = p->candidates;
    const cl_ulong points = p->points;
    cl_int code;
    cl_program program = build_program(options->kernel, BUILD_OPTIONS);
    cl_kernel kernel = clCreateKernel(program, "lin_reg", &code);
    check(code, "clCreateKernel");
    cl_mem x = create_buffer(CL_MEM_READ_ONLY, points_bytes);
    cl_mem y = create_buffer(CL_MEM_READ_ONLY, points_bytes);
    cl_mem alpha = create_buffer(CL_MEM_READ_ONLY, candidates_bytes);
    cl_mem beta = create_buffer(CL_MEM_READ_ONLY, candidates_bytes);
    cl_mem error = create_buffer(CL_MEM_WRITE_ONLY, candidates_bytes);
    CHECK(clEnqueueWriteBuffer(queue, x, CL_FALSE, 0, points_bytes, p->x, 0, NULL, NULL));
    CHECK(clEnqueueWriteBuffer(queue, y, CL_FALSE, 0, points_bytes, p->y, 0, NULL, NULL));
    CHECK(
        clEnqueueWriteBuffer(queue, alpha, CL_FALSE, 0, candidates_bytes, p->alpha, 0, NULL, NULL));
    CHECK(clEnqueueWriteBuffer(queue, beta, CL_FALSE, 0, candidates_bytes, p->beta, 0, NULL, NULL));
    CHECK(clSetKernelArg(kernel, 0, sizeof x, &x));
    CHECK(clSetKernelArg(kernel, 1, sizeof y, &y));
    CHECK(clSetKernelArg(kernel, 2, sizeof alpha, &alpha));
    CHECK(clSetKernelArg(kernel, 3, sizeof beta, &beta));
    CHECK(clSetKernelArg(kernel, 4, sizeof error, &error));
    CHECK(clSetKernelArg(kernel, 5, sizeof points, &points));
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &work_size, NULL, 0, NULL, NULL));
    CHECK(
        clEnqueueReadBuffer(queue, error, CL_FALSE, 0, candidates_bytes, p->error, 0, NULL, NULL));
    CHECK(clFinish(queue));
    CHECK(clReleaseMemObject(x));
    CHECK(clReleaseMemObject(y));
    CHECK(clReleaseMemObject(alpha));
    CHECK(clReleaseMemObject(beta));
    CHECK(clReleaseMemObject(error));
    CHECK(clReleaseKernel(kernel));
    CHECK(clReleaseProgram(program));
}

void host_stop(void) {
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseContext(context));
}
