/* Device partition. */
#include "harness.h"

static cl_uint units(void) { return device_uint(device, CL_DEVICE_MAX_COMPUTE_UNITS); }

static bool can(cl_device_partition_property wanted) {
    cl_device_partition_property list[16];
    size_t size = 0;
    memset(list, 0, sizeof list);
    OK(clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof list, list, &size));
    for (size_t i = 0; i < size / sizeof *list; i++)
        if (list[i] == wanted) return true;
    return false;
}

static void check_part(cl_device_id part, cl_uint wanted_units) {
    cl_device_id parent = NULL;
    cl_uint references = 0;
    OK(clGetDeviceInfo(part, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL));
    OK(clGetDeviceInfo(part, CL_DEVICE_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(parent == device && references == 1);
    CHECK(device_uint(part, CL_DEVICE_MAX_COMPUTE_UNITS) == wanted_units);
    cl_context own = make_context(1, &part);
    cl_command_queue on = make_queue(own, part, 0);
    cl_kernel kernel = kernel_from(own, "kernel void k(global uint *w) { *w = 99; }", "k");
    CHECK(word_of(own, on, kernel, 1) == 99);
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(on));
    OK(clReleaseContext(own));
}

TEST(equally) {
    if (!can(CL_DEVICE_PARTITION_EQUALLY) || units() < 2) test_skip("no equal partition");
    const cl_device_partition_property how[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_uint count = 0;
    cl_device_id parts[256];
    OK(clCreateSubDevices(device, how, 0, NULL, &count));
    CHECK(count == units());
    REQUIRE(count <= 256);
    OK(clCreateSubDevices(device, how, count, parts, NULL));
    check_part(parts[0], 1);
    check_part(parts[count - 1], 1);
    cl_device_partition_property back[8] = {0};
    OK(clGetDeviceInfo(parts[0], CL_DEVICE_PARTITION_TYPE, sizeof back, back, NULL));
    CHECK(back[0] == CL_DEVICE_PARTITION_EQUALLY && back[1] == 1 && back[2] == 0);
    OK(clRetainDevice(parts[0]));
    OK(clReleaseDevice(parts[0]));
    for (cl_uint i = 0; i < count; i++) OK(clReleaseDevice(parts[i]));
}

TEST(by_counts) {
    if (!can(CL_DEVICE_PARTITION_BY_COUNTS) || units() < 2) test_skip("no partition by counts");
    const cl_device_partition_property how[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1,
                                                CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id parts[2];
    cl_uint count = 0;
    OK(clCreateSubDevices(device, how, 2, parts, &count));
    CHECK(count == 2);
    check_part(parts[0], 1);
    check_part(parts[1], 1);
    /* Both in one context: buffers move between them. */
    cl_context own = make_context(2, parts);
    cl_command_queue on[2] = {make_queue(own, parts[0], 0), make_queue(own, parts[1], 0)};
    cl_mem mem = make_buffer(own, 0, 4096, NULL);
    write_pattern(on[0], mem, 4096, 1);
    CHECK(read_pattern(on[1], mem, 4096, 1));
    OK(clReleaseMemObject(mem));
    for (int i = 0; i < 2; i++) {
        OK(clReleaseCommandQueue(on[i]));
        OK(clReleaseDevice(parts[i]));
    }
    OK(clReleaseContext(own));
}

/* Checks a context of a device's parts: each part has the binary, and a program created from it
 * runs there. */
static void check_binaries(cl_uint count, const cl_device_id *parts) {
    cl_context own = make_context(count, parts);
    cl_program program = build(own, "kernel void k(global uint *w) { *w = 17; }", NULL);
    size_t sizes[2] = {0, 0};
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
    unsigned char *binaries[2] = {malloc(sizes[0] + 1), malloc(sizes[1] + 1)};
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL));
    for (cl_uint i = 0; i < count; i++) {
        GAP_BEGIN; /* PoCL 3.1 only has the binary of the whole device. */
        CHECK(sizes[i] > 0);
        GAP_END;
        if (sizes[i] == 0) continue;
        cl_int loaded, code;
        cl_program again = clCreateProgramWithBinary(
            own, 1, &parts[i], &sizes[i], (const unsigned char **)&binaries[i], &loaded, &code);
        OK(code);
        OK(clBuildProgram(again, 1, &parts[i], NULL, NULL, NULL));
        cl_command_queue on = make_queue(own, parts[i], 0);
        cl_kernel kernel = make_kernel(again, "k");
        CHECK(word_of(own, on, kernel, 1) == 17);
        OK(clReleaseKernel(kernel));
        OK(clReleaseProgram(again));
        OK(clReleaseCommandQueue(on));
    }
    for (int i = 0; i < 2; i++) free(binaries[i]);
    OK(clReleaseProgram(program));
    OK(clReleaseContext(own));
}

TEST(binaries) {
    if (!can(CL_DEVICE_PARTITION_BY_COUNTS) || units() < 2) test_skip("no partition by counts");
    const cl_device_partition_property how[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1,
                                                CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id parts[2];
    OK(clCreateSubDevices(device, how, 2, parts, NULL));
    check_binaries(1, &parts[1]);
    check_binaries(2, parts);
    for (int i = 0; i < 2; i++) OK(clReleaseDevice(parts[i]));
}

TEST(errors) {
    const cl_device_partition_property none[] = {0}, unknown[] = {0x4242, 1, 0},
                                       equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id part;
    cl_uint count;
    GIVES(CL_INVALID_DEVICE, clCreateSubDevices(NULL, equally, 1, &part, &count));
    GIVES(CL_INVALID_VALUE, clCreateSubDevices(device, NULL, 1, &part, &count));
    GIVES(CL_INVALID_VALUE, clCreateSubDevices(device, none, 1, &part, &count));
    GIVES(CL_INVALID_VALUE, clCreateSubDevices(device, unknown, 1, &part, &count));
    if (can(CL_DEVICE_PARTITION_EQUALLY) && units() >= 2) {
        GIVES(CL_INVALID_VALUE, clCreateSubDevices(device, equally, 1, &part, &count));
        const cl_device_partition_property many[] = {CL_DEVICE_PARTITION_EQUALLY, 100000, 0};
        cl_int code = clCreateSubDevices(device, many, 1, &part, &count);
        CHECK(code == CL_DEVICE_PARTITION_FAILED || code == CL_INVALID_DEVICE_PARTITION_COUNT ||
              code == CL_INVALID_VALUE);
    }
    /* "clRetainDevice and clReleaseDevice do nothing for a root-level device." */
    OK(clRetainDevice(device));
    OK(clReleaseDevice(device));
    GIVES(CL_INVALID_DEVICE, clRetainDevice(NULL));
    GIVES(CL_INVALID_DEVICE, clReleaseDevice(NULL));
}
