// CUB's device-wide reductions and scans, with and without keys and segments.
#include "suite.h"

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_segmented_reduce.cuh>

namespace {

using Values = std::vector<T>;

T total_of(const Values &in, T initial = number(0)) {
    return std::accumulate(in.begin(), in.end(), initial);
}
T most_of(const Values &in, T initial) {
    return std::accumulate(in.begin(), in.end(), initial, Larger());
}

CASE(reduce) {
    const Values in = values(n);
    const Device<T> on_device(in), out(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::Reduce(storage, bytes, on_device.begin(), out.begin(), n,
                                         Larger(), number(50));
    });
    check_one(out.one(), most_of(in, number(50)));
}

CASE(reduce_to_sum) {
    const Values in = values(n);
    const Device<T> on_device(in), out(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::Reduce(storage, bytes, on_device.begin(), out.begin(), n,
                                         ::cuda::std::plus<>(), number(0));
    });
    check_one(out.one(), total_of(in));
}

CASE(transform_reduce) {
    const Values in = values(n);
    const Device<T> on_device(in), out(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::TransformReduce(storage, bytes, on_device.begin(), out.begin(), n,
                                                  ::cuda::std::plus<>(), Twice(), number(7));
    });
    check_one(out.one(), total_of(in, number(7)) + total_of(in));
}

CASE(sum) {
    const Values in = values(n);
    const Device<T> on_device(in), out(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::Sum(storage, bytes, on_device.begin(), out.begin(), n);
    });
    check_one(out.one(), total_of(in));
}

// CUB knows no largest Point.
#if NUMBERS
CASE(min_max) {
    if (n == 0) return;
    const Values in = values(n);
    const Device<T> on_device(in), out(2);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::Min(storage, bytes, on_device.begin(), out.begin(), n);
    });
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::Max(storage, bytes, on_device.begin(), out.begin() + 1, n);
    });
    const auto ends = std::minmax_element(in.begin(), in.end());
    check(out.host(), Values{*ends.first, *ends.second});
}

CASE(arg_min_max) {
    if (n == 0) return;
    const Values in = values(n);
    const Device<T> on_device(in), extreme(2);
    const Device<int64> at(2);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::ArgMin(storage, bytes, on_device.begin(), extreme.begin(),
                                         at.begin(), n);
    });
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::ArgMax(storage, bytes, on_device.begin(), extreme.begin() + 1,
                                         at.begin() + 1, n);
    });
    // Both give the first one of equal values.
    const auto least = std::min_element(in.begin(), in.end());
    const auto last = std::max_element(in.begin(), in.end());
    check(extreme.host(), Values{*least, *last});
    check(at.host(), std::vector<int64>{least - in.begin(), last - in.begin()});
}
#endif

CASE(sum_segments) {
    const Values in = values(n);
    const std::vector<int> ends = segment_ends(n);
    const int count = ends.size() - 1;
    const Device<T> on_device(in), out(count);
    const Device<int> offsets(ends);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSegmentedReduce::Sum(storage, bytes, on_device.begin(), out.begin(),
                                               count, offsets.begin(), offsets.begin() + 1);
    });
    Values wanted;
    for (int at = 0; at < count; at++)
        wanted.push_back(total_of(Values(in.begin() + ends[at], in.begin() + ends[at + 1])));
    check(out.host(), wanted);
}

CASE(scan_sums) {
    const Values in = values(n);
    const Device<T> on_device(in), with(n), without(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::InclusiveSum(storage, bytes, on_device.begin(), with.begin(), n);
    });
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(storage, bytes, on_device.begin(), without.begin(), n);
    });
    Values wanted(n);
    std::partial_sum(in.begin(), in.end(), wanted.begin());
    check(with.host(), wanted);
    if (n > 0) wanted.insert(wanted.begin(), number(0)), wanted.pop_back();
    check(without.host(), wanted);
}

CASE(reduce_segments) {
    const Values in = values(n);
    const std::vector<int> ends = segment_ends(n);
    const int count = ends.size() - 1;
    const Device<T> on_device(in), out(count);
    const Device<int> offsets(ends);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceSegmentedReduce::Reduce(storage, bytes, on_device.begin(), out.begin(),
                                                  count, offsets.begin(), offsets.begin() + 1,
                                                  Larger(), number(30));
    });
    Values wanted;
    for (int at = 0; at < count; at++)
        wanted.push_back(
            most_of(Values(in.begin() + ends[at], in.begin() + ends[at + 1]), number(30)));
    check(out.host(), wanted);
}

