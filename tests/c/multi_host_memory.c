/* Halo exchange through the program's memory: a read on one device and a write on the other,
 * ordered by events alone. */
#include "harness.h"

#define DEVICES 2
#define WORDS 4096u
#define BYTES (WORDS * 4u)

static cl_context both;
static cl_command_queue on[DEVICES];
static cl_kernel slow;

static void need_two(void) {
    if (device_count < DEVICES) test_skip("one device only");
    if (both) return;
    both = make_context(DEVICES, devices);
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
    /* Runs so long that all commands behind it are enqueued before it ends. */
    slow = kernel_from(both,
                       "kernel void slow(global uint *a, uint n, uint value) { uint x = n;"
                       " for (uint i = 0; i < 100000000u; i++) x = x * 1664525u + (i ^ (x >> 7));"
                       " for (uint i = 0; i < n; i++) a[i] = x == 0x12345678u ? 0u : value; }",
                       "slow");
}

static void set_slowly(int d, cl_mem mem, cl_uint value) {
    const cl_uint words = WORDS;
    set_mem(slow, 0, mem);
    OK(clSetKernelArg(slow, 1, sizeof words, &words));
    OK(clSetKernelArg(slow, 2, sizeof value, &value));
    launch(on[d], slow, 1);
}

static bool buffer_is(int d, cl_mem mem, cl_uint value) {
    static cl_uint back[WORDS];
    OK(clEnqueueReadBuffer(on[d], mem, CL_TRUE, 0, BYTES, back, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++) {
        if (back[i] != value) {
            test_note("word %zu is %u, not %u", i, back[i], value);
            return false;
        }
    }
    return true;
}

TEST(read_here_write_there) {
    need_two();
    for (int d = 0; d < DEVICES; d++) {
        cl_uint *host = calloc(1, BYTES);
        cl_mem from = make_buffer(both, 0, BYTES, NULL), to = make_buffer(both, 0, BYTES, NULL);
        cl_event read;
        set_slowly(d, from, 42);
        OK(clEnqueueReadBuffer(on[d], from, CL_FALSE, 0, BYTES, host, 0, NULL, &read));
        OK(clEnqueueWriteBuffer(on[1 - d], to, CL_FALSE, 0, BYTES, host, 1, &read, NULL));
        OK(clFlush(on[d]));
        OK(clFinish(on[1 - d]));
        CHECK(buffer_is(1 - d, to, 42));
        OK(clReleaseEvent(read));
        OK(clReleaseMemObject(from));
        OK(clReleaseMemObject(to));
        free(host);
    }
}

/* Both directions at once, as a stencil exchanges its borders. */
TEST(an_exchange) {
    need_two();
    cl_uint *host[DEVICES];
    cl_mem from[DEVICES], to[DEVICES];
    cl_event read[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
        host[d] = calloc(1, BYTES);
        from[d] = make_buffer(both, 0, BYTES, NULL);
        to[d] = make_buffer(both, 0, BYTES, NULL);
        set_slowly(d, from[d], 100 + (cl_uint)d);
        OK(clEnqueueReadBuffer(on[d], from[d], CL_FALSE, 0, BYTES, host[d], 0, NULL, &read[d]));
        OK(clFlush(on[d]));
    }
    for (int d = 0; d < DEVICES; d++) {
        OK(clEnqueueWriteBuffer(on[d], to[d], CL_FALSE, 0, BYTES, host[1 - d], 1, &read[1 - d],
                                NULL));
        OK(clFlush(on[d]));
    }
    for (int d = 0; d < DEVICES; d++) CHECK(buffer_is(d, to[d], 101 - (cl_uint)d));
    for (int d = 0; d < DEVICES; d++) {
        OK(clReleaseEvent(read[d]));
        OK(clReleaseMemObject(from[d]));
        OK(clReleaseMemObject(to[d]));
        free(host[d]);
    }
}

/* One queue maps a buffer, the other device's content is read into the region, and the unmap writes
 * it back. */
TEST(read_there_into_what_is_mapped_here) {
    need_two();
    cl_mem from = make_buffer(both, 0, BYTES, NULL), mapped = make_buffer(both, 0, BYTES, NULL);
    cl_event read;
    cl_int code;
    void *at =
        clEnqueueMapBuffer(on[0], mapped, CL_TRUE, CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &code);
    OK(code);
    set_slowly(1, from, 42);
    OK(clEnqueueReadBuffer(on[1], from, CL_FALSE, 0, BYTES, at, 0, NULL, &read));
    OK(clFlush(on[1]));
    OK(clEnqueueUnmapMemObject(on[0], mapped, at, 1, &read, NULL));
    CHECK(buffer_is(0, mapped, 42));
    OK(clReleaseEvent(read));
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(mapped));
}

/* A map with irrelevant content reads nothing. When the blocking call returns, the read before it
 * has ended. */
TEST(a_blocking_map_that_reads_nothing_waits_for_its_queue) {
    need_two();
    for (int d = 0; d < DEVICES; d++) {
        cl_uint *host = calloc(1, BYTES);
        cl_mem from = make_buffer(both, 0, BYTES, NULL);
        cl_int code;
        set_slowly(d, from, 42);
        OK(clEnqueueReadBuffer(on[d], from, CL_FALSE, 0, BYTES, host, 0, NULL, NULL));
        void *at = clEnqueueMapBuffer(on[d], from, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0,
                                      BYTES, 0, NULL, NULL, &code);
        OK(code);
        CHECK(host[0] == 42 && host[WORDS - 1] == 42);
        OK(clEnqueueUnmapMemObject(on[d], from, at, 0, NULL, NULL));
        OK(clFinish(on[d]));
        OK(clReleaseMemObject(from));
        free(host);
    }
}
