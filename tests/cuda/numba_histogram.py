"""A histogram with numba-cuda: atomic additions in shared memory, then in global memory, and atomic
minimum and maximum."""

import sys

import numpy as np
from numba import cuda, int32

BINS = 64


@cuda.jit
def histogram(values, bins, extremes, total):
    own = cuda.shared.array(BINS, dtype=int32)
    for bin in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        own[bin] = 0
    cuda.syncthreads()
    for at in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        value = values[at]
        cuda.atomic.add(own, value % BINS, 1)
        cuda.atomic.min(extremes, 0, value)
        cuda.atomic.max(extremes, 1, value)
        cuda.atomic.add(total, 0, float(value))
    cuda.syncthreads()
    for bin in range(cuda.threadIdx.x, BINS, cuda.blockDim.x):
        cuda.atomic.add(bins, bin, own[bin])


def main():
    rng = np.random.default_rng(3)
    values = rng.integers(0, 1_000_000, 50_000, dtype=np.int32)
    bins = cuda.to_device(np.zeros(BINS, dtype=np.int32))
    extremes = cuda.to_device(np.array([2_000_000, -1], dtype=np.int32))
    # Whole numbers below 2^53, so that the order of the additions does not matter.
    total = cuda.to_device(np.zeros(1, dtype=np.float64))
    histogram[16, 128](cuda.to_device(values), bins, extremes, total)
    wrong = int(np.count_nonzero(bins.copy_to_host() != np.bincount(values % BINS, minlength=BINS)))
    least, most = extremes.copy_to_host()
    wrong += int(least != values.min()) + int(most != values.max())
    wrong += int(total.copy_to_host()[0] != values.sum(dtype=np.int64))
    print(f"{values.size} values, {BINS} bins, least, most and sum: {wrong} wrong (tolerance 0)")
    return wrong


if __name__ == "__main__":
    failed = main()
    print("Test failed" if failed else "Test passed")
    sys.exit(1 if failed else 0)
