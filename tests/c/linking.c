/* Separate compilation: headers, libraries, link options and their errors. */
#include "harness.h"

static cl_program compiled(const char *source) {
    cl_program program = from_source(source);
    OK(clCompileProgram(program, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    return program;
}

static cl_program_binary_type type_of(cl_program program) {
    cl_program_binary_type type = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    return type;
}

static const char *const main_source =
    "int helper(int x); kernel void put(global int *w) { *w = helper(20); }";
static const char *const helper_source = "int helper(int x) { return 2 * x + 2; }";

TEST(two_objects) {
    cl_int code;
    cl_program parts[2] = {compiled(main_source), compiled(helper_source)};
    CHECK(type_of(parts[0]) == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    cl_program program = clLinkProgram(context, 1, &device, NULL, 2, parts, NULL, NULL, &code);
    OK(code);
    CHECK(type_of(program) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    CHECK(run_for_one_word(program, "put") == 42);
    OK(clReleaseProgram(program));
    OK(clReleaseProgram(parts[0]));
    OK(clReleaseProgram(parts[1]));
}

TEST(library) {
    cl_int code;
    cl_program helper = compiled(helper_source), user = compiled(main_source);
    cl_program library =
        clLinkProgram(context, 0, NULL, "-create-library", 1, &helper, NULL, NULL, &code);
    OK(code);
    CHECK(type_of(library) == CL_PROGRAM_BINARY_TYPE_LIBRARY);
    cl_program parts[2] = {user, library};
    cl_program program = clLinkProgram(context, 0, NULL, NULL, 2, parts, NULL, NULL, &code);
    OK(code);
    CHECK(run_for_one_word(program, "put") == 42);
    OK(clReleaseProgram(program));
    OK(clReleaseProgram(library));
    OK(clReleaseProgram(helper));
    OK(clReleaseProgram(user));
}

TEST(embedded_headers) {
    cl_int code;
    cl_program first = from_source("#define FIRST 1000\n"),
               second = from_source("int second(int x);\n#define SECOND 7\n");
    cl_program user = from_source("#include \"first.h\"\n#include \"deep/second.h\"\n"
                                  "kernel void put(global int *w) { *w = FIRST + SECOND; }");
    cl_program headers[2] = {first, second};
    const char *names[2] = {"first.h", "deep/second.h"};
    OK(clCompileProgram(user, 0, NULL, NULL, 2, headers, names, NULL, NULL));
    cl_program program = clLinkProgram(context, 0, NULL, NULL, 1, &user, NULL, NULL, &code);
    OK(code);
    CHECK(run_for_one_word(program, "put") == 1007);
    OK(clReleaseProgram(program));
    OK(clReleaseProgram(user));
    OK(clReleaseProgram(first));
    OK(clReleaseProgram(second));
}

TEST(compile_failure) {
    cl_program program = from_source("kernel void put(global int *w) { *w = nothing_here; }");
    GIVES(CL_COMPILE_PROGRAM_FAILURE,
          clCompileProgram(program, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    static char log[16384];
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    CHECK(strstr(log, "nothing_here") != NULL);
    OK(clReleaseProgram(program));
}

TEST(compiled_object_has_no_kernels) {
    cl_program part = compiled(main_source);
    GAP_BEGIN; /* PoCL returns CL_INVALID_KERNEL_NAME. */
    REFUSED(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(part, "put", &err));
    GAP_END;
    OK(clReleaseProgram(part));
}

TEST(binary_of_an_object_can_be_linked) {
    cl_int code, loaded;
    size_t size = 0;
    cl_program part = compiled(main_source), helper = compiled(helper_source);
    OK(clGetProgramInfo(part, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    REQUIRE(size > 0);
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(part, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_program loaded_part = clCreateProgramWithBinary(
        context, 1, &device, &size, (const unsigned char **)&binary, &loaded, &code);
    OK(code);
    cl_program parts[2] = {loaded_part, helper};
    cl_program program = clLinkProgram(context, 0, NULL, NULL, 2, parts, NULL, NULL, &code);
    OK(code);
    CHECK(run_for_one_word(program, "put") == 42);
    free(binary);
    OK(clReleaseProgram(program));
    OK(clReleaseProgram(loaded_part));
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(helper));
}

static volatile int called;
static void CL_CALLBACK on_done(cl_program program, void *data) {
    (void)program;
    (void)data;
    __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
}

TEST(callbacks) {
    cl_int code;
    cl_program part = from_source("kernel void put(global int *w) { *w = 8; }");
    called = 0;
    OK(clCompileProgram(part, 0, NULL, NULL, 0, NULL, NULL, on_done, NULL));
    CHECK(wait_until(&called, 1, patience_s()));
    cl_program program = clLinkProgram(context, 0, NULL, NULL, 1, &part, on_done, NULL, &code);
    OK(code);
    CHECK(wait_until(&called, 2, patience_s()));
    CHECK(run_for_one_word(program, "put") == 8);
    OK(clReleaseProgram(program));
    OK(clReleaseProgram(part));
}

TEST(errors) {
    cl_program part = compiled(main_source), plain = from_source(helper_source);
    cl_program none = NULL;
    const char *name = "x.h";
    GIVES(CL_INVALID_PROGRAM, clCompileProgram(NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    if (!on_pocl()) { /* PoCL 3.1 does not check these, and crashes. */
        GIVES(CL_INVALID_VALUE, clCompileProgram(part, 0, NULL, NULL, 0, &plain, NULL, NULL, NULL));
        GIVES(CL_INVALID_VALUE, clCompileProgram(part, 0, NULL, NULL, 0, NULL, &name, NULL, NULL));
        GIVES(CL_INVALID_VALUE, clCompileProgram(part, 0, NULL, NULL, 1, NULL, &name, NULL, NULL));
    }
    GIVES(CL_INVALID_VALUE, clCompileProgram(part, 1, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clCompileProgram(part, 0, NULL, NULL, 0, NULL, NULL, NULL, part));
    if (!on_pocl()) { /* PoCL 3.1 also crashes here. */
        REFUSED(CL_INVALID_VALUE, clLinkProgram(context, 0, NULL, NULL, 0, NULL, NULL, NULL, &err));
        REFUSED(CL_INVALID_VALUE, clLinkProgram(context, 0, NULL, NULL, 1, NULL, NULL, NULL, &err));
        REFUSED(CL_INVALID_PROGRAM,
                clLinkProgram(context, 0, NULL, NULL, 1, &none, NULL, NULL, &err));
        REFUSED(CL_INVALID_CONTEXT, clLinkProgram(NULL, 0, NULL, NULL, 1, &part, NULL, NULL, &err));
        REFUSED(CL_INVALID_VALUE,
                clLinkProgram(context, 1, NULL, NULL, 1, &part, NULL, NULL, &err));
        REFUSED(CL_INVALID_OPERATION,
                clLinkProgram(context, 0, NULL, NULL, 1, &plain, NULL, NULL, &err));
    }
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(plain));
}

/* No part defines the name: the link fails, and the log names it. */
TEST(link_failure) {
    cl_int code = CL_SUCCESS;
    cl_program part = compiled(main_source);
    cl_program program = clLinkProgram(context, 0, NULL, NULL, 1, &part, NULL, NULL, &code);
    GAP_BEGIN; /* PoCL 3.1 detects it only when the kernel runs. */
    GIVES(CL_LINK_PROGRAM_FAILURE, code);
    GAP_END;
    if (program) OK(clReleaseProgram(program));
    OK(clReleaseProgram(part));
}
