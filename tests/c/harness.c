#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

cl_platform_id platform;
cl_device_id device;
cl_device_id devices[DEVICES_MAX];
cl_uint device_count;
cl_context context;
cl_command_queue queue;
bool test_in_gap;

struct test_case {
    const char *name;
    test_fn run;
};
static struct test_case cases[128];
static size_t case_count;
static jmp_buf leave_case;
static int failures_of_case, gaps_of_case, checks;
static bool skipped_case;
static char platform_name[256];

void test_register(const char *name, test_fn run) {
    if (case_count == sizeof cases / sizeof *cases) {
        fprintf(stderr, "too many cases\n");
        exit(2);
    }
    cases[case_count++] = (struct test_case){name, run};
}

void test_count(void) { checks++; }

void test_fail(const char *file, int line, const char *format, ...) {
    va_list list;
    printf("    %s:%d: %s", file, line, test_in_gap ? "known gap of PoCL: " : "");
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
    if (test_in_gap) {
        gaps_of_case++;
    } else {
        failures_of_case++;
    }
}

void test_abort(void) { longjmp(leave_case, 1); }

void test_skip(const char *format, ...) {
    va_list list;
    printf("    skipped: ");
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    skipped_case = true;
    longjmp(leave_case, 1);
}

void test_note(const char *format, ...) {
    va_list list;
    printf("    ");
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
}

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double patience_s(void) {
    const char *slowness = getenv("PENSTOCK_TEST_SLOWNESS");
    return 60 * (slowness ? atof(slowness) : 1);
}

bool wait_until(volatile int *flag, int value, double limit_s) {
    double end = seconds() + limit_s;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value) {
        if (seconds() > end) return false;
        usleep(200);
    }
    return true;
}

bool on_pocl(void) { return strstr(platform_name, "Portable Computing Language") != NULL; }
bool on_penstock(void) { return strstr(platform_name, "Penstock") != NULL; }

static void choose_platform(void) {
    cl_platform_id all[32];
    cl_uint count = 0;
    const char *wanted = getenv("PENSTOCK_TEST_PLATFORM");
    cl_int code = clGetPlatformIDs(32, all, &count);
    if (code != CL_SUCCESS || count == 0) {
        printf("    no OpenCL platform: %s\n", error_name(code));
        exit(1);
    }
    for (cl_uint i = 0; i < count && i < 32; i++) {
        code =
            clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof platform_name, platform_name, NULL);
        if (code != CL_SUCCESS) continue;
        if (!wanted || strstr(platform_name, wanted)) {
            platform = all[i];
            break;
        }
    }
    if (!platform) {
        printf("    no platform named like \"%s\"\n", wanted ? wanted : "");
        exit(1);
    }
    code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices, &device_count);
    if (code != CL_SUCCESS || device_count == 0) {
        printf("    platform \"%s\" has no device: %s\n", platform_name, error_name(code));
        exit(1);
    }
    if (device_count > DEVICES_MAX) device_count = DEVICES_MAX;
    device = devices[0];
}

static int run_case(const struct test_case *test) {
    double start = seconds();
    failures_of_case = 0;
    gaps_of_case = 0;
    skipped_case = false;
    test_in_gap = false;
    if (setjmp(leave_case) == 0) test->run();
    test_in_gap = false;
    const char *verdict = failures_of_case ? "FAIL"
                          : skipped_case   ? "skip"
                          : gaps_of_case   ? "gap "
                                           : "ok  ";
    printf("  %s %-44s %7.1f ms\n", verdict, test->name, 1e3 * (seconds() - start));
    fflush(stdout);
    return failures_of_case ? 1 : skipped_case ? 77 : 0;
}

