/* The driver API's functions for graphs: each kind of node with its parameters, in the graph and in
 * an executable graph, dependencies, updates, and objects that graphs keep. */
#include "driver.h"

enum { COUNT = 256, BYTES = 4 * COUNT };

static CUfunction fill;
static CUdeviceptr memory;
static CUgraph graph;
static CUgraphExec executable;

/* Launches and waits. */
static void launch(void) {
    OK(cuGraphLaunch(executable, NULL));
    OK(cuCtxSynchronize());
}

static void instantiate(void) { OK(cuGraphInstantiateWithFlags(&executable, graph, 0)); }

static void ends(void) {
    OK(cuGraphExecDestroy(executable));
    OK(cuGraphDestroy(graph));
}

/* The parameters of `fill`. A node copies their values. */
static unsigned value, count = COUNT;
static void *parameters[] = {&memory, &value, &count};

static CUDA_KERNEL_NODE_PARAMS kernel(unsigned wanted) {
    CUDA_KERNEL_NODE_PARAMS described;
    memset(&described, 0, sizeof described);
    value = wanted;
    described.func = fill, described.kernelParams = parameters;
    described.gridDimX = COUNT / 32, described.gridDimY = described.gridDimZ = 1;
    described.blockDimX = 32, described.blockDimY = described.blockDimZ = 1;
    return described;
}

static void kernel_nodes(void) {
    CUgraphNode one = NULL, other = NULL;
    CUDA_KERNEL_NODE_PARAMS wanted = kernel(100), known;
    CUkernelNodeAttrValue set, got;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&one, graph, NULL, 0, &wanted));
    OK(cuGraphAddKernelNode(&other, graph, &one, 1, &wanted));
    wanted = kernel(200);
    OK(cuGraphKernelNodeSetParams(other, &wanted));
    OK(cuGraphKernelNodeGetParams(other, &known));
    EXPECT(known.func == fill && known.gridDimX == COUNT / 32 && known.blockDimX == 32 &&
           *(unsigned *)known.kernelParams[1] == 200);
    memset(&set, 0, sizeof set);
    set.priority = 0, set.cooperative = 0;
    set.accessPolicyWindow.num_bytes = 64;
    OK(cuGraphKernelNodeSetAttribute(one, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &set));
    OK(cuGraphKernelNodeCopyAttributes(other, one));
    OK(cuGraphKernelNodeGetAttribute(other, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
    EXPECT(memcmp(&set, &got, sizeof set) == 0);
    set.clusterDim.x = 2, set.clusterDim.y = set.clusterDim.z = 1;
    EXPECT_CODE(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &set),
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
    instantiate();
    launch();
    EXPECT(is_filled(memory, 200, COUNT));
    wanted = kernel(300);
    OK(cuGraphExecKernelNodeSetParams(executable, other, &wanted));
    launch();
    EXPECT(is_filled(memory, 300, COUNT));
    /* The graph itself did not change. */
    OK(cuGraphKernelNodeGetParams(other, &known));
    EXPECT(*(unsigned *)known.kernelParams[1] == 200);
    unsigned enabled = 9;
    OK(cuGraphNodeSetEnabled(executable, other, 0));
    OK(cuGraphNodeGetEnabled(executable, other, &enabled));
    launch();
    EXPECT(enabled == 0 && is_filled(memory, 100, COUNT));
    cuuint64_t flags = 9;
    OK(cuGraphExecGetFlags(executable, &flags));
    EXPECT(flags == 0);
    ends();
}

static CUDA_MEMSET_NODE_PARAMS set_to(unsigned wanted) {
    CUDA_MEMSET_NODE_PARAMS described;
    memset(&described, 0, sizeof described);
    described.dst = memory, described.value = wanted, described.elementSize = 4;
    described.width = COUNT, described.height = 1;
    return described;
}

static CUDA_MEMCPY3D copy_from(const unsigned *values) {
    CUDA_MEMCPY3D described;
    memset(&described, 0, sizeof described);
    described.srcMemoryType = CU_MEMORYTYPE_HOST, described.srcHost = values;
    described.dstMemoryType = CU_MEMORYTYPE_DEVICE, described.dstDevice = memory;
    described.WidthInBytes = BYTES, described.Height = described.Depth = 1;
    return described;
}

/* Whether the first and the last value in the memory are these. */
static bool ends_are(unsigned first, unsigned last) {
    unsigned values[COUNT];
    OK(cuMemcpyDtoH(values, memory, BYTES));
    return values[0] == first && values[COUNT - 1] == last;
}

static void nodes_that_copy_and_fill(void) {
    CUgraphNode filled = NULL, copied = NULL;
    unsigned one[COUNT], two[COUNT];
    for (unsigned at = 0; at < COUNT; at++) one[at] = 1000 + at, two[at] = 2000 + at;
    CUDA_MEMSET_NODE_PARAMS wanted = set_to(7), known;
    CUDA_MEMCPY3D copy = copy_from(one), copy_known;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &wanted, context));
    OK(cuGraphAddMemcpyNode(&copied, graph, NULL, 0, &copy, context));
    OK(cuGraphAddDependencies(graph, &filled, &copied, NULL, 1));
    OK(cuGraphMemsetNodeGetParams(filled, &known));
    EXPECT(known.dst == memory && known.value == 7 && known.width == COUNT);
    OK(cuGraphMemcpyNodeGetParams(copied, &copy_known));
    EXPECT(copy_known.srcHost == one && copy_known.WidthInBytes == BYTES);
    instantiate();
    launch();
    EXPECT(ends_are(1000, 1000 + COUNT - 1));
    copy = copy_from(two);
    OK(cuGraphExecMemcpyNodeSetParams(executable, copied, &copy, context));
    launch();
    EXPECT(ends_are(2000, 2000 + COUNT - 1));
    OK(cuGraphExecDestroy(executable));
    /* A copy of one value leaves the others as they were filled. */
    copy.WidthInBytes = 4;
    OK(cuGraphMemcpyNodeSetParams(copied, &copy));
    wanted = set_to(8);
    OK(cuGraphMemsetNodeSetParams(filled, &wanted));
    instantiate();
    launch();
    EXPECT(ends_are(2000, 8));
    wanted.value = 9;
    OK(cuGraphExecMemsetNodeSetParams(executable, filled, &wanted, context));
    launch();
    EXPECT(ends_are(2000, 9));
    wanted.elementSize = 3;
    EXPECT_CODE(cuGraphMemsetNodeSetParams(filled, &wanted), CUDA_ERROR_INVALID_VALUE);
    ends();
}

