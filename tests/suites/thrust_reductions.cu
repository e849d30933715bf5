// Thrust's algorithms that reduce values, search them, or compare them, and its scans.
#include "thrust_values.h"

#include <thrust/count.h>
#include <thrust/equal.h>
#include <thrust/extrema.h>
#include <thrust/find.h>
#include <thrust/inner_product.h>
#include <thrust/logical.h>
#include <thrust/mismatch.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/transform_scan.h>

namespace {

CASE(reduce) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    check_one(thrust::reduce(first.begin(), first.end(), number(5), Add()), sum(in, number(5)));
    const T most = std::accumulate(in.begin(), in.end(), number(50), Larger());
    check_one(thrust::reduce(first.begin(), first.end(), number(50), Larger()), most);
}

CASE(transform_reduce) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    const T found = thrust::transform_reduce(first.begin(), first.end(), Twice(), number(5), Add());
    check_one(found, sum(in, number(5)) + sum(in, number(0)));
}

CASE(inner_product) {
    const Values left = values(n), right = values(n, 2);
    const OnDevice first = on_device(left), second = on_device(right);
    const T found = thrust::inner_product(first.begin(), first.end(), second.begin(), number(3),
                                          Add(), Larger());
    T wanted = number(3);
    for (int at = 0; at < n; at++) wanted = wanted + Larger()(left[at], right[at]);
    check_one(found, wanted);
}

CASE(count) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    check_one<int64>(thrust::count(first.begin(), first.end(), number(3)),
                     std::count(in.begin(), in.end(), number(3)));
    check_one<int64>(thrust::count_if(first.begin(), first.end(), IsSmall()),
                     std::count_if(in.begin(), in.end(), IsSmall()));
}

CASE(extrema) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    const auto begin = first.begin(), end = first.end();
    const auto least = std::min_element(in.begin(), in.end()) - in.begin();
    const auto most = std::max_element(in.begin(), in.end()) - in.begin();
    check_one<int64>(thrust::min_element(begin, end, IsLess()) - begin, least);
    check_one<int64>(thrust::max_element(begin, end, IsLess()) - begin, most);
    const auto both = thrust::minmax_element(begin, end, IsLess());
    check_one<int64>(both.first - begin, least);
    if (n > 0) check_one<T>(*both.second, in[most]);
}

CASE(logical) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    const auto begin = first.begin(), end = first.end();
    check_one(thrust::all_of(begin, end, IsMiddle()),
              std::all_of(in.begin(), in.end(), IsMiddle()));
    check_one(thrust::any_of(begin, end, IsSmall()), std::any_of(in.begin(), in.end(), IsSmall()));
    check_one(thrust::none_of(begin, end, IsSmall()),
              std::none_of(in.begin(), in.end(), IsSmall()));
}

CASE(equal_and_mismatch) {
    Values left = values(n), right = left;
    if (n > 1) right[n / 2] = right[n / 2] + number(1);
    const OnDevice first = on_device(left), second = on_device(right);
    check_one(thrust::equal(first.begin(), first.end(), first.begin()), true);
    check_one(thrust::equal(first.begin(), first.end(), second.begin()), left == right);
    const auto where = thrust::mismatch(first.begin(), first.end(), second.begin());
    check_one<int64>(where.first - first.begin(), n > 1 ? n / 2 : n);
}

CASE(find) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    const auto begin = first.begin(), end = first.end();
    check_one<int64>(thrust::find(begin, end, number(77)) - begin,
                     std::find(in.begin(), in.end(), number(77)) - in.begin());
    check_one<int64>(thrust::find_if(begin, end, IsSmall()) - begin,
                     std::find_if(in.begin(), in.end(), IsSmall()) - in.begin());
    check_one<int64>(thrust::find_if_not(begin, end, IsMiddle()) - begin,
                     std::find_if_not(in.begin(), in.end(), IsMiddle()) - in.begin());
}

