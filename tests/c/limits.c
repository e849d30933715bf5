/* Large sizes and numbers: a request that is too large fails with an error, and the platform keeps
 * working. */
#include "harness.h"

TEST(alive_after_a_refused_allocation) {
    cl_ulong most = device_ulong(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    REFUSED(CL_INVALID_BUFFER_SIZE, clCreateBuffer(context, 0, (size_t)most * 2, NULL, &err));
    REFUSED(CL_INVALID_BUFFER_SIZE, clCreateBuffer(context, 0, SIZE_MAX, NULL, &err));
    cl_mem mem = make_buffer(context, 0, 4096, NULL);
    write_pattern(queue, mem, 4096, 1);
    CHECK(read_pattern(queue, mem, 4096, 1));
    OK(clReleaseMemObject(mem));
}

TEST(ten_thousand_buffers) {
    enum { COUNT = 10000 };
    cl_mem *mems = calloc(COUNT, sizeof *mems);
    for (int i = 0; i < COUNT; i++) {
        mems[i] = make_buffer(context, 0, 256, NULL);
        if (i % 1000 == 0) write_pattern(queue, mems[i], 256, (unsigned)i);
    }
    for (int i = 0; i < COUNT; i += 1000) CHECK(read_pattern(queue, mems[i], 256, (unsigned)i));
    for (int i = 0; i < COUNT; i++) OK(clReleaseMemObject(mems[i]));
    free(mems);
}

/* Objects that are created and released repeatedly must not accumulate anywhere. */
TEST(a_gigabyte_in_turn) {
    for (int i = 0; i < 64; i++) {
        cl_mem mem = make_buffer(context, 0, 16u << 20, NULL);
        const cl_uint what = (cl_uint)i;
        cl_uint back = 99;
        OK(clEnqueueFillBuffer(queue, mem, &what, 4, 0, 16u << 20, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, (16u << 20) - 4, 4, &back, 0, NULL, NULL));
        CHECK(back == what);
        OK(clReleaseMemObject(mem));
    }
}

TEST(sixty_four_megabytes_in_one_transfer) {
    cl_mem mem = make_buffer(context, 0, 64u << 20, NULL);
    write_pattern(queue, mem, 64u << 20, 2);
    CHECK(read_pattern(queue, mem, 64u << 20, 2));
    OK(clReleaseMemObject(mem));
}

/* More bytes in flight than any of our queues holds: the program must be slowed down, not ended. */
TEST(many_large_writes_in_flight) {
    enum { COUNT = 48, SIZE = 8 << 20 };
    unsigned char *bytes = malloc(SIZE);
    cl_mem mems[8];
    pattern(bytes, SIZE, 3);
    for (int i = 0; i < 8; i++) mems[i] = make_buffer(context, 0, SIZE, NULL);
    for (int i = 0; i < COUNT; i++)
        OK(clEnqueueWriteBuffer(queue, mems[i % 8], CL_FALSE, 0, SIZE, bytes, 0, NULL, NULL));
    OK(clFinish(queue));
    for (int i = 0; i < 8; i++) {
        CHECK(read_pattern(queue, mems[i], SIZE, 3));
        OK(clReleaseMemObject(mems[i]));
    }
    free(bytes);
}

/* The next client must not see memory that another one freed. A driver alone does not guarantee
 * this. */
TEST(new_memory_is_clear_in_the_pool) {
    if (!on_penstock()) test_skip("only for the pool");
    for (int round = 0; round < 3; round++) {
        cl_context own = make_context(1, &device);
        cl_command_queue on = make_queue(own, device, 0);
        cl_mem mem = make_buffer(own, 0, 1 << 20, NULL);
        unsigned char *back = malloc(1 << 20);
        bool clear = true;
        OK(clEnqueueReadBuffer(on, mem, CL_TRUE, 0, 1 << 20, back, 0, NULL, NULL));
        for (int i = 0; i < 1 << 20; i++) clear = clear && back[i] == 0;
        CHECK(clear);
        write_pattern(on, mem, 1 << 20, 4);
        OK(clFinish(on));
        OK(clReleaseMemObject(mem));
        OK(clReleaseCommandQueue(on));
        OK(clReleaseContext(own));
        free(back);
    }
}

TEST(pipes) {
    cl_bool can = CL_FALSE;
    OK(clGetDeviceInfo(device, CL_DEVICE_PIPE_SUPPORT, sizeof can, &can, NULL));
    if (can) {
        cl_int code;
        cl_uint packet = 0, most = 0;
        cl_mem pipe = clCreatePipe(context, CL_MEM_READ_WRITE, 16, 64, NULL, &code);
        OK(code);
        OK(clGetPipeInfo(pipe, CL_PIPE_PACKET_SIZE, sizeof packet, &packet, NULL));
        OK(clGetPipeInfo(pipe, CL_PIPE_MAX_PACKETS, sizeof most, &most, NULL));
        CHECK(packet == 16 && most == 64);
        OK(clReleaseMemObject(pipe));
    } else if (!on_pocl()) { /* PoCL 3.1 ends the program. */
        REFUSED(CL_INVALID_OPERATION, clCreatePipe(context, CL_MEM_READ_WRITE, 16, 64, NULL, &err));
        cl_mem mem = make_buffer(context, 0, 64, NULL);
        cl_uint packet;
        GIVES_EITHER(CL_INVALID_MEM_OBJECT, CL_INVALID_OPERATION,
                     clGetPipeInfo(mem, CL_PIPE_PACKET_SIZE, sizeof packet, &packet, NULL));
        OK(clReleaseMemObject(mem));
    }
}

TEST(specialization_constants) {
    const char *source = "kernel void k(global int *w) { *w = 1; }";
    cl_int code;
    const cl_uint value = 5;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    OK(code);
    if (!on_pocl()) {
        GIVES(CL_INVALID_PROGRAM, clSetProgramSpecializationConstant(NULL, 1, 4, &value));
        GIVES_EITHER(CL_INVALID_PROGRAM, CL_INVALID_OPERATION,
                     clSetProgramSpecializationConstant(program, 1, 4, &value));
    }
    OK(clReleaseProgram(program));
}

static void CL_CALLBACK released(cl_program of, void *data) {
    (void)of;
    (*(int *)data)++;
}

/* Deprecated before any driver supported it: a device without such programs refuses it. */
TEST(program_release_callback) {
    if (on_pocl()) test_skip("not in PoCL 3.1");
    const char *source = "kernel void k(global int *w) { *w = 1; }";
    cl_int code;
    int calls = 0;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    OK(code);
    code = clSetProgramReleaseCallback(program, released, &calls);
    CHECK(code == CL_SUCCESS || code == CL_INVALID_OPERATION);
    OK(clReleaseProgram(program));
}
