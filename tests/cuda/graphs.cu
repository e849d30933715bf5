// Graphs: captured work has the same result as direct work; forks and joins; calls that are
// forbidden during a capture; graphs built by hand; updates of instantiated graphs.
#include "harness.h"

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace {

constexpr int count = 1 << 12;

__global__ void add(int *values, int amount) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] += amount;
}

__global__ void multiply(int *values, int factor) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] *= factor;
}

__global__ void sum_of(const int *one, const int *other, int *sum) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) sum[at] = one[at] + other[at];
}

__global__ void nothing() {}

// As in streams.cu: keeps a device of any speed busy for a while.
__global__ void slowly(int *value, int next, int rounds) {
    unsigned noise = *value;
    for (int round = 0; round < rounds; round++) noise = noise * 1664525U + 1013904223U;
    *value = noise != 0xffffffffU ? next : -1;
}

constexpr int blocks = count / 256;

struct Streams {
    cudaStream_t one{}, other{};
    cudaEvent_t forked{}, joined{};
    Streams() {
        cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
    }
    ~Streams() {
        cudaEventDestroy(forked);
        cudaEventDestroy(joined);
        cudaStreamDestroy(one);
        cudaStreamDestroy(other);
    }
};

struct Ready {
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    ~Ready() {
        if (exec != nullptr) cudaGraphExecDestroy(exec);
        if (graph != nullptr) cudaGraphDestroy(graph);
    }
};

std::size_t nodes_of(cudaGraph_t graph) {
    std::size_t number = 0;
    cudaGraphGetNodes(graph, nullptr, &number);
    return number;
}

bool all_are(const std::vector<int> &values, int wanted) {
    return std::all_of(values.begin(), values.end(),
                       [wanted](int value) { return value == wanted; });
}

// Two branches, a copy in each direction, a fill, and a host function.
cudaError_t work(const Streams &streams, int *left, int *right, int *sum, const int *input,
                 int *output, std::atomic<int> *calls) {
    const auto note = [](void *calls) { static_cast<std::atomic<int> *>(calls)->fetch_add(1); };
    const std::size_t bytes = count * sizeof(int);
    cudaMemcpyAsync(left, input, bytes, cudaMemcpyHostToDevice, streams.one);
    cudaMemsetAsync(right, 0, bytes, streams.one);
    cudaEventRecord(streams.forked, streams.one);
    cudaStreamWaitEvent(streams.other, streams.forked, 0);
    for (int step = 0; step < 5; step++) {
        add<<<blocks, 256, 0, streams.one>>>(left, step);
        add<<<blocks, 256, 0, streams.other>>>(right, 3);
        multiply<<<blocks, 256, 0, streams.other>>>(right, 2);
    }
    cudaEventRecord(streams.joined, streams.other);
    cudaStreamWaitEvent(streams.one, streams.joined, 0);
    sum_of<<<blocks, 256, 0, streams.one>>>(left, right, sum);
    cudaMemcpyAsync(output, sum, bytes, cudaMemcpyDeviceToHost, streams.one);
    return cudaLaunchHostFunc(streams.one, note, calls);
}

TEST(captured_work_gives_what_it_gives_without) {
    Streams streams;
    OnDevice<int> left(count), right(count), sum(count);
    std::vector<int> input(count), plain(count), captured(count);
    for (int at = 0; at < count; at++) input[at] = at;
    std::atomic<int> calls{0};
    REQUIRE(
        work(streams, left.data(), right.data(), sum.data(), input.data(), plain.data(), &calls));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(calls.load(), 1);

    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(work(streams, left.data(), right.data(), sum.data(), input.data(), captured.data(),
                 &calls));
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(calls.load(), 1); // nothing has run
    EXPECT(all_are(captured, 0));
    EXPECT_EQUAL(nodes_of(ready.graph), 2 + 15 + 3);
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    for (int launch = 1; launch <= 3; launch++) {
        std::fill(captured.begin(), captured.end(), 0);
        for (int &value : input) value += launch - 1;
        REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
        REQUIRE(cudaStreamSynchronize(streams.one));
        EXPECT_EQUAL(calls.load(), 1 + launch);
        const int more = (launch - 1) * launch / 2;
        bool same = true;
        for (int at = 0; at < count; at++) same &= captured[at] == plain[at] + more;
        EXPECT(same);
    }
    // In each kind of stream.
    for (const cudaStream_t stream :
         {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread, streams.other}) {
        std::fill(captured.begin(), captured.end(), 0);
        REQUIRE(cudaGraphLaunch(ready.exec, stream));
        REQUIRE(cudaStreamSynchronize(stream));
        EXPECT_EQUAL(captured[1], plain[1] + 3);
    }
    EXPECT_EQUAL(calls.load(), 8);
}

TEST(launches_are_in_order_whichever_the_streams_are) {
    Streams streams;
    OnDevice<int> values(count);
    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeThreadLocal));
    multiply<<<blocks, 256, 0, streams.one>>>(values.data(), 2);
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 1);
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    for (int launch = 0; launch < 20; launch++)
        REQUIRE(cudaGraphLaunch(ready.exec, launch % 2 ? streams.one : streams.other));
    // Work behind a launch in the same stream runs after the launch.
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 7);
    REQUIRE(cudaDeviceSynchronize());
    EXPECT(all_are(values.to_host(), (1 << 20) - 1 + 7));
}

