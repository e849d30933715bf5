"""The sum of two vectors with numba-cuda: an unmodified program that only uses the driver API."""

import sys

import numpy as np
from numba import cuda


@cuda.jit
def add(a, b, total):
    at = cuda.grid(1)
    if at < total.size:
        total[at] = a[at] + b[at]


def main():
    count, block = 100_003, 256
    rng = np.random.default_rng(1)
    a, b = rng.random(count, dtype=np.float32), rng.random(count, dtype=np.float32)
    on_a, on_b = cuda.to_device(a), cuda.to_device(b)
    total = cuda.device_array_like(on_a)
    add[(count + block - 1) // block, block](on_a, on_b, total)
    wrong = int(np.count_nonzero(total.copy_to_host() != a + b))
    # The arguments are host arrays, which numba copies to the device and back.
    again = np.zeros_like(a)
    add[(count + block - 1) // block, block](a, b, again)
    wrong += int(np.count_nonzero(again != a + b))
    print(f"{count} values twice on {cuda.get_current_device().name}, {wrong} wrong (tolerance 0)")
    return wrong


if __name__ == "__main__":
    failed = main()
    print("Test failed" if failed else "Test passed")
    sys.exit(1 if failed else 0)
