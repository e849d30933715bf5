// Atomic operations on global and shared memory, 32 and 64 bits wide: many threads, no lost update.
#include "harness.h"

namespace {

constexpr int blocks = 8, block = 64, threads = blocks * block;

template <typename T> struct Cells {
    T added, least, most, ands, ors, xors, exchanged, counted_up, counted_down, by_compare;
};

template <typename T> __device__ void touch(Cells<T> *cells, int own) {
    atomicAdd(&cells->added, static_cast<T>(own));
    atomicMin(&cells->least, static_cast<T>(own * 3 - 50));
    atomicMax(&cells->most, static_cast<T>(own * 3));
    atomicAnd(&cells->ands, ~(static_cast<T>(1) << (own % 20)));
    atomicOr(&cells->ors, static_cast<T>(1) << (own % 30));
    atomicXor(&cells->xors, static_cast<T>(own));
    atomicExch(&cells->exchanged, static_cast<T>(own + 1));
    T seen = cells->by_compare, before;
    do {
        before = seen;
        seen = atomicCAS(&cells->by_compare, before, static_cast<T>(before + 2));
    } while (seen != before);
}

template <typename T> __global__ void on_global(Cells<T> *cells) {
    const int own = blockIdx.x * blockDim.x + threadIdx.x;
    touch(cells, own);
}

template <typename T> __global__ void on_shared(Cells<T> *cells, Cells<T> start) {
    __shared__ Cells<T> here;
    if (threadIdx.x == 0) here = start;
    __syncthreads();
    for (int own = threadIdx.x; own < threads; own += blockDim.x) touch(&here, own);
    __syncthreads();
    if (threadIdx.x == 0) *cells = here;
}

template <typename T> void check(const Cells<T> &got) {
    T sum = 0, every = 0, ands = static_cast<T>(-1), ors = 0;
    for (int own = 0; own < threads; own++) {
        sum += own;
        every ^= own;
        ands &= ~(static_cast<T>(1) << (own % 20));
        ors |= static_cast<T>(1) << (own % 30);
    }
    EXPECT_EQUAL(got.added, sum);
    EXPECT_EQUAL(got.most, static_cast<T>(3 * (threads - 1)));
    EXPECT_EQUAL(got.ands, ands);
    EXPECT_EQUAL(got.ors, ors);
    EXPECT_EQUAL(got.xors, every);
    EXPECT_EQUAL(got.by_compare, static_cast<T>(2 * threads));
    EXPECT(got.exchanged >= 1 && got.exchanged <= static_cast<T>(threads));
    // Unsigned values below 50 have wrapped around.
    EXPECT_EQUAL(got.least, static_cast<T>(-1) < 0 ? static_cast<T>(-50) : static_cast<T>(1));
}

template <typename T> void check_type() {
    Cells<T> start{};
    start.least = static_cast<T>(100'000);
    start.ands = static_cast<T>(-1);
    OnDevice<Cells<T>> cells(std::vector<Cells<T>>{start});
    on_global<<<blocks, block>>>(cells.data());
    REQUIRE(cudaGetLastError());
    check(cells.to_host()[0]);
    on_shared<<<1, 128>>>(cells.data(), start);
    REQUIRE(cudaGetLastError());
    check(cells.to_host()[0]);
}

TEST(signed_words_keep_every_change) { check_type<int>(); }
TEST(unsigned_words_keep_every_change) { check_type<unsigned>(); }
TEST(long_words_keep_every_change) { check_type<unsigned long long>(); }

__global__ void turns(unsigned *counters) {
    atomicInc(&counters[0], 6); // 0 to 6, then 0 again
    atomicDec(&counters[1], 9); // 9 to 0, then 9 again
    atomicSub(&counters[2], 3);
}

TEST(counters_turn_around_at_their_ends) {
    OnDevice<unsigned> counters(std::vector<unsigned>{0, 0, 10'000});
    turns<<<blocks, block>>>(counters.data());
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = counters.to_host();
    EXPECT_EQUAL(got[0], static_cast<unsigned>(threads % 7));
    EXPECT_EQUAL(got[1], static_cast<unsigned>((10 - threads % 10) % 10));
    EXPECT_EQUAL(got[2], static_cast<unsigned>(10'000 - 3 * threads));
}

template <typename T> __global__ void add_fractions(T *sums) {
    __shared__ T here;
    if (threadIdx.x == 0) here = 0;
    __syncthreads();
    atomicAdd(&here, static_cast<T>(0.25));
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&sums[0], here);
    atomicAdd(&sums[1], static_cast<T>(0.5));
}

template <typename T> void check_fractions() {
    OnDevice<T> sums(2);
    add_fractions<<<blocks, block>>>(sums.data());
    REQUIRE(cudaGetLastError());
    EXPECT_EQUAL(sums.to_host()[0], static_cast<T>(threads * 0.25));
    EXPECT_EQUAL(sums.to_host()[1], static_cast<T>(threads * 0.5));
}

TEST(floats_add_up) { check_fractions<float>(); }
TEST(doubles_add_up) { check_fractions<double>(); }

// Every thread takes a ticket, and no number is given out twice.
__global__ void tickets(int *next, int *taken) {
    const int own = atomicAdd(next, 1);
    atomicAdd(&taken[own], 1);
}

TEST(what_an_addition_returns_is_unique) {
    OnDevice<int> next(1), taken(threads);
    tickets<<<blocks, block>>>(next.data(), taken.data());
    REQUIRE(cudaGetLastError());
    for (const int count : taken.to_host()) EXPECT_EQUAL(count, 1);
}

// The last block to arrive adds up the other blocks' parts. The fence makes their writes visible.
__global__ void last_block(int *parts, int *arrived, int *total) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
        __threadfence();
        last = atomicAdd(arrived, 1) == static_cast<int>(gridDim.x) - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int sum = 0;
        for (unsigned at = 0; at < gridDim.x; at++) sum += static_cast<volatile int *>(parts)[at];
        *total = sum;
    }
}

TEST(the_last_block_sees_what_all_blocks_wrote) {
    OnDevice<int> parts(blocks), arrived(1), total(1);
    last_block<<<blocks, block>>>(parts.data(), arrived.data(), total.data());
    REQUIRE(cudaGetLastError());
    EXPECT_EQUAL(total.to_host()[0], blocks * (blocks + 1) / 2);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