TEST(a_launch_in_the_default_stream_waits_for_blocking_streams_and_they_for_it) {
    cudaStream_t blocking{};
    REQUIRE(cudaStreamCreate(&blocking));
    Streams streams;
    OnDevice<int> left(count), right(count);
    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeRelaxed));
    REQUIRE(cudaEventRecord(streams.forked, streams.one));
    REQUIRE(cudaStreamWaitEvent(streams.other, streams.forked, 0));
    add<<<blocks, 256, 0, streams.one>>>(left.data(), 1);
    add<<<blocks, 256, 0, streams.other>>>(right.data(), 1);
    REQUIRE(cudaEventRecord(streams.joined, streams.other));
    REQUIRE(cudaStreamWaitEvent(streams.one, streams.joined, 0));
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    for (int round = 0; round < 10; round++) {
        multiply<<<blocks, 256, 0, blocking>>>(left.data(), 2);
        multiply<<<blocks, 256, 0, blocking>>>(right.data(), 2);
        REQUIRE(cudaGraphLaunch(ready.exec, cudaStreamLegacy));
    }
    multiply<<<blocks, 256, 0, blocking>>>(right.data(), 3);
    REQUIRE(cudaStreamSynchronize(blocking));
    EXPECT(all_are(left.to_host(), (1 << 10) - 1));
    EXPECT(all_are(right.to_host(), 3 * ((1 << 10) - 1)));
    REQUIRE(cudaStreamDestroy(blocking));
}

TEST(a_program_reads_what_its_own_function_wrote_in_the_same_graph) {
    // The function runs when the graph does, and the copy behind it takes the values written then.
    struct Shared {
        std::vector<int> values = std::vector<int>(count);
        int calls = 0;
    } shared;
    Streams streams;
    OnDevice<int> values(count);
    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(cudaLaunchHostFunc(
        streams.one,
        [](void *data) {
            auto *shared = static_cast<Shared *>(data);
            std::fill(shared->values.begin(), shared->values.end(), 10 * ++shared->calls);
        },
        &shared));
    REQUIRE(cudaMemcpyAsync(values.data(), shared.values.data(), count * sizeof(int),
                            cudaMemcpyHostToDevice, streams.one));
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 1);
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    for (int launch = 1; launch <= 3; launch++) {
        REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
        REQUIRE(cudaStreamSynchronize(streams.one));
        EXPECT(all_are(values.to_host(), 10 * launch + 1));
    }
}

