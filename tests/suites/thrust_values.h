// What the programs of Thrust share.
#pragma once

#include "suite.h"

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>

using Values = std::vector<T>;
using OnDevice = thrust::device_vector<T>;

template <typename V> std::vector<V> host(const thrust::device_vector<V> &on_device) {
    std::vector<V> found(on_device.size());
    thrust::copy(on_device.begin(), on_device.end(), found.begin());
    return found;
}
template <typename V, typename Iterator>
std::vector<V> host_until(const thrust::device_vector<V> &on_device, Iterator end) {
    std::vector<V> found = host(on_device);
    const auto length = end - on_device.begin();
    if (length < 0 || static_cast<std::size_t>(length) > found.size())
        throw Wrong("the end is at " + std::to_string(length));
    found.resize(length);
    return found;
}
template <typename V> thrust::device_vector<V> on_device(const std::vector<V> &values) {
    return thrust::device_vector<V>(values.begin(), values.end());
}
inline T sum(const Values &in, T initial) { return std::accumulate(in.begin(), in.end(), initial); }
