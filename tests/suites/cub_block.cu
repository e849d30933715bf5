// CUB's primitives of blocks that move, compare, reduce and scan values. Sorting is in
// cub_block_sort.cu.
#include "tiles.h"

#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>

namespace {

// Four warps, of which no block algorithm may assume that they run together.
const int THREADS = 128, ITEMS = 4;

template <typename Collective> __device__ typename Collective::TempStorage &storage_of_block() {
    __shared__ typename Collective::TempStorage storage;
    return storage;
}
template <typename Primitive> void check_blocks(int count) {
    check_tiles<THREADS, 1, ITEMS, Primitive>(count);
}
#define BLOCK_CASE(name) \
    CASE(name) { check_blocks<name##_primitive>(n); }

// Only thread 0 has the result of a reduction.
__device__ void from_first_thread(T (&results)[ITEMS], T result) {
    __shared__ T first;
    __syncthreads();
    if (threadIdx.x == 0) first = result;
    __syncthreads();
    for (int at = 0; at < ITEMS; at++) results[at] = first;
}

template <cub::BlockReduceAlgorithm how> struct Reduces : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Reduce = cub::BlockReduce<T, THREADS, how>;
        const T total = Reduce(storage_of_block<Reduce>()).Sum(items);
        __syncthreads();
        const T most = Reduce(storage_of_block<Reduce>()).Reduce(items, Larger());
        from_first_thread(results, total + most);
    }
    static Tile wanted(const Tile &tile) { return all_of(tile, sum(tile) + largest(tile)); }
};
CASE(reduce_by_warps) { check_blocks<Reduces<cub::BLOCK_REDUCE_WARP_REDUCTIONS>>(n); }
CASE(reduce_by_raking) { check_blocks<Reduces<cub::BLOCK_REDUCE_RAKING>>(n); }
CASE(reduce_by_commutative_raking) {
    check_blocks<Reduces<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>>(n);
}

// The first `valid` threads have a value that counts: their first one.
template <cub::BlockReduceAlgorithm how, int valid> struct ReducesPart : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Reduce = cub::BlockReduce<T, THREADS, how>;
        const T total = Reduce(storage_of_block<Reduce>()).Sum(items[0], valid);
        __syncthreads();
        const T most = Reduce(storage_of_block<Reduce>()).Reduce(items[0], Larger(), valid);
        from_first_thread(results, total + most);
    }
    static Tile wanted(const Tile &tile) {
        Tile part;
        for (int at = 0; at < valid; at++) part.push_back(tile[at * ITEMS]);
        return all_of(tile, sum(part) + largest(part));
    }
};
template <cub::BlockReduceAlgorithm how> void check_parts(int count) {
    check_blocks<ReducesPart<how, 1>>(count);
    check_blocks<ReducesPart<how, 33>>(count);
    check_blocks<ReducesPart<how, THREADS - 1>>(count);
    check_blocks<ReducesPart<how, THREADS>>(count);
}
CASE(reduce_part_by_warps) { check_parts<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(n); }
CASE(reduce_part_by_raking) { check_parts<cub::BLOCK_REDUCE_RAKING>(n); }
CASE(reduce_part_by_commutative_raking) {
    check_parts<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>(n);
}

template <cub::BlockScanAlgorithm how> struct InclusiveSums : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Scan = cub::BlockScan<T, THREADS, how>;
        Scan(storage_of_block<Scan>()).InclusiveScan(items, results, ::cuda::std::plus<>());
    }
    static Tile wanted(const Tile &tile) { return inclusive(tile, std::plus<T>()); }
};
CASE(inclusive_sum_by_warps) { check_blocks<InclusiveSums<cub::BLOCK_SCAN_WARP_SCANS>>(n); }
CASE(inclusive_sum_by_raking) { check_blocks<InclusiveSums<cub::BLOCK_SCAN_RAKING>>(n); }
CASE(inclusive_sum_by_memoized_raking) {
    check_blocks<InclusiveSums<cub::BLOCK_SCAN_RAKING_MEMOIZE>>(n);
}