static void add_one(void *data) { *(int *)data += 1; }
static void add_ten(void *data) { *(int *)data += 10; }

static void nodes_of_the_host_and_child_graphs(void) {
    int calls = 0;
    CUDA_HOST_NODE_PARAMS wanted = {.fn = add_one, .userData = &calls}, known;
    CUgraphNode host = NULL, child = NULL, empty = NULL;
    CUgraph inner = NULL, copy = NULL;
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphAddHostNode(&host, inner, NULL, 0, &wanted));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&child, graph, NULL, 0, inner));
    OK(cuGraphChildGraphNodeGetGraph(child, &copy));
    EXPECT(copy != NULL && copy != inner);
    OK(cuGraphAddEmptyNode(&empty, graph, &child, 1));
    OK(cuGraphAddHostNode(&host, graph, &empty, 1, &wanted));
    OK(cuGraphHostNodeGetParams(host, &known));
    EXPECT(known.fn == add_one && known.userData == &calls);
    instantiate();
    launch();
    EXPECT(calls == 2);
    wanted.fn = add_ten;
    OK(cuGraphExecHostNodeSetParams(executable, host, &wanted));
    launch();
    EXPECT(calls == 13);
    OK(cuGraphHostNodeSetParams(host, &wanted));
    /* The child gets the parameters of a graph of the same shape. */
    CUgraph other = NULL;
    CUgraphNode node = NULL;
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddHostNode(&node, other, NULL, 0, &wanted));
    OK(cuGraphExecChildGraphNodeSetParams(executable, child, other));
    launch();
    EXPECT(calls == 33);
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(inner));
    ends();
}