CASE(inclusive_scan) {
    const Values in = values(n);
    const Device<T> on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::InclusiveScan(storage, bytes, on_device.begin(), out.begin(),
                                              ::cuda::std::plus<>(), n);
    });
    Values wanted(n);
    std::partial_sum(in.begin(), in.end(), wanted.begin());
    check(out.host(), wanted);
}

CASE(exclusive_scan) {
    const Values in = values(n);
    const Device<T> on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::ExclusiveScan(storage, bytes, on_device.begin(), out.begin(),
                                              Larger(), number(30), n);
    });
    Values wanted;
    T before = number(30);
    for (const T value : in) wanted.push_back(before), before = Larger()(before, value);
    check(out.host(), wanted);
}

// Keys that are equal in runs, and the sums of their values within each run.
CASE(scan_by_key) {
    const Values in = values(n, 2);
    const std::vector<T> keys = runs(n);
    const Device<T> on_keys(keys), on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::InclusiveScanByKey(storage, bytes, on_keys.begin(),
                                                   on_device.begin(), out.begin(),
                                                   ::cuda::std::plus<>(), n, Equal());
    });
    Values wanted;
    for (int at = 0; at < n; at++)
        wanted.push_back(at > 0 && keys[at] == keys[at - 1] ? wanted.back() + in[at] : in[at]);
    check(out.host(), wanted);
}

CASE(exclusive_scan_by_key) {
    const Values in = values(n, 2);
    const std::vector<T> keys = runs(n);
    const Device<T> on_keys(keys), on_device(in), out(n);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceScan::ExclusiveScanByKey(storage, bytes, on_keys.begin(),
                                                   on_device.begin(), out.begin(),
                                                   ::cuda::std::plus<>(), number(9), n, Equal());
    });
    Values wanted;
    for (int at = 0; at < n; at++) {
        const bool goes_on = at > 0 && keys[at] == keys[at - 1];
        wanted.push_back(goes_on ? wanted.back() + in[at - 1] : number(9));
    }
    check(out.host(), wanted);
}

CASE(reduce_by_key) {
    const Values in = values(n, 2), keys = runs(n);
    const Device<T> on_keys(keys), on_device(in), unique(n), out(n);
    const Device<int> count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceReduce::ReduceByKey(storage, bytes, on_keys.begin(), unique.begin(),
                                              on_device.begin(), out.begin(), count.begin(),
                                              ::cuda::std::plus<>(), n);
    });
    Values wanted_keys, wanted;
    for (int at = 0; at < n; at++) {
        if (at > 0 && keys[at] == keys[at - 1])
            wanted.back() = wanted.back() + in[at];
        else
            wanted_keys.push_back(keys[at]), wanted.push_back(in[at]);
    }
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(unique.host(wanted.size()), wanted_keys);
    check(out.host(wanted.size()), wanted);
}

CASE(encode_run_lengths) {
    const Values in = runs(n);
    const Device<T> on_device(in), unique(n);
    const Device<int> lengths(n), count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRunLengthEncode::Encode(storage, bytes, on_device.begin(), unique.begin(),
                                                  lengths.begin(), count.begin(), n);
    });
    Values wanted;
    std::vector<int> wanted_lengths;
    for (int at = 0; at < n; at++) {
        if (at == 0 || in[at] != in[at - 1]) wanted.push_back(in[at]), wanted_lengths.push_back(0);
        wanted_lengths.back()++;
    }
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(unique.host(wanted.size()), wanted);
    check(lengths.host(wanted.size()), wanted_lengths);
}

CASE(encode_long_runs) {
    const Values in = runs(n);
    const Device<T> on_device(in);
    const Device<int> offsets(n), lengths(n), count(1);
    with_storage([&](void *storage, size_t &bytes) {
        return cub::DeviceRunLengthEncode::NonTrivialRuns(
            storage, bytes, on_device.begin(), offsets.begin(), lengths.begin(), count.begin(), n);
    });
    std::vector<int> wanted, wanted_lengths;
    for (int at = 0, end; at < n; at = end) {
        for (end = at + 1; end < n && in[end] == in[at]; end++) {}
        if (end > at + 1) wanted.push_back(at), wanted_lengths.push_back(end - at);
    }
    check_one(count.one(), static_cast<int>(wanted.size()));
    check(offsets.host(wanted.size()), wanted);
    check(lengths.host(wanted.size()), wanted_lengths);
}

} // namespace
