/* Block matrix product C = A B, handed out slice by slice to every OpenCL device there is.
 *
 * The evaluation program of clOpenCL (Alves, Rufino, Pina, Santos 2012), written anew: A is cut
 * into horizontal slices, B into vertical ones, and a block of C is the product of one of each. One
 * thread per device takes the next block that nobody has, sends its two slices, runs the kernel,
 * and fetches the block. Fast devices so take more blocks than slow ones. Plain OpenCL 1.2 and
 * POSIX threads: the program knows nothing of clusters.
 */
#include "matmul.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const char *const app_name = "matmul";

/* B is stored transposed, so that a vertical slice of B is one piece of memory, as a horizontal one
 * of A is. */
static const char *const kernel_source =
    "kernel void block_product(const uint n, const uint slice, global const float *rows,\n"
    "                          global const float *columns, global float *block)\n"
    "{\n"
    "    const uint column = get_global_id(0), row = get_global_id(1);\n"
    "    global const float *a = rows + (ulong)row * n;\n"
    "    global const float *b = columns + (ulong)column * n;\n"
    "    float sum = 0;\n"
    "    for (uint k = 0; k < n; k++) sum += a[k] * b[k];\n"
    "    block[(ulong)row * slice + column] = sum;\n"
    "}\n"
    "kernel void block_product_wide(const uint n, const uint slice, global const float *rows,\n"
    "                               global const float *columns, global float *block)\n"
    "{\n"
    "    const uint column = get_global_id(0), row = get_global_id(1);\n"
    "    global const float *a = rows + (ulong)row * n;\n"
    "    global const float *b = columns + (ulong)column * n;\n"
    "    float8 sums = 0;\n"
    "    for (uint k = 0; k < n / 8; k++) sums += vload8(k, a) * vload8(k, b);\n"
    "    const float4 half_sums = sums.lo + sums.hi;\n"
    "    block[(ulong)row * slice + column] = half_sums.x + half_sums.y + half_sums.z + half_sums.w;\n"
    "}\n";

struct job {
    const struct options *options;
    const float *a, *b_transposed;
    float *c;
    size_t blocks_per_side;
    atomic_size_t next; /* the first block nobody has taken */
    double start_s;
    pthread_barrier_t ready; /* all devices start together, after their kernels are built */
};

/* One block on its way through a device. Each has its own queue: transfers of one run beside the
 * kernel of another. */
struct slot {
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem rows, columns, block;
    cl_event events[4]; /* rows and columns written, kernel, block read */
    bool in_flight, has_rows, has_columns;
    bool wrote[2];
    size_t row, column;
    float *result;
};

struct worker {
    struct job *job;
    struct device *device;
    struct slot *slots;
    double clock_offset_s; /* host clock minus device clock, at most */
    bool clock_known;
};

