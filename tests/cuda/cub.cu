// Reductions of blocks and warps by CUB, with all values valid and with a part of them.
#include "harness.h"

#include <cub/block/block_reduce.cuh>

namespace {

struct Larger {
    template <typename T> __device__ T operator()(T left, T right) const {
        return left < right ? right : left;
    }
};

template <typename T, int threads>
__global__ void reductions(T *results, const T *values, int valid) {
    using Reduce = cub::BlockReduce<T, threads>;
    __shared__ typename Reduce::TempStorage storage;
    const T value = values[threadIdx.x];
    const T sum = Reduce(storage).Sum(value, valid);
    __syncthreads();
    const T full = Reduce(storage).Sum(value);
    __syncthreads();
    const T largest = Reduce(storage).Reduce(value, Larger(), valid);
    if (threadIdx.x == 0) results[0] = sum, results[1] = full, results[2] = largest;
}

template <typename T, int threads> void check_reductions() {
    std::vector<T> values(threads);
    for (int at = 0; at < threads; at++) values[at] = static_cast<T>(at * 37 % 101 + 1);
    OnDevice<T> on_values(values), results(3);
    for (const int valid : {1, threads / 2 - 1, threads / 2 + 1, threads - 1, threads}) {
        reductions<T, threads><<<1, threads>>>(results.data(), on_values.data(), valid);
        REQUIRE(cudaGetLastError());
        T sums[2] = {}, largest = 0;
        for (int at = 0; at < threads; at++) {
            sums[1] += values[at];
            if (at >= valid) continue;
            sums[0] += values[at];
            largest = std::max(largest, values[at]);
        }
        const std::vector<T> got = results.to_host();
        EXPECT_EQUAL(got[0], sums[0]);
        EXPECT_EQUAL(got[1], sums[1]);
        EXPECT_EQUAL(got[2], largest);
    }
}

TEST(cub_reduces_blocks_of_integers) {
    check_reductions<int, 64>();
    check_reductions<unsigned long long, 96>();
}

TEST(cub_reduces_blocks_of_floats) { check_reductions<double, 256>(); }

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
