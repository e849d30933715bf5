// What the programs of this folder share. A program is compiled once for each type of its values,
// with -DTYPE=NAME, and runs each case at each size against a sequential computation on the host.
//
//   PROGRAM LARGEST    runs the cases at all sizes up to LARGEST
//
// PENSTOCK_SUITE_RECORD and PENSTOCK_SUITE_DONE mean what recorder.py says. A case fails with
// "wrong" if its result is, and with "refused" if CUDA or a library gives an error. After an error
// the program ends, because its context may be broken, and another process runs the rest.
#pragma once

#include <cuda/std/tuple>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

using int64 = long long;

// A type of the user: neither arithmetic nor a power of two in size without its padding.
struct Point {
    int x;
    int64 y;
    friend __host__ __device__ Point operator+(Point left, Point right) {
        return {left.x + right.x, left.y + right.y};
    }
    friend __host__ __device__ Point operator-(Point left, Point right) {
        return {left.x - right.x, left.y - right.y};
    }
    friend __host__ __device__ bool operator<(Point left, Point right) {
        return left.x != right.x ? left.x < right.x : left.y < right.y;
    }
    friend __host__ __device__ bool operator>(Point left, Point right) { return right < left; }
    friend __host__ __device__ bool operator==(Point left, Point right) {
        return left.x == right.x && left.y == right.y;
    }
    friend __host__ __device__ bool operator!=(Point left, Point right) { return !(left == right); }
};

// How radix sorting sees a Point: the fields, the most significant one first.
struct Fields {
    __host__ __device__::cuda::std::tuple<int &, int64 &> operator()(Point &point) const {
        return {point.x, point.y};
    }
};

#ifndef TYPE
#define TYPE int
#endif
using T = TYPE;

namespace suite {

// Values are small integers, so that sums of floats are exact in any order.
template <typename V> struct From {
    static __host__ __device__ V number(int value) { return static_cast<V>(value); }
    static __host__ __device__ int whole(V value) { return static_cast<int>(value); }
};
template <> struct From<Point> {
    static __host__ __device__ Point number(int value) { return {value / 3, value % 3}; }
    static __host__ __device__ int whole(Point value) {
        return value.x * 3 + static_cast<int>(value.y);
    }
};
__host__ __device__ inline T number(int value) { return From<T>::number(value); }

inline unsigned mixed(unsigned value) {
    value = (value ^ (value >> 16)) * 0x7feb352du;
    value = (value ^ (value >> 15)) * 0x846ca68bu;
    return value ^ (value >> 16);
}
inline std::vector<T> values(int count, unsigned seed = 1, unsigned different = 101) {
    std::vector<T> found(count);
    for (int at = 0; at < count; at++) found[at] = number(mixed(at + 7919 * seed) % different);
    return found;
}
inline std::vector<T> sorted_values(int count, unsigned seed = 1, unsigned different = 101) {
    std::vector<T> found = values(count, seed, different);
    std::sort(found.begin(), found.end());
    return found;
}
// Each value several times in a row.
inline std::vector<T> runs(int count, unsigned seed = 1) {
    std::vector<T> found;
    for (unsigned run = 0; static_cast<int>(found.size()) < count; run++)
        found.insert(found.end(), mixed(run + seed) % 9 + 1, number(run % 2 + mixed(run) % 50 * 2));
    found.resize(count);
    return found;
}
inline std::vector<int> integers(int count, unsigned seed, unsigned different) {
    std::vector<int> found(count);
    for (int at = 0; at < count; at++) found[at] = mixed(at + 7919 * seed) % different;
    return found;
}
inline std::vector<int> counted(int count) {
    std::vector<int> found(count);
    std::iota(found.begin(), found.end(), 0);
    return found;
}

// The ends of segments: some are empty, and some are longer than a block.
inline std::vector<int> segment_ends(int n) {
    std::vector<int> ends{0, 0};
    for (unsigned at = 0; ends.back() < n; at++)
        ends.push_back(std::min<int>(n, ends.back() + mixed(at) % 40 * (at % 5 == 4 ? 60 : 1)));
    ends.push_back(n);
    return ends;
}

struct Larger {
    __host__ __device__ T operator()(T left, T right) const { return left < right ? right : left; }
};
struct IsLess {
    __host__ __device__ bool operator()(T left, T right) const { return left < right; }
};
struct Equal {
    __host__ __device__ bool operator()(T left, T right) const { return left == right; }
};
struct Differs {
    __host__ __device__ bool operator()(T left, T right) const { return !(left == right); }
};
struct IsSmall {
    __host__ __device__ bool operator()(T value) const { return value < number(40); }
};
struct IsMiddle {
    __host__ __device__ bool operator()(T value) const { return value < number(70); }
};
struct IsSmallFlag {
    __host__ __device__ bool operator()(int flag) const { return flag < 40; }
};
struct Twice {
    __host__ __device__ T operator()(T value) const { return value + value; }
};

struct Add {
    __host__ __device__ T operator()(T left, T right) const { return left + right; }
};
struct Subtract {
    __host__ __device__ T operator()(T left, T right) const { return left - right; }
};

class Refused : public std::runtime_error {
    using std::runtime_error::runtime_error;
};
class Wrong : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void must(cudaError_t code, const char *call) {
    if (code != cudaSuccess) throw Refused(std::string(call) + " gave " + cudaGetErrorName(code));
}
#define MUST(call) suite::must((call), #call)

// Checks that a launch was made and has ended.
inline void finish() {
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());
}

