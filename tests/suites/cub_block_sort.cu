// CUB's primitives of blocks that sort, rank, count and decode values.
#include "tiles.h"

#include <cub/block/block_histogram.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/radix_rank_sort_operations.cuh>

namespace {

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

struct merge_sort_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockMergeSort<T, THREADS, ITEMS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Sort(storage_of_block<Sort>()).Sort(results, IsLess());
    }
    static Tile wanted(const Tile &tile) { return ordered(tile); }
};
BLOCK_CASE(merge_sort)

// The places that the values of a tile have in a stable order.
template <typename Before> Tile places_of(const Tile &tile, Before before) {
    std::vector<int> places = counted(tile.size());
    std::stable_sort(places.begin(), places.end(),
                     [&](int left, int right) { return before(tile[left], tile[right]); });
    Tile found;
    for (const int place : places) found.push_back(number(place));
    return found;
}
__device__ void number_places(int (&places)[ITEMS]) {
    for (int at = 0; at < ITEMS; at++) places[at] = threadIdx.x * ITEMS + at;
}

struct merge_sort_pairs_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockMergeSort<T, THREADS, ITEMS, int>;
        int places[ITEMS];
        number_places(places);
        Sort(storage_of_block<Sort>()).StableSort(items, places, IsLess());
        for (int at = 0; at < ITEMS; at++) results[at] = number(places[at]);
    }
    static Tile wanted(const Tile &tile) { return places_of(tile, IsLess()); }
};
BLOCK_CASE(merge_sort_pairs)

// Half of the last warp and all before it have values that count.
struct merge_sort_part_primitive : Primitive {
    static const int valid = THREADS * ITEMS - 66;
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockMergeSort<T, THREADS, ITEMS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Sort(storage_of_block<Sort>()).Sort(results, IsLess(), valid, number(1000));
        for (int at = 0; at < ITEMS; at++)
            if (static_cast<int>(threadIdx.x) * ITEMS + at >= valid) results[at] = number(0);
    }
    static Tile wanted(const Tile &tile) {
        Tile found = ordered(Tile(tile.begin(), tile.begin() + valid));
        found.resize(tile.size(), number(0));
        return found;
    }
};
BLOCK_CASE(merge_sort_part)

// A Point needs to be taken apart, and other types do not.
template <typename V> struct Radix {
    template <typename Sort, typename... Values>
    static __device__ void up(Sort &&sort, Values &...values) {
        sort.Sort(values...);
    }
    template <typename Sort, typename... Values>
    static __device__ void down(Sort &&sort, Values &...values) {
        sort.SortDescending(values...);
    }
    template <typename Sort> static __device__ void to_stripes(Sort &&sort, V (&keys)[ITEMS]) {
        sort.SortBlockedToStriped(keys);
    }
};
template <> struct Radix<Point> {
    template <typename Sort, typename... Values>
    static __device__ void up(Sort &&sort, Values &...values) {
        sort.Sort(values..., Fields());
    }
    template <typename Sort, typename... Values>
    static __device__ void down(Sort &&sort, Values &...values) {
        sort.SortDescending(values..., Fields());
    }
    template <typename Sort> static __device__ void to_stripes(Sort &&sort, Point (&keys)[ITEMS]) {
        sort.SortBlockedToStriped(keys, Fields());
    }
};

struct radix_sort_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockRadixSort<T, THREADS, ITEMS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Radix<T>::up(Sort(storage_of_block<Sort>()), results);
    }
    static Tile wanted(const Tile &tile) { return ordered(tile); }
};
BLOCK_CASE(radix_sort)

struct radix_sort_descending_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockRadixSort<T, THREADS, ITEMS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Radix<T>::down(Sort(storage_of_block<Sort>()), results);
    }
    static Tile wanted(const Tile &tile) { return descending(tile); }
};
BLOCK_CASE(radix_sort_descending)

struct radix_sort_pairs_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockRadixSort<T, THREADS, ITEMS, int>;
        int places[ITEMS];
        number_places(places);
        Radix<T>::up(Sort(storage_of_block<Sort>()), items, places);
        for (int at = 0; at < ITEMS; at++) results[at] = number(places[at]);
    }
    static Tile wanted(const Tile &tile) { return places_of(tile, IsLess()); }
};
BLOCK_CASE(radix_sort_pairs)

