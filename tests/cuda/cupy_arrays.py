"""CuPy: arrays, its three kinds of kernels, templates, streams and events. CuPy's modules contain
NVIDIA's runtime, and CuPy compiles with NVRTC."""

import os
import sys

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"

import numpy as np

try:
    import cupy as cp
except ImportError:
    print("no CuPy: run `tools/setup.sh cuda`")
    sys.exit(77)

ADD = """
extern "C" __global__ void add(const float *a, const float *b, float *sum, int count) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < count) sum[i] = a[i] + b[i];
}"""
SCALE = """
template <typename T> __global__ void scale(T *values, T factor, int count) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}"""
COUNT = 1000


def wrong(found, expected, tolerance=0):
    """Returns the number of wrong values."""
    found, expected = np.asarray(cp.asnumpy(found)), np.asarray(expected)
    return (
        int(np.count_nonzero(np.abs(found - expected) > tolerance))
        if found.shape == expected.shape
        else expected.size
    )


def arrays(rng):
    column, row = rng.random((100, 1)), rng.random((1, 50))
    yield (
        "arithmetic",
        wrong(
            cp.arange(COUNT, dtype=cp.float32) * 2 + 1, np.arange(COUNT, dtype=np.float32) * 2 + 1
        ),
    )
    yield "broadcasting", wrong(cp.asarray(column) * cp.asarray(row) - 3, column * row - 3)
    values = rng.random(100_000)
    there = cp.asarray(values)
    yield "sum", wrong(there.sum(), values.sum(), 1e-8)
    yield "argmax", wrong(there.argmax(), values.argmax())
    whole = rng.integers(0, 100, COUNT)
    there = cp.asarray(whole)
    yield "a mask", wrong(there[there > 50], whole[whole > 50])
    yield "sums so far", wrong(cp.cumsum(there), whole.cumsum())


def kernels(rng):
    a, b = rng.random(COUNT, dtype=np.float32), rng.random(COUNT, dtype=np.float32)
    there = [cp.asarray(a), cp.asarray(b), cp.zeros(COUNT, dtype=cp.float32)]
    cp.RawKernel(ADD, "add")((8,), (128,), (*there, np.int32(COUNT)))
    yield "a raw kernel", wrong(there[2], a + b)
    module = cp.RawModule(code=SCALE, name_expressions=["scale<float>", "scale<double>"])
    for name, kind in (("scale<float>", np.float32), ("scale<double>", np.float64)):
        values = cp.arange(COUNT, dtype=kind)
        module.get_function(name)((8,), (128,), (values, kind(3), np.int32(COUNT)))
        yield name, wrong(values, np.arange(COUNT, dtype=kind) * 3)
    square = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "square")
    yield "an element-wise kernel", wrong(square(there[0], there[1]), (a - b) ** 2, 1e-6)
    length = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "length")
    values = rng.random(12_345)
    yield (
        "a reduction kernel",
        wrong(length(cp.asarray(values)), np.sqrt((values * values).sum()), 1e-9),
    )


def streams(_):
    with cp.cuda.Stream(non_blocking=True) as stream:
        ones = cp.ones(COUNT)
        begun = stream.record()
        twice = ones * 2
        ended = stream.record()
    stream.synchronize()
    yield "a stream", wrong(twice, np.full(COUNT, 2.0))
    yield "times of events", int(cp.cuda.get_elapsed_time(begun, ended) < 0)


def main():
    rng = np.random.default_rng(5)
    results = [result for part in (arrays, kernels, streams) for result in part(rng)]
    for name, count in results:
        if count:
            print(f"{name}: {count} wrong")
    failed = sum(1 for _, count in results if count)
    print(f"CuPy {cp.__version__}, {len(results)} results: {failed} wrong")
    return failed


if __name__ == "__main__":
    failed = main()
    print("Test failed" if failed else "Test passed")
    sys.exit(1 if failed else 0)
