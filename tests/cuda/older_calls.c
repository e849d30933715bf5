/* The driver API's functions in the forms of earlier versions of CUDA, which programs compiled with
 * an earlier cuda.h call. */
#define __CUDA_API_VERSION_INTERNAL
#include "driver.h"

enum { COUNT = 128 };

static CUfunction fill;
static CUdeviceptr memory;
static unsigned value, count = COUNT;
static void *parameters[] = {&memory, &value, &count};

static void contexts(void) {
    CUcontext own = NULL, top = NULL;
    CUdevice device = -1;
    CUexecAffinityParam affinity;
    memset(&affinity, 0, sizeof affinity);
    OK(cuCtxCreate(&own, 0, 0));
    OK(cuCtxPopCurrent(&top));
    EXPECT(top == own);
    OK(cuCtxPushCurrent(own));
    OK(cuCtxGetDevice_v2(&device, own));
    EXPECT(device == 0);
    OK(cuCtxSynchronize_v2(own));
    OK(cuCtxDestroy(own));
    EXPECT_CODE(cuCtxSynchronize_v2(own), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CODE(cuCtxGetDevice_v2(&device, own), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuCtxDestroy(own));
    OK(cuCtxCreate_v3(&own, NULL, 0, 0, 0));
    OK(cuCtxDestroy(own));
    EXPECT_CODE(cuCtxCreate_v3(&own, &affinity, 1, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    OK(cuCtxGetCurrent(&top));
    EXPECT(top == context);
}

static void the_device_and_its_primary_context(void) {
    CUcontext primary = NULL;
    CUuuid one, two;
    unsigned flags = 0;
    int active = 0;
    OK(cuDeviceGetUuid(&one, 0));
    OK(cuDeviceGetUuid_v2(&two, 0));
    EXPECT(memcmp(&one, &two, sizeof one) == 0);
    OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 1 && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    void *address = NULL;
    OK(cuGetProcAddress("cuCtxCreate", &address, 2000, CU_GET_PROC_ADDRESS_DEFAULT));
    EXPECT(address == (void *)cuCtxCreate);
    OK(cuGetProcAddress("cuCtxCreate", &address, 13000, CU_GET_PROC_ADDRESS_DEFAULT));
    EXPECT(address == (void *)cuCtxCreate_v4);
    EXPECT_CODE(cuGetProcAddress("cuNothing", &address, 13000, CU_GET_PROC_ADDRESS_DEFAULT),
                CUDA_ERROR_NOT_FOUND);
}

/* Ends the primary context, so it is the last case. */
static void the_primary_context_is_reset(void) {
    int active = -1;
    unsigned flags = 0;
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active == 0);
    OK(cuDevicePrimaryCtxRelease(0));
}

static void streams_and_events(void) {
    CUstream stream = NULL;
    CUcontext owner = NULL, owner_again = NULL;
    CUgreenCtx green = (CUgreenCtx)1, green_again = (CUgreenCtx)1;
    CUevent one = NULL, two = NULL;
    float ms = -1;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamGetCtx_v2(stream, &owner, &green));
    OK(cuStreamGetCtx_v2_ptsz(stream, &owner_again, &green_again));
    EXPECT(owner == context && owner_again == context && !green && !green_again);
    OK(cuEventCreate(&one, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&two, CU_EVENT_DEFAULT));
    OK(cuEventRecord(one, stream));
    OK(cuEventRecord(two, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime(&ms, one, two));
    EXPECT(ms >= 0);
    OK(cuEventDestroy(one));
    OK(cuEventDestroy(two));
    EXPECT_CODE(cuEventDestroy(two), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy(stream));
    EXPECT_CODE(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void memory_and_the_linker(void) {
    static char bytes[4096];
    CUlinkState linker = NULL;
    CUmodule module = NULL;
    void *image = NULL;
    size_t size = 0;
    OK(cuMemHostRegister(bytes, sizeof bytes, 0));
    EXPECT_CODE(cuMemHostRegister(bytes, 1, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostUnregister(bytes));
    OK(cuLinkCreate(0, NULL, NULL, &linker));
    OK(cuLinkAddData(linker, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, "ptx", 0, NULL, NULL));
    OK(cuLinkComplete(linker, &image, &size));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleUnload(module));
    OK(cuLinkDestroy(linker));
}

static CUDA_KERNEL_NODE_PARAMS_v1 kernel(unsigned wanted) {
    CUDA_KERNEL_NODE_PARAMS_v1 described;
    memset(&described, 0, sizeof described);
    value = wanted;
    described.func = fill, described.kernelParams = parameters;
    described.gridDimX = COUNT / 32, described.gridDimY = described.gridDimZ = 1;
    described.blockDimX = 32, described.blockDimY = described.blockDimZ = 1;
    return described;
}

static void launch(CUgraphExec exec, unsigned wanted) {
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    EXPECT(is_filled(memory, wanted, COUNT));
}

static void graphs(void) {
    CUgraph graph = NULL, other = NULL;
    CUgraphNode one = NULL, two = NULL, error = (CUgraphNode)1, from[2], to[2];
    CUgraphExec exec = NULL, again = NULL;
    CUDA_KERNEL_NODE_PARAMS_v1 wanted = kernel(10), known;
    CUgraphExecUpdateResult result = 0;
    CUgraphNodeParams empty;
    char log[64] = "old";
    size_t number = 2;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&one, graph, NULL, 0, &wanted));
    memset(&empty, 0, sizeof empty);
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    OK(cuGraphAddNode(&two, graph, NULL, 0, &empty));
    OK(cuGraphAddDependencies(graph, &one, &two, 1));
    OK(cuGraphGetEdges(graph, from, to, &number));
    EXPECT(number == 1 && from[0] == one && to[0] == two);
    number = 2;
    OK(cuGraphNodeGetDependencies(two, from, &number));
    EXPECT(number == 1 && from[0] == one);
    number = 2;
    OK(cuGraphNodeGetDependentNodes(one, to, &number));
    EXPECT(number == 1 && to[0] == two);
    OK(cuGraphRemoveDependencies(graph, &one, &two, 1));
    OK(cuGraphGetEdges(graph, NULL, NULL, &number));
    EXPECT(number == 0);

    wanted = kernel(20);
    OK(cuGraphKernelNodeSetParams(one, &wanted));
    OK(cuGraphKernelNodeGetParams(one, &known));
    EXPECT(known.func == fill && *(unsigned *)known.kernelParams[1] == 20);
    OK(cuGraphInstantiate(&exec, graph, &error, log, sizeof log));
    EXPECT(error == NULL && log[0] == '\0');
    launch(exec, 20);
    OK(cuGraphInstantiate_v2(&again, graph, &error, NULL, 0));
    launch(again, 20);
    wanted = kernel(30);
    OK(cuGraphExecKernelNodeSetParams(exec, one, &wanted));
    launch(exec, 30);
    OK(cuGraphClone(&other, graph));
    OK(cuGraphExecUpdate(exec, other, &error, &result));
    EXPECT(result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    launch(exec, 20);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(again));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(graph));
}

/* The functions of a capture in one of their two forms. */
struct capture {
    CUresult (*begin)(CUstream);
    CUresult (*info)(CUstream, CUstreamCaptureStatus *, cuuint64_t *);
    CUresult (*info_2)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                       const CUgraphNode **, size_t *);
    CUresult (*update)(CUstream, CUgraphNode *, size_t, unsigned);
};

