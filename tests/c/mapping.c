/* Mapped buffers: the visible content, the bytes that reach the device, and that the pointer
 * remains valid host memory. */
#include "harness.h"

#define SIZE 16384u

static void *map(cl_mem mem, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size,
                 cl_event *event) {
    cl_int code;
    void *at = clEnqueueMapBuffer(queue, mem, blocking, flags, offset, size, 0, NULL, event, &code);
    OK(code);
    REQUIRE(at);
    return at;
}

TEST(map_reads_the_buffer) {
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 1);
    void *at = map(mem, CL_TRUE, CL_MAP_READ, 0, SIZE, NULL);
    CHECK(same_pattern(at, SIZE, 1));
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(mem));
}

TEST(map_writes_the_buffer) {
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 1);
    void *at = map(mem, CL_TRUE, CL_MAP_WRITE, 0, SIZE, NULL);
    pattern(at, SIZE, 2);
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    CHECK(read_pattern(queue, mem, SIZE, 2));
    OK(clReleaseMemObject(mem));
}

/* CL_MAP_WRITE without INVALIDATE keeps the bytes that the program does not change. */
TEST(map_write_of_one_word_keeps_the_rest) {
    unsigned char expected[SIZE], back[SIZE];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 3);
    unsigned char *at = map(mem, CL_TRUE, CL_MAP_WRITE, 100, 1000, NULL);
    at[10] = 0xaa;
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    pattern(expected, SIZE, 3);
    expected[110] = 0xaa;
    CHECK(memcmp(back, expected, SIZE) == 0);
    OK(clReleaseMemObject(mem));
}

TEST(map_invalidate) {
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 4);
    void *at = map(mem, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, SIZE, NULL);
    pattern(at, SIZE, 5);
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    CHECK(read_pattern(queue, mem, SIZE, 5));
    OK(clReleaseMemObject(mem));
}

TEST(map_without_blocking) {
    cl_event event;
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 6);
    void *at = map(mem, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, &event);
    OK(clWaitForEvents(1, &event));
    CHECK(same_pattern(at, SIZE, 6));
    pattern(at, SIZE, 7);
    OK(clReleaseEvent(event));
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    CHECK(read_pattern(queue, mem, SIZE, 7));
    OK(clReleaseMemObject(mem));
}

