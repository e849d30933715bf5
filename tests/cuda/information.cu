// The properties of devices, functions and pointers: true for the device, complete, and answered in
// the client.
#include "harness.h"

namespace {

__global__ void plain(int *to) { to[threadIdx.x] = threadIdx.x; }
__global__ __launch_bounds__(96) void with_shared(float *to) {
    __shared__ float tile[100];
    extern __shared__ float more[];
    tile[threadIdx.x] = more[threadIdx.x] = to[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = tile[95 - threadIdx.x] + more[95 - threadIdx.x];
}

int attribute(cudaDeviceAttr which) {
    int value = -1;
    const cudaError_t code = cudaDeviceGetAttribute(&value, which, 0);
    if (code != cudaSuccess)
        harness::failed(__FILE__, __LINE__,
                        "attribute " + std::to_string(which) + " gave " + harness::named(code));
    return value;
}

TEST(properties_and_attributes_agree) {
    cudaDeviceProp properties{};
    REQUIRE(cudaGetDeviceProperties(&properties, 0));
    EXPECT(properties.name[0] != '\0');
    EXPECT_EQUAL(properties.warpSize, 32);
    EXPECT_EQUAL(attribute(cudaDevAttrWarpSize), 32);
    EXPECT_EQUAL(attribute(cudaDevAttrMaxThreadsPerBlock), properties.maxThreadsPerBlock);
    EXPECT_EQUAL(attribute(cudaDevAttrMaxBlockDimX), properties.maxThreadsDim[0]);
    EXPECT_EQUAL(attribute(cudaDevAttrMaxBlockDimZ), properties.maxThreadsDim[2]);
    EXPECT_EQUAL(attribute(cudaDevAttrMaxGridDimX), properties.maxGridSize[0]);
    EXPECT_EQUAL(attribute(cudaDevAttrMaxGridDimY), properties.maxGridSize[1]);
    EXPECT_EQUAL(attribute(cudaDevAttrMultiProcessorCount), properties.multiProcessorCount);
    EXPECT_EQUAL(attribute(cudaDevAttrComputeCapabilityMajor), properties.major);
    EXPECT_EQUAL(attribute(cudaDevAttrComputeCapabilityMinor), properties.minor);
    EXPECT_EQUAL(attribute(cudaDevAttrMaxSharedMemoryPerBlock),
                 static_cast<int>(properties.sharedMemPerBlock));
    EXPECT_EQUAL(attribute(cudaDevAttrTotalConstantMemory),
                 static_cast<int>(properties.totalConstMem));
    // The properties that common helper functions query first.
    EXPECT_EQUAL(attribute(cudaDevAttrComputeMode), static_cast<int>(cudaComputeModeDefault));
    EXPECT(attribute(cudaDevAttrClockRate) >= 0);
    EXPECT(attribute(cudaDevAttrIntegrated) >= 0);
    EXPECT(attribute(cudaDevAttrConcurrentKernels) >= 0);
    EXPECT(attribute(cudaDevAttrAsyncEngineCount) >= 0);
    // Unsupported features are reported as such, so that a program can avoid them.
    EXPECT_EQUAL(attribute(cudaDevAttrCooperativeLaunch), 0);
    EXPECT(properties.maxThreadsPerBlock >= 64 && properties.sharedMemPerBlock >= 16384 &&
           properties.totalGlobalMem > 0);
    EXPECT(properties.maxThreadsPerMultiProcessor >= properties.maxThreadsPerBlock);
}

TEST(versions_are_those_of_a_toolkit) {
    int driver = 0, runtime = 0;
    REQUIRE(cudaDriverGetVersion(&driver));
    REQUIRE(cudaRuntimeGetVersion(&runtime));
    EXPECT(runtime / 1000 == 13 || runtime / 1000 == 12);
    EXPECT(driver >= runtime);
}

TEST(a_device_is_known_by_its_address_on_the_bus) {
    char address[64] = "";
    int device = -1;
    REQUIRE(cudaDeviceGetPCIBusId(address, sizeof address, 0));
    REQUIRE(cudaDeviceGetByPCIBusId(&device, address));
    EXPECT_EQUAL(device, 0);
}

TEST(functions_say_what_they_need) {
    cudaFuncAttributes attributes{};
    REQUIRE(cudaFuncGetAttributes(&attributes, with_shared));
    EXPECT_EQUAL(static_cast<int>(attributes.sharedSizeBytes), 400);
    EXPECT_EQUAL(attributes.maxThreadsPerBlock, 96);
    REQUIRE(cudaFuncGetAttributes(&attributes, plain));
    EXPECT_EQUAL(static_cast<int>(attributes.sharedSizeBytes), 0);
    EXPECT(attributes.maxThreadsPerBlock >= 64 && attributes.ptxVersion >= 50);
    REQUIRE(cudaFuncSetCacheConfig(plain, cudaFuncCachePreferL1));
    REQUIRE(cudaFuncSetAttribute(with_shared, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    REQUIRE(cudaDeviceSetCacheConfig(cudaFuncCachePreferShared));
}

TEST(an_occupancy_is_possible) {
    int blocks = -1, grid = -1, block = -1;
    REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 128, 0));
    EXPECT(blocks >= 1);
    REQUIRE(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain, 0, 0));
    EXPECT(grid >= 1 && block >= 32 && block % 32 == 0);
    REQUIRE(cudaOccupancyMaxPotentialBlockSize(&grid, &block, with_shared, 1000, 0));
    EXPECT(block <= 96);
}

TEST(priorities_and_flags_are_kept) {
    int least = -100, greatest = -100;
    REQUIRE(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(least >= greatest);
    cudaStream_t stream{};
    REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    unsigned flags = 0;
    int priority = 100;
    REQUIRE(cudaStreamGetFlags(stream, &flags));
    EXPECT_EQUAL(flags, static_cast<unsigned>(cudaStreamNonBlocking));
    REQUIRE(cudaStreamGetPriority(stream, &priority));
    EXPECT_EQUAL(priority, greatest);
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(pointers_say_where_they_lead) {
    OnDevice<int> memory(10);
    int on_host = 0;
    cudaPointerAttributes attributes{};
    REQUIRE(cudaPointerGetAttributes(&attributes, memory.data() + 3));
    EXPECT_EQUAL(static_cast<int>(attributes.type), static_cast<int>(cudaMemoryTypeDevice));
    EXPECT_EQUAL(attributes.device, 0);
    EXPECT(attributes.devicePointer == memory.data() + 3);
    REQUIRE(cudaPointerGetAttributes(&attributes, &on_host));
    EXPECT_EQUAL(static_cast<int>(attributes.type), static_cast<int>(cudaMemoryTypeUnregistered));
}

TEST(a_launch_can_be_described) {
    OnDevice<int> memory(64);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(64);
    REQUIRE(cudaLaunchKernelEx(&config, plain, memory.data()));
    int *pointer = memory.data();
    void *arguments[] = {&pointer};
    REQUIRE(cudaLaunchKernel(reinterpret_cast<const void *>(plain), dim3(1), dim3(64), arguments, 0,
                             nullptr));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(memory.to_host()[63], 63);
}

TEST(memory_comes_and_goes_in_the_order_of_a_stream) {
    cudaStream_t stream{};
    int *memory = nullptr, got[64] = {};
    REQUIRE(cudaStreamCreate(&stream));
    const cudaError_t code =
        cudaMallocAsync(reinterpret_cast<void **>(&memory), sizeof got, stream);
    if (code == cudaErrorNotSupported) {
        (void)cudaGetLastError();
        EXPECT_EQUAL(attribute(cudaDevAttrMemoryPoolsSupported), 0);
        SKIP("cudaMallocAsync() is not supported, as its attribute says");
    }
    REQUIRE(code);
    plain<<<1, 64, 0, stream>>>(memory);
    REQUIRE(cudaMemcpyAsync(got, memory, sizeof got, cudaMemcpyDeviceToHost, stream));
    REQUIRE(cudaFreeAsync(memory, stream));
    REQUIRE(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(got[63], 63);
    REQUIRE(cudaStreamDestroy(stream));
}

TEST(what_is_not_served_says_so) {
    EXPECT_CODE(cudaFreeMipmappedArray(nullptr), cudaErrorNotSupported);
    EXPECT_CODE(cudaGetLastError(), cudaErrorNotSupported);
    (void)cudaGetLastError();
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
