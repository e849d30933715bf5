// Lanes of a warp that exchange values through memory without synchronisation in the text. Programs
// do this because it works on every GPU: the lanes that are together execute one statement after
// the other.
#include "harness.h"

namespace {

constexpr unsigned all = 0xffffffffU;

// Lanes that keep their values store them contiguously in shared memory, and each full warp of
// values is written out. OpenMM's neighbour list does this.
__global__ void compact(int *out) {
    __shared__ int kept[64];
    const int lane = threadIdx.x % 32;
    int count = 0, written = 0;
    for (int round = 0; round < 8; round++) {
        const bool keeps = (lane * 7 + round) % 3 != 0;
        const unsigned keepers = __ballot_sync(all, keeps);
        if (keeps) kept[count + __popc(keepers & ((1U << lane) - 1))] = round * 32 + lane;
        count += __popc(keepers);
        if (count >= 32) {
            if (written < 2) out[written * 32 + lane] = kept[lane];
            if (lane + 32 < 64) kept[lane] = kept[lane + 32];
            count -= 32;
            written++;
        }
    }
}

TEST(values_are_compacted_through_shared_memory) {
    OnDevice<int> out(64);
    compact<<<1, 32>>>(out.data());
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = out.to_host();
    for (int round = 0, at = 0; round < 8; round++)
        for (int lane = 0; lane < 32; lane++)
            if ((lane * 7 + round) % 3 != 0 && at < 64) {
                EXPECT_EQUAL(got[at], round * 32 + lane);
                at++;
            }
}

// Lane 0 takes a ticket for its warp.
__global__ void tickets(unsigned *counter, unsigned *out) {
    __shared__ volatile unsigned of_warp[8];
    volatile unsigned &mine = of_warp[threadIdx.x / 32];
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x % 32 == 0) mine = atomicAdd(counter, 1U);
        out[(blockIdx.x * 4 + round) * 64 + threadIdx.x] = mine;
    }
}

TEST(a_lane_takes_a_ticket_for_its_warp) {
    OnDevice<unsigned> counter(1), out(512);
    REQUIRE(cudaMemset(counter.data(), 0, sizeof(unsigned)));
    tickets<<<2, 64>>>(counter.data(), out.data());
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = out.to_host();
    std::vector<int> taken(16);
    for (int at = 0; at < 512; at++) {
        EXPECT_EQUAL(got[at], got[at / 32 * 32]);
        if (at % 32 == 0 && got[at] < 16) taken[got[at]]++;
    }
    for (const int times : taken) EXPECT_EQUAL(times, 1);
}

// All lanes fill a list together, until the last lane has a value that is large enough. OpenMM's
// nonbonded kernel skips tiles in this way.
__global__ void skip(const int *values, int count, int least, int *out) {
    __shared__ volatile int list[64];
    const int lane = threadIdx.x % 32, first = threadIdx.x - lane;
    int base = 0;
    list[threadIdx.x] = -1;
    while (list[first + 31] < least) {
        list[threadIdx.x] = base + lane < count ? values[base + lane] : 1 << 20;
        base += 32;
    }
    out[threadIdx.x] = base;
}

TEST(loops_end_by_what_another_lane_stores) {
    std::vector<int> values(256);
    for (int at = 0; at < 256; at++) values[at] = at;
    OnDevice<int> on_values(values), out(64);
    for (const int least : {1, 32, 100, 255, 1000}) {
        skip<<<1, 64>>>(on_values.data(), 256, least, out.data());
        REQUIRE(cudaGetLastError());
        int wanted = 0;
        for (int last = -1; last < least; wanted += 32)
            last = wanted + 31 < 256 ? values[wanted + 31] : 1 << 20;
        for (const int got : out.to_host()) EXPECT_EQUAL(got, wanted);
    }
}

