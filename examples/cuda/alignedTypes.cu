// Copies arrays of structures: how their size and alignment decide which loads and stores the
// compiler may use.
//
// A structure of four 32-bit words that promises 16-byte alignment moves in one access; one that
// does not, in four.
#include "common/example.h"

namespace {

using Byte = unsigned char;
using Half = unsigned short;
using Word = unsigned int;

struct Rgba8Loose {
    Byte r, g, b, a;
};
struct La32Loose {
    Word l, a;
};
struct Rgb32Loose {
    Word r, g, b;
};
struct Rgba32Loose {
    Word r, g, b, a;
};
struct alignas(4) Rgba8 {
    Byte r, g, b, a;
};
struct alignas(8) La32 {
    Word l, a;
};
struct alignas(16) Rgb32 {
    Word r, g, b;
};
struct alignas(16) Rgba32 {
    Word r, g, b, a;
};
struct alignas(16) Rgba32Pair {
    Rgba32 first, second;
};
struct alignas(8) Mixed {
    Byte tag;
    Half small;
    double large;
};

template <typename T> __global__ void copy(T *to, const T *from, int count) {
    const int threads = blockDim.x * gridDim.x;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += threads)
        to[at] = from[at];
}

// Member by member where there is padding: its bytes are not promised to be copied.
template <typename T> bool same(const T &left, const T &right) {
    return std::memcmp(&left, &right, sizeof(T)) == 0;
}
template <> bool same(const Rgb32 &left, const Rgb32 &right) {
    return std::memcmp(&left, &right, 3 * sizeof(Word)) == 0;
}
template <> bool same(const Mixed &left, const Mixed &right) {
    return left.tag == right.tag && left.small == right.small &&
           std::memcmp(&left.large, &right.large, sizeof(double)) == 0;
}

class Bench {
  public:
    explicit Bench(std::size_t bytes) : bytes_(bytes), pattern_(bytes), from_(bytes), to_(bytes) {
        example::Random random(2);
        for (Byte &byte : pattern_) byte = static_cast<Byte>(random.bits() >> 24);
        CHECK(cudaMemcpy(from_.data(), pattern_.data(), bytes, cudaMemcpyHostToDevice));
    }

    template <typename T> bool run(const char *name) {
        constexpr int repeats = 8;
        const int count = static_cast<int>(bytes_ / sizeof(T));
        T *const to = reinterpret_cast<T *>(to_.data());
        const T *const from = reinterpret_cast<const T *>(from_.data());
        // Zeros first, so that the result of the type before this one does not pass for this one's.
        CHECK(cudaMemset(to, 0, bytes_));
        example::EventTimer timer;
        timer.start();
        for (int repeat = 0; repeat < repeats; repeat++) copy<T><<<64, 256>>>(to, from, count);
        CHECK_LAUNCH();
        const double took_ms = timer.stop_ms() / repeats;

        std::vector<T> got(count);
        CHECK(cudaMemcpy(got.data(), to, count * sizeof(T), cudaMemcpyDeviceToHost));
        const T *const expected = reinterpret_cast<const T *>(pattern_.data());
        int wrong = 0;
        for (int at = 0; at < count; at++) wrong += !same(got[at], expected[at]);
        std::printf("%-14s size %2zu, alignment %2zu: %8.3f ms, %7.2f GB/s, %d of %d wrong\n", name,
                    sizeof(T), alignof(T), took_ms, 1e-6 * count * sizeof(T) / took_ms, wrong,
                    count);
        return wrong == 0;
    }

  private:
    std::size_t bytes_;
    std::vector<Byte> pattern_;
    example::DeviceArray<Byte> from_, to_;
};

} // namespace

int main(int argc, char **argv) {
    const example::Options options =
        example::read_options(argc, argv, "bytes", 50'000'000, 1'000'000);
    std::printf("alignedTypes: arrays of %zu bytes\n", options.size);
    Bench bench(options.size);
    bool passed = bench.run<Byte>("byte");
    passed &= bench.run<Half>("half");
    passed &= bench.run<Word>("int");
    passed &= bench.run<Rgba8Loose>("RGBA8 loose");
    passed &= bench.run<La32Loose>("LA32 loose");
    passed &= bench.run<Rgb32Loose>("RGB32 loose");
    passed &= bench.run<Rgba32Loose>("RGBA32 loose");
    passed &= bench.run<int2>("int2");
    passed &= bench.run<Rgba8>("RGBA8");
    passed &= bench.run<La32>("LA32");
    passed &= bench.run<Rgb32>("RGB32");
    passed &= bench.run<Rgba32>("RGBA32");
    passed &= bench.run<Rgba32Pair>("RGBA32 pair");
    passed &= bench.run<Mixed>("mixed");
    return example::verdict(passed);
}
