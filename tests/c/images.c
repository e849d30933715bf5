/* Images of all kinds that the device supports: transfers, copies, fills, maps, kernels, samplers,
 * formats, errors. */
#include "harness.h"

static const size_t zero[3] = {0, 0, 0};
static const cl_image_format rgba8 = {CL_RGBA, CL_UNSIGNED_INT8};
static const cl_image_format rgba32f = {CL_RGBA, CL_FLOAT};

static cl_mem make_image(cl_mem_flags flags, cl_image_format format, cl_image_desc desc,
                         void *host) {
    cl_int code;
    cl_mem image = clCreateImage(context, flags, &format, &desc, host, &code);
    OK(code);
    return image;
}

static cl_image_desc desc_2d(size_t width, size_t height) {
    return (cl_image_desc){
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height};
}

struct kind {
    const char *name;
    cl_image_desc desc;
    size_t whole[3];
};

static const struct kind kinds[] = {
    {"1D", {.image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = 57}, {57, 1, 1}},
    {"1D array",
     {.image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY, .image_width = 33, .image_array_size = 5},
     {33, 5, 1}},
    {"2D",
     {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 37, .image_height = 21},
     {37, 21, 1}},
    {"2D array",
     {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY,
      .image_width = 19,
      .image_height = 11,
      .image_array_size = 4},
     {19, 11, 4}},
    {"3D",
     {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 13, .image_height = 9, .image_depth = 6},
     {13, 9, 6}},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static size_t bytes_of(const size_t region[3], size_t element) {
    return region[0] * region[1] * region[2] * element;
}

TEST(write_and_read_every_kind) {
    need_images();
    for (size_t i = 0; i < KINDS; i++) {
        size_t size = bytes_of(kinds[i].whole, 4);
        unsigned char *bytes = malloc(size), *back = calloc(1, size);
        cl_mem image = make_image(CL_MEM_READ_WRITE, rgba8, kinds[i].desc, NULL);
        pattern(bytes, size, (unsigned)i);
        OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, kinds[i].whole, 0, 0, bytes, 0, NULL,
                               NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, kinds[i].whole, 0, 0, back, 0, NULL,
                              NULL));
        if (memcmp(bytes, back, size) != 0)
            test_fail(__FILE__, __LINE__, "%s comes back changed", kinds[i].name);
        OK(clReleaseMemObject(image));
        free(bytes);
        free(back);
    }
}

TEST(part_with_pitches) {
    need_images();
    enum { ROW = 100, ROWS = 12 };
    unsigned char *host = malloc(ROW * ROWS), back[37 * 21 * 4], expected[37 * 21 * 4];
    const size_t origin[3] = {5, 4, 0}, region[3] = {20, 10, 1}, whole[3] = {37, 21, 1};
    cl_mem image = make_image(CL_MEM_READ_WRITE, rgba8, desc_2d(37, 21), NULL);
    pattern(expected, sizeof expected, 1);
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, whole, 0, 0, expected, 0, NULL, NULL));
    pattern(host, ROW * ROWS, 2);
    OK(clEnqueueWriteImage(queue, image, CL_FALSE, origin, region, ROW, 0, host, 0, NULL, NULL));
    for (size_t y = 0; y < 10; y++) memcpy(expected + ((y + 4) * 37 + 5) * 4, host + y * ROW, 80);
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
    CHECK(memcmp(back, expected, sizeof back) == 0);
    memset(host, 0, ROW * ROWS);
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, region, ROW, 0, host, 0, NULL, NULL));
    bool right = true;
    for (size_t y = 0; y < 10; y++)
        right = right && memcmp(host + y * ROW, expected + ((y + 4) * 37 + 5) * 4, 80) == 0 &&
                host[y * ROW + 80] == 0;
    CHECK(right);
    OK(clReleaseMemObject(image));
    free(host);
}

TEST(slice_pitch_of_a_3d_image) {
    need_images();
    const size_t region[3] = {13, 9, 6};
    enum { ROW = 64, SLICE = 64 * 10 };
    unsigned char *host = malloc(SLICE * 6), back[13 * 9 * 6 * 4];
    cl_mem image = make_image(CL_MEM_READ_WRITE, rgba8, kinds[4].desc, NULL);
    pattern(host, SLICE * 6, 3);
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, region, ROW, SLICE, host, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, region, 0, 0, back, 0, NULL, NULL));
    bool right = true;
    for (size_t z = 0; z < 6; z++)
        for (size_t y = 0; y < 9; y++)
            right = right && memcmp(back + (z * 9 + y) * 52, host + z * SLICE + y * ROW, 52) == 0;
    CHECK(right);
    OK(clReleaseMemObject(image));
    free(host);
}

