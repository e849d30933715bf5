"""cuBLAS: every routine in all types against numpy, with all operations, triangles, sides,
distances and both pointer modes; the order with other work of the stream; and calls that make no
sense."""

import ctypes

import numpy as np
from cublas_matrices import batches, level_3, narrow_types
from cublas_operands import (
    INVALID,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    TYPES,
    blas,
    failures,
    handle,
    rng,
)
from cublas_vectors import level_1, level_2
from libraries import INT, Device, address, cuda, good, random


def order():
    """A chain of fills and products in several streams gives what the program's order says."""
    n = 64
    streams = [ctypes.c_void_p() for _ in range(3)]
    for stream in streams:
        good(cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), INT(1)))
    event = ctypes.c_void_p()
    good(cuda.cudaEventCreate(ctypes.byref(event)))
    ones, zero = np.ones(1, np.float64), np.zeros(1, np.float64)
    for turn in range(30):
        x, y = Device(np.zeros(n * n)), Device(np.zeros(n * n))
        eye = Device(2 * np.eye(n).ravel())
        before, after = streams[turn % 3], streams[(turn + 1) % 3]
        blas.cublasSetStream_v2(handle, before)
        # Bytes of 0x3f are 0.00047...; the product doubles them, and the copy comes behind it.
        good(cuda.cudaMemsetAsync(x.pointer, INT(0x3F), ctypes.c_size_t(8 * n * n), before))
        code = blas.cublasDgemm_v2(
            handle,
            INT(0),
            INT(0),
            INT(n),
            INT(n),
            INT(n),
            address(ones),
            x.pointer,
            INT(n),
            eye.pointer,
            INT(n),
            address(zero),
            y.pointer,
            INT(n),
        )
        good(cuda.cudaMemsetAsync(x.pointer, INT(0), ctypes.c_size_t(8 * n * n), before))
        good(cuda.cudaEventRecord(event, before))
        good(cuda.cudaStreamWaitEvent(after, event, INT(0)))
        blas.cublasSetStream_v2(handle, after)
        code |= blas.cublasDaxpy_v2(
            handle, INT(n * n), address(ones), y.pointer, INT(1), x.pointer, INT(1)
        )
        back = np.empty(n * n)
        good(
            cuda.cudaMemcpyAsync(
                address(back), x.pointer, ctypes.c_size_t(8 * n * n), INT(2), after
            )
        )
        good(cuda.cudaStreamSynchronize(after))
        expected = 2 * np.frombuffer(b"\x3f" * 8, np.float64)[0]
        failures.check(code == 0 and np.all(back == expected), f"order {turn}: {code}")
    blas.cublasSetStream_v2(handle, None)
    for stream in streams:
        good(cuda.cudaStreamDestroy(stream))


def graphs():
    """A product in a captured graph runs when the graph is launched, and each time."""
    stream, graph, exec_ = (ctypes.c_void_p() for _ in range(3))
    good(cuda.cudaStreamCreate(ctypes.byref(stream)))
    x, y, one = Device(np.arange(8.0)), Device(np.zeros(8)), np.ones(1)
    blas.cublasSetStream_v2(handle, stream)
    good(cuda.cudaStreamBeginCapture(stream, INT(0)))
    code = blas.cublasDaxpy_v2(handle, INT(8), address(one), x.pointer, INT(1), y.pointer, INT(1))
    good(cuda.cudaStreamEndCapture(stream, ctypes.byref(graph)))
    failures.check(code == 0 and not y.read().any(), "a captured call has run")
    good(cuda.cudaGraphInstantiate(ctypes.byref(exec_), graph, ctypes.c_ulonglong(0)))
    for _ in range(3):
        good(cuda.cudaGraphLaunch(exec_, stream))
    good(cuda.cudaStreamSynchronize(stream))
    failures.check(np.array_equal(y.read(), 3 * np.arange(8.0)), "launches of a graph with a call")
    blas.cublasSetStream_v2(handle, None)


def expect(code, wanted, what):
    failures.check(code == wanted, f"{what} gives {code}")


