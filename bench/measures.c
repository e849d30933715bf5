/* All measurements. The names of the rows are the keys by which runs are compared: do not change
 * them without need. */
#include "clbench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 20000
static double samples[SAMPLES_MAX];

static const size_t one = 1;

static void *bytes_of(size_t size) {
    void *bytes = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!bytes) fail("no memory for %zu bytes", size);
    memset(bytes, 1, size);
    return bytes;
}

static const char *size_name(size_t size, char text[32]) {
    if (size >= 1u << 20)
        snprintf(text, 32, "%zu MiB", size >> 20);
    else if (size >= 1024)
        snprintf(text, 32, "%zu KiB", size >> 10);
    else
        snprintf(text, 32, "%zu B", size);
    return text;
}

/* ---- launches ---- */

static void launch_and_finish(cl_kernel kernel) {
    const size_t count = rounds(5000);
    for (size_t i = 0; i < count + 20; i++) {
        const double start_s = seconds();
        CALL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        CALL(clFinish(queue));
        if (i >= 20) samples[i - 20] = seconds() - start_s;
    }
    row("launch and finish, median", "s", median(samples, count));
    row("launch and finish, p99", "s", percentile(samples, count, 0.99));
    row("launch and finish, least", "s", percentile(samples, count, 0));
}

static void launch_after_pause(cl_kernel kernel) {
    /* The other case: both sides sleep. */
    const size_t count = rounds(100);
    for (size_t i = 0; i < count; i++) {
        usleep(2000);
        const double start_s = seconds();
        CALL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        CALL(clFinish(queue));
        samples[i] = seconds() - start_s;
    }
    row("launch and finish after 2 ms of rest, median", "s", median(samples, count));
}

static void launches_in_order(cl_kernel kernel) {
    enum { COUNT = 10000 };
    const size_t runs = rounds(15);
    static double enqueued[64];
    for (size_t run = 0; run < runs; run++) {
        const double start_s = seconds();
        for (int i = 0; i < COUNT; i++)
            CALL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        enqueued[run] = (seconds() - start_s) / COUNT;
        CALL(clFinish(queue));
        samples[run] = COUNT / (seconds() - start_s);
    }
    row("10,000 kernels in order", "/s", median(samples, runs));
    row("10,000 kernels in order, enqueue alone, each", "s", median(enqueued, runs));
}

static void write_and_kernel(cl_kernel kernel, cl_mem mem) {
    enum { PAIRS = 2000, SIZE = 64 };
    static unsigned char bytes[PAIRS][SIZE], back[SIZE];
    const size_t runs = rounds(25);
    pattern(&bytes[0][0], sizeof bytes, 3);
    for (size_t run = 0; run < runs; run++) {
        const double start_s = seconds();
        for (int i = 0; i < PAIRS; i++) {
            CALL(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, SIZE, bytes[i], 0, NULL, NULL));
            CALL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        }
        CALL(clFinish(queue));
        samples[run] = (seconds() - start_s) / PAIRS;
    }
    CALL(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    if (memcmp(back, bytes[PAIRS - 1], SIZE) != 0)
        fail("the last of the small writes did not arrive");
    row("2,000 x (write 64 B + kernel), a pair", "s", median(samples, runs));
}

static void write_kernel_read(size_t size, size_t full_rounds) {
    const char *source = "kernel void flip(global uchar *to, global const uchar *from) {"
                         "    size_t i = get_global_id(0); to[i] = ~from[i]; }";
    const size_t count = rounds(full_rounds);
    /* The kernel works on only 64 bytes, so that the transfers dominate. */
    const size_t items = 64;
    cl_kernel kernel = make_kernel(source, "flip");
    cl_mem from = make_buffer(size), to = make_buffer(size);
    unsigned char *bytes = bytes_of(size), *back = bytes_of(size);
    char name[64], text[32];
    CALL(clSetKernelArg(kernel, 0, sizeof to, &to));
    CALL(clSetKernelArg(kernel, 1, sizeof from, &from));
    for (size_t i = 0; i < count + 3; i++) {
        pattern(bytes, 64, i);
        const double start_s = seconds();
        CALL(clEnqueueWriteBuffer(queue, from, CL_FALSE, 0, size, bytes, 0, NULL, NULL));
        CALL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
        CALL(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, size, back, 0, NULL, NULL));
        if (i >= 3) samples[i - 3] = seconds() - start_s;
        for (int k = 0; k < 64; k++)
            if (back[k] != (unsigned char)~bytes[k])
                fail("write, kernel, read gave the wrong bytes");
    }
    snprintf(name, sizeof name, "write, kernel, read back %s", size_name(size, text));
    row(name, "s", median(samples, count));
    free(bytes);
    free(back);
    CALL(clReleaseMemObject(from));
    CALL(clReleaseMemObject(to));
    CALL(clReleaseKernel(kernel));
}