TEST(host_pointers) {
    need_images();
    enum { ROW = 64 * 4 };
    unsigned char *host = aligned_alloc(4096, ROW * 16), back[ROW * 16];
    const size_t whole[3] = {64, 16, 1};
    cl_image_desc desc = desc_2d(64, 16);
    pattern(host, ROW * 16, 4);
    cl_mem copied = make_image(CL_MEM_COPY_HOST_PTR, rgba8, desc, host);
    desc.image_row_pitch = ROW;
    cl_mem used = make_image(CL_MEM_USE_HOST_PTR, rgba8, desc, host);
    OK(clEnqueueReadImage(queue, copied, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
    CHECK(same_pattern(back, sizeof back, 4));
    OK(clEnqueueReadImage(queue, used, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
    CHECK(same_pattern(back, sizeof back, 4));
    OK(clReleaseMemObject(copied));
    OK(clReleaseMemObject(used));
    free(host);
}

TEST(copy_between_images) {
    need_images();
    unsigned char bytes[37 * 21 * 4], expected[37 * 21 * 4], back[37 * 21 * 4];
    const size_t whole[3] = {37, 21, 1}, from[3] = {3, 2, 0}, to[3] = {10, 8, 0},
                 region[3] = {15, 12, 1};
    cl_mem a = make_image(CL_MEM_READ_WRITE, rgba8, desc_2d(37, 21), NULL);
    cl_mem b = make_image(CL_MEM_READ_WRITE, rgba8, desc_2d(37, 21), NULL);
    pattern(bytes, sizeof bytes, 5);
    pattern(expected, sizeof expected, 6);
    OK(clEnqueueWriteImage(queue, a, CL_TRUE, zero, whole, 0, 0, bytes, 0, NULL, NULL));
    OK(clEnqueueWriteImage(queue, b, CL_TRUE, zero, whole, 0, 0, expected, 0, NULL, NULL));
    OK(clEnqueueCopyImage(queue, a, b, from, to, region, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, b, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
    for (size_t y = 0; y < 12; y++)
        memcpy(expected + ((y + 8) * 37 + 10) * 4, bytes + ((y + 2) * 37 + 3) * 4, 60);
    CHECK(memcmp(back, expected, sizeof back) == 0);
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
}

TEST(copy_between_image_and_buffer) {
    need_images();
    unsigned char bytes[37 * 21 * 4], back[2048];
    const size_t whole[3] = {37, 21, 1}, origin[3] = {3, 2, 0}, region[3] = {15, 12, 1};
    cl_mem image = make_image(CL_MEM_READ_WRITE, rgba8, desc_2d(37, 21), NULL);
    cl_mem buffer = make_buffer(context, CL_MEM_READ_WRITE, sizeof back, NULL);
    pattern(bytes, sizeof bytes, 7);
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, whole, 0, 0, bytes, 0, NULL, NULL));
    OK(clEnqueueCopyImageToBuffer(queue, image, buffer, origin, region, 100, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    bool right = true;
    for (size_t y = 0; y < 12; y++)
        right = right && memcmp(back + 100 + y * 60, bytes + ((y + 2) * 37 + 3) * 4, 60) == 0;
    CHECK(right);
    pattern(back, sizeof back, 8);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    OK(clEnqueueCopyBufferToImage(queue, buffer, image, 64, origin, region, 0, NULL, NULL));
    for (size_t y = 0; y < 12; y++) memcpy(bytes + ((y + 2) * 37 + 3) * 4, back + 64 + y * 60, 60);
    unsigned char seen[37 * 21 * 4];
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, whole, 0, 0, seen, 0, NULL, NULL));
    CHECK(memcmp(seen, bytes, sizeof seen) == 0);
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(buffer));
}

TEST(fill) {
    need_images();
    const cl_uint integer[4] = {1, 2, 200, 255};
    const cl_float real[4] = {0.5f, -1.25f, 3e8f, 0};
    for (size_t i = 0; i < KINDS; i++) {
        unsigned char back[13 * 21 * 40 * 4];
        size_t size = bytes_of(kinds[i].whole, 4);
        bool right = true;
        cl_mem image = make_image(CL_MEM_READ_WRITE, rgba8, kinds[i].desc, NULL);
        OK(clEnqueueFillImage(queue, image, integer, zero, kinds[i].whole, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, kinds[i].whole, 0, 0, back, 0, NULL,
                              NULL));
        for (size_t at = 0; at < size; at++) right = right && back[at] == integer[at % 4];
        if (!right) test_fail(__FILE__, __LINE__, "%s is filled wrongly", kinds[i].name);
        OK(clReleaseMemObject(image));
    }
    const size_t whole[3] = {16, 16, 1};
    cl_float back[16 * 16 * 4];
    bool right = true;
    cl_mem image = make_image(CL_MEM_READ_WRITE, rgba32f, desc_2d(16, 16), NULL);
    OK(clEnqueueFillImage(queue, image, real, zero, whole, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
    for (int at = 0; at < 16 * 16 * 4; at++) right = right && back[at] == real[at % 4];
    CHECK(right);
    OK(clReleaseMemObject(image));
}

TEST(map_reads_and_writes) {
    need_images();
    for (size_t i = 0; i < KINDS; i++) {
        size_t size = bytes_of(kinds[i].whole, 4), row = 0, slice = 0;
        size_t width = kinds[i].whole[0] * 4, rows = kinds[i].whole[1], slices = kinds[i].whole[2];
        bool array_1d = kinds[i].desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY, right = true;
        unsigned char *bytes = malloc(size), *back = malloc(size);
        cl_int code;
        cl_mem image = make_image(CL_MEM_READ_WRITE, rgba8, kinds[i].desc, NULL);
        pattern(bytes, size, 9);
        OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, kinds[i].whole, 0, 0, bytes, 0, NULL,
                               NULL));
        unsigned char *at =
            clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, zero,
                              kinds[i].whole, &row, &slice, 0, NULL, NULL, &code);
        OK(code);
        for (size_t z = 0; z < slices; z++) {
            for (size_t y = 0; y < rows; y++) {
                unsigned char *line = at + z * slice + y * (array_1d ? slice : row);
                right = right && memcmp(line, bytes + (z * rows + y) * width, width) == 0;
                line[0] = 0x77;
                bytes[(z * rows + y) * width] = 0x77;
            }
        }
        if (!right)
            test_fail(__FILE__, __LINE__, "%s is mapped wrongly (row %zu, slice %zu)",
                      kinds[i].name, row, slice);
        OK(clEnqueueUnmapMemObject(queue, image, at, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, kinds[i].whole, 0, 0, back, 0, NULL,
                              NULL));
        if (memcmp(bytes, back, size) != 0)
            test_fail(__FILE__, __LINE__, "%s: the map's writes are lost", kinds[i].name);
        OK(clReleaseMemObject(image));
        free(bytes);
        free(back);
    }
}

TEST(kernel_reads_and_writes) {
    need_images();
    const char *source =
        "constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;"
        "kernel void invert(read_only image2d_t from, write_only image2d_t to) {"
        "    int2 at = (int2)(get_global_id(0), get_global_id(1));"
        "    write_imageui(to, at, (uint4)(255) - read_imageui(from, nearest, at)); }";
    const size_t whole[3] = {40, 30, 1};
    unsigned char bytes[40 * 30 * 4], back[40 * 30 * 4];
    cl_kernel kernel = kernel_from(context, source, "invert");
    pattern(bytes, sizeof bytes, 10);
    cl_mem from =
        make_image(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, rgba8, desc_2d(40, 30), bytes);
    cl_mem to = make_image(CL_MEM_WRITE_ONLY, rgba8, desc_2d(40, 30), NULL);
    set_mem(kernel, 0, from);
    set_mem(kernel, 1, to);
    OK(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, whole, NULL, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, to, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
    bool right = true;
    for (size_t i = 0; i < sizeof back; i++) right = right && back[i] == 255 - bytes[i];
    CHECK(right);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(to));
}

TEST(sampler_as_argument) {
    need_images();
    const char *source =
        "kernel void sample(read_only image2d_t from, sampler_t how, float2 at, global float4 *to) {"
        "    *to = read_imagef(from, how, at); }";
    cl_float pixels[4][4] = {{0, 0, 0, 1}, {1, 2, 3, 4}, {4, 4, 4, 4}, {8, 8, 8, 8}}, back[4];
    const struct {
        cl_bool normalized;
        cl_addressing_mode address;
        cl_filter_mode filter;
        cl_float at[2];
        float expected;
    } rounds[] = {
        {CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, {1.5f, 0.5f}, 1},
        {CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, {7.5f, 9.5f}, 8},
        {CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, {-3, -3}, 0},
        {CL_TRUE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, {0.75f, 0.25f}, 1},
    };
    cl_kernel kernel = kernel_from(context, source, "sample");
    cl_mem image =
        make_image(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, rgba32f, desc_2d(2, 2), pixels);
    cl_mem to = make_buffer(context, CL_MEM_WRITE_ONLY, 16, NULL);
    set_mem(kernel, 0, image);
    set_mem(kernel, 3, to);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        cl_int code;
        cl_sampler sampler = clCreateSampler(context, rounds[i].normalized, rounds[i].address,
                                             rounds[i].filter, &code);
        OK(code);
        OK(clSetKernelArg(kernel, 1, sizeof sampler, &sampler));
        OK(clSetKernelArg(kernel, 2, sizeof rounds[i].at, rounds[i].at));
        /* The kernel retains the sampler. */
        launch(queue, kernel, 1);
        OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, 16, back, 0, NULL, NULL));
        if (back[0] != rounds[i].expected)
            test_fail(__FILE__, __LINE__, "round %zu: %g, not %g", i, back[0], rounds[i].expected);
        OK(clReleaseSampler(sampler));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(to));
}

