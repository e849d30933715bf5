/* The driver API's functions for memory: copies, fills, arrays, pools, pinned memory and
 * attributes of pointers. Each result is compared. The program is built twice: the second time its
 * calls use the thread's own default stream. */
#include "driver.h"

enum { N = 4096, ROWS = 16, WIDTH = 48, PITCH = 256 };

static unsigned char sent[N], received[N];
static CUdeviceptr first, second;

static void pattern(unsigned seed) {
    for (size_t at = 0; at < N; at++)
        sent[at] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
}

/* Runs the calls with new bytes in `sent` and other bytes everywhere else, and compares. */
#define BRINGS(seed, ...)                       \
    do {                                        \
        pattern(seed);                          \
        memset(received, 0x5a, N);              \
        OK(cuMemsetD8(first, 0xa5, N));         \
        OK(cuMemsetD8(second, 0xa5, N));        \
        OK(cuCtxSynchronize());                 \
        __VA_ARGS__;                            \
        EXPECT(memcmp(sent, received, N) == 0); \
    } while (0)

static CUdeviceptr at(void *memory) { return (CUdeviceptr)(size_t)memory; }

static void copies_bring_every_byte(void) {
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    BRINGS(1, OK(cuMemcpyHtoD(first, sent, N)); OK(cuMemcpyDtoD(second, first, N));
           OK(cuMemcpyDtoH(received, second, N)));
    BRINGS(2, OK(cuMemcpy(first, at(sent), N)); OK(cuMemcpy(second, first, N));
           OK(cuMemcpy(at(received), second, N)));
    BRINGS(3, OK(cuMemcpyHtoDAsync(first, sent, N, stream));
           OK(cuMemcpyDtoDAsync(second, first, N, stream));
           OK(cuMemcpyDtoHAsync(received, second, N, stream)); OK(cuStreamSynchronize(stream)));
    BRINGS(4, OK(cuMemcpyAsync(first, at(sent), N, stream));
           OK(cuMemcpyAsync(second, first, N, stream));
           OK(cuMemcpyAsync(at(received), second, N, stream)); OK(cuStreamSynchronize(stream)));
    BRINGS(5, OK(cuMemcpyHtoD(first, sent, N));
           OK(cuMemcpyPeer(second, context, first, context, N));
           OK(cuMemcpyDtoH(received, second, N)));
    BRINGS(6, OK(cuMemcpyHtoDAsync(first, sent, N, stream));
           OK(cuMemcpyPeerAsync(second, context, first, context, N, stream));
           OK(cuMemcpyDtoHAsync(received, second, N, stream)); OK(cuStreamSynchronize(stream)));
    /* A null stream is the default stream of this build. */
    BRINGS(7, OK(cuMemcpyHtoDAsync(first, sent, N, NULL));
           OK(cuMemcpyDtoHAsync(received, first, N, NULL)); OK(cuStreamSynchronize(NULL)));
    EXPECT_CODE(cuMemcpyPeer(second, NULL, first, context, N), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuMemcpyHtoD(first + 1, sent, (size_t)1 << 40), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(stream));
}

/* A copy of ROWS rows of WIDTH bytes at (8, 2) of the source to (16, 1) of the target. */
static CUDA_MEMCPY2D rectangle(void) {
    CUDA_MEMCPY2D copy;
    memset(&copy, 0, sizeof copy);
    copy.srcXInBytes = 8, copy.srcY = 2, copy.dstXInBytes = 16, copy.dstY = 1;
    copy.WidthInBytes = WIDTH, copy.Height = ROWS - 4;
    copy.srcPitch = copy.dstPitch = PITCH;
    return copy;
}

/* Whether `received` has the rectangle of `sent` and nothing else of it. */
static bool has_rectangle(void) {
    for (size_t y = 0; y < ROWS; y++)
        for (size_t x = 0; x < PITCH; x++) {
            bool inside = y >= 1 && y < ROWS - 3 && x >= 16 && x < 16 + WIDTH;
            unsigned char wanted = inside ? sent[(y + 1) * PITCH + x - 8] : 0xa5;
            if (received[y * PITCH + x] != wanted) return false;
        }
    return true;
}

#define BRINGS_RECTANGLE(seed, ...)            \
    do {                                       \
        pattern(seed);                         \
        OK(cuMemsetD8(second, 0xa5, N));       \
        OK(cuMemcpyHtoD(first, sent, N));      \
        OK(cuCtxSynchronize());                \
        __VA_ARGS__;                           \
        OK(cuMemcpyDtoH(received, second, N)); \
        EXPECT(has_rectangle());               \
    } while (0)

