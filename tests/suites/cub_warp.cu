// CUB's primitives of warps.
#include "tiles.h"

#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_store.cuh>

namespace {

const int WARPS = 3, ITEMS = 4;

template <typename Collective> __device__ typename Collective::TempStorage &storage_of_warp() {
    __shared__ typename Collective::TempStorage storage[WARPS];
    return storage[threadIdx.x / 32];
}
__device__ int lane() { return threadIdx.x % 32; }

// One value in each lane.
#define WARP_CASE(name) \
    CASE(name) { check_tiles<32, WARPS, 1, name##_primitive>(n); }
// Several values in each lane.
#define WARP_TILE_CASE(name) \
    CASE(name) { check_tiles<32, WARPS, ITEMS, name##_primitive>(n); }

using Reduce = cub::WarpReduce<T>;

// Only lane 0 has the result of a reduction, and the other lanes get it from there.
__device__ void from_first_lane(T (&results)[1], T result) {
    __shared__ T first[WARPS];
    if (lane() == 0) first[threadIdx.x / 32] = result;
    __syncwarp();
    results[0] = first[threadIdx.x / 32];
}

struct reduce_sum_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        from_first_lane(results, Reduce(storage_of_warp<Reduce>()).Sum(items[0]));
    }
    static Tile wanted(const Tile &tile) { return all_of(tile, sum(tile)); }
};
WARP_CASE(reduce_sum)

struct reduce_larger_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        from_first_lane(results, Reduce(storage_of_warp<Reduce>()).Reduce(items[0], Larger()));
    }
    static Tile wanted(const Tile &tile) { return all_of(tile, largest(tile)); }
};
WARP_CASE(reduce_larger)

template <int valid> struct Partial : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        const T total = Reduce(storage_of_warp<Reduce>()).Sum(items[0], valid);
        __syncwarp();
        const T most = Reduce(storage_of_warp<Reduce>()).Reduce(items[0], Larger(), valid);
        from_first_lane(results, total + most);
    }
    static Tile wanted(const Tile &tile) {
        const Tile part(tile.begin(), tile.begin() + valid);
        return all_of(tile, sum(part) + largest(part));
    }
};
CASE(reduce_1_valid) { check_tiles<32, WARPS, 1, Partial<1>>(n); }
CASE(reduce_17_valid) { check_tiles<32, WARPS, 1, Partial<17>>(n); }
CASE(reduce_31_valid) { check_tiles<32, WARPS, 1, Partial<31>>(n); }

// Warps of eight threads.
struct reduce_small_warps_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        using Small = cub::WarpReduce<T, 8>;
        __shared__ typename Small::TempStorage storage[WARPS * 4];
        __shared__ T first[WARPS * 4];
        const int warp = threadIdx.x / 8;
        const T total = Small(storage[warp]).Sum(items[0]);
        if (lane() % 8 == 0) first[warp] = total;
        __syncwarp();
        results[0] = first[warp];
    }
    static Tile wanted(const Tile &tile) {
        Tile found;
        for (int at = 0; at < 32; at++) {
            const auto begin = tile.begin() + at / 8 * 8;
            found.push_back(sum(Tile(begin, begin + 8)));
        }
        return found;
    }
};
WARP_CASE(reduce_small_warps)

// A segment begins at each multiple of five. Its head has its sum.
struct segmented_sum_by_heads_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        const bool head = lane() % 5 == 0;
        const T total = Reduce(storage_of_warp<Reduce>()).HeadSegmentedSum(items[0], head);
        results[0] = head ? total : number(0);
    }
    static Tile wanted(const Tile &tile) {
        Tile found(32, number(0));
        for (int at = 0; at < 32; at++) found[at / 5 * 5] = found[at / 5 * 5] + tile[at];
        return found;
    }
};
WARP_CASE(segmented_sum_by_heads)

