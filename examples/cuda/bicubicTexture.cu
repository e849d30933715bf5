// Enlarges a picture by texture look-ups: nearest pixel, linear, and cubic by four linear look-ups
// or sixteen exact ones.
#include "common/image.h"

namespace {

// A part of the picture around its middle, enlarged: pixel (x, y) of the result shows this place of
// the picture. fmaf() says how it is rounded: a place between two pixels must be the same one for
// host and device.
struct View {
    float middle_x, middle_y, step;
    __host__ __device__ float x(int column) const {
        return fmaf(static_cast<float>(column) + 0.5F - middle_x, step, middle_x);
    }
    __host__ __device__ float y(int row) const {
        return fmaf(static_cast<float>(row) + 0.5F - middle_y, step, middle_y);
    }
};

// The four weights of a cubic B-spline, which smooths, and of Catmull-Rom's, which goes through the
// pixels.
struct Weights {
    float w[4];
};
__host__ __device__ inline Weights b_spline(float a) {
    const float rest = 1.0F - a;
    return {{rest * rest * rest / 6.0F, (a * a * (3.0F * a - 6.0F) + 4.0F) / 6.0F,
             (rest * rest * (3.0F * rest - 6.0F) + 4.0F) / 6.0F, a * a * a / 6.0F}};
}
__host__ __device__ inline Weights catmull_rom(float a) {
    return {{a * (a * (1.0F - 0.5F * a) - 0.5F), a * a * (1.5F * a - 2.5F) + 1.0F,
             a * (a * (2.0F - 1.5F * a) + 0.5F), a * a * (0.5F * a - 0.5F)}};
}

struct Direct { // what the texture unit gives: the nearest pixel or linear, as the texture says
    template <typename Fetch>
    __host__ __device__ static float sample(const Fetch &fetch, float x, float y) {
        return fetch(x, y);
    }
};

// Two neighbours with weights g and h are one linear look-up between them, at h / (g + h), times g
// + h.
struct Spline {
    template <typename Fetch>
    __host__ __device__ static float sample(const Fetch &fetch, float x, float y) {
        const float left = floorf(x - 0.5F), top = floorf(y - 0.5F);
        const Weights across = b_spline(x - 0.5F - left), down = b_spline(y - 0.5F - top);
        float sum = 0;
        for (int row = 0; row < 4; row += 2) {
            const float share_y = down.w[row] + down.w[row + 1],
                        at_y = top + row - 0.5F + down.w[row + 1] / share_y;
            for (int column = 0; column < 4; column += 2) {
                const float share_x = across.w[column] + across.w[column + 1];
                sum += share_x * share_y *
                       fetch(left + column - 0.5F + across.w[column + 1] / share_x, at_y);
            }
        }
        return sum;
    }
};

struct Through {
    template <typename Fetch>
    __host__ __device__ static float sample(const Fetch &fetch, float x, float y) {
        const float left = floorf(x - 0.5F), top = floorf(y - 0.5F);
        const Weights across = catmull_rom(x - 0.5F - left), down = catmull_rom(y - 0.5F - top);
        float sum = 0;
        for (int row = 0; row < 4; row++)
            for (int column = 0; column < 4; column++)
                sum +=
                    across.w[column] * down.w[row] * fetch(left + column - 0.5F, top + row - 0.5F);
        return sum;
    }
};

__host__ __device__ inline unsigned char quantized(float value) {
    return static_cast<unsigned char>(fminf(fmaxf(value, 0.0F), 1.0F) * 255.0F + 0.5F);
}

template <typename Method>
__global__ void render(uchar4 *to, cudaTextureObject_t texture, View view, int width, int height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x,
              row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const auto fetch = [texture](float x, float y) { return tex2D<float>(texture, x, y); };
    const unsigned char gray = quantized(Method::sample(fetch, view.x(column), view.y(row)));
    to[row * width + column] = make_uchar4(gray, gray, gray, 255);
}

// What the texture unit is documented to do: pixel centres lie at halves, and linear weights have 8
// bits.
struct Software {
    const unsigned char *pixels;
    int width, height;
    bool linear;
    __host__ __device__ float pixel(int x, int y) const {
        x = x < 0 ? 0 : x >= width ? width - 1 : x;
        y = y < 0 ? 0 : y >= height ? height - 1 : y;
        return static_cast<float>(pixels[static_cast<std::size_t>(y) * width + x]) / 255.0F;
    }
    __host__ __device__ float operator()(float x, float y) const {
        if (!linear) return pixel(static_cast<int>(floorf(x)), static_cast<int>(floorf(y)));
        const float left = floorf(x - 0.5F), top = floorf(y - 0.5F);
        const float a = roundf((x - 0.5F - left) * 256.0F) / 256.0F,
                    b = roundf((y - 0.5F - top) * 256.0F) / 256.0F;
        const int i = static_cast<int>(left), j = static_cast<int>(top);
        return (1 - b) * ((1 - a) * pixel(i, j) + a * pixel(i + 1, j)) +
               b * ((1 - a) * pixel(i, j + 1) + a * pixel(i + 1, j + 1));
    }
};

template <typename Method>
bool run(const char *name, const std::vector<unsigned char> &pixels, int side,
         cudaTextureFilterMode filter, View view) {
    const example::Texture<unsigned char> texture(pixels, side, side, filter);
    const example::DeviceArray<uchar4> result(pixels.size());
    const dim3 threads(16, 16),
        blocks(example::divide_up(side, threads.x), example::divide_up(side, threads.y));
    example::EventTimer timer;
    timer.start();
    render<Method><<<blocks, threads>>>(result.data(), texture.object(), view, side, side);
    CHECK_LAUNCH();
    const double took_ms = timer.stop_ms();

    const std::vector<uchar4> got = result.to_host();
    const Software fetch{pixels.data(), side, side, filter == cudaFilterModeLinear};
    std::vector<uchar4> expected(pixels.size());
    for (int row = 0; row < side; row++)
        for (int column = 0; column < side; column++) {
            const unsigned char gray =
                quantized(Method::sample(fetch, view.x(column), view.y(row)));
            expected[static_cast<std::size_t>(row) * side + column] =
                make_uchar4(gray, gray, gray, 255);
        }
    // A weight may be rounded the other way: 1/256 of the difference of two pixels in each
    // direction, and one step of rounding.
    const int tolerance = filter == cudaFilterModeLinear ? 3 : 1;
    const example::Distance far = example::distance(got.data(), expected.data(), 4 * got.size());
    std::printf(
        "%-12s %8.3f ms; largest difference %d of 255 (tolerance %d), mean %.4f (tolerance 0.1)\n",
        name, took_ms, far.largest, tolerance, far.mean);
    return far.largest <= tolerance && far.mean < 0.1;
}

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "pixels in a row and a column", 1024, 256);
    const int side = static_cast<int>(options.size);
    const std::vector<unsigned char> pixels = example::gray_picture(side, side);
    const float middle = static_cast<float>(side) / 2;
    // The step is no short binary fraction, so that places fall between those which weights of 8
    // bits can say; and some of the places of the second view lie outside of the picture.
    const View enlarged{middle, middle, 0.287F}, reduced{middle + 10.0F, middle - 20.0F, 1.219F};
    std::printf("bicubicTexture: %d x %d pixels, enlarged and reduced\n", side, side);
    bool passed = true;
    for (const View &view : {enlarged, reduced}) {
        passed &= run<Direct>("nearest", pixels, side, cudaFilterModePoint, view);
        passed &= run<Direct>("linear", pixels, side, cudaFilterModeLinear, view);
        passed &= run<Spline>("bicubic", pixels, side, cudaFilterModeLinear, view);
        passed &= run<Through>("Catmull-Rom", pixels, side, cudaFilterModePoint, view);
    }
    return example::verdict(passed);
}
