/* Shared virtual memory, as far as the device supports it: coarse-grained buffers. */
#include "harness.h"

#include <unistd.h>

static void need_svm(void) {
    cl_device_svm_capabilities can = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof can, &can, NULL));
    if (!(can & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER))
        test_skip("the device has no shared virtual memory");
}

TEST(offered_or_refused) {
    cl_device_svm_capabilities can = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof can, &can, NULL));
    void *at = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0);
    CHECK((at != NULL) == ((can & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) != 0));
    clSVMFree(context, at);
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE, 0, 0) == NULL);
    CHECK(clSVMAlloc(NULL, CL_MEM_READ_WRITE, 64, 0) == NULL);
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 64, 0) == NULL);
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 3) == NULL);
    clSVMFree(context, NULL);
}

TEST(map_kernel_map) {
    need_svm();
    enum { COUNT = 1024 };
    cl_kernel kernel = kernel_from(
        context, "kernel void twice(global uint *w) { w[get_global_id(0)] *= 2; }", "twice");
    cl_uint *w = clSVMAlloc(context, CL_MEM_READ_WRITE, COUNT * 4, 0);
    REQUIRE(w);
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, w, COUNT * 4, 0, NULL,
                       NULL));
    for (cl_uint i = 0; i < COUNT; i++) w[i] = i;
    OK(clEnqueueSVMUnmap(queue, w, 0, NULL, NULL));
    OK(clSetKernelArgSVMPointer(kernel, 0, w));
    launch(queue, kernel, COUNT);
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, w, COUNT * 4, 0, NULL, NULL));
    bool right = true;
    for (cl_uint i = 0; i < COUNT; i++) right = right && w[i] == 2 * i;
    CHECK(right);
    OK(clEnqueueSVMUnmap(queue, w, 0, NULL, NULL));
    OK(clFinish(queue));
    clSVMFree(context, w);
    OK(clReleaseKernel(kernel));
}

/* Pointers in shared memory have the same meaning on host and device. */
TEST(list_of_pointers) {
    need_svm();
    const char *source =
        "typedef struct Node { global struct Node *next; ulong value; } Node;"
        "kernel void sum(global Node *first, global ulong *to) {"
        "    ulong s = 0; for (global Node *n = first; n; n = n->next) s += n->value; *to = s; }";
    struct node {
        struct node *next;
        cl_ulong value;
    };
    enum { COUNT = 100 };
    struct node *nodes = clSVMAlloc(context, CL_MEM_READ_WRITE, COUNT * sizeof *nodes, 0);
    cl_ulong back = 0;
    cl_mem to = make_buffer(context, 0, 8, NULL);
    cl_kernel kernel = kernel_from(context, source, "sum");
    REQUIRE(nodes);
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, nodes, COUNT * sizeof *nodes, 0, NULL, NULL));
    for (int i = 0; i < COUNT; i++)
        nodes[i] = (struct node){i + 1 < COUNT ? &nodes[i + 1] : NULL, (cl_ulong)i};
    OK(clEnqueueSVMUnmap(queue, nodes, 0, NULL, NULL));
    OK(clSetKernelArgSVMPointer(kernel, 0, nodes));
    set_mem(kernel, 1, to);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, 8, &back, 0, NULL, NULL));
    CHECK(back == COUNT * (COUNT - 1) / 2);
    clSVMFree(context, nodes);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(to));
}

TEST(copy_and_fill) {
    need_svm();
    unsigned char host[1024], back[1024];
    const cl_uint what = 0xa1b2c3d4;
    unsigned char *a = clSVMAlloc(context, CL_MEM_READ_WRITE, 1024, 0),
                  *b = clSVMAlloc(context, CL_MEM_READ_WRITE, 1024, 0);
    REQUIRE(a && b);
    pattern(host, 1024, 1);
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, a, host, 1024, 0, NULL, NULL));
    OK(clEnqueueSVMMemcpy(queue, CL_FALSE, b, a, 1024, 0, NULL, NULL));
    OK(clEnqueueSVMMemFill(queue, a, &what, 4, 512, 0, NULL, NULL));
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, back, b, 1024, 0, NULL, NULL));
    CHECK(same_pattern(back, 1024, 1));
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, back, a, 1024, 0, NULL, NULL));
    for (int i = 0; i < 512; i += 4) CHECK(memcmp(back + i, &what, 4) == 0);
    CHECK(memcmp(back + 512, host + 512, 512) == 0);
    GIVES(CL_INVALID_VALUE, clEnqueueSVMMemcpy(queue, CL_TRUE, NULL, a, 16, 0, NULL, NULL));
    /* PoCL crashes. */
    if (!on_pocl())
        GIVES(CL_INVALID_VALUE, clEnqueueSVMMemFill(queue, a, NULL, 4, 16, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueSVMMemFill(queue, a, &what, 3, 15, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, NULL, 16, 0, NULL, NULL));
    GIVES(CL_INVALID_COMMAND_QUEUE, clEnqueueSVMMemcpy(NULL, CL_TRUE, a, b, 16, 0, NULL, NULL));
    /* In mapped memory, and with a number of patterns that is no power of two. */
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, b, 1024, 0, NULL, NULL));
    OK(clEnqueueSVMMemFill(queue, b + 8, &what, 4, 44, 0, NULL, NULL));
    OK(clFinish(queue));
    CHECK(memcmp(b, host, 8) == 0);
    for (int i = 8; i < 52; i += 4) CHECK(memcmp(b + i, &what, 4) == 0);
    CHECK(memcmp(b + 52, host + 52, 1024 - 52) == 0);
    OK(clEnqueueSVMUnmap(queue, b, 0, NULL, NULL));
    OK(clFinish(queue));
    clSVMFree(context, a);
    clSVMFree(context, b);
}