TEST(samplers) {
    need_images();
    cl_int code;
    cl_sampler sampler =
        clCreateSampler(context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &code);
    OK(code);
    cl_addressing_mode address = 0;
    cl_filter_mode filter = 0;
    cl_bool normalized = 0;
    cl_uint references = 0;
    cl_context in = NULL;
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, sizeof address, &address, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_FILTER_MODE, sizeof filter, &filter, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_NORMALIZED_COORDS, sizeof normalized, &normalized,
                        NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_REFERENCE_COUNT, sizeof references, &references, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_CONTEXT, sizeof in, &in, NULL));
    CHECK(address == CL_ADDRESS_REPEAT && filter == CL_FILTER_LINEAR && normalized == CL_TRUE &&
          references == 1);
    CHECK(in == context);
    OK(clReleaseSampler(sampler));
    cl_sampler_properties list[] = {CL_SAMPLER_NORMALIZED_COORDS,
                                    CL_FALSE,
                                    CL_SAMPLER_ADDRESSING_MODE,
                                    CL_ADDRESS_CLAMP,
                                    CL_SAMPLER_FILTER_MODE,
                                    CL_FILTER_NEAREST,
                                    0};
    sampler = clCreateSamplerWithProperties(context, list, &code);
    OK(code);
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, sizeof address, &address, NULL));
    CHECK(address == CL_ADDRESS_CLAMP);
    OK(clReleaseSampler(sampler));
    GAP_BEGIN;
    REFUSED(CL_INVALID_VALUE, clCreateSampler(context, CL_TRUE, 0x9999, CL_FILTER_LINEAR, &err));
    REFUSED(CL_INVALID_VALUE, clCreateSampler(context, CL_TRUE, CL_ADDRESS_CLAMP, 0x9999, &err));
    GAP_END;
    REFUSED(CL_INVALID_CONTEXT,
            clCreateSampler(NULL, CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &err));
    GIVES(CL_INVALID_SAMPLER, clReleaseSampler(NULL));
    GIVES(CL_INVALID_SAMPLER, clRetainSampler(NULL));
}

