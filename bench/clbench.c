/* The benchmark program: plain OpenCL, on the platform that the loader shows. Prints one JSON
 * object.
 *
 * It measures what a program experiences. The same file runs on the driver itself and through the
 * pool, so the ratio of two runs is the cost of the pool. All data is checked. `clbench --help`
 * lists the options.
 */
#include "clbench.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

cl_platform_id platform;
cl_device_id devices[16];
cl_uint device_count;
cl_context context;
cl_command_queue queue;
bool quick;

static bool first_row = true;
static const char *only;

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void fail(const char *format, ...) {
    va_list list;
    fflush(stdout);
    fprintf(stderr, "clbench: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    exit(1);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double median(double *samples, size_t count) { return percentile(samples, count, 0.5); }

double percentile(double *samples, size_t count, double share) {
    qsort(samples, count, sizeof *samples, compare);
    size_t at = (size_t)(share * (double)(count - 1) + 0.5);
    return samples[at];
}

void row(const char *name, const char *unit, double value) {
    printf("%s\n    {\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.9g}", first_row ? "" : ",",
           name, unit, value);
    fflush(stdout);
    first_row = false;
}

size_t rounds(size_t full) {
    size_t fewer = full / 10;
    return quick ? (fewer < 5 ? (full < 5 ? full : 5) : fewer) : full;
}

/* Fills bytes that differ at every position and in every round. */
void pattern(unsigned char *bytes, size_t size, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x1234567;
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(bytes + at, &state, 8);
    }
    for (; at < size; at++) bytes[at] = (unsigned char)(state >> (8 * (at % 8)));
}

cl_kernel make_kernel(const char *source, const char *name) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    CALL(code);
    CALL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, name, &code);
    CALL(code);
    CALL(clReleaseProgram(program));
    return kernel;
}

cl_mem make_buffer(size_t size) {
    cl_int code;
    cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &code);
    CALL(code);
    return mem;
}

static void start_up(const char *wanted) {
    cl_platform_id all[32];
    cl_uint count = 0;
    cl_int code;
    const double start_s = seconds();
    CALL(clGetPlatformIDs(32, all, &count));
    for (cl_uint i = 0; i < count && i < 32; i++) {
        char name[256] = "";
        CALL(clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof name, name, NULL));
        if (!wanted || strstr(name, wanted)) {
            platform = all[i];
            break;
        }
    }
    if (!platform) fail("no platform%s%s", wanted ? " named like " : "", wanted ? wanted : "");
    CALL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 16, devices, &device_count));
    if (device_count > 16) device_count = 16;
    context = clCreateContext(NULL, 1, devices, NULL, NULL, &code);
    CALL(code);
    const double end_s = seconds();
    queue = clCreateCommandQueue(context, devices[0], 0, &code);
    CALL(code);
    char name[256] = "", device[256] = "", version[256] = "";
    CALL(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
    CALL(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version, version, NULL));
    CALL(clGetDeviceInfo(devices[0], CL_DEVICE_NAME, sizeof device, device, NULL));
    printf(
        "{\n  \"platform\": \"%s\", \"version\": \"%s\", \"device\": \"%s\", \"devices\": %u,\n  \"rows\": [",
        name, version, device, device_count);
    row("start-up: platforms, devices, first context", "s", end_s - start_s);
}

/* The memory and the threads of this process. */
static void footprint(void) {
    char line[256];
    double threads = 0, resident_kb = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) return;
    while (fgets(line, sizeof line, status)) {
        sscanf(line, "Threads: %lf", &threads);
        sscanf(line, "VmRSS: %lf", &resident_kb);
    }
    fclose(status);
    row("threads of the client", "", threads);
    row("memory of the client", "B", 1024 * resident_kb);
}

bool asked(const char *group) { return !only || strstr(group, only); }

int main(int argc, char **argv) {
    const char *wanted = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (strcmp(argv[i], "--platform") == 0 && i + 1 < argc) {
            wanted = argv[++i];
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else {
            bool help = strcmp(argv[i], "--help") == 0;
            fprintf(help ? stdout : stderr, "clbench [--quick] [--platform TEXT] "
                                            "[--only launch|transfer|bulk|map|build|migrate|"
                                            "startup]\n");
            return help ? 0 : 2;
        }
    }
    start_up(wanted);
    /* Before anything grows: what a program pays for opening the platform. */
    if (asked("startup")) footprint();
    if (asked("launch")) measure_launches();
    if (asked("transfer")) measure_transfers();
    /* One of the transfers, for slow links. */
    if (only && asked("bulk")) measure_bulk();
    if (asked("map")) measure_maps();
    if (asked("build")) measure_builds();
    if (asked("migrate") && device_count >= 2) measure_migration();
    printf("\n  ]\n}\n");
    CALL(clReleaseCommandQueue(queue));
    CALL(clReleaseContext(context));
    return 0;
}