TEST(as_host_pointer_of_a_buffer) {
    need_svm();
    void *at = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0);
    REQUIRE(at);
    cl_mem mem = make_buffer(context, CL_MEM_USE_HOST_PTR, 4096, at);
    cl_bool is_svm = CL_FALSE;
    OK(clGetMemObjectInfo(mem, CL_MEM_USES_SVM_POINTER, sizeof is_svm, &is_svm, NULL));
    CHECK(is_svm);
    write_pattern(queue, mem, 4096, 2);
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, at, 4096, 0, NULL, NULL));
    GAP_BEGIN;
    CHECK(same_pattern(at, 4096, 2));
    GAP_END;
    OK(clEnqueueSVMUnmap(queue, at, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(mem));
    clSVMFree(context, at);
}

static volatile int freed;
static void CL_CALLBACK on_free(cl_command_queue on, cl_uint count, void *pointers[], void *data) {
    (void)on;
    for (cl_uint i = 0; i < count; i++) clSVMFree(*(cl_context *)data, pointers[i]);
    __atomic_add_fetch(&freed, (int)count, __ATOMIC_SEQ_CST);
}

TEST(free_and_migrate_in_the_queue) {
    need_svm();
    void *both[2] = {clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0),
                     clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0)};
    const void *constants[2] = {both[0], both[1]};
    freed = 0;
    REQUIRE(both[0] && both[1]);
    OK(clEnqueueSVMMigrateMem(queue, 2, constants, NULL, 0, 0, NULL, NULL));
    OK(clEnqueueSVMFree(queue, 2, both, on_free, &context, 0, NULL, NULL));
    OK(clFinish(queue));
    CHECK(wait_until(&freed, 2, patience_s()));
    void *one = clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0);
    OK(clEnqueueSVMFree(queue, 1, &one, NULL, NULL, 0, NULL, NULL));
    OK(clFinish(queue));
}

/* clEnqueueSVMMemcpy also accepts addresses of the program's own memory. Such a copy is an ordinary
 * command: a wait for the queue, and commands behind it in order, wait for the copy. */
enum { HOST_BYTES = 32 << 20, HOST_ROUNDS = 5 };

/* Never freed, because a late copy must not write to memory that has been reused. */
static unsigned char from[HOST_BYTES], to[HOST_BYTES], back[HOST_BYTES];

static bool ends_with(const unsigned char *bytes, int value) {
    return bytes[0] == value && bytes[HOST_BYTES - 1] == value;
}

TEST(a_finish_waits_for_copies_within_host_memory) {
    need_svm();
    int late = 0;
    for (int i = 1; i <= HOST_ROUNDS; i++) {
        memset(from, i, HOST_BYTES);
        OK(clEnqueueSVMMemcpy(queue, CL_FALSE, to, from, HOST_BYTES, 0, NULL, NULL));
        OK(clFinish(queue));
        late += !ends_with(to, i);
        usleep(50000); /* a late copy ends before the next one starts */
    }
    if (late)
        test_fail(__FILE__, __LINE__, "%d of %d copies had not ended after clFinish", late,
                  HOST_ROUNDS);
}

TEST(an_event_behind_a_copy_within_host_memory_waits_for_it) {
    need_svm();
    int late = 0;
    for (int i = 1; i <= HOST_ROUNDS; i++) {
        cl_event behind;
        memset(from, i, HOST_BYTES);
        OK(clEnqueueSVMMemcpy(queue, CL_FALSE, to, from, HOST_BYTES, 0, NULL, NULL));
        OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &behind));
        OK(clWaitForEvents(1, &behind));
        late += !ends_with(to, i);
        OK(clReleaseEvent(behind));
        usleep(50000);
    }
    if (late)
        test_fail(__FILE__, __LINE__, "%d of %d copies had not ended when a marker behind them had",
                  late, HOST_ROUNDS);
}