struct radix_sort_to_stripes_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Sort = cub::BlockRadixSort<T, THREADS, ITEMS>;
        for (int at = 0; at < ITEMS; at++) results[at] = items[at];
        Radix<T>::to_stripes(Sort(storage_of_block<Sort>()), results);
    }
    static Tile wanted(const Tile &tile) { return striped(ordered(tile), ITEMS); }
};
BLOCK_CASE(radix_sort_to_stripes)

__host__ __device__ unsigned digit_of(T value) {
    return static_cast<unsigned>(From<T>::whole(value)) & 15;
}

// The ranks of the values by their lowest four bits.
struct radix_rank_primitive : Primitive {
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Rank = cub::BlockRadixRank<THREADS, 4, false>;
        unsigned keys[ITEMS];
        int ranks[ITEMS];
        for (int at = 0; at < ITEMS; at++) keys[at] = digit_of(items[at]);
        Rank(storage_of_block<Rank>())
            .RankKeys(keys, ranks, cub::BFEDigitExtractor<unsigned>(0, 4));
        for (int at = 0; at < ITEMS; at++) results[at] = number(ranks[at]);
    }
    static Tile wanted(const Tile &tile) {
        std::vector<int> places = counted(tile.size());
        std::stable_sort(places.begin(), places.end(), [&](int left, int right) {
            return digit_of(tile[left]) < digit_of(tile[right]);
        });
        Tile found(tile.size());
        for (std::size_t at = 0; at < tile.size(); at++) found[places[at]] = number(at);
        return found;
    }
};
BLOCK_CASE(radix_rank)

const int BINS = 64;
template <cub::BlockHistogramAlgorithm how> struct Histogram : Primitive {
    static Tile values(int count) { return suite::values(count, 1, 48); }
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Count = cub::BlockHistogram<unsigned char, THREADS, ITEMS, BINS, how>;
        __shared__ unsigned bins[BINS];
        unsigned char samples[ITEMS];
        for (int at = 0; at < ITEMS; at++) samples[at] = From<T>::whole(items[at]);
        Count(storage_of_block<Count>()).Histogram(samples, bins);
        __syncthreads();
        for (int at = 0; at < ITEMS; at++) results[at] = number(bins[threadIdx.x % BINS]);
    }
    static Tile wanted(const Tile &tile) {
        std::vector<int> bins(BINS, 0);
        for (const T value : tile) bins[From<T>::whole(value)]++;
        Tile found;
        for (std::size_t at = 0; at < tile.size(); at++)
            found.push_back(number(bins[at / ITEMS % BINS]));
        return found;
    }
};
CASE(histogram_by_sorting) { check_blocks<Histogram<cub::BLOCK_HISTO_SORT>>(n); }
CASE(histogram_by_atomics) { check_blocks<Histogram<cub::BLOCK_HISTO_ATOMIC>>(n); }

// The first value of each thread is a run, of 1 to 7 values, and the block decodes the first 512.
struct decode_run_lengths_primitive : Primitive {
    static __host__ __device__ unsigned length(int thread) { return thread % 7 + 1; }
    static __device__ void run(T (&items)[ITEMS], T (&results)[ITEMS]) {
        using Decode = cub::BlockRunLengthDecode<T, THREADS, 1, ITEMS>;
        T run[1] = {items[0]};
        unsigned lengths[1] = {length(threadIdx.x)}, total = 0;
        Decode decode(storage_of_block<Decode>(), run, lengths, total);
        decode.RunLengthDecode(results, 0);
        for (int at = 0; at < ITEMS; at++)
            if (threadIdx.x * ITEMS + at >= total) results[at] = number(0);
    }
    static Tile wanted(const Tile &tile) {
        Tile found;
        for (int thread = 0; thread < THREADS; thread++)
            found.insert(found.end(), length(thread), tile[thread * ITEMS]);
        found.resize(tile.size(), number(0));
        return found;
    }
};
BLOCK_CASE(decode_run_lengths)

} // namespace
