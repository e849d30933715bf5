// CUB's device-wide sorts and merges, of all values and of segments.
#include "suite.h"

#include <cub/device/device_merge.cuh>
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>
#include <cub/device/device_segmented_sort.cuh>
#include <cuda/std/tuple>

namespace {

using Values = std::vector<T>;

bool is_greater(T left, T right) { return right < left; }

// The values that belong to keys are their places in the input.
template <typename Before>
std::vector<int> places_of(const Values &keys, Before before, std::vector<int> places) {
    std::stable_sort(places.begin(), places.end(),
                     [&](int left, int right) { return before(keys[left], keys[right]); });
    return places;
}
template <typename Before> Values ordered(Values keys, Before before) {
    std::stable_sort(keys.begin(), keys.end(), before);
    return keys;
}

#if NUMBERS
#define SORT_ARGUMENTS
#else
#define SORT_ARGUMENTS , Fields()
#endif

CASE(radix_sort) {
    const Values in = values(n, 1, 30000);
    const Device<T> on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRadixSort::SortKeys(storage, bytes, on_device.begin(), out.begin(),
                                              n SORT_ARGUMENTS);
    });
    check(out.host(), ordered(in, IsLess()));
}

CASE(radix_sort_descending) {
    const Values in = values(n, 2);
    const Device<T> on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRadixSort::SortKeysDescending(storage, bytes, on_device.begin(),
                                                        out.begin(), n SORT_ARGUMENTS);
    });
    check(out.host(), ordered(in, is_greater));
}

CASE(radix_sort_pairs) {
    const Values in = values(n);
    const Device<T> on_device(in), out(n);
    const Device<int> places(counted(n)), out_places(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairs(storage, bytes, on_device.begin(), out.begin(),
                                               places.begin(), out_places.begin(),
                                               n SORT_ARGUMENTS);
    });
    check(out.host(), ordered(in, IsLess()));
    check(out_places.host(), places_of(in, IsLess(), counted(n)));
}

CASE(radix_sort_pairs_descending) {
    const Values in = values(n);
    const Device<T> on_device(in), out(n);
    const Device<int> places(counted(n)), out_places(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairsDescending(storage, bytes, on_device.begin(),
                                                         out.begin(), places.begin(),
                                                         out_places.begin(), n SORT_ARGUMENTS);
    });
    check(out.host(), ordered(in, is_greater));
    check(out_places.host(), places_of(in, is_greater, counted(n)));
}

CASE(merge_sort) {
    const Values in = values(n, 1, 30000);
    const Device<T> keys(in);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceMergeSort::SortKeys(storage, bytes, keys.begin(), n, IsLess());
    });
    check(keys.host(), ordered(in, IsLess()));
}

CASE(merge_sort_pairs) {
    const Values in = values(n);
    const Device<T> keys(in);
    const Device<int> places(counted(n));
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceMergeSort::StableSortPairs(storage, bytes, keys.begin(), places.begin(),
                                                     n, IsLess());
    });
    check(keys.host(), ordered(in, IsLess()));
    check(places.host(), places_of(in, IsLess(), counted(n)));
}

CASE(merge_sort_copy) {
    const Values in = values(n);
    const Device<T> keys(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceMergeSort::SortKeysCopy(storage, bytes, keys.begin(), out.begin(), n,
                                                  IsLess());
    });
    check(keys.host(), in);
    check(out.host(), ordered(in, IsLess()));
}

CASE(merge) {
    const Values first = sorted_values(n), second = sorted_values(n / 2 + 3, 2);
    const Device<T> on_first(first), on_second(second), out(first.size() + second.size());
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceMerge::MergeKeys(storage, bytes, on_first.begin(),
                                           static_cast<int>(first.size()), on_second.begin(),
                                           static_cast<int>(second.size()), out.begin(), IsLess());
    });
    Values wanted;
    std::merge(first.begin(), first.end(), second.begin(), second.end(),
               std::back_inserter(wanted));
    check(out.host(), wanted);
}

CASE(merge_pairs) {
    const Values first = sorted_values(n), second = sorted_values(n / 2 + 3, 2);
    const int count = first.size() + second.size();
    Values all = first;
    all.insert(all.end(), second.begin(), second.end());
    const std::vector<int> numbers = counted(count);
    const Device<T> on_first(first), on_second(second), out(count);
    const Device<int> places(numbers), out_places(count);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceMerge::MergePairs(storage, bytes, on_first.begin(), places.begin(), n,
                                            on_second.begin(), places.begin() + n,
                                            static_cast<int>(second.size()), out.begin(),
                                            out_places.begin(), IsLess());
    });
    // Of equal keys, those of the first sequence come first.
    check(out.host(), ordered(all, IsLess()));
    check(out_places.host(), places_of(all, IsLess(), numbers));
}

#if NUMBERS
template <typename Before>
void order_segments(Values &keys, std::vector<int> &places, const std::vector<int> &ends,
                    Before before) {
    const Values in = keys;
    for (std::size_t at = 0; at + 1 < ends.size(); at++) {
        std::stable_sort(places.begin() + ends[at], places.begin() + ends[at + 1],
                         [&](int left, int right) { return before(in[left], in[right]); });
        std::stable_sort(keys.begin() + ends[at], keys.begin() + ends[at + 1], before);
    }
}

template <typename Before, typename Call> void check_segments(int n, Before before, Call call) {
    Values wanted = values(n);
    std::vector<int> wanted_places = counted(n);
    const std::vector<int> ends = segment_ends(n);
    const Device<T> on_device(wanted), out(n);
    const Device<int> places(wanted_places), out_places(n), offsets(ends);
    order_segments(wanted, wanted_places, ends, before);
    const int count = ends.size() - 1;
    with_storage([&](void *storage, size_t &bytes) {
        return call(storage, bytes, on_device.begin(), out.begin(), places.begin(),
                    out_places.begin(), n, count, offsets.begin(), offsets.begin() + 1);
    });
    check(out.host(), wanted);
    check(out_places.host(), wanted_places);
}
CASE(segmented_radix_sort) {
    check_segments(n, IsLess(), [](void *storage, size_t &bytes, auto... arguments) {
        return cub::DeviceSegmentedRadixSort::SortPairs(storage, bytes, arguments...);
    });
}
CASE(segmented_radix_sort_descending) {
    check_segments(n, is_greater, [](void *storage, size_t &bytes, auto... arguments) {
        return cub::DeviceSegmentedRadixSort::SortPairsDescending(storage, bytes, arguments...);
    });
}
CASE(segmented_sort) {
    check_segments(n, IsLess(), [](void *storage, size_t &bytes, auto... arguments) {
        return cub::DeviceSegmentedSort::StableSortPairs(storage, bytes, arguments...);
    });
}
CASE(segmented_sort_descending) {
    check_segments(n, is_greater, [](void *storage, size_t &bytes, auto... arguments) {
        return cub::DeviceSegmentedSort::StableSortPairsDescending(storage, bytes, arguments...);
    });
}
#endif

} // namespace