TEST(several_maps_at_once) {
    cl_uint maps = 0;
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 8);
    unsigned char *low = map(mem, CL_TRUE, CL_MAP_READ, 0, 4096, NULL);
    unsigned char *high = map(mem, CL_TRUE, CL_MAP_READ, 4096, 4096, NULL);
    unsigned char *again = map(mem, CL_TRUE, CL_MAP_READ, 0, 8192, NULL);
    OK(clGetMemObjectInfo(mem, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
    CHECK(maps == 3);
    CHECK(memcmp(again, low, 4096) == 0 && memcmp(again + 4096, high, 4096) == 0);
    OK(clEnqueueUnmapMemObject(queue, mem, high, 0, NULL, NULL));
    OK(clEnqueueUnmapMemObject(queue, mem, low, 0, NULL, NULL));
    OK(clEnqueueUnmapMemObject(queue, mem, again, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clGetMemObjectInfo(mem, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
    CHECK(maps == 0);
    OK(clReleaseMemObject(mem));
}

/* Two maps of different parts: both are written, and both must arrive. */
TEST(two_written_parts) {
    unsigned char expected[SIZE], back[SIZE];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 9);
    unsigned char *low = map(mem, CL_TRUE, CL_MAP_WRITE, 0, 1000, NULL);
    unsigned char *high = map(mem, CL_TRUE, CL_MAP_WRITE, 1000, 1000, NULL);
    memset(low, 1, 1000);
    memset(high, 2, 1000);
    OK(clEnqueueUnmapMemObject(queue, mem, low, 0, NULL, NULL));
    OK(clEnqueueUnmapMemObject(queue, mem, high, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    pattern(expected, SIZE, 9);
    memset(expected, 1, 1000);
    memset(expected + 1000, 2, 1000);
    CHECK(memcmp(back, expected, SIZE) == 0);
    OK(clReleaseMemObject(mem));
}

/* LAMMPS maps a buffer once and uses the pointer as the host memory of other transfers. */
TEST(mapped_pointer_as_host_memory_of_transfers) {
    cl_mem pinned = make_buffer(context, CL_MEM_ALLOC_HOST_PTR, SIZE, NULL);
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    unsigned char *at = map(pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, NULL);
    for (unsigned round = 0; round < 5; round++) {
        pattern(at, SIZE / 2, round);
        OK(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, SIZE / 2, at, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE / 2, at + SIZE / 2, 0, NULL, NULL));
        CHECK(same_pattern(at + SIZE / 2, SIZE / 2, round));
    }
    OK(clEnqueueUnmapMemObject(queue, pinned, at, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(pinned));
    OK(clReleaseMemObject(mem));
}

TEST(kernel_between_maps) {
    const char *source =
        "kernel void negate(global uint *w) { size_t i = get_global_id(0); w[i] = ~w[i]; }";
    cl_kernel kernel = kernel_from(context, source, "negate");
    cl_mem mem = make_buffer(context, CL_MEM_ALLOC_HOST_PTR, SIZE, NULL);
    set_mem(kernel, 0, mem);
    for (unsigned round = 0; round < 10; round++) {
        bool right = true;
        cl_uint *at = map(mem, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, SIZE, NULL);
        for (cl_uint i = 0; i < SIZE / 4; i++) at[i] = i * round;
        OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
        launch(queue, kernel, SIZE / 4);
        at = map(mem, CL_TRUE, CL_MAP_READ, 0, SIZE, NULL);
        for (cl_uint i = 0; i < SIZE / 4; i++) right = right && at[i] == ~(i * round);
        CHECK(right);
        OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    }
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

/* Programs with a device of unified memory map a buffer once. From then on the host and kernels use
 * it in turn, without any transfer. Sub-buffers and buffers without CL_MEM_ALLOC_HOST_PTR are no
 * different. */
TEST(unified_memory_is_mapped_once) {
    if (!device_uint(device, CL_DEVICE_HOST_UNIFIED_MEMORY)) test_skip("memory is not unified");
    const char *source =
        "kernel void negate(global uint *w) { size_t i = get_global_id(0); w[i] = ~w[i]; }";
    cl_kernel kernel = kernel_from(context, source, "negate");
    const cl_mem_flags flags[] = {CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE};
    for (size_t kind = 0; kind < 2; kind++) {
        cl_mem mem = make_buffer(context, flags[kind], SIZE, NULL);
        cl_buffer_region half = {SIZE / 2, SIZE / 2};
        cl_int code;
        cl_mem part = clCreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &code);
        OK(code);
        cl_uint *at = map(mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, NULL);
        for (cl_uint round = 0; round < 100; round++) {
            bool right = true;
            for (cl_uint i = 0; i < SIZE / 4; i++) at[i] = i * round;
            set_mem(kernel, 0, mem);
            launch(queue, kernel, SIZE / 4);
            set_mem(kernel, 0, part);
            launch(queue, kernel, SIZE / 8);
            OK(clFinish(queue));
            for (cl_uint i = 0; i < SIZE / 4; i++)
                right = right && at[i] == (i < SIZE / 8 ? ~(i * round) : i * round);
            CHECK(right);
        }
        OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
        OK(clFinish(queue));
        OK(clReleaseMemObject(part));
        OK(clReleaseMemObject(mem));
    }
    OK(clReleaseKernel(kernel));
}

TEST(use_host_ptr_maps_into_it) {
    unsigned char *host = aligned_alloc(4096, SIZE);
    pattern(host, SIZE, 10);
    cl_mem mem = make_buffer(context, CL_MEM_USE_HOST_PTR, SIZE, host);
    unsigned char *at = map(mem, CL_TRUE, CL_MAP_READ, 128, 1024, NULL);
    CHECK(at == host + 128);
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(mem));
    free(host);
}

TEST(errors) {
    cl_int code;
    unsigned char not_mapped[16];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    CHECK(!clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ, SIZE, 1, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_VALUE, code);
    CHECK(!clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ, 0, 0, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_VALUE, code);
    if (!on_pocl()) { /* PoCL accepts any flags. */
        const cl_map_flags both = CL_MAP_WRITE_INVALIDATE_REGION | CL_MAP_READ;
        CHECK(!clEnqueueMapBuffer(queue, mem, CL_TRUE, (cl_map_flags)1 << 30, 0, 16, 0, NULL, NULL,
                                  &code));
        GIVES(CL_INVALID_VALUE, code);
        CHECK(!clEnqueueMapBuffer(queue, mem, CL_TRUE, both, 0, 16, 0, NULL, NULL, &code));
        GIVES(CL_INVALID_VALUE, code);
    }
    CHECK(!clEnqueueMapBuffer(NULL, mem, CL_TRUE, CL_MAP_READ, 0, 16, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_COMMAND_QUEUE, code);
    CHECK(!clEnqueueMapBuffer(queue, NULL, CL_TRUE, CL_MAP_READ, 0, 16, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_MEM_OBJECT, code);
    GIVES(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, mem, not_mapped, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, mem, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT, clEnqueueUnmapMemObject(queue, NULL, not_mapped, 0, NULL, NULL));
    void *at = map(mem, CL_TRUE, CL_MAP_READ, 0, SIZE, NULL);
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    OK(clFinish(queue));
    GAP_BEGIN; /* PoCL accepts the second unmap. */
    GIVES(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    GAP_END;
    OK(clReleaseMemObject(mem));
}

/* A table of the program in read-only pages. */
static const cl_uint table[1024] = {1, 2, 3};

static void check_table_mapped(cl_mem mem, size_t offset, size_t size) {
    const cl_uint *at = map(mem, CL_TRUE, CL_MAP_READ, 0, size, NULL);
    CHECK(at == table + offset / sizeof *table);
    OK(clEnqueueUnmapMemObject(queue, mem, (void *)(uintptr_t)at, 0, NULL, NULL));
    OK(clFinish(queue));
}

static void use_and_map_table(cl_mem_flags flags) {
    const char *source =
        "kernel void k(global const uint *t, constant uint *c, global uint *sum) { *sum = t[1] + c[2]; }";
    const cl_buffer_region half = {2048, 2048};
    cl_uint sum = 0;
    cl_int code;
    cl_mem mem =
        make_buffer(context, flags | CL_MEM_USE_HOST_PTR, sizeof table, (void *)(uintptr_t)table);
    cl_mem out = make_buffer(context, 0, 4, NULL);
    cl_mem part = clCreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &code);
    OK(code);
    check_table_mapped(mem, 0, sizeof table);
    cl_kernel kernel = kernel_from(context, source, "k");
    set_mem(kernel, 0, mem);
    set_mem(kernel, 1, mem);
    set_mem(kernel, 2, out);
    launch(queue, kernel, 1);
    OK(clEnqueueCopyBuffer(queue, mem, out, 0, 0, 4, 0, NULL, NULL));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4, &sum, 0, NULL, NULL));
    CHECK(sum == 5);
    check_table_mapped(mem, 0, sizeof table);
    check_table_mapped(part, half.origin, half.size);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(out));
    OK(clReleaseMemObject(mem));
}

TEST(constant_table_is_mapped_for_reading) { use_and_map_table(CL_MEM_READ_ONLY); }

/* The kernel declares that it does not write; the buffer is writable. */
TEST(constant_table_in_a_writable_buffer_is_mapped_for_reading) {
    use_and_map_table(CL_MEM_READ_WRITE);
}

TEST(constant_image_is_mapped_for_reading) {
    need_images();
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc description = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    const size_t origin[3] = {0}, region[3] = {8, 8, 1};
    const cl_mem_flags flags = CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR;
    size_t pitch;
    cl_int code;
    cl_mem image =
        clCreateImage(context, flags, &format, &description, (void *)(uintptr_t)table, &code);
    OK(code);
    void *at = clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, origin, region, &pitch, NULL,
                                 0, NULL, NULL, &code);
    OK(code);
    CHECK(at == table);
    OK(clEnqueueUnmapMemObject(queue, image, at, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(image));
}

/* Events, and not the order of the calls, decide which command comes first. */
TEST(map_sees_a_write_that_is_enqueued_later_and_comes_first) {
    unsigned char *host = aligned_alloc(4096, SIZE), *data = malloc(SIZE);
    pattern(host, SIZE, 11);
    pattern(data, SIZE, 12);
    cl_mem mem = make_buffer(context, CL_MEM_USE_HOST_PTR, SIZE, host);
    cl_command_queue other = make_queue(context, device, 0);
    cl_event gate = make_user_event(context), mapped;
    cl_int code;
    void *at =
        clEnqueueMapBuffer(queue, mem, CL_FALSE, CL_MAP_READ, 0, SIZE, 1, &gate, &mapped, &code);
    OK(code);
    OK(clEnqueueWriteBuffer(other, mem, CL_FALSE, 0, SIZE, data, 0, NULL, NULL));
    OK(clFinish(other));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &mapped));
    CHECK(same_pattern(at, SIZE, 12));
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseEvent(mapped));
    OK(clReleaseEvent(gate));
    OK(clReleaseCommandQueue(other));
    OK(clReleaseMemObject(mem));
    free(data);
    free(host);
}

