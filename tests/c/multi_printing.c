/* A kernel's output is complete when another device tells the host that the kernel has ended. */
#include "harness.h"

static void printed_before_the_end(bool by_finish) {
    if (device_count < 2) test_skip("one device only");
    cl_context both = make_context(2, devices);
    cl_command_queue near = make_queue(both, devices[0], 0), far = make_queue(both, devices[1], 0);
    cl_kernel kernel =
        kernel_from(both, "kernel void say(void) { printf(\"from afar\\n\"); }", "say");
    const size_t one = 1;
    char captured[64];
    cl_event said = NULL, known = NULL;
    const int saved = capture_begin();
    cl_int code = clEnqueueNDRangeKernel(far, kernel, 1, NULL, &one, NULL, 0, NULL, &said);
    cl_int marked = said ? clEnqueueMarkerWithWaitList(near, 1, &said, &known) : code;
    clFlush(far);
    cl_int ended = by_finish || !known ? clFinish(near) : clWaitForEvents(1, &known);
    capture_end(saved, captured, sizeof captured);
    OK(code);
    OK(marked);
    OK(ended);
    if (strcmp(captured, "from afar\n") != 0)
        test_fail(__FILE__, __LINE__, "printed: %s", captured);
    OK(clReleaseEvent(said));
    OK(clReleaseEvent(known));
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(near));
    OK(clReleaseCommandQueue(far));
    OK(clReleaseContext(both));
}

TEST(before_an_event_of_another_device) { printed_before_the_end(false); }

TEST(before_another_queue_is_finished) { printed_before_the_end(true); }
