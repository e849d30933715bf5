// CUB's device-wide selections, partitions, histograms, differences, loops and copies.
#include "suite.h"

#include <cub/device/device_adjacent_difference.cuh>
#include <cub/device/device_copy.cuh>
#include <cub/device/device_for.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_memcpy.cuh>
#include <cub/device/device_partition.cuh>
#include <cub/device/device_select.cuh>
#include <cub/device/device_transform.cuh>

namespace {

using Values = std::vector<T>;

// The values that a test selects, and then the others in reverse order, as CUB gives them.
template <typename Test> Values chosen(const Values &in, Test test) {
    Values found;
    std::copy_if(in.begin(), in.end(), std::back_inserter(found), test);
    return found;
}
template <typename Test> Values divided(const Values &in, Test test) {
    Values found = chosen(in, test), others = chosen(in, [&](T value) { return !test(value); });
    found.insert(found.end(), others.rbegin(), others.rend());
    return found;
}

CASE(select_if) {
    const Values in = values(n), wanted = chosen(in, IsSmall());
    const Device<T> on_device(in), out(n);
    const Device<int> count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSelect::If(storage, bytes, on_device.begin(), out.begin(), count.begin(),
                                     n, IsSmall());
    });
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(out.host(wanted.size()), wanted);
}

CASE(select_flagged) {
    const Values in = values(n);
    const std::vector<int> flags = integers(n, 5, 3);
    const Device<T> on_device(in), out(n);
    const Device<int> on_flags(flags), count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSelect::Flagged(storage, bytes, on_device.begin(), on_flags.begin(),
                                          out.begin(), count.begin(), n);
    });
    Values wanted;
    for (int at = 0; at < n; at++)
        if (flags[at] != 0) wanted.push_back(in[at]);
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(out.host(wanted.size()), wanted);
}

CASE(select_flagged_if) {
    const Values in = values(n);
    const std::vector<int> flags = integers(n, 5, 80);
    const Device<T> on_device(in), out(n);
    const Device<int> on_flags(flags), count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSelect::FlaggedIf(storage, bytes, on_device.begin(), on_flags.begin(),
                                            out.begin(), count.begin(), n, IsSmallFlag());
    });
    Values wanted;
    for (int at = 0; at < n; at++)
        if (IsSmallFlag()(flags[at])) wanted.push_back(in[at]);
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(out.host(wanted.size()), wanted);
}

CASE(select_unique) {
    const Values in = runs(n);
    const Device<T> on_device(in), out(n);
    const Device<int> count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSelect::Unique(storage, bytes, on_device.begin(), out.begin(),
                                         count.begin(), n);
    });
    Values wanted = in;
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(out.host(wanted.size()), wanted);
}

CASE(select_unique_by_key) {
    const Values keys = runs(n), in = values(n, 3);
    const Device<T> on_keys(keys), on_device(in), out_keys(n), out(n);
    const Device<int> count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSelect::UniqueByKey(storage, bytes, on_keys.begin(), on_device.begin(),
                                              out_keys.begin(), out.begin(), count.begin(), n);
    });
    Values wanted_keys, wanted;
    for (int at = 0; at < n; at++)
        if (at == 0 || keys[at] != keys[at - 1])
            wanted_keys.push_back(keys[at]), wanted.push_back(in[at]);
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(out_keys.host(wanted.size()), wanted_keys);
    check(out.host(wanted.size()), wanted);
}

CASE(partition_if) {
    const Values in = values(n);
    const Device<T> on_device(in), out(n);
    const Device<int> count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DevicePartition::If(storage, bytes, on_device.begin(), out.begin(),
                                        count.begin(), n, IsSmall());
    });
    check_one(count.one(), static_cast<int>(chosen(in, IsSmall()).size()));
    check(out.host(), divided(in, IsSmall()));
}

CASE(partition_flagged) {
    const Values in = values(n);
    std::vector<int> flags;
    for (const T value : in) flags.push_back(IsMiddle()(value));
    const Device<T> on_device(in), out(n);
    const Device<int> on_flags(flags), count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DevicePartition::Flagged(storage, bytes, on_device.begin(), on_flags.begin(),
                                             out.begin(), count.begin(), n);
    });
    check_one(count.one(), static_cast<int>(chosen(in, IsMiddle()).size()));
    check(out.host(), divided(in, IsMiddle()));
}

CASE(partition_in_three) {
    const Values in = values(n);
    const Device<T> on_device(in), first(n), second(n), others(n);
    const Device<int> counts(2);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DevicePartition::If(storage, bytes, on_device.begin(), first.begin(),
                                        second.begin(), others.begin(), counts.begin(), n,
                                        IsSmall(), IsMiddle());
    });
    const Values small = chosen(in, IsSmall());
    const Values middle =
        chosen(in, [](T value) { return IsMiddle()(value) && !IsSmall()(value); });
    const Values large = chosen(in, [](T value) { return !IsMiddle()(value); });
    check(counts.host(), {static_cast<int>(small.size()), static_cast<int>(middle.size())});
    check(first.host(small.size()), small);
    check(second.host(middle.size()), middle);
    check(others.host(large.size()), large);
}