static void rectangles_and_boxes_land_where_they_should(void) {
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA_MEMCPY2D copy = rectangle();
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = sent;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = second;
    BRINGS_RECTANGLE(11, OK(cuMemcpy2D(&copy)));
    BRINGS_RECTANGLE(12, OK(cuMemcpy2DUnaligned(&copy)));
    BRINGS_RECTANGLE(13, OK(cuMemcpy2DAsync(&copy, stream)); OK(cuStreamSynchronize(stream)));
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = first;
    BRINGS_RECTANGLE(14, OK(cuMemcpy2D(&copy)));
    copy.srcPitch = WIDTH;
    EXPECT_CODE(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);

    /* The same rectangle as two slices of half the rows. */
    CUDA_MEMCPY3D box;
    memset(&box, 0, sizeof box);
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE, box.srcDevice = first + 2 * PITCH;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE, box.dstDevice = second + PITCH;
    box.srcXInBytes = 8, box.dstXInBytes = 16, box.srcPitch = box.dstPitch = PITCH;
    box.srcHeight = box.dstHeight = (ROWS - 4) / 2;
    box.WidthInBytes = WIDTH, box.Height = (ROWS - 4) / 2, box.Depth = 2;
    BRINGS_RECTANGLE(15, OK(cuMemcpy3D(&box)));
    BRINGS_RECTANGLE(16, OK(cuMemcpy3DAsync(&box, stream)); OK(cuStreamSynchronize(stream)));
    box.srcHeight = 1;
    EXPECT_CODE(cuMemcpy3D(&box), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(stream));
}

/* Whether the first `bytes` bytes repeat the value, and the next byte does not. */
static bool repeats(CUdeviceptr memory, const void *value, size_t size, size_t bytes) {
    OK(cuMemcpyDtoH(received, memory, N));
    for (size_t at = 0; at < bytes; at++)
        if (received[at] != ((const unsigned char *)value)[at % size]) return false;
    return received[bytes] == 0xa5;
}

#define FILLS(value, bytes, ...)                                \
    do {                                                        \
        OK(cuMemsetD8(first, 0xa5, N));                         \
        OK(cuCtxSynchronize());                                 \
        __VA_ARGS__;                                            \
        OK(cuCtxSynchronize());                                 \
        EXPECT(repeats(first, &(value), sizeof(value), bytes)); \
    } while (0)

