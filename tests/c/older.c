/* Functions that newer ones have replaced, and functions of extensions. */
#include "harness.h"

static void *named(const char *name) {
    return clGetExtensionFunctionAddressForPlatform(platform, name);
}

static const cl_image_format rgba8 = {CL_RGBA, CL_UNORM_INT8};

static void check_image(cl_mem image, size_t width, size_t height, size_t depth) {
    size_t got[3] = {99, 99, 99};
    OK(clGetImageInfo(image, CL_IMAGE_WIDTH, sizeof *got, &got[0], NULL));
    OK(clGetImageInfo(image, CL_IMAGE_HEIGHT, sizeof *got, &got[1], NULL));
    OK(clGetImageInfo(image, CL_IMAGE_DEPTH, sizeof *got, &got[2], NULL));
    CHECK(got[0] == width && got[1] == height && got[2] == depth);
    OK(clReleaseMemObject(image));
}

TEST(images_of_opencl_1_0) {
    need_images();
    cl_int code;
    unsigned char pixels[4 * 3 * 2 * 4], back[sizeof pixels];
    pattern(pixels, sizeof pixels, 1);
    cl_mem flat = clCreateImage2D(context, CL_MEM_COPY_HOST_PTR, &rgba8, 4, 3, 0, pixels, &code);
    OK(code);
    const size_t origin[3] = {0, 0, 0}, region[3] = {4, 3, 1};
    OK(clEnqueueReadImage(queue, flat, CL_TRUE, origin, region, 0, 0, back, 0, NULL, NULL));
    CHECK(memcmp(pixels, back, 4 * 3 * 4) == 0);
    check_image(flat, 4, 3, 0);
    cl_mem deep =
        clCreateImage3D(context, CL_MEM_COPY_HOST_PTR, &rgba8, 4, 3, 2, 0, 0, pixels, &code);
    OK(code);
    check_image(deep, 4, 3, 2);
    REFUSED(CL_INVALID_CONTEXT, clCreateImage2D(NULL, 0, &rgba8, 4, 3, 0, NULL, &err));
    REFUSED(CL_INVALID_CONTEXT, clCreateImage3D(NULL, 0, &rgba8, 4, 3, 2, 0, 0, NULL, &err));
}

TEST(image_with_properties) {
    need_images();
    cl_int code;
    cl_image_desc shape = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 5};
    const cl_mem_properties none[] = {0}, unknown[] = {0x4242, 1, 0};
    cl_mem image = clCreateImageWithProperties(context, none, 0, &rgba8, &shape, NULL, &code);
    OK(code);
    cl_mem_properties list[4];
    size_t size = 99;
    OK(clGetMemObjectInfo(image, CL_MEM_PROPERTIES, sizeof list, list, &size));
    CHECK(size == sizeof none && list[0] == 0);
    check_image(image, 8, 5, 0);
    REFUSED(CL_INVALID_PROPERTY,
            clCreateImageWithProperties(context, unknown, 0, &rgba8, &shape, NULL, &err));
}

TEST(queue_property_can_not_be_set) {
    cl_command_queue_properties old = 0;
    if (on_pocl()) test_skip("PoCL 3.1 does not have it");
    GIVES(CL_INVALID_OPERATION,
          clSetCommandQueueProperty(queue, CL_QUEUE_PROFILING_ENABLE, CL_TRUE, &old));
    GIVES(CL_INVALID_COMMAND_QUEUE,
          clSetCommandQueueProperty(NULL, CL_QUEUE_PROFILING_ENABLE, CL_TRUE, &old));
}

typedef cl_command_queue (*create_queue_fn)(cl_context, cl_device_id, const cl_queue_properties *,
                                            cl_int *);

TEST(queue_with_properties_of_the_extension) {
    create_queue_fn create = (create_queue_fn)named("clCreateCommandQueueWithPropertiesKHR");
    if (!create) test_skip("no clCreateCommandQueueWithPropertiesKHR");
    cl_int code;
    const cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0},
                              wrong[] = {0x4242, 1, 0};
    cl_command_queue own = create(context, device, list, &code);
    OK(code);
    OK(clFinish(own));
    OK(clReleaseCommandQueue(own));
    REFUSED(CL_INVALID_VALUE, create(context, device, wrong, &err));
}

typedef cl_int (*suggest_fn)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                             size_t *);

TEST(suggested_local_size) {
    suggest_fn suggest = (suggest_fn)named("clGetKernelSuggestedLocalWorkSizeKHR");
    if (!suggest) test_skip("no clGetKernelSuggestedLocalWorkSizeKHR");
    cl_kernel kernel =
        kernel_from(context, "kernel void k(global uint *w) { w[get_global_id(0)] = 1; }", "k");
    cl_mem mem = make_buffer(context, 0, 4096, NULL);
    size_t items = 1024, local = 0;
    set_mem(kernel, 0, mem);
    cl_int code = suggest(queue, kernel, 1, NULL, &items, &local);
    /* A driver without the function returns an error. */
    CHECK(code == CL_SUCCESS || code == CL_INVALID_OPERATION);
    if (code == CL_SUCCESS) CHECK(local > 0 && items % local == 0);
    GIVES(CL_INVALID_KERNEL, suggest(queue, NULL, 1, NULL, &items, &local));
    GIVES(CL_INVALID_COMMAND_QUEUE, suggest(NULL, kernel, 1, NULL, &items, &local));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

typedef cl_int (*sub_group_fn)(cl_kernel, cl_device_id, cl_uint, size_t, const void *, size_t,
                               void *, size_t *);

TEST(sub_groups_of_the_extension) {
    sub_group_fn ask = (sub_group_fn)named("clGetKernelSubGroupInfoKHR");
    if (!ask) test_skip("no clGetKernelSubGroupInfoKHR");
    size_t local = 8, size = 0;
    GIVES(CL_INVALID_KERNEL, ask(NULL, device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE,
                                 sizeof local, &local, sizeof size, &size, NULL));
}
