/* Behaviour that the specification leaves open, that all drivers with several devices in one
 * context share, and that programs depend on. */
#include "harness.h"

/* C allows a write through a cast pointer to const if the object itself is not const. */
TEST(a_write_through_a_cast_pointer_reaches_the_other_device) {
    if (device_count < 2) test_skip("one device only");
    cl_context both = make_context(2, devices);
    cl_command_queue on[2] = {make_queue(both, devices[0], 0), make_queue(both, devices[1], 0)};
    cl_kernel kernel = kernel_from(
        both, "kernel void k(global const uint *p) { ((global uint *)p)[0] = 42; }", "k");
    cl_uint zero = 0, got = 99;
    cl_mem mem = make_buffer(both, CL_MEM_COPY_HOST_PTR, 4, &zero);
    OK(clEnqueueReadBuffer(on[0], mem, CL_TRUE, 0, 4, &got, 0, NULL, NULL));
    set_mem(kernel, 0, mem);
    launch(on[1], kernel, 1);
    OK(clFinish(on[1]));
    OK(clEnqueueReadBuffer(on[0], mem, CL_TRUE, 0, 4, &got, 0, NULL, NULL));
    CHECK(got == 42);
    OK(clReleaseMemObject(mem));
    OK(clReleaseKernel(kernel));
    for (int d = 0; d < 2; d++) OK(clReleaseCommandQueue(on[d]));
    OK(clReleaseContext(both));
}