template <typename V> class Device {
  public:
    explicit Device(std::size_t count) : count_(count) {
        MUST(cudaMalloc(reinterpret_cast<void **>(&data_), std::max<std::size_t>(bytes(), 1)));
        MUST(cudaMemset(data_, 0x5a, std::max<std::size_t>(bytes(), 1)));
    }
    Device(const std::vector<V> &values) : Device(values.size()) {
        MUST(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
    }
    ~Device() { cudaFree(data_); }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;
    operator V *() const { return data_; }
    V *begin() const { return data_; }
    std::size_t bytes() const { return count_ * sizeof(V); }
    std::vector<V> host() const { return host(count_); }
    std::vector<V> host(std::size_t count) const {
        std::vector<V> found(count);
        MUST(cudaMemcpy(found.data(), data_, count * sizeof(V), cudaMemcpyDeviceToHost));
        return found;
    }
    V one() const { return host(1)[0]; }

  private:
    std::size_t count_;
    V *data_ = nullptr;
};

template <typename V> void check(const std::vector<V> &got, const std::vector<V> &wanted) {
    if (got.size() != wanted.size())
        throw Wrong(std::to_string(got.size()) + " values instead of " +
                    std::to_string(wanted.size()));
    for (std::size_t at = 0; at < got.size(); at++)
        if (!(got[at] == wanted[at])) throw Wrong("the value at " + std::to_string(at));
}
template <typename V> void check_one(const V &got, const V &wanted) {
    if (!(got == wanted)) throw Wrong("the one result");
}

// Calls a device-wide function of CUB twice: for the size of its storage, and to compute.
template <typename Call> void with_storage(Call call) {
    std::size_t bytes = 0;
    MUST(call(nullptr, bytes));
    const Device<char> storage(bytes);
    MUST(call(storage.begin(), bytes));
    finish();
}

struct Case {
    const char *name;
    void (*run)(int count);
};
inline std::vector<Case> &cases() {
    static std::vector<Case> all;
    return all;
}
struct Register {
    Register(const char *name, void (*run)(int)) { cases().push_back({name, run}); }
};
#define CASE(name)                                             \
    static void name(int n);                                   \
    static const suite::Register register_##name(#name, name); \
    static void name(int n)

const int sizes[] = {0, 1, 31, 32, 33, 255, 256, 257, 1000, 100'000};

class Record {
  public:
    Record() : path_(std::getenv("PENSTOCK_SUITE_RECORD")) {
        std::ifstream done(std::getenv("PENSTOCK_SUITE_DONE"));
        for (std::string line; std::getline(done, line);) done_.insert(line);
    }
    bool is_done(const std::string &name) const { return done_.count(name) > 0; }
    void write(const std::string &kind, const std::string &name) const {
        line("[\"" + kind + "\", \"" + name + "\"]");
    }
    void collected(std::size_t count) const {
        line("[\"collected\", " + std::to_string(count) + "]");
    }
    void report(const std::string &name, const std::string &verdict, std::string message) const {
        for (char &letter : message)
            if (letter == '"' || letter == '\\' || letter < ' ') letter = '\'';
        line("[\"report\", \"" + name + "\", \"" + verdict + "\", \"" + message + "\"]");
    }

  private:
    void line(const std::string &text) const {
        std::ofstream(path_, std::ios::app) << text << "\n" << std::flush;
    }
    std::string path_;
    std::set<std::string> done_;
};

inline int run_all(int argc, char **argv) {
    const int largest = argc > 1 ? std::atoi(argv[1]) : 1000;
    const Record record;
    record.collected(std::count_if(cases().begin(), cases().end(),
                                   [&](const Case &one) { return !record.is_done(one.name); }));
    for (const Case &one : cases()) {
        if (record.is_done(one.name)) continue;
        record.write("begin", one.name);
        int size = 0;
        try {
            for (const int next : sizes) {
                if (next > largest) continue;
                // A program that is ended names the size at which it was.
                record.write("size", std::to_string(size = next));
                one.run(next);
            }
            record.report(one.name, "passed", "");
        } catch (const Wrong &wrong) {
            const std::string where = " is wrong at size " + std::to_string(size);
            record.report(one.name, "failed", "wrong: " + (wrong.what() + where));
        } catch (const std::exception &error) {
            const std::string where = " at size " + std::to_string(size);
            record.report(one.name, "failed", "refused: " + (error.what() + where));
            std::_Exit(3);
        }
        record.write("end", one.name);
    }
    return 0;
}

} // namespace suite

using namespace suite;

int main(int argc, char **argv) { return suite::run_all(argc, argv); }