int main(int argc, char **argv) {
    const char *only = getenv("PENSTOCK_TEST_ONLY");
    const char *name = strrchr(argv[0], '/');
    int passed = 0, failed = 0, skipped = 0;
    (void)argc;
    name = name ? name + 1 : argv[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    choose_platform();
    context = make_context(1, &device);
    queue = make_queue(context, device, 0);
    printf("%s on \"%s\", %u device(s)\n", name, platform_name, device_count);
    for (size_t i = 0; i < case_count; i++) {
        if (only && !strstr(cases[i].name, only)) continue;
        int verdict = run_case(&cases[i]);
        passed += verdict == 0;
        failed += verdict == 1;
        skipped += verdict == 77;
    }
    /* A clean end of the program shows that the objects of all cases can be released. */
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    printf("%s %s: %d passed, %d failed, %d skipped (%d checks)\n",
           failed   ? "FAIL"
           : passed ? "PASS"
                    : "SKIP",
           name, passed, failed, skipped, checks);
    return failed ? 1 : passed ? 0 : 77;
}

cl_context make_context(cl_uint count, const cl_device_id *of) {
    cl_int code = CL_SUCCESS;
    cl_context made = clCreateContext(NULL, count, of, NULL, NULL, &code);
    if (!made || code != CL_SUCCESS) {
        test_fail(__FILE__, __LINE__, "clCreateContext gave %s", error_name(code));
        if (!context) exit(1);
        test_abort();
    }
    return made;
}

cl_command_queue make_queue(cl_context in, cl_device_id on,
                            cl_command_queue_properties properties) {
    cl_int code = CL_SUCCESS;
    cl_command_queue made = clCreateCommandQueue(in, on, properties, &code);
    if (!made || code != CL_SUCCESS) {
        test_fail(__FILE__, __LINE__, "clCreateCommandQueue gave %s", error_name(code));
        if (!queue) exit(1);
        test_abort();
    }
    return made;
}

cl_mem make_buffer(cl_context in, cl_mem_flags flags, size_t size, void *host) {
    cl_int code = CL_SUCCESS;
    cl_mem made = clCreateBuffer(in, flags, size, host, &code);
    if (!made || code != CL_SUCCESS) {
        test_fail(__FILE__, __LINE__, "clCreateBuffer of %zu bytes gave %s", size,
                  error_name(code));
        test_abort();
    }
    return made;
}

cl_program build(cl_context in, const char *source, const char *options) {
    cl_int code = CL_SUCCESS;
    cl_program made = clCreateProgramWithSource(in, 1, &source, NULL, &code);
    if (!made || code != CL_SUCCESS) {
        test_fail(__FILE__, __LINE__, "clCreateProgramWithSource gave %s", error_name(code));
        test_abort();
    }
    code = clBuildProgram(made, 0, NULL, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        static char log[8192];
        cl_device_id first = NULL;
        clGetContextInfo(in, CL_CONTEXT_DEVICES, sizeof first, &first, NULL);
        clGetProgramBuildInfo(made, first ? first : device, CL_PROGRAM_BUILD_LOG, sizeof log, log,
                              NULL);
        test_fail(__FILE__, __LINE__, "clBuildProgram gave %s\n%s", error_name(code), log);
        test_abort();
    }
    return made;
}

cl_program from_source(const char *source) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    OK(code);
    return program;
}

cl_kernel make_kernel(cl_program from, const char *name) {
    cl_int code = CL_SUCCESS;
    cl_kernel made = clCreateKernel(from, name, &code);
    if (!made || code != CL_SUCCESS) {
        test_fail(__FILE__, __LINE__, "clCreateKernel(\"%s\") gave %s", name, error_name(code));
        test_abort();
    }
    return made;
}

cl_kernel kernel_from(cl_context in, const char *source, const char *name) {
    cl_program program = build(in, source, NULL);
    cl_kernel kernel = make_kernel(program, name);
    /* The kernel retains its program. */
    clReleaseProgram(program);
    return kernel;
}

void set_mem(cl_kernel kernel, cl_uint index, cl_mem mem) {
    OK(clSetKernelArg(kernel, index, sizeof mem, &mem));
}