/* With the next map, the effect of every kind of command reaches the memory that the program
 * provided. */
TEST(maps_of_given_memory_see_every_kind_of_write) {
    const char *source = "kernel void set(global uint *w) { w[get_global_id(0)] = 7; }";
    const cl_uint seven = 7;
    cl_kernel kernel = kernel_from(context, source, "set");
    for (int way = 0; way < 5; way++) {
        cl_uint *host = aligned_alloc(4096, 4096), sevens[1024];
        for (int i = 0; i < 1024; i++) host[i] = 1, sevens[i] = 7;
        const cl_mem_flags use = way == 4 ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
        cl_mem mem = make_buffer(context, use | CL_MEM_USE_HOST_PTR, 4096, host);
        cl_mem from = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4096, sevens);
        set_mem(kernel, 0, mem);
        switch (way) {
        case 0:
            OK(clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, 4096, sevens, 0, NULL, NULL));
            break;
        case 1: OK(clEnqueueFillBuffer(queue, mem, &seven, 4, 0, 4096, 0, NULL, NULL)); break;
        case 2: OK(clEnqueueCopyBuffer(queue, from, mem, 0, 0, 4096, 0, NULL, NULL)); break;
        /* Way 4 stores into a CL_MEM_READ_ONLY buffer, which the specification leaves undefined. */
        default: launch(queue, kernel, 1024);
        }
        const cl_uint *at = map(mem, CL_TRUE, CL_MAP_READ, 0, 4096, NULL);
        const bool right = memcmp(at, sevens, 4096) == 0;
        if (!right) test_note("way %d", way);
        CHECK(right);
        OK(clEnqueueUnmapMemObject(queue, mem, (void *)(uintptr_t)at, 0, NULL, NULL));
        OK(clFinish(queue));
        OK(clReleaseMemObject(from));
        OK(clReleaseMemObject(mem));
        free(host);
    }
    OK(clReleaseKernel(kernel));
}

