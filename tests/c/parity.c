/* For answers that the specification leaves to the driver, the pool returns those of the driver
 * behind it. The test queries this platform, and queries the local driver in a second process.
 * There, without the pool's entry for the ICD loader, the first platform is the driver itself. */
#include "harness.h"

#include <sys/wait.h>
#include <unistd.h>

#define FILE_VARIABLE "PENSTOCK_PARITY_FILE"

static const char *const source = "kernel void k(const global int *w, int y) {}";
static const char *const helper_source = "int helper(int x) { return 2 * x; }";
static const char *const user_source =
    "int helper(int x); kernel void k(global int *w) { *w = helper(4); }";

static void tell_kind(FILE *to, const char *what, cl_program program) {
    cl_program_binary_type type = 99;
    cl_build_status status = 99;
    cl_int of_type =
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL);
    cl_int of_status = clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS,
                                             sizeof status, &status, NULL);
    fprintf(to, "%s: binary type %u (%d), build status %d (%d)\n", what, type, of_type, status,
            of_status);
}

static void tell_args(FILE *to, const char *what, cl_program program) {
    char name[64] = "";
    cl_uint address = 0;
    cl_int made;
    cl_kernel kernel = clCreateKernel(program, "k", &made);
    if (made != CL_SUCCESS) {
        fprintf(to, "%s: no kernel (%d)\n", what, made);
        return;
    }
    cl_int of_name = clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, sizeof name, name, NULL);
    cl_int of_address = clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                                           sizeof address, &address, NULL);
    fprintf(to, "%s: argument '%s' (%d), address %x (%d)\n", what, of_name ? "" : name, of_name,
            of_address ? 0 : address, of_address);
    OK(clReleaseKernel(kernel));
}

static cl_program from_binary_of(cl_program program) {
    size_t size = 0;
    cl_int code, loaded;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    REQUIRE(size > 0);
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_program made = clCreateProgramWithBinary(context, 1, &device, &size,
                                                (const unsigned char **)&binary, &loaded, &code);
    OK(code);
    free(binary);
    return made;
}

/* Writes the descriptions of arguments, with and without the option that requests them, for a
 * program from source and for one from its binary. */
static void tell_builds(FILE *to) {
    const char *options[] = {NULL, "", "-cl-kernel-arg-info", "-cl-std=CL1.2"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char *name = options[i] ? options[i] : "NULL";
        char what[128];
        cl_program program = build(context, source, options[i]), again = from_binary_of(program);
        snprintf(what, sizeof what, "built with '%s'", name);
        tell_kind(to, what, program);
        tell_args(to, what, program);
        snprintf(what, sizeof what, "of the binary built with '%s'", name);
        tell_kind(to, what, again);
        OK(clBuildProgram(again, 0, NULL, options[i], NULL, NULL));
        snprintf(what, sizeof what, "of that binary, built with '%s'", name);
        tell_kind(to, what, again);
        tell_args(to, what, again);
        OK(clReleaseProgram(again));
        OK(clReleaseProgram(program));
    }
}

static void tell_links(FILE *to) {
    cl_program parts[2] = {from_source(user_source), from_source(helper_source)};
    cl_int code;
    for (int i = 0; i < 2; i++)
        OK(clCompileProgram(parts[i], 0, NULL, "", 0, NULL, NULL, NULL, NULL));
    cl_program object = from_binary_of(parts[1]);
    tell_kind(to, "compiled", parts[1]);
    tell_kind(to, "of the binary of a compiled object", object);
    cl_program inputs[2] = {parts[0], object};
    for (int i = 0; i < 2; i++) {
        cl_program linked =
            clLinkProgram(context, 0, NULL, i ? "" : NULL, 2, inputs, NULL, NULL, &code);
        OK(code);
        tell_kind(to, i ? "linked with ''" : "linked with 'NULL'", linked);
        tell_args(to, i ? "linked with ''" : "linked with 'NULL'", linked);
        OK(clReleaseProgram(linked));
    }
    OK(clBuildProgram(object, 0, NULL, "", NULL, NULL));
    tell_kind(to, "of the binary of a compiled object, built", object);
    cl_program library =
        clLinkProgram(context, 0, NULL, "-create-library", 1, &parts[1], NULL, NULL, &code);
    OK(code);
    cl_program again = from_binary_of(library);
    tell_kind(to, "a library", library);
    tell_kind(to, "of the binary of a library", again);
    cl_program all[] = {again, library, object, parts[0], parts[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) OK(clReleaseProgram(all[i]));
}

static void tell_all(FILE *to) {
    char name[256];
    device_text(device, CL_DEVICE_NAME, name, sizeof name);
    fprintf(to, "%s\n", name);
    tell_builds(to);
    tell_links(to);
}

/* Runs this program again, to query the local driver. */
static void ask_locally(const char *file) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        /* PENSTOCK_TEST_DRIVER_VENDORS: the folder with the driver's own entry for the ICD loader,
         * if that is not the usual one. */
        const char *vendors = getenv("PENSTOCK_TEST_DRIVER_VENDORS");
        if (vendors)
            setenv("OCL_ICD_VENDORS", vendors, 1);
        else
            unsetenv("OCL_ICD_VENDORS");
        unsetenv("OPENCL_VENDOR_PATH");
        unsetenv("PENSTOCK_TEST_PLATFORM");
        setenv(FILE_VARIABLE, file, 1);
        if (!freopen("/dev/null", "w", stdout)) _exit(2);
        execl("/proc/self/exe", "parity", (char *)NULL);
        _exit(2);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status != 0) test_skip("there is no local driver to compare with");
}

TEST(answers_are_those_of_the_driver) {
    const char *told = getenv(FILE_VARIABLE);
    if (told) {
        FILE *to = fopen(told, "w");
        REQUIRE(to);
        tell_all(to);
        REQUIRE(fclose(to) == 0);
        return;
    }
    if (!on_penstock()) test_skip("the platform is the driver itself");
    char file[] = "/tmp/penstock-parity.XXXXXX", here[512], there[512];
    int fd = mkstemp(file);
    REQUIRE(fd >= 0);
    ask_locally(file);
    FILE *expected = fdopen(fd, "r"), *got = tmpfile();
    REQUIRE(expected && got);
    tell_all(got);
    rewind(got);
    for (int line = 0; fgets(there, sizeof there, expected); line++) {
        bool more = fgets(here, sizeof here, got);
        if (line == 0 && (!more || strcmp(here, there) != 0)) {
            unlink(file);
            test_skip("the first local device is another one: %s", there);
        }
        if (!more || strcmp(here, there) != 0)
            test_fail(__FILE__, __LINE__, "here: %sat the driver: %s", more ? here : "nothing\n",
                      there);
    }
    fclose(expected);
    fclose(got);
    unlink(file);
}