// The last steps of a reduction, as programs wrote them before CUDA 9.
__global__ void sum_of_block(const int *values, int *sums) {
    __shared__ int parts[256];
    const int own = threadIdx.x;
    parts[own] = values[blockIdx.x * 256 + own];
    __syncthreads();
    for (int reach = 128; reach > 32; reach /= 2) {
        if (own < reach) parts[own] += parts[own + reach];
        __syncthreads();
    }
    if (own < 32) {
        volatile int *const last = parts;
        last[own] += last[own + 32];
        last[own] += last[own + 16];
        last[own] += last[own + 8];
        last[own] += last[own + 4];
        last[own] += last[own + 2];
        last[own] += last[own + 1];
    }
    if (own == 0) sums[blockIdx.x] = parts[0];
}

TEST(the_last_warp_sums_in_step) {
    std::vector<int> values(1024);
    for (int at = 0; at < 1024; at++) values[at] = at * at % 1000;
    OnDevice<int> on_values(values), sums(4);
    sum_of_block<<<4, 256>>>(on_values.data(), sums.data());
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = sums.to_host();
    for (int block = 0; block < 4; block++) {
        int wanted = 0;
        for (int at = 0; at < 256; at++) wanted += values[block * 256 + at];
        EXPECT_EQUAL(got[block], wanted);
    }
}

// Each lane stores the value of the next lane in its own place. No lane overwrites a value that
// another lane has yet to load.
__global__ void rotate(int *out, int rounds) {
    __shared__ int ring[32];
    const int lane = threadIdx.x;
    ring[lane] = lane;
    for (int round = 0; round < rounds; round++) ring[lane] = ring[(lane + 1) % 32];
    out[lane] = ring[lane];
}

TEST(a_load_comes_before_the_store_of_another_lane) {
    OnDevice<int> out(32);
    rotate<<<1, 32>>>(out.data(), 5);
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = out.to_host();
    for (int lane = 0; lane < 32; lane++) EXPECT_EQUAL(got[lane], (lane + 5) % 32);
}

// The same in global memory, by volatile accesses.
__global__ void in_global(volatile int *words, int *out) {
    const int own = threadIdx.x;
    words[own] = own * 3;
    const int other = words[own ^ 1];
    words[own] = other + words[own ^ 2];
    out[own] = words[own ^ 4];
}

TEST(volatile_words_of_global_memory_are_exchanged) {
    OnDevice<int> words(64), out(64);
    in_global<<<1, 64>>>(words.data(), out.data());
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = out.to_host();
    for (int own = 0; own < 64; own++) EXPECT_EQUAL(got[own], 3 * ((own ^ 4 ^ 1) + (own ^ 4 ^ 2)));
}

// A lock that all lanes of a block contend for, in shared memory and in global memory.
__global__ void under_a_lock(int *lock, int *count) {
    __shared__ int near_lock, near_count;
    if (threadIdx.x == 0) near_lock = near_count = 0;
    __syncthreads();
    for (bool done = false; !done;) {
        if (atomicCAS(&near_lock, 0, 1) == 0) {
            volatile int *const counted = &near_count;
            *counted = *counted + 1;
            __threadfence_block();
            atomicExch(&near_lock, 0);
            done = true;
        }
    }
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            volatile int *const counted = count;
            *counted = *counted + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(count + 1, near_count);
}

TEST(lanes_take_a_lock_one_after_the_other) {
    OnDevice<int> lock(1), count(2);
    REQUIRE(cudaMemset(lock.data(), 0, sizeof(int)));
    REQUIRE(cudaMemset(count.data(), 0, 2 * sizeof(int)));
    under_a_lock<<<2, 64>>>(lock.data(), count.data());
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = count.to_host();
    EXPECT_EQUAL(got[0], 128);
    EXPECT_EQUAL(got[1], 128);
}

// The same with a loop that only tries to take the lock.
__global__ void behind_a_near_lock(int *count) {
    __shared__ int lock;
    __shared__ volatile int counted;
    if (threadIdx.x == 0) lock = counted = 0;
    __syncthreads();
    while (atomicCAS(&lock, 0, 1) != 0) {}
    counted = counted + 1;
    __threadfence_block();
    atomicExch(&lock, 0);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(count, counted);
}
__global__ void behind_a_far_lock(int *lock, volatile int *count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    *count = *count + 1;
    __threadfence();
    atomicExch(lock, 0);
}