void measure_launches(void) {
    cl_kernel empty = make_kernel("kernel void nothing(void) { }", "nothing");
    cl_kernel touch = make_kernel("kernel void touch(global const uchar *from) { }", "touch");
    cl_mem mem = make_buffer(64);
    CALL(clSetKernelArg(touch, 0, sizeof mem, &mem));
    launch_and_finish(empty);
    launch_after_pause(empty);
    launches_in_order(empty);
    write_and_kernel(touch, mem);
    write_kernel_read(64, 2000);
    write_kernel_read(64 << 10, 1000);
    write_kernel_read(1 << 20, 300);
    CALL(clReleaseMemObject(mem));
    CALL(clReleaseKernel(empty));
    CALL(clReleaseKernel(touch));
}

/* ---- transfers ---- */

static void blocking(size_t size, size_t full_rounds) {
    const size_t count = rounds(full_rounds);
    static double reads[SAMPLES_MAX];
    unsigned char *bytes = bytes_of(size), *back = bytes_of(size);
    cl_mem mem = make_buffer(size);
    char name[64], text[32];
    const bool as_rate = size >= 64 << 10;
    pattern(bytes, size, size);
    for (size_t i = 0; i < count + 2; i++) {
        bytes[i % size] ^= 0x5a;
        const double start_s = seconds();
        CALL(clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
        const double written_s = seconds();
        CALL(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, size, back, 0, NULL, NULL));
        const double read_s = seconds();
        if (i >= 2) {
            samples[i - 2] = written_s - start_s;
            reads[i - 2] = read_s - written_s;
        }
        if (back[i % size] != bytes[i % size])
            fail("a blocking read of %zu bytes gave the wrong bytes", size);
    }
    if (memcmp(bytes, back, size) != 0)
        fail("a blocking read of %zu bytes gave the wrong bytes", size);
    const double write_s = median(samples, count), read_s = median(reads, count);
    snprintf(name, sizeof name, "blocking write %s", size_name(size, text));
    row(name, as_rate ? "B/s" : "s", as_rate ? (double)size / write_s : write_s);
    snprintf(name, sizeof name, "blocking read %s", size_name(size, text));
    row(name, as_rate ? "B/s" : "s", as_rate ? (double)size / read_s : read_s);
    free(bytes);
    free(back);
    CALL(clReleaseMemObject(mem));
}

/* The case in which transfers without a message do not help: the program has rested, and both sides
 * sleep. */
static void blocking_after_pause(void) {
    enum { SIZE = 4 };
    const size_t count = rounds(100);
    static double reads[SAMPLES_MAX];
    unsigned char bytes[SIZE] = {1, 2, 3, 4}, back[SIZE];
    cl_mem mem = make_buffer(SIZE);
    for (size_t i = 0; i < count; i++) {
        bytes[0] = (unsigned char)i;
        usleep(2000);
        const double start_s = seconds();
        CALL(clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL));
        samples[i] = seconds() - start_s;
        usleep(2000);
        const double read_s = seconds();
        CALL(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
        reads[i] = seconds() - read_s;
        if (back[0] != bytes[0]) fail("a read after a rest gave the wrong bytes");
    }
    row("blocking write 4 B after 2 ms of rest", "s", median(samples, count));
    row("blocking read 4 B after 2 ms of rest", "s", median(reads, count));
    CALL(clReleaseMemObject(mem));
}

/* The same transfers in a queue with profiling. Only the device knows their times, so each transfer
 * is a command. */
static void blocking_with_times(void) {
    enum { SIZE = 4 };
    const size_t count = rounds(1000);
    static double reads[SAMPLES_MAX];
    unsigned char bytes[SIZE] = {1, 2, 3, 4}, back[SIZE];
    cl_int code;
    cl_command_queue timed =
        clCreateCommandQueue(context, devices[0], CL_QUEUE_PROFILING_ENABLE, &code);
    CALL(code);
    cl_mem mem = make_buffer(SIZE);
    for (size_t i = 0; i < count + 3; i++) {
        cl_event written, read;
        bytes[0] = (unsigned char)i;
        const double start_s = seconds();
        CALL(clEnqueueWriteBuffer(timed, mem, CL_TRUE, 0, SIZE, bytes, 0, NULL, &written));
        const double written_s = seconds();
        CALL(clEnqueueReadBuffer(timed, mem, CL_TRUE, 0, SIZE, back, 0, NULL, &read));
        const double read_s = seconds();
        if (i >= 3) {
            samples[i - 3] = written_s - start_s;
            reads[i - 3] = read_s - written_s;
        }
        if (back[0] != bytes[0]) fail("a read with times gave the wrong bytes");
        CALL(clReleaseEvent(written));
        CALL(clReleaseEvent(read));
    }
    row("blocking write 4 B with its times", "s", median(samples, count));
    row("blocking read 4 B with its times", "s", median(reads, count));
    CALL(clReleaseMemObject(mem));
    CALL(clReleaseCommandQueue(timed));
}

