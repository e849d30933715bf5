// Thrust's algorithms that make, move and change values one by one.
#include "thrust_values.h"

#include <thrust/adjacent_difference.h>
#include <thrust/copy.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/gather.h>
#include <thrust/generate.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/replace.h>
#include <thrust/reverse.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/shuffle.h>
#include <thrust/swap.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>
#include <thrust/uninitialized_copy.h>
#include <thrust/uninitialized_fill.h>

namespace {

struct Numbered {
    __host__ __device__ T operator()(int64 at) const { return number(at % 1000); }
};
struct Constant {
    __host__ __device__ T operator()() const { return number(42); }
};
struct Increment {
    __host__ __device__ void operator()(T &value) const { value = value + number(4); }
};

CASE(transform) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n);
    const auto end = thrust::transform(first.begin(), first.end(), out.begin(), Twice());
    check_one<int64>(end - out.begin(), n);
    Values wanted(n);
    std::transform(in.begin(), in.end(), wanted.begin(), Twice());
    check(host(out), wanted);
}

CASE(transform_two) {
    const Values left = values(n), right = values(n, 2);
    const OnDevice first = on_device(left), second = on_device(right);
    OnDevice out(n);
    thrust::transform(first.begin(), first.end(), second.begin(), out.begin(), Add());
    Values wanted(n);
    std::transform(left.begin(), left.end(), right.begin(), wanted.begin(), Add());
    check(host(out), wanted);
}

CASE(transform_if) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n, number(1));
    thrust::transform_if(first.begin(), first.end(), out.begin(), Twice(), IsSmall());
    Values wanted;
    for (const T value : in) wanted.push_back(IsSmall()(value) ? value + value : number(1));
    check(host(out), wanted);
}

CASE(fill) {
    OnDevice out(n, number(1));
    thrust::fill(out.begin() + n / 3, out.end(), number(7));
    Values wanted(n, number(7));
    std::fill_n(wanted.begin(), n / 3, number(1));
    check(host(out), wanted);
    thrust::fill_n(out.begin(), n / 2, number(9));
    std::fill_n(wanted.begin(), n / 2, number(9));
    check(host(out), wanted);
}

CASE(generate) {
    OnDevice out(n);
    thrust::generate(out.begin(), out.end(), Constant());
    check(host(out), Values(n, number(42)));
}

CASE(tabulate) {
    OnDevice out(n);
    thrust::tabulate(out.begin(), out.end(), Numbered());
    Values wanted;
    for (int at = 0; at < n; at++) wanted.push_back(number(at % 1000));
    check(host(out), wanted);
}

// A sequence multiplies its step, which a Point does not.
CASE(sequence) {
    thrust::device_vector<int> out(n);
    thrust::sequence(out.begin(), out.end(), 5, 3);
    std::vector<int> wanted;
    for (int at = 0; at < n; at++) wanted.push_back(5 + 3 * at);
    check(host(out), wanted);
}

CASE(copy) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n), part(n, number(1));
    thrust::copy(first.begin(), first.end(), out.begin());
    check(host(out), in);
    thrust::copy_n(first.begin(), n / 2, part.begin());
    Values wanted = in;
    std::fill(wanted.begin() + n / 2, wanted.end(), number(1));
    check(host(part), wanted);
}

CASE(gather) {
    const Values in = values(n);
    const std::vector<int> places = integers(n, 5, std::max(n, 1));
    const OnDevice first = on_device(in);
    const thrust::device_vector<int> map = on_device(places);
    OnDevice out(n);
    thrust::gather(map.begin(), map.end(), first.begin(), out.begin());
    Values wanted;
    for (const int place : places) wanted.push_back(in[place]);
    check(host(out), wanted);
}

CASE(gather_if) {
    const Values in = values(n);
    const std::vector<int> places = integers(n, 5, std::max(n, 1)), flags = integers(n, 6, 2);
    const OnDevice first = on_device(in);
    const thrust::device_vector<int> map = on_device(places), stencil = on_device(flags);
    OnDevice out(n, number(1));
    thrust::gather_if(map.begin(), map.end(), stencil.begin(), first.begin(), out.begin());
    Values wanted;
    for (int at = 0; at < n; at++) wanted.push_back(flags[at] ? in[places[at]] : number(1));
    check(host(out), wanted);
}