TEST(lanes_wait_for_a_lock_in_a_loop) {
    OnDevice<int> lock(1), count(2);
    REQUIRE(cudaMemset(lock.data(), 0, sizeof(int)));
    REQUIRE(cudaMemset(count.data(), 0, 2 * sizeof(int)));
    behind_a_near_lock<<<2, 64>>>(count.data());
    behind_a_far_lock<<<2, 64>>>(lock.data(), count.data() + 1);
    REQUIRE(cudaGetLastError());
    const std::vector<int> got = count.to_host();
    EXPECT_EQUAL(got[0], 128);
    EXPECT_EQUAL(got[1], 128);
}

// One thread waits for a flag that a thread of another warp of its block sets.
__global__ void wait_for_flag(int *out) {
    __shared__ volatile int flag, value;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        while (flag == 0) {}
        out[0] = value;
    } else if (threadIdx.x == 63) {
        value = 5;
        __threadfence_block();
        flag = 1;
    }
}

TEST(a_thread_waits_for_another_of_its_block) {
    OnDevice<int> out(1);
    REQUIRE(cudaMemset(out.data(), 0, sizeof(int)));
    wait_for_flag<<<1, 64>>>(out.data());
    REQUIRE(cudaDeviceSynchronize());
    EXPECT_EQUAL(out.to_host()[0], 5);
}

// The same through global memory, where another block may also set the flag. The thread reads it in
// three ways.
template <int how> __global__ void wait_for_a_far_flag(int *flags, int *out) {
    volatile int *const seen = flags;
    if (threadIdx.x == 0) {
        if (how == 0)
            while (seen[0] == 0) {}
        else if (how == 1)
            while (atomicAdd(flags, 0) == 0) {}
        else
            for (int value = 0; value == 0;)
                asm volatile("ld.acquire.cta.b32 %0, [%1];" : "=r"(value) : "l"(flags) : "memory");
        out[0] = seen[1];
    } else if (threadIdx.x == 40) {
        seen[1] = 43;
        __threadfence();
        seen[0] = 1;
    }
    __syncthreads();
    out[1 + threadIdx.x] = seen[1];
}

template <int how> void check_far_flag() {
    OnDevice<int> flags(2), out(65);
    REQUIRE(cudaMemset(flags.data(), 0, 2 * sizeof(int)));
    wait_for_a_far_flag<how><<<1, 64>>>(flags.data(), out.data());
    REQUIRE(cudaDeviceSynchronize());
    for (const int got : out.to_host()) EXPECT_EQUAL(got, 43);
}

TEST(a_thread_waits_for_another_of_its_block_in_global_memory) {
    check_far_flag<0>();
    check_far_flag<1>();
    check_far_flag<2>();
}

// Each thread waits for the next one.
__global__ void chain(volatile int *words) {
    const int own = threadIdx.x, count = blockDim.x;
    if (own < count - 1)
        while (words[own + 1] == 0) {}
    words[own] = own < count - 1 ? words[own + 1] + 1 : 1;
}

TEST(threads_wait_for_each_other_in_a_chain) {
    OnDevice<int> words(64);
    REQUIRE(cudaMemset(words.data(), 0, 64 * sizeof(int)));
    chain<<<1, 64>>>(words.data());
    REQUIRE(cudaDeviceSynchronize());
    const std::vector<int> got = words.to_host();
    for (int at = 0; at < 64; at++) EXPECT_EQUAL(got[at], 64 - at);
}

// No thread sets the flag: that must be an error, and not a hang.
__global__ void wait_for_nothing(int *out) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    while (flag == 0) {}
    out[0] = 1;
}

FORKED_TEST(a_wait_for_nobody_is_an_error) {
    OnDevice<int> out(1);
    wait_for_nothing<<<1, 32>>>(out.data());
    EXPECT_CODE(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
