// The mean over a square around each pixel, by sums that slide along rows and then along columns,
// done several times over.
#include "common/image.h"

namespace {

constexpr unsigned block = 64;

__host__ __device__ inline unsigned packed(float4 color) {
    const auto channel = [](float value) {
        return static_cast<unsigned>(fminf(fmaxf(value, 0.0F), 1.0F) * 255.0F + 0.5F);
    };
    return channel(color.x) | channel(color.y) << 8 | channel(color.z) << 16 |
           channel(color.w) << 24;
}

__device__ inline float4 unpacked(unsigned pixel) {
    constexpr float share = 1.0F / 255.0F;
    return make_float4(
        static_cast<float>(pixel & 255) * share, static_cast<float>(pixel >> 8 & 255) * share,
        static_cast<float>(pixel >> 16 & 255) * share, static_cast<float>(pixel >> 24) * share);
}

__device__ inline void add(float4 &sum, float4 color, float times) {
    sum.x += times * color.x;
    sum.y += times * color.y;
    sum.z += times * color.z;
    sum.w += times * color.w;
}

__device__ inline float4 scaled(float4 color, float by) {
    return make_float4(color.x * by, color.y * by, color.z * by, color.w * by);
}

// One thread for each row, through the texture, which repeats the edge.
__global__ void mean_of_rows(unsigned *to, cudaTextureObject_t texture, int width, int height,
                             int radius) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height) return;
    const float y = static_cast<float>(row) + 0.5F,
                scale = 1.0F / static_cast<float>(2 * radius + 1);
    float4 sum = make_float4(0, 0, 0, 0);
    for (int x = -radius; x < radius; x++)
        add(sum, tex2D<float4>(texture, static_cast<float>(x) + 0.5F, y), 1.0F);
    for (int x = 0; x < width; x++) {
        add(sum, tex2D<float4>(texture, static_cast<float>(x + radius) + 0.5F, y), 1.0F);
        to[row * width + x] = packed(scaled(sum, scale));
        add(sum, tex2D<float4>(texture, static_cast<float>(x - radius) + 0.5F, y), -1.0F);
    }
}

// One thread for each column, through global memory: neighbouring threads read neighbouring pixels.
__global__ void mean_of_columns(unsigned *to, const unsigned *from, int width, int height,
                                int radius) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width) return;
    const auto pixel = [&](int y) {
        return unpacked(from[min(max(y, 0), height - 1) * width + x]);
    };
    const float scale = 1.0F / static_cast<float>(2 * radius + 1);
    float4 sum = make_float4(0, 0, 0, 0);
    for (int y = -radius; y < radius; y++) add(sum, pixel(y), 1.0F);
    for (int y = 0; y < height; y++) {
        add(sum, pixel(y + radius), 1.0F);
        to[y * width + x] = packed(scaled(sum, scale));
        add(sum, pixel(y - radius), -1.0F);
    }
}

// Means along one direction, each summed anew. `along` and `across` are the distances between
// pixels in memory.
void mean(std::vector<uchar4> &pixels, int lines, int across, int length, int along, int radius) {
    const auto edge = [length](int at) { return at < 0 ? 0 : at >= length ? length - 1 : at; };
    std::vector<uchar4> line(length);
    for (int of = 0; of < lines; of++) {
        for (int at = 0; at < length; at++) {
            int sums[4] = {};
            for (int k = -radius; k <= radius; k++) {
                const uchar4 pixel = pixels[of * across + edge(at + k) * along];
                sums[0] += pixel.x, sums[1] += pixel.y, sums[2] += pixel.z, sums[3] += pixel.w;
            }
            // The nearest whole number; the width of the square is odd, so that there is no tie.
            const int wide = 2 * radius + 1;
            const auto rounded = [wide](int sum) {
                return static_cast<unsigned char>((sum + wide / 2) / wide);
            };
            line[at] =
                make_uchar4(rounded(sums[0]), rounded(sums[1]), rounded(sums[2]), rounded(sums[3]));
        }
        for (int at = 0; at < length; at++) pixels[of * across + at * along] = line[at];
    }
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "pixels in a row and a column", 1024, 256);
    const int side = static_cast<int>(options.size), radius = 10, rounds = 2;
    std::vector<uchar4> pixels = example::color_picture(side, side);

    example::Texture<uchar4> texture(pixels, side, side, cudaFilterModePoint);
    const example::DeviceArray<unsigned> rows(pixels.size()), result(pixels.size());
    const unsigned blocks = static_cast<unsigned>(example::divide_up(side, block));
    example::EventTimer timer;
    timer.start();
    for (int round = 0; round < rounds; round++) {
        // Each round filters what the last one gave: it goes back into the texture's memory, on the
        // device.
        if (round > 0)
            texture.fill(reinterpret_cast<const uchar4 *>(result.data()), cudaMemcpyDeviceToDevice);
        mean_of_rows<<<blocks, block>>>(rows.data(), texture.object(), side, side, radius);
        mean_of_columns<<<blocks, block>>>(result.data(), rows.data(), side, side, radius);
        CHECK_LAUNCH();
    }
    const double took_ms = timer.stop_ms();

    for (int round = 0; round < rounds; round++) {
        mean(pixels, side, side, side, 1, radius);
        mean(pixels, side, 1, side, side, radius);
    }
    // Sums that slide gather errors of rounding, which can turn a half the other way once in each
    // of the passes.
    const example::Distance far =
        example::distance(result.to_host().data(), pixels.data(), 4 * pixels.size());
    constexpr int tolerance = 1;
    constexpr double mean_max = 0.01;
    std::printf("boxFilter: %d x %d pixels, radius %d, %d rounds, %.3f ms\n", side, side, radius,
                rounds, took_ms);
    std::printf("largest difference %d of 255 (tolerance %d), mean %.5f (tolerance %.2f)\n",
                far.largest, tolerance, far.mean, mean_max);
    return example::verdict(far.largest <= tolerance && far.mean < mean_max);
}