const char *error_name(cl_int code) {
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
        {CL_DEVICE_NOT_FOUND, "no such device"},
        {CL_DEVICE_NOT_AVAILABLE, "the device is not available"},
        {CL_COMPILER_NOT_AVAILABLE, "the device has no compiler"},
        {CL_MEM_OBJECT_ALLOCATION_FAILURE, "the device has no memory left"},
        {CL_OUT_OF_RESOURCES, "the device is out of resources"},
        {CL_OUT_OF_HOST_MEMORY, "the host has no memory left"},
        {CL_BUILD_PROGRAM_FAILURE, "the kernel does not compile"},
        {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "a command before it failed"},
        {CL_INVALID_VALUE, "invalid value"},
        {CL_INVALID_BUFFER_SIZE, "the slices are too large for the device"},
        {CL_INVALID_WORK_GROUP_SIZE, "invalid work-group size"},
        {-1001, "no OpenCL platform"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return names[i].name;
    return "OpenCL error";
}

/* ---- devices ---- */

static bool chosen(const char *list, size_t index) {
    if (!list) return true;
    for (const char *at = list; *at;) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (end == at) fail("--devices wants numbers with commas, not \"%s\"", list);
        if (number == index) return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

static void describe(struct device *device, cl_platform_id platform, cl_device_id id,
                     const char *platform_name) {
    memset(device, 0, sizeof *device);
    device->platform = platform;
    device->id = id;
    snprintf(device->platform_name, sizeof device->platform_name, "%s", platform_name);
    CALL(clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof device->name, device->name, NULL));
    if (clGetDeviceInfo(id, CL_DEVICE_HOSTNAME_PENSTOCK, sizeof device->host, device->host, NULL) !=
            CL_SUCCESS &&
        clGetPlatformInfo(platform, CL_PLATFORM_HOSTNAME_PENSTOCK, sizeof device->host,
                          device->host, NULL) != CL_SUCCESS)
        device->host[0] = 0;
}

static size_t find_devices(struct device *devices, const struct options *options) {
    cl_platform_id platforms[32];
    cl_uint platform_count = 0;
    size_t count = 0, seen = 0;
    CALL(clGetPlatformIDs(32, platforms, &platform_count));
    for (cl_uint p = 0; p < platform_count && p < 32; p++) {
        char name[128] = "";
        cl_device_id ids[DEVICES_MAX];
        cl_uint id_count = 0;
        CALL(clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof name, name, NULL));
        if (options->platform && !strstr(name, options->platform)) continue;
        cl_int code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, DEVICES_MAX, ids, &id_count);
        if (code == CL_DEVICE_NOT_FOUND) continue;
        CALL(code);
        for (cl_uint d = 0; d < id_count && count < DEVICES_MAX; d++, seen++)
            if (chosen(options->devices, seen))
                describe(&devices[count++], platforms[p], ids[d], name);
    }
    if (count == 0)
        fail("no OpenCL device found%s",
             options->platform || options->devices ? " that was asked for" : "");
    return count;
}

/* ---- one device ---- */

static void make_slots(struct worker *worker, cl_context context, cl_program program) {
    const struct options *options = worker->job->options;
    const size_t slice_bytes = options->slice * options->n * sizeof(float);
    const size_t block_bytes = options->slice * options->slice * sizeof(float);
    const cl_uint n = (cl_uint)options->n, slice = (cl_uint)options->slice;
    worker->slots = calloc(options->depth, sizeof *worker->slots);
    for (size_t i = 0; i < options->depth; i++) {
        struct slot *slot = &worker->slots[i];
        cl_int code;
        slot->queue =
            clCreateCommandQueue(context, worker->device->id, CL_QUEUE_PROFILING_ENABLE, &code);
        CALL(code);
        slot->kernel =
            clCreateKernel(program, options->wide ? "block_product_wide" : "block_product", &code);
        CALL(code);
        slot->rows = clCreateBuffer(context, CL_MEM_READ_ONLY, slice_bytes, NULL, &code);
        CALL(code);
        slot->columns = clCreateBuffer(context, CL_MEM_READ_ONLY, slice_bytes, NULL, &code);
        CALL(code);
        slot->block = clCreateBuffer(context, CL_MEM_WRITE_ONLY, block_bytes, NULL, &code);
        CALL(code);
        slot->result = malloc(block_bytes);
        if (!slot->result) fail("no memory for a block of C");
        CALL(clSetKernelArg(slot->kernel, 0, sizeof n, &n));
        CALL(clSetKernelArg(slot->kernel, 1, sizeof slice, &slice));
        CALL(clSetKernelArg(slot->kernel, 2, sizeof slot->rows, &slot->rows));
        CALL(clSetKernelArg(slot->kernel, 3, sizeof slot->columns, &slot->columns));
        CALL(clSetKernelArg(slot->kernel, 4, sizeof slot->block, &slot->block));
    }
}

/* Drivers may put off a part of the compiling to the first launch of a shape. That launch is here,
 * with sums that are short, so that it is not in the time that is measured. */
static void warm_up(const struct worker *worker) {
    const struct options *options = worker->job->options;
    const struct slot *slot = &worker->slots[0];
    const size_t items[2] = {options->slice, options->slice};
    const cl_uint n = (cl_uint)options->n, short_n = n < 8 ? n : 8;
    CALL(clSetKernelArg(slot->kernel, 0, sizeof short_n, &short_n));
    CALL(clEnqueueNDRangeKernel(slot->queue, slot->kernel, 2, NULL, items, NULL, 0, NULL, NULL));
    CALL(clFinish(slot->queue));
    CALL(clSetKernelArg(slot->kernel, 0, sizeof n, &n));
}