static void nodes_of_events(void) {
    CUevent one = NULL, two = NULL, told = NULL;
    CUgraphNode record = NULL, wait = NULL;
    OK(cuEventCreate(&one, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&two, CU_EVENT_DEFAULT));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, one));
    OK(cuGraphAddEventRecordNode(&record, graph, &wait, 1, one));
    OK(cuGraphEventRecordNodeSetEvent(record, two));
    OK(cuGraphEventRecordNodeGetEvent(record, &told));
    EXPECT(told == two);
    OK(cuGraphEventWaitNodeGetEvent(wait, &told));
    EXPECT(told == one);
    EXPECT_CODE(cuGraphEventWaitNodeGetEvent(record, &told), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphEventWaitNodeSetEvent(wait, two));
    OK(cuGraphEventWaitNodeSetEvent(wait, one));
    OK(cuEventRecord(one, NULL));
    instantiate();
    launch();
    float ms = -1;
    OK(cuEventElapsedTime(&ms, one, two));
    EXPECT(ms >= 0);
    OK(cuGraphExecEventWaitNodeSetEvent(executable, wait, two));
    OK(cuGraphExecEventRecordNodeSetEvent(executable, record, one));
    launch();
    OK(cuEventElapsedTime(&ms, two, one));
    EXPECT(ms >= 0);
    ends();
    OK(cuEventDestroy(one));
    OK(cuEventDestroy(two));
}

static CUDA_MEM_ALLOC_NODE_PARAMS allocation(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS described;
    memset(&described, 0, sizeof described);
    described.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    described.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    described.bytesize = BYTES;
    return described;
}

static void nodes_of_memory(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = allocation(), known;
    CUgraphNode made = NULL, freed = NULL, used = NULL;
    CUdeviceptr told = 0;
    cuuint64_t bytes = 0, none = 0;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&made, graph, NULL, 0, &wanted));
    OK(cuGraphMemAllocNodeGetParams(made, &known));
    EXPECT(wanted.dptr != 0 && known.dptr == wanted.dptr && known.bytesize == BYTES);
    CUDA_KERNEL_NODE_PARAMS inside = kernel(400);
    void *there[] = {&wanted.dptr, &value, &count};
    inside.kernelParams = there;
    OK(cuGraphAddKernelNode(&used, graph, &made, 1, &inside));
    CUDA_MEMCPY3D copy = copy_from(NULL);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = wanted.dptr;
    OK(cuGraphAddMemcpyNode(&used, graph, &used, 1, &copy, context));
    OK(cuGraphAddMemFreeNode(&freed, graph, &used, 1, wanted.dptr));
    OK(cuGraphMemFreeNodeGetParams(freed, &told));
    EXPECT(told == wanted.dptr);
    EXPECT_CODE(cuGraphAddMemFreeNode(&freed, graph, &used, 1, memory), CUDA_ERROR_INVALID_VALUE);
    instantiate();
    launch();
    EXPECT(is_filled(memory, 400, COUNT));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    EXPECT(bytes >= BYTES);
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
    EXPECT_CODE(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &none),
                CUDA_ERROR_INVALID_VALUE);
    ends();
    OK(cuDeviceGraphMemTrim(0));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
    EXPECT(bytes == 0);
}

static void nodes_of_any_kind(void) {
    CUgraphNodeParams wanted;
    CUgraphNode node = NULL;
    CUgraphNodeType kind = 0;
    memset(&wanted, 0, sizeof wanted);
    wanted.type = CU_GRAPH_NODE_TYPE_MEMSET;
    wanted.memset.dst = memory, wanted.memset.value = 11, wanted.memset.elementSize = 4;
    wanted.memset.width = COUNT, wanted.memset.height = 1, wanted.memset.ctx = context;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &wanted));
    OK(cuGraphNodeGetType(node, &kind));
    EXPECT(kind == CU_GRAPH_NODE_TYPE_MEMSET);
    wanted.memset.value = 12;
    OK(cuGraphNodeSetParams(node, &wanted));
    instantiate();
    launch();
    EXPECT(ends_are(12, 12));
    wanted.memset.value = 13;
    OK(cuGraphExecNodeSetParams(executable, node, &wanted));
    launch();
    EXPECT(ends_are(13, 13));
    wanted.type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_CODE(cuGraphNodeSetParams(node, &wanted), CUDA_ERROR_INVALID_VALUE);
    wanted.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    EXPECT_CODE(cuGraphAddNode(&node, graph, NULL, NULL, 0, &wanted), CUDA_ERROR_NOT_SUPPORTED);
    ends();
}

