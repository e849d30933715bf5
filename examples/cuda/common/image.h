// Pictures for the programs that filter them: made here, put into texture memory, and compared.
#pragma once

#include "example.h"

namespace example {

// A picture with smooth parts, hard edges and noise: what each filter treats in its own way.
template <typename Pixel, typename Make>
std::vector<Pixel> picture(int width, int height, Make make) {
    Random random(11);
    std::vector<Pixel> pixels(static_cast<std::size_t>(width) * height);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const float across = static_cast<float>(x) / width,
                        down = static_cast<float>(y) / height;
            const float slope = 160.0F * across + 60.0F * down;
            const bool disc =
                (across - 0.6F) * (across - 0.6F) + (down - 0.4F) * (down - 0.4F) < 0.06F;
            const bool board = across < 0.3F && ((x / 8 + y / 8) & 1) != 0;
            const float value = (disc ? 230.0F - slope : slope) + (board ? 30.0F : 0.0F) +
                                random.between(-12.0F, 12.0F);
            pixels[static_cast<std::size_t>(y) * width + x] =
                make(std::fmin(std::fmax(value, 0.0F), 255.0F), across, down);
        }
    }
    return pixels;
}

inline std::vector<uchar4> color_picture(int width, int height) {
    return picture<uchar4>(width, height, [](float value, float across, float down) {
        return make_uchar4(static_cast<unsigned char>(value),
                           static_cast<unsigned char>(value * across),
                           static_cast<unsigned char>(255.0F - value * down), 255);
    });
}

inline std::vector<unsigned char> gray_picture(int width, int height) {
    return picture<unsigned char>(
        width, height, [](float value, float, float) { return static_cast<unsigned char>(value); });
}

// A picture in texture memory. Values are read as 0 to 1, places are counted in pixels, and beyond
// the edge is the edge.
template <typename Pixel> class Texture {
  public:
    Texture(const std::vector<Pixel> &pixels, int width, int height, cudaTextureFilterMode filter)
        : width_(width), height_(height) {
        const cudaChannelFormatDesc format = cudaCreateChannelDesc<Pixel>();
        CHECK(cudaMallocArray(&array_, &format, width, height));
        fill(pixels.data(), cudaMemcpyHostToDevice);

        cudaResourceDesc resource{};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array_;
        cudaTextureDesc description{};
        description.addressMode[0] = cudaAddressModeClamp;
        description.addressMode[1] = cudaAddressModeClamp;
        description.filterMode = filter;
        description.readMode = cudaReadModeNormalizedFloat;
        description.normalizedCoords = 0;
        CHECK(cudaCreateTextureObject(&object_, &resource, &description, nullptr));
    }
    ~Texture() {
        cudaDestroyTextureObject(object_);
        cudaFreeArray(array_);
    }
    Texture(const Texture &) = delete;
    Texture &operator=(const Texture &) = delete;

    cudaTextureObject_t object() const { return object_; }
    void fill(const Pixel *pixels, cudaMemcpyKind kind) {
        const std::size_t row = width_ * sizeof(Pixel);
        CHECK(cudaMemcpy2DToArray(array_, 0, 0, pixels, row, row, height_, kind));
    }

  private:
    int width_, height_;
    cudaArray_t array_{};
    cudaTextureObject_t object_{};
};

// How far two pictures are apart, in the 256 steps of a channel.
struct Distance {
    int largest = 0;
    double mean = 0;
    std::size_t differing = 0;
};

inline Distance distance(const void *got, const void *expected, std::size_t bytes) {
    const auto *left = static_cast<const unsigned char *>(got),
               *right = static_cast<const unsigned char *>(expected);
    Distance result;
    for (std::size_t at = 0; at < bytes; at++) {
        const int one = std::abs(left[at] - right[at]);
        result.largest = one > result.largest ? one : result.largest;
        result.mean += one;
        result.differing += one != 0;
    }
    result.mean /= static_cast<double>(bytes);
    return result;
}

} // namespace example