template <cub::BlockScanAlgorithm how> struct ExclusiveScans : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Scan = cub::BlockScan<T, THREADS, how>;
        T most;
        Scan(storage_of_block<Scan>()).ExclusiveScan(items, results, number(20), Larger(), most);
        for (int at = 0; at < ITEMS; at++) results[at] = results[at] + most;
    }
    static Tile wanted(const Tile &tile) {
        Tile found = exclusive(tile, number(20), Larger());
        for (T &value : found) value = value + largest(tile);
        return found;
    }
};
CASE(exclusive_larger_by_warps) { check_blocks<ExclusiveScans<cub::BLOCK_SCAN_WARP_SCANS>>(n); }
CASE(exclusive_larger_by_raking) { check_blocks<ExclusiveScans<cub::BLOCK_SCAN_RAKING>>(n); }

// Each of four pieces of a tile goes on from the piece before it.
struct PrefixOfPieces {
    T prefix;
    __device__ T operator()(T piece) {
        const T before = prefix;
        prefix = prefix + piece;
        return before;
    }
};
struct scan_with_prefix_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Scan = cub::BlockScan<T, THREADS>;
        PrefixOfPieces prefix{number(3)};
        for (int at = 0; at < ITEMS; at++) {
            Scan(storage_of_block<Scan>())
                .InclusiveScan(items[at], results[at], ::cuda::std::plus<>(), prefix);
            __syncthreads();
        }
    }
    static Tile wanted(const Tile &tile) {
        // Piece `at` has value `at` of each thread.
        Tile found(tile.size());
        T total = number(3);
        for (int at = 0; at < ITEMS; at++)
            for (int thread = 0; thread < THREADS; thread++)
                found[thread * ITEMS + at] = total = total + tile[thread * ITEMS + at];
        return found;
    }
};
BLOCK_CASE(scan_with_prefix)

struct subtract_left_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Difference = cub::BlockAdjacentDifference<T, THREADS>;
        Difference(storage_of_block<Difference>()).SubtractLeft(items, results, Subtract());
    }
    static Tile wanted(const Tile &tile) {
        Tile found(tile.size());
        std::adjacent_difference(tile.begin(), tile.end(), found.begin());
        return found;
    }
};
BLOCK_CASE(subtract_left)

struct subtract_right_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Difference = cub::BlockAdjacentDifference<T, THREADS>;
        Difference(storage_of_block<Difference>()).SubtractRight(items, results, Subtract());
    }
    static Tile wanted(const Tile &tile) {
        Tile found = tile;
        for (std::size_t at = 0; at + 1 < tile.size(); at++) found[at] = tile[at] - tile[at + 1];
        return found;
    }
};
BLOCK_CASE(subtract_right)

struct OfRuns : Primitive {
    static Tile values(int count) { return runs(count); }
    static T flag(bool value) { return number(value ? 1 : 0); }
};
struct flag_heads_primitive : OfRuns {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Flags = cub::BlockDiscontinuity<T, THREADS>;
        int flags[ITEMS];
        Flags(storage_of_block<Flags>()).FlagHeads(flags, items, Differs());
        for (int at = 0; at < ITEMS; at++) results[at] = number(flags[at]);
    }
    static Tile wanted(const Tile &tile) {
        Tile found;
        for (std::size_t at = 0; at < tile.size(); at++)
            found.push_back(flag(at == 0 || tile[at] != tile[at - 1]));
        return found;
    }
};
BLOCK_CASE(flag_heads)