// Checks the state after a forbidden call: the code of the call, and that of the end of the
// capture.
void expect_forbidden(cudaError_t got, std::vector<cudaError_t> wanted, cudaStream_t stream,
                      const char *what, int line) {
    harness::expect_code(got, wanted, what, __FILE__, line);
    cudaStreamCaptureStatus status{};
    EXPECT_CODE(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    if (status != cudaStreamCaptureStatusInvalidated)
        harness::failed(__FILE__, line, std::string(what) + " left the capture valid");
    cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(8);
    harness::expect_code(cudaStreamEndCapture(stream, &graph), {cudaErrorStreamCaptureInvalidated},
                         "the end of the capture", __FILE__, line);
    if (graph != nullptr) harness::failed(__FILE__, line, "an invalid capture has a graph");
    EXPECT_CODE(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    if (status != cudaStreamCaptureStatusNone)
        harness::failed(__FILE__, line, "the capture goes on");
    (void)cudaGetLastError();
}
#define FORBIDDEN(call, code)                                                 \
    do {                                                                      \
        REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)); \
        expect_forbidden((call), {code}, stream, #call, __LINE__);            \
    } while (0)

TEST(what_is_forbidden_says_so_and_ends_the_capture) {
    cudaStream_t stream{};
    REQUIRE(cudaStreamCreate(&stream)); // a stream that the legacy default stream synchronises with
    cudaEvent_t event{};
    REQUIRE(cudaEventCreate(&event));
    REQUIRE(cudaEventRecord(event, nullptr));
    OnDevice<int> values(count);
    std::vector<int> host(count);
    void *memory = nullptr;
    FORBIDDEN(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    FORBIDDEN(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    FORBIDDEN(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    FORBIDDEN(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
    FORBIDDEN(cudaMallocHost(&memory, 4), cudaErrorStreamCaptureUnsupported);
    FORBIDDEN(cudaMemcpy(host.data(), values.data(), 4, cudaMemcpyDeviceToHost),
              cudaErrorStreamCaptureImplicit);
    FORBIDDEN(cudaMemset(values.data(), 0, 4), cudaErrorStreamCaptureImplicit);
    FORBIDDEN(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
    FORBIDDEN(cudaStreamSynchronize(cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    FORBIDDEN(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    FORBIDDEN((add<<<blocks, 256, 0, cudaStreamLegacy>>>(values.data(), 1), cudaGetLastError()),
              cudaErrorStreamCaptureImplicit);
    FORBIDDEN(cudaStreamAddCallback(
                  stream, [](cudaStream_t, cudaError_t, void *) {}, nullptr, 0),
              cudaErrorStreamCaptureUnsupported);
    FORBIDDEN((cudaEventRecord(event, stream), cudaEventSynchronize(event)),
              cudaErrorCapturedEvent);
    FORBIDDEN((cudaEventRecord(event, stream), cudaEventQuery(event)), cudaErrorCapturedEvent);
    // The memory is unchanged.
    REQUIRE(cudaDeviceSynchronize());
    EXPECT(all_are(values.to_host(), 0));
    REQUIRE(cudaEventDestroy(event));
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(captures_begin_and_end_as_they_must) {
    Streams streams;
    OnDevice<int> values(count);
    cudaGraph_t graph{};
    EXPECT_CODE(cudaStreamEndCapture(streams.one, &graph), cudaErrorIllegalState);
    EXPECT_CODE(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal),
                cudaErrorStreamCaptureUnsupported);
    EXPECT_CODE(cudaStreamBeginCapture(streams.one, static_cast<cudaStreamCaptureMode>(3)),
                cudaErrorInvalidValue);
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    EXPECT_CODE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal),
                cudaErrorIllegalState);
    REQUIRE(cudaStreamEndCapture(streams.one, &graph));
    EXPECT_EQUAL(nodes_of(graph), 0U);
    REQUIRE(cudaGraphDestroy(graph));
    EXPECT_CODE(cudaGraphDestroy(graph), cudaErrorInvalidValue);

    // A branch that is never joined.
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(cudaEventRecord(streams.forked, streams.one));
    REQUIRE(cudaStreamWaitEvent(streams.other, streams.forked, 0));
    add<<<blocks, 256, 0, streams.other>>>(values.data(), 1);
    EXPECT_CODE(cudaStreamEndCapture(streams.one, &graph), cudaErrorStreamCaptureUnjoined);
    cudaStreamCaptureStatus status{};
    REQUIRE(cudaStreamIsCapturing(streams.other, &status));
    EXPECT_EQUAL(static_cast<int>(status), static_cast<int>(cudaStreamCaptureStatusNone));
    (void)cudaGetLastError();
    // An event of a capture that is over cannot be waited for.
    EXPECT_CODE(cudaStreamWaitEvent(streams.other, streams.forked, 0), cudaErrorCapturedEvent);

    // Ended in the other stream.
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(cudaEventRecord(streams.forked, streams.one));
    REQUIRE(cudaStreamWaitEvent(streams.other, streams.forked, 0));
    EXPECT_CODE(cudaStreamEndCapture(streams.other, &graph), cudaErrorStreamCaptureUnmatched);
    EXPECT_CODE(cudaStreamEndCapture(streams.one, &graph), cudaErrorStreamCaptureInvalidated);

    // Two captures must not meet.
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeRelaxed));
    REQUIRE(cudaStreamBeginCapture(streams.other, cudaStreamCaptureModeRelaxed));
    REQUIRE(cudaEventRecord(streams.forked, streams.one));
    EXPECT_CODE(cudaStreamWaitEvent(streams.other, streams.forked, 0), cudaErrorStreamCaptureMerge);
    EXPECT_CODE(cudaStreamEndCapture(streams.one, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_CODE(cudaStreamEndCapture(streams.other, &graph), cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
}

TEST(other_threads_end_and_disturb_captures_as_their_mode_says) {
    Streams streams;
    cudaGraph_t graph{};
    void *memory = nullptr;
    const auto elsewhere = [](auto call) {
        cudaError_t code{};
        std::thread([&] { code = call(); }).join();
        return code;
    };
    const auto ends = [&] { return cudaStreamEndCapture(streams.one, &graph); };
    const auto allocates = [&] { return cudaMalloc(&memory, 4); };
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeThreadLocal));
    EXPECT_CODE(elsewhere(allocates), cudaSuccess);
    cudaFree(nullptr);
    EXPECT_CODE(elsewhere(ends), cudaErrorStreamCaptureWrongThread);
    EXPECT_CODE(ends(), cudaErrorStreamCaptureInvalidated);
    REQUIRE(cudaFree(memory));

    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeRelaxed));
    EXPECT_CODE(allocates(), cudaSuccess);
    EXPECT_CODE(cudaFree(memory), cudaSuccess);
    EXPECT_CODE(elsewhere(ends), cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph));

    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    const auto relaxed = [&] {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess ||
            mode != cudaStreamCaptureModeGlobal)
            return cudaErrorUnknown;
        return allocates();
    };
    EXPECT_CODE(elsewhere(relaxed), cudaSuccess);
    EXPECT_CODE(elsewhere(allocates), cudaErrorStreamCaptureUnsupported);
    EXPECT_CODE(ends(), cudaErrorStreamCaptureInvalidated);
    REQUIRE(cudaFree(memory));
    (void)cudaGetLastError();
}

TEST(a_capture_tells_of_itself_and_takes_nodes_of_the_program) {
    Streams streams;
    OnDevice<int> values(count);
    cudaStreamCaptureStatus status{};
    unsigned long long id = 7;
    cudaGraph_t graph{};
    const cudaGraphNode_t *tail = nullptr;
    std::size_t number = 0;
    REQUIRE(
        cudaStreamGetCaptureInfo(streams.one, &status, &id, nullptr, nullptr, nullptr, nullptr));
    EXPECT_EQUAL(static_cast<int>(status), static_cast<int>(cudaStreamCaptureStatusNone));
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 1);
    REQUIRE(cudaStreamGetCaptureInfo(streams.one, &status, &id, &graph, &tail, nullptr, &number));
    EXPECT_EQUAL(static_cast<int>(status), static_cast<int>(cudaStreamCaptureStatusActive));
    EXPECT_EQUAL(number, 1U);
    // A node added by hand, behind which the capture continues.
    cudaGraphNode_t made{};
    cudaMemsetParams fill{};
    fill.dst = values.data();
    fill.elementSize = 4;
    fill.value = 40;
    fill.width = count;
    fill.height = 1;
    REQUIRE(cudaGraphAddMemsetNode(&made, graph, tail, number, &fill));
    REQUIRE(cudaStreamUpdateCaptureDependencies(streams.one, &made, nullptr, 1,
                                                cudaStreamSetCaptureDependencies));
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 2);
    unsigned long long later = 0;
    REQUIRE(
        cudaStreamGetCaptureInfo(streams.one, &status, &later, nullptr, nullptr, nullptr, nullptr));
    EXPECT_EQUAL(later, id);
    Ready ready;
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    EXPECT(ready.graph == graph);
    // A capture into an existing graph.
    std::size_t before = 3;
    cudaGraphNode_t nodes[3];
    REQUIRE(cudaGraphGetNodes(graph, nodes, &before));
    EXPECT_EQUAL(before, 3U);
    REQUIRE(cudaStreamBeginCaptureToGraph(streams.one, graph, nodes + 2, nullptr, 1,
                                          cudaStreamCaptureModeGlobal));
    multiply<<<blocks, 256, 0, streams.one>>>(values.data(), 2);
    cudaGraph_t same{};
    REQUIRE(cudaStreamEndCapture(streams.one, &same));
    EXPECT(same == graph);
    REQUIRE(cudaGraphInstantiate(&ready.exec, graph, 0));
    REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
    REQUIRE(cudaStreamSynchronize(streams.one));
    EXPECT(all_are(values.to_host(), 84));
}