static void start_block(struct worker *worker, struct slot *slot, size_t block) {
    const struct job *job = worker->job;
    const size_t n = job->options->n, slice = job->options->slice,
                 slice_bytes = slice * n * sizeof(float);
    const size_t row = block / job->blocks_per_side, column = block % job->blocks_per_side;
    const size_t items[2] = {slice, slice};
    /* With --keep a slice that the device still has is not sent again. */
    slot->wrote[0] = !(job->options->keep && slot->has_rows && slot->row == row);
    slot->wrote[1] = !(job->options->keep && slot->has_columns && slot->column == column);
    if (slot->wrote[0])
        CALL(clEnqueueWriteBuffer(slot->queue, slot->rows, CL_FALSE, 0, slice_bytes,
                                  job->a + row * slice * n, 0, NULL, &slot->events[0]));
    if (slot->wrote[1])
        CALL(clEnqueueWriteBuffer(slot->queue, slot->columns, CL_FALSE, 0, slice_bytes,
                                  job->b_transposed + column * slice * n, 0, NULL,
                                  &slot->events[1]));
    CALL(clEnqueueNDRangeKernel(slot->queue, slot->kernel, 2, NULL, items, NULL, 0, NULL,
                                &slot->events[2]));
    CALL(clEnqueueReadBuffer(slot->queue, slot->block, CL_FALSE, 0, slice * slice * sizeof(float),
                             slot->result, 0, NULL, &slot->events[3]));
    CALL(clFlush(slot->queue));
    slot->row = row;
    slot->column = column;
    slot->has_rows = slot->has_columns = slot->in_flight = true;
}

