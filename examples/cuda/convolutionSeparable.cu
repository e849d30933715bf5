// A picture convolved with a separable filter: rows, then columns; the filter is in constant
// memory, the tiles in shared memory.
#include "common/example.h"

namespace {

constexpr int radius = 8;
constexpr int taps = 2 * radius + 1;
__constant__ float filter[taps];

// A block of row_block x row_lines threads makes row_results results per thread, side by side.
constexpr int row_block = 16, row_lines = 4, row_results = 8, row_tile = row_block * row_results;
// The same, one below the other.
constexpr int column_block = 16, column_lines = 8, column_results = 8,
              column_tile = column_lines * column_results;

// Beyond the edge, pixels are 0.
__global__ void convolve_rows(float *to, const float *from, int width, int height, int pitch) {
    __shared__ float tile[row_lines][row_tile + 2 * radius];
    const int left = blockIdx.x * row_tile - radius, y = blockIdx.y * row_lines + threadIdx.y;
    for (int at = threadIdx.x; at < row_tile + 2 * radius; at += row_block) {
        const int x = left + at;
        tile[threadIdx.y][at] = x >= 0 && x < width && y < height ? from[y * pitch + x] : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int result = 0; result < row_results; result++) {
        const int at = threadIdx.x + result * row_block, x = left + radius + at;
        if (x >= width || y >= height) break;
        float sum = 0;
#pragma unroll
        for (int tap = 0; tap < taps; tap++)
            sum += filter[tap] * tile[threadIdx.y][at + taps - 1 - tap];
        to[y * pitch + x] = sum;
    }
}

__global__ void convolve_columns(float *to, const float *from, int width, int height, int pitch) {
    // One column more than there are threads: those of a column are then in different banks.
    __shared__ float tile[column_block][column_tile + 2 * radius + 1];
    const int top = blockIdx.y * column_tile - radius, x = blockIdx.x * column_block + threadIdx.x;
    for (int at = threadIdx.y; at < column_tile + 2 * radius; at += column_lines) {
        const int y = top + at;
        tile[threadIdx.x][at] = y >= 0 && y < height && x < width ? from[y * pitch + x] : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int result = 0; result < column_results; result++) {
        const int at = threadIdx.y + result * column_lines, y = top + radius + at;
        if (y >= height || x >= width) break;
        float sum = 0;
#pragma unroll
        for (int tap = 0; tap < taps; tap++)
            sum += filter[tap] * tile[threadIdx.x][at + taps - 1 - tap];
        to[y * pitch + x] = sum;
    }
}

std::vector<double> reference(const std::vector<float> &picture, const std::vector<float> &weights,
                              int width, int height) {
    std::vector<double> rows(picture.size()), both(picture.size());
    const auto at = [width](int x, int y) { return static_cast<std::size_t>(y) * width + x; };
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int k = -radius; k <= radius; k++)
                if (x + k >= 0 && x + k < width)
                    rows[at(x, y)] +=
                        static_cast<double>(picture[at(x + k, y)]) * weights[radius - k];
    for (int y = 0; y < height; y++)
        for (int k = -radius; k <= radius; k++)
            for (int x = 0; x < width && y + k >= 0 && y + k < height; x++)
                both[at(x, y)] += rows[at(x, y + k)] * weights[radius - k];
    return both;
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "pixels in a row and a column", 2000, 500, 16);
    const int width = static_cast<int>(options.size), height = width;
    const int pitch = static_cast<int>(example::divide_up(width, 32) * 32);
    example::Random random(4);
    const std::vector<float> picture = random.floats(options.size * options.size, 0.0F, 16.0F),
                             weights = random.floats(taps, 0.0F, 1.0F);
    CHECK(cudaMemcpyToSymbol(filter, weights.data(), sizeof(float) * taps));

    const std::size_t row = width * sizeof(float), pitch_bytes = pitch * sizeof(float);
    const std::size_t cells = static_cast<std::size_t>(pitch) * height;
    const example::DeviceArray<float> from(cells), between(cells), to(cells);
    CHECK(cudaMemcpy2D(from.data(), pitch_bytes, picture.data(), row, row, height,
                       cudaMemcpyHostToDevice));

    const dim3 row_threads(row_block, row_lines), column_threads(column_block, column_lines);
    const dim3 row_blocks(example::divide_up(width, row_tile),
                          example::divide_up(height, row_lines));
    const dim3 column_blocks(example::divide_up(width, column_block),
                             example::divide_up(height, column_tile));
    const auto launch = [&] {
        convolve_rows<<<row_blocks, row_threads>>>(between.data(), from.data(), width, height,
                                                   pitch);
        convolve_columns<<<column_blocks, column_threads>>>(to.data(), between.data(), width,
                                                            height, pitch);
        CHECK_LAUNCH();
    };
    launch();
    CHECK(cudaDeviceSynchronize());
    example::EventTimer timer;
    timer.start();
    for (std::size_t repeat = 0; repeat < options.repeats; repeat++) launch();
    const double took_ms = timer.stop_ms() / static_cast<double>(options.repeats);

    std::vector<float> got(picture.size());
    CHECK(
        cudaMemcpy2D(got.data(), row, to.data(), pitch_bytes, row, height, cudaMemcpyDeviceToHost));
    const double difference =
        example::largest_difference(got, reference(picture, weights, width, height));
    constexpr double tolerance = 1e-6; // of the largest value: two sums of 17 products each
    std::printf("convolutionSeparable: %d x %d pixels, %d taps, %.3f ms, %.1f million pixels/s\n",
                width, height, taps, took_ms, 1e-3 * width * height / took_ms);
    std::printf("largest difference %.2e of the largest value (tolerance %.0e)\n", difference,
                tolerance);
    return example::verdict(difference < tolerance);
}
