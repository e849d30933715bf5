/* Programs that are built for one of several devices: each device in its own call, or only one
 * device. */
#include "harness.h"

#define DEVICES 2

static cl_context both;
static cl_command_queue on[DEVICES];

/* With each build, PoCL 3.1 discards a program's other devices, so only devices of two nodes are
 * built in turn. */
static bool has_two_drivers(void) {
    static const char *const pools[] = {"two", "far", "encrypted", "apart", "mixed"};
    const char *pool = getenv("PENSTOCK_TEST_POOL");
    for (size_t i = 0; pool && i < sizeof pools / sizeof *pools; i++)
        if (strcmp(pool, pools[i]) == 0) return true;
    return false;
}

static void need_two_nodes(void) {
    if (device_count < DEVICES || !has_two_drivers()) test_skip("needs devices of two nodes");
    if (both) return;
    both = make_context(DEVICES, devices);
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
}

static cl_program unbuilt(const char *source) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(both, 1, &source, NULL, &code);
    OK(code);
    return program;
}

static cl_uint word_on(int d, cl_kernel kernel, size_t items) {
    return word_of(both, on[d], kernel, items);
}

static size_t kernels_of(cl_program program) {
    size_t count = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL));
    return count;
}

static const char *in_turn =
    "kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void k(global uint *w) {\n"
    "    local uint x[ITEMS];\n"
    "    x[get_local_id(0)] = VALUE;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    *w = x[0];\n"
    "}\n"
    "#ifdef MORE\n"
    "kernel void more(global uint *w) { *w = 3; }\n"
    "#endif\n";

/* The value and the group size differ between devices, so that the test detects any mix-up. */
static void build_for(cl_program program, int d, const char *more) {
    char options[64];
    snprintf(options, sizeof options, "-DVALUE=%d -DITEMS=%d %s", 10 + d, 4 << d, more);
    OK(clBuildProgram(program, 1, &devices[d], options, NULL, NULL));
}

static void check_in_turn(cl_kernel kernel, int d) {
    const size_t items = (size_t)4 << d, wrong = 4 << (1 - d);
    size_t most = 0, required[3] = {0};
    cl_ulong local = 0;
    OK(clGetKernelWorkGroupInfo(kernel, devices[d], CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                NULL));
    OK(clGetKernelWorkGroupInfo(kernel, devices[d], CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                sizeof required, required, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, devices[d], CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local,
                                NULL));
    CHECK(most >= items && required[0] == items && local == 4 * items);
    CHECK(word_on(d, kernel, items) == 10u + (cl_uint)d);
    GIVES(CL_INVALID_WORK_GROUP_SIZE,
          clEnqueueNDRangeKernel(on[d], kernel, 1, NULL, &wrong, &wrong, 0, NULL, NULL));
}

TEST(each_device_in_a_build_of_its_own) {
    need_two_nodes();
    for (int first = 0; first < DEVICES; first++) {
        cl_program program = unbuilt(in_turn);
        build_for(program, first, "");
        build_for(program, 1 - first, "");
        CHECK(kernels_of(program) == 1);
        cl_kernel kernel = make_kernel(program, "k");
        for (int d = 0; d < DEVICES; d++) check_in_turn(kernel, d);
        OK(clReleaseKernel(kernel));
        OK(clReleaseProgram(program));
    }
}

TEST(a_kernel_of_one_device_goes_with_its_build) {
    need_two_nodes();
    for (int first = 0; first < DEVICES; first++) {
        cl_program program = unbuilt(in_turn);
        build_for(program, first, "-DMORE");
        build_for(program, 1 - first, "");
        CHECK(kernels_of(program) == 2);
        cl_kernel more = make_kernel(program, "more");
        CHECK(word_on(first, more, 1) == 3);
        const size_t one = 1;
        /* "CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built program executable
         * available for device". */
        GIVES(CL_INVALID_PROGRAM_EXECUTABLE,
              clEnqueueNDRangeKernel(on[1 - first], more, 1, NULL, &one, NULL, 0, NULL, NULL));
        OK(clReleaseKernel(more));
        build_for(program, first, "");
        CHECK(kernels_of(program) == 1);
        REFUSED(CL_INVALID_KERNEL_NAME, clCreateKernel(program, "more", &err));
        OK(clReleaseProgram(program));
    }
}