struct flag_heads_and_tails_primitive : OfRuns {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Flags = cub::BlockDiscontinuity<T, THREADS>;
        int heads[ITEMS], tails[ITEMS];
        Flags(storage_of_block<Flags>()).FlagHeadsAndTails(heads, tails, items, Differs());
        for (int at = 0; at < ITEMS; at++) results[at] = number(heads[at] + 2 * tails[at]);
    }
    static Tile wanted(const Tile &tile) {
        Tile found;
        for (std::size_t at = 0; at < tile.size(); at++) {
            const bool head = at == 0 || tile[at] != tile[at - 1];
            const bool tail = at + 1 == tile.size() || tile[at] != tile[at + 1];
            found.push_back(number(head + 2 * tail));
        }
        return found;
    }
};
BLOCK_CASE(flag_heads_and_tails)

using Exchange = cub::BlockExchange<T, THREADS, ITEMS>;
struct exchange_to_stripes_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        Exchange(storage_of_block<Exchange>()).BlockedToStriped(items, results);
    }
    static Tile wanted(const Tile &tile) { return striped(tile, ITEMS); }
};
BLOCK_CASE(exchange_to_stripes)

struct exchange_to_blocks_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        Exchange(storage_of_block<Exchange>()).StripedToBlocked(items, results);
    }
    static Tile wanted(const Tile &tile) { return unstriped(tile, ITEMS); }
};
BLOCK_CASE(exchange_to_blocks)

// There and back, over the order in which warps have their values in stripes.
struct exchange_with_warps_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        T between[ITEMS];
        Exchange(storage_of_block<Exchange>()).BlockedToWarpStriped(items, between);
        __syncthreads();
        for (int at = 0; at < ITEMS; at++) between[at] = between[at] + number(at);
        Exchange(storage_of_block<Exchange>()).WarpStripedToBlocked(between, results);
    }
    static Tile wanted(const Tile &tile) {
        Tile found = tile;
        for (std::size_t at = 0; at < tile.size(); at++)
            found[at] = found[at] + number(at % (32 * ITEMS) / 32);
        return found;
    }
};
BLOCK_CASE(exchange_with_warps)

template <bool to_stripes> struct Scatters : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        int places[ITEMS];
        for (int at = 0; at < ITEMS; at++)
            places[at] = THREADS * ITEMS - 1 - (threadIdx.x * ITEMS + at);
        Exchange exchange(storage_of_block<Exchange>());
        if constexpr (to_stripes)
            exchange.ScatterToStriped(items, results, places);
        else
            exchange.ScatterToBlocked(items, results, places);
    }
    static Tile wanted(const Tile &tile) {
        const Tile back(tile.rbegin(), tile.rend());
        return to_stripes ? striped(back, ITEMS) : back;
    }
};
CASE(scatter_to_stripes) { check_blocks<Scatters<true>>(n); }
CASE(scatter_to_blocks) { check_blocks<Scatters<false>>(n); }

struct shuffle_up_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Shuffle = cub::BlockShuffle<T, THREADS>;
        Shuffle(storage_of_block<Shuffle>()).Up(items, results);
        if (threadIdx.x == 0) results[0] = items[0];
    }
    static Tile wanted(const Tile &tile) {
        Tile found(tile.begin(), tile.end() - 1);
        found.insert(found.begin(), tile[0]);
        return found;
    }
};
BLOCK_CASE(shuffle_up)

struct shuffle_down_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Shuffle = cub::BlockShuffle<T, THREADS>;
        Shuffle(storage_of_block<Shuffle>()).Down(items, results);
        if (threadIdx.x == THREADS - 1) results[ITEMS - 1] = items[ITEMS - 1];
    }
    static Tile wanted(const Tile &tile) {
        Tile found(tile.begin() + 1, tile.end());
        found.push_back(tile.back());
        return found;
    }
};
BLOCK_CASE(shuffle_down)

struct shuffle_offset_and_rotate_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Shuffle = cub::BlockShuffle<T, THREADS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Shuffle(storage_of_block<Shuffle>()).Offset(items[0], results[0], 5);
        __syncthreads();
        Shuffle(storage_of_block<Shuffle>()).Rotate(items[1], results[1], 37);
    }
    static Tile wanted(const Tile &tile) {
        Tile found = tile;
        for (int thread = 0; thread < THREADS; thread++) {
            if (thread + 5 < THREADS) found[thread * ITEMS] = tile[(thread + 5) * ITEMS];
            found[thread * ITEMS + 1] = tile[(thread + 37) % THREADS * ITEMS + 1];
        }
        return found;
    }
};
BLOCK_CASE(shuffle_offset_and_rotate)

