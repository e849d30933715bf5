/* Behaviour that the specification leaves open, that all drivers share, and that programs depend
 * on. */
#include "harness.h"

/* When a blocking write returns, the program assumes that the write is done, and a queue created
 * afterwards must see it. */
TEST(a_queue_made_after_a_blocking_write_sees_it) {
    cl_context own = make_context(1, &device);
    cl_command_queue busy = make_queue(own, device, 0); /* the only queue of its context */
    cl_uint zero = 0, value = 42, got = 99, one = 1;
    cl_mem mem = make_buffer(own, CL_MEM_COPY_HOST_PTR, 4, &zero),
           other = make_buffer(own, 0, 4, NULL);
    cl_kernel slow = kernel_from(
        own,
        "kernel void slow(global uint *a, uint n) { uint x = n; for (uint i = 0; i < 100000000u; i++)"
        " x = x * 1664525u + (i ^ (x >> 7)); a[0] = x; }",
        "slow");
    set_mem(slow, 0, other);
    OK(clSetKernelArg(slow, 1, sizeof one, &one));
    launch(busy, slow, 1);
    OK(clFlush(busy));
    OK(clEnqueueWriteBuffer(busy, mem, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    cl_command_queue later = make_queue(own, device, 0);
    OK(clEnqueueReadBuffer(later, mem, CL_TRUE, 0, 4, &got, 0, NULL, NULL));
    CHECK(got == 42);
    OK(clFinish(busy));
    OK(clReleaseCommandQueue(later));
    OK(clReleaseCommandQueue(busy));
    OK(clReleaseKernel(slow));
    OK(clReleaseMemObject(mem));
    OK(clReleaseMemObject(other));
    OK(clReleaseContext(own));
}
