/* Rectangular reads, writes and copies, compared with the same moves on the host. */
#include "harness.h"

#define WIDTH 64u
#define HEIGHT 32u
#define DEPTH 8u
#define SIZE (WIDTH * HEIGHT * DEPTH)

struct rect {
    size_t origin[3], row, slice;
};

static void move_rect(unsigned char *to, const struct rect *t, const unsigned char *from,
                      const struct rect *f, const size_t region[3]) {
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            memcpy(to + (t->origin[2] + z) * t->slice + (t->origin[1] + y) * t->row + t->origin[0],
                   from + (f->origin[2] + z) * f->slice + (f->origin[1] + y) * f->row +
                       f->origin[0],
                   region[0]);
}

static const struct rect in_buffer = {{5, 3, 1}, WIDTH, WIDTH * HEIGHT};
static const struct rect in_host = {{2, 1, 2}, 48, 48 * 20};
static const size_t region[3] = {30, 11, 4};
#define HOST_SIZE (48u * 20u * 6u)

TEST(read_rect) {
    unsigned char host[HOST_SIZE], expected[HOST_SIZE], bytes[SIZE];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 1);
    pattern(bytes, SIZE, 1);
    pattern(host, HOST_SIZE, 2);
    memcpy(expected, host, HOST_SIZE);
    move_rect(expected, &in_host, bytes, &in_buffer, region);
    OK(clEnqueueReadBufferRect(queue, mem, CL_TRUE, in_buffer.origin, in_host.origin, region,
                               in_buffer.row, in_buffer.slice, in_host.row, in_host.slice, host, 0,
                               NULL, NULL));
    CHECK(memcmp(host, expected, HOST_SIZE) == 0);
    OK(clReleaseMemObject(mem));
}

TEST(write_rect) {
    unsigned char host[HOST_SIZE], expected[SIZE], back[SIZE];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    write_pattern(queue, mem, SIZE, 3);
    pattern(expected, SIZE, 3);
    pattern(host, HOST_SIZE, 4);
    move_rect(expected, &in_buffer, host, &in_host, region);
    OK(clEnqueueWriteBufferRect(queue, mem, CL_FALSE, in_buffer.origin, in_host.origin, region,
                                in_buffer.row, in_buffer.slice, in_host.row, in_host.slice, host, 0,
                                NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    CHECK(memcmp(back, expected, SIZE) == 0);
    OK(clReleaseMemObject(mem));
}

TEST(copy_rect) {
    const struct rect target = {{1, 2, 0}, 40, 40 * 25};
    enum { TARGET = 40 * 25 * 6 };
    unsigned char bytes[SIZE], expected[TARGET], back[TARGET];
    cl_mem from = make_buffer(context, CL_MEM_READ_WRITE, SIZE, NULL);
    cl_mem to = make_buffer(context, CL_MEM_READ_WRITE, TARGET, NULL);
    write_pattern(queue, from, SIZE, 5);
    write_pattern(queue, to, TARGET, 6);
    pattern(bytes, SIZE, 5);
    pattern(expected, TARGET, 6);
    move_rect(expected, &target, bytes, &in_buffer, region);
    OK(clEnqueueCopyBufferRect(queue, from, to, in_buffer.origin, target.origin, region,
                               in_buffer.row, in_buffer.slice, target.row, target.slice, 0, NULL,
                               NULL));
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, TARGET, back, 0, NULL, NULL));
    CHECK(memcmp(back, expected, TARGET) == 0);
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(to));
}

/* Pitches of zero mean that rows and slices are contiguous in the region. */
TEST(pitches_of_zero) {
    const size_t zero[3] = {0, 0, 0}, all[3] = {16, 8, 4};
    unsigned char host[512], back[512];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 512, NULL);
    pattern(host, 512, 7);
    OK(clEnqueueWriteBufferRect(queue, mem, CL_TRUE, zero, zero, all, 0, 0, 0, 0, host, 0, NULL,
                                NULL));
    CHECK(read_pattern(queue, mem, 512, 7));
    OK(clEnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, all, 0, 0, 0, 0, back, 0, NULL,
                               NULL));
    CHECK(same_pattern(back, 512, 7));
    OK(clReleaseMemObject(mem));
}

TEST(large_rect_with_gaps) {
    enum { ROW = 3000, ROWS = 1000 };
    const size_t zero[3] = {0, 0, 0}, part[3] = {2001, ROWS, 1};
    unsigned char *host = calloc(ROWS, ROW), *back = calloc(ROWS, ROW);
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, (size_t)ROW * ROWS, NULL);
    pattern(host, (size_t)ROW * ROWS, 8);
    OK(clEnqueueWriteBufferRect(queue, mem, CL_FALSE, zero, zero, part, ROW, 0, ROW, 0, host, 0,
                                NULL, NULL));
    OK(clEnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, part, ROW, 0, ROW, 0, back, 0, NULL,
                               NULL));
    bool right = true;
    for (size_t y = 0; y < ROWS; y++)
        right = right && memcmp(host + y * ROW, back + y * ROW, 2001) == 0 && !back[y * ROW + 2001];
    CHECK(right);
    free(host);
    free(back);
    OK(clReleaseMemObject(mem));
}

TEST(errors) {
    const size_t zero[3] = {0, 0, 0}, some[3] = {16, 4, 2}, empty[3] = {16, 0, 2},
                 wide[3] = {65, 4, 2};
    unsigned char host[4096];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 512, NULL);
    cl_mem none = make_buffer(context, CL_MEM_HOST_NO_ACCESS, 512, NULL);
    GIVES(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, empty, 0, 0, 0,
                                                    0, host, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, some, 8, 0, 0,
                                                    0, host, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, some, 16, 48,
                                                    0, 0, host, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueReadBufferRect(queue, mem, CL_TRUE, zero, zero, some, 0, 0, 16,
                                                    70, host, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueWriteBufferRect(queue, mem, CL_TRUE, zero, zero, wide, 0, 0, 0,
                                                     0, host, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clEnqueueWriteBufferRect(queue, mem, CL_TRUE, zero, zero, some, 0, 0, 0,
                                                     0, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueReadBufferRect(queue, none, CL_TRUE, zero, zero, some, 0,
                                                        0, 0, 0, host, 0, NULL, NULL));
    GIVES(CL_INVALID_OPERATION, clEnqueueWriteBufferRect(queue, none, CL_TRUE, zero, zero, some, 0,
                                                         0, 0, 0, host, 0, NULL, NULL));
    if (!on_pocl()) /* PoCL 3.1 crashes. */
        GIVES(CL_INVALID_MEM_OBJECT, clEnqueueCopyBufferRect(queue, NULL, mem, zero, zero, some, 0,
                                                             0, 0, 0, 0, NULL, NULL));
    GIVES(CL_INVALID_COMMAND_QUEUE,
          clEnqueueCopyBufferRect(NULL, mem, mem, zero, zero, some, 0, 0, 0, 0, 0, NULL, NULL));
    const size_t near[3] = {8, 0, 0};
    GIVES(CL_MEM_COPY_OVERLAP, clEnqueueCopyBufferRect(queue, mem, mem, zero, near, some, 32, 128,
                                                       32, 128, 0, NULL, NULL));
    OK(clReleaseMemObject(mem));
    OK(clReleaseMemObject(none));
}
