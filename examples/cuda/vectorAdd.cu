// The sum of two vectors: the smallest whole program.
#include "common/example.h"

namespace {

__global__ void add(const float *a, const float *b, float *sum, std::size_t count) {
    const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) sum[at] = a[at] + b[at];
}

} // namespace

int main(int argc, char **argv) {
    // Not a multiple of the block, so that some threads have nothing to do.
    const example::Options options = example::read_options(argc, argv, "values", 5'000'000, 50'000);
    constexpr unsigned block = 256;
    example::Random random(1);
    const std::vector<float> a = random.floats(options.size, -1.0F, 1.0F),
                             b = random.floats(options.size, -1.0F, 1.0F);

    const double began_ms = example::now_ms();
    const example::DeviceArray<float> device_a(a), device_b(b), device_sum(options.size);
    const unsigned blocks = static_cast<unsigned>(example::divide_up(options.size, block));
    add<<<blocks, block>>>(device_a.data(), device_b.data(), device_sum.data(), options.size);
    CHECK_LAUNCH();
    const std::vector<float> sum = device_sum.to_host();
    const double took_ms = example::now_ms() - began_ms;

    // One addition is correctly rounded everywhere: the result is the same to the last bit.
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < options.size; at++) wrong += sum[at] != a[at] + b[at];
    std::printf(
        "vectorAdd: %zu values, %u blocks of %u threads, %.3f ms with copies, %zu wrong (tolerance 0)\n",
        options.size, blocks, block, took_ms, wrong);
    return example::verdict(wrong == 0);
}
