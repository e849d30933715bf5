// Takes the noise out of a picture: each pixel becomes a weighted mean of its neighbours. The
// nearest ones count by their color (KNN), or by how much their own neighbours are like the pixel's
// (non-local means, NLM), exactly or for a block at a time.
#include "common/image.h"

namespace {

constexpr int window = 3; // pixels on each side that are looked at
constexpr int patch = 3;  // pixels on each side that are compared by NLM
constexpr int side_of_block = 8;
constexpr float window_area = (2.0F * window + 1) * (2.0F * window + 1),
                patch_area = (2.0F * patch + 1) * (2.0F * patch + 1);
// How much a difference of colors lowers the weight, and how far the result goes towards the mean.
// Where few neighbours are like the pixel (a smaller share than `share_min`), the mean says little:
// then the pixel mostly stays as it is.
constexpr float knn_noise = 1.0F / (0.32F * 0.32F), nlm_noise = 1.0F / (1.45F * 1.45F);
constexpr float weight_min = 0.02F, share_min = 0.66F, towards_mean = 0.8F, towards_pixel = 0.2F;

struct Color {
    float r, g, b;
};
struct Sum {
    Color color{0, 0, 0};
    float weights = 0;
    int alike = 0;
    __host__ __device__ void add(Color c, float weight) {
        color = {color.r + weight * c.r, color.g + weight * c.g, color.b + weight * c.b};
        weights += weight;
        alike += weight > weight_min ? 1 : 0;
    }
    __host__ __device__ Color between(Color own) const {
        const float k =
            static_cast<float>(alike) > share_min * window_area ? towards_mean : towards_pixel;
        const auto mix = [this, k](float sum, float of) { return of + k * (sum / weights - of); };
        return {mix(color.r, own.r), mix(color.g, own.g), mix(color.b, own.b)};
    }
};

__host__ __device__ inline float distance2(Color a, Color b) {
    return (a.r - b.r) * (a.r - b.r) + (a.g - b.g) * (a.g - b.g) + (a.b - b.b) * (a.b - b.b);
}

#ifdef __CUDA_ARCH__
__device__ inline float exponential(float x) { return __expf(x); }
#else
__host__ inline float exponential(float x) { return std::exp(x); }
#endif

__host__ __device__ inline uchar4 quantized(Color c) {
    const auto channel = [](float value) {
        return static_cast<unsigned char>(fminf(fmaxf(value, 0.0F), 1.0F) * 255.0F + 0.5F);
    };
    return make_uchar4(channel(c.r), channel(c.g), channel(c.b), 255);
}

struct Knn {
    template <typename Fetch>
    __host__ __device__ static Color filtered(const Fetch &fetch, int x, int y) {
        const Color own = fetch(x, y);
        Sum sum;
        for (int j = -window; j <= window; j++)
            for (int i = -window; i <= window; i++) {
                const Color other = fetch(x + i, y + j);
                sum.add(other, exponential(-(static_cast<float>(i * i + j * j) / window_area +
                                             knn_noise * distance2(own, other))));
            }
        return sum.between(own);
    }
};

template <typename Fetch>
__host__ __device__ float nlm_weight(const Fetch &fetch, int x, int y, int i, int j) {
    float difference = 0;
    for (int n = -patch; n <= patch; n++)
        for (int m = -patch; m <= patch; m++)
            difference += distance2(fetch(x + m, y + n), fetch(x + i + m, y + j + n));
    return exponential(
        -(nlm_noise * difference + static_cast<float>(i * i + j * j) / (window_area * patch_area)));
}

struct Nlm {
    template <typename Fetch>
    __host__ __device__ static Color filtered(const Fetch &fetch, int x, int y) {
        Sum sum;
        for (int j = -window; j <= window; j++)
            for (int i = -window; i <= window; i++)
                sum.add(fetch(x + i, y + j), nlm_weight(fetch, x, y, i, j));
        return sum.between(fetch(x, y));
    }
};

struct FromTexture {
    cudaTextureObject_t texture;
    __device__ Color operator()(int x, int y) const {
        const float4 color =
            tex2D<float4>(texture, static_cast<float>(x) + 0.5F, static_cast<float>(y) + 0.5F);
        return {color.x, color.y, color.z};
    }
};

template <typename Filter>
__global__ void denoise(uchar4 *to, cudaTextureObject_t texture, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        to[y * width + x] = quantized(Filter::filtered(FromTexture{texture}, x, y));
}

// All pixels of a block use the weights of its middle one: the threads share the work of finding
// them.
struct Shared {};
template <>
__global__ void denoise<Shared>(uchar4 *to, cudaTextureObject_t texture, int width, int height) {
    constexpr int row = 2 * window + 1;
    __shared__ float weights[row * row];
    const FromTexture fetch{texture};
    const int left = blockIdx.x * blockDim.x, top = blockIdx.y * blockDim.y;
    const int x = left + static_cast<int>(threadIdx.x), y = top + static_cast<int>(threadIdx.y),
              own = threadIdx.y * blockDim.x + threadIdx.x;
    if (own < row * row)
        weights[own] = nlm_weight(fetch, left + side_of_block / 2, top + side_of_block / 2,
                                  own % row - window, own / row - window);
    __syncthreads();
    if (x >= width || y >= height) return;
    Sum sum;
    for (int at = 0; at < row * row; at++)
        sum.add(fetch(x + at % row - window, y + at / row - window), weights[at]);
    to[y * width + x] = quantized(sum.between(fetch(x, y)));
}

struct FromMemory {
    const uchar4 *pixels;
    int width, height;
    __host__ __device__ Color operator()(int x, int y) const {
        x = x < 0 ? 0 : x >= width ? width - 1 : x;
        y = y < 0 ? 0 : y >= height ? height - 1 : y;
        const uchar4 pixel = pixels[static_cast<std::size_t>(y) * width + x];
        return {static_cast<float>(pixel.x) / 255.0F, static_cast<float>(pixel.y) / 255.0F,
                static_cast<float>(pixel.z) / 255.0F};
    }
};

template <typename Filter> Color expected_at(const FromMemory &fetch, int x, int y) {
    return Filter::filtered(fetch, x, y);
}
template <> Color expected_at<Shared>(const FromMemory &fetch, int x, int y) {
    const int middle_x = x / side_of_block * side_of_block + side_of_block / 2,
              middle_y = y / side_of_block * side_of_block + side_of_block / 2;
    Sum sum;
    for (int j = -window; j <= window; j++)
        for (int i = -window; i <= window; i++)
            sum.add(fetch(x + i, y + j), nlm_weight(fetch, middle_x, middle_y, i, j));
    return sum.between(fetch(x, y));
}

template <typename Filter>
bool run(const char *name, const std::vector<uchar4> &pixels, int width, int height) {
    const example::Texture<uchar4> texture(pixels, width, height, cudaFilterModePoint);
    const example::DeviceArray<uchar4> result(pixels.size());
    const dim3 threads(side_of_block, side_of_block),
        blocks(example::divide_up(width, side_of_block), example::divide_up(height, side_of_block));
    example::EventTimer timer;
    timer.start();
    denoise<Filter><<<blocks, threads>>>(result.data(), texture.object(), width, height);
    CHECK_LAUNCH();
    const double took_ms = timer.stop_ms();

    std::vector<uchar4> expected(pixels.size());
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            expected[static_cast<std::size_t>(y) * width + x] =
                quantized(expected_at<Filter>({pixels.data(), width, height}, x, y));
    // A weight that is a hair above or below `weight_min` changes a pixel that has just as many
    // neighbours alike as are needed: few pixels may be off by more than a step.
    const example::Distance far =
        example::distance(result.to_host().data(), expected.data(), 4 * expected.size());
    constexpr double mean_max = 0.02, differing_max = 0.01;
    const double differing =
        static_cast<double>(far.differing) / (4.0 * static_cast<double>(expected.size()));
    std::printf(
        "%-11s %8.3f ms; mean difference %.5f of 255 (tolerance %.2f), %.4f %% differ (tolerance %.0f %%)\n",
        name, took_ms, far.mean, mean_max, 100 * differing, 100 * differing_max);
    return far.mean < mean_max && differing < differing_max;
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options = example::read_options(argc, argv, "pixels in a row", 320, 96);
    const int width = static_cast<int>(options.size), height = width * 3 / 4;
    const std::vector<uchar4> pixels = example::color_picture(width, height);
    std::printf("imageDenoising: %d x %d pixels, window %d, patch %d\n", width, height,
                2 * window + 1, 2 * patch + 1);
    bool passed = run<Knn>("KNN", pixels, width, height);
    passed &= run<Nlm>("NLM", pixels, width, height);
    passed &= run<Shared>("NLM, blocks", pixels, width, height);
    return example::verdict(passed);
}
