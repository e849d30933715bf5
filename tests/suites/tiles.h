// Cases of CUB's warp and block primitives. A primitive computes one tile of values, and so does
// its sequential counterpart. The last tile is filled with zeros.
#pragma once

#include "suite.h"

using Tile = std::vector<T>;

// GROUP threads share a tile, in which each has ITEMS values. A block has GROUPS such groups.
template <int GROUP, int GROUPS, int ITEMS, typename Primitive>
__global__ void tiles(const T *in, T *out) {
    const int tile = blockIdx.x * GROUPS + threadIdx.x / GROUP;
    const int first = tile * GROUP * ITEMS + threadIdx.x % GROUP * ITEMS;
    T items[ITEMS], results[ITEMS];
    for (int at = 0; at < ITEMS; at++) results[at] = items[at] = in[first + at];
    Primitive::run(items, results);
    for (int at = 0; at < ITEMS; at++) out[first + at] = results[at];
}

template <int GROUP, int GROUPS, int ITEMS, typename Primitive> void check_tiles(int count) {
    const int size = GROUP * ITEMS, in_block = size * GROUPS;
    const int blocks = std::max(1, (count + in_block - 1) / in_block);
    Tile in = Primitive::values(count), wanted;
    in.resize(blocks * in_block, number(0));
    for (std::size_t at = 0; at < in.size(); at += size) {
        const Tile tile = Primitive::wanted(Tile(in.begin() + at, in.begin() + at + size));
        wanted.insert(wanted.end(), tile.begin(), tile.end());
    }
    const Device<T> on_device(in), out(in.size());
    tiles<GROUP, GROUPS, ITEMS, Primitive><<<blocks, GROUP * GROUPS>>>(on_device, out);
    finish();
    check(out.host(), wanted);
}

struct Primitive {
    static Tile values(int count) { return suite::values(count); }
};

// Each position of a tile gets the same value.
inline Tile all_of(const Tile &tile, T value) { return Tile(tile.size(), value); }
inline T sum(const Tile &tile) { return std::accumulate(tile.begin(), tile.end(), number(0)); }
inline T largest(const Tile &tile) { return *std::max_element(tile.begin(), tile.end()); }

template <typename Op> Tile inclusive(const Tile &tile, Op op) {
    Tile found(tile.size());
    std::partial_sum(tile.begin(), tile.end(), found.begin(), op);
    return found;
}
template <typename Op> Tile exclusive(const Tile &tile, T initial, Op op) {
    Tile found;
    for (const T value : tile) found.push_back(initial), initial = op(initial, value);
    return found;
}
inline Tile ordered(Tile tile) {
    std::stable_sort(tile.begin(), tile.end());
    return tile;
}
inline Tile descending(Tile tile) {
    std::stable_sort(tile.begin(), tile.end(), [](T left, T right) { return right < left; });
    return tile;
}
// From the order of threads to the order of rows: thread t has the values t, t + threads, ...
inline Tile striped(const Tile &tile, int items) {
    const int threads = tile.size() / items;
    Tile found(tile.size());
    for (int thread = 0; thread < threads; thread++)
        for (int at = 0; at < items; at++) found[thread * items + at] = tile[at * threads + thread];
    return found;
}
inline Tile unstriped(const Tile &tile, int items) {
    const int threads = tile.size() / items;
    Tile found(tile.size());
    for (int thread = 0; thread < threads; thread++)
        for (int at = 0; at < items; at++) found[at * threads + thread] = tile[thread * items + at];
    return found;
}