cudaKernelNodeParams launch_of(void *kernel, void **parameters) {
    cudaKernelNodeParams params{};
    params.func = kernel;
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(256);
    params.kernelParams = parameters;
    return params;
}

TEST(a_graph_by_hand_does_what_its_nodes_say) {
    OnDevice<int> left(count), right(count), sum(count);
    std::vector<int> result(count);
    int *l = left.data(), *r = right.data(), *s = sum.data(), five = 5, six = 6;
    void *add_left[] = {&l, &five}, *add_right[] = {&r, &six}, *both[] = {&l, &r, &s};
    Ready ready;
    REQUIRE(cudaGraphCreate(&ready.graph, 0));
    cudaGraphNode_t fork{}, one{}, other{}, join{}, read{}, called{};
    REQUIRE(cudaGraphAddEmptyNode(&fork, ready.graph, nullptr, 0));
    const cudaKernelNodeParams on_left = launch_of(reinterpret_cast<void *>(add), add_left);
    const cudaKernelNodeParams on_right = launch_of(reinterpret_cast<void *>(add), add_right);
    const cudaKernelNodeParams summing = launch_of(reinterpret_cast<void *>(sum_of), both);
    REQUIRE(cudaGraphAddKernelNode(&one, ready.graph, &fork, 1, &on_left));
    REQUIRE(cudaGraphAddKernelNode(&other, ready.graph, nullptr, 0, &on_right));
    REQUIRE(cudaGraphAddDependencies(ready.graph, &fork, &other, nullptr, 1));
    EXPECT_CODE(cudaGraphAddDependencies(ready.graph, &fork, &other, nullptr, 1),
                cudaErrorInvalidValue);
    const cudaGraphNode_t branches[] = {one, other};
    REQUIRE(cudaGraphAddKernelNode(&join, ready.graph, branches, 2, &summing));
    REQUIRE(cudaGraphAddMemcpyNode1D(&read, ready.graph, &join, 1, result.data(), s,
                                     count * sizeof(int), cudaMemcpyDeviceToHost));
    int calls = 0;
    cudaHostNodeParams call{[](void *calls) { ++*static_cast<int *>(calls); }, &calls};
    REQUIRE(cudaGraphAddHostNode(&called, ready.graph, &read, 1, &call));

    std::size_t edges = 0, roots = 0, before = 2, after = 1;
    REQUIRE(cudaGraphGetEdges(ready.graph, nullptr, nullptr, nullptr, &edges));
    REQUIRE(cudaGraphGetRootNodes(ready.graph, nullptr, &roots));
    EXPECT_EQUAL(edges, 6U);
    EXPECT_EQUAL(roots, 1U);
    cudaGraphNode_t found[2]{};
    REQUIRE(cudaGraphNodeGetDependencies(join, found, nullptr, &before));
    EXPECT(before == 2 && found[0] == one && found[1] == other);
    REQUIRE(cudaGraphNodeGetDependentNodes(join, found, nullptr, &after));
    EXPECT(after == 1 && found[0] == read);
    cudaGraphNodeType kind{};
    REQUIRE(cudaGraphNodeGetType(read, &kind));
    EXPECT_EQUAL(static_cast<int>(kind), static_cast<int>(cudaGraphNodeTypeMemcpy));
    cudaKernelNodeParams known{};
    REQUIRE(cudaGraphKernelNodeGetParams(other, &known));
    EXPECT(known.func == on_right.func && known.gridDim.x == blocks &&
           *static_cast<int *>(known.kernelParams[1]) == 6);
    cudaMemcpy3DParms copied{};
    REQUIRE(cudaGraphMemcpyNodeGetParams(read, &copied));
    EXPECT(copied.dstPtr.ptr == result.data() && copied.srcPtr.ptr == s &&
           copied.extent.width == count * sizeof(int));

    // A node keeps the parameters that it was added with.
    five = six = 1000;
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    REQUIRE(cudaGraphLaunch(ready.exec, nullptr));
    REQUIRE(cudaStreamSynchronize(nullptr));
    EXPECT(all_are(result, 11));
    EXPECT_EQUAL(calls, 1);

    // A graph with a cycle cannot be instantiated, and nodes can be removed.
    REQUIRE(cudaGraphAddDependencies(ready.graph, &read, &join, nullptr, 1));
    cudaGraphExec_t none{};
    EXPECT_CODE(cudaGraphInstantiate(&none, ready.graph, 0), cudaErrorInvalidValue);
    REQUIRE(cudaGraphRemoveDependencies(ready.graph, &read, &join, nullptr, 1));
    REQUIRE(cudaGraphDestroyNode(called));
    EXPECT_EQUAL(nodes_of(ready.graph), 5U);
    EXPECT_CODE(cudaGraphNodeGetType(called, &kind), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

TEST(boxes_and_variables_are_copied_as_they_are_without_a_graph) {
    constexpr std::size_t width = 12, height = 5, depth = 3, pitch = 32;
    std::vector<unsigned char> from(pitch * height * depth), to(pitch * height * depth, 0xee);
    for (std::size_t at = 0; at < from.size(); at++) from[at] = static_cast<unsigned char>(at * 7);
    cudaPitchedPtr memory{};
    REQUIRE(cudaMalloc3D(&memory, make_cudaExtent(width, height, depth)));
    cudaMemcpy3DParms in{}, out{};
    in.srcPtr = make_cudaPitchedPtr(from.data(), pitch, width, height);
    in.dstPtr = memory;
    in.extent = make_cudaExtent(width, height, depth);
    in.kind = cudaMemcpyHostToDevice;
    out.srcPtr = memory;
    out.dstPtr = make_cudaPitchedPtr(to.data(), pitch, width, height);
    out.extent = in.extent;
    out.kind = cudaMemcpyDeviceToHost;
    Ready ready;
    cudaGraphNode_t written{}, read{};
    REQUIRE(cudaGraphCreate(&ready.graph, 0));
    REQUIRE(cudaGraphAddMemcpyNode(&written, ready.graph, nullptr, 0, &in));
    REQUIRE(cudaGraphAddMemcpyNode(&read, ready.graph, &written, 1, &out));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    REQUIRE(cudaGraphLaunch(ready.exec, nullptr));
    REQUIRE(cudaDeviceSynchronize());
    bool same = true;
    for (std::size_t at = 0; at < to.size(); at++)
        same &= to[at] == (at % pitch < width ? from[at] : 0xee);
    EXPECT(same);
    REQUIRE(cudaFree(memory.ptr));
}

TEST(what_was_made_ready_outlives_its_graph) {
    OnDevice<int> values(count);
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    Streams streams;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 4);
    REQUIRE(cudaStreamEndCapture(streams.one, &graph));
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0));
    cudaGraphNode_t node{};
    std::size_t one = 1;
    REQUIRE(cudaGraphGetNodes(graph, &node, &one));
    REQUIRE(cudaGraphDestroy(graph));
    cudaGraphNodeType kind{};
    EXPECT_CODE(cudaGraphNodeGetType(node, &kind), cudaErrorInvalidValue);
    REQUIRE(cudaGraphLaunch(exec, streams.one));
    REQUIRE(cudaGraphUpload(exec, streams.one));
    REQUIRE(cudaGraphLaunch(exec, streams.one));
    // A launch in progress outlives the executable graph.
    REQUIRE(cudaGraphExecDestroy(exec));
    EXPECT_CODE(cudaGraphLaunch(exec, streams.one), cudaErrorInvalidValue);
    REQUIRE(cudaStreamSynchronize(streams.one));
    EXPECT(all_are(values.to_host(), 8));
    (void)cudaGetLastError();
}

