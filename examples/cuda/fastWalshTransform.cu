// The fast Walsh-Hadamard transform, and with it the dyadic convolution: result[i] = sum over k of
// data[i xor k] * kernel[k].
//
// Long strides go through global memory four values at a time; what fits into a block is done in
// (dynamic) shared memory.
#include "common/example.h"

namespace {

constexpr int shared_log2_max = 11; // 2,048 floats, 8 KiB, 512 threads

// The transform of four values: sums and differences, twice.
__device__ inline void four(float &a, float &b, float &c, float &d) {
    const float sum_ac = a + c, sum_bd = b + d, difference_ac = a - c, difference_bd = b - d;
    a = sum_ac + sum_bd;
    b = sum_ac - sum_bd;
    c = difference_ac + difference_bd;
    d = difference_ac - difference_bd;
}

// Two steps of the transform, those with strides `stride` and twice that, over all of the data.
__global__ void long_strides(float *data, int quarter, int stride) {
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    if (own >= quarter) return;
    const int inside = own & (stride - 1), at = (own - inside) * 4 + inside;
    four(data[at], data[at + stride], data[at + 2 * stride], data[at + 3 * stride]);
}

// All the steps below 2^log2, each block for one run of that many values.
__global__ void short_strides(float *data, int log2) {
    extern __shared__ float run[];
    const int length = 1 << log2;
    float *const own_run = data + (static_cast<std::size_t>(blockIdx.x) << log2);
    for (int at = threadIdx.x; at < length; at += blockDim.x) run[at] = own_run[at];

    int stride = length >> 2;
    for (; stride > 0; stride >>= 2) {
        __syncthreads();
        const int inside = threadIdx.x & (stride - 1),
                  at = (static_cast<int>(threadIdx.x) - inside) * 4 + inside;
        four(run[at], run[at + stride], run[at + 2 * stride], run[at + 3 * stride]);
    }
    if (log2 & 1) {
        // One step is left, that between neighbours.
        __syncthreads();
        for (int at = 2 * threadIdx.x; at < length; at += 2 * blockDim.x) {
            const float a = run[at], b = run[at + 1];
            run[at] = a + b;
            run[at + 1] = a - b;
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < length; at += blockDim.x) own_run[at] = run[at];
}

__global__ void multiply(float *data, const float *by, int count, float scale) {
    const int threads = blockDim.x * gridDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += threads)
        data[at] *= by[at] * scale;
}

void transform(float *data, int log2) {
    constexpr int block = 256;
    const int count = 1 << log2;
    int left = log2;
    for (; left > shared_log2_max; left -= 2) {
        const int quarter = count / 4;
        long_strides<<<static_cast<unsigned>(example::divide_up(quarter, block)), block>>>(
            data, quarter, 1 << (left - 2));
        CHECK_LAUNCH();
    }
    const int length = 1 << left;
    short_strides<<<count / length, length / 4, length * sizeof(float)>>>(data, left);
    CHECK_LAUNCH();
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "values, rounded up to a power of two", 1 << 20, 1 << 16);
    int log2 = 2;
    while ((std::size_t{1} << log2) < options.size && log2 < 28) log2++;
    const int count = 1 << log2, kernel_count = count < 128 ? count : 128;
    example::Random random(5);
    const std::vector<float> data = random.floats(count, 0.0F, 1.0F);
    std::vector<float> kernel = random.floats(kernel_count, 0.0F, 1.0F);
    kernel.resize(count, 0.0F);

    const example::DeviceArray<float> on_data(data), on_kernel(kernel);
    example::EventTimer timer;
    timer.start();
    transform(on_data.data(), log2);
    transform(on_kernel.data(), log2);
    multiply<<<128, 256>>>(on_data.data(), on_kernel.data(), count,
                           1.0F / static_cast<float>(count));
    CHECK_LAUNCH();
    transform(on_data.data(), log2);
    const double took_ms = timer.stop_ms();

    const std::vector<float> got = on_data.to_host();
    std::vector<double> expected(count);
    for (int at = 0; at < count; at++)
        for (int k = 0; k < kernel_count; k++)
            expected[at] += static_cast<double>(data[at ^ k]) * kernel[k];
    const double difference = example::largest_difference(got, expected);
    constexpr double tolerance =
        1e-5; // of the largest value: the sums of all values come and go in single precision
    std::printf("fastWalshTransform: %d values, kernel of %d, 3 transforms, %.3f ms\n", count,
                kernel_count, took_ms);
    std::printf("largest difference %.2e of the largest value (tolerance %.0e)\n", difference,
                tolerance);
    return example::verdict(difference < tolerance);
}