TEST(image_1d_of_a_buffer) {
    need_images();
    const char *source = "kernel void twice(read_only image1d_buffer_t from, global uint4 *to) {"
                         "    int i = get_global_id(0); to[i] = 2 * read_imageui(from, i); }";
    unsigned char bytes[256];
    cl_uint back[256];
    cl_image_format format = rgba8;
    cl_mem buffer = make_buffer(context, CL_MEM_READ_WRITE, 256, NULL);
    cl_mem to = make_buffer(context, CL_MEM_READ_WRITE, sizeof back, NULL);
    cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 64, .buffer = buffer};
    cl_mem image = make_image(CL_MEM_READ_ONLY, format, desc, NULL);
    cl_kernel kernel = kernel_from(context, source, "twice");
    pattern(bytes, 256, 11);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 256, bytes, 0, NULL, NULL));
    set_mem(kernel, 0, image);
    set_mem(kernel, 1, to);
    launch(queue, kernel, 64);
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    bool right = true;
    for (int i = 0; i < 256; i++) right = right && back[i] == 2u * bytes[i];
    CHECK(right);
    cl_mem of = NULL;
    OK(clGetImageInfo(image, CL_IMAGE_BUFFER, sizeof of, &of, NULL));
    CHECK(of == buffer);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(to));
}

