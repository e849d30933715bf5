/* Buffers: creation with every host-pointer flag, reads, writes, copies, fills, and errors. */
#include "harness.h"

#define SIZE 4096u

TEST(write_then_read) {
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 1);
    CHECK(read_pattern(queue, mem, SIZE, 1));
    OK(clReleaseMemObject(mem));
}

TEST(sizes_from_one_byte_to_32_mib) {
    static const size_t sizes[] = {
        1, 3, 7, 64, 255, 4096, 4097, 65535, 65536, 1u << 20, (1u << 20) + 1, 32u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, sizes[i], NULL);
        write_pattern(queue, mem, sizes[i], (unsigned)i);
        CHECK(read_pattern(queue, mem, sizes[i], (unsigned)i));
        OK(clReleaseMemObject(mem));
    }
}

TEST(parts_at_odd_offsets) {
    unsigned char all[SIZE], part[512];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 2);
    pattern(part, sizeof part, 3);
    OK(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 1001, sizeof part, part, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, all, 0, NULL, NULL));
    CHECK(same_pattern(all + 1001, sizeof part, 3));
    memset(part, 0, sizeof part);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 777, 100, part, 0, NULL, NULL));
    CHECK(memcmp(part, all + 777, 100) == 0);
    pattern(part, sizeof part, 3);
    unsigned char whole[SIZE];
    pattern(whole, SIZE, 2);
    CHECK(memcmp(whole, all, 1001) == 0);
    CHECK(memcmp(whole + 1513, all + 1513, SIZE - 1513) == 0);
    OK(clReleaseMemObject(mem));
}

/* A program may reuse the bytes of a non-blocking write when its event is complete, not before. */
TEST(many_writes_without_blocking) {
    enum { COUNT = 200 };
    static unsigned char bytes[COUNT][512], back[COUNT][512];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, sizeof bytes, NULL);
    for (int i = 0; i < COUNT; i++) {
        pattern(bytes[i], sizeof bytes[i], (unsigned)i);
        OK(clEnqueueWriteBuffer(queue, mem, CL_FALSE, (size_t)i * 512, 512, bytes[i], 0, NULL,
                                NULL));
    }
    for (int i = 0; i < COUNT; i++)
        OK(clEnqueueReadBuffer(queue, mem, CL_FALSE, (size_t)i * 512, 512, back[i], 0, NULL, NULL));
    OK(clFinish(queue));
    for (int i = 0; i < COUNT; i++) CHECK(same_pattern(back[i], 512, (unsigned)i));
    OK(clReleaseMemObject(mem));
}

TEST(copy_host_ptr) {
    unsigned char *bytes = malloc(SIZE);
    pattern(bytes, SIZE, 4);
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE, bytes);
    /* From now on the buffer has its own copy. */
    memset(bytes, 0, SIZE);
    free(bytes);
    CHECK(read_pattern(queue, mem, SIZE, 4));
    OK(clReleaseMemObject(mem));
}

TEST(alloc_host_ptr) {
    unsigned char bytes[SIZE];
    pattern(bytes, SIZE, 5);
    cl_mem empty = make_buffer(context, CL_MEM_ALLOC_HOST_PTR, SIZE, NULL);
    cl_mem filled = make_buffer(context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, SIZE, bytes);
    write_pattern(queue, empty, SIZE, 6);
    CHECK(read_pattern(queue, empty, SIZE, 6));
    CHECK(read_pattern(queue, filled, SIZE, 5));
    OK(clReleaseMemObject(empty));
    OK(clReleaseMemObject(filled));
}

static const char *const add_source =
    "kernel void add(global uint *words, uint by) { words[get_global_id(0)] += by; }";

/* With CL_MEM_USE_HOST_PTR the program's memory holds the buffer's bytes whenever it is mapped. */
TEST(use_host_ptr_follows_kernels) {
    cl_uint *words = aligned_alloc(4096, SIZE);
    for (cl_uint i = 0; i < SIZE / 4; i++) words[i] = i;
    cl_mem mem = make_buffer(context, CL_MEM_USE_HOST_PTR, SIZE, words);
    cl_kernel kernel = kernel_from(context, add_source, "add");
    cl_uint by = 1000;
    cl_int code;
    set_mem(kernel, 0, mem);
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    launch(queue, kernel, SIZE / 4);
    cl_uint *seen = clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, 0,
                                       NULL, NULL, &code);
    OK(code);
    CHECK(seen == words);
    bool right = true;
    for (cl_uint i = 0; i < SIZE / 4; i++) right = right && words[i] == i + 1000;
    CHECK(right);
    for (cl_uint i = 0; i < SIZE / 4; i++) words[i] = 7 * i;
    OK(clEnqueueUnmapMemObject(queue, mem, seen, 0, NULL, NULL));
    launch(queue, kernel, SIZE / 4);
    cl_uint back[SIZE / 4];
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    right = true;
    for (cl_uint i = 0; i < SIZE / 4; i++) right = right && back[i] == 7 * i + 1000;
    CHECK(right);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
    free(words);
}

