/* Programs: source, options, logs, binaries, kernels of a program, and their errors. */
#include "harness.h"

TEST(source_in_pieces) {
    const char *pieces[4] = {"kernel void put(", "global int *w)", " { *w = 1", "23; } JUNK"};
    const size_t lengths[4] = {0, 14, 0, 5};
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 4, pieces, lengths, &code);
    OK(code);
    OK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    CHECK(run_for_one_word(program, "put") == 123);
    char text[128];
    size_t size = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof text, text, &size));
    CHECK(strcmp(text, "kernel void put(global int *w) { *w = 123; }") == 0);
    CHECK(size == strlen(text) + 1);
    OK(clReleaseProgram(program));
}

TEST(options_reach_the_compiler) {
    const char *source = "kernel void put(global int *w) { *w = NUMBER + 2 * (sizeof(TYPE)); }";
    cl_program program = build(context, source, "-D NUMBER=1000 -DTYPE=long -cl-mad-enable");
    CHECK(run_for_one_word(program, "put") == 1016);
    char options[128];
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options,
                             NULL));
    CHECK(strstr(options, "-D NUMBER=1000") != NULL);
    /* The same program built again with other options. */
    cl_int code;
    double end = seconds() + patience_s();
    /* PoCL releases a kernel a moment after its last command is complete. */
    do code = clBuildProgram(program, 1, &device, "-D NUMBER=1 -D TYPE=char", NULL, NULL);
    while (on_pocl() && code == CL_INVALID_OPERATION && seconds() < end);
    OK(code);
    CHECK(run_for_one_word(program, "put") == 3);
    OK(clReleaseProgram(program));
}

TEST(log_of_a_wrong_program) {
    cl_program program =
        from_source("kernel void put(global int *w) {\n    *w = missing_name_here;\n}\n");
    cl_build_status status = CL_BUILD_NONE;
    size_t size = 0;
    GIVES(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status,
                             NULL));
    CHECK(status == CL_BUILD_ERROR);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
    REQUIRE(size > 1);
    char *log = calloc(1, size);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL));
    CHECK(strstr(log, "missing_name_here") != NULL);
    CHECK(log[size - 1] == 0);
    free(log);
    REFUSED(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(program, "put", &err));
    OK(clReleaseProgram(program));
}

TEST(log_of_a_hundred_errors) {
    enum { LINES = 100 };
    char *source = malloc(LINES * 64 + 64), *at = source;
    cl_int code;
    at += sprintf(at, "kernel void put(global int *w) {\n");
    for (int i = 0; i < LINES; i++) at += sprintf(at, "    w[%d] = undefined_name_%d;\n", i, i);
    sprintf(at, "}\n");
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &code);
    OK(code);
    size_t size = 0;
    GIVES(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
    CHECK(size > 500);
    OK(clReleaseProgram(program));
    free(source);
}

TEST(invalid_options) {
    cl_program program = from_source("kernel void put(global int *w) { *w = 1; }");
    GIVES(CL_INVALID_BUILD_OPTIONS,
          clBuildProgram(program, 0, NULL, "-no-such-option-at-all", NULL, NULL));
    OK(clReleaseProgram(program));
}

TEST(info) {
    cl_program program = build(
        context,
        "kernel void a(global int *w) { *w = 1; } kernel void b(global int *w) { *w = 2; }", NULL);
    cl_uint count = 0, references = 0;
    cl_device_id on = NULL;
    cl_context in = NULL;
    size_t kernels = 0;
    char names[64];
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof count, &count, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof on, &on, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof in, &in, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof references, &references, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    CHECK(count == 1 && on == device && in == context && references == 1 && kernels == 2);
    CHECK(strcmp(names, "a;b") == 0 || strcmp(names, "b;a") == 0);
    cl_program_binary_type type = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    GIVES(CL_INVALID_VALUE, clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 2, names, NULL));
    GIVES(CL_INVALID_VALUE, clGetProgramInfo(program, 0x1, sizeof names, names, NULL));
    GIVES(CL_INVALID_PROGRAM, clGetProgramInfo(NULL, CL_PROGRAM_DEVICES, sizeof on, &on, NULL));
    GIVES(CL_INVALID_DEVICE,
          clGetProgramBuildInfo(program, NULL, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    GIVES(CL_INVALID_VALUE, clGetProgramBuildInfo(program, device, 0x1, sizeof type, &type, NULL));
    OK(clReleaseProgram(program));
}

TEST(info_before_the_build) {
    cl_program program = from_source("kernel void a(global int *w) { *w = 1; }");
    cl_build_status status = CL_BUILD_SUCCESS;
    cl_program_binary_type type = 1;
    size_t kernels;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status,
                             NULL));
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    CHECK(status == CL_BUILD_NONE && type == CL_PROGRAM_BINARY_TYPE_NONE);
    GIVES(CL_INVALID_PROGRAM_EXECUTABLE,
          clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL));
    REFUSED(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(program, "a", &err));
    OK(clReleaseProgram(program));
}

