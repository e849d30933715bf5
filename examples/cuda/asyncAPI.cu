// The host goes on while the device works: copies, a kernel and events are queued, and the host
// counts until they are done.
#include "common/example.h"

#include <cuda_profiler_api.h>

namespace {

__global__ void increment(int *values, int count, int by) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] += by;
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "integers", 16 << 20, 1 << 20);
    const int count = static_cast<int>(options.size);
    constexpr int by = 26;
    constexpr unsigned block = 512;

    cudaDeviceProp device{};
    CHECK(cudaGetDeviceProperties(&device, 0));
    std::printf("asyncAPI: %d integers on %s\n", count, device.name);

    example::PinnedArray<int> host(options.size);
    for (int at = 0; at < count; at++) host[at] = at;
    const example::DeviceArray<int> values(options.size);
    CHECK(cudaMemset(values.data(), 255, values.bytes()));
    cudaEvent_t start{}, stop{};
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaProfilerStart());
    const double began_ms = example::now_ms();
    CHECK(cudaEventRecord(start, nullptr));
    CHECK(
        cudaMemcpyAsync(values.data(), host.data(), host.bytes(), cudaMemcpyHostToDevice, nullptr));
    increment<<<static_cast<unsigned>(example::divide_up(options.size, block)), block, 0,
                nullptr>>>(values.data(), count, by);
    CHECK_LAUNCH();
    CHECK(
        cudaMemcpyAsync(host.data(), values.data(), host.bytes(), cudaMemcpyDeviceToHost, nullptr));
    CHECK(cudaEventRecord(stop, nullptr));
    const double queued_ms = example::now_ms() - began_ms;
    CHECK(cudaProfilerStop());

    unsigned long asked = 0;
    cudaError_t state = cudaEventQuery(stop);
    for (; state == cudaErrorNotReady; state = cudaEventQuery(stop)) asked++;
    CHECK(state);
    float device_ms = 0;
    CHECK(cudaEventElapsedTime(&device_ms, start, stop));
    std::printf("queued in %.3f ms; the device took %.3f ms, in which the host asked %lu times\n",
                queued_ms, device_ms, asked);

    int wrong = 0;
    for (int at = 0; at < count; at++) wrong += host[at] != at + by;
    std::printf("%d of %d wrong (tolerance 0)\n", wrong, count);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    return example::verdict(wrong == 0 && device_ms > 0);
}
