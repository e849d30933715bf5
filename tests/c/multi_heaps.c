/* cl_penstock_global_buffer: kernels of several devices that store into each other's memory,
 * signal, wait and meet at barriers.
 *
 * The cases call its functions through the structure of cl_ext_penstock.h:
 * clCreateGlobalBufferPENSTOCK (create), clEnqueueCollectiveNDRangeKernelPENSTOCK (launch),
 * clGetGlobalBufferInfoPENSTOCK (info), clAbortGlobalBufferPENSTOCK (abort),
 * clResetGlobalBufferPENSTOCK (reset). */
#include "multi_heaps.h"

#include <CL/cl_ext_penstock.h>
#include <unistd.h>

static struct penstock_global_buffer_functions heaps;
static cl_context both;
static cl_command_queue on[PES];
static cl_program program;
static char said[4096];
/* On a busy machine with fewer cores than kernels, a round may take a scheduler time slice, and a
 * first launch waits while PoCL compiles the kernel of the other PE. */
static const cl_ulong patient[] = {CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK, 120000, 0};

static void CL_CALLBACK notified(const char *text, const void *info, size_t size, void *user) {
    (void)info, (void)size, (void)user;
    snprintf(said, sizeof said, "%s", text);
}

static void need_heaps(void) {
    if (penstock_find_global_buffer_functions(platform, &heaps) != CL_SUCCESS)
        test_skip("no cl_penstock_global_buffer");
    if (device_count < PES) test_skip("one device only");
    if (both) return;
    cl_int code;
    both = clCreateContext(NULL, PES, devices, notified, NULL, &code);
    OK(code);
    for (int pe = 0; pe < PES; pe++) on[pe] = make_queue(both, devices[pe], 0);
    program = build(both, heap_kernels, NULL);
}

/* Whether one driver in one worker drives both devices. */
static bool in_one_place(void) {
    const char *pool = getenv("PENSTOCK_TEST_POOL");
    return pool && (strcmp(pool, "unix") == 0 || strcmp(pool, "tcp") == 0);
}

static cl_mem make_heap(const cl_ulong *properties) {
    cl_int code = 12345;
    cl_mem made = heaps.create(both, PES, devices, BYTES, properties, &code);
    if (code != CL_SUCCESS) test_note("%s", said);
    OK(code);
    REQUIRE(made);
    return made;
}

static cl_int collective(cl_mem heap, cl_kernel kernel, size_t items, size_t group) {
    return heaps.launch(heap, PES, on, kernel, 1, NULL, &items, &group, 0, NULL, NULL);
}

static void finish_all(void) {
    for (int pe = 0; pe < PES; pe++) OK(clFinish(on[pe]));
}

static cl_ulong result(cl_mem heap, int pe, int index) {
    cl_ulong value = ~0ul;
    OK(clEnqueueReadBuffer(on[pe], heap, CL_TRUE, RESULT + 8 * (size_t)index, 8, &value, 0, NULL,
                           NULL));
    return value;
}

static void set_ulong(cl_kernel kernel, cl_uint index, cl_ulong value) {
    OK(clSetKernelArg(kernel, index, sizeof value, &value));
}

/* Runs the ring and checks the result. */
static void ring_runs(cl_mem heap, cl_ulong rounds) {
    cl_kernel kernel = make_kernel(program, "ring");
    cl_ulong zero = 0;
    for (int pe = 0; pe < PES; pe++)
        OK(clEnqueueWriteBuffer(on[pe], heap, CL_TRUE, 0, 8, &zero, 0, NULL, NULL));
    set_mem(kernel, 0, heap);
    set_ulong(kernel, 1, rounds);
    OK(collective(heap, kernel, 1, 1));
    finish_all();
    for (int pe = 0; pe < PES; pe++) {
        CHECK(result(heap, pe, 1) == 0);
        CHECK(result(heap, pe, 0) == rounds);
    }
    OK(clReleaseKernel(kernel));
}

TEST(the_extension_is_told) {
    need_heaps();
    for (int pe = 0; pe < PES; pe++)
        CHECK(device_has_extension(devices[pe], CL_PENSTOCK_GLOBAL_BUFFER_EXTENSION_NAME));
    static char names[16384];
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof names, names, NULL));
    CHECK(strstr(names, CL_PENSTOCK_GLOBAL_BUFFER_EXTENSION_NAME));
    size_t size = 0;
    OK(heaps.info(NULL, CL_GLOBAL_BUFFER_KERNEL_HEADER_PENSTOCK, 0, NULL, &size));
    char *header = calloc(1, size + 1);
    OK(heaps.info(NULL, CL_GLOBAL_BUFFER_KERNEL_HEADER_PENSTOCK, size, header, NULL));
    CHECK(strlen(header) + 1 == size && strstr(header, "ggas_put_signal"));
    free(header);
}