static void dependencies_are_listed_added_and_removed(void) {
    CUgraphNode node[4] = {NULL}, from[4], to[4], found = NULL;
    CUgraphEdgeData data[4];
    CUgraph copy = NULL;
    size_t edges = 4, near = 4;
    OK(cuGraphCreate(&graph, 0));
    for (int at = 0; at < 4; at++) OK(cuGraphAddEmptyNode(&node[at], graph, NULL, 0));
    OK(cuGraphAddDependencies(graph, (CUgraphNode[]){node[0], node[0], node[1]},
                              (CUgraphNode[]){node[1], node[2], node[3]}, NULL, 3));
    OK(cuGraphGetEdges(graph, from, to, data, &edges));
    EXPECT(edges == 3);
    OK(cuGraphNodeGetDependencies(node[3], from, data, &near));
    EXPECT(near == 1 && from[0] == node[1]);
    near = 4;
    OK(cuGraphNodeGetDependentNodes(node[0], to, data, &near));
    EXPECT(near == 2);
    near = 4;
    OK(cuGraphGetRootNodes(graph, from, &near));
    EXPECT(near == 1 && from[0] == node[0]);
    /* Instantiation reports a circle. */
    OK(cuGraphAddDependencies(graph, &node[3], &node[0], NULL, 1));
    EXPECT_CODE(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphRemoveDependencies(graph, &node[3], &node[0], NULL, 1));
    OK(cuGraphClone(&copy, graph));
    OK(cuGraphNodeFindInClone(&found, node[2], copy));
    EXPECT(found != NULL && found != node[2]);
    OK(cuGraphRemoveDependencies(graph, &node[0], &node[1], NULL, 1));
    OK(cuGraphDestroyNode(node[2]));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    EXPECT(edges == 1);
    OK(cuGraphGetEdges(copy, NULL, NULL, NULL, &edges));
    EXPECT(edges == 3);
    OK(cuGraphDestroy(copy));
    OK(cuGraphDestroy(graph));
}

static void an_executable_graph_is_updated_from_another_one(void) {
    CUgraphNode node = NULL;
    CUgraph other = NULL;
    CUgraphExecUpdateResultInfo result;
    CUDA_KERNEL_NODE_PARAMS wanted = kernel(500);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &wanted));
    instantiate();
    wanted = kernel(600);
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddKernelNode(&node, other, NULL, 0, &wanted));
    OK(cuGraphExecUpdate(executable, other, &result));
    EXPECT(result.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    launch();
    EXPECT(is_filled(memory, 600, COUNT));
    OK(cuGraphAddEmptyNode(&node, other, NULL, 0));
    EXPECT_CODE(cuGraphExecUpdate(executable, other, &result),
                CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT(result.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphDestroy(other));
    ends();
}

static void a_graph_keeps_objects_of_the_program(void) {
    int ended = 0;
    CUuserObject object = NULL;
    OK(cuGraphCreate(&graph, 0));
    OK(cuUserObjectCreate(&object, &ended, add_one, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuUserObjectRetain(object, 2));
    OK(cuGraphRetainUserObject(graph, object, 1, 0));
    OK(cuUserObjectRelease(object, 3));
    EXPECT(ended == 0);
    OK(cuGraphReleaseUserObject(graph, object, 1));
    for (int times = 0; times < 1000 && *(volatile int *)&ended == 0; times++)
        OK(cuCtxSynchronize());
    EXPECT(ended == 1);
    OK(cuGraphDestroy(graph));
}

int main(void) {
    begin();
    CUmodule module = loaded(&fill);
    OK(cuMemAlloc(&memory, BYTES));
    RUN(kernel_nodes);
    RUN(nodes_that_copy_and_fill);
    RUN(nodes_of_the_host_and_child_graphs);
    RUN(nodes_of_events);
    RUN(nodes_of_memory);
    RUN(nodes_of_any_kind);
    RUN(dependencies_are_listed_added_and_removed);
    RUN(an_executable_graph_is_updated_from_another_one);
    RUN(a_graph_keeps_objects_of_the_program);
    OK(cuMemFree(memory));
    OK(cuModuleUnload(module));
    return finish("graph_calls");
}
