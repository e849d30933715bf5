// Threads that part and come together again: behind barriers in branches that all threads take
// together, and in warps whose lanes take different paths. The host computes the same values one
// thread after the other.
#include "harness.h"

namespace {

constexpr unsigned all = 0xffffffffU;
constexpr int block = 64;

// The sum of the first values, as libraries compute it: one branch for a full block, and one for a
// block of which a part is valid.
template <typename T> __global__ void sum_of_valid(T *sum, const T *values, int valid) {
    __shared__ T sums[block / 32];
    const int own = threadIdx.x, lane = own % 32, last = min(31, valid - 1 - own / 32 * 32);
    T part = own < valid ? values[own] : T(0);
    if (valid >= block) {
        for (int reach = 1; reach < 32; reach *= 2) {
            const T other = __shfl_down_sync(all, part, reach);
            part += lane + reach < 32 ? other : T(0);
        }
        if (lane == 0) sums[own / 32] = part;
        __syncthreads();
        if (own == 0) part += sums[1];
    } else {
        for (int reach = 1; reach < 32; reach *= 2) {
            const T other = __shfl_down_sync(all, part, reach);
            part += lane + reach <= last ? other : T(0);
        }
        if (lane == 0) sums[own / 32] = part;
        __syncthreads();
        if (own == 0 && valid > 32) part += sums[1];
    }
    if (own == 0) *sum = part;
}

template <typename T> void check_sums() {
    std::vector<T> values(block);
    for (int at = 0; at < block; at++) values[at] = static_cast<T>(at * 37 % 64 + 1);
    OnDevice<T> on_values(values), sum(1);
    for (const int valid : {1, 31, 32, 33, 63, 64}) {
        sum_of_valid<<<1, block>>>(sum.data(), on_values.data(), valid);
        REQUIRE(cudaGetLastError());
        T wanted = 0;
        for (int at = 0; at < valid; at++) wanted += values[at];
        EXPECT_EQUAL(sum.to_host()[0], wanted);
    }
}

TEST(a_block_adds_up_its_valid_values) {
    check_sums<int>();
    check_sums<long long>();
    check_sums<double>();
}

// Both branches end where threads part, and the last store joins them.
__global__ void part_in_branches(int *results, const int *values, int way) {
    __shared__ int shared[block];
    const int own = threadIdx.x;
    int value = values[own];
    shared[own] = 2 * value;
    if (way == 0) {
        __syncthreads();
        if (own == 0) value += shared[block - 1];
    } else if (way == 1) {
        __syncthreads();
        if (own % 2 == 0) {
            value += shared[own + 1];
            results[block + own] = value;
        }
    } else if (own == 5) {
        value = -1;
    }
    if (own == 0 || own == 5) results[own] = value;
}

TEST(threads_part_behind_a_barrier_in_a_branch) {
    std::vector<int> values(block);
    for (int own = 0; own < block; own++) values[own] = own * 11 % 64 + 1;
    OnDevice<int> on_values(values);
    for (int way = 0; way < 3; way++) {
        OnDevice<int> results(2 * block);
        part_in_branches<<<1, block>>>(results.data(), on_values.data(), way);
        REQUIRE(cudaGetLastError());
        const std::vector<int> got = results.to_host();
        for (int own = 0; own < block; own++) {
            int value = values[own];
            if (way == 0 && own == 0) value += 2 * values[block - 1];
            const bool adds = way == 1 && own % 2 == 0;
            if (adds) value += 2 * values[own + 1];
            if (way == 2 && own == 5) value = -1;
            EXPECT_EQUAL(got[own], own == 0 || own == 5 ? value : 0);
            EXPECT_EQUAL(got[block + own], adds ? value : 0);
        }
    }
}

// All threads leave a turn or the loop together, and have parted before.
__global__ void part_in_loops(int *results, const int *values, int turns, int last) {
    __shared__ int shared[block];
    const int own = threadIdx.x;
    int value = values[own];
    for (int turn = 0; turn < turns; turn++) {
        shared[own] = value;
        __syncthreads();
        const int next = shared[(own + 1) % block];
        __syncthreads();
        if (turn == last) {
            __syncthreads();
            if (own % 4 == 0) results[block + own] = value += next;
            break;
        }
        if (turn % 2 == 1) {
            if (own < 7) results[block + own] = value ^= next;
            continue;
        }
        value += own == 9 ? 100 : 1;
    }
    if (own % 3 == 0) results[own] = value;
}

TEST(threads_part_before_they_leave_a_loop_with_barriers) {
    std::vector<int> values(block);
    for (int own = 0; own < block; own++) values[own] = own * 11 % 64 + 1;
    OnDevice<int> on_values(values);
    for (const int last : {0, 3, 4, 9}) {
        const int turns = 5;
        OnDevice<int> results(2 * block);
        part_in_loops<<<1, block>>>(results.data(), on_values.data(), turns, last);
        REQUIRE(cudaGetLastError());
        std::vector<int> now = values, wanted(2 * block);
        for (int turn = 0; turn < turns && turn <= last; turn++) {
            const std::vector<int> before = now;
            for (int own = 0; own < block; own++) {
                const int next = before[(own + 1) % block];
                const bool stores = turn == last ? own % 4 == 0 : turn % 2 == 1 && own < 7;
                if (turn == last)
                    now[own] += own % 4 == 0 ? next : 0;
                else if (turn % 2 == 1)
                    now[own] ^= own < 7 ? next : 0;
                else
                    now[own] += own == 9 ? 100 : 1;
                if (stores) wanted[block + own] = now[own];
            }
        }
        for (int own = 0; own < block; own += 3) wanted[own] = now[own];
        const std::vector<int> got = results.to_host();
        for (int at = 0; at < 2 * block; at++) EXPECT_EQUAL(got[at], wanted[at]);
    }
}

// The same branch in each turn of a loop: a compiler may copy what is behind it for each way.
__global__ void part_in_each_turn(int *results, const int *values, int way) {
    __shared__ int shared[block];
    const int own = threadIdx.x;
    int value = values[own];
    for (int turn = 0; turn < 3; turn++) {
        if (way % 2 == 1) {
            shared[own] = value;
            __syncthreads();
            value += shared[(own + 5) % block];
            __syncthreads();
            if (own % 3 == 0) results[block + own] = value;
        }
        if (way % 3 == 0 && value % 5 == 1 && own != 1) results[own] = value;
        if (own == 0) results[1] = value += turn;
    }
    for (int turn = 0; turn < own % 4; turn++) value += 3 * turn + 1;
    results[2 * block + own] = value;
}

TEST(threads_part_behind_the_same_branch_in_each_turn) {
    std::vector<int> values(block);
    for (int own = 0; own < block; own++) values[own] = own * 11 % 64 + 1;
    OnDevice<int> on_values(values);
    for (const int way : {1, 2, 3, 6}) {
        OnDevice<int> results(3 * block);
        part_in_each_turn<<<1, block>>>(results.data(), on_values.data(), way);
        REQUIRE(cudaGetLastError());
        std::vector<int> now = values, wanted(3 * block);
        for (int turn = 0; turn < 3; turn++) {
            const std::vector<int> before = now;
            for (int own = block; own-- > 0;) {
                if (way % 2 == 1) now[own] += before[(own + 5) % block];
                if (way % 2 == 1 && own % 3 == 0) wanted[block + own] = now[own];
                if (way % 3 == 0 && now[own] % 5 == 1 && own != 1) wanted[own] = now[own];
                if (own == 0) wanted[1] = now[own] += turn;
            }
        }
        for (int own = 0; own < block; own++) {
            for (int turn = 0; turn < own % 4; turn++) now[own] += 3 * turn + 1;
            wanted[2 * block + own] = now[own];
        }
        const std::vector<int> got = results.to_host();
        for (int at = 0; at < 3 * block; at++) EXPECT_EQUAL(got[at], wanted[at]);
    }
}

// Some blocks return early, with a barrier behind which threads part.
__global__ void return_early(int *results, int way) {
    __shared__ int shared[block];
    const int own = threadIdx.x;
    shared[own] = own * 3;
    if (way > 0) {
        __syncthreads();
        if (own > 3) results[own] = shared[own - 1];
        if (way > 1) return;
        __syncthreads();
    }
    if (own == 0) results[0] = 7;
    __syncthreads();
    if (own == 1) results[1] = shared[way] + 1;
}

TEST(blocks_return_early_behind_a_barrier) {
    for (int way = 0; way < 3; way++) {
        OnDevice<int> results(block);
        return_early<<<1, block>>>(results.data(), way);
        REQUIRE(cudaGetLastError());
        const std::vector<int> got = results.to_host();
        EXPECT_EQUAL(got[0], way < 2 ? 7 : 0);
        EXPECT_EQUAL(got[1], way < 2 ? way * 3 + 1 : 0);
        for (int own = 4; own < block; own++) EXPECT_EQUAL(got[own], way > 0 ? own * 3 - 3 : 0);
    }
}

// In each turn, the lanes that are left exchange values, and some of them take another path.
__global__ void lanes_leave(unsigned *results) {
    const unsigned own = threadIdx.x, lane = own % 32, turns = own % 5;
    unsigned members = all, value = own * 77 + 1;
    for (unsigned turn = 0;; turn++) {
        const unsigned left = __ballot_sync(members, turn < turns);
        if (turn >= turns) break;
        members = left;
        const unsigned odd = __ballot_sync(members, value % 2);
        if (value % 2)
            value += __shfl_sync(odd, value, __ffs(odd) - 1) + __popc(odd);
        else
            value = value * 5 + __match_any_sync(members & ~odd, lane % 3);
        value ^= __any_sync(members, value % 7 == 0) ? 1000 : 0;
    }
    results[own] = value + __popc(__ballot_sync(all, turns > 2));
}

// The same for one warp, whose values are in `now`.
void lanes_leave_on_host(unsigned first, std::vector<unsigned> &now) {
    unsigned many = 0;
    for (unsigned lane = 0; lane < 32; lane++) many += (first + lane) % 5 > 2;
    for (unsigned turn = 0; turn < 5; turn++) {
        const std::vector<unsigned> before = now;
        const auto is_left = [&](unsigned lane) { return turn < (first + lane) % 5; };
        unsigned odd = 0, leader = 32;
        for (unsigned lane = 32; lane-- > 0;)
            if (is_left(lane) && before[lane] % 2) odd++, leader = lane;
        for (unsigned lane = 0; lane < 32; lane++) {
            if (!is_left(lane)) continue;
            unsigned same = 0;
            for (unsigned other = 0; other < 32; other++)
                if (is_left(other) && before[other] % 2 == 0 && other % 3 == lane % 3)
                    same |= 1U << other;
            now[lane] =
                before[lane] % 2 ? before[lane] + before[leader] + odd : before[lane] * 5 + same;
        }
        bool any = false;
        for (unsigned lane = 0; lane < 32; lane++) any |= is_left(lane) && now[lane] % 7 == 0;
        for (unsigned lane = 0; lane < 32; lane++)
            if (is_left(lane) && any) now[lane] ^= 1000;
    }
    for (unsigned &value : now) value += many;
}

TEST(lanes_leave_a_loop_one_after_the_other) {
    OnDevice<unsigned> results(2 * block);
    lanes_leave<<<1, 2 * block>>>(results.data());
    REQUIRE(cudaGetLastError());
    const std::vector<unsigned> got = results.to_host();
    for (unsigned first = 0; first < 2 * block; first += 32) {
        std::vector<unsigned> now(32);
        for (unsigned lane = 0; lane < 32; lane++) now[lane] = (first + lane) * 77 + 1;
        lanes_leave_on_host(first, now);
        for (unsigned lane = 0; lane < 32; lane++) EXPECT_EQUAL(got[first + lane], now[lane]);
    }
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