def garbage():
    """Calls that make no sense give the documented status."""
    x, one = Device(np.ones(16, np.float32)), np.ones(1, np.float32)
    axpy = lambda who, n, alpha, a, b: blas.cublasSaxpy_v2(who, INT(n), alpha, a, INT(1), b, INT(1))
    at, far = x.pointer, ctypes.c_void_p(0x1234567)
    past = ctypes.c_void_p(at.value + 64)
    expect(axpy(None, 4, address(one), at, at), NOT_INITIALIZED, "no handle")
    expect(
        axpy(ctypes.c_void_p(0xDEADBEEF), 4, address(one), at, at),
        NOT_INITIALIZED,
        "a wrong handle",
    )
    expect(axpy(handle, 4, None, at, at), INVALID, "no factor")
    expect(axpy(handle, 4, address(one), None, at), INVALID, "no vector")
    expect(axpy(handle, 4, address(one), far, at), INVALID, "an address that is none")
    expect(axpy(handle, 17, address(one), at, at), INVALID, "a vector past its memory")
    expect(axpy(handle, 1, address(one), past, at), INVALID, "a vector behind its memory")
    expect(axpy(handle, -3, address(one), None, None), 0, "a negative length")
    expect(axpy(handle, 2**31 - 1, address(one), at, at), INVALID, "a huge length")
    garbage_in_products(at, one)
    garbage_in_other_calls(at, one)
    freed = Device(np.ones(4, np.float32))
    pointer = ctypes.c_void_p(freed.pointer.value)
    del freed
    expect(axpy(handle, 4, address(one), pointer, at), INVALID, "freed memory")
    other = ctypes.c_void_p()
    failures.check(blas.cublasCreate_v2(ctypes.byref(other)) == 0, "a second handle")
    expect(blas.cublasDestroy_v2(other), 0, "the end of a handle")
    expect(blas.cublasDestroy_v2(other), NOT_INITIALIZED, "the second end of a handle")
    expect(axpy(other, 4, address(one), at, at), NOT_INITIALIZED, "a handle that has ended")
    failures.check(np.array_equal(x.read(), np.ones(16, np.float32)), "a refused call has written")


def garbage_in_products(at, one):
    gemm = lambda ta, m, n, k, lda, ldc: blas.cublasSgemm_v2(
        handle,
        INT(ta),
        INT(0),
        INT(m),
        INT(n),
        INT(k),
        address(one),
        at,
        INT(lda),
        at,
        INT(max(k, 1)),
        address(one),
        at,
        INT(ldc),
    )
    expect(gemm(7, 2, 2, 2, 2, 2), INVALID, "an operation that is none")
    expect(gemm(0, -1, 2, 2, 2, 2), INVALID, "a negative size")
    expect(gemm(0, 4, 2, 2, 3, 4), INVALID, "a distance below the rows of A")
    expect(gemm(0, 4, 2, 2, 4, 3), INVALID, "a distance below the rows of C")
    expect(
        gemm(0, 2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1),
        INVALID,
        "a product of all memory",
    )
    expect(gemm(0, 0, 0, 0, 1, 1), 0, "an empty product")


def garbage_in_other_calls(at, one):
    wide = blas.cublasSaxpy_v2_64(
        handle, ctypes.c_int64(2**40), address(one), at, ctypes.c_int64(1), at, ctypes.c_int64(1)
    )
    expect(wide, NOT_SUPPORTED, "a length of 64 bits")
    expect(
        blas.cublasStrsv_v2(handle, INT(2), INT(0), INT(0), INT(2), at, INT(2), at, INT(1)),
        INVALID,
        "no triangle",
    )
    expect(
        blas.cublasSsymv_v2(
            handle, INT(0), INT(2), address(one), at, INT(2), at, INT(0), address(one), at, INT(1)
        ),
        INVALID,
        "a distance of 0",
    )
    expect(blas.cublasSdot_v2(handle, INT(2), at, INT(1), at, INT(1), None), INVALID, "no result")
    expect(blas.cublasSetPointerMode_v2(handle, INT(5)), INVALID, "a pointer mode that is none")
    expect(blas.cublasSgetrfBatched(handle), NOT_SUPPORTED, "a function that is not served")


def settings():
    number = INT()
    failures.check(
        blas.cublasGetVersion_v2(handle, ctypes.byref(number)) == 0 and number.value // 10000 == 13,
        "the version",
    )
    blas.cublasGetStatusString.restype = blas.cublasGetStatusName.restype = ctypes.c_char_p
    failures.check(
        blas.cublasGetStatusName(INT(15)) == b"CUBLAS_STATUS_NOT_SUPPORTED", "a status's name"
    )
    failures.check(blas.cublasSetMathMode(handle, INT(3)) == 0, "a math mode")
    failures.check(blas.cublasSetWorkspace_v2(handle, None, ctypes.c_size_t(0)) == 0, "a workspace")
    source, back = random(rng, (4, 5), np.float32), np.zeros((4, 5), np.float32)
    target = Device(np.zeros(5 * 6, np.float32))
    code = blas.cublasSetMatrix(
        INT(5), INT(4), INT(4), address(source), INT(5), target.pointer, INT(6)
    )
    code |= blas.cublasGetMatrix(
        INT(5), INT(4), INT(4), target.pointer, INT(6), address(back), INT(5)
    )
    failures.check(code == 0 and np.array_equal(source, back), f"a matrix there and back: {code}")
    code = blas.cublasSetVector(INT(5), INT(4), address(source), INT(2), target.pointer, INT(1))
    failures.check(
        code == 0 and np.array_equal(target.read()[:5], source.ravel()[:10:2]), f"a vector: {code}"
    )


for kind, dtype in TYPES.items():
    level_1(kind, dtype)
    level_2(kind, dtype)
    level_3(kind, dtype)
    batches(kind, dtype)
narrow_types()
order()
graphs()
settings()
garbage()
failures.end("cublas")
