// Each block reads the clock of its processor before and after its work: a minimum over shared
// memory.
#include "common/example.h"

#include <climits>
#include <ctime>

namespace {

constexpr unsigned block = 256;

// Block b finds the least of the 2 * blockDim.x values at `values` (the same for all blocks) less
// b.
__global__ void timed_minimum(const float *values, float *minima, clock_t *starts, clock_t *ends) {
    extern __shared__ float candidates[];
    const unsigned own = threadIdx.x;
    if (own == 0) starts[blockIdx.x] = clock();

    candidates[own] = values[own];
    candidates[own + blockDim.x] = values[own + blockDim.x];
    for (unsigned reach = blockDim.x; reach > 0; reach /= 2) {
        __syncthreads();
        if (own < reach && candidates[own + reach] < candidates[own])
            candidates[own] = candidates[own + reach];
    }
    if (own == 0) minima[blockIdx.x] = candidates[0] - static_cast<float>(blockIdx.x);

    __syncthreads();
    if (own == 0) ends[blockIdx.x] = clock();
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options = example::read_options(argc, argv, "blocks", 64, 64);
    const std::size_t blocks = options.size;
    example::Random random(3);
    const std::vector<float> values = random.floats(std::size_t{2} * block, -1000.0F, 1000.0F);
    float least = values[0];
    for (const float value : values) least = std::fmin(least, value);

    const example::DeviceArray<float> on_values(values), minima(blocks);
    const example::DeviceArray<clock_t> starts(blocks), ends(blocks);
    const double began_ms = example::now_ms();
    timed_minimum<<<static_cast<unsigned>(blocks), block, 2 * block * sizeof(float)>>>(
        on_values.data(), minima.data(), starts.data(), ends.data());
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    const double took_ms = example::now_ms() - began_ms;

    const std::vector<float> got = minima.to_host();
    const std::vector<clock_t> began = starts.to_host(), ended = ends.to_host();
    std::size_t wrong = 0, backwards = 0;
    double clocks = 0;
    for (std::size_t at = 0; at < blocks; at++) {
        wrong += got[at] != least - static_cast<float>(at);
        backwards += ended[at] <= began[at];
        clocks += static_cast<double>(ended[at] - began[at]);
    }
    std::printf("clock: %zu blocks of %u threads, %.3f ms, %.0f clocks for a block on average\n",
                blocks, block, took_ms, clocks / static_cast<double>(blocks));
    std::printf("%zu minima wrong (tolerance 0), %zu clocks did not advance\n", wrong, backwards);
    return example::verdict(wrong == 0 && backwards == 0);
}