/* A write and a read without a kernel between them. */
static void there_and_back(size_t size, size_t full_rounds) {
    const size_t count = rounds(full_rounds);
    unsigned char *bytes = bytes_of(size), *back = bytes_of(size);
    cl_mem mem = make_buffer(size);
    char name[64], text[32];
    for (size_t i = 0; i < count + 3; i++) {
        pattern(bytes, 64, i);
        const double start_s = seconds();
        CALL(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, size, bytes, 0, NULL, NULL));
        CALL(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, size, back, 0, NULL, NULL));
        if (i >= 3) samples[i - 3] = seconds() - start_s;
        if (memcmp(bytes, back, 64) != 0) fail("there and back gave the wrong bytes");
    }
    snprintf(name, sizeof name, "%s there and back", size_name(size, text));
    row(name, "s", median(samples, count));
    free(bytes);
    free(back);
    CALL(clReleaseMemObject(mem));
}

/* A blocking write may return when the bytes have left the program's memory. This measures the time
 * until they are on the device. */
static void write_to_its_end(size_t size, size_t full_rounds) {
    const size_t count = rounds(full_rounds);
    unsigned char *bytes = bytes_of(size);
    cl_mem mem = make_buffer(size);
    char name[64], text[32];
    for (size_t i = 0; i < count + 2; i++) {
        bytes[i % size] ^= 0x5a;
        const double start_s = seconds();
        CALL(clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
        CALL(clFinish(queue));
        if (i >= 2) samples[i - 2] = seconds() - start_s;
    }
    snprintf(name, sizeof name, "write %s to its end", size_name(size, text));
    row(name, "B/s", (double)size / median(samples, count));
    free(bytes);
    CALL(clReleaseMemObject(mem));
}

static void sixteen_in_flight(void) {
    enum { PARTS = 16, SIZE = 16 << 20 };
    const size_t runs = rounds(8);
    static double reads[64];
    cl_mem mems[PARTS];
    unsigned char *bytes = bytes_of((size_t)PARTS * SIZE), *back = bytes_of((size_t)PARTS * SIZE);
    for (int i = 0; i < PARTS; i++) mems[i] = make_buffer(SIZE);
    for (size_t run = 0; run < runs; run++) {
        pattern(bytes, (size_t)PARTS * SIZE, run);
        const double start_s = seconds();
        for (size_t i = 0; i < PARTS; i++)
            CALL(clEnqueueWriteBuffer(queue, mems[i], CL_FALSE, 0, SIZE, bytes + i * SIZE, 0, NULL,
                                      NULL));
        CALL(clFinish(queue));
        const double written_s = seconds();
        for (size_t i = 0; i < PARTS; i++)
            CALL(clEnqueueReadBuffer(queue, mems[i], CL_FALSE, 0, SIZE, back + i * SIZE, 0, NULL,
                                     NULL));
        CALL(clFinish(queue));
        samples[run] = (double)PARTS * SIZE / (written_s - start_s);
        reads[run] = (double)PARTS * SIZE / (seconds() - written_s);
        if (memcmp(bytes, back, (size_t)PARTS * SIZE) != 0)
            fail("16 reads in flight gave the wrong bytes");
    }
    row("16 x 16 MiB not blocking, write", "B/s", median(samples, runs));
    row("16 x 16 MiB not blocking, read", "B/s", median(reads, runs));
    for (int i = 0; i < PARTS; i++) CALL(clReleaseMemObject(mems[i]));
    free(bytes);
    free(back);
}

void measure_transfers(void) {
    blocking(4, 3000);
    blocking(64 << 10, 1000);
    blocking(1 << 20, 300);
    blocking(16 << 20, 40);
    blocking((size_t)256 << 20, 6);
    sixteen_in_flight();
    blocking_after_pause();
    blocking_with_times();
    there_and_back(1 << 20, 300);
    write_to_its_end(16 << 20, 40);
}

void measure_bulk(void) {
    blocking(16 << 20, 40);
    write_to_its_end(16 << 20, 40);
}

/* ---- maps ---- */

void measure_maps(void) {
    enum { SIZE = 4096 };
    const size_t count = rounds(1000);
    unsigned char expected[SIZE], back[SIZE];
    cl_mem mem = make_buffer(SIZE);
    for (size_t i = 0; i < count + 3; i++) {
        cl_int code;
        pattern(expected, SIZE, i);
        const double start_s = seconds();
        void *at =
            clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_WRITE, 0, SIZE, 0, NULL, NULL, &code);
        CALL(code);
        memcpy(at, expected, SIZE);
        CALL(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
        CALL(clFinish(queue));
        if (i >= 3) samples[i - 3] = seconds() - start_s;
    }
    CALL(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    if (memcmp(back, expected, SIZE) != 0) fail("what was written into the map did not arrive");
    row("map, write, unmap 4 KiB", "s", median(samples, count));
    CALL(clReleaseMemObject(mem));
}

/* ---- builds ---- */

static double build_seconds(const char *source) {
    cl_int code;
    const double start_s = seconds();
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    CALL(code);
    CALL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "build_me", &code);
    CALL(code);
    const double took_s = seconds() - start_s;
    CALL(clReleaseKernel(kernel));
    CALL(clReleaseProgram(program));
    return took_s;
}

void measure_builds(void) {
    const size_t count = rounds(15);
    static double again[64];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < count; i++) {
        char source[1024];
        /* A number that no earlier run had, so that no cache on any level knows this program. */
        snprintf(source, sizeof source,
                 "kernel void build_me(global float *to, global const float *from, float by) {\n"
                 "    const float unique = %ld.%09ldf + %zu.0f;\n"
                 "    size_t i = get_global_id(0);\n"
                 "    float sum = 0;\n"
                 "    for (int k = 0; k < 16; k++) sum += from[i + k] * by + sin(unique * k);\n"
                 "    to[i] = sum;\n"
                 "}\n",
                 (long)now.tv_sec % 100000, now.tv_nsec, i);
        samples[i] = build_seconds(source);
        again[i] = build_seconds(source);
    }
    row("build a new program", "s", median(samples, count));
    row("build the same source again", "s", median(again, count));
}

