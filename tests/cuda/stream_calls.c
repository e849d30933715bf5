/* The driver API's functions for streams, events, launches and captures. The program is built
 * twice: the second time its calls use the thread's own default stream. */
#include "driver.h"

#include <time.h>

enum { COUNT = 1000 };

static CUfunction fill;
static CUdeviceptr memory;

static void clear(void) {
    OK(cuMemsetD32(memory, 0, COUNT));
    OK(cuCtxSynchronize());
}

static void streams_tell_what_they_are(void) {
    CUstream stream = NULL;
    CUcontext owner = NULL;
    unsigned flags = 99;
    int priority = 99, least = 99, greatest = 99;
    unsigned long long id = 0, other = 0;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamGetFlags(stream, &flags));
    OK(cuStreamGetPriority(stream, &priority));
    EXPECT(flags == CU_STREAM_NON_BLOCKING && priority == greatest && least == 0);
    OK(cuStreamGetId(stream, &id));
    OK(cuStreamGetId(NULL, &other));
    EXPECT(id != other);
    OK(cuStreamGetCtx(stream, &owner));
    EXPECT(owner == context);
    owner = NULL;
    OK(cuStreamGetCtx(NULL, &owner));
    EXPECT(owner == context);
    CUdevice device = -1;
    OK(cuStreamGetDevice(stream, &device));
    EXPECT(device == 0);
    OK(cuStreamQuery(stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    EXPECT_CODE(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CODE(cuStreamGetFlags(stream, &flags), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CODE(cuStreamCreate(&stream, 77), CUDA_ERROR_INVALID_VALUE);
}

static void host_function(void *data) { *(int *)data += 1; }

static void CUDA_CB callback(CUstream stream, CUresult status, void *data) {
    (void)stream;
    *(int *)data += status == CUDA_SUCCESS ? 10 : 1000;
}

static void events_and_functions_of_the_host_keep_the_order(void) {
    CUstream one = NULL, two = NULL;
    CUevent start = NULL, end = NULL;
    unsigned value = 5, count = COUNT;
    void *parameters[] = {&memory, &value, &count};
    int calls = 0;
    float ms = -1;
    clear();
    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    EXPECT_CODE(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(start, one));
    OK(cuLaunchKernel(fill, 32, 1, 1, 32, 1, 1, 0, one, parameters, NULL));
    OK(cuLaunchHostFunc(one, host_function, &calls));
    OK(cuStreamAddCallback(one, callback, &calls, 0));
    OK(cuEventRecordWithFlags(end, one, CU_EVENT_RECORD_DEFAULT));
    /* The second stream doubles nothing before the first one has filled. */
    OK(cuStreamWaitEvent(two, end, CU_EVENT_WAIT_DEFAULT));
    OK(cuMemsetD32Async(memory + 4 * (COUNT - 1), COUNT + 4, 1, two));
    OK(cuStreamSynchronize(two));
    EXPECT(calls == 11 && is_filled(memory, 5, COUNT));
    OK(cuEventQuery(end));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    EXPECT(ms >= 0 && ms < 60000);
    EXPECT_CODE(cuStreamAddCallback(one, callback, &calls, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuLaunchHostFunc(one, NULL, &calls), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(end));
    EXPECT_CODE(cuEventQuery(end), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy(one));
    OK(cuStreamDestroy(two));
}

/* Sets an integer after 20 ms. */
static void CUDA_CB set_late(void *data) {
    struct timespec time = {.tv_nsec = 20000000};
    nanosleep(&time, NULL);
    *(int *)data = 1;
}

/* Actions in a stream that need no command of their own. */
enum action { WAIT_UNRECORDED, WAIT_ENDED, ALLOCATE, FREE, LAUNCH_EMPTY, ACTIONS };

struct objects {
    CUevent never, ended;
    CUgraph empty;
    CUgraphExec graph;
    CUdeviceptr other;
};

static struct objects make_objects(CUstream stream) {
    struct objects made = {0};
    OK(cuEventCreate(&made.never, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&made.ended, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(made.ended, stream));
    OK(cuEventSynchronize(made.ended));
    OK(cuGraphCreate(&made.empty, 0));
    OK(cuGraphInstantiate(&made.graph, made.empty, 0));
    return made;
}

static void release_objects(struct objects *made) {
    OK(cuGraphExecDestroy(made->graph));
    OK(cuGraphDestroy(made->empty));
    OK(cuEventDestroy(made->never));
    OK(cuEventDestroy(made->ended));
}

static void act(enum action action, struct objects *with, CUstream stream) {
    switch (action) {
    case WAIT_UNRECORDED: OK(cuStreamWaitEvent(stream, with->never, 0)); break;
    case WAIT_ENDED: OK(cuStreamWaitEvent(stream, with->ended, 0)); break;
    case ALLOCATE: OK(cuMemAllocAsync(&with->other, 4096, stream)); break;
    case FREE: OK(cuMemFreeAsync(with->other, stream)); break;
    default: OK(cuGraphLaunch(with->graph, stream)); break;
    }
}

/* "When an action is taken in the legacy stream such as a kernel launch or cudaStreamWaitEvent(),
 * the legacy stream first waits on all blocking streams, the action is queued in the legacy stream,
 * and then all blocking streams wait on the legacy stream." */
static void each_action_in_the_legacy_stream_orders_the_blocking_streams(void) {
    CUstream one = NULL, two = NULL;
    int ignored = 0;
    OK(cuStreamCreate(&one, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&two, CU_STREAM_DEFAULT));
    struct objects with = make_objects(two);
    for (int action = 0; action < ACTIONS; action++) {
        clear();
        OK(cuLaunchHostFunc(one, set_late, &ignored));
        OK(cuMemsetD32Async(memory, 1, COUNT, one));
        act(action, &with, CU_STREAM_LEGACY);
        OK(cuMemsetD32Async(memory, 2, COUNT, two));
        OK(cuCtxSynchronize());
        unsigned value = 0;
        OK(cuMemcpyDtoH(&value, memory, sizeof value));
        if (value != 2) printf("action %d: %u\n", action, value);
        EXPECT(value == 2);
    }
    release_objects(&with);
    OK(cuStreamDestroy(one));
    OK(cuStreamDestroy(two));
}

/* An action in a blocking stream follows the legacy stream's commands before it, so a wait for the
 * blocking stream includes them. */
static void a_wait_for_a_blocking_stream_includes_what_its_last_action_follows(void) {
    CUstream one = NULL;
    OK(cuStreamCreate(&one, CU_STREAM_DEFAULT));
    struct objects with = make_objects(one);
    for (int action = 0; action < ACTIONS; action++) {
        int is_set = 0;
        OK(cuLaunchHostFunc(CU_STREAM_LEGACY, set_late, &is_set));
        act(action, &with, one);
        OK(cuStreamSynchronize(one));
        if (!is_set) printf("action %d does not follow the legacy stream\n", action);
        EXPECT(is_set);
        OK(cuCtxSynchronize());
    }
    release_objects(&with);
    OK(cuStreamDestroy(one));
}

static void every_form_of_launch_runs_the_kernel(void) {
    unsigned value = 0, count = COUNT, one_block = 32;
    void *parameters[] = {&memory, &value, &count}, *few[] = {&memory, &value, &one_block};
    clear();
    value = 20;
    OK(cuLaunchKernel(fill, 32, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    OK(cuStreamSynchronize(NULL));
    EXPECT(is_filled(memory, 20, COUNT));

    CUlaunchAttribute attribute;
    CUlaunchConfig config;
    memset(&attribute, 0, sizeof attribute);
    memset(&config, 0, sizeof config);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    config.gridDimX = 32, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32, config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    value = 30;
    OK(cuLaunchKernelEx(&config, fill, parameters, NULL));
    OK(cuStreamSynchronize(NULL));
    EXPECT(is_filled(memory, 30, COUNT));
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, attribute.value.cooperative = 1;
    EXPECT_CODE(cuLaunchKernelEx(&config, fill, parameters, NULL),
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);

    value = 40;
    OK(cuLaunchCooperativeKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, few));
    OK(cuStreamSynchronize(NULL));
    EXPECT(is_filled(memory, 40, 32));
    EXPECT_CODE(cuLaunchCooperativeKernel(fill, 2, 1, 1, 32, 1, 1, 0, NULL, few),
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

/* Checks the number of nodes of a graph, and that a launch fills the memory with the value. */
static void launch_graph(CUgraph graph, size_t nodes, unsigned value) {
    CUgraphExec exec = NULL;
    size_t count = 0;
    CUDA_GRAPH_INSTANTIATE_PARAMS how;
    memset(&how, 0, sizeof how);
    OK(cuGraphGetNodes(graph, NULL, &count));
    EXPECT(count == nodes);
    OK(cuGraphInstantiateWithParams(&exec, graph, &how));
    EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS && how.hErrNode_out == NULL);
    OK(cuGraphUpload(exec, NULL));
    for (int times = 0; times < 2; times++) {
        clear();
        OK(cuGraphLaunch(exec, NULL));
        OK(cuStreamSynchronize(NULL));
        EXPECT(is_filled(memory, value, COUNT));
    }
    OK(cuGraphExecDestroy(exec));
    EXPECT_CODE(cuGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void a_captured_stream_becomes_a_graph(void) {
    CUstream stream = NULL;
    CUgraph graph = NULL, seen = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 99;
    cuuint64_t id = 0;
    unsigned value = 50, wanted = COUNT;
    void *parameters[] = {&memory, &value, &wanted};
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_CODE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuLaunchKernel(fill, 32, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    OK(cuStreamGetCaptureInfo(stream, &status, &id, &seen, &nodes, &edges, &count));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && seen != NULL && count == 1);
    /* Nothing precedes the next command, as if the kernel were not there. */
    OK(cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo(stream, &status, &id, &seen, &nodes, &edges, &count));
    EXPECT(count == 0);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE && graph == seen);
    EXPECT_CODE(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    launch_graph(seen, 1, 50);
    OK(cuGraphDestroy(seen));

    /* Capture into a graph that exists. */
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0,
                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(memory, 1, COUNT, stream));
    value = 60;
    OK(cuLaunchKernel(fill, 32, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    OK(cuStreamEndCapture(stream, &seen));
    EXPECT(seen == graph);
    launch_graph(graph, 2, 60);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
}

int main(void) {
    begin();
    CUmodule module = loaded(&fill);
    OK(cuMemAlloc(&memory, 4 * COUNT));
    RUN(streams_tell_what_they_are);
    RUN(events_and_functions_of_the_host_keep_the_order);
    RUN(each_action_in_the_legacy_stream_orders_the_blocking_streams);
    RUN(a_wait_for_a_blocking_stream_includes_what_its_last_action_follows);
    RUN(every_form_of_launch_runs_the_kernel);
    RUN(a_captured_stream_becomes_a_graph);
    OK(cuMemFree(memory));
    OK(cuModuleUnload(module));
    return finish("stream_calls");
}