// Loads and stores take memory, which is shared memory here.
__device__ T *memory_of_block() {
    __shared__ __align__(16) char memory[THREADS * ITEMS * sizeof(T)];
    return reinterpret_cast<T *>(memory);
}

template <cub::BlockLoadAlgorithm how> struct Loads : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        T *const memory = memory_of_block();
        for (int at = 0; at < ITEMS; at++) memory[threadIdx.x * ITEMS + at] = items[at];
        __syncthreads();
        using Load = cub::BlockLoad<T, THREADS, ITEMS, how>;
        Load(storage_of_block<Load>()).Load(memory, results);
        __syncthreads();
        // The last 77 values do not count.
        T part[ITEMS];
        Load(storage_of_block<Load>()).Load(memory, part, THREADS * ITEMS - 77, number(5));
        for (int at = 0; at < ITEMS; at++) results[at] = results[at] + part[at];
    }
    static Tile wanted(const Tile &tile) {
        Tile part = tile;
        std::fill(part.end() - 77, part.end(), number(5));
        for (std::size_t at = 0; at < tile.size(); at++) part[at] = tile[at] + part[at];
        return how == cub::BLOCK_LOAD_STRIPED ? striped(part, ITEMS) : part;
    }
};
CASE(load_direct) { check_blocks<Loads<cub::BLOCK_LOAD_DIRECT>>(n); }
CASE(load_striped) { check_blocks<Loads<cub::BLOCK_LOAD_STRIPED>>(n); }
CASE(load_vectorized) { check_blocks<Loads<cub::BLOCK_LOAD_VECTORIZE>>(n); }
CASE(load_transposed) { check_blocks<Loads<cub::BLOCK_LOAD_TRANSPOSE>>(n); }
CASE(load_transposed_by_warps) { check_blocks<Loads<cub::BLOCK_LOAD_WARP_TRANSPOSE>>(n); }
CASE(load_transposed_by_warps_in_turn) {
    check_blocks<Loads<cub::BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED>>(n);
}

template <cub::BlockStoreAlgorithm how> struct Stores : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        T *const memory = memory_of_block();
        for (int at = 0; at < ITEMS; at++) memory[threadIdx.x * ITEMS + at] = number(5);
        __syncthreads();
        using Store = cub::BlockStore<T, THREADS, ITEMS, how>;
        Store(storage_of_block<Store>()).Store(memory, items, THREADS * ITEMS - 77);
        __syncthreads();
        for (int at = 0; at < ITEMS; at++) results[at] = memory[threadIdx.x * ITEMS + at];
    }
    static Tile wanted(const Tile &tile) {
        Tile found = how == cub::BLOCK_STORE_STRIPED ? unstriped(tile, ITEMS) : tile;
        std::fill(found.end() - 77, found.end(), number(5));
        return found;
    }
};
CASE(store_direct) { check_blocks<Stores<cub::BLOCK_STORE_DIRECT>>(n); }
CASE(store_striped) { check_blocks<Stores<cub::BLOCK_STORE_STRIPED>>(n); }
CASE(store_vectorized) { check_blocks<Stores<cub::BLOCK_STORE_VECTORIZE>>(n); }
CASE(store_transposed) { check_blocks<Stores<cub::BLOCK_STORE_TRANSPOSE>>(n); }
CASE(store_transposed_by_warps) { check_blocks<Stores<cub::BLOCK_STORE_WARP_TRANSPOSE>>(n); }
CASE(store_transposed_by_warps_in_turn) {
    check_blocks<Stores<cub::BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED>>(n);
}

} // namespace
