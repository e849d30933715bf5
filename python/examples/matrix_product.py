#!/usr/bin/env python3
"""C = A B on all devices: A and C are split into rows, B goes to every device."""

import argparse
import pathlib
import sys
import time

import numpy as np

import penstock_water as water

KERNEL = pathlib.Path(__file__).resolve().parents[2] / "examples/libwater/matrix_mul/kernel.cl"


def multiply(run: water.Run, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All is issued before anything is waited for: so the runtime sees that B goes to all devices."""
    n = b.shape[0]
    c = np.full((a.shape[0], n), np.nan, dtype=np.float32)
    done, first = [], 0
    for device, rows in zip(run.devices, water.partition(a.shape[0], len(run.devices))):
        part = slice(first, first + rows)
        kernel = device.kernel(KERNEL, "matrix_mul")
        left, right = (
            device.upload(a[part], water.MemoryFlag.READ_ONLY),
            device.upload(b, water.MemoryFlag.READ_ONLY),
        )
        product = device.buffer(c[part].nbytes, water.MemoryFlag.WRITE_ONLY)
        ran = kernel.run((n, rows), [left, right, product, np.uint64(n)])
        done.append(product.read(c[part], after=ran))
        first += rows
    water.merge(*done).wait()
    return c


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="order of the matrices (default 512)")
    parser.add_argument(
        "--devices", default="SELECT ALL", help='a query for the devices (default "SELECT ALL")'
    )
    options = parser.parse_args()
    random = np.random.default_rng(1)
    # Small whole numbers: all sums are exact, in whatever order they are added.
    a, b = (
        random.integers(-8, 9, (options.size, options.size)).astype(np.float32) for _ in range(2)
    )
    with water.Run(options.devices) as run:
        for device in run.devices:
            print(f"{device.name} on {device.attribute('hostname')}")
        start = time.monotonic()
        c = multiply(run, a, b)
        took_s = time.monotonic() - start
    right = np.array_equal(c, a @ b)
    print(
        f"order {options.size}, {len(run.devices)} devices: {took_s:.3f} s, {'right' if right else 'WRONG'}"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