TEST(info) {
    need_images();
    cl_mem image = make_image(CL_MEM_READ_ONLY, rgba32f, kinds[4].desc, NULL);
    cl_image_format format = {0, 0};
    size_t element = 0, width = 0, height = 0, depth = 0, array = 9;
    cl_mem_object_type type = 0;
    cl_uint levels = 9, samples = 9;
    OK(clGetImageInfo(image, CL_IMAGE_FORMAT, sizeof format, &format, NULL));
    CHECK(format.image_channel_order == CL_RGBA && format.image_channel_data_type == CL_FLOAT);
    OK(clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof element, &element, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_WIDTH, sizeof width, &width, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_HEIGHT, sizeof height, &height, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_DEPTH, sizeof depth, &depth, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_ARRAY_SIZE, sizeof array, &array, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_NUM_MIP_LEVELS, sizeof levels, &levels, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_NUM_SAMPLES, sizeof samples, &samples, NULL));
    OK(clGetMemObjectInfo(image, CL_MEM_TYPE, sizeof type, &type, NULL));
    CHECK(element == 16 && width == 13 && height == 9 && depth == 6 && array == 0 && levels == 0 &&
          samples == 0);
    CHECK(type == CL_MEM_OBJECT_IMAGE3D);
    size_t row = 0, slice = 0;
    OK(clGetImageInfo(image, CL_IMAGE_ROW_PITCH, sizeof row, &row, NULL));
    OK(clGetImageInfo(image, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, NULL));
    CHECK(row >= 13 * 16 && slice >= 9 * row);
    cl_mem buffer = make_buffer(context, 0, 16, NULL);
    GAP_BEGIN;
    GIVES(CL_INVALID_MEM_OBJECT,
          clGetImageInfo(buffer, CL_IMAGE_WIDTH, sizeof width, &width, NULL));
    GAP_END;
    GIVES(CL_INVALID_MEM_OBJECT, clGetImageInfo(NULL, CL_IMAGE_WIDTH, sizeof width, &width, NULL));
    GIVES(CL_INVALID_VALUE, clGetImageInfo(image, CL_IMAGE_WIDTH, 1, &width, NULL));
    GIVES(CL_INVALID_VALUE, clGetImageInfo(image, 0x1, sizeof width, &width, NULL));
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(buffer));
}

TEST(formats) {
    need_images();
    cl_image_format list[512];
    cl_uint count = 0;
    bool has_rgba8 = false;
    OK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 512, list,
                                  &count));
    CHECK(count > 0 && count <= 512);
    for (cl_uint i = 0; i < count && i < 512; i++)
        has_rgba8 = has_rgba8 || (list[i].image_channel_order == CL_RGBA &&
                                  list[i].image_channel_data_type == CL_UNSIGNED_INT8);
    CHECK(has_rgba8);
    GIVES(CL_INVALID_CONTEXT, clGetSupportedImageFormats(NULL, CL_MEM_READ_WRITE,
                                                         CL_MEM_OBJECT_IMAGE2D, 512, list, &count));
    GIVES(CL_INVALID_VALUE,
          clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, 0x1, 512, list, &count));
    GIVES(CL_INVALID_VALUE, clGetSupportedImageFormats(context, CL_MEM_READ_WRITE,
                                                       CL_MEM_OBJECT_IMAGE2D, 0, list, &count));
}