TEST(binary_of_a_program_makes_a_program) {
    cl_program program = build(context, "kernel void put(global int *w) { *w = 77; }", NULL);
    size_t size = 0;
    cl_int code, loaded = 12345;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    REQUIRE(size > 0);
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    OK(clReleaseProgram(program));
    cl_program again = clCreateProgramWithBinary(context, 1, &device, &size,
                                                 (const unsigned char **)&binary, &loaded, &code);
    OK(code);
    OK(loaded);
    free(binary);
    OK(clBuildProgram(again, 1, &device, NULL, NULL, NULL));
    CHECK(run_for_one_word(again, "put") == 77);
    OK(clReleaseProgram(again));
}

TEST(binary_errors) {
    unsigned char junk[64];
    const unsigned char *binary = junk, *null = NULL;
    size_t size = sizeof junk, none = 0;
    cl_int loaded = 0;
    memset(junk, 0x42, sizeof junk);
    REFUSED(CL_INVALID_BINARY,
            clCreateProgramWithBinary(context, 1, &device, &size, &binary, &loaded, &err));
    CHECK(loaded == CL_INVALID_BINARY);
    REFUSED(CL_INVALID_VALUE,
            clCreateProgramWithBinary(context, 1, &device, &none, &binary, &loaded, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateProgramWithBinary(context, 1, &device, &size, &null, &loaded, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateProgramWithBinary(context, 0, &device, &size, &binary, &loaded, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateProgramWithBinary(context, 1, NULL, &size, &binary, &loaded, &err));
    REFUSED(CL_INVALID_CONTEXT,
            clCreateProgramWithBinary(NULL, 1, &device, &size, &binary, &loaded, &err));
}

TEST(kernels_in_a_program) {
    cl_program program =
        build(context,
              "kernel void a(global int *w) { *w = 1; } kernel void b(global int *w) { *w = 2; }"
              "kernel void c(global int *w) { *w = 3; }",
              NULL);
    cl_uint count = 0;
    cl_kernel kernels[4];
    OK(clCreateKernelsInProgram(program, 0, NULL, &count));
    CHECK(count == 3);
    OK(clCreateKernelsInProgram(program, 4, kernels, &count));
    CHECK(count == 3);
    for (cl_uint i = 0; i < 3; i++) {
        char name[16] = {0};
        OK(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        CHECK(name[0] >= 'a' && name[0] <= 'c' && name[1] == 0);
        OK(clReleaseKernel(kernels[i]));
    }
    GIVES(CL_INVALID_VALUE, clCreateKernelsInProgram(program, 2, kernels, NULL));
    GIVES(CL_INVALID_PROGRAM, clCreateKernelsInProgram(NULL, 4, kernels, NULL));
    REFUSED(CL_INVALID_KERNEL_NAME, clCreateKernel(program, "d", &err));
    REFUSED(CL_INVALID_VALUE, clCreateKernel(program, NULL, &err));
    REFUSED(CL_INVALID_PROGRAM, clCreateKernel(NULL, "a", &err));
    OK(clReleaseProgram(program));
}

/* "CL_INVALID_OPERATION if there are kernel objects attached to program." */
TEST(no_build_while_kernels_exist) {
    cl_program program = build(context, "kernel void a(global int *w) { *w = 1; }", NULL);
    cl_kernel kernel = make_kernel(program, "a");
    GIVES(CL_INVALID_OPERATION, clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    OK(clReleaseKernel(kernel));
    OK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    OK(clReleaseProgram(program));
}

TEST(kernel_keeps_its_program) {
    cl_kernel kernel = kernel_from(context, "kernel void put(global int *w) { *w = 5; }", "put");
    cl_program of = NULL;
    cl_uint references = 0;
    OK(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of, &of, NULL));
    OK(clGetProgramInfo(of, CL_PROGRAM_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(references >= 1);
    OK(clReleaseKernel(kernel));
}

TEST(long_names_and_many_kernels) {
    enum { KERNELS = 100, NAME = 2000 };
    char *source = malloc(KERNELS * 64 + NAME + 128), *at = source, *name = malloc(NAME + 1);
    memset(name, 'n', NAME);
    name[NAME] = 0;
    for (int i = 0; i < KERNELS; i++)
        at += sprintf(at, "kernel void k%d(global int *w) { *w = %d; }\n", i, i);
    sprintf(at, "kernel void %s(global int *w) { *w = 4242; }\n", name);
    cl_program program = build(context, source, NULL);
    size_t count = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL));
    CHECK(count == KERNELS + 1);
    CHECK(run_for_one_word(program, "k0") == 0);
    CHECK(run_for_one_word(program, "k99") == 99);
    /* The kernel does not run, because PoCL 3.1 names a file after it. */
    cl_kernel kernel = make_kernel(program, name);
    char *back = calloc(1, NAME + 1);
    size_t size = 0;
    OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, NAME + 1, back, &size));
    CHECK(size == NAME + 1 && strcmp(back, name) == 0);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    free(source);
    free(name);
    free(back);
}

TEST(source_of_two_megabytes) {
    const size_t size = 2u << 20;
    char *source = malloc(size + 128);
    memset(source, ' ', size);
    for (size_t at = 79; at < size; at += 80) source[at] = '\n';
    strcpy(source + size, "kernel void put(global int *w) { *w = 9; }");
    cl_program program = build(context, source, NULL);
    CHECK(run_for_one_word(program, "put") == 9);
    OK(clReleaseProgram(program));
    free(source);
}

TEST(creation_errors) {
    const char *source = "kernel void a() { }", *null = NULL;
    REFUSED(CL_INVALID_CONTEXT, clCreateProgramWithSource(NULL, 1, &source, NULL, &err));
    REFUSED(CL_INVALID_VALUE, clCreateProgramWithSource(context, 0, &source, NULL, &err));
    if (!on_pocl()) { /* PoCL 3.1 crashes. */
        REFUSED(CL_INVALID_VALUE, clCreateProgramWithSource(context, 1, NULL, NULL, &err));
        REFUSED(CL_INVALID_VALUE, clCreateProgramWithSource(context, 1, &null, NULL, &err));
    }
    cl_program program = from_source(source);
    GIVES(CL_INVALID_PROGRAM, clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clBuildProgram(program, 1, NULL, NULL, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clBuildProgram(program, 0, &device, NULL, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clBuildProgram(program, 0, NULL, NULL, NULL, program));
    GIVES(CL_INVALID_PROGRAM, clReleaseProgram(NULL));
    GIVES(CL_INVALID_PROGRAM, clRetainProgram(NULL));
    OK(clReleaseProgram(program));
}

TEST(il) {
    char version[256];
    unsigned char junk[64] = {0};
    cl_int code;
    device_text(device, CL_DEVICE_IL_VERSION, version, sizeof version);
    cl_program program = clCreateProgramWithIL(context, junk, sizeof junk, &code);
    CHECK(program == NULL);
    if (version[0] == 0) {
        GAP_BEGIN;
        GIVES(CL_INVALID_OPERATION, code);
        GAP_END;
    } else {
        GIVES_EITHER(CL_INVALID_VALUE, CL_INVALID_BINARY, code);
    }
}

TEST(built_in_kernels) {
    static char names[4096];
    device_text(device, CL_DEVICE_BUILT_IN_KERNELS, names, sizeof names);
    GAP_BEGIN;
    REFUSED(CL_INVALID_VALUE,
            clCreateProgramWithBuiltInKernels(context, 1, &device, "no_such_kernel", &err));
    REFUSED(CL_INVALID_VALUE, clCreateProgramWithBuiltInKernels(context, 1, &device, NULL, &err));
    REFUSED(CL_INVALID_VALUE, clCreateProgramWithBuiltInKernels(context, 0, NULL, "x", &err));
    REFUSED(CL_INVALID_CONTEXT, clCreateProgramWithBuiltInKernels(NULL, 1, &device, "x", &err));
    GAP_END;
}

TEST(unload_compiler) {
    OK(clUnloadPlatformCompiler(platform));
    cl_program program = build(context, "kernel void put(global int *w) { *w = 6; }", NULL);
    CHECK(run_for_one_word(program, "put") == 6);
    OK(clReleaseProgram(program));
    OK(clUnloadCompiler());
}
