// A wrong call returns the code that CUDA documents, and the next correct call works.
#include "harness.h"

namespace {

__global__ void write(int *to, int value) { to[threadIdx.x] = value; }
__global__ __launch_bounds__(64) void bounded(int *to) { to[threadIdx.x] = 1; }
__global__ void share(int *to) {
    extern __shared__ int memory[];
    memory[threadIdx.x] = threadIdx.x;
    to[threadIdx.x] = memory[threadIdx.x];
}

// After an error, correct calls still work.
void works_again() {
    (void)cudaGetLastError();
    OnDevice<int> values(4);
    write<<<1, 4>>>(values.data(), 9);
    EXPECT_CODE(cudaGetLastError(), cudaSuccess);
    EXPECT_CODE(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQUAL(values.to_host()[3], 9);
}

TEST(launches_of_sizes_that_cannot_be_are_refused) {
    OnDevice<int> values(2048);
    const struct {
        dim3 grid, block;
        std::size_t shared;
        std::vector<cudaError_t> codes;
        const char *what;
    } wrong[] = {
        {dim3(0), dim3(1), 0, {cudaErrorInvalidConfiguration}, "no blocks"},
        {dim3(1), dim3(0), 0, {cudaErrorInvalidConfiguration}, "no threads"},
        {dim3(1), dim3(4096), 0, {cudaErrorInvalidConfiguration}, "too many threads"},
        {dim3(1), dim3(64, 64), 0, {cudaErrorInvalidConfiguration}, "too many threads in a plane"},
        {dim3(1), dim3(1, 1, 65), 0, {cudaErrorInvalidConfiguration}, "too deep a block"},
        {dim3(1, 65536), dim3(1), 0, {cudaErrorInvalidConfiguration}, "too high a grid"},
        {dim3(1, 1, 65536), dim3(1), 0, {cudaErrorInvalidConfiguration}, "too deep a grid"},
        {dim3(0x80000000U), dim3(1), 0, {cudaErrorInvalidConfiguration}, "too wide a grid"},
        {dim3(1), dim3(1), 1U << 30, {cudaErrorInvalidValue}, "too much shared memory"},
    };
    for (const auto &one : wrong) {
        share<<<one.grid, one.block, one.shared>>>(values.data());
        harness::expect_code(cudaGetLastError(), one.codes, one.what, __FILE__, __LINE__);
        EXPECT_CODE(cudaGetLastError(), cudaSuccess);
    }
    bounded<<<1, 128>>>(values.data());
    EXPECT_CODE(cudaGetLastError(), cudaErrorInvalidValue, cudaErrorLaunchOutOfResources,
                cudaErrorInvalidConfiguration);
    works_again();
}

TEST(an_error_stays_until_it_is_asked_for) {
    OnDevice<int> values(1);
    write<<<1, 5000>>>(values.data(), 1);
    EXPECT_CODE(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    EXPECT_CODE(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_CODE(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    EXPECT_CODE(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_CODE(cudaGetLastError(), cudaSuccess);
}

TEST(pointers_that_were_freed_or_never_given_are_refused) {
    int *memory = nullptr, value = 0;
    REQUIRE(cudaMalloc(reinterpret_cast<void **>(&memory), 1024));
    EXPECT_CODE(cudaFree(memory + 1), cudaErrorInvalidValue);
    REQUIRE(cudaFree(memory));
    EXPECT_CODE(cudaFree(memory), cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemset(memory, 0, 4), cudaErrorInvalidValue);
    EXPECT_CODE(cudaFree(&value), cudaErrorInvalidValue);
    EXPECT_CODE(cudaFree(nullptr), cudaSuccess);
    EXPECT_CODE(cudaFreeHost(&value), cudaErrorInvalidValue);
    EXPECT_CODE(cudaFreeHost(nullptr), cudaSuccess);
    EXPECT_CODE(cudaMemcpy(nullptr, &value, sizeof value, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_CODE(cudaMalloc(nullptr, 16), cudaErrorInvalidValue);
    works_again();
}

TEST(copies_that_leave_an_allocation_are_refused) {
    std::vector<char> host(5000);
    OnDevice<char> memory(4096), other(16);
    EXPECT_CODE(cudaMemcpy(memory.data(), host.data(), 5000, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemcpy(host.data(), memory.data() + 4000, 200, cudaMemcpyDeviceToHost),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMemcpy2D(memory.data(), 10, host.data(), 10, 20, 2, cudaMemcpyHostToDevice),
                cudaErrorInvalidPitchValue);
    EXPECT_CODE(cudaMemcpy(memory.data(), host.data(), 4, static_cast<cudaMemcpyKind>(17)),
                cudaErrorInvalidMemcpyDirection);
    works_again();
}

TEST(more_memory_than_there_is_is_refused) {
    void *memory = nullptr;
    EXPECT_CODE(cudaMalloc(&memory, std::size_t{1} << 50), cudaErrorMemoryAllocation);
    EXPECT_CODE(cudaMalloc(&memory, ~std::size_t{0}), cudaErrorMemoryAllocation);
    works_again();
}

TEST(devices_that_are_not_there_are_refused) {
    int count = 0, value = 0;
    cudaDeviceProp properties{};
    REQUIRE(cudaGetDeviceCount(&count));
    EXPECT(count >= 1);
    EXPECT_CODE(cudaSetDevice(count), cudaErrorInvalidDevice);
    EXPECT_CODE(cudaSetDevice(-1), cudaErrorInvalidDevice);
    EXPECT_CODE(cudaGetDeviceProperties(&properties, count), cudaErrorInvalidDevice);
    EXPECT_CODE(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count), cudaErrorInvalidDevice);
    EXPECT_CODE(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(99999), 0),
                cudaErrorInvalidValue);
    REQUIRE(cudaSetDevice(0));
    works_again();
}

int not_on_the_device = 0;
void not_a_kernel() {}

TEST(symbols_and_functions_that_are_not_the_devices_are_refused) {
    cudaFuncAttributes attributes{};
    EXPECT_CODE(
        cudaMemcpyToSymbol(&not_on_the_device, &not_on_the_device, 4, 0, cudaMemcpyHostToDevice),
        cudaErrorInvalidSymbol);
    EXPECT_CODE(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(not_a_kernel)),
                cudaErrorInvalidDeviceFunction);
    void *arguments[] = {nullptr};
    EXPECT_CODE(cudaLaunchKernel(reinterpret_cast<const void *>(not_a_kernel), dim3(1), dim3(1),
                                 arguments, 0, nullptr),
                cudaErrorInvalidDeviceFunction);
    REQUIRE(cudaFuncGetAttributes(&attributes, bounded));
    EXPECT_EQUAL(attributes.maxThreadsPerBlock, 64);
    works_again();
}

TEST(events_and_streams_that_do_not_fit_are_refused) {
    cudaEvent_t plain{}, fast{};
    float elapsed_ms = 0;
    REQUIRE(cudaEventCreate(&plain));
    REQUIRE(cudaEventCreateWithFlags(&fast, cudaEventDisableTiming));
    EXPECT_CODE(cudaEventElapsedTime(&elapsed_ms, plain, plain), cudaErrorInvalidResourceHandle);
    REQUIRE(cudaEventRecord(plain, nullptr));
    REQUIRE(cudaEventRecord(fast, nullptr));
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_CODE(cudaEventElapsedTime(&elapsed_ms, plain, fast), cudaErrorInvalidResourceHandle);
    EXPECT_CODE(cudaEventElapsedTime(&elapsed_ms, plain, plain), cudaSuccess);
    EXPECT_CODE(cudaEventCreateWithFlags(&fast, 0xff00), cudaErrorInvalidValue);
    EXPECT_CODE(cudaStreamCreateWithFlags(nullptr, 0), cudaErrorInvalidValue);
    REQUIRE(cudaEventDestroy(plain));
    works_again();
}

TEST(every_code_has_a_name_and_a_text) {
    EXPECT(std::strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") == 0);
    EXPECT(std::strcmp(cudaGetErrorName(cudaSuccess), "cudaSuccess") == 0);
    EXPECT(std::strcmp(cudaGetErrorString(cudaSuccess), "no error") == 0);
    EXPECT(std::strcmp(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument") == 0);
    EXPECT(std::strcmp(cudaGetErrorName(static_cast<cudaError_t>(12345)),
                       "unrecognized error code") == 0);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