TEST(copy_buffer) {
    cl_mem from = make_buffer(context, CL_MEM_READ_ONLY, SIZE, NULL);
    cl_mem to = make_buffer(context, CL_MEM_WRITE_ONLY, SIZE, NULL);
    unsigned char back[SIZE], expected[SIZE];
    write_pattern(queue, from, SIZE, 7);
    write_pattern(queue, to, SIZE, 8);
    OK(clEnqueueCopyBuffer(queue, from, to, 100, 333, 2000, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    unsigned char source[SIZE];
    pattern(source, SIZE, 7);
    pattern(expected, SIZE, 8);
    memcpy(expected + 333, source + 100, 2000);
    CHECK(memcmp(back, expected, SIZE) == 0);
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(to));
}

TEST(copy_within_one_buffer) {
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    unsigned char back[SIZE], expected[SIZE];
    write_pattern(queue, mem, SIZE, 9);
    OK(clEnqueueCopyBuffer(queue, mem, mem, 0, 2048, 1024, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    pattern(expected, SIZE, 9);
    memcpy(expected + 2048, expected, 1024);
    CHECK(memcmp(back, expected, SIZE) == 0);
    GIVES(CL_MEM_COPY_OVERLAP, clEnqueueCopyBuffer(queue, mem, mem, 0, 512, 1024, 0, NULL, NULL));
    OK(clReleaseMemObject(mem));
}

TEST(fill_with_every_pattern_size) {
    unsigned char what[128], back[SIZE];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    pattern(what, sizeof what, 10);
    for (size_t size = 1; size <= 128; size *= 2) {
        bool right = true;
        size_t start = 3 * size, length = (SIZE / size - 7) * size;
        write_pattern(queue, mem, SIZE, 11);
        OK(clEnqueueFillBuffer(queue, mem, what, size, start, length, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
        for (size_t at = start; at < start + length; at++)
            right = right && back[at] == what[(at - start) % size];
        CHECK(right);
        unsigned char expected[SIZE];
        pattern(expected, SIZE, 11);
        CHECK(memcmp(back, expected, start) == 0);
        CHECK(memcmp(back + start + length, expected + start + length, SIZE - start - length) == 0);
    }
    OK(clReleaseMemObject(mem));
}

TEST(fill_errors) {
    unsigned char what[256] = {0};
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, NULL, 4, 0, 16, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, what, 0, 0, 16, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, what, 3, 0, 15, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, what, 256, 0, 256, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, what, 4, 2, 16, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, what, 4, 0, 18, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, mem, what, 4, SIZE - 4, 8, 0, NULL, NULL));
    OK(clReleaseMemObject(mem));
}

TEST(creation_errors) {
    unsigned char bytes[64];
    const cl_mem_flags both = CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
    REFUSED(CL_INVALID_BUFFER_SIZE, clCreateBuffer(context, CL_MEM_READ_WRITE, 0, NULL, &err));
    REFUSED(CL_INVALID_VALUE, clCreateBuffer(context, both, 64, NULL, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 64, NULL, &err));
    REFUSED(
        CL_INVALID_VALUE,
        clCreateBuffer(context, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 64, NULL, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY, 64, NULL, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 64, bytes, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 64, bytes, &err));
    REFUSED(CL_INVALID_VALUE, clCreateBuffer(context, (cl_mem_flags)1 << 40, 64, NULL, &err));
    REFUSED(CL_INVALID_HOST_PTR, clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 64, NULL, &err));
    REFUSED(CL_INVALID_HOST_PTR, clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 64, NULL, &err));
    REFUSED(CL_INVALID_HOST_PTR, clCreateBuffer(context, CL_MEM_READ_WRITE, 64, bytes, &err));
    REFUSED(CL_INVALID_CONTEXT, clCreateBuffer(NULL, CL_MEM_READ_WRITE, 64, NULL, &err));
    cl_ulong most = device_ulong(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    REFUSED(CL_INVALID_BUFFER_SIZE,
            clCreateBuffer(context, CL_MEM_READ_WRITE, most + 4096, NULL, &err));
    /* The error pointer may be NULL. */
    CHECK(clCreateBuffer(context, CL_MEM_READ_WRITE, 0, NULL, NULL) == NULL);
}

TEST(transfer_errors) {
    unsigned char bytes[SIZE];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    cl_mem other = make_buffer(context, CL_MEM_READ_WRITE, SIZE / 2, NULL);
    GIVES(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, SIZE, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadBuffer(queue, mem, CL_TRUE, 1, SIZE, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueWriteBuffer(queue, mem, CL_TRUE, SIZE, 1, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadBuffer(queue, mem, CL_TRUE, (size_t)-8, 16, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueCopyBuffer(queue, mem, other, 0, 0, SIZE, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueCopyBuffer(queue, other, mem, SIZE / 2, 0, 1, 0, NULL, NULL));
    GIVES(CL_INVALID_COMMAND_QUEUE,
          clEnqueueReadBuffer(NULL, mem, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT, clEnqueueCopyBuffer(queue, mem, NULL, 0, 0, 1, 0, NULL, NULL));
    OK(clReleaseMemObject(mem));
    OK(clReleaseMemObject(other));
}

TEST(host_access_flags) {
    unsigned char bytes[64] = {0};
    cl_int code;
    cl_mem none = make_buffer(context, CL_MEM_HOST_NO_ACCESS, 64, NULL);
    cl_mem reads = make_buffer(context, CL_MEM_HOST_READ_ONLY, 64, NULL);
    cl_mem writes = make_buffer(context, CL_MEM_HOST_WRITE_ONLY, 64, NULL);
    GIVES(CL_INVALID_OPERATION,
          clEnqueueReadBuffer(queue, none, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION,
          clEnqueueWriteBuffer(queue, none, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION,
          clEnqueueWriteBuffer(queue, reads, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION,
          clEnqueueReadBuffer(queue, writes, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    CHECK(!clEnqueueMapBuffer(queue, none, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_OPERATION, code);
    CHECK(!clEnqueueMapBuffer(queue, reads, CL_TRUE, CL_MAP_WRITE, 0, 64, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_OPERATION, code);
    OK(clEnqueueReadBuffer(queue, reads, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, writes, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    OK(clReleaseMemObject(none));
    OK(clReleaseMemObject(reads));
    OK(clReleaseMemObject(writes));
}

TEST(info) {
    unsigned char bytes[256];
    cl_mem mem = make_buffer(context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, 256, bytes);
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    size_t size = 0, length = 0, offset = 1;
    void *host = NULL;
    cl_uint maps = 9, references = 0;
    cl_context owner = NULL;
    cl_mem parent = mem;
    OK(clGetMemObjectInfo(mem, CL_MEM_TYPE, sizeof type, &type, &length));
    CHECK(type == CL_MEM_OBJECT_BUFFER && length == sizeof type);
    OK(clGetMemObjectInfo(mem, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    CHECK(flags == (CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR));
    OK(clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof size, &size, NULL));
    CHECK(size == 256);
    OK(clGetMemObjectInfo(mem, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
    CHECK(host == bytes);
    OK(clGetMemObjectInfo(mem, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
    CHECK(maps == 0);
    OK(clGetMemObjectInfo(mem, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(references == 1);
    OK(clGetMemObjectInfo(mem, CL_MEM_CONTEXT, sizeof owner, &owner, NULL));
    CHECK(owner == context);
    OK(clGetMemObjectInfo(mem, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
    CHECK(parent == NULL);
    OK(clGetMemObjectInfo(mem, CL_MEM_OFFSET, sizeof offset, &offset, NULL));
    CHECK(offset == 0);
    GIVES(CL_INVALID_VALUE, clGetMemObjectInfo(mem, CL_MEM_SIZE, 4, &size, NULL));
    GIVES(CL_INVALID_VALUE, clGetMemObjectInfo(mem, 0xdead, sizeof size, &size, NULL));
    GIVES(CL_INVALID_MEM_OBJECT, clGetMemObjectInfo(NULL, CL_MEM_SIZE, sizeof size, &size, NULL));
    OK(clReleaseMemObject(mem));
}

TEST(with_properties) {
    cl_mem_properties none[] = {0}, wrong[] = {0x7777, 1, 0};
    cl_int code;
    cl_mem mem = clCreateBufferWithProperties(context, none, CL_MEM_READ_WRITE, 64, NULL, &code);
    OK(code);
    CHECK(mem);
    OK(clReleaseMemObject(mem));
    REFUSED(CL_INVALID_PROPERTY,
            clCreateBufferWithProperties(context, wrong, CL_MEM_READ_WRITE, 64, NULL, &err));
}