void launch(cl_command_queue on, cl_kernel kernel, size_t items) {
    OK(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

cl_int run_for_one_word(cl_program program, const char *name) {
    cl_kernel kernel = make_kernel(program, name);
    cl_int value = 0;
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 4, NULL);
    set_mem(kernel, 0, mem);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
    return value;
}

cl_event make_user_event(cl_context in) {
    cl_int code;
    cl_event event = clCreateUserEvent(in, &code);
    OK(code);
    return event;
}

cl_int status_of(cl_event event) {
    cl_int status = 12345;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

cl_uint device_uint(cl_device_id of, cl_device_info what) {
    cl_uint value = 0;
    OK(clGetDeviceInfo(of, what, sizeof value, &value, NULL));
    return value;
}

size_t device_size(cl_device_id of, cl_device_info what) {
    size_t value = 0;
    OK(clGetDeviceInfo(of, what, sizeof value, &value, NULL));
    return value;
}

cl_ulong device_ulong(cl_device_id of, cl_device_info what) {
    cl_ulong value = 0;
    OK(clGetDeviceInfo(of, what, sizeof value, &value, NULL));
    return value;
}

void device_text(cl_device_id of, cl_device_info what, char *text, size_t size) {
    text[0] = 0;
    OK(clGetDeviceInfo(of, what, size, text, NULL));
}

bool device_has_extension(cl_device_id of, const char *name) {
    static char text[16384];
    device_text(of, CL_DEVICE_EXTENSIONS, text, sizeof text);
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += length) {
        bool starts = at == text || at[-1] == ' ';
        bool ends = at[length] == 0 || at[length] == ' ';
        if (starts && ends) return true;
    }
    return false;
}

bool device_has_images(cl_device_id of) { return device_uint(of, CL_DEVICE_IMAGE_SUPPORT) != 0; }

void need_images(void) {
    if (!device_has_images(device)) test_skip("the device has no images");
}

bool device_supports_queue(cl_device_id of, cl_command_queue_properties properties) {
    cl_command_queue_properties have = 0;
    OK(clGetDeviceInfo(of, CL_DEVICE_QUEUE_PROPERTIES, sizeof have, &have, NULL));
    return (have & properties) == properties;
}

/* splitmix64: eight pseudo-random bytes from a counter, so that any shift or mix-up of bytes is
 * visible. */
static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void pattern(void *bytes, size_t size, unsigned seed) {
    unsigned char *out = bytes;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = mixed(((uint64_t)seed << 40) + at);
        memcpy(out + at, &word, size - at < 8 ? size - at : 8);
    }
}

bool same_pattern(const void *bytes, size_t size, unsigned seed) {
    const unsigned char *in = bytes;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = mixed(((uint64_t)seed << 40) + at);
        if (memcmp(in + at, &word, size - at < 8 ? size - at : 8) != 0) {
            test_note("byte %zu of %zu differs (seed %u)", at, size, seed);
            return false;
        }
    }
    return true;
}

void write_pattern(cl_command_queue on, cl_mem mem, size_t size, unsigned seed) {
    void *bytes = malloc(size);
    REQUIRE(bytes);
    pattern(bytes, size, seed);
    OK(clEnqueueWriteBuffer(on, mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
    free(bytes);
}

bool read_pattern(cl_command_queue on, cl_mem mem, size_t size, unsigned seed) {
    void *bytes = calloc(1, size);
    REQUIRE(bytes);
    OK(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
    bool same = same_pattern(bytes, size, seed);
    free(bytes);
    return same;
}

cl_uint word_of(cl_context of, cl_command_queue on, cl_kernel kernel, size_t items) {
    cl_mem mem = make_buffer(of, 0, sizeof(cl_uint), NULL);
    cl_uint word = 0;
    set_mem(kernel, 0, mem);
    OK(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, &items, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL));
    OK(clReleaseMemObject(mem));
    return word;
}

static FILE *printed;

int capture_begin(void) {
    printed = tmpfile();
    REQUIRE(printed);
    fflush(stdout);
    const int saved = dup(1);
    dup2(fileno(printed), 1);
    return saved;
}

void capture_end(int saved, char *text, size_t size) {
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    const ssize_t length = pread(fileno(printed), text, size - 1, 0);
    text[length > 0 ? length : 0] = 0;
    fclose(printed);
}