/* Whether the program enqueues the unmap before or after the map has failed. */
enum { UNMAP_FIRST, UNMAP_LATER, UNMAP_ORDERS };

/* The map fails with the event in its wait list, so the program got nothing to write. */
static void fail_map_then_unmap(cl_mem mem, void *at, cl_event gate, cl_event mapped, int order) {
    cl_event unmapped;
    if (order == UNMAP_FIRST) OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, &unmapped));
    OK(clSetUserEventStatus(gate, -7));
    GIVES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &mapped));
    if (order == UNMAP_LATER) OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, &unmapped));
    /* The specification does not say whether the unmap fails with the map. */
    (void)clWaitForEvents(1, &unmapped);
    OK(clReleaseEvent(unmapped));
    OK(clReleaseEvent(mapped));
    OK(clReleaseEvent(gate));
}

static void unmap_a_failed_map(cl_map_flags flags) {
    for (int order = 0; order < UNMAP_ORDERS; order++) {
        for (int given = 0; given < 2; given++) {
            unsigned char *host = aligned_alloc(4096, SIZE);
            memset(host, 0x55, SIZE);
            cl_mem mem =
                make_buffer(context, given ? CL_MEM_USE_HOST_PTR : 0, SIZE, given ? host : NULL);
            write_pattern(queue, mem, SIZE, 20);
            cl_event gate = make_user_event(context), mapped;
            cl_int code;
            void *at = clEnqueueMapBuffer(queue, mem, CL_FALSE, flags, 100, 5000, 1, &gate, &mapped,
                                          &code);
            OK(code);
            fail_map_then_unmap(mem, at, gate, mapped, order);
            const bool kept = read_pattern(queue, mem, SIZE, 20);
            if (!kept) test_note("order %d, memory of the %s", order, given ? "program" : "driver");
            CHECK(kept);

            /* The next map and unmap work normally. */
            at = map(mem, CL_TRUE, flags, 0, SIZE, NULL);
            pattern(at, SIZE, 21);
            OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, NULL));
            CHECK(read_pattern(queue, mem, SIZE, 21));
            OK(clReleaseMemObject(mem));
            free(host);
        }
    }
}