std::vector<int> backwards(int n) {
    std::vector<int> places = counted(n);
    std::reverse(places.begin(), places.end());
    return places;
}
CASE(scatter) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    const thrust::device_vector<int> map = on_device(backwards(n));
    OnDevice out(n);
    thrust::scatter(first.begin(), first.end(), map.begin(), out.begin());
    check(host(out), Values(in.rbegin(), in.rend()));
}

CASE(scatter_if) {
    const Values in = values(n);
    const std::vector<int> flags = integers(n, 6, 2);
    const OnDevice first = on_device(in);
    const thrust::device_vector<int> map = on_device(backwards(n)), stencil = on_device(flags);
    OnDevice out(n, number(1));
    thrust::scatter_if(first.begin(), first.end(), map.begin(), stencil.begin(), out.begin());
    Values wanted(n, number(1));
    for (int at = 0; at < n; at++)
        if (flags[at]) wanted[n - 1 - at] = in[at];
    check(host(out), wanted);
}

CASE(replace) {
    Values in = values(n, 1, 10);
    OnDevice first = on_device(in);
    thrust::replace(first.begin(), first.end(), number(3), number(55));
    std::replace(in.begin(), in.end(), number(3), number(55));
    check(host(first), in);
}

CASE(replace_if) {
    Values in = values(n);
    OnDevice first = on_device(in);
    thrust::replace_if(first.begin(), first.end(), IsSmall(), number(99));
    std::replace_if(in.begin(), in.end(), IsSmall(), number(99));
    check(host(first), in);
}

CASE(replace_copy) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n);
    thrust::replace_copy_if(first.begin(), first.end(), out.begin(), IsMiddle(), number(1));
    Values wanted(n);
    std::replace_copy_if(in.begin(), in.end(), wanted.begin(), IsMiddle(), number(1));
    check(host(out), wanted);
}

CASE(reverse) {
    const Values in = values(n), wanted(in.rbegin(), in.rend());
    OnDevice first = on_device(in), out(n);
    thrust::reverse_copy(first.begin(), first.end(), out.begin());
    check(host(out), wanted);
    thrust::reverse(first.begin(), first.end());
    check(host(first), wanted);
}

CASE(swap_ranges) {
    const Values left = values(n), right = values(n, 2);
    OnDevice first = on_device(left), second = on_device(right);
    thrust::swap_ranges(first.begin(), first.end(), second.begin());
    check(host(first), right);
    check(host(second), left);
}

CASE(for_each) {
    const Values in = values(n);
    OnDevice first = on_device(in);
    thrust::for_each(first.begin(), first.end(), Increment());
    thrust::for_each_n(first.begin(), n / 2, Increment());
    Values wanted = in;
    for (int at = 0; at < n; at++)
        for (int times = 0; times < (at < n / 2 ? 2 : 1); times++) Increment()(wanted[at]);
    check(host(first), wanted);
}

struct AddPair {
    template <typename Pair> __host__ __device__ void operator()(Pair pair) const {
        thrust::get<2>(pair) = thrust::get<0>(pair) + thrust::get<1>(pair);
    }
};
CASE(for_each_of_zipped) {
    const Values left = values(n), right = values(n, 2);
    const OnDevice first = on_device(left), second = on_device(right);
    OnDevice out(n);
    const auto begin = thrust::make_zip_iterator(first.begin(), second.begin(), out.begin());
    thrust::for_each(begin, begin + n, AddPair());
    Values wanted(n);
    std::transform(left.begin(), left.end(), right.begin(), wanted.begin(), Add());
    check(host(out), wanted);
}

CASE(adjacent_difference) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n);
    thrust::adjacent_difference(first.begin(), first.end(), out.begin(), Subtract());
    Values wanted(n);
    std::adjacent_difference(in.begin(), in.end(), wanted.begin());
    check(host(out), wanted);
}

CASE(uninitialized) {
    const Values in = values(n);
    const OnDevice first = on_device(in);
    OnDevice out(n);
    thrust::uninitialized_fill(out.begin(), out.end(), number(8));
    check(host(out), Values(n, number(8)));
    thrust::uninitialized_copy(first.begin(), first.end(), out.begin());
    check(host(out), in);
}

CASE(shuffle) {
    Values in = values(n);
    OnDevice first = on_device(in);
    thrust::default_random_engine random(17);
    thrust::shuffle(first.begin(), first.end(), random);
    // The order is not said, and all values are still there.
    Values found = host(first);
    if (n > 100 && found == in) throw Wrong("the order is the same");
    std::sort(found.begin(), found.end());
    std::sort(in.begin(), in.end());
    check(found, in);
}

} // namespace