TEST(a_heap_tells_of_itself) {
    need_heaps();
    cl_mem heap = make_heap(NULL);
    cl_uint pes = 0, paths[PES * PES];
    cl_device_id of[PES];
    cl_bool aborted = CL_TRUE;
    char text[64] = "x";
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_NUM_PES_PENSTOCK, sizeof pes, &pes, NULL));
    CHECK(pes == PES);
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_DEVICES_PENSTOCK, sizeof of, of, NULL));
    CHECK(memcmp(of, devices, sizeof of) == 0);
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_PATHS_PENSTOCK, sizeof paths, paths, NULL));
    for (int i = 0; i < PES; i++) {
        for (int j = 0; j < PES; j++) {
            cl_uint path = paths[i * PES + j];
            CHECK((path == CL_GLOBAL_BUFFER_PATH_OWN_PENSTOCK) == (i == j));
            CHECK(path == paths[j * PES + i]);
        }
    }
    const char *pool = getenv("PENSTOCK_TEST_POOL"), *asked = getenv("PENSTOCK_HEAP_PATH");
    bool far = pool && (strcmp(pool, "far") == 0 || strcmp(pool, "encrypted") == 0 ||
                        (strcmp(pool, "two") == 0 && asked && strcmp(asked, "proxy") == 0));
    CHECK(paths[1] ==
          (far ? CL_GLOBAL_BUFFER_PATH_PROXY_PENSTOCK : CL_GLOBAL_BUFFER_PATH_SHARED_PENSTOCK));
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_ABORTED_PENSTOCK, sizeof aborted, &aborted, NULL));
    CHECK(aborted == CL_FALSE);
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_REASON_PENSTOCK, sizeof text, text, NULL));
    CHECK(text[0] == 0);
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
    CHECK(text[0] == 0);
    GIVES(CL_INVALID_VALUE, heaps.info(heap, 1, sizeof text, text, NULL));
    GIVES(CL_INVALID_VALUE, heaps.info(heap, CL_GLOBAL_BUFFER_DEVICES_PENSTOCK, 1, of, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          heaps.info(NULL, CL_GLOBAL_BUFFER_NUM_PES_PENSTOCK, sizeof pes, &pes, NULL));

    size_t size = 0;
    cl_uint references = 0;
    cl_mem_object_type type = 0;
    cl_context of_heap = NULL;
    OK(clGetMemObjectInfo(heap, CL_MEM_SIZE, sizeof size, &size, NULL));
    CHECK(size == BYTES);
    OK(clGetMemObjectInfo(heap, CL_MEM_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_MEM_OBJECT_BUFFER);
    OK(clGetMemObjectInfo(heap, CL_MEM_CONTEXT, sizeof of_heap, &of_heap, NULL));
    CHECK(of_heap == both);
    OK(clRetainMemObject(heap));
    OK(clGetMemObjectInfo(heap, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(references == 2);
    OK(clReleaseMemObject(heap));
    OK(clReleaseMemObject(heap));
    GIVES(CL_INVALID_MEM_OBJECT, clReleaseMemObject(heap));
}

TEST(each_device_has_its_part) {
    need_heaps();
    cl_mem heap = make_heap(NULL);
    char zero[256];
    memset(zero, 1, sizeof zero);
    OK(clEnqueueReadBuffer(on[1], heap, CL_TRUE, BYTES - sizeof zero, sizeof zero, zero, 0, NULL,
                           NULL));
    for (size_t at = 0; at < sizeof zero; at++) REQUIRE(zero[at] == 0);
    for (int pe = 0; pe < PES; pe++) write_pattern(on[pe], heap, BYTES, (unsigned)pe + 7);
    for (int pe = 0; pe < PES; pe++) CHECK(read_pattern(on[pe], heap, BYTES, (unsigned)pe + 7));
    /* Non-blocking, with events. */
    char bytes[1000], back[1000];
    cl_event written, read;
    pattern(bytes, sizeof bytes, 3);
    OK(clEnqueueWriteBuffer(on[1], heap, CL_FALSE, 24, sizeof bytes, bytes, 0, NULL, &written));
    OK(clEnqueueReadBuffer(on[1], heap, CL_FALSE, 24, sizeof back, back, 1, &written, &read));
    OK(clWaitForEvents(1, &read));
    CHECK(same_pattern(back, sizeof back, 3));
    OK(clReleaseEvent(written));
    OK(clReleaseEvent(read));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadBuffer(on[0], heap, CL_TRUE, BYTES, 1, back, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueWriteBuffer(on[0], heap, CL_TRUE, 1, BYTES, back, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadBuffer(on[0], heap, CL_TRUE, SIZE_MAX, 2, back, 0, NULL, NULL));
    OK(clReleaseMemObject(heap));
}

TEST(other_commands_are_refused) {
    need_heaps();
    cl_mem heap = make_heap(NULL), plain = make_buffer(both, 0, BYTES, NULL);
    size_t origin[3] = {0, 0, 0}, region[3] = {4, 1, 1};
    char bytes[64] = {0};
    cl_buffer_region part = {0, 64};
    GIVES(CL_INVALID_OPERATION, clEnqueueCopyBuffer(on[0], heap, plain, 0, 0, 64, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueCopyBuffer(on[0], plain, heap, 0, 0, 64, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueFillBuffer(on[0], heap, bytes, 4, 0, 64, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueReadBufferRect(on[0], heap, CL_TRUE, origin, origin,
                                                        region, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueMigrateMemObjects(on[0], 1, &heap, 0, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueUnmapMemObject(on[0], heap, bytes, 0, NULL, NULL));
    REFUSED(CL_INVALID_OPERATION,
            clEnqueueMapBuffer(on[0], heap, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &err));
    REFUSED(CL_INVALID_OPERATION,
            clCreateSubBuffer(heap, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &err));
    OK(clReleaseMemObject(plain));
    OK(clReleaseMemObject(heap));
}

TEST(what_can_not_be_is_not_made) {
    need_heaps();
    cl_device_id twice[2] = {devices[0], devices[0]};
    const cl_ulong unknown[] = {77, 1, 0}, no_time[] = {CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK, 0, 0},
                   no_path[] = {CL_GLOBAL_BUFFER_PATH_PENSTOCK, 9, 0};
    said[0] = 0;
    REFUSED(CL_INVALID_OPERATION, heaps.create(both, 2, twice, BYTES, NULL, &err));
    CHECK(strstr(said, "twice"));
    REFUSED(CL_INVALID_VALUE, heaps.create(both, PES, devices, 0, NULL, &err));
    REFUSED(CL_INVALID_VALUE, heaps.create(both, PES, devices, (size_t)1 << 50, NULL, &err));
    REFUSED(CL_INVALID_VALUE, heaps.create(both, PES, devices, BYTES, no_time, &err));
    REFUSED(CL_INVALID_PROPERTY, heaps.create(both, PES, devices, BYTES, unknown, &err));
    REFUSED(CL_INVALID_PROPERTY, heaps.create(both, PES, devices, BYTES, no_path, &err));
    REFUSED(CL_INVALID_VALUE, heaps.create(both, 0, devices, BYTES, NULL, &err));
    REFUSED(CL_INVALID_VALUE, heaps.create(both, 1, NULL, BYTES, NULL, &err));
    REFUSED(CL_INVALID_CONTEXT, heaps.create(NULL, PES, devices, BYTES, NULL, &err));
    /* More than the memory of the node's devices: the call is refused and leaves nothing behind. */
    said[0] = 0;
    REFUSED(CL_INVALID_OPERATION, heaps.create(both, PES, devices, (size_t)1 << 39, NULL, &err));
    CHECK(said[0]);
    test_note("%s", said);
    ring_runs(make_heap(patient), 3);
}

TEST(a_token_goes_round) {
    need_heaps();
    cl_mem heap = make_heap(patient);
    double start = seconds();
    ring_runs(heap, 2000);
    test_note("%.2f us for each hop, with launch and readback",
              (seconds() - start) * 1e6 / (2000 * PES));
    OK(clReleaseMemObject(heap));
}

TEST(blocks_arrive_before_their_signals) {
    need_heaps();
    cl_mem heap = make_heap(patient);
    cl_kernel kernel = make_kernel(program, "blocks");
    cl_uint sizes[] = {1, 7, 512, 2048};
    cl_ulong zeros[64] = {0};
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        for (int pe = 0; pe < PES; pe++)
            OK(clEnqueueWriteBuffer(on[pe], heap, CL_FALSE, 0, sizeof zeros, zeros, 0, NULL, NULL));
        set_mem(kernel, 0, heap);
        set_ulong(kernel, 1, 500);
        OK(clSetKernelArg(kernel, 2, sizeof sizes[at], &sizes[at]));
        /* The host does not wait for the writes; the launch does. */
        OK(collective(heap, kernel, 1, 1));
        finish_all();
        for (int pe = 0; pe < PES; pe++) {
            CHECK(result(heap, pe, 1) == 0);
            CHECK(result(heap, pe, 2) == 500);
            CHECK(result(heap, pe, 0) == 0);
        }
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(heap));
}

TEST(barriers_are_met) {
    need_heaps();
    cl_mem heap = make_heap(patient);
    cl_kernel kernel = make_kernel(program, "meet");
    set_mem(kernel, 0, heap);
    set_ulong(kernel, 1, 300);
    /* Several launches one after the other, without the host in between. */
    for (int turn = 0; turn < 3; turn++) OK(collective(heap, kernel, 8, 8));
    /* As many work-groups as a device runs at a time, if the devices do not share their threads. */
    size_t units = device_uint(devices[0], CL_DEVICE_MAX_COMPUTE_UNITS);
    const char *pool = getenv("PENSTOCK_TEST_POOL");
    set_ulong(kernel, 1, 30);
    if (pool && strcmp(pool, "mixed") == 0)
        /* Intel's runtime may run the work-groups of a device one after the other. */
        GIVES(CL_INVALID_OPERATION, collective(heap, kernel, 2, 1));
    else if (!in_one_place())
        OK(collective(heap, kernel, units, 1));
    OK(collective(heap, kernel, 8, 8));
    finish_all();
    for (int pe = 0; pe < PES; pe++) {
        CHECK(result(heap, pe, 1) == 0);
        CHECK(result(heap, pe, 0) == 0);
        CHECK(result(heap, pe, 2) == 30);
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(heap));
}

TEST(launches_that_could_not_all_run_are_refused) {
    need_heaps();
    cl_mem heap = make_heap(NULL), plain = make_buffer(both, 0, 64, NULL);
    cl_kernel kernel = make_kernel(program, "meet"), other = make_kernel(program, "mark"),
              mixed = make_kernel(program, "both_kinds");
    cl_uint units = device_uint(devices[0], CL_DEVICE_MAX_COMPUTE_UNITS);
    size_t one = 1, many = units + 1, none = 0;
    cl_command_queue same[PES] = {on[0], on[0]};
    char text[1024];
    GIVES(CL_INVALID_KERNEL_ARGS, collective(heap, kernel, 1, 1));
    set_mem(kernel, 0, heap);
    set_ulong(kernel, 1, 1);
    set_mem(other, 0, plain);
    GIVES(CL_INVALID_OPERATION, collective(heap, kernel, many, 1));
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
    CHECK(strstr(text, "work-groups on PE 0") && strcmp(text, said) == 0);
    test_note("%s", text);
    GIVES(CL_INVALID_OPERATION,
          heaps.launch(heap, 1, on, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
    CHECK(strstr(text, "PE 1"));
    GIVES(CL_INVALID_OPERATION,
          heaps.launch(heap, PES, same, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
    CHECK(strstr(text, "both of PE 0"));
    GIVES(CL_INVALID_OPERATION,
          heaps.launch(heap, PES, on, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION,
          heaps.launch(heap, PES, on, kernel, 1, NULL, &none, &one, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION,
          heaps.launch(heap, PES, on, other, 1, NULL, &one, &one, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          heaps.launch(heap, 0, NULL, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          heaps.launch(plain, PES, on, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    GIVES(CL_INVALID_COMMAND_QUEUE, heaps.launch(heap, PES, (cl_command_queue[]){on[0], NULL},
                                                 kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    /* A buffer that the kernel may write would have to be in two places at once if the devices do
     * not share memory. */
    set_mem(mixed, 0, heap);
    set_mem(mixed, 1, plain);
    if (!in_one_place()) {
        GIVES(CL_INVALID_OPERATION, collective(heap, mixed, 1, 1));
        OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
        CHECK(strstr(text, "may write"));
    } else {
        OK(collective(heap, mixed, 1, 1));
        finish_all();
        /* One device alone has as many units as both together, so two work-groups on each are too
         * many. */
        if (units > 1) {
            size_t two = units;
            GIVES(CL_INVALID_OPERATION, collective(heap, kernel, two, 1));
            OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
            CHECK(strstr(text, "together"));
            test_note("%s", text);
        }
    }
    ring_runs(heap, 5);
    OK(heaps.info(heap, CL_GLOBAL_BUFFER_REFUSAL_PENSTOCK, sizeof text, text, NULL));
    CHECK(text[0] == 0);
    OK(clReleaseKernel(kernel));
    OK(clReleaseKernel(other));
    OK(clReleaseKernel(mixed));
    OK(clReleaseMemObject(plain));
    OK(clReleaseMemObject(heap));
}

TEST(an_abort_ends_all_waits) {
    need_heaps();
    cl_mem heap = make_heap(patient);
    cl_kernel kernel = make_kernel(program, "wait_long");
    set_mem(kernel, 0, heap);
    for (int turn = 0; turn < 3; turn++) {
        OK(collective(heap, kernel, 1, 1));
        usleep(50000);
        double start = seconds();
        OK(heaps.abort(heap, "the test wants so"));
        finish_all();
        if (turn == 0) test_note("%.1f ms until both kernels had left", (seconds() - start) * 1e3);
        for (int pe = 0; pe < PES; pe++) CHECK((cl_long)result(heap, pe, 1) == -2);
        cl_bool aborted = CL_FALSE;
        char text[256];
        OK(heaps.info(heap, CL_GLOBAL_BUFFER_ABORTED_PENSTOCK, sizeof aborted, &aborted, NULL));
        CHECK(aborted == CL_TRUE);
        OK(heaps.info(heap, CL_GLOBAL_BUFFER_REASON_PENSTOCK, sizeof text, text, NULL));
        CHECK(strstr(text, "the test wants so"));
        /* Until the reset, no kernel waits. */
        OK(collective(heap, kernel, 1, 1));
        finish_all();
        CHECK((cl_long)result(heap, 0, 1) == -2);
        OK(heaps.reset(heap));
        OK(heaps.info(heap, CL_GLOBAL_BUFFER_ABORTED_PENSTOCK, sizeof aborted, &aborted, NULL));
        CHECK(aborted == CL_FALSE);
        ring_runs(heap, 50);
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(heap));
}

TEST(a_wait_has_a_bound) {
    need_heaps();
    const cl_ulong short_time[] = {CL_GLOBAL_BUFFER_TIMEOUT_MS_PENSTOCK, 200, 0};
    cl_mem heap = make_heap(short_time);
    cl_kernel kernel = make_kernel(program, "wait_long");
    set_mem(kernel, 0, heap);
    double start = seconds();
    OK(collective(heap, kernel, 1, 1));
    finish_all();
    double took = seconds() - start;
    CHECK(took > 0.1);
    for (int pe = 0; pe < PES; pe++) CHECK((cl_long)result(heap, pe, 1) == -1);
    OK(heaps.reset(heap));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(heap));
}

TEST(a_launch_waits_for_what_comes_before_it_anywhere) {
    need_heaps();
    cl_mem heap = make_heap(patient);
    cl_kernel kernel = make_kernel(program, "ring");
    cl_int code;
    cl_event gate = clCreateUserEvent(both, &code), events[PES];
    OK(code);
    set_mem(kernel, 0, heap);
    set_ulong(kernel, 1, 20);
    size_t one = 1;
    OK(heaps.launch(heap, PES, on, kernel, 1, NULL, &one, &one, 1, &gate, events));
    usleep(20000);
    for (int pe = 0; pe < PES; pe++) {
        cl_int status = 0;
        OK(clGetEventInfo(events[pe], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                          NULL));
        CHECK(status > CL_COMPLETE);
        cl_command_queue of = NULL;
        OK(clGetEventInfo(events[pe], CL_EVENT_COMMAND_QUEUE, sizeof of, &of, NULL));
        CHECK(of == on[pe]);
    }
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(PES, events));
    for (int pe = 0; pe < PES; pe++) {
        CHECK(result(heap, pe, 0) == 20);
        OK(clReleaseEvent(events[pe]));
    }
    OK(clReleaseEvent(gate));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(heap));
}

TEST(one_device_stores_into_the_other_one) {
    need_heaps();
    cl_mem heap = make_heap(patient);
    cl_kernel kernel = make_kernel(program, "give");
    size_t one = 1;
    set_mem(kernel, 0, heap);
    for (cl_ulong value = 1; value < 50; value++) {
        for (cl_uint to = 0; to < PES; to++) {
            cl_uint from = (to + 1) % PES;
            cl_ulong got = 0;
            set_ulong(kernel, 1, value * 10 + to);
            OK(clSetKernelArg(kernel, 2, sizeof to, &to));
            OK(clEnqueueNDRangeKernel(on[from], kernel, 1, NULL, &one, &one, 0, NULL, NULL));
            OK(clFinish(on[from]));
            OK(clEnqueueReadBuffer(on[to], heap, CL_TRUE, DATA, 8, &got, 0, NULL, NULL));
            REQUIRE(got == value * 10 + to);
        }
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(heap));
}

TEST(a_released_heap_lives_as_long_as_its_launches) {
    need_heaps();
    cl_kernel kernel = make_kernel(program, "ring");
    for (int turn = 0; turn < 5; turn++) {
        cl_mem heap = make_heap(patient);
        cl_event events[PES];
        size_t one = 1;
        set_mem(kernel, 0, heap);
        set_ulong(kernel, 1, 200);
        OK(heaps.launch(heap, PES, on, kernel, 1, NULL, &one, &one, 0, NULL, events));
        OK(clReleaseMemObject(heap));
        OK(clWaitForEvents(PES, events));
        for (int pe = 0; pe < PES; pe++) OK(clReleaseEvent(events[pe]));
    }
    OK(clReleaseKernel(kernel));
}

TEST(parts_of_a_device_are_pes) {
    need_heaps();
    const cl_device_partition_property by_one[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id parts[PES], whole = NULL;
    cl_uint count = 0;
    char version[256];
    /* Only of PoCL is the number of parts known that run at the same time. */
    for (cl_uint d = 0; d < device_count; d++) {
        device_text(devices[d], CL_DEVICE_VERSION, version, sizeof version);
        if (strstr(version, "PoCL") || strstr(version, "pocl")) whole = devices[d];
    }
    if (!whole || clCreateSubDevices(whole, by_one, 0, NULL, &count) != CL_SUCCESS || count != PES)
        test_skip("no device of PoCL with two parts");
    OK(clCreateSubDevices(whole, by_one, PES, parts, NULL));
    cl_context of_parts = make_context(PES, parts);
    cl_command_queue in[PES];
    for (int pe = 0; pe < PES; pe++) in[pe] = make_queue(of_parts, parts[pe], 0);
    cl_program made = build(of_parts, heap_kernels, NULL);
    cl_kernel kernel = make_kernel(made, "ring");
    cl_int code;
    cl_mem heap = heaps.create(of_parts, 0, NULL, BYTES, patient, &code);
    OK(code);
    set_mem(kernel, 0, heap);
    set_ulong(kernel, 1, 100);
    size_t one = 1, two = 2;
    GIVES(CL_INVALID_OPERATION,
          heaps.launch(heap, PES, in, kernel, 1, NULL, &two, &one, 0, NULL, NULL));
    OK(heaps.launch(heap, PES, in, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    for (int pe = 0; pe < PES; pe++) {
        cl_ulong seen = 0;
        OK(clEnqueueReadBuffer(in[pe], heap, CL_TRUE, RESULT, 8, &seen, 0, NULL, NULL));
        CHECK(seen == 100);
    }
    OK(clReleaseMemObject(heap));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(made));
    for (int pe = 0; pe < PES; pe++) OK(clReleaseCommandQueue(in[pe]));
    OK(clReleaseContext(of_parts));
    for (int pe = 0; pe < PES; pe++) OK(clReleaseDevice(parts[pe]));
}

TEST(heaps_come_and_go) {
    need_heaps();
    for (int turn = 0; turn < 100; turn++) {
        cl_mem heap = make_heap(patient);
        if (turn % 20 == 0) ring_runs(heap, 3);
        OK(clReleaseMemObject(heap));
    }
    cl_mem several[8];
    for (int at = 0; at < 8; at++) several[at] = make_heap(patient);
    for (int at = 0; at < 8; at++) ring_runs(several[at], 10);
    for (int at = 0; at < 8; at++) OK(clReleaseMemObject(several[at]));
}
