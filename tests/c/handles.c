/* Invalid handles: NULL, of another kind, of another context, or released. Each returns the
 * specification's error and never crashes.
 *
 * The pool guarantees more here than most drivers, so the cases with arbitrary handles only run on
 * the pool. */
#include "harness.h"

static void need_pool(void) {
    if (!on_penstock()) test_skip("a driver may crash here");
}

TEST(null_everywhere) {
    cl_uint count = 0;
    size_t size = 0;
    GIVES(CL_INVALID_VALUE, clGetPlatformIDs(0, NULL, NULL));
    GIVES_EITHER(CL_INVALID_PLATFORM, CL_SUCCESS,
                 clGetPlatformInfo(NULL, CL_PLATFORM_NAME, 0, NULL, &size));
    GIVES(CL_INVALID_DEVICE, clGetDeviceInfo(NULL, CL_DEVICE_NAME, 0, NULL, &size));
    GIVES(CL_INVALID_VALUE, clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE, clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, &device, NULL));
    if (!on_pocl()) GIVES(CL_INVALID_DEVICE_TYPE, clGetDeviceIDs(platform, 0, 0, NULL, &count));
    GIVES(CL_INVALID_CONTEXT, clGetContextInfo(NULL, CL_CONTEXT_NUM_DEVICES, 0, NULL, &size));
    GIVES(CL_INVALID_CONTEXT, clRetainContext(NULL));
    GIVES(CL_INVALID_CONTEXT, clReleaseContext(NULL));
    GIVES(CL_INVALID_MEM_OBJECT, clRetainMemObject(NULL));
    GIVES(CL_INVALID_MEM_OBJECT, clReleaseMemObject(NULL));
}

TEST(contexts) {
    cl_device_id null = NULL;
    const cl_context_properties wrong[] = {0x4242, 1, 0},
                                twice[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform,
                                           CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    const cl_context_properties none[] = {CL_CONTEXT_PLATFORM, 0, 0};
    REFUSED(CL_INVALID_VALUE, clCreateContext(NULL, 0, &device, NULL, NULL, &err));
    REFUSED(CL_INVALID_VALUE, clCreateContext(NULL, 1, NULL, NULL, NULL, &err));
    REFUSED(CL_INVALID_DEVICE, clCreateContext(NULL, 1, &null, NULL, NULL, &err));
    REFUSED(CL_INVALID_PROPERTY, clCreateContext(wrong, 1, &device, NULL, NULL, &err));
    REFUSED(CL_INVALID_PLATFORM, clCreateContext(none, 1, &device, NULL, NULL, &err));
    GAP_BEGIN;
    REFUSED(CL_INVALID_PROPERTY, clCreateContext(twice, 1, &device, NULL, NULL, &err));
    GAP_END;
    const cl_context_properties right[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_int code;
    cl_context own = clCreateContextFromType(right, CL_DEVICE_TYPE_ALL, NULL, NULL, &code);
    OK(code);
    cl_uint count = 0;
    OK(clGetContextInfo(own, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL));
    CHECK(count == device_count);
    cl_context_properties back[8];
    size_t size = 0;
    OK(clGetContextInfo(own, CL_CONTEXT_PROPERTIES, sizeof back, back, &size));
    CHECK(size == sizeof right && memcmp(back, right, sizeof right) == 0);
    OK(clReleaseContext(own));
    GAP_BEGIN; /* PoCL sets the error, but returns an object. */
    REFUSED(CL_DEVICE_NOT_FOUND,
            clCreateContextFromType(right, CL_DEVICE_TYPE_CUSTOM, NULL, NULL, &err));
    REFUSED(CL_INVALID_DEVICE_TYPE,
            clCreateContextFromType(right, (cl_device_type)1 << 20, NULL, NULL, &err));
    GAP_END;
}

TEST(objects_of_another_context) {
    unsigned char bytes[64] = {0};
    cl_context other = make_context(1, &device);
    cl_command_queue foreign_queue = make_queue(other, device, 0);
    cl_mem own = make_buffer(context, 0, 64, NULL), foreign = make_buffer(other, 0, 64, NULL);
    GIVES(CL_INVALID_CONTEXT,
          clEnqueueReadBuffer(queue, foreign, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_CONTEXT,
          clEnqueueWriteBuffer(foreign_queue, own, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_CONTEXT, clEnqueueCopyBuffer(queue, own, foreign, 0, 0, 64, 0, NULL, NULL));
    GIVES(CL_INVALID_CONTEXT, clEnqueueFillBuffer(queue, foreign, bytes, 4, 0, 64, 0, NULL, NULL));
    cl_kernel kernel = kernel_from(other, "kernel void k(global int *w) { *w = 1; }", "k");
    const size_t one = 1;
    set_mem(kernel, 0, foreign);
    GIVES(CL_INVALID_CONTEXT,
          clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    cl_int code;
    CHECK(!clEnqueueMapBuffer(queue, foreign, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &code));
    GIVES(CL_INVALID_CONTEXT, code);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(own));
    OK(clReleaseMemObject(foreign));
    OK(clReleaseCommandQueue(foreign_queue));
    OK(clReleaseContext(other));
}

TEST(handles_of_another_kind) {
    need_pool();
    unsigned char bytes[64];
    size_t size = 0;
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    GIVES(CL_INVALID_COMMAND_QUEUE, clFinish((cl_command_queue)mem));
    GIVES(CL_INVALID_COMMAND_QUEUE, clEnqueueReadBuffer((cl_command_queue)context, mem, CL_TRUE, 0,
                                                        64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          clEnqueueReadBuffer(queue, (cl_mem)queue, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_EVENT, clReleaseEvent((cl_event)mem));
    GIVES(CL_INVALID_PROGRAM, clReleaseProgram((cl_program)mem));
    GIVES(CL_INVALID_KERNEL, clReleaseKernel((cl_kernel)mem));
    GIVES(CL_INVALID_SAMPLER, clReleaseSampler((cl_sampler)mem));
    GIVES(CL_INVALID_CONTEXT, clReleaseContext((cl_context)mem));
    GIVES(CL_INVALID_DEVICE, clGetDeviceInfo((cl_device_id)mem, CL_DEVICE_NAME, 0, NULL, &size));
    cl_event list = (cl_event)mem;
    GIVES(CL_INVALID_EVENT, clWaitForEvents(1, &list));
    GIVES(CL_INVALID_EVENT_WAIT_LIST,
          clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, bytes, 1, &list, NULL));
    OK(clReleaseMemObject(mem));
}

TEST(released_handles) {
    need_pool();
    unsigned char bytes[64];
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    cl_command_queue own = make_queue(context, device, 0);
    OK(clReleaseMemObject(mem));
    OK(clReleaseCommandQueue(own));
    GIVES(CL_INVALID_MEM_OBJECT,
          clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT, clReleaseMemObject(mem));
    GIVES(CL_INVALID_COMMAND_QUEUE, clFinish(own));
}

TEST(huge_counts) {
    need_pool();
    cl_event event;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    const size_t one = 1;
    GIVES_EITHER(CL_INVALID_KERNEL, CL_INVALID_VALUE,
                 clEnqueueNDRangeKernel(queue, NULL, 1u << 31, NULL, &one, NULL, 0, NULL, NULL));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
}