/* ---- migration ---- */

void measure_migration(void) {
    static const size_t sizes[] = {64, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
    const char *source = "kernel void up(global uint *w) { w[0] += 1; }";
    cl_int code;
    cl_context both = clCreateContext(NULL, 2, devices, NULL, NULL, &code);
    CALL(code);
    cl_command_queue queues[2];
    cl_program program = clCreateProgramWithSource(both, 1, &source, NULL, &code);
    CALL(code);
    CALL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "up", &code);
    CALL(code);
    for (int d = 0; d < 2; d++) {
        queues[d] = clCreateCommandQueue(both, devices[d], 0, &code);
        CALL(code);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t size = sizes[s], moves = rounds(size >= 16 << 20 ? 20 : 200);
        char name[64], text[32];
        unsigned char *bytes = bytes_of(size), *back = bytes_of(size);
        cl_mem mem = clCreateBuffer(both, CL_MEM_READ_WRITE, size, NULL, &code);
        cl_uint first = 0;
        CALL(code);
        pattern(bytes, size, s);
        memcpy(&first, bytes, 4);
        CALL(clEnqueueWriteBuffer(queues[0], mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
        CALL(clSetKernelArg(kernel, 0, sizeof mem, &mem));
        for (size_t i = 0; i < moves + 2; i++) {
            /* After the kernel, only this side's copy is current. The measurement is the move to
             * the other side. */
            CALL(clEnqueueNDRangeKernel(queues[i % 2], kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
            CALL(clFinish(queues[i % 2]));
            const double start_s = seconds();
            CALL(clEnqueueMigrateMemObjects(queues[(i + 1) % 2], 1, &mem, 0, 0, NULL, NULL));
            CALL(clFinish(queues[(i + 1) % 2]));
            if (i >= 2) samples[i - 2] = seconds() - start_s;
        }
        CALL(clEnqueueReadBuffer(queues[0], mem, CL_TRUE, 0, size, back, 0, NULL, NULL));
        first += (cl_uint)(moves + 2);
        memcpy(bytes, &first, 4);
        if (memcmp(bytes, back, size) != 0)
            fail("a buffer of %zu bytes that moved is not right", size);
        snprintf(name, sizeof name, "move %s between two devices", size_name(size, text));
        row(name, "s", median(samples, moves));
        CALL(clReleaseMemObject(mem));
        free(bytes);
        free(back);
    }
    for (int d = 0; d < 2; d++) CALL(clReleaseCommandQueue(queues[d]));
    CALL(clReleaseKernel(kernel));
    CALL(clReleaseProgram(program));
    CALL(clReleaseContext(both));
}