TEST(clones_and_children_have_nodes_of_their_own) {
    OnDevice<int> values(count);
    int *v = values.data(), amount = 3;
    void *parameters[] = {&v, &amount};
    cudaKernelNodeParams params = launch_of(reinterpret_cast<void *>(add), parameters);
    cudaGraph_t graph{}, clone{};
    cudaGraphNode_t node{}, copy{};
    REQUIRE(cudaGraphCreate(&graph, 0));
    REQUIRE(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    REQUIRE(cudaGraphClone(&clone, graph));
    REQUIRE(cudaGraphNodeFindInClone(&copy, node, clone));
    EXPECT(copy != node);
    EXPECT_CODE(cudaGraphNodeFindInClone(&copy, node, graph), cudaErrorInvalidValue);
    REQUIRE(cudaGraphNodeFindInClone(&copy, node, clone));
    amount = 100;
    REQUIRE(cudaGraphKernelNodeSetParams(copy, &params));

    // The first graph twice and the clone once, in a third graph.
    Ready ready;
    cudaGraphNode_t first{}, second{}, third{};
    REQUIRE(cudaGraphCreate(&ready.graph, 0));
    REQUIRE(cudaGraphAddChildGraphNode(&first, ready.graph, nullptr, 0, graph));
    REQUIRE(cudaGraphAddChildGraphNode(&second, ready.graph, &first, 1, clone));
    REQUIRE(cudaGraphAddChildGraphNode(&third, ready.graph, &second, 1, graph));
    cudaGraph_t child{};
    REQUIRE(cudaGraphChildGraphNodeGetGraph(second, &child));
    EXPECT(child != clone);
    EXPECT_EQUAL(nodes_of(child), 1U);
    EXPECT_CODE(cudaGraphDestroy(child), cudaErrorInvalidValue);
    REQUIRE(cudaGraphDestroy(graph));
    REQUIRE(cudaGraphDestroy(clone));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    REQUIRE(cudaGraphLaunch(ready.exec, nullptr));
    EXPECT(all_are(values.to_host(), 106));

    // A captured launch becomes a child graph.
    Streams streams;
    Ready outer;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
    multiply<<<blocks, 256, 0, streams.one>>>(v, 2);
    REQUIRE(cudaStreamEndCapture(streams.one, &outer.graph));
    EXPECT_EQUAL(nodes_of(outer.graph), 2U);
    REQUIRE(cudaGraphInstantiate(&outer.exec, outer.graph, 0));
    REQUIRE(cudaGraphLaunch(outer.exec, streams.one));
    REQUIRE(cudaStreamSynchronize(streams.one));
    EXPECT(all_are(values.to_host(), 424));
    (void)cudaGetLastError();
}

TEST(what_was_made_ready_can_be_changed) {
    Streams streams;
    OnDevice<int> values(count), others(count);
    int *v = values.data(), *o = others.data(), amount = 1;
    void *parameters[] = {&v, &amount};
    cudaKernelNodeParams params = launch_of(reinterpret_cast<void *>(add), parameters);
    Ready ready;
    cudaGraphNode_t filled{}, added{};
    cudaMemsetParams fill{};
    fill.dst = v;
    fill.elementSize = 1;
    fill.width = count * sizeof(int);
    fill.height = 1;
    REQUIRE(cudaGraphCreate(&ready.graph, 0));
    REQUIRE(cudaGraphAddMemsetNode(&filled, ready.graph, nullptr, 0, &fill));
    REQUIRE(cudaGraphAddKernelNode(&added, ready.graph, &filled, 1, &params));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    const auto launched = [&](const OnDevice<int> &where) {
        if (cudaGraphLaunch(ready.exec, streams.one) != cudaSuccess ||
            cudaStreamSynchronize(streams.one) != cudaSuccess)
            return -1;
        return where.to_host()[count - 1];
    };
    EXPECT_EQUAL(launched(values), 1);
    // Update of one node.
    amount = 9;
    REQUIRE(cudaGraphExecKernelNodeSetParams(ready.exec, added, &params));
    EXPECT_EQUAL(launched(values), 9);
    fill.value = 1;
    REQUIRE(cudaGraphExecMemsetNodeSetParams(ready.exec, filled, &fill));
    EXPECT_EQUAL(launched(values), 0x01010101 + 9);
    EXPECT_CODE(cudaGraphExecMemsetNodeSetParams(ready.exec, added, &fill), cudaErrorInvalidValue);
    // Disabled, and enabled again.
    REQUIRE(cudaGraphNodeSetEnabled(ready.exec, added, 0));
    EXPECT_EQUAL(launched(values), 0x01010101);
    unsigned enabled = 7;
    REQUIRE(cudaGraphNodeGetEnabled(ready.exec, added, &enabled));
    EXPECT_EQUAL(enabled, 0U);
    REQUIRE(cudaGraphNodeSetEnabled(ready.exec, added, 1));
    // Update of all nodes, by another capture of the same shape.
    const auto captured = [&](int *where, int more, bool twice) {
        cudaGraph_t graph{};
        cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal);
        cudaMemsetAsync(where, 0, count * sizeof(int), streams.one);
        multiply<<<blocks, 256, 0, streams.one>>>(where, more);
        if (twice) add<<<blocks, 256, 0, streams.one>>>(where, more);
        cudaStreamEndCapture(streams.one, &graph);
        return graph;
    };
    cudaGraph_t graph = captured(o, 5, false);
    cudaGraphExecUpdateResultInfo info{};
    REQUIRE(cudaGraphExecUpdate(ready.exec, graph, &info));
    EXPECT_EQUAL(static_cast<int>(info.result), static_cast<int>(cudaGraphExecUpdateSuccess));
    REQUIRE(cudaGraphDestroy(graph));
    const int before = values.to_host()[0];
    REQUIRE(cudaMemset(o, 1, count * sizeof(int)));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(launched(others), 0);
    EXPECT_EQUAL(values.to_host()[0], before);
    graph = captured(o, 5, true);
    EXPECT_CODE(cudaGraphExecUpdate(ready.exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQUAL(static_cast<int>(info.result),
                 static_cast<int>(cudaGraphExecUpdateErrorTopologyChanged));
    REQUIRE(cudaGraphDestroy(graph));
    REQUIRE(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t one{}, two{};
    REQUIRE(cudaGraphAddKernelNode(&one, graph, nullptr, 0, &params));
    REQUIRE(cudaGraphAddKernelNode(&two, graph, &one, 1, &params));
    EXPECT_CODE(cudaGraphExecUpdate(ready.exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQUAL(static_cast<int>(info.result),
                 static_cast<int>(cudaGraphExecUpdateErrorNodeTypeChanged));
    EXPECT(info.errorNode == one);
    REQUIRE(cudaGraphDestroy(graph));
    // The executable graph is unchanged.
    EXPECT_EQUAL(launched(others), 0);
    (void)cudaGetLastError();
}

TEST(events_in_graphs_are_for_others) {
    Streams streams;
    OnDevice<int> values(count);
    cudaEvent_t done{}, before{};
    REQUIRE(cudaEventCreate(&done));
    REQUIRE(cudaEventCreate(&before));
    EXPECT_CODE(cudaEventRecordWithFlags(done, streams.one, cudaEventRecordExternal),
                cudaErrorInvalidValue);
    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(cudaStreamWaitEvent(streams.one, before, cudaEventWaitExternal));
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 1);
    REQUIRE(cudaEventRecordWithFlags(done, streams.one, cudaEventRecordExternal));
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    EXPECT_EQUAL(nodes_of(ready.graph), 3U);
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    for (int round = 1; round <= 5; round++) {
        // Other streams provide the event that the graph waits for, and wait for the graph's event.
        multiply<<<blocks, 256, 0, streams.other>>>(values.data(), 2);
        REQUIRE(cudaEventRecord(before, streams.other));
        REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
        REQUIRE(cudaStreamWaitEvent(streams.other, done, 0));
    }
    REQUIRE(cudaEventSynchronize(done));
    REQUIRE(cudaStreamSynchronize(streams.other));
    EXPECT(all_are(values.to_host(), 31));
    REQUIRE(cudaEventDestroy(done));
    REQUIRE(cudaEventDestroy(before));
    (void)cudaGetLastError();
}

TEST(memory_of_graphs_is_there_from_one_node_to_another) {
    Streams streams;
    OnDevice<int> result(count);
    Ready ready;
    int *inner = nullptr, *kept = nullptr;
    const std::size_t bytes = count * sizeof(int);
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    REQUIRE(cudaMallocAsync(&inner, bytes, streams.one));
    REQUIRE(cudaMallocAsync(&kept, bytes, streams.one));
    REQUIRE(cudaMemsetAsync(inner, 0, bytes, streams.one));
    REQUIRE(cudaMemsetAsync(kept, 0, bytes, streams.one));
    add<<<blocks, 256, 0, streams.one>>>(inner, 3);
    add<<<blocks, 256, 0, streams.one>>>(kept, 4);
    sum_of<<<blocks, 256, 0, streams.one>>>(inner, kept, result.data());
    REQUIRE(cudaFreeAsync(inner, streams.one));
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    cudaGraph_t clone{};
    EXPECT_CODE(cudaGraphClone(&clone, ready.graph), cudaErrorNotSupported);
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    EXPECT_CODE(cudaFreeAsync(kept, streams.one), cudaErrorInvalidValue); // not launched yet
    REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
    // The allocation of the first launch is not freed.
    EXPECT_CODE(cudaGraphLaunch(ready.exec, streams.one), cudaErrorInvalidValue);
    add<<<blocks, 256, 0, streams.one>>>(kept, 1);
    std::vector<int> host(count);
    REQUIRE(cudaMemcpyAsync(host.data(), kept, bytes, cudaMemcpyDeviceToHost, streams.one));
    REQUIRE(cudaStreamSynchronize(streams.one));
    EXPECT(all_are(host, 5));
    EXPECT(all_are(result.to_host(), 7));
    unsigned long long used = 0, reserved = 0;
    REQUIRE(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    REQUIRE(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &reserved));
    EXPECT_EQUAL(used, bytes);
    EXPECT_EQUAL(reserved, 2 * bytes);
    REQUIRE(cudaFreeAsync(kept, streams.one));
    REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
    REQUIRE(cudaFree(kept));
    EXPECT_CODE(cudaFree(kept), cudaErrorInvalidValue);
    REQUIRE(cudaGraphExecDestroy(ready.exec));
    REQUIRE(cudaGraphInstantiateWithFlags(&ready.exec, ready.graph,
                                          cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int launch = 0; launch < 3; launch++) REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
    REQUIRE(cudaStreamSynchronize(streams.one));
    REQUIRE(cudaFree(kept));
    (void)cudaGetLastError();
}

TEST(what_a_graph_keeps_ends_with_the_last_that_keeps_it) {
    int ended = 0;
    cudaUserObject_t object{};
    cudaGraph_t graph{}, clone{};
    REQUIRE(cudaGraphCreate(&graph, 0));
    REQUIRE(cudaUserObjectCreate(
        &object, &ended, [](void *ended) { ++*static_cast<int *>(ended); }, 1,
        cudaUserObjectNoDestructorSync));
    REQUIRE(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    REQUIRE(cudaGraphClone(&clone, graph));
    REQUIRE(cudaGraphDestroy(graph));
    EXPECT_EQUAL(ended, 0);
    REQUIRE(cudaGraphReleaseUserObject(clone, object, 1));
    EXPECT_EQUAL(ended, 1);
    REQUIRE(cudaGraphDestroy(clone));
    EXPECT_EQUAL(ended, 1);
}

TEST(a_graph_can_be_drawn) {
    Streams streams;
    OnDevice<int> values(count);
    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    add<<<blocks, 256, 0, streams.one>>>(values.data(), 1);
    multiply<<<blocks, 256, 0, streams.one>>>(values.data(), 2);
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    char name[] = "/tmp/penstock-graph-XXXXXX";
    const int file = mkstemp(name);
    if (file < 0) SKIP("cannot create a file in /tmp");
    close(file);
    REQUIRE(cudaGraphDebugDotPrint(ready.graph, name, cudaGraphDebugDotFlagsVerbose));
    std::ifstream drawn(name);
    const std::string text{std::istreambuf_iterator<char>(drawn), {}};
    unlink(name);
    EXPECT(text.rfind("digraph", 0) == 0 && text.find("KERNEL") != std::string::npos &&
           text.find("->") != std::string::npos);
    EXPECT(text.find("multiply") != std::string::npos);
    EXPECT_CODE(cudaGraphDebugDotPrint(ready.graph, "/no/such/folder/file", 0),
                cudaErrorOperatingSystem);
    (void)cudaGetLastError();
}

TEST(what_is_not_served_is_refused_with_the_proper_code) {
    cudaGraph_t graph{};
    REQUIRE(cudaGraphCreate(&graph, 0));
    EXPECT_CODE(cudaGraphCreate(&graph, 1), cudaErrorInvalidValue);
    cudaGraphConditionalHandle handle{};
    EXPECT_CODE(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0), cudaErrorNotSupported);
    cudaGraphNodeParams params{};
    cudaGraphNode_t node{}, other{};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.size = 1;
    EXPECT_CODE(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params),
                cudaErrorNotSupported);
    cudaGraphExec_t exec{};
    EXPECT_CODE(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch),
                cudaErrorNotSupported);
    EXPECT_CODE(cudaGraphInstantiate(&exec, graph, 1 << 10), cudaErrorInvalidValue);
    // Kernels that start before their predecessors have ended.
    REQUIRE(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    REQUIRE(cudaGraphAddEmptyNode(&other, graph, nullptr, 0));
    cudaGraphEdgeData edge{};
    edge.type = cudaGraphDependencyTypeProgrammatic;
    EXPECT_CODE(cudaGraphAddDependencies(graph, &node, &other, &edge, 1), cudaErrorNotSupported);
    params = {};
    params.type = cudaGraphNodeTypeEmpty;
    EXPECT_CODE(cudaGraphAddNode(&other, graph, &node, nullptr, 1, &params), cudaSuccess);
    EXPECT_EQUAL(nodes_of(graph), 3U);
    REQUIRE(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
}

TEST(a_replay_costs_the_program_less_than_its_launches) {
    Streams streams;
    constexpr int launches = 100;
    Ready ready;
    REQUIRE(cudaStreamBeginCapture(streams.one, cudaStreamCaptureModeGlobal));
    for (int launch = 0; launch < launches; launch++) nothing<<<1, 1, 0, streams.one>>>();
    REQUIRE(cudaStreamEndCapture(streams.one, &ready.graph));
    REQUIRE(cudaGraphInstantiate(&ready.exec, ready.graph, 0));
    // Time until the call returns and time until the work is done; the least of many.
    double given[2] = {1e9, 1e9}, done[2] = {1e9, 1e9};
    for (int round = 0; round < 40; round++) {
        for (const int way : {0, 1}) {
            REQUIRE(cudaStreamSynchronize(streams.one));
            const double began = harness::now_s();
            if (way == 0) {
                for (int launch = 0; launch < launches; launch++)
                    nothing<<<1, 1, 0, streams.one>>>();
            } else {
                REQUIRE(cudaGraphLaunch(ready.exec, streams.one));
            }
            given[way] = std::min(given[way], harness::now_s() - began);
            REQUIRE(cudaStreamSynchronize(streams.one));
            done[way] = std::min(done[way], harness::now_s() - began);
        }
    }
    std::printf(
        "  100 launches %.1f us, done %.1f us; a graph of them %.1f us, done %.1f us: ratios %.2f, %.2f\n",
        given[0] * 1e6, done[0] * 1e6, given[1] * 1e6, done[1] * 1e6, given[1] / given[0],
        done[1] / done[0]);
    // A wide margin: the ratio was 0.5 to 0.6 on a busy host.
    EXPECT(given[1] < 1.5 * given[0]);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