CASE(subtract_left) {
    const Values in = values(n);
    const Device<T> on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceAdjacentDifference::SubtractLeftCopy(storage, bytes, on_device.begin(),
                                                               out.begin(), n, Subtract());
    });
    Values wanted(n);
    std::adjacent_difference(in.begin(), in.end(), wanted.begin());
    check(out.host(), wanted);
}

CASE(subtract_right_in_place) {
    const Values in = values(n);
    const Device<T> on_device(in);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceAdjacentDifference::SubtractRight(storage, bytes, on_device.begin(), n,
                                                            Subtract());
    });
    Values wanted = in;
    for (int at = 0; at + 1 < n; at++) wanted[at] = in[at] - in[at + 1];
    check(on_device.host(), wanted);
}

#if NUMBERS
// Samples from 0 to 100 in ten bins of eight values. Others do not count.
CASE(histogram_even) {
    const Values in = values(n);
    const Device<T> on_device(in);
    const Device<int> bins(10);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceHistogram::HistogramEven(storage, bytes, on_device.begin(), bins.begin(),
                                                   11, number(0), number(80), n);
    });
    std::vector<int> wanted(10, 0);
    for (const T value : in)
        if (value < number(80)) wanted[From<T>::whole(value) / 8]++;
    check(bins.host(), wanted);
}

CASE(histogram_of_ranges) {
    const Values in = values(n);
    const Values levels{number(3), number(10), number(11), number(50), number(101)};
    const Device<T> on_device(in), on_levels(levels);
    const Device<int> bins(4);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceHistogram::HistogramRange(storage, bytes, on_device.begin(), bins.begin(),
                                                    5, on_levels.begin(), n);
    });
    std::vector<int> wanted(4, 0);
    for (const T value : in)
        for (int at = 0; at < 4; at++)
            wanted[at] += !(value < levels[at]) && value < levels[at + 1];
    check(bins.host(), wanted);
}
#endif

struct Doubles {
    __device__ void operator()(T &value) const { value = value + value; }
};
struct DoublesAt {
    T *values;
    __device__ void operator()(int at) const { values[at] = values[at] + number(at % 50); }
};
CASE(for_each_and_bulk) {
    const Values in = values(n);
    const Device<T> on_device(in);
    MUST(cub::DeviceFor::ForEachN(on_device.begin(), n, Doubles()));
    MUST(cub::DeviceFor::Bulk(n, DoublesAt{on_device.begin()}));
    finish();
    Values wanted;
    for (int at = 0; at < n; at++) wanted.push_back(in[at] + in[at] + number(at % 50));
    check(on_device.host(), wanted);
}

CASE(transform_two) {
    const Values first = values(n), second = values(n, 2);
    const Device<T> on_first(first), on_second(second), out(n);
    MUST(cub::DeviceTransform::Transform(
        ::cuda::std::make_tuple(on_first.begin(), on_second.begin()), out.begin(), n, Add()));
    finish();
    Values wanted(n);
    std::transform(first.begin(), first.end(), second.begin(), wanted.begin(), Add());
    check(out.host(), wanted);
}

// Pieces of different lengths, each of which goes to another place: to its place from the end.
struct Pieces {
    explicit Pieces(int n) : in(values(n)), wanted(n) {
        for (int begin = 0, index = 0, length; begin < n; begin += length, index++) {
            length = std::min<int>(n - begin, mixed(index) % 30 * (index % 4 == 3 ? 50 : 1));
            starts.push_back(begin), lengths.push_back(length);
            std::copy_n(in.begin() + begin, length, wanted.end() - begin - length);
        }
    }
    Values in, wanted;
    std::vector<int> starts, lengths;
};
CASE(copy_batched) {
    const Pieces pieces(n);
    const Device<T> on_device(pieces.in), out(n);
    std::vector<T *> from, to;
    for (std::size_t at = 0; at < pieces.starts.size(); at++) {
        from.push_back(on_device.begin() + pieces.starts[at]);
        to.push_back(out.begin() + n - pieces.starts[at] - pieces.lengths[at]);
    }
    const Device<T *> on_from(from), on_to(to);
    const Device<int> lengths(pieces.lengths);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceCopy::Batched(storage, bytes, on_from.begin(), on_to.begin(),
                                        lengths.begin(), from.size());
    });
    check(out.host(), pieces.wanted);
}

CASE(memcpy_batched) {
    const Pieces pieces(n);
    const Device<T> on_device(pieces.in), out(n);
    std::vector<void *> from, to;
    std::vector<int> sizes;
    for (std::size_t at = 0; at < pieces.starts.size(); at++) {
        from.push_back(on_device.begin() + pieces.starts[at]);
        to.push_back(out.begin() + n - pieces.starts[at] - pieces.lengths[at]);
        sizes.push_back(pieces.lengths[at] * sizeof(T));
    }
    const Device<void *> on_from(from), on_to(to);
    const Device<int> on_sizes(sizes);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceMemcpy::Batched(storage, bytes, on_from.begin(), on_to.begin(),
                                          on_sizes.begin(), from.size());
    });
    check(out.host(), pieces.wanted);
}

} // namespace
