// What the programs have in common: checked calls, memory that frees itself, options, time, and the
// verdict.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace example {

inline void check(cudaError_t code, const char *call, const char *file, int line) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorString(code),
                 cudaGetErrorName(code));
    std::exit(EXIT_FAILURE);
}

// Ends the program, with one line that says where and why, if a call of the runtime fails.
#define CHECK(call) example::check((call), #call, __FILE__, __LINE__)
// The same for a launch. Only what is wrong with the launch itself is seen here: a kernel's faults
// come with a later call.
#define CHECK_LAUNCH() CHECK(cudaGetLastError())

// Device memory for `count` values.
template <typename T> class DeviceArray {
  public:
    explicit DeviceArray(std::size_t count) : count_(count) { CHECK(cudaMalloc(&data_, bytes())); }
    explicit DeviceArray(const std::vector<T> &values) : DeviceArray(values.size()) {
        CHECK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    T *data() const { return data_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    std::vector<T> to_host() const {
        std::vector<T> values(count_);
        CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return values;
    }

  private:
    std::size_t count_;
    T *data_ = nullptr;
};

// Pinned host memory: copies from and to it do not hold the caller up.
template <typename T> class PinnedArray {
  public:
    explicit PinnedArray(std::size_t count) : count_(count) {
        CHECK(cudaHostAlloc(reinterpret_cast<void **>(&data_), bytes(), cudaHostAllocDefault));
    }
    ~PinnedArray() { cudaFreeHost(data_); }
    PinnedArray(const PinnedArray &) = delete;
    PinnedArray &operator=(const PinnedArray &) = delete;

    T *data() const { return data_; }
    std::size_t size() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    T &operator[](std::size_t index) const { return data_[index]; }

  private:
    std::size_t count_;
    T *data_ = nullptr;
};

// Time between two points of a stream, as the device sees it.
class EventTimer {
  public:
    explicit EventTimer(cudaStream_t stream = nullptr) : stream_(stream) {
        CHECK(cudaEventCreate(&start_));
        CHECK(cudaEventCreate(&stop_));
    }
    ~EventTimer() {
        cudaEventDestroy(start_);
        cudaEventDestroy(stop_);
    }
    EventTimer(const EventTimer &) = delete;
    EventTimer &operator=(const EventTimer &) = delete;

    void start() { CHECK(cudaEventRecord(start_, stream_)); }
    // Waits until the device has come here.
    float stop_ms() {
        float elapsed_ms = 0;
        CHECK(cudaEventRecord(stop_, stream_));
        CHECK(cudaEventSynchronize(stop_));
        CHECK(cudaEventElapsedTime(&elapsed_ms, start_, stop_));
        return elapsed_ms;
    }

  private:
    cudaStream_t stream_;
    cudaEvent_t start_{}, stop_{};
};

inline double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Numbers that are the same in each run, evenly spread over [low, high).
class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    unsigned bits() { return engine_(); }
    float between(float low, float high) {
        return low + (high - low) * static_cast<float>(engine_() >> 8) / 16777216.0F;
    }
    std::vector<float> floats(std::size_t count, float low, float high) {
        std::vector<float> values(count);
        for (float &value : values) value = between(low, high);
        return values;
    }

  private:
    std::mt19937 engine_;
};

// What was asked for on the command line: `--size N`, or `--small` for what a CPU does in about a
// second. Programs that measure do their work several times: `--repeats N`.
struct Options {
    std::size_t size;
    std::size_t repeats;
    bool small = false;
};

// A number from 1 on; 0 if the text is none.
inline std::size_t read_count(const char *text) {
    char *end = nullptr;
    const unsigned long long count = std::strtoull(text, &end, 10);
    return *end == '\0' ? count : 0;
}

// `unit` says what the size counts. Other arguments end the program with a line about these.
inline Options read_options(int argc, char **argv, const char *unit, std::size_t size,
                            std::size_t small_size, std::size_t repeats = 1) {
    Options options{size, repeats};
    bool understood = true;
    for (int at = 1; at < argc; at++) {
        const bool has_value = at + 1 < argc;
        if (std::strcmp(argv[at], "--small") == 0)
            options = {small_size, repeats < 2 ? repeats : 2, true};
        else if (std::strcmp(argv[at], "--size") == 0 && has_value)
            options.size = read_count(argv[++at]);
        else if (std::strcmp(argv[at], "--repeats") == 0 && has_value)
            options.repeats = read_count(argv[++at]);
        else
            understood = false;
    }
    if (!understood || options.size == 0 || options.repeats == 0) {
        std::fprintf(
            stderr,
            "%s [--small] [--size N] [--repeats N]: the size is in %s (default %zu, small %zu)\n",
            argv[0], unit, size, small_size);
        std::exit(2);
    }
    return options;
}

inline std::size_t divide_up(std::size_t count, std::size_t by) { return (count + by - 1) / by; }

// The largest difference of two arrays, as a share of the largest expected value.
template <typename T, typename U>
double largest_difference(const std::vector<T> &got, const std::vector<U> &expected) {
    double difference = 0, largest = 0;
    for (std::size_t at = 0; at < expected.size(); at++) {
        const double one =
            std::fabs(static_cast<double>(got[at]) - static_cast<double>(expected[at]));
        if (!(one <= difference)) difference = one; // also where it is no number
        largest = std::fmax(largest, std::fabs(static_cast<double>(expected[at])));
    }
    return largest > 0 ? difference / largest : difference;
}

// The last line and the exit status of a program.
inline int verdict(bool passed) {
    std::puts(passed ? "Test passed" : "Test failed");
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace example