TEST(a_write_behind_a_copy_within_host_memory_sends_what_it_brought) {
    need_svm();
    cl_mem mem = make_buffer(context, 0, HOST_BYTES, NULL);
    for (int i = 1; i <= HOST_ROUNDS; i++) {
        memset(from, i, HOST_BYTES);
        OK(clEnqueueSVMMemcpy(queue, CL_FALSE, to, from, HOST_BYTES, 0, NULL, NULL));
        OK(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, HOST_BYTES, to, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, HOST_BYTES, back, 0, NULL, NULL));
        CHECK(ends_with(back, i));
    }
    OK(clReleaseMemObject(mem));
}

/* The program fills memory that it has mapped, which then counts as its own memory. */
TEST(a_finish_waits_for_a_fill_of_mapped_memory) {
    need_svm();
    unsigned char *at = clSVMAlloc(context, CL_MEM_READ_WRITE, HOST_BYTES, 0);
    REQUIRE(at);
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, at, HOST_BYTES, 0, NULL, NULL));
    int late = 0;
    for (int i = 1; i <= HOST_ROUNDS; i++) {
        const unsigned char value = (unsigned char)i;
        OK(clEnqueueSVMMemFill(queue, at, &value, 1, HOST_BYTES, 0, NULL, NULL));
        OK(clFinish(queue));
        late += !ends_with(at, i);
        usleep(50000);
    }
    if (late)
        test_fail(__FILE__, __LINE__, "%d of %d fills had not ended after clFinish", late,
                  HOST_ROUNDS);
    OK(clEnqueueSVMUnmap(queue, at, 0, NULL, NULL));
    OK(clFinish(queue));
    clSVMFree(context, at);
}

/* A map that fails gave the program nothing to write. So the unmap, enqueued before or after the
 * failure, writes nothing. */
TEST(unmap_of_a_failed_map_keeps_the_content) {
    need_svm();
    const cl_map_flags flags[] = {CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
    for (int round = 0; round < 4; round++) {
        const bool unmap_first = round % 2 == 0;
        unsigned char *at = clSVMAlloc(context, CL_MEM_READ_WRITE, HOST_BYTES, 0);
        REQUIRE(at);
        pattern(from, HOST_BYTES, 30);
        OK(clEnqueueSVMMemcpy(queue, CL_TRUE, at, from, HOST_BYTES, 0, NULL, NULL));
        cl_event gate = make_user_event(context), mapped, unmapped;
        OK(clEnqueueSVMMap(queue, CL_FALSE, flags[round / 2], at, HOST_BYTES, 1, &gate, &mapped));
        if (unmap_first) OK(clEnqueueSVMUnmap(queue, at, 0, NULL, &unmapped));
        OK(clSetUserEventStatus(gate, -7));
        GIVES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &mapped));
        if (!unmap_first) OK(clEnqueueSVMUnmap(queue, at, 0, NULL, &unmapped));
        (void)clWaitForEvents(1, &unmapped);
        memset(back, 0, HOST_BYTES);
        OK(clEnqueueSVMMemcpy(queue, CL_TRUE, back, at, HOST_BYTES, 0, NULL, NULL));
        const bool kept = same_pattern(back, HOST_BYTES, 30);
        if (!kept) test_note("round %d", round);
        CHECK(kept);
        OK(clReleaseEvent(unmapped));
        OK(clReleaseEvent(mapped));
        OK(clReleaseEvent(gate));
        OK(clFinish(queue));
        clSVMFree(context, at);
    }
}

/* A blocking map that fails maps nothing: copies continue to use the devices' content. */
TEST(a_blocking_map_that_fails_leaves_nothing_mapped) {
    need_svm();
    if (on_pocl()) test_skip("PoCL waits forever for a blocking map that fails");
    unsigned char *at = clSVMAlloc(context, CL_MEM_READ_WRITE, HOST_BYTES, 0);
    REQUIRE(at);
    pattern(from, HOST_BYTES, 31);
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, at, from, HOST_BYTES, 0, NULL, NULL));
    cl_event gate = make_user_event(context);
    OK(clSetUserEventStatus(gate, -7));
    GIVES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
          clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, at, HOST_BYTES, 1, &gate,
                          NULL));
    memset(back, 0, HOST_BYTES);
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, back, at, HOST_BYTES, 0, NULL, NULL));
    CHECK(same_pattern(back, HOST_BYTES, 31));
    OK(clReleaseEvent(gate));
    OK(clFinish(queue));
    clSVMFree(context, at);
}
