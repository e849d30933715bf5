// Graphs: captured work has the same result as direct work; forks and joins; calls that are
// forbidden during a capture; what a replay costs.
#include "graphs.h"

#include <cuda.h>

#include <atomic>
#include <thread>

namespace {

__global__ void nothing() {}

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
