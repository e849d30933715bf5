/* One context over several devices: buffers and images move to the device that uses them, and every
 * copy that a command reads is current. */
#include "harness.h"

#define DEVICES 2
#define WORDS 4096u

static cl_context both;
static cl_command_queue on[DEVICES];

static void need_two(void) {
    if (device_count < DEVICES) test_skip("one device only");
    if (both) return;
    both = make_context(DEVICES, devices);
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
}

static cl_kernel kernel_up(void) {
    return kernel_from(
        both, "kernel void up(global uint *w, uint by) { w[get_global_id(0)] += by; }", "up");
}

static void up(cl_command_queue where, cl_kernel kernel, cl_mem mem, cl_uint by) {
    set_mem(kernel, 0, mem);
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    launch(where, kernel, WORDS);
}

static bool holds(cl_command_queue where, cl_mem mem, cl_uint base) {
    static cl_uint words[WORDS];
    OK(clEnqueueReadBuffer(where, mem, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < WORDS; i++) {
        if (words[i] != base + i) {
            test_note("word %u is %u, not %u", i, words[i], base + i);
            return false;
        }
    }
    return true;
}

static cl_mem counting(void) {
    static cl_uint words[WORDS];
    for (cl_uint i = 0; i < WORDS; i++) words[i] = i;
    return make_buffer(both, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof words, words);
}

TEST(write_here_read_there) {
    need_two();
    cl_mem mem = make_buffer(both, 0, 65536, NULL);
    for (unsigned round = 0; round < 4; round++) {
        write_pattern(on[round % 2], mem, 65536, round);
        CHECK(read_pattern(on[(round + 1) % 2], mem, 65536, round));
        CHECK(read_pattern(on[round % 2], mem, 65536, round));
    }
    OK(clReleaseMemObject(mem));
}

/* "After the memobj reference count becomes zero and commands queued for execution on a
 * command-queue(s) that use memobj have finished, the memory object is deleted": not while its
 * content still moves to another device. */
TEST(released_while_its_content_moves) {
    need_two();
    const size_t size = 4 << 20;
    cl_mem to = make_buffer(both, 0, size, NULL);
    for (unsigned round = 0; round < 10; round++) {
        cl_mem from = make_buffer(both, 0, size, NULL);
        write_pattern(on[0], from, size, round);
        OK(clFinish(on[0]));
        OK(clEnqueueCopyBuffer(on[1], from, to, 0, 0, size, 0, NULL, NULL));
        OK(clReleaseMemObject(from));
        OK(clFinish(on[1]));
        CHECK(read_pattern(on[1], to, size, round));
    }
    OK(clReleaseMemObject(to));
}

TEST(kernels_in_turn) {
    need_two();
    cl_kernel kernel = kernel_up();
    cl_mem mem = counting();
    for (cl_uint i = 0; i < 50; i++) {
        up(on[i % 2], kernel, mem, 3);
        OK(clFinish(on[i % 2]));
    }
    CHECK(holds(on[0], mem, 150));
    CHECK(holds(on[1], mem, 150));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

/* The same, ordered by events alone, without a wait in between. */
static void in_turn_by_events(cl_uint launches) {
    need_two();
    cl_kernel kernel = kernel_up();
    cl_mem mem = counting();
    cl_event last = NULL;
    const size_t items = WORDS;
    const cl_uint by = 7;
    set_mem(kernel, 0, mem);
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    for (cl_uint i = 0; i < launches; i++) {
        cl_event next;
        OK(clEnqueueNDRangeKernel(on[i % 2], kernel, 1, NULL, &items, NULL, last ? 1 : 0,
                                  last ? &last : NULL, &next));
        OK(clFlush(on[i % 2]));
        if (last) OK(clReleaseEvent(last));
        last = next;
    }
    static cl_uint words[WORDS];
    OK(clEnqueueReadBuffer(on[1], mem, CL_TRUE, 0, sizeof words, words, 1, &last, NULL));
    bool right = true;
    for (cl_uint i = 0; i < WORDS; i++) right = right && words[i] == i + launches * by;
    CHECK(right);
    OK(clReleaseEvent(last));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(kernels_in_turn_by_events) { in_turn_by_events(60); }

/* If each launch waited for all transfers before it, this would take minutes and exceed the test's
 * time limit. */
TEST(a_long_chain_ends_in_time) { in_turn_by_events(5000); }

TEST(half_written_here_half_there) {
    need_two();
    static unsigned char bytes[2][8192], back[16384];
    cl_mem mem = make_buffer(both, 0, sizeof back, NULL);
    for (int d = 0; d < 2; d++) {
        pattern(bytes[d], 8192, 10 + (unsigned)d);
        OK(clEnqueueWriteBuffer(on[d], mem, CL_TRUE, (size_t)d * 8192, 8192, bytes[d], 0, NULL,
                                NULL));
    }
    for (int d = 0; d < 2; d++) {
        memset(back, 0, sizeof back);
        OK(clEnqueueReadBuffer(on[d], mem, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        CHECK(same_pattern(back, 8192, 10) && same_pattern(back + 8192, 8192, 11));
    }
    OK(clReleaseMemObject(mem));
}

TEST(fill_copy_and_rect_across) {
    need_two();
    const cl_uint what = 0x11223344;
    const size_t zero[3] = {0, 0, 0}, region[3] = {16, 4, 2};
    unsigned char expected[4096], back[4096];
    cl_mem a = make_buffer(both, 0, 4096, NULL), b = make_buffer(both, 0, 4096, NULL);
    write_pattern(on[0], a, 4096, 1);
    write_pattern(on[1], b, 4096, 2);
    OK(clEnqueueFillBuffer(on[1], a, &what, 4, 512, 512, 0, NULL, NULL));
    OK(clFinish(on[1]));
    OK(clEnqueueCopyBuffer(on[0], a, b, 0, 1024, 2048, 0, NULL, NULL));
    OK(clFinish(on[0]));
    OK(clEnqueueCopyBufferRect(on[1], b, a, zero, zero, region, 64, 512, 64, 512, 0, NULL, NULL));
    OK(clFinish(on[1]));
    unsigned char first[4096];
    pattern(first, 4096, 1);
    pattern(expected, 4096, 2);
    for (int i = 512; i < 1024; i += 4) memcpy(first + i, &what, 4);
    memcpy(expected + 1024, first, 2048);
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 4; y++)
            memcpy(first + z * 512 + y * 64, expected + z * 512 + y * 64, 16);
    OK(clEnqueueReadBuffer(on[0], a, CL_TRUE, 0, 4096, back, 0, NULL, NULL));
    CHECK(memcmp(back, first, 4096) == 0);
    OK(clEnqueueReadBuffer(on[0], b, CL_TRUE, 0, 4096, back, 0, NULL, NULL));
    CHECK(memcmp(back, expected, 4096) == 0);
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
}

TEST(map_after_a_kernel_elsewhere) {
    need_two();
    cl_int code;
    cl_kernel kernel = kernel_up();
    cl_mem mem = counting();
    for (cl_uint i = 0; i < 6; i++) {
        up(on[i % 2], kernel, mem, 1);
        OK(clFinish(on[i % 2]));
        cl_command_queue other = on[(i + 1) % 2];
        cl_uint *w = clEnqueueMapBuffer(other, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                        WORDS * 4, 0, NULL, NULL, &code);
        OK(code);
        CHECK(w[0] == 2 * i + 1 && w[WORDS - 1] == WORDS - 1 + 2 * i + 1);
        for (cl_uint k = 0; k < WORDS; k++) w[k] += 1;
        OK(clEnqueueUnmapMemObject(other, mem, w, 0, NULL, NULL));
        OK(clFinish(other));
    }
    CHECK(holds(on[0], mem, 12));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(use_host_ptr_across) {
    need_two();
    cl_int code;
    cl_uint *words = aligned_alloc(4096, WORDS * 4);
    for (cl_uint i = 0; i < WORDS; i++) words[i] = i;
    cl_kernel kernel = kernel_up();
    cl_mem mem = make_buffer(both, CL_MEM_USE_HOST_PTR, WORDS * 4, words);
    up(on[0], kernel, mem, 10);
    OK(clFinish(on[0]));
    up(on[1], kernel, mem, 100);
    OK(clFinish(on[1]));
    void *at =
        clEnqueueMapBuffer(on[0], mem, CL_TRUE, CL_MAP_READ, 0, WORDS * 4, 0, NULL, NULL, &code);
    OK(code);
    CHECK(at == words && words[0] == 110 && words[WORDS - 1] == WORDS - 1 + 110);
    OK(clEnqueueUnmapMemObject(on[0], mem, at, 0, NULL, NULL));
    OK(clFinish(on[0]));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
    free(words);
}

TEST(sub_buffers_on_different_devices) {
    need_two();
    const size_t half = WORDS * 2;
    cl_int code;
    cl_kernel kernel = kernel_from(
        both, "kernel void up(global uint *w, uint by) { w[get_global_id(0)] += by; }", "up");
    cl_mem mem = counting(), parts[2];
    for (int d = 0; d < 2; d++) {
        cl_buffer_region region = {(size_t)d * half, half};
        parts[d] = clCreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
        OK(code);
    }
    for (cl_uint round = 0; round < 4; round++) {
        for (int d = 0; d < 2; d++) {
            cl_uint by = 5;
            set_mem(kernel, 0, parts[d]);
            OK(clSetKernelArg(kernel, 1, 4, &by));
            launch(on[(d + (int)round) % 2], kernel, WORDS / 2);
        }
        for (int d = 0; d < 2; d++) OK(clFinish(on[d]));
    }
    CHECK(holds(on[1], mem, 20));
    up(on[0], kernel, mem, 1);
    OK(clFinish(on[0]));
    static cl_uint words[WORDS / 2];
    OK(clEnqueueReadBuffer(on[1], parts[1], CL_TRUE, 0, half, words, 0, NULL, NULL));
    CHECK(words[0] == WORDS / 2 + 21);
    for (int d = 0; d < 2; d++) OK(clReleaseMemObject(parts[d]));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(migrate) {
    need_two();
    cl_event event;
    cl_mem mems[3] = {counting(), counting(), counting()};
    cl_kernel kernel = kernel_up();
    for (int i = 0; i < 3; i++) up(on[0], kernel, mems[i], 2);
    OK(clFinish(on[0]));
    OK(clEnqueueMigrateMemObjects(on[1], 3, mems, 0, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    for (int i = 0; i < 3; i++) CHECK(holds(on[1], mems[i], 2));
    OK(clEnqueueMigrateMemObjects(on[0], 3, mems, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
    OK(clFinish(on[0]));
    for (int i = 0; i < 3; i++) CHECK(holds(on[0], mems[i], 2));
    OK(clEnqueueMigrateMemObjects(on[1], 1, mems, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL,
                                  NULL));
    OK(clFinish(on[1]));
    GIVES(CL_INVALID_VALUE, clEnqueueMigrateMemObjects(on[0], 0, mems, 0, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueMigrateMemObjects(on[0], 1, NULL, 0, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueMigrateMemObjects(on[0], 1, mems, 1u << 20, 0, NULL, NULL));
    cl_mem none = NULL;
    GIVES(CL_INVALID_MEM_OBJECT, clEnqueueMigrateMemObjects(on[0], 1, &none, 0, 0, NULL, NULL));
    for (int i = 0; i < 3; i++) OK(clReleaseMemObject(mems[i]));
    OK(clReleaseKernel(kernel));
}

TEST(sixteen_megabytes_back_and_forth) {
    need_two();
    const size_t size = 16u << 20;
    cl_kernel kernel = kernel_from(
        both, "kernel void touch(global uint *w) { w[0] += 1; w[4194303] += 1; }", "touch");
    cl_uint *words = malloc(size);
    for (size_t i = 0; i < size / 4; i++) words[i] = (cl_uint)(i * 2654435761u);
    cl_mem mem = make_buffer(both, CL_MEM_COPY_HOST_PTR, size, words);
    set_mem(kernel, 0, mem);
    for (int i = 0; i < 10; i++) {
        launch(on[i % 2], kernel, 1);
        OK(clFinish(on[i % 2]));
    }
    words[0] += 10;
    words[4194303] += 10;
    cl_uint *back = malloc(size);
    for (int d = 0; d < 2; d++) {
        OK(clEnqueueReadBuffer(on[d], mem, CL_TRUE, 0, size, back, 0, NULL, NULL));
        CHECK(memcmp(back, words, size) == 0);
    }
    free(words);
    free(back);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(images_across) {
    need_two();
    if (!device_has_images(devices[0]) || !device_has_images(devices[1])) test_skip("no images");
    const size_t zero[3] = {0, 0, 0}, whole[3] = {32, 16, 1};
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 32, .image_height = 16};
    const char *source =
        "kernel void flip(read_only image2d_t from, write_only image2d_t to) {"
        "    const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;"
        "    int2 at = (int2)(get_global_id(0), get_global_id(1));"
        "    write_imageui(to, at, (uint4)(255) - read_imageui(from, s, at)); }";
    unsigned char bytes[32 * 16 * 4], back[32 * 16 * 4];
    cl_mem images[2];
    cl_int code;
    cl_kernel kernel = kernel_from(both, source, "flip");
    for (int i = 0; i < 2; i++) {
        images[i] = clCreateImage(both, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
        OK(code);
    }
    pattern(bytes, sizeof bytes, 20);
    OK(clEnqueueWriteImage(on[0], images[0], CL_TRUE, zero, whole, 0, 0, bytes, 0, NULL, NULL));
    for (int round = 0; round < 6; round++) {
        set_mem(kernel, 0, images[round % 2]);
        set_mem(kernel, 1, images[(round + 1) % 2]);
        OK(clEnqueueNDRangeKernel(on[(round + 1) % 2], kernel, 2, NULL, whole, NULL, 0, NULL,
                                  NULL));
        OK(clFinish(on[(round + 1) % 2]));
    }
    for (int d = 0; d < 2; d++) {
        OK(clEnqueueReadImage(on[d], images[0], CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
        CHECK(memcmp(back, bytes, sizeof back) == 0);
    }
    for (int i = 0; i < 2; i++) OK(clReleaseMemObject(images[i]));
    OK(clReleaseKernel(kernel));
}

TEST(many_readers) {
    need_two();
    const char *source =
        "kernel void add(global uint *to, global const uint *from) { size_t i = get_global_id(0); to[i] += from[i]; }";
    cl_kernel kernel = kernel_from(both, source, "add");
    cl_mem shared = counting(), sums[2];
    cl_uint zeros[WORDS] = {0};
    for (int d = 0; d < 2; d++)
        sums[d] = make_buffer(both, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros);
    for (int i = 0; i < 20; i++) {
        set_mem(kernel, 0, sums[i % 2]);
        set_mem(kernel, 1, shared);
        launch(on[i % 2], kernel, WORDS);
    }
    for (int d = 0; d < 2; d++) OK(clFinish(on[d]));
    for (int d = 0; d < 2; d++) {
        cl_uint back[WORDS];
        bool right = true;
        OK(clEnqueueReadBuffer(on[1 - d], sums[d], CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        for (cl_uint i = 0; i < WORDS; i++) right = right && back[i] == 10 * i;
        CHECK(right);
        OK(clReleaseMemObject(sums[d]));
    }
    OK(clReleaseMemObject(shared));
    OK(clReleaseKernel(kernel));
}

TEST(no_more) {
    need_two();
    for (int d = 0; d < DEVICES; d++) OK(clReleaseCommandQueue(on[d]));
    OK(clReleaseContext(both));
}
