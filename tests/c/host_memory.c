/* A transfer that reads the program's memory sees the bytes that an earlier, unfinished transfer
 * writes there, if the queue or an event orders the two. The host waits for nothing in between. */
#include "harness.h"

#define WORDS 4096u
#define BYTES (WORDS * 4u)
#define VALUE 42u

/* Runs so long that all commands behind it are enqueued before it ends. */
static const char *const slow_source =
    "kernel void slow(global uint *a, uint n) { uint x = n; for (uint i = 0; i < 100000000u; i++) x = x * 1664525u + (i ^ (x >> 7));"
    " for (uint i = 0; i < n; i++) a[i] = x == 0x12345678u ? 41u : 42u; }";

static cl_kernel slow;

/* Starts the kernel that later sets all of `mem` to VALUE. */
static void set_slowly(cl_command_queue on, cl_mem mem) {
    const cl_uint words = WORDS;
    if (!slow) slow = kernel_from(context, slow_source, "slow");
    set_mem(slow, 0, mem);
    OK(clSetKernelArg(slow, 1, sizeof words, &words));
    launch(on, slow, 1);
}

static bool all_are(const cl_uint *words, size_t count, cl_uint value) {
    for (size_t i = 0; i < count; i++) {
        if (words[i] != value) {
            test_note("word %zu is %u, not %u", i, words[i], value);
            return false;
        }
    }
    return true;
}

static bool buffer_is(cl_command_queue on, cl_mem mem, cl_uint value) {
    static cl_uint back[WORDS];
    memset(back, 0xff, BYTES);
    OK(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, BYTES, back, 0, NULL, NULL));
    return all_are(back, WORDS, value);
}

/* The objects of each case: two buffers, and memory of the program. */
typedef struct {
    cl_mem from, to;
    cl_uint *host;
} Pair;

static Pair make_pair(void) {
    void *host = NULL;
    REQUIRE(posix_memalign(&host, 4096, BYTES) == 0);
    memset(host, 0, BYTES);
    return (Pair){make_buffer(context, 0, BYTES, NULL), make_buffer(context, 0, BYTES, NULL), host};
}

static void drop(Pair pair) {
    OK(clReleaseMemObject(pair.from));
    OK(clReleaseMemObject(pair.to));
    free(pair.host);
}

TEST(read_then_write_in_order) {
    Pair pair = make_pair();
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clFlush(queue));
    OK(clEnqueueWriteBuffer(queue, pair.to, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clFinish(queue));
    CHECK(buffer_is(queue, pair.to, VALUE));
    CHECK(all_are(pair.host, WORDS, VALUE));
    drop(pair);
}

TEST(read_then_write_by_an_event) {
    Pair pair = make_pair();
    cl_command_queue other = make_queue(context, device, 0);
    cl_event read, written;
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES, pair.host, 0, NULL, &read));
    OK(clFlush(queue));
    OK(clEnqueueWriteBuffer(other, pair.to, CL_FALSE, 0, BYTES, pair.host, 1, &read, &written));
    OK(clFlush(other));
    OK(clWaitForEvents(1, &written));
    CHECK(buffer_is(other, pair.to, VALUE));
    OK(clReleaseEvent(read));
    OK(clReleaseEvent(written));
    OK(clReleaseCommandQueue(other));
    drop(pair);
}

/* A marker in the reading queue represents all commands before it. */
TEST(read_then_write_by_a_marker) {
    Pair pair = make_pair();
    cl_command_queue other = make_queue(context, device, 0);
    cl_event marker;
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    OK(clFlush(queue));
    OK(clEnqueueWriteBuffer(other, pair.to, CL_FALSE, 0, BYTES, pair.host, 1, &marker, NULL));
    OK(clFinish(other));
    CHECK(buffer_is(other, pair.to, VALUE));
    OK(clReleaseEvent(marker));
    OK(clReleaseCommandQueue(other));
    drop(pair);
}

/* A blocking write returns when it has taken the bytes, so it must wait for them. */
TEST(read_then_blocking_write) {
    Pair pair = make_pair();
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, pair.to, CL_TRUE, 0, BYTES, pair.host, 0, NULL, NULL));
    memset(pair.host, 0, BYTES);
    CHECK(buffer_is(queue, pair.to, VALUE));
    drop(pair);
}

/* The source of the write begins before the destination of the read and ends within it. */
TEST(ranges_that_overlap) {
    enum { OLD = 7, HALF = WORDS / 2 };
    Pair pair = make_pair();
    cl_uint *back = calloc(1, BYTES);
    for (unsigned i = 0; i < HALF; i++) pair.host[i] = OLD;
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES / 2, pair.host + HALF, 0, NULL,
                           NULL));
    OK(clEnqueueWriteBuffer(queue, pair.to, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, pair.to, CL_TRUE, 0, BYTES, back, 0, NULL, NULL));
    CHECK(all_are(back, HALF, OLD));
    CHECK(all_are(back + HALF, HALF, VALUE));
    free(back);
    drop(pair);
}

/* Columns of a field in the program's memory: a read into one of them, then a write from this
 * column and its neighbours. */
