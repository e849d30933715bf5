// Thrust's algorithms that order, merge and select values, and those of ordered sequences.
#include "thrust_values.h"

#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/remove.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

namespace {

template <typename Before> Values ordered(Values keys, Before before) {
    std::stable_sort(keys.begin(), keys.end(), before);
    return keys;
}
template <typename Before> std::vector<int> places_of(const Values &keys, Before before) {
    std::vector<int> places = counted(keys.size());
    std::stable_sort(places.begin(), places.end(),
                     [&](int left, int right) { return before(keys[left], keys[right]); });
    return places;
}
struct IsGreater {
    __host__ __device__ bool operator()(T left, T right) const { return right < left; }
};

// With operator<, Thrust sorts numbers by radix. With a comparison of one's own, it merges.
CASE(sort) {
    const Values in = values(n, 1, 30000);
    OnDevice first = on_device(in);
    thrust::sort(first.begin(), first.end());
    check(host(first), ordered(in, IsLess()));
}

CASE(sort_by_comparison) {
    const Values in = values(n, 1, 30000);
    OnDevice first = on_device(in);
    thrust::sort(first.begin(), first.end(), IsGreater());
    check(host(first), ordered(in, IsGreater()));
}

CASE(stable_sort) {
    const Values in = values(n);
    OnDevice first = on_device(in);
    thrust::stable_sort(first.begin(), first.end(), IsLess());
    check(host(first), ordered(in, IsLess()));
}

CASE(sort_by_key) {
    const Values in = values(n);
    OnDevice first = on_device(in);
    thrust::device_vector<int> places = on_device(counted(n));
    thrust::stable_sort_by_key(first.begin(), first.end(), places.begin());
    check(host(first), ordered(in, IsLess()));
    check(host(places), places_of(in, IsLess()));
}

CASE(sort_by_key_by_comparison) {
    const Values in = values(n);
    OnDevice first = on_device(in);
    thrust::device_vector<int> places = on_device(counted(n));
    thrust::stable_sort_by_key(first.begin(), first.end(), places.begin(), IsGreater());
    check(host(first), ordered(in, IsGreater()));
    check(host(places), places_of(in, IsGreater()));
}

CASE(merge) {
    const Values left = sorted_values(n), right = sorted_values(n / 2 + 1, 2);
    const OnDevice first = on_device(left), second = on_device(right);
    OnDevice out(left.size() + right.size());
    thrust::merge(first.begin(), first.end(), second.begin(), second.end(), out.begin(), IsLess());
    Values wanted;
    std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(wanted));
    check(host(out), wanted);
}

CASE(merge_by_key) {
    Values left = sorted_values(n), right = sorted_values(n / 2 + 1, 2), all = left;
    all.insert(all.end(), right.begin(), right.end());
    const OnDevice first = on_device(left), second = on_device(right);
    const thrust::device_vector<int> places = on_device(counted(all.size()));
    OnDevice out(all.size());
    thrust::device_vector<int> out_places(all.size());
    thrust::merge_by_key(first.begin(), first.end(), second.begin(), second.end(), places.begin(),
                         places.begin() + n, out.begin(), out_places.begin(), IsLess());
    check(host(out), ordered(all, IsLess()));
    check(host(out_places), places_of(all, IsLess()));
}

// A set operation of Thrust and the same one of the standard library.
#define SET_CASE(name)                                                                            \
    CASE(name) {                                                                                  \
        const Values left = sorted_values(n, 1, 5000), right = sorted_values(n / 2 + 1, 2, 5000); \
        const OnDevice first = on_device(left), second = on_device(right);                        \
        OnDevice out(left.size() + right.size());                                                 \
        const auto end = thrust::name(first.begin(), first.end(), second.begin(), second.end(),   \
                                      out.begin(), IsLess());                                     \
        Values wanted;                                                                            \
        std::name(left.begin(), left.end(), right.begin(), right.end(),                           \
                  std::back_inserter(wanted));                                                    \
        check(host_until(out, end), wanted);                                                      \
    }
SET_CASE(set_union)
SET_CASE(set_intersection)
SET_CASE(set_difference)
SET_CASE(set_symmetric_difference)

CASE(set_union_by_key) {
    Values left = sorted_values(n), right = sorted_values(n / 2 + 1, 2);
    // Without equal keys, the values tell from which set a key came.
    left.erase(std::unique(left.begin(), left.end()), left.end());
    right.erase(std::unique(right.begin(), right.end()), right.end());
    const OnDevice first = on_device(left), second = on_device(right);
    const thrust::device_vector<int> ones(left.size(), 1), twos(right.size(), 2);
    OnDevice out(left.size() + right.size());
    thrust::device_vector<int> from(left.size() + right.size());
    const auto ends =
        thrust::set_union_by_key(first.begin(), first.end(), second.begin(), second.end(),
                                 ones.begin(), twos.begin(), out.begin(), from.begin(), IsLess());
    Values wanted;
    std::set_union(left.begin(), left.end(), right.begin(), right.end(),
                   std::back_inserter(wanted));
    std::vector<int> wanted_from;
    for (const T key : wanted)
        wanted_from.push_back(std::binary_search(left.begin(), left.end(), key) ? 1 : 2);
    check(host_until(out, ends.first), wanted);
    check(host_until(from, ends.second), wanted_from);
}

CASE(unique) {
    const Values in = runs(n);
    OnDevice first = on_device(in), out(n);
    Values wanted = in;
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    const auto copied = thrust::unique_copy(first.begin(), first.end(), out.begin(), Equal());
    check(host_until(out, copied), wanted);
    check_one<int64>(thrust::unique_count(first.begin(), first.end(), Equal()), wanted.size());
    const auto end = thrust::unique(first.begin(), first.end(), Equal());
    check(host_until(first, end), wanted);
}

