/* Bytes of reads that remain in the link while the program waits for another device. These cases
 * have their own file, because other cases make the client receive from all nodes. */
#include "harness.h"

#define DEVICES 2

/* A read larger than the link's capacity, whose bytes the client does not take while the program
 * waits for the other device. The command there depends on data behind the read: on an event, or on
 * a transfer of the first device's result. */
static void read_that_nobody_takes(bool by_event) {
    enum { LARGE = 32 << 20, SMALL = 4096 };
    if (device_count < DEVICES) test_skip("one device only");
    cl_context both = make_context(DEVICES, devices);
    cl_command_queue on[DEVICES];
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
    char *bytes = malloc(LARGE);
    cl_mem large = make_buffer(both, 0, LARGE, NULL), small = make_buffer(both, 0, SMALL, NULL),
           target = make_buffer(both, 0, SMALL, NULL);
    for (int round = 0; round < 5; round++) {
        const cl_uint word = 0x01010101u * (cl_uint)(round + 1);
        cl_event filled;
        OK(clEnqueueFillBuffer(on[0], large, &word, sizeof word, 0, LARGE, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(on[0], large, CL_FALSE, 0, LARGE, bytes, 0, NULL, NULL));
        OK(clEnqueueFillBuffer(on[0], small, &word, sizeof word, 0, SMALL, 0, NULL, &filled));
        OK(clFlush(on[0]));
        if (by_event)
            OK(clEnqueueFillBuffer(on[1], target, &word, sizeof word, 0, SMALL, 1, &filled, NULL));
        else
            OK(clEnqueueCopyBuffer(on[1], small, target, 0, 0, SMALL, 1, &filled, NULL));
        OK(clFinish(on[1]));
        cl_uint back = 0;
        OK(clEnqueueReadBuffer(on[1], target, CL_TRUE, SMALL - 4, 4, &back, 0, NULL, NULL));
        CHECK(back == word);
        OK(clFinish(on[0]));
        CHECK(bytes[0] == round + 1 && bytes[LARGE - 1] == round + 1);
        OK(clReleaseEvent(filled));
    }
    OK(clReleaseMemObject(large));
    OK(clReleaseMemObject(small));
    OK(clReleaseMemObject(target));
    free(bytes);
    for (int d = 0; d < DEVICES; d++) OK(clReleaseCommandQueue(on[d]));
    OK(clReleaseContext(both));
}

TEST(an_event_behind_a_read_that_nobody_takes) { read_that_nobody_takes(true); }

TEST(a_transfer_behind_a_read_that_nobody_takes) { read_that_nobody_takes(false); }