struct segmented_larger_by_tails_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        const int tail = lane() % 5 == 4;
        const T most =
            Reduce(storage_of_warp<Reduce>()).TailSegmentedReduce(items[0], tail, Larger());
        results[0] = lane() % 5 == 0 ? most : number(0);
    }
    static Tile wanted(const Tile &tile) {
        Tile found(32, number(0));
        for (int at = 0; at < 32; at++) {
            T &most = found[at / 5 * 5];
            most = at % 5 == 0 ? tile[at] : Larger()(most, tile[at]);
        }
        return found;
    }
};
WARP_CASE(segmented_larger_by_tails)

using Scan = cub::WarpScan<T>;

struct inclusive_sum_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        Scan(storage_of_warp<Scan>()).InclusiveSum(items[0], results[0]);
    }
    static Tile wanted(const Tile &tile) { return inclusive(tile, std::plus<T>()); }
};
WARP_CASE(inclusive_sum)

struct exclusive_sum_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        T total = number(0);
        // The scan needs a first value for a type that has no addition of its own.
        Scan(storage_of_warp<Scan>())
            .ExclusiveScan(items[0], results[0], number(0), ::cuda::std::plus<>(), total);
        results[0] = results[0] + total;
    }
    static Tile wanted(const Tile &tile) {
        Tile found = exclusive(tile, number(0), std::plus<T>());
        for (T &value : found) value = value + sum(tile);
        return found;
    }
};
WARP_CASE(exclusive_sum)

struct inclusive_larger_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        Scan(storage_of_warp<Scan>()).InclusiveScan(items[0], results[0], Larger());
    }
    static Tile wanted(const Tile &tile) { return inclusive(tile, Larger()); }
};
WARP_CASE(inclusive_larger)

struct both_scans_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        T with, without;
        Scan(storage_of_warp<Scan>()).Scan(items[0], with, without, number(20), Larger());
        results[0] = with + without;
    }
    static Tile wanted(const Tile &tile) {
        const Tile without = exclusive(tile, number(20), Larger());
        Tile found;
        for (int at = 0; at < 32; at++)
            found.push_back(Larger()(without[at], tile[at]) + without[at]);
        return found;
    }
};
WARP_CASE(both_scans)

struct broadcast_primitive : Primitive {
    static __device__ void run(T (&items)[1], T (&results)[1]) {
        results[0] = Scan(storage_of_warp<Scan>()).Broadcast(items[0], 13);
    }
    static Tile wanted(const Tile &tile) { return all_of(tile, tile[13]); }
};
WARP_CASE(broadcast)

using Exchange = cub::WarpExchange<T, ITEMS>;

struct exchange_to_stripes_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        Exchange(storage_of_warp<Exchange>()).BlockedToStriped(items, results);
    }
    static Tile wanted(const Tile &tile) { return striped(tile, ITEMS); }
};
WARP_TILE_CASE(exchange_to_stripes)

struct exchange_to_blocks_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        Exchange(storage_of_warp<Exchange>()).StripedToBlocked(items, results);
    }
    static Tile wanted(const Tile &tile) { return unstriped(tile, ITEMS); }
};
WARP_TILE_CASE(exchange_to_blocks)

struct exchange_scatter_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        // Value `at` of lane `l` goes to place 127 - (4 l + at), read in stripes.
        int places[ITEMS];
        for (int at = 0; at < ITEMS; at++) places[at] = 32 * ITEMS - 1 - (lane() * ITEMS + at);
        Exchange(storage_of_warp<Exchange>()).ScatterToStriped(items, results, places);
    }
    static Tile wanted(const Tile &tile) {
        return striped(Tile(tile.rbegin(), tile.rend()), ITEMS);
    }
};
WARP_TILE_CASE(exchange_scatter)

