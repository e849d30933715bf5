// Functions of the runtime that other programs here do not call: copies of all shapes, fills,
// pools, settings of a device, libraries, and nodes of graphs. Each result is compared. The program
// is built twice: the second time its calls use the thread's own default stream.
#include "harness.h"

namespace {

constexpr int WIDTH = 64, HEIGHT = 16, COUNT = WIDTH * HEIGHT;
constexpr std::size_t ROW = WIDTH * sizeof(int), BYTES = COUNT * sizeof(int);

__device__ int variable[COUNT];

__global__ void fill(int *to, int value, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = value + at;
}

std::vector<int> numbers(int first) {
    std::vector<int> values(COUNT);
    for (int at = 0; at < COUNT; at++) values[at] = first + at;
    return values;
}

// An array of the runtime that frees itself.
struct Array {
    cudaArray_t handle = nullptr;
    Array() {
        const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
        cudaMallocArray(&handle, &format, WIDTH, HEIGHT);
    }
    ~Array() { cudaFreeArray(handle); }
};

TEST(arrays_bring_every_row) {
    const std::vector<int> sent = numbers(1), other = numbers(5000);
    std::vector<int> got(COUNT);
    Array one, two;
    cudaChannelFormatDesc format{};
    REQUIRE(cudaGetChannelDesc(&format, one.handle));
    EXPECT(format.x == 32 && format.y == 0 && format.f == cudaChannelFormatKindSigned);
    REQUIRE(cudaMemcpyToArray(one.handle, 0, 0, sent.data(), BYTES, cudaMemcpyHostToDevice));
    REQUIRE(cudaMemcpyArrayToArray(two.handle, 0, 0, one.handle, 0, 0, BYTES,
                                   cudaMemcpyDeviceToDevice));
    REQUIRE(cudaMemcpyFromArray(got.data(), two.handle, 0, 0, BYTES, cudaMemcpyDeviceToHost));
    EXPECT(got == sent);
    cudaStream_t stream;
    REQUIRE(cudaStreamCreate(&stream));
    REQUIRE(cudaMemcpyToArrayAsync(one.handle, 0, 0, other.data(), BYTES, cudaMemcpyHostToDevice,
                                   stream));
    REQUIRE(cudaMemcpyFromArrayAsync(got.data(), one.handle, 0, 0, BYTES, cudaMemcpyDeviceToHost,
                                     stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(got == other);
    REQUIRE(cudaMemcpy2DToArrayAsync(one.handle, 0, 0, sent.data(), ROW, ROW, HEIGHT,
                                     cudaMemcpyHostToDevice, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    REQUIRE(cudaMemcpy2DArrayToArray(two.handle, 0, 0, one.handle, 0, 0, ROW, HEIGHT,
                                     cudaMemcpyDeviceToDevice));
    REQUIRE(cudaMemcpy2DFromArrayAsync(got.data(), ROW, two.handle, 0, 0, ROW, HEIGHT,
                                       cudaMemcpyDeviceToHost, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(got == sent);
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(rows_boxes_and_variables_bring_every_byte_in_a_stream) {
    const std::vector<int> sent = numbers(100);
    std::vector<int> got(COUNT);
    OnDevice<int> memory(COUNT), second(COUNT);
    cudaStream_t stream;
    REQUIRE(cudaStreamCreate(&stream));
    REQUIRE(cudaMemcpy2DAsync(memory.data(), ROW, sent.data(), ROW, ROW, HEIGHT,
                              cudaMemcpyHostToDevice, stream));
    cudaMemcpy3DParms box{};
    box.srcPtr = make_cudaPitchedPtr(memory.data(), ROW, ROW, HEIGHT / 2);
    box.dstPtr = make_cudaPitchedPtr(second.data(), ROW, ROW, HEIGHT / 2);
    box.extent = make_cudaExtent(ROW, HEIGHT / 2, 2);
    box.kind = cudaMemcpyDeviceToDevice;
    REQUIRE(cudaMemcpy3DAsync(&box, stream));
    REQUIRE(cudaMemcpyToSymbolAsync(variable, second.data(), BYTES, 0, cudaMemcpyDeviceToDevice,
                                    stream));
    REQUIRE(
        cudaMemcpyFromSymbolAsync(got.data(), variable, BYTES, 0, cudaMemcpyDeviceToHost, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(got == sent);
    cudaMemcpy3DPeerParms peers{};
    peers.srcPtr = make_cudaPitchedPtr(second.data(), ROW, ROW, HEIGHT);
    peers.dstPtr = make_cudaPitchedPtr(memory.data(), ROW, ROW, HEIGHT);
    peers.extent = make_cudaExtent(ROW, HEIGHT, 1);
    REQUIRE(cudaMemset(memory.data(), 0, BYTES));
    REQUIRE(cudaMemcpy3DPeer(&peers));
    EXPECT(memory.to_host() == sent);
    REQUIRE(cudaMemset(memory.data(), 0, BYTES));
    REQUIRE(cudaDeviceSynchronize());
    REQUIRE(cudaMemcpy3DPeerAsync(&peers, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(memory.to_host() == sent);
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(fills_repeat_their_value) {
    OnDevice<int> memory(COUNT);
    const cudaPitchedPtr all = make_cudaPitchedPtr(memory.data(), ROW, ROW, HEIGHT);
    cudaStream_t stream;
    REQUIRE(cudaStreamCreate(&stream));
    REQUIRE(cudaMemset3D(all, 0x11, make_cudaExtent(ROW, HEIGHT, 1)));
    EXPECT(memory.to_host() == std::vector<int>(COUNT, 0x11111111));
    REQUIRE(cudaMemset3DAsync(all, 0x22, make_cudaExtent(ROW, HEIGHT, 1), stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(memory.to_host() == std::vector<int>(COUNT, 0x22222222));
    REQUIRE(cudaMemset2DAsync(memory.data(), ROW, 0x33, ROW, HEIGHT, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(memory.to_host() == std::vector<int>(COUNT, 0x33333333));
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(memory_comes_from_pools) {
    cudaMemPool_t usual, current, own;
    cudaMemPoolProps wanted{};
    cudaMemLocation place{};
    place.type = cudaMemLocationTypeDevice;
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = place;
    REQUIRE(cudaDeviceGetDefaultMemPool(&usual, 0));
    REQUIRE(cudaDeviceGetMemPool(&current, 0));
    EXPECT(current == usual);
    REQUIRE(cudaMemGetDefaultMemPool(&current, &place, cudaMemAllocationTypePinned));
    EXPECT(current == usual);
    REQUIRE(cudaMemGetMemPool(&current, &place, cudaMemAllocationTypePinned));
    EXPECT(current == usual);
    REQUIRE(cudaMemPoolCreate(&own, &wanted));
    std::uint64_t threshold = 1 << 20, told = 0;
    REQUIRE(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &threshold));
    REQUIRE(cudaMemPoolGetAttribute(own, cudaMemPoolAttrReleaseThreshold, &told));
    EXPECT_EQUAL(told, threshold);
    const cudaMemAccessDesc access{place, cudaMemAccessFlagsProtReadWrite};
    cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    REQUIRE(cudaMemPoolSetAccess(own, &access, 1));
    REQUIRE(cudaMemPoolGetAccess(&flags, own, &place));
    EXPECT(flags == cudaMemAccessFlagsProtReadWrite);
    void *memory = nullptr;
    std::vector<int> got(COUNT);
    cudaStream_t stream;
    REQUIRE(cudaStreamCreate(&stream));
    REQUIRE(cudaMallocFromPoolAsync(&memory, BYTES, own, stream));
    fill<<<COUNT / 64, 64, 0, stream>>>(static_cast<int *>(memory), 7, COUNT);
    REQUIRE(cudaMemcpyAsync(got.data(), memory, BYTES, cudaMemcpyDeviceToHost, stream));
    REQUIRE(cudaFreeAsync(memory, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT(got == numbers(7));
    REQUIRE(cudaMemPoolTrimTo(own, 0));
    REQUIRE(cudaDeviceSetMemPool(0, own));
    REQUIRE(cudaMemSetMemPool(&place, cudaMemAllocationTypePinned, usual));
    REQUIRE(cudaMemPoolDestroy(own));
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(a_device_has_settings) {
    cudaFuncCache cache = cudaFuncCachePreferL1;
    unsigned flags = 0;
    int chosen = -1, value = -1;
    std::size_t width = 0, limit = 0;
    cudaDeviceProp wanted{};
    wanted.major = 1;
    REQUIRE(cudaChooseDevice(&chosen, &wanted));
    EXPECT(chosen >= 0);
    REQUIRE(cudaInitDevice(0, cudaDeviceScheduleYield, cudaInitDeviceFlagsAreValid));
    REQUIRE(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    REQUIRE(cudaGetDeviceFlags(&flags));
    EXPECT((flags & cudaDeviceScheduleMask) == cudaDeviceScheduleBlockingSync);
    REQUIRE(cudaSetValidDevices(&chosen, 1));
    REQUIRE(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    REQUIRE(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    EXPECT_EQUAL(limit, 4096);
    REQUIRE(cudaDeviceSetCacheConfig(cudaFuncCachePreferNone));
    REQUIRE(cudaDeviceGetCacheConfig(&cache));
    EXPECT(cache == cudaFuncCachePreferNone);
    REQUIRE(cudaCtxResetPersistingL2Cache());
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    REQUIRE(cudaDeviceGetTexture1DLinearMaxWidth(&width, &format, 0));
    EXPECT(width > 0);
    EXPECT_CODE(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 0),
                cudaErrorInvalidDevice);
    EXPECT_CODE(cudaDeviceDisablePeerAccess(0), cudaErrorInvalidDevice,
                cudaErrorPeerAccessNotEnabled);
    void *pinned = nullptr, *device = nullptr;
    REQUIRE(cudaHostAlloc(&pinned, BYTES, cudaHostAllocPortable));
    REQUIRE(cudaHostGetFlags(&flags, pinned));
    EXPECT((flags & cudaHostAllocPortable) != 0);
    REQUIRE(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, 0));
    EXPECT_CODE(cudaHostGetDevicePointer(&device, pinned, 0),
                value != 0 ? cudaSuccess : cudaErrorNotSupported);
    EXPECT(device == (value != 0 ? pinned : nullptr));
    REQUIRE(cudaFreeHost(pinned));
}

TEST(kernels_are_launched_and_described_in_every_form) {
    OnDevice<int> memory(COUNT);
    int *to = memory.data(), value = 40, count = COUNT;
    void *arguments[] = {&to, &value, &count};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(COUNT / 64);
    config.blockDim = dim3(64);
    const auto kernel = reinterpret_cast<const void *>(&fill);
    REQUIRE(cudaLaunchKernelExC(&config, kernel, arguments));
    EXPECT(memory.to_host() == numbers(40));
    EXPECT_CODE(cudaLaunchCooperativeKernel(kernel, dim3(2), dim3(64), arguments, 0, nullptr),
                cudaErrorCooperativeLaunchTooLarge);
    const char *name = nullptr;
    std::size_t offset = 0, size = 0;
    int blocks = 0;
    REQUIRE(cudaFuncGetName(&name, kernel));
    EXPECT(name != nullptr && std::strstr(name, "fill") != nullptr);
    REQUIRE(cudaFuncGetParamInfo(kernel, 1, &offset, &size));
    EXPECT(offset == 8 && size == 4);
    REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, kernel, 64, 0, 0));
    REQUIRE(cudaOccupancyAvailableDynamicSMemPerBlock(&size, kernel, 1, 64));
    EXPECT(blocks >= 1 && size > 0);
    cudaKernel_t handle = nullptr;
    EXPECT_CODE(cudaGetKernel(&handle, kernel), cudaSuccess);
}

const char text[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 number = 7;\n"
    ".visible .entry nothing()\n{\n    ret;\n}\n";

TEST(libraries_have_kernels_and_variables) {
    cudaLibrary_t library;
    cudaKernel_t kernel, listed;
    unsigned count = 0;
    void *number = nullptr;
    std::size_t bytes = 0;
    int value = 0;
    REQUIRE(cudaLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0));
    REQUIRE(cudaLibraryGetKernelCount(&count, library));
    EXPECT_EQUAL(count, 1);
    REQUIRE(cudaLibraryEnumerateKernels(&listed, 1, library));
    REQUIRE(cudaLibraryGetKernel(&kernel, library, "nothing"));
    EXPECT(kernel == listed);
    EXPECT_CODE(cudaLibraryGetKernel(&kernel, library, "none"), cudaErrorSymbolNotFound);
    REQUIRE(cudaLibraryGetGlobal(&number, &bytes, library, "number"));
    REQUIRE(cudaMemcpy(&value, number, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(bytes == 4 && value == 7);
    REQUIRE(cudaLibraryUnload(library));
    EXPECT_CODE(cudaLibraryLoadFromFile(&library, "/no/such/file", nullptr, nullptr, 0, nullptr,
                                        nullptr, 0),
                cudaErrorFileNotFound);
}

// A graph with its executable form.
struct Graph {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    Graph() { cudaGraphCreate(&graph, 0); }
    ~Graph() {
        if (executable != nullptr) cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
    }
    cudaError_t instantiate() {
        cudaGraphInstantiateParams how{};
        return cudaGraphInstantiateWithParams(&executable, graph, &how);
    }
    cudaError_t launch() {
        const cudaError_t code = cudaGraphLaunch(executable, nullptr);
        return code == cudaSuccess ? cudaStreamSynchronize(nullptr) : code;
    }
};

TEST(nodes_copy_to_and_from_variables) {
    const std::vector<int> one = numbers(1), two = numbers(2), three = numbers(3);
    std::vector<int> got(COUNT), other(COUNT);
    Graph made;
    cudaGraphNode_t to, from;
    REQUIRE(cudaGraphAddMemcpyNodeToSymbol(&to, made.graph, nullptr, 0, variable, one.data(), BYTES,
                                           0, cudaMemcpyHostToDevice));
    REQUIRE(cudaGraphAddMemcpyNodeFromSymbol(&from, made.graph, &to, 1, got.data(), variable, BYTES,
                                             0, cudaMemcpyDeviceToHost));
    REQUIRE(made.instantiate());
    REQUIRE(made.launch());
    EXPECT(got == one);
    REQUIRE(cudaGraphExecMemcpyNodeSetParamsToSymbol(made.executable, to, variable, two.data(),
                                                     BYTES, 0, cudaMemcpyHostToDevice));
    REQUIRE(cudaGraphExecMemcpyNodeSetParamsFromSymbol(made.executable, from, other.data(),
                                                       variable, BYTES, 0, cudaMemcpyDeviceToHost));
    REQUIRE(made.launch());
    EXPECT(other == two && got == one);
    REQUIRE(cudaGraphMemcpyNodeSetParamsToSymbol(to, variable, three.data(), BYTES, 0,
                                                 cudaMemcpyHostToDevice));
    REQUIRE(cudaGraphMemcpyNodeSetParamsFromSymbol(from, other.data(), variable, BYTES, 0,
                                                   cudaMemcpyDeviceToHost));
    REQUIRE(cudaGraphExecDestroy(made.executable));
    REQUIRE(made.instantiate());
    REQUIRE(made.launch());
    EXPECT(other == three);
}

TEST(nodes_copy_bytes_and_boxes) {
    const std::vector<int> one = numbers(10), two = numbers(20);
    OnDevice<int> memory(COUNT);
    Graph made;
    cudaGraphNode_t node;
    REQUIRE(cudaGraphAddMemcpyNode1D(&node, made.graph, nullptr, 0, memory.data(), one.data(),
                                     BYTES, cudaMemcpyHostToDevice));
    REQUIRE(made.instantiate());
    REQUIRE(cudaGraphExecMemcpyNodeSetParams1D(made.executable, node, memory.data(), two.data(),
                                               BYTES, cudaMemcpyHostToDevice));
    REQUIRE(made.launch());
    EXPECT(memory.to_host() == two);
    cudaMemcpy3DParms box{};
    box.srcPtr = make_cudaPitchedPtr(const_cast<int *>(one.data()), ROW, ROW, HEIGHT);
    box.dstPtr = make_cudaPitchedPtr(memory.data(), ROW, ROW, HEIGHT);
    box.extent = make_cudaExtent(ROW, HEIGHT, 1);
    box.kind = cudaMemcpyHostToDevice;
    REQUIRE(cudaGraphExecMemcpyNodeSetParams(made.executable, node, &box));
    REQUIRE(made.launch());
    EXPECT(memory.to_host() == one);
    REQUIRE(cudaGraphMemcpyNodeSetParams1D(node, memory.data(), two.data(), BYTES,
                                           cudaMemcpyHostToDevice));
    REQUIRE(cudaGraphMemcpyNodeSetParams(node, &box));
    cudaMemsetParams filled{}, known{};
    filled.dst = memory.data(), filled.value = 9, filled.elementSize = 4;
    filled.width = COUNT, filled.height = 1;
    REQUIRE(cudaGraphAddMemsetNode(&node, made.graph, nullptr, 0, &filled));
    filled.value = 8;
    REQUIRE(cudaGraphMemsetNodeSetParams(node, &filled));
    REQUIRE(cudaGraphMemsetNodeGetParams(node, &known));
    EXPECT(known.value == 8 && known.dst == memory.data());
}

TEST(nodes_of_events_and_memory) {
    cudaEvent_t one, two, told;
    cudaGraphNode_t wait, record, node;
    Graph made;
    REQUIRE(cudaEventCreate(&one));
    REQUIRE(cudaEventCreate(&two));
    REQUIRE(cudaGraphAddEventWaitNode(&wait, made.graph, nullptr, 0, one));
    REQUIRE(cudaGraphAddEventRecordNode(&record, made.graph, &wait, 1, one));
    REQUIRE(cudaGraphEventRecordNodeSetEvent(record, two));
    REQUIRE(cudaGraphEventRecordNodeGetEvent(record, &told));
    EXPECT(told == two);
    REQUIRE(cudaGraphEventWaitNodeSetEvent(wait, two));
    REQUIRE(cudaGraphEventWaitNodeSetEvent(wait, one));
    REQUIRE(cudaGraphEventWaitNodeGetEvent(wait, &told));
    EXPECT(told == one);
    REQUIRE(cudaEventRecord(one));
    REQUIRE(made.instantiate());
    REQUIRE(made.launch());
    REQUIRE(cudaEventQuery(two));
    REQUIRE(cudaGraphExecEventRecordNodeSetEvent(made.executable, record, one));
    REQUIRE(cudaGraphExecEventWaitNodeSetEvent(made.executable, wait, two));
    REQUIRE(made.launch());
    unsigned long long flags = 9;
    REQUIRE(cudaGraphExecGetFlags(made.executable, &flags));
    EXPECT_EQUAL(flags, 0);

    cudaMemAllocNodeParams wanted{}, known{};
    void *freed = nullptr;
    std::uint64_t none = 0;
    wanted.poolProps.allocType = cudaMemAllocationTypePinned;
    wanted.poolProps.location.type = cudaMemLocationTypeDevice;
    wanted.bytesize = BYTES;
    Graph memory;
    REQUIRE(cudaGraphAddMemAllocNode(&node, memory.graph, nullptr, 0, &wanted));
    REQUIRE(cudaGraphMemAllocNodeGetParams(node, &known));
    EXPECT(known.dptr == wanted.dptr && known.bytesize == BYTES);
    REQUIRE(cudaGraphAddMemFreeNode(&node, memory.graph, &node, 1, wanted.dptr));
    REQUIRE(cudaGraphMemFreeNodeGetParams(node, &freed));
    EXPECT(freed == wanted.dptr);
    REQUIRE(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &none));
    REQUIRE(cudaDeviceGraphMemTrim(0));
    REQUIRE(cudaEventDestroy(one));
    REQUIRE(cudaEventDestroy(two));
}

void add(void *data) { *static_cast<int *>(data) += 1; }
void add_more(void *data) { *static_cast<int *>(data) += 10; }

TEST(nodes_of_the_host_children_and_any_kind) {
    int calls = 0;
    const cudaHostNodeParams once{add, &calls}, more{add_more, &calls};
    cudaHostNodeParams known{};
    cudaGraphNode_t host, child, any;
    Graph inner, made, other;
    REQUIRE(cudaGraphAddHostNode(&host, inner.graph, nullptr, 0, &once));
    REQUIRE(cudaGraphAddHostNode(&host, other.graph, nullptr, 0, &more));
    REQUIRE(cudaGraphAddChildGraphNode(&child, made.graph, nullptr, 0, inner.graph));
    REQUIRE(cudaGraphAddHostNode(&host, made.graph, &child, 1, &once));
    REQUIRE(made.instantiate());
    REQUIRE(made.launch());
    EXPECT_EQUAL(calls, 2);
    REQUIRE(cudaGraphExecHostNodeSetParams(made.executable, host, &more));
    REQUIRE(cudaGraphExecChildGraphNodeSetParams(made.executable, child, other.graph));
    REQUIRE(made.launch());
    EXPECT_EQUAL(calls, 22);
    REQUIRE(cudaGraphHostNodeSetParams(host, &more));
    REQUIRE(cudaGraphHostNodeGetParams(host, &known));
    EXPECT(known.fn == add_more && known.userData == &calls);
    cudaGraphNodeParams wanted{};
    wanted.type = cudaGraphNodeTypeHost;
    wanted.host.fn = add, wanted.host.userData = &calls;
    Graph one;
    REQUIRE(cudaGraphAddNode(&any, one.graph, nullptr, nullptr, 0, &wanted));
    wanted.host.fn = add_more;
    REQUIRE(cudaGraphNodeSetParams(any, &wanted));
    REQUIRE(one.instantiate());
    wanted.host.fn = add;
    REQUIRE(cudaGraphExecNodeSetParams(one.executable, any, &wanted));
    REQUIRE(one.launch());
    EXPECT_EQUAL(calls, 23);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
