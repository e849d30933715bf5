// The places where values can be, and ways to reach them: pointers in structures and in memory,
// generic and local addresses, functions, constants, large parameters, three-dimensional grids, and
// numbers of 8 to 64 bits.
#include "harness.h"

#include <cuda_fp16.h>

namespace {

struct Node {
    int value;
    const Node *next;
};

__global__ void link(Node *nodes, int count) {
    const int own = threadIdx.x;
    if (own < count) nodes[own] = {own * own, own + 1 < count ? &nodes[own + 1] : nullptr};
}

__global__ void walk(const Node *first, int *sum) {
    int total = 0;
    for (const Node *at = first; at != nullptr; at = at->next) total += at->value;
    *sum = total;
}

TEST(pointers_written_by_one_kernel_lead_another) {
    const int count = 40;
    OnDevice<Node> nodes(count);
    OnDevice<int> sum(1);
    link<<<1, 64>>>(nodes.data(), count);
    walk<<<1, 1>>>(nodes.data(), sum.data());
    REQUIRE(cudaGetLastError());
    int expected = 0;
    for (int at = 0; at < count; at++) expected += at * at;
    EXPECT_EQUAL(sum.to_host()[0], expected);
}

struct View {
    char tag;
    const float *rows[3];
    double scale;
    short shift;
};

__global__ void gather(float *to, View view, const View *table, int count) {
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    if (own >= count) return;
    float sum = 0;
    for (const float *row : view.rows) sum += row[own];
    to[own] = static_cast<float>(sum * view.scale) + view.shift + table[own % 2].rows[1][own];
}

TEST(structures_carry_pointers_by_value_and_in_memory) {
    const int count = 100;
    std::vector<float> values(count);
    for (int at = 0; at < count; at++) values[at] = at;
    OnDevice<float> a(values), b(values), to(count);
    const View view{'x', {a.data(), b.data(), a.data()}, 0.5, 7},
        other{'y', {nullptr, a.data(), nullptr}, 0, 0};
    OnDevice<View> table(std::vector<View>{view, other});
    gather<<<2, 64>>>(to.data(), view, table.data(), count);
    REQUIRE(cudaGetLastError());
    const std::vector<float> got = to.to_host();
    for (int at = 0; at < count; at++) EXPECT_EQUAL(got[at], at * 1.5F + 7 + at);
}

// The compiler cannot know the space that the pointer refers to.
__device__ __noinline__ int sum_of(const int *values, int count) {
    int sum = 0;
    for (int at = 0; at < count; at++) sum += values[at];
    return sum;
}
__constant__ int weights[4] = {1, 10, 100, 1000};
__device__ int counters[4] = {5, 6, 7, 8};
__device__ int *const_pointers[2] = {counters, counters + 2};

__global__ void generic(int *sums, const int *in_global) {
    __shared__ int in_shared[8];
    int in_local[8];
    for (int at = 0; at < 8; at++) in_local[at] = at + static_cast<int>(threadIdx.x);
    if (threadIdx.x < 8) in_shared[threadIdx.x] = threadIdx.x * 2;
    __syncthreads();
    const int which = threadIdx.x % 4;
    const int *const chosen = which == 0   ? in_global
                              : which == 1 ? in_shared
                              : which == 2 ? in_local
                                           : weights;
    sums[threadIdx.x] = sum_of(chosen, which == 3 ? 4 : 8) + in_local[threadIdx.x % 8];
}

TEST(a_generic_pointer_leads_to_global_shared_local_or_constant_memory) {
    OnDevice<int> sums(32), values(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 9});
    generic<<<1, 32>>>(sums.data(), values.data());
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = sums.to_host();
    for (int own = 0; own < 32; own++) {
        const int expected[] = {37, 56, 28 + 8 * own, 1111};
        EXPECT_EQUAL(got[own], expected[own % 4] + own % 8 + own);
    }
}

__global__ void through_initial_pointers(int *sums) {
    sums[0] = sum_of(const_pointers[0], 2);
    sums[1] = sum_of(const_pointers[1], 2);
    counters[0] = 50;
}