static void capture_with(const struct capture *call) {
    CUstream stream = NULL;
    CUgraph graph = NULL, told = NULL;
    CUstreamCaptureStatus status = 0;
    cuuint64_t id = 0, id_2 = 0;
    const CUgraphNode *nodes = NULL;
    size_t number = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(call->begin(stream));
    value = 40;
    OK(cuLaunchKernel(fill, COUNT / 32, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    OK(call->info(stream, &status, &id));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(call->info_2(stream, &status, &id_2, &told, &nodes, &number));
    EXPECT(id == id_2 && told != NULL && number == 1);
    OK(call->update(stream, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(call->info_2(stream, &status, &id_2, &told, &nodes, &number));
    EXPECT(number == 0);
    OK(cuStreamEndCapture(stream, &graph));
    EXPECT(graph == told);
    OK(call->info(stream, &status, &id));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

static void captures(void) {
    capture_with(&(struct capture){.begin = cuStreamBeginCapture,
                                   .info = cuStreamGetCaptureInfo,
                                   .info_2 = cuStreamGetCaptureInfo_v2,
                                   .update = cuStreamUpdateCaptureDependencies});
    capture_with(&(struct capture){.begin = cuStreamBeginCapture_ptsz,
                                   .info = cuStreamGetCaptureInfo_ptsz,
                                   .info_2 = cuStreamGetCaptureInfo_v2_ptsz,
                                   .update = cuStreamUpdateCaptureDependencies_ptsz});
}

int main(void) {
    begin();
    CUmodule module = loaded(&fill);
    OK(cuMemAlloc_v2(&memory, 4 * COUNT));
    RUN(contexts);
    RUN(the_device_and_its_primary_context);
    RUN(streams_and_events);
    RUN(memory_and_the_linker);
    RUN(graphs);
    RUN(captures);
    OK(cuMemFree_v2(memory));
    OK(cuModuleUnload(module));
    RUN(the_primary_context_is_reset);
    return finish("older_calls");
}