/* Keeps when one step ran, in seconds of the device's clock until the clocks are put together. */
static void note(struct worker *worker, const struct slot *slot, enum step step, cl_event event,
                 double seen_s) {
    struct device *device = worker->device;
    cl_ulong start = 0, end = 0;
    CALL(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
    CALL(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
    CALL(clReleaseEvent(event));
    const double start_s = 1e-9 * (double)start, end_s = 1e-9 * (double)end;
    /* The host saw the end later than it was: the smallest difference is the best guess of the
     * clocks' distance. */
    if (seen_s > 0 && (!worker->clock_known || seen_s - end_s < worker->clock_offset_s)) {
        worker->clock_offset_s = seen_s - end_s;
        worker->clock_known = true;
    }
    if (device->bar_count == device->bar_room) {
        device->bar_room = device->bar_room ? 2 * device->bar_room : 256;
        device->bars = realloc(device->bars, device->bar_room * sizeof *device->bars);
        if (!device->bars) fail("no memory for the timeline");
    }
    device->bars[device->bar_count++] =
        (struct bar){step, (unsigned)slot->row, (unsigned)slot->column, start_s, end_s};
}

static void finish_block(struct worker *worker, struct slot *slot) {
    const struct job *job = worker->job;
    const size_t n = job->options->n, slice = job->options->slice;
    CALL(clWaitForEvents(1, &slot->events[3]));
    const double seen_s = seconds();
    if (slot->wrote[0]) note(worker, slot, STEP_WRITE, slot->events[0], 0);
    if (slot->wrote[1]) note(worker, slot, STEP_WRITE, slot->events[1], 0);
    note(worker, slot, STEP_KERNEL, slot->events[2], 0);
    note(worker, slot, STEP_READ, slot->events[3], seen_s);
    for (size_t i = 0; i < slice; i++)
        memcpy(job->c + (slot->row * slice + i) * n + slot->column * slice,
               slot->result + i * slice, slice * sizeof(float));
    slot->in_flight = false;
    worker->device->slices++;
}

static int by_start(const void *a, const void *b) {
    const struct bar *x = a, *y = b;
    return x->start_s < y->start_s ? -1 : x->start_s > y->start_s;
}

/* The time in which at least one kernel ran (or one transfer): blocks in flight overlap, and must
 * not count twice. */
static double covered_s(struct device *device, bool kernels) {
    double sum = 0, until = -1e300;
    for (size_t i = 0; i < device->bar_count; i++) {
        const struct bar *bar = &device->bars[i];
        if ((bar->step == STEP_KERNEL) != kernels || bar->end_s <= until) continue;
        sum += bar->end_s - (bar->start_s > until ? bar->start_s : until);
        until = bar->end_s;
    }
    return sum;
}

static void sum_up(struct worker *worker) {
    struct device *device = worker->device;
    qsort(device->bars, device->bar_count, sizeof *device->bars, by_start);
    device->kernel_s = covered_s(device, true);
    device->transfer_s = covered_s(device, false);
    for (size_t i = 0; i < device->bar_count; i++) {
        device->bars[i].start_s += worker->clock_offset_s - worker->job->start_s;
        device->bars[i].end_s += worker->clock_offset_s - worker->job->start_s;
    }
}

static void release_slots(struct worker *worker) {
    for (size_t i = 0; i < worker->job->options->depth; i++) {
        struct slot *slot = &worker->slots[i];
        CALL(clReleaseMemObject(slot->rows));
        CALL(clReleaseMemObject(slot->columns));
        CALL(clReleaseMemObject(slot->block));
        CALL(clReleaseKernel(slot->kernel));
        CALL(clReleaseCommandQueue(slot->queue));
        free(slot->result);
    }
    free(worker->slots);
}

static cl_program build_program(cl_context context, struct device *device) {
    cl_int code;
    cl_program program =
        clCreateProgramWithSource(context, 1, (const char **)&kernel_source, NULL, &code);
    CALL(code);
    code = clBuildProgram(program, 1, &device->id, "", NULL, NULL);
    if (code != CL_SUCCESS) {
        static char log[16384];
        clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fail("the kernel does not build for %s: %d\n%s", device->name, code, log);
    }
    return program;
}

static void *run_device(void *argument) {
    struct worker *worker = argument;
    struct job *job = worker->job;
    struct device *device = worker->device;
    const size_t depth = job->options->depth, blocks = job->blocks_per_side * job->blocks_per_side;
    cl_int code;
    cl_context context = clCreateContext(NULL, 1, &device->id, NULL, NULL, &code);
    CALL(code);
    cl_program program = build_program(context, device);
    make_slots(worker, context, program);
    warm_up(worker);
    pthread_barrier_wait(&job->ready); /* built; the main thread starts the clock */
    pthread_barrier_wait(&job->ready);
    for (size_t turn = 0;; turn = (turn + 1) % depth) {
        struct slot *slot = &worker->slots[turn];
        if (slot->in_flight) finish_block(worker, slot);
        const size_t block = atomic_fetch_add(&job->next, 1);
        if (block >= blocks) break;
        start_block(worker, slot, block);
    }
    for (size_t i = 0; i < depth; i++)
        if (worker->slots[i].in_flight) finish_block(worker, &worker->slots[i]);
    sum_up(worker);
    release_slots(worker);
    CALL(clReleaseProgram(program));
    CALL(clReleaseContext(context));
    return NULL;
}

/* ---- the whole ---- */

static double multiply(struct job *job, struct device *devices, size_t count) {
    pthread_t threads[DEVICES_MAX];
    struct worker workers[DEVICES_MAX];
    pthread_barrier_init(&job->ready, NULL, (unsigned)count + 1);
    for (size_t i = 0; i < count; i++) {
        workers[i] = (struct worker){.job = job, .device = &devices[i]};
        if (pthread_create(&threads[i], NULL, run_device, &workers[i]) != 0)
            fail("no thread for device %zu", i);
    }
    pthread_barrier_wait(&job->ready);
    job->start_s = seconds();
    pthread_barrier_wait(&job->ready);
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    const double total_s = seconds() - job->start_s;
    pthread_barrier_destroy(&job->ready);
    return total_s;
}

/* Whole numbers from -8 to 8: every product and sum is exact in single precision, in whatever order
 * a device adds, so that the check needs no tolerance (64 n < 2^24). */
static void fill(float *matrix, size_t count, uint64_t seed) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        matrix[i] = (float)((int)((state >> 33) % 17) - 8);
    }
}