CASE(is_sorted) {
    const Values in = values(n), sorted = sorted_values(n);
    const OnDevice first = on_device(in), second = on_device(sorted);
    check_one(thrust::is_sorted(second.begin(), second.end(), IsLess()), true);
    check_one(thrust::is_sorted(first.begin(), first.end(), IsLess()),
              std::is_sorted(in.begin(), in.end()));
    check_one<int64>(thrust::is_sorted_until(first.begin(), first.end(), IsLess()) - first.begin(),
                     std::is_sorted_until(in.begin(), in.end()) - in.begin());
}

CASE(partition_point) {
    const Values in = values(n), sorted = sorted_values(n);
    const OnDevice first = on_device(in), second = on_device(sorted);
    check_one(thrust::is_partitioned(first.begin(), first.end(), IsSmall()),
              std::is_partitioned(in.begin(), in.end(), IsSmall()));
    check_one<int64>(
        thrust::partition_point(second.begin(), second.end(), IsSmall()) - second.begin(),
        std::partition_point(sorted.begin(), sorted.end(), IsSmall()) - sorted.begin());
}

CASE(reduce_by_key) {
    const Values keys = runs(n), in = values(n, 2);
    const OnDevice on_keys = on_device(keys), first = on_device(in);
    OnDevice out_keys(n), out(n);
    const auto ends = thrust::reduce_by_key(on_keys.begin(), on_keys.end(), first.begin(),
                                            out_keys.begin(), out.begin(), Equal(), Add());
    Values wanted_keys, wanted;
    for (int at = 0; at < n; at++) {
        if (at > 0 && keys[at] == keys[at - 1])
            wanted.back() = wanted.back() + in[at];
        else
            wanted_keys.push_back(keys[at]), wanted.push_back(in[at]);
    }
    check(host_until(out_keys, ends.first), wanted_keys);
    check(host_until(out, ends.second), wanted);
}

CASE(inclusive_scan) {
    const Values in = values(n);
    OnDevice first = on_device(in), out(n);
    thrust::inclusive_scan(first.begin(), first.end(), out.begin(), Add());
    Values wanted(n);
    std::partial_sum(in.begin(), in.end(), wanted.begin());
    check(host(out), wanted);
    thrust::inclusive_scan(first.begin(), first.end(), first.begin(), Add());
    check(host(first), wanted);
}

Values exclusive(const Values &in, T initial) {
    Values found;
    for (const T value : in) found.push_back(initial), initial = initial + value;
    return found;
}
CASE(exclusive_scan) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n);
    thrust::exclusive_scan(first.begin(), first.end(), out.begin(), number(4), Add());
    check(host(out), exclusive(in, number(4)));
}

CASE(transform_scans) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice with(n), without(n);
    thrust::transform_inclusive_scan(first.begin(), first.end(), with.begin(), Twice(), Add());
    thrust::transform_exclusive_scan(first.begin(), first.end(), without.begin(), Twice(),
                                     number(4), Add());
    Values twice(n), wanted(n);
    std::transform(in.begin(), in.end(), twice.begin(), Twice());
    std::partial_sum(twice.begin(), twice.end(), wanted.begin());
    check(host(with), wanted);
    check(host(without), exclusive(twice, number(4)));
}

CASE(inclusive_scan_by_key) {
    const Values keys = runs(n), in = values(n, 2);
    const OnDevice on_keys = on_device(keys), first = on_device(in);
    OnDevice out(n);
    thrust::inclusive_scan_by_key(on_keys.begin(), on_keys.end(), first.begin(), out.begin(),
                                  Equal(), Add());
    Values wanted;
    for (int at = 0; at < n; at++)
        wanted.push_back(at > 0 && keys[at] == keys[at - 1] ? wanted.back() + in[at] : in[at]);
    check(host(out), wanted);
}

CASE(exclusive_scan_by_key) {
    const Values keys = runs(n), in = values(n, 2);
    const OnDevice on_keys = on_device(keys), first = on_device(in);
    OnDevice out(n);
    thrust::exclusive_scan_by_key(on_keys.begin(), on_keys.end(), first.begin(), out.begin(),
                                  number(4), Equal(), Add());
    Values wanted;
    for (int at = 0; at < n; at++) {
        const bool goes_on = at > 0 && keys[at] == keys[at - 1];
        wanted.push_back(goes_on ? wanted.back() + in[at - 1] : number(4));
    }
    check(host(out), wanted);
}

} // namespace
