#!/usr/bin/env python3
"""What calls of cuBLAS and cuFFT cost on a CPU device, beside OpenBLAS and FFTW called directly.

    penstock run -- .venv-cuda/bin/python bench/cuda/libraries.py [small_calls.so]

Prints, as medians of several runs that alternate: the product of two matrices of 1,024 rows in
single precision, the transform of 1,048,576 points, and what a small call costs the program. The
last one needs the library that bench/cuda/Makefile builds."""

import ctypes
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "cuda"))

import numpy as np
from libraries import INT, Device, address, cuda, good, library

TURNS = 15


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def beside(name, pool, direct):
    """Measures both in turns, after a first run of each, and prints the ratio of their speeds."""
    pool(), direct()
    times = [(timed(pool), timed(direct)) for _ in range(TURNS)]
    ours, theirs = (statistics.median(column) for column in zip(*times))
    print(
        f"{name}: pool {ours * 1e3:.2f} ms, direct {theirs * 1e3:.2f} ms, ratio {theirs / ours:.2f}"
    )


def sync():
    good(cuda.cudaDeviceSynchronize())


def product():
    n = 1024
    blas, direct = library("cublas", 13), ctypes.CDLL("libopenblas.so.0")
    handle, one, none = ctypes.c_void_p(), np.ones(1, np.float32), np.zeros(1, np.float32)
    blas.cublasCreate_v2(ctypes.byref(handle))
    values = np.random.default_rng(1).uniform(-1, 1, n * n).astype(np.float32)
    host = [values.copy(), values.copy(), np.zeros(n * n, np.float32)]
    a, b, c = (Device(it) for it in host)
    sizes = [INT(n)] * 3

    def pool():
        code = blas.cublasSgemm_v2(
            handle,
            INT(0),
            INT(0),
            *sizes,
            address(one),
            a.pointer,
            INT(n),
            b.pointer,
            INT(n),
            address(none),
            c.pointer,
            INT(n),
        )
        assert code == 0, code
        sync()

    letter, size = ctypes.c_char(b"N"), ctypes.byref(INT(n))

    def plain():
        direct.sgemm_(
            ctypes.byref(letter),
            ctypes.byref(letter),
            size,
            size,
            size,
            address(one),
            address(host[0]),
            size,
            address(host[1]),
            size,
            address(none),
            address(host[2]),
            size,
        )

    beside("product of 1,024 x 1,024 in single precision", pool, plain)
    assert np.allclose(c.read(), host[2], atol=1e-3)
    small_calls(blas, handle)


def small_calls(blas, handle):
    """Measures what a call costs the program: many calls in a row without a wait."""
    x, y, one = (
        Device(np.ones(16, np.float32)),
        Device(np.ones(16, np.float32)),
        np.zeros(1, np.float32),
    )
    caller = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if caller is None:
        print("small call: give the library that bench/cuda/Makefile builds (small_calls.so)")
        return
    many = ctypes.CDLL(str(caller)).many_axpys
    many.restype = ctypes.c_double
    function = ctypes.cast(blas.cublasSaxpy_v2, ctypes.c_void_p)
    costs = []
    for _ in range(TURNS):
        costs.append(many(function, handle, INT(2000), address(one), x.pointer, y.pointer))
        sync()
    print(f"small call: {statistics.median(costs) * 1e6:.2f} us of the program's time")


def transform():
    n = 1 << 20
    fft, direct = library("cufft", 12), ctypes.CDLL("libfftw3f_threads.so.3", ctypes.RTLD_GLOBAL)
    ctypes.CDLL("libfftw3f.so.3", ctypes.RTLD_GLOBAL)
    direct.fftwf_init_threads()
    direct.fftwf_plan_with_nthreads(INT(len(__import__("os").sched_getaffinity(0))))
    values = np.random.default_rng(2).uniform(-1, 1, 2 * n).astype(np.float32).view(np.complex64)
    host, out = values.copy(), np.zeros(n, np.complex64)
    direct.fftwf_plan_dft_1d.restype = ctypes.c_void_p
    planned = ctypes.c_void_p(
        direct.fftwf_plan_dft_1d(INT(n), address(host), address(out), INT(-1), ctypes.c_uint(64))
    )
    plan, source, target = INT(), Device(values), Device(out)
    fft.cufftPlan1d(ctypes.byref(plan), INT(n), INT(0x29), INT(1))

    def pool():
        code = fft.cufftExecC2C(plan, source.pointer, target.pointer, INT(-1))
        assert code == 0, code
        sync()

    beside(
        "transform of 1,048,576 points in single precision",
        pool,
        lambda: direct.fftwf_execute(planned),
    )
    assert np.allclose(target.read(), out, atol=0.1)


product()
transform()