TEST(rows_with_gaps) {
    enum { SIDE = 64 };
    const size_t buffer_at[3] = {0, 0, 0}, read_at[3] = {16, 0, 0}, read_region[3] = {64, SIDE, 1};
    const size_t write_at[3] = {0, 0, 0}, write_region[3] = {128, SIDE, 1};
    Pair pair = make_pair();
    cl_uint *back = calloc(1, BYTES);
    for (unsigned i = 0; i < WORDS; i++) pair.host[i] = 7;
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBufferRect(queue, pair.from, CL_FALSE, buffer_at, read_at, read_region, 0, 0,
                               SIDE * 4, 0, pair.host, 0, NULL, NULL));
    OK(clEnqueueWriteBufferRect(queue, pair.to, CL_FALSE, buffer_at, write_at, write_region, 0, 0,
                                SIDE * 4, 0, pair.host, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, pair.to, CL_TRUE, 0, 128 * SIDE, back, 0, NULL, NULL));
    bool right = true;
    for (unsigned y = 0; y < SIDE; y++)
        for (unsigned x = 0; x < 32; x++)
            right = right && back[y * 32 + x] == (x >= 4 && x < 20 ? VALUE : 7u);
    CHECK(right);
    free(back);
    drop(pair);
}

/* The write comes first, and must send the content from before the read. */
TEST(write_then_read_in_order) {
    Pair pair = make_pair();
    cl_mem third = make_buffer(context, 0, BYTES, NULL);
    for (unsigned i = 0; i < WORDS; i++) pair.host[i] = 7;
    set_slowly(queue, pair.from);
    OK(clEnqueueWriteBuffer(queue, pair.to, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, third, CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    CHECK(buffer_is(queue, pair.to, 7));
    CHECK(buffer_is(queue, third, VALUE));
    OK(clReleaseMemObject(third));
    drop(pair);
}

/* Ten buffers pass the same value on, through the same memory. */
TEST(a_long_chain) {
    enum { LENGTH = 10 };
    Pair pair = make_pair();
    cl_mem mems[LENGTH];
    for (int i = 0; i < LENGTH; i++) mems[i] = make_buffer(context, 0, BYTES, NULL);
    set_slowly(queue, mems[0]);
    for (int i = 1; i < LENGTH; i++) {
        OK(clEnqueueReadBuffer(queue, mems[i - 1], CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
        OK(clEnqueueWriteBuffer(queue, mems[i], CL_FALSE, 0, BYTES, pair.host, 0, NULL, NULL));
    }
    CHECK(buffer_is(queue, mems[LENGTH - 1], VALUE));
    for (int i = 0; i < LENGTH; i++) OK(clReleaseMemObject(mems[i]));
    drop(pair);
}

/* A read into the mapped region of another buffer, followed by the unmap, which writes the content
 * back. */
static void map_chain(cl_mem_flags flags) {
    Pair pair = make_pair();
    cl_mem mapped =
        make_buffer(context, flags, BYTES, flags & CL_MEM_USE_HOST_PTR ? pair.host : NULL);
    cl_int code;
    void *at =
        clEnqueueMapBuffer(queue, mapped, CL_TRUE, CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &code);
    OK(code);
    set_slowly(queue, pair.from);
    OK(clEnqueueReadBuffer(queue, pair.from, CL_FALSE, 0, BYTES, at, 0, NULL, NULL));
    OK(clEnqueueUnmapMemObject(queue, mapped, at, 0, NULL, NULL));
    CHECK(buffer_is(queue, mapped, VALUE));
    OK(clReleaseMemObject(mapped));
    drop(pair);
}

TEST(read_into_a_mapped_buffer) { map_chain(CL_MEM_READ_WRITE); }

TEST(read_into_a_mapped_buffer_over_host_memory) {
    map_chain(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR);
}

/* The mapped memory is the source of a write to another buffer while the map is in progress. */
TEST(map_then_write_from_it) {
    Pair pair = make_pair();
    cl_int code;
    set_slowly(queue, pair.from);
    void *at =
        clEnqueueMapBuffer(queue, pair.from, CL_FALSE, CL_MAP_READ, 0, BYTES, 0, NULL, NULL, &code);
    OK(code);
    OK(clEnqueueWriteBuffer(queue, pair.to, CL_FALSE, 0, BYTES, at, 0, NULL, NULL));
    OK(clFinish(queue));
    CHECK(buffer_is(queue, pair.to, VALUE));
    OK(clEnqueueUnmapMemObject(queue, pair.from, at, 0, NULL, NULL));
    OK(clFinish(queue));
    drop(pair);
}

/* A blocking call that moves no bytes also waits for the commands before it in its queue. */
static void read_slowly(const Pair *pair) {
    set_slowly(queue, pair->from);
    memset(pair->host, 0, BYTES);
    OK(clEnqueueReadBuffer(queue, pair->from, CL_FALSE, 0, BYTES, pair->host, 0, NULL, NULL));
}

TEST(a_blocking_map_that_reads_nothing) {
    Pair pair = make_pair();
    cl_int code;
    read_slowly(&pair);
    void *at = clEnqueueMapBuffer(queue, pair.to, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, BYTES,
                                  0, NULL, NULL, &code);
    OK(code);
    CHECK(all_are(pair.host, WORDS, VALUE));
    OK(clEnqueueUnmapMemObject(queue, pair.to, at, 0, NULL, NULL));
    OK(clFinish(queue));
    drop(pair);
}

TEST(a_blocking_read_of_nothing) {
    Pair pair = make_pair();
    read_slowly(&pair);
    const cl_int code =
        clEnqueueReadBuffer(queue, pair.to, CL_TRUE, 0, 0, pair.host, 0, NULL, NULL);
    /* Before OpenCL 2.1 a read of zero bytes is an error. */
    if (code == CL_SUCCESS) CHECK(all_are(pair.host, WORDS, VALUE));
    OK(clFinish(queue));
    drop(pair);
}
