// The product of two matrices, tile by tile through shared memory, on a stream of its own, with
// events for the time.
#include "common/example.h"

namespace {

// C (rows x columns) = A (rows x depth) B (depth x columns); all are multiples of `tile`.
template <int tile>
__global__ void multiply(float *c, const float *a, const float *b, int depth, int columns) {
    __shared__ float tile_a[tile][tile], tile_b[tile][tile];
    const int column = blockIdx.x * tile + threadIdx.x, row = blockIdx.y * tile + threadIdx.y;
    float sum = 0;
    for (int from = 0; from < depth; from += tile) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * depth + from + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(from + threadIdx.y) * columns + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < tile; k++) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();
    }
    c[row * columns + column] = sum;
}

void fill(const example::PinnedArray<float> &array, example::Random &random) {
    for (std::size_t at = 0; at < array.size(); at++) array[at] = random.between(-1.0F, 1.0F);
}

// The largest error, as a share of the sum of the absolute values of the products.
double largest_error(const float *c, const float *a, const float *b, int rows, int depth,
                     int columns) {
    double largest = 0;
    std::vector<double> sums(columns), sizes(columns);
    for (int row = 0; row < rows; row++) {
        sums.assign(columns, 0);
        sizes.assign(columns, 0);
        for (int k = 0; k < depth; k++) {
            const double left = a[static_cast<std::size_t>(row) * depth + k];
            for (int column = 0; column < columns; column++) {
                const double product = left * b[static_cast<std::size_t>(k) * columns + column];
                sums[column] += product;
                sizes[column] += std::fabs(product);
            }
        }
        for (int column = 0; column < columns; column++) {
            const double error =
                std::fabs(c[static_cast<std::size_t>(row) * columns + column] - sums[column]) /
                sizes[column];
            if (!(error <= largest)) largest = error;
        }
    }
    return largest;
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "columns, rounded up to a multiple of 32", 640, 256, 30);
    const int columns = static_cast<int>(example::divide_up(options.size, 32) * 32), rows = columns,
              depth = columns;
    example::Random random(6);
    const example::PinnedArray<float> a(static_cast<std::size_t>(rows) * depth),
        b(static_cast<std::size_t>(depth) * columns), c(static_cast<std::size_t>(rows) * columns);
    fill(a, random);
    fill(b, random);

    cudaDeviceProp device{};
    CHECK(cudaGetDeviceProperties(&device, 0));
    const int tile = rows % 32 == 0 && device.maxThreadsPerBlock >= 1024 ? 32 : 16;
    cudaStream_t stream{};
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const example::DeviceArray<float> on_a(a.size()), on_b(b.size()), on_c(c.size());
    CHECK(cudaMemcpyAsync(on_a.data(), a.data(), a.bytes(), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(on_b.data(), b.data(), b.bytes(), cudaMemcpyHostToDevice, stream));

    const dim3 threads(tile, tile), blocks(columns / tile, rows / tile);
    const auto launch = [&] {
        if (tile == 32)
            multiply<32><<<blocks, threads, 0, stream>>>(on_c.data(), on_a.data(), on_b.data(),
                                                         depth, columns);
        else
            multiply<16><<<blocks, threads, 0, stream>>>(on_c.data(), on_a.data(), on_b.data(),
                                                         depth, columns);
        CHECK_LAUNCH();
    };
    launch();
    CHECK(cudaStreamSynchronize(stream));
    example::EventTimer timer(stream);
    timer.start();
    for (std::size_t repeat = 0; repeat < options.repeats; repeat++) launch();
    const double took_ms = timer.stop_ms() / static_cast<double>(options.repeats);
    CHECK(cudaMemcpyAsync(c.data(), on_c.data(), c.bytes(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));

    const double error = largest_error(c.data(), a.data(), b.data(), rows, depth, columns);
    constexpr double tolerance = 1e-6;
    std::printf(
        "matrixMul: A %d x %d, B %d x %d, tiles of %d on %s (compute capability %d.%d), %.3f ms, %.2f GFlop/s\n",
        rows, depth, depth, columns, tile, device.name, device.major, device.minor, took_ms,
        2e-6 * rows * depth * columns / took_ms);
    std::printf("largest error %.2e of the products' sizes (tolerance %.0e)\n", error, tolerance);
    return example::verdict(error < tolerance);
}
