// Graphs built by hand, updates of instantiated graphs, and what they keep.
#include "graphs.h"

#include <fstream>
#include <iterator>

namespace {

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

// Captures a graph that clears and multiplies `where`, and adds to it if `twice` is set.
cudaGraph_t captured(cudaStream_t stream, int *where, int more, bool twice) {
    cudaGraph_t graph{};
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(where, 0, count * sizeof(int), stream);
    multiply<<<blocks, 256, 0, stream>>>(where, more);
    if (twice) add<<<blocks, 256, 0, stream>>>(where, more);
    cudaStreamEndCapture(stream, &graph);
    return graph;
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
    cudaGraph_t graph = captured(streams.one, o, 5, false);
    cudaGraphExecUpdateResultInfo info{};
    REQUIRE(cudaGraphExecUpdate(ready.exec, graph, &info));
    EXPECT_EQUAL(static_cast<int>(info.result), static_cast<int>(cudaGraphExecUpdateSuccess));
    REQUIRE(cudaGraphDestroy(graph));
    const int before = values.to_host()[0];
    REQUIRE(cudaMemset(o, 1, count * sizeof(int)));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(launched(others), 0);
    EXPECT_EQUAL(values.to_host()[0], before);
    graph = captured(streams.one, o, 5, true);
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

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
