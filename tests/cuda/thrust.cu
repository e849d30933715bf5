// Algorithms of Thrust that reduce values to one.
#include "harness.h"

#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/inner_product.h>
#include <thrust/reduce.h>

namespace {

struct IsLarge {
    __host__ __device__ bool operator()(int value) const { return value > 50; }
};

TEST(thrust_reduces_to_the_sum) {
    for (const int count : {10, 1000, 100'000}) {
        const thrust::device_vector<int> threes(count, 3);
        EXPECT_EQUAL(thrust::reduce(threes.begin(), threes.end()), 3 * count);
    }
}

TEST(thrust_counts_multiplies_and_finds) {
    const int count = 1000;
    std::vector<int> values(count);
    for (int at = 0; at < count; at++) values[at] = at * 37 % 101;
    values[777] = 500;
    int large = 0, product = 0;
    for (const int value : values) large += value > 50, product += value * value;
    const thrust::device_vector<int> on_device(values.begin(), values.end());
    const auto first = on_device.begin(), last = on_device.end();
    EXPECT_EQUAL(static_cast<int>(thrust::count_if(first, last, IsLarge())), large);
    EXPECT_EQUAL(thrust::inner_product(first, last, first, 0), product);
    EXPECT_EQUAL(static_cast<int>(thrust::max_element(first, last) - first), 777);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