static void fills_repeat_their_value(void) {
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const unsigned char one = 0x31;
    const unsigned short two = 0x3231;
    const unsigned four = 0x34333231;
    FILLS(one, 99, OK(cuMemsetD8(first, one, 99)));
    FILLS(one, 98, OK(cuMemsetD8Async(first, one, 98, stream)));
    FILLS(two, 180, OK(cuMemsetD16(first, two, 90)));
    FILLS(two, 182, OK(cuMemsetD16Async(first, two, 91, stream)));
    FILLS(four, 400, OK(cuMemsetD32(first, four, 100)));
    FILLS(four, 404, OK(cuMemsetD32Async(first, four, 101, stream)));
    /* Rows without gaps between them. */
    FILLS(one, 8 * PITCH, OK(cuMemsetD2D8(first, PITCH, one, PITCH, 8)));
    FILLS(one, 7 * PITCH, OK(cuMemsetD2D8Async(first, PITCH, one, PITCH, 7, stream)));
    FILLS(two, 6 * PITCH, OK(cuMemsetD2D16(first, PITCH, two, PITCH / 2, 6)));
    FILLS(two, 5 * PITCH, OK(cuMemsetD2D16Async(first, PITCH, two, PITCH / 2, 5, stream)));
    FILLS(four, 4 * PITCH, OK(cuMemsetD2D32(first, PITCH, four, PITCH / 4, 4)));
    FILLS(four, 3 * PITCH, OK(cuMemsetD2D32Async(first, PITCH, four, PITCH / 4, 3, stream)));
    /* One row of which a part is filled. */
    FILLS(four, 40, OK(cuMemsetD2D32(first, PITCH, four, 10, 1)));
    EXPECT_CODE(cuMemsetD16(first + 1, two, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemsetD32(first, four, N), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(stream));
}

static void rows_of_arrays_bring_every_byte(void) {
    CUDA_ARRAY_DESCRIPTOR wanted = {N, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1}, told;
    CUarray one = NULL, two = NULL;
    CUstream stream = NULL;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuArrayCreate(&one, &wanted));
    OK(cuArrayCreate(&two, &wanted));
    memset(&told, 0xff, sizeof told);
    OK(cuArrayGetDescriptor(&told, one));
    EXPECT(told.Width == N && told.Height == 0 && told.NumChannels == 1 &&
           told.Format == CU_AD_FORMAT_UNSIGNED_INT8);
    BRINGS(21, OK(cuMemcpyHtoA(one, 0, sent, N)); OK(cuMemcpyAtoH(received, one, 0, N)));
    BRINGS(22, OK(cuMemcpyHtoAAsync(one, 0, sent, N, stream));
           OK(cuMemcpyAtoHAsync(received, one, 0, N, stream)); OK(cuStreamSynchronize(stream)));
    BRINGS(23, OK(cuMemcpyHtoD(first, sent, N)); OK(cuMemcpyDtoA(one, 0, first, N));
           OK(cuMemcpyAtoA(two, 0, one, 0, N)); OK(cuMemcpyAtoD(second, two, 0, N));
           OK(cuMemcpyDtoH(received, second, N)));
    /* A part of each. */
    BRINGS(24, OK(cuMemcpyHtoA(one, 0, sent, N)); OK(cuMemcpyAtoA(two, 96, one, 64, 32));
           OK(cuMemcpyAtoH(received, one, 0, N)); OK(cuMemcpyAtoH(received + 64, two, 96, 32)));
    EXPECT_CODE(cuMemcpyHtoA(one, N - 1, sent, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(one));
    EXPECT_CODE(cuArrayDestroy(one), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CODE(cuMemcpyAtoH(received, one, 0, N), CUDA_ERROR_INVALID_HANDLE);
    OK(cuArrayDestroy(two));
    OK(cuStreamDestroy(stream));
}

static void arrays_of_three_dimensions_are_read_by_texture_and_surface_objects(void) {
    CUDA_ARRAY3D_DESCRIPTOR wanted = {16, 8, 4, CU_AD_FORMAT_FLOAT, 2, CUDA_ARRAY3D_SURFACE_LDST};
    CUDA_ARRAY3D_DESCRIPTOR told;
    CUarray array = NULL;
    OK(cuArray3DCreate(&array, &wanted));
    OK(cuArray3DGetDescriptor(&told, array));
    EXPECT(memcmp(&told, &wanted, sizeof told) == 0);

    CUDA_MEMCPY3D copy;
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = sent;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    copy.srcPitch = copy.WidthInBytes = 16 * 8, copy.srcHeight = copy.Height = 8, copy.Depth = 4;
    BRINGS(31, OK(cuMemcpy3D(&copy)); copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
           copy.srcArray = array; copy.dstMemoryType = CU_MEMORYTYPE_HOST; copy.dstHost = received;
           copy.dstPitch = 16 * 8; copy.dstHeight = 8; OK(cuMemcpy3D(&copy)));

    CUDA_RESOURCE_DESC resource, known;
    CUDA_TEXTURE_DESC texture, texture_known;
    CUtexObject object = 0;
    CUsurfObject surface = 0;
    memset(&resource, 0, sizeof resource);
    memset(&texture, 0, sizeof texture);
    resource.resType = CU_RESOURCE_TYPE_ARRAY, resource.res.array.hArray = array;
    texture.addressMode[0] = texture.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
    texture.filterMode = CU_TR_FILTER_MODE_LINEAR, texture.flags = CU_TRSF_NORMALIZED_COORDINATES;
    OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    OK(cuTexObjectGetResourceDesc(&known, object));
    EXPECT(known.resType == CU_RESOURCE_TYPE_ARRAY && known.res.array.hArray == array);
    OK(cuTexObjectGetTextureDesc(&texture_known, object));
    EXPECT(texture_known.addressMode[1] == CU_TR_ADDRESS_MODE_CLAMP &&
           texture_known.filterMode == CU_TR_FILTER_MODE_LINEAR &&
           texture_known.flags == CU_TRSF_NORMALIZED_COORDINATES);
    OK(cuTexObjectDestroy(object));
    EXPECT_CODE(cuTexObjectGetTextureDesc(&texture_known, object), CUDA_ERROR_INVALID_VALUE);
    OK(cuSurfObjectCreate(&surface, &resource));
    memset(&known, 0, sizeof known);
    OK(cuSurfObjectGetResourceDesc(&known, surface));
    EXPECT(known.res.array.hArray == array);
    OK(cuSurfObjectDestroy(surface));
    EXPECT_CODE(cuSurfObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

static void memory_of_pools_is_used_and_freed_in_the_order_of_a_stream(void) {
    CUstream stream = NULL;
    CUdeviceptr memory = 0, other = 0;
    CUmemoryPool usual = NULL, current = NULL, own = NULL;
    CUmemPoolProps wanted;
    cuuint64_t threshold = 1 << 20, told = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuDeviceGetDefaultMemPool(&usual, 0));
    OK(cuDeviceGetMemPool(&current, 0));
    EXPECT(usual != NULL && current == usual);
    memset(&wanted, 0, sizeof wanted);
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuMemPoolCreate(&own, &wanted));
    wanted.location.id = 1000;
    EXPECT_CODE(cuMemPoolCreate(&current, &wanted), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &told));
    EXPECT(told == threshold);
    CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccessDesc access = {.location = place, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemPoolSetAccess(own, &access, 1));
    OK(cuMemPoolGetAccess(&flags, own, &place));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    OK(cuMemAllocAsync(&memory, N, stream));
    OK(cuMemAllocFromPoolAsync(&other, N, own, stream));
    EXPECT(memory != 0 && other != 0 && memory != other);
    BRINGS(41, OK(cuMemcpyHtoDAsync(memory, sent, N, stream));
           OK(cuMemcpyDtoDAsync(other, memory, N, stream));
           OK(cuMemcpyDtoHAsync(received, other, N, stream)); OK(cuMemFreeAsync(memory, stream));
           OK(cuMemFreeAsync(other, stream)); OK(cuStreamSynchronize(stream)));
    EXPECT_CODE(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAllocFromPoolAsync(&other, 0, own, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolTrimTo(own, 0));
    OK(cuDeviceSetMemPool(0, own));
    OK(cuDeviceSetMemPool(0, usual));
    OK(cuMemPoolDestroy(own));
    EXPECT_CODE(cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolDestroy(usual), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy(stream));
}

static void pinned_memory_is_known(void) {
    void *pinned = NULL, *simple = NULL;
    unsigned flags = 0;
    OK(cuMemHostAlloc(&pinned, N, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuMemAllocHost(&simple, N));
    OK(cuMemHostGetFlags(&flags, pinned));
    EXPECT((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    EXPECT_CODE(cuMemHostGetFlags(&flags, received), CUDA_ERROR_INVALID_VALUE);
    BRINGS(51, memcpy(pinned, sent, N); OK(cuMemcpyHtoDAsync(first, pinned, N, NULL));
           OK(cuMemcpyDtoHAsync(simple, first, N, NULL)); OK(cuStreamSynchronize(NULL));
           memcpy(received, simple, N));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFreeHost(simple));
    EXPECT_CODE(cuMemFreeHost(simple), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister(received, N, 0));
    EXPECT_CODE(cuMemHostRegister(received, N, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostUnregister(received));
    EXPECT_CODE(cuMemHostUnregister(received), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void attributes_of_pointers_are_told(void) {
    CUmemorytype kind = 0;
    CUdeviceptr start = 0;
    int ordinal = -1, yes = 1;
    size_t size = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *places[] = {&kind, &start, &size, &ordinal};
    OK(cuPointerGetAttributes(4, names, places, first + 100));
    EXPECT(kind == CU_MEMORYTYPE_DEVICE && start == first && size == N && ordinal == 0);
    OK(cuPointerGetAttributes(4, names, places, at(received)));
    EXPECT(kind == 0 && start == 0 && size == 0 && ordinal == -2);
    EXPECT_CODE(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(received)),
                CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
    EXPECT_CODE(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_CONTEXT, first),
                CUDA_ERROR_INVALID_VALUE);
}

int main(void) {
    begin();
    OK(cuMemAlloc(&first, N));
    OK(cuMemAlloc(&second, N));
    RUN(copies_bring_every_byte);
    RUN(rectangles_and_boxes_land_where_they_should);
    RUN(fills_repeat_their_value);
    RUN(rows_of_arrays_bring_every_byte);
    RUN(arrays_of_three_dimensions_are_read_by_texture_and_surface_objects);
    RUN(memory_of_pools_is_used_and_freed_in_the_order_of_a_stream);
    RUN(pinned_memory_is_known);
    RUN(attributes_of_pointers_are_told);
    OK(cuMemFree(first));
    OK(cuMemFree(second));
    return finish("memory_calls");
}