TEST(variables_start_with_their_values_and_are_reached_by_symbol) {
    OnDevice<int> sums(2);
    through_initial_pointers<<<1, 1>>>(sums.data());
    REQUIRE(cudaGetLastError());
    EXPECT_EQUAL(sums.to_host()[0], 11);
    EXPECT_EQUAL(sums.to_host()[1], 15);

    int values[2] = {};
    REQUIRE(cudaMemcpyFromSymbol(values, counters, sizeof values, 0));
    EXPECT_EQUAL(values[0], 50);
    const int changed[2] = {70, 80};
    REQUIRE(cudaMemcpyToSymbol(counters, changed, sizeof changed, 2 * sizeof(int)));
    through_initial_pointers<<<1, 1>>>(sums.data());
    EXPECT_EQUAL(sums.to_host()[1], 150);

    void *address = nullptr;
    std::size_t size = 0;
    REQUIRE(cudaGetSymbolAddress(&address, counters));
    REQUIRE(cudaGetSymbolSize(&size, counters));
    EXPECT_EQUAL(size, sizeof counters);
    REQUIRE(
        cudaMemcpy(values, static_cast<int *>(address) + 3, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQUAL(values[0], 80);
}

struct Large {
    int values[1000];
};

__global__ void from_large(int *sum, Large large, int at) {
    *sum = large.values[at] + large.values[999 - at];
}

TEST(four_thousand_bytes_of_parameters_arrive) {
    OnDevice<int> sum(1);
    Large large{};
    for (int at = 0; at < 1000; at++) large.values[at] = at * 3;
    from_large<<<1, 1>>>(sum.data(), large, 123);
    REQUIRE(cudaGetLastError());
    EXPECT_EQUAL(sum.to_host()[0], 999 * 3);
}

__global__ void places(int *seen, dim3 grid) {
    const dim3 at(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                  blockIdx.z * blockDim.z + threadIdx.z);
    const unsigned wide = grid.x * blockDim.x, high = grid.y * blockDim.y;
    seen[(at.z * high + at.y) * wide + at.x] += gridDim.x * 100 + gridDim.y * 10 + gridDim.z;
}

TEST(a_grid_of_three_dimensions_visits_each_place_once) {
    const dim3 grid(3, 2, 4), block(4, 5, 3);
    OnDevice<int> seen(24 * 60);
    places<<<grid, block>>>(seen.data(), grid);
    REQUIRE(cudaGetLastError());
    for (const int value : seen.to_host()) EXPECT_EQUAL(value, 324);
}

extern __shared__ double dynamic[];

__global__ void shared_parts(double *to, int count) {
    __shared__ int fixed[32];
    int *const words = reinterpret_cast<int *>(dynamic + count);
    char *const bytes = reinterpret_cast<char *>(words + count);
    const int own = threadIdx.x;
    fixed[own] = own;
    dynamic[own] = own * 0.5;
    words[own] = own * 2;
    bytes[own] = static_cast<char>(own);
    __syncthreads();
    const int other = count - 1 - own;
    to[own] = dynamic[other] + words[other] + bytes[other] + fixed[other];
}

TEST(dynamic_shared_memory_is_cut_into_parts_beside_fixed_memory) {
    const int count = 32;
    OnDevice<double> to(count);
    shared_parts<<<1, count, count * (8 + 4 + 1)>>>(to.data(), count);
    REQUIRE(cudaGetLastError());
    const std::vector<double> got = to.to_host();
    for (int own = 0; own < count; own++) EXPECT_EQUAL(got[own], (count - 1 - own) * 4.5);
}

template <typename T> __global__ void integers(T *to, const T *a, const T *b, int count) {
    const int own = threadIdx.x;
    if (own >= count) return;
    const T x = a[own], y = b[own];
    to[own * 8 + 0] = static_cast<T>(x * y);
    to[own * 8 + 1] = static_cast<T>(x / y);
    to[own * 8 + 2] = static_cast<T>(x % y);
    to[own * 8 + 3] = static_cast<T>(x << (y & 7));
    to[own * 8 + 4] = static_cast<T>(x >> (y & 7));
    to[own * 8 + 5] = static_cast<T>(x - y);
    to[own * 8 + 6] = static_cast<T>(x > y ? x ^ y : ~x);
    to[own * 8 + 7] = static_cast<T>(static_cast<float>(x) * 0.5F);
}

template <typename T> void check_integers() {
    const int count = 64;
    std::vector<T> a(count), b(count), expected(8 * count);
    for (int at = 0; at < count; at++) {
        a[at] = static_cast<T>(at * 1237 - 20000),
        b[at] = static_cast<T>(at % 2 ? -at * 3 - 1 : at + 3);
        if (b[at] == 0) b[at] = 1;
        const T x = a[at], y = b[at];
        const T results[] = {static_cast<T>(x * y),
                             static_cast<T>(x / y),
                             static_cast<T>(x % y),
                             static_cast<T>(x << (y & 7)),
                             static_cast<T>(x >> (y & 7)),
                             static_cast<T>(x - y),
                             static_cast<T>(x > y ? x ^ y : ~x),
                             static_cast<T>(static_cast<float>(x) * 0.5F)};
        std::memcpy(&expected[at * 8], results, sizeof results);
    }
    OnDevice<T> on_a(a), on_b(b), to(8 * count);
    integers<<<1, 64>>>(to.data(), on_a.data(), on_b.data(), count);
    REQUIRE(cudaGetLastError());
    EXPECT(to.to_host() == expected);
}

TEST(integers_of_8_bits) { check_integers<signed char>(); }
TEST(integers_of_16_bits) { check_integers<short>(); }
TEST(integers_of_32_bits) { check_integers<int>(); }
TEST(integers_of_64_bits) { check_integers<long long>(); }
TEST(integers_of_64_bits_without_sign) { check_integers<unsigned long long>(); }

__global__ void bits(unsigned *to, unsigned value) {
    to[0] = __popc(value), to[1] = __clz(value), to[2] = __brev(value), to[3] = __ffs(value);
    to[4] = __byte_perm(value, ~value, 0x3715), to[5] = __funnelshift_l(value, 0x12345678, 12),
    to[6] = __umulhi(value, value);
    to[7] = __popcll(static_cast<unsigned long long>(value) << 20),
    to[8] = __dp4a(value, 0x01020304U, 5U);
}

TEST(functions_on_bits) {
    OnDevice<unsigned> to(9);
    const unsigned value = 0x00c0ffee;
    bits<<<1, 1>>>(to.data(), value);
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = to.to_host();
    const unsigned dot = 0xee * 4 + 0xff * 3 + 0xc0 * 2 + 0 * 1 + 5;
    const unsigned expected[] = {
        16, 8,  0x77ff0300, 2, 0, 0, static_cast<unsigned>(0xc0ffeeULL * 0xc0ffeeULL >> 32),
        16, dot};
    for (int at : {0, 1, 2, 3, 6, 7, 8}) EXPECT_EQUAL(got[at], expected[at]);
    // Bytes 5, 1, 7 and 3 of ~value:value, from the lowest.
    EXPECT_EQUAL(got[4], (~value >> 8 & 255) | (value >> 8 & 255) << 8 | (~value >> 24) << 16 |
                             (value >> 24) << 24);
    EXPECT_EQUAL(got[5], 0x12345678U << 12 | value >> 20);
}

__global__ void halves(float *to, const __half *values, int count) {
    const int own = threadIdx.x;
    if (own < count) to[own] = __half2float(__float2half(__half2float(values[own]) * 1.5F + 0.25F));
}

TEST(halves_are_stored_in_16_bits) {
    const int count = 32;
    std::vector<__half> values(count);
    for (int at = 0; at < count; at++) values[at] = __float2half(static_cast<float>(at) * 0.125F);
    OnDevice<__half> on_values(values);
    OnDevice<float> to(count);
    halves<<<1, 32>>>(to.data(), on_values.data(), count);
    REQUIRE(cudaGetLastError());
    const std::vector<float> got = to.to_host();
    for (int at = 0; at < count; at++)
        EXPECT_EQUAL(got[at], static_cast<float>(at) * 0.1875F + 0.25F);
}

template <typename T> __global__ void functions(T *to, const T *values, int count) {
    const int own = threadIdx.x;
    if (own >= count) return;
    const T x = values[own];
    const T results[] = {sin(x),
                         cos(x),
                         exp(x),
                         log(fabs(x) + 1),
                         sqrt(fabs(x)),
                         pow(fabs(x), static_cast<T>(0.7)),
                         atan2(x, static_cast<T>(2)),
                         tanh(x),
                         floor(x),
                         fma(x, x, static_cast<T>(1)),
                         cbrt(x),
                         erf(x)};
    for (int at = 0; at < 12; at++) to[own * 12 + at] = results[at];
}

template <typename T> void check_functions(double tolerance) {
    const int count = 40;
    std::vector<T> values(count);
    for (int at = 0; at < count; at++) values[at] = static_cast<T>((at - 20) * 0.37);
    OnDevice<T> on_values(values), to(12 * count);
    functions<<<1, 64>>>(to.data(), on_values.data(), count);
    REQUIRE(cudaGetLastError());
    const std::vector<T> got = to.to_host();
    for (int own = 0; own < count; own++) {
        const double x = values[own];
        const double expected[] = {
            sin(x),           cos(x),        exp(x),
            log(fabs(x) + 1), sqrt(fabs(x)), pow(fabs(x), static_cast<T>(0.7)),
            atan2(x, 2.0),    tanh(x),       floor(x),
            x * x + 1,        cbrt(x),       erf(x)};
        for (int at = 0; at < 12; at++)
            if (!(fabs(got[own * 12 + at] - expected[at]) <=
                  tolerance * (fabs(expected[at]) + 1e-3)))
                harness::failed(__FILE__, __LINE__,
                                "function " + std::to_string(at) + " of " + std::to_string(x) +
                                    " is " + std::to_string(got[own * 12 + at]));
    }
}

TEST(functions_of_floats) { check_functions<float>(2e-6); }
TEST(functions_of_doubles) { check_functions<double>(4e-15); }

__global__ void in_local_memory(int *to, const int *order, int count) {
    int stack[64], top = 0;
    for (int at = 0; at < count; at++) stack[top++] = order[at] + static_cast<int>(threadIdx.x);
    int sum = 0;
    while (top > 0) sum = sum * 3 + stack[--top];
    to[threadIdx.x] = sum;
}

TEST(arrays_with_changing_indices_live_in_local_memory) {
    std::vector<int> order{5, 3, 8, 1, 9, 2};
    OnDevice<int> to(64), on_order(order);
    in_local_memory<<<1, 64>>>(to.data(), on_order.data(), static_cast<int>(order.size()));
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = to.to_host();
    for (int own = 0; own < 64; own++) {
        int sum = 0;
        for (int at = static_cast<int>(order.size()); at-- > 0;) sum = sum * 3 + order[at] + own;
        EXPECT_EQUAL(got[own], sum);
    }
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
