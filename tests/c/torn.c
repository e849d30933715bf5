/* Two threads share an in-order queue. Commands of such a queue do not overlap: the bytes that one
 * command reads or writes are never mixed with those of the next. */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>

/* On a device that is slow with small commands, fewer rounds run. */
#define SECONDS_MAX 5.0

static atomic_bool ends;
static cl_command_queue shared;
static cl_mem mem;
static size_t bytes;

static void begin(size_t size) {
    const cl_uint zero = 0;
    atomic_store(&ends, false);
    bytes = size;
    shared = make_queue(context, device, 0);
    mem = make_buffer(context, 0, size, NULL);
    OK(clEnqueueFillBuffer(shared, mem, &zero, 4, 0, size, 0, NULL, NULL));
    OK(clFinish(shared));
}

static void end(pthread_t other) {
    void *failed = NULL;
    atomic_store(&ends, true);
    REQUIRE(pthread_join(other, &failed) == 0);
    CHECK(failed == NULL);
    OK(clFinish(shared));
    OK(clReleaseMemObject(mem));
    OK(clReleaseCommandQueue(shared));
}

/* Other threads report a failed call by their result, because the harness belongs to the case's
 * thread. */
static void *fill_on(void *failed) {
    for (cl_uint value = 1; !atomic_load(&ends); value++) {
        if (clEnqueueFillBuffer(shared, mem, &value, 4, 0, bytes, 0, NULL, NULL) != CL_SUCCESS)
            return failed;
        if (value % 4 == 0 && clFinish(shared) != CL_SUCCESS) return failed;
    }
    return NULL;
}

static void *write_on(void *failed) {
    cl_uint *words = malloc(bytes);
    for (cl_uint value = 1; !atomic_load(&ends); value++) {
        for (size_t i = 0; i < bytes / 4; i++) words[i] = value;
        if (clEnqueueWriteBuffer(shared, mem, CL_TRUE, 0, bytes, words, 0, NULL, NULL) !=
            CL_SUCCESS) {
            free(words);
            return failed;
        }
    }
    free(words);
    return NULL;
}

static bool is_whole(const cl_uint *words) {
    for (size_t i = 1; i < bytes / 4; i++)
        if (words[i] != words[0]) return false;
    return true;
}

static pthread_t start(void *(*other)(void *)) {
    static int failed;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, other, &failed) == 0);
    return thread;
}

static void reads_are_whole(size_t size, int rounds) {
    begin(size);
    cl_uint *words = malloc(size);
    int torn = 0;
    double until = seconds() + SECONDS_MAX;
    pthread_t filler = start(fill_on);
    for (int i = 0; i < rounds && seconds() < until; i++) {
        OK(clEnqueueReadBuffer(shared, mem, CL_TRUE, 0, size, words, 0, NULL, NULL));
        torn += !is_whole(words);
    }
    end(filler);
    if (torn)
        test_fail(__FILE__, __LINE__, "%d of %d reads of %zu bytes have values of several fills",
                  torn, rounds, size);
    free(words);
}

TEST(large_reads) { reads_are_whole(16u << 20, 60); }

TEST(small_reads) { reads_are_whole(16u << 10, 3000); }

/* One thread writes and the other one copies. */
static void writes_are_whole(size_t size, int rounds) {
    begin(size);
    cl_mem copy = make_buffer(context, 0, size, NULL);
    cl_uint *words = malloc(size);
    int torn = 0;
    double until = seconds() + SECONDS_MAX;
    pthread_t writer = start(write_on);
    for (int i = 0; i < rounds && seconds() < until; i++) {
        OK(clEnqueueCopyBuffer(shared, mem, copy, 0, 0, size, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(shared, copy, CL_TRUE, 0, size, words, 0, NULL, NULL));
        torn += !is_whole(words);
    }
    end(writer);
    if (torn)
        test_fail(__FILE__, __LINE__, "%d of %d copies of %zu bytes have values of several writes",
                  torn, rounds, size);
    OK(clReleaseMemObject(copy));
    free(words);
}

TEST(large_writes) { writes_are_whole(16u << 20, 60); }

TEST(small_writes) { writes_are_whole(16u << 10, 3000); }