TEST(a_failed_build_takes_no_other_device_s_kernels) {
    need_two_nodes();
    const char *source =
        "#ifdef BAD\n#error bad\n#endif\nkernel void k(global uint *w) { *w = 6; }";
    for (int round = 0; round < 4; round++) {
        const int bad = round & 1, first = round >> 1;
        cl_program program = unbuilt(source);
        for (int i = 0; i < DEVICES; i++) {
            const int d = i ^ first;
            if (d != bad)
                OK(clBuildProgram(program, 1, &devices[d], NULL, NULL, NULL));
            else
                GIVES(CL_BUILD_PROGRAM_FAILURE,
                      clBuildProgram(program, 1, &devices[d], "-DBAD", NULL, NULL));
        }
        CHECK(kernels_of(program) == 1);
        cl_kernel kernel = make_kernel(program, "k");
        CHECK(word_on(1 - bad, kernel, 1) == 6);
        OK(clReleaseKernel(kernel));
        /* Its own kernels are gone. */
        GIVES(CL_BUILD_PROGRAM_FAILURE,
              clBuildProgram(program, 1, &devices[1 - bad], "-DBAD", NULL, NULL));
        REFUSED(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(program, "k", &err));
        OK(clReleaseProgram(program));
    }
}

/* The kernel follows a pointer in shared memory to other shared memory, which only the tested call
 * announces. */
static void check_exec_info(cl_program program, int d) {
    cl_kernel kernel = make_kernel(program, "follow");
    cl_ulong *table = clSVMAlloc(both, 0, 64, 0);
    cl_uint *data = clSVMAlloc(both, 0, 64, 0), word = 0;
    REQUIRE(table && data);
    const cl_ulong address = (cl_ulong)(uintptr_t)data;
    const void *reached[] = {data};
    OK(clEnqueueSVMMemcpy(on[1 - d], CL_TRUE, table, &address, sizeof address, 0, NULL, NULL));
    OK(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof reached, reached));
    OK(clSetKernelArgSVMPointer(kernel, 0, table));
    launch(on[d], kernel, 1);
    OK(clFinish(on[d]));
    OK(clEnqueueSVMMemcpy(on[1 - d], CL_TRUE, &word, data, sizeof word, 0, NULL, NULL));
    CHECK(word == 77);
    OK(clReleaseKernel(kernel));
    clSVMFree(both, table);
    clSVMFree(both, data);
}

TEST(exec_info_where_one_device_has_the_program) {
    need_two_nodes();
    void *probe = clSVMAlloc(both, 0, 64, 0);
    if (!probe) test_skip("these devices share no virtual memory");
    clSVMFree(both, probe);
    const char *source =
        "kernel void follow(global ulong *t) { global uint *w = (global uint *)t[0]; *w = 77; }";
    for (int d = 0; d < DEVICES; d++) {
        cl_program built = unbuilt(source), compiled = unbuilt(source);
        cl_int code;
        OK(clBuildProgram(built, 1, &devices[d], NULL, NULL, NULL));
        check_exec_info(built, d);
        OK(clCompileProgram(compiled, 1, &devices[d], NULL, 0, NULL, NULL, NULL, NULL));
        cl_program linked =
            clLinkProgram(both, 1, &devices[d], NULL, 1, &compiled, NULL, NULL, &code);
        OK(code);
        check_exec_info(linked, d);
        OK(clReleaseProgram(linked));
        OK(clReleaseProgram(compiled));
        OK(clReleaseProgram(built));
    }
}

TEST(the_binary_of_one_device) {
    need_two_nodes();
    for (int d = 0; d < DEVICES; d++) {
        cl_program program = unbuilt("kernel void k(global uint *w) { *w = 8; }");
        size_t sizes[DEVICES] = {99, 99};
        cl_int loaded, code;
        OK(clBuildProgram(program, 1, &devices[d], NULL, NULL, NULL));
        OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
        CHECK(sizes[1 - d] == 0);
        REQUIRE(sizes[d] > 0 && sizes[d] != 99);
        unsigned char *binaries[DEVICES] = {NULL}, *bytes = malloc(sizes[d]);
        binaries[d] = bytes;
        OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL));
        cl_program again = clCreateProgramWithBinary(
            both, 1, &devices[d], &sizes[d], (const unsigned char **)&bytes, &loaded, &code);
        OK(code);
        OK(clBuildProgram(again, 1, &devices[d], NULL, NULL, NULL));
        cl_kernel kernel = make_kernel(again, "k");
        CHECK(word_on(d, kernel, 1) == 8);
        OK(clReleaseKernel(kernel));
        OK(clReleaseProgram(again));
        OK(clReleaseProgram(program));
        free(bytes);
    }
}

TEST(the_binary_of_the_device_whose_build_did_not_fail) {
    need_two_nodes();
    cl_program program =
        unbuilt("#ifdef BAD\n#error bad\n#endif\nkernel void k(global uint *w) { *w = 6; }");
    size_t sizes[DEVICES] = {99, 99};
    OK(clBuildProgram(program, 1, &devices[0], NULL, NULL, NULL));
    GIVES(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(program, 1, &devices[1], "-DBAD", NULL, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
    CHECK(sizes[0] > 0 && sizes[0] != 99 && sizes[1] == 0);
    OK(clReleaseProgram(program));
}

TEST(no_more) {
    if (!both) test_skip("no earlier case created the context");
    for (int d = 0; d < DEVICES; d++) OK(clReleaseCommandQueue(on[d]));
    OK(clReleaseContext(both));
}