static void report(const struct options *options, const struct device *devices, size_t count,
                   double total_s, double check_s, size_t wrong) {
    const double block_flop =
        2.0 * (double)options->slice * (double)options->slice * (double)options->n;
    const double total_gflops =
        2e-9 * (double)options->n * (double)options->n * (double)options->n / total_s;
    if (options->json) {
        printf(
            "{\"n\": %zu, \"slice\": %zu, \"depth\": %zu, \"seconds\": %.6f, \"gflops\": %.4f, \"devices\": [",
            options->n, options->slice, options->depth, total_s, total_gflops);
    } else {
        printf("%-3s %-34s %-18s %7s %7s %9s %9s\n", "#", "device", "host", "slices", "busy",
               "transfer", "GFLOP/s");
    }
    for (size_t i = 0; i < count; i++) {
        const struct device *d = &devices[i];
        const double gflops = 1e-9 * block_flop * (double)d->slices / total_s;
        if (options->json) {
            printf(
                "%s{\"platform\": \"%s\", \"name\": \"%s\", \"host\": \"%s\", \"slices\": %zu, \"busy_share\": %.4f, "
                "\"transfer_share\": %.4f, \"gflops\": %.4f}",
                i ? ", " : "", d->platform_name, d->name, d->host, d->slices, d->kernel_s / total_s,
                d->transfer_s / total_s, gflops);
        } else {
            printf("%-3zu %-34.34s %-18.18s %7zu %6.1f%% %8.1f%% %9.2f\n", i, d->name,
                   d->host[0] ? d->host : "-", d->slices, 100 * d->kernel_s / total_s,
                   100 * d->transfer_s / total_s, gflops);
        }
    }
    if (options->json) {
        printf("], \"checked\": %s, \"wrong_rows\": %zu}\n", options->check ? "true" : "false",
               wrong);
        return;
    }
    printf("total: %.2f s, %.2f GFLOP/s on %zu device%s\n", total_s, total_gflops, count,
           count == 1 ? "" : "s");
    if (!options->check) return;
    if (wrong) {
        printf("product: WRONG in %zu rows\n", wrong);
    } else {
        printf("product: right (%u random vectors, exact, %.2f s)\n", options->rounds, check_s);
    }
}

int main(int argc, char **argv) {
    static struct device devices[DEVICES_MAX];
    struct options options;
    int exit_code = 0;
    if (!options_read(&options, argc, argv, &exit_code)) return exit_code;
    const size_t n = options.n, count = find_devices(devices, &options);
    if (options.list) {
        for (size_t i = 0; i < count; i++)
            printf("%zu  %s  %s%s%s\n", i, devices[i].name, devices[i].platform_name,
                   devices[i].host[0] ? "  on " : "", devices[i].host);
        return 0;
    }
    float *a = malloc(n * n * sizeof *a), *b_transposed = malloc(n * n * sizeof *a),
          *c = malloc(n * n * sizeof *a);
    if (!a || !b_transposed || !c) fail("no memory for three matrices of order %zu", n);
    fill(a, n * n, 1);
    fill(b_transposed, n * n, 2);
    memset(c, 0xff, n * n * sizeof *c); /* not a number, until a device says otherwise */
    if (!options.json)
        printf("C = A B, n = %zu, slice = %zu: %zu blocks, %zu in flight per device\n", n,
               options.slice, (n / options.slice) * (n / options.slice), options.depth);
    struct job job = {.options = &options,
                      .a = a,
                      .b_transposed = b_transposed,
                      .c = c,
                      .blocks_per_side = n / options.slice};
    const double total_s = multiply(&job, devices, count);
    const double check_start_s = seconds();
    const size_t wrong = options.check ? check_product(n, a, b_transposed, c, options.rounds) : 0;
    report(&options, devices, count, total_s, seconds() - check_start_s, wrong);
    if (options.timeline && !timeline_write(options.timeline, devices, count, total_s, &options))
        return 1;
    if (options.timeline && !options.json) printf("timeline: %s\n", options.timeline);
    free(a);
    free(b_transposed);
    free(c);
    for (size_t i = 0; i < count; i++) free(devices[i].bars);
    return wrong ? 1 : 0;
}
