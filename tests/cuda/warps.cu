// Shuffles, votes and matches, in uniform control flow and in parts of warps, compared with results
// computed on the host.
#include "harness.h"

namespace {

constexpr unsigned all = 0xffffffffU;

__global__ void shuffles(int *results, int *sources, int width) {
    const int own = threadIdx.x + threadIdx.y * blockDim.x, count = blockDim.x * blockDim.y;
    const int value = own * 7 + 1;
    results[own] = __shfl_sync(all, value, 5, width);
    results[count + own] = __shfl_up_sync(all, value, 3, width);
    results[2 * count + own] = __shfl_down_sync(all, value, 2, width);
    results[3 * count + own] = __shfl_xor_sync(all, value, 9, width);
    results[4 * count + own] = __shfl_sync(all, value, sources[own], width);
}

int shuffled(int kind, int own, int width, int source) {
    const int lane = own % 32, base = own - lane, segment = lane / width * width,
              last = segment + width - 1;
    int from = lane;
    if (kind == 0) from = segment + (5 & (width - 1));
    if (kind == 1) from = lane - 3 < segment ? lane : lane - 3;
    if (kind == 2) from = lane + 2 > last ? lane : lane + 2;
    if (kind == 3) from = (lane ^ 9) > last ? lane : lane ^ 9;
    if (kind == 4) from = segment + (source & (width - 1));
    return (base + from) * 7 + 1;
}

TEST(shuffles_move_values_as_documented_in_each_width) {
    const int count = 96;
    std::vector<int> sources(count);
    for (int at = 0; at < count; at++) sources[at] = (at * 13 + 5) % 32;
    for (const int width : {32, 16, 8, 4, 2}) {
        for (const dim3 block : {dim3(96), dim3(8, 12)}) {
            OnDevice<int> results(5 * count), on_sources(sources);
            shuffles<<<1, block>>>(results.data(), on_sources.data(), width);
            REQUIRE(cudaGetLastError());
            const std::vector<int> got = results.to_host();
            for (int kind = 0; kind < 5; kind++)
                for (int own = 0; own < count; own++)
                    if (got[kind * count + own] != shuffled(kind, own, width, sources[own]))
                        return harness::failed(__FILE__, __LINE__,
                                               "kind " + std::to_string(kind) + ", width " +
                                                   std::to_string(width) + ", thread " +
                                                   std::to_string(own) + ": " +
                                                   std::to_string(got[kind * count + own]));
        }
    }
}

template <typename T> __global__ void sum_of_warps(T *sums, const T *values) {
    T sum = values[blockIdx.x * blockDim.x + threadIdx.x];
    for (int reach = 16; reach > 0; reach /= 2) sum += __shfl_down_sync(all, sum, reach);
    if (threadIdx.x % 32 == 0) sums[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = sum;
}

template <typename T> void check_sums() {
    const int blocks = 3, block = 128, count = blocks * block;
    std::vector<T> values(count), expected(count / 32);
    for (int at = 0; at < count; at++) {
        values[at] = static_cast<T>(at * 3 % 101);
        expected[at / 32] += values[at];
    }
    OnDevice<T> on_values(values), sums(count / 32);
    sum_of_warps<<<blocks, block>>>(sums.data(), on_values.data());
    REQUIRE(cudaGetLastError());
    EXPECT(sums.to_host() == expected);
}

TEST(a_warp_sums_by_shuffles_for_each_type) {
    check_sums<int>();
    check_sums<float>();
    check_sums<double>();
    check_sums<unsigned long long>();
}

__global__ void votes(unsigned *results) {
    const int own = threadIdx.x, count = blockDim.x;
    const bool third = own % 3 == 0;
    results[own] = __ballot_sync(all, third);
    results[count + own] = __any_sync(all, own == 40);
    results[2 * count + own] = __all_sync(all, own < 64);
    results[3 * count + own] = __activemask();
}

TEST(votes_count_the_threads_of_their_warp) {
    const int count = 96;
    OnDevice<unsigned> results(4 * count);
    votes<<<1, count>>>(results.data());
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = results.to_host();
    for (int own = 0; own < count; own++) {
        unsigned ballot = 0;
        for (int lane = 0; lane < 32; lane++)
            ballot |= static_cast<unsigned>((own / 32 * 32 + lane) % 3 == 0) << lane;
        EXPECT_EQUAL(got[own], ballot);
        EXPECT_EQUAL(got[count + own], static_cast<unsigned>(own / 32 == 1));
        EXPECT_EQUAL(got[2 * count + own], static_cast<unsigned>(own / 32 < 2));
        EXPECT_EQUAL(got[3 * count + own], all);
    }
}

// 50 threads: the second warp has 18 of them.
__global__ void part_of_a_warp(unsigned *results) {
    const int own = threadIdx.x;
    const unsigned here = own < 32 ? all : (1U << 18) - 1;
    results[own] = __ballot_sync(here, own & 1);
    results[64 + own] = __shfl_down_sync(here, own, 1);
    results[128 + own] = __activemask();
}

TEST(a_last_warp_that_is_not_full_votes_among_its_own) {
    OnDevice<unsigned> results(192);
    part_of_a_warp<<<1, 50>>>(results.data());
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = results.to_host();
    EXPECT_EQUAL(got[3], 0xaaaaaaaaU);
    EXPECT_EQUAL(got[33], 0xaaaaaaaaU & ((1U << 18) - 1));
    EXPECT_EQUAL(got[64 + 40], 41U);
    EXPECT_EQUAL(got[128 + 49], (1U << 18) - 1);
}

// Each half of a warp takes its own path, with a different number of rounds, and votes there.
__global__ void divergent(unsigned *results, int rounds) {
    const int own = threadIdx.x, lane = own % 32;
    unsigned sum = 0;
    if (lane < 16) {
        for (int round = 0; round < rounds; round++)
            sum += __ballot_sync(0x0000ffffU, (lane + round) % 4 == 0);
    } else {
        for (int round = 0; round < 2 * rounds + own / 32; round++)
            sum += __shfl_xor_sync(0xffff0000U, lane * round, 1);
    }
    results[own] = sum + (__any_sync(all, lane == 7) ? 1U << 31 : 0);
}

TEST(parts_of_a_warp_exchange_in_loops_of_their_own) {
    const int count = 64, rounds = 5;
    OnDevice<unsigned> results(count);
    divergent<<<1, count>>>(results.data(), rounds);
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = results.to_host();
    for (int own = 0; own < count; own++) {
        const int lane = own % 32;
        unsigned sum = 0;
        if (lane < 16) {
            for (int round = 0; round < rounds; round++)
                for (int other = 0; other < 16; other++)
                    sum += static_cast<unsigned>((other + round) % 4 == 0) << other;
        } else {
            for (int round = 0; round < 2 * rounds + own / 32; round++)
                sum += static_cast<unsigned>((lane ^ 1) * round);
        }
        EXPECT_EQUAL(got[own], sum + (1U << 31));
    }
}

__global__ void matches(unsigned *results) {
    const int own = threadIdx.x;
    int same = 0;
    results[own] = __match_any_sync(all, own % 5);
    results[64 + own] = __match_all_sync(all, own / 32, &same);
    results[128 + own] = same;
}

TEST(matches_find_the_lanes_with_the_same_value) {
    OnDevice<unsigned> results(192);
    matches<<<1, 64>>>(results.data());
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = results.to_host();
    for (int own = 0; own < 64; own++) {
        unsigned same = 0;
        for (int lane = 0; lane < 32; lane++)
            same |= static_cast<unsigned>((own / 32 * 32 + lane) % 5 == own % 5) << lane;
        EXPECT_EQUAL(got[own], same);
        EXPECT_EQUAL(got[64 + own], all);
        EXPECT_EQUAL(got[128 + own], 1U);
    }
}

// A reduction over the block: each warp by shuffles, then the first warp over the warps' sums in
// shared memory.
__global__ void sum_of_blocks(int *sums, const int *values) {
    __shared__ int of_warps[32];
    int sum = values[blockIdx.x * blockDim.x + threadIdx.x];
    for (int reach = 16; reach > 0; reach /= 2) sum += __shfl_xor_sync(all, sum, reach);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? of_warps[threadIdx.x] : 0;
        for (int reach = 16; reach > 0; reach /= 2) sum += __shfl_xor_sync(all, sum, reach);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

TEST(a_block_sums_by_shuffles_and_shared_memory) {
    const int blocks = 5, block = 256;
    std::vector<int> values(blocks * block), expected(blocks);
    for (int at = 0; at < blocks * block; at++) expected[at / block] += values[at] = at % 1009;
    OnDevice<int> on_values(values), sums(blocks);
    sum_of_blocks<<<blocks, block>>>(sums.data(), on_values.data());
    REQUIRE(cudaGetLastError());
    EXPECT(sums.to_host() == expected);
}

// The last step of a reduction, only by the lanes that have a value: the shuffles read from lanes
// that do not take part.
__global__ void sum_of_a_part(int *sum, int lanes) {
    int mine = 1000 + static_cast<int>(threadIdx.x);
    const unsigned part = __ballot_sync(all, static_cast<int>(threadIdx.x) < lanes);
    if (static_cast<int>(threadIdx.x) < lanes) {
        for (int reach = 16; reach > 0; reach /= 2) mine += __shfl_down_sync(part, mine, reach);
    }
    if (threadIdx.x == 0) *sum = mine;
}

TEST(lanes_that_are_not_there_add_nothing) {
    OnDevice<int> sum(1);
    for (int lanes : {1, 2, 8, 16, 32}) {
        sum_of_a_part<<<1, 32>>>(sum.data(), lanes);
        REQUIRE(cudaGetLastError());
        EXPECT_EQUAL(sum.to_host()[0], 1000 * lanes + lanes * (lanes - 1) / 2);
    }
}

__global__ void counted_barriers(int *results) {
    const int own = threadIdx.x;
    results[own] = __syncthreads_count(own % 3 == 0);
    results[64 + own] = __syncthreads_and(own < 64);
    results[128 + own] = __syncthreads_or(own == 64);
    __syncwarp();
}

TEST(barriers_count_and_combine) {
    OnDevice<int> results(192);
    counted_barriers<<<1, 64>>>(results.data());
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = results.to_host();
    EXPECT_EQUAL(got[10], 22);
    EXPECT_EQUAL(got[64 + 10], 1);
    EXPECT_EQUAL(got[128 + 10], 0);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
