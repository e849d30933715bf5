"""The product of two matrices with numba-cuda, tile by tile through shared memory."""

import sys

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def multiply(a, b, c):
    tile_a = cuda.shared.array((TILE, TILE), dtype=float32)
    tile_b = cuda.shared.array((TILE, TILE), dtype=float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        start = tile * TILE
        # Zeros beyond the edge, because every thread must reach the barriers.
        tile_a[x, y] = (
            a[row, start + y] if row < a.shape[0] and start + y < a.shape[1] else float32(0)
        )
        tile_b[x, y] = (
            b[start + x, column] if start + x < b.shape[0] and column < b.shape[1] else float32(0)
        )
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[x, k] * tile_b[k, y]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def main():
    rng = np.random.default_rng(2)
    a = rng.random((150, 203), dtype=np.float32)
    b = rng.random((203, 97), dtype=np.float32)
    c = cuda.device_array((a.shape[0], b.shape[1]), dtype=np.float32)
    stream = cuda.stream()
    on_a, on_b = cuda.to_device(a, stream=stream), cuda.to_device(b, stream=stream)
    blocks = tuple((size + TILE - 1) // TILE for size in c.shape)
    multiply[blocks, (TILE, TILE), stream](on_a, on_b, c)
    got = c.copy_to_host(stream=stream)
    stream.synchronize()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    difference = float(np.max(np.abs(got - expected)) / np.max(expected))
    print(
        f"{a.shape} x {b.shape}: largest difference {difference:.1e} of the largest value (tolerance 1e-6)"
    )
    return difference < 1e-6


if __name__ == "__main__":
    passed = main()
    print("Test passed" if passed else "Test failed")
    sys.exit(0 if passed else 1)
