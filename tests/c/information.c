/* Platform and device queries: every query in the headers, its size, and that it always returns the
 * same answer. */
#include "harness.h"

static const cl_device_info queries[] = {
    CL_DEVICE_TYPE,
    CL_DEVICE_VENDOR_ID,
    CL_DEVICE_MAX_COMPUTE_UNITS,
    CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS,
    CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_MAX_WORK_ITEM_SIZES,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE,
    CL_DEVICE_MAX_CLOCK_FREQUENCY,
    CL_DEVICE_ADDRESS_BITS,
    CL_DEVICE_MAX_READ_IMAGE_ARGS,
    CL_DEVICE_MAX_WRITE_IMAGE_ARGS,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE,
    CL_DEVICE_IMAGE2D_MAX_WIDTH,
    CL_DEVICE_IMAGE2D_MAX_HEIGHT,
    CL_DEVICE_IMAGE3D_MAX_WIDTH,
    CL_DEVICE_IMAGE3D_MAX_HEIGHT,
    CL_DEVICE_IMAGE3D_MAX_DEPTH,
    CL_DEVICE_IMAGE_SUPPORT,
    CL_DEVICE_MAX_PARAMETER_SIZE,
    CL_DEVICE_MAX_SAMPLERS,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN,
    CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE,
    CL_DEVICE_SINGLE_FP_CONFIG,
    CL_DEVICE_GLOBAL_MEM_CACHE_TYPE,
    CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE,
    CL_DEVICE_GLOBAL_MEM_CACHE_SIZE,
    CL_DEVICE_GLOBAL_MEM_SIZE,
    CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE,
    CL_DEVICE_MAX_CONSTANT_ARGS,
    CL_DEVICE_LOCAL_MEM_TYPE,
    CL_DEVICE_LOCAL_MEM_SIZE,
    CL_DEVICE_ERROR_CORRECTION_SUPPORT,
    CL_DEVICE_PROFILING_TIMER_RESOLUTION,
    CL_DEVICE_ENDIAN_LITTLE,
    CL_DEVICE_AVAILABLE,
    CL_DEVICE_COMPILER_AVAILABLE,
    CL_DEVICE_EXECUTION_CAPABILITIES,
    CL_DEVICE_QUEUE_ON_HOST_PROPERTIES,
    CL_DEVICE_NAME,
    CL_DEVICE_VENDOR,
    CL_DRIVER_VERSION,
    CL_DEVICE_PROFILE,
    CL_DEVICE_VERSION,
    CL_DEVICE_EXTENSIONS,
    CL_DEVICE_PLATFORM,
    CL_DEVICE_DOUBLE_FP_CONFIG,
    CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF,
    CL_DEVICE_HOST_UNIFIED_MEMORY,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_INT,
    CL_DEVICE_OPENCL_C_VERSION,
    CL_DEVICE_LINKER_AVAILABLE,
    CL_DEVICE_BUILT_IN_KERNELS,
    CL_DEVICE_IMAGE_MAX_BUFFER_SIZE,
    CL_DEVICE_IMAGE_MAX_ARRAY_SIZE,
    CL_DEVICE_PARENT_DEVICE,
    CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
    CL_DEVICE_PARTITION_PROPERTIES,
    CL_DEVICE_PARTITION_AFFINITY_DOMAIN,
    CL_DEVICE_PARTITION_TYPE,
    CL_DEVICE_REFERENCE_COUNT,
    CL_DEVICE_PREFERRED_INTEROP_USER_SYNC,
    CL_DEVICE_PRINTF_BUFFER_SIZE,
    CL_DEVICE_IMAGE_PITCH_ALIGNMENT,
    CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT,
    CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS,
    CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE,
    CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES,
    CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE,
    CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE,
    CL_DEVICE_MAX_ON_DEVICE_QUEUES,
    CL_DEVICE_MAX_ON_DEVICE_EVENTS,
    CL_DEVICE_SVM_CAPABILITIES,
    CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE,
    CL_DEVICE_MAX_PIPE_ARGS,
    CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS,
    CL_DEVICE_PIPE_MAX_PACKET_SIZE,
    CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT,
    CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT,
    CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT,
    CL_DEVICE_IL_VERSION,
    CL_DEVICE_MAX_NUM_SUB_GROUPS,
    CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS,
    CL_DEVICE_NUMERIC_VERSION,
    CL_DEVICE_EXTENSIONS_WITH_VERSION,
    CL_DEVICE_ILS_WITH_VERSION,
    CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION,
    CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES,
    CL_DEVICE_ATOMIC_FENCE_CAPABILITIES,
    CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT,
    CL_DEVICE_OPENCL_C_ALL_VERSIONS,
    CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
    CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT,
    CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT,
    CL_DEVICE_OPENCL_C_FEATURES,
    CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES,
    CL_DEVICE_PIPE_SUPPORT,
    CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED,
};