TEST(every_listed_2d_format) {
    need_images();
    cl_image_format list[512];
    cl_uint count = 0;
    const size_t whole[3] = {5, 3, 1};
    OK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 512, list,
                                  &count));
    for (cl_uint i = 0; i < count && i < 512; i++) {
        size_t element = 0;
        cl_mem image = make_image(CL_MEM_READ_WRITE, list[i], desc_2d(5, 3), NULL);
        unsigned char bytes[5 * 3 * 16], back[5 * 3 * 16];
        OK(clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof element, &element, NULL));
        REQUIRE(element > 0 && element <= 16);
        pattern(bytes, sizeof bytes, i);
        OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, whole, 0, 0, bytes, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, whole, 0, 0, back, 0, NULL, NULL));
        CHECK(memcmp(bytes, back, 15 * element) == 0);
        OK(clReleaseMemObject(image));
    }
}

static cl_mem try_image(cl_mem_flags flags, cl_image_format format, cl_image_desc desc, void *host,
                        cl_int *code) {
    return clCreateImage(context, flags, &format, &desc, host, code);
}

TEST(errors) {
    need_images();
    unsigned char bytes[4096];
    cl_image_format wrong = {CL_RGBA, 0x4242};
    cl_image_desc desc = desc_2d(16, 16), flat = desc_2d(16, 0),
                  huge = desc_2d((size_t)1 << 40, 16);
    REFUSED(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, clCreateImage(context, 0, NULL, &desc, NULL, &err));
    REFUSED(CL_INVALID_IMAGE_DESCRIPTOR, clCreateImage(context, 0, &rgba8, NULL, NULL, &err));
    REFUSED(CL_INVALID_HOST_PTR, try_image(CL_MEM_USE_HOST_PTR, rgba8, desc, NULL, &err));
    REFUSED(CL_INVALID_HOST_PTR, try_image(0, rgba8, desc, bytes, &err));
    REFUSED(CL_INVALID_VALUE,
            try_image(CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, rgba8, desc, NULL, &err));
    REFUSED(CL_INVALID_CONTEXT, clCreateImage(NULL, 0, &rgba8, &desc, NULL, &err));
    GAP_BEGIN; /* PoCL returns other errors. */
    REFUSED(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, try_image(0, wrong, desc, NULL, &err));
    REFUSED(CL_INVALID_IMAGE_DESCRIPTOR, try_image(0, rgba8, flat, NULL, &err));
    REFUSED(CL_INVALID_IMAGE_SIZE, try_image(0, rgba8, huge, NULL, &err));
    GAP_END;
    const size_t out[3] = {10, 10, 0}, region[3] = {10, 10, 1}, empty[3] = {10, 0, 1},
                 deep[3] = {4, 4, 2};
    cl_mem image = make_image(0, rgba8, desc, NULL), buffer = make_buffer(context, 0, 4096, NULL);
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadImage(queue, image, CL_TRUE, out, region, 0, 0, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadImage(queue, image, CL_TRUE, zero, deep, 0, 0, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadImage(queue, image, CL_TRUE, zero, region, 0, 0, NULL, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          clEnqueueReadImage(queue, buffer, CL_TRUE, zero, region, 0, 0, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          clEnqueueWriteImage(queue, NULL, CL_TRUE, zero, region, 0, 0, bytes, 0, NULL, NULL));
    GAP_BEGIN; /* PoCL checks none of these. */
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadImage(queue, image, CL_TRUE, zero, empty, 0, 0, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_VALUE,
          clEnqueueReadImage(queue, image, CL_TRUE, zero, region, 8, 0, bytes, 0, NULL, NULL));
    GIVES(CL_INVALID_MEM_OBJECT,
          clEnqueueReadBuffer(queue, image, CL_TRUE, 0, 16, bytes, 0, NULL, NULL));
    GAP_END;
    GIVES(CL_INVALID_COMMAND_QUEUE,
          clEnqueueReadImage(NULL, image, CL_TRUE, zero, region, 0, 0, bytes, 0, NULL, NULL));
    const size_t near[3] = {2, 2, 0};
    GIVES(CL_MEM_COPY_OVERLAP,
          clEnqueueCopyImage(queue, image, image, zero, near, region, 0, NULL, NULL));
    cl_mem floats = make_image(0, rgba32f, desc, NULL);
    GIVES(CL_IMAGE_FORMAT_MISMATCH,
          clEnqueueCopyImage(queue, image, floats, zero, zero, region, 0, NULL, NULL));
    OK(clReleaseMemObject(floats));
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(buffer));
}
