/* The driver API's functions for devices, contexts, modules, libraries, the linker and
 * occupancy. */
#include "driver.h"

#include <cudaProfiler.h>
#include <dlfcn.h>
#include <unistd.h>

enum { COUNT = 500 };

static CUdeviceptr memory;

static void a_device_tells_what_it_is(void) {
    int major = 0, minor = 0, wanted = 0, number = -1, can = 9;
    CUdevprop properties;
    CUdevice device = -1;
    CUuuid one;
    size_t width = 0;
    char id[32] = "", luid[8];
    unsigned mask = 0;
    OK(cuDeviceComputeCapability(&major, &minor, 0));
    OK(cuDeviceGetAttribute(&wanted, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    EXPECT(major >= 5 && minor == wanted);
    OK(cuDeviceGetProperties(&properties, 0));
    OK(cuDeviceGetAttribute(&wanted, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
    EXPECT(properties.maxThreadsPerBlock == wanted && properties.SIMDWidth == 32);
    memset(&one, 0, sizeof one);
    OK(cuDeviceGetUuid(&one, 0));
    EXPECT(memcmp(&one, &(CUuuid){{0}}, sizeof one) != 0);
    OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, 0));
    OK(cuDeviceGetAttribute(&wanted, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 0));
    EXPECT(width == (size_t)wanted);
    OK(cuDeviceGetPCIBusId(id, sizeof id, 0));
    OK(cuDeviceGetByPCIBusId(&device, id));
    EXPECT(device == 0);
    EXPECT_CODE(cuDeviceGetByPCIBusId(&device, "ffff:ff:ff.7"), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CODE(cuDeviceGetLuid(luid, &mask, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuDeviceGetExecAffinitySupport(&can, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
    EXPECT(can == 0);
    EXPECT_CODE(cuDeviceGetP2PAttribute(&number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
                CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceCanAccessPeer(&can, 0, 0));
    EXPECT(can == 0);
    OK(cuDriverGetVersion(&number));
    EXPECT(number >= 12000);
    const char *text = NULL;
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT(text != NULL && strcmp(text, "out of memory") == 0);
    EXPECT_CODE(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
}

static void contexts_are_a_stack_and_have_settings(void) {
    CUcontext own = NULL, top = NULL;
    CUdevice device = -1;
    unsigned flags = 0, version = 0;
    unsigned long long id = 0, other = 0;
    size_t limit = 0;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_L1;
    CUsharedconfig banks = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    CUexecAffinityParam affinity;
    OK(cuCtxCreate(&own, NULL, CU_CTX_SCHED_YIELD, 0));
    OK(cuCtxGetCurrent(&top));
    EXPECT(top == own);
    OK(cuCtxGetDevice(&device));
    EXPECT(device == 0);
    OK(cuCtxGetFlags(&flags));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
    OK(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
    OK(cuCtxGetFlags(&flags));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuCtxGetId(own, &id));
    OK(cuCtxGetId(context, &other));
    EXPECT(id != other);
    OK(cuCtxGetApiVersion(own, &version));
    EXPECT(version >= 3010);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
    EXPECT(limit == 4096);
    EXPECT_CODE(cuCtxGetLimit(&limit, (CUlimit)999), CUDA_ERROR_UNSUPPORTED_LIMIT);
    OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
    OK(cuCtxGetCacheConfig(&cache));
    EXPECT_CODE(cuCtxSetCacheConfig((CUfunc_cache)9), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
    OK(cuCtxGetSharedMemConfig(&banks));
    EXPECT(banks == CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
    OK(cuCtxResetPersistingL2Cache());
    EXPECT_CODE(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT),
                CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    EXPECT_CODE(cuCtxDisablePeerAccess(context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuProfilerStart());
    OK(cuProfilerStop());
    OK(cuCtxPushCurrent(context));
    OK(cuCtxPopCurrent(&top));
    EXPECT(top == context);
    OK(cuCtxGetCurrent(&top));
    EXPECT(top == own);
    OK(cuCtxAttach(&top, 0));
    OK(cuCtxDetach(top));
    OK(cuCtxSynchronize());
    OK(cuCtxDestroy(own));
    OK(cuCtxGetCurrent(&top));
    EXPECT(top == context);
    EXPECT_CODE(cuCtxSetCurrent(own), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
}

static void the_primary_context_is_set_up_reset_and_released(void) {
    unsigned flags = 0;
    int active = -1;
    CUcontext primary = NULL;
    OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 1 && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_SPIN);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(primary == context);
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 0);
    EXPECT_CODE(cuMemFree(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT_CODE(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    begin();
    OK(cuMemAlloc(&memory, 4 * COUNT));
}

static char module_path[256];

/* Writes the module to a new file, for the functions that read one. */
static const char *module_file(void) {
    const char *folder = getenv("TMPDIR");
    snprintf(module_path, sizeof module_path, "%s/penstock-object-calls-XXXXXX",
             folder != NULL ? folder : "/tmp");
    int descriptor = mkstemp(module_path);
    EXPECT(descriptor >= 0 && write(descriptor, ptx, sizeof ptx - 1) == (ssize_t)sizeof ptx - 1);
    if (descriptor >= 0) close(descriptor);
    return module_path;
}

/* Whether the function works, which it shows by filling the memory. */
static bool works(CUfunction function) {
    static unsigned value = 100;
    unsigned count = COUNT;
    void *parameters[] = {&memory, &value, &count};
    value += 100;
    OK(cuLaunchKernel(function, 16, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    return is_filled(memory, value, COUNT);
}

static void functions_of_a_module_tell_what_they_are(void) {
    CUmodule module = NULL, told = NULL;
    CUfunction function = NULL, listed = NULL;
    CUmoduleLoadingMode mode = 0;
    CUfunctionLoadingState state = 0;
    unsigned count = 0;
    const char *name = NULL;
    size_t offset = 0, size = 0;
    int value = 0, grid = 0, block = 0;
    OK(cuModuleGetLoadingMode(&mode));
    EXPECT(mode == CU_MODULE_LAZY_LOADING || mode == CU_MODULE_EAGER_LOADING);
    OK(cuModuleLoad(&module, module_file()));
    unlink(module_path);
    EXPECT_CODE(cuModuleLoad(&told, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
    OK(cuModuleGetFunctionCount(&count, module));
    EXPECT(count == 1);
    OK(cuModuleEnumerateFunctions(&listed, 1, module));
    OK(cuModuleGetFunction(&function, module, "fill"));
    OK(cuFuncGetName(&name, listed));
    EXPECT(strcmp(name, "fill") == 0);
    OK(cuFuncGetModule(&told, function));
    EXPECT(told == module);
    OK(cuFuncGetParamInfo(function, 2, &offset, &size));
    EXPECT(offset == 12 && size == 4);
    EXPECT_CODE(cuFuncGetParamInfo(function, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncLoad(function));
    OK(cuFuncIsLoaded(&state, function));
    EXPECT(state == CU_FUNCTION_LOADING_STATE_LOADED);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    EXPECT(value >= 32);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
    OK(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
    OK(cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&block, function, 32, 0));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 32, 0, 0));
    EXPECT(block >= 1 && value == block);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    EXPECT(grid >= 1 && block >= 32);
    OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, function, NULL, 0, 64, 0));
    EXPECT(grid >= 1 && block == 64);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&size, function, 1, 32));
    EXPECT(size >= 1024);
    EXPECT(works(function) && works(listed));
    OK(cuModuleUnload(module));
    EXPECT_CODE(cuModuleGetFunction(&function, module, "fill"), CUDA_ERROR_INVALID_HANDLE);
    OK(cuModuleLoadFatBinary(&module, ptx));
    OK(cuModuleUnload(module));
}

static void kernels_of_a_library_tell_what_they_are(void) {
    CUlibrary library = NULL, told = NULL;
    CUkernel kernel = NULL, listed = NULL;
    CUfunction function = NULL;
    CUmodule module = NULL;
    CUdeviceptr counter = 0;
    unsigned count = 0;
    size_t bytes = 0, offset = 0;
    const char *name = NULL;
    int value = 0;
    OK(cuLibraryLoadFromFile(&library, module_file(), NULL, NULL, 0, NULL, NULL, 0));
    unlink(module_path);
    OK(cuLibraryGetKernelCount(&count, library));
    EXPECT(count == 1);
    OK(cuLibraryEnumerateKernels(&listed, 1, library));
    OK(cuLibraryGetKernel(&kernel, library, "fill"));
    EXPECT(kernel == listed);
    EXPECT_CODE(cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
    OK(cuKernelGetLibrary(&told, kernel));
    EXPECT(told == library);
    OK(cuKernelGetName(&name, kernel));
    EXPECT(strcmp(name, "fill") == 0);
    OK(cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
    EXPECT(offset == 8 && bytes == 4);
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    EXPECT(value >= 32);
    OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 512, kernel, 0));
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
    EXPECT(value == 512);
    OK(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_NONE, 0));
    OK(cuKernelGetFunction(&function, kernel));
    EXPECT(works(function));
    /* A kernel can stand for its function in a launch. */
    EXPECT(works((CUfunction)kernel));
    OK(cuLibraryGetModule(&module, library));
    OK(cuModuleGetFunction(&function, module, "fill"));
    EXPECT(works(function));
    OK(cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
    unsigned start = 0;
    OK(cuMemcpyDtoH(&start, counter, 4));
    EXPECT(bytes == 4 && start == 7);
    EXPECT_CODE(cuLibraryGetManaged(&counter, &bytes, library, "counter"), CUDA_ERROR_NOT_FOUND);
    OK(cuLibraryUnload(library));
    EXPECT_CODE(cuKernelGetName(&name, kernel), CUDA_ERROR_INVALID_HANDLE);
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryUnload(library));
}

static void the_linker_takes_text_and_files(void) {
    CUlinkState linker = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    void *image = NULL;
    size_t bytes = 0;
    OK(cuLinkCreate(0, NULL, NULL, &linker));
    OK(cuLinkAddFile(linker, CU_JIT_INPUT_PTX, module_file(), 0, NULL, NULL));
    unlink(module_path);
    EXPECT_CODE(cuLinkAddFile(linker, CU_JIT_INPUT_PTX, "/no/such/file", 0, NULL, NULL),
                CUDA_ERROR_FILE_NOT_FOUND);
    OK(cuLinkComplete(linker, &image, &bytes));
    EXPECT(image != NULL && bytes > 0);
    OK(cuModuleLoadData(&module, image));
    OK(cuLinkDestroy(linker));
    OK(cuModuleGetFunction(&function, module, "fill"));
    EXPECT(works(function));
    OK(cuModuleUnload(module));
    OK(cuLinkCreate(0, NULL, NULL, &linker));
    char bad[] = ".version 6.4\n.target sm_70\n.address_size 64\nnonsense\n";
    EXPECT(cuLinkAddData(linker, CU_JIT_INPUT_PTX, bad, sizeof bad, "bad", 0, NULL, NULL) !=
           CUDA_SUCCESS);
    OK(cuLinkDestroy(linker));
    EXPECT_CODE(cuLinkDestroy(linker), CUDA_ERROR_INVALID_HANDLE);
}

static void the_library_is_found_without_its_version(void) {
    void *library = dlopen("libcuda.so", RTLD_NOW);
    EXPECT(library != NULL);
    /* The same library, and no second one with devices and contexts of its own. */
    EXPECT(library != NULL && dlsym(library, "cuLinkCreate_v2") == (void *)cuLinkCreate);
}

int main(void) {
    begin();
    OK(cuMemAlloc(&memory, 4 * COUNT));
    RUN(a_device_tells_what_it_is);
    RUN(contexts_are_a_stack_and_have_settings);
    RUN(the_primary_context_is_set_up_reset_and_released);
    RUN(functions_of_a_module_tell_what_they_are);
    RUN(kernels_of_a_library_tell_what_they_are);
    RUN(the_linker_takes_text_and_files);
    RUN(the_library_is_found_without_its_version);
    OK(cuMemFree(memory));
    return finish("object_calls");
}
