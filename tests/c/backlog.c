/* Programs that enqueue far more than can be in flight at once, and only wait at the end. */
#include "harness.h"

#define BLOCK ((size_t)256 << 20)

/* More reads than a worker holds for its client, followed by writes larger than a link. Each side
 * could wait for the other. */
TEST(reads_that_wait_before_writes) {
    cl_int code;
    cl_command_queue timed =
        clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &code);
    OK(code);
    cl_mem from = clCreateBuffer(context, CL_MEM_READ_WRITE, BLOCK, NULL, &code);
    OK(code);
    cl_mem to = clCreateBuffer(context, CL_MEM_READ_WRITE, BLOCK, NULL, &code);
    OK(code);
    const unsigned char mark = 0x5a;
    OK(clEnqueueFillBuffer(timed, from, &mark, 1, 0, BLOCK, 0, NULL, NULL));
    unsigned char *back = calloc(1, BLOCK), *bytes = malloc(BLOCK);
    REQUIRE(back && bytes);
    memset(bytes, 0xc3, BLOCK);
    for (int i = 0; i < 6; i++)
        OK(clEnqueueReadBuffer(timed, from, CL_FALSE, 0, BLOCK, back, 0, NULL, NULL));
    for (int i = 0; i < 2; i++)
        OK(clEnqueueWriteBuffer(timed, to, CL_FALSE, 0, BLOCK, bytes, 0, NULL, NULL));
    OK(clFinish(timed));
    CHECK(back[0] == mark && memcmp(back, back + 1, BLOCK - 1) == 0);
    OK(clEnqueueReadBuffer(timed, to, CL_TRUE, 0, BLOCK, back, 0, NULL, NULL));
    CHECK(memcmp(back, bytes, BLOCK) == 0);
    free(back);
    free(bytes);
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(to));
    OK(clReleaseCommandQueue(timed));
}

/* Completions of events that the program never waits for. */
TEST(events_that_nobody_waits_for) {
    for (int i = 0; i < 200000; i++) {
        cl_event event;
        OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
        OK(clReleaseEvent(event));
    }
    OK(clFinish(queue));
}
