/* The driver API with invalid arguments: images that are not images, truncated programs, stale
 * handles, calls before cuInit(). Each returns the code that CUDA documents, and nothing crashes.
 * This is a C program that links with -lcuda, as others do. */
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

static void calls_before_init_are_refused(void) {
    int count = 0;
    CUdeviceptr memory = 0;
    CUdevice device = 0;
    EXPECT_CODE(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuMemAlloc(&memory, 16), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CODE(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

static void calls_without_a_context_are_refused(void) {
    CUdeviceptr memory = 0;
    CUdevice device = 0;
    CUmodule module = NULL;
    EXPECT_CODE(cuInit(0), CUDA_SUCCESS);
    EXPECT_CODE(cuMemAlloc(&memory, 16), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuModuleLoadData(&module, ptx), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuDeviceGet(&device, 1000), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    EXPECT_CODE(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_CODE(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static void a_module_is_loaded_used_and_unloaded(void) {
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr memory = 0, counter = 0;
    size_t counter_bytes = 0;
    unsigned values[100] = {0}, start = 0, value = 40, count = 100;
    EXPECT_CODE(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    EXPECT_CODE(cuModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    EXPECT_CODE(cuModuleGetFunction(&function, module, "fill"), CUDA_SUCCESS);
    EXPECT_CODE(cuModuleGetGlobal(&counter, &counter_bytes, module, "no_such_variable"),
                CUDA_ERROR_NOT_FOUND);
    EXPECT_CODE(cuModuleGetGlobal(&counter, &counter_bytes, module, "counter"), CUDA_SUCCESS);
    EXPECT(counter_bytes == 4);
    EXPECT_CODE(cuMemcpyDtoH(&start, counter, 4), CUDA_SUCCESS);
    EXPECT(start == 7);

    EXPECT_CODE(cuMemAlloc(&memory, sizeof values), CUDA_SUCCESS);
    void *parameters[] = {&memory, &value, &count};
    EXPECT_CODE(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
                CUDA_SUCCESS);
    EXPECT_CODE(cuMemcpyDtoH(values, memory, sizeof values), CUDA_SUCCESS);
    EXPECT(values[0] == 40 && values[99] == 139);

    /* The other way to pass parameters: all of them in one block. */
    struct {
        CUdeviceptr to;
        unsigned value, count;
    } packed = {memory, 500, 100};
    size_t packed_bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &packed_bytes, CU_LAUNCH_PARAM_END};
    EXPECT_CODE(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, NULL, NULL, extra), CUDA_SUCCESS);
    EXPECT_CODE(cuMemcpyDtoH(values, memory, sizeof values), CUDA_SUCCESS);
    EXPECT(values[0] == 500 && values[99] == 599);

    EXPECT_CODE(cuLaunchKernel(function, 1, 1, 1, 100000, 1, 1, 0, NULL, parameters, NULL),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
                CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CODE(cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_CODE(cuModuleUnload(module), CUDA_SUCCESS);
}

static void memory_that_was_freed_is_refused(void) {
    CUdeviceptr memory = 0, base = 0;
    size_t size = 0;
    unsigned value = 1;
    EXPECT_CODE(cuMemAlloc(&memory, 1000), CUDA_SUCCESS);
    EXPECT_CODE(cuMemGetAddressRange(&base, &size, memory + 100), CUDA_SUCCESS);
    EXPECT(base == memory && size == 1000);
    EXPECT_CODE(cuMemFree(memory + 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_CODE(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemcpyHtoD(memory, &value, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemsetD32(memory, 1, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemGetAddressRange(&base, &size, memory), CUDA_ERROR_NOT_FOUND);
    EXPECT_CODE(cuMemFree((CUdeviceptr)(size_t)&value), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAlloc(&memory, (size_t)1 << 60), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Loads an image from a large buffer, so that even if its header states a wrong size, the bytes
 * that the library reads exist. */
static CUresult load(const void *image, size_t bytes) {
    static unsigned char buffer[1 << 20];
    CUmodule module = NULL;
    memset(buffer, 0, sizeof buffer);
    memcpy(buffer, image, bytes);
    CUresult code = cuModuleLoadData(&module, buffer);
    if (code == CUDA_SUCCESS) EXPECT_CODE(cuModuleUnload(module), CUDA_SUCCESS);
    return code;
}

static void images_that_are_none_are_refused(void) {
    unsigned char garbage[4096];
    unsigned state = 12345;
    CUmodule module = NULL;
    EXPECT_CODE(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(load("", 1) != CUDA_SUCCESS);
    /* Random bytes, alone and behind the first bytes of each kind of image. */
    const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0},
                        elf[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33};
    for (int round = 0; round < 300; round++) {
        for (size_t at = 0; at < sizeof garbage; at++)
            garbage[at] = (unsigned char)((state = state * 1664525 + 1013904223) >> 24);
        if (round % 3 == 1) memcpy(garbage, fatbin, sizeof fatbin);
        if (round % 3 == 2) memcpy(garbage, elf, sizeof elf);
        /* A size within the buffer. */
        if (round % 3 == 1) memset(garbage + 11, 0, 5);
        EXPECT(load(garbage, sizeof garbage) != CUDA_SUCCESS);
    }
}

static void programs_that_are_cut_off_are_refused(void) {
    for (size_t bytes = 1; bytes + 3 < sizeof ptx; bytes += 7) {
        CUresult code = load(ptx, bytes);
        /* The text before the kernel may be a valid program. */
        bool whole = ptx + bytes < strstr(ptx, ".visible .entry") && code == CUDA_SUCCESS;
        if (code != CUDA_ERROR_INVALID_PTX && code != CUDA_ERROR_INVALID_IMAGE && !whole) {
            printf("  FAIL %zu bytes of the program gave %s\n", bytes, name_of(code));
            failures++;
        }
    }
}

static void an_error_names_the_instruction_and_its_line(void) {
    const char bad[] =
        ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n    .reg .b32 %r<2>;\n    bra frobnicate;\n    ret;\n}\n";
    char log[1024] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CUmodule module = NULL;
    EXPECT_CODE(cuModuleLoadDataEx(&module, bad, 2, options, values), CUDA_ERROR_INVALID_PTX);
    EXPECT(strstr(log, "frobnicate") != NULL && strstr(log, "7") != NULL);
    if (strstr(log, "frobnicate") == NULL) printf("  the log says: %s\n", log);
}

static void functions_are_found_by_name_and_version(void) {
    void *address = NULL;
    CUdriverProcAddressQueryResult found;
    EXPECT_CODE(
        cuGetProcAddress("cuMemAlloc", &address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found),
        CUDA_SUCCESS);
    EXPECT(address != NULL && found == CU_GET_PROC_ADDRESS_SUCCESS);
    /* The search itself succeeds. */
    EXPECT_CODE(
        cuGetProcAddress("cuNoSuchFunction", &address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found),
        CUDA_SUCCESS);
    EXPECT(address == NULL && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    const void *table = NULL;
    CUuuid id;
    memset(&id, 0x21, sizeof id);
    EXPECT_CODE(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

static void a_child_of_a_process_that_uses_cuda_gets_an_error(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr memory = 0;
        alarm(10); /* a signal ends a child that hangs */
        _exit(cuMemAlloc(&memory, 16) != CUDA_SUCCESS ? 0 : 1);
    }
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CUdeviceptr memory = 0;
    EXPECT_CODE(cuMemAlloc(&memory, 16), CUDA_SUCCESS);
    EXPECT_CODE(cuMemFree(memory), CUDA_SUCCESS);
}

static void attributes_are_those_of_a_device(void) {
    int warp = 0, threads = 0, major = 0, processors = 0;
    char name[100] = "";
    size_t bytes = 0;
    EXPECT_CODE(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_SUCCESS);
    EXPECT_CODE(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0),
                CUDA_SUCCESS);
    EXPECT_CODE(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0),
                CUDA_SUCCESS);
    EXPECT_CODE(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
                CUDA_SUCCESS);
    EXPECT_CODE(cuDeviceGetAttribute(&warp, (CUdevice_attribute)9999, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
    EXPECT_CODE(cuDeviceTotalMem(&bytes, 0), CUDA_SUCCESS);
    EXPECT(warp == 32 && threads >= 1 && threads <= 1024 && major >= 5 && processors >= 1 &&
           name[0] != '\0' && bytes > 0);
}

int main(void) {
    RUN(calls_before_init_are_refused);
    RUN(calls_without_a_context_are_refused);
    if (context != NULL) {
        RUN(attributes_are_those_of_a_device);
        RUN(a_module_is_loaded_used_and_unloaded);
        RUN(memory_that_was_freed_is_refused);
        RUN(images_that_are_none_are_refused);
        RUN(programs_that_are_cut_off_are_refused);
        RUN(an_error_names_the_instruction_and_its_line);
        RUN(functions_are_found_by_name_and_version);
        RUN(a_child_of_a_process_that_uses_cuda_gets_an_error);
    }
    return finish("driver");
}
