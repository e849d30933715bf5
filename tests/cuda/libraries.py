"""What the tests of cuBLAS and cuFFT have in common: device memory, and the libraries by ctypes."""

import ctypes
import sys

import numpy as np

INT = ctypes.c_int


def library(name, *versions):
    """Returns the pool's library: one of these versions must be there."""
    for version in versions:
        try:
            return ctypes.CDLL(f"lib{name}.so.{version}")
        except OSError:
            continue
    print(f"no lib{name}")
    sys.exit(1)


cuda = library("cudart", 13)
TO_DEVICE, TO_HOST = 1, 2


class Failures:
    """Counts the checks and prints those that fail."""

    def __init__(self):
        self.checks = 0
        self.failed = 0

    def check(self, holds, what):
        self.checks += 1
        if not holds:
            self.failed += 1
            if self.failed <= 20:
                print("wrong:", what)

    def end(self, name):
        print(f"{name}: {self.checks} checks, {self.failed} wrong")
        if self.failed:
            sys.exit(1)
        print("Test passed")


class Device:
    """A copy of an array in device memory."""

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)
        self.pointer = ctypes.c_void_p()
        good(cuda.cudaMalloc(ctypes.byref(self.pointer), size_t(max(self.array.nbytes, 1))))
        self.write()

    def write(self):
        at = self.array.ctypes.data_as(ctypes.c_void_p)
        good(cuda.cudaMemcpy(self.pointer, at, size_t(self.array.nbytes), TO_DEVICE))

    def read(self):
        back = np.empty_like(self.array)
        at = back.ctypes.data_as(ctypes.c_void_p)
        good(cuda.cudaMemcpy(at, self.pointer, size_t(back.nbytes), TO_HOST))
        return back

    def __del__(self):
        if self.pointer:
            cuda.cudaFree(self.pointer)


def size_t(value):
    return ctypes.c_size_t(value)


def good(code):
    if code != 0:
        raise RuntimeError(f"CUDA returns {code}")


def address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def random(rng, shape, dtype):
    """Returns random numbers around 1 in size, complex ones if the type is."""
    values = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.uniform(-1, 1, shape)
    return values.astype(dtype)