TEST(unmap_of_a_failed_map_keeps_the_content) { unmap_a_failed_map(CL_MAP_READ | CL_MAP_WRITE); }

TEST(unmap_of_a_failed_invalidating_map_keeps_the_content) {
    unmap_a_failed_map(CL_MAP_WRITE_INVALIDATE_REGION);
}

TEST(unmap_of_a_failed_invalidating_map_keeps_the_image) {
    need_images();
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc description = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 64, .image_height = 64};
    const size_t none[3] = {0}, whole[3] = {64, 64, 1}, origin[3] = {3, 5, 0},
                 region[3] = {40, 50, 1};
    unsigned char back[64 * 64 * 4];
    for (int order = 0; order < UNMAP_ORDERS; order++) {
        cl_int code;
        cl_mem image =
            clCreateImage(context, CL_MEM_READ_WRITE, &format, &description, NULL, &code);
        OK(code);
        pattern(back, sizeof back, 22);
        OK(clEnqueueWriteImage(queue, image, CL_TRUE, none, whole, 0, 0, back, 0, NULL, NULL));
        cl_event gate = make_user_event(context), mapped;
        size_t pitch;
        void *at = clEnqueueMapImage(queue, image, CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION, origin,
                                     region, &pitch, NULL, 1, &gate, &mapped, &code);
        OK(code);
        fail_map_then_unmap(image, at, gate, mapped, order);
        memset(back, 0, sizeof back);
        OK(clEnqueueReadImage(queue, image, CL_TRUE, none, whole, 0, 0, back, 0, NULL, NULL));
        CHECK(same_pattern(back, sizeof back, 22));
        OK(clReleaseMemObject(image));
    }
}

/* The unmap of an invalidating map that is still pending runs after the map, and then writes. */
TEST(unmap_of_an_open_invalidating_map_writes_when_the_map_has_ended) {
    unsigned char *host = aligned_alloc(4096, SIZE), back[SIZE];
    memset(host, 0x55, SIZE);
    cl_mem mem = make_buffer(context, CL_MEM_USE_HOST_PTR, SIZE, host);
    cl_command_queue other = make_queue(context, device, 0);
    cl_event gate = make_user_event(context), unmapped;
    cl_int code;
    write_pattern(queue, mem, SIZE, 23);
    unsigned char *at = clEnqueueMapBuffer(queue, mem, CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION, 0,
                                           SIZE, 1, &gate, NULL, &code);
    OK(code);
    OK(clEnqueueUnmapMemObject(queue, mem, at, 0, NULL, &unmapped));
    OK(clFlush(queue));
    OK(clEnqueueReadBuffer(other, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    CHECK(same_pattern(back, SIZE, 23));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &unmapped));
    OK(clEnqueueReadBuffer(other, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    CHECK(memcmp(back, host, SIZE) == 0);
    OK(clReleaseEvent(unmapped));
    OK(clReleaseEvent(gate));
    OK(clReleaseCommandQueue(other));
    OK(clReleaseMemObject(mem));
    free(host);
}