// Loads and stores take memory, which is shared memory here.
template <cub::WarpLoadAlgorithm how> struct Loads : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        __shared__ __align__(16) char memory[WARPS * 32 * ITEMS * sizeof(T)];
        T *const mine = reinterpret_cast<T *>(memory) + threadIdx.x / 32 * 32 * ITEMS;
        for (int at = 0; at < ITEMS; at++) mine[lane() * ITEMS + at] = items[at];
        __syncwarp();
        using Load = cub::WarpLoad<T, ITEMS, how>;
        Load(storage_of_warp<Load>()).Load(mine, results);
        __syncwarp();
        // The last 7 values do not count.
        T part[ITEMS];
        using PartOf = cub::WarpLoad<T, ITEMS, how>;
        PartOf(storage_of_warp<PartOf>()).Load(mine, part, 32 * ITEMS - 7, number(5));
        for (int at = 0; at < ITEMS; at++) results[at] = results[at] + part[at];
    }
    static Tile wanted(const Tile &tile) {
        Tile part = tile;
        std::fill(part.end() - 7, part.end(), number(5));
        for (std::size_t at = 0; at < tile.size(); at++) part[at] = tile[at] + part[at];
        return how == cub::WARP_LOAD_STRIPED ? striped(part, ITEMS) : part;
    }
};
CASE(load_direct) { check_tiles<32, WARPS, ITEMS, Loads<cub::WARP_LOAD_DIRECT>>(n); }
CASE(load_striped) { check_tiles<32, WARPS, ITEMS, Loads<cub::WARP_LOAD_STRIPED>>(n); }
CASE(load_vectorized) { check_tiles<32, WARPS, ITEMS, Loads<cub::WARP_LOAD_VECTORIZE>>(n); }
CASE(load_transposed) { check_tiles<32, WARPS, ITEMS, Loads<cub::WARP_LOAD_TRANSPOSE>>(n); }

template <cub::WarpStoreAlgorithm how> struct Stores : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        __shared__ __align__(16) char memory[WARPS * 32 * ITEMS * sizeof(T)];
        T *const mine = reinterpret_cast<T *>(memory) + threadIdx.x / 32 * 32 * ITEMS;
        for (int at = 0; at < ITEMS; at++) mine[lane() * ITEMS + at] = number(5);
        __syncwarp();
        using Store = cub::WarpStore<T, ITEMS, how>;
        Store(storage_of_warp<Store>()).Store(mine, items, 32 * ITEMS - 7);
        __syncwarp();
        for (int at = 0; at < ITEMS; at++) results[at] = mine[lane() * ITEMS + at];
    }
    static Tile wanted(const Tile &tile) {
        Tile found = how == cub::WARP_STORE_STRIPED ? unstriped(tile, ITEMS) : tile;
        std::fill(found.end() - 7, found.end(), number(5));
        return found;
    }
};
CASE(store_direct) { check_tiles<32, WARPS, ITEMS, Stores<cub::WARP_STORE_DIRECT>>(n); }
CASE(store_striped) { check_tiles<32, WARPS, ITEMS, Stores<cub::WARP_STORE_STRIPED>>(n); }
CASE(store_vectorized) { check_tiles<32, WARPS, ITEMS, Stores<cub::WARP_STORE_VECTORIZE>>(n); }
CASE(store_transposed) { check_tiles<32, WARPS, ITEMS, Stores<cub::WARP_STORE_TRANSPOSE>>(n); }

struct merge_sort_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::WarpMergeSort<T, ITEMS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Sort(storage_of_warp<Sort>()).Sort(results, IsLess());
    }
    static Tile wanted(const Tile &tile) { return ordered(tile); }
};
WARP_TILE_CASE(merge_sort)

struct merge_sort_pairs_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::WarpMergeSort<T, ITEMS, 32, int>;
        int places[ITEMS];
        for (int at = 0; at < ITEMS; at++) places[at] = lane() * ITEMS + at;
        Sort(storage_of_warp<Sort>()).StableSort(items, places, IsLess());
        for (int at = 0; at < ITEMS; at++) results[at] = number(places[at]);
    }
    static Tile wanted(const Tile &tile) {
        std::vector<int> places = counted(tile.size());
        std::stable_sort(places.begin(), places.end(),
                         [&](int left, int right) { return tile[left] < tile[right]; });
        Tile found;
        for (const int place : places) found.push_back(number(place));
        return found;
    }
};
WARP_TILE_CASE(merge_sort_pairs)

} // namespace