TEST(every_device_query) {
    for (cl_uint d = 0; d < device_count; d++) {
        for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
            static unsigned char first[1 << 16], second[1 << 16];
            size_t size = 0, again = 0;
            cl_int code = clGetDeviceInfo(devices[d], queries[i], 0, NULL, &size);
            if (code != CL_SUCCESS || size > sizeof first) {
                test_fail(__FILE__, __LINE__, "query 0x%x gave %s", queries[i], error_name(code));
                continue;
            }
            memset(first, 0, size);
            memset(second, 0xff, size);
            OK(clGetDeviceInfo(devices[d], queries[i], size, first, &again));
            CHECK(size == again);
            OK(clGetDeviceInfo(devices[d], queries[i], sizeof second, second, NULL));
            if (size && memcmp(first, second, size) != 0)
                test_fail(__FILE__, __LINE__, "query 0x%x: two answers", queries[i]);
            if (size > 1)
                GIVES(CL_INVALID_VALUE,
                      clGetDeviceInfo(devices[d], queries[i], size - 1, second, NULL));
        }
    }
    GIVES(CL_INVALID_VALUE, clGetDeviceInfo(device, 0x1, sizeof(size_t), &(size_t){0}, NULL));
}

TEST(device_belongs_to_the_platform) {
    for (cl_uint d = 0; d < device_count; d++) {
        cl_platform_id of = NULL;
        cl_device_type type = 0;
        OK(clGetDeviceInfo(devices[d], CL_DEVICE_PLATFORM, sizeof of, &of, NULL));
        CHECK(of == platform);
        OK(clGetDeviceInfo(devices[d], CL_DEVICE_TYPE, sizeof type, &type, NULL));
        CHECK(type & (CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR |
                      CL_DEVICE_TYPE_CUSTOM));
    }
}

/* A program that relies on unified memory maps once and never unmaps. Over a network it would read
 * old bytes, so only a CPU device of the one node on this host may say that it has unified memory
 * (`unified_memory_is_mapped_once` shows that it has). */
TEST(pool_memory_is_unified_only_on_this_host) {
    if (!on_penstock()) test_skip("only for the pool");
    const char *pool = getenv("PENSTOCK_TEST_POOL");
    const cl_bool is_unified = pool && strcmp(pool, "unix") == 0;
    for (cl_uint d = 0; d < device_count; d++)
        CHECK(device_uint(devices[d], CL_DEVICE_HOST_UNIFIED_MEMORY) == is_unified);
    cl_device_svm_capabilities can = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof can, &can, NULL));
    CHECK((can & ~(cl_device_svm_capabilities)CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) == 0);
}

TEST(platform_queries) {
    const cl_platform_info texts[] = {CL_PLATFORM_PROFILE,    CL_PLATFORM_VERSION,
                                      CL_PLATFORM_NAME,       CL_PLATFORM_VENDOR,
                                      CL_PLATFORM_EXTENSIONS, CL_PLATFORM_ICD_SUFFIX_KHR};
    static char text[16384];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t size = 0;
        OK(clGetPlatformInfo(platform, texts[i], sizeof text, text, &size));
        CHECK(size == strlen(text) + 1);
        CHECK(size > 1);
    }
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof text, text, NULL));
    CHECK(strncmp(text, "OpenCL ", 7) == 0);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof text, text, NULL));
    CHECK(strstr(text, "cl_khr_icd") != NULL);
    cl_version version = 0;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_NUMERIC_VERSION, sizeof version, &version, NULL));
    CHECK(CL_VERSION_MAJOR(version) >= 1);
    static cl_name_version list[256];
    size_t size = 0;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS_WITH_VERSION, sizeof list, list, &size));
    CHECK(size > 0 && size % sizeof *list == 0);
    GIVES(CL_INVALID_VALUE, clGetPlatformInfo(platform, CL_PLATFORM_NAME, 1, text, NULL));
    GIVES(CL_INVALID_VALUE, clGetPlatformInfo(platform, 0x1, sizeof text, text, NULL));
}

TEST(devices_by_type) {
    cl_uint all = 0, sum = 0;
    const cl_device_type types[] = {CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU,
                                    CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CUSTOM};
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &all));
    for (size_t i = 0; i < 4; i++) {
        cl_uint count = 0;
        cl_int code = clGetDeviceIDs(platform, types[i], 0, NULL, &count);
        if (code == CL_DEVICE_NOT_FOUND) continue;
        OK(code);
        sum += count;
    }
    CHECK(sum == all);
    cl_device_id by_default = NULL;
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 1, &by_default, NULL));
    CHECK(by_default != NULL);
}

TEST(extension_functions) {
    CHECK(clGetExtensionFunctionAddressForPlatform(platform, "clNoSuchFunctionAtAll") == NULL);
    CHECK(clGetExtensionFunctionAddress("clNoSuchFunctionAtAll") == NULL);
}

/* Queries that programs make hundreds of thousands of times must not cross the network. The lane
 * `perf` judges their time. */
TEST(a_hundred_thousand_queries) {
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    double start = seconds();
    for (int i = 0; i < 100000; i++) {
        cl_uint number;
        size_t size;
        cl_context in;
        clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof number, &number, NULL);
        clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof size, &size, NULL);
        clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof in, &in, NULL);
    }
    double each = (seconds() - start) / 300000;
    test_note("%.0f ns each", 1e9 * each);
    const char *lane = getenv("TEST_LANE");
    CHECK(each < 5e-6 || !lane || strcmp(lane, "perf") != 0);
    OK(clReleaseMemObject(mem));
}