CASE(unique_by_key) {
    const Values keys = runs(n), in = values(n, 2);
    OnDevice on_keys = on_device(keys), first = on_device(in);
    const auto ends = thrust::unique_by_key(on_keys.begin(), on_keys.end(), first.begin(), Equal());
    Values wanted_keys, wanted;
    for (int at = 0; at < n; at++)
        if (at == 0 || keys[at] != keys[at - 1])
            wanted_keys.push_back(keys[at]), wanted.push_back(in[at]);
    check(host_until(on_keys, ends.first), wanted_keys);
    check(host_until(first, ends.second), wanted);
}

CASE(copy_if) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n);
    const auto end = thrust::copy_if(first.begin(), first.end(), out.begin(), IsSmall());
    Values wanted;
    std::copy_if(in.begin(), in.end(), std::back_inserter(wanted), IsSmall());
    check(host_until(out, end), wanted);
}

CASE(copy_if_by_stencil) {
    const Values in = values(n);
    const std::vector<int> flags = integers(n, 5, 80);
    const OnDevice first = on_device(in);
    const thrust::device_vector<int> stencil = on_device(flags);
    OnDevice out(n);
    const auto end =
        thrust::copy_if(first.begin(), first.end(), stencil.begin(), out.begin(), IsSmallFlag());
    Values wanted;
    for (int at = 0; at < n; at++)
        if (IsSmallFlag()(flags[at])) wanted.push_back(in[at]);
    check(host_until(out, end), wanted);
}

CASE(remove) {
    const Values in = values(n, 1, 5);
    OnDevice first = on_device(in), out(n);
    Values wanted = in;
    wanted.erase(std::remove(wanted.begin(), wanted.end(), number(3)), wanted.end());
    const auto copied = thrust::remove_copy(first.begin(), first.end(), out.begin(), number(3));
    check(host_until(out, copied), wanted);
    const auto end = thrust::remove(first.begin(), first.end(), number(3));
    check(host_until(first, end), wanted);
}

CASE(remove_if) {
    const Values in = values(n);
    OnDevice first = on_device(in), out(n);
    Values wanted = in;
    wanted.erase(std::remove_if(wanted.begin(), wanted.end(), IsSmall()), wanted.end());
    const auto copied = thrust::remove_copy_if(first.begin(), first.end(), out.begin(), IsSmall());
    check(host_until(out, copied), wanted);
    const auto end = thrust::remove_if(first.begin(), first.end(), IsSmall());
    check(host_until(first, end), wanted);
}

CASE(partition) {
    const Values in = values(n);
    OnDevice first = on_device(in), second = on_device(in);
    Values wanted = in;
    const auto middle = std::stable_partition(wanted.begin(), wanted.end(), IsSmall());
    const auto found = thrust::stable_partition(first.begin(), first.end(), IsSmall());
    check_one<int64>(found - first.begin(), middle - wanted.begin());
    check(host(first), wanted);
    // Without an order of its own, each part has the same values.
    const auto other = thrust::partition(second.begin(), second.end(), IsSmall());
    check_one<int64>(other - second.begin(), middle - wanted.begin());
    Values unordered = host(second);
    const auto cut = unordered.begin() + (middle - wanted.begin());
    std::sort(unordered.begin(), cut);
    std::sort(cut, unordered.end());
    std::sort(wanted.begin(), middle);
    std::sort(middle, wanted.end());
    check(unordered, wanted);
}

CASE(partition_copy) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice small(n), large(n);
    const auto ends = thrust::stable_partition_copy(first.begin(), first.end(), small.begin(),
                                                    large.begin(), IsSmall());
    Values wanted_small, wanted_large;
    std::partition_copy(in.begin(), in.end(), std::back_inserter(wanted_small),
                        std::back_inserter(wanted_large), IsSmall());
    check(host_until(small, ends.first), wanted_small);
    check(host_until(large, ends.second), wanted_large);
}

CASE(bounds) {
    const Values sorted = sorted_values(n), wanted = values(n / 2 + 1, 2);
    const OnDevice first = on_device(sorted), second = on_device(wanted);
    thrust::device_vector<int> lower(wanted.size()), upper(wanted.size()), has(wanted.size());
    thrust::lower_bound(first.begin(), first.end(), second.begin(), second.end(), lower.begin(),
                        IsLess());
    thrust::upper_bound(first.begin(), first.end(), second.begin(), second.end(), upper.begin(),
                        IsLess());
    thrust::binary_search(first.begin(), first.end(), second.begin(), second.end(), has.begin(),
                          IsLess());
    std::vector<int> wanted_lower, wanted_upper, wanted_has;
    for (const T value : wanted) {
        const auto range = std::equal_range(sorted.begin(), sorted.end(), value);
        wanted_lower.push_back(range.first - sorted.begin());
        wanted_upper.push_back(range.second - sorted.begin());
        wanted_has.push_back(range.first != range.second);
    }
    check(host(lower), wanted_lower);
    check(host(upper), wanted_upper);
    check(host(has), wanted_has);
}

CASE(equal_range) {
    const Values sorted = sorted_values(n);
    const OnDevice first = on_device(sorted);
    const auto found = thrust::equal_range(first.begin(), first.end(), number(33), IsLess());
    const auto wanted = std::equal_range(sorted.begin(), sorted.end(), number(33));
    check_one<int64>(found.first - first.begin(), wanted.first - sorted.begin());
    check_one<int64>(found.second - first.begin(), wanted.second - sorted.begin());
    check_one(thrust::binary_search(first.begin(), first.end(), number(33), IsLess()),
              wanted.first != wanted.second);
}

} // namespace
