/* Sub-buffers: windows into their parent, for transfers, kernels and maps. */
#include "harness.h"

static size_t alignment(void) {
    cl_uint bits = device_uint(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    return bits / 8 ? bits / 8 : 1;
}

static cl_mem part_of(cl_mem parent, cl_mem_flags flags, size_t origin, size_t size) {
    cl_buffer_region region = {origin, size};
    cl_int code;
    cl_mem part = clCreateSubBuffer(parent, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    OK(code);
    return part;
}

TEST(window_into_the_parent) {
    size_t step = alignment() < 128 ? 128 : alignment(), size = 4 * step;
    unsigned char *back = malloc(size);
    cl_mem parent = make_buffer(context, CL_MEM_READ_WRITE, size, NULL);
    cl_mem part = part_of(parent, 0, step, 2 * step);
    write_pattern(queue, parent, size, 1);
    write_pattern(queue, part, 2 * step, 2);
    OK(clEnqueueReadBuffer(queue, parent, CL_TRUE, 0, size, back, 0, NULL, NULL));
    CHECK(same_pattern(back + step, 2 * step, 2));
    write_pattern(queue, parent, size, 3);
    OK(clEnqueueReadBuffer(queue, part, CL_TRUE, 8, step, back, 0, NULL, NULL));
    unsigned char *expected = malloc(size);
    pattern(expected, size, 3);
    CHECK(memcmp(back, expected + step + 8, step) == 0);
    free(back);
    free(expected);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

TEST(as_kernel_argument) {
    const char *source = "kernel void twice(global uint *to, global const uint *from) {"
                         "    size_t i = get_global_id(0); to[i] = 2 * from[i]; }";
    size_t step = alignment() < 256 ? 256 : alignment();
    cl_uint words = (cl_uint)(step / 4);
    cl_mem parent = make_buffer(context, CL_MEM_READ_WRITE, 2 * step, NULL);
    cl_mem low = part_of(parent, CL_MEM_READ_ONLY, 0, step);
    cl_mem high = part_of(parent, CL_MEM_WRITE_ONLY, step, step);
    cl_kernel kernel = kernel_from(context, source, "twice");
    cl_uint *values = malloc(2 * step);
    for (cl_uint i = 0; i < 2 * words; i++) values[i] = i;
    OK(clEnqueueWriteBuffer(queue, parent, CL_TRUE, 0, 2 * step, values, 0, NULL, NULL));
    set_mem(kernel, 0, high);
    set_mem(kernel, 1, low);
    launch(queue, kernel, words);
    OK(clEnqueueReadBuffer(queue, parent, CL_TRUE, 0, 2 * step, values, 0, NULL, NULL));
    bool right = true;
    for (cl_uint i = 0; i < words; i++)
        right = right && values[i] == i && values[words + i] == 2 * i;
    CHECK(right);
    free(values);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(low));
    OK(clReleaseMemObject(high));
    OK(clReleaseMemObject(parent));
}

TEST(parent_released_first) {
    size_t step = alignment() < 128 ? 128 : alignment();
    cl_mem parent = make_buffer(context, CL_MEM_READ_WRITE, 2 * step, NULL);
    cl_mem part = part_of(parent, 0, step, step);
    write_pattern(queue, parent, 2 * step, 4);
    OK(clReleaseMemObject(parent));
    write_pattern(queue, part, step, 5);
    CHECK(read_pattern(queue, part, step, 5));
    OK(clReleaseMemObject(part));
}

TEST(mapped) {
    size_t step = alignment() < 128 ? 128 : alignment();
    cl_int code;
    cl_mem parent = make_buffer(context, CL_MEM_READ_WRITE, 2 * step, NULL);
    cl_mem part = part_of(parent, 0, step, step);
    write_pattern(queue, parent, 2 * step, 6);
    unsigned char *at = clEnqueueMapBuffer(queue, part, CL_TRUE, CL_MAP_WRITE | CL_MAP_READ, 0,
                                           step, 0, NULL, NULL, &code);
    OK(code);
    unsigned char *expected = malloc(2 * step);
    pattern(expected, 2 * step, 6);
    CHECK(memcmp(at, expected + step, step) == 0);
    memset(at, 0x5a, step);
    memset(expected + step, 0x5a, step);
    OK(clEnqueueUnmapMemObject(queue, part, at, 0, NULL, NULL));
    unsigned char *back = malloc(2 * step);
    OK(clEnqueueReadBuffer(queue, parent, CL_TRUE, 0, 2 * step, back, 0, NULL, NULL));
    CHECK(memcmp(back, expected, 2 * step) == 0);
    free(back);
    free(expected);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

TEST(info) {
    size_t step = alignment() < 128 ? 128 : alignment(), offset = 0, size = 0;
    cl_mem parent = make_buffer(context, CL_MEM_READ_WRITE | CL_MEM_HOST_READ_ONLY, 3 * step, NULL),
           owner = NULL;
    cl_mem part = part_of(parent, 0, step, step);
    cl_mem_flags flags = 0;
    cl_uint references = 0;
    OK(clGetMemObjectInfo(part, CL_MEM_OFFSET, sizeof offset, &offset, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_SIZE, sizeof size, &size, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof owner, &owner, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(offset == step && size == step && owner == parent && references == 1);
    /* "If flags is zero the access qualifiers are inherited from the associated buffer." */
    CHECK(flags == (CL_MEM_READ_WRITE | CL_MEM_HOST_READ_ONLY));
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

static cl_mem try_part(cl_mem parent, cl_mem_flags flags, size_t origin, size_t size,
                       cl_int *code) {
    cl_buffer_region region = {origin, size};
    return clCreateSubBuffer(parent, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, code);
}

TEST(errors) {
    size_t step = alignment() < 128 ? 128 : alignment();
    cl_mem parent = make_buffer(context, CL_MEM_READ_WRITE, 4 * step, NULL);
    cl_mem reads = make_buffer(context, CL_MEM_READ_ONLY, 4 * step, NULL);
    cl_mem writes = make_buffer(context, CL_MEM_WRITE_ONLY, 4 * step, NULL);
    cl_mem unseen = make_buffer(context, CL_MEM_HOST_NO_ACCESS, 4 * step, NULL);
    cl_mem part = part_of(parent, 0, 0, step);
    REFUSED(CL_INVALID_VALUE, try_part(parent, 0, 3 * step, 2 * step, &err));
    REFUSED(CL_INVALID_BUFFER_SIZE, try_part(parent, 0, 0, 0, &err));
    REFUSED(CL_INVALID_MEM_OBJECT, try_part(NULL, 0, 0, step, &err));
    REFUSED(CL_INVALID_MEM_OBJECT, try_part(part, 0, 0, step / 2, &err));
    REFUSED(CL_INVALID_VALUE, try_part(reads, CL_MEM_WRITE_ONLY, 0, step, &err));
    REFUSED(CL_INVALID_VALUE, try_part(reads, CL_MEM_READ_WRITE, 0, step, &err));
    REFUSED(CL_INVALID_VALUE, try_part(writes, CL_MEM_READ_ONLY, 0, step, &err));
    REFUSED(CL_INVALID_VALUE, try_part(unseen, CL_MEM_HOST_READ_ONLY, 0, step, &err));
    REFUSED(CL_INVALID_VALUE, try_part(parent, CL_MEM_ALLOC_HOST_PTR, 0, step, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &err));
    REFUSED(CL_INVALID_VALUE,
            clCreateSubBuffer(parent, 0, 0x9999, &(cl_buffer_region){0, step}, &err));
    if (alignment() > 1)
        REFUSED(CL_MISALIGNED_SUB_BUFFER_OFFSET, try_part(parent, 0, 1, step, &err));
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
    OK(clReleaseMemObject(reads));
    OK(clReleaseMemObject(writes));
    OK(clReleaseMemObject(unseen));
}
