/* Images over buffers on several devices: a write through the image leaves the rest of the buffer
 * unchanged on every device. (Not tested: clEnqueueFillImage of such an image, which aborts the
 * process in PoCL 3.1.) */
#include "harness.h"

#define DEVICES 2
#define BYTES 65536u
#define PIXELS 256u
#define VIEW_BYTES (PIXELS * 4u)

static cl_context both;
static cl_command_queue on[DEVICES];

static void need_two(void) {
    if (device_count < DEVICES) test_skip("one device only");
    for (int d = 0; d < DEVICES; d++)
        if (!device_has_images(devices[d])) test_skip("a device has no images");
    if (both) return;
    both = make_context(DEVICES, devices);
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
}

static cl_mem view_of(cl_mem buffer) {
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc shape = {
        .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = PIXELS, .mem_object = buffer};
    cl_int code;
    cl_mem image = clCreateImage(both, CL_MEM_READ_WRITE, &format, &shape, NULL, &code);
    if (code == CL_INVALID_OPERATION || code == CL_IMAGE_FORMAT_NOT_SUPPORTED)
        test_skip("no images over buffers");
    OK(code);
    return image;
}

static cl_mem sevens(void) {
    static unsigned char bytes[BYTES];
    memset(bytes, 7, BYTES);
    cl_mem mem = make_buffer(both, 0, BYTES, NULL);
    OK(clEnqueueWriteBuffer(on[0], mem, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL));
    OK(clFinish(on[0]));
    return mem;
}

/* Checks on each device that the view contains `inside`, and that all bytes behind it are 7. */
static void check(cl_mem mem, unsigned char inside) {
    static unsigned char got[BYTES];
    for (int d = DEVICES; d-- > 0;) {
        memset(got, 0, BYTES);
        OK(clEnqueueReadBuffer(on[d], mem, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        bool right_inside = true, right_behind = true;
        for (unsigned i = 0; i < BYTES; i++) {
            if (i < VIEW_BYTES)
                right_inside = right_inside && got[i] == inside;
            else
                right_behind = right_behind && got[i] == 7;
        }
        CHECK(right_inside);
        CHECK(right_behind);
    }
}

static const size_t origin[3] = {0, 0, 0}, whole[3] = {PIXELS, 1, 1};

TEST(a_write_to_all_of_an_image_keeps_the_rest_of_its_buffer) {
    need_two();
    static const unsigned char zeros[VIEW_BYTES] = {0};
    cl_mem buffer = sevens(), image = view_of(buffer);
    OK(clEnqueueWriteImage(on[1], image, CL_TRUE, origin, whole, 0, 0, zeros, 0, NULL, NULL));
    OK(clFinish(on[1]));
    check(buffer, 0);
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(buffer));
}

TEST(a_copy_to_all_of_an_image_keeps_the_rest_of_its_buffer) {
    need_two();
    unsigned char nines[VIEW_BYTES];
    memset(nines, 9, sizeof nines);
    cl_mem buffer = sevens(), image = view_of(buffer),
           source = make_buffer(both, CL_MEM_COPY_HOST_PTR, sizeof nines, nines);
    OK(clEnqueueCopyBufferToImage(on[1], source, image, 0, origin, whole, 0, NULL, NULL));
    OK(clFinish(on[1]));
    check(buffer, 9);
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(buffer));
}
