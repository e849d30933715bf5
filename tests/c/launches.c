/* Launches: dimensions, offsets, group sizes, their errors, native kernels. */
#include "harness.h"

static const char *const ids_source =
    "kernel void ids(global uint *to) {"
    "    size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1),"
    "           z = get_global_id(2) - get_global_offset(2);"
    "    size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;"
    "    to[5 * at] = get_global_id(0); to[5 * at + 1] = get_global_id(1); to[5 * at + 2] = get_global_id(2);"
    "    to[5 * at + 3] = get_work_dim();"
    "    to[5 * at + 4] = get_local_size(0) * 10000 + get_local_size(1) * 100 + get_local_size(2); }";

static void check_ids(cl_uint dims, const size_t *offset, const size_t *global,
                      const size_t *local) {
    size_t size[3] = {1, 1, 1}, start[3] = {0, 0, 0}, items = 1;
    for (cl_uint d = 0; d < dims; d++) {
        size[d] = global[d];
        start[d] = offset ? offset[d] : 0;
        items *= global[d];
    }
    cl_kernel kernel = kernel_from(context, ids_source, "ids");
    cl_mem mem = make_buffer(context, 0, items * 20, NULL);
    cl_uint *back = malloc(items * 20), *at = back;
    bool right = true;
    set_mem(kernel, 0, mem);
    OK(clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, items * 20, back, 0, NULL, NULL));
    for (size_t z = 0; z < size[2]; z++)
        for (size_t y = 0; y < size[1]; y++)
            for (size_t x = 0; x < size[0]; x++, at += 5)
                right = right && at[0] == x + start[0] && at[1] == y + start[1] &&
                        at[2] == z + start[2] && at[3] == dims;
    CHECK(right);
    if (local) {
        size_t group[3] = {1, 1, 1};
        for (cl_uint d = 0; d < dims; d++) group[d] = local[d];
        CHECK(back[4] == group[0] * 10000 + group[1] * 100 + group[2]);
    }
    free(back);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(one_dimension) {
    check_ids(1, NULL, (size_t[]){1000}, NULL);
    check_ids(1, NULL, (size_t[]){64}, (size_t[]){16});
    check_ids(1, (size_t[]){77}, (size_t[]){64}, (size_t[]){8});
    check_ids(1, NULL, (size_t[]){1}, NULL);
}

TEST(two_dimensions) {
    check_ids(2, NULL, (size_t[]){30, 20}, NULL);
    check_ids(2, (size_t[]){5, 9}, (size_t[]){32, 16}, (size_t[]){8, 4});
}

TEST(three_dimensions) {
    check_ids(3, NULL, (size_t[]){7, 5, 3}, NULL);
    check_ids(3, (size_t[]){1, 2, 3}, (size_t[]){8, 8, 4}, (size_t[]){4, 2, 2});
}

TEST(errors) {
    cl_kernel kernel = kernel_from(context, "kernel void k(global int *a) { *a = 1; }", "k");
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    const size_t items[3] = {64, 1, 1}, group[3] = {7, 1, 1}, none[3] = {0, 0, 0};
    size_t huge[3] = {0, 1, 1};
    /* "CL_INVALID_KERNEL_ARGS if all argument values for kernel have not been set." */
    if (!on_pocl()) /* PoCL 3.1 crashes. */
        GIVES(CL_INVALID_KERNEL_ARGS,
              clEnqueueNDRangeKernel(queue, kernel, 1, NULL, items, NULL, 0, NULL, NULL));
    set_mem(kernel, 0, mem);
    GIVES(CL_INVALID_WORK_DIMENSION,
          clEnqueueNDRangeKernel(queue, kernel, 0, NULL, items, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_WORK_DIMENSION,
          clEnqueueNDRangeKernel(queue, kernel, 4, NULL, items, NULL, 0, NULL, NULL));
    if (!on_pocl()) /* PoCL 3.1 divides by the group size. */
        GIVES_EITHER(CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_WORK_ITEM_SIZE,
                     clEnqueueNDRangeKernel(queue, kernel, 1, NULL, items, none, 0, NULL, NULL));
    if (!on_pocl()) /* PoCL 3.1 crashes. */
        GIVES(CL_INVALID_KERNEL,
              clEnqueueNDRangeKernel(queue, NULL, 1, NULL, items, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_COMMAND_QUEUE,
          clEnqueueNDRangeKernel(NULL, kernel, 1, NULL, items, NULL, 0, NULL, NULL));
    huge[0] = 2 * device_size(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, huge, huge, 0, NULL, NULL);
    CHECK(code == CL_INVALID_WORK_GROUP_SIZE || code == CL_INVALID_WORK_ITEM_SIZE);
    /* Groups that do not divide the range are an error if the device does not support non-uniform
     * groups. */
    cl_bool remainders = CL_FALSE;
    OK(clGetDeviceInfo(device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, sizeof remainders,
                       &remainders, NULL));
    if (!remainders)
        GIVES(CL_INVALID_WORK_GROUP_SIZE,
              clEnqueueNDRangeKernel(queue, kernel, 1, NULL, items, group, 0, NULL, NULL));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(required_group_size) {
    cl_kernel kernel =
        kernel_from(context,
                    "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void k(global uint *a) {"
                    "    a[get_global_id(0)] = get_local_size(0); }",
                    "k");
    cl_mem mem = make_buffer(context, 0, 256, NULL);
    const size_t items = 64, right = 8, wrong = 16;
    cl_uint back[64];
    set_mem(kernel, 0, mem);
    GIVES(CL_INVALID_WORK_GROUP_SIZE,
          clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &wrong, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &right, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 256, back, 0, NULL, NULL));
    CHECK(back[0] == 8 && back[63] == 8);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(zero_sized_range) {
    cl_kernel kernel = kernel_from(context, "kernel void k(global int *a) { *a = 1; }", "k");
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    const size_t none = 0;
    cl_event event;
    set_mem(kernel, 0, mem);
    cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &none, NULL, 0, NULL, &event);
    /* Nothing runs, but the event completes. Before OpenCL 2.1 this was an error. */
    CHECK(code == CL_SUCCESS || code == CL_INVALID_GLOBAL_WORK_SIZE);
    if (code == CL_SUCCESS) {
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(task) {
    cl_kernel kernel = kernel_from(
        context, "kernel void k(global uint *a) { *a = get_global_size(0) + 41; }", "k");
    cl_mem mem = make_buffer(context, 0, 4, NULL);
    cl_uint back = 0;
    set_mem(kernel, 0, mem);
    OK(clEnqueueTask(queue, kernel, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 42);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

static void CL_CALLBACK native(void *data) { (**(int **)data)++; }

TEST(native_kernel) {
    cl_device_exec_capabilities can = 0;
    int count = 0, *where = &count;
    OK(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL));
    cl_int code =
        clEnqueueNativeKernel(queue, native, &where, sizeof where, 0, NULL, NULL, 0, NULL, NULL);
    if (can & CL_EXEC_NATIVE_KERNEL) {
        OK(code);
        OK(clFinish(queue));
        CHECK(count == 1);
    } else {
        GIVES(CL_INVALID_OPERATION, code);
    }
}

TEST(ten_thousand_launches) {
    cl_kernel kernel = kernel_from(context, "kernel void up(global uint *w) { *w += 1; }", "up");
    cl_uint value = 0;
    cl_mem mem = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, &value);
    set_mem(kernel, 0, mem);
    for (int i = 0; i < 10000; i++) launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    CHECK(value == 10000);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}
